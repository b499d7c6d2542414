"""The kernels on a GPU, where there is one: each way and dtype, in a CUDA graph, for weights that change."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest
import torch
import torch.nn.functional as F

from gsl import kernels
from gsl.kernels import CONV2D, LINEAR
from gsl.kernels.operator import ACTIVATIONS

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
DTYPES = {torch.float32: 1e-4, torch.float16: 5e-3, torch.bfloat16: 3e-2}
"""The largest errors, relative to the largest number."""
WINDOWS: dict[str, tuple[Any, ...]] = {
    "plain": ([1, 1], [0, 0], [1, 1], 1),
    "moved": ([2, 1], [1, 2], [1, 2], 1),
    "groups": ([1, 1], [1, 1], [1, 1], 4),
    "depthwise": ([1, 1], [1, 1], [1, 1], 8),
    "point": ([1, 1], [0, 0], [1, 1], 1),
}
LAST = torch.channels_last


@pytest.fixture(autouse=True)
def _in_single_precision() -> Iterator[None]:
    before = torch.backends.cudnn.allow_tf32
    torch.backends.cudnn.allow_tf32 = False
    torch.manual_seed(0)
    yield
    torch.backends.cudnn.allow_tf32 = before


def error(found: torch.Tensor, expected: torch.Tensor) -> float:
    return float((found.double() - expected).abs().max() / expected.abs().max())


def random(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.randn(shape, device="cuda").to(dtype)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_linear(activation: str, dtype: torch.dtype) -> None:
    weight, bias = random(24, 16, dtype=dtype), random(24, dtype=dtype)
    rows = [random(*shape, dtype=dtype) for shape in ((5, 16), (2, 3, 16), (16,))]
    for x in (*rows, random(16, 4, dtype=dtype).t()):
        for b in (bias, None):
            plain = F.linear(x.double(), weight.double(), None if b is None else b.double())
            for addend in (None, random(*plain.shape, dtype=dtype), random(24, dtype=dtype)):
                expected = ACTIVATIONS[activation].function(plain if addend is None else plain + addend.double())
                found = LINEAR(x, weight, b, addend, activation=activation)
                assert found.dtype == dtype
                assert found.shape == expected.shape
                assert error(found, expected) < DTYPES[dtype]


@pytest.mark.parametrize("kind", WINDOWS)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("way", ["plain", "channels last", "cudnn", "product", ""])
def test_conv(way: str, dtype: torch.dtype, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if way:
        name = "gsl.kernels.operator._fastest"
        monkeypatch.setattr(name, lambda _, calls, seconds: way if way in calls else "plain")
    window = WINDOWS[kind]
    side = 1 if kind == "point" else 3
    weight, bias = random(16, 8 // window[3], side, side, dtype=dtype), random(16, dtype=dtype)
    x = random(2, 8, 12, 10, dtype=dtype)
    for activation in ("none", "relu", "silu"):
        for data in (x, x.contiguous(memory_format=LAST), x[:1, :, :8]):
            for b in (bias, None):
                plain = F.conv2d(data.double(), weight.double(), None if b is None else b.double(), *window)
                for addend in (None, random(*plain.shape, dtype=dtype), random(16, 1, 1, dtype=dtype)):
                    expected = ACTIVATIONS[activation].function(plain if addend is None else plain + addend.double())
                    kept = None if addend is None else addend.clone()
                    for _ in range(3):
                        found = CONV2D(data, weight, b, addend, *window, activation=activation)
                        assert error(found, expected) < DTYPES[dtype]
                        assert found.dtype == dtype
                        assert found.is_contiguous(memory_format=LAST)
                    assert addend is None or torch.equal(addend, kept)
    chosen = {name for shape, name in kernels.choices().items()}
    assert chosen <= {"plain", "channels last", "cudnn", *(["product"] if kind == "point" else [])}
    assert not way or chosen <= {"plain", way}
    assert len(chosen) > 0


def test_in_a_cuda_graph() -> None:
    """Before a weight is packed, and after; what is packed is not made within the graph."""
    x, weight, bias = random(2, 8, 12, 12), random(8, 8, 3, 3), random(8)
    for warm in (0, 3):
        kernels.clear()
        call = partial(CONV2D, x, weight, bias, None, [1, 1], [1, 1], activation="relu")
        expected = F.relu(F.conv2d(x, weight, bias, padding=1))
        torch.cuda.synchronize()
        for _ in range(warm):
            call()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            for _ in range(3):
                found = call()
        x.copy_(random(*x.shape))
        graph.replay()
        torch.testing.assert_close(found, F.relu(F.conv2d(x, weight, bias, padding=1)), rtol=1e-4, atol=1e-4)
        torch.testing.assert_close(call(), F.relu(F.conv2d(x, weight, bias, padding=1)), rtol=1e-4, atol=1e-4)
        assert expected.shape == found.shape


def test_a_weight_that_changes() -> None:
    x, weight, bias = random(2, 8, 12, 12), random(8, 8, 3, 3), random(8)
    for _ in range(4):
        for _ in range(3):
            found = CONV2D(x, weight, bias, None, activation="relu")
        torch.testing.assert_close(found, F.relu(F.conv2d(x, weight, bias)), rtol=1e-4, atol=1e-4)
        weight.mul_(1.5)
        bias.sub_(0.25)


@pytest.mark.parametrize("operator", ["linear", "conv2d"])
def test_gradients_compilers_and_inference_mode(operator: str) -> None:
    if operator == "linear":
        x, weight, bias = random(4, 8), random(8, 8), random(8)
        ours, plain = partial(LINEAR, activation="relu"), F.linear
    else:
        x, weight, bias = random(2, 8, 6, 6), random(8, 8, 3, 3), random(8)
        ours, plain = partial(CONV2D, activation="relu"), F.conv2d
    with torch.enable_grad():
        leaves = [each.clone().requires_grad_() for each in (x, weight, bias)]
        others = [each.clone().requires_grad_() for each in (x, weight, bias)]
        ours(*leaves).square().sum().backward()
        F.relu(plain(*others)).square().sum().backward()
    torch.testing.assert_close([each.grad for each in leaves], [each.grad for each in others], rtol=1e-3, atol=1e-3)
    compiled = torch.compile(lambda *values: ours(*values) + 1, fullgraph=True)
    for _ in range(3):
        torch.testing.assert_close(compiled(x, weight, bias), F.relu(plain(x, weight, bias)) + 1, rtol=1e-4, atol=1e-4)
    with torch.inference_mode():
        made = [each.clone() for each in (x, weight, bias)]
        for _ in range(3):
            torch.testing.assert_close(ours(*made), F.relu(plain(*made)), rtol=1e-4, atol=1e-4)


def test_a_program_on_two_devices() -> None:
    """The same weight on a CPU and on a GPU is packed for each."""
    x, weight, bias = torch.randn(2, 8, 6, 6), torch.randn(8, 8, 3, 3), torch.randn(8)
    for device in ("cpu", "cuda", "cpu", "cuda"):
        given = [each.to(device) for each in (x, weight, bias)]
        for _ in range(3):
            found = CONV2D(*given, activation="relu")
        torch.testing.assert_close(found.cpu(), F.relu(F.conv2d(x, weight, bias)), rtol=1e-4, atol=1e-4)

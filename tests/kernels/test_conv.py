"""The convolution of gsl.kernels: right by each of its ways, with the channels last."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F

from gsl import kernels
from gsl.kernels import CONV2D
from gsl.kernels.operator import ACTIVATIONS, PLAIN, entries, fastest

X, W, B = torch.randn(2, 8, 9, 7), torch.randn(16, 8, 3, 3) / 8, torch.randn(16)
WINDOWS: dict[str, tuple[Any, ...]] = {
    "plain": ([1, 1], [0, 0], [1, 1], 1),
    "strides and padding": ([2, 1], [1, 2], [1, 1], 1),
    "dilation and groups": ([1, 1], [1, 1], [1, 2], 2),
}


@pytest.mark.parametrize("kind", WINDOWS)
@pytest.mark.parametrize("way", ["plain", "channels last", "onednn", "onednn with addition", "bfloat16", "int8"])
@pytest.mark.parametrize("adds", [False, True])
def test_every_way(way: str, kind: str, adds: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gsl.kernels.operator._fastest", lambda _, calls, seconds: way if way in calls else "plain")
    window = WINDOWS[kind]
    weight = W[:, : 8 // window[3]].clone()
    precision = way if way in ("bfloat16", "int8") else "float32"
    for x in (X, X.contiguous(memory_format=torch.channels_last), X[:1, :, :8]):
        for bias in (B, None):
            plain = F.conv2d(x, weight, bias, *window)
            addend = torch.randn_like(plain) if adds else None
            expected = F.silu(plain if addend is None else plain + addend)
            for _ in range(3):
                found = CONV2D(x, weight, bias, addend, *window, activation="silu", precision=precision)
                error = (found - expected).abs().max() / expected.abs().max()
                assert error < {"float32": 1e-5, "bfloat16": 0.01, "int8": 0.03}[precision]
                assert found.is_contiguous(memory_format=torch.channels_last)
    if precision == "int8" or (precision == "bfloat16" and torch.ops.mkldnn._is_mkldnn_bf16_supported()):
        assert error > 1e-6  # it is no way of full precision that was measured


@pytest.mark.parametrize("activation", ["none", "relu", "silu"])
def test_an_addition_in_the_kernel(activation: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also of an addend that is broadcast, or for another operand than the one for which the weight was packed."""
    monkeypatch.setattr("gsl.kernels.operator._fastest", lambda _, calls, seconds: "onednn with addition")
    function = ACTIVATIONS[activation].function
    for x in (X, X, X[:1, :, :8], X[:1]):
        plain = F.conv2d(x, W, B)
        for addend in (torch.randn_like(plain), torch.randn(16, 1, 1), torch.randn(2, *plain.shape[1:])):
            before = addend.clone()
            found = CONV2D(x, W, B, addend, activation=activation)
            torch.testing.assert_close(found, function(plain + addend), rtol=0, atol=2e-5)
            assert found.is_contiguous(memory_format=torch.channels_last)
            assert torch.equal(addend, before)


@pytest.mark.parametrize(("seconds", "best"), [
    ({"plain": 1.0, "packed": 0.98}, "plain"), ({"plain": 1.0, "packed": 0.96, "other": 0.97}, "packed"),
])  # fmt: skip
def test_the_fastest_way_by_its_factor(seconds: dict[str, float], best: str) -> None:
    ways: dict[str, Any] = {name: lambda name=name: lambda: name for name in seconds}
    run = fastest("a call", PLAIN, ways, seconds=lambda call: seconds[str(call())])
    assert str(run()) == best
    assert list(kernels.choices().values()) == [best]


@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_every_activation_in_eight_bits(activation: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gsl.kernels.operator._fastest", lambda _, calls, seconds: "int8")
    for _ in range(2):
        found = CONV2D(X, W, B, activation=activation, precision="int8")
    plain = F.conv2d(X, W, B)
    assert 1e-6 < (found - ACTIVATIONS[activation].function(plain)).abs().max() < 0.03 * plain.abs().max()


def test_one_activation_is_not_taken_for_another() -> None:
    for _ in range(3):
        for name, approximate in (("gelu", "none"), ("gelu_tanh", "tanh")):
            found = CONV2D(X, W, B, activation=name)
            torch.testing.assert_close(found, F.gelu(F.conv2d(X, W, B), approximate=approximate), rtol=0, atol=2e-5)
    assert len(entries()) == 2


def test_the_comparison_can_fail() -> None:
    with pytest.raises(AssertionError):
        torch.testing.assert_close(CONV2D(X, W, B), F.conv2d(X, W))


def test_operands_of_other_kinds() -> None:
    for x, weight in ((X.double(), W.double()), (X[:0], W), (X[0], W)):
        for _ in range(3):
            if x.dim() == 4:
                torch.testing.assert_close(CONV2D(x, weight), F.conv2d(x, weight))
            else:
                with pytest.raises(RuntimeError):
                    CONV2D(x, weight)


def test_torch_knows_the_operator() -> None:
    torch.library.opcheck(CONV2D, (X, W, B, None, [1, 1], [1, 1], [1, 1], 1), {"activation": "relu"})
    with torch.enable_grad():
        weight = W.clone().requires_grad_()
        torch.library.opcheck(CONV2D, (X, weight, None, torch.randn(2, 16, 7, 5)))

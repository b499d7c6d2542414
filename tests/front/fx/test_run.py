"""What is built of an exported program to be run."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import conv2d
from torch.utils._python_dispatch import TorchDispatchMode

from gsl import Workload
from gsl.kernels import operator
from gsl.rules import CPU
from gsl.workload.compare import afterwards
from tests.helpers.nets import OfOne
from tests.helpers.tensors import randn

IMAGE = randn(2, 3, 8, 8, seed=0)


def test_what_is_built_finds_tensors_without_modules(monkeypatch: pytest.MonkeyPatch) -> None:
    """They are those of the program: changes of weights are seen, and those that it makes to buffers."""
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4)).train()
    program: Any = Workload.from_torch(model, (IMAGE,)).program
    call, names, look_up = program.build(), set(), nn.Module.__getattr__

    def noted(module: nn.Module, name: str) -> Any:
        names.add(name)
        return look_up(module, name)

    monkeypatch.setattr(nn.Module, "__getattr__", noted)
    with torch.no_grad():
        call(IMAGE)
        assert not names & {"0", "1", "weight", "running_mean"}
        assert program.params["1.num_batches_tracked"] == 1
        program.params["1.weight"].zero_()
        assert torch.equal(call(IMAGE), torch.zeros(2, 4, 6, 6))
    program.module(IMAGE)
    assert names & {"0", "1"}


def test_what_is_built_calls_kernels_itself_where_nothing_sees_the_calls(monkeypatch: pytest.MonkeyPatch) -> None:
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(144, 8)).eval()
    program = CPU(Workload.from_torch(model, (IMAGE,)), iterative=True).program
    direct, seen = [], []

    def noting(name: Any) -> Any:
        kernel = kernel_of(name)
        return lambda *args, **kwargs: (direct.append(str(name)), kernel(*args, **kwargs))[1]

    class Calls(TorchDispatchMode):
        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            seen.append(str(func))
            return func(*args, **(kwargs or {}))

    kernel_of = operator.kernel_on_cpu
    monkeypatch.setattr(operator, "kernel_on_cpu", noting)
    call, kernels = program.build(), ["gsl.conv2d.default", "gsl.linear.default"]
    with torch.no_grad():
        expected = model(IMAGE)
        torch.testing.assert_close(call(IMAGE), expected)
        assert direct == kernels
        with Calls():
            torch.testing.assert_close(call(IMAGE), expected)
        assert set(kernels) < set(seen)
        torch.testing.assert_close(torch.compile(call, backend="eager")(IMAGE), expected)
        torch.testing.assert_close(torch.func.vmap(lambda x: call(IMAGE + x))(torch.zeros(2)), expected.expand(2, 2, 8))
    x = IMAGE.clone().requires_grad_()
    gradients = [torch.autograd.grad(forward(x).square().sum(), x)[0] for forward in (model, call)]
    torch.testing.assert_close(*gradients)
    assert direct == kernels


class Block(nn.Module):
    """Convolutions and what is made of their results."""

    def __init__(self, run: Callable[..., Any]) -> None:
        super().__init__()
        self.run = run
        self.weight = nn.Parameter(randn(3, 3, 3, 3, seed=1) * 0.2)

    def forward(self, x: Tensor) -> Any:
        return self.run(x, lambda y: conv2d(y, self.weight, padding=1))


BLOCKS: dict[str, tuple[Callable[..., Any], int]] = {
    # with the number of additions that may overwrite an operand
    "residual": (lambda x, f: ((y := f(x)) + f(f(y))).relu(), 1),
    "two of them": (lambda x, f: ((z := (y := f(x)) + f(f(y))) + f(f(z))).relu(), 2),
    "added twice": (lambda x, f: (y := f(x)) + f(y + f(f(y))), 1),
    "read later": (lambda x, f: ((y := f(x)) + f(f(y))).relu() * y, 0),
    "returned": (lambda x, f: ((y := f(x)), y + f(f(y))), 0),
    "an input": (lambda x, f: x + f(f(x)), 0),
    "a view is read later": (lambda x, f: ((v := (y := f(x)).flatten(1)), y + f(f(y)), v * 2)[1:], 0),
    "convolved and added": (lambda x, f: (y := f(x)) + f(y), 0),
}


@pytest.mark.parametrize("name", BLOCKS)
def test_a_kernel_may_overwrite_what_nobody_reads_any_more(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(operator, "_CHOICES", {})
    monkeypatch.setattr(operator, "_fastest", lambda factors, calls, seconds: list(calls)[-1])  # that with an addition
    run, count = BLOCKS[name]
    wl = CPU(Workload.from_torch(Block(run), (IMAGE,)), iterative=True)
    overwriting, kernel_of = [], operator.kernel_on_cpu

    def noting(name: Any) -> Any:
        kernel = kernel_of(name)
        return lambda *args, **how: (overwriting.append(how.get("overwrites", False)), kernel(*args, **how))[1]

    monkeypatch.setattr(operator, "kernel_on_cpu", noting)
    call, x = wl.program.build(), IMAGE.clone()
    with torch.no_grad():
        for _ in range(3):  # the second call packs the weights
            overwriting.clear()
            torch.testing.assert_close(call(x), Block(run)(IMAGE))
            assert sum(overwriting) == count
    assert torch.equal(x, IMAGE)


# ---------------------------------------------------------------- in float64


def in_both(model: nn.Module, *inputs: Any, traced: bool = False) -> tuple[Any, Any]:
    """What the program of a model in float32 computes in float64, and what the model computes that is made float64."""
    model = model.eval()
    wl = Workload.from_fx(torch.fx.symbolic_trace(model)) if traced else Workload.from_torch(model, inputs)
    ((path, found),) = wl.in_float64(dict(zip(wl.inputs, inputs)), 0)
    assert path == ()
    wide = [each.double() if each.is_floating_point() else each for each in inputs]
    with torch.no_grad():
        return found, model.double()(*wide)


@pytest.mark.parametrize("traced", [False, True])
def test_modules_and_their_weights_are_run_in_float64(traced: bool) -> None:
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.Flatten(), nn.Linear(144, 8))
    weights = {name: value.clone() for name, value in model.state_dict().items()}
    found, expected = in_both(model, IMAGE, traced=traced)
    assert found.dtype == torch.float64
    assert torch.allclose(found, expected, rtol=1e-12, atol=1e-14)
    assert all(torch.equal(value.to(weights[name].dtype), weights[name]) for name, value in model.state_dict().items())


def test_a_dtype_among_the_arguments_is_the_wide_one() -> None:
    def function(x: Tensor) -> Tensor:
        narrow = (x / 3).to(torch.bfloat16).float() + (x / 7).half() + torch.ones(4, dtype=torch.float16) / 3
        return narrow.softmax(-1, dtype=torch.float32) * x.long()

    x = randn(3, 4, seed=1) * 5
    for wl in (Workload.from_fx(torch.fx.symbolic_trace(OfOne(function))), Workload.from_torch(OfOne(function), (x,))):
        ((_, found),) = wl.in_float64({"x": x}, 0)
        wide = x.double()
        expected = (wide / 3 + wide / 7 + 1 / 3).softmax(-1) * x.long()
        assert torch.allclose(found, expected, rtol=1e-12, atol=1e-14)


def test_an_input_that_a_program_changes_is_changed_in_float64() -> None:
    wl = Workload.from_torch(OfOne(lambda x: x.div_(3) + 1), (randn(4, seed=2),))
    x = randn(4, seed=3)
    found = dict(wl.in_float64({"x": x}, 0))
    assert torch.equal(found[()], x.double() / 3 + 1)
    assert torch.equal(found[afterwards("input", "x")], x.double() / 3)
    assert torch.equal(x, randn(4, seed=3))


def test_what_can_not_be_run_in_float64_has_no_result() -> None:
    dropped = Workload.from_torch(nn.Dropout().train(), (IMAGE,))
    assert dropped.in_float64({"input": IMAGE}, 0) == []
    rounded = torch.fx.symbolic_trace(OfOne(lambda x: torch.quantize_per_tensor(x, 0.1, 0, torch.quint8).dequantize()))
    assert Workload.from_fx(rounded).in_float64({"x": IMAGE}, 0) == []

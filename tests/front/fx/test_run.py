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

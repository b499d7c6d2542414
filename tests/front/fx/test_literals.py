"""Literal tensors: what an export makes of them, and their numbers in expressions."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import fx, nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx

from gsl import Subst, Workload, op, pat
from gsl.rules import NORMAL

LOW, HIGH = torch.tensor(-0.5), torch.tensor(0.5)
x, low, high = pat.Wildcard(), pat.Const(), pat.Const()


class Bounded(nn.Module):
    def forward(self, x: torch.Tensor) -> Any:
        return torch.minimum(torch.maximum(x, LOW), HIGH)


class Scaled(nn.Module):
    """A model with a literal, by the name that torch gives it."""

    def __init__(self, literal: torch.Tensor) -> None:
        super().__init__()
        self._tensor_constant0 = literal

    def forward(self, x: torch.Tensor) -> Any:
        return x * self._tensor_constant0


class Written(nn.Module):
    """A model with literals that an export lifts, copies and detaches."""

    def forward(self, x: torch.Tensor) -> Any:
        return torch.relu(x) * torch.tensor(2.5), x + torch.tensor([1.0, 2.0, 3.0])


class Returned(nn.Module):
    """A model that returns a literal, and a view of one."""

    def forward(self, x: torch.Tensor) -> Any:
        factor, row = torch.tensor(2.5), torch.tensor([1.0, 2.0, 3.0])
        return torch.relu(x) * factor + row, row.view(3, 1), factor


X = torch.linspace(-1, 1, 6).reshape(2, 3)


@pytest.mark.parametrize("form", ["exported", "traced"])
def test_a_literal_without_axes_is_its_number(form: str) -> None:
    old = Workload.from_torch(Bounded(), (X,)) if form == "exported" else Workload.from_fx(fx.symbolic_trace(Bounded()))
    source = op.Minimum(op.Maximum(x, low), high)
    rule = Subst(source, op.Clip(x, a_min=low.value, a_max=high.value), where=low.value <= high.value, name="clip")
    assert not Subst(source, x, where=low.value > high.value, name="never").explain(old)
    new = rule(old)
    assert new.trace.count("clip") == 1
    torch.testing.assert_close(new(X), X.clamp(-0.5, 0.5))


def test_a_lifted_literal_is_a_literal() -> None:
    exported = torch.export.export(Written(), (X,))
    assert "detach_" in str(exported.graph)
    old = Workload.from_exported(exported)
    assert old.op_counts() == {"add": 1, "multiply": 1, "nn.relu": 1}
    rule = Subst(op.ReLU(x) * low, op.Clip(x * low.value, a_min=0.0), name="scaled")
    exact = Subst(op.Add(x, pat.Const([1.0, 2.0, 3.0])), x, name="exact")
    new = rule(old)
    assert (new.trace.count("scaled"), len(list(exact.match(old)))) == (1, 1)
    old.compare(new).check()
    lifts = [node for node in new.exported.graph.nodes if node.target is torch.ops.aten.lift_fresh_copy.default]
    assert [str(node.args[0]) for node in lifts] == ["c_lifted_tensor_1"], "the calls for the other have no users"


def test_nobody_can_write_to_a_literal() -> None:
    new = Subst(op.ReLU(x), op.Maximum(x, 0.0), name="other")(Workload.from_torch(Returned(), (X,)))
    module = new.exported.module()
    for _ in range(2):
        *_, column, factor = module(X)
        assert (column.flatten().tolist(), factor.item()) == ([1.0, 2.0, 3.0], 2.5)
        column.zero_()
        factor.zero_()


@pytest.mark.parametrize("lift", [torch.ops.aten.lift_fresh_copy, torch.ops.aten.lift_fresh])
def test_a_detached_input_is_no_literal(lift: Any) -> None:
    """A lift of what has a gradient stops none; the call that detaches its result does."""
    old = Workload.from_fx(make_fx(lambda a: (lift(a).detach() * a).sum())(X), (X,))
    new = NORMAL(old, iterative=True)
    gradients = []
    for module in (old.mod, new.mod):
        fed = X.clone().requires_grad_()
        module(fed).backward()
        gradients.append(fed.grad)
    torch.testing.assert_close(gradients[1], gradients[0])


@pytest.mark.parametrize("make", [FakeTensorMode, lambda: torch.device("meta")])
def test_a_literal_without_numbers_equals_none(make: Any) -> None:
    with make():
        half = torch.full((3,), -0.5)
    rule = Subst(x * pat.Const(-0.5), op.Negative(x), name="half")
    assert not rule(Workload.from_fx(fx.symbolic_trace(Scaled(half)))).trace.count()
    assert rule(Workload.from_fx(fx.symbolic_trace(Scaled(torch.full((3,), -0.5))))).trace.count() == 1


ROOT = 2**0.5
ROUNDED = float(str(np.float32(ROOT)))
"""The same number in single precision, as Relax keeps it."""


@pytest.mark.parametrize(
    ("function", "dtype", "found"),
    [
        (lambda a: a * ROUNDED, torch.float32, 1),
        (lambda a: a - ROUNDED, torch.bfloat16, 1),
        (lambda a: a * ROUNDED, torch.float64, 0),
        (lambda a: a * (ROUNDED + 2e-7), torch.float32, 0),
        (lambda a: a > ROUNDED, torch.float32, 0),  # its dtype does not tell that of its operands
        (lambda a: a * ROOT, torch.float64, 1),
        (lambda a: a * 1.4140625, torch.float16, 1),  # the half next to it, as ONNX and Relax keep it
        (lambda a: a * 1.4140625, torch.bfloat16, 1),
        (lambda a: a * 1.4140625, torch.float32, 0),
        (lambda a: a * 1.414, torch.float16, 0),
        (lambda a: a * 1.4150390625, torch.float16, 0),  # the next half
        (lambda a: a - 1.4140625, torch.float16, 0),  # the difference may be small
    ],
)
def test_a_number_is_compared_in_the_precision_of_the_arithmetic(function: Any, dtype: Any, found: int) -> None:
    class Module(nn.Module):
        def forward(self, a: torch.Tensor) -> Any:
            return function(a)

    assert ROUNDED != ROOT
    old = Workload.from_torch(Module(), (X.to(dtype),))
    sources = (x * pat.Const(ROOT), x - pat.Const(ROOT), op.Greater(x, pat.Const(ROOT)))
    assert sum(len(list(Subst(source, op.Negative(x)).match(old))) for source in sources) == found

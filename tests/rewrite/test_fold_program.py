"""``wl.fold()``: what depends on literals alone is computed ahead, in the program itself too."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

from gsl import Subst, Workload, pat
from gsl.graph import CONST, PARAM
from tests.helpers.nets import NetOfOne


def workload(function: Callable[..., Any], way: str = "exported", *shape: int) -> Workload:
    model = NetOfOne(function, w=nn.Parameter(torch.rand(4, 4)), table=torch.arange(4.0)).eval()
    value = torch.randn(shape or (4, 4))
    if way == "traced":
        return Workload.from_fx(torch.fx.symbolic_trace(model), (value,))
    exported = Workload.from_torch(model, (value,))
    if way == "exported":
        return exported
    from tvm.relax.frontend.torch import from_exported_program

    return Workload.from_relax(from_exported_program(exported.exported))


def kinds(wl: Workload) -> list[str]:
    """What the tensors are that the graph uses and that no input is."""
    leaves = [node for node in wl.graph if node.op in (CONST, PARAM) and node.users]
    return [node.op for node in leaves if hasattr(node.attrs["value"], "shape")]


def causal(self: Any, x: torch.Tensor) -> torch.Tensor:
    """A mask by numbers of rows and columns."""
    rows = torch.arange(4)
    mask = torch.where(rows[None, :] <= rows[:, None], 0.0, float("-inf"))
    return torch.softmax(x + mask, -1) / torch.sqrt(torch.full((), 16.0))


@pytest.mark.sweep(3)
@pytest.mark.parametrize("way", ["exported", "traced", "relax"])
def test_masks_and_roots(way: str) -> None:
    old = workload(causal, way)
    new = old.fold()
    assert new.op_counts() == {"add": 1, "divide": 1, "nn.softmax": 1}
    if way != "relax":
        assert kinds(new) == [CONST, CONST]
    old.compare(new).check()
    x = pat.Wildcard()
    assert Subst(x / 4.0, x * 0.25)(new).op_counts()["multiply"] == 1
    assert new.fold() is new
    assert str(old) == str(workload(causal, way))


def test_a_value_is_named_as_no_attribute_of_a_module() -> None:
    """The call is named ``to``, as a method of every module, on which its value becomes an attribute."""
    old = workload(lambda self, x: x * torch.arange(4).to(torch.float32))
    assert "to" in [node.name for node in old.graph.nodes]
    new = old.fold()
    assert new.op_counts() == {"multiply": 1}
    old.compare(new).check()


def test_weights_only_where_that_is_asked_for() -> None:
    old = workload(lambda self, x: x @ (self.w.t() * self.table))
    assert old.fold() is old
    new = old.fold(params=True)
    assert new.op_counts() == {"matmul": 1}
    assert kinds(new) == [PARAM]
    old.compare(new).check()


def test_a_value_equal_to_one_that_is_computed_ahead_with_its_users() -> None:
    old = workload(lambda self, x: (x + torch.exp(-self.table)) * -self.table)
    new = old.fold(params=True)
    assert new.op_counts() == {"add": 1, "multiply": 1}
    old.compare(new).check()


def test_the_shape_of_a_weight_is_known_and_that_of_an_input_is_not() -> None:
    old = workload(lambda self, x: x @ (self.w - 1).t().reshape(16).reshape_as(self.w))
    other = workload(lambda self, x: x @ (self.w - 1).t().reshape(16).reshape_as(x)).fold(params=True)
    assert other.op_counts() == {"matmul": 1, "reshape": 1}
    new = old.fold(params=True)
    assert new.op_counts() == {"matmul": 1}
    old.compare(new).check()


@pytest.mark.parametrize("function", [
    lambda self, x: x + torch.ones(600, 600).sum(),  # a megabyte and more, of nothing
    lambda self, x: x + torch.ones(600, 600)[:4, :4].relu(),
    lambda self, x: x + torch.rand(4),
    lambda self, x: (x + 1, torch.arange(4)),  # the caller may change what it gets
    lambda self, x: (x + 1, torch.arange(4).reshape(2, 2)),
], ids=["large", "large on the way", "random", "output", "view of an output"])  # fmt: skip
def test_what_stays(function: Callable[..., Any]) -> None:
    old = workload(function)
    assert old.fold() is old


def test_what_is_changed_in_place_is_new_at_every_run() -> None:
    old = workload(lambda self, x: x + torch.zeros(4).add_(x[0]))
    new = old.fold()
    for _ in range(2):
        old.compare(new).check()


def test_symbolic_sizes_stay() -> None:
    model, value = NetOfOne(lambda self, x: x + torch.arange(x.shape[0])[:, None]), torch.randn(4, 4)
    shapes = {"x": {0: torch.export.Dim("rows", min=2, max=64)}}
    old = Workload.from_torch(model, (value,), dynamic_shapes=shapes)
    assert old.fold().op_counts() == old.op_counts()


def test_what_can_not_be_computed_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    """The rest is folded all the same."""
    old = workload(causal)
    evaluate = type(old.program).evaluate

    def broken(self: Any, node: Any, operands: Any) -> Any:
        if node.op == "sqrt":
            raise RuntimeError("no kernel")
        return evaluate(self, node, operands)

    monkeypatch.setattr(type(old.program), "evaluate", broken)
    assert old.fold().op_counts() == {"add": 1, "divide": 1, "nn.softmax": 1, "sqrt": 1}


def test_large_literals_may_shrink() -> None:
    big = torch.rand(600, 600)
    old = workload(lambda self, x: x + (torch.transpose(big, 0, 1) * 2)[:4, :4])
    assert old.fold().op_counts() == {"add": 1}

"""Calls in place behind modules that hand on their operand, as ``nn.Identity`` and idle observers do."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from fx_helpers import differences
from torch import fx, nn

from gsl import Subst, Workload, op, pat
from gsl.graph import Effect
from tests.helpers.nets import NetOfOne

X = pat.Wildcard()
IMAGE = torch.randn(2, 3, 4, 4)


def load(function: Callable[[Any, torch.Tensor], Any]) -> Workload:
    net = NetOfOne(function, idle=nn.Identity(), other=nn.Identity(), relu=nn.ReLU(inplace=True))
    return Workload.from_fx(fx.symbolic_trace(net), (IMAGE.clone(),))


HIDDEN: dict[str, Callable[[Any, torch.Tensor], Any]] = {
    "one": lambda net, x: net.relu(net.idle(x * 2)),
    "two": lambda net, x: net.relu(net.other(net.idle(x * 2))),
    "twice": lambda net, x: net.relu(net.other(net.relu(net.idle(x * 2)))),
    "read before": lambda net, x: ((y := net.idle(x * 2)), (z := y + 1), net.relu(y) * z)[-1],
}
VISIBLE: dict[str, Callable[[Any, torch.Tensor], Any]] = {
    "an input": lambda net, x: net.relu(net.idle(x)),
    "read later": lambda net, x: ((y := net.idle(x * 2)), (z := net.relu(y)), y * z)[-1],
    "the operand is read later": lambda net, x: ((y := x * 2), (z := net.relu(net.idle(y))), y * z)[-1],
    "the operand has two names": lambda net, x: ((y := x * 2), net.idle(y) * 1, net.relu(net.other(y)))[-1],
    "a view is read later": lambda net, x: ((y := x * 2), (v := y[0]), net.relu(net.idle(y)), v + 1)[-1],
}


@pytest.mark.parametrize("label", HIDDEN)
def test_what_nobody_sees_is_functional(label: str) -> None:
    before = load(HIDDEN[label])
    assert not any(node.effect for node in before.graph.nodes)
    assert "nn.relu" in {node.op for node in before.graph.nodes}
    # Unchanged it is stored as it was.
    assert not differences(before.mod, before.program.store(before.graph.copy()).native)


@pytest.mark.parametrize("label", VISIBLE)
def test_what_somebody_may_see_stays(label: str) -> None:
    before = load(VISIBLE[label])
    assert [node.effect for node in before.graph.nodes if node.effect] == [Effect.MUTATES]


RELU = op.ReLU(COPY := op.Copy(X))
REWRITES = [
    Subst(X * 2, X + X, name="another operand"),
    Subst(X * 2, X, name="an input as the operand"),
    Subst(op.Copy(X), X, name="no module between"),
    Subst(RELU, op.ReLU(X), name="no module before the call"),
    Subst(RELU, op.ReLU(COPY) * X, name="a later reader of the operand"),
    Subst(RELU, op.Add(op.ReLU(COPY), COPY), name="a later reader of the result of the module"),
]


@pytest.mark.parametrize("label", HIDDEN)
@pytest.mark.parametrize("rule", REWRITES, ids=lambda rule: rule.name)
def test_rewrites_do_not_make_it_visible(rule: Subst, label: str) -> None:
    """Where the operand is read later now, or is an input, nothing is overwritten."""
    after = rule(load(HIDDEN[label]))
    assert after.trace.firings
    # The same graph without any call in place.
    functional = copy.deepcopy(after.mod)
    for part in functional.modules():
        if isinstance(part, nn.ReLU):
            part.inplace = False
    value = IMAGE.clone()
    torch.testing.assert_close(after.mod(value), functional(IMAGE), rtol=0, atol=0)
    assert torch.equal(value, IMAGE)

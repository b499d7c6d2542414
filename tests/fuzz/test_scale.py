"""Graphs of hundreds of thousands of nodes, ten thousand deep, and without any node."""

from __future__ import annotations

import copy
import pickle
import sys

import pytest
import torch
from torch import nn

from gsl import RuleSet, Subst, Workload, op, pat
from gsl.graph import Graph, Node
from tests.helpers.book import EVERY_RULE
from tests.helpers.graphs import Builder, graph, infer_type
from tests.rewrite.checks import faults
from tests.rewrite.test_scale import TRIPLE, chain, wide

DEEP = 12_003
X = pat.Wildcard()


@pytest.mark.long
def test_a_graph_that_is_wide() -> None:
    view = wide(50_000)
    assert len(view) == 150_001
    new, trace = TRIPLE.apply(view)
    assert trace.count() == 50_000
    assert len(new) == 100_001
    assert faults(new) == []
    assert len(view) == 150_001


def test_a_graph_that_is_deep(own_recursion_limit: None) -> None:
    assert sys.getrecursionlimit() < DEEP / 4
    view = chain(DEEP // 3)
    assert sum(1 for _ in TRIPLE.match(view)) == DEEP // 3
    assert not Subst(op.Exp(op.Tanh(X)), X).explain(view)
    new, trace = TRIPLE.apply(view)
    assert trace.count() == DEEP // 3
    assert faults(new) == []
    assert str(trace.replay(view)) == str(new)
    assert str(trace)
    assert len(copy.deepcopy(view)) == len(view)
    with pytest.raises(TypeError, match="a view belongs to one native graph"):
        pickle.dumps(view)


def test_one_chain_that_is_deep() -> None:
    def make(b: Builder) -> Node:
        value = b.input("x", 4)
        for _ in range(3000):
            value = b.call("nn.relu", value)
        return value

    every = pat.Repeat(op.ReLU(pat.Wildcard()))
    new, trace = Subst(every, lambda match: op.Exp(match.chain(every)[0].args[0]), name="all").apply(graph(make))
    assert [node.op for node in new] == ["input", "exp"]
    assert trace.count() == 1


@pytest.mark.long
def test_a_pattern_that_is_deep() -> None:
    source: pat.Pattern = X
    for _ in range(3000):
        source = op.ReLU(source)
    rule = Subst(source, X, name="deep")
    assert str(rule)
    assert rule.apply(chain(100))[1].count() == 0


@pytest.mark.parametrize("strategy", ["priority", "largest", "first", "last"])
def test_a_view_without_nodes(strategy: str) -> None:
    view = Graph([], [], infer_type)
    rules = RuleSet([TRIPLE, *EVERY_RULE], strategy=strategy)
    for iterative in (False, True):
        new = rules(view, iterative=iterative)
        assert (len(new), str(new)) == (0, str(view))
    assert list(rules.match(view)) == []
    assert not TRIPLE.explain(view)
    assert str(rules.explain(view))


class Nothing(nn.Module):
    def forward(self) -> tuple[()]:
        return ()


class Same(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x


@pytest.mark.parametrize("module", [Nothing(), Same()])
@pytest.mark.parametrize("form", ["traced", "exported"])
def test_a_program_without_calls(module: nn.Module, form: str) -> None:
    inputs = (torch.ones(2),) if isinstance(module, Same) else ()
    if form == "traced":
        old = Workload.from_fx(torch.fx.symbolic_trace(module), inputs)
    else:
        old = Workload.from_torch(module, inputs)
    new = EVERY_RULE(old, iterative=True)
    assert new.trace.count() == 0
    assert new.op_counts() == {}
    assert new.text() == old.text()
    assert new.visualize().svg
    assert str(EVERY_RULE.explain(old))
    if inputs:
        old.compare(new).check()

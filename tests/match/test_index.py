"""The nodes at which the rules of a set may match: a table that is looked up loses no match, and changes no order."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gsl import op, pat
from gsl.graph import Graph, Node
from gsl.match import Candidates, Plan, candidates, index
from gsl.pat import Pattern
from tests.helpers.graphs import Builder, graph
from tests.match import random_cases, test_instances
from tests.match.test_compile import told
from tests.match.test_complete import QUICK, compiled
from tests.tiers import examples
from tests.use import random_cases as use_style
from tests.use import test_complete as use_complete

x, y = pat.Wildcard(), pat.Wildcard()


def relu(b: Builder) -> Node:
    return b.call("nn.relu", b.input("z", 4))


operand_style = st.tuples(random_cases.sources().map(compiled), random_cases.graphs())
relations = use_style.cases().map(lambda case: (use_complete.compiled(case), case.graph))
chains = st.tuples(test_instances.made(test_instances.chains), test_instances.graphs())
fields = st.tuples(test_instances.made(test_instances.variadics), test_instances.graphs())


def check(plan: Plan, view: Graph, counts: Counter[str]) -> None:
    """Compare what is found where a table tells to look with what is found at all nodes of the operators."""
    by_op = view.by_op()
    for at_roots in (False, True) if plan.root is not None else (False,):
        start, ops = plan.from_root(by_op) if at_roots else plan.rarest(by_op)
        everywhere = Candidates(start, plan.in_order(start.anchor, ops, by_op, {}))
        where, *_ = candidates([plan] * index.SEVERAL, by_op, near=True, at_roots=at_roots)
        assert where.start is start
        expected = [told(match) for match in plan.matches(view, where=everywhere)]
        assert [told(match) for match in plan.matches(view, where=where)] == expected
        counts["match"] += bool(expected)
        counts["fewer nodes"] += len(where.nodes) < len(everywhere.nodes)


@pytest.mark.law
def test_random_sources() -> None:
    counts = Counter[str]()

    @settings(QUICK, max_examples=examples(400))
    @given(st.one_of(operand_style, relations, chains, fields))
    def law(case: tuple[Plan, Graph]) -> None:
        check(*case, counts)

    law()
    assert counts["match"] > examples(20), counts
    assert counts["fewer nodes"] > examples(20), counts


@pytest.mark.parametrize(
    ("source", "view"),
    [
        (op.Tanh(op.ReLU(x)) + y, graph(lambda b: b.call("add", b.input("y", 4), b.call("tanh", relu(b))))),
        (op.Subtract(x + y, x), graph(lambda b: b.call("subtract", b.call("add", b.input("y", 4), r := relu(b)), r))),
        (op.Exp(x + op.ReLU(y)), graph(lambda b: b.call("exp", b.call("add", relu(b), b.input("x", 4))))),
    ],
)
def test_operands_in_another_order(source: Pattern, view: Graph) -> None:
    counts = Counter[str]()
    check(Plan([source]), view, counts)
    assert counts["match"] == 2  # from the rarest operator, and from the root


def test_the_comparison_can_fail(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(index, "_merged", lambda parts: [node for part in parts for node in part[1:]])
    with pytest.raises(AssertionError):
        test_random_sources()

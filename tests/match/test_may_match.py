"""The operators of a graph, each with those of its operands, tell of many sources that they can't match."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given, settings

from gsl import Subst, op, pat
from gsl.graph import LEAVES, Below, Graph, Op
from gsl.match import Plan
from gsl.pat import Pattern
from tests.match.random_cases import graphs, sources
from tests.match.test_complete import QUICK, compiled
from tests.tiers import examples
from tests.use import test_complete as use_style
from tests.use.brute import Case
from tests.use.random_cases import cases

X = pat.Wildcard()


def below(view: Graph) -> Below:
    found: dict[Op, set[Op]] = {op: set() for op in LEAVES}
    for node in view:
        found.setdefault(node.op, set()).update([operand.op for operand in node.operands])
    return found


def is_true(plan: Plan, view: Graph) -> bool:
    """Check what is said of a source in a graph; whether that is that it can't match."""
    may = plan.may_match(below(view))
    assert may or not any(True for _ in plan.matches(view))
    return not may


@pytest.mark.law
def test_what_matches_may_match() -> None:
    told = Counter[bool]()

    @settings(QUICK, max_examples=examples(400))
    @given(sources(), graphs())
    def law(outputs: list[Pattern], view: Graph) -> None:
        told[is_true(compiled(outputs), view)] += 1

    law()
    assert told[True] > examples(100)
    assert told[False] > examples(10)


@pytest.mark.law
@settings(QUICK, max_examples=examples(400))
@given(cases())
def test_in_use_style(case: Case) -> None:
    is_true(use_style.compiled(case), case.graph)


@pytest.mark.parametrize(("source", "known", "may"), [
    (op.Exp(op.Log(X)), {"exp": {"log"}, "log": {"input"}}, True),
    (op.Exp(op.Log(X)), {"exp": {"input"}, "log": {"exp"}}, False),
    (op.Exp(X), {"log": {"input"}}, False),
    (op.Exp(op.Log(X) | op.Sin(X)), {"exp": {"sin"}, "sin": {"input"}}, True),
    (op.Exp(op.Log(X) | op.Sin(op.Cos(X))), {"exp": {"sin"}, "sin": {"input"}}, False),
    (op.Exp(X & ~op.Log(pat.Wildcard())), {"exp": {"input"}}, True),
])  # fmt: skip
def test_by_operators(source: Pattern, known: Below, may: bool) -> None:
    assert Subst(source, X).plan.may_match({"input": set(), **known}) is may


def test_operators_may_be_skipped() -> None:
    rule = Subst(op.Exp(op.Log(X)), X, fuzzy=[op.Copy])
    assert rule.plan.may_match({"exp": {"copy"}, "copy": {"log"}, "log": {"input"}, "input": set()})

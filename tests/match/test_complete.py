"""The engine finds what an enumeration finds: the same matches, no more and no fewer."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from hypothesis import HealthCheck, assume, given, settings

from gsl import pat
from gsl.errors import PatternError
from gsl.graph import Graph
from gsl.match import MatchSearch, Plan
from gsl.pat import Pattern
from tests.helpers.graphs import graph
from tests.match import brute
from tests.match.random_cases import graphs, sources
from tests.tiers import examples

QUICK = settings(max_examples=examples(400), suppress_health_check=list(HealthCheck))


def compiled(outputs: list[Pattern]) -> Plan:
    try:
        return Plan(outputs)
    except PatternError:
        assume(False)
        raise


def found(plan: Plan, graph: Graph) -> set[frozenset[Any]]:
    return {frozenset(match.bindings.nodes.items()) for match in plan.matches(graph)}


def theirs(outputs: list[Pattern], graph: Graph) -> dict[frozenset[Any], bool]:
    """What the enumeration finds, and whether the patterns that are bound hang together, as the engine demands."""
    result: dict[frozenset[Any], bool] = {}
    for assignment in brute.matches(outputs, graph):
        key = frozenset(brute.nodes_of(assignment).items())
        result[key] = result.get(key, False) or brute.is_connected(outputs, assignment)
    return result


def disagreement(outputs: list[Pattern], graph: Graph, mine: set[frozenset[Any]]) -> list[Any]:
    """What only one of the two sides finds."""
    expected = theirs(outputs, graph)
    missed = [dict(key) for key, is_connected in expected.items() if is_connected and key not in mine]
    return [*missed, *[dict(key) for key in mine if key not in expected]]


@pytest.mark.law
def test_the_matches_are_those_of_the_enumeration() -> None:
    counts = Counter[bool]()

    @QUICK
    @given(sources(), graphs())
    def law(outputs: list[Pattern], graph: Graph) -> None:
        mine = found(compiled(outputs), graph)
        counts[bool(mine)] += 1
        assert not disagreement(outputs, graph, mine)

    law()
    assert min(counts[True], counts[False]) > examples(20), "the cases say little"


@pytest.mark.law
def test_every_anchor_leads_to_the_same_matches() -> None:
    counts = Counter[bool]()

    @QUICK
    @given(sources(negations=False), graphs())
    def law(outputs: list[Pattern], graph: Graph) -> None:
        counts[anchors_agree(outputs, graph)] += 1

    law()
    assert min(counts[True], counts[False]) > examples(20), "the cases say little"


def anchors_agree(outputs: list[Pattern], graph: Graph) -> bool:
    """Whether there are matches; AssertionError if one of them is not found from each anchor."""
    plan = compiled(outputs)
    expected = {key for key, is_connected in theirs(outputs, graph).items() if is_connected}
    for anchor in plan.anchors:
        start = plan.start(anchor)
        found = (m for node in graph for m in start.matches(node, MatchSearch(plan, set(graph.outputs))))
        mine = {frozenset(match.bindings.nodes.items()) for match in found}
        assert mine >= expected
    return bool(expected)


def test_the_enumeration_finds_a_missed_match() -> None:
    view = graph(lambda b: b.call("add", b.call("nn.relu", x := b.input("x", 4)), b.call("nn.relu", x)))
    outputs: list[Pattern] = [pat.Call("nn.relu", pat.Wildcard())]
    mine = found(Plan(outputs), view)
    assert len(mine) == 2
    assert not disagreement(outputs, view, mine)
    for one in mine:
        assert len(disagreement(outputs, view, mine - {one})) == 1


def test_the_enumeration_finds_a_match_too_many() -> None:
    view = graph(lambda b: b.call("nn.relu", b.input("x", 4)))
    outputs: list[Pattern] = [pat.Call("nn.relu", pat.Wildcard())]
    wrong = frozenset((pattern, view.nodes[0]) for pattern in outputs)
    assert disagreement(outputs, view, {*found(Plan(outputs), view), wrong}) == [dict(wrong)]

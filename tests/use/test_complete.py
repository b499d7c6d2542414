"""With use relations, too, the engine finds what an enumeration finds: the same matches, no more and no fewer."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from hypothesis import HealthCheck, assume, given, settings

from gsl import is_op, pat
from gsl.errors import PatternError
from gsl.graph import Graph
from gsl.match import Match, MatchSearch, Plan
from gsl.pat import Repeat, Use
from tests.helpers.graphs import graph
from tests.tiers import examples
from tests.use import brute
from tests.use.brute import Case
from tests.use.random_cases import cases

QUICK = settings(max_examples=examples(600), suppress_health_check=list(HealthCheck))
Key = tuple[frozenset[Any], frozenset[Any]]
"""What the patterns are bound to, and what is skipped."""


def compiled(case: Case) -> Plan:
    try:
        return Plan(
            case.outputs, constraints=case.constraints, extern_use=case.extern_use, fuzzy=tuple(case.fuzzy)
        )
    except PatternError:
        assume(False)
        raise


def key_of(match: Match) -> Key:
    """What a match binds; the nodes of a chain are numbered from its last one."""
    nodes = set()
    for key, node in match.bindings.nodes.items():
        pattern, path = key if isinstance(key, tuple) else (key, ())
        scopes = match.plan.scopes.get(pattern, ())
        assert len(scopes) == len(path) <= 1
        for repeat in scopes:
            assert isinstance(repeat, Repeat)
            count = match.bindings.counts[repeat, ()]
            if match.bindings.nodes[repeat.pattern, (0,)] is not match[repeat]:
                path = (count - 1 - path[0],)
        nodes.add((pattern, path, node))
    return frozenset(nodes), frozenset(match.bindings.skipped)


def found(case: Case, plan: Plan) -> set[Key]:
    return {key_of(match) for match in plan.matches(case.graph)}


def theirs(case: Case) -> dict[Key, bool]:
    """What the enumeration finds, and whether what is bound hangs together, as the engine demands."""
    result: dict[Key, bool] = {}
    for a in brute.matches(case):
        nodes = frozenset((*key, node) for key, node in a.items() if isinstance(key[0], pat.Pattern))
        key = nodes, frozenset(node for k, skipped in a.items() if k[0] == "skip" for node in skipped)
        result[key] = result.get(key, False) or brute.is_connected(case, a)
    return result


def disagreement(case: Case, mine: set[Key]) -> list[Any]:
    """What only one of the two sides finds."""
    expected = theirs(case)
    missed = [("missed", key) for key, is_connected in expected.items() if is_connected and key not in mine]
    return [*missed, *[("too many", key) for key in mine if key not in expected]]


def told(case: Case) -> str:
    return f"{case.outputs} where {case.constraints} fuzzy {case.fuzzy} extern {case.extern_use}\n{case.graph}"


@pytest.mark.law
@QUICK
@given(cases())
def test_the_matches_are_those_of_the_enumeration(case: Case) -> None:
    assert not disagreement(case, found(case, compiled(case))), told(case)


@pytest.mark.law
@settings(QUICK, max_examples=examples(300))
@given(cases())
def test_every_anchor_leads_to_the_same_matches(case: Case) -> None:
    plan = compiled(case)
    expected = {key for key, is_connected in theirs(case).items() if is_connected}
    for anchor in plan.anchors:
        try:
            start = plan.start(anchor)
        except PatternError:
            continue  # not an anchor after all
        outputs = set(case.graph.outputs)
        mine = {key_of(match) for node in case.graph for match in start.matches(node, MatchSearch(start.plan, outputs))}
        assert mine >= expected, f"{anchor!r} of {told(case)}"


def chain_with_casts() -> Graph:
    def make(b: Any) -> Any:
        x = b.call("nn.relu", b.input("x", 4))
        return b.call("add", b.call("cast", x, dtype="float32"), b.call("tanh", x))

    return graph(make)


def test_the_enumeration_finds_what_is_missed_and_what_is_too_much() -> None:
    relu, add = is_op("nn.relu"), is_op("add")
    case = Case((add,), (Use(relu, add),), chain_with_casts(), frozenset({"cast"}))
    mine = found(case, compiled(case))
    assert len(mine) == 1
    assert not disagreement(case, mine)
    assert [what for what, _ in disagreement(case, set())] == ["missed"]
    without_cast = {(nodes, frozenset[Any]()) for nodes, _ in mine}
    assert [what for what, _ in disagreement(case, without_cast)] == ["missed", "too many"]
    only = Case((add,), (Use(relu, add, only=True),), case.graph, case.fuzzy)
    assert [what for what, _ in disagreement(only, mine)] == ["too many"]  # a tanh uses it


@pytest.mark.long
def test_random_cases_match_often_enough() -> None:
    counts = Counter[str]()

    @settings(QUICK, max_examples=examples(600))
    @given(cases())
    def count(case: Case) -> None:
        plan = compiled(case)
        matched = found(case, plan)
        counts["match" if matched else "no match"] += 1
        for pattern in plan.patterns if matched else ():
            counts[type(pattern).__name__] += 1
        counts["skipped"] += any(skipped for _, skipped in matched)

    count()
    assert min(counts[what] for what in ("match", "no match")) > examples(30), counts
    assert counts["skipped"] > examples(5), counts
    assert min(counts[what] for what in ("Seq", "Alt", "And", "Not", "Repeat")) > examples(5), counts

"""Rounds that look near to what the round before changed: they find what all would find, and see few nodes."""

from __future__ import annotations

from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gsl import RuleSet, Subst, op, pat
from gsl.errors import FixpointError
from gsl.graph import Graph, Node
from gsl.graph.splice import Splicer
from gsl.match import Plan
from gsl.match.index import candidates
from gsl.rewrite import apply as rounds
from gsl.rewrite import cse, near, passes, termination
from gsl.rewrite.cse import eliminate_common
from gsl.rewrite.termination import Watch
from gsl.rewrite.trace import Trace
from tests.helpers.graphs import Builder, graph
from tests.match.random_cases import graphs
from tests.rewrite.checks import rewritten
from tests.rewrite.test_properties import ENDING, QUICK

x, y = pat.Wildcard(), pat.Wildcard()
MELT = Subst(op.ReLU(op.Tanh(x)), op.Tanh(op.Sigmoid(x)), name="melt")


@pytest.fixture
def seen(monkeypatch: pytest.MonkeyPatch) -> list[int | None]:
    """The number of nodes at which each round looked that came after another one; ``None`` for all."""
    found: list[int | None] = []

    def noted(graph: Graph, touched: Iterable[Node], plans: Iterable[Plan]) -> near.Near | None:
        part = near.near_to(graph, touched, plans)
        found.append(None if part is None else len(part))
        return part

    monkeypatch.setattr(rounds, "near_to", noted)
    return found


def comb(relus: int, rest: int) -> Graph:
    """A tanh below some relus, which rise by one place in each round, and a long chain beside them."""

    def make(b: Builder) -> tuple[Node, Node]:
        first = b.call("tanh", b.input("x", 4))
        for _ in range(relus):
            first = b.call("nn.relu", first)
        second = b.input("y", 4)
        for _ in range(rest):
            second = b.call("exp", second)
        return first, second

    return graph(make)


def test_rounds_look_at_few_nodes(seen: list[int | None]) -> None:
    new, trace = RuleSet([MELT]).apply(comb(30, 1500), iterative=True)
    assert [firing.round for firing in trace.firings] == list(range(1, 31))
    assert sum(node.op == "sigmoid" for node in new.nodes) == 30
    assert len(seen) == 30
    assert all(number is not None and number < 20 for number in seen)


def test_the_nodes_are_put_in_order_in_few_rounds(monkeypatch: pytest.MonkeyPatch) -> None:
    checked: list[int] = []

    class Noting(Watch):
        def check(self, graph: Graph, trace: Trace) -> None:
            super().check(graph, trace)
            checked.append(self.rounds)

    monkeypatch.setattr(rounds, "Watch", Noting)
    before = comb(30, 1500)
    new, trace = RuleSet([MELT]).apply(before, iterative=True)
    assert checked == [1, 3, 7, 8, 15, 16, 24]  # the number of nodes stays, so that one in eight is looked at
    assert [number for number, ordered in trace.near.items() if ordered] == [*checked[1:], 30]
    assert str(trace.replay(before)) == str(new)


def test_calls_that_become_equal_are_shared_near_to_changes() -> None:
    def make(b: Builder) -> tuple[Node, ...]:
        first, second = b.input("x", 4), b.input("y", 4)
        ends = []
        for _ in range(2):  # equal after several rounds, which melt a relu each
            value = b.call("tanh", first)
            for _ in range(5):
                value = b.call("nn.relu", value)
            ends.append(b.call("exp", value))
        for _ in range(1500):
            second = b.call("exp", second)
        return *ends, second

    new, trace = RuleSet([MELT]).apply(graph(make), iterative=True)
    assert new.outputs[0] is new.outputs[1]
    assert sum(node.op == "sigmoid" for node in new.nodes) == 5
    assert trace.shared > 0


def test_calls_are_shared_in_the_round_in_which_they_become_equal() -> None:
    """Those of most rounds while the nodes are not in order."""

    def make(b: Builder) -> tuple[Node, ...]:
        first, second = b.input("x", 4), b.input("y", 4)
        ends = []
        for melted in (0, 4):
            value = first
            for name in (*["sigmoid"] * melted, "tanh", *["nn.relu"] * (6 - melted), "exp"):
                value = b.call(name, value)
            ends.append(value)
        for _ in range(1500):
            second = b.call("exp", second)
        return *ends, second

    new, trace = RuleSet([MELT]).apply(graph(make), iterative=True)
    assert new.outputs[0] is new.outputs[1]
    assert trace.shared == 8
    assert trace.near == {2: False, 3: False, 4: False, 5: False, 6: True}


def test_a_loop_is_found_in_rounds_that_leave_the_nodes_out_of_order() -> None:
    there = Subst(op.ReLU(op.Tanh(x)), op.Tanh(op.ReLU(x)), name="there")
    back = Subst(op.Tanh(op.ReLU(x)), op.ReLU(op.Tanh(x)), name="back")
    with pytest.raises(FixpointError, match="the rules back, there go round in circles"):
        RuleSet([there, back]).apply(comb(1, 1500), iterative=True)


@pytest.mark.parametrize("own", [False, True])
def test_a_loop_is_found_in_a_graph_that_shrank_before(own: bool) -> None:
    there = Subst(op.ReLU(op.Tanh(x)), op.Tanh(op.ReLU(x)), name="there")
    back = Subst(op.Tanh(op.ReLU(x)), op.ReLU(op.Tanh(x)), name="back")
    half = Subst(op.Exp(op.Exp(x)), op.Exp(x), name="half")
    with pytest.raises(FixpointError, match=r"back.*go round in circles: after round [1-3]\d the graph is what it was"):
        rounds.apply([half, there, back], comb(1, 1500), iterative=True, own=own)


def test_no_state_is_kept_of_a_graph_that_shrinks_in_each_round(monkeypatch: pytest.MonkeyPatch) -> None:
    kept: list[Graph] = []
    monkeypatch.setattr(termination, "_state", kept.append)
    new, trace = rounds.apply([Subst(op.Exp(op.Exp(x)), op.Exp(x))], comb(1, 1500), iterative=True, own=True)
    assert sum(node.op == "exp" for node in new.nodes) == 1
    assert trace.firings[-1].round > 3
    assert not kept


def test_no_state_is_kept_while_no_round_does_again_what_another_did(monkeypatch: pytest.MonkeyPatch) -> None:
    def make(b: Builder) -> list[Node]:
        combs = [b.call("tanh", b.input(f"x{relus}", 4)) for relus in range(1, 6)]
        for relus, first in enumerate(combs, 1):
            for _ in range(relus):
                first = b.call("nn.relu", first)
            combs[relus - 1] = first
        chain = b.call("negative", b.call("negative", b.input("y", 4)))
        for _ in range(1500):
            chain = b.call("exp", chain)
        return [*combs, chain]

    kept: list[Graph] = []
    monkeypatch.setattr(termination, "_state", kept.append)
    once = Subst(op.Negative(op.Negative(x)), x, name="once")
    _, trace = rounds.apply([once, MELT], graph(make), iterative=True, own=True)
    assert [firing.round for firing in trace.firings].count(1) == 6
    assert trace.firings[-1].round == 5
    assert not kept


def test_what_stays_of_a_match_is_looked_at_again() -> None:
    def make(b: Builder) -> tuple[Node, ...]:
        shared, value = b.call("tanh", b.input("x", 4)), b.input("y", 4)
        for _ in range(1500):
            value = b.call("exp", value)
        return *[b.call("nn.relu", shared) for _ in range(6)], value

    rule = Subst(op.ReLU(op.Tanh(x)), op.Sigmoid(x), name="each")  # one in a round, as all have the tanh
    trace = RuleSet([rule]).apply(graph(make), iterative=True)[1]
    assert [firing.round for firing in trace.firings] == [1, 2, 3, 4, 5, 6]
    assert list(trace.near) == [2, 3, 4, 5, 6]


def test_small_graphs_are_looked_at_as_a_whole(seen: list[int | None]) -> None:
    RuleSet([MELT]).apply(comb(3, 10), iterative=True)
    assert seen == [None] * 3


def test_what_is_too_far_is_found_in_the_end(seen: list[int | None], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(near, "FARTHEST", 0)
    new, trace = RuleSet([MELT]).apply(comb(5, 1500), iterative=True)
    assert (trace.count(), [firing.round for firing in trace.firings]) == (5, [1, 2, 3, 4, 5])
    assert RuleSet([MELT]).apply(new)[1].count() == 0


@pytest.mark.law
@QUICK
@given(graphs(most=12), st.lists(st.sampled_from(ENDING), min_size=1, unique=True), st.sampled_from([0, 1, 8]))
def test_in_the_end_nothing_matches(view: Graph, rules: list[Subst], farthest: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(near, "LEAST", 0)
        patch.setattr(near, "SHARE", 2)
        patch.setattr(near, "FARTHEST", farthest)
        new, trace = rewritten(RuleSet(rules), view, iterative=True)
        again = trace.replay(view)
    assert str(again) == str(new)
    for rule in rules:
        assert rewritten(rule, new)[1].count() == 0
    assert eliminate_common(new) == 0


@pytest.mark.law
@QUICK
@given(graphs(most=12), st.lists(st.sampled_from(ENDING), min_size=1, unique=True))
def test_no_round_looks_near_to_what_has_gone(view: Graph, rules: list[Subst]) -> None:
    gone: list[set[Node]] = []
    looked: list[int] = []

    class Noting(Splicer):
        def __init__(self, graph: Graph) -> None:
            super().__init__(graph)
            gone.append(self.dead)

    def noted(graph: Graph, touched: Iterable[Node], plans: Iterable[Plan]) -> near.Near | None:
        looked.append(len(set[Node]().union(*gone).intersection(touched)))
        return near.near_to(graph, touched, plans)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(near, "LEAST", 0)
        patch.setattr(near, "SHARE", 2)
        patch.setattr(rounds, "near_to", noted)
        for module in (passes, cse):
            patch.setattr(module, "Splicer", Noting)
        rewritten(RuleSet(rules), view, iterative=True)
    assert not any(looked)


def test_alternatives_that_need_what_is_not_there_cost_nothing() -> None:
    either = pat.Alt(op.Exp(op.Cos(x)), op.Exp(op.Sin(op.Log(x))))
    rule = Subst(op.Exp(either), op.Exp(x), name="either")
    lacking, there = comb(0, 9), graph(lambda b: b.call("exp", b.call("exp", b.call("cos", b.input("x", 4)))))
    assert [len(found.nodes) for found in candidates([rule.plan], lacking.by_op())] == [0]
    assert [len(found.nodes) for found in candidates([rule.plan], there.by_op())] == [2]
    assert rewritten(rule, there, numbers=False)[1].count() == 1


def test_progress_is_told() -> None:
    told: list[str] = []
    RuleSet([MELT])(comb(2, 1), iterative=True, progress=told.append)
    assert told == ["round 1, 0 rewrites: melt", "round 2, 1 rewrites: melt", "2 rewrites, making the new graph"]


def test_a_search_starts_where_equal_nodes_are_seen_at_a_glance() -> None:
    """Also where there are more of them than of the rarest operator."""

    def make(b: Builder) -> list[Node]:
        first, second = b.input("x", 4), b.input("y", 4)
        parts = [b.call("divide", first, second) for _ in range(200)]
        whole = [b.call("subtract", second, part) for part in parts[1:]]
        return [b.call("subtract", first, parts[0]), *whole, b.call("subtract", first, second)]

    (where,) = candidates([Subst(op.Subtract(x, op.Divide(x, y)), x).plan], graph(make).by_op())
    assert [node.op for node in where.nodes] == ["subtract"]

"""What rewriting does not do: copy what stays, ask for a type twice, walk where nothing can be found."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pytest

from gsl import RuleSet, Subst, Workload, attr, op, pat
from gsl.graph import Graph, Node, Op, TupleType, splice
from gsl.spec.spec import exact
from tests.helpers.graphs import graph, infer_type
from tests.rewrite.checks import faults, rewritten
from tests.rewrite.test_scale import TRIPLE, chain, wide

x = pat.Wildcard()


# Types and attributes


class Counting:
    """Type inference that counts how often it is asked."""

    def __init__(self) -> None:
        self.asked = 0

    def __call__(self, op: Op, operands: tuple[Node, ...], attrs: Mapping[str, Any]) -> Any:
        self.asked += 1
        return infer_type(op, operands, attrs)


def test_the_type_of_equal_calls_is_asked_for_once() -> None:
    view = chain(50)
    view.infer = counting = Counting()
    new, trace = TRIPLE.apply(view)
    assert trace.count() == 50
    assert counting.asked <= 3
    assert not new.formed
    leaky = [node for node in new if node.op == "nn.leaky_relu"]
    assert leaky[0].attrs is leaky[-1].attrs


def test_numbers_that_differ_in_their_type_or_sign_are_no_equal_calls() -> None:
    values = [0, 0.0, -0.0, False, (0,), (0.0,), (False,), [0], None, "0"]
    assert len({exact(value) for value in values}) == len(values)
    with pytest.raises(TypeError):
        exact(object())
    view = graph(lambda b: [b.call("clip", b.input("x", 4), a_min=low, a_max=1.0) for low in (0.0, -0.0)])
    source = op.Clip(x)
    new, _ = Subst(source, source.like(op.Tanh(x)), name="clip").apply(view)
    assert [repr(node.attrs["a_min"]) for node in new if node.op == "clip"] == ["0.0", "-0.0"]


# What stays


@pytest.mark.parametrize("options", [{}, {"iterative": True}])
def test_a_view_in_which_nothing_matches_is_not_copied(
    options: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Graph, "copy", lambda self: pytest.fail("it is copied"))
    view = chain(3)
    for rule in (Subst(op.Exp(x), x, name="absent"), Subst(op.Tanh(op.ReLU(x)), x, name="apart")):
        new, trace = rule.apply(view, **options)
        assert new is view
        assert trace.text() == "no rule fired"


@pytest.mark.parametrize("strategy", ["priority", "largest", "first"])
def test_rules_before_the_first_that_matches_change_nothing(strategy: str) -> None:
    apart = Subst(op.Exp(op.ReLU(x)), x, name="apart", priority=2)
    after = Subst(op.ReLU(op.Sigmoid(x)), op.Exp(x), name="after", priority=-1)
    expected, _ = rewritten(RuleSet([TRIPLE, after], strategy=strategy), chain(5), numbers=False)
    new, trace = rewritten(RuleSet([apart, TRIPLE, after], strategy=strategy), chain(5), numbers=False)
    assert (str(new), trace.count()) == (str(expected), 5)


def test_the_operators_of_a_view_are_listed_once_and_anew_after_a_change() -> None:
    view = chain(2)
    assert view.by_op() is view.by_op()
    new, _ = TRIPLE.apply(view)
    assert [len(new.by_op()[name]) for name in ("nn.leaky_relu", "sigmoid")] == [2, 2]
    assert "tanh" not in new.by_op()


@pytest.mark.torch
def test_a_workload_without_a_match_is_stored_as_it_was() -> None:
    import torch

    workload = Workload.from_torch(torch.nn.Sequential(torch.nn.ReLU()), (torch.zeros(2),))
    new = Subst(op.Exp(x), x, name="absent")(workload)
    assert str(new) == str(workload)
    assert workload.compare(new)


# Users, operands and order


def test_users_are_told_apart_whatever_their_number() -> None:
    hub = Node("input", name="hub")
    users = [Node("nn.relu", (hub,), name=f"user{number}") for number in range(30)]
    for count in (*range(1, 31), *range(29, -1, -1)):
        for user in users[:count]:
            hub.add_user(user)
            hub.add_user(user)
        for user in users[count:]:
            hub.drop_user(user)
            hub.drop_user(user)
        assert list(hub.users) == users[:count]
        assert all((user in hub.users) == (number < count) for number, user in enumerate(users))


@pytest.mark.parametrize("count", [3, 100])
def test_operands_replaced_one_by_one(count: int) -> None:
    old, new, last = ([Node("input", name=f"{kind}{n}") for n in range(count)] for kind in ("old", "new", "last"))
    join = Node("tuple", (*old, old[0]), deps=(old[1],))
    join.redirects = {last[2]: old[2]}
    for a, b, c in zip(old, new, last):
        join.redirect(a, b)
        join.redirect(b, c)
    join.redirect(last[1], old[1])
    assert join.operands == (last[0], old[1], *last[2:], last[0])
    assert join.deps == (old[1],)
    assert join.redirects is not None
    assert [join.redirects[node] for node in (old[0], new[0], old[1], last[2])] == [last[0], last[0], old[1], last[2]]
    assert type(join) is Node


@pytest.mark.parametrize("count", [0, 1, 2, 40])
def test_a_dep_is_replaced_whatever_the_number_of_operands(count: int) -> None:
    """A branch, for example, depends on what it reads besides its condition."""
    operands = tuple([Node("input", name=f"operand{number}") for number in range(count)])
    old, new, other = (Node("input", name=name) for name in ("old", "new", "other"))
    node = Node("branch", operands, deps=(old, other))
    node.redirect(old, new)
    assert (node.operands, node.deps) == (operands, (new, other))
    assert node.redirects == {old: new}


def test_operands_of_a_node_that_joins_many_branches_are_replaced_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    made = []
    real = splice.Splicer.apply
    view = wide(200)
    kind = TupleType(tuple(node.type for node in view.outputs))
    join = Node("tuple", tuple(view.outputs), type=kind, name="join")
    view = Graph([*view.nodes, join], [join], infer_type)

    def apply(self: splice.Splicer, *arguments: Any) -> None:
        real(self, *arguments)
        made.append(type(self.graph.nodes[-1]) is Node)

    monkeypatch.setattr(splice.Splicer, "apply", apply)
    new, trace = TRIPLE.apply(view)
    assert (trace.count(), any(made)) == (200, False)
    assert faults(new) == []


@pytest.mark.parametrize("make", [chain, wide])
def test_no_cycle_is_looked_for_where_there_can_be_none(
    make: Callable[[int], Graph], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(splice, "_follow", lambda *found: pytest.fail("the graph is walked"))
    assert TRIPLE.apply(make(20))[1].count() == 20


def test_the_search_for_a_cycle_ends_with_the_shorter_side() -> None:
    source = Node("input", name="x")
    long = [source]
    for _ in range(2000):
        long.append(Node("tanh", (long[-1],)))
    short = Node("nn.relu", (source,))
    Graph([source, short, *long[1:]], [short, long[-1]], infer_type)
    looked: list[Node] = []

    def operands(node: Node) -> tuple[Node, ...]:
        looked.append(node)
        return node.operands

    down, up = splice._follow({long[-1]: None}, operands), splice._follow({short: None}, lambda node: node.users)
    assert not splice._is_first_done(down, up)
    assert len(looked) <= 2


def test_an_expression_is_computed_for_each_match() -> None:
    leaky = op.LeakyReLU(x)
    rule = Subst(leaky, op.LeakyReLU(op.Tanh(x), alpha=attr.max(leaky.alpha, 0.25)), name="at least")
    view = graph(lambda b: [b.call("nn.leaky_relu", b.input("x", 4), alpha=alpha) for alpha in (0.1, 0.5, 0.1)])
    new, _ = rewritten(rule, view, numbers=False)
    assert [node.attrs["alpha"] for node in new if node.op == "nn.leaky_relu"] == [0.25, 0.5, 0.25]

"""Groups of instances that share no node: what they take, and that none depends on another one."""

from __future__ import annotations

from functools import cache
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gsl import Subst, attr, op, pat
from gsl.graph import Effect, Graph, Node
from gsl.match import MatchSearch, Plan, many
from gsl.match.many import Apart, Dependents
from tests.helpers.graphs import Builder, graph, run
from tests.helpers.tensors import randn
from tests.match.test_compile import both_ways
from tests.match.test_complete import QUICK
from tests.tiers import examples

SIZE = 3


def layers(least: int = 2, most: int | None = None) -> tuple[pat.Variadic, pat.Pattern, pat.Pattern]:
    """Layers of equal sizes, with their inputs and weights."""
    x0, w0 = pat.Wildcard(ndim=2), pat.Param()
    first = op.Dense(x0, w0)
    x, w = pat.Wildcard(shape=x0.shape), pat.Param(shape=w0.shape)
    dense = op.Dense(x, w, out_dtype=first.out_dtype)
    return pat.Variadic(dense, [dense, x, w], [first, x0, w0], min_len=least, max_len=most), x, w


@cache
def batched(least: int = 2, most: int | None = None) -> Subst:
    """Equal layers of any inputs as one product of stacks."""
    every, x, w = layers(least, most)
    i, j, k = attr.Symbol(), attr.Symbol(), attr.Symbol()
    data = op.Stack(pat.Variadic(every(x, i), index=i, length=every.length))
    weights = op.Stack(pat.Variadic(every(w, j), index=j, length=every.length))
    part = op.Split(op.BatchMatmul(data, weights), indices_or_sections=every.length, axis=0)[k]
    return Subst(every, pat.Variadic(op.Squeeze(part, axis=(0,)), index=k), name="batched")


def names(view: Graph, source: pat.Pattern | None = None) -> list[tuple[str, ...]]:
    plan = Plan([layers()[0] if source is None else source])
    return [tuple(node.name for node in match.outputs) for match in plan.matches(view)]


def dense(b: Builder, x: Node, size: int = SIZE) -> Node:
    return b.call("nn.dense", x, b.param("w", size, x.type.shape[1]))  # type: ignore[union-attr]


def inputs(b: Builder, number: int) -> list[Node]:
    return [b.input(f"x{i}", 2, SIZE) for i in range(number)]


def test_layers_of_different_inputs_are_one_group() -> None:
    view = graph(lambda b: [dense(b, x) for x in inputs(b, 3)])
    assert names(view) == [("dense", "dense_1", "dense_2")]
    assert names(graph(lambda b: dense(b, b.input("x", 2, SIZE)))) == []


def test_what_must_be_equal_divides_them() -> None:
    view = graph(lambda b: [dense(b, x, size) for x, size in zip(inputs(b, 5), (3, 4, 3, 5, 4))])
    assert names(view) == [("dense", "dense_2"), ("dense_1", "dense_4")]


def test_layers_above_each_other_are_not_one_group() -> None:
    def towers(b: Builder) -> list[Node]:
        tops = inputs(b, 2)
        for _ in range(3):
            tops = [b.call("nn.relu", dense(b, x)) for x in tops]
        return tops

    assert names(graph(towers)) == [("dense", "dense_1"), ("dense_2", "dense_3"), ("dense_4", "dense_5")]


def test_a_chain_has_no_group() -> None:
    def make(b: Builder) -> Node:
        x = b.input("x", 2, SIZE)
        for _ in range(5):
            x = dense(b, x)
        return x

    assert names(graph(make)) == []


def test_a_layer_that_uses_another_one_by_a_way_round_is_left_out() -> None:
    def make(b: Builder) -> list[Node]:
        x, y, z = inputs(b, 3)
        first = dense(b, x)
        above = dense(b, b.call("add", b.call("tanh", first), y))
        return [above, dense(b, z)]

    assert names(graph(make)) == [("dense", "dense_2")]


def test_the_greatest_number() -> None:
    view = graph(lambda b: [dense(b, x) for x in inputs(b, 5)])
    assert names(view, layers(2, 2)[0]) == [("dense", "dense_1"), ("dense_2", "dense_3")]
    assert names(view, layers(1, 3)[0]) == [("dense", "dense_1", "dense_2"), ("dense_3", "dense_4")]


def test_nothing_is_joined_across_an_effect() -> None:
    def make(b: Builder) -> list[Node]:
        x, y, z, u = inputs(b, 4)
        before = [dense(b, x), dense(b, y)]
        seen = b.call(print, x, effect=Effect.OBSERVES)
        return [*before, seen, dense(b, z), dense(b, u)]

    view = graph(make)
    assert names(view) == [("dense", "dense_1"), ("dense_2", "dense_3")]
    assert batched().apply(view)[1].count() == 2


def test_what_nobody_reads_is_no_member() -> None:
    def make(b: Builder) -> list[Node]:
        x, y, z = inputs(b, 3)
        made = [dense(b, x), dense(b, y), dense(b, z)]
        return [made[0], made[2]]

    assert names(graph(make)) == [("dense", "dense_2")]


def test_only_the_next_candidates_are_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(many, "WINDOW", 2)
    view = graph(lambda b: [dense(b, x, size) for x, size in zip(inputs(b, 4), (3, 4, 4, 3))])
    assert names(view) == [("dense_1", "dense_2")]


def test_several_calls_in_an_instance() -> None:
    x, w = pat.Wildcard(), pat.Param()
    inner = op.Dense(x, w)
    act = op.ReLU(inner)
    group = pat.Variadic(act, [act, inner, x, w], min_len=2)
    view = graph(lambda b: [b.call("nn.relu", dense(b, x)) for x in inputs(b, 3)])
    assert names(view, group) == [("relu", "relu_1", "relu_2")]


@pytest.mark.parametrize("is_constraint", [True, False])
def test_an_instance_that_is_used_in_the_middle_is_left_out(is_constraint: bool) -> None:
    x, w = pat.Wildcard(), pat.Param()
    inner: pat.Pattern = op.Dense(x, w)
    below = inner.extern_use(False) if is_constraint else inner
    act = op.ReLU(below)
    group = pat.Variadic(act, list(dict.fromkeys([act, below, inner, x, w])), min_len=2)

    def make(b: Builder) -> list[Node]:
        made = [dense(b, x) for x in inputs(b, 3)]
        return [*[b.call("nn.relu", each) for each in made], made[1]]

    plan = Plan([group], extern_use=None if is_constraint else False)
    assert [tuple(node.name for node in match.outputs) for match in plan.matches(graph(make))] == [("relu", "relu_2")]


def test_a_first_instance_of_another_operator() -> None:
    x0, x = pat.Wildcard(), pat.Wildcard()
    first, call = op.ReLU(x0), op.Tanh(x)
    group = pat.Variadic(call, [call, x], [first, x0], min_len=2)

    def found(*ops: str) -> list[tuple[str, ...]]:
        return names(graph(lambda b: [b.call(name, data) for name, data in zip(ops, inputs(b, 3))]), group)

    assert found("nn.relu", "tanh", "tanh") == [("relu", "tanh", "tanh_1")]
    assert found("tanh", "nn.relu", "tanh") == [("relu", "tanh_1")]
    assert found("tanh", "tanh", "nn.relu") == []


def test_any_operators_of_a_class() -> None:
    x, f = pat.Wildcard(), pat.OpWithTrait("element_wise")
    call = pat.Call(f, x)
    group = pat.Variadic(call, [call, x], min_len=2)
    view = graph(lambda b: [b.call(n, x) for n, x in zip(("tanh", "nn.relu", "tanh"), inputs(b, 3))])
    assert names(view, group) == [("tanh", "tanh_1")]


def test_explain_tells_why_there_is_no_group() -> None:
    alone = graph(lambda b: dense(b, b.input("x", 2, SIZE)))
    assert "instances: expected 2 or more, found 1" in str(batched().explain(alone))
    other = graph(lambda b: [dense(b, x, size) for x, size in zip(inputs(b, 2), (3, 4))])
    assert "shape: expected (3, 3), found (4, 3)" in str(batched().explain(other))


# Laws, on random graphs.


def program(seed: int, number: int) -> Graph:
    """Layers of two sizes over each other and beside each other, with other calls between them."""
    random = Random(seed)

    def make(b: Builder) -> list[Node]:
        made = inputs(b, 3)
        for _ in range(number):
            kind = random.choice(["layer", "layer", "wide", "tanh", "add"])
            x = random.choice(made[-4:])
            if kind == "layer":
                made.append(dense(b, x))
            elif kind == "wide":
                made.append(dense(b, dense(b, x, SIZE + 1)))
            else:
                made.append(b.call(kind, x, *([random.choice(made)] if kind == "add" else [])))
        return [*made[-3:], *(node for node in made if not node.users)]

    return graph(make)


def depends(node: Node, other: Node) -> bool:
    seen, work = {node}, [node]
    while work:
        for below in work.pop().operands:
            if below is other:
                return True
            if below not in seen:
                seen.add(below)
                work.append(below)
    return False


def greedy(view: Graph, least: int, most: int | None) -> list[tuple[str, ...]]:
    """The groups by their definition: from each layer on, those after it that fit and depend on none before."""
    found: list[tuple[str, ...]] = []
    grouped: set[Node] = set()
    calls = [n for n in view.nodes if n.op == "nn.dense" and (n.users or n in view.outputs)]
    for first in calls:
        if first in grouped:
            continue
        group = [first]
        for other in calls[calls.index(first) + 1 :]:
            free = other not in grouped
            fits = free and [o.type for o in other.operands] == [o.type for o in first.operands]
            if len(group) != most and fits and not any(depends(other, each) for each in group):
                group.append(other)
        if len(group) >= least:
            found.append(tuple(node.name for node in group))
            grouped.update(group)
    return found


programs = st.builds(program, st.integers(0, 10**6), st.integers(4, 24))


@pytest.mark.law
@settings(QUICK, max_examples=examples(150))
@given(programs, st.integers(1, 3), st.sampled_from([None, 3, 4]))
def test_groups_are_those_of_the_definition(view: Graph, least: int, most: int | None) -> None:
    source = layers(least, most)[0]
    assert names(view, source) == greedy(view, least, most)
    both_ways(Plan([source]), view)


@pytest.mark.law
@settings(QUICK, max_examples=examples(100))
@given(programs, st.sampled_from([None, 2, 3]), st.booleans())
def test_results_stay_equal(view: Graph, most: int | None, iterative: bool) -> None:
    rule = batched(2, most)
    new, trace = rule.apply(view, iterative=iterative)
    assert not trace.refused
    if iterative:
        assert trace.count() >= len(greedy(view, 2, most)[:1])
        assert not list(rule.match(new))
    values = {f"x{i}": randn(2, SIZE, seed=i) for i in range(3)}
    for before, after in zip(run(view, values), run(new, values)):
        assert abs(before - after).max() <= 1e-4 * max(1.0, abs(before).max())


def test_the_comparison_can_fail(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Apart, "take", lambda self, node: None)
    view = graph(lambda b: dense(b, b.call("tanh", dense(b, b.input("x", 2, SIZE)))))
    assert names(view) == [("dense", "dense_1")] != greedy(view, 2, None)
    assert batched().apply(view)[1].refused  # and if it did fail, nothing would be broken


def test_what_the_same_pass_has_joined_is_known() -> None:
    """Two groups that cross: when one is joined, the members of the other one depend on each other."""

    def make(b: Builder) -> list[Node]:
        x, y, z = inputs(b, 3)
        above = dense(b, dense(b, dense(b, x, SIZE + 1)))
        return [above, dense(b, dense(b, y), SIZE + 1), dense(b, z, SIZE + 2)]

    view = graph(make)
    _, trace = batched().apply(view, iterative=True)
    assert not trace.refused
    assert trace.count() == 1


# Cost


def test_a_chain_of_many_equal_layers_is_looked_at_once() -> None:
    def make(b: Builder) -> Node:
        x, w = b.input("x", 2, SIZE), b.param("w", SIZE, SIZE)
        for _ in range(3000):
            x = b.call("nn.relu", b.call("nn.dense", x, w))
        return x

    view = graph(make)
    plan = Plan([layers()[0]])
    search = MatchSearch(plan, view.ends())
    assert not list(plan.matches(view, search=search))
    assert search.steps < 10 * 3000


@pytest.mark.parametrize("far", [1, many.WINDOW, many.WINDOW + 1])
def test_bits_reach_as_far_as_the_window(far: int) -> None:
    def make(b: Builder) -> list[Node]:
        x = b.input("x", 2)
        first = b.call("tanh", x)
        return [*[b.call("tanh", x) for _ in range(far - 1)], b.call("tanh", first)]

    view = graph(make)
    found = Dependents(view.by_op()["tanh"], [])
    assert found.above[0] == (1 | 1 << far if far <= many.WINDOW else 1)

"""Common subexpressions between rounds: what rewriting made equal is computed once, and nothing else is."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from gsl import RuleSet, Subst, op, pat
from gsl.graph import Effect, Graph, Node
from gsl.graph.splice import Splicer
from gsl.rewrite.cse import share_near
from tests.helpers.graphs import Builder, graph
from tests.rewrite.checks import faults, ops, rewritten

x, y, z = pat.Wildcard(), pat.Wildcard(), pat.Wildcard()
LEAKY = Subst(op.LeakyReLU(x, alpha=0.0), op.ReLU(x), name="leaky to relu")


def two_leaky(b: Builder) -> list[Node]:
    data = b.input("x", 4)
    first, second = (b.call("nn.leaky_relu", data, alpha=0.0) for _ in range(2))
    return [b.call("tanh", first), b.call("exp", second)]


def test_what_rewrites_made_equal_is_shared() -> None:
    new, trace = rewritten(LEAKY, graph(two_leaky), iterative=True)
    assert ops(new) == ["nn.relu", "tanh", "exp"]
    assert (trace.count(), trace.shared) == (2, 1)


def test_one_pass_only_rewrites() -> None:
    new, trace = rewritten(LEAKY, graph(two_leaky))
    assert ops(new) == ["nn.relu", "nn.relu", "tanh", "exp"]
    assert trace.shared == 0


def test_what_follows_is_shared_too() -> None:
    """Both tanh are the program's own, but a rewrite gave them one operand; the fields and tuples go as well."""

    def make(b: Builder) -> Node:
        data = b.input("x", 4)
        sides = [b.call("tanh", b.call("nn.leaky_relu", data, alpha=0.0)) for _ in range(2)]
        pairs = [b.tuple(side, data) for side in sides]
        return b.call("add", *(b.call("concatenate", pair, axis=0) for pair in pairs))

    new, trace = rewritten(LEAKY, graph(make), iterative=True)
    assert ops(new) == ["nn.relu", "tanh", "tuple", "concatenate", "add"]
    assert trace.shared == 4


def test_a_new_match_by_sharing() -> None:
    def make(b: Builder) -> Node:
        data = b.input("x", 4)
        return b.call("add", *(b.call("nn.leaky_relu", data, alpha=0.0) for _ in range(2)))

    one = op.ReLU(x)
    rules = RuleSet([LEAKY, Subst(one + one, one * 2.0, name="twice")])
    new, _ = rewritten(rules, graph(make), iterative=True)
    assert ops(new) == ["nn.relu", "multiply"]


def test_what_the_program_computes_twice_stays() -> None:
    def make(b: Builder) -> list[Node]:
        data = b.input("x", 4)
        return [b.call("nn.relu", data), b.call("nn.relu", data), b.call("nn.leaky_relu", data, alpha=0.0)]

    new, trace = rewritten(LEAKY, graph(make), iterative=True)
    assert ops(new) == ["nn.relu", "nn.relu"]
    assert (trace.shared, new.outputs[2]) == (1, new.outputs[0])


def sides(first: Callable[[Builder, Node], Node], second: Callable[[Builder, Node], Node]) -> Graph:
    """Two calls of one input, each behind a leaky_relu that becomes a relu."""

    def make(b: Builder) -> list[Node]:
        data = b.input("x", 4)
        b.param("w", 4)
        return [f(b, b.call("nn.leaky_relu", data, alpha=0.0)) for f in (first, second)]

    return graph(make)


def call(name: str, *more: object, **attrs: object) -> Callable[[Builder, Node], Node]:
    return lambda b, node: b.call(name, node, *more, **attrs)  # type: ignore[arg-type]


def weight(shared: torch.Tensor | None) -> Callable[[Builder, Node], Node]:
    def make(b: Builder, node: Node) -> Node:
        param = b.param("v", 4)
        if shared is not None:
            param.attrs = {"value": shared}
        return b.call("add", node, param)

    return make


ONE = torch.ones(4)


@pytest.mark.parametrize(
    ("first", "second", "left"),
    [
        (call("tanh"), call("tanh"), 1),
        (call("tanh"), call("exp"), 2),
        (call("multiply", 2.0), call("multiply", 2.0), 1),
        (call("multiply", 2.0), call("multiply", 3.0), 2),
        (call("multiply", 0.0), call("multiply", -0.0), 2),
        (call("multiply", 1.0), call("multiply", 1), 2),
        (call("nn.leaky_relu", alpha=0.5), call("nn.leaky_relu", alpha=0.5), 1),
        (call("nn.leaky_relu", alpha=0.5), call("nn.leaky_relu", alpha=0.25), 2),
        (weight(ONE), weight(ONE), 1),
        (weight(None), weight(None), 2),
        (weight(ONE), weight(ONE.clone()), 2),
        (call("tanh", effect=Effect.RANDOM), call("tanh", effect=Effect.RANDOM), 2),
        (call("tanh", effect=Effect.OTHER), call("tanh", effect=Effect.OTHER), 3),  # may change what it reads
        (call(torch.tanh), call(torch.tanh), 2),  # type: ignore[arg-type]
    ],
)
def test_what_is_equal(
    first: Callable[[Builder, Node], Node], second: Callable[[Builder, Node], Node], left: int
) -> None:
    new, trace = rewritten(LEAKY, sides(first, second), iterative=True, numbers=False)
    assert trace.count() == 2
    assert len(ops(new)) == 1 + left


def test_reads_before_and_after_a_change_are_two() -> None:
    def make(b: Builder) -> list[Node]:
        data = b.input("x", 4)
        view = b.call("reshape", data, newshape=(4,))
        before = b.call("tanh", b.call("nn.leaky_relu", view, alpha=0.0))
        b.call(torch.relu_, data, effect=Effect.MUTATES)
        return [before, b.call("tanh", b.call("nn.leaky_relu", view, alpha=0.0))]

    new, trace = rewritten(LEAKY, graph(make), iterative=True, numbers=False)
    assert (trace.count(), trace.shared) == (2, 0)
    assert ops(new).count("nn.relu") == 2


def test_what_is_changed_in_place_is_not_shared() -> None:
    def make(b: Builder) -> list[Node]:
        data = b.input("x", 4)
        first, second = (b.call("tanh", b.call("nn.leaky_relu", data, alpha=0.0)) for _ in range(2))
        b.call(torch.relu_, first, effect=Effect.MUTATES)
        return [first, second]

    new, _ = rewritten(LEAKY, graph(make), iterative=True, numbers=False)
    assert ops(new).count("tanh") == 2
    assert ops(new).count("nn.relu") == 1


@pytest.mark.parametrize(("shown", "left"), [((0,), 1), ((1,), 1), ((), 1), ((0, 1), 2)])
def test_only_one_of_equal_results_is_returned(shown: tuple[int, ...], left: int) -> None:
    """Where the results may be changed in place by who gets them, two of them are two tensors."""

    def make(b: Builder) -> list[Node]:
        data = b.input("x", 4)
        equal = [b.call("nn.leaky_relu", data, alpha=0.0) for _ in range(2)]
        return [node if place in shown else b.call("exp", node) for place, node in enumerate(equal)]

    view = graph(make)
    view.shares = lambda node, operand: True
    new, _ = rewritten(LEAKY, view, iterative=True)
    assert ops(new).count("nn.relu") == left


def test_what_is_written_to_an_input_at_the_end_is_not_returned() -> None:
    def make(b: Builder) -> list[Node]:
        data = b.input("x", 4)
        return [b.call("nn.leaky_relu", data, alpha=0.0) for _ in range(2)]

    view = graph(make)
    assert ops(rewritten(LEAKY, view, iterative=True)[0]) == ["nn.relu"]
    view.written = {view.nodes[0]: 0}
    assert ops(rewritten(LEAKY, view, iterative=True)[0]) == ["nn.relu", "nn.relu"]


def test_calls_before_and_after_one_that_may_enter_a_mode_are_two() -> None:
    def make(b: Builder) -> list[Node]:
        data, other = b.input("x", 4), b.input("y", 4)
        before = b.call("nn.leaky_relu", data, alpha=0.0)
        b.call(torch.relu_, other, effect=Effect.OTHER)
        return [before, b.call("nn.leaky_relu", data, alpha=0.0)]

    _, trace = rewritten(LEAKY, graph(make), iterative=True, numbers=False)
    assert (trace.count(), trace.shared) == (2, 0)


def twice_and_unused(b: Builder) -> list[Node]:
    data = b.input("x", 2, 3)
    b.call("exp", b.call("tanh", data))
    return [b.call("sigmoid", data), b.call("sigmoid", data)]


def test_a_tidy_rule_set_shares_what_the_program_computes_twice_and_drops_what_nothing_uses() -> None:
    before = graph(twice_and_unused)
    rules = [Subst(op.Negative(op.Negative(x)), x, name="none")]
    after, trace = RuleSet(rules, tidy=True).apply(before)
    assert ops(after) == ["sigmoid"]
    assert len(after.outputs) == 2
    assert (trace.shared, trace.unused, trace.count()) == (1, 2, 0)
    assert ops(trace.replay(before)) == ["sigmoid"]
    untidy, _ = RuleSet(rules).apply(before, iterative=True)
    assert len(ops(untidy)) == len(ops(before)) == 4


def test_a_sum_of_rule_sets_is_tidy_if_one_of_them_is() -> None:
    one, other = RuleSet([Subst(op.Negative(op.Negative(x)), x, name="a")], tidy=True), RuleSet([])
    assert (one + other).tidy
    assert (other + one).tidy
    assert not (other + other).tidy


def shared_near(view: Graph, *names: str) -> list[str]:
    """The names of the calls that are left where those of the given names were touched."""
    splicer = Splicer(view)
    gone = share_near(splicer, [node for node in view.nodes if node.name in names])
    splicer.finish()
    assert faults(view) == []
    assert gone == len(splicer.dead)
    return [node.name for node in view.nodes if node.op != "input"]


@pytest.mark.parametrize("touched", ["tanh", "tanh_1"])
def test_near_to_changes_the_first_of_equal_calls_stays_and_what_follows_is_shared_too(touched: str) -> None:
    view = graph(lambda b: [b.call("exp", b.call("abs", b.call("tanh", x))) for x in [b.input("x", 4)] * 2])
    assert shared_near(view, touched) == ["tanh", "abs", "exp"]
    assert view.outputs[0] is view.outputs[1]


def test_near_to_changes_each_of_several_equal_calls_goes_once() -> None:
    view = graph(lambda b: [b.call("tanh", x) for x in [b.input("x", 4)] * 3])
    assert shared_near(view, "tanh", "tanh_1", "tanh_2") == ["tanh"]


@pytest.mark.parametrize("effects", [(Effect.RANDOM, Effect.RANDOM), (Effect.RANDOM, None), (None, Effect.OBSERVES)])
def test_near_to_changes_calls_with_effects_are_not_shared(effects: tuple[Effect | None, Effect | None]) -> None:
    view = graph(lambda b: [b.call("tanh", x, effect=effect) for x in [b.input("x", 4)] for effect in effects])
    assert shared_near(view, "tanh") == shared_near(view, "tanh_1") == ["tanh", "tanh_1"]


@pytest.mark.parametrize("is_written", [False, True])
def test_near_to_changes_results_that_must_lie_apart_are_not_shared(is_written: bool) -> None:
    view = graph(lambda b: [b.call("tanh", x) for x in [b.input("x", 4)] * 2])
    if is_written:
        view.written = {view.nodes[0]: 0}
    else:
        view.shares = lambda node, operand: True
    assert shared_near(view, "tanh") == ["tanh", "tanh_1"]

"""No rewrite breaks a graph: what is refused, and why."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest

from gsl import RuleSet, Subst, op, pat
from gsl.errors import DroppedAttributeWarning, RewriteError, UntypedWarning
from gsl.graph import Effect, Graph, Node, TensorType, TupleType
from gsl.graph.types import unknown_size
from gsl.rewrite import Trace, near
from gsl.rewrite.apply import apply
from gsl.rewrite.check import may_be_view
from tests.helpers.graphs import Builder, graph
from tests.rewrite.checks import ops, rewritten

x, y, z = pat.Wildcard(), pat.Wildcard(), pat.Wildcard()


def reasons(trace: Trace) -> list[str]:
    return [refused.reason for refused in trace.refused]


def opaque_add_(a: Any, b: Any) -> Any:
    return a.add_(b)


def exchanged(a: Any) -> Any:
    return a


SHARED = "%x may be changed in place later, by %opaque_add_, so it matters whether %{} shares its memory"


def test_nested_lists_are_rewritten_in_one_pass() -> None:
    field = pat.Wildcard()
    fields = pat.Variadic(field, templates=[field])
    joined = op.Concatenate(fields)
    rule = Subst(joined, joined.like(fields), name="again")
    view = graph(
        lambda b: b.call(
            "concatenate",
            b.tuple(b.call("concatenate", b.tuple(b.input("a", 2), b.input("b", 2)), axis=0), b.input("c", 2)),
            axis=0,
        )
    )
    _, trace = rewritten(rule, view)
    assert trace.count("again") == 2


def test_a_node_of_many_users_gets_another_one() -> None:
    def make(b: Builder) -> list[Node]:
        data = b.input("x", 3)
        return [b.call("tanh", b.call("negative", b.call("negative", data))), *[b.call("exp", data) for _ in range(9)]]

    new, _ = rewritten(Subst(op.Negative(op.Negative(x)), x), graph(make))
    assert len(new.nodes[0].users) == 10


def test_a_copy_tells_what_made_its_nodes() -> None:
    view = graph(lambda b: b.call("exp", b.call("tanh", b.input("x", 3))))
    new, _ = rewritten(Subst(op.Exp(x), op.Sin(x), name="rule"), view, numbers=False)
    assert [node.origin and node.origin.rule for node in new.copy()] == [None, None, "rule"]


def test_outputs_whose_order_changes() -> None:
    i1, i2 = pat.Wildcard(), pat.Wildcard()
    relu = op.ReLU(i1)
    rule = Subst([relu, i2 + relu], [op.ReLU(i1), i2 + op.ReLU(i1)], name="both")

    def make(b: Builder) -> Node:
        first, second = b.input("i1", 4, 4), b.input("i2", 4, 4)
        o1 = b.call("nn.relu", first)
        u = b.call("sqrt", o1)
        return b.call("matmul", u, b.call("add", b.call("multiply", second, 2), o1))

    _, trace = rewritten(rule, graph(make))
    assert trace.count() == 1


def dense_pair(b: Builder) -> list[Node]:
    """Two dense layers on x, where the weight of the second depends on the first one's result."""
    data = b.input("x", 4, 4)
    first = b.call("nn.dense", data, b.param("w", 4, 4))
    return [first, b.call("nn.dense", data, b.call("nn.relu", first))]


def fuse_dense() -> Subst:
    w1, w2 = pat.Wildcard(), pat.Wildcard()
    both = op.Dense(x, op.Concatenate(pat.Tuple(w1, w2), axis=0))
    halves = op.Split(both, indices_or_sections=2, axis=-1)
    return Subst([op.Dense(x, w1), op.Dense(x, w2)], [halves[0], halves[1]], name="fuse")


def test_a_cycle_is_refused() -> None:
    new, trace = rewritten(fuse_dense(), graph(dense_pair))
    assert trace.count() == 0
    assert sorted(reasons(trace)) == [
        "would create a cycle: what stands for %dense, %dense_1 would depend on itself",
        "would create a cycle: what stands for %dense_1, %dense would depend on itself",
    ]
    assert ops(new) == ["nn.dense", "nn.relu", "nn.dense"]


def test_independent_layers_are_fused() -> None:
    view = graph(lambda b: [b.call("nn.dense", b.input("x", 4, 4), b.param("w", 4, 4)),
                            b.call("nn.dense", b.nodes[0], b.param("v", 4, 4))])  # fmt: skip
    new, trace = rewritten(fuse_dense(), view)
    assert trace.count() == 1
    assert ops(new).count("nn.dense") == 1


def test_a_cycle_through_two_matches_of_one_pass_is_refused() -> None:
    """Each pair alone could be fused; after the first, the second would close a cycle."""

    def make(b: Builder) -> list[Node]:
        p, q = b.input("p", 4, 4), b.input("q", 4, 4)
        a1 = b.call("nn.dense", p, b.param("w1", 4, 4))
        b1 = b.call("nn.dense", q, b.param("w2", 4, 4))
        a2 = b.call("nn.dense", p, b.call("nn.relu", b1))
        b2 = b.call("nn.dense", q, b.call("nn.relu", a1))
        return [a1, a2, b1, b2]

    new, trace = rewritten(fuse_dense(), graph(make))
    assert trace.count() == 1
    assert any("would create a cycle" in reason for reason in reasons(trace))
    assert ops(new).count("nn.dense") == 3


@pytest.mark.parametrize("swapped", [False, True])
def test_either_order_of_a_commutative_operator(swapped: bool) -> None:
    def make(b: Builder) -> Node:
        data = b.input("x", 4)
        operands = [b.call("sigmoid", data), data]
        return b.call("multiply", *operands[:: -1 if swapped else 1])

    new, _ = rewritten(Subst(op.Sigmoid(x) * x, op.SiLU(x)), graph(make))
    assert ops(new) == ["silu"]


@pytest.mark.parametrize("effect", [Effect.MUTATES, Effect.OTHER])
def test_a_read_is_not_moved_across_a_change(effect: Effect) -> None:
    def make(b: Builder) -> list[Node]:
        data = b.input("x", 4)
        relu = b.call("nn.relu", data)
        changed = b.call(opaque_add_, data, b.param("one", 4), effect=effect)
        return [b.call("negative", relu), changed]

    rule = Subst(-op.ReLU(x), op.Minimum(-x, pat.Const(0.0)), name="neg")
    new, trace = rewritten(rule, graph(make), numbers=False)
    assert reasons(trace) == [
        f"%opaque_add_ has an effect ({effect.value}) and stands between the matched nodes, "
        "which would be moved across it"
    ]
    assert ops(new) == ops(graph(make))


@pytest.mark.parametrize(
    ("read", "written", "count"),
    [("exp", "sin", 1), ("exp", "y", 1), ("x", "sin", 1), ("x", "y", 0), ("exp", "exp", 0)],
)
@pytest.mark.parametrize("seen", [False, True])
def test_a_read_is_moved_across_a_change_of_other_memory(read: str, written: str, count: int, seen: bool) -> None:
    """Two inputs may be one tensor."""

    def make(b: Builder) -> list[Node]:
        first, second = b.input("x", 4), b.input("y", 4)
        nodes = {"x": first, "y": second, "exp": b.call("exp", first), "sin": b.call("sin", second)}
        relu = b.call("nn.relu", b.call("reshape", nodes[read], newshape=(4,)) if seen else nodes[read])
        place = b.call("reshape", nodes[written], newshape=(2, 2)) if seen else nodes[written]
        changed = b.call(opaque_add_, place, b.call("cos", place), effect=Effect.MUTATES)
        return [b.call("negative", relu), changed, *list(nodes.values())[2:]]

    rule = Subst(-op.ReLU(x), op.Minimum(-x, pat.Const(0.0)), name="neg")
    assert rewritten(rule, graph(make), numbers=False)[1].count() == count


@pytest.mark.parametrize("written", ["y", "sin"])
def test_two_inputs_may_be_one_tensor(written: str) -> None:
    """So no read of the one stands for another read, and no view for a copy, if the other one is changed between."""

    def make(b: Builder) -> list[Node]:
        data, y = b.input("x", 4), b.input("y", 4)
        place = {"y": y, "sin": b.call("sin", y)}[written]
        copied, first = b.call("add", data, b.const(0.0)), b.call("nn.leaky_relu", data, alpha=0.0)
        b.call(opaque_add_, place, b.param("one", 4), effect=Effect.MUTATES)
        return [first, b.call("nn.leaky_relu", data, alpha=0.0), b.call("exp", copied)]

    found = ops(apply([LEAKY, COPY], graph(make), iterative=True)[0])
    assert (found.count("nn.relu"), found.count("add")) == ((2, 1) if written == "y" else (1, 0))


LEAKY, COPY = Subst(op.LeakyReLU(x, alpha=0.0), op.ReLU(x), name="leaky"), Subst(x + 0.0, x, name="copy")


@pytest.mark.parametrize(
    ("rules", "call", "attrs", "fired"),
    [
        ([COPY], "add", {}, 0),
        ([LEAKY, COPY], "add", {}, 1),  # what is changed is new by then
        ([Subst(x + 0.0, op.Reshape(x, newshape=(4,)))], "add", {}, 0),
        ([Subst(op.Reshape(x), x + 0.0)], "reshape", {"newshape": (4,)}, 0),
        ([Subst(x + 0.0, op.Exp(x))], "add", {}, 1),
    ],
)
def test_memory_that_is_changed_later_is_neither_shared_nor_copied(
    rules: list[Subst], call: str, attrs: dict[str, Any], fired: int
) -> None:
    def make(b: Builder) -> Node:
        changed = b.call("nn.leaky_relu", b.input("x", 4), alpha=0.0)
        found = b.call(call, changed, *([] if attrs else [0.0]), **attrs)
        b.call(opaque_add_, changed, b.param("one", 4), effect=Effect.MUTATES)
        return found

    _, trace = rewritten(RuleSet(rules), graph(make), numbers=False)
    assert trace.count() == fired
    assert len(trace.refused) == (fired == 0 or len(rules) == 2)
    assert all(" may be changed in place later, by %" in refused.reason for refused in trace.refused)


def test_a_copy_that_is_changed_later_does_not_become_a_view() -> None:
    def make(b: Builder) -> list[Node]:
        copy = b.call("nn.leaky_relu", b.input("x", 4), alpha=1.0)
        return [copy, b.call(opaque_add_, b.nodes[0], b.param("one", 4), effect=Effect.MUTATES)]

    _, trace = rewritten(Subst(op.LeakyReLU(x, alpha=1.0), x, name="same"), graph(make), numbers=False)
    assert reasons(trace) == [SHARED.format("leaky_relu")]


@pytest.mark.parametrize("effect", [Effect.RANDOM, Effect.OBSERVES, Effect.OTHER, Effect.MUTATES])
def test_what_a_leaf_matched_is_replaced_beside_an_effect(effect: Effect) -> None:
    """A source that is a leaf covers nothing; what it stands for is replaced where it stands."""
    behind = Subst(x, lambda match: op.ReLU(match.outputs[0]), where=lambda match: match[x].op == "exp", name="behind")

    def make(b: Builder) -> list[Node]:
        exp = b.call("exp", b.input("x", 4))
        return [b.call("negative", exp), b.call(opaque_add_, b.input("y", 4), b.param("w", 4), effect=effect)]

    new, trace = rewritten(behind, graph(make), numbers=False)
    assert trace.count() == 1
    assert ops(new) == ["exp", "nn.relu", "negative", str(opaque_add_)]
    assert behind.explain(graph(make))


def test_what_a_change_of_memory_returns_may_be_replaced_behind_it() -> None:
    behind = Subst(x, lambda match: op.ReLU(match.outputs[0]), where=lambda match: match[x].opaque, name="behind")

    def make(b: Builder) -> Node:
        one = b.param("one", 4)
        found = b.call("exp", b.call(opaque_add_, b.input("x", 4), one, effect=Effect.MUTATES))
        b.call("tanh", b.call("sin", b.input("y", 4)), effect=Effect.MUTATES)
        return found

    new, _ = rewritten(behind, graph(make), numbers=False)
    assert ops(new) == [str(opaque_add_), "nn.relu", "exp", "sin", "tanh"]


@pytest.mark.parametrize("effect", [Effect.RANDOM, Effect.OBSERVES, Effect.EXCHANGES])
def test_what_is_needed_from_behind_does_not_move_an_effect_before_another_one(effect: Effect) -> None:
    def make(b: Builder) -> list[Node]:
        data = b.input("x", 4)
        first = b.call("cos", b.call("tanh", data), effect=effect)
        return [first, b.call("exp", b.call("sin", data, effect=effect))]

    view = graph(make)
    rule = Subst(op.Tanh(x), lambda match: op.Add(match[x], match[x].users[-1].users[0]), name="r")
    new, trace = rewritten(rule, view, numbers=False)
    assert reasons(trace) == [
        f"%cos has an effect ({effect.value}) and stands between the matched nodes, which would be moved across it"
    ]
    assert ops(new) == ops(view)


def test_an_input_that_is_changed_later_is_not_replaced() -> None:
    """The program would change something else than what its caller hands in."""
    def make(b: Builder) -> list[Node]:
        data = b.input("x", 4)
        return [b.call("negative", data), b.call(opaque_add_, data, b.param("one", 4), effect=Effect.MUTATES)]

    given = pat.Input()
    rule = Subst(given, lambda match: op.ReLU(match.outputs[0]), where=lambda match: True, name="behind")
    new, trace = rewritten(rule, graph(make), numbers=False)
    assert reasons(trace) == [SHARED.format("x")]
    assert ops(new) == ops(graph(make))


def test_a_pure_node_moves_across_a_random_one() -> None:
    def make(b: Builder) -> list[Node]:
        relu = b.call("nn.relu", b.input("x", 4))
        noise = b.call(opaque_add_, b.input("y", 4), b.param("w", 4), effect=Effect.RANDOM)
        return [b.call("negative", relu), noise]

    rule = Subst(-op.ReLU(x), op.Minimum(-x, pat.Const(0.0)), name="neg")
    assert rewritten(rule, graph(make), numbers=False)[1].count() == 1


def test_random_nodes_are_never_dropped_duplicated_or_reordered() -> None:
    def make(b: Builder) -> list[Node]:
        data = b.input("x", 4)
        first = b.call("tanh", data, effect=Effect.RANDOM)
        relu = b.call("nn.relu", first)
        second = b.call("tanh", data, effect=Effect.RANDOM)
        return [relu, b.call("nn.relu", second)]

    view = graph(make)
    new, trace = rewritten(Subst(op.ReLU(op.Tanh(x)), op.Sigmoid(x), name="drop"), view)
    assert trace.count() == 0
    assert all("has an effect (random), so it must stay as it is" in reason for reason in reasons(trace))
    new, trace = rewritten(Subst(op.ReLU(x), x * 2.0, name="after"), view, numbers=False)
    assert ops(new) == ["tanh", "multiply", "tanh", "multiply"]
    dropped, _ = rewritten(
        Subst(op.ReLU(x), lambda match: match.outputs[0].args[0].args[0], name="skip"), view, numbers=False
    )
    assert ops(dropped).count("tanh") == 2


def test_a_target_may_use_what_is_matched_of_a_random_node() -> None:
    def make(b: Builder) -> list[Node]:
        noise = b.call("tanh", b.input("x", 4), effect=Effect.RANDOM)
        return [b.call("nn.relu", b.call("exp", noise)), b.call("nn.relu", b.call("tanh", noise, effect=Effect.RANDOM))]

    noise = op.Tanh(x)
    made, exp = graph(make), op.Exp(noise)
    new, trace = rewritten(Subst(op.ReLU(exp), exp, name="below"), made, numbers=False)
    assert ops(new) == ["tanh", "exp", "tanh", "nn.relu"]
    assert not any("kept" in line for line in str(trace).splitlines())
    new, _ = rewritten(Subst(op.ReLU(noise), op.Maximum(noise, pat.Const(0.0)), name="itself"), made, numbers=False)
    assert ops(new) == ["tanh", "exp", "nn.relu", "tanh", "maximum"]
    again = Subst(op.ReLU(exp), op.Exp(op.Tanh(x)), name="again")  # another call, which would draw other numbers
    (reason,) = reasons(rewritten(again, made)[1])
    assert reason.endswith("(random), so it must stay as it is; the target may use it, but not replace it")


def test_any_operand_order_under_maximum() -> None:
    def make(b: Builder) -> Node:
        return b.call("maximum", b.call("nn.relu", b.input("a", 4)), b.input("b", 4))

    rule = Subst(op.Maximum(y, op.ReLU(x)), op.Maximum(op.Maximum(x, y), pat.Const(0.0)))
    new, _ = rewritten(rule, graph(make))
    assert ops(new) == ["maximum", "maximum"]


def test_five_outputs_over_twelve_calls() -> None:
    relus = [op.ReLU(x) for _ in range(5)]
    shared = op.ReLU(x)
    view = graph(lambda b: [b.call("nn.relu", b.nodes[0] if b.nodes else b.input("x", 4)) for _ in range(12)])
    new, trace = rewritten(Subst(relus, [shared] * 5, name="five"), view)
    assert trace.count() == 2
    assert ops(new) == ["nn.relu"] * 4


def test_an_alternative_whose_guard_fails() -> None:
    rule = Subst(op.Tanh(op.LeakyReLU(x, alpha=0.5) | op.ReLU(x)), op.Tanh(x))
    view = graph(lambda b: b.call("tanh", b.call("nn.leaky_relu", b.input("x", 4), alpha=0.25)))
    assert ops(rewritten(rule, view)[0]) == ["nn.leaky_relu", "tanh"]


def test_the_second_rule_sees_what_the_first_made() -> None:
    view = graph(lambda b: b.call("tanh", b.call("nn.relu", b.input("x", 4))))
    folded = op.Reshape(op.Reshape(x, newshape=(2, 2)), newshape=(4,))
    first = Subst(op.Tanh(op.ReLU(x)), op.Tanh(folded), name="first")
    second = Subst(op.Reshape(z, shape=(2, 2)), lambda match: op.Exp(match.outputs[0]), name="second")
    new, trace = rewritten(RuleSet([first, second], max_steps=9), view, numbers=False)
    assert [firing.rule for firing in trace.firings] == ["first"]
    again, trace = rewritten(second, new, numbers=False)
    assert [firing.rule for firing in trace.firings] == ["second"]
    assert ops(again) == ["reshape", "exp", "reshape", "tanh"]


def test_a_negation_sees_what_was_rewritten_in_the_same_pass() -> None:
    view = graph(lambda b: b.call("exp", b.call("nn.relu", b.input("x", 4))))
    other = ~op.Tanh(y)
    first = Subst(op.ReLU(x), op.Tanh(x), name="first", priority=1)
    second = Subst(op.Exp(other), op.Sqrt(other), name="second")
    assert ops(rewritten(RuleSet([first, second]), view, numbers=False)[0]) == ["tanh", "exp"]
    assert ops(rewritten(second, view, numbers=False)[0]) == ["nn.relu", "sqrt"]


def test_leaves_and_operators_that_coincide() -> None:
    view = graph(lambda b: b.call("add", b.input("a", 4), b.nodes[0]))
    assert rewritten(Subst(x + y, y + x, name="swap"), view)[1].count() == 1
    assert rewritten(Subst(x + y, y + x, distinct=True), view)[1].count() == 0
    twice = graph(lambda b: b.call("add", b.call("nn.relu", b.input("a", 4)), b.nodes[1]))
    assert rewritten(Subst(op.ReLU(x) + op.ReLU(y), x + y), twice)[1].count() == 0
    one = op.ReLU(x)
    assert rewritten(Subst(one + one, op.ReLU(x) * 2.0), twice)[1].count() == 1


def test_another_type_is_refused() -> None:
    view = graph(lambda b: b.call("nn.relu", b.input("x", 4, 2)))
    _, trace = rewritten(Subst(op.ReLU(x), op.Sum(x, axis=0), name="sum"), view)
    assert reasons(trace) == ["%relu is float32[4, 2], but its replacement <sum: sum> is float32[2]"]
    _, trace = rewritten(Subst(op.ReLU(x), op.Cast(x, dtype="float16"), name="cast"), view)
    assert reasons(trace) == ["%relu is float32[4, 2], but its replacement <cast: cast> is float16[4, 2]"]


@pytest.mark.torch
def test_an_ill_formed_call_is_refused() -> None:
    view = graph(lambda b: b.call("nn.relu", b.input("x", 4, 2)))
    _, trace = rewritten(Subst(op.ReLU(x), op.Matmul(x, x), name="product"), view)
    assert reasons(trace)[0].startswith("the new matmul is not well-formed: ")


def fan(b: Builder) -> list[Node]:
    data = b.input("x", 4)
    return [b.call(name, data) for name in ("nn.relu", "tanh", "exp")]


relu, tanh, exp = op.ReLU(x), op.Tanh(x), op.Exp(x)


@pytest.mark.parametrize(
    ("sources", "targets", "left"),
    [
        ([relu, tanh], [tanh, op.Sigmoid(x)], None),
        ([relu, tanh], [tanh, relu], None),
        ([relu, tanh], [tanh, tanh], ["tanh", "tanh", "exp"]),
        ([relu, tanh, exp], [tanh, tanh, op.Sqrt(x)], ["tanh", "tanh", "sqrt"]),
    ],
)
def test_an_output_in_the_place_of_another_one_stays_itself(sources: Any, targets: Any, left: list[str] | None) -> None:
    new, trace = rewritten(Subst(sources, targets, name="r"), graph(fan), numbers=False)
    refused = [] if left else ["%tanh would replace %relu, but is itself replaced"]
    assert reasons(trace) == refused
    assert [node.op for node in new.outputs] == (left or ["nn.relu", "tanh", "exp"])


def behind_exp(*others: Any) -> Any:
    """A leaky_relu that changes nothing, of an exp, with other calls of the exp that are returned, too."""

    def make(b: Builder) -> list[Node]:
        data = b.call("exp", b.input("x", 4))
        return [b.call("nn.leaky_relu", data, alpha=1.0), *[other(b, data) for other in others]]

    return make


SAME = Subst(op.LeakyReLU(x, alpha=1.0), x, name="same")
ONE = Subst([relu, tanh], [both := op.Exp(x), both], name="one")


@pytest.mark.parametrize(
    ("rule", "make", "with_what"),
    [
        (SAME, lambda b: b.call("nn.leaky_relu", b.input("x", 4), alpha=1.0), "%leaky_relu %x"),
        (SAME, lambda b: b.call("nn.leaky_relu", b.param("w", 4), alpha=1.0), "%leaky_relu %w"),
        (SAME, lambda b: b.call("tanh", b.call("nn.leaky_relu", b.input("x", 4), alpha=1.0)), None),
        (SAME, behind_exp(), None),
        (SAME, behind_exp(lambda b, data: b.call("tanh", data)), None),
        (SAME, behind_exp(lambda b, data: data), "%leaky_relu %exp"),
        (SAME, behind_exp(lambda b, data: b.call("reshape", data, newshape=(2, 2))), "%leaky_relu %exp"),
        (ONE, lambda b: fan(b)[:2], "%tanh %relu"),
        (ONE, lambda b: [(made := fan(b))[0], b.call("reshape", made[1], newshape=(2, 2))], "%tanh %relu"),
        (ONE, lambda b: [(made := fan(b))[0], b.call("sqrt", made[1])], None),
        (ONE, lambda b: [(made := fan(b))[1], b.call("sqrt", made[0])], None),
    ],
)
def test_outputs_of_which_memory_counts_get_no_memory_in_common(rule: Subst, make: Any, with_what: str | None) -> None:
    view = graph(make)
    view.shares = lambda node, operand: True
    _, trace = rewritten(rule, view, numbers=False)
    old, _, other = (with_what or "").partition(" ")
    text = f"{old} is returned, where it may be changed in place, so it must not share memory with {other}"
    assert reasons(trace) == ([text] if with_what else [])
    assert trace.count() == (0 if with_what else 1)


@pytest.mark.parametrize("shares", [True, False])
def test_an_output_may_share_what_it_shared_before(shares: bool) -> None:
    """Also where another output is new memory; what is known not to lie there was no view."""

    def make(b: Builder) -> list[Node]:
        data = b.input("x", 4)
        view = b.call("reshape", b.call("reshape", data, newshape=(2, 2)), newshape=(1, 4))
        return [view, b.call("tanh", data)]

    view = graph(make)
    view.shares = lambda node, operand: shares
    once = op.Reshape(x, newshape=(1, 4))
    rule = Subst([op.Reshape(op.Reshape(x), newshape=(1, 4)), tanh], [once, op.Sigmoid(x)], name="r")
    new, trace = rewritten(rule, view, numbers=False)
    assert ops(new) == (["reshape", "sigmoid"] if shares else ops(view))
    assert reasons(trace) == [
        "%reshape_1 is returned, where it may be changed in place, so it must not share memory with %x"
    ][: not shares]


def of_data(name: str, *more: Any, native: Any = None, **attrs: Any) -> Any:
    """A call of an input."""

    def make(b: Builder) -> Node:
        data = b.input("x", 4, 4)
        call = b.call(name, data, *[each(b) for each in more], **attrs)
        call.native = native
        return call

    return make


def places(b: Builder) -> Node:
    return b.input("at", 2, dtype="int64")


def untyped(b: Builder) -> Node:
    call = b.call("cast", b.input("x", 4), dtype="float16")
    call.operands[0].type = None
    return call


def of_list(number: int) -> Any:
    """An einsum of so many tensors."""
    return lambda b: b.call("einsum", b.tuple(*[b.input("x", 4)] * number), equation=",".join("i" * number) + "->i")


def of_unknown(b: Builder) -> Node:
    """An einsum of nobody knows how many tensors."""
    data = b.input("x", 4)
    return b._add(Node("einsum", (b.call(opaque_add_, data, data),), {"equation": "i->i"}))


@pytest.mark.parametrize(
    ("make", "may_be"),
    [
        (of_data("take", places, axis=0), False),
        (of_data("take", places, axis=0, native="a window"), True),
        (of_data("cast", dtype="float16"), False),
        (of_data("cast", dtype="float32"), True),
        (untyped, True),
        (of_list(2), False),
        (of_list(1), True),
        (of_unknown, True),
    ],
)
def test_a_call_is_new_memory_only_where_that_is_certain(make: Any, may_be: bool) -> None:
    assert may_be_view(graph(make).outputs[0]) is may_be


@pytest.mark.parametrize("output", [0, 1])
def test_a_result_does_not_become_what_is_written_to_an_input_at_the_end(output: int) -> None:
    """Who runs the program gets the input itself for it; neither may the input get what is returned."""

    def make(b: Builder) -> list[Node]:
        exp = b.call("exp", b.input("x", 4))
        return [exp, b.call("nn.leaky_relu", exp, alpha=1.0)]

    view = graph(make)
    view.written = {view.nodes[0]: output}
    _, trace = rewritten(SAME, view, numbers=False)
    assert reasons(trace) == [
        "one of %leaky_relu and %exp is written to an input at the end, and the other is returned"
    ]


@pytest.mark.parametrize("beside", [False, True])
def test_an_exchange_between_processes_is_replaced_and_none_is_passed(beside: bool) -> None:
    def make(b: Builder) -> list[Node]:
        data = b.input("x", 4)
        exchanged = b.call("tanh", data, effect=Effect.EXCHANGES)
        if beside:
            b.call("cos", data, effect=Effect.EXCHANGES)
        return [b.call("nn.relu", exchanged), b.call("exp", exchanged)]

    rule = Subst([op.ReLU(tanh), op.Exp(tanh)], [op.Sigmoid(x), op.Sqrt(x)], name="r")
    new, trace = rewritten(rule, graph(make), numbers=False)
    assert ops(new) == (["tanh", "cos", "nn.relu", "exp"] if beside else ["sigmoid", "sqrt"])
    assert reasons(trace) == [
        "%cos has an effect (exchanges) and stands between the matched nodes, which would be moved across it"
    ][: trace.count() == 0]


def test_an_exchange_below_a_match_stays_when_nothing_uses_it_any_more() -> None:
    view = graph(lambda b: b.call("subtract", got := b.call("tanh", b.input("x", 4), effect=Effect.EXCHANGES), got))
    rule = Subst(op.Subtract(x, x), op.Zeros(shape=(4,), dtype="float32"), name="zeros")
    assert ops(rewritten(rule, view, numbers=False)[0]) == ["tanh", "zeros"]


def test_an_exchange_that_a_rewrite_makes_is_one_from_then_on() -> None:
    """Also where the graph had none before."""
    view = graph(lambda b: b.call("subtract", got := b.call("tanh", b.input("x", 4)), got))
    view.exchanges = lambda op: op is exchanged
    makes = Subst(op.Tanh(x), pat.Call(exchanged, x), name="makes")
    drops = Subst(op.Subtract(x, x), op.Zeros(shape=(4,), dtype="float32"), where=lambda match: match[x].opaque)
    new, _ = rewritten(RuleSet([makes, drops]), view, numbers=False, iterative=True)
    assert ops(new) == [str(exchanged), "zeros"]


def test_an_exchange_that_nothing_uses_is_replaced_by_one() -> None:
    def make(b: Builder) -> Node:
        data = b.input("x", 4)
        b.call("tanh", data, effect=Effect.EXCHANGES)
        return b.call("exp", data)

    view = graph(make)
    view.exchanges = lambda op: op is exchanged
    new, _ = rewritten(Subst(op.Tanh(x), pat.Call(exchanged, x), name="r"), view, numbers=False)
    assert ops(new) == [str(exchanged), "exp"]


def test_a_new_exchange_has_its_place_in_the_same_round() -> None:
    """It stands where the call was that it replaces, also if its operands stand far above."""

    def make(b: Builder) -> list[Node]:
        first, second = b.input("x", 4), b.input("y", 4)
        relu, tanh = b.call("nn.relu", first), b.call("tanh", first)
        return [tanh, b.call("add", relu, b.call("tanh", second)), relu]

    view = graph(make)
    view.exchanges = lambda op: op is exchanged
    makes = Subst(op.Tanh(x), pat.Call(exchanged, x), name="makes", priority=1)
    relu = op.ReLU(x)
    across = Subst([relu, relu + y], [x * y, x - y], name="across")
    new, trace = rewritten(RuleSet([makes, across]), view, numbers=False)
    assert ops(new) == ["nn.relu", str(exchanged), str(exchanged), "add"]
    assert reasons(trace) == [
        "%exchanged has an effect (exchanges) and stands between the matched nodes, which would be moved across it"
    ]


def test_a_new_exchange_has_its_place_in_the_next_round(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also in rounds that look at a part of the graph, which may leave the nodes out of order."""
    monkeypatch.setattr(near, "LEAST", 0)
    monkeypatch.setattr(near, "SHARE", 2)

    def make(b: Builder) -> list[Node]:
        below = b.call("sqrt", b.call("erf", b.input("x", 4)))
        return [b.call("nn.relu", below), b.call("tanh", b.call("erf", b.input("y", 4))), b.call("exp", below)]

    view = graph(make)
    view.exchanges = lambda op: op is exchanged
    below = op.Rsqrt(x)
    rules = [
        Subst(op.Erf(x), op.Sin(x), name="first"),
        Subst(op.Tanh(op.Sin(x)), pat.Call(exchanged, x), name="makes"),
        Subst(op.Sqrt(op.Sin(x)), below, name="beside"),
        Subst([op.ReLU(below), op.Exp(below)], [op.Sigmoid(x), op.Abs(x)], name="across"),
    ]
    new, trace = rewritten(RuleSet(rules), view, numbers=False, iterative=True)
    assert ops(new) == ["rsqrt", "nn.relu", str(exchanged), "exp"]
    assert reasons(trace) == [
        "%exchanged has an effect (exchanges) and stands between the matched nodes, which would be moved across it"
    ]


def test_an_untyped_graph_warns_once() -> None:
    def make(b: Builder) -> Node:
        node = b.input("x", 4)
        node.type = None
        return b.call("tanh", b.call("nn.relu", node))

    with pytest.warns(UntypedWarning) as caught:
        new, _ = Subst(op.Tanh(op.ReLU(x)), op.Tanh(x)).apply(graph(make))
    assert len(caught) == 1
    assert ops(new) == ["tanh"]


U = unknown_size()


def test_what_stays_does_not_get_a_type_of_which_sizes_are_known() -> None:
    view = graph(lambda b: b.call("nn.relu", b.input("x", 4, 2)))
    view.nodes[0].type = TensorType((U, 2), "float32")
    new, trace = rewritten(Subst(op.ReLU(x), x, name="r"), view, numbers=False)
    assert ["but its replacement" in reason for reason in reasons(trace)] == [True]
    assert new.nodes[0].type == view.nodes[0].type != new.outputs[0].type


@pytest.mark.parametrize(
    ("found", "what"),
    [
        (TensorType((U, 2), "float32"), "shape"),
        (TensorType((U, U), "float32"), "shape"),
        (None, "type"),
        (TensorType((U, 3), "float32"), None),
        (TensorType((U,), "float32"), None),
        (TensorType((U, 2), "float16"), None),
        (TupleType((TensorType((U, 2), "float32"),)), None),
    ],
)
def test_a_size_that_is_not_known_is_told_and_all_else_is_compared(found: Any, what: str | None) -> None:
    view = graph(lambda b: b.call("nn.relu", b.input("x", 4, 2)))
    view.infer = lambda op, operands, attrs: found
    rule = Subst(op.ReLU(x), op.Sigmoid(x), name="r")
    if what is None:
        new, trace = rule.apply(view)
        assert "but its replacement" in reasons(trace)[0]
        assert ops(new) == ["nn.relu"]
        return
    with pytest.warns(UntypedWarning, match=f"the {what} of sigmoid does not follow from its operands, so it was not"):
        new, trace = rule.apply(view)
    assert ops(new) == ["sigmoid"]
    assert what == "type" or new.outputs[0].type == view.outputs[0].type


def test_an_output_that_stays_needs_no_type() -> None:
    def make(b: Builder) -> list[Node]:
        nodes = fan(b)[:2]
        nodes[0].type = None
        return nodes

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        new, trace = Subst([relu, tanh], [relu, op.Sigmoid(x)], name="r").apply(graph(make))
    assert trace.count() == 1
    assert [node.op for node in new.outputs] == ["nn.relu", "sigmoid"]


def test_a_dropped_attribute_warns_and_is_refused_where_it_matters() -> None:
    with pytest.warns(DroppedAttributeWarning, match=r"leaves 'alpha' of nn.leaky_relu free"):
        rule = Subst(op.Tanh(op.LeakyReLU(x)), op.LeakyReLU(op.Tanh(x)))
    view = graph(lambda b: b.call("tanh", b.call("nn.leaky_relu", b.input("x", 4), alpha=0.5)))
    assert "does not mention 'alpha'" in reasons(rewritten(rule, view)[1])[0]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        leaky = op.LeakyReLU(x)
        Subst(op.Tanh(leaky), leaky.like(op.Tanh(x)))


def test_a_dropped_attribute_is_looked_at_in_each_match() -> None:
    """What is known of the first new call does not hide that the second one would lose something."""
    with pytest.warns(DroppedAttributeWarning):
        rule = Subst(op.Tanh(op.LeakyReLU(x)), op.LeakyReLU(op.Tanh(x)))
    sides = [(f"x{number}", alpha) for number, alpha in enumerate((0.01, 0.5))]
    view = graph(lambda b: [b.call("tanh", b.call("nn.leaky_relu", b.input(n, 4), alpha=a)) for n, a in sides])
    new, trace = rewritten(rule, view, numbers=False)
    assert [node.op for node in new.outputs] == ["nn.leaky_relu", "tanh"]
    assert ["does not mention 'alpha'" in reason for reason in reasons(trace)] == [True]


def test_a_number_is_no_tensor_without_dimensions() -> None:
    c = pat.Const()
    literals = [np.array(2.0, np.float32), 2.0]
    view = graph(lambda b: [b.call("negative", b.const(literal)) for literal in literals])
    _, trace = rewritten(Subst(op.Negative(c), op.Exp(c), name="r"), view, numbers=False)
    assert [str(firing) for firing in trace.firings] == ["r: %negative -> %exp"]
    message = "the new exp takes a tensor, but got only numbers (2.0): a tensor is pat.Const(2.0, dtype=…)"
    assert reasons(trace) == [message]


def test_a_number_becomes_another_number() -> None:
    view = graph(lambda b: b.call("multiply", b.input("x", 4), 2.0))
    new, _ = rewritten(Subst(pat.Const(2.0), pat.Const(3.0), name="r"), view, numbers=False)
    assert ops(new) == ["multiply"]
    assert new.outputs[0].operands[1].attrs == {"value": 3.0}


# Failures are atomic.


def broken(match: Any) -> Any:
    raise KeyError("no such thing")


@pytest.mark.parametrize(
    ("make_rule", "text"),
    [
        pytest.param(lambda: Subst(op.ReLU(x), broken, name="bad"), "KeyError: 'no such thing'", id="target"),
        pytest.param(lambda: Subst(op.ReLU(x), x, where=broken, name="bad"), "where= failed", id="where"),
        pytest.param(
            lambda: Subst(op.ReLU(x), x, where=lambda m: 3, name="bad"), "returns True, False, or", id="verdict"
        ),
        pytest.param(
            lambda: Subst(op.ReLU(x), lambda m: [x, x], name="bad"), "2 nodes in the target for the 1", id="count"
        ),
        pytest.param(lambda: Subst(op.ReLU(x), lambda m: "relu", name="bad"), "returned 'relu' of type str", id="type"),
    ],
)
def test_an_exception_names_the_rule_and_leaves_the_graph(make_rule: Any, text: str) -> None:
    view = graph(lambda b: b.call("nn.relu", b.call("nn.relu", b.input("x", 4))))
    before = str(view)
    rule = make_rule()
    with pytest.raises(RewriteError, match=r"bad \(test_soundness\.py:\d+\)") as caught:
        rule(view)
    assert text in str(caught.value)
    assert str(view) == before


def test_a_condition_may_be_true_or_false_as_numpy_has_it() -> None:
    view = graph(lambda b: b.call("nn.relu", b.input("x", 4)))
    for verdict in (True, False):
        rule = Subst(op.ReLU(x), op.Exp(x), where=lambda match, verdict=verdict: np.all([verdict]))
        assert rule.apply(view)[1].count() == verdict


@pytest.mark.parametrize("calls", [1, 200])  # of 200, most are tried by the function that is printed
def test_a_condition_that_is_neither_true_nor_false_is_an_error(calls: int) -> None:
    leaky = op.LeakyReLU(x)
    rule = Subst(leaky, op.ReLU(x), where=(x.ndim == 2).max(leaky.alpha))
    view = graph(lambda b: [b.call("nn.leaky_relu", b.input(f"x{i}", 4), alpha=3.0) for i in range(calls)])
    with pytest.raises(RewriteError, match=r"^test_soundness\.py:\d+: where= takes what .* is 3.0 here"):
        rule(view)


@pytest.mark.parametrize("calls", [1, 200])
def test_a_condition_on_the_value_of_a_literal_tensor_does_not_hold(calls: int) -> None:
    c = pat.Const()
    rule = Subst(op.ReLU(x * c), op.ReLU(x) * c, where=c.value > 0)
    value = np.array([1.0, 2.0, 3.0, 4.0], np.float32)
    products = [lambda b, i=i: b.call("multiply", b.input(f"x{i}", 4), b.const(value)) for i in range(calls)]
    view = graph(lambda b: [b.call("nn.relu", product(b)) for product in products])
    assert rewritten(rule, view)[1].count() == 0


def test_a_reason_for_refusing_is_reported() -> None:
    view = graph(lambda b: b.call("nn.relu", b.input("x", 4)))
    _, trace = rewritten(Subst(op.ReLU(x), x, where=lambda m: "too small", name="r"), view)
    assert str(trace) == "r refused at %relu: too small"


# Uses from outside.


def forked(b: Builder) -> list[Node]:
    inner = b.call("nn.relu", b.input("x", 4))
    return [b.call("tanh", inner), b.call("exp", inner)]


@pytest.mark.parametrize(
    ("extern_use", "view", "fires", "reason"),
    [
        (None, graph(forked), True, None),
        (True, graph(forked), True, None),
        (False, graph(forked), False, "no user outside the match, found %exp"),
        (False, graph(lambda b: b.call("tanh", b.call("nn.relu", b.input("x", 4)))), True, None),
        (True, graph(lambda b: b.call("tanh", b.call("nn.relu", b.input("x", 4)))), False,
         "at %relu\n     use outside: "),
        (False, graph(lambda b: [n := b.call("nn.relu", b.input("x", 4)), b.call("tanh", n)]), False,
         "no user outside the match, found the graph's output"),
    ],
)  # fmt: skip
def test_uses_from_outside(extern_use: bool | None, view: Graph, fires: bool, reason: str | None) -> None:
    rule = Subst(op.Tanh(op.ReLU(x)), op.Maximum(op.Tanh(x), pat.Const(0.0)), extern_use=extern_use)
    _, trace = rewritten(rule, view)
    assert bool(trace.firings) is fires
    assert reason is None or reason in str(rule.explain(view))


def test_what_stays_alive_is_reported() -> None:
    rule = Subst(op.Tanh(op.ReLU(x)), op.Maximum(op.Tanh(x), pat.Const(0.0)), name="r")
    _, trace = rewritten(rule, graph(forked))
    assert str(trace) == "r: %tanh -> %maximum (kept, as used elsewhere: %relu)"
    relu = op.ReLU(x)
    _, trace = rewritten(Subst(op.Tanh(relu), op.Tanh(relu) * 1.0, name="r"), graph(forked))
    assert trace.firings[0].kept == ()


# Steps.


def test_a_fixed_point() -> None:
    def make(b: Builder) -> Node:
        node = b.input("x", 4)
        for _ in range(9):
            node = b.call("nn.relu", node)
        return node

    rule = Subst(op.ReLU(op.ReLU(x)), op.ReLU(x), name="twice")
    new, trace = rewritten(rule, graph(make), iterative=True)
    assert ops(new) == ["nn.relu"]
    assert trace.count("twice") == 8
    assert len(ops(rewritten(rule, graph(make))[0])) == 5

"""Outlining what a rule matched: the group's graph, its operands and outputs, and putting it back."""

from __future__ import annotations

import pytest
import torch

from gsl import RuleSet, Subst, op, pat
from gsl.errors import PatternError, PatternTypeError
from gsl.graph import TUPLE, Effect, Graph, Node
from gsl.graph.subgraph import Subgraph, call_type, inline
from tests.helpers.graphs import Builder, graph, run


def dense_relu(**attrs: object) -> Subst:
    x, w = pat.Wildcard(), pat.Wildcard()
    dense = op.Dense(x, w)
    return Subst(op.ReLU(dense), pat.Fused("dense-relu", units=dense.units, **attrs), name="fuse")


def layers(b: Builder) -> object:
    x = b.input("x", 2, 3)
    y = b.call("nn.relu", b.call("nn.dense", x, b.param("w", 4, 3)))
    return b.call("exp", b.call("nn.relu", b.call("nn.dense", y, b.param("v", 5, 4))))


def bodies(view: Graph) -> list[Graph]:
    return [node.op.body for node in view if isinstance(node.op, Subgraph)]


def expanded(view: Graph) -> Graph:
    return inline(view, [node for node in view if isinstance(node.op, Subgraph)])


def test_a_match_becomes_one_call() -> None:
    new, _ = dense_relu(priority=2).apply(graph(layers))
    assert str(new) == """\
%x: float32[2, 3] = input
%w: float32[4, 3] = param
%dense-relu: float32[2, 4] = dense-relu(%x, %w, units=4, priority=2)
%v: float32[5, 4] = param
%dense-relu_1: float32[2, 5] = dense-relu(%dense-relu, %v, units=5, priority=2)
%exp: float32[2, 5] = exp(%dense-relu_1)
return %exp"""
    assert str(bodies(new)[0]) == """\
%x: float32[2, 3] = input
%w: float32[4, 3] = input
%dense: float32[2, 4] = nn.dense(%x, %w, out_dtype='', units=4)
%relu: float32[2, 4] = nn.relu(%dense)
return %relu"""


def test_what_is_put_back_computes_the_same() -> None:
    before = graph(layers)
    new, _ = dense_relu().apply(before)
    assert str(expanded(new)) == str(before)
    inputs = {"x": torch.randn(2, 3)}
    assert torch.equal(run(before, inputs)[0], run(expanded(new), inputs)[0])


def test_iteration_ends_and_groups_are_not_shared() -> None:
    def twice(b: Builder) -> object:
        x, w = b.input("x", 2, 3), b.param("w", 4, 3)
        return [b.call("nn.relu", b.call("nn.dense", x, w)) for _ in range(2)]

    new, trace = dense_relu().apply(graph(twice), iterative=True)
    assert trace.summary() == {"fuse": 2}
    assert len(bodies(new)) == 2


def test_several_outputs() -> None:
    x, w, v = pat.Wildcard(), pat.Wildcard(), pat.Wildcard()
    left, right = op.ReLU(op.Dense(x, w)), op.Tanh(op.Dense(x, v))
    pair = Subst([left, right], pat.Fused("pair"), name="pair")

    def view(b: Builder) -> object:
        x = b.input("x", 2, 3)
        y = b.call("nn.relu", b.call("nn.dense", x, b.param("w", 4, 3)))
        z = b.call("tanh", b.call("nn.dense", x, b.param("v", 4, 3)))
        return b.call("add", z, b.call("exp", y))

    before = graph(view)
    new, _ = pair.apply(before)
    assert [str(line) for line in str(new).splitlines()[3:]] == [
        "%pair: (float32[2, 4], float32[2, 4]) = pair(%x, %w, %v)",
        "%exp: float32[2, 4] = exp(%pair[0])",
        "%add: float32[2, 4] = add(%pair[1], %exp)",
        "return %add",
    ]
    inputs = {"x": torch.randn(2, 3)}
    assert torch.equal(run(before, inputs)[0], run(expanded(new), inputs)[0])


def test_a_variadic_is_one_group() -> None:
    x, w = pat.Wildcard(), pat.Param()
    y = op.Dense(x, w)
    rule = Subst(pat.Variadic(y, templates=[w, y], min_len=2), pat.Fused("parallel"), name="parallel")

    def view(b: Builder) -> object:
        x = b.input("x", 2, 3)
        return [b.call("nn.dense", x, b.param(f"w{i}", i + 1, 3)) for i in range(3)]

    new, _ = rule.apply(graph(view))
    (body,) = bodies(new)
    assert [output.shape for output in body.outputs] == [(2, 1), (2, 2), (2, 3)]
    assert sorted(str(expanded(new)).splitlines()) == sorted(str(graph(view)).splitlines())


def test_numbers_and_tuples_belong_to_the_group() -> None:
    x, y = pat.Wildcard(), pat.Wildcard()
    rule = Subst(op.Concatenate([x * 2.0, y], axis=1), pat.Fused("scaled-concat"), name="cat")

    def view(b: Builder) -> object:
        x, y = b.input("x", 2, 3), b.input("y", 2, 3)
        return b.call("concatenate", b.tuple(b.call("multiply", x, 2.0), y), axis=1)

    new, _ = rule.apply(graph(view))
    assert str(bodies(new)[0]) == """\
%x: float32[2, 3] = input
%y: float32[2, 3] = input
%multiply: float32[2, 3] = multiply(%x, 2.0)
%concatenate: float32[2, 6] = concatenate((%multiply, %y), axis=1)
return %concatenate"""


def test_a_node_used_elsewhere_stays_beside_the_group() -> None:
    def view(b: Builder) -> object:
        dense = b.call("nn.dense", b.input("x", 2, 3), b.param("w", 4, 3))
        return [b.call("nn.relu", dense), dense]

    new, trace = dense_relu().apply(graph(view))
    assert [str(firing) for firing in trace.firings] == [
        "fuse: %relu -> %dense-relu (kept, as used elsewhere: %dense)"
    ]
    assert "nn.dense(" in str(new)


def test_groups_that_would_close_a_cycle_are_refused() -> None:
    x, y = pat.Wildcard(), pat.Wildcard()
    first = op.ReLU(x)
    rule = Subst([first, op.Add(first, y)], pat.Fused("around"), name="around")

    def view(b: Builder) -> object:
        relu = b.call("nn.relu", b.input("x", 2, 3))
        return b.call("add", relu, b.call("exp", relu))

    new, trace = rule.apply(graph(view))
    assert not bodies(new)
    assert "cycle" in str(trace.refused[0])


def test_effects_are_not_outlined() -> None:
    x = pat.Wildcard()

    def noisy(x: torch.Tensor) -> torch.Tensor:
        return x + torch.rand_like(x)

    rule = Subst(op.ReLU(pat.Call(noisy, x)), pat.Fused("noisy"))

    def view(b: Builder) -> object:
        return b.call("nn.relu", b.call(noisy, b.input("x", 2, 3), effect=Effect.RANDOM))

    new, trace = rule.apply(graph(view))
    assert not bodies(new)
    assert "effect" in str(trace.refused[0])


def test_a_leaf_is_no_output_of_a_group() -> None:
    x = pat.Wildcard()
    rule = Subst([x, op.ReLU(x)], pat.Fused("both"), name="fuse")
    view = graph(lambda b: b.call("nn.relu", b.call("exp", b.input("x", 4))))
    new, trace = rule.apply(view)
    assert [refused.reason for refused in trace.refused] == [
        "%exp is an output of the rule, but nothing that it computes"
    ]
    assert str(new) == str(view)


def test_outlining_takes_part_in_a_rule_set() -> None:
    x, w, b = pat.Wildcard(), pat.Wildcard(), pat.Wildcard()
    biased = Subst(op.ReLU(op.BiasAdd(op.Dense(x, w), b)), pat.Fused("biased"), name="biased", priority=1)
    rules = RuleSet([dense_relu(), biased])

    def view(b: Builder) -> object:
        x = b.input("x", 2, 3)
        y = b.call("nn.relu", b.call("nn.bias_add", b.call("nn.dense", x, b.param("w", 3, 3)), b.param("b", 3)))
        return b.call("nn.relu", b.call("nn.dense", y, b.param("v", 3, 3)))

    new, _ = rules.apply(graph(view), iterative=True)
    assert [str(node.op) for node in new if isinstance(node.op, Subgraph)] == ["biased", "dense-relu"]


@pytest.mark.parametrize(
    ("make", "error", "text"),
    [
        (lambda: pat.Fused(op.ReLU), PatternTypeError, "takes the name of the group first"),
        (lambda: Subst(pat.Fused("f"), pat.Wildcard()), PatternError, "belongs in a target"),
        (
            lambda: Subst(op.ReLU(op.Exp(pat.Wildcard())), op.ReLU(pat.Fused("f"))),
            PatternError,
            "stands for all outputs of the rule, so it is the whole target",
        ),
    ],
)
def test_where_a_group_may_stand(make: object, error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text):
        make()  # type: ignore[operator]


def two_results(b: Builder) -> object:
    x = b.input("x", 2, 3)
    return [b.call("exp", x), b.call("nn.relu", x)]


def call_of_pair(b: Builder, x: Node) -> Node:
    group = Subgraph("pair", graph(two_results))
    return b._add(Node(group, (x,), {}, call_type(group.body), name="pair"))


@pytest.mark.parametrize("is_output", [False, True])
def test_a_group_whose_whole_tuple_is_used_becomes_a_tuple(is_output: bool) -> None:
    def calls(b: Builder) -> object:
        call = call_of_pair(b, b.input("x", 2, 3))
        first = b.get(call, 0)
        return [first, call if is_output else b.call("concatenate", call, axis=1)]

    after = expanded(graph(calls))
    assert not bodies(after)
    (whole,) = [node for node in after if node.op == TUPLE]
    assert [node.op for node in whole.operands] == ["exp", "nn.relu"]
    assert after.outputs[0] is whole.operands[0]
    assert (after.outputs[1] if is_output else after.outputs[1].operands[0]) is whole


def test_a_group_that_nothing_uses_is_put_back() -> None:
    def calls(b: Builder) -> object:
        x = b.input("x", 2, 3)
        call_of_pair(b, x)
        return b.call("tanh", x)

    before = graph(calls)
    assert bodies(before)
    assert not bodies(expanded(before))

"""Folding: what depends on weights only is computed ahead, and only that."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from weakref import WeakSet

import pytest
import torch

from gsl import Subst, op, pat
from gsl.graph import PARAM, Effect, Graph, Node
from gsl.rewrite.apply import apply, repeat
from gsl.rewrite.fold import fold
from gsl.spec import TABLE
from gsl.spec.meaning import evaluate as meaning
from tests.helpers.graphs import Builder, graph
from tests.rewrite.checks import faults, ops, random_inputs, rewritten, same_numbers

x, w, v = pat.Wildcard(), pat.Wildcard(), pat.Wildcard()
evaluated: list[str] = []


def evaluate(node: Node, operands: Sequence[Any]) -> Any:
    assert isinstance(node.op, str)
    evaluated.append(node.op)
    return meaning(TABLE[node.op], operands, node.attrs)


def folded(rule: Subst, view: Graph) -> tuple[Graph, int]:
    new, _ = rewritten(rule, view)
    evaluated.clear()
    number = fold(new, evaluate)
    assert faults(new) == []
    assert same_numbers(view, new)
    return new, number


def two_dense(b: Builder) -> Node:
    data, first, second = b.input("x", 2, 3), b.param("w", 3, 3), b.param("v", 3, 3)
    return b.call("add", b.call("nn.dense", data, first), b.call("nn.dense", data, second))


def test_new_calls_on_weights_become_one_weight() -> None:
    view = graph(two_dense)
    both = w + v
    rule = Subst(op.Dense(x, w) + op.Dense(x, v), op.Dense(x, op.ReLU(both) - op.ReLU(-both)))
    new, number = folded(rule, view)
    assert ops(new) == ["nn.dense"]
    assert number == 5
    assert sorted(evaluated) == ["add", "negative", "nn.relu", "nn.relu", "subtract"]
    (weight,) = [node for node in new if node.op == PARAM]
    assert weight.name == "w_subtract"
    values = [node.attrs["value"] for node in view if node.op == PARAM]
    torch.testing.assert_close(weight.attrs["value"], values[0] + values[1])


def test_weights_are_not_changed_and_stay_where_they_are_used() -> None:
    def make(b: Builder) -> list[Node]:
        return [two_dense(b), b.call("nn.relu", b.nodes[1])]

    view = graph(make)
    before = {node.name: node.attrs["value"].clone() for node in view if node.op == PARAM}
    new, _ = folded(Subst(op.Dense(x, w) + op.Dense(x, v), op.Dense(x, w + v)), view)
    assert [node.name for node in new if node.op == PARAM] == ["w", "w_add"]
    for node in view:
        if node.op == PARAM:
            torch.testing.assert_close(node.attrs["value"], before[node.name], rtol=0, atol=0)


def test_what_a_rewrite_did_not_make_stays() -> None:
    view = graph(lambda b: b.call("nn.relu", b.call("tanh", b.param("w", 3))))
    new, number = folded(Subst(op.ReLU(x), op.Maximum(x, pat.Const(0.0))), view)
    assert number == 0
    assert ops(new) == ["tanh", "maximum"]
    assert evaluated == []


def test_the_fields_of_a_split_weight() -> None:
    def make(b: Builder) -> Node:
        return b.call("nn.dense", b.input("x", 2, 4), b.param("w", 6, 4))

    halves = op.Split(w, indices_or_sections=2, axis=0)
    target = op.Concatenate(pat.Tuple(op.Dense(x, halves[0]), op.Dense(x, halves[1])), axis=-1)
    new, _ = folded(Subst(op.Dense(x, w), target), graph(make))
    assert ops(new) == ["nn.dense", "nn.dense", "tuple", "concatenate"]


def test_a_tuple_of_weights_whose_user_stays() -> None:
    def make(b: Builder) -> Node:
        return b.call("subtract", b.param("w", 2), b.input("x", 2))

    parts = pat.Tuple(-w, x)
    new, _ = folded(Subst(w - x, op.Sum(op.Stack(parts, axis=0), axis=0) * -1.0), graph(make))
    assert ops(new) == ["tuple", "stack", "sum", "multiply"]


def test_an_output_that_is_known() -> None:
    view = graph(lambda b: b.call("nn.relu", b.param("w", 3)))
    new, number = folded(Subst(op.ReLU(x), op.Maximum(x, pat.Const(0.0))), view)
    assert number == 1
    assert new.outputs[0].op == PARAM


def test_literals_alone_are_not_folded() -> None:
    view = graph(lambda b: b.call("nn.relu", b.input("x", 3)))
    new, number = folded(Subst(op.ReLU(x), op.Maximum(x, op.Zeros(shape=(3,), dtype="float32"))), view)
    assert number == 0
    assert ops(new) == ["zeros", "maximum"]


def test_a_weight_that_the_program_changes_is_not_known() -> None:
    def make(b: Builder) -> list[Node]:
        weight = b.param("w", 3)
        view = b.call("reshape", weight, newshape=(3,))
        changed = b.call(torch.relu_, view, effect=Effect.MUTATES)
        return [changed, b.call("tanh", b.call("nn.relu", weight))]

    new, trace = rewritten(Subst(op.Tanh(op.ReLU(x)), op.ReLU(op.Tanh(x))), graph(make), numbers=False)
    assert trace.count() == 1
    assert fold(new, evaluate) == 0


def test_deep_and_shared_weights_take_linear_time() -> None:
    shared = w
    for _ in range(60):
        shared = shared + shared * 0.0
    view = graph(lambda b: b.call("nn.dense", b.input("x", 2, 3), b.param("w", 3, 3)))
    new, number = folded(Subst(op.Dense(x, w), op.Dense(x, shared)), view)
    assert number == 120
    assert len(evaluated) == 120
    assert random_inputs(new).keys() == {"x"}


def test_what_is_not_needed_any_more_is_let_go() -> None:
    """Ten weights are computed in three steps each: no more values are there at once than the results and one step."""

    class Value:
        shape, dtype = (3,), "float32"

    def make(b: Builder) -> list[Node]:
        return [b.call("add", b.input(f"x{n}", 3), b.call("exp", b.param(f"w{n}", 3))) for n in range(10)]

    new, _ = rewritten(Subst(op.Exp(w), op.Exp(op.Tanh(op.Abs(op.Exp(w))))), graph(make), numbers=False)
    alive = WeakSet[Value]()
    most = []

    def noted(node: Node, operands: Sequence[Any]) -> Value:
        value = Value()
        alive.add(value)
        most.append(len(alive))
        return value

    assert fold(new, noted) == 40
    assert len(alive) == 10
    assert most[-1] == 11
    assert max(most) <= 11


@pytest.mark.parametrize(
    ("when", "steps", "folded"),
    [
        ("never", None, 0),
        ("in each round", None, 2),
        ("in each round", 1, 1),
        ("at the end", None, 2),
        ("at the end", 2, 2),
        ("at the end", 1, 0),
        ("at the end", 0, 0),
    ],
)
def test_a_repeated_trace_folds_where_it_did(when: str, steps: int | None, folded: int) -> None:
    """A search folds when it has decided, and not in its rounds."""
    sides = [("x", "w", "v"), ("y", "a", "b")]
    view = graph(lambda b: [
        b.call("add", *[b.call("nn.dense", data, b.param(name, 3, 3)) for name in names])
        for data, names in [(b.input(data, 2, 3), names) for data, *names in sides]
    ])  # fmt: skip
    rule = Subst(op.Dense(x, w) + op.Dense(x, v), op.Dense(x, w + v), name="sum")
    new, trace = apply([rule], view, evaluate=evaluate if when == "in each round" else None)
    if when == "at the end":
        trace.folded += fold(new, evaluate)
    again, done = repeat(trace, view, steps, evaluate)
    assert (done.count(), done.folded) == (2 if steps is None else steps, folded)
    assert same_numbers(view, again)
    if steps is None:
        assert (ops(again), done.folded) == (ops(new), trace.folded)


def test_equal_calls_on_one_weight_become_one_weight() -> None:
    def tied(b: Builder) -> list[Node]:
        data, weight, other = b.input("x", 3, 3), b.param("w", 3, 3), b.param("v", 3, 3)
        first = b.call("nn.dense", data, weight)
        return [first, b.call("nn.dense", b.call("nn.relu", first), weight), b.call("nn.dense", data, other)]

    view = graph(tied)
    weight = pat.Param()
    new, number = folded(Subst(op.Dense(x, weight), op.Dense(x, op.ReLU(weight) - op.ReLU(-weight))), view)
    assert number == 12
    assert sorted(evaluated) == sorted(2 * ["negative", "nn.relu", "nn.relu", "subtract"])
    assert [node.name for node in new if node.op == PARAM] == ["w_subtract", "v_subtract"]

"""Applying a rule to a view made by hand, and checking that the view still computes the same."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from gsl import Subst
from gsl.graph import INPUT, Graph, Node, TensorType
from tests.helpers import tensors
from tests.helpers.graphs import Builder, graph, run

Make = Callable[[Builder], Node | Sequence[Node]]


def inputs_of(view: Graph) -> dict[str, Any]:
    """Random tensors for the inputs of a view."""
    values = {}
    for node in view.nodes:
        if node.op == INPUT:
            assert isinstance(node.type, TensorType)
            values[node.name] = tensors.random(node.type.shape, node.type.dtype, len(values))  # type: ignore[arg-type]
    return values


def fire(rule: Subst, make: Make, *, times: int, same: bool = True, iterative: bool = False) -> Graph:
    """The view after a rule that fires so often, and (if ``same``) computes what it did before."""
    view = graph(make)
    before = str(view)
    new, trace = rule.apply(view, iterative=iterative)
    assert trace.count() == times, f"{trace}\n{before}"
    assert str(view) == before, "the view that was handed in has changed"
    if same:
        inputs = inputs_of(view)
        for old_value, new_value in zip(flat(run(view, inputs)), flat(run(new, inputs)), strict=True):
            assert tensors.is_close(new_value, old_value), (new_value, old_value)
    return new


def flat(values: Any) -> list[Any]:
    """The tensors and numbers in nested tuples and lists."""
    if isinstance(values, (list, tuple)):
        return [tensor for value in values for tensor in flat(value)]
    return [values]


def ops(view: Graph) -> list[str]:
    """The operators of the calls of a view, in order."""
    kinds = ("input", "param", "const", "tuple", "getitem")
    return [str(node.op) for node in view.nodes if node.op not in kinds]

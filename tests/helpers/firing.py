"""Applying a rule to a view made by hand, and checking that the view still computes the same."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from gsl import Subst
from gsl.graph import INPUT, Graph, Node, TensorType
from tests.helpers.graphs import Builder, graph, run

Make = Callable[[Builder], Node | Sequence[Node]]


def inputs_of(view: Graph, seed: int = 0) -> dict[str, Any]:
    """Random tensors for the inputs of a view."""
    generator = torch.Generator().manual_seed(seed)
    values = {}
    for node in view.nodes:
        if node.op == INPUT:
            assert isinstance(node.type, TensorType)
            value = torch.randn(*node.type.shape, generator=generator) * 3
            values[node.name] = value.to(getattr(torch, node.type.dtype))
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
            assert old_value.dtype == new_value.dtype
            torch.testing.assert_close(new_value, old_value, rtol=1e-4, atol=1e-4)
    return new


def flat(values: Any) -> list[torch.Tensor]:
    """The tensors in nested tuples and lists."""
    if isinstance(values, (list, tuple)):
        return [tensor for value in values for tensor in flat(value)]
    return [torch.as_tensor(values)]


def ops(view: Graph) -> list[str]:
    """The operators of the calls of a view, in order."""
    kinds = ("input", "param", "const", "tuple", "getitem")
    return [str(node.op) for node in view.nodes if node.op not in kinds]

"""Pairs of small views, and views of one call, for the tests of the models."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from gsl.graph import Graph, Node
from tests.helpers.examples import ExampleCall
from tests.helpers.graphs import Builder, graph

Make = Callable[..., Node | Sequence[Node]]
"""Makes the outputs of a view from its leaves: ``make(call, *leaves)``."""


def view(leaves: str, make: Make) -> Graph:
    """The view of a function of leaves, which are written as ``"x 2 3, i 4 int64"``: name, sizes, dtype."""

    def build(b: Builder) -> Node | Sequence[Node]:
        nodes = []
        for leaf in leaves.split(", "):
            name, *words = leaf.split()
            dtype = words.pop() if words and not words[-1].isdigit() else "float32"
            nodes.append(b.input(name, *map(int, words), dtype=dtype))
        return make(Call(b), *nodes)

    return graph(build)


class Call:
    """Calls by the name of the operator: ``o.nn_relu(x)``, and tuples: ``o.tuple(x, y)``."""

    def __init__(self, builder: Builder) -> None:
        self.builder = builder

    def __getattr__(self, name: str) -> Callable[..., Node]:
        if name in ("tuple", "get", "const"):
            return getattr(self.builder, name)  # type: ignore[no-any-return]
        op = "nn." + name.removeprefix("nn_") if name.startswith("nn_") else name
        return lambda *operands, **attrs: self.builder.call(op, *operands, **attrs)


def of_call(call: ExampleCall) -> Graph:
    """The view of one call with operands of the types of an example."""

    def build(b: Builder) -> Node:
        def leaf(operand: Any) -> Node:
            if isinstance(operand, tuple):
                return b.tuple(*map(leaf, operand))
            if isinstance(operand, torch.Tensor):
                return b.input("x", *operand.shape, dtype=str(operand.dtype).removeprefix("torch."))
            return b.const(operand)

        return b.call(call.op, *map(leaf, call.operands), **call.attrs)

    return graph(build)

"""Views made by hand, in which every operator gives a tensor of one shape."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gsl.front.fx.infer import infer
from gsl.graph import INPUT, Graph, Node, Op, TensorType

TYPE = TensorType((4,), "float32")


class ViewBuilder:
    """Writes a view node by node; new calls of a rewrite get the types that torch gives them."""

    def __init__(self) -> None:
        self.nodes: list[Node] = []

    def input(self, name: str) -> Node:
        """A new input."""
        self.nodes.append(Node(INPUT, (), {}, TYPE, name=name))
        return self.nodes[-1]

    def call(self, op: Op, *operands: Node, attrs: Mapping[str, Any] | None = None) -> Node:
        """A new call."""
        self.nodes.append(Node(op, operands, attrs or {}, TYPE, name=f"n{len(self.nodes)}"))
        return self.nodes[-1]

    def graph(self, *outputs: Node) -> Graph:
        """The view with these outputs."""
        return Graph(self.nodes, outputs, infer)

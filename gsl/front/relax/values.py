"""The expressions of view nodes in Relax: variables, constants, and tuples of those."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tvm import relax

from gsl.front.core.store import Storer
from gsl.graph import Graph, Node


class RelaxValues(Storer):
    """The expressions of the nodes of a view; ``weight`` gives that of a weight or a literal tensor."""

    framework = "Relax"

    def __init__(self, graph: Graph, weight: Callable[[Node], Any]) -> None:
        super().__init__(graph)
        self._weight = weight

    def weight(self, node: Node) -> Any:
        return self._weight(node)

    def number(self, node: Node) -> Any:
        return relax.const(node.attrs["value"], node.dtype)

    def tuple_of(self, node: Node, items: list[Any]) -> Any:
        return relax.Tuple(items)

    def fields_of(self, value: Any) -> Sequence[Any] | None:
        return value.fields if isinstance(value, relax.Tuple) else None

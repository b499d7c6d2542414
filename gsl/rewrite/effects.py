"""The tensors that calls with effects may change in place."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from gsl.graph import GETITEM, TUPLE, Effect, Graph, Node
from gsl.spec import TABLE, Trait

_SOMETIMES_VIEWS: Final = frozenset(
    (TUPLE, GETITEM, "broadcast_to", "cast", "nn.dropout", "split", "strided_slice", "take")
)
"""The operators whose result may share the memory of an operand, besides operators that only move elements."""


STEADY: Final = (Effect.RANDOM, Effect.OBSERVES)
"""The effects that change no tensor."""


def may_be_view(node: Node) -> bool:
    """True if the value may be, or hold, the memory of an operand."""
    spec = TABLE.get(node.op) if isinstance(node.op, str) else None
    return node.op in _SOMETIMES_VIEWS or node.opaque or (spec is not None and Trait.LAYOUT in spec.traits)


def seen_through(nodes: Iterable[Node]) -> dict[Node, None]:
    """The nodes, and those whose memory they may share because they are views of it."""
    found: dict[Node, None] = {}
    work = list(nodes)
    while work:
        node = work.pop()
        if node not in found:
            found[node] = None
            if may_be_view(node):
                work.extend(node.operands)
    return found


def changed(graph: Graph) -> dict[Node, int]:
    """The nodes whose memory may be changed, each with the place of the last call that may do so."""
    last: dict[Node, int] = {}
    for node in graph.nodes:
        if node.effect not in (None, *STEADY):
            last.update(dict.fromkeys(seen_through(node.operands), node.index))
    return last

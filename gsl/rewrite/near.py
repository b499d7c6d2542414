"""The part of a graph near to what the last round changed: what matches anew is there, nearly always."""

from __future__ import annotations

from collections.abc import Iterable
from operator import attrgetter
from typing import Final

from gsl.graph import Graph, Node
from gsl.match import Plan

LEAST: Final = 1000
"""The number of nodes from which on a round may look at a part of a graph."""
FARTHEST: Final = 8
"""The largest number of steps from what was changed."""
CROWD: Final = 16
"""The number of users of a node from which on none of them is near because another one is."""
SHARE: Final = 3
"""A part that is larger than the whole, divided by this, is none."""


def near_to(graph: Graph, touched: Iterable[Node], plans: Iterable[Plan]) -> list[Node] | None:
    """The nodes that may be part of a match together with one that was touched, in graph order.

    ``None`` where these are too many. A match that reaches further, or whose conditions read what is far away, is not
    among them, so a last round has to look at all nodes.
    """
    if len(graph) < LEAST:
        return None
    nodes = graph.nodes
    there = [node for node in touched if 0 <= node.index < len(nodes) and nodes[node.index] is node]
    found = dict.fromkeys(there)
    border = there
    for _ in range(min(FARTHEST, max((plan.reach for plan in plans), default=0))):
        if len(found) > len(nodes) // SHARE:
            return None
        border = _beyond(border, found)
    return sorted(found, key=attrgetter("index"))


def _beyond(border: Iterable[Node], found: dict[Node, None]) -> list[Node]:
    """Add the neighbours of some nodes to those that are found; the new ones."""
    new = []
    for node in border:
        for other in (*node.operands, *(node.users if len(node.users) < CROWD else ())):
            if other not in found:
                found[other] = None
                new.append(other)
    return new

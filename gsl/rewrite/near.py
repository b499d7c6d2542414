"""The part of a graph near to what the last round changed: what matches anew is there, nearly always."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Final

from gsl.graph import CONST, GETITEM, PARAM, TUPLE, Effect, Graph, Node
from gsl.match import Plan
from gsl.rewrite.fold import is_foldable

LEAST: Final = 1000
"""The number of nodes from which on a round may look at a part of a graph."""
FARTHEST: Final = 8
"""The largest number of steps from what was changed."""
CROWD: Final = 16
"""The number of users of a node from which on none of them is near because another one is."""
SHARE: Final = 0.75
"""A part that is larger than this share of the whole is none."""


@dataclass(frozen=True, slots=True)
class Near:
    """The nodes at which a round looks, each list in graph order."""

    roots: Sequence[list[Node]]
    """What was changed, and for each further number of steps what is at most so many users above it."""
    around: list[Node]
    """The nodes of all matches, where rules do not start from the root of theirs; else those of the last list."""

    def of(self, plan: Plan) -> list[Node]:
        """The nodes at which a search for a rule starts: at the root of a match, or anywhere in it."""
        return self.around if plan.root is None else self.roots[min(plan.height, len(self.roots)) - 1]

    def __len__(self) -> int:
        return len(self.around)


_AHEAD: Final = frozenset((PARAM, CONST, GETITEM))
"""The operators of nodes that may be known before the program runs."""
NOWHERE: Final = Near(([],), [])
"""The nodes at which a round looks whose matches are known."""


def near_to(graph: Graph, touched: Iterable[Node], plans: Iterable[Plan]) -> Near | None:
    """The nodes that may be part of a match together with one that was touched.

    ``None`` where these are too many. A match that reaches further, or whose conditions read what is far away, is not
    among them, so a last round has to look at all nodes.
    """
    if len(graph) < LEAST:
        return None
    plans = list(plans)
    highest, wide = max([plan.height for plan in plans], default=1), any(plan.root is None for plan in plans)
    steps = min(highest - 1, FARTHEST)
    found = dict.fromkeys(touched)
    roots = [_in_order(found)]
    # From any node of a match up to its root, and down to the others; where there are several roots, once more.
    ways = [*[_users] * steps, *([*[_operands] * steps, *[_users] * steps, *[_operands] * steps] if wide else ())]
    for number, way in enumerate(ways):
        if len(found) > SHARE * len(graph):
            return None
        found.update(dict.fromkeys(way(found)))
        if number < steps:
            roots.append(_in_order(found))
    return Near(roots, roots[-1] if len(ways) == steps else _in_order(found))


def _in_order(nodes: Iterable[Node]) -> list[Node]:
    return sorted(nodes, key=attrgetter("index"))


def _users(nodes: Iterable[Node]) -> list[Node]:
    return [user for node in nodes if len(node.users) < CROWD for user in node.users]


def _operands(nodes: Iterable[Node]) -> list[Node]:
    return [operand for node in nodes for operand in node.operands]


def needs_order(touched: Iterable[Node]) -> bool:
    """True if among what was touched there is what needs its place among others, exchanges between processes, or what
    the tidying of a whole graph alone takes care of: fields of tuples that are known, and calls that depend on weights
    only."""
    touched = list(touched)
    if any(node.effect is Effect.EXCHANGES for node in touched):
        return True
    if {node.op for node in touched}.union([part.op for node in touched for part in node.operands]).isdisjoint(_AHEAD):
        return False
    ahead: dict[Node, bool] = {}  # whether they depend on a tensor
    for node in _in_order(touched):
        if node.op == GETITEM and node.operands[0].op == TUPLE:
            return True
        operands = [_is_ahead(operand, ahead) for operand in node.operands]
        if operands and None not in operands and is_foldable(node):
            ahead[node] = any(operands)
    return any(ahead.values())


def _is_ahead(node: Node, ahead: Mapping[Node, bool]) -> bool | None:
    if node.op == PARAM:
        return True
    return hasattr(node.attrs["value"], "shape") if node.op == CONST else ahead.get(node)

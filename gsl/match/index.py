"""The nodes of a graph at which the rules of a set may match: one look at each node, however many rules there are.

A search starts from the rarest operator of its rule. Where several rules start from one operator, a second operator,
right below or above it, tells most of them apart: with the operator of a neighbour a node is looked up in a table,
which tells the rules for which both are what they want. A third operator tells the rest apart in the same way.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from operator import attrgetter

from gsl.graph import Node, Op
from gsl.match.plan import USER, Candidates, Hint, Plan, SameNode

SEVERAL = 4
"""The number of rules from which on a table is made."""
SOME = 500
"""The number of nodes, or a few more, that are looked up by all hints while they are in the cache of the processor."""


def candidates(
    plans: Iterable[Plan], by_op: Mapping[Op, list[Node]], *, near: bool = False, at_roots: bool = False
) -> list[Candidates]:
    """The start of each plan with the fewest nodes, and the nodes; the root of each, where the nodes are such.

    Nodes are looked up in a table where there are several rules with hints, or where two nodes have to be one, which is
    seen sooner here than by a search. With ``near``, these are some of the nodes of a graph, to which others may be
    added; otherwise nothing is made ready for a plan of which the graph lacks an operator.
    """
    groups: dict[frozenset[Op], list[Node]] = {}
    found: list[Candidates] = []
    for plan in plans:
        lacks = not at_roots and plan.lacks(by_op)
        if lacks and not near:
            found.append(plan.nowhere())
            continue
        start, ops = plan.from_root(by_op) if at_roots else plan.rarest(by_op)
        found.append(Candidates(start, [] if lacks else plan.in_order(start.anchor, ops, by_op, groups), ops))
    several = sum(bool(each.nodes and each.start.hints) for each in found) >= SEVERAL
    for each in found:
        if each.ops is not None and not (each.start.hints if several else each.start.asks_for_same):
            each.ops = None
    looked_up = [each for each in found if each.ops is not None and each.nodes]
    for each, parts in zip(looked_up, _look_up(looked_up, by_op)):
        each.nodes = _merged(parts)
    return found


def add_candidates(found: Iterable[Candidates], by_op: Mapping[Op, list[Node]]) -> None:
    """Note nodes that were moved as candidates of the rules that were looked up in a table."""
    looked_up = [each for each in found if each.ops is not None]
    for each, parts in zip(looked_up, _look_up(looked_up, by_op)):
        each.late += chain.from_iterable(parts)


@dataclass(frozen=True, slots=True)
class _Row:
    """The hints of a rule, or of one of its choices, and the nodes that a table has for the rule."""

    hints: tuple[Hint | SameNode, ...]
    parts: list[list[Node]]
    """Nodes in graph order; those of other operators, at a node or near to it, and further ones are in other lists."""


def _look_up(found: Sequence[Candidates], by_op: Mapping[Op, list[Node]]) -> list[list[list[Node]]]:
    """For each rule, the nodes of its operators for which its hints hold, in several lists."""
    parts: list[list[list[Node]]] = [[] for _ in found]
    groups: dict[Op, list[_Row]] = {}
    for each, part in zip(found, parts):
        for pattern, hints in each.start.hints.items():
            row = _Row(hints, part)
            for op in each.start.matchers[pattern].ops or each.ops or ():
                groups.setdefault(op, []).append(row)
    for op, group in groups.items():
        for some in _some_of(by_op.get(op, [])):
            _sort(some, group, 0)
    return parts


def _some_of(nodes: list[Node]) -> Iterator[list[Node]]:
    """The nodes, some at a time; those of one topological number come together."""
    start = 0
    while start < len(nodes):
        end = start + SOME
        while end < len(nodes) and nodes[end].index == nodes[end - 1].index:
            end += 1
        yield nodes[start:end]
        start = end


def _merged(parts: Sequence[list[Node]]) -> list[Node]:
    """The nodes of several lists in graph order."""
    if len(parts) > 1:
        return sorted(dict.fromkeys(chain.from_iterable(parts)), key=_index)
    return parts[0] if parts else []


def _sort(nodes: list[Node], rows: Sequence[_Row], depth: int) -> None:
    """Give to each of some rows those of the nodes for which its hints hold, from one of these on."""
    tables: dict[tuple[int, ...], dict[Op, list[_Row]]] = {}
    alike: dict[SameNode, list[_Row]] = {}
    for row in rows:
        if depth == len(row.hints):
            row.parts.append(nodes)
        elif isinstance(hint := row.hints[depth], SameNode):
            alike.setdefault(hint, []).append(row)
        else:
            table = tables.setdefault(hint.path, {})
            for op in hint.ops:
                table.setdefault(op, []).append(row)
    known: _Ends = {(): nodes}
    for same, some_rows in alike.items():
        pairs = zip(nodes, _ends(same.path, known), _ends(same.other, known))
        met = [node for node, end, other in pairs if end is other]
        if met:
            _sort(met, some_rows, depth + 1)
    for path, table in tables.items():
        found: dict[Op, list[Node]] = {op: [] for op in table}
        _distribute(nodes, path, found, known)
        for op, some in found.items():
            if some:
                _sort(some, table[op], depth + 1)


def _distribute(nodes: Sequence[Node], path: tuple[int, ...], lists: Mapping[Op, list[Node]], known: _Ends) -> None:
    """Append each node to the list for the operator of what is at the end of a path from it; of a place, all of it."""
    get, place = lists.get, path[0]
    if place < 0:
        for node in nodes:
            for op in {other.op for other in (node.users if place == USER else node.operands)}:
                if op in lists:
                    lists[op].append(node)
        return
    for node, end in zip(nodes, _ends(path, known)):
        found = get(end.op)
        if found is not None:
            found.append(node)


def _ends(path: tuple[int, ...], known: _Ends) -> Sequence[Node]:
    """The node at the end of a path by positions of operands from each of some nodes, and nowhere if it leads there."""
    ends = known.get(path)
    if ends is None:
        *before, place = path
        ends = _ends(tuple(before), known)
        try:
            ends = [end.operands[place] for end in ends]
        except IndexError:  # calls of one operator have as many operands, nearly always
            ends = [end.operands[place] if place < len(end.operands) else _NOWHERE for end in ends]
        known[path] = ends
    return ends


_Ends = dict[tuple[int, ...], Sequence[Node]]
"""The nodes at the ends of paths from some nodes, which are those at the end of the path of no steps."""
_NOWHERE = Node("nowhere")
_index = attrgetter("index")

"""The nodes of a graph at which the rules of a set may match: one look at each node, however many rules there are.

A search starts from the rarest operator of its rule. Where several rules start from one operator, a second operator,
right below or above it, tells most of them apart: with the operator of a neighbour a node is looked up in a table,
which tells the rules for which both are what they want. A third operator tells the rest apart in the same way.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from operator import attrgetter
from typing import TYPE_CHECKING

from gsl.graph import Node, Op
from gsl.match.matchers import CallMatcher
from gsl.pat import Call, GetItem, Pattern, Tuple, has_head
from gsl.pat.variadic import is_open

if TYPE_CHECKING:
    from gsl.match.plan import Plan
    from gsl.match.start import Start

SEVERAL = 4
"""The number of rules from which on a table is made."""
USER = -2
"""The place of a user, where other places are positions of operands."""
ANY = -1
"""The place of an operand at any position."""


@dataclass(frozen=True, slots=True)
class Hint:
    """A fact about the surroundings of a node where a search succeeds: one of these operators is at the end of a path.

    A path is a place next to the node, or the positions of an operand and of one of its operands.
    """

    path: tuple[int, ...]
    ops: frozenset[Op]


@dataclass(slots=True)
class Candidates:
    """The nodes at which a rule may match, in the order in which they are tried."""

    start: Start
    nodes: Sequence[Node]
    ops: frozenset[Op] | None = None
    """The operators among whose nodes these were chosen, where the nodes were looked up in a table. When operands or
    users of other nodes of these operators change, the rule may match there too."""
    late: list[Node] = field(default_factory=list)
    """Other nodes of these operators at which the rule may match since then, in any order."""


def candidates(
    plans: Iterable[Plan], by_op: Mapping[Op, list[Node]], *, at_roots: bool = False
) -> list[Candidates]:
    """The start of each plan with the fewest nodes, and the nodes; the root of each, where the nodes are such."""
    groups: dict[frozenset[Op], list[Node]] = {}
    found: list[Candidates] = []
    for plan in plans:
        anchor, ops = plan.from_root(by_op) if at_roots else plan.rarest(by_op)
        nodes = plan.in_order(anchor, ops, by_op, groups)
        if nodes and not at_roots and plan.lacks(by_op):
            nodes = []
        found.append(Candidates(plan.start(anchor), nodes, ops))
    rows = [_Row(each) for each in found if each.nodes and each.start.hints]
    for each in found:
        if len(rows) < SEVERAL or not each.start.hints:
            each.ops = None
    if len(rows) >= SEVERAL:
        _look_up(rows, by_op)
        for row in rows:
            row.candidates.nodes = row.nodes()
    return found


def add_candidates(found: Iterable[Candidates], by_op: Mapping[Op, list[Node]]) -> None:
    """Note nodes that were moved as candidates of the rules that were looked up in a table."""
    rows = [_Row(each) for each in found if each.ops is not None]
    _look_up(rows, by_op)
    for row in rows:
        row.candidates.late += chain.from_iterable(row.parts)


def _look_up(rows: Sequence[_Row], by_op: Mapping[Op, list[Node]]) -> None:
    """Give to each row the nodes of its operators for which its hints hold."""
    groups: dict[Op, list[_Row]] = {}
    for row in rows:
        for op in row.candidates.ops or ():
            groups.setdefault(op, []).append(row)
    for op, group in groups.items():
        if op in by_op:
            _sort(by_op[op], group, 0)


class _Row:
    """The nodes that a table has for a rule."""

    __slots__ = ("candidates", "hints", "parts")

    def __init__(self, candidates: Candidates) -> None:
        self.candidates = candidates
        self.hints = candidates.start.hints
        self.parts: list[list[Node]] = []
        """Nodes in graph order; those of other operators, at a node or near to it, are in another list."""

    def nodes(self) -> list[Node]:
        """The nodes in graph order."""
        if len(self.parts) > 1:
            return sorted(dict.fromkeys(chain.from_iterable(self.parts)), key=_index)
        return self.parts[0] if self.parts else []


def _sort(nodes: list[Node], rows: Sequence[_Row], depth: int) -> None:
    """Give to each of some rows those of the nodes for which its hints hold, from one of these on."""
    tables: dict[tuple[int, ...], dict[Op, list[_Row]]] = {}
    for row in rows:
        if depth == len(row.hints):
            row.parts.append(nodes)
        else:
            table = tables.setdefault(row.hints[depth].path, {})
            for op in row.hints[depth].ops:
                table.setdefault(op, []).append(row)
    for path, table in tables.items():
        found: dict[Op, list[Node]] = {op: [] for op in table}
        _distribute(nodes, path, found)
        for op, some in found.items():
            if some:
                _sort(some, table[op], depth + 1)


def _distribute(nodes: Sequence[Node], path: tuple[int, ...], lists: Mapping[Op, list[Node]]) -> None:
    """Append each node to the list for the operator of what is at the end of a path from it; of a place, all of it."""
    get, (place, *more) = lists.get, path
    for node in nodes:
        operands = node.operands
        if place < 0:
            for op in {other.op for other in (node.users if place == USER else operands)}:
                if op in lists:
                    lists[op].append(node)
        elif place < len(operands):
            end = operands[place]
            if more:
                if more[0] >= len(end.operands):
                    continue
                end = end.operands[more[0]]
            found = get(end.op)
            if found is not None:
                found.append(node)


def hints_of(start: Start) -> tuple[Hint, ...]:
    """The hints that tell a start from others with the same operator, most telling first: none, one or two."""
    plan, anchor = start.plan, start.anchor
    if plan.variadic is not None or plan.fuzzy or not isinstance(anchor, (Call, Tuple, GetItem)):
        return ()
    near = [*_below(start, anchor, ()), *_above(start, anchor)]
    first = min(near, key=lambda hint: (hint.path[0] == USER, len(hint.ops)), default=None)
    if first is None:
        return ()
    far = [hint for hint in (*near, *_further(start, anchor)) if hint.path != first.path]
    second = min(far, key=lambda hint: (hint.path[0] == USER, len(hint.ops)), default=None)
    return (first,) if second is None else (first, second)


def _below(start: Start, anchor: Pattern, path: tuple[int, ...]) -> Iterator[Hint]:
    """The hints about the nodes right below the pattern to which a path leads."""
    turns = _may_turn(start, anchor)
    for position, child in enumerate(anchor.children()):
        ops = start.matchers[child].ops
        if ops is not None:
            yield Hint((*path, ANY if turns else position), ops)
    for use in start.plan.ways:
        ops = start.matchers[use.operand].ops if use.user is anchor else None
        if ops is not None:
            yield Hint((*path, ANY if use.index is None else use.index), ops)


def _further(start: Start, anchor: Pattern) -> Iterator[Hint]:
    """The hints about the nodes right below a pattern that stands below the anchor, where both places are certain."""
    if not _may_turn(start, anchor):
        for position, child in enumerate(anchor.children()):
            if isinstance(child, (Call, Tuple, GetItem)):
                yield from (hint for hint in _below(start, child, (position,)) if hint.path[-1] >= 0)


def _may_turn(start: Start, pattern: Pattern) -> bool:
    """True if operands may match in either order, or at several places."""
    matcher = start.matchers[pattern]
    return matcher.may_turn if isinstance(matcher, CallMatcher) else is_open(pattern)


def _above(start: Start, anchor: Pattern) -> Iterator[Hint]:
    made_of = [p for p in start.plan.sure if isinstance(p, (Call, Tuple, GetItem)) and anchor in tuple(p.children())]
    users: list[Pattern] = [*made_of, *(use.user for use in start.plan.ways if use.operand is anchor)]
    for user in users:
        ops = start.matchers[user].ops
        if ops is not None and not has_head(user):
            yield Hint((USER,), ops)


_index = attrgetter("index")

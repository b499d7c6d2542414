"""At which nodes of a graph the rules of a set may match: one look at each node, however many rules there are.

A search starts from the rarest operator of its rule. Where several rules start from one operator, a second operator,
right below or above it, tells most of them apart: with the operators of its neighbours a node is looked up in a table,
which tells the rules for which both are what they want.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import TYPE_CHECKING

from gsl.graph import GETITEM, TUPLE, Node, Op
from gsl.match.matchers import (
    COMMUTATIVE,
    AltMatcher,
    AndMatcher,
    CallMatcher,
    GetItemMatcher,
    LeafMatcher,
    Matcher,
    TupleMatcher,
    VariadicMatcher,
)
from gsl.match.uses import SeqMatcher
from gsl.pat import Call, GetItem, Pattern, Tuple

if TYPE_CHECKING:
    from gsl.match.plan import Plan
    from gsl.match.start import Start

SEVERAL = 4
"""From how many rules on a table is made."""
USER = -2
"""The place of a user, where other places are positions of operands."""
ANY = -1
"""The place of an operand at any position."""


@dataclass(frozen=True, slots=True)
class Hint:
    """What a node has next to it where a search succeeds that starts there: one of these operators at that place."""

    place: int
    ops: frozenset[Op]


@dataclass(slots=True)
class Candidates:
    """The nodes at which a rule may match, in the order in which they are tried."""

    start: Start
    nodes: Sequence[Node]
    ops: frozenset[Op] | None = None
    """Where the nodes were looked up in a table: the operators among whose nodes they were chosen. When operands or
    users of other nodes of these change, the rule may match there too."""


def candidates(plans: Iterable[Plan], by_op: Mapping[Op, list[Node]]) -> list[Candidates]:
    """For each plan the start with the fewest nodes, and the nodes."""
    groups: dict[frozenset[Op], list[Node]] = {}
    found: list[Candidates] = []
    for plan in plans:
        anchor, ops = plan.rarest(by_op)
        nodes = plan.in_order(anchor, ops, by_op, groups)
        found.append(Candidates(plan.start(anchor), nodes, ops))
    rows = [each for each in found if each.nodes and each.start.hint is not None]
    for each in found:
        if len(rows) < SEVERAL or each.start.hint is None:
            each.ops = None
    if len(rows) >= SEVERAL:
        _look_up(rows, by_op)
    return found


def _look_up(rows: Sequence[Candidates], by_op: Mapping[Op, list[Node]]) -> None:
    """Leave to each of the rows the nodes whose neighbours have the operators that it wants."""
    tables: dict[Op, dict[int, dict[Op, list[list[Node]]]]] = {}
    chosen: list[list[Node]] = []
    for row in rows:
        hint, nodes = row.start.hint, list[Node]()
        assert hint is not None
        chosen.append(nodes)
        for op in row.ops or ():
            table = tables.setdefault(op, {}).setdefault(hint.place, {})
            for neighbour in hint.ops & by_op.keys():
                table.setdefault(neighbour, []).append(nodes)
    for op, places in tables.items():
        for place, table in places.items():
            (_sort_by_operand if place >= 0 else _sort_by_any)(by_op.get(op, ()), place, table)
    for row, nodes in zip(rows, chosen):
        row.nodes = sorted(nodes, key=_index) if row.ops is not None and len(row.ops) > 1 else nodes


def _sort_by_operand(nodes: Iterable[Node], place: int, table: Mapping[Op, list[list[Node]]]) -> None:
    """Append each node to the lists that the table has for the operator of one of its operands."""
    get = table.get
    for node in nodes:
        operands = node.operands
        if place < len(operands):
            lists = get(operands[place].op)
            if lists is not None:
                for each in lists:
                    each.append(node)


def _sort_by_any(nodes: Iterable[Node], place: int, table: Mapping[Op, list[list[Node]]]) -> None:
    """Append each node to the lists that the table has for the operators of its operands, or users."""
    for node in nodes:
        for op in {other.op for other in (node.users if place == USER else node.operands)}:
            for each in table.get(op, ()):
                if not each or each[-1] is not node:  # a list may stand in the table for several operators
                    each.append(node)


def hint_of(start: Start) -> Hint | None:
    """What tells a start from others with the same operator, if there is something; what lies below goes first."""
    plan, anchor = start.plan, start.anchor
    if plan.variadic is not None or plan.fuzzy or not isinstance(anchor, (Call, Tuple, GetItem)):
        return None
    found = [*_below(start, anchor), *_above(start, anchor)]
    return min(found, key=lambda hint: (hint.place == USER, len(hint.ops)), default=None)


def _below(start: Start, anchor: Pattern) -> Iterator[Hint]:
    matcher = start.matchers[anchor]
    may_turn = isinstance(matcher, CallMatcher) and (matcher.ops is None or bool(matcher.ops & COMMUTATIVE))
    for position, child in enumerate(anchor.children()):
        ops = operators(start.matchers[child])
        if ops is not None:
            yield Hint(ANY if may_turn else position, ops)
    for use in start.plan.ways:
        ops = operators(start.matchers[use.operand]) if use.user is anchor else None
        if ops is not None:
            yield Hint(ANY if use.index is None else use.index, ops)


def _above(start: Start, anchor: Pattern) -> Iterator[Hint]:
    made_of = [p for p in start.plan.sure if isinstance(p, (Call, Tuple, GetItem)) and anchor in tuple(p.children())]
    users: list[Pattern] = [*made_of, *(use.user for use in start.plan.ways if use.operand is anchor)]
    for user in users:
        ops = operators(start.matchers[user])
        if ops is not None:
            yield Hint(USER, ops)


def operators(matcher: Matcher) -> frozenset[Op] | None:
    """The operators that a node of the pattern may have, ``None`` where they can't be enumerated."""
    match matcher:
        case CallMatcher():
            return matcher.ops
        case LeafMatcher():
            return matcher.kinds
        case TupleMatcher() | VariadicMatcher():
            return frozenset((TUPLE,))
        case GetItemMatcher():
            return frozenset((GETITEM,))
        case SeqMatcher():
            return operators(matcher.spine[-1])
        case AndMatcher():
            known = [ops for ops in map(operators, matcher.both) if ops is not None]
            return frozenset.intersection(*known) if known else None
        case AltMatcher():
            each = [operators(choice) for choice in matcher.choices]
            return None if None in each else frozenset().union(*[ops for ops in each if ops is not None])
    return None


_index = attrgetter("index")

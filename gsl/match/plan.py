"""A rule's source, compiled: the nodes from which a search may start, and the functions that find the matches from
them.

The cost of a search, counted in goals (``Search.steps``), for a source of *p* patterns and an anchor with *n* nodes:
*n · p* where operands and relations lead to one node each, as in every operand-style source with one output, and in a
sequence downward. A step up to a user tries every user that has the right operator, so *k* steps up from nodes with
*u* such users each try *uᵏ* combinations where all but the last fit: finding subgraphs is NP-hard, and this is the
worst case, *O(n · uᵏ)*. So it is with alternatives and commutative calls: *2ᵏ* for *k* of them, if it shows only in
the end that the choice was wrong. A fork to *k* users has *u · (u - 1) · …* matches, of which each costs *O(k)*
steps, and a branch whose operator the graph lacks costs nothing.

A chain of *m* nodes (``pat.Repeat``) costs *O(m)* from a given end, in either direction and whether it fits or not, and
a rule in one pass takes the longest. All matches of a chain that is bound at neither end are its *m²/2* parts, and a
rule whose condition refuses each of them pays for all. A ``>>`` chain of *m* patterns is built in *O(m²)*.
"""

from __future__ import annotations

from collections.abc import Collection, Container, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from operator import attrgetter, itemgetter
from typing import Final

from gsl.errors import PatternError
from gsl.graph import Below, Graph, Node, Op
from gsl.match.emit import Find, emitted
from gsl.match.engine import MatchSearch, UseLists, held
from gsl.match.lower import Lowered
from gsl.match.machine import END
from gsl.match.matchers import CallMatcher, Matcher
from gsl.match.result import Match
from gsl.match.source import CheckedSource
from gsl.pat import Alt, And, Call, GetItem, Leaf, Pattern, Repeat, Tuple, has_head
from gsl.pat.use import tail
from gsl.pat.variadic import is_open

PAYS, STEPS = 100, 10
"""The number of nodes from which on it pays to write a function for the search, and the number of steps of a search
that count as a node."""

GLANCES: Final = 4
"""The number of nodes that are looked at for equal nodes near to them in the time of one search."""

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


@dataclass(frozen=True, slots=True)
class SameNode:
    """A fact about the surroundings of a node where a search succeeds: two paths from it end at one node, both given by
    positions of operands."""

    path: tuple[int, ...]
    other: tuple[int, ...]


class Start(Lowered):
    """The search from one anchor, which becomes a function when it was asked often."""

    plan: Plan

    def __init__(self, plan: Plan, anchor: Pattern) -> None:
        super().__init__(plan, anchor)
        self._asked = 0
        """The number of nodes for which matches were wanted, and the cost of these searches."""

    @cached_property
    def function(self) -> Find:
        """The search as a function."""
        return emitted(self)

    @cached_property
    def hints(self) -> Mapping[Pattern, tuple[Hint | SameNode, ...]]:
        """The hints about the surroundings of a node where the search succeeds: for the anchor, or for each choice of
        one that is an alternative. Empty where none tell anything."""
        found = {pattern: hints_of(self, pattern) for pattern in choices(self.anchor)}
        return found if any(found.values()) else {}

    @cached_property
    def asks_for_same(self) -> bool:
        """True if each way in which the search may succeed has a hint of equal nodes."""
        return bool(self.hints) and all(map(_same_in, self.hints.values()))

    def finder(self, number: int) -> Find:
        """The function that finds the matches from a node, to be called for so many nodes."""
        self._asked += number
        return self._search if self._asked < PAYS else self.function

    def _search(
        self, node: Node, outputs: Container[Node], blocked: Collection[Node], use_lists: UseLists
    ) -> Iterator[Match]:
        search = MatchSearch(self.plan, outputs, blocked, use_lists)
        try:
            yield from self.matches(node, search)
        finally:
            self._asked += search.steps // STEPS

    def matches(self, node: Node, search: MatchSearch) -> Iterator[Match]:
        """The matches whose anchor is the node. The search must not be left half-way and used again."""
        for _ in search.solve(self.goals(node, END)):
            yield held(self.plan, search)


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


class Plan(CheckedSource):
    """The compiled source of a rule. Raises PatternError for one that can't be matched, as of parts that are not
    connected."""

    def _check(self) -> None:
        super()._check()
        self.start(self.anchors[0])
        if len(self.required) > 1:
            self._check_alternatives()

    @cached_property
    def _starts(self) -> dict[Pattern, Start]:
        return {}

    @cached_property
    def anchors(self) -> list[Pattern]:
        """The patterns from which a search can start."""
        operators: list[Pattern] = [p for p in self.sure if isinstance(p, (Call, GetItem, Tuple))]
        return operators or [p for p in self.sure if not isinstance(p, Leaf)] or list(self.sure)

    @cached_property
    def _alternatives(self) -> list[Alt]:
        return [p for p in self.sure if isinstance(p, Alt)]

    def start(self, anchor: Pattern) -> Start:
        """The compiled search from an anchor."""
        found = self._starts.get(anchor)
        if found is None:
            found = self._starts[anchor] = Start(self, anchor)
        return found

    def rarest(self, by_op: Mapping[Op, list[Node]]) -> tuple[Start, frozenset[Op]]:
        """The start from the pattern with the fewest nodes that it might be, and the operators of these; some may have
        no nodes. Of many nodes, those at which two others have to be one are seen at a glance, so they count less."""
        counted: list[tuple[int, Pattern, frozenset[Op]]] = []
        for pattern, known in self._known.items():
            ops = self._operators(pattern, by_op) if known is None else known
            number = 0
            for op in ops:
                if op in by_op:
                    number += len(by_op[op])
            counted.append((number, pattern, ops))
            if not number:
                break
        while True:
            least = min(counted, key=itemgetter(0))
            if least[0] >= PAYS:
                least = min(counted, key=lambda each: each[0] if each[1] not in self._telling else each[0] / GLANCES)
            try:
                return self.start(least[1]), least[2]
            except PatternError:
                # From there, alternatives hide what is connected; from the first anchor they don't.
                counted.remove(least)

    @cached_property
    def _telling(self) -> frozenset[Pattern]:
        """The anchors that have a hint of equal nodes."""
        start = self.start(self.anchors[0])
        return frozenset([anchor for anchor in self.anchors if _same_in(hints_of(start, anchor))])

    def starts(self) -> Iterator[Start]:
        """The searches from all anchors from which there is one."""
        for anchor in self.anchors:
            try:
                yield self.start(anchor)
            except PatternError:
                continue

    @cached_property
    def root(self) -> Pattern | None:
        """The pattern below which all nodes of a match stand, if there is one from which a search can start."""
        first, *others = self.outputs
        if others or self.ways or self.fuzzy or self.variadic is not None or first not in self.anchors:
            return None
        try:
            self.start(first)
        except PatternError:
            return None
        return first

    def from_root(self, by_op: Mapping[Op, list[Node]]) -> tuple[Start, frozenset[Op]]:
        """The start from the root, and the operators that it may have; some may have no nodes."""
        assert self.root is not None
        return self.start(self.root), self._operators(self.root, by_op)

    def lacks(self, by_op: Mapping[Op, list[Node]]) -> bool:
        """True if a pattern that every match binds, or each choice of an alternative, needs an operator that a graph
        lacks, so that nothing can match."""
        present = by_op.keys()  # which looks up the operators of a pattern; those would look up all of the graph
        for ops in self._known.values():
            if ops is not None and present.isdisjoint(ops):
                return True
        return bool(self._alternatives) and not all(self._may_be(each, by_op) for each in self._alternatives)

    def nowhere(self) -> Candidates:
        """The candidates in a graph that lacks an operator."""
        return Candidates(self.start(self.anchors[0]), ())

    def _may_be(self, pattern: Pattern, by_op: Mapping[Op, object]) -> bool:
        """False if a pattern needs an operator that a graph lacks."""
        ops = self.start(self.anchors[0]).matchers[pattern].ops
        if ops is not None and by_op.keys().isdisjoint(ops):
            return False
        if isinstance(pattern, Alt):
            return any(self._may_be(choice, by_op) for choice in pattern.choices)
        needed = pattern.children() if isinstance(pattern, (Call, GetItem, And)) else ()
        return all(self._may_be(child, by_op) for child in needed)

    def may_match(self, below: Below) -> bool:
        """False if nothing can match where nodes have these operators only, each with operands of those."""
        return self.variadic is not None or (
            all(self._may_be(pattern, below) for pattern in self.sure)
            and all(any(op in below and not ops.isdisjoint(below[op]) for op in above) for above, ops in self._pairs)
        )

    @cached_property
    def _pairs(self) -> Sequence[tuple[frozenset[Op], frozenset[Op]]]:
        """The operators of patterns that every match binds, with those of what they have as an operand."""
        matchers = self.start(self.anchors[0]).matchers
        nodes = (Alt, And, Call, GetItem, Tuple)
        found = [
            (matchers[pattern].ops, matchers[child].ops)
            for pattern in self.sure if isinstance(pattern, nodes[2:]) and not self.fuzzy
            for child in pattern.children() if isinstance(child, nodes)
        ]  # fmt: skip
        return [(above, ops) for above, ops in found if above is not None and ops is not None]

    def _operators(self, anchor: Pattern, by_op: Mapping[Op, list[Node]]) -> frozenset[Op]:
        known = self._known[anchor]
        if known is not None:
            return known
        plausible = self._matcher(anchor).plausible
        return frozenset([op for op, nodes in by_op.items() if plausible(nodes[0])])

    @cached_property
    def _known(self) -> Mapping[Pattern, frozenset[Op] | None]:
        """The anchors with their operators, where these can be enumerated."""
        matchers = {anchor: self._matcher(anchor) for anchor in self.anchors}
        return {anchor: each.ops if isinstance(each, CallMatcher) else None for anchor, each in matchers.items()}

    def _matcher(self, anchor: Pattern) -> Matcher:
        return self.start(self.anchors[0]).matchers[anchor if self.variadic is None else self.variadic.first_field]

    def possible(self, anchor: Pattern, by_op: Mapping[Op, list[Node]]) -> list[Node]:
        """The nodes that a pattern might be, in graph order (of a chain in reverse); of a variadic, its first field."""
        return self.in_order(anchor, self._operators(anchor, by_op), by_op, {})

    @staticmethod
    def in_order(
        anchor: Pattern, ops: frozenset[Op], by_op: Mapping[Op, list[Node]], known: dict[frozenset[Op], list[Node]]
    ) -> list[Node]:
        """The nodes of some operators in graph order (of a chain in reverse); ``known`` are those asked for before."""
        if len(ops) == 1:
            (op,) = ops
            nodes = by_op.get(op, [])
        else:
            found = known.get(ops)
            if found is None:
                found = known[ops] = sorted([node for op in ops for node in by_op.get(op, ())], key=_index)
            nodes = found
        # A chain is found from its last node: so the longest one first.
        return nodes[::-1] if isinstance(tail(anchor), Repeat) else nodes

    def _candidates(self, by_op: Mapping[Op, list[Node]]) -> Candidates:
        """The start with the fewest nodes, and these."""
        if self.lacks(by_op):
            return self.nowhere()
        start, ops = self.rarest(by_op)
        return Candidates(start, self.in_order(start.anchor, ops, by_op, {}), ops)

    def matches(
        self, graph: Graph, *, search: MatchSearch | None = None, where: Candidates | None = None
    ) -> Iterator[Match]:
        """All matches, ordered by their anchor's place in the graph. Of the groups of a variadic: those that differ.

        With a ``search``, that finds them and counts its steps; else a function may, see :mod:`gsl.match.emit`.
        ``where``, if it is known, tells where to look.
        """
        self.check(graph)
        by_op = graph.by_op()
        where = self._candidates(by_op) if where is None else where
        start, nodes = where.start, where.nodes
        outputs, use_lists = graph.ends(), UseLists(by_op)
        if search is None:
            find = start.finder(len(nodes))
        elif self.variadic is not None:
            search.use_lists = use_lists
        grouped: set[Node] = set()
        blocked = grouped if self.variadic is not None and not self.variadic.shared else ()
        if search is not None:
            search.blocked = blocked or search.blocked
        for node in nodes:
            if node not in grouped:
                for match in find(node, outputs, blocked, use_lists) if search is None else start.matches(node, search):
                    if self.variadic is not None:
                        grouped.update(match.outputs)
                    yield match


def choices(pattern: Pattern) -> Iterator[Pattern]:
    """The choices of an alternative, those of alternatives among them included; of any other pattern, that one."""
    work = [pattern]
    while work:
        pattern = work.pop()
        if isinstance(pattern, Alt):
            work += reversed(pattern.choices)
        else:
            yield pattern


def hints_of(start: Lowered, anchor: Pattern) -> tuple[Hint | SameNode, ...]:
    """The hints that tell an anchor, or a choice of it, from others with the same operator, most telling first: none,
    one or two of operators, and then those of equal nodes."""
    plan = start.plan
    if plan.variadic is not None or plan.fuzzy or not isinstance(anchor, (Call, Tuple, GetItem)):
        return ()
    near = [*_below(start, anchor, ()), *_above(start, start.anchor)]
    same = _same_nodes(start, anchor)
    first = min(near, key=lambda hint: (hint.path[0] == USER, len(hint.ops)), default=None)
    if first is None:
        return same
    far = [hint for hint in (*near, *_further(start, anchor)) if hint.path != first.path]
    second = min(far, key=lambda hint: (hint.path[0] == USER, len(hint.ops)), default=None)
    return (first, *same) if second is None else (first, second, *same)


def _same_in(hints: Sequence[Hint | SameNode]) -> bool:
    """True if one of some hints is of equal nodes."""
    return any(isinstance(hint, SameNode) for hint in hints)


def _same_nodes(start: Lowered, anchor: Pattern) -> tuple[SameNode, ...]:
    """The hints about patterns that stand at several places, all certain, at most two steps below the anchor."""
    places: dict[Pattern, list[tuple[int, ...]]] = {}
    for position, child in enumerate(() if _may_turn(start, anchor) else anchor.children()):
        places.setdefault(child, []).append((position,))
        if isinstance(child, (Call, Tuple, GetItem)) and not _may_turn(start, child):
            for below, part in enumerate(child.children()):
                places.setdefault(part, []).append((position, below))
    plain = [found for pattern, found in places.items() if not has_head(pattern)]
    return tuple([SameNode(first, other) for first, *others in plain for other in others])


def _below(start: Lowered, anchor: Pattern, path: tuple[int, ...]) -> Iterator[Hint]:
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


def _further(start: Lowered, anchor: Pattern) -> Iterator[Hint]:
    """The hints about the nodes right below a pattern that stands below the anchor, where both places are certain."""
    if not _may_turn(start, anchor):
        for position, child in enumerate(anchor.children()):
            if isinstance(child, (Call, Tuple, GetItem)):
                yield from (hint for hint in _below(start, child, (position,)) if hint.path[-1] >= 0)


def _may_turn(start: Lowered, pattern: Pattern) -> bool:
    """True if operands may match in either order, or at several places."""
    matcher = start.matchers[pattern]
    return matcher.may_turn if isinstance(matcher, CallMatcher) else is_open(pattern)


def _above(start: Lowered, anchor: Pattern) -> Iterator[Hint]:
    made_of = [p for p in start.plan.sure if isinstance(p, (Call, Tuple, GetItem)) and anchor in tuple(p.children())]
    users: list[Pattern] = [*made_of, *(use.user for use in start.plan.ways if use.operand is anchor)]
    for user in users:
        ops = start.matchers[user].ops
        if ops is not None and not has_head(user):
            yield Hint((USER,), ops)


_index = attrgetter("index")

"""Patterns that stand for any number of nodes: variadics, segments of tuples, chains, and instances that share none."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Collection, Container, Iterable, Iterator, Mapping
from functools import cached_property
from itertools import chain
from operator import attrgetter
from typing import TYPE_CHECKING, Any

from gsl.graph import LEAVES, TUPLE, Node, Op
from gsl.match.bindings import AttrPath, N
from gsl.match.guard import Guard
from gsl.match.machine import Goals, Machine
from gsl.match.matchers import Matcher, TupleMatcher, check_all
from gsl.match.uses import Up
from gsl.pat import Pattern, Repeat, Segment, Variadic

if TYPE_CHECKING:
    from gsl.match.engine import MatchSearch

WINDOW = 1000
"""The number of candidates that are looked at after a first instance, in graph order."""


class VariadicMatcher(Matcher):
    __slots__ = ("field", "first", "instance_guards", "members")
    pattern: Variadic
    field: Matcher
    first: Matcher | None
    members: Up | None
    """Of a group: the way from the patterns that all instances share to another one; ``None`` if they share none."""

    def __init__(self, pattern: Variadic, level: int, identity: Pattern) -> None:
        super().__init__(pattern, level, identity)
        self.instance_guards: list[Guard] = []
        """The guards of templates, checked when an instance is matched."""

    def link(self, matchers: Mapping[Pattern, Matcher]) -> None:
        self.field = matchers[self.pattern.field]
        self.first = matchers[self.pattern.first_field] if self.pattern.first else None

    @cached_property
    def ops(self) -> frozenset[Op]:
        return frozenset((TUPLE,))

    def admits(self, search: Machine[N], node: N) -> bool:
        pattern = self.pattern
        if not search.has_operator(self, node, "kind", TUPLE):
            return False
        if not search.has_operands(self, node, "min_len", pattern.min_len, more=True):
            return False
        return pattern.max_len is None or search.has_operands(self, node, "max_len", pattern.max_len, fewer=True)

    def may_have(self, node: Node) -> bool:
        """True if a node may be an instance of a group."""
        return self.field.plausible(node) or (self.first is not None and self.first.plausible(node))

    def descend(self, search: Machine[N], node: N, path: AttrPath, rest: Goals) -> Goals | None:
        return search.fields(self, node, path, rest)

    def instance(self, number: Any, node: N, outer: AttrPath, rest: Goals) -> Goals:
        """The goals of one instance."""
        path = (*outer, number)
        if number == 0 and self.first is not None:
            return (self.first.match, node, path, rest)
        return (self.field.match, node, path, (check_all, self.instance_guards, path, rest))

    def goals(self, node: N, rest: Goals) -> Goals:
        """The goals of a group of which the node is the first instance."""
        return self.instance(0, node, (), (self._others, node, (), rest))

    def _others(self, search: Machine[N], first: N, path: AttrPath, rest: Goals) -> Goals | None:
        return search.members(self, first, rest)


class SegmentMatcher(VariadicMatcher):
    """Some neighbouring fields of a tuple. It has no node of its own, and is matched by the tuple."""

    __slots__ = ()
    operator = False
    pattern: Segment

    @cached_property
    def ops(self) -> None:  # type: ignore[override]
        return None

    def stretch(
        self, search: MatchSearch, at: tuple[TupleMatcher, Node, int, int, int], path: AttrPath, rest: Goals
    ) -> Goals | None:
        """The goals that a segment of some fields by now, which ends before a place, goes on or ends there."""
        whole, node, number, place, length = at
        outer = path[: self.level]

        def longer() -> Iterator[Goals]:
            more = length != self.pattern.max_len
            if more and place < len(node.operands) - whole.least[number + 1]:
                onward = (self.stretch, (whole, node, number, place + 1, length + 1), path, rest)
                yield self.instance(length, node.operands[place], outer, onward)

        def ways() -> Iterator[Goals]:
            if self.pattern.greedy:
                yield from longer()
            if length >= self.pattern.min_len:
                search.record(search.bindings.counts, (self.pattern, outer), length)
                yield (place_items, (whole, node, number + 1, place), path, rest)
            if not self.pattern.greedy:
                yield from longer()

        return search.choose(ways())


def place_items(
    search: MatchSearch, at: tuple[TupleMatcher, Node, int, int], path: AttrPath, rest: Goals
) -> Goals | None:
    """The goals that the items of a tuple from a number on are the fields of a node from a place on."""
    whole, node, number, place = at
    if number == len(whole.items):
        left = len(node.operands) - place
        return rest if not left or search.miss(whole.pattern, node, "fields", place, len(node.operands)) else None
    item = whole.items[number]
    if isinstance(item, SegmentMatcher):
        return item.stretch(search, (whole, node, number, place, 0), path, rest)
    return (item.match, node.operands[place], path, (place_items, (whole, node, number + 1, place + 1), path, rest))


class RepeatMatcher(Matcher):
    """A chain. Its instances are numbered in the order in which they are found: from the last node, or the first."""

    __slots__ = ("inner", "instance_guards")
    operator = False
    pattern: Repeat

    def __init__(self, pattern: Repeat, level: int, identity: Pattern) -> None:
        super().__init__(pattern, level, identity)
        self.instance_guards: list[Guard] = []
        """The guards of the repeated pattern, checked for every node of the chain."""

    def link(self, matchers: Mapping[Pattern, Matcher]) -> None:
        self.inner = matchers[self.pattern.pattern]

    @cached_property
    def ops(self) -> frozenset[Op] | None:
        return self.inner.ops

    def of_class(self) -> Callable[[Op], bool] | None:
        return self.inner.accepts

    def descend(self, search: Machine[N], node: N, path: AttrPath, rest: Goals) -> Goals | None:
        return search.chain_down(self, node, path[: self.level], rest)

    def ascend(self, search: Machine[N], node: N, path: AttrPath, rest: Goals) -> Goals | None:
        return search.chain_up(self, node, path[: self.level], rest)

    def instance(self, number: Any, node: N, outer: AttrPath, rest: Goals) -> Goals:
        """The goals of one node of the chain."""
        path = (*outer, number)
        return (self.inner.match, node, path, (check_all, self.instance_guards, path, rest))

    def _longer(self, search: MatchSearch, length: int, nodes: Iterator[Goals], ends: Iterator[Goals]) -> Goals | None:
        """Go on with the chain, or end it, in the order that the pattern prefers."""
        more = nodes if self.pattern.max is None or length < self.pattern.max else iter(())
        return search.choose(chain(more, ends) if self.pattern.greedy else chain(ends, more))

    # Downward.

    def down(self, node: Node, outer: AttrPath, rest: Goals) -> Goals:
        """The goals of a chain of which the node is the last one."""
        return self.instance(0, node, outer, (self._down, 1, outer, rest))

    def _down(self, search: MatchSearch, length: int, outer: AttrPath, rest: Goals) -> Goals | None:
        """End the chain at its newest instance, or go on to the only producer of that."""
        first = search.bindings.head(self.pattern.pattern, (*outer, length - 1))
        assert first is not None

        def more() -> Iterator[Goals]:
            for node, skipped in producers(search, first, sole=self.pattern.sole):
                if self.inner.plausible(node) and search.skip_all(skipped):
                    yield self.instance(length, node, outer, (self._down, length + 1, outer, rest))

        def end() -> Iterator[Goals]:
            if length >= self.pattern.min:
                self._note(search, length, first, outer)
                yield rest
            else:
                self._too_short(search, length, first)

        return self._longer(search, length, more(), end())

    def _note(self, search: MatchSearch, length: int, first: Node, outer: AttrPath) -> None:
        search.record(search.bindings.counts, (self.pattern, outer), length)
        search.record(search.bindings.heads, (self.pattern, outer), first)

    def _too_short(self, search: MatchSearch, length: int, node: Node) -> None:
        search.miss(self.pattern, node, "nodes of the chain", f"{self.pattern.min} or more", length)

    # Upward. From the last node each length would be another search, of the whole chain anew.

    def firsts(self, search: MatchSearch, above: Collection[Node]) -> Collection[Node]:
        return dict.fromkeys(self.inner.last_nodes(search, above))

    def up(self, node: Node, outer: AttrPath, rest: Goals) -> Goals:
        """The goals of a chain of which the node is the first one."""
        return self.instance(0, node, outer, (self._up, 1, outer, rest))

    def _up(self, search: MatchSearch, length: int, outer: AttrPath, rest: Goals) -> Goals | None:
        """End the chain at its newest instance, or go on to a user of which that is the only producer."""
        last = search.bindings.nodes[self.pattern.pattern, (*outer, length - 1)]

        def more() -> Iterator[Goals]:
            for node in sorted(self.firsts(search, search.users_beyond(last)), key=lambda node: node.index):
                onward = (self._join, (length, last), outer, (self._up, length + 1, outer, rest))
                yield self.instance(length, node, outer, onward)

        def end() -> Iterator[Goals]:
            if length >= self.pattern.min:
                yield (self._end, (length, last), outer, rest)
            else:
                self._too_short(search, length, last)

        return self._longer(search, length, more(), end())

    def _join(self, search: MatchSearch, state: tuple[int, Node], outer: AttrPath, rest: Goals) -> Goals | None:
        """The goal that the newest instance has the one before it as its only producer."""
        number, below = state
        first = search.bindings.head(self.pattern.pattern, (*outer, number))
        assert first is not None
        ways = [skipped for node, skipped in producers(search, first, sole=self.pattern.sole) if node is below]
        if ways == [()]:
            return rest
        return search.choose(rest for skipped in ways if search.skip_all(skipped))

    def _end(self, search: MatchSearch, state: tuple[int, Node], outer: AttrPath, rest: Goals) -> Goals | None:
        length, last = state
        first = search.bindings.head(self.pattern.pattern, (*outer, 0))
        assert first is not None
        search.record(search.bindings.nodes, self.pattern, last)  # no template is found upward
        self._note(search, length, first, outer)
        return check_all(search, self.guards, outer, rest)


def producers(search: MatchSearch, node: Node, *, sole: bool) -> Iterator[tuple[Node, tuple[Node, ...]]]:
    """The only computed operand of a node, if there is exactly one, and the node that it becomes when nodes are
    skipped.

    Unless it is to be the sole one: each computed operand that nothing else uses. So a node has one way up, and all
    chains that end at a node are as many as the nodes below.
    """
    for operand in computed(node, search.outputs, sole=sole):
        for below, skipped in search.beyond(operand):
            if below.op not in LEAVES:
                yield below, skipped


def computed(node: Node, outputs: Container[Node], *, sole: bool) -> Collection[Node]:
    """The computed operands of a node from which a chain may come: the only one, or those that nothing else uses."""
    found = dict.fromkeys([operand for operand in node.operands if operand.op not in LEAVES])
    if sole:
        return found if len(found) == 1 else ()
    return [operand for operand in found if len(operand.users) == 1 and operand not in outputs]


class Dependents:
    """Candidates in graph order, and for each of them a set of bits: which of the next ones depend on it."""

    def __init__(self, nodes: Iterable[Node], effects: Iterable[Node]) -> None:
        self.nodes = sorted(nodes, key=_index)
        self.places = {node: place for place, node in enumerate(self.nodes)}
        self.indices = [node.index for node in self.nodes]
        self.barriers = sorted([node.index for node in effects])
        """The numbers of nodes with effects, across which nothing is joined."""
        self.above = self._above()
        """For each candidate its bits: bit *k* is the candidate *k* places after it."""

    def _above(self) -> list[int]:
        """One walk over all that is made of candidates, users first. Bits count from the place of a node."""
        last = self.indices[-1]
        known: dict[Node, tuple[int, int]] = {}
        stack = list(self.nodes)
        while stack:
            node = stack[-1]
            users = () if node in known else [user for user in node.users if user.index <= last]
            waiting = [user for user in users if user not in known]
            if waiting:
                stack += waiting
                continue
            stack.pop()
            if node not in known:
                own = self.places.get(node)
                place, bits = (bisect_left(self.indices, node.index), 0) if own is None else (own, 1)
                for above, more in map(known.__getitem__, users):
                    if 0 <= above - place <= WINDOW:
                        bits |= more << (above - place)
                known[node] = place, bits & (2 << WINDOW) - 1
        return [known[node][1] for node in self.nodes]

    def end(self, node: Node) -> int:
        """The place of the first candidate behind the next node with an effect."""
        number = bisect_left(self.barriers, node.index)
        return bisect_left(self.indices, self.barriers[number]) if number < len(self.barriers) else len(self.nodes)


class Apart:
    """The nodes that may be instances beside a first one, in graph order: none depends on one that was taken."""

    def __init__(
        self, dependents: Dependents, first: Node, outputs: Container[Node], blocked: Collection[Node]
    ) -> None:
        self.dependents = dependents
        self.outputs = outputs
        self.blocked = blocked
        self.place = dependents.places[first]
        self.low = self.high = first.index
        """The least and the greatest number of those that were taken."""
        self.taken: set[Node] = set()
        self.clean: set[Node] = set()
        """Nodes that depend on none that was taken."""
        self.free = (1 << max(0, min(dependents.end(first) - self.place, WINDOW + 1))) - 1
        """The candidates that may still be taken, as bits."""
        self.take(first)

    def take(self, node: Node) -> None:
        """Note that there is an instance at a node."""
        self.taken.add(node)
        self.high = node.index
        place = self.dependents.places[node]
        self.free &= ~(self.dependents.above[place] << (place - self.place))

    def __iter__(self) -> Iterator[Node]:
        while self.free:
            bit = self.free & -self.free
            self.free ^= bit
            node = self.dependents.nodes[self.place + bit.bit_length() - 1]
            if (node.users or node in self.outputs) and not (self.blocked and self._is_joined(node)):
                yield node

    def _is_joined(self, node: Node) -> bool:
        """True if a node may depend on one that was taken, or that one on it, by what was rewritten so far."""
        if node.index <= self.high:
            return True
        seen, work = {node}, [node]
        while work:
            below = work.pop()
            for other in (*below.operands, *below.deps):
                if other in self.taken:
                    return True
                if other.index >= self.low and other not in seen and other not in self.clean:
                    seen.add(other)
                    work.append(other)
        self.clean |= seen
        return False


_index = attrgetter("index")

"""Chains, compiled: downward from the last node, or upward from the first."""

from __future__ import annotations

from collections.abc import Callable, Collection, Container, Iterable, Iterator, Mapping
from functools import cached_property
from itertools import chain
from typing import TYPE_CHECKING, Any

from gsl.graph import LEAVES, Node, Op
from gsl.match.bindings import AttrPath, N
from gsl.match.guard import Guard
from gsl.match.machine import Goals, Machine
from gsl.match.matchers import Matcher, check_all
from gsl.pat import Pattern, Repeat

if TYPE_CHECKING:
    from gsl.match.engine import MatchSearch


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

        return self._longer(search, length, more(), end())

    def _note(self, search: MatchSearch, length: int, first: Node, outer: AttrPath) -> None:
        search.record(search.bindings.counts, (self.pattern, outer), length)
        search.record(search.bindings.heads, (self.pattern, outer), first)

    # Upward. From the last node each length would be another search, of the whole chain anew.

    def firsts(self, search: MatchSearch, above: Iterable[Node]) -> Iterable[Node]:
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
        key: Any = (self.pattern, outer) if self.level else self.pattern
        first = search.bindings.head(self.pattern.pattern, (*outer, 0))
        assert first is not None
        search.record(search.bindings.nodes, key, last)
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

"""The goals of use relations, and of steps up to users."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

from gsl.graph import Node, Op
from gsl.match.bindings import AttrPath, N
from gsl.match.machine import Goals, Machine, Some
from gsl.match.matchers import CallMatcher, GetItemMatcher, Matcher, TupleMatcher
from gsl.pat import Pattern, Seq, Use

if TYPE_CHECKING:
    from gsl.match.engine import MatchSearch


class Link:
    """A use relation: verified where both sides are bound, and otherwise the way from the bound side to the other."""

    __slots__ = ("level", "operand", "use", "user")
    wide = False
    """Of a step to either side: it starts from the other one, see :class:`gsl.match.uses.Up`."""

    def __init__(self, use: Use, matchers: Mapping[Pattern, Matcher], level: int = 0) -> None:
        self.use = use
        self.level = level
        """The number of variadics that have the owner of the relation as a template."""
        self.operand = matchers[use.operand]
        self.user = matchers[use.user]

    def is_ready(self, search: Machine[N], path: AttrPath) -> bool:
        """True if one side is bound."""
        operand, user = search.bindings.get(self.use.operand, path), search.bindings.head(self.use.user, path)
        return operand is not None or user is not None

    def lost(self, search: Machine[N]) -> None:
        """Note that neither side is bound."""
        search.miss(self.use.user, None, "connection", "a node in common with the other patterns", "none")

    def step(self, search: Machine[N], _: Any, path: AttrPath, rest: Goals) -> Goals | None:
        """The goal that the relation holds."""
        key = (self.use, path[: self.level])
        if key in search.related:
            return rest
        operand = search.bindings.get(self.use.operand, path)
        user = search.bindings.head(self.use.user, path)
        if operand is not None and user is not None:
            return search.relate(self, operand, user, key, rest)
        again = (self.step, None, path, rest)
        if user is not None:
            match = self.operand.match
            return search.each(search.used_by(self, user), lambda node: (match, node, path, again))
        assert operand is not None, f"neither side of {self.use!r} is bound"
        ascend = self.user.ascend
        nodes = search.users_of(self, operand)
        return search.each(nodes, lambda node: ascend(search, node, path, again), in_order=True)


class Skipping(Matcher):
    """An operand's matcher that also looks beyond nodes that may be skipped."""

    __slots__ = ("inner",)

    def __init__(self, inner: Matcher) -> None:
        super().__init__(inner.pattern, inner.level, inner.identity)
        self.inner = inner

    def match(self, search: Machine[N], node: N, path: AttrPath, rest: Goals) -> Goals | None:
        match = self.inner.match
        return search.skip(node, lambda below: (match, below, path, rest))


def skip_between(matcher: Matcher, over: Mapping[Pattern, Matcher]) -> None:
    """Let operators that may be skipped stand between a matcher and its operands."""

    def instead(operand: Matcher) -> Matcher:
        return over.get(operand.pattern, operand)

    match matcher:
        case CallMatcher():
            matcher.operands = tuple(map(instead, matcher.operands))
        case TupleMatcher():
            matcher.items = tuple(map(instead, matcher.items))
        case GetItemMatcher():
            matcher.tuple = instead(matcher.tuple)


class SeqMatcher(Matcher):
    """A sequence: its tail's node, with its relations."""

    __slots__ = ("links", "spine")
    operator = False
    same_node = True
    pattern: Seq

    def link(self, matchers: Mapping[Pattern, Matcher]) -> None:
        self.spine = tuple([matchers[part] for part in self.pattern.spine])
        self.links = tuple([Link(use, matchers, self.level) for use in self.pattern.uses])

    @cached_property
    def ops(self) -> frozenset[Op] | None:
        return self.spine[-1].ops

    def of_class(self) -> Callable[[Op], bool] | None:
        return self.spine[-1].accepts

    def last_nodes(self, search: MatchSearch, firsts: Collection[Node]) -> Collection[Node]:
        nodes = dict.fromkeys(self.spine[0].last_nodes(search, firsts))
        for matcher in self.spine[1:]:
            above = dict.fromkeys(user for node in nodes for user in search.users_beyond(node))
            nodes = dict.fromkeys(matcher.last_nodes(search, above))
        return nodes

    def descend(self, search: Machine[N], node: N, path: AttrPath, rest: Goals) -> Goals | None:
        for link in self.links:  # the last one is the first goal: from the tail to the head
            rest = (link.step, None, path, rest)
        return (self.spine[-1].match, node, path, rest)


class Up:
    """The step from bound patterns up to a goal that is made of them.

    ``parts`` are the patterns on the way, operands first: each with the patterns below it, which are bound or stand
    earlier in the list. The last one is the goal. ``wide``: a choice of an alternative on the way is not made of them,
    so that the goal may be any node that is connected with what is bound.
    """

    __slots__ = ("goal", "parts", "wide")

    def __init__(self, parts: Sequence[tuple[Matcher, tuple[Pattern, ...]]], *, wide: bool) -> None:
        self.parts = tuple(parts)
        self.goal = self.parts[-1][0]
        self.wide = wide

    def nodes(self, search: Machine[N], path: AttrPath) -> Some:
        """The nodes that the goal may be."""
        if self.wide:
            return search.connected(self.goal)
        get = search.bindings.get
        reached: dict[Pattern, Some] = {}
        for matcher, below in self.parts:
            if get(matcher.pattern, path) is not None:
                continue
            given: list[Some] = []
            for pattern in below:
                node = get(pattern, path)
                if node is not None:
                    given.append([node])
                elif pattern in reached:
                    given.append(reached[pattern])
            reached[matcher.pattern] = search.users(matcher, given, last=matcher is self.goal)
        return reached[self.goal.pattern]

    def is_ready(self, search: Machine[N], path: AttrPath) -> bool:
        """True if a pattern is bound from which the step leads up."""
        get = search.bindings.get
        return self.wide or any(get(m.pattern, path) or any(get(p, path) for p in below) for m, below in self.parts)

    def lost(self, search: Machine[N]) -> None:
        """Note that nothing is bound from which the step leads up."""
        search.miss(self.goal.pattern, None, "connection", "a node in common with the other patterns", "none")

    def step(self, search: Machine[N], _: Any, path: AttrPath, rest: Goals) -> Goals | None:
        """The goal of finding a node that matches, if an alternative has not bound it already."""
        if self.goal.pattern in search.bindings.nodes:
            return rest
        match = self.goal.match
        return search.each(self.nodes(search, path), lambda node: (match, node, path, rest), in_order=True)


def climb(search: Machine[N], ups: tuple[Up | Link, ...], path: AttrPath, rest: Goals) -> Goals | None:
    """The goal of doing all steps: each when the pattern is bound from which it starts, which may depend on an
    alternative."""
    if not ups:
        return rest
    ready = [number for number, up in enumerate(ups) if up.is_ready(search, path)]
    number = next((number for number in ready if not ups[number].wide), ready[0] if ready else None)
    if number is None:
        return ups[0].lost(search)
    return (ups[number].step, None, path, (climb, ups[:number] + ups[number + 1 :], path, rest))

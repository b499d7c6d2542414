"""The goals of use relations and of chains."""

from __future__ import annotations

from collections.abc import Callable, Collection, Container, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from itertools import chain
from typing import TYPE_CHECKING, Any

from gsl.attr.ast import Literal
from gsl.graph import LEAVES, Node, Op
from gsl.match.bindings import AttrPath, N
from gsl.match.conditions import LiteralValue
from gsl.match.guard import Guard
from gsl.match.machine import END, Goals, Machine, Some
from gsl.match.matchers import AltMatcher, CallMatcher, GetItemMatcher, Matcher, TupleMatcher, check_all
from gsl.pat import Alt, And, Call, GetItem, Leaf, Not, OpClass, Pattern, Repeat, Seq, Tuple, Use, walk

if TYPE_CHECKING:
    from gsl.match.engine import MatchSearch
    from gsl.match.start import Start


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
        if operand is not None:
            ascend = self.user.ascend
            nodes = search.users_of(self, operand)
            return search.each(nodes, lambda node: ascend(search, node, path, again), in_order=True)
        raise AssertionError(f"neither side of {self.use!r} is bound")


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

    def __init__(self, pattern: Seq, level: int, identity: Pattern) -> None:
        super().__init__(pattern, level, identity)
        self.links: tuple[Link, ...] = ()

    def link(self, matchers: Mapping[Pattern, Matcher]) -> None:
        self.spine = tuple([matchers[part] for part in self.pattern.spine])
        self.links = tuple([Link(use, matchers, self.level) for use in self.pattern.uses])

    @cached_property
    def ops(self) -> frozenset[Op] | None:
        return self.spine[-1].ops

    def of_class(self) -> Callable[[Op], bool] | None:
        return self.spine[-1].accepts

    def last_nodes(self, search: MatchSearch, firsts: Iterable[Node]) -> Iterable[Node]:
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
            bound = get(matcher.pattern, path)
            if bound is not None:
                reached[matcher.pattern] = [bound]
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


_PLAIN = (Alt, And, Call, GetItem, Leaf, Tuple)
"""The patterns that are about operands alone."""


def mark_closed(start: Start) -> None:
    """Set ``closed`` of the alternatives of a start."""
    alternatives = [matcher for matcher in start.matchers.values() if isinstance(matcher, AltMatcher)]
    if not alternatives or start.plan.fuzzy:
        return
    above: dict[Pattern, list[Pattern]] = {}
    for pattern in start.plan.patterns:
        for child in pattern.children():
            above.setdefault(child, []).append(pattern)
    related = {pattern for use in start.plan.ways for pattern in use.patterns()}
    for matcher in alternatives:
        inside = set(walk(matcher.pattern))
        beneath = inside - {matcher.pattern}
        matcher.closed = (
            all(map(_is_plain, inside))
            and inside.isdisjoint(start.plan.scopes)
            and beneath.isdisjoint(start.plan.required)
            and beneath.isdisjoint(related)
            and all(user in inside for pattern in beneath for user in above[pattern])
            and all(_is_about(guard, inside) for pattern in inside for guard in start.matchers[pattern].guards)
        )


def _is_plain(pattern: Pattern) -> bool:
    """True if a node and its operands decide if the pattern matches."""
    if isinstance(pattern, Call) and isinstance(pattern.op, OpClass) and pattern.op.joint:
        return False
    return isinstance(pattern, _PLAIN)


def _is_about(guard: Guard, inside: set[Pattern]) -> bool:
    """True if a guard looks at no other patterns than these."""
    if type(guard) not in (Guard, LiteralValue):
        return False
    return guard.owner in inside and inside.issuperset(guard.references())


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


class Absent(Guard):
    """The guard that a negated pattern does not match its node."""

    __slots__ = ("goals", "inside", "matcher", "outside")

    def __init__(self, owner: Not, matcher: Matcher, outside: frozenset[Pattern]) -> None:
        super().__init__(owner, "no match", Literal(True), None)
        self.matcher = matcher
        self.outside = outside
        """The patterns around it to which it refers."""
        self.inside: list[Guard] = []
        """The guards of the negated pattern that need more than a part of it."""

    def references(self) -> Iterator[Pattern]:
        return iter(self.outside)

    def check(self, search: MatchSearch, path: AttrPath) -> bool:
        owner = self.owner
        assert owner is not None
        node = search.bindings.get(owner, path)
        if node is None:
            return True
        goals = (self.matcher.match, node, path, (check_all, self.inside, path, END))
        if search.exists(goals, alone=True):
            search.miss(owner, node, "no match", self.matcher.pattern, node)
            return False
        return True

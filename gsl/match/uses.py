"""Use relations, compiled: the step from one side of a relation to the other, and the nodes that may stand between."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from gsl.graph import Node
from gsl.match.bindings import AttrPath
from gsl.match.crowd import MANY
from gsl.match.matchers import AltMatcher, AndMatcher, CallMatcher, GetItemMatcher, Goals, Matcher, TupleMatcher
from gsl.pat import Pattern, Seq, Use

if TYPE_CHECKING:
    from gsl.match.engine import MatchSearch


Skipped = tuple[Node, ...]
"""The nodes that stand between a user and its operand, from the user down."""


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

    def is_ready(self, search: MatchSearch, path: AttrPath) -> bool:
        """True if one side is bound."""
        operand, user = search.bindings.get(self.use.operand, path), search.bindings.head(self.use.user, path)
        return operand is not None or user is not None

    def lost(self, search: MatchSearch) -> None:
        """Note that neither side is bound."""
        search.miss(self.use.user, None, "connection", "a node in common with the other patterns", "none")

    def step(self, search: MatchSearch, _: Any, path: AttrPath, rest: Goals) -> Goals | None:
        """The goal that the relation holds."""
        key = (self.use, path[: self.level])
        if key in search.related:
            return rest
        operand = search.bindings.get(self.use.operand, path)
        user = search.bindings.head(self.use.user, path)
        if operand is not None and user is not None:
            return self._verify(search, operand, user, key, rest)
        again = (self.step, None, path, rest)
        if user is not None:
            match = self.operand.match
            ways = dict.fromkeys(node for node, _ in self._below(search, user))
            below = [node for node in ways if self.operand.plausible(node)]
            if not below:
                search.miss(self.operand.pattern, user, "operand", self.operand.pattern, list(ways))
            return search.choose((match, node, path, again) for node in below)
        if operand is not None:
            return self._ascend(search, operand, path, again)
        raise AssertionError(f"neither side of {self.use!r} is bound")

    def _ascend(self, search: MatchSearch, operand: Node, path: AttrPath, again: Goals) -> Goals | None:
        nodes = sorted(self.user.firsts(search, users(operand, search)), key=lambda node: node.index)
        if not nodes:
            search.miss(self.user.pattern, operand, "user", self.user.pattern, list(operand.users))
        ascend = self.user.ascend
        return search.choose(ascend(node, path, again) for node in nodes)

    def _below(self, search: MatchSearch, user: Node) -> Iterator[tuple[Node, Skipped]]:
        """The nodes that are operands of the user, each with the nodes that are skipped on the way to it."""
        index = self.use.index
        operands = user.operands if index is None else user.operands[index : index + 1]
        for node in dict.fromkeys(operands):
            yield from beyond(search, node)

    def _verify(self, search: MatchSearch, operand: Node, user: Node, key: Any, rest: Goals) -> Goals | None:
        ways = [skipped for node, skipped in self._below(search, user) if node is operand]
        if not ways:
            place = "operand" if self.use.index is None else f"operand {self.use.index}"
            search.miss(self.use.user, user, place, operand, list(user.operands))
        ways = [skipped for skipped in ways if self._alone(search, operand, user, skipped)]
        if not ways:
            return None
        if ways == [()]:
            search.record(search.related, key, True)
            return rest

        def hold() -> Iterator[Goals]:
            for skipped in ways:
                if skip_all(search, skipped):
                    search.record(search.related, key, True)
                    yield rest

        return search.choose(hold())

    def _alone(self, search: MatchSearch, operand: Node, user: Node, skipped: Skipped) -> bool:
        """True if nothing else uses the operand, or if the relation does not demand that."""
        if not self.use.only:
            return True
        for above, node in pairwise((user, *skipped, operand)):
            other = next((other for other in node.users if other is not above), None)
            if other is not None:
                return search.miss(self.use.operand, node, "only user", above, other)
            if node in search.outputs:
                return search.miss(self.use.operand, node, "only user", above, "the graph's output")
        return True


def users(node: Node, search: MatchSearch) -> list[Node]:
    """The users of a node, also beyond nodes that may be skipped."""
    if not search.fuzzy:
        return list(node.users)
    found: dict[Node, None] = {}
    work = [node]
    while work:
        for user in work.pop().users:
            if user not in found:
                found[user] = None
                if user.op in search.fuzzy:
                    work.append(user)
    return list(found)


def beyond(search: MatchSearch, node: Node) -> Iterator[tuple[Node, Skipped]]:
    """An operand, and the nodes that it becomes when nodes are skipped: for each of these its first operand."""
    skipped: Skipped = ()
    yield node, skipped
    while node.op in search.fuzzy and node.operands:
        skipped = (*skipped, node)
        node = node.operands[0]
        yield node, skipped


def skip_all(search: MatchSearch, nodes: Iterable[Node]) -> bool:
    """Let nodes stand between two related ones: they are part of the match, but no pattern is bound to them."""
    mark = len(search.trail)
    for node in nodes:
        if node not in search.bindings.skipped:
            if not search.take(node, _SKIPPED):
                search.undo(mark)
                return False
            search.record(search.bindings.skipped, node, True)
    return True


_SKIPPED = (None, ())
"""The owner of the nodes that are skipped: any number of relations may skip the same one."""


class Skipping(Matcher):
    """An operand's matcher that also looks beyond nodes that may be skipped."""

    __slots__ = ("inner",)

    def __init__(self, inner: Matcher) -> None:
        super().__init__(inner.pattern, inner.level, inner.identity)
        self.inner = inner

    def plausible(self, node: Node) -> bool:
        return True

    def match(self, search: MatchSearch, node: Node, path: AttrPath, rest: Goals) -> Goals | None:
        match = self.inner.match
        if node.op not in search.fuzzy:
            return match(search, node, path, rest)
        ways = beyond(search, node)
        return search.choose((match, below, path, rest) for below, skipped in ways if skip_all(search, skipped))


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
    pattern: Seq

    def __init__(self, pattern: Seq, level: int, identity: Pattern) -> None:
        super().__init__(pattern, level, identity)
        self.links: tuple[Link, ...] = ()

    def link(self, matchers: Mapping[Pattern, Matcher]) -> None:
        self.spine = tuple([matchers[part] for part in self.pattern.spine])
        self.links = tuple([Link(use, matchers, self.level) for use in self.pattern.uses])

    def plausible(self, node: Node) -> bool:
        return self.spine[-1].plausible(node)

    def last_nodes(self, search: MatchSearch, firsts: Iterable[Node]) -> Iterable[Node]:
        nodes = dict.fromkeys(self.spine[0].last_nodes(search, firsts))
        for matcher in self.spine[1:]:
            above = dict.fromkeys(user for node in nodes for user in users(node, search))
            nodes = dict.fromkeys(matcher.last_nodes(search, above))
        return nodes

    def descend(self, search: MatchSearch, node: Node, path: AttrPath, rest: Goals) -> Goals | None:
        for link in self.links:  # the last one is the first goal: from the tail to the head
            rest = (link.step, None, path, rest)
        return (self.spine[-1].match, node, path, rest)


# ---------------------------------------------------------------- the way up


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

    def candidates(self, search: MatchSearch, path: AttrPath) -> list[Node]:
        """The nodes that the goal may be, in graph order."""
        if self.wide:
            return sorted(filter(self.goal.plausible, _connected(search.bindings.nodes.values())), key=_index)
        reached: dict[Pattern, list[Node]] = {}
        for matcher, below in self.parts:
            bound = search.bindings.get(matcher.pattern, path)
            found: dict[Node, None] = {} if bound is None else {bound: None}
            for pattern in below if bound is None else ():
                known = search.bindings.get(pattern, path)
                for node in reached.get(pattern, ()) if known is None else (known,):
                    self._add(search, matcher, node, found)
            reached[matcher.pattern] = list(found)
        return sorted(reached[self.goal.pattern], key=_index)

    def _crowd(self, search: MatchSearch, path: AttrPath) -> Iterator[Node] | None:
        """The nodes that the goal may be, one after the other, where they are among the many users of one node."""
        if search.crowds is None or search.on_miss is not None or search.fuzzy or len(self.parts) != 1:
            return None
        below = [node for p in self.parts[0][1] if (node := search.bindings.get(p, path)) is not None]
        if len(below) != 1 or len(below[0].users) < MANY or not isinstance(self.goal, CallMatcher):
            return None
        return search.crowds.above(below[0], self.goal.ops, search.blocked)

    @staticmethod
    def _add(search: MatchSearch, matcher: Matcher, node: Node, found: dict[Node, None]) -> None:
        """Find the nodes right above one that the matcher may be."""
        if isinstance(matcher, (AltMatcher, AndMatcher, SeqMatcher)):  # the same node as what they are made of
            if matcher.plausible(node):
                found[node] = None
            return
        before = len(found)
        for user in users(node, search):
            if matcher.plausible(user):
                found[user] = None
        if len(found) == before:
            search.miss(matcher.pattern, node, "user", matcher.pattern, list(node.users))

    def is_ready(self, search: MatchSearch, path: AttrPath) -> bool:
        """True if a pattern is bound from which the step leads up."""
        get = search.bindings.get
        return self.wide or any(get(m.pattern, path) or any(get(p, path) for p in below) for m, below in self.parts)

    def lost(self, search: MatchSearch) -> None:
        """Note that nothing is bound from which the step leads up."""
        search.miss(self.goal.pattern, None, "connection", "a node in common with the other patterns", "none")

    def step(self, search: MatchSearch, _: Any, path: AttrPath, rest: Goals) -> Goals | None:
        """The goal of finding a node that matches, if an alternative has not bound it already."""
        if self.goal.pattern in search.bindings.nodes:
            return rest
        match = self.goal.match
        crowd = self._crowd(search, path)
        if crowd is not None:
            return search.choose((match, node, path, rest) for node in crowd)
        nodes = self.candidates(search, path)
        if len(nodes) == 1:
            return (match, nodes[0], path, rest)
        return search.choose((match, node, path, rest) for node in nodes)


def _connected(nodes: Iterable[Node]) -> Iterable[Node]:
    """The nodes from which operands and users lead to one of the given ones."""
    seen = dict.fromkeys(nodes)
    work = list(seen)
    while work:
        node = work.pop()
        new = [other for other in (*node.operands, *node.users) if other not in seen]
        seen.update(dict.fromkeys(new))
        work += new
    return seen


def _index(node: Node) -> int:
    return node.index

"""The way up from bound patterns to a pattern that is made of them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from gsl.graph import Node
from gsl.match.bindings import Path
from gsl.match.crowd import MANY
from gsl.match.matchers import AltMatcher, AndMatcher, CallMatcher, Goals, Matcher
from gsl.match.uses import SeqMatcher, users
from gsl.pat import Pattern

if TYPE_CHECKING:
    from gsl.match.engine import Search


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

    def candidates(self, search: Search, path: Path) -> list[Node]:
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

    def _crowd(self, search: Search, path: Path) -> Iterator[Node] | None:
        """The nodes that the goal may be, one after the other, where they are among the many users of one node."""
        if search.crowds is None or search.on_miss is not None or search.fuzzy or len(self.parts) != 1:
            return None
        below = [node for p in self.parts[0][1] if (node := search.bindings.get(p, path)) is not None]
        if len(below) != 1 or len(below[0].users) < MANY or not isinstance(self.goal, CallMatcher):
            return None
        return search.crowds.above(below[0], self.goal.ops, search.blocked)

    @staticmethod
    def _add(search: Search, matcher: Matcher, node: Node, found: dict[Node, None]) -> None:
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

    def is_ready(self, search: Search, path: Path) -> bool:
        """True if a pattern is bound from which the step leads up."""
        get = search.bindings.get
        return self.wide or any(get(m.pattern, path) or any(get(p, path) for p in below) for m, below in self.parts)

    def lost(self, search: Search) -> None:
        """Note that nothing is bound from which the step leads up."""
        search.miss(self.goal.pattern, None, "connection", "a node in common with the other patterns", "none")

    def step(self, search: Search, _: Any, path: Path, rest: Goals) -> Goals | None:
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

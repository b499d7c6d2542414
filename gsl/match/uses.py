"""Use relations, compiled: the step from one side of a relation to the other, chains, and what may stand between."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from gsl.attr.ast import Literal
from gsl.attr.evaluate import same
from gsl.graph import LEAVES, Node
from gsl.match.guard import Guard, Path
from gsl.match.literal import decidedly_same
from gsl.match.matchers import Goals, Matcher, check_all
from gsl.pat import AttrEqual, ExternUse, Pattern, Repeat, Seq, Unique, Use
from gsl.spec import TABLE

if TYPE_CHECKING:
    from gsl.match.engine import Search


class Link:
    """A use relation: verified where both sides are bound, and otherwise the way from the bound side to the other."""

    __slots__ = ("operand", "use", "user")

    def __init__(self, use: Use, matchers: Mapping[Pattern, Matcher]) -> None:
        self.use = use
        self.operand = matchers[use.operand]
        self.user = matchers[use.user]

    def step(self, search: Search, _: Any, path: Path, rest: Goals) -> Goals | None:
        """The goal that the relation holds."""
        operand = search.bindings.get(self.use.operand, path)
        user = search.bindings.head(self.use.user, path)
        if operand is not None and user is not None:
            return rest if self._holds(search, operand, user) else None
        again = (self.step, None, path, rest)
        if user is not None:
            match = self.operand.match
            below = dict.fromkeys(node for node, _ in self._below(search, user))
            return search.choose((match, node, path, again) for node in below if self.operand.plausible(node))
        if operand is not None:
            match = self.user.match
            above = self.user.last_nodes(search, users(operand, search))
            nodes = sorted(dict.fromkeys(above), key=lambda node: node.index)
            if not nodes:
                search.miss(self.user.pattern, operand, "user", self.user.pattern, list(operand.users))
            return search.choose((match, node, path, again) for node in nodes)
        raise AssertionError(f"neither side of {self.use!r} is bound")

    def _below(self, search: Search, user: Node) -> Iterator[tuple[Node, tuple[Node, ...]]]:
        """The nodes that are operands of the user, each with the nodes that are skipped on the way to it."""
        index = self.use.index
        operands = user.operands if index is None else user.operands[index : index + 1]
        for node in operands:
            skipped: tuple[Node, ...] = ()
            yield node, skipped
            while node.op in search.fuzzy:
                skipped = (*skipped, node)
                node = node.operands[0]
                yield node, skipped

    def _holds(self, search: Search, operand: Node, user: Node) -> bool:
        ways = [skipped for node, skipped in self._below(search, user) if node is operand]
        if not ways:
            place = "operand" if self.use.index is None else f"operand {self.use.index}"
            return search.miss(self.use.user, user, place, operand, list(user.operands))
        for skipped in ways:
            if self._alone(search, operand, user, skipped):
                return all(skip(search, node) for node in skipped)
        return False

    def _alone(self, search: Search, operand: Node, user: Node, skipped: tuple[Node, ...]) -> bool:
        """Whether nothing else uses the operand, if the relation demands that."""
        if not self.use.only:
            return True
        chain = (user, *skipped, operand)
        for above, node in pairwise(chain):
            others = [other for other in node.users if other is not above]
            if others:
                return search.miss(self.use.operand, node, "only user", above, others[0])
            if node in search.outputs:
                return search.miss(self.use.operand, node, "only user", above, "it is an output of the graph")
        return True


def users(node: Node, search: Search) -> Iterator[Node]:
    """The users of a node, also beyond nodes that may be skipped."""
    work = [node]
    while work:
        for user in work.pop().users:
            yield user
            if user.op in search.fuzzy:
                work.append(user)


def skip(search: Search, node: Node) -> bool:
    """Let a node stand between two related ones: it is part of the match, but no pattern is bound to it."""
    if node not in search.bindings.skipped:
        if not search.take(node, _SKIPPED):
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

    def match(self, search: Search, node: Node, path: Path, rest: Goals) -> Goals | None:
        if node.op not in search.fuzzy:
            return self.inner.match(search, node, path, rest)

        def ways() -> Iterator[Goals]:
            yield (self.inner.match, node, path, rest)
            if skip(search, node):
                yield (self.match, node.operands[0], path, rest)

        return search.choose(ways())


class SeqMatcher(Matcher):
    """A sequence: its tail's node, with its relations."""

    __slots__ = ("links", "tail")
    operator = False
    pattern: Seq

    def __init__(self, pattern: Seq, level: int, identity: Pattern) -> None:
        super().__init__(pattern, level, identity)
        self.links: tuple[Link, ...] = ()

    def link(self, matchers: Mapping[Pattern, Matcher]) -> None:
        self.tail = matchers[self.pattern.tail]
        self.links = tuple([Link(use, matchers) for use in self.pattern.constraints if isinstance(use, Use)])

    def plausible(self, node: Node) -> bool:
        return self.tail.plausible(node)

    def descend(self, search: Search, node: Node, path: Path, rest: Goals) -> Goals | None:
        for link in reversed(self.links):
            rest = (link.step, None, path, rest)
        return (self.tail.match, node, path, rest)


class RepeatMatcher(Matcher):
    """A chain, matched from its last node to its first."""

    __slots__ = ("inner", "instance_guards")
    operator = False
    pattern: Repeat

    def __init__(self, pattern: Repeat, level: int, identity: Pattern) -> None:
        super().__init__(pattern, level, identity)
        self.instance_guards: list[Guard] = []
        """The guards of the repeated pattern, checked for every node of the chain."""

    def link(self, matchers: Mapping[Pattern, Matcher]) -> None:
        self.inner = matchers[self.pattern.pattern]

    def plausible(self, node: Node) -> bool:
        return self.inner.plausible(node)

    def descend(self, search: Search, node: Node, path: Path, rest: Goals) -> Goals | None:
        return self._node(0, node, path[: self.level], rest)

    def _node(self, number: int, node: Node, outer: Path, rest: Goals) -> Goals:
        path = (*outer, number)
        onward = (self._onward, (number + 1, node), outer, rest)
        return (self.inner.match, node, path, (check_all, self.instance_guards, path, onward))

    def _onward(self, search: Search, state: tuple[int, Node], outer: Path, rest: Goals) -> Goals | None:
        """End the chain at this node, or go on to its only producer."""
        length, node = state
        below = _producer(node)
        longer = below is not None and length < (self.pattern.max or length + 1) and self.inner.plausible(below)

        def ways() -> Iterator[Goals]:
            if longer and self.pattern.greedy:
                yield self._node(length, below, outer, rest)  # type: ignore[arg-type]
            if length >= self.pattern.min:
                search.record(search.bindings.counts, (self.pattern, outer), length)
                search.record(search.bindings.heads, (self.pattern, outer), node)
                yield rest
            if longer and not self.pattern.greedy:
                yield self._node(length, below, outer, rest)  # type: ignore[arg-type]

        return search.choose(ways())

    def last_nodes(self, search: Search, firsts: Iterator[Node]) -> Iterator[Node]:
        """The nodes at which a chain may end that begins at one of the given nodes."""
        seen: dict[Node, None] = {}
        work = [node for node in firsts if self.plausible(node)]
        while work:
            node = work.pop()
            if node not in seen:
                seen[node] = None
                work += [user for user in node.users if self.plausible(user) and _producer(user) is node]
        return iter(seen)


def _producer(node: Node) -> Node | None:
    """The only operand of a node that is computed, if there is exactly one."""
    computed = dict.fromkeys(operand for operand in node.operands if operand.op not in LEAVES)
    return next(iter(computed)) if len(computed) == 1 else None


# The constraints that are not relations.


class Equal(Guard):
    """The guard that two calls have equal attributes."""

    __slots__ = ("constraint",)

    def __init__(self, constraint: AttrEqual) -> None:
        super().__init__(constraint.left, "attributes", Literal(True), None)
        self.constraint = constraint

    def references(self) -> Iterator[Pattern]:
        yield self.constraint.right

    def check(self, search: Search, path: Path) -> bool:
        left = search.bindings.get(self.constraint.left, path)
        right = search.bindings.get(self.constraint.right, path)
        if left is None or right is None:
            return left is None or search.miss(self.constraint.right, None, "attributes", "a match", None)
        spec = TABLE.get(left.op) if isinstance(left.op, str) else None
        names = self.constraint.names
        if names is None:
            names = tuple(name for name in left.attrs if spec is None or spec.attrs[name].derive is None)
        if self.constraint.names is None and set(left.attrs) != set(right.attrs):
            return search.miss(self.constraint.right, right, "attributes", sorted(left.attrs), sorted(right.attrs))
        for name in names:
            if name not in left.attrs or name not in right.attrs:
                return search.miss(
                    self.constraint.right, right, name, f"the {name} of %{left.name}", "no such attribute"
                )
            if not decidedly_same(left.attrs[name], right.attrs[name]):
                return search.miss(self.constraint.right, right, name, left.attrs[name], right.attrs[name])
        return True


class OneUser(Guard):
    """The guard that a node has exactly one user, where being an output of the graph counts as one."""

    __slots__ = ()

    def __init__(self, constraint: Unique) -> None:
        super().__init__(constraint.pattern, "uses", Literal(1), None)

    def check(self, search: Search, path: Path) -> bool:
        assert self.owner is not None
        node = search.bindings.get(self.owner, path)
        if node is None:
            return True
        count = len(node.users) + (node in search.outputs)
        found = [*(f"%{user.name}" for user in node.users), *(["the graph's output"] if node in search.outputs else [])]
        return same(count, 1) or search.miss(self.owner, node, "uses", 1, found)


class UsedOutside(Guard):
    """The guard that a node is used outside the match, or that it is not; without an owner, of every inner node."""

    __slots__ = ("outputs", "used")

    def __init__(self, constraint: ExternUse | None, used: bool, outputs: tuple[Pattern, ...] = ()) -> None:
        super().__init__(None if constraint is None else constraint.pattern, "use outside", Literal(used), None)
        self.used = used
        self.outputs = outputs

    def check(self, search: Search, path: Path) -> bool:
        if self.owner is not None:
            node = search.bindings.get(self.owner, path)
            return node is None or self._check(search, self.owner, node)
        ends = {node for output in self.outputs for node in search.bindings.all_of(output)}
        return all(node in ends or self._check(search, owner[0], node) for node, owner in search.taken.items())

    def _check(self, search: Search, pattern: Pattern | None, node: Node) -> bool:
        user = next((f"%{user.name}" for user in node.users if user not in search.taken), None)
        if user is None and node in search.outputs:
            user = "the graph's output"
        if (user is not None) == self.used:
            return True
        if self.used:
            return search.miss(pattern, node, "use outside", "a user outside the match", "none")
        return search.miss(pattern, node, "use outside", "no user outside the match", user)


def guard_of(constraint: object) -> Guard | None:
    """The guard of a constraint that is not a relation; ``None`` for one."""
    match constraint:
        case AttrEqual():
            return Equal(constraint)
        case Unique():
            return OneUser(constraint)
        case ExternUse():
            return UsedOutside(constraint, constraint.used)
    return None

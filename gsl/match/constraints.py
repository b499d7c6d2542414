"""The constraints that are not relations, as guards."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from gsl.attr.ast import Literal
from gsl.graph import Node
from gsl.match.bindings import AttrPath
from gsl.match.guard import Guard, decidedly_same
from gsl.pat import AttrEqual, Constraint, ExternUse, IsOutput, Pattern, Unique
from gsl.spec import TABLE

if TYPE_CHECKING:
    from gsl.match.engine import MatchSearch



class Equal(Guard):
    """The guard that two calls have equal attributes."""

    __slots__ = ("constraint",)

    def __init__(self, constraint: AttrEqual, carrier: Pattern | None) -> None:
        super().__init__(constraint.left if carrier is None else carrier, "attributes", Literal(True), None)
        self.constraint = constraint

    def references(self) -> Iterator[Pattern]:
        return iter(self.constraint.patterns())

    def check(self, search: MatchSearch, path: AttrPath) -> bool:
        right = search.bindings.get(self.constraint.right, path)
        left = search.bindings.get(self.constraint.left, path)
        if left is None or not is_bound(self, search, path):
            return True
        if right is None:
            return search.miss(self.constraint.right, None, "attributes", "a match", None)
        names = self.constraint.names
        if names is None:
            if set(left.attrs) != set(right.attrs):
                return search.miss(self.constraint.right, right, "attributes", sorted(left.attrs), sorted(right.attrs))
            spec = TABLE.get(left.op) if isinstance(left.op, str) else None
            names = tuple(name for name in left.attrs if spec is None or spec.attrs[name].derive is None)
        return all(self._equal(search, left, right, name) for name in names)

    def _equal(self, search: MatchSearch, left: Node, right: Node, name: str) -> bool:
        pattern = self.constraint.right
        if name not in left.attrs or name not in right.attrs:
            return search.miss(pattern, right, name, f"the {name} of %{left.name}", "no such attribute")
        if decidedly_same(left.attrs[name], right.attrs[name]):
            return True
        return search.miss(pattern, right, name, left.attrs[name], right.attrs[name])


class OneUser(Guard):
    """The guard that a node has exactly one user, where being an output of the graph counts as one."""

    __slots__ = ("pattern",)

    def __init__(self, constraint: Unique, carrier: Pattern | None) -> None:
        super().__init__(constraint.pattern if carrier is None else carrier, "uses", Literal(1), None)
        self.pattern = constraint.pattern

    def references(self) -> Iterator[Pattern]:
        yield self.pattern

    def check(self, search: MatchSearch, path: AttrPath) -> bool:
        node = search.bindings.get(self.pattern, path)
        if node is None or not is_bound(self, search, path) or len(node.users) + (node in search.outputs) == 1:
            return True
        found: list[Node | str] = list(node.users)
        return search.miss(self.pattern, node, "uses", 1, found + ["the graph's output"] * (node in search.outputs))


class Output(Guard):
    """The guard that a node is an output of the graph."""

    __slots__ = ("pattern",)

    def __init__(self, constraint: IsOutput, carrier: Pattern | None) -> None:
        super().__init__(constraint.pattern if carrier is None else carrier, "place", Literal("output"), None)
        self.pattern = constraint.pattern

    def references(self) -> Iterator[Pattern]:
        yield self.pattern

    def check(self, search: MatchSearch, path: AttrPath) -> bool:
        node = search.bindings.get(self.pattern, path)
        if node is None or not is_bound(self, search, path) or node in search.outputs:
            return True
        return search.miss(self.pattern, node, "place", "an output of the graph", "an inner node")


class UsedOutside(Guard):
    """The guard that a node is used outside the match, or that it is not; without a pattern, of every inner node."""

    __slots__ = ("outputs", "pattern", "used")

    def __init__(
        self, pattern: Pattern | None, used: bool, outputs: tuple[Pattern, ...] = (), *, carrier: Pattern | None = None
    ) -> None:
        super().__init__(pattern if carrier is None else carrier, "use outside", Literal(used), None)
        self.pattern = pattern
        self.used = used
        self.outputs = outputs

    def check(self, search: MatchSearch, path: AttrPath) -> bool:
        if self.pattern is not None:
            node = search.bindings.get(self.pattern, path)
            return node is None or not is_bound(self, search, path) or self._check(search, self.pattern, node)
        ends = {node for output in self.outputs for node in search.bindings.all_of(output)}
        taken = [(node, owner) for node, owner in search.taken.items() if not path or owner[1] == path]
        return all(node in ends or self._check(search, owner[0], node) for node, owner in taken)

    def _check(self, search: MatchSearch, pattern: Pattern | None, node: Node) -> bool:
        user: Node | str | None = next((user for user in node.users if user not in search.taken), None)
        if user is None and node in search.outputs:
            user = "the graph's output"
        if (user is not None) == self.used:
            return True
        if self.used:
            return search.miss(pattern, node, "use outside", "a user outside the match", "none")
        return search.miss(pattern, node, "use outside", "no user outside the match", user)


def is_bound(guard: Guard, search: MatchSearch, path: AttrPath) -> bool:
    """True if the owner of a constraint is part of the match."""
    return guard.owner is None or search.bindings.get(guard.owner, path) is not None


def guard_of(constraint: Constraint, carrier: Pattern | None = None) -> Guard | None:
    """The guard of a constraint, for matches that bind the sequence that carries it; ``None`` for a relation."""
    match constraint:
        case AttrEqual():
            return Equal(constraint, carrier)
        case Unique():
            return OneUser(constraint, carrier)
        case ExternUse(pattern, used):
            return UsedOutside(pattern, used, carrier=carrier)
        case IsOutput():
            return Output(constraint, carrier)
    return None

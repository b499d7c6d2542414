"""The guards that the patterns of a source stand for."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from gsl.attr.ast import Ast, Literal
from gsl.attr.evaluate import Evaluator
from gsl.graph import Node
from gsl.match.bindings import AttrPath, Bindings
from gsl.match.guard import Guard, equal_in_single, equal_literal
from gsl.pat import Alt, And, Call, Const, GetItem, Leaf, Not, Pattern, Repeat, Seq, Variadic
from gsl.spec.natives import defaults

if TYPE_CHECKING:
    from gsl.match.engine import MatchSearch

Actual = Callable[["MatchSearch", Any, AttrPath], Any]


class Distinct(Guard):
    """The guard that a leaf is no other pattern's node (or no other leaf's)."""

    __slots__ = ("identity", "leaves")

    def __init__(self, owner: Leaf, identity: Mapping[Pattern, Pattern], *, leaves: bool) -> None:
        super().__init__(owner, "distinct", Literal(True), None)
        self.identity = identity
        self.leaves = leaves
        """True if only other leaves count."""

    def check(self, search: MatchSearch, path: AttrPath) -> bool:
        assert self.owner is not None
        nodes = search.bindings.nodes
        for mine, node in nodes.items():
            if pattern_of(mine) is self.owner:
                for key, other in nodes.items():
                    if other is node and key is not mine and self._counts(pattern_of(key)):
                        return search.miss(self.owner, node, "distinct", "a node of its own", pattern_of(key))
        return True

    def _counts(self, other: Pattern) -> bool:
        if isinstance(other, (Alt, And, Not, Seq, Repeat)) or (self.leaves and not isinstance(other, Leaf)):
            return False
        assert self.owner is not None
        return other is self.owner or self.identity.get(other, other) is not self.identity.get(self.owner, self.owner)


class LiteralValue(Guard):
    """The guard that a literal has the value of an expression."""

    __slots__ = ()

    def fits(self, expected: Any, actual: Any, node: Node) -> bool:
        return equal_literal(expected, actual) or equal_in_single(expected, node)

    def compare(self, evaluator: Evaluator, actual: Any, node: Node | None) -> tuple[bool, Any]:
        expected = evaluator.value(self.expected)
        equal = equal_literal(expected, actual) or (node is not None and equal_in_single(expected, node))
        return equal, expected


class Everywhere(Guard):
    """A guard of a template that can be checked at the end only, for all instances.

    ``around`` is how many of the scopes stand around what is checked: of these one instance is meant.
    """

    __slots__ = ("around", "guard", "scopes")

    def __init__(self, guard: Guard, scopes: tuple[Variadic | Repeat, ...], *, around: int = 0) -> None:
        super().__init__(guard.owner, guard.what, guard.expected, guard.actual)
        self.guard = guard
        self.scopes = scopes
        self.around = around

    def check(self, search: MatchSearch, path: AttrPath) -> bool:
        paths = _paths(search.bindings, self.scopes[self.around :], path[: self.around])
        return all(self.guard.check(search, instance) for instance in paths)


def _paths(bindings: Bindings[Node], scopes: tuple[Variadic | Repeat, ...], around: AttrPath) -> Iterator[AttrPath]:
    """The numbers of all instances, of the inner variadics in all instances of the outer ones."""
    paths: list[AttrPath] = [around]
    for variadic in scopes:
        paths = [(*path, i) for path in paths for i in range(bindings.counts.get((variadic, path), 0))]
    return iter(paths)


def pattern_of(key: Any) -> Pattern:
    """The pattern of a key of the bindings."""
    pattern: Pattern = key[0] if isinstance(key, tuple) else key
    return pattern


def guards_of(pattern: Pattern) -> Iterator[Guard]:
    """The conditions of a pattern that are not decided by looking at its node alone."""
    guard = pattern.guard
    if guard is not None:
        shape = guard.shape
        if isinstance(shape, tuple):
            for axis, size in enumerate(shape):
                if size is not None and not isinstance(size, Literal):
                    yield Guard(pattern, f"shape[{axis}]", size, _dimension(axis))
        elif shape is not None:
            yield Guard(pattern, "shape", shape, _property("shape"))
        for name, node in (("dtype", guard.dtype), ("ndim", guard.ndim)):
            if node is not None and not isinstance(node, Literal):
                yield Guard(pattern, name, node, _property(name))
    if isinstance(pattern, Call):
        for name, node in pattern.attrs.items():
            if not isinstance(node, Literal):
                yield Guard(pattern, name, node, _attribute(name))
    elif isinstance(pattern, GetItem) and pattern.number is not None and not isinstance(pattern.number, Literal):
        yield Guard(pattern, "index", pattern.number, _attribute("index"))
    elif isinstance(pattern, Variadic) and pattern.count is not None:
        yield Guard(pattern, "length", pattern.count, _length(pattern))
    elif isinstance(pattern, Const) and isinstance(pattern.literal, Ast) and not isinstance(pattern.literal, Literal):
        yield LiteralValue(pattern, "value", pattern.literal, _attribute("value"))


def _dimension(axis: int) -> Actual:
    return lambda search, node, path: node.shape[axis]


def _property(name: str) -> Actual:
    return lambda search, node, path: getattr(node, name)


def _length(variadic: Variadic) -> Actual:
    return lambda search, node, path: search.bindings.count(variadic, path)


def _attribute(name: str) -> Actual:
    def get(search: MatchSearch, node: Any, path: AttrPath) -> Any:
        if name not in node.attrs and name in (known := defaults(node.op)):
            return known[name]
        if name not in node.attrs:
            raise ValueError(f"{node!r} has no attribute {name!r}")
        return node.attrs[name]

    return get

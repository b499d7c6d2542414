"""Guards: conditions of patterns and of whole matches, which a search asks as soon as what they read is bound."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from gsl import pat
from gsl.attr import ast
from gsl.attr.ast import Ast, Literal
from gsl.attr.evaluate import Evaluator, same
from gsl.attr.text import short
from gsl.errors import EvaluationError, RewriteError
from gsl.graph import Node
from gsl.match.bindings import AttrPath, Bindings, MatchScope, pattern_of
from gsl.match.literals import canonical, decidedly_same, is_literal
from gsl.pat import Pattern
from gsl.pat.variadic import parts, references
from gsl.spec import spec_of
from gsl.spec.natives import defaults

if TYPE_CHECKING:
    from gsl.match.engine import MatchSearch

Actual = Callable[["MatchSearch", Any, AttrPath], Any]
Scopes = tuple[pat.Variadic | pat.Repeat, ...]
"""The variadics and chains around a template, outermost first."""


class Guard:
    """One condition: of a pattern (its *owner*), or of the whole match."""

    __slots__ = ("actual", "expected", "owner", "what")

    def __init__(self, owner: Pattern | None, what: str, expected: Ast, actual: Actual | None) -> None:
        self.owner = owner
        self.what = what
        self.expected = expected
        self.actual = actual
        """The value that the expression must equal; without it, the expression must be true."""

    def __repr__(self) -> str:
        return f"{self.what} == {self.expected!r}" if self.actual is not None else repr(self.expected)

    def references(self) -> Iterator[Pattern]:
        """The patterns that must be bound."""
        return references(self.expected)

    def check(self, search: MatchSearch, path: AttrPath) -> bool:
        """True if the condition holds, or if its owner is part of an alternative that was not taken."""
        owner = self.owner
        node = None
        if owner is not None:
            node = search.bindings.get(owner, path)
            if node is None and (owner, path) not in search.bindings.counts:  # a segment has no node
                return True
        evaluator = Evaluator(MatchScope(search.bindings, path), search.bindings.symbols(owner, path))
        actual: Any = None
        try:
            if self.actual is None:
                actual = evaluator.value(self.expected)
                holds, expected = not self.denies(actual), self.expected
                if not holds and search.on_miss is not None:
                    expected = _first_false(evaluator, self.expected)
                    actual = _found(evaluator, expected)
            else:
                actual = self.actual(search, node, path)
                holds, expected = self.compare(evaluator, actual, node)
        except (EvaluationError, ValueError) as error:
            search.miss(owner, node, self.what, self.expected, error)
            return False
        if not holds:
            search.miss(owner, node, self.what, expected, actual)
        return holds

    def denies(self, value: Any) -> bool:
        """True unless the value of a condition is true. RewriteError for a number, a text or a tuple; a comparison with
        a tensor has a tensor as its value, and does not hold."""
        if isinstance(value, (int, float, str, tuple)) and not isinstance(value, bool):
            raise RewriteError(
                f"{next(self.references()).location}: {self.what}= takes what is true or false, and {self.expected!r} "
                f"is {short(value)} here: compare it with something"
            )
        return value is not True

    def fits(self, expected: Any, actual: Any, node: Node) -> bool:
        """True if a node has the expected value, also if that is written in another form."""
        try:
            return same(expected, actual) or same(canonical(node, {self.what: expected})[self.what], actual)
        except (EvaluationError, ValueError):
            return False

    def compare(self, evaluator: Evaluator, actual: Any, node: Node | None) -> tuple[bool, Any]:
        """A pair: true if a value is the expected one, and the expected value."""
        holds, expected = evaluator.equals(self.expected, actual)
        if not holds and node is not None:
            expected = canonical(node, {self.what: expected})[self.what]
            holds = same(expected, actual)
        return holds, expected


def _first_false(evaluator: Evaluator, node: Ast) -> Ast:
    """Of conditions that must all hold, the first one that does not."""
    while isinstance(node, ast.Binary) and node.operator == "&":
        node = node.right if evaluator.value(node.left) is True else node.left
    return node


def _found(evaluator: Evaluator, node: Ast) -> str:
    """The sides of a comparison that does not hold, as text; of any other condition, the attributes that it reads."""
    if isinstance(node, ast.Binary) and node.operator in ("==", "!=", "<", "<=", ">", ">="):
        sides = f"{evaluator.value(node.left)!r} {node.operator} {evaluator.value(node.right)!r}"
        return sides + _in_the_call(evaluator, node.left, node.right)
    read: dict[str, None] = {}
    for part in parts(node):
        if isinstance(part, ast.Attribute):
            with suppress(EvaluationError):  # of an alternative that was not taken, or of an instance
                read[f"{part!r} is {short(evaluator.value(part))}"] = None
    return short(evaluator.value(node)) + (f" ({', '.join(reversed(read))})" if read else "")


def _in_the_call(evaluator: Evaluator, left: Ast, right: Ast) -> str:
    """A hint for an attribute that is compared with another form of its value, which a call may have."""
    if isinstance(left, ast.Attribute) and isinstance(left.pattern, pat.Call) and isinstance(right, Literal):
        assert isinstance(evaluator.scope, MatchScope)
        node = evaluator.scope.bindings.node(left.pattern, evaluator.scope.path, evaluator.symbols)
        try:
            form = canonical(node, {left.name: right.value})[left.name]
        except ValueError:
            return ""
        if not same(form, right.value) and same(form, node.attrs.get(left.name)):
            return f"; {left.name}={right.value!r} in the call would match"
    return ""


class Distinct(Guard):
    """The guard that a leaf is no other pattern's node (or no other leaf's)."""

    __slots__ = ("identity", "leaves")

    def __init__(self, owner: pat.Leaf, identity: Mapping[Pattern, Pattern], *, leaves: bool) -> None:
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
                    if other is node and key is not mine and self.counts(pattern_of(key)):
                        return search.miss(self.owner, node, "distinct", "a node of its own", pattern_of(key))
        return True

    def counts(self, other: Pattern) -> bool:
        """True if another pattern must not be bound to the leaf's node."""
        if self.leaves and not isinstance(other, pat.Leaf):
            return False
        if isinstance(other, (pat.Alt, pat.And, pat.Not, pat.Seq, pat.Repeat)):
            return False
        assert self.owner is not None
        return other is self.owner or self.identity.get(other, other) is not self.identity.get(self.owner, self.owner)


class LiteralValue(Guard):
    """The guard that a literal has the value of an expression."""

    __slots__ = ()

    def fits(self, expected: Any, actual: Any, node: Node) -> bool:
        return is_literal(expected, node)

    def compare(self, evaluator: Evaluator, actual: Any, node: Node | None) -> tuple[bool, Any]:
        assert node is not None
        expected = evaluator.value(self.expected)
        return self.fits(expected, actual, node), expected


class Everywhere(Guard):
    """A guard of a template that can be checked at the end only, for all instances.

    ``around`` is how many of the scopes stand around what is checked: of these one instance is meant.
    """

    __slots__ = ("around", "guard", "scopes")

    def __init__(self, guard: Guard, scopes: Scopes, *, around: int = 0) -> None:
        super().__init__(guard.owner, guard.what, guard.expected, guard.actual)
        self.guard = guard
        self.scopes = scopes
        self.around = around

    def check(self, search: MatchSearch, path: AttrPath) -> bool:
        paths = _paths(search.bindings, self.scopes[self.around :], path[: self.around])
        return all(self.guard.check(search, instance) for instance in paths)


def _paths(bindings: Bindings[Node], scopes: Scopes, around: AttrPath) -> Iterator[AttrPath]:
    """The numbers of all instances, of the inner variadics in all instances of the outer ones."""
    paths: list[AttrPath] = [around]
    for variadic in scopes:
        paths = [(*path, i) for path in paths for i in range(bindings.counts.get((variadic, path), 0))]
    return iter(paths)


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
    if isinstance(pattern, pat.Call):
        for name, node in pattern.attrs.items():
            if not isinstance(node, Literal):
                yield Guard(pattern, name, node, _attribute(name))
    elif isinstance(pattern, pat.GetItem) and pattern.number is not None and not isinstance(pattern.number, Literal):
        yield Guard(pattern, "index", pattern.number, _attribute("index"))
    elif isinstance(pattern, pat.Variadic) and pattern.count is not None:
        yield Guard(pattern, "length", pattern.count, _length(pattern))
    elif isinstance(pattern, pat.Const):
        literal = pattern.literal
        if isinstance(literal, Ast) and not isinstance(literal, Literal):
            yield LiteralValue(pattern, "value", literal, _attribute("value"))


def _dimension(axis: int) -> Actual:
    return lambda search, node, path: node.shape[axis]


def _property(name: str) -> Actual:
    return lambda search, node, path: getattr(node, name)


def _length(variadic: pat.Variadic) -> Actual:
    return lambda search, node, path: search.bindings.count(variadic, path)


def _attribute(name: str) -> Actual:
    def get(search: MatchSearch, node: Any, path: AttrPath) -> Any:
        if name not in node.attrs and name in (known := defaults(node.op)):
            return known[name]
        if name not in node.attrs:
            raise ValueError(f"{node!r} has no attribute {name!r}")
        return node.attrs[name]

    return get


# ---------------------------------------------------------------- constraints that are no relations


class Equal(Guard):
    """The guard that two calls have equal attributes."""

    __slots__ = ("constraint",)

    def __init__(self, constraint: pat.AttrEqual, carrier: Pattern | None) -> None:
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
        found = self.difference(left, right)
        return found is None or search.miss(self.constraint.right, right, *found)

    def difference(self, left: Node, right: Node) -> tuple[str, Any, Any] | None:
        """The first difference: what differs, the expected and the found value; ``None`` if there is none."""
        names = self.constraint.names
        if names is None:
            if set(left.attrs) != set(right.attrs):
                return "attributes", sorted(left.attrs), sorted(right.attrs)
            spec = spec_of(left.op)
            names = tuple(left.attrs if spec is None else spec.own(left.attrs))
        for name in names:
            if name not in left.attrs or name not in right.attrs:
                return name, f"the {name} of %{left.name}", "no such attribute"
            if not decidedly_same(left.attrs[name], right.attrs[name]):
                return name, left.attrs[name], right.attrs[name]
        return None


class UseGuard(Guard):
    """A guard on the uses of a pattern's node; without a pattern, of every inner node."""

    __slots__ = ("pattern",)

    def __init__(self, pattern: Pattern | None, carrier: Pattern | None, what: str, expected: Any) -> None:
        super().__init__(pattern if carrier is None else carrier, what, Literal(expected), None)
        self.pattern = pattern

    def references(self) -> Iterator[Pattern]:
        if self.pattern is not None:
            yield self.pattern

    def node(self, search: MatchSearch, path: AttrPath) -> Node | None:
        """The node of the pattern; ``None`` if the owner of the constraint is not part of the match."""
        assert self.pattern is not None
        return search.bindings.get(self.pattern, path) if is_bound(self, search, path) else None


class OneUser(UseGuard):
    """The guard that a node has exactly one user, where being an output of the graph counts as one."""

    __slots__ = ()

    def check(self, search: MatchSearch, path: AttrPath) -> bool:
        node = self.node(search, path)
        if node is None or len(node.users) + (node in search.outputs) == 1:
            return True
        found: list[Node | str] = list(node.users)
        return search.miss(self.pattern, node, "uses", 1, found + ["the graph's output"] * (node in search.outputs))


class Output(UseGuard):
    """The guard that a node is an output of the graph."""

    __slots__ = ()

    def check(self, search: MatchSearch, path: AttrPath) -> bool:
        node = self.node(search, path)
        if node is None or node in search.outputs:
            return True
        return search.miss(self.pattern, node, "place", "an output of the graph", "an inner node")


class UsedOutside(UseGuard):
    """The guard that a node is used outside the match, or that it is not."""

    __slots__ = ("outputs", "used")

    def __init__(
        self, pattern: Pattern | None, used: bool, outputs: tuple[Pattern, ...] = (), *, carrier: Pattern | None = None
    ) -> None:
        super().__init__(pattern, carrier, "use outside", used)
        self.used = used
        self.outputs = outputs

    def check(self, search: MatchSearch, path: AttrPath) -> bool:
        if self.pattern is not None:
            node = self.node(search, path)
            return node is None or self._check(search, self.pattern, node)
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
    assert guard.owner is not None
    return search.bindings.get(guard.owner, path) is not None


def guard_of(constraint: pat.Constraint, carrier: Pattern | None = None) -> Guard | None:
    """The guard of a constraint, for matches that bind the sequence that carries it; ``None`` for a relation."""
    match constraint:
        case pat.AttrEqual():
            return Equal(constraint, carrier)
        case pat.Unique():
            return OneUser(constraint.pattern, carrier, "uses", 1)
        case pat.ExternUse(pattern, used):
            return UsedOutside(pattern, used, carrier=carrier)
        case pat.IsOutput():
            return Output(constraint.pattern, carrier, "place", "output")
    return None

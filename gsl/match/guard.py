"""Guards: the conditions of a match that are more than structure, checked as soon as their patterns are bound."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from gsl.attr import ast
from gsl.attr.ast import Ast, Symbol
from gsl.attr.evaluate import Evaluator, same
from gsl.errors import EvaluationError
from gsl.graph import CONST, Node
from gsl.pat import Alt, Instance, Pattern, Repeat, Seq, Variadic, has_head
from gsl.spec import TABLE
from gsl.spec.natives import defaults

if TYPE_CHECKING:
    from gsl.match.engine import Search

Path = tuple[int, ...]
"""The numbers of the instances of the enclosing variadics, outermost first."""


def references(node: Ast) -> Iterator[Pattern]:
    """The patterns whose attributes an expression reads."""
    for part in parts(node):
        if isinstance(part, ast.Attribute):
            yield part.pattern
            if isinstance(part.pattern, Instance):
                yield part.pattern.variadic
        elif isinstance(part, ast.Chosen):
            yield part.alternative


def counts(node: Ast, chain: Pattern) -> bool:
    """True if an expression reads the number of nodes of a chain, which is known when all of them are bound."""
    if not isinstance(chain, Repeat):
        return False
    lengths = (part.pattern for part in parts(node) if isinstance(part, ast.Attribute) and part.name == "length")
    return any(pattern is chain for pattern in lengths)


def parts(node: Ast) -> Iterator[Ast]:
    """The parts of an expression, also those of the numbers of instances."""
    stack, done = [node], set()
    while stack:
        part = stack.pop()
        if id(part) not in done:
            done.add(id(part))
            yield part
            if isinstance(part, ast.Attribute) and isinstance(part.pattern, Instance):
                stack.append(part.pattern.number)
            stack.extend(part.children())


def read(node: Node, name: str) -> Any:
    """The attribute of a node; EvaluationError if it has none, or if its type is not known."""
    if name in node.attrs:
        value = node.attrs[name]
        return number_of(value) if node.op == CONST and name == "value" else value
    if name in ("shape", "dtype", "ndim"):
        value = getattr(node, name)
        if value is None:
            raise EvaluationError(f"the type of {node.name or node!r} is not known")
        return value
    if name in (known := defaults(node.op)):
        return known[name]
    raise EvaluationError(f"{node!r} has no attribute {name!r}")


def number_of(value: Any) -> Any:
    """The value of a literal in expressions: of a tensor without axes its number, which it is to arithmetic too."""
    if getattr(value, "shape", None) != ():
        return value
    try:
        return value.item()
    except Exception as error:
        raise EvaluationError(f"the number in {type(value).__name__} is not known: {error}") from None


class MatchScope:
    """The values that an expression can refer to during and after a match, seen from one instance of the variadics."""

    def __init__(self, bindings: Bindings, path: Path) -> None:
        self.bindings = bindings
        self.path = path

    def attribute(self, pattern: Pattern, name: str, symbols: dict[Symbol, Any]) -> Any:
        if isinstance(pattern, (Variadic, Repeat)) and name == "length":
            return self.bindings.count(pattern, self.path)
        return read(self.bindings.node(pattern, self.path, symbols), name)

    def alternative(self, pattern: Pattern, symbols: dict[Symbol, Any]) -> int:
        key = self.bindings.key(pattern, self.path)
        if key not in self.bindings.chosen:
            raise EvaluationError(f"{pattern!r} was not matched")
        return self.bindings.chosen[key]


class Bindings:
    """The nodes to which the patterns of a rule are bound. A pattern that is a template has a binding per instance."""

    __slots__ = ("chosen", "counts", "heads", "nodes", "scopes", "skipped")

    def __init__(
        self,
        scopes: Mapping[Pattern, tuple[Variadic | Repeat, ...]],
        nodes: dict[Any, Node] | None = None,
        chosen: dict[Any, int] | None = None,
    ) -> None:
        self.scopes = scopes
        self.nodes = {} if nodes is None else nodes
        self.heads: dict[Any, Node] = {}
        """The first nodes of chains, whose last ones are in ``nodes``."""
        self.skipped: dict[Node, bool] = {}
        """The nodes that stand between related ones, and to which no pattern is bound."""
        self.chosen = {} if chosen is None else chosen
        self.counts: dict[Any, int] = {}

    def key(self, pattern: Pattern, path: Path) -> Any:
        """The key under which the pattern is bound, seen from an instance."""
        level = len(self.scopes.get(pattern, ()))
        return (pattern, path[:level]) if level else pattern

    def get(self, pattern: Pattern, path: Path, symbols: dict[Symbol, Any] | None = None) -> Node | None:
        """The node of a pattern, ``None`` if it is not bound."""
        if isinstance(pattern, Instance):
            number = Evaluator(MatchScope(self, path), symbols).value(pattern.number)
            return self.instance(pattern.variadic, pattern.template, number, path)
        return self.nodes.get(self.key(pattern, path))

    def head(self, pattern: Pattern, path: Path) -> Node | None:
        """The node that a pattern stands for where it uses something: of a chain the first one."""
        while has_head(pattern):
            if isinstance(pattern, Repeat):
                return self.heads.get((pattern, path[: len(self.scopes.get(pattern, ()))]))
            if isinstance(pattern, Seq):
                pattern = pattern.head
            elif isinstance(pattern, Alt):
                chosen = self.chosen.get(self.key(pattern, path))
                if chosen is None:
                    return None
                pattern = pattern.choices[chosen]
            else:
                pattern = next(part for part in pattern.same_node() if has_head(part))
        return self.get(pattern, path)

    def all_of(self, pattern: Pattern) -> Iterator[Node]:
        """The nodes of a pattern, of all instances if it is a template."""
        for key, node in self.nodes.items():
            if key is pattern or (isinstance(key, tuple) and key[0] is pattern):
                yield node

    def node(self, pattern: Pattern, path: Path, symbols: dict[Symbol, Any] | None = None) -> Node:
        """The node of a pattern; EvaluationError if it is not bound."""
        found = self.get(pattern, path, symbols)
        if found is None:
            raise EvaluationError(f"{pattern!r} was not matched")
        return found

    def count(self, variadic: Variadic | Repeat, path: Path) -> int:
        """The number of instances of a variadic."""
        outer = path[: len(self.scopes.get(variadic, ()))]
        if (variadic, outer) not in self.counts:
            raise EvaluationError(f"{variadic!r} was not matched")
        return self.counts[variadic, outer]

    def instance(self, variadic: Variadic, template: Pattern, number: Any, path: Path) -> Node | None:
        """The node of the ``number``-th instance of a template."""
        outer = path[: len(self.scopes.get(variadic, ()))]
        length = self.count(variadic, path)
        if not isinstance(number, int) or not -length <= number < length:
            raise EvaluationError(f"there is no instance {number!r} of {template!r}: it has {length}")
        number %= length
        if number == 0 and variadic.first:
            return self.nodes.get(self.key(variadic.first[variadic.templates.index(template)], path))
        return self.nodes.get((template, (*outer, number)))

    def symbols(self, pattern: Pattern | None, path: Path) -> dict[Symbol, Any]:
        """The values of the index symbols of the variadics around a pattern."""
        scopes = self.scopes.get(pattern, ()) if pattern is not None else ()
        return {v.symbol: i for v, i in zip(scopes, path) if v.symbol is not None}


class Guard:
    """One condition: of a pattern (its *owner*), or of the whole match."""

    __slots__ = ("actual", "expected", "owner", "what")

    def __init__(
        self, owner: Pattern | None, what: str, expected: Ast, actual: Callable[[Search, Any, Path], Any] | None
    ) -> None:
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

    def check(self, search: Search, path: Path) -> bool:
        """True if the condition holds, or if its owner is part of an alternative that was not taken."""
        owner = self.owner
        node = None
        if owner is not None:
            node = search.bindings.get(owner, path)
            if node is None and not (isinstance(owner, Variadic) and (owner, path) in search.bindings.counts):
                return True
        evaluator = Evaluator(MatchScope(search.bindings, path), search.bindings.symbols(owner, path))
        actual: Any = None
        try:
            if self.actual is None:
                actual = evaluator.value(self.expected)
                holds, expected = actual is True, self.expected
                if not holds and search.on_miss is not None:
                    actual = _sides(evaluator, self.expected, actual)
            else:
                actual = self.actual(search, node, path)
                holds, expected = self.compare(evaluator, actual, node)
        except (EvaluationError, ValueError) as error:
            search.miss(owner, node, self.what, self.expected, error)
            return False
        if not holds:
            search.miss(owner, node, self.what, expected, actual)
        return holds

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


def _sides(evaluator: Evaluator, node: Ast, value: Any) -> Any:
    """The two sides of a comparison that does not hold, as text; for any other condition, its value."""
    if isinstance(node, ast.Binary) and node.operator in ("==", "!=", "<", "<=", ">", ">="):
        return f"{evaluator.value(node.left)!r} {node.operator} {evaluator.value(node.right)!r}"
    return value


def canonical(node: Node, given: Mapping[str, Any]) -> Mapping[str, Any]:
    """The canonical form of some attributes of a call, given its others; ValueError if there is none.

    They are completed together, because the form of one may depend on another (a split's sections on its axis).
    """
    spec = TABLE.get(node.op) if isinstance(node.op, str) else None
    if spec is None or any(name not in spec.attrs for name in given):
        return given
    types = tuple([operand.type for operand in node.operands])
    others = {name: value for name, value in node.attrs.items() if spec.attrs[name].derive is None}
    full = spec.complete({**others, **{n: v for n, v in given.items() if n in others}}, types)
    return {name: full[name] if name in others else spec.normalise(name, given[name], types) for name in given}

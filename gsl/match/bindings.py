"""Bindings: the nodes to which the patterns of a rule are bound, and what expressions read of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Generic, TypeVar

from gsl.attr.ast import Symbol
from gsl.attr.evaluate import Evaluator
from gsl.errors import EvaluationError
from gsl.graph import CONST, Node
from gsl.pat import Alt, Instance, Leaf, Pattern, Repeat, Seq, Variadic, has_head
from gsl.pat.typed import TENSOR
from gsl.spec.natives import defaults

AttrPath = tuple[Any, ...]
"""The numbers of the instances of the enclosing variadics, outermost first; in source, what stands for them."""
N = TypeVar("N")
"""A node, or the variable of one in source."""
BoundNodes = dict[Any, Node] | Callable[[], Iterable[tuple[Any, Node]]]
"""Nodes by their keys, or a function that gives both."""


class Bindings(Generic[N]):
    """The nodes to which the patterns of a rule are bound. A pattern that is a template has a binding per instance."""

    __slots__ = ("chosen", "counts", "heads", "nodes", "scopes", "skipped")

    def __init__(
        self,
        scopes: Mapping[Pattern, tuple[Variadic | Repeat, ...]],
        nodes: dict[Any, N] | None = None,
        chosen: dict[Any, int] | None = None,
    ) -> None:
        self.scopes = scopes
        self.nodes = {} if nodes is None else nodes
        self.heads: dict[Any, N] = {}
        """The first nodes of chains, whose last ones are in ``nodes``."""
        self.skipped: dict[N, bool] = {}
        """The nodes that stand between related ones, and to which no pattern is bound."""
        self.chosen = {} if chosen is None else chosen
        self.counts: dict[Any, int] = {}

    def key(self, pattern: Pattern, path: AttrPath) -> Any:
        """The key under which the pattern is bound, seen from an instance."""
        level = len(self.scopes.get(pattern, ()))
        return (pattern, path[:level]) if level else pattern

    def get(self, pattern: Pattern, path: AttrPath, symbols: dict[Symbol, Any] | None = None) -> N | None:
        """The node of a pattern, ``None`` if it is not bound."""
        if isinstance(pattern, Instance):
            number = Evaluator(MatchScope(self, path), symbols).value(pattern.number)
            return self.instance(pattern.variadic, pattern.template, number, path)
        return self.nodes.get(self.key(pattern, path))

    def head(self, pattern: Pattern, path: AttrPath) -> N | None:
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

    def all_of(self, pattern: Pattern) -> Iterator[N]:
        """The nodes of a pattern, of all instances if it is a template."""
        for key, node in self.nodes.items():
            if key is pattern or (isinstance(key, tuple) and key[0] is pattern):
                yield node

    def node(self, pattern: Pattern, path: AttrPath, symbols: dict[Symbol, Any] | None = None) -> N:
        """The node of a pattern; EvaluationError if it is not bound."""
        found = self.get(pattern, path, symbols)
        if found is None:
            raise EvaluationError(f"{pattern!r} was not matched")
        return found

    def count(self, variadic: Variadic | Repeat, path: AttrPath) -> int:
        """The number of instances of a variadic."""
        outer = path[: len(self.scopes.get(variadic, ()))]
        if (variadic, outer) not in self.counts:
            raise EvaluationError(f"{variadic!r} was not matched")
        return self.counts[variadic, outer]

    def instance(self, variadic: Variadic | Repeat, template: Pattern, number: Any, path: AttrPath) -> N | None:
        """The node of the ``number``-th instance of a template."""
        outer = path[: len(self.scopes.get(variadic, ()))]
        length = self.count(variadic, path)
        if not isinstance(number, int) or not -length <= number < length:
            raise EvaluationError(f"there is no instance {number!r} of {template!r}: it has {length}")
        number %= length
        if number == 0 and variadic.first:
            return self.nodes.get(self.key(variadic.first[variadic.templates.index(template)], path))
        return self.nodes.get((template, (*outer, number)))

    def symbols(self, pattern: Pattern | None, path: AttrPath) -> dict[Symbol, Any]:
        """The values of the index symbols of the variadics around a pattern."""
        scopes = self.scopes.get(pattern, ()) if pattern is not None else ()
        return {v.symbol: i for v, i in zip(scopes, path) if v.symbol is not None}


def pattern_of(key: Any) -> Pattern:
    """The pattern of a key of the bindings."""
    pattern: Pattern = key[0] if isinstance(key, tuple) else key
    return pattern


class LateBindings(Bindings[Node]):
    """Bindings whose ``nodes`` are put together when something asks for them: of a chain they are many."""

    __slots__ = ("_parts",)

    def __init__(
        self, scopes: Mapping[Pattern, tuple[Variadic | Repeat, ...]], parts: Sequence[BoundNodes],
        chosen: dict[Any, int], counts: dict[Any, int], heads: dict[Any, Node],
    ) -> None:  # fmt: skip
        self.scopes = scopes
        self._parts = parts
        self.chosen, self.counts, self.heads, self.skipped = chosen, counts, heads, {}

    def __getattr__(self, name: str) -> Any:
        if name != "nodes":
            raise AttributeError(name)
        nodes: dict[Any, Node] = {}
        for part in self._parts:
            nodes.update(part if isinstance(part, dict) else part())
        self.nodes = nodes
        return nodes


class MatchScope:
    """The values that an expression can refer to during and after a match, seen from one instance of the variadics."""

    def __init__(self, bindings: Bindings[Any], path: AttrPath) -> None:
        self.bindings: Bindings[Node] = bindings
        self.path = path

    def attribute(self, pattern: Pattern, name: str, symbols: dict[Symbol, Any]) -> Any:
        if name == "length" and isinstance(pattern, (Variadic, Repeat)):
            return self.bindings.count(pattern, self.path)
        return reader(pattern, name)(self.bindings.node(pattern, self.path, symbols), name)

    def alternative(self, pattern: Pattern, symbols: dict[Symbol, Any]) -> int:
        key = self.bindings.key(pattern, self.path)
        if key not in self.bindings.chosen:
            raise EvaluationError(f"{pattern!r} was not matched")
        return self.bindings.chosen[key]


def reader(pattern: Pattern, name: str) -> Callable[[Node, str], Any]:
    """The function that reads an attribute of a pattern's node: of a leaf it reads the type, also where the node is a
    call with an attribute of that name, as a native one with ``dtype=torch.float32`` or ``shape=(-1, 4)``."""
    return read_type if name in TENSOR and isinstance(pattern, Leaf) else read


def read(node: Node, name: str) -> Any:
    """The attribute of a node; EvaluationError if it has none, or if its type is not known."""
    if name in node.attrs:
        value = node.attrs[name]
        return number_of(value) if node.op == CONST and name == "value" else value
    if name in TENSOR:
        return read_type(node, name)
    if name in (known := defaults(node.op)):
        return known[name]
    raise EvaluationError(f"{node!r} has no attribute {name!r}")


def read_type(node: Node, name: str) -> Any:
    """The shape, dtype or number of axes of a node; EvaluationError if its type is not known."""
    value = getattr(node, name)
    if value is None:
        raise EvaluationError(f"the type of {node.name or node!r} is not known")
    return value


def number_of(value: Any) -> Any:
    """The value of a literal in expressions: of a tensor without axes its number, which it is to arithmetic too."""
    if getattr(value, "shape", None) != ():
        return value
    try:
        return value.item()
    except Exception as error:
        raise EvaluationError(f"the number in {type(value).__name__} is not known: {error}") from None

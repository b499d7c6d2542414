"""The abstract syntax of attribute expressions: frozen nodes with structural equality.

Literals compare with their type, so ``Literal(1) != Literal(True)``. Operator sugar is kept apart, in
:mod:`gsl.attr.expr`; evaluation in :mod:`gsl.attr.evaluate`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, fields
from typing import Any


@dataclass(frozen=True, slots=True, eq=False)
class Ast:
    """A node of an attribute expression."""

    symbols: frozenset[Symbol] = field(init=False, compare=False, repr=False, default=frozenset())
    """The symbols that are free in the expression."""

    def __post_init__(self) -> None:
        free: frozenset[Symbol] = frozenset()
        for child in self.children():
            free |= child.symbols
        bound = getattr(self, "symbol", None)
        object.__setattr__(self, "symbols", free - {bound} if bound is not None else free)

    def children(self) -> Iterator[Ast]:
        """The direct sub-expressions."""
        for spec in fields(self):
            value = getattr(self, spec.name)
            if isinstance(value, Ast):
                if spec.name != "symbol":
                    yield value
            elif isinstance(value, tuple):
                yield from (item for item in value if isinstance(item, Ast))


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Symbol(Ast):
    """A variable bound by an enclosing Variadic, Map or reduction, or the index of a variadic pattern."""

    name: str = "i"

    def __post_init__(self) -> None:
        object.__setattr__(self, "symbols", frozenset((self,)))

    def __repr__(self) -> str:
        return self.name


def _typed(value: Any) -> Any:
    if isinstance(value, tuple):
        return tuple(_typed(item) for item in value)
    return type(value), value


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Literal(Ast):
    """A constant."""

    value: Any

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Literal) and bool(_typed(self.value) == _typed(other.value))

    def __hash__(self) -> int:
        return hash(_typed(self.value))

    def __repr__(self) -> str:
        return repr(self.value)


@dataclass(frozen=True, slots=True, repr=False)
class Attribute(Ast):
    """An attribute of what a pattern matched."""

    pattern: Any
    name: str

    def __post_init__(self) -> None:
        object.__setattr__(self, "symbols", self.pattern.free_symbols)

    def __repr__(self) -> str:
        return f"{self.pattern.label}.{self.name}"


@dataclass(frozen=True, slots=True, repr=False)
class TupleOf(Ast):
    """A tuple of expressions."""

    items: tuple[Ast, ...]

    def __repr__(self) -> str:
        return f"({', '.join(map(repr, self.items))}{',' if len(self.items) == 1 else ''})"


@dataclass(frozen=True, slots=True, repr=False)
class Unary(Ast):
    """``-a`` or ``~a``."""

    operator: str
    operand: Ast

    def __repr__(self) -> str:
        return f"{self.operator}{self.operand!r}"


@dataclass(frozen=True, slots=True, repr=False)
class Binary(Ast):
    """A binary operator of Python, or ``max`` or ``min``."""

    operator: str
    left: Ast
    right: Ast

    def __repr__(self) -> str:
        if self.operator.isalpha():
            return f"{self.operator}({self.left!r}, {self.right!r})"
        return f"({self.left!r} {self.operator} {self.right!r})"


@dataclass(frozen=True, slots=True, repr=False)
class Item(Ast):
    """``sequence[index]``; the sequence may be a string."""

    sequence: Ast
    index: Ast

    def __repr__(self) -> str:
        return f"{self.sequence!r}[{self.index!r}]"


@dataclass(frozen=True, slots=True, repr=False)
class Slice(Ast):
    """``sequence[start:stop:step]``."""

    sequence: Ast
    start: Ast
    stop: Ast
    step: Ast

    def __repr__(self) -> str:
        return f"{self.sequence!r}[{self.start!r}:{self.stop!r}:{self.step!r}]"


@dataclass(frozen=True, slots=True, repr=False)
class Function(Ast):
    """A function of values: ``len``, ``in``, ``reversed``, ``range``, ``zip``, ``sum``, ``prod``, ``max``, …."""

    name: str
    operands: tuple[Ast, ...]

    def __repr__(self) -> str:
        return f"{self.name}({', '.join(map(repr, self.operands))})"


@dataclass(frozen=True, slots=True, repr=False)
class Conditional(Ast):
    """``then if condition else otherwise``; only the chosen side is evaluated."""

    condition: Ast
    then: Ast
    otherwise: Ast

    def __repr__(self) -> str:
        return f"Cond({self.condition!r}, {self.then!r}, {self.otherwise!r})"


@dataclass(frozen=True, slots=True, repr=False)
class Chosen(Ast):
    """The clause of the alternative that an ``Alt`` pattern matched."""

    alternative: Any
    clauses: tuple[Ast, ...]

    def __repr__(self) -> str:
        return f"Match({self.alternative.label}, {list(self.clauses)!r})"


@dataclass(frozen=True, slots=True, repr=False)
class Each(Ast):
    """The tuple of ``body`` for every value of ``symbol``: ``0 … length-1``, or the items of ``over``.

    With neither, it is a guard that takes its length from the value that it is compared with.
    """

    symbol: Symbol
    body: Ast
    length: Ast | None = None
    over: Ast | None = None

    def __repr__(self) -> str:
        over = self.over if self.over is not None else self.length
        return f"({self.body!r} for {self.symbol!r} in {'?' if over is None else repr(over)})"


@dataclass(frozen=True, slots=True, repr=False)
class Reduce(Ast):
    """The fold of the items of a tuple with an operator, from ``initial`` if given."""

    operator: str
    sequence: Ast
    initial: Ast | None = None

    def __repr__(self) -> str:
        return f"Reduce({self.operator!r}, {self.sequence!r})"

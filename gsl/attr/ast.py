"""The abstract syntax of attribute expressions: frozen nodes, compared by identity, as patterns are.

Operator sugar is kept apart, in :mod:`gsl.attr.expr`; evaluation in :mod:`gsl.attr.evaluate`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from gsl.attr.text import listed, render, short


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Ast:
    """A node of an attribute expression."""

    symbols: frozenset[Symbol] = field(init=False, default=frozenset())
    """The symbols that are free in the expression."""
    depth: int = field(init=False, default=0)
    """The number of expressions above each other in it."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "symbols", self._free())
        object.__setattr__(self, "depth", 1 + max([child.depth for child in self.children()], default=0))

    def _free(self) -> frozenset[Symbol]:
        return frozenset[Symbol]().union(*(child.symbols for child in self.children()))

    def children(self) -> Iterator[Ast]:
        """The direct sub-expressions."""
        for value in self._fields():
            if isinstance(value, Ast):
                yield value
            elif isinstance(value, tuple):
                yield from value

    def strict(self) -> Iterator[Ast]:
        """The direct sub-expressions that have to be evaluated in any case, with the same symbols bound."""
        return self.children()

    def _fields(self) -> Iterator[Any]:
        names: tuple[str, ...] = self.__match_args__
        return (getattr(self, name) for name in names)

    def parts(self) -> Iterator[Any]:
        """The text of the expression in parts, see :mod:`gsl.attr.text`."""
        yield type(self).__name__

    def __repr__(self) -> str:
        return render(self)

    def __copy__(self) -> Ast:
        return self

    def __deepcopy__(self, memo: Any) -> Ast:
        return self


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Symbol(Ast):
    """A variable bound by an enclosing Variadic, Map or reduction, or the index of a variadic pattern."""

    name: str = "i"

    def _free(self) -> frozenset[Symbol]:
        return frozenset((self,))

    def parts(self) -> Iterator[Any]:
        yield self.name


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Literal(Ast):
    """A constant."""

    value: Any

    def _free(self) -> frozenset[Symbol]:
        return frozenset()

    def children(self) -> Iterator[Ast]:
        return iter(())

    def parts(self) -> Iterator[Any]:
        yield short(self.value)


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Attribute(Ast):
    """An attribute of the node that a pattern matched."""

    pattern: Any
    name: str

    def _free(self) -> frozenset[Symbol]:
        free: frozenset[Symbol] = self.pattern.free_symbols
        return free

    def parts(self) -> Iterator[Any]:
        yield f"{self.pattern.label}.{self.name}"


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class TupleOf(Ast):
    """A tuple of expressions."""

    items: tuple[Ast, ...]

    def parts(self) -> Iterator[Any]:
        yield "("
        yield from listed(self.items)
        yield ",)" if len(self.items) == 1 else ")"


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Unary(Ast):
    """``-a`` or ``~a``."""

    operator: str
    operand: Ast

    def parts(self) -> Iterator[Any]:
        yield from (self.operator, self.operand)


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Binary(Ast):
    """A binary operator of Python, or ``max`` or ``min``."""

    operator: str
    left: Ast
    right: Ast

    def strict(self) -> Iterator[Ast]:
        return iter((self.left,) if self.operator in "&|" else (self.left, self.right))

    def parts(self) -> Iterator[Any]:
        if self.operator.isalpha():
            yield from (f"{self.operator}(", self.left, ", ", self.right, ")")
        else:
            yield from ("(", self.left, f" {self.operator} ", self.right, ")")


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Item(Ast):
    """``sequence[index]``; the sequence may be a string."""

    sequence: Ast
    index: Ast

    def parts(self) -> Iterator[Any]:
        yield from (self.sequence, "[", self.index, "]")


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Slice(Ast):
    """``sequence[start:stop:step]``."""

    sequence: Ast
    start: Ast
    stop: Ast
    step: Ast

    def bounds(self) -> list[Ast | None]:
        """The start, the stop and the step; ``None`` for one that is left out."""
        return [None if isinstance(part, Literal) and part.value is None else part
                for part in (self.start, self.stop, self.step)]  # fmt: skip

    def parts(self) -> Iterator[Any]:
        start, stop, step = self.bounds()
        yield from (self.sequence, "[", start or "", ":", stop or "")
        yield from (":", step, "]") if step else ("]",)


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Function(Ast):
    """A function of values, by its name in :mod:`gsl.attr`: ``Len``, ``In``, ``Range``, ``all``, …."""

    name: str
    operands: tuple[Ast, ...]

    def parts(self) -> Iterator[Any]:
        yield f"{self.name}("
        yield from listed(self.operands)
        yield ")"


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Conditional(Ast):
    """``then if condition else otherwise``; only the chosen side is evaluated."""

    condition: Ast
    then: Ast
    otherwise: Ast

    def strict(self) -> Iterator[Ast]:
        yield self.condition

    def parts(self) -> Iterator[Any]:
        yield "Cond("
        yield from listed((self.condition, self.then, self.otherwise))
        yield ")"


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Chosen(Ast):
    """The clause of the alternative that an ``Alt`` pattern matched."""

    alternative: Any
    clauses: tuple[Ast, ...]

    def strict(self) -> Iterator[Ast]:
        return iter(())

    def parts(self) -> Iterator[Any]:
        yield f"Match({self.alternative.label}, ["
        yield from listed(self.clauses)
        yield "])"


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Each(Ast):
    """The tuple of ``body`` for every value of ``symbol``: ``0 … length-1``, or the items of ``over``.

    With neither, it is a guard that takes its length from the value that it is compared with.
    """

    symbol: Symbol
    body: Ast
    length: Ast | None = None
    over: Ast | None = None

    def children(self) -> Iterator[Ast]:
        yield from (part for part in (self.body, self.length, self.over) if part is not None)

    def strict(self) -> Iterator[Ast]:
        yield from (part for part in (self.length, self.over) if part is not None)

    def _free(self) -> frozenset[Symbol]:
        free = self.body.symbols - {self.symbol}
        return free.union(*(part.symbols for part in (self.length, self.over) if part is not None))

    def parts(self) -> Iterator[Any]:
        yield from ("(", self.body, " for ", self.symbol, " in ")
        yield from (self.over,) if self.over is not None else ("?",) if self.length is None else (
            "Range(", self.length, ")")  # fmt: skip
        yield ")"


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Reduce(Ast):
    """The fold of the items of a tuple with an operator, from ``initial`` if given."""

    operator: str
    sequence: Ast
    initial: Ast | None = None

    def parts(self) -> Iterator[Any]:
        yield from (f"ReduceTuple({self.operator!r}, ", self.sequence)
        yield from (")",) if self.initial is None else (", ", self.initial, ")")


def conjuncts(condition: Ast) -> Iterator[Ast]:
    """The conditions of which a condition is the conjunction."""
    match condition:
        case Binary("&", left, right):
            yield from conjuncts(left)
            yield from conjuncts(right)
        case Function("all", (TupleOf(items),)):
            for item in items:
                yield from conjuncts(item)
        case _:
            yield condition

"""Expressions for values that differ between the traces of a program: which sizes, ranks and literals they follow;
and attributes as one writes them: axes counted from the end, ranks of operands, defaults left out."""

from __future__ import annotations

import itertools
import math
import operator
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from gsl import attr
from gsl.attr import Expr
from gsl.graph import TensorType, TupleType, Type
from gsl.pat import Pattern
from gsl.programs.source import TracedNode
from gsl.spec import REQUIRED, OpSpec

Column = tuple[Any, ...]
"""One value for each trace."""

_DIVISORS: Final = 128
_FACTORS: Final = 4
"""The largest number that a size is divided by, and the largest number of sizes in a product."""
_POWERS: Final = (1, 0.5, -0.5, -1, 2, -2)


@dataclass(frozen=True, slots=True)
class NodeColumn:
    """A node of a program in all its traces."""

    number: int
    nodes: tuple[TracedNode, ...]
    operands: tuple[Pattern, ...]
    """The patterns of its operands."""
    types: tuple[tuple[Type | None, ...], ...]
    """The types of its operands in each trace."""

    def values(self, name: str) -> Column:
        """The value of an attribute in each trace."""
        return tuple(node.attrs[name] for node in self.nodes)


class UnfitError(Exception):
    """The reason why no expression has the values of a column."""


@dataclass(frozen=True, slots=True, eq=False)
class Quantity:
    """A number of which expressions are made: a size, a rank, or a literal that has a name."""

    name: str
    expr: Expr
    values: Column


@dataclass(frozen=True, slots=True, eq=False)
class AxesOf:
    """The axes of a leaf for which ``*b`` stands, as a tuple of sizes that is longer in some traces than in others."""

    expr: Expr | None
    """The sizes; ``None`` where only the number of axes counts."""
    length: Expr
    values: Column


@dataclass(slots=True)
class Quantities:
    """The quantities on which values may depend, and the search for an expression in them."""

    sizes: list[Quantity] = field(default_factory=list)
    ranks: list[Quantity] = field(default_factory=list)
    named: list[Quantity] = field(default_factory=list)
    dtypes: list[Quantity] = field(default_factory=list)
    axes: list[AxesOf] = field(default_factory=list)

    def fit(self, column: Column, near: Quantities | None = None) -> Any:
        """The literal, tuple or expression that has the values of a column. UnfitError with the reason if none has.

        Ranks and numbers of axes are those of ``near`` where they fit.
        """
        if near is not None:
            return replace(self, ranks=near.ranks + self.ranks, axes=near.axes + self.axes).fit(column)
        first = column[0]
        if all(same(first, value) for value in column[1:]):
            return first
        for named in (self._equal(self.named, column), self._extreme(column)):
            if named is not None:
                return named
        kinds = {type(value) for value in column}
        if kinds == {tuple}:
            return self._tuple(column)
        if kinds == {int}:
            return self._chosen(self._integers(column), column)
        if kinds <= {int, float}:
            return self._chosen(self._floats(column), column)
        if kinds == {str}:
            dtype = self._equal(self.dtypes, column)
            if dtype is not None:
                return dtype
        raise UnfitError(f"it is {_listed(column)}, which follows from no size")

    def _equal(self, quantities: Sequence[Quantity], column: Column) -> Expr | None:
        found = [quantity for quantity in quantities if same(quantity.values, column)]
        return found[0].expr if found else None

    def _extreme(self, column: Column) -> Expr | None:
        """The smaller or the larger one of two literals that have names."""
        numbers = [quantity for quantity in self.named if all(map(_is_number, quantity.values))]
        for one, other in itertools.combinations(numbers, 2):
            for extreme, expr in ((min, attr.min), (max, attr.max)):
                if same(tuple(map(extreme, one.values, other.values)), column):
                    return expr(one.expr, other.expr)
        return None

    def _chosen(self, candidates: Iterator[tuple[Expr, tuple[Quantity, ...]]], column: Column) -> Expr:
        for expr, used in candidates:
            for quantity in used:
                twin = next((q for q in self.sizes if q.values == quantity.values and q is not quantity), None)
                if twin is not None and quantity in self.sizes:
                    raise UnfitError(
                        f"it is {_listed(column)}, which follows from {quantity.name} or from {twin.name}: nothing "
                        "says whether they are equal; give both a shape of named sizes"
                    )
            return expr
        raise UnfitError(
            f"it is {_listed(column)}, and no expression of sizes was found for it: expected products, quotients, sums "
            "or powers of sizes; give it as a keyword-only parameter to let it vary"
        )

    # Numbers

    def _integers(self, column: Column) -> Iterator[tuple[Expr, tuple[Quantity, ...]]]:
        scalars = (*self.named, *self.sizes)
        scalars = tuple(q for q in scalars if all(type(value) is int and value > 0 for value in q.values))
        for q in (*self.sizes, *self.ranks):
            if q.values == column:
                yield q.expr, (q,)
        for q in self.ranks:
            rest = _difference(column, q.values)
            if rest is not None:
                yield _plus(q.expr, rest), ()
        yield from self._products(column, scalars)
        for q in scalars:
            rest = _difference(column, q.values)
            if rest is not None:
                yield _plus(q.expr, rest), (q,)
        for q in scalars:
            for by in range(2, _DIVISORS + 1):
                rest = _difference(column, tuple(value // by for value in q.values))
                if rest is not None:
                    yield _plus(q.expr // by, rest), (q,)
        for q in scalars:
            for other in scalars:
                for combine in (operator.floordiv, operator.add, operator.sub):
                    if column == tuple(map(combine, q.values, other.values)):
                        yield combine(q.expr, other.expr), (q, other)
        for q in scalars:
            line = _line(column, q.values)
            if line is not None:
                yield _plus(q.expr * line[0], line[1]), (q,)

    def _products(
        self, column: Column, scalars: Sequence[Quantity], depth: int = _FACTORS
    ) -> Iterator[tuple[Expr, tuple[Quantity, ...]]]:
        for place, q in enumerate(scalars):
            if any(value % size for value, size in zip(column, q.values)):
                continue
            rest = tuple(value // size for value, size in zip(column, q.values))
            if len(set(rest)) == 1:
                yield (q.expr * rest[0] if rest[0] != 1 else q.expr), (q,)
            elif depth > 1:
                for expr, used in self._products(rest, scalars[place:], depth - 1):
                    yield q.expr * expr, (q, *used)

    def _floats(self, column: Column) -> Iterator[tuple[Expr, tuple[Quantity, ...]]]:
        numbers = [q for q in (*self.sizes, *self.named) if all(_is_positive(value) for value in q.values)]
        close: list[tuple[Expr, tuple[Quantity, ...]]] = []
        powers = list(_powers(numbers))
        for expr, values, used in powers:
            if values == column:
                yield expr, used
        for expr, values, used in powers:
            for form, found in _scaled(column, expr, values):
                if found == column:
                    yield form, used
                close.append((form, used))
        for q in self.named:
            if all(map(_is_number, q.values)):
                rests = {value - own for value, own in zip(column, q.values)}
                totals = {value + own for value, own in zip(column, q.values)}
                if len(rests) == 1:
                    yield q.expr + rests.pop(), (q,)
                elif len(totals) == 1:
                    yield totals.pop() - q.expr, (q,)
        yield from close

    # Tuples

    def _tuple(self, column: Column) -> Any:
        if len({len(value) for value in column}) == 1:
            return tuple(self.fit(items) for items in zip(*column))
        reason = f"it is {_listed(column)}, which has other numbers of items for other numbers of axes"
        for axes in self.axes:  # the longest ones first
            more = _difference(tuple(map(len, column)), tuple(map(len, axes.values)))
            for head in range(-1 if more is None else more, -1, -1):
                assert more is not None
                try:
                    return self._around(column, axes, head, more - head)
                except UnfitError as error:
                    reason = str(error)
        raise UnfitError(reason)

    def _around(self, column: Column, axes: AxesOf, head: int, tail: int) -> Any:
        """Some items, as many others as there are axes, and again some items."""
        middle = tuple(value[head : len(value) - tail] for value in column)
        before = self.fit(tuple(value[:head] for value in column)) if head else ()
        after = self.fit(tuple(value[len(value) - tail :] for value in column)) if tail else ()
        return _joined(before, self._block(middle, axes), after)

    def _block(self, column: Column, axes: AxesOf) -> Expr:
        if axes.expr is not None and column == axes.values:
            return axes.expr
        starts = {value[0] for value in column if value}
        if len(starts) == 1:
            start = starts.pop()
            if type(start) is int and all(value == tuple(range(start, start + len(value))) for value in column):
                return attr.Range(axes.length) if start == 0 else attr.Range(start, axes.length + start)
            if all(set(value) <= {start} for value in column):
                return attr.Variadic(lambda index: start, axes.length)
        raise UnfitError(f"{_listed(column)} follows from no axes")


def same(left: Any, right: Any) -> bool:
    """True if two values of attributes are equal, and of equal types."""
    if type(left) is not type(right):
        return False
    if isinstance(left, tuple):
        return len(left) == len(right) and all(map(same, left, right))
    return bool(left == right)


def equals(left: Any, right: Any) -> bool:
    """True if two values of attributes are equal but for rounding."""
    if isinstance(left, tuple) and isinstance(right, tuple):
        return len(left) == len(right) and all(map(equals, left, right))
    if _is_number(left) and _is_number(right):
        return math.isclose(left, right, rel_tol=1e-9)
    return hasattr(left, "shape") or left == right


def _listed(column: Column) -> str:
    shown: list[Any] = []
    for value in column:
        if not any(same(value, other) for other in shown):
            shown.append(value)
    return ", ".join(map(repr, shown[:3])) + (", …" if len(shown) > 3 else "")


def _difference(column: Column, values: Column) -> int | None:
    found = {a - b for a, b in zip(column, values)}
    return found.pop() if len(found) == 1 else None


def _plus(expr: Expr, number: int) -> Expr:
    return expr if number == 0 else expr + number if number > 0 else expr - -number


def _line(column: Column, values: Column) -> tuple[int, int] | None:
    """The factor and the summand by which values become those of a column."""
    for a, v in zip(values[1:], column[1:]):
        if a != values[0]:
            slope, rest = divmod(v - column[0], a - values[0])
            start = column[0] - slope * values[0]
            fits = rest == 0 and all(v == slope * a + start for a, v in zip(values, column))
            return (slope, start) if fits else None
    return None


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _is_positive(value: Any) -> bool:
    return _is_number(value) and bool(value > 0)


def _powers(numbers: Sequence[Quantity]) -> Iterator[tuple[Expr, Column, tuple[Quantity, ...]]]:
    """Powers of numbers, and products of two of them."""
    single = [
        (q.expr if power == 1 else q.expr**power, tuple(value**power for value in q.values), (q,))
        for power in _POWERS for q in numbers
    ]  # fmt: skip
    yield from single
    for place, (expr, values, used) in enumerate(single):
        for other, others, also in single[place:]:
            yield expr * other, tuple(a * b for a, b in zip(values, others)), used + also


def _scaled(column: Column, expr: Expr, values: Column) -> Iterator[tuple[Expr, Column]]:
    """A number times an expression, and a number over it, that have nearly the values of a column."""
    factor = _constant(v / a for v, a in zip(column, values))
    if factor == 1:
        yield expr, values
    elif factor is not None:
        yield expr * factor, tuple(a * factor for a in values)
    factor = _constant(v * a for v, a in zip(column, values))
    if factor is not None:
        yield factor / expr, tuple(factor / a for a in values)


def _constant(factors: Iterable[float]) -> float | None:
    """The one number that all factors are but for rounding, with few digits where that is near enough."""
    first, *rest = factors
    if not all(math.isclose(factor, first, rel_tol=1e-12) for factor in rest):
        return None
    rounded = float(f"{first:.9g}")
    return rounded if math.isclose(rounded, first, rel_tol=1e-12) else first


def _joined(before: Any, middle: Expr, after: Any) -> Expr:
    whole = middle if before == () else attr.Tuple(*before) + middle
    return whole if after == () else whole + attr.Tuple(*after)


def near(column: NodeColumn) -> Quantities | None:
    """The rank of the first operand of a call, where it differs: axes are counted by it."""
    operand, own = column.operands[0], [each[0] for each in column.types]
    shapes = [shape_of(type) for type in own if isinstance(type, TensorType)]
    ranks = tuple(map(len, shapes))
    if len(ranks) < len(own) or len(set(ranks)) == 1:
        return None
    axes = [AxesOf(None, operand.ndim - less if less else operand.ndim, tuple(shape[less:] for shape in shapes))
            for less in range(min(ranks) + 1)]  # fmt: skip
    return Quantities(ranks=[Quantity("the rank of the operand", operand.ndim, ranks)], axes=axes)


def from_the_end(spec: OpSpec, name: str, column: NodeColumn) -> Any:
    """Axes as they are counted from the end, if these are the same in all traces; else ``None``."""
    values, types = column.values(name), column.types
    if all(same(values[0], value) for value in values):
        return None
    for more in (0, 1):
        counted = [_counted(value, own, more) for value, own in zip(values, types)]
        if counted[0] is not None and all(same(counted[0], value) for value in counted) and all(
            same(_completed(spec, {**spec.own(node.attrs), name: counted[0]}, own, name), value)
            for value, node, own in zip(values, column.nodes, types)
        ):
            return counted[0]
    return None


def _counted(value: Any, types: Sequence[Type | None], more: int) -> Any:
    """Axes counted from the end of the first operand, or of one with an axis more; ``None`` for what are no axes."""
    first = types[0] if types else None
    first = first.fields[0] if isinstance(first, TupleType) and first.fields else first
    axes = value if isinstance(value, tuple) else (value,)
    if not isinstance(first, TensorType) or not axes or not all(type(axis) is int for axis in axes):
        return None
    counted = tuple(axis - first.ndim - more for axis in axes)
    if any(axis >= 0 for axis in counted):
        return None
    return counted if isinstance(value, tuple) else counted[0]


def is_default(spec: OpSpec, name: str, column: NodeColumn) -> bool:
    """True if an attribute has the value in all traces that it has where it is not given, whatever the sizes are."""
    for node, own in zip(column.nodes, column.types):
        given = spec.own(node.attrs)
        value = given.pop(name)
        if spec.attrs[name].default is REQUIRED or not all(
            same(_completed(spec, given, types, name), value) for types in (own, tuple(map(_of_ones, own)))
        ):
            return False
    return True


def _of_ones(type: Type | None) -> Type | None:
    """The same type with sizes of 1."""
    return TensorType((1,) * type.ndim, type.dtype) if isinstance(type, TensorType) else type


def _completed(spec: OpSpec, given: Mapping[str, Any], types: tuple[Type | None, ...], name: str) -> Any:
    try:
        return spec.complete(given, types)[name]
    except ValueError:
        return None


def shape_of(type: TensorType) -> tuple[int, ...]:
    return tuple(int(size) for size in type.shape)  # type: ignore[arg-type]

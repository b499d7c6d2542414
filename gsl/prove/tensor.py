"""Tensors of which the elements are expressions of their indices, and tuples of any number of items, of which each is
an expression of its number.

What holds for the item with the number :data:`gsl.prove.poly.EACH`, of which nothing is known, holds for all.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from math import isfinite
from typing import Any, NoReturn

from gsl.attr.ast import Ast, Binary, Each, Function, Reduce
from gsl.attr.evaluate import Evaluator
from gsl.match.bindings import Bindings
from gsl.prove.normal import TermAlgebra
from gsl.prove.path import Path
from gsl.prove.poly import (
    CODE,
    EACH,
    RESULT,
    Impossible,
    IntAtom,
    Poly,
    Relation,
    Unproved,
    Whole,
    dtype_code,
    number,
    operator,
    product,
    whole,
)
from gsl.prove.terms import SumTerm, constant


@dataclass(frozen=True, eq=False)
class Family:
    """A tuple of which the length is an expression, and the item with a number one of that number."""

    length: Poly
    at: Callable[[Poly], Any]

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        raise Unproved("it compares tuples of any length")

    __hash__ = object.__hash__


@contextmanager
def within(path: Path, member: Poly | None) -> Iterator[None]:
    """Let new variables belong to the instance with a number, or to none."""
    outer, path.member = path.member, member
    try:
        yield
    finally:
        path.member = outer


def any_item(path: Path, family: Family) -> Any:
    """The item of a family with any number. Unproved where it is not the same expression for all."""
    with within(path, Poly.of(EACH)):
        return family.at(Poly.of(EACH))


class FamilyEvaluator(Evaluator):
    """Evaluates expressions with tuples of any length."""

    def __init__(self, path: Path, scope: Any, symbols: Any = None) -> None:
        super().__init__(scope, symbols)
        self.path = path

    def _evaluate(self, node: Ast) -> Any:
        if isinstance(node, Function) and node.name == "Len":
            (items,) = map(self.value, node.operands)
            if isinstance(items, Family):
                return whole(items.length, self.path)
        if isinstance(node, Binary) and node.operator == "**":
            base, exponent = self.value(node.left), self.value(node.right)
            if isinstance(base, Whole) and exponent in (0.5, -0.5):
                return self._root(base, inverse=exponent < 0)
        return super()._evaluate(node)

    def _root(self, size: Whole, *, inverse: bool) -> Real:
        """The square root of a size, as the scale of attention has it."""
        algebra = TermAlgebra(self.path)
        root = algebra.apply("sqrt", algebra.number(size.poly))
        return Real(algebra.inverse(root) if inverse else root, algebra)

    def each(self, node: Each, length: int | None) -> Any:
        """The values of an ``Each``."""
        items = None if node.over is None else self.value(node.over)
        count = None if node.length is None else self.value(node.length)
        symbols = dict(self.symbols)

        def at(place: Poly) -> Any:
            item = items.at(place) if isinstance(items, Family) else whole(place, self.path)
            return FamilyEvaluator(self.path, self.scope, {**symbols, node.symbol: item}).value(node.body)

        if isinstance(items, Family):
            return Family(items.length, at)
        return Family(number(count), at) if isinstance(count, Whole) else super().each(node, length)

    def reduce(self, node: Reduce) -> Any:
        """The value of a ``Reduce``."""
        items = self.value(node.sequence)
        if not isinstance(items, Family):
            return super().reduce(node)
        if node.operator != "+" or node.initial is not None:
            raise Unproved(f"{node!r} is of any number of items")
        return whole(self.path.prefix(number(any_item(self.path, items)), items.length), self.path)


class FamilyBindings(Bindings[Any]):
    """Bindings of which instances are found by a function, and their numbers are expressions."""

    def __init__(self, scopes: Any, length: Callable[[Any], Any], member: Callable[[Any, Any, Poly], Any]) -> None:
        super().__init__(scopes)
        self.length = length
        self.member = member

    def count(self, variadic: Any, path: Any) -> Any:
        """The number of instances of a variadic."""
        return self.length(variadic)

    def instance(self, variadic: Any, template: Any, number_: Any, path: Any) -> Any:
        """The node of a template in the instance with a number."""
        return self.member(variadic, template, number(number_))


Index = tuple[Poly, ...]
class DType(Whole):
    """A dtype of which only its code is known."""

    __slots__ = ()
    __hash__ = None

    def __eq__(self, other: object) -> bool:
        if isinstance(other, str):
            return super().__eq__(whole(dtype_code(other), self.path))
        return super().__eq__(other)

    def __ne__(self, other: object) -> bool:
        return not self == other



MOST_FACTORS = 8
"""The largest power of an attribute that is written out."""


class Real:
    """An attribute that is a real number of which nothing is known, or what is computed of one."""

    __slots__ = ("algebra", "value")

    def __init__(self, value: SumTerm, algebra: TermAlgebra) -> None:
        self.value = value
        self.algebra = algebra

    def _with(self, other: Any, operate: Callable[[TermAlgebra, SumTerm, SumTerm], SumTerm]) -> Any:
        if isinstance(other, bool) or not isinstance(other, (int, float, Real)):
            return NotImplemented
        return Real(operate(self.algebra, self.value, real(other)), self.algebra)

    __add__, __radd__ = operator(TermAlgebra.add)
    __sub__, __rsub__ = operator(lambda algebra, a, b: algebra.add(a, algebra.negative(b)))
    __mul__, __rmul__ = operator(TermAlgebra.times)
    __truediv__, __rtruediv__ = operator(lambda algebra, a, b: algebra.times(a, algebra.inverse(b)))

    def __pow__(self, exponent: Any) -> Any:
        if type(exponent) is not int or abs(exponent) > MOST_FACTORS:
            return NotImplemented
        power = Real(constant(1), self.algebra)
        for _ in range(abs(exponent)):
            power = power * self
        return 1 / power if exponent < 0 else power

    def __neg__(self) -> Real:
        return Real(self.algebra.negative(self.value), self.algebra)

    def __eq__(self, other: object) -> bool:
        if isinstance(other, Real) and other.value == self.value:
            return True
        raise Unproved("it compares real numbers")

    __hash__ = None  # type: ignore[assignment]


def real(value: Any) -> SumTerm:
    """The number of an attribute. Unproved for what is no finite number."""
    if isinstance(value, Real):
        return value.value
    if isinstance(value, (int, float)) and isfinite(value):
        return constant(value)
    raise Unproved(f"{value!r} is no number that is known")


@dataclass(frozen=True, eq=False)
class Tensor:
    """A tensor: its shape, its dtype, and its element at an index."""

    shape: tuple[Poly, ...]
    dtype: Poly
    at: Callable[[Index], SumTerm]
    flat: Callable[[Poly], SumTerm] | None = None
    """The element at a place in row-major order, where that is simpler than by its index."""
    holds: Callable[[], str] | None = None
    """A dtype that has all of the values, where they were converted to a wider one."""

    @property
    def ndim(self) -> int:
        return len(self.shape)


Value = Tensor | tuple[Tensor, ...] | Family


@dataclass
class Calculation:
    """One side of a rule in one case."""

    path: Path
    algebra: TermAlgebra
    given: bool
    """True for the source, of which it is known that all its calls are well-formed."""
    steps: list[str] = field(default_factory=list)

    def must(self, relation: Relation, what: str) -> None:
        """Note a demand of a call: it is known of one of the source, and to be shown for one of the target."""
        if self.given:
            self.path.assume(relation)
        else:
            self.path.require(relation, what)

    def refuse(self, what: str) -> NoReturn:
        """Say that a call is not well-formed: there is none in the source, and no proof if one is in the target."""
        raise Impossible(what) if self.given else Unproved(what)

    def same(self, left: Poly, right: Poly, what: str) -> None:
        """Two sizes that a call demands to be equal."""
        self.must(("==", left - right), what)

    def whole(self, p: Poly) -> Any:
        """A number as attributes have it."""
        return whole(p, self.path)

    def index(self, sizes: Sequence[Poly], name: str = "r") -> tuple[IntAtom, ...]:
        """New indices for axes of some sizes."""
        return tuple(self.path.index(self.path.reduce(size), name) for size in sizes)

    def dtype(self, *operands: Tensor, of: str = "") -> Poly:
        """The dtype to which those of operands are promoted; ``of`` names a function that changes that of integers."""
        codes = sorted({self.path.reduce(operand.dtype) for operand in operands}, key=lambda p: p.text)
        code = self.path.operate(CODE, *codes)
        return self.path.operate(f"{RESULT} {of}", code) if of else code


def flat_place(index: Index, shape: Sequence[Poly]) -> Poly:
    """The place of an index in row-major order."""
    place = Poly()
    for p, size in zip(index, shape, strict=True):
        place = place * size + p
    return place


def element_at(calc: Calculation, tensor: Tensor, place: Poly) -> SumTerm:
    """The element of a tensor at a place in row-major order."""
    if tensor.flat is not None:
        return tensor.flat(place)
    path, index = calc.path, []
    for axis in range(tensor.ndim):
        behind = product(tensor.shape[axis + 1 :])
        p = path.quotient(place, behind)
        index.append(p if axis == 0 else p - tensor.shape[axis] * path.quotient(place, behind * tensor.shape[axis]))
    return tensor.at(tuple(map(path.reduce, index)))

"""Tensors of which the elements are expressions of their indices."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from math import isfinite
from typing import Any, NoReturn

from gsl.prove.family import Family
from gsl.prove.normal import TermAlgebra
from gsl.prove.path import Path
from gsl.prove.poly import Impossible, IntAtom, Poly, Relation, Unproved, product
from gsl.prove.terms import SumTerm, constant
from gsl.prove.whole import Whole, whole

Index = tuple[Poly, ...]
DTYPES = (
    "", "bool", "uint8", "int8", "int16", "int32", "int64", "float16", "bfloat16", "float32", "float64", "uint16",
    "uint32", "uint64", "complex64", "complex128",
)  # fmt: skip
"""The dtypes by their code."""


class DType(Whole):
    """A dtype of which only its code is known."""

    __slots__ = ()
    __hash__ = None

    def __eq__(self, other: object) -> bool:
        if isinstance(other, str):
            return other in DTYPES and super().__eq__(DTYPES.index(other))
        return super().__eq__(other)

    def __ne__(self, other: object) -> bool:
        return not self == other


class Real:
    """An attribute that is a real number of which nothing is known, or what is computed of one."""

    __slots__ = ("algebra", "value")

    def __init__(self, value: SumTerm, algebra: TermAlgebra) -> None:
        self.value = value
        self.algebra = algebra

    def _with(self, other: Any, operate: Callable[[SumTerm, SumTerm], SumTerm]) -> Any:
        if isinstance(other, bool) or not isinstance(other, (int, float, Real)):
            return NotImplemented
        return Real(operate(self.value, real(other)), self.algebra)

    def __add__(self, other: Any) -> Any:
        return self._with(other, self.algebra.add)

    __radd__ = __add__

    def __mul__(self, other: Any) -> Any:
        return self._with(other, self.algebra.times)

    __rmul__ = __mul__

    def __neg__(self) -> Real:
        return Real(self.algebra.negative(self.value), self.algebra)

    def __sub__(self, other: Any) -> Any:
        return self._with(other, lambda a, b: self.algebra.add(a, self.algebra.negative(b)))

    def __rsub__(self, other: Any) -> Any:
        return self._with(other, lambda a, b: self.algebra.add(b, self.algebra.negative(a)))

    def __truediv__(self, other: Any) -> Any:
        return self._with(other, lambda a, b: self.algebra.times(a, self.algebra.inverse(b)))

    def __rtruediv__(self, other: Any) -> Any:
        return self._with(other, lambda a, b: self.algebra.times(b, self.algebra.inverse(a)))

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
        """What a call demands: known of one of the source, and to be shown for one of the target."""
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

    def dtype(self, *operands: Tensor) -> Poly:
        """The dtype to which those of operands are promoted."""
        codes = sorted({self.path.reduce(operand.dtype) for operand in operands}, key=lambda p: p.text)
        return self.path.operate("code", *codes) if len(codes) > 1 else codes[0]


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

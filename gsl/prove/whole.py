"""Whole numbers of which only an expression is known, as code that reads attributes and shapes takes them."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from gsl.prove.poly import Poly, Unproved, poly

if TYPE_CHECKING:
    from gsl.prove.path import Path


class Whole:
    """A whole number of which an expression is known, as attributes and sizes are; comparing it makes cases."""

    __slots__ = ("path", "poly")
    __hash__ = None  # type: ignore[assignment]

    def __init__(self, value: Poly, path: Path) -> None:
        self.poly = value
        self.path = path

    def __repr__(self) -> str:
        return str(self.path.reduce(self.poly))

    def _with(self, other: Any, operate: Callable[[Poly, Poly], Poly]) -> Any:
        if isinstance(other, Whole):
            other = other.poly
        elif isinstance(other, bool) or not isinstance(other, int):
            return NotImplemented
        return whole(operate(self.poly, poly(other)), self.path)

    def __add__(self, other: Any) -> Any:
        return self._with(other, lambda a, b: a + b)

    __radd__ = __add__

    def __sub__(self, other: Any) -> Any:
        return self._with(other, lambda a, b: a - b)

    def __rsub__(self, other: Any) -> Any:
        return self._with(other, lambda a, b: b - a)

    def __mul__(self, other: Any) -> Any:
        return self._with(other, lambda a, b: a * b)

    __rmul__ = __mul__

    def __floordiv__(self, other: Any) -> Any:
        return self._with(other, self.path.quotient)

    def __rfloordiv__(self, other: Any) -> Any:
        return self._with(other, lambda a, b: self.path.quotient(b, a))

    def __mod__(self, other: Any) -> Any:
        return self._with(other, self.path.remainder)

    def __rmod__(self, other: Any) -> Any:
        return self._with(other, lambda a, b: self.path.remainder(b, a))

    def __neg__(self) -> Any:
        return whole(-self.poly, self.path)

    def _is(self, kind: str, other: Any, sign: int = 1, more: int = 0) -> Any:
        if isinstance(other, Whole):
            other = other.poly
        elif isinstance(other, bool) or not isinstance(other, int):
            return NotImplemented
        return self.path.decide((kind, (self.poly - other) * sign + more))

    def __eq__(self, other: object) -> bool:
        found = self._is("==", other)
        return False if found is NotImplemented else bool(found)

    def __ne__(self, other: object) -> bool:
        return not self == other

    def __ge__(self, other: Any) -> Any:
        return self._is(">=", other)

    def __gt__(self, other: Any) -> Any:
        return self._is(">=", other, more=-1)

    def __le__(self, other: Any) -> Any:
        return self._is(">=", other, -1)

    def __lt__(self, other: Any) -> Any:
        return self._is(">=", other, -1, -1)


def whole(value: Poly | int, path: Path) -> Any:
    """A number as code takes it: an int where it is known, else a :class:`Whole`."""
    if isinstance(value, int):
        return value
    value = path.reduce(value)
    return value.number if value.number is not None else Whole(value, path)


def number(value: Any) -> Poly:
    """The polynomial of an int or a :class:`Whole`. Unproved for anything else."""
    if isinstance(value, Whole):
        return value.poly
    if isinstance(value, int) and not isinstance(value, bool):
        return Poly.of(value)
    raise Unproved(f"{value!r} is no whole number")

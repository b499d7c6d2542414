"""The demands of a pattern on the type of its node, and on its values."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from math import inf, isnan
from typing import Any

from gsl.attr import Expr
from gsl.attr.ast import Ast, Literal
from gsl.attr.expr import to_ast
from gsl.attr.text import listed, render
from gsl.errors import PatternError
from gsl.graph import SymDim
from gsl.spec import normalise


@dataclass(frozen=True, slots=True, repr=False)
class Domain:
    """An interval of numbers, without 0 or with every ``step``-th number only, if so demanded."""

    low: float = -inf
    high: float = inf
    nonzero: bool = False
    step: int | None = None
    """The distance of the numbers from ``low`` on, where they are whole; ``None`` for all real numbers."""

    @staticmethod
    def of(given: Any) -> Domain:
        """The domain that ``values=`` names: a name, an interval ``(low, high)``, or a range of whole numbers.

        An end of an interval is part of it, and ``None`` where there is none. PatternError for anything else.
        """
        match given:
            case Domain():
                return given
            case str() if given in NAMES:
                return NAMES[given]
            case range() if len(given):
                return Domain(min(given), max(given), step=abs(given.step))
            case (low, high) if all(end is None or _is_number(end) for end in (low, high)):
                found = Domain(-inf if low is None else low, inf if high is None else high)
                if found.low <= found.high and (low, high) != (None, None):
                    return found
        names = ", ".join(map(repr, NAMES))
        raise PatternError.here(
            f"values= takes {names}, an interval (low, high) with an end that may be None, or a range that is "
            f"not empty; got {given!r}"
        )

    def has(self, numbers: Any) -> Any:
        """True where a number, or an element of a tensor, is in the domain."""
        found = (numbers >= self.low) & (numbers <= self.high)
        if self.nonzero:
            found = found & (numbers != 0)
        return found if self.step is None else found & ((numbers + -self.low) % self.step == 0)

    def outside(self, value: Any) -> Any:
        """The first number of a literal or a tensor that is not in the domain; ``None`` if all are, or ``value`` is."""
        if not hasattr(value, "shape"):
            return None if value is None or self.has(value) else value
        wrong = value.reshape(-1)
        wrong = wrong[~self.has(wrong)]
        return wrong[0].item() if len(wrong) else None

    def within(self, low: int, high: int) -> Domain:
        """The numbers of the domain from one number to another, if there are some."""
        first = low if self.step is None else self.low + -(-max(low - int(self.low), 0) // self.step) * self.step
        found = replace(self, low=max(self.low, first), high=min(self.high, high))
        return found if found.low <= found.high else self

    def mapped(self, tensor: Any) -> Any:
        """Numbers of the domain, one for each element of a tensor: itself where it is one, as a rule."""
        low, high = self.low, self.high
        if self.step is not None:
            return int(low) + self.step * (tensor.abs().floor() % (int(high - low) // self.step + 1))
        if -inf < low and high < inf:
            width = high - low
            place = (tensor - low).abs() % (2 * width) if width else tensor * 0
            tensor = (low + place.where(place <= width, 2 * width - place)).clamp(low, high)
        elif -inf < low:
            tensor = low + (tensor - low).abs()
        elif high < inf:
            tensor = high - (tensor - high).abs()
        return tensor.where(tensor != 0, 1) if self.nonzero else tensor

    @property
    def words(self) -> str:
        """The domain, as what is said of a tensor."""
        text = repr(self)
        return text.strip("'") if text.startswith("'") else f"in {text if self.step else f'[{text[1:-1]}]'}"

    def parts(self) -> Iterator[Any]:
        """The text in parts, see :mod:`gsl.attr.text`."""
        yield repr(self)

    def __repr__(self) -> str:
        for name, domain in NAMES.items():
            if domain == self:
                return repr(name)
        if self.step is not None:
            step = f", {self.step}" if self.step > 1 else ""
            return f"range({self.low}, {self.high + 1}{step})"
        return repr((None if self.low == -inf else self.low, None if self.high == inf else self.high))


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and not isnan(value)


NAMES = {"positive": Domain(low=0, nonzero=True), "nonnegative": Domain(low=0), "nonzero": Domain(nonzero=True)}
"""The domains that have a name."""


TENSOR = ("shape", "dtype", "ndim")


@dataclass(frozen=True, slots=True)
class KeywordText:
    """A keyword and its value, as they are written in a call."""

    name: str
    value: Any

    def parts(self) -> Iterator[Any]:
        """The text in parts."""
        yield f"{self.name}="
        yield self.value


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class TypeGuard:
    """The demands of a pattern on the type and the values of its node; ``None`` where it demands nothing."""

    shape: Ast | tuple[Ast | None, ...] | None = None
    dtype: Ast | None = None
    ndim: Ast | None = None
    values: Domain | None = None

    @staticmethod
    def of(shape: Any = None, dtype: Any = None, ndim: Any = None, values: Any = None) -> TypeGuard | None:
        """The guard of the keywords ``shape=``, ``dtype=``, ``ndim=``, ``values=``; ``None`` if none is given.

        Raises PatternError for what is no shape, no dtype, no number of dimensions or no set of numbers.
        """
        if shape is None and dtype is None and ndim is None and values is None:
            return None
        guard = TypeGuard(
            None if shape is None else _shape(shape),
            None if dtype is None else _dtype(dtype),
            None if ndim is None else _size("ndim", ndim),
            None if values is None else Domain.of(values),
        )
        if isinstance(guard.shape, tuple) and isinstance(guard.ndim, Literal) and guard.ndim.value != len(guard.shape):
            raise PatternError.here(f"shape={shape!r} has {len(guard.shape)} dimensions, and ndim= is {ndim!r}")
        return guard

    def expressions(self) -> Iterator[Ast]:
        """The expressions that the guard is made of."""
        if isinstance(self.shape, tuple):
            yield from (size for size in self.shape if size is not None)
        elif self.shape is not None:
            yield self.shape
        yield from (part for part in (self.dtype, self.ndim) if part is not None)

    def keywords(self) -> Iterator[KeywordText]:
        """The demands as they are written."""
        for name in (*TENSOR, "values"):
            value = getattr(self, name)
            if isinstance(value, tuple):
                value = ShapeText(value)
            if value is not None:
                yield KeywordText(name, value)

    def parts(self) -> Iterator[Any]:
        """The text of the guard in parts."""
        return listed(self.keywords())

    def __repr__(self) -> str:
        return render(self)


@dataclass(frozen=True, slots=True)
class ShapeText:
    """A shape as it is written."""

    sizes: tuple[Ast | None, ...]

    def parts(self) -> Iterator[Any]:
        """The text in parts."""
        yield "("
        yield from listed("None" if size is None else size for size in self.sizes)
        yield ",)" if len(self.sizes) == 1 else ")"


def _shape(shape: Any) -> Ast | tuple[Ast | None, ...]:
    if isinstance(shape, (tuple, list)):
        return tuple(None if size is None else _size(f"shape[{axis}]", size) for axis, size in enumerate(shape))
    if isinstance(shape, Expr):
        return shape.ast
    raise PatternError.here(
        f"shape= takes a tuple with a number, an expression or None for each dimension, got {shape!r}"
    )


def _size(what: str, size: Any) -> Ast:
    node = to_ast(size)
    if isinstance(node, Literal) and not isinstance(node.value, SymDim):
        value = node.value
        if isinstance(value, bool) or not isinstance(value, int) or value < 0:
            raise PatternError.here(f"{what} is a number of at least 0, or an expression; got {size!r}")
    return node


def _dtype(dtype: Any) -> Ast:
    node = to_ast(dtype)
    if not isinstance(node, Literal):
        return node
    try:
        return Literal(normalise.dtype(node.value))
    except ValueError as error:
        raise PatternError.here(f"dtype= takes the name of a dtype: {error}") from None

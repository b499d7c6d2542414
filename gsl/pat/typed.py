"""The demands of a pattern on the type of its node, and on its values."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from gsl.attr import Expr
from gsl.attr.ast import Ast, Literal
from gsl.attr.expr import to_ast
from gsl.attr.text import listed, render
from gsl.errors import PatternError, located
from gsl.graph import SymDim
from gsl.pat.values import Domain
from gsl.spec import normalise

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
        return TypeGuard(
            None if shape is None else _shape(shape),
            None if dtype is None else _dtype(dtype),
            None if ndim is None else _size("ndim", ndim),
            None if values is None else Domain.of(values),
        )

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
    raise PatternError(
        located(f"shape= takes a tuple with a number, an expression or None for each dimension, got {shape!r}")
    )


def _size(what: str, size: Any) -> Ast:
    node = to_ast(size)
    if isinstance(node, Literal) and not isinstance(node.value, SymDim):
        value = node.value
        if isinstance(value, bool) or not isinstance(value, int) or value < 0:
            raise PatternError(located(f"{what} is a number of at least 0, or an expression; got {size!r}"))
    return node


def _dtype(dtype: Any) -> Ast:
    node = to_ast(dtype)
    if not isinstance(node, Literal):
        return node
    try:
        return Literal(normalise.dtype(node.value))
    except ValueError as error:
        raise PatternError(located(f"dtype= takes the name of a dtype: {error}")) from None

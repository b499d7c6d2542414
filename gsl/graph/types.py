"""The types of nodes, and symbolic dimensions in them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Union

from gsl.errors import UndecidableError


class SymDim:
    """A dimension given by a sympy expression over positive integer symbols."""

    __slots__ = ("expr",)

    def __init__(self, expr: Any) -> None:
        self.expr = expr

    def __repr__(self) -> str:
        return str(self.expr)

    def __hash__(self) -> int:
        return hash(self.expr)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, SymDim) and bool(self.expr == other.expr)

    def __add__(self, other: Dim) -> Dim:
        return _combine(lambda a, b: a + b, self, other)

    def __radd__(self, other: Dim) -> Dim:
        return _combine(lambda a, b: a + b, other, self)

    def __sub__(self, other: Dim) -> Dim:
        return _combine(lambda a, b: a - b, self, other)

    def __rsub__(self, other: Dim) -> Dim:
        return _combine(lambda a, b: a - b, other, self)

    def __mul__(self, other: Dim) -> Dim:
        return _combine(lambda a, b: a * b, self, other)

    def __rmul__(self, other: Dim) -> Dim:
        return _combine(lambda a, b: a * b, other, self)

    def __floordiv__(self, other: Dim) -> Dim:
        return _combine(lambda a, b: a // b, self, other)

    def __rfloordiv__(self, other: Dim) -> Dim:
        return _combine(lambda a, b: a // b, other, self)

    def __mod__(self, other: Dim) -> Dim:
        return _combine(lambda a, b: a % b, self, other)

    def __rmod__(self, other: Dim) -> Dim:
        return _combine(lambda a, b: a % b, other, self)

    def __neg__(self) -> Dim:
        return _combine(lambda a, b: a - b, 0, self)


Dim = Union[int, SymDim]


def unknown_size() -> SymDim:
    """A size of which nothing is known. It equals no other one."""
    import sympy

    return SymDim(sympy.Dummy("unknown", integer=True, nonnegative=True))


def is_unknown(size: Dim) -> bool:
    """True for a size that follows from no other one, or is computed from such a size."""
    return isinstance(size, SymDim) and any(symbol.is_Dummy for symbol in size.expr.free_symbols)


def dim(expr: Any) -> Dim:
    """The dimension of a sympy expression: an ``int`` where the expression is a number."""
    import sympy

    expr = sympy.expand(expr)
    return int(expr) if expr.is_Integer else SymDim(expr)


def _combine(operate: Callable[[Any, Any], Any], left: Dim, right: Dim) -> Dim:
    import sympy

    def expr(value: Dim) -> Any:
        if isinstance(value, SymDim):
            return value.expr
        if isinstance(value, int) and not isinstance(value, bool):
            return sympy.Integer(value)
        return None

    a, b = expr(left), expr(right)
    if a is None or b is None:
        return NotImplemented  # type: ignore[no-any-return]
    return dim(operate(a, b))


_SIGNS = {
    "==": ("is_zero", "is_nonzero"), "!=": ("is_nonzero", "is_zero"), "<": ("is_negative", "is_nonnegative"),
    "<=": ("is_nonpositive", "is_positive"), ">": ("is_positive", "is_nonpositive"),
    ">=": ("is_nonnegative", "is_negative"),
}  # fmt: skip
"""The signs of a difference for which each relation holds, and for which it does not."""


def compare(relation: str, left: Dim, right: Dim) -> bool:
    """Decide ``left relation right`` for every value of the symbols; relation is ``== != < <= > >=``.

    Raises UndecidableError where the answer depends on the sizes.
    """
    import sympy

    difference: Dim = left - right
    expr = difference.expr if isinstance(difference, SymDim) else sympy.Integer(difference)
    holds, fails = _SIGNS[relation]
    if getattr(expr, holds):
        return True
    if getattr(expr, fails):
        return False
    raise UndecidableError(f"{left} {relation} {right} depends on the sizes at run time")


def dtype_name(dtype: Any) -> str:
    """The name of a dtype, which is the same in torch, TVM and numpy."""
    return str(dtype).removeprefix("torch.")


@dataclass(frozen=True, slots=True)
class TensorType:
    """A tensor of a shape (ints and symbolic dimensions) and a dtype (``"float32"``, ``"int64"``, ``"bool"``)."""

    shape: tuple[Dim, ...]
    dtype: str

    @staticmethod
    def of(value: Any) -> TensorType:
        """The type of a tensor of torch, or of an array of numpy."""
        return TensorType(tuple(value.shape), dtype_name(value.dtype))

    @property
    def ndim(self) -> int:
        return len(self.shape)

    def __str__(self) -> str:
        return f"{self.dtype}[{', '.join(map(str, self.shape))}]"


@dataclass(frozen=True, slots=True)
class TupleType:
    """A tuple whose fields have these types (``None`` where a field's type is not known)."""

    fields: tuple[Type | None, ...]

    def __str__(self) -> str:
        return f"({', '.join(map(str, self.fields))})"


Type = Union[TensorType, TupleType]


def has_unknown(type: Type | None) -> bool:
    """True for the type of a tensor with a size of which nothing is known."""
    return isinstance(type, TensorType) and any(map(is_unknown, type.shape))

"""Writing: the common part of the writers of canonical calls."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from tvm import relax
from tvm.relax.expr import _update_type

from gsl.front.core.lower import Lowering
from gsl.front.relax.spellings.reading import RelaxScope
from gsl.graph import Dim
from gsl.spec.normalise import is_number


class RelaxLowering(Lowering[RelaxScope]):
    """The writing of one canonical call: its type, and the means to build an expression whose parts have types."""

    framework = "Relax"

    def call(self, function: Callable[..., Any], *args: Any, **attrs: Any) -> Any:
        """A call of a function of ``relax.op``, with its type. ValueError with Relax's reason if it is ill-typed."""
        try:
            expr = function(*args, **attrs)
            _update_type(expr, expr.op.get_attr("FInferType")(expr, self.target.builder))
        except (TypeError, ValueError, RuntimeError) as error:
            raise ValueError(str(error).strip().splitlines()[0]) from None
        return expr

    def field(self, expr: Any, index: int) -> Any:
        """One result of a call with several."""
        return relax.TupleGetItem(expr, index)

    def cast(self, value: Any, dtype: str) -> Any:
        """A tensor or a number as a tensor of that dtype."""
        if is_number(value):
            try:
                return relax.const(_convert(value, dtype), dtype)
            except OverflowError:
                raise ValueError(f"{value} is not a number of {dtype}") from None
        return value if self.dtype_of(value) == dtype else self.call(relax.op.astype, value, dtype)

    def tensor(self, value: Any, dtype: str) -> Any:
        """An array of numpy as a tensor."""
        return relax.const(value, dtype)

    def prims(self, shape: Sequence[Dim]) -> list[Any]:
        """Dimensions as sizes of Relax."""
        return [self.target.prim(size) for size in shape]

    def reshape(self, expr: Any, shape: Sequence[Dim]) -> Any:
        """The same elements with another shape."""
        if self.shape_of(expr) == tuple(shape):
            return expr
        return self.call(relax.op.reshape, expr, relax.ShapeExpr(self.prims(shape)))

    def permute(self, expr: Any, axes: Sequence[int]) -> Any:
        """The axes in another order."""
        if list(axes) == list(range(len(axes))):
            return expr
        return self.call(relax.op.permute_dims, expr, list(axes))

    def along(self, vector: Any, rank: int, axis: int) -> Any:
        """A tensor of one axis, to be broadcast along all axes of a tensor but this one."""
        if axis == rank - 1:
            return vector
        size = self.shape_of(vector)[0]
        return self.reshape(vector, [size if place == axis else 1 for place in range(rank)])

    def full(self, value: bool | int | float, shape: Sequence[Dim], dtype: str) -> Any:
        """A tensor filled with a number."""
        sizes = relax.ShapeExpr(self.prims(shape))
        number = self.cast(value, dtype)
        if math.isfinite(value):
            return self.call(relax.op.full, sizes, number, dtype)
        # Relax can't lower the filling with an infinity.
        return self.call(relax.op.broadcast_to, number, sizes)


def is_float(dtype: str) -> bool:
    return "float" in dtype


def spread(operands: Any) -> Any:
    """A list of tensors as one expression."""
    return relax.Tuple(list(operands)) if isinstance(operands, (tuple, list)) else operands


def _convert(value: bool | int | float, dtype: str) -> bool | int | float:
    if dtype == "bool":
        return bool(value)
    return float(value) if is_float(dtype) else int(value)

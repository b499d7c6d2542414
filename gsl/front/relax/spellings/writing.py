"""Writing: the common part of the writers of canonical calls."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tvm import relax
from tvm.relax.expr import _update_type

from gsl.front.relax.spellings.reading import RelaxScope
from gsl.front.tree import compose
from gsl.graph import Dim, SymDim, TensorType, TupleType, Type
from gsl.spec import TABLE
from gsl.spec.meaning import Operand, infer

RelaxLower = Callable[..., Any]
"""``writer(w, *operands, **attrs)`` with a Writing ``w``, and canonical attributes without the derived ones."""


class RelaxLowering:
    """The writing of one canonical call: its type, and the means to build an expression whose parts have types."""

    def __init__(self, writers: Mapping[str, RelaxLower], scope: RelaxScope, result: Type) -> None:
        self.writers = writers
        self.scope = scope
        self.result = result
        self.builder = scope.builder

    @property
    def shape(self) -> tuple[Dim, ...]:
        """The shape of the result."""
        assert isinstance(self.result, TensorType)
        return self.result.shape

    @property
    def dtype(self) -> str:
        """The dtype of the result."""
        assert isinstance(self.result, TensorType)
        return self.result.dtype

    def type_of(self, expr: Any) -> TensorType:
        """The type of an expression that is a tensor. ValueError where it is not known."""
        found = self.scope.type_of(expr)
        if not isinstance(found, TensorType):
            raise ValueError(f"expected a tensor of known type, found {found}")
        return found

    def shape_of(self, expr: Any) -> tuple[Dim, ...]:
        return self.type_of(expr).shape

    def sizes_of(self, expr: Any) -> tuple[int, ...]:
        """The shape of a tensor all of whose sizes are known. ValueError for another one."""
        return known(self.shape_of(expr))

    def rank_of(self, expr: Any) -> int:
        return self.type_of(expr).ndim

    def dtype_of(self, expr: Any) -> str:
        return self.type_of(expr).dtype

    def call(self, function: Callable[..., Any], *args: Any, **attrs: Any) -> Any:
        """A call of a function of ``relax.op``, with its type. ValueError with Relax's reason if it is ill-typed."""
        try:
            expr = function(*args, **attrs)
            _update_type(expr, expr.op.get_attr("FInferType")(expr, self.builder))
        except (TypeError, ValueError, RuntimeError) as error:
            raise ValueError(str(error).strip().splitlines()[0]) from None
        return expr

    def field(self, expr: Any, index: int) -> Any:
        """One result of a call with several."""
        return relax.TupleGetItem(expr, index)

    def write(self, op: str, *operands: Any, **attrs: Any) -> Any:
        """Another canonical call as part of this one."""
        return write(self.writers, op, attrs, operands, self.scope)

    def cast(self, value: Any, dtype: str) -> Any:
        """A tensor or a number as a tensor of that dtype."""
        if is_number(value):
            try:
                return relax.const(_convert(value, dtype), dtype)
            except OverflowError:
                raise ValueError(f"{value} is not a number of {dtype}") from None
        return value if self.dtype_of(value) == dtype else self.call(relax.op.astype, value, dtype)

    def prims(self, shape: Sequence[Dim]) -> list[Any]:
        """Dimensions as sizes of Relax."""
        return [self.scope.prim(size) for size in shape]

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

    def layout(self, expr: Any, source: str, target: str) -> Any:
        """A tensor of one layout in another one of the same letters."""
        return self.permute(expr, [source.index(letter) for letter in target])

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


def write(
    writers: Mapping[str, RelaxLower], op: str, attrs: Mapping[str, Any], operands: Sequence[Any], scope: RelaxScope
) -> Any:
    """The expression of a canonical call, of just the type that its declaration gives it.

    ValueError with the reason where Relax can't say it.
    """
    spec = TABLE[op]
    types = [type_or_number(operand, scope) for operand in operands]
    result = infer(spec, types, attrs)
    if result is None:
        raise ValueError(f"{op}: the types of the operands have to be known, found {', '.join(map(str, types))}")
    given = {name: value for name, value in attrs.items() if name in spec.attrs and spec.attrs[name].derive is None}
    full = spec.complete(given, tuple([None if is_number(t) else t for t in types]))  # type: ignore[misc]
    own = {name: value for name, value in full.items() if spec.attrs[name].derive is None}
    try:
        if op in writers:
            expr = writers[op](RelaxLowering(writers, scope, result), *operands, **own)
        else:
            expr = compose(
                op, own, operands, lambda op, attrs, parts, _: write(writers, op, attrs, parts, scope), scope.type_of
            )
    except ValueError as error:
        raise ValueError(str(error) if str(error).startswith(f"{op}:") else f"{op}: {error}") from None
    found = scope.type_of(expr)
    if found != result:
        raise ValueError(f"{op}: Relax gives it the type {found}, not {result}")
    return expr


def type_or_number(operand: Any, scope: RelaxScope) -> Operand:
    """The type of an operand, or the number that it is."""
    if is_number(operand):
        value: Operand = operand
        return value
    if isinstance(operand, (tuple, list)):
        return TupleType(tuple([scope.type_of(field) for field in operand]))
    return scope.type_of(operand)


def is_number(value: Any) -> bool:
    return isinstance(value, (bool, int, float))


def is_float(dtype: str) -> bool:
    return "float" in dtype


def known(shape: Sequence[Dim]) -> tuple[int, ...]:
    """Sizes that are all numbers. ValueError for others."""
    if any(isinstance(size, SymDim) for size in shape):
        raise ValueError(f"the sizes have to be known, found {tuple(shape)}")
    return tuple([int(size) for size in shape])  # type: ignore[arg-type]


def spread(operands: Any) -> Any:
    """A list of tensors as one expression."""
    return relax.Tuple(list(operands)) if isinstance(operands, (tuple, list)) else operands


def _convert(value: bool | int | float, dtype: str) -> bool | int | float:
    if dtype == "bool":
        return bool(value)
    return float(value) if is_float(dtype) else int(value)

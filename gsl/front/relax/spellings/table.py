"""The common part of the readers of Relax's calls, and of the writers of canonical ones."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from tvm import relax, tirx
from tvm.relax.expr import _update_type

from gsl.errors import is_exhaustion
from gsl.front.core.infer import require_finite, shortest
from gsl.front.tree import Canon
from gsl.front.tvm.spellings import TvmCall, TvmLowering, function, is_float, unread_unless
from gsl.graph import Dim, TensorType, Type
from gsl.spec.normalise import is_number


@dataclass(frozen=True, slots=True, eq=False)
class Reshaped:
    """A ``relax.Constant`` seen with another shape: a bias that is written as a constant of shape (1, C, 1, 1)."""

    constant: Any
    shape: tuple[int, ...]


class RelaxScope(Protocol):
    """The function around a call: its variables, and sizes in terms of both sides."""

    def lookup(self, var: Any) -> Any | None:
        """The expression that is bound to the variable in the function; ``None`` for a parameter."""

    def is_used_once(self, var: Any) -> bool:
        """True if one binding of the function uses the variable, and its result does not."""

    def type_of(self, expr: Any) -> Type | None:
        """The type of an expression, ``None`` where its shape or dtype is not known."""

    def dim(self, prim: Any) -> Dim:
        """A size of Relax (``PrimExpr``, also an int) as a dimension."""

    def prim(self, dim: Dim) -> Any:
        """A dimension as a size of Relax: an int or a ``PrimExpr``."""

    @property
    def builder(self) -> Any:
        """A builder that knows that the symbolic sizes of the function are not negative."""


class RelaxCall(TvmCall):
    """A call of Relax that is to be read."""

    def number(self, position: int) -> bool | int | float:
        """An immediate, as it stands among the arguments, as a Python number."""
        return number(self.operands[position])

    def dims(self, position: int) -> tuple[Dim, ...]:
        """The sizes of a shape or a tuple of sizes; Unread where they are not written out."""
        shape = self.operands[position]
        if isinstance(shape, relax.Var):
            shape = self.scope.lookup(shape)
        if isinstance(shape, relax.ShapeExpr):
            return tuple([self.scope.dim(size) for size in shape.values])
        unread_unless(isinstance(shape, relax.Tuple))
        return tuple([self.scope.dim(size) for size in shape.fields])

    def tensors(self) -> Any:
        """A list of tensors as the first argument: the tuple of them, or a variable that is one."""
        return Canon("tuple", tuple(self.x.fields)) if isinstance(self.x, relax.Tuple) else self.x

    def produced(self, expr: Any) -> Any:
        """The expression that computes a value, looked up through variables."""
        while isinstance(expr, relax.Var):
            bound = self.scope.lookup(expr)
            if bound is None:
                return expr
            expr = bound
        return expr


def number(value: Any) -> bool | int | float:
    """An immediate as a Python number; Unread for anything else."""
    unread_unless(isinstance(value, (tirx.IntImm, tirx.FloatImm)))
    dtype = str(value.ty.dtype)
    if dtype == "bool":
        return bool(value.value)
    if isinstance(value, tirx.IntImm):
        return int(value.value)
    return shortest(value.value) if dtype == "float32" else float(value.value)


def leaf_type(leaf: Any, scope: RelaxScope) -> Type | None:
    """The type of a leaf of a reading."""
    if not isinstance(leaf, Reshaped):
        return scope.type_of(leaf)
    found = scope.type_of(leaf.constant)
    return TensorType(leaf.shape, found.dtype) if isinstance(found, TensorType) else None


# ---------------------------------------------------------------- writing


class RelaxLowering(TvmLowering[RelaxScope]):
    """The writing of one canonical call, as an expression whose parts have types."""

    framework = "Relax"
    functions = relax.op

    def call(self, name: str, *args: Any, **attrs: Any) -> Any:
        """A call of a function of ``relax.op``, with its type. ValueError with Relax's reason if it is ill-typed."""
        given = {key: list(value) if isinstance(value, tuple) else value for key, value in attrs.items()}
        try:
            expr = function(self.functions, name)(*args, **given)
            _update_type(expr, expr.op.get_attr("FInferType")(expr, self.target.builder))
        except (TypeError, ValueError, RuntimeError) as error:
            if is_exhaustion(error):
                raise
            raise ValueError(str(error).strip().splitlines()[0]) from None
        return expr

    def field(self, expr: Any, index: int) -> Any:
        """One result of a call with several."""
        return relax.TupleGetItem(expr, index)

    def cast(self, value: Any, dtype: str) -> Any:
        """A tensor or a number as a tensor of that dtype."""
        if is_number(value):
            try:
                with np.errstate(over="ignore"):
                    made = relax.const(_convert(value, dtype), dtype)
            except OverflowError:
                raise ValueError(f"{value} is not a number of {dtype}") from None
            require_finite(value, float(made.value.numpy()), dtype)
            return made
        return value if self.dtype_of(value) == dtype else self.call("astype", value, dtype)

    def tensor(self, value: Any, dtype: str) -> Any:
        """An array of numpy as a tensor."""
        return relax.const(value, dtype)

    def prims(self, shape: Sequence[Dim]) -> list[Any]:
        """Dimensions as sizes of Relax."""
        return [self.target.prim(size) for size in shape]

    def sizes(self, shape: Sequence[Dim]) -> Any:
        """Dimensions as an expression."""
        return relax.ShapeExpr(self.prims(shape))

    def reshape(self, expr: Any, shape: Sequence[Dim]) -> Any:
        """The same elements with another shape."""
        return expr if self.shape_of(expr) == tuple(shape) else self.call("reshape", expr, self.sizes(shape))

    def permute(self, expr: Any, axes: Sequence[int]) -> Any:
        """The axes in another order."""
        return expr if list(axes) == list(range(len(axes))) else self.call("permute_dims", expr, list(axes))

    def along(self, vector: Any, rank: int, axis: int) -> Any:
        """A tensor of one axis, to be broadcast along all axes of a tensor but this one."""
        if axis == rank - 1:
            return vector
        size = self.shape_of(vector)[0]
        return self.reshape(vector, [size if place == axis else 1 for place in range(rank)])

    def full(self, value: bool | int | float, shape: Sequence[Dim], dtype: str) -> Any:
        """A tensor filled with a number."""
        number = self.cast(value, dtype)
        if math.isfinite(value):
            return self.call("full", self.sizes(shape), number, dtype)
        # Relax can't lower the filling with an infinity.
        return self.call("broadcast_to", number, self.sizes(shape))

    def each(self, data: Any) -> Any:
        """The tensors of a tuple in the dtype of the result."""
        return spread(super().each(data))


def spread(operands: Any) -> Any:
    """A list of tensors as one expression."""
    return relax.Tuple(list(operands)) if isinstance(operands, (tuple, list)) else operands


def _convert(value: bool | int | float, dtype: str) -> bool | int | float:
    if dtype == "bool":
        return bool(value)
    return float(value) if is_float(dtype) else int(value)

"""The common part of the readers of Relax's calls, and of the writers of canonical ones."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from tvm import ir, relax, tirx
from tvm.relax.expr import _update_type

from gsl.front.core.infer import require_finite, shortest
from gsl.front.core.lower import Lowering
from gsl.front.tree import Canon, type_of_reading
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

    def type_of(self, expr: Any) -> Type | None:
        """The type of an expression, ``None`` where its shape or dtype is not known."""

    def dim(self, prim: Any) -> Dim:
        """A size of Relax (``PrimExpr``, also an int) as a dimension."""

    def prim(self, dim: Dim) -> Any:
        """A dimension as a size of Relax: an int or a ``PrimExpr``."""

    @property
    def builder(self) -> Any:
        """A builder that knows that the symbolic sizes of the function are not negative."""


RelaxLift = Callable[[Any, RelaxScope], Canon]
"""Reads a call; raises Unread where it is not exactly a canonical one."""

FieldReader = Callable[[Any, int, RelaxScope], Canon]
"""Reads one field of a call with several results."""


class RelaxUnread(Exception):
    """The call is not exactly a canonical one."""


def unread_unless(condition: bool) -> None:
    """End the reading unless it is exact."""
    if not condition:
        raise RelaxUnread


# Attributes and arguments


def ints(value: Any) -> tuple[int, ...]:
    """A list of numbers among the attributes."""
    return tuple([int(item) for item in value])


def optional_ints(value: Any) -> tuple[int, ...] | None:
    return None if value is None else ints(value)


def dtype_name(value: Any) -> str:
    """The name of a dtype, "" for none."""
    return "" if value is None else str(value)


def number(value: Any) -> bool | int | float:
    """An immediate, as it stands among the arguments, as a Python number."""
    unread_unless(isinstance(value, (tirx.IntImm, tirx.FloatImm)))
    dtype = str(value.ty.dtype)
    if dtype == "bool":
        return bool(value.value)
    if isinstance(value, tirx.IntImm):
        return int(value.value)
    return shortest(value.value) if dtype == "float32" else float(value.value)


def dims(shape: Any, scope: RelaxScope) -> tuple[Dim, ...]:
    """The sizes of a shape or a tuple of sizes; Unread where they are not written out."""
    if isinstance(shape, relax.Var):
        shape = scope.lookup(shape)
    if isinstance(shape, relax.ShapeExpr):
        return tuple([scope.dim(size) for size in shape.values])
    unread_unless(isinstance(shape, relax.Tuple))
    return tuple([scope.dim(size) for size in shape.fields])


def tensors(value: Any) -> Any:
    """A list of tensors: the tuple of them, or a variable that is one."""
    return Canon("tuple", tuple(value.fields)) if isinstance(value, relax.Tuple) else value


def produced(expr: Any, scope: RelaxScope) -> Any:
    """The expression that computes a value, looked up through variables."""
    while isinstance(expr, relax.Var):
        bound = scope.lookup(expr)
        if bound is None:
            return expr
        expr = bound
    return expr


def tensor_type(expr: Any, scope: RelaxScope) -> TensorType:
    """The type of a tensor; Unread where it is not known."""
    found = scope.type_of(expr)
    if not isinstance(found, TensorType):
        raise RelaxUnread
    return found


def is_call(expr: Any, *names: str) -> bool:
    """True for a call of one of these operators."""
    return isinstance(expr, relax.Call) and isinstance(expr.op, ir.Op) and expr.op.name in names


# Readers of calls whose arguments and attributes are those of a canonical operator

def plain(op: str, arity: int, *names: str, **renamed: str) -> RelaxLift:
    """The reader of a call with ``arity`` tensors, and attributes of the same names or of others in Relax."""

    def read(call: Any, scope: RelaxScope) -> Canon:
        unread_unless(len(call.args) == arity)
        return Canon(op, tuple(call.args), attributes(call, *names, **renamed))

    return read


def attributes(call: Any, *names: str, **renamed: str) -> dict[str, Any]:
    """Attributes as Python values: numbers, strings, ``None``, tuples of ints, and the names of dtypes."""
    return {own: _attribute(call.attrs, theirs) for own, theirs in {**dict(zip(names, names)), **renamed}.items()}


def _attribute(attrs: Any, name: str) -> Any:
    value = getattr(attrs, name)
    if name.endswith("dtype"):
        return dtype_name(value)
    if value is None or isinstance(value, (bool, int, float)):
        return value
    return str(value) if isinstance(value, str) else ints(value)


# Types


def _leaf_type(leaf: Any, scope: RelaxScope) -> Type | None:
    if not isinstance(leaf, Reshaped):
        return scope.type_of(leaf)
    found = scope.type_of(leaf.constant)
    return TensorType(leaf.shape, found.dtype) if isinstance(found, TensorType) else None


def checked(tree: Canon, wanted: Type | None, scope: RelaxScope) -> Canon | None:
    """The reading if it has the type of the expression that was read, which has to be known; otherwise none."""
    if wanted is None:
        return None
    try:
        return tree if type_of_reading(tree, lambda leaf: _leaf_type(leaf, scope)) == wanted else None
    except ValueError:
        return None


# ---------------------------------------------------------------- writing


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
                with np.errstate(over="ignore"):
                    made = relax.const(_convert(value, dtype), dtype)
            except OverflowError:
                raise ValueError(f"{value} is not a number of {dtype}") from None
            require_finite(value, float(made.value.numpy()), dtype)
            return made
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

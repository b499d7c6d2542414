"""The types of Relax and those of the view."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tvm
from tvm import ir, relax

from gsl.front.relax.dims import Dims
from gsl.front.relax.objects import items
from gsl.front.tvm.tensors import known_dtype
from gsl.graph import TensorType, TupleType, Type

Lookup = Callable[[Any], Any]
"""The expression that is bound to a variable, ``None`` where nothing is."""


def from_relax(found: Any, dims: Dims, lookup: Lookup) -> Type | None:
    """The type of the view for one of Relax; ``None`` where shape or dtype are not known, and for other values."""
    if isinstance(found, ir.TupleType):
        return TupleType(tuple([from_relax(field, dims, lookup) for field in found.fields]))
    if not isinstance(found, relax.TensorType) or found.dtype is None:
        return None
    shape = found.shape
    if isinstance(shape, relax.Var):
        known = lookup(shape)
        shape = known if known is not None else getattr(shape.ty, "values", None)
    if isinstance(shape, relax.ShapeExpr):
        shape = items(shape.values)
    dtype = str(found.dtype.dtype)
    if shape is None or not known_dtype(dtype):
        return None
    return TensorType(tuple([dims.dim(size) for size in shape]), dtype)


def to_relax(type: Any, dims: Dims) -> Any:
    """The type of Relax for one of the view; a type of Relax, or one in TVMScript, as it is. ValueError for others."""
    match type:
        case ir.Type():
            return type
        case tvm.runtime.ObjectConvertible():
            # As TVMScript has it: R.Tensor((16,), "float32")
            return type.asobject()
        case TensorType():
            return relax.TensorType([dims.prim(size) for size in type.shape], type.dtype)
        case TupleType():
            return relax.TupleType([to_relax(field, dims) for field in type.fields])
        case list() | tuple():
            return relax.TupleType([to_relax(field, dims) for field in type])
    raise ValueError(f"expected a type, found {type!r}")


def type_of(expr: Any, dims: Dims, lookup: Lookup) -> Type | None:
    """The type of an expression, ``None`` where it is not known. Tuples and their fields need no type of their own."""
    if isinstance(expr, ir.GenericConst):
        return TensorType(tuple(map(int, expr.value.shape)), str(expr.value.dtype))
    if isinstance(expr, relax.Tuple):
        return TupleType(tuple([type_of(field, dims, lookup) for field in expr.fields]))
    if isinstance(expr, relax.TupleGetItem) and expr.ty.is_missing():
        whole = type_of(expr.tuple_value, dims, lookup)
        return whole.fields[expr.index] if isinstance(whole, TupleType) else None
    return from_relax(expr.ty, dims, lookup)


def is_tensors(found: Any) -> bool:
    """True for the type of a tensor, or of a tuple of nothing but tensors."""
    if isinstance(found, ir.TupleType):
        return all(map(is_tensors, found.fields))
    return isinstance(found, relax.TensorType)


def is_constant(expr: Any) -> bool:
    """True for a tensor that is written in the program."""
    return isinstance(expr, ir.GenericConst) and isinstance(expr.value, tvm.runtime.Tensor)

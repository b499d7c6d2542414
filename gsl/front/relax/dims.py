"""Sizes: Relax's integer expressions as dimensions, and back, exactly."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import sympy
import tvm
import tvm_ffi
from tvm import ir, relax, tirx
from tvm.ir import prim as p

from gsl.errors import FrontEndError
from gsl.front.core.store import FreeNames
from gsl.front.relax.function import items
from gsl.front.tvm.tensors import known_dtype
from gsl.graph import Dim, SymDim, TensorType, TupleType, Type

_Key: Final[Any] = tvm_ffi.StructuralKey


class Dims:
    """The symbols of one program: variables of Relax, told apart by identity, and expressions that sympy can't say."""

    def __init__(self) -> None:
        self._symbols: dict[Any, Any] = {}
        """The symbol of each variable."""
        self._opaque: dict[Any, Any] = {}
        """The symbol of each expression without a form in sympy, by its structure."""
        self._back: dict[Any, Any] = {}
        """The expression of Relax for each symbol, and for each expression that was read."""
        self._names = FreeNames()

    def dim(self, prim: Any) -> Dim:
        """The dimension of an integer expression."""
        if type(prim) is p.IntImm:
            return int(prim.value)
        if isinstance(prim, (int, p.IntImm)):
            return int(prim)
        expr = sympy.expand(self._sympy(prim))
        if expr.is_Integer:
            return int(expr)
        self._back.setdefault(expr, prim)
        return SymDim(expr)

    def prim(self, size: Dim) -> Any:
        """The integer expression of a dimension: an int or a ``PrimExpr``. FrontEndError for foreign symbols."""
        if not isinstance(size, SymDim):
            return int(size)
        return self._prim(size.expr)

    def _sympy(self, prim: Any) -> Any:
        match prim:
            case int() | p.IntImm():
                return sympy.Integer(int(prim))
            case p.Add():
                return self._sympy(prim.a) + self._sympy(prim.b)
            case p.Sub():
                return self._sympy(prim.a) - self._sympy(prim.b)
            case p.Mul():
                return self._sympy(prim.a) * self._sympy(prim.b)
            case p.FloorDiv():
                return sympy.floor(sympy.expand(self._sympy(prim.a) / self._sympy(prim.b)))
            case p.FloorMod():
                return sympy.Mod(self._sympy(prim.a), self._sympy(prim.b))
            case p.Max():
                return sympy.Max(self._sympy(prim.a), self._sympy(prim.b))
            case p.Min():
                return sympy.Min(self._sympy(prim.a), self._sympy(prim.b))
            case ir.Var():
                if prim not in self._symbols:
                    self._symbols[prim] = self._symbol(prim.name, prim)
                return self._symbols[prim]
        key = _Key(prim)
        if key not in self._opaque:
            self._opaque[key] = self._symbol(str(prim), prim)
        return self._opaque[key]

    def _symbol(self, wanted: str, prim: Any) -> Any:
        symbol = sympy.Symbol(self._names.free(wanted), integer=True, positive=True)
        self._back[symbol] = prim
        return symbol

    def _prim(self, expr: Any) -> Any:
        known = self._back.get(expr)
        if known is not None:
            return known
        if expr.is_Integer:
            return tirx.IntImm("int64", int(expr))
        if expr.is_Add or expr.is_Mul:
            return self._arithmetic(expr)
        if expr.is_Pow and expr.exp.is_Integer and expr.exp > 0:
            base = self._prim(expr.base)
            product = base
            for _ in range(int(expr.exp) - 1):
                product = product * base
            return product
        args = expr.args
        if isinstance(expr, sympy.floor):
            above, below = sympy.fraction(sympy.together(args[0]))
            return tirx.floordiv(self._prim(sympy.expand(above)), self._prim(sympy.expand(below)))
        if isinstance(expr, sympy.Mod):
            return tirx.floormod(self._prim(args[0]), self._prim(args[1]))
        if isinstance(expr, (sympy.Max, sympy.Min)):
            combine = tirx.max if isinstance(expr, sympy.Max) else tirx.min
            value = self._prim(args[0])
            for other in args[1:]:
                value = combine(value, self._prim(other))
            return value
        raise FrontEndError(f"the size {expr} is no expression of this program's variables, so Relax can't say it")

    def _arithmetic(self, expr: Any) -> Any:
        """A sum or product, positive terms first."""
        if expr.is_Mul:
            product = None
            for part in expr.args:
                product = self._prim(part) if product is None else product * self._prim(part)
            return product
        terms = sorted(expr.args, key=lambda term: (term.could_extract_minus_sign(), term.is_number, str(term)))
        total = self._prim(terms[0])
        for term in terms[1:]:
            negative = term.could_extract_minus_sign()
            total = total - self._prim(-term) if negative else total + self._prim(term)
        return total


# ---------------------------------------------------------------- types


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

"""Sizes and types: Relax's integer expressions as dimensions, and back, exactly; the types of the expressions of one
function, as the table of spellings asks for them."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property, reduce
from typing import Any, ClassVar, Final

import sympy
import tvm
import tvm_ffi
from tvm import ir, relax, tirx
from tvm.ir import prim as p
from tvm.relax import BlockBuilder, ShapeExpr, ShapeType, Var
from tvm.relax import TensorType as RelaxTensorType
from tvm.relax.analysis import defined_symbolic_vars
from tvm.tirx import IntImm

from gsl.errors import FrontEndError
from gsl.front.core.store import FreeNames
from gsl.front.relax.function import RelaxFunction, items
from gsl.front.tvm.tensors import known_dtype
from gsl.graph import Dim, SymDim, TensorType, TupleType, Type
from gsl.spec.meaning import has_symbols

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
        if isinstance(prim, (int, p.IntImm)):
            return sympy.Integer(int(prim))
        combine = _FROM_RELAX.get(type(prim))
        if combine is not None:
            return combine(self._sympy(prim.a), self._sympy(prim.b))
        if isinstance(prim, ir.Var):
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
        if expr.is_Add:
            return self._sum(expr)
        if expr.is_Pow and expr.exp.is_Integer and expr.exp > 0:
            return reduce(operator.mul, [self._prim(expr.base)] * int(expr.exp))
        if isinstance(expr, sympy.floor):
            above, below = sympy.fraction(sympy.together(expr.args[0]))
            return tirx.floordiv(self._prim(sympy.expand(above)), self._prim(sympy.expand(below)))
        combine = _TO_RELAX.get(expr.func)
        if combine is None:
            raise FrontEndError(f"the size {expr} is no expression of this program's variables, so Relax can't say it")
        return reduce(combine, map(self._prim, expr.args))

    def _sum(self, expr: Any) -> Any:
        """A sum, positive terms first."""
        terms = sorted(expr.args, key=lambda term: (term.could_extract_minus_sign(), term.is_number, str(term)))
        total = self._prim(terms[0])
        for term in terms[1:]:
            negative = term.could_extract_minus_sign()
            total = total - self._prim(-term) if negative else total + self._prim(term)
        return total


_FROM_RELAX: Final[Mapping[Any, Callable[[Any, Any], Any]]] = {
    p.Add: operator.add, p.Sub: operator.sub, p.Mul: operator.mul, p.FloorMod: sympy.Mod, p.Max: sympy.Max,
    p.Min: sympy.Min, p.FloorDiv: lambda a, b: sympy.floor(sympy.expand(a / b)),
}  # fmt: skip
"""The expression of sympy for one of Relax of two parts."""
_TO_RELAX: Final[Mapping[Any, Callable[[Any, Any], Any]]] = {
    sympy.Mul: operator.mul, sympy.Mod: tirx.floormod, sympy.Max: tirx.max, sympy.Min: tirx.min,
}  # fmt: skip


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
    if is_constant(expr):
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
    """True for a tensor that is written in the program, of a dtype that torch has."""
    is_tensor = isinstance(expr, ir.GenericConst) and isinstance(expr.value, tvm.runtime.Tensor)
    return is_tensor and known_dtype(str(expr.value.dtype))


def is_number(expr: Any) -> bool:
    """True for a tensor without axes that is written in the program, which may be read as a number."""
    return is_constant(expr) and not expr.value.shape


# ---------------------------------------------------------------- types of a function


class Shared:
    """The facts that hold in all functions of a process: types without symbolic sizes, one object for equal ones, and
    the known facts about operators and calls, by these objects.

    Nothing is ever dropped, so that an object's address stays its own: when there is too much, functions that are
    loaded from then on share another one.
    """

    MOST: Final = 8192
    latest: ClassVar[Shared]

    def __init__(self) -> None:
        self.types: dict[Any, Type] = {}
        """Those of tensors by dtype and shape, others by themselves."""
        self.operators: dict[Any, Any] = {}
        """The known facts about each operator of Relax."""
        self.recipes: dict[bytes, Any] = {}
        """The recipes of calls, by what they depend on, as far as TVM has checked calls that were written so."""
        self.functions: dict[Any, tuple[Any, Any]] = {}
        """The functions of groups that TVM has checked, and their structures, by all that they depend on. TVM never
        changes a function, so that modules can share it."""
        self.writable: set[Any] = set()
        """The new calls that were tried."""
        self.count = 0
        """The number of the facts that are known about how calls are read."""

    @classmethod
    def now(cls) -> Shared:
        """The one that new functions share."""
        known = cls.latest
        if max(known.count, *map(len, (known.types, known.recipes, known.functions, known.writable))) > cls.MOST:
            cls.latest = cls()
        return cls.latest

    def one(self, type: Type | None) -> Type | None:
        """The one object of a type; a type with symbolic sizes as it is."""
        return type if type is None or has_symbols(type) else self.types.setdefault(_key_of(type), type)

    def has(self, type: Type | None) -> bool:
        """True for the one object of a type."""
        return type is not None and self.types.get(_key_of(type)) is type


def _key_of(type: Type) -> Any:
    return (type.dtype, type.shape) if isinstance(type, TensorType) else type


Shared.latest = Shared()


class FunctionScope:
    """The variables of one function, and sizes in terms of Relax and of the view."""

    def __init__(self, function: RelaxFunction, dims: Dims) -> None:
        self.function = function
        self.dims = dims
        self.shared = Shared.now()
        self.looked_up: list[Any] = []
        """The variables whose bindings were asked for; ``None`` where it was asked for their users."""
        self.is_exact = True
        """True if equal types in the view mean equal types in Relax, for all variables whose types were asked for."""
        self.has_devices = False
        """True if a variable whose type was asked for lies on a virtual device."""
        self._types: dict[Any, Type | None] = {}
        """The types of the function's parameters."""
        self._equal: dict[Any, Type | None] = {}
        """One object for all types that are equal: by the sizes and the dtype, or by the type itself."""
        self._tensors: dict[tuple[int, int], tuple[Any, Any, Type | None]] = {}
        """The types of tensors by the addresses of their shapes and dtypes, which are kept so that they stay theirs."""
        self._dtypes: dict[int, tuple[Any, str]] = {}
        """The names of dtypes by their addresses, with what has those."""

    def lookup(self, var: Any) -> Any:
        """The expression that is bound to the variable in the function; ``None`` for a parameter."""
        self.looked_up.append(var)
        return self.function.lookup(var)

    def is_used_once(self, var: Any) -> bool:
        """True if one binding of the function uses the variable, and its result does not."""
        self.looked_up.append(None)  # which no form of a call covers
        return len(self.function.users.get(var, ())) == 1 and var not in self.function.used_by_result

    def type_of(self, expr: Any) -> Type | None:
        """The type of an expression, ``None`` where its shape or dtype is not known.

        Those of the function's variables are the same object if they are equal.
        """
        place = self.function.place.get(expr)
        if place is not None:
            return self.types[place]
        if expr in self._types:
            return self._types[expr]
        if not self.function.has(expr):
            return type_of(expr, self.dims, self.lookup)
        (found,) = self._of_variables((expr,))
        self._types[expr] = found
        return found

    @cached_property
    def builder(self) -> Any:
        """A builder that knows that the symbolic sizes of the function are not negative."""
        builder = BlockBuilder()
        sizes = symbolic_sizes(self.function.native)
        if sizes:
            builder.begin_scope([Var("sizes", ShapeType(sizes))])
        return builder

    @cached_property
    def types(self) -> Sequence[Type | None]:
        """The types of the variables of the function's bindings, in their order."""
        return self._of_variables(self.function.vars)

    def _of_variables(self, variables: Sequence[Any]) -> list[Type | None]:
        """Their types. This is asked for every variable of a function, and each look at TVM takes time."""
        tensors = self._tensors
        found: list[Type | None] = []
        for var in variables:
            own, known = var.ty, None
            if type(own) is RelaxTensorType:
                shape, dtype = own.shape, own.dtype
                if type(shape) is ShapeExpr and dtype is not None and own.vdevice is None:
                    # A function has many types and few shapes.
                    key = (shape.__chandle__(), dtype.__chandle__())
                    known = tensors.get(key)
                    if known is None:
                        known = tensors[key] = (shape, dtype, self._of_sizes(own, items(shape.values), dtype))
            found.append(self._of(own) if known is None else known[2])
        return found

    def _of(self, own: Any) -> Type | None:
        """The type for one that is no tensor's, or of which the view does not show all."""
        self.has_devices = self.has_devices or (type(own) is RelaxTensorType and own.vdevice is not None)
        self.is_exact = self.is_exact and _is_exact(own)
        return self._one(own)

    def _of_sizes(self, own: Any, sizes: list[Any], dtype: Any) -> Type | None:
        place = dtype.__chandle__()
        if place not in self._dtypes:
            self._dtypes[place] = (dtype, str(dtype.dtype))
        numbers = tuple([size.value for size in sizes if type(size) is IntImm])
        if len(numbers) < len(sizes):
            self.is_exact = False
            return self._one(own)
        key = (self._dtypes[place][1], numbers)
        if key not in self._equal:
            self._equal[key] = self.shared.types.get(key) or self._one(own)
        return self._equal[key]

    def _one(self, own: Any) -> Type | None:
        found = from_relax(own, self.dims, self.lookup)
        return self._equal.setdefault(found, self.shared.one(found))

    def dim(self, prim: Any) -> Dim:
        """A size of Relax (``PrimExpr``, also an int) as a dimension."""
        return self.dims.dim(prim)

    def prim(self, dim: Dim) -> Any:
        """A dimension as a size of Relax: an int or a ``PrimExpr``."""
        return self.dims.prim(dim)


def symbolic_sizes(function: Any) -> list[Any]:
    """The variables that stand for sizes of what a function is given, or is matched in it."""
    return items(defined_symbolic_vars(function))


def _is_exact(own: Any) -> bool:
    """True if the view shows all of a type of Relax: its sizes are numbers, it has a dtype, and no device."""
    if type(own) is ir.TupleType:
        return all(map(_is_exact, own.fields))
    if type(own) is not RelaxTensorType or own.dtype is None or own.vdevice is not None:
        return False
    return type(own.shape) is ShapeExpr and all(type(size) is IntImm for size in own.shape.values)

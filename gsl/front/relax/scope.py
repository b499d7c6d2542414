"""The function that is read or written, as the table of spellings sees it."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Any, ClassVar, Final

from tvm import ir
from tvm.relax import BlockBuilder, ShapeExpr, ShapeType, Var
from tvm.relax import TensorType as RelaxTensorType
from tvm.relax.analysis import defined_symbolic_vars
from tvm.tirx import IntImm

from gsl.front.relax.dims import Dims, from_relax, type_of
from gsl.front.relax.function import RelaxFunction, items
from gsl.graph import Dim, TensorType, Type
from gsl.spec.meaning import has_symbols


class Shared:
    """What holds in all functions of a process: types without symbolic sizes, one object for equal ones, and what is
    known about operators and calls by these objects.

    Nothing is ever dropped, so that an object's address stays its own: when there is too much, functions that are
    loaded from then on share another one.
    """

    MOST: Final = 8192
    latest: ClassVar[Shared]

    def __init__(self) -> None:
        self.types: dict[Any, Type] = {}
        """Those of tensors by dtype and shape, others by themselves."""
        self.operators: dict[Any, Any] = {}
        """What is known about each operator of Relax."""
        self.recipes: dict[bytes, Any] = {}
        """How calls are written, by what they depend on, as far as TVM has checked calls that were written so."""
        self.count = 0
        """The number of the facts that are known about how calls are read."""

    @classmethod
    def now(cls) -> Shared:
        """The one that new functions share."""
        if max(len(cls.latest.types), len(cls.latest.recipes), cls.latest.count) > cls.MOST:
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
        """The variables whose bindings were asked for."""
        self.is_exact = True
        """True if equal types in the view mean equal types in Relax, for all variables whose types were asked for."""
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
        known, found = self._tensors, []
        for var in variables:
            own = var.ty
            shape: Any = own.shape if type(own) is RelaxTensorType else None
            dtype = own.dtype if type(shape) is ShapeExpr else None
            if dtype is None or own.vdevice is not None:
                self.is_exact = self.is_exact and _is_exact(own)
                found.append(self._one(own))
                continue
            # A function has many types and few shapes.
            key = (shape.__chandle__(), dtype.__chandle__())
            tensor = known.get(key)
            if tensor is None:
                tensor = known[key] = (shape, dtype, self._of_sizes(own, items(shape.values), dtype))
            found.append(tensor[2])
        return found

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

"""What the table of spellings may ask of the function that is read or written."""

from __future__ import annotations

from typing import Any

from tvm import relax
from tvm.tirx import IntImm

from gsl.front.relax.dims import Dims
from gsl.front.relax.function import Function
from gsl.front.relax.objects import items
from gsl.front.relax.types import from_relax, type_of
from gsl.graph import Dim, Type


class FunctionScope:
    """The variables of one function, and sizes in terms of Relax and of the view."""

    def __init__(self, function: Function, dims: Dims) -> None:
        self.function = function
        self.dims = dims
        self.lookups = 0
        """How often it was asked what is bound to a variable."""
        self._types: dict[Any, Type | None] = {}
        """The types of variables."""
        self._equal: dict[Any, Type | None] = {}
        """One object for all types that are equal: by the sizes and the dtype, or by the type itself."""
        self._tensors: dict[tuple[int, int], tuple[Any, Any, Type | None]] = {}
        """The types of tensors by the addresses of their shapes and dtypes, which are kept so that they stay theirs."""
        self._dtypes: dict[int, tuple[Any, str]] = {}
        """The names of dtypes by their addresses, with what has those."""

    def lookup(self, var: Any) -> Any:
        """The expression that is bound to the variable in the function; ``None`` for a parameter."""
        self.lookups += 1
        return self.function.lookup(var)

    def type_of(self, expr: Any) -> Type | None:
        """The type of an expression, ``None`` where its shape or dtype is not known.

        Those of the function's variables are the same object if they are equal.
        """
        if expr in self._types:
            return self._types[expr]
        if expr not in self.function.known:
            return type_of(expr, self.dims, self.lookup)
        found = self._types[expr] = self._of_variable(expr.ty)
        return found

    def _of_variable(self, own: Any) -> Type | None:
        shape: Any = own.shape if type(own) is relax.TensorType else None
        if type(shape) is not relax.ShapeExpr or own.dtype is None:
            return self._one(own)
        # A function has many types and few shapes.
        dtype = own.dtype
        key = (shape.__chandle__(), dtype.__chandle__())
        found = self._tensors.get(key)
        if found is None:
            found = self._tensors[key] = (shape, dtype, self._of_sizes(own, items(shape.values), dtype))
        return found[2]

    def _of_sizes(self, own: Any, sizes: list[Any], dtype: Any) -> Type | None:
        place = dtype.__chandle__()
        if place not in self._dtypes:
            self._dtypes[place] = (dtype, str(dtype.dtype))
        numbers = tuple([size.value for size in sizes if type(size) is IntImm])
        if len(numbers) < len(sizes):
            return self._one(own)
        key = (self._dtypes[place][1], numbers)
        if key not in self._equal:
            self._equal[key] = self._one(own)
        return self._equal[key]

    def _one(self, own: Any) -> Type | None:
        found = from_relax(own, self.dims, self.lookup)
        return self._equal.setdefault(found, found)

    def dim(self, prim: Any) -> Dim:
        """A size of Relax (``PrimExpr``, also an int) as a dimension."""
        return self.dims.dim(prim)

    def prim(self, dim: Dim) -> Any:
        """A dimension as a size of Relax: an int or a ``PrimExpr``."""
        return self.dims.prim(dim)

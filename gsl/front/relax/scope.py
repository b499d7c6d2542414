"""What the table of spellings may ask of the function that is read or written."""

from __future__ import annotations

from typing import Any

from gsl.front.relax.dims import Dims
from gsl.front.relax.function import Function
from gsl.front.relax.types import type_of
from gsl.graph import Dim, Type


class FunctionScope:
    """The variables of one function, and sizes in terms of Relax and of the view."""

    def __init__(self, function: Function, dims: Dims) -> None:
        self.function = function
        self.dims = dims
        self._types: dict[Any, Type | None] = {}
        """The types of variables."""

    def lookup(self, var: Any) -> Any:
        """The expression that is bound to the variable in the function; ``None`` for a parameter."""
        return self.function.lookup(var)

    def type_of(self, expr: Any) -> Type | None:
        """The type of an expression, ``None`` where its shape or dtype is not known."""
        if expr not in self.function.known:
            return type_of(expr, self.dims, self.lookup)
        if expr not in self._types:
            self._types[expr] = type_of(expr, self.dims, self.lookup)
        return self._types[expr]

    def dim(self, prim: Any) -> Dim:
        """A size of Relax (``PrimExpr``, also an int) as a dimension."""
        return self.dims.dim(prim)

    def prim(self, dim: Dim) -> Any:
        """A dimension as a size of Relax: an int or a ``PrimExpr``."""
        return self.dims.prim(dim)

"""The questions that the table of spellings asks of the function that it reads or writes."""

from __future__ import annotations

from typing import Any, Protocol

from gsl.graph import Dim, Type


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

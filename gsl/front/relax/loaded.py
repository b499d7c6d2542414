"""The result of loading a function, besides the view: the links between the two."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Union

from gsl.front.relax.function import Function
from gsl.front.relax.handle import Handle, Leaf
from gsl.front.relax.scope import FunctionScope
from gsl.graph import Node


@dataclass(frozen=True, slots=True, eq=False)
class Field:
    """One output of the view, by its position among them."""

    position: int


@dataclass(frozen=True, slots=True, eq=False)
class Fields:
    """A tuple of the function's result; ``var`` is bound to it, if a variable is."""

    var: Any
    items: tuple[Result, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Fixed:
    """A part of the result that no view shows: a shape, a number."""

    expr: Any


Result = Union[Field, Fields, Fixed]


@dataclass
class Loaded:
    """The links between a view and its function."""

    function: Function
    scope: FunctionScope
    nodes: list[Node] = field(default_factory=list)
    """The view's nodes as they were loaded."""
    views: dict[Any, Node] = field(default_factory=dict)
    """The node of each variable, which need not be one of those."""
    result: Result = field(default_factory=lambda: Fixed(None))
    aliases: set[Any] = field(default_factory=set)
    """The variables that are bound to another variable or a constant, and have the view node of that."""
    outputs: int = 0
    """The number of the view's outputs."""
    leaves: dict[str, Any] = field(default_factory=dict)
    """The native tensors of the weights by the names of their view nodes."""

    @cached_property
    def natives(self) -> set[Any]:
        """The native handles of the view's nodes."""
        return {node.native for node in self.nodes}

    def shown(self, var: Any) -> Handle | Leaf | None:
        """The native handle of the view node that has the value of a variable, if one has."""
        view = self.views.get(var)
        return view.native if view is not None and view.native in self.natives else None

"""What loading a function gives: the view, and how it is connected with the function."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Union

from gsl.front.relax.function import Function
from gsl.front.relax.handle import Handle, Leaf
from gsl.front.relax.scope import FunctionScope
from gsl.graph import Graph


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


@dataclass(slots=True)
class Loaded:
    """The view of a function, and how it is connected with the function."""

    function: Function
    scope: FunctionScope
    shown: dict[Any, Handle | Leaf] = field(default_factory=dict)
    """For each variable: the native handle of the view node that has its value, if one has."""
    result: Result = field(default_factory=lambda: Fixed(None))
    leaves: dict[str, Any] = field(default_factory=dict)
    """The native tensors of the weights by the names of their view nodes."""
    graph: Graph = field(init=False)

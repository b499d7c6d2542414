"""The result of loading a function, besides the view: the links between the two."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Union

from tvm import relax

from gsl.front.core.handle import Handle, NativeLeaf, handle_of
from gsl.front.relax.function import RelaxFunction
from gsl.front.relax.handle import RelaxLeaf
from gsl.front.relax.scope import FunctionScope
from gsl.graph import INPUT, Node


@dataclass(frozen=True, slots=True, eq=False)
class TupleField:
    """One output of the view, by its position among them."""

    position: int


@dataclass(frozen=True, slots=True, eq=False)
class Fields:
    """A tuple of the function's result; ``var`` is bound to it, if a variable is."""

    var: Any
    items: tuple[OutputSource, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Fixed:
    """A part of the result that no view shows: a shape, a number."""

    expr: Any


OutputSource = Union[TupleField, Fields, Fixed]


@dataclass
class Loaded:
    """The links between a view and its function."""

    function: RelaxFunction
    scope: FunctionScope
    nodes: list[Node] = field(default_factory=list)
    """The view's nodes as they were loaded."""
    views: dict[Any, Node] = field(default_factory=dict)
    """The node of each variable, which need not be one of those."""
    result: OutputSource = field(default_factory=lambda: Fixed(None))
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

    def shown(self, var: Any) -> Handle | NativeLeaf | None:
        """The native handle of the view node that has the value of a variable, if one has."""
        view = self.views.get(var)
        return view.native if view is not None and view.native in self.natives else None


# ---------------------------------------------------------------- what is seen from outside


def result_tuples(function: RelaxFunction) -> set[Any]:
    """The variables that are bound to tuples for the function's result alone: the view shows their fields instead."""
    found: set[Any] = set()
    work = [function.result]
    while work:
        expr = work.pop()
        if isinstance(expr, relax.Tuple):
            work.extend(expr.fields)
        elif isinstance(expr, relax.Var):
            value = function.lookup(expr)
            if not isinstance(value, relax.Tuple):
                continue
            if all(function.vars[number] in found for number in function.users.get(expr, ())):
                found.add(expr)
                work.extend(value.fields)
    return found


def seen(nodes: list[Node], outputs: list[Node], named: set[Node], function: RelaxFunction) -> list[Node]:
    """The nodes without those that are only there for readings which see through them.

    ``named`` are those that have other variables than their own: those may be used by nothing but a name.
    """
    users: Counter[Node] = Counter(outputs)
    for node in nodes:
        users.update((*node.operands, *node.deps))
    gone: set[Node] = set()
    through: set[int] = set()
    for node in reversed(nodes):
        handle = handle_of(node)
        if users[node] or node in named or node.effect is not None or node.op == INPUT:
            unused = False
        elif handle is None:
            # A constant; a variable of the function stays.
            unused = isinstance(node.native, RelaxLeaf) and not function.has(node.native.expr)
        else:
            unused = not handle.is_root or function.place[handle.reading.native] in through
        if unused:
            gone.add(node)
            users.subtract((*node.operands, *node.deps))
        elif handle is not None:
            through.update(handle.reading.through)
    return [node for node in nodes if node not in gone]

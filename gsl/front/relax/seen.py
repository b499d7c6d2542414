"""Live nodes of a Relax function: the nodes that its view shows, and those that it leaves out."""

from __future__ import annotations

from collections import Counter
from typing import Any

from tvm import relax

from gsl.front.relax.function import Function
from gsl.front.relax.handle import Leaf, handle_of
from gsl.graph import INPUT, Node


def result_tuples(function: Function) -> set[Any]:
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


def seen(nodes: list[Node], outputs: list[Node], named: set[Node], function: Function) -> list[Node]:
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
            unused = isinstance(node.native, Leaf) and not function.has(node.native.expr)
        else:
            unused = not handle.is_root or function.place[handle.reading.var] in through
        if unused:
            gone.add(node)
            users.subtract((*node.operands, *node.deps))
        elif handle is not None:
            through.update(handle.reading.through)
    return [node for node in nodes if node not in gone]

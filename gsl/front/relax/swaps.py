"""Transpositions that attention is written with, which are taken back where they meet their inverses.

Relax has the heads of an attention on another axis than GSL. So a reading of it has transpositions, and so has what is
written: where both meet, neither is there.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from tvm import relax

from gsl.front.relax.function import replaced, with_value
from gsl.front.relax.objects import items
from gsl.graph import Node


class Swaps:
    """The variables of the transpositions with which attention was written."""

    def __init__(self) -> None:
        self.vars: set[Any] = set()

    def note(self, node: Node, var: Any, expr: Any) -> None:
        """Note a part of the expression that was written for a node."""
        if node.op == "nn.attention" and _axes(expr) is not None:
            self.vars.add(var)

    def undone(self, blocks: Sequence[list[Any]], result: Any) -> tuple[list[list[Any]], Any]:
        """The blocks of bindings, and the result, without those that meet an inverse."""
        if not self.vars:
            return list(blocks), result
        values = {binding.var: binding.value for bindings in blocks for binding in bindings}
        instead: dict[Any, Any] = {}
        first: set[Any] = set()
        """The first one of each pair, which may not be needed any more."""
        for var, value in values.items():
            source = None if _axes(value) is None else value.args[0]
            if source in values and not self.vars.isdisjoint((var, source)) and _are_inverse(values[source], value):
                inner = values[source].args[0]
                instead[var] = instead.get(inner, inner)
                first.add(source)
        kept = [[_with(binding, instead) for binding in bindings if binding.var not in instead] for bindings in blocks]
        new = replaced(result, instead)
        needed = _used([new, *[binding.value for bindings in kept for binding in bindings]])
        unused = first - needed
        return [[binding for binding in bindings if binding.var not in unused] for bindings in kept], new


def _axes(expr: Any) -> list[int] | None:
    """The axes of a transposition; ``None`` for anything else."""
    name = getattr(expr.op, "name", None) if isinstance(expr, relax.Call) else None
    if name != "relax.permute_dims" or expr.attrs.axes is None:
        return None
    return [int(axis) for axis in items(expr.attrs.axes)]


def _are_inverse(first: Any, second: Any) -> bool:
    inner, outer = _axes(first), _axes(second)
    return inner is not None and outer is not None and [inner[axis] for axis in outer] == list(range(len(inner)))


def _with(binding: Any, instead: Mapping[Any, Any]) -> Any:
    if not any(var in instead for var in relax.analysis.free_vars(binding.value)):
        return binding
    return with_value(binding, replaced(binding.value, instead))


def _used(exprs: Iterable[Any]) -> set[Any]:
    return {var for expr in exprs for var in relax.analysis.free_vars(expr)}

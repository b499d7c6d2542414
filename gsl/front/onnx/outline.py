"""The operators that the views of a model may have, each with those of its operands: from the names in the model."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from itertools import chain
from typing import Any, Final

import onnx_ir as ir

from gsl.front.onnx import groups, opaque, spellings
from gsl.front.onnx.copying import quick
from gsl.front.onnx.load import INITIALIZER, by_target
from gsl.graph import GETITEM, LEAVES, Below, Op
from gsl.spec import DeclaredSpec
from gsl.spec.natives import OnnxOp

FIRST: Final = 64
"""The number of nodes after which it is asked first; then after four times as many, and so on."""

_PARTS: Final = quick(ir.Node, "inputs", "outputs", "attributes.data", "op_type", "domain", "overload")
_ANYWHERE: Final = frozenset((*LEAVES, INITIALIZER))
"""What any operand may be: a value that is given, or a literal that a reading makes."""


def may_have(model: ir.Model, operators: Mapping[str, DeclaredSpec], fits: Callable[[Below], bool]) -> bool:
    """True if something that fits may be in the view of the main graph, of a function, or of a graph in a node.

    A node is read as calls of the operators that its row tells, or of one that users declared for it, or stays as it
    is. What such a call uses is computed by another one of them, or by a node right above this one, or above a node
    through which it is read.
    """
    if any(groups.label_of(function) is not None for function in model.functions.values()):
        return True
    declared, readings = by_target(operators), dict[Any, _Reading]()
    made: dict[ir.Value | None, tuple[Any, ...]] = {None: ()}
    """For each value the name of the node that computes it, and those of the nodes above, if it is read through."""
    pairs: set[tuple[Any, Any]] = set()
    graphs = [model.graph, *(function.graph for function in model.functions.values())]
    seen, following = 0, FIRST
    for graph in graphs:  # the list grows while it is read
        made.update(dict.fromkeys((*graph.inputs, *graph.initializers.values()), ()))
        for inputs, outputs, attributes, op, domain, overload in map(_PARTS, graph):
            try:
                above = [made[value] for value in inputs]
            except KeyError:
                return True  # the model is not sound: who reads it will tell
            name = op, domain, overload, len(outputs) > 1
            if name not in readings:
                readings[name] = _reading(name, declared)
            pairs.update([(name, other) for names in above for other in names])
            through = [names[0] for names in above if names] if op in spellings.THROUGH else ()
            for value in outputs:
                made[value] = name, *through
            if attributes:
                graphs += opaque.graphs(attributes.values())
            seen += 1
            if seen == following:
                following *= 4
                if fits(_below(readings, pairs)):
                    return True
    return fits(_below(readings, pairs))


_Reading = tuple[Collection[Op], Collection[Op]]
"""The operators of the calls as which a node may be read: of that which gives its value, and of those below it."""


def _reading(name: tuple[str, str, str, bool], declared: Mapping[OnnxOp, list[DeclaredSpec]]) -> _Reading:
    op, domain, overload, has_fields = name
    target = OnnxOp(op, domain, overload)
    specs = declared.get(target, ())
    known, inner = ((), ()) if domain or overload else spellings.READINGS.get(op, ((), ()))
    roots = (target, *known, *(spec.name for spec in specs))
    is_whole = not (has_fields or any(spec.fields for spec in specs))
    return (roots, inner) if is_whole else ((*roots, GETITEM), (*inner, *roots))


def _below(readings: Mapping[Any, _Reading], pairs: Collection[tuple[Any, Any]]) -> Below:
    below: dict[Op, set[Op]] = {op: set() for op in _ANYWHERE}
    for roots, inner in readings.values():
        for op in chain(roots, inner):
            below.setdefault(op, set(_ANYWHERE)).update(inner)
    for name, other in pairs:
        for op in chain(*readings[name]):
            below[op].update(readings[other][0])
    return below


__all__ = ["may_have"]

"""The operators that the views of a model may have, each with those of its operands: from the names in the model."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from itertools import chain
from typing import Any, Final

import onnx_ir as ir

from gsl.front.onnx import groups, opaque, spellings
from gsl.front.onnx.load import INITIALIZER, PARTS, by_target
from gsl.graph import GETITEM, LEAVES, Below, Op
from gsl.spec import DeclaredSpec
from gsl.spec.natives import OnnxOp

FIRST: Final = 16
"""The number of nodes after which it is asked first; then after eight times as many, and so on."""

_ANYWHERE: Final = frozenset((*LEAVES, INITIALIZER))
"""What any operand may be: a value that is given, or a literal that a reading makes."""

_THROUGH: Final = frozenset(chain.from_iterable(spellings.THROUGH.values()))
"""The operators of nodes that may be read together with one that uses them."""

_Reading = tuple[Collection[Op], Collection[Op]]
"""The operators of the calls as which a node may be read: of that which gives its value, and of those below it."""


def may_have(model: ir.Model, operators: Mapping[str, DeclaredSpec], fits: Callable[[Below], bool]) -> bool:
    """True if something that fits may be in the view of the main graph, of a function, or of a graph in a node.

    A node is read as calls of the operators that its row tells, or of one that users declared for it, or stays as it
    is. What such a call uses is computed by another one of them, or by a node right above this one, or above a node
    through which it is read.
    """
    if any(groups.label_of(function) is not None for function in model.functions.values()):
        return True
    declared = by_target(operators)
    numbers: dict[Any, tuple[int]] = {}
    """The kinds of nodes that are read alike."""
    kinds: list[tuple[_Reading, set[int]]] = []
    """What each kind is read as, and the kinds of the nodes that compute what is used there."""
    made: dict[ir.Value | None, tuple[int, ...]] = {None: ()}
    """For each value the kind of the node that computes it, and those of the nodes above that it is read through."""
    graphs = [model.graph, *(function.graph for function in model.functions.values())]
    seen, following = 0, FIRST
    for graph in graphs:  # the list grows while it is read
        made.update(dict.fromkeys((*graph.inputs, *graph.initializers.values()), ()))
        for inputs, outputs, attributes, op, domain, overload in map(PARTS, graph):
            name = op, domain, overload, len(outputs)
            number = numbers.get(name)
            if number is None:
                number = numbers[name] = (len(kinds),)
                kinds.append((_reading(OnnxOp(op, domain, overload), len(outputs) > 1, declared), set()))
            _, above = kinds[number[0]]
            try:
                for value in inputs:
                    above.update(made[value])
            except KeyError:
                return True  # the model is not sound: who reads it will tell
            through = [made[value][0] for value in inputs if made[value]] if op in _THROUGH else ()
            for value in outputs:
                made[value] = (*number, *through) if through else number
            if attributes:
                graphs += opaque.graphs(attributes.values())
            seen += 1
            if seen == following:
                following *= 8
                if fits(_below(kinds)):
                    return True
    return fits(_below(kinds))


def _reading(target: OnnxOp, has_fields: bool, declared: Mapping[OnnxOp, Sequence[DeclaredSpec]]) -> _Reading:
    specs, is_foreign = declared.get(target, ()), target.domain or target.overload
    known, inner = ((), ()) if is_foreign else spellings.READINGS.get(target.name, ((), ()))
    roots = (target, *known, *(spec.name for spec in specs))
    if has_fields or any(spec.fields for spec in specs):
        return (*roots, GETITEM), (*roots, *inner)
    return roots, inner


def _below(kinds: Sequence[tuple[_Reading, set[int]]]) -> Below:
    below: dict[Op, set[Op]] = {op: set() for op in _ANYWHERE}
    for (roots, inner), above in kinds:
        operands = {*_ANYWHERE, *inner, *chain.from_iterable([kinds[other][0][0] for other in above])}
        for op in chain(roots, inner):
            below.setdefault(op, set()).update(operands)
    return below


__all__ = ["may_have"]

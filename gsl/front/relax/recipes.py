"""Recipes for writing calls of the view in Relax: one recipe for all calls that differ only in their operands."""

from __future__ import annotations

import marshal
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from tvm import ir, relax

from gsl.front.relax.handle import is_literal
from gsl.front.relax.objects import call, items
from gsl.graph import CONST, Node, TensorType
from gsl.spec import TABLE


@dataclass(frozen=True, slots=True, eq=False)
class Part:
    """One call that is written."""

    op: Any
    args: tuple[Any, ...]
    """Operands by their positions among the tensors, earlier parts by the complements of theirs; or an expression
    without variables."""
    attrs: Any
    ty_args: Any
    type: Any
    name: str
    """The operator's own name."""
    is_plain: bool
    """True if the operands are the tensors, in their order."""


Recipe = tuple[Part, ...]
"""Calls in order, each with the types that Relax gave it; the last one has the value."""


def nearby_key(node: Node) -> tuple[Any, ...] | None:
    """A key for calls that rules made in the same way: such calls share their attributes and types.

    Other calls may be written alike as well. It holds as long as none of these objects goes.
    """
    operands = node.operands
    if type(node.type) is not TensorType:
        return None
    if len(operands) == 1:  # as below, for those of which there are most
        (operand,) = operands
        if operand.op == CONST or type(operand.type) is not TensorType:
            return None
        return (node.op, id(node.attrs), id(node.type), id(operand.type))
    if len(set(operands)) < len(operands):
        return None
    key: list[Any] = [node.op, id(node.attrs), id(node.type)]
    for operand in operands:
        if operand.op == CONST or type(operand.type) is not TensorType:
            return None
        key.append(id(operand.type))
    return tuple(key)


def key_of(node: Node) -> bytes | None:
    """A key of everything that the writing of a call depends on besides its operands; ``None`` where there is no such
    key.

    Sizes are part of it, so they have to be numbers.
    """
    if node.op not in TABLE or len(set(node.operands)) != len(node.operands) or type(node.type) is not TensorType:
        return None
    described: list[Any] = [node.op, *node.attrs.items(), node.type.shape, node.type.dtype]
    for operand in node.operands:
        if is_literal(operand):
            described.append(operand.attrs["value"])
        elif type(operand.type) is TensorType:
            described += (operand.type.shape, operand.type.dtype)
        else:
            return None
    try:
        # It takes plain values alone, and tells True, 1 and 1.0 apart.
        return marshal.dumps(described, 2)
    except ValueError:
        return None


def recipe(tensors: Sequence[Any], calls: Sequence[tuple[Any, Any]]) -> Recipe | None:
    """The recipe of calls that were written, each with the variable that has it (the last one has none).

    ``None`` where a part is not a call of variables and constants.
    """
    places = {tensor.__chandle__(): place for place, tensor in enumerate(tensors)}
    if len(places) != len(tensors):
        return None
    parts: list[Part] = []
    for var, expr in calls:
        if type(expr) is not ir.Call or type(expr.op) is not ir.Op:
            return None
        args: list[Any] = []
        for arg in items(expr.args):
            place = places.get(arg.__chandle__())
            if place is None and relax.analysis.free_vars(arg):
                return None
            args.append(arg if place is None else place)
        name = expr.op.name.rpartition(".")[2]
        is_plain = [arg if type(arg) is int else None for arg in args] == list(range(len(tensors)))
        parts.append(Part(expr.op, tuple(args), expr.attrs, expr.ty_args, expr.ty, name, is_plain))
        if var is not None:
            places[var.__chandle__()] = ~(len(parts) - 1)
    return tuple(parts)


def follow(
    parts: Recipe, tensors: Sequence[Any], name: str, span: Any,
    make: Callable[[str, Any], Any], emit: Callable[[Any, Any], None],
) -> Any:  # fmt: skip
    """The expression of a call by a recipe: all parts but the last are bound to variables."""
    if len(parts) == 1:
        part = parts[0]
        args = tensors if part.is_plain else [tensors[arg] if type(arg) is int else arg for arg in part.args]
        return call(part.type, part.op, args, part.attrs, part.ty_args, span)
    made: list[Any] = []
    expr = None
    for number, part in enumerate(parts):
        args = [arg if type(arg) is not int else tensors[arg] if arg >= 0 else made[~arg] for arg in part.args]
        expr = call(part.type, part.op, args, part.attrs, part.ty_args, span)
        if number < len(parts) - 1:
            made.append(make(f"{name}_{part.name}", part.type))
            emit(made[-1], expr)
    return expr

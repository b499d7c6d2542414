"""New calls: whether they are well-formed, their attributes and their types, computed once for equal calls."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import BuiltinFunctionType, FunctionType
from typing import Any, Final

from gsl.attr.evaluate import same
from gsl.errors import EvaluationError, FrontEndError
from gsl.graph import CONST, TUPLE, Graph, Node, Op, Type, op_name
from gsl.rewrite.check import Refusal
from gsl.spec import OpSpec
from gsl.spec.spec import exact

NUMBERS: Final = (CONST, TUPLE)
"""The operators of nodes that may be, or hold, numbers, so that the type does not tell all."""
Formed = tuple[Mapping[str, Any], "Type | None"]
"""All attributes of a call, and its type."""


def form(
    graph: Graph,
    op: OpSpec | Op,
    operands: Sequence[Node],
    attrs: Mapping[str, Any],
    dropped: Mapping[str, list[Any]],
) -> Formed:
    """All attributes of a new call, and its type. Refusal where the call is not well-formed.

    ``dropped`` are values that matched calls have, and that the new one has to have too. ``graph.formed`` keeps what is
    known of calls.
    """
    if not is_stateless(op) or any(map(_may_be_number, operands)):
        return _form(graph, op, operands, attrs, dropped)
    name = op.name if isinstance(op, OpSpec) else op
    types = tuple([operand.type for operand in operands])
    try:
        key = (name, (tuple(attrs), *map(exact, attrs.values())), types)
        known: Formed | None = graph.formed.get(key)
    except TypeError:
        return _form(graph, op, operands, attrs, dropped)
    if known is None:
        known = graph.formed[key] = _form(graph, op, operands, attrs, dropped)
    elif dropped:
        _check_dropped(name, known[0], dropped)
    return known


def _may_be_number(node: Node) -> bool:
    """Whether a node may be, or hold, a number, so that its type does not tell all."""
    return node.op == CONST or (node.op == TUPLE and any(item.op in NUMBERS for item in node.operands))


def is_stateless(op: OpSpec | Op) -> bool:
    """True if an operator is canonical, or a function that holds no state, so that equal calls have equal types."""
    if isinstance(op, (str, OpSpec)):
        return True
    if type(op) is FunctionType:
        return op.__closure__ is None
    return type(op) is BuiltinFunctionType or type(op).__name__ == "OpOverload"


def _form(
    graph: Graph,
    op: OpSpec | Op,
    operands: Sequence[Node],
    attrs: Mapping[str, Any],
    dropped: Mapping[str, list[Any]],
) -> Formed:
    name = op.name if isinstance(op, OpSpec) else op
    full = attrs
    try:
        if isinstance(op, OpSpec):
            full = op.complete(attrs, tuple([operand.type for operand in operands]))
        _check_dropped(name, full, dropped)
        _check_numbers(op, operands)
        type = graph.infer(name, tuple(operands), full)
    except (ValueError, KeyError, EvaluationError) as error:
        raise Refusal(f"the new {op_name(name)} is not well-formed: {error}") from error
    if graph.writable is not None:
        try:
            graph.writable(name, tuple(operands), full)
        except (ValueError, FrontEndError) as error:
            raise Refusal(f"the new {op_name(name)} can't be written: {error}") from error
    return full, type


def _check_dropped(name: Op, full: Mapping[str, Any], dropped: Mapping[str, list[Any]]) -> None:
    for attribute, values in dropped.items():
        for value in values:
            if not same(value, full[attribute]):
                raise Refusal(
                    f"the rule does not mention {attribute!r} of {op_name(name)}, which is {value!r} here and "
                    f"would become {full[attribute]!r}"
                )


def _check_numbers(op: OpSpec | Op, operands: Sequence[Node]) -> None:
    """Refuse a call that takes tensors, but gets nothing but numbers, or a number among those of a tuple."""
    if isinstance(op, OpSpec) and op.name != "full" and operands and all(map(is_number, operands)):
        raise Refusal(f"the new {op.name} takes a tensor, but got only numbers: write pat.Const(…, dtype=…)")
    for operand in operands:
        if operand.op == TUPLE:
            number = next((item for item in operand.operands if is_number(item)), None)
            if number is not None:
                name, value = op.name if isinstance(op, OpSpec) else op, number.attrs["value"]
                raise Refusal(
                    f"the new {op_name(name)} takes tensors, but got the number {value!r} among them: write "
                    f"pat.Const({value!r}, dtype=…)"
                )


def is_number(node: Node) -> bool:
    """True if a node is a Python number, not a tensor."""
    return node.op == CONST and isinstance(node.attrs["value"], (bool, int, float))

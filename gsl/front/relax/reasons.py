"""Messages about calls of Relax: why one has no canonical reading, and which canonical operators show it."""

from __future__ import annotations

from collections.abc import Mapping
from functools import reduce
from typing import Any

from tvm import ir, relax

from gsl.front.core.handle import handle_of
from gsl.front.core.opaque import COUNTS, RANKS, pattern_of
from gsl.front.relax import spellings
from gsl.front.relax.dims import is_tensors
from gsl.front.relax.scope import FunctionScope
from gsl.front.tree import NO_SPELLING, NOT_COVERED, Canon, given_up
from gsl.graph import Node, Op


def reason(scope: FunctionScope, node: Node) -> str | None:
    """The reason for one opaque node of a view; ``None`` for one that computes no tensor."""
    handle = handle_of(node)
    if handle is None:
        return ""
    var = handle.reading.native
    value = scope.lookup(var)
    if not is_tensors(var.ty) and node.effect is None:
        return None
    name = str(value.op.name) if isinstance(value, relax.Call) and isinstance(value.op, ir.Op) else ""
    if name not in spellings.READERS and name not in spellings.FIELD_READERS:
        return NO_SPELLING
    if node.effect is not None:
        return "it has an effect besides its result"
    unknown = [str(arg) for arg in value.args if is_tensors(arg.ty) and scope.type_of(arg) is None]
    if unknown or scope.type_of(var) is None:
        return f"the shape or dtype of {', '.join(unknown) or 'its result'} is not known"
    if name not in spellings.READERS:
        return "its result is used as a whole, or a field of it that is used has no reading"
    try:
        spellings.READERS[name](value, scope)
    except spellings.RelaxUnread as error:
        return given_up(node, error)
    return NOT_COVERED


def canonical(op: Op, operands: int | None, attrs: Mapping[str, Any], scope: FunctionScope) -> str | None:
    """The pattern of the canonical operators as which a call of Relax's operator is loaded, as far as that can be told.

    ``None`` if it is loaded as it is.
    """
    if not isinstance(op, ir.Op):
        return None
    path = op.name.split(".")[1:]

    def read(count: int, rank: int) -> Canon | None:
        variables = [relax.Var(name, relax.TensorType([2] * rank)) for name in "xyzuv"[:count]]
        call = relax.BlockBuilder().normalize(reduce(getattr, path, relax.op)(*variables, **attrs))
        return spellings.read(call, scope) or spellings.read_field(call, 0, scope)

    return pattern_of(COUNTS if operands is None else (operands,), RANKS, read, _text)


def _text(value: Any) -> str:
    return str(value.name) if isinstance(value, relax.Var) else repr(value)

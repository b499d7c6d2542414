"""The canonical operators that show an operator of Relax, for messages to users who look for it under its own name."""

from __future__ import annotations

from collections.abc import Mapping
from functools import reduce
from typing import Any

from tvm import ir, relax

from gsl.front.core.canonical import COUNTS, RANKS, pattern_of
from gsl.front.relax import spellings
from gsl.front.relax.scope import FunctionScope
from gsl.front.tree import Canon
from gsl.graph import Op


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

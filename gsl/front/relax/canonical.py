"""The canonical operators that show an operator of Relax, for messages to users who look for it under its own name."""

from __future__ import annotations

from collections.abc import Mapping
from functools import reduce
from typing import Any

from tvm import ir, relax

from gsl.front.relax import spellings
from gsl.front.relax.scope import FunctionScope
from gsl.front.tree import Canon
from gsl.graph import Op
from gsl.spec import TABLE

_RANKS = (2, 4, 3, 1)
"""The ranks that are assumed of the operands in turn: some readings depend on their rank."""


def canonical(op: Op, operands: int | None, attrs: Mapping[str, Any], scope: FunctionScope) -> str | None:
    """The pattern of the canonical operators as which a call of Relax's operator is loaded, as far as that can be told.

    ``None`` if it is loaded as it is.
    """
    if not isinstance(op, ir.Op):
        return None
    for count in (1, 2, 3, 5) if operands is None else (operands,):
        for rank in _RANKS:
            variables = [relax.Var(name, relax.TensorType([2] * rank)) for name in "xyzuv"[:count]]
            try:
                function = reduce(getattr, op.name.split(".")[1:], relax.op)
                call = relax.BlockBuilder().normalize(function(*variables, **attrs))
                canon = spellings.read(call, scope) or spellings.read_field(call, 0, scope)
            except Exception:
                # The pattern does not give all that a call needs.
                continue
            if canon is not None and canon.op in TABLE:
                return _text(canon)
    return None


def _text(value: Any) -> str:
    if not isinstance(value, Canon):
        return str(value.name) if isinstance(value, relax.Var) else repr(value)
    given = [f"{name}={attribute!r}" for name, attribute in value.attrs.items()]
    return f"op.{TABLE[value.op].cls}({', '.join([*map(_text, value.operands), *given])})"

"""The canonical operators that show an operator of Relay, for messages to users who look for it under its own name."""

from __future__ import annotations

from collections.abc import Mapping
from functools import reduce
from typing import Any, Final

from tvm import ir, relay

from gsl.front.relay import spellings
from gsl.front.relay.types import Types, checked_type, infer_local
from gsl.front.tree import Canon
from gsl.graph import Op, Type
from gsl.spec import TABLE

_RANKS: Final = (2, 4, 3, 1)
"""The ranks that are assumed of the operands in turn: some readings depend on their rank."""


class _Scope:
    """The scope of a call about whose surroundings nothing is known."""

    def type_of(self, expr: Any) -> Type | None:
        return Types().of(checked_type(expr))


def canonical(op: Op, operands: int | None, attrs: Mapping[str, Any]) -> str | None:
    """The pattern of the canonical operators as which a call of Relay's operator is loaded, as far as that can be told.

    ``None`` if it is loaded as it is.
    """
    if not isinstance(op, ir.Op):
        return None
    for count in (1, 2, 3, 5) if operands is None else (operands,):
        for rank in _RANKS:
            canon = _read(op, [relay.var(name, shape=(2,) * rank) for name in "xyzuv"[:count]], attrs)
            if canon is not None and canon.op in TABLE:
                return _text(canon)
    return None


def _read(op: Any, variables: list[relay.Var], attrs: Mapping[str, Any]) -> Canon | None:
    try:
        made = reduce(getattr, op.name.split("."), relay)(*variables, **attrs)
        call = made.astuple() if isinstance(made, relay.expr.TupleWrapper) else made
        for expr in (*variables, call):
            infer_local(expr)
        return spellings.read(call, _Scope()) or spellings.read_field(call, 0, _Scope())
    except Exception:
        # The pattern does not give all that a call needs.
        return None


def _text(value: Any) -> str:
    if not isinstance(value, Canon):
        return str(value.name_hint) if isinstance(value, relay.Var) else repr(value)
    given = [f"{name}={attribute!r}" for name, attribute in value.attrs.items()]
    return f"op.{TABLE[value.op].cls}({', '.join([*map(_text, value.operands), *given])})"

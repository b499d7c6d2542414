"""The spellings of the canonical operators in Relay: one table that is read in both directions.

``read`` turns a call of Relay's into a tree of canonical ones, ``write`` a canonical call into a nested expression. A
stand-in for a tensor passes through both untouched. A reading is exactly the same function as the call, result dtype
and shape included; where that is not certain, there is none. Relay does not say what its maxima and comparisons make of
NaN, so a reading does not either.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from tvm import relay
from tvm.ir import Op

from gsl.front.core.infer import refined
from gsl.front.core.lower import LoweringTarget
from gsl.front.relay.spellings import elementwise, linear, norm, reduce, shape
from gsl.front.relay.spellings.table import (
    RelayCall,
    RelayLift,
    RelayLowering,
    RelayRow,
    RelayUnreadError,
    name_of,
)
from gsl.front.tree import Canon, compose, type_of_reading
from gsl.graph import TupleType, Type
from gsl.spec import packed

_FAMILIES: Final[tuple[Any, ...]] = (elementwise, linear, norm, shape, reduce)

ROWS: Final[Mapping[str, RelayRow]] = {row.op: row for family in _FAMILIES for row in family.ROWS}
"""The rows by canonical operator."""

LOOKS_AT: Final[Mapping[str, frozenset[str]]] = {**linear.LOOKS_AT, **reduce.LOOKS_AT}
"""The operators whose readings depend on what computes the operands, with the operators at which they look there."""


# ---------------------------------------------------------------- reading


CALLS: Final[dict[str, RelayLift]] = {name: reader for row in ROWS.values() for name, reader in row.read.items()}
FIELDS: Final[dict[tuple[str, int], RelayLift]] = {
    place: reader for row in ROWS.values() for place, reader in row.fields.items()
}


def read(call: Any, scope: LoweringTarget) -> Canon | None:
    """The canonical reading of a call; its leaves are expressions of Relay's. ``None``: there is no exact one."""
    callee = call.op
    reader = CALLS.get(name_of(callee)) if isinstance(callee, Op) else None
    return None if reader is None else _read(reader, call, scope, scope.type_of(call))


def read_field(call: Any, index: int, scope: LoweringTarget) -> Canon | None:
    """The canonical reading of one of the results of a call."""
    callee = call.op
    reader = FIELDS.get((name_of(callee), index)) if isinstance(callee, Op) else None
    if reader is None:
        return None
    whole = scope.type_of(call)
    field = whole.fields[index] if isinstance(whole, TupleType) and index < len(whole.fields) else None
    return _read(reader, call, scope, field)


def _read(reader: RelayLift, call: relay.Call, scope: LoweringTarget, expected: Type | None) -> Canon | None:
    if expected is None:
        return None
    try:
        found = reader(RelayCall(call, scope))
        type = type_of_reading(found, scope.type_of)
    except (RelayUnreadError, ValueError):
        return None
    return None if refined(expected, type) is None else found  # type: ignore[arg-type]


# ---------------------------------------------------------------- writing


MISSING: Final[Mapping[str, str]] = dict.fromkeys(packed.NAMES, packed.REASON)
"""The operators that Relay can't say, with the reason."""


def write(op: str, attrs: Mapping[str, Any], operands: Sequence[Any], scope: LoweringTarget) -> Any:
    """A canonical call as one nested expression over its operands.

    An operand is an expression of Relay's, a Python number, or a tuple of those. ValueError, with the reason, where
    Relay can't say the call.
    """
    if op in MISSING:
        raise ValueError(f"{op}: {MISSING[op]}")
    if op in ROWS:
        return ROWS[op].write(RelayLowering(op, attrs, operands, scope))
    return compose(
        op, attrs, operands, lambda op, attrs, parts, types: write(op, attrs, parts, RelayParts(types)), scope.type_of
    )


class RelayParts:
    """The scope of calls of which a call is composed: Relay has not inferred the types of their operands."""

    def __init__(self, types: Callable[[Any], Any]) -> None:
        self._types = types

    def type_of(self, expr: Any) -> Type | None:
        return self._types(expr)  # type: ignore[no-any-return]


__all__ = [
    "CALLS",
    "FIELDS",
    "LOOKS_AT",
    "MISSING",
    "ROWS",
    "RelayCall",
    "RelayUnreadError",
    "read",
    "read_field",
    "write",
]

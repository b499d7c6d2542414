"""The spellings of the canonical operators in Relay: one table that is read in both directions.

``read`` turns a call of Relay's into a tree of canonical ones, ``write`` a canonical call into a nested expression. A
stand-in for a tensor passes through both untouched. A reading is exactly the same function as the call, result dtype
and shape included; where that is not certain, there is none. Relay does not say what its maxima and comparisons make of
NaN, so a reading does not either.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, Final

from tvm.ir import Op

from gsl.front.core.infer import refined
from gsl.front.core.lower import LOWERED, Lower, LoweringTarget, lower
from gsl.front.relay.spellings import elementwise, linear, norm, reduce, shape
from gsl.front.relay.spellings.table import RelayCall, RelayLowering, RelayTarget, name_of, with_literals
from gsl.front.tree import Canon
from gsl.front.tvm.spellings import field_of, readers, reading
from gsl.spec import packed

ROWS: Final = (*elementwise.ROWS, *linear.ROWS, *norm.ROWS, *shape.ROWS, *reduce.ROWS)

READERS, FIELD_READERS = readers(ROWS)
WRITERS: Final[Mapping[str, Lower]] = {**LOWERED, **{row.op: row.write for row in ROWS}}

LOOKS_AT: Final[Mapping[str, frozenset[str]]] = {**linear.LOOKS_AT, **reduce.LOOKS_AT}
"""The operators whose readings depend on what computes the operands, with the operators at which they look there."""

MISSING: Final[Mapping[str, str]] = dict.fromkeys(packed.NAMES, packed.REASON)
"""The operators that Relay can't say, with the reason."""


def read(call: Any, scope: LoweringTarget) -> Canon | None:
    """The canonical reading of a call; its leaves are expressions of Relay's. ``None``: there is no exact one."""
    reader = READERS.get(name_of(call.op)) if isinstance(call.op, Op) else None
    if reader is None:
        return None
    own = partial(reader, RelayCall(call, scope))
    return reading(lambda: with_literals(own()), scope.type_of(call), scope.type_of, refined)


def read_field(call: Any, index: int, scope: LoweringTarget) -> Canon | None:
    """The canonical reading of one of the results of a call."""
    reader = FIELD_READERS.get(name_of(call.op)) if isinstance(call.op, Op) else None
    if reader is None:
        return None
    own = partial(reader, RelayCall(call, scope), index)
    return reading(own, field_of(scope.type_of(call), index), scope.type_of, refined)


def write(op: str, attrs: Mapping[str, Any], operands: Sequence[Any], scope: LoweringTarget) -> Any:
    """A canonical call as one nested expression over its operands.

    An operand is an expression of Relay's, a Python number, or a tuple of those. ValueError, with the reason, where
    Relay can't say the call.
    """
    if op in MISSING:
        raise ValueError(f"{op}: {MISSING[op]}")
    return lower(RelayLowering, WRITERS, op, attrs, operands, RelayTarget(scope))


__all__ = [
    "FIELD_READERS", "LOOKS_AT", "MISSING", "READERS", "ROWS", "WRITERS", "RelayCall", "read",
    "read_field", "write",
]  # fmt: skip

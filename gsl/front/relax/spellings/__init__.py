"""The table by which Relax spells the canonical operators, read in both directions.

An operator that Relax lacks is composed of several.

Both sides compute the same up to rounding, and but for what neither promises: a NaN in a maximum, an index out of
range, a float that an integer can't hold.
"""

from __future__ import annotations

import operator
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, Final

from tvm import ir

from gsl.front.core.lower import LOWERED, Lower, lower
from gsl.front.relax.spellings import elementwise, linear, norm, reduce, shape
from gsl.front.relax.spellings.table import RelaxCall, RelaxLowering, RelaxScope, leaf_type
from gsl.front.tree import Canon
from gsl.front.tvm.spellings import field_of, readers, reading
from gsl.spec import packed

_ROWS: Final = (*elementwise.ROWS, *shape.ROWS, *reduce.ROWS, *linear.ROWS, *norm.ROWS)

READERS, FIELD_READERS = readers(_ROWS, "relax.")
WRITERS: Final[Mapping[str, Lower]] = {**LOWERED, **{row.op: row.write for row in _ROWS}}

LOOKS_AT: Final[Mapping[str, frozenset[str]]] = {**linear.LOOKS_AT, **shape.LOOKS_AT}
"""The operators of the calls at which readings look, for each operator whose reading depends on the computation of its
arguments.

They may also look at variables that are bound to anything but a call, and at a constant without axes.
"""

MISSING: Final[Mapping[str, str]] = dict.fromkeys(packed.NAMES, packed.REASON)
"""The canonical operators that can't be written in Relax, each with the reason."""


def read(call: Any, scope: RelaxScope) -> Canon | None:
    """The canonical reading of a call, ``None`` where there is none.

    A reading computes just what the call does, and has its type. Its leaves are expressions of Relax and ``Reshaped``
    constants.
    """
    reader = READERS.get(call.op.name) if isinstance(call.op, ir.Op) else None
    if reader is None:
        return None
    own = partial(reader, RelaxCall(call, scope))
    return reading(own, scope.type_of(call), partial(leaf_type, scope=scope), operator.eq)


def read_field(call: Any, index: int, scope: RelaxScope) -> Canon | None:
    """The canonical reading of one field of a call with several results, ``None`` where there is none."""
    reader = FIELD_READERS.get(call.op.name) if isinstance(call.op, ir.Op) else None
    if reader is None:
        return None
    own = partial(reader, RelaxCall(call, scope), index)
    return reading(own, field_of(scope.type_of(call), index), partial(leaf_type, scope=scope), operator.eq)


def write(op: str, attrs: Mapping[str, Any], operands: Sequence[Any], scope: RelaxScope) -> Any:
    """The expression of Relax for a canonical call: calls of ``relax.op`` whose parts all have types.

    Operands are expressions with types, numbers, and tuples of tensors. ValueError with the reason where Relax can't
    say it.
    """
    if op in MISSING:
        raise ValueError(f"{op}: Relax has no such operator: {MISSING[op]}")
    return lower(RelaxLowering, WRITERS, op, attrs, operands, scope)


__all__ = [
    "FIELD_READERS", "MISSING", "READERS", "RelaxCall", "RelaxScope", "read", "read_field", "write",
]  # fmt: skip

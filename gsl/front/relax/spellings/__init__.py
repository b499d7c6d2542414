"""The table by which Relax spells the canonical operators, read in both directions.

Each family has a ``READ`` (by the name of Relax's operator) and a ``WRITE`` (by the canonical name). An operator that
Relax lacks is composed of several.

Both sides compute the same up to rounding, and but for what neither promises: a NaN in a maximum, an index out of
range, a float that an integer can't hold.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from tvm import ir

from gsl.front.core.lower import LOWERED, Lower, lower
from gsl.front.relax.spellings import elementwise, linear, norm, reduce, shape
from gsl.front.relax.spellings.table import FieldReader, RelaxLift, RelaxLowering, RelaxScope, RelaxUnread, checked
from gsl.front.tree import Canon
from gsl.graph import TupleType
from gsl.spec import packed

_FAMILIES: Final[tuple[Any, ...]] = (elementwise, shape, reduce, linear, norm)

READERS: Final[Mapping[str, RelaxLift]] = {name: read for family in _FAMILIES for name, read in family.READ.items()}
WRITERS: Final[Mapping[str, Lower]] = {
    **LOWERED, **{name: write for family in _FAMILIES for name, write in family.WRITE.items()},
}  # fmt: skip
FIELD_READERS: Final[Mapping[str, FieldReader]] = {**elementwise.FIELDS, **norm.FIELDS}

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
    try:
        tree = reader(call, scope)
    except RelaxUnread:
        return None
    return checked(tree, scope.type_of(call), scope)


def read_field(call: Any, index: int, scope: RelaxScope) -> Canon | None:
    """The canonical reading of one field of a call with several results, ``None`` where there is none."""
    reader = FIELD_READERS.get(call.op.name) if isinstance(call.op, ir.Op) else None
    found = scope.type_of(call)
    if reader is None or not isinstance(found, TupleType):
        return None
    try:
        tree = reader(call, index, scope)
    except RelaxUnread:
        return None
    return checked(tree, found.fields[index], scope)


def write(op: str, attrs: Mapping[str, Any], operands: Sequence[Any], scope: RelaxScope) -> Any:
    """The expression of Relax for a canonical call: calls of ``relax.op`` whose parts all have types.

    Operands are expressions with types, numbers, and tuples of tensors. ValueError with the reason where Relax can't
    say it.
    """
    if op in MISSING:
        raise ValueError(f"{op}: Relax has no such operator: {MISSING[op]}")
    return lower(RelaxLowering, WRITERS, op, attrs, operands, scope)


__all__ = ["FIELD_READERS", "MISSING", "READERS", "RelaxScope", "RelaxUnread", "read", "read_field", "write"]

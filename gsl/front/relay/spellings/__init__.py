"""The spellings of the canonical operators in Relay: one table that is read in both directions.

``read`` turns a call of Relay's into a tree of canonical ones, ``write`` a canonical call into a nested expression. A
stand-in for a tensor passes through both untouched. A reading is exactly the same function as the call, result dtype
and shape included; where that is not certain, there is none. Relay does not say what its maxima and comparisons make of
NaN, so a reading does not either.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from gsl.front.relay.spellings import linear, reduce
from gsl.front.relay.spellings.rows import CALLS, FIELDS, MISSING, read, read_field, write
from gsl.front.relay.spellings.table import RelayCall, RelayScope, RelayUnreadError

LOOKS_AT: Final[Mapping[str, frozenset[str]]] = {**linear.LOOKS_AT, **reduce.LOOKS_AT}
"""The operators whose readings depend on what computes the operands, with the operators at which they look there."""

__all__ = [
    "CALLS",
    "FIELDS",
    "LOOKS_AT",
    "MISSING",
    "RelayCall",
    "RelayScope",
    "RelayUnreadError",
    "read",
    "read_field",
    "write",
]

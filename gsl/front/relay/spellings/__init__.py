"""The spellings of the canonical operators in Relay: one table that is read in both directions.

``read`` turns a call of Relay's into a tree of canonical ones, ``write`` a canonical call into a nested expression. A
stand-in for a tensor passes through both untouched. A reading is exactly the same function as the call, result dtype
and shape included; where that is not certain, there is none. Relay does not say what its maxima and comparisons make of
NaN, so a reading does not either.
"""

from __future__ import annotations

from gsl.front.relay.spellings.rows import CALLS, MISSING, read, read_field, write
from gsl.front.relay.spellings.table import RelayCall, RelayScope, RelayUnreadError

__all__ = ["CALLS", "MISSING", "RelayCall", "RelayScope", "RelayUnreadError", "read", "read_field", "write"]

"""Writing canonical calls as expressions of Relay."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from gsl.front.relay.spellings.rows import ROWS
from gsl.front.relay.spellings.scope import Scope
from gsl.front.relay.spellings.table import Writing
from gsl.spec import packed

MISSING: Final[Mapping[str, str]] = dict.fromkeys(packed.NAMES, packed.REASON)
"""The operators that Relay can't say, with the reason."""


def write(op: str, attrs: Mapping[str, Any], operands: Sequence[Any], scope: Scope) -> Any:
    """A canonical call as one nested expression over its operands.

    An operand is an expression of Relay's, a Python number, or a tuple of those. ValueError, with the reason, where
    Relay can't say the call.
    """
    if op in MISSING:
        raise ValueError(f"{op}: {MISSING[op]}")
    return ROWS[op].write(Writing(op, attrs, operands, scope))

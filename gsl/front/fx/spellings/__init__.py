"""The spellings of the canonical operators in torch: one table that is read in both directions.

``read`` turns a native call into a tree of canonical ones, ``write`` a canonical call into a tree of native ones. A
stand-in for a tensor passes through both untouched. A reading is exactly the same function as the call, result dtype
included; where that is not certain, there is none.
"""

from __future__ import annotations

from gsl.front.fx.spellings.calls import (
    BIASED,
    has_fields,
    is_plain,
    read,
    read_any_module,
    read_fields,
    read_module,
    why_unread,
    write,
    write_biased,
)
from gsl.front.fx.spellings.effects import (
    DENSE,
    RESHAPES,
    is_by_strides,
    is_random,
    is_random_module,
    is_view,
    mutated,
    mutated_weights,
    mutates_module,
)

__all__ = [
    "BIASED",
    "DENSE",
    "RESHAPES",
    "has_fields",
    "is_by_strides",
    "is_plain",
    "is_random",
    "is_random_module",
    "is_view",
    "mutated",
    "mutated_weights",
    "mutates_module",
    "read",
    "read_any_module",
    "read_fields",
    "read_module",
    "why_unread",
    "write",
    "write_biased",
]

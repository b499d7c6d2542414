"""The small expression trees as which front ends read native calls, and the stand-ins for values in an opaque call.

A reading is a tree of canonical calls. It knows nothing about graphs: whatever stands for a tensor in the native graph
(an ``fx.Node``, a variable of TVM) is passed through as it is.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True, eq=False)
class Canon:
    """A canonical call. ``op`` is an operator of the vocabulary, ``"tuple"`` (of operands) or ``"getitem"``
    (``attrs={"index": i}``). An operand is a Canon, a Literal, a leaf of the front end's own, or the native argument
    itself."""

    op: str
    operands: tuple[Any, ...]
    attrs: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, eq=False)
class Literal:
    """A literal operand: a Python scalar, or a torch tensor that the reading itself made."""

    value: Any


@dataclass(frozen=True, slots=True)
class Slot:
    """Stands for an operand within an attribute of an opaque call: ``indices=(None, $1)``."""

    index: int

    def __repr__(self) -> str:
        return f"${self.index}"


@dataclass(frozen=True, slots=True)
class Computed:
    """Stands for an argument of an opaque call that another native call computes, and that is no tensor."""

    name: str

    def __repr__(self) -> str:
        return self.name

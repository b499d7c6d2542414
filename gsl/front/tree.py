"""The small expression trees as which front ends read native calls, and the stand-ins for values in an opaque call.

A reading is a tree of canonical calls. It knows nothing about graphs: whatever stands for a tensor in the native graph
(an ``fx.Node``, a variable of TVM) is passed through as it is.
"""

from __future__ import annotations

import re
import traceback
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from gsl.graph import Node


@dataclass(frozen=True, slots=True, eq=False)
class Canon:
    """A canonical call. ``op`` is an operator of the vocabulary, ``"tuple"`` (of operands) or ``"getitem"``
    (``attrs={"index": i}``). An operand is a Canon, a Literal, a leaf of the front end's own, or the native argument
    itself."""

    op: str
    operands: tuple[Any, ...]
    attrs: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, eq=False)
class LiteralOperand:
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


# ---------------------------------------------------------------- readings as view nodes


NO_SPELLING: Final = "no canonical operator is spelled so"
NOT_COVERED: Final = "the canonical operator does not cover it: an operand is no tensor, or an attribute has no meaning"
"""Reasons why a call has no canonical reading."""


def unmet(error: Exception) -> str:
    """The condition of a reader, as it is written there, that ended the reading of a call; "" where none is written."""
    frames = [f for f in traceback.extract_tb(error.__traceback__) if f.name not in ("unread_unless", "check")]
    condition = re.fullmatch(r"(?:unread_unless|check)\((.*)\)", frames[-1].line or "")
    return f"; it has to meet: {condition[1]}" if condition else ""


def given_up(node: Node, error: Exception) -> str:
    """The reason why the reading of a call was given up: its operands and attributes, and what they do not meet."""
    given = [*(str(operand.type) for operand in node.operands), *(f"{name}={v!r}" for name, v in node.attrs.items())]
    return f"no reading with {', '.join(given)}{unmet(error)}"

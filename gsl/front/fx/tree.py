"""The small expression trees in which the table of spellings speaks about calls.

Reading turns a native call into a tree of canonical calls (:class:`Canon`); writing turns a canonical call into a tree
of native calls (:class:`Native`). Neither knows about graphs: whatever stands for a tensor (an ``fx.Node``, say) is
passed through as it is.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True, eq=False)
class Canon:
    """A canonical call. ``op`` is an operator of the vocabulary, ``"tuple"`` (of operands) or ``"getitem"``
    (``attrs={"index": i}``). An operand is a Canon, a Literal, a Weight, or the native argument itself."""

    op: str
    operands: tuple[Any, ...]
    attrs: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, eq=False)
class Literal:
    """A literal operand: a Python scalar, or a torch tensor that the reading itself made."""

    value: Any


@dataclass(frozen=True, slots=True, eq=False)
class Weight:
    """A parameter or buffer of the module that is called, by its name there (``"weight"``)."""

    name: str


@dataclass(frozen=True, slots=True, eq=False)
class Native:
    """A native call: ``target(*args, **kwargs)``, or a method call where ``target`` is a name. Arguments may contain
    Natives, at any depth of lists and tuples, symbolic dimensions, and whatever stands for an operand."""

    target: Any
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any] = field(default_factory=dict)

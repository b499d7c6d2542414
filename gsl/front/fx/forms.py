"""Calls that are alike: what is found out about one of them holds for all.

A graph has many calls and few forms of calls. Two calls have the same form if they have the same target and constants,
and operands of the same types in the same places. A call is read with care once for its form; the others of that form
are loaded by the rows that were recorded then.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import torch
from torch import fx

from gsl.front.fx.handle import Source
from gsl.graph import Effect, Node, Op, Type


@dataclass(frozen=True, slots=True, eq=False)
class Row:
    """One view node of a recorded reading. ``places`` are those of its operands and then of its deps: the number of
    another row, or ``~i`` for the native operand ``i`` of the call."""

    op: Op
    attrs: Mapping[str, Any]
    type: Type | None
    suffix: str
    """What follows the name of the native node in that of the view node."""
    places: tuple[int, ...]
    operands: int
    """How many of them are operands."""
    in_order: bool
    """Whether those are just the native operands of the call, in their order."""
    effect: Effect | None


Rows = tuple[Row, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Form:
    """What is known of all calls of one form."""

    op: str | None
    """The operator of their canonical reading, if they have one."""
    mutated: tuple[int, ...]
    """The positions of the operands that a call changes in place: of the positional arguments, then of the others."""
    unknown: bool
    """Whether foreign code is called, which may change whatever it can reach."""
    effect: Effect | None
    """What else a call does."""
    alone: bool
    """Whether a call is read without regard to its users and to other calls."""
    is_shared: bool
    """Whether it holds for all graphs of the process, because nothing of any graph is part of it."""
    rows: dict[Any, Rows] = field(default_factory=dict)
    """How such calls were loaded in other graphs: by what else that depends on."""


def recorded(tree: Sequence[Node], sources: Sequence[Sequence[Source]], name: str, inputs: Sequence[fx.Node]) -> Rows:
    """The rows of the view nodes as which a call of that name, with these native operands, was loaded."""
    places = {node: ~index for index, node in enumerate(inputs)}
    in_order = tuple(inputs)

    def place(source: Source) -> int:
        return source if isinstance(source, int) else places[source]  # type: ignore[index] # no module is called

    return tuple(
        [
            Row(
                node.op, node.attrs, node.type, node.name.removeprefix(name), tuple(map(place, own)),
                len(node.operands), tuple(own) == in_order, node.effect,
            )
            for node, own in zip(tree, sources)
        ]
    )  # fmt: skip


class NoKeyError(Exception):
    """A call has no form of its own that others could share."""


_PLAIN: Final = frozenset((int, bool, str, type(None)))
_VALUES: Final = frozenset((torch.dtype, torch.device, torch.layout, torch.memory_format, complex))


def key(value: Any, places: Mapping[fx.Node, int]) -> Any:
    """What is the same for arguments that are alike. NoKeyError for one of which that is not known.

    The numbers 1 and 1.0 are not alike, nor are 0.0 and -0.0, nor a list and a tuple.
    """
    kind = value.__class__
    if kind is fx.Node:
        return places[value]
    if kind in _PLAIN:
        return kind, value
    if kind is float:
        return kind, value, math.copysign(1.0, value)
    if isinstance(value, (list, tuple)):
        return kind, tuple([key(item, places) for item in value])
    if kind is slice:
        return kind, key(value.start, places), key(value.stop, places), key(value.step, places)
    if kind in _VALUES:
        return kind, value
    raise NoKeyError

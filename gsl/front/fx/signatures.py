"""The forms of calls: what holds for all calls that are alike.

Two calls have the same form if they have the same target and constants, and operands of the same types in the same
places.
"""

from __future__ import annotations

import enum
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import torch
from torch import fx

from gsl.front.core.load import Rows
from gsl.front.fx.values import UNKNOWN, Values
from gsl.graph import Effect


class Role(enum.Enum):
    """The nodes that must be looked at to load a call, besides the call itself."""

    ALONE = "alone"
    """Nothing."""
    FACTOR = "factor"
    """The user, which may be a product that is read together with the call, as one linear layer."""
    CHECK = "check"
    """The users of the call: if it has none, it has no view node."""
    OTHER = "other"
    """Its users, its operands, or other nodes around it."""


@dataclass(frozen=True, slots=True, eq=False)
class FxCallSignature:
    """The facts that hold for all calls of one form."""

    op: str | None
    """The operator of their canonical reading, if they have one."""
    mutated: tuple[int, ...]
    """The positions of the operands that a call changes in place: of the positional arguments, then of the others."""
    unknown: bool
    """True if foreign code is called, which may change everything that it can reach."""
    effect: Effect | None
    """The other effect of a call, if it has one."""
    role: Role
    """The role of a call: it tells if the call is read without regard to others."""
    stays: bool
    """True if the result is certain to be on the device of the operands."""
    by_strides: bool
    """True if a call only exists for some strides of its operand, and a copy is no substitute."""
    is_shared: bool
    """True if the form holds for all graphs of the process, because no part of it belongs to one graph."""
    named: tuple[Any, ...]
    """The target and the types, which are in the key of the form by their addresses: so nothing else gets those."""
    rows: dict[Any, Rows] = field(default_factory=dict)
    """The rows by which such calls were loaded before. The key is ``None`` for a call by itself, otherwise the other
    things that the rows depend on."""


class NoKeyError(Exception):
    """A call has no form of its own that others could share."""


_PLAIN: Final = frozenset(
    (int, bool, str, type(None), torch.dtype, torch.device, torch.layout, torch.memory_format, complex)
)


def key(argument: Any, places: dict[fx.Node, int]) -> tuple[Any, ...]:
    """A key that is equal for arguments that are alike, given the numbers of the nodes. NoKeyError for an argument that
    holds something else than nodes and literals."""
    parts: list[Any] = []
    _write((argument,), parts, places, _NOTHING)
    return tuple(parts)


_NOTHING: Final = Values()


def key_of_call(node: fx.Node, values: Values) -> tuple[tuple[Any, ...], tuple[fx.Node, ...]]:
    """A key that is equal for calls that are alike, and the native operands of the call, each once. NoKeyError for a
    call that has an argument of another kind.

    It is flat, and has targets and types by their addresses, because it is made for every call of every graph.
    """
    parts: list[Any] = [id(node.target), id(values.types[node])]
    places: dict[fx.Node, int] = {}
    _write(node._args, parts, places, values)
    for name, value in node._kwargs.items():
        parts.append(name)
        _write((value,), parts, places, values)
    return tuple(parts), tuple(places)


def _write(arguments: Sequence[Any], parts: list[Any], places: dict[fx.Node, int], values: Values) -> None:
    """Add the features that tell arguments from others to the parts of a key: for a node its type, or its number if it
    has one.

    A literal stands there with its class before it, a list with its class and length. So the numbers 1 and 1.0 are not
    alike, nor are a list and a tuple, and no two lists of arguments give the same parts.
    """
    node, types = fx.Node, values.types
    for value in arguments:
        kind = value.__class__
        if kind is node:
            if value in places:
                parts.append(~places[value])
                continue
            type = types[value]
            if type is None and values.value(value) is not UNKNOWN:
                raise NoKeyError
            places[value] = len(places)
            parts.append(id(type))
        elif kind in _PLAIN:
            parts.append(kind)
            parts.append(value)
        elif kind is float:
            parts += kind, value, math.copysign(1.0, value)  # 0.0 and -0.0 are equal
        elif isinstance(value, (list, tuple)):
            parts += kind, len(value)
            _write(value, parts, places, values)
        elif kind is slice:
            parts.append(kind)
            _write((value.start, value.stop, value.step), parts, places, values)
        else:
            raise NoKeyError

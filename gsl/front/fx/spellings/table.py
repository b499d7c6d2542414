"""The form of the table: rows that read native calls, and the tools of a writer of a canonical call."""

from __future__ import annotations

import builtins
import operator
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

import torch
import torch.nn.functional as F

from gsl.front.fx.spellings.bind import BoundCall, FxSignature, TypeOf
from gsl.front.fx.tree import Native
from gsl.front.tree import Canon
from gsl.graph import TensorType

Dialect = Literal["aten", "torch"]
FxLift = Callable[[BoundCall], Canon]
"""Reads a bound call, or raises UnreadError."""

_SPACES: Final = {
    "torch": torch,
    "F": F,
    "operator": operator,
    "builtins": builtins,
    "special": torch.special,
    "linalg": torch.linalg,
}


@dataclass(frozen=True, slots=True)
class FxRow:
    """Native calls that are spelled with the same parameters and read in the same way.

    ``spellings`` are words like ``torch.relu``, ``F.relu``, ``.relu`` (a method), ``operator.add``,
    ``aten.relu.default``, ``gsl.linear.default``. With ``inplace``, each name with an underscore behind
    it belongs to the row too.
    """

    spellings: str
    signature: str
    read: FxLift
    inplace: bool = False

    def targets(self) -> list[Any]:
        """The targets of the spellings that this version of torch has."""
        found: list[Any] = []
        for word in self.spellings.split():
            for spelling in (word, _in_place(word)) if self.inplace else (word,):
                target = resolve(spelling)
                if target is not None and target not in found:
                    found.append(target)
        return found


def _in_place(word: str) -> str:
    if word.startswith("aten."):
        _, name, overload = word.split(".")
        return f"aten.{name}_.{overload}"
    return word + "_"


def resolve(spelling: str) -> Any:
    """The object that a spelling names; ``None`` where this version of torch has no such object."""
    space, _, name = spelling.partition(".")
    if not space:
        return name if hasattr(torch.Tensor, name) else None
    if space in ("aten", "prims", "gsl"):
        packet, _, overload = name.partition(".")
        return getattr(getattr(getattr(torch.ops, space), packet, None), overload, None)
    return getattr(_SPACES[space], name, None)


FxIndex = Mapping[Any, Sequence[tuple[FxSignature, FxLift]]]


def by_target(rows: Iterable[FxRow]) -> FxIndex:
    """The rows by target. A target may have several, which are tried in order."""
    table: dict[Any, list[tuple[FxSignature, FxLift]]] = {}
    for row in rows:
        signature = FxSignature.parse(row.signature)
        for target in row.targets():
            table.setdefault(target, []).append((signature, row.read))
    return table


@dataclass(frozen=True, slots=True)
class Site:
    """A canonical call that is to be written: ``s.attrs`` and its operands, with their types."""

    op: str
    attrs: Mapping[str, Any]
    operands: tuple[Any, ...]
    type_of: TypeOf

    def __getitem__(self, name: str) -> Any:
        return self.attrs[name]

    @property
    def x(self) -> Any:
        """The first operand."""
        return self.operands[0]

    def type(self, position: int = 0) -> TensorType | None:
        found = self.type_of(self.operands[position])
        return found if isinstance(found, TensorType) else None

    def known(self, position: int = 0) -> TensorType:
        """The type of an operand that the writing depends on."""
        found = self.type(position)
        if found is None:
            raise ValueError(f"{self.op}: the type of operand {position} must be known to write it in torch")
        return found


FxLower = Callable[[Site], Any]
"""Writes a call as torch and ``torch.nn.functional`` calls; the aten dialect is made from them."""


def call(target: Any, *args: Any, **kwargs: Any) -> Native:
    return Native(target, args, kwargs)


def options(**given: tuple[Any, Any]) -> dict[str, Any]:
    """The keyword arguments of which the value is not the default: ``name=(value, default)``."""
    return {name: value for name, (value, default) in given.items() if value != default}

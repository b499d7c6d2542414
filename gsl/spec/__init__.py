"""The declarations of all operators, by canonical name."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from gsl.spec import activation, conv, create, index, linear, math, norm, packed, pool, reduce, shape
from gsl.spec.custom import DeclaredSpec, OperatorName, Vocabulary
from gsl.spec.spec import REQUIRED, AttrSpec, OpSpec, Trait, Types

__all__ = [
    "FAMILIES", "LISTS", "REQUIRED", "TABLE", "AttrSpec", "DeclaredSpec", "OpSpec", "OperatorName", "Trait", "Types",
    "find", "spec_of",
]  # fmt: skip

FAMILIES: Final[Mapping[str, tuple[OpSpec, ...]]] = MappingProxyType({
    family.__name__.rpartition(".")[2]: family.OPS
    for family in (math, create, shape, index, reduce, linear, conv, pool, norm, activation, packed)
})  # fmt: skip
"""The declarations by the name of the module in which they stand."""

TABLE: Final[Mapping[str, OpSpec]] = MappingProxyType(
    Vocabulary({spec.name: spec for ops in FAMILIES.values() for spec in ops})
)
"""The declaration of each operator by its canonical name; that of a user's operator comes with its name."""

LISTS: Final = frozenset(("concatenate", "stack", "einsum"))
"""The operators that take a list of tensors, which is a node of its own in a graph."""


def spec_of(op: object) -> OpSpec | None:
    """The declaration of a canonical operator; ``None`` for one that is native to a framework."""
    return TABLE.get(op) if isinstance(op, str) else None


def _names() -> dict[str, OpSpec]:
    """The declarations by every name by which they are found; a canonical name goes before all others."""
    names: dict[str, OpSpec] = {}
    for spec in TABLE.values():
        for name in (spec.cls, *spec.aliases, spec.name.removeprefix("nn.")):
            names.setdefault(name, spec)
    return {**names, **TABLE}


_BY_ANY_NAME: Final[Mapping[str, OpSpec]] = MappingProxyType(_names())


def find(name: str) -> OpSpec | None:
    """The declaration of the operator of that canonical name, alias or class name; ``nn.`` may be left out."""
    return _BY_ANY_NAME.get(name)

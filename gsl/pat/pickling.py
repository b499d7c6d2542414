"""Pickled patterns and operator classes: their fields, of which mappings, declarations and overloads are packed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from gsl.spec import TABLE, DeclaredSpec, OperatorName, OpSpec


@dataclass(frozen=True, slots=True)
class _Declared:
    """The declaration of an operator, by its name."""

    name: str


@dataclass(frozen=True, slots=True)
class _Overload:
    """An overload of an operator of torch, which can't be pickled itself, by its names."""

    namespace: str
    name: str
    overload: str


def state_of(item: Any) -> dict[str, Any]:
    """The fields of an object, as they are pickled."""
    names = [name for kind in reversed(type(item).__mro__) for name in getattr(kind, "__slots__", ())]
    found = {name: getattr(item, name) for name in names} | getattr(item, "__dict__", {})
    return {name: packed(value) for name, value in found.items()}


def restore(item: Any, state: Mapping[str, Any]) -> None:
    """Fill the fields of a new object."""
    for name, value in state.items():
        object.__setattr__(item, name, unpacked(value))


def packed(value: Any) -> Any:
    """A value in a form that can be pickled."""
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, frozenset):
        return frozenset(map(packed, value))
    if isinstance(value, DeclaredSpec):
        return value.name  # which is pickled by its place
    if isinstance(value, OpSpec):
        return _Declared(value.name)
    if type(value).__name__ == "OpOverload":
        namespace, _, name = value._schema.name.partition("::")
        return _Overload(namespace, name, value._overloadname)
    return value


def unpacked(value: Any) -> Any:
    """The value that was packed."""
    if isinstance(value, dict):
        return MappingProxyType(value)
    if isinstance(value, frozenset):
        return frozenset(map(unpacked, value))
    if isinstance(value, OperatorName):
        return value.spec
    if isinstance(value, _Declared):
        return TABLE[value.name]
    if isinstance(value, _Overload):
        import torch

        return getattr(getattr(getattr(torch.ops, value.namespace), value.name), value.overload)
    return value

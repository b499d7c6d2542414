"""Weights of modules, and trees of native calls: what torch's spellings need besides :mod:`gsl.front.tree`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


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

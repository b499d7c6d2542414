"""The packed forms of weights: made once, and kept for as long as the weights live and do not change."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Any, Final

import torch

Make = Callable[[], Any]


@dataclass(slots=True)
class _Entry:
    """The packed form of a weight, and the versions of the weight and its bias from which it was made."""

    weight: weakref.ref[Any]
    """The weight's memory; when that goes, so does the entry."""
    bias: Any
    """The bias' memory, which is held: its address is part of the key."""
    versions: tuple[int, int]
    made: Any
    """``None`` before the second use."""


_ENTRIES: Final[dict[Hashable, _Entry]] = {}


def packed(weight: torch.Tensor, bias: torch.Tensor | None, how: Hashable, make: Make) -> Any:
    """The object that ``make`` makes of a weight and a bias, ``None`` at the first use of them.

    A weight that is computed anew for each call is so never packed. Views of the same memory, that lie in it alike,
    share what is made. It is made again when torch's version counters tell that a tensor was changed.
    """
    memory = weight.untyped_storage()
    key: Hashable
    if bias is None:
        held, versions = None, (weight._version, 0)
        key = (id(memory), weight.storage_offset(), weight.shape, weight.stride(), how)
    else:
        held, versions = bias.untyped_storage(), (weight._version, bias._version)
        key = (
            id(memory), weight.storage_offset(), weight.shape, weight.stride(), how,
            id(held), bias.storage_offset(), bias.stride(),
        )  # fmt: skip
    entry = _ENTRIES.get(key)
    if entry is None or entry.versions != versions:
        gone = weakref.ref(memory, lambda _: _ENTRIES.pop(key, None))
        _ENTRIES[key] = _Entry(gone, held, versions, None)
        return None
    if entry.made is None:
        entry.made = make()
    return entry.made


def entries() -> list[Any]:
    """The kept entries: a packed form for each weight, or ``None`` for a weight that was used once."""
    return [entry.made for entry in list(_ENTRIES.values())]


def clear() -> None:
    """Forget all packed weights, and free their memory. Calls after that pack anew."""
    _ENTRIES.clear()

"""The packed forms of weights: made once, and kept for as long as the weights live and do not change."""

from __future__ import annotations

import math
import threading
import time
import weakref
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import torch

PackWeight = Callable[[], Any]


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


def packed(weight: torch.Tensor, bias: torch.Tensor | None, how: Hashable, make: PackWeight) -> Any:
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


# ---------------------------------------------------------------- the fastest way


PackedKernel = Callable[..., torch.Tensor]
ROUNDS: Final = 5
GAIN: Final = 0.97
"""The plain way is left only for one that takes at most this share of its time."""

_LOCK: Final = threading.Lock()
_CHOICES: Final[dict[Hashable, str]] = {}


def fastest(
    shape: Hashable, plain: str, ways: Mapping[str, Callable[[], PackedKernel | None]], *args: Any
) -> PackedKernel:
    """The run of the fastest way. ``None`` made by a way says that it is not to be had here.

    The choice is made once for each shape and number of threads, so that equal layers compute alike.
    """
    shape = (shape, torch.get_num_threads())
    with _LOCK:
        chosen = _CHOICES.get(shape)
        if chosen is None:
            runs = {name: run for name, make in ways.items() if (run := make()) is not None}
            chosen = _CHOICES[shape] = _fastest(plain, runs, args)
            return runs[chosen]
        run = ways[chosen]()
        assert run is not None
        return run


def _fastest(plain: str, runs: Mapping[str, PackedKernel], args: tuple[Any, ...]) -> str:
    """The name of the fastest run. They take turns, and the first turn, a warm one, does not count."""
    least = dict.fromkeys(runs, math.inf)
    for turn in range(ROUNDS + 1):
        for name, run in runs.items():
            start = time.perf_counter()
            run(*args)
            if turn:
                least[name] = min(least[name], time.perf_counter() - start)
    best = min(least, key=least.__getitem__)
    return best if least[best] < GAIN * least[plain] else plain


def choices() -> dict[Hashable, str]:
    """The way that was chosen for each shape and number of threads so far."""
    return dict(_CHOICES)

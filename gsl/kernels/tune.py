"""The choice of the fastest of several ways to compute the same: each is run on the call at hand, once for each
shape."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Hashable, Mapping
from typing import Any, Final

import torch

Run = Callable[..., torch.Tensor]
ROUNDS: Final = 5
GAIN: Final = 0.97
"""The plain way is left only for one that takes at most this share of its time."""

_LOCK: Final = threading.Lock()
_CHOICES: Final[dict[Hashable, str]] = {}


def fastest(shape: Hashable, plain: str, ways: Mapping[str, Callable[[], Run | None]], *args: Any) -> Run:
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


def _fastest(plain: str, runs: Mapping[str, Run], args: tuple[Any, ...]) -> str:
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

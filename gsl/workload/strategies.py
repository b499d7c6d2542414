"""Ways to draw the floats of random inputs: ordinary ones, and those on which rewrites are known to go wrong."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from gsl.errors import WorkloadError, nearest

Draw = Callable[[Sequence[int], Any, Any], Any]
"""Makes a tensor of a shape and a real dtype (float32 or float64) with a generator of torch."""


@dataclass(frozen=True, slots=True)
class Strategy:
    """A way to draw floats. Integers and booleans are drawn from the range of the example in any case."""

    name: str
    draw: Draw
    masks: bool = False
    """True if an example with two distinct values is taken for a mask, and its values are drawn again."""


def _normal(scale: float) -> Draw:
    def draw(shape: Sequence[int], dtype: Any, generator: Any) -> Any:
        import torch

        return torch.randn(tuple(shape), generator=generator, dtype=dtype) * scale

    return draw


def _uniform(low: float, high: float) -> Draw:
    def draw(shape: Sequence[int], dtype: Any, generator: Any) -> Any:
        import torch

        return torch.rand(tuple(shape), generator=generator, dtype=dtype) * (high - low) + low

    return draw


def _integers(low: int, high: int) -> Draw:
    def draw(shape: Sequence[int], dtype: Any, generator: Any) -> Any:
        import torch

        return torch.randint(low, high + 1, tuple(shape), generator=generator).to(dtype)

    return draw


def _among(*values: float, share: float = 1.0) -> Draw:
    """Values from a list; of the others, whose share is the rest, normal ones."""

    def draw(shape: Sequence[int], dtype: Any, generator: Any) -> Any:
        import torch

        which = torch.randint(len(values), tuple(shape), generator=generator)
        chosen = torch.tensor(values, dtype=dtype)[which]
        others = _normal(1.0)(shape, dtype, generator)
        return torch.where(torch.rand(tuple(shape), generator=generator) < share, chosen, others)

    return draw


_INFINITY, _NAN = float("inf"), float("nan")

STRATEGIES: Final[Mapping[str, Strategy]] = {
    strategy.name: strategy
    for strategy in (
        Strategy("normal", _normal(1.0), masks=True),
        Strategy("small", _normal(1e-3)),
        Strategy("large", _normal(1e2)),
        Strategy("positive", _uniform(1e-3, 1.0)),
        Strategy("integers", _integers(-8, 8)),
        Strategy("special", _among(0.0, -0.0, 1.0, -1.0, 0.5, -0.5, 2.0, 3.0, 6.0, 1e-6, -1e-6, share=0.8)),
        Strategy("nonfinite", _among(_INFINITY, -_INFINITY, _NAN, share=0.05)),
    )
}
"""The strategies by name. ``integers`` are exact in every dtype; ``special`` has ties, signed zeros, and the points at
which activations have their corners; ``nonfinite`` has a few infinities and NaNs."""


def strategy(given: Any) -> Strategy:
    """The strategy of a name, or of a range ``(low, high)`` in which floats lie evenly. WorkloadError for others."""
    if isinstance(given, str):
        if given not in STRATEGIES:
            raise WorkloadError(f"there is no strategy {given!r}; {nearest(given, STRATEGIES)}, or a range (low, high)")
        return STRATEGIES[given]
    if isinstance(given, (tuple, list)) and len(given) == 2:
        low, high = given
        if all(isinstance(bound, (int, float)) and not isinstance(bound, bool) for bound in given) and low <= high:
            return Strategy(f"[{low:g}, {high:g})", _uniform(low, high))
    raise WorkloadError(f"a strategy is one of {', '.join(STRATEGIES)}, or a range (low, high); got {given!r}")

"""Constants that are seen with another shape: what Relax's spellings need besides :mod:`gsl.front.tree`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True, eq=False)
class Reshaped:
    """A ``relax.Constant`` seen with another shape: a bias that is written as a constant of shape (1, C, 1, 1)."""

    constant: Any
    shape: tuple[int, ...]

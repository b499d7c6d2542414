"""Residues modulo two primes, p = 2 q + 1, as tensors of whole numbers in float64, and tables to compute with them."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import torch

P: Final = 2080679
"""A prime of 21 bits, such that products of two residues add up exactly; q is a prime, and 2 to 37 are squares."""
Q: Final = (P - 1) // 2
MOST_TERMS: Final = 2**53 // (P * P)
"""The number of products of two residues that add up exactly in float64."""


@functools.cache
def tables() -> tuple[Any, Any, Any]:
    """The powers of a generator modulo p, the exponent of each residue (0 for 0), and a table of random residues."""
    generator = next(g for g in range(2, P) if pow(g, 2, P) != 1 and pow(g, Q, P) != 1)
    powers: Any = np.ones(1, dtype=np.int64)
    while len(powers) < P - 1:
        powers = np.concatenate([powers, powers * pow(generator, len(powers), P) % P])
    powers = powers[: P - 1]
    exponents = np.zeros(P, dtype=np.int32)
    exponents[powers] = np.arange(P - 1)
    noise = np.random.default_rng(0).integers(0, P, P)
    return tuple(torch.from_numpy(table.astype(np.int32)) for table in (powers, exponents, noise))  # type: ignore[return-value]


@dataclass(frozen=True, slots=True)
class Residues:
    """A tensor of residues as whole numbers in float64. One of ``p`` and ``q`` may be missing, not both."""

    p: Any
    q: Any
    up: int
    """The degree of the numerator, as a rational function of the drawn values."""
    down: int
    """The degree of the denominator."""
    weight: int | None
    """The sum of the absolute coefficients if the value is a linear form with whole coefficients; otherwise None."""

    @property
    def any_part(self) -> Any:
        return self.q if self.p is None else self.p

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(self.any_part.shape)

    def mapped(self, function: Callable[[Any], Any]) -> Any:
        """The same with other places of its elements; several for a function that gives several."""
        p, q = (None if part is None else function(part) for part in (self.p, self.q))
        some = q if p is None else p
        if isinstance(some, (tuple, list)):
            pairs = zip(p or [None] * len(some), q or [None] * len(some))
            return tuple([Residues(*pair, self.up, self.down, self.weight) for pair in pairs])
        return Residues(p, q, self.up, self.down, self.weight)


def power_of_generator(exponents: Any) -> Any:
    """The powers of the generator modulo p."""
    return tables()[0][exponents.long()].double()


def draw(rng: Any, shape: Any) -> Residues:
    """A leaf: independent residues modulo p and modulo q."""
    p, q = (torch.from_numpy(np.asarray(rng.integers(0, modulus, shape)).astype(np.float64)) for modulus in (P, Q))
    return Residues(p, q, 1, 0, 1)

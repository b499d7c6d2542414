"""Random tensors and the values of views: torch's, or numpy's in the tier of tests that has no torch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np

from gsl.spec import TABLE
from tests.helpers import plain
from tests.tiers import has_frameworks

HAS_TORCH: Final = has_frameworks()


def randn(*shape: int, seed: int) -> Any:
    """Random normal numbers."""
    if not HAS_TORCH:
        return np.random.default_rng(seed).standard_normal(shape, dtype="float32")
    import torch

    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def random(shape: Sequence[int], dtype: str, seed: int) -> Any:
    """Random normal numbers, of any type."""
    value = randn(*shape, seed=seed) * 3
    if not HAS_TORCH:
        return value.astype(dtype)
    import torch

    return value.to(getattr(torch, dtype))


def tensor(value: Any, dtype: str | None = None) -> Any:
    """Numbers as a tensor; floats are of 32 bits, unless told otherwise."""
    if dtype is None:
        kind = np.asarray(value).dtype.kind
        dtype = {"b": "bool", "i": "int64", "f": "float32"}[kind]
    found = np.asarray(value, dtype)
    if not HAS_TORCH:
        return found
    import torch

    return torch.as_tensor(found)


def full(shape: Sequence[int], value: Any, dtype: str | None = None) -> Any:
    """A tensor that is filled with a number."""
    return tensor(np.full(shape, value), dtype)


def evaluate(op: str, operands: Sequence[Any], attrs: Mapping[str, Any]) -> Any:
    """The value of a canonical call."""
    if not HAS_TORCH:
        return plain.evaluate(op, operands, attrs)
    from gsl.spec.meaning import evaluate

    return evaluate(TABLE[op], operands, attrs)


def is_close(left: Any, right: Any) -> bool:
    """True if two values have the same type, and numbers that differ by rounding only."""
    left, right = (np.asarray(value) for value in (left, right))
    return (left.dtype, left.shape) == (right.dtype, right.shape) and np.allclose(left, right, rtol=1e-4, atol=1e-4)

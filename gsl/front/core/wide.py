"""Tensors in float64, which tell rounding errors from other ones."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import torch

_WIDE: Final[Mapping[Any, torch.dtype]] = {
    torch.float16: torch.float64, torch.bfloat16: torch.float64, torch.float32: torch.float64,
    torch.complex32: torch.complex128, torch.complex64: torch.complex128,
}  # fmt: skip
NARROW: Final = frozenset(str(dtype).removeprefix("torch.") for dtype in _WIDE)
"""The names of the dtypes of which there is a wider one."""


def wide(value: Any) -> Any:
    """A tensor in float64 or complex128, or that dtype, for a narrower one; any other value as it is."""
    if isinstance(value, torch.Tensor):
        return value.to(_WIDE.get(value.dtype, value.dtype))
    return _WIDE.get(value, value) if isinstance(value, torch.dtype) else value

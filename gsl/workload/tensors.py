"""Tensors of any framework as torch tensors."""

from __future__ import annotations

from typing import Any


def as_tensor(value: Any) -> Any:
    """A tensor of torch, numpy or TVM as a torch tensor, which shares its memory if possible.

    None for anything else.
    """
    import numpy as np
    import torch

    if isinstance(value, torch.Tensor):
        return value
    if isinstance(value, (np.ndarray, np.generic)):
        return _of_numpy(np.ascontiguousarray(value).reshape(value.shape))
    if type(value).__module__.partition(".")[0] == "tvm" and hasattr(value, "numpy"):
        from gsl.front.tvm import tensors

        return tensors.to_torch(value)
    return _of_numpy(np.array(value.numpy())) if hasattr(value, "numpy") else None


def _of_numpy(array: Any) -> Any:
    """An array as a tensor. Arrays of bfloat16 and float8 are of the package ml_dtypes, which torch does not know."""
    import numpy as np
    import torch

    if array.dtype.name.startswith(("bfloat16", "float8")):
        bits = array.view(np.int16 if array.dtype.itemsize == 2 else np.uint8)
        return torch.from_numpy(bits).view(getattr(torch, array.dtype.name))
    return torch.from_numpy(array if array.flags.writeable else array.copy())

"""Tensors of TVM as torch tensors on the CPU and back, sharing memory where that is possible; attributes as Python's
values."""

from __future__ import annotations

from functools import cache
from typing import Any, Final

import numpy as np
import torch
import tvm
from torch.utils import dlpack

from gsl.errors import FrontEndError
from gsl.graph import dtype_name

_ALIGNMENT: Final = 64
"""Compiled code expects the data of a tensor at a multiple of so many bytes."""

TENSOR: Final[Any] = getattr(tvm.runtime, "Tensor", None) or tvm.runtime.NDArray
"""The class of TVM's tensors, which older versions call ``NDArray``."""
_MAKERS: Final[Any] = tvm.runtime if hasattr(tvm.runtime, "from_dlpack") else tvm.nd
_tensor: Final[Any] = getattr(_MAKERS, "tensor", None) or _MAKERS.array
"""Makes a tensor of TVM of a numpy array, which it copies."""


def to_torch(value: Any) -> Any:
    """A tensor of TVM on the CPU as a torch tensor of the same memory; a numpy array too; a torch tensor on the CPU.

    A tensor of another device is copied. Raises TypeError for a dtype that torch does not have.
    """
    if isinstance(value, torch.Tensor):
        return value.detach().cpu()
    if isinstance(value, (np.ndarray, np.generic)):
        return _numpy_to_torch(np.asarray(value))
    if _device_type(value.device) != _device_type(tvm.cpu()):
        value = value.copyto(tvm.cpu())
    if str(value.dtype) == "bool" and _MAKERS is not tvm.runtime:
        # For older versions of TVM a bool is an integer of one bit, which torch does not take.
        return torch.from_numpy(value.numpy().astype(bool))
    try:
        return dlpack.from_dlpack(value)
    except (BufferError, RuntimeError) as error:
        raise TypeError(f"torch has no tensors of the dtype {value.dtype}") from error


def as_operand(value: Any) -> Any:
    """An operand of a call as torch has it: tensors of TVM and arrays as torch tensors, at any depth of tuples."""
    if isinstance(value, tuple):
        return tuple(map(as_operand, value))
    return to_torch(value) if hasattr(value, "shape") else value


def to_tvm(value: Any) -> Any:
    """A torch tensor or numpy array as a tensor of TVM, of the same memory where it is contiguous and aligned."""
    if isinstance(value, TENSOR):
        return value
    if isinstance(value, np.ndarray) and value.dtype.kind == "V" and not known_dtype(value.dtype.name):
        return _tensor(value)
    tensor = to_torch(value).contiguous()
    if tensor.is_conj() or tensor.is_neg():
        tensor = tensor.resolve_conj().resolve_neg()
    if tensor.dtype == torch.bool and _MAKERS is not tvm.runtime:
        return _tensor(tensor.numpy())
    if tensor.data_ptr() % _ALIGNMENT or tensor.numel() == 0:
        # What TVM allocates is aligned.
        copy = _MAKERS.empty(tuple(tensor.shape), dtype_name(tensor.dtype))
        if tensor.numel():
            dlpack.from_dlpack(copy).copy_(tensor)
        return copy
    return _MAKERS.from_dlpack(tensor)


def weight(name: str, value: Any) -> Any:
    """The value of a parameter as a tensor of TVM. FrontEndError for what is no tensor."""
    try:
        return to_tvm(value)
    except (TypeError, AttributeError) as error:
        is_array = hasattr(value, "dtype")
        found = f"an array of {value.dtype}" if is_array else f"of type {type(value).__name__}"
        raise FrontEndError(f"the weight {name!r} is {found}, expected a tensor or an array of numbers") from error


def to_numpy(value: Any) -> Any:
    """The result of a run as numpy arrays: tuples and lists of tensors become tuples of arrays; numbers stay."""
    if isinstance(value, TENSOR):
        array = value.numpy()
        # Older versions of TVM give the bits of a bfloat16.
        return array if array.dtype.name == str(value.dtype) else array.view(np.dtype(str(value.dtype)))
    if isinstance(value, torch.Tensor):
        return to_numpy(to_tvm(value))
    if isinstance(value, tvm.runtime.ShapeTuple):
        return tuple(int(size) for size in value)
    if hasattr(value, "__getitem__") and hasattr(value, "__len__") and not isinstance(value, (str, bytes)):
        # The tuples of Relay's virtual machine can't be iterated over.
        return tuple([to_numpy(value[place]) for place in range(len(value))])
    return value


def python_value(value: Any) -> Any:
    """An attribute as Python has it: a number, a text, the name of a dtype, or a tuple of such; others as they are."""
    match type(value).__name__:
        case "IntImm":
            # Older versions of TVM tell the dtype itself, newer ones its type.
            dtype = value.dtype if hasattr(value, "dtype") else value.ty.dtype
            return bool(value.value) if str(dtype) == "bool" else int(value.value)
        case "FloatImm":
            return float(value.value)
        case "StringImm":
            return str(value.value)
        case "PrimType":
            return str(value.dtype)
        case "Array" | "List" | "list":
            return tuple(map(python_value, value))
    return str(value) if isinstance(value, str) else value


@cache
def known_dtype(name: str) -> bool:
    """True if torch has tensors of the dtype of that name. It has the names of some whose tensors it can't take."""
    try:
        return str(to_torch(_MAKERS.empty((1,), name)).dtype) == f"torch.{name}"
    except (TypeError, ValueError):
        return False


def _device_type(device: Any) -> int:
    return int(device.dlpack_device_type() if hasattr(device, "dlpack_device_type") else device.device_type)


def _numpy_to_torch(array: Any) -> torch.Tensor:
    """A numpy array as a torch tensor; those of bfloat16 and float8 are of the package ml_dtypes."""
    array = np.ascontiguousarray(array).reshape(array.shape)
    if array.dtype.kind == "V" or array.dtype.name.startswith(("bfloat", "float8")):
        whole = array.view({1: np.uint8, 2: np.int16}[array.dtype.itemsize])
        return torch.from_numpy(whole).view(getattr(torch, array.dtype.name))
    if not array.flags.writeable:
        array = array.copy()
    return torch.from_numpy(array)

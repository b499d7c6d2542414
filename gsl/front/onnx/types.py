"""Types and tensors of ONNX as those of the view, and back."""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable, Mapping
from typing import Any, Final

import numpy as np
import onnx_ir as ir
import torch

from gsl.errors import FrontEndError
from gsl.front.core.infer import require_finite
from gsl.graph import Dim, SymDim, TensorType, Type

DTYPES: Final[Mapping[ir.DataType, str]] = {
    ir.DataType.FLOAT: "float32", ir.DataType.DOUBLE: "float64", ir.DataType.FLOAT16: "float16",
    ir.DataType.BFLOAT16: "bfloat16", ir.DataType.BOOL: "bool", ir.DataType.COMPLEX64: "complex64",
    ir.DataType.COMPLEX128: "complex128", ir.DataType.INT8: "int8", ir.DataType.INT16: "int16",
    ir.DataType.INT32: "int32", ir.DataType.INT64: "int64", ir.DataType.UINT8: "uint8", ir.DataType.UINT16: "uint16",
    ir.DataType.UINT32: "uint32", ir.DataType.UINT64: "uint64", ir.DataType.FLOAT8E4M3FN: "float8_e4m3fn",
    ir.DataType.FLOAT8E4M3FNUZ: "float8_e4m3fnuz", ir.DataType.FLOAT8E5M2: "float8_e5m2",
    ir.DataType.FLOAT8E5M2FNUZ: "float8_e5m2fnuz",
}  # fmt: skip
"""The dtypes that the view has. Strings and numbers of less than a byte are not among them."""
NAMES: Final[Mapping[str, ir.DataType]] = {name: dtype for dtype, name in DTYPES.items()}
FLOATS: Final = frozenset(("float16", "bfloat16", "float32", "float64"))
_UNKNOWN: Final = re.compile(r"unknown_\d+_*")
"""Names like those that sizes without a name have in the view: in a model, they stand for other sizes."""


def onnx_dtype(name: str) -> ir.DataType:
    """The dtype of ONNX. ValueError if it has none of that name."""
    if name not in NAMES:
        raise ValueError(f"ONNX has no dtype {name}")
    return NAMES[name]


# ---------------------------------------------------------------- types


class OnnxTypes:
    """Types of the view from those of ONNX.

    A size that has a name is one symbol wherever the name stands in the graph; an unknown one is a symbol of its own.
    """

    def __init__(self) -> None:
        self.symbols: dict[str, SymDim] = {}
        """The symbols of the named sizes."""
        self._unknown = 0
        self._known: dict[Any, TensorType] = {}
        """The types without unknown sizes, by the identity of the dtype and the sizes. Members of an enumeration take
        long to be hashed."""

    @property
    def names(self) -> Mapping[Any, str]:
        """The names of the symbols in the model."""
        return {symbol: name for name, symbol in self.symbols.items()}

    def of(self, value: ir.Value) -> Type | None:
        """The declared type of a value; ``None`` where that is not a tensor of known rank and a dtype of the view."""
        return self.tensor(value.type, value.shape)

    def tensor(self, type: Any, shape: Any) -> Type | None:
        """The type of the view for a type and a shape, the same one for equal ones; ``None`` if there is none."""
        return None if shape is None or not isinstance(type, ir.TensorType) else self.plain(type.dtype, shape)

    def plain(self, dtype: Any, shape: Any) -> Any:
        """The type of the view for a dtype and a shape; ``None`` for a dtype that it does not have."""
        dims = shape.dims
        found = self._known.get((id(dtype), dims))
        if found is None and dtype in DTYPES:
            found = TensorType(tuple(map(self.dim, dims)), DTYPES[dtype])
            if not shape.has_unknown_dim():
                self._known[id(dtype), dims] = found
        return found

    def dim(self, size: Any) -> Dim:
        """A size of a shape."""
        if isinstance(size, int):
            return size
        name = size.value
        if name is None:
            self._unknown += 1
            return _symbol(f"unknown_{self._unknown}")
        if name not in self.symbols:
            self.symbols[name] = _symbol(f"{name}_" if _UNKNOWN.fullmatch(name) else name)
        return self.symbols[name]


def _symbol(name: str) -> SymDim:
    import sympy

    # A size may be zero.
    return SymDim(sympy.Symbol(name, integer=True, nonnegative=True))


NameOf = Callable[[Any], str | None]
"""A function that tells the names that symbolic sizes have in a model, ``None`` for others."""


def annotate(value: ir.Value, type: Type | None, name_of: NameOf = lambda size: None) -> None:
    """Note the type of a new value. ``name_of`` tells the names of symbolic sizes; the others stay unknown."""
    if isinstance(type, TensorType) and type.dtype in NAMES:
        value.type = ir.TensorType(NAMES[type.dtype])
        value.shape = ir.Shape([name_of(size) if isinstance(size, SymDim) else size for size in type.shape])


# ---------------------------------------------------------------- attributes and tensors


_FEW: Final = 1024
"""The number of bytes up to which a copy takes less time than to keep torch's warning quiet."""
_SEQUENCES: Final = (ir.AttributeType.INTS, ir.AttributeType.FLOATS, ir.AttributeType.STRINGS)


def value_of(attr: ir.Attr) -> Any:
    """An attribute as a Python value."""
    return tuple(attr.value) if attr.type in _SEQUENCES else attr.value


def const_tensor(value: ir.Value) -> Any:
    """The tensor that a value is in the model, as it is there; ``None`` if it is computed."""
    node = value.producer()
    if node is None:
        return value.const_value
    own = None if node.op_type != "Constant" else node.attributes.get("value")
    if own is not None and own.type == ir.AttributeType.TENSOR and not own.is_ref():
        return own.value  # to which get_const_tensor would give the name of the value
    return ir.convenience.get_const_tensor(value)


def is_equal(tensor: Any, other: Any) -> bool:
    """True if two tensors of ONNX have the same dtype, shape and elements; ``None`` is equal to none."""
    if tensor is None or other is None or tensor.dtype != other.dtype or tuple(tensor.shape) != tuple(other.shape):
        return False
    return bool(tensor.tobytes() == other.tobytes())


def to_torch(tensor: Any) -> torch.Tensor:
    """A tensor of ONNX as a torch tensor on the CPU, of the same memory where it lies there as numbers.

    External data stay in their file until they are read. TypeError for a dtype that torch does not have.
    """
    if tensor.dtype not in DTYPES:
        raise TypeError(f"torch has no tensors of the dtype {tensor.dtype}")
    if isinstance(tensor, ir.tensor_adapters.TorchTensor):
        return tensor.raw.detach().cpu()
    return array_to_torch(tensor.numpy(), DTYPES[tensor.dtype])


def data_of(tensor: Any, name: str | None) -> torch.Tensor:
    """The numbers of a tensor of ONNX of that name in the model, as a torch tensor. FrontEndError if they don't fit its
    shape and dtype."""
    try:
        return to_torch(tensor)
    except ValueError as error:
        raise FrontEndError(f"the data of tensor {name!r} don't fit its shape and dtype: {error}") from None


def array_to_torch(array: Any, dtype: str = "") -> torch.Tensor:
    """A numpy array as a torch tensor of the same memory, unless that is a few bytes which may not be written; arrays
    of bfloat16 and float8 are of the package ml_dtypes."""
    array = np.ascontiguousarray(array).reshape(np.shape(array))
    name = dtype or array.dtype.name
    if name.startswith(("bfloat16", "float8")):
        array = array.view({1: np.uint8, 2: np.int16}[array.dtype.itemsize])
    if not array.flags.writeable and array.nbytes <= _FEW:
        array = array.copy()
    found = torch.from_numpy(array) if array.flags.writeable else _of_fixed(array)
    return found.view(getattr(torch, name)) if name.startswith(("bfloat16", "float8")) else found


def as_torch(value: Any) -> torch.Tensor:
    """A literal tensor of a rule, of torch or of numpy, as one of torch."""
    return value if isinstance(value, torch.Tensor) else array_to_torch(value)


def _of_fixed(array: Any) -> torch.Tensor:
    """A torch tensor of the memory of an array that may not be written."""
    with warnings.catch_warnings():
        # A view does not write to a tensor.
        warnings.filterwarnings("ignore", message="The given NumPy array is not writable")
        return torch.from_numpy(array)


def to_onnx(tensor: torch.Tensor, name: str | None = None) -> Any:
    """A torch tensor as one of ONNX, of the same memory where it is contiguous and on the CPU."""
    tensor = tensor.detach().cpu().contiguous().resolve_conj().resolve_neg()
    return ir.tensor_adapters.TorchTensor(tensor, name=name)


def number(value: bool | int | float, dtype: str) -> torch.Tensor:
    """A number as a tensor without axes. ValueError if the dtype does not have it."""
    whole = not (dtype in FLOATS or dtype.startswith("complex"))
    if whole and dtype != "bool" and isinstance(value, float) and not value.is_integer():
        raise ValueError(f"{value!r} is no number of {dtype}")
    try:
        made = torch.tensor(value, dtype=getattr(torch, dtype))
    except (OverflowError, RuntimeError) as error:
        raise ValueError(f"{value!r} is no number of {dtype}") from error
    if not made.is_complex():
        require_finite(value, made.item(), dtype)
    return made

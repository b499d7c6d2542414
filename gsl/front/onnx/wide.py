"""Models in float64, which tell rounding errors from other ones."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import numpy as np
import onnx_ir as ir

from gsl.errors import FrontEndError
from gsl.front.core.wide import NARROW
from gsl.front.core.wide import wide as wide_tensor
from gsl.front.onnx.copying import copied
from gsl.front.onnx.types import DTYPES, array_to_torch, to_onnx, to_torch

_WIDE: Final[Mapping[ir.DataType, ir.DataType]] = {
    narrow: ir.DataType.COMPLEX128 if narrow == ir.DataType.COMPLEX64 else ir.DataType.DOUBLE
    for narrow, name in DTYPES.items() if name in NARROW
}  # fmt: skip
_DTYPES: Final = frozenset(("to", "dtype", "output_datatype", "softmax_precision"))
"""The attributes that are dtypes. A ``stash_type`` is none: kernels for float64 don't look at it."""
_NUMBERS: Final = frozenset(("value_float", "value_floats"))
"""The attributes by which a ``Constant`` is one of float32."""
_LEFT_OUT: Final[Mapping[str, ir.Attr]] = {
    "ConstantOfShape": ir.AttrTensor("value", ir.tensor(np.zeros(1))),
    "SequenceEmpty": ir.AttrInt64("dtype", ir.DataType.DOUBLE),
    "GroupNormalization": ir.AttrInt64("stash_type", ir.DataType.DOUBLE),  # a function, which casts to that dtype
    **dict.fromkeys(("HannWindow", "HammingWindow", "BlackmanWindow", "MelWeightMatrix"),
                    ir.AttrInt64("output_datatype", ir.DataType.DOUBLE)),
}  # fmt: skip
"""The attributes of nodes of float64, where nodes without them are of float32."""


def wide(value: Any) -> Any:
    """A tensor of torch or numpy in float64 or complex128, for a narrower one; any other value as it is."""
    if isinstance(value, list):
        return list(map(wide, value))
    is_narrow = isinstance(value, (np.ndarray, np.generic)) and value.dtype.name in NARROW
    return wide_tensor(array_to_torch(value) if is_narrow else value)


def in_float64(model: ir.Model) -> ir.Model:
    """A copy of a model that has doubles where the model has narrower floats, in graphs of nodes and in functions, too.

    FrontEndError where that would be another function, or is not known.
    """
    new = copied(model)
    for graph in (new.graph, *[function.graph for function in new.functions.values()]):
        for part in (graph, *graph.subgraphs()):
            for value in (*part.inputs, *part.initializers.values()):
                _widen_value(value)
            for node in part:
                _widen_node(node)
    return new


def _widen_value(value: ir.Value) -> None:
    value.type = _wide_type(value.type)
    if value.const_value is not None:
        value.const_value = _wide_tensor(value.const_value)


def _wide_type(type: Any) -> Any:
    if isinstance(type, ir.TensorType):
        return ir.TensorType(_WIDE.get(type.dtype, type.dtype))
    return type.__class__(_wide_type(type.elem_type)) if isinstance(type, (ir.SequenceType, ir.OptionalType)) else type


def _wide_tensor(tensor: Any) -> Any:
    return to_onnx(wide_tensor(to_torch(tensor)), tensor.name) if tensor.dtype in _WIDE else tensor


def _widen_node(node: ir.Node) -> None:
    if node.op_type == "BitCast":
        raise FrontEndError("the bits of a float are other ones in float64")
    for value in node.outputs:
        _widen_value(value)
    for attr in list(node.attributes.values()):
        name = attr.name
        if name in _DTYPES and attr.is_ref():
            raise FrontEndError(f"{node.op_type}: the dtype {name} is not known")
        if attr.is_ref():
            continue
        if name in _DTYPES and attr.value in _WIDE:
            node.attributes.add(ir.AttrInt64(name, _WIDE[ir.DataType(attr.value)]))
        elif attr.type == ir.AttributeType.TENSOR:
            node.attributes.add(ir.AttrTensor(name, _wide_tensor(attr.value)))
        elif name in _NUMBERS:
            node.attributes.pop(name)
            node.attributes.add(ir.AttrTensor("value", ir.tensor(np.array(attr.value, np.float32).astype(np.float64))))
    left_out = _LEFT_OUT.get(node.op_type)
    if left_out is not None and left_out.name not in node.attributes:
        node.attributes.add(left_out)

"""Shapes that a model computes when it runs, as far as they follow from the sizes of its inputs."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from typing import Any, Final

import onnx_ir as ir

from gsl.front.onnx.spellings import OnnxScope
from gsl.graph import Dim, SymDim, TensorType

OnnxDims = tuple[Dim, ...]

_ARITHMETIC: Final[Mapping[str, Callable[[Any, Any], Any]]] = {
    "Add": operator.add, "Sub": operator.sub, "Mul": operator.mul, "Div": operator.floordiv,
}  # fmt: skip
_SAME: Final = frozenset(("Cast", "Identity", "Reshape", "Squeeze", "Unsqueeze"))
"""Operators that leave the integers of a tensor of at most one axis as they are."""


def sizes_of(node: ir.Node | None, known: OnnxScope) -> OnnxDims | None:
    """The integers that a node computes from sizes; ``None`` if they do not follow."""
    if node is None or node.domain or not node.inputs:
        return None
    if node.op_type == "Shape":
        type = known.type_of(node.inputs[0])
        first, last = (node.attributes.get(name) for name in ("start", "end"))
        place = slice(first.as_int() if first else None, last.as_int() if last else None)
        return type.shape[place] if isinstance(type, TensorType) else None
    result = known.type_of(node.outputs[0])
    if not isinstance(result, TensorType) or result.ndim > 1 or result.dtype not in ("int32", "int64"):
        return None
    if node.op_type == "Gather":
        own, places = known.sizes(node.inputs[0]), known.constant(node.inputs[1])
        if own is None or places is None or any(not -len(own) <= place < len(own) for place in places.reshape(-1)):
            return None
        return tuple([own[int(place)] for place in places.reshape(-1)])
    if node.op_type == "Slice":
        return _slice(node, known)
    if node.op_type in _SAME:
        return known.sizes(node.inputs[0])
    parts = [known.sizes(value) for value in node.inputs]
    if any(part is None for part in parts):
        return None
    if node.op_type == "Concat":
        return tuple([size for part in parts if part is not None for size in part])
    if node.op_type in _ARITHMETIC and len(parts) == 2:
        return _elements(_ARITHMETIC[node.op_type], *parts)  # type: ignore[arg-type]
    return None


def _slice(node: ir.Node, known: OnnxScope) -> OnnxDims | None:
    """A part of a list of sizes."""
    own, *bounds = [known.sizes(value) for value in node.inputs]
    numbers = [bound[0] for bound in bounds if bound is not None and len(bound) == 1 and isinstance(bound[0], int)]
    if own is None or len(numbers) != len(bounds) or not 2 <= len(numbers) <= 4:
        return None
    first, last = numbers[:2]
    axis, step = (*numbers[2:], *(0, 1)[len(numbers) - 2 :])
    return own[first:last:step] if axis in (0, -1) and step > 0 else None


def _elements(compute: Callable[[Any, Any], Any], left: OnnxDims, right: OnnxDims) -> OnnxDims | None:
    """Arithmetic on sizes. Integers of ONNX are divided towards zero: so neither may be negative then."""
    length = max(len(left), len(right))
    pairs = list(zip(left * (length // max(len(left), 1)), right * (length // max(len(right), 1))))
    if len(pairs) != length or {len(left), len(right)} - {1, length}:
        return None
    if compute is operator.floordiv and not all(_is_size(a) and isinstance(b, int) and b > 0 for a, b in pairs):
        return None
    return tuple([compute(a, b) for a, b in pairs])


def _is_size(value: Dim) -> bool:
    return bool(value.expr.is_nonnegative) if isinstance(value, SymDim) else value >= 0

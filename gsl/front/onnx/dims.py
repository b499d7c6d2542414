"""Shapes that a model computes when it runs, as far as they follow from the sizes of its inputs."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from typing import Any, Final

import numpy as np
import onnx_ir as ir

from gsl.front.onnx.spellings import OnnxScope
from gsl.graph import Dim, SymDim, TensorType

_ARITHMETIC: Final[Mapping[str, Callable[[Any, Any], Any]]] = {
    "Add": operator.add, "Sub": operator.sub, "Mul": operator.mul, "Div": operator.floordiv,
}  # fmt: skip
_SAME: Final = frozenset(("Cast", "Identity", "Reshape", "Squeeze", "Unsqueeze"))
"""Operators that leave the integers of a tensor of at most one axis as they are."""


def sizes_of(node: ir.Node | None, known: OnnxScope) -> tuple[Dim, ...] | None:
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
    if node.op_type in _SAME:
        return known.sizes(node.inputs[0])
    parts = [known.sizes(value) for value in node.inputs]
    if None in parts:
        return None
    try:
        found = _computed(node.op_type, *[np.array(part, dtype=object) for part in parts])
    except (IndexError, TypeError, ValueError):
        return None  # the model fails there when it runs, or a place is no number
    return None if found is None else tuple(found)


def _computed(op: str, *parts: Any) -> Any:
    """The integers that a node computes from lists of them; ``None`` for a node of which that is not known."""
    if op == "Concat":
        return np.concatenate(parts)
    own, *others = parts
    if op == "Gather":
        return own[others[0].astype(np.int64)]
    if op == "Slice" and all(len(other) == 1 for other in others):
        first, last, axis, step = (*[int(other[0]) for other in others], *(0, 1)[len(others) - 2 :])
        return own[first:last:step] if axis in (0, -1) and step > 0 else None
    # Integers of ONNX are divided towards zero: so neither may be negative then.
    if op in _ARITHMETIC and (op != "Div" or (all(map(_is_size, own)) and all(map(_is_divisor, *others)))):
        return _ARITHMETIC[op](own, *others)
    return None


def _is_size(value: Dim) -> bool:
    return bool(value.expr.is_nonnegative) if isinstance(value, SymDim) else value >= 0


def _is_divisor(value: Dim) -> bool:
    return isinstance(value, int) and value > 0

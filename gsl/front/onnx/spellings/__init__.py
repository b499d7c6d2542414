"""The table by which ONNX spells the canonical operators, read in both directions.

Each family has rows. An operator that ONNX lacks is composed of several, and so is one that the model's version of ONNX
does not have yet.

Both sides compute the same up to rounding, and but for what neither promises: a NaN in a maximum, an index out of
range, a float that an integer can't hold.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import onnx_ir as ir

from gsl.front.core.lower import LOWERED, Lower, lower
from gsl.front.onnx.spellings import elementwise, linear, norm, reduce, shape
from gsl.front.onnx.spellings.reading import THROUGH, OnnxCall, OnnxLift, OnnxScope, OnnxUnread, unread_unless
from gsl.front.onnx.spellings.writing import OnnxLowering, OnnxTarget, attributes_of, result_of
from gsl.front.tree import Canon
from gsl.graph import Node
from gsl.spec import packed

_ROWS: Final = (*elementwise.ROWS, *linear.ROWS, *norm.ROWS, *reduce.ROWS, *shape.ROWS)

READERS: Final[Mapping[str, OnnxLift]] = {row.name: row.read for row in _ROWS if row.name}
READINGS: Final[Mapping[str, tuple[frozenset[str], frozenset[str]]]] = {
    row.name: (frozenset((row.op, *row.also)) - {""}, frozenset(row.inner)) for row in _ROWS if row.name
}
"""The operators that readings of a node may have: of the call that gives its value, and of those below it."""
WRITERS: Final[Mapping[str, Lower]] = {**LOWERED, **{row.op: row.write for row in _ROWS if row.op}}

MISSING: Final[Mapping[str, str]] = {
    **dict.fromkeys(packed.NAMES, packed.REASON),
    "atan2": "the quadrant of an angle is not known from a quotient",
}
"""The canonical operators that can't be written in ONNX, each with the reason."""


def read(call: OnnxCall, places: Sequence[int]) -> Canon | None:
    """The canonical reading of a node of which these outputs are used; ``None``: there is no exact one.

    A node of several outputs is read as a call that has a tuple of them.
    """
    node = call.node
    if node.domain or node.overload:
        return None
    several = {"Split": shape.read_split, "TopK": shape.read_topk}
    reader = (READERS if list(places) == [0] else several).get(node.op_type)
    if reader is None or not call.inputs or any(value is None for value in call.inputs[:1]):
        return None
    known = attributes_of(node.op_type, call.scope.opset)
    try:
        unread_unless(known is None or known.issuperset(node.attributes))
        canon = reader(call)
        unread_unless(_is_told(canon, call))
        return canon
    except (OnnxUnread, ValueError, IndexError, TypeError, ZeroDivisionError):
        # Also what is ill-formed: too few operands, attributes of another kind, an axis of a tensor without axes.
        return None


def _is_told(canon: Canon, call: OnnxCall) -> bool:
    """True if a reading consists of what is said of the operator in advance."""
    roots, inner = READINGS[call.node.op_type]
    nodes = (call.node, *call.through)
    calls = [canon]
    for each in calls:  # the list grows while it is read
        for operand in each.operands:
            if isinstance(operand, Canon):
                calls.append(operand)
            elif isinstance(operand, ir.Value) and not any(operand in node.inputs for node in nodes):
                return False
    return canon.op in roots and inner.issuperset([each.op for each in calls[1:]])


def write(op: str, attrs: Mapping[str, Any], operands: Sequence[Any], target: OnnxTarget) -> Any:
    """The value of a canonical call: new nodes, whose values have types. A convolution or a dense layer may have a
    bias as one more operand.

    Operands are values, numbers, and tuples of values. ValueError with the reason where ONNX can't say it.
    """
    if op in MISSING:
        raise ValueError(f"{op}: ONNX has no such operator: {MISSING[op]}")
    return lower(OnnxLowering, WRITERS, op, attrs, operands, target)


def takes_bias(layer: Node, bias: Node) -> bool:
    """True if one node of ONNX can compute a product or a convolution and what adds a bias to it."""
    if layer.dtype is None or layer.dtype != bias.operands[1].dtype or "float" not in layer.dtype:
        return False
    if layer.op == "nn.dense":
        return bool(bias.attrs["axis"] == (layer.ndim or 0) - 1)
    if layer.op not in linear.CONVOLUTIONS:
        return False
    layout = layer.attrs["out_layout"] or layer.attrs["data_layout"]
    return bool(layout.index("C") == bias.attrs["axis"])


__all__ = [
    "MISSING", "READERS", "READINGS", "THROUGH", "WRITERS", "OnnxCall", "OnnxScope", "OnnxTarget", "OnnxUnread", "read",
    "result_of", "takes_bias", "write",
]  # fmt: skip

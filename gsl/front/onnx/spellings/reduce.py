"""Spellings of reductions and cumulative sums."""

from __future__ import annotations

import math
from typing import Any, Final

from gsl.front.core.lower import Lower, index_of_several
from gsl.front.onnx.spellings.reading import OnnxCall, OnnxLift, axes_of, same, unread_unless
from gsl.front.onnx.spellings.writing import OnnxLowering, row
from gsl.front.tree import Canon
from gsl.graph import TensorType

_NATIVE: Final = {
    "sum": "ReduceSum", "mean": "ReduceMean", "max": "ReduceMax", "min": "ReduceMin", "prod": "ReduceProd",
    "logsumexp": "ReduceLogSumExp",
}  # fmt: skip


def _call(w: OnnxLowering, name: str, data: Any, axis: tuple[int, ...], keepdims: bool) -> Any:
    """A reduction in the dtype of the data, whose axes are an operand in newer versions."""
    data = w.cast(data, "int32" if w.dtype == "bool" else w.dtype)
    type = TensorType(w.shape, w.dtype_of(data))
    if w.opset >= 18 or name == "ReduceSum":
        made = w.call(name, data, w.ints(axis), keepdims=int(keepdims), type=type)
    else:
        made = w.call(name, data, axes=list(axis), keepdims=int(keepdims), type=type)
    return w.cast(made, w.dtype)


def _reduction(name: str) -> Lower:
    def write(w: OnnxLowering, data: Any, axis: tuple[int, ...], keepdims: bool, exclude: bool) -> Any:
        if not axis:
            # ONNX takes no axes for all of them.
            rank = w.rank_of(data)
            return _call(w, name, w.reshape(data, (*w.shape_of(data), 1)), (rank,), False)
        return _call(w, name, data, axis, keepdims)

    return write


def _all_any(name: str) -> Lower:
    return lambda w, data, **attrs: w.write(name, w.cast(data, "bool"), **attrs)


def _spread(w: OnnxLowering, data: Any, axis: tuple[int, ...], keepdims: bool, exclude: bool, unbiased: bool) -> Any:
    """The mean of the squares of what remains without the mean."""
    centred = w.write("subtract", data, w.write("mean", data, axis=axis, keepdims=True))
    result = w.write("mean", w.write("square", centred), axis=axis, keepdims=keepdims)
    if not unbiased:
        return result
    count = math.prod(w.sizes_of(data)[place] for place in axis)
    return w.write("multiply", result, count / (count - 1) if count > 1 else math.nan)


def _index(name: str) -> Lower:
    """The index among the elements of all reduced axes, in row-major order."""

    def write(w: OnnxLowering, data: Any, axis: tuple[int, ...], keepdims: bool, exclude: bool) -> Any:
        if len(axis) == 1:
            return w.call(name, data, axis=axis[0], keepdims=int(keepdims))
        return index_of_several(w, name.lower(), data, axis)

    return write


def _read_reduction(op: str, before: str = "", after: str = "") -> OnnxLift:
    """The reader of a reduction of what an operator makes of the data, of which another one makes the result."""

    def read(r: OnnxCall) -> Canon:
        rank = r.type().ndim
        axes = axes_of(r.ints("axes", 1) or (), rank)
        if not axes:
            unread_unless(not r.attr("noop_with_empty_axes", 0))
            axes = tuple(range(rank))
        data = Canon(before, (r.x,)) if before else r.x
        found = Canon(op, (data,), {"axis": axes, "keepdims": bool(r.attr("keepdims", 1))})
        if op in ("sum", "prod") and not before and r.type().dtype == "int32":
            # The canonical ones of integers are int64.
            return Canon("cast", (found,), {"dtype": "int32"})
        return Canon(after, (found,)) if after else found

    return read


def _cumsum(w: OnnxLowering, data: Any, axis: int | None, dtype: str, exclusive: bool) -> Any:
    data = w.cast(data, w.dtype)
    if axis is None:
        data, axis = w.reshape(data, w.shape), 0
    flags: dict[str, Any] = {"exclusive": 1} if exclusive else {}
    return w.call("CumSum", data, w.cast(axis, "int64"), **flags)


def _read_cumsum(r: OnnxCall) -> Canon:
    unread_unless(not r.attr("reverse", 0))
    axis = int(r.array(1).reshape(()))
    dtype = r.type().dtype
    attrs = {"axis": axis, "exclusive": bool(r.attr("exclusive", 0))}
    return Canon("cumsum", (r.x,), attrs if "float" in dtype or dtype == "int64" else {**attrs, "dtype": dtype})


ROWS: Final = (
    *(row(op, name, _reduction(name), _read_reduction(op), also=("cast",), inner=(op,))
      for op, name in _NATIVE.items()),
    row("", "ReduceSumSquare", read=_read_reduction("sum", before="square"), also=("sum",), inner=("square",)),
    row("", "ReduceL1", read=_read_reduction("sum", before="abs"), also=("sum",), inner=("abs",)),
    row("", "ReduceL2", read=_read_reduction("sum", before="square", after="sqrt"), also=("sqrt",),
        inner=("sum", "square")),
    row("all", "", _all_any("min")),
    row("any", "", _all_any("max")),
    row("variance", "", _spread),
    *(row(name.lower(), name, _index(name), same(name.lower(), {"axis": 0, "keepdims": True},
          {"select_last_index": 0}, axis="axis", keepdims="keepdims")) for name in ("ArgMax", "ArgMin")),
    row("cumsum", "CumSum", _cumsum, _read_cumsum),
)  # fmt: skip

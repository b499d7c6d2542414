"""Spellings of the operators that rearrange, join, take apart and select the elements of tensors."""

from __future__ import annotations

import math
from itertools import accumulate, pairwise
from typing import Any, Final

from gsl.front.onnx.spellings.reading import OnnxCall, axes_of, is_float, plain_number, same, unread_unless
from gsl.front.onnx.spellings.writing import OnnxLowering, row
from gsl.front.onnx.types import DTYPES
from gsl.front.tree import Canon, LiteralOperand
from gsl.graph import GETITEM, Dim, SymDim, TensorType, TupleType
from gsl.spec.normalise import is_number

END: Final = 2**63 - 1
"""The end of an axis, in a slice."""

# ---------------------------------------------------------------- joining and splitting


def _read_concat(r: OnnxCall) -> Canon:
    rows = [row for value in r.inputs if (row := r.inner(value)) is not None]
    axis = r.attr("axis") % r.type().ndim
    if len(rows) == len(r.inputs):
        calls = [OnnxCall(row, r.scope) for row in rows]
        if all(axes_of(call.ints("axes", 1) or (), r.type().ndim) == (axis,) for call in calls):
            r.through.extend(rows)
            return Canon("stack", (Canon("tuple", tuple([call.x for call in calls])),), {"axis": axis})
    return Canon("concatenate", (Canon("tuple", r.inputs),), {"axis": axis})


def _split(w: OnnxLowering, data: Any, indices_or_sections: Any, axis: int) -> Any:
    assert isinstance(w.result, TupleType)
    if isinstance(indices_or_sections, int):
        count = {"num_outputs": indices_or_sections} if w.opset >= 18 else {}
        return w.calls("Split", data, types=w.result.fields, axis=axis, **count)
    sizes = [after - before for before, after in pairwise((0, *indices_or_sections, w.shape_of(data)[axis]))]
    return w.calls("Split", data, w.dims(sizes), types=w.result.fields, axis=axis)


def read_split(r: OnnxCall) -> Canon:
    axis, parts = r.attr("axis", 0) % r.type().ndim, len(r.node.outputs)
    if r.has(1):
        unread_unless(len(r.dims(1)) == parts)
        return Canon("split", (r.x,), {"indices_or_sections": tuple(accumulate(r.dims(1)[:-1])), "axis": axis})
    size = r.type().shape[axis]
    unread_unless(not isinstance(size, int) or size % parts == 0)
    return Canon("split", (r.x,), {"indices_or_sections": parts, "axis": axis})


def _topk(w: OnnxLowering, data: Any, k: int, axis: int, largest: bool, sorted: bool) -> Any:
    assert isinstance(w.result, TupleType)
    flags = {"largest": int(largest), "sorted": int(sorted)}
    return w.calls("TopK", data, w.ints([k]), types=w.result.fields, axis=axis, **flags)


def read_topk(r: OnnxCall) -> Canon:
    (k,) = r.array(1).reshape(-1)
    flags = {name: bool(r.attr(name, 1)) for name in ("largest", "sorted")}
    return Canon("topk", (r.x,), {"k": int(k), "axis": r.attr("axis", -1), **flags})


# ---------------------------------------------------------------- shapes


def _read_reshape(r: OnnxCall) -> Canon:
    codes, shape = r.dims(1), r.type().shape
    if not r.attr("allowzero", 0):
        codes = tuple([shape[place] if code == 0 else code for place, code in enumerate(codes)])
    unread_unless(0 not in codes or 0 in shape)
    return Canon("reshape", (r.x,), {"newshape": codes})


def _read_flatten(r: OnnxCall) -> Canon:
    shape = r.type().shape
    axis = r.attr("axis", 1)
    axis = axis + len(shape) if axis < 0 else axis
    unread_unless(0 not in shape)
    return Canon("reshape", (r.x,), {"newshape": (math.prod(shape[:axis]), math.prod(shape[axis:]))})


def _read_unsqueeze(r: OnnxCall) -> Canon:
    given = r.ints("axes", 1) or ()
    axes = axes_of(given, r.type().ndim + len(given))
    unread_unless(bool(axes) and len(set(axes)) == len(axes))
    if axes == tuple(range(axes[0], axes[0] + len(axes))):
        return Canon("expand_dims", (r.x,), {"axis": axes[0], "num_newaxis": len(axes)})
    shape = list(r.type().shape)
    for axis in axes:
        shape.insert(axis, 1)
    return Canon("reshape", (r.x,), {"newshape": tuple(shape)})


def _squeeze(w: OnnxLowering, data: Any, axis: tuple[int, ...]) -> Any:
    if any(w.shape_of(data)[place] != 1 for place in axis):
        raise ValueError("ONNX squeezes only axes whose size is 1, which has to be known")
    return w.call("Squeeze", data, w.ints(axis)) if axis else w.call("Identity", data)


def _read_squeeze(r: OnnxCall) -> Canon:
    # An axis of which it is not known that its size is 1 stays in torch.
    axes = r.ints("axes", 1)
    sizes = r.sizes() if axes is None else [r.type().shape[axis] for axis in axes]
    unread_unless(axes is None or set(sizes) <= {1})
    return Canon("squeeze", (r.x,), {"axis": axes})


def _read_expand(r: OnnxCall) -> Canon:
    wanted, own = r.dims(1), r.type().shape
    rank = max(len(wanted), len(own))
    wanted, own = (1,) * (rank - len(wanted)) + wanted, (1,) * (rank - len(own)) + own
    # Where a size of 1 is asked for, the operand's own size stays.
    return Canon("broadcast_to", (r.x,), {"shape": tuple([o if w == 1 else w for w, o in zip(wanted, own)])})


def _tile(w: OnnxLowering, data: Any, reps: tuple[int, ...]) -> Any:
    rank = w.rank_of(data)
    if len(reps) > rank:
        data = w.reshape(data, (1,) * (len(reps) - rank) + w.shape_of(data))
    return w.call("Tile", data, w.ints(reps))


def _repeat(w: OnnxLowering, data: Any, repeats: int, axis: int | None) -> Any:
    if axis is None:
        data, axis = w.reshape(data, (math.prod(w.shape_of(data)),)), 0
    before, after = w.shape_of(data)[: axis + 1], w.shape_of(data)[axis + 1 :]
    column = w.reshape(data, (*before, 1, *after))
    return w.reshape(w.write("broadcast_to", column, shape=(*before, repeats, *after)), w.shape)


def _read_depth_to_space(r: OnnxCall) -> Canon:
    """Blocks of channels as pixels: the axes apart, in another order, together."""
    batch, channels, height, width = r.sizes()
    block = r.attr("blocksize")
    depth = channels // (block * block)
    column_first = r.attr("mode", "DCR") == "CRD"
    parts = (depth, block, block) if column_first else (block, block, depth)
    order = (0, 1, 4, 2, 5, 3) if column_first else (0, 3, 4, 1, 5, 2)
    apart = Canon("reshape", (r.x,), {"newshape": (batch, *parts, height, width)})
    moved = Canon("transpose", (apart,), {"axes": order})
    return Canon("reshape", (moved,), {"newshape": (batch, depth, height * block, width * block)})


# ---------------------------------------------------------------- padding

_MODES: Final = ("constant", "edge", "reflect")


def _pad(w: OnnxLowering, data: Any, pad_width: Any, pad_value: Any, pad_mode: str) -> Any:
    before, after = [low for low, _ in pad_width], [high for _, high in pad_width]
    if pad_mode != "constant" and min(*before, *after, 0) < 0:
        raise ValueError(f"what ONNX makes of negative widths with the mode {pad_mode!r} is not certain")
    value = () if pad_mode != "constant" or pad_value == 0 else (w.cast(pad_value, w.dtype),)
    mode: dict[str, Any] = {} if pad_mode == "constant" else {"mode": pad_mode}
    return w.call("Pad", data, w.ints([*before, *after]), *value, **mode)


def _read_pad(r: OnnxCall) -> Canon:
    mode, rank = r.attr("mode", "constant"), r.type().ndim
    unread_unless(mode in _MODES)
    flat = r.ints("pads", 1) or ()
    axes = r.ints("axes", 3)
    places = range(rank) if axes is None else [axis % rank for axis in axes]
    unread_unless(len(flat) == 2 * len(places) and len(set(places)) == len(places))
    widths = [(0, 0)] * rank
    for place, pair in zip(places, zip(flat[: len(places)], flat[len(places) :])):
        widths[place] = pair
    unread_unless(mode == "constant" or min(flat, default=0) >= 0)
    attrs: dict[str, Any] = {"pad_width": tuple(widths), "pad_mode": mode}
    if mode == "constant":
        value = 0 if not r.has(2) else plain_number(r.array(2).reshape(()))
        unread_unless(value is not None)
        attrs["pad_value"] = float(value) if is_float(r.type().dtype) else value
    return Canon("nn.pad", (r.x,), attrs)


# ---------------------------------------------------------------- slices


def _strided_slice(w: OnnxLowering, data: Any, begin: Any, end: Any, strides: Any, axes: Any) -> Any:
    if not axes:
        return w.call("Identity", data)
    ends = [END if last == w.shape_of(data)[axis] else last for last, axis in zip(end, axes)]
    lows = [-END - 1 if isinstance(last, int) and last < 0 and step < 0 else last for last, step in zip(ends, strides)]
    places = [w.dims(begin), w.dims(lows), w.ints(axes)]
    return w.call("Slice", data, *places, *(() if set(strides) == {1} else (w.ints(strides),)))


def _read_slice(r: OnnxCall) -> Canon:
    begin, end = r.dims(1), r.dims(2)
    axes = r.ints("axes", 3) or tuple(range(len(begin)))
    strides = r.ints("steps", 4) or (1,) * len(begin)
    shape = r.type().shape
    if all(step == -1 and isinstance(high, int) and high < -(2**31) and _is_last(low, shape[axis])
           for axis, low, high, step in zip(axes, begin, end, strides)):  # fmt: skip
        return Canon("reverse", (r.x,), {"axis": axes})
    # A place that is beyond an axis is its end: of symbolic ones, that is known for the ends of the axis only.
    for axis, low, high, step in zip(axes, begin, end, strides):
        size = shape[axis]
        known = isinstance(size, int) and isinstance(low, int) and isinstance(high, int)
        unread_unless(known or (step > 0 and low in (0, size) and (high == size or _is_far(high))))
        # Of what is beyond an axis when it is walked backwards, ONNX and its runtimes say other things.
        unread_unless(step > 0 or (low >= -size and not _is_far(high)))  # type: ignore[operator]
    ends = tuple([None if step > 0 and _is_far(place) else place for place, step in zip(end, strides)])
    return Canon("strided_slice", (r.x,), {"begin": begin, "end": ends, "strides": strides, "axes": axes})


def _is_far(place: Dim) -> bool:
    """True for a place that stands for the end of any axis."""
    return isinstance(place, int) and place >= 2**31 - 1


def _is_last(place: Dim, size: Dim) -> bool:
    """True for the last place of an axis, or one beyond it."""
    return place == -1 or _is_far(place) or (isinstance(place, int) and isinstance(size, int) and place >= size - 1)


def _reverse(w: OnnxLowering, data: Any, axis: tuple[int, ...]) -> Any:
    last, first = (w.ints([place] * len(axis)) for place in (-1, -END - 1))
    return w.call("Slice", data, last, first, w.ints(axis), last) if axis else data


# ---------------------------------------------------------------- lookups


def _take(w: OnnxLowering, data: Any, indices: Any, axis: int | None) -> Any:
    if axis is None:
        data, axis = w.reshape(data, (math.prod(w.shape_of(data)),)), 0
    is_index = not is_number(indices) and w.dtype_of(indices) == "int32"
    return w.call("Gather", data, indices if is_index else w.cast(indices, "int64"), axis=axis)


def _read_gather(r: OnnxCall) -> Canon:
    place = r.operand(1)
    return Canon("take", (r.x, place), {"axis": r.attr("axis", 0) % max(r.type().ndim, 1)})


def _gather(w: OnnxLowering, data: Any, indices: Any, axis: int) -> Any:
    own, shape = w.shape_of(indices), w.shape_of(data)
    if any(a != b for place, (a, b) in enumerate(zip(own, shape)) if place != axis):
        ends = tuple([b if place == axis else a for place, (a, b) in enumerate(zip(own, shape))])
        data = w.write("strided_slice", data, begin=(0,) * len(own), end=ends)
    return w.call("GatherElements", data, indices, axis=axis)


def _scatter(w: OnnxLowering, data: Any, indices: Any, updates: Any, axis: int) -> Any:
    own = w.shape_of(indices)
    if w.shape_of(updates) != own:
        updates = w.write("strided_slice", updates, begin=(0,) * len(own), end=own)
    return w.call("ScatterElements", data, indices, updates, axis=axis)


def _trilu(w: OnnxLowering, data: Any, k: int, upper: bool) -> Any:
    operands = () if k == 0 else (w.cast(k, "int64"),)
    return w.call("Trilu", data, *operands, upper=int(upper))


def _read_trilu(r: OnnxCall) -> Canon:
    k = 0 if not r.has(1) else int(r.array(1).reshape(()))
    return Canon("trilu", (r.x,), {"k": k, "upper": bool(r.attr("upper", 1))})


# ---------------------------------------------------------------- tensors of nothing but attributes


def _full(w: OnnxLowering, value: Any, shape: tuple[Dim, ...], dtype: str) -> Any:
    if is_number(value):
        return w.full(value, shape, w.dtype)
    return w.call("Expand", w.reshape(w.cast(value, w.dtype), ()), w.dims(shape))


def _full_like(w: OnnxLowering, x: Any, value: Any) -> Any:
    fill = w.full(value, (1,), w.dtype) if is_number(value) else w.reshape(w.cast(value, w.dtype), ())
    return w.call("Expand", fill, w.call("Shape", x, type=TensorType((w.rank_of(x),), "int64")))


def _read_constant_of_shape(r: OnnxCall) -> Canon:
    tensor = r.attr("value")
    value = 0.0 if tensor is None else plain_number(tensor.numpy().reshape(()))
    unread_unless(value is not None)
    dtype = "float32" if tensor is None else DTYPES[tensor.dtype]
    shape = r.dims(0)
    if type(value) is not bool and value in (0, 1):
        return Canon("ones" if value else "zeros", (), {"shape": shape, "dtype": dtype})
    own = {bool: "bool", int: "int64", float: "float32"}[type(value)]
    return Canon("full", (LiteralOperand(value),), {"shape": shape, "dtype": "" if own == dtype else dtype})


def _arange(w: OnnxLowering, start: Any, stop: Any, step: Any, dtype: str) -> Any:
    if any(isinstance(bound, SymDim) for bound in (start, stop, step)):
        bounds = [w.reshape(w.size(bound), ()) for bound in (start, stop, step)]
        made = w.call("Range", *bounds, type=TensorType(w.shape, "int64"))
        return w.cast(made, w.dtype)
    if w.dtype in ("int64", "int32", "float32", "float64", "int16"):
        whole = all(float(bound).is_integer() for bound in (start, stop, step))
        if is_float(w.dtype) or whole:
            return w.call("Range", *[w.cast(bound, w.dtype) for bound in (start, stop, step)])
    raise ValueError(f"ONNX doesn't count from {start} to {stop} by {step} in {w.dtype}")


def _read_range(r: OnnxCall) -> Canon:
    start, stop, step = (int(bound) if float(bound).is_integer() else bound for bound in map(r.number, range(3)))
    return Canon("arange", (), {"start": start, "stop": stop, "step": step, "dtype": r.type().dtype})


ROWS: Final = (
    row("concatenate", "Concat", lambda w, data, axis: w.call("Concat", *w.each(data), axis=axis), _read_concat,
        also=("stack",), inner=("tuple",)),
    row("stack", "", lambda w, data, axis: w.call(
        "Concat", *[w.write("expand_dims", x, axis=axis) for x in w.each(data)], axis=axis)),
    row("split", "Split", _split, lambda r: Canon(GETITEM, (read_split(r),), {"index": 0}), also=(GETITEM,),
        inner=("split",)),
    row("topk", "TopK", _topk, lambda r: Canon(GETITEM, (read_topk(r),), {"index": 0}), also=(GETITEM,),
        inner=("topk",)),
    row("reshape", "Reshape", lambda w, data, newshape: w.shaped(data, w.shape), _read_reshape),
    row("reshape_like", "", lambda w, data, like, **attrs: w.shaped(data, w.shape)),
    row("", "Flatten", read=_read_flatten, also=("reshape",)),
    row("transpose", "Transpose", lambda w, data, axes: w.turn(data, axes), same("transpose", axes="perm")),
    row("expand_dims", "Unsqueeze", lambda w, data, axis, num_newaxis: w.call(
        "Unsqueeze", data, w.ints(range(axis, axis + num_newaxis))), _read_unsqueeze, also=("reshape",)),
    row("squeeze", "Squeeze", _squeeze, _read_squeeze),
    row("broadcast_to", "Expand",
        lambda w, data, shape: w.call("Expand", data, w.dims(w.shape, of=[data])), _read_expand),
    row("tile", "Tile", _tile, lambda r: Canon("tile", (r.x,), {"reps": tuple(map(int, r.array(1)))})),
    row("repeat", "", _repeat),
    row("", "DepthToSpace", read=_read_depth_to_space, also=("reshape",), inner=("reshape", "transpose")),
    row("nn.pad", "Pad", _pad, _read_pad),
    row("strided_slice", "Slice", _strided_slice, _read_slice, also=("reverse",)),
    row("reverse", "", _reverse),
    row("take", "Gather", _take, _read_gather),
    row("gather", "GatherElements", _gather, same("gather", {"axis": 0}, axis="axis")),
    row("scatter", "ScatterElements", _scatter, same("scatter", {"axis": 0}, {"reduction": "none"}, axis="axis")),
    row("trilu", "Trilu", _trilu, _read_trilu),
    row("zeros", "", lambda w, shape, dtype: w.full(0, shape, dtype)),
    row("ones", "", lambda w, shape, dtype: w.full(1, shape, dtype)),
    row("full", "ConstantOfShape", _full, _read_constant_of_shape, also=("zeros", "ones")),
    row("full_like", "", _full_like),
    row("zeros_like", "", lambda w, x: _full_like(w, x, 0)),
    row("ones_like", "", lambda w, x: _full_like(w, x, 1)),
    row("arange", "Range", _arange, _read_range),
)  # fmt: skip

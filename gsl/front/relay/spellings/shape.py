"""Operators that make, rearrange, join, take apart and select the elements of tensors."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import tvm
from tvm import relay

from gsl.front.core.infer import dtype_of_number
from gsl.front.core.lower import known
from gsl.front.relay.spellings.linear import padded, read_layer
from gsl.front.relay.spellings.table import RelayCall, RelayLowering, const, literal
from gsl.front.tree import Canon, LiteralOperand
from gsl.front.tvm.spellings import TvmRow, is_float, read_scatter, row, same, topk_row, unread_unless
from gsl.graph import Dim, SymDim, TensorType, TupleType
from gsl.spec.normalise import is_number

# ---------------------------------------------------------------- several tensors


def _tensors(w: RelayLowering, op: str, data: Any) -> Any:
    """The tuple operand: a call that returns a tuple as it is, otherwise its tensors in one dtype."""
    if isinstance(data, (tuple, list)):
        return w.each(data)
    found = w.target.type_of(data)
    fields = found.fields if isinstance(found, TupleType) else ()
    dtypes = [part.dtype for part in fields if isinstance(part, TensorType)]
    if len(set(dtypes)) > 1:
        raise ValueError(f"in Relay, the tensors of a tuple are of one dtype, found {', '.join(dtypes)}")
    return data


def _join(op: str) -> TvmRow:
    def write(w: RelayLowering, data: Any, axis: int) -> Any:
        data, native = _tensors(w, op, data), tvm.ir.Op.get(op)
        if not isinstance(data, relay.Tuple):
            return w.call(op, data, axis)
        # TVM's function would make a tuple of its own.
        made = relay.Call(native, [data], tvm.ir.make_node(native.attrs_type_key, axis=axis))
        return w.target.note(made, w.result)

    return row(op, write=write)


def _split(w: RelayLowering, data: Any, indices_or_sections: Any, axis: int) -> Any:
    """In equal sections, where that is what the places of the cuts say."""
    cuts, size = indices_or_sections, w.shape_of(data)[axis]
    if isinstance(cuts, tuple) and isinstance(size, int):
        parts = len(cuts) + 1
        if size % parts == 0 and cuts == tuple([size // parts * i for i in range(1, parts)]):
            cuts = parts
    return w.call("split", data, cuts, axis)


# ---------------------------------------------------------------- shapes and axes


def _read_reshape(r: RelayCall) -> Canon:
    """The reading of a reshape. Where all sizes of the result are known, they are taken instead of the codes."""
    if (layer := read_layer(r)) is not None:
        return layer
    shape = r.result.shape
    if not all(isinstance(size, int) for size in shape):
        unread_unless(r.has("newshape") and not r["allowzero"])
        shape = r["newshape"]
    return Canon("reshape", (r.x,), {"newshape": shape})


def _read_flatten(r: RelayCall) -> Canon:
    return Canon("reshape", (r.x,), {"newshape": (0, -1)})


def _read_reshape_like(r: RelayCall) -> Canon:
    return read_layer(r) or same("reshape_like")(r)


def _reshape(w: RelayLowering, data: Any, newshape: tuple[Dim, ...]) -> Any:
    codes = _codes(w.shape_of(data), newshape) if sum(isinstance(size, SymDim) for size in newshape) > 1 else None
    return w.reshaped(data, newshape) if codes is None else w.call("reshape", data, codes)


def _codes(before: Sequence[Dim], after: Sequence[Dim]) -> list[int] | None:
    """A shape with unknown sizes by Relay's codes, which copy (0), join (-3) and split (-4) the axes of the operand."""
    codes: list[int] = []
    old, new = list(before), list(after)
    while old and new:
        if old[0] == new[0]:
            codes.append(0)
            del old[0], new[0]
        elif len(old) > 1 and old[0] * old[1] == new[0]:
            codes.append(-3)
            del old[:2], new[0]
        elif len(new) > 1 and new[0] * new[1] == old[0]:
            codes += [-4, *(-1 if isinstance(size, SymDim) else size for size in new[:2])]
            del old[0], new[:2]
        else:
            return None
    return None if old or new or codes.count(-1) > 1 else codes


def _transpose(w: RelayLowering, data: Any, axes: tuple[int, ...]) -> Any:
    return w.call("transpose", data, None if axes == tuple(reversed(range(len(axes)))) else axes)


def _squeeze(w: RelayLowering, data: Any, axis: tuple[int, ...]) -> Any:
    known([w.shape_of(data)[place] for place in axis])
    return w.call("squeeze", data, list(axis)) if axis else w.call("copy", data)


def _reverse(w: RelayLowering, data: Any, axis: tuple[int, ...]) -> Any:
    if not axis:
        return w.call("copy", data)
    for place in axis:
        data = w.call("reverse", data, place)
    return data


# ---------------------------------------------------------------- copies


def _read_broadcast(r: RelayCall) -> Canon:
    return Canon("broadcast_to", (r.x,), {"shape": r.result.shape})


def _repeat(w: RelayLowering, data: Any, repeats: int, axis: int | None) -> Any:
    if axis is None:
        data, axis = w.reshape(data, (math.prod(w.sizes_of(data)),)), 0
    return w.call("repeat", data, repeats, axis)


# ---------------------------------------------------------------- padding


def _read_pad(r: RelayCall) -> Canon:
    value, mode, dtype = r.number(1), r["pad_mode"], r.type().dtype
    attrs: dict[str, Any] = {"pad_width": r["pad_width"], "pad_mode": mode}
    if mode == "constant":
        kind = float if is_float(dtype) else bool if dtype == "bool" else int
        unread_unless(kind is float or kind(value) == value)
        attrs["pad_value"] = kind(value)
    return Canon("nn.pad", (r.x,), attrs)


def _read_mirror_pad(r: RelayCall) -> Canon:
    unread_unless(r["mode"] == "REFLECT")
    return Canon("nn.pad", (r.x,), {"pad_width": r["pad_width"], "pad_mode": "reflect"})


def _pad(w: RelayLowering, data: Any, pad_width: Any, pad_value: Any, pad_mode: str) -> Any:
    widths = [width for pair in pad_width for width in pair]
    if not any(widths):
        return w.call("copy", data)
    if pad_mode == "constant":
        return padded(w, data, list(pad_width), pad_value)
    if min(widths) < 0:
        raise ValueError(f"nn.pad: pad_width: with the mode {pad_mode!r}, Relay can't crop, found {pad_width}")
    return w.call("nn.pad", data, pad_width, pad_mode=pad_mode)


# ---------------------------------------------------------------- slices


def _read_slice(r: RelayCall) -> Canon:
    """A missing stride is 1. In the mode "size", ``end`` holds sizes, and strides are not looked at."""
    begin, end, strides = r["begin"], r["end"], r["strides"]
    unread_unless(begin is not None and end is not None and len(begin) == len(end))
    axes = r["axes"] if r["axes"] is not None else tuple(range(len(begin)))
    unread_unless(len(axes) == len(begin))
    if r["slice_mode"] == "size":
        unread_unless(all(first >= 0 for first in begin))
        end = [r.size(axis) if size < 0 else first + size for axis, first, size in zip(axes, begin, end)]
        steps = (1,) * len(begin)
    else:
        unread_unless(r["slice_mode"] == "end")
        steps = (*(strides or ()), *(1,) * len(begin))[: len(begin)]
    return Canon("strided_slice", (r.x,), {"begin": begin, "end": tuple(end), "strides": steps, "axes": axes})


def _read_slice_like(r: RelayCall) -> Canon:
    axes = r["axes"] or tuple(range(r.type(1).ndim))
    ends = tuple([r.size(axis, 1) for axis in axes])
    return Canon("strided_slice", (r.x,), {"begin": (0,) * len(axes), "end": ends, "strides": None, "axes": axes})


def _strided_slice(w: RelayLowering, data: Any, begin: Any, end: Any, strides: Any, axes: Any) -> Any:
    """Relay takes as many strides as axes, and the first axes if none are named."""
    if not begin:
        return w.call("copy", data)
    options: dict[str, Any] = {} if set(strides) == {1} else {"strides": strides}
    if axes != tuple(range(len(axes))):
        options = {"strides": strides, "axes": axes}
    return w.call("strided_slice", data, begin, end, **options)


# ---------------------------------------------------------------- lookups


def _read_take(r: RelayCall) -> Canon:
    """The reading of ``take``. Relay clips places beyond the axis, or takes them modulo its size. Torch counts a
    negative place from the end, and accepts no other place outside the axis."""
    unread_unless(r["batch_dims"] == 0 and r.type(1).dtype in ("int32", "int64") and r["mode"] in _MODES)
    axis, indices = r["axis"], r.operands[1]
    size = r.size(axis) if axis is not None else math.prod([r.size(a) for a in range(r.type().ndim)])
    if _are_within(indices, size):
        indices = indices if indices.data.shape else LiteralOperand(int(indices.data.numpy()))
    elif r["mode"] == "clip":
        indices = Canon("clip", (indices,), {"a_min": 0, "a_max": size - 1})
    elif r["mode"] == "wrap":
        indices = Canon("floor_mod", (indices, LiteralOperand(size)))
    return Canon("take", (r.x, indices), {"axis": axis})


def _are_within(operand: Any, size: int) -> bool:
    """True if an operand is a constant of places that are at least 0 and less than the size."""
    places = operand.data.numpy() if isinstance(operand, relay.Constant) else np.array([])
    return bool(places.size and places.min() >= 0 and places.max() < size)


_MODES: Final = ("clip", "wrap", "fast")


def _take(w: RelayLowering, data: Any, indices: Any, axis: int | None) -> Any:
    size = math.prod(w.sizes_of(data)) if axis is None else known([w.shape_of(data)[axis]])[0]
    if is_number(indices):
        return w.call("take", data, w.tensor(indices % size, "int32"), axis)
    if _are_within(indices, size):
        return w.call("take", data, indices, axis)
    if w.dtype_of(indices) == "bool":
        raise ValueError("Relay takes no bools for places")
    return w.call("take", data, indices, axis, mode="wrap")


def _first(w: RelayLowering, data: Any, wanted: Sequence[int]) -> Any:
    """The first elements of each axis of a tensor, as many as wanted."""
    sizes = w.sizes_of(data)
    axes = tuple([axis for axis, (size, most) in enumerate(zip(sizes, wanted)) if size != most])
    if not axes:
        return data
    return w.write("strided_slice", data, begin=(0,) * len(axes), end=tuple([wanted[axis] for axis in axes]), axes=axes)


def _gather(w: RelayLowering, data: Any, indices: Any, axis: int) -> Any:
    """Relay has as many places as elements, except along the axis."""
    sizes = zip(w.sizes_of(data), w.sizes_of(indices))
    data = _first(w, data, [size if place == axis else count for place, (size, count) in enumerate(sizes)])
    return w.call("gather", data, axis, indices)


def _scatter(w: RelayLowering, data: Any, indices: Any, updates: Any, axis: int) -> Any:
    """Relay has as many updates as places."""
    return w.call("scatter_elements", data, indices, _first(w, updates, w.sizes_of(indices)), axis)


# ---------------------------------------------------------------- diagonals


def _read_set_diag(r: RelayCall) -> Canon:
    words = ["RIGHT" if r[f"{part}_diag_right_align"] else "LEFT" for part in ("super", "sub")]
    return Canon("matrix_set_diag", r.operands, {"k": (r["k1"], r["k2"]), "align": "_".join(words)})


def _set_diag(w: RelayLowering, data: Any, diagonal: Any, k: tuple[int, int], align: str) -> Any:
    return w.call("matrix_set_diag", data, diagonal, k[0] if k[0] == k[1] else k, align=align)


def _read_trilu(r: RelayCall) -> Canon:
    k = r.number(1)
    unread_unless(isinstance(k, int))
    return Canon("trilu", (r.x,), {"k": k, "upper": bool(r["upper"])})


def _trilu(w: RelayLowering, data: Any, k: int, upper: bool) -> Any:
    return w.call("trilu", data, w.tensor(k, "int32"), upper)


# ---------------------------------------------------------------- tensors of nothing but attributes, or like others


def _filled(op: str) -> TvmRow:
    def read(r: RelayCall) -> Canon:
        return Canon(op, (), {"shape": r.result.shape, "dtype": r.result.dtype})

    return row(op, write=lambda w, shape, dtype: w.call(op, shape, dtype), read=read)


def _read_full(r: RelayCall) -> Canon:
    value, dtype = literal(r.x), r.result.dtype
    unread_unless(r.type().dtype == dtype)
    # A number alone is of torch's default dtype.
    own = dtype_of_number(value.value) if isinstance(value, LiteralOperand) else dtype
    return Canon("full", (value,), {"shape": r.result.shape, "dtype": "" if own == dtype else dtype})


def _read_full_like(r: RelayCall) -> Canon:
    unread_unless(r.type(0).dtype == r.type(1).dtype)
    return Canon("full_like", (r.x, literal(r.operands[1])))


def _fill(w: RelayLowering, value: Any) -> Any:
    """The number to fill with, as a tensor without axes."""
    if isinstance(value, float) and not is_float(w.dtype):
        value = bool(value) if w.dtype == "bool" else int(value)
    return w.cast(value, w.dtype) if is_number(value) else w.reshape(w.cast(value, w.dtype), ())


def _full(w: RelayLowering, value: Any, shape: tuple[Dim, ...], dtype: str) -> Any:
    return w.call("full", _fill(w, value), shape, w.dtype)


def _read_arange(r: RelayCall) -> Canon:
    bounds, dtype = [r.number(place) for place in range(3)], r.result.dtype
    whole = [float(bound).is_integer() for bound in bounds]
    unread_unless(is_float(dtype) or all(whole))
    start, stop, step = (int(bound) if is_whole else bound for bound, is_whole in zip(bounds, whole))
    return Canon("arange", (), {"start": start, "stop": stop, "step": step, "dtype": dtype})


def _arange(w: RelayLowering, start: Any, stop: Any, step: Any, dtype: str) -> Any:
    bounds = (start, stop, step)
    if "int" in dtype and not all(float(bound).is_integer() for bound in bounds):
        raise ValueError(f"arange: in Relay, integers count from and by integers, found {bounds}")
    return w.call("arange", *[const(bound, dtype) for bound in bounds], dtype)


ROWS: Final = (
    *map(_filled, ("zeros", "ones")),
    row("full", write=_full, read=_read_full),
    *map(row, ("zeros_like", "ones_like")),
    row("full_like", write=lambda w, data, value: w.call("full_like", data, _fill(w, value)), read=_read_full_like),
    row("arange", write=_arange, read=_read_arange),
    *map(_join, ("concatenate", "stack")),
    row("split", write=_split),
    TvmRow("reshape", _reshape, {"reshape": _read_reshape, "nn.batch_flatten": _read_flatten}),
    row("reshape_like", read=_read_reshape_like),
    row("transpose", write=_transpose),
    row("expand_dims"),
    row("squeeze", write=_squeeze),
    row("reverse", write=_reverse, read=lambda r: same("reverse", given={"axis": (r["axis"],)})(r)),
    row("layout_transform"),
    TvmRow("broadcast_to", lambda w, data, shape: w.call("broadcast_to", data, shape),
           {"broadcast_to": _read_broadcast, "broadcast_to_like": _read_broadcast}),
    row("repeat", write=_repeat),
    row("tile"),
    TvmRow("nn.pad", _pad, {"nn.pad": _read_pad, "nn.mirror_pad": _read_mirror_pad}),
    TvmRow("strided_slice", _strided_slice, {"strided_slice": _read_slice, "slice_like": _read_slice_like}),
    row("take", write=_take, read=_read_take),
    row("gather", write=_gather),
    row("scatter", "scatter_elements", write=_scatter, read=read_scatter),
    topk_row("is_ascend", is_largest=False),
    row("matrix_set_diag", write=_set_diag, read=_read_set_diag),
    row("trilu", write=_trilu, read=_read_trilu),
)  # fmt: skip

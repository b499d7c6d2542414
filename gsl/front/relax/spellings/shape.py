"""Spellings of the operators that make, rearrange, join, take apart and select the elements of tensors."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any, Final

from tvm import ir, relax, tirx

from gsl.front.core.lower import Lower
from gsl.front.relax.spellings.table import RelaxCall, RelaxLowering, number
from gsl.front.tree import Canon, LiteralOperand
from gsl.front.tvm.spellings import TvmLift, TvmRow, is_float, read_scatter, row, topk_row, unread_unless
from gsl.graph import Dim, SymDim
from gsl.spec import TABLE
from gsl.spec.meaning import evaluate
from gsl.spec.normalise import is_number

# ---------------------------------------------------------------- joining and splitting


def _join(op: str, name: str) -> TvmRow:
    def read(r: RelaxCall) -> Canon:
        unread_unless(r["axis"] is not None)
        return Canon(op, (r.tensors(),), {"axis": r["axis"]})

    return row(op, name, write=lambda w, data, axis: w.call(name, w.each(data), axis), read=read)


def _split(w: RelaxLowering, data: Any, indices_or_sections: Any, axis: int) -> Any:
    """Relax cuts at numbers only: where a cut is a symbolic size, the parts are slices."""
    if isinstance(indices_or_sections, int):
        return w.call("split", data, indices_or_sections, axis)
    if all(isinstance(cut, int) for cut in indices_or_sections):
        return w.call("split", data, list(indices_or_sections), axis)
    cuts = [0, *w.prims(indices_or_sections), w.target.prim(w.shape_of(data)[axis])]
    return relax.Tuple([w.call("strided_slice", data, [axis], [low], [high]) for low, high in pairwise(cuts)])


def _read_split(r: RelaxCall) -> Canon:
    cuts = r["indices_or_sections"]
    places = cuts if isinstance(cuts, int) else tuple([r.scope.dim(cut) for cut in cuts])
    return Canon("split", (r.x,), {"indices_or_sections": places, "axis": r["axis"]})


# ---------------------------------------------------------------- shapes


def _reshape(w: RelaxLowering, data: Any, *like: Any, **attrs: Any) -> Any:
    """Whatever the attributes, the elements in the shape of the result."""
    return w.call("reshape", data, w.sizes(w.shape))


def _read_reshape(r: RelaxCall) -> Canon:
    # Relax resolves the codes 0 and -1 when it makes the call.
    return Canon("reshape", (r.x,), {"newshape": r.dims(1)})


def _read_flatten(r: RelaxCall) -> Canon:
    return Canon("reshape", (r.x,), {"newshape": r.result.shape})


def _expand_dims(w: RelaxLowering, data: Any, axis: int, num_newaxis: int) -> Any:
    return w.call("expand_dims", data, list(range(axis, axis + num_newaxis)))


def _read_expand_dims(r: RelaxCall) -> Canon:
    axes = sorted(axis % r.result.ndim for axis in r["axis"])
    unread_unless(bool(axes))
    if axes == list(range(axes[0], axes[0] + len(axes))):
        return Canon("expand_dims", (r.x,), {"axis": axes[0], "num_newaxis": len(axes)})
    return _read_flatten(r)


def _squeeze(w: RelaxLowering, data: Any, axis: tuple[int, ...]) -> Any:
    own = w.shape_of(data)
    if any(own[place] != 1 for place in axis):
        raise ValueError("Relax squeezes only axes whose size is known to be 1")
    return w.call("squeeze", data, list(axis)) if axis else data


def _reverse(w: RelaxLowering, data: Any, axis: tuple[int, ...]) -> Any:
    for place in axis:
        data = w.call("flip", data, place)
    return data


# ---------------------------------------------------------------- padding and layouts

_PAD_MODES: Final = {"constant": "constant", "edge": "replicate", "reflect": "reflect"}


def _pad(w: RelaxLowering, data: Any, pad_width: Any, pad_value: Any, pad_mode: str) -> Any:
    flat = [width for pair in pad_width for width in pair]
    if min(flat, default=0) < 0:
        begin = [max(-before, 0) for before, _ in pad_width]
        ends = [size - max(-after, 0) for size, (_, after) in zip(w.shape_of(data), pad_width, strict=True)]
        if pad_mode != "constant":
            raise ValueError(f"Relax doesn't crop when padding with {pad_mode!r}")
        data = w.write("strided_slice", data, begin=tuple(begin), end=tuple(ends))
        flat = [max(width, 0) for width in flat]
    return w.call("nn.pad", data, flat, _PAD_MODES[pad_mode], float(pad_value))


def _read_pad(r: RelaxCall) -> Canon:
    flat = r["pad_width"]
    modes = {theirs: own for own, theirs in _PAD_MODES.items()}
    unread_unless(r["pad_mode"] in modes and min(flat, default=0) >= 0)
    mode, value = modes[r["pad_mode"]], float(r["pad_value"])
    unread_unless(mode != "constant" or is_float(r.result.dtype) or value.is_integer())
    given = {"pad_value": value} if mode == "constant" else {}
    pairs = tuple(zip(flat[::2], flat[1::2], strict=True))
    return Canon("nn.pad", (r.x,), {"pad_width": pairs, "pad_mode": mode, **given})


# ---------------------------------------------------------------- slices


def _strided_slice(w: RelaxLowering, data: Any, begin: Any, end: Any, strides: Any, axes: Any) -> Any:
    if not axes:
        return data
    places = [relax.Tuple(list(map(relax.prim_value, w.prims(items)))) for items in (axes, begin, end, strides)]
    return w.call("strided_slice", data, *places)


def _read_strided_slice(r: RelaxCall) -> Canon:
    unread_unless(not r["assume_inbound"])
    names = ("axes", "begin", "end", "strides")[: len(r.operands) - 1]
    return Canon("strided_slice", (r.x,), {name: r.dims(place) for place, name in enumerate(names, 1)})


# ---------------------------------------------------------------- lookups


def _take(w: RelaxLowering, data: Any, indices: Any, axis: int | None) -> Any:
    if axis is None:
        data, axis = w.reshape(data, (math.prod(w.sizes_of(data)),)), 0
    if is_number(indices):
        indices = relax.const(indices + w.sizes_of(data)[axis] if indices < 0 else indices, "int64")
    return w.call("take", data, indices, axis)


def _read_take(r: RelaxCall) -> Canon:
    data, indices = r.operands
    # The other modes say what places outside of the axis stand for.
    unread_unless(r["mode"] == "fast" and "int" in r.type(1).dtype)
    place = r.produced(indices)
    if isinstance(place, ir.GenericConst) and not place.value.shape:
        indices = LiteralOperand(int(place.value.numpy()))
    return Canon("take", (data, indices), {"axis": r["axis"]})


def _scatter(w: RelaxLowering, data: Any, indices: Any, updates: Any, axis: int) -> Any:
    own = w.shape_of(indices)
    if w.shape_of(updates) != own:
        updates = w.write("strided_slice", updates, begin=(0,) * len(own), end=own)
    return w.call("scatter_elements", data, indices, updates, axis)


# ---------------------------------------------------------------- diagonals


def _trilu(w: RelaxLowering, data: Any, k: int, upper: bool) -> Any:
    return w.call("triu" if upper else "tril", data, k)


def _read_trilu(upper: bool) -> TvmLift:
    return lambda r: Canon("trilu", (r.x,), {"k": r.number(1), "upper": upper})


# ---------------------------------------------------------------- tensors of nothing but attributes, or like others


def _constant(op: str) -> TvmRow:
    def read(r: RelaxCall) -> Canon:
        return Canon(op, (), {"shape": r.dims(0), "dtype": r.result.dtype})

    return row(op, write=lambda w, shape, dtype: w.call(op, w.sizes(shape), dtype), read=read)


def _filled(w: RelaxLowering, value: Any, shape: Sequence[Dim]) -> Any:
    """A tensor filled with a number or a tensor of one element."""
    if is_number(value):
        return w.full(value, shape, w.dtype)
    scalar = w.reshape(w.cast(value, w.dtype), ())
    return w.call("broadcast_to", scalar, w.prims(shape))


def _full(w: RelaxLowering, value: Any, shape: Sequence[Dim], dtype: str) -> Any:
    if is_number(value) and math.isfinite(value):
        return w.call("full", w.sizes(shape), w.cast(value, w.dtype), dtype or None)
    return _filled(w, value, shape)


def _read_full(r: RelaxCall) -> Canon:
    return Canon("full", (r.operands[1],), {"shape": r.dims(0), "dtype": r["dtype"]})


def _like(op: str, write: Lower | None = None) -> TvmRow:
    """The row of an operator whose dtype is that of the operand, as the type of the reading tells."""
    count = len(TABLE[op].operands)
    return row(op, write=write, read=lambda r: Canon(op, r.operands[:count]))


def _arange(w: RelaxLowering, start: Any, stop: Any, step: Any, dtype: str) -> Any:
    bounds = [w.target.prim(bound) if isinstance(bound, SymDim) else bound for bound in (start, stop, step)]
    counts_floats = any(isinstance(bound, float) for bound in bounds)
    if isinstance(step, SymDim) or (counts_floats and not all(map(is_number, bounds))):
        raise ValueError(f"Relax doesn't count from {start} to {stop} by {step}")
    if is_number(step) and step < 0:
        # Relax miscounts those that go down.
        found = evaluate(TABLE["arange"], (), {"start": start, "stop": stop, "step": step, "dtype": dtype})
        return relax.const(found.tolist(), dtype)
    return w.call("arange", *bounds, dtype)


def _read_arange(r: RelaxCall) -> Canon:
    bounds = [number(arg) if isinstance(arg, (tirx.IntImm, tirx.FloatImm)) else r.scope.dim(arg) for arg in r.operands]
    # Of floats, integers are not counted: they are truncated at every step.
    unread_unless("float" in r["dtype"] or not any(isinstance(bound, float) for bound in bounds))
    return Canon("arange", (), {**dict(zip(("start", "stop", "step"), bounds, strict=True)), "dtype": r["dtype"]})


LOOKS_AT: Final[Mapping[str, frozenset[str]]] = {"relax.take": frozenset()}
"""A reading looks for an index that is written in the program."""


ROWS: Final = (
    *map(_constant, ("zeros", "ones")),
    row("full", write=_full, read=_read_full),
    *map(_like, ("zeros_like", "ones_like")),
    _like("full_like", lambda w, x, value: _filled(w, value, w.shape)),
    row("arange", write=_arange, read=_read_arange),
    _join("concatenate", "concat"),
    _join("stack", "stack"),
    row("split", write=_split, read=_read_split),
    TvmRow("reshape", _reshape, {
        "reshape": _read_reshape, "flatten": _read_flatten, "nn.batch_flatten": _read_flatten,
    }),
    TvmRow("reshape_like", _reshape),
    row("expand_dims", write=_expand_dims, read=_read_expand_dims),
    row("squeeze", write=_squeeze),
    row("reverse", "flip", write=_reverse),
    row("broadcast_to", write=lambda w, data, shape: w.call("broadcast_to", data, w.prims(w.shape)),
        read=lambda r: Canon("broadcast_to", (r.x,), {"shape": r.dims(1)})),
    row("repeat"),
    row("tile", reps="repeats"),
    row("nn.pad", write=_pad, read=_read_pad),
    row("strided_slice", write=_strided_slice, read=_read_strided_slice),
    row("take", write=_take, read=_read_take),
    row("gather", "gather_elements"),
    row("scatter", "scatter_elements", write=_scatter, read=read_scatter),
    topk_row("largest", is_largest=True),
    TvmRow("trilu", _trilu, {"tril": _read_trilu(upper=False), "triu": _read_trilu(upper=True)}),
)  # fmt: skip

"""Spellings of the operators that rearrange the elements of a tensor, join tensors, or take them apart."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from typing import Any, Final

from tvm import relax, tirx

from gsl.front.core.lower import Lower
from gsl.front.relax.spellings.reading import (
    RelaxLift,
    RelaxScope,
    dims,
    ints,
    optional_ints,
    plain,
    tensor_type,
    tensors,
    unread_unless,
)
from gsl.front.relax.spellings.writing import RelaxLowering, is_float, spread
from gsl.front.tree import Canon
from gsl.graph import Dim

R = relax.op

# ---------------------------------------------------------------- joining and splitting


def _concatenate(w: RelaxLowering, data: Any, axis: int) -> Any:
    return w.call(R.concat, _same_dtype(w, data), axis)


def _stack(w: RelaxLowering, data: Any, axis: int) -> Any:
    return w.call(R.stack, _same_dtype(w, data), axis)


def _same_dtype(w: RelaxLowering, data: Any) -> Any:
    """The tensors in the dtype of the result."""
    return spread([w.cast(x, w.dtype) for x in data]) if isinstance(data, (tuple, list)) else data


def _read_join(op: str) -> RelaxLift:
    def read(call: Any, scope: RelaxScope) -> Canon:
        unread_unless(call.attrs.axis is not None)
        return Canon(op, (tensors(call.args[0]),), {"axis": int(call.attrs.axis)})

    return read


def _split(w: RelaxLowering, data: Any, indices_or_sections: Any, axis: int) -> Any:
    """Relax cuts at numbers only: where a cut is a symbolic size, the parts are slices."""
    if isinstance(indices_or_sections, int):
        return w.call(R.split, data, indices_or_sections, axis)
    if all(isinstance(cut, int) for cut in indices_or_sections):
        return w.call(R.split, data, list(indices_or_sections), axis)
    cuts = [0, *w.prims(indices_or_sections), w.target.prim(w.shape_of(data)[axis])]
    return relax.Tuple([w.call(R.strided_slice, data, [axis], [low], [high]) for low, high in pairwise(cuts)])


def _read_split(call: Any, scope: RelaxScope) -> Canon:
    cuts = call.attrs.indices_or_sections
    places: int | tuple[Dim, ...]
    places = int(cuts) if isinstance(cuts, tirx.IntImm) else tuple([scope.dim(cut) for cut in cuts])
    return Canon("split", (call.args[0],), {"indices_or_sections": places, "axis": int(call.attrs.axis)})


# ---------------------------------------------------------------- shapes


def _reshape(w: RelaxLowering, data: Any, **attrs: Any) -> Any:
    """Whatever the attributes, the elements in the shape of the result."""
    return w.call(R.reshape, data, relax.ShapeExpr(w.prims(w.shape)))


def _reshape_like(w: RelaxLowering, data: Any, like: Any, **attrs: Any) -> Any:
    return _reshape(w, data)


def _read_reshape(call: Any, scope: RelaxScope) -> Canon:
    # Relax resolves the codes 0 and -1 when it makes the call.
    return Canon("reshape", (call.args[0],), {"newshape": dims(call.args[1], scope)})


def _read_flatten(call: Any, scope: RelaxScope) -> Canon:
    return Canon("reshape", (call.args[0],), {"newshape": tensor_type(call, scope).shape})


def _transpose(w: RelaxLowering, data: Any, axes: tuple[int, ...]) -> Any:
    return w.call(R.permute_dims, data, list(axes))


def _read_transpose(call: Any, scope: RelaxScope) -> Canon:
    return Canon("transpose", (call.args[0],), {"axes": optional_ints(call.attrs.axes)})


def _expand_dims(w: RelaxLowering, data: Any, axis: int, num_newaxis: int) -> Any:
    return w.call(R.expand_dims, data, list(range(axis, axis + num_newaxis)))


def _read_expand_dims(call: Any, scope: RelaxScope) -> Canon:
    rank = tensor_type(call, scope).ndim
    axes = sorted(axis % rank for axis in ints(call.attrs.axis))
    unread_unless(bool(axes))
    if axes == list(range(axes[0], axes[0] + len(axes))):
        return Canon("expand_dims", (call.args[0],), {"axis": axes[0], "num_newaxis": len(axes)})
    return Canon("reshape", (call.args[0],), {"newshape": tensor_type(call, scope).shape})


def _squeeze(w: RelaxLowering, data: Any, axis: tuple[int, ...]) -> Any:
    own = w.shape_of(data)
    if any(own[place] != 1 for place in axis):
        raise ValueError("Relax squeezes only axes whose size is known to be 1")
    return w.call(R.squeeze, data, list(axis)) if axis else data


def _read_squeeze(call: Any, scope: RelaxScope) -> Canon:
    return Canon("squeeze", (call.args[0],), {"axis": optional_ints(call.attrs.axis)})


def _reverse(w: RelaxLowering, data: Any, axis: tuple[int, ...]) -> Any:
    for place in axis:
        data = w.call(R.flip, data, place)
    return data


# ---------------------------------------------------------------- copies


def _broadcast_to(w: RelaxLowering, data: Any, shape: tuple[Dim, ...]) -> Any:
    return w.call(R.broadcast_to, data, w.prims(w.shape))


def _read_broadcast_to(call: Any, scope: RelaxScope) -> Canon:
    return Canon("broadcast_to", (call.args[0],), {"shape": dims(call.args[1], scope)})


def _repeat(w: RelaxLowering, data: Any, repeats: int, axis: int | None) -> Any:
    return w.call(R.repeat, data, repeats, axis)


def _tile(w: RelaxLowering, data: Any, reps: tuple[int, ...]) -> Any:
    return w.call(R.tile, data, list(reps))


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
    return w.call(R.nn.pad, data, flat, _PAD_MODES[pad_mode], float(pad_value))


def _read_pad(call: Any, scope: RelaxScope) -> Canon:
    flat = ints(call.attrs.pad_width)
    modes = {theirs: own for own, theirs in _PAD_MODES.items()}
    mode = str(call.attrs.pad_mode)
    unread_unless(mode in modes and min(flat, default=0) >= 0)
    pairs = tuple(zip(flat[::2], flat[1::2], strict=True))
    value = {"pad_value": float(call.attrs.pad_value)} if mode == "constant" else {}
    unread_unless(is_float(tensor_type(call, scope).dtype) or value.get("pad_value", 0.0).is_integer())
    return Canon("nn.pad", (call.args[0],), {"pad_width": pairs, "pad_mode": modes[mode], **value})


WRITE: Final[Mapping[str, Lower]] = {
    "concatenate": _concatenate,
    "stack": _stack,
    "split": _split,
    "reshape": _reshape,
    "reshape_like": _reshape_like,
    "transpose": _transpose,
    "expand_dims": _expand_dims,
    "squeeze": _squeeze,
    "reverse": _reverse,
    "broadcast_to": _broadcast_to,
    "repeat": _repeat,
    "tile": _tile,
    "nn.pad": _pad,
}

READ: Final[Mapping[str, RelaxLift]] = {
    "relax.concat": _read_join("concatenate"),
    "relax.stack": _read_join("stack"),
    "relax.split": _read_split,
    "relax.reshape": _read_reshape,
    "relax.flatten": _read_flatten,
    "relax.nn.batch_flatten": _read_flatten,
    "relax.permute_dims": _read_transpose,
    "relax.expand_dims": _read_expand_dims,
    "relax.squeeze": _read_squeeze,
    "relax.flip": plain("reverse", 1, axis="axis"),
    "relax.broadcast_to": _read_broadcast_to,
    "relax.repeat": plain("repeat", 1, repeats="repeats", axis="axis"),
    "relax.tile": plain("tile", 1, reps="repeats"),
    "relax.nn.pad": _read_pad,
}

"""Spellings of the operators that make, rearrange, join, take apart and select the elements of tensors."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any, Final

import numpy as np
from tvm import ir, relax, tirx

from gsl.front.core.lower import Lower
from gsl.front.relax.spellings.table import (
    RelaxLift,
    RelaxLowering,
    RelaxScope,
    dims,
    dtype_name,
    ints,
    is_float,
    number,
    plain,
    produced,
    spread,
    tensor_type,
    tensors,
    unread_unless,
)
from gsl.front.tree import Canon, LiteralOperand
from gsl.graph import Dim, SymDim
from gsl.spec import TABLE
from gsl.spec.meaning import evaluate
from gsl.spec.normalise import is_number

R = relax.op

# ---------------------------------------------------------------- joining and splitting


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


def _reshape(w: RelaxLowering, data: Any, *like: Any, **attrs: Any) -> Any:
    """Whatever the attributes, the elements in the shape of the result."""
    return w.call(R.reshape, data, relax.ShapeExpr(w.prims(w.shape)))


def _read_reshape(call: Any, scope: RelaxScope) -> Canon:
    # Relax resolves the codes 0 and -1 when it makes the call.
    return Canon("reshape", (call.args[0],), {"newshape": dims(call.args[1], scope)})


def _read_flatten(call: Any, scope: RelaxScope) -> Canon:
    return Canon("reshape", (call.args[0],), {"newshape": tensor_type(call, scope).shape})


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


def _reverse(w: RelaxLowering, data: Any, axis: tuple[int, ...]) -> Any:
    for place in axis:
        data = w.call(R.flip, data, place)
    return data


# ---------------------------------------------------------------- copies


def _read_broadcast_to(call: Any, scope: RelaxScope) -> Canon:
    return Canon("broadcast_to", (call.args[0],), {"shape": dims(call.args[1], scope)})


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


# ---------------------------------------------------------------- slices


def _strided_slice(w: RelaxLowering, data: Any, begin: Any, end: Any, strides: Any, axes: Any) -> Any:
    if not axes:
        return data
    places = [relax.Tuple([_prim(w, item) for item in items]) for items in (axes, begin, end, strides)]
    return w.call(R.strided_slice, data, *places)


def _prim(w: RelaxLowering, value: Any) -> Any:
    return relax.prim_value(w.target.prim(value))


def _read_strided_slice(call: Any, scope: RelaxScope) -> Canon:
    unread_unless(not call.attrs.assume_inbound)
    data, axes, begin, end, *rest = call.args
    attrs = {"axes": dims(axes, scope), "begin": dims(begin, scope), "end": dims(end, scope)}
    if rest:
        attrs["strides"] = dims(rest[0], scope)
    return Canon("strided_slice", (data,), attrs)


# ---------------------------------------------------------------- lookups


def _take(w: RelaxLowering, data: Any, indices: Any, axis: int | None) -> Any:
    if axis is None:
        data, axis = w.reshape(data, (int(np.prod(w.sizes_of(data))),)), 0
    if is_number(indices):
        indices = relax.const(indices + w.sizes_of(data)[axis] if indices < 0 else indices, "int64")
    return w.call(R.take, data, indices, axis)


def _read_take(call: Any, scope: RelaxScope) -> Canon:
    data, indices = call.args
    # The other modes say what places outside of the axis stand for.
    unread_unless(str(call.attrs.mode) == "fast")
    unread_unless("int" in tensor_type(indices, scope).dtype)
    axis = None if call.attrs.axis is None else int(call.attrs.axis)
    place = produced(indices, scope)
    if isinstance(place, ir.GenericConst) and not place.value.shape:
        indices = LiteralOperand(int(place.value.numpy()))
    return Canon("take", (data, indices), {"axis": axis})


def _scatter(w: RelaxLowering, data: Any, indices: Any, updates: Any, axis: int) -> Any:
    own = w.shape_of(indices)
    if w.shape_of(updates) != own:
        updates = w.write("strided_slice", updates, begin=(0,) * len(own), end=own)
    return w.call(R.scatter_elements, data, indices, updates, axis)


def _read_scatter(call: Any, scope: RelaxScope) -> Canon:
    unread_unless(str(call.attrs.reduction) == "update")
    return Canon("scatter", tuple(call.args), {"axis": int(call.attrs.axis)})


# ---------------------------------------------------------------- diagonals


def _read_trilu(upper: bool) -> RelaxLift:
    return lambda call, scope: Canon("trilu", (call.args[0],), {"k": number(call.args[1]), "upper": upper})

# ---------------------------------------------------------------- tensors of nothing but attributes, or like others


def _constant(function: Any) -> Lower:
    return lambda w, shape, dtype: w.call(function, relax.ShapeExpr(w.prims(shape)), dtype)


def _filled(w: RelaxLowering, value: Any, shape: Sequence[Dim]) -> Any:
    """A tensor filled with a number or a tensor of one element."""
    if is_number(value):
        return w.full(value, shape, w.dtype)
    scalar = w.reshape(w.cast(value, w.dtype), ())
    return w.call(R.broadcast_to, scalar, w.prims(shape))


def _full(w: RelaxLowering, value: Any, shape: Sequence[Dim], dtype: str) -> Any:
    if is_number(value) and math.isfinite(value):
        return w.call(R.full, relax.ShapeExpr(w.prims(shape)), w.cast(value, w.dtype), dtype or None)
    return _filled(w, value, shape)


def _read_constant(op: str) -> RelaxLift:
    def read(call: Any, scope: RelaxScope) -> Canon:
        shape = dims(call.args[0], scope)
        return Canon(op, (), {"shape": shape, "dtype": tensor_type(call, scope).dtype})

    return read


def _read_full(call: Any, scope: RelaxScope) -> Canon:
    shape, value = call.args
    attrs = {"shape": dims(shape, scope), "dtype": dtype_name(call.attrs.dtype)}
    return Canon("full", (value,), attrs)


def _read_like(op: str, arity: int) -> RelaxLift:
    """The dtype is the operand's, which the type of the reading tells."""
    return lambda call, scope: Canon(op, tuple(call.args[:arity]))


def _arange(w: RelaxLowering, start: Any, stop: Any, step: Any, dtype: str) -> Any:
    bounds = [w.target.prim(bound) if isinstance(bound, SymDim) else bound for bound in (start, stop, step)]
    counts_floats = any(isinstance(bound, float) for bound in bounds)
    if isinstance(step, SymDim) or (counts_floats and not all(map(is_number, bounds))):
        raise ValueError(f"Relax doesn't count from {start} to {stop} by {step}")
    if is_number(step) and step < 0:
        # Relax miscounts those that go down.
        found = evaluate(TABLE["arange"], (), {"start": start, "stop": stop, "step": step, "dtype": dtype})
        return relax.const(found.tolist(), dtype)
    return w.call(R.arange, *bounds, dtype)


def _read_arange(call: Any, scope: RelaxScope) -> Canon:
    bounds = [_bound(arg, scope) for arg in call.args]
    dtype = dtype_name(call.attrs.dtype)
    # Of floats, integers are not counted: they are truncated at every step.
    unread_unless("float" in dtype or not any(isinstance(bound, float) for bound in bounds))
    return Canon("arange", (), {**dict(zip(("start", "stop", "step"), bounds, strict=True)), "dtype": dtype})


def _bound(arg: Any, scope: RelaxScope) -> Any:
    return number(arg) if isinstance(arg, (tirx.IntImm, tirx.FloatImm)) else scope.dim(arg)


LOOKS_AT: Final[Mapping[str, frozenset[str]]] = {"relax.take": frozenset()}
"""A reading looks for an index that is written in the program."""


WRITE: Final[Mapping[str, Lower]] = {
    "zeros": _constant(R.zeros),
    "ones": _constant(R.ones),
    "full": _full,
    "zeros_like": lambda w, x: w.call(R.zeros_like, x),
    "ones_like": lambda w, x: w.call(R.ones_like, x),
    "full_like": lambda w, x, value: _filled(w, value, w.shape),
    "arange": _arange,
    "concatenate": lambda w, data, axis: w.call(R.concat, _same_dtype(w, data), axis),
    "stack": lambda w, data, axis: w.call(R.stack, _same_dtype(w, data), axis),
    "split": _split,
    "reshape": _reshape,
    "reshape_like": _reshape,
    "transpose": lambda w, data, axes: w.call(R.permute_dims, data, list(axes)),
    "expand_dims": lambda w, data, axis, num_newaxis: w.call(
        R.expand_dims, data, list(range(axis, axis + num_newaxis))
    ),
    "squeeze": _squeeze,
    "reverse": _reverse,
    "broadcast_to": lambda w, data, shape: w.call(R.broadcast_to, data, w.prims(w.shape)),
    "repeat": lambda w, data, repeats, axis: w.call(R.repeat, data, repeats, axis),
    "tile": lambda w, data, reps: w.call(R.tile, data, list(reps)),
    "nn.pad": _pad,
    "strided_slice": _strided_slice,
    "take": _take,
    "gather": lambda w, data, indices, axis: w.call(R.gather_elements, data, indices, axis),
    "scatter": _scatter,
    "trilu": lambda w, data, k, upper: w.call(R.triu if upper else R.tril, data, k),
}

READ: Final[Mapping[str, RelaxLift]] = {
    "relax.zeros": _read_constant("zeros"),
    "relax.ones": _read_constant("ones"),
    "relax.full": _read_full,
    "relax.zeros_like": _read_like("zeros_like", 1),
    "relax.ones_like": _read_like("ones_like", 1),
    "relax.full_like": _read_like("full_like", 2),
    "relax.arange": _read_arange,
    "relax.concat": _read_join("concatenate"),
    "relax.stack": _read_join("stack"),
    "relax.split": _read_split,
    "relax.reshape": _read_reshape,
    "relax.flatten": _read_flatten,
    "relax.nn.batch_flatten": _read_flatten,
    "relax.permute_dims": plain("transpose", 1, "axes"),
    "relax.expand_dims": _read_expand_dims,
    "relax.squeeze": plain("squeeze", 1, "axis"),
    "relax.flip": plain("reverse", 1, "axis"),
    "relax.broadcast_to": _read_broadcast_to,
    "relax.repeat": plain("repeat", 1, "repeats", "axis"),
    "relax.tile": plain("tile", 1, reps="repeats"),
    "relax.nn.pad": _read_pad,
    "relax.strided_slice": _read_strided_slice,
    "relax.take": _read_take,
    "relax.gather_elements": plain("gather", 2, axis="axis"),
    "relax.scatter_elements": _read_scatter,
    "relax.tril": _read_trilu(upper=False),
    "relax.triu": _read_trilu(upper=True),
}

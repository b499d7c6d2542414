"""Operators that make, rearrange, join, take apart and select the elements of tensors."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, Final

import tvm
from tvm import relay

from gsl.front.core.lower import promoted
from gsl.front.relay.spellings.linear import padded, read_layer, sliced
from gsl.front.relay.spellings.table import (
    RelayCall,
    RelayLowering,
    RelayRow,
    check,
    const,
    is_default,
    literal,
    number,
    reshaped,
    row,
    same,
)
from gsl.front.tree import Canon, LiteralOperand
from gsl.graph import Dim, SymDim, TensorType, TupleType

# ---------------------------------------------------------------- several tensors


def tensors(w: RelayLowering) -> Any:
    """The tuple operand: a call that returns a tuple as it is, otherwise its tensors in one dtype."""
    operand, found = w.operands[0], w.types[0]
    if not isinstance(found, TupleType) or any(not isinstance(part, TensorType) for part in found.fields):
        raise ValueError(f"{w.op}: the types of the tensors must be known to write it in Relay")
    dtypes = [part.dtype for part in found.fields if isinstance(part, TensorType)]
    if not isinstance(operand, (tuple, list)):
        if len(set(dtypes)) > 1:
            raise ValueError(f"{w.op}: in Relay, the tensors of a tuple are of one dtype, found {', '.join(dtypes)}")
        return operand
    dtype = dtypes[0]
    for part in found.fields[1:]:
        # What torch.cat does: as if none were a scalar.
        assert isinstance(part, TensorType)
        dtype = promoted(TensorType((1,), dtype), TensorType((1,), part.dtype))
    return [part if own == dtype else relay.cast(part, dtype) for part, own in zip(operand, dtypes)]


def _joined(op: str, function: Callable[..., Any]) -> RelayRow:
    def write(w: RelayLowering) -> Any:
        data, axis, native = tensors(w), w["axis"], tvm.ir.Op.get(op)
        if not isinstance(data, relay.Tuple):
            return function(data, axis)
        # TVM's function would make a tuple of its own.
        return relay.Call(native, [data], tvm.ir.make_node(native.attrs_type_key, axis=axis))

    return RelayRow(op, write, {op: same(op)})


def _split(w: RelayLowering) -> Any:
    """In equal sections, where that is what the places of the cuts say."""
    cuts, axis = w["indices_or_sections"], w["axis"]
    size = w.type().shape[axis]
    if isinstance(cuts, tuple) and isinstance(size, int):
        parts = len(cuts) + 1
        if size % parts == 0 and cuts == tuple([size // parts * i for i in range(1, parts)]):
            cuts = parts
    return relay.split(w.x, cuts, axis).astuple()


# ---------------------------------------------------------------- shapes and axes


def _read_reshape(r: RelayCall) -> Canon:
    """The reading of a reshape. Where all sizes of the result are known, they are taken instead of the codes."""
    if (layer := read_layer(r)) is not None:
        return layer
    shape = r.result.shape
    if all(isinstance(size, int) for size in shape):
        return Canon("reshape", (r.x,), {"newshape": shape})
    check("newshape" in r.attrs and not r["allowzero"])
    return Canon("reshape", (r.x,), {"newshape": r["newshape"]})


def _reshape(w: RelayLowering) -> Any:
    shape = w.attrs["newshape"]
    if sum(isinstance(size, SymDim) for size in shape) > 1 and (codes := _codes(w.type().shape, shape)) is not None:
        return relay.reshape(w.x, codes)
    return reshaped(w, w.x, shape)


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


def _transpose(w: RelayLowering) -> Any:
    axes = w["axes"]
    if axes is None or axes == tuple(reversed(range(len(axes)))):
        return relay.transpose(w.x)
    return relay.transpose(w.x, axes)


def _squeeze(w: RelayLowering) -> Any:
    axes = w["axis"]
    if axes is None:
        raise ValueError("squeeze: the type of the operand must be known to write it in Relay")
    w.known([w.type().shape[axis] for axis in axes])
    return relay.squeeze(w.x, list(axes)) if axes else relay.copy(w.x)


def _read_reverse(r: RelayCall) -> Canon:
    return Canon("reverse", (r.x,), {"axis": (r["axis"],)})


def _reverse(w: RelayLowering) -> Any:
    result = w.x
    for axis in w["axis"]:
        result = relay.reverse(result, axis)
    return result if w["axis"] else relay.copy(result)


# ---------------------------------------------------------------- copies


def _read_broadcast(r: RelayCall) -> Canon:
    return Canon("broadcast_to", (r.x,), {"shape": r.result.shape})


def _repeat(w: RelayLowering) -> Any:
    if w["axis"] is None:
        return relay.repeat(relay.reshape(w.x, [-1]), w["repeats"], 0)
    return relay.repeat(w.x, w["repeats"], w["axis"])


# ---------------------------------------------------------------- padding


def _read_pad(r: RelayCall) -> Canon:
    value, mode = number(r.call.args[1]), r["pad_mode"]
    attrs: dict[str, Any] = {"pad_width": r["pad_width"], "pad_mode": mode}
    if mode != "constant":
        return Canon("nn.pad", (r.x,), attrs)
    dtype = r.type().dtype
    kind = float if "float" in dtype else bool if dtype == "bool" else int
    check(kind is float or kind(value) == value)
    return Canon("nn.pad", (r.x,), {**attrs, "pad_value": kind(value)})


def _read_mirror_pad(r: RelayCall) -> Canon:
    check(r["mode"] == "REFLECT")
    return Canon("nn.pad", (r.x,), {"pad_width": r["pad_width"], "pad_mode": "reflect"})


def _pad(w: RelayLowering) -> Any:
    widths, mode = w["pad_width"], w["pad_mode"]
    if isinstance(widths, int):
        raise ValueError("nn.pad: the type of the operand must be known to write it in Relay")
    if not any(width for pair in widths for width in pair):
        return relay.copy(w.x)
    if mode == "constant":
        return padded(w.x, list(widths), w.type().dtype, w["pad_value"])
    if min(width for pair in widths for width in pair) < 0:
        raise ValueError(f"nn.pad: pad_width: with the mode {mode!r}, Relay can't crop, found {widths}")
    return relay.nn.pad(w.x, widths, pad_mode=mode)


# ---------------------------------------------------------------- slices


def _read_slice(r: RelayCall) -> Canon:
    """A missing stride is 1. In the mode "size", ``end`` holds sizes, and strides are not looked at."""
    begin, end, strides = r["begin"], r["end"], r["strides"]
    check(begin is not None and end is not None and len(begin) == len(end))
    axes = r["axes"] if r["axes"] is not None else tuple(range(len(begin)))
    check(len(axes) == len(begin))
    if r["slice_mode"] == "size":
        check(all(first >= 0 for first in begin))
        end = [r.size(axis) if size < 0 else first + size for axis, first, size in zip(axes, begin, end)]
        steps = (1,) * len(begin)
    else:
        check(r["slice_mode"] == "end")
        steps = (*(strides or ()), *(1,) * len(begin))[: len(begin)]
    return Canon("strided_slice", (r.x,), {"begin": begin, "end": tuple(end), "strides": steps, "axes": axes})


def _read_slice_like(r: RelayCall) -> Canon:
    axes = r["axes"] or tuple(range(r.type(1).ndim))
    ends = tuple([r.size(axis, 1) for axis in axes])
    return Canon("strided_slice", (r.x,), {"begin": (0,) * len(axes), "end": ends, "strides": None, "axes": axes})


def _strided_slice(w: RelayLowering) -> Any:
    axes, begin, end, strides = w["axes"], w["begin"], w["end"], w["strides"]
    if not begin:
        return relay.copy(w.x)
    if axes is None or None in begin or None in end:
        raise ValueError("strided_slice: the type of the operand must be known to write it in Relay")
    return sliced(w.x, axes, begin, end, strides)


# ---------------------------------------------------------------- lookups


def _places(r: RelayCall, position: int) -> Any:
    """The array of places that a constant operand is, ``None`` for any other operand."""
    operand = r.call.args[position]
    return operand.data.numpy() if isinstance(operand, relay.Constant) else None


def _read_take(r: RelayCall) -> Canon:
    """The reading of ``take``. Relay clips places beyond the axis, or takes them modulo its size. Torch counts a
    negative place from the end, and accepts no other place outside the axis."""
    check(r["batch_dims"] == 0 and r.type(1).dtype in ("int32", "int64") and r["mode"] in _MODES)
    axis, indices, known = r["axis"], r.call.args[1], _places(r, 1)
    size = r.size(axis) if axis is not None else math.prod([r.size(a) for a in range(r.type().ndim)])
    if known is not None and _are_within(known, size):
        indices = LiteralOperand(int(known)) if known.ndim == 0 else indices
    elif r["mode"] == "clip":
        indices = Canon("clip", (indices,), {"a_min": 0, "a_max": size - 1})
    elif r["mode"] == "wrap":
        indices = Canon("floor_mod", (indices, LiteralOperand(size)))
    return Canon("take", (r.x, indices), {"axis": axis})


def _are_within(places: Any, size: int) -> bool:
    """True if all of the places are at least 0 and less than the size."""
    return bool(places.size and places.min() >= 0 and places.max() < size)


_MODES: Final = ("clip", "wrap", "fast")


def _take(w: RelayLowering) -> Any:
    axis, indices = w["axis"], w.types[1]
    sizes = w.shape() if axis is None else w.known([w.type().shape[axis]])
    size = math.prod(sizes)
    if isinstance(indices, int):
        return relay.take(w.x, const(indices % size, "int32"), axis)
    operand = w.operands[1]
    if isinstance(operand, relay.Constant):
        places = operand.data.numpy()
        if _are_within(places, size):
            return relay.take(w.x, operand, axis)
    if w.type(1).dtype == "bool":
        raise ValueError("take: Relay takes no bools for places")
    return relay.take(w.x, operand, axis, mode="wrap")


def _first(x: Any, shape: Sequence[int], wanted: Sequence[int]) -> Any:
    """The first elements of each axis of a tensor, as many as wanted."""
    axes = [axis for axis, (size, most) in enumerate(zip(shape, wanted)) if size != most]
    return sliced(x, axes, [0] * len(axes), [wanted[axis] for axis in axes]) if axes else x


def _gather(w: RelayLowering) -> Any:
    """Relay has as many places as elements, except along the axis."""
    shape, axis = w.shape(), w["axis"]
    wanted = [size if a == axis else count for a, (size, count) in enumerate(zip(shape, w.shape(1)))]
    return relay.gather(_first(w.x, shape, wanted), axis, w.expr(1))


def _read_scatter(r: RelayCall) -> Canon:
    check(r["reduction"] == "update")
    return Canon("scatter", r.operands, {"axis": r["axis"]})


def _scatter(w: RelayLowering) -> Any:
    """Relay has as many updates as places."""
    updates = _first(w.expr(2), w.shape(2), w.shape(1))
    return relay.scatter_elements(w.x, w.expr(1), updates, w["axis"])


# ---------------------------------------------------------------- diagonals


def _read_set_diag(r: RelayCall) -> Canon:
    words = ["RIGHT" if r[f"{part}_diag_right_align"] else "LEFT" for part in ("super", "sub")]
    return Canon("matrix_set_diag", r.operands, {"k": (r["k1"], r["k2"]), "align": "_".join(words)})


def _set_diag(w: RelayLowering) -> Any:
    low, high = w["k"]
    options = {} if is_default(w.op, "align", w["align"]) else {"align": w["align"]}
    return relay.matrix_set_diag(w.x, w.expr(1), low if low == high else (low, high), **options)


def _read_trilu(r: RelayCall) -> Canon:
    k = number(r.call.args[1])
    check(isinstance(k, int))
    return Canon("trilu", (r.x,), {"k": k, "upper": bool(r["upper"])})


# ---------------------------------------------------------------- tensors of nothing but attributes, or like others


def _filled(name: str) -> RelayRow:
    function = getattr(relay, name)

    def read(r: RelayCall) -> Canon:
        return Canon(name, (), {"shape": r.result.shape, "dtype": r.result.dtype})

    return RelayRow(name, lambda w: function(w["shape"], w["dtype"]), {name: read})


def _alike(name: str) -> RelayRow:
    function = getattr(relay, name)
    return RelayRow(name, lambda w: function(w.x), {name: same(name)})


def _read_full(r: RelayCall) -> Canon:
    value, dtype = literal(r.x), r.result.dtype
    check(r.type().dtype == dtype)
    # A number alone is of torch's default dtype.
    own = (
        {bool: "bool", int: "int64", float: "float32"}[type(value.value)]
        if isinstance(value, LiteralOperand)
        else dtype
    )
    return Canon("full", (value,), {"shape": r.result.shape, "dtype": "" if own == dtype else dtype})


def _read_full_like(r: RelayCall) -> Canon:
    check(r.type(0).dtype == r.type(1).dtype)
    return Canon("full_like", (r.x, literal(r.call.args[1])))


def _fill(w: RelayLowering, position: int, dtype: str) -> Any:
    """The number to fill with, as a tensor without axes."""
    found = w.types[position]
    if isinstance(found, float) and not dtype.startswith(("float", "bfloat")):
        found = bool(found) if dtype == "bool" else int(found)
    if isinstance(found, (bool, int, float)):
        return const(found, dtype)
    value = w.expr(position, dtype)
    return value if w.type(position).ndim == 0 else relay.reshape(value, [])


def _full(w: RelayLowering) -> Any:
    dtype = w.result.dtype
    return relay.full(_fill(w, 0, dtype), w["shape"], dtype)


def _full_like(w: RelayLowering) -> Any:
    return relay.full_like(w.x, _fill(w, 1, w.type().dtype))


def _read_arange(r: RelayCall) -> Canon:
    start, stop, step = map(number, r.operands)
    dtype = r.result.dtype
    if dtype.startswith(("int", "uint")):
        check(all(float(bound).is_integer() for bound in (start, stop, step)))
    start, stop, step = (int(bound) if float(bound).is_integer() else bound for bound in (start, stop, step))
    return Canon("arange", (), {"start": start, "stop": stop, "step": step, "dtype": dtype})


def _arange(w: RelayLowering) -> Any:
    dtype = w["dtype"]
    bounds = [w[name] for name in ("start", "stop", "step")]
    if "int" in dtype and not all(float(bound).is_integer() for bound in bounds):
        raise ValueError(f"arange: in Relay, integers count from and by integers, found {tuple(bounds)}")
    return relay.arange(*[const(bound, dtype) for bound in bounds], dtype)


ROWS: Final = (
    _filled("zeros"),
    _filled("ones"),
    RelayRow("full", _full, {"full": _read_full}),
    _alike("zeros_like"),
    _alike("ones_like"),
    RelayRow("full_like", _full_like, {"full_like": _read_full_like}),
    RelayRow("arange", _arange, {"arange": _read_arange}),
    _joined("concatenate", relay.concatenate),
    _joined("stack", relay.stack),
    RelayRow("split", _split, {"split": same("split")}),
    RelayRow("reshape", _reshape, {
        "reshape": _read_reshape, "nn.batch_flatten": lambda r: Canon("reshape", (r.x,), {"newshape": (0, -1)}),
    }),
    RelayRow("reshape_like", lambda w: relay.reshape_like(w.x, w.expr(1), **w.options()),
        {"reshape_like": lambda r: read_layer(r) or same("reshape_like")(r)}),
    RelayRow("transpose", _transpose, {"transpose": same("transpose")}),
    row("expand_dims", relay.expand_dims),
    RelayRow("squeeze", _squeeze, {"squeeze": same("squeeze")}),
    RelayRow("reverse", _reverse, {"reverse": _read_reverse}),
    row("layout_transform", relay.layout_transform),
    RelayRow("broadcast_to", lambda w: relay.broadcast_to(w.x, w["shape"]),
        {"broadcast_to": _read_broadcast, "broadcast_to_like": _read_broadcast}),
    RelayRow("repeat", _repeat, {"repeat": same("repeat")}),
    row("tile", relay.tile),
    RelayRow("nn.pad", _pad, {"nn.pad": _read_pad, "nn.mirror_pad": _read_mirror_pad}),
    RelayRow("strided_slice", _strided_slice, {"strided_slice": _read_slice, "slice_like": _read_slice_like}),
    RelayRow("take", _take, {"take": _read_take}),
    RelayRow("gather", _gather, {"gather": same("gather")}),
    RelayRow("scatter", _scatter, {"scatter_elements": _read_scatter}),
    RelayRow("matrix_set_diag", _set_diag, {"matrix_set_diag": _read_set_diag}),
    RelayRow("trilu", lambda w: relay.trilu(w.x, const(w["k"], "int32"), w["upper"]), {"trilu": _read_trilu}),
)  # fmt: skip

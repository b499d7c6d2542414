"""Operators that rearrange the elements of a tensor, join tensors, or take them apart."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import tvm
from tvm import relay

from gsl.front.relay.spellings.conv import padded
from gsl.front.relay.spellings.linear import read_layer
from gsl.front.relay.spellings.table import (
    RelayCall,
    RelayLowering,
    RelayRow,
    check,
    is_default,
    number,
    promoted,
    reshaped,
    row,
    same,
)
from gsl.front.tree import Canon
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
        dtype = promoted(TensorType((1,), dtype), TensorType((1,), part.dtype), w.op)
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


def _read_reshape_like(r: RelayCall) -> Canon:
    return read_layer(r) or same("reshape_like")(r)


def _read_batch_flatten(r: RelayCall) -> Canon:
    return Canon("reshape", (r.x,), {"newshape": (0, -1)})


def _reshape_like(w: RelayLowering) -> Any:
    attrs = {name: w[name] for name in w.attrs if not is_default(w.op, name, w[name])}
    return relay.reshape_like(w.x, w.expr(1), **attrs)


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


ROWS: Final = (
    _joined("concatenate", relay.concatenate),
    _joined("stack", relay.stack),
    RelayRow("split", _split, {"split": same("split")}),
    RelayRow("reshape", _reshape, {"reshape": _read_reshape, "nn.batch_flatten": _read_batch_flatten}),
    RelayRow("reshape_like", _reshape_like, {"reshape_like": _read_reshape_like}),
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
)  # fmt: skip

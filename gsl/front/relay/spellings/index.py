"""Operators that select elements of a tensor by place."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Final

from tvm import relay

from gsl.front.relay.spellings.conv import sliced
from gsl.front.relay.spellings.table import RelayCall, RelayLowering, RelayRow, check, const, is_default, number, same
from gsl.front.tree import Canon, LiteralOperand

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


ROWS: Final = (
    RelayRow("strided_slice", _strided_slice, {"strided_slice": _read_slice, "slice_like": _read_slice_like}),
    RelayRow("take", _take, {"take": _read_take}),
    RelayRow("gather", _gather, {"gather": same("gather")}),
    RelayRow("scatter", _scatter, {"scatter_elements": _read_scatter}),
    RelayRow("matrix_set_diag", _set_diag, {"matrix_set_diag": _read_set_diag}),
    RelayRow("trilu", lambda w: relay.trilu(w.x, const(w["k"], "int32"), w["upper"]), {"trilu": _read_trilu}),
)

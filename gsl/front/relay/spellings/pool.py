"""Pooling: windows, adaptive, global."""

from __future__ import annotations

import math
from typing import Any, Final

from tvm import relay

from gsl.front.relay.spellings.conv import padded, relaid
from gsl.front.relay.spellings.table import FLOATS, RelayCall, RelayLowering, RelayRow, check, is_default, same
from gsl.front.tree import Canon


def _sizes(shape: Any, layout: str) -> list[Any]:
    """The sizes of the spatial axes."""
    return [shape[layout.index(letter)] for letter in "DHW" if letter in layout]


def _overhang(shape: Any, result: Any, layout: str, attrs: Any) -> list[int]:
    """The number of elements by which the last window of each axis reaches beyond the padding."""
    count = len(layout) - 2
    before, after = attrs["padding"][:count], attrs["padding"][count:]
    rows = zip(
        _sizes(shape, layout), _sizes(result, layout), before, after, attrs["pool_size"], attrs["strides"],
        attrs["dilation"],
    )  # fmt: skip
    return [
        (windows - 1) * stride + (window - 1) * dilation + 1 - (size + low + high)
        for size, windows, low, high, window, stride, dilation in rows
    ]


def _window(count: int, kind: str) -> RelayRow:
    op = f"nn.{kind}_pool{count}d"
    identity = same(op)

    def read(r: RelayCall) -> Canon:
        canon = identity(r)
        attrs = dict(canon.attrs)
        for name in ("pool_size", "strides", "dilation", "padding"):
            # One number for all axes.
            attrs[name] = attrs[name][0] if len(attrs[name]) == 1 else attrs[name]
        check(kind == "max" or r.type().dtype in FLOATS)
        return Canon(op, canon.operands, attrs)

    return RelayRow(op, lambda w: _write_window(w, count), {op: read})


def _write_window(w: RelayLowering, count: int) -> Any:
    layout = w["layout"]
    names = ("pool_size", "strides", "dilation", "padding", "layout", "count_include_pad")
    options = {name: w[name] for name in names if name in w.attrs and not is_default(w.op, name, w[name])}
    out, data = w["out_layout"] or layout, w.x
    if w["ceil_mode"]:
        found = w.known(w.result.shape)
        result = [found[out.index(letter)] for letter in layout]
        beyond = _overhang(w.shape(), result, layout, w.attrs)
        if any(size > 0 for size in beyond):
            data = _trimmed(w, result, beyond, options)
            options["ceil_mode"] = True
    return relaid(getattr(relay.nn, w.op.removeprefix("nn."))(data, **options), layout, out)


def _trimmed(w: RelayLowering, result: list[int], beyond: list[int], options: dict[str, Any]) -> Any:
    """The operand, and in the options its padding, without the elements that are in no window.

    Relay has windows that begin in the padding behind, torch has not; so there must be no room for them.
    """
    layout, padding = w["layout"], w["padding"]
    count = len(beyond)
    most = _rounded_up(w.shape(), layout, w.attrs)
    wanted = _sizes(result, layout)
    after = [high + (size if n > m else 0) for high, size, n, m in zip(padding[count:], beyond, most, wanted)]
    if tuple(after) != padding[count:]:
        options["padding"] = (*padding[:count], *[max(0, width) for width in after])
    crop = [(0, min(0, dict(zip("DHW"[-count:], after)).get(letter, 0))) for letter in layout]
    return padded(w.x, crop, w.type().dtype)


def _rounded_up(shape: Any, layout: str, attrs: Any) -> list[int]:
    """The sizes of the result when all windows count that begin in the operand or the padding."""
    ones = [1] * len(shape)
    reach = [-size for size in _overhang(shape, ones, layout, attrs)]
    return [math.ceil(room / stride) + 1 for room, stride in zip(reach, attrs["strides"])]


def _adaptive(count: int, kind: str) -> RelayRow:
    op = f"nn.adaptive_{kind}_pool{count}d"
    function = getattr(relay.nn, f"adaptive_{kind}_pool{count}d")
    identity = same(op)

    def read(r: RelayCall) -> Canon:
        canon = identity(r)
        check(kind == "max" or r.type().dtype in FLOATS)
        size = r["output_size"] or (None,) * count
        return Canon(op, canon.operands, {**canon.attrs, "output_size": size * count if len(size) == 1 else size})

    def write(w: RelayLowering) -> Any:
        wanted = w["output_size"]
        if None in wanted:
            own = _sizes(w.shape(), w["layout"])
            wanted = tuple([size if one is None else one for one, size in zip(wanted, own)])
        return _laid_out(w, function, output_size=wanted)

    return RelayRow(op, write, {op: read})


def _laid_out(w: RelayLowering, function: Any, **options: Any) -> Any:
    """A pooling that keeps its layout, and then the wanted one."""
    layout = w["layout"]
    if not is_default(w.op, "layout", layout):
        options["layout"] = layout
    return relaid(function(w.x, **options), layout, w["out_layout"] or layout)


def _global(count: int, kind: str) -> RelayRow:
    op = f"nn.global_{kind}_pool{count}d"
    # In one and three dimensions these are adaptive poolings to one element.
    function = getattr(relay.nn, f"global_{kind}_pool{count}d")
    identity = same(op)

    def read(r: RelayCall) -> Canon:
        check(kind == "max" or r.type().dtype in FLOATS)
        return identity(r)

    return RelayRow(op, lambda w: _laid_out(w, function), {op: read} if count == 2 else {})


ROWS: Final = tuple(
    make(count, kind) for make in (_window, _adaptive, _global) for kind in ("max", "avg") for count in (1, 2, 3)
)

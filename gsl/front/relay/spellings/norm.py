"""Normalisations and pooling."""

from __future__ import annotations

import math
from typing import Any, Final

from tvm import relay

from gsl.front.relay.spellings.linear import for_all_axes, padded, relaid
from gsl.front.relay.spellings.table import (
    RelayCall,
    RelayLift,
    RelayLowering,
    RelayRow,
    check,
    const,
    is_default,
    last,
    of_floats,
    same,
)
from gsl.front.tree import Canon


def _axis(w: RelayLowering, default: int) -> dict[str, int]:
    """The axis of the channels, if it is not Relay's default."""
    axis = last(w["axis"], w.type().ndim) if w["axis"] != default else default
    return {} if axis == default else {"axis": axis}


def _batch_norm(w: RelayLowering) -> Any:
    dtype = w.type().dtype
    operands = [w.expr(place, dtype) for place in range(5)]
    return relay.nn.batch_norm(*operands, **_axis(w, 1), **w.options("axis"))[0]


def _affine(w: RelayLowering, size: int) -> tuple[Any, Any, dict[str, Any]]:
    """Gamma and beta, and the flags for them: a tensor that is not there is not used."""
    dtype = w.type().dtype
    options = w.options("axis", "num_groups")
    unused = relay.ones((size,), dtype)
    found = []
    for place, name in ((1, "scale"), (2, "center")):
        if place < len(w.operands):
            found.append(w.expr(place, dtype))
        else:
            options[name] = False
            found.append(unused)
    return found[0], found[1], options


def _read_layer_norm(r: RelayCall) -> Canon:
    canon = of_floats("nn.layer_norm")(r)
    return Canon(canon.op, canon.operands, {**canon.attrs, "axis": (r["axis"],)})


def _layer_norm(w: RelayLowering) -> Any:
    axes = w["axis"]
    if len(axes) > 1:
        return _normalised(w, axes)
    gamma, beta, options = _affine(w, w.known([w.type().shape[axes[0]]])[0])
    axis = last(axes[0], w.type().ndim)
    return relay.nn.layer_norm(w.x, gamma, beta, **({} if axis == -1 else {"axis": axis}), **options)


def _normalised(w: RelayLowering, axes: tuple[int, ...]) -> Any:
    """The normalisation over several axes."""
    dtype = w.type().dtype
    centred = w.x - relay.mean(w.x, axes, keepdims=True)
    variance = relay.mean(centred * centred, axes, keepdims=True)
    result = centred / relay.sqrt(variance + const(w["epsilon"], dtype))
    if len(w.operands) > 1 and w["scale"]:
        result = result * _along(w, 1, axes)
    if len(w.operands) > 2 and w["center"]:
        result = result + _along(w, 2, axes)
    return result


def _along(w: RelayLowering, position: int, axes: tuple[int, ...]) -> Any:
    """A weight with the sizes of some axes of the operand, in the places of those."""
    ndim = w.type().ndim
    weight = w.expr(position, w.type().dtype)
    if axes == tuple(range(ndim - len(axes), ndim)):
        return weight
    shape = w.known(w.type().shape)
    return relay.reshape(weight, [shape[axis] if axis in axes else 1 for axis in range(ndim)])


def _rms_norm(w: RelayLowering) -> Any:
    axes, dtype = w["axis"], w.type().dtype
    squares = relay.mean(w.x * w.x, axes, keepdims=True)
    result = w.x * relay.rsqrt(squares + const(w["epsilon"], dtype))
    return result * _along(w, 1, axes) if len(w.operands) > 1 else result


def _channels(w: RelayLowering) -> int:
    return w.known([w.type().shape[w["axis"]]])[0]


def _read_group_norm(r: RelayCall) -> Canon:
    """Relay's kernel takes the second axis for the channels, whatever the attribute says."""
    check(r["axis"] == 1)
    return of_floats("nn.group_norm")(r)


def _group_norm(w: RelayLowering) -> Any:
    gamma, beta, options = _affine(w, _channels(w))
    axis, axes = w["axis"], list(range(w.type().ndim))
    if axis == 1:
        return relay.nn.group_norm(w.x, gamma, beta, w["num_groups"], **options)
    axes.insert(1, axes.pop(axis))
    moved = relay.nn.group_norm(relay.transpose(w.x, axes), gamma, beta, w["num_groups"], **options)
    return relay.transpose(moved, [axes.index(place) for place in range(len(axes))])


def _instance_norm(w: RelayLowering) -> Any:
    gamma, beta, options = _affine(w, _channels(w))
    return relay.nn.instance_norm(w.x, gamma, beta, **_axis(w, 1), **options)


def _l2_normalize(w: RelayLowering) -> Any:
    axes = w["axis"]
    if axes:
        return relay.nn.l2_normalize(w.x, w["eps"], list(axes))
    bounded = relay.maximum(w.x * w.x, const(w["eps"], w.type().dtype))
    return w.x / relay.sqrt(bounded)


def _read_l2_normalize(r: RelayCall) -> Canon:
    """Without axes, over all of them; Relay can't compile an empty list of axes."""
    check(r["axis"] != ())
    return of_floats("nn.l2_normalize")(r)


# ---------------------------------------------------------------- pooling


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


def _reads(op: str) -> RelayLift:
    """Torch has means of floats alone."""
    return same(op) if "max" in op else of_floats(op)


def _window(count: int, kind: str) -> RelayRow:
    op = f"nn.{kind}_pool{count}d"
    identity = _reads(op)

    def read(r: RelayCall) -> Canon:
        canon = identity(r)
        attrs = {**canon.attrs, **for_all_axes(canon.attrs, ("pool_size", "strides", "dilation", "padding"))}
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
    identity = _reads(op)

    def read(r: RelayCall) -> Canon:
        canon = identity(r)
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
    return RelayRow(op, lambda w: _laid_out(w, function), {op: _reads(op)} if count == 2 else {})


ROWS: Final = (
    # Relay's has the moving averages as further results.
    RelayRow("nn.batch_norm", _batch_norm, fields={("nn.batch_norm", 0): of_floats("nn.batch_norm")}),
    RelayRow("nn.layer_norm", _layer_norm, {"nn.layer_norm": _read_layer_norm}),
    RelayRow("nn.rms_norm", _rms_norm),
    RelayRow("nn.group_norm", _group_norm, {"nn.group_norm": _read_group_norm}),
    RelayRow("nn.instance_norm", _instance_norm, {"nn.instance_norm": of_floats("nn.instance_norm")}),
    RelayRow("nn.l2_normalize", _l2_normalize, {"nn.l2_normalize": _read_l2_normalize}),
    *[make(count, kind) for make in (_window, _adaptive, _global) for kind in ("max", "avg") for count in (1, 2, 3)],
)

"""Normalisations and pooling."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, Final

from gsl.front.core.lower import known
from gsl.front.relay.spellings.linear import padded
from gsl.front.relay.spellings.table import RelayCall, RelayLowering, last
from gsl.front.tree import Canon
from gsl.front.tvm.spellings import TvmRow, is_float, over_axes, row, same, unread_unless
from gsl.graph import Dim, TensorType
from gsl.spec.normalise import spatial

# ---------------------------------------------------------------- normalisations


def _channel(w: RelayLowering, data: Any, axis: int) -> int:
    """The axis of the channels as Relay's default names it."""
    return axis if axis == 1 else last(axis, w.rank_of(data))


def _batch_norm(w: RelayLowering, data: Any, *others: Any, axis: int, **attrs: Any) -> Any:
    operands = [w.cast(x, w.dtype) for x in (data, *others)]
    return w.call("nn.batch_norm", *operands, axis=_channel(w, data, axis), **attrs)


def _read_batch_norm(r: RelayCall, index: int) -> Canon:
    """Relay's has the moving averages as further results."""
    unread_unless(index == 0)
    return same("nn.batch_norm", is_float)(r)


def _affine(
    w: RelayLowering, size: Dim, gamma: Any, beta: Any, center: bool, scale: bool
) -> tuple[list[Any], dict[str, bool]]:
    """Gamma and beta, and the flags for them: a tensor that is not there is not used."""
    flags = {"center": center and beta is not None, "scale": scale and gamma is not None}
    unused = None if gamma is not None and beta is not None else w.write("ones", shape=(size,), dtype=w.dtype)
    return [unused if x is None else w.cast(x, w.dtype) for x in (gamma, beta)], flags


def _read_layer_norm(r: RelayCall) -> Canon:
    return same("nn.layer_norm", is_float, given={"axis": (r["axis"],)})(r)


def _layer_norm(
    w: RelayLowering, data: Any, gamma: Any = None, beta: Any = None, *, axis: tuple[int, ...], epsilon: float,
    center: bool, scale: bool,
) -> Any:  # fmt: skip
    rank = w.rank_of(data)
    if len(axis) == 1:
        affine, flags = _affine(w, w.shape_of(data)[axis[0]], gamma, beta, center, scale)
        return w.call("nn.layer_norm", data, *affine, axis=last(axis[0], rank), epsilon=epsilon, **flags)
    data = w.widened(data)
    centred = w.write("subtract", data, w.write("mean", data, axis=axis, keepdims=True))
    variance = w.write("mean", w.write("multiply", centred, centred), axis=axis, keepdims=True)
    result = w.write("divide", centred, w.write("sqrt", w.write("add", variance, epsilon)))
    if gamma is not None and scale:
        result = w.write("multiply", result, w.spread_out(w.widened(gamma), rank, axis))
    if beta is not None and center:
        result = w.write("add", result, w.spread_out(w.widened(beta), rank, axis))
    return w.cast(result, w.dtype)


def _read_group_norm(r: RelayCall) -> Canon:
    """Relay's kernel takes the second axis for the channels, whatever the attribute says."""
    unread_unless(r["axis"] == 1)
    return same("nn.group_norm", is_float)(r)


def _group_norm(
    w: RelayLowering, data: Any, gamma: Any = None, beta: Any = None, *, num_groups: int, axis: int, epsilon: float,
    center: bool, scale: bool,
) -> Any:  # fmt: skip
    affine, flags = _affine(w, w.shape_of(data)[axis], gamma, beta, center, scale)
    order = list(range(w.rank_of(data)))
    order.insert(1, order.pop(axis))
    data = w.permute(data, order)
    made = w.call("nn.group_norm", data, *affine, num_groups, epsilon=epsilon, type=w.type_of(data), **flags)
    return w.permute(made, [order.index(place) for place in range(len(order))])


def _instance_norm(
    w: RelayLowering, data: Any, gamma: Any = None, beta: Any = None, *, axis: int, epsilon: float, center: bool,
    scale: bool,
) -> Any:  # fmt: skip
    affine, flags = _affine(w, w.shape_of(data)[axis], gamma, beta, center, scale)
    return w.call("nn.instance_norm", data, *affine, axis=_channel(w, data, axis), epsilon=epsilon, **flags)


def _l2_normalize(w: RelayLowering, data: Any, eps: float, axis: tuple[int, ...]) -> Any:
    if axis:
        return w.call("nn.l2_normalize", data, eps, list(axis))
    bounded = w.write("maximum", w.write("multiply", data, data), eps)
    return w.write("divide", data, w.write("sqrt", bounded))


# ---------------------------------------------------------------- pooling


def _of_kind(kind: str) -> Callable[[str], bool] | None:
    """Torch has means of floats alone."""
    return is_float if kind == "avg" else None


def _pool(w: RelayLowering, op: str, data: Any, layout: str, out_layout: str, **attrs: Any) -> Any:
    """A pooling that keeps its layout, and then the wanted one."""
    out = out_layout or layout
    type = TensorType(tuple([w.shape[out.index(letter)] for letter in layout]), w.dtype)
    return w.layout(w.call(op, data, layout=layout, type=type, **attrs), layout, out)


def _sizes(w: RelayLowering, data: Any, layout: str) -> tuple[int, ...]:
    """The sizes of the spatial axes, which have to be known."""
    return known([w.shape_of(data)[layout.index(letter)] for letter in spatial(len(layout) - 2)])


def _window(kind: str, count: int) -> TvmRow:
    op = f"nn.{kind}_pool{count}d"

    def write(
        w: RelayLowering, data: Any, layout: str, out_layout: str, pool_size: Any, strides: Any, dilation: Any,
        padding: Any, ceil_mode: bool, **counts: bool,
    ) -> Any:  # fmt: skip
        if ceil_mode:
            out, sizes = out_layout or layout, _sizes(w, data, layout)
            wanted = known([w.shape[out.index(letter)] for letter in spatial(count)])
            beyond = _overhang(sizes, wanted, padding, pool_size, strides, dilation)
            ceil_mode = any(size > 0 for size in beyond)
            if ceil_mode:
                # Relay has windows that begin in the padding behind, torch has not; so there must be no room for them.
                room = _overhang(sizes, (1,) * count, padding, pool_size, strides, dilation)
                most = [math.ceil(-size / step) + 1 for size, step in zip(room, strides)]
                rows = zip(padding[count:], beyond, most, wanted)
                after = [high + (size if n > m else 0) for high, size, n, m in rows]
                crop = dict(zip(spatial(count), after))
                data = padded(w, data, [(0, min(0, crop.get(letter, 0))) for letter in layout])
                padding = (*padding[:count], *[max(0, width) for width in after])
        window = {"pool_size": pool_size, "strides": strides, "dilation": dilation, "padding": padding}
        return _pool(w, op, data, layout, out_layout, **window, ceil_mode=ceil_mode, **counts)

    return row(op, write=write, test=_of_kind(kind))


def _overhang(
    sizes: Sequence[int], windows: Sequence[int], padding: Sequence[int], pool_size: Sequence[int],
    strides: Sequence[int], dilation: Sequence[int],
) -> list[int]:  # fmt: skip
    """The number of elements by which the last one of so many windows of each axis reaches beyond the padding."""
    count = len(sizes)
    rows = zip(sizes, windows, padding[:count], padding[count:], pool_size, strides, dilation)
    return [(n - 1) * step + (k - 1) * d + 1 - (size + low + high) for size, n, low, high, k, step, d in rows]


def _adaptive(kind: str, count: int) -> TvmRow:
    op = f"nn.adaptive_{kind}_pool{count}d"

    def read(r: RelayCall) -> Canon:
        size = r["output_size"] or (None,)
        return same(op, _of_kind(kind), given={"output_size": size * count if len(size) == 1 else size})(r)

    def write(w: RelayLowering, data: Any, layout: str, out_layout: str, output_size: Any) -> Any:
        if None in output_size:
            own = _sizes(w, data, layout)
            output_size = tuple([size if one is None else one for one, size in zip(output_size, own)])
        return _pool(w, op, data, layout, out_layout, output_size=output_size)

    return row(op, write=write, read=read)


def _global(kind: str, count: int) -> TvmRow:
    """In one and three dimensions these are adaptive poolings to one element."""
    op = f"nn.global_{kind}_pool{count}d"

    def write(w: RelayLowering, data: Any, layout: str, out_layout: str) -> Any:
        return _pool(w, op, data, layout, out_layout)

    return TvmRow(op, write, {op: same(op, _of_kind(kind))} if count == 2 else {})


ROWS: Final = (
    TvmRow("nn.batch_norm", _batch_norm, fields={"nn.batch_norm": _read_batch_norm}),
    row("nn.layer_norm", write=_layer_norm, read=_read_layer_norm),
    row("nn.group_norm", write=_group_norm, read=_read_group_norm),
    row("nn.instance_norm", write=_instance_norm, test=is_float),
    row("nn.l2_normalize", write=_l2_normalize, read=over_axes("nn.l2_normalize", is_float)),
    *[make(kind, count) for make in (_window, _adaptive, _global) for kind in ("max", "avg") for count in (1, 2, 3)],
)

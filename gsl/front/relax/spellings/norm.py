"""Spellings of normalisations and of pooling."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, Final

import numpy as np
from tvm import relax

from gsl.front.core.lower import Lower, adaptive, known
from gsl.front.relax.spellings.table import (
    FieldReader,
    RelaxLift,
    RelaxLowering,
    RelaxScope,
    attributes,
    ints,
    tensor_type,
    unread_unless,
)
from gsl.front.tree import Canon
from gsl.spec import TABLE
from gsl.spec.meaning import infer
from gsl.spec.normalise import spatial

N = relax.op.nn

# ---------------------------------------------------------------- batch normalisation


def _batch_norm(w: RelaxLowering, *operands: Any, axis: int, epsilon: float, center: bool, scale: bool) -> Any:
    return w.field(w.call(N.batch_norm, *operands, axis, epsilon, center, scale, training=False), 0)


def _read_batch_norm(call: Any, index: int, scope: RelaxScope) -> Canon:
    """The normalised data, or an average, which inference leaves as it is."""
    unread_unless(not call.attrs.training)
    if index > 0:
        return Canon("copy", (call.args[2 + index],))
    return Canon("nn.batch_norm", tuple(call.args), attributes(call, "axis", "epsilon", "center", "scale"))


# ---------------------------------------------------------------- gamma and beta


def _layer_norm(
    w: RelaxLowering, data: Any, gamma: Any = None, beta: Any = None, *, axis: tuple[int, ...], epsilon: float,
    center: bool, scale: bool,
) -> Any:  # fmt: skip
    shape = tuple([w.shape_of(data)[place] for place in axis])
    return w.call(N.layer_norm, data, *w.affine(shape, gamma, beta, center, scale), list(axis), epsilon)


def _rms_norm(w: RelaxLowering, data: Any, weight: Any = None, *, axis: tuple[int, ...], epsilon: float) -> Any:
    shape, rank = w.shape_of(data), w.rank_of(data)
    if axis[0] > 0 and axis == tuple(range(axis[0], rank)):
        if weight is None:
            weight = w.full(1, shape[axis[0] :], w.dtype)
        return w.call(N.rms_norm, data, weight, list(axis), epsilon)
    # Relax can't lower its own operator for other axes, nor for all of them.
    squares = w.write("mean", w.write("square", data), axis=axis, keepdims=True)
    result = w.write("multiply", data, w.write("rsqrt", w.write("add", squares, epsilon)))
    if weight is None:
        return result
    return w.write("multiply", result, w.reshape(weight, [shape[a] if a in axis else 1 for a in range(rank)]))


def _by_channel(name: str) -> Lower:
    """Group and instance normalisation, over all axes but those of the batch and the channels."""

    def write(
        w: RelaxLowering, data: Any, gamma: Any = None, beta: Any = None, *, axis: int, epsilon: float, center: bool,
        scale: bool, **groups: int,
    ) -> Any:  # fmt: skip
        affine = w.affine((w.shape_of(data)[axis],), gamma, beta, center, scale)
        axes = _spatial(w.rank_of(data), axis)
        return w.call(getattr(N, name), data, *affine, *groups.values(), axis, axes, epsilon)

    return write


def _spatial(rank: int, channel: int) -> list[int]:
    """All axes but that of the channels, and the first one of the others, which is that of the batch."""
    return [place for place in range(rank) if place != channel][1:]


# ---------------------------------------------------------------- reading


def _axes(call: Any, scope: RelaxScope) -> tuple[int, ...]:
    """The normalised axes. Unread if they are not in the order of those of the data."""
    rank = tensor_type(call.args[0], scope).ndim
    axes = tuple([axis % rank for axis in ints(call.attrs.axes)])
    unread_unless(list(axes) == sorted(set(axes)))
    return axes


def _read_affine(op: str, *others: str) -> RelaxLift:
    def read(call: Any, scope: RelaxScope) -> Canon:
        attrs = call.attrs
        # Relax declares these flags, and its lowering does not heed them.
        unread_unless(bool(attrs.center) and bool(attrs.scale))
        axes = _axes(call, scope)
        given = attributes(call, "epsilon", *others)
        if op == "nn.layer_norm":
            given["axis"] = axes
        else:
            shape = tensor_type(call.args[0], scope).shape
            channel = int(attrs.channel_axis) % len(shape)
            batch = 0 if channel else 1
            # A batch of one may be normalised over as well.
            kept = [axis for axis in axes if axis != batch or shape[batch] != 1]
            unread_unless(kept == _spatial(len(shape), channel))
            given["axis"] = channel
        return Canon(op, tuple(call.args), given)

    return read


def _read_rms_norm(call: Any, scope: RelaxScope) -> Canon:
    attrs = {"axis": _axes(call, scope), "epsilon": float(call.attrs.epsilon)}
    return Canon("nn.rms_norm", tuple(call.args), attrs)


# ---------------------------------------------------------------- pooling


_COUNTS: Final = (1, 2, 3)


def _plain(count: int) -> str:
    return "NC" + spatial(count)


def _in_layout(count: int, pool: Lower) -> Lower:
    """A writer ``pool(w, data, layout=…, **attrs)`` of data whose channels come second or last, for any layouts."""

    def write(w: RelaxLowering, data: Any, layout: str, out_layout: str, **attrs: Any) -> Any:
        own = layout if layout == "N" + spatial(count) + "C" else _plain(count)
        result = pool(w, w.layout(data, layout, own), layout=own, out=out_layout or layout, **attrs)
        return w.layout(result, own, out_layout or layout)

    return write


# ---------------------------------------------------------------- windows


def _window(kind: str, count: int) -> Lower:
    function = getattr(N, f"{kind}_pool{count}d")

    def pool(
        w: RelaxLowering, data: Any, layout: str, out: str, pool_size: tuple[int, ...], strides: tuple[int, ...],
        dilation: tuple[int, ...], padding: tuple[int, ...], ceil_mode: bool, count_include_pad: bool = False,
    ) -> Any:  # fmt: skip
        call = partial(w.call, function, data, pool_size, strides)
        if not ceil_mode:
            return call(padding, dilation, False, count_include_pad, layout)
        sizes = known([w.shape_of(data)[layout.index(letter)] for letter in spatial(count)])
        wanted = known([w.shape[out.index(letter)] for letter in spatial(count)])
        before, after = padding[:count], padding[count:]
        reach = [(n - 1) * s + d * (k - 1) + 1 for n, s, d, k in zip(wanted, strides, dilation, pool_size, strict=True)]
        extra = [max(r - x - a - b, 0) for r, x, a, b in zip(reach, sizes, before, after, strict=True)]
        if not (count_include_pad and any(extra)):
            result = call(padding, dilation, True, count_include_pad, layout)
            if w.shape_of(result) == tuple([w.shape[out.index(letter)] for letter in layout]):
                return result
        # Relax takes the mean over whole windows, and counts them otherwise where the padding is not the same on both
        # sides. So those that count are asked for.
        result = call([*before, *map(sum, zip(after, extra, strict=True))], dilation, False, count_include_pad, layout)
        if not (count_include_pad and any(extra)):
            return result
        ends = [size + width for size, width in zip(sizes, after, strict=True)]
        shares = _shares(wanted, ends, pool_size, strides, before)
        place = [wanted[spatial(count).index(letter)] if letter not in "NC" else 1 for letter in layout]
        return w.write("multiply", result, relax.const(shares.reshape(place), w.dtype))

    return _in_layout(count, pool)


def _shares(
    wanted: Sequence[int], ends: Sequence[int], size: Sequence[int], strides: Sequence[int], before: Sequence[int]
) -> Any:
    """The factor from the mean over a whole window to that of the elements up to ``ends``, for each window."""
    shares = np.ones(())
    for i, count in enumerate(wanted):
        starts = np.arange(count) * strides[i] - before[i]
        shares = np.multiply.outer(shares, size[i] / (np.minimum(starts + size[i], ends[i]) - starts))
    return shares


_WINDOW: Final = ("pool_size", "strides", "dilation", "padding", "layout", "out_layout", "ceil_mode")


def _read_window(kind: str, count: int) -> RelaxLift:
    op = f"nn.{kind}_pool{count}d"

    def read(call: Any, scope: RelaxScope) -> Canon:
        given = attributes(call, *_WINDOW, *(("count_include_pad",) if kind == "avg" else ()))
        if given.get("count_include_pad") and given["ceil_mode"]:
            # Torch doesn't count what is beyond the padding. Where there is none, both agree.
            down = infer(TABLE[op], [tensor_type(call.args[0], scope)], {**given, "ceil_mode": False})
            unread_unless(down == tensor_type(call, scope))
        return Canon(op, tuple(call.args), given)

    return read


# ---------------------------------------------------------------- adaptive


def _output_size(w: RelaxLowering, data: Any, layout: str, wanted: Sequence[int | None]) -> list[int]:
    """The sizes of the spatial axes of the result: ``None`` keeps that of the data."""
    own = [w.shape_of(data)[layout.index(letter)] for letter in layout if letter not in "NC"]
    return list(known([size if given is None else given for size, given in zip(own, wanted, strict=True)]))


def _adaptive_avg(count: int) -> Lower:
    function = getattr(N, f"adaptive_avg_pool{count}d")

    def pool(w: RelaxLowering, data: Any, layout: str, out: str, output_size: tuple[int | None, ...]) -> Any:
        return w.call(function, data, _output_size(w, data, layout, output_size), layout)

    return _in_layout(count, pool)


def _adaptive_max(count: int) -> Lower:
    def pool(w: RelaxLowering, data: Any, layout: str, out: str, output_size: tuple[int | None, ...]) -> Any:
        return adaptive(w, "max", data, layout, output_size)

    return _in_layout(count, pool)


def _read_adaptive(count: int) -> RelaxLift:
    def read(call: Any, scope: RelaxScope) -> Canon:
        given = attributes(call, "output_size", "layout", "out_layout")
        given["output_size"] = given["output_size"] or (None,) * count
        return Canon(f"nn.adaptive_avg_pool{count}d", tuple(call.args), given)

    return read


WRITE: Final[Mapping[str, Lower]] = {
    "nn.batch_norm": _batch_norm,
    "nn.layer_norm": _layer_norm,
    "nn.rms_norm": _rms_norm,
    "nn.group_norm": _by_channel("group_norm"),
    "nn.instance_norm": _by_channel("instance_norm"),
    **{f"nn.{kind}_pool{n}d": _window(kind, n) for kind in ("max", "avg") for n in _COUNTS},
    **{f"nn.adaptive_avg_pool{n}d": _adaptive_avg(n) for n in _COUNTS},
    **{f"nn.adaptive_max_pool{n}d": _adaptive_max(n) for n in _COUNTS},
}

READ: Final[Mapping[str, RelaxLift]] = {
    "relax.nn.layer_norm": _read_affine("nn.layer_norm"),
    "relax.nn.group_norm": _read_affine("nn.group_norm", "num_groups"),
    "relax.nn.instance_norm": _read_affine("nn.instance_norm"),
    "relax.nn.rms_norm": _read_rms_norm,
    **{f"relax.nn.{kind}_pool{n}d": _read_window(kind, n) for kind in ("max", "avg") for n in _COUNTS},
    **{f"relax.nn.adaptive_avg_pool{n}d": _read_adaptive(n) for n in _COUNTS},
}

FIELDS: Final[Mapping[str, FieldReader]] = {"relax.nn.batch_norm": _read_batch_norm}

"""Spellings of normalisations and of pooling."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any, Final

import numpy as np
from tvm import relax

from gsl.front.core.lower import LOWERED, Lower, adaptive, known
from gsl.front.relax.spellings.table import RelaxCall, RelaxLowering
from gsl.front.tree import Canon
from gsl.front.tvm.spellings import TvmLift, TvmRow, row, same, unread_unless
from gsl.spec import TABLE
from gsl.spec.meaning import infer
from gsl.spec.normalise import spatial

# ---------------------------------------------------------------- batch normalisation


def _batch_norm(w: RelaxLowering, *operands: Any, axis: int, epsilon: float, center: bool, scale: bool) -> Any:
    return w.field(w.call("nn.batch_norm", *operands, axis, epsilon, center, scale, training=False), 0)


def _read_batch_norm(r: RelaxCall, index: int) -> Canon:
    """The normalised data. An average, which inference leaves as it is, tells nothing of those."""
    unread_unless(index == 0 and not r["training"])
    return same("nn.batch_norm")(r)


# ---------------------------------------------------------------- gamma and beta


def _layer_norm(
    w: RelaxLowering, data: Any, gamma: Any = None, beta: Any = None, *, axis: tuple[int, ...], epsilon: float,
    center: bool, scale: bool,
) -> Any:  # fmt: skip
    shape = tuple([w.shape_of(data)[place] for place in axis])
    return w.call("nn.layer_norm", data, *w.affine(shape, gamma, beta, center, scale), list(axis), epsilon)


def _rms_norm(w: RelaxLowering, data: Any, weight: Any = None, *, axis: tuple[int, ...], epsilon: float) -> Any:
    shape = w.shape_of(data)
    if axis != tuple(range(axis[0], len(shape))):
        # Relax can't lower its own operator for others than the last axes.
        return LOWERED["nn.rms_norm"](w, data, weight, axis=axis, epsilon=epsilon)
    weight = w.full(1, shape[axis[0] :], w.dtype) if weight is None else weight
    if axis[0] == 0:
        # Nor for all of them, but with an axis of one element before them.
        data, axis = w.reshape(data, (1, *shape)), tuple([place + 1 for place in axis])
    return w.reshape(w.call("nn.rms_norm", data, weight, list(axis), epsilon), shape)


def _by_channel(name: str) -> Lower:
    """Group and instance normalisation, over all axes but those of the batch and the channels."""

    def write(
        w: RelaxLowering, data: Any, gamma: Any = None, beta: Any = None, *, axis: int, epsilon: float, center: bool,
        scale: bool, **groups: int,
    ) -> Any:  # fmt: skip
        affine = w.affine((w.shape_of(data)[axis],), gamma, beta, center, scale)
        return w.call(name, data, *affine, *groups.values(), axis, _spatial(w.rank_of(data), axis), epsilon)

    return write


def _spatial(rank: int, channel: int) -> list[int]:
    """All axes but that of the channels, and the first one of the others, which is that of the batch."""
    return [place for place in range(rank) if place != channel][1:]


# ---------------------------------------------------------------- reading


def _axes(r: RelaxCall) -> tuple[int, ...]:
    """The normalised axes. Unread if they are not in the order of those of the data."""
    axes = tuple([axis % r.type().ndim for axis in r["axes"]])
    unread_unless(list(axes) == sorted(set(axes)))
    return axes


def _read_axes(op: str) -> TvmLift:
    return lambda r: same(op, given={"axis": _axes(r)})(r)


def _read_layer_norm(r: RelaxCall) -> Canon:
    # Relax declares these flags, and its lowering does not heed them.
    unread_unless(r["center"] and r["scale"])
    return _read_axes("nn.layer_norm")(r)


def _read_by_channel(op: str) -> TvmLift:
    def read(r: RelaxCall) -> Canon:
        unread_unless(r["center"] and r["scale"])
        shape = r.type().shape
        channel = r["channel_axis"] % len(shape)
        batch = 0 if channel else 1
        # A batch of one may be normalised over as well.
        kept = [axis for axis in _axes(r) if axis != batch or shape[batch] != 1]
        unread_unless(kept == _spatial(len(shape), channel))
        return same(op, given={"axis": channel})(r)

    return read


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
    def pool(
        w: RelaxLowering, data: Any, layout: str, out: str, pool_size: tuple[int, ...], strides: tuple[int, ...],
        dilation: tuple[int, ...], padding: tuple[int, ...], ceil_mode: bool, count_include_pad: bool = False,
    ) -> Any:  # fmt: skip
        call = partial(w.call, f"nn.{kind}_pool{count}d", data, pool_size, strides)
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


def _read_window(op: str) -> TvmLift:
    def read(r: RelaxCall) -> Canon:
        canon = same(op)(r)
        if canon.attrs.get("count_include_pad") and canon.attrs["ceil_mode"]:
            # Torch doesn't count what is beyond the padding. Where there is none, both agree.
            unread_unless(infer(TABLE[op], [r.type()], {**canon.attrs, "ceil_mode": False}) == r.result)
        return canon

    return read


# ---------------------------------------------------------------- adaptive


def _output_size(w: RelaxLowering, data: Any, layout: str, wanted: Sequence[int | None]) -> list[int]:
    """The sizes of the spatial axes of the result: ``None`` keeps that of the data."""
    own = [w.shape_of(data)[layout.index(letter)] for letter in layout if letter not in "NC"]
    return list(known([size if given is None else given for size, given in zip(own, wanted, strict=True)]))


def _adaptive_avg(count: int) -> Lower:
    def pool(w: RelaxLowering, data: Any, layout: str, out: str, output_size: tuple[int | None, ...]) -> Any:
        return w.call(f"nn.adaptive_avg_pool{count}d", data, _output_size(w, data, layout, output_size), layout)

    return _in_layout(count, pool)


def _adaptive_max(count: int) -> Lower:
    def pool(w: RelaxLowering, data: Any, layout: str, out: str, output_size: tuple[int | None, ...]) -> Any:
        return adaptive(w, "max", data, layout, output_size)

    return _in_layout(count, pool)


def _read_adaptive(count: int) -> TvmLift:
    op = f"nn.adaptive_avg_pool{count}d"
    return lambda r: same(op, given={"output_size": r["output_size"] or (None,) * count})(r)


ROWS: Final = (
    TvmRow("nn.batch_norm", _batch_norm, fields={"nn.batch_norm": _read_batch_norm}),
    row("nn.layer_norm", write=_layer_norm, read=_read_layer_norm),
    row("nn.rms_norm", write=_rms_norm, read=_read_axes("nn.rms_norm")),
    *[row(op, write=_by_channel(op), read=_read_by_channel(op)) for op in ("nn.group_norm", "nn.instance_norm")],
    *[
        row(op, write=_window(kind, n), read=_read_window(op))
        for kind in ("max", "avg") for n in _COUNTS for op in [f"nn.{kind}_pool{n}d"]
    ],
    *[row(f"nn.adaptive_avg_pool{n}d", write=_adaptive_avg(n), read=_read_adaptive(n)) for n in _COUNTS],
    *[TvmRow(f"nn.adaptive_max_pool{n}d", _adaptive_max(n)) for n in _COUNTS],
)  # fmt: skip

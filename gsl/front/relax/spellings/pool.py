"""Spellings of pooling: windows, adaptive."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, Final

import numpy as np
from tvm import relax

from gsl.front.core.lower import Lower, adaptive, known
from gsl.front.relax.spellings.reading import RelaxLift, RelaxScope, ints, tensor_type, unread_unless
from gsl.front.relax.spellings.writing import RelaxLowering
from gsl.front.tree import Canon
from gsl.spec import TABLE
from gsl.spec.meaning import infer
from gsl.spec.normalise import spatial

N = relax.op.nn
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
        w: RelaxLowering,
        data: Any,
        layout: str,
        out: str,
        pool_size: tuple[int, ...],
        strides: tuple[int, ...],
        dilation: tuple[int, ...],
        padding: tuple[int, ...],
        ceil_mode: bool,
        count_include_pad: bool = False,
    ) -> Any:
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


def _read_window(kind: str, count: int) -> RelaxLift:
    op = f"nn.{kind}_pool{count}d"

    def read(call: Any, scope: RelaxScope) -> Canon:
        attrs = call.attrs
        given: dict[str, Any] = {
            name: ints(getattr(attrs, name)) for name in ("pool_size", "strides", "dilation", "padding")
        }
        given |= {"layout": str(attrs.layout), "out_layout": str(attrs.out_layout), "ceil_mode": bool(attrs.ceil_mode)}
        if kind == "avg":
            given["count_include_pad"] = bool(attrs.count_include_pad)
            if given["count_include_pad"] and given["ceil_mode"]:
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
        attrs = call.attrs
        size = (None,) * count if attrs.output_size is None else ints(attrs.output_size)
        layouts = {"layout": str(attrs.layout), "out_layout": str(attrs.out_layout)}
        return Canon(f"nn.adaptive_avg_pool{count}d", tuple(call.args), {"output_size": size, **layouts})

    return read


WRITE: Final[Mapping[str, Lower]] = {
    **{f"nn.{kind}_pool{n}d": _window(kind, n) for kind in ("max", "avg") for n in _COUNTS},
    **{f"nn.adaptive_avg_pool{n}d": _adaptive_avg(n) for n in _COUNTS},
    **{f"nn.adaptive_max_pool{n}d": _adaptive_max(n) for n in _COUNTS},
}

READ: Final[Mapping[str, RelaxLift]] = {
    **{f"relax.nn.{kind}_pool{n}d": _read_window(kind, n) for kind in ("max", "avg") for n in _COUNTS},
    **{f"relax.nn.adaptive_avg_pool{n}d": _read_adaptive(n) for n in _COUNTS},
}

"""Spellings of reductions and cumulative sums."""

from __future__ import annotations

import math
from typing import Any, Final

from gsl.front.core.lower import Lower, index_of_several
from gsl.front.relax.spellings.table import RelaxLowering
from gsl.front.tree import Canon
from gsl.front.tvm.spellings import TvmCall, TvmRow, is_float, is_no_bool, over_axes, row, same, unread_unless


def _reduction(reduce: Lower) -> Lower:
    """A writer ``reduce(w, data, axis, keepdims, **attrs)`` for any axes, none of them included."""

    def write(w: RelaxLowering, data: Any, axis: tuple[int, ...], keepdims: bool, exclude: bool, **rest: Any) -> Any:
        if not axis:
            # Relax takes no axes for all of them.
            rank = w.rank_of(data)
            return reduce(w, w.call("expand_dims", data, rank), (rank,), False, **rest)
        return reduce(w, data, axis, keepdims, **rest)

    return write


def _native(name: str) -> Lower:
    def reduce(w: RelaxLowering, data: Any, axis: tuple[int, ...], keepdims: bool) -> Any:
        # Bools are reduced as numbers.
        inner = "int8" if w.dtype == "bool" else w.dtype
        result = w.call(name, w.cast(data, inner), list(axis), keepdims)
        return w.write("cast", result, dtype=w.dtype)

    return _reduction(reduce)


def _all_any(name: str) -> Lower:
    def reduce(w: RelaxLowering, data: Any, axis: tuple[int, ...], keepdims: bool) -> Any:
        data = w.cast(w.write("cast", data, dtype="bool"), "int8")
        return w.write("cast", w.call(name, data, list(axis), keepdims), dtype="bool")

    return _reduction(reduce)


def _variance(w: RelaxLowering, data: Any, axis: tuple[int, ...], keepdims: bool, unbiased: bool) -> Any:
    result = w.call("variance", data, list(axis), keepdims)
    if not unbiased:
        return result
    count = math.prod(w.sizes_of(data)[place] for place in axis)
    return w.write("multiply", result, count / (count - 1) if count > 1 else math.nan)


def _std(w: RelaxLowering, data: Any, axis: tuple[int, ...], keepdims: bool, unbiased: bool) -> Any:
    if not unbiased:
        return w.call("std", data, list(axis), keepdims)
    return w.write("sqrt", _variance(w, data, axis, keepdims, unbiased))


def _index(name: str) -> Lower:
    """The index among the elements of all reduced axes, in row-major order."""

    def reduce(w: RelaxLowering, data: Any, axis: tuple[int, ...], keepdims: bool) -> Any:
        if len(axis) in (1, w.rank_of(data)):
            return w.call(name, data, axis[0] if len(axis) == 1 else None, keepdims)
        return index_of_several(w, name, data, axis)

    return _reduction(reduce)


def _cumsum(w: RelaxLowering, data: Any, axis: int, dtype: str, exclusive: bool) -> Any:
    own = None if w.dtype == w.dtype_of(data) else w.dtype
    return w.call("cumsum", data, axis, dtype or own, exclusive)


def _read_cumsum(r: TvmCall) -> Canon:
    dtype = r.result.dtype
    unread_unless(is_no_bool(dtype))
    # The canonical one of integers is of int64, unless it says so.
    return same("cumsum", given={} if is_float(dtype) or dtype == "int64" else {"dtype": dtype})(r)


ROWS: Final = (
    *[row(op, write=_native(op), read=over_axes(op)) for op in ("sum", "mean", "max", "min", "prod")],
    TvmRow("all", _all_any("min")),
    TvmRow("any", _all_any("max")),
    # Torch has these of floats only.
    row("variance", write=_reduction(_variance), read=over_axes("variance", is_float)),
    row("std", write=_reduction(_std), read=over_axes("std", is_float)),
    *[row(op, write=_index(op)) for op in ("argmax", "argmin")],
    row("cumsum", write=_cumsum, read=_read_cumsum),
)

"""Spellings of reductions and cumulative sums."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Final

from tvm import relax

from gsl.front.core.lower import Lower, index_of_several
from gsl.front.relax.spellings.table import (
    RelaxLift,
    RelaxLowering,
    RelaxScope,
    attributes,
    is_float,
    plain,
    tensor_type,
    unread_unless,
)
from gsl.front.tree import Canon

R = relax.op

_NATIVE: Final = ("sum", "mean", "max", "min", "prod", "variance", "std")


def _reduction(reduce: Lower) -> Lower:
    """A writer ``reduce(w, data, axis, keepdims, **attrs)`` for any axes, none of them included."""

    def write(w: RelaxLowering, data: Any, axis: tuple[int, ...], keepdims: bool, exclude: bool, **rest: Any) -> Any:
        if not axis:
            # Relax takes no axes for all of them.
            rank = w.rank_of(data)
            return reduce(w, w.call(R.expand_dims, data, rank), (rank,), False, **rest)
        return reduce(w, data, axis, keepdims, **rest)

    return write


def _native(name: str) -> Lower:
    def reduce(w: RelaxLowering, data: Any, axis: tuple[int, ...], keepdims: bool) -> Any:
        # Bools are reduced as numbers.
        inner = "int8" if w.dtype == "bool" else w.dtype
        result = w.call(getattr(R, name), w.cast(data, inner), list(axis), keepdims)
        return w.write("cast", result, dtype=w.dtype)

    return _reduction(reduce)


def _all_any(name: str) -> Lower:
    def reduce(w: RelaxLowering, data: Any, axis: tuple[int, ...], keepdims: bool) -> Any:
        data = w.cast(w.write("cast", data, dtype="bool"), "int8")
        return w.write("cast", w.call(getattr(R, name), data, list(axis), keepdims), dtype="bool")

    return _reduction(reduce)


def _variance(w: RelaxLowering, data: Any, axis: tuple[int, ...], keepdims: bool, unbiased: bool) -> Any:
    result = w.call(R.variance, data, list(axis), keepdims)
    if not unbiased:
        return result
    count = math.prod(w.sizes_of(data)[place] for place in axis)
    return w.write("multiply", result, count / (count - 1) if count > 1 else math.nan)


def _std(w: RelaxLowering, data: Any, axis: tuple[int, ...], keepdims: bool, unbiased: bool) -> Any:
    if not unbiased:
        return w.call(R.std, data, list(axis), keepdims)
    return w.write("sqrt", _variance(w, data, axis, keepdims, unbiased))


def _logsumexp(w: RelaxLowering, data: Any, axis: tuple[int, ...], keepdims: bool) -> Any:
    data = w.cast(data, w.dtype)
    most = w.call(R.max, data, list(axis), True)
    most = w.write("where", w.call(R.isinf, most), 0.0, most)
    sums = w.call(R.sum, w.write("exp", w.write("subtract", data, most)), list(axis), True)
    result = w.write("add", w.write("log", sums), most)
    return result if keepdims else w.call(R.squeeze, result, list(axis))


def _index(name: str) -> Lower:
    """The index among the elements of all reduced axes, in row-major order."""

    def reduce(w: RelaxLowering, data: Any, axis: tuple[int, ...], keepdims: bool) -> Any:
        function, rank = getattr(R, name), w.rank_of(data)
        if len(axis) in (1, rank):
            return w.call(function, data, axis[0] if len(axis) == 1 else None, keepdims)
        return index_of_several(w, name, data, axis)

    return _reduction(reduce)


def _read_reduction(op: str) -> RelaxLift:
    def read(call: Any, scope: RelaxScope) -> Canon:
        given = attributes(call, "axis", "keepdims")
        unread_unless(given["axis"] != ())
        # Torch has these of floats only.
        unread_unless(op not in ("variance", "std") or is_float(tensor_type(call, scope).dtype))
        return Canon(op, (call.args[0],), given)

    return read


WRITE: Final[Mapping[str, Lower]] = {
    **{name: _native(name) for name in ("sum", "mean", "max", "min", "prod")},
    "all": _all_any("min"),
    "any": _all_any("max"),
    "variance": _reduction(_variance),
    "std": _reduction(_std),
    "logsumexp": _reduction(_logsumexp),
    "argmax": _index("argmax"),
    "argmin": _index("argmin"),
    "cumsum": lambda w, data, axis, dtype, exclusive: w.call(
        R.cumsum, data, axis, dtype or (None if w.dtype == w.dtype_of(data) else w.dtype), exclusive
    ),
}

READ: Final[Mapping[str, RelaxLift]] = {
    **{f"relax.{name}": _read_reduction(name) for name in _NATIVE},
    "relax.argmax": plain("argmax", 1, "axis", "keepdims"),
    "relax.argmin": plain("argmin", 1, "axis", "keepdims"),
    "relax.cumsum": plain("cumsum", 1, "axis", "dtype", "exclusive"),
}

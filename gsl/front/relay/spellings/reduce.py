"""Reductions over axes, and cumulative sums."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from gsl.front.core.lower import Lower
from gsl.front.relay.spellings.table import RelayCall, RelayLowering
from gsl.front.tree import Canon
from gsl.front.tvm.spellings import TvmRow, is_call, is_float, over_axes, row, unread_unless
from gsl.graph import TensorType


def _over(name: str, cast: Callable[[RelayLowering, Any], Any] = lambda w, x: x, dtype: str = "") -> Lower:
    """The writer of a reduction of what ``cast`` makes of the operand, of that dtype if it is not the call's; one over
    no axes at all is over a new one."""

    def write(w: RelayLowering, data: Any, axis: tuple[int, ...], keepdims: bool, exclude: bool, **rest: Any) -> Any:
        data, type = cast(w, data), TensorType(w.shape, dtype or w.dtype)
        if not axis:
            data = w.write("expand_dims", data, axis=w.rank_of(data), num_newaxis=1)
            return w.call(name, data, -1, False, type=type, **rest)
        return w.call(name, data, None if len(axis) == w.rank_of(data) else axis, keepdims, type=type, **rest)

    return write


def _reduction(op: str) -> TvmRow:
    """A reduction that Relay has, in the dtype that torch's result has."""
    return row(op, write=_over(op, lambda w, x: w.cast(x, w.dtype)), read=over_axes(op))


def _quantifier(op: str) -> TvmRow:
    """``all`` or ``any``, which Relay has of bools."""
    reduce = _over(op, lambda w, x: w.cast(x, "bool"), "bool")
    # Of bytes, torch's result is a byte.
    return row(op, write=lambda w, data, **attrs: w.cast(reduce(w, data, **attrs), w.dtype), read=over_axes(op))


# ---------------------------------------------------------------- variance


def _read_variance(r: RelayCall) -> Canon:
    """Relay's has the mean for an operand."""
    unread_unless(is_float(r.type().dtype) and _is_mean(r))
    unread_unless(r["axis"] != ())
    names = ("axis", "keepdims", "exclude", "unbiased")
    return Canon("variance", (r.x,), {name: bool(r[name]) if name != "axis" else r[name] for name in names})


def _is_mean(r: RelayCall) -> bool:
    """True if the second operand is the mean of the first one over the same axes."""
    mean = r.call.args[1]
    if not is_call(mean, "mean"):
        return False
    own = RelayCall(mean, r.scope)
    same_axes = own["axis"] == r["axis"] and bool(own["exclude"]) == bool(r["exclude"])
    return bool(mean.args[0].same_as(r.x)) and same_axes and bool(own["keepdims"])


LOOKS_AT: Final[Mapping[str, frozenset[str]]] = {"variance": frozenset(("mean",))}
"""As in ``linear``."""


def _variance(w: RelayLowering, data: Any, axis: tuple[int, ...], unbiased: bool, **attrs: Any) -> Any:
    shape = w.shape_of(data)
    if unbiased and all(shape[place] == 1 for place in axis):
        raise ValueError(f"of one element, Relay can't divide by one less, found axes {axis} of {shape}")
    return _over("variance")(w, data, axis=axis, unbiased=unbiased, **attrs)


# ---------------------------------------------------------------- others


def _arg(op: str) -> TvmRow:
    """Relay's places are of int32."""
    reduce, reader = _over(op, dtype="int32"), over_axes(op)

    def read(r: RelayCall) -> Canon:
        unread_unless(not r["select_last_index"])
        return Canon("cast", (reader(r),), {"dtype": r.result.dtype})

    return row(op, write=lambda w, data, **attrs: w.cast(reduce(w, data, **attrs), "int64"), read=read)


def _read_cumsum(r: RelayCall) -> Canon:
    own, dtype = r.type().dtype, r.result.dtype
    is_usual = dtype == (own if is_float(own) else "int64")
    attrs = {"axis": r["axis"], "exclusive": bool(r["exclusive"]), "dtype": "" if is_usual else dtype}
    return Canon("cumsum", (r.x,), attrs)


def _cumsum(w: RelayLowering, data: Any, axis: int, dtype: str, exclusive: bool) -> Any:
    own: dict[str, Any] = {} if w.dtype == w.dtype_of(data) else {"dtype": w.dtype}
    return w.call("cumsum", data, axis, **own, **({"exclusive": True} if exclusive else {}))


ROWS: Final = (
    *map(_reduction, ("sum", "mean", "prod")),
    *[row(op, write=_over(op), read=over_axes(op)) for op in ("max", "min")],
    *map(_quantifier, ("all", "any")),
    row("variance", write=_variance, read=_read_variance),
    *map(_arg, ("argmax", "argmin")),
    row("cumsum", write=_cumsum, read=_read_cumsum),
)

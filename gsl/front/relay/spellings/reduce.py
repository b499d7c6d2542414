"""Reductions over axes, and cumulative sums."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from tvm import relay

from gsl.front.relay.spellings.table import (
    FLOATS,
    RelayCall,
    RelayLift,
    RelayLowering,
    RelayRow,
    check,
    const,
    is_call,
    same,
)
from gsl.front.tree import Canon

_Reduce = Callable[..., Any]
"""``reduce(x, axis, keepdims)``: an operator of Relay's."""


def _over(w: RelayLowering, x: Any, reduce: _Reduce) -> Any:
    """A reduction; one over no axes at all is over a new one."""
    axes, ndim = w["axis"], w.type().ndim
    if w["exclude"]:
        raise ValueError(f"{w.op}: the type of the operand must be known to write it in Relay")
    if not axes:
        return reduce(relay.expand_dims(x, -1), -1, False)
    return reduce(x, None if axes == tuple(range(ndim)) else axes, w["keepdims"])


def _reads(op: str) -> RelayLift:
    """Reads a reduction. In Relay, no axes given are all of them."""
    identity = same(op)

    def read(r: RelayCall) -> Canon:
        check(r["axis"] is None or len(r["axis"]) > 0)
        return identity(r)

    return read


def _reduction(op: str) -> RelayRow:
    """A reduction that Relay has, in the dtype that torch's result has."""
    reduce = getattr(relay, op)
    return RelayRow(op, lambda w: _over(w, w.expr(0, w.result.dtype), reduce), {op: _in_own_dtype(_reads(op))})


def _in_own_dtype(reader: RelayLift) -> RelayLift:
    """Of integers, torch's result is int64 and Relay's is not: a cast away from it."""

    def read(r: RelayCall) -> Canon:
        found, own = reader(r), r.result.dtype
        if own.startswith(("int", "uint")) and own != "int64":
            return Canon("cast", (found,), {"dtype": own})
        return found

    return read


def _bound(op: str) -> RelayRow:
    """``max`` or ``min``, which keep the dtype."""
    reduce = getattr(relay, op)
    return RelayRow(op, lambda w: _over(w, w.x, reduce), {op: _reads(op)})


def _quantifier(op: str) -> RelayRow:
    """``all`` or ``any``, which Relay has of bools."""
    reduce = getattr(relay, op)

    def write(w: RelayLowering) -> Any:
        result = _over(w, w.expr(0, "bool"), reduce)
        # Of bytes, torch's result is a byte.
        return result if w.result.dtype == "bool" else relay.cast(result, w.result.dtype)

    return RelayRow(op, write, {op: _reads(op)})


# ---------------------------------------------------------------- variance


def _read_variance(r: RelayCall) -> Canon:
    """Relay's has the mean for an operand."""
    check(r.type().dtype in FLOATS and _is_mean(r))
    return Canon("variance", (r.x,), _reads("variance")(r).attrs)


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


def _variance(w: RelayLowering) -> Any:
    shape, axes = w.type().shape, w["axis"]
    if w["unbiased"] and all(shape[axis] == 1 for axis in range(len(shape)) if axes is None or axis in axes):
        raise ValueError(f"{w.op}: of one element, Relay can't divide by one less, found axes {axes} of {shape}")
    return _over(w, w.x, lambda x, axis, keepdims: relay.variance(x, axis, keepdims, unbiased=w["unbiased"]))


# ---------------------------------------------------------------- others


def _logsumexp(w: RelayLowering) -> Any:
    """The logarithm of a sum that does not overflow: with the largest element taken out."""
    dtype = w.result.dtype

    def reduce(x: Any, axis: Any, keepdims: bool) -> Any:
        largest = relay.max(x, axis, True)
        shift = relay.where(relay.isfinite(largest), largest, const(0, dtype))
        summed = relay.log(relay.sum(relay.exp(x - shift), axis, True)) + shift
        return summed if keepdims else relay.squeeze(summed, None if axis is None else _list(axis))

    return _over(w, w.expr(0, dtype), reduce)


def _list(axis: Any) -> list[int]:
    return [axis] if isinstance(axis, int) else list(axis)


def _arg(op: str) -> RelayRow:
    """Relay's places are of int32."""
    reduce, reader = getattr(relay, op), _reads(op)

    def read(r: RelayCall) -> Canon:
        check(not r["select_last_index"])
        return Canon("cast", (reader(r),), {"dtype": r.result.dtype})

    return RelayRow(op, lambda w: relay.cast(_over(w, w.x, reduce), "int64"), {op: read})


def _read_cumsum(r: RelayCall) -> Canon:
    own, dtype = r.type().dtype, r.result.dtype
    is_usual = dtype == ("int64" if own.startswith(("int", "uint", "bool")) else own)
    attrs = {"axis": r["axis"], "exclusive": bool(r["exclusive"]), "dtype": "" if is_usual else dtype}
    return Canon("cumsum", (r.x,), attrs)


def _cumsum(w: RelayLowering) -> Any:
    dtype = w.result.dtype
    options: dict[str, Any] = {} if dtype == w.type().dtype else {"dtype": dtype}
    if w["exclusive"]:
        options["exclusive"] = True
    return relay.cumsum(w.x, w["axis"], **options)


ROWS: Final = (
    _reduction("sum"),
    _reduction("mean"),
    _reduction("prod"),
    _bound("max"),
    _bound("min"),
    _quantifier("all"),
    _quantifier("any"),
    RelayRow("variance", _variance, {"variance": _read_variance}),
    RelayRow("logsumexp", _logsumexp),
    _arg("argmax"),
    _arg("argmin"),
    RelayRow("cumsum", _cumsum, {"cumsum": _read_cumsum}),
)

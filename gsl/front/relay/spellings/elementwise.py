"""Element-wise arithmetic, mathematical functions, comparisons and logic; activations, softmax and dropout."""

from __future__ import annotations

import math
from typing import Any, Final

import numpy as np

from gsl.front.core.infer import shortest
from gsl.front.relay.spellings.linear import read_bias
from gsl.front.relay.spellings.table import RelayCall, RelayLowering, last
from gsl.front.tree import Canon
from gsl.front.tvm.spellings import (
    ELEMENTWISE,
    TvmRow,
    arithmetic,
    compared,
    in_result,
    is_float,
    is_no_bool,
    row,
    same,
    unread_unless,
)
from gsl.spec.math import COMPARISONS
from gsl.spec.normalise import is_number

# ---------------------------------------------------------------- functions of one tensor


def _expm1(w: RelayLowering, x: Any) -> Any:
    """``exp(x) - 1``, also where x is so small that the difference would lose it."""
    x = w.cast(x, w.dtype)
    e = w.write("exp", x)
    less = w.write("subtract", e, 1.0)
    close = w.write("divide", w.write("multiply", less, x), w.write("log", e))
    # Where exp(x) is 1, x is the answer; where it is 0 or infinite, so is the difference, or -1.
    far = w.write("logical_or", w.write("equal", less, -1.0), w.write("isinf", e))
    return w.write("where", w.write("equal", e, 1.0), x, w.write("where", far, less, close))


def _round(w: RelayLowering, x: Any) -> Any:
    """Halves go to the even neighbour; those of Relay's own ``round`` go away from zero."""
    if not is_float(w.dtype):
        return x
    down = w.write("floor", x)
    rest, up = w.write("subtract", x, down), w.write("add", down, 1.0)
    pairs = w.write("multiply", w.write("floor", w.write("multiply", down, 0.5)), 2.0)
    is_even = w.write("equal", w.write("subtract", down, pairs), 0.0)
    to_even = w.write("logical_and", w.write("equal", rest, 0.5), is_even)
    return w.write("where", w.write("logical_or", w.write("less", rest, 0.5), to_even), down, up)


# ---------------------------------------------------------------- operators of two tensors


def _is_integer(dtype: str) -> bool:
    return "int" in dtype


def _floor_divide(w: RelayLowering, x: Any, y: Any) -> Any:
    """Of floats, what remains without the remainder, divided."""
    x, y = w.cast(x, w.dtype), w.cast(y, w.dtype)
    if not is_float(w.dtype):
        return w.call("floor_divide", x, y)
    whole = w.write("divide", w.write("subtract", x, w.write("floor_mod", x, y)), y)
    return w.write("where", w.write("equal", y, 0.0), w.write("divide", x, y), w.write("round", whole))


def _power(w: RelayLowering, x: Any, y: Any) -> Any:
    if is_float(w.dtype):
        return in_result("power")(w, x, y)
    if not isinstance(y, int) or not 0 <= y <= 64:
        raise ValueError("Relay has no powers of integers but those with a small constant exponent")
    x = w.cast(x, w.dtype)
    result = w.write("ones_like", x) if y == 0 else x
    for _ in range(y - 1):
        result = w.write("multiply", result, x)
    return result


def _atan2(w: RelayLowering, y: Any, x: Any) -> Any:
    """The angle of a point: from that in the first octant, by reflections."""
    y, x = w.cast(y, w.dtype), w.cast(x, w.dtype)

    def is_negative(value: Any) -> Any:
        # A zero has a sign, which only its reciprocal shows.
        signed = w.write("where", w.write("equal", value, 0.0), w.write("divide", 1.0, value), value)
        return w.write("less", signed, 0.0)

    high, wide = w.write("abs", y), w.write("abs", x)
    long = w.write("maximum", high, wide)
    least = w.write("where", w.write("equal", long, 0.0), 1.0, long)
    ratio = w.write("divide", w.write("minimum", high, wide), least)
    both = w.write("logical_and", w.write("isinf", high), w.write("isinf", wide))
    angle = w.write("atan", w.write("where", both, 1.0, ratio))
    angle = w.write("where", w.write("greater", high, wide), w.write("subtract", math.pi / 2, angle), angle)
    angle = w.write("where", is_negative(x), w.write("subtract", math.pi, angle), angle)
    unknown = w.write("logical_or", w.write("isnan", x), w.write("isnan", y))
    angle = w.write("where", unknown, w.write("add", x, y), angle)
    return w.write("where", is_negative(y), w.write("negative", angle), angle)


def _read_add(r: RelayCall) -> Canon:
    return read_bias(r) or same("add", is_no_bool)(r)


# ---------------------------------------------------------------- others


def _read_clip(r: RelayCall) -> Canon:
    """Relay has both bounds, as floats, of which infinity is none; they are cast to the dtype of the operand."""
    low, high, dtype = r["a_min"], r["a_max"], r.type().dtype
    # The wrong way round, torch takes the upper bound and Relay the lower one.
    unread_unless(low <= high and low != math.inf and high != -math.inf)
    if is_float(dtype):
        low, high = (shortest(bound) if dtype == "float32" else bound for bound in (low, high))
        a_min, a_max = (None if math.isinf(bound) else bound for bound in (low, high))
        return Canon("clip", (r.x,), {"a_min": a_min, "a_max": a_max})
    unread_unless(_is_integer(dtype) and float(low).is_integer() and float(high).is_integer())
    limits = np.iinfo(dtype)
    unread_unless(limits.min <= low and high <= limits.max)
    return Canon("clip", (r.x,), {"a_min": int(low), "a_max": int(high)})


def _clip(w: RelayLowering, x: Any, a_min: Any, a_max: Any) -> Any:
    x = w.cast(x, w.dtype)
    # Relay has floats for bounds, which are not every integer.
    if a_min is not None and a_max is not None and a_min <= a_max and float(a_min) == a_min and float(a_max) == a_max:
        return w.call("clip", x, float(a_min), float(a_max))
    x = x if a_min is None else w.call("maximum", x, w.cast(a_min, w.dtype))
    return x if a_max is None else w.call("minimum", x, w.cast(a_max, w.dtype))


def _cast(w: RelayLowering, x: Any, dtype: str) -> Any:
    return w.cast(x, dtype) if is_number(x) else w.call("cast", x, dtype)


# ---------------------------------------------------------------- activations


def _read_prelu(r: RelayCall) -> Canon:
    unread_unless(r.type(1).ndim == 1)
    return same("nn.prelu")(r)


def _prelu(w: RelayLowering, data: Any, alpha: Any, axis: int) -> Any:
    slope, rank = w.type_of(alpha), w.rank_of(data)
    if w.dtype_of(data) == slope.dtype and slope.shape == (w.shape_of(data)[axis],):
        return w.call("nn.prelu", data, alpha, axis)
    data, alpha = w.cast(data, w.dtype), w.cast(alpha, w.dtype)
    if slope.ndim == 1 and axis < rank - 1:
        alpha = w.reshape(alpha, (*slope.shape, *(1,) * (rank - 1 - axis)))
    return w.write("where", w.write("greater", data, 0.0), data, w.write("multiply", alpha, data))


def _softmax(op: str) -> TvmRow:
    return row(op, write=lambda w, x, axis: w.call(op, x, axis=last(axis, w.rank_of(x))), test=is_float)


def _read_dropout(r: RelayCall, index: int) -> Canon:
    """Relay's has a second result, the mask."""
    unread_unless(index == 0)
    return same("nn.dropout")(r)


ROWS: Final = (
    *ELEMENTWISE,
    *[row(op, write=in_result(op)) for op in ("log2", "log10")],
    *map(row, ("negative", "abs", "sign", "copy", "isnan", "isinf", "isfinite")),
    TvmRow("expm1", _expm1),
    TvmRow("round", _round),
    row("add", write=arithmetic("add"), read=_read_add),
    row("floor_divide", write=_floor_divide, test=_is_integer),
    TvmRow("mod", in_result("op.mod"), {"mod": same("mod", is_no_bool), "trunc_mod": same("mod", _is_integer)}),
    row("power", write=_power, test=is_float),
    *[row(op, write=in_result(op)) for op in ("maximum", "minimum")],
    TvmRow("atan2", _atan2),
    *[row(op, write=compared(op)) for op in COMPARISONS],
    row("clip", write=_clip, read=_read_clip),
    TvmRow("cast", _cast, {
        "cast": same("cast"), "cast_like": lambda r: Canon("cast", (r.x,), {"dtype": r.type(1).dtype}),
    }),
    row("nn.leaky_relu"),
    row("nn.prelu", write=_prelu, read=_read_prelu),
    _softmax("nn.softmax"),
    _softmax("nn.log_softmax"),
    TvmRow("nn.dropout", lambda w, x, rate: w.call("nn.dropout", x, rate), fields={"nn.dropout": _read_dropout}),
)  # fmt: skip

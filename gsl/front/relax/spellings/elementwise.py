"""Spellings of the element-wise operators: arithmetic, comparisons, functions, casts, activations, softmax."""

from __future__ import annotations

import math
from typing import Any, Final

from gsl.front.relax.spellings.linear import read_add
from gsl.front.relax.spellings.table import RelaxCall, RelaxLowering
from gsl.front.tree import Canon
from gsl.front.tvm.spellings import (
    ELEMENTWISE,
    TvmRow,
    arithmetic,
    in_result,
    is_float,
    is_no_bool,
    of_floats,
    rounded,
    row,
    same,
    truth,
    unread_unless,
)
from gsl.spec.math import COMPARISONS
from gsl.spec.normalise import is_number


def _number(name: str) -> TvmRow:
    def write(w: RelaxLowering, x: Any) -> Any:
        if w.dtype == "bool":
            raise ValueError("Relax doesn't compute with bools")
        return w.call(name, x)

    return row(name, write=write, test=is_no_bool)


def _test(name: str) -> TvmRow:
    """Of integers, all are finite."""

    def write(w: RelaxLowering, x: Any) -> Any:
        return w.call(name, x) if is_float(w.dtype_of(x)) else w.full(name == "isfinite", w.shape, "bool")

    return row(name, write=write)


# ---------------------------------------------------------------- two operands


def _comparison(name: str) -> TvmRow:
    def write(w: RelaxLowering, x: Any, y: Any) -> Any:
        # Relax doesn't compare bools.
        operands = w.promoted(x, y)
        return w.call(name, *[w.cast(value, "int8") if w.common(x, y) == "bool" else value for value in operands])

    return row(name, write=write)


def _floor_divide(w: RelaxLowering, x: Any, y: Any) -> Any:
    """Of floats, what remains without the remainder, divided; Relax rounds the quotient before it takes the floor."""
    x, y = w.cast(x, w.dtype), w.cast(y, w.dtype)
    if not is_float(w.dtype):
        return w.call("floor_divide", x, y)
    return w.call("round", w.write("divide", w.write("subtract", x, w.write("floor_mod", x, y)), y))


def _read_floor_divide(r: RelaxCall) -> Canon:
    if is_float(r.result.dtype):
        return Canon("floor", (Canon("divide", r.operands),))
    return Canon("floor_divide", r.operands)


def _power(w: RelaxLowering, x: Any, y: Any) -> Any:
    if is_float(w.dtype):
        return in_result("power")(w, x, y)
    if not is_number(y) or not 0 <= y <= 8:
        raise ValueError("Relax has powers of floats only, and small ones of integers")
    result = w.full(1, w.shape, w.dtype)
    for _ in range(int(y)):
        result = w.write("multiply", result, x)
    return result


# ---------------------------------------------------------------- others


def _clip(w: RelaxLowering, x: Any, a_min: Any, a_max: Any) -> Any:
    x = w.cast(x, w.dtype)
    if a_min is None:
        return x if a_max is None else w.write("minimum", x, a_max)
    if a_max is None:
        return w.write("maximum", x, a_min)
    return w.full(a_max, w.shape, w.dtype) if a_min > a_max else w.call("clip", x, a_min, a_max)


def _read_clip(r: RelaxCall) -> Canon:
    low, high = r.number(1), r.number(2)
    unread_unless(low <= high and low < math.inf and high > -math.inf)
    floats = is_float(r.type().dtype)
    unread_unless(floats or not (isinstance(low, float) or isinstance(high, float)))
    if floats and (low, high) == (0, 6):
        # The operator that Relax offers as relu6.
        return Canon("nn.relu6", (r.x,))
    a_min, a_max = (None if abs(bound) == math.inf else bound for bound in (low, high))
    return Canon("clip", (r.x,), {"a_min": a_min, "a_max": a_max})


# ---------------------------------------------------------------- activations


def _elu(w: RelaxLowering, x: Any, alpha: float) -> Any:
    """relu(x) - alpha relu(1 - exp(x)), as TVM's importers write it."""
    negative = w.write("nn.relu", w.write("subtract", 1.0, w.write("exp", x)))
    return w.write("add", w.write("multiply", negative, -alpha), w.write("nn.relu", x))


def _gelu(w: RelaxLowering, x: Any, approximate: str) -> Any:
    return w.call("nn.gelu_tanh" if approximate == "tanh" else "nn.gelu", x)


def _prelu(w: RelaxLowering, data: Any, alpha: Any, axis: int) -> Any:
    channels = w.shape_of(data)[axis]
    if w.shape_of(alpha) == (channels,):
        return w.call("nn.prelu", data, alpha, axis)
    scaled = w.write("multiply", alpha, data)
    return w.write("where", w.write("greater", data, 0), data, scaled)


def _read_prelu(r: RelaxCall) -> Canon:
    unread_unless(r.type(1).shape == (r.type().shape[r["axis"]],))
    return same("nn.prelu")(r)


def _read_dropout(r: RelaxCall, index: int) -> Canon:
    """The data as they are, or the mask, which keeps all of them."""
    return same("nn.dropout")(r) if index == 0 else Canon("ones_like", r.operands)


ROWS: Final = (
    *ELEMENTWISE,
    of_floats("atan2"),
    rounded("round"),
    *map(_number, ("abs", "negative", "sign", "square")),
    *map(_test, ("isfinite", "isinf", "isnan")),
    row("add", write=arithmetic("add"), read=read_add),
    *[row(name, write=arithmetic(name), test=is_no_bool) for name in ("mod", "maximum", "minimum")],
    *map(_comparison, COMPARISONS),
    TvmRow("copy", lambda w, x: x),
    row("floor_divide", write=_floor_divide, read=_read_floor_divide),
    row("power", write=_power, test=is_float),
    row("clip", write=_clip, read=_read_clip),
    row("cast", "astype", write=lambda w, x, dtype: truth(w, x) if dtype == "bool" else w.cast(x, dtype)),
    TvmRow("nn.relu6", lambda w, x: w.call("nn.relu6", x)),
    row("nn.leaky_relu", "nn.leakyrelu"),
    TvmRow("elu", _elu),
    row("selu", "nn.selu"),
    TvmRow("gelu", _gelu, {
        "nn.gelu": same("gelu", given={"approximate": "none"}),
        "nn.gelu_tanh": same("gelu", given={"approximate": "tanh"}),
    }),
    row("silu", "nn.silu"),
    row("softplus", "nn.softplus"),
    row("nn.prelu", write=_prelu, read=_read_prelu),
    row("nn.softmax", write=in_result("nn.softmax")),
    row("nn.log_softmax", write=in_result("nn.log_softmax")),
    TvmRow("nn.dropout", lambda w, x, rate: w.field(w.call("nn.dropout", x, rate), 0),
           fields={"nn.dropout": _read_dropout}),
)  # fmt: skip

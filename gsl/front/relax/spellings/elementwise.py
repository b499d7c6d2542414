"""Spellings of the element-wise operators: arithmetic, comparisons, functions, casts, activations, softmax."""

from __future__ import annotations

import math
from typing import Any, Final

from gsl.front.core.lower import Lower, floor_mod_of_floats
from gsl.front.relax.spellings.linear import read_add
from gsl.front.relax.spellings.table import RelaxCall, RelaxLowering
from gsl.front.tree import Canon
from gsl.front.tvm.spellings import (
    COMPARISONS,
    FLOATS_ONLY,
    LOGIC,
    TvmRow,
    in_result,
    is_float,
    rounded,
    row,
    same,
    unread_unless,
)
from gsl.spec.normalise import is_number

_NOT_IN_HALF: Final = frozenset(("acos", "acosh", "asin", "asinh", "atan", "atan2", "cosh", "sinh"))
"""Functions that Relax can't lower for float16."""
_ARITHMETIC: Final = ("add", "subtract", "multiply", "mod", "maximum", "minimum")
_BITS: Final = ("bitwise_and", "bitwise_or", "bitwise_xor", "left_shift", "right_shift")
_OF_BOOLS: Final = {"add": "logical_or", "maximum": "logical_or", "multiply": "logical_and", "minimum": "logical_and"}


def _is_no_bool(dtype: str) -> bool:
    return dtype != "bool"


def _is_no_float(dtype: str) -> bool:
    return not is_float(dtype)


def _float(name: str) -> TvmRow:
    """A function of floats; of integers, Relax divides integers, and torch floats."""

    def write(w: RelaxLowering, *operands: Any) -> Any:
        inner = "float32" if w.dtype == "float16" and name in _NOT_IN_HALF else w.dtype
        return w.cast(w.call(name, *[w.cast(x, inner) for x in operands]), w.dtype)

    return row(name, write=write, test=is_float)


def _number(name: str) -> TvmRow:
    def write(w: RelaxLowering, x: Any) -> Any:
        if w.dtype == "bool":
            raise ValueError("Relax doesn't compute with bools")
        return w.call(name, x)

    return row(name, write=write, test=_is_no_bool)


def _test(name: str) -> TvmRow:
    """Of integers, all are finite."""

    def write(w: RelaxLowering, x: Any) -> Any:
        return w.call(name, x) if is_float(w.dtype_of(x)) else w.full(name == "isfinite", w.shape, "bool")

    return row(name, write=write)


# ---------------------------------------------------------------- two operands


def _binary(name: str) -> Lower:
    def write(w: RelaxLowering, x: Any, y: Any) -> Any:
        if w.dtype == "bool" and name in _ARITHMETIC:
            if name not in _OF_BOOLS:
                raise ValueError("Relax doesn't compute with bools")
            return w.write(_OF_BOOLS[name], x, y)
        return in_result(name)(w, x, y)

    return write


def _comparison(name: str) -> TvmRow:
    def write(w: RelaxLowering, x: Any, y: Any) -> Any:
        # Relax doesn't compare bools.
        operands = w.promoted(x, y)
        return w.call(name, *[w.cast(value, "int8") if w.common(x, y) == "bool" else value for value in operands])

    return row(name, write=write)


def truth(w: RelaxLowering, value: Any) -> Any:
    """A tensor or a number as one of bools."""
    if is_number(value) or w.dtype_of(value) == "bool":
        return w.cast(value, "bool")
    return w.write("not_equal", value, 0)


def _logic(name: str) -> TvmRow:
    return row(name, write=lambda w, *operands: w.call(name, *[truth(w, value) for value in operands]))


def _floor_mod(w: RelaxLowering, x: Any, y: Any) -> Any:
    """Of floats by way of the remainder of the other sign, which is exact; Relax's own is not."""
    x, y = w.cast(x, w.dtype), w.cast(y, w.dtype)
    return floor_mod_of_floats(w, x, y) if is_float(w.dtype) else w.call("floor_mod", x, y)


def _floor_divide(w: RelaxLowering, x: Any, y: Any) -> Any:
    """Of floats, what remains without the remainder, divided; Relax rounds the quotient before it takes the floor."""
    x, y = w.cast(x, w.dtype), w.cast(y, w.dtype)
    if not is_float(w.dtype):
        return w.call("floor_divide", x, y)
    return w.call("round", w.write("divide", w.write("subtract", x, _floor_mod(w, x, y)), y))


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


def _where(w: RelaxLowering, test: Any, x: Any, y: Any) -> Any:
    return w.call("where", truth(w, test), w.cast(x, w.dtype), w.cast(y, w.dtype))


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
    *map(_float, (*FLOATS_ONLY, "divide", "atan2")),
    *[row(name, write=rounded(name), test=_is_no_bool) for name in ("ceil", "floor", "round", "trunc")],
    *map(_number, ("abs", "negative", "sign", "square")),
    *map(_test, ("isfinite", "isinf", "isnan")),
    *[row(name, write=_binary(name), test=_is_no_bool) for name in _ARITHMETIC if name != "add"],
    row("add", write=_binary("add"), read=read_add),
    *[row(name, write=_binary(name), test=_is_no_float) for name in _BITS],
    *map(_comparison, COMPARISONS),
    *map(_logic, (*LOGIC, "logical_not")),
    row("bitwise_not", test=_is_no_float),
    TvmRow("copy", lambda w, x: x),
    row("floor_divide", write=_floor_divide, read=_read_floor_divide),
    row("floor_mod", write=_floor_mod, test=_is_no_float),
    row("power", write=_power, test=is_float),
    row("where", write=_where, test=lambda dtype: dtype == "bool"),
    row("clip", write=_clip, read=_read_clip),
    row("cast", "astype", write=lambda w, x, dtype: truth(w, x) if dtype == "bool" else w.cast(x, dtype)),
    row("nn.relu"),
    TvmRow("nn.relu6", lambda w, x: w.call("nn.relu6", x)),
    row("nn.leaky_relu", "nn.leakyrelu"),
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

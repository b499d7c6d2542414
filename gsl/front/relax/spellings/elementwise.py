"""Spellings of the element-wise operators: arithmetic, comparisons, functions, casts, activations, softmax."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any, Final

from tvm import relax

from gsl.front.core.lower import Lower, floor_mod_of_floats
from gsl.front.relax.spellings.table import (
    FieldReader,
    RelaxLift,
    RelaxLowering,
    RelaxScope,
    is_float,
    number,
    plain,
    tensor_type,
    unread_unless,
)
from gsl.front.tree import Canon
from gsl.spec.normalise import is_number

R, N = relax.op, relax.op.nn

# ---------------------------------------------------------------- one operand

_FLOAT: Final = (
    "acos", "acosh", "asin", "asinh", "atan", "atanh", "cos", "cosh", "erf", "exp", "log", "rsqrt", "sigmoid", "sin",
    "sinh", "sqrt", "tan", "tanh",
)  # fmt: skip
"""Functions of floats: of other numbers, torch computes them in floats, and Relax not at all."""

_WHOLE: Final = ("ceil", "floor", "round", "trunc")
"""Functions that leave integers alone."""

_SAME: Final = ("abs", "negative", "sign", "square")

_TESTS: Final = ("isfinite", "isinf", "isnan")


_NOT_IN_HALF: Final = frozenset(("acos", "acosh", "asin", "asinh", "atan", "atan2", "cosh", "sinh"))
"""Functions that Relax can't lower for float16."""


def _float(name: str) -> Lower:
    def write(w: RelaxLowering, *operands: Any) -> Any:
        inner = "float32" if w.dtype == "float16" and name in _NOT_IN_HALF else w.dtype
        return w.cast(w.call(getattr(R, name), *[w.cast(x, inner) for x in operands]), w.dtype)

    return write


def _whole(name: str) -> Lower:
    return lambda w, x: w.call(getattr(R, name), x) if is_float(w.dtype) else x


def _same(name: str) -> Lower:
    def write(w: RelaxLowering, x: Any) -> Any:
        if w.dtype == "bool":
            raise ValueError("Relax doesn't compute with bools")
        return w.call(getattr(R, name), x)

    return write


def _test(name: str) -> Lower:
    """Of integers, all are finite."""

    def write(w: RelaxLowering, x: Any) -> Any:
        return w.call(getattr(R, name), x) if is_float(w.dtype_of(x)) else w.full(name == "isfinite", w.shape, "bool")

    return write


# ---------------------------------------------------------------- two operands

_ARITHMETIC: Final = ("add", "subtract", "multiply", "mod", "maximum", "minimum")
_BITS: Final = ("bitwise_and", "bitwise_or", "bitwise_xor", "left_shift", "right_shift")
_IN_FLOATS: Final = ("divide", "atan2")
"""Of integers, Relax divides integers, and torch floats."""

_COMPARISONS: Final = ("equal", "not_equal", "less", "less_equal", "greater", "greater_equal")
_LOGIC: Final = ("logical_and", "logical_or", "logical_xor")


_OF_BOOLS: Final = {"add": "logical_or", "maximum": "logical_or", "multiply": "logical_and", "minimum": "logical_and"}


def _binary(name: str) -> Lower:
    def write(w: RelaxLowering, x: Any, y: Any) -> Any:
        if w.dtype == "bool" and name in _ARITHMETIC:
            if name not in _OF_BOOLS:
                raise ValueError("Relax doesn't compute with bools")
            return w.write(_OF_BOOLS[name], x, y)
        return w.call(getattr(R, name), w.cast(x, w.dtype), w.cast(y, w.dtype))

    return write


def _comparison(name: str) -> Lower:
    def write(w: RelaxLowering, x: Any, y: Any) -> Any:
        common = w.common(x, y)
        # Relax doesn't compare bools.
        operands = [w.cast(w.cast(value, common), "int8" if common == "bool" else common) for value in (x, y)]
        return w.call(getattr(R, name), *operands)

    return write


def truth(w: RelaxLowering, value: Any) -> Any:
    """A tensor or a number as one of bools."""
    if is_number(value) or w.dtype_of(value) == "bool":
        return w.cast(value, "bool")
    return w.write("not_equal", value, 0)


def _logic(name: str) -> Lower:
    return lambda w, *operands: w.call(getattr(R, name), *[truth(w, value) for value in operands])


def _floor_mod(w: RelaxLowering, x: Any, y: Any) -> Any:
    """Of floats by way of the remainder of the other sign, which is exact; Relax's own is not."""
    x, y = w.cast(x, w.dtype), w.cast(y, w.dtype)
    if not is_float(w.dtype):
        return w.call(R.floor_mod, x, y)
    return floor_mod_of_floats(w, x, y)


def _floor_divide(w: RelaxLowering, x: Any, y: Any) -> Any:
    """Of floats, what remains without the remainder, divided; Relax rounds the quotient before it takes the floor."""
    x, y = w.cast(x, w.dtype), w.cast(y, w.dtype)
    if not is_float(w.dtype):
        return w.call(R.floor_divide, x, y)
    return w.call(R.round, w.write("divide", w.write("subtract", x, _floor_mod(w, x, y)), y))


def _read_floor_divide(call: Any, scope: RelaxScope) -> Canon:
    if is_float(tensor_type(call, scope).dtype):
        return Canon("floor", (Canon("divide", tuple(call.args)),))
    return Canon("floor_divide", tuple(call.args))


def _power(w: RelaxLowering, x: Any, y: Any) -> Any:
    if is_float(w.dtype):
        return w.call(R.power, w.cast(x, w.dtype), w.cast(y, w.dtype))
    if not is_number(y) or not 0 <= y <= 8:
        raise ValueError("Relax has powers of floats only, and small ones of integers")
    result = w.full(1, w.shape, w.dtype)
    for _ in range(int(y)):
        result = w.write("multiply", result, x)
    return result


def _of(op: str, test: Callable[[str], bool]) -> RelaxLift:
    """The reader of an operator that is torch's for some dtypes only."""

    def read(call: Any, scope: RelaxScope) -> Canon:
        unread_unless(test(tensor_type(call, scope).dtype))
        return Canon(op, tuple(call.args))

    return read


# ---------------------------------------------------------------- others


def _read_where(call: Any, scope: RelaxScope) -> Canon:
    unread_unless(tensor_type(call.args[0], scope).dtype == "bool")
    return Canon("where", tuple(call.args))


def _clip(w: RelaxLowering, x: Any, a_min: Any, a_max: Any) -> Any:
    x = w.cast(x, w.dtype)
    if a_min is None:
        return x if a_max is None else w.write("minimum", x, a_max)
    if a_max is None:
        return w.write("maximum", x, a_min)
    if a_min > a_max:
        return w.full(a_max, w.shape, w.dtype)
    return w.call(R.clip, x, a_min, a_max)


def _read_clip(call: Any, scope: RelaxScope) -> Canon:
    data, low, high = call.args
    low, high = number(low), number(high)
    unread_unless(low <= high and low < math.inf and high > -math.inf)
    floats = is_float(tensor_type(data, scope).dtype)
    unread_unless(floats or not (isinstance(low, float) or isinstance(high, float)))
    if floats and (low, high) == (0, 6):
        # The operator that Relax offers as relu6.
        return Canon("nn.relu6", (data,))
    a_min, a_max = (None if abs(bound) == math.inf else bound for bound in (low, high))
    return Canon("clip", (data,), {"a_min": a_min, "a_max": a_max})


def _each(names: tuple[str, ...], write: Callable[[str], Lower]) -> dict[str, Lower]:
    return {name: write(name) for name in names}


# ---------------------------------------------------------------- activations


def _elu(w: RelaxLowering, x: Any, alpha: float) -> Any:
    """x where it is positive, alpha expm1(x) elsewhere."""
    negative = w.write("multiply", w.write("expm1", w.write("minimum", x, 0.0)), alpha)
    return w.write("where", w.write("greater", x, 0.0), x, negative)


def _prelu(w: RelaxLowering, data: Any, alpha: Any, axis: int) -> Any:
    channels = w.shape_of(data)[axis]
    if w.shape_of(alpha) == (channels,):
        return w.call(N.prelu, data, alpha, axis)
    scaled = w.write("multiply", alpha, data)
    return w.write("where", w.write("greater", data, 0), data, scaled)


def _read_prelu(call: Any, scope: RelaxScope) -> Canon:
    data, alpha = call.args
    shape, axis = tensor_type(data, scope).shape, int(call.attrs.axis)
    unread_unless(tensor_type(alpha, scope).shape == (shape[axis],))
    return Canon("nn.prelu", (data, alpha), {"axis": axis})


def _read_dropout(call: Any, index: int, scope: RelaxScope) -> Canon:
    """The data as they are, or the mask, which keeps all of them."""
    if index == 0:
        return Canon("nn.dropout", tuple(call.args), {"rate": float(call.attrs.rate)})
    return Canon("ones_like", tuple(call.args))


def _read_gelu(approximate: str) -> RelaxLift:
    return lambda call, scope: Canon("gelu", tuple(call.args), {"approximate": approximate})

FIELDS: Final[Mapping[str, FieldReader]] = {"relax.nn.dropout": _read_dropout}


WRITE: Final[Mapping[str, Lower]] = {
    **_each(_FLOAT, _float),
    **_each(_WHOLE, _whole),
    **_each(_SAME, _same),
    **_each(_TESTS, _test),
    **_each((*_ARITHMETIC, *_BITS), _binary),
    **_each(_IN_FLOATS, _float),
    **_each(_COMPARISONS, _comparison),
    **_each((*_LOGIC, "logical_not"), _logic),
    "bitwise_not": lambda w, x: w.call(R.bitwise_not, x),
    "copy": lambda w, x: x,
    "floor_divide": _floor_divide,
    "floor_mod": _floor_mod,
    "power": _power,
    "where": lambda w, test, x, y: w.call(R.where, truth(w, test), w.cast(x, w.dtype), w.cast(y, w.dtype)),
    "clip": _clip,
    "cast": lambda w, x, dtype: truth(w, x) if dtype == "bool" else w.cast(x, dtype),
    "nn.relu": lambda w, x: w.call(N.relu, x),
    "nn.relu6": lambda w, x: w.call(N.relu6, x),
    "nn.leaky_relu": lambda w, x, alpha: w.call(N.leakyrelu, x, alpha),
    "elu": _elu,
    "selu": lambda w, x: w.call(N.selu, x),
    "gelu": lambda w, x, approximate: w.call(N.gelu_tanh if approximate == "tanh" else N.gelu, x),
    "silu": lambda w, x: w.call(N.silu, x),
    "softplus": lambda w, x, beta, threshold: w.call(N.softplus, x, beta, threshold),
    "nn.prelu": _prelu,
    "nn.softmax": lambda w, x, axis: w.call(N.softmax, w.cast(x, w.dtype), axis),
    "nn.log_softmax": lambda w, x, axis: w.call(N.log_softmax, w.cast(x, w.dtype), axis),
    "nn.dropout": lambda w, x, rate: w.field(w.call(N.dropout, x, rate), 0),
}

READ: Final[Mapping[str, RelaxLift]] = {
    **{f"relax.{name}": _of(name, is_float) for name in (*_FLOAT, *_IN_FLOATS, "power")},
    **{f"relax.{name}": _of(name, lambda dtype: dtype != "bool") for name in (*_SAME, *_WHOLE, *_ARITHMETIC)},
    **{f"relax.{name}": _of(name, lambda dtype: not is_float(dtype)) for name in ("floor_mod", "bitwise_not", *_BITS)},
    **{f"relax.{name}": plain(name, 1) for name in (*_TESTS, "logical_not")},
    **{f"relax.{name}": plain(name, 2) for name in (*_COMPARISONS, *_LOGIC)},
    "relax.floor_divide": _read_floor_divide,
    "relax.where": _read_where,
    "relax.clip": _read_clip,
    "relax.astype": plain("cast", 1, "dtype"),
    "relax.nn.relu": plain("nn.relu", 1),
    "relax.nn.leakyrelu": plain("nn.leaky_relu", 1, "alpha"),
    "relax.nn.selu": plain("selu", 1),
    "relax.nn.gelu": _read_gelu("none"),
    "relax.nn.gelu_tanh": _read_gelu("tanh"),
    "relax.nn.silu": plain("silu", 1),
    "relax.nn.softplus": plain("softplus", 1, "beta", "threshold"),
    "relax.nn.prelu": _read_prelu,
    "relax.nn.softmax": plain("nn.softmax", 1, "axis"),
    "relax.nn.log_softmax": plain("nn.log_softmax", 1, "axis"),
}

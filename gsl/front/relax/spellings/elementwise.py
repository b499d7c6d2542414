"""Spellings of the element-wise operators: arithmetic, comparisons, mathematical functions, casts."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any, Final

from tvm import relax

from gsl.front.core.lower import Lower, floor_mod_of_floats
from gsl.front.relax.spellings.reading import (
    RelaxLift,
    RelaxScope,
    dtype_name,
    number,
    plain,
    tensor_type,
    unread_unless,
)
from gsl.front.relax.spellings.writing import RelaxLowering, is_float
from gsl.front.tree import Canon
from gsl.spec.normalise import is_number

R = relax.op

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


def _is_number(dtype: str) -> bool:
    return dtype != "bool"


def _is_whole(dtype: str) -> bool:
    return not is_float(dtype)


# ---------------------------------------------------------------- others


def _where(w: RelaxLowering, condition: Any, x: Any, y: Any) -> Any:
    return w.call(R.where, truth(w, condition), w.cast(x, w.dtype), w.cast(y, w.dtype))


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


def _cast(w: RelaxLowering, x: Any, dtype: str) -> Any:
    return truth(w, x) if dtype == "bool" else w.cast(x, dtype)


def _read_cast(call: Any, scope: RelaxScope) -> Canon:
    return Canon("cast", (call.args[0],), {"dtype": dtype_name(call.attrs.dtype)})


def _each(names: tuple[str, ...], write: Callable[[str], Lower]) -> dict[str, Lower]:
    return {name: write(name) for name in names}


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
    "where": _where,
    "clip": _clip,
    "cast": _cast,
}

READ: Final[Mapping[str, RelaxLift]] = {
    **{f"relax.{name}": _of(name, is_float) for name in (*_FLOAT, *_IN_FLOATS, "power")},
    **{f"relax.{name}": _of(name, _is_number) for name in (*_SAME, *_WHOLE, *_ARITHMETIC)},
    **{f"relax.{name}": _of(name, _is_whole) for name in ("floor_mod", "bitwise_not", *_BITS)},
    **{f"relax.{name}": plain(name, 1) for name in (*_TESTS, "logical_not")},
    **{f"relax.{name}": plain(name, 2) for name in (*_COMPARISONS, *_LOGIC)},
    "relax.floor_divide": _read_floor_divide,
    "relax.where": _read_where,
    "relax.clip": _read_clip,
    "relax.astype": _read_cast,
}

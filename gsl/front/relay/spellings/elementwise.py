"""Element-wise arithmetic, mathematical functions, comparisons and logic; activations, softmax and dropout."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final

import numpy as np
from tvm import relay

from gsl.front.core.infer import shortest
from gsl.front.relay.spellings.linear import read_bias
from gsl.front.relay.spellings.table import (
    FLOATS,
    RelayCall,
    RelayLift,
    RelayLowering,
    RelayRow,
    check,
    const,
    last,
    literals,
    of_floats,
    row,
    same,
)
from gsl.front.tree import Canon

# ---------------------------------------------------------------- functions of one tensor


def _function(op: str) -> RelayRow:
    """A mathematical function, of whose operand torch makes floating-point numbers first."""
    function = getattr(relay, op)
    return RelayRow(op, lambda w: function(w.expr(0, w.result.dtype)), {op: same(op)})


def _test(op: str) -> RelayRow:
    """A question about each element."""
    function = getattr(relay, op)
    return RelayRow(op, lambda w: function(w.x), {op: same(op)})


def _whole(op: str) -> RelayRow:
    """A way of rounding, which leaves integers alone."""
    function = getattr(relay, op)

    def write(w: RelayLowering) -> Any:
        return function(w.x) if w.type().dtype in FLOATS else relay.copy(w.x)

    return RelayRow(op, write, {op: same(op)})


def expm1(x: Any, dtype: str) -> Any:
    """``exp(x) - 1``, also where x is so small that the difference would lose it."""
    e, one = relay.exp(x), const(1, dtype)
    less = e - one
    close = less * x / relay.log(e)
    # Where exp(x) is 1, x is the answer; where it is 0 or infinite, so is the difference, or -1.
    far = relay.logical_or(relay.equal(less, const(-1, dtype)), relay.isinf(e))
    return relay.where(relay.equal(e, one), x, relay.where(far, less, close))


def log1p(x: Any, dtype: str) -> Any:
    """``log(1 + x)``, also where x is so small that the sum would lose it."""
    one = const(1, dtype)
    u = one + x
    log = relay.log(u)
    close = log * (x / (u - one))
    return relay.where(relay.equal(u, one), x, relay.where(relay.equal(u, x), log, close))


def _composed(op: str, function: Callable[[Any, str], Any]) -> RelayRow:
    """A function that Relay does not have, on an operand of the dtype of the result."""
    return RelayRow(op, lambda w: function(w.expr(0, w.result.dtype), w.result.dtype))


def _round(w: RelayLowering) -> Any:
    """Halves go to the even neighbour; those of Relay's own ``round`` go away from zero."""
    x, dtype = w.x, w.type().dtype
    if dtype not in FLOATS:
        return relay.copy(x)
    down, half = relay.floor(x), const(0.5, dtype)
    rest, up = x - down, down + const(1, dtype)
    even = down - relay.floor(down * half) * const(2, dtype)
    is_down = relay.logical_or(
        relay.less(rest, half), relay.logical_and(relay.equal(rest, half), relay.equal(even, const(0, dtype)))
    )
    return relay.where(is_down, down, up)


def truth(w: RelayLowering, position: int = 0) -> Any:
    """An operand as bools."""
    found = w.types[position]
    if isinstance(found, (bool, int, float)):
        return const(bool(found), "bool")
    return w.expr(position, "bool")


_FUNCTIONS: Final = (
    "exp", "log", "log2", "log10", "sqrt", "rsqrt", "erf", "sin", "cos", "tan", "asin", "acos", "atan", "sinh", "cosh",
    "asinh", "acosh", "atanh", "tanh", "sigmoid",
)  # fmt: skip

_UNARY: Final = (
    *map(_function, _FUNCTIONS),
    *map(_test, ("negative", "abs", "sign", "copy", "isnan", "isinf", "isfinite", "bitwise_not")),
    *map(_whole, ("floor", "ceil", "trunc")),
    _composed("expm1", expm1),
    _composed("log1p", log1p),
    RelayRow("round", _round),
    RelayRow("logical_not", lambda w: relay.logical_not(truth(w)), {"logical_not": same("logical_not")}),
)

# ---------------------------------------------------------------- operators of two tensors


def _reads(op: str, dtypes: str = "") -> RelayLift:
    """Reads a call of two tensors of one dtype, whose name begins with one of those if there are some."""

    def read(r: RelayCall) -> Canon:
        check(not dtypes or r.type().dtype.startswith(tuple(dtypes.split())))
        return Canon(op, literals(r.operands))

    return read


_NUMBERS: Final = "float bfloat int uint"
_INTEGERS: Final = "int uint"


def _binary(op: str, dtypes: str = "", *, of_bools: str = "") -> RelayRow:
    """An operator that both sides have, on some dtypes; on bools it may be another one."""
    function = getattr(relay, op)

    def write(w: RelayLowering) -> Any:
        operate = getattr(relay, of_bools) if of_bools and w.common() == "bool" else function
        return operate(*w.promoted())

    return RelayRow(op, write, {op: _reads(op, dtypes)})


def _logical(op: str) -> RelayRow:
    function = getattr(relay, op)
    return RelayRow(op, lambda w: function(truth(w, 0), truth(w, 1)), {op: _reads(op)})


def _divide(w: RelayLowering) -> Any:
    return relay.divide(w.expr(0, w.result.dtype), w.expr(1, w.result.dtype))


def _differ(a: Any, b: Any, dtype: str) -> Any:
    """True where one of two numbers is negative and the other is not."""
    zero = const(0, dtype)
    return relay.not_equal(relay.less(a, zero), relay.less(b, zero))


def _floor_mod(w: RelayLowering) -> Any:
    a, b = w.promoted()
    dtype = w.common()
    if dtype not in FLOATS:
        return relay.floor_mod(a, b)
    # Relay's own is a - floor(a / b) * b, which the rounding of the quotient spoils.
    rest = relay.op.mod(a, b)
    other = relay.logical_and(relay.not_equal(rest, const(0, dtype)), _differ(rest, b, dtype))
    return relay.where(other, rest + b, rest)


def _floor_divide(w: RelayLowering) -> Any:
    a, b = w.promoted()
    dtype = w.common()
    if dtype not in FLOATS:
        return relay.floor_divide(a, b)
    zero, one = const(0, dtype), const(1, dtype)
    rest = relay.op.mod(a, b)
    whole = (a - rest) / b
    other = relay.logical_and(relay.not_equal(rest, zero), _differ(rest, b, dtype))
    whole = relay.where(other, whole - one, whole)
    down = relay.floor(whole)
    down = relay.where(relay.greater(whole - down, const(0.5, dtype)), down + one, down)
    return relay.where(relay.equal(b, zero), a / b, down)


def _power(w: RelayLowering) -> Any:
    dtype, exponent = w.common(), w.types[1]
    if dtype in FLOATS:
        return relay.power(*w.promoted())
    if not isinstance(exponent, int) or not 0 <= exponent <= 64:
        raise ValueError("power: Relay has no powers of integers but those with a small constant exponent")
    x = w.expr(0, dtype)
    result = relay.ones_like(x) if exponent == 0 else x
    for _ in range(exponent - 1):
        result = relay.multiply(result, x)
    return result


def _atan2(w: RelayLowering) -> Any:
    """The angle of a point: from that in the first octant, by reflections."""
    dtype = w.result.dtype
    y, x = w.expr(0, dtype), w.expr(1, dtype)
    zero, one = const(0, dtype), const(1, dtype)

    def is_negative(value: Any) -> Any:
        # A zero has a sign, which only its reciprocal shows.
        return relay.less(relay.where(relay.equal(value, zero), one / value, value), zero)

    high, wide = relay.abs(y), relay.abs(x)
    long = relay.maximum(high, wide)
    ratio = relay.minimum(high, wide) / relay.where(relay.equal(long, zero), one, long)
    both = relay.logical_and(relay.isinf(high), relay.isinf(wide))
    angle = relay.atan(relay.where(both, one, ratio))
    angle = relay.where(relay.greater(high, wide), const(math.pi / 2, dtype) - angle, angle)
    angle = relay.where(is_negative(x), const(math.pi, dtype) - angle, angle)
    angle = relay.where(relay.logical_or(relay.isnan(x), relay.isnan(y)), x + y, angle)
    return relay.where(is_negative(y), relay.negative(angle), angle)


_SUM: Final = _binary("add", _NUMBERS, of_bools="logical_or")


def _read_add(r: RelayCall) -> Canon:
    return read_bias(r) or _SUM.read["add"](r)


_ADD: Final = replace(_SUM, read={**_SUM.read, "add": _read_add})

_COMPARISONS: Final = ("equal", "not_equal", "less", "less_equal", "greater", "greater_equal")

_BINARY: Final = (
    _ADD,
    _binary("subtract", _NUMBERS),
    _binary("multiply", _NUMBERS, of_bools="logical_and"),
    RelayRow("divide", _divide, {"divide": _reads("divide", "float bfloat")}),
    RelayRow("floor_divide", _floor_divide, {"floor_divide": _reads("floor_divide", _INTEGERS)}),
    RelayRow("floor_mod", _floor_mod, {"floor_mod": _reads("floor_mod", _INTEGERS)}),
    RelayRow("mod", lambda w: relay.op.mod(*w.promoted()),
        {"mod": _reads("mod", _NUMBERS), "trunc_mod": _reads("mod", _INTEGERS)}),
    RelayRow("power", _power, {"power": _reads("power", "float bfloat")}),
    _binary("left_shift", _INTEGERS),
    _binary("right_shift", _INTEGERS),
    _binary("maximum"),
    _binary("minimum"),
    RelayRow("atan2", _atan2),
    *map(_binary, _COMPARISONS),
    *map(_logical, ("logical_and", "logical_or", "logical_xor")),
    *map(_binary, ("bitwise_and", "bitwise_or", "bitwise_xor")),
)  # fmt: skip

# ---------------------------------------------------------------- others


def _read_where(r: RelayCall) -> Canon:
    return Canon("where", (r.x, *literals(r.operands[1:])))


def _where(w: RelayLowering) -> Any:
    return relay.where(truth(w), *w.promoted(1, 2))


def _read_clip(r: RelayCall) -> Canon:
    """Relay has both bounds, as floats, of which infinity is none; they are cast to the dtype of the operand."""
    low, high, dtype = r["a_min"], r["a_max"], r.type().dtype
    # The wrong way round, torch takes the upper bound and Relay the lower one.
    check(low <= high and low != math.inf and high != -math.inf)
    if dtype in FLOATS:
        low, high = (shortest(bound) if dtype == "float32" else bound for bound in (low, high))
        return Canon("clip", (r.x,), {"a_min": _finite(low), "a_max": _finite(high)})
    check(dtype.startswith(("int", "uint")) and float(low).is_integer() and float(high).is_integer())
    limits = np.iinfo(dtype)
    check(limits.min <= low and high <= limits.max)
    return Canon("clip", (r.x,), {"a_min": int(low), "a_max": int(high)})


def _finite(bound: float) -> float | None:
    return None if math.isinf(bound) else bound


def _clip(w: RelayLowering) -> Any:
    low, high, dtype = w["a_min"], w["a_max"], w.result.dtype
    x = w.expr(0, dtype)
    # Relay has floats for bounds, which are not every integer.
    if low is not None and high is not None and low <= high and float(low) == low and float(high) == high:
        return relay.clip(x, float(low), float(high))
    if low is not None:
        x = relay.maximum(x, const(low, dtype))
    return x if high is None else relay.minimum(x, const(high, dtype))


def _read_cast_like(r: RelayCall) -> Canon:
    return Canon("cast", (r.x,), {"dtype": r.type(1).dtype})


def _cast(w: RelayLowering) -> Any:
    if isinstance(w.types[0], (bool, int, float)):
        return const(w.types[0], w["dtype"])
    return relay.cast(w.x, w["dtype"])


_OTHERS: Final = (
    RelayRow("where", _where, {"where": _read_where}),
    RelayRow("clip", _clip, {"clip": _read_clip}),
    RelayRow("cast", _cast, {"cast": same("cast"), "cast_like": _read_cast_like}),
)


# ---------------------------------------------------------------- activations


def _floating(w: RelayLowering) -> tuple[Any, str]:
    """The operand and its dtype, which is one of floats."""
    return w.expr(0, w.result.dtype), w.result.dtype


def _elu(w: RelayLowering) -> Any:
    x, dtype = _floating(w)
    return _exponential(x, dtype, w["alpha"])


def _exponential(x: Any, dtype: str, alpha: float) -> Any:
    below = expm1(x, dtype)
    below = below if alpha == 1 else const(alpha, dtype) * below
    return relay.where(relay.greater(x, const(0, dtype)), x, below)


def _selu(w: RelayLowering) -> Any:
    x, dtype = _floating(w)
    return const(1.0507009873554805, dtype) * _exponential(x, dtype, 1.6732632423543772)


def _gelu(w: RelayLowering) -> Any:
    x, dtype = _floating(w)
    one, half = const(1, dtype), const(0.5, dtype)
    if w["approximate"] == "none":
        inner = relay.erf(x * const(math.sqrt(0.5), dtype))
    else:
        inner = relay.tanh(const(math.sqrt(2 / math.pi), dtype) * (x + const(0.044715, dtype) * x * x * x))
    return half * x * (one + inner)


def _mish(w: RelayLowering) -> Any:
    x, dtype = _floating(w)
    return x * relay.tanh(log1p(relay.exp(x), dtype))


def _softplus(w: RelayLowering) -> Any:
    x, dtype = _floating(w)
    beta = const(w["beta"], dtype)
    scaled = x if w["beta"] == 1 else beta * x
    soft = log1p(relay.exp(scaled), dtype)
    soft = soft if w["beta"] == 1 else soft / beta
    return relay.where(relay.greater(scaled, const(w["threshold"], dtype)), x, soft)


def _read_prelu(r: RelayCall) -> Canon:
    check(r.type(1).ndim == 1)
    return same("nn.prelu")(r)


def _prelu(w: RelayLowering) -> Any:
    x, slope, axis = w.type(0), w.type(1), w["axis"]
    if x.dtype == slope.dtype and slope.shape == (x.shape[axis],):
        return relay.nn.prelu(w.x, w.expr(1), axis)
    dtype = w.result.dtype
    data, alpha = w.expr(0, dtype), w.expr(1, dtype)
    if slope.ndim == 1 and axis < x.ndim - 1:
        alpha = relay.reshape(alpha, (-1, *(1,) * (x.ndim - 1 - axis)))
    return relay.where(relay.greater(data, const(0, dtype)), data, alpha * data)


def _softmax(op: str) -> RelayRow:
    function = getattr(relay.nn, op.removeprefix("nn."))

    def write(w: RelayLowering) -> Any:
        return function(w.x, axis=last(w["axis"], w.type().ndim))

    return RelayRow(op, write, {op: of_floats(op)})


ROWS: Final = (
    *_UNARY,
    *_BINARY,
    *_OTHERS,
    row("nn.relu", relay.nn.relu),
    row("nn.leaky_relu", relay.nn.leaky_relu),
    RelayRow("elu", _elu),
    RelayRow("selu", _selu),
    RelayRow("gelu", _gelu),
    RelayRow("mish", _mish),
    RelayRow("softplus", _softplus),
    RelayRow("nn.prelu", _prelu, {"nn.prelu": _read_prelu}),
    _softmax("nn.softmax"),
    _softmax("nn.log_softmax"),
    # Relay's has a second result, the mask.
    RelayRow("nn.dropout", lambda w: relay.nn.dropout(w.x, w["rate"]), fields={("nn.dropout", 0): same("nn.dropout")}),
)

"""Spellings of the element-wise operators: arithmetic, comparisons, mathematical functions, casts, activations."""

from __future__ import annotations

import math
from typing import Any, Final

from gsl.front.core.lower import LOWERED, Lower, floor_mod_of_floats
from gsl.front.onnx.spellings.linear import bias_of
from gsl.front.onnx.spellings.reading import (
    OnnxCall,
    OnnxLift,
    OnnxUnread,
    arithmetic,
    calculated,
    is_float,
    same,
    unread_unless,
)
from gsl.front.onnx.spellings.writing import OnnxLowering, OnnxRow, row
from gsl.front.onnx.types import DTYPES, onnx_dtype
from gsl.front.tree import Canon
from gsl.spec.normalise import is_number

# ---------------------------------------------------------------- one operand

_FUNCTIONS: Final = {
    "acos": "Acos", "acosh": "Acosh", "asin": "Asin", "asinh": "Asinh", "atan": "Atan", "atanh": "Atanh",
    "cos": "Cos", "cosh": "Cosh", "erf": "Erf", "exp": "Exp", "log": "Log", "sigmoid": "Sigmoid", "sin": "Sin",
    "sinh": "Sinh", "sqrt": "Sqrt", "tan": "Tan", "tanh": "Tanh", "abs": "Abs", "negative": "Neg", "sign": "Sign",
    "copy": "Identity",
}  # fmt: skip
"""Functions of any numbers, and of floats: of other numbers, torch computes those in floats, and ONNX not at all."""


def _whole(name: str) -> Lower:
    """A function that leaves integers alone."""
    return lambda w, x: w.call(name, x) if is_float(w.dtype) else x


def _test(name: str) -> Lower:
    """Of integers, all are finite."""
    return lambda w, x: w.call(name, x) if is_float(w.dtype_of(x)) else w.full(False, w.shape, "bool")


# ---------------------------------------------------------------- two operands

_COMPARISONS: Final = {
    "equal": "Equal", "less": "Less", "less_equal": "LessOrEqual", "greater": "Greater",
    "greater_equal": "GreaterOrEqual",
}  # fmt: skip
_OF_BOOLS: Final = {
    "add": "logical_or", "maximum": "logical_or", "multiply": "logical_and", "minimum": "logical_and",
    "bitwise_and": "logical_and", "bitwise_or": "logical_or", "bitwise_xor": "logical_xor",
}  # fmt: skip


def _binary(op: str, name: str, **attrs: Any) -> Lower:
    def write(w: OnnxLowering, x: Any, y: Any) -> Any:
        if w.dtype == "bool":
            if op not in _OF_BOOLS:
                raise ValueError(f"ONNX has no {name} of bool")
            return w.write(_OF_BOOLS[op], x, y)
        return w.call(name, w.cast(x, w.dtype), w.cast(y, w.dtype), **attrs)

    return write


def _calculation(op: str, name: str, read: OnnxLift | None = None, *others: tuple[str, ...]) -> OnnxRow:
    return OnnxRow(op, name, _binary(op, name), read or calculated(op), *others)


def _comparison(name: str) -> Lower:
    def write(w: OnnxLowering, x: Any, y: Any) -> Any:
        common = w.common(x, y)
        if common == "bool" and name != "Equal":
            common = "int32"
        return w.call(name, *[w.cast(w.cast(v, "bool") if common == "bool" else v, common) for v in (x, y)])

    return write


def _read_after(op: str, both: str) -> OnnxLift:
    """The reader of a function; where another node computes its operand for it alone, the two are one call."""

    def read(r: OnnxCall) -> Canon:
        node = r.inner(r.x)
        if node is None:
            return Canon(op, r.inputs)
        r.through.append(node)
        return Canon(both, arithmetic(OnnxCall(node, r.scope)))

    return read


def _logic(name: str) -> Lower:
    return lambda w, *operands: w.call(name, *[w.cast(value, "bool") for value in operands])


def _floor_mod(w: OnnxLowering, x: Any, y: Any) -> Any:
    x, y = w.cast(x, w.dtype), w.cast(y, w.dtype)
    if not is_float(w.dtype):
        return w.call("Mod", x, y)
    return floor_mod_of_floats(w, x, y)


def _floor_divide(w: OnnxLowering, x: Any, y: Any) -> Any:
    """The quotient of what is left without the remainder."""
    x, y = w.cast(x, w.dtype), w.cast(y, w.dtype)
    whole = w.call("Div", w.write("subtract", x, w.write("floor_mod", x, y)), y)
    return w.write("round", whole) if is_float(w.dtype) else whole


def _read_mod(r: OnnxCall) -> Canon:
    unread_unless(bool(r.attr("fmod", 0)) or not is_float(r.type().dtype))
    return Canon("mod" if r.attr("fmod", 0) else "floor_mod", arithmetic(r))


def _read_divide(r: OnnxCall) -> Canon:
    # Of integers, ONNX divides integers.
    unread_unless(is_float(r.type().dtype))
    return Canon("divide", arithmetic(r))


def _read_power(r: OnnxCall) -> Canon:
    base, exponent = arithmetic(r)
    unread_unless(r.type(0).dtype == r.type(1).dtype or exponent is not r.inputs[1])
    return Canon("power", (base, exponent))


def _power(w: OnnxLowering, x: Any, y: Any) -> Any:
    if not is_float(w.dtype) and not (is_number(y) and y >= 0):
        raise ValueError("the powers of integers are those of ONNX only where the exponent is known not to be negative")
    return w.call("Pow", w.cast(x, w.dtype), w.cast(y, w.dtype))


def _read_shift(r: OnnxCall) -> Canon:
    return Canon("left_shift" if r.attr("direction") == "LEFT" else "right_shift", arithmetic(r))


def _chain(op: str) -> OnnxLift:
    """The reader of an operator over any number of tensors."""

    def read(r: OnnxCall) -> Canon:
        unread_unless(len(r.inputs) > 1)
        first, *others = arithmetic(r)
        for other in others:
            first = Canon(op, (first, other))
        return first  # type: ignore[no-any-return]

    return read


def _read_add(r: OnnxCall) -> Canon:
    for data, other in (r.inputs, r.inputs[::-1]):
        try:
            return bias_of(r, data, other)
        except OnnxUnread:
            pass
    return Canon("add", arithmetic(r))


# ---------------------------------------------------------------- others


def _read_where(r: OnnxCall) -> Canon:
    x, y = r.operand(1), r.operand(2)
    if x is not r.inputs[1] and y is not r.inputs[2]:
        x, y = r.inputs[1:]
    return Canon("where", (r.x, x, y))


def _clip(w: OnnxLowering, x: Any, a_min: Any, a_max: Any) -> Any:
    bounds = [None if bound is None else w.cast(bound, w.dtype) for bound in (a_min, a_max)]
    while bounds and bounds[-1] is None:
        bounds.pop()
    return w.call("Clip", w.cast(x, w.dtype), *bounds)


def _read_clip(r: OnnxCall) -> Canon:
    low, high = r.number(1), r.number(2)
    unread_unless(low is not None or high is not None)
    if (low, high) == (0, 6):
        return Canon("nn.relu6", (r.x,))
    return Canon("clip", (r.x,), {"a_min": low, "a_max": high})


def _read_cast(r: OnnxCall) -> Canon:
    return _cast(r, DTYPES.get(r.attr("to")))


def _cast(r: OnnxCall, dtype: str | None) -> Canon:
    unread_unless(dtype is not None and "float8" not in dtype)
    return Canon("cast", (r.x,), {"dtype": dtype})


# ---------------------------------------------------------------- activations

_DOUBLE: Final = ("float64",)
"""The dtype in which onnxruntime has no kernel for most activations, so that they are composed of others."""


def _softplus(w: OnnxLowering, x: Any, beta: float, threshold: float) -> Any:
    if w.dtype in _DOUBLE:
        return LOWERED["softplus"](w, x, beta, threshold)
    if beta == 1 and threshold >= 15:
        return w.call("Softplus", x)
    scaled = w.write("multiply", x, float(beta))
    soft = w.write("divide", w.write("softplus", scaled, beta=1.0, threshold=20.0), float(beta))
    return w.write("where", w.write("greater", scaled, float(threshold)), x, soft)


def _gelu(w: OnnxLowering, x: Any, approximate: str) -> Any:
    """In the words of which onnxruntime makes one node."""
    if approximate != "none":
        return LOWERED["gelu"](w, x, approximate)
    inner = w.write("add", w.write("erf", w.write("divide", x, math.sqrt(2))), 1.0)
    return w.write("multiply", w.write("multiply", x, 0.5), inner)


def _hard_sigmoid(w: OnnxLowering, x: Any) -> Any:
    if w.dtype in _DOUBLE:
        return w.write("divide", w.write("nn.relu6", w.write("add", x, 3.0)), 6.0)
    return w.call("HardSigmoid", x, alpha=1 / 6, beta=0.5)


def _prelu(w: OnnxLowering, data: Any, alpha: Any, axis: int) -> Any:
    slope = w.cast(alpha, w.dtype)
    if w.rank_of(slope):
        slope = w.along(slope, w.rank_of(data), axis) if w.shape_of(slope) != (1,) else slope
    if w.dtype in _DOUBLE:
        return w.write("where", w.write("less", data, 0.0), w.write("multiply", data, slope), data)
    return w.call("PRelu", data, slope)


def _read_prelu(r: OnnxCall) -> Canon:
    """Torch exports the slopes of its channels as (1, channels, 1, …)."""
    shape, slope = r.type(0).shape, r.type(1).shape
    if slope == (1,):
        return Canon("nn.prelu", r.inputs)
    while len(slope) > 1 and slope[0] == 1:
        slope = slope[1:]
    axis = len(shape) - len(slope) if slope != (1,) else 1
    unread_unless(axis >= 0 and len(slope) > 0 and slope in ((1,), (shape[axis],) + (1,) * (len(slope) - 1)))
    alpha = r.vector(r.inputs[1])
    if alpha is None:
        alpha = Canon("reshape", r.inputs[1:], {"newshape": slope[:1]})
    return Canon("nn.prelu", (r.x, alpha), {"axis": axis})


def _read_hard_sigmoid(r: OnnxCall) -> Canon:
    alpha, beta = r.attr("alpha", 0.2), r.attr("beta", 0.5)
    if abs(alpha - 1 / 6) < 1e-6 and beta == 0.5:
        return Canon("hardsigmoid", (r.x,))
    return Canon("clip", (Canon("add", (Canon("multiply", (r.x, alpha)), beta)),), {"a_min": 0, "a_max": 1})


def _read_dropout(r: OnnxCall) -> Canon:
    """In inference only."""
    if r.has(2):
        unread_unless(not r.array(2).any())
    rate = 0.5 if not r.has(1) else float(r.number(1))
    return Canon("nn.dropout", (r.x,), {"rate": rate})


def _read_multiply(r: OnnxCall) -> Canon:
    if r.inputs[0] is r.inputs[1]:
        return Canon("square", (r.x,))
    return Canon("multiply", arithmetic(r))


ROWS: Final = (
    *(row(op, name) for op, name in _FUNCTIONS.items()),
    *(row(name.lower(), name, _whole(name)) for name in ("Ceil", "Floor", "Round")),
    row("isnan", "IsNaN", _test("IsNaN")),
    row("isinf", "IsInf", _test("IsInf"), same("isinf", only={"detect_negative": 1, "detect_positive": 1})),
    row("isfinite", "", lambda w, x: w.write(
        "logical_not", w.write("logical_or", w.write("isinf", x), w.write("isnan", x)))),
    row("trunc", "", lambda w, x: (
        w.write("multiply", w.write("sign", x), w.write("floor", w.write("abs", x))) if is_float(w.dtype) else x)),
    row("reciprocal", "Reciprocal", read=_read_after("reciprocal", "rsqrt"), also=("rsqrt",)),
    row("rsqrt", "", lambda w, x: w.write("reciprocal", w.write("sqrt", x))),
    _calculation("add", "Add", _read_add, ("nn.bias_add",)),
    _calculation("subtract", "Sub"),
    _calculation("multiply", "Mul", _read_multiply, ("square",)),
    row("divide", "Div", read=_read_divide),
    _calculation("maximum", "Max", _chain("maximum"), (), ("maximum",)),
    _calculation("minimum", "Min", _chain("minimum"), (), ("minimum",)),
    row("", "Sum", read=_chain("add"), also=("add",), inner=("add",)),
    row("mod", "Mod", _binary("mod", "Mod", fmod=1), _read_mod, also=("floor_mod",)),
    row("floor_mod", "", _floor_mod),
    row("floor_divide", "", _floor_divide),
    row("power", "Pow", _power, _read_power),
    *(OnnxRow(op, name, _comparison(name), calculated(op)) for op, name in _COMPARISONS.items()),
    row("not_equal", "", lambda w, x, y: w.call("Not", w.write("equal", x, y))),
    *(OnnxRow(f"logical_{name.lower()}", name, _logic(name), calculated(f"logical_{name.lower()}"))
      for name in ("And", "Or", "Xor")),
    row("logical_not", "Not", _logic("Not"), _read_after("logical_not", "not_equal"),
        also=("not_equal",)),
    *(_calculation(f"bitwise_{name.lower()}", f"Bitwise{name}") for name in ("And", "Or", "Xor")),
    row("bitwise_not", "BitwiseNot", lambda w, x: w.call("Not" if w.dtype == "bool" else "BitwiseNot", x)),
    row("left_shift", "BitShift", _binary("left_shift", "BitShift", direction="LEFT"), _read_shift,
        also=("right_shift",)),
    row("right_shift", "", _binary("right_shift", "BitShift", direction="RIGHT")),
    row("where", "Where", lambda w, test, x, y: w.call(
        "Where", w.cast(test, "bool"), w.cast(x, w.dtype), w.cast(y, w.dtype)), _read_where),
    row("clip", "Clip", _clip, _read_clip, also=("nn.relu6",)),
    row("cast", "Cast", lambda w, x, dtype: (
        w.cast(x, dtype) if is_number(x) else w.call("Cast", x, to=onnx_dtype(dtype))), _read_cast),
    row("", "CastLike", read=lambda r: _cast(r, r.type(1).dtype), also=("cast",)),
    row("nn.relu", "Relu", lambda w, x: w.write("maximum", x, 0), lacks=("int64",)),
    row("nn.leaky_relu", "LeakyRelu", lambda w, x, alpha: w.write(
        "where", w.write("less", x, 0.0), w.write("multiply", x, alpha), x), lacks=_DOUBLE, alpha=0.01),
    row("elu", "Elu", LOWERED["elu"], lacks=_DOUBLE, alpha=1.0),
    row("selu", "Selu", LOWERED["selu"], same("selu", only={"alpha": 1.6732632, "gamma": 1.050701}), lacks=_DOUBLE),
    row("gelu", "Gelu", _gelu, since=20, approximate="none"),
    row("", "Swish", read=same("silu", only={"alpha": 1.0}), also=("silu",)),
    row("mish", "Mish", LOWERED["mish"], since=18, lacks=_DOUBLE),
    row("hardswish", "HardSwish", lambda w, x: w.write("multiply", x, w.write("hardsigmoid", x)), since=14,
        lacks=_DOUBLE),
    row("hardsigmoid", "HardSigmoid", _hard_sigmoid, _read_hard_sigmoid,
        also=("clip",), inner=("add", "multiply")),
    row("softplus", "Softplus", _softplus, same("softplus", {"beta": 1.0, "threshold": 20.0})),
    row("nn.prelu", "PRelu", _prelu, _read_prelu, inner=("reshape",)),
    row("nn.softmax", "Softmax", axis=-1),
    row("nn.log_softmax", "LogSoftmax", axis=-1),
    row("nn.dropout", "Dropout", lambda w, x, rate: w.call(
        "Dropout", x, w.cast(float(rate), "float32")), _read_dropout),
)  # fmt: skip

"""Spellings of the element-wise operators: arithmetic, comparisons, mathematical functions, casts, activations."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any, Final

from gsl.front.core.lower import Lower, floor_mod_of_floats
from gsl.front.onnx.spellings.linear import bias_of
from gsl.front.onnx.spellings.reading import (
    OnnxCall,
    OnnxLift,
    OnnxUnread,
    arithmetic,
    dtype_name,
    is_float,
    same,
    unread_unless,
)
from gsl.front.onnx.spellings.writing import OnnxLowering
from gsl.front.onnx.types import onnx_dtype
from gsl.front.tree import Canon
from gsl.spec.normalise import is_number

# ---------------------------------------------------------------- one operand

_FLOAT: Final = {
    "acos": "Acos", "acosh": "Acosh", "asin": "Asin", "asinh": "Asinh", "atan": "Atan", "atanh": "Atanh",
    "cos": "Cos", "cosh": "Cosh", "erf": "Erf", "exp": "Exp", "log": "Log", "reciprocal": "Reciprocal",
    "sigmoid": "Sigmoid", "sin": "Sin", "sinh": "Sinh", "sqrt": "Sqrt", "tan": "Tan", "tanh": "Tanh",
}  # fmt: skip
"""Functions of floats: of other numbers, torch computes them in floats, and ONNX not at all."""

_WHOLE: Final = {"ceil": "Ceil", "floor": "Floor", "round": "Round"}
"""Functions that leave integers alone."""

_SAME: Final = {"abs": "Abs", "negative": "Neg", "sign": "Sign"}
_TESTS: Final = {"isinf": "IsInf", "isnan": "IsNaN"}


def _float(name: str) -> Lower:
    return lambda w, x: w.call(name, w.cast(x, w.dtype))


def _whole(name: str) -> Lower:
    return lambda w, x: w.call(name, x) if is_float(w.dtype) else x


def _test(name: str) -> Lower:
    """Of integers, all are finite."""

    def write(w: OnnxLowering, x: Any) -> Any:
        return w.call(name, x) if is_float(w.dtype_of(x)) else w.full(False, w.shape, "bool")

    return write


# ---------------------------------------------------------------- two operands

_ARITHMETIC: Final = {"add": "Add", "subtract": "Sub", "multiply": "Mul"}
_COMPARISONS: Final = {
    "equal": "Equal", "less": "Less", "less_equal": "LessOrEqual", "greater": "Greater",
    "greater_equal": "GreaterOrEqual",
}  # fmt: skip
_LOGIC: Final = {"logical_and": "And", "logical_or": "Or", "logical_xor": "Xor"}
_BITS: Final = {"bitwise_and": "BitwiseAnd", "bitwise_or": "BitwiseOr", "bitwise_xor": "BitwiseXor"}
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


def _comparison(name: str) -> Lower:
    def write(w: OnnxLowering, x: Any, y: Any) -> Any:
        common = w.common(x, y)
        if common == "bool" and name != "Equal":
            common = "int32"
        return w.call(name, *[w.cast(w.cast(v, "bool") if common == "bool" else v, common) for v in (x, y)])

    return write


def _read_after(inner: str, op: str, both: str) -> OnnxLift:
    """The reader of a function; where another node computes its operand for it alone, the two are one call."""

    def read(r: OnnxCall) -> Canon:
        node = r.inner(r.x, inner)
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
    """What remains without the remainder, divided."""
    x, y = w.cast(x, w.dtype), w.cast(y, w.dtype)
    whole = w.call("Div", w.write("subtract", x, w.write("floor_mod", x, y)), y)
    return w.write("round", whole) if is_float(w.dtype) else whole


def _read_mod(r: OnnxCall) -> Canon:
    if r.attr("fmod", 0):
        return Canon("mod", arithmetic(r))
    unread_unless(not is_float(r.type().dtype))
    return Canon("floor_mod", arithmetic(r))


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
    dtype = dtype_name(r.attr("to"))
    unread_unless("float8" not in dtype)
    return Canon("cast", (r.x,), {"dtype": dtype})


# ---------------------------------------------------------------- activations


def _softplus(w: OnnxLowering, x: Any, beta: float, threshold: float) -> Any:
    if beta == 1 and threshold >= 15:
        return w.call("Softplus", x)
    scaled = w.write("multiply", x, float(beta))
    soft = w.write("divide", w.write("softplus", scaled, beta=1.0, threshold=20.0), float(beta))
    return w.write("where", w.write("greater", scaled, float(threshold)), x, soft)


def _gelu(w: OnnxLowering, x: Any, approximate: str) -> Any:
    if w.opset >= 20:
        kind: dict[str, Any] = {} if approximate == "none" else {"approximate": approximate}
        return w.call("Gelu", x, **kind)
    if approximate == "none":
        inner = w.write("erf", w.write("multiply", x, math.sqrt(0.5)))
    else:
        cube = w.write("multiply", w.write("multiply", w.write("multiply", x, x), x), 0.044715)
        inner = w.write("tanh", w.write("multiply", w.write("add", x, cube), math.sqrt(2 / math.pi)))
    return w.write("multiply", w.write("multiply", x, 0.5), w.write("add", inner, 1.0))


def _prelu(w: OnnxLowering, data: Any, alpha: Any, axis: int) -> Any:
    slope = w.cast(alpha, w.dtype)
    if w.rank_of(slope):
        slope = w.along(slope, w.rank_of(data), axis) if w.shape_of(slope) != (1,) else slope
    return w.call("PRelu", data, slope)


def _read_prelu(r: OnnxCall) -> Canon:
    shape, slope = r.type(0).shape, r.type(1).shape
    alpha = r.inputs[1]
    if slope == (1,):
        return Canon("nn.prelu", (r.x, alpha))
    reshape = r.producer(alpha, "Reshape")
    axis = len(shape) - len(slope)
    unread_unless(axis >= 0 and len(slope) > 0 and slope == (shape[axis],) + (1,) * (len(slope) - 1))
    if reshape is not None and r.type_of(reshape.inputs[0]).shape == slope[:1]:
        r.through.append(reshape)
        alpha = reshape.inputs[0]
    else:
        alpha = Canon("reshape", (alpha,), {"newshape": slope[:1]}) if len(slope) > 1 else alpha
    return Canon("nn.prelu", (r.x, alpha), {"axis": axis})


def _read_hard_sigmoid(r: OnnxCall) -> Canon:
    alpha, beta = r.attr("alpha", 0.2), r.attr("beta", 0.5)
    if abs(alpha - 1 / 6) < 1e-6 and beta == 0.5:
        return Canon("hardsigmoid", (r.x,))
    return Canon("clip", (Canon("add", (Canon("multiply", (r.x, alpha)), beta)),), {"a_min": 0, "a_max": 1})


def _read_selu(r: OnnxCall) -> Canon:
    usual = math.isclose(r.attr("alpha", 1.67326319), 1.67326319, rel_tol=1e-6)
    unread_unless(usual and math.isclose(r.attr("gamma", 1.05070102), 1.05070102, rel_tol=1e-6))
    return Canon("selu", (r.x,))


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


def _since(version: int, name: str, before: Lower) -> Lower:
    """An operator that ONNX has from a version on, and what it is before."""
    return lambda w, x: w.call(name, x) if w.opset >= version else before(w, x)


def _each(names: Mapping[str, str], write: Callable[[str], Lower]) -> dict[str, Lower]:
    return {op: write(name) for op, name in names.items()}


WRITE: Final[Mapping[str, Lower]] = {
    **_each(_FLOAT, _float),
    **_each(_WHOLE, _whole),
    **_each(_SAME, lambda name: lambda w, x: w.call(name, x)),
    **_each(_TESTS, _test),
    **{op: _binary(op, name) for op, name in {**_ARITHMETIC, **_BITS, "maximum": "Max", "minimum": "Min"}.items()},
    **_each({"divide": "Div"}, lambda name: lambda w, x, y: w.call(name, w.cast(x, w.dtype), w.cast(y, w.dtype))),
    **_each(_COMPARISONS, _comparison),
    **_each({**_LOGIC, "logical_not": "Not"}, _logic),
    "not_equal": lambda w, x, y: w.call("Not", w.write("equal", x, y)),
    "left_shift": _binary("left_shift", "BitShift", direction="LEFT"),
    "right_shift": _binary("right_shift", "BitShift", direction="RIGHT"),
    "bitwise_not": lambda w, x: w.call("Not" if w.dtype == "bool" else "BitwiseNot", x),
    "copy": lambda w, x: w.call("Identity", x),
    "isfinite": lambda w, x: w.write("logical_not", w.write("logical_or", w.write("isinf", x), w.write("isnan", x))),
    "trunc": lambda w, x: (
        w.write("multiply", w.write("sign", x), w.write("floor", w.write("abs", x))) if is_float(w.dtype) else x
    ),
    "rsqrt": lambda w, x: w.write("reciprocal", w.write("sqrt", x)),
    "mod": _binary("mod", "Mod", fmod=1),
    "floor_mod": _floor_mod,
    "floor_divide": _floor_divide,
    "power": _power,
    "where": lambda w, test, x, y: w.call("Where", w.cast(test, "bool"), w.cast(x, w.dtype), w.cast(y, w.dtype)),
    "clip": _clip,
    "cast": lambda w, x, dtype: w.cast(x, dtype) if is_number(x) else w.call("Cast", x, to=onnx_dtype(dtype)),
    "nn.relu": lambda w, x: w.call("Relu", x),
    "nn.leaky_relu": lambda w, x, alpha: w.call("LeakyRelu", x, alpha=float(alpha)),
    "elu": lambda w, x, alpha: w.call("Elu", x, alpha=float(alpha)),
    "selu": lambda w, x: w.call("Selu", x),
    "gelu": _gelu,
    "mish": _since(18, "Mish", lambda w, x: w.write("multiply", x, w.write("tanh", w.write("softplus", x)))),
    "hardswish": _since(14, "HardSwish", lambda w, x: w.write("multiply", x, w.write("hardsigmoid", x))),
    "hardsigmoid": lambda w, x: w.call("HardSigmoid", x, alpha=1 / 6, beta=0.5),
    "softplus": _softplus,
    "nn.prelu": _prelu,
    "nn.softmax": lambda w, x, axis: w.call("Softmax", w.cast(x, w.dtype), axis=axis),
    "nn.log_softmax": lambda w, x, axis: w.call("LogSoftmax", w.cast(x, w.dtype), axis=axis),
    "nn.dropout": lambda w, x, rate: w.call("Dropout", x, w.cast(float(rate), "float32")),
}

READ: Final[Mapping[str, OnnxLift]] = {
    **{name: same(op) for op, name in {**_FLOAT, **_WHOLE, **_SAME, "isnan": "IsNaN"}.items()},
    **{
        name: (lambda r, op=op: Canon(op, arithmetic(r)))  # type: ignore[misc]
        for op, name in {**_ARITHMETIC, **_COMPARISONS, **_LOGIC, **_BITS}.items()
    },
    "Reciprocal": _read_after("Sqrt", "reciprocal", "rsqrt"),
    "Mul": _read_multiply,
    "Add": _read_add,
    "Not": _read_after("Equal", "logical_not", "not_equal"),
    "IsInf": same("isinf", only={"detect_negative": 1, "detect_positive": 1}),
    "BitwiseNot": same("bitwise_not"),
    "BitShift": lambda r: Canon("left_shift" if r.attr("direction") == "LEFT" else "right_shift", arithmetic(r)),
    "Div": _read_divide,
    "Mod": _read_mod,
    "Pow": _read_power,
    "Max": _chain("maximum"),
    "Min": _chain("minimum"),
    "Sum": _chain("add"),
    "Where": _read_where,
    "Clip": _read_clip,
    "Cast": _read_cast,
    "Identity": same("copy"),
    "Relu": same("nn.relu"),
    "LeakyRelu": same("nn.leaky_relu", {"alpha": 0.01}, alpha="alpha"),
    "Elu": same("elu", {"alpha": 1.0}, alpha="alpha"),
    "Selu": _read_selu,
    "Gelu": same("gelu", {"approximate": "none"}, approximate="approximate"),
    "Swish": same("silu", only={"alpha": 1.0}),
    "Mish": same("mish"),
    "HardSwish": same("hardswish"),
    "HardSigmoid": _read_hard_sigmoid,
    "Softplus": same("softplus", {"beta": 1.0, "threshold": 20.0}),
    "PRelu": _read_prelu,
    "Softmax": same("nn.softmax", {"axis": -1}, axis="axis"),
    "LogSoftmax": same("nn.log_softmax", {"axis": -1}, axis="axis"),
    "Dropout": _read_dropout,
}

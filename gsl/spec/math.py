"""Element-wise arithmetic, mathematical functions, comparisons and logic."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

from gsl.spec import normalise as n
from gsl.spec.spec import REQUIRED, AttrSpec, OpSpec, Trait

_EACH = Trait.ELEMENT_WISE
_BROADCAST = Trait.ELEMENT_WISE | Trait.BROADCASTING
_COMMUTATIVE = _BROADCAST | Trait.COMMUTATIVE


def _is_number(value: Any) -> bool:
    return isinstance(value, (bool, int, float))


def tensors(torch: Any, *operands: Any) -> tuple[Any, ...]:
    """The operands with numbers made tensors, which promote dtypes just as the numbers do."""
    if not any(map(_is_number, operands)):
        return operands
    other = next((x for x in operands if not _is_number(x)), None)

    def convert(value: Any) -> Any:
        if not _is_number(value):
            return value
        dtype = torch.result_type(value if other is None else other, value)
        return torch.full((), value, dtype=dtype, device=None if other is None else other.device)

    return tuple(map(convert, operands))


def _unary(name: str, cls: str, function: str = "", traits: Trait = _EACH, aliases: tuple[str, ...] = ()) -> OpSpec:
    """A function of ``torch`` of one tensor."""
    return OpSpec(name, cls, ("data",), lambda torch, x: getattr(torch, function or name)(x), {}, traits=traits,
                  aliases=aliases)  # fmt: skip


def _operator(
    name: str, cls: str, operate: Callable[[Any, Any], Any], traits: Trait = _BROADCAST, aliases: tuple[str, ...] = ()
) -> OpSpec:
    """A Python operator of two tensors, either of which may be a number."""

    def meaning(torch: Any, lhs: Any, rhs: Any) -> Any:
        if _is_number(lhs) and _is_number(rhs):
            lhs = torch.tensor(lhs)
        return operate(lhs, rhs)

    return OpSpec(name, cls, ("lhs", "rhs"), meaning, {}, traits=traits, aliases=aliases)


def _binary(
    name: str, cls: str, function: str = "", traits: Trait = _BROADCAST, aliases: tuple[str, ...] = ()
) -> OpSpec:
    """A function of ``torch`` of two tensors, either of which may be a number here."""

    def meaning(torch: Any, lhs: Any, rhs: Any) -> Any:
        return getattr(torch, function or name)(*tensors(torch, lhs, rhs))

    return OpSpec(name, cls, ("lhs", "rhs"), meaning, {}, traits=traits, aliases=aliases)


_ARITHMETIC = (
    _operator("add", "Add", operator.add, _COMMUTATIVE),
    _operator("subtract", "Subtract", operator.sub, aliases=("sub",)),
    _operator("multiply", "Multiply", operator.mul, _COMMUTATIVE, aliases=("mul",)),
    # True division: of integers, a float.
    _operator("divide", "Divide", operator.truediv, aliases=("div", "true_divide")),
    # Rounded down, not towards zero.
    _operator("floor_divide", "FloorDivide", operator.floordiv),
    # The remainder with the sign of the divisor (Python's %), and that with the sign of the dividend (C's fmod).
    _operator("floor_mod", "FloorMod", operator.mod, aliases=("remainder",)),
    _binary("mod", "Mod", "fmod", aliases=("fmod",)),
    _operator("power", "Power", operator.pow, aliases=("pow",)),
    _operator("left_shift", "LeftShift", operator.lshift),
    _operator("right_shift", "RightShift", operator.rshift),
    _binary("maximum", "Maximum", traits=_COMMUTATIVE),
    _binary("minimum", "Minimum", traits=_COMMUTATIVE),
    _binary("atan2", "Atan2"),
)

_FUNCTIONS = (
    _unary("negative", "Negative", aliases=("neg",)),
    _unary("abs", "Abs"),
    _unary("sign", "Sign"),
    # The elements in memory of their own, or wherever they are: whoever changes memory in place is not matched.
    OpSpec("copy", "Copy", ("data",), lambda torch, x: x, {}, traits=_EACH),
    _unary("exp", "Exp"),
    _unary("expm1", "Expm1"),
    _unary("log", "Log"),
    _unary("log2", "Log2"),
    _unary("log10", "Log10"),
    _unary("log1p", "Log1p"),
    _unary("sqrt", "Sqrt"),
    _unary("rsqrt", "Rsqrt"),
    _unary("square", "Square"),
    _unary("reciprocal", "Reciprocal"),
    _unary("erf", "Erf"),
    _unary("sin", "Sin"),
    _unary("cos", "Cos"),
    _unary("tan", "Tan"),
    _unary("asin", "Asin"),
    _unary("acos", "Acos"),
    _unary("atan", "Atan"),
    _unary("sinh", "Sinh"),
    _unary("cosh", "Cosh"),
    _unary("asinh", "Asinh"),
    _unary("acosh", "Acosh"),
    _unary("atanh", "Atanh"),
    _unary("tanh", "Tanh", traits=_EACH | Trait.ACTIVATION, aliases=("nn.tanh",)),
    _unary("sigmoid", "Sigmoid", traits=_EACH | Trait.ACTIVATION, aliases=("nn.sigmoid",)),
    _unary("floor", "Floor"),
    _unary("ceil", "Ceil"),
    # Halves go to the even neighbour.
    _unary("round", "Round"),
    _unary("trunc", "Trunc"),
    _unary("isnan", "IsNan"),
    _unary("isinf", "IsInf"),
    _unary("isfinite", "IsFinite"),
)

_COMPARISONS = (
    _binary("equal", "Equal", "eq", _COMMUTATIVE, aliases=("eq",)),
    _binary("not_equal", "NotEqual", "ne", _COMMUTATIVE, aliases=("ne",)),
    _binary("less", "Less", "lt", aliases=("lt",)),
    _binary("less_equal", "LessEqual", "le", aliases=("le",)),
    _binary("greater", "Greater", "gt", aliases=("gt",)),
    _binary("greater_equal", "GreaterEqual", "ge", aliases=("ge",)),
)

_LOGIC = (
    _binary("logical_and", "LogicalAnd", traits=_COMMUTATIVE),
    _binary("logical_or", "LogicalOr", traits=_COMMUTATIVE),
    _binary("logical_xor", "LogicalXor", traits=_COMMUTATIVE),
    _unary("logical_not", "LogicalNot"),
    _binary("bitwise_and", "BitwiseAnd", traits=_COMMUTATIVE),
    _binary("bitwise_or", "BitwiseOr", traits=_COMMUTATIVE),
    _binary("bitwise_xor", "BitwiseXor", traits=_COMMUTATIVE),
    _unary("bitwise_not", "BitwiseNot"),
)

_OTHERS = (
    OpSpec(
        "where",
        "Where",
        ("condition", "x", "y"),
        lambda torch, condition, x, y: torch.where(*tensors(torch, condition), *tensors(torch, x, y)),
        traits=_BROADCAST,
    ),
    # A bound of None is none. A bound of a floating-point operand is a float.
    OpSpec(
        "clip",
        "Clip",
        ("data",),
        lambda torch, x, a_min, a_max: torch.clamp(x, a_min, a_max),
        {"a_min": AttrSpec(None, n.optional(n.number)), "a_max": AttrSpec(None, n.optional(n.number))},
        traits=_EACH,
        aliases=("clamp",),
    ),
    OpSpec(
        "cast",
        "Cast",
        ("data",),
        lambda torch, x, dtype: tensors(torch, x)[0].to(getattr(torch, dtype)),
        {"dtype": AttrSpec(REQUIRED, n.dtype)},
        traits=_EACH,
    ),
)

OPS: tuple[OpSpec, ...] = _ARITHMETIC + _FUNCTIONS + _COMPARISONS + _LOGIC + _OTHERS

"""Element-wise arithmetic, mathematical functions, comparisons and logic."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any, Final

from gsl.spec import examples as e
from gsl.spec import normalise as n
from gsl.spec.examples import Example, Sample, call
from gsl.spec.normalise import is_number
from gsl.spec.spec import REQUIRED, AttrSpec, OpSpec, Trait

_EACH = Trait.ELEMENT_WISE
_BROADCAST = Trait.ELEMENT_WISE | Trait.BROADCASTING
_COMMUTATIVE = _BROADCAST | Trait.COMMUTATIVE


def tensors(torch: Any, *operands: Any) -> tuple[Any, ...]:
    """The operands with numbers made tensors, which promote dtypes just as the numbers do."""
    if not any(map(is_number, operands)):
        return operands
    other = next((x for x in operands if not is_number(x)), None)

    def convert(value: Any) -> Any:
        if not is_number(value):
            return value
        dtype = torch.result_type(value if other is None else other, value)
        return torch.full((), value, dtype=dtype, device=None if other is None else other.device)

    return tuple(map(convert, operands))


def _unary(name: str, cls: str, on: Sample = e.X, *, traits: Trait = _EACH, **options: Any) -> OpSpec:
    """A function of ``torch`` of one tensor, with an example of one; ``options`` are fields of the declaration."""
    return OpSpec(name, cls, ("data",), lambda torch, x: getattr(torch, name)(x), {}, traits=traits,
                  examples=(call(on),), **options)  # fmt: skip


def _operator(
    name: str, cls: str, operate: Callable[[Any, Any], Any], *examples: Example, traits: Trait = _BROADCAST,
    **options: Any,
) -> OpSpec:  # fmt: skip
    """A Python operator of two tensors, either of which may be a number."""

    def meaning(torch: Any, lhs: Any, rhs: Any) -> Any:
        if is_number(lhs) and is_number(rhs):
            lhs = torch.tensor(lhs)
        return operate(lhs, rhs)

    return OpSpec(name, cls, ("lhs", "rhs"), meaning, {}, traits=traits, examples=examples, **options)


def _binary(
    name: str, cls: str, function: str, *examples: Example, traits: Trait = _BROADCAST, **options: Any
) -> OpSpec:  # fmt: skip
    """A function of ``torch`` of two tensors, either of which may be a number here."""

    def meaning(torch: Any, lhs: Any, rhs: Any) -> Any:
        return getattr(torch, function)(*tensors(torch, lhs, rhs))

    return OpSpec(name, cls, ("lhs", "rhs"), meaning, {}, traits=traits, examples=examples, **options)


_COLUMN = e.exactly([[2], [-3]], "int32")
_POSITIVE = e.exactly([[True, False, True], [True, False, False]], "bool")


_ARITHMETIC = (
    _operator("add", "Add", operator.add, call(e.X, e.ROW), call(2, e.X), call(1, 2.5), traits=_COMMUTATIVE),
    _operator("subtract", "Subtract", operator.sub, call(e.X, e.ROW), call(2.0, e.X),
              aliases=("sub",), torch_names="rsub"),
    _operator("multiply", "Multiply", operator.mul, call(e.X, e.ROW), call(e.I32, 0.5), traits=_COMMUTATIVE,
              aliases=("mul",)),
    # True division: of integers, a float.
    _operator("divide", "Divide", operator.truediv, call(e.X, e.P), call(e.I32, 2),
              aliases=("div", "true_divide"), torch_names="truediv"),
    # Rounded down, not towards zero.
    _operator("floor_divide", "FloorDivide", operator.floordiv, call(e.I32, _COLUMN), torch_names="floordiv div"),
    # The remainder with the sign of the divisor (Python's %), and that with the sign of the dividend (C's fmod).
    _operator("floor_mod", "FloorMod", operator.mod, call(e.I32, _COLUMN), call(e.X, 0.75),
              aliases=("remainder",), torch_names="mod"),
    _binary("mod", "Mod", "fmod", call(e.I32, _COLUMN), call(e.X, -0.75), aliases=("fmod",)),
    _operator("power", "Power", operator.pow, call(e.P, 3), call(2.0, e.X), aliases=("pow",)),
    _operator("left_shift", "LeftShift", operator.lshift, call(e.COUNTS, 2),
              torch_names="bitwise_left_shift lshift __lshift__"),
    _operator("right_shift", "RightShift", operator.rshift, call(e.I32, 1),
              torch_names="bitwise_right_shift rshift __rshift__"),
    _binary("maximum", "Maximum", "maximum", call(e.X, e.ROW), call(e.I32, 2.5), traits=_COMMUTATIVE,
            torch_names="max clamp_min"),
    _binary("minimum", "Minimum", "minimum", call(e.X, e.Y), call(0.5, e.X), traits=_COMMUTATIVE,
            torch_names="min clamp_max"),
    _binary("atan2", "Atan2", "atan2", call(e.X, e.Y)),
)  # fmt: skip

_FUNCTIONS = (
    _unary("negative", "Negative", aliases=("neg",)),
    _unary("abs", "Abs"),
    _unary("sign", "Sign"),
    # The elements in memory of their own, or wherever they are: whoever changes memory in place is not matched.
    OpSpec("copy", "Copy", ("data",), lambda torch, x: x, {}, traits=_EACH, examples=(call(e.X),),
           torch_names="clone contiguous alias lift_fresh_copy"),
    _unary("exp", "Exp"),
    _unary("expm1", "Expm1"),
    _unary("log", "Log", e.P),
    _unary("log2", "Log2", e.P),
    _unary("log10", "Log10", e.P),
    _unary("log1p", "Log1p", e.P),
    _unary("sqrt", "Sqrt", e.P),
    _unary("rsqrt", "Rsqrt", e.P),
    _unary("square", "Square", decompose=lambda o, x: o("multiply", x, x)),
    _unary("reciprocal", "Reciprocal", e.P, decompose=lambda o, x: o("divide", 1, x)),
    _unary("erf", "Erf", e.U),
    _unary("sin", "Sin"),
    _unary("cos", "Cos"),
    _unary("tan", "Tan", e.P),
    _unary("asin", "Asin", e.P),
    _unary("acos", "Acos", e.P),
    _unary("atan", "Atan"),
    _unary("sinh", "Sinh"),
    _unary("cosh", "Cosh"),
    _unary("asinh", "Asinh"),
    _unary("acosh", "Acosh", e.rand(2, 3, 4, low=1.1, high=1.9)),
    _unary("atanh", "Atanh", e.P),
    _unary("tanh", "Tanh", traits=_EACH | Trait.ACTIVATION, aliases=("nn.tanh",)),
    _unary("sigmoid", "Sigmoid", traits=_EACH | Trait.ACTIVATION, aliases=("nn.sigmoid",), torch_names="expit"),
    _unary("floor", "Floor", e.ODD),
    _unary("ceil", "Ceil", e.ODD),
    # Halves go to the even neighbour.
    _unary("round", "Round", e.ODD),
    _unary("trunc", "Trunc", e.ODD, torch_names="fix"),
    _unary("isnan", "IsNan", e.ODD),
    _unary("isinf", "IsInf", e.ODD),
    _unary("isfinite", "IsFinite", e.ODD),
)

_COMPARISONS = (
    _binary("equal", "Equal", "eq", call(e.I32, 7), traits=_COMMUTATIVE, aliases=("eq",)),
    _binary("not_equal", "NotEqual", "ne", call(e.I32, e.J32), traits=_COMMUTATIVE, aliases=("ne",)),
    _binary("less", "Less", "lt", call(e.I32, 2.5), call(e.X, e.Y), aliases=("lt",)),
    _binary("less_equal", "LessEqual", "le", call(e.X, e.ROW), aliases=("le",)),
    _binary("greater", "Greater", "gt", call(0.5, e.X), aliases=("gt",)),
    _binary("greater_equal", "GreaterEqual", "ge", call(e.X, e.Y), aliases=("ge",)),
)

COMPARISONS: Final = tuple(spec.name for spec in _COMPARISONS)

_LOGIC = (
    _binary("logical_and", "LogicalAnd", "logical_and", call(e.B1, e.B2), traits=_COMMUTATIVE),
    _binary("logical_or", "LogicalOr", "logical_or", call(e.B1, e.B2), traits=_COMMUTATIVE),
    _binary("logical_xor", "LogicalXor", "logical_xor", call(e.B1, e.B2), traits=_COMMUTATIVE),
    _unary("logical_not", "LogicalNot", e.B1),
    _binary("bitwise_and", "BitwiseAnd", "bitwise_and", call(e.I32, e.J32), traits=_COMMUTATIVE,
            torch_names="and_ __and__"),
    _binary("bitwise_or", "BitwiseOr", "bitwise_or", call(e.I32, 5), traits=_COMMUTATIVE, torch_names="or_ __or__"),
    _binary("bitwise_xor", "BitwiseXor", "bitwise_xor", call(e.B1, e.B2), traits=_COMMUTATIVE,
            torch_names="xor __xor__"),
    _unary("bitwise_not", "BitwiseNot", e.I32, torch_names="invert"),
)

_OTHERS = (
    OpSpec(
        "where",
        "Where",
        ("condition", "x", "y"),
        lambda torch, condition, x, y: torch.where(*tensors(torch, condition), *tensors(torch, x, y)),
        traits=_BROADCAST,
        examples=(call(e.rand(2, 3, 4, dtype="bool"), e.X, e.Y), call(_POSITIVE, e.I32, 0.5), call(e.B1, 1.0, 0.0)),
        torch_names="masked_fill",
    ),
    # A bound of None is none. A bound of a floating-point operand is a float.
    OpSpec(
        "clip",
        "Clip",
        ("data",),
        lambda torch, x, a_min, a_max: torch.clamp(x, a_min, a_max),
        {
            "a_min": AttrSpec(None, n.optional(n.number), candidates=(0.0, None, -0.5, 2.0)),
            "a_max": AttrSpec(None, n.optional(n.number), candidates=(1.0, None, 2.5)),
        },
        traits=_EACH,
        aliases=("clamp",),
        examples=(call(e.X, a_min=-1, a_max=0.5), call(e.I32, a_max=3)),
        torch_names="clamp clamp_min clamp_max hardtanh",
    ),
    OpSpec(
        "cast",
        "Cast",
        ("data",),
        lambda torch, x, dtype: tensors(torch, x)[0].to(getattr(torch, dtype)),
        {"dtype": AttrSpec(REQUIRED, n.dtype)},
        traits=_EACH,
        examples=(call(e.exactly([0.0, -0.5, 0.5, 1.5, 2.5]), dtype="int8"),),
        torch_names="to type type_as _to_copy convert_element_type float double half bfloat16 int "
        "long short char byte bool",
    ),
)

OPS: tuple[OpSpec, ...] = _ARITHMETIC + _FUNCTIONS + _COMPARISONS + _LOGIC + _OTHERS

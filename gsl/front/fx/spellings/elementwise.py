"""Spellings of the element-wise operators: arithmetic, comparisons, mathematical functions, casts."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from typing import Any, Final

import torch

from gsl.front.fx.spellings.bind import BoundCall, axis, number, unread_unless
from gsl.front.fx.spellings.table import (
    _FLOATS,
    FxLift,
    FxLower,
    FxRow,
    Native,
    Site,
    call,
    dtype_of,
    is_floating,
    operand,
    renamed,
    row,
    tensor,
    words,
)
from gsl.front.tree import Canon
from gsl.spec.normalise import is_number

# ---------------------------------------------------------------- one operand

UNARY: Final[Mapping[str, str]] = {
    **{
        name: name
        for name in (
            "bitwise_not", "ceil", "cos", "cosh", "erf", "exp", "expm1", "floor", "isfinite", "isinf", "isnan", "log",
            "log10", "log1p", "log2", "logical_not", "reciprocal", "round", "rsqrt", "sigmoid", "sign", "sin", "sinh",
            "sqrt", "square", "tan", "tanh",
        )
    },
    "abs": "abs absolute",
    "acos": "acos arccos",
    "acosh": "acosh arccosh",
    "asin": "asin arcsin",
    "asinh": "asinh arcsinh",
    "atan": "atan arctan",
    "atanh": "atanh arctanh",
    "negative": "neg negative",
    "trunc": "trunc fix",
}  # fmt: skip
"""The torch names of each operator of one operand; the first one is written."""

_NO_IN_PLACE: Final = frozenset(("isfinite", "isinf", "isnan", "logical_not"))
"""Their results are of another dtype than the operand, which an in-place call keeps."""

_UNARY_EXTRA: Final[Mapping[str, str]] = {
    "abs": "operator.abs",
    "bitwise_not": "operator.invert",
    "negative": "operator.neg",
    "sigmoid": "F.sigmoid special.expit",
    "tanh": "F.tanh",
    "erf": "special.erf",
    "expm1": "special.expm1",
    "log1p": "special.log1p",
    "round": "special.round",
}


def _unary_rows() -> list[FxRow]:
    rows: list[FxRow] = []
    for op, names in UNARY.items():
        rows.append(row(op, words(names), "input", inplace=op not in _NO_IN_PLACE))
        if op in _UNARY_EXTRA:
            rows.append(FxRow(_UNARY_EXTRA[op], "input", renamed(op)))
    return rows


# ---------------------------------------------------------------- two operands


def _operands(c: BoundCall) -> tuple[Any, Any]:
    """Two operands, of which one may be a number."""
    left, right = operand(c, c.input), operand(c, c.other)
    unread_unless(not (is_number(left) and is_number(right)))
    return left, right


def _binary(op: str) -> FxLift:
    return lambda c: Canon(op, _operands(c))


def _scaled(op: str, *, swap: bool = False) -> FxLift:
    """``left + alpha * right``, and likewise for subtraction."""

    def read(c: BoundCall) -> Canon:
        left, right = reversed(_operands(c)) if swap else _operands(c)
        if isinstance(c.alpha, bool) or c.alpha != 1:
            # Torch multiplies in the common dtype of both operands.
            unread_unless(not is_number(left) and not is_number(right) and c.dtype_of(left) == c.dtype_of(right))
            # A bool times an int is an int, but not the sum of bools.
            unread_unless(c.dtype_of(right) != "bool")
            unread_unless(isinstance(number(c.alpha), int) or is_floating(c, right))
            right = Canon("multiply", (right, c.alpha))
        return Canon(op, (left, right))

    return read


def _divide(c: BoundCall) -> Canon:
    left, right = _operands(c)
    if c.rounding_mode is None:
        return Canon("divide", (left, right))
    if c.rounding_mode == "floor":
        return Canon("floor_divide", (left, right))
    unread_unless(c.rounding_mode == "trunc")
    # Integers are not divided by way of floats.
    unread_unless(is_floating(c, left) or is_floating(c, right))
    return Canon("trunc", (Canon("divide", (left, right)),))


def _kept(read: FxLift) -> FxLift:
    """The reading of an in-place call: exact only if the result has the dtype of the operand that it replaces."""

    def in_place(c: BoundCall) -> Canon:
        own = dtype_of(c.dtype_of(c.input))
        if is_number(c.other):
            unread_unless(torch.result_type(torch.empty((1,), dtype=own), c.other) == own)
        else:
            other = c.typed(c.other)
            shape = () if other.ndim == 0 else (1,)
            mine = () if c.ndim(c.input) == 0 else (1,)
            both = torch.result_type(torch.empty(mine, dtype=own), torch.empty(shape, dtype=dtype_of(other.dtype)))
            unread_unless(both == own)
        # True division of integers would not be.
        result = read(c)
        unread_unless(result.op not in ("divide", "power") or own.is_floating_point)
        return result

    return in_place


BINARY: Final[Mapping[str, tuple[str, str, str]]] = {
    "multiply": ("mul multiply", "Tensor Scalar", "mul"),
    "floor_divide": ("floor_divide", "default Scalar", "floordiv"),
    "floor_mod": ("remainder", "Tensor Scalar Scalar_Tensor", "mod"),
    "mod": ("fmod", "Tensor Scalar", ""),
    "atan2": ("atan2 arctan2", "default", ""),
    "maximum": ("maximum", "default", ""),
    "minimum": ("minimum", "default", ""),
    "left_shift": ("bitwise_left_shift", "Tensor Tensor_Scalar Scalar_Tensor", "lshift"),
    "right_shift": ("bitwise_right_shift", "Tensor Tensor_Scalar Scalar_Tensor", "rshift"),
    "bitwise_and": ("bitwise_and", "Tensor Scalar Scalar_Tensor", "and_"),
    "bitwise_or": ("bitwise_or", "Tensor Scalar Scalar_Tensor", "or_"),
    "bitwise_xor": ("bitwise_xor", "Tensor Scalar Scalar_Tensor", "xor"),
    "logical_and": ("logical_and", "default", ""),
    "logical_or": ("logical_or", "default", ""),
    "logical_xor": ("logical_xor", "default", ""),
    "equal": ("eq", "Tensor Scalar", "eq"),
    "not_equal": ("ne not_equal", "Tensor Scalar", "ne"),
    "less": ("lt less", "Tensor Scalar", "lt"),
    "less_equal": ("le less_equal", "Tensor Scalar", "le"),
    "greater": ("gt greater", "Tensor Scalar", "gt"),
    "greater_equal": ("ge greater_equal", "Tensor Scalar", "ge"),
}
"""Torch names, aten overloads and the Python operator of each operator of two operands."""

_TO_BOOL: Final = frozenset(
    ("equal", "not_equal", "less", "less_equal", "greater", "greater_equal", "logical_and", "logical_or", "logical_xor")
)

_IN_PLACE_OPERATORS: Final[Mapping[str, str]] = {
    "add": "iadd", "subtract": "isub", "multiply": "imul", "divide": "itruediv", "floor_divide": "ifloordiv",
    "floor_mod": "imod", "power": "ipow", "bitwise_and": "iand", "bitwise_or": "ior", "bitwise_xor": "ixor",
    "left_shift": "ilshift", "right_shift": "irshift",
}  # fmt: skip


_DUNDERS: Final[Mapping[str, str]] = {
    "bitwise_and": "and", "bitwise_or": "or", "bitwise_xor": "xor", "left_shift": "lshift", "right_shift": "rshift",
}  # fmt: skip


def _both(
    op: str, names: str, overloads: str, signature: str, read: FxLift, python: str = "", write: FxLower | None = None
) -> list[FxRow]:
    """The rows of a binary operator, which is written as its Python operator if it has one, and of its in-place
    calls."""
    write = _write_operator(getattr(operator, python)) if python else write
    return [
        FxRow(words(names, overloads) + f" operator.{python}" * bool(python), signature, read, op=op, write=write),
        FxRow(words(names, overloads, "_"), signature, _kept(read)),
    ]


def _binary_rows() -> list[FxRow]:
    rows: list[FxRow] = []
    for op, (names, overloads, python) in BINARY.items():
        read = _binary(op)
        rows += _both(op, names, overloads, "input other", read, python, _WRITTEN.get(op))[: 1 if op in _TO_BOOL else 2]
        if op in _DUNDERS:
            dunder = f"__{_DUNDERS[op]}__"
            rows.append(FxRow(f".{dunder} aten.{dunder}.Tensor aten.{dunder}.Scalar", "input other", read))
    rows += _both("add", "add", "Tensor Scalar", "input other alpha=1", _scaled("add"), "add")
    rows += _both("subtract", "sub subtract", "Tensor Scalar", "input other alpha=1", _scaled("subtract"), "sub")
    modes = "Tensor Scalar Tensor_mode Scalar_mode"
    rows += _both("divide", "div divide", modes, "input other rounding_mode=None", _divide)
    rows += _both("divide", "true_divide", "Tensor Scalar", "input other", _binary("divide"), "truediv")
    rows += _both("power", "pow", "Tensor_Tensor Tensor_Scalar Scalar", "input other", _binary("power"), "pow")
    rows += [
        FxRow("torch.rsub aten.rsub.Tensor aten.rsub.Scalar", "input other alpha=1", _scaled("subtract", swap=True)),
        *(
            FxRow(f"operator.{python}", "input other", _kept(_binary(op)))
            for op, python in _IN_PLACE_OPERATORS.items()
        ),
    ]
    return rows


def _add_combined(op: str) -> FxLift:
    """``input + value * tensor1 * tensor2``, or divided by ``tensor2``, in one dtype."""

    def read(c: BoundCall) -> Canon:
        operands = [tensor(c, each) for each in (c.input, c.tensor1, c.tensor2)]
        dtypes = {c.dtype_of(each) for each in operands}
        unread_unless(len(dtypes) == 1 and (op == "multiply" or dtypes <= _FLOATS) and "bool" not in dtypes)
        unread_unless(isinstance(number(c.value), int) or dtypes <= _FLOATS)
        data, left, right = operands
        if isinstance(c.value, bool) or c.value != 1:
            left = Canon("multiply", (left, c.value))
        return Canon("add", (data, Canon(op, (left, right))))

    return read


def _outer(c: BoundCall) -> Canon:
    """The product of each element of one vector with each of another."""
    return Canon("multiply", (Canon("expand_dims", (tensor(c, c.input),), {"axis": 1}), tensor(c, c.vec2)))


def _diff(c: BoundCall) -> Canon:
    """Each element along an axis without the one before it."""
    shape = c.typed(c.input).shape
    unread_unless(shape and c.dtype_of(c.input) != "bool" and isinstance(c.n, int) and c.n > 0)
    where = axis(c.dim, len(shape))
    parts = [each for each in (c.prepend, c.input, c.append) if each is not None]
    unread_unless(all(c.dtype_of(each) == c.dtype_of(c.input) and c.ndim(each) == len(shape) for each in parts))
    result = tensor(c, c.input)
    if len(parts) > 1:
        result = Canon("concatenate", (Canon("tuple", tuple([tensor(c, each) for each in parts])),), {"axis": where})
    for _ in range(c.n):
        result = Canon("subtract", (_from(result, where, 1, None), _from(result, where, 0, -1)))
    assert isinstance(result, Canon)
    return result


def _from(x: Any, where: int, begin: int, end: int | None) -> Canon:
    return Canon("strided_slice", (x,), {"begin": (begin,), "end": (end,), "axes": (where,)})


def _copy(c: BoundCall) -> Canon:
    # Schemas give the default as the number of the format.
    unread_unless(c.memory_format in (None, torch.preserve_format, torch.contiguous_format, 0))
    return Canon("copy", (tensor(c, c.input),))


# ---------------------------------------------------------------- writing


def _write_operator(target: Callable[..., Any]) -> FxLower:
    """A Python operator, which takes numbers on either side."""

    def write(s: Site) -> Native:
        if all(map(is_number, s.operands)):
            raise ValueError(f"{s.op}: expected a tensor among the operands, found {s.operands}")
        return call(target, *s.operands)

    return write


def _as_tensor(s: Site, position: int, like: int) -> Any:
    """An operand; a number as a tensor of the shape of another operand, and of the dtype that the number asks for."""
    value = s.operands[position]
    if not is_number(value):
        return value
    found = s.type(like)
    if found is None:
        return call(torch.full_like, s.operands[like], value)
    dtype = torch.result_type(torch.empty((1,), dtype=dtype_of(found.dtype)), value)
    kwargs = {} if dtype == dtype_of(found.dtype) else {"dtype": dtype}
    return call(torch.full_like, s.operands[like], value, **kwargs)


def _write_tensors(target: Callable[..., Any]) -> FxLower:
    """A function of torch that takes tensors only."""
    return lambda s: call(target, _as_tensor(s, 0, 1), _as_tensor(s, 1, 0))


def _write_number_last(target: Callable[..., Any]) -> FxLower:
    """A function of torch whose second argument may be a number."""
    return lambda s: call(target, _as_tensor(s, 0, 1), s.operands[1])


def _write_bounded(target: Callable[..., Any], bound: str) -> FxLower:
    """``maximum``, which for a number is a clamp."""

    def write(s: Site) -> Native:
        numbers = [x for x in s.operands if is_number(x)]
        tensors = [x for x in s.operands if not is_number(x)]
        if len(numbers) == 1 and not isinstance(numbers[0], bool):
            return call(torch.clamp, tensors[0], **{bound: numbers[0]})
        return call(target, _as_tensor(s, 0, 1), _as_tensor(s, 1, 0))

    return write


_COPIES: Final = (
    row("copy", words("clone"), "input * memory_format=None", read=_copy),
    FxRow(".contiguous aten.contiguous.default", "input memory_format=None", _copy),
    FxRow("aten.alias.default aten.lift_fresh_copy.default aten.lift_fresh.default", "input memory_format=None", _copy),
)
_COMBINED: Final = (
    *(
        FxRow(words(name), "input tensor1 tensor2 * value=1", _add_combined(op), inplace=True)
        for name, op in (("addcmul", "multiply"), ("addcdiv", "divide"))
    ),
    FxRow(words("outer ger"), "input vec2", _outer),
    FxRow(words("diff"), "input n=1 dim=-1 prepend=None append=None", _diff),
)


_WRITTEN: Final[Mapping[str, FxLower]] = {
    "mod": _write_number_last(torch.fmod),
    "maximum": _write_bounded(torch.maximum, "min"),
    "minimum": _write_bounded(torch.minimum, "max"),
    **{op: _write_tensors(getattr(torch, op)) for op in ("atan2", "logical_and", "logical_or", "logical_xor")},
}
"""How the operators of two operands are written that are no operators of Python."""
ROWS: Final = (*_unary_rows(), *_binary_rows(), *_COPIES, *_COMBINED)

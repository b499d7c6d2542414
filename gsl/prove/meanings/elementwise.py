"""Element-wise operators, and those that make tensors of nothing."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from fractions import Fraction
from typing import Any

from gsl.prove.normal import INFINITE, NOTHING, UNDEFINED, TermAlgebra
from gsl.prove.poly import DTYPES, Poly, Unproved, Whole, dtype_code, number
from gsl.prove.tensor import Calculation, Index, Tensor, real
from gsl.prove.terms import ZERO, SumTerm, constant
from gsl.spec.math import COMPARISONS

ElementMeaning = Callable[..., Any]
TOTAL = frozenset((
    "abs", "sign", "exp", "expm1", "erf", "sin", "cos", "atan", "sinh", "cosh", "asinh", "tanh", "sigmoid", "floor",
    "ceil", "round", "trunc", "softplus", "elu", "selu", "mish", "nn.leaky_relu",
))  # fmt: skip
"""The functions of one real number that have a value everywhere, and the same for each dtype."""
KEEPING = frozenset(("abs", "sign", "floor", "ceil", "round", "trunc"))
"""Those whose results have the dtype of their operands, of integers, too."""
LOGICAL = frozenset((
    *COMPARISONS, "logical_and", "logical_or", "logical_xor", "logical_not", "isnan", "isinf", "isfinite",
))  # fmt: skip
"""Those whose results are bools."""
PARTIAL = frozenset(("log", "log2", "log10", "log1p", "tan", "asin", "acos", "acosh", "atanh"))
"""Those that have one on a part of the numbers only."""
PROPAGATING = PARTIAL | KEEPING - {"sign"} | {"sin", "cos", "sinh", "cosh", "asinh", "nn.leaky_relu"}
"""Those whose results are infinite, or no numbers, where their operands are."""


def each(
    calc: Calculation, function: Callable[..., SumTerm], *operands: Tensor, of: str = "", hides: int = NOTHING
) -> Tensor:
    """A function of the elements at the same place, of operands that are broadcast to each other; ``of`` is its name
    if it gives other dtypes of integers, ``hides`` what it hides of the operands."""
    ndim = max(operand.ndim for operand in operands)
    shape = []
    for axis in range(ndim):
        sizes = [o.shape[axis - ndim + o.ndim] for o in operands if axis - ndim + o.ndim >= 0]
        shape.append(calc.path.broadcast(sizes, given=calc.given) if len(sizes) > 1 else sizes[0])

    def at(index: Index) -> SumTerm:
        with calc.algebra.under(hides=hides):
            values = [_aligned(calc, operand, shape, index) for operand in operands]
        is_open = any(value.is_open for value in values)
        return calc.algebra.settled(lambda: function(*values), hides if is_open else NOTHING)

    return Tensor(tuple(shape), calc.dtype(*operands, of=of), at)


def _aligned(calc: Calculation, x: Tensor, shape: Sequence[Poly], index: Index) -> SumTerm:
    """The element of an operand, of an index into the result."""
    return x.at(index if x.shape == tuple(shape) else picked(calc, x.shape, index))


def picked(calc: Calculation, shape: Sequence[Poly], index: Index) -> Index:
    """The index into an operand that is broadcast, of an index into the result."""
    own = index[len(index) - len(shape) :]
    return tuple(calc.path.pick(size, p) for size, p in zip(shape, own, strict=True))


def _arithmetic(
    operate: Callable[[TermAlgebra, SumTerm, SumTerm], SumTerm], hides: int = NOTHING
) -> ElementMeaning:
    def meaning(calc: Calculation, left: Tensor, right: Tensor) -> Tensor:
        return each(calc, lambda a, b: operate(calc.algebra, a, b), left, right, hides=hides)

    return meaning


def _add(calc: Calculation, left: Tensor, right: Tensor) -> Tensor:
    def total(a: SumTerm, b: SumTerm) -> SumTerm:
        if calc.path.reduce(result.dtype) == dtype_code("bool"):
            raise Unproved("a sum of bools")
        return calc.algebra.add(a, b)

    result = each(calc, total, left, right)
    return result


def quotient(calc: Calculation, left: Tensor, right: Tensor) -> Tensor:
    """A tensor divided by another one, which may be infinite."""
    result = each(calc, calc.algebra.times, left, right, of="divide")

    def at(index: Index) -> SumTerm:
        one = _aligned(calc, left, result.shape, index)
        return calc.algebra.times(one, calc.algebra.inverse_of(lambda: _aligned(calc, right, result.shape, index)))

    return replace(result, at=at)


def smaller(algebra: TermAlgebra, a: SumTerm, b: SumTerm) -> SumTerm:
    """The smaller of two numbers."""
    return algebra.negative(algebra.apply("max", algebra.negative(a), algebra.negative(b)))


def _power(calc: Calculation, base: Tensor, exponent: Tensor) -> Tensor:
    algebra = calc.algebra
    result = each(calc, algebra.add, base, exponent)

    def at(index: Index) -> SumTerm:
        number_ = _aligned(calc, exponent, result.shape, index)
        twice = None if number_.constant is None else number_.constant * 2
        if twice is None or twice.denominator != 1 or not -16 <= twice <= 16:
            raise Unproved("a power that is no small whole number, and no half of one")
        if not twice:
            return constant(1)  # also where its base has no value

        def factor() -> SumTerm:
            value = _aligned(calc, base, result.shape, index)
            return root(algebra, value) if twice % 2 else value

        own = factor() if twice > 0 else algebra.inverse_of(factor)
        return algebra.power(own, int(abs(twice)) // (1 if twice % 2 else 2))

    return replace(result, at=at)


def _unary(
    function: Callable[[TermAlgebra, SumTerm], SumTerm], of: str = "", hides: int = NOTHING
) -> ElementMeaning:
    return lambda calc, x, **_: each(calc, lambda value: function(calc.algebra, value), x, of=of, hides=hides)


def _inverse(function: Callable[[TermAlgebra, SumTerm], SumTerm], of: str) -> ElementMeaning:
    """One divided by a function."""

    def meaning(calc: Calculation, x: Tensor) -> Tensor:
        value = each(calc, lambda value: function(calc.algebra, value), x, of=of)
        return replace(value, at=lambda index: calc.algebra.inverse_of(lambda: value.at(index)))

    return meaning


def root(algebra: TermAlgebra, x: SumTerm) -> SumTerm:
    """A square root."""
    return algebra.apply("sqrt", x, partial=True)


def _gelu(algebra: TermAlgebra, x: SumTerm) -> SumTerm:
    scaled = algebra.times(x, algebra.inverse(algebra.apply("sqrt", constant(2))))
    return algebra.scale(algebra.times(x, algebra.add(constant(1), algebra.apply("erf", scaled))), Fraction(1, 2))


def _gelu_call(calc: Calculation, x: Tensor, approximate: str) -> Tensor:
    return opaque(calc, f"gelu {approximate}", x) if approximate != "none" else (
        _unary(_gelu, hides=INFINITE)(calc, x))  # fmt: skip


def _clip(calc: Calculation, x: Tensor, a_min: Any, a_max: Any) -> Tensor:
    def clipped(value: SumTerm) -> SumTerm:
        value = value if a_min is None else calc.algebra.apply("max", value, real(a_min))
        return value if a_max is None else smaller(calc.algebra, value, real(a_max))

    return each(calc, clipped, x, of="clip", hides=INFINITE)


def _relu6(algebra: TermAlgebra, x: SumTerm) -> SumTerm:
    return smaller(algebra, algebra.apply("max", x, ZERO), constant(6))


def _hardswish(algebra: TermAlgebra, x: SumTerm) -> SumTerm:
    inner = _relu6(algebra, algebra.add(x, constant(3)))
    return algebra.times(algebra.times(x, inner), algebra.inverse(constant(6)))


def _cast(calc: Calculation, x: Tensor, dtype: Any) -> Tensor:
    """A conversion: of a dtype all of whose values the other one has, the same number."""
    code = dtype_code(dtype)

    def holds() -> str:
        own = x.holds() if x.holds is not None else _chosen(calc, x.dtype)
        return own if exact_cast(own, _chosen(calc, code)) else _chosen(calc, code)

    def at(index: Index) -> SumTerm:
        before, after = _chosen(calc, x.dtype), _chosen(calc, code)
        if exact_cast(x.holds() if x.holds is not None else before, after):
            return x.at(index)
        # Out of range, the result of a float depends on its dtype; else on the number alone.
        name = f"to {after}" + (f" of {before}" if "float" in before and "int" in after else "")
        return calc.algebra.settled(lambda: calc.algebra.apply(name, x.at(index)), UNDEFINED)

    return Tensor(x.shape, code, at, None, holds)


def _chosen(calc: Calculation, code: Poly) -> str:
    """A dtype; where it is not known, each is a case of its own."""
    known = calc.path.reduce(code).number
    if known is None:
        known = calc.path.choose(range(1, len(DTYPES)), "a dtype")
        calc.path.assume(("==", code - known))
    return DTYPES[known]


_BITS = {"float16": (11, 15), "bfloat16": (8, 127), "float32": (24, 127), "float64": (53, 1023)}
"""The bits of the significand and the largest exponent."""


def exact_cast(before: str, after: str) -> bool:
    """True if a dtype has all the values of another one."""
    if before == after:
        return True
    if "complex" in before or "complex" in after or after == "bool":
        return False
    if before == "bool":
        return True
    if before in _BITS:
        return after in _BITS and all(a <= b for a, b in zip(_BITS[before], _BITS[after]))
    signed, bits = not before.startswith("u"), int(before.lstrip("uint"))
    if after in _BITS:
        return bits - signed <= _BITS[after][0] and bits <= _BITS[after][1]
    wide, sign = int(after.lstrip("uint")), not after.startswith("u")
    return wide - sign >= bits - signed and sign >= signed


def held(calc: Calculation, value: SumTerm, code: Poly) -> SumTerm:
    """A number as a tensor of a dtype has it, one of integers without what is behind the point."""
    known = value.constant
    if known in (0, 1) or (known is not None and known.denominator == 1
                           and not calc.path.decide(("==", code - dtype_code("bool")))):  # fmt: skip
        return value
    dtype = _chosen(calc, code)
    return calc.algebra.apply(f"to {dtype}", value) if "int" in dtype or dtype == "bool" else value


def opaque(calc: Calculation, name: str, *operands: Tensor, **attrs: Any) -> Tensor:
    """An element-wise operator of which only this is known: equal operands of equal dtypes give equal results."""
    numbers, arguments = [], []
    for key, value in sorted(attrs.items()):
        if isinstance(value, (Whole, int)) and not isinstance(value, bool):
            numbers.append(number(value))
        elif isinstance(value, (bool, str, type(None))):
            name += f" {key}={value}"
        else:
            arguments.append(real(value))
    if name.split(" ")[0] not in TOTAL | PARTIAL:
        numbers += [operand.dtype for operand in operands]

    def function(*values: SumTerm) -> SumTerm:
        partial = name.split(" ")[0] not in TOTAL | LOGICAL
        return calc.algebra.apply(name, *values, *arguments, numbers=numbers, partial=partial)

    own = name.split(" ")[0]
    hides = NOTHING if own in PROPAGATING else INFINITE if own in TOTAL and own != "sign" else UNDEFINED
    result = each(calc, function, *operands, of="" if name in KEEPING else name, hides=hides)
    return replace(result, dtype=dtype_code("bool")) if name in LOGICAL else result


def _exchanged(name: str) -> ElementMeaning:
    """A comparison that is another one of its operands in the other order."""
    return lambda calc, left, right: opaque(calc, name, right, left)


def _where(calc: Calculation, condition: Tensor, x: Tensor, y: Tensor) -> Tensor:
    """A choice: a value that is not chosen need not be one."""
    result = replace(opaque(calc, "where", condition, x, y), dtype=calc.dtype(x, y))
    algebra, dtypes = calc.algebra, [operand.dtype for operand in (condition, x, y)]

    def at(index: Index) -> SumTerm:
        chosen = _aligned(calc, condition, result.shape, index)
        with algebra.under(choices=[chosen]):
            one = _aligned(calc, x, result.shape, index)
        with algebra.under(choices=[algebra.apply("logical_not", chosen)]):
            other = _aligned(calc, y, result.shape, index)
        return algebra.apply("where", chosen, one, other, numbers=dtypes)

    return replace(result, at=at)


def filled(calc: Calculation, value: SumTerm, shape: Any, dtype: Any) -> Tensor:
    """A tensor that is filled with a number."""
    sizes = shape if isinstance(shape, tuple) else (shape,)
    return Tensor(tuple(map(number, sizes)), dtype_code(dtype), lambda index: value, lambda place: value)


def _like(value: int) -> ElementMeaning:
    return lambda calc, x: Tensor(x.shape, x.dtype, lambda _: constant(value), lambda _: constant(value))


def _full(calc: Calculation, value: Tensor, shape: Any, dtype: Any) -> Tensor:
    if value.ndim:
        raise Unproved("a tensor that is filled with one element of another one")
    result, code = filled(calc, ZERO, shape, dtype), dtype_code(dtype)
    return replace(result, at=lambda index: held(calc, value.at(()), code),
                   flat=lambda place: held(calc, value.at(()), code))  # fmt: skip


MEANINGS: dict[str, ElementMeaning] = {
    "add": _add,
    "subtract": _arithmetic(lambda algebra, a, b: algebra.add(a, algebra.negative(b))),
    "multiply": _arithmetic(TermAlgebra.times),
    "divide": quotient,
    "maximum": _arithmetic(lambda algebra, a, b: algebra.apply("max", a, b), INFINITE),
    "minimum": _arithmetic(smaller, INFINITE),
    "power": _power,
    "negative": _unary(TermAlgebra.negative),
    "square": _unary(lambda algebra, x: algebra.power(x, 2)),
    "reciprocal": _inverse(lambda algebra, x: x, "reciprocal"),
    "sqrt": _unary(root, "sqrt"),
    "rsqrt": _inverse(root, "rsqrt"),
    "copy": _unary(lambda algebra, x: x),
    "nn.dropout": _unary(lambda algebra, x: x),
    "nn.relu": _unary(lambda algebra, x: algebra.apply("max", x, ZERO), hides=INFINITE),
    "nn.relu6": _unary(_relu6, hides=INFINITE),
    "silu": _unary(lambda algebra, x: algebra.times(x, algebra.apply("sigmoid", x)), hides=INFINITE),
    "gelu": _gelu_call,
    "hardswish": _unary(_hardswish, hides=INFINITE),
    "clip": _clip,
    "cast": _cast,
    "where": _where,
    "greater": _exchanged("less"),
    "greater_equal": _exchanged("less_equal"),
    "zeros": lambda calc, shape, dtype: filled(calc, ZERO, shape, dtype),
    "ones": lambda calc, shape, dtype: filled(calc, constant(1), shape, dtype),
    "full": _full,
    "zeros_like": _like(0),
    "ones_like": _like(1),
}

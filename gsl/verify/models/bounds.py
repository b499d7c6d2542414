"""Real values in float64 with a bound on their rounding errors: a running error analysis.

A value carries for each element how far it may be from what exact arithmetic gives. An operator adds its own rounding
to what it makes of the errors of its operands, which is found by evaluating it: on absolute values where it is linear,
and on the corners of the box of operands otherwise. Where a decision is within the error, the bound is infinite.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, ClassVar, Final

import torch

from gsl.spec import TABLE, Trait
from gsl.spec.math import COMPARISONS
from gsl.verify import kinds
from gsl.verify.models.algebra import (
    COMMON,
    KEEP_INTEGERS,
    Algebra,
    AlgebraRule,
    ModelValue,
    as_floats,
    joins,
    meaning,
    moves,
    real_call,
    real_operand,
)
from gsl.verify.models.definitions import UncoveredCall
from gsl.verify.models.program import StraightLineStep

UNIT: Final = 2.0**-53
"""The relative error of one rounding in float64."""

_EXACT: Final = frozenset((
    "negative", "abs", "sign", "copy", "nn.dropout", "floor", "ceil", "round", "trunc", "nn.relu", "nn.relu6",
    "maximum", "minimum", "where", "clip", "cast", "mod", "floor_divide", "isnan", "isinf", "isfinite",
    *COMPARISONS,
))  # fmt: skip
"""Element-wise operators that do not round."""
_ARITHMETIC: Final = frozenset(("add", "subtract", "multiply", "divide", "square", "sqrt", "reciprocal", "floor_mod"))
"""Element-wise operators that round once."""
_FUNCTION_ROUNDINGS: Final = 16
"""For functions: the libraries' kernels are within 4 units in the last place, and activations join a few of them."""


@dataclass(frozen=True, slots=True)
class Rounded(ModelValue):
    """A tensor and the bound on the error of each element. Exact tensors stand for themselves, without a bound."""

    parts: ClassVar = ("value", "error")
    value: Any
    error: Any


def value_of(x: Any) -> Any:
    """The tensor, or the number, without its bound."""
    return x.value if isinstance(x, Rounded) else x


def error_of(x: Any) -> Any:
    """The bound on the error; None where there is none."""
    return x.error if isinstance(x, Rounded) else None


class Bounds(Algebra):
    """The model on real leaves, which are exact."""

    value: ClassVar = Rounded
    inside = False
    """True if a call is part of the definition of another operator, whose own kernel may round elsewhere."""

    def constant(self, numbers: Sequence[Fraction], shape: tuple[int, ...]) -> Any:
        return torch.tensor([float(number) for number in numbers], dtype=torch.float64).reshape(shape)

    def lift(self, value: Any) -> Rounded:
        if isinstance(value, Rounded):
            return value
        tensor = value if isinstance(value, torch.Tensor) else torch.tensor(float(value), dtype=torch.float64)
        return Rounded(tensor, torch.zeros(tensor.shape, dtype=torch.float64))

    def joined(self, values: Sequence[Any], function: Callable[..., Any]) -> Rounded:
        lifted = [self.lift(value) for value in values]
        return _known(function(*[x.value for x in lifted]), function(*[x.error for x in lifted]))

    def rounded(self, step: StraightLineStep, x: Any) -> Any:
        if not isinstance(x, Rounded):
            return real_call(step, [x])
        value = real_call(step, [x.value])
        ends: list[Any] = [real_call(step, [x.value + sign * x.error]) for sign in (-1, 1)]
        return _known(value, torch.maximum((ends[0] - value).abs(), (ends[1] - value).abs()))

    def __call__(self, op: str, *operands: Any, **attrs: Any) -> Any:
        if op not in self.rules and op in TABLE and Trait.ELEMENT_WISE in TABLE[op].traits:
            return _element_wise(self, op, *operands, **attrs)
        if op in self.rules:
            return super().__call__(op, *operands, **attrs)
        outside, self.inside = self.inside, True
        try:
            return super().__call__(op, *operands, **attrs)
        except UncoveredCall:
            return _undefined(op, operands, attrs)
        finally:
            self.inside = outside


def _undefined(op: str, operands: Sequence[Any], attrs: Mapping[str, Any]) -> Rounded:
    """The value of a call that is not covered by its definition, as the variance of one element: it is certain that
    there is none."""
    value = meaning(op)(torch, *map(value_of, operands), **attrs)
    doubtful = any(isinstance(x, Rounded) and bool(x.error.isinf().any()) for x in operands)
    return Rounded(value, torch.where(value.isnan() & (not doubtful), 0.0, torch.inf).double())


def _known(value: Any, spread: Any, own: Any = 0.0) -> Rounded:
    """A value with the errors that come from its operands, and its own rounding.

    A value that is not finite has no rounding of its own: it is certain unless its operands are not. An element of a
    tensor that is not of floats is certain or not.
    """
    error = torch.nan_to_num(spread, nan=torch.inf, posinf=torch.inf)
    if not value.is_floating_point():
        return Rounded(value, torch.where(error > 0, torch.inf, 0.0).double())
    return Rounded(value, error + torch.where(value.isfinite(), own, 0.0))


def _element_wise(o: Bounds, op: str, *operands: Any, **attrs: Any) -> Rounded:
    """The error of an operator that comes from its operands' errors, and from its own rounding."""
    values = [value_of(x) for x in operands]
    inexact = [i for i, x in enumerate(operands) if isinstance(x, Rounded) and x.value.is_floating_point()]
    if op in COMPARISONS and operands[0] is operands[1]:
        inexact = []  # what is compared with itself is sure
    result = _meant(op, values, attrs)
    wide = result.double()
    spread = torch.zeros(wide.shape, dtype=torch.float64)
    if inexact:
        errors = [error_of(x) if i in inexact else 0.0 for i, x in enumerate(operands)]
        propagate: Callable[..., Any] = _PROPAGATION.get(op, _corners)
        spread = spread + propagate(op, values, errors, attrs, wide)
        # What is made of anything at all is not certain, though it is not a number whatever that is.
        anything = torch.stack([torch.broadcast_to(operands[i].error, wide.shape) for i in inexact]).amax(0).isinf()
        spread = torch.where(anything & ~wide.isfinite(), torch.inf, spread)
    for x in operands:
        if isinstance(x, Rounded) and not x.value.is_floating_point():
            spread = spread + torch.where(x.error > 0, torch.inf, 0.0)
    return _known(result, spread, _rounding(o, op, values, wide))


def _corners(op: str, values: Sequence[Any], errors: Sequence[Any], attrs: Mapping[str, Any], result: Any) -> Any:
    """The largest change of the result at the corners of the box of operands, each corner at least one unit away."""
    change = torch.zeros(())
    inexact = [i for i, error in enumerate(errors) if isinstance(error, torch.Tensor)]
    steps = {i: torch.where(errors[i] > 0, errors[i] + 2 * UNIT * values[i].abs(), 0.0) for i in inexact}
    for signs in itertools.product((-1, 1), repeat=len(inexact)):
        corner = list(values)
        for sign, i in zip(signs, inexact):
            corner[i] = torch.where(steps[i] > 0, values[i] + sign * steps[i], values[i])  # 0 added to -0.0 is 0.0
        found = _meant(op, corner, attrs).double()
        same = (found == result) | (found.isnan() & result.isnan())
        change = torch.maximum(change, torch.where(same, 0.0, (found - result).abs().nan_to_num(torch.inf, torch.inf)))
    return change


def _sum_errors(op: str, values: Sequence[Any], errors: Sequence[Any], attrs: Mapping[str, Any], result: Any) -> Any:
    return errors[0] + errors[1]


def _product_errors(
    op: str, values: Sequence[Any], errors: Sequence[Any], attrs: Mapping[str, Any], result: Any
) -> Any:
    a, b = (_double(x).abs() for x in (values[0], values[-1]))
    # Infinity times no error is no error.
    return (a * errors[-1]).nan_to_num(0.0, torch.inf) + (errors[0] * (b + errors[-1])).nan_to_num(0.0, torch.inf)


def _quotient_errors(
    op: str, values: Sequence[Any], errors: Sequence[Any], attrs: Mapping[str, Any], result: Any
) -> Any:
    dividend, divisor = (_double(x).abs() for x in values)
    # What is not a number has no error by that of the divisor.
    spread = errors[0] + (result.abs() * errors[1]).nan_to_num(0.0, torch.inf)
    # A number divided by 0 is infinite, unless it may be 0 itself; one divided by none is none.
    certain = divisor.isnan() | (errors[1] == 0) & ((errors[0] == 0) | (dividend > errors[0]))
    by_zero = torch.where(certain, 0.0, torch.inf)
    return torch.where(divisor > errors[1], spread / (divisor - errors[1]), by_zero)


def _equality(op: str, values: Sequence[Any], errors: Sequence[Any], attrs: Mapping[str, Any], result: Any) -> Any:
    """Two numbers may be equal, or may not be, as long as they are no further apart than their errors."""
    a, b = (_double(x) for x in values)
    within = (a - b).abs() <= errors[0] + errors[1]
    return torch.where(within & (torch.as_tensor(errors[0] + errors[1]) > 0), torch.inf, 0.0)


_PROPAGATION: Final[Mapping[str, Callable[..., Any]]] = {
    "add": _sum_errors,
    "subtract": _sum_errors,
    "multiply": _product_errors,
    "square": _product_errors,
    "divide": _quotient_errors,
    "equal": _equality,
    "not_equal": _equality,
}
"""The functions that propagate the errors of operands; for other operators, the corners show the error."""


def _rounding(o: Bounds, op: str, values: Sequence[Any], result: Any) -> Any:
    """The largest distance of an element-wise operator's result from the exact one; for arithmetic, the distance
    itself."""
    if op in _EXACT:
        return torch.zeros(result.shape, dtype=torch.float64)
    if o.inside or op not in ("add", "subtract", "multiply", "square", "divide"):
        return (1 if op in _ARITHMETIC else _FUNCTION_ROUNDINGS) * UNIT * result.abs()
    if op in ("add", "subtract"):
        a, b = (_double(x) for x in values)
        b = b if op == "add" else -b
        # Knuth's error of a sum.
        back = result - a
        return ((a - (result - back)) + (b - back)).abs()
    if op in ("multiply", "square"):
        return _product_error(_double(values[0]), _double(values[-1]), result)
    a, b = (_double(x) for x in values)
    rest = (a - result * b).abs() + _product_error(result, b, result * b)
    return rest / b.abs() * (1 + 2 * UNIT)


def _double(x: Any) -> Any:
    return x.double() if isinstance(x, torch.Tensor) else torch.tensor(float(x), dtype=torch.float64)


def _product_error(a: Any, b: Any, product: Any) -> Any:
    """Dekker's error of a product, from halves of the digits."""
    (a_high, a_low), (b_high, b_low) = _halves(a), _halves(b)
    return (a_low * b_low - (((product - a_high * b_high) - a_low * b_high) - a_high * b_low)).abs()


def _halves(x: Any) -> tuple[Any, Any]:
    scaled = x * (2.0**27 + 1)
    high = scaled - (scaled - x)
    return high, x - high


def _sum_rounding(o: Bounds, values: Sequence[Any], magnitude: Any, count: int) -> Any:
    """The rounding errors of a sum of products: none where all operands have few digits, so that every partial sum is
    a small multiple of a power of two."""
    places = 2.0**12
    if not o.inside and all(bool((x * places == (x * places).round()).all()) for x in values) and (
        magnitude.numel() == 0 or float(magnitude.max()) * places ** len(values) < 2.0**53
    ):
        return torch.zeros(magnitude.shape, dtype=torch.float64)
    return magnitude * ((count + len(values)) * UNIT)


_OF_INTEGERS: Final = frozenset((*KEEP_INTEGERS, *COMPARISONS, *kinds.NATIVE))
"""Operators that take integers as they are."""


def _meant(op: str, values: Sequence[Any], attrs: Mapping[str, Any]) -> Any:
    operands: Sequence[Any] = [real_operand(x) if isinstance(x, float) else x for x in values]
    if op not in _OF_INTEGERS:
        operands = as_floats(operands)
    if all(isinstance(x, (bool, int)) for x in operands):
        operands = [torch.tensor(float(x), dtype=torch.float64) for x in operands]
    return meaning(op)(torch, *operands, **attrs)


def _scatter(o: Bounds, op: str, data: Any, places: Any, updates: Any, **attrs: Any) -> Any:
    return _selected(joins(o, op, data, value_of(places), updates, **attrs), (places,))


def _moves(o: Bounds, op: str, x: Any, *others: Any, **attrs: Any) -> Any:
    return _selected(moves(o, op, x, *others, **attrs), others if op in ("take", "gather") else ())


def _selected(result: Any, places: Sequence[Any]) -> Any:
    """The values that are selected by places. Where the places are not certain, the values may be anything."""
    if any(isinstance(x, Rounded) and bool((x.error > 0).any()) for x in places):
        return Rounded(result.value, torch.full(result.shape, torch.inf, dtype=torch.float64))
    return result


def _bias_add(o: Bounds, op: str, x: Any, bias: Any, *, axis: int) -> Rounded:
    rank = len(o.shape(x))
    return _element_wise(o, "add", x, o("reshape", bias, newshape=(-1, *[1] * (rank - 1 - axis))))


def _linear(o: Bounds, op: str, x: Any, **attrs: Any) -> Rounded:
    """Sums, and averages: linear with weights that are not negative."""
    lifted = o.lift(x)
    if not lifted.value.is_floating_point():
        lifted = Rounded(lifted.value.double(), lifted.error)
    count = kinds.terms(op, (lifted.value,), attrs) if op in kinds.SUMS else lifted.value.numel()
    own = meaning(op)(torch, lifted.value.abs(), **attrs)
    own = _sum_rounding(o, [lifted.value], own, count) if op in kinds.SUMS else own * ((count + 2) * UNIT)
    return _known(meaning(op)(torch, lifted.value, **attrs), meaning(op)(torch, lifted.error, **attrs), own)


def _products(o: Bounds, op: str, *operands: Any, **attrs: Any) -> Rounded:
    """``|a b - a' b'| <= |a| e_b + e_a (|b| + e_b)``, and the roundings of as many products as are added up."""
    is_tuple = isinstance(operands[0], tuple)
    factors = [o.lift(x) for x in (operands[0] if is_tuple else operands)]
    values = [x.value for x in factors]

    def compute(parts: Sequence[Any]) -> Any:
        return meaning(op)(torch, *((list(parts),) if is_tuple else parts), **attrs)

    result = compute(values)
    magnitudes = [_double(x.value).abs() for x in factors]
    count = kinds.terms(op, (values,) if is_tuple else values, attrs)
    own = _sum_rounding(o, values, compute(magnitudes), count)
    spread = torch.zeros(result.shape, dtype=torch.float64)
    for i, x in enumerate(factors):
        wider = [size + y.error for size, y in zip(magnitudes, factors[:i])]
        spread = spread + compute([*wider, x.error, *magnitudes[i + 1 :]])
    return _known(result, spread.abs(), own)


def _extremes(o: Bounds, op: str, x: Any, **attrs: Any) -> Rounded:
    """Maxima and minima: no further off than the worst of their elements."""
    x = o.lift(x)
    worst = "max" if op in ("max", "min") else op
    error = meaning(worst)(torch, x.error, **attrs).clamp(min=0.0)  # a window of nothing but padding has none
    return _known(meaning(op)(torch, x.value, **attrs), error)


def _places(o: Bounds, op: str, x: Any, *, axis: Any, keepdims: bool, exclude: bool) -> Any:
    """The place of an extreme is certain where no other element may reach it."""
    result = meaning(op)(torch, value_of(x), axis, keepdims, exclude)
    if not isinstance(x, Rounded):
        return result
    value = x.value if op == "argmax" else -x.value
    axes = axis or ()
    if not axes:
        return result
    reached = value + x.error >= (value - x.error).amax(axes, keepdim=True)
    # Exact elements that are equal are told apart by their place.
    doubtful = (reached.sum(axes, keepdim=True) > 1) & (reached & (x.error > 0)).amax(axes, keepdim=True)
    return _known(result, doubtful.double().reshape(result.shape))


def _topk(o: Bounds, op: str, x: Any, *, k: int, axis: int, **flags: Any) -> Any:
    """The elements are no further off than the worst along the axis; their places are certain where no two elements
    that come in question may change places."""
    elements, places = meaning(op)(torch, value_of(x), k, axis, **flags)
    if not isinstance(x, Rounded):
        return elements, places
    worst = x.error.amax(axis, keepdim=True)
    first, _ = meaning(op)(torch, x.value, min(k + 1, x.value.shape[axis]), axis, flags["largest"], True)
    near = (first.diff(dim=axis).abs() <= 2 * worst) & (worst > 0)
    doubtful = near.any(axis, keepdim=True).double()
    return _known(elements, worst.expand_as(elements)), _known(places, doubtful.expand_as(places))


def _logic(o: Bounds, op: str, x: Any, **attrs: Any) -> Any:
    """``all`` and ``any`` are certain where all elements are."""
    result = meaning(op)(torch, value_of(x), **attrs)
    if not isinstance(x, Rounded):
        return result
    return _known(result, meaning("max")(torch, x.error, **attrs))


_RULES: dict[str, AlgebraRule] = {op: rule for op, rule in COMMON.items() if op != "where"}
_RULES.update(dict.fromkeys(kinds.MOVES - {"copy", "nn.dropout"}, _moves))
_RULES.update(dict.fromkeys(kinds.SUMS | kinds.AVG_POOLS, _linear))
_RULES.update(dict.fromkeys(kinds.PRODUCTS - {"multiply"}, _products))
_RULES.update(dict.fromkeys(kinds.MAX_POOLS | {"max", "min"}, _extremes))
_RULES.update(dict.fromkeys(("argmax", "argmin"), _places))
_RULES.update(dict.fromkeys(("all", "any"), _logic))
_RULES.update({"nn.bias_add": _bias_add, "scatter": _scatter, "topk": _topk})
Bounds.rules = _RULES


def within(expected: Any, found: Any, a: Any, b: Any) -> Any:
    """True where two values (with their bounds ``a`` and ``b``) are as near as their errors let them be.

    The kernels of the operators need not round as the analysis does, but no worse than twice as much, and by as much as
    the two are seen to differ: the exponentials of a definition overflow, or vanish, where those of a kernel do not.
    """
    bound = torch.zeros(expected.shape, dtype=torch.float64)
    for real, side in ((expected, a), (found, b)):
        if isinstance(side, UncoveredCall):
            raise side
        if isinstance(side, Rounded):
            bound = bound + 2 * side.error + _apart(side.value, real)
    near = (expected - found).abs() <= bound if expected.is_floating_point() else expected == found
    return near | bound.isinf()


def _apart(value: Any, real: Any) -> Any:
    """The distance of two values of one call, infinite where only one of them is a finite number."""
    if not real.is_floating_point():
        return 0.0
    alike = (value == real) | (value.isnan() & real.isnan())
    return torch.where(alike, 0.0, (value - real).abs().nan_to_num(torch.inf, torch.inf))

"""The model of exact rationals: whole numerators over one denominator for each tensor.

Numerators are whole numbers in float64, which holds all of them up to 2**53; so the operators' own kernels compute them
without any rounding, as long as no intermediate sum is larger. This is proved, not observed: every value carries a
bound on its elements and on the partial sums that made them, as a multiple of a power of the range of the leaves.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, ClassVar, Final

import torch

from gsl.verify import kinds
from gsl.verify.models.algebra import COMMON, Algebra, AlgebraRule, ModelValue, clip, meaning, moves, power
from gsl.verify.models.definitions import UncoveredCall
from gsl.verify.models.program import rational

LARGEST: Final = 2**52
"""No numerator may be larger, so that sums and twice a numerator are still exact."""

TOO_LARGE: Final = "numbers beyond 2**52"


@dataclass(frozen=True, slots=True)
class Exact(ModelValue):
    """A tensor ``numerators / denominator``, whose numerators are at most ``coefficient * range**degree``."""

    parts: ClassVar = ("numerators",)
    numerators: Any
    denominator: int
    coefficient: int
    degree: int


class Integers(Algebra):
    """The model on leaves that are whole numbers of at most a range."""

    value: ClassVar = Exact

    def __init__(self, range: int) -> None:
        self.range = range
        self.largest: dict[int, int] = {}
        """The largest coefficient that occurred for each degree."""
        self.ordered = False
        """True if any operator decided by the order of numbers."""

    def exact(self, numerators: Any, denominator: int, coefficient: int, degree: int) -> Exact:
        """A value after its bound is checked."""
        if coefficient > self.largest.get(degree, 0):
            self.largest[degree] = coefficient
            if coefficient * self.range**degree > LARGEST:
                raise UncoveredCall(TOO_LARGE)
        return Exact(numerators, denominator, coefficient, degree)

    def leaf(self, numerators: Any, denominator: int = 1) -> Exact:
        """A leaf whose numerators are within the range."""
        return self.exact(numerators, denominator, 1, 1)

    def constant(self, numbers: Sequence[Fraction], shape: tuple[int, ...]) -> Exact:
        denominator = math.lcm(*[number.denominator for number in numbers])
        whole = [int(number * denominator) for number in numbers]
        bound = max(map(abs, whole), default=1)
        if bound > LARGEST or denominator > LARGEST:
            raise UncoveredCall("a literal with too many digits for the integers")
        return self.exact(torch.tensor(whole, dtype=torch.float64).reshape(shape), denominator, max(bound, 1), 0)

    def lift(self, value: Any) -> Exact:
        if isinstance(value, Exact):
            return value
        if isinstance(value, torch.Tensor):
            bound = int(value.double().abs().max()) if value.numel() and value.dtype != torch.bool else 1
            return self.exact(value.double(), 1, max(bound, 1), 0)
        return self.constant([rational(value)], ())

    def joined(self, values: Sequence[Any], function: Callable[..., Any]) -> Exact:
        parts, *bound = self.aligned(values)
        return self.exact(function(*parts), *bound)

    def differing(self, expected: Any, found: Any) -> Any:
        """True where two values differ; not where the expected one is not a number."""
        if isinstance(expected, Exact) or isinstance(found, Exact):
            (a, b), *_ = self.aligned((expected, found))
            return (a != b) & ~a.isnan()
        return expected != found

    def chance(self, expected: Any, found: Any) -> float:
        """A bound on the probability that two values that are different functions agree on one draw."""
        if self.ordered or not isinstance(expected, Exact) or not isinstance(found, Exact):
            return 1.0
        return min(1.0, max(expected.degree, found.degree) / (2 * self.range + 1))

    def aligned(self, values: Sequence[Any]) -> tuple[list[Any], int, int, int]:
        """The numerators of values over one denominator, that denominator, and their bound."""
        lifted = [self.lift(value) for value in values]
        common = math.lcm(*[value.denominator for value in lifted])
        parts, coefficient = [], 1
        for value in lifted:
            factor = common // value.denominator
            parts.append(value.numerators if factor == 1 else value.numerators * factor)
            coefficient = max(coefficient, value.coefficient * factor)
        degree = max([value.degree for value in lifted], default=0)
        self.exact(None, 1, coefficient, degree)
        return parts, common, coefficient, degree


def _adds(o: Integers, op: str, x: Any, y: Any, **attrs: Any) -> Exact:
    (a, b), common, coefficient, degree = o.aligned((x, y))
    return o.exact(meaning(op)(torch, a, b, **attrs), common, 2 * coefficient, degree)


def _products(o: Integers, op: str, *operands: Any, **attrs: Any) -> Exact:
    factors = [o.lift(x) for x in (operands[0] if isinstance(operands[0], tuple) else operands)]
    parts = [factor.numerators for factor in factors]
    given = (parts,) if isinstance(operands[0], tuple) else parts
    coefficient = kinds.terms(op, given, attrs) * math.prod([factor.coefficient for factor in factors])
    degree = sum([factor.degree for factor in factors])
    # The bound goes before the product, so that nothing is computed that would not be exact.
    o.exact(None, 1, coefficient, degree)
    return o.exact(
        meaning(op)(torch, *given, **attrs), math.prod([f.denominator for f in factors]), coefficient, degree
    )


def _sums(o: Integers, op: str, x: Any, **attrs: Any) -> Exact:
    x = o.lift(x)
    count = kinds.terms(op, (x.numerators,), attrs) + 1
    return o.exact(meaning(op)(torch, x.numerators, **attrs), x.denominator, x.coefficient * count, x.degree)


def _divide(o: Integers, op: str, x: Any, y: Any) -> Exact:
    """A division by a literal."""
    if not isinstance(y, (bool, int, float)) or y == 0:
        raise UncoveredCall("a division by a tensor")
    return _products(o, "multiply", x, o.constant([1 / rational(y)], ()))


def _power(o: Integers, op: str, x: Any, y: Any) -> Any:
    exponent = rational(y) if isinstance(y, (bool, int, float)) else Fraction(-1)
    if exponent.denominator != 1 or not 0 < exponent <= 8:
        raise UncoveredCall("a power other than a small whole one")
    return power(o, op, x, exponent)


def _averages(o: Integers, op: str, x: Any, **attrs: Any) -> Exact:
    """An average times the counts' common multiple is whole, and the average is near enough to tell which."""
    x = o.lift(x)
    multiple = kinds.window_multiple(op, x.shape, attrs)
    # Half of the bits are kept for the rounding of the average.
    o.exact(None, 1, x.coefficient * multiple * 8, x.degree)
    whole = torch.round(meaning(op)(torch, x.numerators, **attrs) * multiple)
    return o.exact(whole, x.denominator * multiple, x.coefficient * multiple, x.degree)


# Operators that decide by order


def _chooses(o: Integers, op: str, *operands: Any, **attrs: Any) -> Exact:
    """Operators that commute with a positive factor: their elements are those of their operands, or negated ones."""
    o.ordered = True
    parts, *bound = o.aligned(operands)
    result = meaning(op)(torch, *parts, **attrs)
    if op in kinds.MAX_POOLS and any(attrs.get("padding", ())) and bool(result.isinf().any()):
        raise UncoveredCall("a window of nothing but padding")
    return o.exact(result, *bound)


def _decides(o: Integers, op: str, *operands: Any, **attrs: Any) -> Any:
    """Operators that a positive factor of all operands does not change, and whose results are not floats."""
    o.ordered = True
    parts, *_ = o.aligned(operands)
    return meaning(op)(torch, *parts, **attrs)


def _topk(o: Integers, op: str, x: Any, **attrs: Any) -> Any:
    """The elements commute with a positive factor, and their places do not change by one."""
    o.ordered = True
    parts, *bound = o.aligned((x,))
    elements, places = meaning(op)(torch, *parts, **attrs)
    return o.exact(elements, *bound), places


def _sign(o: Integers, op: str, x: Any) -> Exact:
    o.ordered = True
    return o.exact(torch.sign(o.lift(x).numerators), 1, 1, 0)


def _rounds(o: Integers, op: str, x: Any) -> Exact:
    o.ordered = True
    x = o.lift(x)
    if x.denominator == 1:
        return o.lift(x)
    if op == "round":
        down = torch.div(x.numerators, x.denominator, rounding_mode="floor")
        rest = 2 * (x.numerators - down * x.denominator) - x.denominator
        up = (rest > 0) | ((rest == 0) & (torch.remainder(down, 2) == 1))
        return o.exact(down + up, 1, x.coefficient, x.degree)
    if op == "ceil":
        return o.exact(-torch.div(-x.numerators, x.denominator, rounding_mode="floor"), 1, x.coefficient, x.degree)
    return o.exact(torch.div(x.numerators, x.denominator, rounding_mode=op), 1, x.coefficient, x.degree)


def _divides_whole(o: Integers, op: str, x: Any, y: Any) -> Exact:
    """Division without remainder, and remainders. Elements divided by 0 are not numbers."""
    o.ordered = True
    (a, b), common, coefficient, degree = o.aligned((x, y))
    b = torch.where(b == 0, torch.nan, b)
    result = meaning(op)(torch, a, b)
    return o.exact(result, 1 if op == "floor_divide" else common, coefficient + 1, degree)


def _cast(o: Integers, op: str, x: Any, *, dtype: str) -> Any:
    x = o.lift(x)
    if dtype == "float64":
        return x
    if dtype != "bool":
        o.ordered = True
        x = _rounds(o, "trunc", x)
    return x.numerators.to(getattr(torch, dtype))


_RULES: dict[str, AlgebraRule] = dict(COMMON)
_RULES.update(dict.fromkeys(kinds.MOVES, moves))
_RULES.update(dict.fromkeys(kinds.ADDS, _adds))
_RULES.update(dict.fromkeys(kinds.PRODUCTS, _products))
_RULES.update(dict.fromkeys(kinds.SUMS, _sums))
_RULES.update(dict.fromkeys(kinds.AVG_POOLS, _averages))
_RULES.update(dict.fromkeys(kinds.MAX_POOLS | {"nn.relu", "abs", "maximum", "minimum", "max", "min"}, _chooses))
_RULES.update(dict.fromkeys(kinds.PREDICATES | {"argmax", "argmin", "all", "any"}, _decides))
_RULES.update(dict.fromkeys(("floor", "ceil", "round", "trunc"), _rounds))
_RULES.update(dict.fromkeys(("floor_divide", "floor_mod", "mod"), _divides_whole))
_RULES.update({"divide": _divide, "power": _power, "sign": _sign, "clip": clip, "cast": _cast, "topk": _topk})
Integers.rules = _RULES

INTEGERS: Final = frozenset(_RULES) | {
    "negative", "square", "mean", "variance", "prod", "nn.relu6", "nn.leaky_relu", "nn.prelu", "hardsigmoid",
    "hardswish", *(f"nn.global_avg_pool{n}d" for n in (1, 2, 3)),
}  # fmt: skip
"""Operators that are exact over the integers and the rationals."""


def widest(largest: Mapping[int, int], most: int = 2**20) -> int:
    """The largest power of two within ``most`` that leaves may range to if these are the bounds."""
    range = most
    while range > 1 and any(coefficient * range**degree > LARGEST for degree, coefficient in largest.items()):
        range //= 2
    return range

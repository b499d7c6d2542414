"""The model of a prime field: sums, products and quotients are those modulo p, and functions keep their laws.

p = 2 q + 1 with q prime too. A value is a residue modulo p and, as long as it may still be an exponent, one modulo q:
by the Chinese remainder theorem, both are parts of one number modulo p q. The exponential takes the residue modulo q to
a power of an element of order q, so that exp(a + b) = exp(a) exp(b) (as in Mirage); the logarithm goes the other way.

A residue modulo p counts as positive if it is a square. Since -1 is none (p = 3 modulo 4), just one of x and -x is
positive, products have the sign that they have among the numbers, and so do all literals whose factors are small
primes: p was chosen so that the primes up to 37 are squares. Powers of the element of order q are positive, too.
Sums need not keep signs, so an order decision is not the one among the numbers, but one that keeps these laws.
"""

from __future__ import annotations

import functools
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, ClassVar, Final

import numpy as np
import torch

from gsl.pat.typed import Domain
from gsl.spec.math import COMPARISONS
from gsl.verify import kinds
from gsl.verify.models.algebra import COMMON, Algebra, AlgebraRule, ModelValue, clip, joins, meaning, moves, power
from gsl.verify.models.definitions import DEFINITIONS, UncoveredCall
from gsl.verify.models.program import rational

# ---------------------------------------------------------------- residues


P: Final = 2080679
"""A prime of 21 bits, such that products of two residues add up exactly; q is a prime, and 2 to 37 are squares."""
Q: Final = (P - 1) // 2
MOST_TERMS: Final = 2**53 // (P * P)
"""The number of products of two residues that add up exactly in float64."""


@functools.cache
def tables() -> tuple[Any, Any, Any]:
    """The powers of a generator modulo p, the exponent of each residue (0 for 0), and a table of random residues."""
    generator = next(g for g in range(2, P) if pow(g, 2, P) != 1 and pow(g, Q, P) != 1)
    powers: Any = np.ones(1, dtype=np.int64)
    while len(powers) < P - 1:
        powers = np.concatenate([powers, powers * pow(generator, len(powers), P) % P])
    powers = powers[: P - 1]
    exponents = np.zeros(P, dtype=np.int32)
    exponents[powers] = np.arange(P - 1)
    noise = np.random.default_rng(0).integers(0, P, P)
    return tuple(torch.from_numpy(table.astype(np.int32)) for table in (powers, exponents, noise))  # type: ignore[return-value]


@dataclass(frozen=True, slots=True)
class Residues(ModelValue):
    """A tensor of residues as whole numbers in float64. One of ``p`` and ``q`` may be missing, not both."""

    parts: ClassVar = ("p", "q")
    p: Any
    q: Any
    up: int
    """The degree of the numerator, as a rational function of the drawn values."""
    down: int
    """The degree of the denominator."""
    weight: int | None
    """The sum of the absolute coefficients if the value is a linear form with whole coefficients; otherwise None."""


def power_of_generator(exponents: Any) -> Any:
    """The powers of the generator modulo p."""
    return tables()[0][exponents.long()].double()


def draw(rng: Any, shape: Any, domain: Domain | None = None) -> Residues:
    """A leaf: independent residues modulo p and modulo q; a square modulo p, if its numbers are not negative."""
    p, q = (torch.from_numpy(np.asarray(rng.integers(0, modulus, shape)).astype(np.float64)) for modulus in (P, Q))
    if domain is None:
        return Residues(p, q, 1, 0, 1)
    p = torch.where(p == 0, 1, p) if domain.nonzero else p
    return Residues(p * p % P, q, 2, 0, 1) if domain.low == 0 else Residues(p, q, 1, 0, 1)


# ---------------------------------------------------------------- the model


class Field(Algebra):
    """The model on leaves of random residues."""

    value: ClassVar = Residues

    def __init__(self, key: int) -> None:
        self.key = key
        """Chooses the uninterpreted functions."""
        self.bounded = True
        """True if the probability of chance agreement has a bound: no order, no logarithm, no other exponent than a
        linear form of small whole coefficients."""
        self.calls = 0
        """The number of numbers to which uninterpreted functions were applied."""
        self.degree = 1
        """The largest degree of an operand of an uninterpreted function."""

    def constant(self, numbers: Sequence[Fraction], shape: tuple[int, ...]) -> Residues:
        try:
            p, q = (
                torch.tensor(
                    [n.numerator * pow(n.denominator, -1, modulus) % modulus for n in numbers], dtype=torch.float64
                ).reshape(shape)
                for modulus in (P, Q)
            )
        except ValueError:
            raise UncoveredCall("a literal whose denominator is divided by the prime") from None
        return Residues(p, q, 0, 0, 0)

    def lift(self, value: Any) -> Residues:
        if isinstance(value, Residues):
            return value
        if isinstance(value, torch.Tensor):
            whole = value.double()
            return Residues(whole % P, whole % Q, 0, 0, 0)
        return self.constant([rational(value)], ())

    def joined(self, values: Sequence[Any], function: Callable[..., Any]) -> Residues:
        lifted = [self.lift(value) for value in values]
        return _combined(lifted, function, *_common(lifted))

    def differing(self, expected: Any, found: Any) -> Any:
        """True where two values differ; Uncovered if they have no modulus in common."""
        if not isinstance(expected, Residues) and not isinstance(found, Residues):
            return expected != found
        expected, found = self.lift(expected), self.lift(found)
        if expected.p is not None and found.p is not None:
            return expected.p != found.p
        if expected.q is not None and found.q is not None:
            return expected.q != found.q
        raise UncoveredCall("an exponential against a logarithm")

    def chance(self, expected: Any, found: Any) -> float:
        """A bound on the probability that two values that are different functions agree on one draw."""
        if not self.bounded or not isinstance(expected, Residues) or not isinstance(found, Residues):
            return 1.0
        degree = max(expected.up + found.down, found.up + expected.down) + expected.down + found.down
        return min(1.0, (degree + self.calls**2 * self.degree) / Q)

    def sign(self, value: Any) -> Any:
        """1 where a value is positive, -1 where it is negative, 0 where it is 0."""
        self.bounded = False
        residues = self.residues(value, "an order decision about a logarithm")
        squares = 1 - 2 * (tables()[1][residues.long()] & 1).double()
        return torch.where(residues == 0, 0.0, squares)

    def residues(self, value: Any, what: str) -> Any:
        """The residues modulo p; Uncovered if there are none."""
        lifted = self.lift(value)
        if lifted.p is None:
            raise UncoveredCall(what)
        return lifted.p

    def nonzero(self, value: Any, what: str) -> Any:
        """The exponents of the residues modulo p; Uncovered if any is 0."""
        residues = self.residues(value, what)
        if bool((residues == 0).any()):
            raise UncoveredCall(f"{what} 0")
        return tables()[1][residues.long()].double()


def _combined(
    operands: Sequence[Residues], compute: Callable[..., Any], up: int, down: int, weight: int | None
) -> Residues:
    """The value that is computed modulo p from the residues modulo p, and likewise modulo q."""
    p = None if any(x.p is None for x in operands) else compute(*[x.p for x in operands]) % P
    q = None if any(x.q is None for x in operands) else compute(*[x.q for x in operands]) % Q
    if p is None and q is None:
        raise UncoveredCall("an exponential and a logarithm in one sum or product")
    return Residues(p, q, up, down, weight)


def _common(values: Sequence[Residues]) -> tuple[int, int, int | None]:
    """The degrees and the weight of a value whose elements are those of several."""
    weights = [x.weight for x in values]
    weight = None if None in weights else max([w for w in weights if w is not None], default=0)
    return max([x.up for x in values], default=0), max([x.down for x in values], default=0), weight


def _adds(o: Field, op: str, x: Any, y: Any, **attrs: Any) -> Residues:
    x, y = o.lift(x), o.lift(y)
    weight = None if x.weight is None or y.weight is None else x.weight + y.weight
    up, down = max(x.up + y.down, y.up + x.down), x.down + y.down
    return _combined((x, y), lambda a, b: meaning(op)(torch, a, b, **attrs), up, down, weight)


def _sums(o: Field, op: str, x: Any, **attrs: Any) -> Residues:
    x = o.lift(x)
    count = kinds.terms(op, (x.any_part,), attrs) + 1
    up, down = x.up + (count - 1) * x.down, count * x.down
    weight = None if x.weight is None else count * x.weight
    return _combined((x,), lambda a: meaning(op)(torch, a, **attrs), up, down, weight)


def _products(o: Field, op: str, *operands: Any, **attrs: Any) -> Residues:
    is_tuple = isinstance(operands[0], tuple)
    factors = [o.lift(x) for x in (operands[0] if is_tuple else operands)]
    if len(factors) > 2:
        raise UncoveredCall(f"{op} of more than two tensors")
    parts = [x.any_part for x in factors]
    count = kinds.terms(op, (parts,) if is_tuple else parts, attrs)
    if count > MOST_TERMS:
        raise UncoveredCall(f"a sum of more than {MOST_TERMS} products")
    up = sum([x.up for x in factors]) + (count - 1) * sum([x.down for x in factors])
    down = count * sum([x.down for x in factors])
    return _combined(
        factors, lambda *a: meaning(op)(torch, *((a,) if is_tuple else a), **attrs), up, down,
        _scaled(factors, operands),
    )  # fmt: skip


def _scaled(factors: Sequence[Residues], operands: Sequence[Any]) -> int | None:
    """The weight of a product: that of a linear form times a whole literal."""
    for factor, other in zip(factors, reversed(operands)):
        if isinstance(other, (bool, int, float)) and float(other).is_integer() and factor.weight is not None:
            return int(abs(other)) * factor.weight
    return None


def _divide(o: Field, op: str, x: Any, y: Any) -> Residues:
    if isinstance(y, (bool, int, float)):
        if y == 0:
            raise UncoveredCall("a division by 0")
        inverse = o.constant([1 / rational(y)], ())
        return _products(o, "multiply", x, inverse)
    x, y = o.lift(x), o.lift(y)
    p = q = None
    if x.p is not None and y.p is not None:
        p = x.p * power_of_generator((P - 1 - o.nonzero(y, "a division by")) % (P - 1)) % P
    if x.q is not None and y.q is not None and not bool((y.q == 0).any()):
        inverses = [pow(int(item), -1, Q) for item in y.q.reshape(-1).tolist()]
        q = x.q * torch.tensor(inverses, dtype=torch.float64).reshape(y.q.shape) % Q
    if p is None and q is None:
        raise UncoveredCall("a quotient of an exponential and a logarithm")
    return Residues(p, q, x.up + y.down, x.down + y.up, None)


def _power(o: Field, op: str, x: Any, y: Any) -> Any:
    exponent = rational(y) if isinstance(y, (bool, int, float)) else None
    if exponent is None or exponent.denominator > 2 or not 0 < abs(exponent) <= 8:
        return _uninterpreted(o, op, x, y)
    return power(o, op, x, exponent)


def _averages(o: Field, op: str, x: Any, **attrs: Any) -> Residues:
    """As among the integers: the average of residues as whole numbers, times a multiple of the counts."""
    x = o.lift(x)
    multiple = kinds.window_multiple(op, x.shape, attrs)
    if multiple * P > 2**49:
        raise UncoveredCall("an average over windows too large")

    def average(modulus: int) -> Callable[[Any], Any]:
        inverse = pow(multiple, -1, modulus)
        return lambda a: torch.round(meaning(op)(torch, a, **attrs) * multiple) % modulus * inverse % modulus

    p = None if x.p is None else average(P)(x.p)
    q = None if x.q is None else average(Q)(x.q)
    count = max(multiple, 1)
    return Residues(p, q, x.up + (count - 1) * x.down, count * x.down, None)


# Functions that keep some of their laws


def _sqrt(o: Field, op: str, x: Any) -> Residues:
    """The power (p + 1) / 4: multiplicative, the positive root of a positive residue, and sqrt(x * x) = abs(x)."""
    o.bounded = False
    x = o.lift(x)
    residues = o.residues(x, "a root of a logarithm")
    exponents = tables()[1][residues.long()].long() * ((P + 1) // 4) % (P - 1)
    return Residues(torch.where(residues == 0, 0.0, power_of_generator(exponents)), None, x.up, x.down, None)


def _exp(o: Field, op: str, x: Any) -> Residues:
    x = o.lift(x)
    if x.q is None:
        # A positive function of the value, of which no law is kept.
        value = _uninterpreted(o, op, x)
        return Residues(value.p * value.p % P, None, 2, 0, None)
    if x.weight is None:
        o.bounded = False
    return Residues(power_of_generator(2 * x.q), None, x.weight or 0, x.weight or 0, None)


def _log(o: Field, op: str, x: Any) -> Residues:
    """The inverse of the exponential for positive residues, and log(-x) = log(x)."""
    o.bounded = False
    exponents = o.nonzero(x, "a logarithm of")
    return Residues(None, exponents * pow(2, -1, Q) % Q, 1, 0, None)


def _uninterpreted(o: Field, op: str, *operands: Any, **attrs: Any) -> Residues:
    """A pseudo-random function of the residues modulo p, another one for each operator and its attributes."""
    lifted = [o.lift(x) for x in operands]
    code = zlib.crc32(repr((o.key, op, sorted(attrs.items()))).encode())
    noise = tables()[2]
    place = torch.full((), float(code % P), dtype=torch.float64)
    for x in lifted:
        place = noise[((o.residues(x, f"{op} of a logarithm") + place) % P).long()].double()
    o.calls += len(lifted) * place.numel()
    o.degree = max(o.degree, *[x.up + x.down for x in lifted])
    other = noise[((place * 3 + code % 1009) % P).long()].double() % Q
    return Residues(place, other, 1, 0, 1)


def _odd(o: Field, op: str, x: Any) -> Residues:
    """An uninterpreted function of the absolute value, with the sign of the operand."""
    sign = o.sign(x)
    value = _uninterpreted(o, op, _abs(o, "abs", x))
    return Residues(value.p * sign % P, value.q * sign % Q, 1, 0, None)


def _even(o: Field, op: str, x: Any) -> Residues:
    return _uninterpreted(o, op, _abs(o, "abs", x))


# Order


def _abs(o: Field, op: str, x: Any) -> Residues:
    sign = o.sign(x)
    x = o.lift(x)
    return _combined((x,), lambda a: a * sign, x.up, x.down, None)


def _sign(o: Field, op: str, x: Any) -> Residues:
    return o.lift(o.sign(x))


def _relu(o: Field, op: str, x: Any) -> Residues:
    x, sign = o.lift(x), o.sign(x)
    return _combined((x,), lambda a: torch.where(sign > 0, a, 0.0), x.up, x.down, None)


def _larger(o: Field, op: str, x: Any, y: Any) -> Any:
    sign = o.sign(_adds(o, "subtract", x, y))
    return joins(o, "where", sign > 0 if op == "maximum" else sign < 0, x, y)


def _compare(o: Field, op: str, x: Any, y: Any) -> Any:
    return meaning(op)(torch, o.sign(_adds(o, "subtract", x, y)), 0)


def _cast(o: Field, op: str, x: Any, *, dtype: str) -> Any:
    if dtype == "float64":
        return o.lift(x)
    if dtype == "bool":
        return o.sign(x) != 0
    raise UncoveredCall("a cast of floats to integers")


UNINTERPRETED: Final = frozenset(
    ("floor_divide", "floor_mod", "mod", "atan2", "acos", "acosh", "floor", "ceil", "round", "trunc")
)
"""Functions of which no law is kept but that equal operands have equal values."""
ODD: Final = frozenset(("erf", "sin", "asin", "atan", "asinh", "atanh"))
EVEN: Final = frozenset(("cos",))

_RULES: dict[str, AlgebraRule] = dict(COMMON)
_RULES.update(dict.fromkeys(kinds.MOVES, moves))
_RULES.update(dict.fromkeys(kinds.ADDS, _adds))
_RULES.update(dict.fromkeys(kinds.SUMS, _sums))
_RULES.update(dict.fromkeys(kinds.PRODUCTS, _products))
_RULES.update(dict.fromkeys(kinds.AVG_POOLS, _averages))
_RULES.update(dict.fromkeys(COMPARISONS, _compare))
_RULES.update(dict.fromkeys(UNINTERPRETED, _uninterpreted))
_RULES.update(dict.fromkeys(ODD, _odd))
_RULES.update(dict.fromkeys(EVEN, _even))
_RULES.update({
    "divide": _divide, "power": _power, "sqrt": _sqrt, "exp": _exp, "log": _log, "abs": _abs, "sign": _sign,
    "nn.relu": _relu, "maximum": _larger, "minimum": _larger, "clip": clip, "cast": _cast,
})  # fmt: skip
Field.rules = _RULES

FIELD: Final = frozenset(_RULES) | frozenset(DEFINITIONS)
"""The operators that have values in the prime field."""

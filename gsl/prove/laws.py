"""The laws of functions of real numbers that the normal form knows."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from fractions import Fraction
from math import isqrt

from gsl.prove.normal import TermAlgebra
from gsl.prove.terms import ZERO, Fold, FunctionTerm, Integer, Sum, Term, atoms_of, constant

Law = Callable[..., Sum | None]
"""The value of a function, simplified; ``None`` where nothing is known of it."""


def _inverse(algebra: TermAlgebra, value: Sum) -> Sum | None:
    known = value.constant
    if known is not None:
        return constant(1 / known) if known else None
    if len(value.terms) == 1 and not value.terms[0].bound:
        (term,) = value.terms
        total = constant(1 / term.coefficient)
        for factor, power in term.factors:
            of = factor.arguments[0] if isinstance(factor, FunctionTerm) and factor.name == "inverse" else None
            single = Sum((Term(Fraction(1), ((factor, 1),)),))
            total = algebra.times(total, algebra.power(of or algebra.opaque("inverse", [single]), power))
        return total
    lead = min(value.terms, key=lambda term: term.key).coefficient
    common = set(value.terms[0].factors).intersection(*(term.factors for term in value.terms))
    outer = tuple(f for f in value.terms[0].factors if f in common and all(
        atoms_of(f[0]).isdisjoint(term.bound) for term in value.terms))  # fmt: skip
    if lead == 1 and not outer:
        return None
    rest = Sum(tuple(
        replace(term, coefficient=term.coefficient / lead, factors=tuple(f for f in term.factors if f not in outer))
        for term in value.terms
    ))  # fmt: skip
    before = algebra.apply("inverse", Sum((Term(lead, outer),)))
    return algebra.times(before, algebra.apply("inverse", algebra.collected(rest.terms)))


def _sqrt(algebra: TermAlgebra, value: Sum) -> Sum | None:
    known = value.constant
    if known is None or known < 0:
        return None
    above, below = isqrt(known.numerator), isqrt(known.denominator)
    exact = above**2 == known.numerator and below**2 == known.denominator
    return constant(Fraction(above, below)) if exact else None


def _largest(algebra: TermAlgebra, *values: Sum) -> Sum | None:
    flat: dict[str, Sum] = {}
    for value in values:
        inner = value.terms[0].factors[0][0] if len(value.terms) == 1 and value.terms[0].factors else None
        whole = isinstance(inner, FunctionTerm) and inner.name == "max" and value == Sum(
            (Term(Fraction(1), ((inner, 1),)),))  # fmt: skip
        for part in inner.arguments if whole and isinstance(inner, FunctionTerm) else (value,):
            flat[part.text] = part
    known = [part for part in flat.values() if part.constant is not None]
    parts = [part for _, part in sorted(flat.items()) if part.constant is None]
    if known:
        largest = max(part.constant or Fraction(0) for part in known)
        if largest > 0 or not any(is_positive(algebra, part, strictly=False) for part in parts):
            parts.append(constant(largest))
    return parts[0] if len(parts) == 1 else algebra.opaque("max", parts)


def _exp(algebra: TermAlgebra, x: Sum) -> Sum | None:
    """exp(a + b) = exp(a) · exp(b), exp(-a) = 1 / exp(a), and exp(log(a)) = a where that is defined."""
    if len(x.terms) != 1:
        total = constant(1)
        for term in x.terms:
            total = algebra.times(total, algebra.apply("exp", Sum((term,))))
        return total
    (term,) = x.terms
    if term.coefficient < 0:
        return algebra.apply("inverse", algebra.apply("exp", algebra.negative(x)))
    if term.coefficient.denominator == 1 and 1 < term.coefficient <= 8:
        return algebra.power(algebra.apply("exp", Sum((replace(term, coefficient=Fraction(1)),))), int(
            term.coefficient))  # fmt: skip
    return _argument(x, "log")


def _log(algebra: TermAlgebra, x: Sum) -> Sum | None:
    return ZERO if x.constant == 1 else _argument(x, "exp")


def _argument(x: Sum, name: str) -> Sum | None:
    """The argument of a function, where a sum is a value of it."""
    (term, *others) = x.terms
    (factor, power), *more = term.factors or ((None, 0),)
    plain = not (others or more or term.bound or term.guards) and term.coefficient == power == 1
    return factor.arguments[0] if plain and isinstance(factor, FunctionTerm) and factor.name == name else None


def _at_zero(value: int) -> Law:
    return lambda algebra, x: constant(value) if x == ZERO else None


def _odd(name: str) -> Law:
    """The law f(-x) = -f(x), for x that begins with a minus."""

    def law(algebra: TermAlgebra, x: Sum) -> Sum | None:
        if x == ZERO:
            return ZERO
        if min(x.terms, key=lambda term: term.key).coefficient < 0:
            return algebra.negative(algebra.apply(name, algebra.negative(x)))
        return None

    return law


def _sigmoid(algebra: TermAlgebra, x: Sum) -> Sum:
    return algebra.apply("inverse", algebra.add(constant(1), algebra.apply("exp", algebra.negative(x))))


LAWS: Mapping[str, Law] = {
    "inverse": _inverse, "sqrt": _sqrt, "max": _largest, "exp": _exp, "sigmoid": _sigmoid,
    **{name: _odd(name) for name in ("erf", "tanh", "sin", "tan", "asin", "atan", "sinh", "asinh", "atanh")},
    "cos": _at_zero(1), "cosh": _at_zero(1), "log": _log,
}  # fmt: skip


def is_positive(algebra: TermAlgebra, value: Sum, *, strictly: bool = True) -> bool:
    """True if it is seen that a sum is larger than 0, or not less than it."""
    if any(term.coefficient < 0 for term in value.terms):
        return False
    if not all(all(_sign(algebra, *factor) >= 0 for factor in term.factors) for term in value.terms):
        return False
    return not strictly or any(
        not term.bound and not term.guards and all(_sign(algebra, *factor) > 0 for factor in term.factors)
        for term in value.terms
    )


def _sign(algebra: TermAlgebra, factor: object, power: int) -> int:
    """1 for a factor that is positive, 0 for one that is not negative, -1 for one of which that is not seen."""
    sign = -1
    match factor:
        case Integer(atom):
            least = algebra.path.least(atom)
            sign = -1 if least is None else min(max(least, -1), 1)
        case FunctionTerm("exp" | "cosh"):
            sign = 1
        case FunctionTerm("inverse" | "sqrt", (argument,)):
            sign = 1 if is_positive(algebra, argument) else 0 if factor.name == "sqrt" or is_positive(
                algebra, argument, strictly=False) else -1  # fmt: skip
        case FunctionTerm("abs"):
            sign = 0
        case FunctionTerm("max", arguments):
            found = [1 if is_positive(algebra, a) else 0 if is_positive(algebra, a, strictly=False) else -1
                     for a in arguments]  # fmt: skip
            sign = max(found)
        case Fold("max", _, guards, body) if not guards:
            sign = 0 if is_positive(algebra, body, strictly=False) else -1
    return 0 if sign < 0 and power % 2 == 0 else sign

"""The laws of functions of real numbers that the normal form knows."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from math import inf, isqrt

from gsl.prove.normal import UNDEFINED, TermAlgebra
from gsl.prove.terms import OPEN, ZERO, Element, Fold, FunctionTerm, Integer, SumTerm, Term, alone, atoms_of, constant

Law = Callable[..., SumTerm | None]
"""The value of a function, simplified; ``None`` where nothing is known of it."""


def _inverse(algebra: TermAlgebra, value: SumTerm) -> SumTerm | None:
    known = value.constant
    if known is not None:
        return constant(1 / known) if known else None
    if len(value.terms) == 1 and not value.terms[0].bound:
        (term,) = value.terms
        total = constant(1 / term.coefficient)
        for factor, power in term.factors:
            inner = factor.arguments[0] if isinstance(factor, FunctionTerm) and factor.name == OPEN else alone(factor)
            of = _argument(inner, "inverse")  # also of 1 / inf, but for the sign of 1 / -inf
            of = None if of is not None and of.is_open else of
            total = algebra.times(total, algebra.power(of or algebra.opaque("inverse", [alone(factor)]), power))
        return total
    if value.is_open:
        return None
    lead = min(value.terms, key=lambda term: term.key).coefficient
    common = set(value.terms[0].factors).intersection(*(term.factors for term in value.terms))
    outer = tuple(f for f in value.terms[0].factors if f in common and all(
        atoms_of(f[0]).isdisjoint(term.bound) for term in value.terms))  # fmt: skip
    if lead == 1 and not outer:
        return None
    before, rest = SumTerm((Term(lead, outer),)), _without(value, Term(lead, outer))
    return algebra.times(algebra.apply("inverse", before), algebra.apply("inverse", algebra.collected(rest.terms)))


def _sqrt(algebra: TermAlgebra, value: SumTerm) -> SumTerm | None:
    known = value.constant
    if known is None:
        return _root_of_squares(algebra, value)
    if known < 0:
        return None
    above, below = isqrt(known.numerator), isqrt(known.denominator)
    exact = above**2 == known.numerator and below**2 == known.denominator
    return constant(Fraction(above, below)) if exact else None


def _root_of_squares(algebra: TermAlgebra, value: SumTerm) -> SumTerm | None:
    """The root of a product of squares: sqrt(a²) = abs(a)."""
    (term, *others) = value.terms
    squares = all(power % 2 == 0 for _, power in term.factors)
    if others or term.bound or term.guards or not squares or term.coefficient <= 0:
        return None
    found = algebra.apply("sqrt", constant(term.coefficient))
    for factor, power in term.factors:
        found = algebra.times(found, algebra.power(algebra.apply("abs", alone(factor)), power // 2))
    return found



def _magnitude(algebra: TermAlgebra, x: SumTerm) -> SumTerm | None:
    """abs(a·b) = abs(a)·abs(b), and abs(a) = a if that is not negative."""
    if is_positive(algebra, x, strictly=False):
        return x
    if is_positive(algebra, algebra.negative(x), strictly=False):
        return algebra.negative(x)
    (term, *others) = x.terms
    if others or term.bound or term.guards or (len(term.factors) == 1 and term.factors[0][1] == term.coefficient == 1):
        return None
    found = constant(abs(term.coefficient))
    for factor, power in term.factors:
        found = algebra.times(found, algebra.power(algebra.apply("abs", alone(factor)), power))
    return found


def _signum(algebra: TermAlgebra, x: SumTerm) -> SumTerm | None:
    if is_positive(algebra, x):
        return constant(1)
    return constant(-1) if is_positive(algebra, algebra.negative(x)) else None


def _largest(algebra: TermAlgebra, *values: SumTerm) -> SumTerm | None:
    """max(a, b) = max(b, a), max(max(a, b), c) = max(a, b, c), max(s·a, s·b) = s·max(a, b) where s is not negative."""
    flat = {part.text: part for value in values for part in parts_of_largest(algebra, value)}
    known = [part for part in flat.values() if part.constant is not None]
    parts = [part for _, part in sorted(flat.items()) if part.constant is None]
    if known:
        least = constant(max(part.constant or Fraction(0) for part in known))
        if not any(_is_at_least(algebra, part, least) for part in parts):
            parts = [*(part for part in parts if not _is_at_least(algebra, least, part)), least]
    outer = _common(algebra, parts)
    if len(parts) == 1 or outer is None:
        return parts[0] if len(parts) == 1 else algebra.opaque("max", parts)
    left = [_without(part, outer) for part in parts]
    return algebra.times(SumTerm((outer,)), algebra.apply("max", *map(algebra.renewed, left)))


def _is_at_least(algebra: TermAlgebra, value: SumTerm, other: SumTerm) -> bool:
    return is_positive(algebra, algebra.add(value, algebra.negative(other)), strictly=False)


def parts_of_largest(algebra: TermAlgebra, value: SumTerm) -> list[SumTerm]:
    """The values of which a sum is the largest."""
    (term, *others) = value.terms or (None,)
    if term is None or others or term.bound or term.guards or term.coefficient < 0:
        return [value]
    inner = [f for f, power in term.factors if isinstance(f, FunctionTerm) and f.name == "max" and power == 1]
    rest = tuple(pair for pair in term.factors if pair[0] not in inner)
    if len(inner) != 1 or any(_sign(algebra, *pair) < 0 for pair in rest):
        return [value]
    return [algebra.times(SumTerm((replace(term, factors=rest),)), part) for part in inner[0].arguments]


def _common(algebra: TermAlgebra, parts: Sequence[SumTerm]) -> Term | None:
    """The factors of all terms that are not negative, and the size of the first coefficient; ``None`` if that is 1."""
    terms = [term for part in parts for term in part.terms]
    lead = min((term for term in terms if term.factors), key=lambda t: (t.key, abs(t.coefficient)), default=None)
    if lead is None:
        return None
    common = set(lead.factors).intersection(*(term.factors for term in terms))
    outer = tuple(f for f in lead.factors if f in common and _sign(algebra, *f) >= 0 and all(
        atoms_of(f[0]).isdisjoint(term.bound) for term in terms))  # fmt: skip
    return Term(abs(lead.coefficient), outer) if outer or abs(lead.coefficient) != 1 else None


def _without(value: SumTerm, outer: Term) -> SumTerm:
    """A sum divided by what its terms have in common."""
    return SumTerm(tuple(
        replace(term, coefficient=term.coefficient / outer.coefficient,
                factors=tuple(f for f in term.factors if f not in outer.factors))
        for term in value.terms
    ))  # fmt: skip


def _exp(algebra: TermAlgebra, x: SumTerm) -> SumTerm | None:
    """exp(a + b) = exp(a) · exp(b), exp(-a) = 1 / exp(a), and exp(log(a)) = a where that is defined."""
    if x.is_open:
        return _power_of_infinite(algebra, x)
    if len(x.terms) != 1:
        total = constant(1)
        for term in x.terms:
            total = algebra.times(total, algebra.apply("exp", SumTerm((term,))))
        return total
    (term,) = x.terms
    if term.coefficient < 0:
        return algebra.apply("inverse", algebra.apply("exp", algebra.negative(x)))
    if term.coefficient.denominator == 1 and 1 < term.coefficient <= 8:
        return algebra.power(algebra.apply("exp", SumTerm((replace(term, coefficient=Fraction(1)),))), int(
            term.coefficient))  # fmt: skip
    return _argument(x, "log")


def _power_of_infinite(algebra: TermAlgebra, x: SumTerm) -> SumTerm | None:
    """exp(log(a)) = a at 0, too; of negative numbers it is none, as their root is, if nothing hides that."""
    log = _argument(x, OPEN)
    value = None if log is None else _argument(log, "log")
    if value is None or value.is_open or algebra.hides == UNDEFINED:
        return None
    algebra.apply("sqrt", value, partial=True)
    return value


def _log(algebra: TermAlgebra, x: SumTerm) -> SumTerm | None:
    """log(a·b) = log(a) + log(b) for a positive a, also one that all terms of a sum have; log(1 / a) = -log(a), and
    log(exp(a)) = a."""
    if x.constant is not None:
        return ZERO if x.constant == 1 else None
    inverse = _argument(x, "inverse")
    if inverse is not None and is_positive(algebra, inverse):
        return algebra.negative(algebra.apply("log", inverse))
    lead = min(x.terms, key=lambda term: term.key)
    outer = tuple(
        pair for pair in lead.factors
        if _sign(algebra, *pair) > 0 and all(
            pair in term.factors and atoms_of(pair[0]).isdisjoint(term.bound) for term in x.terms)
    )  # fmt: skip
    size = lead.coefficient if is_positive(algebra, x) else Fraction(1)
    if size <= 0 or (size == 1 and not outer) or (len(outer) == 1 and x == alone(outer[0][0])):
        return _argument(x, "exp")
    rest = algebra.collected(_without(x, Term(size, outer)).terms)
    parts = [algebra.apply("log", value) for value in (constant(size), rest)]
    for factor, power in outer:
        parts.append(algebra.scale(algebra.apply("log", alone(factor)), power))
    return algebra.add(*parts)


def _argument(x: SumTerm, name: str) -> SumTerm | None:
    """The argument of a function, where a sum is a value of it."""
    (term, *others) = x.terms
    (factor, power), *more = term.factors or ((None, 0),)
    plain = not (others or more or term.bound or term.guards) and term.coefficient == power == 1
    return factor.arguments[0] if plain and isinstance(factor, FunctionTerm) and factor.name == name else None


def _at_zero(value: int) -> Law:
    return lambda algebra, x: constant(value) if x == ZERO else None


def _odd(name: str) -> Law:
    """The law f(-x) = -f(x), for x that begins with a minus."""

    def law(algebra: TermAlgebra, x: SumTerm) -> SumTerm | None:
        if x == ZERO:
            return ZERO
        if min(x.terms, key=lambda term: term.key).coefficient < 0:
            return algebra.negative(algebra.apply(name, algebra.negative(x)))
        return None

    return law


def _sigmoid(algebra: TermAlgebra, x: SumTerm) -> SumTerm:
    return algebra.apply("inverse", algebra.add(constant(1), algebra.apply("exp", algebra.negative(x))))


LAWS: Mapping[str, Law] = {
    "inverse": _inverse, "sqrt": _sqrt, "abs": _magnitude, "sign": _signum, "max": _largest, "exp": _exp,
    "sigmoid": _sigmoid,
    **{name: _odd(name) for name in ("erf", "tanh", "sin", "tan", "asin", "atan", "sinh", "asinh", "atanh")},
    "cos": _at_zero(1), "cosh": _at_zero(1), "log": _log,
}  # fmt: skip


OF_INFINITE = ("inverse", "exp")
"""The functions of which a law also holds for what may be infinite."""


def is_positive(algebra: TermAlgebra, value: SumTerm, *, strictly: bool = True) -> bool:
    """True if it is seen that a sum is larger than 0, or not less than it."""
    least = sum((least_of(algebra, term) for term in value.terms), Fraction(0))
    if least > 0 or (least == 0 and not strictly):
        return True
    if any(term.coefficient < 0 for term in value.terms):
        return False
    if not all(all(_sign(algebra, *factor) >= 0 for factor in term.factors) for term in value.terms):
        return False
    path = algebra.path
    return not strictly or any(
        not term.guards and all(path.at_least(path.size(atom) - 1) for atom in term.bound)
        and all(_sign(algebra, *factor) > 0 for factor in term.factors) for term in value.terms
    )  # fmt: skip


def is_nonzero(algebra: TermAlgebra, value: SumTerm) -> bool:
    """True if it is seen that a sum is not 0."""
    if is_positive(algebra, value) or is_positive(algebra, algebra.negative(value)):
        return True
    (term, *others) = value.terms or (None,)
    if term is None or others or term.bound or term.guards:
        return False
    return all(_sign(algebra, *factor) > 0 or _has_no_zero(algebra, factor[0]) for factor in term.factors)


def has_value(algebra: TermAlgebra, name: str, arguments: Sequence[SumTerm]) -> bool:
    """True if it is seen that a function that is not defined everywhere is so of some numbers."""
    (value, *_) = arguments
    if name == "inverse":
        return is_nonzero(algebra, value)
    return name in _OF_POSITIVE and is_positive(algebra, value, strictly=name != "sqrt")


_OF_POSITIVE = ("sqrt", "log", "log2", "log10", "log1p")
"""The functions that have a value for all positive numbers."""


def _has_no_zero(algebra: TermAlgebra, factor: object) -> bool:
    domain = algebra.path.domains.get(factor.leaf) if isinstance(factor, Element) else None
    inverse = isinstance(factor, FunctionTerm) and factor.name == "inverse" and not factor.arguments[0].is_open
    return inverse or (domain is not None and (domain.nonzero or domain.low > 0 or domain.high < 0))


def least_of(algebra: TermAlgebra, term: Term) -> Fraction | float:
    """A number that a term is not less than."""
    if not term.factors and not term.bound and not term.guards:
        return term.coefficient
    (factor, power), *others = term.factors or ((None, 0),)
    domain = algebra.path.domains.get(factor.leaf) if isinstance(factor, Element) else None
    if domain is None or others or power != 1 or term.bound or term.guards:
        signs = (_sign(algebra, *pair) for pair in term.factors)
        return Fraction(0) if term.coefficient > 0 and all(sign >= 0 for sign in signs) else -inf
    end = domain.low if term.coefficient > 0 else domain.high
    return term.coefficient * Fraction(end) if abs(end) < inf else -inf


def _sign(algebra: TermAlgebra, factor: object, power: int) -> int:
    """1 for a factor that is positive, 0 for one that is not negative, -1 for one of which that is not seen."""
    sign = -1
    match factor:
        case Element(leaf) if leaf in algebra.path.domains:
            domain = algebra.path.domains[leaf]
            sign = -1 if domain.low < 0 else 1 if domain.low > 0 or domain.nonzero else 0
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

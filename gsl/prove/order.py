"""The laws of order: the equality of values that are made of largest and smallest numbers, of comparisons, logic and
choices, for all real numbers that their parts may be."""

from __future__ import annotations

import math
import random
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from itertools import combinations, islice
from typing import Any

from gsl.prove import poly
from gsl.prove.folds import RISING
from gsl.prove.laws import is_positive, least_of
from gsl.prove.normal import TermAlgebra
from gsl.prove.solver import EFFORT, solver
from gsl.prove.terms import Element, Factor, Fold, FunctionTerm, Integer, SumTerm, Term, alone

ODD = frozenset(("tanh", "erf", "atan", "sinh", "asinh"))
"""Those for which f(-x) = -f(x)."""
_AT_ZERO = {"exp": 1, "log1p": 0, "log": None, "log2": None, "log10": None}
"""What they are at 0, where that is not 0; ``None`` where they have no value."""
DECIDED: Mapping[str, Callable[..., Any]] = {
    "max": lambda by, *values: by.largest(values),
    "abs": lambda by, x: by.choose(by.less_equal(0, x), x, -x),
    "sign": lambda by, x: by.choose(by.less(0, x), 1, by.choose(by.less(x, 0), -1, 0)),
    "less": lambda by, x, y: by.truth(by.less(x, y)),
    "less_equal": lambda by, x, y: by.truth(by.less_equal(x, y)),
    "equal": lambda by, x, y: by.truth(by.equal(x, y)),
    "not_equal": lambda by, x, y: by.truth(by.no(by.equal(x, y))),
    "logical_not": lambda by, x: by.truth(by.equal(x, 0)),
    "logical_and": lambda by, x, y: by.choose(by.equal(x, 0), 0, by.truth(by.no(by.equal(y, 0)))),
    "logical_or": lambda by, x, y: by.choose(by.equal(x, 0), by.truth(by.no(by.equal(y, 0))), 1),
    "logical_xor": lambda by, x, y: by.choose(by.equal(x, 0), by.truth(by.no(by.equal(y, 0))), by.truth(
        by.equal(y, 0))),
    "where": lambda by, condition, x, y: by.choose(by.equal(condition, 0), y, x),
}  # fmt: skip
"""The functions that are decided by comparisons of their arguments."""
_TRIES = 4
"""So many random numbers are looked at before the solver is asked."""
_MOST_PAIRS = 400
"""No question has more pairs of values of one function."""
LOGICAL = frozenset(("isnan", "isinf", "isfinite"))
"""The other functions whose results are 0 or 1."""
_BOOL = poly.DTYPES.index("bool")


def same_value(algebra: TermAlgebra, left: SumTerm, right: SumTerm) -> bool:
    """True if two sums are equal for all real numbers that their parts may be, by order and logic alone."""
    if left.is_open or right.is_open or not (_is_decided(left) or _is_decided(right)):
        return False
    key = (left.text, right.text)
    if key not in algebra.decided:
        if time.process_time() > algebra.path.deadline:
            raise poly.ProofLimit("it takes too long")
        algebra.decided[key] = _same_value(algebra, left, right)
    return algebra.decided[key]


def _is_decided(value: SumTerm) -> bool:
    """True if a part of a sum is decided by comparisons, or if it may have equal folds of other names."""
    factors = [factor for term in value.terms for factor, _ in term.factors]
    functions = [f for f in factors if isinstance(f, FunctionTerm) and not any(a.is_open for a in f.arguments)]
    return sum(isinstance(factor, Fold) for factor in factors) > 1 or any(
        f.name in DECIDED or f.name == "nn.leaky_relu" or any(map(_is_decided, f.arguments)) for f in functions
    )


def _same_value(algebra: TermAlgebra, left: SumTerm, right: SumTerm) -> bool:
    parts = _Parts(algebra)
    _Numbers(parts, 0).try_of(left, right)  # after which it is known what is a bool
    for seed in range(_TRIES):
        found = _Numbers(parts, seed).try_of(left, right)
        if found is not None and not math.isclose(*found, rel_tol=1e-6, abs_tol=1e-6):
            return False
    return _Reals(parts).equal_sums(left, right)


class _Parts:
    """The parts of sums of which only their order is known, by number."""

    def __init__(self, algebra: TermAlgebra) -> None:
        self.algebra = algebra
        self.numbers: dict[str, int] = {}
        self.terms: list[Term] = []
        self.bools: set[int] = set()
        """The numbers of those that are 0 or 1."""

    def number(self, term: Term) -> int:
        """The number of a term with the coefficient 1, which is that of all that are seen to be equal to it."""
        from gsl.prove.equal import alike

        found = self.numbers.get(term.key)
        if found is None:
            others = [] if _element(term) else [n for n, other in enumerate(self.terms) if not _element(other)]
            found = next((n for n in others if alike(self.algebra, term, self.terms[n])), None)
            if found is None:
                found = len(self.terms)
                self.terms.append(term)
            self.numbers[term.key] = found
        return found

    def ends(self, number: int) -> tuple[float | Fraction, float | Fraction]:
        """Numbers that a part is not less than, and not more than."""
        term = self.terms[number]
        return least_of(self.algebra, term), -least_of(self.algebra, replace(term, coefficient=Fraction(-1)))

    def is_positive(self, number: int) -> bool:
        """True if it is seen that a part is more than 0."""
        return is_positive(self.algebra, SumTerm((self.terms[number],)))


def _element(term: Term) -> Factor | None:
    """The element or the number that a term is."""
    if term.bound or term.guards or len(term.factors) != 1:
        return None
    (factor, power), *_ = term.factors
    return factor if power == 1 and isinstance(factor, (Element, Integer)) else None


class _Values:
    """Computes sums by what their parts are."""

    def __init__(self, parts: _Parts) -> None:
        self.parts = parts

    def sum(self, value: SumTerm) -> Any:
        total: Any = self.constant(Fraction(0))
        for term in value.terms:
            total = total + self.constant(term.coefficient) * self.term(term)
        return total

    def term(self, term: Term) -> Any:
        """The value of a term without its coefficient."""
        if not (term.factors or term.bound or term.guards):
            return self.constant(Fraction(1))
        (factor, power), *others = term.factors or ((None, 0),)
        plain = power == 1 and not (others or term.bound or term.guards)
        if plain and isinstance(factor, FunctionTerm) and not any(a.is_open for a in factor.arguments):
            arguments = [self.sum(argument) for argument in factor.arguments]
            if factor.name == "nn.leaky_relu" and factor.arguments[1].constant is not None:
                x, slope = arguments
                return self.choose(self.less_equal(self.constant(Fraction(0)), x), x, slope * x)
            if factor.name in DECIDED:
                self._note_bools(factor)
                return DECIDED[factor.name](self, *arguments)
            return self.function(factor, arguments)
        return self.part(self.parts.number(Term(Fraction(1), term.factors, term.bound, term.guards)))

    def largest(self, values: Sequence[Any]) -> Any:
        first, *others = values
        for other in others:
            first = self.choose(self.less_equal(first, other), other, first)
        return first

    def truth(self, condition: Any) -> Any:
        """1 if a condition holds, else 0."""
        return self.choose(condition, 1, 0)

    def constant(self, value: Fraction) -> Any:
        raise NotImplementedError

    def part(self, number: int) -> Any:
        raise NotImplementedError

    def function(self, factor: FunctionTerm, arguments: list[Any]) -> Any:
        raise NotImplementedError

    def _note_bools(self, factor: FunctionTerm) -> None:
        """Take note of the parts that are bools, as the dtypes of what they are arguments of tell."""
        for argument, dtype in zip(factor.arguments, factor.numbers):
            term = argument.terms[0] if len(argument.terms) == 1 else None
            if term is not None and dtype.number == _BOOL and term.coefficient == 1 and _element(term) is not None:
                self.parts.bools.add(self.parts.number(term))

    def choose(self, condition: Any, one: Any, other: Any) -> Any:
        raise NotImplementedError

    def less_equal(self, left: Any, right: Any) -> Any:
        return left <= right

    def less(self, left: Any, right: Any) -> Any:
        return left < right

    def equal(self, left: Any, right: Any) -> Any:
        return left == right

    def no(self, condition: Any) -> Any:
        raise NotImplementedError


class _Numbers(_Values):
    """Computes sums with random numbers for their parts."""

    def __init__(self, parts: _Parts, seed: int) -> None:
        super().__init__(parts)
        self.seed = seed

    def try_of(self, left: SumTerm, right: SumTerm) -> tuple[float, float] | None:
        """The two values; ``None`` where there are none."""
        try:
            return self.sum(left), self.sum(right)
        except (ValueError, OverflowError, ZeroDivisionError):
            return None

    def constant(self, value: Fraction) -> float:
        return float(value)

    def part(self, number: int) -> float:
        draw = random.Random(f"{self.seed} {number}")
        if number in self.parts.bools:
            return float(draw.random() < 0.5)
        low, high = map(float, self.parts.ends(number))
        if low > -math.inf and high < math.inf:
            return draw.uniform(low, high)
        size = draw.uniform(0, 2)
        return low + size if low > -math.inf else high - size if high < math.inf else draw.uniform(-2, 2)

    def function(self, factor: FunctionTerm, arguments: list[Any]) -> float:
        known = RISING.get(factor.name)
        if known is not None and len(arguments) == 1:
            return float(known(arguments[0]))
        if factor.name == "inverse":
            return float(1 / arguments[0])
        rounded = [round(argument, 6) + 0.0 for argument in arguments]
        drawn = random.Random(f"{self.seed} {factor.name} {[p.text for p in factor.numbers]} {rounded}")
        return float(drawn.random() < 0.5) if factor.name in LOGICAL else drawn.uniform(-2, 2)

    def choose(self, condition: Any, one: Any, other: Any) -> Any:
        return one if condition else other

    def no(self, condition: Any) -> Any:
        return not condition


class _Reals(_Values):
    """Asks the solver about sums of any real numbers."""

    def __init__(self, parts: _Parts) -> None:
        super().__init__(parts)
        z3 = self.z3 = solver()
        self.context = z3.Context()
        self.solver = z3.Solver(ctx=self.context)
        self.solver.set("rlimit", EFFORT)
        self.known: dict[int, Any] = {}
        self.taken: dict[tuple[str, str], dict[str, tuple[Any, Any]]] = {}
        """The values of each function, with its arguments."""

    def equal_sums(self, left: SumTerm, right: SumTerm) -> bool:
        """True if two sums are equal, whatever their parts are."""
        one, other = self.sum(left), self.sum(right)
        for (name, _), values in self.taken.items():
            self._rises(name, list(values.values()))
        self.solver.add(one != other)
        return bool(self.solver.check() == self.z3.unsat)

    def _rises(self, name: str, values: list[tuple[Any, Any]]) -> None:
        """Tell the solver what is known of a function."""
        if name not in RISING and name != "inverse":
            return
        if name in ODD:
            values = [*values, *((-x, -of_x) for x, of_x in values)]
        if name != "inverse" and (zero := _AT_ZERO.get(name, 0)) is not None:
            values = [*values, (self.real(0), self.real(zero))]
        for (x, of_x), (y, of_y) in islice(combinations(values, 2), _MOST_PAIRS):
            z3 = self.z3
            if name == "inverse":
                self.solver.add(z3.Implies(z3.And(x > 0, x <= y), of_y <= of_x))
                self.solver.add(z3.Implies(z3.And(y > 0, y <= x), of_x <= of_y))
            else:
                self.solver.add(z3.Implies(x <= y, of_x <= of_y), z3.Implies(y <= x, of_y <= of_x))

    def real(self, value: Any) -> Any:
        """A number as the solver takes it."""
        return self.z3.RealVal(value, self.context) if isinstance(value, int) else value

    def constant(self, value: Fraction) -> Any:
        return self.z3.RealVal(str(value), self.context)

    def part(self, number: int) -> Any:
        if number not in self.known:
            value = self.known[number] = self.z3.Real(f"part {number}", self.context)
            low, high = self.parts.ends(number)
            if low > -math.inf:
                self.solver.add(value >= self.constant(Fraction(low)))
            if high < math.inf:
                self.solver.add(value <= self.constant(Fraction(high)))
            if number in self.parts.bools:
                self.solver.add(self.z3.Or(value == 0, value == 1))
            if self.parts.is_positive(number):
                self.solver.add(value > 0)
        return self.known[number]

    def function(self, factor: FunctionTerm, arguments: list[Any]) -> Any:
        z3, numbers = self.z3, ", ".join(p.text for p in factor.numbers)
        of = z3.Function(f"{factor.name} {numbers}", *[z3.RealSort(self.context)] * (len(arguments) + 1))
        value = of(*arguments)
        values = self.taken.setdefault((factor.name, numbers), {})
        if factor.text not in values:
            values[factor.text] = (arguments[0], value)
            if factor.name in LOGICAL:
                self.solver.add(z3.Or(value == 0, value == 1))
            if is_positive(self.parts.algebra, alone(factor)):
                self.solver.add(value > 0)
        return value

    def choose(self, condition: Any, one: Any, other: Any) -> Any:
        return self.z3.If(condition, self.real(one), self.real(other))

    def no(self, condition: Any) -> Any:
        return self.z3.Not(condition)

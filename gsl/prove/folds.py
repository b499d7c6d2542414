"""Folds of functions that only rise, or only fall: the largest of them is that of the largest argument."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from gsl.prove.laws import is_positive, parts_of_largest
from gsl.prove.normal import ARGMAX, TermAlgebra
from gsl.prove.path import Path
from gsl.prove.poly import IntAtom, Poly, Relation, replaced
from gsl.prove.terms import FunctionTerm, SumTerm, Term, alone, atoms_of, constant

RISING: Mapping[str, Callable[[float], float]] = {
    "exp": math.exp, "expm1": math.expm1, "tanh": math.tanh, "erf": math.erf, "atan": math.atan, "sinh": math.sinh,
    "asinh": math.asinh, "floor": math.floor, "ceil": math.ceil, "round": round, "trunc": math.trunc,
    "sqrt": math.sqrt, "log": math.log, "log1p": math.log1p, "log2": math.log2, "log10": math.log10,
}  # fmt: skip
"""The functions of one number that never fall, wherever they have a value."""
STRICTLY_RISING = RISING.keys() - {"floor", "ceil", "round", "trunc"}
"""Those that have another value for each number."""


def has_element(algebra: TermAlgebra, bound: Sequence[IntAtom], guards: Iterable[Relation]) -> bool:
    """True if it is seen that indices take some values under conditions, each of which is on one of them."""
    path = algebra.path
    own: dict[IntAtom, list[Relation]] = {atom: [(">=", path.size(atom) - 1)] for atom in bound}
    for kind, p in guards:
        read = [atom for atom in bound if atom in p.inner]
        if len(read) != 1 or kind != ">=":
            return False
        own[read[0]].append((kind, p))
    return all(_is_possible(path, atom, conditions) for atom, conditions in own.items())


def _is_possible(path: Path, atom: IntAtom, conditions: Sequence[Relation]) -> bool:
    """True if it is seen that an index takes a value under conditions: its first or last one, or one between others."""
    last = path.size(atom) - 1
    for value in (Poly(), last):
        if all(path.holds((kind, path.reduce(replaced(p, {atom: value})))) for kind, p in conditions):
            return True
    low, high = [Poly()], [last]
    for _, p in conditions:
        factor, rest = p.linear(atom) or (Poly(), p)
        if factor.number not in (1, -1) and atom in p.inner:
            return False
        if factor.number == 1:
            low.append(-rest)
        elif factor.number == -1:
            high.append(rest)
    return all(path.holds((">=", end - begin)) for begin in low for end in high)


def outside(
    algebra: TermAlgebra, name: str, bound: Sequence[IntAtom], guards: Iterable[Relation], body: SumTerm
) -> SumTerm | None:
    """A fold of what indices run over, with what can be taken of it afterwards: the largest of f(a) + c, where f never
    falls, is f of the largest a, plus c. ``None`` where nothing can."""
    if name == "prod":
        return _product_of_products(algebra, bound, guards, body)
    if name in ("max", ARGMAX) and has_element(algebra, bound, guards):
        fold = partial(algebra.fold, name, bound, tuple(guards))
        return (_largest if name == "max" else _place_of_largest)(algebra, fold, frozenset(bound), body)
    return None


Folded = Callable[[SumTerm], SumTerm]


def _product_of_products(
    algebra: TermAlgebra, bound: Sequence[IntAtom], guards: Iterable[Relation], body: SumTerm
) -> SumTerm | None:
    (term, *others) = body.terms or (None,)
    if term is None or others or term.bound or term.guards or term.coefficient != 1 or (
        len(term.factors) == 1 and term.factors[0][1] == 1
    ):  # fmt: skip
        return None
    total = constant(1)
    for factor, power in term.factors:
        total = algebra.times(total, algebra.power(algebra.fold("prod", bound, guards, alone(factor)), power))
    return total


def _largest(algebra: TermAlgebra, fold: Folded, own: frozenset[IntAtom], body: SumTerm) -> SumTerm | None:
    if _is_apart(body, own):
        return body
    parts = parts_of_largest(algebra, body)
    if len(parts) > 1:
        return algebra.apply("max", *map(fold, parts))
    apart, rest = _divided(body, own)
    if apart.terms:
        return algebra.add(apart, fold(rest))
    found = _multiple(algebra, own, body, strictly=False)
    if found is None:
        return None
    outer, rest = found
    if rest != body:
        return algebra.times(outer, fold(rest))
    inner = _argument(algebra, own, body)
    if inner is None or (inner.name not in RISING and inner.name not in ("max", "inverse")):
        return None
    value = fold(inner.value) if inner.rises else algebra.negative(fold(algebra.negative(inner.value)))
    return inner.applied(algebra, value)


def _place_of_largest(
    algebra: TermAlgebra, fold: Folded, own: frozenset[IntAtom], body: SumTerm
) -> SumTerm | None:
    apart, rest = _divided(body, own)
    if apart.terms:
        return fold(rest)
    found = _multiple(algebra, own, body, strictly=True)
    if found is None or found[1] != body:
        return None if found is None else fold(found[1])
    inner = _argument(algebra, own, body)
    if inner is None or inner.name not in STRICTLY_RISING | {"inverse"}:
        return None
    return fold(inner.value if inner.rises else algebra.negative(inner.value))


def _divided(value: SumTerm, own: frozenset[IntAtom]) -> tuple[SumTerm, SumTerm]:
    """The terms of a sum that do not depend on some indices, and the others."""
    apart = tuple(term for term in value.terms if _is_apart(SumTerm((term,)), own))
    return SumTerm(apart), SumTerm(tuple(term for term in value.terms if term not in apart))


def _multiple(
    algebra: TermAlgebra, own: frozenset[IntAtom], value: SumTerm, *, strictly: bool
) -> tuple[SumTerm, SumTerm] | None:
    """A product that does not depend on some indices and is not negative, with what it is multiplied by; ``None`` for a
    sum of several terms."""
    (term, *others) = value.terms or (None,)
    if term is None or others or term.bound or term.guards:
        return None
    outer = tuple(
        pair for pair in term.factors
        if _is_apart(alone(pair[0]), own) and is_positive(algebra, alone(pair[0]), strictly=strictly)
    )  # fmt: skip
    size = abs(term.coefficient)
    rest = tuple(pair for pair in term.factors if pair not in outer)
    return SumTerm((Term(size, outer),)), SumTerm((Term(term.coefficient / size, rest),))


@dataclass(frozen=True)
class _Inner:
    """The argument of a function, or of minus a function, that depends on some indices."""

    factor: FunctionTerm
    sign: int
    place: int

    @property
    def name(self) -> str:
        return self.factor.name

    @property
    def value(self) -> SumTerm:
        return self.factor.arguments[self.place]

    @property
    def rises(self) -> bool:
        """True if the whole rises with the argument, so that the largest of it is that of the largest argument."""
        return (self.sign > 0) != (self.name == "inverse")

    def applied(self, algebra: TermAlgebra, value: SumTerm) -> SumTerm:
        """The whole for another argument."""
        arguments = [*self.factor.arguments]
        arguments[self.place] = value
        return algebra.scale(algebra.apply(self.name, *arguments, numbers=self.factor.numbers), self.sign)


def _argument(algebra: TermAlgebra, own: frozenset[IntAtom], value: SumTerm) -> _Inner | None:
    """The only argument that depends on some indices, of a sum that is a function or minus one."""
    (term,) = value.terms
    (factor, power), *more = term.factors
    if more or power != 1 or not isinstance(factor, FunctionTerm):
        return None
    places = [place for place, argument in enumerate(factor.arguments) if not _is_apart(argument, own)]
    if len(places) != 1 or not own.isdisjoint(atom for p in factor.numbers for atom in p.inner):
        return None
    found = _Inner(factor, 1 if term.coefficient > 0 else -1, places[0])
    return None if found.name == "inverse" and not is_positive(algebra, found.value) else found


def _is_apart(value: SumTerm, own: frozenset[IntAtom]) -> bool:
    """True for a sum that does not depend on some indices."""
    return own.isdisjoint(atoms_of(value)) and own.isdisjoint(
        atom for term in value.terms for index in term.bound if index.size is not None for atom in index.size.inner
    )

"""Computing with normal forms: sums, products, functions and folds, as simple as they are seen to be."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from fractions import Fraction
from itertools import product as pairs

from gsl.prove.path import Path
from gsl.prove.poly import IntAtom, Poly, Relation, Unproved, negations, replaced, written
from gsl.prove.terms import (
    OPEN,
    ZERO,
    Element,
    Factor,
    Fold,
    FunctionTerm,
    Integer,
    SumTerm,
    Term,
    alone,
    atoms_of,
    constant,
    powers_of,
    rename,
    renamed_sum,
)

MOST_TERMS = 400
"""No normal form has more terms."""
NOTHING, INFINITE, UNDEFINED = range(3)
"""What an operator hides of its operands: nothing, infinite numbers, or those that are no numbers, too."""
_NEVER_INFINITE = frozenset(("sqrt", "asin", "acos", "acosh"))
"""The functions that give no number where they have no value, never an infinite one."""
ARGMAX = "argmax"
"""The fold that is the place of the first of the largest elements along one axis."""
PRODUCT = "·"
"""The function that is a product of what may be infinite."""


@dataclass(frozen=True)
class Partial:
    """A function that is not defined everywhere, with what it was applied to, and the conditions under which it was:
    those on indices, and the values by which an operator chose what it takes."""

    name: str
    arguments: tuple[SumTerm, ...]
    guards: frozenset[Relation] = frozenset()
    choices: tuple[SumTerm, ...] = ()


@dataclass
class TermAlgebra:
    """Computes with normal forms in one case of a proof."""

    path: Path
    partial: list[Partial] = field(default_factory=list)
    guards: tuple[Relation, ...] = ()
    """The conditions under which elements are read: elsewhere they have no part in a result."""
    choices: tuple[SumTerm, ...] = ()
    """The values that let an operator take the elements that are read."""
    hides: int = NOTHING
    """What is hidden of the elements that are read."""
    decided: dict[tuple[str, str], bool] = field(default_factory=dict)
    """The sums of which it was asked whether they are equal by the laws of order."""

    # Sums and products

    def collected(self, terms: Iterable[Term]) -> SumTerm:
        """The sum of terms."""
        found: dict[str, Term] = {}
        for term in terms:
            known = found.get(term.key)
            if term.is_open and known is not None and known.coefficient * term.coefficient < 0:
                raise Unproved("what may be infinite is subtracted from itself, below an operator that hides it")
            total = term.coefficient + (known.coefficient if known is not None else 0)
            if total:
                found[term.key] = replace(known or term, coefficient=total)
            else:
                found.pop(term.key, None)
        if len(found) > MOST_TERMS:
            raise Unproved("its normal form has too many terms")
        return SumTerm(tuple(found.values()))

    def add(self, *values: SumTerm) -> SumTerm:
        """The sum of sums."""
        return self.collected(term for value in values for term in value.terms)

    def scale(self, value: SumTerm, factor: Fraction | int) -> SumTerm:
        """A multiple of a sum."""
        if not factor:
            return ZERO
        return SumTerm(tuple(replace(term, coefficient=term.coefficient * factor) for term in value.terms))

    def negative(self, value: SumTerm) -> SumTerm:
        """Minus a sum."""
        return self.scale(value, -1)

    def times(self, left: SumTerm, right: SumTerm) -> SumTerm:
        """The product of two sums. What may be infinite is not multiplied out: inf · (1 - 1) is no number, and 0 is."""
        if (left.is_open and not _is_monomial(right)) or (right.is_open and not _is_monomial(left)):
            return self.open(self.opaque(PRODUCT, (left, right)))
        return self.collected(
            found for a, b in pairs(left.terms, right.terms) if (found := self._product(a, b)) is not None
        )

    def _product(self, a: Term, b: Term) -> Term | None:
        both = set(a.bound) & set(b.bound)
        if both:
            b = self.fresh(b, both)
        powers = powers_of((*a.factors, *b.factors))
        coefficient = a.coefficient * b.coefficient
        for factor in [f for f in powers if isinstance(f, FunctionTerm) and f.name == "inverse"]:
            of = self._like(_single(factor.arguments[0]), powers)
            if of is not None and self.is_nonzero(factor.arguments[0]):
                less = min(powers[of], powers[factor])
                powers[of] -= less
                powers[factor] -= less
        kept = tuple((factor, power) for factor, power in powers.items() if power)
        return self.tidy(Term(coefficient, kept, a.bound + b.bound, a.guards | b.guards))

    def _like(self, factor: Factor | None, factors: Iterable[Factor]) -> Factor | None:
        """That of some factors which is equal to another one, up to the names of indices."""
        from gsl.prove.equal import same_factor

        if factor is None or factor in factors:
            return factor
        return next((other for other in factors if same_factor(self, factor, other, ())), None)

    def fresh(self, term: Term, which: Iterable[IntAtom]) -> Term:
        """A term with new names for some of the indices that it is summed over."""
        names = {atom: self.path.index(self.path.size(atom), "r") for atom in which}
        renamed = rename(term, {atom: Poly.of(new) for atom, new in names.items()})
        return replace(renamed, bound=tuple(names.get(atom, atom) for atom in term.bound))

    def power(self, value: SumTerm, exponent: int) -> SumTerm:
        """A power; of a negative exponent that of the inverse."""
        if exponent < 0:
            value, exponent = self.inverse(value), -exponent
        total = constant(1)
        for _ in range(exponent):
            total = self.times(total, value)
        return total

    def number(self, p: Poly) -> SumTerm:
        """A whole number as a real one."""
        terms = []
        for monomial, count in self.path.reduce(p).terms.items():
            powers = powers_of((Integer(atom), 1) for atom in monomial)
            terms.append(Term(Fraction(count), tuple(powers.items())))
        return self.collected(terms)

    def element(self, leaf: str, index: Sequence[Poly]) -> SumTerm:
        """An element of a leaf."""
        return alone(Element(leaf, tuple(map(self.path.reduce, index))))

    def where(self, guards: Iterable[Relation], value: SumTerm) -> SumTerm:
        """A sum where conditions hold, and 0 elsewhere."""
        return self.times(SumTerm((Term(Fraction(1), guards=frozenset(guards)),)), value)

    @contextmanager
    def under(
        self, guards: Iterable[Relation] = (), choices: Iterable[SumTerm] = (), hides: int = NOTHING
    ) -> Iterator[None]:
        """Let what is computed be read under conditions only, or by an operator that hides something of it."""
        outer = self.guards, self.choices, self.hides
        self.guards, self.choices = (*self.guards, *guards), (*self.choices, *choices)
        self.hides = max(self.hides, hides)
        try:
            yield
        finally:
            self.guards, self.choices, self.hides = outer

    def total(self, bound: Sequence[IntAtom], value: SumTerm) -> SumTerm:
        """The sum of what indices run over."""
        terms: list[Term] = []
        for term in value.terms:
            found = self.tidy(replace(term, bound=term.bound + tuple(bound)))
            if found is not None:
                terms += self._unused(self._ascending(found)).terms
        return self.collected(terms)

    def _ascending(self, term: Term) -> Term:
        """A term whose indices count up in the first of the leaves that they are read of: a sum from the end is the one
        from the begin."""
        for atom in term.bound:
            size = self.path.size(atom)
            if _descends(term, atom) and not any(atom in self.path.size(other).inner for other in term.bound):
                new = self.path.index(size, "r")
                term = self._with(replace(term, bound=(*term.bound, new)), atom, size - 1 - Poly.of(new))
        return term

    def _unused(self, term: Term) -> SumTerm:
        """A term without the indices that nothing in it depends on: it is that many times what stands there."""
        read = atoms_of(term).union(*(self.path.size(atom).inner for atom in term.bound))
        idle = [atom for atom in term.bound if atom not in read and self.path.at_least(self.path.size(atom))]
        if not idle:
            return SumTerm((term,))
        total = SumTerm((replace(term, bound=tuple(atom for atom in term.bound if atom not in idle)),))
        for atom in idle:
            total = self.times(total, self.number(self.path.size(atom)))
        return total

    # Conditions

    def tidy(self, term: Term) -> Term | None:
        """A term whose conditions are as few as is seen at once; ``None`` if they never hold."""
        while True:
            guards: set[Relation] = set()
            for kind, p in term.guards:
                p = self.path.reduce(p)
                known = self.path.quick((kind, p))
                if known is False:
                    return None
                if known is None:
                    guards.add((kind, p))
            for guard in sorted(guards, key=str):
                if any(self._contradicts(guard, other) for other in guards):
                    return None
                if any(other != guard and self._implies(other, guard) for other in guards):
                    guards.discard(guard)
            if guards != term.guards:
                term = replace(term, guards=frozenset(guards))
            simpler = self._settled(term)
            if simpler is None:
                return term
            term = simpler

    def _implies(self, given: Relation, wanted: Relation) -> bool:
        return given[0] == wanted[0] == ">=" and self.path.at_least(wanted[1] - given[1])

    def _contradicts(self, a: Relation, b: Relation) -> bool:
        return a[0] == b[0] == ">=" and self.path.at_least(-a[1] - b[1] - 1)

    def _settled(self, term: Term) -> Term | None:
        """A simpler term, where a condition tells what one of its indices is, or a narrower range of it."""
        for atom in term.bound:
            size = self.path.size(atom)
            if size.number == 1:
                return self._with(term, atom, Poly())
            for kind, p in sorted(term.guards, key=str):
                parts = p.linear(atom)
                if kind == "==" and parts is not None and parts[0].number in (1, -1):
                    value = -parts[1] * parts[0]
                    more = {(">=", value), (">=", size - 1 - value)}
                    left = replace(term, guards=(term.guards - {(kind, p)}) | more)
                    return self._with(left, atom, value)
            narrow = self._narrowed(term, atom, size)
            if narrow is not None:
                return narrow
        return None

    def _narrowed(self, term: Term, atom: IntAtom, size: Poly) -> Term | None:
        low, high, used = Poly(), size, set[Relation]()
        others = set(term.bound) - {atom}
        for kind, p in sorted(term.guards, key=str):
            parts = p.linear(atom)
            if kind != ">=" or parts is None or parts[1].inner & others:
                continue
            if parts[0].number == 1:
                bound = -parts[1]
                if self.path.holds((">=", bound - low)):
                    low = bound
                elif not self.path.holds((">=", low - bound)):
                    continue
                used.add((kind, p))
            elif parts[0].number == -1:
                bound = parts[1] + 1
                if self.path.holds((">=", high - bound)):
                    high = bound
                elif not self.path.holds((">=", bound - high)):
                    continue
                used.add((kind, p))
        if not used:
            return None
        new = self.path.index(self.path.reduce(high - low), "r")
        left = replace(term, guards=term.guards - used, bound=(*term.bound, new))
        return self._with(left, atom, Poly.of(new) + low)

    def _with(self, term: Term, atom: IntAtom, value: Poly) -> Term:
        """A term with the value of an index that it is summed over."""
        bound = tuple(other for other in term.bound if other != atom)
        return self.refreshed(replace(rename(term, {atom: value}), bound=bound))

    def refreshed(self, term: Term) -> Term:
        """A term with all its polynomials as simple as they are known to be."""
        powers = powers_of((self._refreshed(factor), power) for factor, power in term.factors)
        guards = frozenset((k, self.path.reduce(p)) for k, p in term.guards)
        return replace(term, factors=tuple(powers.items()), guards=guards)

    def _refreshed(self, factor: Factor) -> Factor:
        reduce = self.path.reduce
        match factor:
            case Element(leaf, index):
                return Element(leaf, tuple(map(reduce, index)))
            case FunctionTerm(name, arguments, numbers):
                return FunctionTerm(name, tuple(map(self.renewed, arguments)), tuple(map(reduce, numbers)))
            case Fold(name, bound, guards, body):
                return Fold(name, bound, frozenset((k, reduce(p)) for k, p in guards), self.renewed(body))
        return factor

    def renewed(self, value: SumTerm) -> SumTerm:
        """A sum with all its polynomials as simple as they are known to be."""
        found = [self.tidy(self.refreshed(term)) for term in value.terms]
        return self.collected(term for term in found if term is not None)

    def given(self, value: SumTerm, guard: Relation) -> SumTerm:
        """A sum in the case that a condition holds."""
        terms = []
        for term in value.terms:
            if any(self._contradicts(guard, other) for other in term.guards):
                continue
            left = frozenset(g for g in term.guards if g != guard and not self._implies(guard, g))
            terms.append(replace(term, guards=left))
        return self.collected(terms)

    def outer_guard(self, values: Iterable[SumTerm]) -> Relation | None:
        """A condition of a term that is on nothing that the term is summed over."""
        found = (
            guard for value in values for term in value.terms for guard in term.guards
            if guard[1].inner.isdisjoint(term.bound)
        )  # fmt: skip
        return min(found, key=written, default=None)

    # Functions

    def apply(self, name: str, *arguments: SumTerm, numbers: Sequence[Poly] = (), partial: bool = False) -> SumTerm:
        """A function of sums: case by case where conditions tell their values; ``partial`` if it has no value
        somewhere."""
        guard = self.outer_guard(arguments)
        if guard is None:
            found = self.simplified(name, arguments, tuple(map(self.path.reduce, numbers)))
            if self.hides and (_are_open(arguments) or (partial and self._is_hidden(name, arguments))):
                return self.open(found)
            if partial:
                known = ((kind, self.path.reduce(p)) for kind, p in self.guards)
                guards = frozenset(guard for guard in known if not self.path.quick(guard))
                self.partial.append(Partial(name, arguments, guards, self.choices))
            return found
        parts = []
        for case, chosen in self.cases(guard, arguments):
            with self.under([case]):
                parts.append(self.where([case], self.apply(name, *chosen, numbers=numbers, partial=partial)))
        return self.add(*parts)

    def cases(self, guard: Relation, values: Sequence[SumTerm]) -> Iterator[tuple[Relation, list[SumTerm]]]:
        """The cases that a condition holds and that it does not, as far as they may occur, with sums in each."""
        for case in (guard, *negations(guard)):
            if self.path.quick(case) is not False:
                chosen = [self.given(value, case) for value in values]
                if case != guard:
                    chosen = [SumTerm(tuple(t for t in value.terms if guard not in t.guards)) for value in chosen]
                yield case, chosen

    def simplified(self, name: str, arguments: tuple[SumTerm, ...], numbers: tuple[Poly, ...]) -> SumTerm:
        """A function of sums without conditions, by the laws that are known of it."""
        from gsl.prove.laws import LAWS, OF_INFINITE

        law = LAWS.get(name) if name in OF_INFINITE or not _are_open(arguments) else None
        found = law(self, *arguments) if law is not None else None
        return found if found is not None else self.opaque(name, arguments, numbers)

    def opaque(self, name: str, arguments: Sequence[SumTerm], numbers: Sequence[Poly] = ()) -> SumTerm:
        """A function of which nothing is known."""
        return alone(FunctionTerm(name, tuple(arguments), tuple(numbers)))

    def inverse(self, value: SumTerm) -> SumTerm:
        """One divided by a sum."""
        return self.apply("inverse", value, partial=True)

    def inverse_of(self, compute: Callable[[], SumTerm]) -> SumTerm:
        """One divided by what a function computes: 0 where that is infinite."""
        with self.under(hides=INFINITE):
            value = compute()
        return self.inverse(value)

    # What may be infinite

    def settled(self, compute: Callable[[], SumTerm], hides: int = INFINITE) -> SumTerm:
        """The value of an operator that hides something of its operands, as a function computes it of these.

        Where that may be infinite, laws of real numbers do not hold of it: inf - inf is no number, and 0 is. So it is
        opaque, and has one value for all that is computed in the same way.
        """
        with self.under(hides=hides):
            found = compute()
        return found if self.hides or not found.is_open else self.apply("number", found, partial=True)

    def open(self, value: SumTerm) -> SumTerm:
        """A value that may be infinite, or no number: its factors that may be."""
        (term, *others) = value.terms or (None,)
        if term is None or others or term.bound or term.guards:
            return self.opaque(OPEN, (value,))
        total = constant(term.coefficient)
        for factor, power in term.factors:
            opens = isinstance(factor, Fold) or (isinstance(factor, FunctionTerm) and factor.name != OPEN and not (
                factor.name == "inverse" and self.is_nonzero(factor.arguments[0])))  # fmt: skip
            own = self.opaque(OPEN, (alone(factor),)) if opens else alone(factor)
            total = self.times(total, self.power(own, power))
        return total

    def _is_hidden(self, name: str, arguments: tuple[SumTerm, ...]) -> bool:
        """True if a function may have no value, and this is hidden."""
        from gsl.prove.laws import has_value

        seen = self.hides == INFINITE and name in _NEVER_INFINITE
        return not seen and not has_value(self, name, arguments)

    def fold(self, name: str, bound: Sequence[IntAtom], guards: Iterable[Relation], body: SumTerm) -> SumTerm:
        """The fold of what indices run over, under conditions on them."""
        from gsl.prove.folds import has_element, outside

        own = set(bound)
        outer = [
            guard for term in body.terms for guard in term.guards
            if guard[1].inner.isdisjoint(own) and guard[1].inner.isdisjoint(term.bound)
        ]  # fmt: skip
        if outer:
            return self.add(*[
                self.where([case], self.fold(name, bound, guards, chosen))
                for case, (chosen,) in self.cases(min(outer, key=written), [body])
            ])  # fmt: skip
        single = [atom for atom in bound if self.path.size(atom).number == 1]
        if single:
            values = {atom: Poly() for atom in single}
            body = self.renewed(renamed_sum(body, values))
            guards = [(kind, self.path.reduce(replaced(p, values))) for kind, p in guards]
            bound = [atom for atom in bound if atom not in single]
        inner = _single(body)
        if isinstance(inner, Fold) and inner.name == name != ARGMAX:  # the largest of the largest
            bound, guards, body = (*bound, *inner.bound), (*guards, *inner.guards), inner.body
        kept = frozenset(g for g in guards if self.path.quick(g) is not True)
        if not bound and not kept:
            return body if name != ARGMAX else ZERO
        if not body.is_open:
            bound, kept, body = self._upwards(bound, kept, body) if name == "max" else (bound, kept, body)
            found = outside(self, name, bound, kept, body)
            if found is not None:
                return found
        found = alone(Fold(name, tuple(bound), kept, body))
        # A window that sees nothing but padding has no largest element: it is -inf.
        return self.open(found) if body.is_open or (kept and not has_element(self, bound, kept)) else found

    def _upwards(
        self, bound: Sequence[IntAtom], guards: Iterable[Relation], body: SumTerm
    ) -> tuple[tuple[IntAtom, ...], frozenset[Relation], SumTerm]:
        """A fold whose indices count up in the first of the leaves that they are read of."""
        own, guards = list(bound), frozenset(guards)
        for place, atom in enumerate(bound):
            first = next((term for term in body.terms if atom in atoms_of(term)), None)
            if first is not None and _descends(first, atom):
                own[place] = self.path.index(self.path.size(atom), "r")
                values = {atom: self.path.size(atom) - 1 - Poly.of(own[place])}
                body = self.renewed(renamed_sum(body, values))
                guards = frozenset((kind, self.path.reduce(replaced(p, values))) for kind, p in guards)
        return tuple(own), guards, body

    def is_nonzero(self, value: SumTerm) -> bool:
        """True if it is seen that a sum is not 0."""
        from gsl.prove.laws import is_nonzero

        return is_nonzero(self, value)


def _are_open(values: Iterable[SumTerm]) -> bool:
    return any(value.is_open for value in values)


def _descends(term: Term, atom: IntAtom) -> bool:
    """True if an index counts down in the first of the leaves that it is read of."""
    read = ((factor.leaf, place, p) for factor, _ in term.factors if isinstance(factor, Element)
            for place, p in enumerate(factor.index) if atom in p.inner)  # fmt: skip
    *_, first = min(read, key=lambda found: (found[0], found[1], found[2].text), default=(Poly(),))
    parts = first.linear(atom)
    return parts is not None and (parts[0].number or 0) < 0


def _is_monomial(value: SumTerm) -> bool:
    """True for one product that is not summed over an index."""
    return len(value.terms) == 1 and not value.terms[0].bound


def _single(value: SumTerm) -> Factor | None:
    """The factor that a sum consists of."""
    if len(value.terms) != 1:
        return None
    (term,) = value.terms
    if term.bound or term.guards or term.coefficient != 1 or len(term.factors) != 1 or term.factors[0][1] != 1:
        return None
    return term.factors[0][0]

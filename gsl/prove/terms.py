"""The normal form of elements: sums of products over index domains, under conditions on indices.

An element of a tensor is a sum of terms ``c · Σ_r [conditions] · factors``: a rational number, indices that are summed
over, conditions on indices (1 where they hold, else 0), and factors: elements of leaves, numbers, functions of sums,
and folds (the largest of what an index runs over). :class:`gsl.prove.normal.TermAlgebra` computes with them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

from gsl.prove.poly import IntAtom, Poly, PolyValues, Relation, once, replaced, written


@dataclass(frozen=True)
class Element:
    """An element of a leaf."""

    leaf: str
    index: tuple[Poly, ...] = ()

    @once
    def text(self) -> str:
        return f"{self.leaf}[{', '.join(map(str, self.index))}]" if self.index else self.leaf


@dataclass(frozen=True)
class Integer:
    """A size or another whole number, as a real one."""

    atom: IntAtom

    @property
    def text(self) -> str:
        return self.atom.name


@dataclass(frozen=True)
class FunctionTerm:
    """A function of sums of which only some laws are known; ``numbers`` are its attributes."""

    name: str
    arguments: tuple[SumTerm, ...]
    numbers: tuple[Poly, ...] = ()

    @once
    def text(self) -> str:
        return f"{self.name}({', '.join([*map(str, self.arguments), *map(str, self.numbers)])})"


@dataclass(frozen=True)
class Fold:
    """The largest (or another fold) of what indices run over, under conditions."""

    name: str
    bound: tuple[IntAtom, ...]
    guards: frozenset[Relation]
    body: SumTerm

    @once
    def text(self) -> str:
        return f"{self.name}{_domain(self.bound, self.guards)}({self.body})"


Factor = Element | Integer | FunctionTerm | Fold
OPEN = "open"
"""The function that marks what may be infinite, or no number at all, below an operator that hides it."""


@dataclass(frozen=True)
class Term:
    """One term of a sum."""

    coefficient: Fraction
    factors: tuple[tuple[Factor, int], ...] = ()
    bound: tuple[IntAtom, ...] = ()
    guards: frozenset[Relation] = frozenset()

    @once
    def text(self) -> str:
        """The term as it is written, with its own indices by number."""
        parts = [factor.text if power == 1 else f"{factor.text}^{power}" for factor, power in self.factors]
        body = "·".join(sorted(parts)) or "1"
        return f"{_domain(self.bound, self.guards, 'Σ')}{body}"

    @once
    def is_open(self) -> bool:
        """True if one of its factors may be infinite, or no number."""
        return any(isinstance(factor, FunctionTerm) and factor.name == OPEN for factor, _ in self.factors)

    @once
    def key(self) -> str:
        """A text that is equal only for terms that are equal up to their coefficient and the names of their indices."""
        text = self.text
        if not self.bound:
            return text
        order = sorted(self.bound, key=lambda atom: (text.find(atom.name), atom.name))
        names = {atom: Poly.of(replace(atom, name=f"§{number}")) for number, atom in enumerate(order)}
        return rename(replace(self, bound=()), names).text + str([str(atom.size) for atom in order])


@dataclass(frozen=True)
class SumTerm:
    """A sum of terms, of which no two are equal."""

    terms: tuple[Term, ...] = ()

    @once
    def text(self) -> str:
        parts = [(t.coefficient, t.text) for t in sorted(self.terms, key=lambda t: t.key)]
        return " + ".join(text if c == 1 else f"{c}·{text}" for c, text in parts) or "0"

    def __str__(self) -> str:
        return self.text

    @once
    def is_open(self) -> bool:
        """True if one of its terms may be infinite, or no number."""
        return any(term.is_open for term in self.terms)

    @property
    def constant(self) -> Fraction | None:
        """The number that it is; ``None`` if it depends on something."""
        if not self.terms:
            return Fraction(0)
        term = self.terms[0]
        plain = len(self.terms) == 1 and not (term.factors or term.bound or term.guards)
        return term.coefficient if plain else None


ZERO = SumTerm()


def constant(value: Fraction | int | float) -> SumTerm:
    """A number."""
    exact = Fraction(value)
    return SumTerm((Term(exact),)) if exact else ZERO


def alone(factor: Factor) -> SumTerm:
    """The sum that is one factor."""
    return SumTerm((Term(Fraction(1), ((factor, 1),)),))


def _domain(bound: Sequence[IntAtom], guards: Iterable[Relation], sign: str = "") -> str:
    run = f"{sign}{{{', '.join(f'{atom} < {atom.size}' for atom in bound)}}} " if bound else ""
    return run + "".join(f"[{text}] " for text in sorted(map(written, guards)))


# ---------------------------------------------------------------- other indices


def powers_of(factors: Iterable[tuple[Factor, int]]) -> dict[Factor, int]:
    """The power of each factor of a product. Factors that differ in an index are one where that gets another value."""
    powers: dict[Factor, int] = {}
    for factor, power in factors:
        powers[factor] = powers.get(factor, 0) + power
    return powers


def rename(term: Term, values: PolyValues) -> Term:
    """A term with other values of its free indices; what it is summed over is renamed by ``bound`` alone."""
    powers = powers_of((_renamed(factor, values), power) for factor, power in term.factors)
    guards = frozenset((kind, replaced(p, values)) for kind, p in term.guards)
    return Term(term.coefficient, tuple(powers.items()), term.bound, guards)


def renamed_sum(value: SumTerm, values: PolyValues) -> SumTerm:
    """A sum with other values of its free indices."""
    return SumTerm(tuple(rename(term, values) for term in value.terms))


def _renamed(factor: Factor, values: PolyValues) -> Factor:
    match factor:
        case Element(leaf, index):
            return Element(leaf, tuple(replaced(p, values) for p in index))
        case FunctionTerm(name, arguments, numbers):
            return FunctionTerm(name, tuple(renamed_sum(a, values) for a in arguments),
                            tuple(replaced(p, values) for p in numbers))  # fmt: skip
        case Fold(name, bound, guards, body):
            return Fold(name, bound, frozenset((kind, replaced(p, values)) for kind, p in guards),
                        renamed_sum(body, values))  # fmt: skip
    return factor


def atoms_of(value: Any) -> frozenset[IntAtom]:
    """The atoms that a sum, a term or a factor reads, those of its own indices too."""
    match value:
        case SumTerm(terms):
            return frozenset[IntAtom]().union(*map(atoms_of, terms))
        case Term():
            parts = [p.inner for _, p in value.guards] + [atoms_of(factor) for factor, _ in value.factors]
            return frozenset[IntAtom]().union(*parts)
        case Element(_, index):
            return frozenset[IntAtom]().union(*(p.inner for p in index))
        case FunctionTerm(_, arguments, numbers):
            return frozenset[IntAtom]().union(*map(atoms_of, arguments), *(p.inner for p in numbers))
        case Fold(_, _, guards, body):
            return atoms_of(body).union(*(p.inner for _, p in guards))
        case Integer(atom):
            return frozenset((atom,)) | Poly.of(atom).inner
    raise TypeError(value)

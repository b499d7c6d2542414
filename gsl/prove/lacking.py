"""Conditions on sizes and attributes for want of which proofs fail."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import reduce
from typing import Any

from gsl.attr import Expr
from gsl.pat import Pattern
from gsl.prove.poly import QUOTIENT, IntAtom, Poly, Relation

AtomOrigin = tuple[Pattern, str, int | None]
"""A pattern, the name of an attribute or ``shape``, and a place in it, or none."""
_COMPARED: Mapping[str, Callable[[Any, Any], Any]] = {"==": operator.eq, ">=": operator.ge, "!=": operator.ne}


@dataclass(frozen=True, eq=False)
class Lacking:
    """A relation between sizes and attributes of a source, of which it is known where they stand."""

    relation: Relation
    origins: Mapping[IntAtom, AtomOrigin]

    @staticmethod
    def of(relation: Relation, origins: Mapping[IntAtom, AtomOrigin]) -> Lacking | None:
        """The condition that a relation is; ``None`` where it reads what is no size or attribute of the source."""
        read = relation[1].inner
        known = all(atom in origins or atom.operation == QUOTIENT for atom in read)
        return Lacking(relation, origins) if read and known else None

    def expr(self) -> Expr:
        """The condition as an attribute expression."""
        kind, left, right = self._sides()
        return _COMPARED[kind](_total(left, self._value), _total(right, self._value))  # type: ignore[no-any-return]

    def text(self, names: Mapping[Pattern, str]) -> str:
        """The condition as it would be written."""
        kind, left, right = self._sides()
        return f"{self._side(left, names)} {kind} {self._side(right, names)}"

    def _side(self, p: Poly, names: Mapping[Pattern, str]) -> str:
        terms = [(count, [self._named(atom, names) for atom in monomial]) for monomial, count in p.terms.items()]
        return " + ".join(_written(count, factors) for count, factors in terms) or "0"

    def _sides(self) -> tuple[str, Poly, Poly]:
        """The comparison, and both sides, of which no term is negative."""
        kind, p = self.relation
        left = Poly({monomial: count for monomial, count in p.terms.items() if count > 0})
        return kind, left, left - p

    def _value(self, atom: IntAtom) -> Expr:
        if atom.operation == QUOTIENT:
            p, divisor = (_total(operand, self._value) for operand in atom.operands)
            return p // divisor  # type: ignore[no-any-return]
        pattern, name, place = self.origins[atom]
        value = getattr(pattern, name)
        return value if place is None else value[place]  # type: ignore[no-any-return]

    def _named(self, atom: IntAtom, names: Mapping[Pattern, str]) -> str:
        if atom.operation == QUOTIENT:
            p, divisor = (self._side(operand, names) for operand in atom.operands)
            return f"(({p}) // ({divisor}))"
        pattern, name, place = self.origins[atom]
        return f"{names.get(pattern, pattern.label)}.{name}" + ("" if place is None else f"[{place}]")


def _written(count: int, factors: list[str]) -> str:
    return " * ".join([*([str(count)] if count != 1 or not factors else []), *factors])


def _total(p: Poly, value: Callable[[IntAtom], Expr]) -> Any:
    terms = [reduce(operator.mul, map(value, monomial), count) if count != 1 or not monomial
             else reduce(operator.mul, map(value, monomial)) for monomial, count in p.terms.items()]  # fmt: skip
    return reduce(operator.add, terms) if terms else 0

"""The numbers that normal forms are, for given leaves and sizes."""

from __future__ import annotations

import itertools
import math
import operator
from collections.abc import Callable, Mapping
from typing import Any

from gsl.prove.poly import IntAtom, Poly, Relation
from gsl.prove.terms import Element, Factor, Fold, FunctionTerm, Integer, SumTerm, Term

Values = dict[IntAtom, int]
FUNCTIONS: Mapping[str, Callable[..., float]] = {
    "inverse": lambda x: 1 / x, "sqrt": math.sqrt, "exp": math.exp, "log": math.log, "erf": math.erf,
    "tanh": math.tanh, "max": max, "abs": abs, "less": operator.lt, "less_equal": operator.le,
    "share": lambda x, total: x / total if total else 0.0,
}  # fmt: skip


def whole(p: Poly, values: Values) -> int:
    """The number that a polynomial is."""
    return sum(count * math.prod(atom(part, values) for part in monomial) for monomial, count in p.terms.items())


def atom(part: IntAtom, values: Values) -> int:
    """The number that an atom is."""
    if not part.operation:
        return values[part]
    operands = [whole(operand, values) for operand in part.operands]
    match part.operation:
        case "quotient":
            return operands[0] // operands[1]
        case "pick":
            return 0 if operands[0] == 1 else operands[1]
        case "common":
            return next((size for size in operands if size != 1), 1)
    return {"max": max, "min": min}[part.operation](operands)


def holds(relation: Relation, values: Values) -> bool:
    """True if a relation holds."""
    kind, p = relation
    number = whole(p, values)
    return {">=": number >= 0, "==": number == 0, "!=": number != 0}[kind]


class Numbers:
    """Computes normal forms with the elements of leaves."""

    def __init__(self, leaves: Mapping[str, Any], functions: Mapping[str, Callable[..., float]] = FUNCTIONS) -> None:
        self.leaves = leaves
        self.functions = functions

    def sum(self, value: SumTerm, values: Values) -> float:
        """The number that a sum is."""
        return sum(self.term(term, values) for term in value.terms)

    def term(self, term: Term, values: Values) -> float:
        """The number that a term is."""
        return sum(
            float(term.coefficient) * math.prod(self.factor(factor, inner) ** power for factor, power in term.factors)
            for inner in self.within(term.bound, term.guards, values)
        )

    def within(self, bound: tuple[IntAtom, ...], guards: Any, values: Values) -> Any:
        """The values that indices run over, where conditions hold."""
        ranges = [range(whole(index.size, values)) for index in bound]  # type: ignore[arg-type]
        for found in itertools.product(*ranges):
            inner = {**values, **dict(zip(bound, found))}
            if all(holds(guard, inner) for guard in guards):
                yield inner

    def factor(self, factor: Factor, values: Values) -> float:
        """The number that a factor is."""
        match factor:
            case Element(leaf, index):
                places = tuple(whole(p, values) for p in index)
                assert all(place >= 0 for place in places), "an element outside of its tensor"
                return float(self.leaves[leaf][places])
            case Integer(part):
                return atom(part, values)
            case FunctionTerm(name, arguments):
                return self.functions[name](*[self.sum(argument, values) for argument in arguments])
            case Fold(name, bound, guards, body):
                found = [self.sum(body, inner) for inner in self.within(bound, guards, values)]
                return {"max": max, "prod": math.prod, "argmax": lambda values: values.index(max(values))}[name](found)
        raise TypeError(factor)

"""Equality of normal forms, up to the names and the order of the indices that are summed over."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice, permutations, product

from gsl.prove.normal import PRODUCT, TermAlgebra
from gsl.prove.order import same_value
from gsl.prove.poly import IntAtom, Poly, Relation, opposite, replaced
from gsl.prove.terms import Element, Factor, Fold, FunctionTerm, SumTerm, Term, alone, rename, renamed_sum
from gsl.spec import TABLE, Trait

MOST_ORDERS = 500
"""No more ways to name the indices of a term like those of another one are tried."""
FunctionOf = tuple[Sequence[SumTerm], Sequence[Poly]]
"""The arguments of a function, and its attributes or the dtypes of the arguments."""
_OF_PAIRS = frozenset(name for name, spec in TABLE.items() if Trait.COMMUTATIVE in spec.traits)
"""The functions whose two arguments, with their dtypes, may be exchanged."""


def equal(algebra: TermAlgebra, left: SumTerm, right: SumTerm, given: tuple[Relation, ...] = ()) -> bool:
    """True if two sums are equal under some conditions on their free indices."""
    known = {term.key: term.coefficient for term in right.terms}
    shared = {term.key for term in left.terms if known.get(term.key) == term.coefficient}
    left, right = (SumTerm(tuple(t for t in side.terms if t.key not in shared)) for side in (left, right))
    if not left.terms and not right.terms:
        return True
    guard = algebra.outer_guard((left, right))
    if guard is not None:
        return all(
            algebra.path.entails(opposite(case), given) or equal(algebra, one, other, (*given, case))
            for case, (one, other) in algebra.cases(guard, (left, right))
        )
    rest, others = list(right.terms), list[Term]()
    for term in left.terms:
        found = next((other for other in rest if alike(algebra, term, other, given)), None)
        if found is None:
            others.append(term)
        else:
            rest.remove(found)
    return not (rest or others) or same_value(algebra, SumTerm(tuple(others)), SumTerm(tuple(rest)))


def alike(algebra: TermAlgebra, left: Term, right: Term, given: tuple[Relation, ...] = ()) -> bool:
    """True if two terms are equal."""
    if left.coefficient != right.coefficient or len(left.factors) != len(right.factors):
        return False
    for names in _orders(algebra, left.bound, right.bound, given):
        renamed = algebra.refreshed(rename(right, names))
        more = (*given, *left.guards)
        if _same_guards(algebra, left.guards, renamed.guards, given) and _same_factors(
            algebra, left.factors, renamed.factors, more
        ):
            return True
    return False


def _orders(
    algebra: TermAlgebra, left: Sequence[IntAtom], right: Sequence[IntAtom], given: tuple[Relation, ...]
) -> Iterator[dict[IntAtom, Poly]]:
    """The ways to name the indices of one term like those of another one."""
    if len(left) != len(right):
        return
    size = algebra.path.size
    groups: dict[Poly, tuple[list[IntAtom], list[IntAtom]]] = {}
    for place, atoms in enumerate((left, right)):
        for atom in atoms:
            groups.setdefault(size(atom), ([], []))[place].append(atom)
    if all(len(ours) == len(theirs) for ours, theirs in groups.values()):
        orders = [[dict(zip(theirs, order)) for order in permutations(ours)] for ours, theirs in groups.values()]
        for chosen in islice(product(*orders), MOST_ORDERS):
            yield {old: Poly.of(new) for names in chosen for old, new in names.items()}
        return
    for order in islice(permutations(left), MOST_ORDERS):
        names = {old: Poly.of(new) for old, new in zip(right, order)}
        if all(
            same(algebra, size(new), algebra.path.reduce(replaced(size(old), names)), given)
            for old, new in zip(right, order)
        ):
            yield names


def _same_guards(
    algebra: TermAlgebra, left: frozenset[Relation], right: frozenset[Relation], given: tuple[Relation, ...]
) -> bool:
    return all(
        guard in others or algebra.path.entails(guard, (*given, *others))
        for own, others in ((left, right), (right, left)) for guard in own
    )  # fmt: skip


def _same_factors(
    algebra: TermAlgebra,
    left: Sequence[tuple[Factor, int]],
    right: Sequence[tuple[Factor, int]],
    given: tuple[Relation, ...],
) -> bool:
    rest = list(right)
    for factor, power in left:
        found = next((o for o in rest if o[1] == power and same_factor(algebra, factor, o[0], given)), None)
        if found is None:
            return False
        rest.remove(found)
    return True


def same_factor(algebra: TermAlgebra, left: Factor, right: Factor, given: tuple[Relation, ...]) -> bool:
    """True if two factors are equal."""
    if left == right:
        return True
    return _same_form(algebra, left, right, given) or (
        isinstance(left, FunctionTerm) and isinstance(right, FunctionTerm)
        and same_value(algebra, alone(left), alone(right)))  # fmt: skip


def _same_form(algebra: TermAlgebra, left: Factor, right: Factor, given: tuple[Relation, ...]) -> bool:
    match left, right:
        case Element(leaf, index), Element(other, others):
            return leaf == other and all(same(algebra, p, q, given) for p, q in zip(index, others, strict=True))
        case FunctionTerm(name, arguments, numbers), FunctionTerm(other, others, more):
            if name != other or len(arguments) != len(others) or len(numbers) != len(more):
                return False
            orders = [*permutations(others)] if name in ("max", PRODUCT) else [others]
            if name in _OF_PAIRS and len(others) == 2 and _same_function(
                algebra, (arguments, numbers), (others[::-1], more[::-1]), given
            ):  # fmt: skip
                return True
            return any(_same_function(algebra, (arguments, numbers), (order, more), given) for order in orders)
        case Fold(name, bound, guards, body), Fold(other, others, more, inner):
            return name == other and any(
                _same_guards(algebra, guards, (found := frozenset((k, algebra.path.reduce(replaced(p, names)))
                                                                  for k, p in more)), given)
                and equal(algebra, body, algebra.renewed(renamed_sum(inner, names)), (*given, *guards, *found))
                for names in _orders(algebra, bound, others, given)
            )  # fmt: skip
    return False


def _same_function(
    algebra: TermAlgebra, left: FunctionOf, right: FunctionOf, given: tuple[Relation, ...]
) -> bool:
    return all(same(algebra, p, q, given) for p, q in zip(left[1], right[1])) and all(
        equal(algebra, a, b, given) for a, b in zip(left[0], right[0])
    )


def same(algebra: TermAlgebra, left: Poly, right: Poly, given: tuple[Relation, ...]) -> bool:
    """True if two numbers are equal under some conditions."""
    return algebra.path.entails(("==", left - right), given)

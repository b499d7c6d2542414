"""Proofs: the two sides of a rule are equal for all sizes, attributes and values."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import reduce
from typing import Any

from gsl.attr import Expr
from gsl.errors import GSLError
from gsl.pat import Pattern
from gsl.prove.attributes import NEW_AXES, PARTS, RANKS
from gsl.prove.equal import alike, equal
from gsl.prove.laws import has_value
from gsl.prove.matched import Matched
from gsl.prove.normal import Partial, TermAlgebra
from gsl.prove.path import Path, cases
from gsl.prove.poly import QUOTIENT, Impossible, IntAtom, Poly, ProofLimit, Relation, Unproved, written
from gsl.prove.source import AtomOrigin, SourceSide
from gsl.prove.target import TargetSide
from gsl.prove.tensor import Family, Tensor
from gsl.prove.terms import ZERO, FunctionTerm, SumTerm, Term, alone, atoms_of
from gsl.rewrite import Subst

_COMPARED: Mapping[str, Callable[[Any, Any], Any]] = {"==": operator.eq, ">=": operator.ge, "!=": operator.ne}
MOST_CASES = 20_000
SECONDS = 120.0
"""The processor time that a proof may take."""


@dataclass(frozen=True)
class Proof:
    """A proof that the two sides of a rule are equal."""

    rule: str
    cases: int
    """The number of cases of which it consists."""
    steps: tuple[str, ...]
    """The steps in the case that is shown."""
    assumed: tuple[str, ...]

    def __str__(self) -> str:
        lines = [f"{self.rule}: proved in {self.cases} case{'s' * (self.cases != 1)}"]
        lines += [f"  assumed: {what}" for what in self.assumed]
        return "\n".join([*lines, *(f"  {step}" for step in self.steps)])


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
        return " + ".join(_product_text(count, factors) for count, factors in terms) or "0"

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


def _product_text(count: int, factors: list[str]) -> str:
    return " * ".join([*([str(count)] if count != 1 or not factors else []), *factors])


def _total(p: Poly, value: Callable[[IntAtom], Expr]) -> Any:
    terms = [reduce(operator.mul, map(value, monomial), count) if count != 1 or not monomial
             else reduce(operator.mul, map(value, monomial)) for monomial, count in p.terms.items()]  # fmt: skip
    return reduce(operator.add, terms) if terms else 0


@dataclass(frozen=True)
class NoProof:
    """The reason why a rule could not be proved, which does not mean that it is wrong."""

    rule: str
    reason: str
    case: tuple[str, ...] = ()
    """The choices and the known facts in the case that fails."""
    lacking: str = ""
    """The condition on sizes or attributes for want of which it fails, where there is one."""
    condition: Lacking | None = None
    """That condition as one on the rule's patterns."""

    def __str__(self) -> str:
        lines = [f"{self.rule}: no proof: {self.reason}"]
        return "\n".join([*lines, *(f"  where {what}" for what in self.case)])


ASSUMED = (
    "numbers are real: nothing is rounded, nothing overflows, zero has no sign; arithmetic is not of bools",
    "the out_dtype of a product holds the values of its operands",
    "no axis is empty",
    "the results have the shapes and the dtypes of the source, which is checked at each match",
    f"where a rank is open, it is one of {', '.join(map(str, RANKS))}",
    f"where a split is open, it has {', '.join(map(str, sorted(PARTS)))} parts",
    "where a layout is open, the channels are the second axis or the last one, of a kernel the first two or last two",
    f"where a number of new axes is open, it is {' or '.join(map(str, NEW_AXES))}",
    "where a dtype is open, it is no float of 8 bits and not complex32",
)


def prove(rule: Subst, *, seconds: float = SECONDS) -> Proof | NoProof:
    """A proof that the two sides of a rule are equal wherever it applies, or the reason why there is none.

    It takes at most so many seconds of processor time. MissingSolverError without z3.
    """
    count, shown = 0, tuple[str, ...]()
    try:
        for _, steps in cases(lambda path: _case(rule, path), most=MOST_CASES, seconds=seconds):
            count += 1
            shown = max(shown, steps, key=len)
    except ProofLimit as error:
        return NoProof(rule.name, str(error))
    except RecursionError:
        return NoProof(rule.name, "its sides nest too deep")
    except _Failed as error:
        return NoProof(rule.name, error.reason, error.case, error.lacking, error.condition)
    except GSLError as error:
        return NoProof(rule.name, str(error))
    if not count:
        return NoProof(rule.name, "no case of it could be made")
    return Proof(rule.name, count, shown, ASSUMED)


class _Failed(Exception):
    def __init__(self, error: Unproved, source: SourceSide) -> None:
        self.reason = str(error)
        self.case = tuple(source.path.said)
        self.lacking, self.condition = "", None
        if error.lacking is not None:
            self.lacking = written(error.lacking)
            kind, p = error.lacking
            self.condition = Lacking.of((kind, source.path.reduce(p)), source.origins)


def _case(rule: Subst, path: Path) -> tuple[str, ...]:
    """The steps of the proof in one case."""
    source = SourceSide(rule, path)
    try:
        return _proved(source)
    except Unproved as error:
        raise _Failed(error, source) from error


def _proved(source: SourceSide) -> tuple[str, ...]:
    before = source.match()
    target = TargetSide(source)
    after = target.build()
    steps = [f"let {what}" for what in source.path.said]
    for number, (old, new) in enumerate(zip(before, after, strict=True)):
        steps += _equal_outputs(target, number, old, new)
    return tuple(steps)


def _equal_outputs(target: TargetSide, number: int, old: Matched, new: Matched) -> list[str]:
    if isinstance(old.value, Family) or isinstance(new.value, Family):
        raise Unproved("an output is a tuple of any number of tensors")
    if isinstance(old.value, tuple) or isinstance(new.value, tuple):
        if not isinstance(old.value, tuple) or not isinstance(new.value, tuple) or len(old.value) != len(new.value):
            raise Unproved("one side is a tuple of tensors")
        pairs = list(zip(old.value, new.value))
    else:
        pairs = [(old.value, new.value)]
    return [step for pair in pairs for step in _equal_tensors(target, f"output {number}", *pair)]


def _equal_tensors(target: TargetSide, what: str, old: Tensor, new: Tensor) -> list[str]:
    path, algebra = target.calc.path, target.calc.algebra
    if old.ndim != new.ndim:
        raise Impossible(f"{what} has {old.ndim} axes before and {new.ndim} after")
    for left, right in zip(old.shape, new.shape):
        path.assume(("==", left - right))
    first: tuple[SumTerm, SumTerm] | None = None
    taken = tuple(algebra.partial)
    for place in _places(path, old):
        algebra.partial[:] = taken
        one = algebra.renewed(old.at(place))
        known = tuple(algebra.partial)
        other = algebra.renewed(new.at(place))
        first = first or (one, other)
        if equal(algebra, one, other):
            own = frozenset(atom for p in (*place, *target.source.members) for atom in p.atoms)
            _defined(algebra, known, algebra.partial[len(known) :], own)
            algebra.partial[:] = taken
            names = ", ".join(f"{atom} < {path.size(atom)}" for p in place for atom in sorted(p.atoms) if atom.size)
            return [f"{what} at [{', '.join(map(str, place))}] with {names}: {_short(one)}", f"  = {_short(other)}"]
    assert first is not None
    shown = " before and ".join(map(_short, first))
    raise Unproved(f"{what} is {shown} after, which are not seen to be equal")


def _places(path: Path, x: Tensor) -> Iterator[tuple[Poly, ...]]:
    """Any index into a tensor; then with an axis whose size is a product counted by two indices, in either order."""
    sizes = tuple(map(path.reduce, x.shape))
    plain = tuple(Poly.of(path.index(size, "i")) for size in sizes)
    yield plain
    for axis, size in enumerate(sizes):
        (monomial, count), *others = size.terms.items() or [((), 0)]
        if count == 1 and not others and len(monomial) == 2:
            for outer, inner in (monomial, monomial[::-1]):
                high, low = (path.index(Poly.of(atom), "i") for atom in (outer, inner))
                yield (*plain[:axis], Poly.of(high) * Poly.of(inner) + Poly.of(low), *plain[axis + 1 :])


def _short(value: SumTerm) -> str:
    text = str(value)
    return text if len(text) < 300 else text[:297] + "…"


def _defined(
    algebra: TermAlgebra, source: Sequence[Partial], target: Sequence[Partial], place: frozenset[IntAtom]
) -> None:
    """Show that all that an element of the target divides by (or takes the logarithm of, …) that of the source does;
    ``place`` are the indices of the element."""
    if any(taken == Partial("inverse", (ZERO,)) for taken in source):
        raise Impossible("the source divides by 0, so that it has no value")
    known = list(dict.fromkeys(part for taken in source for part in (taken, *_factors(taken))))
    for wanted in dict.fromkeys(part for taken in target for part in _factors(taken)):
        if has_value(algebra, wanted.name, wanted.arguments) or any(
            _covers(algebra, taken, wanted, place) for taken in known
        ):  # fmt: skip
            continue
        shown = ", ".join(map(_short, wanted.arguments))
        raise Unproved(f"the target takes {wanted.name} of {shown}, of which the source takes none")


def _covers(algebra: TermAlgebra, taken: Partial, wanted: Partial, place: frozenset[IntAtom]) -> bool:
    """True if a function that the source takes is one that is wanted, at the same places or at more of them."""
    if not taken.guards:
        wanted = replace(wanted, guards=frozenset())
    if not taken.choices:
        wanted = replace(wanted, choices=())
    if taken == wanted or taken.name != wanted.name:
        return taken == wanted
    ours, theirs = _indices(taken), _indices(wanted)  # of the element's own place, the source takes no other one
    return alike(algebra, _at_any(wanted, theirs - (place & ours)), _at_any(taken, ours - place))


def _factors(taken: Partial) -> list[Partial]:
    """The values that must differ from 0 so that one does, and do so if it does: of a product, each factor."""
    (term, *others) = taken.arguments[0].terms or (None,)
    if taken.name != "inverse" or term is None or others or term.bound or not term.factors:
        return [taken]
    inner = (
        factor.arguments if isinstance(factor, FunctionTerm) and factor.name == "inverse" else (alone(factor),)
        for factor, _ in term.factors
    )
    return [replace(taken, arguments=arguments) for arguments in inner]


def _indices(taken: Partial) -> set[IntAtom]:
    """The indices that a function is taken at."""
    values = (*taken.arguments, *taken.choices)
    own = {atom for value in values for term in value.terms for atom in term.bound}
    read = {atom for value in values for atom in atoms_of(value)} | {
        atom for _, p in taken.guards for atom in p.inner
    }
    return {atom for atom in read if atom.size is not None and atom not in own}


def _at_any(taken: Partial, indices: set[IntAtom]) -> Term:
    """A term that stands for a function of sums at any values of some indices, where the conditions on these hold."""
    factor = FunctionTerm(taken.name, (*taken.arguments, *taken.choices))
    return Term(Fraction(1), ((factor, 1),), tuple(sorted(indices)), taken.guards)

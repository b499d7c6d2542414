"""One case of a proof: what was chosen, and what is known of sizes and attributes in it.

A proof runs once for each case. Where a condition is asked that neither holds nor fails for all sizes that are left,
both answers are cases of their own (:func:`cases`).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import combinations
from typing import Any, TypeVar

from gsl.pat.typed import Domain
from gsl.prove import poly
from gsl.prove.poly import Impossible, IntAtom, Poly, Relation, Unproved, Whole, operation, opposite, written
from gsl.prove.solver import Question, solver
from gsl.walk import reached

T = TypeVar("T")


class Path:
    """The decisions and the facts of a case."""

    def __init__(self, decisions: Sequence[int], answers: dict[Any, bool], deadline: float) -> None:
        self.decisions = list(decisions)
        self.taken = 0
        self.open: list[list[int]] = []
        """The decisions that lead to the cases beside this one."""
        self.answers = answers
        """The answers of the solver, in all cases."""
        self.deadline = deadline
        self.values: dict[IntAtom, Poly] = {}
        """The values of atoms."""
        self.facts: list[Relation] = []
        self.bounds: dict[IntAtom, int] = {}
        self.domains: dict[str, Domain] = {}
        """The numbers that the elements of leaves are demanded to be, by the names of the leaves."""
        self.groups: list[set[Poly]] = []
        """Sizes of which it is known that they can be broadcast to each other."""
        self.said: list[str] = []
        """The choices and assumptions in words."""
        self.counts: dict[str, int] = {}
        self.member: Poly | None = None
        """The number of the instance of a variadic to which new variables belong."""
        self._reduced: dict[Poly, Poly] = {}

    # ---------------------------------------------------------------- choices

    def choose(self, options: Sequence[T], what: str = "") -> T:
        """One of some options; the others are cases of their own."""
        if not options:
            raise Impossible(f"{what}: nothing to choose from")
        if len(options) == 1:
            return options[0]
        if self.member is not None and poly.EACH in self.member.inner:
            raise Unproved(f"{what or 'what is known of sizes'} may not be the same for all instances")
        if self.taken == len(self.decisions):
            self.open += [[*self.decisions, number] for number in range(len(options) - 1, 0, -1)]
            self.decisions.append(0)
        number = self.decisions[self.taken]
        self.taken += 1
        if what:
            self.said.append(f"{what} is {options[number]}")
        return options[number]

    def variable(self, name: str, least: int | None = 1) -> Whole:
        """A number of which only a lower bound is known; while an instance is matched, one for each of them."""
        if self.member is not None:
            key = f"{name} of {self.member}"
            count = self.counts[key] = self.counts.get(key, 0) + 1
            kind = "any" if least is None else poly.SIZE if least else poly.NUMBER
            return Whole(operation(f"{kind} {name}{count}", self.member), self)
        return Whole(Poly.of(IntAtom(self.name(name), least=least)), self)

    def index(self, size: Poly, name: str = "i") -> IntAtom:
        """An index that runs from 0 to ``size`` - 1."""
        return IntAtom(self.name(name), least=0, size=size)

    def name(self, name: str) -> str:
        """A name that nothing else has in this case."""
        count = self.counts[name] = self.counts.get(name, 0) + 1
        return name if count == 1 else f"{name}{count}"

    # ---------------------------------------------------------------- what follows

    def decide(self, relation: Relation) -> bool:
        """True if a relation holds; where that is open, both are cases."""
        known = self.known(relation)
        if known is not None:
            return known
        if self.choose((True, False)):
            self.assume(relation)
            return True
        self.assume(opposite(relation))
        return False

    def known(self, relation: Relation) -> bool | None:
        """True if a relation holds, ``None`` if it does for some sizes only."""
        quick = self.quick(relation)
        if quick is not None:
            return quick
        if self.entails(relation):
            return True
        return False if self.entails(opposite(relation)) else None

    def quick(self, relation: Relation) -> bool | None:
        """True if a relation holds, as far as that is seen without the solver."""
        kind, p = relation
        p = self.reduce(p)
        number = p.number
        if number is not None:
            return {">=": number >= 0, "==": number == 0, "!=": number != 0}[kind]
        if kind == ">=":
            if self.at_least(p) or any(k == ">=" and self.at_least(p - self.reduce(f)) for k, f in self.facts):
                return True
            return False if self.at_least(-p - 1) else None
        if self.at_least(p - 1) or self.at_least(-p - 1):
            return kind == "!="
        for other in ("==", "!="):
            if (other, p) in self.facts or (other, -p) in self.facts:
                return other == kind
        return (kind == "==") or None if self._combined(p) else None

    def _combined(self, p: Poly) -> bool:
        """True if a number is 0 as the sum of others that are."""
        zero = [found for kind, f in self.facts if kind == "==" and (found := self.reduce(f)).terms]
        zero = list(dict.fromkeys(zero + [-f for f in zero]))
        return p in zero or any(p - f in zero for f in zero)

    def holds(self, relation: Relation) -> bool:
        """True if a relation is known to hold."""
        return self.quick(relation) is True or self.entails(relation)

    def assume(self, relation: Relation) -> None:
        """Take a relation for true. Impossible if it is not."""
        linear = all(len(monomial) < 2 for monomial in self.reduce(relation[1]).terms)
        known = self.known(relation) if linear else self.quick(relation)
        if known is False:
            raise Impossible(written(relation))
        if known:
            return
        kind, p = relation[0], self.reduce(relation[1])
        if kind == "!=" and (self.at_least(p) or self.at_least(-p)):
            kind, p = ">=", (p if self.at_least(p) else -p) - 1
        self.said.append(written((kind, p)))
        self._bound(kind, p)
        self.facts.append((kind, p))
        if kind == "==":
            self._solve(p)
            while any(self._solve(left) for k, f in [*self.facts] if k == "==" and (left := self.reduce(f)).terms):
                continue

    def require(self, relation: Relation, what: str) -> None:
        """A step of the proof: a relation that must follow. Unproved if it does not."""
        if self.quick(relation) is not True and not self.entails(relation):
            raise Unproved(f"{what}: {written((relation[0], self.reduce(relation[1])))} does not follow", relation)

    def _solve(self, p: Poly) -> bool:
        """Replace an atom by what it is equal to; false where there is none that can be."""
        common = min(p.terms, key=len)
        shared = [atom for atom in set(common) if self.at_least(Poly.of(atom) - 1)
                  and all(atom in monomial for monomial in p.terms)]  # fmt: skip
        if shared:
            return self._solve(p.over(Poly.of(sorted(shared)[0]))[0])
        if self._split_by_rest(p):
            return True
        for atom in sorted(p.atoms, key=_dispensable):
            parts = p.linear(atom)
            if parts is None or parts[0].number not in (1, -1) or atom.size is not None:
                continue
            value = -parts[1] * parts[0]
            if atom in value.inner:
                continue
            if atom.least is not None:
                self.facts.append((">=", value - atom.least))
            self._set(atom, value)
            return True
        return False

    def _set(self, atom: IntAtom, value: Poly) -> None:
        """Note the value of an atom."""
        self.values[atom] = value
        self._reduced.clear()
        self.values = {key: self.reduce(old) for key, old in self.values.items()}

    def _split_by_rest(self, p: Poly) -> bool:
        """Replace a variable of which the rest by a number is known by what that says of it."""
        for atom in sorted(p.atoms):
            parts = p.linear(atom)
            if atom.operation != poly.QUOTIENT or parts is None:
                continue
            whole, divisor = atom.operands
            variable = next(iter(whole.atoms), None)
            by = divisor.number
            if by is None or variable is None or whole != Poly.of(variable) or variable.operation:
                continue
            sign = 1 if parts[0].number == -by else -1
            rest = (parts[1] * sign - whole).number
            if parts[0].number in (by, -by) and rest is not None:
                value = self.variable("half", 0).poly * by - rest
                self.facts.append((">=", value - (self.least(variable) or 0)))
                self._set(variable, value)
                return True
        return False

    def _bound(self, kind: str, p: Poly) -> None:
        """Note a lower bound of an atom."""
        (atom, *others) = p.atoms or (None,)
        rest = (p - Poly.of(atom)).number if kind == ">=" and atom is not None and not others else None
        if atom is not None and rest is not None:
            self.bounds[atom] = max(self.least(atom) or 0, -rest)

    def least(self, atom: IntAtom) -> int | None:
        """A lower bound of an atom."""
        if atom.operation == poly.PREFIX:
            each, count = atom.operands
            return int(self.at_least(count - 1)) if self.at_least(each - 1) else 0 if self.at_least(each) else None
        return self.bounds.get(atom, atom.least)

    def size(self, index: IntAtom) -> Poly:
        """The number of values of an index."""
        assert index.size is not None
        return self.reduce(index.size)

    def reduce(self, p: Poly) -> Poly:
        """A polynomial with the known values of its atoms."""
        found = self._reduced.get(p)
        if found is None:
            found = p.replaced(self._value) if p.inner else p
            if found != p:
                found = self.reduce(found)
            self._reduced[p] = found
        return found

    def _value(self, atom: IntAtom) -> Poly | None:
        known = self.values.get(atom)
        if known is not None:
            return known
        if not atom.operation:
            return None
        operands = tuple(map(self.reduce, atom.operands))
        made = self.operate(atom.operation, *operands)
        return None if made == Poly.of(atom) else made

    # ---------------------------------------------------------------- operations

    def operate(self, name: str, *operands: Poly) -> Poly:
        """An operation of :mod:`gsl.prove.poly`, as simple as it is known to be."""
        match name:
            case "quotient":
                return self.quotient(operands[0], operands[1], shown=True)
            case "pick":
                return self.pick(*operands)
            case "common":
                return self.common(operands)
            case "max" | "min":
                return self.extreme(name, *operands)
            case "prefix":
                return self.prefix(*operands)
        if name == poly.CODE and len(set(operands)) == 1:
            return operands[0]
        if name.startswith(poly.RESULT) and "float" in poly.DTYPES[operands[0].number or 0]:
            return operands[0]
        return operation(name, *operands)

    def quotient(self, p: Poly, divisor: Poly, shown: bool = False) -> Poly:
        """``p // divisor``, rounded down. Unproved if the divisor may be less than 1, unless that was ``shown``."""
        p, divisor = self.reduce(p), self.reduce(divisor)
        if divisor.number == 1:
            return p
        if p.number is not None and divisor.number is not None and divisor.number:
            return Poly.of(p.number // divisor.number)
        if not shown and not self.at_least(divisor - 1):
            self.require((">=", divisor - 1), "a division")
        if not divisor.terms:
            raise Impossible("a division by 0")
        whole, rest = p.over(divisor)
        if not rest.terms or (self.at_least(rest) and self.at_least(divisor - rest - 1)):
            return whole
        for atom in sorted(rest.atoms):  # (p // a + r) // b = (p + r · a) // (a · b)
            parts = rest.linear(atom)
            if atom.operation == poly.QUOTIENT and parts is not None and parts[0] == Poly.of(1):
                inner, by = atom.operands
                return whole + self.quotient(inner + parts[1] * by, by * divisor, shown=True)
        return whole + operation(poly.QUOTIENT, rest, divisor)

    def remainder(self, p: Poly, divisor: Poly) -> Poly:
        """The rest of a division rounded down."""
        return self.reduce(p) - self.reduce(divisor) * self.quotient(p, divisor)

    def pick(self, size: Poly, index: Poly) -> Poly:
        """The place on an axis of some size that an index of its broadcast form takes: 0 if the size is 1."""
        size, index = self.reduce(size), self.reduce(index)
        if size.number == 1 or index.number == 0:
            return Poly()
        if self.at_least(size - 2) or (self.at_least(index) and self.at_least(size - 1 - index)):
            return index
        atom = next(iter(index.terms), ())
        single = atom[0] if len(index.terms) == 1 and len(atom) == 1 else None
        if single is not None and single.operation == poly.PICK:
            outer, inner = single.operands
            if self._parts(size) <= self._parts(outer):
                return self.pick(size, inner)
        return operation(poly.PICK, size, index)

    def broadcast(self, sizes: Sequence[Poly], *, given: bool) -> Poly:
        """The size of an axis to which axes are broadcast; ``given`` says that they can be, or else it must follow."""
        parts = {part for size in sizes for part in self._parts(self.reduce(size))}
        if given:
            self.groups.append(parts)
        else:
            known = [{self.reduce(part) for part in group} for group in self.groups]
            for left, right in combinations(sorted(parts, key=lambda p: p.text), 2):
                one = Poly.of(1) in (left, right)
                if not one and not any({left, right} <= group for group in known):
                    self.require(("==", left - right), "sizes that are broadcast")
        return self.common(sizes)

    def common(self, sizes: Iterable[Poly]) -> Poly:
        """The size of an axis to which axes of some sizes are broadcast, where they can be."""
        found: set[Poly] = set()
        for size in map(self.reduce, sizes):
            found |= self._parts(size)
        found -= {Poly.of(1)}
        parts = sorted(found, key=lambda p: p.text)
        large = [size for size in parts if self.at_least(size - 2)]
        if large or len(parts) < 2:
            return [*large, *parts, Poly.of(1)][0]
        return operation(poly.COMMON, *parts)

    def _parts(self, size: Poly) -> set[Poly]:
        atom = next(iter(size.terms), ())
        if len(size.terms) == 1 and len(atom) == 1 and atom[0].operation == poly.COMMON:
            return set(atom[0].operands)
        return {size}

    def prefix(self, each: Poly, count: Poly) -> Poly:
        """The sum of what an expression is for the first numbers, so many of them, in the place of EACH."""
        each, count = self.reduce(each), self.reduce(count)
        if poly.EACH not in each.inner:
            return each * count
        if not count.terms:
            return Poly()
        if count.terms.get((), 0) > 0:
            last = count - 1
            return self.prefix(each, last) + self.reduce(poly.replaced(each, {poly.EACH: last}))
        return operation(poly.PREFIX, each, count)

    def extreme(self, name: str, left: Poly, right: Poly) -> Poly:
        """The larger or the smaller of two numbers."""
        left, right = self.reduce(left), self.reduce(right)
        if self.at_least(left - right):
            return left if name == poly.LARGER else right
        if self.at_least(right - left):
            return right if name == poly.LARGER else left
        return operation(name, *sorted((left, right), key=lambda p: p.text))

    # ---------------------------------------------------------------- bounds without the solver

    def at_least(self, p: Poly) -> bool:
        """True if it is seen that a polynomial is never negative: by the ranges of its atoms alone."""
        p = self.reduce(p)
        for _ in range(8):
            ranged = sorted((atom for atom in p.inner if atom.size), key=lambda a: -len(a.size.inner if a.size else ()))
            if not ranged:
                break
            index = ranged[0]
            assert index.size is not None
            parts = p.linear(index)
            if parts is None:
                return False
            if self.at_least(parts[0]):
                p = parts[1]
            elif self.at_least(-parts[0]):
                p = self.reduce(parts[1] + parts[0] * (index.size - 1))
            else:
                return False
        shifted = p.replaced(lambda atom: Poly.of(atom) + least if (least := self.least(atom)) else None)
        return all(count >= 0 and all(map(self._not_negative, monomial)) for monomial, count in shifted.terms.items())

    def _not_negative(self, atom: IntAtom) -> bool:
        least = self.least(atom)
        if least is not None:
            return least >= 0
        match atom.operation:
            case "quotient" if (">=", atom.operands[0]) in self.facts:
                return self.at_least(atom.operands[1])
            case "quotient" | "max" | "min" | "pick":
                return all(map(self.at_least, atom.operands)) if atom.operation != poly.LARGER else any(
                    map(self.at_least, atom.operands))  # fmt: skip
        return atom.operation == poly.COMMON

    # ---------------------------------------------------------------- the solver

    def _atoms(self, p: Poly) -> set[IntAtom]:
        """The atoms of a polynomial, and those of the sizes of its indices."""
        return set(reached(p.inner, lambda atom: self.size(atom).inner if atom.size is not None else ()))

    def _connected(self, goal: Relation, facts: Sequence[Relation]) -> frozenset[Relation]:
        """The facts that have to do with a goal, directly or over others."""
        reached = self._atoms(goal[1])
        left = [(fact, self._atoms(fact[1])) for fact in dict.fromkeys(facts)]
        found: list[Relation] = []
        while True:
            near = [pair for pair in left if not pair[1].isdisjoint(reached)]
            if not near:
                return frozenset(found)
            left = [pair for pair in left if pair not in near]
            for fact, atoms in near:
                reached |= atoms
                found.append(fact)

    def entails(self, relation: Relation, given: Sequence[Relation] = ()) -> bool:
        """True if a relation follows from the facts and from some more."""
        goal = (relation[0], self.reduce(relation[1]))
        more = tuple((kind, self.reduce(p)) for kind, p in given)
        quick = self.quick(goal)
        if quick:
            return True
        if goal in more:
            return True
        facts = tuple((kind, self.reduce(p)) for kind, p in self.facts)
        relevant = self._connected(goal, (*facts, *more))
        atoms = {atom for _, p in (goal, *relevant) for atom in self._atoms(p)}
        key = (goal, relevant, frozenset((a.name, a.least, a.size and self.size(a)) for a in atoms))
        if key not in self.answers:
            if time.process_time() > self.deadline:
                raise poly.ProofLimit("it takes too long")
            self.answers[key] = Question(self.reduce).follows(goal, relevant)
        return self.answers[key]


def _dispensable(atom: IntAtom) -> tuple[bool, bool, bool, int, str]:
    """A key by which those atoms come first that are best replaced by what they are equal to."""
    own = atom.operation.startswith((f"{poly.SIZE} ", f"{poly.NUMBER} "))
    return not own, bool(atom.operation), atom.size is not None, -len(atom.name), atom.name


def cases(run: Callable[[Path], T], *, most: int, seconds: float) -> Iterator[tuple[Path, T]]:
    """The cases of a proof with what a function finds in each; those that do not occur are left out.

    ProofLimit if there are too many.
    """
    solver()
    answers: dict[Any, bool] = {}
    work: list[list[int]] = [[]]
    deadline = time.process_time() + seconds
    count = 0
    while work:
        path = Path(work.pop(), answers, deadline)
        count += 1
        if count > most:
            raise poly.ProofLimit(f"it has more than {most} cases")
        if time.process_time() > deadline:
            raise poly.ProofLimit(f"its cases take more than {seconds:g} s")
        try:
            found = run(path)
        except Impossible:
            continue
        finally:
            work += path.open
        yield path, found

"""A small graph of objects: terms over numbers, which know their operands and can be computed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from gsl import Subst, Workload, pat


@dataclass(frozen=True, eq=False)
class Term:
    """A term: its operands, and a number. Subclasses say what it means."""

    inputs: tuple[Term, ...] = ()
    n: int = 0
    inner: Any = None

    def compute(self, *values: int) -> int:
        raise NotImplementedError


class Leaf(Term):
    def compute(self, *values: int) -> int:
        return self.n


class Add(Term):
    def compute(self, *values: int) -> int:
        return sum(values) + self.n


class Mul(Term):
    def compute(self, *values: int) -> int:
        return values[0] * values[1] + self.n


class Fma(Term):
    """The first two times each other, plus the third."""

    def compute(self, *values: int) -> int:
        return values[0] * values[1] + values[2] + self.n


class Shift(Term):
    def compute(self, *values: int) -> int:
        return values[0] + self.n


@dataclass
class Maker:
    """Makes terms for what a rule made, and keeps what it was asked for."""

    calls: list[tuple[type, Term | None]] = field(default_factory=list)

    def __call__(self, op: Any, operands: Sequence[Term], attrs: Mapping[str, Any], old: Term | None) -> Term:
        self.calls.append((op, old))
        made: Term = op(tuple(operands), **attrs)
        return made


def config(term: Term) -> dict[str, Any]:
    return {"n": term.n} if term.inner is None else {"n": term.n, "inner": term.inner}


def values(outputs: Sequence[Term], scale: int = 1) -> list[int]:
    """What the outputs compute, with every leaf times a number."""
    known: dict[Term, int] = {}
    work = list(outputs)
    while work:
        term = work[-1]
        missing = [below for below in term.inputs if below not in known]
        if missing:
            work += missing
            continue
        work.pop()
        known[term] = term.compute(*(known[below] for below in term.inputs)) * (scale if not term.inputs else 1)
    return [known[output] for output in outputs]


def workload(*outputs: Term, rebuild: Any = None, **options: Any) -> Workload:
    """The workload of terms, which also runs."""
    return Workload.from_nodes(
        outputs, operands=lambda term: term.inputs, attrs=config, rebuild=rebuild or Maker(), run=values, **options
    )


def chain(length: int) -> list[Term]:
    """Shifts by 1, 2, 3, … on top of each other, the first term being a leaf."""
    terms: list[Term] = [Leaf(n=5)]
    for number in range(1, length + 1):
        terms.append(Shift((terms[-1],), number))
    return terms


def join() -> Subst:
    """Two shifts as one."""
    x = pat.Wildcard()
    first = pat.Call(Shift, x)
    second = pat.Call(Shift, first)
    return Subst(second, pat.Call(Shift, x, n=first.n + second.n), extern_use=False, name="join")

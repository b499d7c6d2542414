"""The solver that decides relations between whole numbers."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from gsl.errors import GSLError
from gsl.prove.poly import IntAtom, Poly, Relation

EFFORT = 1_000_000
"""The steps that the solver has for one question. They are counted by itself, so that an answer depends on the question
alone, not on how fast the machine is or on what was asked before."""


class MissingSolverError(GSLError, ImportError):
    """The solver with which conditions are decided is not installed."""


def solver() -> Any:
    """The package z3. MissingSolverError where it is not installed."""
    try:
        import z3
    except ImportError as error:
        raise MissingSolverError("a proof needs the Python package z3-solver: pip install 'gsl[prove]'") from error
    return z3


class Question:
    """One question to the solver, in a context of its own: names and terms of other questions change its order."""

    def __init__(self, reduce: Callable[[Poly], Poly]) -> None:
        z3 = self.z3 = solver()
        self.reduce = reduce
        self.context = z3.Context()
        self.solver = z3.SolverFor("QF_NIA", ctx=self.context)
        self.solver.set("rlimit", EFFORT)
        self.known: dict[IntAtom, Any] = {}

    def follows(self, goal: Relation, facts: Iterable[Relation]) -> bool:
        for fact in sorted(facts, key=str):
            self.solver.add(self.relation(fact))
        self.solver.add(self.z3.Not(self.relation(goal)))
        return bool(self.solver.check() == self.z3.unsat)

    def relation(self, relation: Relation) -> Any:
        kind, p = relation
        left = self.expression(p)
        return left >= 0 if kind == ">=" else left == 0 if kind == "==" else left != 0

    def expression(self, p: Poly) -> Any:
        total: Any = self.z3.IntVal(0, self.context)
        for monomial, count in p.ordered:
            value: Any = self.z3.IntVal(count, self.context)
            for atom in monomial:
                value = value * self.atom(atom)
            total = total + value
        return total

    def atom(self, atom: IntAtom) -> Any:
        if atom in self.known:
            return self.known[atom]
        z3 = self.z3
        value = self.known[atom] = z3.Int(atom.name, self.context)
        if atom.least is not None:
            self.solver.add(value >= atom.least)
        if atom.size is not None:
            self.solver.add(value < self.expression(self.reduce(atom.size)))
        operands = [self.expression(operand) for operand in atom.operands]
        match atom.operation:
            case "quotient":
                p, by = operands
                self.solver.add(by * value <= p, p < by * value + by)
            case "pick":
                self.solver.add(value == z3.If(operands[0] == 1, 0, operands[1]))
            case "common":
                self.solver.add(*[z3.Or(size == 1, size == value) for size in operands])
                self.solver.add(z3.Or(*[size == value for size in operands]))
            case "max":
                self.solver.add(value == z3.If(operands[0] >= operands[1], operands[0], operands[1]))
            case "min":
                self.solver.add(value == z3.If(operands[0] <= operands[1], operands[0], operands[1]))
        return value

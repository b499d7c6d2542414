"""Relations between whole numbers, and the outcomes of a case of a proof."""

from __future__ import annotations

from typing import Any

from gsl.errors import GSLError
from gsl.prove.poly import Poly

Relation = tuple[str, Poly]
"""``(">=", p)``, ``("==", p)`` or ``("!=", p)``: how a polynomial compares with 0."""


class Impossible(Exception):
    """The case does not occur: its conditions contradict each other."""


class Unproved(Exception):
    """The proof fails; the text says why."""

    def __init__(self, reason: str, lacking: Relation | None = None, known: tuple[Any, ...] = ()) -> None:
        super().__init__(reason)
        self.lacking = lacking
        """The condition on sizes or attributes for want of which it fails, where there is one."""
        self.known = known


class ProofLimit(GSLError):
    """A proof that takes too many cases, or too long."""


def negations(relation: Relation) -> tuple[Relation, ...]:
    """The relations of which one holds where a relation does not."""
    kind, p = relation
    if kind == ">=":
        return ((">=", -p - 1),)
    if kind == "==":
        return ((">=", p - 1), (">=", -p - 1))
    return (("==", p),)


def written(relation: Relation) -> str:
    """A relation as it is written."""
    kind, p = relation
    left = Poly({m: n for m, n in p.terms.items() if n > 0})
    return f"{left} {kind} {left - p}"

"""The verdict on rules that are proved."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cache, partial, reduce
from operator import and_

from gsl.errors import GSLError
from gsl.graph import TensorType
from gsl.prove import NoProof, Proof, prove
from gsl.prove.proof import Lacking
from gsl.rewrite import Subst
from gsl.verify.models import is_finite
from gsl.verify.mutate import rebuilt
from gsl.verify.suggest import legend, names_of
from gsl.verify.verdict import Counterexample, Refuted, Suggestion, Verdict


class ContradictionError(GSLError):
    """A rule that is proved has a counterexample: one of the two is wrong, and that is a mistake in GSL."""


@dataclass(frozen=True, eq=False, repr=False)
class Proved(Verdict):
    """The two sides are equal for all sizes, attributes and values."""

    proof: Proof = field(kw_only=True)

    def __bool__(self) -> bool:
        return True

    @property
    def title(self) -> str:
        return f"proved in {self.proof.cases} case{'s' * (self.proof.cases != 1)}"

    def details(self) -> list[str]:
        return [*str(self.proof).splitlines()[1:], *super().details()]


def _is_real(example: Counterexample) -> bool:
    """True if a counterexample computes with numbers of floating-point dtypes only, finite ones in the source, as a
    proof does, and does not tell the sign of a zero."""
    nodes = [node for graph in (example.before, example.after) for node in graph.nodes]
    tensors = [node.type for node in nodes if isinstance(node.type, TensorType)]
    signed = any(node.op == "atan2" for node in nodes)
    if example.kind == "not finite" or signed or not all("float" in tensor.dtype for tensor in tensors):
        return False
    inputs = example.comparison.inputs
    return inputs is None or is_finite(example.before, inputs)


def with_proof(rule: Subst, verdict: Verdict, confirm: Callable[[Subst], Verdict] | None = None) -> Verdict:
    """The verdict of a search, or Proved where there is a proof; the reason why there is none stands in ``unproved``.

    Where a refuted rule lacks conditions on sizes or attributes without which the proof fails, and with which it
    succeeds, these are the suggestion, if ``confirm`` gives the verdict of a search on a rule.
    ContradictionError if a rule is both proved and refuted, with numbers that a proof is about: a rule that is wrong
    for integers that wrap stays refuted.
    """
    found = prove(rule)
    if isinstance(found, NoProof):
        if isinstance(verdict, Refuted) and confirm is not None:
            verdict = replace(verdict, missing=cache(partial(_suggestion, rule, verdict, found, confirm)))
        return replace(verdict, unproved=replace(found, condition=None))
    if isinstance(verdict, Refuted):
        if not _is_real(verdict.counterexample):
            reason = "it holds for real numbers, and the counterexample is one of integers, bools or infinite numbers"
            return replace(verdict, unproved=NoProof(rule.name, reason))
        raise ContradictionError(
            f"{rule.title} is proved, and has a counterexample: please report both\n{found}\n{verdict}"
        )
    if verdict.evidence.refused and not verdict.evidence.fired:
        return replace(verdict, unproved=NoProof(rule.name, "its sides are equal, but the engine refused each match"))
    return Proved(verdict.rule, verdict.evidence, mutants=verdict.mutants, proof=found)


MOST_LACKING = 4
"""The largest number of conditions that are added to a rule for a proof."""


def _suggestion(
    rule: Subst, verdict: Refuted, found: NoProof, confirm: Callable[[Subst], Verdict]
) -> Suggestion | None:
    """The conditions of a proof, if there is one with some, or else that of the search."""
    return _missing(rule, found, confirm) or verdict.suggestion


def _missing(rule: Subst, found: NoProof, confirm: Callable[[Subst], Verdict]) -> Suggestion | None:
    """The conditions for want of which the proof of a rule fails, with a proof of the rule with them."""
    conditions: list[Lacking] = []
    while found.condition is not None and len(conditions) < MOST_LACKING:
        conditions.append(found.condition)
        try:
            guarded = rebuilt(rule, more=[condition.expr() for condition in conditions])
        except GSLError:
            return None
        again = prove(guarded)
        if isinstance(again, Proof):
            verdict = with_proof(guarded, confirm(guarded))
            names = names_of(rule)
            text = " & ".join(f"({c.text(names)})" if len(conditions) > 1 else c.text(names) for c in conditions)
            every = reduce(and_, [condition.expr() for condition in conditions])
            return Suggestion(every, text, legend(rule, names), verdict) if isinstance(verdict, Proved) else None
        found = again
    return None

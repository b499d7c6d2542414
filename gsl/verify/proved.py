"""The verdict on rules that are proved."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from gsl.errors import GSLError
from gsl.graph import TensorType
from gsl.prove import NoProof, Proof, prove
from gsl.rewrite import Subst
from gsl.verify.verdict import Counterexample, Refuted, Verdict


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
    """True if a counterexample computes with finite numbers of floating-point dtypes only, as a proof does."""
    tensors = [node.type for graph in (example.before, example.after) for node in graph.nodes]
    found = [tensor for tensor in tensors if isinstance(tensor, TensorType)]
    return example.kind != "not finite" and all("float" in tensor.dtype for tensor in found)


def with_proof(rule: Subst, verdict: Verdict) -> Verdict:
    """The verdict of a search, or Proved where there is a proof; the reason why there is none stands in ``unproved``.

    ContradictionError if a rule is both proved and refuted, with numbers that a proof is about: a rule that is wrong
    for integers that wrap stays refuted.
    """
    found = prove(rule)
    if isinstance(found, NoProof):
        return replace(verdict, unproved=found)
    if isinstance(verdict, Refuted):
        if not _is_real(verdict.counterexample):
            reason = "it holds for real numbers, and the counterexample is one of integers, bools or overflow"
            return replace(verdict, unproved=NoProof(rule.name, reason))
        raise ContradictionError(
            f"{rule.title} is proved, and has a counterexample: please report both\n{found}\n{verdict}"
        )
    return Proved(verdict.rule, verdict.evidence, mutants=verdict.mutants, proof=found)

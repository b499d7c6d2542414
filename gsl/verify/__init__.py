"""Verification: random small instances of a rule's source, rewritten and compared."""

from gsl.verify.judge import verify
from gsl.verify.many import verdicts, verify_all
from gsl.verify.proved import ContradictionError, Proved
from gsl.verify.verdict import (
    Counterexample,
    Evidence,
    Mutants,
    Refuted,
    Suggestion,
    Supported,
    Unchecked,
    Verdict,
)

__all__ = [
    "ContradictionError", "Counterexample", "Evidence", "Mutants", "Proved", "Refuted", "Suggestion", "Supported",
    "Unchecked", "Verdict", "verdicts", "verify", "verify_all",
]  # fmt: skip

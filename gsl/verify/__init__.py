"""Verification: random small instances of a rule's source, rewritten and compared."""

from gsl.verify.judge import verify
from gsl.verify.many import verdicts, verify_all
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
    "Counterexample", "Evidence", "Mutants", "Refuted", "Suggestion", "Supported", "Unchecked", "Verdict",
    "verdicts", "verify", "verify_all",
]  # fmt: skip

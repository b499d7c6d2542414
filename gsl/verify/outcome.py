"""The outcome of one instance: the rule fires or not, and the two sides are equal or not."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any

from gsl.errors import GSLError
from gsl.graph import Graph
from gsl.rewrite import Subst


@dataclass(frozen=True)
class Outcome:
    """An instance and its outcome."""

    status: str
    """``"unmatched"``, ``"refused"``, ``"fired"`` (nothing could be compared), ``"equal"`` or ``"different"``."""
    before: Graph
    after: Graph | None = None
    comparison: Any = None
    reason: str = ""
    """The reason why the rule was refused, or the error."""

    @property
    def is_evaluated(self) -> bool:
        return self.status in ("equal", "different")


def outcome(rule: Subst, before: Graph, compare: Any, seed: int) -> Outcome:
    """Apply the rule to an instance with the real engine, and compare."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            after, trace = rule.apply(before)
        except GSLError as error:
            return Outcome("refused", before, reason=str(error))
    if not trace.firings:
        if trace.refused:
            return Outcome("refused", before, reason=trace.refused[0].reason)
        return Outcome("unmatched", before)
    try:
        comparison = compare(before, after, seed=seed)
    except ValueError as error:
        return Outcome("fired", before, after, reason=str(error))
    if not comparison.compared:
        return Outcome("fired", before, after, comparison)
    return Outcome("equal" if comparison.equal else "different", before, after, comparison)

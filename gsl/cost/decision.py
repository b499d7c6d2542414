"""The decision of an optimisation, which is kept for the next one of an equal program."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from gsl.cost.space import Trial
from gsl.cost.whole import Timing
from gsl.rewrite import Subst, Trace
from gsl.rewrite.trace import Firing, Firings


@dataclass(frozen=True, slots=True)
class Decision:
    """The steps to the best program, and the trials of the search that found it.

    If the new program was the faster one as a whole, also the times of both. If it was not, whatever else the machine
    did may have hidden it, so they are taken again.
    """

    traces: tuple[Trace, ...]
    """Empty where the best program is the one that was given."""
    trials: tuple[Trial, ...]
    budget: float | None
    """The seconds that were spent; ``None`` where nothing was left to look at."""
    before: Timing | None = None
    after: Timing | None = None
    error: float | None = None
    values: int | None = None
    """A checksum of the weights and inputs with which both programs were compared."""

    def serves(self, budget: float) -> bool:
        """True if an optimisation with so many seconds would not look at more."""
        return self.budget is None or self.budget >= budget

    def as_json(self) -> dict[str, Any]:
        """The decision as values of JSON."""
        return {
            "traces": [_packed(trace) for trace in self.traces],
            "trials": [asdict(trial) for trial in self.trials],
            "budget": self.budget,
            "before": self.before and self.before.samples,
            "after": self.after and self.after.samples,
            "error": self.error,
            "values": self.values,
        }

    @staticmethod
    def of_json(value: Any, rules: Mapping[str, Subst]) -> Decision | None:
        """The decision of these values, with the rules by name; ``None`` where they are none, as another version of GSL
        may have written them."""
        try:
            return Decision(
                tuple([_unpacked(trace, rules) for trace in value["traces"]]),
                tuple([Trial(**trial) for trial in value["trials"]]),
                value["budget"],
                value["before"] and Timing(tuple(value["before"])),
                value["after"] and Timing(tuple(value["after"])),
                value["error"],
                value["values"],
            )
        except (LookupError, TypeError, ValueError):
            return None


def _packed(trace: Trace) -> dict[str, Any]:
    """The parts of a trace that are needed to repeat it."""
    firings = [[firing.rule, firing.round, firing.at, firing.match] for firing in trace.firings]
    how = {"iterative": trace.iterative, "tidy": trace.tidy, "folds": trace.folds, "folded": trace.folded}
    return {"firings": firings, **how}


def _unpacked(value: Mapping[str, Any], rules: Mapping[str, Subst]) -> Trace:
    firings = [
        Firing(rule, (), (), (), number, at, tuple(map(tuple, match))) for rule, number, at, match in value["firings"]
    ]
    how = {name: value[name] for name in ("iterative", "tidy", "folds", "folded")}
    return Trace(Firings(firings), rules=rules, **how)

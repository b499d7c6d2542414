"""The report of an optimisation: the gain of each rule, and the time that the program takes now."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

from gsl.cost.search import KEPT, Trial
from gsl.cost.table import Costs, amount, columns
from gsl.cost.whole import Timing
from gsl.draw import pre
from gsl.workload import Workload

WIDTH = 52
"""The largest number of characters of a shape in a printed report."""


@dataclass(frozen=True, slots=True, eq=False)
class OptimizeReport:
    """The result of an optimisation: the decisions on the program and on each rule, with their reasons."""

    name: str
    taken: bool
    """True if the new program is the result; otherwise the result is the one that was given."""
    decision: str
    """The reason for the decision."""
    search: str
    trials: tuple[Trial, ...]
    """The gain of each kind of match, and the decision to keep it or not."""
    costs_before: Costs
    """The cost of the old program's calls, by the cost model."""
    costs_after: Costs
    """The cost of the new program's calls, even if that program was not taken."""
    before: Timing | None
    """The time of the whole program; ``None`` where no rule is worth anything, so that nothing was timed."""
    after: Timing | None
    """The time of the whole new program, even if it was not taken."""
    error: float | None
    """The largest difference of an output, relative to its largest magnitude; ``None`` where nothing was run."""
    tolerance: float | None
    threads: int
    seconds: float
    """The seconds that the optimisation took, with the final timing."""
    from_cache: bool
    """True if the decisions were known from an earlier run."""

    @property
    def speedup(self) -> float:
        """The factor by which the result is faster than the given program."""
        return self.before.median / self.after.median if self.taken and self.before and self.after else 1.0

    @property
    def kept(self) -> tuple[Trial, ...]:
        """The kinds of matches that were kept."""
        return tuple(trial for trial in self.trials if trial.verdict == KEPT)

    def rows(self) -> list[tuple[str, str, str, str, str, str]]:
        """A line for each kind of match: rule, shape, times, gain, verdict, reason."""
        unit = self.costs_before.unit
        return [
            (trial.rule, trial.shape, str(trial.times), _signed(trial.gain, unit), trial.verdict, _why(trial))
            for trial in self.trials
        ]

    def __str__(self) -> str:
        lines = [f"{self.name}: {self.decision}"]
        if self.before is not None and self.after is not None:
            for what, timing in (("before", self.before), ("after", self.after)):
                lines.append(f"  {what:6}  {timed(timing)}")
        if self.error is not None:
            lines.append(f"  error   {self.error:.1e} of the largest output")
        rows = [(rule, _cut(shape), *rest) for rule, shape, *rest in self.rows()]
        if rows:
            lines += ["", columns([("rule", "shape", "times", "gain", "", ""), *rows], left=(0, 1, 4, 5))]
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        return pre(str(self))

    def as_json(self) -> dict[str, Any]:
        """The whole report as values of JSON."""
        return {
            "name": self.name, "taken": self.taken, "decision": self.decision, "search": self.search,
            "speedup": self.speedup, "error": self.error, "tolerance": self.tolerance, "threads": self.threads,
            "seconds": self.seconds, "from_cache": self.from_cache,
            "before": _json_of(self.before), "after": _json_of(self.after),
            "cost": {
                side: {"total": costs.total, "unit": costs.unit, "model": costs.model}
                for side, costs in (("before", self.costs_before), ("after", self.costs_after))
            },
            "rules": [
                {"rule": t.rule, "shape": t.shape, "times": t.times, "gain": t.gain, "verdict": t.verdict,
                 "why": t.why, "error": t.error}
                for t in self.trials
            ],
        }  # fmt: skip


class Optimized(NamedTuple):
    """A program and how it came about; unpacks as the two."""

    workload: Workload
    report: OptimizeReport


def timed(timing: Timing) -> str:
    """A time with its spread, as text."""
    return f"{amount(timing.median, 's')} ± {amount(timing.spread, 's')} ({len(timing.samples)} rounds)"


def _json_of(timing: Timing | None) -> dict[str, Any] | None:
    if timing is None:
        return None
    return {"median": timing.median, "spread": timing.spread, "rounds": len(timing.samples)}


def _signed(gain: float | None, unit: str) -> str:
    if gain is None:
        return ""
    return ("+" if gain > 0 else "-" if gain < 0 else "") + amount(abs(gain), unit)


def _why(trial: Trial) -> str:
    return trial.why if trial.error is None else f"{trial.why} (error {trial.error:.1e})"


def _cut(text: str) -> str:
    return text if len(text) <= WIDTH else f"{text[: WIDTH - 1]}…"

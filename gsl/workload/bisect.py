"""The search for the step of a trace that introduced a difference."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from gsl.errors import ReplayError, WorkloadError
from gsl.rewrite import Trace
from gsl.rewrite.trace import Firing

if TYPE_CHECKING:
    from gsl.workload.workload import Workload


@dataclass(frozen=True, slots=True)
class Culprit:
    """The first step of a trace after which a workload differs. Steps count from 1."""

    step: int
    steps: int
    firing: Firing

    def __str__(self) -> str:
        return f"introduced by step {self.step} of {self.steps}: {self.firing}"


def culprit(first: Workload, trace: Trace, differs: Callable[[Workload], bool]) -> Culprit | None:
    """The step of the trace behind which the workload differs, and before which it does not; ``None`` if the whole
    trace makes no difference.

    Replays about log2(steps) beginnings of the trace. Raises WorkloadError for a trace of another workload.
    """

    def after(steps: int) -> bool:
        try:
            return differs(trace.replay(first, steps=steps))
        except ReplayError as error:
            raise WorkloadError(f"the trace was not made on {first.name}: {error}") from error

    good, bad = 0, len(trace.firings)
    if bad == 0 or not after(bad):
        return None
    while bad - good > 1:
        middle = (good + bad) // 2
        good, bad = (good, middle) if after(middle) else (middle, bad)
    return Culprit(bad, len(trace.firings), trace.firings[bad - 1])

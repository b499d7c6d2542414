"""The interface of a search for the best program that rules can make, and the trials that it reports."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Protocol

from gsl.cost.space import Candidate, Clock, Kind, Progress, Space

KEPT, DROPPED = "kept", "dropped"


@dataclass(frozen=True, slots=True)
class Trial:
    """The result of trying a kind of match, and the reason."""

    rule: str = ""
    shape: str = ""
    times: int = 0
    gain: float | None = None
    """The cost that the program has more without it; ``None`` where that was not looked at."""
    verdict: str = KEPT
    why: str = ""
    error: float | None = None
    """The error of the whole program that the kind alone brings; only for approximate rules."""

    @staticmethod
    def of(loss: float, dropped: bool, margin: float) -> Trial:
        """The trial without the kind: the program costs ``loss`` less, and ``dropped`` tells if that decides against
        the kind."""
        if dropped:
            why = "the program is cheaper without" if loss > margin else "it gains nothing, with more calls"
        else:
            why = "it pays" if -loss > margin else "it costs nothing, or lets others match"
        return Trial(gain=-loss, verdict=DROPPED if dropped else KEPT, why=why)

    @staticmethod
    def untried() -> Trial:
        """The trial of a kind for which the time did not suffice."""
        return Trial(why="not tried alone: the budget was spent")

    def at(self, kind: Kind, times: int, kept: bool, *, alone: bool) -> Trial:
        """The same of one kind. A gain that several kinds have together is not that of each."""
        trial = replace(self, rule=kind.rule, shape=kind.shape, times=times, gain=self.gain if alone else None)
        if kept == (self.verdict == KEPT):
            return trial if alone else replace(trial, why=f"{trial.why} (all shapes of the rule together)")
        if kept:
            return replace(trial, verdict=KEPT, why="it pays now that others were dropped")
        return replace(trial, verdict=DROPPED, gain=None, why="it does not match without what was dropped")


@dataclass(frozen=True, slots=True, eq=False)
class Found:
    """The best program of a search, which may be the one that it began with, and the trials."""

    best: Candidate
    trials: tuple[Trial, ...]
    finished: bool = True
    """False if there was more to look at when the time was over."""

    def with_best(self, best: Candidate) -> Found:
        """The same with another program as the best, which is faster as a whole, and the trials changed to that."""
        if best is self.best:
            return self
        rewritten = {(kind.rule, kind.shape): times for kind, times in best.fired.items()}
        known = {(trial.rule, trial.shape): trial for trial in self.trials}
        for key in dict.fromkeys((*known, *rewritten)):
            before = known.get(key)
            if before is None:
                before = Trial(*key, rewritten[key], verdict=DROPPED)
            is_kept = key in rewritten
            if is_kept != (before.verdict == KEPT):
                why = f"the whole program is faster {'with' if is_kept else 'without'} it"
                known[key] = replace(before, gain=None, verdict=KEPT if is_kept else DROPPED, why=why)
        return Found(best, tuple(known.values()), self.finished)


class Search(Protocol):
    """A way to look for the best program."""

    @property
    def name(self) -> str:
        """The name of the search in reports, which also tells its decisions from those of others."""

    def run(self, space: Space, clock: Clock, progress: Progress) -> Found:
        """The best program that was found in time. It is never costlier than the one of the space."""

"""What a search is: how it looks for the best program that rules can make, and what it tells of it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Protocol

from gsl.cost.kinds import Kind
from gsl.cost.space import Candidate, Clock, Progress, Space

KEPT, DROPPED = "kept", "dropped"


@dataclass(frozen=True, slots=True)
class Trial:
    """What became of a kind of match, and why."""

    rule: str = ""
    shape: str = ""
    times: int = 0
    gain: float | None = None
    """What the program costs more without it; ``None`` where that was not looked at."""
    verdict: str = KEPT
    why: str = ""
    error: float | None = None
    """The error of the whole program that it alone brings; only of what is approximate."""

    @staticmethod
    def of(loss: float, dropped: bool, margin: float) -> Trial:
        """What was found without it: the program costs less by so much, and whether that decides against it."""
        if dropped:
            why = "the program is cheaper without" if loss > margin else "it gains nothing, with more calls"
        else:
            why = "it pays" if -loss > margin else "it costs nothing, or lets others match"
        return Trial(gain=-loss, verdict=DROPPED if dropped else KEPT, why=why)

    @staticmethod
    def untried() -> Trial:
        """What the time did not suffice for."""
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
    """The best program of a search, which may be the one that it began with, and what was tried."""

    best: Candidate
    trials: tuple[Trial, ...]


class Search(Protocol):
    """A way to look for the best program."""

    @property
    def name(self) -> str:
        """What it is called in reports, and what tells its decisions from those of others."""

    def run(self, space: Space, clock: Clock, progress: Progress) -> Found:
        """The best program that was found in time. It is never costlier than the one of the space."""

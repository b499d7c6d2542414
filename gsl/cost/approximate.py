"""Approximate rules: those kinds of matches that gain most for the error that they bring."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from gsl.cost.greedy import CostDifference
from gsl.cost.space import DROPPED, KEPT, Candidate, Choice, Clock, Found, Kind, Space, Trial
from gsl.cost.whole import TimedInputs, error
from gsl.rewrite.passes import Progress


@dataclass(frozen=True, slots=True)
class _Offer:
    """The program of a kind alone, what it gains, and the error that it brings."""

    kind: Kind
    alone: Candidate
    times: int
    gain: float
    error: float


def approximated(
    space: Space, found: Found, tolerance: float, inputs: Sequence[TimedInputs], clock: Clock, progress: Progress
) -> Found:
    """The best program with approximate rules whose error on the inputs is within the tolerance.

    If that of all kinds together is, and they pay, all are taken that pay. Otherwise they are taken in the order of
    gain per error; the error is that of the whole program with all that was taken, so one that brings too much with
    those before it is left, and the next one is looked at.
    """
    base = found.best if found.best.choice is not None else space.at(Choice())
    choice = base.choice
    assert choice is not None
    everything = space.at(choice.approximating(None))
    kinds = [kind for kind in everything.fired if space.rules[kind.rule].approximate]
    if kinds and everything.costs.total < found.best.costs.total:
        progress("with all approximate rules")
        whole = error(everything.workload, inputs, warm=True)
        if whole <= tolerance:
            best, together = _paying(space, everything, kinds, clock, whole)
            return Found(best, (*found.trials, *together), found.finished)
    offers, trials = _offers(space, base, everything, kinds, inputs, clock, progress)
    best, taken = found.best, list[Kind]()
    for offer in sorted(offers, key=lambda offer: -offer.gain / max(offer.error, 1e-12)):
        trial = Trial(offer.kind.rule, offer.kind.shape, offer.times, offer.gain, error=offer.error)
        if offer.error > tolerance:
            trials.append(replace(trial, verdict=DROPPED, why=f"its error is above the tolerance of {tolerance:g}"))
            continue
        if taken and clock.left <= 0:
            trials.append(replace(trial, verdict=DROPPED, why="not tried: the budget was spent"))
            continue
        candidate = space.at(choice.approximating([*taken, offer.kind])) if taken else offer.alone
        whole = error(candidate.workload, inputs, warm=True) if taken else offer.error
        if whole <= tolerance and candidate.costs.total < best.costs.total:
            taken.append(offer.kind)
            best = candidate
            trials.append(replace(trial, verdict=KEPT, why=f"within the tolerance: {whole:.1g} in all"))
        else:
            is_within = whole <= tolerance
            why = "it gains nothing beside the others" if is_within else f"the error would be {whole:.1g} in all"
            trials.append(replace(trial, verdict=DROPPED, why=why))
    return Found(best, (*found.trials, *trials), found.finished)


def _offers(
    space: Space, base: Candidate, everything: Candidate, kinds: Sequence[Kind], inputs: Sequence[TimedInputs],
    clock: Clock, progress: Progress,
) -> tuple[list[_Offer], list[Trial]]:  # fmt: skip
    """The kinds that pay alone, and the trials of the others."""
    assert base.choice is not None
    offers, trials = list[_Offer](), list[Trial]()
    for kind in kinds:
        times = everything.fired[kind]
        trial = Trial(kind.rule, kind.shape, times, verdict=DROPPED)
        if clock.left <= 0:
            trials.append(replace(trial, why="not tried: the budget was spent"))
            continue
        progress(f"with {kind}")
        alone = space.at(base.choice.approximating([kind]))
        difference = CostDifference.of(base.costs, alone.costs, space.model.noise)
        if not difference.pays or difference.gain <= 0:
            trials.append(replace(trial, gain=difference.gain, why="it does not pay"))
            continue
        brought = error(alone.workload, inputs, warm=True)
        offers.append(_Offer(kind, alone, times, difference.gain, brought))
    return offers, trials


def _paying(
    space: Space, everything: Candidate, kinds: Sequence[Kind], clock: Clock, whole: float
) -> tuple[Candidate, list[Trial]]:
    """The program that is left of one with these approximate kinds without those that do not pay, and the trials."""
    best, taken, trials = everything, list(kinds), list[Trial]()
    for kind in kinds:
        why, own = f"within the tolerance: {whole:.1g} in all", whole if len(kinds) == 1 else None
        trial = Trial(kind.rule, kind.shape, everything.fired[kind], why=why, error=own)
        if clock.left > 0 and best.choice is not None:
            rest = [other for other in taken if other is not kind]
            without = space.at(best.choice.approximating(rest))
            difference = CostDifference.of(best.costs, without.costs, space.model.noise)
            trial = replace(trial, gain=-difference.gain)
            if difference.pays:
                best, taken = without, rest
                trial = replace(trial, verdict=DROPPED, why="it does not pay")
        trials.append(trial)
    return best, trials

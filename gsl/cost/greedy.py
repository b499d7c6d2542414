"""The greedy searches: all rules are applied, and rewrites that do not pay are taken back, in large parts first.

A rule that gains nothing itself, but makes others match, is taken back with a loss, because the others do not match any
more; so it stays. Parts are whole stages, then rules, then kinds of matches.

Of approximate rules, those kinds of matches are kept that gain most for the error that they bring.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from gsl.cost.space import KEPT, Candidate, Choice, Clock, Found, Kind, Space, Trial
from gsl.cost.table import Costs
from gsl.cost.whole import TimedInputs, error
from gsl.rewrite.passes import Progress

FEW = 0.002
"""Kinds of a rule are looked at one by one where it changes at least this share of the whole cost."""


@dataclass(frozen=True, slots=True)
class CostDifference:
    """The cost that one program has more than another one, and the part of it that may be chance."""

    gain: float
    margin: float
    calls: int
    """The number of calls that it has more."""

    @staticmethod
    def of(before: Costs, after: Costs, noise: float) -> CostDifference:
        """The gain of going from one program to the other."""
        changed = _cost_of(before, after) + _cost_of(after, before)
        return CostDifference(before.total - after.total, noise * changed, len(before) - len(after))

    @property
    def pays(self) -> bool:
        """True if the second program is the better one: cheaper by more than chance, or as cheap with fewer calls."""
        return self.gain > self.margin or (abs(self.gain) <= self.margin and self.calls > 0)


def _cost_of(costs: Costs, others: Costs) -> float:
    """The cost of the calls of a program that another one does not have."""
    left = Counter(call.key for call in others)
    total = 0.0
    for call in costs:
        if left[call.key] > 0:
            left[call.key] -= 1
        else:
            total += call.value
    return total


class Greedy:
    """Applies all rules, and takes back the rewrites that do not pay."""

    name = "greedy"

    def run(self, space: Space, clock: Clock, progress: Progress) -> Found:
        """The best program that was found in time, and the trials that led to it."""
        return _Run(space, clock, progress).found()


class _Run:
    def __init__(self, space: Space, clock: Clock, progress: Progress) -> None:
        self.space = space
        self.clock = clock
        self.progress = progress
        self.noise = space.model.noise
        self.trials: dict[tuple[str, str], Trial] = {}
        self.seen: dict[Kind, int] = {}
        """The kinds that were rewritten in one of the programs that were the best so far, and how often."""
        self._take(space.at(Choice()))

    def _take(self, candidate: Candidate) -> None:
        """Go on from a program."""
        self.current = candidate
        self.seen.update(candidate.fired)

    def found(self) -> Found:
        everything = self.current
        for names in self._stages(everything):
            self._try_without(names)
        while True:
            new = [[name] for name in self._fired(self.current) if (name, "") not in self.trials]
            kinds = [] if new else list(self._kinds())
            if self.clock.left <= 0 or not (new or kinds):
                break
            for names in new:
                self._try_without(names)
            for kind in kinds:
                self._try_kind(kind)
        for name in self._fired(everything):
            if name in self._choice.rules_out and self.clock.left > 0:
                self._put_back(name)
        original = self.space.original
        best = self.current if self.current.costs.total < original.costs.total else original
        return Found(best, tuple(self._rows(best)))

    @property
    def _choice(self) -> Choice:
        assert self.current.choice is not None
        return self.current.choice

    def _stages(self, everything: Candidate) -> list[list[str]]:
        """The rules of each stage of which some fired, the last stage first."""
        fired = set(self._fired(everything))
        parts = [[rule.name for rule in stage if rule.name in fired] for stage in self.space.stages]
        parts = [names for names in parts if names]
        return [names for names in reversed(parts) if len(names) > 1] if len(parts) > 1 else []

    def _fired(self, candidate: Candidate) -> list[str]:
        names = {kind.rule for kind in candidate.fired}
        return [name for name in self.space.rules if name in names]

    def _try(self, what: str, choice: Choice) -> CostDifference:
        """The gain of another choice, which is taken if it pays."""
        self.progress(what)
        candidate = self.space.at(choice)
        difference = CostDifference.of(self.current.costs, candidate.costs, self.noise)
        if difference.pays:
            self._take(candidate)
        return difference

    def _try_without(self, names: Sequence[str]) -> None:
        """Take back some rules, for good if that pays."""
        if self._choice.rules_out.issuperset(names) or self.clock.left <= 0:
            return
        found = self._try(f"without {', '.join(names)}", self._choice.without_rules(names))
        if found.pays or len(names) == 1:
            self.trials.update({(name, ""): Trial.of(found.gain, found.pays, found.margin) for name in names})

    def _kinds(self) -> Iterator[Kind]:
        """The kinds of those rules that do much, and differ in their matches; the most frequent ones first."""
        total = self.current.costs.total
        for name in self._fired(self.current):
            kinds = [kind for kind in self.current.fired if kind.rule == name]
            if len(kinds) > 1 and self.clock.left > 0:
                without = self.space.at(self._choice.without_rules([name]))
                changed = _cost_of(self.current.costs, without.costs) + _cost_of(without.costs, self.current.costs)
                if changed >= FEW * total:
                    kinds = [kind for kind in kinds if (kind.rule, kind.calls) not in self.trials]
                    yield from sorted(kinds, key=lambda kind: -self.current.fired[kind])

    def _try_kind(self, kind: Kind) -> None:
        """Take back the rewrites of a kind, for good if that pays."""
        if kind not in self.current.fired or self.clock.left <= 0:
            return
        found = self._try(f"without {kind}", self._choice.without(kind))
        self.trials[kind.rule, kind.calls] = Trial.of(found.gain, found.pays, found.margin)

    def _put_back(self, name: str) -> None:
        """Take a rule again that was taken back, perhaps with others, if it pays now."""
        found = self._try(f"the rule {name} again", self._choice.with_rule(name))
        self.trials[name, ""] = Trial.of(-found.gain, not found.pays, found.margin)

    def _rows(self, best: Candidate) -> Iterator[Trial]:
        """The result of the trial of each kind of match."""
        for name in self.space.rules:
            kinds = [kind for kind in self.seen if kind.rule == name]
            for kind in kinds:
                own = self.trials.get((name, kind.calls))
                trial = (own or self.trials.get((name, "")) or Trial.untried()).at(
                    kind, self.seen[kind], kind in self.current.fired, alone=own is not None or len(kinds) == 1
                )
                if best is not self.current and trial.verdict == KEPT:
                    trial = trial.dropped("all together are not cheaper than the program was")
                yield trial


# Approximate rules


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
    those before it is left, and the next one is looked at. Then come the kinds that match where others were left.
    """
    base = found.best if found.best.choice is not None else space.at(Choice())
    choice = base.choice
    assert choice is not None
    everything = space.at(choice.approximating(None))
    kinds = _approximate(space, everything)
    if kinds and everything.costs.total < found.best.costs.total:
        progress("with all approximate rules")
        whole = error(everything.workload, inputs, warm=True)
        if whole <= tolerance:
            best, together = _paying(space, everything, kinds, clock, whole)
            return Found(best, (*found.trials, *together), found.finished)
    best, taken, trials = found.best, list[Kind](), list[Trial]()
    while kinds:
        offers, dropped = _offers(space, base, everything, kinds, inputs, clock, progress)
        best, tried = _within(tolerance, space, choice, best, taken, offers, inputs, clock)
        trials += [*dropped, *tried]
        # Where a kind was left, another rule may match, of a smaller error.
        choice = replace(choice, kinds_out=choice.kinds_out.union(kinds).difference(taken))
        everything = space.at(choice.approximating(None)) if clock.left > 0 else base
        kinds = [kind for kind in _approximate(space, everything) if kind not in taken]
    return Found(best, (*found.trials, *trials), found.finished)


def _within(
    tolerance: float, space: Space, choice: Choice, best: Candidate, taken: list[Kind], offers: Iterable[_Offer],
    inputs: Sequence[TimedInputs], clock: Clock,
) -> tuple[Candidate, list[Trial]]:  # fmt: skip
    """The best program with those kinds of the offers that the tolerance allows, which are added to what was taken, and
    the trials."""
    trials = []
    for offer in sorted(offers, key=lambda offer: -offer.gain / max(offer.error, 1e-12)):
        trial = Trial(offer.kind.rule, offer.kind.shape, offer.times, offer.gain, error=offer.error)
        if offer.error > tolerance:
            trials.append(trial.dropped(f"its error is above the tolerance of {tolerance:g}"))
            continue
        if taken and clock.left <= 0:
            trials.append(trial.dropped("not tried: the budget was spent"))
            continue
        candidate = space.at(choice.approximating([*taken, offer.kind])) if taken else offer.alone
        whole = error(candidate.workload, inputs, warm=True) if taken else offer.error
        if whole <= tolerance and candidate.costs.total < best.costs.total:
            taken.append(offer.kind)
            best = candidate
            trials.append(replace(trial, why=f"within the tolerance: {whole:.1g} in all"))
        else:
            is_within = whole <= tolerance
            why = "it gains nothing beside the others" if is_within else f"the error would be {whole:.1g} in all"
            trials.append(trial.dropped(why))
    return best, trials


def _approximate(space: Space, candidate: Candidate) -> list[Kind]:
    """The kinds of approximate rules that made a program."""
    return [kind for kind in candidate.fired if space.rules[kind.rule].approximate]


def _offers(
    space: Space, base: Candidate, everything: Candidate, kinds: Sequence[Kind], inputs: Sequence[TimedInputs],
    clock: Clock, progress: Progress,
) -> tuple[list[_Offer], list[Trial]]:  # fmt: skip
    """The kinds that pay alone, and the trials of the others."""
    assert base.choice is not None
    offers, trials = list[_Offer](), list[Trial]()
    for kind in kinds:
        times = everything.fired[kind]
        trial = Trial(kind.rule, kind.shape, times)
        if clock.left <= 0:
            trials.append(trial.dropped("not tried: the budget was spent"))
            continue
        progress(f"with {kind}")
        alone = space.at(base.choice.approximating([kind]))
        difference = CostDifference.of(base.costs, alone.costs, space.model.noise)
        if not difference.pays or difference.gain <= 0:
            trials.append(replace(trial, gain=difference.gain).dropped("it does not pay"))
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
                trial = trial.dropped("it does not pay")
        trials.append(trial)
    return best, trials

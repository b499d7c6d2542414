"""Optimising a program: of some rules, those matches are rewritten that pay on this machine."""

from __future__ import annotations

import hashlib
import math
import os
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from gsl.cache import Store
from gsl.cost.backtrack import Backtrack
from gsl.cost.decision import Decision
from gsl.cost.greedy import Greedy, approximated
from gsl.cost.machine import CaptureError, devices, machine, threads_of
from gsl.cost.model import Compiled, Kernels, Measured, Model, WantedCost, model_of
from gsl.cost.report import Optimized, OptimizeReport
from gsl.cost.space import Candidate, Choice, Clock, Found, Search, Space, undone
from gsl.cost.table import Costs
from gsl.cost.whole import RUNS, CompileError, RunMode, TimedInputs, Timing, checksum, error, in_turns, is_faster
from gsl.cost.work import ExampleSizes
from gsl.draw import hide_nothing
from gsl.errors import ReplayError, WorkloadError, checked, nearest, require
from gsl.front.base import Stepped
from gsl.graph import CONST, PARAM
from gsl.graph.text import text
from gsl.rewrite import RuleSet, Subst
from gsl.rewrite.fingerprint import fingerprint
from gsl.rewrite.passes import Progress
from gsl.workload import Workload

RulesOrSets = Subst | RuleSet | Iterable[Subst | RuleSet]

STAGES = ("NORMAL", "IDIOMS", "HALVES", "OPTIMISING")
"""The rule sets of the book in the order in which they are applied."""
STAGES_ON = {"cpu": ("CPU", "APPROXIMATE"), "cuda": ("GPU",)}
"""Those that come then, by the type of the device on which a program lies."""


def default_rules(device: str, *, is_quantised: bool = False) -> tuple[RuleSet, ...]:
    """The stages of the rule book for a type of devices, as torch names them; for a quantised program on a CPU, those
    for its layers go first."""
    import gsl.rules as book

    names = (*["QUANTISED"] * (device == "cpu" and is_quantised), *STAGES, *STAGES_ON.get(device, ()))
    sets = [getattr(book, name) for name in names]
    return stages_of([rules if isinstance(rules, RuleSet) else RuleSet(rules) for rules in sets])


def stages_of(rules: RulesOrSets) -> tuple[RuleSet, ...]:
    """Rules as stages: a rule, or rules in one list, are one stage; of several sets, each is one.

    WorkloadError for what is neither, and for two rules of one name.
    """
    if isinstance(rules, Subst):
        return (RuleSet([rules]),)
    if isinstance(rules, RuleSet):
        return (rules,)
    items = list(rules) if isinstance(rules, Iterable) else [rules]
    for item in items:
        if not isinstance(item, (Subst, RuleSet)):
            raise WorkloadError(
                "rules= takes a rule, a RuleSet, a list of rules, or a list of RuleSets that are applied one after the "
                f"other; got {item!r} of type {type(item).__name__}"
            )
    plain = [item for item in items if isinstance(item, Subst)]
    if len(plain) == len(items):
        found: tuple[RuleSet, ...] = (RuleSet(plain),) if plain else ()
    else:
        found = tuple(item if isinstance(item, RuleSet) else RuleSet([item]) for item in items)
    by_name: dict[str, Subst] = {}
    for rule in (rule for stage in found for rule in stage):
        other = by_name.setdefault(rule.name, rule)
        if other is not rule:
            raise WorkloadError(f"two rules are named {rule.name!r}: {other.title} and {rule.title}; rename one")
    return found


SEARCHES: Mapping[str, Search] = {search.name: search for search in (Greedy(), Backtrack())}
"""The searches by name."""
EXACT = 0.6
"""The share of the time of the search that is for rules that are exact, where there are also others to look at."""
FINAL = 0.25
"""The share of the budget that is for the end, where whole programs are timed and compared."""
TIMING = 2 / 3
"""The share of that which is for timing."""
FINALISTS = 5
"""The largest number of new programs that are timed as a whole."""
IN_EIGHT_BITS = 0.02
"""The tolerance for what rules make of quantised layers, unless one is given: another order of the same sums may round
a number in eight bits to the next one, which is up to 1/127 of the largest."""


@checked(WorkloadError)
def optimize(
    model: Any,
    inputs: Any = None,
    *,
    rules: RulesOrSets | None = None,
    cost: WantedCost = "measured",
    budget: float = 60.0,
    tolerance: float | None = None,
    calibration: Sequence[Any] | None = None,
    search: str | Search = "greedy",
    threads: int | None = None,
    progress: Progress | None = None,
) -> Optimized:
    """The program that is left when of some rules those matches are rewritten that pay here, and a report.

    ``model`` is a workload or anything that one is made of, or the path of a model of ONNX; a plain ``torch.nn.Module``
    is exported with ``inputs``, on which all others are timed too (the example inputs, or random ones, unless given).
    ``rules`` are a set of rules, or several that are applied one after the other; the rule book's unless given.
    ``cost`` is that of ``Workload.cost``, and ``threads`` those of torch. At the end both whole programs are run in
    turns, with ``"kernels"`` as CUDA graphs, with ``"compiled"`` as ``torch.compile`` makes them: the new one is the
    result if its numbers agree, and it is faster in the median and by more than chance (by the ranks of the times).
    Otherwise it is the program that was given. Where ``cost`` is a function, that decides, and nothing is timed.

    Rules that are ``approximate`` are used only with a ``tolerance``: the largest error of an output, relative to the
    largest magnitude of that output, on the inputs or on all those of ``calibration``. So are the numbers compared
    where rules for quantised layers fired, with 0.02 unless it is given. ``budget`` is in seconds: when it is spent, no
    more is looked at. ``search`` is a name or a strategy, ``progress`` is told what is being done.

    WorkloadError for arguments that do not fit.
    """
    start = time.perf_counter()
    if not isinstance(budget, (int, float)) or isinstance(budget, bool) or not budget > 0:
        raise WorkloadError(f"budget= is a number of seconds, more than 0, got {budget!r}")
    if tolerance is not None and not (isinstance(tolerance, (int, float)) and 0 < tolerance < 1):
        raise WorkloadError(f"tolerance= is a relative error between 0 and 1, got {tolerance!r}")
    if isinstance(calibration, Mapping) or not isinstance(calibration, (Iterable, type(None))):
        raise WorkloadError(f"calibration= is a list of inputs, got {calibration!r:.60}")
    require("torch")
    workload = _workload(model, inputs)
    if inputs is not None and workload.example_inputs is None and hasattr(workload.program, "with_example_inputs"):
        workload = workload.with_example_inputs(inputs)
    given = None if workload is not model and _is_module(model) else inputs
    with threads_of(threads) as number:
        run = _Optimization(
            workload,
            stages_of(rules) if rules is not None else _rules_for(workload),
            model_of(cost, threads=number, store=(store := Store())),
            _search(search),
            TimedInputs(workload, given),
            [TimedInputs(workload, values) for values in calibration or ()],
            Clock(float(budget)),
            progress or (lambda what: None),
            tolerance,
            number,
            store,
        )
        return run.done(start)


@dataclass
class _Optimization:
    """One call of :func:`optimize`."""

    workload: Workload
    stages: tuple[RuleSet, ...]
    model: Model
    search: Search
    inputs: TimedInputs
    calibration: list[TimedInputs]
    clock: Clock
    progress: Progress
    tolerance: float | None
    threads: int
    store: Store
    folded: dict[Candidate, Workload] = field(default_factory=dict)
    """The whole programs of those that were asked for."""
    making: float = 0.0
    """The seconds that it takes to compile a whole program."""

    def done(self, start: float) -> Optimized:
        """The result and its report."""
        space = Space(self.base, self.stages, self.model)
        self._check()
        known = self._known(space)
        found = None if known is None else self._again(known, space)
        end = None if found is None else self._end([found.best], known)
        if found is None or end is None or end.is_wrong:  # of another program, or there is none
            known, found = None, self._found(space)
            end = self._end(self._finalists(space, found.best), None)
            if end.taken or found.best is not space.original:
                found = found.with_best(end.best, end.instead)
        if known is None or (end.taken and known.after is None):
            self._keep(found, end)
        new = self._whole(found.best)
        with self._measuring_for(0.0):
            before = self._before(space)
            costs = found.best.costs if new is found.best.workload else space.costs(new)
        report = OptimizeReport(
            self.workload.name, end.taken, end.reason, self.search.name,
            found.trials if end.taken else undone(found.trials),
            before, costs, end.before, end.after, end.error, self.tolerance, self.threads,
            time.perf_counter() - start, known is not None,
        )  # fmt: skip
        return Optimized(new if end.taken else self.workload, report)

    @cached_property
    def base(self) -> Workload:
        """The program from which the search starts: a folded one, since rules ask for weights; where rules may ask for
        what is computed from them, as those for quantised layers do, the program that was given."""
        return self.workload if _is_quantised(self.workload) else _folded(self.workload)

    def _before(self, space: Space) -> Costs:
        """The costs of the program that was given."""
        return space.original.costs if self.base is self.workload else space.costs(self.workload)

    def _whole(self, candidate: Candidate) -> Workload:
        """The program of a candidate as it runs."""
        if candidate not in self.folded:
            self.folded[candidate] = _folded(candidate.workload)
        return self.folded[candidate]

    @property
    def _mode(self) -> RunMode:
        """The way in which whole programs run when they are timed."""
        kinds = {Kernels: RunMode.CAPTURED, Compiled: RunMode.COMPILED}
        return next((mode for kind, mode in kinds.items() if isinstance(self.model, kind)), RunMode.PLAIN)

    def _check(self) -> None:
        """WorkloadError for a program that the model does not know, or that can't be captured, before any time is spent
        on it."""
        if isinstance(self.model, (Kernels, Compiled)):
            self.model.check(self.workload)
        if self._mode is RunMode.CAPTURED:
            self._run_once()

    def _run_once(self) -> None:
        """Run the old program as it will be timed. WorkloadError where that is not possible."""
        try:
            in_turns([self.workload], self.inputs, 0.0, self._mode)
        except (CaptureError, CompileError) as error:
            raise WorkloadError(f"{self.workload.name} can't be timed: {error}; use cost='measured'") from error

    def _compile(self) -> None:
        """Compile the old program, which takes as long as it takes: the budget is for what comes then."""
        self.progress("compiling the program")
        start = time.perf_counter()
        self._run_once()
        self.making = time.perf_counter() - start
        self.clock = Clock(self.clock.seconds)

    def _found(self, space: Space) -> Found:
        """The best program by the cost model."""
        if self._mode is RunMode.COMPILED:
            self._compile()
        final = FINAL * self.clock.seconds
        with self._measuring_for(self.clock.left - final):
            final = max(final, self._least(self._before(space)))
        search_for = Clock(self.clock.left - final)
        with self._measuring_for(search_for.left):
            exact = search_for if self.tolerance is None else Clock(EXACT * search_for.left)
            found = self.search.run(space, exact, self.progress)
            if not isinstance(found, Found):
                raise WorkloadError(f"the search {self.search.name!r} should return a gsl.cost.Found, got {found!r}")
            if self.tolerance is not None:
                inputs = self.calibration or [self.inputs]
                found = approximated(space, found, self.tolerance, inputs, search_for, self.progress)
        return found if search_for.left > 0 else replace(found, finished=False)

    def _finalists(self, space: Space, best: Candidate) -> list[Candidate]:
        """The programs that are timed as a whole, the best one by the cost of its calls first.

        Measured costs are those of calls alone, which may be others in a program. So the programs of all rules, and of
        all but those of one stage, are timed too, as far as the time suffices; before them the best one without rules
        that are approximate, which stays if their error turns out to be too large.
        """
        found = [best]
        if best.choice is None or not isinstance(self.model, Measured):
            return found
        whole = RUNS * space.original.costs.total + self.making
        room = min(FINALISTS, int(TIMING * self.clock.left / whole) - 3 if whole else FINALISTS)
        exact, everything = best.choice.approximating(()), Choice(approximate=best.choice.approximate)
        stages = [[rule.name for rule in stage] for stage in reversed(space.stages)]
        with self._measuring_for(0.0):
            for choice in (exact, everything, *map(everything.without_rules, stages)):
                if len(found) >= room or self.clock.left < FINAL * self.clock.seconds / 2:
                    break
                candidate = space.at(choice)
                if candidate.fired and all(candidate.fired != other.fired for other in found):
                    found.append(candidate)
        return found

    def _least(self, costs: Costs) -> float:
        """The seconds that the end takes at least, if the new program is as slow as one of these costs."""
        comparing = 1 + max(1, len(self.calibration))
        return 2 * (RUNS + comparing) * costs.total if costs.unit == "s" else 0.0

    def _keep(self, found: Found, end: _End) -> None:
        """Keep what the next run on an equal program needs to know."""
        best = found.best
        if self._key is None or (best.workload is not self.base and not best.traces):
            return
        decision = Decision(best.traces, found.trials, None if found.finished else self.clock.seconds)
        if end.taken:
            decision = replace(decision, before=end.before, after=end.after, error=end.error, values=self._values)
        self.store.put(decision.as_json(), *self._key)

    @contextmanager
    def _measuring_for(self, seconds: float) -> Iterator[None]:
        """While it lasts, calls are measured for so long; those that are not known by then are estimated."""
        if not isinstance(self.model, Measured):
            yield
            return
        before, self.model.until = self.model.until, time.perf_counter() + seconds
        try:
            yield
        finally:
            self.model.until = before

    def _known(self, space: Space) -> Decision | None:
        """The decision of an earlier run on an equal program, if that had as much time."""
        known = None if self._key is None else Decision.of_json(self.store.get(*self._key), space.rules)
        return known if known is not None and known.serves(self.clock.seconds) else None

    def _again(self, known: Decision, space: Space) -> Found | None:
        """The result of an earlier run; ``None`` if that can't be repeated, as where values of weights differ."""
        self.progress("applying what was decided in an earlier run")
        with self._measuring_for(0.0):
            if not known.traces:
                return Found(space.original, known.trials)
            workload = self.base
            try:
                for trace in known.traces:
                    workload = trace.replay(workload)
            except ReplayError:
                return None
            return Found(Candidate(workload, space.costs(workload), {}, None, known.traces), known.trials)

    @cached_property
    def _values(self) -> int | None:
        """The checksum of the weights and of all inputs."""
        inputs = [value for each in (self.inputs, *self.calibration) for value in each.values]
        return checksum([*self.workload.params.values(), *inputs])

    @cached_property
    def _key(self) -> tuple[object, ...] | None:
        """All that decisions depend on; ``None`` where something has no text of its own."""
        prints = [fingerprint(stage) for stage in self.stages]
        if not self.model.name or not self.search.name or any(text is None for text in prints):
            return None
        graph = text(self.workload.graph, hide=hide_nothing)
        shapes = [str(getattr(value, "shape", value)) for value in self.inputs.values]
        program = hashlib.sha256("\n".join([graph, *shapes]).encode()).hexdigest()
        settings = [self.model.settings] if isinstance(self.model, Compiled) else []
        return (machine(), devices(), self.threads, self.model.name, *settings, self.search.name, self.tolerance,
                len(self.calibration), program, *prints)  # fmt: skip

    def _end(self, finalists: Sequence[Candidate], known: Decision | None) -> _End:
        """The program that is the result, by its numbers and the time that it takes as a whole.

        If it was the faster one in an earlier run, it is not timed again, and not compared again on the same values.
        """
        finalists = [each for each in finalists if self._whole(each) is not self.workload] or finalists[:1]
        best = finalists[0]
        if self._whole(best) is self.workload:
            return _End(best, False, "no rule pays here, so the program is what it was")
        if best.costs.unit != "s":
            return self._end_by_costs(best)
        instead, how = "", self._mode.value
        if known is not None and known.before is not None and known.after is not None:
            is_same = known.values is not None and known.values == self._values
            found = _Compared(best, known.error) if is_same else self._compared(best)
            how, before, after = f"{how}, as an earlier run found", known.before, known.after
        else:
            try:
                before, after, found, instead = self._timed(finalists)
            except (CaptureError, CompileError) as error:
                return _End(best, False, f"of a new program, {error}, so the old one stays")
            except Exception as error:
                failure = f"timing failed with {type(error).__name__}: {error}"
            else:
                failure = ""
            if failure:  # here nothing holds any more what was built
                return self._end_without_times(finalists, known, failure)
        best, wrong = found.program, found.error
        if found.reason:
            reason = f"{found.reason}, so the old program stays"
            return _End(best, False, reason, before, after, wrong, found.reason, is_wrong=True)
        if not is_faster(after, before):
            reason = "the new program is not faster as a whole, so the old one stays"
            return _End(best, False, reason, before, after, wrong)
        return _End(best, True, f"{before.median / after.median:.2f} times faster{how}", before, after, wrong, instead)

    def _end_by_costs(self, best: Candidate) -> _End:
        """The cheapest program by a function of the user's, which need not be about time, if its numbers are right."""
        before, after = (self.model.costs(each).total for each in (self.workload, self._whole(best)))
        if after >= before:
            return _End(best, False, "no rule pays here, so the program is what it was")
        gain = f"cost {before:.4g} -> {after:.4g}"
        try:
            _ = self.inputs.expected
        except Exception as error:
            reason = f"{gain}; not compared, because the old program can't be run: {type(error).__name__}: {error}"
            return _End(best, True, reason)
        running, failure = self._running([best])
        found = self._compared(best) if running else _Compared(best, None, failure)
        if found.reason:
            reason = f"{found.reason}, so the old program stays"
            return _End(best, False, reason, error=found.error, instead=found.reason, is_wrong=True)
        return _End(best, True, gain, error=found.error)

    def _end_without_times(self, finalists: Sequence[Candidate], known: Decision | None, failure: str) -> _End:
        """The result where timing has failed: that of fewer programs, or the old one, if that runs."""
        running, reason = self._running(finalists)
        if len(running) == len(finalists):  # they may have taken too much memory together
            _ = self.inputs.expected  # raises what the old program alone raises
            running, reason = running[:1] if len(running) > 1 else [], failure
        if running:
            return self._end(running, known)
        return _End(finalists[0], False, f"{reason}, so the old program stays", is_wrong=True)

    def _running(self, programs: Sequence[Candidate]) -> tuple[list[Candidate], str]:
        """The programs that can be run, and the reason why the last one of the others can't: a framework may lack a
        kernel."""
        running, failure = [], ""
        for each in programs:
            try:
                self._whole(each).isolated(self.inputs.of(each.workload), 0)
                running.append(each)
            except Exception as error:
                failure = f"the new program can't be run: {type(error).__name__}: {error}"
        return running, failure

    def _timed(self, finalists: Sequence[Candidate]) -> tuple[Timing, Timing, _Compared, str]:
        """The times of the old program and of the new one that is taken, that one, and the reason why it is not the
        fastest one, if it is not.

        The fastest of several owes that to chance, too, so it is timed again beside the old one alone.
        """
        self.progress("timing whole programs in turns")
        seconds = TIMING * min(FINAL * self.clock.seconds, self.clock.left)
        if len(finalists) > 1:
            seconds /= 2
            finalists = self._by_time(finalists, seconds)
        found = self._first_right(finalists)
        programs = [self.workload, self._whole(found[0].program)]
        before, after = in_turns(programs, self.inputs, seconds, self._mode)
        return before, after, *found

    def _by_time(self, finalists: Sequence[Candidate], seconds: float) -> list[Candidate]:
        """Some programs, the fastest one first; the first one stays it if that is not faster by more than chance."""
        finalists, (_, *times) = self._timings(finalists, seconds)
        order = sorted(zip(times, finalists), key=lambda each: each[0].median)
        if not is_faster(order[0][0], times[0]):
            order.sort(key=lambda each: each[1] is not finalists[0])
        return [each for _, each in order]

    def _timings(self, finalists: Sequence[Candidate], seconds: float) -> tuple[Sequence[Candidate], list[Timing]]:
        """The programs that can be compiled, where they have to be, and the times of the old one and of these.
        CompileError if none can."""
        while True:
            programs = [self.workload, *map(self._whole, finalists)]
            try:
                return finalists, in_turns(programs, self.inputs, seconds, self._mode)
            except CompileError as error:
                left = [each for each in finalists if self._whole(each) is not error.workload]
                if not left or len(left) == len(finalists):
                    raise
                finalists = left

    def _first_right(self, programs: Sequence[Candidate]) -> tuple[_Compared, str]:
        """The first program whose numbers agree, or the first one of all; and the reason against that."""
        first = self._compared(programs[0])
        others = map(self._compared, programs[1:] if first.reason else ())
        return next((other for other in others if not other.reason), first), first.reason

    def _compared(self, program: Candidate) -> _Compared:
        new, inputs = self._whole(program), self.calibration or [self.inputs]
        tolerance = _allowed(_used(program), self.tolerance)
        if tolerance is not None:
            wrong = error(new, inputs, warm=True)
            places = ", for outputs are finite in other places, or nowhere" if math.isinf(wrong) else ""
            reason = f"the error of {wrong:.1e} is above the tolerance{places}" if wrong > tolerance else ""
            return _Compared(program, wrong, reason)
        report = self.workload.compare(new, list(self.inputs.values))
        wrong = error(new, inputs)  # by packed weights, for it ran before
        why = [f"{row.name}: {row.reason}" for row in report.failures] or ["there are no outputs"]
        if report.passed and math.isinf(wrong):  # equal infinities, and nothing else
            wrong = 0.0
        return _Compared(program, wrong, "" if report.passed else f"the comparison failed: {why[0]}")


@dataclass(frozen=True, slots=True)
class _Compared:
    """A program whose numbers were compared with those of the old one."""

    program: Candidate
    error: float | None
    reason: str = ""
    """The reason why its error is too large; empty if it is not."""


@dataclass(frozen=True, slots=True)
class _End:
    """The comparison of the whole programs."""

    best: Candidate
    taken: bool
    reason: str
    before: Timing | None = None
    after: Timing | None = None
    error: float | None = None
    instead: str = ""
    """The reason why it is not the program that was the fastest one."""
    is_wrong: bool = False
    """True if the new program computes something else, or can't be run."""


def _used(candidate: Candidate) -> set[Subst]:
    """The rules that made a program."""
    return {trace.rules[firing.rule] for trace in candidate.traces for firing in trace.firings}


_MORE = (1.1, 2**16)
"""A factor, and a number of bytes: by so much, tensors that are computed ahead may take more memory."""


def _folded(workload: Workload) -> Workload:
    """The program in which what depends on weights and literals only is computed ahead, unless what runs programs does
    that itself; on literals only, where the tensors of that take much more memory than before, as the floats of weights
    in eight bits do."""
    if not isinstance(workload.program, Stepped) or workload.program.fuses:
        return workload
    factor, more = _MORE
    for params in (True, False):
        found = workload.fold(params=params)
        if _held(found) <= factor * _held(workload) + more:
            return found
    return workload


def _held(workload: Workload) -> int:
    """The bytes of the weights and literals that a program reads."""
    sizes = ExampleSizes.of(workload)
    return sum(sizes.bytes(node.type) for node in workload.graph.nodes if node.op in (PARAM, CONST) and node.users)


def _allowed(rules: Set[Subst], given: float | None) -> float | None:
    """The largest error that rules may bring, where one is given or they are for quantised layers; ``None`` for the
    tolerances of a comparison."""
    from gsl.rules import QUANTISED

    if not rules.isdisjoint(QUANTISED):
        return given or IN_EIGHT_BITS
    return given if any(rule.approximate for rule in rules) else None


def _search(search: str | Search) -> Search:
    if isinstance(search, str):
        if search not in SEARCHES:
            raise WorkloadError(f"there is no search {search!r}: {nearest(search, SEARCHES)}")
        return SEARCHES[search]
    if isinstance(search, type) or not callable(getattr(search, "run", None)) or not hasattr(search, "name"):
        name = getattr(search, "__name__", "")
        made = f"make one of the class: {name}()" if isinstance(search, type) else "a strategy has a name and run"
        raise WorkloadError(f"search= is one of {', '.join(map(repr, SEARCHES))} or a strategy, got {search!r} of type "
                            f"{type(search).__name__}; {made}")  # fmt: skip
    return search


def _is_module(model: Any) -> bool:
    """True if a model is a module of torch that is not traced yet."""
    import torch

    return isinstance(model, torch.nn.Module) and not isinstance(model, torch.fx.GraphModule)


def _workload(model: Any, inputs: Any) -> Workload:
    """The workload of a model."""
    if isinstance(model, Workload):
        return model
    if isinstance(model, (str, os.PathLike)):
        return Workload.from_onnx(model)
    if not _is_module(model):
        return Workload(model)
    if inputs is None:
        raise WorkloadError(
            f"{type(model).__name__} is exported before it is optimised, which takes inputs: "
            "optimize(model, (example,))"
        )
    if isinstance(inputs, Mapping):
        return Workload.from_torch(model, (), inputs)
    return Workload.from_torch(model, inputs)


def _rules_for(workload: Workload) -> tuple[RuleSet, ...]:
    return default_rules(device_type(workload), is_quantised=_is_quantised(workload))


def _is_quantised(workload: Workload) -> bool:
    return any(str(node.op).startswith("quantized_decomposed") for node in workload.graph.nodes)


def device_type(workload: Workload) -> str:
    """The type of the device on which the weights and inputs of a program lie; that of any other one than the CPU."""
    values = [*workload.params.values(), *(workload.example_inputs or ())]
    types = [str(getattr(getattr(value, "device", None), "type", "cpu")) for value in values]
    return next((type for type in types if type != "cpu"), "cpu")

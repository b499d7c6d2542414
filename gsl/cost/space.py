"""The programs that rules can make of one, each with its cost, and the interface of a search among them."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Protocol

from gsl.cost.model import Model
from gsl.cost.table import Costs
from gsl.draw import hide_defaults
from gsl.errors import WorkloadError
from gsl.graph import CONST, PARAM, Graph, Node, TensorType, op_name
from gsl.graph.text import attribute_texts, is_scalar, value_text
from gsl.match import Match
from gsl.rewrite import RuleSet, Subst, Trace
from gsl.rewrite.apply import RewriteRun, limit_of, on_subject
from gsl.rewrite.cse import frozen
from gsl.rewrite.fold import Evaluate, computed_ahead, is_foldable
from gsl.rewrite.passes import Progress
from gsl.rewrite.termination import Watch
from gsl.rewrite.trace import identity
from gsl.workload import Workload

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

    def dropped(self, why: str) -> Trial:
        """The same, with the decision against the kind."""
        return replace(self, verdict=DROPPED, why=why)

    def at(self, kind: Kind, times: int, kept: bool, *, alone: bool) -> Trial:
        """This trial as that of one kind. The gain of several kinds that were tried together is not that of each."""
        trial = replace(self, rule=kind.rule, shape=kind.shape, times=times, gain=self.gain if alone else None)
        if kept == (self.verdict == KEPT):
            return trial if alone else replace(trial, why=f"{trial.why} (all shapes of the rule together)")
        if kept:
            return replace(trial, verdict=KEPT, why="it pays now that others were dropped")
        return replace(trial, gain=None).dropped("it does not match without what was dropped")


@dataclass(frozen=True, slots=True, eq=False)
class Found:
    """The best program of a search, which may be the one that it began with, and the trials."""

    best: Candidate
    trials: tuple[Trial, ...]
    finished: bool = True
    """False if there was more to look at when the time was over."""

    def __post_init__(self) -> None:
        if not isinstance(self.best, Candidate):
            raise WorkloadError(
                "Found takes the best program first, a gsl.cost.Candidate as space.original and space.at(choice) are, "
                f"got {self.best!r} of type {type(self.best).__name__}"
            )
        if not (isinstance(self.trials, tuple) and all(isinstance(trial, Trial) for trial in self.trials)):
            raise WorkloadError(f"Found takes the trials second, a tuple of gsl.cost.Trial, got {self.trials!r:.200}")

    def with_best(self, best: Candidate, reason: str = "") -> Found:
        """The same with another program as the best, and the trials changed to that: it is faster as a whole, or there
        is this reason against the best one."""
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
                why = reason or f"the whole program is faster {'with' if is_kept else 'without'} it"
                known[key] = replace(before, gain=None, verdict=KEPT if is_kept else DROPPED, why=why)
        return Found(best, tuple(known.values()), self.finished)


def undone(trials: Iterable[Trial]) -> tuple[Trial, ...]:
    """The trials where the old program stays: no kind is kept."""
    return tuple([
        trial.dropped(f"{trial.why}, but the old program stays") if trial.verdict == KEPT else trial for trial in trials
    ])  # fmt: skip


class Search(Protocol):
    """A way to look for the best program."""

    @property
    def name(self) -> str:
        """The name of the search in reports, which also tells its decisions from those of others."""

    def run(self, space: Space, clock: Clock, progress: Progress) -> Found:
        """The best program that was found in time. It is never costlier than the one of the space."""


# ---------------------------------------------------------------- kinds of matches


@dataclass(frozen=True, slots=True)
class Kind:
    """A rule, and the calls that it matched: their operators, attributes and types."""

    rule: str
    calls: str
    shape: str = field(compare=False, default="")
    """The type of the result and the weights, for people."""

    def __str__(self) -> str:
        return f"{self.rule} at {self.shape}"


def kind_of(rule: Subst, match: Match) -> Kind:
    """The kind of a match."""
    inner, outputs = set(match.inner), set(match.outputs)
    nodes = sorted(inner, key=lambda node: node.index)
    return Kind(rule.name, "; ".join(_call(node, inner, outputs) for node in nodes), _shape(match, nodes))


def _call(node: Node, inner: set[Node], outputs: set[Node]) -> str:
    args = [*map(_operand, node.operands), *attribute_texts(node, hide=hide_defaults)]
    kept = "" if node in outputs or inner.issuperset(node.users) else " used elsewhere"
    return f"{op_name(node.op)}({', '.join(args)}){kept}"


def _operand(node: Node) -> str:
    if is_scalar(node):
        return value_text(node.attrs["value"])
    return f"weight {node.type}" if node.op in (PARAM, CONST) else str(node.type)


def _shape(match: Match, nodes: Iterable[Node]) -> str:
    operands = dict.fromkeys(operand for node in nodes for operand in node.operands)
    weights = [str(list(o.type.shape)) for o in operands if o.op == PARAM and isinstance(o.type, TensorType)]
    result = ", ".join(str(output.type) for output in match.outputs[:3])
    large = [text for text in weights if "," in text][:3]
    return f"{result} by weights {', '.join(large)}" if large else result


@dataclass(frozen=True, slots=True)
class Choice:
    """The matches that are rewritten: those of rules that are not left out, of kinds that are not left out.

    Of rules that are approximate, the kinds that were chosen; ``None`` for all.
    """

    rules_out: frozenset[str] = frozenset()
    kinds_out: frozenset[Kind] = frozenset()
    approximate: frozenset[Kind] | None = frozenset()

    def without_rules(self, names: Iterable[str]) -> Choice:
        """This choice without some rules."""
        return replace(self, rules_out=self.rules_out.union(names))

    def without(self, kind: Kind) -> Choice:
        """This choice without a kind."""
        return replace(self, kinds_out=self.kinds_out | {kind})

    def with_rule(self, name: str) -> Choice:
        """This choice with a rule that was left out, and all its kinds."""
        kinds = frozenset(kind for kind in self.kinds_out if kind.rule != name)
        return replace(self, rules_out=self.rules_out - {name}, kinds_out=kinds)

    def approximating(self, kinds: Iterable[Kind] | None) -> Choice:
        """This choice with these approximate kinds, and no others."""
        return replace(self, approximate=None if kinds is None else frozenset(kinds))

    def refused(self, rule: Subst, kind: Kind) -> str | None:
        """The reason why a match is not rewritten; ``None`` if it is."""
        if rule.name in self.rules_out or kind in self.kinds_out:
            return "it does not pay here"
        if rule.approximate and self.approximate is not None and kind not in self.approximate:
            return "it is approximate, and not within the tolerance"
        return None


class MatchKinds:
    """The kinds of the matches that were looked at, by rule and match."""

    def __init__(self, choice: Choice) -> None:
        self.choice = choice
        self._kinds: dict[tuple[str, object], Kind] = {}

    def condition(self, rule: Subst) -> Callable[[Match], bool | str]:
        """The condition that a match of a rule is one of those that are chosen."""

        def chosen(match: Match) -> bool | str:
            kind = kind_of(rule, match)
            self._kinds[rule.name, identity(match)] = kind
            return self.choice.refused(rule, kind) or True

        return chosen

    def __getitem__(self, firing: tuple[str, object]) -> Kind:
        return self._kinds[firing]


# ---------------------------------------------------------------- programs


@dataclass(frozen=True, slots=True, eq=False)
class Candidate:
    """A program that rules made, what it costs, and how often each kind of match was rewritten."""

    workload: Workload
    costs: Costs
    fired: Mapping[Kind, int]
    choice: Choice | None = None
    """The choice that gives this program again; ``None`` where it was found in another way."""
    traces: tuple[Trace, ...] = ()
    """The traces of the rules that made it, one after the other: repeated, they give this program again."""


class Clock:
    """The time that is left."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self._start = time.perf_counter()

    @property
    def spent(self) -> float:
        return time.perf_counter() - self._start

    @property
    def left(self) -> float:
        return self.seconds - self.spent


class Space:
    """The programs that sets of rules, one after the other, make of one; each is made and priced once.

    In every stage the rules of its set are applied until none fires; if one of the sets is tidy, all are. Without
    ``fold``, what depends on weights only is left in the programs; it costs nothing if somebody ``hoists`` it out of
    them later.
    """

    def __init__(
        self, workload: Workload, stages: Sequence[RuleSet], model: Model, *, fold: bool = True, hoists: bool = False
    ) -> None:
        named = [spec for stage in stages for spec in stage.operators]
        self.workload = workload.with_operators(*named) if named else workload
        self.stages = tuple(stages)
        self.model = model
        self.fold = fold
        self.hoists = hoists
        self.rules: dict[str, Subst] = {rule.name: rule for stage in stages for rule in stage}
        self._candidates: dict[Choice, Candidate] = {}
        self._folded: dict[Any, Any] = {}

    @cached_property
    def unchanged(self) -> Choice:
        """The choice of nothing: no rule that is exact, and no kind of those that are not. Nothing is tidied up."""
        return Choice(rules_out=frozenset(rule.name for rule in self.rules.values() if not rule.approximate))

    @cached_property
    def original(self) -> Candidate:
        """The program as it is."""
        return Candidate(self.workload, self.costs(self.workload), {}, self.unchanged)

    def at(self, choice: Choice) -> Candidate:
        """The program of a choice."""
        known = self.original if choice == self.unchanged else self._candidates.get(choice)
        if known is None:
            workload, fired = self.applied(choice)
            same = next((other for other in self._candidates.values() if other.fired == fired), None)
            is_original = workload is self.workload
            costs = self.original.costs if is_original else same.costs if same else self.costs(workload)
            traces = () if is_original else (workload.trace,)
            known = self._candidates[choice] = Candidate(workload, costs, fired, choice, traces)
        return known

    def after(self, candidate: Candidate) -> Space:
        """The programs that the same rules make of one of these."""
        if candidate.workload is self.workload:
            return self
        return Space(candidate.workload, self.stages, self.model, fold=self.fold, hoists=self.hoists)

    def costs(self, workload: Workload) -> Costs:
        """The costs of a program, without those of what is hoisted."""
        costs = self.model.costs(workload)
        if not self.hoists:
            return costs
        once = {node.name for node in _of_weights(workload.graph)}
        calls = [call for call in costs if call.name not in once]
        return Costs(costs.name, costs.model, calls, unit=costs.unit, threads=costs.threads)

    def ahead(self, graph: Graph) -> dict[Node, bool]:
        """The nodes of a view with values that are known before a run, and whether the run finds them computed."""
        return dict.fromkeys(_of_weights(graph), True) if self.hoists else computed_ahead(graph) if self.fold else {}

    def is_ahead(self, node: Node, ahead: Mapping[Node, bool]) -> bool | None:
        """True if a run finds a node computed, by what is known of its operands; ``None`` if its value is not known
        before a run."""
        if node.op in (PARAM, CONST):
            return self.hoists or (node.op == PARAM or hasattr(node.attrs["value"], "shape") if self.fold else None)
        if not all(part in ahead for part in (*node.operands, *node.deps)):
            return None
        fits = _is_steady(node) if self.hoists else self.fold and is_foldable(node)
        return any(ahead[operand] for operand in node.operands) if fits else None

    def applied(self, choice: Choice) -> tuple[Workload, Mapping[Kind, int]]:
        """The workload of a choice, which is not priced, and how often each kind was rewritten."""
        seen = MatchKinds(choice)
        stages = [
            (stage, [rule.narrowed(seen.condition(rule)) for rule in stage if rule.name not in choice.rules_out])
            for stage in self.stages
        ]

        def work(graph: Graph, evaluate: Evaluate | None, own: bool) -> tuple[Graph, Trace]:
            trace = Trace(rules=self.rules, iterative=True, tidy=any(stage.tidy for stage in self.stages))
            run = RewriteRun(graph, trace, self.kept(evaluate) if evaluate is not None and self.fold else None)
            run.start()
            for stage, rules in stages:
                _exhaust(run, stage, rules)
            return run.done()

        new = on_subject(self.workload, work, None)
        fired = Counter(seen[firing.rule, firing.match] for firing in new.trace.firings)
        changed = fired or new.trace.shared or new.trace.unused
        return (new if changed else self.workload), dict(fired)

    def kept(self, evaluate: Evaluate) -> Evaluate:
        """The evaluation of weights ahead of time, each once for all programs."""

        def value(node: Node, operands: Sequence[Any]) -> Any:
            try:
                key = (node.op, frozen(dict(node.attrs)), tuple(map(id, operands)), node.type)
                if key not in self._folded:
                    # The operands are kept, so that no others get their numbers.
                    self._folded[key] = evaluate(node, operands), operands
            except TypeError:  # an attribute that has no hash
                return evaluate(node, operands)
            return self._folded[key][0]

        return value


def _of_weights(graph: Graph) -> set[Node]:
    """The calls that depend on weights and literals only."""
    known: set[Node] = set()
    for node in graph.nodes:
        if node.op in (PARAM, CONST) or (_is_steady(node) and known.issuperset(node.operands)):
            known.add(node)
    return known


def _is_steady(node: Node) -> bool:
    return bool(node.operands) and node.effect is None and not node.deps


def _exhaust(run: RewriteRun, stage: RuleSet, rules: Sequence[Subst]) -> None:
    """Apply the rules of a stage until none fires."""
    limit = len(run.trace.firings) + (limit_of(run.graph) if stage.max_steps is None else stage.max_steps)
    refused = list(run.trace.refused)
    watch: Watch | None = None
    while rules:
        run.trace.refused[:] = refused  # of a stage, what is refused in the end is what counts
        if not run.round(stage.strategy, limit, rules):
            break
        if watch is None:
            watch = Watch(run.graph)
        else:
            watch.check(run.graph, run.trace)

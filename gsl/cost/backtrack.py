"""The backtracking search: programs are rewritten one match at a time, the most promising one first.

A program is gone on from while it costs less than a bound, which is a little more than the best one that was found. So
a rule may cost something, if what it lets others match gains more. (Z. Jia et al., "TASO: Optimizing Deep Learning
Computation with Automatic Generation of Graph Substitutions", SOSP 2019.)

Three things make a step cheap. It is priced from its match, and the program that it leads to is built only if it is the
most promising one of all. Where a rewrite changed nothing near to a match, the match and its price hold in the new
program too, so rules are matched anew around the change only. And programs to which several ways lead are gone on from
once.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Collection, Hashable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import count, islice
from operator import attrgetter

from gsl.cost.greedy import Greedy
from gsl.cost.space import DROPPED, KEPT, Candidate, Clock, Found, Kind, Space, Trial, kind_of
from gsl.cost.steps import (
    Changes,
    Priced,
    Prices,
    SearchStep,
    Starts,
    StepKey,
    bound_anew,
    is_local,
    key_of,
    links_of,
    located,
)
from gsl.errors import FixpointError, WorkloadError
from gsl.graph import LEAVES, Graph, Node
from gsl.match import Match, candidates
from gsl.pause import paused_collector
from gsl.rewrite import Subst, Trace
from gsl.rewrite.apply import RewriteRun, on_subject
from gsl.rewrite.check import Refusal
from gsl.rewrite.cse import drop_unused, eliminate_common, take_fields
from gsl.rewrite.fold import Evaluate, fold
from gsl.rewrite.passes import MAX_REFUSALS, Progress, RulePass
from gsl.workload import Workload

ALPHA = 1.05
"""The default of ``alpha``: so many times the cost of the best program another one may cost to be gone on from."""
MOST_NODES = 200_000
"""The most nodes that the waiting programs have together; those that promise least are forgotten."""
REPRICED = 8
"""The number of programs that the model prices in the end where steps are not priced by it."""
GREEDY = 0.5
"""The largest share of the time for the greedy search, from whose result a walk begins."""
LEAST = 1e-9
"""The share by which a program must be cheaper to be a better one: sums of the same numbers differ by less."""


@dataclass(frozen=True, slots=True)
class Backtrack:
    """Goes on from programs that cost less than ``alpha`` times the best so far, with at most so many ``steps``."""

    alpha: float = ALPHA
    steps: int | None = None

    def __post_init__(self) -> None:
        if isinstance(self.alpha, bool) or not isinstance(self.alpha, (int, float)) or not self.alpha >= 1:
            raise WorkloadError(f"alpha= is a number that is at least 1, got {self.alpha!r}")
        if self.steps is not None and (type(self.steps) is not int or self.steps < 0):
            raise WorkloadError(f"steps= is how many programs are built at most, got {self.steps!r}")

    @property
    def name(self) -> str:
        """The name in reports, with the settings that are not the usual ones."""
        own = [f"alpha={self.alpha:g}"] if self.alpha != ALPHA else []
        own += [f"steps={self.steps}"] if self.steps is not None else []
        return f"backtrack({', '.join(own)})" if own else "backtrack"

    def run(self, space: Space, clock: Clock, progress: Progress) -> Found:
        """The best program that was found in time: by the greedy search, or on a walk from what that found, or from
        the program itself."""
        found = _greedy(space, clock, progress)
        starts = [Found(space.original, ())]
        if found.best is not space.original:
            starts = [found, *starts]
        best, finished = found, found.finished
        for number, start in enumerate(starts):
            walked = self._walked(space, start, Clock(clock.left / (len(starts) - number)), progress)
            finished &= walked.finished
            if walked.best.costs.total < best.best.costs.total or not best.trials:
                best = walked
        return replace(best, finished=finished)

    def _walked(self, space: Space, start: Found, clock: Clock, progress: Progress) -> Found:
        """The best program of a walk from one of the programs of a space, and the trials that led to it."""
        walk = Walk(space.after(start.best), self.alpha)
        paused_collector(walk.run)(clock if walk.prices.exact else Clock(clock.left / 2), progress, self.steps)
        best, trials = start.best, list[Trial]()
        for path in walk.best_paths:
            if trials and clock.left <= 0:
                break
            progress(f"a program after {len(path)} steps")
            candidate = _candidate(walk.space, start.best, path)
            cheaper = candidate.costs.total < best.costs.total
            if cheaper or not trials:
                trials = list(_rows(candidate, cheaper))
            if cheaper:
                best = candidate
        return Found(best, (*start.trials, *trials), walk.finished)


def _greedy(space: Space, clock: Clock, progress: Progress) -> Found:
    """The result of the greedy search in a part of the time; the program itself where rules together have no end."""
    search_for = Clock(GREEDY * clock.left)
    try:
        found = Greedy().run(space, search_for, progress)
    except FixpointError:
        return Found(space.original, ())
    return replace(found, finished=search_for.left > 0)


def _rows(candidate: Candidate, cheaper: bool) -> Iterator[Trial]:
    why = "on the way to the cheapest program" if cheaper else "all together are not cheaper than the program was"
    for kind, times in candidate.fired.items():
        yield Trial(kind.rule, kind.shape, times, None, KEPT if cheaper else DROPPED, why)


class SearchState:
    """A program, with the steps that lead on from it."""

    def __init__(self, view: Priced, path: tuple[SearchStep, ...], *, tidied: bool = False) -> None:
        self.view = view
        self.path = path
        self.tidied = tidied
        """True if equal calls were shared after the last step, which its price does not tell."""
        self.steps: list[SearchStep] = []
        """All that are known, refused ones too."""
        self.order: list[SearchStep] = []
        """The steps that can be taken, the best one last."""

    @property
    def bound(self) -> float:
        """The cost of the program to which the best step leads."""
        change = self.order[-1].change
        assert change is not None
        return self.view.cost + change

    def release(self) -> None:
        """Let the program be freed."""
        self.view.graph.release()


class Walk:
    """A walk over the programs that rules make of one."""

    def __init__(self, space: Space, alpha: float = ALPHA) -> None:
        self.space = space
        self.formed: dict[object, object] = {}
        """Attributes and types of new calls, for all programs."""
        self.alpha = alpha
        self.rules = [rule for rule in space.rules.values() if not rule.approximate]
        self.prices = Prices(space)
        self.near = [rule for rule in self.rules if is_local(rule)]
        """The rules whose matches depend on what they bind only."""
        self.wide = [rule for rule in self.rules if not is_local(rule)]
        """All others: they are matched anew in each program."""
        self.starts = Starts(self.near)
        self._numbers = count()
        self.priced = 0
        """The number of steps that were priced, from a match or because nothing near to it changed."""
        self.matched = 0
        """The number of these from a match."""
        self.built = 0
        """The number of programs that were built."""
        self.again = 0
        """The number of programs that were met again."""
        self.finished = True
        """False where time was over before all was looked at that is below the bound."""
        self.start_cost = self.cost = 0.0
        """The costs of the program and of the best one, by the prices of the walk."""
        self.best_paths: list[tuple[SearchStep, ...]] = []
        """The steps to the programs that were the best ones by then, the last one first."""

    def run(self, clock: Clock, progress: Progress, steps: int | None = None) -> None:
        """Walk until there is nothing cheaper than the bound, or no time."""
        run = _tidied(self.space, self.space.workload.graph)
        self.best_paths = [()] if run.trace.shared or run.trace.unused else []
        start = SearchState(Priced(run.graph, self.prices), ())
        self.start_cost = self.cost = start.view.cost
        seen: set[Hashable] = {start.view.key}
        ways: set[frozenset[SearchStep]] = set()
        waiting: list[tuple[float, int, SearchState]] = []
        self._look(start, None, None, clock)
        self._put(waiting, start)
        while waiting and (steps is None or self.built < steps):
            if clock.left <= 0:
                self.finished = False
                break
            bound, _, state = heapq.heappop(waiting)
            if bound >= self.alpha * self.cost:
                break
            step = state.order.pop()
            path = (*state.path, step)
            way = frozenset(path)
            new = None
            if way in ways:  # the same matches in another order
                self.again += 1
            else:
                ways.add(way)
                new = self._after(state, step, path)
            if new is not None:
                child, changes = new
                if child.view.key in seen:
                    self.again += 1
                    child.release()
                else:
                    seen.add(child.view.key)
                    if child.view.cost < self.cost * (1 - LEAST):
                        self._improve(child, progress)
                    self._look(child, state, changes, clock)
                    self._put(waiting, child)
            self._put(waiting, state)
        for _, _, state in waiting:
            state.release()

    def _improve(self, state: SearchState, progress: Progress) -> None:
        self.cost = state.view.cost
        most = 1 if self.prices.exact else REPRICED
        self.best_paths = [state.path, *self.best_paths][:most]
        progress(f"{self.cost / self.start_cost:.1%} of the cost after {len(state.path)} steps")

    def _put(self, waiting: list[tuple[float, int, SearchState]], state: SearchState) -> None:
        """Let a program wait to be gone on from, if a step from it leads below the bound."""
        if not state.order or state.bound >= self.alpha * self.cost:
            state.release()
            return
        heapq.heappush(waiting, (state.bound, next(self._numbers), state))
        most = max(2, MOST_NODES // max(1, len(state.view.graph)))
        if len(waiting) > most:
            kept = heapq.nsmallest(most // 2, waiting)
            for _, _, other in set(waiting).difference(kept):
                other.release()
            waiting[:] = kept

    def _after(
        self, state: SearchState, step: SearchStep, path: tuple[SearchStep, ...]
    ) -> tuple[SearchState, Changes] | None:
        """The program after a step, and what changed; ``None`` if it can't be taken after all."""
        graph = state.view.graph.copy()
        graph.formed = self.formed
        before = {node: links_of(node) for node in graph.nodes}
        ends = graph.ends()
        now = RulePass(graph, [], "priority", Trace())
        found = located(step, now.splicer.names, state.view.graph, ends)
        try:
            if found is None:
                raise Refusal("it does not match any more")
            now.apply(step.rule, *found)
        except Refusal:
            graph.release()
            return None
        now.splicer.finish()
        take_fields(graph)
        changes = Changes.of(before, ends, graph)
        view = Priced(graph, self.prices, state.view, changes)
        tidied = not view.is_tidy
        if tidied:
            eliminate_common(graph, all=True)
            drop_unused(graph)
            changes = Changes.of(before, ends, graph)
            view = Priced(graph, self.prices, state.view, changes)
        self.built += 1
        return SearchState(view, path, tidied=tidied), changes

    def _look(self, state: SearchState, before: SearchState | None, changes: Changes | None, clock: Clock) -> None:
        """Find and price the steps from a program: those of the program before that are as they were, and new ones."""
        if before is None or changes is None:
            self._match(state, self.rules, clock)
        else:
            self._keep(state, before, changes)
            self._match_near(state, changes.names)
            self._match(state, self.wide, clock)
        limit = self.alpha * self.cost - state.view.cost
        possible = [(step.change, step) for step in state.steps if step.change is not None and step.change < limit]
        state.order = [step for _, step in sorted(possible, key=lambda pair: -pair[0])]

    def _keep(self, state: SearchState, before: SearchState, changes: Changes) -> None:
        """Keep the steps that are what they were, and price those anew of which only the price may be another one."""
        view, wide = state.view, set(self.wide)
        for step in before.steps:
            if step.rule in wide:
                continue
            if changes.spare(step):
                state.steps.append(step)
                self.priced += 1
            elif changes.names.isdisjoint(step.inner):
                match = bound_anew(step, view.names)
                self._price(state, step.rule, match, view.names[step.at], step.key)
                if step.is_like(state.steps[-1]):
                    state.steps[-1] = step  # the same one, so that ways in another order are known

    def _match_near(self, state: SearchState, names: Collection[str]) -> None:
        """Price the matches of local rules that cover one of some nodes, and are not known."""
        view, known = state.view, {step.key for step in state.steps}
        nodes = [view.names[name] for name in names if name in view.names]
        for node in sorted([node for node in nodes if node.op not in LEAVES], key=attrgetter("index")):
            for rule, find in self.starts.of(node.op):
                for match in islice(find(node, view.ends, (), view.use_lists), MAX_REFUSALS):
                    key = key_of(rule, match)
                    if key not in known:
                        known.add(key)
                        self._price(state, rule, match, node, key)

    def _match(self, state: SearchState, rules: Sequence[Subst], clock: Clock) -> None:
        """Price all matches of some rules."""
        view = state.view
        for rule, where in zip(rules, candidates([rule.plan for rule in rules], view.graph.by_op())):
            if clock.left <= 0:
                self.finished = False
                return
            find = where.start.finder(len(where.nodes))
            for node in where.nodes:
                for match in islice(find(node, view.ends, (), view.use_lists), MAX_REFUSALS):
                    self._price(state, rule, match, node, key_of(rule, match))

    def _price(self, state: SearchState, rule: Subst, match: Match, node: Node, key: StepKey) -> None:
        self.priced += 1
        self.matched += 1
        try:
            step = state.view.step(rule, match, node, key)
        except Refusal:
            step = state.view.refused(rule, match, node, key)
        state.steps.append(step)


def _candidate(space: Space, start: Candidate, path: Sequence[SearchStep]) -> Candidate:
    """The program after some steps from the one of a space, with its cost by the model of the space."""
    fired: Counter[Kind] = Counter()

    def work(graph: Graph, evaluate: Evaluate | None, own: bool) -> tuple[Graph, Trace]:
        run = _tidied(space, graph)
        for step in path:
            now = run.begin("priority", None)
            found = located(step, now.splicer.names, run.graph, run.graph.ends())
            assert found is not None, "what was found once is found again"
            match, node = found
            fired[kind_of(step.rule, match)] += 1
            now.apply(step.rule, match, node)
            now.splicer.finish()
            run.end()
        if space.fold and evaluate is not None:
            run.trace.folded += fold(run.graph, space.kept(evaluate))
        return run.done()

    workload: Workload = on_subject(space.workload, work, None)
    return Candidate(workload, space.costs(workload), dict(fired), None, (*start.traces, workload.trace))


def _tidied(space: Space, graph: Graph) -> RewriteRun:
    """A copy of a view in which equal calls are one, and each is used."""
    run = RewriteRun(graph, Trace(rules=space.rules, iterative=True, tidy=True), None)
    run.start()
    return run

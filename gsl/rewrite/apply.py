"""Applying rules: rounds over a copy of a view until they are done, or a record of rounds once more."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Sequence
from itertools import groupby
from typing import TYPE_CHECKING, Any

from gsl.errors import ReplayError, RewriteError, UntypedWarning, caller, check_number
from gsl.graph import Graph, Node
from gsl.graph.text import node_names
from gsl.pause import paused_collector
from gsl.rewrite.cse import drop_unused, eliminate_common, share_near, take_fields
from gsl.rewrite.fold import Evaluate, fold
from gsl.rewrite.near import LEAST, NOWHERE, Near, near_to, needs_order
from gsl.rewrite.passes import Progress, RulePass, silent
from gsl.rewrite.termination import Watch
from gsl.rewrite.trace import Subject, Trace
from gsl.spec import DeclaredSpec

if TYPE_CHECKING:
    from gsl.rewrite.subst import Subst

RoundWork = Callable[[Graph, "Evaluate | None", bool], tuple[Graph, Trace]]
"""A function that rewrites a view, given a function that computes calls ahead of time, and true if the view may be
changed itself."""
RoundsWithin = Callable[[str], "tuple[RoundWork, RoundsWithin] | None"]
"""Tells the work in the graph of a name within a call, and in those within that; ``None`` where it stays."""


def rewrite(
    rules: Sequence[Subst],
    subject: Subject,
    *,
    strategy: str = "priority",
    tidy: bool = False,
    iterative: bool = False,
    max_steps: int | None = None,
    fold_params: bool = True,
    new_name: str | None = None,
    progress: Progress = silent,
) -> Subject:
    """Apply rules to a workload or a view; the result is new and the subject unchanged in every case."""

    def work(graph: Graph, evaluate: Evaluate | None, own: bool) -> tuple[Graph, Trace]:
        found = apply(
            rules, graph, strategy=strategy, tidy=tidy, iterative=iterative, max_steps=max_steps,
            evaluate=evaluate if fold_params else None, own=own, progress=progress,
        )  # fmt: skip
        progress(f"{len(found[1].firings):,} rewrites, making the new graph")
        return found

    operators = [spec for rule in rules for spec in rule.operators]
    if not isinstance(subject, Graph):
        _check_subject(subject)
        workload: Any = subject
        workload = workload.with_operators(*operators)
        check_steps(max_steps)
        trace = untouched(rules, workload.program, tidy, iterative, fold_params)
        if trace is not None:
            return workload.replace(None, name=new_name, trace=trace)  # type: ignore[no-any-return]
        progress("reading the graph")
    return on_subject(subject, work, new_name, operators, everywhere(work))


def untouched(rules: Iterable[Subst], program: Any, tidy: bool, iterative: bool, folds: bool) -> Trace | None:
    """The trace of rules of which it is known without a view that none can match in a program; ``None`` otherwise."""
    may_have = getattr(program, "may_have", None)
    if tidy or may_have is None or may_have(lambda below: any(rule.plan.may_match(below) for rule in rules)):
        return None
    return Trace(rules={rule.name: rule for rule in rules}, iterative=iterative, folds=folds)


def why_kept(rules: Sequence[Subst], subject: Any) -> str | None:
    """The reason why the program of a workload stays as it is though rules match in it; ``None`` if it does not."""
    kept = getattr(getattr(subject, "program", None), "kept", None)
    if kept is None:
        return None
    trace: Trace = rewrite(rules, subject).trace
    return str(kept) if any(refused.reason == kept for refused in trace.refused) else None


def everywhere(work: RoundWork) -> RoundsWithin:
    """The same work in all graphs within calls, at any depth."""
    return lambda name: (work, everywhere(work))


def view_of(subject: Any, operators: Iterable[DeclaredSpec]) -> Graph:
    """The view of a workload in which calls of these operators of users are read, or the view that is given."""
    if isinstance(subject, Graph):
        return subject
    _check_subject(subject)
    graph: Graph = subject.with_operators(*operators).graph
    return graph


def _check_subject(subject: Any) -> None:
    """RewriteError for what is no workload."""
    if not hasattr(subject, "program"):
        raise RewriteError(
            f"rules are applied to a Workload or to the view of one, but got {type(subject).__name__}; make a workload "
            "with Workload.from_torch, from_fx, from_exported, from_relax, from_relay or from_onnx"
        )


def replay(trace: Trace, subject: Subject, steps: int | None = None) -> Subject:
    """Repeat the firings of a trace, or the first of them, on a workload or a view; the subject is unchanged."""

    work, within = _repetition(trace, steps)
    return on_subject(subject, work, None, [spec for rule in trace.rules.values() for spec in rule.operators], within)


def _repetition(trace: Trace, steps: int | None) -> tuple[RoundWork, RoundsWithin]:
    """The work that repeats the firings of a trace, and that within calls; the first steps are those of the graph
    itself."""

    def work(graph: Graph, evaluate: Evaluate | None, own: bool) -> tuple[Graph, Trace]:
        return repeat(trace, graph, steps, evaluate)

    known = trace.inside if steps is None else {}
    return work, lambda name: _repetition(known[name], None) if name in known else None


@paused_collector  # once, and not for each of the steps; by its end, what they made is gone
def on_subject(
    subject: Subject, work: RoundWork, name: str | None, operators: Iterable[DeclaredSpec] = (),
    within: RoundsWithin = lambda name: None,
) -> Subject:  # fmt: skip
    """The workload or view that results when the view of a subject is rewritten, in which calls of these operators of
    users are read; ``within`` tells the work in the graphs within calls."""
    if isinstance(subject, Graph):
        return work(subject, None, False)[0]  # type: ignore[return-value]
    workload: Any = subject
    _check_subject(workload)
    return _rewritten(workload.with_operators(*operators), work, name, within)  # type: ignore[no-any-return]


def _rewritten(workload: Any, work: RoundWork, name: str | None, within: RoundsWithin) -> Any:
    """The workload of the rewritten view of a workload, and of the graphs within its calls."""
    view, own = workload.lend()
    graph, trace = work(view, workload.program.evaluate, own)
    result = workload.replace(graph, name=name, trace=trace)
    kept = getattr(result.program, "kept", None) if result.program is workload.program else None
    if kept is not None:
        trace.refuse(kept)
    if own or graph is not view:
        graph.release()
    return _with_inside(result, within, trace) if hasattr(result.program, "inside") else result


def _with_inside(workload: Any, within: RoundsWithin, trace: Trace) -> Any:
    """A workload whose program has graphs within its calls, which are rewritten as programs of their own."""

    def change(name: str, program: Any) -> Any:
        known = within(name)
        if known is None:
            return program
        inner = _rewritten(type(workload)(program), known[0], None, known[1])
        if not inner.trace.count():
            return program
        trace.inside[name] = inner.trace
        return inner.program

    return workload.with_program(workload.program.inside(change))


def apply(
    rules: Sequence[Subst],
    source: Graph,
    *,
    strategy: str = "priority",
    tidy: bool = False,
    iterative: bool = False,
    max_steps: int | None = None,
    evaluate: Evaluate | None = None,
    own: bool = False,
    progress: Progress = silent,
) -> tuple[Graph, Trace]:
    """A rewritten copy of a view, and the trace; with ``evaluate``, weights are folded after each pass.

    One pass does nothing but rewrite (and fold); with ``own``, it may change the view itself instead of a copy, and so
    may the rounds over a large one. With ``iterative``, what the rewrites of a pass made equal is shared before the
    next one; with ``tidy``, whatever is equal, and what nothing uses goes. Raises FixpointError where there is no end,
    PatternError for a ``max_steps`` that is no number from 1.
    """
    check_steps(max_steps)
    for rule in rules:
        rule.plan.check(source)
    trace = Trace(rules={rule.name: rule for rule in rules}, iterative=iterative, tidy=tidy)
    run = RewriteRun(source, trace, evaluate, own and (not iterative or len(source) >= LEAST), progress)
    run.start()
    limit = None
    if iterative:
        limit = max_steps if max_steps is not None else limit_of(source)
    run.local = iterative
    watch = Watch(source, keeps=False) if iterative and run.own else None  # which is changed itself
    near: Near | None = None
    while True:
        run.trace.refused.clear()  # what is refused in the end is what counts
        fired = run.round(strategy, limit, near=near)
        if fired:
            if not iterative:
                break
            watch = watch or Watch(source)
            run.watched_by(watch, fired)
            near = run.near_to_changes()
        elif near is None:
            break
        else:
            near = None  # a last look at all nodes
    return run.done()


def limit_of(graph: Graph) -> int:
    """After how many rewrites of a graph it is taken for sure that there is no end."""
    return 1000 + 20 * len(graph)


def check_steps(max_steps: int | None, what: str = "rewrites") -> None:
    """Raise PatternError unless ``max_steps`` is ``None`` or a number from 1."""
    if max_steps is not None:
        check_number("max_steps", max_steps, f"a number of {what}", 1)


def repeat(trace: Trace, source: Graph, steps: int | None, evaluate: Evaluate | None) -> tuple[Graph, Trace]:
    """A copy of a view on which the firings of a trace were repeated, and the trace of that."""
    total = len(trace.firings)
    if steps is not None:
        check_number("steps", steps, "a number of firings", error=ReplayError)
    if steps is not None and not 0 <= steps <= total:
        raise ReplayError(f"steps={steps}: the trace has {total} firings")
    if trace.folded and evaluate is None:
        raise ReplayError("weights were folded between the rounds, so replay the trace on a workload, not on a view")
    again = Trace(rules=trace.rules, iterative=trace.iterative, tidy=trace.tidy)
    run = RewriteRun(source, again, evaluate if trace.folds else None)
    run.local = bool(trace.near)
    run.take()
    run.start()
    for number, firings in groupby(trace.firings[:steps], key=lambda firing: firing.round):
        current = run.begin("priority", None, near=NOWHERE if number in trace.near else None)
        for firing in firings:
            try:
                current.repeat(firing)
            except ReplayError as error:
                number = len(run.trace.firings) + 1
                raise ReplayError(
                    f"step {number} of {total} ({firing}; round {firing.round}) does not apply: {error}. A trace is "
                    "replayed on a graph that is equal, with equal names, to the one on which it was made"
                ) from None
        current.finish()
        run.end()
        if trace.near.get(number):
            run.settle()
        run.near_to_changes()
    if trace.folded and not trace.folds and evaluate is not None and steps in (None, total):
        again.folded += fold(run.graph, evaluate)
    return run.done()


class RewriteRun:
    """A view on which rules work in rounds, and the trace of their work. It is copied when the first match is found."""

    def __init__(
        self, source: Graph, trace: Trace, evaluate: Evaluate | None, own: bool = False, progress: Progress = silent
    ) -> None:
        self.graph = source
        self.progress = progress
        self.own = own
        """True if the view may be changed itself, as no other object refers to it."""
        self.trace = trace
        self.trace.folds = evaluate is not None
        self.evaluate = evaluate
        self.rounds = 0
        self.untyped: str | None = None
        """A replacement whose type could not be checked, and why."""
        self.local = False
        """True if rounds may look near to what was changed only."""
        self._roots: dict[Node, str] = {}
        self._pass: RulePass | None = None
        self._open: RulePass | None = None
        """The last pass, where the nodes are not in order after it."""
        self._owned = False

    def take(self) -> Graph:
        """A copy of the view, or the view if that is ours, which is worked on from now on."""
        if not self.own:
            self.graph = self.graph.copy()
        self._owned = True
        self._note_changes()
        names = {node.name for node in self.graph}
        if len(names) < len(self.graph) or "" in names:
            for node, name in node_names(self.graph).items():
                node.name = name  # unique, so that a name in the trace tells one node
        return self.graph

    @paused_collector
    def start(self) -> None:
        """Tidy up before the first pass, where that is wanted."""
        if self.trace.tidy:
            if not self._owned:
                self.take()
            self._tidy()

    def _tidy(self) -> None:
        """Share equal calls, and drop unused ones."""
        self.trace.shared += eliminate_common(self.graph, all=True)
        self.trace.unused += drop_unused(self.graph)

    @paused_collector
    def round(
        self, strategy: str, limit: int | None, rules: Iterable[Subst] | None = None, near: Near | None = None
    ) -> int:
        """Make a pass of some of the rules, or of all, at some of the nodes, or at all, and tidy up after it; how many
        times they fired."""
        before = len(self.trace.firings)
        self.begin(strategy, limit, rules, near).run()
        self.end()
        fired = len(self.trace.firings) - before
        if not fired and near is not None:
            self.rounds -= 1
        return fired

    def near_to_changes(self) -> Near | None:
        """The nodes at which rules may match anew after a round; ``None`` for all."""
        touched = self.graph.touched or {}
        self._note_changes()
        return near_to(self.graph, touched, [rule.plan for rule in self.trace.rules.values()])

    def _note_changes(self) -> None:
        """Let the graph note what is changed from now on."""
        self.graph.touched = {} if self.local else None
        reads_uses = any(rule.plan.reads_uses for rule in self.trace.rules.values())
        self.graph.less_used = self.graph.touched if reads_uses else None

    def watched_by(self, watch: Watch, fired: int) -> None:
        """Let the graph be compared with what it was, after a round in which rules fired so many times."""
        if self._open is not None and not watch.wants(self._open.splicer.size, fired):
            watch.skip(self._open.splicer.size)
            return
        self.settle()
        watch.check(self.graph, self.trace)

    def begin(
        self, strategy: str, limit: int | None, rules: Iterable[Subst] | None = None, near: Near | None = None
    ) -> RulePass:
        """The pass of the next round, of some of the rules or of all, at some of the nodes or at all."""
        if near is None:
            self.settle()
        self.rounds += 1
        chosen = list(self.trace.rules.values() if rules is None else rules)
        take = None if self._owned else self.take
        self._pass = RulePass(
            self.graph, chosen, strategy, self.trace, round=self.rounds, limit=limit, take=take,
            progress=self.progress, near=near, before=self._open,
        )  # fmt: skip
        return self._pass

    def end(self) -> None:
        """Tidy up after a pass: take fields of tuples that it made, share calls that it made equal, and fold
        weights."""
        assert self._pass is not None
        ended, self._pass = self._pass, None
        self.untyped = self.untyped or ended.checker.untyped
        if not ended.blocked:
            return
        if ended.near is None:
            self._tidy_up()
            return
        self._open, self.trace.near[self.rounds] = ended, False
        touched = self.graph.touched or {}
        if ended.checker.lasting or needs_order(touched):
            self.settle()
        elif self.trace.tidy or self.trace.iterative:
            self.trace.shared += share_near(ended.splicer, touched)

    def settle(self) -> None:
        """Put the nodes in order, and tidy up, after rounds that looked at a part of the graph."""
        if self._open is not None:
            self._open.splicer.finish()
            self._open, self.trace.near[self.rounds] = None, True
            self._tidy_up()

    def _tidy_up(self) -> None:
        take_fields(self.graph)
        if self.trace.tidy:
            self._tidy()
        elif self.trace.iterative:
            self.trace.shared += eliminate_common(self.graph)
        if self.evaluate is not None:
            self.trace.folded += fold(self.graph, self.evaluate, self._roots)

    def done(self) -> tuple[Graph, Trace]:
        """The graph and the trace; warns where types could not be checked."""
        self.settle()
        self.graph.formed.clear()
        self.graph.touched = self.graph.less_used = None
        if self.untyped:
            place = caller()
            warnings.warn_explicit(self.untyped, UntypedWarning, place.file, place.line)
        return self.graph, self.trace

"""Applying rules: passes over a copy of a view, until they are done."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import TYPE_CHECKING, TypeVar

from gsl.errors import FixpointError, RewriteError, UntypedWarning
from gsl.graph import Graph, Node, Op
from gsl.graph.splice import Replacement, Splicer
from gsl.match import Match, Start
from gsl.rewrite.check import Checker
from gsl.rewrite.fold import fold
from gsl.rewrite.target import Refusal

if TYPE_CHECKING:
    from gsl.rewrite.subst import Subst

Subject = TypeVar("Subject")
Candidate = tuple["Subst", Start, Node]
MAX_REFUSALS = 1000
"""How many matches with one anchor are tried, when each is refused only after it was found."""


@dataclass(frozen=True, slots=True)
class Firing:
    """One application of a rule: what it replaced, and by what."""

    rule: str
    replaced: tuple[str, ...]
    by: tuple[str, ...]
    kept: tuple[str, ...]
    """Covered nodes that stay alive because they are used elsewhere too, so that their work is done twice."""

    def __str__(self) -> str:
        kept = f" (kept, as used elsewhere: {_names(self.kept)})" if self.kept else ""
        return f"{self.rule}: {_names(self.replaced)} -> {_names(self.by)}{kept}"


@dataclass(frozen=True, slots=True)
class Refused:
    """A match that was not rewritten, and why."""

    rule: str
    at: tuple[str, ...]
    reason: str

    def __str__(self) -> str:
        return f"{self.rule} refused at {_names(self.at)}: {self.reason}"


@dataclass
class Trace:
    """What the application of some rules did: the firings in order, and the matches that were refused."""

    firings: list[Firing] = field(default_factory=list)
    refused: list[Refused] = field(default_factory=list)
    folded: int = 0
    """How many nodes were computed ahead of time, because they depend on weights only."""

    def count(self, rule: str | None = None) -> int:
        """How often a rule fired (all of them without a name)."""
        return sum(rule is None or firing.rule == rule for firing in self.firings)

    def __str__(self) -> str:
        return "\n".join(map(str, [*self.firings, *self.refused])) or "no rule fired"


def _names(names: Sequence[str]) -> str:
    return ", ".join("%" + name for name in names)


def rewrite(
    rules: Sequence[Subst],
    subject: Subject,
    *,
    strategy: str = "priority",
    iterative: bool = False,
    max_steps: int | None = None,
    fold_params: bool = True,
    new_name: str | None = None,
) -> Subject:
    """Apply rules to a workload or a view; the result is new and the subject unchanged, whatever happens."""
    source: Graph = subject if isinstance(subject, Graph) else subject.graph  # type: ignore[attr-defined]
    graph, trace = apply(rules, source, strategy=strategy, iterative=iterative, max_steps=max_steps)
    if isinstance(subject, Graph):
        return graph  # type: ignore[return-value]
    if fold_params:
        trace.folded = fold(graph, subject.program.evaluate)  # type: ignore[attr-defined]
    result: Subject = subject.replace(graph, name=new_name, trace=trace)  # type: ignore[attr-defined]
    return result


def apply(
    rules: Sequence[Subst],
    source: Graph,
    *,
    strategy: str = "priority",
    iterative: bool = False,
    max_steps: int | None = None,
) -> tuple[Graph, Trace]:
    """A rewritten copy of a view, and what was done."""
    graph = source.copy()
    trace = Trace()
    limit = None
    if iterative:
        limit = max_steps if max_steps is not None else 1000 + 20 * len(graph)
    while Pass(graph, rules, strategy, trace, limit).run() and iterative:
        pass
    return graph, trace


class Pass:
    """One pass of some rules over a graph, which it changes: matches that don't overlap."""

    def __init__(
        self, graph: Graph, rules: Sequence[Subst], strategy: str, trace: Trace, limit: int | None = None
    ) -> None:
        self.graph = graph
        self.rules = rules
        self.strategy = strategy
        self.trace = trace
        self.limit = limit
        """The most firings that the trace may have in the end."""
        self.splicer = Splicer(graph)
        self.checker = Checker(graph, self.splicer.outputs)
        self.blocked: set[Node] = set()
        """What this pass has rewritten or made."""
        self.grouped: set[tuple[Subst, Node]] = set()
        """The members of groups (of a variadic rule) that were refused: they do not start a smaller group."""
        self.by_op: dict[Op, list[Node]] = graph.by_op()

    def run(self) -> int:
        """Rewrite what matches; the number of rewrites."""
        before = len(self.trace.firings)
        self.trace.refused.clear()  # what is refused in the end is what counts
        for rule, start, node in self._candidates():
            self._try(rule, start, node)
        self.splicer.finish()
        if self.checker.untyped:
            warnings.warn(
                "the graph has no types, so it was not checked that replacements have the types of what they replace: "
                "give example inputs when loading",
                UntypedWarning,
                stacklevel=5,
            )
        return len(self.trace.firings) - before

    def _candidates(self) -> Iterator[Candidate]:
        """Rules with nodes at which to start, in the order in which to try them."""
        if self.strategy == "priority":
            for rule in sorted(self.rules, key=lambda rule: -rule.priority):
                anchor, nodes = rule.plan.anchor(self.by_op)
                start = rule.plan.start(anchor)
                for node in nodes:
                    yield rule, start, node
            return
        found: list[tuple[tuple[int, ...], Candidate]] = []
        for number, rule in enumerate(self.rules):
            anchor, nodes = rule.plan.anchor(self.by_op)
            start = rule.plan.start(anchor)
            for node in nodes:
                matches = start.search(node, outputs=self.splicer.outputs)
                match = next((match for match in matches if rule.refused(match) is None), None)
                if match is not None:
                    place = min(output.index for output in match.outputs)
                    first = place if self.strategy == "first" else -len(match.inner)
                    found.append(((first, -rule.priority, place, number), (rule, start, node)))
        found.sort(key=lambda entry: entry[0])
        yield from (candidate for _, candidate in found)

    def _try(self, rule: Subst, start: Start, node: Node) -> None:
        """Rewrite the first match from this node that is not refused."""
        if node in self.blocked or node in self.splicer.dead or (rule, node) in self.grouped:
            return
        seen: set[Refused] = set()
        for match in islice(start.search(node, self.blocked, outputs=self.splicer.outputs), MAX_REFUSALS):
            try:
                reason = rule.refused(match)
                if reason is not None:
                    raise Refusal(reason)
                self._apply(rule, match)
                return
            except Refusal as refusal:
                refused = Refused(rule.name, tuple(output.name for output in match.outputs), str(refusal))
                if refused not in seen:
                    seen.add(refused)
                    self.trace.refused.append(refused)
                if rule.plan.variadic is not None:
                    self.grouped.update((rule, output) for output in match.outputs)

    def _apply(self, rule: Subst, match: Match) -> None:
        replacement, inner = self.prepare(rule, match)
        if self.limit is not None and len(self.trace.firings) >= self.limit:
            recent = dict.fromkeys(firing.rule for firing in self.trace.firings[-100:])
            raise FixpointError(
                f"no end after {self.limit} rewrites; the rules {', '.join(recent)} still fire: they may undo each "
                "other or feed themselves. Give max_steps=… if it only takes longer"
            )
        reused = _reused(replacement, inner)
        self.splicer.apply(replacement, inner)
        self.checker.applied(replacement)
        self.blocked.update(inner)
        self.blocked.update(replacement.created)
        kept = [node for node in inner if node not in reused and node not in self.splicer.dead]
        names = (tuple(node.name for node in nodes) for nodes in (replacement.old, replacement.new, kept))
        self.trace.firings.append(Firing(rule.name, *names))

    def prepare(self, rule: Subst, match: Match) -> tuple[Replacement, tuple[Node, ...]]:
        """What is to replace what in the graph, which is not changed. Raises Refusal if that must not be."""
        self.checker.before(match)
        old, inner = match.outputs, match.inner
        try:
            new = rule.target.build(rule.builder(match, self.graph))
        except Refusal:
            raise
        except Exception as error:
            raise RewriteError(f"{rule.title}: no target for {match!r}: {type(error).__name__}: {error}") from error
        if len(new) != len(old):
            raise RewriteError(f"{rule.title}: {len(new)} nodes in the target for the {len(old)} outputs of {match!r}")
        if all(a is b for a, b in zip(old, new)):
            raise Refusal("the target is what was matched")
        replacement = Replacement(old, new)
        self.checker.after(replacement, inner)
        return replacement, inner


def _reused(replacement: Replacement, inner: Sequence[Node]) -> set[Node]:
    """The covered nodes from which the new ones are computed."""
    covered = set(inner)
    work = list(replacement.used())
    reused: set[Node] = set()
    while work:
        node = work.pop()
        if node in covered and node not in reused:
            reused.add(node)
            work.extend(node.operands)
    return reused

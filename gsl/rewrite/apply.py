"""Applying rules: passes over a copy of a view, until they are done."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar

from gsl.errors import FixpointError, GSLError, RewriteError, UntypedWarning
from gsl.graph import Graph, Node, Op
from gsl.graph.splice import Replacement, Splicer
from gsl.match import Match
from gsl.rewrite.check import Checker
from gsl.rewrite.fold import fold
from gsl.rewrite.target import Refusal

if TYPE_CHECKING:
    from gsl.rewrite.subst import Subst

Subject = TypeVar("Subject")
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
    graph = source.copy()
    trace = Trace()
    limit = max_steps if max_steps is not None else 1000 + 20 * len(graph)
    while True:
        fired = Pass(graph, rules, strategy, trace, limit, iterative).run()
        if not iterative or not fired:
            break
    if isinstance(subject, Graph):
        return graph  # type: ignore[return-value]
    program = subject.program  # type: ignore[attr-defined]
    if fold_params:
        trace.folded = fold(graph, program.evaluate)
    result: Subject = subject.replace(graph, name=new_name, trace=trace)  # type: ignore[attr-defined]
    return result


class Pass:
    """One pass of some rules over a graph, which it changes: matches that don't overlap."""

    def __init__(
        self, graph: Graph, rules: Sequence[Subst], strategy: str, trace: Trace, limit: int, iterative: bool
    ) -> None:
        self.graph = graph
        self.rules = rules
        self.strategy = strategy
        self.trace = trace
        self.limit = limit
        self.iterative = iterative
        self.splicer = Splicer(graph)
        self.checker = Checker(graph)
        self.blocked: set[Node] = set()
        """What this pass has rewritten or made."""
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

    def _candidates(self) -> Iterator[tuple[Subst, Any, Node]]:
        """Rules with nodes at which to start, in the order in which to try them."""
        if self.strategy == "priority":
            for rule in sorted(self.rules, key=lambda rule: -rule.priority):
                anchor, nodes = rule.plan.anchor(self.by_op)
                start = rule.plan.start(anchor)
                for node in nodes:
                    yield rule, start, node
            return
        found = []
        for number, rule in enumerate(self.rules):
            anchor, nodes = rule.plan.anchor(self.by_op)
            start = rule.plan.start(anchor)
            for node in nodes:
                match = next((m for m in start.search(node) if rule.refused(m) is None), None)
                if match is not None:
                    place = min(output.index for output in match.outputs)
                    size = -len(match.inner) if self.strategy == "largest" else 0
                    found.append((size, -rule.priority, place, number, (rule, start, node)))
        found.sort(key=lambda entry: entry[:4])
        yield from (entry[4] for entry in found)

    def _try(self, rule: Subst, start: Any, node: Node) -> None:
        if node in self.blocked:
            return
        for tries, match in enumerate(start.search(node, self.blocked)):
            try:
                reason = rule.refused(match)
                if reason is not None:
                    raise Refusal(reason)
                self._apply(rule, match)
                return
            except Refusal as refusal:
                at = tuple(output.name for output in match.outputs)
                self.trace.refused.append(Refused(rule.name, at, str(refusal)))
            except GSLError:
                raise
            except Exception as error:
                raise RewriteError(
                    f"{rule.name} ({rule.location}) failed at {match!r}: {type(error).__name__}: {error}"
                ) from error
            if tries >= MAX_REFUSALS:
                return

    def _apply(self, rule: Subst, match: Match) -> None:
        self.checker.before(match, rule.extern_use)
        old = match.outputs
        new = rule.target.build(rule.builder(match, self.graph))
        if len(new) != len(old):
            raise RewriteError(
                f"{rule.name} ({rule.location}): the target gives {len(new)} nodes for the {len(old)} outputs of "
                f"{match!r}"
            )
        if all(a is b for a, b in zip(old, new)):
            raise Refusal("the target is what was matched")
        replacement = Replacement(old, new)
        self.checker.after(replacement)
        if len(self.trace.firings) >= self.limit:
            recent = dict.fromkeys(firing.rule for firing in self.trace.firings[-100:])
            raise FixpointError(
                f"no end after {self.limit} rewrites; the rules {', '.join(recent)} still fire: they may undo each "
                "other or feed themselves. Give max_steps=… if it only takes longer"
            )
        inner = match.inner
        self.splicer.apply(replacement, inner)
        self.blocked.update(inner)
        self.blocked.update(replacement.created)
        uses = set(inner)
        kept = [n for n in inner if n not in old and (any(u not in uses for u in n.users) or n in self.graph.outputs)]
        self.trace.firings.append(
            Firing(
                rule.name,
                tuple(node.name for node in old),
                tuple(node.name for node in new),
                tuple(node.name for node in kept),
            )
        )

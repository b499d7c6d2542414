"""One pass of rules over a graph: which matches are rewritten, and in which order."""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Sequence
from itertools import count, islice
from typing import TYPE_CHECKING

from gsl.errors import ReplayError, RewriteError
from gsl.graph import Graph, Node, Op
from gsl.graph.splice import Replacement, Splicer
from gsl.match import Match, Miss, Search, Start
from gsl.rewrite.build import Refusal
from gsl.rewrite.check import Checker
from gsl.rewrite.loop import no_end
from gsl.rewrite.trace import Firing, Refused, Trace, identity

if TYPE_CHECKING:
    from gsl.rewrite.subst import Subst

Key = tuple[int, ...]
"""How good a match is by a strategy; the smallest is best."""
MAX_REFUSALS = 1000
"""How many matches from one node are looked at."""


class Pass:
    """One pass of some rules over a graph, which it changes: matches that don't overlap."""

    def __init__(
        self,
        graph: Graph,
        rules: Sequence[Subst],
        strategy: str,
        trace: Trace,
        *,
        round: int = 1,
        limit: int | None = None,
    ) -> None:
        self.graph = graph
        self.rules = rules
        self.strategy = strategy
        self.trace = trace
        self.round = round
        self.limit = limit
        """The most firings that the trace may have in the end."""
        self.splicer = Splicer(graph)
        self.checker = Checker(graph, self.splicer.outputs)
        self.blocked: set[Node] = set()
        """What this pass has rewritten or made."""
        self.grouped: set[tuple[Subst, Node]] = set()
        """The members of groups (of a variadic rule) that were refused: they do not start a smaller group."""
        self.by_op: dict[Op, list[Node]] = graph.by_op()
        self.by_name = {node.name: node for node in graph.nodes}
        self.starts: dict[Subst, tuple[Start, list[Node]]] = {}

    def run(self) -> None:
        """Rewrite what matches."""
        if self.strategy == "priority":
            for rule in sorted(self.rules, key=lambda rule: -rule.priority):
                start, nodes = self._start(rule)
                for node in nodes:
                    if self._is_free(rule, node):
                        self._first(rule, start, node)
        else:
            self._best_first()
        self.splicer.finish()

    def repeat(self, firing: Firing) -> None:
        """Rewrite what a firing rewrote. Raises ReplayError with the reason why that can't be."""
        rule = self.trace.rules[firing.rule]
        node = self.by_name.get(firing.at)
        if node is None:
            raise ReplayError(f"there is no node %{firing.at}")
        if node in self.blocked or node in self.splicer.dead:
            raise ReplayError(f"%{firing.at} has gone in the same round")
        search = Search(rule.plan, self.splicer.outputs, self.blocked)
        misses: list[Miss] = []
        search.on_miss = misses.append
        found = 0
        for match in self._start(rule)[0].matches(node, search):
            found += 1
            if identity(match) == firing.match:
                try:
                    self._apply(rule, match, node)
                except Refusal as refusal:
                    raise ReplayError(f"it is refused: {refusal}") from None
                return
        if found:
            raise ReplayError(f"from %{node.name}, the rule matches other nodes than it did")
        miss = max(misses, key=lambda miss: miss.bound, default=None)
        place = f" at %{miss.node.name}" if miss is not None and miss.node is not None else ""
        raise ReplayError(f"there is no match from %{node.name}" + (f"{place}: {miss.reason}" if miss else ""))

    def _start(self, rule: Subst) -> tuple[Start, list[Node]]:
        """The search of a rule, and the nodes at which it may start."""
        if rule not in self.starts:
            anchor, nodes = rule.plan.anchor(self.by_op)
            self.starts[rule] = rule.plan.start(anchor), nodes
        return self.starts[rule]

    def _is_free(self, rule: Subst, node: Node) -> bool:
        return node not in self.blocked and node not in self.splicer.dead and (rule, node) not in self.grouped

    def _matches(self, start: Start, node: Node) -> Iterator[Match]:
        search = Search(start.plan, self.splicer.outputs, self.blocked)
        return islice(start.matches(node, search), MAX_REFUSALS)

    def _first(self, rule: Subst, start: Start, node: Node) -> None:
        """Rewrite the first match from this node that is not refused."""
        seen: set[Refused] = set()
        for match in self._matches(start, node):
            refused = self._try(rule, match, node)
            if refused is None:
                return
            if refused not in seen:
                seen.add(refused)
                self.trace.refused.append(refused)

    def _best_first(self) -> None:
        """Rewrite the match that is best of all, then the best that is left, and so on."""
        order = count()  # rules, then nodes, in their order: what comes first among equals
        queue: list[tuple[Key, int, Subst, Start, Node]] = []
        for rule in sorted(self.rules, key=lambda rule: -rule.priority):
            start, nodes = self._start(rule)
            for node in nodes:
                best = min((self._key(rule, match) for match in self._matches(start, node)), default=None)
                if best is not None:
                    queue.append((best, next(order), rule, start, node))
        heapq.heapify(queue)
        seen: set[tuple[Subst, object]] = set()
        while queue:
            key, number, rule, start, node = heapq.heappop(queue)
            if not self._is_free(rule, node):
                continue
            left = [match for match in self._matches(start, node) if (rule, identity(match)) not in seen]
            match = min(left, key=lambda match: self._key(rule, match), default=None)
            if match is None:
                continue
            now = self._key(rule, match)
            if now <= key:
                seen.add((rule, identity(match)))
                refused = self._try(rule, match, node)
                if refused is None:
                    continue
                self.trace.refused.append(refused)
            heapq.heappush(queue, (now, number, rule, start, node))

    def _key(self, rule: Subst, match: Match) -> Key:
        place = min(output.index for output in match.outputs)
        if self.strategy == "last":
            return (-place, -len(match.inner), -rule.priority)
        return (place if self.strategy == "first" else -len(match.inner), -rule.priority, place)

    def _try(self, rule: Subst, match: Match, node: Node) -> Refused | None:
        """Rewrite a match, or tell why not."""
        try:
            rule.admit(match)
            self._apply(rule, match, node)
        except Refusal as refusal:
            if rule.plan.variadic is not None:
                self.grouped.update((rule, output) for output in match.outputs)
            return Refused.of(rule.name, match, refusal)
        return None

    def _apply(self, rule: Subst, match: Match, node: Node) -> None:
        replacement, inner = self.prepare(rule, match)
        if self.limit is not None and len(self.trace.firings) >= self.limit:
            raise no_end(self.trace, self.limit)
        reused = _reused(replacement, inner)
        old, known = tuple(node.name for node in replacement.old), identity(match)
        self.splicer.apply(replacement, inner)
        self.checker.applied(replacement)
        self.blocked.update(inner)
        self.blocked.update(replacement.created)
        new = tuple(node.name for node in replacement.new)
        kept = tuple(node.name for node in inner if node not in reused and node not in self.splicer.dead)
        self.trace.firings.append(Firing(rule.name, old, new, kept, self.round, node.name, known))

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

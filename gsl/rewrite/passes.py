"""One pass of rules over a graph: the choice and the order of the matches that are rewritten."""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from functools import cached_property
from itertools import chain, count, islice
from typing import TYPE_CHECKING

from gsl.errors import ReplayError, RewriteError
from gsl.graph import Graph, Node, Op, by_operator
from gsl.graph.splice import Replacement, Splicer
from gsl.match import Candidates, Find, Match, MatchSearch, Miss, UseLists, add_candidates, candidates
from gsl.rewrite.check import Checker, Refusal, reused
from gsl.rewrite.near import Near
from gsl.rewrite.termination import no_end
from gsl.rewrite.trace import Firing, Refused, Trace, assumptions, identity, names_of

if TYPE_CHECKING:
    from gsl.rewrite.subst import Subst


Progress = Callable[[str], object]
"""A function that is told, in a few words, what is being done."""


def silent(_: str) -> None:
    """Progress that nobody wants to be told."""


Rank = tuple[int, ...]
"""The rank of a match by a strategy; the smallest is best."""
MAX_REFUSALS = 1000
"""The largest number of matches from one node that are looked at."""


class RulePass:
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
        take: Callable[[], Graph] | None = None,
        progress: Progress = silent,
        near: Near | None = None,
        before: RulePass | None = None,
    ) -> None:
        self.rules = rules
        self.near = near
        """The nodes at which matches are looked for; ``None`` for all. The list of all nodes is not put in order then:
        the next such pass goes on where this one, as its ``before``, ended."""
        self.progress = progress
        self.strategy = strategy
        self.trace = trace
        self.round = round
        self.limit = limit
        """The most firings that the trace may have in the end."""
        self.take = take
        """A function for a graph that must not be changed: it gives the copy that is worked on from the first match
        on."""
        self._work_on(graph, before)
        self.blocked: set[Node] = set()
        """The nodes that this pass has rewritten or made."""
        self.grouped: set[tuple[Subst, Node]] = set()
        """The members of groups (of a variadic rule) that were refused: they do not start a smaller group."""
        self.tried = 0
        """The number of nodes at which a search was started, all rules together: the measure of the cost of the
        pass."""
        self.moved: dict[Node, None] = {}
        """The nodes that have others near to them since the turn of the present rule began, as a ``Hint`` sees it."""

    def _work_on(self, graph: Graph, before: RulePass | None = None) -> None:
        self.graph = graph
        self.splicer: Splicer = Splicer(graph) if before is None else before.splicer
        self.checker: Checker = Checker(graph, self.splicer.outputs) if before is None else before.checker
        self.use_lists = UseLists(graph.by_op()) if self.near is None else UseLists()

    def run(self) -> None:
        """Rewrite the matches of the rules."""
        found = self._candidates(sorted(self.rules, key=lambda rule: -rule.priority))
        if self.take is not None:
            # The rules before the first one that matches have been tried at every node.
            first = next((number for number, (_, where) in enumerate(found) if self._has_match(where)), len(found))
            if first == len(found):
                return
            found = found[first:]
            source = self.graph
            self._work_on(self.take())
            if self.graph is not source:
                copies = self.graph.nodes
                for _, where in found:
                    where.nodes = [copies[node.index] for node in where.nodes]
        if self.strategy == "priority":
            for number, (rule, where) in enumerate(found):
                if self.moved:
                    self._move(where for _, where in found[number:])
                if where.nodes or where.late:
                    self.progress(f"round {self.round}, {len(self.trace.firings):,} rewrites: {rule.name}")
                    self._in_order(rule, where)
        else:
            self.progress(f"round {self.round}, {len(self.trace.firings):,} rewrites")
            self._best_first(found)
        self.finish()

    def finish(self) -> None:
        """Put the nodes in order, unless the pass looked at some of them only."""
        if self.near is None:
            self.splicer.finish()

    def _candidates(self, rules: Sequence[Subst]) -> list[tuple[Subst, Candidates]]:
        if self.near is None:
            return list(zip(rules, candidates([rule.plan for rule in rules], self.graph.by_op())))
        groups: dict[tuple[bool, int], list[Subst]] = {}
        for rule in rules:
            groups.setdefault((rule.plan.root is not None, rule.plan.height), []).append(rule)
        found: dict[Subst, Candidates] = {}
        for (at_roots, _), group in groups.items():
            by_op = by_operator(self.near.of(group[0].plan))
            found.update(zip(group, candidates([rule.plan for rule in group], by_op, near=True, at_roots=at_roots)))
        return [(rule, found[rule]) for rule in rules]

    def _has_match(self, where: Candidates) -> bool:
        find = where.start.finder(len(where.nodes))
        for node in where.nodes:
            self.tried += 1
            for _ in find(node, self.splicer.outputs, (), self.use_lists):
                return True
        return False

    @cached_property
    def places(self) -> dict[Node, int]:
        """The nodes at which the pass looks, with their places when it began."""
        return dict(zip(self._seen, count()))

    @property
    def _seen(self) -> Sequence[Node]:
        return self.graph.nodes if self.near is None else self.near.around

    def repeat(self, firing: Firing) -> None:
        """Rewrite the match of a firing. Raises ReplayError with the reason why that can't be."""
        rule = self.trace.rules[firing.rule]
        node = self.splicer.names.get(firing.at)
        if node is None:
            raise ReplayError(f"there is no node %{firing.at}")
        if node in self.blocked or node in self.splicer.dead:
            raise ReplayError(f"%{firing.at} has gone in the same round")
        search = MatchSearch(rule.plan, self.splicer.outputs, self.blocked, self.use_lists)
        misses: list[Miss] = []
        search.on_miss = misses.append
        found = 0
        for match in self._from_any_anchor(rule, node, search):
            found += 1
            if identity(match) == firing.match:
                try:
                    self.apply(rule, match, node)
                except Refusal as refusal:
                    raise ReplayError(f"it is refused: {refusal}") from None
                return
        if found:
            raise ReplayError(f"from %{node.name}, the rule matches other nodes than it did")
        miss = max(misses, key=lambda miss: miss.bound, default=None)
        place = f" at %{miss.node.name}" if miss is not None and miss.node is not None else ""
        raise ReplayError(f"there is no match from %{node.name}" + (f"{place}: {miss.reason}" if miss else ""))

    def _from_any_anchor(self, rule: Subst, node: Node, search: MatchSearch) -> Iterator[Match]:
        """The matches from a node: first those from the pattern from which a search in all nodes starts."""
        rarest, _ = rule.plan.rarest(self.graph.by_op())
        yield from rarest.matches(node, search)
        if self.near is not None:
            for start in rule.plan.starts():
                if start is not rarest:
                    yield from start.matches(node, search)

    def _is_free(self, rule: Subst, node: Node) -> bool:
        return node not in self.blocked and node not in self.splicer.dead and (rule, node) not in self.grouped

    def _in_order(self, rule: Subst, where: Candidates) -> None:
        """Rewrite the matches of a rule, node by node."""
        find = where.start.finder(len(where.nodes) + len(where.late))
        outputs, blocked, dead, grouped = self.splicer.outputs, self.blocked, self.splicer.dead, self.grouped
        use_lists, tried = self.use_lists, 0
        for node in where.nodes if where.ops is None else self._also_moved(where, where.ops):
            if node not in blocked and node not in dead and not (grouped and (rule, node) in grouped):
                tried += 1
                found = find(node, outputs, blocked, use_lists)
                if found == ():  # as nearly always where nothing matches
                    continue
                refused: dict[Refused, None] = {}
                for match in islice(found, MAX_REFUSALS):
                    reason = self._try(rule, match, node)
                    if reason is None:
                        break
                    refused[reason] = None
                if refused:
                    self.trace.refused += refused
        self.tried += tried

    def _move(self, later: Iterable[Candidates]) -> None:
        """Let the nodes that were moved be candidates of the rules whose turn comes."""
        add_candidates(later, by_operator([node for node in self.moved if node in self.places]))
        self.moved = {}

    def _also_moved(self, where: Candidates, ops: Collection[Op]) -> Iterator[Node]:
        """The candidates of a rule, and in their order those that its own rewrites may have made candidates."""
        nodes = where.nodes
        if where.late:
            nodes = sorted(dict.fromkeys((*nodes, *where.late)), key=self.places.__getitem__)
        late: list[int] = []  # the places of what was moved, as a heap
        noted = 0
        for node, following in zip(nodes, chain(islice(nodes, 1, None), (None,))):
            current = node
            yield current
            while late or len(self.moved) > noted:
                noted = self._note_late(late, ops, current, noted)
                if not late or (following is not None and late[0] > self.places[following]):
                    break
                place = heapq.heappop(late)
                if following is None or place < self.places[following]:
                    current = self._seen[place]
                    yield current

    def _note_late(self, late: list[int], ops: Collection[Op], current: Node, noted: int) -> int:
        """Put what was moved, but for the first ones, where it is a candidate behind the current node; the number of
        what was moved."""
        last = self.places[current]
        for other in islice(reversed(self.moved), len(self.moved) - noted):
            if other.op in ops and self.places.get(other, -1) > last:
                heapq.heappush(late, self.places[other])
        return len(self.moved)

    def _best_first(self, found: Sequence[tuple[Subst, Candidates]]) -> None:
        """Rewrite the match that is best of all, then the best that is left, and so on."""
        order = count()  # rules, then nodes, in their order: what comes first among equals
        queue: list[tuple[Rank, int, Subst, Find, Node]] = []
        for rule, where in found:
            find = where.start.finder(len(where.nodes))
            for node in where.nodes:
                best = min([self._key(rule, match) for match in self._matches(find, node)], default=None)
                if best is not None:
                    queue.append((best, next(order), rule, find, node))
        heapq.heapify(queue)
        seen: set[tuple[Subst, object]] = set()
        told: dict[Refused, None] = {}
        while queue:
            key, number, rule, find, node = heapq.heappop(queue)
            if not self._is_free(rule, node):
                continue
            left = [match for match in self._matches(find, node) if (rule, identity(match)) not in seen]
            match = min(left, key=lambda match: self._key(rule, match), default=None)
            if match is None:
                continue
            now = self._key(rule, match)
            if now <= key:
                seen.add((rule, identity(match)))
                refused = self._try(rule, match, node)
                if refused is None:
                    continue
                told[refused] = None
            heapq.heappush(queue, (now, number, rule, find, node))
        self.trace.refused += told

    def _matches(self, find: Find, node: Node) -> Iterable[Match]:
        self.tried += 1
        return islice(find(node, self.splicer.outputs, self.blocked, self.use_lists), MAX_REFUSALS)

    def _key(self, rule: Subst, match: Match) -> Rank:
        place = min(output.index for output in match.outputs)
        if self.strategy == "last":
            return (-place, -len(match.inner), -rule.priority)
        return (place if self.strategy == "first" else -len(match.inner), -rule.priority, place)

    def _try(self, rule: Subst, match: Match, node: Node) -> Refused | None:
        """Rewrite a match, or tell why not."""
        try:
            if rule.source.predicates:
                rule.admit(match)
            self.apply(rule, match, node)
        except Refusal as refusal:
            if rule.plan.variadic is not None:
                self.grouped.update((rule, output) for output in match.outputs)
            return Refused.of(rule.name, match, refusal)
        return None

    def apply(self, rule: Subst, match: Match, node: Node) -> None:
        """Rewrite a match that was found from a node. Raises Refusal if that must not be."""
        replacement, inner = self.prepare(rule, match)
        if self.limit is not None and len(self.trace.firings) >= self.limit:
            raise no_end(self.trace, self.limit)
        self._note_moves(replacement)
        self.splicer.apply(replacement, inner)
        self.checker.applied(replacement)
        self.blocked.update(inner, replacement.created)
        kept: tuple[str, ...] = ()
        dead = self.splicer.dead
        if not dead.issuperset(inner):
            alive = [other for other in inner if other not in dead]
            used = reused(replacement, alive)
            kept = names_of([other for other in alive if other not in used])
        new = names_of(replacement.new)
        made = new if replacement.created == replacement.new else names_of(replacement.created)
        assumed = assumptions(match) if rule.plan.domains else ()
        self.trace.firings.note(match, rule.name, new, kept, self.round, node.name, made, assumed)

    def _note_moves(self, replacement: Replacement) -> None:
        """Note the nodes that have others near to them than before.

        A call that a rewrite makes is part of no other match in this pass, so next to it nothing new can be found,
        unless it stands at several places of a match, as what it is made from.
        """
        if len(replacement.new) == 1 and replacement.created == replacement.new and replacement.used:
            return  # nearly always it is one call that is made of others, which stands at one place
        places = Counter(replacement.new) if len(replacement.new) > 1 else {}
        for old, new in zip(replacement.old, replacement.new):
            made = new.index < 0
            if made and new.operands and places.get(new, 1) == 1:
                continue
            self.use_lists.forget(new)
            if new is not old:
                for user in old.users:
                    self.moved.update(dict.fromkeys((user, *user.users)))
                if not made:
                    self.moved[new] = None

    def prepare(self, rule: Subst, match: Match) -> tuple[Replacement, tuple[Node, ...]]:
        """The replacement for a match; the graph is not changed. Raises Refusal if the match must not be rewritten."""
        if self.checker.effects:  # they are looked for before anything is rewritten
            self.checker.before(match)
        old, inner = match.outputs, match.inner
        try:
            new, created = rule.target.build(match, self.graph, rule.name)
        except Refusal:
            raise
        except Exception as error:
            raise RewriteError(f"{rule.title}: no target for {match!r}: {type(error).__name__}: {error}") from error
        if len(new) != len(old):
            raise RewriteError(f"{rule.title}: {len(new)} nodes in the target for the {len(old)} outputs of {match!r}")
        if tuple(new) == old:
            raise Refusal("the target is what was matched")
        replacement = Replacement(old, new, created)
        self.checker.after(replacement, inner)
        return replacement, inner

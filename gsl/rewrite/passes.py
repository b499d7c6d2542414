"""One pass of rules over a graph: the choice and the order of the matches that are rewritten."""

from __future__ import annotations

import heapq
from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from itertools import chain, count, islice
from typing import TYPE_CHECKING, Any, NamedTuple

from gsl.attr.evaluate import same
from gsl.errors import FixpointError, ReplayError, RewriteError
from gsl.graph import Effect, Graph, Node, Op, Type, by_operator
from gsl.graph.splice import Replacement, Splicer
from gsl.match import Candidates, Find, Match, MatchSearch, Miss, UseLists, add_candidates, candidates
from gsl.rewrite.check import Checker, Refusal
from gsl.rewrite.cse import frozen
from gsl.rewrite.near import Near
from gsl.rewrite.trace import Firing, Refused, Trace, assumptions, identity, names_of

if TYPE_CHECKING:
    from gsl.rewrite.subst import Subst


SHOWN = 10
"""The largest number of firings that an error shows."""
SELDOM = 8
"""One in so many rounds that leave a graph out of order is looked at for a loop."""

class GraphState(NamedTuple):
    """The state of a graph: for each node everything that rewriting depends on, nodes being told by their places."""

    ops: list[Op]
    types: list[Type | None]
    effects: list[Effect | None]
    attrs: list[Mapping[str, Any]]
    links: array[int]
    """The operands, users and deps of each node, and the outputs."""


class Watch:
    """Compares the graph after every round with an earlier state of it, and raises when that has come back.

    The rules are functions of the graph, so a graph that was there before comes again and again. The earlier state is
    that after round 0, 1, 3, 7, … (R. P. Brent, "An improved Monte Carlo factorization algorithm", BIT 20, 1980): one
    state is kept, and a loop is found within three times its rounds, or three times the rounds that lead to it. A graph
    that is smaller than ever before has not been there before, so it is not looked at, and another state is kept when
    it shrinks no more.
    """

    def __init__(self, graph: Graph, firings: int = 0) -> None:
        self.state = _state(graph)
        self.firings = firings
        """The number of firings by then."""
        self.least = len(graph)
        """The fewest nodes that it had."""
        self.rounds = 0
        self.renewal = 1

    def check(self, graph: Graph, trace: Trace) -> None:
        """Look at the graph after a round, in order. Raises FixpointError, with the rewrites that lead back."""
        shrunk = len(graph) < self.least
        self.skip(len(graph))
        renewed = self.rounds >= self.renewal
        if shrunk or (not renewed and not self._has_operators(graph)):
            return
        state = _state(graph)
        if _same_states(self.state, state):
            raise FixpointError(_circle(trace.firings[self.firings :]))
        if renewed:
            self.state, self.firings, self.renewal = state, len(trace.firings), 2 * self.rounds + 1

    def wants(self, size: int) -> bool:
        """True if a graph of so many nodes, which is not in order, has to be looked at after this round, too.

        Of such rounds one in a few is enough: a loop takes a few times as long to be found.
        """
        rounds = self.rounds + 1
        due = rounds >= self.renewal or (rounds % SELDOM == 0 and size == len(self.state.ops))
        return due and size >= self.least

    def skip(self, size: int) -> None:
        """Let a round pass, after which there are so many nodes, without a look at the graph."""
        self.rounds += 1
        self.least = min(self.least, size)

    def _has_operators(self, graph: Graph) -> bool:
        """True if the graph has the operators of the earlier state in their order, which is cheap to see."""
        nodes, ops = graph.nodes, self.state.ops
        return len(nodes) == len(ops) and all(node.op == op for node, op in zip(nodes, ops))


def no_end(trace: Trace, limit: int) -> FixpointError:
    """The error of a run that has used up its steps."""
    recent = trace.firings[-100:]
    return FixpointError(
        f"no end after {limit} rewrites; {_rules(recent)} still fire{_s(recent)}, and the graph was not seen to return "
        f"to an earlier state: look whether what a rule makes matches again. The last rewrites:\n"
        f"{_lines(trace.firings[-SHOWN:])}\n"
        "Let the source exclude what the target makes, or give max_steps=… if it only takes longer"
    )


def _circle(firings: Sequence[Firing]) -> str:
    one = _at_one_place(firings)
    shown = one[:SHOWN]
    rest = len(firings) - len(shown)
    more = f"\n  … and {_plural(rest, 'more rewrite')}" if rest else ""
    several = len({firing.rule for firing in firings}) > 1
    rounds = firings[-1].round - firings[0].round + 1
    return (
        f"{_rules(firings)} {'go' if several else 'goes'} round in circles: after round "
        f"{firings[-1].round} the graph is what it was {_plural(rounds, 'round')} before. What leads back:\n"
        f"{_lines(shown)}{more}\n"
        f"{'Leave one of them out, or let its' if several else 'Let the'} source exclude what "
        f"{'another' if several else 'the target'} makes"
    )


def _at_one_place(firings: Sequence[Firing]) -> list[Firing]:
    """The firings that continue from the nodes of the first one; all of them if none does."""
    made = set(firings[0].by)
    found = [firings[0]]
    for firing in firings[1:]:
        if not made.isdisjoint(firing.replaced):
            found.append(firing)
            made.difference_update(firing.replaced)
            made.update(firing.by)
    return found if len({f.rule for f in found}) == len({f.rule for f in firings}) else list(firings)


def _rules(firings: Sequence[Firing]) -> str:
    names = list(dict.fromkeys(firing.rule for firing in firings))
    unnamed = len(names) == 1 and names[0].startswith("rule at ")
    return f"the {'' if unnamed else 'rule ' if len(names) == 1 else 'rules '}{', '.join(names)}"


def _plural(number: int, what: str) -> str:
    return f"{number} {what}{'s' * (number != 1)}"


def _s(firings: Sequence[Firing]) -> str:
    return "s" if len({firing.rule for firing in firings}) == 1 else ""


def _lines(firings: Sequence[Firing]) -> str:
    return "\n".join(f"  round {firing.round}: {firing}" for firing in firings)


def _state(graph: Graph) -> GraphState:
    return GraphState(
        [node.op for node in graph.nodes],
        [node.type for node in graph.nodes],
        [node.effect for node in graph.nodes],
        [node.attrs for node in graph.nodes],
        array("q", _links(graph)),
    )


def _links(graph: Graph) -> Iterator[int]:
    """The places of the operands, users and deps of each node, and those of the outputs."""
    for node in graph.nodes:
        for operand in node.operands:
            yield operand.index
        yield -1
        for user in node.users:
            yield user.index
        yield -1
        for dep in node.deps:
            yield dep.index
        yield -1
    for output in graph.outputs:
        yield output.index


def _same_states(before: GraphState, after: GraphState) -> bool:
    # What is cheap comes first: attributes are compared where all else is equal.
    if before[:3] != after[:3] or before.links != after.links:
        return False
    return all(a is b or _same_attributes(a, b) for a, b in zip(before.attrs, after.attrs))


def _same_attributes(before: Mapping[str, Any], after: Mapping[str, Any]) -> bool:
    return before.keys() == after.keys() and all(_same_values(before[name], after[name]) for name in before)


def _same_values(before: Any, after: Any) -> bool:
    if before is after or frozen(before) == frozen(after):
        return True
    tensors = all(hasattr(value, "shape") and hasattr(value, "dtype") for value in (before, after))
    return tensors and bool(before.dtype == after.dtype) and same(before, after)


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
        """The nodes that have others near to them since the turn of the present rule began, as a ``Hint`` sees it; all
        are older than the pass."""

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
            found.update(zip(group, candidates([rule.plan for rule in group], by_op, at_roots=at_roots)))
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
        return {node: place for place, node in enumerate(self._seen)}

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
        rarest = rule.plan.start(rule.plan.rarest(self.graph.by_op())[0])
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
        for node in where.nodes if where.ops is None else self._also_moved(where):
            if node not in blocked and node not in dead and not (grouped and (rule, node) in grouped):
                tried += 1
                refused: dict[Refused, None] = {}
                for match in islice(find(node, outputs, blocked, use_lists), MAX_REFUSALS):
                    reason = self._try(rule, match, node)
                    if reason is None:
                        break
                    refused[reason] = None
                if refused:
                    self.trace.refused += refused
        self.tried += tried

    def _move(self, later: Iterable[Candidates]) -> None:
        """Let the nodes that were moved be candidates of the rules whose turn comes."""
        places, dead, blocked = self.places, self.splicer.dead, self.blocked
        moved = [node for node in self.moved if node in places and node not in dead and node not in blocked]
        add_candidates(later, by_operator(moved))
        self.moved = {}

    def _also_moved(self, where: Candidates) -> Iterator[Node]:
        """The candidates of a rule, and in their order those that its own rewrites may have made candidates."""
        nodes = where.nodes
        if where.late:
            nodes = sorted(dict.fromkeys((*nodes, *where.late)), key=self.places.__getitem__)
        late: list[int] = []  # the places of what was moved, as a heap
        noted = 0
        current: Node | None = None
        to_come: Iterator[Node | None] = chain(nodes, (None,))
        for following in to_come:
            while late or len(self.moved) > noted:
                noted = self._note_late(late, where, current, noted)
                if not late or (following is not None and late[0] > self.places[following]):
                    break
                place = heapq.heappop(late)
                if following is None or place < self.places[following]:
                    current = self._seen[place]
                    yield current
            if following is not None:
                current = following
                yield current

    def _note_late(self, late: list[int], where: Candidates, current: Node | None, noted: int) -> int:
        """Put what was moved, but for the first ones, where it is a candidate behind the current node; the number of
        what was moved."""
        last = -1 if current is None else self.places[current]
        for other in islice(reversed(self.moved), len(self.moved) - noted):
            if where.ops is not None and other.op in where.ops and self.places.get(other, -1) > last:
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
                self.trace.refused.append(refused)
            heapq.heappush(queue, (now, number, rule, find, node))

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
        if self.checker.effects:
            self.checker.applied(replacement)
        self.blocked.update(inner, replacement.created)
        kept: tuple[str, ...] = ()
        dead = self.splicer.dead
        if not dead.issuperset(inner):
            alive = [other for other in inner if other not in dead]
            reused = _reused(replacement, alive)
            kept = names_of([other for other in alive if other not in reused])
        new = names_of(replacement.new)
        made = new if replacement.created == replacement.new else names_of(replacement.created)
        assumed = assumptions(match) if rule.plan.domains else ()
        self.trace.firings.note(match, rule.name, new, kept, self.round, node.name, made, assumed)

    def _note_moves(self, replacement: Replacement) -> None:
        """Note the nodes that have others near to them than before, where they are older than the pass.

        A call that a rewrite makes is part of no other match in this pass, so next to it nothing new can be found,
        unless it stands at several places of a match, as what it is made from.
        """
        for old, new in zip(replacement.old, replacement.new):
            made = new.index < 0
            if made and new.operands and (len(replacement.new) == 1 or replacement.new.count(new) == 1):
                continue
            self.use_lists.forget(new)
            if new is not old:
                for user in old.users:
                    if user not in self.blocked:
                        self.moved[user] = None
                    self.moved.update(dict.fromkeys([far for far in user.users if far not in self.blocked]))
                if not made and new not in self.blocked:
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


def _reused(replacement: Replacement, inner: Sequence[Node]) -> set[Node]:
    """The covered nodes from which the new ones are computed."""
    covered, reused = set(inner), set[Node]()
    work = [] if covered.isdisjoint(replacement.used) else list(replacement.used)
    while work:
        node = work.pop()
        if node in covered and node not in reused:
            reused.add(node)
            work.extend(node.operands)
    return reused

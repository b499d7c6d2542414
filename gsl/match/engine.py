"""The search: the machine that follows instructions with the nodes of a graph.

It keeps goals, choice points and a trail: complete backtracking without recursion over the graph.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Container, Iterable, Iterator, Mapping, Sequence
from itertools import chain, pairwise
from operator import attrgetter
from types import MappingProxyType
from typing import Any, Final

from gsl.graph import Node, Op
from gsl.match.bindings import AttrPath, Bindings
from gsl.match.guard import Guard
from gsl.match.machine import END, Goals, Machine
from gsl.match.many import Apart, Dependents, RepeatMatcher, VariadicMatcher, place_items
from gsl.match.matchers import COMMUTATIVE, CallMatcher, Matcher, TupleMatcher
from gsl.match.result import Match, Miss
from gsl.match.source import CheckedSource
from gsl.match.uses import Link
from gsl.pat import OpClass, Pattern

MANY = 16
"""The number of users from which on they are kept here."""
NOTHING: Final[Mapping[Op, list[Node]]] = MappingProxyType({})


class UseLists:
    """For nodes with many users, those of some operators in graph order, without the users that were rewritten before
    them.

    For one graph, while nothing but a pass changes it: ``blocked`` grows from call to call.
    """

    def __init__(self, by_op: Mapping[Op, list[Node]] = NOTHING) -> None:
        self._by_op = by_op
        """The nodes of each operator in graph order, if they are known."""
        self._users: dict[Node, dict[frozenset[Op] | None, list[Node]]] = {}
        self._first: dict[tuple[Node, frozenset[Op] | None], int] = {}
        """The number of nodes at the beginning of a list that are no users, or are blocked."""
        self._dependents: dict[VariadicMatcher, Dependents] = {}

    def above(self, node: Node, ops: frozenset[Op] | None, blocked: Collection[Node]) -> Iterator[Node]:
        """The users that have one of the operators (``None``: any) and are not blocked."""
        known = self._users.setdefault(node, {})
        users = known.get(ops)
        if users is None:
            users = known[ops] = self._among(node, ops)
            self._first[node, ops] = 0
        first = self._first[node, ops]
        while first < len(users) and (users[first] in blocked or users[first] not in node.users):
            first += 1
        self._first[node, ops] = first
        for number in range(first, len(users)):
            user = users[number]
            if user not in blocked and user in node.users:
                yield user

    def _among(self, node: Node, ops: frozenset[Op] | None) -> list[Node]:
        """Nodes in graph order, among which are all users that have one of the operators."""
        if ops is not None and len(ops) == 1:
            (op,) = ops
            nodes = self._by_op.get(op)
            if nodes is not None and len(nodes) <= 2 * len(node.users):
                return nodes
        found = [user for user in node.users if ops is None or user.op in ops]
        return sorted(found, key=_index)

    def apart(
        self, group: VariadicMatcher, first: Node, outputs: Container[Node], blocked: Collection[Node]
    ) -> Apart:
        """The nodes that may be instances beside the first one of a group that shares none."""
        found = self._dependents.get(group)
        if found is None:
            nodes = chain.from_iterable(each for each in self._by_op.values() if group.may_have(each[0]))
            effects = [node for each in self._by_op.values() for node in each if node.effect is not None]
            found = self._dependents[group] = Dependents(nodes, effects)
        return Apart(found, first, outputs, blocked)

    def forget(self, node: Node) -> None:
        """Look at the users of a node anew: it has got others."""
        self._users.pop(node, None)


Skipped = tuple[Node, ...]
"""The nodes that stand between a user and its operand, from the user down."""
SKIPPED = (None, ())
"""The owner of the nodes that are skipped: any number of relations may skip the same one."""


class MatchSearch(Machine[Node]):
    """The state of one search: bindings, the nodes that operators have taken, and where to go back to."""

    steps = 0
    """The number of goals that were tried: the measure of the search's cost."""
    on_miss: Callable[[Miss], None] | None = None
    """A function that is told each failed condition."""

    def __init__(
        self,
        plan: CheckedSource,
        outputs: Container[Node],
        blocked: Collection[Node] = (),
        use_lists: UseLists | None = None,
    ) -> None:
        super().__init__(plan.scopes)
        self.fuzzy = plan.fuzzy
        """The operators that may stand between related nodes."""
        self.outputs = outputs
        """The outputs of the graph, which count as uses."""
        self.blocked = blocked
        """Nodes that no operator of the pattern may be."""
        self.use_lists = use_lists
        """The facts about users that are known, if there are any."""
        self.choices: list[tuple[Iterator[Goals], int]] = []

    # The goals.

    def solve(self, goals: Goals) -> Iterator[None]:
        """Stop at every way to reach all goals. The bindings then hold, until the next step of the iteration."""
        floor, mark = len(self.choices), len(self.trail)
        remaining: Goals | None = goals
        while True:
            while remaining:
                self.steps += 1
                function, argument, path, rest = remaining
                remaining = function(self, argument, path, rest)
            if remaining is not None:
                yield
            remaining = self._next(floor)
            if remaining is None:
                self.undo(mark)
                return

    def exists(self, goals: Goals) -> bool:
        """True if the goals can be reached, whatever nodes the operators have taken; the bindings stay as they are."""
        floor, mark = len(self.choices), len(self.trail)
        taken, blocked, skipped, failed = self.taken, self.blocked, self.bindings.skipped, self.failed
        self.taken, self.blocked, self.bindings.skipped, self.failed = {}, (), {}, set()
        found = next(self.solve(goals), self) is None
        del self.choices[floor:]
        self.undo(mark)
        self.taken, self.blocked, self.bindings.skipped, self.failed = taken, blocked, skipped, failed
        return found

    def once(self, goals: Goals) -> bool:
        """Reach the goals in the first way and keep its bindings; false if there is none."""
        floor = len(self.choices)
        found = next(self.solve(goals), self) is None
        del self.choices[floor:]
        return found

    def choose(self, alternatives: Iterator[Goals]) -> Goals | None:
        self.choices.append((alternatives, len(self.trail)))
        return self._next(len(self.choices) - 1)

    def _next(self, floor: int) -> Goals | None:
        """Go back to the last choice above the floor that has another continuation, and take that."""
        while len(self.choices) > floor:
            alternatives, mark = self.choices[-1]
            self.undo(mark)
            goals = next(alternatives, None)
            if goals is not None:
                return goals
            self.choices.pop()
        return None

    @property
    def learns(self) -> bool:
        return self.on_miss is None

    # Tests.

    def miss(self, pattern: Pattern | None, node: Node | None, what: str, expected: Any, found: Any) -> bool:
        if self.on_miss is not None:
            self.on_miss(Miss(pattern, node, what, expected, found, len(self.bindings.nodes)))
        return False

    def same(self, pattern: Pattern, node: Node, bound: Node) -> bool:
        return bound is node or self.miss(pattern, node, "same node", bound, node)

    def may_be(self, matcher: Matcher, node: Node) -> bool:
        return matcher.plausible(node) if self.fuzzy or self.on_miss is not None else matcher.likely(node)

    def has_operator(self, matcher: Matcher, node: Node, what: str, expected: Any) -> bool:
        accepts = matcher.accepts
        return accepts is None or accepts(node.op) or self.miss(matcher.pattern, node, what, expected, node.op)

    def has_operands(
        self, matcher: Matcher, node: Node, what: str, number: int, *, more: bool = False, fewer: bool = False
    ) -> bool:
        found = len(node.operands)
        holds = found == number or (more and found > number) or (fewer and found < number)
        return holds or self.miss(matcher.pattern, node, what, number, found)

    def has_literals(self, matcher: CallMatcher, node: Node) -> bool:
        return matcher.literals_hold(self, node) if self.on_miss is not None else matcher.in_another_form(self, node)

    def same_operator(self, op: OpClass, node: Node) -> bool:
        known = self.operators.get(op)
        if known is None:
            self.record(self.operators, op, node.op)
            return True
        return known == node.op or self.miss(None, node, "same operator", known, node.op)

    def ask(self, test: Callable[[MatchSearch, Node], bool], node: Node) -> bool:
        return test(self, node)

    def take(self, matcher: Matcher, node: Node, path: AttrPath) -> bool:
        return self._reserve(node, (matcher.identity, path[: matcher.level]))

    def _reserve(self, node: Node, owner: Any) -> bool:
        """Reserve a node for its owner; false if it is another one's already, or blocked."""
        taken = self.taken.get(node)
        if taken is not None:
            if taken == owner:
                return True
            self.overlaps += 1
            return self.miss(owner[0], node, "overlap", "a node of its own", taken[0])
        if node in self.blocked:
            return self.miss(owner[0], node, "overlap", "an untouched node", "rewritten in this pass")
        self.record(self.taken, node, owner)
        return True

    def holds(self, guard: Guard, path: AttrPath) -> bool:
        return guard.check(self, path)

    # Ways on.

    def operands(self, node: Node, number: int) -> Sequence[Node]:
        return node.operands

    def either_order(self, matcher: CallMatcher, node: Node, goals: Callable[[Node, Node], Goals]) -> Goals | None:
        (first, second), (left, right) = matcher.operands, node.operands
        turns = left is not right and node.op in COMMUTATIVE and first.plausible(right) and second.plausible(left)
        if not turns:
            return goals(left, right)
        if not (first.plausible(left) and second.plausible(right)):
            return goals(right, left)
        return self.choose(iter((goals(left, right), goals(right, left))))

    def each(
        self, nodes: Collection[Node] | Iterator[Node], goals: Callable[[Node], Goals | None], *, in_order: bool = False
    ) -> Goals | None:
        if isinstance(nodes, list):
            if len(nodes) == 1:
                return goals(nodes[0])
            if in_order:
                nodes.sort(key=_index)
        return self.choose(map(goals, nodes))

    def users(self, matcher: Matcher, below: Sequence[list[Node]], *, last: bool) -> list[Node] | Iterator[Node]:
        if last and self.use_lists is not None and len(below) == 1 and len(below[0]) == 1:
            use_list = self._use_list(self.use_lists, matcher, below[0][0])
            if use_list is not None:
                return use_list
        found: dict[Node, None] = {}
        accepts = matcher.accepts
        for node in chain.from_iterable(below):
            before = len(found)
            for user in (node,) if matcher.same_node else self.users_beyond(node):
                if accepts is None or accepts(user.op):
                    found[user] = None
            if len(found) == before and not matcher.same_node:
                self.miss(matcher.pattern, node, "user", matcher.pattern, list(node.users))
        return list(found)

    def _use_list(self, use_lists: UseLists, matcher: Matcher, node: Node) -> Iterator[Node] | None:
        """The nodes that the pattern may be, one after the other, where they are among the many users of one node."""
        if len(node.users) < MANY or self.on_miss is not None or self.fuzzy or not isinstance(matcher, CallMatcher):
            return None
        return use_lists.above(node, matcher.ops, self.blocked)

    def connected(self, matcher: Matcher) -> list[Node]:
        return list(filter(matcher.plausible, connected(self.bindings.nodes.values())))

    # Relations.

    def relate(self, link: Link, operand: Node, user: Node, key: Any, rest: Goals) -> Goals | None:
        ways = self.ways(link, operand, user)
        if ways == [()]:
            self.record(self.related, key, True)
            return rest

        def hold() -> Iterator[Goals]:
            for skipped in ways:
                if self.skip_all(skipped):
                    self.record(self.related, key, True)
                    yield rest

        return self.choose(hold())

    def ways(self, link: Link, operand: Node, user: Node) -> list[Skipped]:
        """The ways from the user down to its operand, as the relation wants them."""
        use = link.use
        ways = [skipped for node, skipped in self._below(link, user) if node is operand]
        if not ways:
            place = "operand" if use.index is None else f"operand {use.index}"
            self.miss(use.user, user, place, operand, list(user.operands))
        return [skipped for skipped in ways if not use.only or self._alone(use.operand, operand, user, skipped)]

    def _below(self, link: Link, user: Node) -> Iterator[tuple[Node, Skipped]]:
        """The nodes that are operands of the user, each with the nodes that are skipped on the way to it."""
        index = link.use.index
        operands = user.operands if index is None else user.operands[index : index + 1]
        for node in dict.fromkeys(operands):
            yield from self.beyond(node)

    def _alone(self, pattern: Pattern, operand: Node, user: Node, skipped: Skipped) -> bool:
        """True if nothing else uses the operand."""
        for above, node in pairwise((user, *skipped, operand)):
            other = next((other for other in node.users if other is not above), None)
            if other is not None:
                return self.miss(pattern, node, "only user", above, other)
            if node in self.outputs:
                return self.miss(pattern, node, "only user", above, "the graph's output")
        return True

    def used_by(self, link: Link, user: Node) -> list[Node]:
        operands = self.operands_beyond(link, user)
        below = list(filter(link.operand.plausible, operands))
        if not below:
            self.miss(link.operand.pattern, user, "operand", link.operand.pattern, operands)
        return below

    def operands_beyond(self, link: Link, user: Node) -> list[Node]:
        """The operands of a user where the relation wants one, also beyond nodes that may be skipped."""
        return list(dict.fromkeys(node for node, _ in self._below(link, user)))

    def users_of(self, link: Link, operand: Node) -> list[Node]:
        nodes = list(link.user.firsts(self, self.users_beyond(operand)))
        if not nodes:
            self.miss(link.user.pattern, operand, "user", link.user.pattern, list(operand.users))
        return nodes

    # What is there any number of times.

    def chain_down(self, matcher: RepeatMatcher, last: Node, path: AttrPath, rest: Goals) -> Goals:
        return matcher.down(last, path, rest)

    def chain_up(self, matcher: RepeatMatcher, first: Node, path: AttrPath, rest: Goals) -> Goals:
        return matcher.up(first, path, rest)

    def fields(self, matcher: VariadicMatcher, node: Node, path: AttrPath, rest: Goals) -> Goals:
        outer = path[: matcher.level]
        self.record(self.bindings.counts, (matcher.pattern, outer), len(node.operands))
        for number in reversed(range(len(node.operands))):
            rest = matcher.instance(number, node.operands[number], outer, rest)
        return rest

    def divide(self, matcher: TupleMatcher, node: Node, path: AttrPath, rest: Goals) -> Goals:
        return (place_items, (matcher, node, 0, 0), path, rest)

    def members(self, matcher: VariadicMatcher, first: Node, rest: Goals) -> Goals | None:
        pattern, number = matcher.pattern, 1
        others: Apart | list[Node]
        if matcher.members is None:
            assert self.use_lists is not None, "the nodes of the graph are not known"
            others = self.use_lists.apart(matcher, first, self.outputs, self.blocked)
        else:
            others = sorted(matcher.members.nodes(self, ()), key=_index)
        for other in others:
            if number == pattern.max_len:
                break
            # Without a first instance of its own kind, the first one in the graph is the first one.
            if other in self.taken or (other.index < first.index and not pattern.first):
                continue
            if self.once(matcher.instance(number, other, (), END)):
                number += 1
                if isinstance(others, Apart):
                    others.take(other)
        self.record(self.bindings.counts, (pattern, ()), number)
        if number >= pattern.min_len:
            return rest
        self.miss(pattern, first, "instances", f"{pattern.min_len} or more", number)
        return None

    # Nodes that may be skipped.

    def users_beyond(self, node: Node) -> list[Node]:
        """The users of a node, also beyond nodes that may be skipped."""
        if not self.fuzzy:
            return list(node.users)
        found: dict[Node, None] = {}
        work = [node]
        while work:
            for user in work.pop().users:
                if user not in found:
                    found[user] = None
                    if user.op in self.fuzzy:
                        work.append(user)
        return list(found)

    def beyond(self, node: Node) -> Iterator[tuple[Node, Skipped]]:
        """An operand, and the nodes that it becomes when nodes are skipped: for each of these its first operand."""
        skipped: Skipped = ()
        yield node, skipped
        while node.op in self.fuzzy and node.operands:
            skipped = (*skipped, node)
            node = node.operands[0]
            yield node, skipped

    def skip(self, node: Node, goals: Callable[[Node], Goals]) -> Goals | None:
        if node.op not in self.fuzzy:
            return goals(node)
        return self.choose(goals(below) for below, skipped in self.beyond(node) if self.skip_all(skipped))

    def skip_all(self, nodes: Iterable[Node]) -> bool:
        """Let nodes stand between two related ones: they are part of the match, but no pattern is bound to them."""
        mark = len(self.trail)
        for node in nodes:
            if node not in self.bindings.skipped:
                if not self._reserve(node, SKIPPED):
                    self.undo(mark)
                    return False
                self.record(self.bindings.skipped, node, True)
        return True


def held(plan: CheckedSource, search: MatchSearch) -> Match:
    """The bindings of a search as a match, which keeps them when the search goes on."""
    bindings = Bindings(plan.scopes, dict(search.bindings.nodes), dict(search.bindings.chosen))
    bindings.counts = dict(search.bindings.counts)
    bindings.heads = dict(search.bindings.heads)
    bindings.skipped = dict(search.bindings.skipped)
    return Match(plan, bindings, dict(search.operators))


def connected(nodes: Iterable[Node]) -> Iterable[Node]:
    """The nodes from which operands and users lead to one of the given ones."""
    seen = dict.fromkeys(nodes)
    work = list(seen)
    while work:
        node = work.pop()
        new = [other for other in (*node.operands, *node.users) if other not in seen]
        seen.update(dict.fromkeys(new))
        work += new
    return seen


_index = attrgetter("index")

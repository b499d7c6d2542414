"""Steps of a search over programs: matches, with what rewriting them changes of the cost.

A step is priced from its match and from what the target would be made of. The program that it leads to is not built.
"""

from __future__ import annotations

import math
from collections.abc import Container, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from operator import attrgetter
from typing import Any

from gsl.cache import Store
from gsl.cost.machine import threads_of
from gsl.cost.model import Analytic, ByNode, PerNode
from gsl.cost.space import Space
from gsl.graph import INPUT, LEAVES, Graph, Node, Op, is_call
from gsl.graph.splice import Replacement, is_new
from gsl.match import Find, Match, UseLists
from gsl.match.bindings import Bindings
from gsl.match.plan import PAYS
from gsl.pat import Call, GetItem, Leaf, OpClass, Tuple
from gsl.rewrite import Subst, Trace
from gsl.rewrite.check import Refusal
from gsl.rewrite.cse import frozen
from gsl.rewrite.passes import RulePass
from gsl.walk import reached

StepKey = tuple[Hashable, ...]


@dataclass(frozen=True, slots=True, eq=False)
class SearchStep:
    """A match, told by the names of its nodes, and what the program costs more when it is rewritten."""

    rule: Subst
    key: StepKey
    """The key of its match."""
    at: str
    """The node at which the search started."""
    bound: Mapping[Any, str]
    """The nodes that its patterns are bound to."""
    operators: Mapping[OpClass, Op]
    """The operators that classes of them stand for."""
    inner: frozenset[str]
    """The calls that it covers."""
    covered: frozenset[str]
    """The same, and those that go with them."""
    beside: frozenset[str]
    """The other calls on which its price depends."""
    change: float | None
    """``None`` where the match is refused."""

    def is_like(self, other: SearchStep) -> bool:
        """True if another step of the same match has the same price, for the same reasons."""
        return (self.change, self.covered, self.beside) == (other.change, other.covered, other.beside)


class Prices:
    """The costs of calls in a program and in what rules make of it, and the keys that tell programs from each other."""

    def __init__(self, space: Space) -> None:
        self.space = space
        self.exact = isinstance(space.model, ByNode)
        """True if these are the prices of the model; otherwise they are analytic, and the model decides in the end."""
        self.of = _prices(space)
        self._hashes: dict[int, tuple[Any, int]] = {}

    def price(self, node: Node) -> float:
        """The cost of a node in a run that does not find it computed."""
        return self.of(node) if is_call(node) else 0.0

    def hash_of(self, node: Node, parts: Iterable[int]) -> int:
        """A number that is the same for nodes that compute the same in the same way, from those of the operands."""
        if node.op == INPUT or node.effect is not None:
            return hash((node.op, node.name, *parts))
        return hash((node.op, self._of_attributes(node.attrs), *parts))

    def _of_attributes(self, attrs: Mapping[str, Any]) -> int:
        known = self._hashes.get(id(attrs))
        if known is None:
            try:
                value = hash(frozen(attrs))
            except TypeError:  # what has no hash is equal to itself only
                value = id(attrs)
            known = self._hashes[id(attrs)] = attrs, value  # kept, so that nothing else gets its number
        return known[1]


def _prices(space: Space) -> PerNode:
    if isinstance(space.model, ByNode):
        return space.model.prices(space.workload)
    with threads_of(None) as number:
        return Analytic(number, Store()).prices(space.workload)


Links = tuple[tuple[Node, ...], tuple[Node, ...], tuple[Node, ...]]
"""The users, operands and deps of a node."""


def links_of(node: Node) -> Links:
    """The links of a node at present."""
    return tuple(node.users), node.operands, node.deps


@dataclass(frozen=True)
class Changes:
    """The differences of a program from the one before the last step, by names."""

    anew: frozenset[str]
    """The nodes that came, went or have other operands, and the outputs that are none any more, or were none."""
    users: Mapping[str, tuple[frozenset[str], frozenset[str]]]
    """The other calls that have other users, with those before and after."""

    @staticmethod
    def of(before: Mapping[Node, Links], ends: frozenset[Node], graph: Graph) -> Changes:
        """The differences of a view from one of which the nodes with their links, and the outputs, were these."""
        now = set(graph.nodes)
        kept = [(node, old, links_of(node)) for node, old in before.items() if node in now]
        anew = [node.name for node in before.keys() ^ now]
        anew += [node.name for node, (_, *old), (_, *new) in kept if old != new]
        anew += [node.name for node in ends ^ graph.ends()]
        users = {
            node.name: (_names(old), _names(new))
            for node, (old, *_), (new, *_) in kept
            if node.op not in LEAVES and old != new
        }
        return Changes(frozenset(anew), users)

    @cached_property
    def names(self) -> set[str]:
        """The names of all these nodes."""
        return {*self.anew, *self.users}

    def spare(self, step: SearchStep) -> bool:
        """True if a step is as it was."""
        if not (self.anew.isdisjoint(step.covered) and self.anew.isdisjoint(step.beside)):
            return False
        if not self.users.keys().isdisjoint(step.covered):
            return False
        # Of a call with several other users, it does not matter which they are.
        both = [users for name in self.users.keys() & step.beside for users in self.users[name]]
        return all(len(users - step.covered) > 1 for users in both)


def _above(nodes: Iterable[Node]) -> dict[Node, None]:
    """The nodes, and all that are made from them, operands first."""
    return dict.fromkeys(sorted(reached(nodes, lambda node: node.users), key=attrgetter("index")))


def _names(nodes: Iterable[Node]) -> frozenset[str]:
    return frozenset([node.name for node in nodes])


class Priced:
    """A view with its cost, in which steps are found and priced. Nothing changes it."""

    def __init__(
        self, graph: Graph, prices: Prices, before: Priced | None = None, changes: Changes | None = None
    ) -> None:
        """The view, which may be what ``changes`` made of one that is known."""
        self.graph = graph
        self.prices = prices
        self.names = {node.name: node for node in graph.nodes}
        self.ends = graph.ends()
        self.hashes: dict[str, int] = {}
        """The hashes of the nodes, by name."""
        self.costs: dict[str, float] = {}
        """The costs of the nodes, by name."""
        if before is None or changes is None:
            self._compute()
        else:
            self._update(before, changes)
        self.cost = math.fsum(self.costs.values())  # whatever their order

    def _compute(self) -> None:
        self.ahead = self.prices.space.ahead(self.graph)
        for node in self.graph.nodes:
            self.hashes[node.name] = self._hash_of(node)
            self.costs[node.name] = self.price(node)

    def _hash_of(self, node: Node) -> int:
        return self.prices.hash_of(node, [self.hashes[part.name] for part in (*node.operands, *node.deps)])

    def _update(self, before: Priced, changes: Changes) -> None:
        """Compute what is not known from before: of what is made from something new, and the prices near to that."""
        names, space = self.names, self.prices.space
        steady = not any(node.effect is not None for node in self.graph.nodes)
        self.hashes, self.costs = dict(before.hashes), dict(before.costs)
        for name in changes.anew:
            if name not in names:
                self.hashes.pop(name, None)
                self.costs.pop(name, None)
        anew = _above([*self._named(changes.anew), *[node for node in self.graph.nodes if node.deps]])
        near = dict.fromkeys(self._named(changes.names))
        near.update(dict.fromkeys([user for node in near for user in node.users]))
        if steady:
            known = [(names.get(old.name), ahead) for old, ahead in before.ahead.items()]
            self.ahead = {node: ahead for node, ahead in known if node is not None and node not in anew}
        else:
            self.ahead = space.ahead(self.graph)
        for node in anew:
            self.hashes[node.name] = self._hash_of(node)
            ahead = space.is_ahead(node, self.ahead) if steady else None
            if ahead is not None:
                self.ahead[node] = ahead
        for node in near:
            self.costs[node.name] = self.price(node)

    def _named(self, names: Iterable[str]) -> list[Node]:
        """The nodes of these names that are there."""
        return [self.names[name] for name in names if name in self.names]

    @cached_property
    def is_tidy(self) -> bool:
        """True if no two calls are equal, and each is used."""
        calls = [node for node in self.graph.nodes if node.op not in LEAVES and node.effect is None]
        equal = [self.hashes[node.name] for node in calls if not node.opaque]
        return len(set(equal)) == len(equal) and all(node.users or node in self.ends for node in calls)

    @cached_property
    def key(self) -> Hashable:
        """The key of the program: a hash of its outputs and of its calls with effects."""
        effects = [self.hashes[node.name] for node in self.graph.nodes if node.effect is not None]
        return hash((*[self.hashes[node.name] for node in self.graph.outputs], *effects))

    @cached_property
    def use_lists(self) -> UseLists:
        """The users of nodes that have many."""
        return UseLists(self.graph.by_op())

    @cached_property
    def _by_hash(self) -> dict[int, Node]:
        """The nodes that may stand for equal new ones."""
        nodes = self.graph.nodes
        return {self.hashes[node.name]: node for node in nodes if node.effect is None and not node.opaque}

    @cached_property
    def _pass(self) -> RulePass:
        return RulePass(self.graph, [], "priority", Trace())

    def price(self, node: Node) -> float:
        """The cost of a node in a run."""
        return 0.0 if self.ahead.get(node) else self.prices.price(node)

    def step(self, rule: Subst, match: Match, node: Node, key: StepKey) -> SearchStep:
        """The step of a match that was found from a node. Raises Refusal where the conditions of the rule do so."""
        if rule.source.predicates:
            rule.admit(match)
        replacement, inner = self._pass.prepare(rule, match)
        return _Change(self, replacement, inner).step(rule, match, node, key)

    def refused(self, rule: Subst, match: Match, node: Node, key: StepKey) -> SearchStep:
        """The step of a match that must not be rewritten."""
        inner = _names(match.inner)
        return SearchStep(rule, key, node.name, _bound(match), match.operators, inner, inner, frozenset(), None)


class _Change:
    """The change that a replacement makes in a view: calls that come, calls that go, others whose price may change.

    That of a call may depend on what it is, on its operands, and on whether it is the only user of a call among them.
    """

    def __init__(self, view: Priced, replacement: Replacement, inner: Sequence[Node]) -> None:
        self.view = view
        self.inner = inner
        self.moved = {old: new for old, new in zip(replacement.old, replacement.new) if old is not new}
        self.dead: dict[Node, None] = {}
        live: list[Node] | None = None
        while True:
            before, live = live, [new for old, new in self.moved.items() if old in view.ends or self._is_used(old)]
            if before is not None and len(live) == len(before):
                break
            self._make(live, replacement)
        self.touched = [
            node for node in dict.fromkeys((*self.used, *[part for node in self.dead for part in node.operands]))
            if node not in self.dead and node.op not in LEAVES
        ]  # fmt: skip
        self.hashes: dict[Node, int] = {}
        """The hashes of the new calls."""
        self.ahead: dict[Node, bool] = {}
        """The new calls, and the nodes that they are made from: true for those that are known before a run."""
        self.equal: list[Node] = []
        """The calls that stand for new ones."""
        self.redirected = dict.fromkeys([user for old in self.moved for user in old.users if user not in self.dead])

    def _is_used(self, node: Node) -> bool:
        """True if something uses a node that does not go."""
        return any(user not in self.dead for user in node.users)

    def _make(self, live: Sequence[Node], replacement: Replacement) -> None:
        """Find what is new and what goes, where some new nodes get the users of those that they replace."""
        self.created = _made_for(live, replacement)
        self.used = dict.fromkeys([node for node in live if node.index >= 0])
        for node in self.created:
            self.used.update(dict.fromkeys([operand for operand in node.operands if operand.index >= 0]))
        self.dead = self._dead()

    def _dead(self) -> dict[Node, None]:
        """The calls that nothing uses afterwards."""
        dead: dict[Node, None] = {}
        work, ends = list(self.inner), self.view.ends
        while work:
            node = work.pop()
            if node in dead or node in self.used or node.effect is not None or node.op in LEAVES:
                continue
            if node not in self.moved and (node in ends or any(user not in dead for user in node.users)):
                continue
            dead[node] = None
            work += node.operands
            work += node.deps
        return dead

    def _users(self) -> dict[Node, tuple[Node, ...]]:
        """The users that nodes have afterwards, of those that get others."""
        found = {
            node: [] if node in self.moved else [user for user in node.users if user not in self.dead]
            for node in self.touched
        }
        for node in self.created:
            found.setdefault(node, [])
        for node in self.created:
            for operand in dict.fromkeys(node.operands):
                if operand in found:
                    found[operand].append(node)
        for old, new in self.moved.items():
            if new in found:
                found[new] += [user for user in old.users if user not in self.dead]
        return {node: tuple(dict.fromkeys(users)) for node, users in found.items()}

    def step(self, rule: Subst, match: Match, node: Node, key: StepKey) -> SearchStep:
        """The step, with its price."""
        users = self._users()
        near = dict(self.redirected)
        for touched in self.touched:  # of these, the only user may be another one
            for some in (touched.users, users[touched]):
                if len(some) == 1:
                    near.update(dict.fromkeys([user for user in some if user.index >= 0 and user not in self.dead]))
        change = -sum([self.view.costs[other.name] for other in (*self.dead, *near)])
        change += self._after(near, users)
        if all(self.hashes.get(new) == self.view.hashes[old.name] for old, new in self.moved.items()):
            raise Refusal("the target is what was matched")
        bound = [other for other in match.bindings.nodes.values() if other.op not in LEAVES]
        inner = _names(self.inner)
        covered = inner.union(_names(self.dead))
        beside = _names((*bound, *self.touched, *near, *self.equal)) - covered
        return SearchStep(rule, key, node.name, _bound(match), match.operators, inner, covered, beside, change)

    def _after(self, near: Iterable[Node], users: Mapping[Node, tuple[Node, ...]]) -> float:
        """The cost of new calls and of those near to them. They have their operands and users for that long."""
        operands = {node: node.operands for node in self.redirected}
        before = {node: node.users for node in users}
        try:
            for node, some in users.items():
                node.users = some
            for node in self.redirected:
                node.operands = tuple([self.moved.get(operand, operand) for operand in node.operands])
            return sum(map(self.view.price, near)) + self._new() - self._now_ahead()
        finally:
            for node, old in operands.items():
                node.operands = old
            for node, own in before.items():
                node.users = own

    def _new(self) -> float:
        """The cost of the new calls, without those that are computed ahead, and those for which an equal one stands."""
        view, prices, total = self.view, self.view.prices, 0.0
        for node in self.created:
            parts = [view.hashes[part.name] if part.index >= 0 else self.hashes[part] for part in node.operands]
            self.hashes[node] = prices.hash_of(node, parts)
            if self._is_ahead(node) or not is_call(node):
                continue
            equal = view._by_hash.get(self.hashes[node])
            if equal is None or node.opaque or node.effect is not None or not self._stays(equal):
                total += prices.price(node)
            else:
                self.equal.append(equal)
        return total

    def _is_ahead(self, node: Node) -> bool:
        """True if a node is computed ahead, as its operands tell; it is noted."""
        ahead = self.view.ahead
        self.ahead.update({operand: ahead[operand] for operand in node.operands if operand in ahead})
        known = self.view.prices.space.is_ahead(node, self.ahead)
        if known is not None:
            self.ahead[node] = known
        return bool(known)

    def _now_ahead(self) -> float:
        """The cost of the calls that are computed ahead because a replaced one is."""
        total = 0.0
        found = any(self.ahead.get(new) or self.view.ahead.get(new) for new in self.moved.values())
        work = list(self.redirected) if found else []
        while work:
            node = work.pop()
            if node not in self.ahead and node not in self.view.ahead and self._is_ahead(node):
                total += self.view.price(node)
                work += node.users
        return total

    def _stays(self, node: Node) -> bool:
        """True if a node of the view is as it was: it does not go, and is made of nothing that is replaced."""
        low = min([old.index for old in self.moved])
        done, work = {node}, [node]
        while work:
            part = work.pop()
            if part in self.moved or part in self.redirected:
                return False
            new = [other for other in (*part.operands, *part.deps) if other.index >= low and other not in done]
            done.update(new)
            work += new
        return node not in self.dead


def _made_for(live: Sequence[Node], replacement: Replacement) -> tuple[Node, ...]:
    """The new nodes from which some are made: all of them, where nothing is lost."""
    if len(live) == len(replacement.new):
        return replacement.created
    needed = set(reached(filter(is_new, live), lambda node: filter(is_new, node.operands)))
    return tuple([node for node in replacement.created if node in needed])


def located(
    step: SearchStep, names: Mapping[str, Node], view: Graph, ends: Container[Node]
) -> tuple[Match, Node] | None:
    """The match of a step in a view, or in a copy of it with these names and outputs; and where it is found from."""
    plan = step.rule.plan
    start, _ = plan.rarest(view.by_op())
    node = names.get(step.bound.get(start.anchor, step.at))
    if node is not None:
        for match in start.finder(1)(node, ends, (), UseLists(view.by_op())):
            if key_of(step.rule, match) == step.key:
                return match, node
    return None


def bound_anew(step: SearchStep, names: Mapping[str, Node]) -> Match:
    """The match of a step of a local rule, in a view that has all that it binds under the same names."""
    plan = step.rule.plan
    nodes = {pattern: names[name] for pattern, name in step.bound.items()}
    return Match(plan, Bindings(plan.scopes, nodes), step.operators)


def _bound(match: Match) -> dict[Any, str]:
    return {pattern: node.name for pattern, node in match.bindings.nodes.items()}


def key_of(rule: Subst, match: Match) -> StepKey:
    """The key of a match, wherever it was found from."""
    bindings = match.bindings
    return (
        rule.name, frozenset([(pattern, node.name) for pattern, node in bindings.nodes.items()]),
        frozenset([node.name for node in bindings.skipped]), frozenset(bindings.chosen.items()),
        frozenset(bindings.counts.items()),
    )  # fmt: skip


def is_local(rule: Subst) -> bool:
    """True if a match depends on the nodes that it binds only, and may be found from each that operators bind."""
    plan = rule.plan
    if rule.source.predicates or plan.given or plan.fuzzy or plan.variadic is not None:
        return False
    return all(isinstance(pattern, (Call, Tuple, GetItem, Leaf)) for pattern in plan.patterns)


class Starts:
    """The operators of local rules, from which matches with a certain node are found."""

    def __init__(self, rules: Iterable[Subst]) -> None:
        self._all = [
            (rule, rule.plan.start(anchor), rule.plan.start(anchor).matchers[anchor].ops)
            for rule in rules
            for anchor in rule.plan.anchors
        ]
        self._by_op: dict[Op, list[tuple[Subst, Find]]] = {}

    def of(self, op: Op) -> list[tuple[Subst, Find]]:
        """The rules that have an operator, each with what finds its matches from a node of that operator."""
        found = self._by_op.get(op)
        if found is None:  # a search is made from very many nodes, so that a function for each rule pays
            found = self._by_op[op] = [
                (rule, start.finder(PAYS)) for rule, start, ops in self._all if ops is None or op in ops
            ]
        return found

"""A rule's source, compiled: from which node a search starts, and what it does from there.

A plan is compiled once per anchor. The search goes from the anchor down through operands, then up to users of what
is bound, until all outputs of the source are matched.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Any

from gsl.attr.ast import Ast, Literal
from gsl.errors import PatternError
from gsl.graph import Graph, Node, Op
from gsl.match.engine import END, Search
from gsl.match.guard import Guard, Path
from gsl.match.matchers import (
    KINDS,
    Absent,
    AltMatcher,
    AndMatcher,
    CallMatcher,
    GetItemMatcher,
    Goals,
    LeafMatcher,
    Matcher,
    NotMatcher,
    TupleMatcher,
    Up,
    VariadicMatcher,
    check_all,
)
from gsl.match.result import Match
from gsl.pat import (
    Alt,
    And,
    Call,
    Cond,
    Const,
    Exactly,
    GetItem,
    Instance,
    Leaf,
    Like,
    Not,
    Pattern,
    Tuple,
    Variadic,
    walk,
)
from gsl.pat import Match as MatchClause

Region = tuple[Pattern, ...]
"""The alternatives and negations around a pattern: where it is bound only sometimes."""


class Plan:
    """The compiled source of a rule.

    ``where`` are conditions on the whole match. Raises PatternError for a source that can't be matched: target-only
    patterns, parts that are not connected, an expression that refers to something else.
    """

    def __init__(self, outputs: Sequence[Pattern], where: Sequence[Ast] = ()) -> None:
        self.outputs = tuple(outputs)
        self.where = tuple(where)
        self.patterns = tuple(walk(*outputs))
        self.known = frozenset(self.patterns)
        self.variadic = outputs[0] if len(outputs) == 1 and isinstance(outputs[0], Variadic) else None
        self.scopes = _scopes(self.patterns)
        self.sure = tuple(_sure(self.outputs, self.scopes))
        """The patterns that every match binds exactly once, and from which a search can start."""
        self._check()
        self._starts: dict[Pattern, Start] = {}
        if self.variadic is None:
            self.start(self.sure[0])
        else:
            self.start(self.variadic)

    def _check(self) -> None:
        for pattern in self.patterns:
            if isinstance(pattern, (Cond, MatchClause, Like, Instance, Exactly)):
                raise PatternError(
                    f"{pattern.location}: {type(pattern).__name__} belongs in a target, it can't be matched; "
                    "in a source use pat.Alt or where="
                )
            if isinstance(pattern, Variadic) and pattern in self.outputs and self.variadic is None:
                raise PatternError(f"{pattern.location}: a variadic must be the only output of a source")
        known = self.known
        for owner, node in self._expressions():
            for used in Guard(None, "", node, None).references():
                if used not in known and not isinstance(used, Instance):
                    place = owner.location if owner is not None else "where="
                    raise PatternError(f"{place}: {node!r} refers to {used!r}, which is not part of the source")
        if self.variadic is not None:
            shared = [p for p in walk(self.variadic.field) if p not in self.scopes and not isinstance(p, Variadic)]
            if not shared:
                raise PatternError(
                    f"{self.variadic.location}: the instances of a variadic output must share a pattern that is not "
                    "a template, or they would be unrelated"
                )

    def _expressions(self) -> Iterator[tuple[Pattern | None, Ast]]:
        for pattern in self.patterns:
            for node in pattern.expressions():
                yield pattern, node
        for node in self.where:
            yield None, node

    def start(self, anchor: Pattern) -> Start:
        """The compiled search from an anchor."""
        found = self._starts.get(anchor)
        if found is None:
            found = self._starts[anchor] = Start(self, anchor)
        return found

    def anchor(self, by_op: dict[Op, list[Node]]) -> tuple[Pattern, list[Node]]:
        """The pattern with the fewest nodes that it might be, and these nodes in graph order."""
        if self.variadic is not None:
            matcher = self.start(self.variadic).matchers[self.variadic.first_field]
            return self.variadic, _possible(matcher, by_op)
        best: tuple[Pattern, list[Node]] | None = None
        first = self.start(self.sure[0])
        for pattern in [p for p in self.sure if not isinstance(p, Leaf)] or self.sure:
            nodes = _possible(first.matchers[pattern], by_op)
            if best is None or len(nodes) < len(best[1]):
                best = pattern, nodes
            if not nodes:
                break
        assert best is not None
        return best

    def matches(
        self, graph: Graph, *, blocked: Collection[Node] = (), by_op: dict[Op, list[Node]] | None = None
    ) -> Iterator[Match]:
        """All matches, ordered by their anchor's place in the graph."""
        anchor, nodes = self.anchor(graph.by_op() if by_op is None else by_op)
        start = self.start(anchor)
        grouped: set[Node] = set()
        for node in nodes:
            if node not in blocked and node not in grouped:
                for match in start.search(node, blocked):
                    if self.variadic is not None:
                        grouped.update(match.outputs)
                    yield match


class Start:
    """The search from one anchor."""

    def __init__(self, plan: Plan, anchor: Pattern) -> None:
        self.plan = plan
        self.matchers: dict[Pattern, Matcher] = {}
        self.order: dict[Pattern, int] = {}
        self.regions: dict[Pattern, Region] = {}
        self._sure = frozenset(plan.sure)
        self._early: set[Pattern] = set()
        """The sure patterns that are reached through an alternative first, so that it varies when they are bound."""
        self._absent: list[Absent] = []
        self.final: list[Guard] = []
        self.anchor = anchor
        self.ups: list[Up] = []
        if plan.variadic is not None:
            self._variadic(plan.variadic)
        else:
            self._visit(anchor, ())
            while any(output not in self.order for output in plan.outputs):
                self.ups.append(self._climb())
        for pattern in list(self.order):
            for guard in _guards(pattern, self.matchers[pattern]):
                self._schedule(guard)
        for absent in self._absent:
            self._schedule(absent)
        self.final += [Guard(None, "where", node, None) for node in plan.where]
        self.final += [Distinct(pattern) for pattern in self.order if isinstance(pattern, Leaf) and pattern.distinct]

    def search(self, node: Node, blocked: Collection[Node] = ()) -> Iterator[Match]:
        """The matches whose anchor is the node, and of which no operator is a blocked node."""
        search = Search(self.plan, blocked)
        if self.plan.variadic is not None:
            yield from self._groups(search, node)
            return
        goals: Goals = (check_all, self.final, (), END)
        for up in reversed(self.ups):
            goals = (up.step, None, (), goals)
        for _ in search.solve((self.matchers[self.anchor].match, node, (), goals)):
            yield Match(self.plan, search)

    # Groups: the instances of a variadic output.

    def _variadic(self, variadic: Variadic) -> None:
        matcher = self._matcher(variadic, ())
        assert isinstance(matcher, VariadicMatcher)
        self.order[variadic] = 0
        first = variadic.first_field
        self._visit(first, ())
        if variadic.first:
            self._visit(variadic.field, ())
        self.group = matcher
        field = set(walk(variadic.field))
        bound = {p for p in field if p not in self.plan.scopes}
        while variadic.field not in bound:
            up = self._rise(bound, field)
            self.ups.append(up)
            bound |= set(walk(up.matcher.pattern))

    def _rise(self, bound: set[Pattern], field: set[Pattern]) -> Up:
        for pattern in walk(self.plan.outputs[0]):
            if pattern in field and pattern not in bound and not isinstance(pattern, (Alt, Not, Variadic)):
                for child in pattern.children():
                    if child in bound:
                        return Up(child, self.matchers[pattern])
        raise PatternError(
            f"{self.anchor.location}: from the patterns that the instances share no way leads up to the field "
            "through operands"
        )

    def _groups(self, search: Search, node: Node) -> Iterator[Match]:
        variadic = self.plan.variadic
        assert variadic is not None
        counts = search.bindings.counts
        final: Goals = (check_all, self.final, (), END)
        for _ in search.solve(self.group.instance(0, node, (), END)):
            mark = len(search.trail)
            number = 1
            for user in self.ups[0].candidates(search, ()):
                path = (number,)
                goals: Goals = (check_all, self.group.instance_guards, path, END)
                for up in reversed(self.ups[1:]):
                    goals = (up.step, None, path, goals)
                goals = (self.ups[0].matcher.match, user, path, goals)
                if user not in search.taken and search.once(goals):
                    number += 1
            counts[variadic, ()] = number
            if number >= max(variadic.min_len, 1) and search.exists(final):
                yield Match(self.plan, search)
            del counts[variadic, ()]
            search.undo(mark)

    # Compilation.

    def _visit(self, root: Pattern, region: Region) -> None:
        """Make the matchers of a pattern and what it is made of, in the order in which they will be bound."""
        stack = [(root, region)]
        while stack:
            pattern, region = stack.pop()
            if pattern in self.order:
                continue
            self.order[pattern] = len(self.order)
            if pattern in self._sure and region:
                self._early.add(pattern)
            self.regions[pattern] = () if pattern in self._sure else region
            self._matcher(pattern, region)
            inner = (*region, pattern) if isinstance(pattern, Not) else region
            children = list(pattern.children())
            if isinstance(pattern, Alt):
                stack += [(child, (*region, child)) for child in reversed(children)]
            else:
                stack += [(child, inner) for child in reversed(children)]
        self._link()

    def _matcher(self, pattern: Pattern, region: Region) -> Matcher:
        matcher = self.matchers.get(pattern)
        if matcher is None:
            level = len(self.plan.scopes.get(pattern, ()))
            kind = KINDS.get(type(pattern), LeafMatcher)
            matcher = self.matchers[pattern] = kind(pattern, level)
        return matcher

    def _link(self) -> None:
        get = self.matchers.__getitem__
        for matcher in list(self.matchers.values()):
            match matcher:
                case CallMatcher():
                    matcher.operands = tuple(map(get, matcher.pattern.operands))
                case TupleMatcher():
                    matcher.items = tuple(map(get, matcher.pattern.items))
                case GetItemMatcher():
                    matcher.tuple = get(matcher.pattern.tuple)
                case AltMatcher():
                    matcher.choices = tuple(map(get, matcher.pattern.choices))
                    self._identify(matcher, matcher.choices)
                case AndMatcher():
                    matcher.both = tuple(map(get, matcher.pattern.both))
                    self._identify(matcher, matcher.both)
                case VariadicMatcher() if matcher.pattern.field in self.matchers:
                    matcher.field = get(matcher.pattern.field)
                    matcher.first = get(matcher.pattern.first_field) if matcher.pattern.first else None
                case NotMatcher() if not any(absent.owner is matcher.pattern for absent in self._absent):
                    inside = set(walk(matcher.pattern.pattern))
                    outside = {p for p in self.plan.patterns if p not in inside and p is not matcher.pattern}
                    used = {c for p in outside for c in p.children() if c in inside} - {matcher.pattern.pattern}
                    refers = {r for p in inside for e in p.expressions() for r in Guard(None, "", e, None).references()}
                    self._absent.append(
                        Absent(matcher.pattern, get(matcher.pattern.pattern), frozenset(used | (refers & outside)))
                    )
                case _:
                    pass

    def _identify(self, whole: Matcher, parts: Sequence[Matcher]) -> None:
        """Let the parts of an alternative or a conjunction be the same node."""
        work = [(whole.identity, part) for part in parts]
        while work:
            identity, part = work.pop()
            part.identity = identity
            if isinstance(part, AltMatcher):
                work += [(identity, choice) for choice in part.choices]
            elif isinstance(part, AndMatcher):
                work += [(identity, conjunct) for conjunct in part.both]

    def _climb(self) -> Up:
        """A step from a bound pattern to a sure user of it that is not bound yet."""
        for pattern in self.plan.sure:
            if pattern not in self.order:
                for child in pattern.children():
                    if child in self.order and not self.regions[child]:
                        self._visit(pattern, ())
                        return Up(child, self.matchers[pattern])
        missing = next(output for output in self.plan.outputs if output not in self.order)
        raise PatternError(
            f"{missing.location}: the source pattern {missing!r} is not connected with the others: patterns of one "
            "rule must share a node"
        )

    def _schedule(self, guard: Guard) -> None:
        owner = guard.owner
        assert owner is not None
        region = self.regions.get(owner, ())
        negation = next((p for p in reversed(region) if isinstance(p, Not)), None)
        needed = [owner, *guard.references()]
        scopes = self.plan.scopes.get(owner, ())
        if scopes:
            group = self.matchers[scopes[-1]]
            assert isinstance(group, VariadicMatcher)
            group.instance_guards.append(guard)
            return
        simple = all(
            p in self.order and p not in self._early and not isinstance(p, Variadic) and p not in self.plan.scopes
            for p in needed
        )
        if simple:
            last = max(needed, key=self.order.__getitem__)
            reach = self.regions[last]
            if (reach == region[: len(reach)] and negation is None) or (negation is not None and negation in reach):
                self.matchers[last].guards.append(guard)
                return
        if negation is not None:
            next(absent for absent in self._absent if absent.owner is negation).inside.append(guard)
        else:
            self.final.append(guard)


class Distinct(Guard):
    """The guard that a leaf is no other pattern's node."""

    __slots__ = ()

    def __init__(self, owner: Leaf) -> None:
        super().__init__(owner, "distinct", Literal(True), None)

    def check(self, search: Search, path: Path) -> bool:
        nodes = search.bindings.nodes
        mine = {key for key in nodes if key is self.owner or (isinstance(key, tuple) and key[0] is self.owner)}
        for key in mine:
            if any(other is not key and node is nodes[key] for other, node in nodes.items()):
                return search.miss(self.owner, nodes[key], "distinct", "a node of its own", nodes[key])
        return True


def _guards(pattern: Pattern, matcher: Matcher) -> Iterator[Guard]:
    """The conditions of a pattern that are not decided by looking at its node alone."""
    guard = pattern.guard
    if guard is not None:
        shape = guard.shape
        if isinstance(shape, tuple):
            for axis, size in enumerate(shape):
                if size is not None and not isinstance(size, Literal):
                    yield Guard(pattern, f"shape[{axis}]", size, _dimension(axis))
        elif shape is not None:
            yield Guard(pattern, "shape", shape, lambda search, node, path: node.shape)
        for name, node in (("dtype", guard.dtype), ("ndim", guard.ndim)):
            if node is not None and not isinstance(node, Literal):
                yield Guard(pattern, name, node, _property(name))
    if isinstance(pattern, Call):
        for name, node in pattern.attrs.items():
            if not isinstance(node, Literal):
                yield Guard(pattern, name, node, _attribute(name))
    elif isinstance(pattern, GetItem) and pattern.number is not None and not isinstance(pattern.number, Literal):
        yield Guard(pattern, "index", pattern.number, _attribute("index"))
    elif isinstance(pattern, Variadic) and pattern.count is not None:
        yield Guard(pattern, "length", pattern.count, lambda search, node, path: search.bindings.count(pattern, path))
    elif isinstance(pattern, Const) and isinstance(pattern.literal, Ast) and not isinstance(pattern.literal, Literal):
        yield Guard(pattern, "value", pattern.literal, _attribute("value"))


def _dimension(axis: int) -> Callable[[Search, Any, Path], Any]:
    return lambda search, node, path: node.shape[axis] if node.shape is not None else None


def _property(name: str) -> Callable[[Search, Any, Path], Any]:
    return lambda search, node, path: getattr(node, name)


def _attribute(name: str) -> Callable[[Search, Any, Path], Any]:
    def get(search: Search, node: Any, path: Path) -> Any:
        if name not in node.attrs:
            raise ValueError(f"{node!r} has no attribute {name!r}")
        return node.attrs[name]

    return get


def _scopes(patterns: Sequence[Pattern]) -> dict[Pattern, tuple[Variadic, ...]]:
    """For every pattern that is a template: the variadics of which it has instances, outermost first."""
    scopes: dict[Pattern, tuple[Variadic, ...]] = {}
    for variadic in reversed(patterns):  # users first, so that an outer variadic comes before an inner one
        if isinstance(variadic, Variadic):
            outer = scopes.get(variadic, ())
            for template in variadic.templates:
                scopes[template] = (*outer, variadic)
    return scopes


def _sure(outputs: Sequence[Pattern], scopes: dict[Pattern, tuple[Variadic, ...]]) -> Iterator[Pattern]:
    """The patterns outside of alternatives, negations and variadics; operators before leaves, outputs first."""
    found: dict[Pattern, None] = {}
    work = list(outputs)[::-1]
    while work:
        pattern = work.pop()
        if pattern in found:
            continue
        found[pattern] = None
        if isinstance(pattern, (Call, Tuple, GetItem, And)):
            work.extend(reversed(list(pattern.children())))
    yield from (pattern for pattern in found if isinstance(pattern, (Call, GetItem, Tuple)))
    yield from (pattern for pattern in found if not isinstance(pattern, (Call, GetItem, Tuple)))


def _possible(matcher: Matcher, by_op: dict[Op, list[Node]]) -> list[Node]:
    """The nodes of the operators that a matcher takes, in graph order."""
    if isinstance(matcher, CallMatcher) and matcher.ops is not None and len(matcher.ops) == 1:
        (op,) = matcher.ops
        return by_op.get(op, [])
    nodes = [node for group in by_op.values() if matcher.plausible(group[0]) for node in group]
    nodes.sort(key=lambda node: node.index)
    return nodes


"""Compiled patterns. Each knows how to match one node, and which goals remain after it.

The remainder is a linked list of goals ``(function, argument, path, rest)``, so that the search keeps its own stack
and neither deep graphs nor long variadics recurse. ``END`` is the empty list; a failed match is ``None``. Where a goal
depends on a node, it gives an instruction to the machine (:mod:`gsl.match.machine`), which may have a variable instead.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final

from gsl.attr.ast import Literal
from gsl.errors import EvaluationError
from gsl.graph import CONST, GETITEM, TUPLE, Node, Op, TensorType, TupleType
from gsl.match.bindings import AttrPath, N
from gsl.match.guard import Guard
from gsl.match.literals import canonical, decidedly_same, equal_literal, is_literal, known_value
from gsl.match.machine import END, Goals, Machine
from gsl.pat import Alt, And, Call, Const, GetItem, Leaf, Not, OpClass, Pattern, Segment, Tuple, has_head
from gsl.pat.variadic import is_open
from gsl.spec import TABLE, OperatorName, OpSpec
from gsl.spec.natives import defaults, same_function

if TYPE_CHECKING:
    from gsl.match.engine import MatchSearch

MOST_FORMS = 1000
"""The largest number of different calls that are remembered."""
class _Commutative:
    """The operators whose first two operands may be exchanged."""

    def __init__(self) -> None:
        self.names = frozenset(name for name, spec in TABLE.items() if spec.commutative)

    def __contains__(self, op: object) -> bool:
        return op in self.names or (type(op) is OperatorName and op.spec.commutative)


COMMUTATIVE: Final = _Commutative()
"""The operators whose two operands match in either order."""


class Matcher:
    """A pattern as compiled for one plan."""

    __slots__ = ("__dict__", "guards", "identity", "level", "pattern")  # __dict__ holds ops and accepts
    operator = True
    """True if different patterns of this kind must be different nodes."""
    same_node = False
    """True if the pattern's node is that of its parts."""

    def __init__(self, pattern: Pattern, level: int, identity: Pattern) -> None:
        self.pattern = pattern
        self.level = level
        """The number of variadics that have this pattern as a template."""
        self.identity = identity
        """Operators with one identity are the same node: the parts of an ``&``."""
        self.guards: list[Guard] = []

    def link(self, matchers: Mapping[Pattern, Matcher]) -> None:
        """Look up the matchers of the pattern's parts."""

    def match(self, search: Machine[N], node: N, path: AttrPath, rest: Goals) -> Goals | None:
        """The goals that remain when the pattern is the node, or ``None`` if it can't be."""
        key = (self.pattern, path[: self.level]) if self.level else self.pattern
        bound = search.bindings.nodes.get(key)
        if bound is not None:
            return rest if search.same(self.pattern, node, bound) else None
        if not self.admits(search, node):
            return None
        if self.pattern.guard is not None and not search.ask(self.typed, node):
            return None
        if self.operator and not search.take(self, node, path):
            return None
        search.record(search.bindings.nodes, key, node)
        for guard in self.guards:
            if not search.holds(guard, path):
                return None
        return self.descend(search, node, path, rest)

    @cached_property
    def ops(self) -> frozenset[Op] | None:
        """The operators that a node of the pattern may have, ``None`` where they can't be enumerated."""
        return None

    @cached_property
    def accepts(self) -> Callable[[Op], bool] | None:
        """True of an operator that a node of the pattern may have; ``None`` if that may be any."""
        return self.of_class() if self.ops is None else self.ops.__contains__

    def of_class(self) -> Callable[[Op], bool] | None:
        """The same for a pattern whose operators can't be enumerated."""
        return None

    def plausible(self, node: Node) -> bool:
        """A cheap necessary condition."""
        accepts = self.accepts
        return accepts is None or accepts(node.op)

    def likely(self, node: Node) -> bool:
        """A necessary condition that takes longer, where no operators may be skipped."""
        return self.plausible(node)

    def last_nodes(self, search: MatchSearch, firsts: Collection[Node]) -> Collection[Node]:
        """The nodes that may be the pattern's when it uses something by one of the given nodes."""
        return [node for node in firsts if self.plausible(node)]

    def firsts(self, search: MatchSearch, above: Collection[Node]) -> Collection[Node]:
        """The nodes from which to go on upward, see :meth:`ascend`, when the pattern uses something by one of these."""
        return self.last_nodes(search, above)

    def ascend(self, search: Machine[N], node: N, path: AttrPath, rest: Goals) -> Goals | None:
        """The goal that the pattern is the node, which was found upward."""
        return (self.match, node, path, rest)

    def admits(self, search: Machine[N], node: N) -> bool:
        """True if the node is of the right kind, and has the operator and the literal attributes."""
        return True

    def typed(self, search: MatchSearch, node: Node) -> bool:
        """True if the literal demands on the type hold."""
        guard = self.pattern.guard
        assert guard is not None
        if not isinstance(node.type, TensorType):
            return search.miss(self.pattern, node, "type", guard, node.type)
        shape = guard.shape if isinstance(guard.shape, tuple) else ()
        if isinstance(guard.shape, tuple) and len(shape) != node.type.ndim:
            return search.miss(self.pattern, node, "ndim", len(shape), node.type.ndim)
        demands = [("ndim", guard.ndim, node.type.ndim), ("dtype", guard.dtype, node.type.dtype)]
        demands += [(f"shape[{axis}]", size, node.type.shape[axis]) for axis, size in enumerate(shape)]
        for what, wanted, actual in demands:
            if isinstance(wanted, Literal) and not decidedly_same(wanted.value, actual):
                return search.miss(self.pattern, node, what, wanted.value, actual)
        if guard.values is not None and (wrong := guard.values.outside(known_value(node))) is not None:
            return search.miss(self.pattern, node, "values", guard.values, wrong)
        return True

    def descend(self, search: Machine[N], node: N, path: AttrPath, rest: Goals) -> Goals | None:
        """The goals for the parts of the pattern, before the rest."""
        return rest


class LeafMatcher(Matcher):
    __slots__ = ()
    operator = False
    pattern: Leaf

    @cached_property
    def ops(self) -> frozenset[Op] | None:
        return self.pattern.kinds

    def admits(self, search: Machine[N], node: N) -> bool:
        return search.has_operator(self, node, "kind", self.ops)


class ConstMatcher(LeafMatcher):
    __slots__ = ()
    pattern: Const

    def admits(self, search: Machine[N], node: N) -> bool:
        if not search.has_operator(self, node, "kind", CONST):
            return False
        wanted = self.pattern.literal
        if not isinstance(wanted, Literal) and not hasattr(wanted, "__array__"):
            return True
        return search.ask(self.has_value, node)

    def has_value(self, search: MatchSearch, node: Node) -> bool:
        """True if the node has the literal value."""
        wanted = self.pattern.literal
        value = wanted.value if isinstance(wanted, Literal) else wanted
        if not is_literal(value, node):
            actual = node.attrs["value"]
            expected = f"{value}, which broadcasts nothing" if equal_literal(value, actual) else value
            return search.miss(self.pattern, node, "value", expected, actual)
        return True


class CallMatcher(Matcher):
    __slots__ = ("accepted", "forms", "literals", "operands")
    pattern: Call
    operands: tuple[Matcher, ...]

    def __init__(self, pattern: Call, level: int, identity: Pattern) -> None:
        super().__init__(pattern, level, identity)
        self.literals = {name: node.value for name, node in pattern.attrs.items() if isinstance(node, Literal)}
        self.accepted: Mapping[str, Any] | None = None
        """The attributes of the last node that had the literals as they stand."""
        self.forms: dict[tuple[Any, ...], tuple[bool, Any]] = {}
        """The calls for which it is known if they have the literals, by their operators, and the addresses of their
        attributes and types, which are kept as well."""

    @cached_property
    def ops(self) -> frozenset[Op] | None:
        op = self.pattern.op
        if isinstance(op, OpClass):
            return op.members
        return frozenset((op.name,)) if isinstance(op, OpSpec) else same_function(op)  # torch may be imported

    def of_class(self) -> Callable[[Op], bool]:
        op = self.pattern.op
        assert isinstance(op, OpClass)
        return op.accepts

    @cached_property
    def may_turn(self) -> bool:
        """True if the operands may match in either order."""
        is_commutative = self.ops is None or any(op in COMMUTATIVE for op in self.ops)
        return len(self.operands) == 2 and self.operands[0] is not self.operands[1] and is_commutative

    def link(self, matchers: Mapping[Pattern, Matcher]) -> None:
        self.operands = tuple([matchers[operand] for operand in self.pattern.operands or ()])

    def likely(self, node: Node) -> bool:
        if not self.plausible(node):
            return False
        wanted, found = self.operands, node.operands
        if len(wanted) != len(found) or all(one.plausible(each) for one, each in zip(wanted, found)):
            return True
        return self.may_turn and wanted[0].plausible(found[1]) and wanted[1].plausible(found[0])

    def admits(self, search: Machine[N], node: N) -> bool:
        op, operands = self.pattern.op, self.pattern.operands
        if not search.has_operator(self, node, "operator", op):
            return False
        if operands is not None and not search.has_operands(self, node, "operands", len(operands)):
            return False
        if self.literals and not search.has_literals(self, node):
            return False
        return not isinstance(op, OpClass) or not op.joint or search.same_operator(op, node)

    def literals_hold(self, search: MatchSearch, node: Node) -> bool:
        """True if the node has the literal attributes, which may be given in another form than the canonical one."""
        attrs = node.attrs
        if any(name not in attrs for name in self.literals):
            attrs = {**defaults(node.op), **attrs}
        for name, wanted in self.literals.items():
            if name not in attrs:
                return search.miss(self.pattern, node, name, wanted, EvaluationError("no such attribute"))
        if all(map(decidedly_same, self.literals.values(), map(attrs.__getitem__, self.literals))):
            return True
        try:
            wanteds = canonical(node, self.literals)
        except ValueError as error:
            return search.miss(self.pattern, node, "attributes", dict(self.literals), error)
        for name in self.literals:
            if not decidedly_same(wanteds[name], attrs[name]):
                return search.miss(self.pattern, node, name, wanteds[name], attrs[name])
        return True

    def in_another_form(self, search: MatchSearch, node: Node) -> bool:
        """True if the node has the literal attributes, which is found out once for equal calls."""
        types = [operand.type for operand in node.operands]
        key = (node.op, id(node.attrs), *map(id, types))
        known = self.forms.get(key)
        if known is None:
            if len(self.forms) >= MOST_FORMS:
                self.forms.clear()
            holds = self.literals_hold(search, node)
            known = self.forms[key] = (holds, (node.attrs, types))
        return known[0]

    def descend(self, search: Machine[N], node: N, path: AttrPath, rest: Goals) -> Goals | None:
        if not self.may_turn:
            return match_all(search, self.operands, node, path, rest)
        first, second = self.operands

        def both(left: N, right: N) -> Goals:
            return (first.match, left, path, (second.match, right, path, rest))

        return search.either_order(self, node, both)


class TupleMatcher(Matcher):
    __slots__ = ("is_open", "items", "least")
    pattern: Tuple
    items: tuple[Matcher, ...]

    def __init__(self, pattern: Tuple, level: int, identity: Pattern) -> None:
        super().__init__(pattern, level, identity)
        self.is_open = is_open(pattern)
        sizes = [item.min_len if isinstance(item, Segment) else 1 for item in pattern.items]
        self.least = tuple([sum(sizes[number:]) for number in range(len(sizes) + 1)])
        """The least number of fields that the items from each one on take."""

    def link(self, matchers: Mapping[Pattern, Matcher]) -> None:
        self.items = tuple([matchers[item] for item in self.pattern.items])

    @cached_property
    def ops(self) -> frozenset[Op]:
        return frozenset((TUPLE,))

    def admits(self, search: Machine[N], node: N) -> bool:
        is_tuple = search.has_operator(self, node, "kind", TUPLE)
        return is_tuple and search.has_operands(self, node, "fields", self.least[0], more=self.is_open)

    def descend(self, search: Machine[N], node: N, path: AttrPath, rest: Goals) -> Goals | None:
        if self.is_open:
            return search.divide(self, node, path, rest)
        return match_all(search, self.items, node, path, rest)


class GetItemMatcher(Matcher):
    __slots__ = ("tuple",)
    pattern: GetItem
    tuple: Matcher

    def link(self, matchers: Mapping[Pattern, Matcher]) -> None:
        self.tuple = matchers[self.pattern.tuple]

    @cached_property
    def ops(self) -> frozenset[Op]:
        return frozenset((GETITEM,))

    def admits(self, search: Machine[N], node: N) -> bool:
        if not search.has_operator(self, node, "kind", GETITEM):
            return False
        return not isinstance(self.pattern.number, Literal) or search.ask(self.has_index, node)

    def has_index(self, search: MatchSearch, node: Node) -> bool:
        """True if the node is the field with the literal number."""
        assert isinstance(self.pattern.number, Literal)
        wanted, whole = self.pattern.number.value, node.operands[0].type
        if wanted < 0 and isinstance(whole, TupleType):
            wanted += len(whole.fields)
        return wanted == node.attrs["index"] or search.miss(self.pattern, node, "index", wanted, node.attrs["index"])

    def descend(self, search: Machine[N], node: N, path: AttrPath, rest: Goals) -> Goals | None:
        return match_all(search, (self.tuple,), node, path, rest)


class AltMatcher(Matcher):
    __slots__ = ("choices", "closed")
    operator = False
    same_node = True
    pattern: Alt
    choices: tuple[Matcher, ...]

    def __init__(self, pattern: Alt, level: int, identity: Pattern) -> None:
        super().__init__(pattern, level, identity)
        self.closed = False
        """True if the choices refer to no pattern outside of them, so that a choice that fails at a node always fails
        there."""

    def link(self, matchers: Mapping[Pattern, Matcher]) -> None:
        self.choices = tuple([matchers[choice] for choice in self.pattern.choices])

    @cached_property
    def ops(self) -> frozenset[Op] | None:
        each = [choice.ops for choice in self.choices]
        return None if None in each else frozenset[Op]().union(*[ops for ops in each if ops is not None])

    def of_class(self) -> Callable[[Op], bool] | None:
        each = [choice.accepts for choice in self.choices]
        tests = [test for test in each if test is not None]
        return (lambda op: any(test(op) for test in tests)) if len(tests) == len(each) else None

    def last_nodes(self, search: MatchSearch, firsts: Collection[Node]) -> Collection[Node]:
        return dict.fromkeys(node for choice in self.choices for node in choice.last_nodes(search, firsts))

    def descend(self, search: Machine[N], node: N, path: AttrPath, rest: Goals) -> Goals | None:
        if not search.has_operator(self, node, "operator", self.pattern if self.ops is None else self.ops):
            return None
        key = (self.pattern, path[: self.level]) if self.level else self.pattern

        def alternatives() -> Iterator[Goals]:
            for number, choice in enumerate(self.choices):
                if not search.may_be(choice, node) or (choice, node) in search.failed:
                    continue
                search.record(search.bindings.chosen, key, number)
                if not self.closed or not search.learns:
                    yield (choice.match, node, path, rest)
                    continue
                # Each of two nested alternatives would try the inner one in full, for any reason that it had to fail.
                overlaps, reached = search.overlaps, list[bool]()
                yield (choice.match, node, path, (_note_reached, reached, path, rest))
                if not reached and search.overlaps == overlaps:
                    search.failed.add((choice, node))

        return search.choose(alternatives())


def _note_reached(search: Machine[N], reached: list[bool], path: AttrPath, rest: Goals) -> Goals:
    """The goal of noting that the goals before it were reached."""
    reached.append(True)
    return rest


class AndMatcher(Matcher):
    __slots__ = ("both",)
    operator = False
    same_node = True
    pattern: And
    both: tuple[Matcher, ...]

    def link(self, matchers: Mapping[Pattern, Matcher]) -> None:
        self.both = tuple([matchers[part] for part in self.pattern.both])

    @cached_property
    def ops(self) -> frozenset[Op] | None:
        known = [part.ops for part in self.both if part.ops is not None]
        accepts = self.of_class()
        return frozenset(filter(accepts, frozenset.intersection(*known))) if known else None

    def of_class(self) -> Callable[[Op], bool] | None:
        tests = [part.accepts for part in self.both if part.accepts is not None]
        return (lambda op: all(test(op) for test in tests)) if tests else None

    def last_nodes(self, search: MatchSearch, firsts: Collection[Node]) -> Collection[Node]:
        chain = next((part for part in self.both if has_head(part.pattern)), None)
        nodes = firsts if chain is None else chain.last_nodes(search, firsts)
        return [node for node in nodes if self.plausible(node)]

    def descend(self, search: Machine[N], node: N, path: AttrPath, rest: Goals) -> Goals | None:
        for matcher in reversed(self.both):
            rest = (matcher.match, node, path, rest)
        return rest


class NotMatcher(Matcher):
    """Matches any node; that the pattern does not match is a guard, see :class:`Absent`."""

    __slots__ = ()
    operator = False
    pattern: Not


class Absent(Guard):
    """The guard that a negated pattern does not match its node."""

    __slots__ = ("goals", "inside", "matcher", "outside")

    def __init__(self, owner: Not, matcher: Matcher, outside: frozenset[Pattern]) -> None:
        super().__init__(owner, "no match", Literal(True), None)
        self.matcher = matcher
        self.outside = outside
        """The patterns around it to which it refers."""
        self.inside: list[Guard] = []
        """The guards of the negated pattern that need more than a part of it."""

    def references(self) -> Iterator[Pattern]:
        return iter(self.outside)

    def check(self, search: MatchSearch, path: AttrPath) -> bool:
        owner = self.owner
        assert owner is not None
        node = search.bindings.get(owner, path)
        if node is None:
            return True
        goals = (self.matcher.match, node, path, (check_all, self.inside, path, END))
        if search.exists(goals):
            search.miss(owner, node, "no match", self.matcher.pattern, node)
            return False
        return True


def match_all(search: Machine[N], matchers: Sequence[Matcher], node: N, path: AttrPath, rest: Goals) -> Goals:
    """The goals that the operands of a node are some patterns."""
    if not matchers:
        return rest
    for matcher, operand in zip(reversed(matchers), reversed(search.operands(node, len(matchers)))):
        rest = (matcher.match, operand, path, rest)
    return rest


def check_all(search: Machine[N], guards: list[Guard], path: AttrPath, rest: Goals) -> Goals | None:
    """The goal that some guards hold."""
    for guard in guards:
        if not search.holds(guard, path):
            return None
    return rest

"""Compiled patterns. Each knows how to match one node, and which goals remain after it.

The remainder is a linked list of goals ``(function, argument, path, rest)``, so that the search keeps its own stack
and neither deep graphs nor long variadics recurse. ``END`` is the empty list; a failed match is ``None``.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any

from gsl.attr.ast import Literal
from gsl.errors import EvaluationError
from gsl.graph import CONST, GETITEM, TUPLE, Node, Op, TensorType, TupleType
from gsl.match.bindings import AttrPath
from gsl.match.guard import Guard, canonical
from gsl.match.literal import decidedly_same, equal_in_single, equal_literal
from gsl.pat import Alt, And, Call, Const, GetItem, Leaf, Not, OpClass, Pattern, Tuple, Variadic, has_head
from gsl.spec import TABLE, OpSpec
from gsl.spec.natives import defaults, same_function

if TYPE_CHECKING:
    from gsl.match.engine import MatchSearch

Goals = Any
"""``END``, or a tuple of a function, its argument, a path and further goals."""
END: Goals = ()
MOST_FORMS = 1000
"""The largest number of different calls that are remembered."""
COMMUTATIVE = frozenset(name for name, spec in TABLE.items() if spec.commutative)
"""The operators whose two operands match in either order."""


class Matcher:
    """A pattern as compiled for one plan."""

    __slots__ = ("guards", "identity", "level", "pattern")
    operator = True
    """True if different patterns of this kind must be different nodes."""

    def __init__(self, pattern: Pattern, level: int, identity: Pattern) -> None:
        self.pattern = pattern
        self.level = level
        """The number of variadics that have this pattern as a template."""
        self.identity = identity
        """Operators with one identity are the same node: the parts of an ``&``."""
        self.guards: list[Guard] = []

    def link(self, matchers: Mapping[Pattern, Matcher]) -> None:
        """Look up the matchers of the pattern's parts."""

    def match(self, search: MatchSearch, node: Node, path: AttrPath, rest: Goals) -> Goals | None:
        """The goals that remain when the pattern is the node, or ``None`` if it can't be."""
        key = (self.pattern, path[: self.level]) if self.level else self.pattern
        bound = search.bindings.nodes.get(key)
        if bound is not None:
            if bound is node:
                return rest
            search.miss(self.pattern, node, "same node", bound, node)
            return None
        if not self.admits(search, node) or not self.typed(search, node):
            return None
        if self.operator and not search.take(node, (self.identity, path[: self.level])):
            return None
        search.record(search.bindings.nodes, key, node)
        for guard in self.guards:
            if not guard.check(search, path):
                return None
        return self.descend(search, node, path, rest)

    def plausible(self, node: Node) -> bool:
        """A cheap necessary condition."""
        return True

    def last_nodes(self, search: MatchSearch, firsts: Iterable[Node]) -> Iterable[Node]:
        """The nodes that may be the pattern's when it uses something by one of the given nodes."""
        return [node for node in firsts if self.plausible(node)]

    def firsts(self, search: MatchSearch, above: Iterable[Node]) -> Iterable[Node]:
        """The nodes from which to go on upward, see :meth:`ascend`, when the pattern uses something by one of these."""
        return self.last_nodes(search, above)

    def ascend(self, node: Node, path: AttrPath, rest: Goals) -> Goals:
        """The goal that the pattern is the node, which was found upward."""
        return (self.match, node, path, rest)

    def admits(self, search: MatchSearch, node: Node) -> bool:
        """True if the node is of the right kind, and has the operator and the literal attributes."""
        return True

    def typed(self, search: MatchSearch, node: Node) -> bool:
        """True if the literal demands on the type hold."""
        guard = self.pattern.guard
        if guard is None:
            return True
        if not isinstance(node.type, TensorType):
            return search.miss(self.pattern, node, "type", guard, None)
        shape = guard.shape if isinstance(guard.shape, tuple) else ()
        if isinstance(guard.shape, tuple) and len(shape) != node.type.ndim:
            return search.miss(self.pattern, node, "ndim", len(shape), node.type.ndim)
        demands = [("ndim", guard.ndim, node.type.ndim), ("dtype", guard.dtype, node.type.dtype)]
        demands += [(f"shape[{axis}]", size, node.type.shape[axis]) for axis, size in enumerate(shape)]
        for what, wanted, actual in demands:
            if isinstance(wanted, Literal) and not decidedly_same(wanted.value, actual):
                return search.miss(self.pattern, node, what, wanted.value, actual)
        return True

    def descend(self, search: MatchSearch, node: Node, path: AttrPath, rest: Goals) -> Goals | None:
        """The goals for the parts of the pattern, before the rest."""
        return rest


class LeafMatcher(Matcher):
    __slots__ = ("kinds",)
    operator = False
    pattern: Leaf

    def __init__(self, pattern: Leaf, level: int, identity: Pattern) -> None:
        super().__init__(pattern, level, identity)
        self.kinds = pattern.kinds

    def plausible(self, node: Node) -> bool:
        return self.kinds is None or node.op in self.kinds

    def admits(self, search: MatchSearch, node: Node) -> bool:
        if self.kinds is not None and node.op not in self.kinds:
            return search.miss(self.pattern, node, "kind", self.kinds, node.op)
        return True


class ConstMatcher(LeafMatcher):
    __slots__ = ()
    pattern: Const

    def admits(self, search: MatchSearch, node: Node) -> bool:
        if node.op != CONST:
            return search.miss(self.pattern, node, "kind", CONST, node.op)
        wanted = self.pattern.literal
        if wanted is None or (not isinstance(wanted, Literal) and not hasattr(wanted, "__array__")):
            return True
        value = wanted.value if isinstance(wanted, Literal) else wanted
        if not (equal_literal(value, node.attrs["value"]) or equal_in_single(value, node)):
            return search.miss(self.pattern, node, "value", value, node.attrs["value"])
        return True


class CallMatcher(Matcher):
    __slots__ = ("__dict__", "accepted", "forms", "literals", "operands")  # __dict__ holds ops
    pattern: Call

    def __init__(self, pattern: Call, level: int, identity: Pattern) -> None:
        super().__init__(pattern, level, identity)
        self.operands: tuple[Matcher, ...] = ()
        self.literals = {name: node.value for name, node in pattern.attrs.items() if isinstance(node, Literal)}
        self.accepted: Mapping[str, Any] | None = None
        """The attributes of the last node that had the literals as they stand."""
        self.forms: dict[tuple[Any, ...], tuple[bool, Any]] = {}
        """The calls for which it is known if they have the literals, by their operators, and the addresses of their
        attributes and types, which are kept as well."""

    @cached_property
    def ops(self) -> frozenset[Op] | None:
        """The operators that match, ``None`` where only the class knows; torch may be imported to find them."""
        op = self.pattern.op
        if isinstance(op, OpClass):
            return op.members
        return frozenset((op.name,)) if isinstance(op, OpSpec) else same_function(op)

    def link(self, matchers: Mapping[Pattern, Matcher]) -> None:
        self.operands = tuple([matchers[operand] for operand in self.pattern.operands or ()])

    def plausible(self, node: Node) -> bool:
        if self.ops is not None:
            return node.op in self.ops
        return isinstance(self.pattern.op, OpClass) and self.pattern.op.accepts(node.op)

    def admits(self, search: MatchSearch, node: Node) -> bool:
        if not self.plausible(node):
            return search.miss(self.pattern, node, "operator", self.pattern.op, node.op)
        if self.pattern.operands is not None and len(node.operands) != len(self.operands):
            return search.miss(self.pattern, node, "operands", len(self.operands), len(node.operands))
        if not self.literals_hold(search, node):
            return False
        op = self.pattern.op
        return not isinstance(op, OpClass) or not op.joint or search.same_operator(op, node)

    def literals_hold(self, search: MatchSearch, node: Node) -> bool:
        """True if the node has the literal attributes, which may be given in another form than the canonical one."""
        attrs = node.attrs
        if any(name not in attrs for name in self.literals):
            attrs = {**defaults(node.op), **attrs}
        for name, wanted in self.literals.items():
            if name not in attrs:
                return search.miss(self.pattern, node, name, wanted, EvaluationError("no such attribute"))
        if all(decidedly_same(wanted, attrs[name]) for name, wanted in self.literals.items()):
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

    def descend(self, search: MatchSearch, node: Node, path: AttrPath, rest: Goals) -> Goals | None:
        if len(self.operands) == 2 and node.op in COMMUTATIVE:
            return self._either_order(search, node, path, rest)
        for matcher, operand in zip(reversed(self.operands), reversed(node.operands)):
            rest = (matcher.match, operand, path, rest)
        return rest

    def _either_order(self, search: MatchSearch, node: Node, path: AttrPath, rest: Goals) -> Goals | None:
        (first, second), (left, right) = self.operands, node.operands
        straight = (first.match, left, path, (second.match, right, path, rest))
        if left is right or first is second or not (first.plausible(right) and second.plausible(left)):
            return straight
        swapped = (first.match, right, path, (second.match, left, path, rest))
        if not (first.plausible(left) and second.plausible(right)):
            return swapped
        return search.choose(iter((straight, swapped)))


class TupleMatcher(Matcher):
    __slots__ = ("items",)
    pattern: Tuple

    def __init__(self, pattern: Tuple, level: int, identity: Pattern) -> None:
        super().__init__(pattern, level, identity)
        self.items: tuple[Matcher, ...] = ()

    def link(self, matchers: Mapping[Pattern, Matcher]) -> None:
        self.items = tuple([matchers[item] for item in self.pattern.items])

    def plausible(self, node: Node) -> bool:
        return node.op == TUPLE

    def admits(self, search: MatchSearch, node: Node) -> bool:
        if node.op != TUPLE:
            return search.miss(self.pattern, node, "kind", TUPLE, node.op)
        if len(node.operands) != len(self.items):
            return search.miss(self.pattern, node, "fields", len(self.items), len(node.operands))
        return True

    def descend(self, search: MatchSearch, node: Node, path: AttrPath, rest: Goals) -> Goals | None:
        for matcher, operand in zip(reversed(self.items), reversed(node.operands)):
            rest = (matcher.match, operand, path, rest)
        return rest


class GetItemMatcher(Matcher):
    __slots__ = ("tuple",)
    pattern: GetItem
    tuple: Matcher

    def link(self, matchers: Mapping[Pattern, Matcher]) -> None:
        self.tuple = matchers[self.pattern.tuple]

    def plausible(self, node: Node) -> bool:
        return node.op == GETITEM

    def admits(self, search: MatchSearch, node: Node) -> bool:
        if node.op != GETITEM:
            return search.miss(self.pattern, node, "kind", GETITEM, node.op)
        number = self.pattern.number
        if not isinstance(number, Literal):
            return True
        wanted, whole = number.value, node.operands[0].type
        if wanted < 0 and isinstance(whole, TupleType):
            wanted += len(whole.fields)
        return wanted == node.attrs["index"] or search.miss(self.pattern, node, "index", wanted, node.attrs["index"])

    def descend(self, search: MatchSearch, node: Node, path: AttrPath, rest: Goals) -> Goals | None:
        return (self.tuple.match, node.operands[0], path, rest)


class AltMatcher(Matcher):
    __slots__ = ("choices", "closed")
    operator = False
    pattern: Alt

    def __init__(self, pattern: Alt, level: int, identity: Pattern) -> None:
        super().__init__(pattern, level, identity)
        self.choices: tuple[Matcher, ...] = ()
        self.closed = False
        """True if the choices refer to no pattern outside of them, so that a choice that fails at a node always fails
        there."""

    def link(self, matchers: Mapping[Pattern, Matcher]) -> None:
        self.choices = tuple([matchers[choice] for choice in self.pattern.choices])

    def plausible(self, node: Node) -> bool:
        return any(choice.plausible(node) for choice in self.choices)

    def last_nodes(self, search: MatchSearch, firsts: Iterable[Node]) -> Iterable[Node]:
        firsts = list(firsts)
        return dict.fromkeys(node for choice in self.choices for node in choice.last_nodes(search, firsts))

    def descend(self, search: MatchSearch, node: Node, path: AttrPath, rest: Goals) -> Goals | None:
        key = (self.pattern, path[: self.level]) if self.level else self.pattern

        def alternatives() -> Iterator[Goals]:
            for number, choice in enumerate(self.choices):
                if not choice.plausible(node) or (choice, node) in search.failed:
                    continue
                search.record(search.bindings.chosen, key, number)
                if not self.closed or search.on_miss is not None:
                    yield (choice.match, node, path, rest)
                    continue
                # Each of two nested alternatives would try the inner one in full, for any reason that it had to fail.
                overlaps, reached = search.overlaps, list[bool]()
                yield (choice.match, node, path, (_note_reached, reached, path, rest))
                if not reached and search.overlaps == overlaps:
                    search.failed.add((choice, node))

        return search.choose(alternatives())


def _note_reached(search: MatchSearch, reached: list[bool], path: AttrPath, rest: Goals) -> Goals:
    """The goal of noting that the goals before it were reached."""
    if not reached:
        reached.append(True)
    return rest


class AndMatcher(Matcher):
    __slots__ = ("both",)
    operator = False
    pattern: And

    def __init__(self, pattern: And, level: int, identity: Pattern) -> None:
        super().__init__(pattern, level, identity)
        self.both: tuple[Matcher, ...] = ()

    def link(self, matchers: Mapping[Pattern, Matcher]) -> None:
        self.both = tuple([matchers[part] for part in self.pattern.both])

    def plausible(self, node: Node) -> bool:
        return all(matcher.plausible(node) for matcher in self.both)

    def last_nodes(self, search: MatchSearch, firsts: Iterable[Node]) -> Iterable[Node]:
        chain = next((part for part in self.both if has_head(part.pattern)), None)
        nodes = firsts if chain is None else chain.last_nodes(search, firsts)
        return [node for node in nodes if self.plausible(node)]

    def descend(self, search: MatchSearch, node: Node, path: AttrPath, rest: Goals) -> Goals | None:
        for matcher in reversed(self.both):
            rest = (matcher.match, node, path, rest)
        return rest


class NotMatcher(Matcher):
    """Matches any node; that the pattern does not match is a guard, see :class:`gsl.match.absent.Absent`."""

    __slots__ = ()
    operator = False
    pattern: Not


class VariadicMatcher(Matcher):
    __slots__ = ("field", "first", "instance_guards")
    pattern: Variadic
    field: Matcher
    first: Matcher | None

    def __init__(self, pattern: Variadic, level: int, identity: Pattern) -> None:
        super().__init__(pattern, level, identity)
        self.instance_guards: list[Guard] = []
        """The guards of templates, checked when an instance is matched."""

    def link(self, matchers: Mapping[Pattern, Matcher]) -> None:
        self.field = matchers[self.pattern.field]
        self.first = matchers[self.pattern.first_field] if self.pattern.first else None

    def plausible(self, node: Node) -> bool:
        return node.op == TUPLE

    def admits(self, search: MatchSearch, node: Node) -> bool:
        if node.op != TUPLE:
            return search.miss(self.pattern, node, "kind", TUPLE, node.op)
        if len(node.operands) < self.pattern.min_len:
            return search.miss(self.pattern, node, "min_len", self.pattern.min_len, len(node.operands))
        return True

    def descend(self, search: MatchSearch, node: Node, path: AttrPath, rest: Goals) -> Goals | None:
        outer = path[: self.level]
        search.record(search.bindings.counts, (self.pattern, outer), len(node.operands))
        for number in reversed(range(len(node.operands))):
            rest = self.instance(number, node.operands[number], outer, rest)
        return rest

    def instance(self, number: int, node: Node, outer: AttrPath, rest: Goals) -> Goals:
        """The goals of one instance."""
        path = (*outer, number)
        if number == 0 and self.first is not None:
            return (self.first.match, node, path, rest)
        return (self.field.match, node, path, (check_all, self.instance_guards, path, rest))


def check_all(search: MatchSearch, guards: list[Guard], path: AttrPath, rest: Goals) -> Goals | None:
    """The goal that some guards hold."""
    for guard in guards:
        if not guard.check(search, path):
            return None
    return rest


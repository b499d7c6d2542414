"""The instructions of which matching consists, and what is known between them.

What a source demands is stated once, by the goals of :mod:`gsl.match.matchers` and :mod:`gsl.match.uses`. A goal
does its work by the instructions of a machine. One machine follows them with the nodes of a graph
(:class:`gsl.match.engine.MatchSearch`), another one prints them as Python, with variables instead of nodes
(:class:`gsl.match.emit.Emitter`).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Generic

from gsl.graph import Node
from gsl.match.bindings import AttrPath, Bindings, N
from gsl.match.guard import Guard
from gsl.pat import OpClass, Pattern, Repeat, Variadic

if TYPE_CHECKING:
    from gsl.match.engine import MatchSearch
    from gsl.match.many import RepeatMatcher, VariadicMatcher
    from gsl.match.matchers import CallMatcher, Matcher, TupleMatcher
    from gsl.match.uses import Link

Goals = Any
"""``END``, or a tuple of a function, its argument, a path and further goals."""
END: Goals = ()
Some = Any
"""Nodes among which there is a choice: a list with one, or what a machine has found."""


class Machine(ABC, Generic[N]):
    """The state between the goals of a source, and the instructions that these consist of."""

    overlaps = 0
    """The number of times that a node was not free, because another operator had taken it."""

    def __init__(self, scopes: Mapping[Pattern, tuple[Variadic | Repeat, ...]]) -> None:
        self.bindings: Bindings[N] = Bindings(scopes)
        self.taken: dict[N, Any] = {}
        """The nodes that operators have taken, with their owners."""
        self.operators: dict[OpClass, Any] = {}
        """The operator for which a class stands, or a node that has it."""
        self.related: dict[Any, bool] = {}
        """The use relations that are known to hold."""
        self.failed: set[tuple[Any, N]] = set()
        """The alternatives that do not match a node, whatever is bound around them."""
        self.trail: list[tuple[dict[Any, Any], Any]] = []

    def record(self, table: dict[Any, Any], key: Any, value: Any) -> None:
        """Put a new entry into one of the tables, to be taken back when another choice is tried."""
        table[key] = value
        self.trail.append((table, key))

    def undo(self, mark: int) -> None:
        """Take back the entries that were recorded since."""
        trail = self.trail
        while len(trail) > mark:
            table, key = trail.pop()
            del table[key]

    @property
    @abstractmethod
    def learns(self) -> bool:
        """True if ``failed`` is kept."""

    # Tests. Each is true if it holds, or if that is tested by what is printed.

    @abstractmethod
    def miss(self, pattern: Pattern | None, node: N | None, what: str, expected: Any, found: Any) -> bool:
        """Note a failed condition; always false."""

    @abstractmethod
    def same(self, pattern: Pattern, node: N, bound: N) -> bool:
        """The node is the one to which the pattern is bound."""

    @abstractmethod
    def may_be(self, matcher: Matcher, node: N) -> bool:
        """The node has an operator that the pattern accepts. This is no miss, but a choice that is not there."""

    @abstractmethod
    def has_operator(self, matcher: Matcher, node: N, what: str, expected: Any) -> bool:
        """The node has an operator that the pattern accepts."""

    @abstractmethod
    def has_operands(
        self, matcher: Matcher, node: N, what: str, number: int, *, more: bool = False, fewer: bool = False
    ) -> bool:
        """The node has so many operands, or more, or fewer."""

    @abstractmethod
    def has_literals(self, matcher: CallMatcher, node: N) -> bool:
        """The node has the literal attributes."""

    @abstractmethod
    def same_operator(self, op: OpClass, node: N) -> bool:
        """The node has the operator for which the class stands in this match."""

    @abstractmethod
    def ask(self, test: Callable[[MatchSearch, Node], bool], node: N) -> bool:
        """A test of a single node, which tells a search why it fails."""

    @abstractmethod
    def take(self, matcher: Matcher, node: N, path: AttrPath) -> bool:
        """The node is no other operator's, and was not rewritten; from now on it is this one's."""

    @abstractmethod
    def holds(self, guard: Guard, path: AttrPath) -> bool:
        """The guard holds."""

    # Ways on.

    @abstractmethod
    def operands(self, node: N, number: int) -> Sequence[N]:
        """The operands of a node, which are as many."""

    @abstractmethod
    def either_order(self, matcher: CallMatcher, node: N, goals: Callable[[N, N], Goals]) -> Goals | None:
        """The goals of both operands as they stand, and then exchanged, where that is another match."""

    @abstractmethod
    def choose(self, alternatives: Iterator[Goals]) -> Goals | None:
        """The first of several continuations; the others are tried when it fails."""

    @abstractmethod
    def each(self, nodes: Some, goals: Callable[[N], Goals | None], *, in_order: bool = False) -> Goals | None:
        """A continuation with one of several nodes, as they come or in graph order."""

    @abstractmethod
    def users(self, matcher: Matcher, below: Sequence[Some], *, last: bool) -> Some:
        """The nodes that the pattern may be, right above some nodes; of ``last`` ones, the order matters only."""

    @abstractmethod
    def connected(self, matcher: Matcher) -> Some:
        """The nodes that the pattern may be among all that are connected with what is bound."""

    # Relations.

    @abstractmethod
    def relate(self, link: Link, operand: N, user: N, key: Any, rest: Goals) -> Goals | None:
        """The rest, where the user uses the operand as the relation wants it."""

    @abstractmethod
    def used_by(self, link: Link, user: N) -> Some:
        """The nodes that the operand of a relation may be."""

    @abstractmethod
    def users_of(self, link: Link, operand: N) -> Some:
        """The nodes from which to go on to the user of a relation, see :meth:`Matcher.ascend`."""

    @abstractmethod
    def skip(self, node: N, goals: Callable[[N], Goals]) -> Goals | None:
        """The goals of a node, and of those below it beyond nodes that may be skipped."""

    # What is there any number of times.

    @abstractmethod
    def chain_down(self, matcher: RepeatMatcher, last: N, path: AttrPath, rest: Goals) -> Goals | None:
        """The rest, with a chain that ends at a node."""

    @abstractmethod
    def chain_up(self, matcher: RepeatMatcher, first: N, path: AttrPath, rest: Goals) -> Goals | None:
        """The rest, with a chain that begins at a node."""

    @abstractmethod
    def fields(self, matcher: VariadicMatcher, node: N, path: AttrPath, rest: Goals) -> Goals | None:
        """The rest, with an instance at each operand of a tuple."""

    @abstractmethod
    def divide(self, matcher: TupleMatcher, node: N, path: AttrPath, rest: Goals) -> Goals | None:
        """The rest, with the fields of a tuple divided among its items, of which some are segments."""

    @abstractmethod
    def members(self, matcher: VariadicMatcher, first: N, rest: Goals) -> Goals | None:
        """The rest, with all instances of a group that go with the first one."""

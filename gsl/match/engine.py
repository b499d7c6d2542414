"""The search: goals, choice points and a trail. Complete backtracking without recursion over the graph."""

from __future__ import annotations

from collections.abc import Callable, Collection, Container, Iterator
from typing import TYPE_CHECKING, Any

from gsl.graph import Node, Op
from gsl.match.bindings import Bindings
from gsl.match.crowd import Crowds
from gsl.match.matchers import Goals
from gsl.match.miss import Miss
from gsl.pat import OpClass, Pattern

if TYPE_CHECKING:
    from gsl.match.plan import Plan


class MatchSearch:
    """The state of one search: bindings, the nodes that operators have taken, and where to go back to."""

    def __init__(
        self, plan: Plan, outputs: Container[Node], blocked: Collection[Node] = (), crowds: Crowds | None = None
    ) -> None:
        self.bindings = Bindings(plan.scopes)
        self.fuzzy = plan.fuzzy
        """The operators that may stand between related nodes."""
        self.outputs = outputs
        """The outputs of the graph, which count as uses."""
        self.blocked = blocked
        """Nodes that no operator of the pattern may be."""
        self.crowds = crowds
        """The facts about users that are known, if there are any."""
        self.taken: dict[Node, Any] = {}
        self.operators: dict[OpClass, Op] = {}
        self.related: dict[Any, bool] = {}
        """The use relations that are known to hold, with the nodes between their sides."""
        self.trail: list[tuple[dict[Any, Any], Any]] = []
        self.choices: list[tuple[Iterator[Goals], int]] = []
        self.failed: set[tuple[Any, Node]] = set()
        """The alternatives that do not match a node, whatever is bound around them."""
        self.overlaps = 0
        """The number of times that a node was not free, because another operator had taken it."""
        self.steps = 0
        """The number of goals that were tried: the measure of the search's cost."""
        self.on_miss: Callable[[Miss], None] | None = None

    def record(self, table: dict[Any, Any], key: Any, value: Any) -> None:
        """Put a new entry into one of the tables, to be taken back when the search goes back."""
        table[key] = value
        self.trail.append((table, key))

    def take(self, node: Node, owner: Any) -> bool:
        """Reserve a node for an operator of the pattern; false if it is another one's already, or blocked."""
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

    def same_operator(self, op: OpClass, node: Node) -> bool:
        """True if the node has the operator that the class stands for in this match."""
        known = self.operators.get(op)
        if known is None:
            self.record(self.operators, op, node.op)
            return True
        return known == node.op or self.miss(None, node, "same operator", known, node.op)

    def miss(self, pattern: Pattern | None, node: Node | None, what: str, expected: Any, found: Any) -> bool:
        """Note a failed condition, if anyone wants to know; always false."""
        if self.on_miss is not None:
            self.on_miss(Miss(pattern, node, what, expected, found, len(self.bindings.nodes)))
        return False

    def choose(self, alternatives: Iterator[Goals]) -> Goals | None:
        """The first of several continuations; the others are tried when it fails."""
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

    def undo(self, mark: int) -> None:
        """Take back the bindings that were recorded since."""
        trail = self.trail
        while len(trail) > mark:
            table, key = trail.pop()
            del table[key]

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

    def exists(self, goals: Goals, *, alone: bool = False) -> bool:
        """True if the goals can be reached; the bindings stay as they are.

        ``alone`` forgets which nodes the operators have taken: the question is about a property of a node.
        """
        floor, mark = len(self.choices), len(self.trail)
        taken, blocked, skipped, failed = self.taken, self.blocked, self.bindings.skipped, self.failed
        if alone:
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

"""Rounds without an end: a graph that comes back to an earlier state, and too many rewrites."""

from __future__ import annotations

from array import array
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from gsl.attr.evaluate import same
from gsl.errors import FixpointError
from gsl.graph import Effect, Graph, Op, Type
from gsl.rewrite.cse import frozen
from gsl.rewrite.trace import Firing, Trace

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
    """How many operands, users and deps each node has, which these are, and which the outputs are."""


class Watch:
    """Compares the graph after every round with an earlier state of it, and raises when that has come back.

    The rules are functions of the graph, so a graph that was there before comes again and again. The earlier state is
    that after round 0, 1, 3, 7, … (R. P. Brent, "An improved Monte Carlo factorization algorithm", BIT 20, 1980): one
    state is kept, and a loop is found within three times its rounds, or three times the rounds that lead to it. A graph
    that is smaller than ever before has not been there before, so it is not looked at, and another state is kept when
    it shrinks no more.
    """

    def __init__(self, graph: Graph, *, keeps: bool = True) -> None:
        """Without ``keeps``, the first state that is kept is that after the first round in which the graph did not
        shrink; of rounds that leave it out of order, after the first one that is like an earlier one."""
        self.state = _state(graph) if keeps else None
        self.firings = 0
        """The number of firings by then."""
        self.least = len(graph)
        """The fewest nodes that it had."""
        self.rounds = 0
        self.renewal = 1
        self._done: set[tuple[int, int]] = set()
        """The sizes that rounds which left the graph out of order gave it, each with how many times rules fired, until
        a state is kept."""

    def check(self, graph: Graph, trace: Trace) -> None:
        """Look at the graph after a round, in order. Raises FixpointError, with the rewrites that lead back."""
        shrunk = len(graph) < self.least
        self.skip(len(graph))
        kept, renewed = self.state, self.rounds >= self.renewal
        if shrunk or not (renewed or kept is None or _has_operators(graph, kept.ops)):
            return
        state = _state(graph)
        if kept is not None and _same_states(kept, state):
            raise FixpointError(_circle(trace.firings[self.firings :]))
        if renewed or kept is None:
            self.state, self.firings, self.renewal = state, len(trace.firings), 2 * self.rounds + 1

    def wants(self, size: int, fired: int) -> bool:
        """True if a graph of so many nodes, which is not in order, has to be looked at after this round, too, in which
        rules fired so many times.

        Of such rounds one in a few is enough: a loop takes a few times as long to be found. In a loop, rounds do again
        what others did, so no state is kept before.
        """
        rounds = self.rounds + 1
        if size < self.least:
            return False
        if self.state is None:
            is_alike = (size, fired) in self._done
            self._done.add((size, fired))
            return is_alike
        return rounds >= self.renewal or (rounds % SELDOM == 0 and size == len(self.state.ops))

    def skip(self, size: int) -> None:
        """Let a round pass, after which there are so many nodes, without a look at the graph."""
        self.rounds += 1
        self.least = min(self.least, size)


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


def _has_operators(graph: Graph, ops: Sequence[Op]) -> bool:
    """True if the nodes of a graph have these operators in this order, which is cheap to see."""
    return len(graph) == len(ops) and all(node.op == op for node, op in zip(graph.nodes, ops))


def _state(graph: Graph) -> GraphState:
    return GraphState(
        [node.op for node in graph.nodes],
        [node.type for node in graph.nodes],
        [node.effect for node in graph.nodes],
        [node.attrs for node in graph.nodes],
        _links(graph),
    )


def _links(graph: Graph) -> array[int]:
    """The numbers of operands, users and deps of the nodes, and the places of all these, and of the outputs."""
    links, nodes = array("q"), graph.nodes
    for parts in ([node.operands for node in nodes], [node.users for node in nodes], [node.deps for node in nodes]):
        links.extend([len(part) for part in parts])
        links.extend([node.index for part in parts for node in part])
    links.extend([node.index for node in graph.outputs])
    return links


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


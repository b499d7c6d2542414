"""Noticing that rewriting goes round in circles."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from gsl.attr.evaluate import same
from gsl.errors import FixpointError
from gsl.graph import Graph
from gsl.rewrite.share import frozen
from gsl.rewrite.trace import Firing, Trace

SHOWN = 10
"""The largest number of firings that an error shows."""

GraphState = list[tuple[Any, ...]]
"""The state of a graph: for each node everything that rewriting depends on, nodes being told by their places; then the
outputs."""


class Watch:
    """Compares the graph after every round with an earlier state of it, and raises when that has come back.

    The rules are functions of the graph, so a graph that was there before comes again and again. The earlier state is
    that after round 0, 1, 3, 7, … (R. P. Brent, "An improved Monte Carlo factorization algorithm", BIT 20, 1980): one
    state is kept, and a loop is found within three times its rounds, or three times the rounds that lead to it.
    """

    def __init__(self, graph: Graph) -> None:
        self.state = _state(graph)
        self.firings = 0
        """The number of firings by then."""
        self.rounds = 0
        self.renewal = 1

    def check(self, graph: Graph, trace: Trace) -> None:
        """Look at the graph after a round. Raises FixpointError, with the rewrites that lead back."""
        self.rounds += 1
        state = _state(graph)
        if _same_states(self.state, state):
            raise FixpointError(_circle(trace.firings[self.firings :]))
        if self.rounds == self.renewal:
            self.state, self.firings, self.renewal = state, len(trace.firings), 2 * self.renewal + 1


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
    return f"the rule{'s' * (len(names) > 1)} {', '.join(names)}"


def _plural(number: int, what: str) -> str:
    return f"{number} {what}{'s' * (number != 1)}"


def _s(firings: Sequence[Firing]) -> str:
    return "s" if len({firing.rule for firing in firings}) == 1 else ""


def _lines(firings: Sequence[Firing]) -> str:
    return "\n".join(f"  round {firing.round}: {firing}" for firing in firings)


def _state(graph: Graph) -> GraphState:
    state: GraphState = [
        (
            node.op,
            [operand.index for operand in node.operands],
            [user.index for user in node.users],
            [dep.index for dep in node.deps],
            node.type,
            node.effect,
            node.attrs,
        )
        for node in graph.nodes
    ]
    state.append(tuple([output.index for output in graph.outputs]))
    return state


def _same_states(before: GraphState, after: GraphState) -> bool:
    if len(before) != len(after) or before[-1] != after[-1]:
        return False
    # What is cheap comes first: attributes are compared where all else is equal.
    if any(a[:-1] != b[:-1] for a, b in zip(before[:-1], after[:-1])):
        return False
    return all(a[-1] is b[-1] or _same_attributes(a[-1], b[-1]) for a, b in zip(before[:-1], after[:-1]))


def _same_attributes(before: Mapping[str, Any], after: Mapping[str, Any]) -> bool:
    return before.keys() == after.keys() and all(_same_values(before[name], after[name]) for name in before)


def _same_values(before: Any, after: Any) -> bool:
    if before is after or frozen(before) == frozen(after):
        return True
    tensors = all(hasattr(value, "shape") and hasattr(value, "dtype") for value in (before, after))
    return tensors and bool(before.dtype == after.dtype) and same(before, after)

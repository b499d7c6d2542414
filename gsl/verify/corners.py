"""The behaviour of a rule of which its verdict says nothing: on empty axes, and on numbers that are infinite, none, or
so large that they overflow."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Iterator
from itertools import islice

from gsl.errors import GSLError
from gsl.graph import INPUT, PARAM, Graph, TensorType
from gsl.verify.choices import Coverage, Dead, Random
from gsl.verify.instance import generate
from gsl.verify.models import CornerNumbers, difference_on
from gsl.verify.search import CounterexampleSearch

EMPTY, NOT_FINITE, HUGE = "empty axes", "infinite numbers or NaN", "numbers that overflow"
ATTEMPTS = 10
"""The number of attempts to make an instance with an empty axis."""
INSTANCES = 3
"""The number of instances that are looked at with such numbers."""
_SHARE = 0.4
"""The probability that a free axis is empty."""


def corners(search: CounterexampleSearch) -> dict[str, tuple[int, str]]:
    """For each corner, the number of instances that were compared there, and the first difference, if there is one."""
    some = search.equal[:: max(1, len(search.equal) // INSTANCES)][:INSTANCES]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return {
            EMPTY: _seen(search, _empty(search), "small"),
            NOT_FINITE: _seen(search, some, "not finite"),
            HUGE: _seen(search, [*some, *islice(filter(_is_of_integers, search.equal), INSTANCES)], "huge"),
        }


def _is_of_integers(graph: Graph) -> bool:
    """True if a graph is fed integers, which wrap where they overflow."""
    types = [node.type for node in graph.nodes if node.op in (INPUT, PARAM)]
    return any(isinstance(type, TensorType) and "int" in type.dtype for type in types)


def _seen(search: CounterexampleSearch, graphs: Iterable[Graph], numbers: CornerNumbers) -> tuple[int, str]:
    count = 0
    for before in graphs:
        try:
            after, trace = search.rule.apply(before)
            found = difference_on(before, after, numbers, seed=search.seed) if trace.firings else None
        except (GSLError, ValueError, ArithmeticError):  # a condition need not be ready for such a size
            continue
        count += found is not None
        if found:
            leaves = ", ".join(f"{node.name}: {node.type}" for node in before.nodes if node.op in (INPUT, PARAM))
            return count, f"{found} ({leaves})"
    return count, ""


class _Emptying(Random):
    """Decisions with which some axes are empty."""

    def size(self) -> int:
        return 0 if self.random.random() < _SHARE else super().size()


def _empty(search: CounterexampleSearch) -> Iterator[Graph]:
    """Instances with an empty axis."""
    coverage = Coverage()
    for attempt in range(ATTEMPTS):
        try:
            graph = generate(search.rule, _Emptying(f"{search.seed} {attempt}", coverage, small=True))
        except Dead:
            continue
        if any(isinstance(node.type, TensorType) and 0 in node.type.shape for node in graph.nodes):
            yield graph

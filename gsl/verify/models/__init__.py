"""The values of two graphs compared: exactly where a model of them allows it, and on real tensors always."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from gsl.graph import Graph
from gsl.verify.models.result import Comparison, ComparisonMethod, CornerNumbers, FailureKind, OutputComparison

__all__ = [
    "Comparison", "ComparisonMethod", "CornerNumbers", "FailureKind", "OutputComparison", "compare", "comparison_on",
    "difference_on", "is_finite",
]  # fmt: skip


def compare(before: Graph, after: Graph, *, seed: int, exact: bool = True) -> Comparison:
    """A comparison of the outputs of two graphs, on values that are drawn for their leaves.

    Without ``exact``, it is on real tensors only, and a difference that could be rounding is none.

    Leaves are matched by name, and their values come from the seed; those of CONST leaves are what they are. All types
    have to be known, with sizes that are numbers. ValueError for a graph with opaque calls or unknown types.
    """
    # Torch is loaded only when something is compared.
    from gsl.verify.models.methods import compare_graphs

    return compare_graphs(before, after, seed, exact)


def comparison_on(
    before: Graph, after: Graph, comparison: Comparison
) -> Callable[[Mapping[str, Any]], Comparison | None]:
    """A function that compares two graphs on given values of their leaves, where a comparison told them apart.

    It gives ``None`` where not the same outputs differ in the same way, by more than what could be rounding.
    """
    from gsl.verify.models.methods import on_values

    return on_values(before, after, comparison)


def difference_on(before: Graph, after: Graph, numbers: CornerNumbers, *, seed: int) -> str | None:
    """The first difference of two graphs on such numbers, in words; empty if there is none.

    It is an element that is finite before, and another one after, by more than what could be rounding; of huge floats,
    one that is not finite after. ``None`` where the first graph has no value at all.
    """
    from gsl.verify.models.methods import difference_at

    return difference_at(before, after, numbers, seed)


def is_finite(graph: Graph, values: Mapping[str, Any]) -> bool:
    """True if all floats of a graph are finite numbers on given values of its leaves."""
    from gsl.verify.models.methods import is_finite_on

    return is_finite_on(graph, values)

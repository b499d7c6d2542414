"""The values of two graphs compared: exactly where a model of them allows it, and on real tensors always."""

from __future__ import annotations

from gsl.graph import Graph
from gsl.verify.models.result import Comparison, ComparisonMethod, FailureKind, OutputComparison

__all__ = ["Comparison", "ComparisonMethod", "FailureKind", "OutputComparison", "compare"]


def compare(before: Graph, after: Graph, *, seed: int) -> Comparison:
    """A comparison of the outputs of two graphs, on values that are drawn for their leaves.

    Leaves are matched by name, and their values come from the seed; those of CONST leaves are what they are. All types
    have to be known, with sizes that are numbers. ValueError for a graph with opaque calls or unknown types.
    """
    # Torch is loaded only when something is compared.
    from gsl.verify.models.methods import compare_graphs

    return compare_graphs(before, after, seed)

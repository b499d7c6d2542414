"""The comparison of two graphs: by the exact models as far as they reach, and on real tensors always."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import numpy as np
import torch

from gsl.graph import Graph
from gsl.verify.models.draws import KINDS, Leaves, Rng
from gsl.verify.models.exact import Verdict, by_exact_models
from gsl.verify.models.program import Program, program_of
from gsl.verify.models.result import Comparison, Kind, OutputComparison
from gsl.verify.models.tensors import Tensors

_EXTRA_DRAWS: Final = 2 * KINDS
"""The draws that are added where an exact model tells outputs apart that no real tensors did so far."""


def compare_graphs(before: Graph, after: Graph, seed: int) -> Comparison:
    """See :func:`gsl.verify.models.compare`."""
    first, second = program_of(before), program_of(after)
    if [output[2] for output in first.outputs] != [output[2] for output in second.outputs]:
        return Comparison(_types(first, second), None)
    leaves = Leaves(first, second)
    rng = np.random.default_rng(seed)
    with torch.no_grad(), _one_thread():
        verdicts = by_exact_models(first, second, leaves, rng)
        tensors = _on_tensors(first, second, leaves, rng, verdicts)
    rows = [_row(first.outputs[number][0], number, verdict, tensors) for number, verdict in enumerate(verdicts)]
    unconfirmed = sum([row.equal and verdict.differs for row, verdict in zip(rows, verdicts)])
    return Comparison(tuple(rows), tensors.inputs, unconfirmed)


@contextmanager
def _one_thread() -> Iterator[None]:
    """Torch on one thread: on tensors as small as these, threads only wait for each other."""
    count = torch.get_num_threads()
    if count > 1:
        torch.set_num_threads(1)
    try:
        yield
    finally:
        if count > 1:
            torch.set_num_threads(count)


def _types(first: Program, second: Program) -> tuple[OutputComparison, ...]:
    """The types of the outputs compared, of which some differ."""
    rows = []
    for number in range(max(len(first.outputs), len(second.outputs))):
        sides = [program.outputs[number : number + 1] for program in (first, second)]
        expected, found = (str(side[0][2]) if side else "no output" for side in sides)
        kind: Kind = "" if expected == found else "type"
        path = (sides[0] or sides[1])[0][0]
        rows.append(OutputComparison(path, "float64", not kind, 0, kind, None, expected, found))
    return tuple(rows)


def _on_tensors(first: Program, second: Program, leaves: Leaves, rng: Rng, verdicts: list[Verdict]) -> Tensors:
    """The two programs on real tensors. Where an exact model tells them apart, on the values that do so, and on more
    draws."""
    agreed = {number for number, verdict in enumerate(verdicts) if verdict.draws and not verdict.differs}
    tensors = Tensors(first, second, agreed)
    for verdict in verdicts:
        if verdict.inputs is not None and tensors.differ(verdict.inputs):
            return tensors
    doubtful = any(verdict.differs for verdict in verdicts)
    for kind in KINDS + _EXTRA_DRAWS * doubtful:
        if tensors.differ(leaves.draw(rng, kind)):
            break
    return tensors


def _row(path: tuple[int, ...], number: int, verdict: Verdict, tensors: Tensors) -> OutputComparison:
    """The comparison of one output: its verdict, as far as real tensors confirm it."""
    elements, found = tensors.elements[number], tensors.differences.get(number)
    if found is not None:
        method = verdict.method if verdict.differs else "float64"
        return OutputComparison(
            path, method, False, elements, found.kind, found.index, found.expected, found.found, verdict.reason
        )
    if verdict.differs:
        reason = f"{verdict.method}: a difference that no real tensors have"
        return OutputComparison(path, "float64", True, elements, reason=reason)
    return OutputComparison(path, verdict.method, True, elements, reason=verdict.reason, chance=verdict.chance)

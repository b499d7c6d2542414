"""The comparison of two graphs: by the exact models as far as they reach, and on real tensors always."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import inf
from types import MappingProxyType
from typing import Any, Final

import numpy as np
import torch

from gsl.errors import is_exhaustion
from gsl.graph import Graph, TensorType
from gsl.pat.typed import Domain
from gsl.verify.kinds import PRODUCTS
from gsl.verify.models import field, integers
from gsl.verify.models.algebra import run_program
from gsl.verify.models.bounds import Bounds, within
from gsl.verify.models.definitions import UncoveredCall
from gsl.verify.models.draws import CORNERS, KINDS, DrawKind, DrawnLeaves, Rng
from gsl.verify.models.field import draw
from gsl.verify.models.program import StraightLineProgram, is_floating, program_of
from gsl.verify.models.result import (
    Comparison,
    ComparisonMethod,
    CornerNumbers,
    FailureKind,
    OutputComparison,
)

# ---------------------------------------------------------------- exact models


_FIELD_DRAWS: Final = 2
_TIES: Final = 1
"""The range of the first draw of integers, in which many numbers are equal."""
_SMALL: Final = (2, 9)
"""The ranges of draws of numbers of one sign or both, over several denominators, where order decides."""
_LEAST: Final = 2**8
"""Polynomials whose values are exact on a smaller range only are left to the field."""


@dataclass(slots=True)
class OutputVerdict:
    """The verdict of an exact model on one output."""

    method: ComparisonMethod
    draws: int = 0
    """The number of draws on which the model had values for the output; a model without any does not cover it."""
    reason: str = ""
    """The reason why this model, or a stronger one, had no value for it on some draw."""
    differs: bool = False
    chance: float = 1.0
    inputs: Mapping[str, Any] | None = None
    """Real tensors on which it differs in the model, if the model's numbers are real ones."""
    where: Any = None
    """True for the elements that differ there."""


def by_exact_models(
    first: StraightLineProgram, second: StraightLineProgram, leaves: DrawnLeaves, rng: Rng
) -> list[OutputVerdict]:
    """The verdict, for each output, of the strongest model that covers it; of method float64 if none does."""
    bounded = [name for name, domain in leaves.wanted.items() if not of_signs(domain)]
    if bounded:
        return [OutputVerdict("float64", reason=f"the numbers of {bounded[0]} have bounds") for _ in first.outputs]
    verdicts = by_integers(first, second, leaves, rng)
    if all(verdict.draws for verdict in verdicts):
        return verdicts
    others = by_field(first, second, leaves, rng)
    for number, (verdict, other) in enumerate(zip(verdicts, others)):
        if verdict.draws:
            continue
        if other.draws:
            other.reason = f"integers: {verdict.reason}"
            verdicts[number] = other
        else:
            verdicts[number] = OutputVerdict("float64", reason=f"integers: {verdict.reason}; field: {other.reason}")
    return verdicts


def of_signs(domain: Domain) -> bool:
    """True if a domain is one of signs alone, on which two polynomials that agree are equal."""
    return domain.step is None and domain.low in (0, -inf) and domain.high == inf


def by_integers(
    first: StraightLineProgram, second: StraightLineProgram, leaves: DrawnLeaves, rng: Rng
) -> list[OutputVerdict]:
    """The verdicts of the integers: on numbers with many ties, and on ranges as wide as they are computed exactly."""
    verdicts = [OutputVerdict("integers") for _ in first.outputs]
    model = integers.Integers(_TIES)
    _draw_integers(first, second, leaves, rng, verdicts, model)
    widest = integers.widest(model.largest)
    for range in (*_SMALL, widest) if model.ordered else (widest, widest):
        if not any(verdict.draws and not verdict.differs for verdict in verdicts):
            break
        _draw_integers(first, second, leaves, rng, verdicts, integers.Integers(range), model.ordered)
    for verdict in verdicts:
        # On next to no numbers, an agreement says less than another model does.
        if not verdict.differs and (verdict.draws == 1 or (widest < _LEAST and not model.ordered)):
            verdict.draws, verdict.reason = 0, verdict.reason or integers.TOO_LARGE
    return verdicts


def _draw_integers(
    first: StraightLineProgram, second: StraightLineProgram, leaves: DrawnLeaves, rng: Rng,
    verdicts: list[OutputVerdict], model: integers.Integers, sides: bool = False,
) -> None:  # fmt: skip
    drawn = leaves.draw_rationals(rng, model.range, sides)
    inner = {name: model.leaf(*x) if is_floating(leaves.types[name].dtype) else x[0] for name, x in drawn.items()}
    before = [verdict.differs for verdict in verdicts]
    _judge(verdicts, model.outputs(first, inner), model.outputs(second, inner), model.differing, model.chance)
    for verdict, differed in zip(verdicts, before):
        if verdict.differs and not differed:
            verdict.inputs = {name: x if over == 1 else x / over for name, (x, over) in drawn.items()}


def by_field(
    first: StraightLineProgram, second: StraightLineProgram, leaves: DrawnLeaves, rng: Rng
) -> list[OutputVerdict]:
    """The verdicts of the prime field."""
    verdicts = [OutputVerdict("field") for _ in first.outputs]
    for _ in range(_FIELD_DRAWS):
        model = field.Field(int(rng.integers(2**31)))
        wanted = leaves.wanted.get
        values = {
            name: draw(rng, type.shape, wanted(name)) if is_floating(type.dtype) else leaves.whole(rng, name, type)
            for name, type in leaves.types.items()
        }
        _judge(verdicts, model.outputs(first, values), model.outputs(second, values), model.differing, model.chance)
        if not any(verdict.draws and not verdict.differs for verdict in verdicts):
            break
    return verdicts


def _judge(
    verdicts: list[OutputVerdict],
    expected: list[Any],
    found: list[Any],
    differing: Callable[[Any, Any], Any],
    chance: Callable[[Any, Any], float],
) -> None:
    """Adds the values of one draw to the verdicts. A draw for which a model has no value says nothing."""
    for verdict, *pair in zip(verdicts, expected, found):
        reason = next((side for side in pair if isinstance(side, UncoveredCall)), None)
        try:
            if reason is not None:
                raise reason
            where = differing(*pair)
            if not verdict.differs and bool(where.any()):
                verdict.differs, verdict.where = True, where
        except UncoveredCall as error:
            verdict.reason = verdict.reason or str(error)
            continue
        verdict.draws += 1
        verdict.chance *= chance(*pair)


# ---------------------------------------------------------------- real tensors


_ROUNDED: Final = 2.0**-52
"""No relative error as small as that is a difference; any derived bound is larger."""
_VISIBLE: Final = 2.0**-30
"""A share of the largest element: much more than rounding on small instances, much less than the error of a wrong
rule."""


@dataclass(frozen=True, slots=True)
class Difference:
    """A place where an output of the target is not that of the source."""

    kind: FailureKind
    index: tuple[int, ...] | None
    expected: str
    found: str


class Tensors:
    """Two programs on real tensors, draw by draw, until one tells them apart."""

    def __init__(self, first: StraightLineProgram, second: StraightLineProgram, agreed: Collection[int] = ()) -> None:
        self.first, self.second = first, second
        self.agreed = agreed
        """The outputs on which an exact model agrees: a difference there is rounding, unless it is large enough to be
        seen without an analysis."""
        self.elements = [0] * len(first.outputs)
        """The number of elements of each output that were compared."""
        self.differences: dict[int, Difference] = {}
        """The outputs that differ, on the values that first told any of them apart."""
        self.inputs: Mapping[str, Any] | None = None

    def differ(self, values: Mapping[str, Any], certain: Mapping[int, Any] = MappingProxyType({})) -> bool:
        """True if any output differs on these values. Of the elements that are ``certain`` by output, an exact model
        tells that they do: there, a difference that can be seen is no rounding."""
        try:
            expected = run_program(self.first, values)
        except Exception as error:
            if is_exhaustion(error):
                raise
            # The source is not defined here, so that nothing is asked of the target.
            return False
        try:
            found = run_program(self.second, values)
        except Exception as error:
            if is_exhaustion(error):
                raise
            text = (str(error).strip() or type(error).__name__).splitlines()[0]
            self.differences = dict.fromkeys(range(len(expected)), Difference("undefined", None, "a value", text))
            self.inputs = values
            return True
        suspects = [number for number, pair in enumerate(zip(expected, found)) if not self._same(number, *pair)]
        if suspects:
            self._examine(suspects, expected, found, values, certain)
        return bool(self.differences)

    def _same(self, number: int, expected: Any, found: Any) -> bool:
        """True if all elements are plainly the same. Counts those that have a value."""
        if expected.shape != found.shape or expected.dtype != found.dtype:
            return False
        if not expected.is_floating_point():
            self.elements[number] += expected.numel()
            return torch.equal(expected, found)
        finite = expected.isfinite()
        self.elements[number] += int(finite.sum())
        if torch.equal(expected, found):
            return True
        magnitude = expected.abs()
        if number in self.agreed and expected.numel():
            allowed = _VISIBLE * torch.where(finite, magnitude, 0.0).max()
        else:
            allowed = _ROUNDED * magnitude
        near = (expected - found).abs() <= allowed
        return bool((near | ~finite).all())

    def _examine(
        self, suspects: Sequence[int], expected: Sequence[Any], found: Sequence[Any], values: Mapping[str, Any],
        certain: Mapping[int, Any],
    ) -> None:  # fmt: skip
        """Tells differences from rounding errors by the bounds on them."""
        bounds = [Bounds().outputs(program, values) for program in (self.first, self.second)]
        for number in suspects:
            x, y = expected[number], found[number]
            if x.shape != y.shape or x.dtype != y.dtype:
                texts = [f"{str(tensor.dtype).removeprefix('torch.')}{list(tensor.shape)}" for tensor in (x, y)]
                self.differences[number] = Difference("type", None, *texts)
                continue
            wrong = ~within(x, y, bounds[0][number], bounds[1][number])
            if number in certain:
                wrong |= certain[number] & ((x - y).abs() > _VISIBLE if x.is_floating_point() else x != y)
            if x.is_floating_point():
                wrong &= x.isfinite() & (x != y)  # of what comes from an infinite number there is no bound
            if bool(wrong.any()):
                self.differences[number] = _first(wrong, x, y)
        if self.differences:
            self.inputs = values


def _first(wrong: Any, expected: Any, found: Any) -> Difference:
    """The first element that differs."""
    index = tuple([int(place) for place in wrong.nonzero()[0]])
    a, b = expected[index].item(), found[index].item()
    kind: FailureKind = "value"
    if isinstance(b, float) and not np.isfinite(b):
        kind = "undefined" if np.isnan(b) else "not finite"
    return Difference(kind, index, repr(a), repr(b))


# ---------------------------------------------------------------- the comparison


_EXTRA_DRAWS: Final = 2 * KINDS
"""The draws that are added where an exact model tells outputs apart that no real tensors did so far."""
_FEW: Final = 8
"""The number of elements of all leaves together up to which there are more draws."""
_MORE_DRAWS: Final = 3
"""So many times as many draws."""


def compare_graphs(before: Graph, after: Graph, seed: int, exact: bool) -> Comparison:
    """See :func:`gsl.verify.models.compare`."""
    found = Comparison((), None)
    for first, second in _readings(before, after):
        found = _compared(first, second, seed, exact)
        if found.equal:
            break
    return found


def _readings(before: Graph, after: Graph) -> Iterator[tuple[StraightLineProgram, StraightLineProgram]]:
    """The programs of two graphs; they are equal if they are so in one reading.

    In the second one, all casts of integers round, whatever their results are used for. In the third one, a cast that
    makes an output does not round, as no other call does. So a norm in float32 between two casts is one of halves. A
    cast that rounds before other calls is still not one that does so after them. But a product may round each of its
    terms, so a cast before it rounds no more than the product: in the last reading, the second graph may leave it out,
    as fused attention does.
    """
    plain = last = program_of(before), program_of(after)
    yield plain
    exact = plain[1].with_exact_casts()
    readings = [(program_of(before, rounds_all=True), program_of(after, rounds_all=True))]
    readings += [(plain[0].with_exact_casts(products), exact) for products in ((), PRODUCTS)]
    for reading in readings:
        if [program.steps for program in reading] != [program.steps for program in last]:
            yield reading
        last = reading


def _compared(first: StraightLineProgram, second: StraightLineProgram, seed: int, exact: bool) -> Comparison:
    """The comparison of two programs."""
    if [output[2] for output in first.outputs] != [output[2] for output in second.outputs]:
        return Comparison(_types(first, second), None)
    leaves = DrawnLeaves(first, second)
    rng = np.random.default_rng(seed)
    with torch.no_grad():
        if exact:
            verdicts = by_exact_models(first, second, leaves, rng)
            tensors = _on_tensors(first, second, leaves, rng, verdicts)
        else:
            verdicts = [OutputVerdict("float64") for _ in first.outputs]
            tensors = Tensors(first, second, range(len(verdicts)))
            any(tensors.differ(leaves.draw(rng, kind)) for kind in _draws(leaves))
    rows = [_row(first.outputs[number][0], number, verdict, tensors) for number, verdict in enumerate(verdicts)]
    unconfirmed = sum([row.equal and verdict.differs for row, verdict in zip(rows, verdicts)])
    return Comparison(tuple(rows), tensors.inputs, unconfirmed)


def _types(first: StraightLineProgram, second: StraightLineProgram) -> tuple[OutputComparison, ...]:
    """The types of the outputs compared, of which some differ."""
    rows = []
    for number in range(max(len(first.outputs), len(second.outputs))):
        sides = [program.outputs[number : number + 1] for program in (first, second)]
        expected, found = (str(side[0][2]) if side else "no output" for side in sides)
        kind: FailureKind = "" if expected == found else "type"
        path = (sides[0] or sides[1])[0][0]
        rows.append(OutputComparison(path, "float64", not kind, 0, kind, None, expected, found))
    return tuple(rows)


def _draws(leaves: DrawnLeaves) -> tuple[DrawKind, ...]:
    """The kinds of draws of real tensors: more draws where all leaves together have few elements, which tell little."""
    count = sum(math.prod(type.shape) for type in leaves.types.values())
    return KINDS * (_MORE_DRAWS if count <= _FEW else 1)  # type: ignore[operator]


def _on_tensors(
    first: StraightLineProgram,
    second: StraightLineProgram,
    leaves: DrawnLeaves,
    rng: Rng,
    verdicts: list[OutputVerdict],
) -> Tensors:
    """The two programs on real tensors. Where an exact model tells them apart, on the values that do so, and on more
    draws."""
    agreed = {number for number, verdict in enumerate(verdicts) if verdict.draws and not verdict.differs}
    tensors = Tensors(first, second, agreed)
    for number, verdict in enumerate(verdicts):
        if verdict.inputs is not None and tensors.differ(verdict.inputs, {number: verdict.where}):
            return tensors
    doubtful = any(verdict.differs for verdict in verdicts)
    for kind in _draws(leaves) + _EXTRA_DRAWS * doubtful:
        if tensors.differ(leaves.draw(rng, kind)):
            break
    return tensors


def on_values(
    before: Graph, after: Graph, comparison: Comparison
) -> Callable[[Mapping[str, Any]], Comparison | None]:
    """See :func:`gsl.verify.models.comparison_on`."""
    readings = list(_readings(before, after))
    wanted = {number: row.kind for number, row in enumerate(comparison.outputs) if not row.equal}

    def compare_on(values: Mapping[str, Any]) -> Comparison | None:
        for first, second in reversed(readings):
            tensors = Tensors(first, second, range(len(first.outputs)))
            with torch.no_grad():
                tensors.differ(values)
            if {number: found.kind for number, found in tensors.differences.items()} != wanted:
                return None
        rows = list(comparison.outputs)
        for number, found in tensors.differences.items():
            rows[number] = replace(rows[number], index=found.index, expected=found.expected, found=found.found)
        return replace(comparison, outputs=tuple(rows), inputs=values)

    return compare_on


def difference_at(before: Graph, after: Graph, numbers: CornerNumbers, seed: int) -> str | None:
    """See :func:`gsl.verify.models.difference_on`."""
    first, second = program_of(before), program_of(after)
    drawn = DrawnLeaves(first, second).draw(np.random.default_rng(seed), CORNERS[numbers])
    with torch.no_grad():
        try:
            expected = run_program(first, drawn)
        except Exception as error:
            if is_exhaustion(error):
                raise
            return None
        try:
            found = run_program(second, drawn)
        except Exception as error:
            if is_exhaustion(error):
                raise
            return f"the target fails: {str(error).strip().splitlines()[0]}"
    rounds = numbers == "huge" and any(value.is_floating_point() for value in drawn.values())
    for number, (x, y) in enumerate(zip(expected, found)):
        if x.shape != y.shape or x.dtype != y.dtype:
            continue  # a dtype is compared by what is declared
        near = (x == y) if not x.is_floating_point() else (x - y).abs() <= _VISIBLE * x.abs().clamp(min=1)
        wrong = x.isfinite() & ~(y.isfinite() if rounds else near)
        if bool(wrong.any()):
            difference = _first(wrong, x, y)
            return f"output {number} at {difference.index} is {difference.expected} before and {difference.found} after"
    return ""


def is_finite_on(graph: Graph, values: Mapping[str, Any]) -> bool:
    """See :func:`gsl.verify.models.is_finite`."""
    every = [node for node in graph.nodes if isinstance(node.type, TensorType) and is_floating(node.type.dtype)]
    with torch.no_grad():
        found = run_program(program_of(Graph(graph.nodes, every, graph.infer)), values)
    return all(bool(value.isfinite().all()) for value in found)


def _row(path: tuple[int, ...], number: int, verdict: OutputVerdict, tensors: Tensors) -> OutputComparison:
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

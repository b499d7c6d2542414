"""Two programs on real tensors, told apart by more than rounding."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import torch

from gsl.verify.models import real
from gsl.verify.models.bounds import Bounds, within
from gsl.verify.models.program import StraightLineProgram
from gsl.verify.models.result import FailureKind

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

    def differ(self, values: Mapping[str, Any]) -> bool:
        """True if any output differs on these values."""
        try:
            expected = real.run(self.first, values)
        except Exception:
            # The source is not defined here, so that nothing is asked of the target.
            return False
        try:
            found = real.run(self.second, values)
        except Exception as error:
            text = (str(error).strip() or type(error).__name__).splitlines()[0]
            self.differences = dict.fromkeys(range(len(expected)), Difference("undefined", None, "a value", text))
            self.inputs = values
            return True
        suspects = [number for number, pair in enumerate(zip(expected, found)) if not self._same(number, *pair)]
        if suspects:
            self._examine(suspects, expected, found, values)
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
        magnitude = expected.abs()
        if number in self.agreed and expected.numel():
            allowed = _VISIBLE * torch.where(finite, magnitude, 0.0).max()
        else:
            allowed = _ROUNDED * magnitude
        near = (expected - found).abs() <= allowed
        return bool((near | ~finite).all())

    def _examine(
        self, suspects: Sequence[int], expected: Sequence[Any], found: Sequence[Any], values: Mapping[str, Any]
    ) -> None:
        """Tells differences from rounding errors by the bounds on them."""
        bounds = [Bounds().outputs(program, values) for program in (self.first, self.second)]
        for number in suspects:
            x, y = expected[number], found[number]
            if x.shape != y.shape or x.dtype != y.dtype:
                texts = [f"{str(tensor.dtype).removeprefix('torch.')}{list(tensor.shape)}" for tensor in (x, y)]
                self.differences[number] = Difference("type", None, *texts)
                continue
            wrong = ~within(x, y, bounds[0][number], bounds[1][number])
            if x.is_floating_point():
                wrong &= x.isfinite()
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

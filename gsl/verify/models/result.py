"""The result of a comparison of two graphs on values, output by output."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

ComparisonMethod = Literal["integers", "field", "float64"]
"""The method by which an output was compared, the strongest first."""
CornerNumbers = Literal["small", "not finite", "huge"]
"""The numbers that are drawn at a corner."""
FailureKind = Literal["", "value", "type", "undefined", "not finite"]
"""The kind of an output's difference: another value; another shape or dtype; the target raises or is NaN where the
source is defined; the target is infinite where the source is finite. Empty if it does not differ."""


@dataclass(frozen=True, slots=True)
class OutputComparison:
    """One output of the two graphs, or one field of an output that is a tuple."""

    path: tuple[int, ...]
    """The number of the output, and that of the field if it is a tuple."""
    method: ComparisonMethod
    """The strongest method by which the two were found equal, or that by which the difference was confirmed."""
    equal: bool
    elements: int
    """The number of elements that were compared in all draws. None where the source itself has no defined value."""
    kind: FailureKind = ""
    index: tuple[int, ...] | None = None
    """The first element that differs."""
    expected: str = ""
    """The element of the source, or its type, as text."""
    found: str = ""
    """The element of the target, or its type, or the error that it raised."""
    reason: str = ""
    """The reason why a stronger method did not apply; empty if the strongest did."""
    chance: float = 1.0
    """A bound on the probability that this output passes though the rule is wrong; 1.0 where none is known."""


@dataclass(frozen=True, slots=True, eq=False)
class Comparison:
    """Two graphs compared on values that they draw for their common leaves."""

    outputs: tuple[OutputComparison, ...]
    inputs: Mapping[str, Any] | None
    """The values of the leaves that tell the two apart, by name: float64 where a leaf is of floats. None if nothing
    differs, or if the types already do."""
    unconfirmed: int = 0
    """The number of outputs that an exact model told apart, but no real tensors did; their verdict is that of
    float64."""

    @property
    def equal(self) -> bool:
        return all(output.equal for output in self.outputs)

    @property
    def compared(self) -> bool:
        """True if there is evidence: a difference, or at least one element of each output that was compared."""
        return not self.equal or (bool(self.outputs) and all(output.elements > 0 for output in self.outputs))

    @property
    def chance(self) -> float:
        """A bound on the probability that a wrong rule passes: that of its worst output."""
        return max([output.chance for output in self.outputs], default=1.0)

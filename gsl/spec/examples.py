"""Examples of calls: the operands and attributes on which all that is said of an operator is tried.

Tests of every front end, conformance, verification and benchmarks draw from them. The tensor of an example is described
by its shape, its dtype and the range of its numbers, and made when it is needed, so that declarations need no torch.
"""

from __future__ import annotations

import math
import random
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

Number = bool | int | float


@dataclass(frozen=True, slots=True)
class Sample:
    """A tensor with reproducible numbers in ``[low, high)``, or with those that are given."""

    shape: tuple[int, ...]
    dtype: str = "float32"
    low: float = -2.0
    high: float = 2.0
    seed: int = 0
    given: tuple[Number, ...] | None = None
    """All numbers in row-major order."""

    def numbers(self) -> list[Number]:
        """The numbers in row-major order."""
        if self.given is not None:
            return list(self.given)
        draw = random.Random(f"{self.shape} {self.seed}").uniform
        drawn = [draw(self.low, self.high) for _ in range(math.prod(self.shape))]
        if self.dtype == "bool":
            return [number > 0 for number in drawn]
        return [math.floor(number) for number in drawn] if "int" in self.dtype else list(drawn)

    def tensor(self) -> Any:
        """A tensor of torch."""
        import torch

        wide = torch.float64 if "float" in self.dtype else torch.int64
        return torch.tensor(self.numbers(), dtype=wide).to(getattr(torch, self.dtype)).reshape(self.shape)


@dataclass(frozen=True, slots=True)
class Example:
    """A call: operands are samples, numbers, or tuples of samples."""

    operands: tuple[Any, ...]
    attrs: Mapping[str, Any]

    def values(self) -> tuple[Any, ...]:
        """The operands with tensors of torch."""
        return tuple(map(_value, self.operands))

    def label(self, op: str) -> str:
        """The operator with the attributes that are given."""
        given = ", ".join(f"{name}={value}" for name, value in self.attrs.items())
        return f"{op}({given})" if given else op


def _value(operand: Any) -> Any:
    if isinstance(operand, tuple):
        return tuple(map(_value, operand))
    return operand.tensor() if isinstance(operand, Sample) else operand


def call(*operands: Any, **attrs: Any) -> Example:
    """A call of these operands with these attributes."""
    return Example(operands, attrs)


def rand(*shape: int, dtype: str = "float32", low: float = -2.0, high: float = 2.0, seed: int = 0) -> Sample:
    """A sample of random numbers; tensors of one shape and seed have the same, as far as their ranges allow it."""
    return Sample(shape, dtype, low, high, seed)


def unit(*shape: int, dtype: str = "float32", seed: int = 0) -> Sample:
    """A sample of numbers between 0.1 and 0.9."""
    return Sample(shape, dtype, 0.1, 0.9, seed)


def exactly(rows: Any, dtype: str = "float32") -> Sample:
    """A sample of given numbers, nested in lists as torch takes them."""
    shape: list[int] = []
    numbers = rows
    while isinstance(numbers, list):
        shape.append(len(numbers))
        numbers = numbers[0] if numbers else None
    numbers = rows if shape else [rows]
    for _ in shape[1:]:
        numbers = [number for row in numbers for number in row]
    return Sample(tuple(shape), dtype, given=tuple(numbers))


INF: Final = math.inf
X, Y, ROW = rand(2, 3, 4), rand(2, 3, 4, seed=1), rand(4)
P = unit(2, 3, 4)
"""Of the same shape, with numbers on which everything is defined that is defined somewhere."""
U = unit(2, 3)
I32 = exactly([[7, -7, 3], [5, 0, -2]], "int32")
J32 = exactly([[2, 2, -2], [-3, 4, 5]], "int32")
COUNTS = exactly([[7, 7, 3], [5, 0, 2]], "int32")
B1, B2 = exactly([True, True, False, False], "bool"), exactly([True, False, True, False], "bool")
ODD = exactly([0.0, -0.5, 0.5, 1.5, 2.5, INF, math.nan, -INF])
SIGNAL, IMAGE, IMAGE3 = rand(2, 4, 9), rand(2, 4, 7, 6), rand(1, 4, 5, 6, 4)
NHWC = rand(2, 7, 6, 4)
KERNEL, BIAS = rand(6, 4, 3, 2), rand(6)
MATRIX = exactly([[4.0 * row + column for column in range(4)] for row in range(3)])
INDICES = exactly([[2, 0], [1, 1]], "int64")
GAMMA, BETA, MEAN, VAR = unit(4), rand(4), rand(4, seed=1), unit(4, seed=1)
"""Of each channel."""

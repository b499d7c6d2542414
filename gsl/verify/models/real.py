"""Programs on real tensors: the operators' own meaning, in float64."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import torch

from gsl.graph import TUPLE, TensorType
from gsl.verify.models.program import StraightLineProgram, StraightLineStep, is_floating, literal_tensor

KEEP_INTEGERS: Final = frozenset(("cast", "where", "full", "full_like", "nn.pad", "clip"))
"""Operators that may make floats of integers without computing with the integers as floats."""


def literal(value: Any) -> Any:
    """A literal as an operand. A float is a tensor, for torch computes integers with a Python float in float32."""
    if isinstance(value, float):
        return torch.tensor(value, dtype=torch.float64)
    return value if isinstance(value, (bool, int)) else literal_tensor(value)


def run(program: StraightLineProgram, values: Mapping[str, Any]) -> list[Any]:
    """The outputs of a program. Raises the error that an operator raises on these values."""
    slots = program.filled(values, literal)
    for step in program.steps:
        operands = [slots[slot] for slot in step.operands]
        slots[step.result] = call(step, operands)
    # An output may be a literal itself.
    return [torch.as_tensor(slots[slot]) for _, slot, _ in program.outputs]


def call(step: StraightLineStep, operands: Sequence[Any]) -> Any:
    """The value of one call, in float64 where it is of floats."""
    if step.spec is None:
        return tuple(operands) if step.op == TUPLE else operands[0][step.attrs["index"]]
    if step.rounding:
        return operands[0].to(getattr(torch, step.rounding)).double()
    makes_floats = isinstance(step.kind, TensorType) and is_floating(step.kind.dtype)
    if makes_floats and step.op not in KEEP_INTEGERS:
        operands = floats(operands)
    result = step.spec.meaning(torch, *operands, **step.attrs)
    if step.spec.fields:
        return tuple(result)
    return result.double() if makes_floats and result.dtype != torch.float64 else result


def floats(operands: Sequence[Any]) -> Sequence[Any]:
    """The operands, with tensors of integers as float64 if none of them is of floats."""
    tensors = [x for x in operands if isinstance(x, torch.Tensor)]
    if not tensors or any(x.is_floating_point() for x in tensors) or any(isinstance(x, tuple) for x in operands):
        return list(operands)
    return [x.double() if isinstance(x, torch.Tensor) else x for x in operands]

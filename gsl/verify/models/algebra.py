"""The common part of the models: programs on values of a model, beside values that are what they are.

Integers and booleans are *native*: torch tensors and Python numbers, computed by the operators' own meaning. Floats are
values of the model.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any, ClassVar, Final

import torch

from gsl.errors import is_exhaustion
from gsl.graph import TUPLE, TensorType
from gsl.spec import TABLE
from gsl.verify import kinds
from gsl.verify.models.definitions import DEFINITIONS, UncoveredCall
from gsl.verify.models.program import StraightLineProgram, StraightLineStep, is_floating, literal_tensor, rational

AlgebraRule = Callable[..., Any]
"""``rule(model, op, *operands, **attrs)``: the value of a call."""


@dataclass(frozen=True, slots=True)
class ModelValue:
    """A value of a model that stands for a tensor of floats, as tensors of the same shape."""

    parts: ClassVar[tuple[str, ...]]
    """The fields that are tensors. Of several, one may be None."""

    @property
    def any_part(self) -> Any:
        return next(part for name in self.parts if (part := getattr(self, name)) is not None)

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(self.any_part.shape)

    def mapped(self, function: Callable[[Any], Any]) -> Any:
        """The same with other places of its elements; several for a function that gives several."""
        changed = {name: function(part) for name in self.parts if (part := getattr(self, name)) is not None}
        if any(isinstance(part, (tuple, list)) for part in changed.values()):
            return tuple([replace(self, **dict(zip(changed, fields))) for fields in zip(*changed.values())])
        return replace(self, **changed)


class Algebra:
    """A model: how it computes each operator that it covers."""

    rules: ClassVar[Mapping[str, AlgebraRule]]
    value: ClassVar[type[ModelValue]]

    def __call__(self, op: str, *operands: Any, **attrs: Any) -> Any:
        """The value of a call; Uncovered if the model has none."""
        rule = self.rules.get(op)
        if rule is not None:
            return rule(self, op, *operands, **attrs)
        definition = DEFINITIONS.get(op)
        if definition is None:
            raise UncoveredCall(op)
        return definition(self, *operands, **attrs)

    def shape(self, value: Any) -> tuple[int, ...]:
        """The shape of a value; that of a number is ()."""
        if isinstance(value, (bool, int, float)):
            return ()
        return tuple(value.shape)

    def constant(self, numbers: Sequence[Fraction], shape: tuple[int, ...]) -> Any:
        """A tensor of rational numbers."""
        raise NotImplementedError

    def lift(self, value: Any) -> Any:
        """A native value or a number as a value of the model."""
        raise NotImplementedError

    def joined(self, values: Sequence[Any], function: Callable[..., Any]) -> Any:
        """A value whose elements are those of several values, as a function of tensors puts them together."""
        raise NotImplementedError

    def outputs(self, program: StraightLineProgram, leaves: Mapping[str, Any]) -> list[Any]:
        """The value of each output, or an Uncovered that says why it has none."""
        slots = program.filled(leaves, self._literal)
        for step in program.steps:
            operands = [slots[slot] for slot in step.operands]
            try:
                slots[step.result] = self._step(step, operands)
            except UncoveredCall as reason:
                slots[step.result] = reason
        return [self._output(slots[slot]) for _, slot, _ in program.outputs]

    def _output(self, value: Any) -> Any:
        """An output, as a tensor also where it is a literal."""
        if isinstance(value, float):
            try:
                return self.lift(value)
            except (ValueError, UncoveredCall):
                return UncoveredCall("a literal that is not a rational number")
        return torch.tensor(value) if isinstance(value, (bool, int)) else value

    def _literal(self, value: Any) -> Any:
        if isinstance(value, (bool, int, float)):
            return value
        tensor = literal_tensor(value)
        if not tensor.is_floating_point():
            return tensor
        try:
            return self.constant([rational(item) for item in tensor.reshape(-1).tolist()], tuple(tensor.shape))
        except (ValueError, UncoveredCall):
            return UncoveredCall("a literal that is not a rational number")

    def _step(self, step: StraightLineStep, operands: list[Any]) -> Any:
        for operand in operands:
            if isinstance(operand, UncoveredCall):
                raise operand
        if step.spec is None:
            if step.op != TUPLE:
                return operands[0][step.attrs["index"]]
            reason = next((field for field in operands if isinstance(field, UncoveredCall)), None)
            return tuple(operands) if reason is None else reason
        if step.rounding:
            return self.rounded(step, operands[0])
        if self.is_native(step, operands):
            return self.native(step, operands)
        try:
            return self(step.op, *operands, **step.attrs)
        except (ValueError, RuntimeError, ArithmeticError, IndexError) as error:
            if is_exhaustion(error):
                raise
            # What a kernel does not take, or a number that no residue stands for.
            raise UncoveredCall(f"{step.op}: {error}") from None

    def rounded(self, step: StraightLineStep, x: Any) -> Any:
        """The value of a cast that rounds."""
        raise UncoveredCall(f"a cast to {step.rounding} rounds")

    def is_native(self, step: StraightLineStep, operands: Sequence[Any]) -> bool:
        """True if a call has neither operands nor a result of floats."""
        fields = [field for operand in operands for field in (operand if isinstance(operand, tuple) else (operand,))]
        tensors: list[Any] = [field for field in fields if isinstance(field, (torch.Tensor, self.value))]
        floats = any(isinstance(x, self.value) or x.is_floating_point() for x in tensors)
        return not floats and not (isinstance(step.kind, TensorType) and is_floating(step.kind.dtype))

    def native(self, step: StraightLineStep, operands: Sequence[Any]) -> Any:
        """The value of a call of integers and booleans by its own meaning."""
        try:
            return real_call(step, [real_operand(x) if isinstance(x, float) else x for x in operands])
        except Exception as error:
            if is_exhaustion(error):
                raise
            raise UncoveredCall(f"{step.op}: {error}") from None


def meaning(op: str) -> Callable[..., Any]:
    """A function that computes an operator from torch tensors."""
    return TABLE[op].meaning


# Rules for what models make without a table of their own.


def fill(o: Algebra, value: Any, shape: tuple[int, ...]) -> Any:
    """A tensor filled with a number or a value of one element."""
    scalar = o("reshape", o.lift(value), newshape=())
    return o("broadcast_to", scalar, shape=shape)


def arange(o: Algebra, op: str, *, start: Any, stop: Any, step: Any, dtype: str) -> Any:
    """The numbers as rationals, as many as torch makes."""
    count = len(meaning(op)(torch, start=start, stop=stop, step=step, dtype=dtype))
    return o.constant([rational(start) + i * rational(step) for i in range(count)], (count,))


def pad(o: Algebra, op: str, x: Any, *, pad_width: Any, pad_value: Any, pad_mode: str) -> Any:
    """Padding by a number other than 0 chooses between a padding by 0 and the number."""
    if pad_mode != "constant" or pad_value == 0:
        return moves(o, op, x, pad_width=pad_width, pad_value=0.0, pad_mode=pad_mode)
    inside = meaning(op)(torch, torch.ones(o.shape(x)), pad_width, 0.0, "constant").bool()
    zeros = moves(o, op, x, pad_width=pad_width, pad_value=0.0, pad_mode=pad_mode)
    return o("where", inside, zeros, pad_value)


def moves(o: Algebra, op: str, x: Any, *others: Any, **attrs: Any) -> Any:
    """An operator that moves elements: the same moves for all that stands for them."""
    rest = [getattr(other, "any_part", other) for other in others]
    return o.lift(x).mapped(lambda part: meaning(op)(torch, part, *rest, **attrs))


_CHOOSING: Final[Mapping[str, int]] = {"where": 0, "scatter": 1}
"""The operands by which elements are chosen, which are what they are."""


def joins(o: Algebra, op: str, *operands: Any, **attrs: Any) -> Any:
    """An operator whose elements are those of its operands."""
    if isinstance(operands[0], tuple):
        return o.joined(operands[0], lambda *parts: meaning(op)(torch, parts, **attrs))
    choosing = _CHOOSING.get(op)
    if choosing is not None and isinstance(operands[choosing], o.value):
        raise UncoveredCall(f"{op} by a float")

    def join(*parts: Any) -> Any:
        rest = iter(parts)
        return meaning(op)(torch, *[x if i == choosing else next(rest) for i, x in enumerate(operands)], **attrs)

    return o.joined([x for i, x in enumerate(operands) if i != choosing], join)


def power(o: Algebra, op: str, x: Any, exponent: Fraction) -> Any:
    """A power with an exponent of at most 8, in wholes or halves."""
    base = result = o.lift(x) if exponent.denominator == 1 else o("sqrt", x)
    for _ in range(abs(exponent.numerator) - 1):
        result = o("multiply", result, base)
    return result if exponent > 0 else o("divide", 1, result)


def clip(o: Algebra, op: str, x: Any, *, a_min: Any, a_max: Any) -> Any:
    """The larger of a number and one bound, and the smaller of that and another one."""
    x = o.lift(x) if a_min is None else o("maximum", x, a_min)
    return x if a_max is None else o("minimum", x, a_max)


COMMON: Mapping[str, AlgebraRule] = {
    **dict.fromkeys(kinds.JOINS, joins),
    "zeros": lambda o, op, *, shape, dtype: fill(o, 0, shape),
    "ones": lambda o, op, *, shape, dtype: fill(o, 1, shape),
    "full": lambda o, op, x, *, shape, dtype: fill(o, x, shape),
    "zeros_like": lambda o, op, x: fill(o, 0, o.shape(x)),
    "ones_like": lambda o, op, x: fill(o, 1, o.shape(x)),
    "full_like": lambda o, op, x, value: fill(o, value, o.shape(x)),
    "arange": arange,
    "nn.pad": pad,
}


# Programs on real tensors: the operators' own meaning, in float64


KEEP_INTEGERS: Final = frozenset(("cast", "where", "full", "full_like", "nn.pad", "clip"))
"""Operators that may make floats of integers without computing with the integers as floats."""


def real_operand(value: Any) -> Any:
    """A literal as an operand. A float is a tensor, for torch computes integers with a Python float in float32."""
    if isinstance(value, float):
        return torch.tensor(value, dtype=torch.float64)
    return value if isinstance(value, (bool, int)) else literal_tensor(value)


def run_program(program: StraightLineProgram, values: Mapping[str, Any]) -> list[Any]:
    """The outputs of a program. Raises the error that an operator raises on these values."""
    slots = program.filled(values, real_operand)
    for step in program.steps:
        operands = [slots[slot] for slot in step.operands]
        slots[step.result] = real_call(step, operands)
    # An output may be a literal itself.
    return [torch.as_tensor(slots[slot]) for _, slot, _ in program.outputs]


def real_call(step: StraightLineStep, operands: Sequence[Any]) -> Any:
    """The value of one call, in float64 where it is of floats."""
    if step.spec is None:
        return tuple(operands) if step.op == TUPLE else operands[0][step.attrs["index"]]
    if step.rounding:
        return operands[0].to(getattr(torch, step.rounding)).double()
    makes_floats = isinstance(step.kind, TensorType) and is_floating(step.kind.dtype)
    if makes_floats and step.op not in KEEP_INTEGERS:
        operands = as_floats(operands)
    result = step.spec.meaning(torch, *operands, **step.attrs)
    if step.spec.fields:
        return tuple(result)
    return result.double() if makes_floats and result.dtype != torch.float64 else result


def as_floats(operands: Sequence[Any]) -> Sequence[Any]:
    """The operands, with tensors of integers as float64 if none of them is of floats."""
    tensors = [x for x in operands if isinstance(x, torch.Tensor)]
    if not tensors or any(x.is_floating_point() for x in tensors) or any(isinstance(x, tuple) for x in operands):
        return list(operands)
    return [x.double() if isinstance(x, torch.Tensor) else x for x in operands]

"""Attributes of calls as one writes them: axes counted from the end, ranks of operands, defaults left out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from gsl.graph import TensorType, TupleType, Type
from gsl.pat import Pattern
from gsl.programs.fit import AxesOf, Column, Quantities, Quantity, same
from gsl.programs.source import TracedNode
from gsl.spec import REQUIRED, OpSpec


def near(operand: Pattern, types: Sequence[tuple[Type | None, ...]]) -> Quantities | None:
    """The rank of the first operand of a call, where it differs: axes are counted by it."""
    own = [each[0] for each in types]
    shapes = [shape_of(type) for type in own if isinstance(type, TensorType)]
    ranks = tuple(map(len, shapes))
    if len(ranks) < len(own) or len(set(ranks)) == 1:
        return None
    axes = [AxesOf(None, operand.ndim - less if less else operand.ndim, tuple(shape[less:] for shape in shapes))
            for less in range(min(ranks) + 1)]  # fmt: skip
    return Quantities(ranks=[Quantity("the rank of the operand", operand.ndim, ranks)], axes=axes)


def from_the_end(
    spec: OpSpec, name: str, values: Column, column: Sequence[TracedNode], types: Sequence[tuple[Type | None, ...]]
) -> Any:
    """Axes as they are counted from the end, if these are the same in all traces; else ``None``."""
    if all(same(values[0], value) for value in values):
        return None
    for more in (0, 1):
        counted = [_counted(value, own, more) for value, own in zip(values, types)]
        if counted[0] is not None and all(same(counted[0], value) for value in counted) and all(
            same(_completed(spec, {**spec.own(node.attrs), name: counted[0]}, own, name), value)
            for value, node, own in zip(values, column, types)
        ):
            return counted[0]
    return None


def _counted(value: Any, types: Sequence[Type | None], more: int) -> Any:
    """Axes counted from the end of the first operand, or of one with an axis more; ``None`` for what are no axes."""
    first = types[0] if types else None
    first = first.fields[0] if isinstance(first, TupleType) and first.fields else first
    axes = value if isinstance(value, tuple) else (value,)
    if not isinstance(first, TensorType) or not axes or not all(type(axis) is int for axis in axes):
        return None
    counted = tuple(axis - first.ndim - more for axis in axes)
    if any(axis >= 0 for axis in counted):
        return None
    return counted if isinstance(value, tuple) else counted[0]


def is_default(
    spec: OpSpec, name: str, column: Sequence[TracedNode], types: Sequence[tuple[Type | None, ...]]
) -> bool:
    """True if an attribute has the value in all traces that it has where it is not given."""
    for node, own in zip(column, types):
        given = spec.own(node.attrs)
        value = given.pop(name)
        if spec.attrs[name].default is REQUIRED or not same(_completed(spec, given, own, name), value):
            return False
    return True


def _completed(spec: OpSpec, given: Mapping[str, Any], types: tuple[Type | None, ...], name: str) -> Any:
    try:
        return spec.complete(given, types)[name]
    except ValueError:
        return None


def shape_of(type: TensorType) -> tuple[int, ...]:
    return tuple(int(size) for size in type.shape)  # type: ignore[arg-type]

"""Constants without axes that the view shows as numbers: ``x * 2`` is ``multiply(x, R.const(2, …))`` in Relax."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from gsl.front.relax.types import is_constant
from gsl.graph import Type
from gsl.spec import TABLE, Trait
from gsl.spec.meaning import Operand, infer


def reads_as_number(op: Any, expr: Any) -> bool:
    """True for a constant without axes that is an operand of arithmetic."""
    return (
        isinstance(op, str) and op in TABLE and Trait.BROADCASTING in TABLE[op].traits
        and is_constant(expr) and not expr.value.shape
    )  # fmt: skip


def number_of(
    op: str, attrs: Mapping[str, Any], types: Sequence[Type | None], place: int, constant: Any
) -> bool | int | float | None:
    """The number that a constant among the operands is, ``None`` if the call would have another type with a number.

    The other operands have to be tensors; a number among them has been decided by its own call of this function.
    """
    others = [type for position, type in enumerate(types) if position != place]
    dtype = str(constant.value.dtype)
    if not others or any(type is None or getattr(type, "dtype", None) != dtype for type in others):
        return None
    value = scalar(constant)
    with_number: list[Operand] = [value if position == place else type for position, type in enumerate(types)]
    try:
        same = infer(TABLE[op], with_number, attrs) == infer(TABLE[op], types, attrs)
    except ValueError:
        return None
    return value if same else None


def scalar(constant: Any) -> bool | int | float | None:
    """The value of a constant without axes: of a float, the shortest decimal that is rounded to it."""
    array = constant.value.numpy()
    if array.dtype == np.float32:
        return float(str(array[()]))
    value = array.item()
    return value if isinstance(value, (bool, int, float)) else None

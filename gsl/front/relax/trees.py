"""The view nodes of one reading."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from tvm import relax

from gsl.front.core.handle import Source
from gsl.front.core.load import Expansion
from gsl.front.relax.dims import is_constant
from gsl.front.tree import Canon
from gsl.graph import TUPLE, Node, TensorType, Type
from gsl.spec import TABLE, Trait
from gsl.spec.meaning import Operand, infer

# ---------------------------------------------------------------- constants as numbers


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


# ---------------------------------------------------------------- trees of view nodes


class RelaxExpansion(Expansion):
    """The view nodes of one reading, in which constants without axes may be numbers."""

    def operand(self, operand: Any, type: Type | None = None) -> tuple[Node, Source]:
        return super().operand(tuple_of(operand) if isinstance(operand, relax.Tuple) else operand, type)

    def operands(self, canon: Canon, type: Type | None) -> list[tuple[Node, Source]]:
        waiting = [place for place, operand in enumerate(canon.operands) if reads_as_number(canon.op, operand)]
        found: list[Any] = [None if place in waiting else self.operand(operand)
                            for place, operand in enumerate(canon.operands)]  # fmt: skip
        known = [None if item is None else item[0].type for item in found]
        for place in waiting:
            # It is a number if that makes no difference to the type of the call.
            constant = canon.operands[place]
            types = [*known[:place], TensorType((), str(constant.value.dtype)), *known[place + 1 :]]
            value = number_of(canon.op, canon.attrs, types, place, constant)
            found[place] = self.operand(constant if value is None else value)
        return found


def tuple_of(expr: Any) -> Canon:
    """The reading of a tuple expression."""
    return Canon(TUPLE, tuple([tuple_of(item) if isinstance(item, relax.Tuple) else item for item in expr.fields]))

"""The canonical operators that show a native call, for messages to users who look for it under its native name."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from itertools import product
from typing import Any, Final

from torch import nn

from gsl.front.core.canonical import pattern_of
from gsl.front.fx import spellings
from gsl.front.fx.opaque import method_name
from gsl.front.fx.tree import Weight
from gsl.front.tree import Canon
from gsl.graph import Op, TensorType, Type

_TYPES: Final[tuple[Type | None, ...]] = (
    None, *(TensorType((2,) * rank, dtype) for dtype in ("float32", "int64") for rank in (4, 2)),
)  # fmt: skip
"""The types that are assumed of the operands in turn: some readings depend on their rank or dtype."""


class _Operand:
    """Stands for a tensor."""

    def __init__(self, number: int) -> None:
        self.number = number

    def __str__(self) -> str:
        return "xyzuvw"[self.number] if self.number < 6 else f"x{self.number}"


def canonical(op: Op, operands: int | None, attrs: Mapping[str, Any]) -> str | None:
    """The pattern of the canonical operators as which a call of the native target is loaded, as far as that can be
    told from the number of operands and some attributes; ``None`` if it is loaded as it is."""

    def read(count: int, kind: tuple[Type | None, bool]) -> Canon | None:
        type, is_list = kind
        each = tuple(map(_Operand, range(count)))
        given: tuple[Any, ...] = (list(each),) if is_list else each

        def type_of(value: Any) -> Type | None:
            return type if isinstance(value, _Operand) else None

        if inspect.isclass(op):
            return spellings.read_any_module(op, given, attrs, type_of) if issubclass(op, nn.Module) else None
        return spellings.read(method_name(op) or op, given, attrs, type_of)

    # The operands of some calls are given as one list.
    return pattern_of((1, 2, 3) if operands is None else (operands,), product(_TYPES, (False, True)), read, _text)


def _text(value: Any) -> str:
    if isinstance(value, Weight):
        return "pat.Param()"
    return str(value) if isinstance(value, _Operand) else repr(value)

"""The canonical operators that show a native call, for messages to users who look for it under its native name."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping
from typing import Any, Final

from torch import nn

from gsl.front.fx import spellings
from gsl.front.fx.opaque import method_name
from gsl.front.fx.tree import Weight
from gsl.front.tree import Canon, LiteralOperand
from gsl.graph import Op, TensorType, Type
from gsl.spec import TABLE

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
    for count in (1, 2, 3) if operands is None else (operands,):
        for type in _TYPES:
            each = tuple(map(_Operand, range(count)))
            # The operands of some calls are given as one list.
            for given in (each, (list(each),)):
                canon = _read(op, given, attrs, type)
                if canon is not None and canon.op in TABLE:
                    return _text(canon)
    return None


def _read(op: Op, operands: tuple[Any, ...], attrs: Mapping[str, Any], type: Type | None) -> Canon | None:
    def type_of(value: Any) -> Type | None:
        return type if isinstance(value, _Operand) else None

    try:
        if inspect.isclass(op):
            return spellings.read_any_module(op, operands, attrs, type_of) if issubclass(op, nn.Module) else None
        return spellings.read(method_name(op) or op, operands, attrs, type_of)
    except Exception:
        # The pattern does not give all that a call needs.
        return None


def _text(value: Any) -> str:
    if isinstance(value, Weight):
        return "pat.Param()"
    if isinstance(value, LiteralOperand):
        return repr(value.value.tolist() if hasattr(value.value, "tolist") else value.value)
    if not isinstance(value, Canon):
        return str(value) if isinstance(value, _Operand) else repr(value)
    if value.op not in TABLE:
        return f"[{', '.join(map(_text, value.operands))}]"
    parts: Iterator[str] = iter([*map(_text, value.operands), *(f"{n}={v!r}" for n, v in value.attrs.items())])
    return f"op.{TABLE[value.op].cls}({', '.join(parts)})"

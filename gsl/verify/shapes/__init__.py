"""The shape rules of the operators: from the wanted result to operands and attributes."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final

from gsl.spec import TABLE, OperatorName
from gsl.verify.shapes import conv, create, elementwise, index, layout, linear, norm, pool, reduce
from gsl.verify.shapes.custom import by_declaration, by_example
from gsl.verify.solve import DTYPES, FLOATS, INTEGERS, ShapeRule

_FAMILIES: Final = (elementwise, create, conv, pool, linear, layout, reduce, norm, index)

_RULES: Final[Mapping[str, ShapeRule]] = {
    **dict.fromkeys(TABLE, by_example),
    **{name: rule for family in _FAMILIES for name, rule in family.RULES.items()},
}


def rule_of(op: Any) -> ShapeRule | None:
    """The shape rule of an operator: without one of its own, its examples are what it is tried on."""
    return by_declaration if isinstance(op, OperatorName) else _RULES.get(op)


_FLOAT_ONLY: Final = frozenset(name for family in _FAMILIES for name in family.FLOAT_ONLY)


def dtypes_of(ops: Collection[Any]) -> Sequence[str]:
    """The dtypes of which leaves of calls of these operators may be, the simplest first."""
    if not _FLOAT_ONLY.isdisjoint(ops) or any(isinstance(op, OperatorName) for op in ops):
        return FLOATS
    return DTYPES if elementwise.WHOLE_ONLY.isdisjoint(ops) else INTEGERS


__all__ = ["dtypes_of", "rule_of"]

"""A canonical reading as view nodes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gsl.front.core.handle import Source
from gsl.front.core.load import Expansion
from gsl.front.fx import spellings
from gsl.front.fx.values import type_of_value
from gsl.front.tree import Canon
from gsl.graph import TUPLE, Node, TupleType, Type
from gsl.spec import TABLE


class FxExpansion(Expansion):
    """The view nodes of one canonical reading, of whose operands no types need be known."""

    def operands(self, canon: Canon, type: Type | None) -> list[tuple[Node, Source]]:
        # A bias does not change the type.
        types = (type if canon.op == "nn.bias_add" else None, *[None] * len(canon.operands))
        return list(map(self.operand, canon.operands, types))

    def type(self, op: Any, operands: tuple[Node, ...], attrs: Mapping[str, Any]) -> Type | None:
        return None if any(operand.type is None for operand in operands) else super().type(op, operands, attrs)

    def type_of(self, value: Any) -> Type | None:
        return type_of_value(value)

    def own_name(self, op: Any) -> str:
        return "nobias" if op in spellings.BIASED else super().own_name(op)


def is_tuple(view: Node) -> bool:
    """True if a view node is known to have a tuple for its value."""
    if isinstance(view.type, TupleType) or view.op == TUPLE:
        return True
    return isinstance(view.op, str) and view.op in TABLE and TABLE[view.op].fields

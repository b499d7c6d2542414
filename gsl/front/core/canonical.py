"""The canonical operators that show a native operator, for messages to users who look for it under its own name."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import product
from typing import Any, Final, TypeVar

from gsl.front.tree import Canon, LiteralOperand
from gsl.spec import TABLE

COUNTS: Final = (1, 2, 3, 5)
"""The numbers of operands that are assumed in turn where a pattern does not tell."""
RANKS: Final = (2, 4, 3, 1)
"""The ranks that are assumed of the operands in turn: some readings depend on their rank."""

OperandKind = TypeVar("OperandKind")


def pattern_of(
    counts: Iterable[int], kinds: Iterable[OperandKind], read: Callable[[int, OperandKind], Canon | None],
    leaf: Callable[[Any], str],
) -> str | None:  # fmt: skip
    """The pattern of the canonical operators as which a call is loaded; ``None`` if it is loaded as it is.

    ``read`` reads the call with so many operands of a kind: the first ones count for which there is a reading. ``leaf``
    is the text of an operand.
    """
    for count, kind in product(counts, kinds):
        try:
            canon = read(count, kind)
        except Exception:
            # The pattern does not give all that a call needs.
            continue
        if canon is not None and canon.op in TABLE:
            return _text(canon, leaf)
    return None


def _text(value: Any, leaf: Callable[[Any], str]) -> str:
    if isinstance(value, LiteralOperand):
        return repr(value.value.tolist() if hasattr(value.value, "tolist") else value.value)
    if not isinstance(value, Canon):
        return leaf(value)
    operands = [_text(operand, leaf) for operand in value.operands]
    if value.op not in TABLE:
        return f"[{', '.join(operands)}]"
    given = [f"{name}={attribute!r}" for name, attribute in value.attrs.items()]
    return f"op.{TABLE[value.op].cls}({', '.join([*operands, *given])})"

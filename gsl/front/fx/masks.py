"""How low the numbers of a mask may be, which fast kernels of attention take for minus infinity."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Final

from gsl.front.core.handle import is_literal
from gsl.graph import CONST, PARAM, TUPLE, Node, TensorType
from gsl.match.literals import known_value
from gsl.spec import Trait, spec_of

LOWEST: Final = -1e38
"""The lowest number that a new mask may have beside minus infinity. On accelerators, kernels multiply the sum of a
score and a mask by log2(e), for which the lowest ones of float32 and bfloat16 are too low: where such a number hides
all places of a row, they take the row for one without weights, and not for one of equal weights."""

_WIDE: Final = frozenset(("float32", "bfloat16", "float64"))
"""The dtypes that have lower numbers."""

_KEEPS: Final = frozenset(("broadcast_to", "cast", "concatenate", "copy", "full", "strided_slice", "where"))
"""Operators whose results have no lower number than their operands, beside those that move elements."""

_NOT_NEGATIVE: Final = frozenset(("ones", "ones_like", "sigmoid", "zeros", "zeros_like"))

_JOINS: Final[dict[Any, Callable[[list[float]], float]]] = {"add": sum, "maximum": max}
"""How the bounds of operands make that of a result, where it is not the lowest of them."""

_DEEPEST: Final = 32
"""The number of calls that are looked at one above the other."""


def is_too_low(mask: Node) -> bool:
    """True if a mask may have a lower number than ``LOWEST`` that is not minus infinity."""
    is_wide = isinstance(mask.type, TensorType) and mask.type.dtype in _WIDE - {"float64"}
    return is_wide and _least(mask, {}, _DEEPEST) < LOWEST


def _least(node: Node, known: dict[Node, float], depth: int) -> float:
    """A number than which no finite one of a tensor is lower; minus infinity where none is known."""
    if node not in known:
        known[node] = _found(node, known, depth)
    return known[node]


def _found(node: Node, known: dict[Node, float], depth: int) -> float:
    if isinstance(node.type, TensorType) and node.type.dtype not in _WIDE:
        return -float(2**63)
    if node.op in (CONST, PARAM):
        return _least_known(known_value(node))
    if node.op in _NOT_NEGATIVE:
        return 0.0
    if node.op == "clip" and node.attrs["a_min"] is not None:
        return float(node.attrs["a_min"])
    found = [_least(part, known, depth - 1) for part in _parts(node)] if depth else []
    return _JOINS.get(node.op, min)(found) if found else -math.inf


def _parts(node: Node) -> tuple[Node, ...]:
    """The operands from which the numbers of a result come; none where it has others."""
    operands = node.operands
    if node.op == "where":
        hidden, low, others = operands
        return (others,) if _is_infinite(hidden, low) else (low, others)
    if node.op == "full_like":
        return operands[1:]
    if node.op == "take":
        return operands[:1]
    spec = spec_of(node.op)
    moves = spec is not None and Trait.LAYOUT in spec.traits
    return operands if moves or node.op in _KEEPS or node.op in _JOINS or node.op == TUPLE else ()


def _is_infinite(condition: Node, tensor: Node) -> bool:
    """True for the condition that the elements of a tensor are minus infinity."""
    if condition.op != "equal" or condition.operands[0] is not tensor:
        return False
    return is_literal(condition.operands[1]) and condition.operands[1].attrs["value"] == -math.inf


def _least_known(value: Any) -> float:
    if value is None:
        return -math.inf
    if isinstance(value, (bool, int, float)):
        return 0.0 if value == -math.inf else float(value)
    finite = value[value > -math.inf]
    return float(finite.min()) if math.prod(finite.shape) else 0.0

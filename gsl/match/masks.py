"""What is known of the numbers of a mask of attention: how low they are, and whether they hide whole rows."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Final

from gsl.graph import CONST, PARAM, TUPLE, Node, TensorType
from gsl.match.literals import known_value
from gsl.spec import Trait, spec_of

LOWEST: Final = -1e38
"""The lowest number that a mask may have beside minus infinity for all kernels. Some multiply the sum of a score and a
mask by log2(e), for which the lowest ones of float32 and bfloat16 are too low: where such a number hides all places of
a row, they take the row for one without weights, and not for one of equal weights."""

_LEAST: Final = {"float16": -65504.0}
"""The lowest number of a dtype that has none lower than ``LOWEST``."""

_DEEPEST: Final = 32
"""The number of calls that are looked at one above the other."""


@dataclass(frozen=True)
class Numbers:
    """What is known of the numbers of a tensor."""

    least: float
    """None of them is lower, but for minus infinity; minus infinity where that is not known."""
    infinite: int
    """0 if none of them is minus infinity, 1 if some are, but never all along the last axis, and 2 if all may be."""
    unbounded: bool = False
    """True if some may be plus infinity."""


_UNKNOWN: Final = Numbers(-math.inf, 2, unbounded=True)
_FINITE: Final = Numbers(-math.inf, 0)
_POSITIVE: Final = Numbers(0.0, 0)


def is_too_low(mask: Node) -> bool:
    """True if a mask may have a lower number than ``LOWEST`` that is not minus infinity."""
    is_wide = isinstance(mask.type, TensorType) and mask.type.dtype in ("float32", "bfloat16")
    return is_wide and _numbers(mask, {}, _DEEPEST).least < LOWEST


def may_hide_rows(mask: Node) -> bool:
    """True if all places of a row may be hidden by minus infinity, or, in a mask of truth values, not be visible.

    Numbers are assumed to be such that sums and products of finite ones are finite.
    """
    if isinstance(mask.type, TensorType) and mask.type.dtype == "bool":
        value = known_value(mask)
        return value is None or not hasattr(value, "any") or not bool(value.any(-1).all())
    return _numbers(mask, {}, _DEEPEST).infinite == 2


def _numbers(node: Node, known: dict[Node, Numbers], depth: int) -> Numbers:
    if node not in known:
        dtype = node.type.dtype if isinstance(node.type, TensorType) else "float32"
        found = _found(node, known, depth) if "float" in dtype else Numbers(-float(2**63), 0)
        known[node] = replace(found, least=max(found.least, _LEAST.get(dtype, -math.inf)))
    return known[node]


def _found(node: Node, known: dict[Node, Numbers], depth: int) -> Numbers:
    if node.op in (CONST, PARAM):
        return _of_value(known_value(node))
    if depth == 0 or not isinstance(node.op, str):
        return _UNKNOWN
    if node.op in _BOUNDED:
        return _BOUNDED[node.op]
    if node.op not in _JOINS and node.op != "clip" and not _moves(node):
        return _UNKNOWN  # no weight is read of which the result is not known anyway
    parts = [_numbers(part, known, depth - 1) for part in _parts(node)]
    if node.op == "clip" and node.attrs["a_min"] is not None:
        bounds = [bound for bound in (node.attrs["a_min"], node.attrs["a_max"]) if bound is not None]
        is_bound = all(map(math.isfinite, bounds))
        return Numbers(float(min(bounds)), 0, parts[0].unbounded and len(bounds) == 1) if is_bound else _UNKNOWN
    if node.op == "where" and _is_infinite(*node.operands[:2]):
        return replace(parts[1], infinite=max(part.infinite for part in parts))
    return _JOINS[node.op](parts) if node.op in _JOINS else _moved(node, parts)


def _moves(node: Node) -> bool:
    """True for a call whose result has the numbers of its operands, in other places."""
    spec = spec_of(node.op) if isinstance(node.op, str) else None
    return node.op in _MOVES or (spec is not None and Trait.LAYOUT in spec.traits)


def _parts(node: Node) -> tuple[Node, ...]:
    """The operands from which the numbers of a result come."""
    first = 1 if node.op in ("full_like", "where") else 0
    return node.operands[first : 1 if node.op == "take" else None]


def _is_infinite(condition: Node, tensor: Node) -> bool:
    """True for the condition that the elements of a tensor are minus infinity."""
    if condition.op != "equal" or condition.operands[0] is not tensor:
        return False
    return bool(known_value(condition.operands[1]) == -math.inf)


def _of_value(value: Any) -> Numbers:
    if value is None:
        return _UNKNOWN
    if isinstance(value, (bool, int, float)):
        return Numbers(0.0, 2) if value == -math.inf else Numbers(float(value), 0, value == math.inf)
    hidden = value == -math.inf
    others = value[~hidden]
    least = float(others.min()) if math.prod(others.shape) else 0.0
    is_whole = bool(hidden.all(-1).any() if hidden.ndim else hidden)
    return Numbers(least, 2 if is_whole else int(bool(hidden.any())), bool((value == math.inf).any()))


def _sum(parts: list[Numbers]) -> Numbers:
    infinite = sum(part.infinite for part in parts)
    return Numbers(sum(part.least for part in parts), min(infinite, 2), any(part.unbounded for part in parts))


def _product(parts: list[Numbers]) -> Numbers:
    return _UNKNOWN if any(part.infinite or part.unbounded for part in parts) else _FINITE


def _larger(parts: list[Numbers]) -> Numbers:
    bounds = [part.least for part in parts if not part.infinite] or [min(part.least for part in parts)]
    return Numbers(max(bounds), min(part.infinite for part in parts), any(part.unbounded for part in parts))


def _either(parts: list[Numbers]) -> Numbers:
    infinite = 2 if any(part.infinite for part in parts) else 0
    return Numbers(min(part.least for part in parts), infinite, any(part.unbounded for part in parts))


def _moved(node: Node, parts: list[Numbers]) -> Numbers:
    """The numbers of operands, in other places."""
    if not parts or not _moves(node):
        return _UNKNOWN
    found = _either(parts)
    shapes = [getattr(each.type, "shape", (None,))[-1:] for each in (node, *node.operands[:1])]
    if node.op in ("broadcast_to", "cast", "copy", "reshape") and shapes[0] == shapes[1]:
        return replace(found, infinite=parts[0].infinite)
    return found


_MOVES: Final = frozenset(("broadcast_to", "cast", "concatenate", "copy", "full", "full_like", "strided_slice", "take",
                           TUPLE))  # fmt: skip
"""Operators whose results have no other numbers than their operands, beside those that move elements."""

_JOINS: Final[dict[str, Callable[[list[Numbers]], Numbers]]] = {
    "add": _sum,
    "maximum": _larger,
    "multiply": _product,
    "negative": _product,
    "subtract": _product,
    "where": _either,
}
"""How the numbers of operands make those of a result."""

_BOUNDED: Final[dict[str, Numbers]] = {
    **dict.fromkeys(("ones", "ones_like", "sigmoid", "zeros", "zeros_like", "nn.softmax"), _POSITIVE),
    **dict.fromkeys(("matmul", "nn.dense", "nn.batch_matmul", "einsum", "nn.layer_norm", "nn.rms_norm"), _FINITE),
    "tanh": Numbers(-1.0, 0),
}
"""The results of operators whatever their operands are."""

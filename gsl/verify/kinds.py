"""The operators by their effect on values."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any, Final

from gsl.spec import TABLE
from gsl.spec.conv import CONVOLUTIONS
from gsl.spec.math import COMPARISONS

_SPATIAL: Final = (1, 2, 3)

MOVES: Final = frozenset((
    "reshape", "transpose", "expand_dims", "squeeze", "reverse", "layout_transform", "broadcast_to", "repeat", "tile",
    "copy", "nn.dropout", "strided_slice", "split", "take", "gather", "trilu", "reshape_like",
))  # fmt: skip
"""The elements of the result are those of the first operand, or zeros. Other operands choose among them."""

JOINS: Final = frozenset(("concatenate", "stack", "where", "scatter", "matrix_set_diag"))
"""The elements of the result are those of several operands."""

ADDS: Final = frozenset(("add", "subtract", "nn.bias_add"))

SUMS: Final = frozenset(("sum", "cumsum"))

PRODUCTS: Final = frozenset(("multiply", "matmul", "nn.batch_matmul", "nn.dense", "einsum", *CONVOLUTIONS))
"""Linear in each operand."""

MAX_POOLS: Final = frozenset(f"nn.{kind}max_pool{n}d" for n in _SPATIAL for kind in ("", "adaptive_", "global_"))

AVG_POOLS: Final = frozenset(f"nn.{kind}avg_pool{n}d" for n in _SPATIAL for kind in ("", "adaptive_"))
"""Without the global ones, which are means."""

PREDICATES: Final = frozenset((
    *COMPARISONS, "isnan", "isinf", "isfinite", "logical_and", "logical_or", "logical_xor", "logical_not",
))  # fmt: skip
"""The result is a bool whatever the operands are."""

EQUALITIES: Final = ("equal", "not_equal")
"""Comparisons that tell what is not a number where both operands are one tensor."""

NATIVE: Final = frozenset(("bitwise_and", "bitwise_or", "bitwise_xor", "bitwise_not", "left_shift", "right_shift"))
"""Operators that take no floats. All models compute integers and booleans as torch does."""

ORDER: Final = MAX_POOLS | PREDICATES | {
    "nn.relu", "abs", "sign", "maximum", "minimum", "clip", "max", "min", "argmax", "argmin", "topk", "floor", "ceil",
    "round", "trunc", "floor_divide", "floor_mod", "mod", "all", "any", "cast",
}  # fmt: skip
"""Piecewise linear or piecewise constant operators: their result depends on the order of numbers."""


def terms(op: str, operands: Sequence[Any], attrs: Mapping[str, Any]) -> int:
    """The number of products or elements that one element of the result adds up, at most. Operands are tensors, or one
    tuple of tensors."""
    is_tuple = isinstance(operands[0], (tuple, list))
    shapes = tuple([tensor.shape for tensor in (operands[0] if is_tuple else operands)])
    return _counted(op, shapes, is_tuple, tuple(attrs.items()))


@lru_cache(maxsize=4096)
def _counted(op: str, shapes: tuple[Any, ...], is_tuple: bool, attrs: tuple[tuple[str, Any], ...]) -> int:
    """The largest element of the result where all elements of the operands are 1."""
    import torch

    ones = [torch.ones(shape, dtype=torch.float64) for shape in shapes]
    found = TABLE[op].meaning(torch, *([ones] if is_tuple else ones), **dict(attrs))
    return max(int(found.max()), 1) if found.numel() else 1


def window_multiple(op: str, shape: Sequence[int], attrs: Mapping[str, Any]) -> int:
    """A common multiple of the numbers of elements in the windows of an average pooling."""
    sizes = attrs.get("pool_size")
    if sizes is None:
        layout = attrs["layout"]
        spatial = [shape[layout.index(letter)] for letter in "DHW"[2 - len(shape) :]]
        # A window of an adaptive pooling may begin and end within an element's share.
        sizes = [1 if wanted is None else -(-size // wanted) + 1 for size, wanted in zip(spatial, attrs["output_size"])]
    return math.prod([math.lcm(*range(1, size + 1)) for size in sizes])

"""The operators by their effect on values: the tables that all models share."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, Final

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

CONVOLUTIONS: Final = frozenset(f"nn.conv{n}d{kind}" for n in _SPATIAL for kind in ("", "_transpose"))

PRODUCTS: Final = frozenset(("multiply", "matmul", "nn.batch_matmul", "nn.dense", "einsum")) | CONVOLUTIONS
"""Linear in each operand."""

MAX_POOLS: Final = frozenset(f"nn.{kind}max_pool{n}d" for n in _SPATIAL for kind in ("", "adaptive_", "global_"))

AVG_POOLS: Final = frozenset(f"nn.{kind}avg_pool{n}d" for n in _SPATIAL for kind in ("", "adaptive_"))
"""Without the global ones, which are means."""

COMPARISONS: Final = frozenset(("equal", "not_equal", "less", "less_equal", "greater", "greater_equal"))

NATIVE: Final = frozenset(("bitwise_and", "bitwise_or", "bitwise_xor", "bitwise_not", "left_shift", "right_shift"))
"""Operators that take no floats. All models compute integers and booleans as torch does."""

ORDER: Final = MAX_POOLS | COMPARISONS | {
    "nn.relu", "abs", "sign", "maximum", "minimum", "clip", "max", "min", "argmax", "argmin", "floor", "ceil", "round",
    "trunc", "floor_divide", "floor_mod", "mod", "isnan", "isinf", "isfinite", "logical_and", "logical_or",
    "logical_xor", "logical_not", "all", "any", "cast",
}  # fmt: skip
"""Piecewise linear or piecewise constant operators: their result depends on the order of numbers."""


def terms(op: str, operands: Sequence[Any], attrs: Mapping[str, Any]) -> int:
    """A bound on how many products or elements one element of the result adds up. Operands are tensors."""
    if op in CONVOLUTIONS:
        # Of a transposed convolution, the kernel has the input channels of all groups: a bound all the same.
        kernel = zip(operands[1].shape, attrs["kernel_layout"])
        return math.prod([size for size, letter in kernel if letter != "O"])
    if op in ("matmul", "nn.dense"):
        return int(operands[0].shape[-1])
    if op == "nn.batch_matmul":
        return int(operands[0].shape[1 if attrs["transpose_a"] else 2])
    if op == "einsum":
        tensors = operands[0]
        inputs, _, output = attrs["equation"].partition("->")
        if "." in inputs or not output:
            return math.prod([math.prod(tensor.shape) for tensor in tensors])
        sizes = {
            letter: size
            for letters, tensor in zip(inputs.split(","), tensors)
            for letter, size in zip(letters, tensor.shape)
        }
        return math.prod([size for letter, size in sizes.items() if letter not in output])
    if op == "sum":
        shape = operands[0].shape or (1,)
        return math.prod([shape[axis] for axis in attrs["axis"]])
    if op == "cumsum":
        shape = operands[0].shape
        return int(math.prod(shape) if attrs["axis"] is None else shape[attrs["axis"]] if shape else 1)
    return 1


def window_multiple(op: str, shape: Sequence[int], attrs: Mapping[str, Any]) -> int:
    """A common multiple of the numbers of elements in the windows of an average pooling."""
    sizes = attrs.get("pool_size")
    if sizes is None:
        layout = attrs["layout"]
        spatial = [shape[layout.index(letter)] for letter in "DHW"[2 - len(shape) :]]
        # A window of an adaptive pooling may begin and end within an element's share.
        sizes = [1 if wanted is None else -(-size // wanted) + 1 for size, wanted in zip(spatial, attrs["output_size"])]
    return math.prod([math.lcm(*range(1, size + 1)) for size in sizes])

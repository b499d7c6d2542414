"""Operands: of calls that are read, and of calls that are written in another dtype or layout, or padded."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import torch
import torch.nn.functional as F

from gsl.front.fx.spellings.bind import BoundCall, is_number, unread_unless
from gsl.front.fx.spellings.table import Site, call, options
from gsl.front.fx.tree import Native
from gsl.graph import SymDim, TupleType

# ---------------------------------------------------------------- reading

_NOT_OPERANDS: Final = (
    str, bytes, list, tuple, dict, set, slice, complex, torch.dtype, torch.device, torch.layout, torch.Size, SymDim,
    type(None), type(...),
)  # fmt: skip

_FLOATS: Final = frozenset(("float16", "bfloat16", "float32", "float64"))


def operand(c: BoundCall, value: Any) -> Any:
    """An argument that may stand for a tensor or a number."""
    unread_unless(not isinstance(value, _NOT_OPERANDS) and not isinstance(c.type_of(value), TupleType))
    return value


def tensor(c: BoundCall, value: Any) -> Any:
    """An argument that may stand for a tensor."""
    unread_unless(not is_number(value))
    return operand(c, value)


def is_floating(c: BoundCall, value: Any) -> bool:
    """True if the operand is known to have a real floating-point dtype (or is a Python float)."""
    if is_number(value):
        return isinstance(value, float)
    found = c.tensor_type(value)
    return found is not None and found.dtype in _FLOATS


def dtype_name(value: Any) -> str:
    unread_unless(isinstance(value, torch.dtype))
    return str(value).removeprefix("torch.")


def dtype_of(name: str) -> torch.dtype:
    dtype = getattr(torch, name)
    assert isinstance(dtype, torch.dtype)
    return dtype


# ---------------------------------------------------------------- writing

SPATIAL: Final = "DHW"
"""The spatial axes; the last ones of them are those of fewer dimensions."""


def in_dtype(s: Site, *operands: Any) -> tuple[Any, ...]:
    """The operands in the dtype that the result is to have."""
    if not s["out_dtype"]:
        return operands
    return tuple(call("to", x, dtype_of(s["out_dtype"])) for x in operands)


def permuted(x: Any, axes: Sequence[int]) -> Any:
    return x if list(axes) == sorted(axes) else call(torch.permute, x, tuple(axes))


def relaid(x: Any, source: str, target: str) -> Any:
    """A tensor of one layout in another with the same letters."""
    return permuted(x, [source.index(letter) for letter in target])


def laid_out(result: Native, source: str, target: str) -> Native:
    found = relaid(result, source, target)
    assert isinstance(found, Native)
    return found


def pads(pairs: Sequence[tuple[int, int]]) -> tuple[int, ...]:
    """Torch's widths: from the last axis on, up to the first one that is padded."""
    widths = [width for pair in reversed(pairs) for width in pair]
    while len(widths) > 2 and widths[-2:] == [0, 0]:
        del widths[-2:]
    return tuple(widths)


def padded(x: Any, padding: Sequence[int], value: float = 0.0) -> Native:
    """The operand with its last axes padded: that before each, then that after each. Negative widths crop."""
    rank = len(padding) // 2
    pairs = [(padding[i], padding[rank + i]) for i in range(rank)]
    return call(F.pad, x, pads(pairs), **options(value=(value, 0.0)))

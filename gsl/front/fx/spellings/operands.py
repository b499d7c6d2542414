"""Operands of calls that are written: in another dtype or layout, or padded."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import torch
import torch.nn.functional as F

from gsl.front.fx.spellings.elementwise import dtype_of
from gsl.front.fx.spellings.table import Site, call, options
from gsl.front.fx.tree import Native

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

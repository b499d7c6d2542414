"""Spellings of padding."""

from __future__ import annotations

import operator
from collections.abc import Mapping
from typing import Any, Final

import torch
import torch.nn.functional as F

from gsl.front.fx.spellings.bind import BoundCall, integers, number, unread_unless
from gsl.front.fx.spellings.table import FxLift, FxLower, FxRow, Native, Site, call, options, pads, tensor
from gsl.front.tree import Canon

_PAD_MODES: Final = {"constant": "constant", "replicate": "edge", "reflect": "reflect"}


def padded(c: BoundCall, x: Any, pad: Any, mode: Any, value: Any) -> Canon:
    """Torch pads from the last axis on."""
    widths, ndim = integers(pad), c.ndim(x)
    unread_unless(len(widths) % 2 == 0 and len(widths) <= 2 * ndim and min(widths, default=0) >= 0)
    unread_unless(mode in _PAD_MODES)
    pairs = [(widths[i], widths[i + 1]) for i in range(0, len(widths), 2)]
    pairs += [(0, 0)] * (ndim - len(pairs))
    attrs: dict[str, Any] = {"pad_width": tuple(reversed(pairs)), "pad_mode": _PAD_MODES[mode]}
    if value is not None:
        attrs["pad_value"] = number(value)
    return Canon("nn.pad", (tensor(c, x),), attrs)


def _pad(c: BoundCall) -> Canon:
    return padded(c, c.input, c.pad, c.mode, c.value)


def _pad_in_mode(mode: str) -> FxLift:
    return lambda c: padded(c, c.input, c.padding, mode, None)


# ---------------------------------------------------------------- writing


def _write_pad(s: Site) -> Native:
    pairs, mode = s["pad_width"], s["pad_mode"]
    widths = pads(pairs)
    if mode == "constant":
        return call(F.pad, s.x, widths, **options(value=(s["pad_value"], 0.0)))
    # Torch repeats or reflects up to three last axes, and all but one or two.
    count = max(len(widths) // 2, len(pairs) - 2)
    found = s.type()
    if count <= min(3, len(pairs) - 1) and (found is None or found.dtype != "bool"):
        widths += (0,) * (2 * count - len(widths))
        return call(F.pad, s.x, widths, mode="replicate" if mode == "edge" else mode)
    result: Any = s.x
    for where, (before, after) in enumerate(pairs):
        if (before, after) != (0, 0):
            result = call(torch.cat, _continued(result, where, before, after, mode), dim=where)
    return result if isinstance(result, Native) else call(F.pad, s.x, widths)


def _continued(x: Any, axis: int, before: int, after: int, mode: str) -> list[Any]:
    """A tensor between its own continuations."""

    def part(start: int | None, stop: int | None) -> Native:
        return call(operator.getitem, x, (slice(None),) * axis + (slice(start, stop),))

    pieces: list[Any] = [x]
    if before:
        first = part(1, before + 1) if mode == "reflect" else part(0, 1)
        pieces.insert(0, _repeated(first, axis, before, mode))
    if after:
        last = part(-after - 1, -1) if mode == "reflect" else part(-1, None)
        pieces.append(_repeated(last, axis, after, mode))
    return pieces


def _repeated(x: Any, axis: int, count: int, mode: str) -> Native:
    if mode == "reflect":
        return call(torch.flip, x, (axis,))
    return call(torch.repeat_interleave, x, count, dim=axis)


ROWS: Final = (
    FxRow("F.pad aten.pad.default", "input pad mode='constant' value=None", _pad),
    FxRow("torch.constant_pad_nd aten.constant_pad_nd.default", "input pad value=0 mode='constant'", _pad),
    *(
        FxRow(f"aten.{name}_pad{rank}d.default", "input padding", _pad_in_mode(mode))
        for name, mode in (("reflection", "reflect"), ("replication", "replicate"))
        for rank in (1, 2, 3)
    ),
)
WRITERS: Final[Mapping[str, FxLower]] = {"nn.pad": _write_pad}

"""Spellings of convolutions."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import Any, Final

import torch.nn.functional as F

from gsl.front.fx.spellings.bind import BoundCall, flag, integer, integers, per_axis, unread_unless
from gsl.front.fx.spellings.table import (
    SPATIAL,
    FxLift,
    FxLower,
    FxRow,
    Native,
    Site,
    call,
    in_dtype,
    laid_out,
    options,
    padded,
    relaid,
    tensor,
)
from gsl.front.tree import Canon


def symmetric(padding: Sequence[int]) -> tuple[int, ...]:
    """Canonical padding: the amounts before every axis, then those behind."""
    return tuple(padding) * 2


def same_padding(kernel: Sequence[Any], dilation: Sequence[int]) -> tuple[int, ...]:
    """The padding that keeps the size at stride 1; torch puts the odd element behind."""
    unread_unless(all(isinstance(k, int) for k in kernel))
    total = [d * (k - 1) for k, d in zip(kernel, dilation, strict=True)]
    return tuple([t // 2 for t in total] + [t - t // 2 for t in total])


def batched(c: BoundCall, x: Any, rank: int) -> Any:
    """An operand with batch and channel axes, which torch would do without."""
    found = c.tensor_type(x)
    unread_unless(found is None or found.ndim == rank + 2)
    return tensor(c, x)


def biased(c: BoundCall, result: Canon, bias: Any, axis: int) -> Canon:
    return result if bias is None else Canon("nn.bias_add", (result, tensor(c, bias)), {"axis": axis})


def _conv(rank: int) -> FxLift:
    def read(c: BoundCall) -> Canon:
        weight = tensor(c, c.weight)
        strides, dilations = per_axis(c.stride, rank), per_axis(c.dilation, rank)
        if c.padding == "valid":
            pads = symmetric((0,) * rank)
        elif c.padding == "same":
            unread_unless(all(s == 1 for s in strides))
            pads = same_padding(c.typed(weight).shape[2:], dilations)
        else:
            pads = symmetric(per_axis(c.padding, rank))
        attrs = {"strides": strides, "padding": pads, "dilation": dilations, "groups": integer(c.groups)}
        return biased(c, Canon(f"nn.conv{rank}d", (batched(c, c.input, rank), weight), attrs), c.bias, 1)

    return read


def _conv_transpose(rank: int) -> FxLift:
    def read(c: BoundCall) -> Canon:
        attrs = {
            "strides": per_axis(c.stride, rank),
            "padding": symmetric(per_axis(c.padding, rank)),
            "output_padding": per_axis(c.output_padding, rank),
            "dilation": per_axis(c.dilation, rank),
            "groups": integer(c.groups),
        }
        operands = batched(c, c.input, rank), tensor(c, c.weight)
        return biased(c, Canon(f"nn.conv{rank}d_transpose", operands, attrs), c.bias, 1)

    return read


def _convolution(c: BoundCall) -> Canon:
    """``aten.convolution``: the number of spatial axes is that of the strides."""
    rank = len(integers(c.stride))
    found = c.tensor_type(c.input)
    unread_unless(rank in (1, 2, 3) and (rank > 1 or found is None or found.ndim == 3))
    return (_conv_transpose if flag(c.transposed) else _conv)(rank)(c)


# ---------------------------------------------------------------- writing


def _write_conv(rank: int) -> FxLower:
    target, plain = getattr(F, f"conv{rank}d"), "NC" + SPATIAL[-rank:]
    zeros, ones = (0,) * rank, (1,) * rank

    def write(s: Site) -> Native:
        x, weight = _laid_in(s, plain, "OI" + plain[2:])
        padding = s["padding"][:rank]
        if padding != s["padding"][rank:]:
            x, padding = padded(x, s["padding"]), zeros
        kwargs = options(
            stride=(s["strides"], ones),
            padding=(padding, zeros),
            dilation=(s["dilation"], ones),
            groups=(s["groups"], 1),
        )
        result = call(target, x, weight, *s.operands[2:], **kwargs)
        return laid_out(result, plain, s["out_layout"] or s["data_layout"])

    return write


def _laid_in(s: Site, data: str, kernel: str) -> tuple[Any, Any]:
    """Data and weight in these layouts, and in the dtype of the result."""
    x, weight = in_dtype(s, *s.operands[:2])
    return relaid(x, s["data_layout"], data), relaid(weight, s["kernel_layout"], kernel)


def _write_conv_transpose(rank: int) -> FxLower:
    target, plain = getattr(F, f"conv_transpose{rank}d"), "NC" + SPATIAL[-rank:]
    zeros, ones = (0,) * rank, (1,) * rank

    def write(s: Site) -> Native:
        x, weight = _laid_in(s, plain, "IO" + plain[2:])
        before, after = s["padding"][:rank], s["padding"][rank:]
        padding = tuple(map(min, before, after))
        kwargs = options(
            stride=(s["strides"], ones),
            padding=(padding, zeros),
            output_padding=(s["output_padding"], zeros),
            groups=(s["groups"], 1),
            dilation=(s["dilation"], ones),
        )
        result = call(target, x, weight, *s.operands[2:], **kwargs)
        if before != after:
            # Padding crops the result; torch takes off the same on both sides.
            result = padded(result, [p - q for p, q in zip(padding * 2, s["padding"], strict=True)])
        return laid_out(result, plain, s["out_layout"] or s["data_layout"])

    return write


_CONV = "input weight bias=None stride=1 padding=0 dilation=1 groups=1"
_CONV_TRANSPOSE = "input weight bias=None stride=1 padding=0 output_padding=0 groups=1 dilation=1"
_CONVOLUTION = "input weight bias stride padding dilation transposed output_padding groups"


def _rows(rank: int) -> list[FxRow]:
    n = f"{rank}d"
    return [
        FxRow(f"torch.conv{n} F.conv{n} aten.conv{n}.default aten.conv{n}.padding", _CONV, _conv(rank)),
        FxRow(
            f"torch.conv_transpose{n} F.conv_transpose{n} aten.conv_transpose{n}.default aten.conv_transpose{n}.input",
            _CONV_TRANSPOSE,
            _conv_transpose(rank),
        ),
    ]


ROWS: Final = (
    *itertools.chain.from_iterable(_rows(rank) for rank in (1, 2, 3)),
    FxRow("torch.convolution aten.convolution.default", _CONVOLUTION, _convolution),
)

WRITERS: Final[Mapping[str, FxLower]] = {
    **{f"nn.conv{n}d": _write_conv(n) for n in (1, 2, 3)},
    **{f"nn.conv{n}d_transpose": _write_conv_transpose(n) for n in (1, 2, 3)},
}

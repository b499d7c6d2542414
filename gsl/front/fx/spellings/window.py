"""Spellings of convolutions and pooling, which move a window."""

from __future__ import annotations

import itertools
import math
import operator
from collections.abc import Callable, Sequence
from typing import Any, Final

import torch
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
    dtype_of,
    in_dtype,
    laid_out,
    options,
    padded,
    relaid,
    row,
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

    def write(s: Site) -> Native:
        x, weight = _laid_in(s, plain, "OI" + plain[2:])
        x, kwargs = windowed(s, x, rank)
        result = call(target, x, weight, *s.operands[2:], **kwargs)
        return laid_out(result, plain, s["out_layout"] or s["data_layout"])

    return write


def windowed(s: Site, x: Any, rank: int) -> tuple[Any, dict[str, Any]]:
    """The data of a convolution, padded where torch does not pad alike on both sides, and the options of its call."""
    padding, zeros, ones = s["padding"][:rank], (0,) * rank, (1,) * rank
    if padding != s["padding"][rank:]:
        x, padding = padded(x, s["padding"]), zeros
    return x, options(
        stride=(s["strides"], ones),
        padding=(padding, zeros),
        dilation=(s["dilation"], ones),
        groups=(s["groups"], 1),
    )


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


# ---------------------------------------------------------------- pooling


def pool_attrs(rank: int, kernel: Any, stride: Any, padding: Any, ceil_mode: Any) -> dict[str, Any]:
    size = per_axis(kernel, rank)
    given = stride is not None and (not isinstance(stride, (list, tuple)) or len(stride) > 0)
    return {
        "pool_size": size,
        "strides": per_axis(stride, rank) if given else size,
        "padding": symmetric(per_axis(padding, rank)),
        "ceil_mode": flag(ceil_mode),
    }


def max_pool(rank: int) -> FxLift:
    def read(c: BoundCall) -> Canon:
        unread_unless(c.return_indices is False)
        attrs = pool_attrs(rank, c.kernel_size, c.stride, c.padding, c.ceil_mode)
        attrs["dilation"] = per_axis(c.dilation, rank)
        return Canon(f"nn.max_pool{rank}d", (batched(c, c.input, rank),), attrs)

    return read


def avg_pool(rank: int) -> FxLift:
    def read(c: BoundCall) -> Canon:
        unread_unless(c.divisor_override is None)
        attrs = pool_attrs(rank, c.kernel_size, c.stride, c.padding, c.ceil_mode)
        attrs["count_include_pad"] = flag(c.count_include_pad)
        return Canon(f"nn.avg_pool{rank}d", (batched(c, c.input, rank),), attrs)

    return read


def adaptive_pool(kind: str, rank: int) -> FxLift:
    def read(c: BoundCall) -> Canon:
        unread_unless(c.return_indices is False)
        x = batched(c, c.input, rank)
        size = c.output_size if isinstance(c.output_size, (list, tuple)) else (c.output_size,) * rank
        unread_unless(len(size) == rank)
        if any(s is None for s in size):
            size = [known if s is None else s for s, known in zip(size, c.typed(x).shape[2:], strict=True)]
        return Canon(f"nn.adaptive_{kind}_pool{rank}d", (x,), {"output_size": integers(tuple(size))})

    return read


# ---------------------------------------------------------------- writing


def _fits(s: Site, rank: int) -> bool:
    """True if torch's pooling takes the padding: the same on both sides, and half the window at most."""
    both = s["padding"][:rank]
    return bool(both == s["padding"][rank:] and all(2 * p <= k for p, k in zip(both, s["pool_size"], strict=True)))


def _pool(rank: int, write: Callable[[Site, Any, str], Native]) -> FxLower:
    """Writes a pool in torch's layout, of which ``write`` is told the operand in it."""
    plain = "NC" + SPATIAL[-rank:]
    return lambda s: laid_out(
        write(s, relaid(s.x, s["layout"], plain), plain), plain, s["out_layout"] or s["layout"]
    )


def _write_max_pool(rank: int) -> FxLower:
    target, zeros = getattr(F, f"max_pool{rank}d"), (0,) * rank

    def write(s: Site, x: Any, plain: str) -> Native:
        padding = s["padding"][:rank]
        if not _fits(s, rank):
            dtype = dtype_of(s.known().dtype)
            least = -math.inf if dtype.is_floating_point else torch.iinfo(dtype).min
            x, padding = padded(x, s["padding"], least), zeros
        kwargs = options(
            stride=(s["strides"], s["pool_size"]),
            padding=(padding, zeros),
            dilation=(s["dilation"], (1,) * rank),
            ceil_mode=(s["ceil_mode"], False),
        )
        return call(target, x, s["pool_size"], **kwargs)

    return _pool(rank, write)


def _write_avg_pool(rank: int) -> FxLower:
    target, zeros = getattr(F, f"avg_pool{rank}d"), (0,) * rank

    def write(s: Site, x: Any, plain: str) -> Native:
        common = options(stride=(s["strides"], s["pool_size"]), ceil_mode=(s["ceil_mode"], False))
        if _fits(s, rank):
            kwargs = options(padding=(s["padding"][:rank], zeros), count_include_pad=(s["count_include_pad"], True))
            if s["padding"] == zeros * 2 and not s["ceil_mode"]:
                # Without padding it does not matter whether it counts.
                kwargs = {}
            return call(target, x, s["pool_size"], **common, **kwargs)
        result = call(target, padded(x, s["padding"]), s["pool_size"], **common)
        if s["count_include_pad"]:
            return result
        # The share of each window that is not padding.
        inside = padded(call(torch.ones_like, x), s["padding"])
        return call(operator.truediv, result, call(target, inside, s["pool_size"], **common))

    return _pool(rank, write)


def _write_adaptive(kind: str, rank: int) -> FxLower:
    target = getattr(F, f"adaptive_{kind}_pool{rank}d")

    def write(s: Site, x: Any, plain: str) -> Native:
        size = s["output_size"]
        if None in size:
            spatial = [s.known().shape[s["layout"].index(letter)] for letter in plain[2:]]
            size = tuple(own if wanted is None else wanted for own, wanted in zip(spatial, size, strict=True))
        return call(target, x, size[0] if len(set(size)) == 1 else size)

    return _pool(rank, write)


def _write_global(kind: str, rank: int) -> FxLower:
    target, axes = torch.amax if kind == "max" else torch.mean, tuple(range(2, 2 + rank))
    return _pool(rank, lambda s, x, _: call(target, x, dim=axes if rank > 1 else 2, keepdim=True))


_CONV = "input weight bias=None stride=1 padding=0 dilation=1 groups=1"
_CONV_TRANSPOSE = "input weight bias=None stride=1 padding=0 output_padding=0 groups=1 dilation=1"
_CONVOLUTION = "input weight bias stride padding dilation transposed output_padding groups"
_MAX_POOL = "input kernel_size stride=None padding=0 dilation=1 ceil_mode=False return_indices=False"
_AVG_POOL = "input kernel_size stride=None padding=0 ceil_mode=False count_include_pad=True divisor_override=None"
_ADAPTIVE = "input output_size return_indices=False"


def _rows(rank: int) -> list[FxRow]:
    n = f"{rank}d"

    def of(name: str) -> str:
        return f"torch.{name}{n} F.{name}{n} aten.{name}{n}.default"

    return [
        row(f"nn.conv{n}", f"{of('conv')} aten.conv{n}.padding", _CONV, read=_conv(rank), write=_write_conv(rank)),
        row(f"nn.conv{n}_transpose", f"{of('conv_transpose')} aten.conv_transpose{n}.input", _CONV_TRANSPOSE,
            read=_conv_transpose(rank), write=_write_conv_transpose(rank)),
        row(f"nn.max_pool{n}", of("max_pool"), _MAX_POOL, read=max_pool(rank), write=_write_max_pool(rank)),
        row(f"nn.avg_pool{n}", of("avg_pool"), _AVG_POOL, read=avg_pool(rank), write=_write_avg_pool(rank)),
        row(f"nn.adaptive_avg_pool{n}", f"{of('adaptive_avg_pool')} aten._adaptive_avg_pool{n}.default", _ADAPTIVE,
            read=adaptive_pool("avg", rank), write=_write_adaptive("avg", rank)),
        row(f"nn.adaptive_max_pool{n}", f"F.adaptive_max_pool{n}", _ADAPTIVE, read=adaptive_pool("max", rank),
            write=_write_adaptive("max", rank)),
        *(FxRow(op=f"nn.global_{kind}_pool{n}", write=_write_global(kind, rank)) for kind in ("avg", "max")),
    ]  # fmt: skip


def _field_rows(rank: int) -> list[FxRow]:
    n = f"{rank}d"
    adaptive = f"F.adaptive_max_pool{n}_with_indices torch.adaptive_max_pool{n} aten.adaptive_max_pool{n}.default"
    return [
        FxRow(f"aten.max_pool{n}_with_indices.default F.max_pool{n}_with_indices", _MAX_POOL, max_pool(rank)),
        FxRow(adaptive, _ADAPTIVE, adaptive_pool("max", rank)),
    ]


ROWS: Final = (
    *itertools.chain.from_iterable(map(_rows, (1, 2, 3))),
    FxRow("torch.convolution aten.convolution.default", _CONVOLUTION, _convolution),
)

FIELDS: Final = tuple(itertools.chain.from_iterable(map(_field_rows, (1, 2, 3))))
"""Calls with several results, of which the first one is canonical."""

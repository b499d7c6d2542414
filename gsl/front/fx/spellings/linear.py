"""Spellings of convolutions, dense layers, matrix products and pooling."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any, Final

from gsl.front.fx.spellings.bind import Call, flag, integer, integers, number, per_axis, unread_unless
from gsl.front.fx.spellings.elementwise import tensor
from gsl.front.fx.spellings.table import Reader, Row
from gsl.front.tree import Canon

# ---------------------------------------------------------------- convolutions


def symmetric(padding: Sequence[int]) -> tuple[int, ...]:
    """Canonical padding: the amounts before every axis, then those behind."""
    return tuple(padding) * 2


def same_padding(kernel: Sequence[Any], dilation: Sequence[int]) -> tuple[int, ...]:
    """The padding that keeps the size at stride 1; torch puts the odd element behind."""
    unread_unless(all(isinstance(k, int) for k in kernel))
    total = [d * (k - 1) for k, d in zip(kernel, dilation, strict=True)]
    return tuple([t // 2 for t in total] + [t - t // 2 for t in total])


def batched(c: Call, x: Any, rank: int) -> Any:
    """An operand with batch and channel axes, which torch would do without."""
    found = c.tensor_type(x)
    unread_unless(found is None or found.ndim == rank + 2)
    return tensor(c, x)


def biased(c: Call, result: Canon, bias: Any, axis: int) -> Canon:
    return result if bias is None else Canon("nn.bias_add", (result, tensor(c, bias)), {"axis": axis})


def convolution(
    c: Call, rank: int, *, x: Any, weight: Any, bias: Any, stride: Any, padding: Any, dilation: Any, groups: Any
) -> Canon:
    weight = tensor(c, weight)
    strides, dilations = per_axis(stride, rank), per_axis(dilation, rank)
    if padding == "valid":
        pads = symmetric((0,) * rank)
    elif padding == "same":
        unread_unless(all(s == 1 for s in strides))
        pads = same_padding(c.typed(weight).shape[2:], dilations)
    else:
        pads = symmetric(per_axis(padding, rank))
    attrs = {"strides": strides, "padding": pads, "dilation": dilations, "groups": integer(groups)}
    return biased(c, Canon(f"nn.conv{rank}d", (batched(c, x, rank), weight), attrs), bias, 1)


def transposed_convolution(
    c: Call,
    rank: int,
    *,
    x: Any,
    weight: Any,
    bias: Any,
    stride: Any,
    padding: Any,
    output_padding: Any,
    dilation: Any,
    groups: Any,
) -> Canon:
    attrs = {
        "strides": per_axis(stride, rank),
        "padding": symmetric(per_axis(padding, rank)),
        "output_padding": per_axis(output_padding, rank),
        "dilation": per_axis(dilation, rank),
        "groups": integer(groups),
    }
    result = Canon(f"nn.conv{rank}d_transpose", (batched(c, x, rank), tensor(c, weight)), attrs)
    return biased(c, result, bias, 1)


def _conv(rank: int) -> Reader:
    return lambda c: convolution(
        c, rank, x=c.input, weight=c.weight, bias=c.bias, stride=c.stride, padding=c.padding, dilation=c.dilation,
        groups=c.groups,
    )  # fmt: skip


def _conv_transpose(rank: int) -> Reader:
    return lambda c: transposed_convolution(
        c, rank, x=c.input, weight=c.weight, bias=c.bias, stride=c.stride, padding=c.padding, dilation=c.dilation,
        output_padding=c.output_padding, groups=c.groups,
    )  # fmt: skip


def _convolution(c: Call) -> Canon:
    """``aten.convolution``: the number of spatial axes is that of the strides."""
    rank = len(integers(c.stride))
    found = c.tensor_type(c.input)
    unread_unless(rank in (1, 2, 3) and (rank > 1 or found is None or found.ndim == 3))
    return (_conv_transpose if flag(c.transposed) else _conv)(rank)(c)


# ---------------------------------------------------------------- dense layers and matrix products


def dense(c: Call, x: Any, weight: Any, bias: Any) -> Canon:
    kind = c.tensor_type(weight)
    unread_unless(kind is None or kind.ndim == 2)
    return added_bias(c, Canon("nn.dense", (tensor(c, x), tensor(c, weight))), bias)


def added_bias(c: Call, result: Canon, bias: Any) -> Canon:
    """A vector is a bias of the last axis; anything else is just added."""
    kind = None if bias is None else c.tensor_type(bias)
    if kind is not None and kind.ndim != 1:
        return Canon("add", (result, tensor(c, bias)))
    return biased(c, result, bias, -1)


def _matmul(c: Call) -> Canon:
    return Canon("matmul", (tensor(c, c.input), tensor(c, c.other)))


def _scaled(value: Any, factor: Any) -> Any:
    return value if number(factor) == 1 else Canon("multiply", (value, factor))


def _addmm(first: str, second: str) -> Reader:
    """``beta * input + alpha * (first @ second)``; with ``beta == 0`` the input would not be read at all."""

    def read(c: Call) -> Canon:
        left, right = tensor(c, getattr(c, first)), tensor(c, getattr(c, second))
        product = _scaled(Canon("matmul", (left, right)), c.alpha)
        unread_unless(number(c.beta) != 0)
        kind, other = c.tensor_type(c.input), c.tensor_type(right)
        if kind is not None and other is not None and c.beta == 1 and kind.shape == other.shape[-1:]:
            return Canon("nn.bias_add", (product, tensor(c, c.input)), {"axis": -1})
        return Canon("add", (_scaled(tensor(c, c.input), c.beta), product))

    return read


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


def max_pool(rank: int) -> Reader:
    def read(c: Call) -> Canon:
        unread_unless(c.return_indices is False)
        attrs = pool_attrs(rank, c.kernel_size, c.stride, c.padding, c.ceil_mode)
        attrs["dilation"] = per_axis(c.dilation, rank)
        return Canon(f"nn.max_pool{rank}d", (batched(c, c.input, rank),), attrs)

    return read


def avg_pool(rank: int) -> Reader:
    def read(c: Call) -> Canon:
        unread_unless(c.divisor_override is None)
        attrs = pool_attrs(rank, c.kernel_size, c.stride, c.padding, c.ceil_mode)
        attrs["count_include_pad"] = flag(c.count_include_pad)
        return Canon(f"nn.avg_pool{rank}d", (batched(c, c.input, rank),), attrs)

    return read


def adaptive_pool(kind: str, rank: int) -> Reader:
    def read(c: Call) -> Canon:
        unread_unless(c.return_indices is False)
        x = batched(c, c.input, rank)
        size = c.output_size if isinstance(c.output_size, (list, tuple)) else (c.output_size,) * rank
        unread_unless(len(size) == rank)
        if any(s is None for s in size):
            size = [known if s is None else s for s, known in zip(size, c.typed(x).shape[2:], strict=True)]
        return Canon(f"nn.adaptive_{kind}_pool{rank}d", (x,), {"output_size": integers(tuple(size))})

    return read


_CONV = "input weight bias=None stride=1 padding=0 dilation=1 groups=1"
_CONV_TRANSPOSE = "input weight bias=None stride=1 padding=0 output_padding=0 groups=1 dilation=1"
_CONVOLUTION = "input weight bias stride padding dilation transposed output_padding groups"
_MAX_POOL = "input kernel_size stride=None padding=0 dilation=1 ceil_mode=False return_indices=False"
_AVG_POOL = "input kernel_size stride=None padding=0 ceil_mode=False count_include_pad=True divisor_override=None"


def _spatial_rows(rank: int) -> list[Row]:
    n = f"{rank}d"
    return [
        Row(f"torch.conv{n} F.conv{n} aten.conv{n}.default aten.conv{n}.padding", _CONV, _conv(rank)),
        Row(f"torch.conv_transpose{n} F.conv_transpose{n}", _CONV_TRANSPOSE, _conv_transpose(rank)),
        Row(f"aten.conv_transpose{n}.default aten.conv_transpose{n}.input", _CONV_TRANSPOSE, _conv_transpose(rank)),
        Row(f"torch.max_pool{n} F.max_pool{n} aten.max_pool{n}.default", _MAX_POOL, max_pool(rank)),
        Row(f"torch.avg_pool{n} F.avg_pool{n} aten.avg_pool{n}.default", _AVG_POOL, avg_pool(rank)),
        Row(
            f"torch.adaptive_avg_pool{n} F.adaptive_avg_pool{n} aten.adaptive_avg_pool{n}.default "
            f"aten._adaptive_avg_pool{n}.default",
            "input output_size return_indices=False",
            adaptive_pool("avg", rank),
        ),
        Row(f"F.adaptive_max_pool{n}", "input output_size return_indices=False", adaptive_pool("max", rank)),
    ]


ROWS: Final = (
    *itertools.chain.from_iterable(_spatial_rows(rank) for rank in (1, 2, 3)),
    Row("torch.convolution aten.convolution.default", _CONVOLUTION, _convolution),
    Row("F.linear aten.linear.default", "input weight bias=None", lambda c: dense(c, c.input, c.weight, c.bias)),
    Row("torch.matmul .matmul operator.matmul aten.matmul.default", "input other", _matmul),
    Row(
        "torch.mm .mm aten.mm.default torch.bmm .bmm aten.bmm.default torch.mv .mv aten.mv.default "
        "torch.dot .dot aten.dot.default",
        "input other",
        _matmul,
    ),
    Row("torch.addmm .addmm aten.addmm.default", "input mat1 mat2 beta=1 alpha=1", _addmm("mat1", "mat2")),
    Row(
        "torch.baddbmm .baddbmm aten.baddbmm.default", "input batch1 batch2 beta=1 alpha=1", _addmm("batch1", "batch2")
    ),
)
FIELDS: Final = (
    *(
        Row(f"aten.max_pool{n}d_with_indices.default F.max_pool{n}d_with_indices", _MAX_POOL, max_pool(n))
        for n in (1, 2, 3)
    ),
    *(
        Row(
            f"F.adaptive_max_pool{n}d_with_indices torch.adaptive_max_pool{n}d aten.adaptive_max_pool{n}d.default",
            "input output_size return_indices=False",
            adaptive_pool("max", n),
        )
        for n in (1, 2, 3)
    ),
)
"""Calls with several results, of which the first one is canonical."""

"""Cases of the families parallel and query-key-value."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from gsl.graph import Node
from tests.rules.cases_layout import B, S
from tests.rules.harness import Build, Fires, Refuses, View

IMAGE = (2, 3, 5, 6)
LAST = {"data_layout": "NHWC", "kernel_layout": "HWIO"}


def convs(
    *kernels: Sequence[int], x: Sequence[Any] = IMAGE, op: str = "nn.conv2d", each: Sequence[dict[str, Any]] = (),
    others: int = 0, fed: bool = False, dtypes: Sequence[str] = (), bias: bool = False, used: bool = False,
    **attrs: Any,
) -> View:  # fmt: skip
    """conv(x, w0) [+ b0], …; the last ``others`` of another input, attributes in ``each``; the first one ``used``."""

    def view(b: Build) -> list[Node]:
        data = b.input("x", *x)
        other = b.input("y", *x) if others else data
        results = []
        for i, kernel in enumerate(kernels):
            dtype = dtypes[i] if dtypes else "float64"
            w = b.input(f"w{i}", *kernel) if fed and i else b.param(f"w{i}", *kernel, dtype=dtype)
            own = each[i] if i < len(each) else {}
            results.append(b.call(op, other if i >= len(kernels) - others else data, w, **{**attrs, **own}))
        sums = [b.bias(result, f"b{i}") for i, result in enumerate(results)] if bias else results
        return [*sums, *([b.call("exp", results[0])] if used else [])]

    return view


def dense(
    *units: int, x: Sequence[Any] = (2, 5, 3), bias: Sequence[bool] = (), axis: int = -1, others: int = 0,
    fed: bool = False, used: bool = False, dtypes: Sequence[str] = (), out_dtypes: Sequence[str] = (),
) -> View:  # fmt: skip
    """x w0ᵀ [+ b0], x w1ᵀ [+ b1], …; the last ``others`` of another input."""

    def view(b: Build) -> list[Node]:
        kinds = dtypes or ["float64"] * 9
        data = b.input("x", *x, dtype=kinds[0])
        other = b.input("y", *x) if others else data
        results, inner = [], []
        for i, size in enumerate(units):
            shape = (size, x[-1])
            w = b.input(f"w{i}", *shape) if fed and i else b.param(f"w{i}", *shape, dtype=kinds[i])
            attrs = {"out_dtype": out_dtypes[i]} if out_dtypes else {}
            inner.append(b.call("nn.dense", other if i >= len(units) - others else data, w, **attrs))
            results.append(b.bias(inner[-1], f"b{i}", axis) if i < len(bias) and bias[i] else inner[-1])
        return [*results, *([b.call("exp", inner[0])] if used else [])]

    return view


def attention(queries: int, keys: int, bias: tuple[bool, bool, bool]) -> View:
    """Grouped-query attention of ``queries`` and ``keys`` heads of size 4, up to the product with the values."""

    def view(b: Build) -> Node:
        x = b.input("x", 2, 5, 8)

        def project(name: str, heads: int, biased: bool) -> Node:
            y = b.call("nn.dense", x, b.param(f"w{name}", 4 * heads, 8))
            y = b.bias(y, f"b{name}", 2) if biased else y
            return b.call("transpose", b.call("reshape", y, newshape=(2, 5, heads, 4)), axes=(0, 2, 1, 3))

        q, k, v = (project(n, h, s) for n, h, s in zip("qkv", (queries, keys, keys), bias))
        return b.call("nn.attention", q, k, v, is_causal=True, enable_gqa=queries != keys)

    return view


BIASED = (True,) * 4
K1, K3 = (4, 3, 1, 1), (2, 3, 3, 3)
BESIDE = ({}, {"padding": 1})

FIRES = (
    Fires("parallel-two-conv", "different channels", convs((4, 3, 3, 3), (2, 3, 3, 3), padding=1), """\
%x: float64[2, 3, 5, 6] = input
%w0: float64[4, 3, 3, 3] = param
%w1: float64[2, 3, 3, 3] = param
%concatenate: float64[6, 3, 3, 3] = concatenate((%w0, %w1))
%conv2d: float64[2, 6, 5, 6] = nn.conv2d(%x, %concatenate, padding=(1, 1, 1, 1))
%split: (float64[2, 4, 5, 6], float64[2, 2, 5, 6]) = split(%conv2d, indices_or_sections=(4,), axis=1)
return %split[0], %split[1]"""),
    Fires("parallel-two-conv", "strides, dilation, uneven padding",
          convs((4, 3, 3, 2), (2, 3, 3, 2), strides=2, dilation=(1, 2), padding=(2, 1, 0, 3))),
    Fires("parallel-two-conv", "one axis", convs((4, 3, 3), (2, 3, 3), x=(2, 3, 9), op="nn.conv1d")),
    Fires("parallel-two-conv", "symbolic batch", convs((4, 3, 3, 3), (2, 3, 3, 3), x=(B, 3, S, S), padding=1)),
    Fires("parallel-conv-variadic", "three", convs((4, 3, 3, 3), (2, 3, 3, 3), (1, 3, 3, 3)), """\
%x: float64[2, 3, 5, 6] = input
%w0: float64[4, 3, 3, 3] = param
%w1: float64[2, 3, 3, 3] = param
%w2: float64[1, 3, 3, 3] = param
%concatenate: float64[7, 3, 3, 3] = concatenate((%w0, %w1, %w2))
%conv2d: float64[2, 7, 3, 4] = nn.conv2d(%x, %concatenate)
%split: (float64[2, 4, 3, 4], float64[2, 2, 3, 4], float64[2, 1, 3, 4]) = \
split(%conv2d, indices_or_sections=(4, 6), axis=1)
return %split[0], %split[1], %split[2]"""),
    Fires("parallel-conv-bias-variadic", "two", convs((4, 3, 3, 3), (2, 3, 3, 3), bias=True), """\
%x: float64[2, 3, 5, 6] = input
%w0: float64[4, 3, 3, 3] = param
%w1: float64[2, 3, 3, 3] = param
%b0: float64[4] = param
%concatenate: float64[6, 3, 3, 3] = concatenate((%w0, %w1))
%conv2d: float64[2, 6, 3, 4] = nn.conv2d(%x, %concatenate)
%b1: float64[2] = param
%concatenate_1: float64[6] = concatenate((%b0, %b1))
%bias_add: float64[2, 6, 3, 4] = nn.bias_add(%conv2d, %concatenate_1)
%split: (float64[2, 4, 3, 4], float64[2, 2, 3, 4]) = split(%bias_add, indices_or_sections=(4,), axis=1)
return %split[0], %split[1]"""),
    Fires("parallel-conv-bias-variadic", "two of three",
          convs((4, 3, 3, 3), (2, 3, 1, 1), (1, 3, 3, 3), bias=True)),
    Fires("parallel-conv-variadic", "two of three",
          convs((4, 3, 1, 1), (2, 3, 3, 3), (1, 3, 1, 1))),
    Fires("parallel-conv-variadic", "three axes",
          convs((2, 2, 2, 2, 2), (3, 2, 2, 2, 2), x=(1, 2, 3, 3, 3), op="nn.conv3d")),
    Fires("parallel-conv-expand-kernels", "1x1 beside 3x3", convs(K1, K3, each=BESIDE), """\
%x: float64[2, 3, 5, 6] = input
%w0: float64[4, 3, 1, 1] = param
%pad: float64[4, 3, 3, 3] = nn.pad(%w0, pad_width=((0, 0), (0, 0), (1, 1), (1, 1)))
%w1: float64[2, 3, 3, 3] = param
%concatenate: float64[6, 3, 3, 3] = concatenate((%pad, %w1))
%conv2d: float64[2, 6, 5, 6] = nn.conv2d(%x, %concatenate, padding=(1, 1, 1, 1))
%split: (float64[2, 4, 5, 6], float64[2, 2, 5, 6]) = split(%conv2d, indices_or_sections=(4,), axis=1)
return %split[0], %split[1]"""),
    Fires("parallel-conv-expand-kernels", "the larger first", convs(K3, K1, each=BESIDE[::-1])),
    Fires("parallel-conv-expand-kernels", "1x3 beside 5x3, stride",
          convs((4, 3, 1, 3), (2, 3, 5, 3), strides=2, each=({"padding": (0, 1)}, {"padding": (2, 1)}))),
    Fires("parallel-conv-expand-kernels", "uneven padding that fits an even kernel",
          convs(K1, (2, 3, 2, 2), each=({}, {"padding": (0, 1, 1, 0)}))),
    Fires("parallel-conv-expand-kernels", "1x1 in the corner of 3x3",
          convs(K1, K3, each=({"padding": (1, 1, 0, 0)}, {"padding": (1, 1, 2, 2)}))),
    Fires("parallel-conv-expand-kernels", "one axis",
          convs((4, 3, 1), (2, 3, 3), x=(2, 3, 7), op="nn.conv1d", each=({"padding": 1}, {"padding": 2}))),
    Fires("parallel-conv-expand-kernels", "each larger on one axis",
          convs((4, 3, 1, 3), (2, 3, 3, 1), each=({"padding": (0, 1)}, {"padding": (1, 0)})), """\
%x: float64[2, 3, 5, 6] = input
%w0: float64[4, 3, 1, 3] = param
%pad: float64[4, 3, 3, 3] = nn.pad(%w0, pad_width=((0, 0), (0, 0), (1, 1), (0, 0)))
%w1: float64[2, 3, 3, 1] = param
%pad_1: float64[2, 3, 3, 3] = nn.pad(%w1, pad_width=((0, 0), (0, 0), (0, 0), (1, 1)))
%concatenate: float64[6, 3, 3, 3] = concatenate((%pad, %pad_1))
%conv2d: float64[2, 6, 5, 6] = nn.conv2d(%x, %concatenate, padding=(1, 1, 1, 1))
%split: (float64[2, 4, 5, 6], float64[2, 2, 5, 6]) = split(%conv2d, indices_or_sections=(4,), axis=1)
return %split[0], %split[1]"""),
    Fires("parallel-conv-expand-kernels", "each larger on one axis, uneven",
          convs((4, 3, 2, 5), (2, 3, 4, 1), strides=2, each=({"padding": (0, 3, 2, 2)}, {"padding": (1, 0, 3, 1)}))),
    Fires("parallel-conv-expand-kernels", "each larger on one axis of three",
          convs((4, 3, 1, 3, 1), (2, 3, 3, 1, 1), x=(1, 3, 4, 4, 3), op="nn.conv3d",
                each=({"padding": (0, 1, 0)}, {"padding": (1, 0, 0)}))),
    Fires("parallel-group-conv-variadic", "two groups",
          convs((4, 3, 3, 3), (2, 3, 3, 3), x=(2, 6, 5, 6), groups=2), """\
%x: float64[2, 6, 5, 6] = input
%w0: float64[4, 3, 3, 3] = param
%reshape: float64[2, 2, 3, 3, 3] = reshape(%w0, newshape=(2, 2, 3, 3, 3))
%w1: float64[2, 3, 3, 3] = param
%reshape_1: float64[2, 1, 3, 3, 3] = reshape(%w1, newshape=(2, 1, 3, 3, 3))
%concatenate: float64[2, 3, 3, 3, 3] = concatenate((%reshape, %reshape_1), axis=1)
%reshape_2: float64[6, 3, 3, 3] = reshape(%concatenate, newshape=(6, 3, 3, 3))
%conv2d: float64[2, 6, 3, 4] = nn.conv2d(%x, %reshape_2, groups=2)
%reshape_3: float64[2, 2, 3, 3, 4] = reshape(%conv2d, newshape=(2, 2, 3, 3, 4))
%split: (float64[2, 2, 2, 3, 4], float64[2, 2, 1, 3, 4]) = split(%reshape_3, indices_or_sections=(2,), axis=2)
%reshape_4: float64[2, 4, 3, 4] = reshape(%split[0], newshape=(2, 4, 3, 4))
%reshape_5: float64[2, 2, 3, 4] = reshape(%split[1], newshape=(2, 2, 3, 4))
return %reshape_4, %reshape_5"""),
    Fires("parallel-group-conv-variadic", "depthwise with multipliers",
          convs((3, 1, 3, 3), (6, 1, 3, 3), (3, 1, 3, 3), padding=1, strides=2, groups=3)),
    Fires("parallel-group-conv-variadic", "one axis",
          convs((4, 2, 3), (6, 2, 3), x=(2, 4, 7), op="nn.conv1d", groups=2)),
    Fires("parallel-group-conv-variadic", "symbolic batch and image",
          convs((4, 3, 3, 3), (2, 3, 3, 3), x=(B, 6, S, S), padding=1, groups=2)),
    Fires("parallel-two-dense", "keys and values", dense(4, 2), """\
%x: float64[2, 5, 3] = input
%w0: float64[4, 3] = param
%w1: float64[2, 3] = param
%concatenate: float64[6, 3] = concatenate((%w0, %w1))
%dense: float64[2, 5, 6] = nn.dense(%x, %concatenate)
%split: (float64[2, 5, 4], float64[2, 5, 2]) = split(%dense, indices_or_sections=(4,), axis=2)
return %split[0], %split[1]"""),
    Fires("parallel-two-dense", "a vector", dense(4, 2, x=(3,))),
    Fires("parallel-two-dense", "before a bias of one", dense(4, 2, bias=(True, False))),
    Fires("parallel-two-dense-bias", "keys and values", dense(4, 2, bias=BIASED), """\
%x: float64[2, 5, 3] = input
%w0: float64[4, 3] = param
%b0: float64[4] = param
%w1: float64[2, 3] = param
%concatenate: float64[6, 3] = concatenate((%w0, %w1))
%dense: float64[2, 5, 6] = nn.dense(%x, %concatenate)
%b1: float64[2] = param
%concatenate_1: float64[6] = concatenate((%b0, %b1))
%bias_add: float64[2, 5, 6] = nn.bias_add(%dense, %concatenate_1, axis=2)
%split: (float64[2, 5, 4], float64[2, 5, 2]) = split(%bias_add, indices_or_sections=(4,), axis=2)
return %split[0], %split[1]"""),
    Fires("parallel-two-dense-bias", "a matrix", dense(4, 4, x=(2, 3), bias=BIASED)),
    Fires("parallel-dense-variadic", "three", dense(4, 2, 2), """\
%x: float64[2, 5, 3] = input
%w0: float64[4, 3] = param
%w1: float64[2, 3] = param
%w2: float64[2, 3] = param
%concatenate: float64[8, 3] = concatenate((%w0, %w1, %w2))
%dense: float64[2, 5, 8] = nn.dense(%x, %concatenate)
%split: (float64[2, 5, 4], float64[2, 5, 2], float64[2, 5, 2]) = split(%dense, indices_or_sections=(4, 6), axis=2)
return %split[0], %split[1], %split[2]"""),
    Fires("parallel-dense-variadic", "grouped-query attention without bias", attention(4, 2, (False,) * 3)),
    Fires("parallel-dense-variadic", "symbolic batch", dense(4, 2, 2, x=(B, S, 3))),
    Fires("parallel-dense-bias-variadic", "attention", attention(2, 2, (True,) * 3), """\
%x: float64[2, 5, 8] = input
%wq: float64[8, 8] = param
%bq: float64[8] = param
%wk: float64[8, 8] = param
%wv: float64[8, 8] = param
%concatenate: float64[24, 8] = concatenate((%wq, %wk, %wv))
%dense: float64[2, 5, 24] = nn.dense(%x, %concatenate)
%bk: float64[8] = param
%bv: float64[8] = param
%concatenate_1: float64[24] = concatenate((%bq, %bk, %bv))
%bias_add: float64[2, 5, 24] = nn.bias_add(%dense, %concatenate_1, axis=2)
%split: (float64[2, 5, 8], float64[2, 5, 8], float64[2, 5, 8]) = split(%bias_add, indices_or_sections=(8, 16), axis=2)
%reshape: float64[2, 5, 2, 4] = reshape(%split[0], newshape=(2, 5, 2, 4))
%transpose: float64[2, 2, 5, 4] = transpose(%reshape, axes=(0, 2, 1, 3))
%reshape_1: float64[2, 5, 2, 4] = reshape(%split[1], newshape=(2, 5, 2, 4))
%transpose_1: float64[2, 2, 5, 4] = transpose(%reshape_1, axes=(0, 2, 1, 3))
%reshape_2: float64[2, 5, 2, 4] = reshape(%split[2], newshape=(2, 5, 2, 4))
%transpose_2: float64[2, 2, 5, 4] = transpose(%reshape_2, axes=(0, 2, 1, 3))
%attention: float64[2, 2, 5, 4] = nn.attention(%transpose, %transpose_1, %transpose_2, is_causal=True)
return %attention"""),
    Fires("parallel-dense-bias-variadic", "grouped-query attention", attention(4, 2, (True,) * 3)),
    Fires("parallel-dense-bias-variadic", "two of three have a bias", attention(2, 2, (True, False, True))),
    Fires("qkv-without-key-bias", "attention", attention(2, 2, (True, False, True)), """\
%x: float64[2, 5, 8] = input
%wq: float64[8, 8] = param
%bq: float64[8] = param
%wk: float64[8, 8] = param
%wv: float64[8, 8] = param
%concatenate: float64[24, 8] = concatenate((%wq, %wk, %wv))
%dense: float64[2, 5, 24] = nn.dense(%x, %concatenate)
%zeros: float64[8] = zeros(shape=(8,), dtype='float64')
%bv: float64[8] = param
%concatenate_1: float64[24] = concatenate((%bq, %zeros, %bv))
%bias_add: float64[2, 5, 24] = nn.bias_add(%dense, %concatenate_1, axis=2)
%split: (float64[2, 5, 8], float64[2, 5, 8], float64[2, 5, 8]) = split(%bias_add, indices_or_sections=(8, 16), axis=2)
%reshape: float64[2, 5, 2, 4] = reshape(%split[0], newshape=(2, 5, 2, 4))
%transpose: float64[2, 2, 5, 4] = transpose(%reshape, axes=(0, 2, 1, 3))
%reshape_1: float64[2, 5, 2, 4] = reshape(%split[1], newshape=(2, 5, 2, 4))
%transpose_1: float64[2, 2, 5, 4] = transpose(%reshape_1, axes=(0, 2, 1, 3))
%reshape_2: float64[2, 5, 2, 4] = reshape(%split[2], newshape=(2, 5, 2, 4))
%transpose_2: float64[2, 2, 5, 4] = transpose(%reshape_2, axes=(0, 2, 1, 3))
%attention: float64[2, 2, 5, 4] = nn.attention(%transpose, %transpose_1, %transpose_2, is_causal=True)
return %attention"""),
    Fires("qkv-without-key-bias", "grouped queries", attention(4, 2, (True, False, True))),
)  # fmt: skip

_CONVS = ("parallel-two-conv", "parallel-conv-variadic")
_GROUPED = {"x": (2, 6, 5, 6), "groups": 2}

REFUSES = (
    *(
        Refuses("parallel-conv-bias-variadic", label, view)
        for label, view in (
            ("no bias", convs(K3, K3)),
            ("one", convs(K3, bias=True)),
            ("two inputs", convs(K3, K3, others=1, bias=True)),
            ("1x1 beside 2x2", convs(K1, (2, 3, 2, 2), bias=True)),
            ("different strides", convs(K3, K3, each=({}, {"strides": 2}), bias=True)),
            ("different padding", convs(K3, K3, each=({}, {"padding": 1}), bias=True)),
            ("groups", convs((4, 3, 3, 3), (2, 3, 3, 3), x=(2, 6, 5, 6), groups=2, bias=True)),
            ("channels last", convs((3, 3, 3, 5), (3, 3, 3, 5), x=(2, 5, 6, 3), bias=True, **LAST)),
            ("a kernel is fed", convs(K3, K3, fed=True, bias=True)),
            ("a sum without bias is used", convs(K3, K3, bias=True, used=True)),
        )
    ),
    *(
        Refuses(rule, label, view)
        for rule in _CONVS
        for label, view in (
            ("one", convs(K3)),
            ("two inputs", convs(K3, K3, others=1)),
            ("different kernels", convs(K3, (2, 3, 2, 2))),
            ("1x1 beside 2x2", convs(K1, (2, 3, 2, 2))),
            ("different strides", convs(K3, K3, each=({}, {"strides": 2}))),
            ("different padding", convs(K3, K3, each=({}, {"padding": 1}))),
            ("different dilation", convs(K3, K3, each=({}, {"dilation": 2}))),
            ("different dtype of the result", convs(K3, K3, each=({}, {"out_dtype": "float32"}))),
            ("different layout of the result", convs(K3, K3, each=({}, {"out_layout": "NHWC"}))),
            ("groups", convs((4, 3, 3, 3), (2, 3, 3, 3), **_GROUPED)),
            ("different groups", convs((4, 3, 3, 3), (2, 6, 3, 3), x=(2, 6, 5, 6), each=({"groups": 2},))),
            ("channels last", convs((3, 3, 3, 4), (3, 3, 3, 2), x=(2, 5, 6, 3), **LAST)),
            ("kernels in another layout", convs((3, 4, 3, 3), (3, 2, 3, 3), kernel_layout="IOHW")),
            ("a kernel that is fed", convs(K3, K3, fed=True)),
            ("kernels of two dtypes", convs(K3, K3, dtypes=("float64", "float32"), out_dtype="float64")),
        )
    ),
    Refuses("parallel-conv-expand-kernels", "equal kernels", convs(K3, K3)),
    Refuses("parallel-conv-expand-kernels", "two inputs", convs(K1, K3, each=BESIDE, others=1)),
    Refuses("parallel-conv-expand-kernels", "padding that doesn't match", convs(K1, K3)),
    Refuses("parallel-conv-expand-kernels", "1x1 beside 2x2", convs(K1, (2, 3, 2, 2))),
    Refuses("parallel-conv-expand-kernels", "1x1 beside 2x2, padded", convs(K1, (2, 3, 2, 2), each=BESIDE)),
    Refuses("parallel-conv-expand-kernels", "each larger on one axis, one without padding",
            convs((4, 3, 1, 3), (2, 3, 3, 1), each=({"padding": (0, 1)}, {}))),
    Refuses("parallel-conv-expand-kernels", "each larger on one axis, with the padding of the other",
            convs((4, 3, 1, 3), (2, 3, 3, 1), each=({"padding": (1, 0)}, {"padding": (0, 1)}))),
    Refuses("parallel-conv-expand-kernels", "each larger on one axis, dilation",
            convs((4, 3, 1, 3), (2, 3, 3, 1), dilation=2, each=({"padding": (0, 2)}, {"padding": (2, 0)}))),
    Refuses("parallel-conv-expand-kernels", "equal kernels, different padding", convs(K3, K3, each=BESIDE)),
    Refuses("parallel-conv-expand-kernels", "padding that is larger at the smaller",
            convs(K1, K3, each=({"padding": 1}, {"padding": (0, 0, 4, 4)}))),
    Refuses("parallel-conv-expand-kernels", "different strides",
            convs(K1, K3, each=({}, {"padding": 1, "strides": 2}))),
    Refuses("parallel-conv-expand-kernels", "dilation",
            convs(K1, K3, dilation=2, each=({}, {"padding": 2}))),
    Refuses("parallel-conv-expand-kernels", "different dilation",
            convs(K1, K3, each=({}, {"padding": 2, "dilation": 2}))),
    Refuses("parallel-conv-expand-kernels", "groups",
            convs((4, 3, 1, 1), (2, 3, 3, 3), x=(2, 6, 5, 6), groups=2, each=BESIDE)),
    Refuses("parallel-conv-expand-kernels", "channels last",
            convs((1, 1, 3, 4), (3, 3, 3, 2), x=(2, 5, 6, 3), each=BESIDE, **LAST)),
    Refuses("parallel-conv-expand-kernels", "kernels of two dtypes",
            convs(K1, K3, each=BESIDE, dtypes=("float64", "float32"), out_dtype="float64")),
    Refuses("parallel-conv-expand-kernels", "a kernel that is fed", convs(K1, K3, each=BESIDE, fed=True)),
    Refuses("parallel-group-conv-variadic", "no groups", convs(K3, K3)),
    Refuses("parallel-group-conv-variadic", "two inputs", convs(K3, K3, others=1, **_GROUPED)),
    Refuses("parallel-group-conv-variadic", "different groups",
            convs((6, 2, 3, 3), (6, 3, 3, 3), x=(2, 6, 5, 6), each=({"groups": 3}, {"groups": 2}))),
    Refuses("parallel-group-conv-variadic", "different kernels", convs(K3, (2, 3, 1, 1), **_GROUPED)),
    Refuses("parallel-group-conv-variadic", "kernels of two dtypes",
            convs(K3, K3, dtypes=("float64", "float32"), out_dtype="float64", **_GROUPED)),
    Refuses("parallel-group-conv-variadic", "different strides", convs(K3, K3, each=({}, {"strides": 2}), **_GROUPED)),
    Refuses("parallel-group-conv-variadic", "channels last",
            convs((3, 3, 3, 4), (3, 3, 3, 2), x=(2, 5, 6, 6), groups=2, **LAST)),
    *(
        Refuses(rule, label, view)
        for rule in ("parallel-two-dense", "parallel-dense-variadic")
        for label, view in (
            ("one", dense(4)),
            ("two inputs", dense(4, 4, others=1)),
            ("a weight that is fed", dense(4, 4, fed=True)),
            ("weights of two dtypes", dense(4, 4, dtypes=("float32", "float64"), out_dtypes=("float64", "float64"))),
            ("different dtypes of the result", dense(4, 4, out_dtypes=("float32", "float64"))),
        )
    ),
    *(
        Refuses(rule, label, view)
        for rule in ("parallel-two-dense-bias", "parallel-dense-bias-variadic")
        for label, view in (
            ("one", dense(4, bias=BIASED)),
            ("no bias", dense(4, 2)),
            ("one bias", dense(4, 2, bias=(True, False))),
            ("two inputs", dense(4, 4, bias=BIASED, others=1)),
            ("a bias of another axis of the same size", dense(4, 4, x=(2, 4, 3), bias=BIASED, axis=1)),
            ("used elsewhere without its bias", dense(4, 2, bias=BIASED, used=True)),
            ("a weight that is fed", dense(4, 4, bias=BIASED, fed=True)),
            ("different dtypes of the result", dense(4, 4, bias=BIASED, out_dtypes=("float32", "float64"))),
        )
    ),
    Refuses("qkv-without-key-bias", "all with bias", attention(2, 2, (True, True, True))),
    Refuses("qkv-without-key-bias", "none with bias", attention(2, 2, (False, False, False))),
    Refuses("qkv-without-key-bias", "one with bias", attention(2, 2, (True, False, False))),
    Refuses("qkv-without-key-bias", "another input", dense(4, 4, 4, bias=(True, False, True), others=1)),
    Refuses("qkv-without-key-bias", "a bias of another axis",
            dense(4, 4, 4, x=(2, 4, 3), bias=(True, False, True), axis=1)),
    Refuses("qkv-without-key-bias", "used elsewhere without its bias",
            dense(4, 4, 4, bias=(True, False, True), used=True)),
)  # fmt: skip

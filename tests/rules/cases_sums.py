"""Cases of the family sums."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from gsl.graph import Node
from tests.rules.cases_layout import B, S
from tests.rules.harness import Build, Fires, Refuses, View


def biased(x: Sequence[Any] = (2, 3, 4), y: Sequence[Any] = (2, 3, 4), axis: int = 1, other: int = 1,
           dtypes: tuple[str, str] = ("float64", "float64")) -> View:  # fmt: skip
    """bias_add(x) + bias_add(y)."""

    def view(b: Build) -> Node:
        data = b.input("x", *x, dtype=dtypes[0]), b.input("y", *y, dtype=dtypes[1])
        return b.call("add", b.bias(data[0], "b", axis), b.bias(data[1], "c", other))

    return view


def untyped(b: Build) -> Node:
    x, y = b.input("x", 2, 3), b.input("y", 2, 3)
    x.type = None
    biases = b.param("b", 3), b.param("c", 3)
    return b.call("add", *(b.call("nn.bias_add", *pair, axis=1) for pair in zip((x, y), biases)))


def biased_and_used(b: Build) -> list[Node]:
    first = b.bias(b.input("x", 2, 3), "b")
    return [b.call("add", first, b.bias(b.input("y", 2, 3), "c")), b.call("exp", first)]


def sum_of_convs(
    x: Sequence[Any] = (2, 3, 5, 6), y: Sequence[Any] | None = None, v: Sequence[int] = (4, 3, 3, 3),
    w: Sequence[int] = (4, 3, 3, 3), op: str = "nn.conv2d", other: str = "", second: dict[str, Any] | None = None,
    dtypes: tuple[str, str] = ("float64", "float64"), used: bool = False, **first: Any,
) -> View:  # fmt: skip
    """conv(x, v) + conv(y, w), where y is x if it has no shape of its own."""

    def view(b: Build) -> list[Node]:
        a = b.input("x", *x, dtype=dtypes[0])
        c = a if y is None else b.input("y", *y, dtype=dtypes[1])
        one = b.call(op, a, b.param("v", *v, dtype=dtypes[0]), **first)
        two = b.call(other or op, c, b.param("w", *w, dtype=dtypes[1]), **{**first, **(second or {})})
        return [b.call("add", one, two), *([b.call("exp", one)] if used else [])]

    return view


def shortcut(
    x: Sequence[Any] = (2, 3, 5, 6), w: Sequence[int] = (3, 3, 3, 3), other: Sequence[int] | None = None,
    op: str = "nn.conv2d", used: bool = False, dtype: str = "float64", const: bool = False, **attrs: Any,
) -> View:  # fmt: skip
    """conv(x, w) + x, or + another input."""

    def view(b: Build) -> list[Node]:
        data = b.input("x", *x, dtype=dtype)
        kernel = b.input("w", *w, dtype=dtype) if const else b.param("w", *w, dtype=dtype)
        conv = b.call(op, data, kernel, **attrs)
        added = b.call("add", conv, data if other is None else b.input("y", *other, dtype=dtype))
        return [added, *([b.call("exp", conv)] if used else [])]

    return view


def added_number(number: float, dtype: str = "float32") -> View:
    return lambda b: b.call("add", b.call("abs", b.input("x", 2, 3, dtype=dtype)), number)


def conv_of_one_node_twice(b: Build) -> Node:
    conv = b.call("nn.conv2d", b.input("x", 1, 2, 4, 4), b.param("v", 3, 2, 3, 3))
    return b.call("add", conv, conv)


FIRES = (
    Fires("sum-from-zero", "an integer", added_number(0), """\
%x: float32[2, 3] = input
%abs: float32[2, 3] = abs(%x)
return %abs"""),
    Fires("sum-from-zero", "a float", added_number(0.0)),
    Fires("sum-from-zero", "of integers", added_number(0, "int64")),
    Fires("bias-add-add", "channels", biased(), """\
%x: float64[2, 3, 4] = input
%y: float64[2, 3, 4] = input
%b: float64[3] = param
%c: float64[3] = param
%add: float64[2, 3, 4] = add(%x, %y)
%add_1: float64[3] = add(%b, %c)
%bias_add: float64[2, 3, 4] = nn.bias_add(%add, %add_1)
return %bias_add"""),
    Fires("bias-add-add", "last axis", biased(axis=2, other=-1)),
    Fires("bias-add-add", "symbolic batch", biased(x=(B, 3, S), y=(B, 3, S))),
    Fires("bias-add-add", "integers", biased(dtypes=("int64", "int64"))),
    Fires("diamond-conv-add", "one input", sum_of_convs(padding=1), """\
%x: float64[2, 3, 5, 6] = input
%v: float64[4, 3, 3, 3] = param
%w: float64[4, 3, 3, 3] = param
%add: float64[4, 3, 3, 3] = add(%v, %w)
%conv2d: float64[2, 4, 5, 6] = nn.conv2d(%x, %add, padding=(1, 1, 1, 1))
return %conv2d"""),
    Fires("diamond-conv-add", "groups, strides, dilation",
          sum_of_convs(x=(2, 4, 9, 9), v=(6, 2, 3, 2), w=(6, 2, 3, 2), groups=2, strides=2, dilation=(1, 2),
                       padding=(0, 1, 2, 1))),
    Fires("diamond-conv-add", "channels last",
          sum_of_convs(x=(2, 5, 6, 3), v=(3, 3, 3, 4), w=(3, 3, 3, 4), data_layout="NHWC", kernel_layout="HWIO")),
    Fires("diamond-conv-add", "result in another layout", sum_of_convs(out_layout="NHWC")),
    Fires("diamond-conv-add", "one axis", sum_of_convs(x=(2, 3, 9), v=(4, 3, 3), w=(4, 3, 3), op="nn.conv1d")),
    Fires("two-conv-add", "different channels", sum_of_convs(y=(2, 2, 5, 6), w=(4, 2, 3, 3), padding=1), """\
%x: float64[2, 3, 5, 6] = input
%y: float64[2, 2, 5, 6] = input
%v: float64[4, 3, 3, 3] = param
%w: float64[4, 2, 3, 3] = param
%concatenate: float64[2, 5, 5, 6] = concatenate((%x, %y), axis=1)
%concatenate_1: float64[4, 5, 3, 3] = concatenate((%v, %w), axis=1)
%conv2d: float64[2, 4, 5, 6] = nn.conv2d(%concatenate, %concatenate_1, padding=(1, 1, 1, 1))
return %conv2d"""),
    Fires("two-conv-add", "strides, dilation, uneven padding",
          sum_of_convs(y=(2, 3, 5, 6), strides=2, dilation=2, padding=(2, 1, 3, 0))),
    Fires("two-conv-add", "three axes",
          sum_of_convs(x=(1, 2, 3, 4, 5), y=(1, 1, 3, 4, 5), v=(3, 2, 2, 2, 2), w=(3, 1, 2, 2, 2), op="nn.conv3d")),
    Fires("conv-shortcut-add", "3x3", shortcut(padding=1), """\
%x: float64[2, 3, 5, 6] = input
%w: float64[3, 3, 3, 3] = param
%zeros: float64[3, 3] = zeros(shape=(3, 3), dtype='float64')
%ones: float64[3] = ones(shape=(3,), dtype='float64')
%matrix_set_diag: float64[3, 3] = matrix_set_diag(%zeros, %ones)
%reshape: float64[3, 3, 1, 1] = reshape(%matrix_set_diag, newshape=(3, 3, 1, 1))
%pad: float64[3, 3, 3, 3] = nn.pad(%reshape, pad_width=((0, 0), (0, 0), (1, 1), (1, 1)))
%add: float64[3, 3, 3, 3] = add(%w, %pad)
%conv2d: float64[2, 3, 5, 6] = nn.conv2d(%x, %add, padding=(1, 1, 1, 1))
return %conv2d"""),
    Fires("conv-shortcut-add", "1x1", shortcut(w=(3, 3, 1, 1))),
    Fires("conv-shortcut-add", "oblong", shortcut(w=(3, 3, 5, 3), padding=(2, 1))),
    Fires("conv-shortcut-add", "dilation", shortcut(dilation=(2, 1), padding=(2, 1))),
    Fires("conv-shortcut-add", "one axis", shortcut(x=(2, 3, 7), w=(3, 3, 5), padding=2, op="nn.conv1d")),
    Fires("conv-shortcut-add", "symbolic image", shortcut(x=(B, 3, S, S), padding=1)),
    Fires("conv-shortcut-add", "equal shape to broadcast", shortcut(x=(1, 1, 1, 1), w=(1, 1, 3, 3), padding=1)),
)  # fmt: skip

REFUSES = (
    Refuses("sum-from-zero", "another number", added_number(1e-30)),
    Refuses("bias-add-add", "different rank", biased(y=(3, 4), other=0)),
    Refuses("bias-add-add", "broadcast batch", biased(y=(1, 3, 4))),
    Refuses("bias-add-add", "broadcast last axis", biased(y=(2, 3, 1))),
    Refuses("bias-add-add", "different axes", biased(x=(2, 3, 3), y=(2, 3, 3), other=2)),
    Refuses("bias-add-add", "different dtypes", biased(dtypes=("float32", "float64"))),
    Refuses("bias-add-add", "types that are not known", untyped),
    Refuses("bias-add-add", "used elsewhere", biased_and_used),
    Refuses("diamond-conv-add", "two inputs", sum_of_convs(y=(2, 3, 5, 6))),
    Refuses("diamond-conv-add", "one convolution twice", conv_of_one_node_twice),
    Refuses("diamond-conv-add", "kernels that broadcast", sum_of_convs(w=(1, 3, 3, 3))),
    Refuses("diamond-conv-add", "different kernel sizes",
            sum_of_convs(w=(4, 3, 5, 5), padding=1, second={"padding": 2})),
    Refuses("diamond-conv-add", "different padding that keeps the shape",
            sum_of_convs(padding=(1, 1, 1, 1), second={"padding": (0, 1, 2, 1)})),
    Refuses("diamond-conv-add", "different dilation", sum_of_convs(padding=1, second={"dilation": 2, "padding": 2})),
    Refuses("diamond-conv-add", "different groups",
            sum_of_convs(x=(2, 4, 5, 5), v=(4, 2, 3, 3), w=(4, 4, 3, 3), groups=2, second={"groups": 1})),
    Refuses("diamond-conv-add", "different layout of the kernel",
            sum_of_convs(v=(3, 3, 3, 3), w=(3, 3, 3, 3), second={"kernel_layout": "IOHW"})),
    Refuses("diamond-conv-add", "different layout of the result",
            sum_of_convs(x=(2, 3, 5, 5), v=(3, 3, 3, 3), w=(3, 3, 3, 3), out_layout="NHWC",
                         second={"out_layout": "NWHC"})),
    Refuses("diamond-conv-add", "different dtype of the result",
            sum_of_convs(dtypes=("float32", "float32"), second={"out_dtype": "float64"})),
    Refuses("diamond-conv-add", "kernels less precise than the result",
            sum_of_convs(dtypes=("float32", "float32"), out_dtype="float64")),
    Refuses("diamond-conv-add", "used elsewhere", sum_of_convs(used=True)),
    Refuses("two-conv-add", "one input", sum_of_convs()),
    Refuses("two-conv-add", "groups",
            sum_of_convs(x=(2, 4, 5, 5), y=(2, 4, 5, 5), v=(4, 2, 3, 3), w=(4, 2, 3, 3), groups=2)),
    Refuses("two-conv-add", "depthwise", sum_of_convs(
        x=(2, 4, 5, 5), y=(2, 4, 5, 5), v=(4, 1, 3, 3), w=(4, 1, 3, 3), groups=4)),
    Refuses("two-conv-add", "broadcast batch", sum_of_convs(y=(1, 3, 5, 6))),
    Refuses("two-conv-add", "broadcast image", sum_of_convs(y=(2, 3, 3, 3))),
    Refuses("two-conv-add", "broadcast channels", sum_of_convs(y=(2, 3, 5, 6), w=(1, 3, 3, 3))),
    Refuses("two-conv-add", "different strides that meet",
            sum_of_convs(x=(2, 3, 5, 5), y=(2, 3, 9, 9), second={"strides": 3})),
    Refuses("two-conv-add", "different kernel sizes",
            sum_of_convs(y=(2, 3, 5, 6), w=(4, 3, 1, 1), padding=1, second={"padding": 0})),
    Refuses("two-conv-add", "channels last", sum_of_convs(
        x=(2, 5, 6, 3), y=(2, 5, 6, 3), v=(3, 3, 3, 4), w=(3, 3, 3, 4), data_layout="NHWC", kernel_layout="HWIO")),
    Refuses("two-conv-add", "kernel in another layout", sum_of_convs(
        y=(2, 3, 5, 6), v=(3, 4, 3, 3), w=(3, 4, 3, 3), kernel_layout="IOHW")),
    Refuses("two-conv-add", "result in another layout", sum_of_convs(y=(2, 3, 5, 6), out_layout="NHWC")),
    Refuses("two-conv-add", "different dtypes", sum_of_convs(y=(2, 3, 5, 6), dtypes=("float32", "float64"))),
    Refuses("two-conv-add", "used elsewhere", sum_of_convs(y=(2, 3, 5, 6), used=True)),
    Refuses("conv-shortcut-add", "uneven padding that keeps the shape", shortcut(padding=(0, 1, 2, 1))),
    Refuses("conv-shortcut-add", "even kernel", shortcut(w=(3, 3, 2, 2), padding=(0, 0, 1, 1))),
    Refuses("conv-shortcut-add", "even kernel, dilation", shortcut(w=(3, 3, 2, 2), dilation=2, padding=1)),
    Refuses("conv-shortcut-add", "depthwise", shortcut(w=(3, 1, 3, 3), padding=1, groups=3)),
    Refuses("conv-shortcut-add", "groups", shortcut(x=(2, 4, 5, 5), w=(4, 2, 3, 3), padding=1, groups=2)),
    Refuses("conv-shortcut-add", "broadcast channels", shortcut(x=(2, 1, 5, 6), w=(4, 1, 3, 3), padding=1)),
    Refuses("conv-shortcut-add", "broadcast to the input", shortcut(w=(1, 3, 3, 3), padding=1)),
    Refuses("conv-shortcut-add", "broadcast image", shortcut(x=(2, 3, 1, 1), padding=2)),
    Refuses("conv-shortcut-add", "stride", shortcut(x=(2, 3, 1, 1), padding=1, strides=2)),
    Refuses("conv-shortcut-add", "too little padding for the dilation",
            shortcut(x=(2, 3, 1, 1), padding=(1, 1, 3, 3), dilation=2)),
    Refuses("conv-shortcut-add", "channels last",
            shortcut(x=(2, 5, 6, 3), padding=1, data_layout="NHWC", kernel_layout="HWIO")),
    Refuses("conv-shortcut-add", "kernel in another layout", shortcut(padding=1, kernel_layout="IOHW")),
    Refuses("conv-shortcut-add", "result in another layout", shortcut(x=(2, 3, 3, 3), padding=1, out_layout="NWCH")),
    Refuses("conv-shortcut-add", "dtype of the result", shortcut(padding=1, dtype="float32", out_dtype="float64")),
    Refuses("conv-shortcut-add", "another input", shortcut(padding=1, other=(2, 3, 5, 6))),
    Refuses("conv-shortcut-add", "a kernel that is not a weight", shortcut(padding=1, const=True)),
    Refuses("conv-shortcut-add", "used elsewhere", shortcut(padding=1, used=True)),
)  # fmt: skip

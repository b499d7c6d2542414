"""Cases of the families fold and lower."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from gsl.graph import Node
from tests.rules.cases_layout import B, S
from tests.rules.harness import Build, Fires, Refuses, View

IMAGE, KERNEL = (2, 3, 5, 6), (4, 3, 3, 3)


def scaled(
    c: Sequence[int] | float, x: Sequence[Any] = IMAGE, w: Sequence[int] = KERNEL, op: str = "nn.conv2d",
    bias: bool = False, literal: bool = False, swapped: bool = False, used: bool = False, fed: bool = False,
    dtype: str = "float64", other: str = "", axis: int = 1, **attrs: Any,
) -> View:  # fmt: skip
    """conv(x, w) · c, of a bias_add with ``bias``; c is a number, or a weight or literal of a shape."""

    def view(b: Build) -> list[Node]:
        y = conv = b.call(op, b.input("x", *x, dtype=dtype), b.param("w", *w, dtype=dtype), **attrs)
        y = b.bias(conv, "b", axis) if bias else conv
        kind = other or dtype
        if isinstance(c, float):
            factor = b.const(c)
        elif fed:
            factor = b.input("c", *c, dtype=kind)
        else:
            factor = b.tensor(*c, dtype=kind) if literal else b.param("c", *c, dtype=kind)
        product = b.call("multiply", *((factor, y) if swapped else (y, factor)))
        return [product, *([b.call("exp", conv)] if used else [])]

    return view


def normed(
    op: str = "nn.conv2d", x: Sequence[Any] = IMAGE, w: Sequence[int] = KERNEL, bias: bool = False, axis: int = 1,
    bias_axis: int | None = None, norm: dict[str, Any] | None = None, used: bool = False, fed: bool = False,
    dtype: str = "float64", literal: bool = False, **attrs: Any,
) -> View:  # fmt: skip
    """bn(op(x, w) [+ b])."""

    def view(b: Build) -> list[Node]:
        weight = b.input("w", *w, dtype=dtype) if fed else b.param("w", *w, dtype=dtype)
        product = b.call(op, b.input("x", *x, dtype=dtype), weight, **attrs)
        y = b.bias(product, "b", axis if bias_axis is None else bias_axis) if bias else product
        assert y.shape is not None
        given = {"axis": axis, "epsilon": 1e-3, **(norm or {})}
        kind = "literal" if literal else "param"
        return [b.norm(y, y.shape[axis], kind=kind, dtype=dtype, **given), *([b.call("exp", product)] if used else [])]

    return view


def batch_norm(*shape: Any, axis: int = 1, dtype: str = "float64", fed: bool = False, **attrs: Any) -> View:
    def view(b: Build) -> Node:
        kind = "input" if fed else "param"
        return b.norm(b.input("x", *shape, dtype=dtype), shape[axis], kind=kind, dtype=dtype, axis=axis, **attrs)

    return view


def layer_norm(
    *shape: Any, axis: Sequence[int] = (-1,), weights: int = 2, dtype: str = "float64", **attrs: Any
) -> View:  # fmt: skip
    def view(b: Build) -> Node:
        sizes = [shape[a] for a in axis]
        params = [b.param(name, *sizes, dtype=dtype) for name in ("gamma", "beta")[:weights]]
        return b.call("nn.layer_norm", b.input("x", *shape, dtype=dtype), *params, axis=tuple(axis), **attrs)

    return view


CONV_T, DENSE = "nn.conv2d_transpose", "nn.dense"
LAST = {"data_layout": "NHWC", "kernel_layout": "HWIO"}

FIRES = (
    Fires("conv-multiply", "per channel", scaled((4, 1, 1), strides=2, padding=1), """\
%x: float64[2, 3, 5, 6] = input
%w: float64[4, 3, 3, 3] = param
%c: float64[4, 1, 1] = param
%reshape: float64[4, 1, 1, 1] = reshape(%c, newshape=(4, 1, 1, 1))
%multiply: float64[4, 3, 3, 3] = multiply(%w, %reshape)
%conv2d: float64[2, 4, 3, 3] = nn.conv2d(%x, %multiply, strides=(2, 2), padding=(1, 1, 1, 1))
return %conv2d"""),
    Fires("conv-multiply", "with a batch axis, exchanged", scaled((1, 4, 1, 1), swapped=True)),
    Fires("conv-multiply", "a number", scaled(2.5)),
    Fires("conv-multiply", "a tensor without axes", scaled((), literal=True)),
    Fires("conv-multiply", "a literal tensor", scaled((4, 1, 1), literal=True)),
    Fires("conv-multiply", "groups", scaled((4, 1, 1), x=(2, 6, 5, 6), groups=2)),
    Fires("conv-multiply", "one axis", scaled((4, 1), x=(2, 3, 7), w=(4, 3, 3), op="nn.conv1d")),
    Fires("conv-multiply", "one channel", scaled((1, 1, 1), w=(1, 3, 3, 3))),
    Fires("conv-multiply", "symbolic batch", scaled((4, 1, 1), x=(B, 3, S, 6), padding=1)),
    Fires("conv-bias-multiply", "per channel", scaled((4, 1, 1), bias=True), """\
%x: float64[2, 3, 5, 6] = input
%w: float64[4, 3, 3, 3] = param
%b: float64[4] = param
%c: float64[4, 1, 1] = param
%reshape: float64[4, 1, 1, 1] = reshape(%c, newshape=(4, 1, 1, 1))
%multiply: float64[4, 3, 3, 3] = multiply(%w, %reshape)
%conv2d: float64[2, 4, 3, 4] = nn.conv2d(%x, %multiply)
%reshape_1: float64[4] = reshape(%c, newshape=(4,))
%multiply_1: float64[4] = multiply(%b, %reshape_1)
%bias_add: float64[2, 4, 3, 4] = nn.bias_add(%conv2d, %multiply_1)
return %bias_add"""),
    Fires("conv-bias-multiply", "a number", scaled(0.5, bias=True)),
    Fires("conv-bias-multiply", "with a batch axis", scaled((1, 4, 1, 1), bias=True, swapped=True)),
    Fires("conv-batch-norm", "without bias", normed(padding=1), """\
%w: float64[4, 3, 3, 3] = param
%x: float64[2, 3, 5, 6] = input
%gamma: float64[4] = param
%beta: float64[4] = param
%mean: float64[4] = param
%var: float64[4] = param
%add: float64[4] = add(%var, 0.001)
%rsqrt: float64[4] = rsqrt(%add)
%multiply: float64[4] = multiply(%gamma, %rsqrt)
%reshape: float64[4, 1, 1, 1] = reshape(%multiply, newshape=(4, 1, 1, 1))
%multiply_1: float64[4, 3, 3, 3] = multiply(%w, %reshape)
%conv2d: float64[2, 4, 5, 6] = nn.conv2d(%x, %multiply_1, padding=(1, 1, 1, 1))
%negative: float64[4] = negative(%mean)
%multiply_2: float64[4] = multiply(%negative, %multiply)
%add_1: float64[4] = add(%beta, %multiply_2)
%bias_add: float64[2, 4, 5, 6] = nn.bias_add(%conv2d, %add_1)
return %bias_add"""),
    Fires("conv-batch-norm", "bias", normed(bias=True)),
    Fires("conv-batch-norm", "neither factor nor offset", normed(norm={"scale": False, "center": False})),
    Fires("conv-batch-norm", "no factor, bias", normed(bias=True, norm={"scale": False})),
    Fires("conv-batch-norm", "literal factor and offset", normed(literal=True)),
    Fires("conv-batch-norm", "groups, strides, dilation",
          normed(x=(2, 6, 9, 9), groups=2, strides=2, dilation=2, padding=(1, 2))),
    Fires("conv-batch-norm", "one axis, bias", normed("nn.conv1d", (2, 3, 7), (4, 3, 3), bias=True)),
    Fires("conv-batch-norm", "three axes, float32",
          normed("nn.conv3d", (2, 2, 3, 4, 5), (4, 2, 2, 2, 2), dtype="float32")),
    Fires("conv-transpose-batch-norm", "without bias", normed(CONV_T, w=(3, 4, 3, 3), strides=2), """\
%w: float64[3, 4, 3, 3] = param
%x: float64[2, 3, 5, 6] = input
%gamma: float64[4] = param
%beta: float64[4] = param
%mean: float64[4] = param
%var: float64[4] = param
%reshape: float64[1, 3, 4, 3, 3] = reshape(%w, newshape=(1, 3, 4, 3, 3))
%add: float64[4] = add(%var, 0.001)
%rsqrt: float64[4] = rsqrt(%add)
%multiply: float64[4] = multiply(%gamma, %rsqrt)
%reshape_1: float64[1, 1, 4, 1, 1] = reshape(%multiply, newshape=(1, 1, 4, 1, 1))
%multiply_1: float64[1, 3, 4, 3, 3] = multiply(%reshape, %reshape_1)
%reshape_2: float64[3, 4, 3, 3] = reshape(%multiply_1, newshape=(3, 4, 3, 3))
%conv2d_transpose: float64[2, 4, 11, 13] = nn.conv2d_transpose(%x, %reshape_2, strides=(2, 2))
%negative: float64[4] = negative(%mean)
%multiply_2: float64[4] = multiply(%negative, %multiply)
%add_1: float64[4] = add(%beta, %multiply_2)
%bias_add: float64[2, 4, 11, 13] = nn.bias_add(%conv2d_transpose, %add_1)
return %bias_add"""),
    Fires("conv-transpose-batch-norm", "groups, bias, output padding",
          normed(CONV_T, (2, 6, 4, 5), (6, 2, 3, 3), bias=True, groups=3, strides=2, output_padding=1, padding=1)),
    Fires("conv-transpose-batch-norm", "depthwise", normed(CONV_T, (2, 4, 4, 5), (4, 1, 3, 3), groups=4)),
    Fires("conv-transpose-batch-norm", "one axis", normed("nn.conv1d_transpose", (2, 3, 7), (3, 4, 3), bias=True)),
    Fires("conv-transpose-batch-norm", "three axes", normed("nn.conv3d_transpose", (1, 2, 3, 3, 3), (2, 3, 2, 2, 2))),
    Fires("dense-batch-norm", "without bias", normed(DENSE, (5, 3), (4, 3)), """\
%w: float64[4, 3] = param
%x: float64[5, 3] = input
%gamma: float64[4] = param
%beta: float64[4] = param
%mean: float64[4] = param
%var: float64[4] = param
%add: float64[4] = add(%var, 0.001)
%rsqrt: float64[4] = rsqrt(%add)
%multiply: float64[4] = multiply(%gamma, %rsqrt)
%reshape: float64[4, 1] = reshape(%multiply, newshape=(4, 1))
%multiply_1: float64[4, 3] = multiply(%w, %reshape)
%dense: float64[5, 4] = nn.dense(%x, %multiply_1)
%negative: float64[4] = negative(%mean)
%multiply_2: float64[4] = multiply(%negative, %multiply)
%add_1: float64[4] = add(%beta, %multiply_2)
%bias_add: float64[5, 4] = nn.bias_add(%dense, %add_1)
return %bias_add"""),
    Fires("dense-batch-norm", "bias", normed(DENSE, (5, 3), (4, 3), bias=True)),
    Fires("dense-batch-norm", "three axes, the last one normalised",
          normed(DENSE, (5, 6, 3), (4, 3), bias=True, axis=2)),
    Fires("lower-batch-norm", "images", batch_norm(2, 3, 4, 5), """\
%x: float64[2, 3, 4, 5] = input
%gamma: float64[3] = param
%beta: float64[3] = param
%mean: float64[3] = param
%var: float64[3] = param
%add: float64[3] = add(%var, 1e-05)
%rsqrt: float64[3] = rsqrt(%add)
%multiply: float64[3] = multiply(%gamma, %rsqrt)
%reshape: float64[3, 1, 1] = reshape(%multiply, newshape=(3, 1, 1))
%multiply_1: float64[2, 3, 4, 5] = multiply(%x, %reshape)
%negative: float64[3] = negative(%mean)
%multiply_2: float64[3] = multiply(%negative, %multiply)
%add_1: float64[3] = add(%beta, %multiply_2)
%reshape_1: float64[3, 1, 1] = reshape(%add_1, newshape=(3, 1, 1))
%add_2: float64[2, 3, 4, 5] = add(%multiply_1, %reshape_1)
return %add_2"""),
    Fires("lower-batch-norm", "last axis", batch_norm(2, 3, 4, 5, axis=-1)),
    Fires("lower-batch-norm", "a matrix, no factor", batch_norm(5, 4, scale=False)),
    Fires("lower-batch-norm", "axis in the middle, no offset", batch_norm(2, 3, 4, 5, axis=2, center=False)),
    Fires("lower-batch-norm", "symbolic batch", batch_norm(B, 3, S, S)),
    Fires("lower-layer-norm", "last axis", layer_norm(2, 3, 4), """\
%gamma: float64[4] = param
%beta: float64[4] = param
%x: float64[2, 3, 4] = input
%mean: float64[2, 3, 1] = mean(%x, axis=(2,), keepdims=True)
%subtract: float64[2, 3, 4] = subtract(%x, %mean)
%square: float64[2, 3, 4] = square(%subtract)
%mean_1: float64[2, 3, 1] = mean(%square, axis=(2,), keepdims=True)
%add: float64[2, 3, 1] = add(%mean_1, 1e-05)
%rsqrt: float64[2, 3, 1] = rsqrt(%add)
%multiply: float64[2, 3, 4] = multiply(%subtract, %rsqrt)
%reshape: float64[1, 1, 4] = reshape(%gamma, newshape=(1, 1, 4))
%multiply_1: float64[2, 3, 4] = multiply(%multiply, %reshape)
%reshape_1: float64[1, 1, 4] = reshape(%beta, newshape=(1, 1, 4))
%add_1: float64[2, 3, 4] = add(%multiply_1, %reshape_1)
return %add_1"""),
    Fires("lower-layer-norm", "two axes, no offset", layer_norm(2, 3, 4, axis=(1, 2), weights=1)),
    Fires("lower-layer-norm", "no weights", layer_norm(2, 3, 4, weights=0, epsilon=0.1)),
    Fires("lower-layer-norm", "channels of images", layer_norm(2, 3, 4, 5, axis=(1,))),
    Fires("lower-layer-norm", "weights that don't count", layer_norm(2, 3, 4, scale=False)),
    Fires("lower-layer-norm", "an offset that doesn't count", layer_norm(2, 3, 4, center=False)),
    Fires("lower-layer-norm", "symbolic batch", layer_norm(B, S, 4)),
)  # fmt: skip

REFUSES = (
    Refuses("conv-multiply", "a factor per column", scaled((4,), x=(2, 3, 5, 6))),
    Refuses("conv-multiply", "a factor per row", scaled((4, 1), x=(2, 3, 6, 6))),
    Refuses("conv-multiply", "a factor per image", scaled((2, 1, 1, 1))),
    Refuses("conv-multiply", "a factor per image and channel", scaled((2, 4, 1, 1))),
    Refuses("conv-multiply", "one factor per channel of one", scaled((4, 1, 1), w=(1, 3, 3, 3))),
    Refuses("conv-multiply", "one more axis", scaled((1, 1, 4, 1, 1))),
    Refuses("conv-multiply", "a factor that is fed", scaled((4, 1, 1), fed=True)),
    Refuses("conv-multiply", "channels last", scaled((4, 1, 1), x=(2, 6, 5, 3), w=(3, 3, 3, 4), **LAST)),
    Refuses("conv-multiply", "kernel in another layout", scaled((4, 1, 1), w=(3, 4, 3, 3), kernel_layout="IOHW")),
    Refuses("conv-multiply", "result in another layout", scaled((4, 1, 1), x=(2, 3, 6, 5), out_layout="NHWC")),
    Refuses("conv-multiply", "another dtype", scaled((4, 1, 1), dtype="float32", other="float64")),
    Refuses("conv-multiply", "dtype of the result", scaled(2.5, dtype="float32", out_dtype="float64")),
    Refuses("conv-multiply", "integers times a fraction", scaled(0.5, dtype="int8")),
    Refuses("conv-multiply", "used elsewhere", scaled((4, 1, 1), used=True)),
    Refuses("conv-bias-multiply", "a factor per column", scaled((4,), bias=True)),
    Refuses("conv-bias-multiply", "a bias per row", scaled((4, 1, 1), x=(2, 3, 6, 6), bias=True, axis=2)),
    Refuses("conv-bias-multiply", "channels last",
            scaled((4,), x=(2, 6, 5, 3), w=(3, 3, 3, 4), bias=True, axis=3, **LAST)),
    Refuses("conv-bias-multiply", "integers times a fraction", scaled(0.5, bias=True, dtype="int8")),
    Refuses("conv-bias-multiply", "used elsewhere", scaled(2.5, bias=True, used=True)),
    Refuses("conv-batch-norm", "another axis of the same size", normed(x=(2, 3, 6, 6), axis=2)),
    Refuses("conv-batch-norm", "channels last", normed(x=(2, 5, 6, 3), w=(3, 3, 3, 4), axis=3, **LAST)),
    Refuses("conv-batch-norm", "channels last, axis 1", normed(x=(2, 5, 6, 3), w=(3, 3, 3, 4), **LAST)),
    Refuses("conv-batch-norm", "kernel in another layout", normed(w=(3, 4, 3, 3), kernel_layout="IOHW")),
    Refuses("conv-batch-norm", "result in another layout", normed(out_layout="NHWC")),
    Refuses("conv-batch-norm", "a bias per row", normed(x=(2, 3, 6, 6), bias=True, bias_axis=2)),
    Refuses("conv-batch-norm", "halves", normed(dtype="float16")),
    Refuses("conv-batch-norm", "a kernel that is fed", normed(fed=True)),
    Refuses("conv-batch-norm", "used elsewhere", normed(used=True)),
    Refuses("conv-batch-norm", "used elsewhere before the bias", normed(bias=True, used=True)),
    Refuses("conv-transpose-batch-norm", "another axis of the same size",
            normed(CONV_T, (2, 3, 2, 2), (3, 4, 3, 3), axis=2)),
    Refuses("conv-transpose-batch-norm", "kernel in another layout",
            normed(CONV_T, w=(4, 3, 3, 3), kernel_layout="OIHW")),
    Refuses("conv-transpose-batch-norm", "used elsewhere", normed(CONV_T, w=(3, 4, 3, 3), used=True)),
    Refuses("dense-batch-norm", "an axis that is not the features", normed(DENSE, (5, 4, 3), (4, 3))),
    Refuses("dense-batch-norm", "a bias of another axis",
            normed(DENSE, (5, 4, 3), (4, 3), bias=True, axis=2, bias_axis=1)),
    Refuses("dense-batch-norm", "used elsewhere", normed(DENSE, (5, 3), (4, 3), used=True)),
    Refuses("dense-batch-norm", "a weight that is fed", normed(DENSE, (5, 3), (4, 3), fed=True)),
    Refuses("lower-batch-norm", "halves", batch_norm(2, 3, 4, dtype="float16")),
    Refuses("lower-batch-norm", "factors that are fed", batch_norm(2, 3, 4, fed=True)),
    Refuses("lower-layer-norm", "halves", layer_norm(2, 3, 4, dtype="bfloat16")),
    Refuses("lower-layer-norm", "another normalisation", lambda b: b.call("nn.rms_norm", b.input("x", 2, 3))),
)  # fmt: skip

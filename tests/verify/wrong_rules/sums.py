"""Wrong variants of the rules for sums."""

from __future__ import annotations

from collections.abc import Callable

from gsl import attr, op, pat
from gsl.rules.common import ATTRS, RuleSides, channels_first, convolution, same_dtype, same_type
from tests.verify.wrong_rules.table import wrong


@wrong("sum-from-zero")
def _() -> RuleSides:
    """the zero of a product"""
    x = pat.Wildcard()
    product = x * 0
    return product, x, same_type(x, product)


def biased_sum(
    *, axis: bool = True, shape: bool = True, bias: Callable[[pat.Pattern, pat.Pattern], object]
) -> RuleSides:
    x, y, b, c = pat.Wildcard(), pat.Wildcard(), pat.Wildcard(), pat.Wildcard()
    first = op.BiasAdd(x, b)
    second = op.BiasAdd(y, c, axis=first.axis) if axis else op.BiasAdd(y, c)
    alike = x.shape == y.shape if shape else attr.Const(True)
    return first + second, first.like(x + y, bias(b, c)), alike & same_dtype(x, y, b, c)


@wrong("bias-add-add", condition="first.axis == second.axis")
def _() -> RuleSides:
    """biases of different axes"""
    return biased_sum(axis=False, bias=lambda b, c: b + c)


@wrong("bias-add-add", condition="x.ndim == x2.ndim")
def _() -> RuleSides:
    """operands of different ranks"""
    return biased_sum(shape=False, bias=lambda b, c: b + c)


@wrong("bias-add-add")
def _() -> RuleSides:
    """the second bias dropped"""
    return biased_sum(bias=lambda b, c: b)


def diamond(without: str, kernel: Callable[[pat.Pattern, pat.Pattern], object]) -> RuleSides:
    x, v, w, f = pat.Wildcard(), pat.Wildcard(), pat.Wildcard(), convolution()
    first = pat.Call(f, x, v)
    second = pat.Call(f, x, w, **pat.same_attr(first, [name for name in ATTRS if name != without]))
    return first + second, first.like(x, kernel(v, w)), (v.shape == w.shape) & same_dtype(v, w, first)


@wrong("diamond-conv-add", condition="first.dilation == second.dilation", examples=120)
def _() -> RuleSides:
    """dilations not compared"""
    return diamond("dilation", lambda v, w: v + w)


@wrong("diamond-conv-add", condition="first.padding == second.padding")
def _() -> RuleSides:
    """paddings not compared"""
    return diamond("padding", lambda v, w: v + w)


@wrong("diamond-conv-add")
def _() -> RuleSides:
    """kernels subtracted"""
    return diamond("", lambda v, w: v - w)


def of_two(*attrs: str, groups: object = 1, reverse: bool = False) -> RuleSides:
    x, y, v, w, f = pat.Wildcard(), pat.Wildcard(distinct=True), pat.Param(), pat.Param(), convolution()
    first = pat.Call(f, x, v) if groups is None else pat.Call(f, x, v, groups=groups)
    second = pat.Call(f, y, w, **pat.same_attr(first, [*attrs, "kernel_size", "channels"]))
    data, kernels = op.Concatenate([x, y], axis=1), op.Concatenate([w, v] if reverse else [v, w], axis=1)
    equal = (x.shape[0] == y.shape[0]) & (x.shape[2:] == y.shape[2:])
    return first + second, first.like(data, kernels), channels_first(first) & equal & same_dtype(x, y, v, w)


@wrong("two-conv-add", condition="groups == 1")
def _() -> RuleSides:
    """several groups"""
    return of_two(*ATTRS, groups=None)


@wrong("two-conv-add")
def _() -> RuleSides:
    """the kernels exchanged"""
    return of_two(*ATTRS, reverse=True)


@wrong("two-conv-add", condition="first.padding == second.padding")
def _() -> RuleSides:
    """paddings not compared"""
    return of_two(*(name for name in ATTRS if name != "padding"))


def shortcut(*, diagonal: bool, centred: bool) -> RuleSides:
    x, w = pat.Wildcard(), pat.Param()
    conv = op.Conv2D(x, w, groups=1)
    channels, middle = w.shape[0], attr.Map(conv.kernel_size, lambda k: (k - 1) // 2)
    row = op.Ones(shape=(channels,), dtype=w.dtype)
    square = op.Zeros(shape=(channels, channels), dtype=w.dtype)
    identity = op.MatrixSetDiag(square, row) if diagonal else op.Ones(shape=(channels, channels), dtype=w.dtype)
    pixel = op.Reshape(identity, newshape=(channels, channels, 1, 1))
    kernel = op.Pad(pixel, pad_width=((0, 0), (0, 0)) + attr.Zip(middle, middle))
    same = attr.Map(attr.Zip(middle, conv.dilation), lambda pair: pair[0] * pair[1])
    fits = attr.all(attr.Map(conv.kernel_size, lambda k: k % 2 == 1)) & (conv.strides == (1, 1))
    padded = conv.padding == same + same if centred else attr.Const(True)
    return conv + x, conv.like(x, w + kernel), channels_first(conv) & fits & padded & same_dtype(x, w, conv) & (
        x.shape == conv.shape
    )  # fmt: skip


@wrong("conv-shortcut-add", condition="conv.padding", examples=200)
def _() -> RuleSides:
    """padding on one side only"""
    return shortcut(diagonal=True, centred=False)


@wrong("conv-shortcut-add", condition="conv.channels == 1")
def _() -> RuleSides:
    """a kernel of ones instead of the identity"""
    return shortcut(diagonal=False, centred=True)

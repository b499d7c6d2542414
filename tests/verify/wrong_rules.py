"""The rule book with a mistake in each of its rules: variants that look right, and are refuted.

A variant is a function that returns the sides and conditions of a rule, as in the rule book; its first line says what is
wrong with it.
"""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Callable
from dataclasses import dataclass

from gsl import Subst, attr, op, pat
from gsl.errors import DroppedAttributeWarning
from rules import RULES
from rules.common import ATTRS, Sides, along, channels_first, convolution, fields, ones, precise, same_dtype, weight
from rules.fold import affine, of_kernel, per_channel
from rules.parallel import join, split


@dataclass(frozen=True)
class Variant:
    """A rule of the book with a mistake."""

    of: str
    sides: Callable[[], Sides]
    kind: str
    """The kind of its counterexample."""
    condition: str | None
    """A part of the text of the condition that is suggested; ``None`` where no condition tells right from wrong."""

    @property
    def fault(self) -> str:
        """What is wrong with it."""
        return (inspect.getdoc(self.sides) or "").partition("\n")[0]

    def rule(self) -> Subst:
        """The rule, used where that of the book is."""
        source, target, *where = self.sides()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DroppedAttributeWarning)
            extern_use = RULES[self.of].source.extern_use
            return Subst(source, target, where=where, name=f"{self.of}, {self.fault}", extern_use=extern_use)


VARIANTS: dict[str, Variant] = {}
"""The variants by rule and fault."""


def wrong(of: str, *, kind: str = "value", condition: str | None = None) -> Callable[[Callable[[], Sides]], None]:
    """Put a variant of a rule into the table."""

    def add(sides: Callable[[], Sides]) -> None:
        variant = Variant(of, sides, kind, condition)
        name = f"{of}: {variant.fault}"
        assert of in RULES, of
        assert name not in VARIANTS, name
        VARIANTS[name] = variant

    return add


# Layouts


@wrong("transpose-transpose", condition="inner.axes == outer.axes")
def _() -> Sides:
    """the permutations composed the other way round"""
    x = pat.Wildcard()
    inner = op.Transpose(x)
    outer = op.Transpose(inner)
    return outer, outer.like(x, axes=attr.Map(inner.axes, lambda i: outer.axes[i]))


@wrong("transpose-transpose", condition="x.ndim == 0")
def _() -> Sides:
    """two transpositions taken for none"""
    x = pat.Wildcard()
    return op.Transpose(op.Transpose(x)), x


@wrong("reshape-reshape", condition="transpose.axes == attr.Range(")
def _() -> Sides:
    """a transposition in between, whose order is ignored"""
    x = pat.Wildcard()
    outer = op.Reshape(op.Transpose(x))
    return outer, outer.like(x), outer.newshape == outer.shape


@wrong("reshape-identity", condition="transpose.axes == attr.Range(")
def _() -> Sides:
    """any transposition that keeps the shape"""
    x = pat.Wildcard()
    return op.Transpose(x, shape=x.shape), x


@wrong("cast-cast", condition="inner.dtype == ")
def _() -> Sides:
    """any dtype in between"""
    x = pat.Wildcard()
    inner = op.Cast(x)
    outer = op.Cast(inner)
    return outer, outer.like(x)


@wrong("cast-identity")
def _() -> Sides:
    """a narrower dtype and back"""
    x = pat.Wildcard()
    narrow = op.Cast(x, dtype="float16")
    return op.Cast(narrow, dtype=x.dtype), x, attr.In(x.dtype, ("float32", "float64"))


@wrong("dropout-identity")
def _() -> Sides:
    """scaled by what is kept"""
    x = pat.Wildcard()
    dropout = op.Dropout(x)
    return dropout, x * (1 - dropout.rate), precise(x)


@wrong("copy-identity")
def _() -> Sides:
    """a rounding taken for a copy"""
    x = pat.Wildcard()
    return op.Round(x), x


@wrong("dispatch-tuple", condition="whole.length == 1")
def _() -> Sides:
    """always the first field"""
    x = pat.Wildcard()
    whole = pat.Variadic(x, templates=[x])
    return pat.GetItem(whole), whole(x, 0)


@wrong("dispatch-tuple", condition="whole.length == 1")
def _() -> Sides:
    """counted from the end"""
    x = pat.Wildcard()
    whole = pat.Variadic(x, templates=[x])
    field = pat.GetItem(whole)
    return field, whole(x, whole.length - 1 - field.index)


@wrong("split-concat")
def _() -> Sides:
    """the fields in reverse order"""
    x = pat.Wildcard()
    split = op.Split(x)
    joined = op.Concatenate([split[1], split[0]], axis=split.axis)
    return joined, x, (split.indices_or_sections == 2) | (attr.Len(split.indices_or_sections) == 1)


@wrong("split-concat-variadic", condition="")
def _() -> Sides:
    """the fields in any order"""
    x = pat.Wildcard()
    split = op.Split(x)
    field = pat.GetItem(split)
    whole = pat.Variadic(field, templates=[field], min_len=1)
    sections = split.indices_or_sections
    complete = (sections == whole.length) | (attr.Len(sections) + 1 == whole.length)
    return op.Concatenate(whole, axis=split.axis), x, complete


# Element-wise functions


def merged(*where: Callable[[pat.Pattern, pat.Pattern, pat.Pattern, pat.Pattern], object]) -> Sides:
    x, y = pat.Wildcard(), pat.Wildcard()
    f = pat.OpWithTrait(op.Trait.ELEMENT_WISE)
    a, b = pat.Call(f, x), pat.Call(f, y)
    joined = op.Concatenate([a, b])
    return joined, a.like(joined.like([x, y])), *(condition(x, y, a, b) for condition in where)


@wrong("merge-element-wise", condition="")
def _() -> Sides:
    """unequal attributes"""
    return merged(lambda x, y, a, b: same_dtype(x, y))


@wrong("merge-element-wise", condition="x.dtype == y.dtype")
def _() -> Sides:
    """unequal dtypes, promoted before the function"""
    return merged(lambda x, y, a, b: pat.attr_eq(a, b))


@wrong("merge-element-wise")
def _() -> Sides:
    """the operands exchanged"""
    x, y = pat.Wildcard(), pat.Wildcard()
    f = pat.OpWithTrait(op.Trait.ELEMENT_WISE)
    a, b = pat.Call(f, x), pat.Call(f, y)
    joined = op.Concatenate([a, b])
    return joined, a.like(joined.like([y, x])), same_dtype(x, y), pat.attr_eq(a, b)


@wrong("merge-element-wise")
def _() -> Sides:
    """two functions taken for one"""
    x, y = pat.Wildcard(), pat.Wildcard()
    a, b = pat.Call(pat.OneOf("sigmoid", "tanh"), x), pat.Call(pat.OneOf("sigmoid", "tanh"), y)
    joined = op.Concatenate([a, b])
    return joined, a.like(joined.like([x, y])), same_dtype(x, y)


def merged_variadic(field: Callable[[pat.Variadic, attr.Expr], attr.Expr]) -> Sides:
    x, i, j = pat.Wildcard(), attr.Symbol(), attr.Symbol()
    call = op.LeakyReLU(x)
    calls = pat.Variadic(call, templates=[call, x], min_len=2)
    joined = op.Concatenate(calls)
    operands = pat.Variadic(calls(x, field(calls, i)), index=i, length=calls.length)
    dtypes = attr.Variadic(calls(x, j).dtype == calls(x, 0).dtype, calls.length, index=j)
    return joined, calls(call, 0).like(joined.like(operands)), attr.all(dtypes)


@wrong("merge-element-wise-variadic", condition=".alpha == ")
def _() -> Sides:
    """the attributes of the first"""
    return merged_variadic(lambda calls, i: i)


@wrong("merge-element-wise-variadic")
def _() -> Sides:
    """the operands in reverse order"""
    return merged_variadic(lambda calls, i: calls.length - 1 - i)


# Sums


def biased_sum(*, axis: bool = True, shape: bool = True, bias: Callable[[pat.Pattern, pat.Pattern], object]) -> Sides:
    x, y, b, c = pat.Wildcard(), pat.Wildcard(), pat.Wildcard(), pat.Wildcard()
    first = op.BiasAdd(x, b)
    second = op.BiasAdd(y, c, axis=first.axis) if axis else op.BiasAdd(y, c)
    alike = x.shape == y.shape if shape else attr.Const(True)
    return first + second, first.like(x + y, bias(b, c)), alike & same_dtype(x, y, b, c)


@wrong("bias-add-add", condition="first.axis == second.axis")
def _() -> Sides:
    """biases of different axes"""
    return biased_sum(axis=False, bias=lambda b, c: b + c)


@wrong("bias-add-add", condition="x.ndim == x2.ndim")
def _() -> Sides:
    """operands of different ranks"""
    return biased_sum(shape=False, bias=lambda b, c: b + c)


@wrong("bias-add-add")
def _() -> Sides:
    """the second bias dropped"""
    return biased_sum(bias=lambda b, c: b)


def diamond(without: str, kernel: Callable[[pat.Pattern, pat.Pattern], object]) -> Sides:
    x, v, w, f = pat.Wildcard(), pat.Wildcard(), pat.Wildcard(), convolution()
    first = pat.Call(f, x, v)
    second = pat.Call(f, x, w, **pat.same_attr(first, [name for name in ATTRS if name != without]))
    return first + second, first.like(x, kernel(v, w)), (v.shape == w.shape) & same_dtype(v, w, first)


@wrong("diamond-conv-add", condition="first.dilation == second.dilation")
def _() -> Sides:
    """dilations not compared"""
    return diamond("dilation", lambda v, w: v + w)


@wrong("diamond-conv-add", condition="first.padding == second.padding")
def _() -> Sides:
    """paddings not compared"""
    return diamond("padding", lambda v, w: v + w)


@wrong("diamond-conv-add")
def _() -> Sides:
    """kernels subtracted"""
    return diamond("", lambda v, w: v - w)


def of_two(*attrs: str, groups: object = 1, reverse: bool = False) -> Sides:
    x, y, v, w, f = pat.Wildcard(), pat.Wildcard(distinct=True), pat.Param(), pat.Param(), convolution()
    first = pat.Call(f, x, v) if groups is None else pat.Call(f, x, v, groups=groups)
    second = pat.Call(f, y, w, **pat.same_attr(first, [*attrs, "kernel_size", "channels"]))
    data, kernels = op.Concatenate([x, y], axis=1), op.Concatenate([w, v] if reverse else [v, w], axis=1)
    equal = (x.shape[0] == y.shape[0]) & (x.shape[2:] == y.shape[2:])
    return first + second, first.like(data, kernels), channels_first(first) & equal & same_dtype(x, y, v, w)


@wrong("two-conv-add", condition="groups == 1")
def _() -> Sides:
    """several groups"""
    return of_two(*ATTRS, groups=None)


@wrong("two-conv-add")
def _() -> Sides:
    """the kernels exchanged"""
    return of_two(*ATTRS, reverse=True)


@wrong("two-conv-add", condition="first.padding == second.padding")
def _() -> Sides:
    """paddings not compared"""
    return of_two(*(name for name in ATTRS if name != "padding"))


def shortcut(*, diagonal: bool, centred: bool) -> Sides:
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


@wrong("conv-shortcut-add", condition="conv.padding")
def _() -> Sides:
    """padding on one side only"""
    return shortcut(diagonal=True, centred=False)


@wrong("conv-shortcut-add", condition="conv.channels == 1")
def _() -> Sides:
    """a kernel of ones instead of the identity"""
    return shortcut(diagonal=False, centred=True)


# What is folded into weights


def scaled_conv(guard: Callable[[pat.Pattern, pat.Pattern, pat.Pattern], object], *, inputs: bool = False) -> Sides:
    x, w, c = pat.Wildcard(), pat.Param(), weight()
    conv = pat.Call(convolution(), x, w)
    column = op.Reshape(c, newshape=attr.Tuple(1, -1) + ones(w.shape[2:]))
    factor = pat.Cond(c.ndim == 0, c, column) if inputs else of_kernel(c, w)
    return conv * c, conv.like(x, w * factor), guard(c, w, conv)


@wrong("conv-multiply", condition="c.ndim == 0")
def _() -> Sides:
    """a factor of the last axis taken for one of the channels"""
    return scaled_conv(
        lambda c, w, conv: channels_first(conv)
        & same_dtype(w, c, conv)
        & ((c.ndim == 0) | (c.shape == attr.Tuple(w.shape[0])))
    )


@wrong("conv-multiply", condition="")
def _() -> Sides:
    """a factor of the input channels"""
    return scaled_conv(per_channel, inputs=True)


@wrong("conv-multiply", condition="data_layout == 'NCHW'")
def _() -> Sides:
    """channels on any axis"""
    x, w, c = pat.Wildcard(), pat.Param(), pat.Param()
    conv = op.Conv2D(x, w, kernel_layout="OIHW", out_layout="")
    return conv * c, conv.like(x, w * along(c, w.shape[1:])), c.shape == attr.Tuple(1, w.shape[0], 1, 1)


@wrong("conv-bias-multiply")
def _() -> Sides:
    """the bias not multiplied"""
    x, w, b, c = pat.Wildcard(), pat.Param(), pat.Param(), weight()
    conv = pat.Call(convolution(), x, w)
    biased = op.BiasAdd(conv, b, axis=1)
    return biased * c, biased.like(conv.like(x, w * of_kernel(c, w)), b), per_channel(c, w, conv) & same_dtype(w, b)


def folded_norm(
    product: pat.Call,
    x: pat.Pattern,
    w: pat.Pattern,
    scaled: Callable[[pat.Pattern], pat.Pattern],
    *,
    epsilon: bool = True,
    own_bias: bool = True,
    mean_first: bool = True,
    given: object = 1,
    axis: object = 1,
) -> Sides:
    """``rules.fold.batch_norm``, with its mistakes."""
    b, gamma, beta, mean, var = (weight() for _ in range(5))
    data = op.BiasAdd(product, b, axis=axis) | product
    axes = {} if given is None else {"axis": given}
    bn = op.BatchNorm(data, gamma, beta, mean, var, **axes)
    root = op.Rsqrt(var + bn.epsilon) if epsilon else op.Rsqrt(var)
    factor = pat.Cond(bn.scale, gamma * root, root)

    def offset(bias: pat.Pattern | None) -> pat.Pattern:
        if not mean_first:
            return pat.Cond(bn.center, beta - mean, -mean) if bias is None else offset(None) + bias * factor
        shift = (-mean if bias is None else bias - mean) * factor
        return pat.Cond(bn.center, beta + shift, shift)

    bias = pat.Match(data, [offset(b if own_bias else None), offset(None)])
    folded = op.BiasAdd(product.like(x, scaled(factor)), bias, axis=axis)
    return bn, folded, same_dtype(w, product, data, gamma, beta, mean, var) & precise(w)


def folded_conv(**mistakes: bool) -> Sides:
    x, w = pat.Wildcard(), pat.Param()
    conv = pat.Call(convolution(), x, w)
    return *folded_norm(conv, x, w, lambda s: w * along(s, w.shape[1:]), **mistakes), channels_first(conv)


@wrong("conv-batch-norm")
def _() -> Sides:
    """no epsilon"""
    return folded_conv(epsilon=False)


@wrong("conv-batch-norm")
def _() -> Sides:
    """the bias of the convolution dropped"""
    return folded_conv(own_bias=False)


@wrong("conv-batch-norm")
def _() -> Sides:
    """the mean not scaled"""
    return folded_conv(mean_first=False)


def folded_transpose(scaled: Callable[[pat.Pattern, pat.Pattern, pat.Pattern], pat.Pattern]) -> Sides:
    x, w = pat.Wildcard(), pat.Param()
    transposed = pat.OneOf("nn.conv1d_transpose", "nn.conv2d_transpose", "nn.conv3d_transpose")
    conv = pat.Call(transposed, x, w)
    norm = folded_norm(conv, x, w, lambda s: scaled(s, w, conv))
    return *norm, channels_first(conv, ("IOW", "IOHW", "IODHW"))


@wrong("conv-transpose-batch-norm", condition="w.shape[1] == 1")
def _() -> Sides:
    """the axis of the input channels scaled"""
    return folded_transpose(lambda s, w, conv: w * along(s, w.shape[1:]))


@wrong("conv-transpose-batch-norm", condition="groups == 1")
def _() -> Sides:
    """the channels dealt out among the groups"""

    def scaled(s: pat.Pattern, w: pat.Pattern, conv: pat.Pattern) -> pat.Pattern:
        by_group = op.Reshape(w, newshape=attr.Tuple(conv.groups, -1) + w.shape[1:])
        dealt = op.Transpose(op.Reshape(s, newshape=attr.Tuple(-1, conv.groups)), axes=(1, 0))
        factor = op.Reshape(dealt, newshape=attr.Tuple(conv.groups, 1, -1) + ones(w.shape[2:]))
        return op.Reshape(by_group * factor, newshape=w.shape)

    return folded_transpose(scaled)


@wrong("dense-batch-norm", condition=".axis == ")
def _() -> Sides:
    """any axis taken for the features"""
    x, w = pat.Wildcard(), pat.Param()
    dense = op.Dense(x, w)
    return folded_norm(dense, x, w, lambda s: w * along(s, w.shape[1:]), given=None, axis=dense.ndim - 1)


# Products side by side


def two_conv(
    *attrs: str, groups: object = 1, swap: bool = False, weights: Callable[[pat.Param, pat.Param], list[pat.Param]]
) -> Sides:
    x, v, w, f = pat.Wildcard(), pat.Param(), pat.Param(), convolution()
    a = pat.Call(f, x, v) if groups is None else pat.Call(f, x, v, groups=groups)
    b = pat.Call(f, x, w, **pat.same_attr(a, [*attrs, "kernel_size"]))
    kernels = op.Concatenate(weights(v, w), axis=0)
    both = op.Split(a.like(x, kernels), indices_or_sections=attr.Tuple(v.shape[0]), axis=1)
    return [a, b], [both[int(swap)], both[int(not swap)]], channels_first(a) & same_dtype(v, w)


@wrong("parallel-two-conv", condition="groups == 1")
def _() -> Sides:
    """several groups"""
    return two_conv(*ATTRS, groups=None, weights=lambda v, w: [v, w])


@wrong("parallel-two-conv", condition="a.padding == b.padding")
def _() -> Sides:
    """paddings not compared"""
    return two_conv(*(name for name in ATTRS if name != "padding"), weights=lambda v, w: [v, w])


@wrong("parallel-two-conv")
def _() -> Sides:
    """the results exchanged"""
    return two_conv(*ATTRS, swap=True, weights=lambda v, w: [v, w])


@wrong("parallel-two-conv")
def _() -> Sides:
    """the first kernel twice"""
    return two_conv(*ATTRS, weights=lambda v, w: [v, v])


def reversed_fields(whole: pat.Variadic, template: pat.Pattern) -> pat.Variadic:
    i = attr.Symbol()
    return pat.Variadic(whole(template, whole.length - 1 - i), index=i, length=whole.length)


def copies(whole: pat.Variadic, template: pat.Pattern) -> pat.Variadic:
    """The first instance of a template as often as there are instances."""
    i = attr.Symbol()
    return pat.Variadic(whole(template, i * 0), index=i, length=whole.length)


Fields = Callable[[pat.Variadic, pat.Pattern], pat.Variadic]


def convs_side_by_side(*attrs: str, grouped: bool = False, kernels: Fields = fields) -> Sides:
    x, w0, f, i = pat.Wildcard(), pat.Param(), convolution(), attr.Symbol()
    first = pat.Call(f, x, w0) if grouped else pat.Call(f, x, w0, groups=1)
    w = pat.Param(dtype=w0.dtype)
    conv = pat.Call(f, x, w, **pat.same_attr(first, [*attrs, "kernel_size"]))
    convs = pat.Variadic(conv, templates=[conv, w], first=[first, w0], min_len=2)
    parts = split(first.like(x, op.Concatenate(kernels(convs, w), axis=0)), 1, convs, w)
    return convs, pat.Variadic(parts[i], index=i), channels_first(first)


@wrong("parallel-conv-variadic", condition=".strides == ")
def _() -> Sides:
    """strides not compared"""
    return convs_side_by_side(*(name for name in ATTRS if name != "strides"))


@wrong("parallel-conv-variadic")
def _() -> Sides:
    """the kernels in reverse order"""
    return convs_side_by_side(*ATTRS, kernels=reversed_fields)


@wrong("parallel-group-conv-variadic", condition="groups == 1")
def _() -> Sides:
    """the kernels joined as for one group"""
    return convs_side_by_side(*ATTRS, grouped=True)


def biased_convs(*attrs: str, biases: Fields = fields) -> Sides:
    x, w0, b0, f, i = pat.Wildcard(), pat.Param(), pat.Param(), convolution(), attr.Symbol()
    first = pat.Call(f, x, w0, groups=1)
    first_sum = op.BiasAdd(first, b0, axis=1)
    w, b = pat.Param(dtype=w0.dtype), pat.Param(dtype=b0.dtype)
    conv = pat.Call(f, x, w, **pat.same_attr(first, [*attrs, "kernel_size"]))
    biased = op.BiasAdd(conv, b, axis=1)
    convs = pat.Variadic(biased, templates=[biased, conv, w, b], first=[first_sum, first, w0, b0], min_len=2)
    bias = op.Concatenate(biases(convs, b), axis=0)
    parts = split(first_sum.like(first.like(x, join(convs, w)), bias), 1, convs, w)
    return convs, pat.Variadic(parts[i], index=i), channels_first(first)


@wrong("parallel-conv-bias-variadic", condition=".dilation == ")
def _() -> Sides:
    """dilations not compared"""
    return biased_convs(*(name for name in ATTRS if name != "dilation"))


@wrong("parallel-conv-bias-variadic")
def _() -> Sides:
    """the bias of the first for all"""
    return biased_convs(*ATTRS, biases=copies)


def expanded(*, fits: bool, dilated: bool) -> Sides:
    """``parallel-conv-expand-kernels`` without the condition on the padding, or that on the dilation."""
    x, v, w = pat.Wildcard(), pat.Param(), pat.Param()
    a = op.Conv2D(x, v, groups=1)
    b = op.Conv2D(x, w, **pat.same_attr(a, [name for name in ATTRS if name != "padding"]))
    growth = attr.Map(attr.Zip(b.kernel_size, a.kernel_size), lambda k: k[0] - k[1])
    missing = attr.Map(attr.Zip(b.padding, a.padding), lambda p: p[0] - p[1])
    sides = attr.Zip(missing[:2], missing[2:])
    centre = attr.Map(growth, lambda k: attr.Tuple(k // 2, k - k // 2))
    guard = attr.Map(sides, lambda side: side[0] + side[1]) == growth
    guard = guard & (attr.min(missing) >= 0) if fits else guard & (attr.min(growth) >= 0)
    guard = guard if dilated else guard & (attr.max(a.dilation) == 1)
    kernel = op.Pad(v, pad_width=((0, 0), (0, 0)) + (sides if fits else centre))
    both = op.Split(b.like(x, op.Concatenate([kernel, w], axis=0)), indices_or_sections=attr.Tuple(v.shape[0]), axis=1)
    return [a, b], [both[0], both[1]], channels_first(a) & guard & (attr.max(growth) > 0) & same_dtype(v, w)


@wrong("parallel-conv-expand-kernels", condition="padding")
def _() -> Sides:
    """zeros on both sides, whatever the paddings"""
    return expanded(fits=False, dilated=False)


@wrong("parallel-conv-expand-kernels", condition="dilation) == 1")
def _() -> Sides:
    """dilated kernels"""
    return expanded(fits=True, dilated=True)


@wrong("parallel-group-conv-variadic")
def _() -> Sides:
    """the result not taken apart by group"""
    x, w0, i, j = pat.Wildcard(), pat.Param(), attr.Symbol(), attr.Symbol()
    first = op.Conv1D(x, w0)
    w = pat.Param(dtype=w0.dtype)
    conv = op.Conv1D(x, w, **pat.same_attr(first, [*ATTRS, "kernel_size"]))
    convs = pat.Variadic(conv, templates=[conv, w], first=[first, w0], min_len=2)
    by_group = op.Reshape(convs(w, j), newshape=attr.Tuple(first.groups, -1) + w0.shape[1:])
    joined = op.Concatenate(pat.Variadic(by_group, index=j, length=convs.length), axis=1)
    result = first.like(x, op.Reshape(joined, newshape=attr.Tuple(-1) + w0.shape[1:]))
    parts = split(result, 1, convs, w)
    return convs, pat.Variadic(parts[i], index=i), channels_first(first) & (first.groups > 1)


def two_dense(*, inputs: int = 1, swap: bool = False, weights: str = "vw", out_dtype: bool = True) -> Sides:
    x, v, w = pat.Wildcard(), pat.Param(), pat.Param()
    a = op.Dense(x, v)
    b = op.Dense(x if inputs == 1 else pat.Wildcard(shape=x.shape), w, out_dtype=a.out_dtype)
    kernels = op.Concatenate([{"v": v, "w": w}[name] for name in weights], axis=0)
    both = op.Split(a.like(x, kernels), indices_or_sections=attr.Tuple(v.shape[0]), axis=-1)
    return [a, b], [both[int(swap)], both[int(not swap)]], same_dtype(v, w)


@wrong("parallel-two-dense")
def _() -> Sides:
    """the weights exchanged"""
    return two_dense(weights="wv")


@wrong("parallel-two-dense")
def _() -> Sides:
    """the results exchanged"""
    return two_dense(swap=True)


def two_biased(*, biases: str) -> Sides:
    x, v, w, b, c = pat.Wildcard(), pat.Param(), pat.Param(), pat.Param(), pat.Param()
    first, second = op.Dense(x, v), op.Dense(x, w)
    y = op.BiasAdd(first, b, axis=first.ndim - 1)
    z = op.BiasAdd(second, c, axis=y.axis)
    product = first.like(x, op.Concatenate([v, w], axis=0))
    joined = y.like(product, op.Concatenate([{"b": b, "c": c}[name] for name in biases], axis=0)) if biases else product
    both = op.Split(joined, indices_or_sections=attr.Tuple(v.shape[0]), axis=-1)
    return [y, z], [both[0], both[1]], (first.out_dtype == second.out_dtype) & same_dtype(v, w, b, c)


@wrong("parallel-two-dense-bias")
def _() -> Sides:
    """the biases exchanged"""
    return two_biased(biases="cb")


@wrong("parallel-two-dense-bias")
def _() -> Sides:
    """the biases dropped"""
    return two_biased(biases="")


@wrong("parallel-dense-variadic")
def _() -> Sides:
    """the weights in reverse order"""
    x, w0, i = pat.Wildcard(), pat.Param(), attr.Symbol()
    first = op.Dense(x, w0)
    w = pat.Param(dtype=w0.dtype)
    dense = op.Dense(x, w, out_dtype=first.out_dtype)
    layers = pat.Variadic(dense, templates=[dense, w], first=[first, w0], min_len=2)
    parts = split(first.like(x, op.Concatenate(reversed_fields(layers, w), axis=0)), -1, layers, w)
    return layers, pat.Variadic(parts[i], index=i)


@wrong("parallel-dense-bias-variadic")
def _() -> Sides:
    """the biases in reverse order"""
    x, w0, b0, i = pat.Wildcard(), pat.Param(), pat.Param(), attr.Symbol()
    first = op.Dense(x, w0)
    first_sum = op.BiasAdd(first, b0, axis=first.ndim - 1)
    w, b = pat.Param(dtype=w0.dtype), pat.Param(dtype=b0.dtype)
    dense = op.Dense(x, w, out_dtype=first.out_dtype)
    biased = op.BiasAdd(dense, b, axis=first_sum.axis)
    layers = pat.Variadic(biased, templates=[biased, dense, w, b], first=[first_sum, first, w0, b0], min_len=2)
    bias = op.Concatenate(reversed_fields(layers, b), axis=0)
    parts = split(first_sum.like(first.like(x, join(layers, w)), bias), -1, layers, w)
    return layers, pat.Variadic(parts[i], index=i)


def query_key_value(*, order: str = "q0v", ends: str = "qk", key_bias: Callable[..., pat.Call] = op.Zeros) -> Sides:
    x, wq, wk, wv, bq, bv = pat.Wildcard(), *(pat.Param() for _ in range(5))
    query, key, value = op.Dense(x, wq), op.Dense(x, wk), op.Dense(x, wv)
    q = op.BiasAdd(query, bq, axis=query.ndim - 1)
    v = op.BiasAdd(value, bv, axis=q.axis)
    biases = {"q": bq, "0": key_bias(shape=attr.Tuple(wk.shape[0]), dtype=bq.dtype), "v": bv}
    bias = op.Concatenate([biases[name] for name in order], axis=0)
    joined = q.like(query.like(x, op.Concatenate([wq, wk, wv], axis=0)), bias)
    cuts = attr.Tuple(wq.shape[0], wq.shape[0] + {"k": wk, "q": wq}[ends[1]].shape[0])
    parts = op.Split(joined, indices_or_sections=cuts, axis=-1)
    alike = (query.out_dtype == key.out_dtype) & (query.out_dtype == value.out_dtype) & same_dtype(q, key)
    return [q, key, v], [parts[0], parts[1], parts[2]], alike & same_dtype(wq, wk, wv) & same_dtype(bq, bv)


@wrong("qkv-without-key-bias")
def _() -> Sides:
    """ones where the keys have no bias"""
    return query_key_value(key_bias=op.Ones)


@wrong("qkv-without-key-bias")
def _() -> Sides:
    """the bias of the values given to the keys"""
    return query_key_value(order="qv0")


# Normalisations


@wrong("lower-batch-norm", condition=".axis == ")
def _() -> Sides:
    """the channels always on axis 1"""
    x, gamma, beta, mean, var = pat.Wildcard(), weight(), weight(), weight(), weight()
    bn = op.BatchNorm(x, gamma, beta, mean, var)
    factor, offset = affine(bn, gamma, beta, mean, var)
    behind = attr.Range(2, x.ndim)
    lowered = x * along(factor, behind) + along(offset(None), behind)
    return bn, lowered, same_dtype(x, gamma, beta, mean, var) & precise(x)


@wrong("lower-batch-norm", condition="bn.center == ")
def _() -> Sides:
    """the offset always added"""
    x, gamma, beta, mean, var = pat.Wildcard(), weight(), weight(), weight(), weight()
    bn = op.BatchNorm(x, gamma, beta, mean, var)
    factor, _ = affine(bn, gamma, beta, mean, var)
    behind = attr.Range(bn.axis + 1, x.ndim)
    lowered = x * along(factor, behind) + along(beta - mean * factor, behind)
    return bn, lowered, same_dtype(x, gamma, beta, mean, var) & precise(x)


def layer_norm(*, mean: Callable[..., pat.Call] = op.Mean, inside: bool = True, axis: object = None) -> Sides:
    x = pat.Wildcard()
    norm = op.LayerNorm(x)
    axes = norm.axis if axis is None else axis
    centred = x - mean(x, axis=axes, keepdims=True)
    variance = op.Mean(op.Square(centred), axis=axes, keepdims=True)
    root = op.Rsqrt(variance + norm.epsilon) if inside else op.Rsqrt(variance) + norm.epsilon
    return norm, centred * root, precise(x)


@wrong("lower-layer-norm", condition="")
def _() -> Sides:
    """the sum taken for the mean"""
    return layer_norm(mean=op.Sum)


@wrong("lower-layer-norm")
def _() -> Sides:
    """epsilon outside the root"""
    return layer_norm(inside=False)


@wrong("lower-layer-norm", condition="")
def _() -> Sides:
    """the last axis only"""
    return layer_norm(axis=(-1,))

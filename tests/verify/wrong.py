"""Rules that are wrong, each with the kind of its counterexample and the side condition that it lacks."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from gsl import attr, op, pat
from gsl.rewrite import Subst
from gsl.rules.common import ATTRS, channels_first, convolution, precise, same_dtype


class Wrong(NamedTuple):
    make: Callable[[], Subst]
    kind: str
    condition: str | None = None
    """A part of the text of the suggested condition; ``None`` where none is to be found."""


def composed_in_the_wrong_order() -> Subst:
    x = pat.Wildcard()
    inner = op.Transpose(x)
    outer = op.Transpose(inner)
    return Subst(outer, op.Transpose(x, axes=attr.Map(inner.axes, lambda i: outer.axes[i])))


def without_equal_strides() -> Subst:
    x, v, w = pat.Wildcard(), pat.Param(), pat.Param()
    a = op.Conv2D(x, v, groups=1)
    b = op.Conv2D(x, w, **pat.same_attr(a, [*(name for name in ATTRS if name != "strides"), "kernel_size"]))
    both = op.Split(a.like(x, op.Concatenate([v, w], axis=0)), indices_or_sections=attr.Tuple(v.shape[0]), axis=1)
    return Subst([a, b], [both[0], both[1]], where=channels_first(a) & same_dtype(v, w))


def weights_of_other_kernels() -> Subst:
    x, v, w, f = pat.Wildcard(), pat.Wildcard(), pat.Wildcard(), convolution()
    first = pat.Call(f, x, v)
    second = pat.Call(f, x, w, **pat.same_attr(first, ATTRS))
    return Subst(first + second, first.like(x, v + w), where=same_dtype(v, w, first))


def grouped_convolutions_side_by_side() -> Subst:
    x, v, w = pat.Wildcard(), pat.Param(), pat.Param()
    a = op.Conv1D(x, v)
    b = op.Conv1D(x, w, **pat.same_attr(a, [*ATTRS, "kernel_size"]))
    both = op.Split(a.like(x, op.Concatenate([v, w], axis=0)), indices_or_sections=attr.Tuple(v.shape[0]), axis=1)
    return Subst([a, b], [both[0], both[1]], where=channels_first(a) & same_dtype(v, w))


def fields_in_reverse_order() -> Subst:
    x = pat.Wildcard()
    split = op.Split(x)
    joined = op.Concatenate([split[1], split[0]], axis=split.axis)
    return Subst(joined, x, where=attr.Len(split.indices_or_sections) == 1)


def exchanged_operands() -> Subst:
    x, y = pat.Wildcard(), pat.Wildcard()
    return Subst(x - y, y - x)


def dropped_bias() -> Subst:
    x, w, b = pat.Wildcard(), pat.Param(), pat.Param()
    dense = op.Dense(x, w)
    return Subst(op.BiasAdd(dense, b, axis=dense.ndim - 1), dense)


def other_epsilon() -> Subst:
    x, gamma, beta, mean, var = (pat.Wildcard() for _ in range(5))
    norm = op.BatchNorm(x, gamma, beta, mean, var)
    return Subst(norm, norm.like(x, gamma, beta, mean, var, epsilon=norm.epsilon * 2))


def reshape_that_ignores_order() -> Subst:
    x = pat.Wildcard()
    turned = op.Transpose(x)
    return Subst(turned, lambda match: op.Reshape(x, newshape=match.outputs[0].shape))


def scale_through_relu() -> Subst:
    x, c = pat.Wildcard(), pat.Const()
    return Subst(op.ReLU(x * c), op.ReLU(x) * c)


def softmax_of_relu() -> Subst:
    x = pat.Wildcard()
    softmax = op.Softmax(x)
    return Subst(op.ReLU(softmax), softmax.like(op.ReLU(x)))


def other_activation() -> Subst:
    x = pat.Wildcard()
    return Subst(op.Sigmoid(x), op.Tanh(x))


def swapped_outputs() -> Subst:
    x = pat.Wildcard()
    a, b = op.Exp(x), op.Tanh(x)
    return Subst([a, b], [op.Tanh(x), op.Exp(x)])


def average_without_padding() -> Subst:
    x = pat.Wildcard()
    pool = op.AvgPool1D(x)
    return Subst(pool, pool.like(x, count_include_pad=True))


def logarithm_of_a_product() -> Subst:
    x, y = pat.Wildcard(), pat.Wildcard()
    return Subst(op.Log(x * y), op.Log(x) + op.Log(y))


def wrong_alternative() -> Subst:
    x = pat.Wildcard()
    either = op.ReLU(x) | op.ReLU6(x)
    return Subst(op.ReLU(either), op.ReLU(x))


def sums_beside_each_other() -> Subst:
    x, y, f = pat.Wildcard(), pat.Wildcard(), pat.OneOf("sum", "mean")
    a, b = pat.Call(f, x), pat.Call(f, y)
    return Subst(a + b, a.like(x + y), where=[x.shape == y.shape, same_dtype(x, y), precise(x)])


def relu_through_a_pooling() -> Subst:
    x = pat.Wildcard()
    pool = op.MaxPool2D(x)
    return Subst(op.ReLU(pool), pool.like(op.ReLU(x)))


def batches_of_the_second_factor() -> Subst:
    a, b = pat.Wildcard(dtype="float32"), pat.Wildcard(dtype="float32")
    product = op.Matmul(a, b, out_dtype="")
    flat = op.Matmul(op.Reshape(a, newshape=(-1, a.shape[-1])), op.Reshape(b, newshape=(b.shape[-2], -1)))
    return Subst(product, op.Reshape(flat, newshape=product.shape), where=(a.ndim >= 2) & (b.ndim > 2))


def of_neither_shape() -> Subst:
    x, y = pat.Wildcard(dtype="float32"), pat.Wildcard(dtype="float32")
    differ = x - y
    return Subst(op.Tanh(differ), op.Tanh(y - x), where=~(x.shape == differ.shape) & ~(y.shape == differ.shape))


def integers_compared_as_floats() -> Subst:
    n, m = pat.Wildcard(dtype="int64", ndim=2), pat.Wildcard(dtype="int64", ndim=2)
    return Subst(op.Equal(*(op.Cast(each, dtype="float32") for each in (n, m))), op.Equal(n, m))


WRONG: dict[str, Wrong] = {
    "composed in the wrong order": Wrong(composed_in_the_wrong_order, "value", "axes"),
    "without equal strides": Wrong(without_equal_strides, "value", ".strides == "),
    "weights of other kernels": Wrong(weights_of_other_kernels, "value", "kernel_size == "),
    "grouped convolutions side by side": Wrong(grouped_convolutions_side_by_side, "value", "groups == 1"),
    "fields in reverse order": Wrong(fields_in_reverse_order, "value"),
    "exchanged operands": Wrong(exchanged_operands, "value"),
    "dropped bias": Wrong(dropped_bias, "value"),
    "other epsilon": Wrong(other_epsilon, "value"),
    "reshape that ignores order": Wrong(reshape_that_ignores_order, "value", "turned.axes == attr.Range("),
    "scale through relu": Wrong(scale_through_relu, "value", "value > 0"),
    "softmax of relu": Wrong(softmax_of_relu, "value", "x.shape[-1] == 1"),
    "other activation": Wrong(other_activation, "value"),
    "swapped outputs": Wrong(swapped_outputs, "value"),
    "average without padding": Wrong(average_without_padding, "value", "padding"),
    "logarithm of a product": Wrong(logarithm_of_a_product, "undefined"),
    "wrong alternative": Wrong(wrong_alternative, "value"),
    "relu through a pooling": Wrong(relu_through_a_pooling, "not finite", "padding"),
    "sums of unequal reductions": Wrong(sums_beside_each_other, "value", ".axis"),
    "batches of the second factor": Wrong(batches_of_the_second_factor, "value", ".shape"),
    "of neither shape": Wrong(of_neither_shape, "value"),
    "integers compared as floats": Wrong(integers_compared_as_floats, "value"),
}


def padded_twice() -> Subst:
    """Wrong where the first padding has a negative width, which leaves out elements."""
    x = pat.Wildcard(ndim=1, dtype="float32")
    once = op.Pad(x, pad_mode="constant", pad_value=0.0)
    before, after = once.pad_width[0][0], once.pad_width[0][1]
    twice = op.Pad(once, pad_width=((1, 1),), pad_mode="constant", pad_value=0.0)
    return Subst(twice, op.Pad(x, pad_width=((before + 1, after + 1),), pad_value=0.0))

"""Wrong variants of the rules that merge products of one operand."""

from __future__ import annotations

from collections.abc import Callable

from gsl import attr, op, pat
from gsl.rules.common import ATTRS, RuleSides, channels_first, convolution, fields, same_dtype
from gsl.rules.parallel import join, split
from tests.verify.wrong_rules.table import wrong


def two_conv(
    *attrs: str, groups: object = 1, swap: bool = False, weights: Callable[[pat.Param, pat.Param], list[pat.Param]]
) -> RuleSides:
    x, v, w, f = pat.Wildcard(), pat.Param(), pat.Param(), convolution()
    a = pat.Call(f, x, v) if groups is None else pat.Call(f, x, v, groups=groups)
    b = pat.Call(f, x, w, **pat.same_attr(a, [*attrs, "kernel_size"]))
    kernels = op.Concatenate(weights(v, w), axis=0)
    both = op.Split(a.like(x, kernels), indices_or_sections=attr.Tuple(v.shape[0]), axis=1)
    return [a, b], [both[int(swap)], both[int(not swap)]], channels_first(a) & same_dtype(v, w)


@wrong("parallel-two-conv", condition="groups == 1")
def _() -> RuleSides:
    """several groups"""
    return two_conv(*ATTRS, groups=None, weights=lambda v, w: [v, w])


@wrong("parallel-two-conv", condition="a.padding == b.padding")
def _() -> RuleSides:
    """paddings not compared"""
    return two_conv(*(name for name in ATTRS if name != "padding"), weights=lambda v, w: [v, w])


@wrong("parallel-two-conv")
def _() -> RuleSides:
    """the results exchanged"""
    return two_conv(*ATTRS, swap=True, weights=lambda v, w: [v, w])


@wrong("parallel-two-conv")
def _() -> RuleSides:
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


def convs_side_by_side(*attrs: str, grouped: bool = False, kernels: Fields = fields) -> RuleSides:
    x, w0, f, i = pat.Wildcard(), pat.Param(), convolution(), attr.Symbol()
    first = pat.Call(f, x, w0) if grouped else pat.Call(f, x, w0, groups=1)
    w = pat.Param(dtype=w0.dtype)
    conv = pat.Call(f, x, w, **pat.same_attr(first, [*attrs, "kernel_size"]))
    convs = pat.Variadic(conv, templates=[conv, w], first=[first, w0], min_len=2)
    parts = split(first.like(x, op.Concatenate(kernels(convs, w), axis=0)), 1, convs, w)
    return convs, pat.Variadic(parts[i], index=i), channels_first(first)


@wrong("parallel-conv-variadic", condition=".strides == ", examples=120)
def _() -> RuleSides:
    """strides not compared"""
    return convs_side_by_side(*(name for name in ATTRS if name != "strides"))


@wrong("parallel-conv-variadic")
def _() -> RuleSides:
    """the kernels in reverse order"""
    return convs_side_by_side(*ATTRS, kernels=reversed_fields)


@wrong("parallel-group-conv-variadic", condition="groups == 1")
def _() -> RuleSides:
    """the kernels joined as for one group"""
    return convs_side_by_side(*ATTRS, grouped=True)


def biased_convs(*attrs: str, biases: Fields = fields) -> RuleSides:
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


@wrong("parallel-conv-bias-variadic", condition="", examples=120)
def _() -> RuleSides:
    """dilations not compared"""
    return biased_convs(*(name for name in ATTRS if name != "dilation"))


@wrong("parallel-conv-bias-variadic")
def _() -> RuleSides:
    """the bias of the first for all"""
    return biased_convs(*ATTRS, biases=copies)


def expanded(*, exchanged: bool = False, dilated: bool = False) -> RuleSides:
    """``parallel-conv-expand-kernels``, with the zeros on the other side, or without the condition on dilation."""
    x, v, w = pat.Wildcard(), pat.Param(), pat.Param()
    a = op.Conv2D(x, v, groups=1)
    b = op.Conv2D(x, w, **pat.same_attr(a, [name for name in ATTRS if name != "padding"]))
    size = attr.Map(attr.Zip(a.kernel_size, b.kernel_size), attr.max)
    padding = attr.Map(attr.Zip(a.padding, b.padding), attr.max)
    guard, kernels = a.kernel_size != b.kernel_size, []
    for conv, kernel in ((a, v), (b, w)):
        growth = attr.Map(attr.Zip(size, conv.kernel_size), lambda k: k[0] - k[1])
        missing = attr.Map(attr.Zip(padding, conv.padding), lambda p: p[0] - p[1])
        guard = guard & (attr.Map(attr.Zip(missing[:2], missing[2:]), lambda side: side[0] + side[1]) == growth)
        sides = attr.Zip(missing[2:], missing[:2]) if exchanged else attr.Zip(missing[:2], missing[2:])
        kernels.append(op.Pad(kernel, pad_width=((0, 0), (0, 0)) + sides))
    guard = guard if dilated else guard & (attr.max(a.dilation) == 1)
    joined = b.like(x, op.Concatenate(kernels, axis=0), padding=padding)
    both = op.Split(joined, indices_or_sections=attr.Tuple(v.shape[0]), axis=1)
    return [a, b], [both[0], both[1]], channels_first(a) & guard & same_dtype(v, w)


@wrong("parallel-conv-expand-kernels", condition="", examples=20)
def _() -> RuleSides:
    """the zeros before and after exchanged"""
    return expanded(exchanged=True)


@wrong("parallel-conv-expand-kernels", condition="dilation) == 1", examples=40, seed=1)
def _() -> RuleSides:
    """dilated kernels"""
    return expanded(dilated=True)


@wrong("parallel-group-conv-variadic")
def _() -> RuleSides:
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


def two_dense(*, inputs: int = 1, swap: bool = False, weights: str = "vw", out_dtype: bool = True) -> RuleSides:
    x, v, w = pat.Wildcard(), pat.Param(), pat.Param()
    a = op.Dense(x, v)
    b = op.Dense(x if inputs == 1 else pat.Wildcard(shape=x.shape), w, out_dtype=a.out_dtype)
    kernels = op.Concatenate([{"v": v, "w": w}[name] for name in weights], axis=0)
    both = op.Split(a.like(x, kernels), indices_or_sections=attr.Tuple(v.shape[0]), axis=-1)
    return [a, b], [both[int(swap)], both[int(not swap)]], same_dtype(v, w)


@wrong("parallel-two-dense")
def _() -> RuleSides:
    """the weights exchanged"""
    return two_dense(weights="wv")


@wrong("parallel-two-dense")
def _() -> RuleSides:
    """the results exchanged"""
    return two_dense(swap=True)


def two_biased(*, biases: str) -> RuleSides:
    x, v, w, b, c = pat.Wildcard(), pat.Param(), pat.Param(), pat.Param(), pat.Param()
    first, second = op.Dense(x, v), op.Dense(x, w)
    y = op.BiasAdd(first, b, axis=first.ndim - 1)
    z = op.BiasAdd(second, c, axis=y.axis)
    product = first.like(x, op.Concatenate([v, w], axis=0))
    joined = y.like(product, op.Concatenate([{"b": b, "c": c}[name] for name in biases], axis=0)) if biases else product
    both = op.Split(joined, indices_or_sections=attr.Tuple(v.shape[0]), axis=-1)
    return [y, z], [both[0], both[1]], (first.out_dtype == second.out_dtype) & same_dtype(v, w, b, c)


@wrong("parallel-two-dense-bias")
def _() -> RuleSides:
    """the biases exchanged"""
    return two_biased(biases="cb")


@wrong("parallel-two-dense-bias")
def _() -> RuleSides:
    """the biases dropped"""
    return two_biased(biases="")


@wrong("parallel-dense-variadic")
def _() -> RuleSides:
    """the weights in reverse order"""
    x, w0, i = pat.Wildcard(), pat.Param(), attr.Symbol()
    first = op.Dense(x, w0)
    w = pat.Param(dtype=w0.dtype)
    dense = op.Dense(x, w, out_dtype=first.out_dtype)
    layers = pat.Variadic(dense, templates=[dense, w], first=[first, w0], min_len=2)
    parts = split(first.like(x, op.Concatenate(reversed_fields(layers, w), axis=0)), -1, layers, w)
    return layers, pat.Variadic(parts[i], index=i)


@wrong("parallel-dense-bias-variadic")
def _() -> RuleSides:
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


def query_key_value(*, order: str = "q0v", ends: str = "qk", key_bias: Callable[..., pat.Call] = op.Zeros) -> RuleSides:
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
def _() -> RuleSides:
    """ones where the keys have no bias"""
    return query_key_value(key_bias=op.Ones)


@wrong("qkv-without-key-bias")
def _() -> RuleSides:
    """the bias of the values given to the keys"""
    return query_key_value(order="qv0")

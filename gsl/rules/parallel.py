"""Rules that merge products of one operand with several weights: one large product, whose result is split."""

from __future__ import annotations

from typing import Any

from gsl import attr, op, pat
from gsl.rules.common import ATTRS, RuleSides, channels_first, convolution, fields, rule, same_dtype


def join(whole: pat.Variadic, template: pat.Pattern) -> pat.Call:
    """The instances of a template, concatenated along their first axis."""
    return op.Concatenate(fields(whole, template), axis=0)


def split(result: pat.Pattern, axis: int, whole: pat.Variadic, weight: pat.Pattern, groups: Any = 1) -> pat.Call:
    """The result of a product with joined weights, split where each one's output channels (of a group) end."""

    def end(i: attr.Expr) -> attr.Expr:
        return attr.Sum(lambda j: whole(weight, j).shape[0] // groups, i + 1)

    return op.Split(result, indices_or_sections=attr.Variadic(end, whole.length - 1), axis=axis)


# Convolutions


@rule()
def parallel_two_conv() -> RuleSides:
    """conv(x, v), conv(x, w) = split(conv(x, concatenate(v, w)))

    Where both have equal attributes, one group, and kernels that differ in their output channels only.
    """
    x, v, w, f = pat.Wildcard(), pat.Param(), pat.Param(), convolution()
    a = pat.Call(f, x, v, groups=1)
    b = pat.Call(f, x, w, **pat.same_attr(a, [*ATTRS, "kernel_size"]))
    both = op.Split(a.like(x, op.Concatenate([v, w], axis=0)), indices_or_sections=attr.Tuple(v.shape[0]), axis=1)
    return [a, b], [both[0], both[1]], channels_first(a) & same_dtype(v, w)


@rule(priority=1)
def parallel_conv_variadic() -> RuleSides:
    """conv(x, w0), conv(x, w1), … = split(conv(x, concatenate(w0, w1, …)))

    As parallel-two-conv, for all the convolutions of x that agree with the first of them.
    """
    x, w0, f, i = pat.Wildcard(), pat.Param(), convolution(), attr.Symbol()
    first = pat.Call(f, x, w0, groups=1)
    w = pat.Param(dtype=w0.dtype)
    conv = pat.Call(f, x, w, **pat.same_attr(first, [*ATTRS, "kernel_size"]))
    convs = pat.Variadic(conv, templates=[conv, w], first=[first, w0], min_len=2)
    parts = split(first.like(x, join(convs, w)), 1, convs, w)
    return convs, pat.Variadic(parts[i], index=i), channels_first(first)


@rule(priority=2, extern_use=False)
def parallel_conv_bias_variadic() -> RuleSides:
    """conv(x, w0) + b0, conv(x, w1) + b1, … = split(conv(x, concatenate(w0, w1, …)) + concatenate(b0, b1, …))

    As parallel-conv-variadic, before which it comes, for convolutions with a bias of the channels.
    """
    x, w0, b0, f, i = pat.Wildcard(), pat.Param(), pat.Param(), convolution(), attr.Symbol()
    first = pat.Call(f, x, w0, groups=1)
    first_sum = op.BiasAdd(first, b0, axis=1)
    w, b = pat.Param(dtype=w0.dtype), pat.Param(dtype=b0.dtype)
    conv = pat.Call(f, x, w, **pat.same_attr(first, [*ATTRS, "kernel_size"]))
    biased = op.BiasAdd(conv, b, axis=1)
    convs = pat.Variadic(biased, templates=[biased, conv, w, b], first=[first_sum, first, w0, b0], min_len=2)
    parts = split(first_sum.like(first.like(x, join(convs, w)), join(convs, b)), 1, convs, w)
    return convs, pat.Variadic(parts[i], index=i), channels_first(first)


@rule()
def parallel_conv_expand_kernels() -> RuleSides:
    """conv(x, v), conv(x, w) = split(conv(x, concatenate(pad(v), pad(w))))

    Where on each axis the smaller kernel grows by as much as the padding of its convolution, before and after it
    together, falls short of the other's: with as many zeros on each side it sees what it saw. So 1x1 with padding 0
    goes beside 3x3 with padding 1, but not beside 2x2 with padding 0; and 1x3 goes beside 3x1, of which each is the
    smaller on one axis, so that both become 3x3. No dilation, one group, otherwise equal attributes.
    """
    x, v, w, f = pat.Wildcard(), pat.Param(), pat.Param(), convolution()
    a = pat.Call(f, x, v, groups=1)
    b = pat.Call(f, x, w, **pat.same_attr(a, [name for name in ATTRS if name != "padding"]))
    size = attr.Map(attr.Zip(a.kernel_size, b.kernel_size), attr.max)
    padding = attr.Map(attr.Zip(a.padding, b.padding), attr.max)

    def widened(conv: pat.Call, kernel: pat.Param) -> tuple[pat.Pattern, attr.Expr]:
        """The kernel among zeros, and whether these are as many as the padding grows by."""
        missing = attr.Map(attr.Zip(padding, conv.padding), lambda p: p[0] - p[1])
        growth = attr.Map(attr.Zip(size, conv.kernel_size), lambda k: k[0] - k[1])
        sides = attr.Zip(missing[: attr.Len(size)], missing[attr.Len(size) :])
        padded = op.Pad(kernel, pad_width=((0, 0), (0, 0)) + sides)
        fits = attr.Map(sides, lambda side: side[0] + side[1]) == growth
        return pat.Cond(attr.max(growth) > 0, padded, kernel), fits

    (first, first_fits), (second, second_fits) = widened(a, v), widened(b, w)
    kernels = op.Concatenate([first, second], axis=0)
    both = op.Split(b.like(x, kernels, padding=padding), indices_or_sections=attr.Tuple(v.shape[0]), axis=1)
    differ = (a.kernel_size != b.kernel_size) & (attr.max(a.dilation) == 1)
    return [a, b], [both[0], both[1]], channels_first(a) & first_fits & second_fits & differ & same_dtype(v, w)


@rule(priority=1)
def parallel_group_conv_variadic() -> RuleSides:
    """conv(x, w0; g), conv(x, w1; g), … = split(conv(x, concatenate(w0, w1, … within each group); g))

    For g > 1 groups, otherwise as parallel-conv-variadic. A group's output channels of all convolutions stand side by
    side in the result, so it is split within the groups.
    """
    x, w0, f, i = pat.Wildcard(), pat.Param(), convolution(), attr.Symbol()
    first = pat.Call(f, x, w0)
    w = pat.Param(dtype=w0.dtype)
    conv = pat.Call(f, x, w, **pat.same_attr(first, [*ATTRS, "kernel_size"]))
    convs = pat.Variadic(conv, templates=[conv, w], first=[first, w0], min_len=2)
    g, j = first.groups, attr.Symbol()
    by_group = op.Reshape(convs(w, j), newshape=attr.Tuple(g, -1) + w0.shape[1:])
    joined = op.Concatenate(pat.Variadic(by_group, index=j, length=convs.length), axis=1)
    result = first.like(x, op.Reshape(joined, newshape=attr.Tuple(-1) + w0.shape[1:]))
    parts = split(op.Reshape(result, newshape=attr.Tuple(0, -4, g, -1, -2)), 2, convs, w, g)
    return convs, pat.Variadic(op.Reshape(parts[i], newshape=(0, -3, -2)), index=i), channels_first(first) & (g > 1)


# Dense layers


@rule()
def parallel_two_dense() -> RuleSides:
    """x vᵀ, x wᵀ = split(x concatenate(v, w)ᵀ)

    For any two layers of x, as keys and values of one memory are.
    """
    x, v, w = pat.Wildcard(), pat.Param(), pat.Param()
    a = op.Dense(x, v)
    b = op.Dense(x, w, out_dtype=a.out_dtype)
    both = op.Split(a.like(x, op.Concatenate([v, w], axis=0)), indices_or_sections=attr.Tuple(v.shape[0]), axis=-1)
    return [a, b], [both[0], both[1]], same_dtype(v, w)


@rule(extern_use=False)
def parallel_two_dense_bias() -> RuleSides:
    """x vᵀ + b, x wᵀ + c = split(x concatenate(v, w)ᵀ + concatenate(b, c))

    As parallel-two-dense. The sums without their biases must have no other use.
    """
    x, v, w, b, c = pat.Wildcard(), pat.Param(), pat.Param(), pat.Param(), pat.Param()
    first, second = op.Dense(x, v), op.Dense(x, w)
    y = op.BiasAdd(first, b, axis=first.ndim - 1)
    z = op.BiasAdd(second, c, axis=y.axis)
    joined = y.like(first.like(x, op.Concatenate([v, w], axis=0)), op.Concatenate([b, c], axis=0))
    both = op.Split(joined, indices_or_sections=attr.Tuple(v.shape[0]), axis=-1)
    return [y, z], [both[0], both[1]], (first.out_dtype == second.out_dtype) & same_dtype(v, w) & same_dtype(b, c)


@rule(priority=1)
def parallel_dense_variadic() -> RuleSides:
    """x w0ᵀ, x w1ᵀ, … = split(x concatenate(w0, w1, …)ᵀ)

    For all the layers of x: queries, keys and values without bias, gate and up projections. Sizes may differ, as in
    grouped-query attention.
    """
    x, w0, i = pat.Wildcard(), pat.Param(), attr.Symbol()
    first = op.Dense(x, w0)
    w = pat.Param(dtype=w0.dtype)
    dense = op.Dense(x, w, out_dtype=first.out_dtype)
    layers = pat.Variadic(dense, templates=[dense, w], first=[first, w0], min_len=2)
    parts = split(first.like(x, join(layers, w)), -1, layers, w)
    return layers, pat.Variadic(parts[i], index=i)


@rule(priority=2, extern_use=False)
def parallel_dense_bias_variadic() -> RuleSides:
    """x w0ᵀ + b0, x w1ᵀ + b1, … = split(x concatenate(w0, w1, …)ᵀ + concatenate(b0, b1, …))

    As parallel-dense-variadic, before which it comes: queries, keys and values with bias.
    """
    x, w0, b0, i = pat.Wildcard(), pat.Param(), pat.Param(), attr.Symbol()
    first = op.Dense(x, w0)
    first_sum = op.BiasAdd(first, b0, axis=first.ndim - 1)
    w, b = pat.Param(dtype=w0.dtype), pat.Param(dtype=b0.dtype)
    dense = op.Dense(x, w, out_dtype=first.out_dtype)
    biased = op.BiasAdd(dense, b, axis=first_sum.axis)
    layers = pat.Variadic(biased, templates=[biased, dense, w, b], first=[first_sum, first, w0, b0], min_len=2)
    parts = split(first_sum.like(first.like(x, join(layers, w)), join(layers, b)), -1, layers, w)
    return layers, pat.Variadic(parts[i], index=i)


@rule(priority=3, extern_use=False)
def qkv_without_key_bias() -> RuleSides:
    """x wqᵀ + bq, x wkᵀ, x wvᵀ + bv = split(x concatenate(wq, wk, wv)ᵀ + concatenate(bq, 0, bv))

    For projections of which only one has no bias, as in Whisper; if the keys had one, another rule takes all three.
    """
    x, wq, wk, wv, bq, bv = pat.Wildcard(), pat.Param(), pat.Param(), pat.Param(), pat.Param(), pat.Param()
    query, key, value = op.Dense(x, wq), op.Dense(x, wk), op.Dense(x, wv)
    q = op.BiasAdd(query, bq, axis=query.ndim - 1)
    v = op.BiasAdd(value, bv, axis=q.axis)
    zeros = op.Zeros(shape=attr.Tuple(wk.shape[0]), dtype=bq.dtype)
    bias, weight = op.Concatenate([bq, zeros, bv], axis=0), op.Concatenate([wq, wk, wv], axis=0)
    ends = attr.Tuple(wq.shape[0], wq.shape[0] + wk.shape[0])
    parts = op.Split(q.like(query.like(x, weight), bias), indices_or_sections=ends, axis=-1)

    def key_has_no_bias(match: Any) -> bool:
        return all(user.op != "nn.bias_add" for user in match[key].users)

    alike = (query.out_dtype == key.out_dtype) & (query.out_dtype == value.out_dtype) & same_dtype(q, key)
    dtypes = same_dtype(wq, wk, wv) & same_dtype(bq, bv)
    return [q, key, v], [parts[0], parts[1], parts[2]], alike & dtypes, key_has_no_bias

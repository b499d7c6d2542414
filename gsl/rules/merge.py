"""Rules that compute once instead of several times (element-wise functions, one convolution or bias of a sum), and not
where nothing is added."""

from __future__ import annotations

from gsl import attr, op, pat
from gsl.match import Match
from gsl.rules.common import ATTRS, RuleSides, channels_first, convolution, fields, ones, rule, same_dtype, same_type


@rule(extern_use=False)
def merge_element_wise() -> RuleSides:
    """concatenate(f(x), f(y)) = f(concatenate(x, y))

    For an element-wise f of one operand, with equal attributes. Operands of different dtypes would be promoted
    before f instead of after it. The results of f must have no other use, or f is computed twice.
    """
    x, y = pat.Wildcard(), pat.Wildcard()
    f = pat.OpWithTrait(op.Trait.ELEMENT_WISE)
    a, b = pat.Call(f, x), pat.Call(f, y)
    joined = op.Concatenate([a, b])
    return joined, a.like(joined.like([x, y])), same_dtype(x, y), pat.attr_eq(a, b)


@rule(priority=1, extern_use=False)
def merge_element_wise_variadic() -> RuleSides:
    """concatenate(f(x0), f(x1), …) = f(concatenate(x0, x1, …))

    As merge-element-wise, for any number of calls.
    """
    x, f = pat.Wildcard(), pat.OpWithTrait(op.Trait.ELEMENT_WISE)
    call = pat.Call(f, x)
    calls = pat.Variadic(call, templates=[call, x], min_len=2)
    joined = op.Concatenate(calls)
    dtypes = attr.Variadic(lambda i: calls(x, i).dtype == calls(x, 0).dtype, calls.length)

    def equal_attributes(match: Match) -> bool | str:
        first, *others = match.instances(calls, call)
        return all(other.attrs == first.attrs for other in others) or "the calls differ in their attributes"

    return joined, calls(call, 0).like(joined.like(fields(calls, x))), attr.all(dtypes), equal_attributes


@rule(priority=4)
def sum_from_zero() -> RuleSides:
    """0 + x = x

    As the ``sum`` of Python begins. Where the sum has the shape and dtype of x. Among floats, 0 + -0 is 0.
    """
    x = pat.Wildcard()
    total = x + 0
    return total, x, same_type(x, total)


@rule(priority=4, extern_use=False)
def bias_add_add() -> RuleSides:
    """bias_add(x, b) + bias_add(y, c) = bias_add(x + y, b + c)

    Where x and y have one shape (a broadcast one would get its bias in other places), one axis and one dtype.
    """
    x, y, b, c = pat.Wildcard(), pat.Wildcard(), pat.Wildcard(), pat.Wildcard()
    first = op.BiasAdd(x, b)
    second = op.BiasAdd(y, c, axis=first.axis)
    return first + second, first.like(x + y, b + c), (x.shape == y.shape) & same_dtype(x, y, b, c)


@rule(priority=4, extern_use=False)
def diamond_conv_add() -> RuleSides:
    """conv(x, v) + conv(x, w) = conv(x, v + w)

    Where both have equal attributes (in any layout), and kernels of one shape and of the dtype of the result, in which
    they are added. That costs little even where they are not parameters.
    """
    x, v, w, f = pat.Wildcard(), pat.Wildcard(), pat.Wildcard(), convolution()
    first = pat.Call(f, x, v)
    second = pat.Call(f, x, w, **pat.same_attr(first, ATTRS))
    return first + second, first.like(x, v + w), (v.shape == w.shape) & same_dtype(v, w, first)


@rule(priority=3, extern_use=False)
def two_conv_add() -> RuleSides:
    """conv(x, v) + conv(y, w) = conv(concatenate(x, y), concatenate(v, w)) along the input channels

    Where x and y differ in their channels only (equal batch: the sum must not broadcast), and the convolutions in
    nothing else. Groups would see other channels.
    """
    x, y, v, w, f = pat.Wildcard(), pat.Wildcard(distinct=True), pat.Param(), pat.Param(), convolution()
    first = pat.Call(f, x, v, groups=1)
    second = pat.Call(f, y, w, **pat.same_attr(first, [*ATTRS, "kernel_size", "channels"]))
    joined = first.like(op.Concatenate([x, y], axis=1), op.Concatenate([v, w], axis=1))
    equal = (x.shape[0] == y.shape[0]) & (x.shape[2:] == y.shape[2:])
    return first + second, joined, channels_first(first) & equal & same_dtype(x, y) & same_dtype(v, w)


@rule(priority=3, extern_use=False)
def conv_shortcut_add() -> RuleSides:
    """conv(x, w) + x = conv(x, w + identity kernel)

    Where the convolution keeps the shape and looks at x itself in the middle of its window: stride 1, an odd kernel,
    padding (kernel - 1) / 2 · dilation on both sides, one group. Equal shapes: the sum must not broadcast.
    """
    x, w = pat.Wildcard(), pat.Param()
    conv = pat.Call(convolution(), x, w, groups=1)
    channels, middle = w.shape[0], attr.Map(conv.kernel_size, lambda k: (k - 1) // 2)
    diagonal = op.MatrixSetDiag(
        op.Zeros(shape=(channels, channels), dtype=w.dtype), op.Ones(shape=(channels,), dtype=w.dtype)
    )
    pixel = op.Reshape(diagonal, newshape=attr.Tuple(channels, channels) + ones(conv.kernel_size))
    kernel = op.Pad(pixel, pad_width=((0, 0), (0, 0)) + attr.Zip(middle, middle))
    same = attr.Map(attr.Zip(middle, conv.dilation), lambda pair: pair[0] * pair[1])
    centred = attr.all(attr.Map(conv.kernel_size, lambda k: k % 2 == 1)) & (conv.padding == same + same)
    keeps = (conv.strides == ones(conv.kernel_size)) & (x.shape == conv.shape)
    return conv + x, conv.like(x, w + kernel), channels_first(conv) & centred & keeps & same_dtype(x, w, conv)

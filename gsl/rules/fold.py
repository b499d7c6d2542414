"""Rules that take the calls behind a product into its weights, and rules that write normalisations as arithmetic."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from gsl import attr, op, pat
from gsl.rules.common import RuleSides, along, channels_first, convolution, ones, precise, rule, same_dtype, weight


def of_kernel(c: pat.Pattern, w: pat.Pattern) -> pat.Cond:
    """A factor of the channels, or a number, as a factor of the kernel."""
    return pat.Cond(c.ndim == 0, c, along(c, w.shape[1:]))


def per_channel(c: pat.Pattern, w: pat.Pattern, conv: pat.Pattern) -> attr.Expr:
    """True if a factor of a convolution's result is a number or has one element per channel."""
    channels, single = w.shape[0], ones(w.shape[2:])
    shapes = (attr.Tuple(channels) + single, attr.Tuple(1, channels) + single)
    vector = attr.In(c.shape, shapes) & same_dtype(w, c)
    return channels_first(conv) & same_dtype(w, conv) & ((c.ndim == 0) | vector)


@rule(priority=5, extern_use=False)
def conv_multiply() -> RuleSides:
    """conv(x, w) · c = conv(x, w · c)

    Where c is a number or has one element per output channel: shape (C, 1, …) or (1, C, 1, …). The product keeps the
    dtype: integers times 0.5 are floats, with which integers are not convolved.
    """
    x, w, c = pat.Wildcard(), pat.Param(), weight()
    conv = pat.Call(convolution(), x, w)
    product = conv * c
    return product, conv.like(x, w * of_kernel(c, w)), per_channel(c, w, conv) & same_dtype(conv, product)


@rule(priority=5, extern_use=False)
def conv_bias_multiply() -> RuleSides:
    """bias_add(conv(x, w), b) · c = bias_add(conv(x, w · c), b · c)

    As conv-multiply.
    """
    x, w, b, c = pat.Wildcard(), pat.Param(), pat.Param(), weight()
    conv = pat.Call(convolution(), x, w)
    biased = op.BiasAdd(conv, b, axis=1)
    vector = pat.Cond(c.ndim == 0, c, op.Reshape(c, newshape=(-1,)))
    product = biased * c
    folded = biased.like(conv.like(x, w * of_kernel(c, w)), b * vector)
    return product, folded, per_channel(c, w, conv) & same_dtype(w, b, product)


Offset = Callable[[pat.Pattern | None], pat.Cond]
"""The offset that a batch norm adds, as a function of a bias that its data has."""


def affine(
    bn: pat.Pattern, gamma: pat.Pattern, beta: pat.Pattern, mean: pat.Pattern, var: pat.Pattern
) -> tuple[pat.Cond, Offset]:
    """Per channel, the factor of a batch norm and, as a function of a bias that its data has, the offset."""
    root = op.Rsqrt(var + bn.epsilon)
    factor = pat.Cond(bn.scale, gamma * root, root)

    def offset(bias: pat.Pattern | None) -> pat.Cond:
        shift = (-mean if bias is None else bias - mean) * factor
        return pat.Cond(bn.center, beta + shift, shift)

    return factor, offset


Scaled = Callable[[pat.Pattern, pat.Pattern], pat.Pattern]
"""The weight of a product multiplied by a factor per output channel."""


def by_channel(w: pat.Pattern, s: pat.Pattern) -> pat.Pattern:
    """A weight whose first axis is that of the output channels, multiplied by a factor for each."""
    return w * along(s, w.shape[1:])


def batch_norm(product: pat.Call, x: pat.Pattern, w: pat.Pattern, axis: Any, scaled: Scaled) -> RuleSides:
    """Source, target and guard on dtypes of bn(product(x, w)), with a bias in between or without."""
    b, gamma, beta, mean, var = (weight() for _ in range(5))
    data = op.BiasAdd(product, b, axis=axis) | product
    bn = op.BatchNorm(data, gamma, beta, mean, var, axis=axis)
    factor, offset = affine(bn, gamma, beta, mean, var)
    bias = pat.Match(data, [offset(b), offset(None)])
    folded = op.BiasAdd(product.like(x, scaled(w, factor)), bias, axis=axis)
    return bn, folded, same_dtype(w, product, data, gamma, beta, mean, var) & precise(w)


@rule(priority=5, extern_use=False, inference_only=True)
def conv_batch_norm() -> RuleSides:
    """bn(conv(x, w) [+ b]) = conv(x, w · s) + (b - μ) · s + β with s = γ / √(σ² + ε)

    Convolutions of any rank and groups, channels first; of float32 and float64, as halves would lose precision. For
    inference only: where weights are learned, folding them anew at every step saves nothing.
    """
    x, w = pat.Wildcard(), pat.Param()
    conv = pat.Call(convolution(), x, w)
    return *batch_norm(conv, x, w, 1, by_channel), channels_first(conv)


@rule(priority=5, extern_use=False, inference_only=True)
def conv_transpose_batch_norm() -> RuleSides:
    """bn(convᵀ(x, w) [+ b]) = convᵀ(x, w · s) + (b - μ) · s + β with s = γ / √(σ² + ε)

    As conv-batch-norm. The kernel is (in, out / groups, …), so the channels of s are taken group by group.
    """
    x, w = pat.Wildcard(), pat.Param()
    transposed = pat.OneOf("nn.conv1d_transpose", "nn.conv2d_transpose", "nn.conv3d_transpose")
    conv = pat.Call(transposed, x, w)

    def scaled(w: pat.Pattern, s: pat.Pattern) -> pat.Pattern:
        by_group = op.Reshape(w, newshape=attr.Tuple(conv.groups, -1) + w.shape[1:])
        factor = op.Reshape(s, newshape=attr.Tuple(conv.groups, 1, -1) + ones(w.shape[2:]))
        return op.Reshape(by_group * factor, newshape=w.shape)

    return *batch_norm(conv, x, w, 1, scaled), channels_first(conv, ("IOW", "IOHW", "IODHW"))


@rule(priority=5, extern_use=False, inference_only=True)
def dense_batch_norm() -> RuleSides:
    """bn(x wᵀ [+ b]) = x (w · s)ᵀ + (b - μ) · s + β with s = γ / √(σ² + ε)

    Where the normalised axis is that of the features, the last one. For inference only, as conv-batch-norm.
    """
    x, w = pat.Wildcard(), pat.Param()
    dense = op.Dense(x, w)
    return batch_norm(dense, x, w, dense.ndim - 1, by_channel)


@rule(priority=-1)
def lower_batch_norm() -> RuleSides:
    """bn(x) = x · s + (β - μ · s) with s = γ / √(σ² + ε)

    The channels are on any axis: s gets an axis of size 1 for each one behind it. Of float32 and float64, as halves
    would lose precision.
    """
    x, gamma, beta, mean, var = pat.Wildcard(), weight(), weight(), weight(), weight()
    bn = op.BatchNorm(x, gamma, beta, mean, var)
    factor, offset = affine(bn, gamma, beta, mean, var)
    behind = attr.Range(bn.axis + 1, x.ndim)
    lowered = x * along(factor, behind) + along(offset(None), behind)
    return bn, lowered, same_dtype(x, gamma, beta, mean, var) & precise(x)


@rule(priority=-1)
def lower_layer_norm() -> RuleSides:
    """ln(x) = (x - μ) / √(σ² + ε) · γ + β with μ = mean(x), σ² = mean((x - μ)²)

    Over any axes, with γ and β or without: they get an axis of size 1 for each one that is not normalised. Of float32
    and float64, as halves are normalised in float32.
    """
    x, gamma, beta = pat.Wildcard(), pat.Wildcard(), pat.Wildcard()
    norm = pat.Alt(op.LayerNorm(x, gamma, beta), op.LayerNorm(x, gamma), op.LayerNorm(x))
    centred = x - op.Mean(x, axis=norm.axis, keepdims=True)
    variance = op.Mean(op.Square(centred), axis=norm.axis, keepdims=True)
    normal = centred * op.Rsqrt(variance + norm.epsilon)
    shape = attr.Map(attr.Range(x.ndim), lambda i: attr.Cond(attr.In(i, norm.axis), x.shape[i], 1))
    scaled = pat.Cond(norm.scale, normal * op.Reshape(gamma, newshape=shape), normal)
    shifted = pat.Cond(norm.center, scaled + op.Reshape(beta, newshape=shape), scaled)
    return norm, pat.Match(norm, [shifted, scaled, normal]), precise(x)

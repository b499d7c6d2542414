"""Normalisations that are written out: RMS, layer, group, instance and batch norm.

The parts are recognised one after the other, each by a rule of its own, so that every order and spelling of them is
found: first what is divided by its root mean square, then that its mean was subtracted, then weights. All are written
for the normal form, in which a square is ``op.Square``.

Statistics are those of float32 or float64, as they were: the casts that models put around a norm of halves stay.
"""

from __future__ import annotations

from gsl import attr, op, pat
from gsl.rules.common import HALF_DTYPES, RuleSides, channel_wise, precise, rule, same_dtype


def over_root(x: pat.Pattern, square: pat.Pattern) -> list[pat.Pattern]:
    """The spellings of x / √square."""
    root = op.Sqrt(square)
    return [
        x * op.Rsqrt(square),
        x / root,
        x * op.Power(square, -0.5),
        x / op.Power(square, 0.5),
        x * op.Reciprocal(root),
        x * (1 / root),
    ]


def last_axes(axes: attr.Expr, x: pat.Pattern) -> attr.Expr:
    """True if these are the last axes of a tensor, at least one, over which there are kernels."""
    return (attr.Len(axes) > 0) & (axes == attr.Range(x.ndim - attr.Len(axes), x.ndim))


def fits_last(w: pat.Pattern, axes: attr.Expr, x: pat.Pattern) -> attr.Expr:
    """True if the axes are the last ones, and a weight has their sizes."""
    return last_axes(axes, x) & (w.shape == x.shape[x.ndim - attr.Len(axes) :])


@rule(extern_use=False)
def rms_norm() -> RuleSides:
    """x / √(mean(x²) + ε) = rms_norm(x; ε)

    Over the last axes, in float32 or float64. The quotient may be a product with rsqrt, with a power of -1/2, or with a
    reciprocal.
    """
    x, epsilon = pat.Wildcard(), pat.Const(ndim=0)
    mean = op.Mean(op.Square(x), keepdims=True, exclude=False)
    norm = pat.Alt(*over_root(x, mean + epsilon))
    return norm, op.RMSNorm(x, axis=mean.axis, epsilon=epsilon.value), last_axes(mean.axis, x) & precise(x)


@rule(extern_use=False)
def rms_norm_promoted() -> RuleSides:
    """x / √(mean(float32(x)²) + ε) = rms_norm(float32(x); ε)

    As rms-norm, for halves of which the statistics are those of float32, so that the quotient is in float32, too.
    """
    x, epsilon = pat.Wildcard(), pat.Const(ndim=0)
    wide = op.Cast(x, dtype="float32")
    mean = op.Mean(op.Square(wide), keepdims=True, exclude=False)
    norm = pat.Alt(*over_root(x, mean + epsilon))
    fits = last_axes(mean.axis, x) & attr.In(x.dtype, HALF_DTYPES) & (norm.dtype == "float32")
    return norm, op.RMSNorm(wide, axis=mean.axis, epsilon=epsilon.value), fits


@rule(extern_use=False)
def rms_norm_weighted() -> RuleSides:
    """x · (w / √(mean(x²) + ε)) = rms_norm(x, w; ε)

    As rms-norm, where the weight is multiplied by the reciprocal root, or x by the weight, first.
    """
    x, w, epsilon = pat.Wildcard(), pat.Wildcard(), pat.Const(ndim=0)
    mean = op.Mean(op.Square(x), keepdims=True, exclude=False)
    norm = pat.Alt(*(x * scaled for scaled in over_root(w, mean + epsilon)), *over_root(x * w, mean + epsilon))
    fits = precise(x) & same_dtype(x, w) & fits_last(w, mean.axis, x)
    return norm, op.RMSNorm(x, w, axis=mean.axis, epsilon=epsilon.value), fits


@rule(extern_use=False)
def rms_norm_scale() -> RuleSides:
    """rms_norm(x) · w = rms_norm(x, w)

    For a weight of the normalised axes, which are the last ones, in float32 or float64.
    """
    x, w = pat.Wildcard(), pat.Wildcard()
    norm = op.RMSNorm(x)
    return norm * w, norm.like(x, w), same_dtype(x, w) & precise(x) & fits_last(w, norm.axis, x)


@rule(extern_use=False)
def layer_norm_centre() -> RuleSides:
    """rms_norm(x - mean(x)) = layer_norm(x), and with a weight

    Over the same axes: the mean square of what is centred is its variance.
    """
    x, w = pat.Wildcard(), pat.Wildcard()
    mean = op.Mean(x, keepdims=True, exclude=False)
    centred = x - mean
    plain, weighted = op.RMSNorm(centred, axis=mean.axis), op.RMSNorm(centred, w, axis=mean.axis)
    either = plain | weighted
    target = [op.LayerNorm(x, axis=mean.axis, epsilon=plain.epsilon),
              op.LayerNorm(x, w, axis=mean.axis, epsilon=weighted.epsilon)]
    return either, pat.Match(either, target), precise(x)


@rule(extern_use=False)
def layer_norm_variance() -> RuleSides:
    """(x - mean(x)) / √(variance(x) + ε) = layer_norm(x; ε)

    Over the last axes, in float32 or float64, with the biased variance.
    """
    x, epsilon = pat.Wildcard(), pat.Const(ndim=0)
    mean = op.Mean(x, keepdims=True, exclude=False)
    variance = op.Variance(x, axis=mean.axis, keepdims=True, exclude=False, unbiased=False)
    norm = pat.Alt(*over_root(x - mean, variance + epsilon))
    return norm, op.LayerNorm(x, axis=mean.axis, epsilon=epsilon.value), last_axes(mean.axis, x) & precise(x)


@rule(extern_use=False)
def layer_norm_scale() -> RuleSides:
    """layer_norm(x) · w = layer_norm(x, w)

    For a weight of the normalised axes, in float32 or float64.
    """
    x, w = pat.Wildcard(), pat.Wildcard()
    norm = op.LayerNorm(x)
    return norm * w, norm.like(x, w, scale=True), same_dtype(x, w) & precise(x) & fits_last(w, norm.axis, x)


@rule(extern_use=False)
def layer_norm_shift() -> RuleSides:
    """layer_norm(x, w) + b = layer_norm(x, w, b)

    For a bias of the normalised axes, in float32 or float64.
    """
    x, w, b = pat.Wildcard(), pat.Wildcard(), pat.Wildcard()
    norm = op.LayerNorm(x, w)
    return norm + b, norm.like(x, w, b, center=True), same_dtype(x, w, b) & precise(x) & fits_last(b, norm.axis, x)


@rule(extern_use=False)
def group_norm() -> RuleSides:
    """reshape(layer_norm(reshape(x))) = group_norm(x)

    Where the first reshape takes the channels on axis 1 apart into groups, all behind the groups is normalised, and the
    second one has the shape of x.
    """
    x = pat.Wildcard()
    groups = op.Reshape(x)
    norm = op.LayerNorm(groups, axis=attr.Range(2, groups.ndim))
    out = op.Reshape(norm, shape=x.shape)
    size = groups.shape[1]
    fits = (x.ndim >= 2) & (groups.shape[0] == x.shape[0]) & (x.shape[1] % size == 0)
    return out, op.GroupNorm(x, num_groups=size, axis=1, epsilon=norm.epsilon), fits


@rule(extern_use=False)
def group_norm_affine() -> RuleSides:
    """group_norm(x) · w + b = group_norm(x, w, b)

    For a weight and a bias of the channels, in float32 or float64.
    """
    x, w, b = pat.Wildcard(), pat.Wildcard(), pat.Wildcard()
    norm = op.GroupNorm(x, axis=1)
    vector = {"newshape": (-1,)}
    whole = norm.like(x, op.Reshape(w, **vector), op.Reshape(b, **vector), scale=True, center=True)
    return norm * w + b, whole, same_dtype(x, w, b) & precise(x) & channel_wise(w, x) & channel_wise(b, x)


@rule(extern_use=False)
def instance_norm() -> RuleSides:
    """reshape(instance_norm(reshape(x); tile(w), tile(b))) = instance_norm(x; w, b), and without weights

    Where the first reshape keeps the axes behind the channels, and the second one has the shape of x: each channel of
    each image is normalised alone. Torch decomposes it so, with the images side by side as channels of one.
    """
    x, w, b = pat.Wildcard(), pat.Wildcard(ndim=1), pat.Wildcard(ndim=1)
    flat = op.Reshape(x)
    weighted, plain = op.InstanceNorm(flat, op.Tile(w), op.Tile(b), axis=1), op.InstanceNorm(flat, axis=1)
    norm = weighted | plain
    out = op.Reshape(norm, shape=x.shape)
    channels = attr.Match(norm, [(w.shape == x.shape[1:2]) & (b.shape == x.shape[1:2]), True])
    fits = (x.ndim > 2) & (flat.ndim == x.ndim) & (flat.shape[2:] == x.shape[2:])
    return out, pat.Match(norm, [weighted.like(x, w, b), plain.like(x)]), fits, channels


@rule(extern_use=False, inference_only=True)
def batch_norm() -> RuleSides:
    """x · s + (β - μ · s) with s = γ / √(σ² + ε) = bn(x)

    For weights of the channels on axis 1, in float32 or float64, as detectors freeze their batch norms. For inference
    only: a batch norm gives no gradients to its statistics.
    """
    x, gamma, beta, mean, var = (pat.Wildcard() for _ in range(5))
    epsilon = pat.Const(ndim=0)
    factor = pat.Alt(*over_root(gamma, var + epsilon))
    weights = gamma, beta, mean, var
    target = op.BatchNorm(x, *(op.Reshape(w, newshape=(-1,)) for w in weights), axis=1, epsilon=epsilon.value)
    fits = same_dtype(x, *weights) & precise(x) & attr.all([channel_wise(w, x) for w in weights])
    return x * factor + (beta - mean * factor), target, fits


RULES = (
    rms_norm, rms_norm_promoted, rms_norm_weighted, rms_norm_scale, layer_norm_centre, layer_norm_variance,
    layer_norm_scale, layer_norm_shift, group_norm, group_norm_affine, instance_norm, batch_norm,
)  # fmt: skip

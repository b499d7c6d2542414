"""Rules that write normalisations as arithmetic."""

from __future__ import annotations

from gsl import attr, op, pat
from gsl.rules.common import RuleSides, along, precise, rule, same_dtype, weight
from gsl.rules.fold import affine


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

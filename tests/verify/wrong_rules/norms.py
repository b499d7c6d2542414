"""Wrong variants of the rules that write normalisations as arithmetic."""

from __future__ import annotations

from collections.abc import Callable

from gsl import attr, op, pat
from gsl.rules.common import HALF_DTYPES, RuleSides, along, precise, same_dtype, weight
from gsl.rules.fold import affine
from tests.verify.wrong_rules.table import wrong


@wrong("lower-batch-norm", condition=".axis == ")
def _() -> RuleSides:
    """the channels always on axis 1"""
    x, gamma, beta, mean, var = pat.Wildcard(), weight(), weight(), weight(), weight()
    bn = op.BatchNorm(x, gamma, beta, mean, var)
    factor, offset = affine(bn, gamma, beta, mean, var)
    behind = attr.Range(2, x.ndim)
    lowered = x * along(factor, behind) + along(offset(None), behind)
    return bn, lowered, same_dtype(x, gamma, beta, mean, var) & precise(x)


@wrong("lower-batch-norm", condition="bn.center == ")
def _() -> RuleSides:
    """the offset always added"""
    x, gamma, beta, mean, var = pat.Wildcard(), weight(), weight(), weight(), weight()
    bn = op.BatchNorm(x, gamma, beta, mean, var)
    factor, _ = affine(bn, gamma, beta, mean, var)
    behind = attr.Range(bn.axis + 1, x.ndim)
    lowered = x * along(factor, behind) + along(beta - mean * factor, behind)
    return bn, lowered, same_dtype(x, gamma, beta, mean, var) & precise(x)


def layer_norm(*, mean: Callable[..., pat.Call] = op.Mean, inside: bool = True, axis: object = None) -> RuleSides:
    x = pat.Wildcard()
    norm = op.LayerNorm(x)
    axes = norm.axis if axis is None else axis
    centred = x - mean(x, axis=axes, keepdims=True)
    variance = op.Mean(op.Square(centred), axis=axes, keepdims=True)
    root = op.Rsqrt(variance + norm.epsilon) if inside else op.Rsqrt(variance) + norm.epsilon
    return norm, centred * root, precise(x)


@wrong("lower-layer-norm", condition="")
def _() -> RuleSides:
    """the sum taken for the mean"""
    return layer_norm(mean=op.Sum)


@wrong("lower-layer-norm", kinds=("value", "undefined"))
def _() -> RuleSides:
    """epsilon outside the root"""
    return layer_norm(inside=False)


@wrong("lower-layer-norm", condition="")
def _() -> RuleSides:
    """the last axis only"""
    return layer_norm(axis=(-1,))


@wrong("rms-norm-of-halves")
def _() -> RuleSides:
    """another epsilon"""
    x = pat.Wildcard()
    norm = op.RMSNorm(op.Cast(x, dtype="float32"))
    halves = norm.like(x, epsilon=norm.epsilon * 1.5)
    return op.Cast(norm, dtype=x.dtype), halves, attr.In(x.dtype, HALF_DTYPES)


@wrong("rms-norm-of-halves")
def _() -> RuleSides:
    """what is rounded before the norm, too"""
    x = pat.Wildcard(dtype="float32")
    norm = op.RMSNorm(x)
    return op.Cast(norm, dtype="float16"), norm.like(op.Cast(x, dtype="float16"))


@wrong("rms-norm-of-halves-scale")
def _() -> RuleSides:
    """the weight before the norm"""
    x, w = pat.Wildcard(), pat.Wildcard()
    norm = op.RMSNorm(x)
    return norm * w, norm.like(x * w), attr.In(x.dtype, HALF_DTYPES) & same_dtype(x, w)

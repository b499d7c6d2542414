"""Rules for inference in half precision, whose kernels compute in float32 and round their result once.

They hold up to that rounding, which is that of the dtype itself. Those that fold weights round these as well, which a
verifier refutes; so they are no part of the rule book.
"""

from __future__ import annotations

from gsl import attr, op, pat
from gsl.rewrite import RuleSet
from gsl.rules.common import HALF_DTYPES, RuleSides, channels_first, convolution, rule, same_dtype, weight
from gsl.rules.fold import Scaled, affine, by_channel
from gsl.rules.idioms.norms import fits_last


@rule(priority=1, extern_use=False)
def rms_norm_of_halves() -> RuleSides:
    """cast(rms_norm(cast(x, float32)), dtype of x) = rms_norm(x)

    For a tensor of halves, and a norm without a weight: kernels compute in float32, and round their result.
    """
    x = pat.Wildcard()
    norm = op.RMSNorm(op.Cast(x, dtype="float32"))
    return op.Cast(norm, dtype=x.dtype), norm.like(x), attr.In(x.dtype, HALF_DTYPES)


@rule(extern_use=False)
def rms_norm_of_halves_scale() -> RuleSides:
    """rms_norm(x) · w = rms_norm(x, w)

    For tensors of halves, of which the norm is rounded once then, and not before the product, too.
    """
    x, w = pat.Wildcard(), pat.Wildcard()
    norm = op.RMSNorm(x)
    return norm * w, norm.like(x, w), attr.In(x.dtype, HALF_DTYPES) & same_dtype(x, w) & fits_last(w, norm.axis, x)


def batch_norm(product: pat.Call, x: pat.Pattern, w: pat.Pattern, axis: attr.Expr | int, scaled: Scaled) -> RuleSides:
    """The sides of a rule that folds a batch norm into a product of halves, in float32."""
    b, *own = (weight() for _ in range(5))
    data = op.BiasAdd(product, b, axis=axis) | product
    bn = op.BatchNorm(data, *own, axis=axis)
    factor, offset = affine(bn, *map(widened, own))
    bias = pat.Match(data, [offset(widened(b)), offset(None)])
    kernel, shift = (op.Cast(part, dtype=w.dtype) for part in (scaled(widened(w), factor), bias))
    fits = attr.In(w.dtype, HALF_DTYPES) & same_dtype(w, product, data)
    return bn, op.BiasAdd(product.like(x, kernel), shift, axis=axis), fits


def widened(value: pat.Pattern) -> pat.Call:
    """A value in float32."""
    return op.Cast(value, dtype="float32")


@rule(priority=5, extern_use=False, inference_only=True)
def conv_batch_norm_of_halves() -> RuleSides:
    """bn(conv(x, w) [+ b]) = conv(x, w · s) + (b - μ) · s + β with s = γ / √(σ² + ε)

    As conv-batch-norm. The weights are folded in float32, and rounded then; statistics may be in float32.
    """
    x, w = pat.Wildcard(), pat.Param()
    conv = pat.Call(convolution(), x, w)
    return *batch_norm(conv, x, w, 1, by_channel), channels_first(conv)


@rule(priority=5, extern_use=False, inference_only=True)
def dense_batch_norm_of_halves() -> RuleSides:
    """bn(x wᵀ [+ b]) = x (w · s)ᵀ + (b - μ) · s + β with s = γ / √(σ² + ε)

    As dense-batch-norm, and as conv-batch-norm-of-halves.
    """
    x, w = pat.Wildcard(), pat.Param()
    dense = op.Dense(x, w)
    return batch_norm(dense, x, w, dense.ndim - 1, by_channel)


HALVES = RuleSet((
    rms_norm_of_halves, rms_norm_of_halves_scale, conv_batch_norm_of_halves, dense_batch_norm_of_halves,
))  # fmt: skip
"""The rules for programs in half precision."""

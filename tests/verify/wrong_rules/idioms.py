"""Wrong variants of the rules of the normal form and of idioms."""

from __future__ import annotations

from gsl import attr, op, pat
from gsl.rules.common import Sides, precise, same_dtype, same_type
from gsl.rules.idioms.norms import last_axes
from gsl.rules.normal import by_heads, heads_of, leading
from tests.verify.wrong_rules.table import wrong

# The normal form


@wrong("broadcast-identity")
def _() -> Sides:
    """a part of the axes only"""
    x = pat.Wildcard(ndim=2)
    out = op.BroadcastTo(x, ndim=3)
    return out, op.BroadcastTo(x * 2, shape=out.shape), precise(x)


@wrong("add-zero")
def _() -> Sides:
    """one taken for zero"""
    x = pat.Wildcard()
    total = x + 1
    return total, x, same_type(x, total)


@wrong("divide-one")
def _() -> Sides:
    """the quotient the other way round"""
    x = pat.Wildcard()
    quotient = 1 / x
    return quotient, x, same_type(x, quotient) & precise(x)


@wrong("power-two")
def _() -> Sides:
    """the cube"""
    x = pat.Wildcard()
    power = op.Power(x, 3)
    return power, op.Square(x), same_type(x, power) & precise(x)


@wrong("matmul-transposed", condition="")
def _() -> Sides:
    """a matrix that is not transposed"""
    x, w = pat.Wildcard(), pat.Wildcard(ndim=2)
    product = op.Matmul(x, w)
    return product, op.Dense(x, w), (x.ndim >= 2)


@wrong("dense-leading", condition="")
def _() -> Sides:
    """rows taken apart in another order"""
    x, w = pat.Wildcard(ndim=2), pat.Wildcard()
    product = op.Dense(x, w)
    out = op.Reshape(product, ndim=3)
    lead = leading(out, product, w.shape[0])
    turned = op.Reshape(op.Transpose(x, axes=(1, 0)), newshape=lead + w.shape[1:])
    return out, out.like(product.like(turned, w)), attr.Len(lead) == 2


@wrong("transpose-leading", condition="")
def _() -> Sides:
    """no transposition"""
    x = pat.Wildcard(ndim=3)
    turned = op.Transpose(x, axes=(0, 2, 1))
    out, fits = heads_of(turned)
    return out, by_heads(x, out), fits


# Idioms


@wrong("rms-norm", condition="")
def _() -> Sides:
    """epsilon outside the root"""
    x, epsilon = pat.Wildcard(), pat.Const(ndim=0)
    mean = op.Mean(op.Square(x), keepdims=True, exclude=False)
    norm = x / (op.Sqrt(mean) + epsilon)
    return norm, op.RMSNorm(x, axis=mean.axis, epsilon=epsilon.value), last_axes(mean.axis, x) & precise(x)


@wrong("rms-norm-scale", condition="")
def _() -> Sides:
    """a weight of any axis"""
    x, w = pat.Wildcard(), pat.Wildcard(ndim=1)
    norm = op.RMSNorm(x, axis=(0,))
    return norm * w, norm.like(x, w), same_dtype(x, w) & precise(x) & (w.shape[0] == x.shape[0])


@wrong("layer-norm-variance", condition="")
def _() -> Sides:
    """the unbiased variance"""
    x, epsilon = pat.Wildcard(), pat.Const(ndim=0)
    mean = op.Mean(x, keepdims=True, exclude=False)
    variance = op.Variance(x, axis=mean.axis, keepdims=True, exclude=False, unbiased=True)
    norm = (x - mean) / op.Sqrt(variance + epsilon)
    return norm, op.LayerNorm(x, axis=mean.axis, epsilon=epsilon.value), last_axes(mean.axis, x) & precise(x)


@wrong("layer-norm-shift", condition="")
def _() -> Sides:
    """the flag of the bias as it was"""
    x, w, b = pat.Wildcard(), pat.Wildcard(), pat.Wildcard()
    norm = op.LayerNorm(x, w, axis=(-1,))
    return norm + b, norm.like(x, w, b), same_dtype(x, w, b) & precise(x) & (b.shape == x.shape[-1:])


@wrong("gelu-tanh", condition="")
def _() -> Sides:
    """the approximation taken for the function"""
    x = pat.Wildcard()
    inner = op.Tanh((x + op.Power(x, 3) * 0.044715) * 0.7978845608028654)
    return (x * 0.5) * (inner + 1), op.GELU(x), precise(x)


@wrong("silu-sigmoid", condition="")
def _() -> Sides:
    """the sigmoid of something else"""
    x, y = pat.Wildcard(), pat.Wildcard()
    product = x * op.Sigmoid(y)
    return product, op.SiLU(x), same_type(x, y) & precise(x)


@wrong("softmax-exp", condition="")
def _() -> Sides:
    """the sum along another axis"""
    x = pat.Wildcard(ndim=2)
    e = op.Exp(x)
    return e / op.Sum(e, axis=(0,), keepdims=True, exclude=False), op.Softmax(x, axis=1), precise(x)

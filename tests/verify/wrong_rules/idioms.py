"""Wrong variants of the rules of idioms: norms, activations, softmax."""

from __future__ import annotations

import math

from gsl import attr, op, pat
from gsl.rules.common import HALF_DTYPES, RuleSides, channel_wise, precise, same_dtype, same_type
from gsl.rules.idioms.activations import clipped, elu_of, gelu_of
from gsl.rules.idioms.norms import last_axes, over_root
from tests.verify.wrong_rules.table import wrong


@wrong("rms-norm", condition="")
def _() -> RuleSides:
    """epsilon outside the root"""
    x, epsilon = pat.Wildcard(), pat.Const(ndim=0)
    mean = op.Mean(op.Square(x), keepdims=True, exclude=False)
    norm = x / (op.Sqrt(mean) + epsilon)
    return norm, op.RMSNorm(x, axis=mean.axis, epsilon=epsilon.value), last_axes(mean.axis, x) & precise(x)


@wrong("rms-norm-promoted", kinds=("value", "type"), condition="")
def _() -> RuleSides:
    """a product in the dtype of the data"""
    x, epsilon = pat.Wildcard(), pat.Const(ndim=0)
    mean = op.Mean(op.Square(op.Cast(x, dtype="float32")), keepdims=True, exclude=False)
    norm = x * op.Cast(op.Rsqrt(mean + epsilon), dtype=x.dtype)
    fits = last_axes(mean.axis, x) & attr.In(x.dtype, HALF_DTYPES)
    return norm, op.Cast(op.RMSNorm(op.Cast(x, dtype="float32"), axis=mean.axis, epsilon=0.5), dtype=x.dtype), fits


@wrong("rms-norm-scale", condition="")
def _() -> RuleSides:
    """a weight of any axis"""
    x, w = pat.Wildcard(), pat.Wildcard(ndim=1)
    norm = op.RMSNorm(x, axis=(0,))
    return norm * w, norm.like(x, w), same_dtype(x, w) & precise(x) & (w.shape[0] == x.shape[0])


@wrong("layer-norm-variance", condition="")
def _() -> RuleSides:
    """the unbiased variance"""
    x, epsilon = pat.Wildcard(), pat.Const(ndim=0)
    mean = op.Mean(x, keepdims=True, exclude=False)
    variance = op.Variance(x, axis=mean.axis, keepdims=True, exclude=False, unbiased=True)
    norm = (x - mean) / op.Sqrt(variance + epsilon)
    return norm, op.LayerNorm(x, axis=mean.axis, epsilon=epsilon.value), last_axes(mean.axis, x) & precise(x)


@wrong("layer-norm-shift", condition="")
def _() -> RuleSides:
    """the flag of the bias as it was"""
    x, w, b = pat.Wildcard(), pat.Wildcard(), pat.Wildcard()
    norm = op.LayerNorm(x, w, axis=(-1,))
    return norm + b, norm.like(x, w, b), same_dtype(x, w, b) & precise(x) & (b.shape == x.shape[-1:])


@wrong("gelu-tanh", condition="")
def _() -> RuleSides:
    """the approximation taken for the function"""
    x = pat.Wildcard()
    inner = op.Tanh((x + op.Power(x, 3) * 0.044715) * 0.7978845608028654)
    return (x * 0.5) * (inner + 1), op.GELU(x), precise(x)


@wrong("silu-sigmoid", condition="")
def _() -> RuleSides:
    """the sigmoid of something else"""
    x, y = pat.Wildcard(), pat.Wildcard()
    product = x * op.Sigmoid(y)
    return product, op.SiLU(x), same_type(x, y) & precise(x)


@wrong("softmax-exp", condition="")
def _() -> RuleSides:
    """the sum along another axis"""
    x = pat.Wildcard(ndim=2)
    e = op.Exp(x)
    return e / op.Sum(e, axis=(0,), keepdims=True, exclude=False), op.Softmax(x, axis=1), precise(x)


@wrong("rms-norm-weighted", condition="", examples=20)
def _() -> RuleSides:
    """the statistics of the weighted tensor"""
    x, w, epsilon = pat.Wildcard(), pat.Wildcard(), pat.Const(ndim=0)
    both = x * w
    mean = op.Mean(op.Square(both), axis=(x.ndim - 1,), keepdims=True, exclude=False)
    fits = precise(x) & same_dtype(x, w) & (w.shape == x.shape[-1:])
    return over_root(both, mean + epsilon)[0], op.RMSNorm(x, w, axis=mean.axis, epsilon=epsilon.value), fits


@wrong("layer-norm-centre", condition="", examples=20)
def _() -> RuleSides:
    """the largest subtracted, and not the mean"""
    x = pat.Wildcard()
    largest = op.Max(x, keepdims=True, exclude=False)
    norm = op.RMSNorm(x - largest, axis=largest.axis)
    return norm, op.LayerNorm(x, axis=norm.axis, epsilon=norm.epsilon), precise(x)


@wrong("layer-norm-scale", condition="", examples=20)
def _() -> RuleSides:
    """a sum taken for a product"""
    x, w = pat.Wildcard(), pat.Wildcard(ndim=1)
    norm = op.LayerNorm(x, axis=(-1,))
    return norm + w, norm.like(x, w, scale=True), same_dtype(x, w) & precise(x) & (w.shape == x.shape[-1:])


@wrong("group-norm", condition="", examples=20)
def _() -> RuleSides:
    """the channels of a group taken for the groups"""
    x = pat.Wildcard()
    groups = op.Reshape(x)
    norm = op.LayerNorm(groups, axis=attr.Range(2, groups.ndim))
    out = op.Reshape(norm, shape=x.shape)
    size = groups.shape[1]
    fits = (x.ndim >= 2) & (groups.shape[0] == x.shape[0]) & (x.shape[1] % size == 0)
    return out, op.GroupNorm(x, num_groups=x.shape[1] // size, axis=1, epsilon=norm.epsilon), fits


@wrong("group-norm-affine", condition="", examples=20)
def _() -> RuleSides:
    """the weight and the bias exchanged"""
    x, w, b = pat.Wildcard(), pat.Wildcard(), pat.Wildcard()
    norm = op.GroupNorm(x, axis=1)
    affine = norm.like(x, op.Reshape(b, newshape=(-1,)), op.Reshape(w, newshape=(-1,)), scale=True, center=True)
    return norm * w + b, affine, same_dtype(x, w, b) & precise(x) & channel_wise(w, x) & channel_wise(b, x)


@wrong("instance-norm", condition="x.shape[2:] == flat.shape[2:]", examples=100)
def _() -> RuleSides:
    """the axes behind the channels not kept"""
    x = pat.Wildcard()
    flat = op.Reshape(x)
    norm = op.InstanceNorm(flat, axis=1)
    return op.Reshape(norm, shape=x.shape), norm.like(x), (x.ndim > 2) & (flat.ndim == x.ndim)


@wrong("gelu-erf", condition="", examples=20)
def _() -> RuleSides:
    """the argument not divided by the root of two"""
    x = pat.Wildcard()
    return gelu_of(x, op.Erf(x)), op.GELU(x), precise(x)


@wrong("gelu-erf", condition="", examples=20)
def _() -> RuleSides:
    """half of it"""
    x = pat.Wildcard()
    return x * (op.Erf(x / math.sqrt(2)) + 1), op.GELU(x), precise(x)


@wrong("sigmoid-exp", condition="", examples=20)
def _() -> RuleSides:
    """the exponent not negated"""
    x = pat.Wildcard()
    return 1 / (op.Exp(x) + 1), op.Sigmoid(x), precise(x)


@wrong("softplus-log", condition="", examples=20)
def _() -> RuleSides:
    """the number itself below the threshold"""
    x, t = pat.Wildcard(), pat.Const(ndim=0)
    soft = op.Where(op.Greater(t, x), x, op.Log1p(op.Exp(x)))
    return soft, op.Softplus(x, beta=1.0, threshold=t.value), precise(x)


@wrong("softplus-scaled", condition="", examples=60)
def _() -> RuleSides:
    """divided by another number"""
    x, b, c, t = pat.Wildcard(), pat.Const(ndim=0), pat.Const(ndim=0), pat.Const(ndim=0)
    scaled = x * b
    soft = op.Where(op.Greater(scaled, t), x, op.Log1p(op.Exp(scaled)) / c)
    return soft, op.Softplus(x, beta=b.value, threshold=t.value), precise(x) & (abs(b.value) > 0)


@wrong("mish-softplus", condition="", examples=20)
def _() -> RuleSides:
    """a steeper softplus"""
    x = pat.Wildcard()
    return x * op.Tanh(op.Softplus(x, beta=2.0, threshold=20.0)), op.Mish(x), precise(x)


@wrong("relu-clip", condition="", examples=20)
def _() -> RuleSides:
    """with another bound"""
    x = pat.Wildcard()
    return op.Clip(x, a_min=1, a_max=None), op.ReLU(x), precise(x)


@wrong("hardsigmoid-clip", condition="", examples=20)
def _() -> RuleSides:
    """nothing added to what is clipped"""
    x = pat.Wildcard()
    return op.ReLU6(x) / 6, op.Hardsigmoid(x), precise(x)


@wrong("hardsigmoid-clip", condition="", examples=20)
def _() -> RuleSides:
    """not divided"""
    x = pat.Wildcard()
    return clipped(x), op.Hardsigmoid(x), precise(x)


@wrong("hardswish-clip", condition="", examples=20)
def _() -> RuleSides:
    """nothing added to what is clipped"""
    x = pat.Wildcard()
    return (x * op.ReLU6(x)) / 6, op.Hardswish(x), precise(x)


@wrong("prelu-where", condition="x1.shape[0] == x1.shape[2]")
def _() -> RuleSides:
    """slopes along any axis"""
    x, w = pat.Wildcard(ndim=3), pat.Wildcard(ndim=3)
    source = op.Where(op.Greater(x, 0), x, x * w)
    return source, op.PReLU(x, op.Reshape(w, newshape=(-1,))), precise(x) & same_dtype(x, w)


@wrong("leaky-relu-product", condition="c.value <= 1", examples=20)
def _() -> RuleSides:
    """the larger one by any number"""
    x, c = pat.Wildcard(), pat.Const(ndim=0)
    return op.Maximum(x, x * c), op.LeakyReLU(x, alpha=c.value), precise(x)


@wrong("elu-relu", condition="", examples=20)
def _() -> RuleSides:
    """the factor not negated"""
    x, c = pat.Wildcard(), pat.Const(ndim=0)
    return elu_of(x, c), op.ELU(x, alpha=c.value), precise(x) & (abs(c.value) < math.inf)


@wrong("selu-elu", condition="", examples=20)
def _() -> RuleSides:
    """another factor"""
    x = pat.Wildcard()
    return elu_of(x, -1.6732632423543772) * 1.05, op.SELU(x), precise(x)


@wrong("softmax-rescaled", condition="", examples=20)
def _() -> RuleSides:
    """another number than that of the quotient"""
    x, c, d = pat.Wildcard(), pat.Const(ndim=0), pat.Const(ndim=0)
    small = x / c
    soft = op.Softmax((small - op.Max(small, axis=(x.ndim - 1,), keepdims=True, exclude=False)) * d, axis=-1)
    return soft, soft.like(x), precise(x) & (c.value > 0)


@wrong("log-softmax-sum", condition="", examples=20)
def _() -> RuleSides:
    """the largest for the logarithm of the sum"""
    x = pat.Wildcard()
    largest = op.Max(x, keepdims=True, exclude=False)
    return x - largest, op.LogSoftmax(x, axis=largest.axis[0]), precise(x) & (attr.Len(largest.axis) == 1)


@wrong("batch-norm", condition="")
def _() -> RuleSides:
    """the mean not scaled"""
    x, gamma, beta, mean, var = (pat.Wildcard(ndim=3) for _ in range(5))
    epsilon = pat.Const(ndim=0)
    factor = gamma * op.Rsqrt(var + epsilon)
    weights = gamma, beta, mean, var
    flat = [op.Reshape(w, newshape=(-1,)) for w in weights]
    fits = same_dtype(x, *weights) & precise(x) & attr.all([channel_wise(w, x) for w in weights])
    return x * factor + (beta - mean), op.BatchNorm(x, *flat, axis=1, epsilon=epsilon.value), fits

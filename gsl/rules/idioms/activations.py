"""Activations and softmax that are written out.

Written for the normal form, in which a square is ``op.Square``. Constants are compared in the dtype of the
program, so that eight digits are enough in float32.

Not rewritten, because no framework has a kernel for them: the sigmoid approximation of GELU, x · sigmoid(1.702 x),
which as a SiLU of 1.702 x would need as many calls; and gated units, silu(x wᵀ) · (x vᵀ), of which the SiLU is
recognised, and the two products are merged by the rules of parallel layers where that pays.
"""

from __future__ import annotations

import math

from gsl import attr, op, pat
from gsl.rules.common import FLOATS, RuleSides, channel_wise, ones, rule, same_dtype


def is_float(x: pat.Pattern) -> attr.Expr:
    """True if elements are floats."""
    return attr.In(x.dtype, FLOATS)


def gelu_of(x: pat.Pattern, inner: pat.Pattern) -> pat.Alt:
    """The spellings of x · (1 + inner) / 2."""
    both = inner + 1
    return pat.Alt(
        *((x * 0.5) * both, (x * both) * 0.5, x * (both * 0.5)),
        *((x / 2) * both, (x * both) / 2, x * (both / 2)),
        x * (inner * 0.5 + 0.5),
    )


@rule(extern_use=False)
def gelu_erf() -> RuleSides:
    """x · (1 + erf(x / √2)) / 2 = gelu(x)

    For floats, with the three factors in any order.
    """
    x = pat.Wildcard()
    argument = pat.Alt(x / math.sqrt(2), x * math.sqrt(0.5), x * (1 / math.sqrt(2)))
    return gelu_of(x, op.Erf(argument)), op.GELU(x), is_float(x)


@rule(extern_use=False)
def gelu_tanh() -> RuleSides:
    """x · (1 + tanh(√(2 / π) · (x + 0.044715 x³))) / 2 = gelu(x) by its approximation with tanh

    For floats, with the factors in any order, the cube as a power or a product, and x before the sum or in it.
    """
    x, k, a = pat.Wildcard(), math.sqrt(2 / math.pi), 0.044715
    square = op.Square(x)
    cubes = (op.Power(x, 3) * a, (square * x) * a, (square * a) * x, (x * a) * square, ((x * a) * x) * x)
    sums = [x + cube for cube in cubes]
    ones = [part + 1 for part in (square * a, (x * a) * x)]
    factors = [*((x * k) * one for one in ones), *((x * one) * k for one in ones)]
    argument = pat.Alt(*(total * k for total in sums), *factors)
    return gelu_of(x, op.Tanh(argument)), op.GELU(x, approximate="tanh"), is_float(x)


@rule(extern_use=False)
def sigmoid_exp() -> RuleSides:
    """1 / (1 + exp(-x)) = sigmoid(x)

    For floats.
    """
    x = pat.Wildcard()
    total = op.Exp(-x) + 1
    return op.Reciprocal(total) | 1 / total, op.Sigmoid(x), is_float(x)


@rule(extern_use=False)
def silu_sigmoid() -> RuleSides:
    """x · sigmoid(x) = silu(x), and x / (1 + exp(-x))

    For floats.
    """
    x = pat.Wildcard()
    return x * op.Sigmoid(x) | x / (op.Exp(-x) + 1), op.SiLU(x), is_float(x)


def log_of_one_more(x: pat.Pattern) -> pat.Alt:
    """The spellings of log(1 + exp(x))."""
    e = op.Exp(x)
    return op.Log1p(e) | op.Log(e + 1)


@rule(extern_use=False)
def softplus_log() -> RuleSides:
    """where(x > t, x, log(1 + exp(x))) = softplus(x)

    For floats and a number t, the threshold of the softplus. Decomposed programs have it so.
    """
    x, t = pat.Wildcard(), pat.Const(ndim=0)
    soft = op.Where(op.Greater(x, t), x, log_of_one_more(x))
    return soft, op.Softplus(x, beta=1.0, threshold=t.value), is_float(x)


@rule(extern_use=False)
def softplus_scaled() -> RuleSides:
    """where(x · b > t, x, log(1 + exp(x · b)) / b) = softplus(x, b)

    For floats, a finite number b other than 0, and a number t.
    """
    x, b, c, t = pat.Wildcard(), pat.Const(ndim=0), pat.Const(ndim=0), pat.Const(ndim=0)
    scaled = x * b
    soft = op.Where(op.Greater(scaled, t), x, log_of_one_more(scaled) / c)
    number = (b.value == c.value) & (abs(b.value) > 0) & (abs(b.value) < math.inf)
    return soft, op.Softplus(x, beta=b.value, threshold=t.value), is_float(x) & number


@rule(extern_use=False)
def mish_softplus() -> RuleSides:
    """x · tanh(log(1 + exp(x))) = mish(x)

    For floats.
    """
    x = pat.Wildcard()
    return x * op.Tanh(op.Softplus(x, beta=1.0, threshold=20.0)), op.Mish(x), is_float(x)


@rule(priority=-1)
def relu_clip() -> RuleSides:
    """max(x, 0) = relu(x)

    For floats; after clips are one, for a clip between 0 and 6 is no relu.
    """
    x = pat.Wildcard()
    largest = op.Maximum(x, 0)
    bounded = op.Clip(x, a_min=0, a_max=None)
    return largest | bounded, op.ReLU(x), is_float(x)


def clipped(x: pat.Pattern) -> pat.Alt:
    """The spellings of min(max(x + 3, 0), 6)."""
    shifted = x + 3
    return op.ReLU6(shifted) | op.Clip(shifted, a_min=0, a_max=6)


@rule(extern_use=False)
def hardsigmoid_clip() -> RuleSides:
    """min(max(x + 3, 0), 6) / 6 = hardsigmoid(x), and min(max(x / 6 + 1 / 2, 0), 1)

    For floats, with relu6 too, which is that minimum.
    """
    x = pat.Wildcard()
    inner = clipped(x)
    part = x / 6 | x * (1 / 6)
    return pat.Alt(inner / 6, inner * (1 / 6), op.Clip(part + 0.5, a_min=0, a_max=1)), op.Hardsigmoid(x), is_float(x)


@rule(extern_use=False)
def hardswish_clip() -> RuleSides:
    """x · min(max(x + 3, 0), 6) / 6 = hardswish(x), and x · hardsigmoid(x)

    For floats, with relu6 too, which is that minimum.
    """
    x = pat.Wildcard()
    inner = clipped(x)
    whole, part = x * inner, inner / 6 | inner * (1 / 6)
    return pat.Alt(whole / 6, whole * (1 / 6), x * part, x * op.Hardsigmoid(x)), op.Hardswish(x), is_float(x)


@rule(extern_use=False)
def prelu_where() -> RuleSides:
    """where(x > 0, x, x · w) = prelu(x; w)

    For floats of one dtype, with a slope for each channel on axis 1, or one for all. Torch decomposes it so.
    """
    x, w = pat.Wildcard(), pat.Wildcard()
    alike = channel_wise(w, x) | (w.shape == ones(x.shape))
    source = op.Where(op.Greater(x, 0), x, x * w)
    return source, op.PReLU(x, op.Reshape(w, newshape=(-1,))), is_float(x) & same_dtype(x, w) & alike


@rule(extern_use=False)
def leaky_relu_product() -> RuleSides:
    """where(x > 0, x, x · c) = leaky_relu(x; c), and max(x, x · c) where 0 < c ≤ 1

    For floats and a finite number c, with x ≥ 0 too.
    """
    x, c = pat.Wildcard(), pat.Const(ndim=0)
    below = x * c
    source = pat.Alt(op.Where(op.Greater(x, 0) | op.GreaterEqual(x, 0), x, below), op.Maximum(x, below))
    number = attr.Match(source, [abs(c.value) < math.inf, (c.value > 0) & (c.value <= 1)])
    return source, op.LeakyReLU(x, alpha=c.value), is_float(x) & number


def elu_of(x: pat.Pattern, factor: pat.Pattern | float) -> pat.Pattern:
    """relu(x) + c · relu(1 - exp(x)), in which one term is always 0."""
    return op.ReLU(x) + op.ReLU(1 - op.Exp(x)) * factor


@rule(extern_use=False)
def elu_relu() -> RuleSides:
    """relu(x) - c · relu(1 - exp(x)) = elu(x) with alpha = c

    For floats and a finite number c. TVM's importers write it so.
    """
    x, c = pat.Wildcard(), pat.Const(ndim=0)
    return elu_of(x, c), op.ELU(x, alpha=-c.value), is_float(x) & (abs(c.value) < math.inf)


@rule(extern_use=False)
def selu_elu() -> RuleSides:
    """1.0507 · elu(x) = selu(x), where the alpha of elu is 1.67326

    For floats, with elu written out, as TVM's importer of ONNX writes it, or called, as torch decomposes it.
    """
    x, alpha = pat.Wildcard(), 1.6732632423543772
    return (elu_of(x, -alpha) | op.ELU(x, alpha=alpha)) * 1.0507009873554805, op.SELU(x), is_float(x)


@rule(extern_use=False)
def softmax_exp() -> RuleSides:
    """exp(x - m) / sum(exp(x - m)) = softmax(x)

    Along one axis, for floats, where m is the maximum along that axis, or there is none.
    """
    x = pat.Wildcard()
    largest = op.Max(x, keepdims=True, exclude=False)
    shifted = x - largest
    exponent = shifted | x
    e = op.Exp(exponent)
    total = op.Sum(e, keepdims=True, exclude=False)
    axes = attr.Match(exponent, [largest.axis == total.axis, attr.Const(True)])
    return e / total, op.Softmax(x, axis=total.axis[0]), is_float(x) & (attr.Len(total.axis) == 1) & axes


@rule(extern_use=False)
def softmax_rescaled() -> RuleSides:
    """softmax((x / c - max(x / c)) · c) = softmax(x)

    Along one axis, for floats and a finite number c other than 0. Models in half precision write it so, lest scores
    overflow; the kernels of softmax subtract the largest element themselves.
    """
    x, c, d = pat.Wildcard(), pat.Const(ndim=0), pat.Const(ndim=0)
    small = x / c
    largest = op.Max(small, keepdims=True, exclude=False)
    soft = op.Softmax((small - largest) * d)
    number = (c.value == d.value) & (abs(c.value) > 0) & (abs(c.value) < math.inf)
    return soft, soft.like(x), is_float(x) & (soft.dtype == x.dtype) & number & (largest.axis == attr.Tuple(soft.axis))


@rule(extern_use=False)
def log_softmax_sum() -> RuleSides:
    """x - logsumexp(x) = log_softmax(x)

    Along one axis, for floats.
    """
    x = pat.Wildcard()
    total = op.LogSumExp(x, keepdims=True, exclude=False)
    return x - total, op.LogSoftmax(x, axis=total.axis[0]), is_float(x) & (attr.Len(total.axis) == 1)


RULES = (
    gelu_erf, gelu_tanh, sigmoid_exp, silu_sigmoid, softplus_log, softplus_scaled, mish_softplus, relu_clip,
    hardsigmoid_clip, hardswish_clip, prelu_where, leaky_relu_product, selu_elu, elu_relu, softmax_exp,
    softmax_rescaled, log_softmax_sum,
)  # fmt: skip

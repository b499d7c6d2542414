"""Wrong variants of the rules that fold into weights."""

from __future__ import annotations

from collections.abc import Callable

from gsl import attr, op, pat
from gsl.rules.common import RuleSides, along, channels_first, convolution, ones, precise, same_dtype, weight
from gsl.rules.fold import of_kernel, per_channel
from tests.verify.wrong_rules.table import wrong


def scaled_conv(guard: Callable[[pat.Pattern, pat.Pattern, pat.Pattern], object], *, inputs: bool = False) -> RuleSides:
    x, w, c = pat.Wildcard(), pat.Param(), weight()
    conv = pat.Call(convolution(), x, w)
    column = op.Reshape(c, newshape=attr.Tuple(1, -1) + ones(w.shape[2:]))
    factor = pat.Cond(c.ndim == 0, c, column) if inputs else of_kernel(c, w)
    return conv * c, conv.like(x, w * factor), guard(c, w, conv)


@wrong("conv-multiply", condition="")
def _() -> RuleSides:
    """a factor of the last axis taken for one of the channels"""
    return scaled_conv(
        lambda c, w, conv: channels_first(conv)
        & same_dtype(w, c, conv)
        & ((c.ndim == 0) | (c.shape == attr.Tuple(w.shape[0])))
    )


@wrong("conv-multiply", condition="", examples=200)
def _() -> RuleSides:
    """a factor of the input channels"""
    return scaled_conv(per_channel, inputs=True)


@wrong("conv-multiply", condition="data_layout == 'NCHW'", examples=120)
def _() -> RuleSides:
    """channels on any axis"""
    x, w, c = pat.Wildcard(), pat.Param(), pat.Param()
    conv = op.Conv2D(x, w, kernel_layout="OIHW", out_layout="")
    return conv * c, conv.like(x, w * along(c, w.shape[1:])), c.shape == attr.Tuple(1, w.shape[0], 1, 1)


@wrong("conv-bias-multiply")
def _() -> RuleSides:
    """the bias not multiplied"""
    x, w, b, c = pat.Wildcard(), pat.Param(), pat.Param(), weight()
    conv = pat.Call(convolution(), x, w)
    biased = op.BiasAdd(conv, b, axis=1)
    return biased * c, biased.like(conv.like(x, w * of_kernel(c, w)), b), per_channel(c, w, conv) & same_dtype(w, b)


def folded_norm(
    product: pat.Call,
    x: pat.Pattern,
    w: pat.Pattern,
    scaled: Callable[[pat.Pattern], pat.Pattern],
    *,
    epsilon: bool = True,
    own_bias: bool = True,
    mean_first: bool = True,
    given: object = 1,
    axis: object = 1,
) -> RuleSides:
    """``rules.fold.batch_norm``, with its mistakes."""
    b, gamma, beta, mean, var = (weight() for _ in range(5))
    data = op.BiasAdd(product, b, axis=axis) | product
    axes = {} if given is None else {"axis": given}
    bn = op.BatchNorm(data, gamma, beta, mean, var, **axes)
    root = op.Rsqrt(var + bn.epsilon) if epsilon else op.Rsqrt(var)
    factor = pat.Cond(bn.scale, gamma * root, root)

    def offset(bias: pat.Pattern | None) -> pat.Pattern:
        if not mean_first:
            return pat.Cond(bn.center, beta - mean, -mean) if bias is None else offset(None) + bias * factor
        shift = (-mean if bias is None else bias - mean) * factor
        return pat.Cond(bn.center, beta + shift, shift)

    bias = pat.Match(data, [offset(b if own_bias else None), offset(None)])
    folded = op.BiasAdd(product.like(x, scaled(factor)), bias, axis=axis)
    return bn, folded, same_dtype(w, product, data, gamma, beta, mean, var) & precise(w)


def folded_conv(**mistakes: bool) -> RuleSides:
    x, w = pat.Wildcard(), pat.Param()
    conv = pat.Call(convolution(), x, w)
    return *folded_norm(conv, x, w, lambda s: w * along(s, w.shape[1:]), **mistakes), channels_first(conv)


@wrong("conv-batch-norm")
def _() -> RuleSides:
    """no epsilon"""
    return folded_conv(epsilon=False)


@wrong("conv-batch-norm")
def _() -> RuleSides:
    """the bias of the convolution dropped"""
    return folded_conv(own_bias=False)


@wrong("conv-batch-norm")
def _() -> RuleSides:
    """the mean not scaled"""
    return folded_conv(mean_first=False)


def folded_transpose(scaled: Callable[[pat.Pattern, pat.Pattern, pat.Pattern], pat.Pattern]) -> RuleSides:
    x, w = pat.Wildcard(), pat.Param()
    transposed = pat.OneOf("nn.conv1d_transpose", "nn.conv2d_transpose", "nn.conv3d_transpose")
    conv = pat.Call(transposed, x, w)
    norm = folded_norm(conv, x, w, lambda s: scaled(s, w, conv))
    return *norm, channels_first(conv, ("IOW", "IOHW", "IODHW"))


@wrong("conv-transpose-batch-norm", condition="w.shape[1] == 1")
def _() -> RuleSides:
    """the axis of the input channels scaled"""
    return folded_transpose(lambda s, w, conv: w * along(s, w.shape[1:]))


@wrong("conv-transpose-batch-norm", condition="groups == 1")
def _() -> RuleSides:
    """the channels dealt out among the groups"""

    def scaled(s: pat.Pattern, w: pat.Pattern, conv: pat.Pattern) -> pat.Pattern:
        by_group = op.Reshape(w, newshape=attr.Tuple(conv.groups, -1) + w.shape[1:])
        dealt = op.Transpose(op.Reshape(s, newshape=attr.Tuple(-1, conv.groups)), axes=(1, 0))
        factor = op.Reshape(dealt, newshape=attr.Tuple(conv.groups, 1, -1) + ones(w.shape[2:]))
        return op.Reshape(by_group * factor, newshape=w.shape)

    return folded_transpose(scaled)


@wrong("dense-batch-norm", condition=".axis == ")
def _() -> RuleSides:
    """any axis taken for the features"""
    x, w = pat.Wildcard(), pat.Param()
    dense = op.Dense(x, w)
    return folded_norm(dense, x, w, lambda s: w * along(s, w.shape[1:]), given=None, axis=dense.ndim - 1)

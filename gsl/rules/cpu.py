"""Rules for inference on a CPU: products by packed weights, together with the calls that follow them.

They write calls of ``gsl.kernels``. They hold everywhere; they are no part of the rule book because they pay only on a
CPU, and a program that calls these kernels needs ``import gsl.kernels`` before it is loaded.
"""

from __future__ import annotations

from gsl import attr, op, pat
from gsl.rewrite import RuleSet
from gsl.rules import packed
from gsl.rules.common import RuleSides, rule
from gsl.rules.packed import activated, as_rows, by_activation, dense


def single(*patterns: pat.Pattern) -> attr.Expr:
    """True if all are of single precision, for which weights are packed."""
    return attr.all([pattern.dtype == "float32" for pattern in patterns])


def bias() -> pat.Param:
    """A bias in single precision."""
    return pat.Param(dtype="float32")


@rule()
def pack_dense() -> RuleSides:
    """x wᵀ = packed(x, w)

    For any weight in single precision.
    """
    x, w = pat.Wildcard(), pat.Param(ndim=2)
    product = dense(x, w)
    return product, op.PackedDense(x, as_rows(product, w)), single(x, w)


@rule(priority=1, extern_use=False)
def pack_dense_bias() -> RuleSides:
    """x wᵀ + b = packed(x, w, b)

    As pack-dense, before which it comes. The product without its bias must have no other use.
    """
    x, w, b = pat.Wildcard(), pat.Param(ndim=2), pat.Param(dtype="float32")
    product = dense(x, w)
    layer = op.BiasAdd(product, b, axis=product.ndim - 1)
    return layer, op.PackedDense(x, as_rows(product, w), b), single(x, w)


@rule(priority=3, extern_use=False)
def pack_dense_activation() -> RuleSides:
    """f(x wᵀ + b) = packed(x, w, b; f)

    As pack-dense-bias, before which it comes, with a bias or without, and an activation f. The layer must have no
    other use.
    """
    x, w, b = pat.Wildcard(), pat.Param(ndim=2), pat.Param(dtype="float32")
    product = dense(x, w)
    layer = pat.Alt(op.BiasAdd(product, b, axis=product.ndim - 1), product)
    f, weight = activated(layer), as_rows(product, w)

    def target(name: str) -> pat.Match:
        clauses = [op.PackedDense(x, weight, b, activation=name), op.PackedDense(x, weight, activation=name)]
        return pat.Match(layer, clauses)

    return f, by_activation(f, target), single(x, w)


@rule(priority=2, extern_use=False)
def pack_dense_add() -> RuleSides:
    """x wᵀ + b + y = packed(x, w, b, y)

    As pack-dense-bias, before which it comes, with a bias or without, for a y of the same shape.
    The layer must have no other use.
    """
    x, w, b, y = pat.Wildcard(), pat.Param(ndim=2), pat.Param(dtype="float32"), pat.Wildcard()
    product = dense(x, w)
    layer = pat.Alt(op.BiasAdd(product, b, axis=product.ndim - 1), product)
    weight = as_rows(product, w)
    targets = [op.PackedDenseAdd(x, weight, y, b), op.PackedDenseAdd(x, weight, y)]
    return layer + y, pat.Match(layer, targets), single(x, w, y) & (y.shape == product.shape)


# Convolutions


@rule()
def pack_conv() -> RuleSides:
    """conv(x, w) = packed(x, w)

    For a convolution of images, of any window and number of groups, in single precision.
    """
    return packed.conv_alone(single)


@rule(priority=1, extern_use=False)
def pack_conv_bias() -> RuleSides:
    """conv(x, w) + b = packed(x, w, b)

    As pack-conv, before which it comes. The convolution without its bias must have no other use.
    """
    return packed.conv_bias(single, bias())


@rule(priority=3, extern_use=False)
def pack_conv_activation() -> RuleSides:
    """f(conv(x, w) + b) = packed(x, w, b; f)

    As pack-conv-bias, before which it comes, with a bias or without, and an activation f. The convolution must have no
    other use.
    """
    return packed.conv_activation(single, bias())


@rule(priority=2, extern_use=False)
def pack_conv_add() -> RuleSides:
    """conv(x, w) + b + y = packed(x, w, b, y)

    As pack-conv-bias, before which it comes, with a bias or without, for a y of the same shape. The convolution must
    have no other use.
    """
    return packed.conv_add(single, bias())


@rule(priority=4, extern_use=False)
def pack_conv_add_relu() -> RuleSides:
    """relu(conv(x, w) + b + y) = packed(x, w, b, y; relu)

    As pack-conv-add, before which it comes: the end of a residual block.
    """
    return packed.conv_add(single, bias(), "relu")


# Convolutions of signals


def grouped(x: pat.Pattern, w: pat.Pattern) -> attr.Expr:
    """True if these are of single precision, and a signal in several groups, for which torch has no fast kernel."""
    return single(x, w) & (x.ndim == 3) & (x.shape[1] != w.shape[1])


@rule()
def pack_conv1d() -> RuleSides:
    """conv1d(x, w) = squeeze(packed(x, w))

    For a convolution of signals in several groups, as one of images of one row, in single precision.
    """
    return packed.conv_alone(grouped, packed.SIGNALS)


@rule(priority=1, extern_use=False)
def pack_conv1d_bias() -> RuleSides:
    """conv1d(x, w) + b = squeeze(packed(x, w, b))

    As pack-conv1d, before which it comes. The convolution without its bias must have no other use.
    """
    return packed.conv_bias(grouped, bias(), packed.SIGNALS)


@rule(priority=3, extern_use=False)
def pack_conv1d_activation() -> RuleSides:
    """f(conv1d(x, w) + b) = squeeze(packed(x, w, b; f))

    As pack-conv1d-bias, before which it comes, with a bias or without, and an activation f. The convolution must have
    no other use.
    """
    return packed.conv_activation(grouped, bias(), packed.SIGNALS)


DENSE = (pack_dense, pack_dense_bias, pack_dense_add, pack_dense_activation)
CONV = (pack_conv, pack_conv_bias, pack_conv_add, pack_conv_activation, pack_conv_add_relu)
CONV1D = (pack_conv1d, pack_conv1d_bias, pack_conv1d_activation)
CPU = RuleSet((*DENSE, *CONV, *CONV1D))
"""The rules for a CPU. ``gsl.optimize`` finds out which of them pay; each call also chooses the fastest kernel."""

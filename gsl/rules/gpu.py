"""Rules for inference on a GPU: layers with what follows them in one kernel.

They hold everywhere; they are no part of the rule book because they pay only on a GPU where each kernel is launched as
the program says. A compiler that makes kernels of its own, as ``torch.compile`` does, is better off without them. A
program that calls the layers needs ``import gsl.kernels`` before it is loaded.
"""

from __future__ import annotations

from gsl import attr, op, pat
from gsl.rewrite import RuleSet
from gsl.rules import packed
from gsl.rules.common import HALF_DTYPES, RuleSides, rule, same_dtype
from gsl.rules.packed import as_rows, dense


def uniform(x: pat.Pattern, *others: pat.Pattern) -> attr.Expr:
    """True if all have one dtype, for which there are kernels."""
    return attr.In(x.dtype, (*HALF_DTYPES, "float32")) & same_dtype(x, *others)


@rule(extern_use=False)
def fuse_dense_activation() -> RuleSides:
    """f(x wᵀ + b) = fused(x, w, b; f)

    For a relu, or GELU by its formula of tanh. The layer must have no other use.
    """
    x, w, b = pat.Wildcard(), pat.Param(ndim=2), pat.Param(ndim=1)
    product = dense(x, w)
    layer = op.BiasAdd(product, b, axis=product.ndim - 1)
    f = pat.Alt(op.ReLU(layer), op.GELU(layer, approximate="tanh"))
    weight = as_rows(product, w)
    targets = [op.PackedDense(x, weight, b, activation=name) for name in ("relu", "gelu_tanh")]
    return f, pat.Match(f, targets), uniform(x, w, b)


@rule()
def fuse_conv() -> RuleSides:
    """conv(x, w) = fused(x, w)

    For a convolution of images, which has the channels last in memory then, as those before and behind it.
    """
    return packed.conv_alone(uniform)


@rule(priority=1, extern_use=False)
def fuse_conv_bias() -> RuleSides:
    """conv(x, w) + b = fused(x, w, b)

    As fuse-conv, before which it comes. The convolution without its bias must have no other use.
    """
    return packed.conv_bias(uniform, pat.Param())


@rule(priority=3, extern_use=False)
def fuse_conv_activation() -> RuleSides:
    """f(conv(x, w) + b) = fused(x, w, b; f)

    As fuse-conv-bias, before which it comes, with a bias or without. A relu is computed by the convolution. The
    convolution must have no other use.
    """
    return packed.conv_activation(uniform, pat.Param())


@rule(priority=4, extern_use=False)
def fuse_conv_add_relu() -> RuleSides:
    """relu(conv(x, w) + b + y) = fused(x, w, b, y; relu)

    For a y of the same shape, with a bias or without: the end of a residual block. The convolution must have no other
    use.
    """
    return packed.conv_add(uniform, pat.Param(), "relu")


@rule(extern_use=False)
def attention_of_groups() -> RuleSides:
    """attention(q, repeat(k), repeat(v), m) = attention(q, k, v, m), each head of k and v for a group of queries

    Of tensors with four axes, (batch, heads, positions, size), where an expansion of a fifth axis, and a reshape,
    repeat each head of the keys and of the values for as many heads of the queries.
    """
    q, k, v, mask = pat.Wildcard(ndim=4), pat.Wildcard(ndim=5), pat.Wildcard(ndim=5), pat.Wildcard()
    wide = [op.BroadcastTo(k), op.BroadcastTo(v)]
    repeated = [op.Reshape(each) for each in wide]
    masked, plain = (op.Attention(q, *repeated, *more, enable_gqa=False) for more in ((mask,), ()))
    heads = [op.Reshape(each, newshape=each.shape[:2] + each.shape[3:]) for each in (k, v)]
    source = pat.Alt(masked, plain)
    targets = [masked.like(q, *heads, mask, enable_gqa=True), plain.like(q, *heads, enable_gqa=True)]
    fits = [k.shape[1] == v.shape[1]]
    for few, many, whole in zip((k, v), wide, repeated, strict=True):
        fits += [many.ndim == 5, few.shape[2] == 1, *(few.shape[axis] == many.shape[axis] for axis in (0, 1, 3, 4))]
        fits += [whole.ndim == 4, *(many.shape[axis] == whole.shape[to] for axis, to in ((0, 0), (3, 2), (4, 3)))]
        fits.append(whole.shape[1] == q.shape[1])
    return source, pat.Match(source, targets), *fits


GPU = RuleSet((
    fuse_dense_activation, fuse_conv, fuse_conv_bias, fuse_conv_activation, fuse_conv_add_relu, attention_of_groups,
))  # fmt: skip
"""The rules for a GPU. ``gsl.optimize`` finds out which of them pay there."""

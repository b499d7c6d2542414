"""The normal form: one way of writing what programs write in many ways, so that one rule of an idiom finds them all.

Exports, decomposed exports, graphs of ``torch.compile``, traced modules and Relax modules spell one model differently.
In the normal form

* what changes nothing is gone: copies, casts, reshapes, slices and expansions to the same, dropout, factors of 1;
* transpositions that follow each other are one, and so are reshapes and casts; an axis of size 1 comes and goes by a
  reshape, and behind a reduction by its ``keepdims``. A transposition stays where it is before a product: a rule that
  wants the second operand of a product the other way round transposes it in its target, and the two transpositions
  become one or none;
* a concatenation within another one along its axis is part of that one;
* a product has the leading axes that its users want: matrices flattened before a product and taken apart after it
  (what torch decomposes linear layers and batched products into) are the product of the tensors themselves;
* a linear layer is ``op.Dense(x, w)``, with a weight of (units, in), also where a program multiplies with a weight of
  (in, units) as GPT-2 does; its bias is ``op.BiasAdd`` along the last axis;
* numbers that are added or multiplied stand on the right of tensors, squares are ``op.Square``.

No rule moves elements that were not moved before, and none makes two products of one.
"""

from __future__ import annotations

from functools import partial

import numpy as np

from gsl import attr, op, pat
from gsl.match import Match
from gsl.match.literals import known_value
from gsl.rewrite import RuleSet
from gsl.rules import layout, leading
from gsl.rules.common import (
    FLOATS,
    RuleSides,
    channel_wise,
    channels_first,
    convolution,
    rule,
    same_dtype,
    same_type,
    weight,
)  # fmt: skip
from gsl.rules.einsum import einsum_product

_INTEGERS = ("uint8", "int8", "int16", "int32", "int64")

# What changes nothing


@rule(priority=2)
def broadcast_identity() -> RuleSides:
    """broadcast_to(x, shape of x) = x

    Symbolic sizes must be the same expressions.
    """
    x = pat.Wildcard()
    return op.BroadcastTo(x, shape=x.shape), x


@rule(priority=2)
def broadcast_broadcast() -> RuleSides:
    """broadcast_to(broadcast_to(x, s), t) = broadcast_to(x, t)

    Everywhere: what is broadcast to s is broadcast to what s is broadcast to.
    """
    x = pat.Wildcard()
    outer = op.BroadcastTo(op.BroadcastTo(x))
    return outer, op.BroadcastTo(x, shape=outer.shape)


@rule(priority=2)
def tile_identity() -> RuleSides:
    """tile(x; 1, …) = x

    Symbolic sizes must be the same expressions.
    """
    x = pat.Wildcard()
    return op.Tile(x, shape=x.shape), x


@rule(priority=2)
def slice_identity() -> RuleSides:
    """x[:, …, :] = x

    Where the slice has the shape of x, and no stride is negative.
    """
    x = pat.Wildcard()
    part = op.StridedSlice(x, shape=x.shape)
    return part, x, (attr.Len(part.strides) == 0) | (attr.min(part.strides) > 0)


@rule(priority=2)
def multiply_one() -> RuleSides:
    """x · 1 = x

    Where the product has the shape and dtype of x.
    """
    x = pat.Wildcard()
    product = x * 1
    return product, x, same_type(x, product)


@rule(priority=2)
def divide_one() -> RuleSides:
    """x / 1 = x

    Where the quotient has the shape and dtype of x.
    """
    x = pat.Wildcard()
    quotient = x / 1
    return quotient, x, same_type(x, quotient)


@rule(priority=2)
def add_zero() -> RuleSides:
    """x + 0 = x

    For integers (among floats, -0 + 0 is 0; see sum-from-zero), where the sum has the shape and dtype of x.
    """
    x = pat.Wildcard()
    total = x + 0
    return total, x, same_type(x, total) & attr.In(x.dtype, _INTEGERS)


@rule(priority=2)
def subtract_zero() -> RuleSides:
    """x - 0 = x

    Where the difference has the shape and dtype of x.
    """
    x = pat.Wildcard()
    difference = x - 0
    return difference, x, same_type(x, difference)


# Axes of size 1


@rule(priority=1)
def expand_dims_reshape() -> RuleSides:
    """expand_dims(x) = reshape(x)

    Everywhere; so the reshapes around it become one.
    """
    x = pat.Wildcard()
    expanded = op.ExpandDims(x)
    return expanded, op.Reshape(x, newshape=expanded.shape)


@rule(priority=1)
def squeeze_reshape() -> RuleSides:
    """squeeze(x) = reshape(x)

    Everywhere.
    """
    x = pat.Wildcard()
    squeezed = op.Squeeze(x)
    return squeezed, op.Reshape(x, newshape=squeezed.shape)


@rule(priority=1)
def transpose_reshape() -> RuleSides:
    """transpose(x) = reshape(x)

    Where only axes of size 1 change their places among the others.
    """
    x = pat.Wildcard()
    turned = op.Transpose(x)

    def keeps_order(match: Match) -> bool | str:
        shape, axes = match[x].shape, match[turned].attrs["axes"]
        if shape is None or axes is None:
            return "the shape is not known"
        wide = [axis for axis in axes if shape[axis] != 1]
        return wide == sorted(wide) or "axes of more than one element change their places"

    return turned, op.Reshape(x, newshape=turned.shape), keeps_order


@rule(extern_use=False)
def transpose_units() -> RuleSides:
    """reshape(transpose(reshape(x))) = reshape(transpose(reshape(x))), without axes of size 1 in between

    Where the transposed tensor has such axes, as an einsum that is decomposed leaves them.
    """
    x = pat.Wildcard()
    inner = op.Reshape(x)
    turned = op.Transpose(inner)
    outer = op.Reshape(turned)

    def has_units(match: Match) -> bool | str:
        return 1 in (match[inner].shape or ()) or "no axis has size 1"

    def without(match: Match) -> pat.Pattern:
        shape, axes = match[inner].shape or (), match[turned].attrs["axes"]
        kept = [axis for axis, size in enumerate(shape) if size != 1]
        order = tuple(kept.index(axis) for axis in axes if axis in kept)
        narrow = op.Reshape(x, newshape=tuple(shape[axis] for axis in kept))
        return op.Reshape(op.Transpose(narrow, axes=order), newshape=outer.shape)

    return outer, without, has_units


@rule()
def where_broadcast() -> RuleSides:
    """where(broadcast_to(c), x, y) = where(c, x, y)

    Where the result has the shape of x or y, so that it does not need that of the condition.
    """
    c, x, y = pat.Wildcard(), pat.Wildcard(), pat.Wildcard()
    chosen = op.Where(op.BroadcastTo(c), x, y)
    return chosen, chosen.like(c, x, y), (x.shape == chosen.shape) | (y.shape == chosen.shape)


def where_known(truth: bool) -> RuleSides:
    """A choice by a tensor all of whose elements are true, or all false; what is chosen has the type of the result."""
    leaves = pat.Param(dtype="bool"), pat.Const(dtype="bool")
    c, x, y = pat.Alt(*leaves), pat.Wildcard(), pat.Wildcard()
    whole, chosen = op.Where(c, x, y), x if truth else y

    def is_known(match: Match) -> bool | str:
        value = known_value(match[c])
        is_alike = value is truth or (hasattr(value, "all") and bool((value == truth).all()))
        return is_alike or f"not all elements of %{match[c].name} are {truth}"

    is_known.values = dict.fromkeys(leaves, partial(np.full, fill_value=truth))  # type: ignore[attr-defined]
    return whole, chosen, same_type(whole, chosen), is_known


@rule()
def where_true() -> RuleSides:
    """where(c, x, y) = x

    For a weight or a literal c all of whose elements are true, where x has the shape and the dtype of the result.
    """
    return where_known(True)


@rule()
def where_false() -> RuleSides:
    """where(c, x, y) = y

    As where-true, for a c all of whose elements are false.
    """
    return where_known(False)


@rule(priority=2)
def lent_shape() -> RuleSides:
    """reshape(x; shape of y) = reshape(x; s)

    Where the shape s is one of numbers: so what only lends its shape, as to ``reshape_as``, has one use less.
    """
    x = pat.Wildcard()
    out = op.Reshape(x)

    def is_lent(match: Match) -> bool | str:
        if not match[out].deps:
            return "no other tensor lends the shape"
        return all(isinstance(size, int) for size in match[out].shape or (None,)) or "the shape has symbolic sizes"

    return out, op.Reshape(x, newshape=out.shape), is_lent


@rule(extern_use=False)
def reduce_keepdims() -> RuleSides:
    """reshape(max(x)) = max(x; keepdims)

    For a mean, a sum, a largest or a smallest element along one axis, which the reshape puts back with size 1.
    """
    x = pat.Wildcard()
    reduced = pat.Call(pat.OneOf("max", "mean", "min", "sum"), x, keepdims=False, exclude=False)
    out = op.Reshape(reduced)
    axis = reduced.axis[0]
    fits = (attr.Len(reduced.axis) == 1) & (out.shape == x.shape[:axis] + attr.Tuple(1) + x.shape[axis + 1 :])
    return out, reduced.like(x, keepdims=True), fits


# Squares


@rule(priority=1)
def power_two() -> RuleSides:
    """x ^ 2 = x²

    For floats, where the power has the shape and dtype of x.
    """
    x = pat.Wildcard()
    power = op.Power(x, 2)
    return power, op.Square(x), same_type(x, power) & attr.In(x.dtype, FLOATS)


@rule(priority=1)
def multiply_same() -> RuleSides:
    """x · x = x²

    For floats.
    """
    x = pat.Wildcard()
    return x * x, op.Square(x), attr.In(x.dtype, FLOATS)


# Means


@rule(priority=1, extern_use=False)
def sum_mean() -> RuleSides:
    """sum(x) / n = mean(x), and sum(x) · (1 / n)

    For floats, along one axis of n elements.
    """
    x = pat.Wildcard()
    total = op.Sum(x, exclude=False)
    count = x.shape[total.axis[0]]
    mean = op.Mean(x, axis=total.axis, keepdims=total.keepdims, exclude=False)
    fits = attr.In(x.dtype, FLOATS) & (attr.Len(total.axis) == 1) & (count > 0)
    return total / pat.Const(count) | total * pat.Const(1 / count), mean, fits


# Linear layers


@rule(priority=1)
def matmul_transposed() -> RuleSides:
    """x (wᵀ) = x wᵀ: a product with a transposed matrix is a linear layer

    Where w has two axes, and x two or more.
    """
    x, w = pat.Wildcard(), pat.Wildcard(ndim=2)
    turned = op.Transpose(w, axes=(1, 0))
    product = op.Matmul(x, turned)
    return product, op.Dense(x, w, out_dtype=product.out_dtype), x.ndim >= 2


@rule(priority=1)
def matmul_repeated() -> RuleSides:
    """x broadcast_to(w) = x w: a matrix again and again is the matrix

    Where w has two axes, and x has the leading axes of the product. Torch decomposes a linear layer of a tensor that is
    transposed so.
    """
    x, w = pat.Wildcard(), pat.Wildcard(ndim=2)
    repeated = op.BroadcastTo(w)
    spread = pat.Alt(op.Reshape(repeated), repeated)
    product = op.Matmul(x, spread)
    keeps = (repeated.shape[-2:] == w.shape) & (spread.shape[-2:] == w.shape)
    return product, product.like(x, w), keeps, x.shape[:-1] == product.shape[:-1]


@rule(priority=1)
def matmul_single() -> RuleSides:
    """x reshape(w; 1, …, in, units) = x reshape(w; in, units): a batch of one matrix is the matrix

    For a weight w, where x has the leading axes of the product. Torch decomposes an einsum with a weight so.
    """
    x, w = pat.Wildcard(), pat.Param()
    single = op.Reshape(w)
    product = op.Matmul(x, single)
    alone = op.Reshape(w, newshape=single.shape[-2:])
    is_one = (single.ndim > 2) & (attr.prod(single.shape[:-2]) == 1)
    return product, product.like(x, alone), is_one, x.shape[:-1] == product.shape[:-1]


@rule(extern_use=False)
def matmul_units() -> RuleSides:
    """x y = reshape(reshape(x) reshape(y)): axes of size 1 before those of the other operand are no axes of a batch

    Of batches of matrices: one of (1, 4, 7, 5) and (4, 5, 7) is one of (4, 7, 5) and (4, 5, 7). Exporters to ONNX take
    the reshapes around the products of an attention away where that leaves its axes so.
    """
    x, y = pat.Wildcard(), pat.Wildcard()
    product = op.Matmul(x, y)
    rank = attr.Cond(x.ndim < y.ndim, x.ndim, y.ndim)
    ahead = [each.shape[: each.ndim - rank] for each in (x, y)]
    parts = [op.Reshape(each, newshape=each.shape[each.ndim - rank :]) for each in (x, y)]
    fits = (rank > 2) & ~(x.ndim == y.ndim) & (attr.prod(ahead[0]) == 1) & (attr.prod(ahead[1]) == 1)
    return product, op.Reshape(product.like(*parts), newshape=product.shape), fits


@rule(priority=1)
def linear_bias() -> RuleSides:
    """x wᵀ + b = bias_add(x wᵀ, b)

    For a product with a matrix, and a vector with an element for each of its columns.
    """
    x, w, b = pat.Wildcard(), pat.Wildcard(ndim=2), pat.Wildcard(ndim=1)
    product = op.Dense(x, w) | op.Matmul(x, w)
    axis = product.ndim - 1
    fits = (x.ndim >= 2) & (b.shape[0] == product.shape[axis]) & same_dtype(b, product)
    return product + b, op.BiasAdd(product, b, axis=axis), fits


@rule(priority=1, extern_use=False)
def conv_bias() -> RuleSides:
    """conv(x, w) + b = bias_add(conv(x, w), b)

    For a weight with one element per output channel: shape (C, 1, …) or (1, C, 1, …). The convolution must have no
    other use, so that both become one call.
    """
    x, w, b = pat.Wildcard(), pat.Wildcard(), weight()
    conv = pat.Call(convolution(), x, w)
    fits = channels_first(conv) & channel_wise(b, conv) & same_dtype(b, conv)
    return conv + b, op.BiasAdd(conv.like(x, w), op.Reshape(b, newshape=(-1,)), axis=1), fits


# Bools


def are_bools(*tensors: pat.Pattern) -> attr.Expr:
    """True if the elements of all are True or False."""
    return attr.all([tensor.dtype == "bool" for tensor in tensors])


@rule()
def bits_of_bools() -> RuleSides:
    """x & y = x ∧ y, x | y = x ∨ y and x ^ y = x ⊻ y

    For bools, of which torch's operators work on bits and ONNX's are logical.
    """
    x, y = pat.Wildcard(), pat.Wildcard()
    bits = pat.Alt(op.BitwiseAnd(x, y), op.BitwiseOr(x, y), op.BitwiseXor(x, y))
    return bits, pat.Match(bits, [op.LogicalAnd(x, y), op.LogicalOr(x, y), op.LogicalXor(x, y)]), are_bools(x, y)


@rule()
def bits_not_of_bools() -> RuleSides:
    """~x = ¬x

    For bools.
    """
    x = pat.Wildcard()
    return op.BitwiseNot(x), op.LogicalNot(x), are_bools(x)


# Bounds


@rule()
def clip_clip() -> RuleSides:
    """clip(clip(x; a, ·); ·, b) = clip(x; a, b)

    As torch decomposes it.
    """
    x = pat.Wildcard()
    below = op.Clip(x, a_max=None)
    both = op.Clip(below, a_min=None)
    return both, both.like(x, a_min=below.a_min)


NORMAL = RuleSet(
    [
        layout.copy_identity, layout.dropout_identity, layout.cast_identity, layout.cast_cast,
        layout.reshape_identity, broadcast_identity, broadcast_broadcast, tile_identity, slice_identity,
        multiply_one, divide_one, add_zero, subtract_zero,
        layout.dispatch_tuple, layout.split_concat, layout.split_concat_variadic, layout.concat_concat,
        expand_dims_reshape, squeeze_reshape, layout.reshape_reshape, layout.transpose_transpose,
        transpose_reshape, transpose_units, where_broadcast, where_true, where_false, lent_shape, reduce_keepdims,
        einsum_product, power_two, multiply_same, sum_mean, clip_clip, bits_of_bools, bits_not_of_bools,
        matmul_transposed, matmul_repeated, matmul_single, matmul_units, linear_bias, conv_bias,
        leading.dense_leading, leading.matrix_leading, leading.bias_leading, leading.batch_leading,
        leading.transpose_leading, leading.softmax_leading, leading.scale_leading, leading.add_leading,
    ],
    tidy=True,
)  # fmt: skip
"""The rules of the normal form."""

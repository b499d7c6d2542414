"""Wrong variants of the rules of the normal form."""

from __future__ import annotations

from gsl import attr, op, pat
from gsl.rules.common import RuleSides, channels_first, precise, same_dtype, same_type, weight
from gsl.rules.leading import by_heads, heads_of, leading_axes
from tests.verify.wrong_rules.table import wrong

# What changes nothing


@wrong("broadcast-identity")
def _() -> RuleSides:
    """a part of the axes only"""
    x = pat.Wildcard(ndim=2)
    out = op.BroadcastTo(x, ndim=3)
    return out, op.BroadcastTo(x * 2, shape=out.shape), precise(x)


@wrong("tile-identity", condition="x.shape[0] == 1")
def _() -> RuleSides:
    """the elements of the first axis in reverse order"""
    x = pat.Wildcard(ndim=2)
    return op.Tile(x, shape=x.shape), op.Reverse(x, axis=(0,))


@wrong("add-zero")
def _() -> RuleSides:
    """one taken for zero"""
    x = pat.Wildcard()
    total = x + 1
    return total, x, same_type(x, total)


@wrong("divide-one")
def _() -> RuleSides:
    """the quotient the other way round"""
    x = pat.Wildcard()
    quotient = 1 / x
    return quotient, x, same_type(x, quotient) & precise(x)


@wrong("power-two")
def _() -> RuleSides:
    """the cube"""
    x = pat.Wildcard()
    power = op.Power(x, 3)
    return power, op.Square(x), same_type(x, power) & precise(x)


@wrong("sum-mean", condition="")
def _() -> RuleSides:
    """the number of the elements of the first axis for that of another one"""
    x = pat.Wildcard(ndim=2)
    total = op.Sum(x, axis=(1,), exclude=False)
    mean = op.Mean(x, axis=(1,), keepdims=total.keepdims, exclude=False)
    return total / pat.Const(x.shape[0]), mean, precise(x) & (x.shape[0] > 0)


@wrong("bits-of-bools", condition="")
def _() -> RuleSides:
    """integers too"""
    x, y = pat.Wildcard(), pat.Wildcard()
    both = op.BitwiseAnd(x, y)
    return both, op.Cast(op.LogicalAnd(x, y), dtype=both.dtype)


@wrong("bits-not-of-bools", condition="")
def _() -> RuleSides:
    """integers too"""
    x = pat.Wildcard()
    return op.BitwiseNot(x), op.Cast(op.LogicalNot(x), dtype=x.dtype)


@wrong("clip-clip", condition="")
def _() -> RuleSides:
    """the upper bound forgotten"""
    x = pat.Wildcard()
    below = op.Clip(x, a_max=None)
    both = op.Clip(below, a_min=None)
    return both, both.like(x, a_min=below.a_min, a_max=None)


@wrong("matmul-transposed", condition="")
def _() -> RuleSides:
    """a matrix that is not transposed"""
    x, w = pat.Wildcard(), pat.Wildcard(ndim=2)
    product = op.Matmul(x, w)
    return product, op.Dense(x, w), (x.ndim >= 2)


@wrong("matmul-repeated", condition="")
def _() -> RuleSides:
    """elements that are repeated next to each other"""
    x, w = pat.Wildcard(), pat.Wildcard(ndim=2)
    spread = op.Reshape(op.BroadcastTo(w))
    product = op.Matmul(x, spread)
    return product, product.like(x, w), spread.shape[-2:] == w.shape, x.shape[:-1] == product.shape[:-1]


@wrong("matmul-single", condition="")
def _() -> RuleSides:
    """the first of several matrices"""
    x, w = pat.Wildcard(), pat.Param(ndim=3)
    single = op.Reshape(w, ndim=3)
    product = op.Matmul(x, single)
    return product, product.like(x, op.Take(single, 0, axis=0)), x.shape[:-1] == product.shape[:-1]


@wrong("matmul-units", condition="")
def _() -> RuleSides:
    """the first one of several products"""
    x, y = pat.Wildcard(ndim=4), pat.Wildcard(ndim=3)
    product = op.Matmul(x, y)
    return product, op.BroadcastTo(product.like(op.Take(x, 0, axis=0), y), shape=product.shape)


@wrong("dense-leading", condition="")
def _() -> RuleSides:
    """rows taken apart in another order"""
    x, w = pat.Wildcard(ndim=2), pat.Wildcard()
    product = op.Dense(x, w)
    out = op.Reshape(product, ndim=3)
    lead = leading_axes(out, product, w.shape[0])
    turned = op.Reshape(op.Transpose(x, axes=(1, 0)), newshape=lead + w.shape[1:])
    return out, out.like(product.like(turned, w)), attr.Len(lead) == 2


@wrong("transpose-leading", condition="")
def _() -> RuleSides:
    """no transposition"""
    x = pat.Wildcard(ndim=3)
    turned = op.Transpose(x, axes=(0, 2, 1))
    out, fits = heads_of(turned)
    return out, by_heads(x, out), fits


@wrong("broadcast-broadcast", condition="", examples=20)
def _() -> RuleSides:
    """a transposition in between, whose order is ignored"""
    x = pat.Wildcard()
    outer = op.BroadcastTo(op.Transpose(op.BroadcastTo(x, ndim=2), axes=(1, 0)))
    return outer, op.BroadcastTo(x, shape=outer.shape)


@wrong("slice-identity", condition="")
def _() -> RuleSides:
    """a slice that goes backwards"""
    x = pat.Wildcard()
    return op.StridedSlice(x, shape=x.shape), x


@wrong("multiply-one", condition="", examples=20)
def _() -> RuleSides:
    """a sign that is lost"""
    x = pat.Wildcard()
    product = x * -1
    return product, x, same_type(x, product)


@wrong("subtract-zero", condition="", examples=20)
def _() -> RuleSides:
    """the difference the other way round"""
    x = pat.Wildcard()
    difference = 0 - x
    return difference, x, same_type(x, difference) & precise(x)


@wrong("expand-dims-reshape", condition="", examples=20)
def _() -> RuleSides:
    """the other axes exchanged"""
    x = pat.Wildcard(ndim=2)
    expanded = op.ExpandDims(x)
    return expanded, op.Reshape(op.Transpose(x, axes=(1, 0)), newshape=expanded.shape)


@wrong("squeeze-reshape", condition="", examples=20)
def _() -> RuleSides:
    """the other axes exchanged"""
    x = pat.Wildcard(ndim=3)
    squeezed = op.Squeeze(x)
    return squeezed, op.Reshape(op.Transpose(x, axes=(2, 1, 0)), newshape=squeezed.shape)


@wrong("transpose-reshape", condition="", examples=20)
def _() -> RuleSides:
    """axes of any size"""
    x = pat.Wildcard()
    turned = op.Transpose(x)
    return turned, op.Reshape(x, newshape=turned.shape)


@wrong("transpose-units", condition="", examples=20)
def _() -> RuleSides:
    """the other axes not transposed"""
    x = pat.Wildcard()
    inner = op.Reshape(x)
    outer = op.Reshape(op.Transpose(inner))
    return outer, op.Reshape(x, newshape=outer.shape), attr.In(1, inner.shape)


@wrong("where-broadcast", condition="", examples=20)
def _() -> RuleSides:
    """the choices exchanged"""
    c, x, y = pat.Wildcard(), pat.Wildcard(), pat.Wildcard()
    chosen = op.Where(op.BroadcastTo(c), x, y)
    return chosen, chosen.like(c, y, x), (x.shape == chosen.shape) & same_type(x, y)


@wrong("where-true", condition="", examples=20)
def _() -> RuleSides:
    """the other choice"""
    c, x, y = pat.Param(dtype="bool"), pat.Wildcard(), pat.Wildcard()
    whole = op.Where(c, x, y)
    return whole, y, same_type(whole, y)


@wrong("where-false", condition="", examples=20)
def _() -> RuleSides:
    """a condition that is no weight"""
    c, x, y = pat.Wildcard(dtype="bool"), pat.Wildcard(), pat.Wildcard()
    whole = op.Where(c, x, y)
    return whole, y, same_type(whole, y)


@wrong("einsum-product", condition="", examples=20)
def _() -> RuleSides:
    """the result not transposed"""
    a, b = pat.Wildcard(ndim=2), pat.Wildcard(ndim=2)
    whole = op.Einsum(pat.Tuple(a, b), equation="ij,jk->ki")
    return whole, op.Matmul(a, b), (a.shape[0] == b.shape[1]) & (a.shape[1] == b.shape[0])


@wrong("einsum-product", condition="", examples=20)
def _() -> RuleSides:
    """the result not transposed, with dots"""
    a, b = pat.Wildcard(ndim=3), pat.Wildcard(ndim=3)
    whole = op.Einsum(pat.Tuple(a, b), equation="...ij,...jk->...ki")
    square = (a.shape[0] == b.shape[0]) & (a.shape[1] == b.shape[2]) & (a.shape[2] == b.shape[1])
    return whole, op.Matmul(a, b), square


@wrong("multiply-same", condition="", examples=20)
def _() -> RuleSides:
    """a product of two tensors"""
    x, y = pat.Wildcard(), pat.Wildcard()
    return x * y, op.Square(x), same_type(x, y) & precise(x)


# Products


@wrong("linear-bias", condition="", examples=20)
def _() -> RuleSides:
    """a bias of the rows"""
    x, w, b = pat.Wildcard(ndim=2), pat.Wildcard(ndim=2), pat.Wildcard(ndim=1)
    product = op.Dense(x, w)
    square = (x.shape[0] == w.shape[0]) & (b.shape[0] == x.shape[0])
    return product + b, op.BiasAdd(product, b, axis=0), square & same_dtype(b, product)


@wrong("reduce-keepdims", condition="", examples=20)
def _() -> RuleSides:
    """a size of 1 on another axis"""
    x = pat.Wildcard(ndim=3)
    reduced = op.Sum(x, axis=(1,), keepdims=False, exclude=False)
    out = op.Reshape(reduced, ndim=3)
    return out, op.Sum(x, axis=(2,), keepdims=True, exclude=False), out.shape == x.shape[:2] + attr.Tuple(1)


@wrong("conv-bias", condition="")
def _() -> RuleSides:
    """a weight of the last axis"""
    x, w, b = pat.Wildcard(), pat.Wildcard(), weight()
    conv = op.Conv2D(x, w)
    square = (b.ndim == 1) & (b.shape[0] == conv.shape[1]) & (b.shape[0] == conv.shape[3])
    return conv + b, op.BiasAdd(conv, b, axis=1), channels_first(conv) & square & same_dtype(b, conv)


@wrong("matrix-leading", condition="", examples=20)
def _() -> RuleSides:
    """rows taken apart in another order"""
    x, w = pat.Wildcard(ndim=2), pat.Wildcard(ndim=2)
    product = op.Matmul(x, w)
    out = op.Reshape(product, ndim=3)
    lead = leading_axes(out, product, w.shape[1])
    turned = op.Reshape(op.Transpose(x, axes=(1, 0)), newshape=lead + w.shape[:1])
    return out, out.like(product.like(turned, w)), attr.Len(lead) == 2


@wrong("bias-leading", condition="", examples=20)
def _() -> RuleSides:
    """the bias dropped"""
    x, b = pat.Wildcard(), pat.Wildcard()
    out = op.Reshape(op.BiasAdd(x, b, axis=x.ndim - 1))
    return out, out.like(x)


@wrong("batch-leading", condition="", examples=20)
def _() -> RuleSides:
    """the operands exchanged"""
    a, b = pat.Wildcard(ndim=3), pat.Wildcard(ndim=3)
    product = op.Matmul(a, b)
    out, fits = heads_of(product)
    return out, product.like(by_heads(b, out), by_heads(a, out)), fits & (a.shape == b.shape)


@wrong("softmax-leading", condition="", examples=20)
def _() -> RuleSides:
    """the number of the axis as it was"""
    x = pat.Wildcard(ndim=3)
    out, fits = heads_of(op.Softmax(x, axis=2))
    return out, op.Softmax(by_heads(x, out), axis=2), fits


@wrong("scale-leading", condition="", examples=20)
def _() -> RuleSides:
    """a quotient taken for a product"""
    x, c = pat.Wildcard(ndim=3), pat.Const(ndim=0)
    out, fits = heads_of(pat.Call(pat.OneOf("multiply", "divide"), x, c))
    return out, by_heads(x, out) * c, fits & precise(x)


@wrong("add-leading", condition="", examples=20)
def _() -> RuleSides:
    """one summand twice"""
    x, y = pat.Wildcard(ndim=3), pat.Wildcard(ndim=3)
    out, fits = heads_of(x + y)
    return out, by_heads(x, out) + by_heads(x, out), fits & same_type(x, y)

"""The leading axes of products: those that the users of a product want.

torch decomposes linear layers and batched products into products of flattened matrices, with reshapes around them. Here
a reshape behind a product goes before it, and there becomes nothing with the one that flattens.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from gsl import attr, op, pat
from gsl.rules.common import RuleSides, rule

_MOST_AXES = 6
"""The largest number of axes into which a row may be taken apart."""


def is_last(out: pat.Pattern) -> Callable[[Any], bool]:
    """The condition that no reshape follows a reshape: it says what shape its users want."""

    def holds(match: Any) -> bool:
        return all(user.op != "reshape" for user in match[out].users)

    return holds


def leading_axes(out: pat.Pattern, product: pat.Pattern, row: attr.Expr) -> attr.Expr:
    """The leading axes of a reshaped product: those before the axes that hold a row of so many elements.

    Where no axes hold just that, the leading axes of the product itself. The sizes are multiplied from the last one on
    until they are the size of a row, so that symbolic leading sizes are compared with nothing.
    """
    own = product.shape[:-1]
    found = own
    for behind in range(_MOST_AXES, 0, -1):
        holds = attr.prod(out.shape[out.ndim - behind :]) == row
        found = attr.Cond(out.ndim < behind, own, attr.Cond(holds, out.shape[: out.ndim - behind], found))
    return found


@rule(extern_use=False)
def dense_leading() -> RuleSides:
    """reshape(x wᵀ) = reshape(reshape(x) wᵀ)

    Where the leading axes of x are not those of the result: a product of (14, 8) with (6, 8)ᵀ that becomes (2, 7, 6) or
    (2, 7, 3, 2) is one of (2, 7, 8).
    """
    x, w = pat.Wildcard(), pat.Wildcard()
    product = op.Dense(x, w)
    out = op.Reshape(product)
    lead = leading_axes(out, product, w.shape[0])
    taken = op.Reshape(x, newshape=lead + w.shape[1:])
    return out, out.like(product.like(taken, w)), lead != x.shape[:-1], is_last(out)


@rule(extern_use=False)
def matrix_leading() -> RuleSides:
    """reshape(x w) = reshape(reshape(x) w)

    As dense-leading, for a product with a matrix as it is.
    """
    x, w = pat.Wildcard(), pat.Wildcard(ndim=2)
    product = op.Matmul(x, w)
    out = op.Reshape(product)
    lead = leading_axes(out, product, w.shape[1])
    taken = op.Reshape(x, newshape=lead + w.shape[:1])
    return out, out.like(product.like(taken, w)), (x.ndim >= 2) & (lead != x.shape[:-1]), is_last(out)


@rule(extern_use=False)
def bias_leading() -> RuleSides:
    """reshape(bias_add(x, b)) = reshape(bias_add(reshape(x), b))

    For a bias of the last axis, as dense-leading.
    """
    x, b = pat.Wildcard(), pat.Wildcard()
    biased = op.BiasAdd(x, b, axis=x.ndim - 1)
    out = op.Reshape(biased)
    lead = leading_axes(out, biased, b.shape[0])
    taken = op.Reshape(x, newshape=lead + b.shape)
    return out, out.like(op.BiasAdd(taken, b, axis=attr.Len(lead))), lead != x.shape[:-1], is_last(out)


def heads_of(whole: pat.Pattern) -> tuple[pat.Call, attr.Expr]:
    """A reshape that takes the first of three axes apart into two, batch and heads; and whether it is one."""
    out = op.Reshape(whole, ndim=4)
    return out, out.shape[2:] == whole.shape[1:]


def by_heads(x: pat.Pattern, out: pat.Pattern) -> pat.Call:
    """A tensor of three axes, of which the first one is taken apart as in the result."""
    return op.Reshape(x, newshape=out.shape[:2] + x.shape[1:])


@rule(extern_use=False)
def batch_leading() -> RuleSides:
    """reshape(a b) = reshape(a) reshape(b)

    For batched products: one of (8, 7, 5) and (8, 5, 7) that becomes (2, 4, 7, 7) is one of (2, 4, 7, 5) and (2, 4, 5,
    7). Where both operands have three axes, and the same first one.
    """
    a, b = pat.Wildcard(ndim=3), pat.Wildcard(ndim=3)
    product = op.Matmul(a, b)
    out, fits = heads_of(product)
    return out, product.like(by_heads(a, out), by_heads(b, out)), fits & (a.shape[0] == b.shape[0]), is_last(out)


@rule(extern_use=False)
def transpose_leading() -> RuleSides:
    """reshape(transpose(x)) = transpose(reshape(x))

    Where the last two of three axes are exchanged, and the first one is taken apart: an operand of a batched product,
    as batch-leading leaves it.
    """
    x = pat.Wildcard(ndim=3)
    turned = op.Transpose(x, axes=(0, 2, 1))
    out, fits = heads_of(turned)
    return out, op.Transpose(by_heads(x, out), axes=(0, 1, 3, 2)), fits, is_last(out)


@rule(extern_use=False)
def softmax_leading() -> RuleSides:
    """reshape(softmax(x)) = softmax(reshape(x))

    Along the last of three axes, where the first one is taken apart.
    """
    x = pat.Wildcard(ndim=3)
    whole = op.Softmax(x, axis=2)
    out, fits = heads_of(whole)
    return out, op.Softmax(by_heads(x, out), axis=3), fits, is_last(out)


@rule(extern_use=False)
def scale_leading() -> RuleSides:
    """reshape(x · c) = reshape(x) · c, and x / c

    For a number c, where the first of three axes is taken apart.
    """
    x, c = pat.Wildcard(ndim=3), pat.Const(ndim=0)
    whole = pat.Call(pat.OneOf("multiply", "divide"), x, c)
    out, fits = heads_of(whole)
    return out, whole.like(by_heads(x, out), c), fits, is_last(out)


@rule(extern_use=False)
def add_leading() -> RuleSides:
    """reshape(x + y) = reshape(x) + reshape(y)

    Where the first of three axes is taken apart, which both have.
    """
    x, y = pat.Wildcard(ndim=3), pat.Wildcard(ndim=3)
    whole = x + y
    out, fits = heads_of(whole)
    return out, by_heads(x, out) + by_heads(y, out), fits & (x.shape[0] == y.shape[0]), is_last(out)

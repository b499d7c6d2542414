"""Wrong variants of the rules for attention, of scores that only some of the steps were applied to."""

from __future__ import annotations

from typing import Any

from gsl import attr, op, pat
from gsl.rules.common import RuleSides
from gsl.rules.idioms.attention import turned
from tests.verify.wrong_rules.table import wrong


def operands() -> tuple[pat.Pattern, pat.Pattern, pat.Pattern, list[Any]]:
    """Queries, transposed keys, values, and the conditions on them."""
    q, k, v = (pat.Wildcard(ndim=3) for _ in range(3))
    return q, k, v, [x.dtype == "float64" for x in (q, k, v)]


def weighted(scores: pat.Pattern, v: pat.Pattern, axis: int = 2) -> pat.Call:
    """The values, weighted by a softmax of the scores."""
    return op.Matmul(op.Softmax(scores, axis=axis), v)


def with_mask(sign: int, *, lost: bool = False) -> RuleSides:
    q, k, v, conditions = operands()
    m = pat.Wildcard(ndim=3, dtype="float64")
    product = op.Matmul(q, k)
    masked = product + m if sign > 0 else product - m
    return weighted(masked, v), op.Attention(q, turned(k), v, *([] if lost else [m]), scale=1.0), *conditions


@wrong("attention", condition="", examples=20)
def _() -> RuleSides:
    """a lost mask"""
    return with_mask(1, lost=True)


@wrong("attention", condition="", examples=20)
def _() -> RuleSides:
    """a mask of the wrong sign"""
    return with_mask(-1)


@wrong("attention", condition="", examples=20)
def _() -> RuleSides:
    """a lost factor"""
    q, k, v, conditions = operands()
    return weighted(op.Matmul(q, k) * 0.5, v), op.Attention(q, turned(k), v, scale=1.0), *conditions


@wrong("attention", condition="", examples=20)
def _() -> RuleSides:
    """the usual factor where there is none"""
    q, k, v, conditions = operands()
    return weighted(op.Matmul(q, k), v), op.Attention(q, turned(k), v), *conditions


@wrong("attention", condition="", examples=20)
def _() -> RuleSides:
    """a softmax over another axis"""
    q, k, v, conditions = operands()
    return weighted(op.Matmul(q, k), v, axis=1), op.Attention(q, turned(k), v, scale=1.0), *conditions


@wrong("attention", condition="", examples=20)
def _() -> RuleSides:
    """queries and keys exchanged"""
    q, k, v, conditions = operands()
    return weighted(op.Matmul(q, k), v), op.Attention(turned(k), q, v, scale=1.0), *conditions


@wrong("attention", condition="", examples=20)
def _() -> RuleSides:
    """keys and values exchanged"""
    q, k, v, conditions = operands()
    return weighted(op.Matmul(q, k), v), op.Attention(q, v, turned(k), scale=1.0), *conditions


@wrong("attention", condition="", examples=20)
def _() -> RuleSides:
    """weights that are not turned before values whose channels come first"""
    q, k, v, conditions = operands()
    soft = op.Softmax(op.Matmul(q, k), axis=2)
    return op.Matmul(v, soft), turned(op.Attention(q, turned(k), turned(v), scale=1.0)), *conditions


@wrong("attention-of-two", condition="", examples=20)
def _() -> RuleSides:
    """the values exchanged"""
    q, k, v, conditions = operands()
    w = pat.Wildcard(ndim=3, dtype="float64")
    soft = op.Softmax(op.Matmul(q, k), axis=2)
    targets = [op.Attention(q, turned(k), values, scale=1.0) for values in (w, v)]
    return [op.Matmul(soft, v), op.Matmul(soft, w)], targets, v.shape == w.shape, *conditions


def of_groups(*, behind: bool = False, **how: float) -> RuleSides:
    """Attention with heads that are repeated beside each other, or one row of them behind the other one."""
    q, k, v = pat.Wildcard(ndim=4, dtype="float64"), *(pat.Wildcard(ndim=5, dtype="float64") for _ in range(2))
    wide = [op.BroadcastTo(k), op.BroadcastTo(v)]
    repeated = [op.Reshape(each) for each in wide]
    attention = op.Attention(q, *repeated, enable_gqa=False)
    times, heads = (1, 2) if behind else (2, 1)
    fits = [k.shape[heads] == v.shape[heads]]
    for few, many, whole in zip((k, v), wide, repeated):
        fits += [many.ndim == 5, few.shape[times] == 1]
        fits += [few.shape[axis] == many.shape[axis] for axis in (0, heads, 3, 4)]
        fits += [whole.ndim == 4, *(many.shape[axis] == whole.shape[to] for axis, to in ((0, 0), (3, 2), (4, 3)))]
        fits.append(whole.shape[1] == q.shape[1])
    few = [op.Squeeze(each, axis=(times,)) for each in (k, v)]
    return attention, attention.like(q, *few, enable_gqa=True, **how), *fits


@wrong("attention-of-groups", condition="", seed=2)
def _() -> RuleSides:
    """heads that are repeated behind each other"""
    return of_groups(behind=True)


@wrong("attention-of-groups", condition="")
def _() -> RuleSides:
    """another factor"""
    return of_groups(scale=1.5)


@wrong("attention-query-factor", condition="", examples=20)
def _() -> RuleSides:
    """a factor in the place of the scale"""
    q, k, v, conditions = operands()
    c = pat.Const(ndim=0)
    found = op.Attention(q * c, k, v)
    return found, found.like(q, k, v, scale=c.value), *conditions


@wrong("attention-key-factor", condition="", examples=20)
def _() -> RuleSides:
    """a divisor taken for a factor"""
    q, k, v, conditions = operands()
    c = pat.Const(ndim=0)
    found = op.Attention(q, k / c, v, scale=0.5)
    return found, found.like(q, k, v, scale=c.value * 0.5), *conditions, c.value > 0


@wrong("attention-sink", condition="", examples=20)
def _() -> RuleSides:
    """a lost sink"""
    q, k, v, sink = (pat.Wildcard(ndim=4, dtype="float64") for _ in range(4))
    soft = op.Softmax(op.Concatenate([op.Matmul(q, k), sink], axis=3), axis=3)
    weights = op.StridedSlice(soft, begin=(0,), end=attr.Tuple(k.shape[3]), strides=(1,), axes=(3,))
    return op.Matmul(weights, v), op.Attention(q, turned(k), v, scale=1.0)


@wrong("attention-bias-of-places", condition="", examples=40)
def _() -> RuleSides:
    """the second bias is lost"""
    product, a, b = op.Matmul(pat.Wildcard(), pat.Wildcard()), pat.Wildcard(), pat.Wildcard()
    apart = op.Reshape(product)
    total = (apart + a) + b
    soft = op.Softmax(op.Reshape(total, shape=product.shape), axis=-1)
    whole = op.Reshape(op.BroadcastTo(a, shape=apart.shape), newshape=product.shape)
    fits = (total.shape == apart.shape) & (a.dtype == product.dtype) & (b.dtype == product.dtype)
    return soft, soft.like(product + whole), fits, product.dtype == "float64"

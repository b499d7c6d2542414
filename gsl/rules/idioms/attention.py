"""Attention as models write it: a product of queries and keys, steps on these scores, a softmax, a product.

Between the two products is a list of steps, each of which may be absent. A step is an alternative of patterns; with
each goes what it means for the mask and for the factor of the scores.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from gsl import attr, op, pat
from gsl.match import Match
from gsl.pat import walk
from gsl.rules.common import FLOATS, HALF_DTYPES, RuleSides, rule, same_dtype, zero_where_hidden

LOWEST = -1e30
"""The largest value that hides a place even in a row of which all places are hidden: scores are lost beside it."""


@dataclass(frozen=True)
class Scores:
    """Scores: the pattern, the sum of the masks that were added up to there, and the factor of the product."""

    pattern: pat.Pattern
    query: pat.Pattern
    """The queries with the factors that are tensors, as a target."""
    product: pat.Call
    masked: attr.Expr
    """True if there is a mask."""
    mask: pat.Pattern
    """The sum of the masks, as a target."""
    scale: attr.Expr
    conditions: tuple[Any, ...] = ()
    lows: tuple[pat.Pattern, ...] = ()
    """The patterns for the scores of hidden places."""

    @property
    def lead(self) -> attr.Expr:
        """The axes before the queries and keys."""
        return self.pattern.shape[:-2]

    def then(self, *steps: ScoresStep) -> Scores:
        """The scores after some steps, each of which may be absent."""
        found = self
        for step in steps:
            after = step(found)
            found = replace(after, conditions=(*after.conditions, after.pattern.extern_use(False)))
        return found


ScoresStep = Callable[[Scores], Scores]
"""One thing that may be done to scores."""


def start(query: pat.Pattern, product: pat.Call) -> Scores:
    """The product itself."""
    return Scores(product, query, product, attr.Const(False), product, attr.Const(1.0))


def scaled(scores: Scores) -> Scores:
    """Scores times or divided by a number, or a tensor with a factor for each query; masks under it follow."""
    x, c, d = scores.pattern, pat.Const(ndim=0), pat.Const(ndim=0)
    t, u = pat.Wildcard(), pat.Wildcard()
    step = pat.Alt(x * c, x / d, x * t, x / u, x)
    of_rows = [
        (scores.lead == scores.product.shape[:-2]) & ((factor.ndim == 0) | (factor.shape[-1] == 1)) for factor in (t, u)
    ]
    return replace(
        scores,
        pattern=step,
        query=pat.Match(step, [scores.query, scores.query, scores.query * t, scores.query / u, scores.query]),
        mask=pat.Match(step, [scores.mask * c, scores.mask / d, scores.mask * t, scores.mask / u, scores.mask]),
        scale=attr.Match(step, [scores.scale * c.value, scores.scale / d.value, *[scores.scale] * 3]),
        conditions=(*scores.conditions, attr.Match(step, [True, True, *of_rows, True]), step.dtype == x.dtype),
    )


def masked(scores: Scores) -> Scores:
    """Scores with a tensor that is added or subtracted, or with a number in the places that a tensor tells."""
    x, m, n, keep, hide = scores.pattern, *(pat.Wildcard() for _ in range(4))
    low, least = number(), number()
    step = pat.Alt(op.Where(keep, x, low), op.Where(hide, least, x), x + m, x - n, x)
    before, plus, minus = scores.mask, as_numbers(m, x), as_numbers(n, x)
    # A single number beside a mask takes the dtype of that.
    more, less = (pat.Cond(mask.ndim == 0, mask, numbers) for mask, numbers in ((m, plus), (n, minus)))
    # Two numbers make a mask of float32, which does not hold the least one of float64.
    zero = pat.Cond(x.dtype == "float64", op.Zeros(shape=(), dtype="float64"), 0.0)
    masks = [
        pat.Cond(scores.masked, among, alone)
        for among, alone in (
            (op.Where(keep, before, low), in_dtype_of(x, op.Where(keep, zero, low))),
            (op.Where(hide, least, before), in_dtype_of(x, op.Where(hide, least, zero))),
            (before + more, plus),
            (before - less, -minus),
        )
    ]
    return replace(
        scores,
        pattern=step,
        masked=attr.Match(step, [True] * 4 + [scores.masked]),
        mask=pat.Match(step, [*masks, before]),
        conditions=(*scores.conditions, step.dtype == x.dtype),
        lows=(*scores.lows, low, least),
    )


def in_dtype_of(x: pat.Pattern, mask: pat.Pattern) -> pat.Pattern:
    """A mask in the dtype of a tensor; in that of the scores, what is added to it is rounded as with them."""
    return pat.Cond(mask.dtype == x.dtype, mask, op.Cast(mask, dtype=x.dtype))


def as_numbers(mask: pat.Pattern, scores: pat.Pattern) -> pat.Pattern:
    """A mask in the dtype of the scores if it holds whole numbers or truth values, which add up in another way."""
    return pat.Cond(attr.In(mask.dtype, FLOATS), mask, op.Cast(mask, dtype=scores.dtype))


def viewed(scores: Scores) -> Scores:
    """Scores of which the leading axes are taken apart, or put together; masks follow."""
    x, mask = scores.pattern, scores.mask
    view = op.Reshape(x)
    step = pat.Alt(view, x)
    rows = attr.Cond(mask.ndim >= 2, mask.shape[-2:], x.shape[-2:])
    moved = op.Reshape(op.BroadcastTo(mask, shape=scores.lead + rows), newshape=view.shape[:-2] + rows)
    return replace(
        scores,
        pattern=step,
        mask=pat.Match(step, [moved, mask]),
        conditions=(*scores.conditions, attr.Match(step, [view.shape[-2:] == x.shape[-2:], True])),
    )


def shifted(scores: Scores) -> Scores:
    """Scores less the largest of their row, which no softmax sees."""
    x = scores.pattern
    return replace(scores, pattern=pat.Alt(x - op.Max(x, axis=(x.ndim - 1,), keepdims=True), x))


def clamped(scores: Scores) -> Scores:
    """Scores of which none is below the least number; so are their masks."""
    x, least = scores.pattern, number()
    step = pat.Alt(op.Maximum(x, least), x)
    return replace(
        scores,
        pattern=step,
        mask=pat.Match(step, [op.Maximum(scores.mask, least), scores.mask]),
        lows=(*scores.lows, least),
    )


def cast(scores: Scores) -> Scores:
    """Scores in another dtype."""
    x = scores.pattern
    return replace(scores, pattern=pat.Alt(op.Cast(x), x))


STEPS = (viewed, scaled, masked, masked, viewed, scaled, masked, masked, viewed, clamped, cast, shifted)
"""The steps that may be applied to scores, in this order; a bias may come before they are scaled, or with a view of its
own."""


def turned(x: pat.Pattern) -> pat.Pattern:
    """A tensor with its last two axes exchanged."""
    n = x.ndim
    return op.Transpose(x, axes=attr.Range(n - 2) + attr.Tuple(n - 1, n - 2))


def with_lead(x: pat.Pattern, lead: attr.Expr, other: attr.Expr) -> pat.Pattern:
    """A tensor whose leading axes are those wanted, where they are others."""
    return pat.Cond(lead == other, x, op.Reshape(x, newshape=lead + x.shape[-2:]))


def number() -> pat.Pattern:
    """A number whose value is known: a literal, a parameter, or a tensor that is filled with one."""
    return pat.Alt(pat.Param(ndim=0), pat.Const(ndim=0), op.Full(pat.Const(), shape=()))


def hides(lows: tuple[pat.Pattern, ...]) -> Any:
    """The condition that places are hidden by a number that is low enough."""

    def low_enough(match: Match) -> bool | str:
        for low in lows:
            node = match.get(low)
            if node is not None:
                value = (node.operands[0] if node.operands else node).attrs["value"]
                if not float(value) <= LOWEST:
                    return f"%{node.name} is {value}, expected {LOWEST} at most"
        return True

    low_enough.values = {leaf: hidden for leaf in walk(*lows) if isinstance(leaf, pat.Leaf)}  # type: ignore[attr-defined]
    return low_enough


def hidden(shape: tuple[int, ...]) -> Any:
    """Numbers that hide places, for instances of the rules."""
    return np.full(shape, LOWEST)


@dataclass(frozen=True)
class GuardedWeights:
    """Weights that are 0 in a row of which all places are hidden by minus infinity, as torch decomposes attention, TVM
    imports that, or torch exports it to ONNX; or weights as they are."""

    weights: pat.Alt
    whole: tuple[bool, ...]
    """For each way, whether attention itself gives that where it is read in this way."""

    @classmethod
    def of(cls, scores: pat.Pattern, soft: pat.Pattern) -> GuardedWeights:
        """The weights, which are a softmax of scores."""
        last = soft.ndim - 1
        seen = op.LogicalNot(op.Equal(scores, -math.inf))
        visible = op.Any(seen, axis=(last,), keepdims=True)
        largest = op.Max(op.Cast(seen), axis=(last,), keepdims=True)
        zeros = op.FullLike(soft, 0)
        ways = {
            op.Where(op.LogicalNot(visible), zeros, soft): True,
            # As TVM imports it. Attention has no zeros there in Relax.
            op.Where(op.LogicalNot(op.Cast(largest, dtype="bool")), zeros, soft): False,
            op.Where(op.IsNan(soft), pat.Alt(pat.Const(0.0), op.Full(pat.Const(0.0), shape=())), soft): False,
            soft: True,
        }
        return cls(pat.Alt(*ways), tuple(ways.values()))

    def match(self, attention: pat.Pattern, mask: pat.Pattern) -> pat.Pattern:
        """What attention with a mask that is added becomes: rows are 0 where it would not have zeros by itself."""
        zeroed = zero_where_hidden(attention, mask)
        return pat.Match(self.weights, [attention if whole else zeroed for whole in self.whole])


@dataclass(frozen=True)
class WeightedValues:
    """Values, and their product with the weights: from the right, or turned from the left, as of images whose channels
    come first."""

    product: pat.Alt
    pattern: pat.Pattern
    """The values with a row for each place, as a target."""
    lead: attr.Expr
    ndim: attr.Expr
    rows: attr.Expr
    """The last two sizes of the product with a row for each query."""

    @classmethod
    def by(cls, weights: pat.Pattern) -> WeightedValues:
        """Values that these weights multiply."""
        v, u = pat.Wildcard(), pat.Wildcard()
        product = pat.Alt(op.Matmul(weights, v), op.Matmul(u, turned(weights)))

        def either(of: Callable[[pat.Pattern], attr.Expr]) -> attr.Expr:
            return attr.Match(product, [of(v), of(u)])

        n = product.ndim
        rows = attr.Match(product, [product.shape[-2:], attr.Tuple(product.shape[n - 1], product.shape[n - 2])])
        return cls(
            product, pat.Match(product, [v, turned(u)]), either(lambda x: x.shape[:-2]), either(lambda x: x.ndim), rows
        )


def sides(*steps: ScoresStep, values: int = 1) -> RuleSides:
    """The sides of the rule for attention whose scores go through these steps, of one tensor of values or several."""
    q, kt = pat.Wildcard(), pat.Wildcard()
    product = op.Matmul(q, kt)
    scores = start(q, product).then(*steps)
    soft = op.Softmax(scores.pattern, axis=-1)
    guarded = GuardedWeights.of(scores.pattern, soft)
    whole = guarded.weights
    back = pat.Alt(op.Cast(whole), whole)
    dropped = pat.Alt(op.Dropout(back), back)
    weights = pat.Alt(op.Reshape(dropped), dropped)
    taken = [WeightedValues.by(weights) for _ in range(values)]
    sources = [each.product for each in taken]

    lead, before, after = soft.shape[:-2], product.shape[:-2], weights.shape[:-2]
    query, key = with_lead(scores.query, lead, before), with_lead(turned(kt), lead, before)
    mask = in_dtype_of(q, scores.mask)
    targets = []
    for each in taken:
        operands = query, key, with_lead(each.pattern, lead, after)
        masked_found = op.Attention(*operands, mask, scale=scores.scale)
        alone = pat.Cond(mask.ndim == 0, masked_found, guarded.match(masked_found, mask))
        kept_found = pat.Cond(scores.masked, alone, op.Attention(*operands, scale=scores.scale))
        whole_found = pat.Cond(lead == after, kept_found, op.Reshape(kept_found, newshape=after + each.rows))
        targets.append(pat.Match(each.product, [whole_found, turned(whole_found)]))
    conditions = [
        (soft.dtype == q.dtype) | ((soft.dtype == "float32") & attr.In(q.dtype, HALF_DTYPES) & (back.dtype == q.dtype)),
        (product.dtype == q.dtype) | ~scores.masked,  # a mask in a wider dtype would be rounded
        (lead == before) | (q.shape[:-2] == kt.shape[:-2]),
        *[(lead == after) | ((each.lead == after) & (weights.shape[-2:] == soft.shape[-2:])) for each in taken],
        *[ndim >= 3 for ndim in (q.ndim, kt.ndim, *(each.ndim for each in taken))],
        *[x.extern_use(False) for x in (product, soft, whole, back, dropped, weights)],
    ]
    return (*((sources[0], targets[0]) if values == 1 else (sources, targets)), *scores.conditions, *conditions,
            hides(scores.lows))  # fmt: skip


@rule()
def attention() -> RuleSides:
    """softmax(q kᵀ · c + m) v = attention(q, k, v, m)

    Of tensors with three axes or more. The scores may be multiplied, masked, cast and taken apart in any of the ways
    above; nothing but the next step may use them. The values may stand on the left: v softmax(…)ᵀ. Where leading axes
    are taken apart, all operands must have them. A place that is hidden by a number counts as masked if the number is
    so low that a row of which all places are hidden has equal weights on both sides. A row without any place that is
    not minus infinity may have weights of 0, which attention gives it, too.
    """
    return sides(*STEPS)


@rule()
def attention_of_two() -> RuleSides:
    """(s v, s w) with s = softmax(q kᵀ · c + m) = (attention(q, k, v, m), attention(q, k, w, m))

    As attention, for weights that are used for two tensors of values.
    """
    return sides(*STEPS, values=2)


def with_zeros(x: pat.Pattern) -> pat.Pattern:
    """The rows of each head, and one of zeros behind them."""
    return op.Concatenate([x, op.Zeros(shape=x.shape[:2] + attr.Tuple(1, x.shape[3]), dtype=x.dtype)], axis=2)


def sides_with_sink(*steps: ScoresStep) -> RuleSides:
    """The sides of the rule for attention with a sink, whose scores go through these steps."""
    q, kt, v, sink = (pat.Wildcard(ndim=4) for _ in range(4))
    product = op.Matmul(q, kt)
    scores = start(q, product).then(*steps)
    shape = scores.pattern.shape
    joined = op.Concatenate([scores.pattern, sink], axis=3)
    logits = pat.Alt(joined - op.Max(joined, axis=(3,), keepdims=True), joined)
    soft = op.Softmax(logits, axis=3)
    weights = op.StridedSlice(soft, begin=(0,), end=attr.Tuple(kt.shape[3]), strides=(1,), axes=(3,))
    mask = in_dtype_of(q, scores.mask)
    # A single number is no mask: a tensor of it would be rounded to another dtype. No concatenation takes it as it is.
    masks = pat.Cond(scores.mask.ndim == 0, mask, op.BroadcastTo(mask, shape=shape))
    whole = pat.Cond(scores.masked, masks, op.Zeros(shape=shape, dtype=q.dtype))
    operands = scores.query, with_zeros(turned(kt)), with_zeros(v), op.Concatenate([whole, sink], axis=3)
    target = op.Attention(*operands, scale=scores.scale)
    conditions = [
        (shape == product.shape) & (sink.shape[3] == 1) & same_dtype(q, kt, v, sink, product),
        *[x.extern_use(False) for x in (product, joined, logits, soft, weights)],
    ]
    return op.Matmul(weights, v), target, *scores.conditions, *conditions, hides(scores.lows)


@rule()
def attention_sink() -> RuleSides:
    """softmax([q kᵀ · c + m, s])[…, :-1] v = attention(q, [k, 0], [v, 0], [m, s])

    A sink s is the score of one more place for each query, which has no value. Of tensors with four axes, in one dtype.
    The scores may be multiplied and masked as in attention, and m is 0 where they are not masked; nothing but the next
    step may use them.
    """
    return sides_with_sink(scaled, masked, masked)


@dataclass(frozen=True)
class Factored:
    """A tensor times or divided by a number, transposed after that or not."""

    source: pat.Alt
    plain: pat.Pattern
    """The tensor without the factor, as a target."""
    factor: attr.Expr
    fits: attr.Expr
    """True if the factor leaves the dtype as it is."""

    @classmethod
    def of(cls) -> Factored:
        """Any such tensor."""
        x, c, d = pat.Wildcard(), pat.Const(ndim=0), pat.Const(ndim=0)
        scaled = pat.Alt(x * c, x / d)
        turned = op.Transpose(scaled)
        source = pat.Alt(turned, scaled)
        return cls(
            source, pat.Match(source, [turned.like(x), x]), attr.Match(scaled, [c.value, 1 / d.value]),
            scaled.dtype == x.dtype,
        )  # fmt: skip


def without_factor(given: Factored, source: list[pat.Pattern], target: list[pat.Pattern], size: attr.Expr) -> RuleSides:
    """The sides of a rule for attention of queries, keys and values, of which one has a factor that goes to the scale;
    ``size`` is that of a head.

    A factor below 0 stays, for torch's kernels of causal attention multiply minus infinity with the scale; so does one
    that is not finite, with which some scores would be numbers and others not.
    """
    mask = pat.Wildcard()
    calls = [op.Attention(*source), op.Attention(*source, mask)]
    whole = pat.Alt(*calls)
    own = attr.Match(whole, [call.scale for call in calls])
    scale = given.factor * attr.Cond(own == None, size**-0.5, own)  # noqa: E711
    targets = [call.like(*target, *more, scale=scale) for call, more in zip(calls, ((), (mask,)), strict=True)]
    return whole, pat.Match(whole, targets), given.fits & (given.factor > 0) & (given.factor < math.inf)


@rule()
def attention_query_factor() -> RuleSides:
    """attention(q · c, k, v; s) = attention(q, k, v; c · s), and q / c

    For a finite number c above 0, which leaves the dtype of the queries as it is; also where the queries are transposed
    after that.
    """
    q, k, v = Factored.of(), pat.Wildcard(), pat.Wildcard()
    return without_factor(q, [q.source, k, v], [q.plain, k, v], q.source.shape[-1])


@rule()
def attention_key_factor() -> RuleSides:
    """attention(q, k · c, v; s) = attention(q, k, v; c · s), and k / c

    As attention-query-factor.
    """
    q, k, v = pat.Wildcard(), Factored.of(), pat.Wildcard()
    return without_factor(k, [q, k.source, v], [q, k.plain, v], q.shape[-1])


@rule(extern_use=False)
def attention_bias_of_places() -> RuleSides:
    """softmax(reshape(reshape(q kᵀ) + a + b)) = softmax(q kᵀ + reshape(a + b)), and of a alone

    Where the places of an image are taken apart into rows and columns for relative positions, and put together again.
    """
    product, a, b = op.Matmul(pat.Wildcard(), pat.Wildcard()), pat.Wildcard(), pat.Wildcard()
    apart = op.Reshape(product)
    once = apart + a
    twice = once + b
    total = twice | once
    soft = op.Softmax(op.Reshape(total, shape=product.shape), axis=-1)
    bias = pat.Match(total, [a + b, a])
    whole = op.Reshape(op.BroadcastTo(bias, shape=apart.shape), newshape=product.shape)
    fits = [
        (total.shape == apart.shape) & (apart.shape[-2:] != product.shape[-2:]),
        same_dtype(product, a) & attr.Match(total, [b.dtype == product.dtype, True]) & attr.In(product.dtype, FLOATS),
    ]
    return soft, soft.like(product + whole), *fits


RULES = (
    attention, attention_of_two, attention_sink, attention_bias_of_places, attention_query_factor, attention_key_factor,
)  # fmt: skip
"""The rules of this family."""

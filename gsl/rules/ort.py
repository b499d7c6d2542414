"""Rules for onnxruntime: calls of its own operators, for what several of ONNX's compute.

They are written for the normal form, and for the idioms in it. They hold everywhere, and pay where onnxruntime runs the
model; nothing else knows these operators.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np

from gsl import attr, op, pat
from gsl.match import Match
from gsl.match.masks import may_hide_rows
from gsl.operators import ort
from gsl.rewrite import RuleSet
from gsl.rules.common import RuleSides, rule, same_dtype, same_type, zero_where_hidden
from gsl.rules.idioms import IDIOMS

FLOATS = ("float16", "float32")
"""The dtypes for which onnxruntime has these operators."""


def last(x: pat.Pattern) -> attr.Expr:
    """The last axis."""
    return attr.Tuple(x.ndim - 1)


def rows(*tensors: pat.Pattern) -> attr.Expr:
    """True if all are tensors of three axes and one shape, in a dtype of these operators."""
    first = tensors[0]
    alike = [same_type(first, other) for other in tensors[1:]]
    return attr.all([first.ndim == 3, attr.In(first.dtype, FLOATS), *alike])


# Norms of sums


def biased() -> tuple[pat.Wildcard, pat.Wildcard, pat.Pattern]:
    """A layer without its bias, the bias, and the layer."""
    x, b = pat.Wildcard(), pat.Wildcard()
    return x, b, op.BiasAdd(x, b, axis=2)


@rule(priority=-2)
def skip_layer_norm() -> RuleSides:
    """layer_norm(x + y, w, b), and x + y = skip_layer_norm(x, y, w, b)

    For tensors of three axes and one shape, over the last one, with a weight and a bias.
    """
    x, y, w, b = (pat.Wildcard() for _ in range(4))
    total = x + y
    norm = op.LayerNorm(total, w, b, axis=last(total), center=True, scale=True)
    call = ort.skip_layer_norm(x, y, w, b, epsilon=norm.epsilon)
    return [norm, total], [call[0], call[3]], rows(total, x, y) & same_dtype(x, w, b)


@rule(priority=-1, extern_use=False)
def skip_layer_norm_bias() -> RuleSides:
    """layer_norm(x + c + y, w, b), and x + c + y = skip_layer_norm(x, y, w, b, c)

    As skip-layer-norm, before which it comes, for a layer with a bias of its own.
    """
    x, c, layer = biased()
    y, w, b = (pat.Wildcard() for _ in range(3))
    total = layer + y
    norm = op.LayerNorm(total, w, b, axis=last(total), center=True, scale=True)
    call = ort.skip_layer_norm(x, y, w, b, c, epsilon=norm.epsilon)
    return [norm, total], [call[0], call[3]], rows(total, x, y) & same_dtype(x, w, b, c)


@rule(priority=-2)
def skip_rms_norm() -> RuleSides:
    """rms_norm(x + y, w), and x + y = skip_rms_norm(x, y, w)

    For tensors of three axes and one shape, over the last one.
    """
    x, y, w = (pat.Wildcard() for _ in range(3))
    total = x + y
    norm = op.RMSNorm(total, w, axis=last(total))
    call = ort.skip_rms_norm(x, y, w, epsilon=norm.epsilon)
    return [norm, total], [call[0], call[3]], rows(total, x, y) & same_dtype(x, w)


# Activations


@rule(priority=-1, extern_use=False)
def bias_gelu() -> RuleSides:
    """gelu(x + b) = bias_gelu(x, b)

    For a bias along the last axis.
    """
    x, b = pat.Wildcard(), pat.Wildcard()
    layer = op.BiasAdd(x, b, axis=x.ndim - 1)
    return op.GELU(layer, approximate="none"), ort.bias_gelu(x, b), attr.In(x.dtype, FLOATS)


@rule(priority=-1, extern_use=False)
def bias_fast_gelu() -> RuleSides:
    """gelu(x + b) by its approximation with tanh = fast_gelu(x, b)

    For a bias along the last axis.
    """
    x, b = pat.Wildcard(), pat.Wildcard()
    layer = op.BiasAdd(x, b, axis=x.ndim - 1)
    return op.GELU(layer, approximate="tanh"), ort.fast_gelu(x, b), attr.In(x.dtype, FLOATS)


@rule(priority=-2)
def fast_gelu() -> RuleSides:
    """gelu(x) by its approximation with tanh = fast_gelu(x)

    For tensors with axes: onnxruntime has no kernel for a number.
    """
    x = pat.Wildcard()
    return op.GELU(x, approximate="tanh"), ort.fast_gelu(x), attr.In(x.dtype, FLOATS) & (x.ndim >= 1)


@rule(priority=-1, extern_use=False)
def quick_gelu() -> RuleSides:
    """x · sigmoid(c · x) = quick_gelu(x; c)

    For a number c.
    """
    x, c = pat.Wildcard(), pat.Const(ndim=0)
    return x * op.Sigmoid(x * c), ort.quick_gelu(x, alpha=c.value), attr.In(x.dtype, FLOATS)


@rule(priority=-2)
def quick_silu() -> RuleSides:
    """silu(x) = quick_gelu(x; 1)

    Everywhere.
    """
    x = pat.Wildcard()
    return op.SiLU(x), ort.quick_gelu(x, alpha=1.0), attr.In(x.dtype, FLOATS)


# Products


def turned(x: pat.Pattern) -> pat.Call:
    """A tensor with its last two axes exchanged."""
    return op.Transpose(x, axes=attr.Range(x.ndim - 2) + attr.Tuple(x.ndim - 1, x.ndim - 2))


@rule(priority=-3, extern_use=False)
def matmul_turned() -> RuleSides:
    """x yᵀ = fused_matmul(x, y)

    For tensors of two axes or more, of which the second one's last two axes are exchanged.
    """
    x, y = pat.Wildcard(), pat.Wildcard()
    product = op.Matmul(x, turned(y), out_dtype="")
    fits = (x.ndim >= 2) & (y.ndim >= 2) & same_dtype(x, y) & attr.In(x.dtype, FLOATS)
    return product, ort.fused_matmul(x, y, transB=True), fits


@rule(priority=-3, extern_use=False)
def matmul_scaled() -> RuleSides:
    """fused_matmul(x, y) · c = fused_matmul(x, y; c)

    For a number c.
    """
    x, y, c = pat.Wildcard(), pat.Wildcard(), pat.Const(ndim=0)
    product = ort.fused_matmul(x, y)
    return product * c, product.like(x, y, alpha=product.alpha * c.value)


# Attention


def joined(x: pat.Pattern) -> pat.Pattern:
    """A tensor of (batch, heads, length, size) as one of (batch, length, heads · size)."""
    whole = op.Transpose(x, axes=(0, 2, 1, 3))
    return op.Reshape(whole, newshape=attr.Tuple(x.shape[0], x.shape[2], x.shape[1] * x.shape[3]))


def attention_sides(mask: pat.Wildcard | None) -> RuleSides:
    """Attention of heads, the result of which is put together, with a mask or without."""
    operands = q, k, v = [pat.Wildcard(ndim=4) for _ in range(3)]
    extra = () if mask is None else (mask,)
    found = op.Attention(*operands, *extra, enable_gqa=False, **({} if mask is None else {"is_causal": False}))
    kept = found if mask is None else pat.Alt(zero_where_hidden(found, mask), found)
    whole = op.Reshape(op.Transpose(kept, axes=(0, 2, 1, 3)), ndim=3)
    together = whole.shape == attr.Tuple(q.shape[0], q.shape[2], v.shape[1] * v.shape[3])
    fits = attr.all([together, attr.In(q.dtype, FLOATS), *[x.shape[:2] == q.shape[:2] for x in (k, v)]])
    heads, attrs = list(map(joined, operands)), {"num_heads": q.shape[1], "scale": found.scale}
    if mask is None:
        return whole, ort.multi_head_attention(*heads, unidirectional=found.is_causal, **attrs), fits
    front = attr.Cond(mask.ndim == 3, attr.Tuple(1) + mask.shape[:1], attr.Tuple(1, 1))
    lead = attr.Cond(mask.ndim == 4, mask.shape[:2], front)
    full = op.BroadcastTo(mask, shape=lead + attr.Tuple(q.shape[2], k.shape[2]))
    made = ort.masked_attention(*heads, full, **attrs)
    rows = op.Reshape(full, newshape=lead[:1] + attr.Tuple(q.shape[2], k.shape[2]))

    def is_for_all_heads(match: Match) -> bool | str:
        shape = match[mask].shape or ()
        return not may_hide_rows(match[mask]) or shape[-3:-2] in ((), (1,)) or "a mask of each head may hide rows"

    def zeroed(match: Match) -> pat.Pattern:
        return zero_where_hidden(made, rows) if may_hide_rows(match[mask]) else made

    return whole, zeroed, fits & same_dtype(q, mask), is_for_all_heads


def scaled_sides(
    query: pat.Pattern, key: pat.Pattern, q: pat.Pattern, k: pat.Pattern, c: pat.Const,
    kinds: tuple[Any, Any] = (op.Attention, op.Attention),
) -> RuleSides:  # fmt: skip
    """Attention, with a mask or without, of which an operand has a factor; ``q`` and ``k`` are those without it.

    ``kinds`` are the operators without a mask and with one.
    """
    v, mask = pat.Wildcard(), pat.Wildcard()
    plain, masked = kinds[0](query, key, v), kinds[1](query, key, v, mask)
    found = plain | masked
    targets = [
        plain.like(q, k, v, scale=plain.scale * c.value), masked.like(q, k, v, mask, scale=masked.scale * c.value),
    ]  # fmt: skip
    given = attr.Match(found, [plain.scale != None, masked.scale != None])  # noqa: E711
    return found, pat.Match(found, targets), given & (c.value > 0)


@rule()
def attention_scaled_query() -> RuleSides:
    """attention(q · c, k, v; s) = attention(q, k, v; c · s)

    For a positive number c and a scale that is given, with a mask or without.
    """
    q, k, c = pat.Wildcard(), pat.Wildcard(), pat.Const(ndim=0)
    return scaled_sides(q * c, k, q, k, c)


@rule()
def attention_scaled_key() -> RuleSides:
    """attention(q, k · c, v; s) = attention(q, k, v; c · s)

    As attention-scaled-query, also where the product with the number is transposed.
    """
    q, k, c = pat.Wildcard(), pat.Wildcard(), pat.Const(ndim=0)
    product = k * c
    turned = op.Transpose(product)
    key = turned | product
    return scaled_sides(q, key, q, pat.Match(key, [turned.like(k), k]), c)


@rule()
def multi_head_attention_scaled_query() -> RuleSides:
    """multi_head_attention(q · c, k, v; s) = multi_head_attention(q, k, v; c · s)

    As attention-scaled-query, where the heads are taken apart after the product with the number.
    """
    q, k, c = pat.Wildcard(), pat.Wildcard(), pat.Const(ndim=0)
    return scaled_sides(q * c, k, q, k, c, (ort.multi_head_attention, ort.masked_attention))


@rule(priority=-1)
def multi_head_attention() -> RuleSides:
    """attention of (batch, heads, length, size) = multi_head_attention of (batch, length, heads · size)

    Where the heads of the result are put together, and there are as many of keys and values as of queries.
    """
    return attention_sides(None)


@rule(priority=-1)
def masked_attention() -> RuleSides:
    """attention of (batch, heads, length, size) with a mask = multi_head_attention of (batch, length, heads · size)

    As multi-head-attention, for a mask that is added.
    """
    return attention_sides(pat.Wildcard())


def layer_of(x: pat.Wildcard, size: attr.Expr | None = None) -> tuple[pat.Pattern, pat.Wildcard, pat.Pattern]:
    """A layer with a bias or without; its weight; its bias, zeros where there is none."""
    w = pat.Wildcard(shape=(x.shape[2], size))
    b = pat.Wildcard(shape=w.shape[1:])
    layer = op.BiasAdd(op.Matmul(x, w, out_dtype=""), b, axis=2) | op.Matmul(x, w, out_dtype="")
    return layer, w, pat.Match(layer, [b, op.Zeros(shape=w.shape[1:], dtype=w.dtype)])


def packed_sides(x: pat.Wildcard, parts: Sequence[pat.Pattern], w: pat.Pattern, b: pat.Pattern) -> RuleSides:
    """Attention of three parts of layers of a tensor, with a mask or without; ``w`` and ``b`` are theirs together."""
    mask = pat.Wildcard()
    plain, masked = ort.multi_head_attention(*parts), ort.masked_attention(*parts, mask)
    found = plain | masked
    targets = [
        ort.packed_attention(
            x, w, b, num_heads=plain.num_heads, scale=plain.scale, unidirectional=plain.unidirectional
        ),
        ort.packed_masked_attention(x, w, b, mask, num_heads=masked.num_heads, scale=masked.scale),
    ]
    return found, pat.Match(found, targets), attr.In(x.dtype, FLOATS)


@rule(priority=-2)
def packed_attention() -> RuleSides:
    """multi_head_attention(x wq + bq, x wk + bk, x wv + bv) = packed_attention(x, [wq, wk, wv], [bq, bk, bv])

    For layers of equal sizes, of which some may have no bias, with a mask or without.
    """
    x = pat.Wildcard(ndim=3)
    first = layer_of(x)
    parts, weights, biases = zip(first, *(layer_of(x, first[1].shape[1]) for _ in range(2)))
    return packed_sides(x, parts, op.Concatenate(list(weights), axis=1), op.Concatenate(list(biases), axis=0))


@rule(priority=-2)
def packed_attention_split() -> RuleSides:
    """multi_head_attention of the three parts of x w + b = packed_attention(x, w, b)

    For equal parts along the last axis, with a mask or without. The layer may have no bias.
    """
    x = pat.Wildcard(ndim=3)
    layer, w, b = layer_of(x)
    third = w.shape[1] // 3
    parts = op.Split(layer, indices_or_sections=attr.Tuple(third, third * 2), axis=2)
    found, target, fits = packed_sides(x, [parts[place] for place in range(3)], w, b)
    return found, target, fits & (w.shape[1] % 3 == 0)


# Positions


def part(x: pat.Pattern, begin: attr.Expr | int, end: attr.Expr) -> pat.Call:
    """Places of the last one of four axes."""
    return op.StridedSlice(x, begin=attr.Tuple(begin), end=attr.Tuple(end), strides=(1,), axes=(3,))


def rotary_sides(x: pat.Wildcard, tables: Sequence[pat.Pattern], halves: Sequence[pat.Pattern]) -> RuleSides:
    """Pairs of places of heads turned by angles; ``halves`` are the first halves of the tables of cosines and sines."""
    cos, sin = tables
    half = x.shape[3] // 2
    turned = op.Concatenate([-part(x, half, x.shape[3]), part(x, 0, half)], axis=3)
    rows = [op.Reshape(each, newshape=attr.Tuple(x.shape[2], half)) for each in halves]
    fits = (x.shape[3] % 2 == 0) & attr.In(x.dtype, FLOATS) & same_dtype(x, cos, sin)
    return x * cos + turned * sin, ort.rotary_embedding(x, op.Zeros(shape=(1,), dtype="int64"), *rows), fits


@rule(priority=-1)
def rotary_embedding() -> RuleSides:
    """x · [cos a, cos a] + [-x2, x1] · [sin a, sin a] = rotary_embedding(x, 0, cos a, sin a), where x = [x1, x2]

    For angles that depend on places alone, and heads of an even size.
    """
    angles = pat.Wildcard(shape=(1, None, None))
    x = pat.Wildcard(shape=(None, None, angles.shape[1], angles.shape[2] * 2))
    length, size = x.shape[2], x.shape[3]
    twice = op.Concatenate([angles, angles], axis=2)
    tables = [
        op.Reshape(function(twice, shape=(1, length, size)), newshape=attr.Tuple(1, 1, length, size))
        for function in (op.Cos, op.Sin)
    ]
    return rotary_sides(x, tables, [op.Cos(angles), op.Sin(angles)])


def with_equal_halves(first: int, shape: tuple[int, ...]) -> Any:
    """Numbers from one on, of which both halves are equal along the last axis, for instances of the rule."""
    *rows, size = shape
    half = (np.arange(math.prod(rows) * (size // 2)).reshape(*rows, -1) + first) % 5 / 4
    return np.concatenate([half, half], axis=-1)


@rule(priority=-1)
def rotary_embedding_tables() -> RuleSides:
    """x · cos + [-x2, x1] · sin = rotary_embedding(x, 0, cos1, sin1), where x = [x1, x2]

    As rotary-embedding, for weights of which both halves are equal.
    """
    x = pat.Wildcard(ndim=4)
    shape = 1, 1, x.shape[2], x.shape[3]
    leaves = [(pat.Param(shape=shape), pat.Const(shape=shape)) for _ in range(2)]
    tables = [param | const for param, const in leaves]

    def halves_are_equal(match: Match) -> bool:
        halves = [match[each].attrs["value"].chunk(2, -1) for each in tables]
        return all(bool((one == other).all()) for one, other in halves)

    values = {leaf: partial(with_equal_halves, number) for number, pair in enumerate(leaves) for leaf in pair}
    halves_are_equal.values = values  # type: ignore[attr-defined]
    return *rotary_sides(x, tables, [part(each, 0, x.shape[3] // 2) for each in tables]), halves_are_equal


@rule(priority=-2, extern_use=False)
def rotary_embedding_part() -> RuleSides:
    """[rotary_embedding(x1), x2] = rotary_embedding(x; the size of x1), where x = [x1, x2]

    Along the last axis of heads.
    """
    x, position, cos, sin = (pat.Wildcard() for _ in range(4))
    cut = cos.shape[1] * 2
    turned = ort.rotary_embedding(part(x, 0, cut), position, cos, sin, rotary_embedding_dim=0)
    whole = op.Concatenate([turned, part(x, cut, x.shape[3])], axis=3)
    heads = {"num_heads": x.shape[1], "rotary_embedding_dim": cut}
    return whole, ort.rotary_embedding(x, position, cos, sin, **heads), x.ndim == 4


@rule(priority=-2)
def rotary_embedding_rows() -> RuleSides:
    """rotary_embedding of heads, which are then put together = rotary_embedding of (batch, length, heads · size)

    For heads that are parts of the last one of three axes.
    """
    x, position, cos, sin = pat.Wildcard(ndim=3), *(pat.Wildcard() for _ in range(3))
    heads = op.Reshape(x, ndim=4)
    turned = ort.rotary_embedding(op.Transpose(heads, axes=(0, 2, 1, 3)), position, cos, sin)
    whole = op.Reshape(op.Transpose(turned, axes=(0, 2, 1, 3)), newshape=x.shape)
    count, size = heads.shape[2], turned.rotary_embedding_dim
    target = ort.rotary_rows(x, position, cos, sin, num_heads=count, rotary_embedding_dim=size)
    return whole, target, heads.shape[:2] == x.shape[:2]


# Embeddings


def looked_up() -> tuple[pat.Call, pat.Wildcard, pat.Wildcard]:
    """Rows of a table by indices of two axes; the table, and the indices."""
    table, ids = pat.Wildcard(ndim=2), pat.Wildcard(ndim=2)
    return op.Take(table, ids, axis=0), table, ids


def embedding_sides(has_kinds: bool) -> RuleSides:
    """The layer norm of the embeddings of words, of their kinds if they have some, and of their places."""
    words, word_table, ids = looked_up()
    kinds, kind_table, kind_ids = looked_up()
    placed, place_table, places = looked_up()
    rows, w, b = (pat.Wildcard() for _ in range(3))
    where = placed | rows
    total = ((words + kinds) + where) | ((words + where) + kinds) if has_kinds else words + where
    norm = op.LayerNorm(total, w, b, axis=last(total), center=True, scale=True)
    batch, length, size = (total.shape[axis] for axis in range(3))

    def call(plain: Any, of_kinds: Any, rows: pat.Pattern, *places: pat.Pattern) -> Any:
        own = op.Cast(ids, dtype="int32")
        given = (own, op.Cast(kind_ids, dtype="int32"), word_table, rows, kind_table) if has_kinds else (
            own, word_table, rows
        )  # fmt: skip
        found = [op.Cast(each, dtype="int32") for each in places]
        return (of_kinds if has_kinds else plain)(*given, w, b, *found, epsilon=norm.epsilon)

    calls = [
        call(ort.embed_layer_norm_words_placed, ort.embed_layer_norm_placed, place_table, places),
        call(ort.embed_layer_norm_words, ort.embed_layer_norm, op.Reshape(rows, newshape=(length, size))),
    ]
    fits = [
        (places.shape[1] == length) & (place_table.shape[1] == size) & same_dtype(w, place_table),
        attr.In(rows.shape, attr.Tuple(attr.Tuple(length, size), attr.Tuple(1, length, size))),
    ]
    tables = [(ids, word_table), *([(kind_ids, kind_table)] if has_kinds else [])]
    alike = [(each.shape == attr.Tuple(batch, length)) & (table.shape[1] == size) for each, table in tables]
    alike += [total.ndim == 3, attr.In(total.dtype, FLOATS), same_dtype(total, w, b), attr.Match(where, fits)]
    return [norm, total], [pat.Match(where, [each[place] for each in calls]) for place in (0, 2)], attr.all(alike)


@rule(priority=-1)
def embed_layer_norm() -> RuleSides:
    """layer_norm(words[i] + kinds[k] + places, w, b), and the sum = embed_layer_norm(i, k, words, places, kinds, w, b)

    For indices of one shape, of (batch, length), and places that are rows for all of the batch, or rows of a table.
    """
    return embedding_sides(True)


@rule(priority=-2)
def embed_layer_norm_words() -> RuleSides:
    """layer_norm(words[i] + places, w, b), and the sum = embed_layer_norm(i, words, places, w, b)

    As embed-layer-norm, after which it comes, for words that have no kinds.
    """
    return embedding_sides(False)


RULES = (
    skip_layer_norm, skip_layer_norm_bias, skip_rms_norm, bias_gelu, bias_fast_gelu, fast_gelu, quick_gelu, quick_silu,
    matmul_turned, matmul_scaled, attention_scaled_query, attention_scaled_key, multi_head_attention, masked_attention,
    multi_head_attention_scaled_query, packed_attention, packed_attention_split, rotary_embedding,
    rotary_embedding_tables, rotary_embedding_part, rotary_embedding_rows, embed_layer_norm, embed_layer_norm_words,
)  # fmt: skip
ORT = IDIOMS + RuleSet(RULES)
"""The rules of the normal form, the idioms in it, and those for onnxruntime."""

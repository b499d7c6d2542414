"""Operators of onnxruntime beyond those of ONNX, its domain ``com.microsoft``, each declared by what it computes.

Operands and attributes are those of onnxruntime's ``docs/ContribOperators.md``. An operand that is left out before
others is an attribute ``argN`` that is ``None``, as in native calls of ONNX.
"""

from __future__ import annotations

import torch
from torch import Tensor

from gsl.operators.declare import library_operator

_NORM = {"x": "b s d", "skip": "b s d", "gamma": "d"}


@library_operator("com.microsoft::SkipLayerNormalization", **_NORM, beta="d", bias="d")
def skip_layer_norm(
    x: Tensor, skip: Tensor, gamma: Tensor, beta: Tensor, bias: Tensor | None = None, *, epsilon: float = 1e-12
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """The layer norm of a sum, its mean and its inverse standard deviation in float32, and the sum."""
    total = x + skip if bias is None else x + bias + skip
    mean = total.mean(-1, keepdim=True)
    inverse = torch.rsqrt((total - mean).square().mean(-1, keepdim=True) + epsilon)
    return (total - mean) * inverse * gamma + beta, mean.float(), inverse.float(), total


@library_operator("com.microsoft::SkipSimplifiedLayerNormalization", **_NORM, bias="d")
def skip_rms_norm(
    x: Tensor, skip: Tensor, gamma: Tensor, bias: Tensor | None = None, *, epsilon: float = 1e-12
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """The RMS norm of a sum, in float32 a mean of 0 and the inverse root mean square, and the sum."""
    total = x + skip if bias is None else x + bias + skip
    inverse = torch.rsqrt(total.square().mean(-1, keepdim=True) + epsilon)
    return total * inverse * gamma, torch.zeros_like(inverse).float(), inverse.float(), total


@library_operator("com.microsoft::BiasGelu", x="*b d", bias="d")
def bias_gelu(x: Tensor, bias: Tensor) -> Tensor:
    """The GELU of what has a bias along its last axis."""
    return torch.nn.functional.gelu(x + bias)


@library_operator("com.microsoft::FastGelu", x="*b d", bias="d")
def fast_gelu(x: Tensor, bias: Tensor | None = None) -> Tensor:
    """The approximation of GELU with tanh, of what may have a bias along its last axis."""
    return torch.nn.functional.gelu(x if bias is None else x + bias, approximate="tanh")


@library_operator("com.microsoft::QuickGelu")
def quick_gelu(x: Tensor, *, alpha: float = 1.702) -> Tensor:
    """x · sigmoid(alpha · x)"""
    return x * torch.sigmoid(x * alpha)


@library_operator("com.microsoft::FusedMatMul", transA=[False, True], transB=[False, True])
def fused_matmul(a: Tensor, b: Tensor, *, alpha: float = 1.0, transA: bool = False, transB: bool = False) -> Tensor:
    """alpha · a · b, of which the last two axes of each may be exchanged."""
    left = a.transpose(-2, -1) if transA else a
    right = b.transpose(-2, -1) if transB else b
    return left @ right * alpha


def _heads(x: Tensor, num_heads: int) -> Tensor:
    return x.reshape(x.shape[0], x.shape[1], num_heads, x.shape[2] // num_heads).transpose(1, 2)


def _attention(
    query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, num_heads: int, scale: float | None, causal: bool
) -> Tensor:
    q, k, v = (_heads(x, num_heads) for x in (query, key, value))
    found = torch.nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=mask, is_causal=causal, scale=scale)
    return found.transpose(1, 2).reshape(query.shape[0], query.shape[1], value.shape[2])


@library_operator(
    "com.microsoft::MultiHeadAttention",
    query="b s 8", key="b t 8", value="b t 8", num_heads=[1, 2, 4], scale=[None, 0.5, 2.0],
)  # fmt: skip
def multi_head_attention(
    query: Tensor, key: Tensor, value: Tensor, *, num_heads: int, scale: float | None = None,
    unidirectional: bool = False,
) -> Tensor:  # fmt: skip
    """Attention of tensors whose last axis holds the heads one after the other."""
    return _attention(query, key, value, None, num_heads, scale, unidirectional)


@library_operator(
    "com.microsoft::MultiHeadAttention.masked",
    query="b s 8", key="b t 8", value="b t 8", mask="1 1 s t", num_heads=[1, 2, 4], scale=[None, 0.5, 2.0],
)  # fmt: skip
def masked_attention(
    query: Tensor, key: Tensor, value: Tensor, mask: Tensor, *, num_heads: int, scale: float | None = None,
    arg3: int | None = None, arg4: int | None = None,
) -> Tensor:  # fmt: skip
    """The same with a mask of four axes that is added to the scores, without a bias and a mask of keys before it."""
    return _attention(query, key, value, mask, num_heads, scale, False)


@library_operator("com.microsoft::Attention", x="b s c", weight="c 24", bias="24", num_heads=[1, 2, 4])
def packed_attention(
    x: Tensor, weight: Tensor, bias: Tensor, *, num_heads: int, scale: float | None = None, unidirectional: bool = False
) -> Tensor:
    """Attention of one tensor, whose queries, keys and values are three equal parts of one layer."""
    query, key, value = (x @ weight + bias).chunk(3, -1)
    return _attention(query, key, value, None, num_heads, scale, unidirectional)


@library_operator(
    "com.microsoft::Attention.masked", x="b s c", weight="c 24", bias="24", mask="1 1 s s", num_heads=[1, 2, 4],
)  # fmt: skip
def packed_masked_attention(
    x: Tensor, weight: Tensor, bias: Tensor, mask: Tensor, *, num_heads: int, scale: float | None = None,
    arg3: int | None = None, arg4: int | None = None,
) -> Tensor:  # fmt: skip
    """The same with a mask of four axes that is added to the scores, without a mask of keys and past ones before it."""
    query, key, value = (x @ weight + bias).chunk(3, -1)
    return _attention(query, key, value, mask, num_heads, scale, False)


_TABLES = {"position": "int64[1]", "cos": "s 4", "sin": "s 4"}


def _turned(x: Tensor, position: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    places = position + torch.arange(x.shape[-2], device=x.device)
    cos, sin = cos[places], sin[places]
    size = cos.shape[-1]
    one, other, rest = x[..., :size], x[..., size : 2 * size], x[..., 2 * size :]
    return torch.cat([one * cos - other * sin, other * cos + one * sin, rest], -1)


@library_operator("com.microsoft::RotaryEmbedding", x="b n s 8", **_TABLES)
def rotary_embedding(
    x: Tensor, position: Tensor, cos: Tensor, sin: Tensor, *, num_heads: int = 0, rotary_embedding_dim: int = 0
) -> Tensor:
    """Pairs of places of two halves of the last axis, turned by the angles of the rows from a position on.

    The halves are those of the first places of the last axis, as many as ``rotary_embedding_dim`` says, which needs the
    number of heads, too.
    """
    return _turned(x, position, cos, sin)


@library_operator("com.microsoft::RotaryEmbedding.rows", x="b s 16", **_TABLES, num_heads=[1, 2])
def rotary_rows(
    x: Tensor, position: Tensor, cos: Tensor, sin: Tensor, *, num_heads: int, rotary_embedding_dim: int = 0
) -> Tensor:
    """The same for a tensor whose last axis has the heads one after the other."""
    return _turned(_heads(x, num_heads), position, cos, sin).transpose(1, 2).reshape(x.shape)


# Embeddings

_WORDS = {"ids": "int32[b s]", "words": "v d", "rows": "p d", "gamma": "d", "beta": "d"}


def _embedded(total: Tensor, gamma: Tensor, beta: Tensor, epsilon: float) -> tuple[Tensor, Tensor, Tensor]:
    norm = torch.nn.functional.layer_norm(total, total.shape[-1:], gamma, beta, epsilon)
    return norm, torch.zeros(total.shape[0], dtype=torch.int32, device=total.device), total


@library_operator("com.microsoft::EmbedLayerNormalization", **_WORDS, kinds="int32[b s]", table="k d")
def embed_layer_norm(
    ids: Tensor, kinds: Tensor, words: Tensor, rows: Tensor, table: Tensor, gamma: Tensor, beta: Tensor, *,
    epsilon: float = 1e-12,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    """The layer norm of the sum of the embeddings of words, of their kinds, and the first rows of a table; zeros in the
    place of the lengths of a mask; and the sum."""
    return _embedded(words[ids.long()] + rows[: ids.shape[1]] + table[kinds.long()], gamma, beta, epsilon)


@library_operator("com.microsoft::EmbedLayerNormalization.placed", **_WORDS, kinds="int32[b s]", table="k d",
          places="int32[1 s]")  # fmt: skip
def embed_layer_norm_placed(
    ids: Tensor, kinds: Tensor, words: Tensor, rows: Tensor, table: Tensor, gamma: Tensor, beta: Tensor,
    places: Tensor, *, epsilon: float = 1e-12, arg7: int | None = None,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    """The same with rows of the table of places that are given."""
    total = words[ids.long()] + rows[places.long()] + table[kinds.long()]
    return _embedded(total, gamma, beta, epsilon)


@library_operator("com.microsoft::EmbedLayerNormalization.words", **_WORDS)
def embed_layer_norm_words(
    ids: Tensor, words: Tensor, rows: Tensor, gamma: Tensor, beta: Tensor, *, epsilon: float = 1e-12,
    arg1: int | None = None, arg4: int | None = None,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    """The same for words that have no kinds."""
    return _embedded(words[ids.long()] + rows[: ids.shape[1]], gamma, beta, epsilon)


@library_operator("com.microsoft::EmbedLayerNormalization.words_placed", **_WORDS, places="int32[1 s]")
def embed_layer_norm_words_placed(
    ids: Tensor, words: Tensor, rows: Tensor, gamma: Tensor, beta: Tensor, places: Tensor, *, epsilon: float = 1e-12,
    arg1: int | None = None, arg4: int | None = None, arg7: int | None = None,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    """The same for words that have no kinds, with rows of places that are given."""
    return _embedded(words[ids.long()] + rows[places.long()], gamma, beta, epsilon)

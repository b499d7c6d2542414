"""Operators as a serving engine has them: mutable, of low precision, in schemas like those of vLLM, and exchanges."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

import gsl
from gsl import RuleSet, Subst, attr, op, pat

LIBRARY = torch.library.Library("gsl_engine", "DEF")
for schema in (
    "rms_norm(Tensor! result, Tensor input, Tensor weight, float epsilon) -> ()",
    "fp8_quant(Tensor! result, Tensor input, Tensor scale) -> ()",
    "rms_norm_fp8_quant(Tensor! result, Tensor input, Tensor weight, Tensor scale, float epsilon) -> ()",
    "silu_and_mul(Tensor! result, Tensor input) -> ()",
    "silu_and_mul_quant(Tensor! result, Tensor input, Tensor scale) -> ()",
    "attention(Tensor query, Tensor key, Tensor value, Tensor! output, str layer_name, Tensor? output_scale=None)"
    " -> ()",
    "rotary_embedding(Tensor positions, Tensor! query, Tensor! key, int head_size, Tensor cos_sin_cache, bool is_neox)"
    " -> ()",
    "qk_norm_rope(Tensor! qkv, int num_heads_q, int num_heads_k, int num_heads_v, int head_dim, float eps,"
    " Tensor q_weight, Tensor k_weight, Tensor cos_sin_cache, bool is_neox, Tensor position_ids) -> ()",
):
    LIBRARY.define(schema)
    torch.library.register_fake(f"gsl_engine::{schema.partition('(')[0]}", lambda *args, **kwargs: None, lib=LIBRARY)

# ---------------------------------------------------------------- RMS norm, SiLU and product, with quantisation


@gsl.operator("gsl_engine::rms_norm")
def rms_norm(input: Tensor, weight: Tensor, *, epsilon: float) -> Tensor:
    return input * torch.rsqrt(input.pow(2).mean(-1, keepdim=True) + epsilon) * weight


@gsl.operator("gsl_engine::fp8_quant")
def fp8_quant(input: Tensor, scale: Tensor) -> Tensor:
    return (input / scale).clamp(-448.0, 448.0).to(torch.float8_e4m3fn)


@gsl.operator("gsl_engine::rms_norm_fp8_quant")
def rms_norm_fp8_quant(input: Tensor, weight: Tensor, scale: Tensor, *, epsilon: float) -> Tensor:
    return fp8_quant(rms_norm(input, weight, epsilon=epsilon), scale)


@gsl.operator("gsl_engine::silu_and_mul")
def silu_and_mul(input: Tensor) -> Tensor:
    half = input.shape[-1] // 2
    return F.silu(input[..., :half]) * input[..., half:]


@gsl.operator("gsl_engine::silu_and_mul_quant", scale="1")
def silu_and_mul_quant(input: Tensor, scale: Tensor) -> Tensor:
    return fp8_quant(silu_and_mul(input), scale)


# ---------------------------------------------------------------- attention with quantised output


@gsl.operator(
    "gsl_engine::attention", query="t h d", key="t h d", value="t h d", output_scale="1", layer_name=["a", "b"]
)
def attention(
    query: Tensor, key: Tensor, value: Tensor, output_scale: Tensor | None = None, *, layer_name: str
) -> Tensor:
    result = F.scaled_dot_product_attention(*(each.transpose(0, 1) for each in (query, key, value))).transpose(0, 1)
    return result if output_scale is None else fp8_quant(result, output_scale)


def attention_quant() -> Subst:
    """Attention, heads side by side, quantised: as the kernel does it itself."""
    query, key, value, scale = pat.Wildcard(), pat.Wildcard(), pat.Wildcard(), pat.Wildcard()
    call = attention(query, key, value)
    flat = op.Reshape(call)
    return Subst(fp8_quant(flat, scale), flat.like(call.like(query, key, value, scale)), name="attention-quant")


# ---------------------------------------------------------------- norms of queries and keys, with rotary embedding


def rotated(heads: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    first, second = heads.chunk(2, -1)
    return torch.cat((first * cos - second * sin, second * cos + first * sin), -1)


@gsl.operator("gsl_engine::rotary_embedding", positions="int64[t]", query="t h*d", key="t g*d", cos_sin_cache="n d")
def rotary_embedding(
    positions: Tensor, query: Tensor, key: Tensor, cos_sin_cache: Tensor, *, head_size: int, is_neox: bool
) -> tuple[Tensor, Tensor]:
    cos, sin = cos_sin_cache[positions].unsqueeze(-2).chunk(2, -1)
    by_heads = (x if x.dim() == 3 else x.reshape(x.shape[0], -1, cos_sin_cache.shape[-1]) for x in (query, key))
    turned = zip((rotated(x, cos, sin) for x in by_heads), (query, key))
    return tuple(new if old.dim() == 3 else new.reshape(old.shape) for new, old in turned)


def rotary_rule(name: str, **shapes: str) -> Subst:
    """The embedding written out: its call, with the size of the heads that the cache has."""

    def side(run: Any) -> Any:
        def program(positions: Tensor, query: Tensor, key: Tensor, cache: Tensor) -> tuple[Tensor, Tensor]:
            return run(positions, query, key, cache, head_size=cache.shape[-1], is_neox=True)

        return program

    sides = side(rotary_embedding.meaning.function), side(rotary_embedding)
    return Subst.from_programs(*sides, name=name, positions="int64[t]", cache="n d", **shapes)


@gsl.operator(
    "gsl_engine::qk_norm_rope", qkv="t h*d", q_weight="d", k_weight="d", cos_sin_cache="n d", position_ids="int64[t]",
    num_heads_q=[2, 3], num_heads_k=[1, 2], num_heads_v=[1, 2],
)  # fmt: skip
def qk_norm_rope(
    qkv: Tensor, q_weight: Tensor, k_weight: Tensor, cos_sin_cache: Tensor, position_ids: Tensor, *,
    num_heads_q: int, num_heads_k: int, num_heads_v: int, head_dim: int, eps: float, is_neox: bool,
) -> Tensor:  # fmt: skip
    parts = qkv.unflatten(-1, (-1, q_weight.shape[-1])).tensor_split((num_heads_q, num_heads_q + num_heads_k), 1)
    cos, sin = cos_sin_cache[position_ids].unsqueeze(-2).chunk(2, -1)
    normed = (rms_norm(part, weight, epsilon=eps) for part, weight in zip(parts, (q_weight, k_weight)))
    return torch.cat((*(rotated(each, cos, sin) for each in normed), parts[2]), -2).flatten(-2)


def qk_norm_rope_rule() -> Subst:
    """Queries and keys, normed by heads and rotated: all in their places in the product that has them."""
    qkv, cache, q_weight, k_weight = (pat.Wildcard() for _ in range(4))
    tokens, places = qkv.shape[0], pat.Wildcard(shape=(qkv.shape[0],))
    parts = op.Split(qkv, axis=1)
    q_heads, k_heads, value = op.Reshape(parts[0]), op.Reshape(parts[1]), parts[2]
    heads, groups, dim = q_heads.shape[1], k_heads.shape[1], q_heads.shape[2]
    q_norm = rms_norm(q_heads, q_weight)
    k_norm = rms_norm(k_heads, k_weight, epsilon=q_norm.epsilon)
    seen = (pat.Alt(op.Reshape(norm), norm) for norm in (q_norm, k_norm))  # by heads, or side by side
    turned = rotary_embedding(places, *seen, cache, head_size=dim)
    found = turned[0], turned[1], value
    fields = parts.like(qk_norm_rope(
        qkv, q_weight, k_weight, cache, places, num_heads_q=heads, num_heads_k=groups, num_heads_v=groups,
        head_dim=dim, eps=q_norm.epsilon, is_neox=turned.is_neox,
    ))  # fmt: skip
    shapes = q_heads.shape == attr.Tuple(tokens, heads, dim), k_heads.shape == attr.Tuple(tokens, groups, dim)
    new = (op.Reshape(fields[place], newshape=found[place].shape) for place in (0, 1))
    return Subst(found, (*new, fields[2]), where=[*shapes, value.shape[1] == groups * dim], name="qk-norm-rope")


# ---------------------------------------------------------------- all-reduce with RMS norm, by parts of the sequence

_EXCHANGES = torch.ops._c10d_functional


def waited(operator: Any, x: pat.Pattern, **attrs: Any) -> pat.Call:
    return pat.Call(_EXCHANGES.wait_tensor.default, pat.Call(operator.default, x, **attrs))


def sequence_parallelism(group: str, size: int) -> RuleSet:
    """Each process norms its part of the sequence: a sum over processes is scattered, and gathered behind the norms."""
    x, y, weight, scale = pat.Wildcard(), pat.Wildcard(), pat.Wildcard(), pat.Wildcard()

    def gathered(part: pat.Pattern) -> pat.Call:
        return waited(_EXCHANGES.all_gather_into_tensor, part, group_size=size, group_name=group)

    total = waited(_EXCHANGES.all_reduce, x, reduce_op="sum", group_name=group)
    part = waited(_EXCHANGES.reduce_scatter_tensor, x, reduce_op="sum", group_size=size, group_name=group)
    norm, quant = rms_norm(gathered(x), weight), fp8_quant(gathered(x), scale)
    return RuleSet(
        [
            Subst(total, gathered(part), where=x.shape[0] % size == 0, name="scatter"),
            Subst(gathered(x) + gathered(y), gathered(x + y), name="add-gathered"),
            Subst(norm, gathered(norm.like(x, weight)), name="norm-gathered"),
            Subst(quant, gathered(quant.like(x, scale)), name="quant-gathered"),
        ]
    )


# ---------------------------------------------------------------- kernels


def _kernel(operator: Any) -> None:
    """The operator on this machine, by its meaning."""
    native = operator.spec.native
    names = [argument.name for argument in native.overload._schema.arguments]
    reads = [argument.name for argument in native.arguments]

    def run(*args: Any, **kwargs: Any) -> None:
        given = dict(zip(names, args)) | kwargs
        found = operator.meaning.function(**{name: given[name] for name in reads if name in given})
        for name, value in zip(native.writes, found if isinstance(found, tuple) else (found,)):
            given[name].copy_(value)

    LIBRARY.impl(operator.spec.name.partition("::")[2], run, "CPU")


for each in (
    rms_norm, fp8_quant, rms_norm_fp8_quant, silu_and_mul, silu_and_mul_quant, attention, rotary_embedding,
    qk_norm_rope,
):  # fmt: skip
    _kernel(each)

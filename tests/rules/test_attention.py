"""Attention is found however it is written, with equal numbers; what only looks like it is left alone."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F

import gsl
from benchmarks import attention
from benchmarks.architectures import Example, Layers, count, example
from benchmarks.attention import Found, in_compiled, in_export, in_relax, page
from gsl import Subst, Supported, Workload
from gsl.graph import Graph, Node, TensorType
from gsl.rules import IDIOMS
from gsl.rules.idioms import attention as family
from gsl.rules.idioms.attention import clamped, masked, scaled, shifted, sides, sides_with_sink, viewed
from gsl.spec import TABLE
from gsl.verify.draft import infer
from tests.helpers.nets import Of

B, H, N, M, D = 2, 4, 5, 7, 8
LOW = torch.finfo(torch.float32).min
Function = Callable[..., Any]


def given(batch: int = B) -> tuple[torch.Tensor, ...]:
    """Queries, keys, values and a mask, with scores that differ by several units."""
    torch.manual_seed(0)
    q, k, v = (torch.randn(batch, H, size, D) for size in (N, M, M))
    hidden = torch.rand(batch, 1, N, M) < 0.4
    hidden[..., 0] = False
    hidden[0, 0, 0] = True  # a row of which all places are hidden
    return 2 * q, 2 * k, v, torch.where(hidden, LOW, 0.0)


def folded(x: torch.Tensor) -> torch.Tensor:
    """The heads in the batch."""
    return x.reshape(-1, *x.shape[-2:])


def with_window(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, m: torch.Tensor) -> torch.Tensor:
    """A bias for each head, and a mask for each window, as Swin has them."""
    scores = q @ k.mT + q.new_ones(H, 1, 1) * torch.arange(M)
    scores = (scores.view(1, B, H, N, M) + m.view(B, 1, N, M).unsqueeze(0)).view(-1, H, N, M)
    return scores.softmax(-1) @ v


def guarded(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, m: torch.Tensor) -> torch.Tensor:
    return torch.max(q @ k.mT + m, torch.tensor(LOW)).softmax(-1) @ v


def in_place(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, m: torch.Tensor) -> torch.Tensor:
    scores = q @ k.mT
    scores.masked_fill_((m < 0).expand_as(scores), LOW)
    return F.softmax(scores.float(), -1).type_as(scores) @ v


def of_places(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, m: torch.Tensor) -> torch.Tensor:
    """Biases of the rows and columns of an image, whose places are taken apart for them, as SegGPT has it."""
    places = q[:, :, :4] @ k[:, :, :4].mT
    rows, columns = (torch.arange(H * 16.0).view(H, 2, 2, 4).sin()[..., at : at + 2] for at in (0, 2))
    scores = places.view(B, H, 2, 2, 2, 2) + rows[..., None] + columns[..., None, :]
    return scores.view(B, H, 4, 4).softmax(-1) @ v[:, :, :4]


def bloom(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, m: torch.Tensor) -> torch.Tensor:
    bias = torch.arange(M).float().expand(B * H, 1, M)
    scores = torch.baddbmm(bias, folded(q), folded(k).mT, beta=0.5, alpha=0.3).view(B, H, N, M)
    return torch.bmm(folded((scores + m).softmax(-1)), folded(v)).view(B, H, N, D)


def into_nothing(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, m: torch.Tensor) -> torch.Tensor:
    """Scores that are added to a tensor that is not read, as diffusers has it where there is no mask."""
    nothing = torch.empty(B * H, N, M)
    scores = torch.baddbmm(nothing, folded(q), folded(k).mT, beta=0, alpha=0.3).view(B, H, N, M)
    return torch.bmm(folded((scores + m).softmax(-1)), folded(v)).view(B, H, N, D)


def grouped(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, m: torch.Tensor) -> torch.Tensor:
    k, v = (x[:, :2, None].expand(B, 2, 2, M, D).reshape(B, H, M, D) for x in (k, v))
    return (q @ k.mT * 0.3 + m).softmax(-1) @ v


def on_a_view(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, m: torch.Tensor) -> torch.Tensor:
    """A bias that is a view, and is multiplied in place, as Funnel has it."""
    bias = (k * v).transpose(2, 3)[:, :, :N]
    bias *= 0.5
    return (q @ k.mT + bias + m).softmax(-1) @ v


def two_values(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, m: torch.Tensor) -> Any:
    weights = (q @ k.mT + m).softmax(-1)
    return weights @ v, weights @ v.exp()


def guarded_by(low: float, otherwise: float) -> Function:
    """Attention with a guard for rows, as torch decomposes it but for the numbers."""

    def function(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, m: torch.Tensor) -> torch.Tensor:
        scores = q @ k.mT + m.clamp(min=-5)
        weights = scores.softmax(-1)
        seen = torch.logical_not(scores == low).any(-1, keepdim=True)
        return torch.where(torch.logical_not(seen), torch.full_like(weights, otherwise), weights) @ v

    return function


def guarded_by_largest(low: float) -> Function:
    """The same in numbers, as TVM imports it."""

    def function(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, m: torch.Tensor) -> torch.Tensor:
        scores = q @ k.mT + torch.where(m < 0, -math.inf, m)
        weights = scores.softmax(-1)
        seen = torch.logical_not(scores == low).to(torch.int8).amax(-1, keepdim=True).bool()
        return torch.where(torch.logical_not(seen), torch.full_like(weights, 0.0), weights) @ v

    return function


def without_nan(otherwise: float) -> Function:
    """Attention whose weights are another number where they would be NaN, as it is exported to ONNX."""

    def function(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, m: torch.Tensor) -> torch.Tensor:
        weights = (q @ k.mT + torch.where(m < 0, -math.inf, m)).softmax(-1)
        return torch.where(torch.isnan(weights), otherwise, weights) @ v

    return function


SPELLINGS: dict[str, Function] = {
    "plain": lambda q, k, v, m: (q @ k.mT).softmax(-1) @ v,
    "product": lambda q, k, v, m: (q @ k.mT * 0.3 + m).softmax(-1) @ v,
    "quotient": lambda q, k, v, m: (m + q @ k.mT / math.sqrt(D)).softmax(-1) @ v,
    "scaled query": lambda q, k, v, m: ((q * 0.3) @ k.mT + m).softmax(-1) @ v,
    "roots on both": lambda q, k, v, m: ((q * 0.5) @ (k * 0.5).mT + m).softmax(-1) @ v,
    "scaled key": lambda q, k, v, m: (q @ (k.mT / 3) + m).softmax(-1) @ v,
    "scale after the sum": lambda q, k, v, m: ((q @ k.mT + m.clamp(min=-5)) / 3).softmax(-1) @ v,
    "cosine": lambda q, k, v, m: (q @ k.mT * torch.arange(1.0, 5.0).view(H, 1, 1) + m).softmax(-1) @ v,
    "subtracted mask": lambda q, k, v, m: (q @ k.mT - m.clamp(min=-5)).softmax(-1) @ v,
    "two masks": lambda q, k, v, m: (q @ k.mT + torch.arange(M) + m).softmax(-1) @ v,
    "product into nothing": into_nothing,
    "where": lambda q, k, v, m: torch.where(m == 0, q @ k.mT, LOW).softmax(-1) @ v,
    "where with a tensor": lambda q, k, v, m: torch.where(m == 0, q @ k.mT, torch.tensor(LOW)).softmax(-1) @ v,
    "two masks of truth values": lambda q, k, v, m: (q @ k.mT + (m < 0) + (m < 1)).softmax(-1) @ v,
    "a mask and a number": lambda q, k, v, m: (q @ k.mT + m - 3).softmax(-1) @ v,
    "truth values and a number": lambda q, k, v, m: (q @ k.mT + (m < 0) + torch.tensor(2)).softmax(-1) @ v,
    "a subtracted mask of bytes": lambda q, k, v, m: (q @ k.mT - (m < 0).byte()).softmax(-1) @ v,
    "masked_fill": lambda q, k, v, m: (q @ k.mT).masked_fill(m < 0, LOW).softmax(-1) @ v,
    "masked_fill in place": in_place,
    "bias in place": on_a_view,
    "where after a mask": lambda q, k, v, m: torch.where(torch.arange(M) < 4, q @ k.mT + m, LOW).softmax(-1) @ v,
    "mask after where": lambda q, k, v, m: (torch.where(torch.arange(M) < 4, q @ k.mT, LOW) + m).softmax(-1) @ v,
    "clamped": guarded,
    "a guard for rows": guarded_by(-math.inf, 0.0),
    "a guard for rows in numbers": guarded_by_largest(-math.inf),
    "a guard for NaN": without_nan(0.0),
    "windows": with_window,
    "biases of places": of_places,
    "heads in the batch": bloom, "heads in the batch, without a bias": into_nothing,
    "dropout": lambda q, k, v, m: F.dropout((q @ k.mT + m).softmax(-1), 0.1, training=False) @ v,
    "grouped queries": grouped,
    "channels first": lambda q, k, v, m: v.mT @ ((q.mT * 0.3).mT @ k.mT + m).softmax(-1).mT,
    "einsum with channels first": lambda q, k, v, m: torch.einsum(
        "bhts,bhcs->bhct", torch.einsum("bhct,bhcs->bhts", q.mT * 0.5, k.mT * 0.5).softmax(-1), v.mT
    ),
    "heads in the batch, channels first": lambda q, k, v, m: (
        folded(v).mT @ folded((q @ k.mT + m).softmax(-1)).mT
    ).view(B, H, D, N),
    "one head of keys": lambda q, k, v, m: (q @ k[:, :1].mT + m).softmax(-1) @ v[:, :1],
    "einsum": lambda q, k, v, m: torch.einsum(
        "bhqk,bhkd->bqhd", (torch.einsum("bhqd,bhkd->bhqk", q, k) + m).softmax(-1), v
    ),
    "einsum with dots": lambda q, k, v, m: torch.einsum(
        "...hqk,...khd->...qhd", (torch.einsum("...hqd,...khd->...hqk", q, k.transpose(1, 2)) + m).softmax(-1),
        v.transpose(1, 2),
    ),
    "sequence first": lambda q, k, v, m: torch.einsum(
        "bnij,jbnd->ibnd",
        torch.einsum("ibnd,jbnd->bnij", q.permute(2, 0, 1, 3), k.permute(2, 0, 1, 3)).softmax(3),
        v.permute(2, 0, 1, 3),
    ),
    "five dimensions": lambda q, k, v, m: (q[None] @ k[None].mT * 0.3).softmax(-1) @ v[None],
    "three dimensions": lambda q, k, v, m: (q[0] @ k[0].mT).softmax(-1) @ v[0],
    "keys that are never transposed": lambda q, k, v, m: (q @ k.reshape(B, H, D, M)).softmax(-1) @ v,
    "less the largest": lambda q, k, v, m: F.softmax((s := q @ k.mT) - s.amax(-1, keepdim=True), -1) @ v,
    "two tensors of values": two_values,
}  # fmt: skip


def exported(function: Function, *tensors: torch.Tensor) -> Any:
    return torch.export.export(Of(function), tensors)


DECOMPOSED = ("masked_fill in place", "windows", "heads in the batch", "grouped queries", "sequence first", "clamped",
              "channels first")
"""The spellings that are also looked for in decomposed exports."""
CASES = [*((name, "exported") for name in SPELLINGS), *((name, "decomposed") for name in DECOMPOSED)]


@pytest.mark.sweep(3)
@pytest.mark.parametrize(("name", "form"), CASES)
def test_it_is_found(name: str, form: str) -> None:
    program, tensors = exported(SPELLINGS[name], *given()), given()
    wl = Workload.from_exported(program if form == "exported" else program.run_decompositions())
    new = IDIOMS(wl, iterative=True)
    assert new.op_counts()["nn.attention"] == (2 if name == "two tensors of values" else 1)
    assert "nn.softmax" not in new.op_counts()
    found, expected = new.exported.module()(*tensors), SPELLINGS[name](*tensors)
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5)


def capped(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, m: torch.Tensor) -> torch.Tensor:
    return (torch.tanh(q @ k.mT / 5) * 5 + m).softmax(-1) @ v


def with_sink(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, m: torch.Tensor, *, kept: int = M, shift: bool = False,
    mask: bool = True,
) -> torch.Tensor:  # fmt: skip
    """Attention with a sink for each head; ``kept`` places have their weights, with fewer values."""
    sink = torch.arange(H).reshape(1, H, 1, 1).expand(B, H, N, 1)
    scores = q @ k.mT * 0.3 + m if mask else q @ k.mT * 0.3
    scores = torch.cat([scores, sink.to(q.dtype)], -1)
    scores = scores - scores.max(-1, keepdim=True).values if shift else scores
    return scores.softmax(-1)[..., :kept] @ v[..., :kept, :]


def returned(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, m: torch.Tensor) -> Any:
    weights = (q @ k.mT + m).softmax(-1)
    return weights @ v, weights


LOOKS_LIKE: dict[str, Function] = {
    "a guard for rows of another number": guarded_by(0.0, 0.0),
    "a guard for rows that gives them other weights": guarded_by(-math.inf, 1.0),
    "a guard for rows in numbers of another number": guarded_by_largest(0.0),
    "a guard for NaN that gives other weights": without_nan(1.0),
    "a cap": capped,
    "a sink that hides a place": functools.partial(with_sink, kept=M - 1),
    "weights that are returned": returned,
    "scores that are returned": lambda q, k, v, m: ((s := q @ k.mT).softmax(-1) @ v, s),
    "a softmax over the queries": lambda q, k, v, m: (q @ k.mT).softmax(-2) @ v,
    "a softmax over the heads": lambda q, k, v, m: (q @ k.mT).softmax(1) @ v,
    "weights on the right": lambda q, k, v, m: v.mT @ (k @ q.mT).softmax(-1),
    "a gate": lambda q, k, v, m: ((q @ k.mT + m).softmax(-1) * q.new_full((H, 1, 1), 0.5)) @ v,
    "scores that are multiplied by place": lambda q, k, v, m: (q @ k.mT * torch.arange(M)).softmax(-1) @ v,
    "a number that hides little": lambda q, k, v, m: torch.where(m == 0, q @ k.mT, -10.0).softmax(-1) @ v,
    "a bound that is not low": lambda q, k, v, m: (q @ k.mT).clamp(min=-1.0).softmax(-1) @ v,
    "a mask that broadcasts the scores": lambda q, k, v, m: (q[:1] @ k[:1].mT + m).softmax(-1) @ v,
    "two matrices": lambda q, k, v, m: (q[0, 0] @ k[0, 0].mT).softmax(-1) @ v[0, 0],
    "scores in another precision": lambda q, k, v, m: (q @ k.mT).half().softmax(-1).float() @ v,
    "no softmax": lambda q, k, v, m: (q @ k.mT + m.clamp(min=-5)).sigmoid() @ v,
}  # fmt: skip


@pytest.mark.parametrize("name", LOOKS_LIKE)
def test_it_only_looks_like_attention(name: str) -> None:
    new = IDIOMS(Workload.from_exported(exported(LOOKS_LIKE[name], *given())), iterative=True)
    assert "nn.attention" not in new.op_counts()


@pytest.mark.parametrize("mask", [True, False])
@pytest.mark.parametrize("shift", [False, True])
def test_a_sink_is_a_place_without_a_value(shift: bool, mask: bool) -> None:
    function = functools.partial(with_sink, shift=shift, mask=mask)
    old = Workload.from_exported(exported(function, *given()))
    new = IDIOMS(old, iterative=True)
    assert new.trace.count("attention-sink") == new.op_counts()["nn.attention"] == 1
    torch.testing.assert_close(new.exported.module()(*given()), function(*given()), rtol=1e-5, atol=1e-5)


def hidden() -> torch.Tensor:
    """A mask of the places that are seen, with a row that sees none."""
    return given()[3] == 0


DECOMPOSITIONS: dict[str, tuple[dict[str, Any], Callable[[], torch.Tensor | None], int]] = {
    "plain": ({}, lambda: None, H),
    "a boolean mask": ({}, hidden, H),
    "a mask of minus infinity": ({"scale": 0.3}, lambda: torch.where(hidden(), 0.0, -math.inf), H),
    "causal": ({"is_causal": True}, lambda: None, H),
    "grouped queries": ({"enable_gqa": True}, hidden, 2),
}
"""Calls of torch's attention by their options, mask, and number of heads of the keys."""


@pytest.mark.parametrize("name", DECOMPOSITIONS)
def test_what_torch_decomposes_its_own_attention_into_is_found(name: str) -> None:
    options, mask, heads = DECOMPOSITIONS[name]
    q, k, v, _ = given()
    tensors = [x for x in (q, k[:, :heads], v[:, :heads], mask()) if x is not None]
    function = functools.partial(F.scaled_dot_product_attention, **options)
    before = Workload.from_exported(exported(function, *tensors).run_decompositions())
    assert before.op_counts()["nn.softmax"] == before.op_counts()["any"] == 1
    new = IDIOMS(before, iterative=True)
    assert new.op_counts()["nn.attention"] == 1
    assert not {"nn.softmax", "any", "multiply"} & {*new.op_counts()}
    torch.testing.assert_close(new.exported.module()(*tensors), function(*tensors), rtol=1e-5, atol=1e-5)


FACTORS: dict[str, tuple[Function, float]] = {
    "queries": (lambda q, k, v, m: F.scaled_dot_product_attention(3 * q, k, v), 3 * D**-0.5),
    "queries and a mask": (lambda q, k, v, m: F.scaled_dot_product_attention(q / 4, k, v, m, scale=0.5), 0.125),
    "keys": (lambda q, k, v, m: F.scaled_dot_product_attention(q, k * 2, v, scale=-0.5), -1.0),
    "queries and keys": (lambda q, k, v, m: ((q * 0.5) @ (k.mT / 2) + m).softmax(-1) @ v, 0.25),
}
"""Attention of queries or keys that are multiplied by numbers, with its scale then."""


@pytest.mark.parametrize("name", FACTORS)
def test_a_factor_of_queries_or_keys_goes_to_the_scale(name: str) -> None:
    function, scale = FACTORS[name]
    before = Workload.from_exported(exported(function, *given()))
    new = IDIOMS(before, iterative=True)
    (found,) = new.graph.by_op()["nn.attention"]
    assert found.attrs["scale"] == pytest.approx(scale)
    assert new.op_counts().total() == 1
    before.compare(new).check()


@pytest.mark.parametrize("factor", [-2.0, 0.0, math.inf])
def test_a_factor_that_is_no_scale_stays(factor: float) -> None:
    """Torch's kernels of causal attention would multiply minus infinity with it."""

    def function(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        return F.scaled_dot_product_attention(q, factor * k, v, is_causal=True)

    before = Workload.from_exported(exported(function, *given()[:3]))
    assert not IDIOMS(before, iterative=True).trace.firings


def test_axes_of_one_element_before_those_of_a_batch_hinder_nothing() -> None:
    """As exporters to ONNX leave the products of one image, of which they take reshapes away."""

    def function(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, m: torch.Tensor) -> torch.Tensor:
        scores = q.view(1, N, H, D).transpose(1, 2) @ k.mT + m
        return (scores.view(H, N, M).softmax(-1) @ v).view(1, H, N, D).transpose(1, 2).reshape(1, N, H * D)

    q, k, v, m = given(1)
    before = Workload.from_exported(exported(function, q.reshape(1, N, H * D), k[0], v[0], m))
    new = IDIOMS(before, iterative=True)
    assert new.op_counts()["nn.attention"] == 1
    before.compare(new).check()


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_halves_are_as_precise_as_before(dtype: torch.dtype) -> None:
    def upcast(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, m: torch.Tensor) -> torch.Tensor:
        return F.softmax(q @ k.mT * 0.3 + m, -1, dtype=torch.float32).to(q.dtype) @ v

    q, k, v, _ = (x.to(dtype) for x in given())
    m = torch.zeros(B, 1, N, M, dtype=dtype)
    new = IDIOMS(Workload.from_exported(exported(upcast, q, k, v, m)), iterative=True)
    assert new.op_counts()["nn.attention"] == 1
    exact = upcast(*(x.double() for x in (q, k, v, m)))
    before, after = (
        float((found.double() - exact).abs().max()) for found in (upcast(q, k, v, m), new.exported.module()(q, k, v, m))
    )
    assert after <= 1.5 * before


def halves_with_wide_scores(*masks: Node) -> Graph:
    """Attention of halves whose scores are a product in float32, as Relax has it."""
    nodes = [Node("input", (), {}, TensorType((2, 3, 3), "float16"), name=name) for name in "qkv"]

    def call(name: str, *operands: Node, **attrs: Any) -> Node:
        full = TABLE[name].complete(attrs, tuple([operand.type for operand in operands]))
        nodes.append(Node(name, operands, full, infer(name, operands, full), name=f"{name}_{len(nodes)}"))
        return nodes[-1]

    q, k, v = nodes
    nodes += masks
    scores = call("matmul", q, k, out_dtype="float32")
    for mask in masks:
        scores = call("add", scores, mask)
    weights = call("cast", call("nn.softmax", scores, axis=-1), dtype="float16")
    return Graph(nodes, [call("matmul", weights, v)], infer)


def test_a_mask_is_not_rounded() -> None:
    mask = Node("input", (), {}, TensorType((2, 3, 3), "float32"), name="mask")
    rule = next(rule for rule in IDIOMS if rule.name == "attention")
    assert next(rule.match(halves_with_wide_scores()), None) is not None
    assert next(rule.match(halves_with_wide_scores(mask)), None) is None


def test_a_bias_is_added_to_a_mask_in_the_dtype_of_the_scores() -> None:
    """In a wider one it would be rounded otherwise than where it is added to scores."""

    def function(
        q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, m: torch.Tensor, bias: torch.Tensor
    ) -> torch.Tensor:
        return ((q @ k.mT).masked_fill(m < 0, float("-inf")) + bias).softmax(-1) @ v

    tensors = [*(x.half() for x in given()), torch.randn(N, M).half()]
    new = IDIOMS(Workload.from_exported(exported(function, *tensors)), iterative=True)
    assert new.op_counts()["nn.attention"] == 1
    (total,) = [node for node in new.graph.nodes if node.op == "add"]
    assert total.type == TensorType((B, 1, N, M), "float16")


@pytest.mark.parametrize("is_where", [False, True])
def test_places_are_hidden_by_the_least_number_of_double_precision(is_where: bool) -> None:
    least = torch.finfo(torch.float64).min

    def function(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, m: torch.Tensor) -> torch.Tensor:
        scores = q @ k.mT
        masked = torch.where(m == 0, scores, least) if is_where else scores.masked_fill(m < 0, least)
        return masked.softmax(-1) @ v

    tensors = [x.double() for x in given()]
    new = IDIOMS(Workload.from_exported(exported(function, *tensors)), iterative=True)
    assert new.op_counts()["nn.attention"] == 1
    torch.testing.assert_close(new.exported.module()(*tensors), function(*tensors))


# ---------------------------------------------------------------- verdicts

STEPS = [(), (scaled,), (masked,), (viewed,), (clamped,), (shifted,)]


def step_id(steps: Any) -> str:
    return "+".join(step.__name__ for step in steps) or "none"


@pytest.mark.sweep(24)
@pytest.mark.parametrize("steps", STEPS, ids=step_id)
def test_a_step_is_supported(steps: Any) -> None:
    source, target, *where = sides(*steps)
    found = Subst(source, target, where=where).verify(max_examples=60 if steps in (STEPS[0], (scaled,)) else 120)
    assert isinstance(found, Supported), str(found)


@pytest.mark.parametrize("steps", [(masked,), ()], ids=step_id)
def test_a_sink_is_supported(steps: Any) -> None:
    source, target, *where = sides_with_sink(*steps)
    found = Subst(source, target, where=where).verify(max_examples=120)
    assert isinstance(found, Supported), str(found)


@pytest.mark.long
@pytest.mark.parametrize("rule", family.RULES, ids=lambda rule: rule.name)
def test_a_rule_with_all_steps_is_supported(rule: Subst) -> None:
    """Few of the combinations of steps, shapes and dtypes are instances, which are looked for beside the known ones."""
    found = rule.verify(max_examples=100)
    assert isinstance(found, Supported), str(found)
    assert found.evidence.distinct >= 40


# ---------------------------------------------------------------- architectures

MODELS = {"llama": True, "swin": False, "xlnet": False, "deberta-v2": True}
"""Architectures that write attention each in its own way, and whether they are run with a padding mask."""


@pytest.mark.sweep(2)
@pytest.mark.parametrize("name", MODELS)
def test_all_layers_of_a_model_are_found(name: str) -> None:
    model = example(name, mask=MODELS[name])
    with torch.no_grad():
        expected, layers = model.model(*model.inputs), model.layers()
        found, outputs = in_export(torch.export.export(model.model, model.inputs, strict=False), model)
    assert (found, layers.others) == (layers.plain, {})
    assert layers.plain >= 2
    torch.testing.assert_close(outputs, expected, rtol=1e-4, atol=1e-4)


@pytest.mark.long
def test_all_layers_are_found_in_every_form() -> None:
    model = example("gpt_neo", batch=1)
    with torch.no_grad():
        expected = model.model(*model.inputs)
        program = torch.export.export(model.model, model.inputs, strict=False)
        for number, outputs in (
            in_compiled(model), in_export(program.run_decompositions(), model), (in_relax(program), expected),
        ):  # fmt: skip
            assert number == 2
            torch.testing.assert_close(tuple(outputs), expected, rtol=1e-4, atol=1e-4)


@pytest.mark.sweep(5)
@pytest.mark.parametrize("name", ["gemma2", "gpt_oss"])
def test_caps_and_sinks_are_no_plain_attention(name: str) -> None:
    model = example(name)
    with torch.no_grad():
        found, _ = in_export(torch.export.export(model.model, model.inputs, strict=False), model)
    assert found == model.layers().plain == 0
    assert sum(model.layers().others.values()) == 2


def of(function: Function) -> Layers:
    return count(Of(function), given())


def test_layers_are_counted_while_a_model_runs() -> None:
    assert of(SPELLINGS["two masks"]).plain == of(bloom).plain == 1
    assert of(capped).others == {"a cap": 1}
    assert of(with_sink).others == {"a sink": 1}
    assert of(lambda q, k, v, m: (q @ k.mT) @ v) == Layers(0, {}, float("inf"))
    assert of(SPELLINGS["product"]).spread > 1
    assert of(lambda q, k, v, m: (v + 1, (q @ k.mT).softmax(-1) @ v)[0]).plain == 0
    assert of(written_to).plain == 1


def written_to(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, m: torch.Tensor) -> torch.Tensor:
    """A layer whose result is a part of the output."""
    out = torch.zeros(2, *q.shape)
    out[1] = (q @ k.mT).softmax(-1) @ v
    return out


class TwoGraphs(torch.nn.Module):
    """Two layers, for which one graph runs."""

    def layer(self, x: torch.Tensor) -> torch.Tensor:
        torch._dynamo.graph_break()
        return (x @ x.mT).softmax(-1) @ x

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor]:
        return (self.layer(self.layer(x)),)


def test_a_graph_that_runs_for_two_layers_counts_twice() -> None:
    model = Example("two", TwoGraphs(), given()[:1])
    found, _ = in_compiled(model)
    assert found == model.layers().plain == 2


def test_the_page_tells_what_is_missing_and_what_is_wrong() -> None:
    results = [
        Found("a", "plain, 2", "exported", 2, 2, error=1e-7), Found("b", "plain, 2", "exported", 2, 1, error=0.5),
        Found("c", "plain, 2", "exported", 2, reason="no | export"),
        Found("capped", "plain, 2", "exported", 0, 1, others=2), Found("capped", "plain, 2", "relax", 0, 0, others=2),
        Found("none", "plain, 2", "", 0, reason="no attention"),
    ]  # fmt: skip
    assert [each.wrong for each in results] == [False, True, False, True, False, False]
    text = page(results)
    assert "| plain, 2 | exported | 3 | 4 | 3 | 75.0% | 2 |" in text
    assert "| plain, 2 | relax | 1 | 0 | 0 |  | 0 |" in text
    assert "none" not in text
    assert "| b | plain, 2, exported: 1 of 2 |" in text
    assert "| c | exported | no / export |" in text


def test_a_run_looks_at_the_variants_that_are_asked_for_and_goes_on_where_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    looked: list[tuple[str, str, tuple[str, ...]]] = []

    def look(name: str, variant: str, forms: Sequence[str]) -> list[Found]:
        looked.append((name, variant, tuple(forms)))
        if name == "resnet":
            return [Found(name, variant, "", 0, reason="no attention")]
        return [Found(name, variant, form, 2, 1) for form in forms]

    monkeypatch.setattr(attention, "look", look)
    lines, written = tmp_path / "lines.jsonl", tmp_path / "page.md"
    some = ["bert", "resnet", "--lines", str(lines), "--batch", "1", "--form", "compiled"]
    attention.main([*some, "--mask", "padding"])
    assert looked == [(name, "masked, 1", ("compiled",)) for name in ("bert", "resnet")]
    attention.main([*some, "--page", str(written)])
    assert looked[2:] == [(name, "plain, 1", ("compiled",)) for name in ("bert", "resnet")]
    assert "| masked, 1 | compiled | 1 | 2 | 1 | 50.0% | 0 |" in written.read_text()
    attention.main([*some, "--batch", "2", "--form", "relax"])
    assert looked[4:] == [
        ("bert", "plain, 2", ("compiled", "relax")), ("resnet", "plain, 2", ("compiled", "relax")),
        ("bert", "masked, 2", ("compiled", "relax")), ("resnet", "masked, 2", ("compiled", "relax")),
        ("bert", "plain, 1", ("relax",)), ("bert", "masked, 1", ("relax",)),
    ]  # fmt: skip
    assert "1 of 2" in capsys.readouterr().out


def test_a_model_that_takes_no_mask_says_so() -> None:
    with pytest.raises(ValueError, match="vit takes no mask"):
        example("vit", mask=True)
    assert isinstance(example("vit"), Example)
    assert gsl.rules.IDIOMS["attention"] is family.attention

"""The rules for onnxruntime hold, and its operators compute what is said of them."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch

from gsl import Refuted, Subst, Supported, Workload, attr, op, pat
from gsl.operators import ort
from gsl.rules import ORT
from gsl.rules.ort import RULES, rotary_embedding_tables
from gsl.verify.mutate import mutants_of

onnx = pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")

THREE = "float[2,3,8] x, float[2,3,8] y"
W = "float[8] w"
PACKED = "float[2,3,8] x, float[8,24] w, float[24] b"
TABLES = "int64[1] p, float[9,2] c, float[9,2] s"
WORDS = "int32[2,3] i, float[9,8] v, float[5,8] r, float[8] w, float[8] b"
KINDS = f"{WORDS}, int32[2,3] k, float[4,8] t"
EMBED = "EmbedLayerNormalization <epsilon = 0.1>"
CALLS = {
    "skip norm": (f"{THREE}, {W}, float[8] b", "SkipLayerNormalization <epsilon = 0.1> (x, y, w, b)",
                  ort.skip_layer_norm),
    "skip norm with a bias": (f"{THREE}, {W}, float[8] b", "SkipLayerNormalization <epsilon = 0.1> (x, y, w, b, w)",
                              ort.skip_layer_norm),
    "skip RMS norm": (f"{THREE}, {W}", "SkipSimplifiedLayerNormalization <epsilon = 0.1> (x, y, w)",
                      ort.skip_rms_norm),
    "bias and GELU": (f"{THREE}, {W}", "BiasGelu (x, w)", ort.bias_gelu),
    "fast GELU": (THREE, "FastGelu (x)", ort.fast_gelu),
    "bias and fast GELU": (f"{THREE}, {W}", "FastGelu (x, w)", ort.fast_gelu),
    "quick GELU": (THREE, "QuickGelu <alpha = 0.5> (x)", ort.quick_gelu),
    "product": (THREE, "FusedMatMul <transB = 1, alpha = 0.5> (x, y)", ort.fused_matmul),
    "left product": (THREE, "FusedMatMul <transA = 1> (x, y)", ort.fused_matmul),
    "attention": (THREE, "MultiHeadAttention <num_heads = 2> (x, y, y)", ort.multi_head_attention),
    "causal attention": (THREE, "MultiHeadAttention <num_heads = 4, unidirectional = 1> (x, y, y)",
                         ort.multi_head_attention),
    "masked attention": (f"{THREE}, float[1,1,3,3] m",
                         "MultiHeadAttention <num_heads = 2, scale = 0.25> (x, y, y, , , m)", ort.masked_attention),
    "packed attention": (PACKED, "Attention <num_heads = 2> (x, w, b)", ort.packed_attention),
    "causal packed attention": (PACKED, "Attention <num_heads = 4, unidirectional = 1> (x, w, b)",
                                ort.packed_attention),
    "masked packed attention": (f"{PACKED}, float[2,1,3,3] m", "Attention <num_heads = 2> (x, w, b, , , m)",
                                ort.packed_masked_attention),
    "rotary positions": ("float[2,2,3,8] x, int64[1] p, float[9,4] c, float[9,4] s", "RotaryEmbedding (x, p, c, s)",
                         ort.rotary_embedding),
    "rotary positions of a part": (
        f"float[2,2,3,8] x, {TABLES}", "RotaryEmbedding <num_heads = 2, rotary_embedding_dim = 4> (x, p, c, s)",
        ort.rotary_embedding),
    "rotary positions of rows": (
        f"float[2,3,8] x, {TABLES}", "RotaryEmbedding <num_heads = 2> (x, p, c, s)", ort.rotary_rows),
    "rotary positions of a part of rows": (
        f"float[2,3,16] x, {TABLES}", "RotaryEmbedding <num_heads = 2, rotary_embedding_dim = 4> (x, p, c, s)",
        ort.rotary_rows),
    "embeddings": (KINDS, f"{EMBED} (i, k, v, r, t, w, b)", ort.embed_layer_norm),
    "embeddings at places": (f"{KINDS}, int32[1,3] p", f"{EMBED} (i, k, v, r, t, w, b, , p)",
                             ort.embed_layer_norm_placed),
    "embeddings of words": (WORDS, f"{EMBED} (i, , v, r, , w, b)", ort.embed_layer_norm_words),
    "embeddings of words at places": (f"{WORDS}, int32[2,3] p", f"{EMBED} (i, , v, r, , w, b, , p)",
                                      ort.embed_layer_norm_words_placed),
}  # fmt: skip


def model(inputs: str, call: str, outputs: str = "result") -> Workload:
    rank = max(inputs.partition("]")[0].count(",") + 1, 3)
    sizes = [",".join(f"{axis}{n}" for axis in "abcd"[:rank]) for n in range(4)]
    results = ", ".join(f"float[{sizes[n]}] {name}" for n, name in enumerate(outputs.split(", ")) if name)
    return Workload.from_onnx(onnx.parser.parse_model(f"""
        <ir_version: 10, opset_import: ["" : 20, "com.microsoft" : 1]>
        main ({inputs}) => ({results}) {{ {outputs} = com.microsoft.{call} }}"""))


def largest_error(wl: Workload, operator: Any) -> float:
    """The largest difference between what onnxruntime computes and the meaning of the one call of a model."""
    given = dict(zip(wl.inputs, wl.random_inputs()))
    graph = wl.with_operators(operator).graph
    (node,) = graph.by_op()[operator.spec.name]
    meant = wl.program.evaluate(node, [given[operand.name] for operand in node.operands])
    if isinstance(meant, tuple):
        meant = tuple(meant[output.attrs["index"]] for output in graph.outputs)
    else:
        meant = (meant,)
    found = wl(*given.values())
    found = found if isinstance(found, tuple) else (found,)
    return max(float(abs(one.numpy() - other).max()) for one, other in zip(meant, found, strict=True))


@pytest.mark.parametrize("name", CALLS)
def test_an_operator_computes_its_meaning(name: str) -> None:
    inputs, call, operator = CALLS[name]
    assert largest_error(model(inputs, call, "result, , total" if EMBED in call else "result"), operator) < 1e-5


def test_the_sum_is_the_last_result() -> None:
    inputs, call, operator = CALLS["skip norm"]
    assert largest_error(model(inputs, call, "result, , , total"), operator) < 1e-5


def test_another_kernel_is_told() -> None:
    """GELU and its approximation differ by more than what is allowed above."""
    inputs, _, operator = CALLS["fast GELU"]
    wl = model(inputs, "FastGelu (x)")
    (node,) = wl.with_operators(operator).graph.by_op()[operator.spec.name]
    (x, _) = wl.random_inputs()
    exact = model(inputs, "Gelu (x)")
    assert abs(wl.program.evaluate(node, [x]).numpy() - exact(*wl.random_inputs())).max() > 1e-4


def test_the_gelu_of_a_number_has_no_kernel() -> None:
    old = Workload.from_onnx(onnx.parser.parse_model("""
<ir_version: 10, opset_import: ["" : 20]>
number (float x, float[1] y) => (float u, float[1] v) {
    u = Gelu <approximate = "tanh"> (x)
    v = Gelu <approximate = "tanh"> (y)
}"""))
    new = ORT(old, iterative=True)
    assert [node.op_type for node in new.model.graph] == ["Gelu", "FastGelu"]
    old.compare(new).check()


@pytest.mark.sweep(12)
@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.name)
def test_a_rule_holds(rule: Subst) -> None:
    assert rule in ORT
    assert isinstance(rule.verify(max_examples=20), Supported)


class Turned(torch.nn.Module):
    """Heads that are turned by angles of their places, which are computed from an input or weights."""

    def __init__(self, size: int, length: int | None = None) -> None:
        super().__init__()
        self.speed = torch.nn.Buffer(torch.pow(10.0, -torch.arange(size // 2) / size))
        self.known = length is not None
        if length is not None:
            self.cos, self.sin = map(torch.nn.Buffer, self.tables(length))

    def tables(self, length: int) -> tuple[torch.Tensor, torch.Tensor]:
        angles = torch.arange(float(length))[None, :, None] * self.speed
        twice = torch.cat([angles, angles], -1)
        return twice.cos()[:, None], twice.sin()[:, None]

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        cos, sin = (self.cos, self.sin) if self.known else self.tables(x.shape[2])
        one, other = x[..., : x.shape[-1] // 2], x[..., x.shape[-1] // 2 :]
        return x * cos + torch.cat([-other, one], -1) * sin


@pytest.mark.parametrize("shape", [(1, 1, 1, 2), (2, 3, 5, 8), (1, 4, 7, 6)])
@pytest.mark.parametrize("is_weight", [True, False])
def test_rotary_positions(shape: tuple[int, ...], is_weight: bool) -> None:
    x = torch.linspace(-2, 2, math.prod(shape)).reshape(shape)
    wl = Workload.from_torch(Turned(shape[3], shape[2] if is_weight else None), (x,))
    new = ORT(wl, iterative=True)
    assert new.op_counts()[ort.rotary_embedding.spec.name] == 1
    wl.compare(new, inputs=[x]).check()


def test_tables_with_unequal_halves_stay() -> None:
    module = Turned(8, 5)
    module.sin[0, 0, 2, 5] += 0.25
    new = rotary_embedding_tables(Workload.from_torch(module, (torch.rand(2, 3, 5, 8),)))
    assert ort.rotary_embedding.spec.name not in new.op_counts()


@pytest.mark.long
def test_cosines_are_told_from_sines() -> None:
    (exchanged,) = (m.rule for m in mutants_of(rotary_embedding_tables) if m.name.endswith("and another exchanged"))
    assert isinstance(exchanged, Subst)
    assert isinstance(exchanged.verify(max_examples=20), Refuted)


def test_a_wrong_rule_is_refuted() -> None:
    x, b = pat.Wildcard(), pat.Wildcard()
    layer = op.BiasAdd(x, b, axis=x.ndim - 1)
    wrong = Subst(op.GELU(layer, approximate="tanh"), ort.bias_gelu(x, b), where=attr.In(x.dtype, ("float32",)))
    assert not isinstance(wrong.verify(max_examples=50), Supported)

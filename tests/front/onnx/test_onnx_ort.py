"""The rules for onnxruntime on exports of transformers, beside onnxruntime's own optimiser in the same run."""

from __future__ import annotations

import functools
import logging
import warnings
from collections import Counter
from pathlib import Path
from typing import Any

import onnx_ir as ir
import pytest
import torch
from torch import nn

from gsl import RuleSet, Workload, rules
from gsl.onnx import Pass
from tests.front.onnx.onnx_helpers import anew, bytes_of, check, nodes, workload

transformers: Any = pytest.importorskip("transformers")
pytest.importorskip("onnxscript")
onnxruntime: Any = pytest.importorskip("onnxruntime")
optimizer: Any = pytest.importorskip("onnxruntime.transformers.optimizer")

SMALL = {"vocab_size": 99, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 64}


class First(nn.Module):
    """The first result of a model."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, **given: torch.Tensor) -> Any:
        return self.model(**given)[0]


def tokens() -> dict[str, torch.Tensor]:
    return {"input_ids": torch.arange(20).reshape(2, 10) * 7 % 97 + 2}


def bert(t: Any, attention: str) -> tuple[nn.Module, dict[str, torch.Tensor]]:
    model = t.BertModel(t.BertConfig(**SMALL, max_position_embeddings=64, attn_implementation=attention))
    return model, {**tokens(), "attention_mask": torch.ones(2, 10, dtype=torch.long)}


def gpt2(t: Any, attention: str) -> tuple[nn.Module, dict[str, torch.Tensor]]:
    own = {"n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 64, "vocab_size": 99, "use_cache": False}
    return t.GPT2Model(t.GPT2Config(**own, attn_implementation=attention)), tokens()


def vit(t: Any, attention: str) -> tuple[nn.Module, dict[str, torch.Tensor]]:
    own = {name: value for name, value in SMALL.items() if name != "vocab_size"}
    model = t.ViTModel(t.ViTConfig(**own, image_size=32, patch_size=8, attn_implementation=attention))
    return model, {"pixel_values": torch.linspace(-1, 1, 6144).reshape(2, 3, 32, 32)}


def t5(t: Any, attention: str) -> tuple[nn.Module, dict[str, torch.Tensor]]:
    own = {"vocab_size": 99, "d_model": 32, "d_kv": 8, "num_layers": 2, "num_heads": 4, "d_ff": 64}
    return t.T5EncoderModel(t.T5Config(**own, attn_implementation=attention)), tokens()


def llama(t: Any, attention: str) -> tuple[nn.Module, dict[str, torch.Tensor]]:
    own = t.LlamaConfig(**SMALL, max_position_embeddings=64, use_cache=False, attn_implementation=attention)
    return t.LlamaModel(own), tokens()


def whisper(t: Any, attention: str) -> tuple[nn.Module, dict[str, torch.Tensor]]:
    own = t.WhisperConfig(
        d_model=32, encoder_layers=2, encoder_attention_heads=4, encoder_ffn_dim=64, num_mel_bins=8,
        max_source_positions=20, attn_implementation=attention,
    )  # fmt: skip
    model = t.models.whisper.modeling_whisper.WhisperEncoder(own)
    return model, {"input_features": torch.linspace(-1, 1, 640).reshape(2, 8, 40)}


def phi(t: Any, attention: str) -> tuple[nn.Module, dict[str, torch.Tensor]]:
    """As GPT-NeoX and Llama: half of each head is turned."""
    own = t.PhiConfig(
        **SMALL, max_position_embeddings=64, use_cache=False, partial_rotary_factor=0.5, attn_implementation=attention
    )
    return t.PhiModel(own), tokens()


MODELS = {"bert": bert, "gpt2": gpt2, "vit": vit, "t5": t5, "llama": llama, "phi": phi, "whisper": whisper}
KINDS = {"gpt2": "bert", "llama": "gpt_neox", "phi": "gpt_neox", "whisper": "bart"}
"""The kinds by which onnxruntime's optimiser knows the models, where they are others. It ends with an IndexError for a
model of GPT-2 as ``"gpt2"``."""


@functools.cache
def exported(name: str, attention: str) -> tuple[Workload, dict[str, torch.Tensor]]:
    """The export of a small model, and its inputs."""
    torch.manual_seed(0)
    model, given = MODELS[name](transformers, attention)
    logging.disable(logging.CRITICAL)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            made = torch.onnx.export(First(model).eval(), (), kwargs=given, dynamo=True, verbose=False)
    finally:
        logging.disable(logging.NOTSET)
    assert made is not None
    return Workload.from_onnx(made.model), given


def fused(nodes: Any) -> Counter[str]:
    """The numbers of calls of onnxruntime's own operators. Attention goes by several names."""
    own = [node.op_type for node in nodes if node.domain == "com.microsoft"]
    return Counter("MultiHeadAttention" if name.endswith("Attention") else name for name in own)


@pytest.mark.sweep(8)
@pytest.mark.parametrize("name", sorted(MODELS.keys() - {"phi"}))
def test_an_export_comes_back(name: str) -> None:
    """As it was, and with the same numbers where every call is written anew."""
    wl, given = exported(name, "eager")
    before = bytes_of(wl.model)
    assert wl.program.store(wl.program.load()).native is wl.model
    new = anew(wl)
    check(new.model)
    assert bytes_of(wl.model) == before
    wl.compare(new, inputs=[given[name] for name in wl.inputs], rtol=1e-4, atol=1e-5).check()


CASES = [
    *[pytest.param(name, "eager", id=name, marks=[pytest.mark.long] * (name == "phi")) for name in MODELS],
    *[pytest.param(name, "sdpa", id=f"{name}-sdpa", marks=pytest.mark.long) for name in MODELS if name != "t5"],
]


@pytest.mark.sweep(2)
@pytest.mark.parametrize(("name", "attention"), CASES)
def test_at_least_what_onnxruntime_fuses(name: str, attention: str, tmp_path: Path) -> None:
    wl, given = exported(name, attention)
    new = rules.ORT(wl, iterative=True)
    check(new.model)
    inputs = [given[name] for name in wl.inputs]
    wl.compare(new, inputs=inputs, rtol=1e-4, atol=1e-5).check()
    found = fused(new.model.graph)
    packed = sum(node.op_type == "Attention" for node in new.model.graph)
    turned = found["RotaryEmbedding"]
    assert (found["MultiHeadAttention"], packed, turned) == ((2, 0, 4) if name in ("llama", "phi") else (2, 2, 0))
    assert found["EmbedLayerNormalization"] == (name in ("bert", "gpt2"))
    assert not turned or not {"Transpose", "Concat"} & {node.op_type for node in new.model.graph}  # no heads apart
    wl.save(tmp_path / "model.onnx")
    theirs = optimizer.optimize_model(
        str(tmp_path / "model.onnx"), KINDS.get(name, name), num_heads=4, hidden_size=32, opt_level=0
    ).model.graph.node
    assert fused(theirs) <= found
    assert len(new.model.graph) < len(theirs)
    assert_done(rules.ORT, new)


def assert_done(rules: RuleSet, wl: Workload) -> None:
    """The rules do nothing more on what they made, neither in a copy nor in the model itself."""
    again = rules(wl, iterative=True)
    assert (again.trace.count(), again.model is wl.model) == (0, True)
    before = bytes_of(wl.model)
    assert not Pass(rules, iterative=True)(wl.model).modified
    assert bytes_of(wl.model) == before


@pytest.mark.parametrize("name", [
    pytest.param(name, marks=[pytest.mark.long] * (name not in ("gpt2", "t5"))) for name in MODELS
])  # fmt: skip
def test_no_rule_fires_on_what_it_made(name: str) -> None:
    for each in (rules.BOOK, rules.NORMAL):
        assert_done(each, each(exported(name, "eager")[0], iterative=True))


RMS_NORM = """
    squares = Mul (x, x) mean = ReduceMean (squares, axes) sum = Add (mean, epsilon) root = Sqrt (sum)
    inverse = Reciprocal (root) scaled = Mul (x, inverse) y = Mul (scaled, w)"""


def test_onnxruntime_makes_a_node_of_its_own_of_an_rms_norm(tmp_path: Path) -> None:
    """It is written in the words that onnxruntime looks for when it opens a model, which it does not find before."""
    inputs, more = "float[2,3,8] x, float[8] w", "int64[1] axes = {-1}, float epsilon = {0.001}"
    wl = workload(RMS_NORM, inputs, "float[2,3,8] y", opset=20, more=more)
    new = rules.ORT(wl, iterative=True)
    wl.compare(new).check()
    assert [opened(each.model, tmp_path) for each in (wl, new)] == [nodes(wl.model), ["SimplifiedLayerNormalization"]]


def test_so_it_does_of_a_gelu_of_an_older_model(tmp_path: Path) -> None:
    text = "scaled = Mul (x, c) erf = Erf (scaled) sum = Add (erf, one) half = Mul (x, h) y = Mul (half, sum)"
    more = "float c = {0.70710678}, float one = {1}, float h = {0.5}"
    wl = workload(text, "float[2,3] x", "float[2,3] y", opset=17, more=more)
    new = rules.ORT(wl, iterative=True)
    wl.compare(new).check()
    assert [opened(each.model, tmp_path) for each in (wl, new)] == [nodes(wl.model), ["Gelu"]]


@pytest.mark.parametrize("dtype", ["float", "float16"])
@pytest.mark.parametrize(("norm", "made"), [
    ("LayerNormalization (sum, w, b)", "SkipLayerNormalization"),
    ("SimplifiedLayerNormalization (sum, w)", "SkipSimplifiedLayerNormalization"),
])  # fmt: skip
def test_the_norm_of_a_sum_that_others_use_has_statistics_in_float32(norm: str, made: str, dtype: str) -> None:
    inputs = f"{dtype}[2,3,8] x, {dtype}[2,3,8] skip, {dtype}[8] w, {dtype}[8] b"
    outputs = f"{dtype}[2,3,8] y, {dtype}[2,3,8] sum"
    wl = workload(f"sum = Add (x, skip) n = {norm} y = Abs (n)", inputs, outputs, opset=20)
    new = rules.ORT(wl, iterative=True)
    assert nodes(new.model) == [made, "Abs"]
    wl.compare(new, rtol=1e-2, atol=1e-2).check()


def opened(model: ir.Model, folder: Path) -> list[str]:
    """The operators of a model as onnxruntime has optimised it."""
    options = onnxruntime.SessionOptions()
    options.optimized_model_filepath = str(folder / "opened.onnx")
    options.log_severity_level = 4
    data = ir.to_proto(model).SerializeToString()
    onnxruntime.InferenceSession(data, options, providers=["CPUExecutionProvider"])
    return nodes(ir.load(folder / "opened.onnx"))

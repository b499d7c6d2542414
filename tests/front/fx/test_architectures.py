"""Exact round trips of many architectures: as exported, decomposed, and as modules."""

from __future__ import annotations

import functools
import io
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any, Final

import pytest
import torch
import transformers as hf
from fx_helpers import Attention, ConvNet, Stateful, differences
from torch import nn
from torch.export import ExportedProgram

from gsl.front import fx
from gsl.graph import LEAVES, Graph, Node, op_name

SMALL: Final = {
    "hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 24, "vocab_size": 40,
    "max_position_embeddings": 16,
}  # fmt: skip
IMAGE: Final = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 24,
                "image_size": 16, "patch_size": 8}  # fmt: skip


class Wrapped(nn.Module):
    """A model that returns its first tensors as a tuple, which torch.export can take."""

    def __init__(self, model: nn.Module, name: str) -> None:
        super().__init__()
        self.model = model
        self.name = name

    def forward(self, value: torch.Tensor) -> Any:
        return self.model(**{self.name: value}, return_dict=False)[0]


def text(config: Any, model: Any, **changes: Any) -> Callable[[], tuple[nn.Module, torch.Tensor]]:
    def make() -> tuple[nn.Module, torch.Tensor]:
        built = model(config(**{**SMALL, "pad_token_id": 0, "use_cache": False, **changes}))
        return Wrapped(built, "input_ids"), torch.arange(1, 7)[None]

    return make


def image(config: Any, model: Any, size: int = 16, **changes: Any) -> Callable[[], tuple[nn.Module, torch.Tensor]]:
    return lambda: (Wrapped(model(config(**changes)), "pixel_values"), torch.randn(1, 3, size, size))


def whisper() -> tuple[nn.Module, torch.Tensor]:
    from transformers.models.whisper.modeling_whisper import WhisperEncoder

    config = hf.WhisperConfig(
        d_model=16, encoder_layers=1, encoder_attention_heads=2, encoder_ffn_dim=24, num_mel_bins=8,
        max_source_positions=8, vocab_size=40, pad_token_id=0,
    )  # fmt: skip
    return Wrapped(WhisperEncoder(config), "input_features"), torch.randn(1, 8, 16)


def t5() -> tuple[nn.Module, torch.Tensor]:
    config = hf.T5Config(d_model=16, d_kv=8, d_ff=24, num_layers=1, num_heads=2, vocab_size=40)
    return Wrapped(hf.T5EncoderModel(config), "input_ids"), torch.arange(1, 7)[None]


KV: Final = {"num_key_value_heads": 1}
STAGES: Final = {"depths": [1, 1], "hidden_sizes": [8, 16]}
ARCHITECTURES: Final[Mapping[str, Callable[[], tuple[nn.Module, torch.Tensor]]]] = {
    "resnet": image(hf.ResNetConfig, hf.ResNetForImageClassification, 32, embedding_size=8, **STAGES),
    "mobilenet_v2": image(hf.MobileNetV2Config, hf.MobileNetV2Model, 32, depth_multiplier=0.1),
    "convnext": image(hf.ConvNextConfig, hf.ConvNextModel, 32, num_stages=2, **STAGES),
    "vit": image(hf.ViTConfig, hf.ViTModel, **IMAGE),
    "deit": image(hf.DeiTConfig, hf.DeiTModel, **IMAGE),
    "clip_vision": image(hf.CLIPVisionConfig, hf.CLIPVisionModel, **IMAGE),
    "swin": image(
        hf.SwinConfig, hf.SwinModel, 16, image_size=16, patch_size=2, embed_dim=8, depths=[2], num_heads=[2],
        window_size=4,
    ),
    "segformer": image(
        hf.SegformerConfig, hf.SegformerModel, 32, num_encoder_blocks=2, depths=[1, 1], hidden_sizes=[8, 16],
        sr_ratios=[2, 1], num_attention_heads=[1, 2], patch_sizes=[7, 3], strides=[4, 2], mlp_ratios=[2, 2],
    ),
    "bert": text(hf.BertConfig, hf.BertModel),
    "roberta": text(hf.RobertaConfig, hf.RobertaModel),
    "albert": text(hf.AlbertConfig, hf.AlbertModel, embedding_size=8),
    "distilbert": text(hf.DistilBertConfig, hf.DistilBertModel, dim=16, n_layers=1, n_heads=2, hidden_dim=24),
    "gpt2": text(hf.GPT2Config, hf.GPT2LMHeadModel, n_embd=16, n_layer=1, n_head=2, n_positions=16),
    "llama": text(hf.LlamaConfig, hf.LlamaForCausalLM, **KV),
    "mistral": text(hf.MistralConfig, hf.MistralModel, **KV),
    "qwen2": text(hf.Qwen2Config, hf.Qwen2Model, **KV),
    "mixtral": text(hf.MixtralConfig, hf.MixtralModel, **KV, num_local_experts=2),
    "t5_encoder": t5,
    "whisper_encoder": whisper,
    "attention": lambda: (Attention(), torch.randn(2, 6, 8)),
    "conv_net": lambda: (ConvNet(), torch.randn(2, 3, 8, 8)),
    "stateful": lambda: (Stateful(), torch.arange(6)),
}  # fmt: skip


@functools.cache
def exported(name: str) -> tuple[ExportedProgram, torch.Tensor]:
    torch.manual_seed(0)
    model, value = ARCHITECTURES[name]()
    return torch.export.export(model.eval(), (value,)), value


def check(program: Any, value: torch.Tensor) -> Any:
    """Load and store, compare both programs, and their results on an input."""
    before = program.load()
    stored = program.store(before.copy())
    assert differences(program.native, stored.native) == []
    # A second load finds the same view.
    assert str(stored.load()) == str(before)
    return stored


def results(program: Any, value: torch.Tensor) -> list[Any]:
    state = {name: tensor.detach().clone() for name, tensor in program.params.items()}
    with torch.no_grad():
        found = torch.utils._pytree.tree_leaves(program.build()(value))
        for name, tensor in program.params.items():
            tensor.copy_(state[name])
    return found


def same_results(old: Any, new: Any, value: torch.Tensor) -> None:
    for a, b in zip(results(old, value), results(new, value), strict=True):
        torch.testing.assert_close(a, b, rtol=0, atol=0)


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_exported(name: str) -> None:
    ep, value = exported(name)
    program = fx.from_exported(ep)
    same_results(program, check(program, value), value)


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_decomposed(name: str) -> None:
    ep, value = exported(name)
    program = fx.from_exported(ep.run_decompositions())
    check(program, value)


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_module(name: str) -> None:
    ep, value = exported(name)
    program = fx.from_graph_module(ep.module(check_guards=False), [value])
    check(program, value)


def made_anew(view: Graph) -> Graph:
    """A copy of a view in which a rewrite seems to have made every canonical call."""
    copy = view.copy()
    for node in copy.nodes:
        if isinstance(node.op, str) and node.op not in LEAVES:
            node.native = None
    return copy


FORMS: Final[Mapping[str, Callable[[ExportedProgram, torch.Tensor], Any]]] = {
    "exported": lambda ep, value: fx.from_exported(ep),
    "decomposed": lambda ep, value: fx.from_exported(ep.run_decompositions()),
    "module": lambda ep, value: fx.from_graph_module(ep.module(check_guards=False), [value]),
}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("name", ARCHITECTURES)
def test_every_call_made_anew(name: str, form: str) -> None:
    """All canonical calls are written instead of copied: the results and the view are the same."""
    ep, value = exported(name)
    program = FORMS[form](ep, value)
    view = program.load()
    stored = program.store(made_anew(view))
    for a, b in zip(results(program, value), results(stored, value), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-5)
    assert Counter(map(op_of, stored.load().nodes)) == Counter(map(op_of, view.nodes))


def op_of(node: Node) -> str:
    return op_name(node.op)


DYNAMIC: Final = {"attention": (0, 1), "conv_net": (0,), "bert": (1,), "gpt2": (1,), "vit": (0,)}


@pytest.mark.parametrize("name", DYNAMIC)
def test_symbolic_sizes_made_anew(name: str) -> None:
    """The same with symbolic sizes; the new program is saved, decomposed, and run at other sizes."""
    model, value = ARCHITECTURES[name]()
    axes = DYNAMIC[name]
    if 0 in axes:
        value = torch.cat([value, value])
    sizes = dict.fromkeys(axes, torch.export.Dim.DYNAMIC)
    program = fx.from_exported(torch.export.export(model.eval(), (value,), dynamic_shapes=(sizes,)))
    check(program, value)
    stored = program.store(made_anew(program.load()))
    buffer = io.BytesIO()
    torch.export.save(stored.native, buffer)
    buffer.seek(0)
    loaded = fx.from_exported(torch.export.load(buffer))
    decomposed = fx.from_exported(stored.native.run_decompositions())
    check(decomposed, value)
    for axis in axes:
        value = torch.cat([value, value], dim=axis)
    for other in (stored, loaded, decomposed):
        for a, b in zip(results(program, value), results(other, value), strict=True):
            torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-5)

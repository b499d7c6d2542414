"""Tiny models of many architectures, with random weights."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any, Final

import torch
import transformers as hf
from torch import nn
from torch.export import ExportedProgram

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
MODELS: Final[Mapping[str, Callable[[], tuple[nn.Module, torch.Tensor]]]] = {
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
}  # fmt: skip


@functools.cache
def exported(name: str) -> ExportedProgram:
    """The program of a model, exported once for all tests."""
    torch.manual_seed(0)
    model, value = MODELS[name]()
    return torch.export.export(model.eval(), (value,))


@functools.cache
def decomposed(name: str) -> ExportedProgram:
    """The same, decomposed."""
    return exported(name).run_decompositions()

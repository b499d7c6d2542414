"""Architectures of ``transformers``, tiny and with random weights, and how many attention layers a run of each has.

A row of the table is the name of an architecture and what its configuration needs beyond the common small sizes. The
number of attention layers is counted while the model runs, from torch's own calls, so it knows nothing of any graph.
"""

from __future__ import annotations

import inspect
import os
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.weak import WeakIdKeyDictionary

os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")

WIDTH: Final = 32
SIZES: Final[Mapping[str, Any]] = {
    **dict.fromkeys(("hidden_size", "d_model", "n_embd", "dim", "embed_dim", "embedding_size"), WIDTH),
    **dict.fromkeys(("num_hidden_layers", "n_layer", "n_layers", "num_layers", "encoder_layers", "decoder_layers"), 2),
    **dict.fromkeys(("num_encoder_layers", "num_decoder_layers"), 2),
    **dict.fromkeys(("num_attention_heads", "n_head", "n_heads", "num_heads"), 4),
    **dict.fromkeys(("encoder_attention_heads", "decoder_attention_heads"), 4),
    **dict.fromkeys(("num_encoder_attention_heads", "num_decoder_attention_heads"), 4),
    **dict.fromkeys(("intermediate_size", "ffn_dim", "d_ff", "encoder_ffn_dim", "decoder_ffn_dim", "hidden_dim"), 48),
    **dict.fromkeys(("num_experts", "num_local_experts", "n_routed_experts"), 4),
    **dict.fromkeys(("moe_intermediate_size", "shared_expert_intermediate_size", "max_source_positions"), 16),
    **dict.fromkeys(("max_position_embeddings", "n_positions"), 64),
    "vocab_size": 99, "num_key_value_heads": 2, "head_dim": 8, "d_kv": 8, "image_size": 32, "patch_size": 8,
    "type_vocab_size": 2, "use_cache": False, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2,
    "decoder_start_token_id": 1, "num_experts_per_tok": 2, "rotary_dim": 4, "num_mel_bins": 8,
    "max_target_positions": 32, "word_embed_proj_dim": WIDTH, "projection_dim": 16, "num_buckets": 8,
}  # fmt: skip
"""The sizes that are set wherever a configuration has them."""

_LATENT: Final = {
    "num_key_value_heads": 4, "qk_nope_head_dim": 8, "qk_rope_head_dim": 8, "v_head_dim": 8, "kv_lora_rank": 16,
    "q_lora_rank": 16, "qk_head_dim": 16, "head_dim": 8,
}  # fmt: skip
_SOUND: Final = {
    "conv_dim": (16, 16), "conv_stride": (5, 2), "conv_kernel": (10, 3), "num_feat_extract_layers": 2,
    "num_conv_pos_embeddings": 4, "num_conv_pos_embedding_groups": 2,
}  # fmt: skip
_STAGES: Final = {"embed_dim": 8, "depths": [2], "num_heads": [2], "window_size": 4, "image_size": 32, "patch_size": 4}
OWN: Final[Mapping[str, Mapping[str, Any]]] = {
    "data2vec-audio": _SOUND,
    "deepseek_v2": _LATENT,
    "deepseek_v3": _LATENT,
    "donut-swin": _STAGES,
    "falcon": {"head_dim": None},
    "funnel": {"num_hidden_layers": None, "block_sizes": [1, 1], "d_head": 8},
    "gpt_neo": {"attention_types": [[["global", "local"], 1]]},
    "hubert": _SOUND,
    "luke": {"entity_vocab_size": 10},
    "maskformer-swin": _STAGES,
    "prophetnet": {"num_hidden_layers": None},
    "swin": _STAGES,
    "swin2sr": _STAGES,
    "swinv2": _STAGES,
    "timesformer": {"num_frames": 2},
    "unispeech": _SOUND,
    "unispeech-sat": _SOUND,
    "videomae": {"num_frames": 2},
    "vivit": {"num_frames": 2, "tubelet_size": [2, 8, 8]},
    "wav2vec2": _SOUND,
    "wav2vec2-bert": {"feature_projection_input_dim": 8},
    "wav2vec2-conformer": _SOUND,
    "wavlm": _SOUND,
    "xlnet": {"max_position_embeddings": None, "d_inner": 48},
    "xmod": {"languages": ["en_XX"], "default_language": "en_XX"},
    "youtu": _LATENT,
}
"""The settings that a configuration needs beyond the sizes; ``None`` leaves a size out."""


def names() -> list[str]:
    """The architectures whose model is one configuration, and not several ones side by side."""
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING
    from transformers.models.auto.modeling_auto import MODEL_MAPPING_NAMES

    return [name for name in MODEL_MAPPING_NAMES if not getattr(CONFIG_MAPPING[name], "sub_configs", None)]


class Wrapped(nn.Module):
    """A model that takes its tensors by position, and returns those of its result."""

    def __init__(self, model: nn.Module, names: Sequence[str]) -> None:
        super().__init__()
        self.model = model
        self.names = tuple(names)

    def forward(self, *tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
        found = self.model(**dict(zip(self.names, tensors, strict=True)), return_dict=True)
        return tuple([value for value in found.values() if isinstance(value, torch.Tensor)])


@dataclass(frozen=True)
class Example:
    """A model in inference with its inputs."""

    name: str
    model: nn.Module
    inputs: tuple[torch.Tensor, ...]

    @property
    def masked(self) -> bool:
        """True if a padding mask is among the inputs."""
        return "attention_mask" in self.model.names  # type: ignore[operator]

    def layers(self) -> Layers:
        """The attention layers of a run."""
        return count(self.model, self.inputs)


def configuration(name: str) -> Any:
    """The tiny configuration of an architecture."""
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING

    kind: Any = CONFIG_MAPPING[name]
    default, own = kind(), OWN.get(name, {})
    optional = ("n_inner", "head_dim")
    sizes = {
        key: value
        for key, value in SIZES.items()
        if hasattr(default, key) and key not in own
        and (isinstance(getattr(default, key), int) or (getattr(default, key) is None and key not in optional))
    }  # fmt: skip
    given = {**sizes, **{key: value for key, value in own.items() if value is not None}}
    config = kind(**given)
    types, depth = getattr(config, "layer_types", None), getattr(config, "num_hidden_layers", None)
    return kind(**given, layer_types=types[:depth]) if types and len(types) != depth else config


def example(name: str, *, batch: int = 2, mask: bool = False) -> Example:
    """A model with inputs; with ``mask``, its attention mask hides the end of the first row, the begin of others.

    The weights of queries and keys are multiplied, so that the scores differ by several units, and a
    mask, factor or cap that is lost shows. Raises ValueError for a model that takes no mask, or is not tiny.
    """
    import transformers
    from transformers.models.auto.modeling_auto import MODEL_MAPPING_NAMES

    torch.manual_seed(0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        config, found = configuration(name), MODEL_MAPPING_NAMES[name]
        kind = getattr(transformers, found if isinstance(found, str) else found[0])
        with torch.device("meta"):
            size = sum(p.numel() for p in kind._from_config(config, attn_implementation="eager").parameters())
        if size > 4_000_000:
            raise ValueError(f"{name} has {size} parameters")
        model = kind._from_config(config, attn_implementation="eager").eval()
    _spread(model)
    fed = _inputs(name, model, config, batch, mask)
    return Example(name, Wrapped(model, list(fed)).eval(), tuple(fed.values()))


_QUERIES: Final = (
    "q", "k", "query", "key", "qkv", "c_attn", "q_proj", "k_proj", "qkv_proj", "query_key_value", "q_lin", "k_lin",
    "Wqkv", "in_proj", "query_proj", "key_proj", "to_q", "to_k", "q_b_proj", "linear_q", "linear_k", "Wq", "Wk",
)  # fmt: skip
"""The names of the layers that make queries and keys."""


SPREAD: Final = 3.0
"""The standard deviation of queries and keys, about."""


def _spread(model: nn.Module) -> None:
    """Multiply what makes queries and keys, and what is added to the scores by place."""
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            parts = name.split(".")
            if parts[-1] == "weight" and len(parts) > 1 and parts[-2] in _QUERIES:
                parameter.mul_(SPREAD / max(float(parameter.std()) * parameter.shape[-1] ** 0.5, 1e-3))
            elif "relative" in name and "bias" in name:
                parameter.normal_(0, 1)
        for module in model.modules():
            if isinstance(module, nn.Embedding):
                module.weight.normal_(0, 1)


def _inputs(name: str, model: nn.Module, config: Any, batch: int, mask: bool) -> dict[str, torch.Tensor]:
    taken = inspect.signature(model.forward).parameters
    fed: dict[str, torch.Tensor] = {}
    channels = getattr(config, "num_channels", 3)
    if "input_ids" in taken:
        fed["input_ids"] = torch.randint(5, 90, (batch, 7))
    elif "pixel_values" in taken:
        frames = (2,) if name in ("timesformer", "videomae", "vivit") else ()
        fed["pixel_values"] = torch.randn(batch, *frames, channels, 32, 32)
    elif "input_values" in taken:
        fed["input_values"] = torch.randn(batch, 400)
    elif "input_features" in taken:
        sizes = (16, 8) if name == "wav2vec2-bert" else (getattr(config, "num_mel_bins", 8), 32)
        fed["input_features"] = torch.randn(batch, *sizes)
    if mask:
        if "attention_mask" not in taken or "input_ids" not in fed:
            raise ValueError(f"{name} takes no mask of its input")
        hidden = torch.ones_like(fed["input_ids"])
        hidden[0, -2:] = 0
        hidden[1:, :2] = 0
        fed["attention_mask"] = hidden
    if "decoder_input_ids" in taken:
        fed["decoder_input_ids"] = torch.randint(5, 90, (batch, 5))
    return fed


# ---------------------------------------------------------------- counting


@dataclass
class Layers:
    """The attention layers that ran for an output: products of two tensors, a softmax over the last axis, a product."""

    plain: int = 0
    others: dict[str, int] = field(default_factory=dict)
    """The layers that are no plain attention, by what makes them something else."""
    spread: float = 0.0
    """The smallest standard deviation of the scores of a layer, over those that are not masked."""

    def add(self, marks: frozenset[str]) -> None:
        """Count a layer with its marks."""
        if not marks:
            self.plain += 1
        else:
            key = " and ".join(sorted(marks))
            self.others[key] = self.others.get(key, 0) + 1


_PRODUCTS: Final = ("bmm", "baddbmm")
_VIEWS: Final = (
    "view", "_unsafe_view", "reshape", "expand", "clone", "_to_copy", "permute", "transpose", "t", "unsqueeze",
    "squeeze", "contiguous", "copy_", "detach", "alias", "_reshape_alias", "lift_fresh",
)  # fmt: skip
_ADDED: Final = (
    "add", "sub", "rsub", "mul", "div", "where", "masked_fill", "maximum", "clamp", "clamp_min", "add_", "mul_", "div_",
    "sub_", "masked_fill_", "neg",
)  # fmt: skip
_MARKED: Final = {"tanh": "a cap", "cat": "a sink", "slice": "a sink", "mul": "a factor after the softmax"}


class _Counter(TorchDispatchMode):
    """Follows products into softmaxes, and softmaxes into products."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = Layers(spread=float("inf"))
        self.scores: Any = WeakIdKeyDictionary()
        self.weights: Any = WeakIdKeyDictionary()
        self.found: list[frozenset[str]] = []
        """The marks of each layer that ran."""
        self.behind: dict[int, tuple[Any, frozenset[int]]] = {}
        """The layers from which a piece of memory was computed, by its address; it is kept, lest others get that."""

    def computed_from(self, values: Any) -> frozenset[int]:
        """The layers from which tensors were computed."""
        places = [x.untyped_storage()._cdata for x in tree_leaves(values) if isinstance(x, torch.Tensor)]
        return frozenset().union(*[self.behind[place][1] for place in places if place in self.behind])

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        name, known = func.overloadpacket.__name__, len(self.found)
        tensors = [x for x in tree_leaves(result) if isinstance(x, torch.Tensor)]
        for tensor in tensors:
            self._follow(name, args, tensor)
        behind = self.computed_from((args, kwargs, tensors)) | {*range(known, len(self.found))}
        self.behind.update({(s := x.untyped_storage())._cdata: (s, behind) for x in tensors})
        return result

    def _follow(self, name: str, args: Any, result: torch.Tensor) -> None:
        tensors = [x for x in _flat(args) if isinstance(x, torch.Tensor)]
        scored = [self.scores[x] for x in tensors if x in self.scores]
        weighted = [self.weights[x] for x in tensors if x in self.weights]
        if name in _PRODUCTS:
            if weighted:
                self.found.append(frozenset().union(*weighted))
            else:
                self.scores[result] = frozenset()
        elif name in ("_softmax", "_safe_softmax") and scored and args[1] in (-1, result.dim() - 1):
            self.weights[result] = scored[0]
            seen = args[0].detach().float()
            seen = seen[seen > -100]
            self.layers.spread = min(self.layers.spread, float(seen.std()) if seen.numel() > 1 else float("inf"))
        elif scored and name == "logsumexp":
            for tensor in tensors:
                self.scores[tensor] = self.scores.get(tensor, frozenset()) | {"a sink"}
        elif weighted and (name in _VIEWS or name in _MARKED):
            marks = {_MARKED[name]} if name in _MARKED else set()
            self.weights[result] = frozenset().union(*weighted, marks)
        elif scored and (name in _VIEWS or name in _ADDED or name in ("tanh", "cat", "slice")):
            marks = {_MARKED[name]} if name in ("tanh", "cat") else set()
            self.scores[result] = frozenset().union(*scored, marks)


def _flat(value: Any) -> Iterator[Any]:
    for item in value:
        if isinstance(item, (list, tuple)):
            yield from _flat(item)
        else:
            yield item


def count(model: nn.Module, inputs: Sequence[torch.Tensor]) -> Layers:
    """The attention layers of a run of a model, without those from which no output is computed."""
    with torch.no_grad(), _Counter() as counter:
        outputs = model(*inputs)
    for number in sorted(counter.computed_from(outputs)):
        counter.layers.add(counter.found[number])
    return counter.layers

"""Small models of many architectures, as transformers, torchvision and timm build them, with random weights.

Torchvision is built for one kind of torch: beside another one its compiled operators are missing, and transformers
can't be imported where torchvision is found. So torchvision and timm lie in a folder of their own, into which only the
process looks that makes their models: ``python -m tests.helpers.libraries``.
"""

from __future__ import annotations

import json
import sys
import tempfile
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

import torch
from torch import nn

from gsl import Workload
from tests.helpers.book import EVERY_RULE

VISION: Final = Path(sys.prefix) / "vision"
"""The folder in which `make setup` installs torchvision and timm."""

Model = tuple[nn.Module, torch.Tensor]


def check(model: nn.Module, example: torch.Tensor) -> dict[str, Any]:
    """A model that was exported, rewritten, stored and loaded again. An error if that goes wrong."""
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        old = Workload.from_torch(model.eval(), (example,))
        unread = old.unread()
        new = EVERY_RULE(old)
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "model.pt2"
            torch.export.save(new.exported, path)
            again = Workload.from_exported(torch.export.load(path))
        old.compare(again).check()
    calls = {each.op: len(each.names) for each in unread}
    return {"calls": unread.total, "unread": calls, "fired": new.trace.count()}


# ---------------------------------------------------------------- transformers


def transformers() -> Mapping[str, Callable[[], Model]]:
    """25 models of language, vision and speech."""
    import transformers as hf

    from tests.helpers.models import KV, MODELS, text

    two = {"num_hidden_layers": 2}
    encoder_decoder = {
        "d_model": 16, "encoder_layers": 1, "decoder_layers": 1, "encoder_attention_heads": 2,
        "decoder_attention_heads": 2, "encoder_ffn_dim": 24, "decoder_ffn_dim": 24, "bos_token_id": 1,
        "eos_token_id": 2,
    }  # fmt: skip
    more = {
        "electra": text(hf.ElectraConfig, hf.ElectraModel, embedding_size=8, **two),
        "deberta_v2": text(hf.DebertaV2Config, hf.DebertaV2Model, **two),
        "mpnet": text(hf.MPNetConfig, hf.MPNetModel, **two),
        "opt": text(hf.OPTConfig, hf.OPTModel, ffn_dim=24, word_embed_proj_dim=16, **two),
        "gpt_neox": text(hf.GPTNeoXConfig, hf.GPTNeoXForCausalLM, **two),
        "phi": text(hf.PhiConfig, hf.PhiForCausalLM, **two),
        "gemma": text(hf.GemmaConfig, hf.GemmaForCausalLM, head_dim=8, **KV, **two),
        "falcon": text(hf.FalconConfig, hf.FalconModel, **two),
        "bart": text(hf.BartConfig, hf.BartModel, **encoder_decoder),
        "mbart": text(hf.MBartConfig, hf.MBartModel, **encoder_decoder),
    }
    names = [name for name in MODELS if name not in ("resnet", "mobilenet_v2", "convnext", "mixtral")]
    return {**{name: MODELS[name] for name in names}, **more}


# ---------------------------------------------------------------- torchvision and timm


def _image(make: Callable[[], nn.Module], size: int = 32, channels: int = 3) -> Callable[[], Model]:
    return lambda: (make(), torch.randn(2, channels, size, size))


def torchvision() -> Mapping[str, Callable[[], Model]]:
    """10 models."""
    from torchvision import models as tv
    from torchvision.models.convnext import CNBlockConfig
    from torchvision.models.resnet import BasicBlock

    blocks = [CNBlockConfig(8, 16, 1), CNBlockConfig(16, None, 1)]
    return {
        "resnet": _image(lambda: tv.ResNet(BasicBlock, [1, 1, 1, 1], num_classes=5, width_per_group=64)),
        "mobilenet_v2": _image(lambda: tv.mobilenet_v2(width_mult=0.25, num_classes=5)),
        "mobilenet_v3": _image(lambda: tv.mobilenet_v3_small(width_mult=0.25, num_classes=5)),
        "shufflenet": _image(lambda: tv.ShuffleNetV2([1, 2, 1], [8, 16, 24, 32, 40], num_classes=5)),
        "squeezenet": _image(lambda: tv.squeezenet1_1(num_classes=5)),
        "mnasnet": _image(lambda: tv.MNASNet(0.25, num_classes=5)),
        "densenet": _image(lambda: tv.DenseNet(8, (1, 1, 2, 1), 16, num_classes=5)),
        "inception": _image(lambda: nn.Sequential(tv.googlenet(**PLAIN).inception3a, nn.Flatten()), 4, 192),
        "convnext": _image(lambda: tv.ConvNeXt(blocks, num_classes=5)),
        "vit": _image(lambda: tv.VisionTransformer(32, 8, num_layers=2, num_heads=2, hidden_dim=16, mlp_dim=24)),
    }


PLAIN: Final[dict[str, Any]] = {"weights": None, "aux_logits": False, "init_weights": False}


def timm() -> Mapping[str, Callable[[], Model]]:
    """10 models."""
    import timm

    def made(name: str, size: int = 32, **options: Any) -> Callable[[], Model]:
        return _image(lambda: timm.create_model(name, num_classes=5, **options), size)

    small = {"img_size": 32, "patch_size": 8, "depth": 2}
    return {
        "resnet": made("resnet10t"), "convnext": made("convnext_atto", depths=(1, 1, 1, 1)),
        "mobilenet_v3": made("mobilenetv3_small_050"), "regnet": made("regnetx_002"),
        "repvgg": made("repvgg_a0"), "mobilevit": made("mobilevit_xxs", 64),
        "deit": made("deit_tiny_patch16_224", **small),
        "beit": made("beit_base_patch16_224", embed_dim=24, num_heads=2, **small),
        "mixer": _image(lambda: timm.models.mlp_mixer.MlpMixer(5, 32, patch_size=8, num_blocks=2, embed_dim=16)),
        "levit": made("levit_128s", 224),
    }  # fmt: skip


def see_vision() -> torch.library.Library:
    """Let this process import torchvision and timm, for as long as the result lives."""
    operators = torch.library.Library("torchvision", "DEF")
    for name in ("nms", "qnms"):
        # What torchvision demands when it is imported, and no model here calls.
        operators.define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
    sys.path.append(str(VISION))
    return operators


def main() -> None:
    """Print what becomes of each model of both libraries as JSON."""
    operators = see_vision()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    libraries = {"torchvision": torchvision(), "timm": timm()}
    found = {
        library: {name: check(*make()) for name, make in models.items()}
        for library, models in libraries.items()
    }
    print(json.dumps(found))
    del operators


if __name__ == "__main__":
    main()

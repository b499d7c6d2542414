"""The models of the demo: real architectures with random weights, nothing downloaded."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn


class ConvBN(nn.Module):
    """A convolution, its batch norm and a relu."""

    def __init__(self, cin: int, cout: int, kernel: int | tuple[int, int], **options: Any) -> None:
        super().__init__()
        self.conv = nn.Conv2d(cin, cout, kernel, bias=False, **options)
        self.bn = nn.BatchNorm2d(cout)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return nn.functional.relu(self.bn(self.conv(x)))


class Inception(nn.Module):
    """A block of four branches (Szegedy et al., "Going deeper with convolutions", 2015, figure 2b)."""

    def __init__(self, cin: int, one: int, three: tuple[int, int], five: tuple[int, int], pool: int) -> None:
        super().__init__()
        self.one = ConvBN(cin, one, 1)
        self.three = nn.Sequential(ConvBN(cin, three[0], 1), ConvBN(three[0], three[1], 3, padding=1))
        self.five = nn.Sequential(ConvBN(cin, five[0], 1), ConvBN(five[0], five[1], 5, padding=2))
        self.pool = nn.Sequential(nn.MaxPool2d(3, 1, 1), ConvBN(cin, pool, 1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.cat([self.one(x), self.three(x), self.five(x), self.pool(x)], 1)


class GoogLeNet(nn.Module):
    """GoogLeNet with batch norms and without its auxiliary heads (same source, table 1)."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Sequential(
            ConvBN(3, 64, 7, stride=2, padding=3), nn.MaxPool2d(3, 2, 1), ConvBN(64, 64, 1),
            ConvBN(64, 192, 3, padding=1), nn.MaxPool2d(3, 2, 1),
        )  # fmt: skip
        self.blocks = nn.Sequential(
            Inception(192, 64, (96, 128), (16, 32), 32), Inception(256, 128, (128, 192), (32, 96), 64),
            nn.MaxPool2d(3, 2, 1),
            Inception(480, 192, (96, 208), (16, 48), 64), Inception(512, 160, (112, 224), (24, 64), 64),
            Inception(512, 128, (128, 256), (24, 64), 64), Inception(512, 112, (144, 288), (32, 64), 64),
            Inception(528, 256, (160, 320), (32, 128), 128), nn.MaxPool2d(3, 2, 1),
            Inception(832, 256, (160, 320), (32, 128), 128), Inception(832, 384, (192, 384), (48, 128), 128),
        )  # fmt: skip
        self.head = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(1024, 1000))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.blocks(self.stem(x)))


@dataclass(frozen=True)
class Model:
    """A model of the demo: how to make it, and inputs for it."""

    name: str
    make: Callable[[], nn.Module]
    inputs: Callable[[], tuple[torch.Tensor, ...]]


def settle(model: nn.Module) -> nn.Module:
    """Give batch norms statistics other than zero and one, so that folding them has something to prove."""
    generator = torch.Generator().manual_seed(0)
    for module in model.modules():
        if isinstance(module, nn.BatchNorm2d):
            for tensor, low, high in (
                (module.weight, 0.5, 1.0), (module.bias, -0.2, 0.2),
                (module.running_mean, -0.2, 0.2), (module.running_var, 0.5, 1.5),
            ):  # fmt: skip
                assert tensor is not None
                tensor.data.uniform_(low, high, generator=generator)
    return model.eval()


def _transformer(kind: str, **options: Any) -> Callable[[], nn.Module]:
    def make() -> nn.Module:
        import transformers

        config = getattr(transformers, f"{kind}Config")(**options)
        classes = {"ResNet": "ResNetForImageClassification", "GPT2": "GPT2LMHeadModel", "Llama": "LlamaForCausalLM"}
        config.use_cache = False
        return settle(getattr(transformers, classes.get(kind, f"{kind}Model"))(config))

    return make


def _image() -> tuple[torch.Tensor, ...]:
    return (torch.randn(1, 3, 224, 224, generator=torch.Generator().manual_seed(1)),)


def _tokens(length: int) -> Callable[[], tuple[torch.Tensor, ...]]:
    return lambda: (torch.randint(0, 1000, (1, length), generator=torch.Generator().manual_seed(1)),)


MODELS = (
    Model("ResNet-50", _transformer("ResNet"), _image),
    Model("GoogLeNet", lambda: settle(GoogLeNet()), _image),
    Model("BERT-base", _transformer("Bert"), _tokens(128)),
    Model(
        "Llama, 12 layers of 768",
        _transformer(
            "Llama", hidden_size=768, intermediate_size=2048, num_hidden_layers=12, num_attention_heads=12,
            num_key_value_heads=4, vocab_size=8000,
        ),
        _tokens(64),
    ),
)  # fmt: skip

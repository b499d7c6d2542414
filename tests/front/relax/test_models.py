"""Real architectures in small: exported by torch, imported by TVM, rewritten by the rule book, run on the machine."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from demo.models import settle
from gsl import Workload
from tests.front.relax.relax_helpers import exported
from tests.helpers.book import EVERY_RULE


def resnet() -> tuple[nn.Module, torch.Tensor]:
    transformers = pytest.importorskip("transformers")
    config = transformers.ResNetConfig(embedding_size=8, hidden_sizes=[8, 16], depths=[1, 1], num_labels=5)
    return settle(transformers.ResNetForImageClassification(config)), torch.randn(1, 3, 32, 32)


def bert() -> tuple[nn.Module, torch.Tensor]:
    transformers = pytest.importorskip("transformers")
    config = transformers.BertConfig(
        hidden_size=32, num_hidden_layers=1, num_attention_heads=2, intermediate_size=64, vocab_size=100
    )
    return transformers.BertModel(config), torch.randint(0, 100, (1, 8))


class Decoder(nn.Module):
    """A decoder as in GPT-2: causal attention of one joint projection, before each part a layer norm."""

    def __init__(self, width: int = 32, heads: int = 2) -> None:
        super().__init__()
        self.heads = heads
        self.tokens, self.places = nn.Embedding(50, width), nn.Embedding(16, width)
        self.before, self.between, self.after = nn.LayerNorm(width), nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.wide, self.narrow = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        x = self.tokens(ids) + self.places.weight[: ids.shape[1]]
        q, k, v = (
            part.reshape(1, ids.shape[1], self.heads, -1).transpose(1, 2)
            for part in self.qkv(self.before(x)).chunk(3, -1)
        )
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(x.shape)
        x = x + self.out(y)
        x = x + self.narrow(F.gelu(self.wide(self.between(x)), approximate="tanh"))
        return self.after(x) @ self.tokens.weight.T


def decoder() -> tuple[nn.Module, torch.Tensor]:
    return Decoder(), torch.randint(0, 50, (1, 8))


MODELS: dict[str, tuple[Callable[[], tuple[nn.Module, torch.Tensor]], str]] = {
    "ResNet": (resnet, "nn.batch_norm"),
    "BERT": (bert, "nn.layer_norm"),
    "GPT-2": (decoder, "nn.layer_norm"),
}
"""Each with an operator that the rule book does without."""


@pytest.mark.sweep(3)
@pytest.mark.parametrize("name", MODELS)
def test_a_model_is_rewritten_and_still_computes_the_same(name: str) -> None:
    make, gone = MODELS[name]
    torch.manual_seed(0)
    model, x = make()
    program, module = exported(model, x)
    wl: Any = Workload.from_relax(module, name=name)
    assert wl.program.store(wl.program.load()).module.same_as(module)
    new = EVERY_RULE(wl, iterative=True)
    assert gone in wl.op_counts()
    assert gone not in new.op_counts()
    assert Workload.from_exported(program, name=f"{name} in torch").compare(new).check()

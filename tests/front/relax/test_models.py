"""Real architectures in small: exported by torch, imported by TVM, rewritten by the rule book, run on the machine."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from tvm.relax.frontend.torch import from_exported_program

from demo.models import settle
from gsl import Workload
from gsl.rules import BOOK, IDIOMS, NORMAL
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


def attention(q: Any, k: Any, v: Any, mask: Any = 0.0) -> Any:
    return torch.softmax(q @ k.transpose(-2, -1) * 0.5 + mask, -1) @ v


class Attention(nn.Module):
    """Attention that is written out, between what ``before`` makes of the operands and what ``after`` makes of it."""

    def __init__(self, before: Callable[[Any], Any], after: Callable[[Any], Any], mask: torch.Tensor | None) -> None:
        super().__init__()
        self.before, self.after = before, after
        self.mask = mask

    def forward(self, x: torch.Tensor) -> Any:
        q, k, v = map(self.before, (x, x + 1.0, x * 2.0))
        return self.after(attention(q, k, v, 0.0 if self.mask is None else self.mask))


def same(x: Any) -> Any:
    return x


def heads(x: torch.Tensor) -> torch.Tensor:
    return x.view(*x.shape[:-1], 2, -1).transpose(1, 2)


def joined(x: torch.Tensor) -> torch.Tensor:
    return x.transpose(1, 2).flatten(2)


WRITTEN: dict[str, tuple[Any, Any, torch.Tensor | None, tuple[int, ...]]] = {
    "heads before places": (same, same, None, (2, 2, 3, 4)),
    "heads behind places": (heads, joined, None, (2, 3, 8)),
    "with a mask": (heads, joined, torch.randn(3, 3), (2, 3, 8)),
    "without heads": (same, same, None, (2, 3, 4)),
    "with two axes of heads": (same, same, None, (2, 2, 2, 3, 4)),
    "used twice": (same, lambda y: (y, y.transpose(1, 2)), None, (2, 2, 3, 4)),
    "transposed twice": (same, lambda y: (y.transpose(1, 2), y.transpose(1, 2) + 1.0), None, (2, 2, 3, 4)),
}
SETS = {"the book": BOOK, "normal": NORMAL, "idioms": IDIOMS, "both": NORMAL + IDIOMS, "every rule": EVERY_RULE}


@cache
def imported(name: str) -> Workload:
    """A model in Relax, which is imported and compiled once for all sets of rules."""
    torch.manual_seed(0)
    if name in WRITTEN:
        before, after, mask, shape = WRITTEN[name]
        model, x = Attention(before, after, mask), torch.randn(shape)
    else:
        model, x = MODELS[name][0]()
    return Workload.from_relax(exported(model, x)[1])


@pytest.mark.sweep(12)
@pytest.mark.parametrize("rules", SETS)
@pytest.mark.parametrize("name", [*WRITTEN, *MODELS])
def test_rules_find_nothing_more_in_what_they_have_written(name: str, rules: str) -> None:
    old = imported(name)
    new = SETS[rules](old, iterative=True)
    again = Workload.from_relax(new.mod)
    assert SETS[rules](again, iterative=True).trace.summary() == {}
    old.compare(again).check()


class Scaled(nn.Module):
    """Torch's own attention."""

    def __init__(self, **options: Any) -> None:
        super().__init__()
        self.options = options

    def forward(self, *operands: torch.Tensor) -> torch.Tensor:
        return F.scaled_dot_product_attention(*operands, **self.options)


HIDDEN = torch.tensor([[True, False, True], [False, False, False]])
"""A mask with a row of which all places are hidden."""
NUMBERS = torch.zeros(2, 3).masked_fill(~HIDDEN, -torch.inf)


@pytest.mark.sweep(3)
@pytest.mark.parametrize(
    ("options", "keys", "mask"),
    [({}, 2, None), ({"scale": 0.3}, 2, None), ({"is_causal": True}, 2, None), ({}, 2, HIDDEN), ({}, 2, NUMBERS),
     ({"enable_gqa": True}, 1, HIDDEN)],
    ids=["plain", "scaled", "causal", "truth values", "numbers", "grouped"],
)  # fmt: skip
def test_attention_of_torch_is_found_again(options: dict[str, Any], keys: int, mask: torch.Tensor | None) -> None:
    """TVM imports it as torch decomposes it; a row without places is 0, as in torch."""
    torch.manual_seed(0)
    tensors = (torch.randn(2, 2, 2, 4), torch.randn(2, keys, 3, 4), torch.randn(2, keys, 3, 4))
    tensors = tensors if mask is None else (*tensors, mask)
    model = Scaled(**options)
    module = from_exported_program(torch.export.export(model, tensors))
    new = (NORMAL + IDIOMS)(Workload.from_relax(module), iterative=True)
    assert new.op_counts()["nn.attention"] == 1
    assert "nn.softmax" not in new.op_counts()
    torch.testing.assert_close(torch.as_tensor(new.build()(*tensors)[0]), model(*tensors))


class Heads(nn.Module):
    """Torch's own layer of attention, which has the places before the batch."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.MultiheadAttention(16, 2, batch_first=True)

    def forward(self, x: torch.Tensor) -> Any:
        return self.layer(x, x, x, need_weights=False)[0]


def test_attention_whose_result_is_transposed_in_another_way_is_read_with_that() -> None:
    torch.manual_seed(0)
    old = Workload.from_relax(exported(Heads(), torch.randn(2, 5, 16))[1])
    new = (NORMAL + IDIOMS)(old, iterative=True)
    assert new.op_counts()["nn.attention"] == 1
    again = (NORMAL + IDIOMS)(Workload.from_relax(new.mod), iterative=True)
    assert again.trace.summary() == {}
    old.compare(again).check()


class Norm(nn.Module):
    """An RMS norm over all axes that is written out."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * torch.rsqrt(x.square().mean(tuple(range(x.ndim)), keepdim=True) + 1e-5)


@pytest.mark.parametrize("shape", [(4,), (2, 3)])
def test_a_norm_over_all_axes_is_found_once(shape: tuple[int, ...]) -> None:
    old = Workload.from_relax(exported(Norm(), torch.randn(shape))[1])
    new = IDIOMS(old, iterative=True)
    assert new.op_counts()["nn.rms_norm"] == 1
    assert IDIOMS(Workload.from_relax(new.mod), iterative=True).trace.summary() == {}
    old.compare(new).check()

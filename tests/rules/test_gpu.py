"""The rules for a GPU: where they fire, what they write, and that it is right. How fast that is, only a GPU tells."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from gsl import Supported, Workload
from gsl.graph import Node
from gsl.rules import BOOK, CPU, GPU, IDIOMS, NORMAL, OPTIMISING
from tests.rules.harness import Build, View, build, largest_error, shown
from tests.rules.test_cpu import layer


def grouped(
    *, batch: int = 2, kept: int = 2, times: int = 3, mask: bool = False, behind: bool = False, used: bool = False
) -> View:
    """Attention of many heads, of which some share a key and a value, repeated in place or behind the others."""

    def view(b: Build) -> list[Node]:
        q = b.input("q", batch, kept * times, 5, 4)
        heads = []
        for name in ("k", "v"):
            x = b.input(name, batch, kept, 7, 4)
            before = (batch, 1, kept, 7, 4) if behind else (batch, kept, 1, 7, 4)
            wide = (batch, times, kept, 7, 4) if behind else (batch, kept, times, 7, 4)
            x = b.call("broadcast_to", b.call("reshape", x, newshape=before), shape=wide)
            heads.append(b.call("reshape", x, newshape=(batch, kept * times, 7, 4)))
        more = [b.input("m", 5, 7)] if mask else []
        return [b.call("nn.attention", q, *heads, *more), *([b.call("exp", heads[0])] if used else [])]

    return view


FIRES: list[tuple[str, View, str]] = [
    ("fuse-dense-activation", layer(bias=True, then="nn.relu", dtype="float16"),
     "packed.dense(%x, %w, %b, activation='relu')"),
    ("fuse-dense-activation", layer(bias=True, then="gelu:tanh", dtype="bfloat16"),
     "packed.dense(%x, %w, %b, activation='gelu_tanh')"),
    ("fuse-dense-activation", layer(bias=True, then="nn.relu", matmul=True),
     "packed.dense(%x, %transpose, %b, activation='relu')"),
    ("fuse-conv", layer(conv=True, dtype="float16"), "packed.conv2d(%x, %w)"),
    ("fuse-conv-bias", layer(conv=True, bias=True, strides=2), "packed.conv2d(%x, %w, %b, strides=(2, 2))"),
    ("fuse-conv-activation", layer(conv=True, bias=True, then="silu"),
     "packed.conv2d(%x, %w, %b, activation='silu')"),
    ("fuse-conv-activation", layer(conv=True, then="nn.relu", dtype="bfloat16"),
     "packed.conv2d(%x, %w, activation='relu')"),
    ("fuse-conv-add-relu", layer(conv=True, bias=True, add=True, then="nn.relu", dtype="float16"),
     "packed.conv2d_add(%x, %w, %y, %b, activation='relu')"),
    ("attention-of-groups", grouped(), "nn.attention(%q, %reshape_1, %reshape_3, enable_gqa=True)"),
    ("attention-of-groups", grouped(mask=True), "nn.attention(%q, %reshape_1, %reshape_3, %m, enable_gqa=True)"),
    ("attention-of-groups", grouped(kept=1, times=6), "enable_gqa=True"),
]  # fmt: skip
REFUSES: list[tuple[str, View]] = [
    ("fuse-dense-activation", layer(bias=True, then="gelu", dtype="float16")),
    ("fuse-dense-activation", layer(bias=True, then="nn.relu", dtype="float64")),
    ("fuse-dense-activation", layer(bias=True, then="nn.relu", used=True)),
    ("fuse-conv", layer(conv=True, dtype="float64")),
    ("fuse-conv-add-relu", layer(conv=True, add=(1, 8, 1, 1), then="nn.relu")),
    ("attention-of-groups", grouped(behind=True)),
    ("attention-of-groups", grouped(used=True)),
]


@pytest.mark.parametrize(("name", "view", "call"), FIRES)
def test_it_fires(name: str, view: View, call: str) -> None:
    before = build(view)
    after = GPU[name](before)
    assert call in shown(after)
    assert largest_error(before, after) <= 1


@pytest.mark.parametrize(("name", "view"), REFUSES)
def test_it_does_not_fire(name: str, view: View) -> None:
    before = build(view)
    assert shown(GPU[name](before)) == shown(before)


@given(st.integers(1, 3), st.integers(1, 4), st.integers(1, 4), st.booleans())
def test_groups_of_any_size(batch: int, kept: int, times: int, mask: bool) -> None:
    before = build(grouped(batch=batch, kept=kept, times=times, mask=mask))
    after = GPU["attention-of-groups"](before)
    assert "enable_gqa=True" in shown(after)
    assert largest_error(before, after) <= 1


@pytest.mark.sweep(2)
@pytest.mark.parametrize("rule", GPU, ids=lambda rule: rule.name)
def test_it_is_supported(rule: Any) -> None:
    assert isinstance(rule.verify(max_examples=60), Supported)


def test_it_is_no_part_of_other_sets() -> None:
    names = {rule.name for rules in (BOOK, OPTIMISING, CPU, NORMAL, IDIOMS) for rule in rules}
    assert not names.intersection(rule.name for rule in GPU)


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Conv2d(4, 8, 3, padding=1), nn.Conv2d(8, 8, 3, padding=1)
        self.up = nn.Linear(8, 16)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = torch.relu(self.first(x))
        y = torch.relu(self.second(y) + y).permute(0, 2, 3, 1)
        return nn.functional.gelu(self.up(y), approximate="tanh")


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_a_model_computes_the_same(dtype: torch.dtype) -> None:
    """Without a GPU, the kernels are formulas."""
    old = Workload.from_torch(Block().eval().to(dtype), (torch.randn(2, 4, 6, 6, dtype=dtype),))
    new = GPU(old, iterative=True)
    counts = new.op_counts()
    assert (counts["packed.conv2d"], counts["packed.conv2d_add"], counts["packed.dense"]) == (1, 1, 1)
    tolerance = 0.05 if dtype == torch.bfloat16 else 1e-4
    old.compare(new, rtol=tolerance, atol=tolerance).check()

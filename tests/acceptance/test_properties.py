"""Random torch programs, rewritten by the whole rule book to its fixed point: equal numbers."""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from gsl import Workload
from tests.helpers.book import EVERY_RULE

SEEDS = int(os.environ.get("GSL_SEEDS", "100"))
FEW = 40
"""How many of the programs are not left to the long tests."""
Value = torch.Tensor
Layers = nn.ModuleList
Step = Callable[[random.Random, Layers, list[Value]], Value]
"""Makes a new value of shape (2, 4, 6, 6) from those there are."""


def layer(draw: random.Random, layers: Layers, make: Callable[[], nn.Module]) -> nn.Module:
    """A layer of the program, made when the program first runs."""
    position = draw.position  # type: ignore[attr-defined]
    draw.position += 1  # type: ignore[attr-defined]
    if position == len(layers):
        layers.append(settled(make()))
    return layers[position]


def settled(module: nn.Module) -> nn.Module:
    for name, buffer in module.named_buffers():
        if name.endswith("var"):
            buffer.uniform_(0.5, 2.0)
        elif name.endswith("mean"):
            buffer.normal_()
    return module


def pick(draw: random.Random, values: list[Value]) -> Value:
    return values[-1 - min(int(draw.expovariate(0.7)), len(values) - 1)]


def conv(draw: random.Random, layers: Layers, values: list[Value]) -> Value:
    kernel, bias, groups = draw.choice((1, 3, 5)), draw.random() < 0.5, draw.choice((1, 1, 2))
    x = pick(draw, values)
    return layer(draw, layers, lambda: nn.Conv2d(4, 4, kernel, padding=kernel // 2, groups=groups, bias=bias))(x)


def branches(draw: random.Random, layers: Layers, values: list[Value]) -> Value:
    """Parallel convolutions of one value, added or concatenated."""
    x, kernel, joined = pick(draw, values), draw.choice((1, 3)), draw.random() < 0.5
    width = 2 if joined else 4
    parts = []
    for _ in range(draw.choice((2, 2, 3)) if not joined else 2):
        bias, active = draw.random() < 0.3, draw.random() < 0.5
        y = layer(draw, layers, lambda bias=bias: nn.Conv2d(4, width, kernel, padding=kernel // 2, bias=bias))(x)
        parts.append(torch.relu(y) if active else y)
    return torch.cat(parts, 1) if joined else sum(parts[1:], parts[0])


def norm(draw: random.Random, layers: Layers, values: list[Value]) -> Value:
    return layer(draw, layers, lambda: nn.BatchNorm2d(4))(pick(draw, values))


def conv_norm(draw: random.Random, layers: Layers, values: list[Value]) -> Value:
    y = conv(draw, layers, values)
    return layer(draw, layers, lambda: nn.BatchNorm2d(4))(y if draw.random() < 0.7 else y * 0.5)


def shortcut(draw: random.Random, layers: Layers, values: list[Value]) -> Value:
    x = pick(draw, values)
    return conv(draw, layers, [x]) + x


def heads(draw: random.Random, layers: Layers, values: list[Value]) -> Value:
    """Parallel linear layers of one value."""
    x, count = pick(draw, values), draw.choice((2, 3))
    biases = [draw.random() < 0.6 for _ in range(count)]
    parts = [layer(draw, layers, lambda b=b: nn.Linear(6, 6, bias=b))(x) for b in biases]
    return parts[0] * parts[1] if count == 2 else parts[0] * parts[1].softmax(-1) + parts[2]


def layer_norm(draw: random.Random, layers: Layers, values: list[Value]) -> Value:
    return layer(draw, layers, lambda: nn.LayerNorm(6))(pick(draw, values))


def moves(draw: random.Random, layers: Layers, values: list[Value]) -> Value:
    """Transposes, copies and views of a value."""
    x = pick(draw, values)
    axes = draw.sample(range(4), 4)
    y = x.permute(axes)
    y = y.permute([axes.index(i) for i in range(4)]) if draw.random() < 0.5 else y
    if draw.random() < 0.5:
        y = torch.tanh(y)
    if draw.random() < 0.7:
        y = y.contiguous().view(8, -1).reshape(2, 4, 36)
        return y.view(2, 4, 6, 6) if draw.random() < 0.7 else y.clone().reshape(2, 4, 6, 6)
    return y.reshape(2, 4, 6, 6)


def parts(draw: random.Random, layers: Layers, values: list[Value]) -> Value:
    """A value taken apart and put together again."""
    size = draw.choice((1, 2))
    whole = pick(draw, values).split(size, 1)
    fields = [whole[i] for i in range(4 // size)]
    way = draw.choice(("same", "reversed", "activated", "mixed"))
    if way == "reversed":
        fields = fields[::-1]
    elif way == "activated":
        fields = [torch.relu(field) for field in fields]
    elif way == "mixed":
        fields = [torch.relu(fields[0]), *map(torch.sigmoid, fields[1:])]
    return torch.cat(fields, 1)


def casts(draw: random.Random, layers: Layers, values: list[Value]) -> Value:
    y = pick(draw, values).double()
    return (y.float() if draw.random() < 0.5 else (y * 2).float().to(torch.float32)).float()


STEPS: tuple[Step, ...] = (
    conv, conv, branches, branches, norm, conv_norm, conv_norm, shortcut, heads, layer_norm, moves, moves, parts, casts,
    lambda d, m, v: F.dropout(pick(d, v), training=False),
    lambda d, m, v: pick(d, v) + pick(d, v),
    lambda d, m, v: torch.relu(pick(d, v)) * d.choice((0.5, 2.0)),
    lambda d, m, v: F.relu(pick(d, v), inplace=d.random() < 0.5),
    lambda d, m, v: pick(d, v).add_(1.0),
    lambda d, m, v: pick(d, v).clone().mul_(0.5),
    lambda d, m, v: layer(d, m, nn.Identity)(pick(d, v)),
)  # fmt: skip


class Program(nn.Module):
    """A fixed sequence of random steps, with the layers that they need."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        self.seed = seed
        self.layers = nn.ModuleList()
        with torch.no_grad():
            self(torch.zeros(2, 4, 6, 6))
        self.eval()

    def forward(self, x: Value) -> Any:
        draw = random.Random(self.seed)
        draw.position = 0  # type: ignore[attr-defined]
        # The input itself is not changed in place.
        values = [x * 1.0]
        for _ in range(draw.randrange(4, 12)):
            values.append(draw.choice(STEPS)(draw, self.layers, values))
        return values[-1], pick(draw, values)


@pytest.mark.sweep(3)
@pytest.mark.parametrize("seed", [*range(FEW), *(pytest.param(n, marks=pytest.mark.long) for n in range(FEW, SEEDS))])
def test_numbers_stay_equal(seed: int) -> None:
    torch.manual_seed(seed)
    model, value = Program(seed), torch.randn(2, 4, 6, 6)
    with torch.no_grad():
        scale = max(float(result.abs().max()) for result in model(value))
    old = load(model, value, {0: "exported", 5: "decomposed"}.get(seed % 10, "traced"))
    new = EVERY_RULE(old, iterative=True)
    old.compare(new, (value,), rtol=1e-3, atol=1e-5 * max(scale, 1.0)).check()
    assert EVERY_RULE(new, iterative=True).trace.count() == 0


def load(model: nn.Module, value: Value, form: str) -> Workload:
    if form == "traced":
        return Workload.from_fx(torch.fx.symbolic_trace(model), (value,))
    exported = torch.export.export(model, (value,))
    return Workload(exported.run_decompositions() if form == "decomposed" else exported)

"""Random programs with views and in-place calls, of which random parts are written anew."""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from typing import Any

import pytest
import torch
from fx_helpers import differences, update_differences
from torch import nn

from gsl.front import fx
from gsl.graph import LEAVES
from tests.helpers.matrices import made_anew

F = nn.functional
SEEDS = int(os.environ.get("GSL_SEEDS", "25"))
Value = torch.Tensor

STEPS: dict[str, Callable[[random.Random, list[Value]], Value]] = {
    "add": lambda r, v: pick(r, v) + pick(r, v),
    "scale": lambda r, v: pick(r, v) * 1.5,
    "view": lambda r, v: pick(r, v).reshape(2, 8).view(4, 4),
    "transpose": lambda r, v: pick(r, v).t(),
    "row": lambda r, v: pick(r, v)[r.randrange(4)] + pick(r, v),
    "cat": lambda r, v: torch.cat([pick(r, v)[:2], pick(r, v)[2:]], dim=0),
    "half": lambda r, v: torch.cat(pick(r, v).chunk(2, dim=1)[::-1], dim=1),
    "linear": lambda r, v: F.linear(pick(r, v), pick(r, v), pick(r, v)[0]),
    "dropout": lambda r, v: F.dropout(pick(r, v), training=False),
    "sigmoid": lambda r, v: torch.sigmoid(pick(r, v)),
    "relu": lambda r, v: F.relu(pick(r, v), inplace=r.random() < 0.7),
    "mul_": lambda r, v: pick(r, v).mul_(0.5),
    "add_": lambda r, v: pick(r, v).add_(pick(r, v) * 1.0),
    "view_": lambda r, v: pick(r, v).reshape(16).mul_(2.0).view(4, 4),
    "topk": lambda r, v: torch.topk(pick(r, v), 4)[0].neg_(),
}


def pick(source: random.Random, values: list[Value]) -> Value:
    # The newest values are the most likely, so that in-place calls often hit fresh ones.
    return values[-1 - min(int(source.expovariate(0.8)), len(values) - 1)]


class Program(nn.Module):
    """A fixed sequence of random steps on two matrices."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        self.seed = seed

    def forward(self, a: Value, b: Value) -> Any:
        source = random.Random(self.seed)
        values = [a, b]
        for _ in range(source.randrange(4, 14)):
            values.append(STEPS[source.choice(list(STEPS))](source, values))
        return [values[-1], pick(source, values), pick(source, values) * 1]


def run(program: Any, values: list[Value]) -> list[Value]:
    """The results, and what has become of the inputs."""
    own = [value.clone() for value in values]
    with torch.no_grad():
        found = program.build()(*own)
    return [*found, *own]


def program_of(seed: int, way: str) -> tuple[Any, list[Value]]:
    torch.manual_seed(seed)
    values = [torch.randn(4, 4), torch.randn(4, 4)]
    model = Program(seed).eval()
    if way == "traced":
        return fx.from_graph_module(torch.fx.symbolic_trace(model), values), values
    return fx.from_model(model, tuple(values)), values


@pytest.mark.sweep(3)
@pytest.mark.parametrize("way", ["traced", "exported"])
@pytest.mark.parametrize("seed", range(SEEDS))
def test_parts_made_anew(seed: int, way: str) -> None:
    program, values = program_of(seed, way)
    view = program.load()
    assert differences(program.native, program.store(view.copy()).native) == []
    expected = run(program, values)
    source = random.Random(seed)
    for share in (0.2, 0.5, 1.0):
        stored = program.store(made_anew(view, source, share))
        for a, b in zip(expected, run(stored, values), strict=True):
            torch.testing.assert_close(a, b)


@pytest.mark.sweep(3)
@pytest.mark.parametrize("seed", range(SEEDS))
def test_parts_made_anew_in_place(seed: int) -> None:
    for share in (0.0, 0.3, 1.0):
        program, values = program_of(seed, "traced")
        expected = run(program, values)
        view = made_anew(program.load(), random.Random(seed), share)
        assert update_differences(program, view, program.store(view).native) == []
        for a, b in zip(expected, run(program, values), strict=True):
            torch.testing.assert_close(a, b)


class Recorder(torch.fx.Interpreter):
    """Runs a native graph, and keeps what every node returned: the tensor itself, and a copy of it at that time."""

    def __init__(self, module: Any) -> None:
        super().__init__(module, garbage_collect_values=False)
        self.live: dict[str, Value] = {}
        self.copies: dict[str, Value] = {}

    def run_node(self, n: torch.fx.Node) -> Any:
        value = super().run_node(n)
        if isinstance(value, Value):
            self.live[n.name], self.copies[n.name] = value, value.clone()
        return value


@pytest.mark.sweep(3)
@pytest.mark.parametrize("way", ["traced", "exported"])
@pytest.mark.parametrize("seed", range(SEEDS))
def test_canonical_values_never_change(seed: int, way: str) -> None:
    """What the view reads as a pure call keeps its value, so that anything may read it at any time."""
    program, values = program_of(seed, way)
    recorder = Recorder(program.native if way == "traced" else program.native.graph_module)
    with torch.no_grad():
        recorder.run(*[value.clone() for value in values])
    view = program.load()
    pure = [node for node in view.nodes if node.native.is_root and isinstance(node.op, str) and node.op not in LEAVES]
    pure = [node for node in pure if node.name in recorder.copies]
    overwritten = {operand.name for node in pure for operand in node.native.reading.overwrites}
    for node in pure:
        if node.name not in overwritten:
            torch.testing.assert_close(recorder.live[node.name], recorder.copies[node.name], rtol=0, atol=0)
    # Read every value at the end of the program: the one that is overwritten too.
    for node in pure:
        copy = view.copy()
        copy.outputs[1] = next(other for other in copy.nodes if other.name == node.name)
        found = run(program.store(copy), values)[1]
        torch.testing.assert_close(found, recorder.copies[node.name])

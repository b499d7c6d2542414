"""Random programs of torch: shared values, tuples, several outputs, calls in place, random calls, symbolic sizes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from hypothesis import strategies as st
from torch import nn

from gsl import Workload

Value = torch.Tensor
Step = tuple[str, int, int, int]
"""A kind, two values to use, counted from the newest one, and a number to choose with."""
Make = Callable[["Program", Value, Value, int], Value]

WIDTH = 4


def split(self: Program, a: Value, b: Value, n: int) -> Value:
    fields = a.chunk(2, dim=1)
    return torch.cat([fields[n % 2], fields[1]], dim=1)


def joined(self: Program, a: Value, b: Value, n: int) -> Value:
    fields = torch.cat([torch.relu(a), b], dim=1).chunk(2, dim=1)
    return torch.relu(fields[0]) if n else fields[0] + fields[1]


def topk(self: Program, a: Value, b: Value, n: int) -> Value:
    values, _ = torch.topk(a, WIDTH, dim=1)
    return values


PURE: dict[str, Make] = {
    "add": lambda self, a, b, n: a + b,
    "sum of three": lambda self, a, b, n: a + b + a,
    "subtract": lambda self, a, b, n: a - b,
    "multiply": lambda self, a, b, n: a * b,
    "scale": lambda self, a, b, n: a * (2.0, 0.5, 1.0, 3)[n],
    "shift": lambda self, a, b, n: a + (0.0, 1, 0.5, 2.0)[n],
    "negative": lambda self, a, b, n: torch.neg(-a) if n == 0 else -a,
    "maximum": lambda self, a, b, n: torch.maximum(a, a if n == 0 else b),
    "activation": lambda self, a, b, n: (torch.relu, torch.tanh, torch.sigmoid, torch.abs)[n](a),
    "relu": lambda self, a, b, n: torch.relu(a) if n else torch.relu(torch.relu(a)),
    "silu": lambda self, a, b, n: a * torch.sigmoid(a),
    "exp": lambda self, a, b, n: torch.exp(torch.tanh(a)) + torch.exp(torch.sigmoid(b)),
    "leaky": lambda self, a, b, n: F.leaky_relu(a, (0.0, 0.1, 0.5, 1.0)[n]),
    "softmax": lambda self, a, b, n: torch.softmax(a, dim=n % 2 - 1),
    "transpose": lambda self, a, b, n: a.t().t() if n == 0 else (a.t() @ b).sum(0, keepdim=True) + a,
    "product": lambda self, a, b, n: a @ self.weight,
    "linear": lambda self, a, b, n: F.linear(a, self.weight, self.bias if n else None),
    "norm": lambda self, a, b, n: F.layer_norm(a, (WIDTH,), self.bias, self.bias),
    "split": split,
    "joined": joined,
    "topk": topk,
    "rows": lambda self, a, b, n: a[:1] + b,
    "sum": lambda self, a, b, n: a.sum(dim=n % 2, keepdim=True) + b,
    "mean": lambda self, a, b, n: a.mean() + b,
    "view": lambda self, a, b, n: a.reshape(-1).reshape(2 * WIDTH if n else -1, -1).reshape(a.shape),
    "unsqueeze": lambda self, a, b, n: a.unsqueeze(1).squeeze(1),
    "cast": lambda self, a, b, n: a.float().double() if n else a.double(),
    "clamp": lambda self, a, b, n: a.clamp(-1.0, 1.0),
    "where": lambda self, a, b, n: torch.where(a > b, a, b),
    "stack": lambda self, a, b, n: torch.stack([a, b, a]).sum(0),
    "size": lambda self, a, b, n: a * a.shape[0],
    "opaque": lambda self, a, b, n: torch.cummax(a, dim=1)[0],
}  # fmt: skip
IMPURE: dict[str, Make] = {
    "add_": lambda self, a, b, n: a.add_(b),
    "mul_": lambda self, a, b, n: a.mul_(0.5),
    "relu_": lambda self, a, b, n: F.relu(a, inplace=True),
    "view_": lambda self, a, b, n: a.reshape(-1).mul_(0.5).reshape(a.shape),
    "row_": lambda self, a, b, n: a[:1].add_(1.0) + b,
    "clone": lambda self, a, b, n: a.clone().add_(1.0),
    "random": lambda self, a, b, n: a + torch.rand_like(b),
    "dropout": lambda self, a, b, n: F.dropout(a, 0.5, training=n > 0),
}
STEPS = {**PURE, **IMPURE}


def steps(kinds: Sequence[str], most: int = 9) -> st.SearchStrategy[list[Step]]:
    """The steps of a program, of some kinds."""
    use = st.integers(0, 3)
    return st.lists(st.tuples(st.sampled_from(kinds), use, use, st.integers(0, 3)), min_size=1, max_size=most)


class Program(nn.Module):
    """A fixed sequence of steps on two matrices."""

    weight: nn.Parameter
    bias: nn.Parameter

    def __init__(self, steps: Sequence[Step], form: str) -> None:
        super().__init__()
        self.steps, self.form = steps, form
        generator = torch.Generator().manual_seed(0)
        self.weight = nn.Parameter(torch.randn(WIDTH, WIDTH, generator=generator, dtype=torch.float64))
        self.bias = nn.Parameter(torch.rand(WIDTH, generator=generator, dtype=torch.float64))

    def forward(self, a: Value, b: Value) -> Any:
        values = [a, b]
        for kind, one, other, number in self.steps:
            first, second = (values[-1 - min(place, len(values) - 1)] for place in (one, other))
            values.append(STEPS[kind](self, first, second, number))
        if self.form == "one":
            return values[-1]
        if self.form == "two":
            return values[-1], values[-2]
        return {"a": values[-1], "b": [values[-2], values[-1] * 1.0]}


def inputs() -> tuple[Value, Value]:
    """Two matrices of few rows."""
    generator = torch.Generator().manual_seed(1)
    return tuple(torch.randn(6, WIDTH, generator=generator, dtype=torch.float64) for _ in range(2))  # type: ignore[return-value]


FORMS = ("traced", "traced", "traced", "exported", "symbolic", "decomposed")


def workload(program: Program, form: str) -> Workload:
    """A program as the workload of a traced or exported graph."""
    values = inputs()
    with torch.no_grad():
        if form == "traced":
            return Workload.from_fx(torch.fx.symbolic_trace(program), values)
        if form == "symbolic":
            rows = torch.export.Dim("rows", min=2, max=64)
            exported = torch.export.export(program, values, dynamic_shapes={"a": {0: rows}, "b": {0: rows}})
        else:
            exported = torch.export.export(program, values)
        return Workload.from_exported(exported.run_decompositions() if form == "decomposed" else exported)

"""Cases for the rules: views built by hand in float64, and how they are run, rewritten and printed."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from gsl.draw import hide_defaults
from gsl.graph import INPUT, PARAM, Graph, Node, SymDim, TensorType
from gsl.graph.text import text
from tests.helpers.graphs import Builder, infer_type, run

TOLERANCES = {"float64": 1e-10, "float32": 1e-4, "float16": 5e-3, "bfloat16": 3e-2}
"""The largest error relative to the largest element of an output; other dtypes must be equal."""


class Build(Builder):
    """A builder whose tensors are float64 unless said otherwise, and whose weights differ from each other."""

    def input(self, name: str, *shape: Any, dtype: str = "float64") -> Node:
        return super().input(name, *shape, dtype=dtype)

    def param(self, name: str, *shape: int, seed: int = 0, dtype: str = "float64") -> Node:
        value = values(f"{name}{seed}", shape, dtype)
        return self._add(Node(PARAM, (), {"value": value}, TensorType(shape, dtype), name=name))

    def tensor(self, *shape: int, dtype: str = "float64") -> Node:
        """A literal tensor."""
        return self.const(values(f"const{len(self.nodes)}", shape, dtype))

    def norm(self, data: Node, channels: int, kind: str = "param", dtype: str = "float64", **attrs: Any) -> Node:
        """A batch norm, whose factor and offset are of a kind: param, literal or input."""
        make = {"param": self.param, "input": self.input, "literal": lambda _, *s, dtype: self.tensor(*s, dtype=dtype)}
        affine = [make[kind](name, channels, dtype=dtype) for name in ("gamma", "beta")]
        mean, var = self.param("mean", channels, dtype=dtype), self.param("var", channels, dtype=dtype)
        var.attrs = {"value": var.attrs["value"].abs() + 0.5}
        return self.call("nn.batch_norm", data, *affine, mean, var, **attrs)

    def bias(self, data: Node, name: str, axis: int = 1) -> Node:
        """A bias of its own for some data."""
        assert data.shape is not None
        assert data.dtype is not None
        return self.call("nn.bias_add", data, self.param(name, data.shape[axis], dtype=data.dtype), axis=axis)


View = Callable[[Build], "Node | Sequence[Node]"]


@dataclass(frozen=True)
class Fires:
    """A view on which a rule fires; ``golden`` is the text of the result, where it is given."""

    rule: str
    label: str
    view: View
    golden: str | None = None


@dataclass(frozen=True)
class Refuses:
    """A view on which a rule must not fire."""

    rule: str
    label: str
    view: View


def build(view: View) -> Graph:
    """The graph of a view."""
    builder = Build()
    result = view(builder)
    return Graph(builder.nodes, [result] if isinstance(result, Node) else result, infer_type)


def values(name: str, shape: Sequence[int], dtype: str) -> torch.Tensor:
    """Random numbers that depend on the name only: normal floats, small integers, booleans."""
    generator = torch.Generator().manual_seed(zlib.crc32(name.encode()))
    kind = getattr(torch, dtype)
    if dtype == "bool":
        return torch.rand(tuple(shape), generator=generator) < 0.5
    if not kind.is_floating_point:
        return torch.randint(0 if dtype.startswith("u") else -100, 100, tuple(shape), generator=generator).to(kind)
    return torch.randn(tuple(shape), generator=generator, dtype=torch.float64).to(kind)


def inputs(view: Graph, sizes: Mapping[str, int] | None = None) -> dict[str, torch.Tensor]:
    """Random inputs of a view; symbolic sizes are taken from ``sizes``."""
    found = {}
    for node in view.nodes:
        if node.op == INPUT:
            assert isinstance(node.type, TensorType)
            shape = [(sizes or {})[str(d)] if isinstance(d, SymDim) else d for d in node.type.shape]
            found[node.name] = values(node.name, shape, node.type.dtype)
    return found


def largest_error(before: Graph, after: Graph) -> float:
    """The largest error of the outputs in units of the tolerance: at most 1 where the views agree."""
    fed = inputs(before)
    worst = 0.0
    for a, b in zip(run(before, fed), run(after, fed), strict=True):
        assert a.shape == b.shape
        assert a.dtype == b.dtype
        if a.numel() == 0:
            continue
        tolerance = TOLERANCES.get(str(a.dtype).removeprefix("torch."), 0.0)
        if not tolerance:
            worst = max(worst, 0.0 if torch.equal(a, b) else float("inf"))
            continue
        assert a.isfinite().all()
        error = float((a.double() - b.double()).abs().max()) / (max(float(a.abs().max()), 1e-300) * tolerance)
        worst = max(worst, error if error == error else float("inf"))
    return worst


def shown(view: Graph) -> str:
    """The text of a view without defaults."""
    return text(view, hide=hide_defaults)


__all__ = ["Build", "Fires", "Refuses", "View", "build", "inputs", "largest_error", "run", "shown", "values"]

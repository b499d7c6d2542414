"""Every operator of the vocabulary as views of one call: its examples."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from gsl.graph import Graph, Node, TupleType
from tests.helpers.examples import ExampleCall
from tests.helpers.graphs import infer_type
from tests.rules.harness import Build


def _results(b: Build, call: ExampleCall, prefix: str, fed: list[torch.Tensor]) -> list[Node]:
    """The results of a call in a view. The values of the inputs that it adds to the view go to ``fed``."""

    def operand(value: Any, name: str) -> Any:
        if isinstance(value, tuple):
            return b.tuple(*[operand(item, f"{name}_{i}") for i, item in enumerate(value)])
        if isinstance(value, torch.Tensor):
            fed.append(value)
            return b.input(name, *value.shape, dtype=str(value.dtype).removeprefix("torch."))
        return value

    node = b.call(call.op, *[operand(value, f"{prefix}{i}") for i, value in enumerate(call.operands)], **call.attrs)
    return [b.get(node, i) for i in range(len(node.type.fields))] if isinstance(node.type, TupleType) else [node]


def view(calls: Sequence[ExampleCall]) -> tuple[Graph, list[torch.Tensor]]:
    """The view whose outputs are the results of these calls in turn, and the values of its inputs."""
    b = Build()
    outputs: list[Node] = []
    fed: list[torch.Tensor] = []
    for number, call in enumerate(calls):
        outputs += _results(b, call, f"r{number}x" if len(calls) > 1 else "x", fed)
    return Graph(b.nodes, outputs, infer_type), fed

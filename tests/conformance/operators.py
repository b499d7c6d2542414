"""Every operator of the vocabulary as views of one call: its examples."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from gsl.graph import Graph, Node, TupleType
from gsl.spec import TABLE
from tests.helpers.examples import ExampleCall
from tests.helpers.graphs import infer_type
from tests.rules.harness import Build


class Decomposed:
    """The calls of which a call is composed, as nodes of a view."""

    def __init__(self, b: Build) -> None:
        self.b = b

    def __call__(self, op: str, *operands: Any, **attrs: Any) -> Node:
        return self.b.call(op, *operands, **attrs)

    def shape(self, value: Node) -> tuple[Any, ...]:
        assert value.shape is not None
        return value.shape


def _results(b: Build, call: ExampleCall, prefix: str, fed: list[torch.Tensor], decompose: bool) -> list[Node]:
    """The results of a call in a view. The values of the inputs that it adds to the view go to ``fed``."""

    def operand(value: Any, name: str) -> Any:
        if isinstance(value, tuple):
            return b.tuple(*[operand(item, f"{name}_{i}") for i, item in enumerate(value)])
        if isinstance(value, torch.Tensor):
            fed.append(value)
            return b.input(name, *value.shape, dtype=str(value.dtype).removeprefix("torch."))
        return value

    operands = [operand(value, f"{prefix}{i}") for i, value in enumerate(call.operands)]
    spec = TABLE[call.op]
    if decompose and spec.decompose is not None:
        types = tuple([getattr(each, "type", None) for each in operands])
        full = spec.complete(call.attrs, types)
        own = {name: value for name, value in full.items() if spec.attrs[name].derive is None}
        node = spec.decompose(Decomposed(b), *operands, **own)
    else:
        node = b.call(call.op, *operands, **call.attrs)
    return [b.get(node, i) for i in range(len(node.type.fields))] if isinstance(node.type, TupleType) else [node]


def view(calls: Sequence[ExampleCall], *, decompose: bool = False) -> tuple[Graph, list[torch.Tensor]]:
    """The view whose outputs are the results of these calls in turn, and the values of its inputs.

    With ``decompose``, the calls of which they are composed stand in their places.
    """
    b = Build()
    outputs: list[Node] = []
    fed: list[torch.Tensor] = []
    for number, call in enumerate(calls):
        outputs += _results(b, call, f"r{number}x" if len(calls) > 1 else "x", fed, decompose)
    return Graph(b.nodes, outputs, infer_type), fed

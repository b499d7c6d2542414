"""What ``torch.compile`` hands to a back end."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch


class Recorder:
    """A back end that keeps the graphs that it is handed with their inputs, and runs them as they are."""

    def __init__(self) -> None:
        self.graphs: list[torch.fx.GraphModule] = []
        self.inputs: list[Any] = []

    def __call__(self, module: torch.fx.GraphModule, inputs: Any) -> Callable[..., Any]:
        self.graphs.append(module)
        self.inputs.append(inputs)
        return module.forward

    def calls(self, target: Any, graph: int = -1) -> int:
        """How often a graph calls a function or method."""
        nodes = self.graphs[graph].graph.nodes
        return sum(node.target in (target, getattr(target, "__name__", None)) for node in nodes)


@contextmanager
def fresh() -> Iterator[None]:
    """Nothing is compiled before, and nothing stays compiled behind."""
    torch._dynamo.reset()
    try:
        with torch._dynamo.config.patch(automatic_dynamic_shapes=True), torch.compiler.config.patch(
            force_disable_caches=True
        ):
            yield
    finally:
        torch._dynamo.reset()

"""Comparing circuits layer by layer: what they are made of, in an order that does not depend on how they were made."""

from __future__ import annotations

from typing import Any

from cirkit.backend.torch.parameters.nodes import TorchPointerParameter, TorchTensorParameter

Rows = list[tuple[Any, ...]]
"""For each module its class, its configuration, the rows of its parameters, and the places of its inputs; then the
places of the outputs."""


def rows(graph: Any, *, weights: bool = True) -> Rows:
    """A circuit, or the graph of a parameter, as rows. With ``weights``, tensors are told apart, as the objects."""
    places: dict[Any, int] = {}
    found: Rows = []
    work = [(module, False) for module in reversed(graph.outputs)]
    while work:
        module, left = work.pop()
        if module in places:
            continue
        inputs = graph.node_inputs(module)
        if not left:
            work.append((module, True))
            work += [(below, False) for below in reversed(inputs)]
            continue
        places[module] = len(found)
        params = {name: rows(value, weights=weights) for name, value in getattr(module, "params", {}).items()}
        found.append((type(module).__name__, _configuration(module, weights), params, [places[i] for i in inputs]))
    found.append(tuple(places[module] for module in graph.outputs))
    return found


def _configuration(module: Any, weights: bool) -> Any:
    if isinstance(module, TorchPointerParameter):
        return (id(module.deref()) if weights else module.shape, module.fold_idx)
    if isinstance(module, TorchTensorParameter):
        return id(module) if weights else module.shape
    return dict(module.config)

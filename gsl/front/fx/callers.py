"""Graphs that torch itself calls: their callers know how the results lie in memory, and may change them in place."""

from __future__ import annotations

from collections import Counter
from typing import Final

import torch
import torch.utils._pytree as pytree
from torch import fx

from gsl.front.fx.handle import memory
from gsl.front.fx.values import Values


def is_compiled(module: fx.GraphModule) -> bool:
    """True if a graph belongs to ``torch.compile``: made by dynamo, or traced from such a graph for autograd and
    inductor."""
    if torch._guards.TracingContext.try_get() is not None:
        return True
    return bool([node for node in module.graph.find_nodes(op="placeholder", sort=False) if "grapharg" in node.meta])


def is_for_autograd(module: fx.GraphModule) -> bool:
    """True if a graph was traced for autograd, also outside of ``torch.compile``."""
    return any("desc" in node.meta for node in module.graph.find_nodes(op="output", sort=False))


def viewed_results(graph: fx.Graph, values: Values) -> frozenset[fx.Node]:
    """The results that are views of one tensor, in a graph that torch made for autograd, and that tensor: torch returns
    views of it that are made after each run, and knows how it lies in memory."""
    output = graph.output_node()
    kinds = zip(pytree.tree_leaves(output.args), pytree.tree_leaves(output.meta.get("desc")))
    returned = [node for node, kind in kinds if type(kind).__name__ in _RETURNED and isinstance(node, fx.Node)]
    known = {node: values.value(node) for node in returned}
    places = {node: memory(value) for node, value in known.items() if isinstance(value, torch.Tensor)}
    shared = Counter(places.values())
    return frozenset(node for node, place in places.items() if shared[place] > 1)


_RETURNED: Final = ("PlainAOTOutput", "IntermediateBaseAOTOutput")
"""The results that a call of a compiled function returns, or of which it returns views."""

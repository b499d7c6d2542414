"""The graphs within calls of torch: branches of ``torch.cond``, and what other operators of higher order run."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, Final

import torch
from torch import fx
from torch._ops import HigherOrderOperator

from gsl.front.fx.effects import opens_region
from gsl.front.fx.groups import is_group
from gsl.front.fx.handle import nodes_in
from gsl.front.fx.values import Values, dim_of

_REGIONS: Final[Mapping[str, Callable[[Sequence[Any]], tuple[Sequence[Any], Sequence[Any]]]]] = {
    "cond": lambda args: (args[1:3], args[3]),
    "invoke_subgraph": lambda args: (args[:1], args[2:]),
    "tag_activation_checkpoint": lambda args: (args[:1], args[1:]),
    "wrap": lambda args: (args[:1], args[1:]),
}
"""The graphs among the arguments of each higher-order operator, and the values that it feeds to them."""


def regions(module: fx.GraphModule, weights: Collection[str] = ()) -> dict[str, set[str]]:
    """The paths of the graphs that higher-order operators run on some operands, with the names of the placeholders that
    are always fed with weights. ``weights`` are those of the graph itself. Groups are none of them."""
    found: dict[str, set[str]] = {}
    barred: set[str] = set()
    autocast = 0
    for node in module.graph.nodes:
        autocast += opens_region(node)
        reads = _REGIONS.get(str(node.target)) if isinstance(node.target, HigherOrderOperator) else None
        if reads is None or is_group(node):
            continue
        bodies, operands = reads(node.args)
        for body in bodies:
            inner = getattr(module, str(body.target), None) if isinstance(body, fx.Node) else None
            if isinstance(inner, fx.GraphModule):
                names = [p.name for p in inner.graph.nodes if p.op == "placeholder"]
                fed = {name for name, item in zip(names, operands) if getattr(item, "name", None) in weights}
                path = str(body.target)
                if autocast:  # calls have other types there than their operators say
                    barred.add(path)
                found[path] = found.get(path, fed) & fed if len(names) == len(operands) else set()
    return {path: fed for path, fed in found.items() if path not in barred}


def alike(old: fx.GraphModule, new: fx.GraphModule) -> bool:
    """True if the outputs of a rewritten graph are known to have the memory layout that they had: the caller may rely
    on it."""
    outputs = [nodes_in([node.args for node in module.graph.find_nodes(op="output")]) for module in (old, new)]
    before, after = (list(map(_layout, nodes)) for nodes in outputs)
    return None not in before and before == after


def _layout(node: fx.Node) -> tuple[Any, ...] | None:
    value = Values().value(node)
    if not isinstance(value, torch.Tensor) or value.layout != torch.strided:
        return (value,) if isinstance(value, (int, torch.SymInt)) else None
    sizes = tuple([tuple(map(dim_of, part)) for part in (value.shape, value.stride())])
    return value.dtype, value.requires_grad, *sizes

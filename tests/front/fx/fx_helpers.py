"""Comparing native programs node by node, and small models to make them of."""

from __future__ import annotations

import copy
from typing import Any

import torch
from torch import fx, nn
from torch.export import ExportedProgram

from gsl.front.fx.handle import UNTOLD


def differences(old: Any, new: Any) -> list[str]:
    """In what two native programs differ: nodes, arguments, metadata, weights, modules, signature."""
    old_graph, new_graph = old.graph, new.graph
    found = graph_differences(old_graph, new_graph)
    if isinstance(old, ExportedProgram):
        if old.graph_signature != new.graph_signature:
            found.append("signature")
        if old.range_constraints != new.range_constraints:
            found.append("range constraints")
        if str(old.module_call_graph) != str(new.module_call_graph):
            found.append("module call graph")
        found += tensor_differences(old.state_dict, new.state_dict) + tensor_differences(old.constants, new.constants)
        found += module_differences(old.graph_module, new.graph_module)
    else:
        found += module_differences(old, new)
    return found


def graph_differences(old: fx.Graph, new: fx.Graph) -> list[str]:
    if len(old.nodes) != len(new.nodes):
        return [f"{len(old.nodes)} nodes became {len(new.nodes)}"]
    found = [] if str(old) == str(new) else ["the text of the graph"]
    pairs = dict(zip(old.nodes, new.nodes))
    for a, b in pairs.items():
        for what in ("name", "op", "target", "type"):
            if getattr(a, what) != getattr(b, what):
                found.append(f"{a.name}: {what}: {getattr(a, what)} became {getattr(b, what)}")
        args = fx.node.map_arg((a.args, a.kwargs), pairs.__getitem__)
        if args != (b.args, b.kwargs):
            found.append(f"{a.name}: {args} became {(b.args, b.kwargs)}")
        if a.meta.keys() != b.meta.keys() or any(a.meta[key] is not b.meta[key] for key in a.meta):
            found.append(f"{a.name}: meta")
        if a.graph is b.graph:
            found.append(f"{a.name}: is shared")
    return found


def twin(program: Any) -> Any:
    """A program that can be changed in place without the given one: it shares tensors and leaf modules with it."""
    module = program.native
    if not isinstance(module, fx.GraphModule):
        return program
    parts = [part for part in module.modules() if type(part) is not nn.Module and not isinstance(part, fx.GraphModule)]
    shared = [*parts, *module.parameters(), *module.buffers()]
    return type(program)(copy.deepcopy(module, {id(part): part for part in shared}), program.example_inputs)


def update_differences(program: Any, view: Any, stored: fx.GraphModule) -> list[str]:
    """Write a view into the module of its program; in what that differs from the module that was stored of the view.

    Reads of weights may stand elsewhere before their users. What is kept as it was may get a mark that a rewrite could
    not tell how it lies in memory.
    """
    module, nodes = program.native, set(program.native.graph.nodes)
    old = {node: (node.name, dict(node.meta)) for node in nodes}
    program.update(view)
    module.graph.lint()
    module.recompile()
    found = [] if _lines(stored.graph) == _lines(module.graph) else [f"{stored.graph}\nbut in place\n{module.graph}"]
    for a, b in zip(_calls(stored.graph), _calls(module.graph)):
        if a.meta.keys() != b.meta.keys():
            found.append(f"{a.name}: the metadata has {list(a.meta)}, in place {list(b.meta)}")
    for node in module.graph.nodes:
        if node in nodes and (node.name != old[node][0] or node.meta.keys() - {UNTOLD} != old[node][1].keys()):
            found.append(f"{old[node][0]}: was changed")
    if list(stored.state_dict()) != list(module.state_dict()):
        found.append(f"weights: {sorted(set(stored.state_dict()) ^ set(module.state_dict()))}")
    return found


def _calls(graph: fx.Graph) -> list[fx.Node]:
    return [node for node in graph.nodes if node.op != "get_attr"]


def _lines(graph: fx.Graph) -> tuple[list[str], set[str]]:
    calls, reads = [], set()
    for node in graph.nodes:
        line = f"{node.format_node()} {node.args} {node.kwargs}"
        reads.add(line) if node.op == "get_attr" else calls.append(line)
    return calls, reads


def tensor_differences(old: dict[str, Any], new: dict[str, Any]) -> list[str]:
    if list(old) != list(new):
        return [f"weights: {sorted(set(old) ^ set(new))} differ, or their order"]
    return [f"weight {name}" for name in old if old[name] is not new[name]]


def module_differences(old: fx.GraphModule, new: fx.GraphModule) -> list[str]:
    found = [] if old.code == new.code else ["code"]
    if type(old).__name__ != type(new).__name__:
        found.append("the name of the class")
    names = {name: type(module) for name, module in old.named_modules(remove_duplicate=False) if name}
    if names != {name: type(module) for name, module in new.named_modules(remove_duplicate=False) if name}:
        found.append("modules")
    found += tensor_differences(
        dict(old.named_parameters(remove_duplicate=False)), dict(new.named_parameters(remove_duplicate=False))
    )
    return found + tensor_differences(
        dict(old.named_buffers(remove_duplicate=False)), dict(new.named_buffers(remove_duplicate=False))
    )


class ConvNet(nn.Module):
    """Convolution, batch normalisation, an in-place activation, pooling and a linear layer."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 8, 3, padding=1)
        self.bn = nn.BatchNorm2d(8)
        self.relu = nn.ReLU(inplace=True)
        self.head = nn.Sequential(nn.MaxPool2d(2), nn.Flatten(), nn.Linear(8 * 16, 5))

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, dict[str, Any]]:
        y = self.relu(self.bn(self.conv(x)))
        return self.head(y + 1.5), {"sum": y.sum(), "none": None, "twice": [y, y]}


class Attention(nn.Module):
    """Self-attention with a split projection, a residual and layer normalisation."""

    def __init__(self, width: int = 8) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, length, width = x.shape
        q, k, v = self.qkv(self.norm(x)).split(width, dim=-1)
        heads = [t.view(batch, length, 2, -1).transpose(1, 2) for t in (q, k, v)]
        y = torch.nn.functional.scaled_dot_product_attention(*heads, is_causal=True)
        return x + self.out(y.transpose(1, 2).reshape(batch, length, width))


class Stateful(nn.Module):
    """A buffer that is updated, one that is not, a literal tensor, and tied weights."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(7, 4)
        self.out = nn.Linear(4, 7, bias=False)
        self.out.weight = self.embed.weight
        self.register_buffer("steps", torch.zeros(()))
        self.register_buffer("scale", torch.full((4,), 2.0), persistent=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.steps.add_(1)
        y = self.embed(x) * self.scale + torch.tensor([1.0, 2.0, 3.0, 4.0])
        return self.out(y) * self.steps

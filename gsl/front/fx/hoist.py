"""Weights that a rewrite computes from weights alone: once, instead of at every run of a graph of ``torch.compile``."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import fx

from gsl.front.fx.compiled import CompiledProgram, keep_sources
from gsl.front.fx.handle import RULE, Leaf, native_of
from gsl.graph import PARAM

Compile = Callable[[fx.GraphModule, Sequence[Any]], Callable[..., Any]]


def hoisted(module: fx.GraphModule, example_inputs: Sequence[Any], compile: Compile) -> Callable[..., Any]:
    """A function that runs a graph. The graph's new weights are computed at the first run, and again when a weight
    changes that they depend on.

    ``compile`` is handed the graph without them, which takes them as further inputs behind its own.
    """
    found = _wanted(module)
    values = [_value(node) for node in found]
    if not found or any(value is None for value in values):
        return compile(module, example_inputs)
    weights = _sources(found)
    places = [node for node in module.graph.nodes if node.op == "placeholder"]
    rest = _without(module, found)
    call = compile(rest, [*example_inputs, *values])
    return Hoisted(_computing(module, weights, found), [places.index(weight) for weight in weights], call)


class Hoisted:
    """A compiled graph with weights that are computed ahead of its runs."""

    def __init__(self, compute: Callable[..., Sequence[Any]], places: Sequence[int], call: Callable[..., Any]) -> None:
        self.compute = compute
        self.places = tuple(places)
        """The places, among the inputs, of the weights that they depend on."""
        self.call = call
        self._known: tuple[list[tuple[Any, ...]], Sequence[Any]] | None = None
        """The state of those weights, and the values that were computed from them."""

    def __call__(self, *inputs: Any) -> Any:
        weights = [inputs[place] for place in self.places]
        states = [_state(weight) for weight in weights]
        known = self._known
        if known is None or not all(map(_is_state, known[0], weights)):
            with torch.no_grad():
                known = ([state for state in states if state is not None], self.compute(*weights))
            # Of a weight without a version nothing is known at the next run.
            self._known = known if len(known[0]) == len(weights) else None
        return self.call(*inputs, *known[1])


def _state(weight: torch.Tensor) -> tuple[Any, ...] | None:
    """A key that changes with the value of a tensor, as torch tells it; ``None`` for a tensor of which torch does not
    tell."""
    if weight.is_inference():
        return None
    return weakref.ref(weight), weight._version, weight.data_ptr()


def _is_state(state: tuple[Any, ...], weight: torch.Tensor) -> bool:
    return state[0]() is weight and state[1:] == (weight._version, weight.data_ptr())


def _wanted(module: fx.GraphModule) -> list[fx.Node]:
    """The calls of rules that depend on weights alone, and that something else uses."""
    # The view tells which weights nothing changes, and which calls have no effect.
    known: dict[fx.Node, bool] = {}  # whether they depend on a weight, and not on literal tensors alone
    for view in CompiledProgram(module).load():
        native = native_of(view)
        if native is None or view.effect is not None:
            continue
        if isinstance(view.native, Leaf):
            known.update(dict.fromkeys(view.native.reads, view.op == PARAM))
        elif RULE in native.meta and all(operand in known for operand in native.all_input_nodes):
            known[native] = any(known[operand] for operand in native.all_input_nodes)
    calls = [node for node in module.graph.nodes if known.get(node) and node.op not in ("placeholder", "get_attr")]
    return [node for node in calls if any(user not in known for user in node.users)]


def _value(node: fx.Node) -> Any:
    value = node.meta.get("example_value", node.meta.get("val"))
    return value if isinstance(value, torch.Tensor) else None


def _sources(found: Sequence[fx.Node]) -> list[fx.Node]:
    """The placeholders from which calls are computed, in the order of the graph."""
    seen = set(found)
    work = list(found)
    while work:
        for operand in work.pop().all_input_nodes:
            if operand not in seen:
                seen.add(operand)
                work.append(operand)
    return [node for node in found[0].graph.nodes if node in seen and node.op == "placeholder"]


def _computing(module: fx.GraphModule, weights: Sequence[fx.Node], found: Sequence[fx.Node]) -> fx.GraphModule:
    """The module that computes calls from weights."""
    graph = fx.Graph()
    copies = {weight: graph.placeholder(weight.name) for weight in weights}
    needed = set(found)
    for node in reversed(module.graph.nodes):
        if node in needed:
            needed.update(node.all_input_nodes)
    for node in module.graph.nodes:
        if node in needed and node not in copies:
            copies[node] = graph.node_copy(node, copies.__getitem__)
    graph.output(tuple([copies[node] for node in found]))
    return fx.GraphModule(module, graph)


def _without(module: fx.GraphModule, found: Sequence[fx.Node]) -> fx.GraphModule:
    """The module with placeholders, behind its own, in the place of calls; what else they needed goes, too."""
    graph = fx.Graph(tracer_cls=module.graph._tracer_cls)
    copies: dict[fx.Node, fx.Node] = {}
    inputs = [node for node in module.graph.nodes if node.op == "placeholder"]
    for node in inputs:
        copies[node] = graph.node_copy(node, copies.__getitem__)
    for node in found:
        copies[node] = graph.placeholder(f"{node.name}_folded")
        copies[node].meta.update(example_value=_value(node), tensor_dict={})
    for node in module.graph.nodes:
        if node not in copies:
            copies[node] = graph.node_copy(node, copies.__getitem__)
    for node in reversed(list(graph.nodes)):
        if RULE in node.meta and not node.users and node.op != "placeholder":
            graph.erase_node(node)
    new = fx.GraphModule(module, graph)
    new.meta.update(module.meta)
    keep_sources(module, new)
    return new

"""The graphs within calls of torch that are rewritten: branches, bodies of loops, and other regions."""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import torch
from torch import fx
from torch._subclasses.fake_tensor import FakeTensor

from gsl.front.fx.bodies import BodyCall, body_call
from gsl.front.fx.effects import opens_region
from gsl.front.fx.groups import is_group
from gsl.front.fx.handle import nodes_in
from gsl.front.fx.values import UNKNOWN, Values, dim_of, propagate
from gsl.spec.meaning import quiet
from gsl.walk import reached

_LOOPS: Final = frozenset(("while_loop", "while_loop_stack_output", "scan", "map_impl"))
_REWRITTEN: Final = _LOOPS | {"cond", "invoke_subgraph", "tag_activation_checkpoint", "wrap"}
"""The operators whose graphs are rewritten. That of an ``associative_scan`` is run on many elements at once: it takes
tensors of other shapes than those for which it was traced."""


@dataclass(frozen=True, slots=True)
class BodyGraph:
    """A graph that higher-order operators run."""

    module: fx.GraphModule
    weights: set[str]
    """The names of the placeholders that are always fed with weights, as they are."""
    values: Values | None = None
    """The values of its nodes in each run, where these lie otherwise in memory than those for which torch traces it."""
    is_of_scan: bool = False
    """True for the graph of a ``scan``: torch keeps what its gradients need, and no result may be among that."""


def regions(module: fx.GraphModule, values: Values, weights: Collection[str] = ()) -> dict[str, BodyGraph]:
    """The graphs that higher-order operators run on some operands, and that may be rewritten, by their paths.

    ``values`` and ``weights`` are those of the graph itself. Groups are none of them.
    """
    found: dict[str, BodyGraph] = {}
    barred: set[str] = set()
    autocast = 0
    for node in module.graph.nodes:
        autocast += opens_region(node)
        call = body_call(node, module) if str(node.target) in _REWRITTEN and not is_group(node) else None
        if call is None:
            continue
        graphs = call.graphs(module)
        laid: Mapping[str, Values | None] | None = dict.fromkeys(graphs)
        if str(node.target) in _LOOPS:
            laid = _as_they_lie(graphs, call, values) if found.keys().isdisjoint(graphs) else None
        if autocast or laid is None:  # within autocast, calls have other types than their operators say
            barred.update(graphs)
            continue
        for path, graph in graphs.items():
            inputs = graph.graph.find_nodes(op="placeholder")[len(call.fed) - len(call.whole) :]
            fed = {p.name for p, value in zip(inputs, call.whole) if getattr(value, "name", None) in weights}
            region = BodyGraph(graph, fed, laid[path], str(node.target) == "scan")
            found.setdefault(path, region).weights.intersection_update(fed)
    return {path: region for path, region in found.items() if path not in barred}


def _as_they_lie(
    graphs: Mapping[str, fx.GraphModule], call: BodyCall, values: Values
) -> Mapping[str, Values | None] | None:
    """The values in the graphs of a loop, as of :class:`BodyGraph`; ``None`` where that is not known of all runs.

    Torch traces these graphs with copies of the first row and of what is carried, which may lie otherwise.
    """
    first = len(call.carried)
    rows = [_row(values.value(operand)) for operand in call.rows]
    laid = {path: _with_rows(graph, first, rows) for path, graph in graphs.items()}
    carried = [[values.value(each) if isinstance(each, fx.Node) else each for each in call.carried]]
    for path, graph in graphs.items():
        known = laid[path] or Values()
        carried.append([known.value(node) for node in graph.graph.find_nodes(op="placeholder")[:first]])
        if first and path == str(call.bodies[-1].target):
            results: Any = graph.graph.output_node().args[0]
            carried.append([known.value(node) if isinstance(node, fx.Node) else node for node in results[:first]])
    places = [list(map(_place, each)) for each in carried]
    is_known = None not in map(_place, rows) and all(None not in each and each == places[0] for each in places)
    return laid if is_known else None


def _row(value: Any) -> Any:
    """The first row of a fake tensor, which is a view of it as each row is; UNKNOWN where there is none."""
    if isinstance(value, FakeTensor):
        with contextlib.suppress(Exception), value.fake_mode, torch.no_grad(), quiet():
            return value[0]
    return UNKNOWN


def _with_rows(graph: fx.GraphModule, first: int, rows: Sequence[Any]) -> Values | None:
    """The values of a graph that takes such rows from that input on; ``None`` where torch traces it with such ones."""
    inputs = [Values().value(node) for node in graph.graph.find_nodes(op="placeholder")]
    traced = [*inputs[first : first + len(rows)], *map(_copied, rows)]
    if list(map(_place, [*rows, *rows])) == list(map(_place, traced)):
        return None
    found = propagate(graph, _in_one_mode([*inputs[:first], *rows, *inputs[first + len(rows) :]]))
    calls = [node for node in graph.graph.nodes if node.op not in ("get_attr", "output")]
    return Values({node: found.get(node, UNKNOWN) for node in calls})


def _in_one_mode(values: Sequence[Any]) -> list[Any]:
    """Values with fake tensors of one mode, which those of a traced loop need not be; UNKNOWN instead of one of another
    mode whose sizes are not numbers."""
    mode = next((value.fake_mode for value in values if isinstance(value, FakeTensor)), None)

    def own(value: Any) -> Any:
        if not isinstance(value, FakeTensor) or mode is None or value.fake_mode is mode:
            return value
        if not all(isinstance(place, int) for place in (*value.shape, *value.stride())):
            return UNKNOWN
        with mode:
            return torch.empty_strided(value.shape, value.stride(), dtype=value.dtype, device=value.device)

    return list(map(own, values))


def _copied(row: Any) -> Any:
    """A row as torch copies it before it traces a graph."""
    if isinstance(row, FakeTensor):
        with row.fake_mode, torch.no_grad():
            return row.clone(memory_format=torch.contiguous_format)
    return row


def _place(value: Any) -> Any:
    """The sizes and strides of a tensor, or a word for a number; ``None`` for what is unknown."""
    if isinstance(value, torch.Tensor) and value.layout == torch.strided:
        return [tuple(map(dim_of, part)) for part in (value.shape, value.stride())]
    return "number" if isinstance(value, (int, float, torch.SymInt, torch.SymBool)) else None


def takes(old: fx.GraphModule, before: Values, new: fx.GraphModule, after: Values) -> bool:
    """True if torch is known to take a rewritten graph in the place of the old one; the values of both are given.

    The outputs have the memory layout that they had, for the caller may rely on it, and give gradients if they did.
    Where torch traces the graph with values that lie otherwise, no ``reshape`` more has to copy: torch would make a
    view of it when it traces it again.
    """
    outputs = [nodes_in([node.args for node in module.graph.find_nodes(op="output")]) for module in (old, new)]
    layouts = [[_layout(values.value(node)) for node in nodes] for nodes, values in zip(outputs, (before, after))]
    if None in layouts[0] or layouts[0] != layouts[1]:
        return False
    if any(_wants_gradient(before.value(one)) and not _gets_gradient(other, after) for one, other in zip(*outputs)):
        return False
    is_as_traced = before.known.keys().isdisjoint(old.graph.find_nodes(op="placeholder"))
    return is_as_traced or _copies(new, after) <= _copies(old, before)


def _layout(value: Any) -> tuple[Any, ...] | None:
    place = _place(value)
    return None if place is None else (getattr(value, "dtype", None), place)


def _wants_gradient(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and value.requires_grad


def _gets_gradient(node: fx.Node, values: Values) -> bool:
    """True if a value is computed from one that requires gradients. Those of new calls do not tell."""
    return any(_wants_gradient(values.value(each)) for each in reached([node], lambda node: node.all_input_nodes))


def _copies(graph: fx.GraphModule, values: Values) -> int:
    """The number of calls of ``reshape`` that copy their operand, by the values of the graph."""
    calls = [node for node in graph.graph.nodes if getattr(node.target, "__name__", node.target) in _RESHAPES]
    return sum(not _is_view(values.value(node.args[0]), values.value(node)) for node in calls)


_RESHAPES: Final = ("reshape", "reshape.default", "reshape_as", "reshape_as.default", "flatten", "flatten.using_ints")


def _is_view(value: Any, result: Any) -> bool:
    if isinstance(value, FakeTensor) and isinstance(result, torch.Tensor):
        with contextlib.suppress(Exception), value.fake_mode, torch.no_grad(), quiet():
            value.view(result.shape)
            return True
    return False

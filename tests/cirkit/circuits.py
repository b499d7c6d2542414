"""Circuits of cirkit as graphs of objects: layers with their inputs, and in each layer the graphs of its parameters."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from cirkit.backend.torch.circuits import TorchCircuit
from cirkit.backend.torch.compiler import TorchCompiler
from cirkit.backend.torch.layers import TorchInputLayer
from cirkit.backend.torch.layers.input import TorchConstantLayer
from cirkit.backend.torch.parameters.parameter import TorchParameter

from gsl import Workload


@dataclass(frozen=True, eq=False)
class Item:
    """A module of cirkit, a layer or a node of a parameter, together with the items that it takes its inputs from."""

    module: Any
    inputs: tuple[Item, ...] = ()


def items(graph: Any) -> list[Item]:
    """The outputs of a circuit or of a parameter's graph, as items."""
    made: dict[Any, Item] = {}
    for module in graph.topological_ordering():
        made[module] = Item(module, tuple(made[below] for below in graph.node_inputs(module)))
    return [made[module] for module in graph.outputs]


def parameter(outputs: Sequence[Item]) -> Workload:
    """The graph of a parameter that ends in these items, as a workload."""
    return Workload.from_nodes(
        outputs,
        operands=lambda item: item.inputs,
        attrs=lambda item: item.module.config,
        op=lambda item: type(item.module),
        rebuild=_parameter_node,
        name="parameter",
    )


def circuit(source: TorchCircuit, compiler: TorchCompiler) -> Workload:
    """A circuit as a workload, whose nodes have their parameters' graphs as attributes."""

    def rebuild(op: Any, operands: Sequence[Item], attrs: Mapping[str, Any], old: Item | None) -> Item:
        if old is not None:
            return Item(old.module, tuple(operands))
        given = {name: torch_parameter(value) if _is_graph(value) else value for name, value in attrs.items()}
        return Item(op(semiring=compiler.semiring, **given), tuple(operands))

    def run(outputs: Sequence[Item], x: Any) -> Any:
        return torch_circuit(outputs, source)(x)

    return Workload.from_nodes(
        items(source),
        operands=lambda item: item.inputs,
        attrs=lambda item: _configuration(item.module),
        op=lambda item: type(item.module),
        rebuild=rebuild,
        run=run,
        name="circuit",
    )


def torch_circuit(outputs: Sequence[Item], like: TorchCircuit) -> TorchCircuit:
    """The circuit of cirkit that ends in these items, over the variables of another one."""
    return TorchCircuit(like.scope, *_parts(outputs), properties=like.properties)


def torch_parameter(graph: Workload) -> TorchParameter:
    """The parameter of cirkit that a workload of one is."""
    return TorchParameter(*_parts(graph.native))


def _parameter_node(op: Any, operands: Sequence[Item], attrs: Mapping[str, Any], old: Item | None) -> Item:
    return Item(op(**attrs) if old is None else old.module, tuple(operands))


def _configuration(layer: Any) -> dict[str, Any]:
    found = {**layer.config, **layer.sub_modules}
    found |= {name: parameter(items(graph)) for name, graph in layer.params.items()}
    if isinstance(layer, TorchInputLayer) and not isinstance(layer, TorchConstantLayer):
        found["scope_idx"] = layer.scope_idx
    return found


def _is_graph(value: Any) -> bool:
    return isinstance(value, Workload)


def _parts(outputs: Sequence[Item]) -> tuple[list[Any], dict[Any, list[Any]], list[Any]]:
    """The modules below some items, operands first, the inputs of each, and the outputs."""
    order: dict[Item, None] = {}
    work = [(item, False) for item in reversed(outputs)]
    while work:
        item, left = work.pop()
        if left:
            order[item] = None
        elif item not in order:
            work.append((item, True))
            work += [(below, False) for below in reversed(item.inputs)]
    modules = [item.module for item in order]
    inputs = {item.module: [below.module for below in item.inputs] for item in order}
    return modules, inputs, [item.module for item in outputs]

"""An exported program as a module with its weights."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any, Final

import torch
from torch import fx
from torch.export import ExportedProgram
from torch.export.graph_signature import ExportGraphSignature, InputKind, InputSpec, OutputKind
from torch.fx._utils import first_call_function_nn_module_stack
from torch.fx.graph_module import _copy_attr
from torch.fx.traceback import NodeSource, NodeSourceAction

from gsl.front.fx.builder import codeless, give_code, set_arguments
from gsl.front.fx.parameters import clone


def unlifted(exported: ExportedProgram) -> fx.GraphModule:
    """What ``exported.module()`` makes, in less than half of the time.

    Torch makes the module of the inputs alone, with its checks of them; weights and calls are put into that. Of a
    program that is none of weights, calls and results only, torch makes the whole.
    """
    if not _is_plain(exported):
        return give_code(_with_graph(exported, copy.copy(exported.graph)).module())
    source = _with_graph(exported, _of_inputs(exported))
    source._graph_signature = ExportGraphSignature(
        [spec for spec in exported.graph_signature.input_specs if spec.kind is InputKind.USER_INPUT], []
    )
    source._state_dict, source._constants = {}, {}
    module = source.module()
    _put_weights(module, exported)
    _put_calls(module, exported)
    return give_code(module)


_WEIGHTS: Final = (InputKind.PARAMETER, InputKind.BUFFER, InputKind.CONSTANT_TENSOR)


def _is_plain(exported: ExportedProgram) -> bool:
    """True for a program as ``torch.export`` makes it, which changes none of its weights and inputs."""
    signature = exported.graph_signature
    return (
        exported.verifiers[0].dialect == "TRAINING"
        and all(spec.kind is InputKind.USER_INPUT or _is_weight(exported, spec) for spec in signature.input_specs)
        and all(spec.kind is OutputKind.USER_OUTPUT for spec in signature.output_specs)
        and all(isinstance(value, torch.Tensor) and not value.requires_grad for value in exported.constants.values())
    )


def _is_weight(exported: ExportedProgram, spec: InputSpec) -> bool:
    if spec.kind not in _WEIGHTS or spec.target is None or "@" in spec.target:
        return False
    kind = torch.nn.Parameter if spec.kind is InputKind.PARAMETER else torch.Tensor
    return isinstance(_value(exported, spec), kind)


def _value(exported: ExportedProgram, spec: InputSpec) -> Any:
    is_constant = spec.kind is InputKind.CONSTANT_TENSOR or spec.persistent is False
    return (exported.constants if is_constant else exported.state_dict).get(str(spec.target))


def _with_graph(exported: ExportedProgram, graph: fx.Graph) -> ExportedProgram:
    """A copy of a program with another graph, which has no code."""
    source, root = copy.copy(exported), clone(exported.graph_module)
    root._graph = codeless(graph)
    source._graph_module = root
    return source


def _of_inputs(exported: ExportedProgram) -> fx.Graph:
    """A graph of the user's inputs alone."""
    old = exported.graph
    graph = fx.Graph(tracer_cls=old._tracer_cls)
    for node, spec in _placeholders(exported):
        if spec.kind is InputKind.USER_INPUT:
            graph.node_copy(node)
    graph.output(())
    graph._codegen = copy.deepcopy(old._codegen)
    return graph


def _placeholders(exported: ExportedProgram) -> Iterator[tuple[fx.Node, InputSpec]]:
    return zip(exported.graph.find_nodes(op="placeholder"), exported.graph_signature.input_specs, strict=True)


def _put_weights(module: fx.GraphModule, exported: ExportedProgram) -> None:
    """Give a module the weights of a program, and the graphs within its calls."""
    constants = dict(exported.constants)
    for spec in exported.graph_signature.input_specs:
        if spec.kind is not InputKind.USER_INPUT:
            *path, name = str(spec.target).split(".")
            constants.pop(str(spec.target), None)
            owner, value = _submodule(module, path), _value(exported, spec)
            if spec.kind is InputKind.BUFFER:
                owner.register_buffer(name, value, persistent=spec.persistent is not False)
            else:
                setattr(owner, name, value)
    for node in exported.graph.find_nodes(op="get_attr"):
        _copy_attr(exported.graph_module, module, str(node.target))
    for target, value in constants.items():
        *path, name = target.split(".")
        owner = _submodule(module, path)
        if not hasattr(owner, name):
            setattr(owner, name, value)


def _submodule(module: torch.nn.Module, path: list[str]) -> torch.nn.Module:
    for name in path:
        inner = module._modules.get(name)
        if inner is None:
            inner = torch.nn.Module()
            module.add_module(name, inner)
        module = inner
    return module


def _put_calls(module: fx.GraphModule, exported: ExportedProgram) -> None:
    """Give a module of inputs the calls and the results of a program."""
    graph, old = module.graph, exported.graph
    end = graph.output_node()
    new: dict[fx.Node, fx.Node] = {old.output_node(): end}
    with graph.inserting_before(end):
        for node in old.nodes:  # first, because they keep their names, and weights get new ones
            if node.op not in ("placeholder", "output"):
                new[node] = graph.create_node(node.op, node.target, (), {}, node.name, node.type)
    first_call = next((made for made in new.values() if made is not end), end)
    places = iter((*graph.find_nodes(op="placeholder"), first_call))
    place = next(places)
    for node, spec in _placeholders(exported):
        if spec.kind is InputKind.USER_INPUT:
            new[node], place = place, next(places)
        else:
            with graph.inserting_before(place):
                new[node] = graph.create_node("get_attr", str(spec.target))
    for node, made in new.items():
        if node.op != "placeholder":
            set_arguments(made, *fx.node.map_arg((node.args, node.kwargs), new.__getitem__))
        made.meta = {**node.meta, "from_node": _origin(node, made)}
    for check in graph.find_nodes(op="call_module"):
        check.meta["nn_module_stack"] = first_call_function_nn_module_stack(old)
        module._modules[check.target] = module._modules.pop(check.target)  # the last one, as torch has it


def _origin(node: fx.Node, made: fx.Node) -> list[NodeSource]:
    """The record of torch that a node was made of another one. It shares the older records, which torch copies."""
    before = node.meta.get("from_node", [])
    origin = _record(node, node.graph, "ExportedProgram.module()", before, NodeSourceAction.CREATE)
    if node.op == made.op != "output":
        return [origin]
    replaced = NodeSourceAction.CREATE, NodeSourceAction.REPLACE
    return [_record(node, made.graph, "ExportedProgram.module().unlift()", [origin], *replaced)]


def _record(
    node: fx.Node, graph: fx.Graph, way: str, before: list[NodeSource], *actions: NodeSourceAction
) -> NodeSource:
    record = NodeSource(None, way, list(actions))
    record.node_info = NodeSource.NodeInfo(node.name, str(node.target), id(graph))
    record.from_node = before
    return record

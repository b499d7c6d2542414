"""Outlined groups as functions of a model, whose metadata tell the name and the attributes of the group."""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence
from typing import Any, Final

import onnx_ir as ir

from gsl.errors import FrontEndError
from gsl.front.onnx.types import NameOf, annotate
from gsl.graph import Node, Type
from gsl.graph.subgraph import Subgraph

DOMAIN: Final = "gsl.groups"
"""The domain of the functions that are groups."""
_NAME: Final = "gsl.name"
_ATTRIBUTES: Final = "gsl.attributes"


def label_of(function: ir.Function | None) -> tuple[str, Mapping[str, Any]] | None:
    """The name and the attributes of the group that a function is; ``None`` if it is none."""
    if function is None or function.domain != DOMAIN or _NAME not in function.metadata_props:
        return None
    attrs = _literal(function.metadata_props.get(_ATTRIBUTES, "{}"))
    known = isinstance(attrs, dict) and all(isinstance(name, str) for name in attrs)
    return (function.metadata_props[_NAME], attrs) if known else None


def _literal(text: str) -> Any:
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError, RecursionError, MemoryError):
        return None


def called(model: ir.Model, function: ir.Function, types: Sequence[Type | None], name_of: NameOf) -> ir.Model:
    """The model of a function's body, called with operands of these types."""
    graph = function.graph.clone()
    for value, type in zip(graph.inputs, types, strict=True):
        annotate(value, type, name_of)
    return ir.Model(graph, ir_version=model.ir_version, functions=list(model.functions.values()))


def check(model: ir.Model, group: Subgraph, attrs: Mapping[str, Any]) -> None:
    """Raise FrontEndError if a model can't have a group with these attributes."""
    if model.ir_version < 10:
        raise FrontEndError(
            f"{group}: a group becomes a function with metadata, which models have from version 10 of the format on; "
            f"this one has version {model.ir_version}"
        )
    for name, value in attrs.items():
        if _literal(repr(value)) != value:
            raise FrontEndError(
                f"{group}: the attribute {name}={value!r} of a group must be made of finite numbers, strings, None and "
                "tuples"
            )


def draft(model: ir.Model, inputs: Sequence[ir.Value], outputs: Sequence[Type | None], name_of: NameOf) -> ir.Model:
    """A model with these inputs, whose outputs are nodes that stand for what is to be written."""
    ends = [ir.node("Constant", [], {"value_float": 0.0}, name=f"end_{place}") for place in range(len(outputs))]
    for place, (end, type) in enumerate(zip(ends, outputs)):
        end.outputs[0].name = f"result_{place}"
        annotate(end.outputs[0], type, name_of)
    results = [end.outputs[0] for end in ends]
    graph = ir.Graph(inputs, results, nodes=ends, opset_imports=dict(model.opset_imports), name="group")
    return ir.Model(graph, ir_version=model.ir_version)


def function_of(model: ir.Model, name: str, group: Node) -> ir.Function:
    """The function of that name with the main graph of a model as its body, for the call of a group."""
    graph = model.graph
    for value in graph.inputs:  # those of a function have no types in a file: the operands of a call tell them
        value.type = value.shape = None
    write_constants(graph, tuple(graph.initializers.values()))
    graph.metadata_props.update({_NAME: str(group.op), _ATTRIBUTES: repr(dict(group.attrs))})
    return ir.Function(DOMAIN, name, graph=graph, attributes=())


def callers_first(functions: Mapping[Any, ir.Function]) -> list[Any]:
    """The names of functions, those that call others before these. FrontEndError if one calls itself, be it by others.
    """
    order: list[Any] = []
    below: dict[Any, list[Any]] = {}
    work = [(key, False) for key in functions]
    while work:
        key, is_done = work.pop()
        if is_done:
            order.append(key)
        elif key not in below:
            calls = dict.fromkeys([node.op_identifier() for node in functions[key].all_nodes()])
            below[key] = [other for other in calls if other in functions]
            work += [(key, True), *((other, False) for other in below[key])]
    places = {key: place for place, key in enumerate(order)}
    for key in order:
        if any(places[other] >= places[key] for other in below[key]):
            raise FrontEndError(f"the function {'::'.join(filter(None, key))} of the model calls itself")
    return order[::-1]


def write_constants(graph: ir.Graph, initializers: Sequence[ir.Value]) -> None:
    """Let initialisers of a graph be nodes: functions have none, and before version 4 of the format all are inputs."""
    for value in initializers:
        del graph.initializers[str(value.name)]
        tensor = ir.AttrTensor("value", value.const_value)  # type: ignore[arg-type]
        graph.insert_before(graph[0], ir.Node("", "Constant", [], [tensor], outputs=[value]))


def sweep(model: ir.Model) -> None:
    """Remove the functions of groups that nothing calls any more."""
    own = [key for key, function in model.functions.items() if label_of(function) is not None]
    if own:
        bodies = [model.graph, *(function.graph for function in model.functions.values())]
        used = {node.op_identifier() for body in bodies for node in body.all_nodes()}
        for key in own:
            if key not in used:
                del model.functions[key]

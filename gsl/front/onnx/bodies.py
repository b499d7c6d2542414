"""The graphs of ``If``, ``Loop`` and ``Scan`` as models of their own, and back in their places."""

from __future__ import annotations

from collections.abc import Callable, Set

import onnx_ir as ir

from gsl.front.onnx import opaque
from gsl.front.onnx.infer import declared_types
from gsl.front.onnx.store import names_of
from gsl.front.onnx.types import const_tensor


def with_bodies(model: ir.Model, change: Callable[[str, ir.Model, Set[str]], ir.Model]) -> ir.Model:
    """The model, in which each graph of a node is what ``change`` makes of it: told its name, a model of it, and the
    names of all values. The very same model if none changes."""
    places = [
        (place, attr.name, attr.as_graph()) for place, node in enumerate(model.graph)
        for attr in (node.attributes.values() if node.attributes else ()) if attr.type == ir.AttributeType.GRAPH and not attr.is_ref()
    ]  # fmt: skip
    if not places:
        return model
    taken, nodes, copy = names_of(model.graph), list(model.graph), None
    for place, name, body in places:
        alone = _alone(model, body, model if copy is None else copy)
        new = change(f"{nodes[place].name or nodes[place].outputs[0].name}.{name}", alone, taken)
        if new is not alone:
            copy = model.clone() if copy is None else copy
            node = list(copy.graph)[place]
            node.attributes[name] = ir.AttrGraph(name, _inner(new, body, copy))
            for domain, version in new.opset_imports.items():
                copy.opset_imports.setdefault(domain, version)
            copy.functions.update({key: each for key, each in new.functions.items() if key not in copy.functions})
    return model if copy is None else copy


def _alone(model: ir.Model, body: ir.Graph, around: ir.Model) -> ir.Model:
    """A model of a graph, with the functions of what is around it.

    Values from around it are initialisers if their elements are known, and inputs otherwise.
    """
    graph = body.clone(allow_outer_scope_values=True)
    instead: dict[ir.Value, ir.Value] = {}
    for value in opaque.captured([graph]):
        tensor = None if value.is_graph_input() else const_tensor(value)
        if tensor is not None and value.producer() is not None:
            tensor = ir.Tensor(tensor.numpy(), dtype=tensor.dtype, name=value.name)  # an initialiser has a name
        type, shape = value.type, value.shape
        if type is None or shape is None:
            type, shape = declared_types(model).get(value.name or "", (type, shape))
        instead[value] = ir.Value(name=value.name, type=type, shape=shape, const_value=tensor)
        if tensor is None:
            graph.inputs.append(instead[value])
        else:
            graph.register_initializer(instead[value])
    opaque.replace(graph, instead)
    graph.opset_imports.update(model.opset_imports)
    functions = [function.clone() for function in around.functions.values()]
    return ir.Model(graph, ir_version=model.ir_version, functions=functions)


def _inner(new: ir.Model, body: ir.Graph, outer: ir.Model) -> ir.Graph:
    """The graph of such a model, in which the values from around it are those of another model again."""
    graph = new.graph.clone()
    known = {value.name: value for value in (*outer.graph.inputs, *outer.graph.initializers.values())}
    known.update({value.name: value for node in outer.graph for value in node.outputs})
    taken = {value.name for value in opaque.captured([body])}
    fed = list(graph.inputs)[len(body.inputs):]
    written = [value for value in graph.initializers.values() if value.name in taken]
    opaque.replace(graph, {value: known[value.name] for value in (*fed, *written)})
    del graph.inputs[len(body.inputs):]
    for value in written:
        graph.initializers.pop(str(value.name))
    return graph

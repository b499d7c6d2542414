"""The graphs of ``If``, ``Loop`` and ``Scan``, and the functions of a model, as models of their own, and back in their
places."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from functools import cache, partial
from typing import Any

import onnx_ir as ir

from gsl.front.onnx import groups, opaque
from gsl.front.onnx.changes import names_of
from gsl.front.onnx.copying import beside
from gsl.front.onnx.infer import declared_types, is_known
from gsl.front.onnx.load import OnnxLoader
from gsl.front.onnx.types import annotate, const_tensor
from gsl.graph import TensorType, Type
from gsl.graph.types import unknown_size
from gsl.pause import uninterrupted

Change = Callable[[str, ir.Model, Set[str]], ir.Model]
"""What becomes of a graph, told its name, a model of it, and the names around it."""


def with_bodies(model: ir.Model, change: Change, *, in_place: bool = False) -> ir.Model:
    """The model, in which each graph of a node is what ``change`` makes of it: told its name, a model of it, and the
    names of all values. The very same model if none changes, or if it is changed itself."""
    places = [
        (place, attr.name, attr.as_graph()) for place, node in enumerate(model.graph) if node.attributes.data
        for attr in node.attributes.data.values() if attr.type == ir.AttributeType.GRAPH and not attr.is_ref()
    ]  # fmt: skip
    if not places:
        return model
    taken, nodes, copy = names_of(model.graph), list(model.graph), model if in_place else None
    types = cache(partial(declared_types, model))
    for place, name, body in places:
        alone = _alone(model, body, model if copy is None else copy, types)
        new = change(f"{nodes[place].name or nodes[place].outputs[0].name}.{name}", alone, taken)
        if new is not alone:
            copy = model.clone() if copy is None else copy
            node = nodes[place] if in_place else list(copy.graph)[place]
            _put(copy, node, ir.AttrGraph(name, _inner(new, body, copy)), new)
    return model if copy is None else copy


@uninterrupted
def _put(model: ir.Model, node: ir.Node, attr: ir.Attr, part: ir.Model) -> None:
    """Let a node have another graph, which is that of a part of its model."""
    for old in node.attributes[attr.name].as_graph().all_nodes():
        opaque.detach(old)  # so that it uses no value from around it any more
    node.attributes.add(attr)
    _take_over(model, part)


def _take_over(model: ir.Model, part: ir.Model) -> None:
    """Let a model have the versions and the functions that a part of it has more."""
    for domain, version in part.opset_imports.items():
        model.opset_imports.setdefault(domain, version)
    model.functions.update({key: each for key, each in part.functions.items() if key not in model.functions})


def _alone(
    model: ir.Model, body: ir.Graph, around: ir.Model, types: Callable[[], Mapping[str, tuple[Any, Any]]]
) -> ir.Model:  # fmt: skip
    """A model of a graph, with the functions of what is around it; ``types`` tells those that the model does not.

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
            type, shape = types().get(value.name or "", (type, shape))
        instead[value] = ir.Value(name=value.name, type=type, shape=shape, const_value=tensor)
        if tensor is None:
            graph.inputs.append(instead[value])
        else:
            graph.register_initializer(instead[value])
    opaque.replace(graph, instead)
    graph.opset_imports.update(model.opset_imports)
    return beside(around, graph)


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


# ---------------------------------------------------------------- functions

CallTypes = dict[Any, list[list[Type | None]]]
"""The types of the operands of each call of the functions of some names."""


def with_functions(model: ir.Model, change: Change, *, in_place: bool = False) -> ir.Model:
    """The model, in which the body of each function but groups is what ``change`` makes of it. The very same model if
    none changes, or if it is changed itself.

    A body stands for all calls, so its inputs have the types on which they agree; without any, it stays as it is.
    """
    bodies = {key: each for key, each in model.functions.items() if groups.label_of(each) is None}
    calls: CallTypes = {key: [] for key in bodies}
    names: dict[Any, str] = {}
    if bodies:
        _note_calls(model, calls, names)
    copy, taken = model, {function.name for function in model.functions.values()}
    for key in groups.callers_first(bodies):
        function = bodies[key]
        alone = _function_alone(copy, function, calls[key], names)
        if alone is None:
            continue
        new = change("::".join(part for part in key if part), alone, taken)
        _note_calls(new, calls, names)
        if new is not alone:
            copy = model.clone() if copy is model and not in_place else copy
            _put_function(copy, key, _function_of(new, function), new)
    return copy


@uninterrupted
def _put_function(model: ir.Model, key: Any, function: ir.Function, part: ir.Model) -> None:
    """Let a model have another function, whose body is that of a part of it."""
    model.functions[key] = function
    _take_over(model, part)
    _annotate_calls(model, key, part)


def _note_calls(model: ir.Model, calls: CallTypes, names: dict[Any, str]) -> None:
    """Note the types of the operands of each call of a function, and the names of symbolic sizes; in graphs of nodes,
    the types that are declared there."""
    if not any(node.op_identifier() in calls for node in model.graph.all_nodes()):
        return
    loader = OnnxLoader(model)
    loader.load()
    names.update(loader.types.names)
    for node in model.graph.all_nodes():
        if node.op_identifier() in calls:
            types = [None if value is None else loader.type_of(value) for value in node.inputs]
            calls[node.op_identifier()].append(types)


def _annotate_calls(model: ir.Model, key: Any, body: ir.Model) -> None:
    """Let the calls of a function have the types of its results where ONNX can't infer them any more."""
    if all(is_known(body, opaque.target_of(node)) for node in body.graph.all_nodes()):
        return
    loader = OnnxLoader(body)
    loader.load()
    types, names = list(map(loader.type_of, body.graph.outputs)), loader.types.names
    for part in (model.graph, *(function.graph for function in model.functions.values())):
        for node in part.all_nodes():
            for value, type in zip(node.outputs, types) if node.op_identifier() == key else ():
                if value.type is None:
                    annotate(value, type, names.get)


def _agreed(types: Iterable[Type | None]) -> Type | None:
    """The type that has what all types have in common; ``None`` if that is not a tensor of known rank and dtype."""
    first, *others = types
    for other in others:
        if not (isinstance(first, TensorType) and isinstance(other, TensorType)):
            return None
        if (first.dtype, first.ndim) != (other.dtype, other.ndim):
            return None
        shape = [a if a == b else unknown_size() for a, b in zip(first.shape, other.shape)]
        first = TensorType(tuple(shape), first.dtype)
    return first if isinstance(first, TensorType) else None


def _function_alone(
    model: ir.Model, function: ir.Function, calls: Sequence[Sequence[Type | None]], names: Mapping[Any, str]
) -> ir.Model | None:
    """A model of the body of a function that is called so; ``None`` if nothing is known of an operand."""
    if not calls or any(len(call) != len(function.inputs) for call in calls):
        return None
    types = list(map(_agreed, zip(*calls)))
    return None if None in types else groups.called(model, function, types, names.get)


def _function_of(new: ir.Model, function: ir.Function) -> ir.Function:
    """The function whose body is that of a model: without the types that only its calls tell."""
    graph, known = new.graph.clone(), names_of(function.graph)
    for value, old in zip(graph.inputs, function.inputs):
        value.type, value.shape = old.type, old.shape
    groups.write_constants(graph, tuple(graph.initializers.values()))
    for node in graph.all_nodes():
        for value in node.outputs:
            if value.name not in known:
                value.type = value.shape = None
    return ir.Function(
        function.domain, function.name, function.overload, graph=graph, attributes=function.attributes.values()
    )

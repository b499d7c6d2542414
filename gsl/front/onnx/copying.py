"""Copies of models: all that a rewrite may change is new, tensors and attributes are shared."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Any

import onnx_ir as ir


class Copies(dict[ir.Value, ir.Value]):
    """The values of a copy, by those of the model; each is made when it is asked for."""

    def __missing__(self, old: ir.Value) -> ir.Value:
        new = self[old] = _value(old)
        return new


NodesByUser = Mapping[ir.Node | None, Sequence[ir.Node]]
"""New nodes by the nodes of the model in front of which they stand; those by ``None`` stand at the end."""


def copied(
    model: ir.Model, values: Copies | None = None, kept: Collection[ir.Node] | None = None,
    placed: NodesByUser = MappingProxyType({}), rewritten: Mapping[ir.Node, ir.Node] = MappingProxyType({}),
) -> ir.Model:  # fmt: skip
    """A copy of a model, of the nodes ``kept`` of its main graph alone, with new ones among them, and with others in
    the places of those that are ``rewritten``.

    A weight that nothing uses any more is left out. ``values`` gets the values of the copy. ``Model.clone`` copies a
    whole model; it takes about 1.4 times as long, and does not tell which value became which.
    """
    values = Copies() if values is None else values
    return ir.Model(
        _graph(model.graph, values, kept, placed, rewritten),
        ir_version=model.ir_version,
        producer_name=model.producer_name,
        producer_version=model.producer_version,
        domain=model.domain,
        model_version=model.model_version,
        doc_string=model.doc_string,
        functions=[function.clone() for function in model.functions.values()],
        metadata_props=dict(model.metadata_props),
        device_configurations=model.device_configurations,
    )


def _graph(
    graph: ir.Graph, values: Copies, kept: Collection[ir.Node] | None = None,
    placed: NodesByUser = MappingProxyType({}), rewritten: Mapping[ir.Node, ir.Node] = MappingProxyType({}),
) -> ir.Graph:  # fmt: skip
    nodes: list[ir.Node] = []
    for node in graph:
        nodes += placed.get(node, ())
        if node in rewritten:
            nodes.append(rewritten[node])
        elif kept is None or node in kept:
            nodes.append(_node(node, values))
    nodes += placed.get(None, ())
    weights = graph.initializers.values()
    new = ir.Graph(
        [values[value] for value in graph.inputs],
        [values[value] for value in graph.outputs],
        nodes=nodes,
        initializers=[values[value] for value in weights if value in values or not value.uses()],
        doc_string=graph.doc_string,
        opset_imports=dict(graph.opset_imports),
        name=graph.name,
        metadata_props=props(graph),
    )
    keep_meta(graph, new)
    return new


def _value(value: ir.Value) -> ir.Value:
    shape = value.shape
    new = ir.Value(
        name=value.name, shape=None if shape is None else shape.copy(), type=value.type, doc_string=value.doc_string,
        const_value=value.const_value, metadata_props=props(value),
    )  # fmt: skip
    keep_meta(value, new)
    return new


def _node(node: ir.Node, values: Copies) -> ir.Node:
    attributes = node.attributes
    new = ir.Node(
        node.domain, node.op_type, [None if value is None else values[value] for value in node.inputs],
        [_attribute(attr, values) for attr in attributes.values()] if attributes else (), overload=node.overload,
        outputs=[values[value] for value in node.outputs], version=node.version, name=node.name,
        doc_string=node.doc_string, metadata_props=props(node),
    )  # fmt: skip
    keep_meta(node, new)
    if node.device_configurations:
        new.device_configurations = _configurations(node.device_configurations, values)
    return new


def _attribute(attr: ir.Attr, values: Copies) -> ir.Attr:
    if attr.is_ref() or attr.type not in (ir.AttributeType.GRAPH, ir.AttributeType.GRAPHS):
        return attr
    graphs = [_graph(graph, values) for graph in attr.as_graphs()] if attr.type == ir.AttributeType.GRAPHS else None
    value: Any = _graph(attr.as_graph(), values) if graphs is None else graphs
    return ir.Attr(attr.name, attr.type, value, doc_string=attr.doc_string)


def _configurations(given: Iterable[Any], values: Mapping[Any, ir.Value]) -> tuple[Any, ...]:
    """How a node lies on devices: what is said of its values is said of their copies."""
    return tuple([
        replace(each, sharding_specs=tuple([
            replace(spec, value=values.get(spec.value, spec.value)) for spec in each.sharding_specs
        ]))
        for each in given
    ])  # fmt: skip


def props(old: Any) -> dict[str, str] | None:
    """What is said of something in the model, for its copy."""
    known = old._metadata_props  # the property would make a dictionary where there is none
    return dict(known) if known else None


def keep_meta(old: Any, new: Any) -> None:
    """Let a copy have what other passes have noted about the original, which is not saved."""
    known = old._metadata  # the property would make a store where there is none
    if known:
        for name, value in known.items():
            new.meta[name] = value
            if not known.is_valid(name):
                new.meta.invalidate(name)

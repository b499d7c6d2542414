"""Writes outlined groups: the graph of a group, and its call."""

from __future__ import annotations

import operator
import re
from typing import TYPE_CHECKING, Any

import torch
from torch import fx

from gsl.errors import FrontEndError
from gsl.front.fx.groups import INVOKE, label
from gsl.front.fx.parameters import ModuleParameterStore
from gsl.front.fx.plan import is_written, plan_anew
from gsl.graph import CONST, INPUT, TUPLE, Node
from gsl.graph.subgraph import Subgraph

if TYPE_CHECKING:
    from gsl.front.fx.write import FxWriter


def write_group(outer: FxWriter, node: Node) -> Any:
    """Write the call of a new group, and its graph: the native value of the call, or a tuple of them."""
    assert isinstance(node.op, Subgraph)
    operands = tuple([outer.value(operand) for operand in node.operands])
    module, values = _module(outer, node, operands)
    path = outer.parameters.add_graph(module, _path(node.op.name))
    if outer.dialect == "torch":
        call = outer.create("call_module", path, operands, {}, node.name, node)
        outer.fakes.set(call, values[0] if len(values) == 1 else values)
    else:
        reference = outer.add("get_attr", path, (), {}, outer.name("", "get_attr", path))
        call = outer.create("call_function", INVOKE, (reference, path, *operands), {}, node.name, node)
        outer.fakes.set(call, values)
    call.meta["custom"] = {**call.meta.get("custom", {}), **label(node)}
    if outer.dialect == "torch":
        return call
    fields = []
    for index, value in enumerate(values):
        field = outer.create("call_function", operator.getitem, (call, index), {}, "", node)
        outer.fakes.set(field, value)
        fields.append(field)
    return fields[0] if len(fields) == 1 else tuple(fields)


def _module(outer: FxWriter, node: Node, operands: tuple[Any, ...]) -> tuple[fx.GraphModule, tuple[Any, ...]]:
    """The graph of a group, all of its nodes written anew, and the fake values of its outputs."""
    assert isinstance(node.op, Subgraph)
    body = node.op.body
    results: dict[Node, Any] = {}

    def value(view: Node) -> Any:
        if view.op == TUPLE:
            return tuple([value(operand) for operand in view.operands])
        return view.attrs["value"] if view.op == CONST else results[view]

    parameters = ModuleParameterStore(fx.GraphModule(torch.nn.Module(), fx.Graph(), class_name=_path(node.op.name)))
    inner = outer.inner(value, parameters)
    graph = inner.builder.graph
    for parameter, operand in zip([node for node in body.nodes if node.op == INPUT], operands):
        if not isinstance(operand, fx.Node):
            raise FrontEndError(f"{node.name}: the operand {operand!r} of a group is no tensor")
        results[parameter] = graph.placeholder(inner.name(parameter.name))
        inner.fakes.set(results[parameter], outer.fakes.values.value(operand))
        inner.sizes.note((results[parameter],))
    plan = plan_anew(body)
    for view in body.nodes:
        if is_written(view, plan):
            results[view] = inner.write(view, plan.joined.get(view))
    outputs = tuple([value(output) for output in body.outputs])
    graph.output(outputs[0] if len(outputs) == 1 and outer.dialect == "torch" else outputs)
    graph.lint()
    module = parameters.finish(graph)
    module.recompile()
    return module, tuple([inner.fakes.values.value(output) for output in outputs])


def _path(name: str) -> str:
    """The name of a group as that of a submodule."""
    text = re.sub(r"\W+", "_", name)
    return f"_{text}" if text[:1].isdigit() else text

"""New calls in graphs that inductor compiles, in operators that it takes: it decomposes others before its passes."""

from __future__ import annotations

import operator
from typing import Any

import torch
import torch.utils._pytree as pytree
from torch import fx
from torch._ops import OpOverload

from gsl.errors import FrontEndError
from gsl.front.fx.handle import RULE
from gsl.front.fx.write import INHERITED


def decompose(graph: fx.Graph) -> None:
    """Decompose the calls that rules made in a graph of overloads with fake values, as inductor did with the others."""
    from torch._inductor.decomposition import select_decomp_table

    table = select_decomp_table()
    for node in list(graph.nodes):
        target = node.target
        if RULE in node.meta and isinstance(target, OpOverload) and (target in table or _is_composite(target)):
            _inline(graph, node, _traced(node, table))
    graph.lint()


def _is_composite(target: OpOverload) -> bool:
    """True if an overload is composed of other operators, and is not an operator of its own."""
    return bool(target._can_decompose())


def _traced(node: fx.Node, table: Any) -> fx.Graph:
    """The call as a graph of its own, decomposed, whose placeholders are the inputs of the node in order."""
    from torch.fx.experimental.proxy_tensor import make_fx

    inputs = node.all_input_nodes
    target: Any = node.target

    def call(*values: Any) -> Any:
        known = dict(zip(inputs, values))
        args, kwargs = fx.node.map_arg((node.args, node.kwargs), known.__getitem__)
        return target(*args, **kwargs)

    values = [item.meta["val"] for item in inputs]
    # A call that creates a tensor has no operands.
    fakes = pytree.tree_leaves([values, node.meta["val"]])
    mode = next((value.fake_mode for value in fakes if isinstance(value, torch._subclasses.FakeTensor)), None)
    if mode is None:
        raise FrontEndError(f"{node.format_node()}: no fake value of an operand tells how to decompose the call")
    with torch.no_grad(), mode:
        graph: fx.Graph = make_fx(call, decomposition_table=table)(*values).graph
    return graph


def _inline(graph: fx.Graph, node: fx.Node, traced: fx.Graph) -> None:
    """Put the nodes of the traced graph in the place of a node."""
    copies: dict[fx.Node, Any] = dict(zip(traced.find_nodes(op="placeholder"), node.all_input_nodes))
    inherited = {key: node.meta[key] for key in (*INHERITED, RULE) if key in node.meta}
    result: Any = None
    with graph.inserting_before(node):
        for part in traced.nodes:
            if part.op == "output":
                result = fx.node.map_arg(part.args[0], copies.__getitem__)
            elif part.op == "call_function":
                copies[part] = graph.node_copy(part, copies.__getitem__)
                copies[part].meta.update(inherited)
            elif part.op != "placeholder":
                raise FrontEndError(f"{node.format_node()}: decomposes to a {part.op}, which has no place in the graph")
    if isinstance(result, fx.Node):
        node.replace_all_uses_with(result)
    else:
        for user in list(node.users):
            if user.target is not operator.getitem:
                raise FrontEndError(f"{user.format_node()}: uses a tuple as a whole")
            user.replace_all_uses_with(result[user.args[1]])
            graph.erase_node(user)
    graph.erase_node(node)

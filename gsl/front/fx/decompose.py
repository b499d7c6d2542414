"""New calls, decomposed into operators that inductor takes."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any

import torch
import torch.utils._pytree as pytree
from torch import fx
from torch._ops import OpOverload

from gsl.errors import FrontEndError
from gsl.front.fx.callers import is_compiled, is_for_autograd
from gsl.front.fx.handle import RULE
from gsl.front.fx.write import INHERITED

Decompositions = Mapping[Any, Callable[..., Any]]
"""A table as torch has them: by its overload, the function of which a call is made."""


def decompositions_of(module: fx.GraphModule) -> Decompositions | None:
    """The table by which torch has decomposed the calls of a graph, as far as that can be told; ``None`` for a graph of
    which nothing is decomposed.

    Graphs of ``torch.compile`` are for inductor. In others for autograd, of which torch does not tell the table, only
    calls that autograd never sees are decomposed: those that are composed of others.
    """
    if is_compiled(module):
        from torch._inductor.decomposition import select_decomp_table

        table: Decompositions = select_decomp_table()
        return table
    return {} if is_for_autograd(module) else None


Note = Callable[[Callable[[], object]], object]
"""Takes a function that undoes a change."""


def decompose(nodes: Iterable[fx.Node], table: Decompositions, note: Note) -> list[fx.Node]:
    """Decompose new nodes of a graph of overloads with fake values: those of the table, and those that are composed of
    others. The nodes that nothing uses any more.

    Graphs as dynamo makes them are left as they are; they are decomposed later.
    """
    nodes = list(nodes)
    if not any("val" in node.meta for node in nodes):
        return []
    found = [node for node in nodes if isinstance(target := node.target, OpOverload)
             and (target in table or target._can_decompose())]  # fmt: skip
    return [gone for node in found for gone in _inline(node, _traced(node, table), note)]


def _traced(node: fx.Node, table: Any) -> fx.Graph:
    """The call as a graph of its own, decomposed, whose placeholders are the inputs of the node in order."""
    from torch._dispatch.python import enable_python_dispatcher
    from torch.fx.experimental.proxy_tensor import make_fx

    inputs = node.all_input_nodes
    target: Any = node.target

    def call(*values: Any) -> Any:
        known = dict(zip(inputs, values))
        args, kwargs = fx.node.map_arg((node.args, node.kwargs), known.__getitem__)
        return target(*args, **kwargs)

    values = _apart([item.meta["val"] for item in inputs])
    # A call that creates a tensor has no operands.
    fakes = pytree.tree_leaves([values, node.meta["val"]])
    mode = next((value.fake_mode for value in fakes if isinstance(value, torch._subclasses.FakeTensor)), None)
    if mode is None:
        raise FrontEndError(f"{node.format_node()}: no fake value of an operand tells how to decompose the call")
    try:
        with torch.no_grad(), mode, enable_python_dispatcher():  # as torch traces for autograd
            graph: fx.Graph = make_fx(call, decomposition_table=table)(*values).graph
    except Exception as error:
        raise FrontEndError(f"{node.format_node()}: can't be decomposed: {type(error).__name__}: {error}") from error
    return graph


def _apart(values: list[Any]) -> list[Any]:
    """Values of nodes, of which no two are one object: a trace would take them for one node."""
    found: list[Any] = []
    for value in values:
        is_known = isinstance(value, torch.Tensor) and any(value is other for other in found)
        found.append(value.detach() if is_known else value)
    return found


def _inline(node: fx.Node, traced: fx.Graph, note: Note) -> list[fx.Node]:
    """Put the nodes of the traced graph in the place of a node, and of those that read its fields; these."""
    graph = node.graph
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
        _replace(node, result, note)
        return [node]
    fields = list(node.users)
    for field in fields:
        if field.target is not operator.getitem:
            raise FrontEndError(f"{field.format_node()}: uses a tuple as a whole")
        _replace(field, result[field.args[1]], note)
    return [node, *fields]


def _replace(old: fx.Node, new: fx.Node, note: Note) -> None:
    """Let the users of a node use another one."""
    for user in old.users:
        note(partial(user._update_args_kwargs, user.args, user.kwargs))
    old.replace_all_uses_with(new)

"""Parameter folding: computing ahead what depends on weights only."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from gsl.graph import CONST, GETITEM, PARAM, TUPLE, Graph, Node, op_name
from gsl.graph.splice import Replacement, Splicer, new_node


def fold(graph: Graph, evaluate: Callable[[Node, Sequence[Any]], Any]) -> int:
    """Replace the calls made by rewrites that depend on weights and literals only by parameters with their values.

    Changes the graph; returns how many calls went. What a rewrite did not make stays as it is, and no tensor is
    changed, so tied weights are safe.
    """
    known: dict[Node, Any] = {}
    weighty: set[Node] = set()
    folded: list[Node] = []
    for node in graph.nodes:
        if node.op in (PARAM, CONST):
            known[node] = node.attrs["value"]
            if node.op == PARAM or hasattr(node.attrs["value"], "shape"):
                weighty.add(node)
        elif _foldable(node) and all(operand in known for operand in node.operands):
            values = [known[operand] for operand in node.operands]
            known[node] = _value(node, values, evaluate)
            if any(operand in weighty for operand in node.operands):
                weighty.add(node)
            if node.op not in (TUPLE, GETITEM):
                folded.append(node)
    splicer = Splicer(graph)
    for node in folded:
        if node in weighty and _needed(node, known, graph) and not isinstance(known[node], tuple):
            assert node.origin is not None
            param = new_node(Node(PARAM, (), {"value": known[node]}, node.type, name=_name(node)), node.origin)
            splicer.apply(Replacement([node], [param]), [node])
    splicer.finish()
    return len(set(folded) - set(graph.nodes))


def _foldable(node: Node) -> bool:
    return node.origin is not None and node.effect is None and node.op != "input" and not node.deps


def _value(node: Node, operands: Sequence[Any], evaluate: Callable[[Node, Sequence[Any]], Any]) -> Any:
    if node.op == TUPLE:
        return tuple(operands)
    if node.op == GETITEM:
        return operands[0][node.attrs["index"]]
    return evaluate(node, operands)


def _needed(node: Node, known: dict[Node, Any], graph: Graph) -> bool:
    """Whether something that is not folded itself uses the node."""
    return node in graph.outputs or any(
        user not in known or (user.op in (TUPLE, GETITEM) and _needed(user, known, graph)) for user in node.users
    )


def _name(node: Node) -> str:
    """A name that tells from which weights the value was computed."""
    work, names = [node], dict[str, None]()
    while work:
        part = work.pop()
        if part.op == PARAM:
            names[part.name] = None
        work.extend(reversed(part.operands))
    first = next(iter(names), "constant")
    return f"{first}_{op_name(node.op).split('.')[-1]}"

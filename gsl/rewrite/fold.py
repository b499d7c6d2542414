"""Parameter folding: computing ahead what depends on weights only."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from gsl.errors import GSLError, RewriteError
from gsl.graph import CONST, GETITEM, INPUT, PARAM, TUPLE, Graph, Node, TupleType, op_name
from gsl.graph.splice import Replacement, Splicer, new_node
from gsl.graph.subgraph import Subgraph
from gsl.rewrite.effects import changed
from gsl.spec.symbolic import has_symbols

Evaluate = Callable[[Node, Sequence[Any]], Any]


def fold(graph: Graph, evaluate: Evaluate, roots: dict[Node, str] | None = None) -> int:
    """Replace the calls made by rewrites that depend on weights and literals only by parameters with their values.

    Changes the graph; returns how many calls went. What a rewrite did not make stays as it is, and no tensor is
    changed, so tied weights are safe. A weight that the program itself changes is not known.

    ``roots``, handed in again each time that a graph is folded, keeps for every weight made here the name of the one
    that it was computed from first, so that names do not grow.
    """
    roots = {} if roots is None else roots
    known = _known(graph)
    wanted = _wanted(graph, known)
    values = _values(graph, wanted, evaluate)
    splicer = Splicer(graph)
    for node in wanted:
        assert node.origin is not None
        root = _root(node, roots)
        name = f"{root}_{op_name(node.op).rpartition('.')[2]}"
        param = new_node(Node(PARAM, (), {"value": values[node]}, node.type, name=name), node.origin)
        roots[param] = root
        splicer.apply(Replacement([node], [param]), [node])
    splicer.finish()
    return sum(node.op not in (TUPLE, GETITEM, PARAM, CONST) for node in splicer.dead)


def _known(graph: Graph) -> dict[Node, bool]:
    """The nodes whose values can be computed, and for each whether it depends on a weight or a literal tensor."""
    unsteady = changed(graph)
    known: dict[Node, bool] = {}
    for node in graph.nodes:
        if node.op in (PARAM, CONST):
            if node not in unsteady:
                known[node] = node.op == PARAM or hasattr(node.attrs["value"], "shape")
        elif _foldable(node) and all(operand in known for operand in node.operands):
            known[node] = any(known[operand] for operand in node.operands)
    return known


def _foldable(node: Node) -> bool:
    made = node.origin is not None and node.effect is None and not node.deps
    return made and node.op != INPUT and not isinstance(node.op, Subgraph) and not has_symbols(dict(node.attrs))


def _wanted(graph: Graph, known: dict[Node, bool]) -> list[Node]:
    """The known nodes that something unknown uses: calls, or the fields of what has several results."""
    outputs, needed = set(graph.outputs), set[Node]()
    for node in reversed(graph.nodes):
        if known.get(node) and (
            node in outputs or any(user not in known or (_passes(user) and user in needed) for user in node.users)
        ):
            needed.add(node)
    return [node for node in graph.nodes if node in needed and node.op not in (PARAM, CONST) and not _passes(node)]


def _passes(node: Node) -> bool:
    """Whether a node has several values, so that no parameter can stand for it: its parts must."""
    return node.op == TUPLE or isinstance(node.type, TupleType)


def _values(graph: Graph, wanted: Sequence[Node], evaluate: Evaluate) -> dict[Node, Any]:
    """The values of the wanted nodes, and of what they are computed from."""
    values: dict[Node, Any] = {}
    stack = [(node, iter(node.operands)) for node in reversed(wanted)]
    while stack:
        node, operands = stack[-1]
        if node in values:
            stack.pop()
            continue
        for operand in operands:
            if operand not in values:
                stack.append((operand, iter(operand.operands)))
                break
        else:
            stack.pop()
            values[node] = _value(node, [values[operand] for operand in node.operands], evaluate)
    return values


def _value(node: Node, operands: Sequence[Any], evaluate: Evaluate) -> Any:
    if node.op in (PARAM, CONST):
        return node.attrs["value"]
    if node.op == TUPLE:
        return tuple(operands)
    if node.op == GETITEM:
        return operands[0][node.attrs["index"]]
    try:
        return evaluate(node, operands)
    except GSLError:
        raise
    except Exception as error:
        rule = "" if node.origin is None else f"{node.origin.rule}: "
        raise RewriteError(
            f"{rule}%{node.name}, which depends on weights only, can't be computed: {type(error).__name__}: {error}; "
            "fold_params=False leaves it in the graph"
        ) from error


def _root(node: Node, roots: Mapping[Node, str]) -> str:
    """The name of the first weight from which a value is computed."""
    done = {node}
    work = [node]
    while work:
        part = work.pop()
        if part.op == PARAM:
            return roots.get(part, part.name)
        new = [operand for operand in reversed(part.operands) if operand not in done]
        done.update(new)
        work.extend(new)
    return "constant"

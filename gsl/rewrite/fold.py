"""Folding: computing ahead what depends on weights and literals only."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any, Final

from gsl.errors import GSLError, RewriteError
from gsl.graph import CONST, GETITEM, INPUT, PARAM, TUPLE, Graph, Node, Origin, TensorType, TupleType, Type, op_name
from gsl.graph.splice import Replacement, Splicer, new_node
from gsl.graph.subgraph import Subgraph
from gsl.rewrite.check import changed, seen_through
from gsl.rewrite.cse import call_key, frozen
from gsl.spec import spec_of
from gsl.spec.meaning import has_symbols
from gsl.walk import postorder

Evaluate = Callable[[Node, Sequence[Any]], Any]
MOST_BYTES: Final = 1 << 20
"""The largest size in bytes of a value that is larger than the operands from which it is computed."""
_KNOWN: Final = (PARAM, CONST)
"""The operators of values that are known before anything is computed."""


def fold(graph: Graph, evaluate: Evaluate, roots: dict[Node, str] | None = None) -> int:
    """Replace the calls made by rewrites that depend on weights and literals only by parameters with their values, one
    for all that compute the same of one weight.

    Changes the graph; returns how many calls went. What a rewrite did not make stays as it is, and no tensor is
    changed, so tied weights are safe. A weight that the program itself changes is not known.

    ``roots``, handed in again each time that a graph is folded, keeps for every weight made here the name of the one
    that it was computed from first, so that names do not grow.
    """
    roots = {} if roots is None else roots
    if graph.by_op().keys().isdisjoint(_KNOWN) or not any(map(_is_first, graph.nodes)):
        return 0
    known = computed_ahead(graph)
    wanted = _wanted(graph, known)
    first = _first_equal(graph, wanted)
    values = _values(graph, list(dict.fromkeys(first.values())), evaluate)

    def made(node: Node) -> Node:
        assert node.origin is not None
        root = _root(node, roots) or "constant"
        name = f"{root}_{op_name(node.op).rpartition('.')[2]}"
        param = new_node(Node(PARAM, (), {"value": values[node]}, node.type, name=name), node.origin)
        roots[param] = root
        return param

    return _replaced(graph, first, made)


def fold_program(graph: Graph, evaluate: Evaluate, *, params: bool, most: int = MOST_BYTES) -> int:
    """Replace all calls that depend on literals only by literal tensors, those of a program too; how many went.

    With ``params``, also those that depend on weights, by parameters. Calls with effects stay, and so does what can't
    be computed here, what the outputs may share memory with, and what is larger than ``most`` bytes and than all that
    it is computed from.
    """
    failed: set[Node] = set()
    while True:
        known = _computable(graph, params, most, failed)
        wanted = _wanted(graph, known)
        try:
            first = _first_equal(graph, wanted)
            values = _values(graph, list(dict.fromkeys(first.values())), _noting(evaluate))
            break
        except _UncomputableError as error:
            failed.add(error.node)
    roots: dict[Node, str] = {}

    def made(node: Node) -> Node:
        root = _root(node, roots)
        kind, name = (CONST, node.name) if root is None else (PARAM, f"{root}_{op_name(node.op).rpartition('.')[2]}")
        new = new_node(Node(kind, (), {"value": values[node]}, node.type, name=name), Origin("fold", (node,)))
        if root is not None:
            roots[new] = root
        return new

    return _replaced(graph, first, made)


def _replaced(graph: Graph, first: Mapping[Node, Node], made: Callable[[Node], Node]) -> int:
    """Replace calls by leaves, each made for the first one of equal calls, which may stay; how many went."""
    splicer = Splicer(graph)
    leaves: dict[Node, Node] = {}
    for node, own in first.items():
        if own not in leaves:
            leaves[own] = made(own)
        splicer.apply(Replacement([node], [leaves[own]]), [node])
    splicer.finish()
    return sum(node.op not in (TUPLE, GETITEM, PARAM, CONST) for node in splicer.dead)


class _UncomputableError(GSLError):
    """A call can't be computed ahead of time."""

    def __init__(self, node: Node) -> None:
        super().__init__(node.name)
        self.node = node


def _noting(evaluate: Evaluate) -> Evaluate:
    """The same, but the error for what can't be computed has the node."""

    def value(node: Node, operands: Sequence[Any]) -> Any:
        try:
            return evaluate(node, operands)
        except Exception:
            raise _UncomputableError(node) from None

    return value


def _computable(graph: Graph, params: bool, most: int, failed: set[Node]) -> dict[Node, bool]:
    """The nodes of a program whose values can be computed, all of them with ``True``."""
    unsteady = changed(graph)
    kept = {*failed, *seen_through(graph.outputs)}
    known: dict[Node, bool] = {}
    for node in graph.nodes:
        if node in unsteady:
            continue
        if node.op in _KNOWN:
            fits = params or node.op == CONST
        else:
            fits = _is_constant(node) and node not in kept and _is_small(node, most)
        if fits and all(part in known for part in (*node.operands, *node.deps)):
            known[node] = True
    return known


def _is_small(node: Node, most: int) -> bool:
    """True if a value takes no more memory than the limit, or than the operands from which it is computed."""
    own = _bytes(node.type)
    return own is not None and own <= max(most, sum(_bytes(operand.type) or 0 for operand in node.operands))


def _bytes(type: Type | None) -> int | None:
    """The number of bytes that a value takes; ``None`` where that is not known."""
    if isinstance(type, TupleType):
        fields = [_bytes(field) for field in type.fields]
        return None if None in fields else sum(filter(None, fields))
    if not isinstance(type, TensorType) or has_symbols(type):
        return None
    bits = re.search(r"\d+", type.dtype)
    size: Any = math.prod(type.shape)
    return int(size) * (1 if bits is None else max(1, int(bits[0]) // 8))


def computed_ahead(graph: Graph) -> dict[Node, bool]:
    """The nodes whose values can be computed, and for each whether it depends on a weight or a literal tensor."""
    unsteady = changed(graph)
    known: dict[Node, bool] = {}
    for node in graph.nodes:
        if node.op in _KNOWN:
            if node not in unsteady:
                known[node] = node.op == PARAM or hasattr(node.attrs["value"], "shape")
        elif all(part in known for part in (*node.operands, *node.deps)) and is_foldable(node):
            known[node] = any(known[operand] for operand in node.operands)
    return known


def is_foldable(node: Node) -> bool:
    """True if a call is computed ahead of time if all its operands are."""
    return node.origin is not None and _is_constant(node)


def _is_first(node: Node) -> bool:
    """True for a call made by a rewrite that uses weights and literals only: without one, nothing is computed ahead."""
    return node.origin is not None and node.op not in _KNOWN and all(part.op in _KNOWN for part in node.operands)


def _is_constant(node: Node) -> bool:
    """True if a node always has the same value where its operands have.

    A call that reads the shape of another tensor has that among its attributes.
    """
    pure = node.effect is None and (not node.deps or spec_of(node.op) is not None)
    sizes = (node.type, dict(node.attrs))
    return pure and node.op != INPUT and not isinstance(node.op, Subgraph) and not has_symbols(sizes)


def _wanted(graph: Graph, known: dict[Node, bool]) -> list[Node]:
    """The known nodes that something unknown uses: calls, or the fields of what has several results."""
    outputs, needed = set(graph.outputs), set[Node]()
    for node in reversed(graph.nodes):
        if known.get(node) and (
            node in outputs or any(user not in known or (_passes(user) and user in needed) for user in node.users)
        ):
            needed.add(node)
    return [node for node in graph.nodes if node in needed and node.op not in _KNOWN and not _passes(node)]


def _first_equal(graph: Graph, wanted: Sequence[Node]) -> dict[Node, Node]:
    """For each of some calls, the first one that computes the same of the same weights and literals.

    Where a caller may change one result in place, each call counts by itself.
    """
    if graph.shares is not None:
        return dict(zip(wanted, wanted))
    same: dict[Node, Hashable] = {}
    found: dict[Hashable, Node] = {}
    keys: dict[int, Hashable] = {}
    for node in postorder(wanted, lambda node: node.operands):
        if node.op in _KNOWN:
            same[node] = frozen(node.attrs)
            continue
        try:
            same[node] = found.setdefault(call_key(node, tuple(map(same.__getitem__, node.operands)), keys), node)
        except TypeError:  # an attribute that has no hash
            same[node] = node
    return {node: first for node in wanted if isinstance(first := same[node], Node)}


def _passes(node: Node) -> bool:
    """True if a node has several values, so that no parameter can stand for it: its parts must."""
    return node.op == TUPLE or isinstance(node.type, TupleType)


def _values(graph: Graph, wanted: Sequence[Node], evaluate: Evaluate) -> dict[Node, Any]:
    """The values of the wanted nodes. What they are computed from is let go as soon as nothing more needs it."""
    values: dict[Node, Any] = {}
    needed = list(postorder(wanted, lambda node: node.operands))
    left = Counter(operand for node in needed for operand in node.operands)  # the uses that are still to come
    left.update(wanted)
    for node in needed:
        values[node] = _value(node, [values[operand] for operand in node.operands], evaluate)
        for operand in node.operands:
            left[operand] -= 1
            if not left[operand]:
                del values[operand]
    return values


def _value(node: Node, operands: Sequence[Any], evaluate: Evaluate) -> Any:
    if node.op in _KNOWN:
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


def _root(node: Node, roots: Mapping[Node, str]) -> str | None:
    """The name of the first weight from which a value is computed; ``None`` for one of literals only."""
    done = {node}
    work = [node]
    while work:
        part = work.pop()
        if part.op == PARAM:
            return roots.get(part, part.name)
        new = [operand for operand in reversed(part.operands) if operand not in done]
        done.update(new)
        work.extend(new)
    return None

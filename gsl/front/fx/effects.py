"""Which native calls change tensors in place where the rest of the graph can see it, and which only seem to.

``nn.ReLU(inplace=True)`` on the fresh result of a convolution that nobody else reads afterwards computes a value like
any other call: it is read canonically. Everything else that is changed in place stays opaque, together with whatever
produces or shares the changed memory.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from torch import fx

from gsl.front.fx.reader import CALLS, Reader


@dataclass(slots=True)
class Mutations:
    """What the in-place calls of a graph do."""

    hidden: dict[fx.Node, fx.Node] = field(default_factory=dict)
    """In-place calls that nobody can tell from functional ones, with the operand that they overwrite."""
    visible: set[fx.Node] = field(default_factory=set)
    """All other in-place calls."""
    exposed: set[fx.Node] = field(default_factory=set)
    """The nodes whose memory a visible in-place call may change."""
    attributes: set[str] = field(default_factory=set)
    """The attributes that ``get_attr`` nodes among those read."""


def mutations(graph: fx.Graph, reader: Reader) -> Mutations:
    """The in-place calls of a native graph, sorted out."""
    result = Mutations()
    order: dict[fx.Node, int] = {}
    changed: list[fx.Node] = []
    for index, node in enumerate(graph.nodes):
        order[node] = index
        if node.op not in CALLS:
            continue
        operands = reader.mutated(node)
        if not operands:
            continue
        if len(operands) == 1 and _is_hidden(node, operands[0], order, reader, result):
            result.hidden[node] = operands[0]
        else:
            result.visible.add(node)
            changed.extend(operands)
    if changed:
        result.exposed = _sharing(graph, changed, reader)
        # Memory that turns out to be shared with something visible is not private any more.
        for node in [node for node in result.hidden if node in result.exposed]:
            del result.hidden[node]
            result.visible.add(node)
        result.attributes = {str(node.target) for node in result.exposed if node.op == "get_attr"}
    return result


def _is_hidden(
    node: fx.Node, operand: fx.Node, order: dict[fx.Node, int], reader: Reader, known: Mutations
) -> bool:
    """True if an in-place call overwrites memory that nobody reads afterwards, and is understood otherwise."""
    if reader.read(node) is None or operand not in order:
        return False
    if operand in known.visible or not (operand in known.hidden or reader.is_fresh(operand)):
        return False
    # A user that is not yet in the order comes later; one that returns a view keeps the memory alive.
    return all(
        user is node
        or (user in order and user not in known.visible and (user in known.hidden or reader.is_fresh(user)))
        for user in operand.users
    )


def _sharing(graph: fx.Graph, changed: list[fx.Node], reader: Reader) -> set[fx.Node]:
    """All nodes that may share memory with the changed ones."""
    roots: dict[fx.Node, frozenset[object]] = {}
    for node in graph.nodes:
        if node.op == "get_attr":
            roots[node] = frozenset((node.target,))
            continue
        roots[node] = frozenset((node,)).union(*(roots[operand] for operand in reader.aliases(node)))
    touched = frozenset().union(*(roots[node] for node in changed))
    return {node for node, own in roots.items() if node.op != "output" and not own.isdisjoint(touched)}

"""Native calls that change tensors in place: those that the rest of the graph can notice, and those that it can't.

``nn.ReLU(inplace=True)`` on the fresh result of a convolution that no other call reads afterwards computes a value like
any other call: it is read canonically. Everything else that is changed in place stays opaque, together with whatever
produces or shares the changed memory.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final

from torch import fx

from gsl.front.fx.effects import EffectReader
from gsl.front.fx.handle import FxLeaves, memory
from gsl.front.fx.reader import CALLS

_VIEWS: Final = ("cast", "copy", "expand_dims", "nn.dropout", "reshape", "squeeze", "strided_slice", "transpose")
"""Operators that may return a view of their operand in which no two elements share a place, as those of a broadcast."""


@dataclass(slots=True)
class Mutations:
    """The effects of the in-place calls of a graph."""

    hidden: dict[fx.Node, tuple[fx.Node, ...]] = field(default_factory=dict)
    """In-place calls that have the same effect as functional ones, each with the operand that it overwrites, and what
    that is a view of, in turn."""
    visible: set[fx.Node] = field(default_factory=set)
    """All other in-place calls."""
    exposed: set[fx.Node] = field(default_factory=set)
    """The nodes whose memory a visible in-place call may change."""
    memory: set[Hashable] = field(default_factory=set)
    """The memory of the weights that may be changed, as ``leaves.memory`` tells it."""


def mutations(graph: fx.Graph, nodes: Sequence[fx.Node], reader: EffectReader, leaves: FxLeaves) -> Mutations:
    """The in-place calls of a native graph, of which these are the nodes, sorted out."""
    result = Mutations()
    if not reader.survey(nodes):
        return result
    order: dict[fx.Node, int] = {}
    changed: list[fx.Node] = []
    given: list[fx.Node] = []
    for index, node in enumerate(nodes):
        order[node] = index
        if node.op not in CALLS:
            continue
        form = reader.form(node)
        if form is not None and not form.mutated and not form.unknown:
            continue
        result.memory.update(map(memory, reader.mutated_weights(node)))
        if reader.is_unknown(node):
            given.extend(node.all_input_nodes)
        operands = reader.mutated(node)
        if not operands:
            continue
        hidden = _overwritten(node, operands[0], order, reader, result) if len(operands) == 1 else ()
        if hidden:
            result.hidden[node] = hidden
        else:
            result.visible.add(node)
            changed.extend(operands)
    if changed or given or result.memory:
        roots = reader.roots(graph.nodes)
        touched = result.memory | _union(roots[node] for node in changed)
        # What an unknown call does to its operands is the business of its effect, but weights are read elsewhere too.
        touched |= {root for node in given for root in roots[node] if not isinstance(root, fx.Node)}
        result.exposed = {n for n, own in roots.items() if n.op != "output" and not own.isdisjoint(touched)}
        result.memory = touched
        # Memory that turns out to be shared with something visible is not private any more.
        for node in [node for node in result.hidden if node in result.exposed]:
            del result.hidden[node]
            result.visible.add(node)
    return result


def pass_results(nodes: Sequence[fx.Node], reader: EffectReader) -> None:
    """Let the calls behind a call in place take its result, which is the operand that it has changed.

    Graphs of dynamo go on with the operand: ``scores.relu_(); return scores``. The native calls are changed.
    """
    order = {node: place for place, node in enumerate(nodes)}
    for node in nodes:
        operands = reader.mutated(node) if node.op in CALLS else ()
        if len(operands) == 1 and reader.read_op(node) is not None:
            for user in [user for user in operands[0].users if order[user] > order[node]]:
                user.replace_input_with(operands[0], node)


def _overwritten(
    node: fx.Node, operand: fx.Node, order: dict[fx.Node, int], reader: EffectReader, known: Mutations
) -> tuple[fx.Node, ...]:
    """The operand that an in-place call overwrites, and what that is a view of, up to the call that made the memory.

    Nothing where a later call reads that memory, or the call is not understood otherwise.
    """
    if reader.read_op(node) is None:
        return ()
    found: list[fx.Node] = []
    user = node
    while operand in order and operand not in known.visible and _is_read_before(operand, user, order, reader, known):
        found.append(operand)
        if operand in known.hidden or reader.is_fresh(operand):
            return tuple(found)
        sources = reader.aliases(operand)
        if len(sources) != 1 or reader.read_op(operand) not in _VIEWS or node in sources[0].users:
            break
        user, operand = operand, sources[0]
    return ()


def _is_read_before(
    operand: fx.Node, node: fx.Node, order: dict[fx.Node, int], reader: EffectReader, known: Mutations
) -> bool:
    """True if all other users of an operand come before the call, and none keeps its memory alive."""
    # A user that is not yet in the order comes later; one that returns a view keeps the memory alive.
    return all(
        user is node
        or (user in order and user not in known.visible and _is_apart(operand, user, reader, known))
        for user in operand.users
    )


def _is_apart(operand: fx.Node, user: fx.Node, reader: EffectReader, known: Mutations) -> bool:
    """True if the result of a user does not keep the memory of its operand alive."""
    return user in known.hidden or operand not in reader.aliases(user)


def _union(sets: Iterable[frozenset[Hashable]]) -> frozenset[Hashable]:
    return frozenset().union(*sets)

"""What of a rewritten view is still as it was natively, and what has to be written anew."""

from __future__ import annotations

from dataclasses import dataclass, field

from torch import fx

from gsl.front.fx import spellings
from gsl.front.fx.handle import Handle, Leaf, Reading, Source, handle_of, is_literal
from gsl.front.fx.load import arguments
from gsl.front.fx.reader import Reader
from gsl.front.reading import whole
from gsl.graph import LEAVES, TUPLE, Graph, Node

Arguments = dict[fx.Node, Node]
"""For each native node to which a kept call refers: the view node that now takes its place."""


@dataclass(slots=True)
class Plan:
    """How each node of a rewritten view gets into the new native graph."""

    kept: dict[Reading, Arguments | None] = field(default_factory=dict)
    """The native calls that are kept, with what their arguments have become; ``None`` for a call whose arguments all
    are what they were."""
    hidden: set[fx.Node] = field(default_factory=set)
    """Native nodes without a view node of their own that are kept too."""
    inner: set[Node] = field(default_factory=set)
    """View nodes that are part of a call that is kept, or joined to one that is written."""
    joined: dict[Node, Node] = field(default_factory=dict)
    """For each bias addition that is written together with its call: the call."""


def plan(graph: Graph, native: fx.Graph) -> Plan:
    """Decide for each node of the view whether its native call is kept or written anew."""
    result = Plan()
    outputs = set(graph.outputs)
    for node in graph.nodes:
        handle = handle_of(node)
        if handle is None or not handle.is_root:
            continue
        if _is_untouched(node, handle):
            result.kept[handle.reading] = None
            continue
        tree = whole(node, handle_of, Leaf)
        if tree is None or any(_used_outside(inner, tree, outputs) for inner in tree):
            continue
        mapping = _mapping(tree)
        if mapping is None or not _may_overwrite(node, handle.reading, mapping, outputs, result):
            continue
        result.kept[handle.reading] = mapping
        result.inner.update(inner for inner in tree if inner is not node)
    _joins(graph, outputs, result)
    _hidden_nodes(graph, native, result)
    return result


def _is_untouched(node: Node, handle: Handle) -> bool:
    """True for a reading of one node whose operands all are what they were."""
    if handle.reading.size > 1 or handle.reading.overwrites is not None:
        return False
    operands = (*node.operands, *node.deps) if node.deps else node.operands
    return len(operands) == len(handle.sources) and all(map(stands_for, operands, handle.sources))


def arguments_of(node: Node) -> Arguments:
    """What the native arguments of a call that is kept have become; ``node`` is the root of its reading."""
    tree = whole(node, handle_of, Leaf)
    mapping = None if tree is None else _mapping(tree)
    assert mapping is not None
    return mapping


def _used_outside(node: Node, tree: list[Node], outputs: set[Node]) -> bool:
    if node is tree[0] or is_literal(node):
        return False
    return node in outputs or any(user not in tree for user in node.users)


def _mapping(tree: list[Node]) -> Arguments | None:
    """What the native arguments have become; ``None`` if one of them has become two different things."""
    mapping: Arguments = {}
    for node in tree:
        own = handle_of(node)
        assert own is not None
        for source, operand in zip(own.sources, (*node.operands, *node.deps)):
            if isinstance(source, fx.Node) and mapping.setdefault(source, operand) is not operand:
                return None
    return mapping


def _may_overwrite(node: Node, reading: Reading, mapping: Arguments, outputs: set[Node], known: Plan) -> bool:
    """True unless the call works in place on what it did not overwrite before, or on what is read after it now."""
    if reading.overwrites is None:
        return True
    native, operand = reading.overwrites, mapping[reading.overwrites]
    if not _is_overwritten(native, operand, node, reading, outputs, known):
        return False
    while operand.op == "copy" and native.op == "call_module":
        # It hands on the memory of its own operand.
        own, user = handle_of(operand), operand
        (native,), (operand,) = native.all_input_nodes, operand.operands
        if own is None or not _is_overwritten(native, operand, user, own.reading, outputs, known):
            return False
    return True


def _is_overwritten(
    native: fx.Node, operand: Node, node: Node, reading: Reading, outputs: set[Node], known: Plan
) -> bool:
    """True if an operand is what it was, and everybody else who reads it did so before."""
    if operand in outputs or not stands_for(operand, native):
        return False
    # The readings that come first in the view have been decided already.
    for user in operand.users:
        own = handle_of(user)
        if user is node or (own is not None and own.reading is reading):
            continue
        if own is None or own.reading not in known.kept or native not in own.sources:
            return False
    return True


def plan_anew(graph: Graph) -> Plan:
    """The plan of a view of which everything is written anew."""
    result = Plan()
    _joins(graph, set(graph.outputs), result)
    return result


def _joins(graph: Graph, outputs: set[Node], result: Plan) -> None:
    """Find the calls that can take a bias, which is added to them and to nothing else."""
    for node in graph.nodes:
        if node.op != "nn.bias_add" or not is_written(node, result):
            continue
        call = node.operands[0]
        if not is_written(call, result) or call in outputs or list(call.users) != [node]:
            continue
        if call is node.operands[1] or not _takes_bias(call, node):
            continue
        result.joined[node] = call
        result.inner.add(call)


def is_written(node: Node, plan: Plan) -> bool:
    """True for a call for which a new native call is written."""
    if node.op in LEAVES or node.op == TUPLE or node in plan.inner:
        return False
    handle = handle_of(node)
    return handle is None or handle.reading not in plan.kept


def _takes_bias(call: Node, bias_add: Node) -> bool:
    """True for an operator whose native call takes a bias, added along its channels."""
    axis = bias_add.attrs["axis"]
    if call.op == "matmul":
        # torch.addmm, which decompositions make of a linear layer.
        return axis in (1, -1) and not call.attrs["out_dtype"] and all(operand.ndim == 2 for operand in call.operands)
    if call.op not in spellings.BIASED:
        return False
    if call.op == "nn.dense":
        return axis == -1 or (call.ndim is not None and axis == call.ndim - 1)
    layout = call.attrs.get("out_layout") or call.attrs["data_layout"]
    return bool(axis == layout.index("C"))


def _hidden_nodes(graph: Graph, native: fx.Graph, result: Plan) -> None:
    """Find the native nodes without a view node that kept calls need, or that were unused all along.

    These are the reads of weights, and calls of which only fields are in the view.
    """
    needed: set[fx.Node] = set()
    for reading, mapping in result.kept.items():
        referred = (reading.call or reading.node).all_input_nodes
        if mapping is None:
            needed.update([source for source in referred if source.op == "get_attr"])
        else:
            needed.update(source for source, view in mapping.items() if _reads(source, view))
            # What a call refers to that is no value: the graph of an outlined group.
            needed.update(source for source in referred if source.op == "get_attr" and source not in mapping)
        if reading.call is not None:
            needed.add(reading.call)
            needed.update(user for user in reading.call.users if not user.users)
    outputs = iter(graph.outputs)
    for node in native.nodes:
        if node.op == "output":
            needed.update(source for source, view in zip(arguments(node), outputs) if _reads(source, view))
        elif (node.op == "get_attr" and not node.users) or Reader.is_assertion(node):
            needed.add(node)
    own = {reading.node for reading in result.kept}
    result.hidden = {node for node in needed if node not in own and node.op != "placeholder"}


def _reads(native: fx.Node, view: Node) -> bool:
    return isinstance(view.native, Leaf) and native in view.native.reads


def stands_for(view: Node, source: Source) -> bool:
    """True if the view node is (still) the value of that native node, or that weight."""
    own = view.native
    if isinstance(own, Handle):
        return own.reading.node is source and own.is_root
    return isinstance(own, Leaf) and (own is source or source in own.reads)



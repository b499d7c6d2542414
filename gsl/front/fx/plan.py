"""The parts of a rewritten view that are still as they were natively, and the parts that have to be written anew."""

from __future__ import annotations

import operator
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from torch import fx

from gsl.front.core.handle import Arguments, Handle, Source, handle_of, intact
from gsl.front.core.store import added, foreign
from gsl.front.fx import spellings
from gsl.front.fx.effects import EffectReader
from gsl.front.fx.handle import FxLeaf, FxReading, FxSingle, calls_of, nodes_in
from gsl.front.fx.reader import LIFTING, lifted
from gsl.graph import GETITEM, INPUT, LEAVES, TUPLE, Graph, Node


@dataclass(slots=True)
class FxPlan:
    """The way in which each node of a rewritten view gets into the new native graph."""

    kept: dict[fx.Node, Arguments | None] = field(default_factory=dict)
    """The native calls that are kept, with what their arguments have become; ``None`` for a call whose arguments all
    are what they were."""
    calls: dict[fx.Node, Arguments | None] = field(default_factory=dict)
    """The same of calls that were read together with those, and have no view node of their own."""
    hidden: set[fx.Node] = field(default_factory=set)
    """Native nodes without a view node of their own that are kept too."""
    inner: set[Node] = field(default_factory=set)
    """View nodes that are part of a call that is kept, or joined to one that is written."""
    joined: dict[Node, Node] = field(default_factory=dict)
    """The call with which each of these bias additions is written together."""
    staying: dict[fx.Node, fx.Node] = field(default_factory=dict)
    """The native calls that the old graph keeps as they are and where they are, as keys and as values."""
    steps: list[tuple[Node, int]] = field(default_factory=list)
    """The other steps to take in the old graph: view nodes, each with the number of those calls that come before it."""


def plan(graph: Graph, native: fx.Graph, order: Mapping[fx.Node, int], inputs: int) -> FxPlan:
    """Decide for each node of the view whether its native call is kept or written anew.

    ``order`` has the places of the native nodes, ``inputs`` is that of the last placeholder. FrontEndError for a view
    that was not loaded from them.
    """
    planner = _Planner(graph, order)
    planner.walk(inputs)
    _joins([node for node, _ in planner.plan.steps], graph, planner.plan)
    _hidden_nodes(graph, native, order, planner.plan)
    return planner.plan


class _Planner:
    """One pass over a view, in its order."""

    def __init__(self, graph: Graph, order: Mapping[fx.Node, int]) -> None:
        self.graph = graph
        self.order = order
        self.plan = FxPlan()
        self.outputs = graph.ends()
        self.standing: dict[Node, Any] = {}
        """The native nodes for which view nodes stand, of the readings that are kept."""

    def walk(self, inputs: int) -> None:
        """Decide for all nodes.

        Most of them are as they were: what is done here for one of those is most of what a small change costs in a big
        graph.
        """
        order, kept, staying, steps = self.order, self.plan.kept, self.plan.staying, self.plan.steps
        standing, stands = self.standing, self.standing.get
        front = -1  # the last place where something stays: a call behind it may stay where it is
        for node in self.graph.nodes:
            own = node.native
            if isinstance(own, Handle):
                reading: Any = own if own.__class__ is FxSingle else own.reading
                source = reading.native
                place = order.get(source)
                if place is None:
                    raise foreign(node, "torch")
                if node.op == INPUT:
                    kept[source] = None
                    standing[node] = staying[source] = source
                    front = max(front, place)
                    continue
                if own.slot == reading.size - 1:
                    operands = (*node.operands, *node.deps) if node.deps else node.operands
                    alike = tuple(map(stands, operands)) == own.sources and not reading.overwrites
                    untouched = alike or self._is_untouched(node, reading)
                    if untouched and (reading.call is None or self._agrees(reading, None)):
                        kept[source] = None
                        standing[node] = source
                        if place > front and reading.call is None:
                            staying[source] = source
                            front = place
                            continue
                        if self._stays(reading, front):
                            front = max(front, place)
                            continue
                    elif self._is_kept(node, reading):
                        if node.op != GETITEM:  # which may be a field of a tuple now, and not a call any more
                            standing[node] = source
                        front = max(front, place)
                    else:
                        front = max(front, inputs)
                steps.append((node, len(staying)))
            elif own is not None:
                standing[node] = next(iter(own.reads), own)
            elif node.op == INPUT:
                raise added(node, "torch")
            elif node.op not in LEAVES and node.op != TUPLE:
                front = max(front, inputs)  # before what is new come all placeholders
                steps.append((node, len(staying)))

    def _is_untouched(self, node: Node, reading: FxReading) -> bool:
        """True for a reading all of whose nodes and operands are unchanged."""
        found = None if reading.overwrites else intact(node, self.outputs)
        if found is None:
            return False
        tree, mapping = found
        if not all(self.standing.get(view) is source or _reads(source, view) for source, view in mapping.items()):
            return False
        self.plan.inner.update(tree[1:])
        return True

    def _agrees(self, reading: FxReading, mapping: Arguments | None) -> bool:
        """Note the new values of the arguments of a call of which a field was read; False if it differs from what
        another field of the call needs."""
        call = reading.call
        return call is None or self.plan.calls.setdefault(call, mapping) == mapping

    def _stays(self, reading: FxReading, front: int) -> bool:
        """Note that an untouched reading stays where it is in the old graph; False if it has to move behind the
        front."""
        staying, call = self.plan.staying, reading.call
        if self.order[reading.native] < front:
            return False
        if call is not None and call not in staying:
            if self.order[call] < front:
                return False
            staying[call] = call
        staying[reading.native] = reading.native
        return True

    def _is_kept(self, node: Node, reading: FxReading) -> bool:
        """Find out what has become of the arguments of a call that is not as it was; False if it is not kept."""
        found = intact(node, self.outputs)
        if found is None:
            return False
        tree, mapping = found
        if not _may_overwrite(node, reading, mapping, self.outputs, self.plan) or not self._agrees(reading, mapping):
            return False
        self.plan.kept[reading.native] = mapping
        self.plan.inner.update(tree[1:])
        return True


def _may_overwrite(
    node: Node, reading: FxReading, mapping: Arguments, outputs: Collection[Node], known: FxPlan
) -> bool:
    """True unless the call works in place on what it did not overwrite before, or on what is read after it now."""
    found = mapping
    for native in reading.overwrites:
        operand = found.get(native)
        if operand is None or not _is_overwritten(native, operand, node, reading, outputs, known):
            return False
        own = handle_of(operand)
        # The next one is what this one is a view of.
        found = {} if own is None else dict(zip(own.sources, operand.operands))
        node, reading = operand, reading if own is None else own.reading
    return True


def _is_overwritten(
    native: fx.Node, operand: Node, node: Node, reading: FxReading, outputs: Collection[Node], known: FxPlan
) -> bool:
    """True if an operand is unchanged, and all its other readers are kept and read it before the rewrite, too."""
    if operand in outputs or not stands_for(operand, native):
        return False
    # The readings that come first in the view have been decided already.
    for user in operand.users:
        own = handle_of(user)
        if user is node or (own is not None and own.reading is reading):
            continue
        if own is None or own.reading.native not in known.kept or native not in own.sources:
            return False
    return True


def plan_anew(graph: Graph) -> FxPlan:
    """The plan of a view of which everything is written anew."""
    result = FxPlan()
    _joins(graph.nodes, graph, result)
    return result


def _joins(nodes: Iterable[Node], graph: Graph, result: FxPlan) -> None:
    """Find the calls that can take a bias, which is added to them and to nothing else."""
    for node in nodes:
        if node.op != "nn.bias_add" or not is_written(node, result):
            continue
        call = node.operands[0]
        if not is_written(call, result) or call in graph.ends() or list(call.users) != [node]:
            continue
        if call is node.operands[1] or not _takes_bias(call, node):
            continue
        result.joined[node] = call
        result.inner.add(call)


def is_written(node: Node, plan: FxPlan) -> bool:
    """True for a call for which a new native call is written."""
    if node.op in LEAVES or node.op == TUPLE or node in plan.inner:
        return False
    handle = handle_of(node)
    return handle is None or handle.reading.native not in plan.kept


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


def _hidden_nodes(graph: Graph, native: fx.Graph, order: Mapping[fx.Node, int], result: FxPlan) -> None:
    """Find the native nodes without a view node that kept calls need, or that were unused all along.

    These are the reads of weights, calls that only make a tensor of a literal, and calls of which only fields are in
    the view.
    """
    hidden = result.hidden
    hidden.update(result.calls)
    for call in result.calls:
        hidden.update([user for user in call.users if not user.users])
    hidden.update(
        source for source, view in zip(nodes_in(native.output_node().args), graph.outputs)
        if _reads(source, view) and source.op != "placeholder"
    )  # fmt: skip
    for node in [node for node in order if not node.users]:
        field_of = node.args[0] if node.target is operator.getitem else None
        if EffectReader.hinders_nothing(node) or field_of in result.kept:
            hidden.add(node)
    reads = native.find_nodes(op="get_attr", sort=False)
    reads += [node for node in calls_of(native, LIFTING) if lifted(node) is not None]
    for node in sorted(reads, key=order.__getitem__, reverse=True):  # users first
        if not node.users or any(user in hidden or _is_needed(node, user, result) for user in node.users):
            hidden.add(node)
    hidden.difference_update(result.kept)


def _is_needed(read: fx.Node, user: fx.Node, result: FxPlan) -> bool:
    """True if a user of the read of a weight is kept, and still reads that weight."""
    for known in (result.kept, result.calls):
        if user in known:
            mapping = known[user]
            # What a call refers to that is no value is the graph of an outlined group.
            if mapping is None or read not in mapping or _reads(read, mapping[read]):
                return True
    return False


def _reads(native: fx.Node, view: Node) -> bool:
    return isinstance(view.native, FxLeaf) and native in view.native.reads


def stands_for(view: Node, source: Source) -> bool:
    """True if the view node is (still) the value of that native node, or that weight."""
    own = view.native
    if isinstance(own, Handle):
        return own.reading.native is source and own.is_root
    return isinstance(own, FxLeaf) and (own is source or source in own.reads)

"""The changes that a rewritten view makes in a model, and the model that has them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence, Set
from functools import cached_property
from itertools import chain
from operator import attrgetter
from typing import Any, Final

import onnx_ir as ir

from gsl.front.core.store import FreeNames
from gsl.front.onnx import groups, opaque
from gsl.front.onnx.copying import Copies, copied, props, quick
from gsl.front.onnx.load import is_alias, is_constant
from gsl.front.onnx.types import NameOf, annotate
from gsl.graph import Type
from gsl.pause import uninterrupted
from gsl.spec.natives import OnnxOp

_NAME: Final = attrgetter("name")
_OUTPUTS: Final = attrgetter("outputs")
_PARTS: Final = quick(ir.Node, "inputs", "attributes.data")


class NewNode:
    """A node that is to be made: it uses nothing of the model yet."""

    __slots__ = ("attributes", "domain", "inputs", "op", "outputs", "root")

    def __init__(
        self, domain: str, op: str, inputs: Sequence[ir.Value | None], attributes: Sequence[ir.Attr],
        outputs: Sequence[ir.Value] = (),
    ) -> None:  # fmt: skip
        for value in inputs:
            if value is not None and not isinstance(value, ir.Value):
                raise ValueError(f"an operand of {op} is a tuple, and nodes of ONNX take values one by one")
        self.domain, self.op, self.inputs, self.attributes, self.outputs = domain, op, inputs, attributes, outputs
        self.root: ir.Node | None = None
        """The node of the old model whose documentation it gets."""

    def used(self) -> list[ir.Value]:
        """The values that it and the graphs in it use."""
        used = [value for value in self.inputs if value is not None]
        return [*used, *opaque.captured(tuple(opaque.graphs(self.attributes)))] if self.attributes else used

    def is_like(self, old: ir.Node) -> bool:
        """True if it does with as many operands what a node of the model does, which has one output."""
        return (
            opaque.target_of(old) == OnnxOp(self.op, self.domain) and len(old.outputs) == 1
            and len(old.inputs) == len(self.inputs)
            and {attr.name: _plain(attr) for attr in self.attributes} == {
                attr.name: _plain(attr) for attr in old.attributes.values()
            }
        )  # fmt: skip


class OnnxChanges:
    """The changes of a model, in words of its values and of new ones. Nothing is touched until :meth:`applied`,
    which can't fail."""

    def __init__(
        self, model: ir.Model, types: Mapping[ir.Value, Type | None], name_of: NameOf, taken: Set[str], *,
        in_place: bool,
    ) -> None:
        self.old = model
        self.types = types
        """The types of new values, and of those that are computed in another way."""
        self.name_of = name_of
        self.taken = taken
        """Names that new things must not have, besides those of the model."""
        self.in_place = in_place
        self.placed: dict[ir.Node | None, list[NewNode]] = {}
        """New nodes, by the nodes of the old model in front of which they will stand; ``None``: at the end."""
        self.rewritten: dict[ir.Node, NewNode] = {}
        """The nodes of the old model that will compute their values in another way."""
        self.instead: dict[ir.Value, ir.Value] = {}
        """The values of the old model in whose places others will be used, by all their users."""
        self.moved: dict[ir.Node, Mapping[ir.Value, ir.Value]] = {}
        """The nodes of the old model that will use other values, by those of it that they use."""
        self.initializers: list[ir.Value] = []
        """The new ones."""
        self.functions: list[ir.Function] = []
        """Those of the new groups."""
        self._copies = Copies()
        """The values of the new model by those of the old one, if that is not changed itself."""
        self._lost: list[ir.Value] = []
        """The values of the new model that may have lost their last user."""

    @property
    def _made(self) -> Iterable[NewNode]:
        """All new nodes."""
        return chain.from_iterable((*self.placed.values(), self.rewritten.values()))

    @property
    def makes_graphs(self) -> bool:
        """True if a new node has graphs in it."""
        return any(True for new in self._made for _ in opaque.graphs(new.attributes))

    @cached_property
    def names(self) -> FreeNames:
        """The names that new things may have."""
        return FreeNames(names_of(self.old.graph) | self.taken)

    @cached_property
    def order(self) -> Mapping[ir.Node, int]:
        """The places of the nodes of the old model."""
        return {node: place for place, node in enumerate(self.old.graph)}

    def place(self, root: ir.Node | None, made: Sequence[NewNode]) -> None:
        """Let new nodes stand in front of one of the model, or at the end."""
        if made:
            for new in made:
                new.root = root
            self.placed.setdefault(root, []).extend(made)

    def rewrite(self, old: ir.Value, new: NewNode) -> None:
        """Let a value of the old model be computed by a new node."""
        root = old.producer()
        assert root is not None
        new.outputs = (old,)
        self.rewritten[root] = new

    @uninterrupted
    def applied(self, results: Sequence[ir.Value]) -> ir.Model | None:
        """The old model with the changes, or a copy that has them; ``None`` if there are none.

        ``results`` are the values of the outputs.
        """
        ends, is_sorted = self._ends(results), self._is_sorted()
        if not (self.rewritten or self.instead or self.moved or ends):  # nothing would use new nodes
            return None
        model = self.old if self.in_place else self._copied(results)
        graph = model.graph
        for value in self.initializers:
            graph.register_initializer(value)
        if model.ir_version < 4:
            groups.write_constants(graph, self.initializers)
        for root, made in self.placed.items():
            nodes = list(map(self._node, made))
            if root is None:
                graph.extend(nodes)
            else:
                graph.insert_before(self._own_node(root), nodes)
        for node, new in self.rewritten.items():
            self._rewrite(self._own_node(node), new)
        for new in self._made:
            if new.domain:
                model.opset_imports.setdefault(new.domain, 1)
                for value in new.outputs:
                    own = self._own(value)
                    if own.type is None:  # that ONNX does not infer
                        annotate(own, self.types.get(value), self.name_of)
        model.functions.update({function.identifier(): function for function in self.functions})
        for node, moved in self.moved.items():
            self._move(self._own_node(node), {self._own(old): self._own(value) for old, value in moved.items()})
        for old, value in self.instead.items():
            self._own(old).replace_all_uses_with(self._own(value))
            self._lost.append(self._own(old))
        own_results = list(map(self._own, results))
        for place in ends:
            self._end(graph, place, own_results)
        self._clean(graph)
        if not is_sorted:
            graph.sort()
        groups.sweep(model)
        return model

    def _ends(self, results: Sequence[ir.Value]) -> list[int]:
        """The places of the outputs that are other values now; the first one of a value that is several outputs."""
        places: dict[ir.Value, int] = {}
        for place, (old, new) in enumerate(zip(self.old.graph.outputs, results)):
            if new is not old and new is not _source_of_alias(old):
                places.setdefault(old, place)
        return list(places.values())

    def _copied(self, results: Iterable[ir.Value]) -> ir.Model:
        """A copy of the old model, without nodes that nothing will use."""
        gone = self._gone(results)
        model = copied(self.old, self._copies, gone)
        used = [value for node in gone for value in node.inputs if value in self._copies]
        self._lost += [self._copies[value] for value in used if value is not None]
        return model

    def _gone(self, results: Iterable[ir.Value]) -> Set[ir.Node]:
        """The nodes of the old model that computed operands of rewritten ones, and that nothing will use."""
        kept = {*results, *self.instead.values(), *chain.from_iterable([new.used() for new in self._made])}
        kept.update(chain.from_iterable([moved.values() for moved in self.moved.values()]))
        for root in (*self.placed, *self.moved, *self.rewritten):
            kept.update(() if root is None else root.outputs)
        freed = Counter([value for root in self.rewritten for value in _used_by(root) if value is not None])
        return _unused(list(freed), freed, kept).keys()

    def _own(self, value: ir.Value) -> ir.Value:
        """The value of the new model for one of the old model, or for a new one, which is that itself."""
        return value if self.in_place or value.graph is not self.old.graph else self._copies[value]

    def _own_node(self, node: ir.Node) -> ir.Node:
        """The node of the new model for one of the old model."""
        own = node if self.in_place else self._copies[node.outputs[0]].producer()
        assert own is not None
        return own

    def _inputs(self, new: NewNode) -> Sequence[ir.Value | None]:
        """The values of the new model that a new node uses."""
        return new.inputs if self.in_place else [value and self._own(value) for value in new.inputs]

    def _node(self, new: NewNode) -> ir.Node:
        """A node that is to be made, with names and types."""
        name, root = new.op.lower(), new.root
        self._lost += new.outputs  # of what was made for nothing
        for value in new.outputs:
            value.name = self.names.free(f"{name}_out")
            annotate(value, self.types.get(value), self.name_of)
        return ir.Node(
            new.domain, new.op, self._inputs(new), new.attributes, outputs=new.outputs, name=self.names.free(name),
            metadata_props=None if root is None else props(root),
        )  # fmt: skip

    def _rewrite(self, node: ir.Node, new: NewNode) -> None:
        """Let a node compute its value in another way."""
        before, after = node.inputs, self._inputs(new)
        self._lost += [value for value in before if value is not None]
        node.domain, node.op_type, node.overload, node.version = new.domain, new.op, "", None
        node.device_configurations = ()
        if node.attributes.data:
            self._lost += _let_go(node)
            node.attributes.clear()
        for attr in new.attributes:
            node.attributes.add(attr)
        if len(before) != len(after):
            node.resize_inputs(len(after))
        for place, value in enumerate(after):
            if place >= len(before) or before[place] is not value:
                node.replace_input_with(place, value)

    def _is_sorted(self) -> bool:
        """True if new nodes, and those that will use other values, will stand behind what they use."""
        if self.instead:
            return False
        order = self.order if self.placed or self.moved or self.rewritten else {}
        ranks = {value: (order.get(root, len(order)) - 1, place)  # type: ignore[arg-type]
                 for root, made in self.placed.items() for place, new in enumerate(made)
                 for value in new.outputs}  # fmt: skip

        def rank(value: ir.Value) -> tuple[int, int]:
            producer = value.producer()
            return ranks.get(value, (-1, -1)) if producer is None else (order[producer], -1)

        return (
            all(rank(value) < (order[node], -1) for node, moved in self.moved.items() for value in moved.values())
            and all(rank(value) < (order[node], -1) for node, new in self.rewritten.items() for value in new.used())
            and all(rank(value) < ranks[new.outputs[0]]
                    for made in self.placed.values() for new in made for value in new.used())
        )  # fmt: skip

    def _move(self, node: ir.Node, moved: Mapping[ir.Value, ir.Value]) -> None:
        """Let a node, and the graphs in it, use other values."""
        self._lost += moved
        opaque.redirect(node, moved)
        for body in opaque.bodies(node):
            opaque.replace(body, moved)

    def _end(self, graph: ir.Graph, place: int, results: Sequence[ir.Value]) -> None:
        """Let a result be an output, wherever the same value was one, under the name that it had."""
        old, new = graph.outputs[place], results[place]
        producer = new.producer()
        if producer is None or is_constant(producer) or new.is_graph_output() or new in results[:place]:
            alias = ir.Value()
            graph.append(self._node(NewNode("", "Identity", [new], (), [alias])))
            new = alias
        name = old.name
        old.name = self.names.free(f"{name}_before")
        new.name = name
        new.type, new.shape = old.type, old.shape
        new.doc_string = old.doc_string
        new.metadata_props.update(old.metadata_props)
        for other, output in enumerate(graph.outputs):
            if output is old:
                graph.outputs[other] = new
        self._lost.append(old)

    def _clean(self, graph: ir.Graph) -> None:
        """Remove what has lost its last user, and what was made for nothing."""
        lost = [*self._lost, *self.initializers]
        freed = Counter[ir.Value]()
        dead = _unused(lost[:], freed)
        for node in dead:
            inputs, attributes = _PARTS(node)
            if attributes:
                _let_go(node)
            for place, source in enumerate(inputs):
                if source is not None and source.producer() not in dead:  # what is removed may use each other
                    node.replace_input_with(place, None)
        graph.remove(dead)
        for value in (*lost, *freed) if graph.initializers else ():
            if value.is_initializer() and not (value.uses() or value.is_graph_input() or value.is_graph_output()):
                del graph.initializers[value.name or ""]


def _unused(
    work: list[ir.Value], freed: Counter[ir.Value], kept: Set[ir.Value] = frozenset()
) -> dict[ir.Node, None]:  # fmt: skip
    """The nodes that compute nothing but some values and what they are computed from, where nothing uses that.

    ``freed`` tells how many uses of each value do not count, and gets those by these nodes. Nodes with effects stay,
    and so do those that compute a value that is ``kept``.
    """
    dead: dict[ir.Node, None] = {}

    def is_used(value: ir.Value) -> bool:
        return len(value.uses()) > freed.get(value, 0) or value in kept or value.is_graph_output()

    while work:
        value = work.pop()
        node = None if is_used(value) else value.producer()
        if node is None or node in dead or opaque.effect_of(node):
            continue
        outputs = node.outputs
        if len(outputs) == 1 or not any(map(is_used, outputs)):
            dead[node] = None
            for used in _used_by(node):
                if used is not None:
                    freed[used] = freed.get(used, 0) + 1
                    work.append(used)
    return dead


def _used_by(node: ir.Node) -> Sequence[ir.Value | None]:
    """The values that a node and the graphs in it use from around it, as often as they use them; ``None`` for an
    operand that is left out."""
    inputs, attributes = _PARTS(node)
    if not attributes:
        return inputs  # type: ignore[no-any-return]
    inner = [value for part in opaque.nested(node) for value in part.inputs]
    return *inputs, *[value for value in inner if value is not None and value.graph is node.graph]


def _plain(attr: ir.Attr) -> Any:
    """An attribute as what is compared: tensors by their elements, graphs by themselves."""
    value = attr.value
    if attr.type == ir.AttributeType.TENSOR and not attr.is_ref():
        value = value.dtype, tuple(value.shape), value.tobytes()
    return attr.type, tuple(value) if isinstance(value, list) else value, attr.ref_attr_name


def _let_go(node: ir.Node) -> Sequence[ir.Value]:
    """Let the graphs in a node use nothing any more: what they used from around it."""
    used = opaque.captured(list(opaque.bodies(node)))
    for part in opaque.nested(node):
        opaque.detach(part)
    return used


def names_of(graph: ir.Graph) -> set[Any]:
    """All names of values and nodes, those of inner graphs included."""
    nodes = tuple(graph)
    found: set[Any] = {value.name for value in (*graph.inputs, *graph.initializers.values())}
    found.update(map(_NAME, nodes), map(_NAME, chain.from_iterable(map(_OUTPUTS, nodes))))
    return found.union(*[names_of(body) for node in nodes if node.attributes.data for body in opaque.bodies(node)])


def _source_of_alias(value: ir.Value) -> ir.Value | None:
    """The value that an output of the model is, too; ``None`` for what is no alias."""
    node = value.producer()
    return node.inputs[0] if node is not None and is_alias(node) else None


__all__ = ["NewNode", "OnnxChanges", "names_of"]

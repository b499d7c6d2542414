"""The way from a rewritten view to a model: the rewrites are made in a copy, all else stays as it was."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence, Set
from functools import cached_property
from typing import Any, Final

import onnx_ir as ir

from gsl.errors import FrontEndError
from gsl.front.core.handle import Arguments, Handle, Single, intact, origins
from gsl.front.core.infer import type_of_literal
from gsl.front.core.store import FreeNames, Storer, added, foreign
from gsl.front.onnx import groups, opaque, spellings
from gsl.front.onnx.changes import NewNode, OnnxChanges
from gsl.front.onnx.files import version_of
from gsl.front.onnx.load import OnnxLeaf, node_of
from gsl.front.onnx.types import NameOf, annotate, as_torch, const_tensor, is_equal, to_onnx
from gsl.graph import GETITEM, INPUT, LEAVES, PARAM, TUPLE, Graph, Node, TupleType, Type, op_name
from gsl.graph.subgraph import Subgraph
from gsl.spec import OperatorName
from gsl.spec.natives import OnnxOp

LARGE: Final = 64
"""The number of elements from which an equal literal is not looked for."""
_NO_CALLS: Final = LEAVES | {TUPLE, GETITEM}


class OnnxStorer(Storer, spellings.OnnxTarget):
    """Writes one rewritten view into a copy of the model that it was loaded from, or into that model itself.

    A new call takes the place of the value that it replaces: its node computes that value, under its name, for the same
    users. First it is found what has to be made, in words of the old model; then that, or a copy of it, is changed,
    which can't fail.
    """

    framework = "ONNX"

    def __init__(
        self, graph: Graph, model: ir.Model, name_of: NameOf, taken: Set[str] = frozenset(), *, in_place: bool = False
    ) -> None:
        spellings.OnnxTarget.__init__(self, version_of(model) or 0)
        Storer.__init__(self, graph)
        self.old = model
        self._literals: dict[Any, ir.Value] = {}
        self._nodes: dict[ir.Value, Node] = {}
        """The nodes of the view whose values were operands of new calls."""
        self._made: list[NewNode] = []
        """The new nodes of the call that is written."""
        self._places: dict[Node, ir.Value] = {}
        """The new calls of the view that take the places of values of the old model."""
        self._layers: set[Node] = set()
        """The calls that are written together with a bias."""
        self._same: dict[Node, Any] = {}
        """The view nodes that stay what they are in the old model, with that."""
        self._others: list[Node] = []
        """The calls that do not, and those that get other arguments."""
        self.changes = OnnxChanges(model, self._types, name_of, taken, in_place=in_place)

    def store(self) -> ir.Model | None:
        """The model; ``None`` if nothing has changed. FrontEndError if it can't be made; the model is then as it
        was."""
        given = [node for node in self.graph if node.op == INPUT]
        self.values.update({node: self.weight(node) for node in given})
        self.inputs = tuple([(self.values[node], node.type) for node in given])
        self.check_outputs(len(self.old.graph.outputs))
        self.keep_intact()
        self.store_nodes(self._others)
        results = list(map(self.value, self.graph.outputs))
        return self.changes.applied(results)

    # ------------------------------------------------------------ what is kept

    def keep_intact(self) -> None:
        kept: dict[Any, Arguments] = {}
        inner: set[Node] = set()
        same, others = self._same, self._others
        self._find_places()
        same.update(self._places)
        for node in self.graph.nodes:
            own = node.native
            if own.__class__ is Single:
                used = (*node.operands, *node.deps) if node.deps else node.operands
                if tuple(map(same.get, used)) == own.sources:  # as nearly always
                    same[node] = own.native
                    continue
            elif own.__class__ is OnnxLeaf:
                same[node] = own.value
                continue
            found = None if own is None or not own.is_root else intact(node, self.outputs)
            if found is None:
                others.append(node)
                continue
            tree, arguments = found
            inner.update(tree[1:])
            moved = any(same.get(operand) is not source for source, operand in arguments.items())
            if moved:
                others.append(node)
                if node.op == GETITEM and own.reading.size == 1:  # the field of another tuple is another value
                    continue
                kept[own.reading] = arguments
            same[node] = own.reading.native
        self.kept, self.inner = kept, inner
        for node in self._places:
            del same[node]
        self._add_layers()

    def _find_places(self) -> None:
        """Find the new calls that stand for values of the old model which nothing in the view stands for any more."""
        # What a rule replaced may have been made by another rule, for a value of the old model.
        replaced = {new: old for node in self.graph.nodes if node.redirects for old, new in node.redirects.items()
                    if new.native is None and old.native is not None}  # fmt: skip
        for new, value in zip(self.graph.outputs, self.old.graph.outputs):
            if new.native is None:
                replaced.update((new, old) for old in origins(new) if old.native.reading.native is value)
        alive, taken = set(self.graph.nodes) if replaced else set(), set[ir.Value]()
        for new, old in replaced.items():
            own = old.native
            if old in alive or not isinstance(own, Handle) or not own.is_root:
                continue
            native = own.reading.native
            if not isinstance(native, ir.Value) or native in taken or not _can_be_another(new):
                continue
            root = native.producer()
            if root is not None and len(root.outputs) == 1 and root.graph is self.old.graph:
                taken.add(native)
                self._places[new] = native
                self.note(native, old.type)

    def _add_layers(self) -> None:
        """Let dense layers and convolutions be written together with the bias that is added to them."""
        for node in self._others:
            layer = node.operands[0] if node.op == "nn.bias_add" else None
            if layer is None or self._stays(node) or self._stays(layer) or layer in self.outputs:
                continue
            if tuple(layer.users) == (node,) and spellings.takes_bias(layer, node):
                self._layers.add(layer)
        self.inner = self.inner | self._layers

    def _stays(self, node: Node) -> bool:
        return node in self._same or node in self.inner

    def value(self, node: Node) -> Any:
        found = self.values.get(node)
        if found is None and (old := self._same.get(node)) is not None:
            found = self.values[node] = self._known(node, self._all_own(node, old))
        return super().value(node) if found is None else found

    def operand(self, node: Node) -> Any:
        found = super().operand(node)
        if isinstance(found, ir.Value):
            self._nodes[found] = node
        return found

    def view_of(self, value: ir.Value) -> Node | None:
        return self._nodes.get(value)

    def _all_own(self, node: Node, native: Any) -> Any:
        """The value that is written for a native value, or those for all that a native node computes."""
        if isinstance(native, ir.Value):
            return self._own(node, native)
        return tuple([self._own(node, value) for value in native.outputs])

    def keep(self, node: Node, reading: Any) -> Any:
        native = reading.native
        own = self._all_own(node, native)
        moved: dict[ir.Value, ir.Value] = {}
        for source, view in self.kept[reading].items():
            if isinstance(source, ir.Value) and source is not (value := self.value(view)):
                moved[source] = value
        if moved:
            root = node_of(native)
            assert root is not None
            self._move_to(root, reading.through, moved)
        return self._known(node, own)

    def _move_to(self, root: ir.Node, through: Iterable[ir.Value], moved: dict[ir.Value, ir.Value]) -> None:
        """Note that a node of the old model, which is read together with others, will use other values."""
        for value in through:
            inner = value.producer()
            assert inner is not None
            if not moved.keys().isdisjoint(inner.inputs):
                moved[value] = self._again(inner, moved)
        self.changes.moved[root] = moved

    def _again(self, old: ir.Node, moved: Mapping[ir.Value, ir.Value]) -> ir.Value:
        """A node of the model once more, with other inputs."""
        inputs = [None if value is None else moved.get(value, value) for value in old.inputs]
        (value,) = self.node(old.op_type, inputs, list(old.attributes.values()), domain=old.domain)
        value.type, value.shape = old.outputs[0].type, old.outputs[0].shape
        self._place(old)
        return value

    def _own(self, node: Node, old: ir.Value) -> ir.Value:
        """The value in the model that is written for that of a node. FrontEndError for one of another model."""
        if old.graph is not self.old.graph:
            raise foreign(node, self.framework)
        return old

    def _known(self, node: Node, value: Any) -> Any:
        """The value of a node, whose type is noted."""
        if isinstance(value, ir.Value):
            self._types.setdefault(value, node.type)
        elif isinstance(node.type, TupleType):
            for item, type in zip(value, node.type.fields):
                self._types.setdefault(item, type)
        return value

    # ------------------------------------------------------------ what is new

    def number(self, node: Node) -> ir.Value:
        return self.literal(node.attrs["value"], node.dtype or "float32")

    def weight(self, node: Node) -> ir.Value:
        if isinstance(node.native, OnnxLeaf):
            value = self._own(node, node.native.value)
        elif node.op == INPUT:
            raise added(node, self.framework)
        elif node.op == PARAM:
            value = self._initializer(node.attrs["value"], node.name or "weight")
        else:
            value = self.tensor(as_torch(node.attrs["value"]))
        return self._known(node, value)  # type: ignore[no-any-return]

    def write(self, node: Node) -> Any:
        value, old = self._written(node), self._places.get(node)
        if old is not None:
            value = self._take_place(old, value)
        if self._made:
            self._place(self._root(node) if old is None else old.producer())
        return self._known(node, value)

    def _take_place(self, old: ir.Value, value: ir.Value) -> ir.Value:
        """Let a value that was written stand in the place of one of the old model: what is used there."""
        if value is old or self._is_written(old, value):
            return old
        if not self._made or value not in self._made[-1].outputs:  # it is computed elsewhere, too
            if not old.is_graph_output():
                self.changes.instead[old] = value
                return value
            self.node("Identity", [value], ())
        return self._rewrite(old, self._made.pop(), self.type_of(value))

    def _is_written(self, old: ir.Value, value: ir.Value) -> bool:
        """True if the old model has just those nodes that would compute its value anew: they stay then."""
        last, node = self._made[-1] if self._made else None, old.producer()
        if last is None or node is None or last.op != node.op_type or value not in last.outputs:
            return False
        made = {new.outputs[0]: new for new in self._made if len(new.outputs) == 1}
        found: dict[ir.Value, ir.Value] = {}
        if len(made) < len(self._made) or not self._is_alike(old, value, made, found) or found.keys() != made.keys():
            return False
        self._made = []
        self._sizes = {symbol: found.get(size, size) for symbol, size in self._sizes.items()}
        return True

    def _is_alike(
        self, old: ir.Value | None, value: ir.Value | None, made: Mapping[ir.Value, NewNode],
        found: dict[ir.Value, ir.Value],
    ) -> bool:  # fmt: skip
        """True if a value of the old model is computed as one that was written, and stays so; ``found`` gets the old
        values by the new ones."""
        if old is None or value is None or old is value:
            return old is value
        new, node = made.get(value), old.producer()
        if new is None:
            return value in self.changes.initializers and not old.is_graph_input() and is_equal(
                const_tensor(old), value.const_value
            )
        if node is None or (found and node in self._changing) or not new.is_like(node):
            return False
        found[value] = old
        return all(self._is_alike(*pair, made, found) for pair in zip(node.inputs, new.inputs))

    @cached_property
    def _changing(self) -> Set[ir.Node]:
        """The nodes of the old model that will compute something else, or use other values."""
        return {root for native in (*self._places.values(), *(reading.native for reading in self.kept))
                if (root := node_of(native)) is not None}  # fmt: skip

    def _rewrite(self, old: ir.Value, new: NewNode, type: Type | None) -> ir.Value:
        """Let a value of the old model be computed by a new node, of the old type if none is known."""
        self.changes.rewrite(old, new)
        self.note(old, type or self.type_of(old))
        return old

    def _written(self, node: Node) -> Any:
        op: Any = node.op
        try:
            if op.__class__ is OnnxOp:
                return self._native(node, op)
            if isinstance(op, Subgraph):
                return self._group(node, op)
            if isinstance(op, OperatorName):
                op = opaque.target_named(op)
            if not isinstance(op, str):
                return self._native(node, op)
            layer = node.operands[0] if node.operands and node.operands[0] in self._layers else None
            if layer is not None:
                operands = [self.operand(operand) for operand in (*layer.operands, node.operands[1])]
                return spellings.write(str(layer.op), layer.attrs, operands, self)
            return spellings.write(op, node.attrs, [self.operand(operand) for operand in node.operands], self)
        except FrontEndError:
            raise
        except Exception as error:
            name = node.name or op_name(node.op)
            raise FrontEndError(f"{name}: {op_name(node.op)} can't be written in ONNX: {error}") from error

    def _native(self, node: Node, op: Any) -> Any:
        """A call of a native operator."""
        inputs, attributes = opaque.arguments(op, list(map(self.value, node.operands)), node.attrs)
        return self._call(node, op, inputs, attributes)

    def _group(self, node: Node, group: Subgraph) -> Any:
        """A call of an outlined group, and the function that it calls."""
        groups.check(self.old, group, node.attrs)
        view, inputs, names = group.body.copy(), [], FreeNames()
        for part in view:
            part.native = None
            if part.op == INPUT:
                inputs.append(ir.Value(name=names.free(part.name)))
                annotate(inputs[-1], part.type, self.changes.name_of)
                part.native = OnnxLeaf(inputs[-1])
        model = groups.draft(self.old, inputs, [output.type for output in view.outputs], self.changes.name_of)
        OnnxStorer(view, model, self.changes.name_of, in_place=True).store()
        function = groups.function_of(model, self._function_names.free(group.name), node)
        self.changes.functions += [*model.functions.values(), function]
        return self._call(node, OnnxOp(function.name, function.domain), list(map(self.value, node.operands)), ())

    def _call(self, node: Node, op: OnnxOp, inputs: Sequence[Any], attributes: Sequence[ir.Attr]) -> Any:
        """A call with a value for each field of the type, or of those that are used."""
        old = self._places.get(node)
        if old is not None:
            return self._rewrite(old, NewNode(op.domain, op.name, inputs, attributes), node.type)
        types = node.type.fields if isinstance(node.type, TupleType) else (node.type,)
        fields = [user.attrs["index"] for user in node.users if user.op == GETITEM]
        count = max([len(types), *(index + 1 for index in fields)])
        made = self.node(op.name, inputs, attributes, domain=op.domain, outputs=count)
        for value, type in zip(made, types):
            self.note(value, type)
        return tuple(made) if fields or count > 1 else made[0]

    # ------------------------------------------------------------ what writers ask for

    def node(
        self, op: str, inputs: Sequence[Any], attributes: Sequence[ir.Attr], *, domain: str = "", outputs: int = 1
    ) -> Sequence[ir.Value]:
        """The outputs of a new node."""
        made = NewNode(domain, op, inputs, attributes, [ir.Value() for _ in range(outputs)])
        self._made.append(made)
        return made.outputs

    def tensor(self, tensor: Any) -> ir.Value:
        """A small tensor as an initialiser, which is shared by all that need an equal one."""
        if tensor.numel() > LARGE:
            return self._initializer(tensor, "literal")
        key = (tensor.dtype, tuple(tensor.shape), to_onnx(tensor).tobytes())
        if key not in self._literals:
            self._literals[key] = self._initializer(tensor, "literal")
        return self._literals[key]

    def _initializer(self, tensor: Any, wanted: str) -> ir.Value:
        name = self.changes.names.free(wanted)
        native = to_onnx(tensor, name)
        value = ir.Value(name=name, type=ir.TensorType(native.dtype), shape=native.shape, const_value=native)
        self._types[value] = type_of_literal(tensor)
        self.changes.initializers.append(value)
        return value

    @cached_property
    def _function_names(self) -> FreeNames:
        """The names that the functions of new groups may have."""
        return FreeNames({function.name for function in self.old.functions.values()})

    # ------------------------------------------------------------ the places of nodes

    def _root(self, node: Node) -> ir.Node | None:
        """The last of the nodes of the model in whose places a new one stands."""
        roots = [node_of(old.native.reading.native) for old in origins(node)]
        known = [root for root in roots if root is not None]
        return known[0] if len(known) == 1 else max(known, key=self.changes.order.__getitem__, default=None)

    def _place(self, root: ir.Node | None) -> None:
        """Let the new nodes of a call stand where one of the model stands, or at the end."""
        made, self._made = self._made, []
        self.changes.place(root, made)


def try_call(
    model: ir.Model, target: spellings.OnnxTarget, op: Any, operands: Sequence[Node], attrs: Mapping[str, Any]
) -> None:
    """Raise FrontEndError if a new call can't be written in a model, on operands of these types."""
    if isinstance(op, Subgraph):
        groups.check(model, op, attrs)
    elif isinstance(op, OperatorName):
        opaque.target_named(op)
    elif isinstance(op, str):
        try:
            spellings.write(op, attrs, list(map(target.operand, operands)), target)
        except ValueError as error:
            raise FrontEndError(f"{op}: can't be written in ONNX: {error}") from None


def _can_be_another(node: Node) -> bool:
    """True for a new call with one value."""
    if isinstance(node.type, TupleType) or node.op in _NO_CALLS:
        return False
    return GETITEM not in [user.op for user in node.users]


__all__ = ["OnnxStorer", "try_call"]

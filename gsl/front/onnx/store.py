"""The way from a rewritten view to a model: the rewrites are made in a copy, all else stays as it was."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import onnx_ir as ir

from gsl.errors import FrontEndError
from gsl.front.core.handle import handle_of, is_literal, origins
from gsl.front.core.store import FreeNames, Storer, added, foreign
from gsl.front.onnx import opaque, spellings
from gsl.front.onnx.load import OnnxLeaf, is_alias, is_constant
from gsl.front.onnx.types import annotate, number, to_onnx
from gsl.graph import GETITEM, INPUT, PARAM, TUPLE, Graph, Node, TensorType, TupleType, Type, op_name
from gsl.graph.subgraph import Subgraph
from gsl.spec import OperatorName

LARGE: Final = 64
"""The number of elements from which an equal literal is not looked for."""


class OnnxStorer(Storer):
    """Makes the model of one rewritten view, in a copy of the model that it was loaded from."""

    framework = "ONNX"

    def __init__(self, graph: Graph, model: ir.Model, symbols: Mapping[Any, str]) -> None:
        super().__init__(graph)
        self.old = model
        self.model = model.clone()
        self.opset = model.opset_imports.get("", 0)
        self.symbols = symbols
        """The names of the symbolic sizes."""
        self.changed = False
        self._copies: dict[ir.Value, ir.Value] = _copies(model.graph, self.model.graph)
        self._types: dict[ir.Value, Type | None] = {}
        self._literals: dict[Any, ir.Value] = {}
        self._sizes: dict[Any, ir.Value] = {}
        self._unused = _unused(self.model.graph)
        """What nothing used before."""
        self._names = FreeNames(_names(self.model.graph))
        self._made: list[ir.Node] = []
        """The new nodes of the call that is written."""
        self._order = {node: place for place, node in enumerate(model.graph)}
        self._layers: set[Node] = set()
        """The calls that are written together with a bias."""

    def store(self) -> ir.Model:
        """The model; the very same one if nothing has changed. FrontEndError if it can't be made."""
        for node in self.graph:
            if node.op == INPUT:
                self.values[node] = self.weight(node)
        self.check_outputs(len(self.old.graph.outputs))
        self.keep_intact()
        self.store_nodes(self.graph.nodes)
        self._outputs(list(map(self.value, self.graph.outputs)))
        if not self.changed:
            return self.old
        self._clean()
        self.model.graph.sort()
        return self.model

    # ------------------------------------------------------------ what is kept

    def keep_intact(self) -> None:
        super().keep_intact()
        for node in self.graph.nodes:
            layer = node.operands[0] if node.op == "nn.bias_add" else None
            if layer is None or self._is_kept(node) or self._is_kept(layer) or layer in self.outputs:
                continue
            if tuple(layer.users) == (node,) and spellings.takes_bias(layer, node):
                self._layers.add(layer)
        self.inner = self.inner | self._layers

    def _is_kept(self, node: Node) -> bool:
        handle = handle_of(node)
        return handle is not None and (node in self.inner or (handle.is_root and self.is_kept(handle.reading)))

    def keep(self, node: Node, reading: Any) -> Any:
        if node.op == GETITEM and reading.size == 1:
            return self._known(node, self._item(node))
        arguments = self.kept[reading]
        root = reading.native.producer() if isinstance(reading.native, ir.Value) else reading.native
        if root is None:  # an initialiser that the view does not understand
            return self._copied(node, reading.native)
        if root.outputs[0] not in self._copies:
            raise foreign(node, self.framework)
        moved: dict[ir.Value, ir.Value] = {}
        for source, view in arguments.items():
            if isinstance(source, ir.Value) and self.value(view) is not self._copies[source]:
                moved[source] = self.value(view)
        for value in reading.through:
            inner = value.producer()
            if not moved.keys().isdisjoint(inner.inputs):
                moved[value] = self._again(inner, moved)
        copy = self._copies[root.outputs[0]].producer()
        assert copy is not None
        self._move(copy, {self._copies[old]: new for old, new in moved.items()})
        outputs = copy.outputs
        return self._known(node, outputs[0] if isinstance(reading.native, ir.Value) else tuple(outputs))

    def _item(self, node: Node) -> Any:
        items = self.fields_of(self.value(node.operands[0]))
        if items is None:
            raise FrontEndError(f"{node.name}: {node.operands[0].name} has no fields in ONNX")
        return items[node.attrs["index"]]

    def _move(self, node: ir.Node, moved: Mapping[ir.Value, ir.Value]) -> None:
        """Let a node of the copy, and the graphs in it, use other values."""
        for part in (node, *opaque.nested(node)) if moved else ():
            for place, value in enumerate(part.inputs):
                if value is not None and value in moved:
                    part.replace_input_with(place, moved[value])
                    self.changed = True
        for body in opaque.bodies(node) if moved else ():
            for graph in (body, *body.subgraphs()):
                for place, value in enumerate(graph.outputs):
                    if value in moved:
                        graph.outputs[place] = moved[value]
                        self.changed = True

    def _again(self, old: ir.Node, moved: Mapping[ir.Value, ir.Value]) -> ir.Value:
        """A node of the model once more, with other inputs."""
        inputs = [None if value is None else moved.get(value, self._copies[value]) for value in old.inputs]
        (value,) = self.node(old.op_type, inputs, list(old.attributes.values()), domain=old.domain)
        value.type, value.shape = old.outputs[0].type, old.outputs[0].shape
        self._place(old)
        return value

    def _copied(self, node: Node, old: ir.Value) -> ir.Value:
        if old not in self._copies:
            raise foreign(node, self.framework)
        return self._known(node, self._copies[old])  # type: ignore[no-any-return]

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
            return self._copied(node, node.native.value)
        if node.op == INPUT:
            raise added(node, self.framework)
        tensor = node.attrs["value"]
        if node.op != PARAM:
            return self._known(node, self.tensor(tensor))  # type: ignore[no-any-return]
        return self._known(node, self._initializer(tensor, node.name or "weight"))  # type: ignore[no-any-return]

    def write(self, node: Node) -> Any:
        value = self._known(node, self._written(node))
        self._place(self._root(node))
        return value

    def _written(self, node: Node) -> Any:
        if node.op == GETITEM:
            return self._item(node)
        op: Any = node.op
        try:
            if isinstance(node.op, Subgraph):
                raise FrontEndError(f"{node.op.name}: a group can't be outlined in ONNX")
            if isinstance(op, OperatorName):
                op = opaque.target_named(op)
            if not isinstance(op, str):
                return self._native(node, op)
            layer = node.operands[0] if node.operands and node.operands[0] in self._layers else None
            if layer is not None:
                operands = [self._operand(operand) for operand in (*layer.operands, node.operands[1])]
                return spellings.write(str(layer.op), layer.attrs, operands, self)
            return spellings.write(op, node.attrs, [self._operand(operand) for operand in node.operands], self)
        except FrontEndError:
            raise
        except Exception as error:
            name = node.name or op_name(node.op)
            raise FrontEndError(f"{name}: {op_name(node.op)} can't be written in ONNX: {error}") from error

    def _native(self, node: Node, op: Any) -> Any:
        """A call of a native operator."""
        inputs, attributes = opaque.arguments(op, list(map(self.value, node.operands)), node.attrs)
        types = node.type.fields if isinstance(node.type, TupleType) else (node.type,)
        fields = [user.attrs["index"] for user in node.users if user.op == GETITEM]
        count = max([len(types), *(index + 1 for index in fields)])
        made = self.node(op.name, inputs, attributes, domain=op.domain, outputs=count)
        for value, type in zip(made, types):
            annotate(value, type, self.symbols)
        return tuple(made) if fields or count > 1 else made[0]

    def _operand(self, view: Node) -> Any:
        """The stand-in for an operand when a call is spelled: a value, a number, or a tuple."""
        return view.attrs["value"] if is_literal(view) else self.value(view)

    # ------------------------------------------------------------ what writers ask for

    def type_of(self, value: Any) -> Type | None:
        """The type of a value."""
        return self._types.get(value)

    def note(self, value: ir.Value, type: Type | None) -> None:
        """Note the type of a new value."""
        self._types[value] = type
        annotate(value, type, self.symbols)

    def node(
        self, op: str, inputs: Sequence[Any], attributes: Sequence[ir.Attr], *, domain: str = "", outputs: int = 1
    ) -> Sequence[ir.Value]:
        """The outputs of a new node."""
        self.changed = True
        if domain:
            self.model.opset_imports.setdefault(domain, 1)
        made = ir.Node(domain, op, inputs, attributes, num_outputs=outputs, name=self._names.free(op.lower()))
        for value in made.outputs:
            value.name = self._names.free(f"{op.lower()}_out")
        self._made.append(made)
        return made.outputs

    def literal(self, value: bool | int | float, dtype: str) -> ir.Value:
        """A number as an initialiser."""
        return self.tensor(number(value, dtype))

    def tensor(self, tensor: Any) -> ir.Value:
        """A small tensor as an initialiser, which is shared by all that need an equal one."""
        if tensor.numel() > LARGE:
            return self._initializer(tensor, "literal")
        key = (tensor.dtype, tuple(tensor.shape), to_onnx(tensor).tobytes())
        if key not in self._literals:
            self._literals[key] = self._initializer(tensor, "literal")
        return self._literals[key]

    def size(self, symbol: Any) -> ir.Value | None:
        """A tensor of one element with a symbolic size; ``None`` if no input of the model has it."""
        if symbol in self._sizes:
            return self._sizes[symbol]
        for node in self.graph:
            if node.op == INPUT and isinstance(node.type, TensorType) and symbol in node.type.shape:
                place = node.type.shape.index(symbol)
                attributes = ir.convenience.convert_attributes({"start": place, "end": place + 1})
                (value,) = self.node("Shape", [self.value(node)], attributes)
                self.note(value, TensorType((1,), "int64"))
                self._sizes[symbol] = value
                return value
        return None

    def _initializer(self, tensor: Any, wanted: str) -> ir.Value:
        self.changed = True
        name = self._names.free(wanted)
        native = to_onnx(tensor, name)
        value = ir.Value(name=name, type=ir.TensorType(native.dtype), shape=native.shape, const_value=native)
        self._types[value] = TensorType(tuple(tensor.shape), str(tensor.dtype).removeprefix("torch."))
        self.model.graph.register_initializer(value)
        return value

    # ------------------------------------------------------------ the whole

    def _root(self, node: Node) -> ir.Node | None:
        """The last of the nodes of the model in whose places a new one stands."""
        natives = [handle.reading.native for old in origins(node) if (handle := handle_of(old)) is not None]
        roots = [native.producer() if isinstance(native, ir.Value) else native for native in natives]
        return max([root for root in roots if root is not None], key=self._order.__getitem__, default=None)

    def _place(self, root: ir.Node | None) -> None:
        """Put the new nodes where one of the model stands, or at the end."""
        made, self._made = self._made, []
        if not made:
            return
        copy = None if root is None else self._copies[root.outputs[0]].producer()
        if copy is None or root is None:
            self.model.graph.extend(made)
            return
        for node in made:
            node.metadata_props.update(root.metadata_props)
        self.model.graph.insert_before(copy, made)

    def _outputs(self, results: Sequence[Any]) -> None:
        """Let these be the outputs, under the names that they had."""
        graph = self.model.graph
        for place, (old, new) in enumerate(zip(list(graph.outputs), results)):
            producer = old.producer()
            if old is new or (producer is not None and is_alias(producer) and producer.inputs[0] is new):
                continue
            self.changed = True
            name = old.name
            producer = new.producer()
            if producer is None or is_constant(producer) or new.is_graph_output() or new in results[:place]:
                (new,) = self.node("Identity", [new], [])
                self._place(None)
            old.name = self._names.free(f"{name}_before")
            new.name = name
            new.type, new.shape = old.type, old.shape
            new.doc_string = old.doc_string
            new.metadata_props.update(old.metadata_props)
            graph.outputs[place] = new

    def _clean(self) -> None:
        """Remove what has lost its last user."""
        graph = self.model.graph
        for node in reversed(list(graph)):
            used = any(value.uses() or value.is_graph_output() for value in node.outputs)
            if not used and node not in self._unused and opaque.effect_of(node) is None:
                graph.remove(node, safe=True)
        for name, value in list(graph.initializers.items()):
            is_used = value.uses() or value.is_graph_output() or value.is_graph_input()
            if not is_used and value not in self._unused:
                del graph.initializers[name]


class OnnxDraft:
    """A model into which nothing is written: it tells whether a call can be."""

    def __init__(self, model: ir.Model) -> None:
        self.opset = model.opset_imports.get("", 0)
        self._types: dict[ir.Value, Type | None] = {}

    def try_call(self, op: Any, operands: Sequence[Node], attrs: Mapping[str, Any]) -> None:
        """Raise FrontEndError if a new call can't be written, on operands of these types."""
        if isinstance(op, OperatorName):
            opaque.target_named(op)
        elif isinstance(op, str):
            try:
                spellings.write(op, attrs, [self._operand(operand) for operand in operands], self)
            except ValueError as error:
                raise FrontEndError(f"{op}: can't be written in ONNX: {error}") from None

    def _operand(self, node: Node) -> Any:
        if is_literal(node):
            return node.attrs["value"]
        if node.op == TUPLE:
            return tuple(map(self._operand, node.operands))
        return self._value(node.type)

    def _value(self, type: Type | None) -> ir.Value:
        value = ir.Value()
        self._types[value] = type
        return value

    def type_of(self, value: Any) -> Type | None:
        return self._types.get(value)

    def note(self, value: ir.Value, type: Type | None) -> None:
        self._types[value] = type

    def node(self, op: str, inputs: Any, attributes: Any, *, domain: str = "", outputs: int = 1) -> Sequence[ir.Value]:
        return [ir.Value() for _ in range(outputs)]

    def literal(self, value: bool | int | float, dtype: str) -> ir.Value:
        return self.tensor(number(value, dtype))

    def tensor(self, tensor: Any) -> ir.Value:
        return self._value(TensorType(tuple(tensor.shape), str(tensor.dtype).removeprefix("torch.")))

    def size(self, symbol: Any) -> ir.Value:
        return self._value(TensorType((1,), "int64"))


def _copies(old: ir.Graph, new: ir.Graph) -> dict[ir.Value, ir.Value]:
    """The values of the copy of a graph, by those of the graph."""
    found = dict(zip(old.inputs, new.inputs))
    found.update({value: new.initializers[name] for name, value in old.initializers.items()})
    for one, other in zip(old, new):
        found.update(zip(one.outputs, other.outputs))
    return found


def _unused(graph: ir.Graph) -> set[Any]:
    """The nodes and initialisers that nothing uses."""
    nodes = {node for node in graph if not any(v.uses() or v.is_graph_output() for v in node.outputs)}
    return nodes | {v for v in graph.initializers.values() if not (v.uses() or v.is_graph_output())}


def _names(graph: ir.Graph) -> set[str]:
    """All names of values and nodes, those of inner graphs included."""
    found = {value.name for value in (*graph.inputs, *graph.initializers.values())}
    for inner in graph.subgraphs():
        found.update(value.name for value in (*inner.inputs, *inner.initializers.values()))
    for node in graph.all_nodes():
        found.add(node.name)
        found.update(value.name for value in node.outputs)
    return {name for name in found if name}


__all__ = ["OnnxDraft", "OnnxStorer"]

"""The way from a rewritten view to a model: the rewrites are made in a copy, all else stays as it was."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence, Set
from functools import cached_property
from itertools import chain
from operator import attrgetter
from typing import Any, Final

import onnx_ir as ir

from gsl.errors import FrontEndError
from gsl.front.core.handle import Arguments, Handle, Single, handle_of, intact, is_literal, origins
from gsl.front.core.store import FreeNames, Storer, added, foreign
from gsl.front.onnx import groups, opaque, spellings
from gsl.front.onnx.copying import Copies, copied, keep_meta, props
from gsl.front.onnx.load import OnnxLeaf, is_alias, is_constant
from gsl.front.onnx.types import annotate, number, to_onnx
from gsl.graph import GETITEM, INPUT, LEAVES, PARAM, TUPLE, Graph, Node, TensorType, TupleType, Type, op_name
from gsl.graph.subgraph import Subgraph
from gsl.spec import OperatorName
from gsl.spec.natives import OnnxOp

_NAME: Final = attrgetter("name")
_OUTPUTS: Final = attrgetter("outputs")
LARGE: Final = 64
"""The number of elements from which an equal literal is not looked for."""


class NewNode:
    """A node that is to be made: it uses nothing of the model yet."""

    __slots__ = ("attributes", "domain", "inputs", "op", "outputs", "root")

    def __init__(
        self, domain: str, op: str, inputs: Sequence[ir.Value | None], attributes: Sequence[ir.Attr],
        outputs: Sequence[ir.Value],
    ) -> None:
        self.domain, self.op, self.inputs, self.attributes, self.outputs = domain, op, inputs, attributes, outputs
        self.root: ir.Node | None = None
        """The node of the old model whose documentation it gets."""

    def used(self) -> list[ir.Value]:
        """The values that it and the graphs in it use."""
        return _used_by(self.inputs, self.attributes)


class OnnxStorer(Storer):
    """Writes one rewritten view into a copy of the model that it was loaded from, or into that model itself.

    A new call takes the place of the value that it replaces: its node computes that value, under its name, for the same
    users. First it is found what has to be made; then the model is copied without what has died, or changed, which
    can't fail.
    """

    framework = "ONNX"

    def __init__(
        self, graph: Graph, model: ir.Model, symbols: Callable[[], Mapping[Any, str]], taken: Set[str] = frozenset(), *,
        in_place: bool = False,
    ) -> None:
        super().__init__(graph)
        self.old = model
        self._copies = None if in_place else Copies()
        self.opset = model.opset_imports.get("", 0)
        self.symbols = symbols
        """A function that gives the names of the symbolic sizes."""
        self._types: dict[ir.Value, Type | None] = {}
        self._literals: dict[Any, ir.Value] = {}
        self._sizes: dict[Any, ir.Value] = {}
        self._taken = taken
        """Names that new things must not have, besides those of the model."""
        self._made: list[NewNode] = []
        """The new nodes of the call that is written."""
        self._placed: dict[ir.Node | None, list[NewNode]] = {}
        """New nodes, by the nodes of the old model in front of which they will stand; ``None``: at the end."""
        self._places: dict[Node, ir.Value] = {}
        """The new calls of the view that take the places of values of the old model."""
        self._rewritten: dict[ir.Node, NewNode] = {}
        """The nodes of the old model that will compute their values in another way."""
        self._instead: dict[ir.Value, ir.Value] = {}
        """The values of the old model in whose places others will be used, by all their users."""
        self._initializers: list[ir.Value] = []
        """The new ones."""
        self._functions: list[ir.Function] = []
        """Those of the new groups."""
        self._moved: dict[ir.Node, Mapping[ir.Value, ir.Value]] = {}
        """The nodes of the old model that will use other values, by those of it that they use."""
        self._lost: list[ir.Value] = []
        """The values that may have lost their last user."""
        self._layers: set[Node] = set()
        """The calls that are written together with a bias."""
        self._same: dict[Node, Any] = {}
        """The view nodes that stay what they are in the old model, with that."""
        self._others: list[Node] = []
        """The calls that do not, and those that get other arguments."""
        self._nodes = tuple(model.graph)
        """Those of the old model in order: to walk its linked list takes three times as long."""

    def store(self) -> ir.Model:
        """The model; the very same one if nothing has changed. FrontEndError if it can't be made; the model is then as
        it was."""
        for node in self.graph:
            if node.op == INPUT:
                self.values[node] = self.weight(node)
        self.check_outputs(len(self.old.graph.outputs))
        self.keep_intact()
        self.store_nodes(self._others)
        results = list(map(self.value, self.graph.outputs))
        ends = self._changed_ends(results)
        if not (self._placed or self._rewritten or self._instead or self._initializers or self._moved or ends):
            return self.old
        return self._write(results, ends)

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
                for source, operand in zip(own.sources, (*node.operands, *node.deps) if node.deps else node.operands):
                    if same.get(operand) is not source:
                        break
                else:  # as nearly always
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
                kept[own.reading] = arguments
                others.append(node)
            if not moved or node.op != GETITEM:  # the field of another tuple is another value
                same[node] = own.reading.native
        self.kept, self.inner = kept, inner
        for node in self._places:
            del same[node]
        self._add_layers()

    def _find_places(self) -> None:
        """Find the new calls that stand for values of the old model which nothing in the view stands for any more."""
        replaced: dict[Node, Node] = {}
        for node in self.graph.nodes:
            if node.redirects is not None:
                replaced.update((new, old) for old, new in node.redirects.items() if new.native is None)
        for new, value in zip(self.graph.outputs, self.old.graph.outputs):
            if new.native is None:
                replaced.update((new, old) for old in origins(new) if old.native.reading.native is value)
        alive, taken = set(self.graph.nodes) if replaced else set(), set[ir.Value]()
        for new, old in replaced.items():
            native = old.native.reading.native if isinstance(old.native, Handle) and old.native.is_root else None
            if old in alive or not isinstance(native, ir.Value) or native in taken or not _can_be_another(new):
                continue
            root = native.producer()
            if root is not None and len(root.outputs) == 1 and root.graph is self.old.graph:
                taken.add(native)
                self._places[new] = native

    def _add_layers(self) -> None:
        """Let dense layers and convolutions be written together with the bias that is added to them."""
        for node in self._others:
            layer = node.operands[0] if node.op == "nn.bias_add" else None
            if layer is None or self._is_kept(node) or self._is_kept(layer) or layer in self.outputs:
                continue
            if tuple(layer.users) == (node,) and spellings.takes_bias(layer, node):
                self._layers.add(layer)
        self.inner = self.inner | self._layers

    def _is_kept(self, node: Node) -> bool:
        handle = handle_of(node)
        return node in self._same or (
            handle is not None and (node in self.inner or (handle.is_root and self.is_kept(handle.reading)))
        )

    def value(self, node: Node) -> Any:
        if node not in self.values and (old := self._same.get(node)) is not None:
            self.values[node] = self._known(node, self._all_own(node, old))
        return super().value(node)

    def _all_own(self, node: Node, native: Any) -> Any:
        """What is written for a native value, or for all of those that a native node computes."""
        if isinstance(native, ir.Value):
            return self._own(node, native)
        return tuple([self._own(node, value) for value in native.outputs])

    def keep(self, node: Node, reading: Any) -> Any:
        native = reading.native
        if node.op == GETITEM and reading.size == 1:
            return self._known(node, self._item(node))
        own = self._all_own(node, native)
        moved: dict[ir.Value, ir.Value] = {}
        for source, view in self.kept[reading].items():
            if isinstance(source, ir.Value) and not self._is_copy(source, value := self.value(view)):
                moved[source] = value
        if moved:
            root: Any = native.producer() if isinstance(native, ir.Value) else native
            self._move_to(root, reading.through, moved)
        return self._known(node, own)

    def _move_to(self, root: ir.Node, through: Iterable[ir.Value], moved: dict[ir.Value, ir.Value]) -> None:
        """Note that a node of the old model, which is read together with others, will use other values."""
        for value in through:
            inner = value.producer()
            assert inner is not None
            if not moved.keys().isdisjoint(inner.inputs):
                moved[value] = self._again(inner, moved)
        self._moved[root] = moved

    def _item(self, node: Node) -> Any:
        items = self.fields_of(self.value(node.operands[0]))
        if items is None:
            raise FrontEndError(f"{node.name}: {node.operands[0].name} has no fields in ONNX")
        return items[node.attrs["index"]]

    def _again(self, old: ir.Node, moved: Mapping[ir.Value, ir.Value]) -> ir.Value:
        """A node of the model once more, with other inputs."""
        inputs = [
            None if value is None else moved[value] if value in moved else self._copy(value) for value in old.inputs
        ]
        (value,) = self.node(old.op_type, inputs, list(old.attributes.values()), domain=old.domain)
        value.type, value.shape = old.outputs[0].type, old.outputs[0].shape
        self._place(old)
        return value

    def _copy(self, old: ir.Value) -> ir.Value:
        """The value in the model that is written for one of the old model."""
        return old if self._copies is None else self._copies[old]

    def _is_copy(self, old: ir.Value | None, value: Any) -> bool:
        """True if a value is written for that one of the old model."""
        return old is not None and value is (old if self._copies is None else self._copies.get(old))

    def _own(self, node: Node, old: ir.Value) -> ir.Value:
        """The value in the model that is written for that of a node. FrontEndError for one of another model."""
        if old.graph is not self.old.graph:
            raise foreign(node, self.framework)
        return self._copy(old)

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
            return self._known(node, self._own(node, node.native.value))  # type: ignore[no-any-return]
        if node.op == INPUT:
            raise added(node, self.framework)
        tensor = node.attrs["value"]
        if node.op != PARAM:
            return self._known(node, self.tensor(tensor))  # type: ignore[no-any-return]
        return self._known(node, self._initializer(tensor, node.name or "weight"))  # type: ignore[no-any-return]

    def write(self, node: Node) -> Any:
        value, old = self._written(node), self._places.get(node)
        if old is not None:
            value = self._take_place(old, value)
        self._place(self._root(node) if old is None else old.producer())
        return self._known(node, value)

    def _take_place(self, old: ir.Value, value: ir.Value) -> ir.Value:
        """Let a value that was written stand in the place of one of the old model: what is used there."""
        if not self._made or value not in self._made[-1].outputs:  # it is computed elsewhere, too
            if not old.is_graph_output():
                self._instead[old] = value
                return value
            self.node("Identity", [value], ())
        new, root, own = self._made.pop(), old.producer(), self._copy(old)
        assert root is not None
        new.outputs = (own,)
        self._rewritten[root] = new
        return own

    def _written(self, node: Node) -> Any:
        if node.op == GETITEM:
            return self._item(node)
        op: Any = node.op
        try:
            if isinstance(node.op, Subgraph):
                return self._group(node, node.op)
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
        return self._call(node, op, inputs, attributes)

    def _group(self, node: Node, group: Subgraph) -> Any:
        """A call of an outlined group, and the function that it calls."""
        groups.check(self.old, group, node.attrs)
        view, inputs, names = group.body.copy(), [], FreeNames()
        for part in view:
            part.native = None
            if part.op == INPUT:
                inputs.append(ir.Value(name=names.free(part.name)))
                annotate(inputs[-1], part.type, self._name_of)
                part.native = OnnxLeaf(inputs[-1])
        model = groups.draft(self.old, inputs, [output.type for output in view.outputs], self._name_of)
        OnnxStorer(view, model, self.symbols, in_place=True).store()
        function = groups.function_of(model, self._function_names.free(group.name), node)
        self._functions += [*model.functions.values(), function]
        return self._call(node, OnnxOp(function.name, function.domain), list(map(self.value, node.operands)), ())

    def _call(self, node: Node, op: OnnxOp, inputs: Sequence[Any], attributes: Sequence[ir.Attr]) -> Any:
        """A call with a value for each field of the type, or of those that are used."""
        types = node.type.fields if isinstance(node.type, TupleType) else (node.type,)
        fields = [user.attrs["index"] for user in node.users if user.op == GETITEM]
        count = max([len(types), *(index + 1 for index in fields)])
        made = self.node(op.name, inputs, attributes, domain=op.domain, outputs=count)
        for value, type in zip(made, types):
            self.note(value, type)
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

    def node(
        self, op: str, inputs: Sequence[Any], attributes: Sequence[ir.Attr], *, domain: str = "", outputs: int = 1
    ) -> Sequence[ir.Value]:
        """The outputs of a new node."""
        if any(value is not None and not isinstance(value, ir.Value) for value in inputs):
            raise ValueError(f"an operand of {op} is a tuple, and nodes of ONNX take values one by one")
        made = NewNode(domain, op, inputs, attributes, [ir.Value() for _ in range(outputs)])
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
        name = self._names.free(wanted)
        native = to_onnx(tensor, name)
        value = ir.Value(name=name, type=ir.TensorType(native.dtype), shape=native.shape, const_value=native)
        self._types[value] = TensorType(tuple(tensor.shape), str(tensor.dtype).removeprefix("torch."))
        self._initializers.append(value)
        return value

    def _name_of(self, size: Any) -> str | None:
        """The name of a symbolic size in the model, if it has one."""
        return self._symbols.get(size)

    @cached_property
    def _symbols(self) -> Mapping[Any, str]:
        return self.symbols()

    @cached_property
    def _names(self) -> FreeNames:
        """The names that new things may have."""
        return FreeNames(names_of(self.old.graph, self._nodes) | self._taken)

    @cached_property
    def _function_names(self) -> FreeNames:
        """The names that the functions of new groups may have."""
        return FreeNames({function.name for function in self.old.functions.values()})

    # ------------------------------------------------------------ the whole

    @cached_property
    def _order(self) -> Mapping[ir.Node, int]:
        return {node: place for place, node in enumerate(self._nodes)}

    def _root(self, node: Node) -> ir.Node | None:
        """The last of the nodes of the model in whose places a new one stands."""
        natives = [old.native.reading.native for old in origins(node)]
        roots = [native.producer() if isinstance(native, ir.Value) else native for native in natives]
        known = [root for root in roots if root is not None]
        return known[0] if len(known) == 1 else max(known, key=self._order.__getitem__, default=None)

    def _place(self, root: ir.Node | None) -> None:
        """Let the new nodes stand where one of the model stands, or at the end."""
        made, self._made = self._made, []
        if made:
            for new in made:
                new.root = root
            self._placed.setdefault(root, []).extend(made)

    def _changed_ends(self, results: Sequence[ir.Value]) -> list[int]:
        """The places of the outputs that are other values now."""
        return [
            place for place, (old, new) in enumerate(zip(self.old.graph.outputs, results))
            if not (self._is_copy(old, new) or self._is_copy(_source_of_alias(old), new))
        ]  # fmt: skip

    def _write(self, results: Sequence[ir.Value], ends: Sequence[int]) -> ir.Model:
        """The old model with the changes, or a copy that has them."""
        copies, is_sorted = self._copies, self._is_sorted()
        placed = {root: list(map(self._node, made)) for root, made in self._placed.items()}
        if copies is None:
            model = self.old
            self._change(model.graph, placed)
        else:
            copies.update(self._instead)
            needed = self._needed(copies, ends)
            rewritten = {root: self._node_like(root, new) for root, new in self._rewritten.items()}
            model = copied(self.old, copies, needed, placed, rewritten)
        graph = model.graph
        for value in self._initializers:
            graph.register_initializer(value)
        for new in chain.from_iterable((*self._placed.values(), self._rewritten.values())):
            if new.domain:
                model.opset_imports.setdefault(new.domain, 1)
        model.functions.update({function.identifier(): function for function in self._functions})
        for node, values in self._moved.items():
            self._move(node, values)
        for place in ends:
            self._end(graph, place, results)
        self._clean(graph, chain.from_iterable(placed.values()))
        if not is_sorted:
            graph.sort()
        groups.sweep(model)
        return model

    def _node(self, new: NewNode) -> ir.Node:
        """A node that is to be made, with names and types."""
        name, root = new.op.lower(), new.root
        for value in new.outputs:
            value.name = self._names.free(f"{name}_out")
            annotate(value, self._types.get(value), self._name_of)
        return ir.Node(
            new.domain, new.op, new.inputs, new.attributes, outputs=new.outputs, name=self._names.free(name),
            metadata_props=None if root is None else props(root),
        )  # fmt: skip

    def _node_like(self, old: ir.Node, new: NewNode) -> ir.Node:
        """The node that is written in the place of one of the old model, with what is said of that."""
        made = ir.Node(
            new.domain, new.op, new.inputs, new.attributes, outputs=new.outputs, name=old.name,
            doc_string=old.doc_string, metadata_props=props(old),
        )  # fmt: skip
        keep_meta(old, made)
        return made

    def _change(self, graph: ir.Graph, placed: Mapping[ir.Node | None, Sequence[ir.Node]]) -> None:
        """Let the graph of the old model itself have the new nodes, and values computed in another way."""
        for root, made in placed.items():
            if root is None:
                graph.extend(made)
            else:
                graph.insert_before(root, made)
        for node, new in self._rewritten.items():
            self._rewrite(node, new)
        for old, value in self._instead.items():
            old.replace_all_uses_with(value)
            self._lost.append(old)

    def _rewrite(self, node: ir.Node, new: NewNode) -> None:
        """Let a node of the old model compute its value in another way."""
        self._lost += [*filter(None, node.inputs), *(_let_go(node) if node.attributes.data else ())]
        node.domain, node.op_type, node.overload, node.version = new.domain, new.op, "", None
        node.device_configurations = ()
        if node.attributes.data:
            node.attributes.clear()
        for attr in new.attributes:
            node.attributes.add(attr)
        node.resize_inputs(len(new.inputs))
        for place, value in enumerate(new.inputs):
            if node.inputs[place] is not value:
                node.replace_input_with(place, value)

    def _needed(self, copies: Copies, ends: Sequence[int]) -> set[ir.Node]:
        """The nodes of the old model that the new one has: what stays, what that uses, and what nothing ever used."""
        gone = {*self._rewritten, *(old.producer() for old in self._instead)}
        kept = [*copies, *(value for place, value in enumerate(self.old.graph.outputs) if place not in ends)]
        work = [node for value in kept if (node := value.producer()) is not None]
        needed: set[ir.Node] = set()
        for view, native in self._same.items():
            root = native.producer() if isinstance(native, ir.Value) else native
            if root is not None and (view.users or view in self.outputs or view.native.__class__ is not OnnxLeaf):
                needed.add(root)
                own = view.native
                shown = own.__class__ is Single and all(map(own.sources.__contains__, root.inputs))
                if root.attributes.data or not shown:
                    work.append(root)  # it may use what the view does not show
        work += [node for node in self._nodes if node not in needed and not _is_used(node)]
        done: set[ir.Node] = set()
        while work:
            node = work.pop()
            if node not in done and node not in gone:
                done.add(node)
                moved = self._moved.get(node, ())
                work += [source for value in _used_by(node.inputs, node.attributes.data.values())
                         if value not in moved and (source := value.producer()) is not None]  # fmt: skip
        return needed | done

    def _is_sorted(self) -> bool:
        """True if new nodes, and those that will use other values, will stand behind what they use."""
        if self._instead:
            return False
        order = self._order if self._placed or self._moved or self._rewritten else {}
        copies = {} if self._copies is None else {new: old for old, new in self._copies.items()}
        ranks = {value: (order.get(root, len(order)) - 1, place)  # type: ignore[arg-type]
                 for root, made in self._placed.items() for place, new in enumerate(made)
                 for value in new.outputs}  # fmt: skip

        def rank(value: ir.Value) -> tuple[int, int]:
            producer = copies.get(value, value).producer()
            return ranks.get(value, (-1, -1)) if producer is None else (order[producer], -1)

        return (
            all(rank(value) < (order[node], -1) for node, moved in self._moved.items() for value in moved.values())
            and all(rank(value) < (order[node], -1) for node, new in self._rewritten.items() for value in new.used())
            and all(rank(value) < ranks[new.outputs[0]]
                    for made in self._placed.values() for new in made for value in new.used())
        )  # fmt: skip

    def _move(self, old: ir.Node, values: Mapping[ir.Value, ir.Value]) -> None:
        """Let the node that is written for one of the old model, and the graphs in it, use other values."""
        node = self._copy(old.outputs[0]).producer()
        assert node is not None
        moved = {self._copy(value): new for value, new in values.items()}
        self._lost += moved
        for place, value in enumerate(node.inputs):
            if value is not None and value in moved:
                node.replace_input_with(place, moved[value])
        for body in opaque.bodies(node):
            opaque.replace(body, moved)

    def _end(self, graph: ir.Graph, place: int, results: Sequence[ir.Value]) -> None:
        """Let a result be an output, under the name that the output had."""
        old, new = graph.outputs[place], results[place]
        producer = new.producer()
        if producer is None or is_constant(producer) or new.is_graph_output() or new in results[:place]:
            (new,) = self.node("Identity", [new], [])
            graph.extend(map(self._node, self._made))
            self._made.clear()
        name = old.name
        old.name = self._names.free(f"{name}_before")
        new.name = name
        new.type, new.shape = old.type, old.shape
        new.doc_string = old.doc_string
        new.metadata_props.update(old.metadata_props)
        graph.outputs[place] = new
        self._lost.append(old)

    def _clean(self, graph: ir.Graph, made: Iterable[ir.Node]) -> None:
        """Remove what has lost its last user, and what was made for nothing."""
        dead: dict[ir.Node, None] = {}
        freed: dict[ir.Value, int] = {}
        """How many uses of each value are those of dead nodes."""

        def is_used(value: ir.Value) -> bool:
            return value.is_graph_output() or len(value.uses()) > freed.get(value, 0)

        work = [*self._lost, *self._initializers, *(value for node in made for value in node.outputs)]
        while work:
            value = work.pop()
            if is_used(value):
                continue
            node = value.producer()
            if node is None:
                if value.is_initializer() and not value.is_graph_input():
                    del graph.initializers[value.name or ""]
            elif node in dead or opaque.effect_of(node):
                continue
            elif len(node.outputs) == 1 or not any(map(is_used, node.outputs)):
                dead[node] = None
                if node.attributes.data:
                    work += _let_go(node)
                for used in filter(None, node.inputs):
                    freed[used] = freed.get(used, 0) + 1
                    work.append(used)
        for node in dead:
            for place, source in enumerate(node.inputs):
                if source is not None and source.producer() not in dead:  # what is removed may use each other
                    node.replace_input_with(place, None)
        graph.remove(dead)


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


def _can_be_another(node: Node) -> bool:
    """True for a new call with one value."""
    return (
        node.op not in LEAVES and node.op not in (TUPLE, GETITEM) and not isinstance(node.type, TupleType)
        and all(user.op != GETITEM for user in node.users)
    )  # fmt: skip


def _source_of_alias(value: ir.Value) -> ir.Value | None:
    """The value that an output of the model is, too; ``None`` for what is no alias."""
    node = value.producer()
    return node.inputs[0] if node is not None and is_alias(node) else None


def _used_by(inputs: Iterable[ir.Value | None], attributes: Collection[ir.Attr]) -> list[ir.Value]:
    """The values that a node and the graphs in it use."""
    used = [value for value in inputs if value is not None]
    return [*used, *opaque.captured(tuple(opaque.graphs(attributes)))] if attributes else used


def _is_used(node: ir.Node) -> bool:
    return any(value.uses() or value.is_graph_output() for value in node.outputs)


def _let_go(node: ir.Node) -> Sequence[ir.Value]:
    """Let the graphs in a node use nothing any more: what they used from around it."""
    used = opaque.captured(list(opaque.bodies(node)))
    for part in opaque.nested(node):
        detach(part)
    return used


def detach(node: ir.Node) -> None:
    """Let a node use nothing any more."""
    for place, value in enumerate(node.inputs):
        if value is not None:
            node.replace_input_with(place, None)


def names_of(graph: ir.Graph, nodes: Iterable[ir.Node] | None = None) -> set[Any]:
    """All names of values and nodes, those of inner graphs included; ``nodes`` are those of the graph."""
    nodes = tuple(graph) if nodes is None else nodes
    found: set[Any] = {value.name for value in (*graph.inputs, *graph.initializers.values())}
    found.update(map(_NAME, nodes), map(_NAME, chain.from_iterable(map(_OUTPUTS, nodes))))
    return found.union(*[names_of(body) for node in nodes if node.attributes.data for body in opaque.bodies(node)])


__all__ = ["OnnxDraft", "OnnxStorer", "detach", "names_of"]

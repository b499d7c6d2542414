"""Native graph to view: every native call becomes the tree of its canonical reading, or one opaque node."""

from __future__ import annotations

import operator
from collections.abc import Iterable
from typing import Any

import torch
from torch import fx

from gsl.errors import FrontEndError
from gsl.front.fx import spellings
from gsl.front.fx.canonical import canonical
from gsl.front.fx.effects import Mutations, mutations
from gsl.front.fx.groups import INVOKE, is_group, label_of, module_of, operands_of
from gsl.front.fx.handle import Handle, Leaf, Reading, Source
from gsl.front.fx.leaves import Leaves, ModuleLeaves, memory
from gsl.front.fx.opaque import describe, operator_of, parameters
from gsl.front.fx.reader import CALLS, Reader, weight
from gsl.front.fx.tree import Weight
from gsl.front.fx.values import Values, is_scalar, scalar_type, type_of_value
from gsl.front.tree import Canon, Literal
from gsl.graph import CONST, GETITEM, INPUT, TUPLE, Effect, Graph, Inference, Node, TupleType
from gsl.graph.subgraph import Subgraph
from gsl.spec import TABLE


class Loader:
    """Builds the view of one native graph."""

    def __init__(self, root: fx.GraphModule, graph: fx.Graph, leaves: Leaves, values: Values, infer: Inference) -> None:
        self.graph = graph
        self.leaves = leaves
        self.values = values
        self.infer = infer
        self.reader = Reader(root, values)
        self.nodes: list[Node] = []
        self.views: dict[fx.Node, Node] = {}
        """The view node that stands for the value of a native node."""
        self.fields: dict[fx.Node, Canon] = {}
        """The readings of fields of native calls that have no view node of their own."""
        self.groups: dict[Any, fx.GraphModule] = {}
        """The calls of outlined groups that return a tuple of one value."""
        self.hidden_calls: set[fx.Node] = set()
        """Those calls, and what else has no view node."""
        self.mutations = Mutations()
        self._leaf_views: dict[Leaf, Node] = {}

    def load(self) -> Graph:
        """The view."""
        self.mutations = mutations(self.graph, self.reader, self.leaves)
        outputs: list[Node] = []
        regions = 0
        for node in self.graph.nodes:
            regions += _opens(node)
            match node.op:
                case "placeholder" | "get_attr":
                    self._leaf(node)
                case "output":
                    outputs = [self.views[arg] for arg in arguments(node)]
                case _ if regions:
                    self._opaque(node, Effect.OTHER)
                case _ if node not in self.hidden_calls and not self.reader.is_assertion(node):
                    self._call(node)
        names = {node.name: node for node in self.graph.nodes if node.op == "placeholder"}
        written = {self.views[names[name]]: place for name, place in self.leaves.written().items()}
        return Graph(self.nodes, outputs, self.infer, canonical, written)

    # ------------------------------------------------------------ leaves

    def _leaf(self, node: fx.Node) -> None:
        kind = self.leaves.kind(node)
        if kind is None:
            if node.users and all(map(is_group, node.users)):
                return
            # A submodule that is an argument of a higher-order operator.
            value: Any = self._attribute(node)
            self.values.known[node] = value
            op: Any = fx.GraphModule if isinstance(value, fx.GraphModule) else type(value)
            self._add(node, Node(op, attrs={"name": str(node.target)}, name=node.name))
        elif kind == INPUT or node in self.mutations.exposed:
            name = str(node.target) if node.op == "get_attr" else node.name
            self._add(node, Node(INPUT, type=self.values.type(node) or self._known_type(node), name=name))
        else:
            leaf = self.leaves.leaf(node)
            leaf.reads.append(node)
            self.views[node] = self._leaf_view(leaf, kind)

    def _attribute(self, node: fx.Node) -> Any:
        return operator.attrgetter(str(node.target))(self.reader.root)

    def _known_type(self, node: fx.Node) -> Any:
        return type_of_value(self._attribute(node)) if node.op == "get_attr" else None

    def _leaf_view(self, leaf: Leaf, kind: str) -> Node:
        """The one view node of a weight or literal tensor."""
        if leaf not in self._leaf_views:
            type = (self.values.type(leaf.reads[0]) if leaf.reads else None) or type_of_value(leaf.value)
            node = Node(kind, attrs={"value": leaf.value}, type=type, name=leaf.name, native=leaf)
            self._leaf_views[leaf] = node
            self.nodes.append(node)
        return self._leaf_views[leaf]

    def _add(self, node: fx.Node, view: Node, sources: tuple[Source, ...] = ()) -> None:
        """Add a view node that alone makes up the reading of a native node."""
        view.native = Handle(Reading(node), 0, sources)
        self.nodes.append(view)
        self.views[node] = view

    # ------------------------------------------------------------ calls

    def _call(self, node: fx.Node) -> None:
        if node.op not in CALLS:
            raise FrontEndError(f"{node.format_node()}: a node of kind {node.op!r} is not known")
        visible = node in self.mutations.visible
        if (module := module_of(node, self.reader.root)) is not None:
            self._group(node, module)
            return
        if node.target is operator.getitem and node.args[0] in self.groups:
            self._group(node, self.groups[node.args[0]])
            return
        if not visible and node not in self.mutations.exposed:
            if node.target is operator.getitem and self._field(node):
                return
            if self._has_fields(node):
                return
            canon = self.reader.read(node)
            if canon is not None and self._tree(node, canon):
                return
        self._opaque(node, Effect.MUTATES if visible else self.reader.effect(node))

    def _field(self, node: fx.Node) -> bool:
        """Load a ``getitem`` that takes a field of a tuple; False if it is something else."""
        operand, index = node.args[0], node.args[1]
        if not isinstance(operand, fx.Node) or not isinstance(index, int):
            return False
        if node in self.fields:
            return self._tree(node, self.fields[node], operand)
        view = self.views[operand]
        if not is_tuple(view):
            return False
        getitem = Node(GETITEM, (view,), {"index": index}, self.values.type(node), name=node.name)
        self._add(node, getitem, (operand,))
        return True

    def _has_fields(self, node: fx.Node) -> bool:
        """True if all the used fields of a native call have canonical readings, which are then noted."""
        if not node.users or any(user.target is not operator.getitem for user in node.users):
            return False
        readings = self.reader.read_fields(node)
        if readings is None:
            return False
        noted: dict[fx.Node, Canon] = {}
        unread: set[fx.Node] = set()
        for user in node.users:
            canon = readings.get(user.args[1])  # type: ignore[arg-type]
            if canon is not None and self._acceptable(canon, node):
                noted[user] = canon
            elif user.users:
                return False
            else:
                unread.add(user)
        if not noted:
            return False
        self.fields.update(noted)
        self.hidden_calls.add(node)
        self.hidden_calls.update(unread)
        return True

    # ------------------------------------------------------------ canonical readings

    def _tree(self, node: fx.Node, canon: Canon, call: fx.Node | None = None) -> bool:
        """Load the tree of a canonical reading; False if the view can't hold it."""
        origin = call or node
        if not self._acceptable(canon, origin):
            return False
        tree = _Tree(self, origin, node.name)
        try:
            tree.add(canon, self.values.type(node))
        except ValueError:
            # The attributes have no canonical form: the operator does not cover this call.
            return False
        *_, root = tree.nodes
        root.name = node.name
        used = {source for sources in tree.sources for source in sources if isinstance(source, fx.Node)}
        extra = tuple(arg for arg in origin.all_input_nodes if arg not in used)
        root.deps = tuple(self.views[arg] for arg in extra)
        tree.sources[-1] += extra
        reading = Reading(node, len(tree.nodes), call, self.mutations.hidden.get(node))
        for slot, (view, sources) in enumerate(zip(tree.nodes, tree.sources)):
            view.native = Handle(reading, slot, sources)
        self.nodes.extend(tree.nodes)
        self.views[node] = root
        return True

    def _acceptable(self, canon: Canon, node: fx.Node) -> bool:
        """True if every operand of the tree is a value of the view."""
        for operand in canon.operands:
            match operand:
                case Canon():
                    if not self._acceptable(operand, node):
                        return False
                case fx.Node():
                    if operand not in self.views or not self.values.is_tensor(operand):
                        return False
                case Weight():
                    if memory(weight(self.reader.module(node), operand)) in self.mutations.memory:
                        return False
                case Literal() | bool() | int() | float() | complex():
                    pass
                case _:
                    return False
        return canon.op in TABLE or canon.op in (TUPLE, GETITEM)

    def weight_view(self, node: fx.Node, name: Weight) -> tuple[Node, Leaf]:
        """The view of a weight of the module that a native node calls."""
        value = weight(self.reader.module(node), name)
        leaf = self.leaves.of_module(f"{node.target}.{name.name}", value)
        return self._leaf_view(leaf, "param"), leaf

    # ------------------------------------------------------------ opaque calls

    def _group(self, node: fx.Node, module: fx.GraphModule) -> None:
        """Load the call of an outlined group, whose graph is loaded when somebody asks for it.

        A call that returns a tuple of one value has no view node of its own: that of the value stands for it.
        """
        call: Any = node
        if node.target is INVOKE and len(node.meta.get("val", ())) == 1 and _are_fields(node.users):
            self.groups[node] = module
            return
        if node.target is operator.getitem:
            call = node.args[0]
        name, attrs = label_of(call)
        operands = operands_of(call)
        others = tuple([arg for arg in call.all_input_nodes if arg not in operands and arg.op != "get_attr"])
        body = Subgraph(name, lambda: Loader(module, module.graph, ModuleLeaves(module), Values(), self.infer).load())
        view = Node(
            body, tuple([self.views[arg] for arg in operands]), attrs, self.values.type(node), name=node.name,
            deps=tuple([self.views[arg] for arg in others]),
        )  # fmt: skip
        view.native = Handle(Reading(node, call=None if call is node else call), 0, (*operands, *others))
        self.nodes.append(view)
        self.views[node] = view

    def _opaque(self, node: fx.Node, effect: Effect | None) -> None:
        target = operator_of(node, self.reader.root)
        args, kwargs = self.reader.arguments(node)
        module = self.reader.module(node) if node.op == "call_module" else None
        names = parameters(target if module is None else type(module).forward)[0 if module is None else 1:]
        call = describe(names, args, kwargs, self.values.is_tensor, node.all_input_nodes)
        attrs = call.attrs if module is None else {**_constructor_arguments(module), **call.attrs}
        missing = [arg for arg in (*call.operands, *call.deps) if arg not in self.views]
        if missing:
            raise FrontEndError(f"{node.format_node()}: {missing[0]} is used before it is defined")
        view = Node(
            target,
            tuple([self.views[arg] for arg in call.operands]),
            attrs,
            self.values.type(node),
            name=node.name,
            effect=effect,
            deps=tuple([self.views[arg] for arg in call.deps]),
        )
        self._add(node, view, (*call.operands, *call.deps))


class _Tree:
    """The view nodes of one canonical reading, operands first."""

    def __init__(self, loader: Loader, origin: fx.Node, name: str) -> None:
        self.loader = loader
        self.origin = origin
        self.name = name
        self.nodes: list[Node] = []
        self.sources: list[tuple[Source, ...]] = []

    def add(self, canon: Canon, type: Any = None) -> int:
        """Add a canonical call with all its operands; its number. ValueError if its attributes are ill-formed."""
        operands: list[Node] = []
        sources: list[Source] = []
        for position, operand in enumerate(canon.operands):
            # A bias does not change the type.
            own = type if canon.op == "nn.bias_add" and position == 0 else None
            view, source = self._operand(operand, own)
            operands.append(view)
            sources.append(source)
        attrs = self._attributes(canon, operands)
        if type is None:
            type = self._type(canon.op, tuple(operands), attrs)
        suffix = "nobias" if canon.op in spellings.BIASED else own_name(canon.op)
        return self._append(Node(canon.op, tuple(operands), attrs, type, name=f"{self.name}_{suffix}"), tuple(sources))

    def _append(self, node: Node, sources: tuple[Source, ...]) -> int:
        self.nodes.append(node)
        self.sources.append(sources)
        return len(self.nodes) - 1

    def _operand(self, operand: Any, type: Any) -> tuple[Node, Source]:
        match operand:
            case Canon():
                slot = self.add(operand, type)
                return self.nodes[slot], slot
            case fx.Node():
                return self.loader.views[operand], operand
            case Weight():
                return self.loader.weight_view(self.origin, operand)
        value = operand.value if isinstance(operand, Literal) else operand
        type = scalar_type(value) if is_scalar(value) else type_of_value(value)
        slot = self._append(Node(CONST, attrs={"value": value}, type=type, name=f"{self.name}_const"), ())
        return self.nodes[slot], slot

    def _attributes(self, canon: Canon, operands: list[Node]) -> dict[str, Any]:
        if canon.op not in TABLE:
            return dict(canon.attrs)
        return TABLE[canon.op].complete(canon.attrs, tuple([operand.type for operand in operands]))

    def _type(self, op: str, operands: tuple[Node, ...], attrs: dict[str, Any]) -> Any:
        if any(operand.type is None for operand in operands):
            return None
        return self.loader.infer(op, operands, attrs)


def _opens(node: fx.Node) -> int:
    """1 for a call that enters a region of autocast, -1 for one that leaves it.

    Within one, calls have other types than their operators say, so the view leaves them as they are.
    """
    if node.target is torch.amp.autocast_mode._enter_autocast:
        return 1
    return -1 if node.target is torch.amp.autocast_mode._exit_autocast else 0


def own_name(op: str) -> str:
    """The last part of a canonical name."""
    return op.rpartition(".")[2]


def is_tuple(view: Node) -> bool:
    """True if a view node is known to have a tuple for its value."""
    if isinstance(view.type, TupleType) or view.op == TUPLE:
        return True
    return isinstance(view.op, str) and view.op in TABLE and TABLE[view.op].fields


def arguments(node: fx.Node) -> list[fx.Node]:
    """All references to native nodes among a node's arguments, in order and with repetitions."""
    found: list[fx.Node] = []

    def collect(argument: fx.Node) -> fx.Node:
        found.append(argument)
        return argument

    fx.node.map_arg((node.args, node.kwargs), collect)
    return found


def _are_fields(users: Iterable[fx.Node]) -> bool:
    """True if nothing but fields of a tuple is used."""
    return all(user.target is operator.getitem for user in users)


def _constructor_arguments(module: torch.nn.Module) -> dict[str, Any]:
    """The attributes that a module declares as constants; for torch's modules, those its constructor takes."""
    names = getattr(module, "__constants__", ())
    return {name: getattr(module, name) for name in names if hasattr(module, name)}

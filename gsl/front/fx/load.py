"""Native graph to view: every native call becomes the tree of its canonical reading, or one opaque node."""

from __future__ import annotations

import operator
from collections.abc import Iterable, Mapping
from functools import partial
from typing import Any

from torch import fx
from torch._ops import OpOverload

from gsl.errors import FrontEndError
from gsl.front.core.handle import Handle, Source
from gsl.front.core.load import Loader, Rows, recorded
from gsl.front.fx.custom import FUNCTIONALIZED, overload_in
from gsl.front.fx.effects import EffectReader, opens_region
from gsl.front.fx.groups import INVOKE, are_fields, is_group, label_of, module_of, number_of_fields, operands_of
from gsl.front.fx.handle import (
    ExportedLeaves,
    FxExpansion,
    FxLeaf,
    FxLeaves,
    FxReading,
    FxSingle,
    attribute,
    memory,
    native_of,
    nodes_in,
)
from gsl.front.fx.mutations import Mutations, mutations
from gsl.front.fx.opaque import canonical, constructor_arguments, describe, operator_of, parameters
from gsl.front.fx.reader import CALLS
from gsl.front.fx.signatures import Role
from gsl.front.fx.spellings import effects
from gsl.front.fx.spellings.table import Weight
from gsl.front.fx.values import Values, type_of_value
from gsl.front.tree import Canon
from gsl.graph import CONST, GETITEM, INPUT, TUPLE, Effect, Graph, Inference, Node, TupleType, Type
from gsl.graph.subgraph import Subgraph
from gsl.pause import paused_collector
from gsl.spec import DeclaredSpec, spec_of
from gsl.spec.natives import schema_of
from gsl.walk import reached


class FxLoader(Loader):
    """Builds the view of one native graph."""

    def __init__(
        self,
        graph: fx.Graph,
        leaves: FxLeaves,
        values: Values,
        infer: Inference,
        *,
        autocast: bool = False,
    ) -> None:
        super().__init__()
        self.graph = graph
        self.autocast = autocast
        """True if the whole graph is within a region of autocast."""
        self.leaves = leaves
        self.values = values
        self.infer = infer
        self.reader = EffectReader(leaves, values)
        self.fields: dict[fx.Node, Canon] = {}
        """The readings of fields of native calls that have no view node of their own, and of layers that use one."""
        self.groups: dict[Any, fx.GraphModule] = {}
        """The calls of outlined groups that return a tuple of one value."""
        self.hidden_calls: set[fx.Node] = set()
        """The native nodes that have no view node: those calls, and others."""
        self.mutations = Mutations()
        self.declared: dict[Any, DeclaredSpec] = {}
        """The operators of users by what a graph calls."""
        self._leaf_views: dict[FxLeaf, Node] = {}
        self._is_exported = isinstance(leaves, ExportedLeaves)

    @paused_collector
    def load(self) -> Graph:
        """The view."""
        natives = list(self.graph.nodes)
        self.mutations = mutations(self.graph, natives, self.reader, self.leaves)
        outputs: list[Node] = []
        regions = int(self.autocast or any(map(effects.gives_memory, self.mutations.visible)))
        forms, touched = self.reader.forms, self.mutations.visible | self.mutations.exposed
        alone, other = Role.ALONE, Role.OTHER
        for node in natives:
            kind = node.op
            if kind in ("placeholder", "get_attr"):
                self._leaf(node)
            elif kind == "output":
                outputs = list(map(self.views.__getitem__, nodes_in(node.args)))
            elif self.declared and not regions and (overload := overload_in(node)) in self.declared:
                self._declared(node, self.declared[overload])
            elif kind not in CALLS:
                raise FrontEndError(f"{node.format_node()}: a node of kind {kind!r} is not known")
            elif self._is_exported and ((form := forms[node]) is None or form.op == "copy") and self._literal(node):
                continue
            elif regions or (form := forms[node]) is None or (role := form.role) is other or node in touched:
                regions += opens_region(node)
                if regions:
                    self._opaque(node, Effect.OTHER)
                elif node not in self.hidden_calls and not self.reader.hinders_nothing(node):
                    self._call(node)
            elif role is alone or not self._is_part(node, role):
                rows = form.rows.get(None)
                if rows is not None and self._replay(node, rows):
                    continue
                if form.op is None or not self._tree(node):
                    self._opaque(node, form.effect)
        written = self.leaves.written
        overwritten = [node for node in natives if node.op == "placeholder" and node.name in written] if written else ()
        places = {self.views[node]: written[node.name] for node in overwritten}
        return Graph(self.nodes, outputs, self.infer, canonical, places, held=self._held(natives))

    def _held(self, natives: Iterable[fx.Node]) -> list[Node]:
        """The nodes of the view that calls without one check."""
        checks = [node for node in natives if node.op in CALLS and self.reader.checks_sizes(node)]
        return [self.views[operand] for node in checks for operand in node.all_input_nodes if operand in self.views]

    # ------------------------------------------------------------ leaves

    def _leaf(self, node: fx.Node) -> None:
        kind = self.leaves.kind(node)
        if kind == INPUT or (kind is not None and node in self.mutations.exposed):
            name = str(node.target) if node.op == "get_attr" else node.name
            known = self.values.types[node] or self._known_type(node)
            self.add(node, Node(INPUT, (), None, known, name, FxSingle(node)))
        elif kind is None:
            if node.users and all(map(is_group, node.users)):
                return
            # A submodule that is an argument of a higher-order operator.
            value: Any = attribute(self.reader.root, str(node.target))
            self.values.known[node] = value
            op: Any = fx.GraphModule if isinstance(value, fx.GraphModule) else type(value)
            attrs = {"name": str(node.target)}
            self.add(node, Node(op, attrs=attrs, name=node.name, native=FxSingle(node)))
        else:
            leaf = self.leaves.leaf(node)
            leaf.reads[node] = None
            self.views[node] = self._leaf_view(leaf, kind)

    def _known_type(self, node: fx.Node) -> Any:
        return type_of_value(attribute(self.reader.root, str(node.target))) if node.op == "get_attr" else None

    def _leaf_view(self, leaf: FxLeaf, kind: str) -> Node:
        """The one view node of a weight or literal tensor."""
        if leaf not in self._leaf_views:
            read = next(iter(leaf.reads), None)
            type = (None if read is None else self.values.type(read)) or type_of_value(leaf.value)
            node = Node(kind, attrs={"value": leaf.value}, type=type, name=leaf.name, native=leaf)
            self._leaf_views[leaf] = node
            self.nodes.append(node)
        return self._leaf_views[leaf]

    def _literal(self, node: fx.Node) -> bool:
        """Load a call that only makes a tensor of a literal as the literal itself; False if it is something else."""
        view = self.views.get(node.args[0]) if self.reader.is_literal(node) else None
        if view is None or view.op != CONST or node in self.mutations.exposed or node in self.mutations.visible:
            return False
        if self._is_returned(node):
            return False
        view.native.reads[node] = None
        self.views[node] = view
        return True

    def _is_returned(self, node: fx.Node) -> bool:
        """True if an output may be the memory of a value: the caller may write into an output."""

        def views(node: fx.Node) -> list[fx.Node]:
            return [user for user in node.users if not self.reader.is_fresh(user)]

        return any(user.op == "output" for value in reached([node], views) for user in value.users)

    # ------------------------------------------------------------ calls

    def _call(self, node: fx.Node) -> None:
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
            if node in self.fields and node.target is not operator.getitem and self._layer(node):
                return
            if self._has_fields(node):
                return
            if self.reader.read_op(node) is not None and self._tree(node):
                return
        self._opaque(node, self._effect(node))

    def _effect(self, node: fx.Node) -> Effect | None:
        """The effect of a call that stays as it is."""
        if node not in self.mutations.visible:
            return self.reader.effect(node)
        return Effect.OTHER if self.reader.changes_more(node) else Effect.MUTATES

    def _field(self, node: fx.Node) -> bool:
        """Load a ``getitem`` that takes a field of a tuple; False if it is something else.

        ``torch.export`` writes one for every field of a call with several results.
        """
        operand, index = node.args[0], self._number(node)
        if not isinstance(operand, fx.Node) or index is None:
            return False
        if node in self.fields:
            return self._tree(node, self.fields[node], operand)
        view = self.views[operand]
        if not _is_tuple(view):
            return False
        if not node.users:
            return True  # a field that nobody uses is no user of the tuple either
        native = FxSingle(node, (operand,))
        places = view.native.reading.places if isinstance(view.native, Handle) else None
        index = index if places is None else places.index(index)
        self.add(node, Node(GETITEM, (view,), {"index": index}, self.values.type(node), node.name, native))
        return True

    def _number(self, field: fx.Node) -> int | None:
        """The number of the field that a ``getitem`` takes, counted from the first one where it is known how many there
        are; ``None`` for one that takes several."""
        whole, index = field.args[0], field.args[1]
        if not isinstance(index, int):
            return None
        found = self.values.type(whole) if index < 0 and isinstance(whole, fx.Node) else None
        return index + len(found.fields) if isinstance(found, TupleType) else index

    def _has_fields(self, node: fx.Node) -> bool:
        """True if all the used fields of a native call have canonical readings, which are then noted."""
        if not node.users or any(user.target is not operator.getitem for user in node.users):
            return False
        readings = self.reader.read_fields(node)
        if readings is None or any(user in self.mutations.exposed for user in node.users):
            return False
        noted: dict[fx.Node, Canon] = {}
        unread: set[fx.Node] = set()
        for user in node.users:
            number = self._number(user)
            canon = None if number is None else readings.get(number)
            if canon is not None and self.is_acceptable(canon, node):
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

    def _is_part(self, node: fx.Node, role: Role) -> bool:
        """True if a call has no view node, because of its users."""
        if role is Role.CHECK:
            return not node.users
        return role is Role.FACTOR and self.reader.feeds_product(node) and self._is_of_layer(node)

    def _is_of_layer(self, node: fx.Node) -> bool:
        """True if a call transposes a weight for the product of a linear layer, the reading of which is then noted."""
        found = self.reader.read_layer(node)
        if found is None:
            return False
        user, canon = found
        if user in self.mutations.visible or user in self.mutations.exposed:
            return False
        self.fields[user] = canon
        self.hidden_calls.add(node)
        return True

    def _layer(self, node: fx.Node) -> bool:
        """Load a linear layer by the reading that was noted for it; False if the view can't hold it."""
        (call,) = [operand for operand in node.all_input_nodes if operand in self.hidden_calls]
        if self._tree(node, self.fields[node], call):
            return True
        self.hidden_calls.remove(call)
        canon = self.reader.read(call)
        if canon is None or not self._tree(call, canon):
            self._opaque(call, None)
        return False

    # ------------------------------------------------------------ canonical readings

    def _tree(self, node: fx.Node, canon: Canon | None = None, call: fx.Node | None = None) -> bool:
        """Load the tree of a canonical reading, that of the node unless given; False if the view can't hold it.

        With ``call``, the reading is one of both calls, of which that one has no view node of its own.
        """
        form = self.reader.form(node)
        other = None if call is None else self.reader.form(call)
        if call is not None and other is None:
            form = None
        pair = None if call is None else (other, _common(node, call))
        rows = None if form is None else form.rows.get(pair)
        if rows is not None:
            return self._replay(node, rows, call)
        tree = self._grown(node, canon or self.reader.read(node), call, self.values.type(node))
        if tree is None:
            return False
        if form is not None and (other is None or other.is_shared or not form.is_shared):
            form.rows[pair] = recorded(tree.nodes, tree.sources, node.name, _inputs(node, call))
        return True

    def _grown(
        self, node: fx.Node, canon: Canon | None, call: fx.Node | None = None, type: Type | None = None
    ) -> FxExpansion | None:
        """The tree of a reading, of which the nodes were added to the view; ``None`` if that can't hold it.

        ``type`` is that of the node where it is known.
        """
        origin = call or node
        tree = FxExpansion(partial(self._operand, origin), self.infer, node.name)
        if canon is None or not self.expand(tree, canon, origin, type):
            return None
        used = {source for sources in tree.sources for source in sources if isinstance(source, fx.Node)}
        extra = tuple(arg for arg in origin.all_input_nodes if arg not in used)
        reading = FxReading(node, len(tree.nodes), call, self.mutations.hidden.get(node, ()))
        self.link(tree, reading, extra).name = node.name
        return tree

    def _declared(self, node: fx.Node, spec: DeclaredSpec) -> None:
        """Load a call of a user's operator; what the operator does not cover stays as it is."""
        args, kwargs = self.reader.arguments(node)
        native = spec.native
        touched = node in self.mutations.visible or node in self.mutations.exposed
        if touched:
            found = False
        elif node.target in FUNCTIONALIZED:
            found = self._functionalized(node, spec, kwargs)
        else:
            canon = None if native.is_mutable(node.target) else native.canon(spec, node.target, args, kwargs)
            found = self._grown(node, canon, type=self.values.type(node)) is not None
        if not found:
            self._opaque(node, self._effect(node))

    def _functionalized(self, node: fx.Node, spec: DeclaredSpec, kwargs: Mapping[str, Any]) -> bool:
        """Load a call of a user's operator that writes into its arguments, in torch's functional form; False if the
        operator does not cover it."""
        found = spec.native.functionalized(spec, node.target, kwargs)
        used = [user for user in node.users if user.users]
        if found is None or any(user.target is not operator.getitem for user in node.users):
            return False
        canon, places = found
        if any(user.args[1] not in places or user in self.mutations.exposed for user in used):
            return False
        if spec.fields:
            tree = self._grown(node, canon)
            if tree is not None:
                tree.nodes[-1].native.reading.places = places
            return tree is not None
        if not used or not self.is_acceptable(canon, node):
            return False
        self.fields.update(dict.fromkeys(used, canon))
        self.hidden_calls.update((node, *(user for user in node.users if not user.users)))
        return True

    def _replay(self, node: fx.Node, rows: Rows, call: fx.Node | None = None) -> bool:
        """Load a call as another one of its form was loaded; False if an operand is not in the view."""
        inputs = self.reader.operands[node] if call is None else _inputs(node, call)
        try:
            views = tuple(map(self.views.__getitem__, inputs))
        except KeyError:
            return False
        row, hidden = rows[0], self.mutations.hidden
        if row.is_whole and call is None and node not in hidden:
            view = Node(row.op, views, row.attrs, row.type, node.name, FxSingle(node, inputs), row.effect)
            self.nodes.append(view)
            self.views[node] = view
            return True
        self.replay(rows, FxReading(node, len(rows), call, hidden.get(node, ())), views, inputs, node.name)
        return True

    def is_value(self, operand: Any, native: fx.Node) -> bool:
        match operand:
            case fx.Node():
                return operand in self.views and self.values.is_tensor(operand)
            case Weight():
                return memory(attribute(self.reader.module(native), operand.name)) not in self.mutations.memory
        return False

    def _operand(self, node: fx.Node, operand: Any) -> tuple[Node, Source]:
        """The view of an operand of the reading of a native node: a weight of the called module, or another node."""
        if not isinstance(operand, Weight):
            return self.leaf(operand)
        value = attribute(self.reader.module(node), operand.name)
        leaf = self.leaves.of_module(f"{node.target}.{operand.name}", value)
        return self._leaf_view(leaf, "param"), leaf

    # ------------------------------------------------------------ opaque calls

    def _group(self, node: fx.Node, module: fx.GraphModule) -> None:
        """Load the call of an outlined group, whose graph is loaded at its first use.

        A call that returns a tuple of one value has no view node of its own: that of the value stands for it.
        """
        call: Any = node
        fields = number_of_fields(module)
        if node.target is INVOKE and fields == 1 and are_fields(node.users):
            self.groups[node] = module
            return
        if node.target is operator.getitem:
            call = node.args[0]
        name, attrs = label_of(call)
        operands = operands_of(call)
        others = tuple([arg for arg in call.all_input_nodes if arg not in operands and arg.op != "get_attr"])
        body = Subgraph(name, lambda: self._inner(module).load())
        type = self.values.type(node)
        if type is None and call is node and fields is not None:
            type = TupleType((None,) * fields)
        view = Node(
            body, tuple([self.views[arg] for arg in operands]), attrs, type, name=node.name,
            deps=tuple([self.views[arg] for arg in others]),
        )  # fmt: skip
        view.native = Handle(FxReading(node, call=None if call is node else call), 0, (*operands, *others))
        self.add(node, view)

    def _inner(self, module: fx.GraphModule) -> FxLoader:
        """The loader of the graph of a group."""
        inner = FxLoader(module.graph, FxLeaves(module), Values(), self.infer)
        inner.declared = self.declared
        return inner

    def _opaque(self, node: fx.Node, effect: Effect | None) -> None:
        form = None if node in self.mutations.hidden else self.reader.form(node)
        rows = None if form is None else form.rows.get(("opaque", effect))
        if rows is not None and self._replay(node, rows, None):
            return
        target = operator_of(node, self.reader.root)
        args, kwargs = self.reader.arguments(node)
        module = self.reader.module(node) if node.op == "call_module" else None
        names = parameters(target if module is None else type(module).forward)[0 if module is None else 1:]
        if len(kwargs) > 1 and isinstance(target, OpOverload):  # what is written is told by its place in the schema
            kwargs = {p.name: kwargs[p.name] for p in schema_of(target) if p.name in kwargs}
        call = describe(names, args, kwargs, self.values.is_tensor, node.all_input_nodes)
        attrs = call.attrs if module is None else {**constructor_arguments(module), **call.attrs}
        sources = (*call.operands, *call.deps)
        missing = [arg for arg in sources if arg not in self.views]
        if missing:
            raise FrontEndError(f"{node.format_node()}: {missing[0]} is used before it is defined")
        view = Node(
            target,
            tuple([self.views[arg] for arg in call.operands]),
            attrs,
            self.values.type(node),
            name=node.name,
            effect=effect,
            native=FxSingle(node, sources),
            deps=tuple([self.views[arg] for arg in call.deps]),
        )
        self.add(node, view)
        if form is not None:
            form.rows["opaque", effect] = recorded([view], [sources], node.name, node.all_input_nodes)

    def why_unread(self, node: Node) -> str | None:
        """The reason why an opaque node of the view, once it is loaded, has no canonical reading; ``None`` for one that
        computes no tensor."""
        native = native_of(node)
        if native is None:
            return ""
        if not self.values.is_tensor(native) and native.users:
            return None
        if native in self.mutations.visible:
            return "it changes an operand in place, which other calls can see"
        if native in self.mutations.exposed:
            return "its result may be changed in place by another call"
        return self.reader.why_unread(native)


def _inputs(node: fx.Node, call: fx.Node | None) -> tuple[fx.Node, ...]:
    """The native operands of one call, or of two that are read as one."""
    if call is None:
        return tuple(node.all_input_nodes)
    return tuple([each for each in dict.fromkeys((*call.all_input_nodes, *node.all_input_nodes)) if each is not call])


def _common(node: fx.Node, call: fx.Node) -> tuple[int, ...]:
    """The places of the operands of one call among those of another one that is read with it; -1 for those that are
    none of them. Two calls of one form each, ``x @ y.T`` and ``x @ x.T``, are not alike."""
    places = {operand: place for place, operand in enumerate(call.all_input_nodes)}
    return tuple([places.get(operand, -1) for operand in node.all_input_nodes])


def _is_tuple(view: Node) -> bool:
    """True if a view node is known to have a tuple for its value."""
    if isinstance(view.type, TupleType) or view.op == TUPLE:
        return True
    spec = spec_of(view.op)
    return spec is not None and spec.fields

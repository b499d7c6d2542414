"""Relax function to view: every binding becomes the tree of its canonical reading, or one opaque node."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final, Union

from tvm import relax

from gsl.front.core.handle import Handle, NativeLeaf, Reading, Single, Source, handle_of
from gsl.front.core.load import Expansion, Loader
from gsl.front.relax import spellings
from gsl.front.relax.function import RelaxFunction
from gsl.front.relax.groups import body_of, called_group, label_of
from gsl.front.relax.handle import RelaxExpansion, RelaxLeaf, RelaxLeaves, tuple_of
from gsl.front.relax.opaque import canonical, describe, is_tensor_expr
from gsl.front.relax.signatures import RelaxForm, RelaxSignatures
from gsl.front.relax.spellings.table import Reshaped
from gsl.front.relax.types import FunctionScope, is_constant, is_tensors
from gsl.front.tree import Canon
from gsl.front.tvm.tensors import known_dtype
from gsl.graph import GETITEM, INPUT, PARAM, Effect, Graph, Inference, Node, TensorType, Type
from gsl.graph.subgraph import Subgraph


@dataclass(frozen=True, slots=True, eq=False)
class Fields:
    """A tuple of the function's result; ``var`` is bound to it, if a variable is."""

    var: Any
    items: tuple[OutputSource, ...]


OutputSource = Union[int, Fields, None]
"""A part of the function's result: an output of the view by its number, a tuple, or what no view shows, as a shape."""


def parts_of(result: OutputSource, *, bound: bool = True) -> Iterator[OutputSource]:
    """A part of the result and all parts of it; without ``bound``, not those of a tuple that a variable is bound to."""
    yield result
    if isinstance(result, Fields) and (bound or result.var is None):
        for item in result.items:
            yield from parts_of(item, bound=bound)


@dataclass
class Loaded:
    """The links between a view and its function."""

    function: RelaxFunction
    scope: FunctionScope
    natives: set[Any] = field(default_factory=set)
    """The native handles of the view's nodes. The nodes are not kept: new ones refer to them, and to this."""
    handles: dict[Any, Any] = field(default_factory=dict)
    """The native handle of the node of each variable, which need not be one of those."""
    result: OutputSource = None
    aliases: set[Any] = field(default_factory=set)
    """The variables that are bound to another variable or a constant, and have the view node of that."""
    outputs: int = 0
    """The number of the view's outputs."""
    leaves: dict[str, Any] = field(default_factory=dict)
    """The native tensors of the weights by the names of their view nodes."""

    def shown(self, var: Any) -> Handle | NativeLeaf | None:
        """The native handle of the view node that has the value of a variable, if one has."""
        handle: Handle | NativeLeaf | None = self.handles.get(var)
        return handle if handle in self.natives else None


# ---------------------------------------------------------------- live nodes


def result_tuples(function: RelaxFunction) -> set[Any]:
    """The variables that are bound to tuples for the function's result alone: the view shows their fields instead."""
    found: set[Any] = set()
    work = [function.result]
    while work:
        expr = work.pop()
        if isinstance(expr, relax.Tuple):
            work.extend(expr.fields)
        elif isinstance(expr, relax.Var):
            value = function.lookup(expr)
            if not isinstance(value, relax.Tuple):
                continue
            if all(function.vars[number] in found for number in function.users.get(expr, ())):
                found.add(expr)
                work.extend(value.fields)
    return found


def live_nodes(nodes: list[Node], outputs: list[Node], named: set[Node], function: RelaxFunction) -> list[Node]:
    """The nodes without those that are only there for readings which see through them.

    ``named`` are those that have other variables than their own: those may be used by nothing but a name.
    """
    users: Counter[Node] = Counter(outputs)
    for node in nodes:
        users.update((*node.operands, *node.deps))
    gone: set[Node] = set()
    through: set[int] = set()
    for node in reversed(nodes):
        handle = handle_of(node)
        if users[node] or node in named or node.effect is not None or node.op == INPUT:
            unused = False
        elif handle is None:
            # A constant; a variable of the function stays.
            unused = isinstance(node.native, RelaxLeaf) and not function.has(node.native.expr)
        else:
            unused = not handle.is_root or function.place[handle.reading.native] in through
        if unused:
            gone.add(node)
            users.subtract((*node.operands, *node.deps))
        elif handle is not None:
            through.update(handle.reading.through)
    return [node for node in nodes if node not in gone]


_NEAR: Final = 8
"""A reading sees through so many bindings at most."""


class RelaxLoader(Loader):
    """Builds the view of one function; ``values`` are the known values of some of its parameters, by name."""

    def __init__(
        self, function: RelaxFunction, scope: FunctionScope, values: Mapping[str, Any], infer: Inference,
        canonical: Callable[..., str | None] | None = None, module: Any = None,
    ) -> None:  # fmt: skip
        super().__init__()
        self.loaded = Loaded(function, scope)
        self.function = function
        self.scope = scope
        self.values = values
        self.infer = infer
        self.canonical = canonical
        self.module = module
        """The module in which the function calls others; without it, no call is taken for that of a group."""
        self.fields: dict[Any, Canon | None] = {}
        """The readings of fields of calls that have no view node of their own, by the variables of the fields; ``None``
        for a field that nobody uses, which has no view node."""
        self._idle: dict[int, list[int]] = {}
        """The bindings of such fields that nobody uses, by those of the calls: they stay as long as these do."""
        self._numbers: dict[Any, Any] = {}
        """The tensors without axes that parameters are known to be."""
        self._leaves = RelaxLeaves(self.nodes)
        self._forms = RelaxSignatures(function, scope, module)
        self._wanted = result_tuples(function)
        self._has_more = False
        """True if there may be nodes that only serve readings which see through them."""

    def load(self) -> Graph:
        """The view."""
        for var in self.function.params:
            self._parameter(var)
        self._bindings()
        outputs: list[Node] = []
        loaded, leaves, aliases, nodes = self.loaded, self._leaves, self._forms.aliases, self.nodes
        loaded.result = self._result(self.function.result, outputs)
        if self._has_more or leaves.constants:
            nodes = live_nodes(nodes, outputs, {self.views[var] for var in aliases}, self.function)
        loaded.natives = {node.native for node in nodes}
        loaded.handles = {var: view.native for var, view in self.views.items()}
        if leaves.tensors or "" in leaves.names.given:
            loaded.leaves = leaves.named(nodes)
        loaded.aliases = {var for var in aliases if loaded.shown(var) is not None}
        loaded.outputs = len(outputs)
        return Graph(nodes, outputs, self.infer, self.canonical)

    def _parameter(self, var: Any) -> None:
        name, value = self._leaves.names.free(var.name), self.values.get(var.name)
        if value is None or not known_dtype(str(value.dtype)):
            self.add(var, Node(INPUT, type=self.scope.type_of(var), name=name, native=Single(var)))
        elif value.shape:
            self.views[var] = self._leaves.add(RelaxLeaf(var), value, PARAM, self.scope.type_of(var), name)
        else:
            # A type of its own, so that a call that reads it as a number is not taken for one of another value.
            self.views[var] = self._leaves.add(RelaxLeaf(var), value, PARAM, name=name)
            self._numbers[var] = value

    # ------------------------------------------------------------ bindings

    def _bindings(self) -> None:
        """Load all bindings. Nearly all are calls of a form that is known and has one node: they are loaded here."""
        function, views, nodes, leaves, forms = self.function, self.views, self.nodes, self._leaves, self._forms
        view_of, names, constants = views.__getitem__, leaves.names.given, leaves.constants
        known, plain, aliases = forms.known, forms.plain, forms.aliases
        columns = zip(function.args, function.ops, function.values, self.scope.types, function.vars, function.names)
        for number, (args, op, value, type, var, name) in enumerate(columns):
            operands, form = None, None
            if args is not None:
                try:
                    operands = tuple(map(view_of, args))
                except KeyError:
                    operands = self._operands(args)
                if operands is not None:
                    if len(operands) == 1 and not aliases:
                        form = plain.get((op, id(type), id(operands[0].type), value.attrs))
                    if form is None:
                        form = known(number, op, type, args, operands)
            if args is None or operands is None or form is None:
                self._binding(number, operands)
            elif not form.rows[0].is_whole:
                self._again(number, form, operands)
            else:
                (row,) = form.rows
                if name in names:
                    name = leaves.names.free(name)
                else:
                    names.add(name)
                native = Single(var, self._sources(args, operands) if constants else args)
                # Arguments by keyword would take as long as all the rest of making a node.
                node = views[var] = Node(row.op, operands, row.attrs, row.type, name, native)
                nodes.append(node)

    def _binding(self, number: int, operands: tuple[Node, ...] | None) -> None:
        var, value, binding = self.function.vars[number], self.function.values[number], self.function.bindings[number]
        effect = self._forms.effect(number)
        if isinstance(binding, relax.MatchCast):
            self._opaque(number, binding, effect)
            return
        if effect is not None or var in self._wanted:
            if var not in self._wanted:
                self._opaque(number, binding, effect)
            return
        match value:
            case relax.Var() if value in self.views:
                self.views[var] = self.views[value]
                self._forms.aliases.add(var)
            case _ if is_constant(value):
                self.views[var] = self._leaves.constant(value)
                self._forms.aliases.add(var)
            case relax.Tuple() if is_tensor_expr(value) and self._tree(number, tuple_of(value)):
                pass
            case relax.TupleGetItem() if self._field(number):
                pass
            case relax.Call() if self._group(number) or self._call(number, operands):
                pass
            case _:
                self._opaque(number, binding, None)

    def _operands(self, inputs: Sequence[Any]) -> tuple[Node, ...] | None:
        """The view nodes of the inputs of a call, and what stands for its literals; ``None`` where one has neither."""
        found = list(map(self._operand, inputs))
        views = [view for view in found if view is not None]
        return tuple(views) if len(views) == len(found) else None

    def _operand(self, expr: Any) -> Node | None:
        view = self.views.get(expr)
        if view is None:
            view = self._forms.literal(expr)
        return self._leaves.constant(expr) if view is None and is_constant(expr) else view

    def _call(self, number: int, operands: tuple[Node, ...] | None) -> bool:
        known = operands is not None and all(type(operand.type) is TensorType for operand in operands)
        key = self._forms.key if known else None
        looked_up = self.scope.looked_up
        looked_up.clear()
        canon = spellings.read(self.function.values[number], self.scope)
        if looked_up and not self._forms.may_look(number, looked_up):
            key = None
        return (canon is not None and self._tree(number, canon, key)) or self._has_fields(number)

    def _sources(self, args: Any, operands: tuple[Node, ...]) -> tuple[Source, ...]:
        """The sources of the operands of a call: its arguments, except for constants."""
        views = self.views
        return tuple([arg if arg in views else view.native for arg, view in zip(args, operands)])

    def _again(self, number: int, form: RelaxForm, operands: tuple[Node, ...]) -> None:
        """Load a call that is like one that was recorded."""
        function, args = self.function, self.function.args[number]
        assert args is not None
        inputs = self._forms.inputs if form.through else args
        views = self._operands(inputs) if form.through else operands
        if views is None:
            self._binding(number, operands)
            return
        through = tuple([function.place[args[place]] for place in form.through])
        name, reading = self._own(number), Reading(function.vars[number], len(form.rows), through)
        self._has_more = self._has_more or len(form.rows) > 1 or bool(through)
        self.replay(form.rows, reading, views, self._sources(inputs, views), function.names[number]).name = name

    def _group(self, number: int) -> bool:
        """Load the call of an outlined group, whose body is loaded at its first use; False if it is none."""
        call = self.function.values[number]
        function = None if self.module is None else called_group(self.module, call)
        label = None if function is None else label_of(function)
        if label is None:
            return False
        name, attrs = label
        group: Any = Subgraph(name, lambda: self._body(body_of(function, call.args)))
        return self._tree(number, Canon(group, tuple(call.args), attrs))

    def _body(self, native: Any) -> Graph:
        function = RelaxFunction(native)
        scope = FunctionScope(function, self.scope.dims)
        shown = partial(canonical, scope=scope)
        return RelaxLoader(function, scope, {}, self.infer, shown, self.module).load()

    def _has_fields(self, number: int) -> bool:
        """True if all the used fields of a call with several results have canonical readings, which are then noted."""
        var, value = self.function.vars[number], self.function.values[number]
        users = self.function.users.get(var, [])
        values = [self.function.lookup(self.function.vars[user]) for user in users]
        if not all(isinstance(each, relax.TupleGetItem) for each in values):
            return False
        idle = [user for user in users if self._is_idle(user)]
        if var in self.function.used_by_result or len(idle) == len(users):
            return False
        noted: dict[Any, Canon | None] = {self.function.vars[user]: None for user in idle}
        for user, each in zip(users, values):
            if user in idle:
                continue
            canon = spellings.read_field(value, int(each.index), self.scope)
            if canon is None or not self.is_acceptable(canon, value):
                return False
            noted[self.function.vars[user]] = canon
        self.fields.update(noted)
        self._idle[number] = idle
        return True

    def _is_idle(self, number: int) -> bool:
        """True if nothing uses the variable of a binding."""
        var = self.function.vars[number]
        return not self.function.users.get(var) and var not in self.function.used_by_result

    def _field(self, number: int) -> bool:
        """Load the field of a tuple; False if it is something else."""
        var = self.function.vars[number]
        if var in self.fields:
            canon = self.fields[var]
            return canon is None or self._tree(number, canon)
        value = self.function.values[number]
        whole, index = self.function.own(value.tuple_value), int(value.index)
        if whole not in self.views or not is_tensors(whole.ty):
            return False
        if self._is_idle(number):
            # A field that nobody uses is no user of the tuple either; its binding stays as long as the tuple does.
            self.views[var] = self.views[whole]
            self._forms.aliases.add(var)
            return True
        operands, native = (self.views[whole],), Single(var, (whole,))
        self.add(var, Node(GETITEM, operands, {"index": index}, self._type(number), self._own(number), native))
        return True

    def _type(self, number: int) -> Type | None:
        return self.scope.types[number]

    def _own(self, number: int) -> str:
        return self._leaves.names.free(self.function.names[number])

    # ------------------------------------------------------------ canonical readings

    def _tree(self, number: int, canon: Canon, key: Any = None) -> bool:
        """Load the tree of a canonical reading; False if the view can't hold it. The key is that of its form."""
        tree = self._expansion(number)
        if not self.expand(tree, canon, self.function.values[number], self._type(number)):
            return False
        used = {source for sources in tree.sources for source in sources if isinstance(source, relax.Var)}
        through: dict[int, None] = {}
        deps: list[Any] = []
        for var in self.function.uses(number):
            if var not in used and var not in self._numbers:
                between = self._between(var, used)
                if between is None:
                    deps.append(var)
                else:
                    through.update(dict.fromkeys(between))
        if any(var not in self.views for var in deps):
            return False
        if key is not None and not deps:
            self._forms.note(key, number, tree, tuple(through))
        self._finish(number, tree, tuple(deps), through=tuple(through))
        return True

    def _between(self, var: Any, operands: set[Any]) -> list[int] | None:
        """The bindings by which a variable is computed from the operands alone; ``None`` if it is not."""
        found: list[int] = []
        work = [var]
        while work:
            place = self.function.place.get(work.pop())
            if place is None or len(found) > _NEAR or self._forms.effect(place) is not None:
                return None
            if place not in found:
                found += (place, *self._idle.get(place, ()))
                work.extend(var for var in self.function.uses(place) if var not in operands)
        return found

    def _expansion(self, number: int) -> RelaxExpansion:
        return RelaxExpansion(self.leaf, self.infer, self.function.names[number], self._numbers)

    def leaf(self, operand: Any) -> tuple[Node, Source]:
        match operand:
            case relax.Var():
                return super().leaf(self.function.own(operand))
            case Reshaped():
                view = self._leaves.constant(operand.constant, tuple(operand.shape))
            case _:
                view = self._leaves.constant(operand)
        return view, view.native

    def is_value(self, operand: Any, native: Any) -> bool:
        if isinstance(operand, relax.Var):
            return operand in self.views and is_tensors(operand.ty)
        if isinstance(operand, relax.Tuple):
            return self.is_acceptable(tuple_of(operand), native)
        return isinstance(operand, Reshaped) or is_constant(operand)

    def _opaque(self, number: int, binding: Any, effect: Effect | None) -> None:
        shown = describe(self.function.values[number], self.function.uses(number), self.scope.dims)
        op, attrs = shown.op, shown.attrs
        if isinstance(binding, relax.MatchCast):
            op, attrs = relax.MatchCast, {"ty": self._type(number) or binding.ty}
        tree = self._expansion(number)
        tree.add(Canon(op, shown.operands, attrs), self._type(number))
        self._finish(number, tree, tuple([var for var in shown.deps if var in self.views]), effect)

    def _finish(
        self, number: int, tree: Expansion, deps: tuple[Any, ...], effect: Effect | None = None,
        through: tuple[int, ...] = (),
    ) -> None:  # fmt: skip
        self._has_more = self._has_more or len(tree.nodes) > 1 or bool(through)
        root = self.link(tree, Reading(self.function.vars[number], len(tree.nodes), through), deps)
        root.name = self._own(number)
        root.effect = effect

    # ------------------------------------------------------------ the result

    def _result(self, expr: Any, outputs: list[Node]) -> OutputSource:
        if isinstance(expr, relax.Tuple):
            return Fields(None, tuple([self._result(item, outputs) for item in expr.fields]))
        if expr in self._wanted:
            items = self.function.lookup(expr).fields
            return Fields(expr, tuple([self._result(item, outputs) for item in items]))
        if is_constant(expr):
            outputs.append(self._leaves.constant(expr))
        elif isinstance(expr, relax.Var) and expr in self.views:
            outputs.append(self.views[expr])
        else:
            return None
        return len(outputs) - 1

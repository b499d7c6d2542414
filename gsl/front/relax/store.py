"""The way from a rewritten view to a Relax function: untouched bindings stay, the rest is written with the table of
spellings."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import Any

from tvm import ir, relax
from tvm.relax.expr import _update_type

from gsl.errors import FrontEndError
from gsl.front.core.handle import Arguments, handle_of
from gsl.front.core.store import FreeNames, added, foreign
from gsl.front.relax.blocks import Blocks, Swaps
from gsl.front.relax.function import free_variables, with_value
from gsl.front.relax.groups import Outliner
from gsl.front.relax.handle import RelaxLeaf, RelaxValues
from gsl.front.relax.load import Fields, Loaded, OutputSource, parts_of
from gsl.front.relax.opaque import Caller
from gsl.front.relax.plan import RelaxPlan, stands_for
from gsl.front.relax.write import RelaxCallWriter, WrittenPart, places_of
from gsl.front.tvm.tensors import to_tvm
from gsl.graph import GETITEM, INPUT, PARAM, Graph, Node, Type

# ---------------------------------------------------------------- parameters


class RelaxParameterStore:
    """The parameters of a new function.

    ``values`` are the known ones by name. With ``free``, new weights become parameters and unused ones go; otherwise
    the parameters stay, and new weights become constants.
    """

    def __init__(self, loaded: Loaded, values: Mapping[str, Any], free: bool) -> None:
        self.loaded = loaded
        self.values = dict(values)
        self.free = free
        self.added: list[Any] = []
        self._names = FreeNames(loaded.function.all_names)
        """The names of new parameters."""
        self._made: dict[Node, Any] = {}

    def weight(self, node: Node) -> Any:
        """The expression of a weight or a literal tensor."""
        leaf = node.native
        if isinstance(leaf, RelaxLeaf) and leaf.shape is None:
            return leaf.expr
        if node not in self._made:
            tensor = to_tvm(node.attrs["value"])
            variable = self.free and leaf is None and node.op == PARAM
            self._made[node] = self._variable(node, tensor) if variable else relax.const(tensor, str(tensor.dtype))
        return self._made[node]

    def _variable(self, node: Node, tensor: Any) -> Any:
        name = self._names.free(node.name or "weight")
        self.values[name] = tensor
        var = relax.Var(name, relax.TensorType([int(size) for size in tensor.shape], str(tensor.dtype)))
        self.added.append(var)
        return var

    def function(self, blocks: list[Any], result: Any) -> Any:
        """The new function; the old one if nothing has changed."""
        function = self.loaded.function
        native = function.native
        unchanged = len(blocks) == len(function.blocks) and all(a.same_as(b) for a, b in zip(blocks, function.blocks))
        if unchanged and result.same_as(function.result):
            return native
        body = relax.SeqExpr(blocks, result, native.body.span)
        body = relax.BlockBuilder().normalize(body) if result.ty.is_missing() else body
        _update_type(body, result.ty)
        params = [*self._needed(body), *self.added]
        # A function may be declared to return something else than its result, as nothing at all.
        declared = None if function.result.ty == native.ret_ty else native.ret_ty
        return relax.Function(params, body, declared, native.is_pure, native.attrs, native.span)

    def _needed(self, body: Any) -> list[Any]:
        """The old parameters without the weights that nothing uses any more."""
        function = self.loaded.function
        if not self.free:
            return function.params
        used = set(free_variables(body))
        params: list[Any] = []
        unused = function.unused(function.params).difference(function.used_by_result)
        for var in function.params:
            if var.name in self.values and var not in used and var not in unused:
                del self.values[var.name]
            else:
                params.append(var)
        return params


# ---------------------------------------------------------------- writing a view


class RelaxStorer(RelaxValues):
    """Builds the function of one rewritten view."""

    def __init__(self, graph: Graph, loaded: Loaded, parameters: RelaxParameterStore, caller: Caller) -> None:
        super().__init__(graph, parameters.weight)
        self.loaded = loaded
        self.function = loaded.function
        self.parameters = parameters
        self._check()
        self.plan = RelaxPlan(graph, loaded)
        self.kept, self.inner = self.plan.kept, self.plan.inner
        self.done: set[int] = set()
        """The numbers of the bindings that have been stored."""
        result, place = loaded.result, self.function.place
        tuples = [part for part in parts_of(result) if isinstance(part, Fields) and part.var is not None]
        self.tuples = {place[part.var]: part for part in tuples}
        """The tuples of the result that are bound to variables, by the numbers of their bindings."""
        self.pending = deque(sorted((*self.plan.hidden, *self.tuples)))
        self.outliner = Outliner(caller.module, parameters.weight, loaded)
        calls = Caller(caller.module, caller.dims, self.outliner.bring)
        self.writer = RelaxCallWriter(loaded, calls, self.value, self.outliner)
        self.blocks = Blocks(self.function)
        self.swaps = Swaps()
        self.places = self._places()
        self.returned = {graph.outputs[part] for part in parts_of(result, bound=False) if isinstance(part, int)}
        """The nodes to which the result refers, other than by a tuple that is bound to a variable."""
        self._like: dict[WrittenPart, Type] = {}
        """The type in the view, which is that of Relax, for calls that are written alike."""
        self._retyped = False
        """True if an old call may have operands of other types than before."""

    def store(self) -> Any:
        """The new function; the old one if nothing has changed."""
        self.store_nodes(self.graph.nodes)
        self._flush(len(self.function.bindings))
        result = self._result(self.loaded.result, self.function.result)
        self.blocks.contents, result = self.swaps.undone(self.blocks.contents, result)
        self.writer.close()
        return self.parameters.function(*self.blocks.finish(result))

    def remember(self) -> None:
        """Let other programs use what was written, as TVM has checked it."""
        if self.fresh is not None:
            self.writer.remember()
            self.outliner.remember()

    @property
    def fresh(self) -> list[Any] | None:
        """Calls among which every new one has its like; ``None`` where types of others may have changed as well."""
        exact = self.loaded.scope.is_exact and not self._retyped
        return [*self.writer.fresh, *self.swaps.joined] if exact else None

    def _check(self) -> None:
        known = self.loaded.natives
        for node in self.graph.nodes:
            if node.native is not None:
                if node.native not in known:
                    raise foreign(node, self.framework)
                if node.op == INPUT:
                    self.values[node] = node.native.native
            elif node.op == INPUT:
                raise added(node, self.framework)
        self.check_outputs(self.loaded.outputs)

    def _places(self) -> dict[Node, int]:
        """The block in which each node should stand, its own or that of the node that it replaces; nothing if there is
        but one."""
        if len(self.function.blocks) <= 1:
            return {}
        places: dict[Node, int] = {}
        limit = max(0, len(self.function.blocks) - 1)
        for node in reversed(self.graph.nodes):
            handle = handle_of(node)
            own = [self.function.block_of(place) for place in places_of(node, self.loaded)]
            if handle is not None and handle.reading in self.plan.kept:
                limit = min(limit, max(own, default=0))
                places[node] = max(own, default=0)
            else:
                places[node] = min(max(own, default=0), limit)
        return places

    # ------------------------------------------------------------ what is kept

    def _flush(self, before: int) -> None:
        """Store the waiting bindings that stood before that place, as far as their operands exist."""
        late: list[int] = []
        while self.pending and self.pending[0] < before:
            place = self.pending.popleft()
            if place in self.done:
                continue
            if place in self.tuples and self._is_known(self.tuples[place]):
                self._result(self.tuples[place], self.tuples[place].var)
            elif place in self.plan.hidden and self._is_ready(place):
                self._hidden(place)
            else:
                late.append(place)
        self.pending.extendleft(reversed(late))

    def _is_ready(self, place: int) -> bool:
        arguments = self.plan.hidden[place]
        for var in self.function.uses(place):
            if var in arguments:
                if not self.has_value(arguments[var]):
                    return False
            elif self.function.place.get(var, -1) not in (-1, *self.done):
                return False
        return True

    def _is_known(self, result: OutputSource) -> bool:
        """True if all the values of a part of the result exist."""
        outputs = [self.graph.outputs[part] for part in parts_of(result) if isinstance(part, int)]
        return all(map(self.has_value, outputs))

    def _hidden(self, place: int) -> None:
        """Store a binding without a view node, after those that it refers to."""
        work = [place]
        while work:
            top = work[-1]
            below = [self.function.place[var] for var in self.function.uses(top)
                     if var in self.function.place and self.function.place[var] in self.plan.hidden]  # fmt: skip
            below = [number for number in below if number not in self.done]
            if below and top not in self.done:
                work.extend(below)
                continue
            work.pop()
            if top not in self.done:
                self.done.add(top)
                self._copy(top, self.plan.hidden[top])

    def keep(self, node: Node, reading: Any) -> Any:
        arguments = self.plan.kept[reading]
        place = self.function.place[reading.native]
        if self.pending:
            self._flush(place)
        for through in reading.through:
            if through < place and through in self.plan.hidden:
                self._hidden(through)
        value = self.function.values[place]
        if node.op == GETITEM and isinstance(value, relax.TupleGetItem):
            whole = self._argument(self.function.own(value.tuple_value), arguments)
            if isinstance(whole, relax.Tuple):
                return whole.fields[node.attrs["index"]]
        self.done.add(place)
        return self._copy(place, arguments)

    def _copy(self, place: int, arguments: Arguments) -> Any:
        """Store an old binding with the new values of its variables; the variable that has its value."""
        instead: dict[Any, Any] = {}
        for var in self.function.uses(place):
            new = self._argument(var, arguments)
            if new is not var and not new.same_as(var):
                instead[var] = new
                self._retyped = self._retyped or not self._is_typed_like(var, arguments.get(var))
        if not instead:
            return self.blocks.keep(place)
        binding, value = self.function.bindings[place], self.function.with_args(place, instead)
        return self.blocks.keep(place, with_value(binding, value, self.function.vars[place]))

    def _is_typed_like(self, var: Any, node: Node | None) -> bool:
        """True if the node that takes the place of a variable has its type."""
        own = self.loaded.scope.type_of(var)
        return node is None or (own is not None and (own is node.type or own == node.type))

    def _argument(self, var: Any, arguments: Arguments) -> Any:
        """The expression that stands for a variable of an old binding in the new function."""
        node = arguments.get(var)
        if node is None or (var in self.loaded.aliases and stands_for(node, var, self.loaded)):
            place = self.function.place.get(var)
            if place is not None and place in self.plan.hidden:
                self._hidden(place)
            return self.blocks.renamed(var)
        return self.value(node)

    # ------------------------------------------------------------ what is new

    def write(self, node: Node) -> Any:
        if self.places:
            self.blocks.move(self.places[node])
        emit = self.swaps.noting(node, self.blocks.add)
        expr, recipe = self.writer.write(node, self._make, emit)
        if type(expr) is not ir.Call and not isinstance(expr, relax.TupleGetItem):
            return expr
        if recipe is None or self._like.get(recipe) is not node.type:
            self._check_type(node, expr)
            if recipe is not None and node.type is not None:
                self._like[recipe] = node.type
        handle = None if node.native is None else handle_of(node)
        var = None if handle is None or not handle.is_root else self.blocks.again(handle.reading.native)
        if var is None:
            own = expr.ty if recipe is None else recipe.type
            var = self.blocks.variable(self.writer.names.free(node.name), own, visible=node in self.returned)
        emit(var, expr)
        return var

    def _check_type(self, node: Node, expr: Any) -> None:
        """FrontEndError unless Relax gives the type of a node to the expression written for it."""
        found = node.type if node.type is None else self.loaded.scope.type_of(expr)
        if found != node.type:
            raise FrontEndError(f"{node.name}: Relax gives it the type {found}, not {node.type}")

    def _make(self, name: str, type: Any) -> Any:
        """A variable for a part of the expression that is written for a node."""
        return self.blocks.variable(self.writer.names.free(name), type)

    # ------------------------------------------------------------ the result

    def _result(self, result: OutputSource, old: Any) -> Any:
        """A part of the function's result, for the expression that it was."""
        if isinstance(result, int):
            node = self.graph.outputs[result]
            if isinstance(old, relax.Var):
                return self._argument(old, {old: node})
            leaf = node.native
            return leaf.expr if isinstance(leaf, RelaxLeaf) and leaf.expr.same_as(old) else self.value(node)
        if not isinstance(result, Fields):
            return old
        if result.var is not None and self.function.place[result.var] in self.done:
            return self.blocks.renamed(result.var)
        whole = old if result.var is None else self.function.lookup(result.var)
        items = [self._result(item, field) for item, field in zip(result.items, whole.fields)]
        same = all(new.same_as(field) for new, field in zip(items, whole.fields))
        new = whole if same else relax.Tuple(items, whole.span)
        if result.var is None:
            return new
        place = self.function.place[result.var]
        self.done.add(place)
        return self.blocks.keep(place, None if same else with_value(self.function.bindings[place], new))

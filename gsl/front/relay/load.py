"""A function of Relay to a view: every expression becomes the tree of its canonical reading, or one opaque node."""

from __future__ import annotations

from collections.abc import Collection, Hashable, Mapping, Sequence
from functools import partial
from typing import Any

import tvm
from tvm import ir, relay

from gsl.errors import FrontEndError
from gsl.front.core.handle import Handle, Reading, Single
from gsl.front.core.infer import inferred, refined
from gsl.front.core.load import Expansion, Loader, Rows, recorded
from gsl.front.relay import opaque, spellings
from gsl.front.relay.handle import (
    ByExpression,
    FrozenReading,
    KnownParts,
    RelayLeaf,
    hidden_variables,
    in_order,
    output_exprs,
    unique_names,
)
from gsl.front.relay.spellings.table import items, name_of
from gsl.front.relay.types import KnownTypes, RelayTypes, checked_type, infer, infer_local
from gsl.front.tree import Canon
from gsl.front.tvm.spellings import pattern
from gsl.front.tvm.tensors import known_dtype, to_torch
from gsl.graph import CONST, GETITEM, INPUT, PARAM, TUPLE, Effect, Graph, Node, Op, TensorType, Type
from gsl.graph.subgraph import Subgraph
from gsl.spec.meaning import has_symbols


class _Attributes:
    """The attributes of a call as a key."""

    # TVM's comparison takes floats for equal that are less than 1e-9 apart; its hash tells them apart by their bits.

    __slots__ = ("attrs", "hash")

    def __init__(self, attrs: Any) -> None:
        self.attrs = attrs
        self.hash = int(tvm.ir.structural_hash(attrs))

    def __hash__(self) -> int:
        return self.hash

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, _Attributes):
            return NotImplemented
        return self.hash == other.hash and bool(tvm.ir.structural_equal(self.attrs, other.attrs))


class RelaySignatures:
    """The forms of the calls of one function.

    What computes the operands is not part of a key: that a reading does not look at it has to be made sure before.
    """

    def __init__(self) -> None:
        self._forms: dict[Hashable, Rows] = {}

    def key(self, call: relay.Call, name: str, operands: Sequence[Any], views: Sequence[Node], index: int) -> Hashable:
        """A key of all on which the loading of a call of an operator depends, or of its field of that index (-1 for the
        call); ``None`` where there is no such key."""
        if any(isinstance(operand, relay.Constant) for operand in operands):
            return None
        places = [operand.handle.value for operand in operands]
        same = tuple(map(places.index, places)) if len(set(places)) < len(places) else None
        attrs = call.attrs
        return name, index, None if attrs is None else _Attributes(attrs), same, tuple([view.type for view in views])

    def known(self, key: Hashable) -> Rows | None:
        """The form that was noted under a key."""
        return None if key is None else self._forms.get(key)

    def note(
        self, key: Hashable, nodes: Sequence[Node], operands: Sequence[Any], views: Sequence[Node],
        through: tuple[Any, ...],
    ) -> None:  # fmt: skip
        """Note the nodes as which a call was loaded, if they are a reading of its operands alone, through just these
        other expressions, and of known types."""
        root = nodes[-1]
        if key is None or root.deps or not isinstance(root.native, Handle) or root.native.reading.through != through:
            return
        if any(node.type is None or has_symbols(node.type) for node in (*views, *nodes)):
            return  # every size that is not known is a symbol of its own
        sources = [node.native.sources for node in nodes if isinstance(node.native, Handle)]
        try:
            self._forms[key] = recorded(nodes, sources, "", operands)
        except KeyError:
            return



class _Scope:
    """The scope of a call about whose surroundings nothing is known."""

    def type_of(self, expr: Any) -> Type | None:
        return RelayTypes().of(checked_type(expr))


def canonical(op: Op, operands: int | None, attrs: Mapping[str, Any]) -> str | None:
    """The pattern of the canonical operators as which a call of Relay's operator is loaded, as far as that can be told.

    ``None`` if it is loaded as it is.
    """
    def variable(name: str, rank: int) -> Any:
        return relay.var(name, shape=(2,) * rank)

    def read(made: Any) -> Canon | None:
        call = made.astuple() if isinstance(made, relay.expr.TupleWrapper) else made
        for expr in (*call.args, call):
            infer_local(expr)
        return spellings.read(call, _Scope()) or spellings.read_field(call, 0, _Scope())

    return pattern(op, operands, attrs, relay, variable, read)


# ---------------------------------------------------------------- loading


class RelayLoader(Loader):
    """Builds the view of one function, whose expressions have types. It is the scope of readings, too."""

    def __init__(
        self, module: Any, function: relay.Function, names: Sequence[str], params: Mapping[str, Any],
        known: KnownParts | None = None, types: KnownTypes | None = None,
    ) -> None:  # fmt: skip
        super().__init__()
        self.views = ByExpression()
        self.module = module
        self.function = function
        self.names = names
        """The names of the function's variables in the view."""
        self.params = params
        self.types = RelayTypes(types)
        self._types = ByExpression[Type | None]()
        self.parts = KnownParts() if known is None else known
        self.order = ByExpression[int]()
        """The places of the expressions in the order in which they are computed."""
        self.operators = ByExpression[str]()
        """The names of the operators that calls are of."""
        self._signatures = RelaySignatures()
        self._key: Hashable = None
        """The key of the call that is being loaded."""

    def load(self) -> Graph:
        """The view."""
        for name, var in zip(self.names, items(self.function.params)):
            self._variable(name, var)
        body = self.function.body
        outputs = output_exprs(body)
        if opaque.is_impure(self.module, body):
            # Nothing tells the order in which references are read and written, except that of the expressions as a
            # whole: they stay as they are.
            self._frozen(body)
            outputs = [body]
        else:
            for number, expr in enumerate(in_order(outputs, self.parts)):
                self.order[expr] = number
                self._expression(expr)
        results = [self.views[expr] for expr in outputs]
        return Graph(self.alive(results), results, partial(infer, self.module), canonical)

    # ------------------------------------------------------------ leaves

    def _variable(self, name: str, var: relay.Var) -> None:
        type = self.types.of(checked_type(var) or var.type_annotation)
        kind, attrs = (PARAM, {"value": self.params[name]}) if name in self.params else (INPUT, {})
        self.add(var, Node(kind, attrs=attrs, type=type, name=name, native=RelayLeaf(var)))

    def _constant(self, expr: relay.Constant) -> None:
        shape, dtype = tuple(map(int, expr.data.shape)), str(expr.data.dtype)
        if not known_dtype(dtype):
            self._opaque(expr)
            return
        # A constant with axes is a weight, as a variable with a known value is.
        kind, value = PARAM if shape else CONST, to_torch(expr.data)
        view = Node(kind, attrs={"value": value}, type=TensorType(shape, dtype), name="const", native=RelayLeaf(expr))
        self.add(expr, view)

    # ------------------------------------------------------------ expressions

    def _expression(self, expr: Any) -> None:
        match expr:
            case relay.Var():
                if expr not in self.views:
                    raise FrontEndError(f"%{expr.name_hint} is not a variable of Relay's function @main")
            case relay.Constant():
                self._constant(expr)
            case relay.Tuple():
                self._own(expr, TUPLE, {}, "tuple")
            case relay.TupleGetItem():
                self._field(expr)
            case relay.Call():
                self._call(expr)
            case _:
                self._opaque(expr)

    def _call(self, expr: relay.Call) -> None:
        callee = expr.op
        if not isinstance(callee, ir.Op):
            if opaque.composite(callee) is None:
                self._opaque(expr)
            else:
                self._group(expr)
            return
        name = self.operators[expr] = name_of(callee)
        if not self._is_known(expr, expr, name):
            start = len(self.nodes)
            canon = spellings.read(expr, self)
            if canon is None or not self._tree(expr, canon):
                self._opaque(expr)
            self._note(expr, start, ())

    def _field(self, expr: relay.TupleGetItem) -> None:
        """Load a field of a call by its own reading where it has one."""
        (whole,), index = self.parts(expr), int(expr.index)
        name = self.operators.get(whole)
        if name is not None and name in spellings.FIELD_READERS:
            if self._is_known(expr, whole, name, index):
                return
            start = len(self.nodes)
            canon = spellings.read_field(whole, index, self)
            if canon is not None and self._tree(expr, canon):
                self._note(whole, start, (whole,))
                return
        self._own(expr, GETITEM, {"index": index}, "getitem")

    def _is_known(self, expr: Any, call: relay.Call, name: str, index: int = -1) -> bool:
        """Load an expression, which is a call or the field of one, if it is like one that was loaded before."""
        operands = self.parts(call)
        views = [self.views[operand] for operand in operands]
        looks_at = spellings.LOOKS_AT.get(name)
        looks = looks_at is not None and any(self.operators.get(operand) in looks_at for operand in operands)
        self._key = None if looks else self._signatures.key(call, name, operands, views, index)
        rows = self._signatures.known(self._key)
        if rows is None:
            return False
        self.replay(rows, Reading(expr, len(rows), () if expr is call else (call,)), views, operands, "")
        return True

    def _note(self, call: relay.Call, start: int, through: tuple[Any, ...]) -> None:
        """Note the nodes from a place on, which are those of a call, or of a field of it, that is not yet known."""
        operands = self.parts(call)
        views = [self.views[operand] for operand in operands]
        self._signatures.note(self._key, self.nodes[start:], operands, views, through)

    def _own(self, expr: Any, op: Any, attrs: Mapping[str, Any], name: str, effect: Effect | None = None) -> None:
        """Add a node that alone makes up the reading of an expression, with the expression's parts as operands."""
        sources = self.parts(expr)
        extra = hidden_variables(expr)
        operands = tuple([self.views[part] for part in sources])
        view = Node(
            op, operands, attrs, self._type(expr, op, operands, attrs), name=name,
            native=Single(expr, (*sources, *extra)), effect=effect, deps=tuple([self.views[var] for var in extra]),
        )  # fmt: skip
        self.add(expr, view)

    def _group(self, expr: relay.Call) -> None:
        """Load the call of an outlined group, whose function is loaded at its first use."""
        function, module = opaque.composite(expr.op), self.module
        attrs = opaque.attributes(function.attrs)
        name = attrs.pop(opaque.COMPOSITE)
        attrs.pop(opaque.PATTERN, None)
        codegen = opaque.codegen_of(expr.op)
        if codegen is not None:
            attrs[opaque.CODEGEN] = codegen
        group = Subgraph(name, lambda: RelayLoader(module, function, unique_names(function), {}).load())
        self._own(expr, group, attrs, name.rpartition(".")[2])

    def _opaque(self, expr: Any) -> None:
        call = opaque.describe(expr)
        self._own(expr, call.op, call.attrs, opaque.name_of(call.op), call.effect)

    def _frozen(self, expr: Any) -> None:
        """Load an expression with all that is in it as one node that must stay as it is."""
        variables = tuple(relay.analysis.free_vars(expr))
        deps = tuple([self.views[var] for var in variables])
        handle = FrozenReading(expr, variables)
        op = opaque.describe(expr).op
        view = Node(
            op, (), {}, self._native_type(expr), name=opaque.name_of(op), native=handle, effect=Effect.OTHER, deps=deps
        )
        self.add(expr, view)

    # ------------------------------------------------------------ canonical readings

    def _tree(self, expr: Any, canon: Canon) -> bool:
        """Load the tree of a canonical reading; False if the view can't hold it."""
        tree = Expansion(self.leaf, inferred)
        if not self.expand(tree, canon, expr):
            return False
        *_, root = tree.nodes
        native = self._native_type(expr)
        root.type = native if root.type is None else refined(native, root.type)
        if root.type is None and native is not None:
            # Relay says something else than the meaning of the operator.
            return False
        leaves = ByExpression[None]()
        for sources in tree.sources:
            leaves.update((source, None) for source in sources if not isinstance(source, int))
        through, extra = self._between(expr, leaves)
        self.link(tree, Reading(expr, len(tree.nodes), through), extra)
        return True

    def is_value(self, operand: Any, native: Any) -> bool:
        return operand in self.views

    def _between(self, root: Any, leaves: Collection[Any]) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
        """The expressions between the leaves of a reading and its root, and the other expressions from which those and
        the root are computed."""
        if all(part in leaves for part in self.parts(root)):
            return (), ()  # as nearly always
        lowest = min([self.order.get(leaf, -1) for leaf in leaves], default=len(self.order))
        extra = ByExpression[None]()

        def below(expr: Any) -> Sequence[Any]:
            if expr in leaves or isinstance(expr, relay.Constant):
                return ()
            if expr in extra or (expr is not root and self.order[expr] < lowest):
                extra[expr] = None
                return ()
            return self.parts(expr)

        *through, _ = [expr for expr in in_order([root], below) if expr not in leaves and expr not in extra]
        return tuple(through), tuple([expr for expr in extra if not isinstance(expr, relay.Constant)])

    # ------------------------------------------------------------ types

    def type_of(self, expr: Any) -> Type | None:
        """The type of an expression: that of its node in the view if there is one."""
        view = self.views.get(expr)
        return view.type if view is not None else self._native_type(expr)

    def _native_type(self, expr: Any) -> Type | None:
        """The type that Relay knows, in which every unknown size is a symbol of its own."""
        try:
            return self._types[expr]
        except KeyError:
            found = self._types[expr] = self.types.of(checked_type(expr))
            return found

    def _type(self, expr: Any, op: Any, operands: tuple[Node, ...], attrs: Mapping[str, Any]) -> Type | None:
        if op in (TUPLE, GETITEM) and not has_symbols(tuple([operand.type for operand in operands])):
            return inferred(op, operands, attrs)
        native = self._native_type(expr)
        if has_symbols(native) and op in (TUPLE, GETITEM):
            return refined(native, inferred(op, operands, attrs)) or native
        return native

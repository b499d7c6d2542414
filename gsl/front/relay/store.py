"""The way from a rewritten view to a function of Relay: untouched expressions stay, the rest is written."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence
from functools import cached_property, lru_cache
from itertools import count
from typing import Any

import tvm
from tvm import relay

from gsl.errors import FrontEndError
from gsl.front.core.handle import NUMBERS, is_literal
from gsl.front.core.infer import dtype_of_number
from gsl.front.core.opaque import as_group
from gsl.front.core.store import Storer, added, foreign
from gsl.front.relay import opaque, spellings
from gsl.front.relay.handle import (
    ByExpression,
    FrozenReading,
    RelayLeaf,
    bound,
    in_order,
    native_of,
    output_exprs,
    parts,
    rebuilt,
)  # fmt: skip
from gsl.front.relay.recipes import Recipe, key_of, recipe_of
from gsl.front.relay.spellings.table import items
from gsl.front.relay.types import KnownTypes, RelayTypes, checked_type, infer_local, is_static, native_type, stand_in
from gsl.front.tvm.spellings import is_call
from gsl.front.tvm.tensors import to_torch, to_tvm
from gsl.graph import GETITEM, INPUT, PARAM, TUPLE, Graph, Node, SymDim, TupleType, Type, dtype_name, op_name
from gsl.graph.subgraph import Subgraph
from gsl.spec import OperatorName
from gsl.spec.meaning import has_symbols

PREFIX = "_param_"
"""The names of new weights begin so; a number follows. Relay prints a ``v`` before the underscore."""


class RelayStorer(Storer):
    """Builds the function of one rewritten view."""

    framework = "Relay"

    def __init__(
        self, graph: Graph, module: Any, recipes: dict[Hashable, Recipe] | None = None, types: KnownTypes | None = None
    ) -> None:
        super().__init__(graph)
        self._known: KnownTypes = {} if types is None else types
        self.module = module
        self.recipes: dict[Hashable, Recipe] = {} if recipes is None else recipes
        """The known ways to write calls, by :func:`key_of`."""
        self._static = ByExpression[bool]()
        self._fields: dict[Type | None, Any] = {}
        """A field of a tuple for each type."""
        self._tuples: dict[Type | None, Any] = {}
        """A tuple for each type."""
        self._spans: dict[int, Any] = {}
        """The places in the source for what was made in place of some nodes, by the identity of the tuple of these."""
        self.function: relay.Function = module["main"]
        self.weights: dict[str, Any] = {}
        """The new weights by name, as tensors of TVM."""
        self._types = ByExpression[Type | None]()
        """The types of the expressions so far, as the view knows them."""
        self._sizes = RelayTypes()
        self._new_variables: list[relay.Var] = []
        self._symbols: set[str] | None = None
        """The symbols of the functions for code generators, once one is made."""

    @cached_property
    def _variables(self) -> ByExpression[str]:
        """The variables of the function, with their names."""
        found = ByExpression[str]()
        for var in items(self.function.params):
            found[var] = str(var.name_hint)
        return found

    @cached_property
    def _new_names(self) -> Iterator[str]:
        """The names for new weights, which no variable has."""
        known = set(self._variables.values())
        return (name for number in count(1) if (name := f"{PREFIX}{number}") not in known)

    def store(self) -> relay.Function:
        """The function; the very same one if nothing has changed. FrontEndError if it can't be made."""
        for node in self.graph:
            if node.op == INPUT:
                self.values[node] = self.weight(node)
        self.keep_intact()
        self.store_nodes(self.graph.nodes)
        return self._finish(self._body())

    def try_call(self, op: Any, operands: tuple[Node, ...], attrs: Mapping[str, Any]) -> None:
        """Raise FrontEndError if Relay can't express a new call, by writing it on variables of the types of its
        operands."""
        if isinstance(op, Subgraph):
            _check_attributes(op, attrs)
            return
        self._rows = {}
        for number, operand in enumerate(operands):
            if not is_literal(operand):
                value = _stand_in(number, operand)
                if value is None:
                    return
                self.values[operand] = self._noted(operand, value)
                self._static[value] = not has_symbols(operand.type)
        self._typed(self._written(Node(op, operands, attrs)))

    def type_of(self, operand: Any) -> Type | None:
        """The type of an expression, as the view knows it. The writer of a call asks for it."""
        if operand not in self._types:
            self._types[operand] = self._sizes.of(checked_type(self._typed(operand)))
        return self._types[operand]

    # ------------------------------------------------------------ what is kept

    def keep(self, node: Node, reading: Any) -> Any:
        return self._noted(node, self._moved(reading))

    def _moved(self, reading: Any) -> Any:
        """The expression of a reading, with the new nodes of its parts."""
        instead = ByExpression[Any]()
        instead.update((source, self.value(view)) for source, view in self.kept[reading].items())
        moved = {source: new for source, new in instead.items() if not new.same_as(source)}
        if not moved:
            return reading.native
        if isinstance(reading, FrozenReading):
            return self._typed(relay.bind(reading.native, moved))
        same = all(tvm.ir.structural_equal(checked_type(old), checked_type(new)) for old, new in moved.items())
        for expr in (*reading.through, reading.native):
            instead[expr] = self._typed(rebuilt(bound(expr, moved), instead, infer=not same))
        return instead[reading.native]

    # ------------------------------------------------------------ what is new

    def tuple_of(self, node: Node, items: list[Any]) -> Any:
        if node.type is None or not all(map(self._is_static, items)):
            return self._noted(node, relay.Tuple(items, self._span(node)))
        known = self._tuples.get(node.type)
        if known is None:
            known = self._tuples[node.type] = self._typed(relay.Tuple(items))
        return self._noted_static(node, relay.expr.TupleWithFields(known, items, None, self._span(node)))

    def fields_of(self, value: Any) -> None:
        """None: a field is taken of a tuple by a call."""

    def number(self, node: Node) -> Any:
        return self._number(node.attrs["value"])

    def weight(self, node: Node) -> Any:
        if isinstance(node.native, RelayLeaf):
            if isinstance(node.native.expr, relay.Var) and node.native.expr not in self._variables:
                raise foreign(node, self.framework)
            return self._noted(node, node.native.expr)
        if node.op == INPUT:
            raise added(node, self.framework)
        if node.op == PARAM:
            return self._noted(node, self._new_weight(node))
        return self._noted(node, relay.Constant(to_tvm(node.attrs["value"])))

    def write(self, node: Node) -> Any:
        return self._noted(node, self._written(node))

    def _written(self, node: Node) -> Any:
        operands = [self._operand(operand) for operand in node.operands]
        if node.op == GETITEM:
            return self._field(node, operands[0])
        try:
            if isinstance(node.op, OperatorName):
                node = as_group(node)
            if isinstance(node.op, Subgraph):
                expr = relay.Call(self._outlined(node.op, node.attrs), [self._number(operand) for operand in operands])
            elif isinstance(node.op, str):
                return self._canonical(node, operands)
            else:
                expr = opaque.call(self.module, node.op, [self._number(operand) for operand in operands], node.attrs)
        except FrontEndError:
            raise
        except Exception as error:
            raise FrontEndError(f"{node.name or op_name(node.op)}: can't be written in Relay: {error}") from error
        return self._spanned(_plain(expr), self._span(node))

    def _field(self, node: Node, whole: Any) -> Any:
        """A field of a tuple. TVM would go through the types of all fields to find that of one: it is that of another
        field which has it."""
        span, index = self._span(node), int(node.attrs["index"])
        if node.type is None or not self._is_static(whole):
            return relay.TupleGetItem(whole, index, span)
        known = self._fields.get(node.type)
        if known is None:
            known = self._fields[node.type] = self._typed(relay.TupleGetItem(whole, index))
        return self._noted_static(node, relay.expr.TupleGetItemWithFields(known, whole, index, None, span))

    def _canonical(self, node: Node, operands: list[Any]) -> Any:
        """A canonical call, written as one before that was like it."""
        span, key = self._span(node), key_of(node, operands) if all(map(self._is_static, operands)) else None
        recipe = None if key is None else self.recipes.get(key)
        if recipe is None:
            expr = _plain(spellings.write(str(node.op), node.attrs, tuple(operands), self))
            recipe = None if key is None else recipe_of(expr, operands, self._typed)
            if recipe is None:
                return self._spanned(self._with_shared_rows(expr), span)
            self.recipes[key] = recipe
        made = recipe.follow(operands, span)
        self._static[made] = recipe.is_static
        return made

    def _is_static(self, operand: Any) -> bool:
        """True if Relay, too, knows all sizes of an operand."""
        if isinstance(operand, NUMBERS):
            return True
        known = self._static.get(operand)
        if known is None:
            type = checked_type(operand)
            known = type is not None and (type.handle.value in self._known or is_static(type))
            self._static[operand] = known
        return known

    def _with_shared_rows(self, expr: Any) -> Any:
        """A new product with the matrix that another one has made of the same tensor."""
        if not is_call(expr, "reshape"):
            return expr
        product = expr.args[0]
        rows = product.args[0] if isinstance(product, relay.Call) and product.args else None
        key = _reshape_of(rows)
        if key is None:
            return expr
        shared = self._rows.setdefault(key, rows)
        return rebuilt(expr, {product: rebuilt(product, {rows: shared})})

    @cached_property
    def _rows(self) -> dict[tuple[Any, tuple[int, ...]], Any]:
        """The reshapes of the function, by their operand and their new shape."""
        keys = [(expr, _reshape_of(expr)) for expr in in_order([self.function.body])]
        return {key: expr for expr, key in keys if key is not None}

    def _outlined(self, group: Subgraph, attrs: Mapping[str, Any]) -> relay.Function:
        """An outlined group as a function that carries its name and attributes."""
        inner = RelayStorer(group.body, self.module, self.recipes, self._known)
        variables = []
        for node in group.body:
            if node.op == INPUT:
                type = native_type(node.type, unknown=True)
                if type is None:
                    raise FrontEndError(f"{group.name}: a function of Relay needs the type of its operand {node.name}")
                variables.append(relay.Var(node.name, type))
                inner.values[node] = inner._noted(node, variables[-1])
        inner.keep_intact()
        inner.store_nodes(group.body.nodes)
        results = list(map(inner.value, group.body.outputs))
        body = inner._typed(results[0] if len(results) == 1 else relay.Tuple(results))
        function = relay.Function(variables, body, checked_type(body)).with_attr(opaque.COMPOSITE, group.name)
        function = function.with_attr(opaque.PATTERN, opaque.pattern_of(body))
        _check_attributes(group, attrs)
        for name, value in attrs.items():
            if name != opaque.CODEGEN:
                function = function.with_attr(name, value)
        if opaque.CODEGEN not in attrs:
            return function
        if self._symbols is None:
            self._symbols = opaque.symbols(self.function)
        return opaque.around(function, attrs[opaque.CODEGEN], group.name, self._symbols)

    def _operand(self, view: Node) -> Any:
        """The stand-in for an operand when a call is spelled: an expression, or a Python number."""
        return view.attrs["value"] if is_literal(view) else self.value(view)

    def _number(self, operand: Any) -> Any:
        """A Python number as a constant, where an expression is needed."""
        if not isinstance(operand, (bool, int, float)):
            return operand
        return self._typed(relay.const(operand, dtype_of_number(operand)))

    def _new_weight(self, node: Node) -> relay.Var:
        name = next(self._new_names)
        value = to_torch(node.attrs["value"])
        self.weights[name] = to_tvm(value)
        var = relay.var(name, shape=tuple(value.shape), dtype=dtype_name(value.dtype))
        self._new_variables.append(var)
        return var

    # ------------------------------------------------------------ types and places in the source

    def _noted(self, node: Node, expr: Any) -> Any:
        """The expression of a node, whose type is noted."""
        self._types.setdefault(expr, node.type)
        return expr if self._static.get(expr) else self._typed(expr)

    def _noted_static(self, node: Node, expr: Any) -> Any:
        """The same for one of which Relay has found the type, and knows all sizes."""
        self._static[expr] = True
        return self._noted(node, expr)

    def _typed(self, expr: Any) -> Any:
        """The expression, of which Relay has found the type of every part. FrontEndError if it is ill-typed."""
        for part in in_order([expr], _new_parts) if checked_type(expr) is None else ():
            if checked_type(part) is None:
                try:
                    infer_local(part)
                except ValueError as error:
                    raise FrontEndError(f"Relay finds no type for a new expression: {error}") from None
        return expr

    def _span(self, node: Node) -> Any:
        """The place in the source from which a node came: its own, or that of the nodes that it replaces."""
        if node.origin is None:
            return _first_span([node])
        replaced = node.origin.replaced
        if id(replaced) not in self._spans:
            self._spans[id(replaced)] = _first_span(sorted(replaced, key=lambda old: -old.index))
        return self._spans[id(replaced)]

    def _spanned(self, expr: Any, span: Any) -> Any:
        """A new expression with this place in the source for all its new parts."""
        if span is None:
            return expr
        instead: dict[Any, Any] = {}
        for part in in_order([expr], _new_parts):
            if checked_type(part) is None:
                instead[part] = rebuilt(part, instead, span)
        return instead.get(expr, expr)

    # ------------------------------------------------------------ the function

    def _body(self) -> Any:
        results = list(map(self.value, self.graph.outputs))
        old = self.function.body
        if len(self.graph.outputs) == 1 and isinstance(self.graph.outputs[0].native, FrozenReading):
            return results[0]
        self.check_outputs(len(output_exprs(old)))
        values = iter(results)

        def structured(expr: Any) -> Any:
            if not isinstance(expr, relay.Tuple):
                return next(values)
            fields = [structured(field) for field in expr.fields]
            same = all(a.same_as(b) for a, b in zip(expr.fields, fields))
            return expr if same else relay.Tuple(fields, expr.span)

        return self._typed(structured(old))

    def _finish(self, body: Any) -> relay.Function:
        old = self.function
        if body.same_as(old.body):
            return old
        used = set(relay.analysis.free_vars(body))
        inputs = {node.native.expr for node in self.graph if node.op == INPUT}
        kept = [var for var in old.params if var in used or var in inputs]
        params = kept + [var for var in self._new_variables if var in used]
        type = checked_type(body)
        if not all(map(self._is_static, output_exprs(body))):
            return self._typed(relay.Function(params, body, type, old.type_params, old.attrs, old.span))
        # TVM would go through the whole body to find the type of the function: another one of that type will do.
        other = relay.Function(params, self._zeros_like(body), type, old.type_params, old.attrs, old.span)
        infer_local(other)
        return relay.function.FunctionWithFields(other, None, body)


    def _zeros_like(self, expr: Any) -> Any:
        """An expression of the type of another one, whose sizes are numbers."""
        if isinstance(expr, relay.Tuple):
            return relay.Tuple(list(map(self._zeros_like, expr.fields)))
        return _zeros(self.type_of(expr))


@lru_cache(maxsize=4096)
def _zeros(type: Type) -> Any:
    if isinstance(type, TupleType):
        return relay.Tuple(list(map(_zeros, type.fields)))
    return relay.zeros(type.shape, type.dtype)


def _first_span(nodes: Sequence[Node]) -> Any:
    """The first place in the source that one of some nodes has."""
    native = (native_of(node) for node in nodes)
    return next((expr.span for expr in native if expr is not None and expr.span is not None), None)


def _plain(expr: Any) -> Any:
    return expr.astuple() if isinstance(expr, relay.expr.TupleWrapper) else expr


def _reshape_of(expr: Any) -> tuple[Any, tuple[int, ...]] | None:
    """The operand and the new shape of a reshape; ``None`` for anything else."""
    if not is_call(expr, "reshape"):
        return None
    return expr.args[0], tuple(map(int, expr.attrs.newshape))


def _stand_in(number: int, operand: Node) -> Any:
    """A stand-in for an operand of a new call that is tried; ``None`` if Relay has no such type."""
    if operand.op != TUPLE:
        return stand_in(number, operand.type)
    parts = [stand_in(number, item.type) for item in operand.operands]
    return None if any(part is None for part in parts) else relay.Tuple(parts)


def _check_attributes(group: Subgraph, attrs: Mapping[str, Any]) -> None:
    """Raise FrontEndError for attributes that the function of a group can't have."""
    for name, value in attrs.items():
        if name in (opaque.COMPOSITE, opaque.PATTERN):
            raise FrontEndError(f"{group.name}: the attribute {name} is Relay's own; give it another name")
        if name != opaque.CODEGEN and not _is_kept(value):
            raise FrontEndError(
                f"{group.name}: Relay can't hold the attribute {name}={value!r}: whole numbers have 64 bits, texts no "
                "zero byte, and no size is symbolic"
            )


def _is_kept(value: Any) -> bool:
    """True for an attribute that Relay's objects hold as it is: others would be cut without a word."""
    if isinstance(value, tuple):
        return all(map(_is_kept, value))
    if isinstance(value, str):
        return "\0" not in value
    if isinstance(value, int):
        return -(2**63) <= value < 2**63
    return not isinstance(value, (complex, SymDim))


def _new_parts(expr: Any) -> Sequence[Any]:
    return () if checked_type(expr) is not None else parts(expr)

"""Building a target: from a match to the new nodes that replace the covered ones."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import groupby
from types import MappingProxyType
from typing import Any, Final

from gsl.attr.ast import Ast, Literal, Symbol
from gsl.attr.evaluate import Evaluator
from gsl.errors import EvaluationError, PatternError, PatternTypeError
from gsl.graph import CONST, GETITEM, TUPLE, Graph, Node, Op, Origin, TensorType, TupleType, Type, op_name
from gsl.graph.splice import is_new, new_node
from gsl.graph.subgraph import Subgraph, call_type, outlined
from gsl.match import Match
from gsl.match.bindings import MatchScope, read
from gsl.pat import (
    And,
    Call,
    Cond,
    Const,
    Exactly,
    Fused,
    GetItem,
    Instance,
    Like,
    Module,
    OpClass,
    Pattern,
    Tuple,
    Variadic,
)
from gsl.pat import Match as MatchClause
from gsl.rewrite.calls import form, is_number
from gsl.rewrite.check import Refusal
from gsl.spec import TABLE, OpSpec
from gsl.spec.symbolic import has_symbols

Symbols = dict[Symbol, Any]
_NOTHING: Final[Mapping[str, Any]] = MappingProxyType({})
Free = Mapping[str, tuple[tuple[Call, str], ...]]
"""The source calls of every operator, each with an attribute that the source leaves free."""


class Builder:
    """Builds the target of one match. The nodes that it makes are not part of the graph until they are spliced in."""

    def __init__(self, match: Match, graph: Graph, rule: str, free: Free) -> None:
        self.match = match
        self.graph = graph
        self.free = free
        self.origin = Origin(rule, match.inner)
        self._built: dict[Any, Node] = {}
        self._free_values: dict[Call, dict[str, list[Any]]] = {}

    def build(self, pattern: Pattern, symbols: Symbols | None = None) -> Node:
        """The node of a target pattern: the matched one, or a new one. Raises Refusal where there can't be one."""
        symbols = symbols or {}
        work = [pattern]
        while work:  # operands first, without recursion: a target may be deep
            known = self._known(work[-1], symbols)
            below = [] if known is not None else [p for p in needed(work[-1]) if self._known(p, symbols) is None]
            if below:
                work += reversed(below)
                continue
            top = work.pop()
            if known is None:
                self._built[_key(top, symbols)] = self._make(top, symbols)
        node = self._known(pattern, symbols)
        assert node is not None
        return node

    def _known(self, pattern: Pattern, symbols: Symbols) -> Node | None:
        """The node of a pattern that was matched, or built before."""
        bound = None if isinstance(pattern, Instance) else self.match.bindings.get(pattern, ())
        if bound is not None:
            return bound
        if pattern in self.match.plan.known:
            raise not_matched(pattern)
        return self._built.get(_key(pattern, symbols))

    def value(self, node: Ast, symbols: Symbols) -> Any:
        """The value of an expression; Refusal if it has none."""
        if isinstance(node, Literal):
            return node.value
        try:
            return Evaluator(_TargetScope(self), symbols).value(node)
        except EvaluationError as error:
            raise Refusal(f"{node!r} can't be computed: {error}") from error

    def _make(self, pattern: Pattern, symbols: Symbols) -> Node:
        check_demands(pattern)
        match pattern:
            case Exactly():
                return pattern.node
            case Instance():
                return self._instance(pattern, symbols)
            case Call():
                operands = [self.build(operand, symbols) for operand in pattern.operands or ()]
                return self.call(pattern, operands, symbols)
            case Like():
                model = self.build(pattern.of, symbols)
                operands = [self.build(operand, symbols) for operand in pattern.operands]
                return self.like(pattern, model, operands, symbols)
            case Module():
                return self._module(pattern, symbols)
            case Const():
                return self.const(pattern, symbols)
            case Tuple():
                return self.tuple([self.build(item, symbols) for item in pattern.items])
            case GetItem():
                assert pattern.number is not None
                return self.getitem(self.build(pattern.tuple, symbols), self.value(pattern.number, symbols))
            case Cond():
                chosen = self.value(pattern.predicate, symbols)
                if not isinstance(chosen, bool):
                    raise Refusal(f"the condition {pattern.predicate!r} is {chosen!r}, expected True or False")
                return self.build(pattern.then if chosen else pattern.otherwise, symbols)
            case MatchClause():
                number = self.match.bindings.chosen.get(pattern.alternative)
                if number is None:
                    raise Refusal(f"{pattern.alternative!r} was not matched")
                return self.build(pattern.clauses[number], symbols)
            case Variadic():
                return self.tuple(self.instances(pattern, None, symbols))
        raise Refusal(f"{pattern!r} was not matched")

    def instances(self, pattern: Variadic, length: int | None, symbols: Symbols | None = None) -> list[Node]:
        """The instances of a target variadic, as many as its length tells (or as are wanted)."""
        symbols = symbols or {}
        if pattern.count is not None:
            length = self.value(pattern.count, symbols)
        if not isinstance(length, int) or isinstance(length, bool) or length < 0:
            raise Refusal(f"the length of {pattern!r} is {length!r}, expected a number of instances")
        symbol = pattern.symbol if pattern.symbol is not None else Symbol()
        return [
            self.build(pattern.first_field if number == 0 else pattern.field, {**symbols, symbol: number})
            for number in range(length)
        ]

    def fused(self, pattern: Fused) -> list[Node]:
        """The nodes that stand for the outputs of the match after it was outlined: a call of it, or the fields of
        one."""
        match = self.match
        for node in match.inner:
            if node.deps or has_symbols(dict(node.attrs)):
                raise Refusal(f"%{node.name} depends on sizes that are known at run time only, so it can't be outlined")
        covered = set(match.inner)
        leaf = next((output for output in match.outputs if output not in covered), None)
        if leaf is not None:
            raise Refusal(f"%{leaf.name} is an output of the rule, but nothing that it computes")
        attrs = {name: self.value(node, {}) for name, node in pattern.attrs.items()}
        body, operands = outlined(match.inner, match.outputs, self.graph)
        call = self._new(Subgraph(pattern.name, body), operands, attrs, call_type(body))
        if len(match.outputs) == 1:
            return [call]
        return [self.getitem(call, index) for index in range(len(match.outputs))]

    def _instance(self, pattern: Instance, symbols: Symbols) -> Node:
        number = self.value(pattern.number, symbols)
        try:
            node = self.match.bindings.instance(pattern.variadic, pattern.template, number, ())
        except EvaluationError as error:
            raise Refusal(str(error)) from error
        if node is None:
            raise Refusal(f"{pattern!r} was not matched")
        return node

    def _operator(self, pattern: Call) -> OpSpec | Op:
        op = pattern.op
        if isinstance(op, OpClass):
            found = self.match.operators[op]
            return TABLE[found] if isinstance(found, str) else found
        return op

    def _dropped(self, pattern: Call) -> dict[str, list[Any]]:
        """The values that the matched calls of this operator have for the attributes that source and target leave
        out."""
        known = self._free_values.get(pattern)
        if known is None:
            known = self._free_values[pattern] = {}
            op = self._operator(pattern)
            key = op.name if isinstance(op, OpSpec) else None
            for source, name in self.free.get(key, ()) if key is not None else ():
                if name not in pattern.attrs:
                    nodes = self.match.bindings.all_of(source)
                    found = [node.attrs[name] for node in nodes if node.op == key and name in node.attrs]
                    known[name] = [*known.get(name, ()), *(value for value, _ in groupby(found))]
        return known

    def call(self, pattern: Call, operands: Sequence[Node], symbols: Symbols) -> Node:
        """The new call of a pattern."""
        attrs = {name: self.value(node, symbols) for name, node in pattern.attrs.items()}
        return self.new_call(self._operator(pattern), operands, attrs, self._dropped(pattern))

    def like(self, pattern: Like, model: Node, operands: Sequence[Node], symbols: Symbols) -> Node:
        """The new call that has the operator and the other attributes of a model."""
        spec = TABLE.get(model.op) if isinstance(model.op, str) else None
        if spec is None and model.op in (CONST, TUPLE, GETITEM, "input", "param"):
            raise Refusal(f"{pattern.of!r} matched {model!r}, which is not a call, so nothing can be built like it")
        if not pattern.attrs:
            return self.new_call(spec if spec is not None else model.op, operands, model.attrs)
        attrs = {**model.attrs, **{name: self.value(node, symbols) for name, node in pattern.attrs.items()}}
        return self.new_call(spec if spec is not None else model.op, operands, attrs)

    def new_call(
        self,
        op: OpSpec | Op,
        operands: Sequence[Node],
        attrs: Mapping[str, Any],
        dropped: Mapping[str, list[Any]] = _NOTHING,
    ) -> Node:
        """The new call of an operator; for the arguments, see :func:`gsl.rewrite.calls.form`."""
        full, type = form(self.graph, op, operands, attrs, dropped)
        return self._new(op.name if isinstance(op, OpSpec) else op, operands, full, type)

    def _module(self, pattern: Module, symbols: Symbols) -> Node:
        module = pattern.factory(self.match)
        if isinstance(module, str):
            raise Refusal(module)
        if not callable(getattr(module, "forward", None)):
            raise PatternTypeError(
                f"{pattern.location}: the factory of {pattern!r} returned {module!r} of type {type(module).__name__}, "
                "expected an nn.Module, or the reason for refusing as a string"
            )
        operands = [self.build(operand, symbols) for operand in pattern.operands]
        kind: Any = type(module)
        return self.new_call(kind, operands, {"module": module})

    def const(self, pattern: Const, symbols: Symbols) -> Node:
        value = self.value(pattern.literal, symbols) if isinstance(pattern.literal, Ast) else pattern.literal
        dtype = None if pattern.guard is None or pattern.guard.dtype is None else (
            self.value(pattern.guard.dtype, symbols)
        )  # fmt: skip
        if not hasattr(value, "shape") and dtype is None:
            if not isinstance(value, (bool, int, float)):
                raise Refusal(f"the literal {pattern!r} is {value!r}, expected a number")
            return self._number(value)
        import numpy

        if hasattr(value, "new_tensor"):
            array, kind = value, str(value.dtype).removeprefix("torch.")
        else:
            array = numpy.asarray(value)
            if array.dtype == numpy.float64 and (dtype is None or not _numpy_knows(dtype)):
                array = array.astype(numpy.float32)
            elif dtype is not None and _numpy_knows(dtype):
                array = array.astype(dtype)
            kind = str(array.dtype)
        const = self._new(CONST, (), {"value": array}, TensorType(tuple(array.shape), kind))
        if dtype is None or dtype == kind:
            return const
        return self.new_call(TABLE["cast"], [const], {"dtype": dtype})  # numpy has no bfloat16

    def _number(self, value: bool | int | float) -> Node:
        kind = "bool" if isinstance(value, bool) else "int64" if isinstance(value, int) else "float32"
        return self._new(CONST, (), {"value": value}, TensorType((), kind))

    def instead(self, old: Node, new: Node) -> Node:
        """The node that replaces ``old`` if the target built ``new``: a tensor where ``new`` is a number and ``old`` is
        none.

        A number is not a tensor without dimensions: it promotes other dtypes less, and many calls do not take one.
        """
        if (new.op == CONST or new.op == TUPLE) and not is_number(old):
            return self._tensor(new, old.type, f"%{old.name}")
        return new

    def _tensor(self, new: Node, type: Type | None, what: str) -> Node:
        if new.op == TUPLE and is_new(new) and isinstance(type, TupleType) and len(type.fields) == len(new.operands):
            items = zip(new.operands, type.fields)
            parts = [self._tensor(item, field, f"field {n} of {what}") for n, (item, field) in enumerate(items)]
            return new if all(part is item for part, item in zip(parts, new.operands)) else self.tuple(parts)
        if not is_number(new):
            return new
        value = new.attrs["value"]
        found = f"the number {value!r} can't replace {what}, which is"
        if not isinstance(type, TensorType):
            raise Refusal(f"{found} no number, and has no known dtype: write pat.Const({value!r}, dtype=…)")
        if not is_new(new):
            raise Refusal(f"{found} a tensor ({type})")
        if type.shape or not _fits(value, type.dtype):
            raise Refusal(f"{found} {type}")
        return self.new_call(TABLE["full"], [new], {"shape": (), "dtype": type.dtype})

    def tuple(self, items: Sequence[Node]) -> Node:
        """A new tuple node."""
        return self._new(TUPLE, items, {}, TupleType(tuple(item.type for item in items)))

    def getitem(self, whole: Node, index: Any) -> Node:
        fields = whole.type.fields if isinstance(whole.type, TupleType) else None
        if not isinstance(index, int) or (fields is not None and not -len(fields) <= index < len(fields)):
            raise Refusal(f"{whole!r} has no field {index!r}: it has {'?' if fields is None else len(fields)}")
        if fields is not None:
            index %= len(fields)
        if whole.op == TUPLE:
            part: Node = whole.operands[index]
            return part
        return self._new(GETITEM, (whole,), {"index": index}, None if fields is None else fields[index])

    def _new(self, op: Op, operands: Sequence[Node], attrs: Mapping[str, Any], type: Any) -> Node:
        node = Node(op, tuple(operands), attrs, type)
        node.name = (op if isinstance(op, str) else op_name(op)).rpartition(".")[2]
        return new_node(node, self.origin)


def _fits(value: bool | int | float, dtype: str) -> bool:
    """True if a number fits into a dtype: ints are also floats, and nothing is cut off."""
    if isinstance(value, bool) or dtype == "bool":
        return isinstance(value, bool) and dtype == "bool"
    if not dtype.startswith(("int", "uint")):
        return True
    bits = int(dtype.lstrip("uint"))
    low, high = (0, 1 << bits) if dtype.startswith("u") else (-1 << bits - 1, 1 << bits - 1)
    return isinstance(value, int) and low <= value < high


def _numpy_knows(dtype: str) -> bool:
    import numpy

    try:
        # TVM loads a package that teaches numpy bfloat16, which torch does not take from it.
        return numpy.dtype(dtype).isbuiltin == 1
    except TypeError:
        return False


def _key(pattern: Pattern, symbols: Symbols) -> Any:
    return (pattern, tuple([(symbol, symbols.get(symbol)) for symbol in pattern.free_symbols]))


def not_matched(pattern: Pattern) -> Refusal:
    """The refusal of a target that needs a pattern which the match does not bind."""
    return Refusal(f"{pattern!r} is part of an alternative that was not matched")


def check_demands(pattern: Pattern) -> None:
    """Raise PatternError for a new node of which a type is demanded: it has the type that follows from its operator."""
    guard = pattern.both[1].guard if isinstance(pattern, And) else pattern.guard
    names = [demand.name for demand in guard.keywords()] if guard is not None else []
    if isinstance(pattern, Const) and "dtype" in names:
        names.remove("dtype")  # which is what a literal is made of, and no demand
    if names:
        raise PatternError(
            f"{pattern.location}: {pattern!r} is new, so nothing can be demanded of its type, which follows from its "
            f"operands and attributes: leave out {' and '.join(names)}, or convert it, with op.Cast, op.Reshape or "
            "op.BroadcastTo"
        )


def needed(pattern: Pattern) -> Sequence[Pattern]:
    """The patterns that are built in any case before the pattern itself."""
    match pattern:
        case Call():
            return pattern.operands or ()
        case Module():
            return pattern.operands
        case Like():
            return (pattern.of, *pattern.operands)
        case Tuple():
            return pattern.items
        case GetItem():
            return (pattern.tuple,)
    return ()


class _TargetScope(MatchScope):
    """Lets expressions also read attributes of the nodes that the target has built."""

    def __init__(self, builder: Builder) -> None:
        super().__init__(builder.match.bindings, ())
        self.builder = builder

    def attribute(self, pattern: Pattern, name: str, symbols: Symbols) -> Any:
        if isinstance(pattern, Variadic) and name == "length":
            return super().attribute(pattern, name, symbols)
        return read(self.builder.build(pattern, symbols), name)

    def alternative(self, pattern: Pattern, symbols: Symbols) -> int:
        return super().alternative(pattern, {})

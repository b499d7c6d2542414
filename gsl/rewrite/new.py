"""New nodes: calls, literals, tuples and fields. The attributes and types of equal calls are computed once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import BuiltinFunctionType, FunctionType, MappingProxyType
from typing import Any, Final

from gsl.attr.evaluate import same
from gsl.errors import EvaluationError, FrontEndError
from gsl.graph import CONST, GETITEM, TUPLE, Graph, Node, Op, Origin, TensorType, TupleType, Type, dtype_name, op_name
from gsl.graph.node import Effect, short_name
from gsl.graph.splice import is_new, new_node
from gsl.graph.subgraph import Subgraph
from gsl.pat.code import INFIX
from gsl.rewrite.check import Refusal
from gsl.spec import TABLE, OpSpec, Trait
from gsl.spec.spec import exact

NUMBERS: Final = (CONST, TUPLE)
"""The operators of nodes that may be, or hold, numbers, so that the type does not tell all."""
_NOTHING: Final[Mapping[str, Any]] = MappingProxyType({})
Formed = tuple[Mapping[str, Any], "Type | None"]
"""All attributes of a call, and its type."""


class NewNodes:
    """Makes nodes that are not part of the graph until they are spliced in."""

    def __init__(self, graph: Graph, origin: Origin) -> None:
        self.graph = graph
        self.origin = origin

    def node(self, op: Op, operands: Sequence[Node], attrs: Mapping[str, Any], type: Type | None) -> Node:
        """A node that is known to be well-formed. A new exchange between processes has its effect, so that none is
        dropped."""
        exchanges = self.graph.exchanges
        node = Node(op, tuple(operands), attrs, type, name=short_name(op))
        if exchanges is not None and node.opaque and exchanges(op):
            node.effect = Effect.EXCHANGES
        return new_node(node, self.origin)

    def call(
        self,
        op: OpSpec | Op,
        operands: Sequence[Node],
        attrs: Mapping[str, Any],
        dropped: Mapping[str, list[Any]] = _NOTHING,
    ) -> Node:
        """A call of an operator; ``dropped`` are values that matched calls have, and that it has to have too."""
        full, type = form(self.graph, op, operands, attrs, dropped)
        return self.node(op.name if isinstance(op, OpSpec) else op, operands, full, type)

    def number(self, value: bool | int | float) -> Node:
        """A Python number."""
        kind = "bool" if isinstance(value, bool) else "int64" if isinstance(value, int) else "float32"
        return self.node(CONST, (), {"value": value}, TensorType((), kind))

    def tensor(self, value: Any, dtype: str | None) -> Node:
        """A literal tensor: a tensor of the framework as it is, or else an array; float32 where nothing else is asked
        for."""
        import numpy

        if hasattr(value, "new_tensor"):
            array, kind = value, dtype_name(value.dtype)
        else:
            array = numpy.asarray(value)
            if array.dtype == numpy.float64 and (dtype is None or not _numpy_knows(dtype)):
                array = array.astype(numpy.float32)
            elif dtype is not None and _numpy_knows(dtype):
                array = array.astype(dtype)
            kind = str(array.dtype)
        const = self.node(CONST, (), {"value": array}, TensorType(tuple(array.shape), kind))
        if dtype is None or dtype == kind:
            return const
        return self.call(TABLE["cast"], [const], {"dtype": dtype})  # numpy has no bfloat16

    def tuple(self, items: Sequence[Node]) -> Node:
        """A tuple."""
        types = tuple([item.type for item in items])
        key = TUPLE, *map(id, types)  # the type keeps those of its fields, so that no others get their numbers
        formed: Formed | None = self.graph.formed.get(key)
        if formed is None:
            formed = self.graph.formed[key] = {}, TupleType(types)
        return self.node(TUPLE, items, *formed)

    def field(self, whole: Node, index: Any) -> Node:
        """A field of a tuple: of one that is in sight, what it was made of."""
        fields = whole.type.fields if isinstance(whole.type, TupleType) else None
        if not isinstance(index, int) or (fields is not None and not -len(fields) <= index < len(fields)):
            raise Refusal(f"{whole!r} has no field {index!r}: it has {'?' if fields is None else len(fields)}")
        if fields is not None:
            index %= len(fields)
        if whole.op == TUPLE:
            part: Node = whole.operands[index]
            return part
        attrs = self.graph.formed.setdefault((GETITEM, index), {"index": index})
        return self.node(GETITEM, (whole,), attrs, None if fields is None else fields[index])

    def instead(self, old: Node, new: Node) -> Node:
        """The node that replaces ``old`` if the target built ``new``: a tensor where ``new`` is a number and ``old`` is
        none.

        A number is not a tensor without dimensions: it promotes other dtypes less, and many calls do not take one.
        """
        if new.op not in NUMBERS or is_number(old):
            return new
        return self._not_number(new, old.type, f"%{old.name}")

    def _not_number(self, new: Node, type: Type | None, what: str) -> Node:
        if new.op == TUPLE and is_new(new) and isinstance(type, TupleType) and len(type.fields) == len(new.operands):
            items = zip(new.operands, type.fields)
            parts = [self._not_number(item, field, f"field {n} of {what}") for n, (item, field) in enumerate(items)]
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
        return self.call(TABLE["full"], [new], {"shape": (), "dtype": type.dtype})


def is_number(node: Node) -> bool:
    """True if a node is a Python number, not a tensor."""
    return node.op == CONST and isinstance(node.attrs["value"], (bool, int, float))


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


# ---------------------------------------------------------------- attributes and types of calls


def form(
    graph: Graph,
    op: OpSpec | Op,
    operands: Sequence[Node],
    attrs: Mapping[str, Any],
    dropped: Mapping[str, list[Any]],
) -> Formed:
    """All attributes of a new call, and its type. Refusal where the call is not well-formed.

    ``dropped`` are values that matched calls have, and that the new one has to have too. ``graph.formed`` keeps what is
    known of calls.
    """
    if not is_stateless(op) or any(map(_may_be_number, operands)):
        return _form(graph, op, operands, attrs, dropped)
    name = op.name if isinstance(op, OpSpec) else op
    types = tuple([operand.type for operand in operands])
    try:
        key = (name, (tuple(attrs), *map(exact, attrs.values())), types)
        known: Formed | None = graph.formed.get(key)
    except TypeError:
        return _form(graph, op, operands, attrs, dropped)
    if known is None:
        known = graph.formed[key] = _form(graph, op, operands, attrs, dropped)
    elif dropped:
        _check_dropped(name, known[0], dropped)
    return known


def _may_be_number(node: Node) -> bool:
    """True if a node may be, or hold, a number, so that its type does not tell all."""
    return node.op == CONST or (node.op == TUPLE and any(item.op in NUMBERS for item in node.operands))


def is_stateless(op: OpSpec | Op) -> bool:
    """True if an operator is canonical, a group, a name, or a function without state, so that equal calls have equal
    types."""
    if isinstance(op, (str, OpSpec, Subgraph)):
        return True
    if type(op) is FunctionType:
        return op.__closure__ is None
    return type(op) is BuiltinFunctionType or type(op).__name__ in ("OpOverload", "OnnxOp", "OpName")


def _form(
    graph: Graph,
    op: OpSpec | Op,
    operands: Sequence[Node],
    attrs: Mapping[str, Any],
    dropped: Mapping[str, list[Any]],
) -> Formed:
    name = op.name if isinstance(op, OpSpec) else op
    full = attrs
    try:
        if isinstance(op, OpSpec):
            full = op.complete(attrs, tuple([operand.type for operand in operands]))
        _check_dropped(name, full, dropped)
        _check_numbers(op, operands)
        type = graph.infer(name, tuple(operands), full)
    except (ValueError, KeyError, EvaluationError) as error:
        raise Refusal(f"the new {op_name(name)} is not well-formed: {error}") from error
    check_writable(graph, name, operands, full)
    return full, type


def check_writable(graph: Graph, op: Op, operands: Sequence[Node], attrs: Mapping[str, Any]) -> None:
    """Refuse a new call that the framework can't express."""
    if graph.writable is not None:
        try:
            graph.writable(op, tuple(operands), attrs)
        except (ValueError, FrontEndError) as error:
            raise Refusal(f"the new {op_name(op)} can't be written: {error}") from error


def _check_dropped(name: Op, full: Mapping[str, Any], dropped: Mapping[str, list[Any]]) -> None:
    for attribute, values in dropped.items():
        for value in values:
            if not same(value, full[attribute]):
                raise Refusal(
                    f"the rule does not mention {attribute!r} of {op_name(name)}, which is {value!r} here and "
                    f"would become {full[attribute]!r}"
                )


def _is_arithmetic(op: OpSpec) -> bool:
    """True if expressions of numbers compute the same with an operator of Python."""
    return op.name in INFIX and Trait.BROADCASTING in op.traits


def _check_numbers(op: OpSpec | Op, operands: Sequence[Node]) -> None:
    """Refuse a call that takes tensors, but gets nothing but numbers, or a number among those of a tuple."""
    if isinstance(op, OpSpec) and op.name != "full" and operands and all(map(is_number, operands)):
        values = [repr(operand.attrs["value"]) for operand in operands]
        computed = f"a number is pat.Const(a.value {INFIX[op.name]} b.value), " if _is_arithmetic(op) else ""
        raise Refusal(
            f"the new {op.name} takes a tensor, but got only numbers ({', '.join(values)}): {computed}"
            f"a tensor is pat.Const({values[0]}, dtype=…)"
        )
    for operand in operands:
        if operand.op == TUPLE:
            number = next((item for item in operand.operands if is_number(item)), None)
            if number is not None:
                name, value = op.name if isinstance(op, OpSpec) else op, number.attrs["value"]
                raise Refusal(
                    f"the new {op_name(name)} takes tensors, but got the number {value!r} among them: write "
                    f"pat.Const({value!r}, dtype=…)"
                )

"""Calls without a canonical operator: their arguments, made of what a view has of them; and what is told to users who
look for a native operator under its own name: the canonical operators that show it. Operators of users, where the
framework does not have them, are outlined groups of their names and attributes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import product
from typing import Any, Final, TypeVar

from gsl.errors import FrontEndError, PatternError
from gsl.front.core.handle import is_tensor_leaf
from gsl.front.tree import Canon, Computed, LiteralOperand, Slot
from gsl.graph import Graph, Node, Op, op_name
from gsl.graph.subgraph import Subgraph
from gsl.spec import TABLE, DeclaredSpec, OperatorName, Types
from gsl.spec import normalise as n


def decoded(
    op: Op, operands: Sequence[Any], attrs: Mapping[str, Any], leaf: Callable[[Any], Any] = lambda value: value
) -> tuple[list[Any], dict[str, Any]]:
    """The operands that no attribute mentions, and the attributes with operands for the slots in them.

    ``leaf`` gives the native form of a value in an attribute. FrontEndError for a value that is computed at run time.
    """
    mentioned: set[int] = set()

    def decode(value: Any) -> Any:
        match value:
            case Slot():
                mentioned.add(value.index)
                return operands[value.index]
            case Computed():
                raise FrontEndError(f"{op_name(op)} can't be built anew: {value.name} is computed at run time")
            case tuple():
                return tuple([decode(item) for item in value])
            case slice():
                return slice(decode(value.start), decode(value.stop), decode(value.step))
            case dict():
                return {key: decode(item) for key, item in value.items()}
        return leaf(value)

    given = {name: decode(value) for name, value in attrs.items()}
    return [operand for index, operand in enumerate(operands) if index not in mentioned], given


def positional(names: Sequence[str], operands: Sequence[Any], given: dict[str, Any]) -> list[Any]:
    """The arguments by position: those given by name stand in their places, the operands in the others.

    Positions are filled as long as the next argument is known. What remains in ``given`` has no place among them.
    """
    args: list[Any] = []
    left = list(operands)
    position = 0
    while left or f"arg{position}" in given or (position < len(names) and names[position] in given):
        name = names[position] if position < len(names) else f"arg{position}"
        name = name if name in given else f"arg{position}"
        if name in given:
            args.append(given.pop(name))
        elif left:
            args.append(left.pop(0))
        position += 1
    return args


COUNTS: Final = (1, 2, 3, 5)
"""The numbers of operands that are assumed in turn where a pattern does not tell."""
RANKS: Final = (2, 4, 3, 1)
"""The ranks that are assumed of the operands in turn: some readings depend on their rank."""

OperandKind = TypeVar("OperandKind")


def pattern_of(
    counts: Iterable[int], kinds: Iterable[OperandKind], read: Callable[[int, OperandKind], Canon | None],
    leaf: Callable[[Any], str],
) -> str | None:  # fmt: skip
    """The pattern of the canonical operators as which a call is loaded; ``None`` if it is loaded as it is.

    ``read`` reads the call with so many operands of a kind: the first ones count for which there is a reading. ``leaf``
    is the text of an operand.
    """
    for count, kind in product(counts, kinds):
        try:
            canon = read(count, kind)
        except Exception:
            # The pattern does not give all that a call needs.
            continue
        if canon is not None and canon.op in TABLE:
            return _text(canon, leaf)
    return None


def _text(value: Any, leaf: Callable[[Any], str]) -> str:
    if isinstance(value, LiteralOperand):
        return repr(value.value.tolist() if hasattr(value.value, "tolist") else value.value)
    if not isinstance(value, Canon):
        return leaf(value)
    operands = [_text(operand, leaf) for operand in value.operands]
    if value.op not in TABLE:
        return f"[{', '.join(operands)}]"
    given = [f"{name}={attribute!r}" for name, attribute in value.attrs.items()]
    return f"op.{TABLE[value.op].cls}({', '.join([*operands, *given])})"


# ---------------------------------------------------------------- operators of users


def body_of(node: Node) -> Graph:
    """The graph of the meaning of a call. FrontEndError where it has none for these operands."""
    assert isinstance(node.op, OperatorName)
    try:
        return node.op.spec.body(tuple([operand.type for operand in node.operands]), node.attrs)
    except PatternError as error:
        raise FrontEndError(str(error)) from error


def as_group(node: Node) -> Node:
    """A call of a user's operator as one of a group, which computes the meaning."""
    name = str.__str__(node.op)
    group = Node(Subgraph(name, body_of(node)), node.operands, node.attrs, node.type, node.name, node.native)
    group.origin = node.origin
    return group


def read_groups(graph: Graph, operators: Mapping[str, DeclaredSpec]) -> Graph:
    """A new view, in which calls of groups that have the name and the attributes of an operator become calls of it."""
    for node in graph.nodes if operators else ():
        group = node.op if isinstance(node.op, Subgraph) else None
        spec = None if group is None else operators.get(group.name)
        # A body that holds a tensor may have one of the operands in it.
        whole = group is not None and spec is not None and not any(map(is_tensor_leaf, group.body.nodes))
        types = tuple([operand.type for operand in node.operands])
        attrs = attributes_of(spec, types, node.attrs) if whole and spec is not None else None
        if spec is not None and attrs is not None:
            node.op, node.attrs = spec.name, attrs
    return graph


def attributes_of(spec: DeclaredSpec, types: Types, attrs: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """The attributes of a native call on operands of these types as those of an operator; ``None`` where it is none."""
    if not spec.takes(len(types)):
        return None
    given = {name: bool(value) if spec.attrs[name].normalise is n.flag and value in (0, 1) else value
             for name, value in attrs.items() if name in spec.attrs}  # fmt: skip
    if len(given) < len(attrs):
        return None
    try:
        return spec.complete(given, types)
    except ValueError:
        return None

"""Operators of users where the framework does not have them: outlined groups of their names and attributes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gsl.errors import FrontEndError, PatternError
from gsl.front.core.handle import is_tensor_leaf
from gsl.graph import Graph, Node
from gsl.graph.subgraph import Subgraph
from gsl.spec import DeclaredSpec, OperatorName, Types
from gsl.spec import normalise as n


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
    least, most = len(spec.operands) - spec.optional, len(spec.operands)
    if not least <= len(types) <= most:
        return None
    given = {name: _flag(value) if spec.attrs[name].normalise is n.flag else value
             for name, value in attrs.items() if name in spec.attrs}  # fmt: skip
    if len(given) < len(attrs):
        return None
    try:
        return spec.complete(given, types)
    except ValueError:
        return None


def _flag(value: Any) -> Any:
    """A value that may be a number for a bool."""
    return bool(value) if value in (0, 1) else value

"""The text form of a view: one line per node, made to be read and to be compared with golden text."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, Final

from gsl.graph.node import CONST, GETITEM, LEAVES, TUPLE, Graph, Node, op_name, short_name
from gsl.graph.types import SymDim, TensorType, TupleType, dtype_name

Hide = Callable[[Node, str, Any], bool]
"""Tells whether an attribute (node, name, value) is left out. The view knows no operators, so a caller who knows
the defaults hands them in."""


_LEFT_OUT: Final = re.compile(r"arg\d+")
"""The names of operands that a call leaves out before others."""


def hide_none(node: Node, name: str, value: Any) -> bool:
    """A :data:`Hide` that leaves out attributes that are ``None``, but for operands that are left out."""
    return value is None and not _LEFT_OUT.fullmatch(name)


def text(graph: Graph, *, hide: Hide = hide_none) -> str:
    """The view as text: inputs, weights and calls in order, then ``return`` and the outputs.

    Scalars, tuples and their fields have no line of their own: they stand where they are used.
    """
    names = node_names(graph)
    written: dict[Node, str] = {}
    lines: list[str] = []
    for node in graph.nodes:
        if is_scalar(node):
            written[node] = value_text(node.attrs["value"])
        elif node.op == TUPLE:
            written[node] = _tuple([written[operand] for operand in node.operands])
        elif node.op == GETITEM:
            written[node] = f"{written[node.operands[0]]}[{value_text(node.attrs['index'])}]"
        else:
            written[node] = f"%{names[node]}"
            annotation = "" if node.type is None else f": {node.type}"
            lines.append(f"{written[node]}{annotation} = {_right_hand_side(node, written, hide)}")
    lines.append("return " + ", ".join(written[node] for node in graph.outputs))
    return "\n".join(lines)


def node_names(graph: Graph) -> dict[Node, str]:
    """A name for each node that no other node of the graph has: its own, with a number where two share one."""
    own = {node: node.name or short_name(node.op) for node in graph.nodes}
    taken = set(own.values())
    last: dict[str, int] = {}
    names: dict[Node, str] = {}
    for node, name in own.items():
        if name not in last:
            last[name] = 0
            names[node] = name
            continue
        number = last[name] + 1
        while f"{name}_{number}" in taken:
            number += 1
        last[name] = number
        names[node] = f"{name}_{number}"
        taken.add(names[node])
    return names


def is_scalar(node: Node) -> bool:
    """True for a const that is a Python number or None, not a tensor."""
    return node.op == CONST and isinstance(node.attrs["value"], (bool, int, float, complex, str, type(None)))


def attribute_texts(node: Node, *, hide: Hide = hide_none) -> list[str]:
    """The attributes of a call as ``name=value``, without those that are left out."""
    return [f"{name}={value_text(value)}" for name, value in node.attrs.items() if not hide(node, name, value)]


def value_text(value: Any) -> str:
    """A value of an attribute or of a literal as text that is the same in every run: no addresses, no tensor data."""
    match value:
        case Node():
            return f"%{value.name or op_name(value.op)}"
        case TensorType() | TupleType() | SymDim():
            return str(value)
        case tuple():
            return _tuple([value_text(item) for item in value])
        case list():
            return f"[{', '.join(value_text(item) for item in value)}]"
        case Mapping():
            return "{" + ", ".join(f"{value_text(key)}: {value_text(item)}" for key, item in value.items()) + "}"
        case slice():
            return ":".join("" if part is None else value_text(part) for part in (value.start, value.stop, value.step))
    if getattr(value, "shape", None) is not None and hasattr(value, "dtype"):
        dtype = dtype_name(value.dtype)
        return f"<{dtype}[{', '.join(map(str, value.shape))}]>"
    graph = value if isinstance(value, Graph) else getattr(value, "graph", None)
    if isinstance(graph, Graph):
        return f"<graph of {len(graph)}: {', '.join(op_name(output.op) for output in graph.outputs)}>"
    shown = op_name(value) if callable(value) else repr(value)
    return f"<{type(value).__qualname__}>" if " at 0x" in shown else shown


def _right_hand_side(node: Node, written: Mapping[Node, str], hide: Hide) -> str:
    if node.op in LEAVES:
        return str(node.op)
    operands = [written[operand] for operand in node.operands]
    call = f"{op_name(node.op)}({', '.join(operands + attribute_texts(node, hide=hide))})"
    if node.deps:
        call += f" with {', '.join(written[dep] for dep in node.deps)}"
    return call if node.effect is None else f"{call} !{node.effect.value}"


def _tuple(items: list[str]) -> str:
    return f"({items[0]},)" if len(items) == 1 else f"({', '.join(items)})"


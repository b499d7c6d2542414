"""Views built by hand as native programs of a front end, and their texts as far as all front ends agree on them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import pytest
import torch

from gsl.draw import hide_defaults, hide_nothing
from gsl.front.base import Program
from gsl.graph import CONST, INPUT, TUPLE, Graph, Node, SymDim, TensorType, TupleType
from gsl.graph.text import text
from gsl.graph.types import dim
from tests.conformance.front_ends import FrontEnd


def program_of(view: Graph, front_end: FrontEnd) -> Program:
    """The native program of a view: its calls are written into a skeleton with the same inputs and outputs."""
    return write(view, front_end)[0]


def write(view: Graph, front_end: FrontEnd) -> tuple[Program, Graph]:
    """The native program of a view, and the view in the symbols that its inputs have there."""
    if not front_end.has(node.op for node in view.nodes):
        pytest.skip(f"{front_end.name} has no operators but {', '.join(sorted(front_end.few))}")
    fed = [node for node in view.nodes if node.op == INPUT]
    impure = front_end.impure and front_end.impure.target
    skeleton = front_end.skeleton(
        {node.name: node.type for node in fed},
        [node.type for node in view.outputs],
        not any(node.opaque and node.op == impure for node in view.nodes),
    )
    empty = skeleton.load()
    inputs = [node for node in empty.nodes if node.op == INPUT]
    symbols = _symbols(fed, inputs)
    view = with_sizes(view, symbols)
    new: dict[Node, Node] = dict(zip([node for node in view.nodes if node.op == INPUT], inputs, strict=True))
    for node in inputs:
        node.users = ()
    for node in view.nodes:
        if node not in new:
            operands = tuple([new[operand] for operand in node.operands])
            new[node] = Node(node.op, operands, node.attrs, node.type, name=node.name, effect=node.effect)
    made = [node for node in new.values() if node not in inputs]
    outputs = [new[node] for node in view.outputs]
    if len(empty.outputs) < len(outputs):
        # A function that returns one tuple.
        made.append(Node(TUPLE, tuple(outputs), type=TupleType(tuple([node.type for node in outputs])), name="tuple"))
        outputs = made[-1:]
    return skeleton.store(Graph([*inputs, *made], outputs, empty.infer, empty.canonical)), view


def single(view: Graph) -> Graph:
    """A copy of the view in float32 instead of float64."""
    view = view.copy()
    for node in view.nodes:
        node.type = _narrow(node.type)
        node.attrs = {name: _narrow(value) for name, value in node.attrs.items()}
    return view


def _narrow(value: Any) -> Any:
    match value:
        case TensorType():
            return TensorType(value.shape, value.dtype.replace("float64", "float32"))
        case TupleType():
            return TupleType(tuple([_narrow(item) for item in value.fields]))
        case torch.Tensor() if value.dtype == torch.float64:
            return value.float()
    return "float32" if value == "float64" else value


def results(view: Graph) -> list[Node]:
    """The outputs of a view one by one, also where it has one tuple of them."""
    (first, *others) = view.outputs
    return list(first.operands) if first.op == TUPLE and not others else view.outputs


def _symbols(fed: list[Node], inputs: list[Node]) -> dict[Any, Any]:
    """What the symbols of hand-made inputs are called in the loaded ones."""
    found: dict[Any, Any] = {}
    for ours, theirs in zip(fed, inputs, strict=True):
        for mine, other in zip(ours.shape or (), theirs.shape or ()):
            if isinstance(mine, SymDim):
                assert isinstance(other, SymDim)
                found[mine.expr] = other.expr
    return found


def with_sizes(view: Graph, symbols: Mapping[Any, Any]) -> Graph:
    """A copy of the view with other symbols, or with numbers, for its symbolic sizes."""
    view = view.copy()
    for node in view.nodes:
        node.type = _moved(node.type, symbols)
        node.attrs = {name: _moved(value, symbols) for name, value in node.attrs.items()}
    return view


def _moved(value: Any, symbols: Mapping[Any, Any]) -> Any:
    """A type or an attribute with other symbols or numbers."""
    match value:
        case SymDim():
            return dim(value.expr.xreplace(symbols))
        case TensorType():
            return TensorType(tuple([_moved(size, symbols) for size in value.shape]), value.dtype)
        case TupleType():
            return TupleType(tuple([_moved(item, symbols) for item in value.fields]))
        case tuple():
            return tuple([_moved(item, symbols) for item in value])
    return value


def plain(view: Graph, *, full: bool = False) -> str:
    """The text of a view as far as all front ends agree on it; ``full`` shows all attributes.

    See :func:`ordered`. Numbers have six digits, and tensors without axes are numbers, which some frameworks lack.
    """
    view = view.copy()
    for node in view.nodes:
        if node.op == CONST and getattr(node.attrs["value"], "shape", ()) == ():
            value = node.attrs["value"]
            node.attrs = {"value": float(f"{float(value):.6g}")}
    return ordered(text(view, hide=hide_nothing if full else hide_defaults))


_LINE = re.compile(r"%(\w+)(: .*?)? = (.*)")
_NAME = re.compile(r"%(\w+)")
_TUPLE = re.compile(r"return \(([^()]*?),?\)$")


def ordered(shown: str) -> str:
    """The text of a view with its lines in the order in which the outputs need them, named by number.

    So it depends neither on the order in which a front end keeps weights nor on the names that it gives to them and to
    calls, nor on the native calls that compute sizes, nor on whether several outputs are one tuple. Inputs keep their
    names, and those that nothing needs stay.
    """
    *body, last = shown.splitlines()
    last = _TUPLE.sub(r"return \1", last)
    lines: dict[str, tuple[str, str]] = {}
    for line in body:
        match = _LINE.fullmatch(line)
        assert match, line
        lines[match[1]] = (match[2] or "", match[3].partition(" with %")[0])
    unused = [name for name, (_, right) in lines.items() if right == INPUT]
    names: dict[str, str] = {}
    written: list[str] = []

    def named(right: str) -> str:
        return _NAME.sub(lambda match: f"%{names[match[1]]}", right)

    stack = [*unused, *_NAME.findall(last)][::-1]
    while stack:
        name = stack[-1]
        kind, right = lines[name]
        waiting = [] if name in names else [n for n in _NAME.findall(right) if n not in names]
        if waiting:
            stack.extend(reversed(waiting))
            continue
        stack.pop()
        if name not in names:
            names[name] = name if right == INPUT else str(len(names))
            written.append(f"%{names[name]}{kind} = {named(right)}")
    return "\n".join([*written, named(last)])

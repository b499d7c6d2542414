"""Graph views built by hand, for tests that need no framework graph."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from gsl.graph import CONST, GETITEM, INPUT, PARAM, TUPLE, Effect, Graph, Node, Op, TensorType, TupleType, Type
from gsl.spec import TABLE, find
from gsl.spec.meaning import infer
from tests.helpers import plain
from tests.helpers.tensors import evaluate, randn


def infer_type(op: Op, operands: tuple[Node, ...], attrs: Mapping[str, Any]) -> Type | None:
    """The type of a canonical call; ``None`` for an opaque one."""
    if not isinstance(op, str):
        return operands[0].type if operands else None
    known = [_operand(node) for node in operands]
    return plain.infer(op, known, attrs) or infer(TABLE[op], known, attrs)


def _operand(node: Node) -> Any:
    value = node.attrs.get("value") if node.op == CONST else None
    return value if isinstance(value, (bool, int, float)) else node.type


class Builder:
    """Makes the nodes of a view, in order."""

    def __init__(self) -> None:
        self.nodes: list[Node] = []
        self._last: dict[str, int] = {}
        """For each name that was asked for, the number that its last node got."""

    def _add(self, node: Node) -> Node:
        base = node.name
        while node.name in self._last:
            self._last[base] += 1
            node.name = f"{base}_{self._last[base]}"
        self._last[node.name] = 0
        self.nodes.append(node)
        return node

    def input(self, name: str, *shape: Any, dtype: str = "float32") -> Node:
        return self._add(Node(INPUT, (), {}, TensorType(shape, dtype), name=name))

    def param(self, name: str, *shape: int, seed: int = 0) -> Node:
        value = randn(*shape, seed=seed + len(self.nodes))
        return self._add(Node(PARAM, (), {"value": value}, TensorType(shape, "float32"), name=name))

    def const(self, value: Any) -> Node:
        if hasattr(value, "shape"):
            kind = TensorType(tuple(value.shape), str(value.dtype).removeprefix("torch."))
        else:
            dtypes = {bool: "bool", int: "int64", float: "float32"}
            kind = TensorType((), dtypes[type(value)])
        return self._add(Node(CONST, (), {"value": value}, kind, name="const"))

    def tuple(self, *items: Node) -> Node:
        return self._add(Node(TUPLE, items, {}, TupleType(tuple(item.type for item in items)), name="tuple"))

    def get(self, whole: Node, index: int) -> Node:
        assert isinstance(whole.type, TupleType)
        return self._add(Node(GETITEM, (whole,), {"index": index}, whole.type.fields[index], name="get"))

    def call(self, op: Any, *operands: Any, effect: Effect | None = None, **attrs: Any) -> Node:
        nodes = tuple(operand if isinstance(operand, Node) else self.const(operand) for operand in operands)
        spec = find(op) if isinstance(op, str) else None
        if spec is None:
            name = getattr(op, "__name__", "opaque")
            return self._add(Node(op, nodes, attrs, infer_type(op, nodes, attrs), name=name, effect=effect))
        full = spec.complete(attrs, tuple(node.type for node in nodes))
        kind = infer_type(spec.name, nodes, full)
        return self._add(Node(spec.name, nodes, full, kind, name=spec.name.split(".")[-1], effect=effect))


def graph(make: Callable[[Builder], Node | Sequence[Node]]) -> Graph:
    """The view whose nodes a function makes; what it returns are the outputs."""
    builder = Builder()
    result = make(builder)
    return Graph(builder.nodes, [result] if isinstance(result, Node) else result, infer_type)


def run(view: Graph, inputs: Mapping[str, Any]) -> list[Any]:
    """The outputs of a view on tensors, by the operators' meanings."""
    values: dict[Node, Any] = {}
    for node in view.nodes:
        operands = [values[operand] for operand in node.operands]
        if node.op == INPUT:
            values[node] = inputs[node.name]
        elif node.op in (PARAM, CONST):
            values[node] = node.attrs["value"]
        elif node.op == TUPLE:
            values[node] = tuple(operands)
        elif node.op == GETITEM:
            values[node] = operands[0][node.attrs["index"]]
        elif isinstance(node.op, str):
            values[node] = evaluate(node.op, operands, node.attrs)
        else:
            values[node] = node.op(*operands, **node.attrs)  # type: ignore[operator]
    return [values[node] for node in view.outputs]

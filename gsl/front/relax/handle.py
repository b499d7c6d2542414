"""The leaves of a view: the weights of a Relax function, and its constants."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from gsl.front.core.handle import NativeLeaf
from gsl.front.core.names import FreeNames
from gsl.front.tvm.tensors import to_torch
from gsl.graph import CONST, PARAM, Node, TensorType, Type
from gsl.spec import TABLE


@dataclass(frozen=True, slots=True, eq=False)
class RelaxLeaf(NativeLeaf):
    """A weight or a literal tensor: a variable of the function whose value is known, or a constant."""

    expr: Any
    """The variable or the constant."""
    shape: tuple[int, ...] | None = None
    """The other shape of a constant that is seen with one."""


class RelaxLeaves:
    """The leaves of one view, each of which is added to its nodes when it is first asked for."""

    def __init__(self, nodes: list[Node]) -> None:
        self.nodes = nodes
        self.tensors: dict[Node, Any] = {}
        """The native tensors of the leaves."""
        self.constants: dict[Any, Node] = {}
        """The nodes of the constants, by those and their shapes."""
        self.names = FreeNames()
        """The names of the nodes."""

    def add(self, leaf: RelaxLeaf, native: Any, kind: str, type: Type | None = None, name: str = "") -> Node:
        """A new node of a weight or a literal tensor."""
        value = to_torch(native)
        if leaf.shape is not None:
            value = value.reshape(leaf.shape)
        own = TensorType(tuple(value.shape), str(value.dtype).removeprefix("torch."))
        node = Node(kind, attrs={"value": value}, type=type or own, name=name, native=leaf)
        self.tensors[node] = native
        self.nodes.append(node)
        return node

    def constant(self, expr: Any, shape: tuple[int, ...] | None = None) -> Node:
        """The one view node of a constant, seen with this shape."""
        key = (expr, shape)
        if key not in self.constants:
            kind = PARAM if expr.value.shape else CONST
            self.constants[key] = self.add(RelaxLeaf(expr, shape), expr.value, kind)
        return self.constants[key]

    def named(self, nodes: list[Node]) -> dict[str, Any]:
        """The native tensors by the names of their nodes: constants by their role in the first call that uses them.

        ``nodes`` are all nodes of the view.
        """
        for node in nodes:
            names = TABLE[node.op].operands if isinstance(node.op, str) and node.op in TABLE else ()
            for place, operand in enumerate(node.operands):
                if operand in self.tensors and not operand.name:
                    role = names[place] if place < len(names) else "constant"
                    operand.name = self.names.free(f"{node.name}_{role}")
        for node in nodes:
            if not node.name:
                node.name = self.names.free("constant")
        return {node.name: self.tensors[node] for node in nodes if node in self.tensors}

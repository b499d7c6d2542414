"""The links from view nodes to a Relax function: bindings, the sources of operands, and the weights behind leaves."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Any, Final, Union

from gsl.front.tvm.tensors import to_torch
from gsl.graph import CONST, PARAM, Node, TensorType, Type
from gsl.spec import TABLE


@dataclass(frozen=True, slots=True, eq=False)
class RelaxLeaf:
    """A weight or a literal tensor: a variable of the function whose value is known, or a constant."""

    expr: Any
    """The variable or the constant."""
    shape: tuple[int, ...] | None = None
    """The other shape of a constant that is seen with one."""


class RelaxReading:
    """The reading of a binding: a small tree of view nodes, numbered with operands before their users.

    The transposition of a weight that a product is read with is no part of the tree: it is seen through.
    """

    # There is one for every binding: a frozen dataclass would take three times as long to make.
    __slots__ = ("size", "through", "var")

    def __init__(self, var: Any, size: int = 1, through: tuple[int, ...] = ()) -> None:
        self.var = var
        """The variable that is bound; an input of the function is a reading too."""
        self.size = size
        """The number of view nodes; the root has the last number."""
        self.through = through
        """The numbers of the bindings that the reading sees through: those between its own and its operands."""


RelaxSource = Union[Any, RelaxLeaf, int]
"""The source of an operand: a variable, a constant, or a node of the same tree."""


class RelaxHandle:
    """The native handle of a view node: its place in a reading, and the sources of its operands and then its deps."""

    __slots__ = ("is_root", "reading", "slot", "sources")

    def __init__(self, reading: RelaxReading, slot: int = 0, sources: tuple[RelaxSource, ...] = ()) -> None:
        self.reading = reading
        self.slot = slot
        self.sources = sources
        self.is_root = slot == reading.size - 1
        """True if the node has the value of the binding."""


class Single(RelaxHandle):
    """The native handle of a view node that alone makes up a reading without ``through``; it is that reading too.

    Nearly all bindings are of this kind.
    """

    __slots__ = ("var",)

    size: Final = 1
    through: Final = ()
    slot: Final = 0  # type: ignore[misc]
    is_root: Final = True  # type: ignore[misc]

    def __init__(self, var: Any, sources: tuple[RelaxSource, ...] = ()) -> None:
        self.var = var
        self.sources = sources

    @property
    def reading(self) -> Any:  # type: ignore[override]
        return self


def handle_of(node: Node) -> RelaxHandle | None:
    """The handle of a node that came from a binding or an input; ``None`` for leaves and new nodes."""
    return node.native if isinstance(node.native, RelaxHandle) else None


def is_literal(node: Node) -> bool:
    """True for a const that is a Python scalar, which is written into the call that uses it."""
    return node.op == CONST and isinstance(node.attrs["value"], (bool, int, float))


def is_tensor_leaf(node: Node) -> bool:
    """True for a weight or a literal tensor."""
    return node.op == PARAM or (node.op == CONST and not is_literal(node))


# ---------------------------------------------------------------- leaves


class RelaxLeaves:
    """The leaves of one view, each of which is added to its nodes when it is first asked for."""

    def __init__(self, nodes: list[Node]) -> None:
        self.nodes = nodes
        self.tensors: dict[Node, Any] = {}
        """The native tensors of the leaves."""
        self.constants: dict[Any, Node] = {}
        """The nodes of the constants, by those and their shapes."""
        self.names: Counter[str] = Counter()
        """The names of the nodes, each with how often it was wanted."""

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
                    operand.name = self.name(f"{node.name}_{role}")
        for node in nodes:
            if not node.name:
                node.name = self.name("constant")
        return {node.name: self.tensors[node] for node in nodes if node in self.tensors}

    def name(self, wanted: str) -> str:
        """The name, with a number behind it if another node has it."""
        if wanted not in self.names:
            self.names[wanted] = 1
            return wanted
        self.names[wanted] += 1
        name, number = wanted, self.names[wanted] - 1
        while number and self.names[name]:
            name = f"{wanted}_{number}"
            number += 1
        if name != wanted:
            self.names[name] += 1
        return name

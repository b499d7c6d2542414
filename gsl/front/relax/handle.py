"""The links of a view to Relax: its weights and constants, the nodes of one reading, and the expressions of nodes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from tvm import relax

from gsl.front.core.handle import NativeLeaf, Source
from gsl.front.core.infer import number_of
from gsl.front.core.load import Expansion
from gsl.front.core.store import FreeNames, Storer
from gsl.front.relax.types import is_number
from gsl.front.tree import Canon
from gsl.front.tvm.tensors import to_numpy, to_torch
from gsl.graph import CONST, PARAM, TUPLE, Graph, Inference, Node, TensorType, Type
from gsl.spec import TABLE, Trait, spec_of
from gsl.spec.meaning import Operand, infer


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
        # An object of its own, so that no reading is taken for that of another value: readings may look at values.
        own = TensorType.of(value)
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
            spec = spec_of(node.op)
            names = () if spec is None else spec.operands
            for place, operand in enumerate(node.operands):
                if operand in self.tensors and not operand.name:
                    role = names[place] if place < len(names) else "constant"
                    operand.name = self.names.free(f"{node.name}_{role}")
        for node in nodes:
            if not node.name:
                node.name = self.names.free("constant")
        return {node.name: self.tensors[node] for node in nodes if node in self.tensors}


# ---------------------------------------------------------------- tensors as numbers


def as_number(
    op: str, attrs: Mapping[str, Any], types: Sequence[Type | None], place: int, tensor: Any
) -> bool | int | float | None:
    """The number that a tensor of TVM among the operands is; ``None`` if the call would have another type with it.

    The other operands have to be tensors; a number among them has been decided by its own call of this function.
    """
    others = [type for position, type in enumerate(types) if position != place]
    dtype = str(tensor.dtype)
    if not others or any(type is None or getattr(type, "dtype", None) != dtype for type in others):
        return None
    value = number_of(to_numpy(tensor))
    with_number: list[Operand] = [value if position == place else type for position, type in enumerate(types)]
    try:
        same = infer(TABLE[op], with_number, attrs) == infer(TABLE[op], types, attrs)
    except ValueError:
        return None
    return value if same else None


# ---------------------------------------------------------------- trees of view nodes


class RelaxExpansion(Expansion):
    """The view nodes of one reading, in which tensors without axes may be numbers: constants, and those of ``numbers``,
    the values of parameters."""

    def __init__(
        self, leaf: Callable[[Any], tuple[Node, Source]], infer: Inference, name: str = "",
        numbers: Mapping[Any, Any] = MappingProxyType({}),
    ) -> None:  # fmt: skip
        super().__init__(leaf, infer, name)
        self._numbers = numbers

    def operand(self, operand: Any, type: Type | None = None) -> tuple[Node, Source]:
        return super().operand(tuple_of(operand) if isinstance(operand, relax.Tuple) else operand, type)

    def operands(self, canon: Canon, type: Type | None) -> list[tuple[Node, Source]]:
        spec = spec_of(canon.op)
        is_arithmetic = spec is not None and Trait.BROADCASTING in spec.traits
        tensors = [self._tensor(operand) if is_arithmetic else None for operand in canon.operands]
        found: list[Any] = [self.operand(operand) if tensor is None else None
                            for operand, tensor in zip(canon.operands, tensors)]  # fmt: skip
        known = [None if item is None else item[0].type for item in found]
        for place, tensor in enumerate(tensors):
            if tensor is not None:
                # It is a number if that makes no difference to the type of the call.
                types = [*known[:place], TensorType((), str(tensor.dtype)), *known[place + 1 :]]
                value = as_number(canon.op, canon.attrs, types, place, tensor)
                found[place] = self.operand(canon.operands[place] if value is None else value)
        return found

    def _tensor(self, operand: Any) -> Any:
        """The tensor without axes that an operand is known to be; ``None`` for any other."""
        if is_number(operand):
            return operand.value
        return self._numbers.get(operand) if self._numbers and isinstance(operand, relax.Var) else None


def tuple_of(expr: Any) -> Canon:
    """The reading of a tuple expression."""
    return Canon(TUPLE, tuple([tuple_of(item) if isinstance(item, relax.Tuple) else item for item in expr.fields]))


class RelaxValues(Storer):
    """The expressions of the nodes of a view; ``weight`` gives that of a weight or a literal tensor."""

    framework = "Relax"

    def __init__(self, graph: Graph, weight: Callable[[Node], Any]) -> None:
        super().__init__(graph)
        self._weight = weight

    def weight(self, node: Node) -> Any:
        return self._weight(node)

    def number(self, node: Node) -> Any:
        return relax.const(node.attrs["value"], node.dtype)

    def tuple_of(self, node: Node, items: list[Any]) -> Any:
        return relax.Tuple(items)

    def fields_of(self, value: Any) -> Sequence[Any] | None:
        return value.fields if isinstance(value, relax.Tuple) else None

"""Reading: a node of ONNX as its reader sees it, and the common part of readers."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final, Protocol

import onnx_ir as ir

from gsl.front.core.infer import number_of, shortest
from gsl.front.onnx.types import value_of
from gsl.front.tree import Canon, LiteralOperand
from gsl.graph import Dim, TensorType, Type

SMALL: Final = 128
"""The number of bytes up to which a literal is part of what tells readings apart."""


_TO_VECTORS: Final = frozenset(("Reshape", "Unsqueeze"))
THROUGH: Final[Mapping[str, frozenset[str]]] = {
    "Add": _TO_VECTORS, "PRelu": _TO_VECTORS, "Concat": frozenset(("Unsqueeze",)), "MatMul": frozenset(("Transpose",)),
    "Not": frozenset(("Equal",)), "Reciprocal": frozenset(("Sqrt",)),
}  # fmt: skip
"""The operators of nodes that may be read together with the one that uses them, by the operator of that one."""


class OnnxUnread(Exception):
    """The node is not exactly a canonical call."""


def unread_unless(condition: bool) -> None:
    """End the reading unless it is exact."""
    if not condition:
        raise OnnxUnread


class OnnxScope(Protocol):
    """The surroundings of a node: the facts known there about the values that it uses."""

    opset: int
    """The version of ONNX's own operators."""

    def type_of(self, value: Any) -> Type | None:
        """The type of a value, ``None`` where it is not known."""

    def constant(self, value: Any) -> Any:
        """The elements of a value that is written in the model, as a numpy array; ``None`` for any other value."""

    def sizes(self, value: Any) -> tuple[Dim, ...] | None:
        """The integers of a shape, symbolic ones among them; ``None`` where they are not known."""


class OnnxCall:
    """A node that is to be read. Operands that are left out at its end are not there."""

    def __init__(self, node: ir.Node, scope: OnnxScope) -> None:
        self.node = node
        self.scope = scope
        self.through: list[ir.Node] = []
        """The other nodes that the reading covers, operands first."""
        self.looks_around = False
        """True if the reading depends on large literals."""
        inputs = list(node.inputs)
        while inputs and inputs[-1] is None:
            inputs.pop()
        self.inputs: tuple[Any, ...] = tuple(inputs)

    @property
    def x(self) -> Any:
        return self.inputs[0]

    def attr(self, name: str, default: Any = None) -> Any:
        """An attribute as a Python value. A float is the shortest one that is the same in single precision."""
        found = self.node.attributes.get(name)
        if found is None:
            return default
        unread_unless(not found.is_ref())
        return shortest(found.value) if found.type == ir.AttributeType.FLOAT else value_of(found)

    def has(self, place: int) -> bool:
        """True if an operand is given."""
        return place < len(self.inputs) and self.inputs[place] is not None

    def type(self, place: int = 0) -> TensorType:
        """The type of an operand."""
        return self.type_of(self.inputs[place])

    def type_of(self, value: Any) -> TensorType:
        """The type of a value. Unread where it is not known."""
        found = self.scope.type_of(value)
        if not isinstance(found, TensorType):
            raise OnnxUnread
        return found

    def sizes(self, place: int = 0, first: int = 0) -> tuple[int, ...]:
        """The sizes of an operand from an axis on. Unread where one is not known."""
        shape = self.type(place).shape[first:]
        unread_unless(all(isinstance(size, int) for size in shape))
        return shape  # type: ignore[return-value]

    def constant(self, place: int) -> Any:
        """An operand that is written in the model, as a numpy array; ``None`` for any other one."""
        found = self.scope.constant(self.inputs[place])
        if found is not None and found.nbytes > SMALL:
            self.looks_around = True
        return found

    def array(self, place: int) -> Any:
        """An operand that is written in the model, as a numpy array."""
        found = self.constant(place)
        unread_unless(found is not None)
        return found

    def ints(self, name: str, place: int | None = None) -> tuple[int, ...] | None:
        """A list of integers: an attribute, or the operand that newer versions have instead. ``None``: not given."""
        if name in self.node.attributes:
            value = self.attr(name)
            return value if isinstance(value, tuple) else (value,)
        if place is None or not self.has(place):
            return None
        return tuple([int(item) for item in self.array(place).reshape(-1)])

    def dims(self, place: int) -> tuple[Dim, ...]:
        """An operand that is a shape. Unread where it is not known."""
        found = self.scope.sizes(self.inputs[place])
        if found is None:
            raise OnnxUnread
        if len(found) * 8 > SMALL:
            self.looks_around = True
        return found

    def number(self, place: int) -> Any:
        """An operand that is a number which is written in the model, as Python's; ``None``: not given."""
        if not self.has(place):
            return None
        found = plain_number(self.array(place))
        unread_unless(found is not None)
        return found

    def operand(self, place: int, axes: int = 0) -> Any:
        """An operand, as a literal if it is a number that is written in the model, also with so many axes at most."""
        value = self.inputs[place]
        shape = getattr(self.scope.type_of(value), "shape", ())
        if len(shape) > axes or set(shape) - {1}:
            return value
        array = self.constant(place)
        found = None if array is None else plain_number(array.reshape(()))
        return value if found is None else LiteralOperand(found)

    def producer(self, value: Any) -> ir.Node | None:
        """The node that makes a value, if it may be read together with this one."""
        return value.producer() if is_made_by(value, THROUGH.get(self.node.op_type, ())) else None

    def inner(self, value: Any) -> ir.Node | None:
        """The same, if it makes the value for this node alone."""
        node = self.producer(value)
        return None if node is None or len(value.uses()) > 1 or value.is_graph_output() else node

    def vector(self, value: Any) -> Any:
        """The tensor of one axis with the elements of a value; ``None`` if there is none in sight."""
        shape = self.type_of(value).shape
        node = None if len(shape) == 1 else self.producer(value)
        if node is None or self.type_of(node.inputs[0]).shape != shape[:1]:
            return value if len(shape) == 1 else None
        self.through.append(node)
        return node.inputs[0]


def is_made_by(value: ir.Value | None, ops: Collection[str]) -> bool:
    """True if a node of one of these operators of ONNX makes a value."""
    node = None if value is None else value.producer()
    return node is not None and node.op_type in ops and not node.domain


def plain_number(array: Any) -> Any:
    """The number that an array without axes is, as Python's; ``None`` for any other array."""
    return None if array is None or array.dtype.kind == "V" else number_of(array)


OnnxLift = Callable[[OnnxCall], Canon]
"""Reads a node; raises OnnxUnread where it is not exactly a canonical call."""


_NO_ATTRIBUTES: Final[Mapping[str, Any]] = MappingProxyType({})


def same(
    op: str, fixed: Mapping[str, Any] = _NO_ATTRIBUTES, only: Mapping[str, Any] = _NO_ATTRIBUTES, **attrs: str
) -> OnnxLift:
    """The reader of a node whose operands are those of a canonical call.

    ``attrs`` names its attributes, ``fixed`` has others, and those that it has where the node leaves them out: a flag
    there is a number in ONNX. ``only`` has the one value that an attribute of the node may have, which it has where it
    is left out.
    """

    def read(r: OnnxCall) -> Canon:
        for name, value in only.items():
            unread_unless(r.attr(name, value) == value)
        given = {own: r.attr(theirs) for own, theirs in attrs.items() if theirs in r.node.attributes}
        flags = {own: bool(value) for own, value in given.items() if isinstance(fixed.get(own), bool)}
        return Canon(op, r.inputs, {**fixed, **given, **flags})

    return read


def arithmetic(r: OnnxCall) -> tuple[Any, ...]:
    """The operands with a literal for each number beside a tensor, and each element of no more axes than that."""
    types = [r.scope.type_of(value) for value in r.inputs]
    ranks = [len(type.shape) for type in types if isinstance(type, TensorType) and set(type.shape) - {1}]
    found = [r.operand(place, max(ranks, default=0)) for place in range(len(r.inputs))]
    if all(isinstance(operand, LiteralOperand) for operand in found):
        return r.inputs
    return tuple(found)


def calculated(op: str) -> OnnxLift:
    """The reader of a node that computes with numbers and tensors."""
    return lambda r: Canon(op, arithmetic(r))


def is_float(dtype: str) -> bool:
    return "float" in dtype


def axes_of(axes: Sequence[int], rank: int) -> tuple[int, ...]:
    """Axes counted from the first one, in order."""
    unread_unless(all(-rank <= axis < rank for axis in axes))
    return tuple(sorted([axis % rank for axis in axes]))

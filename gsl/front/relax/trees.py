"""The view nodes of one reading."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from tvm import relax

from gsl.front.core.handle import Source
from gsl.front.relax.dims import is_constant
from gsl.front.relax.tree import Reshaped
from gsl.front.tree import Canon, LiteralOperand
from gsl.graph import CONST, TUPLE, Inference, Node, TensorType, TupleType, Type
from gsl.spec import TABLE, Trait
from gsl.spec.meaning import Operand, infer

# ---------------------------------------------------------------- constants as numbers


def reads_as_number(op: Any, expr: Any) -> bool:
    """True for a constant without axes that is an operand of arithmetic."""
    return (
        isinstance(op, str) and op in TABLE and Trait.BROADCASTING in TABLE[op].traits
        and is_constant(expr) and not expr.value.shape
    )  # fmt: skip


def number_of(
    op: str, attrs: Mapping[str, Any], types: Sequence[Type | None], place: int, constant: Any
) -> bool | int | float | None:
    """The number that a constant among the operands is, ``None`` if the call would have another type with a number.

    The other operands have to be tensors; a number among them has been decided by its own call of this function.
    """
    others = [type for position, type in enumerate(types) if position != place]
    dtype = str(constant.value.dtype)
    if not others or any(type is None or getattr(type, "dtype", None) != dtype for type in others):
        return None
    value = scalar(constant)
    with_number: list[Operand] = [value if position == place else type for position, type in enumerate(types)]
    try:
        same = infer(TABLE[op], with_number, attrs) == infer(TABLE[op], types, attrs)
    except ValueError:
        return None
    return value if same else None


def scalar(constant: Any) -> bool | int | float | None:
    """The value of a constant without axes: of a float, the shortest decimal that is rounded to it."""
    array = constant.value.numpy()
    if array.dtype == np.float32:
        return float(str(array[()]))
    value = array.item()
    return value if isinstance(value, (bool, int, float)) else None


# ---------------------------------------------------------------- trees of view nodes


class Constants(Protocol):
    """Gives the one view node of a constant, seen with this shape."""

    def __call__(self, expr: Any, shape: tuple[int, ...] | None = None) -> Node: ...


class Tree:
    """The view nodes of one reading, operands first."""

    def __init__(
        self, views: Mapping[Any, Node], constant: Constants, infer: Inference, own: Callable[[Any], Any], name: str
    ) -> None:
        self.views = views
        self.constant = constant
        self.infer = infer
        self.own = own
        """Gives the one object of a variable."""
        self.name = name
        self.nodes: list[Node] = []
        self.sources: list[tuple[Source, ...]] = []

    def add(self, canon: Canon, type: Type | None = None) -> int:
        """Add a call with all its operands; its number. ValueError if its attributes are ill-formed."""
        found = [self._operand(operand, canon.op, place) for place, operand in enumerate(canon.operands)]
        loaded = [self._number(canon, item, place, found) if isinstance(item, _Number) else item
                  for place, item in enumerate(found)]  # fmt: skip
        operands = tuple([view for view, _ in loaded])
        sources = tuple([source for _, source in loaded])
        attrs = dict(canon.attrs)
        if isinstance(canon.op, str) and canon.op in TABLE:
            attrs = TABLE[canon.op].complete(canon.attrs, tuple([operand.type for operand in operands]))
        if type is None:
            type = self._type(canon.op, operands, attrs)
        own = str(canon.op).rpartition(".")[2] if isinstance(canon.op, str) else "call"
        return self._append(Node(canon.op, operands, attrs, type, name=f"{self.name}_{own}"), sources)

    def _append(self, node: Node, sources: tuple[Source, ...]) -> int:
        self.nodes.append(node)
        self.sources.append(sources)
        return len(self.nodes) - 1

    def _operand(self, operand: Any, op: Any, place: int) -> Any:
        match operand:
            case Canon():
                slot = self.add(operand)
                return self.nodes[slot], slot
            case relax.Tuple():
                slot = self.add(tuple_of(operand))
                return self.nodes[slot], slot
            case relax.Var():
                var = self.own(operand)
                return self.views[var], var
            case Reshaped():
                view = self.constant(operand.constant, tuple(operand.shape))
                return view, view.native
            case LiteralOperand():
                return self._literal(operand.value)
            case bool() | int() | float():
                return self._literal(operand)
        if reads_as_number(op, operand):
            return _Number(operand)
        view = self.constant(operand)
        return view, view.native

    def _number(self, canon: Canon, number: _Number, place: int, found: list[Any]) -> tuple[Node, Source]:
        """A constant without axes: a number, if that makes no difference to the type of the call."""
        types = [None if isinstance(item, _Number) else item[0].type for item in found]
        types[place] = TensorType((), str(number.constant.value.dtype))
        value = number_of(str(canon.op), canon.attrs, types, place, number.constant)
        if value is not None:
            return self._literal(value)
        view = self.constant(number.constant)
        return view, view.native

    def _literal(self, value: Any) -> tuple[Node, Source]:
        if hasattr(value, "shape"):
            type = TensorType(tuple(value.shape), str(value.dtype).removeprefix("torch."))
        else:
            kind = "bool" if isinstance(value, bool) else "int64" if isinstance(value, int) else "float32"
            type = TensorType((), kind)
        slot = self._append(Node(CONST, attrs={"value": value}, type=type, name=f"{self.name}_const"), ())
        return self.nodes[slot], slot

    def _type(self, op: Any, operands: tuple[Node, ...], attrs: Mapping[str, Any]) -> Type | None:
        if op == TUPLE:
            return TupleType(tuple([operand.type for operand in operands]))
        if not isinstance(op, str) or any(operand.type is None for operand in operands):
            return None
        return self.infer(op, operands, attrs)


@dataclass(frozen=True, slots=True)
class _Number:
    """A constant without axes, of which it is not known yet whether it is shown as a number."""

    constant: Any


def tuple_of(expr: Any) -> Canon:
    """The reading of a tuple expression."""
    return Canon(TUPLE, tuple([tuple_of(item) if isinstance(item, relax.Tuple) else item for item in expr.fields]))

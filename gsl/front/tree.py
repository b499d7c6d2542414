"""The small expression trees as which front ends read native calls, and the stand-ins for values in an opaque call.

A reading is a tree of canonical calls. It knows nothing about graphs: whatever stands for a tensor in the native graph
(an ``fx.Node``, a variable of TVM) is passed through as it is.
"""

from __future__ import annotations

import re
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from gsl.graph import TUPLE, Node, TensorType, TupleType
from gsl.spec import TABLE
from gsl.spec.meaning import Operand, infer


@dataclass(frozen=True, slots=True, eq=False)
class Canon:
    """A canonical call. ``op`` is an operator of the vocabulary, ``"tuple"`` (of operands) or ``"getitem"``
    (``attrs={"index": i}``). An operand is a Canon, a Literal, a leaf of the front end's own, or the native argument
    itself."""

    op: str
    operands: tuple[Any, ...]
    attrs: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, eq=False)
class LiteralOperand:
    """A literal operand: a Python scalar, or a torch tensor that the reading itself made."""

    value: Any


@dataclass(frozen=True, slots=True)
class Slot:
    """Stands for an operand within an attribute of an opaque call: ``indices=(None, $1)``."""

    index: int

    def __repr__(self) -> str:
        return f"${self.index}"


@dataclass(frozen=True, slots=True)
class Computed:
    """Stands for an argument of an opaque call that another native call computes, and that is no tensor."""

    name: str

    def __repr__(self) -> str:
        return self.name


# ---------------------------------------------------------------- writing by other calls


Written = Callable[[str, Mapping[str, Any], Sequence[Any], Callable[[Any], Any]], Any]
"""``write(op, attrs, operands, type_of)``: a canonical call as a native value."""


class Composition:
    """Writes a call as those of its decomposition, as a :class:`gsl.spec.spec.Calculus` of native values.

    The types of what it writes are inferred, and those of the operands are told by the front end.
    """

    def __init__(self, write: Written, type_of: Callable[[Any], Any]) -> None:
        self._write = write
        self._type_of = type_of
        self._made: dict[int, tuple[Any, Operand]] = {}
        """The values that it wrote, by identity, with their types."""

    def type_of(self, value: Any) -> Any:
        """The type of a native value, ``None`` where it is not known; a number is what it is."""
        if isinstance(value, (bool, int, float)):
            return value
        made = self._made.get(id(value))
        return self._type_of(value) if made is None else made[1]

    def shape(self, value: Any) -> tuple[Any, ...]:
        found = self.type_of(value)
        if not isinstance(found, TensorType):
            raise ValueError(f"expected an operand of known type, found {found}")
        return found.shape

    def __call__(self, op: str, *operands: Any, **attrs: Any) -> Any:
        types = [self.type_of(operand) for operand in operands]
        known = tuple([None if isinstance(found, (bool, int, float)) else found for found in types])
        full = TABLE[op].complete(attrs, known)
        value = self._write(op, full, operands, self.type_of)
        self._made[id(value)] = (value, infer(TABLE[op], types, full))
        return value


def compose(op: str, attrs: Mapping[str, Any], operands: Sequence[Any], write: Written, type_of: Any) -> Any:
    """A call that a framework lacks, written as others. ValueError where it is not known how, with the mend."""
    spec = TABLE[op]
    if spec.decompose is None:
        raise ValueError(f"{op}: it has no spelling here, and its declaration says no decomposition")
    return spec.decompose(Composition(write, type_of), *operands, **spec.own(attrs))


# ---------------------------------------------------------------- readings as view nodes


def type_of_reading(tree: Any, type_of: Callable[[Any], Operand]) -> Operand:
    """The type of a reading, from those of its leaves, or the number that a literal is. ValueError if it has none."""
    if isinstance(tree, LiteralOperand):
        return tree.value  # type: ignore[no-any-return]
    if isinstance(tree, (bool, int, float)):
        return tree
    if not isinstance(tree, Canon):
        return type_of(tree)
    types = [type_of_reading(operand, type_of) for operand in tree.operands]
    if tree.op == TUPLE:
        return TupleType(tuple([found if isinstance(found, (TensorType, TupleType)) else None for found in types]))
    return infer(TABLE[tree.op], types, tree.attrs)



NO_SPELLING: Final = "no canonical operator is spelled so"
NOT_COVERED: Final = "the canonical operator does not cover it: an operand is no tensor, or an attribute has no meaning"
"""Reasons why a call has no canonical reading."""


def unmet(error: Exception) -> str:
    """The condition of a reader that ended the reading of a call, as it is written there, with the names of attributes
    for the attributes of the call that is read; "" where none is written."""
    frames = [f for f in traceback.extract_tb(error.__traceback__) if f.name not in ("unread_unless", "check")]
    condition = re.fullmatch(r"(?:unread_unless|check)\((.*)\)", frames[-1].line or "")
    return "; it has to meet: " + re.sub(r'\br\["(\w+)"\]', r"\1", condition[1]) if condition else ""


def given_up(node: Node, error: Exception) -> str:
    """The reason why the reading of a call was given up: its operands and attributes, and what they do not meet."""
    given = [*(str(operand.type) for operand in node.operands), *(f"{name}={v!r}" for name, v in node.attrs.items())]
    return f"no reading with {', '.join(given)}{unmet(error)}"

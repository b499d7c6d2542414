"""What a view node remembers of a Relax function: of which binding it is part, and where its operands came from."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Union

from gsl.graph import CONST, PARAM, Node


@dataclass(frozen=True, slots=True, eq=False)
class Leaf:
    """A weight or a literal tensor: a variable of the function whose value is known, or a constant."""

    expr: Any
    """The variable or the constant."""
    shape: tuple[int, ...] | None = None
    """For a constant that is seen with another shape: that shape."""


@dataclass(frozen=True, slots=True, eq=False)
class Reading:
    """How a binding was read: as a small tree of view nodes, numbered with operands before their users.

    The transposition of a weight that a product is read with is no part of the tree: it is seen through.
    """

    var: Any
    """The variable that is bound; an input of the function is a reading too."""
    size: int = 1
    """The number of view nodes; the root has the last number."""
    through: tuple[int, ...] = ()
    """The numbers of the bindings that the reading sees through: those between its own and its operands."""


Source = Union[Any, Leaf, int]
"""Where an operand came from: a variable, a constant, or a node of the same tree."""


@dataclass(frozen=True, slots=True, eq=False)
class Handle:
    """The native handle of a view node: its place in a reading, and the sources of its operands and then its deps."""

    reading: Reading
    slot: int = 0
    sources: tuple[Source, ...] = ()

    @property
    def is_root(self) -> bool:
        return self.slot == self.reading.size - 1


def handle_of(node: Node) -> Handle | None:
    """The handle of a node that came from a binding or an input; ``None`` for leaves and new nodes."""
    return node.native if isinstance(node.native, Handle) else None


def is_literal(node: Node) -> bool:
    """True for a const that is a Python scalar, which is written into the call that uses it."""
    return node.op == CONST and isinstance(node.attrs["value"], (bool, int, float))


def is_tensor_leaf(node: Node) -> bool:
    """True for a weight or a literal tensor."""
    return node.op == PARAM or (node.op == CONST and not is_literal(node))

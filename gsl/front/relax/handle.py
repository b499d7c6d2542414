"""The link from a view node to a Relax function: the binding that it is part of, and the sources of its operands."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final, Union

from gsl.graph import CONST, PARAM, Node


@dataclass(frozen=True, slots=True, eq=False)
class Leaf:
    """A weight or a literal tensor: a variable of the function whose value is known, or a constant."""

    expr: Any
    """The variable or the constant."""
    shape: tuple[int, ...] | None = None
    """The other shape of a constant that is seen with one."""


class Reading:
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


Source = Union[Any, Leaf, int]
"""The source of an operand: a variable, a constant, or a node of the same tree."""


class Handle:
    """The native handle of a view node: its place in a reading, and the sources of its operands and then its deps."""

    __slots__ = ("is_root", "reading", "slot", "sources")

    def __init__(self, reading: Reading, slot: int = 0, sources: tuple[Source, ...] = ()) -> None:
        self.reading = reading
        self.slot = slot
        self.sources = sources
        self.is_root = slot == reading.size - 1
        """True if the node has the value of the binding."""


class Single(Handle):
    """The native handle of a view node that alone makes up a reading without ``through``; it is that reading too.

    Nearly all bindings are of this kind.
    """

    __slots__ = ("var",)

    size: Final = 1
    through: Final = ()
    slot: Final = 0  # type: ignore[misc]
    is_root: Final = True  # type: ignore[misc]

    def __init__(self, var: Any, sources: tuple[Source, ...] = ()) -> None:
        self.var = var
        self.sources = sources

    @property
    def reading(self) -> Any:  # type: ignore[override]
        return self


def handle_of(node: Node) -> Handle | None:
    """The handle of a node that came from a binding or an input; ``None`` for leaves and new nodes."""
    return node.native if isinstance(node.native, Handle) else None


def is_literal(node: Node) -> bool:
    """True for a const that is a Python scalar, which is written into the call that uses it."""
    return node.op == CONST and isinstance(node.attrs["value"], (bool, int, float))


def is_tensor_leaf(node: Node) -> bool:
    """True for a weight or a literal tensor."""
    return node.op == PARAM or (node.op == CONST and not is_literal(node))

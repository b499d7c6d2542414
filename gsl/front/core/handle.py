"""The links from the nodes of a view to the native program: what each one came from, and whether it is as it was."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from typing import Any, Final

from gsl.graph import CONST, PARAM, Graph, Node

NUMBERS: Final = (bool, int, float, complex)
"""The classes of the numbers that are literals."""


class NativeLeaf:
    """A weight or a literal tensor of the native program."""

    __slots__ = ()


class Reading:
    """The reading of a native call: a small tree of view nodes, numbered with operands before their users."""

    # There is one for nearly every call of a program: a frozen dataclass would take three times as long to make.
    __slots__ = ("native", "size", "through")

    def __init__(self, native: Any, size: int = 1, through: tuple[Any, ...] = ()) -> None:
        self.native = native
        """The native value that is the value of the tree's root; an input of the program is a reading too."""
        self.size = size
        """The number of view nodes; the root has the last number."""
        self.through = through
        """The other native calls that the reading covers, operands first: those between its own and its operands."""

    @property
    def is_plain(self) -> bool:
        """True if a single node, which is its handle too, tells all of it."""
        return type(self) is Reading and self.size == 1 and not self.through


Source = Any
"""The source of an operand: a native value, a leaf, or the number of a node of the same tree."""


class Handle:
    """The native handle of a view node: its place in a reading, and the sources of its operands and then its deps."""

    __slots__ = ("reading", "slot", "sources")

    def __init__(self, reading: Any, slot: int = 0, sources: tuple[Source, ...] = ()) -> None:
        self.reading = reading
        self.slot = slot
        self.sources = sources

    @property
    def is_root(self) -> bool:
        """True if the node has the value of the native call."""
        return bool(self.slot == self.reading.size - 1)


class Single(Handle):
    """The native handle of a view node that alone makes up a reading; it is that reading too.

    Nearly all calls are of this kind.
    """

    __slots__ = ("native",)

    size: Final = 1
    through: Final = ()
    slot: Final = 0  # type: ignore[misc]
    is_root: Final = True

    def __init__(self, native: Any, sources: tuple[Source, ...] = ()) -> None:
        self.native = native
        self.sources = sources

    @property
    def reading(self) -> Any:
        return self


def handle_of(node: Node) -> Handle | None:
    """The handle of a node that came from a native call or an input; ``None`` for leaves and new nodes."""
    own = node.native
    return own if isinstance(own, Handle) else None


def shown(view: Graph, natives: Callable[[Any], Iterable[Any]]) -> dict[Any, list[Node]]:
    """The nodes of a view, by the native calls that they stand for. ``natives`` gives those that a reading covers."""
    found: dict[Any, list[Node]] = {}
    for node in view.nodes:
        handle = handle_of(node)
        for native in () if handle is None else natives(handle.reading):
            found.setdefault(native, []).append(node)
    return found


def origins(node: Node) -> Iterator[Node]:
    """The nodes that came from a native call and for which a node stands: itself, or those that it replaces, be it by
    way of others."""
    known, work = {node}, [node]
    while work:
        part = work.pop()
        if handle_of(part) is not None:
            yield part
        elif part.origin is not None:
            new = [old for old in part.origin.replaced if old not in known]
            known.update(new)
            work.extend(new)


def is_literal(node: Node) -> bool:
    """True for a const that is a Python number, which is written into the call that uses it."""
    return node.op == CONST and isinstance(node.attrs["value"], NUMBERS)


def is_tensor_leaf(node: Node) -> bool:
    """True for a weight or a literal tensor."""
    return node.op == PARAM or (node.op == CONST and not is_literal(node))


# ---------------------------------------------------------------- what is as it was


Arguments = dict[Any, Node]
"""The view node that now takes the place of each native value to which a call refers."""


def intact(root: Node, outputs: Collection[Node]) -> tuple[list[Node], Arguments] | None:
    """All view nodes of the reading of which a node is the root, and the new arguments of its native call.

    ``None`` if the reading is not as it was loaded, but for its arguments: a node of it is gone or is used elsewhere, a
    leaf is another one, or an argument has become two different things.
    """
    arguments: Arguments = {}
    tree = [root]
    # The list grows while it is read: it ends up with all nodes of the reading.
    for node in tree:
        own = node.native
        operands = (*node.operands, *node.deps) if node.deps else node.operands
        if not isinstance(own, Handle) or len(own.sources) != len(operands):
            return None
        for source, operand in zip(own.sources, operands):
            if source.__class__ is int:
                inner = handle_of(operand)
                if inner is None or inner.reading is not own.reading or inner.slot != source:
                    return None
                tree.append(operand)
            elif isinstance(source, NativeLeaf):
                if operand.native is not source:
                    return None
            elif arguments.setdefault(source, operand) is not operand:
                return None
    for node in tree[1:]:
        if is_used_outside(node, tree, outputs):
            return None
    return tree, arguments


def is_used_outside(node: Node, tree: Collection[Node], outputs: Collection[Node]) -> bool:
    """True if a node of a reading, which is not its root, is used by others than the nodes of the tree."""
    return not is_literal(node) and (node in outputs or not all(map(tree.__contains__, node.users)))

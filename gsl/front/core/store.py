"""The way from the nodes of a rewritten view to native values: what is as it was stays, the rest is written."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Container, Iterable, Mapping, Sequence, Set
from typing import Any, ClassVar

from gsl.errors import FrontEndError
from gsl.front.core.handle import Arguments, handle_of, intact, is_literal, is_tensor_leaf
from gsl.graph import GETITEM, LEAVES, TUPLE, Graph, Node


def unique(name: str, taken: Callable[[str], bool]) -> str:
    """The name, with a number behind it if it is taken."""
    result, number = name, 0
    while taken(result):
        number += 1
        result = f"{name}_{number}"
    return result


class FreeNames:
    """Names that are given once; those of ``taken`` are not given at all."""

    def __init__(self, taken: Container[str] = ()) -> None:
        self.taken = taken
        self.given: set[str] = set()
        self._numbers: dict[str, int] = {}
        """The last numbers behind names, so that a thousand things of one name are not counted again and again."""

    def free(self, wanted: str) -> str:
        """The name, with a number behind it if another thing has it."""
        number = self._numbers.get(wanted, 0)
        name = f"{wanted}_{number}" if number else wanted
        while name in self.given or name in self.taken:
            number += 1
            name = f"{wanted}_{number}"
        self._numbers[wanted] = number
        self.given.add(name)
        return name


class Storer(ABC):
    """The native values of the nodes of a view, found and made from the first node to the last."""

    framework: ClassVar[str]
    """Its name in errors."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.outputs = graph.ends()
        self.values: dict[Node, Any] = {}
        """The native values that were found so far."""
        self.kept: Mapping[Any, Arguments] = {}
        """The readings whose native calls stay, with the new values of their arguments."""
        self.inner: Set[Node] = frozenset()
        """The nodes that are part of a call that stays, or of one that is written for another node."""

    def number(self, node: Node) -> Any:
        """The native value of a Python number."""
        return node.attrs["value"]

    def tuple_of(self, node: Node, items: list[Any]) -> Any:
        """The native value of a tuple."""
        return tuple(items)

    def fields_of(self, value: Any) -> Sequence[Any] | None:
        """The items of which :meth:`tuple_of` made a value; ``None`` for any other value."""
        return value if isinstance(value, tuple) else None

    @abstractmethod
    def weight(self, node: Node) -> Any:
        """The native value of a weight or a literal tensor."""

    @abstractmethod
    def write(self, node: Node) -> Any:
        """Write a call anew: its native value."""

    def keep_intact(self) -> None:
        """Keep the native calls of all readings that are as they were loaded, but for their arguments."""
        kept: dict[Any, Arguments] = {}
        inner: set[Node] = set()
        for node in self.graph.nodes:
            handle = handle_of(node)
            found = intact(node, self.outputs) if handle is not None and handle.is_root else None
            if handle is not None and found is not None:
                tree, kept[handle.reading] = found
                inner.update(tree[1:])
        self.kept, self.inner = kept, inner

    def is_kept(self, reading: Any) -> bool:
        """True if the native call of a reading stays."""
        return reading in self.kept

    def keep(self, node: Node, reading: Any) -> Any:
        """Keep the native call of a reading, of which the node is the root: its native value."""
        raise NotImplementedError

    def store_nodes(self, nodes: Iterable[Node]) -> None:
        """Find the native values of calls, operands before their users."""
        for node in nodes:
            handle = None if node.native is None else handle_of(node)
            if handle is not None and handle.is_root and self.is_kept(handle.reading):
                self.values[node] = self.keep(node, handle.reading)
            elif node not in self.inner and not (isinstance(node.op, str) and (node.op in LEAVES or node.op == TUPLE)):
                if handle is not None and not (node.users or node.effect or node in self.outputs):
                    continue  # part of a reading that fell apart, which nobody needs
                field = self.field(node) if node.op == GETITEM else None
                self.values[node] = self.write(node) if field is None else field

    def field(self, node: Node) -> Any:
        """The native value of a field of a tuple that was made of its fields; ``None`` for a field of another call."""
        items = self.fields_of(self.value(node.operands[0]))
        return None if items is None else items[node.attrs["index"]]

    def value(self, node: Node) -> Any:
        """The native value of a node. FrontEndError if it has none."""
        known = self.values.get(node)
        if known is not None:
            return known
        if is_literal(node):
            return self.number(node)
        if node.op == TUPLE:
            found = self.tuple_of(node, [self.value(operand) for operand in node.operands])
        elif is_tensor_leaf(node):
            found = self.weight(node)
        else:
            raise FrontEndError(
                f"{node.name}: is used before it is computed, or was removed from the graph, so that what uses it "
                f"can't be written in {self.framework}"
            )
        self.values[node] = found
        return found

    def has_value(self, node: Node) -> bool:
        """True if a node has a native value, or one that can be made at once."""
        if node in self.values or is_literal(node) or is_tensor_leaf(node):
            return True
        return node.op == TUPLE and all(map(self.has_value, node.operands))

    def check_outputs(self, before: int) -> None:
        """FrontEndError unless the view has as many outputs as the program had before."""
        after = len(self.graph.outputs)
        if before != after:
            raise FrontEndError(
                f"the program of {self.framework} has {before} outputs, and the rewritten view {after}; a rewrite "
                "replaces outputs one by one"
            )


def foreign(node: Node, framework: str) -> FrontEndError:
    """The error for a node of a view of another program, or of this one as it was before."""
    return FrontEndError(
        f"{node.name}: the view was not loaded from this program of {framework}, or the program was changed since: "
        "store takes a view that load() of the same program made, and what was changed needs a new workload"
    )


def added(node: Node, framework: str) -> FrontEndError:
    """The error for an input that the program does not have."""
    return FrontEndError(
        f"{node.name}: a rewrite can't add an input to a program of {framework}; add it to the module and load it"
    )

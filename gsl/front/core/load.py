"""The way from native calls to view nodes: the tree of a canonical reading becomes the nodes of a view."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, MutableMapping, Sequence
from dataclasses import dataclass
from itertools import chain
from operator import attrgetter, itemgetter
from typing import Any, Final

from gsl.front.core.handle import NUMBERS, Handle, Reading, Single, Source
from gsl.front.core.infer import type_of_literal
from gsl.front.tree import Canon, LiteralOperand
from gsl.graph import CONST, GETITEM, INPUT, TUPLE, Effect, Inference, Node, Op, TupleType, Type
from gsl.graph.node import short_name
from gsl.spec import TABLE

_OPERANDS: Final = attrgetter("operands")


@dataclass(frozen=True, slots=True, eq=False)
class ViewRow:
    """One view node of a recorded reading."""

    op: Op
    attrs: Mapping[str, Any]
    type: Type | None
    suffix: str
    """The suffix that the view node's name has behind that of the native call."""
    take: Callable[[Sequence[Any]], tuple[Any, ...]]
    """Picks its operands and then its deps from the native operands of the call, followed by the nodes of other
    rows."""
    operands: int
    """The number of operands among them."""
    is_whole: bool
    """True if this is the only row, and it has just the native operands of the call, in their order."""
    effect: Effect | None


Rows = tuple[ViewRow, ...]


def recorded(tree: Sequence[Node], sources: Sequence[Sequence[Source]], name: str, inputs: Sequence[Any]) -> Rows:
    """The rows of the view nodes as which a call of that name, with these native operands, was loaded.

    KeyError if the reading has other sources than those.
    """
    numbered = [*enumerate((*inputs, *range(len(tree))))]
    places = {source: place for place, source in reversed(numbered)}  # the first one of an operand that stands twice

    def row(node: Node, own: Sequence[Source]) -> ViewRow:
        taken = [places[source] for source in own]
        is_whole = len(tree) == 1 and not node.deps and taken == list(range(len(inputs)))
        suffix = node.name.removeprefix(name)
        return ViewRow(node.op, node.attrs, node.type, suffix, _taker(taken), len(node.operands), is_whole, node.effect)

    return tuple(map(row, tree, sources))


def _taker(places: Sequence[int]) -> Callable[[Sequence[Any]], tuple[Any, ...]]:
    """A function that gives the items at some places as a tuple."""
    if len(places) > 1:
        return itemgetter(*places)
    first = slice(places[0], places[0] + 1) if places else slice(0)
    return lambda items: tuple(items[first])


class Expansion:
    """The view nodes of one canonical reading, operands first.

    ``leaf`` gives the view node of an operand that is a value of the native program, and what it came from.
    """

    def __init__(self, leaf: Callable[[Any], tuple[Node, Source]], infer: Inference, name: str = "") -> None:
        self.leaf = leaf
        self.infer = infer
        self.name = name
        self.prefix = f"{name}_" if name else ""
        """The beginning of the names of the nodes."""
        self.nodes: list[Node] = []
        self.sources: list[tuple[Source, ...]] = []
        self._slots: dict[Canon, int] = {}
        """The numbers of the calls that were added as operands: one that stands in the tree twice is one."""

    def add(self, canon: Canon, type: Type | None = None) -> int:
        """Add a call with all its operands; its number. ValueError if its attributes are ill-formed."""
        found = self.operands(canon, type)
        operands, attrs = tuple([view for view, _ in found]), canon.attrs
        if isinstance(canon.op, str) and canon.op in TABLE:
            attrs = TABLE[canon.op].complete(attrs, tuple([operand.type for operand in operands]))
        if type is None:
            type = self.type(canon.op, operands, attrs)
        node = Node(canon.op, operands, attrs, type, name=f"{self.prefix}{self.own_name(canon.op)}")
        return self._append(node, tuple([source for _, source in found]))

    def operands(self, canon: Canon, type: Type | None) -> list[tuple[Node, Source]]:
        """The view nodes of the operands of a call, and what they came from; ``type`` is that of the call where known.
        """
        return [self.operand(operand) for operand in canon.operands]

    def operand(self, operand: Any, type: Type | None = None) -> tuple[Node, Source]:
        """The view node of an operand, and what it came from; ``type`` is that of the operand where known."""
        match operand:
            case Canon():
                if operand not in self._slots:
                    self._slots[operand] = self.add(operand, type)
                slot = self._slots[operand]
            case LiteralOperand(value) | (bool() | int() | float() | complex() as value):
                node = Node(CONST, attrs={"value": value}, type=self.type_of(value), name=f"{self.prefix}const")
                slot = self._append(node, ())
            case _:
                return self.leaf(operand)
        return self.nodes[slot], slot

    def type(self, op: Any, operands: tuple[Node, ...], attrs: Mapping[str, Any]) -> Type | None:
        """The type of a canonical call, ``None`` where it does not follow."""
        if op == TUPLE:
            return TupleType(tuple([operand.type for operand in operands]))
        if not isinstance(op, str) or any(operand.type is None for operand in operands):
            return None
        return self.infer(op, operands, attrs)

    def type_of(self, value: Any) -> Type | None:
        """The type of a literal."""
        return type_of_literal(value)

    def own_name(self, op: Any) -> str:
        """The end of the name of a call."""
        return short_name(op) if isinstance(op, str) else "call"

    def _append(self, node: Node, sources: tuple[Source, ...]) -> int:
        self.nodes.append(node)
        self.sources.append(sources)
        return len(self.nodes) - 1


class Loader(ABC):
    """A view of a native program that is being made."""

    def __init__(self) -> None:
        self.nodes: list[Node] = []
        self.views: MutableMapping[Any, Node] = {}
        """The view node that stands for each native value."""

    @abstractmethod
    def is_value(self, operand: Any, native: Any) -> bool:
        """True if an operand of the reading of a native call is a value of the view."""

    def leaf(self, operand: Any) -> tuple[Node, Source]:
        """The view node of an operand of a reading that is a native value, and what it came from."""
        return self.views[operand], operand

    def add(self, native: Any, view: Node) -> None:
        """Add the one view node that stands for a native value."""
        self.nodes.append(view)
        self.views[native] = view

    def alive(self, roots: Sequence[Node]) -> list[Node]:
        """The inputs, and the nodes that the roots need: without those that readings have seen through, and without
        weights that nothing uses."""
        found = set(chain(roots, *map(_OPERANDS, self.nodes)))
        if found.issuperset(self.nodes):  # as nearly always: all are used, the last ones by the roots
            return self.nodes
        found = set(roots)
        for node in reversed(self.nodes):  # operands stand before their users
            if node in found:
                found.update(node.operands, node.deps)
        return [node for node in self.nodes if node in found or node.op == INPUT]

    def expand(self, tree: Expansion, canon: Canon, native: Any, type: Type | None = None) -> bool:
        """Fill the tree with the nodes of the reading of a native call of that type; False if the view can't hold it.
        """
        if not self.is_acceptable(canon, native):
            return False
        try:
            tree.add(canon, type)
        except ValueError:
            # The attributes have no canonical form: the operator does not cover this call.
            return False
        return True

    def is_acceptable(self, canon: Canon, native: Any) -> bool:
        """True if every operand of a reading is a value of the view."""
        for operand in canon.operands:
            if isinstance(operand, Canon):
                if not self.is_acceptable(operand, native):
                    return False
            elif not isinstance(operand, (LiteralOperand, *NUMBERS)) and not self.is_value(operand, native):
                return False
        return not isinstance(canon.op, str) or canon.op in TABLE or canon.op in (TUPLE, GETITEM)

    def link(self, tree: Expansion, reading: Reading, deps: tuple[Any, ...] = ()) -> Node:
        """Add the nodes of a tree, which is that reading; its root. It also refers to the native values ``deps``."""
        *_, root = tree.nodes
        root.deps = tuple([self.views[dep] for dep in deps])
        tree.sources[-1] += deps
        if reading.is_plain:
            root.native = Single(reading.native, tree.sources[0])
        else:
            for slot, (view, sources) in enumerate(zip(tree.nodes, tree.sources)):
                view.native = Handle(reading, slot, sources)
        self.nodes.extend(tree.nodes)
        self.views[reading.native] = root
        return root

    def replay(self, rows: Rows, reading: Reading, views: Sequence[Node], inputs: Sequence[Source], name: str) -> Node:
        """Add the nodes of a call that is like one whose rows were recorded; its root.

        ``views`` are the view nodes of the call's native operands, ``inputs`` what they came from.
        """
        known, sources, is_plain = list(views), (*inputs, *range(len(rows))), reading.is_plain
        for slot, row in enumerate(rows):
            own, taken = row.take(known), row.take(sources)
            handle = Single(reading.native, taken) if is_plain else Handle(reading, slot, taken)
            view = Node(
                row.op, own[: row.operands], row.attrs, row.type, name + row.suffix, handle, row.effect,
                own[row.operands:],
            )  # fmt: skip
            known.append(view)
            self.nodes.append(view)
        self.views[reading.native] = view
        return view

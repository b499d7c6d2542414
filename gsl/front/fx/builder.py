"""The graph into which a rewritten view is written: a new one, or the native graph from which the view was loaded."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from operator import attrgetter
from types import TracebackType
from typing import Any, Final

from torch import fx
from torch.fx.graph import PythonCode, _PyTreeCodeGen

from gsl.errors import FrontEndError
from gsl.front.fx.handle import nodes_in

_NAME: Final = attrgetter("name")


class GraphBuilder:
    """A new graph that is being written, from its first node to its last: kept nodes are copied."""

    def __init__(self, old: fx.Graph | None = None, graph: fx.Graph | None = None) -> None:
        extras = getattr(old, "_tracer_cls", None), getattr(old, "_tracer_extras", None)
        self.graph = fx.Graph(None, *extras) if graph is None else graph
        self.order = {} if old is None else dict(zip(old.nodes, itertools.count()))
        """The places of the nodes of the old graph."""
        self.names = set(map(_NAME, self.order))
        """The names of those."""

    def create(
        self, kind: str, target: Any, args: tuple[Any, ...], kwargs: dict[str, Any], name: str, type: Any = None
    ) -> fx.Node:
        """A new node, behind all that was written so far."""
        return _created(self.graph, kind, target, args, kwargs, name, type)

    def keep(self, node: fx.Node, target: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> fx.Node:
        """The counterpart of an old node, with another target and other arguments, and everything else as it was.

        It stands behind all that was written so far.
        """
        copy = _created(self.graph, node.op, target, args, kwargs, node.name, node.type)
        if copy.name != node.name:
            copy.name = node.name
        copy.meta.update(node.meta)
        return copy

    def fetch(self, node: fx.Node) -> fx.Node:
        """The counterpart of an old node without arguments, somewhere before the node that is written next."""
        return self.keep(node, node.target, node.args, node.kwargs)

    def catch_up(self, node: fx.Node) -> None:
        """Move the insertion point behind an old node that stays where it is; none does in a new graph."""

    def has_passed(self, node: fx.Node) -> bool:
        """True if an old node that is kept stands before the next node that is written."""
        return True

    def note(self, undo: Callable[[], object]) -> None:
        """Remember how to take back a change to something which the old program uses too, as nothing of a new graph
        is."""


class CodelessGraph(fx.Graph):
    """A graph of which a module is made without its code; the module has the signature, and can't be called.

    Torch prints and compiles the code of each module that it makes on the way to the last one.
    """

    def python_code(self, root_module: str, **options: Any) -> PythonCode:
        short = fx.Graph()
        if isinstance(self._codegen, _PyTreeCodeGen):
            for node in self.find_nodes(op="placeholder"):
                short.node_copy(node)
        short.call_function(_has_no_code)
        short.output(())
        short._codegen = self._codegen
        return short.python_code(root_module, **options)

    def __deepcopy__(self, memo: dict[int, Any] | None = None) -> fx.Graph:
        return codeless(super().__deepcopy__(memo))


def _has_no_code() -> None:
    """The only call in the code of a module that has none yet."""
    raise FrontEndError("the module has no code yet: call its recompile()")


def codeless(graph: fx.Graph) -> fx.Graph:
    """The graph itself, of which modules are made without their code from now on, until :func:`give_code`."""
    graph.__class__ = CodelessGraph
    return graph


def give_code(module: fx.GraphModule) -> fx.GraphModule:
    """A module that was made of a :class:`CodelessGraph`, with the code of its graph from now on."""
    is_codeless = isinstance(module.graph, CodelessGraph)
    if is_codeless:
        module.graph.__class__ = fx.Graph
        module.recompile()
    return module


class InPlace(GraphBuilder):
    """The old graph itself: kept nodes stay where they are, or move to where they are needed.

    A context: an error within it takes back all that was done.
    """

    def __init__(self, graph: fx.Graph) -> None:
        super().__init__(graph, graph)
        self._front = -1
        """The place of the last node that stayed where it was; everything written stands there or before it."""
        self._next: fx.Node = next(iter(graph.nodes))
        """The node before which the next one is written."""
        hooks = getattr(graph.owning_module, "_create_node_hooks", None)
        self._create = fx.Graph.create_node if hooks else _created
        self._undo: list[Callable[[], object]] = []
        self._rewired: dict[fx.Node, Any] = {}
        """The old arguments of the nodes that got new ones."""
        self._users: dict[fx.Node, tuple[fx.Node, ...]] = {}
        """The users, in order, of the nodes that lost some."""
        self._touched: dict[fx.Node, None] = {}
        """The nodes that are new, or have new arguments, or another place."""
        self._names: dict[fx.Node, str] = {}
        """The new nodes that get the name of an old one when that is gone."""

    def __enter__(self) -> InPlace:
        self._inserting_before = self._next
        self._point = self.graph.inserting_before(self._next)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is not None:
            while self._undo:
                self._undo.pop()()
            for node in reversed(self.new_nodes()):
                self.graph.erase_node(node)
            for node, users in self._users.items():
                for user in filter(node.users.__contains__, users):
                    node.users[user] = node.users.pop(user)
        self._undo.clear()  # they refer to this object, which would wait for the garbage collector
        self._point.__exit__(kind, error, trace)

    def create(
        self, kind: str, target: Any, args: tuple[Any, ...], kwargs: dict[str, Any], name: str, type: Any = None
    ) -> fx.Node:
        if self._inserting_before is not self._next:
            self._inserting_before = self._next
            self.graph.inserting_before(self._next)
        new = self._create(self.graph, kind, target, args, kwargs, name, type)
        if new.name != name and name in self.names:
            self._names[new] = name
        self._touched[new] = None
        return new

    def keep(self, node: fx.Node, target: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> fx.Node:
        if target is not node.target or args is not node.args or kwargs is not node.kwargs:
            self._rewire(node, target, args, kwargs)
        if self.order[node] > self._front:
            self.catch_up(node)
        else:
            self._move(node)
        return node

    def catch_up(self, node: fx.Node) -> None:
        place = self.order[node]
        if place > self._front:
            self._front = place
            self._next = node.next

    def has_passed(self, node: fx.Node) -> bool:
        return self.order[node] <= self._front or node in self._touched

    def fetch(self, node: fx.Node) -> fx.Node:
        if node is self._next:
            return self.keep(node, node.target, node.args, node.kwargs)
        if not self.has_passed(node):
            self._move(node)
        return node

    def note(self, undo: Callable[[], object]) -> None:
        self._undo.append(undo)

    def _rewire(self, node: fx.Node, target: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        before = node.target, node.args, node.kwargs
        self._rewired[node] = before[1:]
        for operand in node._input_nodes:
            if len(operand.users) > 1 and operand not in self._users:
                self._users[operand] = tuple(operand.users)
        self._undo.append(lambda: _assign(node, *before))
        self._touched[node] = None
        _assign(node, target, args, kwargs)

    def _move(self, node: fx.Node) -> None:
        follower = node.next
        self._undo.append(lambda: follower.prepend(node))
        self._touched[node] = None
        self._next.prepend(node)

    def new_nodes(self) -> list[fx.Node]:
        """The nodes that are new, in order."""
        return [node for node in self.graph.nodes if node not in self.order]

    def finish(self, kept: Mapping[fx.Node, fx.Node]) -> list[fx.Node]:
        """Erase the nodes that were not kept; those, in their order. FrontEndError, before any is gone, if the graph
        would not be valid."""
        dead = [node for node in self.order if node not in kept]
        gone = set(dead)
        for node in dead:
            for user in node.users:
                if user not in gone:
                    raise FrontEndError(f"{node.format_node()}: is used by a call that is kept, but was removed")
        for node in self._touched:
            for operand in node._input_nodes:
                if not operand < node:
                    raise FrontEndError(f"{node.format_node()}: {operand.name} is computed after it")
            for user in node.users:
                if user not in gone and not node < user:
                    raise FrontEndError(f"{user.format_node()}: {node.name} is computed after it")
        for hook in getattr(self.graph.owning_module, "_replace_hooks", None) or ():
            for user, before in self._rewired.items():
                # Those who observe the module hear what a node uses instead of what it used.
                for old, new in zip(nodes_in(before), nodes_in((user.args, user.kwargs))):
                    if old is not new:
                        hook(old=old, new=self._names.get(new, new.name), user=user)
        self._undo.clear()
        for node in reversed(dead):
            self.graph.erase_node(node)
        for node, name in self._names.items():
            node.name = name
        return dead


def _created(
    graph: fx.Graph, kind: str, target: Any, args: tuple[Any, ...], kwargs: dict[str, Any], name: str, type: Any
) -> fx.Node:
    """A new node. Its arguments are set afterwards, because a graph searches those that it is handed for raw sizes."""
    new = graph.create_node(kind, target, (), {}, name, type)
    if args or kwargs:
        new._update_args_kwargs(args, kwargs)
    return new


def _assign(node: fx.Node, target: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    if target is not node.target:
        node.target = target
    # It is what torch does where ``args`` and ``kwargs`` are set, for both at once, and without looking the node up.
    node._update_args_kwargs(args, kwargs)

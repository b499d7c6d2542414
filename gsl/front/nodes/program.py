"""Graphs of objects as programs: reading them from their outputs, and writing rewritten views back."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from gsl.errors import FrontEndError, WorkloadError
from gsl.front.base import Unchangeable
from gsl.front.nodes.access import Access, shown
from gsl.graph import Graph, Node, Op, Type, op_name
from gsl.graph.node import Replaced
from gsl.graph.subgraph import Subgraph
from gsl.graph.text import node_names
from gsl.pause import paused_collector


class NodesProgram(Unchangeable):
    """A graph of objects: its outputs, and how the others are found and made.

    The handle of a view node is the object itself. Raises FrontEndError where the objects form no graph.
    """

    casts_inputs = False
    example_inputs = None

    def __init__(self, outputs: Sequence[Any], access: Access, *, is_read: bool = False) -> None:
        """``is_read`` tells that the objects have been looked at, so that they form a graph."""
        if not isinstance(outputs, (list, tuple)) or not outputs:
            raise FrontEndError(
                f"a graph of objects is given by the list of its outputs, got {shown(outputs)} of type "
                f"{type(outputs).__name__}"
            )
        self._outputs = tuple(outputs)
        self._access = access
        self._inputs = access.inputs()
        self._view = None if is_read else _read(self._outputs, access)
        """What the look at the objects found, until somebody takes it."""

    def __reduce__(self) -> tuple[Any, ...]:
        # The view is read anew. Operands come first, so that nothing recurses along the graph.
        view = _read(self._outputs, self._access) if self._view is None else self._view
        return _copied, (tuple([node.native for node in view.nodes]), self._outputs, self._access)

    @property
    def native(self) -> list[Any]:
        """The outputs."""
        return list(self._outputs)

    @property
    def module(self) -> list[Any]:
        """The outputs."""
        return list(self._outputs)

    @property
    def inputs(self) -> Mapping[str, Type | None]:
        return dict.fromkeys(self._inputs)

    @property
    def params(self) -> Mapping[str, Any]:
        return {}

    def load(self) -> Graph:
        view, self._view = self._view, None
        return _read(self._outputs, self._access) if view is None else view

    def store(self, graph: Graph) -> NodesProgram:
        """The graph of a rewritten view. An object is made anew where it or something below it has changed."""
        objects: dict[Node, Any] = {}
        kept: set[Node] = set()
        for node in graph.nodes:
            if node.native is not None and node.redirects is None and kept.issuperset(node.operands):
                objects[node] = node.native
                kept.add(node)
            else:
                objects[node] = self._made(node, [objects[operand] for operand in node.operands])
        return NodesProgram([objects[node] for node in graph.outputs], self._access, is_read=True)

    def _made(self, node: Node, operands: Sequence[Any]) -> Any:
        """The new object of a node. FrontEndError, with the rule if one made the node, where there can be none."""
        try:
            return self._access.make(node.op, operands, node.attrs, node.native)
        except FrontEndError as error:
            if node.origin is None:
                raise
            raise FrontEndError(f"{node.origin.rule}: {error}") from error

    def build(self, **options: Any) -> Callable[..., Any]:
        run = self._access.run
        if run is None:
            raise WorkloadError("a graph of objects runs by a function of its own: give run= to Workload.from_nodes")
        if options:
            raise WorkloadError(f"building a graph of objects has no options, got {', '.join(options)}")
        return lambda *inputs: run(self.native, *inputs)

    def evaluate(self, node: Node, operands: Sequence[Any]) -> Any:
        raise FrontEndError(f"%{node.name} is an object of the user's graph, which can't be computed ahead")


def _copied(objects: Sequence[Any], outputs: Sequence[Any], access: Access) -> NodesProgram:
    """The program with these outputs, of which the objects have been copied one by one."""
    return NodesProgram(outputs, access)


@paused_collector
def _read(outputs: Sequence[Any], access: Access) -> Graph:
    """The view of the graph that ends in these objects, operands first. Each object is asked once."""
    nodes: dict[int, Node] = {}
    below: dict[int, tuple[Any, ...]] = {}
    """The operands of the objects on the path from an output."""
    names: dict[Op, str] = {}
    if any(output is None for output in outputs):
        raise FrontEndError("None is among the outputs of a graph of objects")
    work = [*reversed(outputs)]
    while work:
        item = work[-1]
        key = id(item)
        if key not in nodes:
            operands = below.pop(key, None)
            if operands is None:
                operands = access.operands_of(item)
                waiting = [operand for operand in operands if id(operand) not in nodes]
                if waiting:
                    below[key] = operands
                    _check_path(waiting, below, work)
                    work += reversed(waiting)
                    continue
            op = access.op_of(item)
            name = names.get(op)
            if name is None:
                name = names[op] = _name(op)
            inputs = tuple([nodes[id(operand)] for operand in operands])
            nodes[key] = Node(op, inputs, access.attrs_of(item), None, name, item)
        work.pop()
    found = [nodes[id(output)] for output in outputs]
    graph = Graph(nodes.values(), found, _untyped, typed=False, admits=_check_objects)
    for node, name in node_names(graph).items():
        node.name = name
    return graph


def _check_path(waiting: Sequence[Any], below: Mapping[int, tuple[Any, ...]], work: Sequence[Any]) -> None:
    """Raise FrontEndError if the path to what is waiting came through it before."""
    for item in waiting:
        if id(item) in below:
            path = {id(each): each for each in reversed(work) if id(each) in below}
            items = [*reversed(path.values())]
            start = next(number for number, each in enumerate(items) if each is item)
            cycle = " <- ".join(map(shown, [*items[start:], item]))
            raise FrontEndError(f"the objects form a cycle, so they are no graph that rules can rewrite: {cycle}")


def _check_objects(replaced: Replaced) -> None:
    """Raise FrontEndError if a new node can't be an object: only graphs of tensors have such nodes."""
    for node in replaced.created:
        if isinstance(node.op, Subgraph):
            raise FrontEndError("the target is an outlined group, which a graph of objects has no form for")
        if not node.opaque:
            raise FrontEndError(
                f"the target has a {op_name(node.op)}, which a graph of objects has no form for: targets are calls of "
                "classes or functions of the graph itself"
            )


def _untyped(op: Op, operands: tuple[Node, ...], attrs: Mapping[str, Any]) -> None:
    """The type of a call, which these graphs do not have."""


def _name(op: Op) -> str:
    return op_name(op).rpartition(".")[2]

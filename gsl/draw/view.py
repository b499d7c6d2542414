"""The diagram of a view: its nodes, the parts of the model that they belong to, or a match with its neighbours."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from itertools import islice
from typing import Literal, Union

from gsl.draw import labels
from gsl.draw.figure import Box, Chain, Diagram, Edge, Mark, Nest, Paint, Style
from gsl.draw.labels import BESIDE, FRAMES, MODULE, clipped
from gsl.draw.scopes import ScopeItem, ScopeOf, ScopePart, ScopePath, modules_of, parts
from gsl.errors import WorkloadError, nearest
from gsl.graph import INPUT, LEAVES, PARAM, Graph, Node, is_call, op_name
from gsl.graph.text import is_scalar, node_names

Depth = Union[int, Literal["auto", "all"]]
"""The number of levels of modules that are open in a drawing: ``"all"`` draws every call without frames; ``"auto"``
does so for a graph of at most :data:`FLAT` calls, and otherwise opens as many levels as give at most :data:`BOXES`
boxes."""
FLAT = 150
BOXES = 60
DEPENDS = Edge("", "", dashed=True)
"""The style of an edge to a call from a value that it needs and that is no operand: a symbolic size."""


@dataclass(frozen=True, slots=True)
class Options:
    """The options of a drawing of a view."""

    scope: ScopeOf | None = None
    """The modules to which a node belongs; without a scope, the names of weights tell."""
    depth: Depth = "auto"
    expand: Sequence[str] = ()
    """Modules that are open however deep they are: names as ``encoder.layer.0``, also with ``*``."""
    params: bool | None = None
    """True if weights are drawn; ``None``: where no module is closed."""

    def __post_init__(self) -> None:
        if self.depth not in ("auto", "all") and (type(self.depth) is not int or self.depth < 0):
            raise WorkloadError(f"depth= is a number of levels from 0 on, 'auto' or 'all', got {self.depth!r}")


def diagram(graph: Graph, options: Options, paint: Mapping[Node, Paint] | None = None) -> Diagram:
    """The diagram of a view, with some nodes painted."""
    return _Drawer(graph, options, paint or {}).draw()


def boxes(graph: Graph, options: Options) -> int:
    """The number of calls and parts that the diagram of a view shows."""
    return _Drawer(graph, options, {}).shown()


def levels(graph: Graph, options: Options) -> int:
    """The number of levels of modules that are drawn open where the options leave it to the drawing."""
    return _Drawer(graph, options, {}, flat=-1).depth


class _Drawer:
    """Draws one view: decides which modules are open, then makes boxes and edges frame by frame."""

    def __init__(self, graph: Graph, options: Options, paint: Mapping[Node, Paint], *, flat: int = FLAT) -> None:
        self.graph = graph
        self.options = options
        self.paint = paint
        self.names = node_names(graph)
        self.outer = 0
        """The number of names with which all paths of parts begin."""
        self.items = self._items(flat)
        self.depth = self._depth()
        self.params = options.params
        if self.params is None:
            self.params = not any(isinstance(item, ScopePart) for item in self.items)
        self.alias: dict[Node, Node] = {}
        self.member: dict[Node, list[ScopePart]] = {}
        self.chains: dict[Node, Chain] = {}
        self.nest = Nest()

    def _items(self, flat: int) -> list[ScopeItem]:
        depth = self.options.depth
        if depth == "all" or (depth == "auto" and not self.options.expand and sum(map(is_call, self.graph)) <= flat):
            return [node for node in self.graph.nodes if node.op not in LEAVES]
        marks = {node: paint.mark for node, paint in self.paint.items()}
        items = parts(self.graph, self.options.scope, marks)
        while len(items) == 1 and isinstance(items[0], ScopePart) and not items[0].equals:
            self.outer, items = len(items[0].path), items[0].items
        return items

    def _depth(self) -> int:
        if isinstance(self.options.depth, int):
            return self.options.depth
        depth = 0
        while True:
            here, deeper = self.shown(depth), self.shown(depth + 1)
            if deeper > BOXES or here == deeper:
                return depth
            depth += 1

    def shown(self, depth: int | None = None) -> int:
        """The number of calls and parts that are visible where parts are open down to a depth."""
        limit = self.depth if depth is None else depth
        count, stack = 0, [(item, 0, self.outer) for item in self.items]
        while stack:
            item, level, outer = stack.pop()
            if isinstance(item, ScopePart):
                count += 1
                if level < limit or self._named(item, outer):
                    stack += [(inner, level + 1, len(item.path)) for inner in item.items]
            else:
                count += is_call(item)
        return count

    def _named(self, part: ScopePart, outer: int) -> bool:
        """True if a part, or a part in it, is among those to be open; ``outer`` is the number of names of its frame."""
        return any(_covers(wanted.split("."), each.path, outer) for each in (part, *part.equals)
                   for wanted in self.options.expand)  # fmt: skip

    def draw(self) -> Diagram:
        self._walk()
        self._leaves()
        for node in self.graph.nodes:
            for operand in dict.fromkeys((*node.operands, *node.deps)):
                self._edge(operand, node)
        labels.draw_outputs(self.nest, [self._chain(output) for output in self.graph.outputs])
        return self.nest.diagram()

    def _walk(self) -> None:
        """Boxes for the items, in order, and frames around those of open parts."""
        stack: list[tuple[ScopeItem, tuple[ScopePart, ...]]] = [(item, ()) for item in reversed(self.items)]
        while stack:
            item, frames = stack.pop()
            if not isinstance(item, ScopePart):
                self.chains[item] = (*frames, item)
                self.nest.box(frames, self._node(item))
                continue
            for equal in item.equals:
                for mine, theirs in zip(item.nodes(), equal.nodes()):
                    self.alias[theirs] = mine
                    self.member.setdefault(theirs, []).append(item)
            outer = len(frames[-1].path) if frames else self.outer
            if len(frames) < self.depth or self._named(item, outer):
                look, marks = FRAMES[len(frames) % 2], self._marks(item)
                self.nest.box(frames, Box(item, self._title(item, frames), look, marks=marks), is_frame=True)
                stack += [(inner, (*frames, item)) for inner in reversed(item.items)]
            else:
                self.chains.update((node, (*frames, item)) for node in item.nodes())
                self.nest.box(frames, self._closed(item, frames))

    def _leaves(self) -> None:
        """Boxes for inputs, and for weights and literals of which a user is seen: in the frame of all their users."""
        for node in self.graph.nodes:
            if node.op not in LEAVES or is_scalar(node) or (node.op == PARAM and not self.params):
                continue
            users = [user for user in node.users if self.chains.get(user, ())[-1:] == (user,)]
            if node.op != INPUT and node.users and not users:
                continue
            frames = {self.chains[user][:-1] for user in users}
            around = frames.pop() if node.op != INPUT and len(frames) == 1 else ()
            self.chains[node] = (*around, node)
            self.nest.box(around, self._node(node))

    def _edge(self, operand: Node, node: Node) -> None:
        """The edge from the box of an operand to the box of its user, if both are drawn."""
        for fold in self.member.get(node, ()):
            if fold in self.member.get(operand, ()) or fold in self.chains.get(operand, ()):
                return  # from one of equal parts to another, or in one that is not drawn
        dashed = operand in node.deps and operand not in node.operands
        self.nest.edge(self._chain(operand), self._chain(node), DEPENDS if dashed else None)

    def _chain(self, node: Node) -> Chain | None:
        """The frames around what is drawn for a node, and that; ``None`` if it is not drawn."""
        while node in self.alias:
            node = self.alias[node]
        return self.chains.get(node)

    def _node(self, node: Node) -> Box:
        name = self.names[node]
        box = Box(node, labels.lines(node, name), labels.style(node), labels.hint(node, name), name=f"%{name}")
        return self.paint[node].on(box) if node in self.paint else box

    def _closed(self, part: ScopePart, frames: tuple[ScopePart, ...]) -> Box:
        calls = Counter(op_name(node.op) for node in part.nodes() if is_call(node))
        total = sum(calls.values())
        most = [f"{op}{f' ×{count}' * (count > 1)}" for op, count in calls.most_common(3)]
        summary = clipped(", ".join(most) + (", …" if len(calls) > 3 else ""), 60)
        each = " each" if part.equals else ""
        text = (*self._title(part, frames), f"{total} operators{each}", summary)
        marks = self._marks(part)
        hint = "\n".join([".".join(part.path), *(f"{op} ×{count}" for op, count in calls.most_common())])
        return Box(part, text, _painted(MODULE, marks), hint, marks, name=".".join(part.path))

    def _title(self, part: ScopePart, frames: tuple[ScopePart, ...]) -> tuple[str, ...]:
        outer = len(frames[-1].path) if frames else 0
        outer -= outer > 0 and part.path[outer].isdecimal()  # a number alone says little
        title = ".".join(part.path[outer:])
        if not part.equals:
            return (title,)
        last = [theirs for mine, theirs in zip(part.path, part.equals[-1].path) if mine != theirs]
        return (f"{title} … {last[0]} ×{len(part.equals) + 1}",)

    def _marks(self, part: ScopePart) -> tuple[Mark, ...]:
        """The rules that fired in a part, each with how often."""
        events: dict[Mark, set[int]] = {}
        for node in part.all_nodes():
            paint = self.paint.get(node)
            if paint is not None and paint.mark is not None:
                events.setdefault(paint.mark, set()).add(paint.event)
        return tuple(replace(mark, text=f"{mark.text} ×{len(found)}") for mark, found in sorted(
            events.items(), key=lambda item: int(item[0].text)))  # fmt: skip


def _painted(style: Style, marks: Sequence[Mark]) -> Style:
    return replace(style, stroke=marks[0].colour, width=2.5) if marks else style


def check_expanded(graph: Graph, options: Options) -> None:
    """WorkloadError if one of the modules that are to be open is none of the view; names with ``*`` may mean none."""
    paths = set(modules_of(graph, options.scope).values()) if options.expand else set()
    known = {".".join(path[:count]) for path in paths for count in range(1, len(path) + 1)}
    for wanted in options.expand:
        if "*" not in wanted and wanted not in known:
            raise WorkloadError(f"expand: there is no module {wanted!r}; {nearest(wanted, known)}")


def _covers(wanted: Sequence[str], path: ScopePath, outer: int) -> bool:
    """True if a module is wanted, or is on the way to a wanted one.

    A part stands for several modules where one is nothing but another: for all below the ``outer`` names.
    """
    named = all(fnmatchcase(name, pattern) for pattern, name in zip(wanted, path))
    return named and (len(path) <= len(wanted) or len(wanted) > outer)


NEIGHBOURS = 24
"""The number of nodes beside the region that are drawn."""
_FAINT = "#c4c4c4"


def region(paint: Mapping[Node, Paint], covered: Iterable[Node]) -> Diagram:
    """The diagram of the nodes that are painted, with the operands and users of those covered, in grey."""
    inside = dict.fromkeys(covered)
    own = dict.fromkeys((*paint, *inside))
    beside = dict.fromkeys(n for node in inside for n in (*node.operands, *node.users) if n not in own)
    near = dict.fromkeys(islice((node for node in beside if not is_scalar(node)), NEIGHBOURS))
    nodes = sorted((node for node in (*own, *near) if not is_scalar(node)), key=lambda node: node.index)
    boxes = tuple([_box(node, paint.get(node)) for node in nodes])
    shown = set(nodes)
    edges = []
    for node in nodes:
        for operand in dict.fromkeys(node.operands):
            if operand in shown and (node in inside or operand in inside or (node in own and operand in own)):
                known = node in own and operand in own
                edges.append(Edge(operand, node) if known else Edge(operand, node, colour=_FAINT))
    return Diagram(boxes, tuple(edges))


def _box(node: Node, paint: Paint | None) -> Box:
    box = Box(node, labels.lines(node, node.name), labels.style(node), labels.hint(node, node.name))
    return replace(box, style=replace(BESIDE, rounded=box.style.rounded)) if paint is None else paint.on(box)

"""The parts of a figure: boxes with lines of text, edges between them, frames around them, and a legend."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

BoxKey = Hashable


@dataclass(frozen=True, slots=True)
class Style:
    """The style of a box. Colours are written ``#rrggbb``."""

    fill: str = "#ffffff"
    stroke: str = "#8899aa"
    width: float = 1.0
    dashed: bool = False
    rounded: bool = False
    small: bool = False
    """Smaller text, for less important things."""
    text: str = "#1b1b1b"


PLAIN = Style()


@dataclass(frozen=True, slots=True)
class Mark:
    """A small coloured tag at the corner of a box."""

    text: str
    colour: str


@dataclass(frozen=True, slots=True)
class Paint:
    """The marks by which a node differs from others of its kind in a drawing."""

    fill: str
    stroke: str
    width: float = 2.0
    mark: Mark | None = None
    event: int = 0
    """The number of the firing that the node was part of; a box for many nodes counts them."""
    lines: tuple[str, ...] = ()
    """Text below the node's own."""
    text: str = "#1b1b1b"

    def on(self, box: Box) -> Box:
        """A box with these marks."""
        style = replace(box.style, fill=self.fill, stroke=self.stroke, width=self.width, text=self.text)
        marks = (self.mark,) if self.mark else ()
        return replace(box, lines=(*box.lines, *self.lines), style=style, marks=marks)


@dataclass(frozen=True, slots=True)
class Box:
    """A vertex of a diagram: lines of text, or a frame with others inside."""

    key: BoxKey
    lines: tuple[str, ...]
    style: Style = PLAIN
    hint: str = ""
    """The text that appears when the mouse rests on the box."""
    marks: tuple[Mark, ...] = ()
    inside: tuple[Box, ...] = ()
    """The boxes of a frame. Edges go through its outline."""
    name: str = ""
    """The name of the frame where an edge to it would be too long to draw."""


@dataclass(frozen=True, slots=True)
class Edge:
    """A line from one box of a diagram to another one of it, whatever frames are around them."""

    tail: BoxKey
    head: BoxKey
    colour: str = "#667788"
    dashed: bool = False
    label: str = ""


@dataclass(frozen=True, slots=True)
class Diagram:
    """Boxes and the edges between them; edges go down, from earlier boxes to later ones as a rule."""

    boxes: tuple[Box, ...]
    edges: tuple[Edge, ...] = ()


@dataclass(frozen=True, slots=True)
class Panel:
    """A diagram with a title, beside others in a drawing."""

    title: str
    diagram: Diagram
    lines: tuple[str, ...] = ()
    """Text below the diagram."""


@dataclass(frozen=True, slots=True)
class Figure:
    """The parts of a whole drawing: panels side by side, the meaning of their colours, and text below them."""

    name: str
    panels: tuple[Panel, ...]
    legend: tuple[tuple[Style, Mark | None, str], ...] = ()
    notes: tuple[str, ...] = ()


Chain = tuple[BoxKey, ...]
"""The frames around a box from the outermost one, and the box."""


class Nest:
    """A diagram in the making."""

    def __init__(self) -> None:
        self.boxes: dict[BoxKey | None, list[Box]] = {None: []}
        self.edges: dict[Edge, None] = {}

    def box(self, frames: Chain, box: Box, *, is_frame: bool = False) -> None:
        """Put a box into frames that are there already. A frame has the others that follow inside."""
        self.boxes[frames[-1] if frames else None].append(box)
        if is_frame:
            self.boxes[box.key] = []

    def edge(self, above: Chain | None, below: Chain | None, look: Edge | None = None) -> None:
        """Draw an edge from one box to another one, if both are there. Equal edges are one."""
        if above is not None and below is not None and above != below:
            self.edges.setdefault(replace(look or Edge("", ""), tail=above[-1], head=below[-1]))

    def diagram(self) -> Diagram:
        """The diagram. A frame with nothing in it is a box."""
        return Diagram(self._inside(None), tuple(self.edges))

    def _inside(self, frame: BoxKey | None) -> tuple[Box, ...]:
        return tuple([
            replace(box, inside=self._inside(box.key)) if box.key in self.boxes else box for box in self.boxes[frame]
        ])  # fmt: skip


LONGEST = 20
"""The number of layers over which an edge is drawn."""
_REFERENCE = Style("#f6f6f6", "#c4c4c4", rounded=True, small=True, text="#555555", dashed=True)


def shortened(diagram: Diagram) -> Diagram:
    """The diagram with a reference in place of each edge over more than :data:`LONGEST` layers."""
    names = {box.key: box.name for box in every(diagram.boxes)}
    layer = _layers(names, diagram.edges)
    edges, beside = [], dict[BoxKey, list[Box]]()
    for edge in diagram.edges:
        if layer[edge.head] - layer[edge.tail] > LONGEST and names[edge.tail]:
            box = Box(("reference", edge.tail, edge.head), (f"from {names[edge.tail]}",), _REFERENCE)
            beside.setdefault(edge.head, []).append(box)
            edge = replace(edge, tail=box.key)
        edges.append(edge)
    return Diagram(_with(diagram.boxes, beside), tuple(edges)) if beside else diagram


def every(boxes: Sequence[Box]) -> Iterator[Box]:
    """All boxes that are not frames, with those inside of frames."""
    for box in boxes:
        if box.inside:
            yield from every(box.inside)
        else:
            yield box


def _layers(keys: Mapping[BoxKey, str], edges: Sequence[Edge]) -> dict[BoxKey, int]:
    """The layer of each box: below all boxes that it uses; leaves above their first user; 0 in a cycle."""
    users: dict[BoxKey, list[BoxKey]] = {key: [] for key in keys}
    waiting = dict.fromkeys(keys, 0)
    for edge in edges:
        users[edge.tail].append(edge.head)
        waiting[edge.head] += 1
    layer = dict.fromkeys(keys, 0)
    ready = [key for key, count in waiting.items() if not count]
    for key in ready:
        for user in users[key]:
            layer[user] = max(layer[user], layer[key] + 1)
            waiting[user] -= 1
            if not waiting[user]:
                ready.append(user)
    for key in ready:
        if not layer[key] and users[key]:
            layer[key] = max(0, min(layer[user] for user in users[key]) - 1)
    return {key: 0 if waiting[key] else found for key, found in layer.items()}


def _with(boxes: Sequence[Box], beside: Mapping[BoxKey, Sequence[Box]]) -> tuple[Box, ...]:
    """The boxes, each after those that stand beside it."""
    made: list[Box] = []
    for box in boxes:
        made += beside.get(box.key, ())
        made.append(replace(box, inside=_with(box.inside, beside)) if box.inside else box)
    return tuple(made)

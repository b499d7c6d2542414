"""The parts of a drawing: boxes with lines of text, edges between them, frames around them, and a legend."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass

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

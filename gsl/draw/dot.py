"""Figures as text of Graphviz."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from html import escape

from gsl.draw.figure import Box, BoxKey, Diagram, Edge, Figure, Mark, Panel, Style, every, shortened

FACE = "Helvetica,Arial,sans-serif"
SIZE, SMALL = 11, 9
"""The sizes of fonts."""
APART = 24
"""The space between two panels."""
WIDE, HIGH = 6.5, 17
"""The width of a character, rather more than less, and the height of a cell of the legend."""
ROW = 100
"""The number of characters of a row of the legend."""
LARGE = 400
"""A figure of more boxes than this is laid out in fewer steps, for time."""
_GRAPH = (
    f'compound=true, rankdir=TB, ordering=in, ranksep=0.3, nodesep=0.25, fontname="{FACE}", fontsize={SIZE}, '
    "labelloc=b, labeljust=l"
)
_NODE = f'shape=box, fontname="{FACE}", fontsize={SIZE}, height=0.3, width=0.3, margin="0.1,0.05"'
_EDGE = (
    f'color="{Edge("", "").colour}", arrowsize=0.6, fontname="{FACE}", fontsize={SMALL}, '
    'fontcolor="#444444", labeldistance=1.4'
)
_FORMLESS = re.compile("[^\t\n\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_QUICK = "nslimit=0.1, nslimit1=1, mclimit=0.1"


def dot(figure: Figure) -> str:
    """The figure as the text of a graph of Graphviz. The same figure gives the same text."""
    return "\n".join(_Writer().figure(figure)) + "\n"


class _Writer:
    """Writes one figure; boxes are numbered in the order in which they come."""

    def __init__(self) -> None:
        self.count = 0
        self.names: dict[BoxKey, str] = {}

    def figure(self, figure: Figure) -> Iterator[str]:
        yield f"digraph {_quoted(figure.name or ' ')} {{"
        yield f"graph [{_GRAPH}]"
        yield f"node [{_NODE}]"
        yield f"edge [{_EDGE}]"
        diagrams = [shortened(panel.diagram) for panel in figure.panels]
        if sum(sum(1 for _ in every(diagram.boxes)) for diagram in diagrams) > LARGE:
            yield f"graph [{_QUICK}]"
        if len(figure.panels) > 1:  # side by side in the order given, with their tops in line
            yield f'graph [pack={APART}, packmode="array_it{len(figure.panels)}"]'
        below = _below(figure)
        if below:
            yield f"graph [label=<{below}>]"
        for panel, diagram in zip(figure.panels, diagrams):
            yield from self._panel(panel, diagram, alone=len(figure.panels) == 1)
        yield "}"

    def _panel(self, panel: Panel, diagram: Diagram, *, alone: bool) -> Iterator[str]:
        """A cluster with the title above; inside, another one with the lines below the diagram. A diagram alone without
        these has no clusters, with which the time for a layout would grow as the square of the boxes."""
        framed = not alone or panel.title or panel.lines
        if framed:
            outline = "peripheries=0" if alone else 'color="#d0d0d0"'
            title = f"<b>{_text(panel.title)}</b>" if panel.title else ""
            yield from self._cluster(f'label=<{title}>, labelloc=t, fontsize={SIZE + 2}, margin=8, style="", {outline}')
            lines = "".join(f'{_text(line)}<br align="left"/>' for line in panel.lines)
            yield from self._cluster(f"label=<{lines}>, labelloc=b, fontsize={SIZE}, margin=2, peripheries=0")
        self.names = {}
        yield from self._boxes(diagram.boxes)
        for edge in diagram.edges:
            yield f"{self.names[edge.tail]} -> {self.names[edge.head]}{_edge(edge)}"
        if framed:
            yield "}}"

    def _cluster(self, attributes: str) -> Iterator[str]:
        self.count += 1
        yield f"subgraph cluster_{self.count} {{"
        yield f"graph [{attributes}]"

    def _boxes(self, boxes: Sequence[Box]) -> Iterator[str]:
        for box in boxes:
            hint = _hint(box.hint)
            if box.inside:
                label = _label(("  ".join(box.lines),), box.marks, bold=True)
                look = f"labelloc=t, fontsize={SIZE}, margin=8, peripheries=1"
                yield from self._cluster(f"label=<{label}>, {look}, {_look(box.style)}{hint}")
                yield from self._boxes(box.inside)
                yield "}"
                continue
            self.count += 1
            self.names[box.key] = f"n{self.count}"
            small = f", fontsize={SMALL}, height=0.2" if box.style.small else ""
            ink = "" if box.style.text == Style().text else f', fontcolor="{box.style.text}"'
            label = _label(box.lines, box.marks, bold=len(box.lines) > 1)
            yield f"n{self.count} [label=<{label}>, {_look(box.style)}{ink}{small}{hint}]"


def _label(lines: Sequence[str], marks: Sequence[Mark], *, bold: bool) -> str:
    """The first line large, the others small; marks at the right of the first one."""
    first = _text(lines[0]) if lines else " "
    first = f"<b>{first}</b>" if bold else first
    if len(lines) < 2 and not marks:
        return first
    tags = "".join(f'<td width="2"></td>{_tag(mark)}' for mark in marks)
    others = "".join(f'<tr><td><font point-size="{SMALL}">{_text(line)}</font></td></tr>' for line in lines[1:])
    return f'<table border="0" cellspacing="0" cellpadding="0"><tr><td>{first}</td>{tags}</tr>{others}</table>'


def _tag(mark: Mark, size: str = 'width="14"') -> str:
    ink = "#ffffff" if _dark(mark.colour) else Style().text
    text = f'<font point-size="{SMALL}" color="{ink}"><b>{_text(mark.text)}</b></font>'
    return f'<td bgcolor="{mark.colour}" style="rounded" {size} cellpadding="2">{text}</td>'


def _fixed(width: float, height: int = HIGH) -> str:
    """The size of a table or cell that keeps its width beside wider ones."""
    return f'fixedsize="true" align="left" width="{width:.0f}" height="{height}"'


def _below(figure: Figure) -> str:
    """The legend, in rows, and the notes, as a table; empty without both."""
    rows: list[tuple[str, float]] = []
    length = ROW
    for style, mark, text in figure.legend:
        length += len(text) + 8
        if length > ROW:
            rows.append(("", 0.0))
            length = len(text) + 8
        swatch = f'<td bgcolor="{style.fill}" color="{style.stroke}" border="{style.width:.0f}" {_fixed(16)}></td>'
        size = 0 if mark is None else 10 + WIDE * len(mark.text)
        tag = "" if mark is None else _tag(mark, _fixed(size))
        row, width = rows[-1]
        row += f'{swatch}{tag}<td align="left">{_text(text)}</td><td width="8"></td>'
        rows[-1] = row, width + size + WIDE * len(text) + 40
    table = '<table border="0" cellborder="0" cellspacing="3" cellpadding="1"'
    found = [f"{table} {_fixed(width, HIGH + 8)}><tr>{row}</tr></table>" for row, width in rows]
    found += [_text(note) for note in figure.notes]
    inside = "".join(f'<tr><td align="left">{one}</td></tr>' for one in found)
    return f'<table border="0" cellspacing="0" cellpadding="1">{inside}</table>' if inside else ""


def _look(style: Style) -> str:
    kinds = ",".join(["filled", *(["rounded"] if style.rounded else []), *(["dashed"] if style.dashed else [])])
    return f'style="{kinds}", fillcolor="{style.fill}", color="{style.stroke}", penwidth={style.width:g}'


def _edge(edge: Edge) -> str:
    given = [f'color="{edge.colour}"'] if edge.colour != Edge("", "").colour else []
    given += ["style=dashed"] if edge.dashed else []
    given += [f"headlabel=<{_text(edge.label)}>"] if edge.label else []
    return f" [{', '.join(given)}]" if given else ""


def _text(text: str) -> str:
    """A text as it stands in a label, where an empty one is an error."""
    return escape(_plain(text)) or " "


def _plain(text: str) -> str:
    """A text without characters for which XML has no form."""
    return _FORMLESS.sub("\ufffd", text)


def _dark(colour: str) -> bool:
    """True if white text is easier to read on a colour than black text."""
    red, green, blue = bytes.fromhex(colour[1:])
    return 0.299 * red + 0.587 * green + 0.114 * blue < 130


def _quoted(text: str, backslash: str = "&#92;") -> str:
    """A text as a string of Graphviz, in which a backslash would begin an escape."""
    return '"' + escape(_plain(text)).replace("\\", backslash).replace("\n", "&#10;") + '"'


def _hint(text: str) -> str:
    """The text that appears under the mouse. Escapes are read twice more in it."""
    return f", tooltip={_quoted(text, 4 * '&#92;')}" if text else ""

"""A drawing as a user has it: shown by a notebook, written to a file."""

from __future__ import annotations

import html
import os
import re
import tempfile
from collections.abc import Callable
from pathlib import Path

from gsl.draw.drawing import Figure
from gsl.errors import MissingPackageError, WorkloadError

FORMATS = ("svg", "png", "pdf", "dot")
NARROWEST = 0.7
"""The smallest factor by which a drawing shrinks on a page with less room for it; below that, it is scrolled."""
_WIDTH = re.compile(r'<svg role="img" width="([\d.]+)"')


class Drawing:
    """A drawing. A notebook shows it; :meth:`save` writes it; ``svg`` and ``source`` are its text.

    Graphviz lays it out when it is first needed, by the package pygraphviz, which is imported then. Equal drawings
    give equal text. Without pygraphviz there is the ``source`` only, and a notebook shows the drawing's name.
    """

    def __init__(self, figure: Figure) -> None:
        self.figure = figure
        self._svg: str | None = None

    @property
    def svg(self) -> str:
        """The drawing as an ``<svg>`` element, which stands by itself. MissingPackageError without pygraphviz."""
        if self._svg is None:
            from gsl.draw.dot import svg

            self._svg = svg(self.source)
        return self._svg

    @property
    def source(self) -> str:
        """The drawing as text of Graphviz."""
        from gsl.draw.dot import dot

        return dot(self.figure)

    def save(self, path: str | Path) -> Path:
        """Write the drawing in the format of the path's suffix (.svg, .png, .pdf, .dot); returns the path.

        The file is written whole or not at all. WorkloadError for another suffix; MissingPackageError without
        pygraphviz, except for .dot.
        """
        path = Path(path)
        format = path.suffix[1:].lower()
        if format not in FORMATS:
            known = ", ".join(f".{known}" for known in FORMATS)
            raise WorkloadError(f"can't write a drawing to {path.name!r}: its suffix should be one of {known}")
        data = self._data(format)
        with tempfile.TemporaryDirectory(prefix=".gsl-", dir=path.parent) as folder:
            made = Path(folder) / path.name
            made.write_bytes(data)
            os.replace(made, path)
        return path

    def _data(self, format: str) -> bytes:
        if format in ("svg", "dot"):
            return (self.svg if format == "svg" else self.source).encode()
        from gsl.draw.dot import rendered

        return rendered(self.source, format)

    def _repr_svg_(self) -> str | None:
        try:
            return _WIDTH.sub(_fitting, self.svg, count=1)
        except MissingPackageError:
            return None

    def __repr__(self) -> str:
        panels = ", ".join(panel.title or "one diagram" for panel in self.figure.panels)
        return f"<Drawing {self.figure.name}: {panels}>"


def _fitting(found: re.Match[str]) -> str:
    """A width with the style by which a page makes a drawing smaller, in proportion."""
    return f'{found[0]} style="max-width:max(100%,{float(found[1]) * NARROWEST:.0f}px);height:auto"'


def saved(drawing: Drawing, path: str | Path | None) -> Drawing:
    """The drawing, which is also written to the path if there is one."""
    if path is not None:
        drawing.save(path)
    return drawing


def page(make: Callable[[], Drawing], text: str) -> str:
    """The HTML of an object that has a text and a drawing, for a notebook: the text, and the drawing below it."""
    drawing = make()._repr_svg_()
    return pre(text) if drawing is None else f"{pre(text)}<div>{drawing}</div>"


def pre(text: str) -> str:
    """A text as HTML that keeps its lines."""
    return f"<pre>{html.escape(text)}</pre>"

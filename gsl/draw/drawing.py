"""Drawings for users, shown in a notebook or written to a file: figures that Graphviz has laid out."""

from __future__ import annotations

import io
import os
import re
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stderr
from html import escape
from pathlib import Path
from typing import IO, Any

from gsl.draw.dot import dot
from gsl.draw.figure import Figure
from gsl.errors import MissingPackageError, WorkloadError, checked
from gsl.place import why_unwritable

_ONE = threading.Lock()
"""Graphviz draws one graph at a time."""
_SIZE = re.compile(r'<svg width="([\d.]+)pt" height="([\d.]+)pt"')


def engine() -> Any:
    """The package pygraphviz. MissingPackageError without it."""
    try:
        import pygraphviz
    except ImportError as error:
        raise MissingPackageError("drawings need pygraphviz, which is not installed: pip install 'gsl[viz]'") from error
    return pygraphviz


def rendered(source: str, format: str) -> bytes:
    """A graph of Graphviz in a format, ``"svg"``, ``"png"`` or ``"pdf"``.

    MissingPackageError without pygraphviz; ValueError if Graphviz does not accept the text.
    """
    package = engine()
    with _ONE, _quiet():
        made = package.AGraph(string=source).draw(format=format, prog="dot")
    return bytes(made)


def svg(source: str) -> str:
    """A graph of Graphviz as an ``<svg>`` element that a page may hold several of.

    It has no ids, which would not be unique on such a page, nor titles of parts, which hide what is known of a node.
    Hyphens and spaces are written as such, so that a text can be found in it. The size is in pixels, as that of the
    text is, and in attributes, because readers that are no browsers know no styles.
    """
    text = rendered(source, "svg").decode()
    text = re.sub(r' id="[^"]*"|<!--.*?-->\n', "", text[text.index("<svg") :], flags=re.DOTALL)
    text = _SIZE.sub(r'<svg role="img" width="\1" height="\2"', text, count=1)
    text = text.replace("&#45;", "-").replace("&#160;", " ")
    title, end, rest = text.partition("</title>\n")
    return title + end + re.sub(r"<title>.*?</title>\n", "", rest)


@contextmanager
def _quiet() -> Iterator[None]:
    """Keep the output of Graphviz and its libraries on the standard error from the user: hints, and warnings about
    fonts."""
    with redirect_stderr(io.StringIO()), tempfile.TemporaryFile() as sink, _redirected(sink):
        yield


@contextmanager
def _redirected(sink: IO[bytes]) -> Iterator[None]:
    """Send the process's standard error to a file; nothing is done where there is none."""
    try:
        before = os.dup(2)
    except OSError:
        yield
        return
    try:
        os.dup2(sink.fileno(), 2)
        yield
    finally:
        os.dup2(before, 2)
        os.close(before)


FORMATS = ("svg", "png", "pdf", "dot")
NARROWEST = 0.7
"""The smallest factor by which a drawing shrinks on a page with less room for it; below that, it is scrolled."""
_WIDTH = re.compile(r'<svg role="img" width="([\d.]+)"')


@checked(WorkloadError)
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
            self._svg = svg(self.source)
        return self._svg

    @property
    def source(self) -> str:
        """The drawing as text of Graphviz."""
        return dot(self.figure)

    def save(self, path: str | Path) -> Path:
        """Write the drawing in the format of the path's suffix (.svg, .png, .pdf, .dot); returns the path.

        The file is written whole or not at all. WorkloadError for another suffix, and where no file can be written;
        MissingPackageError without pygraphviz, except for .dot.
        """
        path = Path(path)
        format = path.suffix[1:].lower()
        if format not in FORMATS:
            known = ", ".join(f".{known}" for known in FORMATS)
            raise WorkloadError(f"can't write a drawing to {path.name!r}: its suffix should be one of {known}")
        reason = why_unwritable(path)
        if reason is not None:
            raise WorkloadError(f"can't write a drawing: {reason}")
        data = self._data(format)
        real = path.resolve()  # what a link leads to is replaced, not the link
        with tempfile.TemporaryDirectory(prefix=".gsl-", dir=real.parent) as folder:
            made = Path(folder) / real.name
            made.write_bytes(data)
            os.replace(made, real)
        return path

    def _data(self, format: str) -> bytes:
        if format in ("svg", "dot"):
            return (self.svg if format == "svg" else self.source).encode()
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
    return f"<pre>{escape(text)}</pre>"

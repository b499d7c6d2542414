"""The pictures that Graphviz makes of its text. The package pygraphviz brings Graphviz along."""

from __future__ import annotations

import io
import os
import re
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr
from typing import IO, Any

from gsl.errors import MissingPackageError

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

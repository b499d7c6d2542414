"""The common part of tests of drawings: the text in a drawing, and a small view to be drawn."""

from __future__ import annotations

from xml.etree import ElementTree

from gsl.graph import Graph
from tests.helpers.graphs import Builder, graph

SVG = "{http://www.w3.org/2000/svg}"


def texts(svg: str) -> list[str]:
    """The lines of text in a drawing, which has to be well-formed XML."""
    return ["".join(element.itertext()) for element in ElementTree.fromstring(svg).iter(f"{SVG}text")]


def view() -> Graph:
    def make(b: Builder) -> list[object]:
        x = b.input("x", 1, 4, 8, 8)
        conv = b.call("nn.conv2d", x, b.param("w", 4, 4, 1, 1))
        relu = b.call("nn.relu", conv)
        return [b.call("add", relu, 2.0), b.call("sigmoid", conv), b.call("exp", x)]

    return graph(make)  # type: ignore[arg-type]

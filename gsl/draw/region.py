"""A part of a view with its neighbours, as which a match is shown."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from itertools import islice

from gsl.draw import labels
from gsl.draw.drawing import Box, Diagram, Edge, Paint
from gsl.draw.labels import BESIDE
from gsl.graph import Node
from gsl.graph.text import Hide, is_scalar

NEIGHBOURS = 24
"""The number of nodes beside the region that are drawn."""
_FAINT = "#c4c4c4"


def region(
    paint: Mapping[Node, Paint], covered: Iterable[Node], *, hide: Hide = labels.hide_defaults
) -> Diagram:
    """The diagram of the nodes that are painted, with the operands and users of those covered, in grey."""
    inside = dict.fromkeys(covered)
    own = dict.fromkeys((*paint, *inside))
    beside = dict.fromkeys(n for node in inside for n in (*node.operands, *node.users) if n not in own)
    near = dict.fromkeys(islice((node for node in beside if not is_scalar(node)), NEIGHBOURS))
    nodes = sorted((node for node in (*own, *near) if not is_scalar(node)), key=lambda node: node.index)
    boxes = tuple([_box(node, paint.get(node), hide) for node in nodes])
    shown = set(nodes)
    edges = []
    for node in nodes:
        for operand in dict.fromkeys(node.operands):
            if operand in shown and (node in inside or operand in inside or (node in own and operand in own)):
                known = node in own and operand in own
                edges.append(Edge(operand, node) if known else Edge(operand, node, colour=_FAINT))
    return Diagram(boxes, tuple(edges))


def _box(node: Node, paint: Paint | None, hide: Hide) -> Box:
    text, hint = labels.lines(node, node.name, hide), labels.hint(node, node.name)
    if paint is None:
        return Box(node, text, replace(BESIDE, rounded=labels.style(node).rounded), hint)
    look = replace(labels.style(node), fill=paint.fill, stroke=paint.stroke, width=paint.width, text=paint.text)
    return Box(node, (*text, *paint.lines), look, hint, (paint.mark,) if paint.mark else ())

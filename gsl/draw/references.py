"""Edges that are too long to be followed by eye: a small box with the name of the upper end stands at the lower one."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from gsl.draw.drawing import Box, BoxKey, Diagram, Edge, Style

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

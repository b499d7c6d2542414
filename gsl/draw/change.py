"""A figure of the changes that rules made to a graph: before and after side by side, with a colour for each rule."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Protocol

from gsl.draw.drawing import Drawing
from gsl.draw.figure import Figure, Mark, Paint, Panel, Style
from gsl.draw.labels import rule_marks, tint, wrapped
from gsl.draw.scopes import inherited
from gsl.draw.view import FLAT, Depth, Options, diagram, levels
from gsl.graph import LEAVES, Graph, Node, is_call
from gsl.graph.text import node_names


class Fired(Protocol):
    """One application of a rule; nodes are told by their names."""

    @property
    def rule(self) -> str:
        """The rule's name."""

    @property
    def covered(self) -> Sequence[str]:
        """The names of the nodes that matched."""

    @property
    def made(self) -> Sequence[str]:
        """The names of the nodes that were made in their place."""


class Done(Protocol):
    """The record of an application of rules."""

    @property
    def firings(self) -> Sequence[Fired]:
        """The applications in order."""

    @property
    def folded(self) -> int:
        """The number of calls that were computed ahead of time."""

    @property
    def shared(self) -> int:
        """The number of calls that went because others are equal."""


def before_after(
    before: Graph, after: Graph, done: Done | None, *, options: Options, name: str = "change",
    notes: Sequence[str] = (),
) -> Drawing:  # fmt: skip
    """The drawing of a view before and after, with what rules matched and made in colours.

    ``after`` is the view as rules made it, with the names that were given then. Without what was ``done``, nothing is
    coloured. ``notes`` are written below.
    """
    firings = [] if done is None else done.firings
    counts: dict[str, int] = {}
    for firing in firings:
        counts[firing.rule] = counts.get(firing.rule, 0) + 1
    marks = rule_marks(counts)
    scope = None if options.scope is None else inherited(options.scope)
    options, then = _same_depth((before, options), (after, replace(options, scope=scope)))
    old, new = _matched(before, firings, marks), _made(after, firings, marks)
    panels = (
        Panel(f"before: {_calls(before)}", diagram(before, options, old)),
        Panel(f"after: {_calls(after)}", diagram(after, then, new)),
    )
    legend = tuple((_swatch(mark), mark, f"{rule}, {_times(counts[rule])}") for rule, mark in marks.items())
    below = list(notes) if done is None or firings else [*notes, "no rule fired"]
    if done is not None and done.folded:
        calls = "1 call that depends on weights only was" if done.folded == 1 else (
            f"{done.folded} calls that depend on weights only were"
        )
        below.append(f"{calls} computed ahead of time")
    if done is not None and done.shared:
        below.append(f"{done.shared} calls are shared with equal ones")
    return Drawing(Figure(name, panels, legend, tuple(line for note in below for line in wrapped(note, 110))))


def painted(
    regions: Mapping[str, Sequence[Sequence[Node]]],
) -> tuple[dict[Node, Paint], tuple[tuple[Style, Mark, str], ...]]:
    """The colours of what rules match, each node by the first rule of which a region holds it; and the legend."""
    marks = rule_marks(regions)
    paint: dict[Node, Paint] = {}
    for rule, found in regions.items():
        for number, nodes in enumerate(found):
            for node in nodes:
                paint.setdefault(node, _paint(marks[rule], number))
    counts = {rule: f"{len(found)} match{'es' * (len(found) != 1)}" for rule, found in regions.items()}
    return paint, tuple((_swatch(mark), mark, f"{rule}, {counts[rule]}") for rule, mark in marks.items())


def _same_depth(one: tuple[Graph, Options], other: tuple[Graph, Options]) -> tuple[Options, Options]:
    """The options of both views, with one depth, so that they can be compared."""
    if one[1].depth != "auto":
        return one[1], other[1]
    small = all(sum(map(is_call, graph)) <= FLAT for graph, _ in (one, other)) and not one[1].expand
    depth: Depth = "all" if small else min(levels(graph, options) for graph, options in (one, other))
    return replace(one[1], depth=depth), replace(other[1], depth=depth)


def _matched(before: Graph, firings: Sequence[Fired], marks: Mapping[str, Mark]) -> dict[Node, Paint]:
    """The nodes that rules matched, each by the first one. Later ones match nodes of the same names that were made."""
    nodes = {name: node for node, name in node_names(before).items() if node.op not in LEAVES}
    painted: dict[Node, Paint] = {}
    made: set[str] = set()
    for number, firing in enumerate(firings):
        for name in firing.covered:
            if name in nodes and name not in made:
                painted.setdefault(nodes[name], _paint(marks[firing.rule], number))
        made.update(firing.made)
    return painted


def _made(after: Graph, firings: Sequence[Fired], marks: Mapping[str, Mark]) -> dict[Node, Paint]:
    """The nodes that rules made, each by the last one that made a node of its name."""
    makers = {name: (firing.rule, number) for number, firing in enumerate(firings) for name in firing.made}
    painted: dict[Node, Paint] = {}
    for node in after.nodes:
        if node.op not in LEAVES and node.origin is not None and node.name in makers:
            rule, number = makers[node.name]
            painted[node] = _paint(marks[rule], number)
    return painted


def _paint(mark: Mark, event: int) -> Paint:
    return Paint(tint(mark.colour), mark.colour, 2.0, mark, event)


def _swatch(mark: Mark) -> Style:
    return Style(tint(mark.colour), mark.colour, width=2.0)


def _calls(graph: Graph) -> str:
    count = sum(map(is_call, graph))
    return f"{count} operator{'s' * (count != 1)}"


def _times(count: int) -> str:
    return "once" if count == 1 else f"{count} times"

"""A drawing of an attempt to match a rule: the pattern beside the part of the graph, and how far the attempt came."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from gsl.draw import FAILED, PALETTE, Drawing, Figure, Mark, Paint, Panel, Style, region, tint, wrapped
from gsl.draw.rule import drawn_names, source_panel
from gsl.graph import LEAVES, Node
from gsl.pat import Call, Pattern, Seq

if TYPE_CHECKING:
    from gsl.rewrite.subst import Subst

_FOUND = PALETTE[5]
_WIDTH = 70


@dataclass(frozen=True, slots=True, eq=False)
class Attempt:
    """The bindings at the end of an attempt, and the reason why it ended."""

    bound: Mapping[Any, Node]
    """The nodes by pattern; by pattern and number for a repeated pattern."""
    pattern: Pattern | None = None
    """The pattern that did not fit, where there is one."""
    node: Node | None = None
    """The node that did not fit."""
    failed: tuple[Node, ...] = ()
    """The nodes at which a whole match was refused."""
    reason: str = ""
    """The reason why it ended; empty for a match."""


def attempt_drawing(rule: Subst, attempt: Attempt, absent: Sequence[str], notes: Sequence[str]) -> Drawing:
    """The drawing of an attempt: numbers tell which pattern is bound to which node, ``!`` marks the pattern that did
    not fit.

    Patterns of the operators that are ``absent`` from the graph are marked too.
    """
    numbers: dict[Pattern, str] = {}
    for key in attempt.bound:
        pattern = key[0] if isinstance(key, tuple) else key
        if not isinstance(pattern, Seq) and pattern not in numbers:
            numbers[pattern] = str(len(numbers) + 1)
    patterns = {pattern: _fits(number) for pattern, number in numbers.items()}
    missing = [p for p in rule.plan.patterns if isinstance(p, Call) and p.label in absent]
    for pattern in (*missing, *([] if attempt.pattern is None else [attempt.pattern])):
        patterns[pattern] = _fails(numbers.get(pattern))
    panels = [source_panel(rule, drawn_names(rule), patterns)]
    if attempt.bound or attempt.node is not None:
        panels.append(_graph_panel(attempt, numbers))
    legend = [(_swatch(_fits("1")), Mark("1", _FOUND), "a pattern, and the node that fits it")]
    if any(paint.stroke == FAILED for paint in patterns.values()) or attempt.reason:
        legend.append((_swatch(_fails(None)), Mark("!", FAILED), "what does not fit"))
    lines = tuple(line for note in notes for line in wrapped(note, 2 * _WIDTH))
    return Drawing(Figure(f"why {rule.name} does or does not match", tuple(panels), tuple(legend), lines))


def _graph_panel(attempt: Attempt, numbers: Mapping[Pattern, str]) -> Panel:
    """The part of the graph that was looked at."""
    texts: dict[Node, list[str]] = {}
    for key, node in attempt.bound.items():
        pattern = key[0] if isinstance(key, tuple) else key
        if pattern in numbers:
            texts.setdefault(node, []).append(numbers[pattern])
    paint = {node: _fits(",".join(text[:3])) for node, text in texts.items()}
    for node in (*attempt.failed, *([] if attempt.node is None else [attempt.node])):
        paint[node] = _fails(",".join(texts.get(node, [])[:3]) or None)
    covered = [node for node in paint if node.op not in LEAVES]
    return Panel("graph", region(paint, covered), tuple(wrapped(attempt.reason, _WIDTH)))


def _fits(number: str) -> Paint:
    return Paint(tint(_FOUND, 0.15), _FOUND, 1.5, Mark(number, _FOUND))


def _fails(number: str | None) -> Paint:
    return Paint(tint(FAILED), FAILED, 3.0, Mark("!" if number is None else f"{number} !", FAILED))


def _swatch(paint: Paint) -> Style:
    return Style(paint.fill, paint.stroke, paint.width)

"""The results of a part of the benchmarks, as they are written on the page."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from benchmarks.measure import Row, Sample, duration


@dataclass(frozen=True)
class Goal:
    """A goal, and whether a run met it; ``None`` where that was not measured."""

    what: str
    goal: str
    measured: str
    met: bool | None


@dataclass
class Section:
    """One part: its goals, and its blocks of Markdown."""

    title: str
    goals: list[Goal] = field(default_factory=list)
    sharper: list[Goal] = field(default_factory=list)
    """The goals that were set when the first ones were met."""
    blocks: list[str] = field(default_factory=list)
    rows: list[Row] = field(default_factory=list)
    seconds: float = 0.0
    """The wall time of the whole part."""

    def add(self, *texts: str) -> None:
        """Append blocks; the lines of a text may be broken anywhere."""
        self.blocks += [" ".join(text.split()) for text in texts]

    def table(self, head: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
        """Append a table whose first column is text."""
        self.blocks.append(table(head, rows))

    def systems(self, rows: Sequence[Row], reference: str) -> None:
        """Append a table of systems by graphs: the time of each, and how many times that of the reference it is."""
        self.rows += rows
        names = list(dict.fromkeys(name for row in rows for name in row.cells))
        head = ["", *(f"{row.label}, {row.size:,} operators" for row in rows)]
        self.table(head, [[name, *(_cell(row, name, reference) for row in rows)] for name in names])


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table of Markdown."""
    lines = [f"| {' | '.join(head)} |", f"| --- |{' ---: |' * (len(head) - 1)}"]
    return "\n".join([*lines, *(f"| {' | '.join(row)} |" for row in rows)])


def _cell(row: Row, name: str, reference: str) -> str:
    cell = row.cells.get(name, "–")
    if not isinstance(cell, Sample):
        return cell
    ratio = row.ratio(name, reference)
    text = duration(cell.least)
    return text if name == reference or ratio is None else f"{text} ({times(ratio)})"


def times(ratio: float) -> str:
    """A ratio as it is read."""
    return f"{ratio:.2f} ×" if ratio < 10 else f"{ratio:,.0f} ×"


def goal_of_number(what: str, goal: str, value: float | None, bound: float, shown: str) -> Goal:
    """A goal that is met when a number is at most its bound; ``shown`` has a place for the number."""
    if value is None:
        return Goal(what, goal, "not measured", None)
    return Goal(what, goal, shown.format(value), value <= bound)


def goal_of_ratios(what: str, goal: str, found: Sequence[tuple[str, float | None, float]]) -> Goal:
    """A goal that is met when each ratio, of which its name tells what it is, is at most its bound."""
    shown = "; ".join(f"{times(ratio) if ratio is not None else 'not measured'} {name}" for name, ratio, _ in found)
    if any(ratio is None for _, ratio, _ in found):
        known = [ratio <= bound for _, ratio, bound in found if ratio is not None]
        return Goal(what, goal, shown, None if all(known) else False)
    return Goal(what, goal, shown, all(ratio <= bound for _, ratio, bound in found if ratio is not None))

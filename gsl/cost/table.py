"""The costs of a program, call by call, and as tables by operator and by module."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

from gsl.errors import WorkloadError, check_number, checked, nearest

MOST_ROWS = 12
"""The largest number of rows of a printed table."""
Grouping = Literal["operator", "module", "call"]


@dataclass(frozen=True, slots=True)
class Cost:
    """The cost of one call, or of several that were timed together."""

    name: str
    """The call in the native graph; several with a ``+`` between them."""
    op: str
    """The operator that does most of the work."""
    module: tuple[str, ...]
    """The modules of the model that the call is part of, from the outermost one."""
    value: float
    key: str = ""
    """A key of everything that the value depends on; equal calls have equal keys."""
    estimated: bool = False
    """True if the call could not be run alone, so that its work was counted instead."""


@dataclass(frozen=True, slots=True)
class Row:
    """A line of a table: the calls of this name, together."""

    name: str
    calls: int
    value: float
    share: float


@checked(WorkloadError)
class Costs:
    """The costs of a program: of each call in order, and their sum. Prints as a table by operator."""

    def __init__(self, name: str, model: str, calls: Iterable[Cost], *, unit: str, threads: int | None = None) -> None:
        self.name = name
        self.model = model
        self.unit = unit
        """``"s"`` for seconds; empty for the values of a user's function."""
        self.threads = threads
        self.calls = tuple(calls)

    @cached_property
    def total(self) -> float:
        """The sum."""
        return sum(call.value for call in self.calls)

    def __iter__(self) -> Iterator[Cost]:
        return iter(self.calls)

    def __len__(self) -> int:
        return len(self.calls)

    def by(self, grouping: Grouping = "operator", *, depth: int | None = None, order: str = "value") -> list[Row]:
        """The costs of all calls of one operator together, of one module, or of each call alone.

        ``depth`` is how many names of modules tell them apart, all of them without it. The rows are sorted by
        ``"value"``, ``"calls"`` (the largest first) or ``"name"``.
        """
        names: dict[str, Callable[[Cost], str]] = {
            "operator": lambda cost: cost.op,
            "module": lambda cost: ".".join(cost.module[:depth]) or "(none)",
            "call": lambda cost: cost.name,
        }
        if depth is not None:
            check_number("depth", depth, "the number of names of modules", 0, error=WorkloadError)
        if grouping not in names:
            raise WorkloadError(f"costs are given by operator, module or call, not by {grouping!r}: "
                                f"{nearest(str(grouping), names)}")  # fmt: skip
        orders: dict[str, Callable[[Row], Any]] = {
            "value": lambda row: -row.value, "calls": lambda row: -row.calls, "name": lambda row: row.name,
        }  # fmt: skip
        if order not in orders:
            raise WorkloadError(f"rows are sorted by value, calls or name, not by {order!r}: {nearest(order, orders)}")
        groups: dict[str, list[float]] = {}
        for cost in self.calls:
            groups.setdefault(names[grouping](cost), []).append(cost.value)
        rows = [Row(name, len(values), sum(values), _share(sum(values), self.total)) for name, values in groups.items()]
        return sorted(rows, key=orders[order])

    def table(self, grouping: Grouping = "operator", *, depth: int | None = None, limit: int | None = MOST_ROWS) -> str:
        """The rows as text, the most costly ones first."""
        rows = self.by(grouping, depth=depth)
        if limit is not None:
            check_number("limit", limit, "the number of rows", 0, error=WorkloadError)
        shown = rows if limit is None else rows[:limit]
        lines = [(row.name, str(row.calls), amount(row.value, self.unit), f"{row.share:.1%}") for row in shown]
        left = rows[len(shown) :]
        if left:
            rest = sum(row.value for row in left)
            lines.append((f"… {len(left)} more", str(sum(row.calls for row in left)), amount(rest, self.unit),
                          f"{_share(rest, self.total):.1%}"))  # fmt: skip
        lines.append(("all", str(len(self.calls)), amount(self.total, self.unit), "100.0%"))
        return columns([(grouping, "calls", "cost", "share"), *lines])

    def __str__(self) -> str:
        where = "" if self.threads is None else f", {self.threads} thread{'s' * (self.threads > 1)}"
        guessed = sum(call.estimated for call in self.calls)
        note = f"\n{guessed} of the calls could not be run alone: their work was counted" if guessed else ""
        return f"{self.name}: {self.model} cost{where}\n{self.table()}{note}"

    def __repr__(self) -> str:
        return f"<Costs of {self.name}: {amount(self.total, self.unit)} in {len(self.calls)} calls>"

    def as_json(self) -> dict[str, Any]:
        """The whole table as values of JSON."""
        return {
            "name": self.name, "model": self.model, "unit": self.unit, "threads": self.threads, "total": self.total,
            "calls": [
                {"name": call.name, "operator": call.op, "module": ".".join(call.module), "cost": call.value,
                 "estimated": call.estimated}
                for call in self.calls
            ],
        }  # fmt: skip


def amount(value: float, unit: str) -> str:
    """A cost as text: seconds in the unit in which they can be read."""
    if unit != "s":
        return f"{value:.6g}"
    size = abs(value)
    for factor, name in ((1.0, "s"), (1e-3, "ms"), (1e-6, "µs")):
        if size >= factor:
            return f"{value / factor:.3g} {name}" if size < 999.5 * factor else f"{value / factor:.0f} {name}"
    return f"{value / 1e-6:.2g} µs" if value else "0 µs"


def columns(rows: Sequence[Sequence[str]], left: Collection[int] = (0,)) -> str:
    """Rows of words as text, of which some columns are flush left and the others flush right."""
    widths = [max(map(len, column)) for column in zip(*rows)]
    flush = [str.ljust if place in left else str.rjust for place in range(len(widths))]
    return "\n".join(
        "  ".join([set_in(word, width) for set_in, word, width in zip(flush, row, widths)]).rstrip() for row in rows
    )


def _share(value: float, total: float) -> float:
    return value / total if total else 0.0

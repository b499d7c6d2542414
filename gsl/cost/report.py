"""The report of an optimisation, as text and as a page: the gain of each rule, and the time that the program takes
now."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from html import escape
from typing import Any, NamedTuple

from gsl.cost.space import KEPT, Trial
from gsl.cost.table import Costs, amount, columns
from gsl.cost.whole import Timing
from gsl.draw import clipped, pre
from gsl.workload import Workload

WIDTH = 52
"""The largest number of characters of a shape in a printed report."""


@dataclass(frozen=True, slots=True, eq=False)
class OptimizeReport:
    """The result of an optimisation: the decisions on the program and on each rule, with their reasons."""

    name: str
    taken: bool
    """True if the new program is the result; otherwise the result is the one that was given."""
    decision: str
    """The reason for the decision."""
    search: str
    trials: tuple[Trial, ...]
    """The gain of each kind of match, and whether it is kept in the result, and why. Where the old program stays, no
    kind is kept."""
    costs_before: Costs
    """The cost of the old program's calls, by the cost model."""
    costs_after: Costs
    """The cost of the new program's calls, even if that program was not taken."""
    before: Timing | None
    """The time of the whole program; ``None`` where nothing was timed, as no rule is worth anything, or the cost is a
    function."""
    after: Timing | None
    """The time of the whole new program, even if it was not taken."""
    error: float | None
    """The largest difference of an output, relative to its largest magnitude; ``None`` where nothing was run."""
    tolerance: float | None
    threads: int
    seconds: float
    """The seconds that the optimisation took, with the final timing."""
    from_cache: bool
    """True if the decisions were known from an earlier run."""

    @property
    def speedup(self) -> float:
        """The factor by which the result is faster than the given program."""
        return self.before.median / self.after.median if self.taken and self.before and self.after else 1.0

    @property
    def kept(self) -> tuple[Trial, ...]:
        """The kinds of matches that are rewritten in the result: none where the old program stays."""
        return tuple(trial for trial in self.trials if trial.verdict == KEPT)

    def rows(self) -> list[tuple[str, str, str, str, str, str]]:
        """A line for each kind of match: rule, shape, times, gain, verdict, reason."""
        unit = self.costs_before.unit
        return [
            (trial.rule, trial.shape, str(trial.times), _signed(trial.gain, unit), trial.verdict,
             trial.why if trial.error is None else f"{trial.why} (error {trial.error:.1e})")
            for trial in self.trials
        ]

    def measured(self) -> Iterator[tuple[str, str]]:
        """The times of the whole programs and the error, as far as they are known, each with its name."""
        if self.before is not None and self.after is not None:
            yield "before", _timed(self.before)
            yield "after", _timed(self.after)
        if self.error is not None:
            yield "error", f"{self.error:.1e} of the largest output"

    def __str__(self) -> str:
        lines = [f"{self.name}: {self.decision}", *(f"  {name:6}  {text}" for name, text in self.measured())]
        rows = [(rule, clipped(shape, WIDTH), *rest) for rule, shape, *rest in self.rows()]
        if rows:
            lines += ["", columns([("rule", "shape", "times", "gain", "", ""), *rows], left=(0, 1, 4, 5))]
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        return pre(str(self))

    def as_json(self) -> dict[str, Any]:
        """The whole report as values of JSON."""
        return {
            "name": self.name, "taken": self.taken, "decision": self.decision, "search": self.search,
            "speedup": self.speedup, "error": self.error, "tolerance": self.tolerance, "threads": self.threads,
            "seconds": self.seconds, "from_cache": self.from_cache,
            "before": _json_of(self.before), "after": _json_of(self.after),
            "cost": {
                side: {"total": costs.total, "unit": costs.unit, "model": costs.model}
                for side, costs in (("before", self.costs_before), ("after", self.costs_after))
            },
            "rules": [asdict(trial) for trial in self.trials],
        }  # fmt: skip


class Optimized(NamedTuple):
    """A program and how it came about; unpacks as the two."""

    workload: Workload
    report: OptimizeReport


def _timed(timing: Timing) -> str:
    """A time with its spread, as text."""
    return f"{amount(timing.median, 's')} ± {amount(timing.spread, 's')} ({len(timing.samples)} rounds)"


def _json_of(timing: Timing | None) -> dict[str, Any] | None:
    if timing is None:
        return None
    return {"median": timing.median, "spread": timing.spread, "rounds": len(timing.samples)}


def _signed(gain: float | None, unit: str) -> str:
    if gain is None:
        return ""
    return ("+" if gain > 0 else "-" if gain < 0 else "") + amount(abs(gain), unit)


# ---------------------------------------------------------------- the report as a page


MOST_BARS = 14
"""The largest number of operators that have a bar."""
_STYLE = """\
body { font: 15px/1.5 system-ui, sans-serif; color: #1b1b1b; max-width: 76em; margin: 2em auto; padding: 0 1em }
table { border-collapse: collapse; margin: 1em 0 } th { text-align: left; color: #556677 }
td, th { padding: .15em 1em .15em 0; vertical-align: top } td.number { text-align: right; white-space: nowrap }
.kept { color: #0b6e3b } .dropped { color: #a33 } .shape { font-family: ui-monospace, monospace; font-size: 13px }
.bar { display: inline-block; height: .8em; border-radius: 2px } .before { background: #b9c6d3 }
.after { background: #2f7ebc } .drawing { overflow: auto; border: 1px solid #d5dde5; padding: 1em }
.drawing svg { max-width: none }"""


def page(report: OptimizeReport, old: Workload, new: Workload) -> str:
    """The page of a report on two workloads. It needs no other file."""
    title = escape(f"{report.name}: {report.decision}")
    parts = [
        f"<h1>{title}</h1>",
        _summary(report),
        "<h2>Rules</h2>",
        _rules(report),
        f"<h2>Cost by operator</h2>\n<p>By the {escape(report.costs_before.model)} model, call by call, "
        'before (<span class="bar before" style="width: 1em"></span>) and after '
        '(<span class="bar after" style="width: 1em"></span>).</p>',
        _bars(report.costs_before, report.costs_after),
        *_drawing(report, old, new),
    ]
    body = "\n".join(parts)
    return (
        f'<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n<title>{title}</title>\n'
        f"<style>\n{_STYLE}\n</style>\n</head>\n<body>\n{body}\n</body>\n</html>\n"
    )


def _summary(report: OptimizeReport) -> str:
    names = {"before": "time before", "after": "time after"}
    rows = [(names.get(name, name), text) for name, text in report.measured()]
    if report.tolerance is not None:
        rows.append(("tolerance", f"{report.tolerance:g}"))
    rows += [("threads", str(report.threads)), ("search", f"{report.search}, {report.seconds:.1f} s")]
    return _table((), [[escape(cell) for cell in row] for row in rows])


def _rules(report: OptimizeReport) -> str:
    rows = [
        [escape(rule), f'<span class="shape">{escape(shape)}</span>', escape(times), escape(gain),
         f'<span class="{verdict}">{verdict}</span>', escape(why)]
        for rule, shape, times, gain, verdict, why in report.rows()
    ]  # fmt: skip
    return _table(("rule", "shape", "times", "gain", "", "why"), rows, numbers=(2, 3)) if rows else "<p>None fired.</p>"


def _bars(before: Costs, after: Costs) -> str:
    """A row for each operator, with its cost in both programs as bars of one scale."""
    old, new = ({row.name: row.value for row in costs.by("operator")} for costs in (before, after))
    names = sorted({**old, **new}, key=lambda name: -max(old.get(name, 0.0), new.get(name, 0.0)))[:MOST_BARS]
    scale = max([*old.values(), *new.values(), 1e-30])

    def bar(kind: str, value: float) -> str:
        return f'<span class="bar {kind}" style="width: {30 * value / scale:.3f}em"></span>'

    rows = [
        [escape(name), amount(old.get(name, 0.0), before.unit), amount(new.get(name, 0.0), after.unit),
         f"{bar('before', old.get(name, 0.0))}<br>{bar('after', new.get(name, 0.0))}"]
        for name in names
    ]  # fmt: skip
    rows.append(["all", amount(before.total, before.unit), amount(after.total, after.unit), ""])
    return _table(("operator", "before", "after", ""), rows, numbers=(1, 2))


def _drawing(report: OptimizeReport, old: Workload, new: Workload) -> list[str]:
    """The graph before and after, if it was changed and can be drawn."""
    if not report.taken:
        return []
    svg = old.before_after(new)._repr_svg_()
    if svg is None:
        return ["<p>The graphs are not drawn, which needs pygraphviz: pip install 'gsl[viz]'.</p>"]
    return ["<h2>Before and after</h2>", f'<div class="drawing">{svg}</div>']


def _table(header: Sequence[str], rows: Iterable[Sequence[str]], numbers: Sequence[int] = ()) -> str:
    """A table of cells that are HTML already."""
    lines = ["<table>"]
    if header:
        lines.append("<tr>" + "".join(f"<th>{cell}</th>" for cell in header) + "</tr>")
    for row in rows:
        cells = [f'<td{" class=number" if place in numbers else ""}>{cell}</td>' for place, cell in enumerate(row)]
        lines.append("<tr>" + "".join(cells) + "</tr>")
    return "\n".join([*lines, "</table>"])

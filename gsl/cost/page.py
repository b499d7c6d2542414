"""A report as a page: the decisions on the program and its rules, bars of time by operator, and before and after."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape

from gsl.cost.report import OptimizeReport, timed
from gsl.cost.table import Costs, amount
from gsl.workload import Workload

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
    rows = []
    if report.before is not None and report.after is not None:
        rows += [("time before", timed(report.before)), ("time after", timed(report.after))]
    if report.error is not None:
        rows.append(("error", f"{report.error:.1e} of the largest output"))
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

"""The growth curves, as an SVG file."""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence
from pathlib import Path

from benchmarks.measure import Row


def draw(rows: Sequence[Row], path: Path, title: str) -> bool:
    """Draw seconds by operators, a line for each name; false if matplotlib is not installed."""
    if importlib.util.find_spec("matplotlib") is None:
        return False
    import matplotlib
    from matplotlib.figure import Figure

    # Text stays text, and equal curves give equal files.
    with matplotlib.rc_context({"svg.fonttype": "none", "svg.hashsalt": "gsl", "font.size": 9}):
        figure = Figure(figsize=(6.4, 4.0), layout="constrained")
        axes = figure.add_subplot()
        names = list(dict.fromkeys(name for row in rows for name in row.cells))
        for name, marker in zip(names, "osD^vPX*<>hdp8" * (len(names) // 14 + 1)):
            points = [(row.size, s) for row in rows if (s := row.seconds(name)) is not None]
            if points:
                axes.plot(*zip(*points), marker=marker, markersize=4, linewidth=1.2, label=name.replace("`", ""))
        axes.set(xscale="log", yscale="log", xlabel="operators", ylabel="seconds", title=title)
        axes.grid(True, which="major", linewidth=0.4, alpha=0.5)
        axes.legend(fontsize=7, frameon=False)
        figure.savefig(path, format="svg", metadata={"Date": None, "Creator": None})
    return True

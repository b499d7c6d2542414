"""The main job: the rule book applied to real models, checked and timed.

Prints one table: for every model the rules that fired and how often, the number of operators before and after, the
largest difference of the outputs, and the run time before and after.
"""

from __future__ import annotations

import logging
import statistics
import sys
import time
import warnings
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import torch
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from demo.models import MODELS, Model
from gsl import RuleSet, Workload
from rules import OPTIMISING

RUNS = 7
"""How often each model is run before and after, in turn; the median is reported."""


def milliseconds(old: Workload, new: Workload, inputs: tuple[Any, ...]) -> tuple[float, float]:
    """The median run times of two workloads, measured in turn so that both see the same machine."""
    times: tuple[list[float], list[float]] = ([], [])
    for run in range(RUNS + 1):
        for workload, record in zip((old, new), times):
            start = time.perf_counter()
            workload(*inputs)
            if run:  # the first one warms up
                record.append((time.perf_counter() - start) * 1e3)
    return statistics.median(times[0]), statistics.median(times[1])


def work(model: Model, progress: Progress, task: Any, table: Table) -> bool:
    """Rewrite one model and add its rows to the table; whether the outputs agree."""

    def step(text: str) -> None:
        progress.update(task, description=f"{model.name}: {text}", advance=1)

    step("export")
    inputs = model.inputs()
    old = Workload.from_torch(model.make(), inputs, name=model.name)
    step("rewrite")
    start = time.perf_counter()
    new = RuleSet(OPTIMISING)(old, iterative=True)
    seconds = time.perf_counter() - start
    step("compare")
    report = old.compare(new)
    step("time")
    before, after = milliseconds(old, new, inputs)
    error = max((entry.max_abs for entry in report.outputs), default=0.0)
    counts = f"{sum(old.op_counts().values())} → {sum(new.op_counts().values())}"
    fired = [(rule.name, new.trace.count(rule.name)) for rule in OPTIMISING]
    fired = [(name, count) for name, count in fired if count] or [("no rule", 0)]
    for number, (name, count) in enumerate(fired):
        last = number == len(fired) - 1
        summary = (
            model.name, counts, f"{error:.1e} {'ok' if report.passed else 'FAILED'}", f"{before:.0f}", f"{after:.0f}",
            f"{seconds:.1f}",
        ) if number == 0 else ("",) * 6  # fmt: skip
        table.add_row(summary[0], name, str(count), *summary[1:], end_section=last)
    return report.passed


def main() -> int:
    """Run the demo; the exit code tells whether all outputs agreed."""
    warnings.simplefilter("ignore")
    logging.disable(logging.WARNING)
    torch.manual_seed(0)
    console = Console()
    columns = ("model", "rule", "fired", "operators", "largest error", "ms before", "ms after", "rewrite s")
    table = Table(title="GSL rule book on real models")
    for name in columns:
        table.add_column(name, justify="left" if name in ("model", "rule") else "right", no_wrap=True)
    passed = True
    with Progress(TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn(), console=console) as progress:
        task = progress.add_task("", total=4 * len(MODELS))
        for model in MODELS:
            passed &= work(model, progress, task, table)
        progress.update(task, description="done")
    console.print(table)
    return 0 if passed else 1


if __name__ == "__main__":
    sys.exit(main())

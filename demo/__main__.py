"""The main job: the rule book applied to real models, checked and timed.

Prints one table: for every model the rules that fired and how often, the number of operators before and after, the
largest difference of the outputs, and the run time before and after; and the same of what ``gsl.optimize`` chose, with
rules that are for this machine.
"""

from __future__ import annotations

import logging
import statistics
import sys
import time
import warnings
from typing import Any

import torch
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

import gsl
from demo.models import MODELS, Model
from gsl import RuleSet, Workload
from gsl.rules import OPTIMISING

RUNS = 15
"""How often each model is run before and after, in turn; the median is reported."""
BUDGET = 5.0
"""The seconds that ``gsl.optimize`` has for a model."""
WIDTH = 80
STEPS = ("export", "rewrite", "optimise", "compare", "time")
Workloads = tuple[Workload, ...]


def milliseconds(workloads: Workloads, inputs: tuple[Any, ...]) -> list[float]:
    """The median run times of workloads, measured in turn so that all see the same machine."""
    times: list[list[float]] = [[] for _ in workloads]
    for run in range(RUNS + 1):
        for workload, record in zip(workloads, times):
            start = time.perf_counter()
            workload(*inputs)
            if run:  # the first one warms up
                record.append((time.perf_counter() - start) * 1e3)
    return [statistics.median(record) for record in times]


def calls(workload: Workload) -> int:
    """The number of operators in the exported graph, in which a convolution and its bias are one."""
    return sum(node.op == "call_function" for node in workload.exported.graph.nodes)


def work(model: Model, progress: Progress, task: Any, table: Table) -> bool:
    """Rewrite one model and add its rows to the table; whether the outputs agree."""
    steps = iter(STEPS)

    def step(done: int = 1) -> None:
        progress.update(task, description=f"{model.name}: {next(steps, 'done')}", advance=done)

    step(0)
    inputs = model.inputs()
    old = Workload.from_torch(model.make(), inputs, name=model.name)
    step()
    new = RuleSet(OPTIMISING)(old, iterative=True)
    step()
    fast, _ = gsl.optimize(old, budget=BUDGET)
    step()
    reports = [old.compare(new), old.compare(fast)]
    step()
    before, *after = milliseconds((old, new, fast), inputs)
    step()
    table.add_row(f"[bold]{model.name}", "", str(calls(old)), "", f"{before:.0f}")
    for name, workload, report, ms in zip(("by the book", "by gsl.optimize"), (new, fast), reports, after):
        error = max((entry.max_abs for entry in report.outputs), default=0.0)
        told = f"{error:.1e}" if report.passed else f"[red]{error:.1e} FAILED"
        fired = {} if workload is old else workload.trace.summary()  # where nothing pays, the old one comes back
        table.add_row(f"{name}", str(sum(fired.values())), str(calls(workload)), told, f"{ms:.0f}")
        for rule, count in fired.items():
            table.add_row("  " + rule, str(count))
    table.add_section()
    return all(report.passed for report in reports)


def main() -> int:
    """Run the demo; the exit code tells whether all outputs agreed."""
    warnings.simplefilter("ignore")
    logging.disable(logging.WARNING)
    torch.manual_seed(0)
    console = Console(width=WIDTH)
    table = Table(title="The rule book on real models", width=WIDTH)
    for name in ("model, and rules", "fired", "operators", "largest\nerror", "ms"):
        table.add_column(name, justify="left" if name.startswith("model") else "right", no_wrap=True)
    passed = True
    columns = (TextColumn("{task.description:<32}"), BarColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console) as progress:
        task = progress.add_task("", total=len(STEPS) * len(MODELS))
        for model in MODELS:
            passed &= work(model, progress, task, table)
        progress.update(task, description="done")
    console.print(table)
    return 0 if passed else 1


if __name__ == "__main__":
    sys.exit(main())

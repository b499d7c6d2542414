"""What rules gain on a GPU: `python -m benchmarks.gpu [batch ...]` prints a table of models.

Each form is timed twice: as it is called from Python, and as a CUDA graph, which leaves the time of the kernels alone.
Several of these commands at once, each with some `--models`, take turns on the GPU.
"""

from __future__ import annotations

import argparse
import fcntl
import statistics
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import torch

import gsl
import gsl.rules as book
from benchmarks.measure import in_turns
from benchmarks.parts.optimised import TESTED, applied
from benchmarks.section import table
from demo.models import Model
from gsl import RuleSet, Workload
from gsl.cost.machine import captured

ROUNDS = 15
REPLAYS = 10
BUDGET = 10.0
"""The seconds that `gsl.optimize` has for a model."""
STAGES = (book.NORMAL, book.IDIOMS, book.HALVES, RuleSet(book.OPTIMISING), book.GPU)
EXPORT = "exported"
ALL = "and `GPU`"
COSTS = ("measured", "kernels")
OPTIMISED = "`gsl.optimize`, {}"
BUILT = (ALL, *map(OPTIMISED.format, COSTS))
"""The forms with kernels of GSL, which run as ``wl.build()`` makes them."""
GPU = torch.device("cuda")
Call = Callable[[], torch.Tensor]


@contextmanager
def alone() -> Iterator[None]:
    """While it lasts, no other one of these commands uses the GPU."""
    with Path(tempfile.gettempdir(), "gsl-benchmarks-gpu.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def workload(model: Model, batch: int, dtype: torch.dtype) -> Workload:
    """A model in a dtype, with so many inputs at once."""
    torch.manual_seed(0)
    inputs = [value.expand(batch, *value.shape[1:]).contiguous().to(GPU) for value in model.inputs()]
    given = [value.to(dtype) if value.is_floating_point() else value for value in inputs]
    return Workload.from_torch(model.make().to(GPU, dtype), tuple(given), name=model.name)


def forms(wl: Workload) -> dict[str, Call]:
    """The forms of a program, each of which has run three times."""
    inputs = wl.example_inputs
    assert inputs is not None
    made = {
        EXPORT: wl,
        "`BOOK`": applied(wl, (book.BOOK,)),
        "`NORMAL`, `IDIOMS`": applied(wl, STAGES[:2]),
        "and `HALVES`, `OPTIMISING`": applied(wl, STAGES[:4]),
        ALL: applied(wl, STAGES),
    }
    for cost in COSTS:
        with alone():
            optimised = gsl.optimize(wl, budget=BUDGET, cost=cost)
        print(optimised.report, flush=True)
        made[OPTIMISED.format(cost)] = optimised.workload
    programs: dict[str, Any] = {
        name: each.program.build() if name in BUILT else each.exported.module() for name, each in made.items()
    }
    programs["`torch.compile`"] = torch.compile(wl.exported.module())
    programs["rules, then `torch.compile`"] = torch.compile(made["and `HALVES`, `OPTIMISING`"].exported.module())
    calls = {name: partial(_first, program, inputs) for name, program in programs.items()}
    for call in calls.values():
        for _ in range(3):
            call()
    return calls


def _first(program: Any, inputs: tuple[Any, ...]) -> torch.Tensor:
    found = program(*inputs)
    result: torch.Tensor = found if isinstance(found, torch.Tensor) else found[0]
    return result


def _done(call: Callable[[], object]) -> None:
    call()
    torch.cuda.synchronize()


def measured(wl: Workload) -> dict[str, str]:
    """The row of a program: milliseconds of the export, and how many times faster each other form is."""
    calls = forms(wl)
    expected = calls[EXPORT]().float()
    cells = {}
    with alone():
        graphs = {name: captured(call, REPLAYS) for name, call in calls.items()}
        called = _medians({name: partial(_done, call) for name, call in calls.items()})
        replayed = _medians({name: partial(_done, graph) for name, graph in graphs.items()})
    for name, call in calls.items():
        error = float((call().float() - expected).abs().max() / expected.abs().max())
        times = called[name], replayed[name] / REPLAYS
        base = called[EXPORT], replayed[EXPORT] / REPLAYS
        cells[name] = (
            " / ".join(f"{time:.2f} ms" for time in times) if name == EXPORT
            else " / ".join(f"{old / new:.2f} ×" for old, new in zip(base, times)) + f" ({error:.0e})"
        )  # fmt: skip
    return cells


def _medians(calls: dict[str, Callable[[], object]]) -> dict[str, float]:
    return {name: statistics.median(times) for name, times in in_turns(calls, ROUNDS).items()}


def main() -> None:
    """Measure, and print the table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.gpu", description=__doc__)
    parser.add_argument("batches", nargs="*", type=int, default=[1, 16], help="numbers of inputs at once")
    parser.add_argument("--models", default="", help="a part of the names of the models that are measured")
    parser.add_argument("--dtype", default="bfloat16", choices=["float16", "bfloat16", "float32"])
    arguments = parser.parse_args()
    rows = []
    with torch.no_grad():
        for model in TESTED:
            for batch in arguments.batches if arguments.models in model.name else ():
                torch._dynamo.reset()
                cells = measured(workload(model, batch, getattr(torch, arguments.dtype)))
                rows.append([f"{model.name}, batch {batch}", *cells.values()])
                print(rows[-1], flush=True)
    if rows:
        print(table([f"{torch.cuda.get_device_name()}, {arguments.dtype}", *cells], rows))


if __name__ == "__main__":
    main()

"""Costs besides time: memory of a view, and the import."""

from __future__ import annotations

import gc
import subprocess
import sys
import tracemalloc

from torch import fx

from benchmarks.measure import Different, Meter, duration
from benchmarks.parts import chain
from benchmarks.peers import native
from benchmarks.section import Goal, Section
from gsl import Workload

BLOCKS = 3_000
RUNS = 9
IMPORT = """
import sys, time
start = time.perf_counter()
import gsl
taken = time.perf_counter() - start
print(taken, [name for name in ("torch", "tvm") if name in sys.modules])
"""


def bytes_of(module: fx.GraphModule) -> tuple[int, int]:
    """The memory that stays allocated for a workload with its view, and for a copy of the view."""
    assert len(Workload.from_fx(module).graph)  # what is kept for all graphs is not counted
    gc.collect()
    tracemalloc.start()
    workload = Workload.from_fx(module)
    view = workload.graph
    gc.collect()
    loaded = tracemalloc.get_traced_memory()[0]
    copy = view.copy()
    gc.collect()
    both = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    assert len(copy) == len(view)
    return loaded, both - loaded


def import_seconds() -> float:
    """The best of several imports in fresh processes. Raises Different if a framework comes with it."""
    best = float("inf")
    for _ in range(RUNS):
        output = subprocess.run([sys.executable, "-c", IMPORT], capture_output=True, text=True, check=True).stdout
        taken, loaded = output.split(maxsplit=1)
        if loaded.strip() != "[]":
            raise Different(f"import gsl loads {loaded.strip()}")
        best = min(best, float(taken))
    return best


def run(meter: Meter, largest: int) -> Section:
    """Both."""
    blocks = min(BLOCKS, max(largest // 3, 1))
    module = native.module_of(native.graph_of(chain.terms(blocks), chain.tensors()))
    loaded, copied = (total / (3 * blocks) / 1000 for total in bytes_of(module))
    seconds = import_seconds()
    section = Section("Memory and import")
    section.table(
        ["what", "measured"],
        [
            ["workload with its view, KB per operator", f"{loaded:.2f}"],
            ["copy of a view, KB per operator", f"{copied:.2f}"],
            ["`import gsl`", duration(seconds)],
        ],
    )
    section.add(
        f"""Of the chain of {3 * blocks:,} operators, with `tracemalloc`: what stays allocated after loading a view of
        it (with what the workload keeps), and after copying the view. The import is the best of {RUNS}, each in a
        process of its own, in which neither torch nor tvm was loaded afterwards."""
    )
    section.goals += [
        Goal("memory of the view", "at most 1.5 KB per operator", f"{loaded:.2f} KB", loaded <= 1.5),
        Goal("`import gsl`", "under 0.2 s, without torch or tvm", duration(seconds), seconds < 0.2),
    ]
    return section

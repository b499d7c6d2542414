"""Times every system on every case in turn, checks that all made the same rewrite, and writes RESULTS.md."""

from __future__ import annotations

import argparse
import gc
import logging
import platform
import statistics
import time
import warnings
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import fx
from torch.utils import _pytree as pytree

from benchmarks.cases import Case, Inputs, cases
from benchmarks.systems import SYSTEMS, System

ROUNDS = 3
"""How often each system runs at a size; the median counts."""
LIMIT = 30.0
"""Seconds. A system that is expected to take longer, by its two last sizes, is left out of the next."""
RESULTS = Path(__file__).with_name("RESULTS.md")


class Different(Exception):
    """Two systems did not make the same rewrite."""


@dataclass(frozen=True)
class Row:
    """The times of the systems on one graph; ``None`` where one was left out."""

    case: str
    before: int
    after: int
    """How many calls the graph has, before and after."""
    seconds: Mapping[str, float | None]


def calls(module: fx.GraphModule) -> Counter[str]:
    """How often each function is called."""
    return Counter(str(node.target) for node in module.graph.nodes if node.op == "call_function")


def check(name: str, found: fx.GraphModule, expected: Counter[str], inputs: Inputs, values: Any) -> None:
    """Raise Different unless a result has the expected calls and computes the values of the original."""
    if calls(found) != expected:
        raise Different(f"{name}: the calls are {dict(calls(found))}, expected {dict(expected)}")
    for new, old in zip(pytree.tree_leaves(found(*inputs)), pytree.tree_leaves(values), strict=True):
        if not torch.allclose(new, old, rtol=1e-5, atol=1e-6):
            raise Different(f"{name}: the results differ by {(new - old).abs().max():.1e}")


def measure(case: Case, size: int, systems: Mapping[str, System]) -> Row:
    """The times of the systems at one size, each checked; the systems take turns."""
    module, inputs = case.build(size)
    with torch.no_grad():
        values = module(*inputs)
        reference = SYSTEMS["FX by hand"](case, module)
        expected = calls(reference.module(reference.work()))
        if expected == calls(module):
            raise Different(f"{case.name}: there is nothing to rewrite")
        times: dict[str, list[float]] = {name: [] for name in systems}
        for turn in range(ROUNDS):
            for name, system in systems.items():
                job = system(case, module)
                gc.collect()
                start = time.perf_counter()
                result = job.work()
                times[name].append(time.perf_counter() - start)
                if turn == 0:
                    check(name, job.module(result), expected, inputs, values)
    seconds = {name: statistics.median(times[name]) if name in times else None for name in SYSTEMS}
    return Row(case.name, sum(calls(module).values()), sum(expected.values()), seconds)


def expected_seconds(rows: Sequence[Row], name: str, size: int) -> float:
    """How long a system may take at the next size, by how it grew so far; linear after one size."""
    known = [(row.before, seconds) for row in rows if (seconds := row.seconds[name]) is not None]
    if not known:
        return 0.0
    growth = 1.0
    if len(known) > 1 and known[-1][1] > known[-2][1]:
        (n, s), (m, t) = known[-2:]
        growth = t / s / (m / n)
    return known[-1][1] * size / known[-1][0] * max(growth, 1.0)


def run(case: Case, largest: int) -> list[Row]:
    """The rows of a case, for its sizes up to the largest."""
    rows: list[Row] = []
    left = dict(SYSTEMS)
    for size in case.sizes:
        if size <= largest:
            left = {name: s for name, s in left.items() if expected_seconds(rows, name, size) < LIMIT}
            rows.append(measure(case, size, left))
            print(shown(rows[-1]), flush=True)
    return rows


def shown(row: Row) -> str:
    """A row for the terminal, in milliseconds."""
    times = ", ".join(f"{name} {'-' if s is None else f'{s * 1e3:.1f} ms'}" for name, s in row.seconds.items())
    return f"{row.case}: {row.before} calls to {row.after}: {times}"


def report(rows: Sequence[Row]) -> str:
    """The results as a page: how long the others take, relative to GSL."""
    names = list(SYSTEMS)
    lines = [
        "# Results",
        "",
        "Written by `make bench`. Times relative to GSL, the whole way from `GraphModule` to `GraphModule`: below 1",
        "is faster than GSL, above 1 slower. All systems ran in turn in one process; each number is the ratio of the",
        f"medians of {ROUNDS} runs. Every result was checked: it has the calls of the pass by hand and computes",
        f"the numbers of the original. A dash stands for a system that was expected to take over {LIMIT:.0f} seconds.",
        "",
        f"| case | calls before | after | {' | '.join(names[1:])} |",
        f"| --- |{' ---: |' * (len(names) + 1)}",
    ]
    for row in rows:
        base = row.seconds[names[0]]
        ratios = [f"{s / base:.2f}" if s is not None and base else "–" for s in list(row.seconds.values())[1:]]
        lines.append(f"| {row.case} | {row.before:,} | {row.after:,} | {' | '.join(ratios)} |")
    notes = """
* *chain*: multiply, add, relu, in a row; `relu(x * w + b)` becomes `relu(addcmul(b, x, w))`, so every node is matched.
* *decoder*: a narrow Llama from `transformers`, exported and decomposed; `x * sigmoid(x)` becomes `silu(x)`, once per
  layer, so few nodes are matched.
* *GSL, engine only*: match, check and rewrite on a view that is loaded already; storing is not timed.
* *FX replace_pattern*, *inductor's matcher* and *FX by hand* change a copy that was made before and is not timed; GSL
  leaves the original unchanged, and what that takes is timed. Inductor's rule is registered before, as GSL's is built
  before; `replace_pattern` traces its rule in every call.
* GSL checks types, cycles and effects at every match, and matches in either order of the operands; that is timed.
"""
    versions = f"Python {platform.python_version()}, torch {torch.__version__.partition('+')[0]}, on CPU."
    return "\n".join(lines) + "\n" + notes + "\n" + versions + "\n"


def main() -> None:
    """Run the benchmarks that the command line asks for."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("--largest", type=int, default=10_000, help="leave out sizes above this number of nodes")
    parser.add_argument("--output", type=Path, default=RESULTS, help="where to write the page of results")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    logging.disable(logging.WARNING)
    rows = [row for case in cases() for row in run(case, options.largest)]
    options.output.write_text(report(rows), encoding="utf-8")
    print(f"written: {options.output}")


if __name__ == "__main__":
    main()

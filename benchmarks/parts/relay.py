"""Relay, from module to module: the cases of the first GSL."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from benchmarks.measure import Meter, Row, Sample, duration, exponent, shown
from benchmarks.section import Goal, Section, goal_of_number, goal_of_ratios, times
from gsl.rules import RULES

ROOT = Path(__file__).parents[2]
PYTHON = ROOT / ".venv-relay" / "bin" / "relay-python"
"""The environment with Relay: ``make test-relay`` makes it."""
WORKER = ROOT / "benchmarks" / "peers" / "tvm_relay.py"
GSL, FIRST = "GSL", "the first GSL"
BOUND = 0.7
LAYERS = "dense {} parallel_dense_variadic"
LOWERED, LONG = "inception lower_batch_norm", "chain 1600 absent"
CASES = (
    *[LAYERS.format(count) for count in (128, 512)],
    *[f"dense {count} parallel_two_dense" for count in (128, 512)],
    "blocks 400 parallel_two_conv",
    *[f"chain {count} {rule}" for count in (100, 400) for rule in ("matching", "absent")],
    LONG,
    *[f"convs 128 {rule}" for rule in ("parallel_two_conv", "parallel_conv_variadic")],
    "turns 400 nested",
    *[f"inception {name.replace('-', '_')}" for name in RULES],
)
"""Each is a graph, its size, and a rule: see ``benchmarks/peers/tvm_relay.py``."""


class RelayWorker:
    """A process in the environment with Relay, which finds one GSL."""

    def __init__(self, folder: Path) -> None:
        self._process = subprocess.Popen(
            [PYTHON, "-P", WORKER], env={**os.environ, "PYTHONPATH": str(folder)}, text=True,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
        )  # fmt: skip

    def run(self, case: str) -> dict[str, Any]:
        """The answer of one run of a case."""
        sent, answered = self._process.stdin, self._process.stdout
        assert sent is not None
        assert answered is not None
        print(case, file=sent, flush=True)
        answer: dict[str, Any] = json.loads(answered.readline() or '{"error": "the process ended"}')
        return answer

    def close(self) -> None:
        """End the process."""
        self._process.communicate()


def measured(case: str, workers: Mapping[str, RelayWorker], meter: Meter) -> Row:
    """The row of a case: the workers take turns, and one that has used its time runs no more."""
    taken: dict[str, list[float]] = {name: [] for name in workers}
    cells: dict[str, Sample | str] = {}
    calls = 0
    for _ in range(meter.rounds):
        for name, worker in workers.items():
            seconds = taken[name]
            if name in cells or (seconds and sum(seconds) * (len(seconds) + 1) / len(seconds) > meter.patience):
                continue
            answer = worker.run(case)
            if "error" in answer:
                cells[name] = answer["error"]
            else:
                seconds.append(answer["seconds"])
                calls = answer["calls"]
    found = {name: Sample(min(seconds), len(seconds), seconds[0]) for name, seconds in taken.items() if seconds}
    row = Row(case, calls, {**found, **cells})
    print(shown(row), flush=True)
    return row


def run(meter: Meter, largest: int) -> Section:
    """All cases of at most so many operators."""
    section = Section("Relay, module to module")
    if not PYTHON.exists():
        section.add("Not measured: there is no environment with Relay; `make test-relay` makes one.")
        return section
    folders = {GSL: ROOT}
    first = os.environ.get("FIRST_GSL")
    if first:
        folders[FIRST] = Path(first)
    workers = {name: RelayWorker(folder) for name, folder in folders.items()}
    try:
        rows = [measured(case, workers, meter) for case in CASES if _size(case) <= largest]
    finally:
        for worker in workers.values():
            worker.close()
    section.add(
        """Each row is a graph of Relay and one rule, from module to module. The first GSL is
        https://github.com/wzh99/GSL, found by the variable `FIRST_GSL`, the folder of a checkout; without it, it is
        left out. It runs in a process of its own, in turns with GSL, and its workload, with types, is made before its
        time is taken. Where it fails on this TVM, or has no such rule, the row says so; one rule is written anew for
        it, and it keeps a type that it would delete too early. In `convs`, no two convolutions go together.
        Rules of one name differ in their conditions, so what the two make is not compared."""
    )
    section.table(
        ["graph, size and rule", "operators", GSL, FIRST, "GSL ÷ first"],
        [[row.label, f"{row.size:,}", _shown(row, GSL), _shown(row, FIRST), _ratio(row)] for row in rows],
    )
    section.sharper += goals({row.label: row for row in rows})
    return section


def _size(case: str) -> int:
    kind, size, *_ = case.split()
    return 0 if kind == "inception" else int(size)


def _shown(row: Row, name: str) -> str:
    cell = row.cells.get(name, "–")
    if isinstance(cell, Sample):
        return duration(cell.least)
    return "no such rule" if "module 'rule'" in cell else cell


def _ratio(row: Row) -> str:
    ratio = row.ratio(GSL, FIRST)
    return "–" if ratio is None else times(ratio)


def goals(rows: Mapping[str, Row]) -> list[Goal]:
    """The goals of the rows by their labels; those whose rows are missing are left out."""
    found = []
    ratios = {name: ratio for name, row in rows.items() if (ratio := row.ratio(GSL, FIRST)) is not None}
    if LOWERED in rows:
        bound, worst = f"at most {BOUND} × the first GSL", max(ratios, key=ratios.__getitem__, default=LOWERED)
        found += [
            goal_of_ratios(
                "Relay, `lower_batch_norm` on inception_v3", bound, [("of its time", ratios.get(LOWERED), BOUND)]
            ),
            goal_of_ratios(
                "Relay, the cases of the first GSL", f"{bound} in each",
                [(f"in the worst of {len(ratios)}: {worst}", ratios.get(worst), BOUND)],
            ),
        ]  # fmt: skip
    slope = exponent([row for row in map(rows.get, map(LAYERS.format, (128, 512))) if row is not None], GSL)
    if slope is not None:
        what = "Relay, 128 → 512 parallel dense layers, one variadic rule"
        found.append(goal_of_number(what, "exponent at most 1.1", slope, 1.1, "{:.2f}"))
    if LONG in rows and (seconds := rows[LONG].seconds(GSL)):
        what, each = "Relay, chain of 1,600 operators without a match", seconds / rows[LONG].size * 1e3
        found.append(goal_of_number(what, "at most 0.15 ms an operator", each, 0.15, "{:.2f} ms"))
    return found

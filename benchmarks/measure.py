"""Taking times: systems in turn, in rounds, each result checked."""

from __future__ import annotations

import gc
import math
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from multiprocessing import get_context
from typing import Any, TypeVar

Key = TypeVar("Key")
Result = TypeVar("Result")


class Different(Exception):
    """Two systems did not make the same rewrite."""


def nothing(result: Any) -> None:
    """The check of a job whose result is not compared."""


@dataclass(frozen=True)
class Job:
    """One piece of work on a graph of its own: what is timed, and the check of its result, which is not."""

    work: Callable[[], Any]
    check: Callable[[Any], None] = nothing
    """Raises Different."""
    least: float = 0.0
    """Seconds. Work that changes nothing is repeated for as long, and the mean counts."""


System = Callable[[], Job]
"""Prepares a job; the preparation is not timed."""


@dataclass(frozen=True)
class Sample:
    """The seconds of one system on one graph."""

    least: float
    rounds: int
    first: float = 0.0
    """The seconds of its very first run."""


@dataclass(frozen=True)
class Row:
    """The systems on one graph. A text instead of a time says why there is none."""

    label: str
    size: int
    """The number of operators of the graph."""
    cells: Mapping[str, Sample | str]

    def seconds(self, name: str) -> float | None:
        """The time of a system, None where it was not measured."""
        cell = self.cells.get(name)
        return cell.least if isinstance(cell, Sample) else None

    def ratio(self, name: str, other: str) -> float | None:
        """The time of a system divided by that of another one."""
        above, below = self.seconds(name), self.seconds(other)
        return None if above is None or not below else above / below


@dataclass
class Meter:
    """Measures rows. It knows the limits of a run, and what each system took before."""

    rounds: int = 9
    """The most runs of each system on a graph."""
    warming: float = 0.3
    """Seconds. A system that takes less has two runs before its rounds, which don't count."""
    patience: float = 4.0
    """Seconds that one system may use on one graph; it runs once in any case."""
    limit: float = 30.0
    """Seconds. A system that is expected to take longer at a size is left out there."""
    clock: Callable[[], float] = time.process_time
    rows: list[Row] = field(default_factory=list)

    def measure(self, label: str, size: int, systems: Mapping[str, System | str], group: str = "") -> Row:
        """The row of one graph. The systems take turns; those of earlier rows of the group tell what to expect."""
        before = [row for row in self.rows if row.label.startswith(group)] if group else []
        cells: dict[str, Sample | str] = {}
        times: dict[str, list[float]] = {}
        for name, system in systems.items():
            expected = expected_seconds(before, name, size)
            if isinstance(system, str):
                cells[name] = system
            elif expected > self.limit:
                cells[name] = f"over {self.limit:.0f} s expected"
            else:
                times[name] = []
        gc.collect()
        gc.freeze()  # the modules and graphs that are there are not searched for garbage again and again
        try:
            first = {name: self._warmed(name, systems[name], taken) for name, taken in times.items()}
            self._turns(systems, times)
        finally:
            gc.unfreeze()
        for name, taken in times.items():
            cells[name] = Sample(min(taken), len(taken), first[name])
        row = Row(label, size, {name: cells[name] for name in systems})
        self.rows.append(row)
        print(shown(row), flush=True)
        return row

    def _warmed(self, name: str, system: System | str, taken: list[float]) -> float:
        """The seconds of the first run of a system, the result of which is checked. It counts if it is a long one."""
        try:
            first = self._once(system, check=True)
        except Different as error:
            raise Different(f"{name}: {error}") from None
        if first < self.warming:
            self._once(system, check=False)
        else:
            taken.append(first)
        return first

    def _turns(self, systems: Mapping[str, System | str], times: Mapping[str, list[float]]) -> None:
        for number in range(self.rounds):
            # There and back, so that none always runs in the caches and the memory that the same other one left.
            for name, taken in list(times.items())[:: -1 if number % 2 else 1]:
                done = len(taken)
                if done < self.rounds and (not done or sum(taken) * (done + 1) / done < self.patience):
                    taken.append(self._once(systems[name], check=False))

    def _once(self, system: System | str, *, check: bool) -> float:
        assert not isinstance(system, str)
        job = system()
        gc.collect()
        start = self.clock()
        result = job.work()
        taken, runs = self.clock() - start, 1
        while taken < job.least:
            job.work()
            taken, runs = self.clock() - start, runs + 1
        if check:
            job.check(result)
        return taken / runs


def expected_seconds(rows: Sequence[Row], name: str, size: int) -> float:
    """The seconds that a system may take at a size, by how it grew so far; linear after one size, 0 without any."""
    known = [(row.size, seconds) for row in rows if (seconds := row.seconds(name)) is not None and row.size < size]
    if not known:
        return 0.0
    growth = 1.0
    if len(known) > 1:
        (n, s), (m, t) = known[-2:]
        growth = max(t / s / (m / n), 1.0) if m > n and s > 0.01 else 1.0
    return known[-1][1] * size / known[-1][0] * growth


def exponent(rows: Sequence[Row], name: str) -> float | None:
    """The slope of the least-squares line through the logarithms of sizes and times; ``None`` of fewer than two."""
    points = [(math.log(row.size), math.log(s)) for row in rows if (s := row.seconds(name))]
    if len(points) < 2:
        return None
    x0, y0 = (sum(point[axis] for point in points) / len(points) for axis in (0, 1))
    return sum((x - x0) * (y - y0) for x, y in points) / sum((x - x0) ** 2 for x, _ in points)


def in_process(function: Callable[..., Result], *arguments: Any) -> Result:
    """The result of a function in a fresh process, in which nothing was at work before, and whose peak of memory is its
    own."""
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as process:
        return process.submit(function, *arguments).result()


def in_turns(calls: Mapping[Key, Callable[[], object]], rounds: int) -> dict[Key, list[float]]:
    """The milliseconds of wall time that each call takes in each round; they take turns, there and back."""
    taken: dict[Key, list[float]] = {name: [] for name in calls}
    for turn in range(rounds):
        for name in list(calls)[:: -1 if turn % 2 else 1]:
            start = time.perf_counter()
            calls[name]()
            taken[name].append((time.perf_counter() - start) * 1e3)
    return taken


def shown(row: Row) -> str:
    """A row for the terminal."""
    cells = [f"{name} {cell if isinstance(cell, str) else duration(cell.least)}" for name, cell in row.cells.items()]
    return f"{row.label} ({row.size:,} operators): {', '.join(cells)}"


def duration(seconds: float) -> str:
    """Seconds as they are read: 12.3 s, 45 ms, 6.7 ms, 89 µs."""
    for unit, factor in (("s", 1.0), ("ms", 1e3), ("µs", 1e6)):
        value = seconds * factor
        if value >= 1 or unit == "µs":
            break
    return f"{value:.3g} {unit}"

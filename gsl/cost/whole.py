"""Whole programs: timed in turns, and compared."""

from __future__ import annotations

import enum
import statistics
import time
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property, partial
from math import sqrt
from typing import Any

from gsl.cost.machine import WARM, captured, inductor_settings
from gsl.errors import WorkloadError, is_exhaustion
from gsl.graph import Effect
from gsl.workload import Workload
from gsl.workload.inputs import as_tensor
from gsl.workload.runs import Leaves, aligned, is_changed

ROUNDS = (5, 31)
"""The least and the most rounds in which programs are timed. With less than three, nothing is more than chance;
with three, nothing is if a single one was disturbed."""
RUNS = 2 + ROUNDS[0]
"""The least runs of each program: to be ready, to find the number of runs of a sample, and in the rounds."""
SAMPLE = 0.002
"""The least seconds of one sample: shorter programs are run several times for one."""


SURE = 1.64
"""The number of standard deviations that count as more than chance: once in twenty times, it is chance."""


@dataclass(frozen=True, slots=True)
class Timing:
    """The time that a run takes, in seconds: in each round."""

    samples: tuple[float, ...]

    @property
    def median(self) -> float:
        return statistics.median(self.samples)

    @property
    def spread(self) -> float:
        """Half of the distance between the quartiles."""
        low, _, high = statistics.quantiles(self.samples, n=4)
        return (high - low) / 2


GAIN = 0.01
"""The least part of the time that a program saves if it counts as faster."""


def is_faster(new: Timing, old: Timing) -> bool:
    """True if one program is faster than another one with which it took turns: by at least one hundredth in the median,
    and by more than chance.

    The ranks of the samples tell this; other work on the machine disturbs them little (F. Wilcoxon, "Individual
    comparisons by ranking methods", Biometrics Bulletin 1, 1945).
    """
    m, n = len(old.samples), len(new.samples)
    won = sum((b < a) + (b == a) / 2 for a in old.samples for b in new.samples)
    return new.median <= (1 - GAIN) * old.median and won - m * n / 2 > SURE * sqrt(m * n * (m + n + 1) / 12)


class RunMode(enum.Enum):
    """The way in which whole programs run when they are timed."""

    PLAIN = ""
    """As ``Workload.build`` makes them."""
    CAPTURED = " in a CUDA graph"
    COMPILED = " under torch.compile"


class CompileError(WorkloadError):
    """A program that can't be compiled."""

    def __init__(self, workload: Workload, error: Exception) -> None:
        lines = [line.strip() for line in str(error).splitlines() if line.strip()] or [""]
        why = " ".join(lines[: 2 if lines[0].endswith(":") else 1])
        super().__init__(f"it can't be compiled ({type(error).__name__}: {why})")
        self.workload = workload


class TimedInputs:
    """The inputs on which programs are run: in the order of one workload, whose names others know."""

    def __init__(self, workload: Workload, given: Any = None) -> None:
        self.workload = workload
        self.names = list(workload.inputs)
        self.values: Sequence[Any]
        if given is not None:
            self.values = workload.bind(given)
        elif workload.example_inputs is not None:
            self.values = workload.example_inputs
        else:
            self.values = workload.random_inputs()

    @cached_property
    def expected(self) -> Leaves:
        """The leaves of a run of the workload itself, and what that changed."""
        return self.workload.isolated(self.of(self.workload), 0)

    def of(self, workload: Workload) -> dict[str, Any]:
        """The same inputs by name for another workload, in its order."""
        named = dict(zip(self.names, self.values))
        order = workload.inputs if set(workload.inputs) == set(named) else list(named)
        return dict(zip(workload.inputs, [named[name] for name in order]))


def in_turns(
    workloads: Sequence[Workload], inputs: TimedInputs, seconds: float, mode: RunMode = RunMode.PLAIN
) -> list[Timing]:
    """The times of programs that are run one after the other, in every second round in the opposite order.

    That takes about so many seconds after all are ready to run, or what the least rounds take. CaptureError for a
    program that can't be captured as a CUDA graph, CompileError for one that can't be compiled.
    """
    import torch

    with _unchanged(workloads), torch.no_grad():
        calls = [_call(workload, inputs, mode) for workload in workloads]
        # The runs of the slowest program that one sample needs, by one run of each program.
        runs = max(1, int(SAMPLE / max(_sample(call, 1) for call in calls)) + 1)
        start = time.perf_counter()
        samples: list[list[float]] = [[] for _ in calls]
        for number in range(ROUNDS[1]):
            if number >= ROUNDS[0] and time.perf_counter() - start > seconds:
                break
            order = range(len(calls)) if number % 2 == 0 else reversed(range(len(calls)))
            for index in order:
                samples[index].append(_sample(calls[index], runs))
    return [Timing(tuple(times)) for times in samples]


def _call(workload: Workload, inputs: TimedInputs, mode: RunMode) -> Callable[[], object]:
    import torch

    values = [
        value.detach().clone() if isinstance(value, torch.Tensor) else value for value in inputs.of(workload).values()
    ]  # a run may write to them
    if mode is RunMode.COMPILED:
        return _compiled(workload, values)
    call = partial(workload.program.build(), *values)
    for _ in range(WARM if mode is RunMode.CAPTURED else 1):  # packs weights, compiles
        call()
    return captured(call) if mode is RunMode.CAPTURED else call


def _compiled(workload: Workload, values: Sequence[Any]) -> Callable[[], object]:
    """A call of what ``torch.compile`` makes of a program by the settings of now, for which torch does not ask where a
    program was compiled before."""
    call = partial(workload.program.build(backend="inductor", options=inductor_settings()), *values)
    try:
        for _ in range(WARM):
            call()
    except Exception as error:
        if is_exhaustion(error):
            raise
        raise CompileError(workload, error) from error
    return call


def _sample(call: Callable[[], object], runs: int) -> float:
    _wait()
    start = time.perf_counter()
    for _ in range(runs):
        call()
    _wait()
    return (time.perf_counter() - start) / runs


def _wait() -> None:
    """Wait until an accelerator is done."""
    import torch

    if torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        torch.cuda.synchronize()


@contextmanager
def _unchanged(workloads: Sequence[Workload]) -> Iterator[None]:
    """While it lasts, runs may change buffers, which are restored."""
    import torch

    effects = (Effect.MUTATES, Effect.OTHER)
    changing = [w for w in workloads if w.graph.written or any(node.effect in effects for node in w.graph)]
    tensors = [value for w in changing for value in w.params.values() if isinstance(value, torch.Tensor)]
    before = [(value, value.detach().clone()) for value in tensors]
    try:
        yield
    finally:
        with torch.no_grad():
            for value, old in before:
                if is_changed(value, old):  # a weight that is written to is packed anew
                    value.copy_(old)


def checksum(values: Iterable[Any]) -> int | None:
    """A number that is another one where a tensor has other values, but for one case in four billion; ``None`` where
    values can't be read."""
    import torch

    found = 0
    for value in values:
        tensor = as_tensor(value)
        try:
            own = repr(value).encode() if tensor is None else (
                tensor.detach().cpu().reshape(-1).view(torch.uint8).numpy()
            )  # fmt: skip
        except (RuntimeError, TypeError, NotImplementedError):  # a layout or dtype that is not one of plain memory
            return None
        found = zlib.crc32(own, found)
    return found


def error(new: Workload, inputs: Sequence[TimedInputs], *, warm: bool = False) -> float:
    """The largest difference of an output from that of the workload of the inputs, relative to the largest magnitude of
    that output, over all inputs.

    Infinite where outputs have another shape, are not finite in other places, or are finite nowhere, so that they tell
    nothing. With ``warm``, the new program runs once before: what it does with packed weights is done from the second
    run on.
    """
    found: list[float | None] = []
    if warm:
        new.isolated(inputs[0].of(new), 0)
    for run in inputs:
        old, values = run.workload, run.of(new)
        first, second = map(dict, aligned(run.expected, old, run.of(old), new.isolated(values, 0), new, values))
        if first.keys() != second.keys():
            raise WorkloadError(f"{new.name} has other outputs than {old.name}")
        found += [_distance(value, second[path]) for path, value in first.items()]
    told = [each for each in found if each is not None]
    return max(told, default=float("inf") if found else 0.0)


def _distance(expected: Any, found: Any) -> float | None:
    """The difference of an output, ``None`` where no number of it is finite."""
    import torch

    if not hasattr(expected, "shape"):
        return 0.0 if expected == found else float("inf")
    a, b = as_tensor(expected).detach(), as_tensor(found).detach()
    if a.shape != b.shape:
        return float("inf")
    if a.numel() == 0:
        return 0.0
    wide = torch.complex128 if a.is_complex() or b.is_complex() else torch.float64
    a, b = a.to(wide), b.to(wide)
    same = torch.where(torch.isfinite(a), torch.isfinite(b), a.eq(b) | (a.isnan() & b.isnan()))
    if not bool(same.all()):
        return float("inf")
    finite = torch.isfinite(a)
    if not bool(finite.any()):
        return None
    gap, scale = (a - b)[finite].abs().max(), a[finite].abs().max()
    return float(gap / scale) if scale else float("inf") if gap else 0.0

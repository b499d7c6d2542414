"""The machine that does the work: its name, its threads, the seconds that a call takes on it, and its best rates."""

from __future__ import annotations

import os
import platform
import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gsl.cache import Store
from gsl.errors import WorkloadError

if TYPE_CHECKING:
    import torch

SECONDS = 0.015
"""The seconds for which a call is repeated, each time that it is measured."""
SAMPLES = 3
"""The samples of which the least counts."""
WARM = 2
"""The number of runs on the same weights before a call is timed: in the second one, weights are packed."""
_MEMORY, _SIDE = 1 << 26, 1024
"""The bytes that are copied, and the size of the matrices that are multiplied, to measure the best rates of the
machine."""
_LARGER = 4
"""How many times as many bytes, and as large matrices, are needed to occupy an accelerator."""


@lru_cache(maxsize=1)
def machine() -> str:
    """A text that tells this machine from others: the model of its processor, the number of cores, the version of
    torch."""
    import torch

    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return f"{_processor()}, {cores} cores, torch {torch.__version__}"


def _processor() -> str:
    """The model of the processor."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    found = {name.strip(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
    model = [found.get(part, "") for part in ("model name", "cpu family", "model", "stepping")]
    return " ".join(model).strip() or platform.processor() or platform.machine()


def inductor_settings() -> dict[str, Any]:
    """The settings of inductor that are in force, on which its code depends."""
    from torch._inductor import config

    return config.save_config_portable()


def devices() -> str:
    """The accelerators that are in use, by name."""
    import torch

    if not torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        return "cpu"
    return ", ".join(torch.cuda.get_device_name(number) for number in range(torch.cuda.device_count()))


def accelerator(values: Iterable[object]) -> torch.device | None:
    """The accelerator of this machine on which some of the tensors lie; ``None`` where there is none."""
    import torch

    own = torch.accelerator.current_accelerator(check_available=True)
    found = [value.device for value in values if isinstance(value, torch.Tensor)]
    return next((device for device in found if own is not None and device.type == own.type), None)


MOST_THREADS = 1024
"""The largest number of threads that torch is given: of very many, the process dies."""


@contextmanager
def threads_of(number: int | None) -> Iterator[int]:
    """Let torch use so many threads, or as many as it does; how many these are. WorkloadError for another number."""
    import torch

    if number is not None and (type(number) is not int or not 1 <= number <= MOST_THREADS):
        raise WorkloadError(f"threads= is a whole number from 1 to {MOST_THREADS}, got {number!r}")
    before = torch.get_num_threads()
    number = before if number is None else number
    torch.set_num_threads(number)
    try:
        yield number
    finally:
        torch.set_num_threads(before)


def timed(call: Callable[[], object]) -> float:
    """The seconds that a call takes: the least of its samples, because everything else that runs can only add to it.

    Each sample repeats the call so often that all of them together last for :data:`SECONDS`. Torch's timer warms up
    before each. (Its own ways to find the number of repetitions take a third of a second for most calls.)
    """
    import torch
    from torch.utils.benchmark import Timer

    with torch.no_grad():
        timer = Timer("call()", globals={"call": call}, num_threads=torch.get_num_threads())
        once = timer.timeit(1).median
        number = max(1, int(SECONDS / SAMPLES / max(once, 1e-9)))
        return float(min(once, *(timer.timeit(number).median for _ in range(SAMPLES))))


class CaptureError(WorkloadError):
    """A call can't run as a CUDA graph."""


def captured(call: Callable[[], object], times: int = 1) -> Callable[[], None]:
    """A CUDA graph of so many runs of a call, which has to be warm, as a function that replays it.

    CaptureError for a call that waits for the GPU, as one that reads a number does.
    """
    import torch

    graph = torch.cuda.CUDAGraph()
    generator = torch.cuda.default_generators[torch.cuda.current_device()]
    before = generator.clone_state()
    try:
        with torch.no_grad(), warnings.catch_warnings():
            with _without_waiting():
                call()
            warnings.filterwarnings("ignore", message="The CUDA Graph is empty")  # that of a view
            with torch.cuda.graph(graph):
                for _ in range(times):
                    call()
    except RuntimeError as error:
        generator.graphsafe_set_state(before)  # else it would stay as it is in a capture
        why = str(error).partition("\n")[0]
        raise CaptureError(f"it can't run as a CUDA graph ({why})") from error
    return partial(_replay, graph, call)


def _replay(graph: torch.cuda.CUDAGraph, held: object) -> None:
    """Run a graph, while what it reads is held."""
    graph.replay()


@contextmanager
def _without_waiting() -> Iterator[None]:
    """While it lasts, what waits for the GPU is an error. It is one in a capture, too, but after that torch does not
    come out of the capture as it should."""
    import torch

    mode = torch.cuda.get_sync_debug_mode()
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Synchronization debug mode is a prototype")
        torch.cuda.set_sync_debug_mode("error")
    try:
        yield
    finally:
        torch.cuda.set_sync_debug_mode(mode)


@dataclass(frozen=True, slots=True)
class Roofline:
    """The best rates that a machine can reach: arithmetic by dtype, memory, and calls of nothing (Williams, Waterman
    and Patterson, "Roofline", Communications of the ACM 52, 2009)."""

    threads: int
    device: torch.device | None
    """The accelerator; ``None`` for the processor."""
    bandwidth: float
    """Bytes per second."""
    overhead: float
    """Seconds per call."""
    store: Store

    @staticmethod
    def here(threads: int, store: Store, device: torch.device | None = None) -> Roofline:
        """The roofline of an accelerator, or of this machine with so many threads; measured once."""
        import torch

        def copy() -> float:
            size = _MEMORY if device is None else _LARGER * _MEMORY
            source = torch.ones(size // 4, device=device)
            target = torch.empty_like(source)
            return 2 * size / timed(lambda: target.copy_(source))

        def nothing() -> float:
            one = torch.ones(1, device=device)
            return timed(lambda: one + one)

        bandwidth = _once(store, "bandwidth", threads, device, copy)
        return Roofline(threads, device, bandwidth, _once(store, "call", threads, device, nothing), store)

    def speed(self, dtype: str) -> float:
        """Operations on numbers of a dtype per second, in a product of matrices."""
        import torch

        def product() -> float:
            side = _SIDE if self.device is None else _LARGER * _SIDE
            a = torch.ones(side, side, dtype=getattr(torch, dtype), device=self.device)
            return float(2 * side**3 / timed(lambda: a @ a))

        return _once(self.store, f"operations on {dtype}", self.threads, self.device, product)


def compiled_call(threads: int, store: Store, device: torch.device | None) -> float:
    """The seconds that a call of code of inductor takes, whatever that does; measured once."""
    import torch

    from gsl.front.fx.steps import inductor_code

    def nothing() -> float:
        one = torch.ones(1, device=device)
        call = inductor_code(torch.fx.symbolic_trace(lambda one: torch.empty_like(one)), [one])
        with torch.no_grad():
            call(one)
        return timed(lambda: call(one))

    return _once(store, "call of inductor's code", threads, device, nothing)


def _once(
    store: Store, what: str, threads: int, device: torch.device | None, measure: Callable[[], float]
) -> float:
    """A value that is measured the first time that it is asked for."""
    key = (machine(), what, threads) if device is None else (machine(), devices(), str(device), what)
    known = store.number(*key)
    if known is None:
        with threads_of(threads):
            known = measure()
        store.put(known, *key)
    return known

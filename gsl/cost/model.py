"""Cost models: what tells the cost of each call of a program."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property, partial
from numbers import Real
from typing import TYPE_CHECKING, Any, Protocol, Union, runtime_checkable

from gsl.cache import Store
from gsl.cost.machine import (
    WARM,
    Roofline,
    accelerator,
    captured,
    compiled_call,
    devices,
    inductor_settings,
    machine,
    threads_of,
    timed,
)
from gsl.cost.regions import Region, fused_regions, regions
from gsl.cost.table import Cost, Costs
from gsl.cost.work import ExampleSizes, Work, is_free, work
from gsl.errors import WorkloadError, checked, is_exhaustion, nearest
from gsl.front.base import Compilable, Scoped, Stepped
from gsl.graph import Graph, Node, is_call, op_name
from gsl.workload import Workload

if TYPE_CHECKING:
    import torch


_FLOATS = ("float32", "float64", "float16", "bfloat16")
PerNode = Callable[[Node], float]
"""A cost model of the user's: what a node of the view costs, in any unit."""


class Model(Protocol):
    """Tells what a program costs."""

    @property
    def name(self) -> str:
        """A name that tells the model from others, also in another process; empty where there is none."""

    @property
    def noise(self) -> float:
        """The share of them by which two costs may differ by chance."""

    def costs(self, workload: Workload) -> Costs:
        """The costs of all calls of a program."""


@runtime_checkable
class ByNode(Protocol):
    """A model that tells what a node of a view costs, without the rest of the program."""

    def prices(self, workload: Workload) -> PerNode:
        """The cost of each node of a view of a program, or of what rules make of it, in that program."""


WantedCost = Union[str, PerNode, Model]
_LEAST = 1e-8
"""The least seconds that what was measured counts as."""
REPLAYS = 10
"""The least number of runs of a call in one CUDA graph: what it takes to start the graph is not the call's."""
MODELS = ("measured", "compiled", "kernels", "analytic")
"""The models that have a name."""


@checked(WorkloadError)
def model_of(wanted: WantedCost, *, threads: int | None = None, store: Store | None = None) -> Model:
    """The cost model of that name, or that a function of a node is. WorkloadError for anything else."""
    if isinstance(wanted, str):
        if wanted not in MODELS:
            raise WorkloadError(f"there is no cost model {wanted!r}: {nearest(wanted, MODELS)}; a function of a node "
                                "is one, too")  # fmt: skip
        with threads_of(threads) as number:
            store = Store() if store is None else store
            return {model.name: model for model in (Measured, Compiled, Kernels, Analytic)}[wanted](number, store)
    if hasattr(wanted, "costs"):
        return wanted  # type: ignore[return-value]
    if callable(wanted):
        return OfNodes(wanted)
    raise WorkloadError(
        f"a cost model is one of {', '.join(map(repr, MODELS))} or a function from a node to a number, got {wanted!r} "
        f"of type {type(wanted).__name__}"
    )


@dataclass(frozen=True, slots=True)
class OfNodes:
    """The cost model that a function of a node is."""

    function: PerNode
    noise: float = 0.0

    @property
    def name(self) -> str:
        return ""

    def of(self, node: Node) -> float:
        """The cost of a node. WorkloadError where the function fails, or returns no number."""
        what = f"the cost of %{node.name} ({op_name(node.op)})"
        try:
            value = self.function(node)
        except Exception as error:
            if is_exhaustion(error):
                raise
            raise WorkloadError(
                f"{what} is not known, because the function cost= failed: {type(error).__name__}: {error}"
            ) from error
        if isinstance(value, bool) or not isinstance(value, Real) or not value >= 0:
            raise WorkloadError(f"{what} should be a number that is not negative, got {value!r}")
        return float(value)

    def prices(self, workload: Workload) -> PerNode:
        """The function, of calls only."""
        return self.of

    def costs(self, workload: Workload) -> Costs:
        """The costs of all calls of a view."""
        return _costs(workload, getattr(self.function, "__name__", "own"), self.prices(workload), unit="")


class Analytic:
    """The cost model that counts operations and bytes, and divides them by what the machine can do at best."""

    name = "analytic"
    noise = 0.0

    def __init__(self, threads: int, store: Store) -> None:
        self.threads = threads
        self.store = store

    def prices(self, workload: Workload) -> PerNode:
        """The least time of each call, in seconds, computed once for equal ones."""
        sizes = ExampleSizes.of(workload)
        roofline = Roofline.here(self.threads, self.store, _accelerator_of(workload))
        known: dict[Any, tuple[float, Any]] = {}

        def price(node: Node) -> float:
            if is_free(node):
                return 0.0
            parts = [part for other in (node, *node.operands) for part in (other.type, other.attrs)]
            key = (node.op, *[other.op for other in node.operands], *map(id, parts))
            found = known.get(key)
            if found is None:  # the parts are kept, so that no others get their numbers
                found = known[key] = _least(work(node, sizes), roofline), parts
            return found[0]

        return price

    def costs(self, workload: Workload) -> Costs:
        """The costs of all calls of a view."""
        return _costs(workload, self.name, self.prices(workload), unit="s", threads=self.threads)


def _accelerator_of(workload: Workload) -> torch.device | None:
    """The accelerator on which a program lies; ``None`` where it lies on the processor."""
    return accelerator([*workload.params.values(), *(workload.example_inputs or ())])


def _least(own: Work, roofline: Roofline) -> float:
    """The least time that a call can take."""
    product = own.operations / roofline.speed(own.dtype) if own.operations and own.dtype in _FLOATS else 0.0
    return roofline.overhead + max(product, own.moved / roofline.bandwidth)


def _costs(workload: Workload, model: str, price: PerNode, *, unit: str, threads: int | None = None) -> Costs:
    scope = _scope(workload)
    calls = [
        Cost(node.name, op_name(node.op), scope(node), price(node), key=op_name(node.op))
        for node in filter(is_call, workload.graph)
    ]
    return Costs(workload.name, model, calls, unit=unit, threads=threads)


def _scope(workload: Workload) -> Callable[[Node], tuple[str, ...]]:
    program = workload.program
    return program.scope if isinstance(program, Scoped) else lambda node: ()


class Measured:
    """The cost model that runs each call alone, on operands of its shapes, dtypes and layouts, and keeps the time.

    The time is the least of all repetitions. Calls that only together cost what they do in the program are run
    together, see :func:`regions`. A call that can't be run alone is taken at its analytic cost.
    """

    name = "measured"
    noise = 0.03
    passes = 2
    """The number of rounds in which calls are measured."""
    cold = 1 << 26
    """The number of bytes of weights that a call reads before it reads the same again: those of a program are not in a
    cache."""

    def __init__(self, threads: int, store: Store) -> None:
        self.threads = threads
        self.store = store
        self.measured = 0
        """The number of calls that were measured, and not known from before."""
        self.until: float | None = None
        """The time at which measuring stops (a value of ``time.perf_counter``): calls that are not known by then are
        estimated."""

    def costs(self, workload: Workload) -> Costs:
        """The costs of all native calls of a program."""
        program = workload.program
        if not isinstance(program, Stepped):
            raise WorkloadError(f"the calls of {type(program.native).__name__} can't be run one by one: use the cost "
                                "model 'analytic', or a function of a node")  # fmt: skip
        found = self._regions(program, workload.graph)
        weights = sum(region.weights for region in found)
        scope, sizes, costs = _scope(workload), ExampleSizes.of(workload), list[Cost]()
        with threads_of(self.threads):
            copies = {region: self._copies(region.weights, weights) for region in found}
            self._measure(workload, copies)
            for region in found:
                seconds = self.store.number(*self._key(region, copies[region]))
                value = self._estimate(region, workload) if seconds is None or seconds < 0 else seconds
                for unit, share in zip(region.units, region.shares(sizes)):
                    module = scope(unit.nodes[-1]) if unit.nodes else ()
                    costs.append(Cost(unit.name, unit.op, module, value * share, region.key, value != seconds))
        return Costs(workload.name, self.name, costs, unit="s", threads=self.threads)

    def _regions(self, program: Stepped, graph: Graph) -> list[Region]:
        """The regions of a program, of which this is the view."""
        return regions(program.steps(graph), fuses=program.fuses)

    def _measure(self, workload: Workload, copies: Mapping[Region, int]) -> None:
        """Measure the regions of which the time is not known, while there is time: each of them several times over.

        What else the machine did at one time is not there at another one.
        """
        keys = {region: self._key(region, number) for region, number in copies.items()}
        new = {key: region for region, key in keys.items() if self.store.number(*key) is None}
        self.measured += len(new)
        for _ in range(self.passes):
            for key, region in new.items():
                if self.until is not None and time.perf_counter() > self.until:
                    return
                known = self.store.number(*key)
                if known is None or known >= 0:
                    seconds = self._time(workload, region, copies[region])
                    if seconds is not None:
                        self.store.put(seconds if known is None else min(known, seconds), *key)

    def _time(self, workload: Workload, region: Region, copies: int) -> float | None:
        """The seconds that a region of a program takes, as :meth:`_run` gives them."""
        program: Any = workload.program
        return self._run(partial(program.alone, region.steps, copies=copies), copies)

    def _key(self, region: Region, copies: int) -> tuple[object, ...]:
        return (machine(), devices(), self.threads, copies, region.key)

    def _copies(self, own: int, all_weights: int) -> int:
        """The number of copies of its weights that a region reads in turns."""
        return 1 if own == 0 else max(1, min(8, min(self.cold, all_weights) // own))

    def _run(self, prepare: Callable[[], Callable[[], object]], copies: int) -> float | None:
        """The seconds that a call takes; a negative number where it can't be run alone, and ``None`` where memory is
        lacking, which may be there another time."""
        import torch

        try:
            with torch.no_grad():
                call = prepare()
                for _ in range(WARM * copies):
                    call()
            return self._seconds(call, copies)
        except Exception as error:  # a call may need values that nobody can make up: indices in a range, a state
            return None if is_exhaustion(error) else -1.0

    def _seconds(self, call: Callable[[], object], copies: int) -> float:
        """The seconds that a call takes, which is warm, and reads so many copies of its weights in turns."""
        return timed(call)

    def _estimate(self, region: Region, workload: Workload) -> float:
        price = Analytic(self.threads, self.store).prices(workload)
        return sum(price(node) for unit in region.units for node in unit.nodes)


class Kernels(Measured):
    """The cost model that measures the kernels of each call alone, in a CUDA graph, and not what it takes to start them
    from Python."""

    name = "kernels"

    @staticmethod
    def check(workload: Workload) -> None:
        """WorkloadError for a program that does not lie on the current GPU of CUDA."""
        import torch

        device = _accelerator_of(workload)
        if device is None or device.type != "cuda":
            raise WorkloadError(f"the cost model 'kernels' is for programs on a GPU of CUDA, and {workload.name} lies "
                                f"on {device or 'the CPU'}: move the model there, or use 'measured'")  # fmt: skip
        if device.index not in (None, torch.cuda.current_device()):
            raise WorkloadError(f"the cost model 'kernels' is for programs on the current device, and {workload.name} "
                                f"lies on {device}: call torch.cuda.set_device({device.index}) before")  # fmt: skip

    def costs(self, workload: Workload) -> Costs:
        """The costs of all native calls of a program. WorkloadError for one that does not lie on a GPU of CUDA."""
        self.check(workload)
        return super().costs(workload)

    def _key(self, region: Region, copies: int) -> tuple[object, ...]:
        return (*super()._key(region, copies), self.name)

    def _seconds(self, call: Callable[[], object], copies: int) -> float:
        runs = copies * -(-REPLAYS // copies)
        return timed(captured(call, runs)) / runs


class Compiled(Measured):
    """The cost model that measures what inductor, the compiler of ``torch.compile``, makes of a program.

    The calls of which it makes loops are compiled and run together, see :func:`fused_regions`; those for which it calls
    kernels of libraries are run one by one, as torch runs them.
    """

    name = "compiled"

    def __init__(self, threads: int, store: Store) -> None:
        super().__init__(threads, store)
        self._made: dict[Region, Callable[[], object]] = {}
        """What was compiled of the program that is measured now, for the next pass."""

    @cached_property
    def settings(self) -> str:
        """A text that tells the settings of inductor from others, on which its code depends."""
        return hashlib.sha256(repr(sorted(inductor_settings().items())).encode()).hexdigest()

    @staticmethod
    def check(workload: Workload) -> None:
        """WorkloadError for a program that inductor does not compile."""
        if not isinstance(workload.program, Compilable):
            kind = type(workload.program.native).__name__
            raise WorkloadError(f"the cost model 'compiled' is for programs of torch, and {workload.name} is a {kind}: "
                                "use 'measured'")  # fmt: skip

    def costs(self, workload: Workload) -> Costs:
        """The costs of all native calls of a program. WorkloadError for one that is not of torch."""
        self.check(workload)
        try:
            return super().costs(workload)
        finally:
            self._made.clear()

    def _regions(self, program: Stepped, graph: Graph) -> list[Region]:
        return fused_regions(program.steps(graph), graph)

    def _time(self, workload: Workload, region: Region, copies: int) -> float | None:
        if not region.is_fused:
            return super()._time(workload, region, copies)
        seconds = self._run(partial(self._compiled, workload, region, copies), copies)
        if seconds is None or seconds < 0:
            return seconds
        # A whole program is one call.
        return max(seconds - compiled_call(self.threads, self.store, _accelerator_of(workload)), _LEAST)

    def _compiled(self, workload: Workload, region: Region, copies: int) -> Callable[[], object]:
        if region not in self._made:
            program: Any = workload.program
            self._made[region] = program.alone_compiled(region.steps, copies=copies)
        return self._made[region]

    def _estimate(self, region: Region, workload: Workload) -> float:
        if not region.is_fused:
            return super()._estimate(region, workload)
        roofline = Roofline.here(self.threads, self.store, _accelerator_of(workload))
        return region.moved(ExampleSizes.of(workload)) / roofline.bandwidth

    def _key(self, region: Region, copies: int) -> tuple[object, ...]:
        own = super()._key(region, copies)
        return (*own, self.name, self.settings) if region.is_fused else own


@checked(WorkloadError)
def cost(workload: Workload, model: WantedCost = "measured", *, threads: int | None = None) -> Costs:
    """The cost of each call of a program on this machine, see ``Workload.cost``."""
    return model_of(model, threads=threads).costs(workload)

"""The runs of a comparison: their inputs, and the results of both workloads."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from gsl.errors import GSLError, WorkloadError, check_number
from gsl.workload.compare import (
    Compared,
    OutputPath,
    Override,
    afterwards,
    by_position,
    by_rounding,
    compare_results,
    flatten,
    is_beyond,
    path_text,
    without_numbers,
)
from gsl.workload.inputs import STRATEGIES, Strategy, as_tensor, strategy

if TYPE_CHECKING:
    from gsl.workload.workload import Workload


Leaves = list[tuple[OutputPath, Any]]


@dataclass(frozen=True, slots=True)
class SeededRun:
    """One set of inputs, in order; the seed of the program's own random numbers; and the way in which the inputs were
    made."""

    values: tuple[Any, ...]
    seed: int
    label: str


@dataclass(frozen=True, slots=True)
class WantedInputs:
    """The wanted inputs: every strategy with every seed and all sizes."""

    strategies: tuple[Strategy, ...]
    seeds: tuple[int, ...]
    sizes: tuple[Mapping[str, int] | None, ...]
    explicit: bool
    """True if a strategy, several seeds or sizes were asked for."""

    @staticmethod
    def of(strategies: Any, seed: Any, sizes: Any) -> WantedInputs:
        """Sorted out from the arguments of ``compare``. WorkloadError for impossible arguments."""
        named = isinstance(strategies, str) or (
            isinstance(strategies, tuple) and len(strategies) == 2
            and all(isinstance(bound, (int, float)) for bound in strategies)
        )  # fmt: skip
        chosen = (STRATEGIES["normal"],) if strategies is None else tuple(
            strategy(item) for item in ([strategies] if named else strategies)
        )  # fmt: skip
        seeds = tuple(seed) if isinstance(seed, Sequence) else (seed,)
        for number in seeds:
            check_number("seed", number, "a whole number, or a list of such", error=WorkloadError)
        each = tuple(sizes) if isinstance(sizes, Sequence) else (sizes,)
        if not (chosen and seeds and each):
            raise WorkloadError("compare needs at least one strategy, one seed and one choice of sizes")
        explicit = strategies is not None or sizes is not None or len(seeds) > 1
        return WantedInputs(chosen, seeds, each, explicit)


def runs(workload: Workload, inputs: Any, wanted: WantedInputs) -> list[SeededRun]:
    """The runs for a comparison with a workload: on the inputs, or on the example and random ones."""
    seed = wanted.seeds[0]
    if inputs is not None:
        if wanted.explicit:
            raise WorkloadError("compare takes either inputs= or how to make them (strategies=, sizes=, several seeds)")
        return [SeededRun(tuple(workload.bind(inputs)), seed, "given")]
    examples = workload.example_inputs
    floats = any(getattr(getattr(value, "dtype", None), "is_floating_point", False) for value in examples or ())
    found = [] if examples is None else [SeededRun(examples, seed, "example")]
    for sizes in wanted.sizes:
        for chosen in wanted.strategies:
            for number in wanted.seeds:
                keep = floats and sizes is None
                values = workload.random_inputs(seed=number, sizes=sizes, strategy=chosen, keep_integers=keep)
                label = f"{chosen.name}, seed {number}"
                if sizes:
                    label += "".join(f", {name}={size}" for name, size in sizes.items())
                found.append(SeededRun(tuple(values), number, label))
    return found


def compared(
    first: Workload, second: Workload, wanted: Sequence[SeededRun], override: Override | None
) -> tuple[Compared, ...]:
    """The outputs of both workloads in these runs, compared; inputs are told by name, or by position.

    Without ``override``, outputs that differ are computed in float64, too; see :func:`by_rounding`.
    """
    by_name = set(first.inputs) == set(second.inputs)
    same_front_end = len({type(each.program).__module__.rpartition(".")[0] for each in (first, second)}) == 1
    rows: list[Compared] = []
    for number, run in enumerate(wanted):
        named = dict(zip(first.inputs, run.values))
        names = second.inputs if by_name else list(named)
        same = dict(zip(names, second.bind([named[name] for name in names])))
        ran = first.isolated(named, run.seed), _second(first, second, same, run)
        expected, found = aligned(ran[0], first, named, ran[1], second, same)
        if not same_front_end:
            found = by_position(expected, found)
        made = compare_results(number, expected, found, override, devices=same_front_end)
        if override is None and same_front_end and any(map(is_beyond, made)):
            exact = first.in_float64(named, run.seed), second.in_float64(same, run.seed)
            made = _without_rounding(made, (expected, found), exact)
        rows += made
    return without_numbers(rows)


def _without_rounding(
    rows: Sequence[Compared], results: tuple[Leaves, Leaves], exact: tuple[Leaves, Leaves]
) -> list[Compared]:
    """The rows, of which those pass that are beyond their tolerance by rounding; see :func:`by_rounding`."""
    tables = [{path_text(path): leaf for path, leaf in leaves} for leaves in (*results, *exact)]
    return [
        by_rounding(row, [table[row.name] for table in tables[:2]], [table[row.name] for table in tables[2:]])
        if is_beyond(row) and all(row.name in table for table in tables) else row
        for row in rows
    ]  # fmt: skip


class FailedRunError(WorkloadError):
    """The second of two workloads can't be run on inputs on which the first one runs."""


def _second(first: Workload, second: Workload, inputs: Mapping[str, Any], run: SeededRun) -> Leaves:
    """The leaves of a run of the second workload, after one of the first. FailedRunError if it fails."""
    try:
        return second.isolated(inputs, run.seed)
    except GSLError:
        raise
    except Exception as error:
        reason, _, _ = str(error).strip().partition("\n\n")  # of an operator without a kernel, torch lists all others
        raise FailedRunError(
            f"{second.name} fails on inputs ({run.label}) on which {first.name} runs: {type(error).__name__}: {reason}"
        ) from error


def aligned(
    expected: Leaves, first: Workload, inputs: Mapping[str, Any], found: Leaves, second: Workload,
    others: Mapping[str, Any],
) -> tuple[Leaves, Leaves]:  # fmt: skip
    """The leaves of one run of each workload. What only one of them changed in place is there with its value in both:
    a cache, say, into which one run writes what is in it already."""
    return _with_unchanged(expected, found, first, inputs), _with_unchanged(found, expected, second, others)


def _with_unchanged(own: Leaves, others: Leaves, workload: Workload, inputs: Mapping[str, Any]) -> Leaves:
    known = {path for path, _ in own}
    values = {afterwards("input", name): value for name, value in inputs.items()}
    values.update({afterwards("state", name): value for name, value in workload.params.items()})
    return [*own, *[(path, values[path]) for path, _ in others if path not in known and path in values]]


# ---------------------------------------------------------------- one run


def isolated(
    call: Callable[..., Any], inputs: Mapping[str, Any], state: Mapping[str, Any], *, seed: int, whole_state: bool
) -> list[tuple[OutputPath, Any]]:
    """The leaves of the result, and every input and state tensor that the run changed, as new tensors.

    ``state`` are the weights by name. Buffers are restored after the run; with ``whole_state``, parameters too.
    WorkloadError if a run without it changes a parameter.
    """
    import torch

    copies = {name: _copy(value) for name, value in inputs.items()}
    buffers = {name for name, value in state.items()
               if isinstance(value, torch.Tensor) and not isinstance(value, torch.nn.Parameter)}  # fmt: skip
    tensors = {name: as_tensor(value) for name, value in state.items() if hasattr(value, "shape")}
    state = {name: value for name, value in tensors.items() if value is not None}
    guarded = {name: (value, value.detach().clone()) for name, value in state.items() if whole_state or name in buffers}
    versions = {name: _version(value) for name, value in state.items() if name not in guarded}
    try:
        with torch.no_grad(), _seeded(seed):
            result = call(*copies.values())
        changed = [name for name, version in versions.items() if version != _version(state[name])]
        if changed:
            names = ", ".join(changed)
            raise WorkloadError(f"the run changed the parameters {names}, which nothing in the graph tells")
        leaves = [(path, _copy(leaf)) for path, leaf in flatten(result)]
        leaves += [
            (afterwards("input", name), value) for name, value in copies.items() if is_changed(value, inputs[name])
        ]
        leaves += [
            (afterwards("state", name), value.detach().clone())
            for name, (value, before) in guarded.items()
            if is_changed(value, before)
        ]
        return leaves
    finally:
        for value, before in guarded.values():
            if is_changed(value, before):
                with torch.no_grad():
                    value.copy_(before)


@contextmanager
def _seeded(seed: int) -> Iterator[None]:
    import torch

    # All generators are seeded, those of devices on which the program has nothing yet, too.
    devices = range(torch.cuda.device_count()) if torch.cuda.is_initialized() else ()  # type: ignore[no-untyped-call]
    with torch.random.fork_rng(devices=devices):
        torch.manual_seed(seed)
        yield


def _copy(value: Any) -> Any:
    import torch

    return value.detach().clone() if isinstance(value, torch.Tensor) else value


def _version(value: Any) -> int:
    """The number of times that a tensor was changed in place; 0 where torch does not count."""
    import torch

    return value._version if isinstance(value, torch.Tensor) and not value.is_inference() else 0


def is_changed(value: Any, before: Any) -> bool:
    """True if a tensor has other values than before. (Its version does not tell: batch_norm writes past it.)"""
    import torch

    if not isinstance(value, torch.Tensor) or value.device.type == "meta" or value.is_nested:
        return False  # there are no values, or they are not compared
    if value.layout != torch.strided:
        value, before = value.to_dense(), before.to_dense()
    return not torch.equal(value, before)

"""One run of a program in isolation: inputs, weights and the random state are afterwards what they were before."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from gsl.errors import WorkloadError
from gsl.workload.compare import Path, afterwards, flatten
from gsl.workload.tensors import as_tensor


def isolated(
    call: Callable[..., Any], inputs: Mapping[str, Any], state: Mapping[str, Any], *, seed: int, whole_state: bool
) -> list[tuple[Path, Any]]:
    """The leaves of the result, and every input and state tensor that the run changed, as new tensors.

    ``state`` are the weights by name. Buffers are restored after the run; with ``whole_state``, parameters too.
    WorkloadError if a run without it changes a parameter.
    """
    import torch

    copies = {name: _copy(value) for name, value in inputs.items()}
    buffers = {name for name, value in state.items()
               if isinstance(value, torch.Tensor) and not isinstance(value, torch.nn.Parameter)}  # fmt: skip
    state = {name: as_tensor(value) for name, value in state.items() if hasattr(value, "shape")}
    guarded = {
        name: (value, value.detach().clone()) for name, value in state.items() if whole_state or name in buffers
    }
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
            (afterwards("input", name), value) for name, value in copies.items() if _changed(value, inputs[name])
        ]
        leaves += [
            (afterwards("state", name), value.detach().clone())
            for name, (value, before) in guarded.items()
            if _changed(value, before)
        ]
        return leaves
    finally:
        for value, before in guarded.values():
            if _changed(value, before):
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


def _changed(value: Any, before: Any) -> bool:
    """True if a tensor has other values than before. (Its version does not tell: batch_norm writes past it.)"""
    import torch

    if not isinstance(value, torch.Tensor) or value.device.type == "meta" or value.is_nested:
        return False  # there are no values, or they are not compared
    if value.layout != torch.strided:
        value, before = value.to_dense(), before.to_dense()
    return not torch.equal(value, before)

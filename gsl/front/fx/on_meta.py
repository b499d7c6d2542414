"""Runs of operators of users by their own functions for tensors without data, on torch's device ``meta``."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import torch
from torch._library.simple_registry import singleton
from torch._ops import OpOverload
from torch.overrides import TorchFunctionMode
from torch.utils import _pytree as pytree
from torch.utils._mode_utils import no_dispatch

from gsl.spec.natives import written_operands

META: Final = torch.device("meta")


def has_own_fakes(op: Any) -> bool:
    """True for an operator for which torch has a Python function on tensors without data."""
    return isinstance(op, OpOverload) and singleton.find(op._name).fake_impl.kernel is not None


def own_function(op: Any, count: int) -> Callable[..., Any] | None:
    """That function of an operator that takes so many tensors and nothing else, and changes none: it gets from torch
    what it is given here. ``None`` for any other operator."""
    if not has_own_fakes(op) or written_operands(op, count) != ():
        return None
    function: Callable[..., Any] = singleton.find(op._name).fake_impl.kernel.func
    return function


@dataclass(frozen=True, slots=True)
class RunOnMeta:
    """The result of a run on the device ``meta``."""

    value: Any
    is_sure: bool
    """True if a run on fake tensors of any device would tell the same."""


def run_on_meta(function: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> RunOnMeta | None:
    """The result of a function on tensors of the device ``meta``; ``None`` if it fails, or makes others."""
    with no_dispatch(), torch.no_grad(), torch._C._DisableAutocast(), _OnMeta() as mode:
        try:
            value = function(*args, **kwargs)
        except Exception:
            # Fake tensors tell why.
            return None
    if any(getattr(item, "device", META) != META for item in pytree.tree_leaves(value)):
        return None
    return RunOnMeta(value, mode.is_sure)


class _OnMeta(TorchFunctionMode):
    """The device ``meta`` for what a function makes, and a look at what it calls."""

    is_sure = True
    """True if nothing was called that may tell another thing of fake tensors."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        placed = kwargs.get("device") is not None
        if func in _MAKE and not placed:
            kwargs = {**kwargs, "device": META}
        elif placed or func not in _TELL_THE_SAME:
            self.is_sure = False
        return func(*args, **kwargs)


_MAKE: Final = frozenset((torch.empty, torch.empty_strided, torch.zeros, torch.ones, torch.full))
"""The functions that make tensors on the default device."""

_TELL_THE_SAME: Final = frozenset(
    (
        torch.empty_like, torch.zeros_like, torch.ones_like, torch.full_like, torch.broadcast_tensors,
        *(getattr(torch.Tensor, f"new_{name}") for name in ("empty", "empty_strided", "zeros", "ones", "full")),
        *(getattr(torch.Tensor, name) for name in ("size", "stride", "dim", "numel", "is_contiguous", "expand")),
        *(getattr(torch.Tensor, name).__get__ for name in ("shape", "dtype", "ndim")),
    )
)  # fmt: skip
"""The functions that tell the same of tensors of the device ``meta`` as of fake tensors of any device."""

"""The effects of bindings besides computing their value."""

from __future__ import annotations

from typing import Any, Final

from tvm import ir, relax

from gsl.errors import FrontEndError
from gsl.graph import Effect

_IN_PLACE: Final = frozenset(("relax.call_tir_inplace", "relax.call_inplace_packed"))
"""The operators that Relax counts as pure: whoever calls them asserts that nothing else reads what they overwrite."""
_BUFFERS: Final = frozenset(("relax.builtin.alloc_tensor",))
"""Relax counts them as pure, but each call makes memory of its own that others write to."""
_PLANNED: Final = frozenset((
    "relax.memory.alloc_storage", "relax.memory.alloc_tensor", "relax.vm.alloc_storage", "relax.vm.alloc_tensor",
))  # fmt: skip
"""The calls that passes for memory planning make: several tensors may lie in one storage."""
_OBSERVERS: Final = frozenset(("relax.assert_op", "relax.print"))


def effect_of(binding: Any) -> Effect | None:
    """The effect of a binding, ``None`` for a pure one. FrontEndError where it takes part in planned memory."""
    if isinstance(binding, relax.MatchCast):
        return Effect.OBSERVES
    value = binding.value
    name = value.op.name if isinstance(value, relax.Call) and isinstance(value.op, ir.Op) else None
    if name in _IN_PLACE:
        return Effect.MUTATES
    if name in _PLANNED:
        raise FrontEndError(
            f"{binding.var.name}: {name} belongs to planned memory, where tensors share storages; apply rules before "
            "StaticPlanBlockMemory"
        )
    if name in _BUFFERS:
        return Effect.OTHER
    if name in _OBSERVERS:
        return Effect.OBSERVES
    if isinstance(value, relax.Function):
        return None
    return Effect.OTHER if relax.analysis.contains_impure_call(value) else None

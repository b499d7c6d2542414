"""The registration of an operator of the namespace ``gsl`` in torch, with few steps between a call and its kernel."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import torch
import torch.nn.functional as F

_LIBRARY: Final[Any] = torch.library.Library("gsl", "FRAGMENT")  # type: ignore[no-untyped-call]
_BELOW: Final[Any] = torch._C._after_autograd_keyset
_INNER: Final[Any] = torch._C._after_ADInplaceOrView_keyset
_PLAIN: Final = (torch._C._dispatch_keys(torch.empty(0)) & _INNER).raw_repr()
"""The dispatch keys of a call on ordinary tensors of the CPU, on which nothing like a mode is at work."""


def register(schema: str, kernel: Callable[..., Any], formula: Callable[..., Any]) -> Any:
    """The operator of a schema, whose ``kernel`` is for the CPU without gradients, and which is elsewhere a formula.

    The formula is written in torch's own functions; gradients, other devices and tensors without data use it. To
    tracers and compilers the operator is one call.
    """
    name = schema.partition("(")[0]
    _LIBRARY.define(schema, tags=(torch.Tag.pt2_compliant_tag,))
    operator = getattr(torch.ops.gsl, name).default

    def autograd(keys: Any, *args: Any, **kwargs: Any) -> Any:
        if torch.is_grad_enabled() and any(isinstance(arg, torch.Tensor) and arg.requires_grad for arg in args):
            return formula(*args, **kwargs)
        if (keys & _INNER).raw_repr() == _PLAIN:
            return kernel(*args, **kwargs)
        return operator.redispatch(keys & _BELOW, *args, **kwargs)

    _LIBRARY.impl(name, formula, "CompositeExplicitAutograd")
    _LIBRARY.impl(name, kernel, "CPU")
    _LIBRARY.impl(name, autograd, "Autograd", with_keyset=True)
    torch.library.register_fake(f"gsl::{name}", formula, lib=_LIBRARY)
    return operator


def is_packable(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None) -> bool:
    """True if a weight may be packed: single precision throughout, and versions that tell when it was changed."""
    f = torch.float32
    if x.dtype != f or weight.dtype != f or weight.is_inference() or weight.layout != torch.strided:
        return False
    return bias is None or (bias.dtype == f and not bias.is_inference())


# ---------------------------------------------------------------- activations


@dataclass(frozen=True, slots=True)
class Activation:
    """An activation: as a function, on memory that may be overwritten, and under oneDNN's name."""

    function: Callable[[torch.Tensor], torch.Tensor]
    in_place: Callable[[torch.Tensor], torch.Tensor]
    name: str
    algorithm: str = ""


ACTIVATIONS: Final = {
    "none": Activation(lambda x: x, lambda x: x, "none"),
    "relu": Activation(F.relu, torch.relu_, "relu"),
    "gelu": Activation(F.gelu, torch.ops.aten.gelu_.default, "gelu", "none"),
    "gelu_tanh": Activation(
        lambda x: F.gelu(x, approximate="tanh"),
        lambda x: torch.ops.aten.gelu_.default(x, approximate="tanh"),
        "gelu",
        "tanh",
    ),
    "silu": Activation(F.silu, torch.ops.aten.silu_.default, "swish"),
    "tanh": Activation(torch.tanh, torch.tanh_, "tanh"),
    "sigmoid": Activation(torch.sigmoid, torch.sigmoid_, "sigmoid"),
    "hardswish": Activation(F.hardswish, torch.ops.aten.hardswish_.default, "hardswish"),
    "hardsigmoid": Activation(F.hardsigmoid, torch.ops.aten.hardsigmoid_.default, "hardsigmoid"),
}
"""The activations, by the name that the operators take."""

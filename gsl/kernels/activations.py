"""The activations that a kernel computes together with its product."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import torch
import torch.nn.functional as F


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

"""Functions of tensors as modules of torch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn


class Of(nn.Module):
    """A function of any number of tensors."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, *inputs: torch.Tensor) -> Any:
        return self.function(*inputs)


class OfOne(Of):
    """A function of one tensor, which tracers and exports call ``x``."""

    def forward(self, x: torch.Tensor) -> Any:
        return self.function(x)


class Net(nn.Module):
    """A function of the module itself, whose layers it reads as attributes, and of tensors."""

    def __init__(self, function: Callable[..., Any], **layers: Any) -> None:
        super().__init__()
        self.function = function
        for name, layer in layers.items():
            setattr(self, name, layer)

    def forward(self, *inputs: torch.Tensor) -> Any:
        return self.function(self, *inputs)

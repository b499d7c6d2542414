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
    """A function of the module itself, whose layers and tensors it reads as attributes, and of inputs."""

    def __init__(self, function: Callable[..., Any], **layers: Any) -> None:
        super().__init__()
        self.function = function
        for name, layer in layers.items():
            if isinstance(layer, torch.Tensor) and not isinstance(layer, nn.Parameter):
                self.register_buffer(name, layer)
            else:
                setattr(self, name, layer)

    def forward(self, *inputs: torch.Tensor) -> Any:
        return self.function(self, *inputs)


class NetOfOne(Net):
    """A function of the module itself and one tensor, which tracers and exports call ``x``."""

    def forward(self, x: torch.Tensor) -> Any:
        return self.function(self, x)

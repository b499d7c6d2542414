"""Convolutions and dense layers together with what follows them: the modules that module fusion makes.

Each is its plain module of torch with the same parameters, and then, in this order: the addition of a second operand,
and an activation. ``FUSIONS`` tells them apart.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Final

import torch.nn.functional as F
from torch import Tensor, nn

ACTIVATIONS: Final[Mapping[str, Callable[[Tensor], Tensor]]] = {"relu": F.relu, "relu6": F.relu6}
"""The activations by name."""


class FusedModule(nn.Module):
    """The common part of the modules here: an addition and an activation behind a plain module."""

    adds: ClassVar[bool] = False
    """True if a second operand is added."""
    activation: ClassVar[str | None] = None
    """The name of the activation, ``None`` without one."""

    def __init_subclass__(cls, *, adds: bool | None = None, activation: str | None = None) -> None:
        cls.adds = cls.adds if adds is None else adds
        cls.activation = activation or cls.activation

    def forward(self, input: Tensor, other: Any = None) -> Tensor:
        """The result of the plain module, plus ``other`` if the module adds, activated."""
        result: Tensor = super().forward(input)
        if self.adds:
            result = result + other
        return result if self.activation is None else ACTIVATIONS[self.activation](result)


class ConvReLU2d(FusedModule, nn.Conv2d, activation="relu"):
    """relu(conv(x))"""


class ConvReLU62d(FusedModule, nn.Conv2d, activation="relu6"):
    """relu6(conv(x))"""


class ConvAdd2d(FusedModule, nn.Conv2d, adds=True):
    """conv(x) + y"""


class ConvAddReLU2d(FusedModule, nn.Conv2d, adds=True, activation="relu"):
    """relu(conv(x) + y)"""


class ConvAddReLU62d(FusedModule, nn.Conv2d, adds=True, activation="relu6"):
    """relu6(conv(x) + y)"""


class ConvTransposeReLU2d(FusedModule, nn.ConvTranspose2d, activation="relu"):
    """relu(convᵀ(x))"""


class ConvTransposeReLU62d(FusedModule, nn.ConvTranspose2d, activation="relu6"):
    """relu6(convᵀ(x))"""


class ConvTransposeAdd2d(FusedModule, nn.ConvTranspose2d, adds=True):
    """convᵀ(x) + y"""


class ConvTransposeAddReLU2d(FusedModule, nn.ConvTranspose2d, adds=True, activation="relu"):
    """relu(convᵀ(x) + y)"""


class ConvTransposeAddReLU62d(FusedModule, nn.ConvTranspose2d, adds=True, activation="relu6"):
    """relu6(convᵀ(x) + y)"""


class ConvReLU3d(FusedModule, nn.Conv3d, activation="relu"):
    """relu(conv(x))"""


class ConvReLU63d(FusedModule, nn.Conv3d, activation="relu6"):
    """relu6(conv(x))"""


class ConvAdd3d(FusedModule, nn.Conv3d, adds=True):
    """conv(x) + y"""


class ConvAddReLU3d(FusedModule, nn.Conv3d, adds=True, activation="relu"):
    """relu(conv(x) + y)"""


class ConvAddReLU63d(FusedModule, nn.Conv3d, adds=True, activation="relu6"):
    """relu6(conv(x) + y)"""


class LinearReLU(FusedModule, nn.Linear, activation="relu"):
    """relu(x wᵀ + b)"""


class LinearReLU6(FusedModule, nn.Linear, activation="relu6"):
    """relu6(x wᵀ + b)"""


class LinearAdd(FusedModule, nn.Linear, adds=True):
    """x wᵀ + b + y"""


class LinearAddReLU(FusedModule, nn.Linear, adds=True, activation="relu"):
    """relu(x wᵀ + b + y)"""


class LinearAddReLU6(FusedModule, nn.Linear, adds=True, activation="relu6"):
    """relu6(x wᵀ + b + y)"""


@dataclass(frozen=True, slots=True)
class Fusion:
    """The computation of a module: a plain module of torch, maybe an addition, maybe an activation."""

    base: type[nn.Module]
    adds: bool = False
    activation: str | None = None


FUSIONS: Final[Mapping[Fusion, type[nn.Module]]] = {
    **{Fusion(base): base for base in (nn.Conv2d, nn.ConvTranspose2d, nn.Conv3d, nn.Linear)},
    **{Fusion(kind.__bases__[1], kind.adds, kind.activation): kind for kind in FusedModule.__subclasses__()},
}
"""The module for each fusion; a fusion that adds and activates nothing is the plain module itself."""

FUSION_OF: Final[Mapping[type[nn.Module], Fusion]] = {kind: fusion for fusion, kind in FUSIONS.items()}
"""The computation of each of the modules. Exact types: a subclass may do something else."""

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

    def forward(self, input: Tensor, other: Any = None) -> Tensor:
        """The result of the plain module, plus ``other`` if the module adds, activated."""
        result: Tensor = super().forward(input)
        if self.adds:
            result = result + other
        return result if self.activation is None else ACTIVATIONS[self.activation](result)


class ConvReLU2d(FusedModule, nn.Conv2d):
    """relu(conv(x))"""

    activation = "relu"


class ConvReLU62d(FusedModule, nn.Conv2d):
    """relu6(conv(x))"""

    activation = "relu6"


class ConvAdd2d(FusedModule, nn.Conv2d):
    """conv(x) + y"""

    adds = True


class ConvAddReLU2d(FusedModule, nn.Conv2d):
    """relu(conv(x) + y)"""

    adds, activation = True, "relu"


class ConvAddReLU62d(FusedModule, nn.Conv2d):
    """relu6(conv(x) + y)"""

    adds, activation = True, "relu6"


class ConvTransposeReLU2d(FusedModule, nn.ConvTranspose2d):
    """relu(convᵀ(x))"""

    activation = "relu"


class ConvTransposeReLU62d(FusedModule, nn.ConvTranspose2d):
    """relu6(convᵀ(x))"""

    activation = "relu6"


class ConvTransposeAdd2d(FusedModule, nn.ConvTranspose2d):
    """convᵀ(x) + y"""

    adds = True


class ConvTransposeAddReLU2d(FusedModule, nn.ConvTranspose2d):
    """relu(convᵀ(x) + y)"""

    adds, activation = True, "relu"


class ConvTransposeAddReLU62d(FusedModule, nn.ConvTranspose2d):
    """relu6(convᵀ(x) + y)"""

    adds, activation = True, "relu6"


class ConvReLU3d(FusedModule, nn.Conv3d):
    """relu(conv(x))"""

    activation = "relu"


class ConvReLU63d(FusedModule, nn.Conv3d):
    """relu6(conv(x))"""

    activation = "relu6"


class ConvAdd3d(FusedModule, nn.Conv3d):
    """conv(x) + y"""

    adds = True


class ConvAddReLU3d(FusedModule, nn.Conv3d):
    """relu(conv(x) + y)"""

    adds, activation = True, "relu"


class ConvAddReLU63d(FusedModule, nn.Conv3d):
    """relu6(conv(x) + y)"""

    adds, activation = True, "relu6"


class LinearReLU(FusedModule, nn.Linear):
    """relu(x wᵀ + b)"""

    activation = "relu"


class LinearReLU6(FusedModule, nn.Linear):
    """relu6(x wᵀ + b)"""

    activation = "relu6"


class LinearAdd(FusedModule, nn.Linear):
    """x wᵀ + b + y"""

    adds = True


class LinearAddReLU(FusedModule, nn.Linear):
    """relu(x wᵀ + b + y)"""

    adds, activation = True, "relu"


class LinearAddReLU6(FusedModule, nn.Linear):
    """relu6(x wᵀ + b + y)"""

    adds, activation = True, "relu6"


@dataclass(frozen=True, slots=True)
class Fusion:
    """The computation of a module: a plain module of torch, maybe an addition, maybe an activation."""

    base: type[nn.Module]
    adds: bool = False
    activation: str | None = None


FUSIONS: Final[Mapping[Fusion, type[nn.Module]]] = {
    **{Fusion(base): base for base in (nn.Conv2d, nn.ConvTranspose2d, nn.Conv3d, nn.Linear)},
    **{
        Fusion(kind.__bases__[1], kind.adds, kind.activation): kind
        for kind in (
            ConvReLU2d, ConvReLU62d, ConvAdd2d, ConvAddReLU2d, ConvAddReLU62d,
            ConvTransposeReLU2d, ConvTransposeReLU62d, ConvTransposeAdd2d, ConvTransposeAddReLU2d,
            ConvTransposeAddReLU62d,
            ConvReLU3d, ConvReLU63d, ConvAdd3d, ConvAddReLU3d, ConvAddReLU63d,
            LinearReLU, LinearReLU6, LinearAdd, LinearAddReLU, LinearAddReLU6,
        )
    },
}  # fmt: skip
"""The module for each fusion; a fusion that adds and activates nothing is the plain module itself."""

FUSION_OF: Final[Mapping[type[nn.Module], Fusion]] = {kind: fusion for fusion, kind in FUSIONS.items()}
"""The computation of each of the modules. Exact types: a subclass may do something else."""

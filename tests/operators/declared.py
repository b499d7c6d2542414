"""Operators that tests declare, at the top of a module, where another process finds them."""

from __future__ import annotations

import torch
from torch import Tensor

import gsl


@gsl.operator("gsl_tests::rms_norm")
def rms_norm(x: Tensor, weight: Tensor, *, eps: float = 1e-6) -> Tensor:
    """The root mean square normalisation of the last axis."""
    return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + eps) * weight


@gsl.operator("gsl_tests::blend", traits=("commutative", "element_wise"))
def blend(x: Tensor, y: Tensor) -> Tensor:
    return (x + y) * 0.5


@gsl.operator("gsl_tests::scaled", x="*b c d", axis=[-1, -2])
def scaled(x: Tensor, *, axis: int = -1) -> tuple[Tensor, Tensor]:
    scale = x.abs().amax(axis, keepdim=True)
    return x / (scale + 1.0), scale


@gsl.operator("gsl_tests::gated", mode=["relu", "sigmoid"])
def gated(x: Tensor, bias: Tensor | None = None, *, mode: str = "relu") -> Tensor:
    y = x if bias is None else x + bias
    return torch.relu(y) * x if mode == "relu" else torch.sigmoid(y) * x


@gsl.operator("gsl_tests::turned", x="*b 2*d")
def turned(x: Tensor) -> Tensor:
    a, b = x.chunk(2, -1)
    return torch.cat((-b, a), -1)


@gsl.operator("gsl_tests::shifted")
def shifted(x: Tensor, *, zero: int = 0) -> Tensor:
    return torch.tanh(x + zero)

"""Programs of which the tests make rules, and the rules."""

from __future__ import annotations

import functools

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from gsl import Subst


def eager(q: Tensor, k: Tensor, v: Tensor, mask: Tensor, *, scale: float) -> Tensor:
    return torch.softmax(q @ k.transpose(-2, -1) * scale + mask, -1) @ v


def fused(q: Tensor, k: Tensor, v: Tensor, mask: Tensor, *, scale: float) -> Tensor:
    return F.scaled_dot_product_attention(q, k, v, mask, scale=scale)


SHAPES = {"q": "b h n d", "k": "b h m d", "v": "b h m e", "mask": "*b n m"}


@functools.cache
def attention() -> Subst:
    """The rule of the front page."""
    return Subst.from_programs(
        eager, fused, name="attention", where=lambda q, mask: mask.dtype == q.dtype, **SHAPES
    )


class Attention(nn.Module):
    """Attention, with the operands of its commutative calls in the other order."""

    def forward(self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor) -> Tensor:
        scores = torch.add(mask, 0.25 * torch.matmul(q, k.transpose(2, 3)))
        return torch.matmul(nn.functional.softmax(scores, dim=-1), v)


def inputs() -> tuple[Tensor, ...]:
    """Inputs of attention; the mask is one for all heads."""
    torch.manual_seed(0)
    return torch.randn(2, 3, 4, 16), torch.randn(2, 3, 5, 16), torch.randn(2, 3, 5, 7), torch.randn(2, 1, 4, 5)


def rms(x: Tensor, weight: Tensor, *, eps: float) -> Tensor:
    return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + eps) * weight


def rms_norm(x: Tensor, weight: Tensor, *, eps: float) -> Tensor:
    return F.rms_norm(x, (x.shape[-1],), weight, eps)


def tanh_gelu(x: Tensor) -> Tensor:
    return 0.5 * x * (1 + torch.tanh(0.7978845608028654 * (x + 0.044715 * x**3)))


def gelu(x: Tensor) -> Tensor:
    return F.gelu(x, approximate="tanh")

"""Weights in eight bits, with a scale for each output channel, and operands that are quantised at each call."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any, Final

import torch

Tensor = torch.Tensor
ENGINES: Final = ("onednn", "x86")
"""The engines of torch whose packed weights are tried."""


@dataclass(frozen=True, slots=True)
class Int8:
    """A weight in eight bits: ``values * scales``."""

    values: Tensor
    scales: Tensor
    zeros: Tensor
    reduced: bool
    """True if operands may have seven bits only: without the instructions for it (VNNI), the sum of two products of
    eight bits does not fit into the sixteen that kernels have for it."""


def in_int8(weight: Tensor) -> Int8 | None:
    """A weight in eight bits, ``None`` where no kernel of torch takes it."""
    if not torch._C._has_mkldnn:
        return None
    scales = weight.detach().abs().amax(tuple(range(1, weight.dim()))).clamp_min(1e-12) / 127
    values = (weight.detach() / scales.reshape(-1, *[1] * (weight.dim() - 1))).round_().to(torch.int8)
    zeros = torch.zeros(len(scales), dtype=torch.int32)
    return Int8(values, scales, zeros, not torch.cpu._is_vnni_supported())


def quantised(x: Tensor, reduced: bool) -> tuple[Tensor, float, int]:
    """A tensor in eight bits without a sign, its scale and its zero."""
    found: Any = torch.quantize_per_tensor_dynamic(x, torch.quint8, reduced)
    return found.int_repr(), found.q_scale(), found.q_zero_point()


def packed_linear(engine: str, weight: Tensor, bias: Tensor | None) -> tuple[Any, bool] | None:
    """A layer that an engine has packed, and whether its operands may have seven bits only.

    ``None`` where the engine is not there.
    """
    small = in_int8(weight)
    if small is None or engine not in torch.backends.quantized.supported_engines:
        return None
    before = torch.backends.quantized.engine
    try:
        torch.backends.quantized.engine = engine
        whole: Any = torch._make_per_channel_quantized_tensor(small.values, small.scales, small.zeros.long(), 0)
        return torch.ops.quantized.linear_prepack(whole, bias), small.reduced
    finally:
        torch.backends.quantized.engine = before


with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # torch's quantised dtypes are to be replaced some day, which it says once
    torch._make_per_channel_quantized_tensor(
        torch.zeros(1, 1, dtype=torch.int8), torch.ones(1), torch.zeros(1, dtype=torch.long), 0
    )
    quantised(torch.zeros(1), reduced=False)

"""Linear layers of torch: with packed weights, and in int8."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

import torch
import torch.nn.functional as F
from torch import Tensor

from gsl.kernels.operator import ACTIVATIONS, Activation, PackedKernel, fastest, is_packable, packed, register

_onednn = torch.ops.mkldnn._linear_pointwise.default
_reorder = torch.ops.mkldnn._reorder_linear_weight.default


def formula(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    addend: Tensor | None = None,
    *,
    activation: str = "none",
    precision: str = "float32",
) -> Tensor:
    """The result of the operator, without the rounding of a lower precision."""
    result = F.linear(x, weight, bias)
    return ACTIVATIONS[activation].function(result if addend is None else result + addend)


def kernel(x: Tensor, weight: Tensor, bias: Tensor | None = None, addend: Tensor | None = None, **how: str) -> Tensor:
    """The formula by a packed weight, where there is one and more than one row."""
    rows = x.numel() // x.shape[-1] if x.dim() > 1 and x.shape[-1] else 0
    if rows < 2 or weight.dim() != 2 or not is_packable(x, weight, bias):
        return formula(x, weight, bias, addend, **how)
    activation, precision = how.get("activation", "none"), how.get("precision", "float32")
    fused = activation if addend is None else "none"

    def make() -> PackedKernel:
        shape = ("linear", rows, *weight.shape, bias is None, fused, precision)
        return fastest(shape, "plain", _ways(weight, bias, rows, ACTIVATIONS[fused], precision), x, weight, bias)

    run = packed(weight, bias, (fused, precision), make)
    result = _plain(ACTIVATIONS[fused], x, weight, bias) if run is None else run(x.contiguous(), weight, bias)
    if addend is None:
        return result
    result = result.add_(addend) if addend.shape == result.shape else result + addend
    return ACTIVATIONS[activation].in_place(result)


def _plain(activation: Activation, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    return activation.in_place(F.linear(x, weight, bias))


def _ways(
    weight: Tensor, bias: Tensor | None, rows: int, activation: Activation, precision: str
) -> Mapping[str, Callable[[], PackedKernel | None]]:
    """The ways to compute a layer. A run holds its packed weight, but not the weight itself: that would keep it
    alive."""
    ways: dict[str, Callable[[], PackedKernel | None]] = {
        "plain": lambda: partial(_plain, activation),
        "onednn": lambda: _by_onednn(weight, activation),
        "mkl": lambda: _by_mkl(weight, rows, activation),
    }
    if precision == "bfloat16":
        ways["bfloat16"] = lambda: _in_bfloat16(weight, activation)
    if precision == "int8":
        for engine in ENGINES:
            ways[f"int8 {engine}"] = partial(_in_int8, engine, weight, bias, activation)
    return ways


def _by_onednn(weight: Tensor, activation: Activation) -> PackedKernel | None:
    if not torch._C._has_mkldnn:
        return None
    own, name, algorithm = _reorder(weight), activation.name, activation.algorithm
    return lambda x, weight, bias: _onednn(x, own, bias, name, [], algorithm)


def _by_mkl(weight: Tensor, rows: int, activation: Activation) -> PackedKernel | None:
    """MKL packs for a number of rows; for another one, its call is one with the plain weight."""
    if not torch._C.has_mkl:
        return None
    own, multiply = torch.ops.mkl._mkl_reorder_linear_weight(weight, rows), torch.ops.mkl._mkl_linear.default
    return lambda x, weight, bias: activation.in_place(multiply(x, own, weight, bias, rows))


def _in_bfloat16(weight: Tensor, activation: Activation) -> PackedKernel | None:
    if not torch.ops.mkldnn._is_mkldnn_bf16_supported():
        return None
    own = _reorder(weight.to(torch.bfloat16))

    def run(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        result = _onednn(x.to(torch.bfloat16), own, None, "none", [], "").to(torch.float32)
        return activation.in_place(result if bias is None else result.add_(bias))

    return run


def _in_int8(engine: str, weight: Tensor, bias: Tensor | None, activation: Activation) -> PackedKernel | None:
    found = packed_linear(engine, weight, bias)
    if found is None:
        return None
    own, reduced = found
    multiply = torch.ops.quantized.linear_dynamic.default
    return lambda x, weight, bias: activation.in_place(multiply(x, own, reduced))


LINEAR: Final = register(
    "linear(Tensor x, Tensor weight, Tensor? bias=None, Tensor? addend=None, *, "
    'str activation="none", str precision="float32") -> Tensor',
    kernel,
    formula,
)


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

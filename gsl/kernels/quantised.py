"""Linear layers and convolutions of numbers in eight bits: data in uint8, weights in int8.

``gsl::quantised_linear(x, weight, scales, zeros, bias=None, *, scale, zero_point, activation="none")``
    activation(scale (x - zero_point) (scales (weight - zeros))ᵀ + bias), in single precision
``gsl::quantised_conv2d(x, weight, scales, zeros, bias=None, *, stride, padding, dilation, groups, …)``
    The same of a convolution. The result lies in memory with the channels last.

``scales`` and ``zeros`` have an element for each output channel. oneDNN computes it in whole numbers, as the code of
``torch.compile`` does, where the processor has instructions for it (VNNI) and all ``zeros`` are 0; else the formula.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import torch
import torch.nn.functional as F
from torch import Tensor

from gsl.kernels.operator import ACTIVATIONS, packed, register

_LAST: Final = torch.channels_last
_IN_FLOATS: Final = (1.0, 0, torch.float32)
"""The scale, the zero and the dtype of a result that is not quantised."""


def _weight(weight: Tensor, scales: Tensor, zeros: Tensor) -> Tensor:
    column = [-1, *[1] * (weight.dim() - 1)]
    return (weight.to(torch.float32) - zeros.reshape(column)) * scales.reshape(column)


def quantised_linear(
    x: Tensor, weight: Tensor, scales: Tensor, zeros: Tensor, bias: Tensor | None = None, *, scale: float,
    zero_point: int, activation: str = "none",
) -> Tensor:  # fmt: skip
    """activation(scale (x - zero_point) (scales (weight - zeros))ᵀ + bias)"""
    data = (x.to(torch.float32) - zero_point) * scale
    return ACTIVATIONS[activation].function(F.linear(data, _weight(weight, scales, zeros), bias))


def quantised_conv2d(
    x: Tensor, weight: Tensor, scales: Tensor, zeros: Tensor, bias: Tensor | None = None, *, scale: float,
    zero_point: int, stride: tuple[int, ...], padding: tuple[int, ...], dilation: tuple[int, ...], groups: int,
    activation: str = "none",
) -> Tensor:  # fmt: skip
    """The same of a convolution of images, which is padded by ``zero_point``."""
    data, own = (x.to(torch.float32) - zero_point) * scale, _weight(weight, scales, zeros)
    return ACTIVATIONS[activation].function(F.conv2d(data, own, bias, stride, padding, dilation, groups))


def _conv2d_formula(*args: Any, **how: Any) -> Tensor:
    return quantised_conv2d(*args, **how).contiguous(memory_format=_LAST)


def _packed(
    x: Tensor, weight: Tensor, scales: Tensor, zeros: Tensor, bias: Tensor | None, how: Any, pack: Callable[[], Tensor]
) -> tuple[Tensor, Tensor] | None:
    """The packed weight and its zeros; ``None`` at the first use of the weight, and where no kernel takes the call."""
    tensors = (weight, scales, zeros) if bias is None else (weight, scales, zeros, bias)
    dtypes = x.dtype == torch.uint8 and weight.dtype == torch.int8
    floats = all(each.dtype == torch.float32 for each in tensors if each.is_floating_point())
    if not dtypes or not floats or not x.numel() or any(each.is_inference() for each in tensors):
        return None
    if not torch._C._has_mkldnn or not torch.cpu._is_vnni_supported():
        return None

    def make() -> tuple[Tensor, Tensor] | bool:
        return not zeros.any() and (pack(), zeros.to(torch.int32))

    return packed(weight, zeros, how, make) or None


def _linear(
    x: Tensor, weight: Tensor, scales: Tensor, zeros: Tensor, bias: Tensor | None = None, *, scale: float,
    zero_point: int, activation: str = "none",
) -> Tensor:  # fmt: skip
    def pack() -> Tensor:
        found: Tensor = torch.ops.onednn.qlinear_prepack(weight, None)
        return found

    own = _packed(x, weight, scales, zeros, bias, "quantised linear", pack) if x.dim() > 1 else None
    if own is None:
        return quantised_linear(
            x, weight, scales, zeros, bias, scale=scale, zero_point=zero_point, activation=activation
        )
    name, algorithm = ACTIVATIONS[activation].name, ACTIVATIONS[activation].algorithm
    result: Tensor = torch.ops.onednn.qlinear_pointwise.default(
        x.contiguous(), scale, zero_point, own[0], scales, own[1], bias, *_IN_FLOATS, name, [], algorithm
    )
    return result


def _conv2d(
    x: Tensor, weight: Tensor, scales: Tensor, zeros: Tensor, bias: Tensor | None = None, *, scale: float,
    zero_point: int, stride: list[int], padding: list[int], dilation: list[int], groups: int, activation: str = "none",
) -> Tensor:  # fmt: skip
    window = (stride, padding, dilation, groups)

    def pack() -> Tensor:
        found: Tensor = torch.ops.onednn.qconv_prepack(weight, scales, 1.0, 0, *window, list(x.shape))
        return found

    key = ("quantised conv2d", str(window), x.shape)
    own = _packed(x, weight, scales, zeros, bias, key, pack) if x.dim() == 4 else None
    if own is None:
        return _conv2d_formula(
            x, weight, scales, zeros, bias, scale=scale, zero_point=zero_point, stride=stride, padding=padding,
            dilation=dilation, groups=groups, activation=activation,
        )  # fmt: skip
    name, algorithm = ACTIVATIONS[activation].name, ACTIVATIONS[activation].algorithm
    result: Tensor = torch.ops.onednn.qconv_pointwise.default(
        x.contiguous(memory_format=_LAST), scale, zero_point, own[0], scales, own[1], bias, *window, *_IN_FLOATS,
        name, [], algorithm,
    )  # fmt: skip
    return result


_OPERANDS: Final = "Tensor x, Tensor weight, Tensor scales, Tensor zeros, Tensor? bias=None, *, float scale, "
_END: Final = 'str activation="none") -> Tensor'
QUANTISED_LINEAR: Final = register(
    f"quantised_linear({_OPERANDS}int zero_point, {_END}", _linear, quantised_linear
)
QUANTISED_CONV2D: Final = register(
    f"quantised_conv2d({_OPERANDS}int zero_point, int[] stride, int[] padding, int[] dilation, int groups, {_END}",
    _conv2d,
    _conv2d_formula,
)

"""Linear layers and convolutions of numbers in eight bits: data in uint8, weights in int8.

``gsl::quantised_linear(x, weight, scales, zeros, bias=None, other=None, *, scale, zero_point, …)``
    activation(scale (x - zero_point) (scales (weight - zeros))ᵀ + bias + other_scale (other - other_zero)), in single
    precision, or quantised by ``out_scale`` and ``out_zero`` to uint8
``gsl::quantised_conv2d(x, weight, scales, zeros, bias=None, other=None, *, stride, padding, dilation, groups, …)``
    The same of a convolution. The result lies in memory with the channels last.
``gsl::quantised_linear_dynamic(x, weight, scales, zeros, scale, zero_point, bias=None, other=None, *, …)``
    The same with a scale and a zero of the data that are tensors of one element; as is
    ``gsl::quantised_conv2d_dynamic``.

``scales`` and ``zeros`` have an element for each output channel; ``other`` has the shape of the result. oneDNN computes
the product in whole numbers, as the code of ``torch.compile`` does, where the processor has instructions for it (VNNI)
and all ``zeros`` are 0, together with what follows it as far as its kernels know that; else the formula.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence, Set
from typing import Any, Final

import torch
import torch.nn.functional as F
from torch import Tensor

from gsl.kernels.layers import Window
from gsl.kernels.operator import ACTIVATIONS, INT8_CONV, INT8_LINEAR, Kernel, packed, register

_LAST: Final = torch.channels_last


def _weight(weight: Tensor, scales: Tensor, zeros: Tensor) -> Tensor:
    column = [-1, *[1] * (weight.dim() - 1)]
    return (weight.to(torch.float32) - zeros.reshape(column)) * scales.reshape(column)


def quantised(x: Tensor, scale: float, zero_point: int) -> Tensor:
    """clip(round(x / scale) + zero_point, 0, 255), in uint8"""
    return torch.clamp(torch.round(x * (1.0 / scale)) + zero_point, 0, 255).to(torch.uint8)


def _finished(
    product: Tensor, bias: Tensor | None, other: Tensor | None, *, activation: str = "none", other_scale: float = 1.0,
    other_zero: int = 0, out_scale: float | None = None, out_zero: int = 0,
) -> Tensor:  # fmt: skip
    """A product with what follows it: a bias (of the shape of a channel), a second term, activation, quantisation."""
    if bias is not None:
        product = product + bias
    if other is not None:
        product = product + (other.to(torch.float32) - other_zero) * other_scale
    result = ACTIVATIONS[activation].function(product)
    return result if out_scale is None else quantised(result, out_scale, out_zero)


def quantised_linear(
    x: Tensor, weight: Tensor, scales: Tensor, zeros: Tensor, bias: Tensor | None = None, other: Tensor | None = None,
    *, scale: float, zero_point: int, **end: Any,
) -> Tensor:  # fmt: skip
    """activation(scale (x - zero_point) (scales (weight - zeros))ᵀ + bias + other), which may be quantised"""
    data = (x.to(torch.float32) - zero_point) * scale
    return _finished(F.linear(data, _weight(weight, scales, zeros)), bias, other, **end)


def quantised_conv2d(
    x: Tensor, weight: Tensor, scales: Tensor, zeros: Tensor, bias: Tensor | None = None, other: Tensor | None = None,
    *, scale: float, zero_point: int, stride: Sequence[int], padding: Sequence[int], dilation: Sequence[int],
    groups: int, **end: Any,
) -> Tensor:  # fmt: skip
    """The same of a convolution of images, which is padded by ``zero_point``."""
    data, own = (x.to(torch.float32) - zero_point) * scale, _weight(weight, scales, zeros)
    product = F.conv2d(data, own, None, list(stride), list(padding), list(dilation), groups)
    return _finished(product, None if bias is None else bias.reshape(-1, 1, 1), other, **end)


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


def _end(
    other: Tensor | None, shape: Callable[[], Sequence[int]], taken: Set[str], memory: torch.memory_format, *,
    activation: str = "none", other_scale: float = 1.0, other_zero: int = 0, out_scale: float | None = None,
    out_zero: int = 0,
) -> tuple[Any, ...] | None:  # fmt: skip
    """The arguments for what follows a product, as oneDNN takes them: the addend, the result's type, the rest.

    ``None`` where it takes no such call. ``shape`` is that of the product, ``taken`` are the activations, by oneDNN's
    names, that it takes without an addend.
    """
    dtype, after = torch.float32 if out_scale is None else torch.uint8, ACTIVATIONS[activation].onednn
    result = (1.0, 0, dtype) if out_scale is None else (out_scale, out_zero, dtype)
    if other is None:
        return (None, result, after) if after[0] in taken else None
    is_scaled = (other_scale, other_zero) != (1.0, 0)
    if activation not in ("none", "relu") or other.dtype != dtype or (is_scaled and dtype == torch.float32):
        return None
    if other.shape != tuple(shape()):  # it writes the result into the memory of the addend
        return None
    return other.clone(memory_format=memory), result, (other_scale, other_zero, "sum", 1.0, *after)


def _linear(
    x: Tensor, weight: Tensor, scales: Tensor, zeros: Tensor, bias: Tensor | None = None, other: Tensor | None = None,
    *, scale: float, zero_point: int, **end: Any,
) -> Tensor:  # fmt: skip
    def pack() -> Tensor:
        found: Tensor = torch.ops.onednn.qlinear_prepack(weight, None)
        return found

    scheme: dict[str, Any] = {"scale": scale, "zero_point": zero_point}
    if x.dim() == 1:
        row = None if other is None else other[None]
        return _linear(x[None], weight, scales, zeros, bias, row, **scheme, **end)[0]
    own = _packed(x, weight, scales, zeros, bias, "quantised linear", pack)
    if own is None:
        return quantised_linear(x, weight, scales, zeros, bias, other, **scheme, **end)
    parts = _end(other, lambda: (*x.shape[:-1], len(weight)), INT8_LINEAR, torch.contiguous_format, **end)
    if parts is None:
        return _finished(_linear(x, weight, scales, zeros, bias, **scheme), None, other, **end)
    added, result, after = parts
    data = (x.contiguous(), scale, zero_point, own[0], scales, own[1])
    run = torch.ops.onednn.qlinear_pointwise
    found: Tensor = (
        run.default(*data, bias, *result, *after) if added is None else run.binary(*data, added, bias, *result, *after)
    )
    return found


def _conv2d(
    x: Tensor, weight: Tensor, scales: Tensor, zeros: Tensor, bias: Tensor | None = None, other: Tensor | None = None,
    *, scale: float, zero_point: int, stride: list[int], padding: list[int], dilation: list[int], groups: int,
    **end: Any,
) -> Tensor:  # fmt: skip
    window = (stride, padding, dilation, groups)

    def pack() -> Tensor:
        found: Tensor = torch.ops.onednn.qconv_prepack(weight, scales, 1.0, 0, *window, list(x.shape))
        return found

    how: dict[str, Any] = {
        "scale": scale, "zero_point": zero_point, "stride": stride, "padding": padding, "dilation": dilation,
        "groups": groups,
    }  # fmt: skip
    key = ("quantised conv2d", str(window), x.shape)
    own = _packed(x, weight, scales, zeros, bias, key, pack) if x.dim() == 4 else None
    if own is None:
        return _conv2d_formula(x, weight, scales, zeros, bias, other, **how, **end)
    parts = _end(other, lambda: Window.of(*window).shape(x, weight), INT8_CONV, _LAST, **end)
    if parts is None:
        product = _conv2d(x, weight, scales, zeros, bias, **how)
        return _finished(product, None, other, **end).contiguous(memory_format=_LAST)
    added, result, after = parts
    data = (x.contiguous(memory_format=_LAST), scale, zero_point, own[0], scales, own[1])
    onednn = torch.ops.onednn
    found: Tensor = (
        onednn.qconv_pointwise.default(*data, bias, *window, *result, *after) if added is None
        else onednn.qconv2d_pointwise.binary(*data, added, bias, *window, *result, *after)
    )  # fmt: skip
    return found


def _with_tensors(kernel: Kernel, *, on_values: bool) -> Kernel:
    """A kernel that takes the scale and the zero of its data as tensors of one element."""

    def run(
        x: Tensor, weight: Tensor, scales: Tensor, zeros: Tensor, scale: Tensor, zero_point: Tensor,
        bias: Tensor | None = None, other: Tensor | None = None, **how: Any,
    ) -> Tensor:  # fmt: skip
        scheme: dict[str, Any] = {"scale": scale.to(torch.float32), "zero_point": zero_point}
        if on_values:
            scheme = {"scale": scale.item(), "zero_point": zero_point.item()}
        return kernel(x, weight, scales, zeros, bias, other, **scheme, **how)

    return run


quantised_linear_dynamic: Final = _with_tensors(quantised_linear, on_values=False)
quantised_conv2d_dynamic: Final = _with_tensors(quantised_conv2d, on_values=False)


_OPERANDS: Final = "Tensor x, Tensor weight, Tensor scales, Tensor zeros, "
_LAST_OPERANDS: Final = "Tensor? bias=None, Tensor? other=None, *, "
_WINDOW: Final = "int[] stride, int[] padding, int[] dilation, int groups, "
_END: Final = (
    'str activation="none", float other_scale=1.0, int other_zero=0, float? out_scale=None, int out_zero=0) -> Tensor'
)


def _registered(name: str, attributes: str, kernel: Kernel, formula: Kernel) -> tuple[Any, Any]:
    """A layer with a scale and a zero that are numbers, and with those that are tensors."""
    numbers = f"{_OPERANDS}{_LAST_OPERANDS}float scale, int zero_point, "
    tensors = f"{_OPERANDS}Tensor scale, Tensor zero_point, {_LAST_OPERANDS}"
    made = register(f"{name}({numbers}{attributes}{_END}", kernel, formula)
    by_values, by_tensors = (_with_tensors(each, on_values=on) for each, on in ((kernel, True), (formula, False)))
    return made, register(f"{name}_dynamic({tensors}{attributes}{_END}", by_values, by_tensors)


QUANTISED_LINEAR, QUANTISED_LINEAR_DYNAMIC = _registered("quantised_linear", "", _linear, quantised_linear)
QUANTISED_CONV2D, QUANTISED_CONV2D_DYNAMIC = _registered("quantised_conv2d", _WINDOW, _conv2d, _conv2d_formula)

"""Numbers in eight bits, and linear layers and convolutions of them: data in uint8, weights in int8.

``gsl::quantised(x, scale, zero_point, quant_min, quant_max, dtype)``
    clip(round(x / scale) + zero_point, quant_min, quant_max), as ``quantized_decomposed::quantize_per_tensor``, whose
    functions make a tensor for each step
``gsl::dequantised(x, scale, zero_point, quant_min, quant_max, dtype)``
    scale (x - zero_point), as ``quantized_decomposed::dequantize_per_tensor``
``gsl::quantised_dynamic``, ``gsl::dequantised_dynamic``
    The same with a scale and a zero that are tensors of one element.
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


# Scales and zeros are numbers here, or tensors without axes.


def _single(number: Any) -> Any:
    return number.to(torch.float32) if isinstance(number, Tensor) else number


def quantised(
    x: Tensor, scale: Any, zero_point: Any, quant_min: int = 0, quant_max: int = 255, dtype: torch.dtype = torch.uint8
) -> Tensor:
    """clip(round(x / scale) + zero_point, quant_min, quant_max)"""
    moved = torch.round(x.to(torch.float32) * _single(1.0 / scale)) + zero_point
    return torch.clamp(moved, quant_min, quant_max).to(dtype)


def dequantised(x: Tensor, scale: Any, zero_point: Any, *_: Any) -> Tensor:
    """scale (x - zero_point)"""
    found: Tensor = (x.to(torch.float32) - zero_point) * _single(scale)
    return found


def _quantised(
    x: Tensor, scale: float, zero_point: int, quant_min: int, quant_max: int, dtype: torch.dtype
) -> Tensor:
    moved = x.to(torch.float32) * (1.0 / scale)
    moved.round_().add_(zero_point).clamp_(quant_min, quant_max)
    return _whole(moved, dtype)


def _whole(numbers: Tensor, dtype: torch.dtype) -> Tensor:
    """Whole numbers in another dtype. What turns floats into uint8 one by one is slower than two vector functions."""
    return (numbers.to(torch.int16) if dtype == torch.uint8 else numbers).to(dtype)


def _dequantised(x: Tensor, scale: float, zero_point: int, *_: Any) -> Tensor:
    return x.to(torch.float32, copy=True).sub_(zero_point).mul_(scale)


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
    data = dequantised(x, scale, zero_point)
    return _finished(F.linear(data, _weight(weight, scales, zeros)), bias, other, **end)


def quantised_conv2d(
    x: Tensor, weight: Tensor, scales: Tensor, zeros: Tensor, bias: Tensor | None = None, other: Tensor | None = None,
    *, scale: float, zero_point: int, stride: Sequence[int], padding: Sequence[int], dilation: Sequence[int],
    groups: int, **end: Any,
) -> Tensor:  # fmt: skip
    """The same of a convolution of images, which is padded by ``zero_point``."""
    data, own = dequantised(x, scale, zero_point), _weight(weight, scales, zeros)
    product = F.conv2d(data, own, None, list(stride), list(padding), list(dilation), groups)
    return _finished(product, None if bias is None else bias.reshape(-1, 1, 1), other, **end)


def _conv2d_formula(*args: Any, **how: Any) -> Tensor:
    return quantised_conv2d(*args, **how).contiguous(memory_format=_LAST)


def _packed(
    x: Tensor, weight: Tensor, scales: Tensor, zeros: Tensor, bias: Tensor | None, how: Any, pack: Callable[[], Tensor]
) -> tuple[Tensor, Tensor] | None:
    """The packed weight and its zeros; ``None`` at the first use of the weight, and where no kernel takes the call."""
    single, is_inference = torch.float32, Tensor.is_inference
    if x.dtype != torch.uint8 or weight.dtype != torch.int8 or scales.dtype != single or not x.numel():
        return None
    if bias is not None and (bias.dtype != single or is_inference(bias)):
        return None
    if is_inference(weight) or is_inference(scales) or is_inference(zeros):
        return None
    if not torch._C._has_mkldnn or not torch.cpu._is_vnni_supported():
        return None

    def make() -> tuple[Tensor, Tensor] | bool:
        return not zeros.any() and (pack(), zeros.to(torch.int32))

    return packed(weight, zeros, how, make) or None


def _end(
    other: Tensor | None, shape: Callable[[], Sequence[int]], taken: Set[str], memory: torch.memory_format,
    overwrites: bool, *, activation: str = "none", other_scale: float = 1.0, other_zero: int = 0,
    out_scale: float | None = None, out_zero: int = 0,
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
    place = other.contiguous(memory_format=memory) if overwrites else other.clone(memory_format=memory)
    return place, result, (other_scale, other_zero, "sum", 1.0, *after)


def _linear(
    x: Tensor, weight: Tensor, scales: Tensor, zeros: Tensor, bias: Tensor | None = None, other: Tensor | None = None,
    *, scale: float, zero_point: int, overwrites: bool = False, **end: Any,
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
    parts = _end(other, lambda: (*x.shape[:-1], len(weight)), INT8_LINEAR, torch.contiguous_format, overwrites, **end)
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
    overwrites: bool = False, **end: Any,
) -> Tensor:  # fmt: skip
    window = (tuple(stride), tuple(padding), tuple(dilation), groups)

    def pack() -> Tensor:
        found: Tensor = torch.ops.onednn.qconv_prepack(weight, scales, 1.0, 0, *window, list(x.shape))
        return found

    how: dict[str, Any] = {
        "scale": scale, "zero_point": zero_point, "stride": stride, "padding": padding, "dilation": dilation,
        "groups": groups,
    }  # fmt: skip
    key = ("quantised conv2d", window, x.shape)
    own = _packed(x, weight, scales, zeros, bias, key, pack) if x.dim() == 4 else None
    if own is None:
        return _conv2d_formula(x, weight, scales, zeros, bias, other, **how, **end)
    parts = _end(other, lambda: Window.of(*window).shape(x, weight), INT8_CONV, _LAST, overwrites, **end)
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


def _without_axes(tensor: Tensor) -> Any:
    return tensor.reshape(())


def _scheme_of_tensors(kernel: Kernel, value: Callable[[Tensor], Any]) -> Kernel:
    """A kernel that takes scale and zero as tensors of one element, for one that takes the ``value`` of each."""

    def run(x: Tensor, scale: Tensor, zero_point: Tensor, *scheme: Any) -> Tensor:
        return kernel(x, value(scale), value(zero_point), *scheme)

    return run


def _data_of_tensors(kernel: Kernel, value: Callable[[Tensor], Any]) -> Kernel:
    """The same for a layer and its data."""

    def run(
        x: Tensor, weight: Tensor, scales: Tensor, zeros: Tensor, scale: Tensor, zero_point: Tensor,
        bias: Tensor | None = None, other: Tensor | None = None, **how: Any,
    ) -> Tensor:  # fmt: skip
        scheme = {"scale": value(scale), "zero_point": value(zero_point)}
        return kernel(x, weight, scales, zeros, bias, other, **scheme, **how)

    return run


quantised_dynamic: Final = _scheme_of_tensors(quantised, _without_axes)
dequantised_dynamic: Final = _scheme_of_tensors(dequantised, _without_axes)
quantised_linear_dynamic: Final = _data_of_tensors(quantised_linear, _without_axes)
quantised_conv2d_dynamic: Final = _data_of_tensors(quantised_conv2d, _without_axes)


_OPERANDS: Final = "Tensor x, Tensor weight, Tensor scales, Tensor zeros, "
_TENSORS: Final = "Tensor scale, Tensor zero_point"
_LAST_OPERANDS: Final = "Tensor? bias=None, Tensor? other=None, *, "
_WINDOW: Final = "int[] stride, int[] padding, int[] dilation, int groups, "
_END: Final = (
    'str activation="none", float other_scale=1.0, int other_zero=0, float? out_scale=None, int out_zero=0) -> Tensor'
)


def _registered(name: str, kernel: Kernel, formula: Kernel) -> tuple[Any, Any]:
    """What quantises or dequantises, by a scale and a zero that are numbers, and by those that are tensors."""
    scheme, rest = "float scale, int zero_point", "int quant_min, int quant_max, ScalarType dtype) -> Tensor"
    by_values, by_tensors = _scheme_of_tensors(kernel, Tensor.item), _scheme_of_tensors(formula, _without_axes)
    made = register(f"{name}(Tensor input, {scheme}, {rest}", kernel, formula)
    return made, register(f"{name}_dynamic(Tensor input, {_TENSORS}, {rest}", by_values, by_tensors)


def _registered_layer(name: str, attributes: str, kernel: Kernel, formula: Kernel) -> tuple[Any, Any]:
    """A layer with a scale and a zero that are numbers, and with those that are tensors."""
    numbers = f"{_OPERANDS}{_LAST_OPERANDS}float scale, int zero_point, "
    tensors = f"{_OPERANDS}{_TENSORS}, {_LAST_OPERANDS}"
    by_values, by_tensors = _data_of_tensors(kernel, Tensor.item), _data_of_tensors(formula, _without_axes)
    made = register(f"{name}({numbers}{attributes}{_END}", kernel, formula, overwritable="other")
    dynamic = f"{name}_dynamic({tensors}{attributes}{_END}"
    return made, register(dynamic, by_values, by_tensors, overwritable="other")


QUANTISED, QUANTISED_DYNAMIC = _registered("quantised", _quantised, quantised)
DEQUANTISED, DEQUANTISED_DYNAMIC = _registered("dequantised", _dequantised, dequantised)
QUANTISED_LINEAR, QUANTISED_LINEAR_DYNAMIC = _registered_layer("quantised_linear", "", _linear, quantised_linear)
QUANTISED_CONV2D, QUANTISED_CONV2D_DYNAMIC = _registered_layer("quantised_conv2d", _WINDOW, _conv2d, _conv2d_formula)

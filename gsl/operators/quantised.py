"""Operators of quantised programs in torch: those that PT2E writes, and the quantised calls of ``gsl.kernels``.

The first are those of ``quantized_decomposed``, with the attributes that torch gives them. ``quant_min``, ``quant_max``
and ``dtype`` of what is dequantised are no part of its value.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.ao.quantization.fx._decomposed  # defines the operators
from torch import Tensor

from gsl.kernels import quantised as kernels
from gsl.operators.declare import library_operator

_BYTE: Any = {"dtype": ["uint8", "uint8"], "quant_min": [0, 3], "quant_max": [255, 127]}
_INT8: Any = {"dtype": ["int8", "int8"], "quant_min": [-128, -127], "quant_max": [127, 127], "axis": [0, 0]}
_CHANNELS: Any = {"scales": "float32[o]", "zero_points": "int64[o]"}


def _column(vector: Tensor, like: Tensor, axis: int) -> Tensor:
    """A vector along an axis of a tensor."""
    return vector.reshape([-1 if place == axis else 1 for place in range(like.dim())])


@library_operator("quantized_decomposed::quantize_per_tensor", **_BYTE)
def quantise(input: Tensor, *, scale: float, zero_point: int, quant_min: int, quant_max: int, dtype: str) -> Tensor:
    """clip(round(input / scale) + zero_point, quant_min, quant_max)"""
    moved = torch.round(input.to(torch.float32) * (1.0 / scale)) + zero_point
    return torch.clamp(moved, quant_min, quant_max).to(getattr(torch, dtype))


@library_operator("quantized_decomposed::dequantize_per_tensor", input="uint8[*b]", **_BYTE)
def dequantise(input: Tensor, *, scale: float, zero_point: int, quant_min: int, quant_max: int, dtype: str) -> Tensor:
    """scale (input - zero_point)"""
    return (input.to(torch.float32) - zero_point) * scale


_ONE: Any = {"scale": "float64[1]", "zero_point": "int64[1]"}


@library_operator("quantized_decomposed::quantize_per_tensor.tensor", input="float32[*b]", **_ONE, **_BYTE)
def quantise_dynamic(
    input: Tensor, scale: Tensor, zero_point: Tensor, *, quant_min: int, quant_max: int, dtype: str
) -> Tensor:
    """The same as ``quantise``, with a scale and a zero that are tensors of one element."""
    moved = torch.round(input.to(torch.float32) * (1.0 / scale).to(torch.float32)) + zero_point
    return torch.clamp(moved, quant_min, quant_max).to(getattr(torch, dtype))


@library_operator("quantized_decomposed::dequantize_per_tensor.tensor", input="uint8[*b]", **_ONE, **_BYTE)
def dequantise_dynamic(
    input: Tensor, scale: Tensor, zero_point: Tensor, *, quant_min: int, quant_max: int, dtype: str
) -> Tensor:
    """The same as ``dequantise``, with a scale and a zero that are tensors of one element."""
    return (input.to(torch.float32) - zero_point) * scale.to(torch.float32)


@library_operator("quantized_decomposed::quantize_per_channel", input="float32[o *r]", **_CHANNELS, **_INT8)
def quantise_channels(
    input: Tensor, scales: Tensor, zero_points: Tensor, *, axis: int, quant_min: int, quant_max: int, dtype: str
) -> Tensor:
    """clip(round(input / scales) + zero_points, quant_min, quant_max), with a scale and a zero for each channel"""
    scale, zero = _column(scales, input, axis), _column(zero_points, input, axis)
    moved = torch.round(input.to(torch.float32) * (1.0 / scale)) + zero
    return torch.clamp(moved, quant_min, quant_max).to(getattr(torch, dtype))


@library_operator("quantized_decomposed::dequantize_per_channel", input="int8[o *r]", **_CHANNELS, **_INT8)
def dequantise_channels(
    input: Tensor, scales: Tensor, zero_points: Tensor | None = None, *, axis: int, quant_min: int, quant_max: int,
    dtype: str,
) -> Tensor:  # fmt: skip
    """scales (input - zero_points), with a scale and a zero for each channel"""
    scale = _column(scales, input, axis)
    if zero_points is None:
        return input.to(torch.float32) * scale
    return (input.to(torch.float32) - _column(zero_points, input, axis)) * scale


@library_operator("gsl::quantised", **_BYTE)
def quantised(input: Tensor, *, scale: float, zero_point: int, quant_min: int, quant_max: int, dtype: str) -> Tensor:
    """The same as ``quantise``, by one kernel, see :mod:`gsl.kernels.quantised`."""
    return kernels.quantised(input, scale, zero_point, quant_min, quant_max, getattr(torch, dtype))


@library_operator("gsl::dequantised", input="uint8[*b]", **_BYTE)
def dequantised(input: Tensor, *, scale: float, zero_point: int, quant_min: int, quant_max: int, dtype: str) -> Tensor:
    """The same as ``dequantise``, by one kernel."""
    return kernels.dequantised(input, scale, zero_point)


@library_operator("gsl::quantised_dynamic", input="float32[*b]", **_ONE, **_BYTE)
def quantised_dynamic(
    input: Tensor, scale: Tensor, zero_point: Tensor, *, quant_min: int, quant_max: int, dtype: str
) -> Tensor:
    """The same as ``quantise_dynamic``, by one kernel."""
    return kernels.quantised_dynamic(input, scale, zero_point, quant_min, quant_max, getattr(torch, dtype))


@library_operator("gsl::dequantised_dynamic", input="uint8[*b]", **_ONE, **_BYTE)
def dequantised_dynamic(
    input: Tensor, scale: Tensor, zero_point: Tensor, *, quant_min: int, quant_max: int, dtype: str
) -> Tensor:
    """The same as ``dequantise_dynamic``, by one kernel."""
    return kernels.dequantised_dynamic(input, scale, zero_point)


_LAYER: Any = {"scales": "float32[o]", "zeros": "int64[o]", "bias": "float32[o]", "activation": ["none", "relu"],
               "out_scale": [None, 0.5], "out_zero": [0, 100]}  # fmt: skip
_WINDOW: Any = {"stride": [(1, 1), (2, 1)], "padding": [(0, 0), (1, 2)], "dilation": [(1, 1), (1, 2)], "groups": [1, 1]}


@library_operator("gsl::quantised_linear", x="uint8[*b i]", weight="int8[o i]", other="float32[*b o]", **_LAYER)
def quantised_linear(
    x: Tensor, weight: Tensor, scales: Tensor, zeros: Tensor, bias: Tensor | None = None, other: Tensor | None = None,
    *, scale: float, zero_point: int, activation: str = "none", other_scale: float = 1.0, other_zero: int = 0,
    out_scale: float | None = None, out_zero: int = 0,
) -> Tensor:  # fmt: skip
    """A linear layer of what is dequantised, see :mod:`gsl.kernels.quantised`."""
    return kernels.quantised_linear(
        x, weight, scales, zeros, bias, other, scale=scale, zero_point=zero_point, activation=activation,
        other_scale=other_scale, other_zero=other_zero, out_scale=out_scale, out_zero=out_zero,
    )  # fmt: skip


@library_operator("gsl::quantised_conv2d", x="uint8[b i 6 6]", weight="int8[o i 3 2]", **_LAYER, **_WINDOW)
def quantised_conv2d(
    x: Tensor, weight: Tensor, scales: Tensor, zeros: Tensor, bias: Tensor | None = None, other: Tensor | None = None,
    *, scale: float, zero_point: int, stride: tuple[int, ...], padding: tuple[int, ...], dilation: tuple[int, ...],
    groups: int, activation: str = "none", other_scale: float = 1.0, other_zero: int = 0,
    out_scale: float | None = None, out_zero: int = 0,
) -> Tensor:  # fmt: skip
    """The same of a convolution of images."""
    return kernels.quantised_conv2d(
        x, weight, scales, zeros, bias, other, scale=scale, zero_point=zero_point, stride=stride, padding=padding,
        dilation=dilation, groups=groups, activation=activation, other_scale=other_scale, other_zero=other_zero,
        out_scale=out_scale, out_zero=out_zero,
    )  # fmt: skip


@library_operator(
    "gsl::quantised_linear_dynamic", x="uint8[*b i]", weight="int8[o i]", other="float32[*b o]", **_ONE, **_LAYER
)
def quantised_linear_dynamic(
    x: Tensor, weight: Tensor, scales: Tensor, zeros: Tensor, scale: Tensor, zero_point: Tensor,
    bias: Tensor | None = None, other: Tensor | None = None, *, activation: str = "none", other_scale: float = 1.0,
    other_zero: int = 0, out_scale: float | None = None, out_zero: int = 0,
) -> Tensor:  # fmt: skip
    """A linear layer of what is dequantised with a scale and a zero that are tensors of one element."""
    return kernels.quantised_linear_dynamic(
        x, weight, scales, zeros, scale, zero_point, bias, other, activation=activation, other_scale=other_scale,
        other_zero=other_zero, out_scale=out_scale, out_zero=out_zero,
    )  # fmt: skip


@library_operator(
    "gsl::quantised_conv2d_dynamic", x="uint8[b i 6 6]", weight="int8[o i 3 2]", **_ONE, **_LAYER, **_WINDOW
)
def quantised_conv2d_dynamic(
    x: Tensor, weight: Tensor, scales: Tensor, zeros: Tensor, scale: Tensor, zero_point: Tensor,
    bias: Tensor | None = None, other: Tensor | None = None, *, stride: tuple[int, ...], padding: tuple[int, ...],
    dilation: tuple[int, ...], groups: int, activation: str = "none", other_scale: float = 1.0, other_zero: int = 0,
    out_scale: float | None = None, out_zero: int = 0,
) -> Tensor:  # fmt: skip
    """The same of a convolution of images."""
    return kernels.quantised_conv2d_dynamic(
        x, weight, scales, zeros, scale, zero_point, bias, other, stride=stride, padding=padding, dilation=dilation,
        groups=groups, activation=activation, other_scale=other_scale, other_zero=other_zero, out_scale=out_scale,
        out_zero=out_zero,
    )  # fmt: skip

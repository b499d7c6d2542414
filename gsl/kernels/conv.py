"""Convolutions with a bias, an addition and an activation, whose results have the channels last in memory."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

import torch
import torch.nn.functional as F
from torch import Tensor

from gsl.kernels.linear import in_int8, quantised
from gsl.kernels.operator import ACTIVATIONS, Activation, PackedKernel, fastest, is_packable, packed, register

_LAST: Final = torch.channels_last
_onednn = torch.ops.mkldnn._convolution_pointwise.default
_onednn_with_addition = torch.ops.mkldnn._convolution_pointwise.binary
_reorder = torch.ops.mkldnn._reorder_convolution_weight.default


@dataclass(frozen=True, slots=True)
class Window:
    """The movement of a kernel over its operand."""

    stride: tuple[int, ...]
    padding: tuple[int, ...]
    dilation: tuple[int, ...]
    groups: int

    @classmethod
    def of(
        cls, stride: Sequence[int] = (1, 1), padding: Sequence[int] = (0, 0), dilation: Sequence[int] = (1, 1),
        groups: int = 1,
    ) -> Window:  # fmt: skip
        """The window of these arguments of a call, of which the last ones may be left out."""
        return cls(tuple(stride), tuple(padding), tuple(dilation), groups)

    def shape(self, x: Tensor, weight: Tensor) -> tuple[int, ...]:
        """The shape of the result."""
        sizes = zip(x.shape[2:], weight.shape[2:], self.stride, self.padding, self.dilation)
        return (x.shape[0], weight.shape[0], *((n + 2 * p - d * (k - 1) - 1) // s + 1 for n, k, s, p, d in sizes))


def formula(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    addend: Tensor | None = None,
    *moves: Any,
    activation: str = "none",
    precision: str = "float32",
) -> Tensor:
    """The result of the operator, without the rounding of a lower precision; ``moves`` are those of a window."""
    result = F.conv2d(x, weight, bias, *moves)
    result = ACTIVATIONS[activation].function(result if addend is None else result + addend)
    return result.contiguous(memory_format=_LAST)


def kernel(
    x: Tensor, weight: Tensor, bias: Tensor | None = None, addend: Tensor | None = None, *moves: Any, **how: str
) -> Tensor:
    """The formula by a packed weight, where there is one."""
    if x.dim() != 4 or weight.dim() != 4 or not x.numel() or not is_packable(x, weight, bias):
        return formula(x, weight, bias, addend, *moves, **how)
    window, precision = Window.of(*moves), how.get("precision", "float32")
    name, adds = how.get("activation", "none"), addend is not None
    activation = ACTIVATIONS[name]
    x = x.contiguous(memory_format=_LAST)

    def make() -> PackedKernel:
        shape = ("conv2d", x.shape, weight.shape, bias is None, adds, window, name, precision)
        ways = _ways(x, weight, window, activation, adds, precision)
        return fastest(shape, "plain", ways, x, weight, bias, addend)

    run = packed(weight, bias, (window, name, adds, precision), make) or partial(_plain, activation, window)
    return run(x, weight, bias, addend)


def _plain(
    activation: Activation, window: Window, x: Tensor, weight: Tensor, bias: Tensor | None, addend: Tensor | None
) -> Tensor:
    w = window
    return _finished(F.conv2d(x, weight, bias, w.stride, w.padding, w.dilation, w.groups), addend, activation)


def _finished(result: Tensor, addend: Tensor | None, activation: Activation) -> Tensor:
    """A convolution, which is overwritten where it can be, with what follows it."""
    result = result.contiguous(memory_format=_LAST)
    if addend is not None:
        result = result.add_(addend) if addend.shape == result.shape else result + addend
    return activation.in_place(result).contiguous(memory_format=_LAST)


def _ways(
    x: Tensor, weight: Tensor, window: Window, activation: Activation, adds: bool, precision: str
) -> Mapping[str, Callable[[], PackedKernel | None]]:
    """The ways to compute a convolution. A run holds its packed weight, but not the weight itself: that would keep it
    alive."""
    fused, rest = (ACTIVATIONS["none"], activation) if adds else (activation, ACTIVATIONS["none"])
    ways: dict[str, Callable[[], PackedKernel | None]] = {
        "plain": lambda: partial(_plain, activation, window),
        "channels last": lambda: _by_channels_last(weight, window, activation),
        "onednn": lambda: _followed(_by_onednn(x.shape, weight, window, fused), rest),
    }
    if adds:
        ways["onednn with addition"] = lambda: _with_addition(x.shape, weight, window, activation)
    if precision == "bfloat16":
        ways["bfloat16"] = lambda: _followed(_in_bfloat16(x.shape, weight, window, fused), rest)
    if precision == "int8":
        ways["int8"] = lambda: _followed(_in_int8(x.shape, weight, window, fused), rest)
    return ways


def _followed(run: PackedKernel | None, activation: Activation) -> PackedKernel | None:
    """A run, and then an addition and an activation."""
    if run is None:
        return None
    return lambda x, weight, bias, addend: _finished(run(x, weight, bias), addend, activation)


def _by_channels_last(weight: Tensor, window: Window, activation: Activation) -> PackedKernel:
    own = weight.detach().clone(memory_format=_LAST)
    return lambda x, weight, bias, addend: _plain(activation, window, x, own, bias, addend)


def _by_onednn(shape: Sequence[int], weight: Tensor, window: Window, activation: Activation) -> PackedKernel | None:
    if not torch._C._has_mkldnn:
        return None
    w, name, algorithm = window, activation.name, activation.algorithm
    own = _reorder(weight, w.padding, w.stride, w.dilation, w.groups, list(shape))
    return lambda x, weight, bias: _onednn(
        x, own, bias, w.padding, w.stride, w.dilation, w.groups, name, [], algorithm
    )


def _with_addition(shape: Sequence[int], weight: Tensor, window: Window, activation: Activation) -> PackedKernel | None:
    """By a kernel that adds a tensor of the shape of its result, and knows no activation but relu."""
    if not torch._C._has_mkldnn:
        return None
    w, relu = window, "relu" if activation.name == "relu" else None
    own = _reorder(weight, w.padding, w.stride, w.dilation, w.groups, list(shape))
    alone = _by_onednn(shape, weight, window, ACTIVATIONS["none"])

    def run(x: Tensor, weight: Tensor, bias: Tensor | None, addend: Tensor) -> Tensor:
        if addend.shape != w.shape(x, weight) or addend.dtype != torch.float32:
            assert alone is not None
            return _finished(alone(x, weight, bias), addend, activation)
        result: Tensor = _onednn_with_addition(
            x, addend.contiguous(memory_format=_LAST), own, bias, w.padding, w.stride, w.dilation, w.groups,
            "add", 1.0, relu, [], "",
        )  # fmt: skip
        return result if relu else activation.in_place(result)

    return run


def _in_bfloat16(shape: Sequence[int], weight: Tensor, window: Window, activation: Activation) -> PackedKernel | None:
    if not torch.ops.mkldnn._is_mkldnn_bf16_supported():
        return None
    w = window
    own = _reorder(weight.to(torch.bfloat16), w.padding, w.stride, w.dilation, w.groups, list(shape))

    def run(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        data = x.to(torch.bfloat16)
        result = _onednn(data, own, None, w.padding, w.stride, w.dilation, w.groups, "none", [], "").to(torch.float32)
        return activation.in_place(result if bias is None else result.add_(bias[:, None, None]))

    return run


def _in_int8(shape: Sequence[int], weight: Tensor, window: Window, activation: Activation) -> PackedKernel | None:
    """By oneDNN's convolution of whole numbers. Torch's dynamic one rounds its result as if it were its operand."""
    w, small = window, in_int8(weight)
    if small is None:
        return None
    own = torch.ops.onednn.qconv_prepack(
        small.values, small.scales, 1.0, 0, w.stride, w.padding, w.dilation, w.groups, list(shape)
    )
    convolve, name, algorithm = torch.ops.onednn.qconv_pointwise.default, activation.name, activation.algorithm

    def run(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        data, scale, zero = quantised(x, small.reduced)
        result: Tensor = convolve(
            data, scale, zero, own, small.scales, small.zeros, bias, w.stride, w.padding, w.dilation, w.groups,
            1.0, 0, torch.float32, name, [], algorithm,
        )  # fmt: skip
        return result

    return run


CONV2D: Final = register(
    "conv2d(Tensor x, Tensor weight, Tensor? bias=None, Tensor? addend=None, int[2] stride=1, int[2] padding=0, "
    'int[2] dilation=1, int groups=1, *, str activation="none", str precision="float32") -> Tensor',
    kernel,
    formula,
)

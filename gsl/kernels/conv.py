"""Convolutions with a bias, an addition and an activation, whose results have the channels last in memory."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

import torch
import torch.nn.functional as F

from gsl.kernels.activations import ACTIVATIONS, Activation
from gsl.kernels.int8 import in_int8, quantised
from gsl.kernels.operator import is_packable, register
from gsl.kernels.packed import packed
from gsl.kernels.tune import Run, fastest

Tensor = torch.Tensor
_LAST: Final = torch.channels_last
_onednn = torch.ops.mkldnn._convolution_pointwise.default
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
    window = Window.of(*moves)
    activation, precision = how.get("activation", "none"), how.get("precision", "float32")
    name = activation if addend is None else "none"
    fused = ACTIVATIONS[name]
    x = x.contiguous(memory_format=_LAST)

    def make() -> Run:
        shape = ("conv2d", x.shape, weight.shape, bias is None, window, name, precision)
        return fastest(shape, "plain", _ways(x, weight, window, fused, precision), x, weight, bias)

    run = packed(weight, bias, (window, name, precision), make) or partial(_plain, fused, window)
    result = run(x, weight, bias)
    if addend is not None:
        result = result.add_(addend) if addend.shape == result.shape else result + addend
        result = ACTIVATIONS[activation].in_place(result)
    return result.contiguous(memory_format=_LAST)


def _plain(activation: Activation, window: Window, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    w = window
    return activation.in_place(F.conv2d(x, weight, bias, w.stride, w.padding, w.dilation, w.groups))


def _ways(
    x: Tensor, weight: Tensor, window: Window, activation: Activation, precision: str
) -> Mapping[str, Callable[[], Run | None]]:
    """The ways to compute a convolution. A run holds its packed weight, but not the weight itself: that would keep it
    alive."""
    ways: dict[str, Callable[[], Run | None]] = {
        "plain": lambda: partial(_plain, activation, window),
        "channels last": lambda: _by_channels_last(weight, window, activation),
        "onednn": lambda: _by_onednn(x.shape, weight, window, activation),
    }
    if precision == "bfloat16":
        ways["bfloat16"] = lambda: _in_bfloat16(x.shape, weight, window, activation)
    if precision == "int8":
        ways["int8"] = lambda: _in_int8(x.shape, weight, window, activation)
    return ways


def _by_channels_last(weight: Tensor, window: Window, activation: Activation) -> Run:
    own = weight.detach().clone(memory_format=_LAST)
    return lambda x, weight, bias: _plain(activation, window, x, own, bias)


def _by_onednn(shape: Sequence[int], weight: Tensor, window: Window, activation: Activation) -> Run | None:
    if not torch._C._has_mkldnn:
        return None
    w, name, algorithm = window, activation.name, activation.algorithm
    own = _reorder(weight, w.padding, w.stride, w.dilation, w.groups, list(shape))
    return lambda x, weight, bias: _onednn(
        x, own, bias, w.padding, w.stride, w.dilation, w.groups, name, [], algorithm
    )


def _in_bfloat16(shape: Sequence[int], weight: Tensor, window: Window, activation: Activation) -> Run | None:
    if not torch.ops.mkldnn._is_mkldnn_bf16_supported():
        return None
    w = window
    own = _reorder(weight.to(torch.bfloat16), w.padding, w.stride, w.dilation, w.groups, list(shape))

    def run(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        data = x.to(torch.bfloat16)
        result = _onednn(data, own, None, w.padding, w.stride, w.dilation, w.groups, "none", [], "").to(torch.float32)
        return activation.in_place(result if bias is None else result.add_(bias[:, None, None]))

    return run


def _in_int8(shape: Sequence[int], weight: Tensor, window: Window, activation: Activation) -> Run | None:
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

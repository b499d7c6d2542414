"""Linear layers and convolutions with a bias, an addition and an activation: with packed weights, also in eight bits.

The results of convolutions have the channels last in memory.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.utils._mode_utils import no_dispatch

from gsl.kernels.operator import (
    ACTIVATIONS,
    INT8_CONV,
    PLAIN,
    Activation,
    Kernel,
    fastest,
    is_packable,
    packed,
    register,
)

_LAST: Final = torch.channels_last
_linear_onednn = torch.ops.mkldnn._linear_pointwise.default
_linear_reorder = torch.ops.mkldnn._reorder_linear_weight.default
_conv_onednn = torch.ops.mkldnn._convolution_pointwise.default
_conv_onednn_with_addition = torch.ops.mkldnn._convolution_pointwise.binary
_conv_onednn_into_addend = torch.ops.mkldnn._convolution_pointwise_.binary
_conv_reorder = torch.ops.mkldnn._reorder_convolution_weight.default
_NOT_PACKED: Final = {"plain": 1.1, "channels last": 1.1}
"""A convolution that is not packed loses so much in a model, where neither its weight nor its code is in the cache."""


def linear_formula(
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


def linear_kernel(
    x: Tensor, weight: Tensor, bias: Tensor | None = None, addend: Tensor | None = None, **how: str
) -> Tensor:
    """The formula by a packed weight, where there is one, and a row.

    A single row has a packed weight of its own, because what is fastest for many rows is not for one.
    """
    rows = x.numel() // x.shape[-1] if x.dim() > 1 and x.shape[-1] else 0
    if not rows or weight.dim() != 2 or not is_packable(x, weight, bias):
        return linear_formula(x, weight, bias, addend, **how)
    activation, precision = how.get("activation", "none"), how.get("precision", "float32")
    fused = activation if addend is None else "none"

    def make() -> Kernel:
        shape = ("linear", rows, *weight.shape, bias is None, fused, precision)
        return fastest(shape, PLAIN, _linear_ways(weight, bias, rows, ACTIVATIONS[fused], precision), x, weight, bias)

    run = packed(weight, bias, (fused, precision, rows == 1), make)
    result = _linear_plain(ACTIVATIONS[fused], x, weight, bias) if run is None else run(x.contiguous(), weight, bias)
    return result if addend is None else ACTIVATIONS[activation].in_place(added(result, addend))


def added(result: Tensor, addend: Tensor) -> Tensor:
    """A sum in the memory of a result, where it has the shape of that."""
    return result.add_(addend) if addend.shape == result.shape else result + addend


def _linear_plain(activation: Activation, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    return activation.in_place(F.linear(x, weight, bias))


def _linear_ways(
    weight: Tensor, bias: Tensor | None, rows: int, activation: Activation, precision: str
) -> Mapping[str, Callable[[], Kernel | None]]:
    """The ways to compute a layer. A run holds its packed weight, but not the weight itself: that would keep it
    alive."""
    ways: dict[str, Callable[[], Kernel | None]] = {
        "plain": lambda: partial(_linear_plain, activation),
        "onednn": lambda: _linear_by_onednn(weight, activation),
        "mkl": lambda: _by_mkl(weight, rows, activation),
    }
    if precision == "bfloat16":
        ways["bfloat16"] = lambda: _linear_in_bfloat16(weight, activation)
    if precision == "int8":
        for engine in ENGINES:
            ways[f"int8 {engine}"] = partial(_linear_in_int8, engine, weight, bias, activation)
    return ways


def _linear_by_onednn(weight: Tensor, activation: Activation) -> Kernel | None:
    if not torch._C._has_mkldnn:
        return None
    own, after = _linear_reorder(weight), activation.onednn
    return lambda x, weight, bias: _linear_onednn(x, own, bias, *after)


def _by_mkl(weight: Tensor, rows: int, activation: Activation) -> Kernel | None:
    """MKL packs for a number of rows; for another one, its call is one with the plain weight."""
    if not torch._C.has_mkl:
        return None
    own, multiply = torch.ops.mkl._mkl_reorder_linear_weight(weight, rows), torch.ops.mkl._mkl_linear.default
    return lambda x, weight, bias: activation.in_place(multiply(x, own, weight, bias, rows))


def _linear_in_bfloat16(weight: Tensor, activation: Activation) -> Kernel | None:
    if not torch.ops.mkldnn._is_mkldnn_bf16_supported():
        return None
    own = _linear_reorder(weight.to(torch.bfloat16))

    def run(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        result = _linear_onednn(x.to(torch.bfloat16), own, None, "none", [], "").to(torch.float32)
        return activation.in_place(result if bias is None else result.add_(bias))

    return run


def _linear_in_int8(engine: str, weight: Tensor, bias: Tensor | None, activation: Activation) -> Kernel | None:
    found = packed_linear(engine, weight, bias)
    if found is None:
        return None
    own, reduced = found
    multiply = torch.ops.quantized.linear_dynamic.default
    return lambda x, weight, bias: activation.in_place(multiply(x, own, reduced))


LINEAR: Final = register(
    "linear(Tensor x, Tensor weight, Tensor? bias=None, Tensor? addend=None, *, "
    'str activation="none", str precision="float32") -> Tensor',
    linear_kernel,
    linear_formula,
)


# ---------------------------------------------------------------- eight bits


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
    values = torch.empty(0, dtype=torch.uint8).set_(found.untyped_storage(), 0, found.shape, found.stride())
    return values, found.q_scale(), found.q_zero_point()


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


with warnings.catch_warnings(), no_dispatch():  # also where this is loaded within a compiler, on fake tensors
    warnings.simplefilter("ignore")  # torch's quantised dtypes are to be replaced some day, which it says once
    torch._make_per_channel_quantized_tensor(
        torch.zeros(1, 1, dtype=torch.int8), torch.ones(1), torch.zeros(1, dtype=torch.long), 0
    )
    quantised(torch.zeros(1), reduced=False)


# ---------------------------------------------------------------- convolutions


class Window(NamedTuple):
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

    @property
    def onednn(self) -> tuple[Any, ...]:
        """The arguments of a convolution of oneDNN."""
        return self.padding, self.stride, self.dilation, self.groups

    def shape(self, x: Tensor, weight: Tensor) -> tuple[int, ...]:
        """The shape of the result."""
        sizes = zip(x.shape[2:], weight.shape[2:], self.stride, self.padding, self.dilation)
        return (x.shape[0], weight.shape[0], *((n + 2 * p - d * (k - 1) - 1) // s + 1 for n, k, s, p, d in sizes))


def conv_formula(
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


def conv_kernel(
    x: Tensor, weight: Tensor, bias: Tensor | None = None, addend: Tensor | None = None, *moves: Any,
    activation: str = "none", precision: str = "float32", overwrites: bool = False,
) -> Tensor:  # fmt: skip
    """The formula by a packed weight, where there is one, which may overwrite the addend if it ``overwrites`` it."""
    if not (x.dim() == weight.dim() == 4 and x.numel() and is_packable(x, weight, bias)):
        return conv_formula(x, weight, bias, addend, *moves, activation=activation, precision=precision)
    window, adds, function = Window.of(*moves), addend is not None, ACTIVATIONS[activation]
    x = x.contiguous(memory_format=_LAST)

    def make() -> Kernel:
        shape = ("conv2d", x.shape, weight.shape, bias is None, adds, window, activation, precision)
        ways = _conv_ways(x, weight, window, function, adds, precision)
        return fastest(shape, _NOT_PACKED, ways, x, weight, bias, addend)

    run = packed(weight, bias, (window, activation, adds, precision), make) or partial(conv_plain, function, window)
    return run(x, weight, bias, addend, overwrites)


def conv_plain(
    activation: Activation, window: Window, x: Tensor, weight: Tensor, bias: Tensor | None, addend: Tensor | None,
    *_: Any,
) -> Tensor:  # fmt: skip
    w = window
    return finished(F.conv2d(x, weight, bias, w.stride, w.padding, w.dilation, w.groups), addend, activation)


def finished(result: Tensor, addend: Tensor | None, activation: Activation) -> Tensor:
    """A convolution, which is overwritten where it can be, with what follows it."""
    result = result.contiguous(memory_format=_LAST)
    if addend is not None:
        result = added(result, addend)
    return activation.in_place(result).contiguous(memory_format=_LAST)


def _conv_ways(
    x: Tensor, weight: Tensor, window: Window, activation: Activation, adds: bool, precision: str
) -> Mapping[str, Callable[[], Kernel | None]]:
    """The ways to compute a convolution. A run holds its packed weight, but not the weight itself: that would keep it
    alive. It is told whether it may overwrite the addend, which only a kernel that adds can make use of."""
    none = ACTIVATIONS["none"]
    fused, rest = (none, activation) if adds else (activation, none)
    ways: dict[str, Callable[[], Kernel | None]] = {
        "plain": lambda: partial(conv_plain, activation, window),
        "channels last": lambda: _by_channels_last(weight, window, activation),
        "onednn": lambda: _followed(_conv_by_onednn(x.shape, weight, window, fused), rest, adds),
    }
    if adds:
        ways["onednn with addition"] = lambda: _with_addition(x.shape, weight, window, activation)
    if precision == "bfloat16":
        ways["bfloat16"] = lambda: _followed(_conv_in_bfloat16(x.shape, weight, window, fused), rest, adds)
    if precision == "int8":
        inner, outer = (fused, rest) if fused.name in INT8_CONV else (none, activation)
        ways["int8"] = lambda: _followed(_conv_in_int8(x.shape, weight, window, inner), outer, adds)
    return ways


def _followed(run: Kernel | None, activation: Activation, adds: bool) -> Kernel | None:
    """A run, then an addition if it ``adds`` one, then an activation."""
    if run is None:
        return None
    if not adds and activation is ACTIVATIONS["none"]:
        return lambda x, weight, bias, *_: run(x, weight, bias).contiguous(memory_format=_LAST)
    return lambda x, weight, bias, addend, *_: finished(run(x, weight, bias), addend, activation)


def _by_channels_last(weight: Tensor, window: Window, activation: Activation) -> Kernel:
    own = weight.detach().clone(memory_format=_LAST)
    return lambda x, weight, bias, addend, *_: conv_plain(activation, window, x, own, bias, addend)


def _conv_by_onednn(
    shape: Sequence[int], weight: Tensor, window: Window, activation: Activation
) -> Kernel | None:
    if not torch._C._has_mkldnn:
        return None
    own, moves, after = _conv_reorder(weight, *window.onednn, list(shape)), window.onednn, activation.onednn
    return lambda x, weight, bias: _conv_onednn(x, own, bias, *moves, *after)


def _with_addition(shape: Sequence[int], weight: Tensor, window: Window, activation: Activation) -> Kernel | None:
    """By a kernel that adds a tensor of the shape of its result, and knows no activation but relu."""
    if not torch._C._has_mkldnn:
        return None
    moves, relu = window.onednn, "relu" if activation.name == "relu" else None
    own = _conv_reorder(weight, *moves, list(shape))
    alone = _conv_by_onednn(shape, weight, window, ACTIVATIONS["none"])

    def run(x: Tensor, weight: Tensor, bias: Tensor | None, addend: Tensor, overwrites: bool = False) -> Tensor:
        if addend.shape != window.shape(x, weight) or addend.dtype != torch.float32:
            assert alone is not None
            return finished(alone(x, weight, bias), addend, activation)
        addend, after = addend.contiguous(memory_format=_LAST), (own, bias, *moves, "add", 1.0, relu, [], "")
        result: Tensor = (
            _conv_onednn_into_addend(addend, x, *after) if overwrites else _conv_onednn_with_addition(x, addend, *after)
        )
        return result if relu else activation.in_place(result)

    return run


def _conv_in_bfloat16(
    shape: Sequence[int], weight: Tensor, window: Window, activation: Activation
) -> Kernel | None:
    if not torch.ops.mkldnn._is_mkldnn_bf16_supported():
        return None
    moves = window.onednn
    own = _conv_reorder(weight.to(torch.bfloat16), *moves, list(shape))

    def run(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        result = _conv_onednn(x.to(torch.bfloat16), own, None, *moves, "none", [], "").to(torch.float32)
        return activation.in_place(result if bias is None else result.add_(bias[:, None, None]))

    return run


def _conv_in_int8(shape: Sequence[int], weight: Tensor, window: Window, activation: Activation) -> Kernel | None:
    """By oneDNN's convolution of whole numbers. Torch's dynamic one rounds its result as if it were its operand."""
    small = in_int8(weight)
    if small is None:
        return None
    moves = window.stride, window.padding, window.dilation, window.groups
    own = torch.ops.onednn.qconv_prepack(small.values, small.scales, 1.0, 0, *moves, list(shape))
    convolve, after = torch.ops.onednn.qconv_pointwise.default, activation.onednn

    def run(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        data, scale, zero = quantised(x, small.reduced)
        result: Tensor = convolve(
            data, scale, zero, own, small.scales, small.zeros, bias, *moves, 1.0, 0, torch.float32, *after
        )
        return result

    return run


CONV2D: Final = register(
    "conv2d(Tensor x, Tensor weight, Tensor? bias=None, Tensor? addend=None, int[2] stride=1, int[2] padding=0, "
    'int[2] dilation=1, int groups=1, *, str activation="none", str precision="float32") -> Tensor',
    conv_kernel,
    conv_formula,
    overwritable="addend",
)

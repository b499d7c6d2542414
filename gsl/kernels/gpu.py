"""The layers on a GPU: a product computes its activation, too, and a convolution a relu and an addition.

Products are those of cuBLASLt, which adds a bias, and computes a relu or GELU's tanh formula, before the result is
written. Convolutions are those of cuDNN with the channels last; of the ways to compute one, that is taken whose kernels
take the least time, the second time that a weight is used.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final

import torch
import torch.nn.functional as F
from torch import Tensor

from gsl.errors import is_exhaustion
from gsl.kernels.layers import CONV2D, LINEAR, Window, added, conv_formula, conv_plain, finished
from gsl.kernels.operator import ACTIVATIONS, PLAIN, Kernel, add_kernel, fastest, packed

_LAST: Final = torch.channels_last
_DTYPES: Final = (torch.float16, torch.bfloat16, torch.float32)
_IN_PRODUCT: Final = ("relu", "gelu_tanh")
"""The activations that a product computes."""
_product = torch.ops.aten._addmm_activation.default
_conv_relu = torch.ops.aten.cudnn_convolution_relu.default
_conv_add_relu = torch.ops.aten.cudnn_convolution_add_relu.default


def linear_on_gpu(
    x: Tensor, weight: Tensor, bias: Tensor | None = None, addend: Tensor | None = None, *, activation: str = "none",
    precision: str = "float32",
) -> Tensor:  # fmt: skip
    """The formula, in one kernel where there is one that does it."""
    is_one = activation in _IN_PRODUCT and addend is None and weight.dim() == 2 and x.numel() > 0
    if is_one and bias is not None and bias.dim() == 1 and bias.dtype == weight.dtype == x.dtype:
        rows = x.reshape(-1, x.shape[-1])
        result: Tensor = _product(bias, rows, weight.t(), use_gelu=activation == "gelu_tanh")
        return result.view(*x.shape[:-1], weight.shape[0])
    result = F.linear(x, weight, bias)
    return ACTIVATIONS[activation].in_place(result if addend is None else added(result, addend))


def conv_on_gpu(
    x: Tensor, weight: Tensor, bias: Tensor | None = None, addend: Tensor | None = None, *moves: Any, **how: str
) -> Tensor:
    """The formula by the fastest kernels, on a weight with the channels last."""
    if x.dim() != 4 or not x.numel() or not _is_packable(x, weight, bias):
        return conv_formula(x, weight, bias, addend, *moves, **how)
    window, name, adds = Window.of(*moves), how.get("activation", "none"), addend is not None
    x = x.contiguous(memory_format=_LAST)

    def make() -> Kernel | None:
        shape = ("conv2d", x.device, x.dtype, x.shape, weight.shape, bias is None, adds, window, name)
        ways = _conv_ways(x, weight, bias, addend, window, name)
        return fastest(shape, PLAIN, ways, x, weight, bias, addend, seconds=seconds_on_gpu)

    own = packed(weight, bias, (window, name, adds), make, captures=torch.cuda.is_current_stream_capturing())
    run = own or partial(conv_plain, ACTIVATIONS[name], window)
    return run(x, weight, bias, addend)


def _is_packable(x: Tensor, weight: Tensor, bias: Tensor | None) -> bool:
    """True if all have one dtype, and the weight and the bias versions that tell when they were changed."""
    given = (weight,) if bias is None else (weight, bias)
    return x.dtype in _DTYPES and all(each.dtype == x.dtype and not each.is_inference() for each in given)


def _conv_ways(
    x: Tensor, weight: Tensor, bias: Tensor | None, addend: Tensor | None, window: Window, activation: str
) -> Mapping[str, Callable[[], Kernel | None]]:
    """The ways to compute a convolution. A run holds its packed weight, but not the weight itself: that would keep it
    alive."""
    own = weight.detach().clone(memory_format=_LAST)
    plain = partial(conv_plain, ACTIVATIONS[activation], window)
    ways: dict[str, Callable[[], Kernel | None]] = {
        "plain": lambda: plain,
        "channels last": lambda: lambda x, weight, bias, addend: plain(x, own, bias, addend),
    }
    if activation == "relu":
        ways["cudnn"] = lambda: _by_cudnn(own, window, (x, weight, bias, addend))
    if weight.shape[2:] == (1, 1) and window == Window.of():
        ways["product"] = lambda: partial(_by_product, own.flatten(1), activation)
    return ways


def _by_product(
    matrix: Tensor, activation: str, x: Tensor, weight: Tensor, bias: Tensor | None, addend: Tensor | None
) -> Tensor:
    """A convolution that looks at one place at a time: a product of the places with a matrix of the channels."""
    places = x.permute(0, 2, 3, 1)
    if addend is None:
        return linear_on_gpu(places, matrix, bias, activation=activation).permute(0, 3, 1, 2)
    return finished(F.linear(places, matrix, bias).permute(0, 3, 1, 2), addend, ACTIVATIONS[activation])


def _by_cudnn(own: Tensor, window: Window, call: tuple[Tensor | None, ...]) -> Kernel | None:
    """By the kernels that add a bias, and a tensor of the shape of their result, before a relu; ``None`` where there is
    none for the call."""
    moves = (window.stride, window.padding, window.dilation, window.groups)
    zeros = own.new_zeros(own.shape[0])

    def run(x: Tensor, weight: Tensor, bias: Tensor | None, addend: Tensor | None) -> Tensor:
        shift = zeros if bias is None else bias
        if addend is None:
            return _in_order(_conv_relu(x, own, shift, *moves))
        if addend.shape != window.shape(x, weight) or addend.dtype != x.dtype:
            return conv_plain(ACTIVATIONS["relu"], window, x, own, bias, addend)
        other = addend.contiguous(memory_format=_LAST)
        return _in_order(_conv_add_relu(x, own, other, 1.0, shift, *moves))

    try:
        run(*call)  # type: ignore[arg-type]
    except RuntimeError as error:
        if is_exhaustion(error):
            raise
        return None
    return run


def _in_order(result: Tensor) -> Tensor:
    """A result with the channels last, as a kernel mostly returns it."""
    return result.contiguous(memory_format=_LAST)


_CALLS: Final = 10
_CYCLES: Final = 2_000_000
"""The cycles for which a GPU waits while calls are queued, so that their kernels follow each other: a millisecond."""


def seconds_on_gpu(call: Callable[[], object]) -> float:
    """The seconds that the kernels of a call take, without the time that it takes to launch them."""
    cuda: Any = torch.cuda
    before, after = cuda.Event(enable_timing=True), cuda.Event(enable_timing=True)
    cuda._sleep(_CYCLES)
    before.record()
    for _ in range(_CALLS):
        call()
    after.record()
    after.synchronize()
    return float(before.elapsed_time(after)) / _CALLS / 1e3


add_kernel(LINEAR, "CUDA", linear_on_gpu)
add_kernel(CONV2D, "CUDA", conv_on_gpu)

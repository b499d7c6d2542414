"""Products together with the calls that follow them, as the kernels of ``gsl.kernels`` compute them."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final

from gsl.spec import examples as e
from gsl.spec import normalise as n
from gsl.spec.examples import call
from gsl.spec.spec import AttrSpec, OpSpec

ACTIVATIONS: Final[Mapping[str, tuple[str, Mapping[str, Any]]]] = MappingProxyType({
    "relu": ("nn.relu", {}),
    "gelu": ("gelu", {"approximate": "none"}),
    "gelu_tanh": ("gelu", {"approximate": "tanh"}),
    "silu": ("silu", {}),
    "tanh": ("tanh", {}),
    "sigmoid": ("sigmoid", {}),
    "hardswish": ("hardswish", {}),
    "hardsigmoid": ("hardsigmoid", {}),
})  # fmt: skip
"""The operator, with its attributes, that each activation of these kernels is; ``"none"`` is beside them."""

PRECISIONS: Final = ("float32", "bfloat16", "int8")
"""The precision of the products. It is no part of the meaning, which has no rounding at all."""

_FUSED: Final = {
    "activation": n.word("none", *ACTIVATIONS),
    "precision": n.word(*PRECISIONS),
}


def _activated(torch: Any, x: Any, activation: str) -> Any:
    match activation:
        case "none":
            return x
        case "gelu_tanh":
            return torch.nn.functional.gelu(x, approximate="tanh")
        case "tanh" | "sigmoid":
            return getattr(torch, activation)(x)
    return getattr(torch.nn.functional, activation)(x)


def _dense(torch: Any, data: Any, weight: Any, bias: Any = None, *, activation: str, precision: str) -> Any:
    if weight.dim() != 2:
        raise ValueError(f"expected a weight of 2 dimensions, found {weight.dim()}")
    return _activated(torch, torch.nn.functional.linear(data, weight, bias), activation)


def _dense_add(
    torch: Any, data: Any, weight: Any, addend: Any, bias: Any = None, *, activation: str, precision: str
) -> Any:
    result = _dense(torch, data, weight, bias, activation="none", precision=precision)
    return _activated(torch, result + addend, activation)


NAMES: Final = ("packed.dense", "packed.dense_add", "packed.conv2d", "packed.conv2d_add")
def _conv2d(
    torch: Any, data: Any, weight: Any, bias: Any = None, *, strides: tuple[int, ...], padding: tuple[int, ...],
    dilation: tuple[int, ...], groups: int, activation: str, precision: str,
) -> Any:  # fmt: skip
    top, left, bottom, right = padding
    both = (top, left)
    if both != (bottom, right):
        data, both = torch.nn.functional.pad(data, (left, right, top, bottom)), (0, 0)
    result = torch.nn.functional.conv2d(data, weight, bias, strides, both, dilation, groups)
    return _activated(torch, result, activation)


def _conv2d_add(
    torch: Any, data: Any, weight: Any, addend: Any, bias: Any = None, *, activation: str, **attrs: Any
) -> Any:
    result = _conv2d(torch, data, weight, bias, activation="none", **attrs)
    return _activated(torch, result + addend, activation)


_WINDOW: Final = {
    "strides": AttrSpec((1, 1), n.per_axis(2)),
    "padding": AttrSpec((0, 0, 0, 0), n.padding(2)),
    "dilation": AttrSpec((1, 1), n.per_axis(2)),
    "groups": AttrSpec(1, n.positive),
}

REASON: Final = "a kernel of torch for the CPU, see gsl.kernels"
"""The reason why other frameworks don't have them."""

_WEIGHT, _SUM, _SUMS = e.rand(5, 4), e.rand(2, 3, 5), e.rand(2, 6, 5, 5)

OPS: tuple[OpSpec, ...] = (
    # activation(data weight^T + bias)
    OpSpec(
        "packed.dense",
        "PackedDense",
        ("data", "weight", "bias"),
        _dense,
        _FUSED,
        optional=1,
        examples=(call(e.X, _WEIGHT, activation="silu"), call(e.X, _WEIGHT, e.rand(5), precision="int8")),
    ),
    # activation(data weight^T + bias + addend)
    OpSpec(
        "packed.dense_add",
        "PackedDenseAdd",
        ("data", "weight", "addend", "bias"),
        _dense_add,
        _FUSED,
        optional=1,
        examples=(call(e.X, _WEIGHT, _SUM), call(e.X, _WEIGHT, _SUM, e.rand(5), activation="silu")),
    ),
    # The same of a convolution of NCHW by OIHW.
    OpSpec(
        "packed.conv2d",
        "PackedConv2D",
        ("data", "weight", "bias"),
        _conv2d,
        {**_WINDOW, **_FUSED},
        optional=1,
        examples=(
            call(e.IMAGE, e.KERNEL, padding=(1, 2, 3, 0), activation="silu"),
            call(e.IMAGE, e.rand(6, 2, 3, 2), e.BIAS, groups=2, precision="bfloat16"),
        ),
    ),
    OpSpec(
        "packed.conv2d_add",
        "PackedConv2DAdd",
        ("data", "weight", "addend", "bias"),
        _conv2d_add,
        {**_WINDOW, **_FUSED},
        optional=1,
        examples=(
            call(e.IMAGE, e.KERNEL, _SUMS),
            call(e.IMAGE, e.KERNEL, _SUMS, e.BIAS, activation="silu"),
        ),
    ),
)

"""Products together with the calls that follow them, as the kernels of ``gsl.kernels`` compute them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, Final

from gsl.spec import activation, conv, linear, math
from gsl.spec import examples as e
from gsl.spec import normalise as n
from gsl.spec.examples import call
from gsl.spec.spec import AttrSpec, Calculus, OpSpec

ACTIVATIONS: Final[Mapping[str, tuple[str, Mapping[str, Any]]]] = MappingProxyType({
    "relu": ("nn.relu", {}),
    "relu6": ("nn.relu6", {}),
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


def _definition(op: str, axis: int, adds: bool, **plain: Any) -> Callable[..., Any]:
    """The definition of ``activation(product + bias + addend)``, with a product of that operator."""

    def definition(
        o: Calculus, data: Any, weight: Any, *others: Any, activation: str, precision: str, **window: Any
    ) -> Any:
        result = o(op, data, weight, **window, **plain)
        for bias in others[adds:]:
            result = o("nn.bias_add", result, bias, axis=axis % len(o.shape(result)))
        for addend in others[:adds]:
            result = o("add", result, addend)
        if activation == "none":
            return result
        function, attrs = ACTIVATIONS[activation]
        return o(function, result, **attrs)

    return definition


_PLAIN: Final = {"data_layout": "NCHW", "kernel_layout": "OIHW", "out_layout": "", "out_dtype": ""}
DEFINITIONS: Final[Mapping[str, Callable[..., Any]]] = MappingProxyType({
    "packed.dense": _definition("nn.dense", -1, False, out_dtype=""),
    "packed.dense_add": _definition("nn.dense", -1, True, out_dtype=""),
    "packed.conv2d": _definition("nn.conv2d", 1, False, **_PLAIN),
    "packed.conv2d_add": _definition("nn.conv2d", 1, True, **_PLAIN),
})  # fmt: skip
"""The operators by others, in a :class:`Calculus`."""
NAMES: Final = tuple(DEFINITIONS)


PARTS: Final = {spec.name: spec for family in (activation, conv, linear, math) for spec in family.OPS}
"""The operators of which these consist."""


class _Meanings:
    """The calculus of torch's tensors."""

    def __init__(self, torch: Any) -> None:
        self.torch = torch

    def __call__(self, op: str, *operands: Any, **attrs: Any) -> Any:
        return PARTS[op].meaning(self.torch, *operands, **attrs)

    def shape(self, value: Any) -> tuple[Any, ...]:
        return tuple(value.shape)


def _meaning(name: str) -> Callable[..., Any]:
    return lambda torch, *operands, **attrs: DEFINITIONS[name](_Meanings(torch), *operands, **attrs)


_WINDOW: Final = {
    "strides": AttrSpec((1, 1), n.per_axis(2)),
    "padding": AttrSpec((0, 0, 0, 0), n.padding(2)),
    "dilation": AttrSpec((1, 1), n.per_axis(2)),
    "groups": AttrSpec(1, n.positive),
}

REASON: Final = "a kernel of torch, see gsl.kernels"
"""The reason why other frameworks don't have them."""

_WEIGHT, _SUM, _SUMS = e.rand(5, 4), e.rand(2, 3, 5), e.rand(2, 6, 5, 5)

OPS: tuple[OpSpec, ...] = (
    # activation(data weight^T + bias)
    OpSpec(
        "packed.dense",
        "PackedDense",
        ("data", "weight", "bias"),
        _meaning("packed.dense"),
        _FUSED,
        optional=1,
        examples=(call(e.X, _WEIGHT, activation="silu"), call(e.X, _WEIGHT, e.rand(5), precision="int8")),
    ),
    # activation(data weight^T + bias + addend)
    OpSpec(
        "packed.dense_add",
        "PackedDenseAdd",
        ("data", "weight", "addend", "bias"),
        _meaning("packed.dense_add"),
        _FUSED,
        optional=1,
        examples=(call(e.X, _WEIGHT, _SUM), call(e.X, _WEIGHT, _SUM, e.rand(5), activation="silu")),
    ),
    # The same of a convolution of NCHW by OIHW.
    OpSpec(
        "packed.conv2d",
        "PackedConv2D",
        ("data", "weight", "bias"),
        _meaning("packed.conv2d"),
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
        _meaning("packed.conv2d_add"),
        {**_WINDOW, **_FUSED},
        optional=1,
        examples=(
            call(e.IMAGE, e.KERNEL, _SUMS),
            call(e.IMAGE, e.KERNEL, _SUMS, e.BIAS, activation="silu"),
        ),
    ),
)

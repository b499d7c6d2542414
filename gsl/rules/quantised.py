"""Rules for quantised programs of torch, as PT2E writes them.

They remove what is quantised or dequantised twice, and make one call of a layer between operands that are dequantised.
They are for inference on a CPU; the operators are those of ``gsl.operators.quantised``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from gsl import attr, op, pat
from gsl.operators import quantised as q
from gsl.rewrite import RuleSet, Subst
from gsl.rules.common import RuleSides, rule
from gsl.rules.cpu import conv

SCHEME = ("scale", "zero_point", "quant_min", "quant_max", "dtype")
"""The attributes that tell how numbers are quantised."""


def back(data: pat.Pattern, **scheme: Any) -> tuple[pat.Call, pat.Call]:
    """What is dequantised, and quantised again in the same way."""
    floats = q.dequantise(data, **scheme)
    return floats, q.quantise(floats, **pat.same_attr(floats, SCHEME))


def usual(floats: pat.Call) -> attr.Expr:
    """True for a scale with which no number overflows, nor is lost, and a zero that single precision holds."""
    scale = (floats.scale > 1e-30) & (floats.scale < 1e30)
    return scale & (floats.zero_point >= -255) & (floats.zero_point <= 255)


def once(function: Any) -> RuleSides:
    x = pat.Wildcard()
    first, second = function(x), function(x)
    return [first, second], [first, first], pat.attr_eq(first, second)


@rule(priority=1)
def quantise_again() -> RuleSides:
    """q(dq(q(x))) = q(x)

    For one way to quantise.
    """
    x = pat.Wildcard()
    first = q.quantise(x)
    floats, second = back(first, **pat.same_attr(first, SCHEME))
    return second, first, usual(floats)


@rule()
def quantise_dequantised() -> RuleSides:
    """q(dq(x)) = x

    For one way to quantise, which uses all numbers of the dtype.
    """
    x = pat.Wildcard()
    floats, again = back(x)
    byte = (again.dtype == "uint8") & (again.quant_min == 0) & (again.quant_max == 255)
    signed = (again.dtype == "int8") & (again.quant_min == -128) & (again.quant_max == 127)
    return again, x, (byte | signed) & (x.dtype == again.dtype), usual(floats)


@rule()
def quantise_once() -> RuleSides:
    """q(x), q(x) = q(x)

    For one way to quantise.
    """
    return once(q.quantise)


@rule()
def dequantise_once() -> RuleSides:
    """dq(x), dq(x) = dq(x)

    For one way to dequantise.
    """
    return once(q.dequantise)


# Layers


Product = Callable[[pat.Pattern, pat.Pattern], pat.Call]
Target = Callable[..., Any]


def layers(name: str, product: Product, target: Target, where: Callable[[pat.Call], attr.Expr]) -> tuple[Subst, ...]:
    """The rules for a product: alone, with a bias, and with a relu behind either. The larger ones go first."""

    def made(form: str, priority: int) -> Subst:
        x, w = pat.Wildcard(dtype="uint8"), pat.Param(dtype="int8")
        scales, zeros, b = pat.Param(dtype="float32"), pat.Param(), pat.Param(dtype="float32")
        data, weight = q.dequantise(x), q.dequantise_channels(w, scales, zeros, axis=0)
        found = product(data, weight)
        biased = op.BiasAdd(found, b, axis=1 if name == "conv" else found.ndim - 1)
        how = {"scale": data.scale, "zero_point": data.zero_point, "activation": "relu" if "relu" in form else "none"}
        operands = (x, w, scales, zeros, b) if "bias" in form else (x, w, scales, zeros)
        layer = biased if "bias" in form else found
        return Subst(
            op.ReLU(layer) if "relu" in form else layer, target(found, *operands, **how), where=where(found),
            name="-".join(("quantised", name, *form.split())), priority=priority,
            doc=f"{name} of dequantised operands{''.join(f', {part}' for part in form.split())} = one quantised call",
        )  # fmt: skip

    return tuple(made(form, number + 2) for number, form in enumerate(("", "bias", "relu", "bias relu")))


def _dense(data: pat.Pattern, weight: pat.Pattern) -> pat.Call:
    return op.Dense(data, weight, out_dtype="")


def _linear(found: pat.Call, *operands: Any, **how: Any) -> Any:
    return q.quantised_linear(*operands, **how)


def _conv2d(found: pat.Call, *operands: Any, **how: Any) -> Any:
    return q.quantised_conv2d(
        *operands, **how, stride=found.strides, padding=attr.Tuple(found.padding[0], found.padding[1]),
        dilation=found.dilation, groups=found.groups,
    )  # fmt: skip


def _symmetric(found: pat.Call) -> attr.Expr:
    padding = found.padding
    return (padding[0] == padding[2]) & (padding[1] == padding[3])


LAYERS = (
    *layers("dense", _dense, _linear, lambda found: found.ndim > 1),
    *layers("conv", conv, _conv2d, _symmetric),
)
SHARED = (quantise_again, quantise_dequantised, quantise_once, dequantise_once)
QUANTISED = RuleSet((*SHARED, *LAYERS))
"""The rules for quantised programs."""

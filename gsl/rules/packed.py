"""Products together with what follows them, as the operators of ``gsl.kernels`` compute them: the sides of rules, for
operands of which a condition tells whether they fit."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from gsl import attr, op, pat
from gsl.rules.common import RuleSides
from gsl.spec.packed import ACTIVATIONS

Fits = Callable[..., attr.Expr]
"""The condition on operands: a function of their patterns."""


def dense(x: pat.Pattern, w: pat.Pattern) -> pat.Alt:
    """A layer by a weight: in the form (units, in), or multiplied from the right as (in, units)."""
    return pat.Alt(op.Dense(x, w, out_dtype=""), op.Matmul(x, w, out_dtype=""))


def as_rows(product: pat.Alt, w: pat.Pattern) -> pat.Match:
    """The weight of a layer as (units, in)."""
    return pat.Match(product, [w, op.Transpose(w, axes=(1, 0))])


def activated(y: pat.Pattern) -> pat.Alt:
    """An activation of y, as one of those that kernels compute, in their order."""
    return pat.Alt(*(pat.Call(name, y, **attrs) for name, attrs in ACTIVATIONS.values()))


def by_activation(activation: pat.Alt, target: Any) -> pat.Match:
    """The result of ``target`` for the name of the activation that was matched."""
    return pat.Match(activation, [target(name) for name in ACTIVATIONS])


# Convolutions


def conv(x: pat.Pattern, w: pat.Pattern) -> pat.Call:
    """A convolution of images, the channels first."""
    return op.Conv2D(x, w, data_layout="NCHW", kernel_layout="OIHW", out_layout="", out_dtype="")


def window(product: pat.Pattern) -> dict[str, Any]:
    """The attributes of the movement of a convolution's kernel."""
    return {name: getattr(product, name) for name in ("strides", "padding", "dilation", "groups")}


def packed_conv(product: pat.Pattern, x: pat.Pattern, *others: pat.Pattern, **attrs: Any) -> pat.Pattern:
    """The packed call for a convolution of images by a weight, with or without a bias."""
    return op.PackedConv2D(x, *others, **window(product), **attrs)


def signal(x: pat.Pattern, w: pat.Pattern) -> pat.Call:
    """A convolution of signals, the channels first."""
    return op.Conv1D(x, w, data_layout="NCW", kernel_layout="OIW", out_layout="", out_dtype="")


def packed_signal(
    product: pat.Pattern, x: pat.Pattern, w: pat.Pattern, *bias: pat.Pattern, **attrs: Any
) -> pat.Pattern:
    """The packed call for a convolution of signals, as images of one row."""
    before, after = product.padding[0], product.padding[1]
    moved = {
        "strides": (1, product.strides[0]),
        "padding": (0, before, 0, after),
        "dilation": (1, product.dilation[0]),
        "groups": product.groups,
    }
    rows, weight = op.ExpandDims(x, axis=2), op.ExpandDims(w, axis=2)
    return op.Squeeze(op.PackedConv2D(rows, weight, *bias, **moved, **attrs), axis=2)


@dataclass(frozen=True)
class Convolution:
    """A kind of convolution, and the packed call for it."""

    product: Callable[[pat.Pattern, pat.Pattern], pat.Call] = conv
    packed: Callable[..., pat.Pattern] = packed_conv


IMAGES: Final = Convolution()
SIGNALS: Final = Convolution(signal, packed_signal)


def conv_alone(fits: Fits, kind: Convolution = IMAGES) -> RuleSides:
    """conv(x, w)"""
    x, w = pat.Wildcard(), pat.Param()
    product = kind.product(x, w)
    return product, kind.packed(product, x, w), fits(x, w)


def conv_bias(fits: Fits, b: pat.Pattern, kind: Convolution = IMAGES) -> RuleSides:
    """conv(x, w) + b"""
    x, w = pat.Wildcard(), pat.Param()
    product = kind.product(x, w)
    return op.BiasAdd(product, b, axis=1), kind.packed(product, x, w, b), fits(x, w)


def conv_activation(fits: Fits, b: pat.Pattern, kind: Convolution = IMAGES) -> RuleSides:
    """f(conv(x, w) + b), with a bias or without"""
    x, w = pat.Wildcard(), pat.Param()
    product = kind.product(x, w)
    layer = pat.Alt(op.BiasAdd(product, b, axis=1), product)
    f = activated(layer)

    def target(name: str) -> pat.Match:
        given = [(x, w, b), (x, w)]
        return pat.Match(layer, [kind.packed(product, *operands, activation=name) for operands in given])

    return f, by_activation(f, target), fits(x, w)


def conv_add(fits: Fits, b: pat.Pattern, activation: str = "none") -> RuleSides:
    """conv(x, w) + b + y, with a bias or without, for a y of the same shape; or a relu of that"""
    x, w, y = pat.Wildcard(), pat.Param(), pat.Wildcard()
    product = conv(x, w)
    layer, moved = pat.Alt(op.BiasAdd(product, b, axis=1), product), {**window(product), "activation": activation}
    targets = [op.PackedConv2DAdd(x, w, y, b, **moved), op.PackedConv2DAdd(x, w, y, **moved)]
    source = op.ReLU(layer + y) if activation == "relu" else layer + y
    return source, pat.Match(layer, targets), fits(x, w, y) & (y.shape == product.shape)

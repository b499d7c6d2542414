"""The rules as GSL writes them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from benchmarks.peers import native
from benchmarks.terms import Rule
from gsl import Subst, op, pat

aten = native.aten
Make = Callable[..., pat.Pattern]


def linear(x: Any, w: Any, b: Any = None) -> pat.Pattern:
    """A product and its bias, which are two operators in GSL."""
    product = op.Dense(x, w)
    return product if b is None else op.BiasAdd(product, b)


def mean(x: Any, axes: list[int], keep: bool) -> pat.Pattern:
    """The mean over the last of three axes."""
    assert axes == [-1]
    return op.Mean(x, axis=(2,), keepdims=keep)


MADE: Mapping[Any, Make] = {
    aten.conv2d.default: lambda x, w: op.Conv2D(
        x, w, strides=(1, 1), padding=(0, 0, 0, 0), dilation=(1, 1), groups=1, data_layout="NCHW"
    ),
    aten.batch_norm.default: lambda x, g, b, m, v, training, momentum, eps, cudnn: op.BatchNorm(
        x, g, b, m, v, epsilon=eps
    ),
    aten.relu.default: op.ReLU,
    aten.exp.default: op.Exp,
    aten.log.default: op.Log,
    aten.sin.default: op.Sin,
    aten.abs.default: op.Abs,
    aten.sqrt.default: op.Sqrt,
    aten.neg.default: op.Negative,
    aten.tanh.default: op.Tanh,
    aten.erf.default: op.Erf,
    aten.floor.default: op.Floor,
    aten.ceil.default: op.Ceil,
    aten.sigmoid.default: op.Sigmoid,
    aten.silu.default: op.SiLU,
    aten.gelu.default: lambda x: op.GELU(x, approximate="none"),
    aten.rsqrt.default: op.Rsqrt,
    aten.add.Tensor: op.Add,
    aten.mul.Tensor: op.Multiply,
    aten.sub.Tensor: op.Subtract,
    aten.pow.Tensor_Scalar: op.Power,
    aten.mean.dim: mean,
    aten.linear.default: linear,
    aten.dropout.default: lambda x, rate, train: op.Dropout(x),
    aten.layer_norm.default: lambda x, shape, g, b, eps, cudnn: op.LayerNorm(x, g, b, epsilon=eps),
}
"""For the operators of torch, the patterns of GSL."""


def subst(rule: Rule) -> Subst:
    """A rule of terms as one of GSL; like the peers, it leaves a match alone whose inner nodes are used elsewhere."""
    leaves = {leaf: pat.Wildcard() for leaf in rule.leaves}
    source = native.walked(rule.source, lambda target, arguments: MADE[target](*arguments), leaves.__getitem__)
    return Subst(source, pat.Call(native.fused(rule), *leaves.values()), name=rule.name, extern_use=False)


def substs(rules: Sequence[Rule]) -> list[Subst]:
    """Rules of terms as rules of GSL."""
    return [subst(rule) for rule in rules]



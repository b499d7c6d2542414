"""Wrong variants of the rules that write packed products."""

from __future__ import annotations

from itertools import product
from typing import Any

from gsl import op, pat
from gsl.rules.common import RuleSides
from gsl.rules.cpu import grouped, single
from gsl.rules.gpu import uniform
from gsl.rules.packed import activated, as_rows, by_activation, conv, dense, signal, window
from tests.verify.wrong_rules.table import wrong


def operands() -> tuple[pat.Pattern, pat.Pattern, pat.Pattern, pat.Pattern]:
    return pat.Wildcard(), pat.Param(), pat.Param(dtype="float32"), pat.Wildcard()


@wrong("pack-dense", kinds=("value", "type"), condition="")
def _() -> RuleSides:
    """the weight of a product not transposed"""
    x, w, *_ = operands()
    return op.Matmul(x, w, out_dtype=""), op.PackedDense(x, w), single(x, w) & (w.ndim == 2)


@wrong("pack-dense-bias", kinds=("value", "type", "undefined"), condition="")
def _() -> RuleSides:
    """a bias of any axis"""
    x, w, b, _ = operands()
    product = dense(x, w)
    return op.BiasAdd(product, b), op.PackedDense(x, as_rows(product, w), b), single(x, w) & (w.ndim == 2)


@wrong("pack-dense-activation", condition="")
def _() -> RuleSides:
    """every GELU taken for the exact one"""
    x, w, *_ = operands()
    return op.GELU(op.Dense(x, w, out_dtype="")), op.PackedDense(x, w, activation="gelu"), single(x, w)


@wrong("pack-dense-activation")
def _() -> RuleSides:
    """activations in another order"""
    x, w, *_ = operands()
    f = activated(op.Dense(x, w, out_dtype=""))
    names = {"silu": "sigmoid", "sigmoid": "silu"}
    return f, by_activation(f, lambda name: op.PackedDense(x, w, activation=names.get(name, name))), single(x, w)


@wrong("pack-dense-add")
def _() -> RuleSides:
    """a difference taken for a sum"""
    x, w, _, y = operands()
    layer = op.Dense(x, w, out_dtype="")
    return layer - y, op.PackedDenseAdd(x, w, y), single(x, w, y) & (layer.shape == y.shape)


def packed_conv(without: str = "", **given: Any) -> tuple[pat.Pattern, pat.Pattern, list[pat.Pattern], dict[str, Any]]:
    x, w, b, y = operands()
    product = conv(x, w)
    attrs = {name: value for name, value in window(product).items() if name != without}
    return product, b, [x, w, y], {**attrs, **given}


@wrong("pack-conv", condition="")
def _() -> RuleSides:
    """the padding reversed"""
    product, _, (x, w, _), attrs = packed_conv(without="padding")
    p = product.padding
    return product, op.PackedConv2D(x, w, padding=p[2:] + p[:2], **attrs), single(x, w)


@wrong("pack-conv-bias")
def _() -> RuleSides:
    """the bias dropped"""
    product, b, (x, w, _), attrs = packed_conv()
    return op.BiasAdd(product, b, axis=1), op.PackedConv2D(x, w, **attrs), single(x, w)


@wrong("pack-conv-activation")
def _() -> RuleSides:
    """an activation of another kind"""
    product, _, (x, w, _), attrs = packed_conv(activation="hardswish")
    return op.SiLU(product), op.PackedConv2D(x, w, **attrs), single(x, w)


@wrong("pack-conv-add")
def _() -> RuleSides:
    """a difference taken for a sum"""
    product, _, (x, w, y), attrs = packed_conv()
    return product - y, op.PackedConv2DAdd(x, w, y, **attrs), single(x, w, y) & (product.shape == y.shape)


@wrong("pack-conv-add-relu")
def _() -> RuleSides:
    """the activation before the sum"""
    product, _, (x, w, y), attrs = packed_conv(activation="relu")
    same = product.shape == y.shape
    return op.ReLU(product) + y, op.PackedConv2DAdd(x, w, y, **attrs), single(x, w, y) & same


def signals(**given: Any) -> tuple[pat.Pattern, list[pat.Pattern], dict[str, Any]]:
    x, w, b, _ = operands()
    product = signal(x, w)
    moved = {"strides": (1, product.strides[0]), "padding": (0, product.padding[0], 0, product.padding[1])}
    return product, [x, w, b], {**moved, "dilation": (1, product.dilation[0]), "groups": product.groups, **given}


def rows(x: pat.Pattern, w: pat.Pattern) -> list[pat.Pattern]:
    return [op.ExpandDims(x, axis=2), op.ExpandDims(w, axis=2)]


@wrong("pack-conv1d", condition="")
def _() -> RuleSides:
    """the dilation left out"""
    product, (x, w, _), attrs = signals(dilation=(1, 1))
    return product, op.Squeeze(op.PackedConv2D(*rows(x, w), **attrs), axis=2), grouped(x, w)


@wrong("pack-conv1d-bias")
def _() -> RuleSides:
    """the bias dropped"""
    product, (x, w, b), attrs = signals()
    return op.BiasAdd(product, b, axis=1), op.Squeeze(op.PackedConv2D(*rows(x, w), **attrs), axis=2), grouped(x, w)


@wrong("pack-conv1d-activation")
def _() -> RuleSides:
    """an activation of another kind"""
    product, (x, w, _), attrs = signals(activation="silu")
    return op.GELU(product), op.Squeeze(op.PackedConv2D(*rows(x, w), **attrs), axis=2), grouped(x, w)


for precision, (kind, target, adding) in product(
    ("int8", "bfloat16"), (("dense", op.PackedDense, op.PackedDenseAdd), ("conv", op.PackedConv2D, op.PackedConv2DAdd))
):

    @wrong(f"{precision}-{kind}")
    def _(target: Any = target, precision: str = precision) -> RuleSides:
        """the activation forgotten"""
        x, w, *_ = operands()
        layer = target(x, w, activation="relu")
        return layer, layer.like(x, w, activation="none", precision=precision), single(x, w)

    @wrong(f"{precision}-{kind}-bias")
    def _(target: Any = target, precision: str = precision) -> RuleSides:
        """the bias forgotten"""
        x, w, b, _ = operands()
        layer = target(x, w, b)
        return layer, layer.like(x, w, precision=precision), single(x, w)

    @wrong(f"{precision}-{kind}-add", kinds=("value", "type"))
    def _(adding: Any = adding, precision: str = precision) -> RuleSides:
        """the addend taken for a bias"""
        x, w, b, y = operands()
        layer = adding(x, w, y, b)
        return layer, layer.like(x, w, b, precision=precision), single(x, w)


def fused_conv(**given: Any) -> tuple[pat.Pattern, list[pat.Pattern], dict[str, Any]]:
    operands = [pat.Wildcard(), pat.Param(), pat.Param(), pat.Wildcard()]
    product = conv(*operands[:2])
    return product, operands, {**window(product), **given}


@wrong("fuse-dense-activation")
def _() -> RuleSides:
    """the bias behind the activation"""
    x, w, b = pat.Wildcard(), pat.Param(ndim=2), pat.Param(ndim=1)
    layer = op.BiasAdd(op.ReLU(op.Dense(x, w, out_dtype="")), b, axis=-1)
    return layer, op.PackedDense(x, w, b, activation="relu"), uniform(x, w, b)


@wrong("fuse-conv", condition="")
def _() -> RuleSides:
    """the padding reversed"""
    product, (x, w, *_), attrs = fused_conv()
    p = product.padding
    return product, op.PackedConv2D(x, w, **{**attrs, "padding": p[2:] + p[:2]}), uniform(x, w)


@wrong("fuse-conv-bias")
def _() -> RuleSides:
    """the bias subtracted"""
    product, (x, w, b, _), attrs = fused_conv()
    return op.BiasAdd(product, b, axis=1), op.PackedConv2D(x, w, -b, **attrs), uniform(x, w)


@wrong("fuse-conv-activation")
def _() -> RuleSides:
    """the activation forgotten"""
    product, (x, w, *_), attrs = fused_conv()
    return op.ReLU(product), op.PackedConv2D(x, w, **attrs), uniform(x, w)


@wrong("fuse-conv-add-relu")
def _() -> RuleSides:
    """the addend under no activation"""
    product, (x, w, _, y), attrs = fused_conv(activation="relu")
    return op.ReLU(product) + y, op.PackedConv2DAdd(x, w, y, **attrs), uniform(x, w, y) & (product.shape == y.shape)

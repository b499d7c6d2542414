"""Rules that compute products in a lower precision: faster, and with errors far beyond rounding.

Each is marked as ``approximate``: ``gsl.optimize`` uses it only within a tolerance. As equations of real numbers they
hold, and are verified as such: the precision is no part of what their operators mean.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any

from gsl import op, pat
from gsl.rewrite import RuleSet, Subst
from gsl.rules.common import RuleSides
from gsl.rules.cpu import single
from gsl.rules.packed import as_rows, conv, dense, window


def lowered(packed: pat.Pattern, precision: str, operands: Sequence[pat.Pattern]) -> pat.Like:
    """A packed product as it is, but for its precision."""
    return packed.like(*operands, precision=precision)


def add_in(precision: str, kind: Any) -> RuleSides:
    """The sides of a rule for a packed layer with an addition, of an operator, with a bias or without."""
    x, w, b, y = pat.Wildcard(), pat.Param(), pat.Param(dtype="float32"), pat.Wildcard()
    biased, plain = (kind(x, w, y, *more, precision="float32") for more in ((b,), ()))
    layer = pat.Alt(biased, plain)
    targets = [lowered(biased, precision, (x, w, y, b)), lowered(plain, precision, (x, w, y))]
    return layer, pat.Match(layer, targets), single(x, w, y)


def dense_in(precision: str) -> RuleSides:
    """x wᵀ = packed(x, w; {precision})

    For any weight in single precision, packed by another rule or not yet.
    """
    x, w = pat.Wildcard(), pat.Param(ndim=2)
    packed, product = op.PackedDense(x, w, precision="float32"), dense(x, w)
    layer = pat.Alt(packed, product)
    new = op.PackedDense(x, as_rows(product, w), activation="none", precision=precision)
    return layer, pat.Match(layer, [lowered(packed, precision, (x, w)), new]), single(x, w)


def dense_bias_in(precision: str) -> RuleSides:
    """x wᵀ + b = packed(x, w, b; {precision})

    As {precision}-dense, before which it comes. The product without its bias must have no other use.
    """
    x, w, b = pat.Wildcard(), pat.Param(ndim=2), pat.Param(dtype="float32")
    packed, product = op.PackedDense(x, w, b, precision="float32"), dense(x, w)
    layer = pat.Alt(packed, op.BiasAdd(product, b, axis=product.ndim - 1))
    new = op.PackedDense(x, as_rows(product, w), b, activation="none", precision=precision)
    return layer, pat.Match(layer, [lowered(packed, precision, (x, w, b)), new]), single(x, w)


def dense_add_in(precision: str) -> RuleSides:
    """packed(x, w, b, y) = packed(x, w, b, y; {precision})

    For a layer with an addition that another rule has packed, with a bias or without.
    """
    return add_in(precision, op.PackedDenseAdd)


def conv_in(precision: str) -> RuleSides:
    """conv(x, w) = packed(x, w; {precision})

    For a convolution of images in single precision, packed by another rule or not yet.
    """
    x, w = pat.Wildcard(), pat.Param()
    packed, product = op.PackedConv2D(x, w, precision="float32"), conv(x, w)
    layer = pat.Alt(packed, product)
    new = op.PackedConv2D(x, w, activation="none", precision=precision, **window(product))
    return layer, pat.Match(layer, [lowered(packed, precision, (x, w)), new]), single(x, w)


def conv_bias_in(precision: str) -> RuleSides:
    """conv(x, w) + b = packed(x, w, b; {precision})

    As {precision}-conv, before which it comes. The convolution without its bias must have no other use.
    """
    x, w, b = pat.Wildcard(), pat.Param(), pat.Param(dtype="float32")
    packed, product = op.PackedConv2D(x, w, b, precision="float32"), conv(x, w)
    layer = pat.Alt(packed, op.BiasAdd(product, b, axis=1))
    new = op.PackedConv2D(x, w, b, activation="none", precision=precision, **window(product))
    return layer, pat.Match(layer, [lowered(packed, precision, (x, w, b)), new]), single(x, w)


def conv_add_in(precision: str) -> RuleSides:
    """packed(x, w, b, y) = packed(x, w, b, y; {precision})

    For a convolution with an addition that another rule has packed, with a bias or without.
    """
    return add_in(precision, op.PackedConv2DAdd)


def _rules(precision: str, priority: int) -> tuple[Subst, ...]:
    """The rules for a precision; where it is used for a layer, another one is not."""

    def make(sides: Callable[[str], RuleSides], more: int = 0) -> Subst:
        source, target, *where = sides(precision)
        name = f"{precision}-{sides.__name__.removesuffix('_in').replace('_', '-')}"
        doc = (inspect.getdoc(sides) or "").format(activation="none", precision=precision)
        return Subst(
            source, target, where=where, name=name, doc=doc, priority=priority + more, extern_use=False,
            approximate=True,
        )  # fmt: skip

    return (
        make(dense_in), make(dense_bias_in, 1), make(dense_add_in, 1),
        make(conv_in), make(conv_bias_in, 1), make(conv_add_in, 1),
    )  # fmt: skip


BFLOAT16 = RuleSet(_rules("bfloat16", 0))
"""Products of bfloat16, which pay where the processor has instructions for them."""

INT8 = RuleSet(_rules("int8", 2))
"""Products of eight bits: weights with a scale for each output channel, operands with one that each call finds."""

APPROXIMATE = INT8 + BFLOAT16
"""The rules for a lower precision. Where both fire, eight bits go first."""

"""The tools for writing rules: the decorator that makes them, and the guards and weights that many share."""

from __future__ import annotations

import importlib
import inspect
import math
from collections.abc import Callable
from typing import Any

from gsl import attr, op, pat
from gsl.errors import Location
from gsl.rewrite import Subst

RuleSides = tuple[Any, ...]
"""Source, target, and the conditions between them."""


class BookRule(Subst):
    """A rule of the rule book, as its module holds it under the name of the function from which it was made.

    It is pickled by that name, with all that it holds.
    """

    home: tuple[str, str]
    """The names of the module and of the function."""

    def __reduce_ex__(self, protocol: Any) -> Any:
        if _named(*self.home) is self:
            return _named, self.home
        return super().__reduce_ex__(protocol)


def _named(module: str, name: str) -> Any:
    return getattr(importlib.import_module(module), name, None)


def rule(
    *, priority: int = 0, extern_use: bool | None = None, inference_only: bool = False, approximate: bool = False
) -> Callable[[Callable[[], RuleSides]], Subst]:
    """Make a ``Subst`` of a function that returns its two sides: the function's name and docstring are the rule's."""

    def make(sides: Callable[[], RuleSides]) -> Subst:
        source, target, *where = sides()
        name, doc = sides.__name__.replace("_", "-"), inspect.getdoc(sides) or ""
        made = BookRule(
            source, target, where=where, name=name, doc=doc, priority=priority, extern_use=extern_use,
            inference_only=inference_only, approximate=approximate,
        )  # fmt: skip
        made.home = (sides.__module__, sides.__name__)
        made.location = Location(sides.__code__.co_filename, sides.__code__.co_firstlineno)
        return made

    return make


HALF_DTYPES = ("float16", "bfloat16")
"""The dtypes whose softmax and statistics kernels compute in float32: they round once less then."""
FLOATS = (*HALF_DTYPES, "float32", "float64")
CHANNELS_FIRST = ("NCW", "NCHW", "NCDHW")
ATTRS = ("strides", "padding", "dilation", "groups", "data_layout", "kernel_layout", "out_layout", "out_dtype")
"""The attributes of a convolution that do not follow from its operands."""


def convolution() -> pat.OneOf:
    """One of the convolutions, the same wherever the object is used."""
    return pat.OneOf("nn.conv1d", "nn.conv2d", "nn.conv3d")


def zero_where_hidden(x: pat.Pattern, mask: pat.Pattern) -> pat.Pattern:
    """Attention with a mask that is added, of which rows are 0 where minus infinity hides all places."""
    hidden = op.Equal(mask, -math.inf)
    return op.Where(op.All(hidden, axis=(mask.ndim - 1,), keepdims=True, exclude=False), 0.0, x)


def weight() -> pat.Alt:
    """A tensor whose value is known: a parameter, or a literal (of a normalisation without weights)."""
    return pat.Param() | pat.Const()


def channels_first(conv: pat.Pattern, kernel: tuple[str, ...] = ("OIW", "OIHW", "OIDHW")) -> attr.Expr:
    """True if axis 1 of data and result are the channels, and the kernel has its usual axes."""
    return (
        attr.In(conv.data_layout, CHANNELS_FIRST) & attr.In(conv.kernel_layout, kernel) & (conv.out_layout == "")
    )


def same_dtype(first: pat.Pattern, *others: pat.Pattern) -> attr.Expr:
    """True if all have one dtype, so that nothing is promoted on one side of a rule only."""
    return attr.all([other.dtype == first.dtype for other in others])


def same_type(x: pat.Pattern, y: pat.Pattern) -> attr.Expr:
    """True if two tensors have one shape and one dtype."""
    return (x.shape == y.shape) & same_dtype(x, y)


def precise(x: pat.Pattern) -> attr.Expr:
    """True if statistics computed in the dtype keep their precision: normalisations of halves compute in float32."""
    return attr.In(x.dtype, ("float32", "float64"))


def ones(sizes: attr.Expr) -> attr.Expr:
    """A 1 for each of the sizes."""
    return attr.Map(sizes, lambda _: 1)


def channel_wise(w: pat.Pattern, x: pat.Pattern) -> attr.Expr:
    """True if there is one factor or summand for each channel on axis 1: of shape (C, 1, …) or (1, C, 1, …)."""
    single = ones(x.shape[2:])
    return attr.In(w.shape, (attr.Tuple(x.shape[1]) + single, attr.Tuple(1, x.shape[1]) + single))


def along(factor: pat.Pattern, rest: attr.Expr) -> pat.Call:
    """A vector as a column: its elements along the first axis, before as many axes of size 1 as ``rest`` has items."""
    return op.Reshape(factor, newshape=attr.Tuple(-1) + ones(rest))


def fields(whole: pat.Variadic, template: pat.Pattern) -> pat.Variadic:
    """The instances of a template, as a tuple of a target."""
    i = attr.Symbol()
    return pat.Variadic(whole(template, i), index=i, length=whole.length)



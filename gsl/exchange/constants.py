"""Constants of rules that are known by values: ones, identities, kernels that keep or average.

They are recognised by their values in a source, and made in a target. Their shape comes from the context: a
convolution's data, the other operand of a product.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from gsl import attr, op, pat
from gsl.exchange.patterns import Inexpressible, PatternSide
from gsl.exchange.terms import RuleTerm
from gsl.match import Match
from gsl.match.literals import equal_literal
from gsl.pat import Pattern


def ones(side: PatternSide, term: RuleTerm) -> Pattern:
    """``Iewmul``: a tensor of ones, of the shape of the other factor."""
    other = _other(side, term, "ewmul")
    if not side.is_source:
        return op.OnesLike(other)
    return _known(side, "ones", lambda value: bool(equal_literal(1.0, value) or equal_literal(1, value)), _ones)


def identity(side: PatternSide, term: RuleTerm) -> Pattern:
    """``Imatmul``: the identity matrix that a product with the other factor takes."""
    other = _other(side, term, "matmul")
    if not side.is_source:
        _, position = side.context(term)
        return identity_matrix(other.shape[-1 if position == 1 else -2], other.dtype)
    leaf = _known(side, "the identity matrix", _is_identity, _identity)
    side.demand(leaf.ndim == 2)
    side.demand(leaf.shape[0] == leaf.shape[1])
    return leaf


def identity_matrix(size: Any, dtype: Any) -> pat.Call:
    """The identity matrix of that size, in a target."""
    return op.MatrixSetDiag(op.Zeros(shape=(size, size), dtype=dtype), op.Ones(shape=(size,), dtype=dtype))


def identity_kernel(side: PatternSide, term: RuleTerm) -> Pattern:
    """``Iconv``: the kernel of a convolution with *same* padding that leaves its data as they are."""
    size = _size(term)
    low = side.semantics.odd_padding == "low"
    if side.is_source:
        centre = (size[0] // 2, size[1] // 2) if low else ((size[0] - 1) // 2, (size[1] - 1) // 2)
        test, value = partial(_is_identity_kernel, size=size, centre=centre), partial(_identity_kernel, centre=centre)
        leaf = _known(side, "an identity kernel", test, value)
        side.demand(leaf.ndim == 4)
        side.demand(leaf.shape[2:] == size)
        side.demand(leaf.shape[0] == _data(side, term).shape[1])
        return leaf
    data = _data(side, term)
    eye = op.Reshape(
        identity_matrix(data.shape[1], data.dtype), newshape=attr.Tuple(data.shape[1], data.shape[1], 1, 1)
    )
    widths = [(k // 2, (k - 1) // 2) if low else ((k - 1) // 2, k // 2) for k in size]
    return op.Pad(eye, pad_width=((0, 0), (0, 0), *widths))


def average_kernel(side: PatternSide, term: RuleTerm) -> Pattern:
    """``Cpool``: the kernel of a convolution that averages over windows of each channel."""
    size = _size(term)
    share = 1.0 / (size[0] * size[1])
    if side.is_source:
        test = partial(_is_average_kernel, size=size, share=share)
        leaf = _known(side, "an averaging kernel", test, partial(_average_kernel, share=share))
        side.demand(leaf.ndim == 4)
        side.demand(leaf.shape[2:] == size)
        side.demand(leaf.shape[0] == _data(side, term).shape[1])
        side.demand((leaf.shape[1] == 1) | (leaf.shape[1] == leaf.shape[0]))
        return leaf
    data = _data(side, term)
    channels = data.shape[1]
    single = op.Full(share, shape=attr.Tuple(channels, 1, *size), dtype=data.dtype)
    if side.semantics.average_kernel == "depthwise":
        return single
    eye = op.Reshape(identity_matrix(channels, data.dtype), newshape=attr.Tuple(channels, channels, 1, 1))
    return single * eye


def _size(term: RuleTerm) -> tuple[int, int]:
    size = term.params["kernel_h"], term.params["kernel_w"]
    if not all(isinstance(k, int) for k in size):
        raise Inexpressible(f"{term.place}: the size of {term.op} must be a number")
    return size


def _data(side: PatternSide, term: RuleTerm) -> Pattern:
    """The data of the convolution whose kernel the constant is."""
    user, position = side.context(term)
    if user.op != "conv2d" or position != 1:
        raise Inexpressible(f"{term.place}: {term.op} takes its shape from a convolution, and stands in {user.op}")
    return side.patterns[user.operands[0]]


def _other(side: PatternSide, term: RuleTerm, op_name: str) -> Pattern:
    """The other factor of the product in which the constant stands."""
    user, position = side.context(term)
    if user.op != op_name:
        raise Inexpressible(f"{term.place}: {term.op} takes its shape from a {op_name}, and stands in {user.op}")
    other = user.operands[1 - position]
    if other not in side.patterns:
        raise Inexpressible(f"{term.place}: {term.op} takes its shape from another constant")
    return side.patterns[other]


class KnownValue:
    """The condition that a parameter or literal has a certain value, which a test tells from others."""

    def __init__(
        self, leaf: Pattern, what: str, test: Callable[[Any], bool], value: Callable[[tuple[int, ...]], Any]
    ) -> None:
        self.__name__ = f"is {what}"  # what a rule's text says
        self.what = what
        self.test = test
        self.values = {leaf: value}
        """For verification: the value, as an array, for each shape."""

    def __call__(self, match: Match) -> bool | str:
        (leaf,) = self.values
        return self.test(match[leaf].attrs["value"]) or f"%{match[leaf].name} is not {self.what}"


def _known(
    side: PatternSide, what: str, test: Callable[[Any], bool], value: Callable[[tuple[int, ...]], Any]
) -> Pattern:
    """A parameter or literal whose value passes a test."""
    leaf = pat.Alt(pat.Param(), pat.Const())
    side.demand(KnownValue(leaf, what, test, value))
    return leaf


def _is_identity(value: Any) -> bool:
    shape = tuple(getattr(value, "shape", ()))
    if len(shape) != 2 or shape[0] != shape[1]:
        return False
    places = range(shape[0])
    return bool((value[list(places), list(places)] == 1).all()) and int((value != 0).sum()) == shape[0]


def _ones(shape: tuple[int, ...]) -> Any:
    import numpy as np

    return np.ones(shape)


def _identity(shape: tuple[int, ...]) -> Any:
    import numpy as np

    return np.eye(shape[0])


def _is_identity_kernel(value: Any, size: Sequence[int], centre: Sequence[int]) -> bool:
    """True if each channel is taken to itself, by the element of the kernel that *same* padding puts on its place."""
    shape = tuple(getattr(value, "shape", ()))
    if len(shape) != 4 or shape[2:] != tuple(size) or not shape[1] or shape[0] % shape[1]:
        return False
    filters = list(range(shape[0]))
    inside = value[filters, [f % shape[1] for f in filters], centre[0], centre[1]]
    return bool((inside == 1).all()) and int((value != 0).sum()) == shape[0]


def _identity_kernel(shape: tuple[int, ...], centre: Sequence[int]) -> Any:
    import numpy as np

    found = np.zeros(shape)
    filters = np.arange(shape[0])
    found[filters, filters % shape[1], centre[0], centre[1]] = 1
    return found


def _is_average_kernel(value: Any, size: Sequence[int], share: float) -> bool:
    """True if each channel is averaged: a filter of one channel each, or all channels with zeros for the others."""
    shape = tuple(getattr(value, "shape", ()))
    if len(shape) != 4 or shape[2:] != tuple(size):
        return False
    if shape[1] == 1:
        return equal_literal(share, value)
    filters = list(range(shape[0]))
    if shape[0] != shape[1] or int((value != 0).sum()) != shape[0] * size[0] * size[1]:
        return False
    return equal_literal(share, value[filters, filters])


def _average_kernel(shape: tuple[int, ...], share: float) -> Any:
    import numpy as np

    channels = np.eye(shape[0]) if shape[1] > 1 else np.ones((shape[0], 1))
    return np.broadcast_to(channels[:, :, None, None] * share, shape)

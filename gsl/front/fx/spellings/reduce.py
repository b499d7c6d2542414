"""Spellings of reductions, scans and searches."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any, Final

import torch

from gsl.front.fx.spellings.activation import cast_first
from gsl.front.fx.spellings.bind import BoundCall, FxUnreadError, flag, integer, integers, number, unread_unless
from gsl.front.fx.spellings.table import (
    FxLift,
    FxLower,
    FxRow,
    Native,
    Site,
    call,
    dtype_name,
    dtype_of,
    options,
    renamed,
    row,
    tensor,
    words,
)
from gsl.front.tree import Canon
from gsl.graph import TUPLE


def axes(dim: Any) -> tuple[int, ...] | None:
    """Torch's axes of a reduction, where none at all is all of them."""
    if dim is None or (isinstance(dim, (list, tuple)) and not dim):
        return None
    return integers(dim)


def _reduction(op: str) -> FxLift:
    """A reduction in its ``dtype``, if it has one. That of integers is in int64, and loses bits in a narrower one."""

    def read(c: BoundCall) -> Canon:
        result = Canon(op, (cast_first(c),), {"axis": axes(c.dim), "keepdims": flag(c.keepdim)})
        name = "int64" if c.dtype is None else dtype_name(c.dtype)
        return Canon("cast", (result,), {"dtype": name}) if name in _NARROWER else result

    return read


_NARROWER: Final = ("bool", "uint8", "int8", "int16", "int32")


def _plain(op: str, *, empty: bool = False) -> FxLift:
    """A reduction without a dtype of its own. Most of them don't take no axes for all of them."""

    def read(c: BoundCall) -> Canon:
        axis = axes(c.dim)
        unread_unless(empty or axis is not None or c.dim is None)
        return Canon(op, (tensor(c, c.input),), {"axis": axis, "keepdims": flag(c.keepdim)})

    return read


def _whole(op: str) -> FxLift:
    return lambda c: Canon(op, (tensor(c, c.input),), {"axis": None, "keepdims": False})


def _variance(op: str) -> FxLift:
    """``var`` and ``std`` divide by ``n - correction``, of which only 0 and 1 are canonical."""

    def read(c: BoundCall) -> Canon:
        correction = c.correction if c.correction is not None else int(flag(c.unbiased))
        unread_unless(correction in (0, 1) and (axes(c.dim) is not None or c.dim is None))
        attrs = {"axis": axes(c.dim), "keepdims": flag(c.keepdim), "unbiased": correction == 1}
        return Canon(op, (tensor(c, c.input),), attrs)

    return read


def _moments(op: str) -> FxLift:
    """``var_mean`` and ``std_mean``, whose fields are two reductions over the same axes."""

    def read(c: BoundCall) -> Canon:
        deviation = _variance(op)(c)
        mean = {name: deviation.attrs[name] for name in ("axis", "keepdims")}
        return Canon(TUPLE, (deviation, Canon("mean", deviation.operands, mean)))

    return read


def _arg(op: str) -> FxLift:
    """``argmax``, of which no axis is the whole tensor in one row."""

    def read(c: BoundCall) -> Canon:
        axis = None if c.dim is None else integer(c.dim)
        found = c.tensor_type(c.input)
        unread_unless(axis is None or found is None or found.ndim > 0)
        return Canon(op, (tensor(c, c.input),), {"axis": axis, "keepdims": flag(c.keepdim)})

    return read


def _vector_norm(c: BoundCall) -> Canon:
    """In a dtype in which sums of squares are no narrower than torch's own."""
    x = cast_first(c)
    unread_unless((dtype_name(c.dtype) if c.dtype is not None else c.dtype_of(x)) in ("float32", "float64"))
    found = axes(c.dim)
    unread_unless(found is not None or c.dim is None)
    attrs = {"axis": found, "keepdims": flag(c.keepdim)}
    match number(c.ord):
        case 2:
            return Canon("sqrt", (Canon("sum", (Canon("square", (x,)),), attrs),))
        case 1:
            return Canon("sum", (Canon("abs", (x,)),), attrs)
    raise FxUnreadError


def _cumsum(c: BoundCall) -> Canon:
    dtype = "" if c.dtype is None else dtype_name(c.dtype)
    return Canon("cumsum", (tensor(c, c.input),), {"axis": integer(c.dim), "dtype": dtype})


def _extreme(op: str) -> FxLift:
    return lambda c: Canon(op, (tensor(c, c.input),), {"axis": (integer(c.dim),), "keepdims": flag(c.keepdim)})


# ---------------------------------------------------------------- writing


def _reduced(s: Site) -> tuple[int, ...] | None:
    """The reduced axes; ``None`` is all of them."""
    if s["exclude"]:
        s.known()
    axis: tuple[int, ...] | None = s["axis"]
    found = s.type()
    if axis is not None and found is not None and not s["keepdims"] and len(axis) == max(found.ndim, 1):
        return None
    return axis


def _write(
    target: Callable[..., Any], some: Callable[[Site, Any], Native], *, whole: bool = True, **fixed: Any
) -> FxLower:
    """Writes a reduction. ``some`` writes that of some axes, and of all of them (``None``) where these are kept, or
    torch wants to be told them (not ``whole``)."""

    def write(s: Site) -> Native:
        axes = _reduced(s)
        if axes == ():
            # Torch takes no axes for all of them.
            return call(target, call(torch.unsqueeze, s.x, -1), dim=-1, **fixed)
        return call(target, s.x, **fixed) if axes is None and not s["keepdims"] and whole else some(s, axes)

    return write


def _along(target: Callable[..., Any], s: Site, x: Any, axes: Any, **fixed: Any) -> Native:
    dim = axes[0] if axes is not None and len(axes) == 1 else axes
    return call(target, x, dim=dim, **fixed, **options(keepdim=(s["keepdims"], False)))


def _write_reduction(target: Callable[..., Any], **fixed: Any) -> FxLower:
    """A reduction of torch that takes any number of axes."""
    return _write(target, lambda s, axes: _along(target, s, s.x, axes, **fixed), **fixed)


def _write_with_axes(target: Callable[..., Any]) -> FxLower:
    """A reduction of torch that wants to be told its axes."""

    def some(s: Site, axes: Any) -> Native:
        return _along(target, s, s.x, (tuple(range(s.known().ndim)) or (-1,)) if axes is None else axes)

    return _write(target, some, whole=False)


def _write_deviation(target: Callable[..., Any]) -> FxLower:
    return lambda s: _write_reduction(target, correction=int(s["unbiased"]))(s)


def _some_prod(s: Site, axes: Any) -> Native:
    """Torch multiplies over one axis, or over all."""
    result: Any = s.x
    for axis in sorted(axes if axes is not None else range(s.known().ndim), reverse=True):
        result = _along(torch.prod, s, result, (axis,))
    assert isinstance(result, Native)
    return result


def _write_arg(target: Callable[..., Any]) -> FxLower:
    """Torch searches one axis, or all of them; several become one."""

    def some(s: Site, axes: Any) -> Native:
        if axes is not None and len(axes) == 1:
            return _along(target, s, s.x, axes)
        ndim = s.known().ndim
        axes = tuple(range(ndim)) if axes is None else axes
        kept = [axis for axis in range(ndim) if axis not in axes]
        result = call(target, call(torch.flatten, call(torch.permute, s.x, (*kept, *axes)), len(kept)), dim=-1)
        for axis in axes if s["keepdims"] else ():
            result = call(torch.unsqueeze, result, axis)
        return result

    return _write(target, some)


def _write_cumsum(s: Site) -> Native:
    flat = s["axis"] is None
    x = call(torch.reshape, s.x, (-1,)) if flat else s.x
    dtype = dtype_of(s["dtype"]) if s["dtype"] else None
    result = call(torch.cumsum, x, dim=0 if flat else s["axis"], **options(dtype=(dtype, None)))
    return call(operator.sub, result, x) if s["exclusive"] else result


_SUM = "input dim=None keepdim=False dtype=None"
_SPREAD: Final = "input dim=None unbiased=True keepdim=False correction=None"

ROWS: Final = (
    row("sum", words("sum", "default dim_IntList"), _SUM, read=_reduction("sum"), write=_write_reduction(torch.sum)),
    row("mean", words("mean", "default dim"), _SUM, read=_reduction("mean"), write=_write_reduction(torch.mean)),
    row("prod", words("prod", "default dim_int"), _SUM, read=_reduction("prod"), write=_write(torch.prod, _some_prod)),
    *(
        row(op, words(f"a{op}"), "input dim=None keepdim=False", read=_plain(op, empty=True),
            write=_write_reduction(getattr(torch, f"a{op}")))
        for op in ("max", "min")
    ),
    *(FxRow(words(op), "input", _whole(op)) for op in ("max", "min")),
    *(FxRow(words(op, "other"), "input other", renamed(f"{op}imum", "input other")) for op in ("max", "min")),
    *(
        row(op, words(op, "default dim dims"), "input dim=None keepdim=False", read=_plain(op),
            write=_write_reduction(getattr(torch, op)))
        for op in ("all", "any")
    ),
    *(
        row(op, words(op), "input dim=None keepdim=False", read=_arg(op), write=_write_arg(getattr(torch, op)))
        for op in ("argmax", "argmin")
    ),
    *(
        row(
            op, words(name, "default dim correction"), _SPREAD,
            read=_variance(op), write=_write_deviation(getattr(torch, name)),
        )
        for name, op in (("var", "variance"), ("std", "std"))
    ),
    row("logsumexp", f"special.logsumexp {words('logsumexp')}", "input dim keepdim=False", read=_plain("logsumexp"),
        write=_write_with_axes(torch.logsumexp)),
    FxRow("aten.linalg_vector_norm.default", "input ord=2 dim=None keepdim=False dtype=None", _vector_norm),
    row("cumsum", words("cumsum"), "input dim dtype=None", read=_cumsum, write=_write_cumsum),
)  # fmt: skip
FIELDS: Final = (
    *(FxRow(words(op, "dim"), "input dim keepdim=False", _extreme(op)) for op in ("max", "min")),
    *(
        FxRow(
            f"torch.{name}_mean aten.{name}_mean.default aten.{name}_mean.dim aten.{name}_mean.correction", _SPREAD,
            _moments(op),
        )
        for name, op in (("var", "variance"), ("std", "std"))
    ),
)
"""``max(x, dim)`` returns the values and where they are, and ``var_mean`` two reductions."""

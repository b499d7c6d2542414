"""Spellings of slicing and lookup."""

from __future__ import annotations

import math
import operator
from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import torch

from gsl.front.fx.spellings.activation import cast
from gsl.front.fx.spellings.bind import (
    BoundCall,
    FxUnreadError,
    axis,
    integer,
    integers,
    is_dim,
    is_int,
    number,
    per_axis,
    unread_unless,
)
from gsl.front.fx.spellings.shape import padded, product, reshaped, transposed
from gsl.front.fx.spellings.table import FxLift, FxRow, Native, Site, call, options, row, tensor, words
from gsl.front.tree import Canon, LiteralOperand
from gsl.graph import TUPLE
from gsl.spec.normalise import is_number


def bound(value: Any) -> Any:
    unread_unless(value is None or is_dim(value))
    return value


def sliced(x: Any, axes: Sequence[int], slices: Sequence[tuple[Any, Any, Any]]) -> Canon:
    """One ``strided_slice`` over some axes; a slice is (start, stop, step)."""
    unread_unless(all(is_int(step) and step > 0 for _, _, step in slices))
    attrs = {
        "begin": tuple(s[0] for s in slices),
        "end": tuple(s[1] for s in slices),
        "strides": tuple(s[2] for s in slices),
        "axes": tuple(axes),
    }
    return Canon("strided_slice", (x,), attrs)


def _slice(c: BoundCall) -> Canon:
    step = 1 if c.step is None else c.step
    return sliced(tensor(c, c.input), [integer(c.dim)], [(bound(c.start), bound(c.end), step)])


def _narrow(c: BoundCall) -> Canon:
    start = integer(c.start)
    unread_unless(start >= 0)
    return sliced(tensor(c, c.input), [integer(c.dim)], [(start, start + integer(c.length), 1)])


def _select(c: BoundCall) -> Canon:
    unread_unless(is_int(c.index))
    return Canon("take", (tensor(c, c.input), c.index), {"axis": integer(c.dim)})


def _unbind(c: BoundCall) -> Canon:
    """The elements along an axis, one by one."""
    shape = c.typed(c.input).shape
    where = axis(c.dim, len(shape))
    count: Any = shape[where] if shape else None
    unread_unless(is_int(count))
    return Canon(TUPLE, tuple([Canon("take", (tensor(c, c.input), i), {"axis": where}) for i in range(count)]))


def _is_places(c: BoundCall, item: Any) -> bool:
    """True for a tensor of indices; one of bools would be a mask."""
    found = c.tensor_type(item)
    return found is not None and found.dtype in ("int64", "int32") and found.ndim > 0


def _getitem(c: BoundCall) -> Canon:
    """``x[...]`` with ints, slices, ``None`` and ``...``, or one tensor of indices: basic slices first."""
    ndim = c.ndim(c.input)
    items = list(c.index) if isinstance(c.index, tuple) else [c.index]
    lookups = [i for i, item in enumerate(items) if _is_places(c, item)]
    simple = [item is None or item is ... or is_int(item) or isinstance(item, slice) for item in items]
    unread_unless(all(ok or i in lookups for i, ok in enumerate(simple)))
    if len(lookups) == len(items) > 1:
        return _looked_up(c, tensor(c, c.input), items)
    if lookups:
        # Torch moves the axes of an index away from where they would be if it stands among ints.
        unread_unless(len(lookups) == 1 and not any(is_int(item) for item in items))
    taken = sum(item is not None and item is not ... for item in items)
    places = [i for i, item in enumerate(items) if item is ...]
    unread_unless(taken <= ndim and len(places) <= 1)
    for place in places:
        items[place : place + 1] = [slice(None)] * (ndim - taken)
    return _composed(tensor(c, c.input), items)


def _composed(x: Any, items: Sequence[Any]) -> Canon:
    """One slice of all axes, then the axes that are looked up, last first, then the new axes."""
    own = [item for item in items if item is not None]
    parts = {place: s for place, s in enumerate(own) if isinstance(s, slice) and s != slice(None)}
    result: Any = x
    if parts:
        slices = [(bound(s.start), bound(s.stop), 1 if s.step is None else s.step) for s in parts.values()]
        result = sliced(result, list(parts), slices)
    for place in reversed(range(len(own))):
        if not isinstance(own[place], slice):
            result = Canon("take", (result, own[place]), {"axis": place})
    new = [i for i, item in enumerate(items) if item is None]
    # New axes count in the result, where integers have none.
    unread_unless(not new or all(item is None or is_int(item) or isinstance(item, slice) for item in items))
    for place in new:
        result = Canon("expand_dims", (result,), {"axis": place - sum(is_int(item) for item in items[:place])})
    if result is x:
        raise FxUnreadError
    assert isinstance(result, Canon)
    return result


def _index(c: BoundCall) -> Canon:
    """``aten.index`` with tensors of indices."""
    unread_unless(isinstance(c.indices, (list, tuple)))
    return _looked_up(c, tensor(c, c.input), c.indices)


def _looked_up(c: BoundCall, x: Any, items: Sequence[Any]) -> Canon:
    """The elements at the places that tensors give for some axes; ``None`` stands for an axis that is taken whole.

    Several axes are looked up as one, which has the elements of all of them.
    """
    axes = [axis for axis, item in enumerate(items) if item is not None]
    places = [items[axis] for axis in axes]
    unread_unless(places and all(_is_places(c, each) for each in places))
    if len(places) == 1:
        return Canon("take", (x, places[0]), {"axis": axes[0]})
    shape = c.typed(x).shape
    rest = [axis for axis in range(len(shape)) if axis not in axes]
    first = x if axes == list(range(len(axes))) else transposed(c, x, (*axes, *rest))
    sizes = integers([shape[axis] for axis in axes])
    one = reshaped(c, first, (product(sizes), *(shape[axis] for axis in rest)))
    found = Canon("take", (one, _place_in_all(c, places, sizes)), {"axis": 0})
    # Where the axes follow each other, the axes of the places are where those were; else they come first.
    before = axes[0] if axes[-1] - axes[0] == len(axes) - 1 else 0
    if before == 0:
        return found
    new = max(c.ndim(each) for each in places)
    order = (*range(new, new + before), *range(new), *range(new + before, new + len(rest)))
    return Canon("transpose", (found,), {"axes": order})


def _place_in_all(c: BoundCall, places: Sequence[Any], sizes: Sequence[int]) -> Any:
    """The place among the elements of several axes of these sizes; a negative place counts from the end of its axis."""
    result: Any = None
    for each, size in zip(places, sizes):
        own = Canon("floor_mod", (cast(c, each, "int64"), size))
        result = own if result is None else Canon("add", (Canon("multiply", (result, size)), own))
    return result


# ---------------------------------------------------------------- places that are known


def _known_places(c: BoundCall, x: Any, axis: int, places: Any) -> Canon:
    """The elements at some places of an axis; the places may be a list of lists, which makes more axes."""
    return Canon("take", (tensor(c, x), LiteralOperand(torch.tensor(places))), {"axis": axis})


def _roll(c: BoundCall) -> Canon:
    shape, result = c.typed(c.input).shape, tensor(c, c.input)
    shifts, dims = integers(c.shifts), integers(c.dims)
    unread_unless(dims and len(shifts) == len(dims))
    for shift, dim in zip(shifts, dims):
        where = axis(dim, len(shape))
        size = integer(shape[where])
        result = _known_places(c, result, where, [(place - shift) % size for place in range(size)])
    assert isinstance(result, Canon)
    return result


def _windows(size: Any, window: Any, step: Any, dilation: Any = 1) -> list[list[int]]:
    """The places in each window of an axis."""
    size, window, step, dilation = integer(size), integer(window), integer(step), integer(dilation)
    unread_unless(window > 0 and step > 0 and size >= dilation * (window - 1) + 1)
    starts = range(0, size - dilation * (window - 1), step)
    return [[start + dilation * i for i in range(window)] for start in starts]


def _unfold(c: BoundCall) -> Canon:
    """The windows of an axis, with their elements in a new last axis."""
    shape = c.typed(c.input).shape
    where, ndim = axis(c.dimension, len(shape)), len(shape)
    unread_unless(ndim > 0)
    windows = _known_places(c, c.input, where, _windows(shape[where], c.size, c.step))
    return transposed(c, windows, [a for a in range(ndim + 1) if a != where + 1] + [where + 1])


def _im2col(c: BoundCall) -> Canon:
    """The windows of images as columns."""
    kind = c.typed(c.input)
    unread_unless(kind.ndim == 4)
    options = [per_axis(each, 2) for each in (c.kernel_size, c.dilation, c.padding, c.stride)]
    result, places = tensor(c, c.input), []
    height, width = options[2]
    if height or width:
        result = padded(c, result, (width, width, height, height), "constant", None)
    for size, window, dilation, padding, step in zip(integers(kind.shape[2:]), *options):
        rows = _windows(size + 2 * padding, window, step, dilation)
        places.append([list(column) for column in zip(*rows)])
    result = _known_places(c, _known_places(c, result, 2, places[0]), 4, places[1])
    result = transposed(c, result, (0, 1, 2, 4, 3, 5))
    batch, channels = kind.shape[:2]
    kernel, columns = [len(rows) for rows in places], [len(rows[0]) for rows in places]
    return reshaped(c, result, (batch, channels * product(kernel), product(columns)))


def _nearest(c: BoundCall) -> Canon:
    """An image of another size, of the nearest elements. Torch's kernels compute their places in several ways; where
    these differ, the call is not read."""
    kind, result = c.typed(c.input), tensor(c, c.input)
    sizes = integers(kind.shape[2:])
    scales, wanted = _per_size(c.scale_factors, len(sizes)), _per_size(c.output_size, len(sizes))
    for where, (size, scale, new) in enumerate(zip(sizes, scales, wanted), start=2):
        unread_unless(size > 0 and (new is None) != (scale is None))
        scale = None if scale is None else number(scale)
        count = integer(new) if scale is None else math.floor(size * scale)
        places = nearest_places(size, count, scale)
        unread_unless(places is not None)
        times = count // size
        if times and places == [place // times for place in range(count)]:
            result = Canon("repeat", (result,), {"repeats": times, "axis": where})
        else:
            result = _known_places(c, result, where, places)
    assert isinstance(result, Canon)
    return result


def _per_size(value: Any, count: int) -> tuple[Any, ...]:
    values = tuple(value) if isinstance(value, (list, tuple)) else (value,) * count
    unread_unless(len(values) == count)
    return values


def nearest_places(size: int, count: int, scale: float | None) -> list[int] | None:
    """The places along an axis whose elements a resized axis has, by a scale that is given, or by its sizes.

    ``None`` where they differ among the ways in which torch computes them: in float64, in float32 from a step that is
    rounded before or after the division, and by whole numbers where an axis keeps its size or is doubled.
    """
    if count < 1:
        return None
    over, under = (size, count) if scale is None else (1, scale)
    steps = (over / under, float(np.float32(over) / np.float32(under)), float(np.float32(over / under)))
    found = {tuple(_steps(size, count, step, kind)) for step in steps for kind in (np.float32, np.float64)}
    if count in (size, 2 * size):
        found.add(tuple([place * size // count for place in range(count)]))
    return list(found.pop()) if len(found) == 1 else None


def _steps(size: int, count: int, step: float, kind: Any) -> list[int]:
    places: list[int] = np.floor(np.arange(count, dtype=kind) * kind(step)).astype(int).tolist()
    return [min(place, size - 1) for place in places]


def _gather(c: BoundCall) -> Canon:
    unread_unless(c.sparse_grad is False)
    return Canon("gather", (tensor(c, c.input), tensor(c, c.index)), {"axis": integer(c.dim)})


def _diagonal_scatter(c: BoundCall) -> Canon:
    """Of matrices in the last two axes."""
    ndim = c.ndim(c.input)
    unread_unless((axis(c.dim1, ndim), axis(c.dim2, ndim)) == (ndim - 2, ndim - 1))
    return Canon("matrix_set_diag", (tensor(c, c.input), tensor(c, c.src)), {"k": integer(c.offset)})


def _trilu(upper: bool) -> FxLift:
    return lambda c: Canon("trilu", (tensor(c, c.input),), {"k": integer(c.diagonal), "upper": upper})


def _embedding(c: BoundCall) -> Canon:
    """The padding index counts in the gradient only."""
    unread_unless(c.max_norm is None and c.scale_grad_by_freq is False and c.sparse is False)
    return Canon("take", (tensor(c, c.weight), tensor(c, c.input)), {"axis": 0})


def _index_select(c: BoundCall) -> Canon:
    unread_unless(c.ndim(c.index) == 1)
    return Canon("take", (tensor(c, c.input), tensor(c, c.index)), {"axis": integer(c.dim)})


# ---------------------------------------------------------------- writing


def _write_strided_slice(s: Site) -> Native:
    found = s.type()
    result: Any = s.x
    parts: dict[int, slice] = {}
    rows = zip(s["axes"], s["begin"], s["end"], s["strides"] or (1,) * len(s["axes"]), strict=True)
    for where, first, last, step in rows:
        size = None if found is None else found.shape[where]
        if step < 0:
            # Torch has no slices of negative step: reversed, it is a positive one.
            if not isinstance(size, int):
                raise ValueError(f"a slice with step {step} of an axis of unknown size")
            first, last, step = size - 1 - first, size - 1 - (last if last >= 0 else last + size), -step
            result = call(torch.flip, result, (where,))
        begin = None if _is(first, 0) else first
        end = None if size is not None and _is(last, size) else last
        parts[where % found.ndim if found is not None else where] = slice(begin, end, None if step == 1 else step)
    if min(parts, default=0) < 0:
        raise ValueError(f"a slice of the axes {tuple(parts)} of an operand of unknown type")
    if not parts:
        return call(operator.getitem, result, ...)
    return call(operator.getitem, result, tuple(parts.get(where, slice(None)) for where in range(max(parts) + 1)))


def _is(value: Any, size: Any) -> bool:
    return type(value) is type(size) and bool(value == size)


def _write_take(s: Site) -> Native:
    axis = s["axis"]
    x = call(torch.reshape, s.x, (-1,)) if axis is None else s.x
    axis = axis or 0
    indices = s.operands[1]
    if is_number(indices):
        return call(torch.select, x, axis, indices)
    found = s.type(1)
    if found is None or found.dtype not in ("int64", "int32"):
        indices = call("to", indices, torch.int64)
    if axis < 0:
        s.known()
    return call(operator.getitem, x, (*(slice(None),) * axis, indices) if axis else indices)


def _write_topk(s: Site) -> Native:
    flags = options(largest=(s["largest"], True), sorted=(s["sorted"], True))
    return call(torch.topk, s.x, s["k"], s["axis"], **flags)


def _int(size: Any) -> int:
    if not isinstance(size, int):
        raise ValueError(f"a band of a matrix of size {size}")
    return size


def _write_matrix_set_diag(s: Site) -> Native:
    (low, high), (upper, lower) = s["k"], s["align"].split("_")
    x, diagonal = s.operands
    if low == high:
        return call(torch.diagonal_scatter, x, diagonal, **options(offset=(low, 0)), dim1=-2, dim2=-1)
    rows, columns, width = (_int(size) for size in (*s.known(0).shape[-2:], s.known(1).shape[-1]))
    ndim = s.known(1).ndim
    for band, offset in enumerate(range(high, low - 1, -1)):
        length = min(rows, columns - offset) if offset >= 0 else min(rows + offset, columns)
        start = width - length if (upper if offset >= 0 else lower) == "RIGHT" else 0
        place = (*(slice(None),) * (ndim - 2), band, slice(start, start + length))
        part = call(operator.getitem, diagonal, place)
        x = call(torch.diagonal_scatter, x, part, **options(offset=(offset, 0)), dim1=-2, dim2=-1)
    assert isinstance(x, Native)
    return x


ROWS: Final = (
    FxRow("operator.getitem .__getitem__", "input index", _getitem),
    FxRow("aten.index.Tensor aten._unsafe_index.Tensor", "input indices", _index),
    row("gather", words("gather"), "input dim index sparse_grad=False", read=_gather,
        write=lambda s: call(torch.gather, s.x, s["axis"], s.operands[1])),
    row("scatter", words("scatter", "src"), "input dim index src", operands="input index src", axis=("dim", integer),
        write=lambda s: call(torch.scatter, s.x, s["axis"], *s.operands[1:])),
    row("topk", words("topk"), "input k dim=-1 largest=True sorted=True", k=("k", integer), axis=("dim", integer),
        largest=("largest", bool), sorted=("sorted", bool), write=_write_topk),
    row("matrix_set_diag", words("diagonal_scatter"), "input src offset=0 dim1=0 dim2=1", read=_diagonal_scatter,
        write=_write_matrix_set_diag),
    row("trilu", words("triu"), "input diagonal=0", read=_trilu(True), inplace=True,
        write=lambda s: call(torch.triu if s["upper"] else torch.tril, s.x, **options(diagonal=(s["k"], 0)))),
    FxRow(words("tril"), "input diagonal=0", _trilu(False), inplace=True),
    row("strided_slice", "aten.slice.Tensor", "input dim=0 start=None end=None step=1", read=_slice,
        write=_write_strided_slice),
    FxRow(words("narrow"), "input dim start length", _narrow),
    row("take", words("select", "int"), "input dim index", read=_select, write=_write_take),
    FxRow(words("index_select"), "input dim index", _index_select),
    FxRow(
        "F.embedding",
        "input weight padding_idx=None max_norm=None norm_type=2.0 scale_grad_by_freq=False sparse=False", _embedding,
    ),
    FxRow(
        "torch.embedding aten.embedding.default",
        "weight input padding_idx=-1 max_norm=None scale_grad_by_freq=False sparse=False", _embedding,
    ),
    FxRow(words("roll"), "input shifts dims=()", _roll),
    FxRow(".unfold aten.unfold.default", "input dimension size step", _unfold),
    FxRow("F.unfold aten.im2col.default", "input kernel_size dilation=1 padding=0 stride=1", _im2col),
    FxRow(
        "aten.upsample_nearest1d.vec aten.upsample_nearest2d.vec aten.upsample_nearest3d.vec",
        "input output_size scale_factors", _nearest,
    ),
)  # fmt: skip
FIELDS: Final = (FxRow(words("unbind", "int"), "input dim=0", _unbind),)
"""Calls with several results, each of which is canonical."""

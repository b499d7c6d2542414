"""Spellings of shapes and padding."""

from __future__ import annotations

import itertools
import operator
import string
from collections.abc import Sequence
from typing import Any, Final

import torch
import torch.nn.functional as F

from gsl.front.fx.spellings.bind import (
    BoundCall,
    axis,
    dims,
    integer,
    integers,
    is_dim,
    is_int,
    number,
    unread_unless,
)
from gsl.front.fx.spellings.table import (
    FxLift,
    FxLower,
    FxRow,
    Native,
    Site,
    call,
    options,
    pads,
    renamed,
    row,
    tensor,
    words,
)
from gsl.front.tree import Canon
from gsl.graph import TupleType


def product(sizes: Sequence[Any]) -> Any:
    result: Any = 1
    for size in sizes:
        result = result * size
    return result


# ---------------------------------------------------------------- shapes


def reshaped(c: BoundCall, x: Any, sizes: Sequence[Any]) -> Canon:
    # A size of 0 would be Relay's code for an axis that stays.
    unread_unless(all(size != 0 for size in sizes))
    return Canon("reshape", (tensor(c, x),), {"newshape": tuple(sizes)})


def _reshape(c: BoundCall) -> Canon:
    return reshaped(c, c.input, dims(c.shape))


def _reshape_as(c: BoundCall) -> Canon:
    return reshaped(c, c.input, c.typed(c.other).shape)


def _flatten(c: BoundCall) -> Canon:
    found = c.tensor_type(c.input)
    if found is None:
        # Axes before the first merged one stay, whatever their sizes.
        unread_unless(integer(c.start_dim) >= 0 and integer(c.end_dim) == -1)
        return Canon("reshape", (tensor(c, c.input),), {"newshape": (0,) * integer(c.start_dim) + (-1,)})
    shape = found.shape
    unread_unless(len(shape) > 0)
    first, last = axis(c.start_dim, len(shape)), axis(c.end_dim, len(shape))
    unread_unless(first <= last)
    return reshaped(c, c.input, (*shape[:first], product(shape[first : last + 1]), *shape[last + 1 :]))


def _unflatten(c: BoundCall) -> Canon:
    shape = c.typed(c.input).shape
    where, parts = axis(c.dim, len(shape)), list(dims(c.sizes))
    unread_unless(0 not in parts)
    if -1 in parts:
        parts[parts.index(-1)] = shape[where] // product([p for p in parts if p != -1])
    return reshaped(c, c.input, (*shape[:where], *parts, *shape[where + 1 :]))


def _squeeze(c: BoundCall) -> Canon:
    """A squeeze of known axes. Unread for one of a symbolic size: torch drops it at run time, if that is 1 then."""
    axes = None if c.dim is None else integers(c.dim)
    found = c.tensor_type(c.input)
    if found is not None:
        unread_unless(axes is None or found.ndim > 0)
        dropped = found.shape if axes is None else [found.shape[each] for each in axes]
        unread_unless(all(is_int(size) for size in dropped))
    return Canon("squeeze", (tensor(c, c.input),), {"axis": axes})


def _expand_as(c: BoundCall) -> Canon:
    return Canon("broadcast_to", (tensor(c, c.input),), {"shape": c.typed(c.other).shape})


# ---------------------------------------------------------------- axes


def transposed(c: BoundCall, x: Any, axes: Sequence[int]) -> Canon:
    return Canon("transpose", (tensor(c, x),), {"axes": tuple(axes)})


def swapped(c: BoundCall, x: Any, first: Any, second: Any) -> Canon:
    ndim = c.ndim(x)
    unread_unless(ndim > 0)
    axes = list(range(ndim))
    a, b = axis(first, ndim), axis(second, ndim)
    axes[a], axes[b] = axes[b], axes[a]
    return transposed(c, x, axes)


def _transpose(c: BoundCall) -> Canon:
    return swapped(c, c.input, c.dim0, c.dim1)


def _permute(c: BoundCall) -> Canon:
    return transposed(c, c.input, integers(c.dims))


def _t(c: BoundCall) -> Canon:
    """All axes, in reverse order."""
    return Canon("transpose", (tensor(c, c.input),), {"axes": None})


def _attribute(c: BoundCall) -> Canon:
    """``x.T`` and ``x.mT``."""
    unread_unless(c.name in ("T", "mT"))
    return _t(c) if c.name == "T" else swapped(c, c.input, -2, -1)


def _movedim(c: BoundCall) -> Canon:
    ndim = c.ndim(c.input)
    source = [axis(a, ndim) for a in integers(c.source)]
    target = [axis(a, ndim) for a in integers(c.destination)]
    unread_unless(len(set(source)) == len(source) == len(set(target)) == len(target))
    rest = iter([a for a in range(ndim) if a not in source])
    return transposed(c, c.input, [source[target.index(a)] if a in target else next(rest) for a in range(ndim)])


# ---------------------------------------------------------------- shuffles


def _turned(c: BoundCall, parts: Sequence[Any], axes: Sequence[int], joined: Sequence[Any]) -> Canon:
    """A tensor of which axes are taken apart, exchanged, and put together."""
    turned = transposed(c, reshaped(c, c.input, parts), axes)
    return Canon("reshape", (turned,), {"newshape": tuple(joined)})


def _image(c: BoundCall, factor: Any) -> tuple[list[Any], Any, Any, Any, int]:
    """The axes before the channels, the sizes of channels, height and width, and a factor."""
    shape, times = c.typed(c.input).shape, integer(factor)
    unread_unless(len(shape) > 2 and times > 0)
    *lead, channels, height, width = shape
    return lead, channels, height, width, times


def _pixel_shuffle(c: BoundCall) -> Canon:
    """Channels as the pixels of larger images."""
    lead, channels, height, width, times = _image(c, c.upscale_factor)
    n, channels = len(lead), integer(channels) // times**2
    parts = (*lead, channels, times, times, height, width)
    axes = (*range(n), n, n + 3, n + 1, n + 4, n + 2)
    return _turned(c, parts, axes, (*lead, channels, height * times, width * times))


def _pixel_unshuffle(c: BoundCall) -> Canon:
    """Pixels as the channels of smaller images."""
    lead, channels, height, width, times = _image(c, c.downscale_factor)
    n, height, width = len(lead), integer(height) // times, integer(width) // times
    parts = (*lead, channels, height, times, width, times)
    axes = (*range(n), n, n + 2, n + 4, n + 1, n + 3)
    return _turned(c, parts, axes, (*lead, channels * times**2, height, width))


def _channel_shuffle(c: BoundCall) -> Canon:
    """The channels of groups in turn."""
    shape, groups = c.typed(c.input).shape, integer(c.groups)
    unread_unless(len(shape) > 2 and groups > 0)
    parts = (shape[0], groups, integer(shape[1]) // groups, *shape[2:])
    return _turned(c, parts, (0, 2, 1, *range(3, len(parts))), shape)


# ---------------------------------------------------------------- several tensors


def fields(c: BoundCall, tensors: Any) -> Any:
    """A list of tensors as one operand: a tuple of them, or a call that returns one."""
    if isinstance(tensors, (list, tuple)):
        unread_unless(tensors)
        return Canon("tuple", tuple(tensor(c, t) for t in tensors))
    unread_unless(isinstance(c.type_of(tensors), TupleType))
    return tensors


def _joined(op: str) -> FxLift:
    return lambda c: Canon(op, (fields(c, c.tensors),), {"axis": integer(c.dim)})


def _sections(c: BoundCall, sizes: Sequence[Any]) -> Canon:
    """A split into parts of these sizes."""
    cuts = tuple(itertools.accumulate(sizes[:-1]))
    unread_unless(all(is_dim(cut) for cut in cuts))
    return Canon("split", (tensor(c, c.input),), {"indices_or_sections": cuts, "axis": integer(c.dim)})


def _size(c: BoundCall) -> int:
    shape = c.typed(c.input).shape
    size = shape[axis(c.dim, len(shape))]
    unread_unless(isinstance(size, int) and size > 0)
    assert isinstance(size, int)
    return size


def _parts(total: int, size: int) -> list[int]:
    unread_unless(size > 0)
    return [min(size, total - start) for start in range(0, total, size)]


def _split(c: BoundCall) -> Canon:
    if isinstance(c.split_size, (list, tuple)):
        unread_unless(len(c.split_size) > 0)
        return _sections(c, dims(c.split_size))
    return _sections(c, _parts(_size(c), integer(c.split_size)))


def _chunk(c: BoundCall) -> Canon:
    total, count = _size(c), integer(c.chunks)
    unread_unless(count > 0)
    return _sections(c, _parts(total, -(-total // count)))


def _tensor_split(c: BoundCall) -> Canon:
    total, given = _size(c), c.indices_or_sections
    if isinstance(given, (list, tuple)):
        edges = [0, *integers(tuple(given)), total]
        sizes = [b - a for a, b in itertools.pairwise(edges)]
        unread_unless(all(s > 0 for s in sizes))
        return _sections(c, sizes)
    count = integer(given)
    unread_unless(0 < count <= total)
    return _sections(c, [total // count + (i < total % count) for i in range(count)])


# ---------------------------------------------------------------- repetition


def _repeat_interleave(c: BoundCall) -> Canon:
    """``output_size`` is the size that the axis gets, or an error."""
    axis = None if c.dim is None else integer(c.dim)
    return Canon("repeat", (tensor(c, c.input),), {"repeats": integer(c.repeats), "axis": axis})


def _flip(c: BoundCall) -> Canon:
    unread_unless(c.dims)
    return Canon("reverse", (tensor(c, c.input),), {"axis": integers(c.dims)})


def _tensordot(c: BoundCall) -> Canon:
    """Sums over pairs of axes: for a number, the last axes of one tensor and the first ones of the other."""
    unread_unless(c.out is None and (is_int(c.dims) or isinstance(c.dims, (tuple, list))))
    ndim = c.ndim(c.a)
    one, other = (range(ndim - c.dims, ndim), range(c.dims)) if is_int(c.dims) else map(integers, c.dims)
    return _summed(c, c.a, c.b, one, other)


def _summed(c: BoundCall, x: Any, y: Any, one: Sequence[int], other: Sequence[int]) -> Canon:
    """The einsum that sums over axes of one tensor and those of another."""
    letters = iter(string.ascii_letters)
    of_x, of_y = (list(itertools.islice(letters, c.ndim(each))) for each in (x, y))
    for left, right in zip(one, other, strict=True):
        of_y[right] = of_x[left]
    kept = [letter for letter in (*of_x, *of_y) if (letter in of_x) != (letter in of_y)]
    return Canon("einsum", (fields(c, (x, y)),), {"equation": "".join((*of_x, ",", *of_y, "->", *kept))})


def _einsum(c: BoundCall) -> Canon:
    unread_unless(isinstance(c.equation, str))
    return Canon("einsum", (fields(c, c.tensors),), {"equation": c.equation})


# ---------------------------------------------------------------- writing


def _write_reshape(s: Site) -> Native:
    shape = s["newshape"]
    if s.type() is None and any(isinstance(d, int) and (d == 0 or d < -1) for d in shape):
        kept = len(shape) - 1
        if shape == (0,) * kept + (-1,):
            return call(torch.flatten, s.x, kept)
        raise ValueError(f"the shape {shape} of an operand of unknown type")
    return call(torch.reshape, s.x, shape)


def _write_reshape_like(s: Site) -> Native:
    own, like = s.known(0).shape, s.known(1).shape
    begin, end, _ = slice(s["lhs_begin"], s["lhs_end"]).indices(len(own))
    return call(torch.reshape, s.x, (*own[:begin], *like[s["rhs_begin"] : s["rhs_end"]], *own[end:]))


def _write_expand_dims(s: Site) -> Native:
    result: Any = s.x
    for _ in range(s["num_newaxis"]):
        result = call(torch.unsqueeze, result, s["axis"])
    assert isinstance(result, Native)
    return result


def _write_squeeze(s: Site) -> Native:
    axes = s["axis"]
    if axes is None:
        return call(torch.squeeze, s.x)
    return call(torch.squeeze, s.x, axes[0] if len(axes) == 1 else axes)


def _as_list(operand: Any) -> Any:
    """The fields of a tuple operand as a list; a call that returns a tuple stands for itself."""
    return list(operand) if isinstance(operand, (tuple, list)) else operand


def _write_split(s: Site) -> Native:
    cuts, axis, found = s["indices_or_sections"], s["axis"], s.type()
    if isinstance(cuts, int) or found is None:
        return call(torch.tensor_split, s.x, cuts, dim=axis)
    edges = (0, *cuts, found.shape[axis])
    sizes = [after - before for before, after in itertools.pairwise(edges)]
    # Equal parts, and a smaller rest, are what one size says.
    if all(isinstance(size, int) for size in sizes) and len(set(sizes[:-1])) <= 1 and 0 < sizes[-1] <= sizes[0]:
        return call(torch.split, s.x, sizes[0], dim=axis)
    return call(torch.split, s.x, sizes, dim=axis)


def _write_joined(target: Any) -> FxLower:
    return lambda s: call(target, _as_list(s.x), **options(dim=(s["axis"], 0)))


# ---------------------------------------------------------------- padding

_PAD_MODES: Final = {"constant": "constant", "replicate": "edge", "reflect": "reflect"}


def padded(c: BoundCall, x: Any, pad: Any, mode: Any, value: Any) -> Canon:
    """Torch pads from the last axis on."""
    widths, ndim = integers(pad), c.ndim(x)
    unread_unless(len(widths) % 2 == 0 and len(widths) <= 2 * ndim and min(widths, default=0) >= 0)
    unread_unless(mode in _PAD_MODES)
    pairs = [(widths[i], widths[i + 1]) for i in range(0, len(widths), 2)]
    pairs += [(0, 0)] * (ndim - len(pairs))
    attrs: dict[str, Any] = {"pad_width": tuple(reversed(pairs)), "pad_mode": _PAD_MODES[mode]}
    if value is not None:
        attrs["pad_value"] = number(value)
    return Canon("nn.pad", (tensor(c, x),), attrs)


def _pad(c: BoundCall) -> Canon:
    return padded(c, c.input, c.pad, c.mode, c.value)


def _write_pad(s: Site) -> Native:
    pairs, mode = s["pad_width"], s["pad_mode"]
    widths = pads(pairs)
    if mode == "constant":
        return call(F.pad, s.x, widths, **options(value=(s["pad_value"], 0.0)))
    # Torch repeats or reflects up to three last axes, and all but one or two.
    count = max(len(widths) // 2, len(pairs) - 2)
    found = s.type()
    if count <= min(3, len(pairs) - 1) and (found is None or found.dtype != "bool"):
        widths += (0,) * (2 * count - len(widths))
        return call(F.pad, s.x, widths, mode="replicate" if mode == "edge" else mode)
    result: Any = s.x
    for where, (before, after) in enumerate(pairs):
        if (before, after) != (0, 0):
            result = call(torch.cat, _continued(result, where, before, after, mode), dim=where)
    return result if isinstance(result, Native) else call(F.pad, s.x, widths)


def _continued(x: Any, axis: int, before: int, after: int, mode: str) -> list[Any]:
    """A tensor between its own continuations."""

    def part(start: int | None, stop: int | None) -> Native:
        return call(operator.getitem, x, (slice(None),) * axis + (slice(start, stop),))

    pieces: list[Any] = [x]
    if before:
        first = part(1, before + 1) if mode == "reflect" else part(0, 1)
        pieces.insert(0, _repeated(first, axis, before, mode))
    if after:
        last = part(-after - 1, -1) if mode == "reflect" else part(-1, None)
        pieces.append(_repeated(last, axis, after, mode))
    return pieces


def _repeated(x: Any, axis: int, count: int, mode: str) -> Native:
    if mode == "reflect":
        return call(torch.flip, x, (axis,))
    return call(torch.repeat_interleave, x, count, dim=axis)


ROWS: Final = (
    row("reshape", f".view aten.view.default aten._unsafe_view.default {words('reshape')}", "input *shape",
        read=_reshape, write=_write_reshape),
    FxRow(op="reshape_like", write=_write_reshape_like),
    FxRow(".view_as .reshape_as aten.view_as.default aten.reshape_as.default", "input other", _reshape_as),
    FxRow(f"{words('flatten', 'using_ints')} {words('ravel')}", "input start_dim=0 end_dim=-1", _flatten),
    FxRow(words("unflatten", "int"), "input dim sizes", _unflatten),
    row("squeeze", words("squeeze", "default dim dims"), "input dim=None", read=_squeeze, write=_write_squeeze),
    row("expand_dims", words("unsqueeze"), "input dim", axis=("dim", integer), write=_write_expand_dims),
    row(
        "broadcast_to", f".expand aten.expand.default {words('broadcast_to')}", "input *size implicit=False",
        shape=("size", dims), write=lambda s: call(torch.broadcast_to, s.x, s["shape"]),
    ),
    FxRow(".expand_as aten.expand_as.default", "input other", _expand_as),
    FxRow(f"{words('transpose', 'int')} {words('swapaxes swapdims')}", "input dim0 dim1", _transpose),
    row("transpose", words("permute"), "input *dims", read=_permute,
        write=lambda s: call(getattr, s.x, "T") if s["axes"] is None else call(torch.permute, s.x, s["axes"])),
    FxRow(f"aten.numpy_T.default aten.numpy_T {words('t')}", "input", _t),
    FxRow("aten.mT.default aten.mT", "input", lambda c: swapped(c, c.input, -2, -1)),
    FxRow(words("movedim moveaxis", "int intlist"), "input source destination", _movedim),
    FxRow("torch.pixel_shuffle aten.pixel_shuffle.default", "input upscale_factor", _pixel_shuffle),
    FxRow("torch.pixel_unshuffle aten.pixel_unshuffle.default", "input downscale_factor", _pixel_unshuffle),
    FxRow(
        "torch.channel_shuffle aten.channel_shuffle.default torch.native_channel_shuffle "
        "aten.native_channel_shuffle.default", "input groups", _channel_shuffle,
    ),
    row("concatenate", "torch.cat torch.concat torch.concatenate aten.cat.default aten.concat.default "
        "aten.concatenate.default", "tensors dim=0", read=_joined("concatenate"),
        write=_write_joined(torch.cat)),
    row("stack", "torch.stack aten.stack.default", "tensors dim=0", read=_joined("stack"),
        write=_write_joined(torch.stack)),
    row("split", "torch.split .split aten.split.Tensor aten.split.sizes", "input split_size dim=0", read=_split,
        write=_write_split),
    FxRow("torch.split_with_sizes .split_with_sizes aten.split_with_sizes.default", "input split_size dim=0", _split),
    FxRow("torch.chunk .chunk aten.chunk.default", "input chunks dim=0", _chunk),
    FxRow("torch.tensor_split .tensor_split", "input indices_or_sections dim=0", _tensor_split),
    FxRow(".repeat aten.repeat.default", "input *repeats", renamed("tile", reps=("repeats", integers))),
    row("tile", words("tile"), "input *dims", reps=("dims", integers),
        write=lambda s: call(torch.tile, s.x, s["reps"])),
    row("repeat", words("repeat_interleave", "self_int"), "input repeats dim=None output_size=None",
        read=_repeat_interleave,
        write=lambda s: call(torch.repeat_interleave, s.x, s["repeats"], **options(dim=(s["axis"], None)))),
    row("reverse", words("flip"), "input *dims", read=_flip, write=lambda s: call(torch.flip, s.x, s["axis"])),
    FxRow("torch.tensordot", "a b dims=2 out=None", _tensordot),
    FxRow("aten.tensordot.default", "input other dims_self dims_other",
          lambda c: _summed(c, c.input, c.other, integers(c.dims_self), integers(c.dims_other))),
    row("einsum", "torch.einsum aten.einsum.default", "equation *tensors", read=_einsum,
        write=lambda s: call(torch.einsum, s["equation"], *(s.x if isinstance(s.x, (tuple, list)) else (s.x,)))),
    FxRow("builtins.getattr", "input name", _attribute),
    row("nn.pad", "F.pad aten.pad.default", "input pad mode='constant' value=None", read=_pad, write=_write_pad),
    FxRow("torch.constant_pad_nd aten.constant_pad_nd.default", "input pad value=0 mode='constant'", _pad),
    *(
        FxRow(f"aten.{name}_pad{rank}d.default", f"input pad mode='{mode}' value=None", _pad)
        for name, mode in (("reflection", "reflect"), ("replication", "replicate"))
        for rank in (1, 2, 3)
    ),
)  # fmt: skip

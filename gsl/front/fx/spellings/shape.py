"""Spellings of the operators that move elements: reshaping, joining, splitting, repeating."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any, Final

from gsl.front.fx.spellings.bind import Call, axis, dims, integer, integers, is_dim, number, unread_unless
from gsl.front.fx.spellings.elementwise import tensor
from gsl.front.fx.spellings.table import Reader, Row
from gsl.front.tree import Canon
from gsl.graph import TupleType


def product(sizes: Sequence[Any]) -> Any:
    result: Any = 1
    for size in sizes:
        result = result * size
    return result


# ---------------------------------------------------------------- shapes


def reshaped(c: Call, x: Any, sizes: Sequence[Any]) -> Canon:
    # A size of 0 would be Relay's code for an axis that stays.
    unread_unless(all(size != 0 for size in sizes))
    return Canon("reshape", (tensor(c, x),), {"newshape": tuple(sizes)})


def _reshape(c: Call) -> Canon:
    return reshaped(c, c.input, dims(c.shape))


def _view(c: Call) -> Canon:
    return reshaped(c, c.input, dims(c.size))


def _flatten(c: Call) -> Canon:
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


def _unflatten(c: Call) -> Canon:
    shape = c.typed(c.input).shape
    where, parts = axis(c.dim, len(shape)), list(dims(c.sizes))
    unread_unless(0 not in parts)
    if -1 in parts:
        parts[parts.index(-1)] = shape[where] // product([p for p in parts if p != -1])
    return reshaped(c, c.input, (*shape[:where], *parts, *shape[where + 1 :]))


def _view_as(c: Call) -> Canon:
    return reshaped(c, c.input, c.typed(c.other).shape)


def _squeeze(c: Call) -> Canon:
    axes = None if c.dim is None else integers(c.dim)
    found = c.tensor_type(c.input)
    unread_unless(axes is None or found is None or found.ndim > 0)
    return Canon("squeeze", (tensor(c, c.input),), {"axis": axes})


def _unsqueeze(c: Call) -> Canon:
    return Canon("expand_dims", (tensor(c, c.input),), {"axis": integer(c.dim)})


def _expand(c: Call) -> Canon:
    return Canon("broadcast_to", (tensor(c, c.input),), {"shape": dims(c.size)})


def _expand_as(c: Call) -> Canon:
    return Canon("broadcast_to", (tensor(c, c.input),), {"shape": c.typed(c.other).shape})


# ---------------------------------------------------------------- axes


def transposed(c: Call, x: Any, axes: Sequence[int]) -> Canon:
    return Canon("transpose", (tensor(c, x),), {"axes": tuple(axes)})


def swapped(c: Call, x: Any, first: Any, second: Any) -> Canon:
    ndim = c.ndim(x)
    unread_unless(ndim > 0)
    axes = list(range(ndim))
    a, b = axis(first, ndim), axis(second, ndim)
    axes[a], axes[b] = axes[b], axes[a]
    return transposed(c, x, axes)


def _transpose(c: Call) -> Canon:
    return swapped(c, c.input, c.dim0, c.dim1)


def _permute(c: Call) -> Canon:
    return transposed(c, c.input, integers(c.dims))


def _t(c: Call) -> Canon:
    """All axes, in reverse order."""
    return Canon("transpose", (tensor(c, c.input),), {"axes": None})


def _attribute(c: Call) -> Canon:
    """``x.T`` and ``x.mT``."""
    unread_unless(c.name in ("T", "mT"))
    return _t(c) if c.name == "T" else swapped(c, c.input, -2, -1)


def _movedim(c: Call) -> Canon:
    ndim = c.ndim(c.input)
    source = [axis(a, ndim) for a in integers(c.source)]
    target = [axis(a, ndim) for a in integers(c.destination)]
    unread_unless(len(set(source)) == len(source) == len(set(target)) == len(target))
    rest = iter([a for a in range(ndim) if a not in source])
    return transposed(c, c.input, [source[target.index(a)] if a in target else next(rest) for a in range(ndim)])


# ---------------------------------------------------------------- several tensors


def fields(c: Call, tensors: Any) -> Any:
    """A list of tensors as one operand: a tuple of them, or a call that returns one."""
    if isinstance(tensors, (list, tuple)):
        unread_unless(tensors)
        return Canon("tuple", tuple(tensor(c, t) for t in tensors))
    unread_unless(isinstance(c.type_of(tensors), TupleType))
    return tensors


def _cat(c: Call) -> Canon:
    return Canon("concatenate", (fields(c, c.tensors),), {"axis": integer(c.dim)})


def _stack(c: Call) -> Canon:
    return Canon("stack", (fields(c, c.tensors),), {"axis": integer(c.dim)})


def _sections(c: Call, sizes: Sequence[Any]) -> Canon:
    """A split into parts of these sizes."""
    cuts = tuple(itertools.accumulate(sizes[:-1]))
    unread_unless(all(is_dim(cut) for cut in cuts))
    return Canon("split", (tensor(c, c.input),), {"indices_or_sections": cuts, "axis": integer(c.dim)})


def _size(c: Call) -> int:
    shape = c.typed(c.input).shape
    size = shape[axis(c.dim, len(shape))]
    unread_unless(isinstance(size, int) and size > 0)
    assert isinstance(size, int)
    return size


def _parts(total: int, size: int) -> list[int]:
    unread_unless(size > 0)
    return [min(size, total - start) for start in range(0, total, size)]


def _split(c: Call) -> Canon:
    if isinstance(c.split_size, (list, tuple)):
        unread_unless(len(c.split_size) > 0)
        return _sections(c, dims(c.split_size))
    return _sections(c, _parts(_size(c), integer(c.split_size)))


def _chunk(c: Call) -> Canon:
    total, count = _size(c), integer(c.chunks)
    unread_unless(count > 0)
    return _sections(c, _parts(total, -(-total // count)))


def _tensor_split(c: Call) -> Canon:
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


def _repeat(c: Call) -> Canon:
    return Canon("tile", (tensor(c, c.input),), {"reps": integers(c.repeats)})


def _tile(c: Call) -> Canon:
    return Canon("tile", (tensor(c, c.input),), {"reps": integers(c.dims)})


def _repeat_interleave(c: Call) -> Canon:
    unread_unless(c.output_size is None)
    axis = None if c.dim is None else integer(c.dim)
    return Canon("repeat", (tensor(c, c.input),), {"repeats": integer(c.repeats), "axis": axis})


def _flip(c: Call) -> Canon:
    unread_unless(c.dims)
    return Canon("reverse", (tensor(c, c.input),), {"axis": integers(c.dims)})


def _einsum(c: Call) -> Canon:
    unread_unless(isinstance(c.equation, str))
    return Canon("einsum", (fields(c, c.operands),), {"equation": c.equation})


def _aten_einsum(c: Call) -> Canon:
    return Canon("einsum", (fields(c, c.tensors),), {"equation": c.equation})


# ---------------------------------------------------------------- padding

_PAD_MODES: Final = {"constant": "constant", "replicate": "edge", "reflect": "reflect"}


def padded(c: Call, x: Any, pad: Any, mode: Any, value: Any) -> Canon:
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


def _pad(c: Call) -> Canon:
    return padded(c, c.input, c.pad, c.mode, c.value)


def _pad_in_mode(mode: str) -> Reader:
    return lambda c: padded(c, c.input, c.padding, mode, None)


ROWS: Final = (
    Row(".view .reshape", "input *shape", _reshape),
    Row("torch.reshape aten.reshape.default", "input shape", _reshape),
    Row("aten.view.default aten._unsafe_view.default", "input size", _view),
    Row(".view_as .reshape_as aten.view_as.default aten.reshape_as.default", "input other", _view_as),
    Row("torch.flatten .flatten aten.flatten.using_ints", "input start_dim=0 end_dim=-1", _flatten),
    Row("torch.ravel .ravel aten.ravel.default", "input start_dim=0 end_dim=-1", _flatten),
    Row("torch.unflatten .unflatten aten.unflatten.int", "input dim sizes", _unflatten),
    Row("torch.squeeze .squeeze aten.squeeze.default aten.squeeze.dim aten.squeeze.dims", "input dim=None", _squeeze),
    Row("torch.unsqueeze .unsqueeze aten.unsqueeze.default", "input dim", _unsqueeze),
    Row(".expand", "input *size", _expand),
    Row(
        "torch.broadcast_to .broadcast_to aten.broadcast_to.default aten.expand.default",
        "input size implicit=False",
        _expand,
    ),
    Row(".expand_as aten.expand_as.default", "input other", _expand_as),
    Row(
        "torch.transpose .transpose aten.transpose.int torch.swapaxes .swapaxes aten.swapaxes.default "
        "torch.swapdims .swapdims aten.swapdims.default",
        "input dim0 dim1",
        _transpose,
    ),
    Row(".permute", "input *dims", _permute),
    Row("torch.permute aten.permute.default", "input dims", _permute),
    Row("torch.t .t aten.t.default aten.numpy_T.default", "input", _t),
    Row("aten.mT.default", "input", lambda c: swapped(c, c.input, -2, -1)),
    Row(
        "torch.movedim .movedim torch.moveaxis .moveaxis aten.movedim.int aten.movedim.intlist aten.moveaxis.int "
        "aten.moveaxis.intlist",
        "input source destination",
        _movedim,
    ),
    Row("torch.cat torch.concat torch.concatenate aten.cat.default", "tensors dim=0", _cat),
    Row("torch.stack aten.stack.default", "tensors dim=0", _stack),
    Row("torch.split .split aten.split.Tensor aten.split.sizes", "input split_size dim=0", _split),
    Row("torch.split_with_sizes .split_with_sizes aten.split_with_sizes.default", "input split_size dim=0", _split),
    Row("torch.chunk .chunk aten.chunk.default", "input chunks dim=0", _chunk),
    Row("torch.tensor_split .tensor_split", "input indices_or_sections dim=0", _tensor_split),
    Row(".repeat", "input *repeats", _repeat),
    Row("aten.repeat.default", "input repeats", _repeat),
    Row(".tile", "input *dims", _tile),
    Row("torch.tile aten.tile.default", "input dims", _tile),
    Row(
        "torch.repeat_interleave .repeat_interleave aten.repeat_interleave.self_int",
        "input repeats dim=None output_size=None",
        _repeat_interleave,
    ),
    Row("torch.flip aten.flip.default", "input dims", _flip),
    Row(".flip", "input *dims", _flip),
    Row("torch.einsum", "equation *operands", _einsum),
    Row("aten.einsum.default", "equation tensors", _aten_einsum),
    Row("F.pad aten.pad.default", "input pad mode='constant' value=None", _pad),
    Row("torch.constant_pad_nd aten.constant_pad_nd.default", "input pad value=0 mode='constant'", _pad),
    *(
        Row(f"aten.{name}_pad{rank}d.default", "input padding", _pad_in_mode(mode))
        for name, mode in (("reflection", "reflect"), ("replication", "replicate"))
        for rank in (1, 2, 3)
    ),
    Row("builtins.getattr", "input name", _attribute),
)

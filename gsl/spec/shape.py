"""Operators that rearrange the elements of a tensor, join tensors, or take them apart."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

from gsl.graph.types import Dim, SymDim
from gsl.spec import examples as e
from gsl.spec import normalise as n
from gsl.spec.examples import call
from gsl.spec.spec import REQUIRED, AttrSpec, Calculus, OpSpec, Trait, Types

_INFER, _COPY, _REST, _MERGE, _SPLIT = -1, 0, -2, -3, -4


def newshape(value: Any, types: Types) -> tuple[Dim, ...]:
    """The shape of the result where that of the operand is known; otherwise the codes as they are.

    A size that can't be computed, since the sizes are symbolic and it is not known whether they divide, stays -1.
    """
    items = value if isinstance(value, (tuple, list)) else (value,)
    try:
        codes = tuple(map(n.dimension, items))
    except ValueError:
        raise n.wrong(value, "a shape") from None
    if any(isinstance(code, int) and code < _SPLIT for code in codes):
        raise n.wrong(value, "a shape, or Relay's codes from -4 to 0")
    source = n.shape_of(types)
    if source is None:
        return codes
    try:
        shape = _decode(codes, source)
    except IndexError:
        raise n.wrong(value, f"a shape for an operand of shape {source}") from None
    if shape.count(_INFER) > 1:
        raise n.wrong(value, "at most one -1")
    total = math.prod(source)
    if _INFER in shape:
        place = shape.index(_INFER)
        size = _quotient(total, math.prod([*shape[:place], *shape[place + 1 :]]))
        if size is None:
            raise n.wrong(value, f"a shape for {total} elements")
        shape[place] = size
    elif isinstance(total, int) and all(isinstance(d, int) for d in shape) and math.prod(shape) != total:
        raise n.wrong(value, f"a shape for {total} elements")
    return tuple(shape)


def _decode(codes: tuple[Dim, ...], source: tuple[Dim, ...]) -> list[Dim]:
    """The shape without any code but -1. IndexError if the operand has too few axes."""
    # Of no elements at all, 0 is a size.
    copy = None if 0 in source else _COPY
    shape: list[Dim] = []
    place = taken = 0
    while place < len(codes):
        code = codes[place]
        place += 1
        if code == _REST:
            shape += source[taken:]
            taken = len(source)
            continue
        if code == copy:
            shape.append(source[taken])
        elif code == _MERGE:
            shape.append(source[taken] * source[taken + 1])
            taken += 1
        elif code == _SPLIT:
            left, right = codes[place], codes[place + 1]
            place += 2
            whole = source[taken]
            shape.append(_known(_quotient(whole, right)) if left == _INFER else left)
            shape.append(_known(_quotient(whole, left)) if right == _INFER else right)
        else:
            shape.append(code)
        taken += 1
    return shape


def _known(size: Dim | None) -> Dim:
    if size is None:
        raise IndexError
    return size


def _quotient(total: Dim, known: Dim) -> Dim | None:
    """``total / known``, -1 if it is not known whether that is an integer, ``None`` if it is not."""
    if isinstance(known, int) and known <= 0:
        return None
    rest = total % known
    if rest == 0:
        return total // known
    return _INFER if isinstance(rest, SymDim) else None


# Splitting


def _sections(value: Any, types: Types) -> int | tuple[Dim, ...]:
    """A number of equal sections, or the places of the cuts."""
    return n.shape(value) if isinstance(value, (tuple, list)) else n.positive(value)


def _cuts(attrs: Mapping[str, Any], types: Types) -> Mapping[str, Any]:
    """A number of sections becomes the places of the cuts where the size is known, so that equal splits are equal."""
    shape, sections = n.shape_of(types), attrs["indices_or_sections"]
    if shape is None or not isinstance(sections, int):
        return attrs
    size = shape[attrs["axis"]]
    rest = size % sections
    if isinstance(rest, SymDim):
        return attrs
    if rest != 0:
        raise ValueError(f"split: indices_or_sections: {size} elements can't be split into {sections} equal sections")
    return {**attrs, "indices_or_sections": tuple([size // sections * i for i in range(1, sections)])}


def _split(torch: Any, data: Any, indices_or_sections: Any, axis: int) -> Any:
    if isinstance(indices_or_sections, int):
        size = data.shape[axis] // indices_or_sections
        return torch.split(data, [size] * indices_or_sections, axis)
    edges = (0, *indices_or_sections, data.shape[axis])
    return torch.split(data, [after - before for before, after in pairwise(edges)], axis)


# Axes of size one


def _unit_axes(value: Any, types: Types) -> tuple[int, ...] | None:
    """The axes among these whose size may be 1; for ``None``, all such axes. Like torch's, squeezing leaves others
    alone."""
    shape = n.shape_of(types)
    if shape is None:
        return value if value is None else n.axes(value, types)
    if value is None:
        return tuple([axis for axis, size in enumerate(shape) if size == 1])
    return tuple([axis for axis in n.axes(value, types) or () if isinstance(shape[axis], SymDim) or shape[axis] == 1])


def _expand_dims(torch: Any, data: Any, axis: int, num_newaxis: int) -> Any:
    return data.reshape(*data.shape[:axis], *[1] * num_newaxis, *data.shape[axis:])


# Copies


def _broadcast_shape(value: Any, types: Types) -> tuple[Dim, ...]:
    """A shape in which, as in torch, -1 leaves the size of an axis alone."""
    items = value if isinstance(value, (tuple, list)) else (value,)
    own = n.shape_of(types)
    new = len(items) - len(own) if own is not None else 0
    known = own or ()
    filled = [known[i - new] if d == -1 and 0 <= i - new < len(known) else d for i, d in enumerate(items)]
    if own is None and -1 in filled:
        n.shape(tuple([0 if d == -1 else d for d in filled]))
        return tuple(filled)
    return n.shape(tuple(filled))


def _reps(value: Any, types: Types) -> tuple[int, ...]:
    """The number of repetitions of each axis, for all axes of the result."""
    items = n.integers(value)
    if any(item < 0 for item in items):
        raise n.wrong(value, "non-negative integers")
    return (1,) * ((n.rank(types) or 0) - len(items)) + items


# Padding


def _pad_width(value: Any, types: Types) -> int | tuple[tuple[int, int], ...]:
    """A pair of widths, before and after, for each axis, also from one width for all."""
    ndim = n.rank(types)
    expected = "a pair of integers for each " + ("axis" if ndim is None else f"of {ndim} axes")
    if not isinstance(value, (tuple, list)):
        width = n.integer(value)
        return width if ndim is None else ((width, width),) * ndim
    try:
        pairs = tuple(n.integers(n.sequence(pair)) for pair in n.sequence(value))
    except ValueError:
        raise n.wrong(value, expected) from None
    if any(len(pair) != 2 for pair in pairs) or (ndim is not None and len(pairs) != ndim):
        raise n.wrong(value, expected)
    return tuple((before, after) for before, after in pairs)


def _pad(torch: Any, data: Any, pad_width: tuple[tuple[int, int], ...], pad_value: float, pad_mode: str) -> Any:
    if pad_mode == "constant":
        return n.padded(torch, data, tuple([pair[side] for side in (0, 1) for pair in pad_width]), pad_value)
    for axis, (before, after) in enumerate(pad_width):
        size = data.shape[axis]
        if (before, after) == (0, 0):
            continue
        if pad_mode == "reflect" and max(before, after) >= size:
            raise ValueError(f"reflection by {before}, {after} of an axis of {size}")
        places = torch.arange(-before, size + after, device=data.device)
        if pad_mode == "edge":
            places = places.clamp(0, size - 1)
        else:
            places = size - 1 - (size - 1 - places.abs()).abs()
        data = data.index_select(axis, places)
    return data


# Layouts

_LAYOUT_AXIS = re.compile(r"([A-Z])|(\d+)([a-z])")


def _parse_layout(value: str) -> list[tuple[str, int]]:
    """The axes of a layout: ``NCHW4c`` is N, C, H and W, and c with a factor of 4."""
    axes = [(m[1] or m[3], int(m[2] or 0)) for m in _LAYOUT_AXIS.finditer(value)]
    letters = [letter for letter, _ in axes]
    inner = [letter for letter in letters if letter.islower()]
    if (
        _LAYOUT_AXIS.sub("", value)
        or len(set(letters)) != len(letters)
        or not letters
        or any(letter.upper() not in letters for letter in inner)
    ):
        raise n.wrong(value, "a layout like 'NCHW' or 'NCHW4c'")
    return axes


def _layout(value: Any, types: Types) -> str:
    if not isinstance(value, str):
        raise n.wrong(value, "a layout like 'NCHW' or 'NCHW4c'")
    _parse_layout(value)
    return value


def _same_letters(attrs: Mapping[str, Any], types: Types) -> Mapping[str, Any]:
    source, target = attrs["src_layout"], attrs["dst_layout"]
    if {letter for letter in source if letter.isupper()} != {letter for letter in target if letter.isupper()}:
        raise ValueError(f"layout_transform: dst_layout: expected the axes of {source!r}, found {target!r}")
    return attrs


def _layout_transform(torch: Any, data: Any, src_layout: str, dst_layout: str) -> Any:
    if data.dim() != len(_parse_layout(src_layout)):
        raise ValueError(f"expected a tensor of layout {src_layout}, found {data.dim()} dimensions")
    first, shape, last = _rearrangement(src_layout, dst_layout, data.shape)
    return data.permute(first).reshape(shape).permute(last)


def _transposed_in_parts(o: Calculus, data: Any, src_layout: str, dst_layout: str) -> Any:
    if (src_layout + dst_layout).isupper() and (src_layout + dst_layout).isalpha():
        return o("transpose", data, axes=tuple([src_layout.index(letter) for letter in dst_layout]))
    sizes = o.shape(data)
    for (letter, _), size in zip(_parse_layout(src_layout), sizes):
        if letter.lower() in (src_layout + dst_layout) and isinstance(size, SymDim):
            raise ValueError(f"the size of {letter} has to be known, found {size}")
    first, shape, last = _rearrangement(src_layout, dst_layout, sizes)
    if first != sorted(first):
        data = o("transpose", data, axes=tuple(first))
    data = o("reshape", data, newshape=tuple(shape))
    return data if last == sorted(last) else o("transpose", data, axes=tuple(last))


def _rearrangement(src_layout: str, dst_layout: str, shape: Sequence[Any]) -> tuple[list[int], list[Any], list[int]]:
    """An order of the axes in which the parts of each stand together, a shape that splits them as the target wants it,
    and the order of that."""
    source, target = _parse_layout(src_layout), _parse_layout(dst_layout)
    letters = [letter for letter, _ in source]
    sizes = dict(zip(letters, shape, strict=True))
    for letter, factor in source:
        if factor and sizes[letter] != factor:
            raise ValueError(f"expected {factor} elements of {letter} in layout {src_layout}, found {sizes[letter]}")
    whole = [letter for letter in letters if letter.isupper()]
    first = [letters.index(part) for letter in whole for part in (letter, letter.lower()) if part in letters]
    factors = {letter.upper(): factor for letter, factor in target if factor}
    new: list[Any] = []
    split: list[str] = []
    for letter in whole:
        size, factor = sizes[letter] * sizes.get(letter.lower(), 1), factors.get(letter, 1)
        if letter in factors and size % factor:
            raise ValueError(f"{size} elements of {letter} can't be split by {factor} for layout {dst_layout}")
        new += [size // factor, factor] if letter in factors else [size]
        split += [letter, letter.lower()] if letter in factors else [letter]
    return first, new, [split.index(letter) for letter, _ in target]


def _reshape_like(
    torch: Any, data: Any, like: Any, lhs_begin: int, lhs_end: int | None, rhs_begin: int, rhs_end: int | None
) -> Any:
    begin, end, _ = slice(lhs_begin, lhs_end).indices(data.dim())
    return data.reshape(*data.shape[:begin], *like.shape[slice(rhs_begin, rhs_end)], *data.shape[end:])


_LAYOUT = Trait.LAYOUT
_FIRST_AXIS = AttrSpec(0, n.axis())
_THIN, _CHANNELS = e.rand(2, 1, 1, 4), e.rand(2, 8, 3, 5)
_WIDTHS = ((1, 0), (0, 2), (1, 3))

OPS: tuple[OpSpec, ...] = (
    # The operand is a tuple.
    OpSpec(
        "concatenate",
        "Concatenate",
        ("data",),
        lambda torch, data, axis: torch.cat(data, axis),
        {"axis": AttrSpec(0, n.axis(n.field_rank))},
        aliases=("concat", "cat"),
        examples=(call((e.X, e.Y), axis=-2),),
        torch_names="cat concat",
    ),
    # The operand is a tuple.
    OpSpec(
        "stack",
        "Stack",
        ("data",),
        lambda torch, data, axis: torch.stack(data, axis),
        {"axis": AttrSpec(0, n.axis(n.one_more(n.field_rank)))},
        examples=(call((e.X, e.Y), axis=-1),),
    ),
    # A number of equal sections, or the places of the cuts: (3, 5) gives the fields [:3], [3:5] and [5:]. The canonical
    # form is the places.
    OpSpec(
        "split",
        "Split",
        ("data",),
        _split,
        {"indices_or_sections": AttrSpec(REQUIRED, _sections), "axis": _FIRST_AXIS},
        fields=True,
        joint=_cuts,
        examples=(call(e.X, indices_or_sections=3, axis=1), call(e.X, indices_or_sections=(1, 3), axis=-1)),
        torch_names="split_with_sizes chunk tensor_split",
    ),
    # Relay's codes: -1 what remains, 0 the size of the operand's axis, -2 all its remaining axes, -3 the product of
    # two of them, -4 two sizes whose product is one of them. The canonical form is the shape of the result.
    OpSpec(
        "reshape",
        "Reshape",
        ("data",),
        lambda torch, data, newshape: data.reshape(newshape),
        {"newshape": AttrSpec(REQUIRED, newshape)},
        traits=_LAYOUT,
        examples=(
            call(e.X, newshape=(0, -1)),
            call(e.X, newshape=(-4, 1, -1, -3)),
            call(e.rand(1, 3, 4), newshape=(1, -2)),
            call(e.X, newshape=(0, 1, -1, 4)),
        ),
        torch_names="view _unsafe_view view_as reshape_as flatten ravel unflatten",
    ),
    OpSpec(
        "reshape_like",
        "ReshapeLike",
        ("data", "shape_like"),
        _reshape_like,
        {
            "lhs_begin": AttrSpec(0, n.integer),
            "lhs_end": AttrSpec(None, n.optional(n.integer)),
            "rhs_begin": AttrSpec(0, n.integer),
            "rhs_end": AttrSpec(None, n.optional(n.integer)),
        },
        traits=_LAYOUT,
        examples=(call(e.X, e.rand(4, 6)), call(e.X, e.rand(9, 12), lhs_begin=1, rhs_begin=1)),
    ),
    OpSpec(
        "transpose",
        "Transpose",
        ("data",),
        lambda torch, data, axes: data.permute(axes),
        {"axes": AttrSpec(None, n.permutation)},
        traits=_LAYOUT,
        aliases=("permute",),
        examples=(call(e.X), call(e.X, axes=(0, -1, 1))),
        torch_names="permute t mT numpy_T swapaxes swapdims movedim moveaxis",
    ),
    OpSpec(
        "expand_dims",
        "ExpandDims",
        ("data",),
        _expand_dims,
        {
            "axis": AttrSpec(REQUIRED, n.axis(n.one_more(n.rank))),
            "num_newaxis": AttrSpec(1, n.positive, candidates=(1, 2)),
        },
        traits=_LAYOUT,
        aliases=("unsqueeze",),
        examples=(call(e.X, axis=-1), call(e.X, axis=1, num_newaxis=2)),
        torch_names="unsqueeze",
    ),
    OpSpec(
        "squeeze",
        "Squeeze",
        ("data",),
        lambda torch, data, axis: data.squeeze(axis) if axis else data,
        {"axis": AttrSpec(None, _unit_axes)},
        traits=_LAYOUT,
        examples=(call(_THIN), call(_THIN, axis=-2), call(_THIN, axis=(0, 1))),
    ),
    # Along all of the axes.
    OpSpec(
        "reverse",
        "Reverse",
        ("data",),
        lambda torch, data, axis: torch.flip(data, axis),
        {"axis": AttrSpec(REQUIRED, n.some_axes)},
        traits=_LAYOUT,
        aliases=("flip",),
        examples=(call(e.X, axis=(0, -1)),),
        torch_names="flip",
    ),
    OpSpec(
        "layout_transform",
        "LayoutTransform",
        ("data",),
        _layout_transform,
        {"src_layout": AttrSpec(REQUIRED, _layout), "dst_layout": AttrSpec(REQUIRED, _layout)},
        traits=_LAYOUT,
        joint=_same_letters,
        decompose=_transposed_in_parts,
        examples=(
            call(e.X, src_layout="NHC", dst_layout="NCH"),
            call(_CHANNELS, src_layout="NCHW", dst_layout="NHWC4c"),
            call(e.rand(2, 2, 3, 5, 4), src_layout="NCHW4c", dst_layout="NCHW2c"),
        ),
    ),
    OpSpec(
        "broadcast_to",
        "BroadcastTo",
        ("data",),
        lambda torch, data, shape: torch.broadcast_to(data, shape),
        {"shape": AttrSpec(REQUIRED, _broadcast_shape)},
        aliases=("expand",),
        examples=(call(e.ROW, shape=(2, -1)),),
        torch_names="expand expand_as",
    ),
    # Each element several times in a row; without an axis, of the flattened operand.
    OpSpec(
        "repeat",
        "Repeat",
        ("data",),
        lambda torch, data, repeats, axis: torch.repeat_interleave(data, repeats, axis),
        {"repeats": AttrSpec(REQUIRED, n.positive, candidates=(2, 1, 3)), "axis": AttrSpec(None, n.optional(n.axis()))},
        aliases=("repeat_interleave",),
        examples=(call(e.X, repeats=2, axis=-2), call(e.X, repeats=3)),
        torch_names="repeat_interleave",
    ),
    # The whole tensor several times along each axis.
    OpSpec(
        "tile",
        "Tile",
        ("data",),
        lambda torch, data, reps: torch.tile(data, reps),
        {"reps": AttrSpec(REQUIRED, _reps)},
        examples=(call(e.X, reps=2), call(e.ROW, reps=(2, 1, 3))),
        torch_names="repeat",
    ),
    OpSpec(
        "nn.pad",
        "Pad",
        ("data",),
        _pad,
        {
            "pad_width": AttrSpec(REQUIRED, _pad_width),
            "pad_value": AttrSpec(0.0, n.fill),
            "pad_mode": n.word("constant", "edge", "reflect"),
        },
        examples=(
            call(e.X, pad_width=[[0, 0], [1, 2], [3, 0]], pad_value=1.5),
            call(e.I32, pad_width=1, pad_value=2),
            call(e.X, pad_width=_WIDTHS, pad_mode="edge"),
            call(e.X, pad_width=_WIDTHS, pad_mode="reflect"),
        ),
        torch_names="constant_pad_nd reflection_pad1d reflection_pad2d reflection_pad3d replication_pad1d "
        "replication_pad2d replication_pad3d",
    ),
)

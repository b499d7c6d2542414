"""The lowering of operators that move, join, select or repeat elements."""

from __future__ import annotations

import itertools
import operator
from collections.abc import Mapping, Sequence
from typing import Any, Final

import torch
import torch.nn.functional as F

from gsl.front.fx.spellings.bind import is_number
from gsl.front.fx.spellings.table import Site, Writer, call, options
from gsl.front.fx.tree import Native

# ---------------------------------------------------------------- shapes and axes


def _reshape(s: Site) -> Native:
    shape = s["newshape"]
    if s.type() is None and any(isinstance(d, int) and (d == 0 or d < -1) for d in shape):
        kept = len(shape) - 1
        if shape == (0,) * kept + (-1,):
            return call(torch.flatten, s.x, kept)
        raise ValueError(f"the shape {shape} of an operand of unknown type")
    return call(torch.reshape, s.x, shape)


def _reshape_like(s: Site) -> Native:
    own, like = s.known(0).shape, s.known(1).shape
    begin, end, _ = slice(s["lhs_begin"], s["lhs_end"]).indices(len(own))
    return call(torch.reshape, s.x, (*own[:begin], *like[s["rhs_begin"] : s["rhs_end"]], *own[end:]))


def permuted(x: Any, axes: Sequence[int]) -> Any:
    return x if list(axes) == sorted(axes) else call(torch.permute, x, tuple(axes))


def relaid(x: Any, source: str, target: str) -> Any:
    """A tensor of one layout in another with the same letters."""
    return permuted(x, [source.index(letter) for letter in target])


def _transpose(s: Site) -> Native:
    if s["axes"] is None:
        return call(getattr, s.x, "T")
    return call(torch.permute, s.x, s["axes"])


def _expand_dims(s: Site) -> Native:
    result: Any = s.x
    for _ in range(s["num_newaxis"]):
        result = call(torch.unsqueeze, result, s["axis"])
    assert isinstance(result, Native)
    return result


def _squeeze(s: Site) -> Native:
    axes = s["axis"]
    if axes is None:
        return call(torch.squeeze, s.x)
    return call(torch.squeeze, s.x, axes[0] if len(axes) == 1 else axes)


def _layout_transform(s: Site) -> Native:
    """Split axes are made whole, and whole ones split as the target wants it."""
    source, target = _layout_axes(s["src_layout"]), _layout_axes(s["dst_layout"])
    letters = [letter for letter, _ in source]
    whole = [letter for letter in letters if letter.isupper()]
    result = permuted(s.x, [letters.index(part) for w in whole for part in (w, w.lower()) if part in letters])
    factors = {letter: factor for letter, factor in target if factor}
    if not factors and len(whole) == len(letters):
        return call(torch.permute, s.x, tuple(letters.index(letter) for letter, _ in target))
    sizes = dict(zip(letters, s.known().shape, strict=True))
    shape: list[Any] = []
    parts: list[str] = []
    for letter in whole:
        size = sizes[letter] * sizes.get(letter.lower(), 1)
        factor = factors.get(letter.lower())
        shape += [size] if factor is None else [size // factor, factor]
        parts += [letter] if factor is None else [letter, letter.lower()]
    result = call(torch.reshape, result, tuple(shape))
    order = tuple(parts.index(letter) for letter, _ in target)
    return result if order == tuple(range(len(order))) else call(torch.permute, result, order)


def _layout_axes(layout: str) -> list[tuple[str, int]]:
    """``NCHW4c`` as N, C, H, W and c, with the factors of the last ones."""
    axes: list[tuple[str, int]] = []
    digits = ""
    for char in layout:
        if char.isdigit():
            digits += char
        else:
            axes.append((char, int(digits or 0)))
            digits = ""
    return axes


# ---------------------------------------------------------------- several tensors


def tensors(operand: Any) -> Any:
    """The fields of a tuple operand as a list; a call that returns a tuple stands for itself."""
    return list(operand) if isinstance(operand, (tuple, list)) else operand


def _split(s: Site) -> Native:
    cuts, axis, found = s["indices_or_sections"], s["axis"], s.type()
    if isinstance(cuts, int) or found is None:
        return call(torch.tensor_split, s.x, cuts, dim=axis)
    edges = (0, *cuts, found.shape[axis])
    sizes = [after - before for before, after in itertools.pairwise(edges)]
    # Equal parts, and a smaller rest, are what one size says.
    if all(isinstance(size, int) for size in sizes) and len(set(sizes[:-1])) <= 1 and 0 < sizes[-1] <= sizes[0]:
        return call(torch.split, s.x, sizes[0], dim=axis)
    return call(torch.split, s.x, sizes, dim=axis)


def _joined(target: Any) -> Writer:
    return lambda s: call(target, tensors(s.x), **options(dim=(s["axis"], 0)))


def _einsum(s: Site) -> Native:
    if not isinstance(s.x, (tuple, list)):
        return call(torch.einsum, s["equation"], s.x)
    return call(torch.einsum, s["equation"], *s.x)


# ---------------------------------------------------------------- padding


def pads(pairs: Sequence[tuple[int, int]]) -> tuple[int, ...]:
    """Torch's widths: from the last axis on, up to the first one that is padded."""
    widths = [width for pair in reversed(pairs) for width in pair]
    while len(widths) > 2 and widths[-2:] == [0, 0]:
        del widths[-2:]
    return tuple(widths)


def _pad(s: Site) -> Native:
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
    for axis, (before, after) in enumerate(pairs):
        if (before, after) != (0, 0):
            result = call(torch.cat, _continued(result, axis, before, after, mode), dim=axis)
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


# ---------------------------------------------------------------- selection


def _strided_slice(s: Site) -> Native:
    found = s.type()
    result: Any = s.x
    parts: dict[int, slice] = {}
    rows = zip(s["axes"], s["begin"], s["end"], s["strides"] or (1,) * len(s["axes"]), strict=True)
    for axis, first, last, step in rows:
        size = None if found is None else found.shape[axis]
        if step < 0:
            # Torch has no slices of negative step: reversed, it is a positive one.
            if not isinstance(size, int):
                raise ValueError(f"a slice with step {step} of an axis of unknown size")
            first, last, step = size - 1 - first, size - 1 - (last if last >= 0 else last + size), -step
            result = call(torch.flip, result, (axis,))
        begin = None if _is(first, 0) else first
        end = None if size is not None and _is(last, size) else last
        parts[axis % found.ndim if found is not None else axis] = slice(begin, end, None if step == 1 else step)
    if min(parts, default=0) < 0:
        raise ValueError(f"a slice of the axes {tuple(parts)} of an operand of unknown type")
    if not parts:
        return call(operator.getitem, result, ...)
    return call(operator.getitem, result, tuple(parts.get(axis, slice(None)) for axis in range(max(parts) + 1)))


def _is(value: Any, size: Any) -> bool:
    return type(value) is type(size) and bool(value == size)


def _take(s: Site) -> Native:
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


def _int(size: Any) -> int:
    if not isinstance(size, int):
        raise ValueError(f"a band of a matrix of size {size}")
    return size


def _matrix_set_diag(s: Site) -> Native:
    (low, high), (upper, lower) = s["k"], s["align"].split("_")
    x, diagonal = s.operands
    if low == high:
        return call(torch.diagonal_scatter, x, diagonal, **options(offset=(low, 0)), dim1=-2, dim2=-1)
    rows, columns, width = (_int(size) for size in (*s.known(0).shape[-2:], s.known(1).shape[-1]))
    ndim = s.known(1).ndim
    for row, offset in enumerate(range(high, low - 1, -1)):
        length = min(rows, columns - offset) if offset >= 0 else min(rows + offset, columns)
        start = width - length if (upper if offset >= 0 else lower) == "RIGHT" else 0
        place = (*(slice(None),) * (ndim - 2), row, slice(start, start + length))
        part = call(operator.getitem, diagonal, place)
        x = call(torch.diagonal_scatter, x, part, **options(offset=(offset, 0)), dim1=-2, dim2=-1)
    assert isinstance(x, Native)
    return x


def _trilu(s: Site) -> Native:
    return call(torch.triu if s["upper"] else torch.tril, s.x, **options(diagonal=(s["k"], 0)))


WRITERS: Final[Mapping[str, Writer]] = {
    "reshape": _reshape,
    "reshape_like": _reshape_like,
    "transpose": _transpose,
    "expand_dims": _expand_dims,
    "squeeze": _squeeze,
    "reverse": lambda s: call(torch.flip, s.x, s["axis"]),
    "layout_transform": _layout_transform,
    "broadcast_to": lambda s: call(torch.broadcast_to, s.x, s["shape"]),
    "concatenate": _joined(torch.cat),
    "stack": _joined(torch.stack),
    "split": _split,
    "einsum": _einsum,
    "repeat": lambda s: call(torch.repeat_interleave, s.x, s["repeats"], **options(dim=(s["axis"], None))),
    "tile": lambda s: call(torch.tile, s.x, s["reps"]),
    "nn.pad": _pad,
    "strided_slice": _strided_slice,
    "take": _take,
    "gather": lambda s: call(torch.gather, s.x, s["axis"], s.operands[1]),
    "scatter": lambda s: call(torch.scatter, s.x, s["axis"], *s.operands[1:]),
    "matrix_set_diag": _matrix_set_diag,
    "trilu": _trilu,
}

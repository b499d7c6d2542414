"""Operators that select elements of a tensor by place."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gsl.graph.types import Dim
from gsl.spec import examples as e
from gsl.spec import normalise as n
from gsl.spec.examples import call
from gsl.spec.spec import REQUIRED, AttrSpec, OpSpec, Types

# Slices


def _ends(value: Any, types: Types) -> tuple[Dim | None, ...]:
    """The begin or the end of a slice on each of its axes; ``None`` is the begin or the end of the axis."""
    items = value if isinstance(value, (tuple, list)) else (value,)
    return tuple([None if item is None else n.dimension(item) for item in items])


def _steps(value: Any, types: Types) -> tuple[int, ...] | None:
    if value is None:
        return None
    steps = tuple(1 if step is None else n.integer(step) for step in (value if isinstance(value, tuple) else (value,)))
    if 0 in steps:
        raise n.wrong(value, "steps other than 0")
    return steps


def _slice_axes(value: Any, types: Types) -> tuple[int, ...] | None:
    return None if value is None else n.places(value, n.rank(types))


def _resolve(begin: Dim | None, end: Dim | None, step: int, size: Dim) -> tuple[Dim, Dim]:
    """Begin and end as Python's slices resolve them. An end before the first element is ``-size - 1``."""
    if all(isinstance(d, int) or d is None for d in (begin, end, size)):
        first, last, _ = slice(begin, end, step).indices(size)  # type: ignore[arg-type]
        if step > 0:
            return first, max(first, last)
        return first, -size - 1 if last < 0 else last

    def inside(value: Dim | None, default: Dim) -> Dim:
        # No size is beyond what stands for "to the end" in programs.
        if value is None or (isinstance(value, int) and value >= 2**31 - 1):
            return default
        return value + size if isinstance(value, int) and value < 0 else value

    if step < 0:
        raise ValueError("strided_slice: strides: a negative step needs an axis of known size")
    return inside(begin, 0), inside(end, size)


def _joint_slice(attrs: Mapping[str, Any], types: Types) -> Mapping[str, Any]:
    """A slice in terms of just those axes that it does not take whole, in ascending order, with non-negative places."""
    begin, end = attrs["begin"], attrs["end"]
    steps = attrs["strides"] or (1,) * len(begin)
    if len(steps) == 1:
        steps = steps * len(begin)
    axes = tuple(range(len(begin))) if attrs["axes"] is None else attrs["axes"]
    if not len(begin) == len(end) == len(steps) == len(axes):
        raise ValueError(
            f"strided_slice: expected as many of each, found begin {begin}, end {end}, strides {steps}, axes {axes}"
        )
    shape = n.shape_of(types)
    if shape is None:
        return {"begin": begin, "end": end, "strides": steps, "axes": axes}
    if len(begin) > len(shape):
        raise ValueError(f"strided_slice: begin: expected at most {len(shape)} places, found {begin}")
    rows = []
    for axis, first, last, step in sorted(zip(axes, begin, end, steps, strict=True), key=lambda row: row[0]):
        low, high = _resolve(first, last, step, shape[axis])
        if (low, high, step) != (0, shape[axis], 1):
            rows.append((axis, low, high, step))
    return {
        "begin": tuple([row[1] for row in rows]),
        "end": tuple([row[2] for row in rows]),
        "strides": tuple([row[3] for row in rows]),
        "axes": tuple([row[0] for row in rows]),
    }


def _strided_slice(
    torch: Any, data: Any, begin: tuple[Any, ...], end: tuple[Any, ...], strides: tuple[int, ...], axes: tuple[int, ...]
) -> Any:
    for axis, first, last, step in zip(axes, begin, end, strides, strict=True):
        if step > 0:
            data = data[(slice(None),) * axis + (slice(first, last, step),)]
        else:
            # Torch has no slices of negative step.
            places = list(range(data.shape[axis])[first:last:step])
            data = data.index_select(axis, torch.tensor(places, dtype=torch.int64, device=data.device))
    return data


# Lookups


def _take(torch: Any, data: Any, indices: Any, axis: int | None) -> Any:
    if axis is None:
        data, axis = data.reshape(-1), 0
    if isinstance(indices, int):
        return data.select(axis, indices)
    return data[(slice(None),) * axis + (indices.long(),)]


# Diagonals


def _diagonals(value: Any, types: Types) -> tuple[int, int]:
    """The lowest and the highest diagonal, also from one."""
    found = n.integers(value)
    found = found * 2 if len(found) == 1 else found
    if len(found) != 2 or found[0] > found[1]:
        raise n.wrong(value, "an integer or an ascending pair of them")
    return found[0], found[1]


def _matrix_set_diag(torch: Any, data: Any, diagonal: Any, k: tuple[int, int], align: str) -> Any:
    if k[0] == k[1]:
        return torch.diagonal_scatter(data, diagonal, k[0], -2, -1)
    upper, lower = align.split("_")
    for row, offset in enumerate(range(k[1], k[0] - 1, -1)):
        length = torch.diagonal(data, offset, -2, -1).shape[-1]
        padding = diagonal.shape[-1] - length
        start = padding if (upper if offset >= 0 else lower) == "RIGHT" else 0
        data = torch.diagonal_scatter(data, diagonal[..., row, start : start + length], offset, -2, -1)
    return data


_PLACES = e.exactly([[2, 0], [1, 3]], "int64")

OPS: tuple[OpSpec, ...] = (
    # Without ``axes``, of the first axes. The canonical form names only the axes that are not taken whole.
    OpSpec(
        "strided_slice",
        "StridedSlice",
        ("data",),
        _strided_slice,
        {
            "begin": AttrSpec(REQUIRED, _ends),
            "end": AttrSpec(REQUIRED, _ends),
            "strides": AttrSpec(None, _steps),
            "axes": AttrSpec(None, _slice_axes),
        },
        joint=_joint_slice,
        examples=(
            call(e.X, begin=[0, 1], end=[2, 3]),
            call(e.X, begin=3, end=None, strides=-2, axes=-1),
            call(e.X, begin=(-2,), end=(2**63 - 1,), axes=(2,)),
            call(e.X, begin=(0, 1), end=(4, 2), strides=2, axes=(2, 1)),
            call(e.X, begin=(None,), end=(None,), axes=(1,)),
        ),
        torch_names="slice narrow",
    ),
    # data[..., indices, ...] at the axis, or in the flattened tensor; an embedding is take(weight, indices, axis=0).
    OpSpec(
        "take",
        "Take",
        ("data", "indices"),
        _take,
        {"axis": AttrSpec(None, n.optional(n.axis()))},
        examples=(
            call(e.X, e.INDICES, axis=1),
            call(e.X, e.exactly([[2, 0], [1, 1]], "int32")),
            call(e.X, 2, axis=-1),
        ),
        torch_names="embedding index _unsafe_index index_select select unbind",
    ),
    OpSpec(
        "gather",
        "Gather",
        ("data", "indices"),
        lambda torch, data, indices, axis: torch.gather(data, axis, indices),
        {"axis": AttrSpec(REQUIRED, n.axis())},
        examples=(call(e.MATRIX, e.INDICES, axis=-1), call(e.rand(2, 4), e.INDICES, axis=1)),
    ),
    OpSpec(
        "scatter",
        "Scatter",
        ("data", "indices", "updates"),
        lambda torch, data, indices, updates, axis: torch.scatter(data, axis, indices, updates),
        {"axis": AttrSpec(REQUIRED, n.axis())},
        examples=(
            call(e.MATRIX, _PLACES, e.rand(3, 4), axis=1),
            call(e.rand(2, 4), _PLACES, e.rand(2, 2), axis=1),
        ),
    ),
    # The k largest elements along an axis, or the smallest, and their places: two fields. Which of equal elements are
    # chosen is up to the framework, and so is the order if they are not sorted.
    OpSpec(
        "topk",
        "TopK",
        ("data",),
        lambda torch, data, k, axis, largest, sorted: torch.topk(data, k, axis, largest, sorted),
        {
            "k": AttrSpec(REQUIRED, n.integer, candidates=(1, 2)),
            "axis": AttrSpec(-1, n.axis()),
            "largest": n.switch(True),
            "sorted": n.switch(True),
        },
        fields=True,
        examples=(call(e.X, k=2), call(e.X, k=1, axis=0, largest=False), call(e.X, k=1, axis=1, sorted=False)),
    ),
    # Of several diagonals, ``diagonal`` has a row for each, the highest first, aligned left or right in it: those above
    # the main one as the first word says, those below it as the second.
    OpSpec(
        "matrix_set_diag",
        "MatrixSetDiag",
        ("data", "diagonal"),
        _matrix_set_diag,
        {
            "k": AttrSpec((0, 0), _diagonals),
            "align": AttrSpec("RIGHT_LEFT", n.one_of("RIGHT_LEFT", "LEFT_RIGHT", "LEFT_LEFT", "RIGHT_RIGHT")),
        },
        examples=(
            call(e.rand(2, 2, 3), e.exactly([[1.0, 2.0], [3.0, 4.0]]), k=1),
            call(e.rand(3, 3), e.exactly([[0.0, 1.0, 2.0], [3.0, 4.0, 5.0], [6.0, 7.0, 0.0]]), k=(-1, 1)),
        ),
        torch_names="diagonal_scatter",
    ),
    # The elements on and above the k-th diagonal (``upper``), or on and below it; all others are 0.
    OpSpec(
        "trilu",
        "Trilu",
        ("data",),
        lambda torch, data, k, upper: torch.triu(data, k) if upper else torch.tril(data, k),
        {"k": AttrSpec(0, n.integer, candidates=(0, 1, -1, 2, -2)), "upper": n.switch(True)},
        examples=(call(e.MATRIX, k=1), call(e.MATRIX, upper=False)),
        torch_names="triu tril",
    ),
)

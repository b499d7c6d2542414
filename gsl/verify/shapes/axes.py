"""Shape rules of operators that work along axes: reductions, normalisations, and those that select elements."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import permutations, repeat
from typing import Any

from gsl.spec import TABLE, Trait
from gsl.verify.choices import pick
from gsl.verify.draft import ANY, Goal, NodeDraft, meet
from gsl.verify.shapes.letters import LetterRule, Spelled, sets_of_axes
from gsl.verify.solve import ShapeRule, Solver


def _same(x: str, axes: Any, attrs: Mapping[str, Any]) -> Spelled:
    """The result has the shape of the operand."""
    return (x,), x


def _alike(x: str, axis: int, attrs: Mapping[str, Any]) -> Spelled:
    """All operands have the shape of the result."""
    return repeat(x), x


def _by_channel(x: str, axis: int, attrs: Mapping[str, Any]) -> Spelled:
    """The weights have one element for each element of an axis."""
    return (x, *[x[axis]] * 4), x


def _by_axes(x: str, axes: tuple[int, ...], attrs: Mapping[str, Any]) -> Spelled:
    """The weights have the sizes of the normalised axes."""
    return (x, *[[x[axis] for axis in axes]] * 2), x


def _reduced(x: str, axes: tuple[int, ...], attrs: Mapping[str, Any]) -> Spelled:
    """The reduced axes are gone, or of size 1; ``exclude`` says that they are the others."""
    reduced_axes = [axis for axis in range(len(x)) if (axis in axes) is not attrs.get("exclude", False)]
    rows = [(1 if axis in reduced_axes else letter, axis in reduced_axes) for axis, letter in enumerate(x)]
    return (x,), [letter for letter, reduced in rows if attrs["keepdims"] or not reduced]


def _summed(x: str, axis: int | None, attrs: Mapping[str, Any]) -> Spelled:
    """The result has the shape of the operand; without an axis, one axis for all elements."""
    return (x,), x if axis is not None else "z"


def _sums(dtype: str) -> list[str]:
    """The dtypes in which tensors are summed up."""
    own = dtype if "float" in dtype else "int64"
    return [other for other in dict.fromkeys(("float64", "int64", "float32", dtype)) if other not in (own, "bool")]


def _preferred(axis: int) -> Callable[[int], list[int]]:
    """All axes of a rank, that one first."""
    return lambda rank: sorted(range(rank), key=lambda other: other != axis % rank)


BY_CHANNEL = LetterRule(_by_channel, _preferred(1), "axis", (4, 3, 2, 5))


def batch_norm(s: Solver, draft: NodeDraft, goal: Goal) -> None:
    draft.operand(4).positive = True  # a variance
    BY_CHANNEL(s, draft, goal)


def group_norm(s: Solver, draft: NodeDraft, goal: Goal) -> None:
    BY_CHANNEL(s, draft, goal)
    size = draft.operand(0).dims[draft.attrs["axis"]]
    s.attr(draft, "num_groups", (1, 2, 3, size), lambda groups: size % groups == 0)


# ---------------------------------------------------------------- selections


def strided_slice(s: Solver, draft: NodeDraft, goal: Goal) -> None:
    """A slice of one axis or more, where no axes are given; of as many places as are wanted."""
    x = draft.operand(0)
    given = s.given_attrs(draft)
    ends = [given[name] for name in ("begin", "end") if given.get(name) is not None]
    named = given.get("axes") or range(len(ends[0]) if ends else 1)
    least = max([a + 1 if a >= 0 else -a for a in named], default=0)
    rank = None if x.solved else goal.rank
    sizes: list[int | None] | None = None
    if not x.solved and x.is_leaf:
        rank = s.rank(s.wanted(x, Goal(ndim=rank)), max(1, least))
        sizes = s.wanted(x, Goal(ndim=rank)).sizes(rank)
        for axis in given.get("axes") or ():
            if sizes[axis] is None and not s.demands.binds(x, "shape"):  # so that a part of it is less than all
                sizes[axis] = s.choices.size() + 2
    data = s.solve(x, Goal(None if sizes is None else tuple(sizes), goal.dtype, rank))
    axes = given.get("axes") or (tuple(range(len(ends[0]))) if ends else pick(s.choices, sets_of_axes(data.ndim)))
    places = [data.shape[axis] for axis in axes]
    shape = s.wanted(draft, goal).sizes(data.ndim)  # it may follow from the shape of the data
    wanted = [shape[axis] for axis in axes]
    steps = given.get("strides") or _chosen(s, draft, "strides", (1, 2, -1), places, lambda steps: True)

    def fits(begin: Sequence[int], end: Sequence[int]) -> bool:
        counts = [_count(*row) for row in zip(places, begin, end, steps)]
        if given.get("axes") and counts == places and min(steps) == 1:
            return False  # a slice of all of an axis is none of that axis
        return all(count > 0 and (size is None or size == count) for count, size in zip(counts, wanted))

    def may_begin(begin: Sequence[int]) -> bool:
        last = [size if step > 0 else -size - 1 for size, step in zip(places, steps)]
        counts = [_count(*row) for row in zip(places, begin, last, steps)]
        return all(count >= (size or 1) for count, size in zip(counts, wanted))

    end = given.get("end")
    begin = given.get("begin")
    if begin is None:
        first = places[0] - 1 if min(steps) < 0 else 0
        options = dict.fromkeys((first, places[0] // 2, *range(max(places))))
        begin = _chosen(s, draft, "begin", options, places, lambda b: may_begin(b) if end is None else fits(b, end))
    if end is None:
        last = (places[0] - 1, places[0], *range(1, max(places) + 1))
        options = dict.fromkeys(last if min(steps) > 0 else (-places[0] - 1, 0))
        _chosen(s, draft, "end", options, places, lambda e: fits(begin, e))
    if "axes" not in given:
        draft.attrs["axes"] = tuple(axes)


def _chosen(
    s: Solver, draft: NodeDraft, name: str, options: Iterable[int], sizes: Sequence[int], fits: Callable[[Any], bool]
) -> tuple[int, ...]:
    """An attribute of a slice, with the same value for each of its axes, or two values for two of them."""
    rows = [(option,) * len(sizes) for option in options]
    rows += permutations([row[0] for row in rows], 2) if len(sizes) == 2 else ()
    found: tuple[int, ...] = s.attr(draft, name, rows, fits, tuple)
    return found


def _count(size: int, begin: int, end: int, step: int) -> int:
    """The number of places of an axis of this size that a slice takes."""
    return len(range(size)[begin:end:step])


def take(s: Solver, draft: NodeDraft, goal: Goal) -> None:
    x, indices = draft.operand(0), draft.operand(1)
    data = s.solve(x, Goal(None, goal.dtype, s.rank(s.wanted(x, Goal()), max(1, s.least_rank(draft)), 4)))
    axis = s.attr(draft, "axis", [*range(data.ndim), *([None] if goal.rank is None else [])])
    shape = None
    if goal.rank is not None:
        sizes = goal.sizes(goal.rank)
        shape = tuple(sizes if axis is None else sizes[axis : goal.rank - data.ndim + axis + 1])
    s.solve(indices, Goal(shape, "int64"))


def set_diag(s: Solver, draft: NodeDraft, goal: Goal) -> None:
    data = s.solve(draft.operands[0], Goal(goal.shape, goal.dtype, s.rank(goal, 2, options=(2, 3))))
    rows, columns = data.shape[-2:]
    low, high = s.attr(draft, "k", _DIAGONALS, lambda k: -rows < k[0] and k[1] < columns)
    s.attr(draft, "align", ("RIGHT_LEFT", "LEFT_LEFT", "LEFT_RIGHT", "RIGHT_RIGHT"))
    longest = min(rows + min(high, 0), columns - max(low, 0))
    count = (high - low + 1,) if low < high else ()
    s.solve(draft.operands[1], Goal((*data.shape[:-2], *count, longest), data.dtype))


_DIAGONALS = ((0, 0), (1, 1), (-1, -1), (-1, 1), (0, 2))
"""The lowest and the highest diagonal."""


def topk(s: Solver, draft: NodeDraft, goal: Goal) -> None:
    """An operand with enough elements along the axis, of which the fields have as many as is wanted of them."""
    x, goals = draft.operand(0), [found for found in draft.field_goals.values() if found.rank is not None]
    wanted = Goal(x.dims) if x.solved else s.wanted(x)
    rank = s.rank(next((each for each in (wanted, *goals) if each.rank is not None), ANY), s.least_rank(draft))
    axis = s.axis(draft, rank, preferred=rank - 1)
    shape, count = wanted.sizes(rank), None
    for found in goals:
        sizes = found.sizes(rank)
        count = meet(count, sizes[axis])
        shape = [size if place == axis else meet(size, sizes[place]) for place, size in enumerate(shape)]
    most = shape[axis]
    for name in ("largest", "sorted"):
        s.attr(draft, name)
    count = s.attr(draft, "k", None if count is None else [count], lambda k: most is None or 0 < k <= most)
    if not x.solved:
        shape[axis] = most or count + s.choices.index(3)
        s.solve(x, Goal(tuple(shape), draft.field_goals.get(0, ANY).dtype))


_ALONG = LetterRule(_same, _preferred(-1), "axis")
_OVER = LetterRule(_same, sets_of_axes, "axis")
_BY_AXES = LetterRule(_by_axes, lambda rank: list(dict.fromkeys([(rank - 1,), *sets_of_axes(rank)])), "axis")
_NORMS: dict[str, ShapeRule] = {
    "nn.batch_norm": batch_norm, "nn.group_norm": group_norm, "nn.layer_norm": _BY_AXES, "nn.rms_norm": _BY_AXES,
    "nn.instance_norm": replace(BY_CHANNEL, ranks=(4, 3, 5)), "nn.l2_normalize": _OVER, "nn.softmax": _ALONG,
    "nn.log_softmax": _ALONG,
}  # fmt: skip
_CUMSUM = LetterRule(
    _summed, lambda rank: [*_preferred(-1)(rank), None], "axis", widens=True, dtype="dtype", others=_sums
)  # fmt: skip
_INDEXED = LetterRule(_alike, range, "axis", dtypes={1: "int64"})
_REDUCTION = LetterRule(_reduced, lambda rank: [*sets_of_axes(rank), ()], "axis")
RULES: dict[str, ShapeRule] = {
    **{name: _REDUCTION for name, spec in TABLE.items() if Trait.REDUCTION in spec.traits},
    **dict.fromkeys(("argmax", "argmin", "all", "any"), replace(_REDUCTION, keeps_dtype=False)),
    **dict.fromkeys(("sum", "prod"), replace(_REDUCTION, widens=True)),
    **_NORMS, "nn.bias_add": LetterRule(_by_channel, _preferred(1), "axis"), "cumsum": _CUMSUM,
    "reverse": _OVER, "strided_slice": strided_slice, "take": take, "topk": topk, "gather": _INDEXED,
    "scatter": _INDEXED, "matrix_set_diag": set_diag, "trilu": LetterRule(_same, ranks=(2, 3)),
}  # fmt: skip
FLOAT_ONLY = frozenset(("mean", "variance", "std", "logsumexp", *_NORMS))

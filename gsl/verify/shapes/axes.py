"""Shape rules of operators that work along axes: reductions, normalisations, and those that select elements."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from gsl.spec import TABLE, Trait
from gsl.verify.choices import Dead
from gsl.verify.draft import Goal, NodeDraft
from gsl.verify.shapes.layout import axes_of, some_axes
from gsl.verify.solve import ShapeRule, Solver


def reduction(s: Solver, draft: NodeDraft, goal: Goal) -> None:
    x = draft.operand(0)
    keepdims = s.attr(draft, "keepdims")
    s.attr(draft, "exclude", (False,))
    if "unbiased" in TABLE[str(draft.op)].attrs:
        s.attr(draft, "unbiased")
    is_given, axes = s.given_attr(draft, "axis")
    if x.solved:
        rank = x.tensor.ndim
    elif goal.rank is None:
        rank = s.rank(s.wanted(x, goal), s.least_rank(draft))
    elif keepdims:
        rank = goal.rank
    elif is_given:
        rank = goal.rank + (len(axes) if isinstance(axes, tuple) else 1)
    else:
        rank = goal.rank + s.choices.index(2) + 1
    draft.wants_ndim = rank

    known = s.wanted(x, Goal(ndim=rank)).sizes(rank) if not x.solved else x.dims

    def fits(found: tuple[int, ...]) -> bool:
        result = [1 if axis in found else known[axis] for axis in range(rank) if keepdims or axis not in found]
        wanted = goal.sizes(goal.rank) if goal.rank is not None else [None] * len(result)
        return len(result) == len(wanted) and all(None in (a, b) or a == b for a, b in zip(result, wanted))

    found = axes_of(s, draft, rank, some_axes(rank, none=True), fits)
    keeps = draft.op not in ("argmax", "argmin", "all", "any")
    sizes = iter(goal.sizes(goal.rank) if goal.rank is not None else [None] * rank)
    shape: list[int | None] = []
    for axis in range(rank):
        if axis in found:
            if keepdims and next(sizes) not in (1, None):
                raise Dead("a reduced axis is kept with size 1")
            shape.append(None)
        else:
            shape.append(next(sizes))
    s.solve(x, Goal(tuple(shape), goal.dtype if keeps else None))


def along_axis(s: Solver, draft: NodeDraft, goal: Goal) -> None:
    """The result has the shape of the operand."""
    data = s.solve(draft.operands[0], Goal(goal.shape, goal.dtype, s.rank(goal, s.least_rank(draft))))
    draft.wants_ndim = data.ndim
    s.axis(draft, data.ndim, preferred=data.ndim - 1)


def cumsum(s: Solver, draft: NodeDraft, goal: Goal) -> None:
    s.attr(draft, "dtype")
    s.attr(draft, "exclusive")
    along_axis(s, draft, goal)


# ---------------------------------------------------------------- normalisations


def _affine(s: Solver, draft: NodeDraft) -> None:
    s.attr(draft, "epsilon")
    for name in ("center", "scale"):
        if name in TABLE[str(draft.op)].attrs:
            s.attr(draft, name)


def _data(s: Solver, draft: NodeDraft, goal: Goal, *ranks: Any) -> Any:
    """The type of the data, which is that of the result: of one of some ranks where that is free."""
    x = draft.operand(0)
    if not x.is_leaf and goal.rank is None:
        s.solve(x, goal)
    data = s.solve(x, Goal(goal.shape, goal.dtype, None if x.solved else s.rank(goal, *ranks)))
    draft.wants_ndim = data.ndim
    return data


def by_channel(s: Solver, draft: NodeDraft, goal: Goal) -> None:
    """The weights have one element for each element of an axis."""
    _affine(s, draft)
    least = 3 if draft.op == "nn.instance_norm" else max(2, s.least_rank(draft))
    data = _data(s, draft, goal, least, 5, (4, 3, 2, 5))
    axis = s.axis(draft, data.ndim, preferred=1)
    if draft.op == "nn.group_norm":
        size = data.shape[axis]
        s.attr(draft, "num_groups", (1, 2, 3, size), lambda groups: size % groups == 0)
    for number, operand in enumerate(draft.operands[1:], 1):
        if number == 4 and operand is not None:
            operand.positive = True  # a variance
        s.solve(operand, Goal((data.shape[axis],), data.dtype))


def by_axes(s: Solver, draft: NodeDraft, goal: Goal) -> None:
    """The weights have the sizes of the normalised axes."""
    _affine(s, draft)
    data = _data(s, draft, goal, 1)

    options = some_axes(data.ndim)
    axes = axes_of(s, draft, data.ndim, options[data.ndim - 1 : data.ndim] + options)
    for operand in draft.operands[1:]:
        s.solve(operand, Goal(tuple([data.shape[axis] for axis in axes]), data.dtype))


def over_axes(s: Solver, draft: NodeDraft, goal: Goal) -> None:
    """The result has the shape of the operand, and a set of axes is an attribute."""
    for name in TABLE[str(draft.op)].attrs:
        if name != "axis":
            s.attr(draft, name)
    data = s.solve(draft.operands[0], Goal(goal.shape, goal.dtype, s.rank(goal, 1)))
    axes_of(s, draft, data.ndim, some_axes(data.ndim))


# ---------------------------------------------------------------- selections


def strided_slice(s: Solver, draft: NodeDraft, goal: Goal) -> None:
    """A slice of one axis, where no axes are given; of as many places as are wanted."""
    x = draft.operand(0)
    given = s.given_attrs(draft)
    ends = [given[name] for name in ("begin", "end") if given.get(name) is not None]
    least = 1 + max([abs(a) for a in given.get("axes") or (len(ends[0] if ends else ()) - 1,)], default=0)
    rank = None if x.solved else goal.rank
    sizes: list[int | None] | None = None
    if not x.solved and x.is_leaf:
        rank = s.rank(s.wanted(x, Goal(ndim=rank)), max(1, least))
        sizes = s.wanted(x, Goal(ndim=rank)).sizes(rank)
        for axis in given.get("axes") or ():
            if sizes[axis] is None and not s.demands.binds(x, "shape"):  # so that a part of it is less than all
                sizes[axis] = s.choices.size() + 2
    data = s.solve(x, Goal(None if sizes is None else tuple(sizes), goal.dtype, rank))
    axes = given.get("axes") or (tuple(range(len(ends[0]))) if ends else (s.choices.index(data.ndim),))
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
    """An attribute of a slice, with the same value for each of its axes."""
    found: tuple[int, ...] = s.attr(draft, name, [(option,) * len(sizes) for option in options], fits, tuple)
    return found


def _count(size: int, begin: int, end: int, step: int) -> int:
    """The number of places of an axis of this size that a slice takes."""
    return len(range(size)[begin:end:step])


def take(s: Solver, draft: NodeDraft, goal: Goal) -> None:
    x, indices = draft.operand(0), draft.operand(1)
    data = s.solve(x, Goal(None, goal.dtype, s.rank(s.wanted(x, Goal()), max(1, s.least_rank(draft)), 4)))
    axis = s.axis(draft, data.ndim)
    shape = None
    if goal.rank is not None:
        sizes = goal.sizes(goal.rank)
        shape = tuple(sizes[axis : goal.rank - data.ndim + axis + 1])
    s.solve(indices, Goal(shape, "int64"))


def gather(s: Solver, draft: NodeDraft, goal: Goal) -> None:
    data = s.solve(draft.operands[0], Goal(goal.shape, goal.dtype, s.rank(goal, max(1, s.least_rank(draft)))))
    s.axis(draft, data.ndim)
    for number, operand in enumerate(draft.operands[1:]):
        s.solve(operand, Goal(data.shape, "int64" if number == 0 else data.dtype))


def set_diag(s: Solver, draft: NodeDraft, goal: Goal) -> None:
    data = s.solve(draft.operands[0], Goal(goal.shape, goal.dtype, s.rank(goal, 2, options=(2, 3))))
    s.attr(draft, "k")
    s.attr(draft, "align")
    s.solve(draft.operands[1], Goal((*data.shape[:-2], min(data.shape[-2:])), data.dtype))


def trilu(s: Solver, draft: NodeDraft, goal: Goal) -> None:
    s.attr(draft, "k")
    s.attr(draft, "upper")
    s.solve(draft.operands[0], Goal(goal.shape, goal.dtype, s.rank(goal, 2, options=(2, 3))))


RULES: dict[str, ShapeRule] = {name: reduction for name, spec in TABLE.items() if Trait.REDUCTION in spec.traits}
_NORMS: dict[str, ShapeRule] = {
    "nn.batch_norm": by_channel, "nn.group_norm": by_channel, "nn.instance_norm": by_channel,
    "nn.layer_norm": by_axes, "nn.rms_norm": by_axes, "nn.l2_normalize": over_axes, "nn.softmax": along_axis,
    "nn.log_softmax": along_axis,
}  # fmt: skip
_SELECTIONS: dict[str, ShapeRule] = {
    "strided_slice": strided_slice, "take": take, "gather": gather, "scatter": gather, "matrix_set_diag": set_diag,
    "trilu": trilu,
}  # fmt: skip
RULES |= {**_NORMS, **_SELECTIONS, "cumsum": cumsum, "reverse": over_axes}
FLOAT_ONLY = frozenset(("mean", "variance", "std", "logsumexp", *_NORMS))

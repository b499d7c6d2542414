"""Shape rules of operators that rearrange, join and split tensors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import accumulate, permutations
from itertools import repeat as repeated
from math import prod
from typing import Any

from gsl.graph.node import GETITEM, TUPLE
from gsl.verify.choices import Dead, pick
from gsl.verify.draft import ANY, Goal, NodeDraft, meet
from gsl.verify.shapes.letters import LetterRule, Spelled, sets_of_axes
from gsl.verify.solve import MOST_RANK, ShapeRule, Solver


def parts_of(s: Solver, total: int, count: int) -> list[int]:
    """Positive numbers with that sum."""
    if total < count:
        raise Dead(f"{total} has no {count} parts")
    found = []
    for left in range(count - 1, 0, -1):
        most = total - left
        size = min(s.choices.size(), most)
        found.append(size)
        total -= size
    return [*found, total]


def concatenate(s: Solver, draft: NodeDraft, goal: Goal) -> None:
    whole = draft.operand(0)
    if whole.solved or whole.op != TUPLE:
        if not whole.solved:
            _open_tuple(s, whole)
        elif whole.fields:
            s.axis(draft, whole.fields[0].ndim)  # type: ignore[union-attr]
            return
    fields = [field for field in whole.operands if field is not None]
    if not fields:
        raise Dead("there is nothing to concatenate")
    solved = [field for field in fields if field.solved]
    if not solved and goal.rank is None:
        computed = next((field for field in fields if not field.is_leaf), None)
        if computed is not None:
            s.solve(computed, Goal(None, s.joined(computed, None)))
            solved = [field for field in fields if field.solved]
    known = [Goal(field.dims) if field.solved else s.wanted(field, Goal(ndim=goal.rank)) for field in fields]
    rank = s.rank(next((each for each in known if each.rank is not None), goal), s.least_rank(draft))
    draft.wants_ndim = rank
    axis = s.axis(draft, rank)
    _fields(s, fields, goal, axis, rank)


def _open_tuple(s: Solver, whole: NodeDraft) -> None:
    """A wildcard that is the tuple of some tensors."""
    if not whole.is_leaf:
        raise Dead("the fields of a tuple that is computed")
    s.skeleton.open_tuple(whole)


def _fields(s: Solver, fields: list[NodeDraft], goal: Goal, axis: int, rank: int) -> None:
    """Decide the fields of a concatenation along an axis."""
    wanted = goal.sizes(rank)
    total = wanted[axis]
    dtype = goal.dtype
    waiting = list(dict.fromkeys(field for field in fields if not field.solved))
    waiting.sort(key=lambda field: field.is_leaf)
    for number, field in enumerate(waiting):
        shape = list(wanted)
        for other in fields:
            if other.solved:
                shape = list(other.dims)
                dtype = other.dtype
        shape[axis] = None
        if total is not None and fields.count(field) == 1:
            left = total - sum(f.dims[axis] for f in fields if f.solved)
            shape[axis] = parts_of(s, left, len(waiting) - number)[0]
        s.solve(field, Goal(tuple(shape), s.joined(field, dtype)))


def _stacked(x: str, axis: int, attrs: Mapping[str, Any]) -> Spelled:
    return repeated(x), [*x[:axis], "n", *x[axis:]]


_STACK = LetterRule(_stacked, lambda rank: range(rank + 1), "axis")


def stack(s: Solver, draft: NodeDraft, goal: Goal) -> None:
    whole = draft.operand(0)
    if whole.solved and whole.op != TUPLE:
        s.axis(draft, whole.fields[0].ndim + 1)  # type: ignore[union-attr]
        return
    if whole.op != TUPLE:
        _open_tuple(s, whole)
    _STACK(s, draft, goal)


def split(s: Solver, draft: NodeDraft, goal: Goal) -> None:
    """As many fields as are used, or more; their sizes as they are wanted."""
    x = draft.operand(0)
    wanted = next(iter(draft.field_goals.values()), ANY)
    least = _fields_used(s, draft)
    rank = x.tensor.ndim if x.solved else s.rank(s.wanted(x, Goal(ndim=wanted.rank)), s.least_rank(draft))
    draft.wants_ndim = rank
    axis = s.axis(draft, rank)
    is_given, sections = s.given_attr(draft, "indices_or_sections")
    if not x.solved:
        shape = s.wanted(x, Goal(ndim=rank)).sizes(rank)
        for found in draft.field_goals.values():
            if found.rank == rank:
                shape = [meet(a, b) if i != axis else a for i, (a, b) in enumerate(zip(shape, found.sizes(rank)))]
        shape[axis] = None
        if is_given and isinstance(sections, int):
            shape[axis] = sections * s.choices.size()
        elif is_given:
            shape[axis] = (sections[-1] if sections else 0) + s.choices.size()
        else:
            shape[axis] = sum(_sizes(s, draft, axis, rank, least))
        s.solve(x, Goal(tuple(shape), wanted.dtype))
    size = x.dims[axis]
    assert isinstance(size, int)
    if not is_given:
        options: list[Any] = []
        for more in range(4):
            if size >= least + more:
                options.append(_cuts(parts_of(s, size, least + more)))
                if size % (least + more) == 0:
                    options.append(_cuts([size // (least + more)] * (least + more)))
        s.attr(draft, "indices_or_sections", dict.fromkeys(options))


def _fields_used(s: Solver, draft: NodeDraft) -> int:
    least = 1
    for user in s.skeleton.drafts:
        if user.op == GETITEM and user.operands[0] is draft:
            for _, index in s.demands.given(user, "index"):
                if isinstance(index, int):
                    least = max(least, index + 1 if index >= 0 else -index)
    return least


def _sizes(s: Solver, draft: NodeDraft, axis: int, rank: int, least: int) -> list[int]:
    sizes = []
    for number in range(least + s.choices.index(2)):
        goal = draft.field_goals.get(number, ANY)
        sizes.append(s.size(goal.sizes(rank)[axis] if goal.rank == rank else None))
    return sizes


def _cuts(sizes: Sequence[int]) -> tuple[int, ...]:
    return tuple(accumulate(sizes))[:-1]


_TRIED = 6
"""The number of shapes of a reshape that are tried."""


def reshape(s: Solver, draft: NodeDraft, goal: Goal) -> None:
    """To the shape that is wanted, or to some shape with as many elements."""
    x = draft.operand(0)
    is_given, given = s.given_attr(draft, "newshape")
    plain = is_given and isinstance(given, tuple) and all(isinstance(d, int) and d > 0 for d in given)
    target = tuple(given) if plain else goal.shape
    is_open = target is None or (target != () and all(size is None for size in target))
    if not x.solved:
        if target is not None and not is_open and (not is_given or plain):
            filled = tuple([s.size(size) for size in target])
            goal = Goal(filled, goal.dtype)
            draft.sizes = list(filled)
            s.solve(x, Goal(_refactored(s, filled, _wanted(s, x), s.low_rank(x)), goal.dtype))
        else:
            s.solve(x, Goal(None, goal.dtype))
            goal = s.wanted(draft, goal)
    if is_given:
        draft.attrs["newshape"] = s._normal(draft, "newshape", given)
        return
    goal = _attainable(s, draft, goal, x.dims)
    if goal.shape is not None:
        options = [_completed(goal.shape, prod(x.dims))]
        if goal.shape.count(None) > 1:
            options += [_refactored(s, x.dims, goal) for _ in range(_TRIED)]
    else:
        options = [_refactored(s, x.dims, goal) for _ in range(_TRIED)]
        options.append(x.dims)

    def fits(shape: Sequence[int]) -> bool:
        draft.sizes = list(shape)
        return s.demands.holds(draft)

    s.attr(draft, "newshape", dict.fromkeys(options), fits)


def _attainable(s: Solver, draft: NodeDraft, goal: Goal, dims: Sequence[int]) -> Goal:
    """The goal of a reshape of a tensor with these sizes; where it can't be, what the conditions want alone, of the
    rank of the tensor or a higher one."""
    if goal.shape is None or _may_become(goal.shape, prod(dims)):
        return goal
    for rank in range(len(dims), MOST_RANK):
        if s.allows(draft, rank):
            wanted = s.wanted(draft, Goal(ndim=rank))
            if _may_become(wanted.sizes(rank), prod(dims)):
                return wanted
    return goal


def _may_become(shape: Sequence[int | None], elements: int) -> bool:
    """True if the open sizes of a shape may be such that it has so many elements."""
    known = prod([size for size in shape if size is not None])
    return known > 0 and elements % known == 0 and (None in shape or known == elements)


def _completed(shape: Sequence[int | None], elements: int) -> tuple[int, ...]:
    if not _may_become(shape, elements):
        raise Dead("the numbers of elements differ")
    open_ = [i for i, size in enumerate(shape) if size is None]
    rest = elements // prod([size for size in shape if size is not None])
    return tuple([size if size is not None else rest if i == open_[0] else 1 for i, size in enumerate(shape)])


def _wanted(s: Solver, draft: NodeDraft, most: int | None = None) -> Goal:
    """The goal of a draft; of an expansion, with what follows from that of its operand. A rank that is free is at most
    ``most``."""
    goal = s.wanted(draft, ANY)
    if most is not None and goal.rank is not None and goal.rank > most:
        goal = s.wanted(draft, Goal(ndim=most))
    if goal.rank is not None or draft.op not in ("broadcast_to", "expand_dims"):
        return goal
    more = s.given_attr(draft, "num_newaxis")[1] or 1 if draft.op == "expand_dims" else 0
    below = _wanted(s, draft.operand(0), None if most is None else most - more)
    if below.rank is None:
        return goal
    is_given, axis = s.given_attr(draft, "axis")
    if not is_given or draft.op == "broadcast_to":
        return Goal(None, goal.dtype, below.rank + more)
    sizes, axis = below.sizes(below.rank), axis % (below.rank + 1)
    return Goal((*sizes[:axis], *[1] * more, *sizes[axis:]), goal.dtype)


def _refactored(s: Solver, shape: Sequence[int], goal: Goal, low: int = 0) -> tuple[int, ...]:
    """A shape with as many elements as another one, from the prime factors of what sizes that are wanted leave; of a
    rank that is wanted, or no lower than ``low``.

    Often it has one axis more, or less: one axis is split, or two of them are merged.
    """
    near = 0
    if goal.shape is None:
        near = s.choices.index(3, "near") - 1 if goal.rank is None else goal.rank - len(shape)
    if near in (1, -1) and len(shape) >= max(2 - near, low - near) and s.choices.index(2):
        axis = s.choices.index(len(shape) - (near < 0))
        if near < 0:
            return (*shape[:axis], shape[axis] * shape[axis + 1], *shape[axis + 2 :])
        part = pick(s.choices, [n for n in range(1, shape[axis] + 1) if shape[axis] % n == 0])
        return (*shape[:axis], part, shape[axis] // part, *shape[axis + 1 :])
    ranks = [rank for rank in (1, 2, 3, 4) if rank >= low]
    wanted = goal.sizes(pick(s.choices, ranks, ("reshaped", *ranks)) if goal.rank is None else goal.rank)
    places = [axis for axis, size in enumerate(wanted) if size is None]
    sizes = [1 if size is None else size for size in wanted]
    known = prod(sizes)
    if known == 0 or prod(shape) % known or (not places and prod(shape) != known):
        raise Dead("the numbers of elements differ")
    count = prod(shape) // known
    factors = []
    for prime in (2, 3, 5, 7, 11, 13):
        while count % prime == 0 and count > 1:
            factors.append(prime)
            count //= prime
    if count > 1:
        factors.append(count)
    for factor in factors:
        sizes[places[s.choices.index(len(places), ("factor", len(places)))]] *= factor
    return tuple(sizes)


def _reversed_first(rank: int) -> list[tuple[int, ...]]:
    """The orders of the axes, the reverse one first."""
    orders = list(permutations(range(rank)))
    return [*orders[1:][-1:], *orders]


def _transposed(x: str, axes: tuple[int, ...], attrs: Mapping[str, Any]) -> Spelled:
    return (x,), [x[axis] for axis in axes]


def _expanded(x: str, axis: int, attrs: Mapping[str, Any]) -> Spelled:
    return (x,), [*x[:axis], *[1] * attrs["num_newaxis"], *x[axis:]]


def _squeezed(x: str, axes: tuple[int, ...], attrs: Mapping[str, Any]) -> Spelled:
    return ([1 if axis in axes else letter for axis, letter in enumerate(x)],), [
        letter for axis, letter in enumerate(x) if axis not in axes
    ]  # fmt: skip


_TRANSPOSE = LetterRule(_transposed, _reversed_first, "axes", (2, 1, 3, 4, 5, 0))
_EXPAND_DIMS = LetterRule(_expanded, lambda rank: range(rank + 1), "axis", (2, 1, 3, 4, 0))
_SQUEEZE = LetterRule(_squeezed, lambda rank: [*sets_of_axes(rank), ()], "axis", (3, 2, 4, 1, 5))
_NO_SQUEEZE = LetterRule(lambda x, axes, attrs: ((x,), x), sets_of_axes, "axis", (3, 2, 4, 1, 5))


def squeeze(s: Solver, draft: NodeDraft, goal: Goal) -> None:
    """Axes of size 1; now and then axes of any size, which a squeeze leaves alone, where the rule names them."""
    is_given, axes = s.given_attr(draft, "axis")
    names_some = is_given and axes not in (None, ())
    (_NO_SQUEEZE if names_some and s.choices.rare() else _SQUEEZE)(s, draft, goal)


def broadcast_to(s: Solver, draft: NodeDraft, goal: Goal) -> None:
    x = draft.operand(0)
    is_given, shape = s.given_attr(draft, "shape")
    wanted = tuple(shape) if is_given and isinstance(shape, tuple) and -1 not in shape else goal.shape
    if x.solved:
        own = x.dims
        grown = tuple([s.choices.size() if size == 1 and wanted is None else size for size in own])
        more = (s.choices.size(),) if wanted is None and s.choices.index(2) else ()
        options = [(*more, *grown)] if wanted is None else [_filled(wanted, own)]
        s.attr(draft, "shape", options)
        return
    rank = s.rank(goal) if wanted is None else len(wanted)
    full = tuple([s.size(size) for size in (wanted or [None] * rank)])
    draft.sizes = list(full)
    narrow = _wanted(s, x, rank)
    cut = s.choices.index(rank + 1) if narrow.rank is None else max(0, rank - narrow.rank)
    few = narrow.sizes(rank - cut)
    only = s.choices.index(rank - cut) if few and s.choices.index(2) else None
    grows = [axis == only if only is not None else bool(s.choices.index(2)) for axis in range(len(few))]
    drawn = [(1 if grow else most) if size is None else size for size, grow, most in zip(few, grows, full[cut:])]
    s.solve(x, Goal(tuple(drawn), goal.dtype))
    s.attr(draft, "shape", [full])


def _filled(wanted: Sequence[int | None], own: Sequence[int]) -> tuple[int, ...]:
    new = len(wanted) - len(own)
    return tuple([size if size is not None else (own[i - new] if i >= new else 1) for i, size in enumerate(wanted)])


def repeat(s: Solver, draft: NodeDraft, goal: Goal) -> None:
    x = draft.operand(0)
    times = s.attr(draft, "repeats")
    rank = x.tensor.ndim if x.solved else s.rank(goal, s.least_rank(draft))
    axis = s.attr(draft, "axis", [*range(rank), *([None] if goal.rank is None else [])])
    sizes = goal.sizes(rank) if axis is not None else [None] * rank
    if axis is not None and sizes[axis] is not None:
        if sizes[axis] % times:
            raise Dead("no multiple")
        sizes[axis] = sizes[axis] // times
    s.solve(x, Goal(tuple(sizes), goal.dtype))


def tile(s: Solver, draft: NodeDraft, goal: Goal) -> None:
    x = draft.operand(0)
    rank = x.tensor.ndim if x.solved else s.rank(s.wanted(x, goal), 1)
    if goal.shape is not None and not x.solved:
        s.attr(draft, "reps", [(1,) * rank])
        s.solve(x, goal)
        return
    s.attr(draft, "reps", [(1,) * rank, (2,) * rank, (1,) * (rank - 1) + (2,), (2, *(1,) * (rank - 1))])
    s.solve(x, Goal(None, goal.dtype, rank))


def pad(s: Solver, draft: NodeDraft, goal: Goal) -> None:
    x = draft.operand(0)
    is_given, widths = s.given_attr(draft, "pad_width")
    rank = x.tensor.ndim if x.solved else len(widths) if is_given and isinstance(widths, tuple) else s.rank(goal, 1)
    mode = s.attr(draft, "pad_mode")
    s.attr(draft, "pad_value", (0.0, 1.5, -2.0, -0.5) if mode == "constant" else (0.0,))
    sizes = goal.sizes(rank)
    pairs = ((0, 1), (1, 0), (1, 1), (0, 2), *([(-1, 0), (1, -1)] if mode == "constant" else []))
    options = [tuple([pair if i == axis else (0, 0) for i in range(rank)]) for axis in range(rank) for pair in pairs]
    options += [((1, 1),) * rank, ((0, 0),) * rank]

    def fits(found: Any) -> bool:
        return all(n is None or n - a - b >= 1 for n, (a, b) in zip(sizes, found))

    found = s.attr(draft, "pad_width", options, fits, lambda v: v if isinstance(v, tuple) else ((v, v),) * rank)
    shape = [None if n is None else n - a - b for n, (a, b) in zip(sizes, found)]
    if mode == "reflect" or min(map(min, found), default=0) < 0:
        least = [max(a, b) if mode == "reflect" else -min(a, 0) - min(b, 0) for a, b in found]
        shape = [less + s.choices.size() if n is None else n for n, less in zip(shape, least)]
    s.solve(x, Goal(tuple(shape), goal.dtype))


_LAYOUTS = (("NCHW", "NHWC"), ("NHWC", "NCHW"), ("NCHW", "NCHW2c"), ("NCHW2c", "NCHW"), ("NCW", "NWC"))


def layout_transform(s: Solver, draft: NodeDraft, goal: Goal) -> None:
    x = draft.operand(0)
    source = s.attr(draft, "src_layout", dict.fromkeys(a for a, _ in _LAYOUTS))
    s.attr(draft, "dst_layout", [b for a, b in _LAYOUTS if a == source] or [source])
    letters = [c for c in source if c.isalpha()]
    shape = [int(source[source.index(c) - 1]) if c.islower() else s.choices.size() for c in letters]
    if "2c" in draft.attrs["dst_layout"]:
        shape[letters.index("C")] *= 2
    s.solve(x, Goal(tuple(shape), goal.dtype))


def reshape_like(s: Solver, draft: NodeDraft, goal: Goal) -> None:
    """All axes become those of the other tensor; on either side, the first and the last axis may be left out."""
    kept = [s.attr(draft, name, options) for name, options in (("lhs_begin", (0, 1)), ("lhs_end", (None, -1)))]
    left = [s.attr(draft, name, options) for name, options in (("rhs_begin", (0, 1)), ("rhs_end", (None, -1)))]
    like = s.solve(draft.operands[1], goal.with_dtype(None) if kept == left else ANY)
    begin, end, _ = slice(*left).indices(len(like.shape))
    if end < begin:
        raise Dead(f"rank {len(like.shape)} where axes from {begin} to {left[1]} are wanted")
    first, last = like.shape[:begin], like.shape[end:]
    if kept != left:
        first, last = ([s.choices.size() for _ in range(count)] for count in (kept[0], -(kept[1] or 0)))
    s.solve(draft.operands[0], Goal((*first, *_refactored(s, like.shape[begin:end], ANY), *last), goal.dtype))


RULES: dict[str, ShapeRule] = {
    "concatenate": concatenate, "stack": stack, "split": split, "reshape": reshape, "transpose": _TRANSPOSE,
    "expand_dims": _EXPAND_DIMS, "squeeze": squeeze, "broadcast_to": broadcast_to, "repeat": repeat, "tile": tile,
    "nn.pad": pad, "layout_transform": layout_transform, "reshape_like": reshape_like,
}  # fmt: skip
FLOAT_ONLY: frozenset[str] = frozenset()

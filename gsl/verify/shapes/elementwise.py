"""Shape rules of element-wise operators, and of those that make tensors of nothing but attributes, or in the likeness
of another one."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from itertools import zip_longest
from typing import Any

from gsl.graph import CONST
from gsl.spec import TABLE, Trait
from gsl.verify.choices import Dead
from gsl.verify.draft import Goal, NodeDraft
from gsl.verify.kinds import NATIVE, PREDICATES
from gsl.verify.solve import DTYPES, MOST_RANK, ShapeRule, Solver
from gsl.walk import postorder

_ANY_NUMBER = frozenset(
    ("add", "subtract", "multiply", "maximum", "minimum", "negative", "abs", "sign", "copy", "square", "floor", "ceil",
     "round", "trunc", "where", "clip", "cast", "floor_divide", "floor_mod", "mod", "nn.relu", "nn.relu6", "nn.dropout")
)  # fmt: skip
"""The operators that take integers as well as floats."""


def _operand_goal(draft: NodeDraft, goal: Goal) -> Goal:
    """The goal of an operand: the shape, and the dtype where the operator keeps it."""
    return goal.with_dtype(None) if draft.op in PREDICATES else goal


def unary(s: Solver, draft: NodeDraft, goal: Goal) -> None:
    for name, attribute in TABLE[str(draft.op)].attrs.items():
        if attribute.candidates:
            s.attr(draft, name)
    s.solve(draft.operands[0], _operand_goal(draft, goal))


def cast(s: Solver, draft: NodeDraft, goal: Goal) -> None:
    s.attr(draft, "dtype", dict.fromkeys((s.dtype, *DTYPES)) if goal.dtype is None else (goal.dtype,))
    s.solve(draft.operands[0], goal.with_dtype(None))


def clip(s: Solver, draft: NodeDraft, goal: Goal) -> None:
    low = s.attr(draft, "a_min")
    s.attr(draft, "a_max", fits=lambda high: low is not None or high is not None)
    s.solve(draft.operands[0], goal)


def broadcast(s: Solver, draft: NodeDraft, goal: Goal) -> None:
    """Operands that are decided come first; each of the others may be smaller than the result in a few ways.

    Where no shape is wanted of the result, one is drawn now and then, so that none of the operands need have it.
    """
    waiting = [operand for operand in draft.operands if operand is not None and not operand.solved]
    whole = [operand for operand in waiting if s.demands.equate(draft, operand, "shape")]  # as large as the result
    order = sorted(
        dict.fromkeys(waiting),
        key=lambda each: (_waits(s, each), each.is_leaf and not s.is_bound(each), each not in whole),
    )
    if len(order) > 1 and all(each.is_leaf and s.is_bound(each) for each in order) and s.choices.index(2, "last first"):
        order.reverse()
    is_drawn = False
    if goal.rank is None and len(order) > 1 and all(_is_free(s, operand) for operand in order):
        is_drawn = s.choices.index(2, "drawn") == 1
    if is_drawn:
        goal = goal.and_shape([s.choices.size() for _ in range(s.rank(of=order[0]))])
    dtype = None if draft.op in PREDICATES else goal.dtype
    condition = draft.operands[0] if draft.op == "where" else None
    for number, operand in enumerate(order):
        if number and whole and goal.rank is None:  # the operand before may have decided it
            goal = s.wanted(draft, goal)
        known = [other for other in draft.operands if other is not None and other.solved and not _is_number(other)]
        shape = broadcast_shape([other.dims for other in known])
        common = sizes_of_result(goal, shape) if shape or goal.rank is not None else None
        if operand is condition:
            wanted: str | None = "bool"
        else:
            wanted = dtype or next((o.dtype for o in known if o is not condition and o is not s.odd), None)
            wanted = s.joined(operand, wanted)
        is_last = goal.rank is not None and number == len(order) - 1
        missing = _missing(common, shape) if is_last and common is not None else []
        own = s.wanted(operand) if s.is_bound(operand) else None
        is_open = own is not None and own.rank is None
        if (not missing and s.may_be_number(operand)) or common is None or is_open:
            s.solve(operand, Goal(None, wanted))
            continue
        smaller = common
        if operand not in whole and (known or own is None):
            smaller = variant(s, common, goal.rank is None, ("smaller", goal.rank is None))
        if own is None and len(smaller) < (low := s.low_rank(operand)):
            smaller = (*[1] * (low - len(common)), *common)
        if missing:
            smaller = _with(smaller, common, missing)
        if own is not None and own.rank is not None:
            smaller = of_rank(own.sizes(own.rank), smaller, common)
        s.solve(operand, Goal(smaller, wanted))


def _waits(s: Solver, draft: NodeDraft) -> bool:
    """True if the shape of a draft, or of one that it is computed of, is one of some that are not decided yet."""
    found = postorder([draft], lambda each: [o for o in each.operands if o is not None and not o.solved])
    return any(s.demands.limits(each, "shape") and s.demands.options(each, "shape") is None for each in found)


def _is_free(s: Solver, draft: NodeDraft) -> bool:
    """True if a draft may have any shape, as far as can be seen: a leaf, or computed of such by element-wise calls.

    A leaf may have any shape of a rank.
    """
    if draft.is_leaf and s.wanted(draft).shape is None and not s.demands.binds(draft, "shape"):
        return draft.kinds != {CONST}
    found = postorder([draft], lambda each: [operand for operand in each.operands if operand is not None])
    return not any(s.is_bound(d) or d.kinds == {CONST} or not (d.is_leaf or d.op in RULES) for d in found)


def sizes_of_result(goal: Goal, shape: tuple[int, ...]) -> tuple[int | None, ...]:
    """The sizes of a result, as far as they are wanted, or follow from the common shape of some operands."""
    if goal.rank is None:
        return shape
    known = [None if size == 1 else size for size in reversed(shape)]
    wanted = reversed(goal.sizes(goal.rank))
    found = [own if size is None else size for size, own in zip_longest(wanted, known[: goal.rank])]
    return tuple(reversed(found))


def _missing(common: Sequence[int | None], shape: Sequence[int]) -> list[int]:
    """The axes of a result that the common shape of some operands lacks, or along which it is smaller."""
    front = len(common) - len(shape)
    return [i for i, size in enumerate(common) if i < front or (size not in (None, 1) and shape[i - front] == 1)]


def _with(shape: Sequence[int | None], common: Sequence[int | None], axes: Sequence[int]) -> tuple[int | None, ...]:
    """A shape with the sizes of the common one along some axes."""
    front = len(common) - len(shape)
    padded = [1] * front + [*shape]
    found = [common[i] if i in axes else size for i, size in enumerate(padded)]
    return tuple(found[min([front, *axes]) :])


def of_rank(
    sizes: Sequence[int | None], shape: Sequence[int | None], common: Sequence[int | None]
) -> tuple[int | None, ...]:
    """The sizes of a tensor of a wanted rank that is to have a shape beside others of a common shape: its own ones
    stay, an axis that it has and the shape lacks has size 1, and one beyond the common shape has any size."""
    beside = (*[None] * len(sizes), *[1] * (len(common) - len(shape)), *shape)[-len(sizes) :]
    return tuple([other if size is None else size for size, other in zip(sizes, beside)])


def _is_number(draft: NodeDraft) -> bool:
    return draft.op == CONST and isinstance(draft.attrs.get("value"), (bool, int, float))


def variant(
    s: Solver, common: tuple[int | None, ...], may_grow: bool, label: Hashable
) -> tuple[int | None, ...]:
    """A shape that broadcasts against another one: the same, or another one in some way, each as often as others."""
    kind = s.choices.index(6 if may_grow else 4, label)
    if kind == 5:
        more = min(1 + s.choices.index(3, "more"), MOST_RANK - 1 - len(common))
        return (*(s.choices.size() for _ in range(more)), *common)
    if kind == 0 or not common:
        return common
    axis = s.choices.index(len(common))
    match kind:
        case 1:
            return tuple([1 if i == axis else size for i, size in enumerate(common)])
        case 2:
            return common[axis + 1 :]
        case 3:
            return tuple([size if i == axis else 1 for i, size in enumerate(common)])
        case 4:
            return tuple([s.choices.size() if size == 1 else size for size in common])
    return common


def broadcast_shape(shapes: Any) -> tuple[int, ...]:
    """The common shape. Dead where there is none."""
    found: list[int] = []
    for sizes in zip_longest(*[reversed(shape) for shape in shapes], fillvalue=1):
        large = {size for size in sizes if size != 1}
        if len(large) > 1:
            raise Dead(f"{sizes} do not broadcast")
        found.append(large.pop() if large else 1)
    return tuple(reversed(found))


def prelu(s: Solver, draft: NodeDraft, goal: Goal) -> None:
    data = s.solve(draft.operands[0], Goal(goal.shape, goal.dtype, s.rank(goal, s.least_rank(draft))))
    axis = s.axis(draft, data.ndim, preferred=1)
    s.solve(draft.operands[1], Goal((data.shape[axis] if s.choices.index(2) == 0 else 1,), data.dtype))


def made(s: Solver, draft: NodeDraft, goal: Goal) -> None:
    """A tensor of nothing but attributes, or filled with a number."""
    rank = s.rank(goal)
    shape = [s.size(size) for size in goal.sizes(rank)]
    s.attr(draft, "shape", [tuple(shape)])
    usual = [goal.dtype or s.dtype]
    s.attr(draft, "dtype", usual if goal.dtype or draft.op != "full" else [*usual, ""])
    for operand in draft.operands:
        s.solve(operand, Goal(()))


def arange(s: Solver, draft: NodeDraft, goal: Goal) -> None:
    """As many numbers as are wanted: the end is where one more would be, or before that."""
    (size,) = goal.sizes(1)
    count = s.size(size)
    start = s.attr(draft, "start", (0, 1, -2))
    step = s.attr(draft, "step", (1, 2, -1, -3))
    s.attr(draft, "stop", dict.fromkeys((start + count * step, start + (count - 1) * step + (1 if step > 0 else -1))))
    s.attr(draft, "dtype", (goal.dtype or "", "float32", "int64"))


def alike(s: Solver, draft: NodeDraft, goal: Goal) -> None:
    s.solve(draft.operands[0], goal)
    for operand in draft.operands[1:]:
        s.solve(operand, Goal((), draft.operand(0).dtype))


def _rules() -> dict[str, ShapeRule]:
    special: dict[str, ShapeRule] = {"cast": cast, "clip": clip, "nn.prelu": prelu}
    found: dict[str, ShapeRule] = {}
    for name, spec in TABLE.items():
        if name in special:
            found[name] = special[name]
        elif Trait.ELEMENT_WISE in spec.traits:
            found[name] = broadcast if len(spec.operands) > 1 else unary
    return found


RULES = _rules()
FLOAT_ONLY = frozenset(RULES) - PREDICATES - NATIVE - _ANY_NUMBER | {"nn.prelu"}
RULES |= {
    "zeros": made, "ones": made, "full": made, "arange": arange, "zeros_like": alike, "ones_like": alike,
    "full_like": alike,
}  # fmt: skip

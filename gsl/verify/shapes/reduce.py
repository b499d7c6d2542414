"""Shape rules of reductions, softmax and cumulative sums."""

from __future__ import annotations

from typing import Any

from gsl.spec import TABLE, Trait
from gsl.verify.choices import Dead
from gsl.verify.draft import Goal, NodeDraft
from gsl.verify.shapes.layout import are_axes, some_axes
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
        if not are_axes(found, rank):
            return False
        result = [1 if axis in found else known[axis] for axis in range(rank) if keepdims or axis not in found]
        wanted = goal.sizes(goal.rank) if goal.rank is not None else [None] * len(result)
        return len(result) == len(wanted) and all(None in (a, b) or a == b for a, b in zip(result, wanted))

    def normal(value: Any) -> tuple[int, ...]:
        items = tuple(range(rank)) if value is None else value if isinstance(value, tuple) else (value,)
        return tuple(sorted([axis % max(rank, 1) for axis in items]))

    found = s.attr(draft, "axis", some_axes(rank, none=True), fits, normal)
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


RULES: dict[str, ShapeRule] = {name: reduction for name, spec in TABLE.items() if Trait.REDUCTION in spec.traits}
FLOAT_ONLY = frozenset(("mean", "variance", "std", "logsumexp", "nn.softmax", "nn.log_softmax"))
RULES |= {"nn.softmax": along_axis, "nn.log_softmax": along_axis, "cumsum": cumsum}

"""Shape rules of normalisations."""

from __future__ import annotations

from typing import Any

from gsl.spec import TABLE
from gsl.verify.draft import Goal, NodeDraft
from gsl.verify.shapes.layout import are_axes, some_axes
from gsl.verify.solve import ShapeRule, Solver


def _affine(s: Solver, draft: NodeDraft) -> None:
    s.attr(draft, "epsilon")
    for name in ("center", "scale"):
        if name in TABLE[str(draft.op)].attrs:
            s.attr(draft, name)


def by_channel(s: Solver, draft: NodeDraft, goal: Goal) -> None:
    """The weights have one element for each element of an axis."""
    _affine(s, draft)
    least = 3 if draft.op == "nn.instance_norm" else max(2, s.least_rank(draft))
    x = draft.operand(0)
    if not x.is_leaf and goal.rank is None:
        s.solve(x, goal)
    data = s.solve(x, Goal(goal.shape, goal.dtype, None if x.solved else s.rank(goal, least, 5, (4, 3, 2, 5))))
    draft.wants_ndim = data.ndim
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
    x = draft.operand(0)
    if not x.is_leaf and goal.rank is None:
        s.solve(x, goal)
    data = s.solve(x, Goal(goal.shape, goal.dtype, None if x.solved else s.rank(goal, 1)))
    draft.wants_ndim = data.ndim

    def normal(value: Any) -> tuple[int, ...]:
        items = value if isinstance(value, tuple) else (value,)
        return tuple(sorted([axis % data.ndim for axis in items]))

    def fits(axes: tuple[int, ...]) -> bool:
        return are_axes(axes, data.ndim)

    options = some_axes(data.ndim)
    axes = s.attr(draft, "axis", options[data.ndim - 1 : data.ndim] + options, fits, normal)
    for operand in draft.operands[1:]:
        s.solve(operand, Goal(tuple([data.shape[axis] for axis in axes]), data.dtype))


def l2(s: Solver, draft: NodeDraft, goal: Goal) -> None:
    s.attr(draft, "eps")
    data = s.solve(draft.operands[0], Goal(goal.shape, goal.dtype, s.rank(goal, 1)))
    s.attr(draft, "axis", some_axes(data.ndim), lambda axes: are_axes(axes, data.ndim))


RULES: dict[str, ShapeRule] = {
    "nn.batch_norm": by_channel, "nn.group_norm": by_channel, "nn.instance_norm": by_channel,
    "nn.layer_norm": by_axes, "nn.rms_norm": by_axes, "nn.l2_normalize": l2,
}  # fmt: skip
FLOAT_ONLY = frozenset(RULES)

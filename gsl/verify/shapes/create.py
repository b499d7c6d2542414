"""Shape rules of operators that make tensors of nothing but attributes, or in the likeness of another tensor."""

from __future__ import annotations

from gsl.verify.draft import Goal, NodeDraft
from gsl.verify.solve import ShapeRule, Solver


def made(s: Solver, draft: NodeDraft, goal: Goal) -> None:
    """A tensor of nothing but attributes, or filled with a number."""
    rank = s.rank(goal)
    shape = [s.size(size) for size in goal.sizes(rank)]
    s.attr(draft, "shape", [tuple(shape)])
    default = goal.dtype or s.dtype
    s.attr(draft, "dtype", [default])
    for operand in draft.operands:
        s.solve(operand, Goal(()))


def arange(s: Solver, draft: NodeDraft, goal: Goal) -> None:
    (size,) = goal.sizes(1)
    s.attr(draft, "start", (0,))
    s.attr(draft, "step", (1,))
    s.attr(draft, "stop", [s.size(size)])
    s.attr(draft, "dtype", (goal.dtype or "", "float32", "int64"))


def alike(s: Solver, draft: NodeDraft, goal: Goal) -> None:
    s.solve(draft.operands[0], goal)
    for operand in draft.operands[1:]:
        s.solve(operand, Goal((), draft.operand(0).dtype))


RULES: dict[str, ShapeRule] = {
    "zeros": made, "ones": made, "full": made, "arange": arange, "zeros_like": alike, "ones_like": alike,
    "full_like": alike,
}  # fmt: skip
FLOAT_ONLY: frozenset[str] = frozenset()

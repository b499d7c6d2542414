"""Shape rules of operators that select elements."""

from __future__ import annotations

from gsl.verify.draft import Goal, NodeDraft
from gsl.verify.solve import ShapeRule, Solver


def strided_slice(s: Solver, draft: NodeDraft, goal: Goal) -> None:
    """A slice of one axis, mostly; the whole tensor where a shape is wanted."""
    x = draft.operand(0)
    given = s.given_attrs(draft)
    least = 1 + max([abs(a) for a in given.get("axes") or (len(given.get("begin") or ()) - 1,)], default=0)
    data = s.solve(x, Goal(None, goal.dtype, None if x.solved else s.rank(goal, max(1, least))))
    if "begin" in given or "end" in given:
        return
    axis = s.choices.index(data.ndim) if "axes" not in given else given["axes"][0]
    size = data.shape[axis]
    wanted = s.wanted(draft, goal).sizes(data.ndim)[axis]  # it may follow from the shape of the data
    options = [(0, max(1, size - 1), 1), (size // 2, size, 1), (0, size, 2), (size - 1, -size - 1, -1)]
    if wanted is not None:
        options = [(size - wanted, size, 1), *(option for option in options if _count(size, *option) == wanted)]
    begin, end, step = options[s.choices.index(len(options))]
    s.attr(draft, "axes", [(axis,)])
    s.attr(draft, "begin", [(begin,)])
    s.attr(draft, "end", [(end,)])
    s.attr(draft, "strides", [(step,)])


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
    s.attr(draft, "k", ((0, 0),))
    s.attr(draft, "align", ("RIGHT_LEFT",))
    s.solve(draft.operands[1], Goal((*data.shape[:-2], min(data.shape[-2:])), data.dtype))


def trilu(s: Solver, draft: NodeDraft, goal: Goal) -> None:
    s.attr(draft, "k", (0, 1, -1))
    s.attr(draft, "upper", (True, False))
    s.solve(draft.operands[0], Goal(goal.shape, goal.dtype, s.rank(goal, 2, options=(2, 3))))


RULES: dict[str, ShapeRule] = {
    "strided_slice": strided_slice, "take": take, "gather": gather, "scatter": gather, "matrix_set_diag": set_diag,
    "trilu": trilu,
}  # fmt: skip
FLOAT_ONLY: frozenset[str] = frozenset()

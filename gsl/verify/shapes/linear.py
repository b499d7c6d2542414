"""Shape rules of products of matrices, bias and attention."""

from __future__ import annotations

from collections.abc import Iterable

from gsl.graph.node import TUPLE
from gsl.spec import TABLE
from gsl.verify.choices import Dead, pick
from gsl.verify.draft import Goal, NodeDraft, meet
from gsl.verify.shapes.elementwise import broadcast_shape
from gsl.verify.solve import ShapeRule, Solver


def first_computed(s: Solver, *drafts: NodeDraft | None) -> list[NodeDraft]:
    """Operands in the order in which to decide them: computed ones, then leaves on whose sizes there are conditions."""
    waiting = [draft for draft in drafts if draft is not None and not draft.solved]
    return sorted(waiting, key=lambda draft: (draft.is_leaf, not s.demands.reads(draft, "shape")))


def by_letters(s: Solver, draft: NodeDraft, goal: Goal, terms: Iterable[str], result: str) -> None:
    """Decide operands of which each axis has a letter: axes of one letter have one size."""
    sizes: dict[str, int | None] = dict(zip(result, goal.sizes(len(result))))
    rows = [(operand, term) for operand, term in zip(draft.operands, terms) if operand is not None]
    dtype = goal.dtype
    for operand in [*(operand for operand, _ in rows if operand.solved), *first_computed(s, *draft.operands)]:
        for same, term in rows:
            if same is operand:
                sizes.update({letter: s.size(sizes.get(letter)) for letter in term if term.count(letter) > 1})
                kind = s.solve(operand, Goal(tuple([sizes.get(letter) for letter in term]), dtype))
                sizes.update(zip(term, operand.dims))
                dtype = kind.dtype


_BATCH = "abcdef"
"""The letters of axes of a batch."""


def dense(s: Solver, draft: NodeDraft, goal: Goal) -> None:
    x = draft.operand(0)
    s.attr(draft, "out_dtype")
    rank = x.tensor.ndim if x.solved else s.rank(goal, 1, options=(2, 3, 1, 4))
    is_given, units = s.given_attr(draft, "units")
    if is_given:
        goal = goal.and_shape([None] * (rank - 1) + [units])
    batch = _BATCH[: rank - 1]
    by_letters(s, draft, goal, (batch + "k", "nk"), batch + "n")


def matmul(s: Solver, draft: NodeDraft, goal: Goal) -> None:
    """Matrices with or without axes of a batch; a vector now and then."""
    a, b = draft.operand(0), draft.operand(1)
    s.attr(draft, "out_dtype")
    rank = s.rank(goal, 0, options=(2, 3, 4))
    wanted = goal.sizes(rank)
    vectors = s.allows(a, 1) or s.allows(b, 1)
    if rank < 2 or (goal.rank is None and vectors and s.choices.rare()):
        _vector(s, draft, goal)
        return
    rows, columns = wanted[-2:]
    for operand in first_computed(s, a, b):
        other = b if operand is a else a
        batch: tuple[int | None, ...] = tuple(wanted[:-2])
        inner = None
        dtype = other.dtype if other.solved else goal.dtype
        if other.solved:
            shape = other.dims
            if len(shape) < 2:
                raise Dead("a vector")
            inner = shape[-2] if operand is a else shape[-1]
            if goal.shape is None:
                batch = tuple(shape[:-2])
            kind = s.choices.index(3) if goal.shape is None or shape[:-2] == tuple(wanted[:-2]) else 0
            batch = batch if kind == 0 else () if kind == 1 else tuple([1] * len(batch))
        ends = (rows, inner) if operand is a else (inner, columns)
        own = s.wanted(operand, Goal(None, dtype))
        if own.rank is not None and own.rank >= 2:
            sizes = own.sizes(own.rank)
            batch = tuple(sizes[:-2]) if goal.shape is None or other.solved else batch
            ends = (meet(sizes[-2], ends[0]), meet(sizes[-1], ends[1]))
        s.solve(operand, Goal(None, dtype) if own.rank == 1 else Goal((*batch, *ends), dtype))


def _vector(s: Solver, draft: NodeDraft, goal: Goal) -> None:
    """A product in which one side, or both, are vectors."""
    a, b = draft.operand(0), draft.operand(1)
    wanted = goal.sizes(goal.rank) if goal.rank is not None else [None] * s.choices.index(2)
    on_left = s.choices.index(2) == 0
    if len(wanted) == 0:
        on_left = True
    first = s.solve(a, Goal((None,) if on_left else (*wanted, None), goal.dtype))
    inner = first.shape[-1] if first.shape else None
    s.solve(b, Goal((inner, *wanted) if on_left else (inner,), first.dtype))


def batch_matmul(s: Solver, draft: NodeDraft, goal: Goal) -> None:
    s.attr(draft, "out_dtype")
    left = "bki" if s.attr(draft, "transpose_a") else "bik"
    right = "bjk" if s.attr(draft, "transpose_b") else "bkj"
    by_letters(s, draft, goal, (left, right), "bij")


def bias_add(s: Solver, draft: NodeDraft, goal: Goal) -> None:
    x, b = draft.operand(0), draft.operand(1)
    size: int | None = None
    if b.solved:
        size = b.dims[0] if b.tensor.ndim == 1 else None
    if not x.solved:
        wanted = Goal(goal.shape, goal.dtype, goal.ndim)
        if not x.is_leaf and goal.rank is None:
            s.solve(x, wanted)
        else:
            rank = s.rank(goal, s.least_rank(draft))
            draft.wants_ndim = rank
            if size is not None:
                axis = s.axis(draft, rank, preferred=1)
                shape = goal.sizes(rank)
                shape[axis] = meet(shape[axis], size)
                wanted = Goal(tuple(shape), goal.dtype)
            s.solve(x, Goal(wanted.shape, wanted.dtype, rank))
    data = x.tensor
    draft.wants_ndim = data.ndim
    axis = draft.attrs["axis"] if "axis" in draft.attrs else s.axis(draft, data.ndim, preferred=1)
    s.solve(b, Goal((x.dims[axis],), data.dtype))


def packed_dense(s: Solver, draft: NodeDraft, goal: Goal) -> None:
    """As a dense layer, of which the other operands follow."""
    s.attr(draft, "activation")
    s.attr(draft, "precision")
    x = draft.operand(0)
    batch = _BATCH[: (x.tensor.ndim if x.solved else s.rank(goal, 1, options=(2, 3, 1, 4))) - 1]
    others = ["n" if name == "bias" else batch + "n" for name in TABLE[str(draft.op)].operands[2:]]
    by_letters(s, draft, goal, (batch + "k", "nk", *others), batch + "n")


def attention(s: Solver, draft: NodeDraft, goal: Goal) -> None:
    query, key, value, *mask = draft.operands
    s.attr(draft, "scale")
    causal = s.attr(draft, "is_causal", (False,) if mask else None)
    grouped = s.attr(draft, "enable_gqa")
    rank = s.rank(goal, 3, 5, options=(4, 3))
    wanted = goal.sizes(rank)
    q = s.solve(query, Goal((*wanted[:-1], None), goal.dtype))
    length = q.shape[-2] if causal and not s.choices.index(2) else s.choices.size()
    before, heads = q.shape[:-3], q.shape[-3]
    if grouped and rank > 3:  # so many heads of queries have one of keys
        heads = pick(s.choices, [count for count in range(1, heads + 1) if heads % count == 0])
    k = s.solve(key, Goal((*before, heads, length, q.shape[-1]), q.dtype))
    s.solve(value, Goal((*k.shape[:-1], wanted[-1]), q.dtype))
    for operand in mask:
        s.solve(operand, Goal((q.shape[-2], k.shape[-2]), q.dtype))


_EQUATIONS = {
    1: ("ij->ji", "ij->i", "ii->i"),
    2: ("ij,jk->ik", "bij,bjk->bik", "ij,ij->ij", "i,j->ij", "bij,jk->bik", "...ij,...jk->...ik"),
    3: ("ij,jk,kl->il",),
}


def einsum(s: Solver, draft: NodeDraft, goal: Goal) -> None:
    fields = draft.operand(0)
    if fields.op != TUPLE:
        raise Dead("einsum takes a tuple")
    equation = s.attr(draft, "equation", _EQUATIONS.get(len(fields.operands), ()))
    left, _, right = equation.replace("...", ".").partition("->")  # dots are one axis
    terms = left.split(",")
    if len(terms) != len(fields.operands):
        raise Dead("the equation has another number of terms")
    free = not right or goal.rank != len(right)
    by_letters(s, fields, Goal(None, goal.dtype) if free else goal, terms, "" if free else right)


RULES: dict[str, ShapeRule] = {
    "nn.dense": dense,
    "matmul": matmul,
    "nn.batch_matmul": batch_matmul,
    "nn.bias_add": bias_add,
    "nn.attention": attention,
    "packed.dense": packed_dense,
    "packed.dense_add": packed_dense,
    "einsum": einsum,
}
FLOAT_ONLY = frozenset(RULES) - {"nn.bias_add"}
__all__ = ["FLOAT_ONLY", "RULES", "broadcast_shape", "first_computed"]

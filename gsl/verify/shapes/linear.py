"""Shape rules of products of matrices, and attention."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from gsl.graph.node import TUPLE
from gsl.verify.choices import Dead, pick
from gsl.verify.draft import RANK_KEEPING, Goal, NodeDraft, meet
from gsl.verify.shapes.elementwise import of_rank, sizes_of_result, variant
from gsl.verify.shapes.letters import LetterRule, Spelled, by_letters, dtype_of_result, first_computed
from gsl.verify.solve import ShapeRule, Solver
from gsl.walk import postorder


def _units(x: str, axes: None, attrs: Mapping[str, Any]) -> Spelled:
    n = attrs.get("units", "n")
    return (x, (n, x[-1])), (*x[:-1], n)


def _with_bias(x: str, axes: None, attrs: Mapping[str, Any]) -> Spelled:
    return (x, ("n", x[-1]), "n"), x[:-1] + "n"


def _with_addend(x: str, axes: None, attrs: Mapping[str, Any]) -> Spelled:
    return (x, ("n", x[-1]), x[:-1] + "n", "n"), x[:-1] + "n"


def _batches(x: str, axes: None, attrs: Mapping[str, Any]) -> Spelled:
    row, inner = (x[2], x[1]) if attrs["transpose_a"] else (x[1], x[2])
    return (x, (x[0], "n", inner) if attrs["transpose_b"] else (x[0], inner, "n")), (x[0], row, "n")


_WIDER = {
    "float16": ("float32",), "bfloat16": ("float32",), "float32": ("float64",), "int8": ("int32",),
    "uint8": ("int32",), "int16": ("int64",), "int32": ("int64",),
}  # fmt: skip


def wider(dtype: str) -> Sequence[str]:
    """The dtypes that a product of a dtype may have beside its own: they hold the values of its operands."""
    return _WIDER.get(dtype, ())


_OF_ROWS = (2, 3, 1, 4)
"""The ranks of what a dense layer is applied to."""


def matmul(s: Solver, draft: NodeDraft, goal: Goal) -> None:
    """Matrices with or without axes of a batch; a vector now and then."""
    _factors(s, draft, goal)
    dtype_of_result(s, draft, "out_dtype", wider, goal)


def _factors(s: Solver, draft: NodeDraft, goal: Goal) -> None:
    a, b = draft.operand(0), draft.operand(1)
    demanded = _demanded_rank(s, draft)
    least = [s.low_rank(operand) for operand in (a, b)]
    rank = s.rank(goal, max(least) if max(least) > 2 else 0, options=(2, 3, 4) if demanded < 2 else (demanded,))
    wanted = goal.sizes(rank)
    vectors = min(least) < 2 and max(least) < 3
    if rank < 2 or (goal.rank is None and demanded < 2 and vectors and s.choices.rare()):
        _vector(s, draft, goal)
        return
    rows, columns = wanted[-2:]
    swapped = a.is_leaf and b.is_leaf and s.choices.index(2, "second first") == 1
    order = first_computed(s, *((b, a) if swapped else (a, b)))
    for operand in sorted(order, key=lambda each: each.is_leaf and not s.demands.reads(each, "dtype")):
        other = b if operand is a else a
        own = s.wanted(operand, Goal(None, other.dtype if other.solved else goal.dtype))
        common: tuple[int | None, ...] = tuple(wanted[:-2])
        batch, inner = common, None
        if other.solved:
            shape = other.dims
            if len(shape) < 2:
                raise Dead("a vector")
            inner = shape[-2] if operand is a else shape[-1]
            free = goal.shape is None
            batch = common = sizes_of_result(Goal() if free else Goal(common), shape[:-2])
            if len(common) == len(shape) - 2 and all(size in (None, given) for size, given in zip(common, shape)):
                batch = variant(s, common, free, "batch")
            if own.rank is None and operand.is_leaf:
                options = (batch, common, (1, *common), common[1:]) if free else (batch, common)
                batch = next((option for option in options if s.allows(operand, len(option) + 2)), common)
        ends = (rows, inner) if operand is a else (inner, columns)
        if own.rank is not None and own.rank >= 2:
            sizes = own.sizes(own.rank)
            batch = of_rank(sizes[:-2], batch, common) if goal.shape is None or other.solved else batch
            ends = (meet(sizes[-2], ends[0]), meet(sizes[-1], ends[1]))
        s.solve(operand, Goal(None, own.dtype) if own.rank == 1 else Goal((*batch, *ends), own.dtype))


def _demanded_rank(s: Solver, draft: NodeDraft) -> int:
    """The rank that the operands of a product are computed of, if given axes demand one; otherwise 0."""

    def below(draft: NodeDraft) -> Sequence[NodeDraft]:
        return [o for o in draft.operands if o is not None] if draft.op in RANK_KEEPING else ()

    given = [s.given_attr(each, "axes")[1] for each in postorder([draft], below) if each.op == "transpose"]
    return max([len(axes) for axes in given if axes is not None], default=0)


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
    if mask:
        own = s.wanted(draft.operand(3))
        shapes = [m for m in _masks(q.shape[:-2], q.shape[-2], k.shape[-2]) if own.rank in (None, len(m))]
        s.solve(draft.operands[3], Goal(pick(s.choices, shapes), q.dtype))


def _masks(batch: tuple[int, ...], rows: int, columns: int) -> Iterable[tuple[int, ...]]:
    """The shapes of a mask: with some of the axes before the last two, or the same for all places of one."""
    fronts = [batch[place:] for place in range(len(batch), -1, -1)]
    fronts += [(*front[:-1], 1) for front in fronts if front]
    return dict.fromkeys((*front, count, columns) for front in fronts for count in (rows, 1))


_EQUATIONS = {
    1: ("ij->ji", "ij->i", "ii->i"),
    2: ("ij,jk->ik", "bij,bjk->bik", "ij,ij->ij", "i,j->ij", "bij,jk->bik", "...ij,...jk->...ik", "ij,kj->ki"),
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
    "nn.dense": LetterRule(_units, ranks=_OF_ROWS, dtype="out_dtype", others=wider),
    "matmul": matmul,
    "nn.batch_matmul": LetterRule(_batches, ranks=(3,), dtype="out_dtype", others=wider),
    "nn.attention": attention,
    "packed.dense": LetterRule(_with_bias, ranks=_OF_ROWS),
    "packed.dense_add": LetterRule(_with_addend, ranks=_OF_ROWS),
    "einsum": einsum,
}
FLOAT_ONLY = frozenset(RULES)

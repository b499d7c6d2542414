"""Shape rules by the letters of axes: those of one letter have one size, in the operands and in the result."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import combinations
from typing import Any

from gsl.graph import TUPLE, TensorType, TupleType, Type
from gsl.spec import REQUIRED, TABLE, Trait
from gsl.verify.choices import Dead, pick
from gsl.verify.draft import Goal, NodeDraft, meet
from gsl.verify.solve import JOINING, Solver

Letters = Sequence[Any]
"""A letter for each axis; a number for one of that size."""
LETTERS = "abcdef"
"""The letters of the axes of an operand of any rank."""
_ALL_RANKS = Trait.LAYOUT | Trait.REDUCTION
"""Operators to which tensors of all ranks are given, also where they are computed: their axes are what matters."""


def sizes_of(rows: Iterable[tuple[Letters, Goal]]) -> dict[Any, int | None]:
    """The sizes of letters, by what is wanted of shapes with them. Dead where that is contradictory."""
    sizes: dict[Any, int | None] = {}
    for letters, goal in rows:
        for letter, size in zip(letters, goal.sizes(len(letters))):
            sizes[letter] = meet(letter if isinstance(letter, int) else sizes.get(letter), size)
    return sizes


def sets_of_axes(rank: int) -> list[tuple[int, ...]]:
    """Sets of axes: single ones first, then all, then pairs."""
    single = [(axis,) for axis in range(rank)]
    return list(dict.fromkeys([*single, tuple(range(rank)), *combinations(range(rank), 2)]))


def first_computed(s: Solver, *drafts: NodeDraft | None) -> list[NodeDraft]:
    """Operands in the order in which to decide them: computed ones, then leaves on whose sizes there are conditions."""
    waiting = [draft for draft in drafts if draft is not None and not draft.solved]
    return sorted(waiting, key=lambda draft: (draft.is_leaf, not s.demands.reads(draft, "shape")))


def by_letters(
    s: Solver, draft: NodeDraft, goal: Goal, terms: Iterable[Letters], result: Letters,
    dtypes: Mapping[int, str] | None = None, joins: bool = False,
) -> None:  # fmt: skip
    """Decide the operands of a call, or the fields of a tuple, of which the letters are known; ``dtypes`` are those of
    operands at some places, where they are not that of the result. With ``joins``, they need not have one dtype."""
    sizes = sizes_of([(result, goal)])
    rows = [(place, each, term) for place, (each, term) in enumerate(zip(draft.operands, terms)) if each is not None]
    dtype = goal.dtype
    for operand in [*(each for _, each, _ in rows if each.solved), *first_computed(s, *draft.operands)]:
        for place, same, term in rows:
            if same is operand:
                sizes.update({letter: letter for letter in term if isinstance(letter, int)})
                sizes.update({letter: s.size(sizes.get(letter)) for letter in term if term.count(letter) > 1})
                own = (dtypes or {}).get(place)
                wanted = s.joined(operand, dtype) if joins else own or dtype
                kind = s.solve(operand, Goal(tuple([sizes.get(letter) for letter in term]), wanted))
                sizes.update(zip(term, operand.dims))
                dtype = dtype if own else kind.dtype


def dtype_of_result(
    s: Solver, draft: NodeDraft, name: str, others_of: Callable[[str], Sequence[str]], goal: Goal
) -> None:
    """Decide the attribute that is the dtype of a result, of a call whose operands are decided: the one that follows
    from them, or now and then one of others if all operands have one dtype."""
    dtypes = {operand.dtype for operand in draft.operands if operand is not None}
    others = others_of(str(dtypes.pop())) if len(dtypes) == 1 else ()
    goal = s.wanted(draft, goal)  # it may follow from the dtypes of the operands
    options: Sequence[Any] = ("",)
    if goal.dtype in others:
        options = (goal.dtype,)
    elif others and goal.dtype is None and s.choices.index(4) == 3:
        options = others
    s.attr(draft, name, options)


Spelled = tuple[Iterable[Letters], Letters]
"""The letters of the operands, or of the fields of the tuple that is the operand, and of the result."""


@dataclass(frozen=True)
class LetterRule:
    """The shape rule of an operator whose operands and result have letters that follow from the rank of the first
    operand, and from the attribute that names axes of it, if there is one."""

    spelled: Callable[[str, Any, Mapping[str, Any]], Spelled]
    """The letters, by one for each axis of the first operand, the axes that are named, and the attributes."""
    axes: Callable[[int], Sequence[Any]] = lambda rank: (None,)
    """The axes to choose from for a rank, the simplest first."""
    attribute: str = ""
    """The attribute that names them."""
    ranks: Sequence[int] = (2, 1, 3, 4, 5)
    """The ranks that the first operand may have, the simplest first."""
    dtypes: Mapping[int, str] = field(default_factory=dict)
    """The dtypes of operands, by place, that have one whatever that of the result is."""
    keeps_dtype: bool = True
    """False if the dtype of the result is the same whatever that of the operands is."""
    widens: bool = False
    """True if the result is of int64 for operands of all integers and bools."""
    dtype: str = ""
    """The attribute that is the dtype of the result."""
    others: Callable[[str], Sequence[str]] = lambda dtype: ()
    """The dtypes that the attribute may name beside that which follows from the operands, by that of the first one."""

    def __call__(self, s: Solver, draft: NodeDraft, goal: Goal) -> None:
        """Decide the attributes and the operands of a call."""
        spec = TABLE[str(draft.op)]
        for name, declared in spec.attrs.items():
            is_given, value = s.given_attr(draft, name) if declared.derive is not None else (False, None)
            if is_given:
                draft.attrs[name] = value
            is_free = declared.derive is None and (declared.candidates or declared.default is not REQUIRED)
            if is_free and name not in (self.attribute, self.dtype):
                s.attr(draft, name)
        narrow = self.widens and goal.dtype == "int64" and "float" not in s.dtype
        goal = goal if self.keeps_dtype and not narrow else goal.with_dtype(None)
        whole = draft.operand(0)
        owner = whole if whole.op == TUPLE else draft
        alike = [each for each in owner.operands[: None if whole.op == TUPLE else 1] if each is not None]
        x = min(alike, key=lambda each: (not each.solved, each.is_leaf))
        if not x.solved and not x.is_leaf:
            is_free = goal.rank is None and not spec.traits & _ALL_RANKS
            if is_free or self._waits(s, draft):
                s.solve(x, Goal(None, goal.dtype))
        known = {each: Goal(each.dims) for each in owner.operands if each is not None and each.solved}
        if not x.solved:
            known[x] = s.wanted(x, Goal(None, goal.dtype))

        def fits(rank: int, axes: Any) -> bool:
            """True if the axes give the wanted result, as far as it and the operands are decided."""
            terms, result = self.spelled(LETTERS[:rank], axes, draft.attrs)
            rows = [(term, known[each]) for each, term in zip(owner.operands, terms) if each in known]
            return _agree([*rows, (result, goal)])

        ranks = self._ranks(s, draft, known[x], fits)
        if x.solved and not ranks:  # what was wished for can't be
            goal = Goal(None, goal.dtype)
            ranks = self._ranks(s, draft, known[x], fits)
        rank = pick(s.choices, ranks, ("rank", *ranks))
        draft.wants_ndim = self._result_rank(draft, rank)
        x.wants_ndim = x.wants_ndim if x.solved else rank
        normal = partial(self._normal, draft, rank)
        axes = s.attr(draft, self.attribute, self.axes(rank), partial(fits, rank), normal) if self.attribute else None
        spelled = self.spelled(LETTERS[:rank], axes, draft.attrs)
        by_letters(s, owner, goal, *spelled, self.dtypes, draft.op in JOINING)
        if self.dtype:
            dtype_of_result(s, draft, self.dtype, self.others, goal)

    def _waits(self, s: Solver, draft: NodeDraft) -> bool:
        """True if the axes follow from what is not decided yet, as the rank of a tensor that is made of the operand."""
        return s.demands.binds(draft, self.attribute) and not s.given_attr(draft, self.attribute)[0]

    def _ranks(self, s: Solver, draft: NodeDraft, known: Goal, fits: Callable[[int, Any], bool]) -> list[int]:
        """The ranks of the first operand for which some axes give the wanted result."""
        is_given, value = s.given_attr(draft, self.attribute)

        def is_possible(rank: int) -> bool:
            try:
                options = (self._normal(draft, rank, value),) if is_given else self.axes(rank)
            except Dead:
                return False
            return any(fits(rank, axes) for axes in options)

        return [rank for rank in (self.ranks if known.rank is None else (known.rank,)) if is_possible(rank)]

    def _result_rank(self, draft: NodeDraft, rank: int) -> int | None:
        """The rank of the result, if it is the same for all axes."""
        found = {len(self.spelled(LETTERS[:rank], axes, draft.attrs)[1]) for axes in self.axes(rank)}
        return found.pop() if len(found) == 1 else None

    def _normal(self, draft: NodeDraft, rank: int, value: Any) -> Any:
        """The canonical form of axes that are given. Dead if a tensor of the rank does not have them."""
        own: Type = TensorType((1,) * rank, "float32")
        if draft.operand(0).op == TUPLE:
            own = TupleType((own,))
        try:
            return TABLE[str(draft.op)].normalise(self.attribute, value, (own,))
        except ValueError as error:
            raise Dead(str(error)) from None


def _agree(rows: Iterable[tuple[Letters, Goal]]) -> bool:
    """True if what is wanted of shapes with some letters is not contradictory."""
    try:
        sizes_of(rows)
    except Dead:
        return False
    return True

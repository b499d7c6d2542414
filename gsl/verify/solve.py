"""Types and attributes for a skeleton: from the outputs down, by the shape rules of the operators.

Each operator has a rule (:mod:`gsl.verify.shapes`) that is the inverse of its type: from what is wanted of the result
and what is known of some operands, it says what is wanted of the others, and decides the attributes. What the rule of
the user demands goes before what is free.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain, islice
from math import isfinite
from typing import Any

from gsl.graph import CONST, INPUT, PARAM, TensorType, TupleType
from gsl.graph.node import GETITEM, TUPLE
from gsl.match import Plan
from gsl.pat import Const, Leaf, Pattern
from gsl.spec import TABLE, Trait
from gsl.verify.choices import SIZES, Choices, Dead, pick
from gsl.verify.demands import Demands
from gsl.verify.draft import ANY, RANK_KEEPING, Goal, NodeDraft, known_of, meet, type_of_call
from gsl.verify.kinds import EQUALITIES
from gsl.verify.skeleton import Skeleton
from gsl.walk import postorder

FLOATS = ("float32", "float64", "float16", "bfloat16")
DTYPES = ("float32", "int64", "float64", "bool", "int32", "float16", "uint8", "int8", "int16", "bfloat16")
INTEGERS = ("int64", "int32", "uint8", "int8", "int16")
MIXED = (("int64", "uint8"), ("float32", "float64"), ("float32", "int64"), ("int64", "bool"), ("float32", "bool"))
"""Dtypes that joined tensors may have. Of the second one may be leaves of calls of which none computes with it."""
OWN = ("bool", "int64", "float64", "float32")
"""The dtypes of which a leaf of which none is demanded may be on its own, whatever the others are."""
NUMBERS = (0.5, 1, 2, -1.5, 0, 3.0, -2)
WHOLE_NUMBERS = (2, 1, 0, 3)
JOINING = frozenset(
    ("concatenate", "stack", "where", *(n for n, s in TABLE.items() if Trait.BROADCASTING in s.traits))
)
"""The operators whose operands need not have one dtype."""
MOST_RANK = 6
"""No tensor that a rule leaves open has a higher rank."""
MOST_SIZES = 100
"""The largest number of sizes that are tried for the axes of a leaf, until the conditions allow them."""
RETRIES = 12
"""The largest number of calls of an instance that are decided anew, with any shape, where they can't have the one that
is wanted of them."""
_State = tuple[list[tuple[NodeDraft, dict[str, Any]]], dict[tuple[Any, str], int], int, "NodeDraft | None", int]
ShapeRule = Callable[["Solver", NodeDraft, Goal], None]


def free_leaves(plan: Plan) -> list[Leaf]:
    """The leaves of which no dtype is demanded where they stand."""
    leaves = (p for p in plan.patterns if isinstance(p, Leaf) and not isinstance(p, Const))
    return [leaf for leaf in leaves if leaf.guard is None or leaf.guard.dtype is None]


def others(dtype: str) -> Sequence[str]:
    """The dtypes that a leaf may have on its own where the others have this one."""
    return [other for other in OWN if other != dtype]


class Solver:
    """Decides the open properties of a skeleton."""

    def __init__(
        self, skeleton: Skeleton, demands: Demands, choices: Choices, rule_of: Any, dtypes: Sequence[str]
    ) -> None:
        self.skeleton = skeleton
        self.demands = demands
        self.choices = choices
        self.rule_of = rule_of
        allowed = demands.members("dtype")
        self.dtypes = [dtype for dtype in dtypes if allowed is None or dtype in allowed]
        self.dtype = pick(choices, self.dtypes)
        """The dtype of leaves, if nothing else is wanted."""
        choices.hint(demands.sizes)
        self.mixed = self._mixed()
        """Two dtypes of which tensors that are joined are in turn, for some instances."""
        self.joins = 0
        self.alone = self._alone()
        """The leaf that is to have a dtype of its own, for some instances."""
        self.odd: NodeDraft | None = None
        """The draft of that leaf, when it is decided."""
        self.retries = choices.index(2, "retries") * RETRIES
        """The number of calls that may still be decided anew, for some instances."""
        self.decided: dict[tuple[Any, str], list[Any]] = {}
        """The values that attributes of an operator have had in this instance."""

    def _mixed(self) -> Sequence[str]:
        ops = frozenset(draft.op for draft in self.skeleton.drafts)
        allowed = self.demands.members("dtype")
        options = [(a, b) for a, b in MIXED if a in self.dtypes and (allowed is None or b in allowed)]
        if ops.isdisjoint(JOINING) or not options:
            return ()
        if not self.choices.index(2, ("mixed", ops)):
            return ()
        first, second = pick(self.choices, options, ("dtypes", ops))
        return (second, first) if self.choices.index(2) else (first, second)

    def _alone(self) -> Pattern | None:
        leaves = free_leaves(self.skeleton.plan)
        near = {pattern for draft in self.demands.parted for each in (draft, *draft.operands) if each is not None
                for pattern, _ in each.patterns}  # fmt: skip
        near_leaves = [leaf for leaf in leaves if leaf in near]
        if near_leaves:
            return pick(self.choices, near_leaves, ("leaf", *near_leaves))
        wanted = self.demands.parted or (leaves and self.choices.index(4) == 3)
        return pick(self.choices, leaves, "leaf") if leaves and wanted else None

    def joined(self, draft: NodeDraft, wanted: str | None) -> str | None:
        """The dtype that is wanted of a draft, one of several tensors that are joined."""
        if not self.mixed:
            return wanted
        self.joins += 1
        found = self.mixed[self.joins % 2]
        return found if draft.is_leaf or found in self.dtypes else None

    def run(self) -> None:
        """Decide everything. Dead where the decisions contradict."""
        for output in self.skeleton.outputs:
            self.solve(output, ANY)
        for draft in self.skeleton.drafts:
            self.solve(draft, ANY)

    # Nodes

    def solve(self, draft: NodeDraft | None, goal: Goal = ANY) -> Any:
        """Decide a draft, with a type as it is wanted if that can be; its type."""
        assert draft is not None
        if draft.solved:
            return draft.type
        if draft.solving:
            raise Dead(f"{draft!r} depends on itself")
        before = self._state(draft) if self.retries and goal.rank is not None and not draft.is_leaf else None
        try:
            self._decide(draft, goal)
        except Dead:
            if before is None or not self.retries:
                raise
            self.retries -= 1
            self._restore(before)
            self._decide(draft, Goal(None, goal.dtype))
        return draft.type

    def _decide(self, draft: NodeDraft, goal: Goal) -> None:
        """Decide a draft, with a type as it is wanted."""
        draft.solving = True
        goal = self.wanted(draft, goal)
        if draft.op == TUPLE:
            self._tuple(draft)
        elif draft.op == GETITEM:
            self._getitem(draft, goal)
        elif draft.is_leaf:
            self._leaf(draft, goal)
        else:
            self._call(draft, goal)
        draft.solved, draft.solving = True, False
        if not self.demands.holds(draft):
            raise Dead(f"a condition on {draft!r} does not hold")

    def _state(self, draft: NodeDraft) -> _State:
        """What is known of a draft and of those below it, and of all."""
        below = postorder([draft], lambda each: [o for o in each.operands if o is not None and not o.solved])
        decided = {key: len(values) for key, values in self.decided.items()}
        return [(each, each.state()) for each in below], decided, self.joins, self.odd, len(self.skeleton.drafts)

    def _restore(self, state: _State) -> None:
        drafts, decided, self.joins, self.odd, count = state
        for draft, values in drafts:
            draft.restore(values)
        for key, found in self.decided.items():
            del found[decided.get(key, 0) :]
        del self.skeleton.drafts[count:]

    def wanted(self, draft: NodeDraft, goal: Goal = ANY) -> Goal:
        """The goal of a draft, together with the conditions of the rule on its type."""
        dtype: Any = None
        for _, value in self.demands.given(draft, "dtype"):
            dtype = meet(dtype, value)
        if dtype is None:
            options = self.demands.options(draft, "dtype")
            if options and goal.dtype not in options:
                dtype = self.dtype if self.dtype in options else pick(self.choices, options)
        goal = goal.with_dtype(dtype if dtype is not None else goal.dtype)
        ndim: Any = goal.rank
        parts: list[tuple[Any, Any]] = []
        for part, value in self._given_sizes(draft):
            if part is None:
                goal = goal.and_shape(value)
                ndim = len(value)
            else:
                parts.append((part, value))
        for _, value in self.demands.given(draft, "ndim"):
            ndim = meet(ndim, value)
        if goal.shape is None and ndim is None:
            shapes = self.demands.options(draft, "shape")
            if shapes:
                return goal.and_shape(pick(self.choices, shapes))
        if ndim is not None and goal.rank is None:
            goal = Goal(None, goal.dtype, ndim)
        return self._parts(draft, goal, parts)

    def _given_sizes(self, draft: NodeDraft) -> Iterator[tuple[Any, Any]]:
        """The given sizes of a draft, of a reshape by its attribute, too, as pairs of a part and a value."""
        yield from self.demands.given(draft, "shape")
        if draft.op == "reshape":
            for part, value in self.demands.given(draft, "newshape"):
                sizes = value if isinstance(value, tuple) else (value,)
                if all(isinstance(size, int) and size > 0 for size in sizes):
                    yield part, value

    def _parts(self, draft: NodeDraft, goal: Goal, parts: Sequence[tuple[Any, Any]]) -> Goal:
        """The goal of a draft, with the known single sizes and slices of the shape."""
        if not parts:
            return goal
        rank = goal.rank
        if rank is None:
            least = max(_reach(part) for part, _ in parts)
            fitting = (rank for rank in range(least, 2 * MOST_RANK) if all(_fits(rank, *each) for each in parts))
            rank = pick(self.choices, list(islice((rank for rank in fitting if self.allows(draft, rank)), 3)))
        shape = goal.sizes(rank)
        for part, value in parts:
            if part is len:
                continue
            try:
                places = range(rank)[part]
            except IndexError:
                raise Dead(f"there is no axis {part} of {rank}") from None
            if isinstance(places, int):
                shape[places] = meet(shape[places], value)
            elif len(places) != len(value):
                raise Dead("a part of the shape has another rank")
            else:
                for place, size in zip(places, value):
                    shape[place] = meet(shape[place], size)
        return Goal(tuple(shape), goal.dtype)

    def is_bound(self, draft: NodeDraft | None) -> bool:
        """True if the shape of a draft is decided, or will follow from a condition of the rule."""
        assert draft is not None
        bound = any(self.demands.binds(draft, name) for name in ("shape", "ndim"))
        return draft.solved or bound or self.demands.limits(draft, "shape")

    def allows(self, draft: NodeDraft | None, ndim: int) -> bool:
        """True if the conditions of the rule allow a rank of a draft, as far as they are decided."""
        assert draft is not None
        if draft.solved:
            return draft.tensor.ndim == ndim
        before, draft.wants_ndim = draft.wants_ndim, ndim
        try:
            return self.demands.holds(draft)
        finally:
            draft.wants_ndim = before

    def low_rank(self, draft: NodeDraft) -> int:
        """The least rank of a draft that the conditions on it, and on what it is computed of, allow."""

        def below(each: NodeDraft) -> list[NodeDraft]:
            keeps = each.op in RANK_KEEPING or self.given_attr(each, "keepdims") == (True, True)
            return [o for o in each.operands if o is not None] if keeps and not each.solved else []

        found: dict[NodeDraft, int] = {}
        for each in postorder([draft], below):
            low = max([found[operand] for operand in below(each)], default=0)
            is_given, axes = self.given_attr(each, "axes") if each.op == "transpose" else (False, None)
            low = len(axes) if is_given and isinstance(axes, tuple) else low
            parts = self.demands.sources.get((each, "shape"), ())
            low = max([low, *(_reach(part) for _, part, _, _ in parts)])
            found[each] = next((rank for rank in range(low, MOST_RANK) if self.allows(each, rank)), low)
        return found[draft]

    def _leaf(self, draft: NodeDraft, goal: Goal) -> None:
        literal = self.skeleton.leaf_pattern(draft)
        if draft.kinds == {CONST} and (literal is not None or (goal.rank in (None, 0) and self.may_be_number(draft))):
            self._number(draft, literal, goal)
            return
        dtype = self._own_dtype(draft) or goal.dtype
        dtype = dtype or (pick(self.choices, self.dtypes) if self.choices.rare() else self.dtype)
        rank = goal.rank if goal.rank is not None else self.rank(of=draft)
        draft.sizes = goal.sizes(rank)
        draft.wants_dtype = self._allowed_dtype(draft, dtype) if goal.dtype is None else dtype
        dtype = draft.wants_dtype
        draft.type = TensorType(self._sizes(draft, draft.sizes), dtype)
        options = [kind for kind in (INPUT, PARAM, CONST) if kind in draft.kinds]
        draft.op = pick(self.choices, options[:2] if len(options) == 3 else options)
        if not draft.solved and self._may_coincide(draft) and self.choices.rare():
            self._coincide(draft)

    def _allowed_dtype(self, draft: NodeDraft, wish: str) -> str:
        """The dtype that is wished for, or else one that the conditions allow."""
        for dtype in dict.fromkeys((wish, *OWN, *self.dtypes)):
            draft.wants_dtype = dtype
            if self.demands.holds(draft):
                return dtype
        return wish

    def _own_dtype(self, draft: NodeDraft) -> str | None:
        """The dtype that a leaf has on its own, if it is to have one, and nothing is demanded of it."""
        if self.alone is None or self.odd is not None or all(p is not self.alone for p, _ in draft.patterns):
            return None
        if self.demands.binds(draft, "dtype") or self.demands.options(draft, "dtype"):
            return None
        self.odd = draft
        return pick(self.choices, others(self.dtype), ("dtype", self.alone, self.dtype))

    def _sizes(self, draft: NodeDraft, sizes: list[int | None]) -> tuple[int, ...]:
        """Decide the sizes of a leaf, one after the other, so that one may follow from another."""
        bound = {axis % len(sizes) for axis in self.demands.axes(draft)} if sizes else set()
        wishes = [self.choices.size() if size is None else size for size in sizes]
        tried = iter(range(MOST_SIZES))

        def decide(axes: Sequence[int]) -> bool:
            """True if the conditions allow some sizes of these axes."""
            if not axes:
                return True
            axis, before = axes[0], list(sizes)
            for part, value in self.demands.given(draft, "shape") if bound else ():
                if isinstance(part, int) and -len(sizes) <= part < len(sizes):
                    if sizes[part] not in (None, value):
                        sizes[:] = before
                        return False
                    sizes[part] = value
            options = (sizes[axis],) if sizes[axis] is not None else self._free_sizes(wishes[axis])
            for size in options:
                sizes[axis] = size
                if self.demands.holds(draft) and decide(axes[1:]):
                    return True
                if next(tried, None) is None:
                    break
            sizes[:] = before
            return False

        axes = sorted(range(len(sizes)), key=lambda axis: axis in bound)
        if not decide(axes):
            sizes[:] = [wish if size is None else size for wish, size in zip(wishes, sizes)]
        return tuple([size for size in sizes if size is not None])

    def _free_sizes(self, wish: int) -> Sequence[int]:
        """The sizes to try for an axis: those that the conditions name come after the usual ones."""
        usual = [(wish - 1 + more) % SIZES + 1 for more in range(SIZES)]
        return list(dict.fromkeys((wish, *usual, *self.demands.sizes)))

    def may_be_number(self, draft: NodeDraft) -> bool:
        """True if a leaf is to be a Python number: a literal of which no shape or dtype is demanded, mostly."""
        if draft.kinds != {CONST} or any(True for _ in self.demands.given(draft, "dtype")):
            return False
        return (draft, "shape") not in self.demands.sources and not self.choices.rare()

    def _number(self, draft: NodeDraft, literal: Any, goal: Goal) -> None:
        """A literal: the given one, or some number."""
        draft.op = CONST
        value: Any = None
        for _, found in self.demands.given(draft, "value"):
            value = found
        if value is None and literal is not None and hasattr(literal.literal, "__array__"):
            value = literal.literal
        if value is None:
            whole = goal.dtype is not None and "float" not in goal.dtype
            value = goal.dtype != "bool" and self._free_number(draft, WHOLE_NUMBERS if whole else NUMBERS)
        draft.attrs["value"] = value
        if hasattr(value, "shape"):
            draft.type = TensorType.of(value)
        else:
            kind = "bool" if isinstance(value, bool) else "int64" if isinstance(value, int) else "float32"
            draft.type = TensorType((), kind)

    def _free_number(self, draft: NodeDraft, options: Sequence[Any]) -> Any:
        """A number that the conditions allow, if there is one: those that they name come after the usual ones."""
        found = self.demands.options(draft, "value") or options
        start = self.choices.index(len(found)) if len(found) > 1 else 0
        domains = [plan[p] for p, _ in draft.patterns if p in (plan := self.skeleton.plan.domains)]
        near = [n + more for n in self.demands.numbers(draft, "value") for more in (0, 1, -1)]
        ends = [end for domain in domains for end in (domain.low, domain.high, domain.low + 1) if isfinite(end)]
        for value in (*found[start:], *found[:start], *near, *[-value for value in near], *ends):
            draft.attrs["value"] = value
            if self.demands.holds(draft) and all(domain.has(value) for domain in domains):
                return value
        return found[start]

    def _may_coincide(self, draft: NodeDraft) -> bool:
        free = all(isinstance(p, Leaf) and not p.distinct for p, _ in draft.patterns)
        return free and not self.skeleton.plan.distinct

    def _coincide(self, draft: NodeDraft) -> None:
        """Let a leaf be the same node as an earlier one of its type."""
        for other in self.skeleton.drafts:
            alike = other.solved and other.op == draft.op and other.type == draft.type and other.op != CONST
            if alike and other.same_as is None and self._may_coincide(other) and not self._equated(draft, other):
                draft.same_as = other
                return

    def _equated(self, *leaves: NodeDraft) -> bool:
        """True if a call asks whether two leaves are equal: of one tensor, that would ask whether it is a number."""
        return any(each.op in EQUALITIES and set(each.operands) == set(leaves) for each in self.skeleton.drafts)

    def _tuple(self, draft: NodeDraft) -> None:
        """Fields of any types; often a leaf has that of the field before it."""
        before = ANY
        for operand in draft.operands:
            assert operand is not None
            may_be_alike = before != ANY and operand.is_leaf and not operand.solved and not self.is_bound(operand)
            kind = self.solve(operand, before if may_be_alike and self.choices.again() else ANY)
            before = Goal(operand.dims, kind.dtype) if isinstance(kind, TensorType) else ANY
        draft.type = TupleType(tuple([operand.type for operand in draft.operands if operand is not None]))

    def _getitem(self, draft: NodeDraft, goal: Goal) -> None:
        whole = draft.operand(0)
        if whole.is_leaf and not whole.solved:
            self.skeleton.open_tuple(whole)
        index = next((value for _, value in self.demands.given(draft, "index")), None)
        if index is not None and goal != ANY and not whole.solved:
            whole.field_goals[index] = goal
        if whole.op == TUPLE and index is not None and -len(whole.operands) <= index < len(whole.operands):
            self.solve(whole.operand(index), goal)
        fields = self.solve(whole).fields if whole.op != TUPLE or self.solve(whole) else ()
        if index is None:
            index = self.choices.index(len(fields)) if fields else None
        if index is None or not -len(fields) <= index < len(fields):
            raise Dead(f"there is no field {index} of {len(fields)}")
        draft.attrs["index"] = index % len(fields)
        draft.type = fields[index]

    def _call(self, draft: NodeDraft, goal: Goal) -> None:
        spec = TABLE[str(draft.op)]
        rule = self.rule_of(draft.op)
        if rule is None:
            raise Dead(f"there is no shape rule of {draft.op}")
        rule(self, draft, goal)
        for operand in draft.operands:
            self.solve(operand)
        types = tuple([operand.type for operand in draft.operands if operand is not None])
        try:
            full = spec.complete({**self.given_attrs(draft), **spec.own(draft.attrs)}, types)
            draft.attrs.update(full)
            draft.type = type_of_call(spec.name, tuple([known_of(operand) for operand in draft.operands]), full)
        except (ValueError, KeyError) as error:
            raise Dead(f"{draft.op}: {error}") from None
        for name, value in full.items():
            self.decided.setdefault((draft.op, name), []).append(value)

    # Attributes

    def given_attr(self, draft: NodeDraft, name: str) -> tuple[bool, Any]:
        """A pair: true if an attribute follows from the conditions of the rule, and its value."""
        for part, value in self.demands.given(draft, name):
            if part is None:
                return True, value
        return False, None

    def given_attrs(self, draft: NodeDraft) -> dict[str, Any]:
        """The attributes of a call that follow from the conditions of the rule and are not decided yet."""
        found = {}
        for name in TABLE[str(draft.op)].own_attrs:
            if name not in draft.attrs:
                is_given, value = self.given_attr(draft, name)
                if is_given:
                    found[name] = value
        return found

    def attr(
        self,
        draft: NodeDraft,
        name: str,
        options: Iterable[Any] | None = None,
        fits: Callable[[Any], bool] = lambda value: True,
        normal: Callable[[Any], Any] | None = None,
    ) -> Any:
        """Decide an attribute: what follows, else one of the options (the simplest first) that fits and is allowed.

        Without options, they are those of the operator's declaration.
        """
        is_given, value = self.given_attr(draft, name)
        if is_given:
            value = self._normal(draft, name, value) if normal is None else normal(value)
            if not fits(value):
                raise Dead(f"{name}={value!r} of {draft!r} does not fit")
            draft.attrs[name] = value
            return value
        found = self.demands.options(draft, name)
        if options is None:
            declared = TABLE[str(draft.op)].attrs[name]
            options = declared.candidates or (declared.default,)
        candidates = list(options) if found is None else self._valid(draft, name, found)
        before = [value for value in self.decided.get((draft.op, name), ()) if value in candidates or found is None]
        start = 0
        if before and self.choices.again():
            candidates = [before[-1], *candidates]
        elif candidates:
            if before:  # the last one only if no other fits
                candidates.sort(key=lambda value: value == before[-1])
            start = self.choices.index(len(candidates) - (len(before) > 0)) if len(candidates) > 1 else 0
        for value in chain(_from(candidates, start), self._named(draft, name, candidates)):
            draft.attrs[name] = value
            if fits(value) and self.demands.allows(draft, name):
                return value
        draft.attrs.pop(name, None)
        raise Dead(f"no value of {name} of {draft!r} fits")

    def _named(self, draft: NodeDraft, name: str, options: Sequence[Any]) -> Iterator[Any]:
        """The numbers that the conditions on an attribute name, alone or as often as an option has items."""
        for number in (n for n in self.demands.numbers(draft, name) if n > 0):
            if any(type(option) is int for option in options):
                yield number
            count = next((len(option) for option in options if isinstance(option, tuple)), None)
            if count is not None:
                yield (number,) * count

    def _normal(self, draft: NodeDraft, name: str, value: Any) -> Any:
        types = tuple([operand.type if operand is not None else None for operand in draft.operands])
        try:
            return TABLE[str(draft.op)].normalise(name, value, types)
        except ValueError as error:
            raise Dead(str(error)) from None

    def _valid(self, draft: NodeDraft, name: str, values: Iterable[Any]) -> list[Any]:
        """The values among these that an attribute can have."""
        valid = []
        for value in values:
            try:
                valid.append(TABLE[str(draft.op)].normalise(name, value, ()))
            except ValueError:
                continue
        return valid

    def axis(self, draft: NodeDraft, rank: int, name: str = "axis", preferred: int | None = None) -> int:
        """Decide an axis of a tensor of that rank."""
        def normal(value: Any) -> Any:
            if not isinstance(value, int) or not -rank <= value < rank:
                raise Dead(f"{name}={value!r} of a tensor of rank {rank}")
            return value % rank

        options = list(range(rank))
        if preferred is not None and preferred < rank:
            options.insert(0, options.pop(preferred))
        return int(self.attr(draft, name, options, lambda value: 0 <= value < rank, normal))

    def least_rank(self, draft: NodeDraft, name: str = "axis") -> int:
        """The least rank of which an axis that is given is one."""
        is_given, value = self.given_attr(draft, name)
        if not is_given or not isinstance(value, int):
            return 1
        return value + 1 if value >= 0 else -value

    def rank(
        self, goal: Goal = ANY, low: int = 0, high: int = 6, options: Sequence[int] = (2, 1, 3, 4, 5, 0),
        of: NodeDraft | None = None,
    ) -> int:  # fmt: skip
        """A rank, as it is wanted or free; ``of`` is a draft that is to have it."""
        if goal.rank is not None:
            if not low <= goal.rank <= high:
                raise Dead(f"rank {goal.rank} is not from {low} to {high}")
            return goal.rank
        found = [rank for rank in options if low <= rank <= high]
        if of is not None:
            found = [rank for rank in found if self.allows(of, rank)]
        return pick(self.choices, found, ("rank", *found))

    def size(self, *wanted: int | None) -> int:
        """A dimension, as it is wanted or free."""
        found: int | None = None
        for size in wanted:
            found = meet(found, size)
        return self.choices.size() if found is None else found

    def before(self, draft: NodeDraft, name: str) -> Any:
        """The last value of an attribute of an operator, or of a size of its operands; ``None`` if there is none."""
        found = self.decided.get((draft.op, name))
        return found[-1] if found else None

    def alike(self, draft: NodeDraft, name: str, wanted: int | None = None) -> int:
        """A dimension as it is wanted, or like that of another call of the operator, or free."""
        size = wanted
        if size is None:
            size = self.before(draft, name)
            if size is None or not self.choices.again():
                size = self.choices.size()
        self.decided.setdefault((draft.op, name), []).append(size)
        return size

    def shape(self, draft: NodeDraft | None) -> tuple[int, ...] | None:
        """The shape of an operand, if that is decided."""
        assert draft is not None
        return draft.dims if draft.solved else None


def _from(options: Sequence[Any], start: int) -> Sequence[Any]:
    """The options from one of them on. The others are shuffled, so that of those that fit none is preferred."""
    if not start:
        return options
    others = sorted([place for place in range(len(options)) if place != start], key=lambda place: hash((start, place)))
    return [options[place] for place in (start, *others)]


def _reach(part: Any) -> int:
    """The least rank of a shape that has an axis, or both ends of a slice."""
    if isinstance(part, int):
        return part + 1 if part >= 0 else -part
    return max(abs(part.start or 0), abs(part.stop or 0)) if isinstance(part, slice) else 0


def _fits(rank: int, part: Any, value: Any) -> bool:
    """True if a value is as long as a part of a shape of that rank."""
    return bool(rank == value) if part is len else isinstance(part, int) or len(range(rank)[part]) == len(value)

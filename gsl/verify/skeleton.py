"""The structure of an instance: its nodes and their users, before types and attributes are known.

A skeleton follows the source of a rule. It decides what is discrete: which alternative, how many fields, which
operator.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import lru_cache
from typing import Any

from gsl import pat
from gsl.attr.evaluate import Evaluator
from gsl.errors import EvaluationError
from gsl.graph import GETITEM, INPUT, PARAM, TUPLE, Op
from gsl.match import Plan
from gsl.match.bindings import AttrPath, Bindings, MatchScope
from gsl.pat import Pattern
from gsl.pat.use import IsOutput, tail
from gsl.spec import LISTS, TABLE, OpSpec, Trait
from gsl.verify.choices import Choices, Dead, pick
from gsl.verify.draft import NodeDraft

LENGTHS = 4
"""A variadic has up to so many instances more than it must."""
CHAIN = 3
"""A chain has up to so many nodes more than it must."""
OUTSIDE = ("nn.relu", "negative", "sigmoid", "add")
"""The operators that stand where a pattern does not tell the operator: a user that is not a certain one, any
operator."""
FIELDS = (2, 3, 1)
"""The numbers of fields of a tuple that the pattern leaves open."""


class Skeleton:
    """The drafts of an instance, by pattern as a match would bind them."""

    def __init__(self, plan: Plan, choices: Choices) -> None:
        self.plan = plan
        self.choices = choices
        self.drafts: list[NodeDraft] = []
        self.bindings = Bindings[NodeDraft](plan.scopes)
        self.constraints: list[tuple[pat.Constraint, AttrPath]] = [(c, ()) for c in plan.given]
        self.operators: dict[pat.OpClass, Op] = {}
        self.open: list[NodeDraft] = []
        """The calls whose operands the pattern does not name: ``None`` stands where none is decided."""
        self.outputs: list[NodeDraft] = []
        for pattern in plan.outputs:
            if pattern is plan.variadic:
                self.outputs += self._instances(plan.variadic, ())
            else:
                self.outputs.append(self.draft(pattern, ()))
        for pattern in plan.required:
            self.draft(pattern, ())
        self._relate()
        self._fill()
        self._use_outside()

    # What a pattern is

    def draft(self, pattern: Pattern, path: AttrPath, into: NodeDraft | None = None) -> NodeDraft:
        """The draft of a pattern; ``into`` is one that is the same node."""
        key = self.bindings.key(pattern, path)
        known = self.bindings.nodes.get(key)
        if known is not None:
            if into is not None and into is not known:
                raise Dead(f"{pattern!r} would be two nodes")
            return known
        draft = self._shaped(pattern, path, into)
        draft.patterns.append((pattern, path))
        self.bindings.nodes[key] = draft
        return draft

    def _shaped(self, pattern: Pattern, path: AttrPath, into: NodeDraft | None) -> NodeDraft:
        match pattern:
            case pat.Alt():
                chosen = self.choices.index(len(pattern.choices), ("alternative", pattern))
                self.bindings.chosen[self.bindings.key(pattern, path)] = chosen
                return self.draft(pattern.choices[chosen], path, into)
            case pat.And():
                return self.draft(pattern.both[1], path, self.draft(pattern.both[0], path, into))
            case pat.Seq():
                self.constraints += [(constraint, path) for constraint in pattern.constraints]
                found = self.draft(pattern.tail, path, into)
                for part in pattern.spine:
                    self.draft(part, path)
                return found
            case pat.Repeat():
                return self._chain(pattern, path, into)
        draft = self._new() if into is None else into
        match pattern:
            case pat.Leaf():
                self._leaf(pattern, draft)
            case pat.Call():
                self._call(pattern, path, draft)
            case pat.Tuple():
                self._become(draft, TUPLE)
                draft.operands = [part for item in pattern.items for part in self._fields(item, path)]
            case pat.Variadic():
                self._become(draft, TUPLE)
                draft.operands = [*self._instances(pattern, path)]
            case pat.GetItem():
                self._become(draft, GETITEM)
                draft.operands = [self.draft(pattern.tuple, path)]
            case pat.Not() if self.choices.rare():
                self._anything(draft)
        return draft

    def _new(self) -> NodeDraft:
        draft = NodeDraft(len(self.drafts))
        self.drafts.append(draft)
        return draft

    def open_tuple(self, draft: NodeDraft) -> None:
        """Let a leaf be the tuple of some tensors."""
        draft.op = TUPLE
        draft.operands = [self._new() for _ in range(pick(self.choices, FIELDS))]

    def _become(self, draft: NodeDraft, op: Op) -> None:
        if draft.op is not None and draft.op != op:
            raise Dead(f"one node would be {draft.op} and {op}")
        draft.op = op

    def _leaf(self, pattern: pat.Leaf, draft: NodeDraft) -> None:
        if pattern.kinds is None:
            return
        if not draft.is_leaf or not draft.kinds & pattern.kinds:
            raise Dead(f"{pattern!r} would be {draft.op}")
        draft.kinds &= pattern.kinds

    def _call(self, pattern: pat.Call, path: AttrPath, draft: NodeDraft) -> None:
        if draft.op is not None and draft.operands:
            self._merge(pattern, path, draft)
            return
        op = self._operator(pattern)
        self._become(draft, op)
        if pattern.operands is not None:
            draft.operands = [self.draft(operand, path) for operand in pattern.operands]
            return
        spec = TABLE[str(op)]
        most, least = len(spec.operands), len(spec.operands) - spec.optional
        draft.operands = [None] * (most if most == least else most - self.choices.index(most - least + 1))
        self.open.append(draft)

    def _merge(self, pattern: pat.Call, path: AttrPath, draft: NodeDraft) -> None:
        """A second pattern of the same call."""
        op = pattern.op
        other = isinstance(op, OpSpec) and op.name != draft.op
        if other or (isinstance(op, pat.OpClass) and not op.accepts(draft.op)):
            raise Dead(f"one node would be {draft.op} and {pattern.label}")
        for place, operand in enumerate(pattern.operands or ()):
            if place >= len(draft.operands):
                raise Dead(f"{draft.op} has {len(draft.operands)} operands")
            draft.operands[place] = self.draft(operand, path, draft.operands[place])

    def _operator(self, pattern: pat.Call) -> Op:
        op = pattern.op
        if isinstance(op, OpSpec):
            return op.name
        if not isinstance(op, pat.OpClass):
            raise Dead(f"{pattern.label} is native to a framework, so there are no instances of it")
        if op in self.operators:
            return self.operators[op]
        count = None if pattern.operands is None else len(pattern.operands)
        named = tuple(pattern.attrs)
        found = pick(self.choices, op.declared(count, named), ("operator", op, count, named))
        if op.joint:
            self.operators[op] = found
        return found

    def _fields(self, item: Pattern, path: AttrPath) -> Iterable[NodeDraft]:
        """The fields of a tuple for which a pattern stands."""
        return self._instances(item, path) if isinstance(item, pat.Segment) else [self.draft(item, path)]

    def _instances(self, pattern: pat.Variadic, path: AttrPath) -> Iterator[NodeDraft]:
        count = self._given_length(pattern, path)
        if count is None:
            most = LENGTHS if pattern.max_len is None else min(LENGTHS, pattern.max_len - pattern.min_len + 1)
            count = pattern.min_len + self.choices.index(most, ("length", pattern))
        outer = path[: len(self.plan.scopes.get(pattern, ()))]
        self.bindings.counts[pattern, outer] = count
        for number in range(count):
            yield self.draft(pattern.first_field if number == 0 else pattern.field, (*path, number))

    def _given_length(self, pattern: pat.Variadic, path: AttrPath) -> int | None:
        """The length that the pattern demands, if that can be told."""
        if pattern.count is None:
            return None
        try:
            found = Evaluator(MatchScope(self.bindings, path)).value(pattern.count)
        except EvaluationError:
            return None
        return found if isinstance(found, int) and found >= 0 else None

    def _chain(self, pattern: pat.Repeat, path: AttrPath, into: NodeDraft | None) -> NodeDraft:
        longest = CHAIN if pattern.max is None else min(CHAIN, pattern.max - pattern.min + 1)
        count = pattern.min + self.choices.index(longest, ("length", pattern))
        outer = path[: len(self.plan.scopes.get(pattern, ()))]
        nodes = [self.draft(pattern.pattern, (*outer, i), into if i == 0 else None) for i in range(count)]
        firsts = [self._head(pattern.pattern, (*outer, i)) for i in range(count)]
        for user, operand in zip(firsts, nodes[1:]):  # as they are found: from the last node down
            self._use(operand, user, None)
        self.bindings.counts[pattern, outer] = count
        self.bindings.heads[pattern, outer] = firsts[-1]
        return nodes[0]

    def _anything(self, draft: NodeDraft) -> None:
        """A call of some operator, in the place of a leaf."""
        draft.op = pick(self.choices, OUTSIDE)
        draft.operands = [None] * len(TABLE[str(draft.op)].operands)
        self.open.append(draft)

    # Who uses whom

    def _head(self, pattern: Pattern, path: AttrPath) -> NodeDraft:
        found: Any = self.bindings.head(pattern, path)
        return found if found is not None else self.draft(pattern, path)

    def _relate(self) -> None:
        """Put the operands that use relations name among the operands of their users."""
        seen = 0
        while seen < len(self.constraints):  # drafting a side may bring more
            constraint, path = self.constraints[seen]
            seen += 1
            if isinstance(constraint, pat.Use):
                operand = self.draft(tail(constraint.operand), path)
                self.draft(constraint.user, path)
                self._use(operand, self._head(constraint.user, path), constraint.index)

    def _use(self, operand: NodeDraft, user: NodeDraft, index: int | None) -> None:
        if (operand in user.operands) if index is None else (user.operands[index : index + 1] == [operand]):
            return
        if user.op is None:
            self._anything(user)
        places = [i for i, found in enumerate(user.operands) if self._fits(found, operand)]
        if index is not None:
            places = [i for i in places if i == index]
        if user.op in LISTS and operand.op != TUPLE:
            places = []
        if not places or user.op not in TABLE:
            raise Dead(f"{user!r} has no place for {operand!r}")
        if Trait.BROADCASTING not in TABLE[str(user.op)].traits and not self.choices.rare():
            places = places[:1]  # the others are weights
        place = pick(self.choices, places)
        self._put(operand, user, place)
        others = [i for i in places if i != place and self._fits(user.operands[i], operand)]
        if index is None and others and self.choices.rare():  # as in y + y
            self._put(operand, user, pick(self.choices, others))

    def _put(self, operand: NodeDraft, user: NodeDraft, place: int) -> None:
        taken = user.operands[place]
        if taken is not None and taken is not operand:
            self._replace(taken, operand)
        user.operands[place] = operand

    def _fits(self, found: NodeDraft | None, operand: NodeDraft) -> bool:
        """True if a place is free: open, or that of a wildcard which may be the operand."""
        if found is None:
            return True
        return found.op is None and INPUT in found.kinds and PARAM in found.kinds and found is not operand

    def _replace(self, old: NodeDraft, new: NodeDraft) -> None:
        """Let a wildcard be another node."""
        for key, node in list(self.bindings.nodes.items()):
            if node is old:
                self.bindings.nodes[key] = new
        new.patterns += old.patterns
        self.drafts.remove(old)
        for draft in self.drafts:
            draft.operands = [new if operand is old else operand for operand in draft.operands]
        self.outputs = [new if output is old else output for output in self.outputs]

    def _fill(self) -> None:
        """Give new leaves to the calls whose operands are open."""
        for draft in self.open:
            for place, operand in enumerate(draft.operands):
                if operand is None:
                    draft.operands[place] = leaf = self._new()
                    leaf.kinds = frozenset((INPUT, PARAM))
                    if draft.op in LISTS:
                        self.open_tuple(leaf)

    def _use_outside(self) -> None:
        """Decide which inner nodes are used outside of the match, too."""
        wanted: dict[NodeDraft, bool] = {}
        for constraint, path in self.constraints:
            if isinstance(constraint, pat.ExternUse):
                wanted[self.draft(tail(constraint.pattern), path)] = constraint.used
            elif isinstance(constraint, IsOutput):
                wanted[self.draft(tail(constraint.pattern), path)] = True
        restricted = set(wanted)
        for constraint, path in self.constraints:
            for pattern in constraint.patterns():
                if constraint.only if isinstance(constraint, pat.Use) else not isinstance(constraint, pat.AttrEqual):
                    restricted.add(self.draft(tail(pattern), path))
        everywhere = self.plan.extern_use
        for draft in self.drafts:
            if draft.is_leaf or draft in self.outputs or draft.op == TUPLE:
                continue
            if draft in wanted or everywhere is not None:
                draft.extern = wanted.get(draft, bool(everywhere))
            elif draft not in restricted:
                draft.extern = self.choices.rare()

    def leaf_pattern(self, draft: NodeDraft) -> pat.Const | None:
        """The literal that a leaf is to be, if one of its patterns tells."""
        return next((p for p, _ in draft.patterns if isinstance(p, pat.Const) and p.literal is not None), None)


@lru_cache(maxsize=1024)
def describe(label: Any, option: int) -> str | None:
    """The option of a labelled decision in words; ``None`` if it is nothing that a user would ask for."""
    match label:
        case ("alternative", pattern):
            return f"the alternative {pattern.choices[option]!r} ({pattern.choices[option].location})"
        case ("length", pattern):
            least = pattern.min if isinstance(pattern, pat.Repeat) else pattern.min_len
            return f"{pattern!r} of length {least + option} ({pattern.location})"
        case ("operator", op, count, named):
            return f"{op.declared(count, named)[option]} as {op!r}"
    return None

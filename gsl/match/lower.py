"""A rule's source, lowered to goals."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from itertools import chain

from gsl import pat
from gsl.errors import PatternError
from gsl.match.bindings import N
from gsl.match.guard import Distinct, Everywhere, Guard, Scopes, UsedOutside, guard_of, guards_of
from gsl.match.machine import Goals
from gsl.match.many import RepeatMatcher, SegmentMatcher, VariadicMatcher
from gsl.match.matchers import (
    Absent,
    AltMatcher,
    AndMatcher,
    CallMatcher,
    ConstMatcher,
    GetItemMatcher,
    LeafMatcher,
    Matcher,
    NotMatcher,
    TupleMatcher,
    check_all,
)
from gsl.match.source import CheckedSource
from gsl.match.uses import Link, SeqMatcher, Skipping, Up, climb, skip_between
from gsl.pat import Pattern
from gsl.pat.variadic import counts
from gsl.walk import reached

KINDS: dict[type[Pattern], type[Matcher]] = {
    pat.Const: ConstMatcher, pat.Call: CallMatcher, pat.Tuple: TupleMatcher, pat.GetItem: GetItemMatcher,
    pat.Alt: AltMatcher, pat.And: AndMatcher, pat.Not: NotMatcher, pat.Variadic: VariadicMatcher, pat.Seq: SeqMatcher,
    pat.Repeat: RepeatMatcher, pat.Segment: SegmentMatcher,
}  # fmt: skip
"""The matcher of each kind of pattern; all other patterns are leaves."""

SearchRegion = tuple[object, ...]
"""The alternatives (``Alt`` with the choice), variadics and negations around a pattern: it is bound only there."""

Way = list[tuple[Pattern, tuple[Pattern, ...]]]
"""Patterns, operands first, each with those right below it."""


class Lowered:
    """The goals of a search from one anchor: down to operands, and up to users of bound nodes, until all is matched."""

    def __init__(self, plan: CheckedSource, anchor: Pattern) -> None:
        self.plan = plan
        self.anchor = anchor
        self.matchers: dict[Pattern, Matcher] = {}
        self.order: dict[Pattern, int] = {}
        """The patterns in the order in which they are bound."""
        self.regions: dict[Pattern, SearchRegion] = {}
        self.early: set[Pattern] = set()
        """The sure patterns that are reached through an alternative first, so that it varies when they are bound."""
        self.settled: set[Pattern] = set()
        """The patterns to which a step leads: they are bound after all steps in any case."""
        self.linked: set[pat.Use] = set()
        self.ups: list[Up | Link] = []
        self.final: list[Guard] = []
        self.group: VariadicMatcher | None = None
        """The instances of a variadic output."""
        if plan.variadic is not None:
            self._group(plan.variadic)
        else:
            self._visit(anchor, ())
            while any(pattern not in self.order or not self._is_always(pattern) for pattern in plan.required):
                self.ups.append(self._climb())
        self.ups += [Link(use, self.matchers) for use in plan.relations]
        absent = self._negations()
        over = _skipping(self.matchers) if plan.fuzzy else {}
        for matcher in self.matchers.values():
            matcher.link(self.matchers)
            skip_between(matcher, over)
        for pattern in self.order:
            for guard in guards_of(pattern):
                self._schedule(guard, absent)
        for negation in absent.values():
            self._schedule(negation, absent)
        for constraint in plan.given:
            self._constrain(guard_of(constraint), absent)
        for pattern in self.order:
            for constraint in pattern.constraints if isinstance(pattern, pat.Seq) else ():
                self._constrain(guard_of(constraint, pattern), absent)
        if plan.extern_use is not None:
            ends = plan.outputs if plan.variadic is None else (plan.variadic.field, plan.variadic.first_field)
            self.final.append(UsedOutside(None, plan.extern_use, ends))
            if self._is_apart:
                assert self.group is not None
                self.group.instance_guards.append(self.final[-1])
        self.final += [Guard(None, "where", node, None) for node in plan.where]
        for pattern in self.order:
            if isinstance(pattern, pat.Leaf) and (pattern.distinct or plan.distinct):
                around = self.negation(pattern)
                inside = self.final if around is None else absent[around].inside
                inside.append(Distinct(pattern, plan.identity, leaves=not pattern.distinct))
        for negated, negation in absent.items():
            # What is negated may be bound outside too, in an alternative, and then its guards wait for the end.
            parts = set(pat.walk(negated.pattern))
            negation.inside += [guard for guard in self.final if guard.owner in parts]
        mark_closed(self)

    def goals(self, node: N, rest: Goals) -> Goals:
        """The goals of a match whose anchor is the node, and then the rest."""
        checked = (check_all, self.final, (), rest)
        if self.group is not None:
            return self.group.goals(node, checked)
        return (self.matchers[self.anchor].match, node, (), (climb, tuple(self.ups), (), checked))

    # What is bound, and in which order.

    def _visit(self, root: Pattern, region: SearchRegion) -> None:
        """Make the matchers of a pattern and its parts, but not of negated patterns."""
        stack = [(root, region)]
        while stack:
            pattern, region = stack.pop()
            if pattern in self.order:
                continue
            self.order[pattern] = len(self.order)
            is_sure = pattern in self.plan.sure
            if is_sure and region:
                self.early.add(pattern)
            self.regions[pattern] = () if is_sure else region
            kind = KINDS.get(type(pattern), LeafMatcher)
            level = len(self.plan.scopes.get(pattern, ()))
            self.matchers[pattern] = kind(pattern, level, self.plan.identity.get(pattern, pattern))
            if not isinstance(pattern, pat.Not):
                for child in reversed(list(pattern.children())):
                    if isinstance(pattern, pat.Alt):
                        stack.append((child, (*region, (pattern, child))))
                    else:
                        scoped = isinstance(pattern, (pat.Variadic, pat.Repeat))
                        stack.append((child, (*region, pattern) if scoped else region))

    def _negations(self) -> dict[pat.Not, Absent]:
        """Visit the negated patterns, when all others are bound."""
        absent: dict[pat.Not, Absent] = {}
        while len(absent) < sum(isinstance(pattern, pat.Not) for pattern in self.order):
            for pattern in list(self.order):
                if isinstance(pattern, pat.Not) and pattern not in absent:
                    self._visit(pattern.pattern, (*self.regions[pattern], pattern))
                    absent[pattern] = Absent(pattern, self.matchers[pattern.pattern], self._outside(pattern))
        return absent

    def _outside(self, negation: pat.Not) -> frozenset[Pattern]:
        """The patterns that a negated pattern shares with the rest of the source, or refers to there."""
        inside = set(pat.walk(negation.pattern))
        outside = [p for p in self.plan.patterns if p not in inside and p is not negation]
        shared = {child for p in outside for child in p.children() if child in inside}
        shared |= inside.intersection(self.plan.required)
        if any(isinstance(p, pat.Leaf) and (p.distinct or self.plan.distinct) for p in inside):
            return frozenset((*outside, *shared))  # a leaf that must differ from all others
        read = {p for part in inside for guard in guards_of(part) for p in guard.references()}
        return frozenset(shared | (read - inside))

    # Steps up.

    def _climb(self) -> Up | Link:
        """A step from bound patterns to one that is made of them: to a user where possible, over few patterns.

        Where no operands lead on, a use relation does: rather down to an operand than up to a user. A step to an
        alternative of which a choice is not bound yet comes last.
        """
        plan = self.plan
        bound = {pattern for pattern in self.order if pattern not in plan.scopes}
        always = {pattern for pattern in bound if self._is_always(pattern)}
        unbound = [p for p in plan.sure if p not in self.order and not isinstance(p, (pat.Leaf, pat.Not))]
        users = [p for p in unbound if isinstance(p, (pat.Call, pat.Tuple, pat.GetItem))]
        again = [p for p in plan.required if p in bound and p not in always]
        for whole in (True, False):
            for below in (always, bound):
                direct = [p for p in users if any(child in below for child in p.children())]
                for goal in (*direct, *unbound, *again):
                    way = self._way(goal, below - {goal}, always)
                    if way and (not whole or _is_whole(way, below)):
                        return self._up(goal, way, wide=not _is_whole(way, below))
                for use in plan.ways:
                    if use.user in below and use.operand not in always and use not in self.linked:
                        return self._link(use, use.operand)
                for use in plan.ways:
                    if use.operand in below and use.user not in always and use not in self.linked:
                        return self._link(use, use.user)
        if again:
            return self._up(again[0], [(again[0], ())], wide=True)  # unless an alternative binds it
        missing = next(pattern for pattern in plan.required if pattern not in self.order)
        raise PatternError(
            f"{missing.location}: the source pattern {missing!r} is not connected with the others: patterns of one "
            "rule must share a node"
        )

    def _link(self, use: pat.Use, goal: Pattern) -> Link:
        self.linked.add(use)
        self.settled.add(goal)
        self._visit(goal, ())
        return Link(use, self.matchers)

    def _up(self, goal: Pattern, way: Way, *, wide: bool = False) -> Up:
        self.settled.add(goal)
        self._visit(goal, ())
        return Up([(self.matchers[pattern], below) for pattern, below in way], wide=wide)

    def _is_always(self, pattern: Pattern) -> bool:
        """True if a pattern is bound in any case when its turn comes."""
        return not self.regions[pattern] and (pattern not in self.early or pattern in self.settled)

    @staticmethod
    def _way(goal: Pattern, bound: Collection[Pattern], always: Collection[Pattern]) -> Way:
        """The patterns between some bound patterns and a goal that is made of them, operands first.

        Patterns that are not always bound are part of the way, for the case that they are not.
        """
        way: dict[Pattern, tuple[Pattern, ...]] = {}
        inside = set(reached([goal], _made_of))
        for pattern in pat.walk(goal):
            if pattern in inside and pattern not in always and not isinstance(pattern, pat.Not):
                below = tuple(child for child in _made_of(pattern) if child in bound or child in way)
                if below or pattern in bound:
                    way[pattern] = below
        return list(way.items()) if goal in way else []

    def _group(self, variadic: pat.Variadic) -> None:
        """The instances of a variadic output: the way from the patterns that they share to the field."""
        self.order[variadic] = 0
        self.regions[variadic] = ()
        self.group = self.matchers[variadic] = VariadicMatcher(variadic, 0, variadic)
        self._visit(variadic.first_field, (variadic,))
        self._visit(variadic.field, (variadic,))
        bound = {p for p in pat.walk(variadic.field) if p not in self.plan.scopes}
        way = self._way(variadic.field, bound, bound)
        if self._is_apart:
            self.group.members = None
            return
        if not way:
            raise PatternError(
                f"{variadic.location}: from the patterns that the instances share no way leads up to the field "
                "through operands"
            )
        self.group.members = self._up(variadic.field, way)

    @property
    def _is_apart(self) -> bool:
        """True for a group of instances that share nothing: what is outside of one is outside of all."""
        return self.plan.variadic is not None and not self.plan.variadic.shared

    # When the guards are checked.

    def _constrain(self, guard: Guard | None, absent: Mapping[pat.Not, Absent]) -> None:
        if isinstance(guard, UsedOutside):  # when it is known what is outside
            assert guard.owner is not None
            scopes = self.plan.scopes.get(guard.owner, ())
            if scopes and self._is_apart:
                self._schedule_instance(guard, scopes, [])
            else:
                self.final.append(Everywhere(guard, scopes) if scopes else guard)
        elif guard is not None:
            self._schedule(guard, absent)

    def _schedule(self, guard: Guard, absent: Mapping[pat.Not, Absent]) -> None:
        """Check a guard as soon as all that it needs is bound, in every case in which its owner is bound."""
        owner = guard.owner
        assert owner is not None
        region = self.regions[owner]
        needed = [owner, *guard.references()]
        negation = self.negation(owner)
        scopes = self.plan.scopes.get(owner, ())
        if negation is None and scopes:
            self._schedule_instance(guard, scopes, needed[1:])
            return
        if all(self._is_bound_within(pattern, region) for pattern in needed):
            last = max(needed, key=self.order.__getitem__)
            if self.regions[last] == region and not counts(guard.expected, last):
                self.matchers[last].guards.append(guard)
                return
        if negation is not None:
            around = len(self.plan.scopes.get(negation, ()))
            inside = Everywhere(guard, scopes, around=around) if len(scopes) > around else guard
            absent[negation].inside.append(inside)
        else:
            self.final.append(guard)

    def negation(self, pattern: Pattern) -> pat.Not | None:
        """The innermost negation around a pattern."""
        return next((part for part in reversed(self.regions[pattern]) if isinstance(part, pat.Not)), None)

    def _schedule_instance(self, guard: Guard, scopes: Scopes, needed: list[Pattern]) -> None:
        """Check the guard of a template when an instance is bound, or else for all instances in the end."""
        innermost = scopes[-1]
        group = self.matchers[innermost]
        assert isinstance(group, (VariadicMatcher, RepeatMatcher))
        around = (*self.regions[innermost], innermost)
        if all(
            self._is_bound_within(p, around, templates=True)
            and (innermost in self.regions[p] or self.order[p] < self.order[innermost])
            for p in needed
        ):
            group.instance_guards.append(guard)
        else:
            self.final.append(Everywhere(guard, scopes))

    def _is_bound_within(self, pattern: Pattern, region: SearchRegion, *, templates: bool = False) -> bool:
        """True if the pattern is bound in that region when its turn comes, and to one node."""
        if pattern not in self.order or pattern in self.early or isinstance(pattern, (pat.Variadic, pat.Instance)):
            return False
        if pattern in self.plan.scopes and not templates:
            return False
        own = self.regions[pattern]
        return own == region[: len(own)]


def _is_whole(way: Way, below: Collection[Pattern]) -> bool:
    """True if every choice of an alternative on the way is connected already."""
    there = {*below, *(pattern for pattern, _ in way)}
    return all(choice in there for p, _ in way if isinstance(p, pat.Alt) for choice in p.choices)


def _made_of(pattern: Pattern) -> tuple[Pattern, ...]:
    """The patterns from which a step leads up to one: its operands, or patterns of the same node."""
    if isinstance(pattern, (pat.Not, pat.Repeat)):
        return ()
    if isinstance(pattern, pat.Seq):
        return tuple(pattern.same_node())
    groups = (child.children() if isinstance(child, pat.Segment) else (child,) for child in pattern.children())
    return tuple(chain.from_iterable(groups))


def _skipping(matchers: Mapping[Pattern, Matcher]) -> dict[Pattern, Skipping]:
    """For each pattern of a node, a matcher that also looks beyond nodes that may be skipped."""
    return {p: Skipping(matcher) for p, matcher in matchers.items() if not isinstance(p, pat.Segment)}


_PLAIN = (pat.Alt, pat.And, pat.Call, pat.GetItem, pat.Leaf, pat.Tuple)
"""The patterns that are about operands alone."""


def mark_closed(start: Lowered) -> None:
    """Set ``closed`` of the alternatives of a start."""
    alternatives = [matcher for matcher in start.matchers.values() if isinstance(matcher, AltMatcher)]
    if not alternatives or start.plan.fuzzy:
        return
    above: dict[Pattern, list[Pattern]] = {}
    for pattern in start.plan.patterns:
        for child in pattern.children():
            above.setdefault(child, []).append(pattern)
    related = {pattern for use in start.plan.ways for pattern in use.patterns()}
    for matcher in alternatives:
        inside = set(pat.walk(matcher.pattern))
        beneath = inside - {matcher.pattern}
        matcher.closed = (
            all(map(_is_plain, inside))
            and inside.isdisjoint(start.plan.scopes)
            and beneath.isdisjoint(start.plan.required)
            and beneath.isdisjoint(related)
            and all(user in inside for pattern in beneath for user in above[pattern])
            and all(inside.issuperset(each.references()) for part in inside for each in start.matchers[part].guards)
        )


def _is_plain(pattern: Pattern) -> bool:
    """True if a node and its operands decide if the pattern matches."""
    if isinstance(pattern, pat.Call) and isinstance(pattern.op, pat.OpClass) and pattern.op.joint:
        return False
    return isinstance(pattern, _PLAIN)

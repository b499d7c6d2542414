"""Use relations: patterns written as operators and their users.

A relation is a value. ``a >> b`` is a sequence, which stands for its tail where it is an operand, and for its head
where it uses something; it carries the constraints of both sides. Nothing is recorded anywhere by writing one down.

What a pattern stands for where it *uses* something: a sequence for its head, a :class:`Repeat` for the first node of
its chain, an alternative for what the choice that is taken stands for, ``p & q`` for what the first part that is one of
these stands for; everything else, a call with operands too, for its own node. Where it *is used*, each stands for its
own node, which is the last one. A relation holds in every match that binds the value that carries it; handed to a
rule in ``where=`` or in a group, it makes both sides part of every match.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields
from typing import Any, NoReturn

from gsl.errors import PatternError, PatternTypeError, checked
from gsl.pat.base import Pattern, check_names, walk
from gsl.pat.call import Call, GetItem, Tuple, declared, to_pattern
from gsl.pat.choice import Alt, And, Not
from gsl.pat.leaf import Leaf, Wildcard
from gsl.pat.variadic import Repeat
from gsl.spec import OpSpec
from gsl.walk import reached

MOST_SHOWN = 8
"""Of a longer sequence only so many parts are written."""


@dataclass(frozen=True, eq=False)
class Constraint:
    """A condition on the nodes that patterns match, beyond the patterns themselves."""

    def patterns(self) -> tuple[Pattern, ...]:
        """The patterns that it is about."""
        return tuple(value for field in fields(self) if isinstance(value := getattr(self, field.name), Pattern))


@dataclass(frozen=True, eq=False)
class Use(Constraint):
    """``operand`` is an operand of ``user``: at ``index``, or anywhere; ``only``: and nothing else uses it.

    The index counts the operands as they are in the graph, also of a commutative operator.
    """

    operand: Pattern
    user: Pattern
    index: int | None = None
    only: bool = False

    def __repr__(self) -> str:
        return repr(Seq((self.operand, self.user), (self,)))


@dataclass(frozen=True, eq=False)
class AttrEqual(Constraint):
    """Two calls have equal attributes: all that do not follow from operands, or those named."""

    left: Pattern
    right: Pattern
    names: tuple[str, ...] | None = None

    def __repr__(self) -> str:
        return f"attr_eq({self.left!r}, {self.right!r})"


@dataclass(frozen=True, eq=False)
class Unique(Constraint):
    """The pattern's node has exactly one user; to be an output of the graph counts as a use."""

    pattern: Pattern

    def __repr__(self) -> str:
        return repr(Seq((self.pattern,), (), (self,)))


@dataclass(frozen=True, eq=False)
class ExternUse(Constraint):
    """The pattern's node is used outside the match, or is not; to be an output of the graph counts as a use.

    The match are the nodes of its operators, tuples and fields, and those that were skipped. Under a negation it is
    what the negated pattern matches.
    """

    pattern: Pattern
    used: bool

    def __repr__(self) -> str:
        return repr(Seq((self.pattern,), (), (self,)))


@dataclass(frozen=True, eq=False)
class IsOutput(Constraint):
    """The pattern's node is an output of the graph; it may be used by others too."""

    pattern: Pattern

    def __repr__(self) -> str:
        return repr(Seq((self.pattern,), (), (self,)))


@dataclass(frozen=True, eq=False)
class NonLeafExternUse(Constraint):
    """Every inner node of the rule is used outside the match, or none is."""

    used: bool


class Seq(Pattern):
    """Patterns of which each uses the one before, from a head to a tail, with the constraints of all of them."""

    __slots__ = ("constraints", "spine")
    spine: tuple[Pattern, ...]
    """The related patterns, head first; none of them is a sequence."""
    constraints: tuple[Constraint, ...]
    """The relation between each pattern of the spine and the next one, and then other constraints."""

    def __init__(self, spine: Sequence[Pattern], uses: Sequence[Use], others: Sequence[Constraint] = ()) -> None:
        super().__init__(spine=tuple(spine), constraints=(*uses, *dict.fromkeys(others)))
        if others:
            check_unique(self)

    @property
    def head(self) -> Pattern:
        """The pattern that stands for the sequence where it uses something."""
        return self.spine[0]

    @property
    def tail(self) -> Pattern:
        """The pattern that stands for the sequence where it is used."""
        return self.spine[-1]

    @property
    def uses(self) -> tuple[Use, ...]:
        """The relations, from the head to the tail."""
        return tuple(constraint for constraint in self.constraints if isinstance(constraint, Use))

    @property
    def label(self) -> str:
        return self.tail.label

    def parts(self) -> Iterator[Any]:
        uses = self.uses
        parts: list[Any] = [*self._piece(self.head)]
        for number, use in enumerate(uses, 1):
            if MOST_SHOWN // 2 < number < len(uses) - MOST_SHOWN // 2:
                if number == MOST_SHOWN // 2 + 1:
                    parts += [" >> " if use.only else " > ", "…"]
                continue
            user = self._piece(self.spine[number])
            if use.index is None:
                parts += [" >> " if use.only else " > ", *user]
            else:
                whole = parts if number == 1 else ["(", *parts, ")"]
                parts = [*whole, ".only_used_by(" if use.only else ".used_by(", *user, f", {use.index})"]
        yield from parts

    def _piece(self, pattern: Pattern) -> Iterator[Any]:
        """The text of one of the related patterns, with the demands on its uses."""
        is_free = isinstance(pattern, Call) and pattern.operands is None and not pattern.attrs and not pattern.guard
        yield pattern.label if is_free else pattern
        for constraint in self.constraints:
            if isinstance(constraint, Unique) and constraint.pattern is pattern:
                yield ".uniq()"
            elif isinstance(constraint, ExternUse) and constraint.pattern is pattern:
                yield f".extern_use({constraint.used})"
            elif isinstance(constraint, IsOutput) and constraint.pattern is pattern:
                yield ".is_output()"

    @property
    def operator(self) -> Any:
        return self.tail.operator

    def same_node(self) -> Iterator[Pattern]:
        yield self.tail

    def children(self) -> Iterator[Pattern]:
        return iter(self.spine[::-1])

    def readable(self) -> frozenset[str] | None:
        return self.tail.readable()

    def __bool__(self) -> NoReturn:
        raise PatternTypeError.here(
            f"a use relation ({self!r}) has no truth value, and Python reads a > b > c as (a > b) and (b > c): "
            "write (a > b) > c or a ^ b ^ c"
        )


class Group:
    """Several patterns with constraints between them: a source of several outputs, or conditions for ``where=``."""

    __slots__ = ("constraints", "members")

    def __init__(self, members: Sequence[Pattern], constraints: Sequence[Constraint]) -> None:
        self.members = tuple(members)
        self.constraints = tuple(dict.fromkeys(constraints))
        check_unique(*members, *self.constraints)

    def __repr__(self) -> str:
        return f"<group of {', '.join(map(repr, self.members))}>"

    def __getitem__(self, index: int) -> Pattern:
        return self.members[index]

    def __len__(self) -> int:
        return len(self.members)

    def __iter__(self) -> Iterator[Pattern]:
        return iter(self.members)


def head(pattern: Pattern) -> Pattern:
    """The pattern that stands for a pattern where it uses something, as far as that is known before a match."""
    return pattern.head if isinstance(pattern, Seq) else pattern


def tail(pattern: Pattern) -> Pattern:
    """The pattern that stands for a pattern where it is used."""
    return pattern.tail if isinstance(pattern, Seq) else pattern


def has_head(pattern: Pattern) -> bool:
    """True if a pattern may use something by another node than its own."""
    if isinstance(pattern, (Alt, And)):
        return any(has_head(part) for part in pattern.same_node())
    return isinstance(pattern, (Seq, Repeat))


def constraints_of(value: Pattern | Group | Constraint) -> tuple[Constraint, ...]:
    """The constraints that a value carries."""
    if isinstance(value, Constraint):
        return (value,)
    return value.constraints if isinstance(value, (Seq, Group)) else ()


def constrained(pattern: Pattern, kind: Any, *arguments: Any) -> Seq:
    """The pattern as a sequence with a further constraint on its tail."""
    spine, uses, others = _parts(pattern)
    return Seq(spine, uses, (*others, kind(tail(pattern), *arguments)))


def _parts(pattern: Pattern) -> tuple[tuple[Pattern, ...], tuple[Use, ...], tuple[Constraint, ...]]:
    if not isinstance(pattern, Seq):
        return (pattern,), (), ()
    uses = pattern.uses
    return pattern.spine, uses, pattern.constraints[len(uses) :]


def relate(operand: Any, user: Any, index: int | None = None, *, only: bool = False) -> Seq:
    """The sequence in which the tail of ``operand`` is used by the head of ``user``."""
    left, right = to_pattern(operand), to_pattern(user)
    use = _use(tail(left), head(right), index, only)
    (before, uses, others), (after, more, further) = _parts(left), _parts(right)
    return Seq((*before, *after), (*uses, use, *more), (*others, *further))


def _use(operand: Pattern, user: Pattern, index: int | None = None, only: bool = False) -> Use:
    if isinstance(index, bool) or not (index is None or (isinstance(index, int) and index >= 0)):
        raise PatternTypeError.here(f"index= takes the position of an operand, 0 or more, got {index!r}")
    if isinstance(user, Leaf) and user.kinds is not None:
        raise PatternError.here(f"{user!r} has no operands, so it can't use {operand!r}")
    if operand is user:
        raise PatternError.here(f"{user!r} can't be an operand of itself")
    op = user.op if isinstance(user, Call) else None
    if index is not None and isinstance(op, OpSpec) and index >= len(op.operands):
        raise PatternError.here(f"{op.name} has no operand {index}: it takes {op.arity} ({', '.join(op.operands)})")
    return Use(operand, user, index, only)


def refuse_less(pattern: Pattern, other: Any) -> NoReturn:
    """Raise the error of ``pattern < other``, which Python would read as ``other > pattern``."""
    if isinstance(other, Pattern):
        raise PatternTypeError.here("a < b is no use relation: write b > a where b is an operand of a")
    raise PatternTypeError.here(
        f"{other!r} can't be related to {pattern.label} by < or >: write pat.Const({other!r}) > …"
    )


def check_unique(*values: Pattern | Group | Constraint) -> None:
    """Raise PatternError where a pattern that is declared to have one user is given two.

    Users in alternatives and negations don't count, because there need not be such a node.
    """
    patterns = list(_always([v for v in values if isinstance(v, Pattern)]))
    constraints = {c: None for v in [*values, *patterns] for c in constraints_of(v)}
    unique: dict[Pattern, dict[Pattern, None]] = {tail(c.pattern): {} for c in constraints if isinstance(c, Unique)}
    for constraint in constraints:
        if isinstance(constraint, Use) and constraint.operand in unique:
            unique[constraint.operand][constraint.user] = None
    for pattern in patterns:
        if isinstance(pattern, (Call, Tuple, GetItem)):
            for child in _same(pattern.children()):
                if child in unique:
                    unique[child][pattern] = None
    for pattern, found in unique.items():
        if len(found) > 1:
            raise PatternError.here(
                f"{pattern!r} is declared uniq() at {pattern.location}, to have one user, but is used by "
                f"{' and by '.join(map(repr, found))}"
            )


def _always(roots: Sequence[Pattern]) -> Iterator[Pattern]:
    """The patterns that every match of the roots binds."""
    return reached(roots, lambda pattern: () if isinstance(pattern, (Alt, Not)) else pattern.children())


def _same(patterns: Iterator[Pattern]) -> Iterator[Pattern]:
    """Patterns, with those that are the same node in any case."""
    work = list(patterns)
    while work:
        pattern = work.pop()
        yield pattern
        if not isinstance(pattern, Alt):
            work += pattern.same_node()


def fork_to(*members: Any) -> Group:
    """Some one node is used by each of the members; a group may be given instead of patterns.

    To name that node write ``a.fork_to(b, c)``.
    """
    return fork(Wildcard(), *members)


def fork(source: Pattern, *members: Any) -> Group:
    """``source`` is used by each of the members."""
    group = _group("fork_to", members)
    uses = tuple(_use(tail(source), head(member)) for member in group.members)
    return Group(group.members, (*constraints_of(source), *group.constraints, *uses))


@checked(PatternTypeError)
def attr_eq(*members: Any, names: str | Sequence[str] | None = None) -> Group:
    """Corresponding operators of the members have equal attributes: all of them, or those named.

    Where the operators stand in alternatives, those that the first member has in a match must be in the others too.
    """
    group = _group("attr_eq", members)
    wanted = None if names is None else (names,) if isinstance(names, str) else tuple(names)
    first, *others = ([p for p in walk(member) if isinstance(p, Call)] for member in group.members)
    for call in first:
        check_names(f"attr_eq: {call.label}", wanted or (), declared(call.op))
    equal: list[Constraint] = []
    for number, other in enumerate(others, 2):
        if [_kind(p) for p in other] != [_kind(p) for p in first]:
            raise PatternError.here(
                "attr_eq needs patterns of the same structure, but the operators of pattern 1 are "
                f"{', '.join(p.label for p in first) or 'none'}, and those of pattern {number} "
                f"{', '.join(p.label for p in other) or 'none'}"
            )
        equal += [AttrEqual(a, b, wanted) for a, b in zip(first, other) if a is not b]
    return Group(group.members, (*group.constraints, *equal))


def _kind(pattern: Call) -> Any:
    return getattr(pattern.op, "name", pattern.op)


def _group(what: str, members: Sequence[Any]) -> Group:
    patterns: list[Pattern] = []
    constraints: list[Constraint] = []
    for member in members:
        if isinstance(member, Group):
            patterns += member.members
            constraints += member.constraints
        else:
            patterns.append(to_pattern(member))
    if len(patterns) < 2:
        raise PatternError.here(f"{what} takes two patterns or more, got {len(patterns)}")
    return Group(patterns, constraints)

"""Use relations: patterns written as operators and who uses whom.

A relation is a value. ``a >> b`` is a sequence, which stands for its tail where it is an operand, and for its head
where it uses something; it carries the constraints of both sides. Nothing is recorded anywhere by writing one down.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass, replace
from typing import Any, TypeVar

from gsl.attr.ast import Ast, Symbol
from gsl.errors import PatternError, PatternTypeError, caller
from gsl.pat.base import Pattern, TypeGuard, walk
from gsl.pat.call import Call, GetItem, Tuple, to_pattern
from gsl.pat.choice import Alt
from gsl.pat.leaf import Const, Variable, Wildcard

P = TypeVar("P")


@dataclass(frozen=True, eq=False)
class Constraint:
    """A condition on what patterns match, beyond the patterns themselves."""

    def patterns(self) -> tuple[Pattern, ...]:
        """The patterns that it is about."""
        return tuple(value for field in fields(self) if isinstance(value := getattr(self, field.name), Pattern))


@dataclass(frozen=True, eq=False)
class Use(Constraint):
    """``operand`` is an operand of ``user``: at ``index``, or anywhere; ``only``: and nothing else uses it."""

    operand: Pattern
    user: Pattern
    index: int | None = None
    only: bool = False

    def __repr__(self) -> str:
        place = "" if self.index is None else f" at {self.index}"
        return f"{self.operand!r} {'>>' if self.only else '>'} {self.user!r}{place}"


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
        return f"{self.pattern!r}.uniq()"


@dataclass(frozen=True, eq=False)
class ExternUse(Constraint):
    """The pattern's node is used outside the match, or is not."""

    pattern: Pattern
    used: bool

    def __repr__(self) -> str:
        return f"{self.pattern!r}.extern_use({self.used})"


@dataclass(frozen=True, eq=False)
class NonLeafExternUse(Constraint):
    """Every inner node of the rule is used outside the match, or none is."""

    used: bool


class Seq(Pattern):
    """Patterns connected by use relations, with a first one (the head) and a last one (the tail)."""

    __slots__ = ("constraints", "head", "tail")
    head: Pattern
    tail: Pattern
    constraints: tuple[Constraint, ...]

    def __init__(self, head: Pattern, tail: Pattern, constraints: Sequence[Constraint]) -> None:
        super().__init__(head=head, tail=tail, constraints=_connected(tail, constraints))
        check_unique(self)

    @property
    def label(self) -> str:
        return self.tail.label

    def parts(self) -> Iterator[Any]:
        yield " & ".join(map(repr, self.constraints)) or self.tail

    def same_node(self) -> Iterator[Pattern]:
        yield self.tail

    def children(self) -> Iterator[Pattern]:
        yield self.tail
        for constraint in self.constraints:
            yield from constraint.patterns()

    def readable(self) -> frozenset[str] | None:
        return self.tail.readable()


class Group:
    """Several patterns with constraints between them: a source of several outputs, or conditions for ``where=``."""

    __slots__ = ("constraints", "members")

    def __init__(self, members: Sequence[Pattern], constraints: Sequence[Constraint]) -> None:
        self.members = tuple(members)
        self.constraints = tuple(constraints)

    def __repr__(self) -> str:
        return f"<group of {', '.join(map(repr, self.members))}>"

    def __getitem__(self, index: int) -> Pattern:
        return self.members[index]

    def __len__(self) -> int:
        return len(self.members)

    def __iter__(self) -> Iterator[Pattern]:
        return iter(self.members)


def _connected(start: Pattern, constraints: Sequence[Constraint]) -> tuple[Constraint, ...]:
    """The constraints in an order in which each relation has a pattern that is bound before it."""
    bound = set(walk(start))
    relations = [c for c in dict.fromkeys(constraints) if isinstance(c, Use)]
    ordered: list[Constraint] = []
    while relations:
        ready = next((u for u in reversed(relations) if u.user in bound or u.operand in bound), relations[-1])
        relations.remove(ready)
        ordered.append(ready)
        bound |= set(walk(ready.operand, ready.user))
    return (*ordered, *(c for c in dict.fromkeys(constraints) if not isinstance(c, Use)))


def head(pattern: Pattern) -> Pattern:
    """What a pattern stands for where it uses something."""
    return pattern.head if isinstance(pattern, Seq) else pattern


def tail(pattern: Pattern) -> Pattern:
    """What a pattern stands for where it is used."""
    return pattern.tail if isinstance(pattern, Seq) else pattern


def constraints_of(value: Pattern | Group | Constraint) -> tuple[Constraint, ...]:
    """The constraints that a value carries."""
    if isinstance(value, Constraint):
        return (value,)
    return value.constraints if isinstance(value, (Seq, Group)) else ()


def relate(operand: Any, user: Any, index: int | None = None, *, only: bool = False) -> Seq:
    """The sequence in which the tail of ``operand`` is used by the head of ``user``."""
    left, right = to_pattern(operand), to_pattern(user)
    if isinstance(index, bool) or not (index is None or isinstance(index, int)):
        raise PatternTypeError(f"{caller()}: index= takes the position of an operand, got {index!r}")
    use = Use(tail(left), head(right), index, only)
    return Seq(head(left), tail(right), (*constraints_of(left), *constraints_of(right), use))


def check_unique(*values: Pattern | Group | Constraint) -> None:
    """Raise PatternError where a pattern that is declared to have one user is given two."""
    patterns = list(walk(*[v for v in values if isinstance(v, Pattern)]))
    constraints = {c: None for v in [*values, *patterns] if not isinstance(v, Pattern) or isinstance(v, Seq)
                   for c in constraints_of(v)}  # fmt: skip
    unique = {tail(c.pattern) for c in constraints if isinstance(c, Unique)}
    users: dict[Pattern, dict[Pattern, None]] = {pattern: {} for pattern in unique}
    for constraint in constraints:
        if isinstance(constraint, Use) and constraint.operand in unique:
            users[constraint.operand][constraint.user] = None
    for pattern in patterns:
        if isinstance(pattern, (Call, Tuple, GetItem)):
            for child in pattern.children():
                if tail(child) in unique:
                    users[tail(child)][pattern] = None
    for pattern, found in users.items():
        if len(found) > 1:
            raise PatternError(
                f"{caller()}: {pattern!r} is declared uniq() at {pattern.location}, to have one user, but is used by "
                f"{' and by '.join(map(repr, found))}"
            )


def fork_to(*members: Any) -> Group:
    """Some one node is used by each of the members; a group may be given instead of patterns.

    To name that node write ``a.fork_to(b, c)``.
    """
    return fork(Wildcard(), *members)


def fork(source: Pattern, *members: Any) -> Group:
    """``source`` is used by each of the members."""
    group = _group("fork_to", members)
    uses = tuple(Use(tail(source), head(member)) for member in group.members)
    return Group(group.members, (*constraints_of(source), *group.constraints, *uses))


def attr_eq(*members: Any, names: Sequence[str] | None = None) -> Group:
    """Corresponding operators of the members have equal attributes: all of them, or those named."""
    group = _group("attr_eq", members)
    first, *others = ([p for p in walk(member) if isinstance(p, Call)] for member in group.members)
    equal: list[Constraint] = []
    for number, other in enumerate(others, 2):
        if [_kind(p) for p in other] != [_kind(p) for p in first]:
            raise PatternError(
                f"{caller()}: attr_eq needs patterns of the same structure, but the operators of pattern 1 are "
                f"{', '.join(p.label for p in first)}, and those of pattern {number} "
                f"{', '.join(p.label for p in other)}"
            )
        equal += [AttrEqual(a, b, None if names is None else tuple(names)) for a, b in zip(first, other)]
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
        raise PatternError(f"{caller()}: {what} takes two patterns or more, got {len(patterns)}")
    return Group(patterns, constraints)


# Copies.


def dup(pattern: P) -> P:
    """A copy of a pattern, sequence or group, made of new pattern objects, with the same constraints inside."""
    if not isinstance(pattern, (Pattern, Group)):
        raise PatternTypeError(f"{caller()}: dup copies a pattern or a group, got {pattern!r}")
    copied: P = _Copier().copy(pattern)
    return copied


def make(count: int, pattern: P) -> list[P]:
    """``count`` copies of a pattern."""
    return [dup(pattern) for _ in range(count)]


class _Copier:
    """Copies values in which patterns occur, each pattern once."""

    def __init__(self) -> None:
        self.done: dict[Pattern, Pattern] = {}

    def copy(self, value: Any) -> Any:
        if isinstance(value, Pattern):
            return self._pattern(value)
        if isinstance(value, Group):
            return Group(self.copy(value.members), self.copy(value.constraints))
        if isinstance(value, tuple):
            return tuple([self.copy(item) for item in value])
        if isinstance(value, Mapping):
            return {key: self.copy(item) for key, item in value.items()}
        if isinstance(value, Symbol):
            return value
        if isinstance(value, (Ast, Constraint, TypeGuard)) and is_dataclass(value):
            parts = {field.name: self.copy(getattr(value, field.name)) for field in fields(value) if field.init}
            return replace(value, **parts)
        return value

    def _pattern(self, pattern: Pattern) -> Pattern:
        known = self.done.get(pattern)
        if known is None:
            known = self.done[pattern] = object.__new__(type(pattern))
            for kind in type(pattern).__mro__:
                for name in getattr(kind, "__slots__", ()):
                    object.__setattr__(known, name, self.copy(getattr(pattern, name)))
        return known


# The names of TVM's dataflow pattern language.


def is_op(op: Any) -> Call:
    """A call of an operator, whatever its operands; ``is_op("add")(x, y)`` fixes them."""
    return Call._free(op)


def wildcard() -> Wildcard:
    """Any node."""
    return Wildcard()


def is_const() -> Const:
    """Any literal."""
    return Const()


def is_var(*, shape: Any = None, dtype: Any = None, ndim: Any = None) -> Variable:
    """Any input or parameter."""
    return Variable(shape=shape, dtype=dtype, ndim=ndim)


def is_tuple(*items: Any) -> Tuple:
    """A tuple of these fields; a single list is accepted."""
    return Tuple(*(items[0] if len(items) == 1 and isinstance(items[0], (list, tuple)) else items))


def is_tuple_get_item(whole: Any, index: int | None = None) -> GetItem:
    """A field of a tuple."""
    return GetItem(whole, index)


class Maybe(Alt):
    """``p`` or, where it is absent, ``on`` itself, which ``p`` is built on."""

    __slots__ = ()

    def __init__(self, pattern: Any, on: Any) -> None:
        present, base = to_pattern(pattern), to_pattern(on)
        if base not in set(walk(present)):
            raise PatternError(
                f"{caller()}: pat.Maybe: {present!r} is not built on {base!r}: on= is the operand that stands for the "
                "whole where the pattern is absent"
            )
        super().__init__(present, base)


class Repeat(Pattern):
    """A chain of nodes that each match a pattern, each the only producer of the next.

    Stands for its last node; where it uses something, for its first. ``greedy`` prefers long chains. The pattern is a
    template: ``match.chain(repeat)`` gives the nodes, first to last.
    """

    __slots__ = ("greedy", "max", "min", "pattern")
    symbol = None
    first = ()
    pattern: Pattern
    min: int
    max: int | None
    greedy: bool

    def __init__(self, pattern: Any, min: int = 1, max: int | None = None, *, greedy: bool = True) -> None:
        for name, value in (("min", min), ("max", 1 if max is None else max)):
            if isinstance(value, bool) or not isinstance(value, int) or value < 1:
                raise PatternError(f"{caller()}: pat.Repeat: {name}= takes a number of nodes, 1 or more, got {value!r}")
        if max is not None and max < min:
            raise PatternError(f"{caller()}: pat.Repeat: max={max} is less than min={min}")
        super().__init__(pattern=to_pattern(pattern), min=min, max=max, greedy=greedy)

    @property
    def templates(self) -> tuple[Pattern, ...]:
        """What is new for every node of the chain: the whole pattern."""
        return tuple(walk(self.pattern))

    def parts(self) -> Iterator[Any]:
        yield from ("Repeat(", self.pattern, f", {self.min}, {self.max})")

    def children(self) -> Iterator[Pattern]:
        yield self.pattern

"""Alternatives and conditions: ``|``, ``&``, ``~``, and the clauses of a target."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from gsl.attr.ast import Ast
from gsl.attr.expr import to_condition
from gsl.errors import PatternError, PatternTypeError, checked
from gsl.pat.base import Pattern
from gsl.pat.call import to_pattern
from gsl.pat.typed import TypeGuard


class Alt(Pattern):
    """The first of several alternatives that leads to a whole match."""

    __slots__ = ("choices",)
    choices: tuple[Pattern, ...]

    @checked(PatternTypeError)
    def __init__(self, *choices: Any, shape: Any = None, dtype: Any = None, ndim: Any = None) -> None:
        if len(choices) == 1 and isinstance(choices[0], (list, tuple)):
            choices = tuple(choices[0])
        if len(choices) < 2:
            raise PatternError.here(f"pat.Alt takes two alternatives or more, got {len(choices)}")
        super().__init__(TypeGuard.of(shape, dtype, ndim), choices=tuple(to_pattern(choice) for choice in choices))

    def children(self) -> Iterator[Pattern]:
        return iter(self.choices)

    def same_node(self) -> Iterator[Pattern]:
        return iter(self.choices)

    def parts(self) -> Iterator[Any]:
        if self.guard is not None:
            yield from super().parts()
            return
        yield "("
        yield self.choices[0]
        for choice in self.choices[1:]:
            yield from (" | ", choice)
        yield ")"

    def readable(self) -> frozenset[str] | None:
        common: frozenset[str] | None = None
        for choice in self.choices:
            names = choice.readable()
            if names is not None:
                common = names if common is None else common & names
        return common


class And(Pattern):
    """A node that matches both patterns."""

    __slots__ = ("both",)
    both: tuple[Pattern, Pattern]

    def __init__(self, left: Any, right: Any) -> None:
        super().__init__(both=(to_pattern(left), to_pattern(right)))

    def children(self) -> Iterator[Pattern]:
        return iter(self.both)

    @property
    def operator(self) -> Any:
        return self.both[0].operator or self.both[1].operator

    def same_node(self) -> Iterator[Pattern]:
        return iter(self.both)

    def parts(self) -> Iterator[Any]:
        yield from ("(", self.both[0], " & ", self.both[1], ")")

    @property
    def label(self) -> str:
        return self.both[0].label

    def readable(self) -> frozenset[str] | None:
        left, right = (pattern.readable() for pattern in self.both)
        return None if left is None or right is None else left | right


class Not(Pattern):
    """Any node that does not match the pattern; the nodes that the pattern binds stay unknown outside of it."""

    __slots__ = ("pattern",)
    pattern: Pattern

    def __init__(self, pattern: Any) -> None:
        super().__init__(pattern=to_pattern(pattern))

    def children(self) -> Iterator[Pattern]:
        yield self.pattern

    def parts(self) -> Iterator[Any]:
        yield from ("~", self.pattern)


class Match(Pattern):
    """The clause, in a target, for the alternative that an Alt of the source matched."""

    __slots__ = ("alternative", "clauses")
    alternative: Alt
    clauses: tuple[Pattern, ...]

    @checked(PatternTypeError)
    def __init__(self, alternative: Alt, clauses: Sequence[Any]) -> None:
        if not isinstance(alternative, Alt):
            raise PatternTypeError.here(f"pat.Match: expected an Alt pattern, got {alternative!r}")
        if len(clauses) != len(alternative.choices):
            raise PatternError.here(
                f"pat.Match: expected {len(alternative.choices)} clauses, one per alternative, got {len(clauses)}"
            )
        super().__init__(alternative=alternative, clauses=tuple(to_pattern(clause) for clause in clauses))

    def children(self) -> Iterator[Pattern]:
        return iter(self.clauses)

    def arguments(self) -> Iterator[Any]:
        yield self.alternative.label
        yield from self.clauses


class Cond(Pattern):
    """The pattern ``then`` or ``otherwise``, in a target, by an attribute expression."""

    __slots__ = ("otherwise", "predicate", "then")
    predicate: Ast
    then: Pattern
    otherwise: Pattern

    @checked(PatternTypeError)
    def __init__(self, predicate: Any, then: Any, otherwise: Any) -> None:
        condition = to_condition(predicate, "pat.Cond")
        super().__init__(predicate=condition, then=to_pattern(then), otherwise=to_pattern(otherwise))

    def children(self) -> Iterator[Pattern]:
        yield self.then
        yield self.otherwise

    def arguments(self) -> Iterator[Any]:
        yield self.predicate
        yield from self.children()

    def expressions(self) -> Iterator[Ast]:
        yield self.predicate

"""Copies of patterns."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, replace
from types import MappingProxyType
from typing import Any, TypeVar

from gsl.attr.ast import Ast, Symbol
from gsl.errors import PatternError, PatternTypeError
from gsl.pat.base import Pattern, walk
from gsl.pat.typed import TypeGuard
from gsl.pat.use import Constraint, Group

P = TypeVar("P")


def dup(pattern: P) -> P:
    """A copy of a pattern, sequence or group, made of new pattern objects, with the same constraints inside.

    Everything that the pattern is made of is copied, each part once, leaves too; expressions refer to the copies.
    Patterns that are only referred to, in an expression, and operator classes are not copied.
    """
    if not isinstance(pattern, (Pattern, Group)):
        raise PatternTypeError.here(f"dup copies a pattern or a group, got {pattern!r}")
    copied: P = _Copier(pattern).copy(pattern)
    return copied


def make(count: int, pattern: P) -> list[P]:
    """``count`` copies of a pattern."""
    if isinstance(count, bool) or not isinstance(count, int) or count < 0:
        raise PatternError.here(f"make takes the number of copies, got {count!r}")
    return [dup(pattern) for _ in range(count)]


class _Copier:
    """Copies values in which patterns occur, each of the patterns that the root is made of once."""

    def __init__(self, root: Pattern | Group) -> None:
        roots = [root] if isinstance(root, Pattern) else [*root.members, *_related(root)]
        self.done: dict[Pattern, Pattern] = {p: object.__new__(type(p)) for p in walk(*roots)}
        for pattern, copied in self.done.items():  # expressions ask for these of patterns that are copied later
            object.__setattr__(copied, "free_symbols", pattern.free_symbols)
        for pattern, copied in self.done.items():
            for kind in type(pattern).__mro__:
                for name in getattr(kind, "__slots__", ()):
                    object.__setattr__(copied, name, self.copy(getattr(pattern, name)))

    def copy(self, value: Any) -> Any:
        if isinstance(value, Pattern):
            return self.done.get(value, value)
        if isinstance(value, Group):
            return Group(self.copy(value.members), self.copy(value.constraints))
        if isinstance(value, tuple):
            return tuple([self.copy(item) for item in value])
        if isinstance(value, Mapping):
            return MappingProxyType({key: self.copy(item) for key, item in value.items()})
        if isinstance(value, Symbol):
            return value
        if isinstance(value, (Ast, Constraint, TypeGuard)):
            parts = {field.name: self.copy(getattr(value, field.name)) for field in fields(value) if field.init}
            return replace(value, **parts)
        return value


def _related(group: Group) -> list[Pattern]:
    return [pattern for constraint in group.constraints for pattern in constraint.patterns()]

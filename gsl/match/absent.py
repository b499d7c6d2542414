"""Negation: the guard that a pattern does not match."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from gsl.attr.ast import Literal
from gsl.match.bindings import AttrPath
from gsl.match.guard import Guard
from gsl.match.machine import END
from gsl.match.matchers import Matcher, check_all
from gsl.pat import Not, Pattern

if TYPE_CHECKING:
    from gsl.match.engine import MatchSearch


class Absent(Guard):
    """The guard that a negated pattern does not match its node."""

    __slots__ = ("goals", "inside", "matcher", "outside")

    def __init__(self, owner: Not, matcher: Matcher, outside: frozenset[Pattern]) -> None:
        super().__init__(owner, "no match", Literal(True), None)
        self.matcher = matcher
        self.outside = outside
        """The patterns around it to which it refers."""
        self.inside: list[Guard] = []
        """The guards of the negated pattern that need more than a part of it."""

    def references(self) -> Iterator[Pattern]:
        return iter(self.outside)

    def check(self, search: MatchSearch, path: AttrPath) -> bool:
        owner = self.owner
        assert owner is not None
        node = search.bindings.get(owner, path)
        if node is None:
            return True
        goals = (self.matcher.match, node, path, (check_all, self.inside, path, END))
        if search.exists(goals, alone=True):
            search.miss(owner, node, "no match", self.matcher.pattern, node)
            return False
        return True

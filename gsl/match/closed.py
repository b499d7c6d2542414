"""Alternatives whose choices refer to nothing outside of them.

Whether such a choice matches a node is a property of the node, unless another operator has taken a part of it. So a
search that has seen it fail need not try it again: nested alternatives cost as many steps as there are choices and
nodes, and not the product of all choices.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gsl.match.conditions import LiteralValue
from gsl.match.guard import Guard
from gsl.match.matchers import AltMatcher
from gsl.pat import Alt, And, Call, GetItem, Leaf, OpClass, Pattern, Tuple, walk

if TYPE_CHECKING:
    from gsl.match.start import Start

_PLAIN = (Alt, And, Call, GetItem, Leaf, Tuple)
"""The patterns that are about operands alone."""


def mark_closed(start: Start) -> None:
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
        inside = set(walk(matcher.pattern))
        beneath = inside - {matcher.pattern}
        matcher.closed = (
            all(map(_is_plain, inside))
            and inside.isdisjoint(start.plan.scopes)
            and beneath.isdisjoint(start.plan.required)
            and beneath.isdisjoint(related)
            and all(user in inside for pattern in beneath for user in above[pattern])
            and all(_is_about(guard, inside) for pattern in inside for guard in start.matchers[pattern].guards)
        )


def _is_plain(pattern: Pattern) -> bool:
    """True if a node and its operands decide if the pattern matches."""
    if isinstance(pattern, Call) and isinstance(pattern.op, OpClass) and pattern.op.joint:
        return False
    return isinstance(pattern, _PLAIN)


def _is_about(guard: Guard, inside: set[Pattern]) -> bool:
    """True if a guard looks at no other patterns than these."""
    if type(guard) not in (Guard, LiteralValue):
        return False
    return guard.owner in inside and inside.issuperset(guard.references())

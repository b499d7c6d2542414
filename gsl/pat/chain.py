"""Chains of nodes, and nodes that may be absent."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from gsl.errors import PatternError, located
from gsl.pat.base import Pattern, walk
from gsl.pat.call import to_pattern
from gsl.pat.choice import Alt


def Maybe(pattern: Any, on: Any) -> Alt:
    """``p`` or, where it is absent, ``on`` itself, which ``p`` is built on: the alternative ``p | on``."""
    present, base = to_pattern(pattern), to_pattern(on)
    if present is base or base not in set(walk(present)):
        raise PatternError(
            located(
                f"pat.Maybe: {present!r} is not built on {base!r}: on= is the operand that stands for the whole where "
                "the pattern is absent"
            )
        )
    return Alt(present, base)


class Repeat(Pattern):
    """A chain of nodes that each match a pattern, each the only computed operand of the next.

    Other operands of the nodes must be inputs, parameters or literals; that nothing else uses a node is not demanded
    (that is ``Repeat(p.uniq())``). With ``sole=False`` the nodes may have other computed operands, and each but the
    last is used by the next one only. Stands for its last node; where it uses something, for its first. ``greedy``
    prefers long chains: a rule that is applied in one pass takes the longest that there is, but every part of it is a
    match too. The pattern is a template of which every node has its own instance, leaves included. A sequence is
    repeated as a whole: its tail is the operand of the next one's head.

    ``match[repeat]`` is the last node, ``match.chain(repeat)`` are all of them, first to last, ``repeat.length`` is
    their number, and other attributes are the last node's.
    """

    __slots__ = ("greedy", "max", "min", "pattern", "sole")
    symbol = None
    first = ()
    pattern: Pattern
    min: int
    max: int | None
    greedy: bool
    sole: bool

    def __init__(
        self, pattern: Any, min: int = 1, max: int | None = None, *, greedy: bool = True, sole: bool = True
    ) -> None:
        for name, value in (("min", min), ("max", 1 if max is None else max)):
            if isinstance(value, bool) or not isinstance(value, int) or value < 1:
                raise PatternError(located(f"pat.Repeat: {name}= takes a number of nodes, 1 or more, got {value!r}"))
        if max is not None and max < min:
            raise PatternError(located(f"pat.Repeat: max={max} is less than min={min}"))
        super().__init__(pattern=to_pattern(pattern), min=min, max=max, greedy=greedy, sole=sole)

    @property
    def templates(self) -> tuple[Pattern, ...]:
        """The patterns that are new for every node of the chain: the whole pattern."""
        return tuple(walk(self.pattern))

    def parts(self) -> Iterator[Any]:
        yield from ("Repeat(", self.pattern)
        yield f", min={self.min}" if self.min > 1 else ""
        yield "" if self.max is None else f", max={self.max}"
        yield ")"

    def children(self) -> Iterator[Pattern]:
        yield self.pattern

    def readable(self) -> frozenset[str] | None:
        names = self.pattern.readable()
        return None if names is None else names | {"length"}

"""Calls that are alike: what the reading of one of them became, written down for the others.

A graph has many calls and few kinds of calls. A call is read with care once; the others of its kind, which have other
operands of the same types, are loaded by the rows that were recorded then.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import Any

from gsl.front.core.handle import Source
from gsl.graph import Effect, Node, Op, Type


@dataclass(frozen=True, slots=True, eq=False)
class ViewRow:
    """One view node of a recorded reading."""

    op: Op
    attrs: Mapping[str, Any]
    type: Type | None
    suffix: str
    """The suffix that the view node's name has behind that of the native call."""
    take: Callable[[Sequence[Any]], tuple[Any, ...]]
    """Picks its operands and then its deps from the native operands of the call, followed by the nodes of other
    rows."""
    operands: int
    """The number of operands among them."""
    is_whole: bool
    """True if this is the only row, and it has just the native operands of the call, in their order."""
    effect: Effect | None


Rows = tuple[ViewRow, ...]


def recorded(tree: Sequence[Node], sources: Sequence[Sequence[Source]], name: str, inputs: Sequence[Any]) -> Rows:
    """The rows of the view nodes as which a call of that name, with these native operands, was loaded.

    KeyError if the reading has other sources than those.
    """
    numbered = [*enumerate((*inputs, *range(len(tree))))]
    places = {source: place for place, source in reversed(numbered)}  # the first one of an operand that stands twice

    def row(node: Node, own: Sequence[Source]) -> ViewRow:
        taken = [places[source] for source in own]
        is_whole = len(tree) == 1 and not node.deps and taken == list(range(len(inputs)))
        suffix = node.name.removeprefix(name)
        return ViewRow(node.op, node.attrs, node.type, suffix, _taker(taken), len(node.operands), is_whole, node.effect)

    return tuple(map(row, tree, sources))


def _taker(places: Sequence[int]) -> Callable[[Sequence[Any]], tuple[Any, ...]]:
    """A function that gives the items at some places as a tuple."""
    if len(places) > 1:
        return itemgetter(*places)
    first = slice(places[0], places[0] + 1) if places else slice(0)
    return lambda items: tuple(items[first])

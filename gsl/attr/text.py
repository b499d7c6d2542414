"""Expressions and patterns as text that reads like the source, cut with ``…`` where it would be huge.

Each class gives the parts of its text: strings, and what stands between them. They are written without recursion,
and a shared part that occurs ever again is cut, so that no message explodes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Final, Protocol

CUT: Final = "…"
MOST_LEVELS: Final = 5
MOST_ITEMS: Final = 8
MOST_CHARACTERS: Final = 160
"""Beyond these, nested parts are cut."""


class Shown(Protocol):
    """A thing that is written in parts."""

    def parts(self) -> Iterator[Any]:
        """Strings, and further things to be written between them."""


def render(root: Shown) -> str:
    """The text of an expression or a pattern."""
    written: list[str] = []
    length = 0
    stack: list[tuple[Any, int]] = [(root, 0)]
    while stack:
        item, level = stack.pop()
        if not isinstance(item, str):
            parts = list(item.parts())
            simple = len(parts) == 1 and isinstance(parts[0], str)
            if simple or (level <= MOST_LEVELS and length <= MOST_CHARACTERS):
                stack.extend([(part, level + 1) for part in reversed(parts)])
                continue
            item = CUT
        written.append(item)
        length += len(item)
    return "".join(written)


def listed(items: Iterable[Any]) -> Iterator[Any]:
    """The parts of items with commas between them."""
    for number, item in enumerate(items):
        if number:
            yield ", "
        if number == MOST_ITEMS:
            yield CUT
            return
        yield item


def short(value: Any) -> str:
    """The ``repr`` of a value, cut where it is long."""
    text = repr(value)
    return text if len(text) <= MOST_CHARACTERS else text[: MOST_CHARACTERS - 1] + CUT

"""Failures of a search, as values; the text is made when it is printed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from gsl.graph import Node, op_name
from gsl.graph.text import value_text
from gsl.pat import OpClass, Pattern
from gsl.spec import OpSpec


@dataclass(frozen=True, slots=True)
class Miss:
    """The reason why a partial match went no further: a pattern, the node tried for it, the expected and the found
    value."""

    pattern: Pattern | None
    node: Node | None
    what: str
    expected: Any
    found: Any
    bound: int
    """The number of patterns that were bound by then."""

    def __str__(self) -> str:
        place = "" if self.pattern is None else f"{self.pattern!r} ({self.pattern.location})"
        at = "" if self.node is None else f" at {_shown(self.node)}"
        return f"{place}{at}: {self.reason}".lstrip(": ")

    @property
    def reason(self) -> str:
        """The expected and the found value, in words."""
        return f"{self.what}: expected {_shown(self.expected)}, found {_shown(self.found)}"


def _shown(value: Any) -> str:
    match value:
        case Node():
            return f"%{value.name} ({op_name(value.op)})"
        case OpSpec():
            return value.name
        case Pattern() | OpClass():
            return repr(value)
        case BaseException():
            return str(value) or type(value).__name__
        case frozenset():
            return " or ".join(sorted(map(op_name, value)))
        case list():
            return ", ".join(map(_shown, value)) or "nothing"
        case str():
            return value
    return value_text(value)

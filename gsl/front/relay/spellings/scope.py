"""The questions that a spelling may ask about the expressions of a program."""

from __future__ import annotations

from typing import Any, Protocol

from gsl.graph import Type


class RelayScope(Protocol):
    """The surroundings of a call: the facts known there about the expressions that it is made of."""

    def type_of(self, expr: Any) -> Type | None:
        """The type of an expression of Relay, or ``None`` where it is not known."""

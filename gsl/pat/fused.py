"""The target that outlines the matched nodes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any

from gsl.attr.ast import Ast
from gsl.attr.expr import to_ast
from gsl.errors import PatternTypeError, located
from gsl.pat.base import Pattern
from gsl.pat.typed import KeywordText


class Fused(Pattern):
    """The matched nodes, as a target: outlined into one call of a subgraph that carries the name and the attributes.

    The call takes what the matched nodes take from elsewhere, in the order in which they use it, and stands for all
    outputs of the rule. An attribute is a value or an expression.
    """

    __slots__ = ("attrs", "name")
    name: str
    attrs: Mapping[str, Ast]

    def __init__(self, name: str, **attrs: Any) -> None:
        if not isinstance(name, str) or not name:
            raise PatternTypeError(located(f"pat.Fused takes the name of the group first, got {name!r}"))
        super().__init__(name=name, attrs=MappingProxyType({key: to_ast(value) for key, value in attrs.items()}))

    def arguments(self) -> Iterator[Any]:
        yield repr(self.name)
        yield from (KeywordText(name, value) for name, value in self.attrs.items())

    def expressions(self) -> Iterator[Ast]:
        yield from super().expressions()
        yield from self.attrs.values()

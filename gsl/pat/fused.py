"""The targets that take the matched nodes as they are: outlined as a group, or as a module of torch."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType
from typing import Any

from gsl.attr.ast import Ast
from gsl.attr.expr import to_ast
from gsl.attr.text import short
from gsl.errors import PatternTypeError
from gsl.pat.base import Pattern
from gsl.pat.call import to_pattern
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
            raise PatternTypeError.here(f"pat.Fused takes the name of the group first, got {name!r}")
        super().__init__(name=name, attrs=MappingProxyType({key: to_ast(value) for key, value in attrs.items()}))

    def arguments(self) -> Iterator[Any]:
        yield repr(self.name)
        yield from (KeywordText(name, value) for name, value in self.attrs.items())

    def expressions(self) -> Iterator[Ast]:
        yield from self.attrs.values()


class Module(Pattern):
    """A call, in a target, of a new ``nn.Module``, which ``factory`` makes from the match, on the operands.

    The factory gives the module its weights; ``match[w].attrs["value"]`` is the tensor of a matched one. A string
    that it returns instead is the reason for refusing the match. Only torch's traced graphs call modules.
    """

    __slots__ = ("factory", "operands")
    factory: Callable[[Any], Any]
    operands: tuple[Pattern, ...]

    def __init__(self, factory: Callable[[Any], Any], *operands: Any) -> None:
        if not callable(factory) or isinstance(factory, Pattern):
            raise PatternTypeError.here(
                f"pat.Module takes a function from the match to a module first, got {factory!r}"
            )
        if not operands:
            raise PatternTypeError.here("pat.Module takes the operands of the module behind the factory, got none")
        super().__init__(factory=factory, operands=tuple(to_pattern(operand) for operand in operands))

    def arguments(self) -> Iterator[Any]:
        yield getattr(self.factory, "__name__", short(self.factory))
        yield from self.operands

    def children(self) -> Iterator[Pattern]:
        return iter(self.operands)

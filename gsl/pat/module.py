"""The target that makes a module of the matched nodes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from gsl.attr.text import short
from gsl.errors import PatternTypeError, located
from gsl.pat.base import Pattern
from gsl.pat.call import to_pattern


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
            raise PatternTypeError(
                located(f"pat.Module takes a function from the match to a module first, got {factory!r}")
            )
        if not operands:
            raise PatternTypeError(located("pat.Module takes the operands of the module behind the factory, got none"))
        super().__init__(factory=factory, operands=tuple(to_pattern(operand) for operand in operands))

    def arguments(self) -> Iterator[Any]:
        yield short(getattr(self.factory, "__name__", self.factory))
        yield from self.operands

    def children(self) -> Iterator[Pattern]:
        return iter(self.operands)

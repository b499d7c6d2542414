"""Tuples of any number of items, of which each is an expression of its number.

What holds for the item with the number :data:`gsl.prove.poly.EACH`, of which nothing is known, holds for all.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from gsl.attr.ast import Ast, Each, Function, Reduce
from gsl.attr.evaluate import Evaluator
from gsl.match.bindings import Bindings
from gsl.prove.path import Path
from gsl.prove.poly import EACH, Poly, Unproved
from gsl.prove.whole import Whole, number, whole


@dataclass(frozen=True, eq=False)
class Family:
    """A tuple of which the length is an expression, and the item with a number one of that number."""

    length: Poly
    at: Callable[[Poly], Any]


@contextmanager
def within(path: Path, member: Poly | None) -> Iterator[None]:
    """Let new variables belong to the instance with a number, or to none."""
    outer, path.member = path.member, member
    try:
        yield
    finally:
        path.member = outer


def any_item(path: Path, family: Family) -> Any:
    """The item of a family with any number. Unproved where it is not the same expression for all."""
    with within(path, Poly.of(EACH)):
        return family.at(Poly.of(EACH))


class FamilyEvaluator(Evaluator):
    """Evaluates expressions with tuples of any length."""

    def __init__(self, path: Path, scope: Any, symbols: Any = None) -> None:
        super().__init__(scope, symbols)
        self.path = path

    def _evaluate(self, node: Ast) -> Any:
        if isinstance(node, Function) and node.name == "Len":
            (items,) = map(self.value, node.operands)
            if isinstance(items, Family):
                return whole(items.length, self.path)
        return super()._evaluate(node)

    def each(self, node: Each, length: int | None) -> Any:
        """The values of an ``Each``."""
        items = None if node.over is None else self.value(node.over)
        count = None if node.length is None else self.value(node.length)
        symbols = dict(self.symbols)

        def at(place: Poly) -> Any:
            item = items.at(place) if isinstance(items, Family) else whole(place, self.path)
            return FamilyEvaluator(self.path, self.scope, {**symbols, node.symbol: item}).value(node.body)

        if isinstance(items, Family):
            return Family(items.length, at)
        return Family(number(count), at) if isinstance(count, Whole) else super().each(node, length)

    def reduce(self, node: Reduce) -> Any:
        """The value of a ``Reduce``."""
        items = self.value(node.sequence)
        if not isinstance(items, Family):
            return super().reduce(node)
        if node.operator != "+" or node.initial is not None:
            raise Unproved(f"{node!r} is of any number of items")
        return whole(self.path.prefix(number(any_item(self.path, items)), items.length), self.path)


class FamilyBindings(Bindings[Any]):
    """Bindings of which instances are found by a function, and their numbers are expressions."""

    def __init__(self, scopes: Any, length: Callable[[Any], Any], member: Callable[[Any, Any, Poly], Any]) -> None:
        super().__init__(scopes)
        self.length = length
        self.member = member

    def count(self, variadic: Any, path: Any) -> Any:
        """The number of instances of a variadic."""
        return self.length(variadic)

    def instance(self, variadic: Any, template: Any, number_: Any, path: Any) -> Any:
        """The node of a template in the instance with a number."""
        return self.member(variadic, template, number(number_))

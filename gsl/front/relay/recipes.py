"""The expressions of new calls: calls that differ in nothing but their operands are written, and their types inferred,
once."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import Any

from tvm import relay
from tvm.ir import Op

from gsl.front.core.handle import NUMBERS
from gsl.front.relay.handle import ByExpression, in_order, parts, with_parts
from gsl.front.relay.types import checked_type, is_static
from gsl.front.tvm.spellings import is_call
from gsl.graph import Node
from gsl.spec.meaning import has_symbols
from gsl.spec.spec import exact


class Recipe:
    """An expression with types, which can be made again of other operands of the same types."""

    __slots__ = ("_result", "_steps", "is_static")

    def __init__(self, operands: Sequence[Any], made: Sequence[Any], result: Any) -> None:
        places = ByExpression[int]()
        for place, operand in enumerate(operands):
            if not isinstance(operand, NUMBERS):
                places[operand] = place
        self._steps: list[tuple[Any, Any, tuple[int | None, ...], tuple[Any, ...]]] = []
        """For each part: itself, its place in the source, the places of its own parts among the operands and the parts
        before it, and these as they were."""
        for number, part in enumerate(made):
            below = parts(part)
            self._steps.append((part, part.span, tuple([places.get(each) for each in below]), below))
            places[part] = len(operands) + number
        self._result: int | Any = places.get(result, result)
        self.is_static = is_static(checked_type(result))
        """True if Relay knows all sizes of the expression."""

    def follow(self, operands: Sequence[Any], span: Any) -> Any:
        """The expression of these operands, at a place in the source."""
        values = list(operands)
        for part, own, places, below in self._steps:
            new = [old if place is None else values[place] for place, old in zip(places, below)]
            values.append(with_parts(part, new, span if own is None else own))
        return values[self._result] if isinstance(self._result, int) else self._result


def recipe_of(expr: Any, operands: Sequence[Any], typed: Callable[[Any], Any]) -> Recipe | None:
    """The recipe of a new expression of some operands, which ``typed`` gives its types; ``None`` if it refers to
    expressions that were there and are no operands."""
    own = ByExpression[None]()
    own.update((operand, None) for operand in operands if not isinstance(operand, NUMBERS))

    def below(part: Any) -> Sequence[Any]:
        return () if part in own or checked_type(part) is not None else parts(part)

    made = [part for part in in_order([expr], below) if part not in own and not isinstance(part, relay.Constant)]
    if not all(map(_is_repeatable, made)) or (len(made) > 1 and any(is_call(part, "reshape") for part in made)):
        return None  # the rows of a product are shared with other products
    typed(expr)
    return Recipe(operands, made, expr)


def _is_repeatable(part: Any) -> bool:
    if checked_type(part) is not None:
        return False
    return isinstance(part, (relay.Tuple, relay.TupleGetItem)) or (
        isinstance(part, relay.Call) and isinstance(part.op, Op)
    )


def key_of(node: Node, operands: Sequence[Any]) -> Hashable:
    """A key of all on which the writing of a canonical call depends; ``None`` where there is no such key.

    A writer looks at the values of numbers and constants; all that it takes of other operands is their types.
    """
    if any(isinstance(operand, relay.Constant) for operand in operands):
        return None
    types = tuple([view.type for view in node.operands])
    if None in types or has_symbols(types):
        return None
    try:
        numbers = tuple([exact(operand) if isinstance(operand, NUMBERS) else None for operand in operands])
        attrs = (tuple(node.attrs), *map(exact, node.attrs.values()))
    except TypeError:
        return None
    places = [None if isinstance(operand, NUMBERS) else operand.handle.value for operand in operands]
    return node.op, attrs, types, numbers, tuple(map(places.index, places))

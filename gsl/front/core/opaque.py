"""The arguments of a call without a canonical operator, from the operands and attributes that a view has of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from gsl.errors import FrontEndError
from gsl.front.tree import Computed, Slot
from gsl.graph import Op, op_name


def decoded(
    op: Op, operands: Sequence[Any], attrs: Mapping[str, Any], leaf: Callable[[Any], Any] = lambda value: value
) -> tuple[list[Any], dict[str, Any]]:
    """The operands that no attribute mentions, and the attributes with operands for the slots in them.

    ``leaf`` gives the native form of a value in an attribute. FrontEndError for a value that is computed at run time.
    """
    mentioned: set[int] = set()

    def decode(value: Any) -> Any:
        match value:
            case Slot():
                mentioned.add(value.index)
                return operands[value.index]
            case Computed():
                raise FrontEndError(f"{op_name(op)} can't be built anew: {value.name} is computed at run time")
            case tuple():
                return tuple([decode(item) for item in value])
            case slice():
                return slice(decode(value.start), decode(value.stop), decode(value.step))
            case dict():
                return {key: decode(item) for key, item in value.items()}
        return leaf(value)

    given = {name: decode(value) for name, value in attrs.items()}
    return [operand for index, operand in enumerate(operands) if index not in mentioned], given


def positional(names: Sequence[str], operands: Sequence[Any], given: dict[str, Any]) -> list[Any]:
    """The arguments by position: those given by name stand in their places, the operands in the others.

    Positions are filled as long as the next argument is known. What remains in ``given`` has no place among them.
    """
    args: list[Any] = []
    left = list(operands)
    position = 0
    while left or f"arg{position}" in given or (position < len(names) and names[position] in given):
        name = names[position] if position < len(names) else f"arg{position}"
        name = name if name in given else f"arg{position}"
        if name in given:
            args.append(given.pop(name))
        elif left:
            args.append(left.pop(0))
        position += 1
    return args

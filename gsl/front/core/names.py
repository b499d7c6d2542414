"""Names that no other thing has."""

from __future__ import annotations

from collections.abc import Callable, Container


def unique(name: str, taken: Callable[[str], bool]) -> str:
    """The name, with a number behind it if it is taken."""
    result, number = name, 0
    while taken(result):
        number += 1
        result = f"{name}_{number}"
    return result


class FreeNames:
    """Names that are given once; those of ``taken`` are not given at all."""

    def __init__(self, taken: Container[str] = ()) -> None:
        self.taken = taken
        self.given: set[str] = set()
        self._numbers: dict[str, int] = {}
        """The last numbers behind names, so that a thousand things of one name are not counted again and again."""

    def free(self, wanted: str) -> str:
        """The name, with a number behind it if another thing has it."""
        number = self._numbers.get(wanted, 0)
        name = f"{wanted}_{number}" if number else wanted
        while name in self.given or name in self.taken:
            number += 1
            name = f"{wanted}_{number}"
        self._numbers[wanted] = number
        self.given.add(name)
        return name

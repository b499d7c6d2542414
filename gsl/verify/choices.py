"""The decisions of which an instance is made: drawn at random, or one by one when an instance is made smaller."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Hashable, Sequence
from typing import Any, Protocol, TypeVar

T = TypeVar("T")
SIZES = 6
"""Dimensions that are free are mostly at most this."""
LARGEST = 512
"""No dimension that is free is larger."""


class Dead(Exception):
    """The decisions so far lead to no instance; the message says which constraint is in the way."""


class Choices(Protocol):
    """Makes decisions. Of the options of each, the first is the simplest."""

    def index(self, count: int, label: Hashable = None) -> int:
        """The number of one of ``count`` options."""

    def size(self) -> int:
        """A dimension that is free, from 1 to :data:`LARGEST`."""

    def hint(self, sizes: Sequence[int]) -> None:
        """Note the sizes that the conditions of the rule ask for."""

    def rare(self) -> bool:
        """True if the choice is to be out of the ordinary."""

    def again(self) -> bool:
        """True if the choice is to be that for another node of the same operator."""


def pick(choices: Choices, options: Sequence[T], label: Hashable = None) -> T:
    """One of the options."""
    if not options:
        raise Dead("no option is left")
    return options[choices.index(len(options), label) if len(options) > 1 else 0]


_POOLS: Sequence[tuple[int, ...]] = (
    (2,), (3,), (1, 2), (2, 3), (1, 2, 3), (2, 4), (3, 5), (2, 3, 4, 5), (1,), (4, 6), (1, 2, 3, 4, 5, 6),
)  # fmt: skip
"""The sizes of an instance come from a few numbers, so that some of them are equal and some are not."""
_SMALL: Sequence[tuple[int, ...]] = ((1, 1, 2), (1, 2), (1, 2, 3))
"""The same, of small instances."""
_SIMPLE: Sequence[float] = (0.8, 0.5, 0.25, 0.0)
"""The probability that the simplest option is taken, by instance."""
_ALIKE: Sequence[float] = (0.5, 0.9, 1.0, 0.2, 0.0)
"""The probability that an attribute is that of another node of the same operator, by instance."""
_APART = 0.35
"""The share of the instances in which all attributes that could differ are alike except one."""
_RARE = 0.08
ATTEMPTS = 12
"""The number of attempts to make an instance, for each wanted one. Instances are rare if more are needed."""
_DERIVED = 0.8
"""The share of the attempts that start from an earlier instance where instances are rare."""
_MUTATED: Sequence[float] = (0.05, 0.1, 0.2, 0.4)
"""The share of the decisions of an earlier instance that are made anew, by instance."""
LARGE = (7, 8, 16, 11, 13)
"""Dimensions that are larger than the usual ones: multiples of 8, and primes."""
_LARGE = 0.2
"""The share of the instances in which a dimension may be such a one, and the probability that it is."""
_HINTED = 0.5
"""The probability that the first size is one that the conditions of the rule ask for, if they do; it falls with each
that is, for few axes may be large."""


class Coverage:
    """The number of times that each option of the labelled decisions was part of an instance that was evaluated, or was
    tried."""

    def __init__(self) -> None:
        self.counts: dict[Hashable, int] = {}
        """The number of options of each labelled decision."""
        self.used: Counter[tuple[Hashable, int]] = Counter()
        self.tried: Counter[tuple[Hashable, int]] = Counter()
        self.agains = 1
        """The largest number of times that an instance asked if it should decide as before."""
        self.attempts = 0
        self.made: list[Sequence[int]] = []
        """The decisions of the instances that were made."""
        self.evaluated: list[Sequence[int]] = []
        """The decisions of those that were evaluated."""

    def parent(self, draw: random.Random) -> Sequence[int]:
        """The decisions of an earlier instance, some of which are to be made anew; none where instances are frequent.

        So fuzzers look for inputs that a program accepts: beside those that are known.
        """
        found = self.evaluated or self.made
        is_rare = self.attempts > ATTEMPTS * (len(self.evaluated) + 1)
        return draw.choice(found) if found and is_rare and draw.random() < _DERIVED else ()

    def weight(self, label: Hashable, option: int) -> float:
        """The value of trying an option: it is lower the more the option was used, and if trying it leads nowhere."""
        used, tried = self.used[label, option], self.tried[label, option]
        return float((used + 1) / (tried + 2) / (used + 1) ** 0.75)


class Random:
    """Decisions by a random generator, which prefers options that earlier instances have not had."""

    def __init__(self, seed: Any, coverage: Coverage, *, small: bool = False) -> None:
        self.random = random.Random(seed)
        self.coverage = coverage
        self.tape: list[int] = []
        """The decisions that were made."""
        self.labelled: list[tuple[Hashable, int]] = []
        self.pool = self.random.choice(_SMALL if small else _POOLS)
        self.simple = self.random.choice(_SIMPLE[:2] if small else _SIMPLE)
        self.alike = self.random.choice(_ALIKE)
        self.apart = self.random.randrange(coverage.agains) if self.random.random() < _APART else None
        """The one attribute that is not alike, by its number among those that could be; ``None`` if there is none."""
        self.agains = 0
        self.large = not small and self.random.random() < _LARGE
        self.hints: Sequence[int] = ()
        self.asked = 0
        """The number of times that a size was such a one."""
        self.parent = coverage.parent(self.random)
        self.mutated = self.random.choice(_MUTATED) if self.parent else 1.0
        """The probability that a decision of the parent is made anew."""

    def _inherited(self) -> int | None:
        """The next decision, as the parent has it; ``None`` if it is to be made anew."""
        place = len(self.tape)
        return self.parent[place] if place < len(self.parent) and self.random.random() >= self.mutated else None

    def index(self, count: int, label: Hashable = None) -> int:
        if count == 1:
            return 0
        inherited = self._inherited()
        found = self._option(count, label) if inherited is None else inherited % count
        if label is not None:
            self.coverage.counts[label] = count
            self.labelled.append((label, found))
        self.tape.append(found)
        return found

    def _option(self, count: int, label: Hashable) -> int:
        if label is not None:
            weights = [self.coverage.weight(label, option) for option in range(count)]
            return self.random.choices(range(count), weights)[0]
        if self.random.random() < self.simple:
            return 0
        return self.random.randrange(count)

    def hint(self, sizes: Sequence[int]) -> None:
        self.hints = sizes

    def size(self) -> int:
        inherited = self._inherited()
        found = self._size() if inherited is None else inherited + 1
        self.tape.append(found - 1)
        return found

    def _size(self) -> int:
        pool: Sequence[int] = self.pool
        if self.hints and self.random.random() < _HINTED / (1 + self.asked):
            self.asked += 1
            pool = self.hints
        elif self.large and self.random.random() < _LARGE:
            pool = LARGE
        return self.random.choice(pool)

    def rare(self) -> bool:
        inherited = self._inherited()
        found = self.random.random() < _RARE if inherited is None else bool(inherited)
        self.tape.append(int(found))
        return found

    def again(self) -> bool:
        number, self.agains = self.agains, self.agains + 1
        self.coverage.agains = max(self.coverage.agains, self.agains)
        inherited = self._inherited()
        if inherited is not None:
            found = not inherited
        else:
            found = self.random.random() < self.alike if self.apart is None else number != self.apart
        self.tape.append(int(not found))
        return found

    def tried(self, *, is_made: bool = False) -> None:
        """Note that the decisions were made, and whether there is an instance of them."""
        self.coverage.attempts += 1
        if is_made:
            self.coverage.made.append(self.tape)
        self.coverage.tried.update(dict.fromkeys(self.labelled, 1))

    def used(self) -> None:
        """Note that an instance of these decisions was evaluated."""
        self.coverage.evaluated.append(self.tape)
        self.coverage.used.update(dict.fromkeys(self.labelled, 1))


class Drawn:
    """Decisions by a function that draws a number up to a bound."""

    def __init__(self, draw: Callable[[int], int]) -> None:
        self.draw = draw

    def index(self, count: int, label: Hashable = None) -> int:
        return 0 if count == 1 else self.draw(count - 1)

    def hint(self, sizes: Sequence[int]) -> None:
        pass

    def size(self) -> int:
        return 1 + self.draw(LARGEST - 1)

    def rare(self) -> bool:
        return bool(self.draw(1))

    def again(self) -> bool:
        return not self.draw(1)

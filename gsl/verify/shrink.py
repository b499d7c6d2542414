"""The smallest instance on which a rule fails: the decisions of one on which it does, made simpler, and then its
values."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import product
from typing import Any

from gsl.graph import Graph, TensorType
from gsl.verify.choices import Choices, Dead, Drawn
from gsl.verify.models import comparison_on
from gsl.verify.models.program import domains_of
from gsl.verify.search import Outcome

MOST_TRIED = 300
"""The largest number of instances that are tried from one start."""
MOST_VALUES = 150
"""The largest number of times that simpler values are tried."""
BLOCKS = (8, 4, 2, 1)
"""The numbers of decisions that are left out at once."""


# ---------------------------------------------------------------- decisions


class Shrinking:
    """The search for the smallest failing instance, from one on which a rule fails.

    Of instances of one size, that of the simpler decisions is the smaller: of fewer, or of as many whose first one that
    differs is less. Where an instance takes more decisions than a tape has, the others are the simplest.
    """

    def __init__(
        self, tape: Sequence[int], generate: Callable[[Choices], Graph], attempt: Callable[[Graph], Outcome],
        first: Outcome,
    ) -> None:  # fmt: skip
        self.tape = tuple(tape)
        self.generate = generate
        self.attempt = attempt
        self.best = first
        self.size = size_of(first)[:-1]
        self.tapes: set[tuple[int, ...]] = set()
        """The tapes that were tried."""
        self.graphs: dict[str, Outcome | None] = {str(first.before): first}
        """The graphs that were tried, by text, with their outcomes if the rule fails on them."""

    def run(self) -> Outcome:
        """The smallest failing instance that is found."""
        while len(self.tapes) < MOST_TRIED and any(map(self._shorter, (_alike, _without, _lower, _lower_and_without))):
            pass
        return self.best

    def _shorter(self, candidates: Callable[[tuple[int, ...]], Iterator[tuple[int, ...]]]) -> bool:
        """True if the rule fails on a smaller instance of one of the candidates, which is then the best."""
        found, again = False, True
        while again:
            again = any(self._fails(tape) for tape in candidates(self.tape))
            found |= again
        return found

    def _fails(self, tape: tuple[int, ...]) -> bool:
        """True if the rule fails on the instance of these decisions, and it is smaller than the best."""
        if tape in self.tapes or len(self.tapes) >= MOST_TRIED:
            return False
        self.tapes.add(tape)
        taken: list[int] = []

        def draw(most: int) -> int:
            place = len(taken)
            taken.append(min(most, tape[place]) if place < len(tape) else 0)
            return taken[-1]

        try:
            graph = self.generate(Drawn(draw))
        except Dead:
            return False
        found = self._outcome(graph)
        if found is None:
            return False
        size = size_of(found)[:-1]
        if (size, len(taken), taken) >= (self.size, len(self.tape), [*self.tape]):
            return False
        self.best, self.size, self.tape = found, size, tuple(taken)
        return True

    def _outcome(self, graph: Graph) -> Outcome | None:
        """The outcome of a graph, if the rule fails on it."""
        text = str(graph)
        if text not in self.graphs:
            found = self.attempt(graph)
            self.graphs[text] = found if found.status == "different" else None
        return self.graphs[text]


def _without(tape: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
    """The tape without its end, and without some of its decisions; then with the simplest ones in their place."""
    yield ()
    yield tape[: len(tape) // 2]
    for count in BLOCKS:
        for start in range(0, len(tape), count):
            yield tape[:start] + tape[start + count :]
    for count in BLOCKS:
        for start in range(0, len(tape), count):
            if any(tape[start : start + count]):
                yield tape[:start] + (0,) * len(tape[start : start + count]) + tape[start + count :]


def _lower(tape: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
    """The tape with one decision halved, or less by one."""
    for place, value in enumerate(tape):
        for lower in dict.fromkeys((value // 2, value - 1)):
            if 0 < lower < value:
                yield (*tape[:place], lower, *tape[place + 1 :])


def _alike(tape: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
    """The tape with all decisions of one value lower: sizes that have to be equal."""
    for value in sorted({value for value in tape if value and tape.count(value) > 1}, reverse=True):
        for lower in dict.fromkeys((0, 1, value // 2, value - 1)):
            if lower < value:
                yield tuple([lower if each == value else each for each in tape])


def _lower_and_without(tape: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
    """The tape with one decision less by one, and without one that follows it: a rank and a size."""
    for place, value in enumerate(tape):
        for other in range(place + 1, min(place + 5, len(tape))) if value else ():
            yield (*tape[:place], value - 1, *tape[place + 1 : other], *tape[other + 1 :])


def size_of(outcome: Outcome) -> tuple[int, int, int, str]:
    """The size of an instance: its nodes, then its elements, then the text that stands for both sides."""
    nodes = outcome.before.nodes
    shapes: list[Any] = [node.type.shape for node in nodes if isinstance(node.type, TensorType)]
    text = str(outcome.before)
    return len(nodes), sum(map(math.prod, shapes)), len(text), text


# ---------------------------------------------------------------- values


SIMPLE = (0, 1, -1, 2, -2, 0.5)
"""The values that stand in for others, the simplest first."""


def with_simple_values(outcome: Outcome) -> Outcome:
    """The outcome on simpler values of the leaves, on which the same outputs differ in the same way."""
    comparison = outcome.comparison
    if outcome.after is None or not comparison.inputs:
        return outcome
    compare_on = comparison_on(outcome.before, outcome.after, comparison)
    if compare_on(comparison.inputs) is None:  # a difference that is small beside the values
        return outcome
    tried, domains = 0, domains_of(outcome.before)
    for name, tensor in comparison.inputs.items():
        for place in _places(tensor):
            for value in _simpler(comparison.inputs[name][place]):
                if tried == MOST_VALUES:
                    break
                tried += 1
                changed = comparison.inputs[name].clone()
                changed[place] = value
                if name in domains and domains[name].outside(changed) is not None:
                    continue
                found = compare_on({**comparison.inputs, name: changed})
                if found is not None:
                    comparison = found
                    break
    return replace(outcome, comparison=comparison)


def _places(tensor: Any) -> Iterator[Any]:
    """All of a tensor, then its elements."""
    yield ...
    if tensor.numel() > 1:
        yield from product(*map(range, tensor.shape))


def _simpler(part: Any) -> Iterator[Any]:
    """Simpler values than that of an element, or than those of several."""
    options = (False,) if str(part.dtype) == "torch.bool" else SIMPLE[: None if part.dtype.is_floating_point else -1]
    first = part.reshape(-1)[:1].tolist() if part.numel() else []
    own = options.index(first[0]) if part.numel() == 1 and first[0] in options else len(options)
    yield from options[:own]
    size = abs(first[0]) if part.numel() == 1 else 0
    if 8 < size < math.inf:
        power = math.floor(math.log2(size))
        yield from (math.copysign(2**power, first[0]), math.copysign(2 ** (power + 1), first[0]))
    if part.dtype.is_floating_point and bool((part != part.trunc()).any()):
        yield part.trunc()

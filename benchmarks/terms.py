"""Graphs and rules in a form of no framework, of which those of all frameworks are made, and in which they compare."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from benchmarks.measure import Different

Tree = Any
"""A pattern: a text is a leaf, a tuple ``(operator, operand, …)`` a call, a Literal an argument that must be equal."""


@dataclass(frozen=True)
class Literal:
    """An argument of a call that is no node."""

    value: Any


@dataclass(frozen=True)
class Rule:
    """A rule: its source becomes one call of an operator of its name, on the leaves in order."""

    name: str
    source: Tree
    fake: Callable[..., Any] | None = None
    """Makes a result without data, of tensors without data, as kernels have it; else the source is run on these."""

    @property
    def leaves(self) -> tuple[str, ...]:
        """The leaves of the source, each once, in order."""
        return tuple(dict.fromkeys(leaves(self.source)))


def leaves(tree: Tree) -> Iterator[str]:
    """The leaves of a pattern, from left to right."""
    if isinstance(tree, str):
        yield tree
    elif isinstance(tree, tuple):
        for operand in tree[1:]:
            yield from leaves(operand)


def operators(tree: Tree) -> Iterator[Any]:
    """The operators of a pattern, from the root on."""
    if isinstance(tree, tuple):
        yield tree[0]
        for operand in tree[1:]:
            yield from operators(operand)


Call = tuple[Any, tuple[int, ...]]
"""An operator, and the numbers of its operands."""


@dataclass(frozen=True)
class Terms:
    """A graph: the inputs have the first numbers, then come the calls, in order."""

    inputs: tuple[str, ...]
    calls: tuple[Call, ...]
    outputs: tuple[int, ...]

    def canonical(self) -> Terms:
        """The same terms in the one order that follows from the outputs; equal calls are one, unused ones are gone."""
        first = len(self.inputs)
        numbers: dict[int, int] = {number: number for number in range(first)}
        known: dict[Call, int] = {}
        for output in self.outputs:
            stack = [output]
            while stack:
                number = stack[-1]
                if number in numbers:
                    stack.pop()
                    continue
                operator, operands = self.calls[number - first]
                missing = [operand for operand in operands if operand not in numbers]
                if missing:
                    stack += reversed(missing)
                    continue
                call = (operator, tuple([numbers[operand] for operand in operands]))
                numbers[number] = known.setdefault(call, first + len(known))
                stack.pop()
        return Terms(self.inputs, tuple(known), tuple(numbers[output] for output in self.outputs))


def read(inputs: Sequence[tuple[str, Any]], calls: Iterable[tuple[Any, Any, Sequence[Any]]], outputs: Any) -> Terms:
    """The terms of a native graph: inputs by name, calls as (result, operator, operands), and results."""
    numbers = {value: number for number, (_, value) in enumerate(inputs)}
    made: list[Call] = []
    for result, operator, operands in calls:
        made.append((operator, tuple([numbers[operand] for operand in operands])))
        numbers[result] = len(numbers)
    return Terms(tuple(name for name, _ in inputs), tuple(made), tuple(numbers[output] for output in outputs))


def require_same(found: Terms, expected: Terms) -> None:
    """Raise Different unless two graphs are the same."""
    found, expected = found.canonical(), expected.canonical()
    if found == expected:
        return
    for number, (one, other) in enumerate(zip(found.calls, expected.calls)):
        if one != other:
            raise Different(f"call {number} is {one}, expected {other}")
    raise Different(f"there are {len(found.calls)} calls, expected {len(expected.calls)}, or other outputs")


class Writer:
    """Writes terms, call by call."""

    def __init__(self, *inputs: str) -> None:
        self.inputs = inputs
        self.calls: list[Call] = []

    def __getitem__(self, name: str) -> int:
        return self.inputs.index(name)

    def call(self, operator: Any, *operands: int) -> int:
        """The number of a new call."""
        self.calls.append((operator, operands))
        return len(self.inputs) + len(self.calls) - 1

    def done(self, *outputs: int) -> Terms:
        """The graph with these outputs."""
        return Terms(self.inputs, tuple(self.calls), outputs)


def chain(inputs: Sequence[str], links: Sequence[tuple[str, Sequence[str]]], count: int) -> Terms:
    """``count`` calls in a row from the first input on: the links, with their other operands, over and over."""
    writer = Writer(*inputs)
    rest = [(operator, [writer[name] for name in others]) for operator, others in links]
    value = 0
    for number in range(count):
        operator, others = rest[number % len(rest)]
        value = writer.call(operator, value, *others)
    return writer.done(value)

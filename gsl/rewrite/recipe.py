"""A target as a list of steps, compiled once: for targets that build the same calls for every match.

:meth:`gsl.rewrite.build.Builder.build` is the reference. It also builds what depends on the match, and is not compiled:
alternatives, conditions, instances of variadics, and expressions that read attributes of what the target builds.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from gsl.attr.ast import Ast, Literal
from gsl.graph import Node
from gsl.match.guard import references
from gsl.pat import Call, Const, GetItem, Like, OpClass, Pattern, Tuple
from gsl.rewrite.build import Builder, Free, needed, not_matched
from gsl.spec import OpSpec

Step = Callable[[Builder, list[Node]], Node]
"""Makes a node, or looks up that of a pattern of the source, given the nodes of the steps before it."""


class Recipe:
    """The steps that build the outputs of a target, each once."""

    __slots__ = ("outputs", "steps")

    def __init__(self, steps: Sequence[Step], outputs: Sequence[int]) -> None:
        self.steps = tuple(steps)
        self.outputs = tuple(outputs)
        """For each output the number of the step that makes it."""

    def build(self, builder: Builder) -> list[Node]:
        """The nodes of the outputs. Raises Refusal where there can't be one."""
        nodes: list[Node] = []
        for step in self.steps:
            nodes.append(step(builder, nodes))
        return [nodes[number] for number in self.outputs]


def compiled(
    outputs: Sequence[Pattern], known: Collection[Pattern], scopes: Collection[Pattern], free: Free
) -> Recipe | None:
    """The steps of a target, in the order in which the reference takes them; ``None`` if it has to be the reference.

    ``known`` are the patterns of the source, ``scopes`` the templates among them.
    """
    steps: list[Step] = []
    numbers: dict[Pattern, int] = {}

    def look_up(pattern: Pattern) -> None:
        if pattern not in numbers and pattern in known:
            numbers[pattern] = len(steps)
            steps.append(_matched(pattern))

    for output in outputs:
        work = [output]
        while work:
            pattern = work[-1]
            look_up(pattern)
            if pattern in numbers:
                work.pop()
                continue
            if pattern in scopes or not _is_plain(pattern, known, scopes):
                return None
            operands = needed(pattern)
            for operand in operands:
                look_up(operand)
            below = [operand for operand in operands if operand not in numbers]
            if below:
                work += reversed(below)
                continue
            work.pop()
            steps.append(_STEPS[type(pattern)](pattern, [numbers[operand] for operand in operands], free))
            numbers[pattern] = len(steps) - 1
    if any(pattern in scopes for pattern in numbers):
        return None
    return Recipe(steps, [numbers[output] for output in outputs])


def _is_plain(pattern: Pattern, known: Collection[Pattern], scopes: Collection[Pattern]) -> bool:
    """Whether a pattern is built in the same way for every match, from what is matched."""
    if pattern.guard is not None or pattern.free_symbols or type(pattern) not in _STEPS:
        return False
    return all(used in known and used not in scopes for node in pattern.expressions() for used in references(node))


def _matched(pattern: Pattern) -> Step:
    def step(builder: Builder, nodes: list[Node]) -> Node:
        node = builder.match.bindings.nodes.get(pattern)
        if node is None:
            raise not_matched(pattern)
        return node

    return step


def _call(pattern: Call, operands: list[int], free: Free) -> Step:
    op, values = pattern.op, _literals(pattern.attrs)
    left_out = free.get(op.name, ()) if isinstance(op, OpSpec) else ()
    if not isinstance(op, OpClass) and values is not None and all(name in values for _, name in left_out):
        return lambda builder, nodes: builder.new_call(op, [nodes[i] for i in operands], values, given=pattern)
    return lambda builder, nodes: builder.call(pattern, [nodes[number] for number in operands], {})


def _literals(attrs: Mapping[str, Ast]) -> dict[str, Any] | None:
    """The values of attributes that are written out; ``None`` if one has to be computed."""
    values = {name: node.value for name, node in attrs.items() if isinstance(node, Literal)}
    return values if len(values) == len(attrs) else None


def _like(pattern: Like, operands: list[int], free: Free) -> Step:
    model, *rest = operands
    return lambda builder, nodes: builder.like(pattern, nodes[model], [nodes[number] for number in rest], {})


def _tuple(pattern: Tuple, operands: list[int], free: Free) -> Step:
    return lambda builder, nodes: builder.tuple([nodes[number] for number in operands])


def _getitem(pattern: GetItem, operands: list[int], free: Free) -> Step:
    (whole,), index = operands, pattern.number
    assert index is not None
    return lambda builder, nodes: builder.getitem(nodes[whole], builder.value(index, {}))


def _const(pattern: Const, operands: list[int], free: Free) -> Step:
    return lambda builder, nodes: builder.const(pattern, {})


_STEPS: Mapping[type[Pattern], Callable[[Any, list[int], Free], Step]] = {
    Call: _call, Like: _like, Tuple: _tuple, GetItem: _getitem, Const: _const,
}  # fmt: skip

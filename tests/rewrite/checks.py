"""What must hold of every view, and of every rewrite."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from gsl.graph import INPUT, LEAVES, Graph, Node, TensorType
from gsl.rewrite import Trace
from tests.helpers import tensors
from tests.helpers.graphs import run


def faults(view: Graph) -> list[str]:
    """What is wrong with a view: order, users, outputs, and nodes made by a rewrite that nothing needs."""
    found: list[str] = []
    place = {node: number for number, node in enumerate(view.nodes)}
    if len(place) < len(view.nodes):
        found.append("a node stands twice")
    outputs = set(view.outputs)
    found += [f"output {node} is not in the graph" for node in outputs if node not in place]
    for node in view.nodes:
        needed = (*node.operands, *node.deps)
        found += [f"{node} stands before its operand {o}" for o in needed if place.get(o, len(place)) >= place[node]]
        found += [f"{o} does not know its user {node}" for o in needed if node not in o.users]
        found += [f"{node} has a user {u} outside of the graph" for u in node.users if u not in place]
        found += [f"{node} is not used by {u}" for u in node.users if node not in (*u.operands, *u.deps)]
        if node.index != place[node]:
            found.append(f"{node} has the number {node.index}, stands at {place[node]}")
        if node.origin is not None and not node.users and node not in outputs and node.effect is None:
            found.append(f"{node} was made for nothing")
    return found


def random_inputs(view: Graph, seed: int = 0) -> dict[str, Any]:
    values: dict[str, Any] = {}
    for node in view.nodes:
        if node.op == INPUT:
            assert isinstance(node.type, TensorType)
            shape = node.type.shape
            values[node.name] = abs(tensors.randn(*shape, seed=seed + len(values))) + 0.5  # type: ignore[arg-type]
    return values


def same_numbers(before: Graph, after: Graph) -> bool:
    inputs = random_inputs(before)
    left, right = run(before, inputs), run(after, inputs)
    return len(left) == len(right) and all(map(tensors.is_close, left, right))


def rewritten(rule: Any, view: Graph, *, numbers: bool = True, **options: Any) -> tuple[Graph, Trace]:
    """What the rule makes of a view, after checking all that every rewrite must keep."""
    text, nodes = str(view), list(view.nodes)
    users = {node: list(node.users) for node in view}
    new, trace = rule.apply(view, **options)
    assert str(view) == text
    assert view.nodes == nodes
    assert {node: list(node.users) for node in view} == users
    assert faults(view) == []
    assert faults(new) == []
    assert not set(new.nodes) & set(nodes) or (new is view and not trace.firings)
    assert not numbers or same_numbers(view, new)
    return new, trace


def ops(view: Graph) -> list[str]:
    """The operators of the calls, in order."""
    return [str(node.op) for node in view if node.op not in LEAVES]


def corrupted(view: Graph, spoil: Callable[[Mapping[str, Node], Graph], None]) -> Graph:
    copy = view.copy()
    spoil({node.name: node for node in copy}, copy)
    return copy

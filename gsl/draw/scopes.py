"""The parts of a model that the nodes of a view belong to: modules in modules, with equal neighbours as one.

A part of the drawing must not use what it is used by, so a module is taken as runs of nodes that follow each other in
the order of the graph: between runs, edges only go forward.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import Union

from gsl.graph import CONST, GETITEM, LEAVES, PARAM, Graph, Node, is_call, op_name
from gsl.graph.text import is_scalar, value_text
from gsl.walk import reached

ScopePath = tuple[str, ...]
"""The names of modules, from the outermost one."""
ScopeOf = Callable[[Node], ScopePath]


@dataclass(eq=False)
class ScopePart:
    """A module, or a run of its nodes: the nodes and modules inside, in order."""

    path: ScopePath
    items: list[ScopeItem]
    equals: list[ScopePart] = field(default_factory=list)
    """The parts after this one that are equal to it, and are drawn by it."""

    def nodes(self) -> Iterator[Node]:
        """All nodes inside, in order; not those of the parts that are equal to this one."""
        for item in self.items:
            if isinstance(item, ScopePart):
                yield from item.all_nodes()
            else:
                yield item

    def all_nodes(self) -> Iterator[Node]:
        """All nodes inside, and those of the parts that are equal to this one."""
        yield from self.nodes()
        for part in self.equals:
            yield from part.nodes()


ScopeItem = Union[Node, ScopePart]


def inherited(scope: ScopeOf) -> ScopeOf:
    """The scope of a view that rules have worked on: a new node is in the module in which all nodes were that it
    replaces."""

    def replaced(node: Node) -> Sequence[Node] | None:
        return node.origin.replaced if node.native is None and node.origin is not None else None

    def of(node: Node) -> ScopePath:
        found = [scope(old) for old in reached([node], lambda new: replaced(new) or ()) if replaced(old) is None]
        return _shared(found) if found else ()

    return of


def parts(graph: Graph, scope: ScopeOf | None, colours: Mapping[Node, object]) -> list[ScopeItem]:
    """The calls of a view, tuples and fields with them, by the modules that they belong to.

    Equal modules that follow each other are folded into the first; nodes with different ``colours`` are not equal.
    """
    return _folded(_grouped(_together(graph), modules_of(graph, scope), 0), colours)


def modules_of(graph: Graph, scope: ScopeOf | None) -> Mapping[Node, ScopePath]:
    """The module that each node belongs to. Without a scope, or where it knows nothing, the names of weights tell."""
    paths = {node: scope(node) for node in graph.nodes if node.op not in LEAVES} if scope is not None else {}
    return paths if any(paths.values()) else by_weights(graph)


def _together(graph: Graph) -> list[Node]:
    """All nodes except leaves, in an order in which fields follow their call."""
    fields: dict[Node, list[Node]] = {}
    nodes: list[Node] = []
    for node in graph.nodes:
        if node.op == GETITEM and node.operands[0].op not in LEAVES:
            fields.setdefault(node.operands[0], []).append(node)
        elif node.op not in LEAVES:
            nodes.append(node)
    stack, ordered = nodes[::-1], []
    while stack:
        ordered.append(stack.pop())
        stack += reversed(fields.get(ordered[-1], ()))
    return ordered


def by_weights(graph: Graph) -> dict[Node, ScopePath]:
    """The modules of calls by the names of their weights; a call between two modules belongs to their common part."""
    own: dict[Node, ScopePath] = {}
    for node in graph.nodes:
        weights = [_names(operand.name) for operand in node.operands if operand.op == PARAM]
        if weights and node.op not in LEAVES:
            own[node] = _shared(weights)
    before: dict[Node, ScopePath] = {}
    for node in graph.nodes:
        near = [operand for operand in node.operands if operand in before]
        if node in own:
            before[node] = own[node]
        elif near:
            before[node] = before[max(near, key=lambda operand: operand.index)]
    after: dict[Node, ScopePath] = {}
    for node in reversed(graph.nodes):
        users = [user for user in node.users if user in after]
        if node in own:
            after[node] = own[node]
        elif users:
            after[node] = after[min(users, key=lambda user: user.index)]
    return {
        node: own[node] if node in own else _between(before.get(node, ()), after.get(node, ()))
        for node in graph.nodes
        if node.op not in LEAVES
    }


def _between(before: ScopePath, after: ScopePath) -> ScopePath:
    """The module of a node that has no weights, by those before and after it. A node that joins two layers ends the
    first."""
    if not after:
        numbered = [place for place, name in enumerate(before, 1) if name.isdecimal()]
        return before[: numbered[-1]] if numbered else ()
    shared = _shared([before, after])
    following = [path[len(shared) : len(shared) + 1] for path in (before, after)]
    is_numbered = all(name and name[0].isdecimal() for name in following)
    return (*shared, *following[0]) if is_numbered else shared


def _names(weight: str) -> ScopePath:
    """The modules in the name of a weight, as torch writes it or as exporters to TVM do."""
    separator = r"\." if "." in weight else "_"
    names = [name for name in re.split(separator, weight) if name]
    return tuple(names[1:-1] if separator == "_" and names[:1] in (["p"], ["b"], ["c"]) else names[:-1])


def _shared(paths: Sequence[ScopePath]) -> ScopePath:
    """The beginning that all paths have in common."""
    shared = []
    for names in zip(*paths):
        if len(set(names)) > 1:
            break
        shared.append(names[0])
    return tuple(shared)


def _grouped(nodes: Sequence[Node], paths: Mapping[Node, ScopePath], depth: int) -> list[ScopeItem]:
    """Runs of nodes with the same module at a depth as parts."""
    items: list[ScopeItem] = []
    for beginning, run in groupby(nodes, key=lambda node: paths.get(node, ())[: depth + 1]):
        inside = list(run)
        if len(beginning) <= depth:
            items += inside
            continue
        found = _grouped(inside, paths, depth + 1)
        if sum(map(is_call, inside)) < 2:
            items += inside
        elif len(found) == 1 and isinstance(found[0], ScopePart):
            items += found  # a module that is nothing but another module
        else:
            items.append(ScopePart(beginning, found))
    return items


def _folded(items: list[ScopeItem], colours: Mapping[Node, object]) -> list[ScopeItem]:
    """The items, of which parts that are equal to the one before are folded into it."""
    folded: list[ScopeItem] = []
    last: object = None
    for item in items:
        if not isinstance(item, ScopePart):
            folded.append(item)
            last = None
            continue
        item.items = _folded(item.items, colours)
        if len(item.items) == 1 and isinstance(item.items[0], ScopePart):
            item = item.items[0]  # all that is in it is some equal parts
        found = _signature(item, colours)
        before = folded[-1] if folded else None
        if last == found and isinstance(before, ScopePart) and _siblings(before.path, item.path):
            before.equals.append(item)
        else:
            folded.append(item)
        last = found
    return folded


def _siblings(one: ScopePath, other: ScopePath) -> bool:
    """True for two paths that differ in one number only."""
    different = [(a, b) for a, b in zip(one, other) if a != b]
    return len(one) == len(other) and len(different) == 1 and all(name.isdecimal() for name in different[0])


def _signature(part: ScopePart, colours: Mapping[Node, object]) -> object:
    """A key that is equal for parts that compute the same with other weights."""
    numbers: dict[Node, int] = {}
    outside: dict[Node, int] = {}
    rows = []
    for node in part.nodes():
        operands: list[tuple[str, object]] = []
        for operand in node.operands:
            if operand in numbers:
                operands.append(("inside", numbers[operand]))
            elif is_scalar(operand):
                operands.append(("number", value_text(operand.attrs["value"])))
            elif operand.op in (PARAM, CONST):
                operands.append(("weight", str(operand.type)))
            else:
                operands.append(("outside", outside.setdefault(operand, len(outside))))
        attributes = tuple((name, _plain(value)) for name, value in node.attrs.items())
        rows.append((op_name(node.op), tuple(operands), attributes, str(node.type), colours.get(node)))
        numbers[node] = len(numbers)
    return rows


def _plain(value: object) -> str:
    """An attribute's value without the names of nodes, which differ from layer to layer."""
    return re.sub(r"%\w+", "%", value_text(value))

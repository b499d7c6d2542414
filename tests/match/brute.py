"""The semantics of patterns, written down as an enumeration: every assignment of nodes to patterns that is a match."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import product
from typing import Any

from gsl.attr.ast import Ast, Attribute, Literal
from gsl.graph import CONST, GETITEM, TUPLE, Graph, Node
from gsl.pat import Alt, And, Call, Const, GetItem, Leaf, Not, OpClass, Pattern, Tuple, walk
from gsl.spec import TABLE

Same = dict[Pattern, set[Pattern]]
Assignment = dict[Any, Any]
"""The node of each pattern; and under ``("choice", alternative)``, the choice that was taken."""


def matches(outputs: list[Pattern], graph: Graph) -> list[Assignment]:
    """All assignments."""
    one = conjunctions(outputs)
    return [
        assignment
        for nodes in product(graph.nodes, repeat=len(outputs))
        for assignment in join([solutions(p, n) for p, n in zip(outputs, nodes)])
        if is_injective(assignment, one) and holds(assignment, {}, one)
    ]


def nodes_of(assignment: Assignment) -> dict[Pattern, Node]:
    """The assignment without the choices."""
    return {key: value for key, value in assignment.items() if isinstance(key, Pattern)}


def solutions(pattern: Pattern, node: Node) -> list[Assignment]:
    """What a pattern can be when it is the node, by structure alone; patterns may still be the same node."""
    here = [{pattern: node}]
    if isinstance(pattern, Leaf):
        return here if leaf_admits(pattern, node) else []
    if isinstance(pattern, Call):
        if not call_admits(pattern, node):
            return []
        orders = [node.operands]
        if len(node.operands) == 2 and TABLE[node.op].commutative:
            orders.append(node.operands[::-1])
        return [a for order in orders for a in join([here, *map(solutions, pattern.operands, order)])]
    if isinstance(pattern, Tuple):
        if node.op != TUPLE or len(node.operands) != len(pattern.items):
            return []
        return list(join([here, *map(solutions, pattern.items, node.operands)]))
    if isinstance(pattern, GetItem):
        if node.op != GETITEM or (pattern.number is not None and pattern.number.value != node.attrs["index"]):
            return []
        return list(join([here, solutions(pattern.tuple, node.operands[0])]))
    if isinstance(pattern, Alt):
        return [
            a
            for choice in pattern.choices
            for a in join([[{pattern: node, ("choice", pattern): choice}], solutions(choice, node)])
        ]
    if isinstance(pattern, And):
        return list(join([here, *[solutions(part, node) for part in pattern.both]]))
    assert isinstance(pattern, Not)
    return here


def leaf_admits(pattern: Leaf, node: Node) -> bool:
    if pattern.kinds is not None and node.op not in pattern.kinds:
        return False
    if not isinstance(pattern, Const) or pattern.literal is None:
        return True
    return node.op == CONST and node.attrs["value"] == pattern.literal.value


def call_admits(pattern: Call, node: Node) -> bool:
    if isinstance(pattern.op, OpClass):
        if not pattern.op.accepts(node.op):
            return False
    elif node.op != pattern.op.name:
        return False
    literals = {name: value.value for name, value in pattern.attrs.items() if isinstance(value, Literal)}
    return len(node.operands) == len(pattern.operands) and all(node.attrs[n] == v for n, v in literals.items())


def join(parts: Iterable[list[Assignment]]) -> Iterator[Assignment]:
    """Every choice of one assignment from each part in which shared patterns agree."""
    joined: list[Assignment] = [{}]
    for part in parts:
        joined = [
            {**a, **b} for a in joined for b in part if all(a[pattern] is b[pattern] for pattern in a.keys() & b.keys())
        ]
    yield from joined


def is_injective(assignment: Assignment, one: Same) -> bool:
    """Whether different operators are different nodes, unless they are parts of one conjunction."""
    operators = [p for p in assignment if isinstance(p, (Call, Tuple, GetItem))]
    return not any(
        assignment[p] is assignment[q] and q not in one.get(p, ())
        for number, p in enumerate(operators)
        for q in operators[:number]
    )


def conjunctions(outputs: list[Pattern]) -> Same:
    """For every pattern, those that conjunctions of the source make the same node."""
    together: list[set[Pattern]] = []
    for pattern in walk(*outputs):
        if isinstance(pattern, And):
            parts = {pattern}
            work: list[Pattern] = [pattern]
            while work:
                part = work.pop()
                new = set(part.children()) - parts if isinstance(part, (And, Alt)) else set()
                parts |= new
                work += new
            for other in [group for group in together if group & parts]:
                together.remove(other)
                parts |= other
            together.append(parts)
    return {pattern: group for group in together for pattern in group}


def holds(assignment: Assignment, outside: Assignment, one: Same) -> bool:
    """Whether guards, operator classes, distinct leaves and negations hold for what is assigned."""
    everything = {**outside, **assignment}
    for pattern, node in nodes_of(assignment).items():
        for name, value in pattern.attrs.items() if isinstance(pattern, Call) else ():
            if not isinstance(value, Literal) and read(value, everything) != node.attrs[name]:
                return False
        if isinstance(pattern, Leaf) and pattern.distinct:
            others = [p for p in nodes_of(everything) if p is not pattern and not isinstance(p, (Alt, And, Not))]
            if any(everything[p] is node and p not in one.get(pattern, ()) for p in others):
                return False
        if isinstance(pattern, Not) and is_there(pattern.pattern, node, everything, one):
            return False
    operators: dict[OpClass, Any] = {}
    for pattern, node in everything.items():
        if (
            isinstance(pattern, Call)
            and isinstance(pattern.op, OpClass)
            and operators.setdefault(pattern.op, node.op) != node.op
        ):
            return False
    return True


def is_there(pattern: Pattern, node: Node, outside: Assignment, one: Same) -> bool:
    """Whether a negated pattern matches a node, when the patterns around it are what they are."""
    for found in solutions(pattern, node):
        if all(found[p] is outside[p] for p in found.keys() & outside.keys()):
            new = {p: n for p, n in found.items() if p not in outside}
            if is_injective(new, one) and holds(new, outside, one):
                return True
    return False


def read(value: Ast, assignment: Assignment) -> Any:
    """The value of ``pattern.name``; nothing equals that of a pattern that has no node."""
    assert isinstance(value, Attribute)
    node = assignment.get(value.pattern)
    return object() if node is None else node.attrs.get(value.name, object())


def is_connected(outputs: list[Pattern], assignment: Assignment) -> bool:
    """Whether the patterns that are bound hang together."""
    reached, size = {outputs[0]}, 0
    while len(reached) > size:
        size = len(reached)
        for pattern in nodes_of(assignment):
            choice = assignment.get(("choice", pattern))
            children = pattern.children() if choice is None else [choice]
            if not isinstance(pattern, Not):
                below = {child for child in children if child in assignment}
                if pattern in reached or below & reached:
                    reached |= {pattern, *below}
    return all(output in reached for output in outputs)

"""The semantics of use relations, written down as an enumeration: every assignment of nodes to patterns that matches.

The keys of an assignment are ``(pattern, path)``, where the path numbers the instances of repeated patterns (the last
node of a chain is 0), ``("choice", pattern, path)``, and ``("skip", …)`` for the nodes that stand between two others.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any

from gsl.graph import LEAVES, Graph, Node
from gsl.pat import (
    Alt,
    And,
    AttrEqual,
    Call,
    ExternUse,
    Leaf,
    Not,
    OpClass,
    Pattern,
    Repeat,
    Seq,
    Unique,
    Use,
    walk,
)
from gsl.spec import TABLE
from tests.match.brute import leaf_admits

Assignment = dict[Any, Any]


@dataclass(frozen=True)
class Case:
    """What is asked: a source and a graph."""

    outputs: tuple[Pattern, ...]
    constraints: tuple[Any, ...]
    graph: Graph
    fuzzy: frozenset[str] = frozenset()
    extern_use: bool | None = None
    outside: Any = None
    """For a negation, what is assigned around it."""

    @property
    def roots(self) -> tuple[Pattern, ...]:
        """What every match binds."""
        related = [p for c in self.constraints if isinstance(c, Use) for p in c.patterns()]
        return tuple(dict.fromkeys((*self.outputs, *related)))


def matches(case: Case) -> Iterator[Assignment]:
    """All assignments."""
    found: list[Assignment] = [{}]
    for root in case.roots:
        everywhere = [a for node in case.graph for a in solutions(case, root, node, ())]
        found = join([found, everywhere])
    for use in case.constraints:
        if isinstance(use, Use):
            found = [b for a in found for b in related(case, use, a, ())]
    return (a for a in found if holds(case, a))


def join(parts: Iterable[list[Assignment]]) -> list[Assignment]:
    """Every choice of one assignment from each part in which shared keys agree."""
    joined: list[Assignment] = [{}]
    for part in parts:
        joined = [{**a, **b} for a in joined for b in part if all(a[key] == b[key] for key in a.keys() & b.keys())]
    return joined


def solutions(case: Case, pattern: Pattern, node: Node, path: tuple[int, ...]) -> list[Assignment]:
    """What a pattern can be when it is the node, by structure alone."""
    here = [{(pattern, path): node}]
    match pattern:
        case Leaf():
            return here if leaf_admits(pattern, node) else []
        case Call():
            return list(calls(case, pattern, node, path))
        case Alt():
            return [
                a
                for choice in pattern.choices
                for a in join([[{**here[0], ("choice", pattern, path): choice}], solutions(case, choice, node, path)])
            ]
        case And():
            return join([here, *[solutions(case, part, node, path) for part in pattern.both]])
        case Not():
            return here
        case Seq():
            found = join([here, solutions(case, pattern.tail, node, path)])
            for use in pattern.uses[::-1]:
                everywhere = [a for other in case.graph for a in solutions(case, use.operand, other, path)]
                found = [b for a in join([found, everywhere]) for b in related(case, use, a, path)]
            return found
    assert isinstance(pattern, Repeat)
    return [{**here[0], **a} for a in chains(case, pattern, node, path, 0)]


def calls(case: Case, pattern: Call, node: Node, path: tuple[int, ...]) -> Iterator[Assignment]:
    """What a call can be when it is the node."""
    op = pattern.op
    if not (op.accepts(node.op) if isinstance(op, OpClass) else node.op == op.name):
        return
    here = [{(pattern, path): node}]
    if pattern.operands is None:
        yield from here
    elif len(node.operands) == len(pattern.operands):
        orders = [tuple(range(len(node.operands)))]
        if len(node.operands) == 2 and TABLE[node.op].commutative:
            orders.append((1, 0))
        for order in orders:
            parts = [
                [
                    {**a, ("skip", pattern, path, number): skipped}
                    for below, skipped in beyond(case, node.operands[index])
                    for a in solutions(case, operand, below, path)
                ]
                for number, (operand, index) in enumerate(zip(pattern.operands, order))
            ]
            yield from join([here, *parts])


def beyond(case: Case, node: Node) -> list[tuple[Node, frozenset[Node]]]:
    """A node, and what is found instead of it when nodes are skipped."""
    ways = [(node, frozenset[Node]())]
    while node.op in case.fuzzy:
        ways.append((node.operands[0], ways[-1][1] | {node}))
        node = node.operands[0]
    return ways


def chains(case: Case, repeat: Repeat, node: Node, path: tuple[int, ...], number: int) -> Iterator[Assignment]:
    """The chains whose part from here on ends in the node; ``number`` nodes come after it."""
    inner = (*path, number)
    for a in solutions(case, repeat.pattern, node, inner):
        first = head(repeat.pattern, a, inner)
        if number + 1 >= repeat.min:
            yield {**a, ("head", repeat, path): first}
        computed = {operand for operand in first.operands if operand.op not in LEAVES}
        if len(computed) == 1 and (repeat.max is None or number + 1 < repeat.max):
            for below, skipped in beyond(case, computed.pop()):
                if below.op not in LEAVES:
                    for b in chains(case, repeat, below, path, number + 1):
                        yield {**b, **a, ("skip", repeat, inner): skipped}


def head(pattern: Pattern, a: Assignment, path: tuple[int, ...]) -> Node:
    """The node by which a pattern uses something."""
    match pattern:
        case Seq():
            return head(pattern.head, a, path)
        case Repeat():
            return a["head", pattern, path]  # type: ignore[no-any-return]
        case Alt():
            return head(a["choice", pattern, path], a, path)
        case And():
            for part in pattern.both:
                if any(isinstance(p, (Seq, Repeat)) for p in same_node(part)):
                    return head(part, a, path)
    return a[pattern, path]  # type: ignore[no-any-return]


def same_node(pattern: Pattern) -> list[Pattern]:
    """A pattern and those that are the same node, but not what they are made of otherwise."""
    return [pattern, *(q for p in pattern.same_node() for q in same_node(p))]


def related(case: Case, use: Use, a: Assignment, path: tuple[int, ...]) -> Iterator[Assignment]:
    """The assignment with each of the ways in which a relation holds."""
    user, operand = head(use.user, a, path), a[use.operand, path]
    for index, first in enumerate(user.operands):
        if use.index in (None, index):
            for below, skipped in beyond(case, first):
                between = {*skipped, below}
                if below is operand and not (use.only and any(is_shared(case, n, user, skipped) for n in between)):
                    yield {**a, ("skip", use, path): skipped}


def is_shared(case: Case, node: Node, user: Node, skipped: frozenset[Node]) -> bool:
    """Whether a node on the way from the user down is used by another than the one above it."""
    return len(node.users) > 1 or not set(node.users) <= {user, *skipped} or node in case.graph.outputs


def holds(case: Case, a: Assignment) -> bool:
    """Whether everything holds that is not a relation."""
    new = {key: node for key, node in a.items() if case.outside is None or key not in case.outside}
    operators = {key: node for key, node in new.items() if isinstance(key[0], Call)}
    skipped = frozenset[Node]().union(*(nodes for key, nodes in new.items() if key[0] == "skip"))
    covered = {*operators.values(), *skipped}
    return (
        is_injective(case, operators)
        and not skipped & set(operators.values())
        and one_operator_each(a)
        and all(constraint_holds(case, c, p, a, covered) for c, p in constraints(case, new))
        and inner_uses_hold(case, a, covered)
        and not any(isinstance(k[0], Not) and is_there(case, k[0].pattern, n, a, k[1]) for k, n in new.items())
    )


def is_injective(case: Case, operators: Assignment) -> bool:
    """Whether different operators are different nodes, unless they are parts of one conjunction."""
    one = conjunctions(case)
    return not any(
        operators[p] is operators[q] and not (p[1] == q[1] and q[0] in one.get(p[0], ()))
        for number, p in enumerate(operators)
        for q in list(operators)[:number]
    )


def conjunctions(case: Case) -> dict[Pattern, set[Pattern]]:
    """For every pattern, those that conjunctions of the source make the same node."""
    groups: list[set[Pattern]] = []
    for pattern in walk(*case.roots):
        if isinstance(pattern, And):
            group = set(same_node(pattern))
            for other in [g for g in groups if g & group]:
                groups.remove(other)
                group |= other
            groups.append(group)
    return {pattern: group for group in groups for pattern in group}


def one_operator_each(a: Assignment) -> bool:
    operators: dict[Any, Any] = {}
    return all(
        operators.setdefault(key[0].op, node.op) == node.op
        for key, node in a.items()
        if isinstance(key[0], Call) and isinstance(key[0].op, OpClass)
    )


def constraints(case: Case, new: Assignment) -> Iterator[tuple[Any, tuple[int, ...]]]:
    yield from ((c, ()) for c in case.constraints)
    yield from ((c, key[1]) for key in new if isinstance(key[0], Seq) for c in key[0].constraints)


def constraint_holds(case: Case, constraint: Any, path: tuple[int, ...], a: Assignment, covered: set[Node]) -> bool:
    match constraint:
        case Unique(pattern):
            node = a.get((pattern, path))
            return node is None or len(node.users) + case.graph.outputs.count(node) == 1
        case ExternUse(pattern, used):
            node = a.get((pattern, path))
            return node is None or used_outside(case, node, covered) is used
        case AttrEqual(left, right):
            return (left, path) not in a or (
                (right, path) in a and dict(a[left, path].attrs) == dict(a[right, path].attrs)
            )
    return True


def used_outside(case: Case, node: Node, covered: set[Node]) -> bool:
    return any(user not in covered for user in node.users) or node in case.graph.outputs


def inner_uses_hold(case: Case, a: Assignment, covered: set[Node]) -> bool:
    if case.extern_use is None or case.outside is not None:
        return True
    ends = {a[output, ()] for output in case.outputs}
    return all(node in ends or used_outside(case, node, covered) is case.extern_use for node in covered)


def is_there(case: Case, pattern: Pattern, node: Node, outside: Assignment, path: tuple[int, ...]) -> bool:
    """Whether a negated pattern matches a node, when the patterns around it are what they are."""
    inner = replace(case, outside=outside, constraints=())
    return any(
        all(a[key] is outside[key] for key in a.keys() & outside.keys() if isinstance(key[0], Pattern))
        and holds(inner, {**outside, **a})
        for a in solutions(inner, pattern, node, path)
    )


def is_connected(case: Case, a: Assignment) -> bool:
    """Whether the patterns that are bound hang together, by operands and relations."""
    beside: dict[Pattern, set[Pattern]] = {}
    for pattern in (key[0] for key in a if isinstance(key[0], Pattern)):
        choice = a.get(("choice", pattern, ()))
        children = [] if isinstance(pattern, Not) else [choice] if choice is not None else pattern.children()
        for child in children:
            beside.setdefault(child, set()).add(pattern)
            beside.setdefault(pattern, set()).add(child)
    for use in case.constraints:
        if isinstance(use, Use):
            beside.setdefault(use.user, set()).add(use.operand)
            beside.setdefault(use.operand, set()).add(use.user)
    reached: set[Pattern] = set()
    work = [case.outputs[0]]
    while work:
        pattern = work.pop()
        if pattern not in reached:
            reached.add(pattern)
            work += beside.get(pattern, ())
    return reached >= set(case.roots)

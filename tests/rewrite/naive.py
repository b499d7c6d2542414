"""An oracle for targets: what is wrong with nodes that are to stand for patterns, by recursion over the patterns."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from gsl import Subst, pat
from gsl.attr.ast import Ast
from gsl.attr.evaluate import Evaluator, same
from gsl.graph import CONST, GETITEM, TUPLE, Node
from gsl.match import Match
from gsl.match.bindings import MatchScope
from gsl.pat import Exactly, OpClass, Pattern
from gsl.spec import TABLE, OpSpec

Seen = dict[Any, Node]


def differences(rule: Subst, match: Match, nodes: Sequence[Node]) -> list[str]:
    """How nodes differ from what the target of a rule says for a match, sharing included.

    It knows the patterns of sources, calls, tuples and their fields, numbers, branches, clauses and variadics, and
    expressions that read nothing but the match.
    """
    seen: Seen = {}
    outputs = rule.target.outputs
    if rule.plan.variadic is not None:
        (each,) = outputs
        assert isinstance(each, pat.Variadic)
        return list(_variadic(each, nodes, match, match.length(rule.plan.variadic), {}, seen))
    return [line for pattern, node in zip(outputs, nodes) for line in _differences(pattern, node, match, {}, seen)]


def _differences(pattern: Pattern, node: Node, match: Match, symbols: Any, seen: Seen) -> Iterator[str]:
    def value(expression: Any) -> Any:
        return Evaluator(MatchScope(match.bindings, ()), symbols).value(expression)

    def inside(patterns: Any) -> Iterator[str]:
        if len(patterns) != len(node.operands):
            yield f"{node!r} has {len(node.operands)} operands, expected {len(patterns)}: {pattern!r}"
        for operand, part in zip(node.operands, patterns):
            yield from _differences(part, operand, match, symbols, seen)

    def is_a(op: Any) -> Iterator[str]:
        if node.op != op:
            yield f"{node!r} is not {op}: {pattern!r}"

    key = (pattern, *[symbols.get(symbol) for symbol in pattern.free_symbols])
    if seen.setdefault(key, node) is not node:
        yield f"{pattern!r} is both {seen[key]!r} and {node!r}"
    match pattern:
        case pat.Instance():
            if node is not match.bindings.instance(pattern.variadic, pattern.template, value(pattern.number), ()):
                yield f"{node!r} is not {pattern!r}"
        case _ if pattern in match:
            if node is not match[pattern]:
                yield f"{node!r} is not {match[pattern]!r}, which {pattern!r} matched"
        case Exactly():
            if node is not pattern.node:
                yield f"{node!r} is not {pattern.node!r}"
        case pat.Cond():
            branch = pattern.then if value(pattern.predicate) else pattern.otherwise
            yield from _differences(branch, node, match, symbols, seen)
        case pat.Match():
            clause = pattern.clauses[match.bindings.chosen[pattern.alternative]]
            yield from _differences(clause, node, match, symbols, seen)
        case pat.GetItem(tuple=pat.Tuple(items=items)):
            yield from _differences(items[value(pattern.number)], node, match, symbols, seen)
        case pat.GetItem():
            yield from is_a(GETITEM)
            if node.attrs.get("index") != value(pattern.number):
                yield f"{node!r} is field {node.attrs.get('index')}, expected {value(pattern.number)}"
            yield from inside([pattern.tuple])
        case pat.Tuple():
            yield from is_a(TUPLE)
            yield from inside(pattern.items)
        case pat.Variadic():
            yield from is_a(TUPLE)
            yield from _variadic(pattern, list(node.operands), match, value(pattern.count), symbols, seen)
        case pat.Const():
            yield from is_a(CONST)
            literal = value(pattern.literal) if isinstance(pattern.literal, Ast) else pattern.literal
            if not same(node.attrs.get("value"), literal):
                yield f"{node!r} is {node.attrs.get('value')}, expected {pattern.literal!r}"
        case pat.Call():
            op = match.operators[pattern.op] if isinstance(pattern.op, OpClass) else pattern.op
            yield from is_a(op.name if isinstance(op, OpSpec) else op)
            yield from _attributes(node, {name: value(each) for name, each in pattern.attrs.items()})
            yield from inside(pattern.operands)
        case pat.Like():
            model = match[pattern.of]
            yield from is_a(model.op)
            own = {name: value(each) for name, each in pattern.attrs.items()}
            yield from _attributes(node, {**model.attrs, **own})
            yield from inside(pattern.operands)
        case _:
            yield f"{pattern!r} is not known to the oracle"


def _attributes(node: Node, given: dict[str, Any]) -> Iterator[str]:
    """The given attributes, in canonical form, that the node has not."""
    spec = TABLE.get(node.op) if isinstance(node.op, str) else None
    full = given if spec is None else spec.complete(given, tuple([operand.type for operand in node.operands]))
    for name in given:
        if not same(node.attrs.get(name), full[name]):
            yield f"{name} of {node!r} is {node.attrs.get(name)!r}, expected {full[name]!r}"


def _variadic(
    pattern: pat.Variadic, nodes: Sequence[Node], match: Match, length: int, symbols: Any, seen: Seen
) -> Iterator[str]:
    if len(nodes) != length:
        yield f"{len(nodes)} instances of {pattern!r}, expected {length}"
    for number, node in enumerate(nodes):
        own = symbols if pattern.symbol is None else {**symbols, pattern.symbol: number}
        yield from _differences(pattern.field if number else pattern.first_field, node, match, own, seen)

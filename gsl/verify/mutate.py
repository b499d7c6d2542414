"""Small mistakes put into a rule, to see whether verification finds them."""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from gsl.attr import Expr
from gsl.attr.ast import Ast, Binary, Each, Function, Literal, TupleOf, Unary, conjuncts
from gsl.errors import DroppedAttributeWarning, GSLError
from gsl.graph import CONST, INPUT, PARAM, Graph, Node
from gsl.match import Match
from gsl.pat import Alt, Call, Cond, Const, GetItem, Instance, Leaf, Like, Module, Pattern, Tuple, Variadic, walk
from gsl.pat import Match as MatchClause
from gsl.rewrite import Subst
from gsl.spec import TABLE, OpSpec, Trait, spec_of

# ---------------------------------------------------------------- rules made from rules


def rebuilt(
    rule: Subst,
    *,
    target: Any = None,
    guards: Sequence[Ast] | None = None,
    more: Sequence[Any] = (),
    predicates: Sequence[Any] | None = None,
    source: Any = None,
    extern_use: Any = ...,
    name: str | None = None,
) -> Subst:
    """The rule with parts exchanged; ``more`` are conditions in addition. PatternError where it is not well-formed."""
    own = rule.source
    outputs = own.outputs if source is None else source
    if target is None:
        target = rule.target.callable or list(rule.target.outputs)
    where = [
        *map(Expr, own.guards if guards is None else guards),
        *(own.predicates if predicates is None else predicates),
        *own.constraints,
        *more,
    ]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DroppedAttributeWarning)
        return Subst(
            list(outputs) if len(outputs) > 1 else outputs[0],
            target,
            where=where,
            name=rule.name if name is None else name,
            priority=rule.priority,
            extern_use=own.extern_use if extern_use is ... else extern_use,
            distinct=rule.plan.distinct,
            fuzzy=tuple(rule.plan.fuzzy),
        )


# ---------------------------------------------------------------- mutants


@dataclass(frozen=True)
class Mutant:
    """A rule with one mistake."""

    name: str
    rule: Subst | None
    """``None`` where the mistake gives no rule."""
    added: Subst | None = None
    """Of a mutant that lacks a condition, the mutant where the condition does not hold: only these matches are new."""


_INSTEAD: Mapping[str, str] = {
    "add": "subtract", "subtract": "add", "multiply": "add", "divide": "multiply", "maximum": "minimum",
    "minimum": "maximum", "rsqrt": "sqrt", "sqrt": "rsqrt", "mean": "sum", "sum": "mean", "max": "min", "min": "max",
    "ones": "zeros", "zeros": "ones", "exp": "log", "log": "exp", "square": "abs", "negative": "abs",
}  # fmt: skip
"""Operators of the same operands that are easily mistaken for each other."""
_ACTIVATIONS = ("nn.relu", "sigmoid", "tanh")


def mutants_of(rule: Subst) -> Iterator[Mutant]:
    """Rules with one mistake each, with names that are unique."""
    names: Counter[str] = Counter()
    for mutant in _mutants(rule):
        names[mutant.name] += 1
        count = names[mutant.name]
        yield mutant if count == 1 else replace(mutant, name=f"{mutant.name} ({count})")


def _mutants(rule: Subst) -> Iterator[Mutant]:
    yield from _without_conditions(rule)
    if rule.target.callable is not None:
        return
    outputs = rule.target.outputs
    if len(outputs) > 1:
        name = "the first two outputs exchanged"
        yield Mutant(name, _made(name, rule, [outputs[1], outputs[0], *outputs[2:]]))
    known = rule.plan.known
    for pattern in _target(rule):
        if pattern not in known:
            for name, other in _mistakes(pattern):
                yield _replaced(f"{name} in {_short(pattern)}", rule, {pattern: other})
    yield from _other_leaves(rule)


def _without_conditions(rule: Subst) -> Iterator[Mutant]:
    parts = [part for guard in rule.source.guards for part in conjuncts(guard)]
    for number, part in enumerate(parts):
        rest = parts[:number] + parts[number + 1 :]
        name = f"without the condition {_short(part)}"
        added = _made(name, rule, None, guards=[*rest, Unary("~", part)])
        yield Mutant(name, _made(name, rule, None, guards=rest), added)
    for number, predicate in enumerate(rule.source.predicates):
        others = rule.source.predicates[:number] + rule.source.predicates[number + 1 :]
        name = f"without the condition {getattr(predicate, '__name__', 'function')}"
        added = _made(name, rule, None, predicates=[*others, partial(_refuses, predicate)])
        yield Mutant(name, _made(name, rule, None, predicates=others), added)


def _refuses(predicate: Callable[[Match], bool | str], match: Match) -> bool:
    """True where a condition that is a function does not hold."""
    return predicate(match) is not True


def _target(rule: Subst) -> list[Pattern]:
    """The patterns of the target, operands before users; of the matched ones only those that it names."""
    known = rule.plan.known
    named = set(rule.target.outputs).union(*(p.children() for p in walk(*rule.target.outputs) if p not in known))
    return [p for p in walk(*rule.target.outputs) if p in named]


def _other_leaves(rule: Subst) -> Iterator[Mutant]:
    """Two leaves of a kind exchanged in the target."""
    leaves = [p for p in _target(rule) if isinstance(p, (Leaf, Alt)) and p in rule.plan.known]
    for number, first in enumerate(leaves):
        for second in leaves[number + 1 :]:
            if type(first) is type(second):
                yield _replaced(f"{_short(first)} and another exchanged", rule, {first: second, second: first})


def _mistakes(pattern: Pattern) -> Iterator[tuple[str, Callable[[Any], Pattern]]]:
    """Mistakes at one place of a target, as functions from the pattern with its operands copied."""
    if isinstance(pattern, (Call, Like)):
        yield from _of_call(pattern)
    elif isinstance(pattern, Const) and isinstance(pattern.literal, Literal):
        value = pattern.literal.value
        yield "another number", lambda p: Const(not value if isinstance(value, bool) else value + 1)
    elif isinstance(pattern, Tuple) and len(pattern.items) > 1:
        yield "fields in reverse order", lambda p: Tuple(*reversed(p.items))
    elif isinstance(pattern, GetItem) and isinstance(pattern.number, Literal):
        number = pattern.number.value
        yield "another field", lambda p: GetItem(p.tuple, number - 1 if number else 1)
    elif isinstance(pattern, Module) and len(pattern.operands) > 1:
        yield "operands exchanged", lambda p: Module(p.factory, *reversed(p.operands))
    elif isinstance(pattern, Cond):
        yield "the cases exchanged", lambda p: Cond(Expr(p.predicate), p.otherwise, p.then)


def _of_call(pattern: Call | Like) -> Iterator[tuple[str, Callable[[Any], Pattern]]]:
    op = pattern.op if isinstance(pattern, Call) else pattern.of.operator
    operands = pattern.operands or ()
    spec = op if isinstance(op, OpSpec) else None
    commutes = spec is not None and spec.commutative
    if len(operands) >= 2 and not commutes:
        yield "operands exchanged", lambda p: _call(p, operands=(p.operands[1], p.operands[0], *p.operands[2:]))
    for name, node in pattern.attrs.items():
        for what, other in _other_values(node):
            yield f"{what} {name}", lambda p, n=name, o=other: _call(p, attrs={**p.attrs, n: o})  # type: ignore[misc]
        if spec is not None and isinstance(node, Literal) and node.value == spec.attrs[name].default:
            continue
        yield f"without {name}", lambda p, n=name: _call(  # type: ignore[misc]
            p, attrs={key: value for key, value in p.attrs.items() if key != n}
        )
    if isinstance(pattern, Like) and spec is not None and spec.own_attrs:
        yield "attributes dropped", lambda p: Call(spec, *p.operands, **_exprs(p.attrs))
    if isinstance(pattern, Call) and spec is not None:
        instead = _INSTEAD.get(spec.name)
        if instead is None and Trait.ACTIVATION in spec.traits:
            instead = next(name for name in _ACTIVATIONS if name != spec.name)
        if instead is not None and set(pattern.attrs) <= set(TABLE[instead].attrs):
            yield f"{instead} instead", lambda p: Call(instead, *p.operands, **_exprs(p.attrs))


def _other_values(node: Ast) -> Iterator[tuple[str, Ast]]:
    match node:
        case Literal(bool() as value):
            yield "negated", Literal(not value)
        case Literal(int() as value):
            yield "another", Literal(value + 1)
            yield "a smaller", Literal(value - 1)
        case Literal(float() as value):
            yield "another", Literal(value * 2 + 1)
        case Literal(tuple() as value) if len(value) > 1:
            yield "reversed", Literal(tuple(reversed(value)))
        case TupleOf(items) if len(items) > 1:
            yield "reversed", TupleOf(tuple(reversed(items)))
        case TupleOf((item,)):
            yield "another", TupleOf((Binary("-", item, Literal(1)),))
        case Each():
            yield "reversed", Function("Reverse", (node,))


def _exprs(attrs: Mapping[str, Ast]) -> dict[str, Any]:
    return {name: Expr(node) for name, node in attrs.items()}


def _call(pattern: Any, *, operands: Any = None, attrs: Any = None) -> Pattern:
    """A call or ``like`` with other operands or attributes."""
    operands = pattern.operands if operands is None else operands
    given = _exprs(pattern.attrs if attrs is None else attrs)
    if isinstance(pattern, Like):
        return pattern.of.like(*operands, **given)
    return Call(pattern.op, *operands, **given)


def _replaced(name: str, rule: Subst, instead: Mapping[Pattern, Any]) -> Mutant:
    """The rule with parts of its target exchanged."""
    try:
        return Mutant(name, _made(name, rule, _copy(rule, instead)))
    except (GSLError, TypeError, ValueError):
        return Mutant(name, None)


def _made(name: str, rule: Subst, target: Any, **parts: Any) -> Subst | None:
    try:
        return rebuilt(rule, target=target, name=f"{rule.name}, {name}", **parts)
    except (GSLError, TypeError, ValueError):
        return None


def _copy(rule: Subst, instead: Mapping[Pattern, Any]) -> list[Pattern]:
    """The outputs of the target, built anew around the exchanged patterns."""
    known = rule.plan.known
    new: dict[Pattern, Pattern] = {}
    for pattern in walk(*rule.target.outputs):  # operands before users
        if pattern in known:
            other = instead.get(pattern)
            new[pattern] = other if isinstance(other, Pattern) else pattern
            continue
        moved = any(new[child] is not child for child in pattern.children())
        copied = _with_children(pattern, new) if moved else pattern
        change = instead.get(pattern)
        new[pattern] = copied if change is None else change(copied)
    return [new[output] for output in rule.target.outputs]


def _with_children(pattern: Pattern, new: Mapping[Pattern, Pattern]) -> Pattern:
    match pattern:
        case Call() | Like():
            return _call(pattern, operands=tuple([new[operand] for operand in pattern.operands or ()]))
        case Tuple():
            return Tuple(*[new[item] for item in pattern.items])
        case GetItem():
            return GetItem(new[pattern.tuple], None if pattern.number is None else Expr(pattern.number))
        case Cond():
            return Cond(Expr(pattern.predicate), new[pattern.then], new[pattern.otherwise])
        case MatchClause():
            return MatchClause(pattern.alternative, [new[clause] for clause in pattern.clauses])
        case Module():
            return Module(pattern.factory, *[new[operand] for operand in pattern.operands])
        case Variadic():
            return type(pattern)(
                new[pattern.field],
                index=None if pattern.symbol is None else Expr(pattern.symbol),
                length=None if pattern.count is None else Expr(pattern.count),
            )
    assert isinstance(pattern, Instance)
    return pattern


# ---------------------------------------------------------------- equal behaviour


def treats_alike(first: Subst, second: Subst, graphs: Sequence[Graph]) -> bool:
    """True if two rules make the same of each graph, up to the order of operands that may be exchanged."""
    return all(_result(first, graph) == _result(second, graph) for graph in graphs)


def _result(rule: Subst, graph: Graph) -> Any:
    try:
        after, _ = rule.apply(graph)
    except GSLError:
        return None
    keys: dict[Node, Any] = {}
    for node in after.nodes:
        keys[node] = _key(node, keys)
    return tuple([keys[output] for output in after.outputs])


def _key(node: Node, keys: Mapping[Node, Any]) -> Any:
    """A key that nodes of equal values have, by the keys of their operands."""
    if node.op in (INPUT, PARAM) or (node.op == CONST and node.shape):
        return node.op, node.name
    operands = [keys[operand] for operand in node.operands]
    spec = spec_of(node.op)
    if spec is not None and spec.commutative:
        operands.sort(key=repr)
    return node.op, tuple(operands), tuple(sorted((name, repr(value)) for name, value in node.attrs.items()))


def _short(value: Any) -> str:
    shown = repr(value)
    return shown if len(shown) <= 70 else f"{shown[:69]}…"

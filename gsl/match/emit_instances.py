"""Chains and variadics as Python source: loops over their instances, which a function beside the search finds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from gsl.attr.evaluate import NotCompiled
from gsl.graph import LEAVES, Op
from gsl.match.bindings import AttrPath
from gsl.match.conditions import pattern_of
from gsl.match.emit_guards import Many, RowWriter, SearchWriter
from gsl.match.guard import Guard
from gsl.match.instances import (
    Keys,
    chains_down,
    chains_up,
    fields,
    members,
    not_before,
    own_nodes,
    own_of_all,
    stretches,
)  # fmt: skip
from gsl.match.machine import END, Goals
from gsl.match.matchers import Matcher, SegmentMatcher, TupleMatcher, VariadicMatcher, check_all
from gsl.match.uses import RepeatMatcher, computed
from gsl.pat import Alt, And, Call, GetItem, OpClass, Pattern, Seq, Tuple, has_head, walk

if TYPE_CHECKING:
    from gsl.match.emit import Emitter

# ---------------------------------------------------------------- chains


def chain_down(emitter: Emitter, matcher: RepeatMatcher, last: str, path: AttrPath, rest: Goals) -> None:
    """The chains that end at a node."""
    above, of, mark = emitter.above[last], emitter.of, len(emitter.trail)
    row = _row(emitter, matcher, path, above)
    body, many, head, joint = row or _link(emitter, matcher, path, above)
    chains = f"{body}(" if row else f"{of(chains_down)}({of(matcher)}, {body}, {head}, {joint}, outputs, "
    with emitter.out.loop(f"{chains}{last})") as (links,):
        _bind_chain(emitter, matcher, replace(many, var=links), f"{links}[-1][{head}]", joint, above)
        emitter.write(rest)
    emitter.undo(mark)


def chain_up(emitter: Emitter, matcher: RepeatMatcher, first: str, path: AttrPath, rest: Goals) -> None:
    """The chains that begin at a node."""
    body, many, head, joint = _link(emitter, matcher, path, frozenset())
    of, mark = emitter.of, len(emitter.trail)
    given = f"{of(matcher)}, {body}, {head}, {joint}, outputs, {emitter.quiet}, {first}"
    with emitter.out.loop(f"{of(chains_up)}({given})") as (links,):
        _bind_chain(emitter, matcher, replace(many, var=links), f"{links}[0][{head}]", joint, frozenset())
        emitter.record(emitter.bindings.nodes, matcher.pattern, _named(emitter, f"{links}[-1][0]"))
        emitter.write((check_all, matcher.guards, path, rest))
    emitter.undo(mark)


LinkWriter = tuple[str, Many, int, tuple[int, ...]]
"""The function of one node of a chain, its results, the place of the first node, and of joint operators."""


def _link(emitter: Emitter, matcher: RepeatMatcher, path: AttrPath, above: frozenset[str]) -> LinkWriter:
    """Write the function that gives the instances at a node."""
    first = _head(emitter, matcher)
    body, many, _ = _body(emitter, matcher, matcher.inner, (*path, 0), above, matcher.instance_guards, 0)
    templates = many.keys.templates
    classes = {_joint(p): place for place, p in reversed(list(enumerate(templates)))}
    joint = tuple(place for op, place in classes.items() if op is not None and op not in emitter.operators)
    return body, many, templates.index(first), joint


def _head(emitter: Emitter, matcher: RepeatMatcher) -> Pattern:
    """The pattern from whose node the chain goes on downward."""
    inner = matcher.pattern.pattern
    spine = inner.spine if isinstance(inner, Seq) else (inner,)
    operators = {p for p in walk(inner) if isinstance(p, (Call, Tuple, GetItem)) and emitter.start.negation(p) is None}
    if not set(spine) >= operators:
        raise NotCompiled  # beside the chain, an instance might want a node of another one
    first = inner.head if isinstance(inner, Seq) else inner
    if has_head(first):
        raise NotCompiled
    return first


def _row(emitter: Emitter, matcher: RepeatMatcher, path: AttrPath, above: frozenset[str]) -> LinkWriter | None:
    """Write the function that gives the chains, where each node has at most one way on; ``None`` if it may have
    several."""
    pattern, number, mark = matcher.pattern, (*path, 0), emitter.out.mark()
    first = _head(emitter, matcher)
    if not pattern.sole or any(_joint(p) for p in pattern.templates):
        return None
    try:
        chains, many, within = _body(
            emitter, matcher, matcher.inner, number, above, matcher.instance_guards, 0, RowWriter
        )
    except NotCompiled:
        emitter.out.back(mark)
        return None
    out = within.out
    assert isinstance(out, RowWriter)
    if not pattern.greedy:
        out.line(f"if len(links) >= {pattern.min}: yield links")
    if pattern.max is not None:
        out.fail_if(f"len(links) == {pattern.max}")
    _below(within, within.bindings.node(first, number), first, matcher.ops)
    out.end()
    if pattern.greedy:
        with out.block(f"while len(links) >= {pattern.min}:"):
            out.line("yield links")
            out.line("links.pop()")
    return chains, many, many.keys.templates.index(first), ()


def _below(within: Emitter, head: str, first: Pattern, ops: frozenset[Op] | None) -> None:
    """Go on to the only computed operand of a node."""
    of, out = within.of, within.out
    if isinstance(first, Call) and first.operands is not None and len(first.operands) == 1:
        out.line(f"this, = {head}.operands")
    else:
        out.line(f"below = {head}.operands")
        out.line(f"if len(below) != 1: below = tuple({of(computed)}({head}, (), sole=True))")
        out.fail_if("not below")
        out.line("this = below[0]")
    if ops is None or not ops.isdisjoint(LEAVES):
        out.fail_if(f"this.op in {of(LEAVES)}")


def _bind_chain(
    emitter: Emitter, matcher: RepeatMatcher, many: Many, head: str, joint: Sequence[int], above: frozenset[str]
) -> None:
    """The chain is bound to a list."""
    emitter.record(emitter.many, matcher.pattern, many)
    emitter.record(emitter.bindings.heads, (matcher.pattern, ()), _named(emitter, head, above | {many.var}))
    for place in joint:
        op = _joint(many.keys.templates[place])
        assert op is not None
        emitter.record(emitter.operators, op, _named(emitter, f"{many.var}[0][{place}]"))


def _named(emitter: Emitter, node: str, above: frozenset[str] = frozenset()) -> str:
    """A variable for a node."""
    new = emitter.variable(above)
    emitter.out.line(f"{new} = {node}")
    return new


# ---------------------------------------------------------------- fields of a tuple


def fields_of(emitter: Emitter, matcher: VariadicMatcher, node: str, path: AttrPath, rest: Goals) -> None:
    """The operands of a tuple, each an instance. The first one also binds the patterns that all share."""
    out = emitter.out
    if _is_ready(emitter, matcher):
        _others(emitter, matcher, f"{node}.operands", 0, node, path, rest)
    elif matcher.pattern.min_len:
        _first(emitter, matcher, node, path, rest)
    else:
        mark = len(emitter.trail)
        with out.loop("(None,)"):
            out.fail_if(f"{node}.operands")
            _nothing(emitter, matcher)
            emitter.write(rest)
        emitter.undo(mark)
        with out.loop("(None,)"):
            out.fail_if(f"not {node}.operands")
            _first(emitter, matcher, node, path, rest)
        emitter.undo(mark)


def _is_ready(emitter: Emitter, matcher: VariadicMatcher) -> bool:
    """True if all that the instances share is bound, and the first one is as the others."""
    shared = [p for p in walk(matcher.pattern.field) if p not in emitter.plan.scopes]
    classes = {_joint(p) for p in matcher.pattern.templates} - {None}
    is_bound = emitter.bindings.nodes.keys() >= set(shared) and emitter.operators.keys() >= classes
    return matcher.first is None and is_bound


def _nothing(emitter: Emitter, matcher: VariadicMatcher) -> None:
    """There are no instances."""
    place = len(emitter.bindings.nodes)
    nothing = Many(matcher.pattern, "()", Keys((), 0), own_nodes(()), own_of_all(()), frozenset(), place)
    emitter.record(emitter.many, matcher.pattern, nothing)


def _first(emitter: Emitter, matcher: VariadicMatcher, node: str, path: AttrPath, rest: Goals) -> None:
    """The first operand of a tuple, and then the others."""
    _demand_plain(emitter, matcher.pattern.templates, path)
    first = emitter.variable(emitter.above[node] | {node})
    others = emitter.out.variable()
    emitter.out.line(f"{first}, *{others} = {node}.operands")

    def onward(emitter: Emitter, _: Any, path: AttrPath, rest: Goals) -> None:
        _others(emitter, matcher, others, 1, node, path, rest)

    emitter.write(matcher.instance(0, first, path, (onward, None, path, rest)))


def _others(
    emitter: Emitter, matcher: VariadicMatcher, nodes: str, first: int, node: str, path: AttrPath, rest: Goals
) -> None:
    """The operands of a tuple from some number on."""
    above, of, mark = emitter.above[node] | {node}, emitter.of, len(emitter.trail)
    body, many, _ = _body(emitter, matcher, matcher.field, (*path, "number"), above, matcher.instance_guards, first)
    taken = _taken(emitter, matcher)
    with emitter.out.loop(f"{of(fields)}({body}, {nodes}, {first}, {taken}, {of(many.own)})") as (links,):
        emitter.record(emitter.many, matcher.pattern, replace(many, var=links))
        emitter.write(rest)
    emitter.undo(mark)


def _taken(emitter: Emitter, matcher: VariadicMatcher) -> str:
    """A set of the nodes that the first instance has taken."""
    own = [taken for taken, owner in emitter.taken.items() if owner[0] in matcher.pattern.templates]
    return f"{emitter.of(set)}(({''.join(f'{each}, ' for each in own)}))"


# ---------------------------------------------------------------- segments


def divide(emitter: Emitter, matcher: TupleMatcher, node: str, path: AttrPath, rest: Goals) -> Goals:
    """The fields of a tuple, divided among its items."""
    return (_item, (matcher, node, 0, "0"), path, rest)


def _item(emitter: Emitter, at: tuple[TupleMatcher, str, int, str], path: AttrPath, rest: Goals) -> Goals | None:
    """The items from a number on are the fields from a place on. Behind the last segment there are as many of both."""
    whole, node, number, place = at
    if number == len(whole.items):
        return rest
    item = whole.items[number]
    if isinstance(item, SegmentMatcher):
        _segment(emitter, item, at, path, rest)
        return None
    field = emitter.variable(emitter.above[node] | {node})
    emitter.out.line(f"{field} = {node}.operands[{place}]")
    return (item.match, field, path, (_item, (whole, node, number + 1, f"{place} + 1"), path, rest))


def _segment(
    emitter: Emitter, matcher: SegmentMatcher, at: tuple[TupleMatcher, str, int, str], path: AttrPath, rest: Goals
) -> None:
    """The fields of a segment from a place on, and then the items after it."""
    out, (whole, node, number, place) = emitter.out, at
    is_last = not any(isinstance(item, SegmentMatcher) for item in whole.items[number + 1 :])
    end = f"len({node}.operands) - {whole.least[number + 1]}"

    def others(emitter: Emitter, first: int, path: AttrPath, rest: Goals) -> None:
        above, of, mark = emitter.above[node] | {node}, emitter.of, len(emitter.trail)
        body, many, _ = _body(emitter, matcher, matcher.field, (*path, "number"), above, matcher.instance_guards, first)
        nodes = f"{node}.operands[{place} + {first}:{end}]"
        given = f"{of(matcher.pattern)}, {body}, {nodes}, {first}, {is_last}, {_taken(emitter, matcher)}"
        with emitter.out.loop(f"{of(stretches)}({given}, {of(many.own)})") as (links,):
            emitter.record(emitter.many, matcher.pattern, replace(many, var=links))
            after = emitter.out.variable()
            emitter.out.line(f"{after} = {place} + {first} + len({links})")
            emitter.write((_item, (whole, node, number + 1, after), path, rest))
        emitter.undo(mark)

    def some() -> None:
        _demand_plain(emitter, matcher.pattern.templates, path)
        first = emitter.variable(emitter.above[node] | {node})
        out.fail_if(f"{place} >= {end}")
        out.line(f"{first} = {node}.operands[{place}]")
        emitter.write(matcher.instance(0, first, path, (others, 1, path, rest)))

    def none() -> None:
        if is_last:
            out.fail_if(f"{place} != {end}")
        _nothing(emitter, matcher)
        emitter.write((_item, (whole, node, number + 1, place), path, rest))

    if _is_ready(emitter, matcher):
        others(emitter, 0, path, rest)
        return
    both = [some, none] if matcher.pattern.greedy else [none, some]
    for way in [some] if matcher.pattern.min_len else both:
        mark = len(emitter.trail)
        with out.loop("(None,)"):
            way()
        emitter.undo(mark)


# ---------------------------------------------------------------- groups


def members_of(emitter: Emitter, matcher: VariadicMatcher, first: str, rest: Goals) -> Goals:
    """The first instance of a group is bound: find all others."""
    if emitter.plan.relations:
        raise NotCompiled
    pattern, out, of = matcher.pattern, emitter.out, emitter.of
    if matcher.members is None:
        nodes = f"use_lists.apart({of(matcher)}, {first}, outputs, blocked)"
    else:
        nodes = emitter.in_order(matcher.members.nodes(emitter, ()))
        if not pattern.first:  # without a first instance of its own kind, the first one in the graph is the first one
            nodes = f"{of(not_before)}({nodes}, {first})"
    body, many, _ = _body(emitter, matcher, matcher.field, ("number",), frozenset(), matcher.instance_guards, 1)
    taken = f"{{{', '.join(emitter.taken)}}}" if emitter.taken else f"{of(set)}()"
    links = out.variable()
    out.line(f"{links} = {of(members)}({body}, {nodes}, {taken}, {of(many.own)}, {pattern.max_len})")
    if pattern.min_len > 1:
        out.fail_if(f"len({links}) < {pattern.min_len - 1}")
    emitter.record(emitter.many, pattern, replace(many, var=links))
    return rest


# ---------------------------------------------------------------- one instance


def _body(
    emitter: Emitter, matcher: RepeatMatcher | VariadicMatcher, inner: Matcher, path: AttrPath, above: frozenset[str],
    guards: list[Guard], first: int, kind: type[SearchWriter] = SearchWriter,
) -> tuple[str, Many, Emitter]:  # fmt: skip
    """Write the function that gives the instances at a node: an expression for it, its results, and what wrote it."""
    _demand_plain(emitter, matcher.pattern.templates, path[:-1])
    if emitter.plan.fuzzy:
        raise NotCompiled  # instances would skip nodes of their own
    own = ["this", "number"] if isinstance(matcher, VariadicMatcher) else ["this"]
    within = emitter.inside(matcher.pattern.templates)
    several = [each.var for each in within.many.values() if each.var.isidentifier()]
    visible = dict.fromkeys([*within.bindings.nodes.values(), *within.operators.values(), *several])
    given = ["outputs", "blocked", "use_lists", *visible]
    within.out = emitter.out.other([*given, *own], kind)
    within.above["this"] = above
    outside, classes = len(within.bindings.nodes), within.operators.copy()
    templates: list[Pattern] = []

    def end(within: Emitter, _: Any, path: AttrPath, rest: Goals) -> None:
        bound = list(within.bindings.nodes.items())[outside:]
        templates.extend(pattern_of(key) for key, _ in bound)
        if not emitter.plan.scopes.keys() >= set(templates):
            raise NotCompiled  # what all instances share is bound by one of them
        if isinstance(matcher, VariadicMatcher) and within.operators.keys() != classes.keys():
            raise NotCompiled  # and so is the operator that all have
        within.out.result(f"({''.join(f'{var}, ' for _, var in bound)})")

    within.write((inner.match, "this", path, (check_all, guards, path, (end, None, path, END))))
    matchers = [emitter.start.matchers[p] for p in templates]
    places = tuple(place for place, each in enumerate(matchers) if each.operator)
    ops = [matchers[place].ops for place in places]
    every = None if None in ops else frozenset[Op]().union(*(each for each in ops if each is not None))
    call = f"{emitter.of(partial)}({', '.join([within.out.name, *given])})"
    place = len(emitter.bindings.nodes)
    many = Many(matcher.pattern, "", Keys(templates, first), own_nodes(places), own_of_all(places), every, place)
    return call, many, within


def _demand_plain(emitter: Emitter, templates: Sequence[Pattern], path: AttrPath) -> None:
    """NotCompiled for instances within instances, or of which not each binds the same patterns."""
    bound = [p for p in templates if emitter.start.negation(p) is None]
    if path or any(isinstance(p, (Alt, And)) or p in emitter.plan.identity for p in bound):
        raise NotCompiled
    if any(len(emitter.plan.scopes[p]) > 1 for p in templates):
        raise NotCompiled


def _joint(pattern: Pattern) -> OpClass | None:
    """The class of operators of which all calls in a match have the same one, if the pattern is such a call."""
    return pattern.op if isinstance(pattern, Call) and isinstance(pattern.op, OpClass) and pattern.op.joint else None

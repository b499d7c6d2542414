"""Chains and variadics as Python source: loops over their instances, which a function beside the search finds."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from gsl.attr.evaluate import NotCompiled
from gsl.graph import LEAVES, Op
from gsl.match.bindings import AttrPath, pattern_of
from gsl.match.emit_guards import Many, RowWriter, SearchWriter
from gsl.match.guard import Guard
from gsl.match.instances import Layout, Layouts, chains_down, chains_up, fields, members, not_before, stretches
from gsl.match.machine import END, Goals
from gsl.match.many import RepeatMatcher, SegmentMatcher, VariadicMatcher, computed
from gsl.match.matchers import Matcher, TupleMatcher, check_all
from gsl.pat import Alt, Call, GetItem, OpClass, Pattern, Seq, Tuple, walk

if TYPE_CHECKING:
    from gsl.match.emit import Emitter

# ---------------------------------------------------------------- chains


def chain_down(emitter: Emitter, matcher: RepeatMatcher, last: str, path: AttrPath, rest: Goals) -> None:
    """The chains that end at a node."""
    above, of, mark = emitter.above[last], emitter.of, len(emitter.trail)
    row = _row(emitter, matcher, path, above)
    body, many = row or _link(emitter, matcher, path, above)
    given = f"{of(matcher)}, {body}, {of(many.layout)}, {many.taken}, outputs"
    chains = f"{body}({last})" if row else f"{of(chains_down)}({given}, {last})"
    with emitter.out.loop(chains) as (links,):
        _bind_chain(emitter, matcher, replace(many, var=links), f"{links}[-1]", above)
        emitter.write(rest)
    emitter.undo(mark)


def chain_up(emitter: Emitter, matcher: RepeatMatcher, first: str, path: AttrPath, rest: Goals) -> None:
    """The chains that begin at a node."""
    body, many = _link(emitter, matcher, path, frozenset())
    of, mark = emitter.of, len(emitter.trail)
    given = f"{of(matcher)}, {body}, {of(many.layout)}, {many.taken}, outputs, {emitter.quiet}, {first}"
    with emitter.out.loop(f"{of(chains_up)}({given})") as (links,):
        _bind_chain(emitter, matcher, replace(many, var=links), f"{links}[0]", frozenset())
        emitter.record(emitter.bindings.nodes, matcher.pattern, _named(emitter, f"{links}[-1][0]"))
        emitter.write((check_all, matcher.guards, path, rest))
    emitter.undo(mark)


LinkWriter = tuple[str, Many]
"""The function of one node of a chain, and its results."""


def _link(emitter: Emitter, matcher: RepeatMatcher, path: AttrPath, above: frozenset[str]) -> LinkWriter:
    """Write the function that gives the instances at a node."""
    body, many, _ = _body(emitter, matcher, matcher.inner, (*path, 0), above, matcher.instance_guards, 0)
    if matcher.pattern in emitter.apart or _has_operators_beside(emitter, matcher.pattern.pattern):
        many = replace(many, taken=_taken_set(emitter, ()))
    return body, many


def _has_operators_beside(emitter: Emitter, inner: Pattern) -> bool:
    """True if an instance has operators beside the way of the chain, which might want a node of another instance."""
    on_way = set(_on_way(inner))
    operators = (p for p in walk(inner) if isinstance(p, (Call, Tuple, GetItem)) and emitter.start.negation(p) is None)
    return any(p not in on_way for p in operators)


def _on_way(pattern: Pattern) -> Iterator[Pattern]:
    """The patterns between the last and the first node of an instance."""
    yield pattern
    for part in pattern.spine if isinstance(pattern, Seq) else pattern.same_node():
        yield from _on_way(part)


def _row(emitter: Emitter, matcher: RepeatMatcher, path: AttrPath, above: frozenset[str]) -> LinkWriter | None:
    """Write the function that gives the chains, where each node has at most one way on; ``None`` if it may have
    several."""
    pattern, number, mark = matcher.pattern, (*path, 0), emitter.out.mark()
    has_choices = any(_joint(p) or isinstance(p, Alt) for p in pattern.templates)
    is_alone = pattern not in emitter.apart and not _has_operators_beside(emitter, pattern.pattern)
    if not pattern.sole or has_choices or not is_alone:
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
    _below(within, matcher, number)
    out.end()
    if pattern.greedy:
        with out.block(f"while len(links) >= {pattern.min}:"):
            out.line("yield links")
            out.line("links.pop()")
    return chains, many


def _below(within: Emitter, matcher: RepeatMatcher, path: AttrPath) -> None:
    """Go on to the only computed operand of the first node of an instance."""
    of, out, inner, ops = within.of, within.out, matcher.pattern.pattern, matcher.ops
    first, head = inner.head if isinstance(inner, Seq) else inner, within.bindings.head(inner, path)
    if isinstance(first, Call) and first.operands is not None and len(first.operands) == 1:
        out.line(f"this, = {head}.operands")
    else:
        out.line(f"below = {head}.operands")
        out.line(f"if len(below) != 1: below = tuple({of(computed)}({head}, (), sole=True))")
        out.fail_if("not below")
        out.line("this = below[0]")
    if ops is None or not ops.isdisjoint(LEAVES):
        out.fail_if(f"this.op in {of(LEAVES)}")


def _bind_chain(emitter: Emitter, matcher: RepeatMatcher, many: Many, first: str, above: frozenset[str]) -> None:
    """The chain is bound to a list, of which the first instance is an item."""
    layout = many.layout
    if isinstance(layout, Layouts):
        others = emitter.start.order.keys() - set(matcher.pattern.templates)
        if any(_joint(pattern) in layout.joint for pattern in others):
            raise NotCompiled  # what the others must be depends on the instances that there are
    emitter.record(emitter.many, matcher.pattern, many)
    head = f"{first}[{layout.head_place}]" if isinstance(layout, Layout) else f"{emitter.of(layout)}.head({first})"
    if many.taken is None or not _has_operators_beside(emitter, matcher.pattern.pattern):
        above |= {many.var}
    emitter.record(emitter.bindings.heads, (matcher.pattern, ()), _named(emitter, head, above))
    if isinstance(layout, Layout):
        for op, place in layout.joint.items():
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
    nothing = Many(matcher.pattern, "()", Layout(()), frozenset(), _places(emitter))
    emitter.record(emitter.many, matcher.pattern, nothing)


def _places(emitter: Emitter) -> tuple[int, int, int]:
    """The number of patterns that are bound, of alternatives that are chosen, and of classes that stand for one
    operator."""
    return len(emitter.bindings.nodes), len(emitter.bindings.chosen), len(emitter.operators)


def _first(emitter: Emitter, matcher: VariadicMatcher, node: str, path: AttrPath, rest: Goals) -> None:
    """The first operand of a tuple, and then the others."""
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
    taken = _taken_set(emitter, _taken(emitter, matcher))
    with emitter.out.loop(f"{of(fields)}({body}, {nodes}, {first}, {taken}, {of(many.layout)}.own)") as (links,):
        emitter.record(emitter.many, matcher.pattern, replace(many, var=links, taken=taken))
        emitter.write(rest)
    emitter.undo(mark)


def _taken(emitter: Emitter, matcher: VariadicMatcher) -> Sequence[str]:
    """The nodes that the first instance has taken."""
    return [taken for taken, owner in emitter.taken.items() if owner[0] in matcher.pattern.templates]


def _taken_set(emitter: Emitter, taken: Iterable[str]) -> str:
    """A variable for a set of nodes, to which those of instances are added."""
    new = emitter.out.variable()
    emitter.out.line(f"{new} = {emitter.of(set)}(({''.join(f'{each}, ' for each in taken)}))")
    return new


# ---------------------------------------------------------------- segments


def divide(emitter: Emitter, matcher: TupleMatcher, node: str, path: AttrPath, rest: Goals) -> None:
    """The fields of a tuple, divided among its items."""
    emitter.write((_item, (matcher, node, 0, "0"), path, rest))


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
        taken = _taken_set(emitter, _taken(emitter, matcher))
        given = f"{of(matcher.pattern)}, {body}, {nodes}, {first}, {is_last}, {taken}"
        with emitter.out.loop(f"{of(stretches)}({given}, {of(many.layout)}.own)") as (links,):
            emitter.record(emitter.many, matcher.pattern, replace(many, var=links, taken=taken))
            after = emitter.out.variable()
            emitter.out.line(f"{after} = {place} + {first} + len({links})")
            emitter.write((_item, (whole, node, number + 1, after), path, rest))
        emitter.undo(mark)

    def some() -> None:
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
    pattern, out, of = matcher.pattern, emitter.out, emitter.of
    if matcher.members is None:
        nodes = f"use_lists.apart({of(matcher)}, {first}, outputs, blocked)"
    else:
        nodes = emitter.in_order(matcher.members.nodes(emitter, ()))
        if not pattern.first:  # without a first instance of its own kind, the first one in the graph is the first one
            nodes = f"{of(not_before)}({nodes}, {first})"
    body, many, _ = _body(emitter, matcher, matcher.field, ("number",), frozenset(), matcher.instance_guards, 1)
    taken, links = _taken_set(emitter, emitter.taken), out.variable()
    out.line(f"{links} = {of(members)}({body}, {nodes}, {taken}, {of(many.layout)}.own, {pattern.max_len})")
    if pattern.min_len > 1:
        out.fail_if(f"len({links}) < {pattern.min_len - 1}")
    emitter.record(emitter.many, pattern, replace(many, var=links, taken=taken))
    return rest


# ---------------------------------------------------------------- one instance


def _body(
    emitter: Emitter, matcher: RepeatMatcher | VariadicMatcher, inner: Matcher, path: AttrPath, above: frozenset[str],
    guards: list[Guard], first: int, kind: type[SearchWriter] = SearchWriter,
) -> tuple[str, Many, Emitter]:  # fmt: skip
    """Write the function that gives the instances at a node: an expression for it, its results, and what wrote it."""
    if path[:-1] or emitter.plan.fuzzy:
        raise NotCompiled  # instances within instances, or that would skip nodes of their own
    own = ["this", "number"] if isinstance(matcher, VariadicMatcher) else ["this"]
    within = emitter.inside(matcher.pattern.templates)
    several = [each for many in within.many.values() for each in (many.var, many.taken or "") if each.isidentifier()]
    bound = [*within.bindings.nodes.values(), *within.bindings.heads.values(), *within.operators.values()]
    visible = dict.fromkeys([*bound, *within.taken, *several])
    given = ["outputs", "blocked", "use_lists", *visible]
    within.out = emitter.out.other([*given, *own], kind)
    within.above["this"] = above
    outside, classes = _places(within), within.operators.copy()
    templates = [p for p in matcher.pattern.templates if emitter.start.negation(p) is None]
    has_choices = any(isinstance(p, Alt) for p in templates)
    layouts: list[Layout] = []

    def end(within: Emitter, _: Any, path: AttrPath, rest: Goals) -> None:
        if isinstance(matcher, VariadicMatcher) and within.operators.keys() != classes.keys():
            raise NotCompiled  # the operator that all instances have is bound by one of them
        layout, variables = _layout(within, inner.pattern, outside, path, first)
        layouts.append(layout)
        last = emitter.of(layout) if has_choices else ""
        within.out.result(f"({''.join(f'{var}, ' for var in variables)}{last})")

    within.write((inner.match, "this", path, (check_all, guards, path, (end, None, path, END))))
    ops = [emitter.start.matchers[p].ops for p in templates if emitter.start.matchers[p].operator]
    every = None if None in ops else frozenset[Op]().union(*(each for each in ops if each is not None))
    call = f"{emitter.of(partial)}({', '.join([within.out.name, *given])})"
    layout = Layouts(layouts, first) if has_choices else layouts[0]
    return call, Many(matcher.pattern, "", layout, every, _places(emitter)), within


def _layout(
    within: Emitter, inner: Pattern, outside: tuple[int, int, int], path: AttrPath, first: int
) -> tuple[Layout, Sequence[str]]:
    """The bindings of one of an instance's ways, and the variables of the nodes."""
    bindings = within.bindings
    templates = [pattern_of(key) for key in list(bindings.nodes)[outside[0] :]]
    variables = list(bindings.nodes.values())[outside[0] :]
    if not within.plan.scopes.keys() >= set(templates):
        raise NotCompiled  # what all instances share is bound by one of them
    own = [place for place, p in enumerate(templates) if within.start.matchers[p].operator]
    chosen = {pattern_of(key): number for key, number in list(bindings.chosen.items())[outside[1] :]}
    joint = {op: variables.index(var) for op, var in list(within.operators.items())[outside[2] :]}
    head = bindings.head(inner, path)
    return Layout(templates, own, variables.index(head) if head in variables else 0, first, chosen, joint), variables


def _joint(pattern: Pattern) -> OpClass | None:
    """The class of operators of which all calls in a match have the same one, if the pattern is such a call."""
    return pattern.op if isinstance(pattern, Call) and isinstance(pattern.op, OpClass) and pattern.op.joint else None

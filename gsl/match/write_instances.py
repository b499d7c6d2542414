"""Chains and variadics as Python source: loops over their instances, which a function beside the search finds."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from gsl.attr.compile import NotCompiled
from gsl.graph import Op
from gsl.match.chains import RepeatMatcher
from gsl.match.guard import Guard
from gsl.match.index import operators
from gsl.match.instances import Keys, all_of, chains_down, chains_up, fields, members, not_before, own_nodes
from gsl.match.matchers import Matcher, VariadicMatcher
from gsl.match.source import Bound, Many, SearchWriter
from gsl.match.write_nodes import NodeWriter, write_guard
from gsl.pat import Alt, And, Call, GetItem, Not, OpClass, Pattern, Seq, Tuple, has_head, walk

if TYPE_CHECKING:
    from gsl.match.start import Start
    from gsl.match.uses import Up

Then = Callable[[Bound], None]
"""A function that writes the goals that follow."""


class InstanceWriter(NodeWriter):
    """Writes patterns that match any number of times. Instances with alternatives or negations are not written."""

    def __init__(self, out: SearchWriter, start: Start) -> None:
        super().__init__(out, start.plan)
        self.start = start

    def match(self, matcher: Matcher, var: str, bound: Bound, then: Then) -> None:
        """The pattern is the node of the variable."""
        raise NotImplementedError

    def reach(self, step: Up, bound: Bound) -> str:
        """Write the nodes that are made of bound nodes and may be the goal: a variable."""
        raise NotImplementedError

    def in_order(self, nodes: str) -> str:
        """A list of nodes sorted as they stand in the graph."""
        raise NotImplementedError

    # What is found.

    def outputs(self, bound: Bound) -> str:
        """The nodes that the rule replaces."""
        variadic = self.plan.variadic
        if variadic is None:
            return f"({''.join(f'{bound.nodes[pattern]}, ' for pattern in self.plan.outputs)})"
        return f"(node, *[link[0] for link in {bound.many[variadic].var}])"

    def covered(self, bound: Bound) -> str:
        """The nodes of operators, in the order in which they are bound."""
        inner = [f"{var}, " if self.start.matchers[p].operator else "" for p, var in bound.nodes.items()]
        for many in reversed(bound.many.values()):
            inner.insert(many.place, f"*{self.of(all_of)}({many.var}, {self.of(many.own)}), ")
        covered = f"({''.join(inner)})"
        return f"tuple({self.of(dict.fromkeys)}({covered}))" if self.plan.identity else covered

    # Chains.

    def chain_down(self, matcher: RepeatMatcher, last: str, bound: Bound, then: Then) -> None:
        """The chains that end at a node."""
        body, many, head, joint = self._link(matcher, bound, bound.above[last])
        walk_down = f"{self.of(chains_down)}({self.of(matcher)}, {body}, {head}, {joint}, outputs, {last})"
        with self.out.loop(walk_down) as (links,):
            self._chain(matcher, replace(many, var=links), f"{links}[-1][{head}]", joint, bound, bound.above[last])
            then(bound)

    def chain_up(self, matcher: RepeatMatcher, first: str, bound: Bound, then: Then) -> None:
        """The chains that begin at a node."""
        body, many, head, joint = self._link(matcher, bound, frozenset())
        given = f"{self.of(matcher)}, {body}, {head}, {joint}, outputs, {self.quiet}, {first}"
        with self.out.loop(f"{self.of(chains_up)}({given})") as (links,):
            self._chain(matcher, replace(many, var=links), f"{links}[0][{head}]", joint, bound, frozenset())
            last = self._named(f"{links}[-1][0]", bound)
            bound.nodes[matcher.pattern] = last
            for guard in matcher.guards:
                write_guard(self.out, self.plan, guard, bound)
            then(bound)

    def _link(
        self, matcher: RepeatMatcher, bound: Bound, above: frozenset[str]
    ) -> tuple[str, Many, int, tuple[int, ...]]:
        """The function of one node of a chain, its results, the place of the first node, and of joint operators."""
        inner = matcher.pattern.pattern
        spine = inner.spine if isinstance(inner, Seq) else (inner,)
        if not set(spine) >= {p for p in walk(inner) if isinstance(p, (Call, Tuple, GetItem))}:
            raise NotCompiled  # beside the chain, an instance might want a node of another one
        first = inner.head if isinstance(inner, Seq) else inner
        if has_head(first):
            raise NotCompiled
        body, many = self._body(matcher, matcher.inner, bound, above, matcher.instance_guards, 0)
        templates = many.keys.templates
        classes = {_joint(p): place for place, p in reversed(list(enumerate(templates)))}
        joint = tuple(place for op, place in classes.items() if op is not None and op not in bound.operators)
        return body, many, templates.index(first), joint

    def _chain(
        self, matcher: RepeatMatcher, many: Many, head: str, joint: Sequence[int], bound: Bound, above: frozenset[str]
    ) -> None:
        """The chain is bound to a list."""
        bound.many[matcher.pattern] = many
        bound.heads[matcher.pattern] = self._named(head, bound, above | {many.var})
        for place in joint:
            op = _joint(many.keys.templates[place])
            assert op is not None
            bound.operators[op] = self._named(f"{many.var}[0][{place}]", bound)

    def _named(self, node: str, bound: Bound, above: frozenset[str] = frozenset()) -> str:
        """A variable for a node."""
        new = self.out.variable()
        self.out.line(f"{new} = {node}")
        bound.above[new] = above
        return new

    # Fields of a tuple.

    def variadic(self, matcher: VariadicMatcher, var: str, bound: Bound, then: Then) -> None:
        """The operands of a tuple, each an instance. The first one also binds the patterns that all share."""
        out, pattern = self.out, matcher.pattern
        shared = [p for p in walk(pattern.field) if p not in self.plan.scopes]
        classes = {_joint(p) for p in pattern.templates} - {None}
        if matcher.first is None and bound.nodes.keys() >= set(shared) and bound.operators.keys() >= classes:
            self._fields(matcher, f"{var}.operands", 0, var, bound, then)
            return
        if not pattern.min_len:
            with out.loop("(None,)"):
                out.fail_if(f"{var}.operands")
                empty = bound.copy()
                empty.many[pattern] = Many(pattern, "()", Keys((), 0), own_nodes(()), frozenset(), len(empty.nodes))
                then(empty)
            with out.loop("(None,)"):
                out.fail_if(f"not {var}.operands")
                self._first(matcher, var, bound.copy(), then)
        else:
            self._first(matcher, var, bound, then)

    def _first(self, matcher: VariadicMatcher, var: str, bound: Bound, then: Then) -> None:
        """The first operand of a tuple, and then the others."""
        self._demand_plain(matcher.pattern.templates, bound)
        first, others = self.out.variable(), self.out.variable()
        self.out.line(f"{first}, *{others} = {var}.operands")
        bound.above[first] = bound.above[var] | {var}
        bound.number = "0"

        def rest(bound: Bound) -> None:
            self._checked(matcher, bound)
            self._fields(matcher, others, 1, var, bound, then)

        self.match(matcher.first or matcher.field, first, bound, rest)

    def _checked(self, matcher: VariadicMatcher, bound: Bound) -> None:
        """The first instance is bound: check it."""
        if matcher.first is None:
            for guard in matcher.instance_guards:
                write_guard(self.out, self.plan, guard, bound)
        bound.number = None

    def _fields(self, matcher: VariadicMatcher, nodes: str, first: int, var: str, bound: Bound, then: Then) -> None:
        """The operands of a tuple from some number on."""
        above = bound.above[var] | {var}
        body, many = self._body(matcher, matcher.field, bound, above, matcher.instance_guards, first)
        own = [taken for identity, taken in bound.taken.items() if identity in matcher.pattern.templates]
        taken = f"{self.of(set)}(({''.join(f'{each}, ' for each in own)}))"
        with self.out.loop(f"{self.of(fields)}({body}, {nodes}, {first}, {taken}, {self.of(many.own)})") as (links,):
            bound.many[matcher.pattern] = replace(many, var=links)
            then(bound)

    # Groups.

    def group(self, matcher: VariadicMatcher, then: Then) -> None:
        """The groups of a variadic output: an instance at the node, with all others that go with it."""
        if self.plan.relations:
            raise NotCompiled
        bound = Bound()
        bound.above["node"] = frozenset()
        bound.number = "0"
        self.match(matcher.first or matcher.field, "node", bound, partial(self._members, matcher, then))

    def _members(self, matcher: VariadicMatcher, then: Then, bound: Bound) -> None:
        """The first instance is bound: find all others."""
        pattern, out = matcher.pattern, self.out
        self._checked(matcher, bound)
        nodes = self.in_order(self.reach(self.start.members, self._shared(matcher, bound)))
        if not pattern.first:  # without a first instance of its own kind, the first one in the graph is the first one
            nodes = f"{self.of(not_before)}({nodes}, node)"
        body, many = self._body(matcher, matcher.field, bound, frozenset(), matcher.instance_guards, 1)
        taken = f"{{{', '.join(bound.taken.values())}}}" if bound.taken else f"{self.of(set)}()"
        links = out.variable()
        out.line(f"{links} = {self.of(members)}({body}, {nodes}, {taken}, {self.of(many.own)})")
        if pattern.min_len > 1:
            out.fail_if(f"len({links}) < {pattern.min_len - 1}")
        bound.many[pattern] = replace(many, var=links)
        then(bound)

    # One instance.

    def _shared(self, matcher: RepeatMatcher | VariadicMatcher, bound: Bound) -> Bound:
        """The bindings outside of the instances."""
        own = matcher.pattern.templates
        shared = bound.copy()
        shared.nodes = {p: var for p, var in bound.nodes.items() if p not in self.plan.scopes}
        shared.taken = {identity: var for identity, var in bound.taken.items() if identity not in own}
        shared.related = {use for use in bound.related if use.user not in own}
        return shared

    def _body(
        self, matcher: RepeatMatcher | VariadicMatcher, inner: Matcher, bound: Bound, above: frozenset[str],
        guards: Sequence[Guard], first: int,
    ) -> tuple[str, Many]:  # fmt: skip
        """Write the function that gives the instances at a node: an expression for it, and its results."""
        self._demand_plain(matcher.pattern.templates, bound)
        shared = self._shared(matcher, bound)
        several = [each.var for each in shared.many.values() if each.var.isidentifier()]
        visible = dict.fromkeys([*shared.nodes.values(), *shared.operators.values(), *several])
        given = ["outputs", "blocked", "crowds", *visible]
        own = ["this", "number"] if isinstance(matcher, VariadicMatcher) else ["this"]
        outer, self.out = self.out, self.out.other([*given, *own])
        templates: list[Pattern] = []

        def end(within: Bound) -> None:
            for guard in guards:
                write_guard(self.out, self.plan, guard, within)
            templates.extend(p for p in within.nodes if p not in shared.nodes)
            if not self.plan.scopes.keys() >= set(templates):
                raise NotCompiled  # what all instances share is bound by one of them
            if isinstance(matcher, VariadicMatcher) and within.operators.keys() != shared.operators.keys():
                raise NotCompiled  # and so is the operator that all have
            self.out.result(f"({''.join(f'{within.nodes[p]}, ' for p in templates)})")

        within = shared.copy()
        within.number = "number" if "number" in own else "0"  # a chain has no index
        within.above["this"] = above
        self.match(inner, "this", within, end)
        name, self.out = self.out.name, outer
        matchers = [self.start.matchers[p] for p in templates]
        places = tuple(place for place, each in enumerate(matchers) if each.operator)
        ops = [operators(matchers[place]) for place in places]
        every = None if None in ops else frozenset[Op]().union(*(each for each in ops if each is not None))
        call = f"{self.of(partial)}({', '.join([name, *given])})"
        return call, Many(matcher.pattern, "", Keys(templates, first), own_nodes(places), every, len(bound.nodes))

    def _demand_plain(self, templates: Sequence[Pattern], bound: Bound) -> None:
        """Uncovered for instances within instances, or of which not each binds the same patterns."""
        for p in templates:
            if isinstance(p, (Alt, And, Not)) or p in self.plan.identity or len(self.plan.scopes[p]) > 1:
                raise NotCompiled
        if bound.number is not None:
            raise NotCompiled


def _joint(pattern: Pattern) -> OpClass | None:
    """The class of operators of which all calls in a match have the same one, if the pattern is such a call."""
    return pattern.op if isinstance(pattern, Call) and isinstance(pattern.op, OpClass) and pattern.op.joint else None

"""A compiled search as a Python function: the goals of a search, written out for one start.

The search of :mod:`gsl.match.engine` decides at every goal what it is about. But which patterns are bound when, which
steps lead up, and what a node must be is the same for every node at which a search starts. Here this is decided once:
the goals are run through with variables instead of nodes, and what they would do with a node becomes a line of source.
A test that fails goes on with the innermost choice; a choice is a loop. For ``relu(bias_add(x, b))``::

    def find(node, outputs, blocked, crowds):
        if node.op != 'nn.relu': return ()
        if len(node.operands) != 1: return ()
        if node in blocked: return ()
        n1, = node.operands
        …
        return (found(…),)

The function gives the matches that the search gives, in the same order. Guards that are not written as source are asked
of a search whose state is what is bound by then. For what is there any number of times (``pat.Variadic``,
``pat.Repeat``) a function beside this one gives the instances at one node, see :mod:`gsl.match.write_instances`. With
alternatives or negations in these, nodes that may be skipped, and very many patterns or alternatives there is no such
function, and the search itself finds the matches.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Container, Iterable, Sequence
from operator import attrgetter
from typing import TYPE_CHECKING

from gsl.attr.compile import NotCompiled
from gsl.graph import Node
from gsl.match.chains import RepeatMatcher
from gsl.match.crowd import MANY, Crowds
from gsl.match.index import operators
from gsl.match.instances import with_instances
from gsl.match.matchers import (
    COMMUTATIVE,
    AltMatcher,
    AndMatcher,
    CallMatcher,
    GetItemMatcher,
    Matcher,
    TupleMatcher,
    VariadicMatcher,
)
from gsl.match.result import Match, found
from gsl.match.source import Bound, SearchWriter
from gsl.match.uses import Link, SeqMatcher, Up
from gsl.match.write_instances import InstanceWriter, Then
from gsl.match.write_nodes import joined, tables, write_guard
from gsl.pat import Pattern, Repeat, has_head

if TYPE_CHECKING:
    from gsl.match.start import Start

Find = Callable[[Node, Container[Node], Collection[Node], Crowds], Iterable[Match]]
"""The matches from a node, given the outputs of the graph, the nodes that no operator of the pattern may be, and the
facts about users."""
MOST_PATTERNS = 60


def compiled(start: Start) -> Find | None:
    """The search of a start as a function; ``None`` if it is not written as one."""
    plan = start.plan
    if plan.fuzzy or len(start.order) > MOST_PATTERNS:
        return None
    try:
        function: Find = _Compiler(start).write().function()
    except NotCompiled:
        return None
    return function


class _Compiler(InstanceWriter):
    """Writes the function of one start. Each method writes the work of its goal, and then the rest."""

    def __init__(self, start: Start) -> None:
        super().__init__(SearchWriter(("node", "outputs", "blocked", "crowds")), start)

    def write(self) -> SearchWriter:
        root = self.start.matchers[self.start.anchor]
        if isinstance(root, VariadicMatcher) and self.plan.variadic is not None:
            self.group(root, self.end)
            return self.out

        def climb(bound: Bound) -> None:
            self.climb(tuple(self.start.ups), bound, self.end)

        bound = Bound()
        bound.above["node"] = frozenset()
        self.match(root, "node", bound, climb)
        return self.out

    def end(self, bound: Bound) -> None:
        """Check the guards that waited until all patterns are bound, and give the match."""
        for guard in self.start.final:
            write_guard(self.out, self.plan, guard, bound)
        nodes, chosen, operators, counts, heads = tables(self.out, self.plan, bound)
        covered = self.covered(bound)
        known = f"{self.of(self.plan)}, {{{nodes}}}, {{{chosen}}}, {{{operators}}}, {self.outputs(bound)}, {covered}"
        match = f"{self.of(found)}({known})"
        if bound.many:
            match = f"{self.of(with_instances)}({match}, {{{counts}}}, {{{heads}}})"
        self.out.result(match)

    def match(self, matcher: Matcher, var: str, bound: Bound, then: Then) -> None:
        """The pattern is the node of the variable."""
        pattern = matcher.pattern
        known = bound.nodes.get(pattern)
        if known is not None:
            if known != var:
                self.out.fail_if(f"{known} is not {var}")
            then(bound)
            return
        self.admits(matcher, var, bound)
        if pattern.guard is not None:
            self.out.fail_if(f"not {self.of(matcher)}.typed({self.quiet}, {var})")
        if matcher.operator:
            self.take(matcher, var, bound)
        bound.nodes[pattern] = var
        for guard in matcher.guards:
            write_guard(self.out, self.plan, guard, bound)
        self.descend(matcher, var, bound, then)

    def take(self, matcher: Matcher, var: str, bound: Bound) -> None:
        """No other operator is this node, nor was it rewritten."""
        mine = operators(matcher)
        if matcher.identity not in bound.taken:
            self.out.fail_if(f"{var} in blocked")
        for identity, other in bound.taken.items():
            if identity is not matcher.identity and other not in bound.above.get(var, ()):
                theirs = operators(self.start.matchers[identity]) if identity in self.start.matchers else None
                if mine is None or theirs is None or mine & theirs:
                    self.out.fail_if(f"{var} is {other}")
        for many in bound.many.values():
            if many.var not in bound.above[var] and (mine is None or many.ops is None or mine & many.ops):
                raise NotCompiled  # it would be looked for among all instances
        bound.taken.setdefault(matcher.identity, var)

    def descend(self, matcher: Matcher, var: str, bound: Bound, then: Then) -> None:
        """Write the search for the parts of a pattern."""
        match matcher:
            case CallMatcher() if len(matcher.operands) == 2 and self.exchanges(matcher, var) is not None:
                self.either_order(matcher, var, bound, then)
            case CallMatcher():
                self.operands(matcher.operands, var, bound, then)
            case TupleMatcher():
                self.operands(matcher.items, var, bound, then)
            case GetItemMatcher():
                self.operands((matcher.tuple,), var, bound, then)
            case AndMatcher():
                self.row([(part, var) for part in matcher.both], bound, then)
            case SeqMatcher():
                links = tuple(reversed(matcher.links))
                self.match(matcher.spine[-1], var, bound, lambda bound: self.links(links, bound, then))
            case AltMatcher():
                for number, choice in enumerate(matcher.choices):
                    with self.out.loop("(None,)"):
                        test = self.plausible(choice, var)
                        if test is not None:
                            self.out.fail_if(f"not {test}")
                        own = bound.copy()
                        own.chosen[matcher.pattern] = number
                        self.match(choice, var, own, then)
            case RepeatMatcher():
                self.chain_down(matcher, var, bound, then)
            case VariadicMatcher():
                self.variadic(matcher, var, bound, then)
            case _:
                then(bound)

    def row(self, parts: Sequence[tuple[Matcher, str]], bound: Bound, then: Then) -> None:
        """One pattern after the other."""
        if not parts:
            then(bound)
            return
        (matcher, var), rest = parts[0], parts[1:]
        self.match(matcher, var, bound, lambda bound: self.row(rest, bound, then))

    def below(self, var: str, number: int, bound: Bound) -> list[str]:
        """Variables for the operands of a node."""
        new = [self.out.variable() for _ in range(number)]
        for each in new:
            bound.above[each] = bound.above[var] | {var}
        return new

    def operands(self, matchers: Sequence[Matcher], var: str, bound: Bound, then: Then) -> None:
        if matchers:
            new = self.below(var, len(matchers), bound)
            self.out.line(f"{''.join(f'{each}, ' for each in new)}= {var}.operands")
            self.row(list(zip(matchers, new)), bound, then)
        else:
            then(bound)

    def exchanges(self, matcher: CallMatcher, var: str) -> str | None:
        """The condition that the operands may be in either order, ``None`` if they never may."""
        if matcher.operands[0] is matcher.operands[1]:
            return None
        if matcher.ops is not None and not matcher.ops & COMMUTATIVE:
            return None
        certain = matcher.ops is not None and matcher.ops <= COMMUTATIVE
        return "True" if certain else f"{var}.op in {self.of(COMMUTATIVE)}"

    def either_order(self, matcher: CallMatcher, var: str, bound: Bound, then: Then) -> None:
        """The operands as they stand, and then exchanged, where that is another match."""
        (first, second), out = matcher.operands, self.out
        a, b = self.below(var, 2, bound)
        out.line(f"{a}, {b} = {var}.operands")
        straight = self.both(self.plausible(first, a), self.plausible(second, b))
        swapped = self.both(self.plausible(first, b), self.plausible(second, a))
        ways = out.variable()
        out.line(f"{ways} = (({a}, {b}),) if {straight} else ()")
        out.line(f"if {a} is not {b} and {self.exchanges(matcher, var)} and {swapped}: {ways} = *{ways}, ({b}, {a})")
        out.fail_if(f"not {ways}")
        with out.loop(ways, 2) as (x, y):
            bound.above[x] = bound.above[y] = bound.above[a]
            self.row([(first, x), (second, y)], bound, then)

    @staticmethod
    def both(*tests: str | None) -> str:
        return joined(" and ", [test for test in tests if test is not None]) or "True"

    # Steps up, and relations.

    def climb(self, ups: tuple[Up | Link, ...], bound: Bound, then: Then) -> None:
        """All steps: each when the pattern is bound from which it starts."""
        if not ups:
            then(bound)
            return
        ready = [number for number, up in enumerate(ups) if _is_ready(up, bound)]
        if not ready:
            self.out.fail_if("True")
            return
        number = next((number for number in ready if not ups[number].wide), ready[0])
        rest = ups[:number] + ups[number + 1 :]
        step = ups[number]

        def onward(bound: Bound) -> None:
            self.climb(rest, bound, then)

        if isinstance(step, Link):
            self.link(step, bound, onward)
        else:
            self.up(step, bound, onward)

    def up(self, step: Up, bound: Bound, then: Then) -> None:
        """A node that is made of bound nodes."""
        if step.goal.pattern in bound.nodes:
            then(bound)
            return
        if step.wide:
            raise NotCompiled
        self.each(step.goal, self.reach(step, bound), bound, then)

    def reach(self, step: Up, bound: Bound) -> str:
        """Write the nodes that are made of bound nodes and may be the goal: a variable."""
        reached: dict[Pattern, str] = {}
        for matcher, below in step.parts:
            if matcher.pattern in bound.nodes:
                reached[matcher.pattern] = f"({bound.nodes[matcher.pattern]},)"
                continue
            single = [bound.nodes[p] for p in below if p in bound.nodes]
            many = [f"{bound.nodes[p]}," if p in bound.nodes else f"*{reached.get(p, '()')}," for p in below]
            new = reached[matcher.pattern] = self.out.variable()
            test = self.plausible(matcher, "n")
            given = "" if test is None else f" if {test}"
            if isinstance(matcher, (AltMatcher, AndMatcher, SeqMatcher)):  # the same node as what they are made of
                self.out.line(f"{new} = list(dict.fromkeys([n for n in ({''.join(many)}){given}]))")
            elif len(many) == len(single) == 1:
                self.users(new, single[0], matcher if matcher is step.goal else None, given)
            else:
                users = f"n for m in ({''.join(many)}) for n in m.users{given}"
                self.out.line(f"{new} = list(dict.fromkeys([{users}]))")
        return reached[step.goal.pattern]

    def users(self, new: str, var: str, goal: Matcher | None, given: str) -> None:
        """The users of a node that a pattern may be: a list, or of many users an iterator, which is in order."""
        found = f"[n for n in {var}.users{given}]"
        if goal is not None and goal.operator:
            several = f"crowds.above({var}, {self.of(operators(goal))}, blocked)"
            found = f"{found} if len({var}.users) < {MANY} else {several}"
        self.out.line(f"{new} = {found}")

    def each(self, matcher: Matcher, nodes: str, bound: Bound, then: Then) -> None:
        """One of several nodes, in graph order."""
        self.out.fail_if(f"not {nodes}")
        with self.out.loop(self.in_order(nodes)) as (new,):
            bound.above[new] = frozenset()
            if isinstance(matcher, RepeatMatcher):
                self.chain_up(matcher, new, bound, then)
            else:
                self.match(matcher, new, bound, then)

    def in_order(self, nodes: str) -> str:
        """A list of nodes sorted as they stand in the graph; an iterator is in order."""
        is_sorted = f"{nodes}.__class__ is not list or len({nodes}) < 2"
        return f"({nodes} if {is_sorted} else sorted({nodes}, key={self.of(INDEX)}))"

    def links(self, links: tuple[Link, ...], bound: Bound, then: Then) -> None:
        if links:
            self.link(links[0], bound, lambda bound: self.links(links[1:], bound, then))
        else:
            then(bound)

    def link(self, link: Link, bound: Bound, then: Then) -> None:
        """A use relation: verified, or the way from the bound side to the other."""
        use, out = link.use, self.out
        if use in bound.related:
            then(bound)
            return
        if isinstance(use.user, Repeat):
            user = bound.heads.get(use.user)
        elif has_head(use.user):
            raise NotCompiled
        else:
            user = bound.nodes.get(use.user)
        operand = bound.nodes.get(use.operand)
        at = "" if use.index is None else f"[{use.index}:{use.index + 1}]"
        if operand is not None and user is not None:
            out.fail_if(f"{operand} not in {user}.operands{at}")
            if use.only:
                out.fail_if(f"len({operand}.users) != 1 or {operand} in outputs")
            bound.related.add(use)
            then(bound)
        elif user is not None:
            nodes = out.variable()
            test = self.plausible(link.operand, "n")
            given = "" if test is None else f" if {test}"
            out.line(f"{nodes} = [n for n in dict.fromkeys({user}.operands{at}){given}]")
            out.fail_if(f"not {nodes}")
            with out.loop(nodes) as (new,):
                bound.above[new] = bound.above[user] | {user}
                self.match(link.operand, new, bound, lambda bound: self.link(link, bound, then))
        else:
            assert operand is not None
            nodes = out.variable()
            if isinstance(link.user, RepeatMatcher):
                out.line(f"{nodes} = list({self.of(link.user)}.firsts({self.quiet}, {operand}.users))")
            elif isinstance(link.user, AltMatcher):
                out.line(f"{nodes} = list({self.firsts(link.user, f'{operand}.users')})")
            else:
                test = self.plausible(link.user, "n")
                self.users(nodes, operand, link.user, "" if test is None else f" if {test}")
            self.each(link.user, nodes, bound, lambda bound: self.link(link, bound, then))

    def firsts(self, matcher: Matcher, users: str) -> str:
        """The nodes among some that a pattern may be, in the order in which the matcher gives them."""
        if isinstance(matcher, AltMatcher):
            return f"dict.fromkeys([{', '.join(f'*{self.firsts(choice, users)}' for choice in matcher.choices)}])"
        test = self.plausible(matcher, "n")
        return users if test is None else f"[n for n in {users} if {test}]"


INDEX = attrgetter("index")


def _is_ready(step: Up | Link, bound: Bound) -> bool:
    """True if a pattern is bound from which the step leads on."""
    if isinstance(step, Link):
        return step.use.operand in bound.nodes or step.use.user in bound.nodes
    return step.wide or any(m.pattern in bound.nodes or any(p in bound.nodes for p in below) for m, below in step.parts)

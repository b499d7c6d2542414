"""The emitter: the machine that prints instructions as Python, for one start.

The search of :mod:`gsl.match.engine` decides at every goal what it is about. But which patterns are bound when, which
steps lead up, and what a node must be is the same for every node at which a search starts. Here this is decided once:
the same goals are gone through with variables instead of nodes, and what is to be done with a node becomes a line of
source. A test that fails goes on with the innermost choice; a choice is a loop. For ``relu(bias_add(x, b))``::

    def find(node, outputs, blocked, use_lists):
        if not (node.op == 'nn.relu'): return ()
        if len(node.operands) != 1: return ()
        if node in blocked: return ()
        n1, = node.operands
        …
        return (FoundMatch(…),)

The function gives the matches that the search gives, in the same order. Guards that are not written as source are asked
of a search whose state is what is bound by then. For what is there any number of times (``pat.Variadic``,
``pat.Repeat``) a function beside this one gives the instances at one node, see :mod:`gsl.match.emit_instances`. At an
instruction that is not printed, the function leaves the rest of the goals to a search that has bound as much: so with
instances that skip nodes, or that have instances themselves, and where a function would become too long.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Container, Iterable, Iterator, Sequence
from contextlib import contextmanager
from copy import copy
from inspect import ismethod
from math import isfinite
from operator import attrgetter
from typing import Any

from gsl.attr.evaluate import NotCompiled
from gsl.graph import Node
from gsl.match import emit_instances
from gsl.match.bindings import AttrPath, Bindings, pattern_of
from gsl.match.emit_guards import Many, SearchWriter, TakenNeeded, guard_source, path_source, state
from gsl.match.engine import MANY, MatchSearch, UseLists, connected, held
from gsl.match.guard import Guard
from gsl.match.instances import Layouts, free, with_skipped
from gsl.match.literals import decidedly_same
from gsl.match.lower import Lowered
from gsl.match.machine import END, Goals, Machine, Some
from gsl.match.matchers import COMMUTATIVE, CallMatcher, Matcher, check_all
from gsl.match.result import FoundMatch, Match, MatchSchema, found_instances
from gsl.match.source import CheckedSource
from gsl.match.uses import Link, climb
from gsl.pat import OpClass, Pattern, has_head
from gsl.spec import OpSpec

Find = Callable[[Node, Container[Node], Collection[Node], UseLists], Iterable[Match]]
"""The matches from a node, given the outputs of the graph, the nodes that no operator of the pattern may be, and the
facts about users."""
MOST_ITEMS = 8
"""The largest number of items of a tuple that are compared one by one."""


def emitted(start: Lowered) -> Find:
    """The search of a start as a function."""
    apart, brief = set[Pattern](), False
    while True:
        emitter = Emitter(start, SearchWriter(("node", "outputs", "blocked", "use_lists")), apart, brief=brief)
        emitter.above["node"] = frozenset()
        try:
            emitter.write(start.goals("node", (Emitter.end, None, (), END)))
        except TakenNeeded as needed:
            apart.add(needed.pattern)
        except TooLong:
            brief = True
        else:
            function: Find = emitter.out.function()
            return function


class TooLong(Exception):
    """Raised where a function has become too long."""


class Emitter(Machine[str]):
    """Prints what is done with a node. A choice prints all goals that follow it, and then takes back what is bound."""

    def __init__(self, start: Lowered, out: SearchWriter, apart: Container[Pattern], *, brief: bool) -> None:
        super().__init__(start.plan.scopes)
        self.start = start
        self.apart = apart
        """The chains and variadics of whose instances a set of the nodes is kept."""
        self.brief = brief
        """True if alternatives are left to a search, which does not try again what has failed."""
        self.plan = start.plan
        self.out = out
        self.of = out.names.of
        self.quiet = self.of(MatchSearch(start.plan, ()))
        """A search in whose name tests of single nodes are asked."""
        self.above: dict[str, frozenset[str]] = {}
        """For a variable, those whose nodes are made of its node."""
        self.many: dict[Pattern, Many] = {}
        """The instances of what is there any number of times."""

    def inside(self, templates: Collection[Pattern]) -> Emitter:
        """An emitter of one instance, which knows what is bound outside of all."""
        new = copy(self)
        new.trail = []
        nodes = {key: var for key, var in self.bindings.nodes.items() if isinstance(key, Pattern)}
        new.bindings = Bindings(self.plan.scopes, nodes, dict(self.bindings.chosen))
        new.bindings.heads = dict(self.bindings.heads)
        new.taken = {var: owner for var, owner in self.taken.items() if owner[0] not in templates}
        new.related = {key: True for key in self.related if key[0].user not in templates}
        new.operators, new.many, new.above = dict(self.operators), dict(self.many), dict(self.above)
        return new

    def write(self, goals: Goals | None) -> None:
        """Print goals, up to one that has no further ones; from one that is not printed on, a search follows them."""
        while goals:
            function, argument, path, rest = goals
            before, mark = self.out.mark(), len(self.trail)
            try:
                self._demand_space()
                following = function(self, argument, path, rest)
            except NotCompiled:
                self.out.back(before)
                self.undo(mark)
                self.leave(goals)
                return
            goals = following

    def _demand_space(self) -> None:
        """Refuse more lines of a function that has as many as it may have."""
        if self.out.is_long:
            raise NotCompiled if self.brief else TooLong

    def leave(self, goals: Goals) -> None:
        """Leave goals to a search that has bound as much; NotCompiled if they are not of the source alone."""
        left = []
        while goals[0] is not Emitter.end:
            function, argument, path, goals = goals
            if not (ismethod(function) or function in (check_all, climb)):
                raise NotCompiled
            shown = argument if isinstance(argument, str) else self.of(argument)  # a string is a variable
            left.append(f"({self.of(function)}, {shown}, {path_source(path)}), ")
        self.out.results(f"{self.of(onward)}({self.of(self.plan)}, {state(self)}, ({''.join(left)}))")

    def end(self, _: Any, path: AttrPath, rest: Goals) -> None:
        """The goal of giving the match."""
        given = f"{self._outputs()}, {self._covered()}"
        if self.many:
            _, chosen, operators, counts, heads = self.tables()
            given = f"({self._nodes(late=True)}), {{{chosen}}}, {{{operators}}}, {given}, {{{counts}}}, {{{heads}}}"
            match = f"{self.of(found_instances)}({self.of(self.plan)}, {given})"
        else:
            keys, bound = tuple(self.bindings.nodes), list(self.bindings.nodes.values())
            places = {op: bound.index(var) for op, var in self.operators.items()}
            outputs = tuple([keys.index(pattern) for pattern in self.plan.outputs])
            inner = tuple([place for place, key in enumerate(keys) if self._is_covered(key)])
            schema = MatchSchema(self.plan, keys, dict(self.bindings.chosen), places, outputs, inner)
            match = f"{self.of(FoundMatch)}({self.of(schema)}, ({''.join(f'{var}, ' for var in bound)}), {given})"
        if self.bindings.skipped:
            match = f"{self.of(with_skipped)}({match}, {self.skipped()})"
        self.out.result(match)

    # What is found.

    def tables(self) -> tuple[str, str, str, str, str]:
        """The bindings as the items of tables: nodes, choices, operators, counts and heads."""
        of, bindings = self.of, self.bindings
        chosen, operators = self._chosen()
        counts = "".join(f"({of(p)}, ()): {many.length}, " for p, many in self.many.items())
        heads = "".join(f"{self._key(key)}: {var}, " for key, var in bindings.heads.items())
        return self._nodes(), chosen, operators, counts, heads

    def _chosen(self) -> tuple[str, str]:
        """The items of the tables of choices, and of operators for which classes stand."""
        chosen = [f"{self._key(key)}: {number}, " for key, number in self.bindings.chosen.items()]
        operators = [f"{self.of(op)}: {var}.op, " for op, var in self.operators.items()]
        for many in reversed(self.many.values()):
            if isinstance(many.layout, Layouts):
                layout = self.of(many.layout)
                chosen.insert(many.places[1], f"**dict({layout}.chosen({many.var})), ")
                operators.insert(many.places[2], f"**{layout}.operators({many.var}), " * bool(many.layout.joint))
        return "".join(chosen), "".join(operators)

    def _nodes(self, *, late: bool = False) -> str:
        """The items of the table of nodes, or parts of which it is put together later."""
        nodes = [f"{self._key(key)}: {var}, " for key, var in self.bindings.nodes.items()]
        for many in reversed(self.many.values()):
            bound, later = self.of(many.layout.bound), self.of(many.layout.later)
            nodes.insert(many.places[0], f"}}, {later}({many.var}), {{" if late else f"**dict({bound}({many.var})), ")
        return f"{{{''.join(nodes)}}}" if late else "".join(nodes)

    def skipped(self) -> str:
        """The nodes that are skipped, as a table."""
        skipped = "".join(f"*{var}, " for var in self.bindings.skipped)
        return f"{self.of(dict.fromkeys)}(({skipped}), True)"

    def _key(self, key: Any) -> str:
        """The source of a key of the bindings."""
        if not isinstance(key, tuple):
            return self.of(key)
        pattern, path = key
        return f"({self.of(pattern)}, {path_source(path)})"

    def _outputs(self) -> str:
        """The nodes that the rule replaces."""
        variadic = self.plan.variadic
        if variadic is None:
            return f"({''.join(f'{self.bindings.nodes[pattern]}, ' for pattern in self.plan.outputs)})"
        return f"(node, *[link[0] for link in {self.many[variadic].var}])"

    def _covered(self) -> str:
        """The nodes of operators, in the order in which they are bound."""
        inner = [f"{v}, " if self._is_covered(key) else "" for key, v in self.bindings.nodes.items()]
        for many in reversed(self.many.values()):
            inner.insert(many.places[0], f"*{self.of(many.layout.own_of_all)}({many.var}), ")
        covered = f"({''.join([*(f'*{var}, ' for var in self.bindings.skipped), *inner])})"
        is_unique = not self.plan.identity and not self.bindings.skipped
        return covered if is_unique else f"tuple({self.of(dict.fromkeys)}({covered}))"

    def _is_covered(self, key: Any) -> bool:
        return self.start.matchers[pattern_of(key)].operator

    # Tests.

    @property
    def learns(self) -> bool:
        return False

    def miss(self, pattern: Pattern | None, node: str | None, what: str, expected: Any, found: Any) -> bool:
        self.out.fail_if("True")
        return False

    def same(self, pattern: Pattern, node: str, bound: str) -> bool:
        if bound != node:
            self.out.fail_if(f"{bound} is not {node}")
        return True

    def may_be(self, matcher: Matcher, node: str) -> bool:
        test = self.plausible(matcher, node)
        if test is not None:
            self.out.fail_if(f"not {test}")
        return True

    def has_operator(self, matcher: Matcher, node: str, what: str, expected: Any) -> bool:
        return self.may_be(matcher, node)

    def plausible(self, matcher: Matcher, var: str) -> str | None:
        """The test that a node has an operator that the pattern accepts, ``None`` if that may be any."""
        if matcher.ops is not None:
            only = next(iter(matcher.ops)) if len(matcher.ops) == 1 else None
            return f"({var}.op == {only!r})" if type(only) is str else f"({var}.op in {self.of(matcher.ops)})"
        return None if matcher.accepts is None else f"{self.of(matcher.accepts)}({var}.op)"

    def has_operands(
        self, matcher: Matcher, node: str, what: str, number: int, *, more: bool = False, fewer: bool = False
    ) -> bool:
        self.out.fail_if(f"len({node}.operands) {'<' if more else '>' if fewer else '!='} {number}")
        return True

    def has_literals(self, matcher: CallMatcher, node: str) -> bool:
        """Write the tests of literals. An attribute that is equal as it stands is accepted at once; a literal may also
        be another form of the attribute.

        Equal calls share their attributes, so the last ones that were accepted are remembered.
        """
        spec = matcher.pattern.op if isinstance(matcher.pattern.op, OpSpec) else None
        plain: list[str] = []
        others: list[str] = []
        for name, wanted in matcher.literals.items():
            test = self._is_literal(wanted, f"{node}.attrs.get({name!r}, ...)")
            (plain if spec is not None and _has_one_form(spec, name) else others).append(test)
        known = self.of(matcher)
        with self.out.block(f"if {node}.attrs is not {known}.accepted:"):
            for test in plain:
                self.out.fail_if(f"not {test}")
            if others:
                self.out.line(f"if {' and '.join(others)}: {known}.accepted = {node}.attrs")
                self.out.fail_if(f"not {known}.in_another_form({self.quiet}, {node})", word="elif")
            else:
                self.out.line(f"{known}.accepted = {node}.attrs")
        return True

    def _is_literal(self, wanted: Any, found: str) -> str:
        """An expression that is true if an attribute is equal to a value as it stands."""
        exact = _exactly(wanted)
        same = f"{self.of(decidedly_same)}({self.of(wanted)}, {'v' if exact else found})"
        return f"({exact.replace('v', f'(v := {found})', 1)} or {same})" if exact else same

    def same_operator(self, op: OpClass, node: str) -> bool:
        known = self.operators.get(op)
        if known is None:
            self.record(self.operators, op, node)
        elif known != node:
            self.out.fail_if(f"{known}.op != {node}.op")
        return True

    def ask(self, test: Callable[[MatchSearch, Node], bool], node: str) -> bool:
        self.out.fail_if(f"not {self.of(test)}({self.quiet}, {node})")
        return True

    def take(self, matcher: Matcher, node: str, path: AttrPath) -> bool:
        owner = (matcher.identity, path[: matcher.level])
        is_first = owner not in self.taken.values()
        if is_first:
            self.out.fail_if(f"{node} in blocked")
        for other, theirs in self.taken.items():
            if theirs != owner and other not in self.above[node] and self._overlap(matcher, theirs[0]):
                self.out.fail_if(f"{node} is {other}")
        for skipped in self.bindings.skipped:
            if skipped not in self.above[node] and (matcher.ops is None or matcher.ops & self.plan.fuzzy):
                self.out.fail_if(f"{node} in {skipped}")
        for many in self.many.values():
            is_apart = matcher.ops is not None and many.ops is not None and not matcher.ops & many.ops
            if is_first and many.var not in self.above[node] and not is_apart:
                if many.taken is None:
                    raise TakenNeeded(many.pattern)
                self.out.fail_if(f"{node} in {many.taken}")
        if is_first:
            self.record(self.taken, node, owner)
        return True

    def _overlap(self, matcher: Matcher, other: Pattern) -> bool:
        """True if a node may have an operator that both patterns accept."""
        theirs = self.start.matchers[other].ops if other in self.start.matchers else None
        return matcher.ops is None or theirs is None or bool(matcher.ops & theirs)

    def holds(self, guard: Guard, path: AttrPath) -> bool:
        guard_source(self, guard, path)
        return True

    # Ways on.

    def operands(self, node: str, number: int) -> Sequence[str]:
        new = self._below(node, number)
        self.out.line(f"{''.join(f'{each}, ' for each in new)}= {node}.operands")
        return new

    def _below(self, node: str, number: int) -> list[str]:
        """Variables for the operands of a node."""
        return [self.variable(self.above[node] | {node}) for _ in range(number)]

    def variable(self, above: frozenset[str] = frozenset()) -> str:
        """A new variable for a node; those whose nodes are made of it are known."""
        new = self.out.variable()
        self.above[new] = above
        return new

    def either_order(self, matcher: CallMatcher, node: str, goals: Callable[[str, str], Goals]) -> None:
        (first, second), out = matcher.operands, self.out
        a, b = self._below(node, 2)
        out.line(f"{a}, {b} = {node}.operands")
        straight = both(self.plausible(first, a), self.plausible(second, b))
        swapped = both(self.plausible(first, b), self.plausible(second, a))
        is_certain = matcher.ops is not None and all(op in COMMUTATIVE for op in matcher.ops)
        turns = "True" if is_certain else f"{node}.op in {self.of(COMMUTATIVE)}"
        ways = out.variable()
        out.line(f"{ways} = (({a}, {b}),) if {straight} else ()")
        out.line(f"if {a} is not {b} and {turns} and {swapped}: {ways} = *{ways}, ({b}, {a})")
        out.fail_if(f"not {ways}")
        with out.loop(ways, 2) as (x, y):
            self.above[x] = self.above[y] = self.above[a]
            self.write(goals(x, y))

    def choose(self, alternatives: Iterator[Goals]) -> None:
        if self.brief:
            raise NotCompiled
        goals: Goals | None = END
        while goals is not None:
            before, mark = self.out.mark(), len(self.trail)
            with self.out.loop("(None,)"):
                goals = next(alternatives, None)
                self.write(goals)
            self.undo(mark)
        self.out.back(before)

    def each(self, nodes: Some, goals: Callable[[str], Goals | None], *, in_order: bool = False) -> Goals | None:
        if isinstance(nodes, list):
            return goals(nodes[0])
        self.out.fail_if(f"not {nodes}")
        mark = len(self.trail)
        with self.out.loop(self.in_order(nodes) if in_order else nodes) as (new,):
            self.above[new] = self.above[nodes]
            self.write(goals(new))
        self.undo(mark)
        return None

    def in_order(self, nodes: str) -> str:
        """A list of nodes sorted as they stand in the graph; an iterator is in order."""
        is_sorted = f"{nodes}.__class__ is not list or len({nodes}) < 2"
        return f"({nodes} if {is_sorted} else sorted({nodes}, key={self.of(_index)}))"

    def users(self, matcher: Matcher, below: Sequence[Some], *, last: bool) -> Some:
        new, given = self.variable(), self._if_plausible(matcher)
        several = "".join(f"{each[0]}, " if isinstance(each, list) else f"*{each}, " for each in below)
        if matcher.same_node:  # as that of what it is made of
            self.out.line(f"{new} = list(dict.fromkeys([n for n in ({several}){given}]))")
        elif len(below) == 1 and isinstance(below[0], list):
            self._users_of_one(new, below[0][0], matcher if last else None, given)
        elif isinstance(matcher, CallMatcher) and all(isinstance(each, list) for each in below):
            self._users_of_one(new, below[0][0], None, given)  # a call that matches uses the others, too
        else:
            users = self._users("m")
            self.out.line(f"{new} = list(dict.fromkeys([n for m in ({several}) for n in {users}{given}]))")
        return new

    def _users(self, var: str) -> str:
        """The users of a node, also beyond nodes that may be skipped."""
        return f"{self.quiet}.users_beyond({var})" if self.plan.fuzzy else f"{var}.users"

    def _if_plausible(self, matcher: Matcher) -> str:
        test = self.plausible(matcher, "n")
        return "" if test is None else f" if {test}"

    def _users_of_one(self, new: str, var: str, goal: Matcher | None, given: str) -> None:
        """The users of a node that a pattern may be: a list, or of many users an iterator, which is in order."""
        found = f"[n for n in {self._users(var)}{given}]"
        if goal is not None and goal.operator and not self.plan.fuzzy:
            several = f"use_lists.above({var}, {self.of(goal.ops)}, blocked)"
            found = f"{found} if len({var}.users) < {MANY} else {several}"
        self.out.line(f"{new} = {found}")

    def connected(self, matcher: Matcher) -> Some:
        new = self.variable()
        nodes = f"{self.of(connected)}({{{self.tables()[0]}}}.values())"
        self.out.line(f"{new} = [n for n in {nodes}{self._if_plausible(matcher)}]")
        return new

    # Relations.

    def relate(self, link: Link, operand: str, user: str, key: Any, rest: Goals) -> Goals | None:
        if self.plan.fuzzy:
            search = f"{self.of(MatchSearch)}({self.of(self.plan)}, outputs)"
            with self._skipping(f"{search}.ways({self.of(link)}, {operand}, {user})"):
                self.record(self.related, key, True)
                self.write(rest)
            return None
        self.out.fail_if(f"{operand} not in {user}.operands{_place(link)}")
        if link.use.only:
            self.out.fail_if(f"len({operand}.users) != 1 or {operand} in outputs")
        self.record(self.related, key, True)
        return rest

    def used_by(self, link: Link, user: str) -> Some:
        new = self.variable(self.above[user] | {user})
        operands = f"dict.fromkeys({user}.operands{_place(link)})"
        if self.plan.fuzzy:
            operands = f"{self.quiet}.operands_beyond({self.of(link)}, {user})"
        self.out.line(f"{new} = [n for n in {operands}{self._if_plausible(link.operand)}]")
        return new

    def users_of(self, link: Link, operand: str) -> Some:
        new, user = self.variable(), link.user
        if has_head(user.pattern):
            self.out.line(f"{new} = list({self.of(user)}.firsts({self.quiet}, {self._users(operand)}))")
        else:
            self._users_of_one(new, operand, user, self._if_plausible(user))
        return new

    def skip(self, node: str, goals: Callable[[str], Goals]) -> None:
        with self._skipping(f"[skipped for _, skipped in {self.quiet}.beyond({node})]") as skipped:
            below = self.variable(self.above[node] | {skipped})
            self.out.line(f"{below} = {skipped}[-1].operands[0] if {skipped} else {node}")
            self.write(goals(below))

    @contextmanager
    def _skipping(self, ways: str) -> Iterator[str]:
        """A choice among nodes to be skipped: gives the variable of a tuple of them."""
        mark, skipped = len(self.trail), self.bindings.skipped
        taken = "".join(f"{var}, " for var in self.taken)
        before = "".join(f"*{var}, " for var in skipped)
        with self.out.loop(f"{self.of(free)}({ways}, ({taken}), ({before}), blocked)") as (new,):
            self.record(skipped, new, True)
            yield new
        self.undo(mark)

    # What is there any number of times.

    chain_down = emit_instances.chain_down
    chain_up = emit_instances.chain_up
    fields = emit_instances.fields_of
    divide = emit_instances.divide
    members = emit_instances.members_of


def onward(plan: CheckedSource, search: MatchSearch, left: Sequence[Goals]) -> Iterator[Match]:
    """The matches that a search finds by the goals that are left to it."""
    goals: Goals = END
    for goal in reversed(left):
        goals = (*goal, goals)
    for _ in search.solve(goals):
        yield held(plan, search)


def both(*tests: str | None) -> str:
    """Two tests as one."""
    return " and ".join(test for test in tests if test is not None) or "True"


def _place(link: Link) -> str:
    """The part of the operands where a relation demands its operand."""
    index = link.use.index
    return "" if index is None else f"[{index}:{index + 1}]"


def _exactly(wanted: Any) -> str:
    """The test that ``v`` is of the type of a plain value, and equal to it; empty for a value that is not compared
    so."""
    kind = type(wanted)
    if kind is bool or wanted is None:
        return f"v is {wanted!r}"
    if kind in (int, str) or (kind is float and isfinite(wanted)):
        return f"v.__class__ is {kind.__name__} and v == {wanted!r}"
    if kind is tuple and len(wanted) <= MOST_ITEMS and all(type(item) is int for item in wanted):
        items = "".join(f" and v[{place}].__class__ is int" for place in range(len(wanted)))
        return f"v.__class__ is tuple and v == {wanted!r}{items}"  # True is not 1
    return ""


def _has_one_form(spec: OpSpec, name: str) -> bool:
    """True if a value of an attribute is written in one way only."""
    attribute = spec.attrs.get(name)
    return attribute is not None and attribute.normalise is None and attribute.derive is None and spec.joint is None


_index = attrgetter("index")

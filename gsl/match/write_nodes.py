"""The tests of a single node, as Python source."""

from __future__ import annotations

from collections.abc import Collection, Container, Sequence
from math import isfinite
from typing import TYPE_CHECKING, Any, NoReturn

from gsl.attr.compile import NO_VALUE, NotCompiled, source
from gsl.errors import EvaluationError
from gsl.graph import GETITEM, TUPLE, Node, Op
from gsl.match.bindings import read
from gsl.match.chains import RepeatMatcher
from gsl.match.conditions import LiteralValue
from gsl.match.constraints import OneUser, Output, UsedOutside
from gsl.match.engine import MatchSearch
from gsl.match.guard import Guard
from gsl.match.instances import all_of
from gsl.match.literal import decidedly_same
from gsl.match.matchers import (
    AltMatcher,
    AndMatcher,
    CallMatcher,
    ConstMatcher,
    GetItemMatcher,
    LeafMatcher,
    Matcher,
    NotMatcher,
    TupleMatcher,
    VariadicMatcher,
)
from gsl.match.source import Bound, SearchWriter
from gsl.match.uses import SeqMatcher
from gsl.pat import Instance, OpClass, Pattern, Repeat, Variadic
from gsl.spec import OpSpec

if TYPE_CHECKING:
    from gsl.match.plan import Plan


MOST_ITEMS = 8
"""The largest number of items of a tuple that are compared one by one."""


class NodeWriter:
    """Writes tests of single nodes."""

    def __init__(self, out: SearchWriter, plan: Plan) -> None:
        self.out = out
        self.plan = plan
        self.of = out.names.of
        self.quiet = self.of(MatchSearch(plan, ()))
        """A search in whose name matchers are asked which nodes they admit."""

    def admits(self, matcher: Matcher, var: str, bound: Bound) -> None:
        """The node is of the right kind, operator and literal attributes."""
        match matcher:
            case CallMatcher():
                self.call(matcher, var, bound)
            case TupleMatcher():
                self.out.fail_if(f"{var}.op != {TUPLE!r} or len({var}.operands) != {len(matcher.items)}")
            case VariadicMatcher():
                self.out.fail_if(f"{var}.op != {TUPLE!r} or len({var}.operands) < {matcher.pattern.min_len}")
            case ConstMatcher() | GetItemMatcher():
                self.out.fail_if(f"not {self.of(matcher)}.admits({self.quiet}, {var})")
            case LeafMatcher() | AndMatcher() | AltMatcher() | SeqMatcher() | NotMatcher() | RepeatMatcher():
                test = self.plausible(matcher, var) if type(matcher) is LeafMatcher else None
                if test is not None:
                    self.out.fail_if(f"not {test}")
            case _:
                raise NotCompiled

    def call(self, matcher: CallMatcher, var: str, bound: Bound) -> None:
        """The node has the operator, as many operands, and the literal attributes."""
        pattern = matcher.pattern
        self.out.fail_if(f"not {self.plausible(matcher, var)}")
        if pattern.operands is not None:
            self.out.fail_if(f"len({var}.operands) != {len(matcher.operands)}")
        if matcher.literals:
            self.literals(matcher, var)
        op = pattern.op
        if isinstance(op, OpClass) and op.joint:
            known = bound.operators.setdefault(op, var)
            if known != var:
                self.out.fail_if(f"{known}.op != {var}.op")

    def literals(self, matcher: CallMatcher, var: str) -> None:
        """Write the tests of literals. An attribute that is equal as it stands is accepted at once; a literal may also
        be another form of the attribute.

        Equal calls share their attributes, so the last ones that were accepted are remembered.
        """
        spec = matcher.pattern.op if isinstance(matcher.pattern.op, OpSpec) else None
        plain: list[str] = []
        others: list[str] = []
        for name, wanted in matcher.literals.items():
            test = self.is_literal(wanted, f"{var}.attrs.get({name!r}, ...)")
            (plain if spec is not None and _has_one_form(spec, name) else others).append(test)
        known = self.of(matcher)
        with self.out.block(f"if {var}.attrs is not {known}.accepted:"):
            for test in plain:
                self.out.fail_if(f"not {test}")
            if others:
                self.out.line(f"if {' and '.join(others)}: {known}.accepted = {var}.attrs")
                self.out.fail_if(f"not {known}.in_another_form({self.quiet}, {var})", word="elif")
            else:
                self.out.line(f"{known}.accepted = {var}.attrs")

    def is_literal(self, wanted: Any, found: str) -> str:
        """An expression that is true if an attribute is equal to a value as it stands."""
        exact = _exactly(wanted)
        same = f"{self.of(decidedly_same)}({self.of(wanted)}, {'v' if exact else found})"
        return f"({exact.replace('v', f'(v := {found})', 1)} or {same})" if exact else same

    def plausible(self, matcher: Matcher, var: str) -> str | None:
        """The cheap necessary condition for a node, ``None`` if it always holds."""
        match matcher:
            case CallMatcher():
                if matcher.ops is not None:
                    return self.is_one_of(matcher.ops, var)
                assert isinstance(matcher.pattern.op, OpClass)
                return f"{self.of(matcher.pattern.op)}.accepts({var}.op)"
            case LeafMatcher():
                return None if matcher.kinds is None else self.is_one_of(matcher.kinds, var)
            case TupleMatcher() | VariadicMatcher():
                return f"({var}.op == {TUPLE!r})"
            case GetItemMatcher():
                return f"({var}.op == {GETITEM!r})"
            case NotMatcher():
                return None
            case SeqMatcher():
                return self.plausible(matcher.spine[-1], var)
            case RepeatMatcher():
                return self.plausible(matcher.inner, var)
            case AndMatcher():
                tests = [self.plausible(part, var) for part in matcher.both]
                return joined(" and ", [test for test in tests if test is not None])
            case AltMatcher():
                tests = [self.plausible(choice, var) for choice in matcher.choices]
                return None if None in tests else joined(" or ", [test for test in tests if test is not None])
        raise NotCompiled

    def is_one_of(self, ops: frozenset[Op], var: str) -> str:
        """The node has one of the operators."""
        only = next(iter(ops)) if len(ops) == 1 else None
        return f"({var}.op == {only!r})" if isinstance(only, str) else f"({var}.op in {self.of(ops)})"


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


def joined(word: str, tests: Sequence[str]) -> str | None:
    """Several tests as one, ``None`` for none."""
    return f"({word.join(tests)})" if len(tests) > 1 else tests[0] if tests else None


# ---------------------------------------------------------------- guards


def write_guard(out: SearchWriter, plan: Plan, guard: Guard, bound: Bound) -> None:
    """Write the test that a guard holds."""
    if guard.owner is not None and not _may_be_bound(plan, guard.owner, bound):
        return  # it is part of an alternative that was not taken
    if type(guard) in (Guard, LiteralValue):
        mark = out.mark()
        try:
            symbols = {each.symbol for each in plan.scopes.get(guard.owner, ())} if guard.owner is not None else set()
            _expression(out, guard, bound, bound.number if symbols >= guard.expected.symbols else None)
            return
        except NotCompiled:
            out.back(mark)
    if not isinstance(guard, (OneUser, Output, UsedOutside)) or not _uses(out, guard, bound):
        _ask(out, plan, guard, bound)


def _may_be_bound(plan: Plan, owner: Pattern, bound: Bound) -> bool:
    """True if a pattern is bound, or is a template that may have instances."""
    around = plan.scopes.get(owner)
    return owner in bound.nodes or owner in bound.many or (around is not None and around[0] in bound.many)


def _expression(out: SearchWriter, guard: Guard, bound: Bound, number: str | None) -> None:
    """Test that the expression is true, or equals the value of the node. An index stands for a number."""
    of = out.names.of

    def attribute(pattern: Any, name: str) -> str:
        if isinstance(pattern, (Variadic, Repeat)) and name == "length":
            return f"{of(_unbound)}({of(pattern)})" if pattern not in bound.many else bound.many[pattern].length
        if isinstance(pattern, Instance):
            raise NotCompiled
        var = bound.nodes.get(pattern)
        return f"{of(_unbound)}({of(pattern)})" if var is None else f"{of(read)}({var}, {name!r})"

    value = source(guard.expected, out.names, attribute, bound.chosen.get, number)
    if guard.actual is None:
        out.attempt(f"value = {value}", errors=of(NO_VALUE))
        out.fail_if("value is not True")
        return
    assert guard.owner is not None
    if isinstance(guard.owner, Variadic):
        raise NotCompiled  # it has a number of instances where it is no node
    var = bound.nodes[guard.owner]
    out.attempt(f"actual = {of(guard.actual)}(None, {var}, ())", f"value = {value}", errors=of(NO_VALUE))
    out.fail_if(f"not {of(guard)}.fits(value, actual, {var})")


def _unbound(pattern: Pattern) -> NoReturn:
    raise EvaluationError(f"{pattern!r} was not matched")


def _uses(out: SearchWriter, guard: OneUser | Output | UsedOutside, bound: Bound) -> bool:
    """A guard on the users of nodes; false if it is not written as source."""
    if guard.pattern is not None and guard.pattern not in bound.nodes:
        return True
    var = bound.nodes[guard.pattern] if guard.pattern is not None else ""
    match guard:
        case OneUser():
            out.fail_if(f"len({var}.users) + ({var} in outputs) != 1")
        case Output():
            out.fail_if(f"{var} not in outputs")
        case UsedOutside() if bound.many:
            return False
        case UsedOutside():
            taken = f"({''.join(f'{each}, ' for each in bound.taken.values())})"
            ends = [bound.nodes[output] for output in guard.outputs if output in bound.nodes]
            for each in (var,) if var else bound.taken.values():
                if var or each not in ends:
                    rest = [end for end in ends if end not in bound.above[each]] if not var else []
                    others = "".join(f" and {each} is not {end}" for end in rest)
                    used = f"{out.names.of(is_used_outside)}({each}, outputs, {taken})"
                    if not bound.above[each].isdisjoint(bound.taken.values()):  # so its only user is part of the match
                        used = f"((len({each}.users) > 1 or {each} in outputs) and {used})"
                    out.fail_if(f"{'not ' if guard.used else ''}{used}{others}")
    return True


def is_used_outside(node: Node, outputs: Container[Node], taken: Collection[Node]) -> bool:
    """True if a node is an output of the graph, or has a user that is not part of the match."""
    for user in node.users:
        if user not in taken:
            return True
    return node in outputs


def _ask(out: SearchWriter, plan: Plan, guard: Guard, bound: Bound) -> None:
    """The guard itself decides, of a search that has bound as much."""
    of = out.names.of
    taken = "".join(f"{var}: ({of(identity)}, ()), " for identity, var in bound.taken.items())
    for many in bound.many.values():
        taken += f"**{of(dict.fromkeys)}({of(all_of)}({many.var}, {of(many.own)}), (None, ())), "
    given = ", ".join(f"{{{table}}}" for table in (*tables(out, plan, bound), taken))
    path = "()" if bound.number is None else f"({bound.number},)"
    out.fail_if(f"not {of(guard)}.check({of(_state)}({of(plan)}, outputs, blocked, {given}), {path})")


def tables(out: SearchWriter, plan: Plan, bound: Bound) -> tuple[str, str, str, str, str]:
    """The bindings as the items of tables: nodes, choices, operators, counts and heads."""
    of = out.names.of
    path = f"({bound.number or 0},)"
    nodes = [f"{f'({of(p)}, {path})' if p in plan.scopes else of(p)}: {var}, " for p, var in bound.nodes.items()]
    for many in reversed(bound.many.values()):
        nodes.insert(many.place, f"**{of(many.keys.bind)}({many.var}), ")
    chosen = "".join(f"{of(alt)}: {number}, " for alt, number in bound.chosen.items())
    operators = "".join(f"{of(op)}: {var}.op, " for op, var in bound.operators.items())
    counts = "".join(f"({of(p)}, ()): {many.length}, " for p, many in bound.many.items())
    heads = "".join(f"({of(p)}, ()): {var}, " for p, var in bound.heads.items())
    return "".join(nodes), chosen, operators, counts, heads


def _state(
    plan: Plan, outputs: Container[Node], blocked: Collection[Node], nodes: dict[Any, Node], chosen: dict[Any, int],
    operators: dict[Any, Any], counts: dict[Any, int], heads: dict[Any, Node], taken: dict[Node, Any],
) -> MatchSearch:  # fmt: skip
    search = MatchSearch(plan, outputs, blocked)
    bindings = search.bindings
    bindings.nodes, bindings.chosen, bindings.counts, bindings.heads = nodes, chosen, counts, heads
    search.operators, search.taken = operators, taken
    return search

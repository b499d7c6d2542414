"""The tests of a single node, as Python source."""

from __future__ import annotations

from collections.abc import Sequence
from math import isfinite
from typing import TYPE_CHECKING, Any

from gsl.attr.compile import Uncovered
from gsl.graph import GETITEM, TUPLE, Op
from gsl.match.chains import RepeatMatcher
from gsl.match.engine import Search
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
from gsl.match.source import Bound, Writer
from gsl.match.uses import SeqMatcher
from gsl.pat import OpClass
from gsl.spec import OpSpec

if TYPE_CHECKING:
    from gsl.match.plan import Plan

MOST_ITEMS = 8
"""The largest number of items of a tuple that are compared one by one."""


class NodeWriter:
    """Writes tests of single nodes."""

    def __init__(self, out: Writer, plan: Plan) -> None:
        self.out = out
        self.plan = plan
        self.of = out.names.of
        self.quiet = self.of(Search(plan, ()))
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
                raise Uncovered

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
        raise Uncovered

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

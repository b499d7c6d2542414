"""Patterns and rules: each is built or refused, shows itself, and matches within bounds."""

from __future__ import annotations

import copy
import traceback
import warnings
from typing import Any

from hypothesis import strategies as st

from gsl import RuleSet, Subst, dup
from gsl.errors import EvaluationError, GSLError, PatternError, RewriteError
from gsl.graph import Graph
from gsl.match import MatchSearch, Plan, UseLists
from gsl.pat import Pattern, walk
from gsl.rewrite.fingerprint import fingerprint
from tests.fuzz import expressions
from tests.fuzz.expressions import Expressions
from tests.fuzz.target import target
from tests.match.random_cases import graphs
from tests.match.test_compile import told
from tests.rewrite.checks import faults

MOST_STEPS = 200_000
"""How many steps the search of a small source on a small graph may take."""


def rule_of(data: st.DataObject) -> Subst | None:
    """A random rule, ``None`` for one that was refused as it should be."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return Expressions(data).rule()
        except PatternError:
            return None
        except Exception as error:
            if is_of_python(error):
                return None
            raise


def is_of_python(error: Exception) -> bool:
    """Whether Python refused what the example asks of its own values, and nothing of GSL was at work."""
    innermost = traceback.extract_tb(error.__traceback__)[-1]
    return innermost.filename == expressions.__file__


def shown(rule: Subst) -> None:
    """Everything by which a rule shows itself."""
    assert repr(rule)
    assert str(rule) == str(rule)
    assert rule.visualize().svg.startswith("<svg")
    rules = RuleSet([rule])
    assert fingerprint(rules) == fingerprint(rules)
    assert copy.copy(rule.source.outputs[0]) is copy.deepcopy(rule.source.outputs[0]) is rule.source.outputs[0]
    for pattern in walk(*rule.source.outputs, *rule.target.outputs):
        assert repr(pattern)
    for pattern in rule.source.outputs:
        again = dup(pattern)
        assert isinstance(again, Pattern)
        assert again is not pattern
        assert repr(again) == repr(pattern)


class Steps(MatchSearch):
    """A search that fails when it takes too many steps."""

    def solve(self, goals: Any) -> Any:
        for found in super().solve(goals):
            assert self.steps < MOST_STEPS
            yield found


def matched(plan: Plan, view: Graph) -> int:
    """How many matches there are, which function and search find alike."""
    search = Steps(plan, set(view.outputs))
    number = sum(1 for _ in plan.matches(view, search=search))
    assert search.steps < MOST_STEPS
    outputs = set(view.outputs)
    for anchor in plan.anchors:
        try:
            start = plan.start(anchor)
        except PatternError:
            continue
        for node in view:
            mine = [told(match) for match in start.function(node, outputs, (), UseLists())]
            assert mine == [told(match) for match in start.matches(node, MatchSearch(plan, outputs))]
    return number


def applied(rule: Subst, view: Graph, iterative: bool) -> None:
    """Applying a rule gives a graph, or a documented error, and the old graph stays as it was."""
    before = str(view)
    try:
        new, trace = rule.apply(view, iterative=iterative, max_steps=20)
        assert faults(new) == []
        assert str(new)
        assert str(trace) is not None
        again = trace.replay(view)
        assert str(again) == str(new)
    except GSLError:
        pass
    assert str(view) == before
    assert faults(view) == []


@target("patterns", examples=400)
def check_pattern(data: st.DataObject) -> None:
    rule = rule_of(data)
    if rule is None:
        return
    shown(rule)
    view = data.draw(graphs())
    try:
        rule.plan.check(view)
    except PatternError:
        return
    matched(rule.plan, view)
    try:
        list(rule.match(view))
        assert str(rule.explain(view))
    except (RewriteError, EvaluationError):
        pass
    applied(rule, view, data.draw(st.booleans()))

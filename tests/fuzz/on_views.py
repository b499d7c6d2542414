"""Views under rules that are parts of them: the numbers stay, and a trace leads to the same graph again."""

from __future__ import annotations

import warnings
from typing import Any

from hypothesis import event
from hypothesis import strategies as st

from gsl import RuleSet, Subst
from gsl.errors import FixpointError, PatternError
from gsl.graph import Graph
from gsl.rewrite.apply import apply
from tests.fuzz.laws import LAWS, Abstraction
from tests.fuzz.target import target
from tests.match.random_cases import graphs
from tests.rewrite.checks import faults, rewritten, same_numbers

STRATEGIES = ("priority", "largest", "first", "last")


def part_of(data: st.DataObject, view: Graph, name: str) -> Subst | None:
    """A rule that is a part of the view; ``None`` where what was chosen is not connected."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return Abstraction(data, view).rule(name)
        except PatternError:
            return None


class Applied:
    """The rules of a set in the form that the checks of a rewrite apply."""

    def __init__(self, rules: RuleSet) -> None:
        self.rules = rules

    def apply(self, graph: Graph, **options: Any) -> Any:
        return apply(list(self.rules), graph, strategy=self.rules.strategy, **options)


@target("views", examples=150)
def check_view(data: st.DataObject) -> None:
    view = data.draw(graphs(most=14))
    own = [part_of(data, view, f"own {number}") for number in range(data.draw(st.integers(1, 3)))]
    laws = data.draw(st.lists(st.sampled_from(LAWS), max_size=3, unique=True))
    rules = RuleSet([*laws, *filter(None, own)], strategy=data.draw(st.sampled_from(STRATEGIES)))
    iterative = data.draw(st.booleans())
    try:
        new, trace = rewritten(Applied(rules), view, iterative=iterative, max_steps=60)
    except FixpointError:
        assert faults(view) == []
        return
    event("fired" if trace.count() else "did not fire")
    assert str(trace.replay(view)) == str(new)
    if iterative:
        assert Applied(rules).apply(new, iterative=True, max_steps=60)[1].summary() == {}
    if trace.count():
        half = trace.replay(view, steps=trace.count() // 2)
        assert faults(half) == []
        assert same_numbers(view, half)

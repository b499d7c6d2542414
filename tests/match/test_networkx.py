"""Where both say the same, the matches are those of networkx: calls without commutativity, leaves left out."""

from __future__ import annotations

from typing import Any

import networkx as nx
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from networkx.algorithms.isomorphism import MultiDiGraphMatcher

from gsl import pat
from gsl.errors import PatternError
from gsl.graph import Graph, Node
from gsl.match import Plan
from gsl.pat import Call, Pattern, walk
from tests.helpers.graphs import Builder, graph
from tests.tiers import examples

OPERATORS = {1: ("nn.relu", "tanh"), 2: ("subtract", "divide")}


@st.composite
def dags(draw: st.DrawFn) -> Graph:
    def make(b: Builder) -> list[Node]:
        nodes = [b.input("x", 2), b.input("y", 2)]
        for _ in range(draw(st.integers(2, 12))):
            arity = draw(st.integers(1, 2))
            operands = [draw(st.sampled_from(nodes)) for _ in range(arity)]
            nodes.append(b.call(draw(st.sampled_from(OPERATORS[arity])), *operands))
        return nodes[2:]

    return graph(make)


@st.composite
def fragments(draw: st.DrawFn) -> list[Call]:
    """Calls of which later ones may use earlier ones; other operands are leaves."""
    calls: list[Call] = []
    for _ in range(draw(st.integers(1, 4))):
        arity = draw(st.integers(1, 2))
        operands = [draw(st.sampled_from([*calls, pat.Wildcard()])) for _ in range(arity)]
        calls.append(pat.Call(draw(st.sampled_from(OPERATORS[arity])), *operands))
    used = {operand for call in calls for operand in call.operands or ()}
    return [call for call in calls if call not in used]


def of_graph(view: Graph) -> Any:
    result = nx.MultiDiGraph()
    for node in view:
        result.add_node(node, op=node.op)
        for index, operand in enumerate(node.operands):
            result.add_edge(operand, node, index=index)
    return result


def of_pattern(outputs: list[Call]) -> Any:
    result = nx.MultiDiGraph()
    calls = [pattern for pattern in walk(*outputs) if isinstance(pattern, Call)]
    for call in calls:
        result.add_node(call, op=call.op.name)
    for call in calls:
        for index, operand in enumerate(call.operands or ()):
            if operand in calls:
                result.add_edge(operand, call, index=index)
    return result


def edges_fit(graph_edges: Any, pattern_edges: Any) -> bool:
    """Whether a pattern's edges between two nodes are among those of the graph."""
    return {e["index"] for e in pattern_edges.values()} <= {e["index"] for e in graph_edges.values()}


def reference(outputs: list[Call], view: Graph) -> set[frozenset[tuple[Pattern, Node]]]:
    matcher = MultiDiGraphMatcher(
        of_graph(view), of_pattern(outputs), node_match=lambda a, b: a["op"] == b["op"], edge_match=edges_fit
    )
    # networkx counts parallel edges where it looks for candidates, so that an operand that is used twice by the
    # graph and once by the pattern is admitted by a monomorphism only.
    return {
        frozenset((pattern, node) for node, pattern in mapping.items())
        for mapping in matcher.subgraph_monomorphisms_iter()
    }


@pytest.mark.law
@settings(max_examples=examples(300), suppress_health_check=list(HealthCheck))
@given(fragments(), dags())
def test_the_matches_are_the_monomorphisms(outputs: list[Call], view: Graph) -> None:
    try:
        plan = Plan(outputs)
    except PatternError:
        assume(False)
    calls = {pattern for pattern in plan.patterns if isinstance(pattern, Call)}
    mine = {frozenset((p, n) for p, n in match.bindings.nodes.items() if p in calls) for match in plan.matches(view)}
    assert mine == reference(outputs, view)


def test_the_reference_can_tell_a_difference() -> None:
    view = graph(lambda b: b.call("subtract", b.call("tanh", x := b.input("x", 2)), b.call("nn.relu", x)))
    left, right = pat.Call("tanh", pat.Wildcard()), pat.Call("nn.relu", pat.Wildcard())
    assert len(reference([pat.Call("subtract", left, right)], view)) == 1
    assert not reference([pat.Call("subtract", right, left)], view)

"""What a search with use relations costs, in steps, on large graphs."""

from __future__ import annotations

import time

import pytest

from gsl import RuleSet, Subst, fork_to, is_op, op, pat, wildcard
from gsl.graph import Graph, Node
from gsl.match import MatchSearch
from tests.helpers.graphs import Builder, graph


def long_chain(ops: list[str]) -> Graph:
    """Unary operators, each of the one before; made by hand because inferring types takes long."""

    def make(b: Builder) -> Node:
        nodes = [b.input("x", 4)]
        for number, name in enumerate(ops):
            nodes.append(Node(name, (nodes[-1],), {}, nodes[0].type, name=f"n{number}"))
        b.nodes = nodes
        return nodes[-1]

    return graph(make)


def steps(rule: Subst, view: Graph, most: int = 1_000_000) -> tuple[int, int]:
    """The number of matches (at most so many), and of steps until then."""
    search = MatchSearch(rule.plan, set(view.outputs))
    number = 0
    for _ in rule.plan.matches(view, search=search):
        number += 1
        if number == most:
            break
    return number, search.steps


def finding(*source: object, **options: object) -> Subst:
    return Subst(list(source), lambda match: list(match.outputs), **options)  # type: ignore[arg-type]


def test_a_sequence_costs_a_few_steps_per_node() -> None:
    view = long_chain(["exp", "tanh", "nn.relu"] * 10_000)
    rule = finding(is_op("exp") >> is_op("tanh") >> is_op("nn.relu"))
    number, cost = steps(rule, view)
    assert number == 10_000
    assert cost < 15 * 10_000


def test_a_fork_of_a_node_with_many_users() -> None:
    view = graph(lambda b: [b.call("nn.relu", b.nodes[0] if b.nodes else b.input("x", 2)) for _ in range(2000)])
    fork = Subst(fork_to(*[is_op("nn.relu") for _ in range(3)]), lambda match: list(match.outputs))
    assert steps(fork, view, most=1)[1] < 30
    assert steps(fork, view, most=1000)[1] < 15 * 1000


def test_a_fork_that_lacks_a_branch() -> None:
    view = graph(lambda b: [b.call("nn.relu", b.nodes[0] if b.nodes else b.input("x", 2)) for _ in range(2000)])
    fork = Subst(fork_to(is_op("nn.relu"), is_op("nn.relu"), is_op("tanh")), lambda match: list(match.outputs))
    assert steps(fork, view) == (0, 0)  # there is no tanh


@pytest.mark.slow
def test_a_long_chain_is_found_at_once_in_either_direction() -> None:
    view = long_chain(["exp", *["nn.relu"] * 5000, "tanh"])
    chain = pat.Repeat(is_op("nn.relu"))
    first, last = is_op("exp"), is_op("tanh")
    for source in (wildcard() > chain, first > chain, chain > last, first >> chain >> last):
        rule = finding(source)
        search = MatchSearch(rule.plan, set(view.outputs))
        match = next(rule.plan.matches(view, search=search))
        assert len(match.chain(chain)) == 5000
        assert [node.name for node in match.chain(chain)[:2]] == ["n1", "n2"]
        assert search.steps < 25_000


def test_a_chain_that_does_not_lead_to_what_is_wanted_costs_linear_time() -> None:
    view = long_chain([*["exp", *["nn.relu"] * 5000], "sigmoid", "tanh"])
    rule = finding(is_op("exp") >> pat.Repeat(is_op("nn.relu")) >> is_op("tanh"))
    number, cost = steps(rule, view)
    assert number == 0
    assert cost < 50_000


def test_one_pass_rewrites_a_long_chain_as_a_whole() -> None:
    view = long_chain(["nn.relu"] * 5000)
    x = wildcard()
    rule = Subst(x > pat.Repeat(is_op("nn.relu"), min=2), op.ReLU(x))
    start = time.process_time()
    assert [node.op for node in rule(view)] == ["input", "nn.relu"]
    assert [node.op for node in RuleSet([rule])(view)] == ["input", "nn.relu"]
    assert time.process_time() - start < 10

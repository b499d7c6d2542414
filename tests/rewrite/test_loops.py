"""Rules without an end: noticed early, never by mistake, and told so that the rules can be mended."""

from __future__ import annotations

import pytest

from gsl import RuleSet, Subst, op, pat
from gsl.errors import FixpointError
from gsl.graph import INPUT, Graph, Node, TensorType
from tests.helpers.graphs import Builder, graph, infer_type
from tests.rewrite.checks import ops, rewritten

x, y = pat.Wildcard(), pat.Wildcard()
THERE, BACK = Subst(op.ReLU(x), op.Tanh(x), name="there"), Subst(op.Tanh(x), op.ReLU(x), name="back")
ONE = graph(lambda b: b.call("nn.relu", b.input("x", 4)))


def chain(number: int) -> Graph:
    kind = TensorType((4,), "float32")
    nodes = [Node(INPUT, (), {}, kind, name="x")]
    for _ in range(number):
        nodes.append(Node("nn.relu", (nodes[-1],), {}, kind, name="relu"))
    return Graph(nodes, [nodes[-1]], infer_type)


def error(view: Graph, *rules: Subst, max_steps: int | None = None) -> str:
    before = str(view)
    with pytest.raises(FixpointError) as caught:
        RuleSet(rules, max_steps=max_steps).apply(view, iterative=True)
    assert str(view) == before
    return str(caught.value)


def test_two_rules_that_undo_each_other() -> None:
    assert error(ONE, THERE, BACK) == (
        "the rules back, there go round in circles: after round 3 the graph is what it was 2 rounds before. "
        "What leads back:\n"
        "  round 2: back: %tanh -> %relu\n"
        "  round 3: there: %relu -> %tanh\n"
        "Leave one of them out, or let its source exclude what another makes"
    )


def test_a_rule_that_undoes_itself() -> None:
    view = graph(lambda b: b.call("add", b.input("a", 4), b.input("b", 4)))
    assert error(view, Subst(x + y, y + x, name="swap")) == (
        "the rule swap goes round in circles: after round 3 the graph is what it was 2 rounds before. "
        "What leads back:\n"
        "  round 2: swap: %add -> %add\n"
        "  round 3: swap: %add -> %add\n"
        "Let the source exclude what the target makes"
    )
    assert "after round 1 the graph is what it was 1 round before" in error(ONE, Subst(op.ReLU(x), op.ReLU(x)))


def test_a_circle_of_three_beside_progress() -> None:
    """Five rounds of merging relus, while tanh, sigmoid and exp turn round and round."""
    rules = [
        Subst(op.Tanh(x), op.Sigmoid(x), name="one"),
        Subst(op.Sigmoid(x), op.Exp(x), name="two"),
        Subst(op.Exp(x), op.Tanh(x), name="three"),
        Subst(op.ReLU(op.ReLU(x)), op.ReLU(x), name="merge"),
    ]

    def make(b: Builder) -> list[Node]:
        node = b.input("x", 4)
        for _ in range(17):
            node = b.call("nn.relu", node)
        return [node, b.call("tanh", b.nodes[0])]

    text = error(graph(make), *rules)
    assert "go round in circles" in text
    assert "the graph is what it was 3 rounds before" in text
    assert "merge" not in text
    for name in ("one", "two", "three"):
        assert f": {name}: %" in text


@pytest.mark.long
def test_a_large_circle_is_noticed_early_and_shown_at_one_place() -> None:
    rewrites = 0

    def counted(match: object) -> bool:
        nonlocal rewrites
        rewrites += 1
        return True

    there = Subst(op.ReLU(x), op.Tanh(x), name="there", where=counted)
    text = error(chain(3000), there, BACK)
    assert rewrites <= 2 * 3000  # of the 61,000 steps that the graph is given
    lines = text.splitlines()
    assert len(lines) == 5
    assert lines[3] == "  … and 5998 more rewrites"


def test_a_circle_at_many_places_is_shown_at_one() -> None:
    lines = error(chain(30), THERE, BACK).splitlines()
    assert len(lines) == 5
    assert lines[3] == "  … and 58 more rewrites"


@pytest.mark.torch
def test_circles_through_folded_weights_are_not_taken_for_one_another() -> None:
    """Equal weights are one state, other weights are others."""
    from gsl.rewrite.apply import apply
    from tests.rewrite.test_fold import evaluate

    def make(b: Builder) -> Node:
        return b.call("nn.dense", b.input("x", 2, 3), b.param("w", 3, 3))

    dense, w = op.Dense(x, y), y
    same, other = Subst(dense, dense.like(x, w * 1.0), name="same"), Subst(dense, dense.like(x, w * 2.0), name="other")
    with pytest.raises(FixpointError, match="the rule same goes round in circles"):
        apply([same], graph(make), iterative=True, evaluate=evaluate)
    with pytest.raises(FixpointError, match="no end after 9 rewrites; the rule other still fires"):
        apply([other], graph(make), iterative=True, evaluate=evaluate, max_steps=9)


@pytest.mark.slow
def test_a_rule_that_feeds_itself() -> None:
    feed = Subst(op.ReLU(x), op.ReLU(op.Tanh(x)), name="feed")
    assert error(ONE, feed, max_steps=12).splitlines() == [
        "no end after 12 rewrites; the rule feed still fires, and the graph was not seen to return to an earlier "
        "state: look whether what a rule makes matches again. The last rewrites:",
        *(f"  round {number}: feed: %relu -> %relu" for number in range(3, 13)),
        "Let the source exclude what the target makes, or give max_steps=… if it only takes longer",
    ]
    assert "no end after 1040 rewrites" in error(ONE, feed)


def test_rules_without_names_that_go_round() -> None:
    there = Subst(op.ReLU(x), op.Tanh(x))
    back = Subst(op.Tanh(x), op.ReLU(x))
    assert error(ONE, there, back).startswith(f"the rules {back.name}, {there.name} go round in circles")
    assert error(ONE, each := Subst(op.ReLU(x), op.ReLU(x))).startswith(f"the {each.name} goes round in circles")


def test_steps_that_are_too_few() -> None:
    twice = Subst(op.ReLU(op.ReLU(x)), op.ReLU(x), name="twice")
    assert "no end after 5 rewrites; the rule twice still fires" in error(chain(9), twice, max_steps=5)
    _, trace = rewritten(RuleSet([twice], max_steps=8), chain(9), iterative=True)
    assert trace.count() == 8


def test_a_long_way_is_no_circle() -> None:
    """Sixty-four rounds that look alike, each of which changes one number."""

    def fewer(match: pat.Pattern) -> pat.Pattern:
        steps = match[leaky].attrs["alpha"]  # type: ignore[index]
        return op.LeakyReLU(match[x], alpha=steps - 1.0)  # type: ignore[index]

    leaky = op.LeakyReLU(x)
    count = Subst(leaky, fewer, name="count", where=leaky.alpha > 0.0)
    view = graph(lambda b: b.call("nn.leaky_relu", b.input("x", 4), alpha=64.0))
    new, trace = rewritten(count, view, iterative=True, numbers=False)
    assert trace.count() == 64
    assert ops(new) == ["nn.leaky_relu"]

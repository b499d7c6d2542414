"""A pass of many rules: one look at each node, and the same rewrites as rule by rule and goal by goal."""

from __future__ import annotations

from typing import Any

import numpy
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gsl import RuleSet, Subst, is_op, op, pat
from gsl.graph import INPUT, PARAM, Graph, Node, TensorType
from gsl.match import index, plan
from gsl.rewrite.passes import RulePass
from gsl.rewrite.trace import Trace
from tests.helpers.graphs import Builder, graph, infer_type

KIND = TensorType((4,), "float32")
UNARY = ("nn.relu", "tanh", "exp", "negative", "abs", "sqrt", "sin", "cos", "erf", "log", "rsqrt", "sigmoid")
BINARY = ("add", "multiply", "subtract")
x, y, w = pat.Wildcard(), pat.Wildcard(), pat.Param()
ones = pat.Const(numpy.ones(4, numpy.float32))


def rules() -> list[Subst]:
    """Rules that lead to each other: some let an old node, or a literal, stand where a call was."""
    both = op.Sigmoid(x)
    pairs: list[tuple[Any, Any]] = [
        (op.Negative(op.Negative(x)), x),
        (op.ReLU(op.Abs(x)), op.Abs(x)),
        (op.ReLU(op.ReLU(x)), op.ReLU(x)),
        (op.Tanh(op.ReLU(x)), op.Sigmoid(x)),
        (op.Exp(op.Tanh(x)), op.Tanh(x)),
        (op.Abs(w), ones),
        (x * pat.Const(), op.Negative(x)),
        (op.Tanh(x) + op.ReLU(y), x - y),
        (x - op.Negative(y), x + y),
        ([op.ReLU(x), op.Negative(x)], [op.Abs(x), op.Exp(x)]),
        ([op.Tanh(x), op.Abs(x)], [x, op.Exp(x)]),
        (is_op("exp") >> is_op("negative"), lambda match: op.Abs(match.inner[0].args[0])),
        (op.Abs(op.Exp(x)), op.Exp(x)),
        (op.Tanh(op.Abs(op.Exp(x))), op.Sin(x)),
        (op.Negative(op.Exp(op.Tanh(x) * y)), op.Cos(x)),
        (x - x, op.Erf(x)),  # nodes that are to be one, which others may have made one
        (x - op.Abs(x), op.Sqrt(x)),
        ([op.Tanh(x), op.Exp(x)], [both, both]),
    ]
    return [Subst(source, target, name=f"rule {n}", priority=n % 3) for n, (source, target) in enumerate(pairs)]


RULES = rules()


@st.composite
def graphs(draw: st.DrawFn) -> Graph:
    nodes = [Node(INPUT, (), {}, KIND, name="x"), Node(PARAM, (), {"value": None}, KIND, name="w")]
    for number in range(draw(st.integers(3, 16))):
        name = draw(st.sampled_from(["nn.relu", "tanh", "exp", "negative", "negative", "negative", "abs", *BINARY]))
        recent = st.sampled_from([nodes[-1], nodes[-1], nodes[-1], *nodes[-4:], nodes[1]])
        operands = tuple(draw(recent) for _ in range(2 if name in BINARY else 1))
        nodes.append(Node(name, operands, {}, KIND, name=f"n{number}"))
    return Graph(nodes, [nodes[-1], nodes[-2]], infer_type)


def told(chosen: list[Subst], strategy: str, view: Graph) -> tuple[str, str]:
    """All that a pass does."""
    graph, trace = RuleSet(chosen, strategy=strategy).apply(view)
    return trace.text(), str(graph)


@pytest.mark.parametrize("strategy", ["priority", "largest", "first", "last"])
@settings(max_examples=100, suppress_health_check=list(HealthCheck))
@given(view=graphs(), chosen=st.permutations(range(len(RULES))))
def test_one_look_at_each_node_finds_what_every_rule_finds_alone(
    strategy: str, view: Graph, chosen: list[int]
) -> None:
    picked = [RULES[number] for number in chosen]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(index, "SEVERAL", 10**9)
        patch.setattr(plan, "PAYS", 10**9)
        alone = told(picked, strategy, view)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(index, "SEVERAL", 1)
        patch.setattr(plan, "PAYS", 0)
        assert told(picked, strategy, view) == alone


def chain(*names: str) -> Graph:
    nodes = [Node(INPUT, (), {}, KIND, name="x")]
    for number, name in enumerate(names):
        nodes.append(Node(name, (nodes[-1],), {}, KIND, name=f"n{number}"))
    return Graph(nodes, [nodes[-1]], infer_type)


def made(view: Graph, chosen: list[Subst], strategy: str = "priority") -> RulePass:
    done = RulePass(view, chosen, strategy, Trace())
    done.run()
    return done


SPARE = [Subst(op.Tanh(pat.Call(name, x)), x, name=f"spare {name}") for name in ("sin", "erf", "cos", "sqrt", "tanh")]
"""Rules that match nothing below, but of which the operator is there, so that nodes are looked up in a table."""


def test_a_rule_sees_what_a_rule_before_it_laid_bare() -> None:
    view = chain("tanh", "negative", "negative", "exp", "nn.relu", "sin")
    gone, found = Subst(op.Negative(op.Negative(x)), x, name="gone"), Subst(op.Exp(op.Tanh(x)), op.Erf(x), name="found")
    assert [firing.rule for firing in made(view, [gone, found, *SPARE]).trace.firings] == ["gone", "found"]


def test_a_rule_sees_what_was_laid_bare_two_calls_away() -> None:
    view = chain("exp", "negative", "negative", "tanh", "abs", "sin")
    gone = Subst(op.Negative(op.Negative(x)), x, name="gone")
    found = Subst(op.Abs(op.Tanh(op.Exp(x))), op.Erf(x), name="found")
    root = found.plan.outputs[0]
    assert [hint.path for hint in found.plan.start(root).hints[root]] == [(0,), (0, 0)]
    assert [firing.rule for firing in made(view, [gone, found, *SPARE]).trace.firings] == ["gone", "found"]


def test_a_rule_of_alternatives_sees_what_was_laid_bare() -> None:
    view = chain("exp", "negative", "negative", "tanh", "abs", "nn.relu", "abs")
    gone = Subst(op.Negative(op.Negative(x)), x, name="gone")
    found = Subst(pat.Alt(op.ReLU(op.Erf(x)), op.Tanh(op.Exp(x))), op.Erf(x), name="found")
    root = found.plan.outputs[0]
    assert [[hint.path for hint in hints] for hints in found.plan.start(root).hints.values()] == [[(0,)], [(0,)]]
    assert [firing.rule for firing in made(view, [gone, found, *SPARE]).trace.firings] == ["gone", "found"]


def test_a_rule_sees_what_it_laid_bare_itself() -> None:
    names = ("tanh", *["negative"] * 7, "tanh", "nn.relu", "tanh")
    gone = Subst(pat.Call(pat.AnyOp(), op.Negative(x)), x, name="gone")
    alone = [firing.at for firing in made(chain(*names), [gone]).trace.firings]
    assert len(alone) == 4
    assert [firing.at for firing in made(chain(*names), [gone, *SPARE]).trace.firings] == alone


def test_what_a_rule_laid_bare_itself_is_tried_behind_what_is_refused() -> None:
    def make(b: Builder) -> list[Node]:
        first, second = b.input("x", 4), b.input("y", 4)
        bare = b.call("subtract", first, first)
        refused = b.call("subtract", second, second)
        return [refused, b.call("subtract", bare, first)]

    rule = Subst(x - x, x, where=lambda match: match[x].name != "y", name="r")
    trace = made(graph(make), [rule]).trace
    assert [firing.at for firing in trace.firings] == ["subtract", "subtract_2"]
    assert len(trace.refused) == 1


def test_a_rule_that_starts_below_sees_a_new_user() -> None:
    view = chain("exp", "negative", "negative", "tanh", "sin", "erf", "cos", "sqrt", "log", "tanh")
    gone, found = Subst(op.Negative(op.Negative(x)), x, name="gone"), Subst(op.Tanh(op.Exp(x)), op.Erf(x), name="found")
    assert [firing.at for firing in made(view, [gone, found, *SPARE]).trace.firings] == ["n2", "n0"]


def pairs(number: int) -> list[Subst]:
    """Rules for two operators in a row, each with others; they match in one place of the chain at most."""
    both = [(a, b) for a in UNARY for b in UNARY if a != b]
    return [Subst(pat.Call(a, pat.Call(b, x)), pat.Call(a, x), name=f"{a} {b}") for a, b in both[:number]]


def test_what_a_pass_costs_does_not_grow_with_the_rules() -> None:
    view = chain(*UNARY * 100)
    rare = [rule for rule in pairs(132) if tuple(rule.name.split())[::-1] not in zip(UNARY, (*UNARY[1:], UNARY[0]))]
    assert len(rare) == 120
    assert made(view, rare[:1]).tried == 100  # alone: at each node of its operator
    assert made(view, rare).tried == 0
    assert made(view, pairs(132)).tried <= 1200


def test_rules_whose_operator_is_absent_cost_nothing() -> None:
    view = chain(*["nn.relu", "tanh"] * 50)
    absent = [Subst(op.Sigmoid(pat.Call(name, x)), x, name=name) for name in UNARY]
    assert made(view, absent).tried == 0


def test_equal_branches_of_one_node() -> None:
    nodes = [Node(INPUT, (), {}, KIND, name="x")]
    nodes += [Node(name, (nodes[0],), {}, KIND, name=name) for name in ("nn.relu", "tanh") for _ in range(500)]
    view = Graph(nodes, nodes[1:], infer_type)
    both = Subst([op.ReLU(x), op.Tanh(x)], [op.Sigmoid(x), op.Exp(x)], name="both")
    done = made(view, [both])
    assert done.trace.count() == 500
    assert done.tried == 500


def test_twelve_equal_branches_and_five_outputs() -> None:
    nodes = [Node(INPUT, (), {}, KIND, name="x")]
    nodes += [Node("nn.relu", (nodes[0],), {}, KIND, name="r") for _ in range(12)]
    five = Subst([op.ReLU(x) for _ in range(5)], [op.Abs(x) for _ in range(5)], name="five")
    done = made(Graph(nodes, nodes[1:], infer_type), [five])
    assert done.trace.count() == 2
    assert done.tried == 4  # two that fire, and the two that are left


@pytest.mark.parametrize("old", [False, True])
def test_operands_that_become_one_node_match_a_pattern_that_stands_twice_in_the_same_pass(old: bool) -> None:
    first = Node(INPUT, (), {}, KIND, name="x")
    sides = [Node(name, (first,), {}, KIND, name=name) for name in ("tanh", "exp")]
    graph = Graph([first, *sides, out := Node("subtract", tuple(sides), {}, KIND, name="out")], [out], infer_type)
    one = x if old else op.Sigmoid(x)
    rules = RuleSet([Subst([op.Tanh(x), op.Exp(x)], [one, one], name="one"), Subst(x - x, op.Erf(x), name="twice")])
    new, trace = rules.apply(graph)
    assert trace.summary() == {"one": 1, "twice": 1}, str(trace)
    assert new.outputs[0].op == "erf"


def test_a_match_that_went_with_a_better_one_is_left_out() -> None:
    def make(b: Builder) -> Node:
        tanh = b.call("tanh", b.input("x", 4))
        return b.call("subtract", tanh, tanh)

    first = Subst(op.Subtract(x, x), op.Zeros(shape=(4,), dtype="float32"), name="first", priority=1)
    done = made(graph(make), [Subst(op.Tanh(x), op.Sigmoid(x), name="second"), first], "largest")
    assert done.trace.summary() == {"first": 1}


@pytest.mark.parametrize("refused", [True, False])
def test_a_node_whose_best_match_can_not_be_comes_later_with_the_next_one(refused: bool) -> None:
    """It is refused, or a better one of another node took a part of it."""
    better = Subst(op.Sqrt(op.Cos(op.Exp(x))), op.Sin(x), name="better")
    deep = pat.Alt(op.Tanh(op.Exp(y)), op.Tanh(y))
    rule = Subst(deep, op.Erf(y), where=lambda match: match[y].op != INPUT or not refused, name="rule")

    def make(b: Builder) -> list[Node]:
        exp = b.call("exp", b.input("x", 4))
        tanh = b.call("tanh", exp)
        return [tanh] if refused else [tanh, b.call("sqrt", b.call("cos", exp))]

    done = made(graph(make), [better, rule], "largest")
    assert done.trace.summary() == ({"rule": 1} if refused else {"better": 1, "rule": 1})


@pytest.mark.parametrize(("strategy", "fired"), [("first", "both"), ("last", "one")])
def test_the_place_of_a_match_is_that_of_its_first_output(strategy: str, fired: str) -> None:
    names = ("tanh", "exp", "cos")
    view = graph(lambda b: [b.call(name, data) for data in [b.input("x", 4)] for name in names])
    both = Subst([op.Tanh(x), op.Cos(x)], [op.Sin(x), op.Erf(x)], name="both")
    one = Subst([op.Exp(x), op.Cos(x)], [op.Sqrt(x), op.Log(x)], name="one")
    assert set(made(view, [one, both], strategy).trace.summary()) == {fired}

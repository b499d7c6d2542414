"""What bounds the worst cases of a search, and that it changes no match."""

from __future__ import annotations

from typing import Any

import pytest

from gsl import is_op, op, pat
from gsl.graph import INPUT, Graph, Node, Op, TensorType
from gsl.match import MatchSearch, Plan
from gsl.match.matchers import AltMatcher
from tests.helpers.graphs import infer_type

TYPE = TensorType((4,), "float32")


def view_of(*outputs: Node) -> Graph:
    """The view with these outputs."""
    order: dict[Node, None] = {}
    stack = list(reversed(outputs))
    while stack:
        node = stack[-1]
        below = [operand for operand in node.operands if operand not in order]
        if below:
            stack += reversed(below)
        else:
            order.setdefault(stack.pop())
    for number, node in enumerate(order):
        node.name = f"n{number}"
    return Graph(order, outputs, infer_type)


def call(target: Op, *operands: Node, **attrs: object) -> Node:
    return Node(target, operands, attrs, TYPE)


def custom(x: object, value: object) -> None:
    """A native target."""


def found(plan: Plan, view: Graph, search: MatchSearch | None = None) -> list[list[Node]]:
    return [list(match.values()) for match in plan.matches(view, search=search)]


def is_closed(plan: Plan, alternative: pat.Pattern) -> bool:
    matcher = plan.start(plan.anchors[0]).matchers[alternative]
    assert isinstance(matcher, AltMatcher)
    return matcher.closed


def nested(depth: int, last: str) -> tuple[Plan, Graph]:
    """Alternatives of two calls of one operator each, one below the other, and a chain on which they are tried."""
    pattern: pat.Pattern = op.Sqrt(pat.Wildcard())
    node = call(last, Node(INPUT, (), {}, TYPE))
    for _ in range(depth):
        pattern, node = op.Exp(pattern) | op.Exp(pattern), call("exp", node)
    return Plan([op.Abs(pattern)]), view_of(call("abs", node))


def test_nested_alternatives_without_a_match_cost_as_much_as_there_are() -> None:
    plan, view = nested(40, "sin")
    search = MatchSearch(plan, view.ends())
    start = plan.start(plan.anchors[0])
    assert not [match for node in view.nodes if node.op == "abs" for match in start.matches(node, search)]
    assert search.steps <= 5 * 40


def test_nested_alternatives_give_all_matches() -> None:
    plan, view = nested(5, "sqrt")
    assert len(found(plan, view)) == len(found(plan, view, MatchSearch(plan, view.ends()))) == 2**5


def test_an_alternative_that_failed_for_a_taken_node_is_tried_again() -> None:
    """With the first order of the sum, the tanh below the alternative is the other pattern's."""
    x, y = pat.Wildcard(), pat.Wildcard()
    choice = op.Exp(op.Tanh(x)) | op.Exp(op.Sin(x))
    plan = Plan([op.Subtract(op.Tanh(y) + pat.Wildcard(), choice)])
    one, two = (call("tanh", Node(INPUT, (), {}, TYPE)) for _ in range(2))
    view = view_of(call("subtract", call("add", one, two), call("exp", one)))
    start = plan.start(plan.outputs[0])
    matches = list(start.matches(view.outputs[0], MatchSearch(plan, view.ends())))
    assert [match[choice].operands for match in matches] == [(one,)]
    assert is_closed(plan, choice)


x, y = pat.Wildcard(), pat.Wildcard()
first, second, joint = op.Softmax(x), op.Softmax(y), pat.OneOf("nn.relu", "tanh")


@pytest.mark.parametrize(
    ("beside", "part"),
    [
        pytest.param(first, op.Softmax(x), id="leaf"),
        pytest.param(first, op.Softmax(y, axis=first.axis), id="guard"),
        pytest.param(pat.Call(joint, x), pat.Call(joint, y), id="class"),
        pytest.param(first, ~op.Softmax(y), id="negation"),
    ],
)
def test_an_alternative_that_refers_to_others_is_not_closed(beside: pat.Pattern, part: pat.Pattern) -> None:
    choice = op.Exp(part) | op.Exp(op.Sin(y))
    assert not is_closed(Plan([op.Add(beside, choice)]), choice)


def test_an_alternative_of_which_a_part_is_an_output_or_related_is_not_closed() -> None:
    choice = op.Exp(second) | op.Exp(op.Sin(y))
    assert not is_closed(Plan([first + choice, second]), choice)
    assert not is_closed(Plan([first + choice], constraints=(is_op("tanh") > second).constraints), choice)
    assert is_closed(Plan([first + choice]), choice)


@pytest.mark.parametrize("upper", ["nn.relu", pat.OneOf("nn.relu", "sqrt")])
def test_many_users_are_found_in_graph_order_with_few_looks_and_with_many(upper: Any) -> None:
    x = Node(INPUT, (), {}, TYPE)
    users = [call("tanh" if number % 9 == 4 else "nn.relu", x) for number in range(200)]
    users.insert(7, call("nn.relu", call("sin", x)))
    leaf = pat.Wildcard()
    plan = Plan([op.Tanh(leaf), pat.Call(upper, leaf)])
    view = view_of(*users)
    few = found(plan, view)
    assert len(few) == 22 * 178
    plan.rarest(view.by_op())[0].finder(1000)
    assert few == found(plan, view) == found(plan, view, MatchSearch(plan, view.ends()))


@pytest.mark.parametrize(
    ("wanted", "given", "fits"),
    [
        (1, 1, True), (1, True, False), (1, 2, False), ((1, 0), (1, 0), True), ((1, 0), (True, 0), False),
        ((1, 0), [1, 0], True), ((1, 0), (1,), False), (0.5, 0.5, True), (2, 2.0, True), (True, 1, False),
        ("a", "a", True), (None, None, True), (None, 0, False),
    ],
)  # fmt: skip
def test_a_literal_is_the_same_to_function_and_search(wanted: object, given: object, fits: bool) -> None:
    plan = Plan([pat.Call(custom, pat.Wildcard(), value=wanted)])
    view = view_of(call(custom, Node(INPUT, (), {}, TYPE), value=given))
    start = plan.start(plan.anchors[0])
    node = view.nodes[-1]
    assert bool(list(start.matches(node, MatchSearch(plan, view.ends())))) is fits
    start.finder(1000)
    assert len(found(plan, view)) == fits

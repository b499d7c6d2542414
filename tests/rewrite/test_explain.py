"""What a rule says about a graph that it does not match."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import pytest

from gsl import RuleSet, Subst, attr, is_op, op, pat
from gsl.errors import PatternError
from gsl.graph import Effect, Graph
from gsl.spec.natives import OnnxOp
from tests.helpers.graphs import Builder, graph
from tests.rewrite.test_scale import chain

x, y = pat.Wildcard(), pat.Wildcard()
shared = op.Tanh(x)
SIGMOID = op.Sigmoid(x)
EACH = op.Tanh(y)
TANHS = pat.Variadic(EACH, templates=[EACH, y], min_len=3)


def view() -> Graph:
    def make(b: Builder) -> list[Any]:
        data = b.input("x", 4)
        first = b.call("tanh", b.call("nn.leaky_relu", data, alpha=0.25))
        return [first, b.call("tanh", b.call("sigmoid", data)), b.call("exp", first)]

    return graph(make)


def text(rule: Subst, graph: Graph) -> str:
    """The explanation without line numbers."""
    return re.sub(r"\.py:\d+", ".py", str(rule.explain(graph)))


@pytest.mark.parametrize(
    ("rule", "expected"),
    [
        pytest.param(
            Subst(op.Tanh(op.LeakyReLU(x, alpha=0.5)), op.Tanh(x), name="r"),
            """\
r (test_explain.py): no match
  1. 0 of 3 patterns matched, then
     nn.leaky_relu(Wildcard, alpha=0.5) (test_explain.py)
     at %leaky_relu
     alpha: expected 0.5, found 0.25""",
            id="attribute",
        ),
        pytest.param(
            Subst(op.Tanh(op.Erf(x)), op.Tanh(x), name="r"),
            """\
r (test_explain.py): no match
  the graph has no call of erf
  1. 1 of 3 patterns matched, then
     erf(Wildcard) (test_explain.py)
     at %leaky_relu
     operator: expected erf, found nn.leaky_relu
  2. 1 of 3 patterns matched, then
     erf(Wildcard) (test_explain.py)
     at %sigmoid
     operator: expected erf, found sigmoid""",
            id="absent",
        ),
        pytest.param(
            Subst(pat.Repeat(SIGMOID, min=2), lambda match: list(match.outputs), name="r"),
            """\
r (test_explain.py): no match
  1. 3 of 3 patterns matched, then
     Repeat(sigmoid(Wildcard), min=2) (test_explain.py)
     at %sigmoid
     nodes of the chain: expected 2 or more, found 1""",
            id="chain",
        ),
        pytest.param(
            Subst(op.Erf(x) | op.Sqrt(x), x, name="r"),
            """\
r (test_explain.py): no match
  the graph has no call of erf or sqrt""",
            id="absent alternatives",
        ),
        pytest.param(
            Subst(op.Exp(op.Erf(x) | op.Sqrt(x)), x, name="r"),
            """\
r (test_explain.py): no match
  1. 2 of 5 patterns matched, then
     (erf(Wildcard) | sqrt(Wildcard)) (test_explain.py)
     at %tanh
     operator: expected erf or sqrt, found tanh""",
            id="alternatives",
        ),
        pytest.param(
            Subst(TANHS, lambda match: list(match.outputs), name="r"),
            """\
r (test_explain.py): no match
  1. 2 of 3 patterns matched, then
     Variadic(tanh(Wildcard), templates=[tanh, Wildcard], min_len=3) (test_explain.py)
     at %tanh
     instances: expected 3 or more, found 2
  2. 2 of 3 patterns matched, then
     Variadic(tanh(Wildcard), templates=[tanh, Wildcard], min_len=3) (test_explain.py)
     at %tanh_1
     instances: expected 3 or more, found 1""",
            id="instances",
        ),
        pytest.param(
            Subst(op.Erf(x), x, name="r"),
            """\
r (test_explain.py): no match
  the graph has no call of erf""",
            id="nothing",
        ),
        pytest.param(
            Subst(op.Sigmoid(op.Tanh(x)), x, name="r"),
            """\
r (test_explain.py): no match
  1. 1 of 3 patterns matched, then
     tanh(Wildcard) (test_explain.py)
     at %x
     operator: expected tanh, found input""",
            id="operand",
        ),
        pytest.param(
            Subst(op.Exp(op.Tanh(x)), op.Sum(x, axis=0), name="r"),
            """\
r (test_explain.py): 1 match, each of them refused
  refused at %exp: %exp is float32[4], but its replacement <sum: sum> is float32[]""",
            id="refused",
        ),
        pytest.param(
            Subst(op.Exp(op.Tanh(x)), op.Exp(x), name="r", extern_use=False),
            """\
r (test_explain.py): no match
  1. 3 of 3 patterns matched, then
     tanh(Wildcard) (test_explain.py)
     at %tanh
     use outside: expected no user outside the match, found the graph's output""",
            id="used outside",
        ),
        pytest.param(
            Subst(op.Exp(op.Tanh(x)), op.Exp(x), name="r", where=lambda match: "not today"),
            """\
r (test_explain.py): 1 match, each of them refused
  refused at %exp: not today""",
            id="condition",
        ),
        pytest.param(
            Subst(op.Exp(op.Tanh(x)), op.Exp(x), name="r", where=x.shape[0] == 5),
            """\
r (test_explain.py): no match
  1. 3 of 3 patterns matched, then
     where: expected (Wildcard.shape[0] == 5), found 4 == 5""",
            id="guard",
        ),
        pytest.param(
            Subst(op.Exp(op.Tanh(x)), op.Exp(x), name="r"),
            "r (test_explain.py): 1 match",
            id="match",
        ),
        pytest.param(
            Subst([shared, op.Erf(shared)], [x, x], name="r"),
            """\
r (test_explain.py): no match
  the graph has no call of erf
  1. 2 of 3 patterns matched, then
     erf(tanh(Wildcard)) (test_explain.py)
     at %tanh
     user: expected erf(tanh(Wildcard)), found %exp (exp)
  2. 2 of 3 patterns matched, then
     erf(tanh(Wildcard)) (test_explain.py)
     at %tanh_1
     user: expected erf(tanh(Wildcard)), found nothing""",
            id="user",
        ),
    ],
)
def test_texts(rule: Subst, expected: str) -> None:
    assert text(rule, view()) == expected


SOFTMAX = op.Softmax(x)


@pytest.mark.parametrize(
    ("condition", "told"),
    [
        (
            (x.ndim == 2) & (SOFTMAX.axis == -1),
            "(nn.softmax.axis == -1), found 1 == -1; axis=-1 in the call would match",
        ),
        (SOFTMAX.axis == -2, "(nn.softmax.axis == -2), found 1 == -2"),
        (
            (SOFTMAX.axis == 0) | (x.ndim < 2),
            "((nn.softmax.axis == 0) | (Wildcard.ndim < 2)), found False (nn.softmax.axis is 1, Wildcard.ndim is 2)",
        ),
    ],
)
def test_the_part_of_a_condition_that_fails(condition: attr.Expr, told: str) -> None:
    view = graph(lambda b: [b.call("exp", b.call("nn.softmax", b.input("x", 2, 3), axis=-1))])
    (miss,) = Subst(op.Exp(SOFTMAX), op.Exp(x), where=condition).explain(view).nearest
    assert miss.reason == f"where: expected {told}"


def test_an_explanation_is_true_when_the_rule_would_fire() -> None:
    assert Subst(op.Exp(x), x).explain(view())
    assert not Subst(op.Erf(x), x).explain(view())
    assert not Subst(op.Exp(x), op.Exp(x), where=lambda match: False).explain(view())


def relus(b: Builder) -> list[Any]:
    data = b.input("x", 4)
    return [b.call("nn.relu", data) for _ in range(1_100)]


def test_a_match_behind_many_that_are_refused() -> None:
    many = graph(relus)
    last = many.nodes[-1].name
    rule = Subst(op.ReLU(x), op.Maximum(x, x * 0), where=lambda m: m.outputs[0].name == last or "no", name="r")
    assert rule.apply(many)[1].count() == 1
    explanation = rule.explain(many)
    assert explanation
    assert len(explanation.refused) == explanation.matches - 1 == 1_099
    assert "… and 99 more refused matches" in str(explanation)


def two_sums(b: Builder) -> list[Any]:
    a, c = b.input("a", 2, 3), b.input("c", 2, 3)
    return [b.call("add", a, c), b.call("add", b.call("exp", a), c)]


def test_the_two_orders_of_operands_are_one_match() -> None:
    """As a pass takes them: one is rewritten, or refused."""
    flat = Subst(x + y, op.Reshape(x + y, newshape=(6,)), name="flat")
    found = flat.explain(graph(two_sums))
    assert [refused.at for refused in found.refused] == [("add",), ("add_1",)]
    assert str(found).splitlines()[0].endswith("2 matches, each of them refused")
    assert Subst(x + y, x - y).explain(graph(two_sums)).matches == 2
    for strategy in ("first", "largest"):
        _, trace = RuleSet([flat], strategy=strategy).apply(graph(two_sums), iterative=True)
        assert [refused.at for refused in trace.refused] == [("add",), ("add_1",)]


def test_attempts_that_end_in_the_same_way_are_told_once() -> None:
    def make(b: Builder) -> list[Any]:
        data, other = b.input("x", 4), b.input("y", 4)
        return [b.call("tanh", data), b.call("tanh", data), b.call("tanh", other)]

    found = Subst(op.Tanh(op.Exp(x)), x).explain(graph(make))
    assert [miss.node and miss.node.name for miss in found.nearest] == ["x", "y"]


def test_of_very_many_matches_some_are_counted() -> None:
    assert Subst(op.ReLU(x), op.Maximum(x, x * 0)).explain(graph(relus)).matches == 1_000


@pytest.mark.parametrize(
    ("source", "added", "told"),
    [
        (op.Dense(x, y) + pat.Param(), "nn.bias_add", True),
        (op.Dense(x, y) + pat.Param(), "multiply", False),
        (op.Dense(x, y) * pat.Param(), "nn.bias_add", False),
        (op.Tanh(x) + pat.Param(), "nn.bias_add", False),
        (op.BiasAdd(op.Tanh(op.Dense(x, y)), pat.Param()), "nn.bias_add", False),
    ],
)
def test_the_hint_that_an_addition_is_a_bias(source: pat.Pattern, added: str, told: bool) -> None:
    view = graph(lambda b: b.call(added, b.call("nn.dense", b.input("x", 2, 3), b.param("w", 3, 3)), b.param("b", 3)))
    explained = str(Subst(source, x).explain(view))
    assert ("hint: a vector that is added along the last axis of a product is a bias" in explained) is told


@pytest.mark.parametrize(
    ("source", "product", "told"),
    [
        (op.Dense(x, y), "matmul", "a product with a second operand that is not transposed is op.Matmul(x, w)"),
        (op.Matmul(x, y), "nn.dense", "a product with a transposed second operand, as of nn.Linear, is op.Dense(x, w)"),
        (op.BatchMatmul(x, y), "matmul", "torch.bmm is op.Matmul(x, y)"),
        (op.BatchMatmul(x, y), "nn.dense", None),
    ],
)
def test_the_hint_that_a_product_is_another_one(source: pat.Pattern, product: str, told: str | None) -> None:
    explained = text(Subst(source, x), graph(lambda b: b.call(product, b.input("x", 3, 3), b.input("y", 3, 3))))
    assert f"hint: {told}" in explained if told else "hint" not in explained


@pytest.mark.torch
def test_the_hint_that_numbers_of_native_calls_are_given_by_keyword() -> None:
    import torch

    topk = torch.ops.aten.topk.default
    found = graph(lambda b: b.call("nn.relu", b.call(topk, b.input("x", 4), k=2)))
    assert "given by keyword, as k=2" in text(Subst(op.ReLU(pat.Call(topk, x, 2)), op.Tanh(x)), found)


def test_a_native_operator_is_told_by_its_name() -> None:
    found = graph(lambda b: b.call("nn.relu", b.call(OnnxOp("Scale", "mine"), b.input("x", 4))))
    assert "operator: expected exp, found mine::Scale" in text(Subst(op.ReLU(op.Exp(x)), x), found)


def test_the_hint_that_a_sum_is_shown_as_a_bias() -> None:
    def make(b: Builder) -> Any:
        product = b.call("matmul", b.input("x", 2, 3), b.input("w", 3, 4))
        return b.call("gelu", b.call("nn.bias_add", product, b.input("b", 4), axis=1))

    y = pat.Wildcard()
    assert "(x + b) | op.BiasAdd(x, b, axis=-1) is either" in text(Subst(op.GELU(x + y), op.ReLU(x + y)), graph(make))
    either = (x + y) | op.BiasAdd(x, y, axis=-1)
    assert Subst(op.GELU(either), op.ReLU(x + y)).explain(graph(make)).matches == 1


def test_the_hint_that_a_literal_is_a_node_for_each_use() -> None:
    scale = pat.Const()
    found = graph(lambda b: b.call("divide", b.call("multiply", b.input("x", 4), b.const(2.0)), b.const(2.0)))
    assert "write p.value == q.value in where=" in text(Subst(x * scale / scale, x), found)


def test_the_hint_that_a_value_is_computed_twice() -> None:
    def make(b: Builder) -> list[Any]:
        data = b.input("x", 4)
        return [b.call("add", b.call("tanh", data), b.call("exp", b.call("tanh", data)))]

    twice = graph(make)
    added = Subst(shared + op.Exp(shared), op.Tanh(x))
    both = Subst([op.Exp(shared), op.Sqrt(shared)], [x, x])
    hint = "hint: %tanh and %tanh_1 are equal calls, and two nodes; a RuleSet with tidy=True lets one stand for both"
    assert hint in str(added.explain(twice))
    assert "hint" not in str(both.explain(twice))
    assert RuleSet([added], tidy=True).apply(twice)[1].count() == 1


@pytest.mark.parametrize(
    ("source", "kind", "attrs", "told"),
    [
        pytest.param(op.Tanh(op.Exp(x)), "nn.dropout", {"rate": 0.5}, True, id="operand"),
        pytest.param(op.Exp(x) > is_op("tanh"), "reshape", {"newshape": (4,)}, True, id="user"),
        pytest.param(op.Sqrt(shared) + shared, "cast", {"dtype": "float32"}, True, id="same node"),
        pytest.param(op.Tanh(op.Exp(x)), "reshape", {"newshape": (2, 2)}, False, id="something changes"),
        pytest.param(op.Tanh(op.Exp(x)), "nn.relu", {}, False, id="an operator that computes"),
    ],
)
def test_the_hint_that_a_call_changes_nothing(source: Any, kind: str, attrs: dict[str, Any], told: bool) -> None:
    def make(b: Builder) -> list[Any]:
        exp = b.call("exp", b.input("x", 4))
        tanh = b.call("tanh", b.call(kind, exp, **attrs))
        return [b.call("add", b.call("sqrt", tanh), b.call(kind, tanh, **attrs))]

    explained = str(Subst(source, x).explain(graph(make)))
    hint = rf"hint: %\w+ \({re.escape(kind)}\) changes nothing; rules.NORMAL takes such calls away"
    assert bool(re.search(hint, explained)) is told


@pytest.mark.parametrize("length", [1, 2, 3])
def test_a_group_is_refused_as_a_whole(length: int) -> None:
    """Its members start no smaller group, in a pass and in an explanation."""
    relu = op.ReLU(x)
    group = pat.Variadic(relu, templates=[relu])
    rule = Subst(group, lambda m: [op.Maximum(x, x * 0)] * 3, where=lambda m: m.length(group) == length or "length")
    three = graph(lambda b: [b.call("nn.relu", b.nodes[0] if b.nodes else b.input("x", 4)) for _ in range(3)])
    explanation = rule.explain(three)
    assert bool(explanation) is bool(rule.apply(three)[1].count()) is (length == 3)
    assert explanation.matches == 1


def test_the_furthest_come_first() -> None:
    rule = Subst(op.Tanh(op.LeakyReLU(op.ReLU(x))) + y, x)

    def make(b: Builder) -> list[Any]:
        data = b.input("x", 4)
        return [
            b.call("tanh", data),
            b.call("tanh", b.call("nn.leaky_relu", b.call("nn.relu", data), alpha=1.0)),
            b.call("nn.leaky_relu", b.call("nn.relu", data), alpha=1.0),
        ]

    plain = graph(make)
    bounds = [miss.bound for miss in rule.explain(plain).nearest]
    assert bounds == [4, 1]
    assert len(rule.explain(plain, nearest=1).nearest) == 1
    with pytest.raises(PatternError, match="nearest= is a number of partial matches, 0 or more, got -1"):
        rule.explain(plain, nearest=-1)


def test_the_graph_is_not_changed() -> None:
    graph_ = view()
    before, users = str(graph_), {node: list(node.users) for node in graph_}
    str(Subst(op.Exp(op.Tanh(x)), op.ReLU(x)).explain(graph_))
    assert str(graph_) == before
    assert {node: list(node.users) for node in graph_} == users


def test_effects_are_told() -> None:
    noisy = graph(lambda b: b.call("tanh", b.input("x", 4), effect=Effect.RANDOM))
    assert "has an effect (random), so it must stay as it is" in str(Subst(op.Tanh(x), x).explain(noisy))


def test_a_large_graph() -> None:
    explanation = Subst(op.Exp(op.Tanh(op.LeakyReLU(x))), x).explain(chain(3_400))
    assert len(explanation.nearest) == 3
    assert explanation.absent == ("exp",)


@pytest.mark.parametrize(
    ("demand", "shown"),
    [
        ({"ndim": 3}, "ndim=3"),
        ({"dtype": "int8"}, "dtype='int8'"),
        ({"shape": attr.Tuple(y.ndim, 2)}, "shape=(Wildcard.ndim, 2)"),
    ],
)
def test_a_demand_on_the_type_of_what_is_no_tensor(demand: dict[str, Any], shown: str) -> None:
    rule = Subst(op.Add(op.ReLU(pat.Wildcard(**demand)), y), y, name="r")
    view = graph(lambda b: b.call("add", b.call("nn.relu", b.tuple(b.input("x", 4))), b.input("y", 4)))
    assert f"type: expected {shown}, found (float32[4])" in text(rule, view)


def test_a_graph_within_is_told_if_the_rule_comes_near_to_it() -> None:
    rule = Subst(op.Exp(op.Tanh(x)), op.ReLU(x), name="r")
    near = rule.explain(graph(lambda b: b.call("exp", b.input("x", 4))))
    nothing = rule.explain(graph(lambda b: b.call("abs", b.input("x", 4))))
    parts = {"near": near, "nothing": nothing, "match": rule.explain(view())}
    lines = str(replace(nothing, inside=parts)).splitlines()
    assert [line for line in lines if line.startswith("in ")] == ["in near", "in match"]
    assert f"  {str(near).splitlines()[0]}" in lines


# What is drawn: the marks of the boxes, and the lines below the panels.


def marked(panel: Any) -> dict[str, str]:
    """The marks in a panel, by the titles of the boxes."""
    found, work = {}, list(panel.diagram.boxes)
    for box in work:
        work += box.inside
        if box.marks:
            found[box.lines[0]] = " ".join(mark.text for mark in box.marks)
    return found


def two_chains(b: Builder) -> list[Any]:
    tanh = b.call("tanh", b.input("x", 4))
    return [b.call("exp", b.call("nn.relu", b.call("nn.relu", tanh))), b.call("abs", tanh)]


def of_itself(b: Builder) -> list[Any]:
    data = b.input("x", 4)
    return [b.call("add", data, data), b.call("nn.leaky_relu", b.call("abs", b.call("exp", data)), alpha=0.25)]


def three_alike(b: Builder) -> list[Any]:
    return [b.call("tanh", b.input(f"x{number}", 4)) for number in range(3)]


FEW = pat.Variadic(EACH, templates=[EACH, y], min_len=2)
i = attr.Symbol()
FITS, FAILS = "a pattern, and the node that fits it", "what does not fit"
TWO_RELUS = is_op("nn.relu") >> is_op("nn.relu")
DRAWN: dict[str, tuple[Any, Any, list[dict[str, str]], tuple[str, ...], list[str], tuple[str, ...]]] = {
    "a match": (
        lambda: Subst(op.Exp(op.ReLU(x)), op.Tanh(x), name="r"),
        two_chains,
        [{"x0": "3", "nn.relu": "2", "exp": "1"}, {"nn.relu": "2", "exp": "1"}],
        (),
        [FITS],
        ("1 match",),
    ),
    "a place that fails, and an absent operator": (
        lambda: Subst(op.Exp(op.ReLU(op.Abs(x)) + op.Cos(x)), x, name="r"),
        two_chains,
        [{"add": "!", "cos": "!", "exp": "1"}, {"nn.relu": "!", "exp": "1"}],
        ("operator: expected add, found nn.relu",),
        [FITS, FAILS],
        ("no match", "the graph has no call of add", "the graph has no call of cos"),
    ),
    "nothing to start from": (
        lambda: Subst(op.Cos(x), x, name="r"),
        two_chains,
        [{"cos": "!"}],
        (),
        [FITS, FAILS],
        ("no match", "the graph has no call of cos"),
    ),
    "a node that is used elsewhere": (
        lambda: Subst(op.ReLU(op.Tanh(x)), op.ReLU(x), extern_use=False, name="r"),
        two_chains,
        [{"x0": "2", "tanh": "1 !", "nn.relu": "3"}, {"x": "2", "tanh": "1 !", "nn.relu": "3"}],
        ("use outside: expected no user outside the match, found %abs (abs)",),
        [FITS, FAILS],
        ("no match",),
    ),
    "a refused match": (
        lambda: Subst(op.Exp(x), op.Sum(x, axis=0), name="r"),
        two_chains,
        [{"x0": "2", "exp": "1"}, {"nn.relu": "2", "exp": "1 !"}],
        ("refused: %exp is float32[4], but its replacement <sum: sum> is float32[]",),
        [FITS, FAILS],
        ("1 match, each of them refused",),
    ),
    "the uses of a sequence": (
        lambda: Subst(TWO_RELUS, lambda match: list(match.outputs), name="r"),
        two_chains,
        [{"nn.relu(…)": "2"}, {"nn.relu": "1 !"}],
        ("refused: the target is what was matched",),
        [FITS, FAILS],
        ("1 match, each of them refused",),
    ),
    "a start that fails": (
        lambda: Subst(op.LeakyReLU(x, alpha=0.5), x, name="r"),
        of_itself,
        [{"nn.leaky_relu": "!"}, {"nn.leaky_relu": "!"}],
        ("alpha: expected 0.5, found 0.25",),
        [FITS, FAILS],
        ("no match",),
    ),
    "several patterns at one node": (
        lambda: Subst(op.Add(x, y), op.Multiply(x, y), name="r"),
        of_itself,
        [{"x0": "2", "x1": "3", "add": "1"}, {"x": "2,3", "add": "1"}],
        (),
        [FITS],
        ("1 match",),
    ),
    "instances": (
        lambda: Subst(FEW, pat.Variadic(op.Exp(FEW(y, i)), index=i, length=FEW.length), name="r"),
        three_alike,
        [{"x0": "2", "tanh": "1"}, {"x0": "2", "x1": "2", "x2": "2", "tanh": "1"}],
        (),
        [FITS],
        ("1 match",),
    ),
}


@pytest.mark.parametrize("name", DRAWN)
def test_what_is_marked_in_a_drawing(name: str) -> None:
    make, source, marks, lines, legend, notes = DRAWN[name]
    figure = make().explain(graph(source)).visualize().figure
    assert [marked(panel) for panel in figure.panels] == marks
    assert [panel.title for panel in figure.panels] == ["source", "graph"][: len(marks)]
    assert " ".join(map(str.strip, figure.panels[-1].lines)) == " ".join(lines)
    assert [text for _, _, text in figure.legend] == legend
    first, *more = figure.notes
    assert (first.partition(": ")[2], *more) == notes


def test_a_drawing_shows_the_neighbours_of_calls_and_not_those_of_inputs() -> None:
    (_, panel) = Subst(op.Abs(op.Exp(x)), x, name="r").explain(graph(of_itself)).visualize().figure.panels
    assert [box.lines[0] for box in panel.diagram.boxes] == ["x", "exp", "abs", "nn.leaky_relu"]


def test_the_nearest_attempt_may_start_at_any_pattern() -> None:
    """A sum is rare in the graph, and so is where the search starts; what differs is above all the rest."""
    c = pat.Const(ndim=0)
    rule = Subst(op.Exp(op.Sqrt(op.Abs(op.Tanh(x)))) + c, x, name="r")

    def make(b: Builder) -> list[Any]:
        data = b.input("x", 4)
        chain = b.call("exp", b.call("sqrt", b.call("abs", b.call("tanh", data))))
        tanhs = [b.call("tanh", b.call(name, data)) for name in ("sin", "cos")]
        others = [b.call(name, part) for part in tanhs for name in ("abs", "sqrt", "exp")]
        return [b.call("subtract", chain, data), b.call("add", data, tanhs[0]), *others]

    (nearest, *_) = rule.explain(graph(make)).nearest
    assert (nearest.bound, nearest.what) == (5, "user"), nearest
    assert "expected add" in nearest.reason
    assert "found %subtract" in nearest.reason


def test_a_hint_tells_another_form_of_what_is_wanted() -> None:
    rule = Subst(op.Sqrt(op.Multiply(x, x)), op.Abs(x), name="r")
    explanation = rule.explain(graph(lambda b: b.call("sqrt", b.call("square", b.input("x", 4)))))
    assert explanation.hint.startswith("%square may be the same by square in place of multiply")
    assert "rules.NORMAL" in explanation.hint
    other = rule.explain(graph(lambda b: b.call("sqrt", b.call("exp", b.input("x", 4)))))
    assert not other.hint


def test_a_hint_tells_how_steps_of_several_nodes_are_written() -> None:
    def make(b: Builder) -> Any:
        return b.call("nn.relu", b.call("tanh", b.call("nn.relu", b.call("tanh", b.input("x", 4)))))

    def same(match: Any) -> list[Any]:
        return list(match.outputs)

    view = graph(make)
    hint = Subst(pat.Repeat(op.ReLU(op.Tanh(x)), min=2), same, name="r").explain(view).hint
    assert "each nn.relu is an operand of the next one itself" in hint
    assert Subst(pat.Repeat(is_op("tanh") >> is_op("nn.relu"), min=2), same).explain(view).matches == 1
    alone = Subst(pat.Repeat(op.Exp(x), min=2), same, name="r").explain(graph(lambda b: b.call("exp", b.input("x", 4))))
    assert not alone.hint

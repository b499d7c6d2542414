"""The function that is written for a search finds what the search finds, in the same order."""

from __future__ import annotations

from collections import Counter
from functools import cache
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings

from gsl import attr, attr_eq, fork_to, is_op, op, pat
from gsl.graph import CONST, GETITEM, INPUT, TUPLE, Graph, Node, TensorType, TupleType, Type
from gsl.match import Match, MatchSearch, Plan, Start, UseLists, emit, emit_guards
from gsl.pat import Pattern
from tests import tiers
from tests.helpers.graphs import Builder, graph, infer_type
from tests.match.random_cases import UNARY, graphs, sources
from tests.match.test_complete import QUICK, compiled
from tests.tiers import examples
from tests.use import test_complete as use_style
from tests.use.brute import Case
from tests.use.random_cases import cases


def told(match: Match) -> tuple[Any, ...]:
    """All that a match tells, with its order."""
    bindings = match.bindings
    return (
        list(bindings.nodes.items()), list(bindings.chosen.items()), list(match.operators.items()), match.outputs,
        match.inner, bindings.counts, bindings.heads, bindings.skipped,
    )  # fmt: skip


def both_ways(plan: Plan, view: Graph, counts: Counter[str] | None = None) -> None:
    """Compare function and search from every anchor, with every third node blocked and with none."""
    outputs, use_lists = set(view.outputs), UseLists(view.by_op())
    known = use_lists if plan.variadic is not None and not plan.variadic.shared else None
    for anchor in plan.anchors:
        try:
            start = plan.start(anchor)
        except Exception:
            continue
        for blocked in (set(), set(view.nodes[::3])):
            for node in view:
                lists = use_lists if known else UseLists()
                mine = [told(match) for match in start.function(node, outputs, blocked, lists)]
                theirs = [told(match) for match in start.matches(node, MatchSearch(plan, outputs, blocked, known))]
                assert mine == theirs
                if counts is not None:
                    counts["several" if len(mine) > 1 else "one" if mine else "none"] += 1


def is_written(start: Start) -> bool:
    """True if no instruction is left to the search."""
    return emit.onward not in start.function.__globals__.values()


@pytest.mark.law
@settings(QUICK, max_examples=examples(400))
@given(cases())
def test_use_style(case: Case) -> None:
    both_ways(use_style.compiled(case), case.graph)


@pytest.mark.law
def test_operand_style() -> None:
    """Random sources agree, are written, and match often enough."""
    counts = Counter[str]()

    @settings(QUICK, max_examples=examples(400))
    @given(sources(), graphs())
    def law(outputs: list[Pattern], view: Graph) -> None:
        both_ways(compiled(outputs), view, counts)

    law()
    assert counts["none"] > examples(1000)
    assert counts["one"] > examples(50)


@cache
def dense(number: int) -> Graph:
    """Few operators over few nodes, so that everything is found in many places."""
    random = Random(0)
    kind = TensorType((4, 4), "float32")
    pair = TupleType((kind, kind))
    nodes = [Node(INPUT, (), {}, kind, name="x")]
    values = list(nodes)

    def add(name: str, *operands: Node, type: Type = kind, **attrs: Any) -> Node:
        nodes.append(Node(name, operands, attrs, type, name=f"n{len(nodes)}"))
        return nodes[-1]

    for _ in range(number):
        one, other = (random.choice(values[-4:]) for _ in range(2))
        name = random.choice(["nn.relu", "tanh", "add", "multiply", "subtract", "nn.leaky_relu", "transpose", GETITEM])
        if name == "nn.leaky_relu":
            values.append(add(name, one, alpha=random.choice([0.5, 0.25])))
        elif name == "transpose":
            values.append(add(name, one, axes=random.choice([(1, 0), (0, 1)])))
        elif name == GETITEM:
            values.append(add(name, add(TUPLE, one, other, type=pair), index=random.choice([0, 1])))
        elif name == "multiply":
            values.append(add(name, one, add(CONST, value=random.choice([2, 3]))))
        else:
            values.append(add(name, one, *[other] * (name in ("add", "subtract"))))
    return Graph(nodes, [values[-1], values[-5]], infer_type)


x, y = pat.Wildcard(), pat.Wildcard()
relu, tanh = op.ReLU(x), op.Tanh(x)
leaky, other = op.LeakyReLU(x), op.LeakyReLU(pat.Wildcard())
turned = op.Transpose(x)
unary = pat.OneOf("nn.relu", "tanh")
either = op.ReLU(x) | op.Tanh(x)
free, after = is_op("nn.relu"), is_op("tanh")
below = op.Add(x, y)


CASES: dict[str, tuple[list[Pattern], dict[str, Any]]] = {
    "either order": ([x + op.ReLU(y)], {}),
    "either order twice": ([(x + y) + op.ReLU(y)], {}),
    "a class of which some are commutative": ([pat.Call(pat.OneOf("add", "subtract"), op.Tanh(x), y)], {}),
    "one operand twice": ([x + x], {}),
    "equal calls are different nodes": ([op.ReLU(x) + op.ReLU(y)], {}),
    "alternatives": ([op.Tanh(either)], {}),
    "alternatives beside each other": ([(op.ReLU(x) | op.Tanh(x)) + (op.ReLU(y) | y)], {}),
    "a condition on the choice": ([op.Tanh(either)], {"where": [attr.Match(either, [x.ndim == 2, x.ndim == 1]).ast]}),
    "both": ([op.Tanh(op.ReLU(x) & pat.Wildcard(dtype="float32"))], {}),
    "a negation": ([op.Tanh(~op.ReLU(x))], {}),
    "a class": ([pat.Call(unary, pat.Call(unary, x))], {}),
    "any operator": ([pat.Call(pat.AnyOp(), op.Tanh(x))], {}),
    "a field": ([pat.GetItem(pat.Tuple(x, y), -1)], {}),
    "any field": ([op.ReLU(pat.GetItem(pat.Tuple(x, y)))], {}),
    "two outputs": ([relu, tanh], {}),
    "three outputs, of which two are alike": ([relu, op.ReLU(x), tanh], {}),
    "outputs above a call": ([op.ReLU(leaky), op.Tanh(leaky)], {}),
    "outputs far apart": ([op.ReLU(x), op.Tanh(x) + y], {}),
    "a literal": ([pat.Call("multiply", x, 3)], {}),
    "a literal attribute": ([op.LeakyReLU(x, alpha=0.5)], {}),
    "a literal in another form": ([op.Transpose(x, axes=(-1, -2))], {}),
    "an equal attribute": ([op.Tanh(leaky), op.LeakyReLU(leaky, alpha=leaky.alpha)], {}),
    "a type": ([op.ReLU(pat.Wildcard(shape=(None, 4), dtype="float32"))], {}),
    "another type": ([op.ReLU(pat.Wildcard(shape=(5, None)))], {}),
    "a type of another": ([op.Tanh(pat.Wildcard(shape=(x.shape[1], None))) + tanh], {}),
    "a condition": ([leaky], {"where": [((leaky.alpha * 2 == 1.0) & (x.ndim == 2)).ast]}),
    "a condition without a value": ([leaky], {"where": [(x.shape[7] == 4).ast]}),
    "a condition that folds": ([turned], {"where": [(attr.Sum(turned.axes) == 1).ast]}),
    "a condition that counts": ([turned], {"where": [(attr.Map(turned.axes, lambda i: i + 1) == (2, 1)).ast]}),
    "distinct leaves": ([x + op.ReLU(y)], {"distinct": True}),
    "inner nodes are used elsewhere": ([op.ReLU(op.Tanh(x))], {"extern_use": True}),
    "inner nodes are not used elsewhere": ([op.ReLU(op.Tanh(x))], {"extern_use": False}),
    "a sequence": ([free > after], {}),
    "a sequence that is used nowhere else": ([is_op("add") >> is_op("nn.relu")], {}),
    "at an index": ([free.used_by(is_op("subtract"), 1)], {}),
    "one user": ([is_op("tanh").uniq() > is_op("nn.relu")], {}),
    "an output": ([is_op("add").is_output() | is_op("tanh")], {}),
    "a fork": ([free, after], {"constraints": fork_to(free, after).constraints}),
    "skipped operands": ([op.Tanh(op.ReLU(x))], {"fuzzy": ("transpose", "nn.leaky_relu")}),
    "skipped below two users": ([op.ReLU(below), op.Tanh(below)], {"fuzzy": ("transpose", "nn.leaky_relu")}),
    "skipped below either operand": ([op.Tanh(x) + op.ReLU(y)], {"fuzzy": ("transpose", "tanh")}),
    "skipped in a sequence": ([free > after], {"fuzzy": ("transpose", "nn.relu", "tanh")}),
    "skipped in a sequence that is used nowhere else": ([is_op("add") >> is_op("nn.relu")], {"fuzzy": ("transpose",)}),
    "skipped at an index": ([free.used_by(is_op("subtract"), 1)], {"fuzzy": ("transpose",)}),
    "skipped in a fork": ([free, after], {"constraints": fork_to(free, after).constraints, "fuzzy": ("transpose",)}),
    "skipped and used elsewhere": ([op.Tanh(op.ReLU(x))], {"fuzzy": ("transpose",), "extern_use": True}),
    "skipped in an alternative": ([op.Tanh(op.ReLU(x) | op.ReLU(op.Tanh(x)))], {"fuzzy": ("nn.leaky_relu",)}),
    "skipped above a negation": ([op.Tanh(~op.ReLU(x))], {"fuzzy": ("transpose",)}),
    "equal attributes": ([leaky > other], {"constraints": attr_eq(leaky, other).constraints}),
}

RARE = ("three outputs, of which two are alike",)
"""What is found in large graphs only."""


def test_the_comparison_of_skipped_nodes_can_fail(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(emit, "free", lambda ways, *given: ways)
    outputs, options = CASES["skipped operands"]
    with pytest.raises(AssertionError):
        both_ways(Plan(outputs, **options), dense(500))


@pytest.mark.law
@pytest.mark.parametrize("name", CASES)
def test_every_construct(name: str) -> None:
    outputs, options = CASES[name]
    constraints = [c for output in outputs if isinstance(output, pat.Seq) for c in output.constraints]
    plan = Plan(outputs, **{"constraints": constraints, **options})
    assert is_written(plan.start(plan.anchors[0]))
    counts = Counter[str]()
    both_ways(plan, dense(5000 if tiers.chosen == "long" or name in RARE else 2000), counts)
    assert counts["none"] > 0
    assert counts["one"] + counts["several"] > 0 or name in ("another type", "a condition without a value")


def sums(number: int) -> Pattern:
    return sums(number - 1) + pat.Wildcard() if number else pat.Wildcard()


def choices(number: int) -> Pattern:
    """The alternatives are beside each other, so that each one is written for all ways through those before it."""
    below = choices(number - 1) if number else pat.Wildcard()
    return op.Subtract(below, op.ReLU(pat.Wildcard()) | op.Tanh(pat.Wildcard()) | pat.Wildcard())


def towers() -> Graph:
    """Sums of sums, and differences of differences."""

    def make(b: Builder) -> list[Node]:
        total = difference = x = b.input("x", 4)
        for number in range(emit_guards.MOST_LOOPS + 2):
            total = b.call("add", total, x)
            difference = b.call("subtract", difference, b.call(UNARY[number % 2], x))
        return [total, difference]

    return graph(make)


@pytest.mark.parametrize("source", [sums(emit_guards.MOST_LOOPS + 2), choices(5)])
def test_what_is_nested_too_deep_or_too_long_is_left_to_the_search(source: Pattern) -> None:
    plan = Plan([source])
    assert not is_written(plan.start(source))
    counts = Counter[str]()
    both_ways(plan, towers(), counts)
    assert counts["none"] > 0 < counts["one"] + counts["several"]

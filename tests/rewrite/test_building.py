"""Targets are built as their patterns say, at every match, or refused with the reason."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings

from gsl import Subst, attr, op, pat
from gsl.graph import Graph, Node
from gsl.rewrite.build import Builder as TargetBuilder
from gsl.rewrite.check import Refusal
from gsl.rewrite.target import BUILDS
from tests.helpers.graphs import Builder, graph
from tests.match.random_cases import graphs
from tests.rewrite.naive import differences
from tests.rewrite.test_properties import SOUND
from tests.rewrite.test_targets import dense_heads, fields_of_a_tuple, fuse_heads, packed
from tests.tiers import examples

x, y, w = pat.Wildcard(), pat.Wildcard(), pat.Wildcard()
leaky, tanh, conv = op.LeakyReLU(x), op.Tanh(x), op.Conv2D(x, w)
either = op.ReLU(x) | op.Tanh(x)
unary = pat.OneOf("tanh", "sigmoid")


def mixed(b: Builder) -> list[Node]:
    image, kernel = b.input("image", 1, 3, 4, 4), b.param("kernel", 3, 3, 1, 1)
    first = b.call("nn.relu", b.call("nn.conv2d", image, kernel))
    both = b.call("add", b.call("tanh", first), b.call("tanh", image))
    last = b.call("nn.relu", b.call("tanh", b.call("nn.relu", b.call("nn.conv2d", both, kernel, padding=(0, 0)))))
    scaled = [b.call("nn.leaky_relu", last, alpha=alpha) for alpha in (0.1, 0.5, 0.1)]
    return [*scaled, b.call("negative", b.call("sigmoid", b.call("negative", last)))]


def over_instances() -> Subst:
    """A sum of what is made of each instance, with a part that two variadics of one index share."""
    data, weight, i = pat.Wildcard(), pat.Wildcard(), attr.Symbol()
    dense = op.Dense(data, weight)
    heads = pat.Variadic(dense, templates=[dense, weight], min_len=2)
    halved = heads(weight, i) * 0.5
    left = pat.Variadic(op.Exp(halved), index=i, length=heads.length)
    right = pat.Variadic(op.Dense(data, halved), index=i, length=heads.length)
    joined = op.Dense(data, op.Concatenate(left, axis=0)) + op.Concatenate(right, axis=1)
    parts = op.Split(joined, indices_or_sections=heads.length, axis=-1)
    j = attr.Symbol()
    return Subst(heads, pat.Variadic(parts[j], index=j), name="over instances")


RULES = [
    (Subst(op.ReLU(conv), conv.like(x, w), name="like"), graph(mixed)),
    (Subst(op.ReLU(conv), conv.like(x, w, groups=conv.groups), name="like, with an expression"), graph(mixed)),
    (Subst(op.ReLU(tanh), op.Tanh(op.Sigmoid(x) + 1.0), name="calls"), graph(mixed)),
    (Subst(op.Tanh(x) + op.Tanh(y), op.Tanh(x) * tanh, name="a shared part"), graph(mixed)),
    (Subst(op.ReLU(x), pat.Cond(x.ndim > 1, op.ReLU6(x), op.Abs(x)), name="a condition"), graph(mixed)),
    (Subst(leaky, pat.Cond(leaky.alpha < 0.2, op.LeakyReLU(x, alpha=leaky.alpha * 2), op.LeakyReLU(x, alpha=0.0)),
           name="a condition on each"), graph(mixed)),
    (Subst(either, op.Sigmoid(x), name="an alternative"), graph(mixed)),
    (Subst(either, pat.Match(either, [op.ReLU6(x), op.Sigmoid(op.Sigmoid(x))]), name="clauses"), graph(mixed)),
    (Subst(-pat.Call(unary, -x), pat.Call(unary, x) * 1.0, name="a class"), graph(mixed)),
    (Subst(op.Tanh(x), op.Maximum(pat.Tuple(x, op.Exp(x))[0], pat.Tuple(x, op.Exp(x))[-1]), name="fields"),
     graph(mixed)),
    (Subst(op.Tanh(x), op.Concatenate(pat.Tuple(x, op.Exp(x), op.Exp(x)), axis=0), name="a tuple"), graph(mixed)),
    (Subst(op.ReLU(x), op.Split(x, indices_or_sections=1, axis=0)[0], name="a field"), graph(mixed)),
    (over_instances(), dense_heads(3, 3, 3)),
    (fuse_heads(), dense_heads(3, 3)),
    (fields_of_a_tuple(), packed(2, 0, 2)),
]  # fmt: skip


def compared(rule: Subst, view: Graph) -> list[list[str]]:
    """For each match of a rule that is not refused, what is wrong with the nodes that are built; each is built until
    a function is printed, and by that."""
    found = []
    for match in rule.match(view):
        for _ in range(BUILDS + 2):
            try:
                found.append(differences(rule, match, rule.target.build(match, view, rule.name)[0]))
            except Refusal:
                continue
    return found


@pytest.mark.parametrize(("rule", "view"), RULES, ids=lambda item: getattr(item, "name", ""))
def test_a_target_is_built_as_its_patterns_say(rule: Subst, view: Graph) -> None:
    found = compared(rule, view)
    assert found
    assert not any(found)


@pytest.mark.law
@settings(max_examples=examples(40), suppress_health_check=list(HealthCheck))
@given(view=graphs(most=12))
def test_targets_are_built_as_their_patterns_say_in_any_graph(view: Graph) -> None:
    for rule in SOUND:
        if rule.target.callable is None:
            assert not any(compared(rule, view)), rule.name


@pytest.mark.parametrize("name", ["like", "a shared part", "an alternative"])
def test_calls_that_were_made_before_are_made_again(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    rule, view = next((rule, view) for rule, view in RULES if rule.name == name)
    rule = Subst(list(rule.plan.outputs), list(rule.target.outputs), name=name)
    expected = [str(found) for found in rule.apply(view)]
    for _ in range(BUILDS):
        assert [str(found) for found in rule.apply(view)] == expected
    monkeypatch.setattr(TargetBuilder, "node", lambda *arguments: pytest.fail("it is built step by step"))
    assert [str(found) for found in rule.apply(view)] == expected


@pytest.mark.parametrize("name", ["a condition", "fields", "a tuple", "a field"])
def test_what_a_target_became_is_made_again(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    rule, view = next((rule, view) for rule, view in RULES if rule.name == name)
    matches = list(rule.match(view))
    for match in matches:
        rule.target.build(match, view, name)
    monkeypatch.setattr(TargetBuilder, "node", lambda *arguments: pytest.fail("it is built step by step"))
    for match in matches:
        new, created = rule.target.build(match, view, name)
        assert differences(rule, match, new) == []
        assert created is not None
        assert all(node.index < 0 and node.origin.replaced == match.inner for node in created if node.origin)


def test_numbers_that_a_target_reads_are_told_apart() -> None:
    number = pat.Const(ndim=0)
    rule = Subst(x * number, pat.Tuple(op.LeakyReLU(x, alpha=number.value), x)[0], name="r")

    def products(b: Builder) -> list[Node]:
        tensor = b.input("x", 4)
        return [b.call("multiply", tensor, value) for value in (0.1, 0.5, 0.1)]

    new, _ = rule.apply(graph(products))
    assert [node.attrs["alpha"] for node in new.outputs] == [0.1, 0.5, 0.1]


def test_a_number_is_no_tensor_of_its_type() -> None:
    rule = Subst(op.Add(x, y), op.Multiply(y, x), name="r")

    def sums(b: Builder, *literals: Any) -> list[Node]:
        tensor = b.input("x")
        return [b.call("add", tensor, tensor if each is None else each) for each in literals]

    for _ in range(BUILDS):
        rule.apply(graph(lambda b: sums(b, None)))
    new, trace = rule.apply(graph(lambda b: sums(b, None, 2.0, None, 3.0)))
    assert trace.count() == 4
    assert new.outputs[1].operands[0].attrs["value"] == 2.0


def swapped(nodes: list[Node]) -> None:
    nodes[0].operands = nodes[0].operands[::-1]


def unshared(nodes: list[Node]) -> None:
    left, right = nodes[0].operands
    nodes[0].operands = (left, Node(right.op, right.operands, right.attrs, right.type))


def other_operator(nodes: list[Node]) -> None:
    nodes[0].op = "subtract"


def other_attribute(nodes: list[Node]) -> None:
    nodes[0].operands[0].attrs = {"alpha": 0.5}


@pytest.mark.parametrize("spoil", [swapped, unshared, other_operator, other_attribute])
def test_the_oracle_sees_mistakes(spoil: Any) -> None:
    half = op.LeakyReLU(x, alpha=0.25)
    rule = Subst(op.ReLU(x), half + x if spoil is swapped else half + half, name="r")
    view = graph(lambda b: b.call("nn.relu", b.input("x", 4)))
    (match,) = rule.match(view)
    new, _ = rule.target.build(match, view, "r")
    assert differences(rule, match, new) == []
    spoil(new)
    assert differences(rule, match, new)


data, weight, i = pat.Wildcard(), pat.Wildcard(), attr.Symbol()
dense = op.Dense(data, weight)
heads = pat.Variadic(dense, templates=[dense, weight], min_len=2)
three = dense_heads(3, 3, 3)
scaled = graph(lambda b: b.call("nn.leaky_relu", b.input("x", 4), alpha=0.5))
relu_only = graph(lambda b: b.call("sigmoid", b.call("nn.relu", b.input("x", 4))))
apart = op.ReLU(x) | op.Tanh(y)
either_of_two = op.Sigmoid(apart)


LESS = "(nn.leaky_relu.alpha - 0.5)"
ZERO = f"(1 / {LESS}) can't be computed: (1 / {LESS}) has no value: float division by zero ({LESS} is 0.0)"


def each(field: Any, **options: Any) -> Subst:
    return Subst(heads, pat.Variadic(field, index=i, **options), name="r")


@pytest.mark.parametrize(
    ("rule", "view", "reason"),
    [
        pytest.param(Subst(either_of_two, op.Sigmoid(op.Tanh(x) + op.ReLU(y))), relu_only,
                     "Wildcard is part of an alternative that was not matched",
                     id="another alternative"),
        pytest.param(Subst(either_of_two, y), relu_only,
                     "Wildcard is part of an alternative that was not matched",
                     id="another alternative alone"),
        pytest.param(Subst(leaky, op.LeakyReLU(x, alpha=1 / (leaky.alpha - 0.5))), scaled,
                     ZERO,
                     id="no value"),
        pytest.param(Subst(leaky, pat.Cond(leaky.alpha, x, op.ReLU(x))), scaled,
                     "the condition nn.leaky_relu.alpha is 0.5, expected True or False",
                     id="no condition"),
        pytest.param(Subst(leaky, op.LeakyReLU(x, alpha=0.5) + pat.Const(x.shape)), scaled,
                     "the literal Const(Wildcard.shape) is (4,), expected a number",
                     id="no number"),
        pytest.param(Subst(leaky, op.LeakyReLU(x) * 2.0), scaled,
                     "the rule does not mention 'alpha' of nn.leaky_relu, which is 0.5 here and would become 0.01",
                     id="an attribute that gets lost"),
        pytest.param(Subst(leaky, op.Reshape(x, newshape=(3, 5))), scaled,
                     "the new reshape is not well-formed: reshape: newshape: expected a shape for 4 elements, found "
                     "(3, 5)",
                     id="ill-formed"),
        pytest.param(Subst(leaky, op.Add(2.0, 3.0)), scaled,
                     "the new add takes a tensor, but got only numbers (2.0, 3.0): a number is "
                     "pat.Const(a.value + b.value), a tensor is pat.Const(2.0, dtype=…)",
                     id="numbers alone"),
        pytest.param(Subst(leaky, op.Split(x, indices_or_sections=2, axis=0)[2]), scaled,
                     "<split: split> has no field 2: it has 2",
                     id="no such field"),
        pytest.param(Subst(leaky, lambda match: pat.Wildcard()), scaled,
                     "Wildcard was not matched",
                     id="a pattern of nothing"),
        pytest.param(Subst(leaky, lambda match: x.like(x)), scaled,
                     "Wildcard matched <x: input>, which is not a call, so nothing can be built like it",
                     id="like a leaf"),
        pytest.param(Subst(heads, lambda match: weight, name="r"), three,
                     "Wildcard is part of an alternative that was not matched",
                     id="a template"),
        pytest.param(Subst(heads, lambda match: [heads] * 3, name="r"), three,
                     "Variadic(nn.dense(Wildcard, Wildcard), templates=[nn.dense, Wildcard], min_len=2) is part of an "
                     "alternative that was not matched",
                     id="a variadic"),
        pytest.param(each(op.Dense(data, heads(weight, i + 1))), three,
                     "there is no instance 3 of Wildcard: it has 3",
                     id="no such instance"),
        pytest.param(Subst(heads, pat.Variadic(pat.Variadic(data, length=heads.length - 4)[0], index=i)), three,
                     "the length of Variadic(Wildcard, length=(Variadic.length - 4)) is -1, expected a number of "
                     "instances",
                     id="a length below zero"),
        pytest.param(Subst(op.LeakyReLU(x | either), pat.Match(either, [x, x])), scaled,
                     "(nn.relu(Wildcard) | tanh(Wildcard)) was not matched",
                     id="a choice that was not made"),
        pytest.param(Subst(leaky, pat.Fused("f", size=1 / (leaky.alpha - 0.5))), scaled,
                     ZERO,
                     id="attribute of a group"),
    ],
)  # fmt: skip
def test_what_can_not_be_built_is_refused(rule: Subst, view: Graph, reason: str) -> None:
    for _ in range(BUILDS + 2):
        _, trace = rule.apply(view)
        assert [refused.reason for refused in trace.refused] == [reason]

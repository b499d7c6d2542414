"""What use relations match beside the graphs of the literature, what a match then tells, and why there is none."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from gsl import RuleSet, Subst, attr_eq, dup, fork_to, is_const, is_op, op, pat, wildcard
from gsl.graph import Graph, Node
from gsl.match import Match, MatchSearch
from gsl.match.plan import PAYS
from gsl.pat import Pattern
from tests.helpers.graphs import Builder, graph


def finding(*source: object, **options: object) -> Subst:
    return Subst(list(source), lambda match: list(match.outputs), **options)  # type: ignore[arg-type]


def matches(view: Graph, *source: object, **options: object) -> list[Match]:
    """All matches: those that searches find, and functions too."""
    rule = finding(*source, **options)
    found = list(rule.match(view))
    for start in rule.plan.starts():
        start.finder(PAYS)
    assert list(map(str, found)) == list(map(str, rule.match(view)))
    return found


def unary(*ops: str, outputs: tuple[int, ...] = (-1,)) -> Graph:
    """A chain of unary operators."""

    def make(b: Builder) -> list[Node]:
        nodes = [b.input("x", 4)]
        for name in ops:
            nodes.append(b.call(name, nodes[-1], **({"dtype": "float32"} if name == "cast" else {})))
        return [nodes[i] for i in outputs]

    return graph(make)


exp, relu, tanh = (is_op(name) for name in ("exp", "nn.relu", "tanh"))


# What a match tells


def test_what_a_match_tells_of_a_sequence_and_a_chain() -> None:
    view = unary("exp", "nn.relu", "nn.relu", "nn.relu", "tanh")
    chain = pat.Repeat(relu)
    whole = exp >> chain >> tanh
    (match,) = matches(view, whole)
    assert match[whole].name == "tanh"
    assert match[exp].name == "exp"
    assert match[chain].name == "relu_2"
    assert [node.name for node in match.chain(chain)] == ["relu", "relu_1", "relu_2"]
    assert {node.name for node in match.inner} == {"exp", "relu", "relu_1", "relu_2", "tanh"}


def test_chains_above_rare_operators_are_found_by_a_set_of_rules() -> None:
    """Many rules are looked up by the operators around: the user of what a chain is above is its first node."""
    rare = ["tanh", "sigmoid", "nn.relu", "sqrt"]

    def make(b: Builder) -> list[Node]:
        ends = [b.call(name, b.input(f"x{number}", 4)) for number, name in enumerate(rare)]
        for _ in range(3):
            ends = [b.call("log", b.call("exp", end)) for end in ends]
        return ends

    rules = [finding(is_op(name) > pat.Repeat(is_op("exp") >> is_op("log")), name=name) for name in rare]
    found = [match.outputs[0].name for _, match in RuleSet(rules).match(graph(make))]
    assert sorted(found) == sorted(m.outputs[0].name for rule in rules for m in rule.match(graph(make)))
    assert len(found) == 3 * len(rare)


def test_attributes_of_a_chain() -> None:
    view = graph(lambda b: b.call("reshape", b.call("reshape", b.input("x", 2, 3), newshape=(6,)), newshape=(3, 2)))
    chain = pat.Repeat(is_op("reshape"))
    x = wildcard()
    rule = Subst(x > chain, op.Reshape(x, newshape=chain.newshape), where=chain.length == 2)
    new = rule(view)
    assert [node.attrs["newshape"] for node in new if node.op == "reshape"] == [(3, 2)]


def test_a_chain_of_one_operator_and_a_chain_of_any_of_a_class() -> None:
    view = unary("exp", "exp", "tanh", "tanh", "tanh", "exp", outputs=(-1,))

    def lengths(**joint: bool) -> list[int]:
        chain = pat.Repeat(is_op(pat.OneOf("exp", "tanh", **joint)), min=2)
        return sorted(len(match.chain(chain)) for match in matches(view, chain))

    assert lengths() == [2, 2, 2, 3]
    assert lengths(joint=False) == [2, 2, 2, 2, 2, 3, 3, 3, 3, 4, 4, 4, 5, 5, 6]
    chain = pat.Repeat(is_op(pat.OpWithTrait("element_wise", joint=False)))
    rule = Subst(wildcard() > chain, lambda match: chain.like(match.chain(chain)[0].operands[0]), name="last")
    assert [node.op for node in rule(view) if node.op != "input"] == ["exp"]


def test_each_of_two_calls_of_a_class() -> None:
    x = wildcard()
    view = graph(lambda b: b.call("add", b.call("exp", b.input("x", 4)), b.call("tanh", b.input("x", 4))))
    for joint in (True, False):
        unary_op = pat.OneOf("exp", "tanh", joint=joint)
        found = matches(view, pat.Call(unary_op, x) + pat.Call(unary_op, wildcard()))
        assert len(found) == (0 if joint else 2)  # in either order


@pytest.mark.parametrize(("greedy", "length"), [(True, 3), (False, 1)])
def test_greedy_chains_come_first(greedy: bool, length: int) -> None:
    view = unary("exp", "nn.relu", "nn.relu", "nn.relu", "tanh")
    for up, down in ((True, False), (False, True)):
        chain = pat.Repeat(relu, greedy=greedy)
        source = exp > chain if up else chain > tanh
        assert len(matches(view, source)[0].chain(chain)) == length, (up, down)


LINKS = ("nn.relu", "subtract", "exp", "maximum")


@pytest.mark.parametrize(
    ("sole", "used", "is_output", "parts"),
    [
        (True, None, False, [1, 3]),
        (False, None, False, [4]),
        (False, "nn.relu", False, [1, 3]),
        (False, "nn.relu", True, [1, 3]),
        (False, "subtract", False, [2, 2]),
    ],
)
def test_nodes_of_a_chain_with_two_computed_operands(
    sole: bool, used: str | None, is_output: bool, parts: list[int]
) -> None:
    """Without ``sole``, a chain goes on to each operand that nothing else uses."""

    def make(b: Builder) -> list[Node]:
        one, other = b.call("nn.relu", b.call("sigmoid", b.input("x", 4))), b.call("tanh", b.input("y", 4))
        end = b.call("maximum", b.call("exp", b.call("subtract", one, other)), 2)
        beside = [node for node in b.nodes if node.op == used]
        return [end, *(beside if is_output else [b.call("tanh", node) for node in beside])]

    chain = pat.Repeat(is_op(pat.OneOf(*LINKS, joint=False)), sole=sole)
    lengths = [length for part in parts for first in range(part) for length in range(1, part - first + 1)]
    assert sorted(len(match.chain(chain)) for match in matches(graph(make), chain)) == sorted(lengths)
    upward = matches(graph(make), is_op("sigmoid") > chain)
    assert sorted(len(match.chain(chain)) for match in upward) == [*range(1, parts[0] + 1)]


def test_a_repeated_sequence() -> None:
    view = unary("exp", "nn.relu", "tanh", "nn.relu", "tanh")
    for ends in (True, False):
        chain = pat.Repeat(is_op("nn.relu") >> is_op("tanh"), min=2)
        (match,) = matches(view, (exp > chain) if ends else chain)
        assert [node.name for node in match.chain(chain)] == ["tanh", "tanh_1"]


def test_constraints_inside_of_a_chain_hold_for_every_node() -> None:
    view = unary("exp", "nn.relu", "nn.relu", "nn.relu", outputs=(-1, 2))
    lengths = {len(m.chain(chain)) for chain in [pat.Repeat(relu.extern_use(False))] for m in matches(view, chain)}
    assert lengths == set()  # all end at an output
    chain = pat.Repeat(relu.uniq())
    assert {len(m.chain(chain)) for m in matches(view, chain)} == {1, 2}  # the first one is an output too


# Alternatives


def test_an_alternative_uses_by_the_head_of_the_choice_that_is_taken() -> None:
    either = (is_op("nn.relu") >> tanh) | (is_op("sigmoid") >> is_op("erf"))
    assert len(matches(unary("exp", "nn.relu", "tanh"), exp > either)) == 1
    assert len(matches(unary("exp", "sigmoid", "erf"), exp > either)) == 1
    assert len(matches(unary("exp", "nn.relu", "nn.relu", "tanh"), exp > either)) == 0


@pytest.mark.parametrize("view", [unary("exp", "nn.relu", "tanh"), unary("exp", "tanh")])
def test_maybe_in_a_sequence(view: Graph) -> None:
    maybe = pat.Maybe(exp >> relu, on=exp)
    assert len(matches(view, maybe > tanh)) == 1
    assert len(matches(view, (wildcard() > maybe) > tanh)) == 1
    assert len(matches(view, exp.optional(lambda p: op.ReLU(p)) > tanh)) == 1


@pytest.mark.parametrize("constrained", [relu.uniq(), relu.is_output(), relu.extern_use(False)])
def test_a_constraint_in_an_alternative_holds_only_where_it_is_taken(constrained: Pattern) -> None:
    view = graph(lambda b: [b.call("tanh", r := b.call("nn.relu", b.input("x", 4))), b.call("sigmoid", r)])
    either = (constrained > tanh) | (relu > is_op("sigmoid"))
    assert [match[either].name for match in matches(view, either)] == ["sigmoid"]


def test_a_constraint_on_a_pattern_of_the_source() -> None:
    view = unary("nn.relu", "tanh", "nn.relu", "tanh", outputs=(-1, 1))
    assert [match[relu].name for match in matches(view, relu > tanh, where=relu.is_output())] == ["relu"]


# Other relations


def test_operands_by_position() -> None:
    view = graph(lambda b: b.call("subtract", b.call("exp", b.input("x", 4)), b.call("tanh", b.nodes[0])))
    assert len(matches(view, exp.used_by(is_op("subtract"), index=0))) == 1
    assert len(matches(view, exp.used_by(is_op("subtract"), index=1))) == 0
    assert len(matches(view, wildcard().used_by(is_op("subtract"), index=1))) == 1


def test_a_literal_as_an_operand() -> None:
    view = graph(lambda b: b.call("add", b.input("x", 4), 2))
    assert len(matches(view, 2 ^ is_op("add"))) == 1
    assert len(matches(view, pat.Const(3) > is_op("add"))) == 0
    assert len(matches(view, is_const() > is_op("add"))) == 1


def test_a_pattern_as_an_operand_and_in_relations() -> None:
    view = graph(lambda b: b.call("add", b.call("nn.relu", e := b.call("exp", b.input("x", 4))), e))
    add = op.Add(relu, exp)
    assert len(matches(view, add, where=[exp > relu, exp > add, exp > add])) == 1
    assert len(matches(view, add, where=[relu > exp])) == 0


def test_attributes_types_and_shapes() -> None:
    view = graph(lambda b: b.call("nn.leaky_relu", b.call("nn.leaky_relu", b.input("x", 4), alpha=0.5), alpha=0.25))
    leaky = is_op("nn.leaky_relu")
    assert [m.outputs[0].name for m in matches(view, leaky.has_attr({"alpha": 0.25}))] == ["leaky_relu_1"]
    assert len(matches(view, wildcard().has_attr(alpha=0.5))) == 1
    other = dup(leaky)
    assert len(matches(view, (leaky > other).has_dtype("float32").has_shape((4,)))) == 1
    assert len(matches(view, (leaky > other).has_shape((5,)))) == 0
    assert len(matches(view, leaky > other.same_shape_as(leaky))) == 1
    assert len(matches(view, leaky > other, where=attr_eq(leaky, other))) == 0
    assert len(matches(view, leaky > other, where=attr_eq(leaky, other, names="alpha"))) == 0


# Between related nodes


def test_casts_between_any_two_related_nodes() -> None:
    view = graph(
        lambda b: b.call(
            "nn.dense", b.call("exp", b.input("x", 2, 4)), b.call("cast", b.param("w", 4, 4), dtype="float32")
        )
    )
    product = op.Dense(exp, w := pat.Param())
    assert matches(view, product) == []
    (match,) = matches(view, product, fuzzy="cast")
    assert match[w].name == "w"
    assert "cast" in {node.name for node in match.inner}


def test_casts_in_a_chain() -> None:
    view = unary("exp", "nn.relu", "cast", "nn.relu", "tanh")
    for up in (True, False):
        chain = pat.Repeat(is_op("nn.relu"), min=2)
        source = exp > chain if up else chain > tanh
        assert matches(view, source) == []
        (match,) = matches(view, source, fuzzy="cast")
        assert [node.name for node in match.chain(chain)] == ["relu", "relu_1"]
        assert "cast" in {node.name for node in match.inner}


def test_all_casts_between_two_nodes_are_part_of_the_match() -> None:
    (match,) = matches(unary("exp", "cast", "cast", "tanh"), op.Tanh(exp), fuzzy="cast")
    assert {node.name for node in match.inner} == {"exp", "cast", "cast_1", "tanh"}


def test_casts_of_a_way_that_is_not_free_are_no_part_of_the_match() -> None:
    """One way from the subtraction down to the exponential leads over a cast that is an operator of the match."""

    def make(b: Builder) -> Node:
        e = b.call("exp", b.input("x", 4))
        long = b.call("cast", inner := b.call("cast", e, dtype="float32"), dtype="float32")
        return b.call("add", b.call("subtract", long, b.call("cast", e, dtype="float32")), b.call("tanh", inner))

    cast, sub = op.Cast(exp), is_op("subtract")
    (match,) = matches(graph(make), op.Add(sub, op.Tanh(cast)), where=[exp > sub], fuzzy="cast")
    assert match[cast].name == "cast"
    assert [node.name for node in match.bindings.skipped] == ["cast_2"]


def test_a_chain_has_no_leaf_beyond_a_cast_either() -> None:
    chain = pat.Repeat(wildcard(), min=2)
    (match,) = matches(unary("cast", "nn.relu"), chain, fuzzy="cast")
    assert [node.name for node in match.chain(chain)] == ["cast", "relu"]


def test_every_way_past_a_cast_is_tried() -> None:
    """One of two casts is an operator of the match, so it is the other one that is skipped."""
    view = graph(
        lambda b: b.call(
            "subtract",
            b.call("cast", e := b.call("exp", b.input("x", 4)), dtype="float32"),
            b.call("cast", e, dtype="float32"),
        )
    )
    sub, cast = is_op("subtract"), is_op("cast")
    found = matches(view, sub, where=[cast.used_by(sub, 0), exp > sub], fuzzy="cast")
    assert {tuple(node.name for node in match.bindings.skipped) for match in found} >= {("cast_1",)}


# Why there is no match


def beside() -> Graph:
    """``tanh(relu(exp(x)))``, with a sigmoid that uses the relu too, and the exp as an output of the graph."""

    def make(b: Builder) -> list[Node]:
        e = b.call("exp", b.input("x", 4))
        r = b.call("nn.relu", e)
        return [b.call("tanh", r), b.call("sigmoid", r), e]

    return graph(make)


def line_of(pattern: Pattern) -> str:
    return str(pattern.location)


@pytest.mark.parametrize(
    ("source", "options", "expected"),
    [
        (relu >> tanh, {}, "only user: expected %tanh (tanh), found %sigmoid (sigmoid)"),
        (exp >> relu, {}, "only user: expected %relu (nn.relu), found the graph's output"),
        (relu.uniq() > tanh, {}, "uses: expected 1, found %tanh (tanh), %sigmoid (sigmoid)"),
        (exp.uniq() > relu, {}, "uses: expected 1, found %relu (nn.relu), the graph's output"),
        (relu.extern_use(False) > tanh, {}, "no user outside the match, found %sigmoid (sigmoid)"),
        (tanh.extern_use(True), {}, "no user"),
        ((exp > relu).extern_use(True), {}, None),
        (exp > relu, {"extern_use": False}, "no user outside the match, found the graph's output"),
        (relu > tanh, {"where": [pat.NonLeafExternUse(False)]}, "no user outside the match, found %sigmoid (sigmoid)"),
        (exp > tanh, {}, "operand: expected exp(...), found %relu (nn.relu)"),
        (fork_to(exp, relu), {}, "user: expected nn.relu(...)"),
    ],
)
def test_explanations(source: Any, options: Any, expected: str | None) -> None:
    rule = Subst(source, lambda match: list(match.outputs), **options)
    text = str(rule.explain(beside()))
    if expected is None or expected == "no user":
        assert rule.explain(beside()).matches == 1
        return
    assert expected in text
    assert "test_matching.py:" in text
    if isinstance(source, pat.Seq) and "only user" in expected:
        assert f"({line_of(source.head)})" in text


# From every anchor


def from_every_anchor(view: Graph, *source: object, **options: object) -> Iterator[list[Match]]:
    plan = finding(*source, **options).plan
    for start in plan.starts():
        yield [match for node in view for match in start.matches(node, MatchSearch(plan, view.outputs))]


def test_an_alternative_whose_other_choice_is_bound_by_a_relation() -> None:
    view = unary("nn.relu", "tanh")
    first, second = is_op("nn.relu"), is_op("tanh")
    for found in from_every_anchor(view, first | second, where=[first > second]):
        assert [match.outputs[0].name for match in found] == ["relu", "tanh"]


def test_a_shared_alternative_that_another_one_has_not_bound() -> None:
    w = wildcard()
    call = op.Add(w, w)
    view = graph(lambda b: b.call("add", b.input("x", 4), b.nodes[0]))
    for found in from_every_anchor(view, w | call, call | w):
        assert ("x", "add") in {tuple(node.name for node in match.outputs) for match in found}


@pytest.mark.parametrize(("size", "number"), [(4, 1), (5, 0)])
def test_a_demand_on_what_uses_something(size: int, number: int) -> None:
    view, demand = unary("exp", "nn.relu", "tanh"), pat.Wildcard(shape=(size,))
    for user in (relu & demand, (relu > tanh) & demand, demand & (relu > tanh)):
        for found in from_every_anchor(view, exp > user):
            assert len(found) == number

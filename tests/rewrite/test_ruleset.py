"""Rule sets: which rule wins where matches overlap, and what a set offers."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from gsl import RuleSet, Subst, alternate, op, pat
from gsl.errors import FixpointError, PatternError
from gsl.graph import Graph, Node
from tests.helpers.graphs import Builder, graph
from tests.rewrite.checks import ops, rewritten

x, y = pat.Wildcard(), pat.Wildcard()


def chain(*names: str) -> Graph:
    def make(b: Builder) -> Node:
        node = b.input("x", 4)
        for name in names:
            node = b.call(name, node)
        return node

    return graph(make)


def rule(*names: str, name: str, priority: int = 0) -> Subst:
    """A rule for a chain of operators, of which it makes as many sigmoids."""
    source = target = x
    for operator in names:
        source = getattr(op, operator)(source)
        target = op.Sigmoid(target)
    return Subst(source, target, name=name, priority=priority)


LEFT, MIDDLE, RIGHT = ("ReLU", "Tanh"), ("Tanh", "Exp", "Negative"), ("Negative", "Sqrt")
VIEW = ("nn.relu", "tanh", "exp", "negative", "sqrt")
"""A chain in which LEFT and RIGHT overlap MIDDLE, but not each other."""


@pytest.mark.parametrize(
    ("strategy", "priorities", "fired"),
    [
        ("priority", (0, 0, 0), ["left", "right"]),
        ("priority", (0, 1, 0), ["middle"]),
        ("priority", (0, 1, 2), ["right", "left"]),
        ("priority", (-1, 0, 0), ["middle"]),
        ("largest", (0, 0, 0), ["middle"]),
        ("largest", (9, 0, 9), ["middle"]),
        ("first", (0, 0, 0), ["left", "right"]),
        ("first", (0, 9, 0), ["left", "right"]),
        ("last", (0, 0, 0), ["right", "left"]),
        ("last", (9, 9, 0), ["right", "left"]),
    ],
)
def test_three_rules_that_overlap(strategy: str, priorities: Sequence[int], fired: list[str]) -> None:
    rules = [
        rule(*names, name=name, priority=priority)
        for names, name, priority in zip((LEFT, MIDDLE, RIGHT), ("left", "middle", "right"), priorities)
    ]
    _, trace = rewritten(RuleSet(rules, strategy=strategy), chain(*VIEW), numbers=False)
    assert [firing.rule for firing in trace.firings] == fired


def test_of_matches_that_end_last_the_largest_counts() -> None:
    rules = [rule("Tanh", name="small", priority=9), rule("ReLU", "Tanh", name="large")]
    _, trace = rewritten(RuleSet(rules, strategy="last"), chain("nn.relu", "tanh"), numbers=False)
    assert [firing.rule for firing in trace.firings] == ["large"]


@pytest.mark.parametrize("strategy", ["priority", "largest", "first", "last"])
def test_the_order_of_the_list_breaks_ties(strategy: str) -> None:
    one, other = rule("ReLU", "Tanh", name="one"), rule("ReLU", "Tanh", name="other")
    for rules in ([one, other], [other, one]):
        _, trace = rewritten(RuleSet(rules, strategy=strategy), chain("nn.relu", "tanh"), numbers=False)
        assert [firing.rule for firing in trace.firings] == [rules[0].name]
    late = rule("ReLU", "Tanh", name="late", priority=1)
    _, trace = rewritten(RuleSet([one, late], strategy=strategy), chain("nn.relu", "tanh"), numbers=False)
    assert [firing.rule for firing in trace.firings] == ["late"]


@pytest.mark.parametrize("strategy", ["priority", "largest", "first"])
def test_the_order_of_the_graph_comes_last(strategy: str) -> None:
    rules = RuleSet([rule("ReLU", "ReLU", name="two")], strategy=strategy)
    _, trace = rewritten(rules, chain(*["nn.relu"] * 5), numbers=False)
    assert [firing.replaced for firing in trace.firings] == [("relu_1",), ("relu_3",)]


def test_largest_looks_at_all_matches_of_a_node() -> None:
    """The alternative that matches first is the smaller one; and what is left after a rewrite is measured anew."""
    short, long = op.ReLU(x), op.ReLU(op.ReLU(y))
    either = pat.Alt(short, long)
    rules = [
        Subst(op.Tanh(either), op.Sigmoid(pat.Match(either, [x, y])), name="alternatives"),
        rule("ReLU", "ReLU", name="relus"),
    ]
    new, trace = rewritten(RuleSet(rules, strategy="largest"), chain("nn.relu", "nn.relu", "tanh"), numbers=False)
    assert ops(new) == ["sigmoid"]
    assert [firing.rule for firing in trace.firings] == ["alternatives"]


def test_largest_measures_again_what_another_rewrite_has_cut() -> None:
    """Five relus go first; of the four nodes of the next match, only two are then left, so one of three comes first."""
    short, long = op.ReLU(x), op.ReLU(op.ReLU(op.ReLU(y)))
    either = pat.Alt(long, short)
    rules = [
        rule(*["ReLU"] * 5, name="five"),
        Subst(op.Tanh(either), op.Sigmoid(pat.Match(either, [y, x])), name="four or two"),
        rule("ReLU", "Tanh", "Exp", name="three"),
    ]
    view = chain(*["nn.relu"] * 7, "tanh", "exp")
    _, trace = rewritten(RuleSet(rules, strategy="largest"), view, numbers=False)
    assert [firing.rule for firing in trace.firings] == ["five", "three"]


@pytest.mark.parametrize("strategy", ["largest", "first"])
def test_what_is_refused_makes_way(strategy: str) -> None:
    refused = Subst(op.Tanh(op.ReLU(x)), op.Sum(x, axis=0), name="another type", priority=1)
    new, trace = rewritten(RuleSet([refused, rule("Tanh", name="small")], strategy=strategy), chain("nn.relu", "tanh"),
                           numbers=False)  # fmt: skip
    assert [firing.rule for firing in trace.firings] == ["small"]
    assert [refusal.rule for refusal in trace.refused] == ["another type"]
    assert ops(new) == ["nn.relu", "sigmoid"]


@pytest.mark.parametrize("strategy", ["priority", "largest", "first"])
def test_to_a_fixed_point(strategy: str) -> None:
    rules = [Subst(op.ReLU(op.ReLU(x)), op.ReLU(x), name="twice"), Subst(op.Tanh(op.ReLU(x)), op.Tanh(x), name="last")]
    view = chain(*["nn.relu"] * 9, "tanh")
    new, trace = rewritten(RuleSet(rules, strategy=strategy), view, iterative=True, numbers=False)
    assert ops(new) == ["tanh"]
    again, same = rewritten(RuleSet(rules, strategy=strategy), view, iterative=True, numbers=False)
    assert (str(new), str(trace)) == (str(again), str(same))


# The set itself.

A, B, C = rule("ReLU", name="a"), rule("Tanh", name="b"), rule("Exp", name="c")


def test_a_set_is_a_collection_by_name() -> None:
    rules = RuleSet([A, B], strategy="largest", max_steps=5)
    assert (len(rules), list(rules), rules["b"]) == (2, [A, B], B)
    assert A in rules
    assert "a" in rules
    assert "c" not in rules
    both = rules + RuleSet([B, C])
    assert (list(both), both.strategy, both.max_steps) == ([A, B, C], "largest", 5)
    with pytest.raises(KeyError, match=r"no rule is named 'd': known are a, b"):
        rules["d"]
    with pytest.raises(KeyError, match=r"no rule is named 0: known are a, b"):
        rules[0]  # type: ignore[index]
    with pytest.raises(TypeError):
        rules + [C]  # type: ignore[operator]


def test_the_number_of_steps_of_a_set_holds_where_no_other_is_given() -> None:
    rules = RuleSet([Subst(op.ReLU(x), op.ReLU(op.Tanh(x)), name="feed")], max_steps=5)
    for run in (rules, rules.apply):
        for given, most in ((None, 5), (3, 3), (8, 8)):
            with pytest.raises(FixpointError, match=rf"^no end after {most} rewrites; the rule feed still fires"):
                run(chain("nn.relu"), iterative=True, max_steps=given)


def test_matches_and_explanations_of_all_rules() -> None:
    view = chain("nn.relu", "tanh", "nn.relu")
    rules = RuleSet([A, B, C])
    found = [(rule.name, match.outputs[0].index) for rule, match in rules.match(view)]
    assert found == [("a", 1), ("a", 3), ("b", 2)]
    why = rules.explain(view)
    assert list(why) == ["a", "b", "c"]
    assert [bool(why[name]) for name in why] == [True, True, False]
    assert "the graph has no call of exp" in str(why)


def test_a_match_that_a_condition_refuses_is_none() -> None:
    never = Subst(op.ReLU(x), op.Exp(x), where=lambda match: "never", name="never")
    assert [rule.name for rule, _ in RuleSet([never, B]).match(chain("nn.relu", "tanh"))] == ["b"]


def test_so_many_partial_matches_as_are_asked_for() -> None:
    rules, view = RuleSet([rule("ReLU", "Tanh", name="r")]), chain("nn.relu", "exp", "tanh", "exp", "tanh")
    for options, number in (({}, 1), ({"nearest": 0}, 0), ({"nearest": 1}, 1)):
        assert len(rules.explain(view, **options)["r"].nearest) == number


def many_equal(b: Builder) -> list[Node]:
    """Two calls that a rewrite makes equal, two that are equal, and one that nothing uses."""
    data = b.input("x", 4)
    b.call("sqrt", data)
    first, second = b.call("nn.leaky_relu", data, alpha=0.0), b.call("nn.relu", data)
    return [b.call("exp", first), b.call("negative", second), *(b.call("sin", b.call("cos", data)) for _ in range(2))]


def test_sets_that_take_turns_share_and_tidy_as_one_set_does() -> None:
    leaky = Subst(op.LeakyReLU(x, alpha=0.0), op.ReLU(x), name="leaky")
    for rules, left in ((RuleSet([leaky]), 8), (RuleSet([leaky], tidy=True), 5), (RuleSet([B], tidy=True), 6)):
        new = alternate([rules, rule("Tanh", name="late")], graph(many_equal))
        assert len(ops(new)) == left
        assert str(new) == str(rules.apply(graph(many_equal), iterative=True)[0])


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda: RuleSet([op.ReLU(x)]), r"^test_ruleset\.py:\d+: a RuleSet is made of Subst, got nn.relu"),
        (lambda: RuleSet([RuleSet([A])]), r"got <RuleSet of 1 rules, .*; its rules are written \[\*rules\]"),  # type: ignore[list-item]
        (lambda: RuleSet({A}), "are in an order, and a set has none: give a list"),
        (lambda: RuleSet("BOOK"), r"as RuleSet\(\[rule\]\), got 'BOOK'"),  # type: ignore[arg-type]
        (lambda: RuleSet([A], tidy="yes"), "tidy= is True or False, got 'yes'"),  # type: ignore[arg-type]
        (lambda: RuleSet(A), r"as RuleSet\(\[rule\]\), got <Subst a>"),  # type: ignore[arg-type]
        (lambda: Subst(op.ReLU(x), x, priority="high"), "priority= of a rule is a number, got 'high'"),  # type: ignore[arg-type]
        (lambda: Subst(op.ReLU(x), x, extern_use="no"), "extern_use= of a rule is True, False or None, got 'no'"),  # type: ignore[arg-type]
        (lambda: Subst(op.ReLU(x), x, distinct=1), "distinct= of a rule is True or False, got 1"),  # type: ignore[arg-type]
        (lambda: Subst(op.ReLU(x), x, doc=4), "doc= of a rule is a string, got 4"),  # type: ignore[arg-type]
        (lambda: Subst(op.ReLU(x), x, name=""), "name= of a rule is a line of text, got ''"),
        (lambda: Subst(op.ReLU(x), x, name="a\nb"), r"name= of a rule is a line of text, got 'a\\nb'"),
        (lambda: RuleSet([], strategy="larges"), "did you mean 'largest'"),
        (lambda: RuleSet([], strategy=None), "unknown strategy None: known are first, "),  # type: ignore[arg-type]
        (lambda: alternate(A, chain("nn.relu")), "alternate takes a list of rules and sets, and then a wor"),  # type: ignore[arg-type]
        (lambda: RuleSet([A, B, A]), r"the rule a \(test_ruleset\.py:\d+\) stands twice in the RuleSet; .* as a \+ b"),
        (lambda: RuleSet([A, rule("Exp", name="a")]), r"two rules are named 'a': a \(test_ruleset\.py:\d+\) and a \("),
        (lambda: RuleSet([A]) + RuleSet([rule("Exp", name="a")]), "two rules are named 'a'"),
        (lambda: RuleSet([A]) + B, r"a RuleSet is joined with another one: a \+ RuleSet\(\[rule\]\)"),  # type: ignore[operator]
        (lambda: RuleSet([A]) + [B], r"a RuleSet is joined with another one: a \+ RuleSet\(\[…\]\)"),  # type: ignore[operator]
        (lambda: [B] + RuleSet([A]), "a RuleSet is joined with another one"),  # type: ignore[operator]
    ],
)
def test_what_a_set_refuses(make: object, text: str) -> None:
    assert callable(make)
    with pytest.raises(PatternError, match=text):
        make()


@pytest.mark.parametrize("steps", [0, -1, 1.5, True])
def test_a_number_of_steps_that_is_none(steps: object) -> None:
    message = rf"test_ruleset.py:\d+: max_steps= is a number of rewrites, 1 or more, got {steps}"
    each = rule("ReLU", name="r")
    with pytest.raises(PatternError, match=message):
        RuleSet([each], max_steps=steps)  # type: ignore[arg-type]
    with pytest.raises(PatternError, match=message):
        each(chain("nn.relu"), max_steps=steps)  # type: ignore[arg-type]

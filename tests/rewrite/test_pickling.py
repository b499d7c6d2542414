"""Pickled patterns, rules, rule sets and traces: the same objects are the same nodes again, also in another process."""

from __future__ import annotations

import copy
import functools
import multiprocessing
import pickle
from concurrent.futures import ProcessPoolExecutor
from typing import Any

import pytest
import torch
from hypothesis import given, settings

from gsl import Match, RuleSet, Subst, attr, attr_eq, dup, fork_to, is_op, op, pat, rules
from gsl.errors import PicklingError
from gsl.graph import Graph
from gsl.rewrite import Trace
from tests.helpers.graphs import Builder, graph
from tests.match.random_cases import graphs, sources

X, Y = pat.Wildcard(), pat.Wildcard()
RELU = op.ReLU(X)


def again(value: Any) -> Any:
    return pickle.loads(pickle.dumps(value))


def relus(length: int = 3) -> Graph:
    def make(b: Builder) -> Any:
        node = b.input("x", 2, 3)
        for _ in range(length):
            node = b.call("nn.relu", node)
        return node

    return graph(make)


def is_matrix(match: Match) -> bool:
    return match.outputs[0].ndim == 2


def is_large(match: Match, leaf: pat.Pattern, least: int) -> bool:
    return bool(match[leaf].shape[0] >= least)


def of_module(match: Match) -> bool:
    return X in match


CONV = op.Conv2D(X, pat.Param(shape=(None, 3, None, None)), padding=(1, 1))
PATTERNS: dict[str, Any] = {
    "call": CONV,
    "like": CONV.like(RELU, Y, groups=CONV.groups + 1),
    "literals": X * 2.0 + pat.Const([1, 2], dtype="int32"),
    "classes": pat.Call(pat.OpWithTrait("element_wise"), X) | pat.Call(pat.NoneOf(torch.erfinv, joint=False), X),
    "native": pat.Call(torch.ops.aten.nansum.default, X, dtype=torch.float64),
    "class of overloads": is_op(pat.OneOf(torch.ops.aten.erfinv.default)),
    "negation": op.Exp(~op.Tanh(X) & pat.Wildcard(ndim=2)),
    "sequence": is_op("nn.conv2d") >> is_op("nn.relu").uniq() > is_op("add"),
    "group": fork_to(attr_eq(CONV, dup(CONV))),
    "chain": pat.Repeat(RELU, 2, 4, sole=False),
    "variadic": pat.Variadic(RELU, templates=[RELU], index=attr.Symbol("k"), length=X.ndim),
    "clauses": pat.Match(X | RELU, [X, pat.Cond(X.ndim == 1, X, RELU)]),
    "field": op.Split(X, indices_or_sections=attr.Variadic(lambda i: i + 1))[1],
    "group of fused nodes": pat.Fused("name", size=attr.Sum(X.shape)),
}


@pytest.mark.parametrize("name", PATTERNS)
def test_patterns(name: str) -> None:
    pattern = PATTERNS[name]
    new = again(pattern)
    assert repr(new) == repr(pattern)
    assert new is not pattern
    before, after = (pat.walk(*(p.members if isinstance(p, pat.Group) else (p,))) for p in (pattern, new))
    assert [each.location for each in before] == [each.location for each in after]


def test_operators() -> None:
    assert pickle.loads(pickle.dumps(op.ReLU)) is op.ReLU
    assert copy.deepcopy(op.ReLU) is op.ReLU


def test_the_same_object_is_the_same_node_again() -> None:
    x, first, both = again((X, RELU, op.Add(RELU, RELU)))
    assert both.operands == (first, first)
    assert first.operands == (x,)
    class_of, one, other = again((k := pat.OneOf("exp", "tanh"), pat.Call(k, X), pat.Call(k, Y)))
    assert one.op is other.op is class_of
    with pytest.raises(TypeError, match="immutable"):
        first.operands = ()


@settings(max_examples=30)
@given(sources(), graphs())
def test_a_rule_matches_what_it_matched(source: list[pat.Pattern], view: Graph) -> None:
    try:
        rule = Subst(source, first_nodes, name="random")
    except ValueError:
        return  # not a rule
    new = again(rule)
    assert str(new) == str(rule)
    assert bound(new, view) == bound(rule, view)


def bound(rule: Subst, view: Graph) -> list[list[Any]]:
    """For each match, the nodes of the patterns in their order."""
    return [[match.get(pattern) for pattern in rule.plan.patterns] for match in rule.match(view)]


def first_nodes(match: Match) -> list[Any]:
    return list(match.outputs)


def test_all_of_a_rule() -> None:
    rule = Subst(
        op.ReLU(RELU), RELU, where=[X.ndim == 2, is_matrix], name="once", doc="text", priority=3, inference_only=True,
        extern_use=False, distinct=True, fuzzy=("cast", torch.ops.aten.erfinv.default),
    )  # fmt: skip
    new = again(rule)
    assert str(new) == str(rule)
    assert "('aten.erfinv.default', 'cast')" in str(rule), "in the order of their names, not in that of a set"
    assert (new.name, new.doc, new.priority, new.inference_only) == ("once", "text", 3, True)
    assert new.location == rule.location
    assert (new.plan.distinct, new.plan.extern_use, new.plan.fuzzy) == (True, False, rule.plan.fuzzy)
    assert new.apply(relus())[1].count() == 1
    assert new.apply(graph(lambda b: b.call("nn.relu", b.call("nn.relu", b.input("x", 3)))))[1].count() == 0


def test_rules_that_are_pickled_together_share_their_patterns() -> None:
    one, two, leaf = again((Subst(RELU, X), Subst(op.Tanh(X), X), X))
    assert leaf in one.plan.known
    assert leaf in two.plan.known
    alone = again(Subst(RELU, X))
    assert leaf not in alone.plan.known


def test_functions_of_a_rule() -> None:
    rule = Subst(op.ReLU(RELU), RELU, where=functools.partial(is_large, leaf=X, least=2))
    assert again(rule).apply(relus())[1].count() == 1
    assert again(Subst(RELU, first_nodes)).target.callable is first_nodes


def local() -> Any:
    def condition(match: Match) -> bool:
        return True

    return condition


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"where": lambda match: True}, r"<lambda> has no name by which another process finds it; define it"),
        ({"where": local()}, r"local.<locals>.condition has no name"),
        ({"tgt": lambda match: X}, r"<lambda> has no name"),
        ({"tgt": pat.Module(lambda match: None, X)}, r"<lambda> has no name"),
        ({"where": of_module}, r"of_module uses the pattern X of its module.*functools.partial\(…, X=X\)"),
    ],
)
def test_functions_that_can_not_be_pickled(options: dict[str, Any], text: str) -> None:
    rule = Subst(op.ReLU(RELU), **{"tgt": X, **options}, name="mine")
    for value in (rule, RuleSet([rule]), Trace(rules={"mine": rule})):
        with pytest.raises(PicklingError, match=rf"mine \(test_pickling.py:\d+\) can't be pickled: .*{text}"):
            pickle.dumps(value)
    assert copy.deepcopy(rule) is rule


def test_what_belongs_to_a_view() -> None:
    view = relus()
    rule = Subst(RELU, op.Tanh(X), name="tanh")
    match = next(iter(rule.match(view)))
    assert dict(copy.deepcopy(match).items()) == dict(match.items()), "the nodes are those of the view"
    for value in (match, Subst(op.Tanh(RELU), X, name="none").explain(view), view):
        with pytest.raises(TypeError, match=r"view .* not pickled"):
            pickle.dumps(value)


def test_deep_rules() -> None:
    deep: pat.Pattern = X
    for _ in range(3000):
        deep = op.ReLU(deep)
    assert len(again(Subst(deep, X)).plan.patterns) == 3001


def test_the_rule_book() -> None:
    """A rule of the book is that of the process that reads it."""
    book = again(rules.BOOK)
    assert [*book] == [*rules.BOOK]
    assert book.strategy == rules.BOOK.strategy
    fusion = again(rules.MODULE_FUSION)
    assert [str(rule) for rule in fusion] == [str(rule) for rule in rules.MODULE_FUSION]


def apply(what: Any, length: int) -> tuple[Any, str, Trace]:
    """What a process of a pool does."""
    new, trace = what.apply(relus(length))
    return what, str(new), trace


@pytest.mark.long
def test_a_process_pool() -> None:
    once = Subst(op.ReLU(RELU), RELU, where=is_matrix, name="once")
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
        results = list(pool.map(apply, [once, once], [2, 3]))
        book = pool.submit(names, rules.BOOK).result()
    for length, (rule, text, trace) in zip((2, 3), results):
        here, own = once.apply(relus(length))
        assert text == str(here)
        assert str(trace) == str(own)
        assert str(rule) == str(once)
        assert str(trace.replay(relus(length))) == text
    assert book == [rule.name for rule in rules.BOOK]


def names(rule_set: RuleSet) -> list[str]:
    return [rule.name for rule in rule_set]

"""Graphs inside of nodes: conditions on them, rules that rewrite them, and sets of rules that take turns."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from gsl import RuleSet, Subst, Within, alternate, inside, is_op, pat
from gsl.errors import FixpointError, PatternError, PatternTypeError, RewriteError
from gsl.pat import Pattern
from tests.front.nodes.node_terms import Add, Leaf, Mul, Shift, Term, chain, join, values, workload


@pytest.fixture(autouse=True)
def _no_warnings() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        yield


def layer(below: Term, inner: Any) -> Shift:
    """A node with a graph inside."""
    return Shift((below,), 1, inner)


def weight(*outputs: Term) -> Any:
    return workload(*outputs, name="weight")


def shift_of_sum(**options: Any) -> tuple[Pattern, Within, Pattern, Pattern]:
    """A pattern of a layer, and the condition that its weight is a sum, with the operands of that."""
    a, b = pat.Wildcard(), pat.Wildcard()
    outer = pat.Call(Shift, pat.Wildcard())
    return outer, Within(outer.inner, pat.Call(Add, a, b).is_output(), **options), a, b


def test_a_condition_on_a_graph_inside() -> None:
    one, two = Leaf(n=1), Leaf(n=2)
    total = Add((one, two))
    outer, within, a, b = shift_of_sum()
    rule = Subst(outer, outer, where=within)
    for inner, holds in [(total, True), (Mul((one, two)), False), (Shift((total,)), False), (one, False)]:
        found = list(rule.match(workload(layer(one, weight(inner)))))
        assert bool(found) is holds
    (match,) = rule.match(workload(layer(one, weight(total))))
    assert (within.of(match)[a].native, within.of(match)[b].native) == (one, two)


def test_the_target_uses_what_matched_inside() -> None:
    """A shift by the sum a + b is split into a shift by a and one by b."""
    below = pat.Wildcard()
    outer = pat.Call(Shift, below)
    a, b = pat.Wildcard(), pat.Wildcard()
    within = Within(outer.inner, pat.Call(Add, a, b).is_output())

    def target(match: Any) -> Pattern:
        first, second = (weight(within.of(match)[part].native) for part in (a, b))
        return pat.Call(Shift, pat.Call(Shift, below, n=0, inner=first), n=outer.n, inner=second)

    one, two, leaf = Leaf(n=1), Leaf(n=2), Leaf(n=3)
    (root,) = Subst(outer, target, where=within)(workload(layer(leaf, weight(Add((one, two)))))).native
    assert (root.inner.native, root.inputs[0].inner.native, root.inputs[0].inputs) == ([two], [one], (leaf,))


def test_of_several_matches_inside_the_first_counts() -> None:
    leaf = Leaf()
    low = Shift((leaf,), 1)
    outer, shift = pat.Call(Shift, pat.Wildcard()), is_op(Shift)
    within = Within(outer.inner, shift)
    (match,) = Subst(outer, outer, where=within).match(workload(layer(leaf, weight(Shift((low,), 2)))))
    assert within.of(match)[shift].native is low


def test_conditions_inside_a_graph_have_conditions_of_their_own() -> None:
    outer, within, *_ = shift_of_sum(where=lambda match: "never" if match else True)
    assert not list(Subst(outer, outer, where=within).match(workload(layer(Leaf(), weight(Add((Leaf(), Leaf())))))))


@pytest.mark.parametrize(
    ("inner", "reason"),
    [
        (3, "is 3 of type int, expected a workload or a graph view"),
        (None, "has no attribute 'inner'"),
        (SimpleNamespace(graph=3), "of type SimpleNamespace, expected a workload or a graph view"),
        (weight(Leaf()), "has no match of the pattern in Within("),
    ],
)
def test_why_a_condition_does_not_hold(inner: Any, reason: str) -> None:
    outer, within, _, _ = shift_of_sum()
    assert reason in str(Subst(outer, outer, where=within).explain(workload(layer(Leaf(), inner))))


@pytest.mark.parametrize("distinct", [False, True])
def test_leaves_inside_may_be_distinct(distinct: bool) -> None:
    outer, within, _, _ = shift_of_sum(distinct=distinct)
    rule = Subst(outer, outer, where=within)
    assert len(list(rule.match(workload(layer(Leaf(), weight(Add((Leaf(n=1), Leaf(n=2)))))))))
    leaf = Leaf()
    assert bool(list(rule.match(workload(layer(leaf, weight(Add((leaf, leaf)))))))) is not distinct


def test_wrong_conditions() -> None:
    outer, within, _, _ = shift_of_sum()
    with pytest.raises(PatternTypeError, match=r"attribute of a pattern first, as layer.weight, got 'inner'"):
        Within("inner", outer)  # type: ignore[arg-type]
    other = pat.Call(Shift, pat.Wildcard())
    wl = workload(layer(Leaf(), weight(Leaf())))
    with pytest.raises(RewriteError, match="not part of the source of the rule"):
        list(Subst(other, other, where=within).match(wl))
    (match,) = Subst(outer, outer).match(wl)
    with pytest.raises(RewriteError, match="is it among the conditions of the rule"):
        within.of(match)
    with pytest.raises(RewriteError, match=r"of\(…\) takes the match of the rule, got None"):
        within.of(None)  # type: ignore[arg-type]


@pytest.mark.parametrize("kind", ["workload", "view"])
def test_rules_inside(kind: str) -> None:
    terms = chain(2)
    inner = weight(terms[-1])
    untouched = layer(Leaf(), weight(Leaf()))
    wl = workload(layer(untouched, inner if kind == "workload" else inner.graph))
    new = inside(join(), name="inner")(wl)
    assert new.trace.summary() == {"inner": 1}
    (root,) = new.native
    assert root.inputs == (untouched,)
    if kind == "workload":
        assert values(root.inner.native) == values(terms[-1:])
        assert len(root.inner.graph) == 2
    else:
        assert len(root.inner) == 2
    assert inside(join())(new).native == [root]


def test_rules_inside_named_attributes_only() -> None:
    wl = workload(layer(Leaf(), weight(chain(2)[-1])))
    assert inside(join(), "inner")(wl).trace.count() == 1
    assert inside(join(), "weight")(wl).trace.count() == 0


def test_a_set_of_rules_inside() -> None:
    rule = inside(RuleSet([join(), to(B, A)]))
    assert rule.name == "inside: join, A to B"
    (root,) = rule(workload(layer(Leaf(), weight(A((Leaf(),), 1))))).native
    assert [type(term) for term in root.inner.native] == [B]


def test_a_graph_inside_in_which_nothing_fires_stays() -> None:
    same = weight(Leaf())
    (root,) = inside(join())(workload(Shift((Leaf(),), same, weight(chain(2)[-1])))).native
    assert root.n is same
    assert len(root.inner.graph) == 2


def test_why_nothing_fires_inside() -> None:
    why = inside(join()).explain(workload(layer(Leaf(), weight(Leaf()))))
    assert [refused.reason for refused in why.refused] == ["it has no graph inside", "nothing matches in inner"]


def test_what_is_inside_is_not_a_rule() -> None:
    with pytest.raises(PatternTypeError, match="inside takes a rule or a RuleSet, got 3 of type int"):
        inside(3)  # type: ignore[arg-type]


def to(new: type, old: type, name: str = "") -> Subst:
    """The rule that makes one kind of term of another."""
    x = pat.Wildcard()
    term = pat.Call(old, x)
    return Subst(term, pat.Call(new, x, n=term.n), name=name or f"{old.__name__} to {new.__name__}")


class A(Shift):
    pass


class B(Shift):
    pass


class C(Shift):
    pass


def test_rules_take_turns_until_nothing_fires() -> None:
    wl = workload(A((Leaf(),), 1))
    new = alternate([to(C, B), RuleSet([to(B, A)])], wl)
    assert [type(term) for term in new.native] == [C]
    assert str(new.trace) == "round 2\n  A to B: %A -> %B\nround 3\n  B to C: %B -> %C"
    assert str(new.trace.replay(wl)) == str(new)
    assert [type(term) for term in wl.native] == [A]


def test_a_number_of_steps() -> None:
    wl = workload(A((Leaf(),), 1))
    turns = [to(C, B), to(B, A)]
    assert [type(term) for term in alternate(turns, wl, max_steps=1).native] == [B]
    assert [type(term) for term in alternate(turns, wl, max_steps=2, new_name="c").native] == [C]
    assert alternate(turns, wl.graph, max_steps=2).outputs[0].op is C
    assert [type(term) for term in alternate([to(B, A), to(A, B)], wl, max_steps=3).native] == [A]


def test_so_many_steps_as_are_asked_for() -> None:
    """More than those after which it is taken for sure that there is no end."""
    turns = [to(B, A), to(A, B)]
    assert alternate(turns, workload(A((Leaf(),), 1)), max_steps=600).trace.count() == 1200


def test_what_is_refused_is_told_once() -> None:
    never = Subst(x := is_op(C), x, name="never")
    trace = alternate([to(C, B), to(B, A), never], workload(A((Leaf(),), 1))).trace
    assert [str(refused) for refused in trace.refused] == ["never refused at %C: the target is what was matched"]


def test_every_object_is_made_once_at_the_end() -> None:
    made: list[Any] = []

    def rebuild(op: Any, operands: Any, attrs: Any, old: Any) -> Term:
        made.append(op)
        return op(tuple(operands), **attrs)

    alternate([to(C, B), to(B, A)], workload(A((Leaf(),), 1), rebuild=rebuild))
    assert made == [C]


def test_no_end() -> None:
    wl = workload(A((Leaf(),), 1))
    for turns in ([to(B, A), to(A, B)], [to(B, A), to(C, B), to(B, C)]):
        with pytest.raises(FixpointError, match="go round in circles"):
            alternate(turns, wl)
    x = pat.Wildcard()
    more = Subst(pat.Call(A, x), pat.Call(A, pat.Call(A, x, n=1), n=1), name="more")
    with pytest.raises(FixpointError, match="no end after 1040 rewrites"):
        alternate([more], wl)


@pytest.mark.parametrize(
    ("turns", "steps", "error"),
    [
        ([], None, "expected rules that take turns, got none"),
        ([to(A, B, "x"), to(B, C, "x")], None, "two rules are named 'x'"),
        ([to(A, B), 3], None, "a RuleSet is made of Subst, got 3"),
        ([to(A, B)], 0, "max_steps= is a number of steps, 1 or more, got 0"),
        ([to(A, B)], True, "got True"),
    ],
)
def test_wrong_turns(turns: Any, steps: Any, error: str) -> None:
    with pytest.raises(PatternError, match=error):
        alternate(turns, workload(Leaf()), max_steps=steps)


def test_a_rule_may_have_several_turns() -> None:
    rule = join()
    assert alternate([rule, rule], workload(chain(4)[-1]), max_steps=1).trace.count() == 3

"""Graphs of any objects: what the view shows, what rules make of it, and which objects come back."""

from __future__ import annotations

import copy
import pickle
import warnings
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gsl import Match, RuleSet, Subst, Workload, attr, dup, is_op, pat
from gsl.errors import PatternTypeError, PicklingError, WorkloadError
from tests.front.nodes.node_terms import (
    Add,
    Fma,
    Leaf,
    Maker,
    Mul,
    Shift,
    Term,
    chain,
    join,
    values,
    workload,
)


@pytest.fixture(autouse=True)
def _no_warnings() -> Iterator[None]:
    """Graphs without types have none that could be missed."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        yield


def text(workload: Workload) -> str:
    return str(workload).replace(f"{Term.__module__}.", "")


def fma() -> Subst:
    """a * b + c as one term."""
    a, b, c = pat.Wildcard(), pat.Wildcard(), pat.Wildcard()
    product = pat.Call(Mul, a, b, n=0)
    total = pat.Call(Add, product, c)
    return Subst(total, pat.Call(Fma, a, b, c, n=total.n), extern_use=False, name="fma")


def split() -> Subst:
    """A shift by an even number as two."""
    x = pat.Wildcard()
    shift = pat.Call(Shift, x)
    half = pat.Call(Shift, x, n=shift.n // 2)
    return Subst(shift, pat.Call(Shift, half, n=shift.n // 2), where=shift.n % 2 == 0, name="split")


def test_the_view_shows_classes_attributes_and_sharing() -> None:
    a, b = Leaf(n=1), Leaf(n=2)
    product = Mul((a, b))
    assert text(workload(Add((product, product), 3), b)) == (
        "%Leaf = Leaf(n=1)\n%Leaf_1 = Leaf(n=2)\n%Mul = Mul(%Leaf, %Leaf_1, n=0)\n"
        "%Add = Add(%Mul, %Mul, n=3)\nreturn %Add, %Leaf_1"
    )


def test_fusing_keeps_what_it_does_not_touch() -> None:
    a, b, c = Leaf(n=2), Leaf(n=3), Leaf(n=4)
    product = Mul((a, b))
    beside, total = Shift((c,), 7), Add((product, c), 1)
    top = Add((total, beside))
    maker = Maker()
    new = fma()(workload(top, beside, rebuild=maker))
    assert text(new) == (
        "%Leaf = Leaf(n=2)\n%Leaf_1 = Leaf(n=3)\n%Leaf_2 = Leaf(n=4)\n%Fma = Fma(%Leaf, %Leaf_1, %Leaf_2, n=1)\n"
        "%Shift = Shift(%Leaf_2, n=7)\n%Add = Add(%Fma, %Shift, n=0)\nreturn %Add, %Shift"
    )
    root, kept = new.native
    assert kept is beside
    assert new.mod[1] is beside
    assert root.inputs[1] is beside
    assert root.inputs[0].inputs == (a, b, c)
    assert maker.calls == [(Fma, None), (Add, top)]  # nothing else was made
    assert (total.inputs, top.inputs) == ((product, c), (total, beside))


def test_terms_that_share_nothing_are_one_match() -> None:
    x0, x, k = pat.Wildcard(), pat.Wildcard(), attr.Symbol()
    first = pat.Call(Shift, x0)
    shift = pat.Call(Shift, x, n=first.n)
    group = pat.Variadic(shift, templates=[shift, x], first=[first, x0], min_len=2)
    numbered = Subst(group, pat.Variadic(pat.Call(Shift, group(x, k), n=first.n + k), index=k), name="numbered")
    new = numbered(workload(Shift((Leaf(n=1),), 5), Shift((Shift((Leaf(n=2),), 5),), 5), Shift((Leaf(n=3),), 7)))
    assert [firing.replaced for firing in new.trace.firings] == [("Shift", "Shift_1")]
    assert [node.attrs["n"] for node in new.graph if node.op is Shift] == [5, 6, 5, 7]


def test_shattering() -> None:
    new = split()(workload(*chain(2)[-1:]))
    assert text(new) == (
        "%Leaf = Leaf(n=5)\n%Shift = Shift(%Leaf, n=1)\n%Shift_1 = Shift(%Shift, n=1)\n"
        "%Shift_2 = Shift(%Shift_1, n=1)\nreturn %Shift_2"
    )


def test_a_target_may_be_made_from_the_match() -> None:
    shift = is_op(Shift)
    top = pat.Call(Add, shift, shift)
    rule = Subst(top, lambda match: pat.Call(Mul, *match[shift].args, match[top].args[0], n=match[shift].native.n))
    last = chain(2)[-1]
    assert values(rule(workload(Add((last, last)))).native) == [values([last])[0] * values(last.inputs)[0] + 2]


def test_nothing_fires_and_the_objects_are_the_same() -> None:
    *_, last = chain(1)
    maker = Maker()
    old = workload(last, rebuild=maker)
    new = fma()(old)
    assert new.native == [last]
    assert not maker.calls


@pytest.mark.parametrize(
    ("outputs", "fires"),
    [((2,), 1), ((2, 1), 0), ((2, 0), 1)],
    ids=["inner node used once", "inner node is an output", "leaf is an output"],
)
def test_inner_nodes_have_one_user(outputs: tuple[int, ...], fires: int) -> None:
    terms = chain(2)
    assert join()(workload(*(terms[place] for place in outputs))).trace.count() == fires


def test_outputs_only() -> None:
    leaf, _, high = chain(2)
    wl = workload(high, leaf)
    shift = is_op(Shift)
    assert [match[shift].native for match in Subst(shift.is_output(), shift).match(wl)] == [high]
    either = (shift & pat.Wildcard()).is_output()
    assert [match[shift].native for match in Subst(either, shift).match(wl)] == [high]
    assert repr(shift.is_output()) == f"{Term.__module__}.Shift.is_output()"
    copied = dup(shift.is_output())
    assert [match[copied].native for match in Subst(copied, copied).match(wl)] == [high]


def test_an_inner_node_that_is_no_output_is_explained() -> None:
    shift = is_op(Shift)
    last = chain(1)[-1]
    why = str(Subst(shift.is_output(), shift).explain(workload(Add((last, last)))))
    assert "place: expected an output of the graph, found an inner node" in why


def test_last_starts_at_the_outputs() -> None:
    """Pairs overlap: from the inputs, 1 and 2 are joined, from the outputs, 2 and 3."""
    found = {s: RuleSet([join()], strategy=s)(workload(chain(3)[-1])) for s in ("first", "last")}
    assert {s: [n.attrs["n"] for n in new.graph if n.op is Shift] for s, new in found.items()} == {
        "first": [3, 3],
        "last": [1, 5],
    }


def test_of_matches_at_one_place_the_last_strategy_takes_the_largest() -> None:
    x = pat.Wildcard()
    one = pat.Call(Shift, x)
    single = Subst(one, pat.Call(Add, x, n=one.n), name="single")
    assert RuleSet([single, join()], strategy="last")(workload(chain(2)[-1])).trace.summary() == {"join": 1}


def test_deep_graphs() -> None:
    new = join()(workload(chain(10_000)[-1]))
    assert new.trace.count() == 5_000
    assert values(new.native) == [5 + 10_000 * 10_001 // 2]


@pytest.mark.torch
def test_a_graph_runs_by_the_function_of_its_user() -> None:
    wl = workload(chain(2)[-1])
    assert list(wl.inputs) == ["scale"]
    assert wl(3) == [18]
    assert wl.compare(join()(wl), [3]).passed
    assert not wl.compare(workload(chain(3)[-1]), [3]).passed


def test_names_and_texts() -> None:
    wl = workload(Shift((Leaf(inner=workload(chain(1)[-1])),)), name="terms")
    assert repr(wl) == "<Workload terms: 1 input, 0 params>"
    assert f"inner=<graph of 2: {Term.__module__}.Shift>" in str(wl)
    assert wl.op_counts() == {f"{Term.__module__}.Leaf": 1, f"{Term.__module__}.Shift": 1}
    assert "Shift" in wl.visualize().svg


def test_only_matching_needs_no_rebuild() -> None:
    wl = Workload.from_nodes([chain(2)[-1]], operands=lambda term: term.inputs, attrs=lambda term: {"n": term.n})
    assert len(list(join().match(wl))) == 1


def test_a_rewritten_view_may_be_rewritten_again() -> None:
    x = pat.Wildcard()
    wl = workload(Shift((Mul((Shift((Leaf(n=3),), 0), Leaf(n=4))),), 1))
    view, _ = RuleSet([Subst(pat.Call(Shift, x, n=0), x)]).apply(wl.graph)
    view, _ = RuleSet([Subst(pat.Call(Shift, x, n=1), pat.Call(Shift, x, n=2))]).apply(view)
    assert str(wl.replace(view)) == str(workload(Shift((Mul((Leaf(n=3), Leaf(n=4))),), 2)))


def test_operators_may_be_functions() -> None:
    def double(x: int) -> int:
        return 2 * x

    calls = {"leaf": (abs, ()), "mid": (double, ("leaf",)), "top": (double, ("mid",))}
    wl = Workload.from_nodes(["top"], operands=lambda key: calls[key][1], op=lambda key: calls[key][0])
    x = pat.Wildcard()
    assert [m[x].native for m in Subst(pat.Call(double, pat.Call(double, x)), x).match(wl)] == ["leaf"]


@st.composite
def graphs(draw: st.DrawFn) -> list[Term]:
    """Outputs of a random graph of terms."""
    terms: list[Term] = [Leaf(n=draw(st.integers(-3, 3))) for _ in range(draw(st.integers(1, 3)))]
    for _ in range(draw(st.integers(0, 12))):
        kind = draw(st.sampled_from([Add, Mul, Shift]))
        below = tuple(draw(st.sampled_from(terms)) for _ in range(1 if kind is Shift else 2))
        terms.append(kind(below, draw(st.integers(-2, 2))))
    return draw(st.lists(st.sampled_from(terms), min_size=1, max_size=3))


@settings(max_examples=60)
@given(graphs(), st.sampled_from(["first", "last", "largest", "priority"]))
def test_rules_keep_what_a_graph_computes(outputs: list[Term], strategy: str) -> None:
    before = values(outputs)
    wl = workload(*outputs)
    shown = str(wl)
    same = wl.replace(wl.graph.copy())
    assert all(a is b for a, b in zip(same.native, outputs))
    rules = RuleSet([fma(), join(), split()], strategy=strategy)
    new = rules(wl)
    assert values(new.native) == before == values(outputs)
    view, _ = rules.apply(rules.apply(wl.graph)[0])
    again = wl.replace(view)
    assert values(again.native) == before
    assert len(again.graph) == len(view)
    assert str(wl) == shown
    old = {id(node.native) for node in wl.graph}
    fresh = {id(node.native) for node in new.graph if id(node.native) not in old}
    assert bool(fresh) == bool(new.trace.firings)


def test_the_property_can_fail() -> None:
    x = pat.Wildcard()
    shift = pat.Call(Shift, x)
    wrong = Subst(shift, pat.Call(Shift, x, n=shift.n + 1), name="wrong")
    terms = chain(1)
    assert values(wrong(workload(terms[-1])).native) != values(terms[-1:])


def test_matches_are_objects_of_the_user() -> None:
    _, low, high = chain(2)
    (match,) = join().match(workload(high))
    assert isinstance(match, Match)
    assert {node.native for node in match.inner} == {low, high}


def test_operators_that_are_strings() -> None:
    classes = {"Leaf": Leaf, "Shift": Shift, "Mul": Mul}

    def rebuild(op: str, operands: tuple[Term, ...], attrs: dict[str, int], old: Term | None) -> Term:
        return classes[op](tuple(operands), **attrs)

    wl = workload(chain(2)[-1], op=lambda term: type(term).__name__, rebuild=rebuild)
    assert str(wl) == "%Leaf = Leaf(n=5)\n%Shift = Shift(%Leaf, n=1)\n%Shift_1 = Shift(%Shift, n=2)\nreturn %Shift_1"
    x, shift = pat.Wildcard(), pat.OpName("Shift")
    first = pat.Call(shift, x)
    second = is_op(shift)(first)
    new = Subst(second, pat.Call(shift, x, n=first.n + second.n), name="join")(wl)
    assert str(new) == "%Leaf = Leaf(n=5)\n%Shift = Shift(%Leaf, n=3)\nreturn %Shift"
    assert len(list(Subst(is_op(pat.OneOf(shift, pat.OpName("Leaf"))), first_output).match(wl))) == 3
    assert not list(Subst(is_op(pat.OpName("Mul")), first_output).match(wl))


def test_a_string_is_not_the_operator_of_that_name() -> None:
    wl = workload(Add((Leaf(n=1), Leaf(n=2))), op=lambda term: type(term).__name__.lower())
    assert not list(Subst(is_op("add"), first_output).match(wl))
    assert len(list(Subst(is_op(pat.OpName("add")), first_output).match(wl))) == 1


def first_output(match: Match) -> list[object]:
    return [match.outputs[0]]


def operands(term: Term) -> tuple[Term, ...]:
    return term.inputs


@pytest.mark.parametrize("way", ["deepcopy", "pickle"])
def test_a_copy_is_a_workload_of_its_own(way: str) -> None:
    shared = Leaf(n=2)
    wl = Workload.from_nodes([Add((shared, Mul((shared, shared))))], operands=operands, name="sum")
    new = copy.deepcopy(wl) if way == "deepcopy" else pickle.loads(pickle.dumps(wl))
    assert (new.name, text(new)) == (wl.name, text(wl))
    assert new.native[0] is not wl.native[0]
    assert values(new.native) == values(wl.native)


@pytest.mark.parametrize("name", ["operands", "attrs", "op", "rebuild", "run"])
def test_functions_without_a_name_are_copied_and_not_pickled(name: str) -> None:
    nameless: dict[str, Any] = {
        "operands": lambda term: term.inputs, "attrs": lambda term: {}, "op": lambda term: type(term),
        "rebuild": lambda op, operands, attrs, old: op(operands), "run": lambda outputs: None,
    }  # fmt: skip
    wl = Workload.from_nodes([Add((Leaf(n=2),))], **{"operands": operands, name: nameless[name]})
    assert copy.deepcopy(wl).op_counts() == wl.op_counts()
    with pytest.raises(PicklingError, match=rf"{name}=\S*<lambda> has no name .*; define it with a name at the top"):
        pickle.dumps(wl)


@pytest.mark.parametrize("way", ["deepcopy", "pickle"])
def test_a_long_chain_is_copied(way: str) -> None:
    chain: Term = Leaf(n=2)
    for _ in range(3000):
        chain = Add((chain,))
    wl = Workload.from_nodes([chain], operands=operands)
    new = copy.deepcopy(wl) if way == "deepcopy" else pickle.loads(pickle.dumps(wl))
    assert new.op_counts() == wl.op_counts()
    assert new.native[0].inputs[0] is not chain.inputs[0]


def test_what_is_no_name_and_no_front_end() -> None:
    with pytest.raises(PatternTypeError, match=r"pat.OpName takes the name of an operator, got 3"):
        pat.OpName(3)  # type: ignore[arg-type]
    half = SimpleNamespace(load=None, store=None, evaluate=None, native=3)
    with pytest.raises(WorkloadError, match="has load, store and evaluate, but no inputs, params: a front end has the"):
        Workload(half)

"""What the user's functions may get wrong: each error says which object it was, and leaves the graph as it was."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from gsl import RuleSet, Subst, Workload, inside, op, pat
from gsl.errors import FrontEndError, PatternError, RewriteError, WorkloadError
from tests.front.nodes.node_terms import Add, Leaf, Maker, Shift, Term, chain, join, values, workload


def given(**changes: Any) -> Callable[[], Workload]:
    """The making of a workload with functions of which some are replaced."""
    functions = {"operands": lambda term: term.inputs, "rebuild": Maker(), **changes}
    outputs = functions.pop("outputs", [chain(2)[-1]])
    return lambda: Workload.from_nodes(outputs, **functions)


def fails(_: Any) -> Any:
    raise KeyError("lost")


@pytest.mark.parametrize(
    ("make", "error"),
    [
        (given(operands=lambda term: 3), "gives 3 of type int, expected a sequence of objects"),
        (given(operands=lambda term: None), "gives None of type NoneType, expected a sequence"),
        (given(operands=lambda term: "ab"), "gives 'ab' of type str"),
        (given(operands=lambda term: [None]), "gives None as operand 0: leave it out"),
        (given(operands=fails), "failed: KeyError: 'lost'"),
        (given(operands=[]), "operands= takes a function, got [] of type list"),
        (given(attrs=lambda term: [1]), "gives [1] of type list, expected a mapping from names to values"),
        (given(attrs=lambda term: {1: 2}), "expected a mapping from names to values"),
        (given(attrs=fails), "attrs("),
        (given(op=lambda term: 7), "gives 7 of type int, expected a class, a function or a string"),
        (given(op=fails), "op("),
        (given(rebuild=3), "rebuild= takes a function, got 3"),
        (given(outputs=[]), "given by the list of its outputs, got [] of type list"),
        (given(outputs=Leaf()), "given by the list of its outputs, got Leaf("),
        (given(outputs=[None]), "None is among the outputs"),
        (given(run=lambda: 0), "run= is a function of the outputs, and then of the inputs, but it takes nothing"),
        (given(run=lambda outputs, *inputs: 0), "each by a name: *inputs is none"),
    ],
)
def test_what_can_not_be_read(make: Callable[[], Workload], error: str) -> None:
    with pytest.raises(FrontEndError) as caught:
        make()
    assert error in str(caught.value)


@pytest.mark.parametrize("length", [1, 2, 3])
def test_cycles(length: int) -> None:
    below = {number: [(number + 1) % length] for number in range(length)} | {"top": [0]}
    with pytest.raises(FrontEndError) as caught:
        Workload.from_nodes(["top"], operands=lambda item: below[item])
    path = " <- ".join(map(str, [*range(length), 0]))
    assert str(caught.value).endswith(f"they are no graph that rules can rewrite: {path}")


def mutates(op_: Any, operands: Any, attrs: Any, old: Term | None) -> Any:
    return old if old is not None else op_(tuple(operands), **attrs)


@pytest.mark.parametrize(
    ("rebuild", "error"),
    [
        (lambda op_, operands, attrs, old: None, "gives None, expected the new object"),
        (lambda op_, operands, attrs, old: 3, "gives 3, whose operator is builtins.int"),
        (lambda op_, operands, attrs, old: Add(tuple(operands)), "gives <Add>, whose operator is"),
        (lambda op_, operands, attrs, old: op_((), **attrs), "whose operands are []; expected ["),
        (lambda op_, operands, attrs, old: op_(tuple(operands), size=1), "failed: TypeError"),
        (mutates, "gives the old object"),
    ],
)
def test_what_can_not_be_written(rebuild: Any, error: str) -> None:
    terms = chain(3)
    wl = workload(terms[-1], rebuild=rebuild)
    before = str(wl)
    with pytest.raises(FrontEndError) as caught:
        join()(wl)
    assert error in str(caught.value)
    if rebuild is not mutates:  # that of an object above, which no rule made
        assert str(caught.value).startswith("join: ")
    assert str(wl) == before
    assert wl.native == [terms[-1]]
    assert values(wl.native) == [11]


def test_a_graph_that_can_only_be_matched() -> None:
    wl = Workload.from_nodes([chain(2)[-1]], operands=lambda term: term.inputs, attrs=lambda term: {"n": term.n})
    with pytest.raises(FrontEndError, match=r"can only be matched; give rebuild= to Workload.from_nodes"):
        join()(wl)


@pytest.mark.parametrize(
    ("target", "kind"),
    [
        (lambda x: op.ReLU(x), "has a nn.relu"),
        (lambda x: pat.Call(Shift, op.ReLU(x), n=1), "has a nn.relu"),
        (lambda x: pat.Call(Add, x, pat.Const(2)), "has a const"),
        (lambda x: pat.Tuple(x), "has a tuple"),
        (lambda x: pat.Fused("group"), "is an outlined group"),
    ],
)
def test_a_target_that_no_object_can_be_is_refused_and_other_rules_go_on(target: Any, kind: str) -> None:
    x = pat.Wildcard()
    wrong = Subst(pat.Call(Shift, x), target(x), name="wrong")
    old = workload(chain(3)[-1])
    new = RuleSet([wrong, join()])(old)
    assert new.trace.summary() == {"join": 1}
    assert values(new.native) == values(old.native)
    assert f"wrong refused at %Shift: the target {kind}, which a graph of objects has no form for" in str(new.trace)


def test_a_new_object_that_is_wrong_inside_of_another_one() -> None:
    inner = workload(chain(2)[-1], rebuild=lambda op_, operands, attrs, old: None)
    wl = workload(Shift((Leaf(),), inner=inner))
    before = str(wl)
    with pytest.raises(RewriteError, match=r"FrontEndError: join: rebuild of a .*Shift gives None"):
        inside(join())(wl)
    assert str(wl) == before


def test_names_that_are_those_of_types() -> None:
    x = pat.Wildcard()
    sized = Workload.from_nodes([Shift((Leaf(),))], operands=lambda t: t.inputs, attrs=lambda t: {"shape": (2, 3)})
    shift = pat.Call(Shift, x)
    assert len(list(Subst(shift, x, where=shift.shape == (2, 3)).match(sized))) == 1
    assert not list(Subst(shift, x, where=shift.shape == (2, 4)).match(sized))
    assert len(list(Subst(pat.Call(Shift, x, shape=(2, 3)), x).match(sized))) == 1
    assert not list(Subst(pat.Call(Shift, x, shape=(2, 4)), x).match(sized))
    for demand in (shift.has_shape((2, 3)), pat.Call(pat.AnyOp(), x, shape=(2, 3))):
        with pytest.raises(PatternError, match=r"demands a type, but the nodes of this graph have none"):
            Subst(demand, x)(sized)


def test_a_new_object_with_an_attribute_that_is_named_like_a_type() -> None:
    made: list[Any] = []

    def rebuild(op: Any, operands: Any, attrs: Any, old: Any) -> Term:
        made.append(attrs["shape"])
        return Shift(tuple(operands))

    sized = Workload.from_nodes(
        [Shift((Leaf(),))], operands=lambda t: t.inputs, attrs=lambda t: {"shape": (2, 3)}, rebuild=rebuild
    )
    x = pat.Wildcard()
    shift = pat.Call(Shift, x)
    Subst(shift, pat.Call(Shift, x, shape=shift.shape[::-1]))(sized)
    assert made == [(3, 2)]


@pytest.mark.torch
def test_running_needs_a_function() -> None:
    with pytest.raises(WorkloadError, match="runs by a function of its own: give run="):
        given()()()
    with pytest.raises(WorkloadError, match="has no options, got fast"):
        workload(*chain(1)[-1:]).build(fast=True)

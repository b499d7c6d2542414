"""Segments: any number of neighbouring fields of a tuple, in a source and in a target."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch._inductor import config as inductor
from torch._inductor.fx_passes import split_cat

from gsl import RuleSet, Subst, Workload, attr, op, pat
from gsl.attr import Expr
from gsl.errors import PatternError
from gsl.graph import Graph
from gsl.match import Plan, UseLists
from gsl.verify import Refuted, Supported
from tests.helpers.compiled import Recorder
from tests.helpers.graphs import Builder, graph

X = pat.Wildcard()
I = attr.Symbol()  # noqa: E741
SPLIT = op.Split(X)
HEAD = pat.GetItem(SPLIT)
NEXT = pat.GetItem(SPLIT, HEAD.index + I)
BEFORE, AFTER = pat.Segment(), pat.Segment()
RUN = pat.Segment(NEXT, templates=[NEXT], first=[HEAD], index=I, min_len=2)
CAT = op.Concatenate(pat.Tuple(BEFORE, RUN, AFTER))
AXIS = SPLIT.axis
CUTS = attr.Tuple(0) + SPLIT.indices_or_sections + attr.Tuple(X.shape[AXIS])


def between(first: Expr, last: Expr) -> pat.Pattern:
    """The part of the tensor that some neighbouring fields make up."""
    places = {"begin": attr.Tuple(CUTS[first]), "end": attr.Tuple(CUTS[last])}
    return op.StridedSlice(X, **places, strides=(1,), axes=attr.Tuple(AXIS))


PIECE = between(HEAD.index, HEAD.index + RUN.length)
JOINED = Subst(CAT, CAT.like(pat.Tuple(BEFORE, PIECE, AFTER)), where=CAT.axis == AXIS)


def concatenated(fields: list[int | None]) -> Graph:
    """A tensor in five parts, of which some are concatenated with another tensor."""

    def make(b: Builder) -> Any:
        parts, other = b.call("split", b.input("x", 10), indices_or_sections=5, axis=0), b.input("y", 2)
        made = {i: b.get(parts, i) for i in range(5)}
        return b.call("concatenate", b.tuple(*[other if i is None else made[i] for i in fields]), axis=0)

    return graph(make)


def runs(fields: list[int | None]) -> set[tuple[int, int]]:
    """Where each run of neighbouring fields begins, and how long it is."""
    return {
        (first, length)
        for first in range(len(fields))
        for length in range(2, len(fields) - first + 1)
        if fields[first] is not None
        and fields[first : first + length] == list(range(fields[first], fields[first] + length))  # type: ignore[operator]
    }


def test_the_enumeration_of_runs() -> None:
    assert runs([1, 2, None, 0, 2, 3]) == {(0, 2), (4, 2)}
    assert runs([2, 1]) == set()


@given(st.lists(st.one_of(st.none(), st.integers(0, 4)), min_size=1, max_size=9))
@settings(max_examples=150)
def test_every_run_is_found_from_every_anchor(fields: list[int | None]) -> None:
    made, plan = concatenated(fields), Plan([CAT])
    for anchor in plan.anchors:
        start = plan.start(anchor)
        nodes = plan.possible(anchor, made.by_op())
        found = [m for node in nodes for m in start.finder(1)(node, made.ends(), (), UseLists(made.by_op()))]
        assert sorted((m.length(BEFORE), m.length(RUN)) for m in found) == sorted(runs(fields))
        assert all(m.length(BEFORE) + m.length(RUN) + m.length(AFTER) == len(fields) for m in found)


@given(st.lists(st.sampled_from(("a", "b")), max_size=7), st.integers(0, 2), st.integers(0, 2))
@settings(max_examples=100)
def test_all_divisions_are_matches(kinds: list[str], least: int, fixed: int) -> None:
    """Segments of relus, of anything, and some fields between: as many matches as an enumeration finds."""

    def make(b: Builder) -> Any:
        x = b.input("x", 2)
        calls = [b.call("nn.relu" if kind == "a" else "tanh", x) for kind in kinds]
        return b.call("concatenate", b.tuple(x, *calls), axis=0)

    relu, shared = op.ReLU(X), pat.Wildcard()
    first = pat.Segment(relu, templates=[relu], min_len=least)
    middle = [pat.Wildcard() for _ in range(fixed)]
    last = pat.Segment()
    found = list(Plan([op.Concatenate(pat.Tuple(shared, first, *middle, last))]).matches(graph(make)))
    relus = next((n for n, kind in enumerate(kinds) if kind != "a"), len(kinds))
    wanted = [n for n in range(least, relus + 1) if n + fixed <= len(kinds)]
    assert [m.length(first) for m in found] == wanted[::-1]
    assert [m.length(last) for m in found] == [len(kinds) - fixed - n for n in wanted[::-1]]


def test_a_run_is_found_from_another_user_of_the_split() -> None:
    def make(b: Builder) -> Any:
        parts, other = b.call("split", b.input("x", 10), indices_or_sections=5, axis=0), b.input("y", 2)
        cat = b.call("concatenate", b.tuple(other, b.get(parts, 1), b.get(parts, 2)), axis=0)
        return [b.call("nn.relu", b.get(parts, 0)), cat]

    relu = op.ReLU(pat.GetItem(SPLIT, 0))
    for outputs in ([relu, CAT], [CAT, relu]):
        assert [match.length(RUN) for match in Plan(outputs).matches(graph(make))] == [2]


def workload(function: Callable[..., torch.Tensor], *shapes: tuple[int, ...]) -> Workload:
    class Program(torch.nn.Module):
        def forward(self, *args: torch.Tensor) -> torch.Tensor:
            return function(*args)

    return Workload.from_torch(Program(), tuple(torch.randn(shape) for shape in shapes))


def shuffled(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    s = x.split([3, 1, 4, 2, 6], 1)
    return torch.cat([y, s[1], s[2], s[0], y, s[2], s[3], s[4], s[1]], 1)


def test_each_run_becomes_a_slice() -> None:
    old = workload(shuffled, (2, 16), (2, 5))
    new = JOINED(old, iterative=True)
    assert new.op_counts()["strided_slice"] == 2
    old.compare(new).check()


def in_two(fields: pat.Pattern, axis: Expr) -> pat.Pattern:
    """Neighbouring fields of equal sizes, side by side in front of another axis, which may be a new one."""
    a, size = AXIS, HEAD.shape[AXIS]
    parts = op.Reshape(fields, newshape=X.shape[:a] + attr.Tuple(RUN.length, size) + X.shape[a + 1 :])
    there, end = attr.Tuple(a), X.ndim + 1
    later = attr.Range(0, a) + attr.Range(a + 1, axis + 1) + there + attr.Range(axis + 1, end)
    sooner = attr.Range(0, axis) + there + attr.Range(axis, a) + attr.Range(a + 1, end)
    return op.Transpose(parts, axes=attr.Cond(axis > a, later, sooner))


def stacked(segment: pat.Segment, axis: Expr) -> pat.Segment:
    """The fields of a segment, each with a new axis."""
    j = attr.Symbol()
    return pat.Segment(op.ExpandDims(segment(segment.field, j), axis=axis), index=j, length=segment.length)


CUT = SPLIT.indices_or_sections
EQUAL = attr.Variadic(lambda n: (n + 1) * HEAD.shape[AXIS], attr.Len(CUT)) == CUT
SIZES = attr.Variadic(
    lambda n: attr.Cond(n == AXIS, HEAD.shape[n], attr.Cond(n == CAT.axis, RUN.length * X.shape[n], X.shape[n])), X.ndim
)
ACROSS = Subst(
    CAT,
    CAT.like(pat.Tuple(BEFORE, op.Reshape(in_two(PIECE, CAT.axis), newshape=SIZES), AFTER)),
    where=(CAT.axis != AXIS) & EQUAL,
)
STACK = op.Stack(pat.Tuple(BEFORE, RUN, AFTER))
STACKED = Subst(
    STACK,
    op.Concatenate(
        pat.Tuple(stacked(BEFORE, STACK.axis), in_two(PIECE, STACK.axis), stacked(AFTER, STACK.axis)), axis=STACK.axis
    ),
    where=EQUAL,
)


def among(join: Callable[..., torch.Tensor], axis: int, split: int) -> Callable[..., torch.Tensor]:
    """All fields of a split between other operands, as in the tests of inductor's passes on splits."""
    return lambda x, y: join([y, *x.split(4, split), y], axis)


def within(join: Callable[..., torch.Tensor], axis: int) -> Callable[..., torch.Tensor]:
    """Two runs of fields between other operands, likewise."""

    def function(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        s = x.split(4, 1)
        return join([y, s[1], s[2], s[3], y, s[5], s[6], s[7], y], axis)

    return function


def pieces_of_inductor(function: Callable[..., torch.Tensor], *inputs: torch.Tensor) -> int:
    """The pieces into which a program still splits a tensor when inductor's passes on splits have changed it."""
    recorder = Recorder()
    torch._dynamo.reset()
    wanted = torch.compile(function, backend=recorder)(*inputs)
    (module,) = recorder.graphs
    passes = ("normalization_pass", "split_cat_pass", "split_cat_to_slices_pass", "split_stack_to_cats_pass")
    with inductor.patch(pre_grad_fusion_options={name: {"threshold_to_cat": 2} for name in passes}):
        for name in passes:
            split_cat.PRE_GRAD_PATTERNS[name].apply(module.graph)
    module.graph.eliminate_dead_code()
    module.recompile()
    assert torch.equal(module(*inputs)[0], wanted)
    fields = [node for node in module.graph.find_nodes(op="call_function", target=operator.getitem)
              if isinstance(node.args[1], int)]  # fmt: skip
    return len(fields)


def test_inductor_is_asked() -> None:
    """Fields that do not stand next to each other are left apart by its passes."""
    apart = lambda x, y: torch.cat([x.split(4, 1)[2], y, x.split(4, 1)[0]], 1)  # noqa: E731
    assert pieces_of_inductor(apart, torch.randn(4, 12), torch.randn(4, 4)) == 2


@pytest.mark.parametrize(
    ("function", "x", "y"),
    [
        (among(torch.cat, 1, 1), (4, 32, 8, 16), (4, 5, 8, 16)),
        (among(torch.cat, 2, 2), (4, 8, 32, 16), (4, 8, 5, 16)),
        (among(torch.cat, 2, 1), (4, 32, 8, 16), (4, 4, 8, 16)),
        (among(torch.cat, 3, 1), (4, 32, 8, 16), (4, 4, 8, 16)),
        (among(torch.cat, 0, 2), (4, 8, 32, 16), (4, 8, 4, 16)),
        (among(torch.stack, 1, 1), (4, 32, 8, 16), (4, 4, 8, 16)),
        (among(torch.stack, 2, 1), (4, 32, 8, 16), (4, 4, 8, 16)),
        (among(torch.stack, 3, 1), (4, 32, 8, 16), (4, 4, 8, 16)),
        (among(torch.stack, 0, 2), (4, 8, 32, 16), (4, 8, 4, 16)),
        (within(torch.cat, 1), (4, 32, 8, 16), (4, 4, 8, 16)),
        (within(torch.cat, 2), (4, 32, 8, 16), (4, 4, 8, 16)),
    ],
)
def test_runs_in_a_cat_or_stack_are_joined_as_by_inductor(
    function: Callable[..., torch.Tensor], x: tuple[int, ...], y: tuple[int, ...]
) -> None:
    old = workload(function, x, y)
    new = RuleSet([JOINED, ACROSS, STACKED])(old, iterative=True)
    assert "split" not in new.op_counts()
    assert new.op_counts()["strided_slice"] == pieces_of_inductor(function, torch.randn(x), torch.randn(y))
    old.compare(new).check()


@pytest.mark.parametrize("axis", [0, 1, 2, 3])
def test_a_stack_with_two_runs(axis: int) -> None:
    """The second one stands in the concatenation that the first one leaves, with an axis more: it stays as it is."""
    old = workload(within(torch.stack, axis), (4, 32, 8), (4, 4, 8))
    new = STACKED(old, iterative=True)
    assert new.op_counts()["strided_slice"] == 1
    old.compare(new).check()


@pytest.mark.long
@pytest.mark.parametrize("rule", [ACROSS, STACKED])
def test_rules_on_another_axis_are_verified(rule: Subst) -> None:
    assert isinstance(rule.verify(), Supported)


def test_new_segments_have_as_many_fields_as_they_say() -> None:
    j = attr.Symbol()
    each = pat.Segment(op.ReLU(AFTER(AFTER.field, j)), index=j, length=AFTER.length)
    rule = Subst(CAT, CAT.like(pat.Tuple(BEFORE, PIECE, each)), where=CAT.axis == AXIS)
    old = workload(shuffled, (2, 16), (2, 5))
    assert rule(old).op_counts()["nn.relu"] == 6


@pytest.mark.long
def test_the_rule_is_verified_and_wrong_ones_are_refuted() -> None:
    assert isinstance(JOINED.verify(max_examples=80), Supported)
    turned = Subst(CAT, CAT.like(pat.Tuple(AFTER, PIECE, BEFORE)), where=CAT.axis == AXIS)
    assert isinstance(turned.verify(), Refuted)
    anywhere = pat.GetItem(SPLIT)
    run = pat.Segment(anywhere, templates=[anywhere], first=[HEAD], min_len=2)
    cat = op.Concatenate(pat.Tuple(BEFORE, run, AFTER))
    piece = between(HEAD.index, HEAD.index + run.length)
    in_any_order = Subst(cat, cat.like(pat.Tuple(BEFORE, piece, AFTER)), where=cat.axis == AXIS)
    assert isinstance(in_any_order.verify(), Refuted)


@pytest.mark.parametrize(
    ("source", "text"),
    [
        (lambda: op.Concatenate(BEFORE), "belongs among those of a tuple"),
        (lambda: BEFORE, "belongs among those of a tuple"),
        (lambda: op.Concatenate(pat.Tuple(BEFORE, X, BEFORE)), "at two places"),
        (lambda: op.Concatenate(pat.Tuple(BEFORE & X)), "belongs among those of a tuple"),
    ],
)
def test_a_segment_out_of_place(source: Callable[[], pat.Pattern], text: str) -> None:
    with pytest.raises(PatternError, match=text):
        Subst(source(), X)
    with pytest.raises(PatternError, match="belongs among those of a tuple"):
        Subst(CAT, CAT.like(BEFORE))

"""The checklist of the first GSL, section 2: attribute expressions, as guards and as attributes of targets.

Each expression stands in a rule that is applied to a graph; how expressions evaluate alone is tested in tests/attr.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest

from gsl import Subst, attr, op, pat
from gsl.attr import Expr
from gsl.errors import PatternError, RewriteError
from tests.helpers.firing import fire, ops
from tests.helpers.graphs import Builder, graph

X, W = pat.Wildcard(), pat.Variable()
CONV = op.Conv2D(X, W)
HALF = pat.Const()
FIELD = pat.Wildcard()
PARTS = pat.Variadic(FIELD, templates=[FIELD])
SPLIT = op.Split(CONV, axis=1)
PART = pat.GetItem(SPLIT)
ALT = op.ReLU(PART) | op.Tanh(PART)


def network(b: Builder) -> Any:
    x = b.input("x", 1, 4, 4, 8)
    conv = b.call("nn.conv2d", x, b.param("w", 8, 4, 3, 3), strides=(2, 1), padding=(1, 1, 1, 1))
    split = b.call("split", conv, indices_or_sections=2, axis=1)
    half = b.call("multiply", b.call("tanh", b.get(split, 1)), 0.5)
    return b.call("concatenate", b.tuple(half, half), axis=0)


def holds(condition: Any) -> bool:
    """Whether a condition holds for the match in the network."""
    source = ALT * HALF
    view = graph(network)
    assert len(list(Subst(source, HALF).match(view))) == 1
    return len(list(Subst(source, HALF, where=condition).match(view))) == 1


ROWS: list[tuple[str, Any]] = [
    ("None, numbers, strings, tuples and lists are literals", attr.Const([1, "a", None, 2.5]) == (1, "a", None, 2.5)),
    ("shape", CONV.shape == (1, 8, 2, 8)),
    ("dtype", X.dtype == "float32"),
    ("ndim", W.ndim == 4),
    ("attribute of a call", CONV.strides == (2, 1)),
    ("derived attribute of a call", CONV.kernel_size == (3, 3)),
    ("value of a constant", HALF.value == 0.5),
    ("index of a field", PART.index == 1),
    ("attribute of an alternative", ALT.ndim == 4),
    ("range in the order of Python", attr.Range(1, 4) == (1, 2, 3)),
    ("range with a step", attr.Range(0, 4, 2) == (0, 2)),
    ("tuple", attr.Tuple(CONV.groups, 2) == (1, 2)),
    ("length of a tuple", attr.Len(CONV.strides) == 2),
    ("item", CONV.strides[-1] == 1),
    ("item of a string", CONV.data_layout[1] == "C"),
    ("slice", CONV.shape[1:3] == (8, 2)),
    ("slice from", CONV.shape[1:] == (8, 2, 8)),
    ("member of a tuple", attr.In(2, CONV.strides)),
    ("not a member", ~attr.In(7, CONV.strides)),
    ("part of a string", attr.In("CH", CONV.data_layout)),
    ("reverse", attr.Reverse(CONV.strides) == (1, 2)),
    ("negative", -CONV.groups == -1),
    ("negative of a float", -HALF.value == -0.5),
    ("not", ~(CONV.groups == 2)),
    ("arithmetic", (CONV.shape[1] - 1) * 2 // 3 % 3 + 1 == 2),
    ("reflected arithmetic", 10 - CONV.shape[1] // 4 == 8),
    ("tuples added", CONV.strides + (3,) == (2, 1, 3)),
    ("strings added", CONV.data_layout + "x" == "NCHWx"),
    ("a float computed", HALF.value + 1 == 1.5),
    ("max and min", (CONV.groups.max(3) == 3) & (CONV.groups.min(3) == 1)),
    ("max of negatives", attr.max((-3, -2)) == -2),
    ("floats in order", HALF.value < 0.75),
    ("strings in order", CONV.data_layout < "Z"),
    ("and, or", (CONV.groups == 1) & ((CONV.groups == 2) | (CONV.groups == 1))),
    ("and decides by its left side", ~((CONV.groups == 2) & (CONV.strides[9] == 0))),
    ("conditional", attr.Cond(CONV.groups == 1, "one", CONV.strides[9]) == "one"),
    ("clause of an alternative", attr.Match(ALT, ["relu", "tanh"]) == "tanh"),
    ("remapped layout", attr.LayoutRemap(CONV.data_layout, "NHWC") == (0, 2, 3, 1)),
    ("variadic", attr.Variadic(lambda i: CONV.strides[i] * 2, 2) == (4, 2)),
    ("map", attr.Map(CONV.strides, lambda s: s + 1) == (3, 2)),
    ("zip", attr.Zip(CONV.strides, (5, 6, 7)) == ((2, 5), (1, 6))),
    ("indexed reduction", attr.ReduceIndexed("+", lambda i: CONV.strides[i], 2) == 3),
    ("reduction of a tuple", attr.ReduceTuple("*", CONV.strides, 10) == 20),
    ("reduction of tuples", attr.ReduceTuple("+", (CONV.strides, (7,)), ()) == (2, 1, 7)),
    ("neutral elements", (attr.Sum(()) == 0) & (attr.prod(()) == 1) & attr.all(()) & ~attr.any(())),
    ("reversal in a variadic", attr.Variadic(lambda i: attr.Reverse((i, 9))[1], 3) == (0, 1, 2)),
    ("zip in a variadic", attr.Variadic(lambda i: attr.Zip((i,), (i,))[0][0], 3) == (0, 1, 2)),
]


@pytest.mark.parametrize("condition", [row[1] for row in ROWS], ids=[row[0] for row in ROWS])
def test_condition_holds(condition: Expr) -> None:
    assert holds(condition)


NOT: list[tuple[str, Any]] = [
    ("None is a value", CONV.strides == None),  # noqa: E711
    ("True is not 1", CONV.groups == True),  # noqa: E712
    ("item out of range", CONV.strides[2] == 0),
    ("condition that is no bool", attr.Cond(CONV.groups, True, True)),
    ("layout with blocks", attr.LayoutRemap("NCHW4c", "NHWC") == (0, 2, 3, 1)),
    ("layout that is no permutation", attr.LayoutRemap(CONV.data_layout, "NHC") == (0, 2, 1)),
    ("int compared with a string", CONV.groups < "a"),
    ("max of nothing", attr.max(()) == 0),
    ("division by zero", CONV.groups // 0 == 0),
]


@pytest.mark.parametrize("condition", [row[1] for row in NOT], ids=[row[0] for row in NOT])
def test_condition_does_not_hold(condition: Expr) -> None:
    assert not holds(condition)


def test_a_condition_that_is_an_int_is_an_error() -> None:
    with pytest.raises(RewriteError, match=r"nn\.conv2d\.groups is 1 here"):
        holds(CONV.groups)


# none_attr_matches_any


def test_an_attribute_that_is_none_matches_only_none() -> None:
    for bound, fires in [(None, 0), (1.0, 1)]:
        rule = Subst(op.Clip(X, a_min=0.0, a_max=bound), op.Clip(X, a_min=0.0, a_max=bound) + 0.0)
        fire(rule, lambda b: b.call("clip", b.input("x", 2), a_min=0.0, a_max=1.0), times=fires)
    is_none = Subst(op.Clip(X, a_min=0.0, a_max=attr.Const(None)), op.ReLU(X))
    fire(is_none, lambda b: b.call("clip", b.input("x", 2), a_min=0.0), times=1)
    fire(is_none, lambda b: b.call("clip", b.input("x", 2), a_min=0.0, a_max=1.0), times=0)


def test_an_attribute_that_is_not_given_is_free() -> None:
    clip = op.Clip(X, a_min=0.0)
    fire(Subst(clip, op.ReLU(clip)), lambda b: b.call("clip", b.input("x", 2), a_min=0.0, a_max=1.0), times=1)


# attr_variadic_source


@pytest.mark.parametrize(("pads", "fires"), [(((0, 0),) * 2, 1), (((0, 0),) * 3, 1), (((0, 0), (0, 1)), 0)])
def test_a_variadic_attribute_without_length_is_a_guard_of_any_length(pads: Any, fires: int) -> None:
    rule = Subst(op.Pad(X, pad_width=attr.Variadic(lambda i: (0, 0))), X)
    fire(rule, lambda b: b.call("nn.pad", b.input("x", *[2] * len(pads)), pad_width=pads), times=fires)


def test_a_variadic_attribute_may_use_the_index() -> None:
    rule = Subst(op.Transpose(X, axes=attr.Variadic(lambda i: i)), X)
    fire(rule, lambda b: b.call("transpose", b.input("x", 2, 3, 4), axes=(0, 1, 2)), times=1)
    fire(rule, lambda b: b.call("transpose", b.input("x", 2, 3, 4), axes=(0, 2, 1)), times=0)


def test_a_variadic_attribute_is_a_tuple_in_a_target() -> None:
    mean = op.Mean(X, axis=attr.Range(2, X.ndim), keepdims=True, exclude=False)
    flat_mean = op.Mean(op.Reshape(X, newshape=attr.Variadic(lambda i: X.shape[i], 2) + (-1,)), axis=(2,))
    target = op.Reshape(flat_mean, newshape=X.shape[:2] + attr.Map(attr.Range(2, X.ndim), lambda _: 1))
    new = fire(Subst(mean, target), lambda b: b.call("mean", b.input("x", 2, 3, 4, 5), axis=(2, 3), keepdims=True),
               times=1)  # fmt: skip
    assert ops(new) == ["reshape", "mean", "reshape"]


# attr_eval: shared expressions that depend on an index


def test_a_shared_expression_is_computed_anew_for_every_index() -> None:
    index = attr.Symbol()
    back = attr.Reverse((index, 1 - index))
    axes = attr.Variadic(back[1] + back[0] - back[0], 2, index=index)
    pairs = attr.Zip((index,), (index,))
    also = attr.Variadic(pairs[0][0] + pairs[0][1] - pairs[0][0], 2, index=index)
    same = Subst(op.Transpose(X, axes=axes), op.Transpose(X, axes=also))
    new = fire(same, lambda b: b.call("transpose", b.input("x", 2, 3), axes=(0, 1)), times=1)
    assert new.outputs[0].attrs["axes"] == (0, 1)


# cond_on_bool_attr


@pytest.mark.parametrize("keep", [True, False])
def test_a_boolean_attribute_is_a_condition(keep: bool) -> None:
    mean = op.Mean(X, axis=1, exclude=False)
    target = pat.Cond(mean.keepdims, op.Mean(X, axis=1, keepdims=True) + 0.0, op.Mean(X, axis=1, keepdims=False) + 0.0)
    new = fire(Subst(mean, target), lambda b: b.call("mean", b.input("x", 2, 3), axis=1, keepdims=keep), times=1)
    assert ops(new) == ["mean", "add"]
    expr = attr.Cond(mean.keepdims, X.shape[:1] + (1,), X.shape[:1])
    rule = Subst(mean, op.Reshape(mean, newshape=expr))
    fire(rule, lambda b: b.call("mean", b.input("x", 2, 3), axis=1, keepdims=keep), times=1)


# unbound_symbol, unbound_symbol_variadic


@pytest.mark.parametrize(
    "make",
    [
        lambda i: Subst(op.Mean(X, axis=i), X),
        lambda i: Subst(op.ReLU(X), op.Mean(X, axis=i)),
        lambda i: Subst(op.Concatenate(PARTS, axis=0), PARTS(FIELD, i)),
        lambda i: Subst(op.Concatenate(PARTS, axis=0), op.Concatenate(pat.Variadic(PARTS(FIELD, i), length=2), axis=0)),
    ],
    ids=["source", "target", "instance", "variadic"],
)
def test_an_unbound_symbol_is_an_error_of_the_rule(make: Callable[[Expr], Subst]) -> None:
    with pytest.raises(PatternError, match="symbol n is not bound"):
        make(attr.Symbol("n"))


# python_traps


@pytest.mark.parametrize(
    "trap",
    [
        lambda: 7 in X.shape,
        lambda: bool(X.shape[0] == 1),
        lambda: X.shape[0] == 1 and X.shape[1] == 1,
        lambda: 0 < X.shape[0] < 3,
        lambda: not X.shape[0],
        lambda: list(X.shape),
        lambda: list(X),
        lambda: X in CONV,
    ],
)
def test_what_python_would_misunderstand_is_an_error(trap: Callable[[], Any]) -> None:
    with pytest.raises(TypeError):
        trap()


def test_plain_tuples_are_taken_where_tuples_are() -> None:
    assert holds(attr.Map((1, 2), lambda i: i + 1) == (2, 3))
    assert holds(attr.Len((1, 2)) == 2)
    assert holds(attr.Reverse((1, 2)) == (2, 1))
    assert holds(attr.Cond(True, 1, 2) == 1)


# attr_dag_blowup


def test_shared_expressions_cost_nothing_in_guards_and_targets() -> None:
    start = time.process_time()
    size = X.shape[0]
    for _ in range(60):
        size = size + size
    view = graph(lambda b: b.call("nn.conv2d", b.input("x", 1, 4, 8, 8), b.param("w", 8, 4, 3, 3)))
    assert len(list(Subst(CONV, X, where=size == 2**60).match(view))) == 1
    assert len(list(Subst(op.Conv2D(X, W, groups=size - 2**60 + 1), X).match(view))) == 1
    assert not list(Subst(CONV, X, where=size == 1).match(view))
    new, trace = Subst(CONV, op.Reshape(CONV, newshape=(size // 2**60, 8, 6, 6))).apply(view)
    assert trace.count() == 1
    assert ops(new) == ["nn.conv2d", "reshape"]
    assert time.process_time() - start < 2


# lang_transpose_blocked


@pytest.mark.torch
def test_a_blocked_layout_does_not_match_and_does_not_raise() -> None:
    transform = op.LayoutTransform(X)
    axes = attr.LayoutRemap(transform.src_layout, transform.dst_layout)
    rule = Subst(transform, op.Transpose(X, axes=axes))
    fire(rule, lambda b: b.call("layout_transform", b.input("x", 1, 2, 3, 4), src_layout="NCHW", dst_layout="NHWC"),
         times=1)  # fmt: skip
    other = op.Transpose(X)
    guard = Subst(other, X, where=attr.LayoutRemap("NCHW4c", "NHWC") == other.axes)
    fire(guard, lambda b: b.call("transpose", b.input("x", 1, 2, 3, 4)), times=0)

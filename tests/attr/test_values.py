"""What attribute expressions evaluate to."""

from __future__ import annotations

import operator
import time
from functools import reduce
from typing import Any

import pytest
import sympy
from hypothesis import given, settings
from hypothesis import strategies as st

from gsl import attr, pat
from gsl.attr import Expr
from gsl.attr.ast import Symbol
from gsl.attr.evaluate import Evaluator, same
from gsl.errors import EvaluationError, UndecidableError
from gsl.graph import SymDim, TensorType
from gsl.graph.types import compare, has_unknown, unknown_size

X = pat.Wildcard()
CONV = pat.Call("nn.conv2d", X, pat.Wildcard())
ALT = pat.Alt(X, CONV)
S, T = (SymDim(sympy.Symbol(name, positive=True, integer=True)) for name in "st")
U = unknown_size()
I = attr.Symbol()  # noqa: E741


class Fixed:
    """A scope of fixed values; counts how often it is asked."""

    def __init__(self, **values: Any) -> None:
        self.values = {"strides": (1, 2), "shape": (2, 3, 4), "layout": "NCHW", "flag": True, "one": 1, "eps": 1e-5}
        self.values |= values
        self.asked = 0

    def attribute(self, pattern: Any, name: str, symbols: dict[Symbol, Any]) -> Any:
        self.asked += 1
        if isinstance(pattern, pat.Instance):
            return 10 * Evaluator(self, symbols).value(pattern.number)
        return self.values[name]

    def alternative(self, pattern: Any, symbols: dict[Symbol, Any]) -> int:
        return 1


def read(name: str) -> Expr:
    from gsl.attr.ast import Attribute

    return Expr(Attribute(CONV, name))


def value(expr: Any, symbols: dict[Symbol, Any] | None = None, **values: Any) -> Any:
    return Evaluator(Fixed(**values), symbols).value(attr.Const(expr).ast)


SHAPE, ONE, FLAG, EPS, LAYOUT = (read(name) for name in ("shape", "one", "flag", "eps", "layout"))

CASES: list[tuple[str, Expr, Any]] = [
    ("const none", attr.Const(None), None),
    ("const nested list", attr.Const([1, [2, 3]]), (1, (2, 3))),
    ("const of an expression", attr.Const(ONE), 1),
    ("range stop", attr.Range(3), (0, 1, 2)),
    ("range start stop", attr.Range(1, 3), (1, 2)),
    ("range step", attr.Range(5, ONE, -2), (5, 3)),
    ("tuple", attr.Tuple(ONE, 2), (1, 2)),
    ("empty tuple", attr.Tuple(), ()),
    ("len", attr.Len(SHAPE), 3),
    ("len of a string", attr.Len(LAYOUT), 4),
    ("in", attr.In(3, SHAPE), True),
    ("not in", attr.In(7, SHAPE), False),
    ("in string", attr.In("HW", LAYOUT), True),
    ("True is not in a tuple of ones", attr.In(True, (1, 1)), False),
    ("reverse", attr.Reverse(SHAPE), (4, 3, 2)),
    ("inverse of a permutation", attr.Inverse((2, 0, 1)), (1, 2, 0)),
    ("inverse of nothing", attr.Inverse(()), ()),
    ("reverse a plain list", attr.Reverse([1, 2]), (2, 1)),
    ("cond", attr.Cond(FLAG, 1, 2), 1),
    ("cond is lazy", attr.Cond(FLAG, ONE, ONE // 0), 1),
    ("cond is lazy on the other side", attr.Cond(~FLAG, SHAPE[9], "x"), "x"),
    ("and is lazy", ~FLAG & (ONE // 0 == 1), False),
    ("or is lazy", FLAG | (ONE // 0 == 1), True),
    ("a long chain is lazy", reduce(operator.or_, [FLAG, *[ONE // 0 == 1] * 30]), True),
    ("match", attr.Match(ALT, [1, SHAPE[0]]), 2),
    ("variadic", attr.Variadic(lambda i: i * 2, 3), (0, 2, 4)),
    ("variadic gives a tuple that adds", attr.Variadic(lambda i: i, ONE) + (7,), (0, 7)),
    ("variadic with a symbol", attr.Variadic(I + 1, 2, index=I), (1, 2)),
    ("variadic of literals", attr.Variadic(lambda i: 0, 2), (0, 0)),
    ("variadic of nothing", attr.Variadic(lambda i: i, 0), ()),
    ("map", attr.Map(SHAPE, lambda d: d + 1), (3, 4, 5)),
    ("map over a plain tuple", attr.Map((1, 2), lambda d: -d), (-1, -2)),
    ("map with a symbol", attr.Map(SHAPE, I * I, index=I), (4, 9, 16)),
    ("nested maps", attr.Map(SHAPE, lambda a: attr.Map((1, 2), lambda b: a * b)), ((2, 4), (3, 6), (4, 8))),
    ("zip", attr.Zip(SHAPE, (1, 2)), ((2, 1), (3, 2))),
    ("zip of a list", attr.Zip([SHAPE, SHAPE]), ((2, 2), (3, 3), (4, 4))),
    ("reverse and zip depend on the index", attr.Variadic(lambda i: attr.Reverse((i, 0)) + attr.Zip((i,), (i,))[0], 2),
     ((0, 0, 0, 0), (0, 1, 1, 1))),
    ("layout remap", attr.LayoutRemap(LAYOUT, "NHWC"), (0, 2, 3, 1)),
    ("sum of a tuple", attr.Sum(SHAPE), 9),
    ("sum of indices", attr.Sum(lambda i: i * i, 4), 14),
    ("sum of nothing", attr.Sum(()), 0),
    ("sums of more and more", attr.Variadic(lambda i: attr.Sum(lambda j: j + 2, i), 4), (0, 2, 5, 9)),
    ("sums of fewer and fewer", attr.Variadic(lambda i: attr.Sum(lambda j: j + 2, 3 - i), 4), (9, 5, 2, 0)),
    ("products", attr.Variadic(lambda i: attr.prod(attr.Variadic(lambda j: j + i, i)), 4), (1, 1, 6, 60)),
    ("reduce indexed", attr.ReduceIndexed("*", lambda i: SHAPE[i], attr.Len(SHAPE)), 24),
    ("reduce by a function of operator", attr.ReduceIndexed(operator.mul, I + 1, 4, index=I), 24),
    ("reduce by max", attr.ReduceTuple(max, (-3, -2)), -2),
    ("reduce tuples", attr.ReduceTuple("+", ((1,), (2, 3)), init=()), (1, 2, 3)),
    ("reduce and", attr.ReduceTuple("&", (True, FLAG)), True),
    ("reduce or", attr.ReduceTuple("|", (False, FLAG)), True),
    ("reduce with init", attr.ReduceTuple("+", SHAPE, init=100), 109),
    ("prod", attr.prod(SHAPE), 24),
    ("prod of nothing", attr.prod(()), 1),
    ("max of values", attr.max(ONE, 5, 3), 5),
    ("max of negatives", attr.max((-3, -2)), -2),
    ("min of a tuple", attr.min(SHAPE), 2),
    ("max method", ONE.max(4), 4),
    ("min method", ONE.min(4), 1),
    ("all", attr.all((FLAG, True)), True),
    ("any", attr.any((False, False)), False),
    ("abs", attr.abs(-ONE), 1),
    ("abs of Python", abs(-ONE), 1),
    ("neg of a float", -EPS, -1e-5),
    ("not", ~FLAG, False),
    ("reflected sub", 10 - ONE, 9),
    ("reflected floor division", 7 // (ONE + 1), 3),
    ("reflected mod", 7 % (ONE + 3), 3),
    ("reflected division", 1 / (ONE + 1), 0.5),
    ("reflected power", 2 ** (ONE + 2), 8),
    ("reflected add of a tuple", (0,) + SHAPE, (0, 2, 3, 4)),
    ("reflected and, or", True & FLAG | False, True),
    ("negative index", SHAPE[-1], 4),
    ("index by expression", SHAPE[ONE], 3),
    ("index of a string", LAYOUT[1], "C"),
    ("slice", SHAPE[1:], (3, 4)),
    ("slice with expressions", SHAPE[ONE - 1 : -1], (2, 3)),
    ("slice with a step", SHAPE[::-1], (4, 3, 2)),
    ("slice of a string", LAYOUT[:2], "NC"),
    ("string compare", LAYOUT == "NCHW", True),
    ("string add", LAYOUT + "c", "NCHWc"),
    ("string order", LAYOUT < "Z", True),
    ("float compare", EPS < 1e-4, True),
    ("float add", EPS + 1, 1 + 1e-5),
    ("int equals float", ONE == 1.0, True),
    ("True is not 1", FLAG == 1, False),
    ("True is not 1 inside tuples", attr.Tuple(FLAG, 2) == (1, 2), False),
    ("None equals None", read("none") == None, True),  # noqa: E711
    ("None is not 0", read("none") != 0, True),
    ("list is like tuple", SHAPE == [2, 3, 4], True),
    ("a tuple is no number", SHAPE == 1, False),
    ("tuples of other length", SHAPE == (2, 3), False),
]  # fmt: skip


@pytest.mark.parametrize(("expr", "expected"), [case[1:] for case in CASES], ids=[case[0] for case in CASES])
def test_value(expr: Expr, expected: Any) -> None:
    found = value(expr, none=None)
    assert (type(found), found) == (type(expected), expected)


FAILURES: list[tuple[str, Any, list[str]]] = [
    ("index out of range", SHAPE[7], ["nn.conv2d.shape[7]", "out of range", "nn.conv2d.shape is (2, 3, 4)"]),
    ("division by zero", ONE // (ONE - 1), ["(nn.conv2d.one // (nn.conv2d.one - 1))", "by zero", "- 1) is 0"]),
    ("int and string", ONE + "a", ["(nn.conv2d.one + 'a')", "int", "str", "nn.conv2d.one is 1"]),
    ("not of an int", ~ONE, ["~nn.conv2d.one", "expected True or False, found 1"]),
    ("and of an int", FLAG & ONE, ["expected True or False, found 1"]),
    ("condition that is an int", attr.Cond(ONE, 1, 2), ["Cond(", "expected True or False, found 1"]),
    ("all of ints", attr.all((1, 2)), ["all((1, 2))", "expected True or False, found 1"]),
    ("len of an int", attr.Len(ONE), ["Len(nn.conv2d.one)", "nn.conv2d.one is 1"]),
    ("range of a string", attr.Range(LAYOUT), ["Range(", "'NCHW'"]),
    ("length that is no number", attr.Variadic(lambda i: i, LAYOUT), ["for i in Range(nn.conv2d.layout)", "'NCHW'"]),
    ("no permutation", attr.Inverse((0, 2)), ["Inverse", "(0, 2) is not a permutation"]),
    ("blocked layout", attr.LayoutRemap("NCHW4c", "NCHW"), ["LayoutRemap", "'NCHW' is not a permutation of 'NCHW4c'"]),
    ("layout without an axis", attr.LayoutRemap("NCHW", "NHC"), ["'NHC' is not a permutation of 'NCHW'"]),
    ("layout with an axis twice", attr.LayoutRemap("NCC", "CNC"), ["'CNC' is not a permutation of 'NCC'"]),
    ("two blocked layouts", attr.LayoutRemap("NC4c", "NC4c"), ["LayoutRemap"]),
    ("layout that is no string", attr.LayoutRemap(LAYOUT, SHAPE), ["LayoutRemap", "(2, 3, 4)"]),
    ("max of nothing", attr.max(()), ["reduces nothing", "'max'", "init="]),
    ("reduce booleans", attr.ReduceTuple("&", (True, 5)), ["expected True or False, found 5"]),
    ("reduce one int", attr.ReduceTuple("&", (5,)), ["expected True or False, found 5"]),
    ("reduce nothing from an int", attr.ReduceTuple("|", (), init=5), ["expected True or False, found 5"]),
    ("reduce an int", attr.Sum(ONE), ["ReduceTuple('+', nn.conv2d.one)", "nn.conv2d.one is 1"]),
    ("unbound symbol", I + 1, ["symbol i is not bound", "index="]),
    ("free length", attr.Variadic(lambda i: i) + (1,), ["has no length"]),
    ("in a number", attr.In(1, ONE), ["In(1, nn.conv2d.one)"]),
    ("huge repr is cut", attr.Const("a" * 5000) + 1, ["…"]),
]


@pytest.mark.parametrize(("expr", "texts"), [case[1:] for case in FAILURES], ids=[case[0] for case in FAILURES])
def test_no_value(expr: Expr, texts: list[str]) -> None:
    with pytest.raises(EvaluationError) as caught:
        value(expr)
    for text in texts:
        assert text in str(caught.value)
    assert len(str(caught.value)) < 700


def test_symbols_are_looked_up_by_identity() -> None:
    assert value(I * 2, {I.ast: 21}) == 42  # type: ignore[dict-item]
    with pytest.raises(EvaluationError, match="not bound"):
        value(attr.Symbol("i") * 2, {I.ast: 21})  # type: ignore[dict-item]


def test_a_symbol_may_have_the_value_none() -> None:
    assert value(attr.Map((None, 1), lambda item: item == None)) == (True, False)  # noqa: E711


def test_the_length_may_depend_on_an_outer_symbol_of_the_same_name() -> None:
    assert value(attr.Map((1, 2), attr.Variadic(I, I, index=I), index=I)) == ((0,), (0, 1))


def test_an_attribute_may_depend_on_the_index() -> None:
    template = pat.Call("nn.relu", pat.Wildcard())
    group = pat.Variadic(template, templates=[template])
    expr = attr.Variadic(lambda i: group(template, i).ndim, 3)
    assert value(expr) == (0, 10, 20)
    # also where the index is hidden in a pattern that the target makes
    expr = attr.Variadic(lambda i: pat.Call("nn.relu", group(template, i)).ndim, 3)
    assert {node.name for node in expr.ast.body.symbols} == {"i"}  # type: ignore[attr-defined]
    assert expr.ast.symbols == frozenset()


def test_a_guard_without_length_takes_that_of_the_value() -> None:
    twos = attr.Variadic(lambda i: i + 2).ast
    evaluator = Evaluator(Fixed())
    assert evaluator.equals(twos, (2, 3, 4))[0]
    assert evaluator.equals(twos, [2, 3])[0]
    assert not evaluator.equals(twos, (2, 2))[0]
    with pytest.raises(EvaluationError, match="is a tuple, found None"):
        evaluator.equals(twos, None)


@pytest.mark.parametrize("in_symbol", [False, True], ids=["closed", "with a symbol"])
def test_a_shared_expression_costs_nothing(in_symbol: bool) -> None:
    start = time.process_time()
    scope = Fixed()

    def deep(leaf: Expr) -> Expr:
        for _ in range(60):
            leaf = leaf + leaf
        return leaf

    expr = attr.Variadic(lambda i: deep(i + 1), 2) if in_symbol else deep(ONE)
    assert Evaluator(scope).value(expr.ast) == ((2**60, 2**61) if in_symbol else 2**60)
    assert scope.asked <= 1
    assert len(repr(expr)) < 600
    assert "…" in repr(expr)
    assert time.process_time() - start < 2


@pytest.mark.parametrize("function", [operator.add, operator.and_, lambda a, b: attr.Cond(a, b, False)])
def test_a_long_chain_is_evaluated_without_recursion(function: Any) -> None:
    start = ONE if function is operator.add else FLAG
    expr = start
    for _ in range(5000):
        expr = function(expr, start)
    assert value(expr) == (5001 if function is operator.add else True)
    assert value(attr.Variadic(lambda i: expr, 2)) == (value(expr),) * 2
    with pytest.raises(EvaluationError, match="has no value"):
        value(function(expr, ONE) + 1 + "b")


def test_want_of_stack_is_no_lack_of_a_value() -> None:
    class Deep(int):
        def __add__(self, other: object) -> int:
            raise RecursionError

    with pytest.raises(RecursionError):
        value(ONE + 1, one=Deep())


# Symbolic dimensions


def test_equality_of_symbolic_dimensions_is_structural() -> None:
    assert value(attr.Const(S) * 2 == S + S) is True
    assert value(attr.Const(S) + 1 == S) is False
    assert value(attr.Const(S) == True) is False  # noqa: E712
    assert same((S, 3), (S, 3))
    assert not same(S, "s")
    assert not same(S, 2.0)


@pytest.mark.parametrize(
    "expr",
    [attr.Const(S) == T, attr.Const(S) != 4, attr.Const(4) != S, attr.Const(S) < T, attr.max(S, T), attr.Const(U) > 0,
     attr.Const(U) <= 0, attr.Const(0) < U],
)  # fmt: skip
def test_what_depends_on_the_sizes_is_undecidable(expr: Expr) -> None:
    with pytest.raises(UndecidableError, match="depends on the sizes"):
        value(expr)


def test_one_pair_that_differs_decides() -> None:
    assert not same((S, 1), (T, 2))
    assert value(attr.In(S, (T, S))) is True
    with pytest.raises(UndecidableError):
        same((S, 1), (T, 1))
    with pytest.raises(UndecidableError):
        value(attr.In(S, (T, 0)))


@pytest.mark.parametrize(
    ("relation", "left", "right", "expected"),
    [
        (">=", S * 2, S, True), ("<", S * 2, S, False), ("<=", S, S, True), (">", S, S, False), (">", S, 0, True),
        (">=", S, 1, True), ("<", S, 1, False), ("!=", S + 1, S, True), ("==", S + 1, S, False), ("==", S, S, True),
        ("!=", S, S, False), ("<", 0, S, True), ("<=", S + T, S, False), (">", S + T, S, True),
        ("==", S, S * 2, False), ("!=", S, S * 2, True), ("==", S * (T + 1), S * T + S, True), (">=", U, 0, True),
        ("<=", 0, U + S, True),
    ],
)  # fmt: skip
def test_comparisons_that_hold_for_all_sizes(relation: str, left: Any, right: Any, expected: bool) -> None:
    assert compare(relation, left, right) is expected
    if relation not in ("==", "!="):
        python = {"<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge}[relation]
        assert value(python(attr.Const(left), attr.Const(right))) is expected


@pytest.mark.parametrize(("shape", "unknown"), [((2, S), False), ((2, U), True), ((S, U + S), True), ((), False)])
def test_unknown_sizes(shape: Any, unknown: bool) -> None:
    assert has_unknown(TensorType(shape, "float32")) is unknown


def test_arithmetic_of_symbolic_dimensions() -> None:
    assert value(attr.prod((S, 3)) // 3) == S
    assert value(attr.max(S, 2 * S)) == 2 * S
    assert value(attr.min(attr.Const(S), 2 * S)) == S
    assert value(attr.max(S, 1)) == value(attr.max(1, S)) == S
    assert S != T
    assert value(attr.Sum((S, S)) - S) == S
    for no_size in (attr.Const(S) + "a", 1.0 / attr.Const(S)):
        with pytest.raises(EvaluationError, match="it needs sizes that only a run tells"):
            value(no_size)


# The same as Python


BINARY = [operator.add, operator.sub, operator.mul, operator.floordiv, operator.mod, operator.eq, operator.ne,
          operator.lt, operator.le, operator.gt, operator.ge]  # fmt: skip
TREES = st.recursive(
    st.integers(-5, 5),
    lambda inner: st.tuples(st.sampled_from(BINARY[:5]), inner, inner) | st.tuples(st.just(operator.neg), inner),
    max_leaves=12,
)


def build(tree: Any, leaf: Any) -> Any:
    if isinstance(tree, int):
        return leaf(tree)
    function, *parts = tree
    return function(*(build(part, leaf) for part in parts))


@settings(max_examples=200)
@given(TREES, TREES, st.sampled_from(BINARY))
def test_expressions_over_ints_are_those_of_python(left: Any, right: Any, function: Any) -> None:
    tree = (function, left, right)
    try:
        expected = build(tree, int)
    except ZeroDivisionError:
        with pytest.raises(EvaluationError, match="zero"):
            value(build(tree, attr.Const))
    else:
        found = value(build(tree, attr.Const))
        assert (type(found), found) == (type(expected), expected)


SEQUENCES = st.lists(st.integers(-3, 3), max_size=5).map(tuple)
BOUNDS = st.none() | st.integers(-6, 6)


@settings(max_examples=100)
@given(SEQUENCES, BOUNDS, BOUNDS, st.none() | st.integers(1, 3) | st.integers(-3, -1))
def test_slices_and_folds_are_those_of_python(items: tuple[int, ...], start: Any, stop: Any, step: Any) -> None:
    assert value(attr.Const(items)[start:stop:step]) == items[start:stop:step]
    assert value(attr.Sum(items)) == sum(items)
    assert value(attr.Len(items)) == len(items)
    assert value(attr.Reverse(items)) == items[::-1]
    assert value(attr.In(start, items)) is (start in items)
    if items:
        assert value(attr.max(items)) == max(items)
        assert value(attr.min(items)) == min(items)


@pytest.mark.torch
def test_numbers_and_dtypes_of_other_libraries() -> None:
    import numpy
    import torch

    for number, written in (
        (numpy.float64(0.5), "0.5"), (numpy.int64(3), "3"), (numpy.bool_(True), "True"), (numpy.float32, "'float32'"),
        (torch.float16, "'float16'"), (torch.channels_last, "'channels_last'"), (torch.device("cpu"), "'cpu'"),
        (torch.Size([1, 2]), "(1, 2)"),
    ):  # fmt: skip
        assert repr(attr.Const(number)) == written


@pytest.mark.torch
def test_tensors_compare_as_wholes() -> None:
    import numpy
    import torch

    assert same(torch.ones(2), torch.ones(2))
    assert not same(torch.ones(2), torch.ones(3))
    assert not same(torch.ones(2), 1)
    assert not same(1, torch.ones(2))
    assert same(3, torch.tensor(3))
    assert same(numpy.float32(1), 1)

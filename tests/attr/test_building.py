"""Building attribute expressions: what is refused, and how they compare, copy and print."""

from __future__ import annotations

import copy
import inspect
import math
import operator
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from gsl import attr, pat
from gsl.attr.expr import to_ast
from gsl.errors import PatternError, PatternTypeError

X = pat.Wildcard()
SHAPE = X.shape
ALT = pat.Alt(X, pat.Wildcard())

REFUSED: list[tuple[str, Callable[[], Any], type[Exception], list[str]]] = [
    ("truth", lambda: bool(SHAPE == 1), TypeError, ["no truth value", "& | ~", "(a < b) & (b < c)", "where="]),
    ("and", lambda: SHAPE[0] == 1 and SHAPE[1] == 1, TypeError, ["no truth value"]),
    ("not", lambda: not SHAPE[0], TypeError, ["no truth value"]),
    ("chain", lambda: 0 < SHAPE[0] < 3, TypeError, ["no truth value"]),
    ("in", lambda: 7 in SHAPE, TypeError, ["attr.In(value, Wildcard.shape)"]),
    ("in a plain tuple", lambda: SHAPE in (1, 2), TypeError, ["no truth value"]),
    ("int", lambda: int(SHAPE[0] / 2), TypeError, ["shape[0] / 2) is no number before", "a // b rounds down"]),
    ("float", lambda: float(SHAPE[0]), TypeError, ["is no number before a match"]),
    ("complex", lambda: complex(SHAPE[0]), TypeError, ["is no number before a match"]),
    ("round", lambda: round(SHAPE[0] / 3), TypeError, ["is no number before a match"]),
    ("round to digits", lambda: round(SHAPE[0] / 3, 1), TypeError, ["is no number before"]),
    ("ceil", lambda: math.ceil(SHAPE[0] / 3), TypeError, ["is no number before a match", "-(-a // b) up"]),
    ("range", lambda: range(X.ndim), TypeError, ["is no number before a match", "attr.Range(…) in place"]),
    ("index", lambda: (1, 2)[X.ndim], TypeError, ["is no number before a match", "attr.Tuple(…)[i] in place"]),
    ("slice", lambda: (1, 2)[: X.ndim], TypeError, ["is no number before a match"]),
    ("product of numpy", lambda: np.prod(SHAPE) == 4, TypeError, ["numpy's prod has no value of Wild", "attr.prod"]),
    ("mean of numpy", lambda: np.mean(SHAPE), TypeError, ["numpy's mean", "attr.Sum"]),
    ("format", lambda: f"{SHAPE[0]:>3}", TypeError, ["could be written as '>3'", "leave the format out"]),
    ("iteration", lambda: list(SHAPE), TypeError, ["can't be iterated", "attr.Map"]),
    ("unpacking", lambda: (lambda a, b: 0)(*SHAPE), TypeError, ["can't be iterated"]),
    ("len", lambda: len(SHAPE), TypeError, ["attr.Len"]),
    ("reversed", lambda: reversed(SHAPE), TypeError, ["attr.Len"]),
    ("object as operand", lambda: SHAPE + object(), TypeError, ["of type object can't be an attribute"]),
    ("pattern as operand", lambda: SHAPE == X, TypeError, ["Wildcard", "p.shape"]),
    ("set", lambda: attr.Const({1}), TypeError, ["of type set"]),
    ("assignment", lambda: setattr(SHAPE, "ast", 1), TypeError, ["immutable"]),
    ("body without index", lambda: attr.Map(SHAPE, SHAPE), ValueError, ["a function of the index", "index="]),
    ("index that is no symbol", lambda: attr.Map(SHAPE, SHAPE, index=SHAPE), TypeError, ["attr.Symbol()"]),
    ("index that is a number", lambda: attr.Variadic(SHAPE, 2, index=3), TypeError, ["attr.Symbol()", "3"]),  # type: ignore[arg-type]
    ("operator", lambda: attr.ReduceTuple("-", SHAPE), ValueError, ["can't reduce with '-'", "known are"]),
    ("operator function", lambda: attr.ReduceTuple(operator.sub, SHAPE), ValueError, ["can't reduce with"]),
    ("number of clauses", lambda: attr.Match(ALT, [1]), ValueError, ["expected 2 clauses", "got 1"]),
    ("match on no alternative", lambda: attr.Match(X, [1]), TypeError, ["expected an Alt", "Wildcard"]),
    ("condition", lambda: attr.Cond("a", 1, 2), TypeError, ["attr.Cond", "'a'", "neither true nor false"]),
    ("condition that is a number", lambda: attr.Cond(X.ndim, 1, 2), TypeError, ["attr.Cond", "ndim is neither"]),
    ("and of a shape", lambda: (SHAPE == (1,)) & SHAPE, TypeError, ["a side of &", "Wildcard.shape is neither true"]),
    ("number or", lambda: 1 | (SHAPE == (1,)), TypeError, ["a side of |", "the condition 1 is neither true"]),
    ("not of a number", lambda: ~(SHAPE[0] + 1), TypeError, ["after ~", "(Wildcard.shape[0] + 1) is neither true"]),
    ("step without stop", lambda: attr.Range(5, step=2), ValueError, ["step needs start and stop"]),
    ("max of no values", lambda: attr.max(), ValueError, ["attr.max", "got nothing"]),
]


@pytest.mark.parametrize(("make", "kind", "texts"), [row[1:] for row in REFUSED], ids=[row[0] for row in REFUSED])
def test_refused(make: Callable[[], Any], kind: type[Exception], texts: list[str]) -> None:
    with pytest.raises(PatternError) as caught:
        make()
    assert isinstance(caught.value, kind)
    for text in texts:
        assert text in str(caught.value)
    assert str(caught.value).startswith(f"test_building.py:{inspect.getsourcelines(make)[1]}: ")


@pytest.mark.torch
def test_a_tensor_is_no_attribute() -> None:
    import torch

    with pytest.raises(PatternError, match="of type Tensor can't be an attribute"):
        torch.ones(2) * SHAPE[0]


def test_expressions_are_not_hashable() -> None:
    with pytest.raises(TypeError, match="unhashable"):
        {SHAPE: 1}


def test_a_type_error_is_an_error_of_gsl_too() -> None:
    with pytest.raises(PatternTypeError):
        bool(SHAPE)


def test_copies_are_the_same_object() -> None:
    index = attr.Symbol()
    for thing in (SHAPE, index, index.ast, (SHAPE + 1).ast):
        assert copy.copy(thing) is thing
        assert copy.deepcopy(thing) is thing


def test_free_symbols() -> None:
    index = attr.Symbol("k")
    assert (index + SHAPE).ast.symbols == {index.ast}
    assert attr.Variadic(index, 3, index=index).ast.symbols == frozenset()
    assert attr.Reverse((index, 0)).ast.symbols == {index.ast}
    assert attr.Zip((index,), SHAPE).ast.symbols == {index.ast}
    assert attr.Cond(True, 1, index).ast.symbols == {index.ast}


CONV = pat.Call("nn.conv2d", X, X)


@pytest.mark.parametrize(
    ("expr", "text"),
    [
        (CONV.strides[0] * 2 + 1, "((nn.conv2d.strides[0] * 2) + 1)"),
        (-CONV.groups, "-nn.conv2d.groups"),
        (~(CONV.groups == 1) & True, "(~(nn.conv2d.groups == 1) & True)"),
        (SHAPE[1:], "Wildcard.shape[1:]"),
        (SHAPE[:2:-1], "Wildcard.shape[:2:-1]"),
        (attr.Tuple(SHAPE), "(Wildcard.shape,)"),
        (attr.Tuple(SHAPE, "a", None), "(Wildcard.shape, 'a', None)"),
        (attr.Len(SHAPE), "Len(Wildcard.shape)"),
        (attr.In(1, SHAPE), "In(1, Wildcard.shape)"),
        (attr.Range(1, SHAPE[0]), "Range(1, Wildcard.shape[0])"),
        (attr.LayoutRemap("NCHW", CONV.data_layout), "LayoutRemap('NCHW', nn.conv2d.data_layout)"),
        (SHAPE[0].max(3), "max(Wildcard.shape[0], 3)"),
        (attr.prod(SHAPE), "ReduceTuple('*', Wildcard.shape)"),
        (attr.ReduceTuple("+", SHAPE, 1), "ReduceTuple('+', Wildcard.shape, 1)"),
        (attr.Map(SHAPE, lambda d: d + 1), "((i + 1) for i in Wildcard.shape)"),
        (attr.Variadic(lambda i: i, 3), "(i for i in Range(3))"),
        (attr.Variadic(lambda i: i), "(i for i in ?)"),
        (attr.Cond(SHAPE[0] == 1, "a", "b"), "Cond((Wildcard.shape[0] == 1), 'a', 'b')"),
        (attr.Match(ALT, [1, 2]), "Match(Alt, [1, 2])"),
        (attr.Tuple(*[-SHAPE] * 20), "(" + "-Wildcard.shape, " * 8 + "…)"),
    ],
)
def test_repr_reads_like_the_source(expr: attr.Expr, text: str) -> None:
    assert repr(expr) == text


def test_a_long_chain_is_built_and_printed_without_recursion() -> None:
    expr = SHAPE[0]
    for _ in range(5000):
        expr = expr + 1
    assert len(repr(expr)) < 300


def test_literals_become_one_literal() -> None:
    assert to_ast((1, [2, (3,)])).value == (1, (2, (3,)))  # type: ignore[attr-defined]


def test_a_map_with_its_arguments_in_the_other_order_tells_what_it_got() -> None:
    with pytest.raises(PatternError, match=r"expected a function of the index or item, .*; got .*strides"):
        attr.Map(lambda item: item + 1, CONV.strides)

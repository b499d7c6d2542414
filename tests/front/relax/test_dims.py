"""Sizes, there and back."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import pytest
import sympy
import tvm
import tvm_ffi
from hypothesis import given, settings
from hypothesis import strategies as st
from tvm import tirx

from gsl.errors import FrontEndError
from gsl.front.relax.types import Dims
from gsl.graph import SymDim

N, M = tvm.tirx.Var("n", "int64"), tvm.tirx.Var("m", "int64")


OPERATIONS: dict[str, Callable[[int, int], int]] = {
    "Add": operator.add, "Sub": operator.sub, "Mul": operator.mul, "FloorDiv": operator.floordiv,
    "FloorMod": operator.mod, "Max": max, "Min": min,
}  # fmt: skip


def value(expr: Any, n: int, m: int) -> int:
    """The value of an integer expression of Relax."""
    if isinstance(expr, (int, tirx.IntImm)):
        return int(expr)
    if isinstance(expr, tvm.ir.Var):
        return n if expr.same_as(N) else m
    return OPERATIONS[type(expr).__name__](value(expr.a, n, m), value(expr.b, n, m))


CASES: dict[str, Callable[[], Any]] = {
    "a number": lambda: tirx.IntImm("int64", 3),
    "a variable": lambda: N,
    "a sum": lambda: N + M * 2 - 1,
    "a quotient": lambda: tirx.floordiv(N + 3, 2),
    "a remainder": lambda: tirx.floormod(N * M, 5),
    "the larger": lambda: tirx.max(N, M - 1),
    "the smaller": lambda: tirx.min(N * N, M),
    "a truncated quotient": lambda: tirx.truncdiv(N, 2),
    "a choice": lambda: tirx.Select(N > M, N, M),
}


@pytest.mark.parametrize("name", CASES)
def test_an_expression_comes_back(name: str) -> None:
    expr = CASES[name]()
    dims = Dims()
    back = dims.prim(dims.dim(expr))
    assert back == 3 if isinstance(back, int) else tvm_ffi.structural_equal(back, expr)


def test_variables_are_told_apart_by_identity() -> None:
    dims = Dims()
    other = tvm.tirx.Var("n", "int64")
    assert dims.dim(N) != dims.dim(other)
    assert dims.prim(dims.dim(N)).same_as(N)
    assert dims.prim(dims.dim(other)).same_as(other)
    assert dims.dim(N) == dims.dim(N)


def test_equal_expressions_without_a_form_in_sympy_are_one_symbol() -> None:
    dims = Dims()
    assert dims.dim(tirx.truncdiv(N, 2)) == dims.dim(tirx.truncdiv(N, 2))
    assert dims.dim(tirx.truncdiv(N, 2)) != dims.dim(tirx.truncdiv(N, 3))


def test_a_foreign_symbol_has_no_expression() -> None:
    with pytest.raises(FrontEndError, match="no expression of this program's variables"):
        Dims().prim(SymDim(sympy.Symbol("k", integer=True, positive=True)))


def expressions() -> st.SearchStrategy[Any]:
    leaves = st.sampled_from([N, M]) | st.integers(1, 4).map(lambda number: tirx.IntImm("int64", number))

    def combine(parts: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
        numbers = st.integers(1, 4).map(lambda number: tirx.IntImm("int64", number))
        return st.one_of(
            st.tuples(parts, parts).map(lambda p: p[0] + p[1]), st.tuples(parts, parts).map(lambda p: p[0] - p[1]),
            st.tuples(parts, parts).map(lambda p: p[0] * p[1]), st.tuples(parts, parts).map(lambda p: tirx.max(*p)),
            st.tuples(parts, numbers).map(lambda p: tirx.floordiv(*p)),
            st.tuples(parts, numbers).map(lambda p: tirx.floormod(*p)),
        )  # fmt: skip

    return st.recursive(leaves, combine, max_leaves=5)


@given(expressions(), st.integers(1, 9), st.integers(1, 9))
@settings(max_examples=60)
def test_a_dimension_has_the_value_of_its_expression(expr: Any, n: int, m: int) -> None:
    dims = Dims()
    for variable in (N, M):
        dims.dim(variable)
    size = dims.dim(expr)
    wanted = value(expr, n, m)
    found = sympy.sympify(size.expr if isinstance(size, SymDim) else size)
    assert int(found.subs({symbol: n if str(symbol) == "n" else m for symbol in found.free_symbols})) == wanted
    # A dimension that was computed (not read) is written anew.
    doubled = size * 2 + 1
    assert value(dims.prim(doubled), n, m) == wanted * 2 + 1

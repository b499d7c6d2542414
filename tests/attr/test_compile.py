"""Expressions written as Python source have the values that the evaluator gives."""

from __future__ import annotations

from typing import Any

import pytest

from gsl import attr, pat
from gsl.attr.evaluate import MOST, NO_VALUE, Evaluator, Names, NotCompiled, source
from gsl.attr.expr import Expr
from gsl.errors import EvaluationError

x = pat.Wildcard()
either = pat.Wildcard() | pat.Wildcard()
i = attr.Symbol()
SHAPE = (2, 3, 4)


class Scope:
    """``x`` has a shape and a dtype, and nothing else; the second alternative was taken."""

    def attribute(self, pattern: Any, name: str, symbols: Any) -> Any:
        found = {"shape": SHAPE, "ndim": 3, "dtype": "float32"}.get(name)
        if found is None:
            raise EvaluationError(f"no {name}")
        return found

    def alternative(self, pattern: Any, symbols: Any) -> int:
        return 1


def written(expression: Expr) -> Any:
    names = Names()
    scope = Scope()
    text = source(
        expression.ast, names, lambda pattern, name: f"{names.of(scope.attribute)}(None, {name!r}, None)", lambda _: 1
    )
    return eval(text, dict(names.table))


n, s, d = x.ndim, x.shape, x.dtype
EXPRESSIONS = [
    n + 1, 7 - n, n * 2 // 4, n / 2, n % 2, n**2, -n, ~(n == 3), abs(-n), n == 3, n != 3, n < 4, n >= 4, n == True,  # noqa: E712
    (n == 3) & (n == 4), (n == 3) | (s[7] == 1), (n == 4) & (s[7] == 1), s[0], s[-1], attr.Tuple(s[0], n),
    s[1:], s[:-2], s[:n:2],
    s == (2, 3, 4), s == [2, 3, 4], d == "float32", attr.Len(s), attr.In(3, s), attr.Reverse(s), attr.Range(n),
    attr.Zip(s, s), attr.all(attr.Tuple(n == 3, True)), attr.any((n == 4, n == 5)), n.max(5), n.min(5),
    attr.Cond(n == 3, s[0], s[7]), attr.Cond(n == 4, s[7], s[0]), attr.Match(either, [s[7], s[1]]),
    attr.LayoutRemap("NCHW", "NHWC"), attr.Const(None) == n, attr.Const(-2) + n, attr.Const(0.5) * n,
    attr.Sum(s), attr.prod(s[:0]), attr.max(s), attr.ReduceTuple("+", s, 9),
    attr.Map(s, lambda item: item + 1), attr.Map(attr.Zip(s, s[1:]), lambda pair: pair[0] - pair[1])[:1],
    attr.Map(s, lambda item: attr.Sum(attr.Map(s, lambda other: item * other))), attr.all(attr.Map(s, lambda a: a > 1)),
    attr.Map(s, attr.Tuple(attr.Map((i, i + 1), -i, index=i), i), index=i),
]  # fmt: skip


@pytest.mark.parametrize("expression", EXPRESSIONS, ids=repr)
def test_the_value_is_that_of_the_evaluator(expression: Expr) -> None:
    expected = Evaluator(Scope()).value(expression.ast)
    found = written(expression)
    assert found == expected
    assert type(found) is type(expected)


@pytest.mark.parametrize(
    "expression",
    [s[7], n // (n - 3), attr.max(s) & (n == 3), ~attr.max(s), d + 1, s["a"], pat.Const().value, d < n, attr.Range(d),
     attr.max(s[:0]), attr.Map(n, lambda item: item), attr.Map(s, lambda item: s[item])],
    ids=repr,
)
def test_there_is_no_value_where_the_evaluator_finds_none(expression: Expr) -> None:
    with pytest.raises(EvaluationError):
        Evaluator(Scope()).value(expression.ast)
    with pytest.raises(NO_VALUE):
        written(expression)


def large() -> Expr:
    found = n + 1
    for _ in range(MOST):
        found = found + n
    return found


@pytest.mark.parametrize("expression", [attr.Variadic(lambda item: item + 1, n), i + 1, large()])
def test_what_is_left_to_the_evaluator(expression: Expr) -> None:
    with pytest.raises(NotCompiled):
        written(expression)

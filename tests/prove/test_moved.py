"""Proofs of rules with repeated tensors, triangles and cumulative sums, each beside a near one that is wrong."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from gsl import Subst, op, pat
from gsl.prove import NoProof, Proof, prove

SUM: Any = {"axis": 0, "dtype": "", "exclusive": False}
BEFORE: Any = {**SUM, "exclusive": True}


def of(source: Callable[..., Any], target: Callable[..., Any]) -> Proof | NoProof:
    x = pat.Wildcard(ndim=2, dtype="float32")
    return prove(Subst(source(x), target(x)))


def total(x: pat.Pattern, axis: int = 0) -> pat.Pattern:
    return op.Sum(x, axis=(axis,), keepdims=False, exclude=False)


def upper(x: pat.Pattern, k: int = 0, of_upper: bool = True) -> pat.Pattern:
    return op.Trilu(x, k=k, upper=of_upper)


@pytest.mark.parametrize(("source", "right", "wrong"), [
    (lambda x: op.ReLU(op.Tile(x, reps=(2, 3))), lambda x: op.Tile(op.ReLU(x), reps=(2, 3)),
     lambda x: op.Tile(op.ReLU(x), reps=(2, 3)) + op.Tile(x, reps=(2, 3))),
    (lambda x: op.Tile(x, reps=(2, 1)), lambda x: op.Concatenate([x, x], axis=0),
     lambda x: op.Repeat(x, repeats=2, axis=0)),
    (lambda x: op.Tile(op.Tile(x, reps=(1, 2)), reps=(2, 1)), lambda x: op.Tile(x, reps=(2, 2)),
     lambda x: op.Repeat(op.Tile(x, reps=(2, 1)), repeats=2, axis=1)),
    (lambda x: op.Exp(op.Repeat(x, repeats=3, axis=1)), lambda x: op.Repeat(op.Exp(x), repeats=3, axis=1),
     lambda x: op.Tile(op.Exp(x), reps=(1, 3))),
    (lambda x: op.Repeat(op.Repeat(x, repeats=3, axis=1), repeats=2, axis=1), lambda x: op.Repeat(x, repeats=6, axis=1),
     lambda x: op.Tile(op.Repeat(x, repeats=3, axis=1), reps=(1, 2))),
    (lambda x: op.ReLU(upper(x)), lambda x: upper(op.ReLU(x)), lambda x: upper(op.ReLU(x), 1)),
    (lambda x: upper(upper(x, 1), 0), lambda x: upper(x, 1), lambda x: upper(x, 0)),
    (lambda x: upper(x) + upper(x, -1, of_upper=False), lambda x: op.Copy(x), lambda x: upper(x, -1)),
    (lambda x: op.Exp(upper(x)), lambda x: op.Exp(upper(x)) * 1.0, lambda x: upper(op.Exp(x))),
    (lambda x: op.Cumsum(x * 2.0, **SUM), lambda x: op.Cumsum(x, **SUM) * 2.0, lambda x: op.Cumsum(x, **BEFORE) * 2.0),
    (lambda x: op.Cumsum(x, **SUM), lambda x: op.Cumsum(x, **BEFORE) + x, lambda x: op.Cumsum(x, **BEFORE) - x),
    (lambda x: op.Cumsum(op.Log(x), **SUM), lambda x: op.Cumsum(op.Log(x), **BEFORE) + op.Log(x),
     lambda x: op.Cumsum(op.Log(x), **SUM) + total(op.Log(x)) * 0.0),
    (lambda x: total(op.Cumsum(x, **SUM), 1), lambda x: op.Cumsum(total(x, 1), **SUM), lambda x: total(x, 1)),
])  # fmt: skip
def test_moved(source: Callable[..., Any], right: Callable[..., Any], wrong: Callable[..., Any]) -> None:
    assert isinstance(found := of(source, right), Proof), str(found)
    assert isinstance(found := of(source, wrong), NoProof), str(found)


def test_attributes_may_be_free() -> None:
    x = pat.Wildcard(ndim=2, dtype="float32")
    for whole in (op.Repeat(x), op.Trilu(x), op.Cumsum(x, dtype="")):
        assert isinstance(found := prove(Subst(op.Negative(whole), whole.like(op.Negative(x)))), Proof), str(found)
        assert isinstance(prove(Subst(op.Exp(whole), whole.like(op.Exp(x)))), NoProof) or whole.op.name == "repeat"


def test_a_cumulative_sum_in_another_dtype_is_not_read() -> None:
    x = pat.Wildcard(ndim=1, dtype="float32")
    whole = op.Cumsum(x, axis=0)
    found = prove(Subst(op.Negative(whole), whole.like(op.Negative(x))))
    assert isinstance(found, NoProof)
    assert "a dtype of its own" in found.reason

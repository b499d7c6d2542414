"""What a verdict tells of corners that it does not depend on."""

from __future__ import annotations

from typing import Any

import pytest

from gsl import Subst, Supported, op, pat
from gsl.verify.corners import EMPTY, HUGE, NOT_FINITE

pytestmark = pytest.mark.filterwarnings("ignore::gsl.errors.DroppedAttributeWarning")
x, y = pat.Wildcard(dtype="float32"), pat.Wildcard(dtype="float32")
exponential = op.Exp(x)
short, other = pat.Wildcard(dtype="int16"), pat.Wildcard(dtype="int16")
n, m = pat.Wildcard(dtype="int64"), pat.Wildcard(dtype="int32")
total = op.Sum(x, axis=(-1,), keepdims=False)
divided: list[Any] = [x.shape == y.shape, lambda match: 12 % match[x].shape[0] == 0]


@pytest.mark.parametrize(
    ("rule", "corner", "what"),
    [
        (Subst(total, op.Mean(x, axis=(-1,)) * x.shape[-1]), EMPTY, "0.0 before and nan after"),
        (Subst(op.Where(op.Greater(x, 0.0), x, 0.0), op.ReLU(x)), NOT_FINITE, "0.0 before and nan after"),
        (Subst(op.LogicalNot(op.Less(x, y)), op.GreaterEqual(x, y)), NOT_FINITE, "True before and False after"),
        (Subst(op.Softmax(x, axis=-1), exponential / op.Sum(exponential, axis=(-1,), keepdims=True)), HUGE,
         "before and nan after"),
        (Subst(op.Greater(short - other, 0), op.Greater(short, other)), HUGE, "before and"),
        (Subst(op.GreaterEqual(op.Abs(m), 0), op.Equal(m, m)), HUGE, "False before and True after"),
        (Subst(op.Less(n, n + 1), op.Equal(n, n)), HUGE, "False before and True after"),
        (Subst(op.FloorDivide(m * 2, 2), m), HUGE, "before and"),
        (Subst(op.Cast(m + m, dtype="float32"), op.Cast(m, dtype="float32") * 2), HUGE, "before and"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)  # fmt: skip
def test_a_supported_rule_tells_where_it_differs(rule: Subst, corner: str, what: str) -> None:
    found = rule.verify(max_examples=30)
    assert isinstance(found, Supported), str(found)
    assert {name for name, (_, difference) in found.evidence.corners.items() if difference} == {corner}
    assert f"differs on {corner}: output 0 at (" in str(found)
    assert what in str(found)


@pytest.mark.parametrize("rule", [
    Subst(op.Mean(x, axis=(-1,)), op.Sum(x, axis=(-1,)) / x.shape[-1], name="a mean"),
    Subst(op.ReLU(op.ReLU(x)), op.ReLU(x), name="twice"),
    Subst(op.Exp(op.Copy(x)), exponential, name="a copy"),
    Subst(op.Cast(op.Cast(short, dtype="int32") * op.Cast(other, dtype="int32"), dtype="int16"), short * other,
          name="products that wrap on both sides"),
], ids=lambda rule: rule.name)  # fmt: skip
def test_what_holds_at_all_corners_is_not_told(rule: Subst) -> None:
    found = rule.verify(max_examples=30)
    assert [difference for _, difference in found.evidence.corners.values()] == ["", "", ""]
    assert all(count for count, _ in found.evidence.corners.values())
    assert "differs" not in str(found)


def test_a_condition_that_fails_at_a_corner_ends_no_verdict() -> None:
    found = Subst(x + y, y + x * 1.0, where=[x.ndim == 1, *divided]).verify(max_examples=30)
    assert isinstance(found, Supported), str(found)


def test_demanded_numbers_are_finite() -> None:
    share = pat.Wildcard(dtype="float32", values=(0, 1))
    found = Subst(op.ReLU(share), share).verify(max_examples=30)
    assert isinstance(found, Supported), str(found)
    assert [difference for _, difference in found.evidence.corners.values()] == ["", "", ""]


def test_a_rule_without_empty_instances_says_so() -> None:
    found = Subst(op.ReLU(op.ReLU(x)), op.ReLU(x), where=[x.ndim == 1, x.shape[0] >= 1]).verify(max_examples=30)
    assert f"not compared on {EMPTY}" in str(found)

"""Comparing on other inputs than ordinary ones, and finding the step that introduced a difference."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from gsl import RuleSet, Subst, Workload, op, pat
from gsl.errors import WorkloadError
from gsl.workload.inputs import STRATEGIES, strategy
from tests.helpers.nets import Of

X, Y = pat.Wildcard(), pat.Wildcard()


def workload(function: Any, *inputs: torch.Tensor, **options: Any) -> Workload:
    return Workload.from_torch(Of(function), inputs or (torch.rand(4, 6) + 1,), **options)


WRONG: dict[str, tuple[Any, Subst, Any]] = {
    # A rule that is wrong for some inputs only, and the strategy that shows it.
    "negative": (torch.abs, Subst(op.Abs(X), X + 0.0, name="abs"), "normal"),
    "signed zero": (
        torch.reciprocal, Subst(op.Reciprocal(X), op.Reciprocal(X + 0.0), name="plus-zero"), "special"),
    "ties": (
        torch.sign, Subst(op.Sign(X), op.Divide(X, op.Abs(X)), name="sign"), "special"),
    "overflow": (
        torch.tanh, Subst(op.Tanh(X), 1.0 - 2.0 * op.Exp(-X) / (op.Exp(X) + op.Exp(-X)), name="tanh"), "large"),
    "range": (
        lambda x: torch.clamp(x, -20, 20), Subst(op.Clip(X), X + 0.0, name="clip"), (30.0, 40.0)),
    "infinity": (lambda x: x - x * 0, Subst(X - Y * 0, X + 0.0, name="minus-zero"), "nonfinite"),
}  # fmt: skip


@pytest.mark.parametrize("case", WRONG)
def test_a_strategy_shows_what_the_example_does_not(case: str) -> None:
    function, rule, chosen = WRONG[case]
    before = workload(function)
    after = rule(before)
    assert after.trace.count() == 1
    before.compare(after, strategies="positive").check()
    report = before.compare(after, strategies=[chosen])
    assert not report.passed
    assert report.failures[0].run == 1


def test_each_combination_is_a_run() -> None:
    before = workload(torch.relu)
    report = before.compare(before, strategies=["normal", "integers", (-1, 1)], seed=range(2)).check()
    assert report.labels == (
        "example", "normal, seed 0", "normal, seed 1", "integers, seed 0", "integers, seed 1", "[-1, 1), seed 0",
        "[-1, 1), seed 1",
    )  # fmt: skip
    assert "run 3: integers, seed 0" in str(report)
    assert len({tuple(x.flatten().tolist()) for (x,) in report.inputs}) == 7


def test_dynamic_sizes() -> None:
    batch = torch.export.Dim("batch", min=1)
    before = workload(lambda x: x.relu().sum(0), torch.randn(3, 4), dynamic_shapes=(({0: batch},),))
    (name,) = {str(size) for size in before.inputs["inputs_0"].shape if not isinstance(size, int)}
    report = before.compare(before, sizes=[{name: 1}, {name: 7}]).check()
    assert [tuple(x.shape) for (x,) in report.inputs] == [(3, 4), (1, 4), (7, 4)]
    assert report.labels[-1] == f"normal, seed 0, {name}=7"


def test_a_difference_for_one_size_only() -> None:
    batch = torch.export.Dim("batch", min=1)
    before = workload(lambda x: x.mean(0), torch.randn(3, 4), dynamic_shapes=(({0: batch},),))
    after = Subst(op.Mean(X), op.Sum(X, axis=(0,)) / 3.0, name="sum")(before)
    (name,) = {str(size) for size in before.inputs["inputs_0"].shape if not isinstance(size, int)}
    assert before.compare(after).passed
    report = before.compare(after, sizes=[{name: 3}, {name: 2}])
    assert [row.run for row in report.failures] == [2]


def test_integers_stay_in_the_range_of_the_example() -> None:
    indices = torch.tensor([0, 3, 1])
    before = workload(lambda i: torch.arange(4)[i], indices)
    report = before.compare(before, strategies=list(STRATEGIES))
    assert all(0 <= int(i.min()) <= int(i.max()) <= 3 for (i,) in report.inputs)


def test_the_culprit_is_found() -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        for _ in range(3):
            x = torch.sigmoid(x).exp().tanh()
        return x.abs()

    right = [
        Subst(op.Exp(X), op.Expm1(X) + 1.0, name="exp"),
        Subst(op.Sigmoid(X), 1.0 / (1.0 + op.Exp(-X)), name="sigmoid"),
    ]
    wrong = Subst(op.Tanh(X), op.Sigmoid(X) * 2.0 - 1.0, name="tanh")
    before = workload(function)
    after = RuleSet([*right, wrong])(before)
    report = before.compare(after, trace=after.trace)
    assert report.culprit is not None
    assert report.culprit.firing.rule == "tanh"
    first = next(step for step, firing in enumerate(after.trace.firings, 1) if firing.rule == "tanh")
    assert (report.culprit.step, report.culprit.steps) == (first, 9)
    assert f"introduced by step {first} of 9: tanh: " in str(report)
    for steps, same in ((first - 1, True), (first, False)):
        assert before.compare(after.trace.replay(before, steps=steps)).passed is same


def test_the_culprit_is_looked_for_in_the_run_that_differs() -> None:
    """Earlier runs may agree, where a step is wrong for some values only."""
    before = workload(lambda x: torch.relu(torch.exp(x) - 1.0))
    right = Subst(op.Exp(X), op.Expm1(X) + 1.0, name="exp")
    wrong = Subst(op.ReLU(X), X * 1.0, name="relu")
    after = RuleSet([right, wrong])(before)
    report = before.compare(after, trace=after.trace, strategies=["positive", (1.0, 2.0), "normal", "positive"])
    differing = {row.run for row in report.outputs if not row.passed}
    assert differing
    assert min(differing) > 1
    assert report.culprit is not None
    assert report.culprit.firing.rule == "relu"


def test_there_is_no_culprit_where_there_is_no_difference() -> None:
    before = workload(torch.exp)
    after = Subst(op.Exp(X), op.Expm1(X) + 1.0, name="exp")(before)
    assert before.compare(after, trace=after.trace).culprit is None


def test_a_trace_of_another_workload_is_an_error() -> None:
    before = workload(torch.exp)
    after = Subst(op.Exp(X), op.Expm1(X), name="exp")(before)
    with pytest.raises(WorkloadError, match="the trace was not made on Of"):
        workload(torch.tanh).compare(after, trace=after.trace)


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"strategies": "specail"}, "there is no strategy 'specail'; did you mean 'special'"),
        ({"strategies": [(2, 1)]}, r"a strategy is one of .*, or a range \(low, high\); got \(2, 1\)"),
        ({"strategies": []}, "at least one strategy"),
        ({"sizes": {"n": 3}}, "has no symbolic size 'n'"),
        ({"inputs": (torch.ones(4, 6),), "strategies": "special"}, "either inputs= or how to make them"),
    ],
)
def test_what_compare_does_not_take(options: dict[str, Any], text: str) -> None:
    before = workload(torch.exp)
    with pytest.raises(WorkloadError, match=text):
        before.compare(before, **options)


@pytest.mark.parametrize("name", STRATEGIES)
@pytest.mark.parametrize("dtype", ["float64", "float32", "float16", "bfloat16", "complex64"])
def test_draws_are_the_same_for_a_seed(name: str, dtype: str) -> None:
    before = workload(lambda x: x + 1, torch.ones(3, 50, dtype=getattr(torch, dtype)))
    first, second, other = (before.random_inputs(seed=seed, strategy=name)[0] for seed in (1, 1, 2))
    assert str(first.dtype) == f"torch.{dtype}"
    assert torch.equal(torch.nan_to_num(first), torch.nan_to_num(second))
    assert not torch.equal(torch.nan_to_num(first), torch.nan_to_num(other))


def test_ranges_are_kept() -> None:
    values = strategy((3, 4)).draw(torch, (1000,), torch.float64, torch.Generator().manual_seed(0))
    assert 3 <= float(values.min()) < 3.1
    assert 3.9 < float(values.max()) < 4

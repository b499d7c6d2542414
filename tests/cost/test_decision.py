"""What was decided once is applied again at once: no search, and no timing of what was faster."""

from __future__ import annotations

import json
import sqlite3
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import gsl
from gsl import Subst, Workload, op, pat
from gsl.cost import Backtrack, Optimized, Timing
from gsl.cost.decision import Decision
from gsl.cost.space import Trial
from gsl.cost.whole import checksum
from gsl.match import Match

x, w = pat.Wildcard(), pat.Variable()
ONCE = Subst(op.ReLU(op.ReLU(x)), op.ReLU(x), name="once")
FAST, SLOW = Timing((1.0, 1.1, 1.2)), Timing((2.0, 2.1, 2.2))


class Scaled(nn.Module):
    """A product with a weight between functions."""

    def __init__(self, weight: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.full((3,), weight))

    def forward(self, a: torch.Tensor) -> torch.Tensor:
        return torch.relu(torch.relu(a)) * self.weight + torch.tanh(torch.relu(torch.relu(a)))


def scaled(weight: float = 1.0) -> Workload:
    return Workload.from_torch(Scaled(weight), (torch.linspace(0.1, 1, 12).reshape(4, 3),))


class Timer:
    """Stands for the timing of both programs, and counts how often it is asked."""

    def __init__(self) -> None:
        self.asked = 0
        self.new = FAST

    def __call__(self, *_: Any) -> list[Timing]:
        self.asked += 1
        return [SLOW, self.new]


@pytest.fixture
def timer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Timer:
    timer = Timer()
    monkeypatch.setenv("GSL_CACHE", str(tmp_path))
    monkeypatch.setattr("gsl.cost.optimization.in_turns", timer)
    return timer


def optimized(wl: Workload, *rules: Subst, search: Any = "greedy", budget: float = 20.0) -> Optimized:
    return gsl.optimize(wl, rules=list(rules), cost="analytic", search=search, budget=budget)


@pytest.mark.parametrize("value", ['"text"', "{}", '{"traces": [{"firings": 1}]}', "[1.0]"])
def test_a_decision_of_another_form_is_made_anew(value: str, timer: Timer, tmp_path: Path) -> None:
    """Another version of GSL may have written it."""
    optimized(scaled(), ONCE)
    with sqlite3.connect(tmp_path / "costs.sqlite") as file:
        file.execute("UPDATE known SET value = ?", (value,))
    again = optimized(scaled(), ONCE)
    assert again.report.taken
    assert not again.report.from_cache
    assert optimized(scaled(), ONCE).report.from_cache


@pytest.mark.parametrize("search", ["greedy", "backtrack", Backtrack(steps=4)])
def test_the_second_run_neither_searches_nor_runs_anything(
    search: Any, timer: Timer, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = optimized(scaled(), ONCE, search=search)
    assert first.report.taken
    assert not first.report.from_cache

    def fail(*_: Any) -> Any:
        raise AssertionError("it searches, or runs a program")

    monkeypatch.setattr("gsl.cost.greedy.Greedy.run", fail)
    monkeypatch.setattr("gsl.cost.backtrack.Backtrack.run", fail)
    monkeypatch.setattr(Workload, "isolated", fail)
    second = optimized(scaled(), ONCE, search=search)
    assert timer.asked == 1
    assert second.report.from_cache
    assert str(second.workload) == str(first.workload)
    assert second.workload.trace.summary() == first.workload.trace.summary()
    assert second.report.as_json()["rules"] == first.report.as_json()["rules"]
    assert (second.report.before, second.report.after, second.report.error) == (SLOW, FAST, first.report.error)
    assert second.report.decision == "1.91 times faster, as an earlier run found"
    assert second.report.costs_after.total == first.report.costs_after.total


def test_weights_that_a_search_computed_are_computed_again(timer: Timer) -> None:
    class Twice(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.b = nn.Parameter(torch.randn(3)), nn.Parameter(torch.randn(3))

        def forward(self, value: torch.Tensor) -> torch.Tensor:
            return value * self.a * self.b

    y, z = pat.Wildcard(), pat.Wildcard()
    associate = Subst(x * y * z, x * (y * z), name="associate")
    wl = Workload.from_torch(Twice(), (torch.randn(4, 3),))
    for is_known in (False, True):
        new, report = optimized(wl, associate, search="backtrack")
        assert report.from_cache == is_known
        assert new.op_counts() == {"multiply": 1}
        assert new.trace.replay(wl).op_counts() == {"multiply": 1}


def test_what_was_not_faster_is_timed_again(timer: Timer) -> None:
    timer.new = SLOW
    assert not optimized(scaled(), ONCE).report.taken
    timer.new = FAST
    second = optimized(scaled(), ONCE).report
    assert second.from_cache
    assert second.taken
    assert timer.asked == 2
    assert optimized(scaled(), ONCE).report.taken
    assert timer.asked == 2, "now it is known"


def test_numbers_are_compared_again_on_other_values(timer: Timer) -> None:
    wrong = Subst(x * w, x, name="as if it were 1")
    assert optimized(scaled(1.0), wrong).report.taken
    other = scaled(2.0)
    new, report = optimized(other, wrong)
    assert not report.from_cache, "the decision was of another program"
    assert new is other
    assert "elements differ" in report.decision


def test_a_rule_that_looks_at_weights_is_asked_again(timer: Timer) -> None:
    def is_one(match: Match) -> bool:
        return bool((match[w].attrs["value"] == 1).all())

    right = Subst(x * w, x, name="by 1", where=is_one)
    assert optimized(scaled(1.0), right).report.taken
    report = optimized(scaled(2.0), right).report
    assert not report.from_cache
    assert report.trials == ()


def test_checksums_tell_values_apart() -> None:
    tensor = torch.arange(6.0).reshape(2, 3)
    found = checksum([tensor, 3, "text"])
    assert found == checksum([tensor.clone(), 3, "text"])
    other = tensor.clone()
    other[1, 2] += 1e-6
    different = [
        [other, 3, "text"], [tensor.flip(0), 3, "text"], [tensor, 4, "text"], [tensor, 3], [3, tensor, "text"],
        [tensor.double(), 3, "text"],
    ]  # fmt: skip
    assert found not in [checksum(values) for values in different]
    kinds = [torch.tensor(True), torch.tensor(1 + 2j), torch.zeros(0), tensor.bfloat16(), tensor.t(), tensor.numpy()]
    assert None not in [checksum([value]) for value in kinds]
    assert checksum([tensor.to_sparse()]) is None


def test_more_time_looks_at_more(timer: Timer) -> None:
    def known(budget: float) -> bool:
        return optimized(scaled(), ONCE, search="backtrack", budget=budget).report.from_cache

    short = 1e-6
    assert [known(short), known(short), known(short / 2)] == [False, True, True]
    assert [known(20.0), known(40.0)] == [False, True], "all was looked at"


def test_a_decision_is_what_it_was_after_json() -> None:
    new = ONCE(scaled())
    trials = (Trial("once", "float32[4, 3]", 2, 1.5, "kept", "it pays", None),)
    for decision in (Decision((), (), None), Decision((new.trace,), trials, 2.0, SLOW, FAST, 1e-7, 5)):
        again = Decision.of_json(json.loads(json.dumps(decision.as_json())), {"once": ONCE})
        assert replace(again, traces=()) == replace(decision, traces=())
        assert [str(trace.replay(scaled())) for trace in again.traces] == [str(new) for _ in decision.traces]

"""The budget of an optimisation: what it takes is within it, but for the step at which it is over."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

import gsl
from gsl import Subst, Workload, op, pat
from gsl.cost import Costs, OfNodes, OptimizeReport, optimization

x = pat.Wildcard()
FUNCTIONS = ("ReLU", "Abs", "Floor", "Ceil", "Sign", "Round")
PRICING, RUN = 1.0, 0.5
"""The seconds that it takes to price a program, and to run one."""


class Time:
    """A clock that goes on only when something is done that takes time, and tells in what the time went."""

    def __init__(self) -> None:
        self.now = 100.0
        self.runs = self.pricings = 0

    def perf_counter(self) -> float:
        return self.now

    def run(self) -> None:
        self.now += RUN
        self.runs += 1

    def price(self) -> None:
        self.now += PRICING
        self.pricings += 1


class Slow:
    """A model of seconds, which takes time to price a program."""

    name, noise = "", 0.0

    def __init__(self, time: Time) -> None:
        self.time = time

    def costs(self, workload: Workload) -> Costs:
        self.time.price()
        own = OfNodes(lambda node: 0.0).costs(workload)
        calls = [type(call)(call.name, call.op, call.module, RUN / 12, call.key) for call in own]
        return Costs(own.name, "slow", calls, unit="s", threads=1)


class Twice(nn.Module):
    """Each function twice, so that there is a rule of its own for it."""

    def forward(self, a: torch.Tensor) -> torch.Tensor:
        for name in FUNCTIONS:
            function = getattr(torch, name.lower())
            a = function(function(a))
        return a


RULES = [Subst(getattr(op, name)(getattr(op, name)(x)), getattr(op, name)(x), name=name) for name in FUNCTIONS]


@pytest.fixture
def time(monkeypatch: pytest.MonkeyPatch) -> Time:
    time = Time()
    for module in ("space", "whole", "optimization", "model"):
        monkeypatch.setattr(f"gsl.cost.{module}.time", time)
    isolated = Workload.isolated

    def slow(self: Workload, inputs: Any, seed: int) -> Any:
        time.run()
        return isolated(self, inputs, seed)

    def call(workload: Workload, inputs: Any, captures: bool) -> Any:
        time.run()
        return time.run

    monkeypatch.setattr(Workload, "isolated", slow)
    monkeypatch.setattr("gsl.cost.whole._call", call)
    return time


def spent(time: Time, budget: float, search: str = "greedy") -> OptimizeReport:
    wl = Workload.from_torch(Twice(), (torch.randn(2, 3),))
    return gsl.optimize(wl, rules=RULES, cost=Slow(time), budget=budget, search=search).report


LEAST = 2 * 9 * RUN
"""What the end takes at least."""


@pytest.mark.parametrize("search", ["greedy", "backtrack"])
@pytest.mark.parametrize("budget", [11.0, 14.0, 20.0, 60.0])
def test_the_budget_is_kept(search: str, budget: float, time: Time) -> None:
    report = spent(time, budget, search)
    assert report.before is not None
    assert report.error is not None, "the end was reached"
    assert LEAST + PRICING < report.seconds <= budget + PRICING


def test_with_hardly_a_budget_the_end_takes_its_least(time: Time) -> None:
    report = spent(time, 0.1)
    assert report.before is not None
    assert len(report.before.samples) == 5
    assert time.runs * RUN == LEAST
    assert report.seconds <= LEAST + 2 * PRICING, "both programs are priced"


def test_the_check_finds_an_end_that_has_no_time_left(time: Time, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(optimization, "FINAL", 0.0)
    monkeypatch.setattr(optimization._Optimization, "_least", lambda self, costs: 0.0)
    assert spent(time, 11.0).seconds > 11.0 + PRICING

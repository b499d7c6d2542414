"""Rules that pay are kept, others are not, and nothing gets slower."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

import gsl
from gsl import RuleSet, Subst, Unchecked, Workload, op, pat
from gsl.cost import Backtrack, Costs, Found, Measured, OfNodes, OptimizeReport, Space, Store, Timing
from gsl.cost.machine import CaptureError
from gsl.cost.optimization import SEARCHES
from gsl.cost.space import Choice, Clock
from gsl.cost.whole import TimedInputs, error, in_turns, is_faster
from gsl.errors import WorkloadError
from gsl.graph import Node
from gsl.rules import OPTIMISING
from gsl.rules.approximate import INT8
from tests.helpers.book import EVERY_RULE

x = pat.Wildcard()
RELU_RELU = Subst(op.ReLU(op.ReLU(x)), op.ReLU(x), name="relu-relu")
SPLIT_RELU = Subst(op.ReLU(x), op.Clip(x, a_min=0.0, a_max=3.4e38), name="relu-clip")
ABS_ABS = Subst(op.Abs(op.Abs(x)), op.Abs(x), name="abs-abs")
COMMUTE = Subst(op.Abs(op.ReLU(op.Abs(x))), op.ReLU(op.Abs(op.Abs(x))), name="commute", doc="Lets abs-abs match.")


class Chain(nn.Module):
    """Functions one after the other."""

    def __init__(self, *functions: Callable[[torch.Tensor], torch.Tensor]) -> None:
        super().__init__()
        self.functions = functions

    def forward(self, a: torch.Tensor) -> torch.Tensor:
        for function in self.functions:
            a = function(a)
        return a


def chain(*functions: Callable[[torch.Tensor], torch.Tensor], rows: int = 4) -> Workload:
    torch.manual_seed(0)
    return Workload.from_torch(Chain(*functions), (torch.randn(rows, 3),))


class Timed(OfNodes):
    """Prices that count as measured: whole programs are timed as well."""

    until: float | None = None
    __setattr__ = object.__setattr__

    def costs(self, workload: Workload) -> Costs:
        own = super().costs(workload)
        return Costs(own.name, own.model, own.calls, unit="s")


def priced(noise: float = 0.0, **prices: float) -> OfNodes:
    """A cost model of operators by their prices; 1 for all others."""
    return OfNodes(lambda node: prices.get(str(node.op).removeprefix("nn."), 1.0), noise)


def greedy(wl: Workload, rules: Any, model: Any) -> tuple[Found, Space]:
    stages = [rules] if isinstance(rules, RuleSet) else rules
    space = Space(wl, stages, model)
    return SEARCHES["greedy"].run(space, Clock(60.0), lambda what: None), space


def verdicts(found: Found) -> Mapping[str, str]:
    return {trial.rule: trial.verdict for trial in found.trials}


# ------------------------------------------------------------ greedy


def test_what_pays_is_kept() -> None:
    found, _ = greedy(chain(torch.relu, torch.relu), RuleSet([RELU_RELU]), priced())
    assert found.best.costs.total == 1.0
    assert [(t.rule, t.shape, t.times, t.gain, t.verdict) for t in found.trials] == [
        ("relu-relu", "float32[4, 3]", 1, 1.0, "kept")
    ]


def test_what_costs_is_dropped() -> None:
    wl = chain(torch.relu, torch.tanh)
    found, _ = greedy(wl, RuleSet([SPLIT_RELU]), priced(clip=3.0))
    assert found.best.workload is wl
    assert [(t.verdict, t.gain, t.why) for t in found.trials] == [("dropped", -2.0, "the program is cheaper without")]


@pytest.mark.parametrize("search", ["greedy", "backtrack"])
@pytest.mark.parametrize(
    "stages", [[RuleSet([COMMUTE, ABS_ABS])], [RuleSet([ABS_ABS, COMMUTE])], [RuleSet([COMMUTE]), RuleSet([ABS_ABS])]]
)
@pytest.mark.parametrize("noise", [0.0, 0.03])
def test_a_rule_that_only_lets_others_match_stays(search: str, stages: list[RuleSet], noise: float) -> None:
    wl = chain(torch.abs, torch.relu, torch.abs)
    space = Space(wl, stages, priced(noise))
    found = SEARCHES[search].run(space, Clock(60.0), lambda what: None)
    assert verdicts(found) == {"commute": "kept", "abs-abs": "kept"}
    assert found.best.workload.op_counts() == {"abs": 1, "nn.relu": 1}
    wl.compare(found.best.workload).check()
    alone, _ = greedy(wl, RuleSet([COMMUTE]), priced())
    assert alone.best.workload is wl, "alone it is worth nothing"


def test_shapes_are_decided_one_by_one() -> None:
    class Two(nn.Module):
        def forward(self, a: torch.Tensor, b: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            return torch.relu(a), torch.relu(b)

    wl = Workload.from_torch(Two(), (torch.randn(4, 3), torch.randn(400, 3)))

    def by_size(node: Node) -> float:
        assert node.shape is not None
        large = node.shape[0] == 400
        return {"nn.relu": 5.0, "clip": 1.0 if large else 9.0}.get(str(node.op), 0.0)

    found, _ = greedy(wl, RuleSet([SPLIT_RELU]), OfNodes(by_size))
    assert {t.shape: (t.verdict, t.gain) for t in found.trials} == {
        "float32[4, 3]": ("dropped", -4.0), "float32[400, 3]": ("kept", 4.0)
    }  # fmt: skip
    assert found.best.workload.op_counts() == {"nn.relu": 1, "clip": 1}
    refused = [str(refused) for refused in found.best.workload.trace.refused]
    assert refused == ["relu-clip refused at %relu: it does not pay here"]


def test_a_stage_that_only_pays_without_its_parts_is_dropped_whole() -> None:
    to_gelu = Subst(op.Tanh(x), op.Exp(x), name="tanh-exp")
    back = Subst(op.Sigmoid(x), op.Cos(x), name="sigmoid-cos")
    wl = chain(torch.tanh, torch.sigmoid, torch.relu, torch.relu)

    def of(node: Node) -> float:
        above = any(operand.op == "exp" for operand in node.operands)
        return 5.0 if (node.op == "cos") != above and node.op in ("cos", "sigmoid") else 1.0 + 0.5 * (node.op == "exp")

    found, _ = greedy(wl, [RuleSet([RELU_RELU]), RuleSet([to_gelu, back])], OfNodes(of))
    assert found.best.workload.op_counts() == {"tanh": 1, "sigmoid": 1, "nn.relu": 1}


def test_a_rule_that_matches_only_now_is_tried_too() -> None:
    second = Subst(op.ReLU(x), op.Exp(x), name="worse")
    first = Subst(op.ReLU(x), op.Clip(x, a_min=0.0, a_max=1.0), name="bad", priority=1)
    found, _ = greedy(chain(torch.relu), RuleSet([first, second]), priced(clip=4.0, exp=3.0))
    assert verdicts(found) == {"bad": "dropped", "worse": "dropped"}


def test_costs_that_differ_by_chance_decide_nothing() -> None:
    model = priced(clip=1.02, noise=0.03)
    found, _ = greedy(chain(torch.relu, torch.relu), RuleSet([RELU_RELU, SPLIT_RELU]), model)
    assert [(t.rule, t.why) for t in found.trials if t.rule == "relu-clip"] == [
        ("relu-clip", "it costs nothing, or lets others match")
    ]


RULES = [
    RELU_RELU, SPLIT_RELU, ABS_ABS, COMMUTE,
    Subst(op.Tanh(x), op.Exp(x), name="tanh-exp"),
    Subst(op.Exp(op.Abs(x)), op.Abs(op.Exp(x)), name="exp-abs"),
    Subst(op.Clip(x, a_min=0.0, a_max=3.4e38), op.Sigmoid(op.Exp(x)), name="longer"),
]  # fmt: skip
FUNCTIONS = {"relu": torch.relu, "abs": torch.abs, "tanh": torch.tanh, "exp": torch.exp}
PRICES = st.fixed_dictionaries({name: st.integers(0, 4) for name in ("relu", "abs", "clip", "exp", "tanh", "sigmoid")})


@settings(max_examples=15)
@given(st.lists(st.sampled_from(sorted(FUNCTIONS)), min_size=1, max_size=6), PRICES, st.integers(1, 6))
def test_the_result_is_never_costlier(names: list[str], prices: dict[str, int], cut: int) -> None:
    wl = chain(*[FUNCTIONS[name] for name in names])
    before = str(wl)
    model = priced(**prices)
    stages = [RuleSet(RULES[:cut]), RuleSet(RULES[cut:])]
    found, space = greedy(wl, stages, model)
    assert model.costs(found.best.workload).total <= model.costs(wl).total
    assert found.best.costs.total == model.costs(found.best.workload).total
    assert str(wl) == before, "the program that was given is not changed"
    if found.best.fired:
        again = found.best.workload.trace.replay(wl)
        assert str(again) == str(found.best.workload)
        assert space.at(Choice(rules_out=frozenset(space.rules))).workload is wl, "all taken back is the program itself"
        same, _ = greedy(wl, stages, model)
        assert str(same.best.workload) == str(found.best.workload)


def test_the_law_can_fail() -> None:
    wl = chain(torch.relu)
    model = priced(clip=2.0)
    assert model.costs(SPLIT_RELU(wl)).total > model.costs(wl).total


# ------------------------------------------------------------ optimize


class Slow(nn.Module):
    """Several times the work that is needed."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.norm = nn.Conv2d(8, 32, 3, padding=1), nn.BatchNorm2d(32)

    def forward(self, a: torch.Tensor) -> torch.Tensor:
        a = self.norm(self.conv(a))
        for _ in range(40):
            a = torch.relu(a)
        return a


def slow() -> Workload:
    torch.manual_seed(0)
    return Workload.from_torch(Slow().eval(), (torch.randn(2, 8, 48, 48),))


def told(report: OptimizeReport) -> list[tuple[str, str]]:
    return [(trial.rule, trial.verdict) for trial in report.trials]


def test_a_small_model_gets_faster() -> None:
    wl = slow()
    new, report = gsl.optimize(wl, rules=[RuleSet([RELU_RELU]), RuleSet(OPTIMISING)], budget=20, threads=1)
    assert told(report) == [("relu-relu", "kept"), ("conv-batch-norm", "kept")]
    assert report.taken, str(report)
    assert report.speedup > 1
    assert "times faster" in str(report)
    assert new.op_counts()["nn.relu"] == 1
    wl.compare(new).check()
    assert report.error is not None
    assert report.error < 1e-5
    assert json.loads(json.dumps(report.as_json()))["rules"][0]["rule"] == "relu-relu"
    _, second = gsl.optimize(wl, rules=[RuleSet([RELU_RELU]), RuleSet(OPTIMISING)], budget=20, threads=1)
    assert second.from_cache
    assert (told(second), second.trials) == (told(report), report.trials)


def test_what_is_not_faster_is_given_back(monkeypatch: pytest.MonkeyPatch) -> None:
    wl = chain(torch.relu, torch.relu)
    both = [Timing((1.0, 1.0, 1.0)), Timing((1.0, 1.1, 0.9))]
    monkeypatch.setattr("gsl.cost.optimization.in_turns", lambda *_: both)
    new, report = gsl.optimize(wl, rules=RELU_RELU, cost="analytic")
    assert new is wl
    assert not report.taken
    assert "not faster as a whole" in report.decision
    assert report.speedup == 1.0


def test_a_function_decides_and_not_time() -> None:
    wl = chain(torch.relu, torch.tanh)
    new, report = gsl.optimize(wl, rules=SPLIT_RELU, cost=lambda node: float(node.op == "nn.relu"))
    assert new.op_counts()["nn.relu"] == 0
    assert (report.taken, report.decision, report.before) == (True, "cost 1 -> 0", None)


def test_it_does_so_of_objects_that_can_not_be_run() -> None:
    class Task:
        def __init__(self, *inputs: Task) -> None:
            self.inputs = inputs

    class Both(Task): ...

    wl = Workload.from_nodes(
        [Both(Both(Task()))], operands=lambda task: task.inputs, rebuild=lambda kind, inputs, attrs, old: kind(*inputs)
    )
    once = Subst(pat.Call(Both, pat.Call(Both, x)), pat.Call(Both, x), name="once")
    new, report = gsl.optimize(wl, rules=once, cost=lambda node: 1.0)
    assert len(new.native[0].inputs[0].inputs) == 0
    assert "cost 3 -> 2; not compared, because the old program can't be run: " in report.decision


def test_rules_that_do_not_pay_are_not_told_as_kept_when_the_whole_is_timed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gsl.cost.optimization.Measured", Timed)
    both = [Timing((1.0, 1.0, 1.0)), Timing((1.0, 1.1, 0.9))]
    monkeypatch.setattr("gsl.cost.optimization.in_turns", lambda *_: both)
    wl = chain(torch.relu, torch.tanh)
    cost = Timed(lambda node: {"clip": 3.0}.get(str(node.op), 1.0), 0.0)
    new, report = gsl.optimize(wl, rules=SPLIT_RELU, cost=cost, budget=200.0)
    assert new is wl
    assert "not faster as a whole" in report.decision
    assert [(trial.verdict, trial.why) for trial in report.trials] == [("dropped", "the program is cheaper without")]


@pytest.mark.parametrize(("found", "message"), [
    (lambda space: Found(space.original.workload, ()), "a gsl.cost.Candidate as space.original"),
    (lambda space: Found(space.original, None), "a tuple of gsl.cost.Trial, got None"),
    (lambda space: Found(space.original, ("relu",)), "a tuple of gsl.cost.Trial, got .'relu',."),
])  # fmt: skip
def test_a_search_that_finds_no_candidate_is_an_error(found: Any, message: str) -> None:
    class Mine:
        name = ""

        def run(self, space: Any, clock: Any, progress: Any) -> Any:
            return found(space)

    with pytest.raises(WorkloadError, match=message):
        gsl.optimize(chain(torch.relu, torch.relu), rules=RELU_RELU, cost=priced(), search=Mine())


def test_what_computes_something_else_is_given_back() -> None:
    wl = chain(torch.relu, torch.relu)
    wrong = Subst(op.ReLU(op.ReLU(x)), op.Tanh(x), name="wrong")
    for _ in range(2):
        new, report = gsl.optimize(wl, rules=wrong, cost=priced())
        assert new is wl
        assert "elements differ" in report.decision
        assert not report.kept
        (trial,) = report.trials
        assert (trial.verdict, trial.why, trial.gain) == ("dropped", "it pays, but the old program stays", 1.0)


def test_what_has_no_kernel_is_given_back() -> None:
    class Relu(nn.Module):
        def forward(self, a: torch.Tensor) -> torch.Tensor:
            return torch.relu(a)

    wl = Workload.from_torch(Relu(), (torch.arange(6),))
    new, report = gsl.optimize(wl, rules=Subst(op.ReLU(x), pat.Call(torch.ops.aten.hardswish.default, x), name="hard"))
    assert new is wl
    assert "the new program can't be run: NotImplementedError" in report.decision


@pytest.mark.parametrize(("failures", "decision"), [(1, "2.00 times faster"), (2, "timing failed with MemoryError")])
def test_timing_that_fails_does_not_lose_what_was_found(
    failures: int, decision: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where memory is lacking for several programs, the best one is timed alone beside the old one."""
    timings, numbers = [Timing((seconds,) * 5) for seconds in (1.0, 0.5, 0.6, 0.7)], list[int]()

    def timed(programs: Sequence[Workload], *_: Any) -> list[Timing]:
        numbers.append(len(programs))
        if len(numbers) <= failures:
            raise MemoryError
        return timings[: len(programs)]

    monkeypatch.setattr("gsl.cost.optimization.in_turns", timed)
    monkeypatch.setattr("gsl.cost.optimization.Measured", Timed)
    wl = small(chain(torch.exp, torch.relu, torch.relu))
    stages = [RuleSet([RELU_RELU]), RuleSet([Subst(op.ReLU(x), op.Clip(x, a_min=0.0), name="clip")])]
    new, report = gsl.optimize(wl, rules=stages, cost=Timed(lambda node: 0.1, 0.0), budget=60.0)
    assert decision in report.decision, report.decision
    assert (new is wl) == (failures == 2)
    assert numbers[1] == 2 < numbers[0]


def test_the_decision_to_change_nothing_is_kept() -> None:
    class Double(nn.Module):
        def forward(self, a: torch.Tensor) -> torch.Tensor:
            return torch.relu(a) + torch.relu(a)

    wl = Workload.from_torch(Double(), (torch.randn(3, 3),))
    tidy = RuleSet([SPLIT_RELU], tidy=True)
    space = Space(wl, [tidy], priced())
    assert space.at(Choice()).workload is not wl, "equal calls are shared"
    assert space.at(space.unchanged).workload is wl


def test_where_no_rule_matches_nothing_is_timed() -> None:
    wl = chain(torch.tanh)
    new, report = gsl.optimize(wl, rules=EVERY_RULE, cost=priced())
    assert (new, report.before, report.trials) == (wl, None, ())
    assert "no rule pays here" in str(report)


def test_what_is_computed_ahead_has_to_pay_by_a_function_too() -> None:
    model = Chain(lambda a: a + model.weight.sin())
    model.weight = nn.Parameter(torch.rand(3))
    wl = Workload.from_torch(model, (torch.randn(4, 3),))
    new, report = gsl.optimize(wl, rules=RELU_RELU, cost=lambda node: 0.0 if node.op == "sin" else 1.0)
    assert new is wl
    assert "no rule pays here" in report.decision
    new, _ = gsl.optimize(wl, rules=RELU_RELU, cost=lambda node: 1.0)
    assert new.op_counts() == {"add": 1}


@pytest.mark.parametrize("functions", [(torch.abs,), (torch.relu, torch.relu)])
def test_what_depends_on_weights_and_literals_only_is_computed_ahead(
    functions: tuple[Callable[[torch.Tensor], torch.Tensor], ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whether a rule pays or none, in the first run and in the next one."""
    monkeypatch.setattr("gsl.cost.optimization.is_faster", lambda new, old: True)
    model = Chain(*functions, lambda a: a * torch.arange(3).cumsum(0).float(), lambda a: a + model.weight.sin())
    model.weight = nn.Parameter(torch.rand(3))
    wl = Workload.from_torch(model, (torch.randn(4, 3),))
    for _ in range(2):
        new, report = gsl.optimize(wl, rules=RELU_RELU, budget=2)
        assert report.taken
        assert set(new.op_counts()) == {"multiply", "add", "abs" if functions == (torch.abs,) else "nn.relu"}
        assert report.costs_after.total < report.costs_before.total
        wl.compare(new).check()
    assert report.from_cache
    assert wl.op_counts()["sin"] == 1


@pytest.mark.parametrize("is_quantised", [False, True])
def test_rules_for_weights_match_what_is_computed_from_weights(
    is_quantised: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not in quantised programs, where rules ask for what is computed from them."""
    monkeypatch.setattr("gsl.cost.optimization.is_faster", lambda new, old: True)

    def multiply(a: torch.Tensor) -> torch.Tensor:
        weight = model.weight - model.weight.mean(0)
        if is_quantised:
            quantise = torch.ops.quantized_decomposed.quantize_per_tensor.default
            a = a + quantise(model.weight, 1.0, 0, -128, 127, torch.int8).float()
        return a @ weight

    model = Chain(multiply)
    model.weight = nn.Parameter(torch.rand(3, 3))
    wl = Workload.from_torch(model, (torch.randn(3, 3),))
    w = pat.Param()
    turn = Subst(op.Matmul(x, w), op.Dense(x, op.Transpose(w, axes=(1, 0))), name="turn")
    for _ in range(2):
        new, report = gsl.optimize(wl, rules=turn, cost=priced(matmul=2.0), budget=2)
        assert ("nn.dense" in new.op_counts()) == (not is_quantised)
        if not is_quantised:
            assert report.costs_before.total == wl.cost(priced(matmul=2.0)).total
        wl.compare(new).check()


def test_weights_in_eight_bits_stay_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gsl.cost.optimization.is_faster", lambda new, old: True)
    positions = lambda a: a * torch.arange(3).cumsum(0).repeat(100).float()  # noqa: E731
    model = Chain(lambda a: a @ (model.weight.float() * 0.1), positions)
    model.register_buffer("weight", torch.randint(-127, 127, (300, 300), dtype=torch.int8))
    wl = Workload.from_torch(model, (torch.randn(4, 300),))
    new, _ = gsl.optimize(wl, rules=RELU_RELU, budget=2)
    assert new.op_counts() == {"cast": 1, "multiply": 2, "matmul": 1}
    wl.compare(new).check()


def test_modules_are_exported() -> None:
    new, _ = gsl.optimize(Chain(torch.relu, torch.relu), (torch.randn(4, 3),), rules=[RELU_RELU], cost=priced())
    assert isinstance(new, Workload)
    with pytest.raises(WorkloadError, match=r"optimize\(model, \(example,\)\)"):
        gsl.optimize(Chain(torch.relu), rules=[RELU_RELU])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"budget": 0}, "a number of seconds, more than 0, got 0"),
        ({"tolerance": 2.0}, "between 0 and 1, got 2.0"),
        ({"search": "gredy"}, "did you mean 'greedy'"),
        ({"search": Backtrack}, r"got <class .*Backtrack'> of type type; make one of the class: Backtrack\(\)"),
        ({"search": SimpleNamespace(run=print)}, "a strategy, got .*; a strategy has a name and run"),
        ({"search": SimpleNamespace(name="none", run=lambda *space: 3)}, "'none' should return a gsl.cost.Found"),
        ({"search": 3}, "or a strategy, got 3"),
        ({"cost": "fast"}, "no cost model 'fast'"),
        ({"rules": "BOOK"}, "a list of RuleSets that are applied one after the other; got 'B'"),
        ({"rules": [RELU_RELU, RuleSet([Subst(op.Exp(x), x, name="relu-relu")])]}, "two rules are named 'relu-relu'"),
    ],
)
def test_errors_of_use(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(WorkloadError, match=message):
        gsl.optimize(chain(torch.relu), **{"rules": RELU_RELU, **arguments})


def test_a_search_of_ones_own() -> None:
    class Nothing:
        name = "nothing"

        def run(self, space: Space, clock: Clock, progress: Any) -> Found:
            return Found(space.original, ())

    wl = chain(torch.relu, torch.relu)
    new, report = gsl.optimize(wl, rules=RELU_RELU, cost=priced(), search=Nothing())
    assert (new, report.search) == (wl, "nothing")


def test_without_time_everything_is_applied_and_timed() -> None:
    _, report = gsl.optimize(chain(torch.relu, torch.relu), rules=[RELU_RELU], cost=priced(), budget=1e-6)
    assert [trial.why for trial in report.trials] == ["not tried alone: the budget was spent"]


def test_decisions_depend_on_the_program_and_the_rules(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GSL_CACHE", str(tmp_path))

    def cached(wl: Workload, rule: Subst) -> bool:
        return gsl.optimize(wl, rules=rule, budget=5)[1].from_cache

    assert not cached(chain(torch.relu, torch.relu), RELU_RELU)
    assert cached(chain(torch.relu, torch.relu), RELU_RELU)
    assert not cached(chain(torch.relu, torch.relu, rows=5), RELU_RELU)
    assert not cached(chain(torch.relu, torch.relu, torch.relu), RELU_RELU)
    assert not cached(chain(torch.relu, torch.relu), Subst(op.ReLU(op.ReLU(x)), op.ReLU(x), name="another name"))


# ------------------------------------------------------------ approximate rules


def rough(name: str, function: Any, to: Callable[[Any], Any]) -> Subst:
    return Subst(function(x), to(x), name=name, approximate=True)


FINE = rough("fine", op.Tanh, lambda a: a * 1.0)
COARSE = rough("coarse", op.Exp, lambda a: op.Clip(a, a_min=-1.0, a_max=9.0) + 1.0)
EXACT = rough("exact", op.Abs, lambda a: op.Sqrt(a * a))
LOSS = rough("loss", op.Cos, lambda a: op.Sin(a + 1.5707963))


def small(wl: Workload) -> Workload:
    """The same program with inputs that are near to zero."""
    return Workload.from_exported(wl.exported, (wl.example_inputs[0] * 0.1,))  # type: ignore[index]


def test_approximate_rules_need_a_tolerance() -> None:
    wl = chain(torch.exp)
    new, report = gsl.optimize(wl, rules=COARSE, cost=priced(exp=9.0))
    assert (new, report.trials) == (wl, ())


@pytest.mark.parametrize(
    ("tolerance", "kept"), [(0.5, {"fine", "coarse", "exact"}), (0.02, {"fine", "exact"}), (1e-5, {"exact"})]
)
def test_approximate_rules_are_taken_until_the_tolerance_is_spent(
    tolerance: float, kept: set[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gsl.cost.optimization.is_faster", lambda new, old: True)
    wl = small(chain(torch.tanh, torch.exp, torch.abs, torch.cos))
    model = priced(tanh=9.0, exp=9.0, abs=9.0)
    new, report = gsl.optimize(wl, rules=[FINE, COARSE, EXACT, LOSS], cost=model, tolerance=tolerance)
    assert {trial.rule for trial in report.kept} == kept, str(report)
    assert report.error is not None
    assert report.error <= tolerance
    assert report.taken
    assert new is not wl


def test_approximate_rules_that_fit_together_are_taken_at_once_if_they_pay() -> None:
    wl = small(chain(torch.tanh, torch.exp, torch.cos))
    report = gsl.optimize(wl, rules=[FINE, COARSE, LOSS], cost=priced(tanh=9.0, exp=9.0), tolerance=0.5).report
    found = {trial.rule: (trial.verdict, trial.why, trial.error) for trial in report.trials}
    fits = ("kept", "within the tolerance: 0.03 in all", None)
    assert found == {"fine": fits, "coarse": fits, "loss": ("dropped", "it does not pay", None)}, str(report)


def test_where_a_rule_brings_too_much_another_one_is_tried() -> None:
    """As bfloat16 where eight bits are too few."""
    near = rough("near", op.Exp, lambda a: 1.0 + a + a * a * 0.5)
    wl = small(chain(torch.tanh, torch.exp))
    given: dict[str, Any] = {"rules": RuleSet([COARSE, near, FINE]), "cost": priced(exp=9.0, tanh=9.0)}
    for tolerance, kept in [(0.5, {"coarse", "fine"}), (0.02, {"near", "fine"}), (1e-5, set())]:
        report = gsl.optimize(wl, **given, tolerance=tolerance).report
        assert {trial.rule for trial in report.kept} == kept, str(report)


def test_calibration_inputs_count() -> None:
    wl = small(chain(torch.exp))
    given: dict[str, Any] = {"rules": COARSE, "cost": priced(exp=9.0), "tolerance": 0.1}
    assert gsl.optimize(wl, **given)[1].kept
    far = [(torch.full((4, 3), 3.0),)]
    assert not gsl.optimize(wl, **given, calibration=far)[1].kept


def test_what_is_exact_stays_where_the_error_of_the_rest_is_too_large(monkeypatch: pytest.MonkeyPatch) -> None:
    timings = [Timing((seconds,) * 5) for seconds in (1.0, 0.5, 0.6, 0.7, 0.8, 0.9)]
    monkeypatch.setattr("gsl.cost.optimization.in_turns", lambda programs, *_: timings[: len(programs)])
    monkeypatch.setattr("gsl.cost.optimization.error", lambda new, inputs, **_: 1.0)
    monkeypatch.setattr("gsl.cost.optimization.Measured", Timed)
    wl = small(chain(torch.tanh, torch.relu, torch.relu))
    cost = Timed(lambda node: {"tanh": 0.2}.get(str(node.op), 0.1), 0.0)
    new, report = gsl.optimize(wl, rules=[FINE, RELU_RELU], cost=cost, budget=60.0, tolerance=0.02)
    assert report.taken
    assert [trial.rule for trial in report.kept] == [RELU_RELU.name], str(report)
    (dropped,) = [trial for trial in report.trials if trial.rule == "fine"]
    assert dropped.why == "the error of 1.0e+00 is above the tolerance"
    assert new.op_counts()["nn.relu"] == 1


class Counted(nn.Module):
    """A layer, and the number of its runs, which each run changes."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(64, 64)
        self.register_buffer("runs", torch.zeros(()))

    def forward(self, a: torch.Tensor) -> torch.Tensor:
        self.runs.add_(1)  # type: ignore[operator]
        return self.layer(a.relu().relu())  # type: ignore[no-any-return]


def test_the_error_is_that_of_packed_weights(monkeypatch: pytest.MonkeyPatch) -> None:
    """They are packed at the second run, also where several programs were timed and what a run changes was undone."""
    timings = [Timing((seconds,) * 5) for seconds in (1.0, 0.5, 0.6, 0.7, 0.8, 0.9)]

    def timed(programs: Sequence[Workload], *how: Any) -> list[Timing]:
        in_turns(programs, *how)
        return timings[: len(programs)]

    fastest = "gsl.kernels.operator._fastest"
    monkeypatch.setattr(fastest, lambda _, calls, seconds: next((way for way in calls if "int8" in way), "plain"))
    monkeypatch.setattr("gsl.kernels.operator._CHOICES", {})
    monkeypatch.setattr("gsl.cost.optimization.in_turns", timed)
    monkeypatch.setattr("gsl.cost.optimization.Measured", Timed)
    torch.manual_seed(0)
    wl = Workload.from_torch(Counted().eval(), (torch.randn(8, 64),))
    cost = Timed(lambda node: {"packed.dense": 0.1}.get(str(node.op), 0.2), 0.0)
    report = gsl.optimize(wl, rules=[RELU_RELU, INT8], cost=cost, budget=60.0, tolerance=0.1).report
    assert {trial.rule for trial in report.kept} == {RELU_RELU.name, "int8-dense-bias"}, str(report)
    assert report.error is not None
    assert report.error > 1e-4


def test_an_approximate_rule_says_so() -> None:
    assert str(COARSE).splitlines()[0] == "coarse (approximate)"
    verdict = COARSE.verify()
    assert isinstance(verdict, Unchecked)
    assert "it is approximate" in verdict.reason


# ------------------------------------------------------------ whole programs


def test_errors_are_relative_to_the_largest_output() -> None:
    wl, other = chain(lambda a: a * 2), chain(lambda a: a * 2.002)
    assert error(other, [TimedInputs(wl)]) == pytest.approx(1e-3, rel=1e-2)
    assert error(wl, [TimedInputs(wl)]) == 0.0
    assert error(chain(lambda a: a / 0), [TimedInputs(wl)]) == float("inf")
    nowhere, some = (torch.full((4, 3), torch.nan),), (torch.tensor([[1.0, torch.nan, torch.inf]] * 4),)
    assert error(wl, [TimedInputs(wl, nowhere)]) == float("inf")
    assert error(wl, [TimedInputs(wl, nowhere), TimedInputs(wl, some)]) == 0.0


@pytest.mark.parametrize("number", [torch.nan, torch.inf])
def test_numbers_that_are_finite_nowhere_allow_no_approximate_rule(number: float) -> None:
    rough = Subst(op.ReLU(x), x * 1.5, name="rough", approximate=True)
    wl, nowhere = chain(torch.relu), [(torch.full((4, 3), number),)]
    report = gsl.optimize(wl, rules=rough, cost=priced(**{"nn.relu": 9.0}), tolerance=0.1, calibration=nowhere).report
    assert not report.kept
    exact = gsl.optimize(chain(torch.relu, torch.relu), nowhere[0], rules=RELU_RELU, cost=priced()).report
    assert (exact.taken, exact.error) == ((False, torch.inf) if number is torch.nan else (True, 0.0))


def test_programs_take_turns_and_buffers_stay() -> None:
    class Counting(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("count", torch.zeros(3))

        def forward(self, a: torch.Tensor) -> torch.Tensor:
            self.count.add_(1)  # type: ignore[operator]
            return a + self.count  # type: ignore[operator]

    wl = Workload.from_torch(Counting(), (torch.randn(2, 3),))
    first, second = in_turns([wl, wl], TimedInputs(wl), 0.0)
    assert len(first.samples) == len(second.samples) == 5
    assert torch.equal(wl.params["count"], torch.zeros(3))


class Cached(nn.Module):
    """Writes a product to a place of a cache, which is an input."""

    def forward(self, a: torch.Tensor, cache: torch.Tensor) -> torch.Tensor:
        cache.index_copy_(0, torch.tensor([1]), (a / 3 * 7)[None])
        return cache.sum()


def cached(scale: float = 1.0) -> tuple[Workload, Workload, torch.Tensor]:
    """A program, one that computes the same by other roundings and a scale, and the cache with which both run."""
    a, cache = torch.linspace(0.1, 1, 8), torch.zeros(2, 8)
    wl = Workload.from_torch(Cached(), (a, cache))
    other = Subst(x / 3 * 7, x * (7 / 3 * scale), name="one product")(wl)
    assert other.trace.count() == 1
    return wl, other, cache


def test_a_cache_that_is_written_is_given_back_as_it_was() -> None:
    wl, new, cache = cached()
    in_turns([wl, new], TimedInputs(wl), 0.0)
    assert not cache.any()


def test_a_cache_that_has_what_is_written_is_compared() -> None:
    wl, new, cache = cached()
    wl.exported.module()(*wl.example_inputs)  # type: ignore[misc]
    assert cache.any()
    assert 0 < error(new, [TimedInputs(wl)]) < 1e-6
    wl.compare(new).check()
    wrong = cached(scale=1.5)[1]
    assert error(wrong, [TimedInputs(wl)]) > 0.1
    assert not wl.compare(wrong)


@pytest.mark.parametrize(
    ("new", "old", "faster"),
    [
        ((1, 1, 1), (2, 2, 2), True), ((1, 1, 1.2), (2, 2, 2.2), True), ((1, 3, 3), (2, 2, 2), False),
        ((1.9, 1, 3), (2, 1, 3), False), ((2, 2, 2), (2, 2, 2), False),
    ],
)
def test_when_a_program_counts_as_faster(new: tuple[float, ...], old: tuple[float, ...], faster: bool) -> None:
    assert is_faster(Timing(new), Timing(old)) is faster


def test_measuring_stops_in_time(tmp_path: Path) -> None:
    model = Measured(1, Store(tmp_path / "costs.sqlite"))
    model.until = time.perf_counter() - 1
    costs = model.costs(slow())
    assert all(call.estimated for call in costs if call.op == "nn.conv2d")


# ------------------------------------------------------------ as CUDA graphs


class Captures:
    """Stands for CUDA graphs, of which some, by number, fail."""

    def __init__(self) -> None:
        self.times: list[int] = []
        self.failing: int | None = None

    def __call__(self, call: Callable[[], object], times: int = 1) -> Callable[[], object]:
        self.times.append(times)
        if len(self.times) == self.failing:
            raise CaptureError("it can't run as a CUDA graph (it waits)")
        return lambda: [call() for _ in range(times)]


@pytest.fixture
def captures(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Captures:
    captures = Captures()
    monkeypatch.setenv("GSL_CACHE", str(tmp_path))
    monkeypatch.setattr("gsl.cost.model.captured", captures)
    monkeypatch.setattr("gsl.cost.whole.captured", captures)
    monkeypatch.setattr("gsl.cost.model.Kernels.check", lambda *_: None)
    return captures


def test_kernels_are_timed_within_cuda_graphs(captures: Captures) -> None:
    wl = slow()
    costs = wl.cost("kernels")
    assert not any(call.estimated for call in costs)
    assert costs.model == "kernels"
    assert captures.times, "nothing was captured"
    assert min(captures.times) >= 10, "what it takes to start a graph would count as the call's"
    number = len(captures.times)
    assert wl.cost("kernels").total == costs.total
    assert len(captures.times) == number, "it was measured again"
    wl.cost("measured")
    assert len(captures.times) == number


def test_whole_programs_are_timed_as_cuda_graphs(captures: Captures) -> None:
    new, report = gsl.optimize(slow(), rules=RELU_RELU, cost="kernels", budget=20)
    assert report.taken, str(report)
    assert report.decision.endswith("times faster in a CUDA graph")
    assert new.op_counts()["nn.relu"] == 1
    assert captures.times.count(1) >= 3, "the old program at first, and both at the end"
    again = gsl.optimize(slow(), rules=RELU_RELU, cost="kernels", budget=20).report
    assert again.decision.endswith("in a CUDA graph, as an earlier run found")


def test_a_program_that_is_no_cuda_graph_is_an_error_at_once(captures: Captures) -> None:
    captures.failing = 1
    message = r"Slow can't be timed: it can't run as a CUDA graph \(it waits\); use cost='measured'"
    with pytest.raises(WorkloadError, match=message):
        gsl.optimize(slow(), rules=RELU_RELU, cost="kernels", budget=20)
    assert captures.times == [1]


def test_a_new_program_that_is_no_cuda_graph_is_not_taken(captures: Captures, monkeypatch: pytest.MonkeyPatch) -> None:
    wl = slow()
    model = Timed(lambda node: 1.0, 0.0)
    monkeypatch.setattr("gsl.cost.optimization.Kernels", Timed)
    monkeypatch.setattr(Timed, "check", lambda *_: None, raising=False)
    captures.failing = 3  # the old program, the old one again, the new one
    new, report = gsl.optimize(wl, rules=RELU_RELU, cost=model, budget=20)
    assert new is wl
    assert report.decision == "of a new program, it can't run as a CUDA graph (it waits), so the old one stays"

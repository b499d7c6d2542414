"""The backtracking search: rules that cost before they gain, and prices of programs that are not built."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, Phase, event, given, settings
from hypothesis import strategies as st
from torch import nn

import gsl
from gsl import RuleSet, Subst, Workload, op, pat
from gsl.cost import Backtrack, Clock, Found, Greedy, OfNodes, Space, Walk, backtrack
from gsl.cost.steps import Changes, Priced, SearchStep, _Change
from gsl.errors import WorkloadError
from gsl.graph import LEAVES, Graph, Node
from tests.match.random_cases import graphs
from tests.rewrite.test_properties import SOUND

x, y = pat.Wildcard(), pat.Wildcard()
TO_CLIP = Subst(op.ReLU(x), op.Clip(x, a_min=0.0, a_max=3.4e38), name="to-clip")
ABS_CLIP = Subst(op.Abs(op.Clip(x, a_min=0.0, a_max=3.4e38)), op.ReLU(x), name="abs-clip")
SWAP = Subst(x + y, y + x, name="swap")
PRICES = {"nn.relu": 1.0, "clip": 6.0, "abs": 4.0}


class Branches(nn.Module):
    """Two calls of relu of one shape, of which one is followed by what a clip could be joined with."""

    def forward(self, a: torch.Tensor, b: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return torch.abs(torch.relu(a)), torch.tanh(torch.relu(b))


def branches() -> Workload:
    return Workload.from_torch(Branches(), (torch.randn(3, 4), torch.randn(3, 4)))


def price(node: Node) -> float:
    return PRICES.get(str(node.op), 1.0)


def found(search: Any, wl: Workload, *rules: Subst, of: Any = price, seconds: float = 60.0) -> Found:
    space = Space(wl, [RuleSet(list(rules))], OfNodes(of))
    result: Found = search.run(space, Clock(seconds), lambda what: None)
    return result


# ------------------------------------------------------------ what it finds


def test_a_rule_that_costs_at_one_place_and_gains_by_another_one_there() -> None:
    wl = branches()
    assert found(Greedy(), wl, TO_CLIP, ABS_CLIP).best.workload is wl, "all rewrites of one kind together do not pay"
    best = found(Backtrack(alpha=2.0), wl, TO_CLIP, ABS_CLIP)
    assert best.best.costs.total == 3.0
    assert best.best.workload.op_counts() == {"nn.relu": 2, "tanh": 1}
    assert [(trial.rule, trial.times, trial.verdict) for trial in best.trials] == [
        ("to-clip", 1, "kept"), ("abs-clip", 1, "kept")
    ]  # fmt: skip
    wl.compare(best.best.workload).check()
    assert best.best.workload.trace.summary() == {"to-clip": 1, "abs-clip": 1}


class Both(nn.Module):
    """What the greedy search finds, in one output; what only a walk finds, in the other."""

    def forward(self, a: torch.Tensor, b: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return torch.floor(torch.floor(torch.floor(b))), *Branches()(a, b)


def test_a_walk_goes_on_from_what_the_greedy_search_finds() -> None:
    wl = Workload.from_torch(Both(), (torch.randn(3, 4), torch.randn(3, 4)))
    floor = Subst(op.Floor(op.Floor(x)), op.Floor(x), name="floor-floor")
    rules = TO_CLIP, ABS_CLIP, floor
    assert found(Greedy(), wl, *rules).best.costs.total == 8.0
    best = found(Backtrack(alpha=2.0, steps=3), wl, *rules)
    assert best.best.costs.total == 4.0
    wl.compare(best.best.workload).check()
    assert [trace.summary() for trace in best.best.traces] == [{"floor-floor": 2}, {"to-clip": 1, "abs-clip": 1}]
    assert {trial.rule: trial.verdict for trial in best.trials} == {
        "floor-floor": "kept", "to-clip": "kept", "abs-clip": "kept"
    }  # fmt: skip
    again = wl
    for trace in best.best.traces:
        again = trace.replay(again)
    assert str(again) == str(best.best.workload)


def test_it_is_never_worse_than_the_greedy_search() -> None:
    wl = Workload.from_torch(Both(), (torch.randn(3, 4), torch.randn(3, 4)))
    floor = Subst(op.Floor(op.Floor(x)), op.Floor(x), name="floor-floor")
    walk = Walk(Space(wl, [RuleSet([floor])], OfNodes(price)))
    walk.run(Clock(60.0), lambda what: None, steps=0)
    assert walk.cost == walk.start_cost, "without a step, a walk alone finds nothing"
    best = found(Backtrack(steps=0), wl, floor)
    assert best.best.costs.total == found(Greedy(), wl, floor).best.costs.total == 8.0


def test_what_costs_more_than_the_bound_is_not_gone_on_from() -> None:
    wl = branches()
    result = found(Backtrack(alpha=1.5), wl, TO_CLIP, ABS_CLIP)
    assert result.best.workload is wl
    assert [(trial.rule, trial.verdict) for trial in result.trials] == [("to-clip", "dropped"), ("abs-clip", "dropped")]


def test_rules_that_go_round_in_circles_end() -> None:
    class Sums(nn.Module):
        def forward(self, a: torch.Tensor, b: torch.Tensor, c: torch.Tensor) -> torch.Tensor:
            return (a + b) * (b + c)

    wl = Workload.from_torch(Sums(), tuple(torch.randn(2, 3) for _ in range(3)))
    walk = Walk(Space(wl, [RuleSet([SWAP])], OfNodes(price)))
    walk.run(Clock(60.0), lambda what: None)
    # Two sums, each in two orders, are four programs. From each of them both sums match in two ways, of which one
    # changes nothing. So there are eight steps, of which three lead to a program that is new; and one of the two ways
    # to the last one is seen to be the other one in another order, before the program is built.
    assert (walk.priced, walk.again, walk.built) == (16, 8 - 3, 8 - 1)


def test_the_model_decides_where_steps_are_priced_by_another_one() -> None:
    class Whole:
        """A model that tells what a program costs, and nothing of its nodes."""

        name, noise = "", 0.0

        def __init__(self, dear: str) -> None:
            self.dear = dear

        def costs(self, workload: Workload) -> Any:
            return OfNodes(lambda node: 9.0 if node.op == self.dear else 1.0).costs(workload)

    wl = Workload.from_torch(nn.Sequential(nn.ReLU(), nn.ReLU(), nn.Tanh()), (torch.randn(64, 64),))
    twice = Subst(op.ReLU(op.ReLU(x)), op.Sigmoid(x), name="twice")
    for dear, taken in (("sigmoid", False), ("tanh", True)):
        space = Space(wl, [RuleSet([twice])], Whole(dear))
        result = Backtrack().run(space, Clock(60.0), lambda what: None)
        assert (result.best.workload is not wl) == taken
        assert [trial.verdict for trial in result.trials] == ["kept" if taken else "dropped"]


def test_weights_are_computed_ahead() -> None:
    class Scaled(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.b = nn.Parameter(torch.randn(4)), nn.Parameter(torch.randn(4))

        def forward(self, value: torch.Tensor) -> torch.Tensor:
            return value * self.a * self.b

    z = pat.Wildcard()
    wl = Workload.from_torch(Scaled(), (torch.randn(3, 4),))
    result = found(Backtrack(), wl, Subst(x * y * z, x * (y * z), name="associate"))
    assert result.best.workload.op_counts() == {"multiply": 1}
    wl.compare(result.best.workload).check()


def test_the_name_tells_searches_apart() -> None:
    assert Backtrack().name == "backtrack"
    assert len({Backtrack().name, Backtrack(alpha=1.1).name, Backtrack(steps=5).name}) == 3
    for wrong in ({"alpha": 0.5}, {"alpha": "much"}, {"steps": -1}, {"steps": 2.0}):
        with pytest.raises(WorkloadError, match=r"alpha=|steps="):
            Backtrack(**wrong)  # type: ignore[arg-type]


def test_optimize_has_it_by_name() -> None:
    class Deep(nn.Module):
        def forward(self, a: torch.Tensor) -> torch.Tensor:
            for _ in range(12):
                a = torch.relu(a)
            return a

    wl = Workload.from_torch(Deep(), (torch.randn(400, 400),))
    once = Subst(op.ReLU(op.ReLU(x)), op.ReLU(x), name="once")
    new, report = gsl.optimize(wl, rules=once, cost=price, search="backtrack", budget=2.0)
    assert report.search == "backtrack"
    assert (report.costs_before.total, report.costs_after.total) == (12.0, 1.0)
    assert (new is wl) != report.taken
    if report.taken:
        assert new.op_counts() == {"nn.relu": 1}
    with pytest.raises(WorkloadError, match="backtrack"):
        gsl.optimize(wl, rules=once, search="backtracking")


# ------------------------------------------------------------ laws


def around(node: Node) -> float:
    """A price that depends on what a node is, on its operands, and on whether it is the only user of a call."""
    first = node.operands[0] if node.operands else None
    known = 1.0 + len(str(node.op)) / 4
    if first is None:
        return known
    return known + 0.5 * (first.op == "nn.relu") + 0.25 * (first.op not in LEAVES and len(first.users) == 1)


class Checked(Walk):
    """A walk that compares each program that it builds, and the steps from it, with what is computed anew."""

    def __init__(self, space: Space, alpha: float) -> None:
        super().__init__(space, alpha)
        self.compared = 0

    def _after(self, state: Any, step: SearchStep, path: tuple[SearchStep, ...]) -> Any:
        before, new = state.view.cost, super()._after(state, step, path)
        if new is not None:
            child = new[0].view
            anew = Priced(child.graph, self.prices)
            assert (child.hashes, child.ahead) == (anew.hashes, anew.ahead)
            assert child.cost == pytest.approx(anew.cost)
            if not new[0].tidied:
                assert step.change is not None
                assert child.cost == pytest.approx(before + step.change), f"{step.rule.name}\n{state.view.graph}"
                self.compared += 1
        return new

    def _look(self, state: Any, before: Any, changes: Changes | None, clock: Clock) -> None:
        super()._look(state, before, changes, clock)
        if before is not None:
            anew = backtrack.SearchState(state.view, state.path)
            super()._look(anew, None, None, clock)
            kept = {step.key: step.change for step in state.steps}
            assert kept.keys() == {step.key for step in anew.steps}
            for step in anew.steps:
                change = kept[step.key]
                assert (change is None) == (step.change is None)
                # It may cost less now, if a call came that is equal to one that the step makes.
                assert change is None or step.change is None or change >= step.change - 1e-9


def walked(view: Graph, rules: list[Subst], steps: int = 8) -> Checked:
    workload: Any = SimpleNamespace(graph=view)
    walk = Checked(Space(workload, [RuleSet(rules)], OfNodes(around)), alpha=3.0)
    walk.run(Clock(60.0), lambda what: None, steps)
    return walk


QUICK = settings(max_examples=60, suppress_health_check=list(HealthCheck))


@pytest.mark.long
@QUICK
@given(graphs(most=12), st.lists(st.sampled_from(SOUND), min_size=1, max_size=5, unique=True))
def test_a_step_costs_what_the_program_costs_that_is_built(view: Graph, rules: list[Subst]) -> None:
    before = str(view)
    walk = walked(view, rules)
    assert str(view) == before
    assert walk.cost <= walk.start_cost
    event("compared" if walk.compared else "nothing compared")


@pytest.mark.parametrize(
    ("owner", "name", "wrong"),
    [
        (Changes, "spare", lambda self, step: True),
        (_Change, "_dead", lambda self: dict.fromkeys(self.moved)),
        (_Change, "_users", lambda self: {}),
        (Priced, "is_tidy", True),
    ],
)
def test_the_check_finds_wrong_prices(owner: Any, name: str, wrong: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(owner, name, wrong)

    @settings(QUICK, max_examples=400, phases=[Phase.generate])
    @given(graphs(most=12), st.lists(st.sampled_from(SOUND), min_size=1, max_size=5, unique=True))
    def check(view: Graph, rules: list[Subst]) -> None:
        walked(view, rules)

    with pytest.raises((AssertionError, KeyError)):
        check()


@settings(max_examples=25)
@given(st.fixed_dictionaries({name: st.integers(0, 9) for name in ("nn.relu", "clip", "abs", "tanh")}))
def test_the_result_is_never_costlier(prices: dict[str, int]) -> None:
    wl = branches()

    def of(node: Node) -> float:
        return float(prices[str(node.op)])

    total = {
        search: found(search, wl, TO_CLIP, ABS_CLIP, of=of).best.costs.total
        for search in (Greedy(), Backtrack(), Backtrack(alpha=1e6))
    }
    given_cost = OfNodes(of).costs(wl).total
    assert max(total.values()) <= given_cost
    assert total[Backtrack(alpha=1e6)] == min(total.values()), "without a bound, all programs are looked at"


def test_no_time_and_no_steps_leave_the_program() -> None:
    wl = branches()
    assert found(Backtrack(alpha=2.0), wl, TO_CLIP, ABS_CLIP, seconds=0.0).best.workload is wl
    assert found(Backtrack(alpha=2.0, steps=0), wl, TO_CLIP, ABS_CLIP).best.workload is wl
    assert found(Backtrack(alpha=2.0, steps=1), wl, TO_CLIP, ABS_CLIP).best.workload is wl

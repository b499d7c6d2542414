"""The cost model of what ``torch.compile`` makes of a program."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from graphlib import TopologicalSorter
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

import gsl
from gsl import RuleSet, Subst, Workload, op, pat
from gsl.cost.model import Compiled, model_of
from gsl.cost.regions import Region, fused_regions
from gsl.cost.whole import RunMode, TimedInputs, in_turns
from gsl.errors import WorkloadError
from gsl.front.base import Stepped
from tests.helpers.nets import Of

x = pat.Wildcard()
PROGRAMS_OF_TORCH = importlib.import_module("gsl.front.fx.program")

JOIN = Subst.from_programs(
    lambda a, b, c: a @ c + b @ c, lambda a, b, c: (a + b) @ c, a="n m", b="n m", c="m k", name="join products"
)


@pytest.fixture(autouse=True)
def own_cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("GSL_CACHE", str(tmp_path))


def traced(function: Callable[..., Any], *inputs: torch.Tensor) -> Workload:
    return Workload.from_torch(Of(function), inputs)


def regions_of(wl: Workload) -> list[Region]:
    assert isinstance(wl.program, Stepped)
    return fused_regions(wl.program.steps(wl.graph), wl.graph)


def names(wl: Workload) -> list[str]:
    return [" ".join(unit.op for unit in region.units) for region in regions_of(wl)]


def square(size: int = 4) -> torch.Tensor:
    return torch.randn(size, size, generator=torch.Generator().manual_seed(0))


# ------------------------------------------------------------ regions


def test_what_a_compiler_fuses_is_one_region() -> None:
    wl = traced(lambda a, b: torch.softmax(torch.relu(a @ b) * 2, 1) @ (a + 1), square(), square())
    assert names(wl) == ["matmul", "nn.relu multiply nn.softmax", "add", "matmul"]


def test_a_product_stands_between_the_loops_before_and_after_it() -> None:
    wl = traced(lambda a, b: (h := torch.relu(a)) + h @ b, square(), square())
    assert names(wl) == ["nn.relu", "matmul", "add"]


def test_loops_with_several_users_are_one_region() -> None:
    wl = traced(lambda a: (h := torch.exp(a)).sum(1) * torch.relu(h).mean(1), square())
    assert names(wl) == ["exp sum nn.relu mean multiply"]


def test_what_is_not_known_and_what_changes_memory_stand_alone() -> None:
    wl = traced(lambda a: torch.relu(torch.linalg.inv(torch.exp(a))), square())
    assert names(wl) == ["exp", "aten.linalg_inv.default", "nn.relu"]


def test_assertions_are_no_calls_of_compiled_code() -> None:
    wl = traced(lambda a: torch.relu(a.to(torch.float32)), square())
    assert "aten._assert_tensor_metadata.default" in [call.op for call in wl.cost()]
    assert names(wl) == ["cast nn.relu"]


def test_wiring_tells_regions_apart() -> None:
    """The same calls on operands of the same types."""
    one = traced(lambda a, b: (h := torch.exp(a)) * torch.relu(h), square(), square())
    two = traced(lambda a, b: torch.relu(torch.exp(a)) * b, square(), square())
    three = traced(lambda a, b: torch.relu(torch.exp(a)) * a, square(), square())
    keys = [[region.key for region in regions_of(wl)] for wl in (one, two, three)]
    assert [len(key) for key in keys] == [1, 1, 1]
    assert len({key for (key,) in keys}) == 3


def test_outputs_tell_regions_apart() -> None:
    one = traced(lambda a: torch.relu(torch.exp(a)), square())
    two = traced(lambda a: (h := torch.exp(a), torch.relu(h)), square())
    assert regions_of(one)[0].key != regions_of(two)[0].key


STEPS: dict[str, Callable[[torch.Tensor, torch.Tensor], torch.Tensor]] = {
    "relu": lambda a, b: torch.relu(a), "add": lambda a, b: a + b, "softmax": lambda a, b: torch.softmax(a, 1),
    "matmul": lambda a, b: a @ b, "turn": lambda a, b: a.t(),
}  # fmt: skip
PROGRAMS = st.lists(st.tuples(st.sampled_from(sorted(STEPS)), st.integers(0, 9), st.integers(0, 9)), min_size=1)


@given(PROGRAMS)
@pytest.mark.law
def test_regions_can_be_run_one_after_the_other(program: list[tuple[str, int, int]]) -> None:
    def run(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        values = [a, b]
        for name, first, second in program:
            values.append(STEPS[name](values[first % len(values)], values[second % len(values)]))
        return values[-1]

    assert_in_order(regions_of(traced(run, square(), square())))


def assert_in_order(regions: Sequence[Region]) -> None:
    """Each call is in one region, kernels of libraries are alone, and no region needs what needs itself."""
    place = {node: number for number, region in enumerate(regions) for unit in region.units for node in unit.nodes}
    assert len(place) == sum(len(unit.nodes) for region in regions for unit in region.units)
    assert all(region.is_fused or len(region.units) == 1 for region in regions)
    needs = {
        number: {place[part] for node, own in place.items() if own == number for part in node.operands if part in place}
        for number in range(len(regions))
    }
    TopologicalSorter({number: needed - {number} for number, needed in needs.items()}).prepare()


def test_the_law_can_fail() -> None:
    first, product, last = regions_of(traced(lambda a, b: (h := torch.relu(a)) + h @ b, square(), square()))
    with pytest.raises(ValueError, match="cycle"):
        assert_in_order([Region((*first.units, *last.units), True), product])


# ------------------------------------------------------------ costs


@pytest.mark.slow
def test_costs_are_those_of_compiled_code() -> None:
    wl = traced(lambda a, b: torch.relu(torch.exp(a @ b) * 2) + 1, square(64), square(64))
    costs = wl.cost("compiled")
    assert costs.model == "compiled"
    assert not any(call.estimated for call in costs)
    product = next(call for call in costs if call.op == "matmul")
    assert product.value == next(call.value for call in wl.cost() if call.op == "matmul"), "it is the same kernel"
    assert wl.cost("compiled").total == costs.total, "it was measured again"


@pytest.mark.slow
def test_results_that_are_tuples_are_compiled() -> None:
    costs = traced(lambda a: torch.cat(a.split(2, 1)[::-1]) @ a[:2], square()).cost("compiled")
    assert not any(call.estimated for call in costs)
    split = traced(lambda a: a.split(2, 1), square()).cost("compiled")
    assert [(call.op, call.estimated) for call in split] == [("split", False)]


def test_what_can_not_be_compiled_is_estimated(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gsl.front.fx.steps.inductor_code", failing)
    wl = traced(lambda a: torch.relu(torch.exp(a)), torch.randn(1000, 1000))
    costs = wl.cost("compiled")
    assert [call.estimated for call in costs] == [True, True]
    assert costs.total < 0.75 * wl.cost("analytic").total, "what stands between two calls is not moved"


def failing(*_: object, **__: object) -> Any:
    raise RuntimeError("there is no compiler\nhere")


def test_only_programs_of_torch_are_compiled() -> None:
    wl = Workload.from_nodes([1], operands=lambda each: (), op=lambda each: "one")
    with pytest.raises(WorkloadError, match=r"'compiled' is for programs of torch, and .* is a .*: use 'measured'"):
        wl.cost("compiled")


def test_settings_of_inductor_tell_costs_apart() -> None:
    (region,) = regions_of(traced(torch.relu, square()))

    def key() -> tuple[object, ...]:
        model = model_of("compiled")
        assert isinstance(model, Compiled)
        return model._key(region, 1)

    before = key()
    assert key() == before
    with torch._inductor.config.patch(freezing=True):
        assert key() != before


# ------------------------------------------------------------ optimize


class Products(nn.Module):
    def forward(self, a: torch.Tensor, b: torch.Tensor, c: torch.Tensor, d: torch.Tensor) -> torch.Tensor:
        return torch.relu(a @ d + b @ d + c @ d)


def products() -> Workload:
    return Workload.from_torch(Products(), (square(256),) * 4)


@pytest.mark.slow
def test_whole_programs_are_timed_as_torch_compile_makes_them() -> None:
    wl = products()
    new, report = gsl.optimize(wl, rules=JOIN, cost="compiled", budget=20, threads=1)
    assert report.taken, str(report)
    assert report.decision.endswith("times faster under torch.compile")
    assert new.op_counts()["matmul"] == 1
    again = gsl.optimize(products(), rules=JOIN, cost="compiled", budget=20, threads=1).report
    assert again.from_cache
    assert again.decision.endswith("under torch.compile, as an earlier run found")


@pytest.mark.slow
def test_programs_are_timed_as_the_settings_of_now_have_them() -> None:
    """``torch.compile`` keeps what it made of a module, also under other settings."""
    wl = products()
    inputs = TimedInputs(wl)
    graphs = torch._dynamo.utils.counters["stats"]
    with torch.no_grad():
        wl.build(backend="inductor")(*inputs.values)
    made = []
    for freezing in (False, True, True):
        before = graphs["unique_graphs"]
        with torch._inductor.config.patch(freezing=freezing):
            in_turns([wl], inputs, 0.0, RunMode.COMPILED)
        made.append(graphs["unique_graphs"] - before)
    assert made == [1, 1, 0]


def test_a_program_that_can_not_be_compiled_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(PROGRAMS_OF_TORCH, "compiled", lambda *_: failing)
    why = r"Products can't be timed: it can't be compiled \(RuntimeError: there is no compiler\); use cost='measured'"
    with pytest.raises(WorkloadError, match=why):
        gsl.optimize(products(), rules=JOIN, cost="compiled", budget=5)


def test_a_new_program_that_can_not_be_compiled_is_not_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    wl, made = products(), []

    def compiled(module: nn.Module, *_: object) -> Callable[..., Any]:
        made.append(module)
        return module if module is made[0] else failing

    monkeypatch.setattr(PROGRAMS_OF_TORCH, "compiled", compiled)
    monkeypatch.setattr("gsl.front.fx.steps.inductor_code", lambda module, inputs: module.forward)
    new, report = gsl.optimize(wl, rules=JOIN, cost="compiled", budget=5)
    assert new is wl
    assert report.decision == (
        "of a new program, it can't be compiled (RuntimeError: there is no compiler), so the old one stays"
    )


def test_another_new_program_is_taken_where_the_best_one_can_not_be_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    def compiled(module: torch.fx.GraphModule, *_: object) -> Callable[..., Any]:
        names = [str(node.target) for node in module.graph.nodes]
        has_both = names.count("aten.relu.default") == 1 and sum("matmul" in name for name in names) == 1
        return failing if has_both else module

    monkeypatch.setattr(PROGRAMS_OF_TORCH, "compiled", compiled)
    monkeypatch.setattr("gsl.front.fx.steps.inductor_code", lambda module, inputs: module.forward)
    once = Subst(op.ReLU(op.ReLU(x)), op.ReLU(x), name="once")
    inputs = (square(256),) * 4
    wl = Workload.from_torch(Of(lambda a, b, c, d: torch.relu(torch.relu(a @ d + b @ d + c @ d))), inputs)
    new, report = gsl.optimize(wl, rules=[RuleSet([JOIN]), RuleSet([once])], cost="compiled", budget=20, threads=1)
    assert report.taken, str(report)
    assert (new.op_counts()["matmul"], new.op_counts()["nn.relu"]) == (1, 2)

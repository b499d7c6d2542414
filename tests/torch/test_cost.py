"""``gsl.torch_backend(cost=…)``: of the rules, those that pay."""

from __future__ import annotations

import pytest
import torch

import gsl
from gsl import RuleSet, Subst, op
from gsl.errors import WorkloadError
from gsl.graph import Node
from gsl.rules import OPTIMISING
from tests.helpers.compiled import Recorder
from tests.helpers.nets import NetOfOne
from tests.torch.models import RELUS, Branches, X, equal

CLIP = Subst(op.ReLU(X), op.Clip(X, a_min=0.0, a_max=1e30), name="clip")


def price(node: Node) -> float:
    return 3.0 if node.op == "clip" else 1.0


def test_what_pays_is_rewritten() -> None:
    recorder = Recorder()
    backend = gsl.torch_backend([RuleSet([CLIP]), RuleSet([RELUS])], recorder, cost=price)
    call = torch.compile(NetOfOne(lambda self, x: torch.relu(torch.relu(x)) + 1), backend=backend)
    x = torch.randn(3)
    equal(call(x), torch.relu(x) + 1)
    assert recorder.calls(torch.relu) == 1
    assert backend.traces[0].summary() == {RELUS.name: 1}
    ((*trials,),) = backend.trials
    assert {trial.rule: trial.verdict for trial in trials} == {"clip": "dropped", RELUS.name: "kept"}


def test_calls_of_a_captured_graph_are_measured() -> None:
    backend = gsl.torch_backend(OPTIMISING, "eager", cost="measured", budget=20)
    module = Branches().eval()
    call = torch.compile(module, backend=backend)
    with torch.no_grad():
        for rows in (2, 5):
            inputs = torch.randn(rows, 3, 8, 8)
            torch._dynamo.mark_dynamic(inputs, 0)
            equal(call(inputs), module(inputs))
    assert len(backend.traces) == len(backend.trials) == 1, "measuring adds no guard"
    assert {trial.rule for trial in backend.trials[0]} == {"conv-batch-norm", "parallel-dense-bias-variadic"}


@pytest.mark.slow
def test_loops_are_compiled_while_torch_compiles() -> None:
    once = Subst(op.Exp(op.ReLU(X)), op.Exp(X), name="without relu")
    backend = gsl.torch_backend(once, cost="compiled", budget=60, strict=True)
    module = NetOfOne(lambda self, x: torch.exp(torch.relu(x)).sum(0))
    call = torch.compile(module, backend=backend)
    for rows in (3, 5):
        x = torch.rand(rows, 4)
        torch.testing.assert_close(call(x), module(x))
    assert [[trial.rule for trial in trials] for trials in backend.trials] == [[once.name], [once.name]]
    assert not any(part.cost("compiled").calls[0].estimated for part in backend.graphs[:1])


def test_sizes_that_change_count_as_they_are_when_torch_compiles() -> None:
    """An estimate, and the shares of calls that are timed together, depend on them."""
    fuse = Subst(op.ReLU(op.Exp(X)), op.Exp(X), name="exp is positive")
    backend = gsl.torch_backend(fuse, "eager", cost="analytic", strict=True)
    call = torch.compile(NetOfOne(lambda self, x: torch.relu(torch.exp(x * 2))), backend=backend)
    for rows in (1000, 2000):
        equal(call(torch.ones(rows, 1000)), torch.exp(torch.ones(rows, 1000) * 2))
    small, large = ({trial.rule: trial for trial in trials}["exp is positive"] for trials in backend.trials)
    assert small.verdict == large.verdict == "kept"
    assert large.gain > 1.5 * small.gain


def test_in_training_rules_for_inference_are_left_out() -> None:
    backend = gsl.torch_backend(OPTIMISING, "eager", cost=lambda node: 1.0)
    torch.compile(Branches().eval(), backend=backend)(torch.randn(2, 3, 8, 8))
    assert "for inference only" in str(backend.traces[0])


@pytest.mark.parametrize(("fold_params", "verdict"), [(False, "dropped"), (True, "kept")])
def test_what_is_computed_from_weights_once_costs_nothing(fold_params: bool, verdict: str) -> None:
    backend = gsl.torch_backend(OPTIMISING, "eager", cost=lambda node: 1.0, fold_params=fold_params)
    with torch.no_grad():
        torch.compile(Branches().eval(), backend=backend)(torch.randn(2, 3, 8, 8))
    assert {trial.rule: trial.verdict for trial in backend.trials[0]}["conv-batch-norm"] == verdict


def test_without_a_cost_rules_are_needed() -> None:
    for rules in (None, [RuleSet([RELUS])]):
        with pytest.raises(WorkloadError, match="cost='measured'"):
            gsl.torch_backend(rules)

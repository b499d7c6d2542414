"""What calls of Relax cost on TVM's machine."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import gsl
from gsl import Subst, Workload, op, pat

relax = pytest.importorskip("tvm.relax")


def workload() -> Workload:
    from tvm.relax.frontend.torch import from_exported_program

    model = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Softmax(-1)).eval()
    exported = torch.export.export(model, (torch.randn(4, 64),))
    mod = from_exported_program(exported, keep_params_as_input=True)
    return Workload.from_relax(*relax.frontend.detach_params(mod))


def test_what_runs_in_one_loop_is_timed_together() -> None:
    costs = workload().cost()
    assert [call.op for call in costs] == ["nn.dense", "nn.bias_add", "nn.relu", "nn.softmax"]
    assert len({call.key for call in costs}) == 2
    assert costs.total > 0
    assert not any(call.estimated for call in costs)


def test_the_analytic_model_needs_no_machine() -> None:
    assert workload().cost("analytic").by()[0].name == "nn.dense"


def test_a_module_of_relax_is_optimised() -> None:
    from tvm.relax.frontend.torch import from_exported_program

    class Twice(nn.Module):
        def forward(self, a: torch.Tensor) -> torch.Tensor:
            return torch.maximum(a @ a, a @ a)

    wl = Workload.from_relax(from_exported_program(torch.export.export(Twice(), (torch.randn(128, 128),))))
    x, y = pat.Wildcard(), pat.Wildcard()
    once = Subst(op.Maximum(op.Matmul(x, y), op.Matmul(x, y)), op.Matmul(x, y, out_dtype=""), name="once")
    _, report = gsl.optimize(wl, rules=once, cost="analytic", budget=4)
    assert [(trial.rule, trial.verdict) for trial in report.trials] == [("once", "kept")]
    assert report.error == 0.0
    assert report.before is not None


def test_calls_of_functions_are_told_apart_by_what_these_compute() -> None:
    def keys(rule: Subst) -> set[str]:
        """The calls of functions of TIR, and of a group."""
        grouped = rule(workload())
        assert grouped.trace.firings
        lowered = Workload(relax.transform.LegalizeOps()(grouped.mod))
        assert not any(call.estimated for call in lowered.cost())
        return {step.key for step in lowered.program.steps(lowered.graph)}

    x = pat.Wildcard()
    one, other = Subst(op.ReLU(x), pat.Fused("own")), Subst(op.Softmax(op.ReLU(x)), pat.Fused("own"))
    assert len([key for key in keys(one) ^ keys(other) if key.startswith("fused_own ")]) == 2

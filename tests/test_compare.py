"""What a comparison of two programs must not miss, and what it must let pass."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from gsl import Subst, Workload, op, pat
from gsl.errors import FrontEndError, WorkloadError
from gsl.graph import TensorType
from gsl.workload import Report
from tests.helpers.nets import NetOfOne, OfOne
from tests.test_workload import F23, differ, fake

MANY = {"x": TensorType((64, 8), "float32")}


def compared(a: Callable[..., Any], b: Callable[..., Any], **rest: Any) -> Report:
    return fake(a, **rest).compare(fake(b, "new", **rest))


# The values -------------------------------------------------------------------------------------------------------


def test_a_small_part_of_an_output_counts() -> None:
    def part(by: float) -> Callable[..., Any]:
        return lambda x: torch.cat([x, x[:, :1] * by], 1)

    assert "elements differ" in differ(part(1e-4), part(0), inputs=MANY)
    assert "elements differ" in differ(part(1e-4), part(1.5e-4), inputs=MANY)
    assert differ(part(1e-4), part(1e-4), inputs=MANY) == ""


def test_what_is_smaller_than_the_tolerance_is_shown_at_least() -> None:
    report = compared(lambda x: torch.cat([x, x[:, :1] * 1e-6], 1), lambda x: torch.cat([x, x[:, :1] * 0], 1),
                      inputs=MANY)  # fmt: skip
    assert report.passed
    assert "ok (but [:, 8] is off by " in str(report)
    assert "but" not in str(compared(lambda x: x, lambda x: x * (1 + 1e-6), inputs=MANY))


def test_another_epsilon_of_a_layer_norm_is_found() -> None:
    def norm(eps: float) -> Callable[..., Any]:
        return lambda x: torch.nn.functional.layer_norm(x, (32,), eps=eps)

    inputs = {"x": TensorType((4, 32), "float32")}
    assert "elements differ" in differ(norm(1e-5), norm(1e-4), inputs=inputs)
    assert differ(norm(1e-5), norm(1e-5), inputs=inputs) == ""


def test_rounding_of_long_sums_passes() -> None:
    inputs = {"x": TensorType((16, 4096), "float32")}
    generator = torch.Generator().manual_seed(0)
    weight = torch.randn(4096, 32, generator=generator)
    order = torch.randperm(4096, generator=generator)
    assert differ(lambda x: x @ weight, lambda x: x[:, order] @ weight[order], inputs=inputs) == ""


def test_a_folded_norm_and_merged_matrices_pass() -> None:
    torch.manual_seed(0)
    conv, norm = nn.Conv2d(64, 32, 3), nn.BatchNorm2d(32).eval()
    norm.running_var.copy_(torch.rand(32) * 10 + 1e-3)  # type: ignore[union-attr, operator]
    fused = nn.utils.fuse_conv_bn_eval(conv.eval(), norm)
    images = {"x": TensorType((2, 64, 9, 9), "float32")}
    assert differ(lambda x: norm(conv(x)), fused, inputs=images) == ""
    q, k, v = (torch.randn(256, 256) for _ in range(3))
    rows = {"x": TensorType((2, 16, 256), "float32")}
    assert differ(lambda x: (x @ q, x @ k, x @ v), lambda x: (x @ torch.cat([q, k, v], 1)).split(256, -1),
                  inputs=rows) == ""  # fmt: skip


def deep(step: Callable[..., Any]) -> Workload:
    """Sixty layers in bfloat16, each with a product of its own."""
    generator = torch.Generator().manual_seed(0)
    weights = [(torch.randn(64, 64, generator=generator) / 8).bfloat16() for _ in range(60)]

    def layers(x: Tensor) -> Tensor:
        for weight in weights:
            x = x + torch.tanh(step(F.layer_norm(x, (64,)), weight))
        return x

    return Workload.from_torch(OfOne(layers), (torch.randn(64, 64, generator=generator).bfloat16(),))


def test_rounding_of_many_layers_passes_as_float64_shows_it() -> None:
    whole, halves = deep(lambda x, w: x @ w), deep(lambda x, w: x[:, :32] @ w[:32] + x[:, 32:] @ w[32:])
    report = whole.compare(halves)
    assert report.passed
    assert re.search(r"ok \(by rounding: \S+ from the result in float64, from which the first is ", str(report))
    assert not whole.compare(halves, rtol=1.5e-2).passed, "a tolerance that is given is kept"


def test_what_differs_in_float64_fails_however_large_rounding_errors_are() -> None:
    whole, off = deep(lambda x, w: x @ w), deep(lambda x, w: 1.02 * (x @ w))
    (row, _) = whole.compare(off).outputs
    assert row.mismatched < 0.05 * row.elements
    assert not row.passed
    assert "by rounding" not in row.reason


def test_one_wrong_element_among_rounding_errors_fails() -> None:
    whole = deep(lambda x, w: x @ w)
    one_off = OfOne(lambda x: whole.mod(x) + F.pad(torch.ones(1, 1), (0, 63, 0, 63)).bfloat16())
    (row, _) = whole.compare(Workload.from_torch(one_off, whole.example_inputs)).outputs
    assert row.mismatched == 1
    assert not row.passed


def test_float64_is_not_rounding_of_itself() -> None:
    x = torch.randn(8, 8, dtype=torch.float64)
    first, second = [Workload.from_torch(OfOne(lambda x, by=by: x * by), (x,)) for by in (1.0, 1 + 1e-9)]
    (row, _) = first.compare(second).outputs
    assert not row.passed
    assert "by rounding" not in row.reason


def test_rounding_errors_that_are_twice_as_large_fail() -> None:
    whole, narrow = deep(lambda x, w: x @ w), deep(lambda x, w: (x * 3 @ w) / 3 - (x + 60) + (x + 60))
    (row, _) = whole.compare(narrow).outputs
    assert not row.passed
    assert "; by rounding: " in row.reason


def test_random_inputs_have_the_precision_of_their_dtype() -> None:
    (value,) = fake(lambda x: x, inputs={"x": TensorType((16,), "float64")}).random_inputs()
    assert value.dtype == torch.float64
    assert not torch.equal(value, value.float().double())


def test_what_is_nan_in_every_run_was_not_compared() -> None:
    report = compared(lambda x: x * math.nan, lambda x: x * math.nan)
    assert not report
    assert [row.reason for row in report.failures] == ["all NaN: nothing was compared"]
    assert differ(lambda x: (x, x * math.nan), lambda x: (x, x * math.nan)) == "[1]: all NaN: nothing was compared"


def test_what_is_nan_in_one_run_was_compared_in_the_other() -> None:
    def root(x: Any) -> Any:
        return torch.sqrt(x[0, 0]) if float(x.sum()) == 6 else x[0, 0] * math.nan

    assert differ(root, root, example_inputs=(torch.ones(2, 3),)) == ""


def test_nothing_is_no_agreement() -> None:
    report = compared(lambda x: {}, lambda x: {})
    assert not report
    with pytest.raises(WorkloadError, match="old and new were not compared: they have no outputs"):
        report.check()


# The structure ----------------------------------------------------------------------------------------------------


DIFFERENT: dict[str, tuple[Callable[..., Any], Callable[..., Any]]] = {
    "nesting": (lambda x: {"a": x, "b": x * 2}, lambda x: ((x,), x * 2)),
    "keys": (lambda x: {"a": x, "b": x * 2}, lambda x: {"a": x, "c": x * 2}),
    "depth": (lambda x: (x,), lambda x: ((x,),)),
    "one and a tuple of one": (lambda x: x, lambda x: (x,)),
    "dots in keys": (lambda x: {"a": {"b": x}}, lambda x: {"a.b": x}),
}


@pytest.mark.parametrize("case", DIFFERENT)
def test_another_structure_is_another_result(case: str) -> None:
    reason = differ(*DIFFERENT[case])
    assert "the second workload has no such output" in reason
    assert "only the second workload has this output" in reason


def test_paths_that_are_written_alike_are_not_mixed_up() -> None:
    def both(x: Any) -> Any:
        return {"a": {"b": x}, "a.b": x + 1}

    assert differ(both, both) == ""
    assert "elements differ" in differ(both, lambda x: {"a": {"b": x + 1}, "a.b": x})
    assert [row.name for row in compared(both, both).outputs] == ["a.b", "['a.b']"]


def test_changed_inputs_of_other_names_are_compared_by_position() -> None:
    old = fake(lambda x: x.add_(1))
    assert old.compare(fake(lambda y: y.add_(1), "new", inputs={"y": F23}))
    assert not old.compare(fake(lambda y: y + 1, "new", inputs={"y": F23}))


# What a run leaves behind -----------------------------------------------------------------------------------------


def counting(net: Any, x: Any) -> Any:
    net.w.add_(1)
    return x * net.w


@pytest.mark.parametrize("functional", [False, True])
def test_a_parameter_that_the_program_changes_is_restored(functional: bool) -> None:
    net = NetOfOne(counting, w=nn.Parameter(torch.ones(3), requires_grad=False))
    exported = torch.export.export(net, (torch.randn(3),))
    wl = Workload.from_exported(exported.run_decompositions() if functional else exported)
    report = wl.compare(wl).check()
    assert "state w afterwards" in [row.name for row in report.outputs]
    assert wl.params["w"].tolist() == [1, 1, 1]


def test_a_parameter_that_is_changed_in_secret_is_not_ignored() -> None:
    weight = nn.Parameter(torch.zeros(()), requires_grad=False)
    with pytest.raises(WorkloadError, match="the run changed the parameters w, which nothing in the graph tells"):
        differ(lambda x: x + weight.add_(1), lambda x: x, params={"w": weight})


def test_a_module_is_not_a_traced_one() -> None:
    with pytest.raises(FrontEndError, match=r"Workload\.from_torch"):
        Workload.from_fx(nn.Linear(2, 2))  # type: ignore[arg-type]


def test_of_an_operator_without_a_kernel_the_list_of_kernels_is_not_told() -> None:
    torch.library.define("gsl_compare::lost", "(Tensor x) -> Tensor")
    torch.library.register_fake("gsl_compare::lost", torch.empty_like)
    x = pat.Wildcard()
    old = Workload.from_torch(NetOfOne(lambda self, x: x.relu()), (torch.randn(3),))
    new = Subst(op.ReLU(x), pat.Call("gsl_compare::lost", x))(old)
    with pytest.raises(WorkloadError, match="Could not run 'gsl_compare::lost'") as error:
        old.compare(new)
    assert "\n" not in str(error.value)


def test_a_kernel_that_refuses_a_dtype_is_told_with_the_rule_that_calls_it() -> None:
    x = pat.Wildcard()
    rule = Subst(op.ReLU(x), pat.Call(torch.ops.aten.hardswish.default, x), name="no kernel")
    old = Workload.from_torch(NetOfOne(lambda self, x: x.relu() + x.neg()), (torch.arange(3),))
    new = rule(old)
    failed = r"NetOfOne fails on inputs \(example\) on which NetOfOne runs: .*not implemented for 'Long'"
    with pytest.raises(WorkloadError, match=f"{failed}; with trace="):
        old.compare(new)
    with pytest.raises(WorkloadError, match=f"{failed}; introduced by step 1 of 1: no kernel: %relu -> %"):
        old.compare(new, trace=new.trace)
    with pytest.raises(NotImplementedError):
        new.compare(old)

"""Operators that write into their arguments, as graphs have them: through auto_functionalized, of both versions."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, fx
from torch._dynamo.backends.common import aot_autograd
from torch._inductor import config
from torch.fx.experimental.proxy_tensor import make_fx

import gsl
import gsl.fx
from gsl import RuleSet, Subst, Supported, Workload, op, pat
from gsl.errors import PatternError
from tests.helpers.compiled import Recorder

LIBRARY = torch.library.Library("gsl_mutable", "DEF")


def _define(schema: str, kernel: Callable[..., Any], fake: Callable[..., Any] = lambda *args: None) -> None:
    name = schema.partition("(")[0]
    LIBRARY.define(schema)
    LIBRARY.impl(name, kernel, "CompositeExplicitAutograd")
    torch.library.register_fake(f"gsl_mutable::{name}", fake, lib=LIBRARY)


def _normed(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + eps) * weight


def _rms_norm(result: Tensor, x: Tensor, weight: Tensor, eps: float) -> None:
    result.copy_(_normed(x, weight, eps))


def _add_rms_norm(x: Tensor, residual: Tensor, weight: Tensor, eps: float) -> None:
    residual.add_(x)
    x.copy_(_normed(residual, weight, eps))


def _quantised(x: Tensor, scale: Tensor) -> Tensor:
    scale.fill_(x.abs().max())
    return x / scale


_define("rms_norm(Tensor(a!) result, Tensor x, Tensor weight, float eps) -> ()", _rms_norm)
_define("add_rms_norm(Tensor(a!) x, Tensor(b!) residual, Tensor weight, float eps) -> ()", _add_rms_norm)
_define("quantised(Tensor x, Tensor(a!) scale) -> Tensor", _quantised, lambda x, scale: torch.empty_like(x))


@gsl.operator("gsl_mutable::rms_norm")
def rms_norm(x: Tensor, weight: Tensor, *, eps: float) -> Tensor:
    return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + eps) * weight


@gsl.operator("gsl_mutable::add_rms_norm")
def add_rms_norm(x: Tensor, residual: Tensor, weight: Tensor, *, eps: float) -> tuple[Tensor, Tensor]:
    added = residual + x
    return added * torch.rsqrt(added.pow(2).mean(-1, keepdim=True) + eps) * weight, added


@gsl.operator("gsl_mutable::quantised", x="b d")
def quantised(x: Tensor) -> tuple[Tensor, Tensor]:
    scale = x.abs().amax().reshape(1)
    return x / scale, scale


def layer(x: Tensor, residual: Tensor, weight: Tensor) -> tuple[Tensor, ...]:
    out = torch.empty_like(x)
    torch.ops.gsl_mutable.rms_norm(out, x, weight, 1e-6)
    y = out * 2
    torch.ops.gsl_mutable.add_rms_norm(y, residual, weight, 1e-5)
    scale = torch.empty(1)
    q = torch.ops.gsl_mutable.quantised(y[:2], scale)
    return y, q, scale


INPUTS = (torch.linspace(-1, 2, 32).reshape(4, 8), torch.linspace(2, -1, 32).reshape(4, 8), torch.linspace(0.5, 1, 8))


@pytest.fixture(scope="module", params=[False, True], ids=["v1", "v2"])
def functional(request: Any) -> fx.GraphModule:
    """The graph that torch.compile makes of the layer, with its inputs in the order of the graph."""
    recorder = Recorder()
    torch._dynamo.reset()
    backend = aot_autograd(fw_compiler=recorder, keep_inference_input_mutations=True)
    with config.patch(enable_auto_functionalized_v2=request.param), torch.no_grad():
        torch.compile(layer, backend=backend)(INPUTS[0], INPUTS[1].clone(), INPUTS[2])
    return recorder.graphs[0]


def run(module: fx.GraphModule) -> list[Tensor]:
    """The results of such a graph, and the residual as it is then."""
    residual = INPUTS[1].clone()
    return [*module(INPUTS[0], INPUTS[2], residual), residual]


def check(old: fx.GraphModule, new: Workload) -> None:
    for expected, found in zip(run(old), run(new.mod)):
        torch.testing.assert_close(found, expected)


OPERATORS = (rms_norm, add_rms_norm, quantised)


@pytest.fixture(scope="module")
def recognise() -> RuleSet:
    return RuleSet([each.recognise() for each in OPERATORS], strategy="largest")


@pytest.fixture(scope="module")
def lower() -> RuleSet:
    return RuleSet([each.lower() for each in OPERATORS])



def workload(module: fx.GraphModule) -> Workload:
    return Workload.from_fx(module, (INPUTS[0], INPUTS[2], INPUTS[1])).with_operators(*OPERATORS)


def names(wl: Workload) -> list[str]:
    return [str.__str__(node.op) for node in wl.graph if "::" in str(node.op)]


def test_they_are_functions_of_values(functional: fx.GraphModule) -> None:
    wl = workload(functional)
    assert names(wl) == [f"gsl_mutable::{name}" for name in ("rms_norm", "add_rms_norm", "quantised")]
    assert "gsl_mutable::rms_norm(%arg0_1, %arg1_1, eps=1e-06)" in wl.text()
    (node,) = [node for node in wl.graph if node.op == "gsl_mutable::add_rms_norm"]
    assert str(node.type) == "(float32[4, 8], float32[4, 8])"
    assert sorted(user.attrs["index"] for user in node.users) == [0, 1]


def test_lowered_and_recognised_again(functional: fx.GraphModule, recognise: RuleSet, lower: RuleSet) -> None:
    wl = workload(functional)
    low = lower(wl)
    assert len(low.trace.firings) == 3
    assert not any(node.target in (torch.ops.higher_order.auto_functionalized_v2,) for node in low.mod.graph.nodes)
    check(functional, low)
    back = recognise(low)
    assert names(back) == names(wl)
    check(functional, back)
    code = back.mod.code
    assert "auto_functionalized(torch.ops.gsl_mutable.rms_norm.default, x = arg0_1, weight = arg1_1" in code
    assert "torch.ops.aten.new_empty.default(arg0_1, (4, 8)" in code


def test_a_rule_between_mutable_operators(functional: fx.GraphModule) -> None:
    x, w, r = pat.Wildcard(), pat.Wildcard(), pat.Wildcard()
    old = add_rms_norm(op.Multiply(rms_norm(x, w, eps=1e-6), 2), r, w, eps=1e-5)
    new = add_rms_norm(x, r, w, eps=1e-5)
    rule = Subst([old[0], old[1]], [new[0], new[1]], name="swap")
    wl = workload(functional)
    swapped = rule(wl)
    assert swapped.trace.count("swap") == 1
    assert names(swapped) == ["gsl_mutable::add_rms_norm", "gsl_mutable::quantised"]
    y, q, scale, residual = run(swapped.mod)
    added = INPUTS[1] + INPUTS[0]
    torch.testing.assert_close(y, _normed(added, INPUTS[2], 1e-5))
    torch.testing.assert_close(residual, added)
    torch.testing.assert_close(q * scale, y[:2])


def test_fields_are_taken_by_their_native_numbers(functional: fx.GraphModule) -> None:
    """A new field of a call that stays, an old field of what is no such call any more."""
    x, w, r = pat.Wildcard(), pat.Wildcard(), pat.Wildcard()
    call = add_rms_norm(x, r, w)
    wl = workload(functional)
    first = Subst(call[0], op.Add(call[1], op.ReLU(call[1])), name="first")(wl)
    assert first.trace.count("first") == 1
    y, _, _, residual = run(first.mod)
    torch.testing.assert_close(y, residual + torch.relu(residual))
    whole = Subst(call, pat.Tuple(op.ReLU(x), op.ReLU(r)), name="whole")(wl)
    assert whole.trace.count("whole") == 1
    y, _, _, residual = run(whole.mod)
    torch.testing.assert_close(residual, torch.relu(INPUTS[1]))
    torch.testing.assert_close(y, torch.relu(2 * _normed(INPUTS[0], INPUTS[2], 1e-6)))


def test_in_place(functional: fx.GraphModule, lower: RuleSet) -> None:
    module = copy.deepcopy(functional)
    gsl.fx.Pass(lower["lower rms_norm"])(module)
    assert sum("auto_functionalized" in node.name for node in module.graph.nodes) == 2
    for expected, found in zip(run(functional), run(module)):
        torch.testing.assert_close(found, expected)


def test_a_rule_of_several_results_verifies(lower: RuleSet) -> None:
    assert isinstance(lower["lower quantised"].verify(max_examples=20), Supported)


def test_on_tensors_arguments_stay_as_they_are() -> None:
    x, residual, weight = (value.clone() for value in INPUTS)
    y, added = add_rms_norm(x, residual, weight, eps=1e-5)
    torch.testing.assert_close(added, x + residual)
    torch.testing.assert_close(y, _normed(added, weight, 1e-5))
    assert torch.equal(x, INPUTS[0])
    assert torch.equal(residual, INPUTS[1])


def test_a_mutable_operator_is_made() -> None:
    @gsl.operator("gsl_tests::accumulate", mutates_args=["total"])
    def accumulate(x: Tensor, total: Tensor, *, by: float = 0.5) -> Tensor:
        return total + x * by

    assert str(accumulate.torch_op._schema) == (
        "gsl_tests::accumulate(Tensor x, Tensor(a!) total, *, float by=0.5) -> ()"
    )
    total = torch.zeros(3)
    torch.ops.gsl_tests.accumulate(torch.ones(3), total)
    assert total.tolist() == [0.5] * 3


def test_a_written_part_of_a_tensor_is_left_alone() -> None:
    def part(x: Tensor, weight: Tensor) -> Tensor:
        out = torch.zeros(8, 8)
        torch.ops.gsl_mutable.rms_norm(out[2:6], x, weight, 1e-6)
        return out

    recorder = Recorder()
    torch._dynamo.reset()
    with config.patch(enable_auto_functionalized_v2=True), torch.no_grad():
        torch.compile(part, backend=aot_autograd(fw_compiler=recorder))(INPUTS[0], INPUTS[2])
    wl = Workload.from_fx(recorder.graphs[0], (INPUTS[0], INPUTS[2])).with_operators(rms_norm)
    assert names(wl) == []
    assert "auto_functionalized_v2" in wl.text()


def test_a_direct_call_has_an_effect() -> None:
    class Direct(torch.nn.Module):
        def forward(self, x: Tensor, weight: Tensor) -> Tensor:
            out = torch.empty_like(x)
            torch.ops.gsl_mutable.rms_norm(out, x, weight, 1e-6)
            return out

    wl = Workload.from_torch(Direct(), (INPUTS[0], INPUTS[2]), operators=[rms_norm])
    assert "!mutates" in wl.text()
    exported = torch.export.export(Direct(), (INPUTS[0], INPUTS[2])).run_decompositions()
    wl = Workload(exported).with_operators(rms_norm)
    assert names(wl) == ["gsl_mutable::rms_norm"]
    new = rms_norm.lower()(wl)
    wl.compare(new).check()


def test_an_argument_out_is_one_of_the_operator() -> None:
    @gsl.operator("gsl_mutable::scaled_into", mutates_args=["out"])
    def scaled_into(x: Tensor, *, by: float = 2.0) -> Tensor:
        return x * by

    overload = scaled_into.torch_op

    def called(x: Tensor) -> Tensor:
        functional = torch.ops.higher_order.auto_functionalized
        found: Tensor = functional(overload, out=torch.empty_like(x), x=x, by=3.0)[1]
        return found + 1

    wl = Workload(make_fx(called, tracing_mode="fake")(INPUTS[0])).with_operators(scaled_into)
    assert names(wl) == ["gsl_mutable::scaled_into"]
    torch.testing.assert_close(scaled_into.lower()(wl).mod(INPUTS[0]), INPUTS[0] * 3 + 1)


def test_the_number_of_results() -> None:
    with pytest.raises(PatternError, match=r"returns 0 tensors and writes x, residual, but the meaning returns 1"):

        @gsl.operator("gsl_mutable::add_rms_norm")
        def wrong(x: Tensor, residual: Tensor, weight: Tensor, *, eps: float) -> Tensor:
            return (x + residual) * weight + eps


def test_results_by_name() -> None:
    call = add_rms_norm(pat.Wildcard(), pat.Wildcard(), pat.Wildcard())
    assert [repr(call[name]) for name in ("x", "residual")] == [repr(call[0]), repr(call[1])]
    assert repr(quantised(pat.Wildcard())["scale"]).endswith("[1]")
    with pytest.raises(PatternError, match=r"has no result of the name 'y': known are residual, x"):
        call["y"]
    with pytest.raises(PatternError, match="has no result of the name 'x': there are none"):
        op.ReLU(pat.Wildcard())["x"]

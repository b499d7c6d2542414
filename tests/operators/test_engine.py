"""Operators as a serving engine has them: mutable, of low precision, without kernels on this machine."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, fx
from torch._dynamo.backends.common import aot_autograd

import gsl
from gsl import RuleSet
from gsl.fx import Pass

LIBRARY = torch.library.Library("gsl_engine", "DEF")
for schema in (
    "rms_norm(Tensor! result, Tensor input, Tensor weight, float epsilon) -> ()",
    "fp8_quant(Tensor! result, Tensor input, Tensor scale) -> ()",
    "rms_norm_fp8_quant(Tensor! result, Tensor input, Tensor weight, Tensor scale, float epsilon) -> ()",
):
    LIBRARY.define(schema)
    torch.library.register_fake(f"gsl_engine::{schema.partition('(')[0]}", lambda *args, **kwargs: None, lib=LIBRARY)


@gsl.operator("gsl_engine::rms_norm")
def rms_norm(input: Tensor, weight: Tensor, *, epsilon: float) -> Tensor:
    return input * torch.rsqrt(input.pow(2).mean(-1, keepdim=True) + epsilon) * weight


@gsl.operator("gsl_engine::fp8_quant")
def fp8_quant(input: Tensor, scale: Tensor) -> Tensor:
    return (input / scale).clamp(-448.0, 448.0).to(torch.float8_e4m3fn)


@gsl.operator("gsl_engine::rms_norm_fp8_quant")
def rms_norm_fp8_quant(input: Tensor, weight: Tensor, scale: Tensor, *, epsilon: float) -> Tensor:
    return fp8_quant(rms_norm(input, weight, epsilon=epsilon), scale)


def called(x: Tensor, weight: Tensor, scale: Tensor) -> Tensor:
    normed = torch.empty_like(x)
    torch.ops.gsl_engine.rms_norm(normed, x, weight, 1e-6)
    result = torch.empty_like(x, dtype=torch.float8_e4m3fn)
    torch.ops.gsl_engine.fp8_quant(result, normed, scale)
    return result


def written_out(x: Tensor, weight: Tensor, scale: Tensor) -> Tensor:
    normed = x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6) * weight
    return (normed / scale).clamp(-448.0, 448.0).to(torch.float8_e4m3fn)


class _Captured(Exception):
    """Ends a compilation as soon as there is a graph."""


@pytest.mark.parametrize("function", [called, written_out])
def test_one_rule_fuses_calls_and_what_is_written_out(function: Callable[..., Tensor]) -> None:
    found: list[fx.GraphModule] = []

    def compiler(module: fx.GraphModule, inputs: object) -> None:
        found.append(module)
        raise _Captured

    torch._dynamo.reset()
    backend = aot_autograd(fw_compiler=compiler)
    with pytest.raises(Exception, match="_Captured"), torch.no_grad():
        torch.compile(function, backend=backend)(torch.randn(4, 8), torch.randn(8), torch.rand(1))
    rules = RuleSet([rms_norm.recognise(), fp8_quant.recognise(), rms_norm_fp8_quant.recognise(name="fuse")])
    fuse = Pass(rules, iterative=True)
    fuse(found[0])
    assert fuse.traces[0].count("fuse") == 1
    calls = [node for node in found[0].graph.nodes if node.target is torch.ops.higher_order.auto_functionalized]
    assert [node.args[0] for node in calls] == [torch.ops.gsl_engine.rms_norm_fp8_quant.default]
    assert calls[0].kwargs["epsilon"] == 1e-6
    empty = calls[0].kwargs["result"]
    assert empty.target is torch.ops.aten.new_empty.default
    assert empty.kwargs == {"dtype": torch.float8_e4m3fn}


def test_meanings_need_no_kernels() -> None:
    x, weight, scale = torch.randn(4, 8), torch.rand(8), torch.rand(1)
    values = rms_norm_fp8_quant.spec.meaning(torch, x, weight, scale, epsilon=1e-6)
    torch.testing.assert_close(values.float(), written_out(x, weight, scale).float())
    with pytest.raises(NotImplementedError):
        rms_norm(x, weight, epsilon=1e-6)

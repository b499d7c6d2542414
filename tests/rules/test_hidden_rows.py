"""A row of attention whose places are all hidden has the numbers of the program before, in every framework."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch

from gsl import RuleSet, Workload
from gsl.rules import IDIOMS, NORMAL, ORT
from tests.helpers.nets import Of

LOW = torch.finfo(torch.float32).min
FOUND = RuleSet(dict.fromkeys((*NORMAL, *IDIOMS)))
FASTEST = RuleSet(dict.fromkeys((*NORMAL, *IDIOMS, *ORT)))


def without_nan(scores: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    """As ``torch.onnx`` writes attention with a mask of truth values."""
    weights = scores.softmax(-1)
    return torch.where(weights.isnan(), 0.0, weights) @ v


Scores = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]
MASKS: dict[str, tuple[Scores, float]] = {
    "minus infinity, chosen": (lambda s, m: torch.where(m == 0, s, -math.inf), -math.inf),
    "minus infinity, added": (lambda s, m: s + m, -math.inf),
    "the lowest number, chosen": (lambda s, m: torch.where(m == 0, s, LOW), LOW),
    "the lowest number, added": (lambda s, m: s + m, LOW),
}


def program(name: str) -> tuple[torch.nn.Module, tuple[torch.Tensor, ...]]:
    scores, number = MASKS[name]

    def function(x: torch.Tensor, m: torch.Tensor) -> torch.Tensor:
        heads = x.view(2, 5, 2, 4).transpose(1, 2)
        return without_nan(scores(heads @ heads.mT * 0.5, m), heads).transpose(1, 2).reshape(2, 5, 8)

    torch.manual_seed(0)
    mask = torch.zeros(2, 1, 5, 5)
    mask[0, 0, 1] = number
    mask[1, 0, 2, :2] = number
    return Of(function), (torch.randn(2, 5, 8), mask)


def check(old: Workload, new: Workload, inputs: tuple[torch.Tensor, ...]) -> None:
    """The numbers of the rewritten program are those of the old one, and none of them is NaN."""
    before, after = (torch.as_tensor(leaf(workload(*inputs))) for workload in (old, new))
    assert not before.isnan().any()
    torch.testing.assert_close(after, before)


def leaf(value: Any) -> Any:
    return leaf(value[0]) if isinstance(value, (list, tuple)) and hasattr(value[0], "__len__") else value


@pytest.mark.sweep(2)
@pytest.mark.parametrize("opset", [18, 23])
@pytest.mark.parametrize("name", MASKS)
def test_in_onnx(name: str, opset: int) -> None:
    pytest.importorskip("onnxruntime")
    model, inputs = program(name)
    exported = torch.onnx.export(model, inputs, dynamo=True, opset_version=opset, verbose=False)
    assert exported is not None
    old = Workload.from_onnx(exported.model_proto, inputs)
    found = FOUND(old, iterative=True)
    assert found.trace.count("attention") > 0
    check(old, found, inputs)
    fastest = FASTEST(old, iterative=True)
    assert fastest.trace.count("masked-attention") == 1
    check(old, fastest, inputs)
    check(old, FASTEST(found, iterative=True), inputs)


def test_a_mask_of_several_layers_is_raised_once_in_onnx() -> None:
    pytest.importorskip("onnxruntime")

    def function(x: torch.Tensor, m: torch.Tensor) -> torch.Tensor:
        for _ in range(3):
            x = (x @ x.mT + m).softmax(-1) @ x
        return x

    inputs = torch.randn(2, 2, 5, 4), program("the lowest number, added")[1][1]
    exported = torch.onnx.export(Of(function), inputs, dynamo=True, opset_version=23, verbose=False)
    assert exported is not None
    old = Workload.from_onnx(exported.model_proto, inputs)
    new = FOUND(old, iterative=True)
    assert (new.op_counts()["nn.attention"], new.op_counts()["maximum"]) == (3, 1)
    check(old, new, inputs)


@pytest.mark.parametrize("heads", [1, 2])
def test_attention_of_onnx_itself(heads: int) -> None:
    """Its rows are 0 there, and those of onnxruntime's own operator NaN, which has no heads by themselves behind it."""
    onnx = pytest.importorskip("onnx")
    pytest.importorskip("onnxruntime")
    model = onnx.parser.parse_model(f"""
        <ir_version: 10, opset_import: ["" : 23]>
        g (float[2,2,5,4] x, float[2,{heads},5,5] m) => (float[2,5,8] y) {{
            a = Attention (x, x, x, m)
            t = Transpose <perm = [0, 2, 1, 3]> (a)
            shape = Constant <value_ints = [2, 5, 8]> ()
            y = Reshape (t, shape)
        }}""")
    mask = torch.zeros(2, heads, 5, 5)
    mask[0, 0, 1] = -math.inf
    inputs = torch.randn(2, 2, 5, 4), mask
    old = Workload.from_onnx(model, inputs)
    new = FASTEST(old, iterative=True)
    assert new.trace.count("masked-attention") == (heads == 1)
    assert heads == 1 or "a mask of each head may hide rows" in str(new.trace.refused)
    check(old, new, inputs)


@pytest.mark.sweep(2)
@pytest.mark.parametrize("name", MASKS)
def test_in_relax(name: str) -> None:
    pytest.importorskip("tvm")
    from tvm.relax.frontend.torch import from_exported_program

    model, inputs = program(name)
    old = Workload.from_relax(from_exported_program(torch.export.export(model, inputs)))
    new = FOUND(old, iterative=True)
    assert new.op_counts()["nn.attention"] == 1
    check(old, new, inputs)


@pytest.mark.parametrize("name", MASKS)
def test_in_torch(name: str) -> None:
    model, inputs = program(name)
    old = Workload.from_torch(model, inputs)
    new = FOUND(old, iterative=True)
    assert new.op_counts()["nn.attention"] == 1
    check(old, new, inputs)

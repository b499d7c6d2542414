"""Interrupts at places all over a pass in place: a graph is as it was or rewritten, and the rules work as before."""

from __future__ import annotations

import copy
import gc
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import fx, nn

import gsl
from gsl import RuleSet, Subst, op, pat
from gsl.fx import Pass
from tests.helpers.interrupts import Place, default_handler, interrupted  # noqa: F401

GSL = str(Path(gsl.__file__).parent)
PLACES = 40


pytestmark = pytest.mark.usefixtures("default_handler")


def check(make: Callable[[], Any], rewrite: Callable[[Any], object], text: Callable[[Any], Any], where: str) -> None:
    """Interrupt a rewrite in place at some lines of files in a folder."""
    native = make()
    before = text(native)
    rewrite(native)  # what is imported and computed once
    after = text(native)
    assert after != before
    native = make()
    first: dict[Place, int] = {}
    for number, place in enumerate(interrupted(lambda: rewrite(native), GSL), 1):
        first.setdefault(place, number)
    places = sorted(number for (file, _), number in first.items() if where in file)
    assert len(places) > PLACES
    for number in random.Random(where).sample(places, PLACES):
        native = make()
        interrupted(lambda native=native: rewrite(native), GSL, number)  # type: ignore[misc]
        assert gc.isenabled()
        assert text(native) in (before, after)
        if text(native) == before:
            rewrite(native)
            assert text(native) == after


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = torch.tanh(self.linear(x * 2.0 * 3.0))
        return torch.neg(torch.neg(torch.relu(torch.relu(x)) + torch.sigmoid(x)))


def rules() -> RuleSet:
    x = pat.Wildcard()
    return RuleSet([
        Subst(op.ReLU(op.ReLU(x)), op.Maximum(x, 0.0), name="relu"),
        Subst(op.Negative(op.Negative(x)), x, name="negative"),
        Subst(op.Tanh(x), op.Subtract(1.0, op.Divide(2.0, op.Exp(x * 2.0) + 1.0)), name="tanh"),
    ])  # fmt: skip


def test_a_module_in_place() -> None:
    model, shared = Model().eval(), rules()

    def rewrite(module: fx.GraphModule) -> None:
        Pass(shared, iterative=True)(module)

    def text(module: fx.GraphModule) -> Any:
        module.graph.lint()
        return module.code, list(module.state_dict())

    with torch.no_grad():
        check(lambda: fx.symbolic_trace(copy.deepcopy(model)), rewrite, text, "front")


def test_a_model_of_onnx_in_place() -> None:
    onnx = pytest.importorskip("onnx")
    ir = pytest.importorskip("onnx_ir")
    from gsl.onnx import Pass as OnnxPass

    body = "a = Tanh(x) b = Relu(a) c = Relu(b) d = Neg(c) e = Neg(d) y = Add(e, x)"
    source = f'<ir_version: 10, opset_import: ["" : 22]> main (float[2,3] x) => (float[2,3] y) {{ {body} }}'
    source = source.replace(") ", ")\n")
    shared = rules()

    def text(model: Any) -> bytes:
        proto = ir.to_proto(model)
        onnx.checker.check_model(proto, full_check=True)
        return bytes(proto.SerializeToString(deterministic=True))

    def rewrite(model: Any) -> None:
        OnnxPass(shared, iterative=True)(model)

    check(lambda: ir.serde.deserialize_model(onnx.parser.parse_model(source)), rewrite, text, "front")

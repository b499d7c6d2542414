"""What is quantised twice, in models of ONNX and in Relax."""

from __future__ import annotations

from typing import Any

import onnx
import pytest
from tvm import ir, relax

from gsl import RuleSet, Workload
from gsl.rules import QUANTISED
from gsl.rules.quantised import pairs
from tests.front.relax.relax_helpers import function, tensor

MODEL = """<ir_version: 10, opset_import: ["": 20]>
net (float[2,4] x) => (float[2,4] y, float[2,4] z)
<float s = {0.5}, uint8 o = {7}, float t = {%s}, uint8 p = {7}> {
  a = QuantizeLinear (x, s, o)
  b = DequantizeLinear (a, s, o)
  c = QuantizeLinear (b, t, p)
  d = DequantizeLinear (c, t, p)
  e = DequantizeLinear (a, s, o)
  y = Relu (d)
  z = Tanh (e)
}"""


def relax_program(again: float) -> Any:
    def body(b: Any, x: Any) -> Any:
        for scale in (0.5, again):
            scheme = relax.const(scale, "float32"), relax.const(7, "uint8")
            x = b.emit(relax.op.dequantize(b.emit(relax.op.quantize(x, *scheme, out_dtype="uint8")), *scheme))
        return x

    return function([tensor("x", 2, 4)], body)


@pytest.mark.parametrize(("again", "left"), [(0.5, 2), (0.25, 4)])
def test_pairs(again: float, left: int) -> None:
    relaxed = RuleSet(pairs(ir.Op.get("relax.quantize"), ir.Op.get("relax.dequantize"), "relax"))
    modelled = Workload.from_onnx(onnx.parser.parse_model(MODEL % again))
    for wl, rules in ((modelled, QUANTISED), (Workload(relax_program(again)), relaxed)):
        new = rules(wl, iterative=True)
        assert sum(count for op, count in new.op_counts().items() if "uantize" in op) == left
        wl.compare(new, rtol=0, atol=0).check()

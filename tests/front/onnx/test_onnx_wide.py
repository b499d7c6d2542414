"""Models in float64, by which a comparison tells rounding errors from other ones."""

from __future__ import annotations

import re
from typing import Any

import ml_dtypes
import numpy as np
import onnx
import pytest

from gsl import Workload
from gsl.front.onnx.program import OnnxProgram
from tests.front.onnx.onnx_helpers import workload

pytest.importorskip("onnxruntime")

WHOLE = "m{0} = MatMul (n{0}, w)"
HALVES = """a{0}, b{0} = Split <axis = 1, num_outputs = 2> (n{0})
c{0}, d{0} = Split <axis = 0, num_outputs = 2> (w)
e{0} = MatMul (a{0}, c{0})
f{0} = MatMul (b{0}, d{0})
m{0} = Add (e{0}, f{0})"""
OFF = """k{0} = Constant <value_float = 1.02> ()
l{0} = CastLike (k{0}, w)
e{0} = MatMul (n{0}, w)
m{0} = Mul (e{0}, l{0})"""


def deep(step: str) -> Workload:
    """Ninety layers in bfloat16."""
    layers = "".join([
        f"n{each} = LayerNormalization (x{each}, g) {step.format(each)} t{each} = Tanh (m{each}) "
        f"x{each + 1} = Add (x{each}, t{each}) " for each in range(90)
    ])  # fmt: skip
    proto = onnx.parser.parse_model(f"""<ir_version: 10, opset_import: ["" : 22]>
main (bfloat16[64,64] x0) => (bfloat16[64,64] y) {{ {layers} y = Identity (x90) }}""")
    draw = np.random.default_rng(0).standard_normal
    proto.graph.initializer.extend([
        onnx.numpy_helper.from_array((draw((64, 64)) / 8).astype(ml_dtypes.bfloat16), "w"),
        onnx.numpy_helper.from_array(np.ones(64, ml_dtypes.bfloat16), "g"),
    ])
    return Workload(proto)


def test_rounding_of_many_layers_passes_as_float64_shows_it() -> None:
    whole, halves, off = map(deep, (WHOLE, HALVES, OFF))
    report = whole.compare(halves)
    assert report.passed
    assert re.search(r"ok \(by rounding: \S+ from the result in float64, from which the first is ", str(report))
    assert not whole.compare(halves, rtol=1.5e-2).passed, "a tolerance that is given is kept"
    (row,) = whole.compare(off).outputs
    assert not row.passed
    assert "by rounding" not in row.reason


def in_float64(wl: Workload, *values: Any) -> Any:
    assert isinstance(wl.program, OnnxProgram)
    return wl.program.in_float64()(*map(wl.program.wide, values))


X = np.linspace(-2, 2, 6, dtype=np.float32).reshape(2, 3)


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("h = Cast <to = 10> (x) y = Cast <to = 1> (h)", X),
        ("one = Constant <value_float = 0.1> () y = Add (x, one)", X + np.float64(np.float32(0.1))),
        ("one = Constant <value_floats = [0.1, 0.2, 0.3]> () y = Add (x, one)",
         X + np.float32([0.1, 0.2, 0.3]).astype("f8")),
        ("one = Constant <value = float[1] {0.1}> () y = Add (x, one)", X + np.float64(np.float32(0.1))),
        ("s = Shape (x) zeros = ConstantOfShape (s) y = Sub (zeros, x)", -X),
        ("c = Constant <value_ints = [1]> () t = Cast <to = 9> (c) b = Squeeze (t) y = If (b) <"
         "then_branch = yes () => (float[2,3] r) {h = Cast <to = 16> (x) r = Cast <to = 1> (h)},"
         "else_branch = no () => (float[2,3] s) {s = Neg (x)}>", X),
        ("y = Erf (x)", None),
    ],
)  # fmt: skip
def test_all_narrow_floats_are_wide(body: str, expected: Any) -> None:
    """The last one has no kernel in onnxruntime for float64."""
    found = in_float64(workload(body), X)
    assert found.dtype == np.float64
    if expected is not None:
        assert np.array_equal(found, expected)
    assert in_float64(workload(body), X.astype(np.float64)).dtype == np.float64


def test_functions_are_in_float64() -> None:
    proto = onnx.parser.parse_model("""<ir_version: 10, opset_import: ["" : 22, "own" : 1]>
main (float[2,3] x) => (float[2,3] y) { y = own.f (x) }
<domain: "own", opset_import: ["" : 22]> f (a) => (b) { h = Cast <to = 10> (a) b = Cast <to = 1> (h) }""")
    assert np.array_equal(in_float64(Workload(proto), X), X)


def test_where_float64_is_another_function_the_comparison_is_what_it_was() -> None:
    wl = workload("i = BitCast <to = 6> (x) j = Add (i, i) y = BitCast <to = 1> (j)", opset=26)
    assert wl.in_float64(dict(zip(wl.inputs, [X])), 0) == []


def test_random_numbers_are_others_in_float64() -> None:
    wl = workload("r = RandomNormalLike (x) y = Add (x, r)")
    assert wl.in_float64(dict(zip(wl.inputs, [X])), 0) == []

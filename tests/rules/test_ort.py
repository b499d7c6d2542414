"""The rules for onnxruntime hold, and its operators compute what is said of them."""

from __future__ import annotations

from typing import Any

import pytest

from gsl import Subst, Supported, Workload, attr, op, pat
from gsl.operators import ort
from gsl.rules import ORT
from gsl.rules.ort import RULES

onnx = pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")

THREE = "float[2,3,8] x, float[2,3,8] y"
W = "float[8] w"
CALLS = {
    "skip norm": (f"{THREE}, {W}, float[8] b", "SkipLayerNormalization <epsilon = 0.1> (x, y, w, b)",
                  ort.skip_layer_norm),
    "skip norm with a bias": (f"{THREE}, {W}, float[8] b", "SkipLayerNormalization <epsilon = 0.1> (x, y, w, b, w)",
                              ort.skip_layer_norm),
    "skip RMS norm": (f"{THREE}, {W}", "SkipSimplifiedLayerNormalization <epsilon = 0.1> (x, y, w)",
                      ort.skip_rms_norm),
    "bias and GELU": (f"{THREE}, {W}", "BiasGelu (x, w)", ort.bias_gelu),
    "fast GELU": (THREE, "FastGelu (x)", ort.fast_gelu),
    "bias and fast GELU": (f"{THREE}, {W}", "FastGelu (x, w)", ort.fast_gelu),
    "quick GELU": (THREE, "QuickGelu <alpha = 0.5> (x)", ort.quick_gelu),
    "product": (THREE, "FusedMatMul <transB = 1, alpha = 0.5> (x, y)", ort.fused_matmul),
    "left product": (THREE, "FusedMatMul <transA = 1> (x, y)", ort.fused_matmul),
    "attention": (THREE, "MultiHeadAttention <num_heads = 2> (x, y, y)", ort.multi_head_attention),
    "causal attention": (THREE, "MultiHeadAttention <num_heads = 4, unidirectional = 1> (x, y, y)",
                         ort.multi_head_attention),
    "masked attention": (f"{THREE}, float[1,1,3,3] m",
                         "MultiHeadAttention <num_heads = 2, scale = 0.25> (x, y, y, , , m)", ort.masked_attention),
}  # fmt: skip


def model(inputs: str, call: str, outputs: str = "result") -> Workload:
    results = ", ".join(f"float[a{n},b{n},c{n}] {name}" for n, name in enumerate(outputs.split(", ")) if name)
    names = ", ".join(outputs.split(", "))
    return Workload.from_onnx(onnx.parser.parse_model(f"""
        <ir_version: 10, opset_import: ["" : 20, "com.microsoft" : 1]>
        main ({inputs}) => ({results}) {{ {names} = com.microsoft.{call} }}"""))


def largest_error(wl: Workload, operator: Any) -> float:
    """The largest difference between what onnxruntime computes and the meaning of the one call of a model."""
    given = dict(zip(wl.inputs, wl.random_inputs()))
    (node,) = wl.with_operators(operator).graph.by_op()[operator.spec.name]
    meant = wl.program.evaluate(node, [given[operand.name] for operand in node.operands])
    meant = (meant[0], meant[3])[: len(wl.graph.outputs)] if isinstance(meant, tuple) else (meant,)
    found = wl(*given.values())
    found = found if isinstance(found, tuple) else (found,)
    return max(abs(one.numpy() - other).max() for one, other in zip(meant, found, strict=True))


@pytest.mark.parametrize("name", CALLS)
def test_an_operator_computes_its_meaning(name: str) -> None:
    inputs, call, operator = CALLS[name]
    assert largest_error(model(inputs, call), operator) < 1e-5


def test_the_sum_is_the_last_result() -> None:
    inputs, call, operator = CALLS["skip norm"]
    assert largest_error(model(inputs, call, "result, , , total"), operator) < 1e-5


def test_another_kernel_is_told() -> None:
    """GELU and its approximation differ by more than what is allowed above."""
    inputs, _, operator = CALLS["fast GELU"]
    wl = model(inputs, "FastGelu (x)")
    (node,) = wl.with_operators(operator).graph.by_op()[operator.spec.name]
    (x, _) = wl.random_inputs()
    exact = model(inputs, "Gelu (x)")
    assert abs(wl.program.evaluate(node, [x]).numpy() - exact(*wl.random_inputs())).max() > 1e-4


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.name)
def test_a_rule_holds(rule: Subst) -> None:
    assert rule in ORT
    assert isinstance(rule.verify(max_examples=20), Supported)


def test_a_wrong_rule_is_refuted() -> None:
    x, b = pat.Wildcard(), pat.Wildcard()
    layer = op.BiasAdd(x, b, axis=x.ndim - 1)
    wrong = Subst(op.GELU(layer, approximate="tanh"), ort.bias_gelu(x, b), where=attr.In(x.dtype, ("float32",)))
    assert not isinstance(wrong.verify(max_examples=50), Supported)

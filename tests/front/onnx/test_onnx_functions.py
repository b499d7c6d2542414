"""The functions of a model are rewritten once, for all their calls."""

from __future__ import annotations

from typing import Any

import onnx
import onnx_ir as ir
import pytest

from gsl import RuleSet, Subst, Workload, op, pat
from gsl.onnx import Pass
from tests.front.onnx.onnx_helpers import bytes_of, check

pytest.importorskip("onnxruntime")

X = pat.Wildcard()
SILU = Subst(X * op.Sigmoid(X), op.SiLU(X) * 1.0, name="silu")
TWICE = Subst(op.Negative(op.Negative(X)), X, name="twice")
FLAT = Subst(op.Reshape(X), op.Abs(op.Reshape(op.Abs(X), newshape=(6,))), where=X.shape == (2, 3), name="flat")
RULES = RuleSet([SILU, TWICE])

MAIN = "main (float[2,3] x, float[{rows},3] z) => (float[2,3] y, float[{rows},3] w) {body}"
CALLS = "{ y = local.outer <a = 0.5> (x) w = local.outer <a = 0.25> (z) }"
OUTER = """
<domain: "local", opset_import: ["" : 22, "local" : 1]> outer <a> (p) => (q) {
    r = Neg (p) s = Neg (r) t = local.inner (s) c = Constant <value_float: float = @a> () q = Mul (t, c) }"""
INNER = """
<domain: "local", opset_import: ["" : 22]> inner (u) => (v) { g = Sigmoid (u) v = Mul (u, g) }"""
SHAPED = """
<domain: "local", opset_import: ["" : 22]> inner (u) => (v) {
    f = Constant <value_ints: ints = [-1]> () h = Reshape (u, f) d = Shape (u) v = Reshape (h, d) }"""


def workload(body: str = CALLS, rows: int = 4, inner: str = INNER) -> Workload:
    text = '<ir_version: 10, opset_import: ["" : 22, "local" : 1]>' + MAIN.format(rows=rows, body=body) + OUTER + inner
    return Workload(ir.serde.deserialize_model(onnx.parser.parse_model(text)))


def function(wl: Workload, name: str) -> list[str]:
    return [node.op_type for node in wl.model.functions["local", name, ""]]


@pytest.mark.parametrize("body", [
    CALLS,
    "{ y = local.outer <a = 2.0> (x) w = local.inner (z) }",
], ids=["calls of one", "calls from two"])  # fmt: skip
def test_a_body_is_rewritten_once(body: str) -> None:
    wl = workload(body)
    before = bytes_of(wl.model)
    new = RULES(wl)
    assert new.trace.summary() == {"silu": 1, "twice": 1}
    assert list(new.trace.inside) == ["local::outer", "local::inner"]
    assert function(new, "outer") == ["inner", "Constant", "Mul"]
    check(new.model)
    wl.compare(new).check()
    assert bytes_of(wl.model) == before
    assert bytes_of(new.trace.replay(wl).model) == bytes_of(new.model)


def test_a_pass_works_in_functions() -> None:
    wl = workload()
    assert Pass(RULES)(wl.model).modified
    assert bytes_of(wl.model) == bytes_of(RULES(workload()).model)


def test_a_call_in_a_branch_tells_the_types() -> None:
    wl = workload("""{ c = Constant <value: tensor = bool {1}> () w = Identity (z)
        y = If (c) <then_branch = one () => (float[2,3] u) { u = local.inner (x) },
                    else_branch = two () => (float[2,3] v) { v = Identity (x) }> }""")
    new = SILU(wl)
    assert list(new.trace.inside) == ["local::inner"]
    check(new.model)
    wl.compare(new).check()


def test_what_no_rule_touches_is_the_very_same() -> None:
    wl = workload()
    assert Subst(op.Cos(X), op.Sin(X), name="none")(wl).model is wl.model
    kept = bytes_of(wl.model)
    one = SILU(wl)
    assert function(one, "outer") == ["Neg", "Neg", "inner", "Constant", "Mul"]
    assert bytes_of(wl.model) == kept


@pytest.mark.parametrize(("rows", "fired"), [(2, 1), (4, 0)])
def test_a_rule_holds_for_all_calls(rows: int, fired: int) -> None:
    """What a rule demands of a size, all calls have to grant."""
    wl = workload(rows=rows, inner=SHAPED)
    new = FLAT(wl)
    assert new.trace.count() == fired
    check(new.model)
    wl.compare(new).check() if not fired else None


@pytest.mark.parametrize("body", [
    "{ y = Identity (x) w = Identity (z) }",
    "{ n = Cast <to: int = 1> (x) k = local.inner (x) o = local.inner () y = Identity (n) w = Identity (z) }",
], ids=["not called", "called without an operand"])  # fmt: skip
def test_nothing_is_known_of_the_operands(body: str) -> None:
    wl = workload(body)
    assert "local::inner" not in SILU(wl).trace.inside


def test_new_weights_are_constants() -> None:
    """A function has no initialisers; types in it would hold for one call."""
    new = SILU(workload())
    body: Any = new.model.functions["local", "inner", ""]
    assert not body.graph.initializers
    assert {value.type for value in body.inputs} == {None}
    assert {value.type for node in body for value in node.outputs} == {None}


def test_calls_have_the_types_that_onnx_does_not_infer() -> None:
    """What uses the result of a function needs its type, and ONNX knows nothing of onnxruntime's operators."""
    wl = workload("{ b = Cast <to: int = 9> (x) a = local.inner (x) y = Where (b, a, x) w = Neg (z) }")
    new = Subst(X * op.Sigmoid(X), pat.Call("com.microsoft::QuickGelu", X, alpha=1.0), name="quick")(wl)
    assert function(new, "inner") == ["QuickGelu"]
    check(new.model)
    wl.compare(new).check()

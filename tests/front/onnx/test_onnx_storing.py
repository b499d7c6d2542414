"""What rules leave alone comes back exactly, and what they make is a valid model."""

from __future__ import annotations

import sys

import numpy as np
import onnx
import onnx_ir as ir
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st

from gsl import RuleSet, Subst, Workload, op, pat, rules
from gsl.errors import FrontEndError, UntypedWarning, WorkloadError
from gsl.front.onnx import spellings
from gsl.front.onnx.copying import Copies, copied
from gsl.graph import Node
from gsl.graph.node import Origin
from gsl.graph.splice import Replacement, Splicer, new_node
from gsl.onnx import Pass
from tests import tiers
from tests.front.onnx.onnx_helpers import anew, bytes_of, check, model, nodes, workload

X = pat.Wildcard()
RELUS = Subst(op.ReLU(op.ReLU(X)), op.ReLU(X), name="relus")


def annotated() -> ir.Model:
    """A model with everything that a rule has nothing to do with."""
    found = model(
        "a = Relu(x) b = Relu(a) c = Softsign(b) one = Constant<value_float: float = 1.0>() d = Add(c, one) "
        "e = Sigmoid(x) y = Mul(d, e) z = Identity(e)",
        outputs="float[2,3] y, float[2,3] z", more="float[2,3] c, float unused = {7.0}",
    )  # fmt: skip
    found.metadata_props["who"] = "the model"
    found.doc_string = "a model"
    found.graph.doc_string = "a graph"
    for place, node in enumerate(found.graph):
        node.name, node.doc_string = f"node {place}", f"line {place}"
        node.metadata_props["place"] = str(place)
        node.outputs[0].metadata_props["of"] = str(place)
    return found


def test_nothing_is_done() -> None:
    native = annotated()
    before = bytes_of(native)
    wl = Workload(native)
    assert wl.program.store(wl.graph.copy()) is wl.program
    assert RELUS(workload("y = Exp(x)")).trace.firings == []
    assert bytes_of(native) == before


def test_no_rule_fires_in_what_nothing_uses() -> None:
    """Neither where a call that nothing uses is the end of a match, nor where one uses a part of it."""
    dead = workload("y = Abs(x) a = Relu(x) b = Relu(a)")
    assert RELUS(dead).model is dead.model
    new = RELUS(workload("a = Relu(x) b = Relu(a) y = Abs(b) c = Exp(a)"))
    assert sorted(nodes(new.model)) == ["Abs", "Exp", "Relu", "Relu"]
    assert RELUS(new).model is new.model


def test_a_number_that_a_dtype_has_as_infinity_is_not_written() -> None:
    # Torch multiplies with the number itself, so that the product of a small one is finite.
    wl = workload("y = Neg(x)", "float16[2,3] x", "float16[2,3] y")
    new = Subst(op.Negative(X), op.Multiply(X, 90000.0), name="large")(wl)
    assert not new.trace.firings
    assert "90000.0 is no number of float16" in str(new.trace)


def test_an_array_in_a_target_is_an_initialiser() -> None:
    pair = pat.Call("onnx::QuantizeLinear", X, pat.Const(0.5), pat.Const(3, "int8"))
    rule = Subst(op.ReLU(X), op.Cast(pair, dtype="float32") + np.ones(3, dtype=np.float32))
    old = workload("y = Relu(x)")
    new = rule(old)
    check(new.model)
    assert nodes(new.model) == ["QuantizeLinear", "Cast", "Add"]
    fed = torch.zeros(2, 3)
    assert torch.equal(torch.as_tensor(new(fed)), fed + 4)


def test_all_but_the_match_is_as_it_was() -> None:
    native = annotated()
    before = bytes_of(native)
    new = RELUS(Workload(native))
    assert bytes_of(native) == before
    check(new.model)
    old = {node.name: node for node in ir.to_proto(native).graph.node}
    kept = [node for node in ir.to_proto(new.model).graph.node if node.name in old]
    assert [node.name for node in kept] == [f"node {place}" for place in range(1, 8)]
    for node in kept[1:]:
        assert node.SerializeToString(deterministic=True) == old[node.name].SerializeToString(deterministic=True)
    # The new call stands in the place of what it replaces, and has another operand.
    (kept[0].input[0],) = old["node 1"].input
    assert kept[0] == old["node 1"]
    one, other = ir.to_proto(native), ir.to_proto(new.model)
    assert list(one.metadata_props) == list(other.metadata_props)
    assert list(one.graph.initializer) == list(other.graph.initializer)
    assert list(one.graph.output) == list(other.graph.output)
    assert [v for v in one.graph.value_info if v.name in "cde"] == [
        v for v in other.graph.value_info if v.name in "cde"
    ]
    assert other.graph.doc_string == "a graph"
    Workload(native).compare(new).check()


def test_a_convolution_takes_its_norm_and_its_bias() -> None:
    random = np.random.default_rng(0)
    wl = workload(
        "c = Conv<pads: ints = [1, 1, 1, 1]>(x, w) n = BatchNormalization(c, g, b, m, v) y = Relu(n)",
        "float[1,3,5,5] x", "float[1,4,5,5] y",
        more="float[4,3,3,3] w = {" + ",".join(map(str, random.random(108))) + "}, float[4] g = {1, 2, 3, 4}, "
        "float[4] b = {1, 0, 1, 0}, float[4] m = {0, 1, 0, 1}, float[4] v = {1, 2, 1, 2}",
    )  # fmt: skip
    new = rules.BOOK(wl)
    assert nodes(new.model) == ["Conv", "Relu"]
    assert len(new.model.graph.node(0).inputs) == 3
    assert [value.name for value in new.model.graph.outputs] == ["y"]
    check(new.model)
    wl.compare(new).check()
    # The old weights are gone, and those that are shared stay.
    assert len(new.params) == 2
    assert len(wl.params) == 5


@pytest.mark.parametrize(
    ("body", "outputs", "expected"),
    [
        ("a = Relu(x) y = Relu(a)", "float[2,3] y", ["Relu"]),
        ("a = Relu(x) y = Relu(a)", "float[2,3] a, float[2,3] y", ["Relu", "Identity"]),
        ("a = Abs(x) b = Relu(a) y = Relu(b)", "float[2,3] y", ["Abs", "Relu"]),
    ],
)
def test_outputs_keep_their_names(body: str, outputs: str, expected: list[str]) -> None:
    wl = workload(body, outputs=outputs)
    new = RELUS(wl)
    check(new.model)
    assert [value.name for value in new.model.graph.outputs] == [value.name for value in wl.model.graph.outputs]
    wl.compare(new).check()


def in_both_ways(rule: Subst, body: str, outputs: str = "float[2,3] y") -> ir.Model:
    """What a rule makes of a model, as a new one and in place: the same."""
    wl = workload(body, outputs=outputs)
    new, changed = rule(wl), model(body, outputs=outputs)
    Pass(rule)(changed)
    check(changed)
    assert bytes_of(changed) == bytes_of(new.model)
    wl.compare(new).check()
    return changed


def test_a_new_call_has_the_name_and_the_users_of_what_it_replaces() -> None:
    rule = Subst(op.ReLU(op.Negative(op.ReLU(X))), op.Exp(op.Abs(X)) * 0.0, name="zero")
    found = in_both_ways(rule, "a = Relu(x) b = Neg(a) c = Relu(b) d = Exp(c) e = Neg(c) y = Add(d, e)")
    assert nodes(found) == ["Abs", "Exp", "Mul", "Exp", "Neg", "Add"]
    assert [node.outputs[0].name for node in found.graph][2:] == ["c", "d", "e", "y"]


def test_a_call_that_writes_nothing_lets_its_operand_be_used() -> None:
    """A reversal of no axis is its operand, which has a name of its own."""
    rule = Subst(op.Log(op.Exp(X)), op.Reverse(X, axis=()), name="inverse")
    body = "a = Abs(x) b = Exp(a) c = Log(b) d = Neg(c) y = Add(d, c)"
    assert nodes(in_both_ways(rule, body)) == ["Abs", "Neg", "Add"]
    assert nodes(in_both_ways(rule, "b = Exp(x) y = Log(b)")) == ["Identity"]
    found = in_both_ways(rule, body, "float[2,3] y, float[2,3] c")
    assert sorted(nodes(found)) == ["Abs", "Add", "Identity", "Neg"]


def test_a_branch_of_several_nodes_is_removed() -> None:
    body = """
      s = ReduceSum<keepdims: int = 0>(x) t = Greater(s, zero) a = Abs(x)
      z = If(t) <then_branch = one () => (float[2,3] p) { u = Exp(a) v = Neg(u) p = Exp(v) },
                 else_branch = two () => (float[2,3] q) { w = Neg(a) q = Mul(w, scale) }> b = Relu(z) y = Add(b, x)
    """
    rule = Subst(op.Add(op.ReLU(pat.Wildcard()), X), op.Exp(X), name="no branch")
    native = model(body, more="float zero = {0.0}, float scale = {2.0}")
    Pass(rule)(native)
    assert nodes(native) == ["Exp"]
    assert not native.graph.initializers
    check(native)


def test_what_goes_uses_a_value_twice_that_another_one_computes() -> None:
    wl, x = workload("a = Exp(x) b = Abs(a) c = Add(b, b) d = Sqrt(c) e = Neg(a) y = Add(d, e)"), pat.Wildcard()
    half = op.Abs(op.Exp(x))
    new = Subst(op.Sqrt(half + half), op.Tanh(x), name="root")(wl)
    assert nodes(new.model) == ["Exp", "Tanh", "Neg", "Add"]
    check(new.model)


def test_a_node_with_graphs_becomes_another_one() -> None:
    body = """
      s = ReduceSum<keepdims: int = 0>(x) t = Greater(s, zero) a = Abs(x)
      y = If(t) <then_branch = one () => (float[2,3] p) { p = Exp(a) },
                 else_branch = two () => (float[2,3] q) { q = Neg(a) }>
    """
    native = model(body, more="float zero = {0.0}")
    program = Workload(native).program
    view = program.load()
    (branch,) = (node for node in view if node.opaque)
    new = Node("exp", (view.nodes[0],), {}, branch.type, "new")
    splicer = Splicer(view)
    splicer.apply(Replacement((branch,), (new_node(new, Origin("rule", (branch,))),)), (branch,))
    splicer.finish()
    copy = program.store(view).native
    assert nodes(copy) == ["Exp"]
    program.update(view)
    assert nodes(native) == ["Exp"]
    assert [value.name for value in native.graph.outputs] == ["y"]
    check(native)
    assert bytes_of(copy) == bytes_of(native)


def test_an_output_that_is_another_one_is_used() -> None:
    native = model("a = Relu(x) b = Identity(a) y = Softsign(b)", outputs="float[2,3] a, float[2,3] b, float[2,3] y")
    wl = Workload(native)
    assert wl.program.store(wl.program.load()).native is native


def test_an_input_becomes_an_output() -> None:
    wl = workload("y = Identity(x)", more="")
    new = Subst(op.Exp(op.Log(X)), X, name="inverse")(workload("a = Log(x) y = Exp(a)"))
    assert nodes(new.model) == ["Identity"]
    check(new.model)
    assert new.text() == wl.text()
    assert new.program.store(new.graph.copy()) is new.program


def test_a_value_that_is_two_outputs_stays_two() -> None:
    rule = Subst(op.Negative(op.Negative(X)), X, name="negative twice")
    for body, expected in (("a = Neg(x) y = Neg(a)", ["Identity"]), ("b = Abs(x) a = Neg(b) y = Neg(a)", ["Abs"])):
        found = in_both_ways(rule, body, "float[2,3] y, float[2,3] y")
        assert nodes(found) == expected
        assert [value.name for value in found.graph.outputs] == ["y", "y"]


def test_branches_use_what_rules_make() -> None:
    body = """
      a = Relu(x) b = Relu(a) s = ReduceSum<keepdims: int = 0>(x) t = Greater(s, zero)
      y = If(t) <then_branch = one () => (float[2,3] p) { p = Exp(b) },
                 else_branch = two () => (float[2,3] q) { q = Abs(b) }>
    """
    wl = workload(body, more="float zero = {0.0}")
    new = RELUS(wl)
    assert len(new.trace.firings) == 1
    assert nodes(new.model).count("Relu") == 1
    check(new.model)
    for x in (np.ones((2, 3), np.float32), -np.ones((2, 3), np.float32)):
        np.testing.assert_array_equal(wl(x), new(x))
    # The branches of the old model use the old value.
    assert nodes(wl.model).count("Relu") == 2


def test_native_operators_are_matched_and_written() -> None:
    wl = workload("a = Softsign(x) y = Relu(a)")
    fuse = Subst(op.ReLU(pat.Call("onnx::Softsign", X)), pat.Call("onnx::Celu", X, alpha=0.5), name="native")
    new = fuse(wl)
    (node,) = new.model.graph
    assert node.op_type == "Celu"
    assert node.attributes["alpha"].value == 0.5
    assert str(new.graph.outputs[0].type) == "float32[2, 3]"


@pytest.mark.parametrize(("made", "reason"), [
    (pat.Call("onnx::Rleu", X), "version 22 of ONNX's operators has no Rleu: did you mean 'Relu'"),
    (pat.Call("onnx::Swish", X), "version 22 of ONNX's operators has no Swish, which came with version 24"),
    (pat.Call("onnx::Softmax", X, axs=1), "ONNX does not take the call: Unrecognized attribute: axs for operator "),
    (pat.Call("onnx::Softsign", X, X), "input size 2 not in range [min=1, max=1]"),
    (pat.Call("onnx::Gemm", X, X, X), "ONNX does not take the call: [ShapeInferenceError]"),
])  # fmt: skip
def test_a_call_that_onnx_does_not_know_is_refused(made: pat.Call, reason: str) -> None:
    wl = workload("a = Relu(x) y = Relu(a)")
    new = Subst(op.ReLU(op.ReLU(X)), made, name="wrong")(wl)
    assert new.model is wl.model
    (refused,) = new.trace.refused
    assert reason in refused.reason


def test_a_result_whose_type_onnx_does_not_infer_has_it() -> None:
    quick = Subst(X * op.Sigmoid(X), pat.Call("com.microsoft::QuickGelu", X, alpha=1.0), name="quick")
    body, more = "g = Sigmoid(x) m = Mul(x, g) y = Expand(m, s)", "int64[3] s = {2, 2, 3}"
    changed = model(body, outputs="float[2,2,3] y", more=more)
    with pytest.warns(UntypedWarning):
        check(quick(Workload(changed)).model)
    with pytest.warns(UntypedWarning):
        Pass(quick)(changed)
    check(changed)


def test_functions_and_unknown_calls_stay() -> None:
    text = model("a = own.twice(x) b = Relu(a) y = Relu(b)", others=', "own" : 1')
    x = ir.Value(name="v")
    inner = ir.node("Add", [x, x])
    inner.outputs[0].name = "w"
    body = ir.Graph([x], inner.outputs, nodes=[inner], opset_imports={"": 22})
    native = ir.Model(
        text.graph, ir_version=10, functions=[ir.Function("own", "twice", graph=body, attributes=[])]
    )  # fmt: skip
    wl = Workload(native)
    new = RELUS(wl)
    assert nodes(new.model) == ["twice", "Relu"]
    assert list(new.model.functions) == list(native.functions)
    wl.compare(new).check()


def test_a_call_that_the_version_lacks_is_composed() -> None:
    swap = Subst(op.ReLU(X), op.GELU(X), name="swap")
    old, new = (swap(workload("y = Relu(x)", opset=opset)) for opset in (13, 20))
    assert nodes(new.model) == ["Gelu"]
    assert "Erf" in nodes(old.model)
    check(old.model)
    old.compare(new, strategies="normal").check()


IN_DOUBLE = {
    "HardSwish": op.Hardswish(X), "HardSigmoid": op.Hardsigmoid(X), "Mish": op.Mish(X), "Softplus": op.Softplus(X),
    "Elu": op.ELU(X, alpha=0.7), "Selu": op.SELU(X), "LeakyRelu": op.LeakyReLU(X, alpha=0.3),
    "PRelu": op.PReLU(X, op.Full(0.3, shape=(1,), dtype="float64")),
}  # fmt: skip


@pytest.mark.parametrize("opset", [13, 18, 22])
@pytest.mark.parametrize("name", IN_DOUBLE)
def test_what_onnxruntime_lacks_in_double_precision_is_composed(name: str, opset: int) -> None:
    """The model ran before the rewrite, so it runs afterwards, and computes in double precision."""
    wl = workload("y = Tanh(x)", "double[2,3] x", "double[2,3] y", opset=opset)
    new = Subst(op.Tanh(X), IN_DOUBLE[name], name="swap")(wl)
    assert new.trace.count() == 1
    assert name not in nodes(new.model)
    check(new.model)
    fed = np.random.default_rng(0).normal(size=(2, 3)) * 4
    expected = IN_TORCH[name](torch.from_numpy(fed))
    new.build(runtime="onnxruntime")
    assert np.allclose(new(fed), expected, rtol=1e-7, atol=1e-7)


IN_TORCH = {
    "HardSwish": F.hardswish, "HardSigmoid": F.hardsigmoid, "Mish": F.mish, "Softplus": F.softplus,
    "Elu": lambda x: F.elu(x, 0.7), "Selu": F.selu, "LeakyRelu": lambda x: F.leaky_relu(x, 0.3),
    "PRelu": lambda x: F.leaky_relu(x, 0.3),
}  # fmt: skip


def test_an_idiom_in_double_precision_stays_as_it_runs() -> None:
    text = "a = Add (x, three) c = Clip (a, zero, six) m = Mul (x, c) y = Div (m, six)"
    old, new = ((rules.NORMAL + rules.IDIOMS)(workload(
        text, f"{dtype}[2,3] x", f"{dtype}[2,3] y",
        more=f"{dtype} three = {{3}}, {dtype} zero = {{0}}, {dtype} six = {{6}}",
    )) for dtype in ("double", "float"))  # fmt: skip
    assert nodes(new.model) == ["HardSwish"]
    assert "HardSwish" not in nodes(old.model)
    old.build(runtime="onnxruntime")


@pytest.mark.parametrize(("size", "of_what", "name"), [
    ("2,3,0", op.LayerNorm(X, axis=(2,), center=False, scale=False), "LayerNormalization"),
    ("2,3,0", op.RMSNorm(X, axis=(2,)), "RMSNormalization"),
    ("0,1,3,4", op.Attention(X, X, X), "Attention"), ("1,0,3,4", op.Attention(X, X, X), "Attention"),
    ("1,1,0,4", op.Attention(X, X, X), "Attention"),
])  # fmt: skip
def test_onnxruntime_takes_no_empty_axes_there(size: str, of_what: pat.Call, name: str) -> None:
    wl = workload("y = Tanh(x)", f"float[{size}] x", f"float[{size}] y", opset=23)
    new = Subst(op.Tanh(X), of_what, name="swap")(wl)
    assert new.trace.count() == 1
    assert name not in nodes(new.model)
    check(new.model)
    shape = [int(each) for each in size.split(",")]
    new.build(runtime="onnxruntime")
    assert new(np.zeros(shape, dtype=np.float32)).shape == tuple(shape)


def test_integers_become_nodes_that_onnxruntime_runs() -> None:
    wl = workload("t = Transpose(w) h = MatMul(x, t) y = Abs(h)", "int64[2,3] x, int64[4,3] w", "int64[2,4] y")
    weight = pat.Wildcard()
    relu = Subst(op.Abs(X), op.ReLU(X), name="relu")
    turned = Subst(op.Dense(X, weight, out_dtype=""), op.Dense(-X, weight, out_dtype=""), name="turned")
    new = RuleSet([relu, turned])(wl)
    assert new.trace.summary() == {"relu": 1, "turned": 1}
    new.build(runtime="onnxruntime")
    x, w = np.arange(-3, 3).reshape(2, 3), np.arange(12).reshape(4, 3) - 5
    assert np.array_equal(new(x, w), np.maximum(-x @ w.T, 0))


@pytest.mark.parametrize("body", [
    "g = Sigmoid (x) y = Mul (x, g)",
    "g = Sigmoid (x) r = Mul (x, g) y = Relu (r)",
    "a = Abs (x) b = Mul (a, a) c = Sigmoid (a) d = Mul (a, c) y = Add (d, b)",
])  # fmt: skip
def test_what_would_be_written_as_it_was_stays(body: str) -> None:
    wl = workload(body)
    before = bytes_of(wl.model)
    rule = Subst(X * op.Sigmoid(X), op.SiLU(X), name="silu")
    new, native = rule(wl), wl.model.clone()
    assert new.model is wl.model
    assert not new.trace.count()
    assert [(each.rule, "in the words that are there" in each.reason) for each in new.trace.refused] == [("silu", True)]
    assert not Pass(rule)(native).modified
    assert bytes_of(wl.model) == before == bytes_of(native)
    explanation = rule.explain(wl)
    assert not explanation
    assert explanation.refused == tuple(new.trace.refused)
    assert explanation.attempt.failed
    assert ": 1 match, each of them refused\n  refused at %" in str(explanation)


def test_attention_that_is_written_out_again_has_no_more_nodes() -> None:
    """The version of the model has no Attention. What turns the axes of the keys stays one node."""
    heads = "q = Transpose<perm = [0,2,1,3]>(a) k = Transpose<perm = [0,2,3,1]>(b) v = Transpose<perm = [0,2,1,3]>(c) "
    wl = workload(
        heads + "s = MatMul(q, k) m = Mul(s, scale) p = Softmax(m) y = MatMul(p, v)",
        "float[2,5,3,4] a, float[2,5,3,4] b, float[2,5,3,4] c", "float[2,3,5,4] y",
        opset=18, more="float scale = {0.3}",
    )  # fmt: skip
    book = rules.NORMAL + rules.IDIOMS
    new = book(wl, iterative=True)
    assert "attention" in new.trace.summary()
    assert sorted(nodes(new.model)) == sorted(nodes(wl.model))
    again = book(new, iterative=True)
    assert not again.trace.firings
    assert again.model is new.model
    wl.compare(new).check()


def test_a_model_in_which_new_nodes_would_be_used_by_nothing_stays() -> None:
    """Keys that are turned for attention, which would turn them back where it is written out."""
    wl = workload(
        "k = Reshape(b, s) m = MatMul(a, k) p = Softmax(m) y = MatMul(p, c)",
        "float[2,3,5,4] a, float[2,3,7,4] b, float[2,3,7,4] c", "float[2,3,5,4] y", opset=22,
        more="int64[4] s = {2,3,4,7}",
    )  # fmt: skip
    once = rules.IDIOMS(wl, iterative=True)
    again = rules.IDIOMS(once, iterative=True)
    assert again.model is once.model
    assert "attention" in {each.rule for each in again.trace.refused if "in the words that are there" in each.reason}
    native = once.model.clone()
    assert not Pass(rules.IDIOMS)(native).modified
    assert bytes_of(native) == bytes_of(once.model)


def test_a_norm_that_is_written_out_again_stays() -> None:
    """Two rules make it, one of what the other made, and a node uses it."""
    wl = workload(
        "m = ReduceMean <axes = [-1]> (x) c = Sub (x, m) s = Pow (c, two) v = ReduceMean <axes = [-1]> (s) "
        "w = Add (v, e) r = Sqrt (w) n = Div (c, r) y = Relu (n)",
        opset=16, more="float two = {2}, float e = {0.00001}",
    )  # fmt: skip
    once = rules.IDIOMS(wl, iterative=True)
    wl.compare(once).check()
    assert [value.name for value in once.model.graph[-1].inputs] == ["n"]
    again = rules.IDIOMS(Workload.from_onnx(once.model), iterative=True)
    assert not again.trace.firings
    assert {"layer-norm-centre", "rms-norm"} <= {each.rule for each in again.trace.refused}
    assert bytes_of(again.model) == bytes_of(once.model)


def test_what_others_change_does_not_stay() -> None:
    """The product would stay, but another rule replaces one of its operands."""
    wl = workload("g = Sigmoid (x) y = Mul (x, g) z = Abs (g)", outputs="float[2,3] y, float[2,3] z")
    silu = Subst(X * op.Sigmoid(X), op.SiLU(X), name="silu")
    apart = Subst(op.Sigmoid(X), op.Tanh(X * 0.5) * 0.5 + 0.5, name="apart")
    new = RuleSet([silu, apart])(wl, iterative=True)
    assert new.trace.summary() == {"silu": 1, "apart": 1}
    assert sorted(nodes(new.model)) == ["Abs", "Add", "Mul", "Mul", "Mul", "Sigmoid", "Tanh"]
    wl.compare(new).check()
    check(new.model)


def test_a_set_that_tidies_shares_in_place_where_no_rule_fires() -> None:
    native = model("a = Abs (x) b = Abs (x) y = Add (a, b)")
    assert Pass(RuleSet([Subst(op.Negative(X), X, name="none")], tidy=True))(native).modified
    assert nodes(native) == ["Abs", "Add"]


def test_a_call_that_cannot_be_written_is_refused() -> None:
    wl = workload("y = Add(x, x)")
    new = Subst(op.Add(X, X), op.Atan2(X, X), name="refused")(wl)
    assert not new.trace.firings
    assert "ONNX" in str(new.trace.refused)


FILLED = Subst(op.Tanh(X), op.Tanh(X) + op.Zeros(shape=X.shape, dtype="float32"), name="filled")


@pytest.mark.parametrize("opset", [13, 15])
def test_a_size_is_computed_in_the_version_of_the_model(opset: int) -> None:
    wl = workload("y = Tanh(x)", "float[2,n] x", "float[2,n] y", opset=opset)
    new = FILLED(wl)
    check(new.model)
    wl.compare(new, sizes={"n": 3}).check()


@pytest.mark.parametrize("size", [(2, 3), (0, 3), (3, 0)])
def test_symbolic_sizes_of_a_reshape_may_be_zero(size: tuple[int, int]) -> None:
    wl = workload(
        "s = Shape(x) a = Gather(s, zero) b = Gather(s, one) n = Mul(a, b) t = Concat<axis = 0>(b, a) "
        "flat = Reshape<allowzero = 1>(x, n) y = Reshape<allowzero = 1>(flat, t)",
        "float[n,m] x", "float[m,n] y", more="int64[1] zero = {0}, int64[1] one = {1}",
    )  # fmt: skip
    new = rules.BOOK(wl)
    assert new.trace.summary() == {"reshape-reshape": 1}
    check(new.model)
    x = np.arange(size[0] * size[1], dtype=np.float32).reshape(size)
    assert np.array_equal(new(x), x.reshape(size[::-1]))
    assert np.array_equal(wl(x), new(x))


def test_a_size_that_no_input_has_is_refused() -> None:
    body = "a = Tanh(x) n = NonZero(x) f = Cast<to: int = 1>(n) y = Tanh(f)"
    wl = workload(body, outputs="float[2,3] a, float[2,m] y")
    trace = FILLED(wl).trace
    assert len(trace.firings) == 1
    assert "that of no input" in str(trace.refused)


def test_a_dropout_that_drops_nothing_is_removed_in_place() -> None:
    native = model("a = Dropout(x, rate, training) y = Relu(a)", more="float rate = {0.5}, bool training = {0}")
    Pass(rules.BOOK)(native)
    assert nodes(native) == ["Relu"]


def test_only_models_of_onnx_have_one() -> None:
    import torch

    torch_wl = Workload.from_torch(torch.nn.ReLU(), (torch.ones(2),))
    for use in (lambda: torch_wl.model, lambda: torch_wl.save("x.onnx")):
        with pytest.raises(WorkloadError, match=r"torch\.export|from_onnx"):
            use()
    with pytest.raises(FrontEndError, match=r"expected an onnx_ir\.Model"):
        Workload.from_onnx(3)


def everything() -> ir.Model:
    """A model with what a copy has to keep, and the notes of other passes, which are not saved."""
    found = annotated()
    found.graph.node(0).meta["seen"] = True
    found.graph.node(0).outputs[0].meta["seen"] = 1
    found.graph.meta["seen"] = 2
    found.graph.meta.invalidate("seen")
    return found


BRANCHES = """
  a = Relu(x) b = Relu(a) s = ReduceSum<keepdims: int = 0>(x) t = Greater(s, zero)
  y = If(t) <then_branch = one () => (float[2,3] p) { p = Exp(b) },
             else_branch = two () => (float[2,3] q) { q = Abs(b) }>
"""


@pytest.mark.parametrize("kind", ["annotated", "branches", "symbols"])
def test_a_copy_is_the_same(kind: str) -> None:
    native = {
        "annotated": everything,
        "branches": lambda: model(BRANCHES, more="float zero = {0.0}"),
        "symbols": lambda: model("y = Add(x, w)", "float[n,3] x", "float[n,3] y", more="float[3] w = {1, 2, 3}"),
    }[kind]()
    values = Copies()
    copy = copied(native, values)
    assert bytes_of(copy) == bytes_of(native)
    assert values.keys() >= {*native.graph.inputs, *(value for node in native.graph for value in node.outputs)}
    assert set(values).isdisjoint(values.values())
    assert list(copy.graph.meta.items()) == list(native.graph.meta.items())
    assert all(new.meta == old.meta for new, old in zip(copy.graph, native.graph))
    assert all(copy.graph.meta.is_valid(name) == native.graph.meta.is_valid(name) for name in native.graph.meta)
    # What is done to a copy does not reach the original.
    before = bytes_of(native)
    copy.graph.node(0).outputs[0].shape = ir.Shape([7])
    copy.graph.inputs[0].shape[0] = 5  # type: ignore[index]
    copy.graph.node(0).metadata_props["new"] = "1"
    assert bytes_of(native) == before


def test_nodes_that_are_read_alike_differ_in_what_matters() -> None:
    """Each of these differs from another one in one fact only: a literal, an attribute, a type, the same operand twice,
    the operator of an operand."""
    wl = workload(
        "a = Add(x, half) b = Add(x, two) c = Add(x, x) d = Add(x, z) e = Add(z, z) "
        "f = Softmax<axis: int = 0>(x) g = Softmax<axis: int = 1>(x) h = Softmax<axis: int = 0>(z) "
        "i = MatMul(x, v) j = Add(i, w) k = Add(x, w) l = Add(x, w2) m = LeakyRelu<alpha: float = 0.5>(x) "
        "n = LeakyRelu<alpha: float = 0.25>(x) y = Sum(a, b, c, d, e, f, g, h, j, k, l, m, n)",
        "float[2,3] x, float[2,3] z",
        more="float half = {0.5}, float two = {2.0}, float[3,3] v = {1,2,3,4,5,6,7,8,9}, float[3] w = {1,2,3}, "
        "float[3] w2 = {4,5,6}",
    )  # fmt: skip
    calls = [line.partition(" = ")[2] for line in wl.text().splitlines()]
    assert [call for call in calls if "(" in call][:14] == [
        "add(%x, 0.5)", "add(%x, 2.0)", "add(%x, %x)", "add(%x, %z)", "add(%z, %z)", "nn.softmax(%x, axis=0)",
        "nn.softmax(%x)", "nn.softmax(%z, axis=0)", "matmul(%x, %v)", "nn.bias_add(%i, %w)", "add(%x, %w)",
        "add(%x, %w2)", "nn.leaky_relu(%x, alpha=0.5)", "nn.leaky_relu(%x, alpha=0.25)",
    ]  # fmt: skip
    assert wl.program.store(wl.graph.copy()) is wl.program


def test_a_pass_changes_the_model_itself() -> None:
    native, other = annotated(), annotated()
    new = RELUS(Workload(other)).model
    step = Pass(RELUS)
    result = ir.passes.Sequential(step)(native)
    assert result.modified
    assert result.model is native
    assert bytes_of(native) == bytes_of(new)
    assert [firing.rule for firing in step.traces[0].firings] == ["relus"]
    before = bytes_of(native)
    assert not ir.passes.Sequential(step)(native).modified
    assert bytes_of(native) == before


def test_a_pass_folds_weights() -> None:
    native = model("a = Exp(w) y = Add(x, a)", more="float[3] w = {1.0, -3.0, 0.0}")
    w = pat.Variable()
    double = Subst(op.Add(X, op.Exp(w)), op.Add(X, op.Exp(w) * 2.0), name="double")
    program = Workload(native).program
    assert set(program.params) == {"w"}
    assert ir.passes.Sequential(Pass(double))(native).modified
    assert nodes(native) == ["Add"]
    check(native)


def test_a_new_number_in_a_model_of_the_oldest_format() -> None:
    """There, all initialisers are inputs."""
    native = model("y = Relu(x)")
    native.ir_version = 3
    new = Subst(op.ReLU(X), op.ReLU(X) * 2.0, name="twice")(Workload(native)).model
    check(new)
    assert nodes(new) == ["Constant", "Relu", "Mul"]


def test_a_pass_that_fails_leaves_the_model(monkeypatch: pytest.MonkeyPatch) -> None:
    native = model("a = Relu(x) b = Relu(a) c = Exp(b) d = Relu(c) e = Relu(d) y = Abs(e)")
    before = bytes_of(native)
    uses = [[len(value.uses()) for value in node.outputs] for node in native.graph]
    write, calls = spellings.write, []

    def failing(*args: object) -> object:
        calls.append(args)
        if len(calls) > 1:
            raise ValueError("it can't")
        return write(*args)  # type: ignore[arg-type]

    monkeypatch.setattr(sys.modules["gsl.front.onnx.program"], "try_call", lambda *args: None)
    monkeypatch.setattr(spellings, "write", failing)
    with pytest.raises(FrontEndError, match="it can't"):
        Pass(RELUS)(native)
    assert len(calls) == 2
    assert bytes_of(native) == before
    assert [[len(value.uses()) for value in node.outputs] for node in native.graph] == uses


def test_work_is_linear_in_the_nodes() -> None:
    """Twice the nodes call no function of GSL or onnx_ir more than about twice as often."""

    def calls(count: int) -> int:
        body = " ".join(f"a{n} = Relu({f'a{n - 1}' if n else 'x'}) b{n} = Abs(a{n})" for n in range(count))
        native = model(body.replace("Abs(a", "Neg(a"), outputs=f"float[2,3] b{count - 1}")
        for node in native.graph:
            node.outputs[0].type, node.outputs[0].shape = ir.TensorType(ir.DataType.FLOAT), ir.Shape([2, 3])
        rule = Subst(op.Negative(op.ReLU(X)), op.Exp(X), name="rule")
        made = 0

        def count_call(frame: object, event: str, arg: object) -> None:
            nonlocal made
            made += event == "call"

        sys.setprofile(count_call)
        try:
            new = rule(Workload(native))
        finally:
            sys.setprofile(None)
        assert new.op_counts()
        return made

    calls(50)
    small, large = calls(100), calls(400)
    assert large < 4.6 * small


def test_loading_names_no_tensor() -> None:
    """The tensor of a ``Constant`` has no name of its own, and gets none."""
    native = model("c = Constant <value: tensor = float[3] {1, 2, 3}> () y = Add (x, c)")
    before = bytes_of(native)
    assert Workload(native).op_counts() == {"add": 1}
    assert bytes_of(native) == before


# ---------------------------------------------------------------- random models

Y = pat.Wildcard()
SIMPLER = [
    RELUS,
    Subst(op.Negative(op.Negative(X)), X, name="negatives"),
    Subst(X + op.Negative(Y), X - Y, name="a difference"),
    Subst(op.Abs(op.Negative(X)), op.Abs(X), name="no sign"),
    Subst(op.ReLU(X) * 0.5, op.ReLU(X * 0.5), name="a factor inside"),
    Subst(op.Tanh(X), op.Sigmoid(X * 2.0) * 2.0 - 1.0, name="a sigmoid"),
    Subst(pat.Call("onnx::Softsign", X), X / (op.Abs(X) + 1.0), name="written out"),
]
CALLS = (
    "{y} = Relu ({a})", "{y} = Neg ({a})", "{y} = Abs ({a})", "{y} = Tanh ({a})", "{y} = Softsign ({a})",
    "{y} = Identity ({a})", "{y} = Add ({a}, {b})", "{y} = Sub ({a}, {b})", "{y} = Mul ({a}, half)",
    "{y} = Add ({a}, w)", "{y}k = Constant <value_ints = [2]> () {y}, {y}i = TopK <axis = 0> ({a}, {y}k)",
    "{y}l, {y}r = Split <axis = 0, num_outputs = 2> ({a}) {y} = Concat <axis = 0> ({y}r, {y}l)",
    """{y} = If (c) <
        then_branch = one () => (float[2,3] {y}u) {{ {y}p = Neg ({a}) {y}q = Neg ({y}p) {y}u = Add ({y}q, {b}) }},
        else_branch = two () => (float[2,3] {y}v) {{ {y}o = Tanh ({b}) {y}v = Sub ({y}o, w) }}>""",
)  # fmt: skip
"""Calls on matrices: ``{a}`` and ``{b}`` are some before, and ``{y}`` is the new one."""


@st.composite
def models(draw: st.DrawFn) -> ir.Model:
    """Calls on calls before them, of which some are results, and of which some compute what nothing uses."""
    known, body = ["x"], []
    for place, call in enumerate(draw(st.lists(st.sampled_from(CALLS), min_size=1, max_size=8))):
        a, b = (draw(st.sampled_from(known[-4:])) for _ in range(2))
        body.append(call.format(y=f"v{place}", a=a, b=b))
        known.append(f"v{place}")
    ends = draw(st.lists(st.sampled_from(known[1:]), min_size=1, max_size=3, unique=True))
    return model(" ".join(body), "float[2,3] x, bool c", ", ".join(f"float[2,3] {end}" for end in ends),
                 more="float half = {0.5}, float[3] w = {1, -2, 0.5}")  # fmt: skip


@pytest.mark.law
@settings(max_examples=tiers.examples(20), deadline=None)
@given(models(), st.lists(st.sampled_from(SIMPLER), min_size=1, unique=True), st.booleans())
def test_random_models(native: ir.Model, chosen: list[Subst], iterative: bool) -> None:
    before, wl = bytes_of(native), Workload(native)
    assert wl.program.store(wl.program.load()).native is native
    new = RuleSet(chosen)(wl, iterative=iterative)
    assert bytes_of(native) == before
    for subject in (new, anew(wl)):
        check(subject.model)
        for condition in (True, False):
            wl.compare(subject, inputs=[GIVEN, np.array(condition)]).check()
    changed = model_of(before)
    Pass(chosen, iterative=iterative)(changed)
    assert bytes_of(changed) == bytes_of(new.model)


GIVEN = np.array([[0.5, -1.5, 2.0], [-0.25, 3.0, 0.0]], dtype=np.float32)


def model_of(data: bytes) -> ir.Model:
    return ir.serde.deserialize_model(onnx.load_from_string(data))


def test_random_models_tell_a_wrong_rule() -> None:
    wl = workload(f"{CALLS[0].format(y='a', a='x')} {CALLS[3].format(y='y', a='a')}")
    wrong = Subst(op.Tanh(X), op.Tanh(X + 0.1), name="wrong")(wl)
    assert not wl.compare(wrong, inputs=[GIVEN])


def test_attention_whose_last_size_is_not_known() -> None:
    """onnx itself infers a size of 0, with which a reshape of the result would have other sizes."""
    wl = workload(
        "a = Attention <kv_num_heads: int = 2, q_num_heads: int = 2> (x, x, x) y = Reshape (a, s)",
        "float[b,t,d] x", "float[c,e] y", opset=24, more="int64[2] s = {-1, 4}",
    )  # fmt: skip
    new = anew(wl)
    assert 0 not in wl.graph.outputs[0].type.shape
    wl.compare(new, sizes={"b": 2, "t": 3, "d": 4}).check()


@pytest.mark.parametrize("mask", ["1,1,1,5", "2,1,1,5", "2,1,3,1", "1,5", "2,1,3,5"])
def test_a_mask_has_a_number_for_each_query_and_key(mask: str) -> None:
    """Onnxruntime runs no attention with another mask."""
    pytest.importorskip("onnxruntime")
    wl = workload(
        "k = Transpose <perm = [0, 1, 3, 2]> (keys) a = MatMul (queries, k) b = Add (a, mask) "
        "c = Softmax <axis = -1> (b) y = MatMul (c, values)",
        f"float[2,4,3,8] queries, float[2,4,5,8] keys, float[2,4,5,8] values, float[{mask}] mask",
        "float[2,4,3,8] y", opset=23,
    )  # fmt: skip
    new = rules.IDIOMS(wl, iterative=True)
    assert new.op_counts()["nn.attention"] == 1
    wl.compare(new).check()


def test_a_factor_of_attention_is_positive() -> None:
    """Onnxruntime runs no attention with another one."""
    pytest.importorskip("onnxruntime")
    x, scale = pat.Wildcard(), -0.5
    wl = workload("y = Exp (x)", "float[2,4,3,8] x", "float[2,4,3,8] y", opset=23)
    new = Subst(op.Exp(x), op.Attention(x, x, x, scale=scale), name="attended")(wl)
    assert "Attention" not in nodes(new.model)
    given = np.random.default_rng(0).normal(size=(2, 4, 3, 8)).astype(np.float32)
    tensor = torch.from_numpy(given)
    wanted = torch.nn.functional.scaled_dot_product_attention(tensor, tensor, tensor, scale=scale)
    np.testing.assert_allclose(new(given), wanted, rtol=1e-4, atol=1e-5)


def test_bfloat16_is_filled_from_version_20_on() -> None:
    rule = Subst(op.Exp(X), X * op.Full(2.0, shape=(3,), dtype="bfloat16"), name="filled")
    for version, fired in ((19, 0), (20, 1)):
        new = rule(workload("y = Exp (x)", "bfloat16[3] x", "bfloat16[3] y", opset=version))
        assert new.trace.count() == fired
        check(new.model)


@pytest.mark.parametrize("opset", [14, 22])
def test_a_size_that_no_input_has_is_that_of_the_operand(opset: int) -> None:
    wl = workload(
        "a = NonZero (x) b = Cast <to = 1> (a) c = Unsqueeze (b, last) d = Mul (c, row) "
        "e = Transpose <perm = [1, 0, 2]> (d) y = Reshape (e, shape)",
        "float[N,M] x, float[M] row", "float[K,L] y", opset=opset,
        more="int64[1] last = {2}, int64[2] shape = {0, -1}",
    )  # fmt: skip
    new = anew(wl)
    check(new.model)
    assert "Shape" in nodes(new.model)
    assert "Shape" not in nodes(wl.model)
    for size in (3, 5):
        wl.compare(new, (np.eye(size, dtype="float32"), np.arange(size, dtype="float32"))).check()

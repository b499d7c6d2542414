"""Rules of onnxscript's rewriter: the same rewrites as onnxscript's own, on the same models, in the same run."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import onnx
import onnx_ir as ir
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from onnxscript.rewriter import pattern
from onnxscript.rewriter.rules import common
from onnxscript.rewriter.rules.fusion import _gqa, _layer_norm, _rms_normalization, _rotary_embedding

from benchmarks import onnxscript_tests
from gsl import RuleSet, Workload
from gsl.errors import ExchangeError, UntypedWarning
from gsl.exchange import from_onnxscript
from gsl.front.onnx import spellings
from tests import tiers

FILE: Final = Path(__file__).with_name("onnxscript_models.txt")
PARAGRAPHS: Final = [part.splitlines() for part in FILE.read_text(encoding="utf-8").split("\n\n")[1:]]
MODELS: Final = {name: [text.strip() for text in texts] for name, *texts in PARAGRAPHS}
FUSIONS: Final = {
    "layer_norm": _layer_norm._layer_norm_rule, "layer_norm_bias": _layer_norm._layer_norm_with_bias_rule,
    "rms_norm": _rms_normalization.rms_normalization_ruleset, "rotary": _rotary_embedding.rotary_embedding_rules,
    "partial_rotary": _rotary_embedding.partial_embedding_rules, "gqa": _gqa.gqa_rules,
}  # fmt: skip
UNRUN: Final = {"dropout_zero_rule", "dropout_inference_rule", "materialize_reshape_shape_rule", "gqa"}
"""Those whose models are not compared: of attributes of an older ONNX, of a shape that is an input; onnxruntime has no
such attention."""


def theirs(name: str) -> Any:
    if name in FUSIONS:
        return FUSIONS[name]
    found = getattr(common, name)
    return found() if name.startswith("fuse_hardswish") else found


def model(text: str, opset: int = 20) -> onnx.ModelProto:
    return onnx.parser.parse_model(f'<ir_version: 10, opset_import: ["": {opset}, "com.microsoft": 1]>\nnet {text}')


def counted(rules: Any, proto: onnx.ModelProto) -> int:
    """The number of times that onnxscript rewrites a model."""
    rules = rules if isinstance(rules, pattern.RewriteRuleSet) else pattern.RewriteRuleSet([rules])
    found: int = rules.apply_to_model(ir.from_proto(onnx.shape_inference.infer_shapes(proto)))
    return found


def test_all_rules_have_models() -> None:
    assert set(MODELS) == {*common.__all__, *FUSIONS}


def test_a_node_of_a_pattern_is_read_once_for_each_choice_that_matters(monkeypatch: pytest.MonkeyPatch) -> None:
    """A batch norm has five operands and five attributes of which many combinations are read alike."""
    number = 0

    def counting(*given: Any) -> Any:
        nonlocal number
        number += 1
        return read(*given)

    read = spellings.read
    monkeypatch.setattr(spellings, "read", counting)
    rule = from_onnxscript(pattern.RewriteRule(
        lambda op, x, scale, b, mean, var: op.BatchNormalization(x, scale, b, mean, var, epsilon=0.125),
        lambda op, x, **_: op.Identity(x),
    ))
    assert "nn.batch_norm" in str(rule)
    assert 0 < number < 1000


@pytest.mark.sweep(3)
@pytest.mark.parametrize("name", MODELS)
def test_rewrites_as_onnxscript_does(name: str) -> None:
    rule = from_onnxscript(theirs(name))
    for number, text in enumerate(MODELS[name]):
        proto = model(text, 23 if name in FUSIONS else 20)
        expected = counted(theirs(name), proto)
        assert expected or number, "the first model of a rule is one that it rewrites"
        wl = Workload.from_onnx(proto)
        new = rule(wl, iterative=True)
        assert new.trace.count() == expected, text
        if expected and name not in UNRUN:
            wl.compare(new, sizes={"N": 4} if re.search(r"\bN\b", text) else None).check()


def test_two_spellings_of_one_canonical_call() -> None:
    """What the rule writes is kept by its name; it is read as what it means when the model is loaded again."""
    wl = Workload.from_onnx(model(MODELS["matmul_add_to_gemm_rule"][0]))
    rule = from_onnxscript(common.matmul_add_to_gemm_rule)
    new = rule(wl, iterative=True)
    assert [node.op_type for node in new.model.graph] == ["Gemm"]
    assert Workload.from_onnx(new.model).op_counts() == wl.op_counts()


def test_two_spellings_are_one_outside_of_onnx() -> None:
    class Layer(torch.nn.Module):
        def forward(self, x: torch.Tensor, w: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
            return x @ w + b

    wl = Workload.from_torch(Layer(), (torch.randn(2, 3), torch.randn(3, 4), torch.randn(4)))
    rule = from_onnxscript(common.matmul_add_to_gemm_rule)
    assert rule(wl).trace.count() == 0
    assert "both sides are the same calls here" in str(rule.explain(wl))


def test_sizes_that_onnx_can_not_tell_are_those_of_the_match() -> None:
    text = ("(int64[2] s) => (float16[1,4] y)"
            " { a = ConstantOfShape <value: tensor = float[1] {2}> (s) y = Cast <to: int = 10> (a) }")  # fmt: skip
    wl = Workload.from_onnx(model(text))
    with pytest.warns(UntypedWarning):
        new = from_onnxscript(common.cast_constant_of_shape_rule)(wl)
    assert [str(node.type) for node in new.graph.outputs] == ["float16[1, 4]"]
    other = Workload.from_onnx(model(text.replace("float16[1,4]", "float16[1,4,1]")))
    assert from_onnxscript(common.cast_constant_of_shape_rule)(other).trace.count() == 0, "another rank is none"


# ---------------------------------------------------------------- rules of a user's own


def added(op: Any, x: Any, y: Any) -> Any:
    return op.Relu(op.Add(x, y))


def fused(op: Any, x: Any, y: Any) -> Any:
    return op.FusedAdd(x, y, activation="Relu", _domain="com.microsoft")


ADDED: Final = "(float[2,3] x, float[3] z) => (float[2,3] y) { a = Add (x, z) y = Relu (a) }"
SHARED: Final = (
    "(float[2,3] x, float[3] z) => (float[2,3] y, float[2,3] w) { a = Add (x, z) y = Relu (a) w = Tanh (a) }"
)


def test_makes_calls_of_other_domains() -> None:
    new = from_onnxscript(pattern.RewriteRule(added, fused), name="fused")(Workload.from_onnx(model(ADDED)))
    (node,) = new.model.graph
    assert (node.domain, node.op_type, node.attributes.get_string("activation")) == (
        "com.microsoft",
        "FusedAdd",
        "Relu",
    )


def test_inner_values_used_elsewhere_are_left_alone() -> None:
    wl = Workload.from_onnx(model(SHARED))
    assert from_onnxscript(pattern.RewriteRule(added, fused))(wl).trace.count() == 0
    kept = from_onnxscript(pattern.RewriteRule(added, fused, remove_nodes=False))(wl)
    assert [node.op_type for node in kept.model.graph] == ["Add", "FusedAdd", "Tanh"]


def test_a_check_sees_types_and_values() -> None:
    seen: list[Any] = []

    def check(context: Any, x: ir.Value, y: ir.Value) -> bool:
        seen.append((x.shape, x.dtype, context.root.op_type, y.const_value is None))
        return x.shape == ir.Shape([2, 3])

    rule = from_onnxscript(pattern.RewriteRule(added, fused, check))
    assert rule(Workload.from_onnx(model(ADDED))).trace.count() == 1
    assert seen[0] == (ir.Shape([2, 3]), ir.DataType.FLOAT, "Relu", True)


def test_a_check_that_raises_refuses_the_match() -> None:
    rule = from_onnxscript(pattern.RewriteRule(added, fused, lambda context, x, y: x.rank > 3), name="fused")
    wl = Workload.from_onnx(model(ADDED))
    assert rule(wl).trace.count() == 0
    assert "a function of the rule raises AttributeError" in str(rule.explain(wl))


def test_what_a_check_says_is_the_reason() -> None:
    wl = Workload.from_onnx(model(MODELS["no_op_transpose_rule"][1]))
    assert "Permutation is not identity." in str(from_onnxscript(common.no_op_transpose_rule).explain(wl))


def test_rewrites_what_other_rules_have_made() -> None:
    """A second rule sees the first one's calls, which stand in no model yet."""
    text = "(float[2,3] x) => (float[2,3] y) <float o = {0}> { a = Relu (x) b = Add (a, o) y = Relu (b) }"
    both = RuleSet([from_onnxscript(common.add_0_rule), from_onnxscript(common.successive_relu_rule)])
    wl = Workload.from_onnx(model(text))
    new = both(wl, iterative=True)
    assert [node.op_type for node in new.model.graph] == ["Relu"]
    wl.compare(new).check()


def test_rules_work_on_graphs_of_torch() -> None:
    class Twice(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.relu(torch.relu(x)).reshape(2, 6).reshape(3, 4)

    wl = Workload.from_torch(Twice(), (torch.randn(3, 4),))
    rules = from_onnxscript([common.successive_relu_rule, common.reshape_reshape_rule])
    new = rules(wl)
    assert new.op_counts() == {"nn.relu": 1, "reshape": 1}
    wl.compare(new).check()


@pytest.mark.parametrize("k", [2, 4])
def test_a_call_of_several_results(k: int) -> None:
    """The number of elements is written in the model, or the call stays one of ONNX and has no types."""
    text = f"(float[2,5] x) => (float[2,{k}] v, int64[2,{k}] i) <int64[1] k = {{{k}}}>"
    wl = Workload.from_onnx(model(text + " { y = Relu (x) v, i = TopK <axis = 1> (y, k) }"))

    def largest_of(op: Any, x: Any, k: Any) -> Any:
        return op.TopK(op.Relu(x), k, axis=1, _outputs=["v", "i"])

    def of_largest(op: Any, x: Any, k: Any, v: Any, i: Any) -> Any:
        values, places = op.TopK(x, k, axis=1, _outputs=2)
        return op.Relu(values), places

    new = from_onnxscript(pattern.RewriteRule(largest_of, of_largest, name="topk"))(wl)
    assert [node.op_type for node in new.model.graph] == ["TopK", "Relu"]
    assert new.op_counts() == {"topk": 1, "nn.relu": 1}


def test_several_forms_of_a_reading() -> None:
    """One rule finds a bias in a node of its own, and one that the convolution adds."""
    text = ("(float[1,3,8,8] x) => (float[1,2,8,8] y) <float[2,3,1,1] w = {1,2,3,4,5,6}, float[2,1,1] b = {0,0}>"
            " { c = Conv (x, w) y = Add (c, b) }")  # fmt: skip
    rule = from_onnxscript(common.remove_optional_bias_from_conv_rule)
    wl = Workload.from_onnx(model(text))
    assert rule(wl).trace.count() == 0, "onnxscript does not rewrite an addition"


def test_of_a_set_what_is_refused_has_a_reason() -> None:
    outlined = pattern.RewriteRule(added, fused, as_function=True, name="outlined")
    rules = from_onnxscript([common.add_0_rule, outlined])
    assert [rule.name for rule in rules] == ["identity"]
    assert "makes a function of the model" in rules.refused["outlined"]


@pytest.mark.parametrize(
    ("rule", "message"),
    [
        (3, "expected rules of onnxscript.rewriter, got 3 of type int"),
        ([3], "expected rules of onnxscript.rewriter, got 3 of type int"),
        (pattern.RewriteRule(lambda op, x: op.submodule("linear")(x, _domain="pkg.torch"), lambda op, x: op.Relu(x)),
         "stands for many operators"),
    ],
)  # fmt: skip
def test_what_can_not_be_taken_over(rule: Any, message: str) -> None:
    with pytest.raises(ExchangeError, match=message):
        from_onnxscript(rule)


def test_sizes_that_are_known_at_run_time_only() -> None:
    """They are those of the user's graph in what a rule makes, and unknown ones are refused."""
    text = ("(float[N,6] x) => (float[N,2,3] y) <int64[3] s = {0, 3, 2}, int64[3] t = {0, 2, 3}>"
            " { a = Reshape (x, s) b = Reshape (a, t) y = Relu (b) }")  # fmt: skip
    wl = Workload.from_onnx(model(text))

    def twice(op: Any, x: Any, s: Any, t: Any) -> Any:
        return op.Reshape(op.Reshape(x, s), t)

    def once(op: Any, x: Any, s: Any, t: Any) -> Any:
        return op.Reshape(x, t)

    new = from_onnxscript(pattern.RewriteRule(twice, once))(wl)
    assert "reshape(%x, newshape=(N, 2, 3))" in str(new)
    wl.compare(new, sizes={"N": 4}).check()


@functools.cache
def every_rule() -> Callable[..., Workload]:
    """All rules but the fusions; only who applies them waits for them."""
    rules = [theirs(name) for name in MODELS if name not in FUSIONS]
    return from_onnxscript([each for rule in rules for each in getattr(rule, "rules", [rule])])


STEPS: Final = (
    "Relu (X)", "Relu (X); Relu (X)", "Clip (X, low, high)", "Clip (X, low)", "Mul (X, one)", "Add (zero, X)",
    "Div (X, one)", "Min (X, high)", "Max (X, low, zero)", "Max (X, one)", "Cast <to: int = 1> (X)",
    "Reshape (X, flat); Reshape (X, wide)", "Transpose <perm: ints = [1, 0]> (X); Transpose <perm: ints = [1, 0]> (X)",
    "Transpose <perm: ints = [0, 1]> (X)", "Expand (X, wide)", "Expand (row, wide); Add (X, O)", "Sub (X, X)",
    "Flatten (X)", "Gemm (X, square, none)", "MatMul (X, square); Add (X, row)", "Sigmoid (X); Mul (X, O)",
)  # fmt: skip
"""Calls of ONNX on matrices of three rows and two columns: ``X`` is what the last call computes, ``O`` what the first
one of a step is given."""
GIVEN: Final = (
    "float low = {-1}, float high = {6}, float zero = {0}, float one = {1}, int64[1] flat = {6}, int64[2] wide = {3, 2}"
    ", float[2] row = {1, 2}, float[2,2] square = {1, 2, 3, 4}, float[2] none = {0, 0}"
)


def written(steps: list[str]) -> str:
    """A model that computes one step after the other."""
    nodes, last = [], "x"
    for step in steps:
        first = last
        for call in step.split("; "):
            nodes.append(f"v{len(nodes)} = {call.replace('X', last).replace('O', first)}")
            last = f"v{len(nodes) - 1}"
    return f"(float[3,2] x) => (float[3,2] y) <{GIVEN}> {{ {' '.join(nodes)} y = Tanh ({last}) }}"


@pytest.mark.law
@settings(max_examples=tiers.examples(25))
@given(st.lists(st.sampled_from(STEPS), min_size=1, max_size=6))
def test_random_models_compute_the_same(steps: list[str]) -> None:
    wl = Workload.from_onnx(model(written(steps)))
    new = every_rule()(wl, iterative=True)
    onnx.checker.check_model(ir.to_proto(new.model), full_check=True)
    wl.compare(new).check()


def test_random_models_are_rewritten() -> None:
    """The oracle above is asked about models of which rules rewrite all that they can."""
    new = [every_rule()(Workload.from_onnx(model(written([step, step]))), iterative=True) for step in STEPS]
    fired = {firing.rule for each in new for firing in each.trace.firings}
    assert len(fired) >= 10, fired


# ---------------------------------------------------------------- onnxscript's own tests

THEIR_TESTS: Final = '''
import unittest
import onnx, onnx_ir as ir
from onnxscript.rewriter import pattern

TEXT = """<ir_version: 10, opset_import: ["" : 20]>
net (float[2,3] x) => (float[2,3] y) { a = Relu (x) y = Relu (a) }"""

class Rules(unittest.TestCase):
    def apply(self, after, **options):
        rule = pattern.RewriteRule(lambda op, x: op.Relu(op.Relu(x)), after, **options)
        self.assertEqual(rule.apply_to_model(ir.from_proto(onnx.parser.parse_model(TEXT))), 1)

    def test_a_right_rule(self):
        self.apply(lambda op, x: op.Relu(x))

    def test_a_wrong_rule(self):
        self.apply(lambda op, x: op.Sigmoid(x))

    def test_a_function(self):
        self.apply(lambda op, x: op.Twice(x, _domain="own"), as_function=True)
'''


def test_the_list_of_onnxscripts_tests(tmp_path: Path) -> None:
    """The command tells the same rewrites, other numbers, and what differs, with the reason."""
    folder = tmp_path / "onnxscript" / "rewriter" / "rules"
    folder.mkdir(parents=True)
    (folder / "twice_test.py").write_text(THEIR_TESTS, encoding="utf-8")
    page = tmp_path / "page.md"
    onnxscript_tests.main([str(tmp_path), "--lines", str(tmp_path / "lines.jsonl"), "--page", str(page)])
    text = page.read_text(encoding="utf-8")
    assert "| rules | 3 | 2 | 66.7% | 2 | 1 |" in text
    assert "| `rules/twice_test.py::Rules.test_a_function` | <lambda> | 1 | 0 | `as_function=True` is not taken" in text

"""What the view shows of a model."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import pytest

from gsl import Subst, Workload, op, pat
from gsl.errors import FrontEndError, PatternError, UntypedWarning
from gsl.front.onnx import load, spellings
from gsl.operators import ort
from tests.front.onnx.onnx_helpers import check, model, workload

READ: dict[str, tuple[dict[str, str | int], str]] = {
    "a number that is an initialiser": (
        {"body": "y = Mul(x, two)", "more": "float two = {2.0}"},
        "%y: float32[2, 3] = multiply(%x, 2.0)",
    ),
    "a number that has an axis": (
        {"body": "y = Mul(x, two)", "more": "float[1] two = {2.0}"},
        "%y: float32[2, 3] = multiply(%x, 2.0)",
    ),
    "an element that has more axes than the tensor beside it": (
        {"body": "y = Mul(x, two)", "more": "float[1,1,1] two = {2.0}", "outputs": "float[1,2,3] y"},
        "%two: float32[1, 1, 1] = param\n%y: float32[1, 2, 3] = multiply(%x, %two)",
    ),
    "a bias of one element": (
        {"body": "product = MatMul(x, w) y = Add(product, b)", "inputs": "float[2,3] x, float[3,1] w",
         "more": "float[1] b = {2.0}", "outputs": "float[2,1] y"},
        "%b: float32[1] = param\n%product: float32[2, 1] = matmul(%x, %w)\n"
        "%y: float32[2, 1] = nn.bias_add(%product, %b)",
    ),
    "a number that is a constant": (
        {"body": "half = Constant<value_float: float = 0.1>() y = Add(x, half)"},
        "%y: float32[2, 3] = add(%x, 0.1)",
    ),
    "bounds are attributes": (
        {"body": "y = Clip(x, low)", "more": "float low = {-1.5}"},
        "%y: float32[2, 3] = clip(%x, a_min=-1.5)",
    ),
    "bounds that are computed": (
        {"body": "low = ReduceMin<keepdims: int = 0>(x) y = Clip(x, low)"},
        "%low: float32[] = min(%x)\n%y: float32[2, 3] = onnx::Clip(%x, %low)",
    ),
    "slopes of channels": (
        {"body": "y = PRelu(x, s)", "inputs": "float[2,3,4] x", "outputs": "float[2,3,4] y",
         "more": "float[1,3,1] s = {1, 2, 3}"},
        "%s: float32[1, 3, 1] = param\n%reshape: float32[3] = reshape(%s, newshape=(3,))\n"
        "%y: float32[2, 3, 4] = nn.prelu(%x, %reshape)",
    ),
    "one slope": (
        {"body": "y = PRelu(x, s)", "inputs": "float[2,3,4] x", "outputs": "float[2,3,4] y",
         "more": "float[1,1,1] s = {0.5}"},
        "%s: float32[1, 1, 1] = param\n%reshape: float32[1] = reshape(%s, newshape=(1,))\n"
        "%y: float32[2, 3, 4] = nn.prelu(%x, %reshape)",
    ),
    "slopes of two axes": (
        {"body": "y = PRelu(x, s)", "inputs": "float[2,3,4] x", "outputs": "float[2,3,4] y",
         "more": "float[1,3,4] s = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12}"},
        "%s: float32[1, 3, 4] = param\n%y: float32[2, 3, 4] = onnx::PRelu(%x, %s)",
    ),
    "axes as an operand": (
        {"body": "y = ReduceMean<keepdims: int = 1>(x, axes)", "outputs": "float[2,1] y",
         "more": "int64[1] axes = {-1}"},
        "%y: float32[2, 1] = mean(%x, axis=(1,), keepdims=True)",
    ),
    "axes as an attribute": (
        {"body": "y = ReduceMean<axes: ints = [-1], keepdims: int = 1>(x)", "outputs": "float[2,1] y", "opset": 13},
        "%y: float32[2, 1] = mean(%x, axis=(1,), keepdims=True)",
    ),
    "a shape with codes": (
        {"body": "y = Reshape(x, shape)", "outputs": "float[2,3,1] y", "more": "int64[3] shape = {0, -1, 1}"},
        "%y: float32[2, 3, 1] = reshape(%x, newshape=(2, 3, 1))",
    ),
    "one node with a bias": (
        {"body": "y = Gemm<transB: int = 1>(x, w, b)", "outputs": "float[2,4] y",
         "inputs": "float[2,3] x, float[4,3] w, float[4] b"},
        "%dense: float32[2, 4] = nn.dense(%x, %w)\n%y: float32[2, 4] = nn.bias_add(%dense, %b)",
    ),
    "an attribute that the operator does not have": (
        {"body": "y = Softmax<axs: int = 0>(x)"},
        "%y: float32[2, 3] = onnx::Softmax(%x, axs=0)",
    ),
    "a Gemm of what is no matrix": (
        {"body": "y = Gemm(x, w)", "inputs": "float[1,2,3] x, float[3,4] w", "outputs": "float[1,2,4] y"},
        "%y: float32[1, 2, 4] = onnx::Gemm(%x, %w)",
    ),
    "a product with a transposed matrix": (
        {"body": "t = Transpose<perm: ints = [1, 0]>(w) y = MatMul(x, t)", "outputs": "float[2,4] y",
         "inputs": "float[2,3] x, float[4,3] w"},
        "%y: float32[2, 4] = nn.dense(%x, %w)",
    ),
    "tensors that are results are not stacked": (
        {"body": "a = Unsqueeze(x, axis) b = Unsqueeze(x, axis) y = Concat<axis: int = 0>(a, b)",
         "outputs": "float[1,2,3] a, float[2,2,3] y", "more": "int64[1] axis = {0}"},
        "%a: float32[1, 2, 3] = expand_dims(%x, axis=0)\n%b: float32[1, 2, 3] = expand_dims(%x, axis=0)\n"
        "%y: float32[2, 2, 3] = concatenate((%a, %b))",
    ),
    "places beyond an axis": (
        {"body": "y = Slice(x, low, high)", "outputs": "float[0,3] y",
         "more": "int64[1] low = {0}, int64[1] high = {-2147483648}"},
        "%y: float32[0, 3] = strided_slice(%x, begin=(0,), end=(0,), strides=(1,), axes=(0,))",
    ),
    "backwards from before an axis": (
        {"body": "y = Slice(x, low, high, axis, step)", "outputs": "float[1,3] y",
         "more": "int64[1] low = {-9}, int64[1] high = {-9}, int64[1] axis = {0}, int64[1] step = {-1}"},
        "%low: int64[1] = param\n%high: int64[1] = param\n%axis: int64[1] = param\n%step: int64[1] = param\n"
        "%y: float32[1, 3] = onnx::Slice(%x, %low, %high, %axis, %step)",
    ),
    "integers are divided otherwise": (
        {"body": "y = Div(x, x)", "inputs": "int64[2,3] x", "outputs": "int64[2,3] y"},
        "%y: int64[2, 3] = onnx::Div(%x, %x)",
    ),
    "another domain": (
        {"body": "y = com.microsoft.BiasGelu(x, b)", "inputs": "float[2,3] x, float[3] b",
         "others": ', "com.microsoft" : 1'},
        "%y: float32[2, 3] = com.microsoft::BiasGelu(%x, %b)",
    ),
    "an operand that is left out": (
        {"body": 'y = Resize<mode: string = "nearest">(x, , scales)', "outputs": "float[4,6] y",
         "more": "float[2] scales = {2.0, 2.0}"},
        "%scales: float32[2] = param\n%y: float32[4, 6] = onnx::Resize(%x, %scales, mode='nearest', arg1=None)",
    ),
    "integers that keep their dtype, in a model that does not tell it": (
        {"body": "a = ReduceSum(x, axis) b = ReduceL2(x, axis) y = Sub(a, b)", "inputs": "int32[2,3] x",
         "outputs": "int32[2,1] y", "more": "int64[1] axis = {1}", "opset": 18},
        "%axis: int64[1] = param\n%sum: int64[2, 1] = sum(%x, axis=(1,), keepdims=True)\n"
        "%a: int32[2, 1] = cast(%sum, dtype='int32')\n"
        "%b: int32[2, 1] = onnx::ReduceL2(%x, %axis)\n%y: int32[2, 1] = subtract(%a, %b)",
    ),
    "a convolution of no channels, of which torch makes none": (
        {"body": "a = Conv(x, w) y = Abs(a)", "inputs": "float[2,0,3] x, float[4,0,1] w", "outputs": "float[2,4,3] y"},
        "%a: float32[2, 4, 3] = onnx::Conv(%x, %w)\n%y: float32[2, 4, 3] = abs(%a)",
    ),
    "a shape of whose length the model says nothing": (
        {"body": "s = Shape(x) n = Slice(s, i, j) f = Cast<to: int = 1>(n) y = Mul(x, f)",
         "more": "int64[k] s, int64[m] n, int64[1] i = {-1}, int64[1] j = {9}"},
        "%s: int64[2] = onnx::Shape(%x)\n"
        "%n: int64[1] = strided_slice(%s, begin=(1,), end=(2,), strides=(1,), axes=(0,))\n"
        "%f: float32[1] = cast(%n, dtype='float32')\n%y: float32[2, 3] = multiply(%x, %f)",
    ),
    "an axis that goes if it can": (
        {"body": "a = Squeeze(x, axis) y = Abs(a)", "inputs": "float[n,3] x", "outputs": "float[3] y",
         "more": "int64[1] axis = {0}"},
        "%axis: int64[1] = param\n%a: float32[3] = onnx::Squeeze(%x, %axis)\n%y: float32[3] = abs(%a)",
    ),
    "an RMS norm by onnxruntime's name": (
        {"body": "y = SimplifiedLayerNormalization <epsilon: float = 0.5> (x, w)", "more": "float[3] w = {1, 2, 3}"},
        "%w: float32[3] = param\n%y: float32[2, 3] = nn.rms_norm(%x, %w, epsilon=0.5)",
    ),
    "a cast to the dtype of another tensor": (
        {"body": "y = CastLike(x, k)", "inputs": "float[2,3] x, int32[5] k", "outputs": "int32[2,3] y"},
        "%y: int32[2, 3] = cast(%x, dtype='int32') with %k",
    ),
    "attention with all attributes, as torch exports it": (
        {"body": "y = Attention <is_causal = 0, scale = 0.5, softcap = 0.0, qk_matmul_output_mode = 0> (x, x, x)",
         "inputs": "float[2,1,3,4] x", "outputs": "float[2,1,3,4] y", "opset": 23},
        "%y: float32[2, 1, 3, 4] = nn.attention(%x, %x, %x, scale=0.5)",
    ),
    "attention with windows that hide nothing": (
        {"body": "y = Attention <left_window_size = -1, right_window_size = -1> (x, x, x)",
         "inputs": "float[2,1,3,4] x", "outputs": "float[2,1,3,4] y", "opset": 25},
        "%y: float32[2, 1, 3, 4] = nn.attention(%x, %x, %x)",
    ),
    "attention with a window": (
        {"body": "y = Attention <left_window_size = 1> (x, x, x)", "inputs": "float[2,1,3,4] x",
         "outputs": "float[2,1,3,4] y", "opset": 25},
        "%y: float32[2, 1, 3, 4] = onnx::Attention(%x, %x, %x, left_window_size=1)",
    ),
    "attention with a cap": (
        {"body": "y = Attention <softcap = 20.0> (x, x, x)", "inputs": "float[2,1,3,4] x",
         "outputs": "float[2,1,3,4] y", "opset": 23},
        "%y: float32[2, 1, 3, 4] = onnx::Attention(%x, %x, %x, softcap=20.0)",
    ),
    "several results": (
        {"body": "v, i = TopK(x, k) y = Relu(v)", "outputs": "float[2,2] y, int64[2,2] i", "more": "int64[1] k = {2}"},
        "%topk: (float32[2, 2], int64[2, 2]) = topk(%x, k=2)\n"
        "%y: float32[2, 2] = nn.relu(%topk[0])",
    ),
    "the first of several results": (
        {"body": "v, i = TopK<axis = 0, largest = 0>(x, k) y = Relu(v)", "outputs": "float[1,3] y",
         "more": "int64[1] k = {1}"},
        "%topk: (float32[1, 3], int64[1, 3]) = topk(%x, k=1, axis=0, largest=False)\n"
        "%y: float32[1, 3] = nn.relu(%topk[0])",
    ),
    "several results of no canonical operator": (
        {"body": "q, s, z = DynamicQuantizeLinear(x) y = Abs(s)", "outputs": "float y, uint8[2,3] q"},
        "%dynamicquantizelinear: (uint8[2, 3], float32[], uint8[]) = onnx::DynamicQuantizeLinear(%x)\n"
        "%y: float32[] = abs(%dynamicquantizelinear[1])",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", READ)
def test_a_node(name: str) -> None:
    given, expected = READ[name]
    lines = workload(**given).text().splitlines()  # type: ignore[arg-type]
    assert "\n".join(line for line in lines[:-1] if not line.endswith("= input")) == expected


def test_sizes_that_are_computed() -> None:
    wl = workload(
        "all = Shape(x) s = Slice(all, axis, two_places) n = Gather(s, zero) "
        "k = Mul(n, two) u = Unsqueeze(k, axis) t = Concat<axis: int = 0>(u, rest) "
        "y = Reshape(x, t)",
        "float[batch, 6] x", "float[m, 3] y",
        more="int64 zero = {0}, int64 two = {2}, int64[1] axis = {0}, int64[1] rest = {3}, "
        "int64[1] two_places = {2}",
    )  # fmt: skip
    assert str(wl.graph.outputs[0].type) == "float32[2*batch, 3]"
    assert wl.graph.outputs[0].op == "reshape"
    data = pat.Wildcard()
    new = Subst(op.Reshape(data), op.Negative(op.Reshape(data, newshape=(-1, 3))), name="no sizes")(wl)
    assert new.op_counts() == {"negative": 1, "reshape": 1}
    assert str(new.graph.outputs[0].type) == "float32[2*batch, 3]"


def test_types_that_the_model_does_not_tell() -> None:
    wl = workload("a = Softsign(x) b = Relu(a) y = Softsign(b)")
    assert [str(node.type) for node in wl.graph] == ["float32[2, 3]"] * 4


def test_types_that_follow_from_the_meaning_are_not_inferred(monkeypatch: pytest.MonkeyPatch) -> None:
    wl = workload("a = Relu(x) s = Shape(a) m, n = Split(a, k) z = Concat<axis: int = 0>(n, m) y = Reshape(z, s)",
                  more="int64[2] k = {1, 1}")  # fmt: skip
    monkeypatch.setattr(load, "declared_types", lambda model: pytest.fail("they are inferred"))
    types = {node.name: str(node.type) for node in wl.graph.nodes if node.name in ("s", "m", "n", "z")}
    assert types == {"s": "int64[2]", "m": "float32[1, 3]", "n": "float32[1, 3]", "z": "float32[2, 3]"}


def test_a_type_that_is_wrong_is_not_believed() -> None:
    wl = workload("a = Relu(x) y = Sigmoid(a)", more="float[7,7] a")
    assert [str(node.op) for node in wl.graph][1:] == ["onnx::Relu", "onnx::Sigmoid"]


def test_an_initialiser_that_is_an_input_may_be_another_one() -> None:
    wl = workload("y = Mul(x, two)", "float[2,3] x, float two", more="float two = {2.0}")
    assert list(wl.inputs) == ["x", "two"]
    assert "2.0" not in wl.text()


def test_the_domain_of_onnx_has_two_names() -> None:
    native = model("a = Relu(x) y = Relu(a)")
    native.opset_imports["ai.onnx"] = native.opset_imports.pop("")
    x = pat.Wildcard()
    new = Subst(op.ReLU(op.ReLU(x)), op.GELU(x), name="gelu")(Workload(native))
    assert [node.op_type for node in new.model.graph] == ["Gelu"]  # which version 20 has
    assert dict(new.model.opset_imports) == {"ai.onnx": 22}
    check(new.model)


@pytest.mark.parametrize("iterative", [False, True])
def test_weights_are_read_when_somebody_asks(iterative: bool) -> None:
    native = model("p = MatMul(x, w) a = Add(p, v) b = Relu(a) y = Relu(b)",
                   "float[2,3] x, float[3,2000] w, float[2000] v", "float[2,2000] y")  # fmt: skip
    asked: list[str] = []

    def numbers(value: ir.Value) -> Any:
        asked.append(value.name or "")
        assert value.shape is not None
        return ir.Tensor(np.full(value.shape.numpy(), 0.5, dtype=np.float32))

    for value in native.graph.inputs[1:]:
        native.graph.inputs.remove(value)
        assert value.shape is not None
        value.const_value = ir.LazyTensor(partial(numbers, value), ir.DataType.FLOAT, value.shape, name=value.name)
        native.graph.register_initializer(value)
    wl, x = Workload(native), pat.Wildcard()
    new = Subst(op.ReLU(op.ReLU(x)), op.ReLU(x), name="relus")(wl, iterative=iterative)
    assert new.op_counts() == {"matmul": 1, "nn.bias_add": 1, "nn.relu": 1}
    assert asked == []
    weight = next(node for node in wl.graph if node.name == "v")
    assert [weight.attrs["value"].sum().item() for _ in range(2)] == [1000.0, 1000.0]
    assert asked == ["v"]


def test_what_no_row_reads_says_why() -> None:
    report = str(workload("y = Softsign(x)").unread())
    assert "onnx::Softsign" in report
    report = str(workload("a = mine.Twice(x) y = Relu(a)", others=', "mine" : 1').unread())
    assert "onnx::Relu: %y\n    the type of a is not known: declare it in the model" in report


def test_it_runs_and_evaluates() -> None:
    wl = workload("a = Softsign(w) y = Add(x, a)", more="float[3] w = {1.0, -3.0, 0.0}")
    x = np.ones((2, 3), dtype=np.float32)
    np.testing.assert_allclose(wl(x), [[1.5, 0.25, 1.0]] * 2)
    np.testing.assert_allclose(wl.build(runtime="reference")(x), [[1.5, 0.25, 1.0]] * 2)
    folded = wl.fold(params=True)
    assert folded.op_counts() == {"add": 1}
    wl.compare(folded).check()
    with pytest.raises(FrontEndError, match="there are"):
        wl.build(runtime="fast")
    with pytest.raises(FrontEndError, match="no attribute 'speed'"):
        wl.build(runtime="onnxruntime", speed=3)


def test_the_lowest_number_of_float32_is_evaluated() -> None:
    """Its shortest name is that of a lower number, which torch takes for none of float32."""
    wl = workload("a = Where(c, w, low) y = Add(x, a)", more="bool[3] c = {1, 0, 1}, float[3] w = {1, 2, 3}, "
                  "float low = {-3.4028235e38}")  # fmt: skip
    folded = wl.fold(params=True)
    assert folded.op_counts() == {"add": 1}
    wl.compare(folded).check()


def test_a_model_newer_than_onnxruntime_is_run_by_the_reference(monkeypatch: pytest.MonkeyPatch) -> None:
    onnxruntime = pytest.importorskip("onnxruntime")

    def refuse(*_: object, **__: object) -> None:
        raise RuntimeError("Opset 24 is new. Current official support for domain ai.onnx is till opset 23.")

    monkeypatch.setattr(onnxruntime, "InferenceSession", refuse)
    wl = workload("y = Exp(x)", opset=24)
    x = np.zeros((2, 3), dtype=np.float32)
    np.testing.assert_allclose(wl(x), np.ones((2, 3)))
    with pytest.raises(FrontEndError, match="till opset 23"):
        wl.build(runtime="onnxruntime")(x)


def test_what_torch_does_not_have_runs_and_is_compared() -> None:
    native = model("u = StringConcat(t, t) a = Relu(x) b = Relu(a) d = DequantizeLinear(w, s) y = Mul(b, d)",
                   "float[2,4] x, string[2] t", "float[2,4] y, string[2] u",
                   more="float s = {0.5}, int8[1] w = {1}")  # fmt: skip
    four = onnx.helper.make_tensor("w", onnx.TensorProto.INT4, [2, 4], [1, 2, 3, 4, -1, -2, -3, -4])
    native.graph.initializers["w"] = ir.Value(name="w", const_value=ir.serde.deserialize_tensor(four))
    native.graph[3].replace_input_with(0, native.graph.initializers["w"])
    wl = Workload(native)
    x = pat.Wildcard()
    new, wrong = (Subst(op.ReLU(op.ReLU(x)), target, name="relus")(wl) for target in (op.ReLU(x), -x))
    given = [np.ones((2, 4), dtype=np.float32), np.array(["a", "b"], dtype=object)]
    assert [*new(*given)[1]] == ["aa", "bb"]
    wl.compare(new, inputs=given).check()
    assert [row.passed for row in wl.compare(wrong, inputs=given).outputs] == [False, True]


def test_the_type_of_a_new_call_that_nobody_knows() -> None:
    x = pat.Wildcard()
    rule = Subst(op.ReLU(op.ReLU(x)), pat.Call("my.domain::Twice", x), name="twice")
    with pytest.warns(UntypedWarning, match=r"the type of my.domain::Twice does not follow .* that of %y, float32"):
        assert rule(workload("a = Relu(x) y = Relu(a)")).trace.count() == 1


def test_a_domain_without_a_dot() -> None:
    wl = workload("a = Relu(x) y = mine.Twice(a)", others=', "mine" : 1')
    x = pat.Wildcard()
    assert len(list(Subst(pat.Call("onnx::mine::Twice", op.ReLU(x)), x).match(wl))) == 1
    with pytest.raises(PatternError, match=r"torch has no operator .mine::Twice.* is .onnx::mine::Twice"):
        pat.Call("mine::Twice", pat.Wildcard())


@pytest.mark.parametrize("name", ["n", "unknown_1", "unknown_1_"])
def test_a_size_without_a_name_is_no_other_one(name: str) -> None:
    """Sizes without names have some in the view, which a model may have for others."""
    X, Y = pat.Wildcard(), pat.Wildcard()
    of_equal_shapes = Subst(X * Y, X + Y, where=X.shape == Y.shape, name="sum")
    for other, fired in {name: 1, "?": 0}.items():
        wl = workload("y = Mul(x, z)", f"float[{name},3] x, float[{other},3] z", "float[?,?] y")
        assert len(of_equal_shapes(wl).trace.firings) == fired


LEAKY = "y = LeakyRelu<alpha: float = {}>(x)"
CLIP: dict[str, Any] = {"body": "y = Clip(x, c)", "more": "float c = {1}"}
GROUPS: dict[str, Any] = {
    "body": "y = GroupNormalization<num_groups: int = 2>(x, g, b)", "inputs": "float[2,2,3] x",
    "outputs": "float[2,2,3] y", "more": "float[2] g = {1, 2}, float[2] b = {1, 2}",
}  # fmt: skip
GELU: dict[str, Any] = {
    "body": "y = com.microsoft.QuickGelu<alpha: float = 1.5>(x)", "others": ', "com.microsoft" : 1',
}  # fmt: skip
SQUARE: dict[str, Any] = {"inputs": "float[2,2] x, float[2,2] z", "outputs": "float[2,2] y"}
TURNED = "t = Transpose<perm: ints = [{}]>({}) y = MatMul(x, t)"
ROOT = "s = Sqrt(x) y = Reciprocal(s)"
TO_SHAPE: dict[str, Any] = {"body": "s = Shape(z) y = Reshape(x, s)", "outputs": "float[m,n] y"}
AXES: dict[str, Any] = {
    "inputs": "float[2,3] x, float[1] z", "outputs": "float[m,n,k] y", "more": "int64[2] c = {1, 0}, int64[1] i = {0}",
}  # fmt: skip
PAIRS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "version": ({**GROUPS, "opset": 21}, {**GROUPS, "opset": 18}),
    "attribute": ({"body": LEAKY.format(0.5)}, {"body": LEAKY.format(0.25)}),
    "sign of a zero": ({"body": LEAKY.format("0.0")}, {"body": LEAKY.format("-0.0")}),
    "literal": (CLIP, {**CLIP, "more": "float c = {2}"}),
    "type": ({"body": "y = Abs(x)"}, {"body": "y = Abs(x)", "inputs": "float[4,3] x", "outputs": "float[4,3] y"}),
    "declared result": ({"body": "y = Abs(x)"}, {"body": "y = Abs(x)", "outputs": "float[9,9] y"}),
    "operand twice": ({"body": "y = Mul(x, z)", "inputs": "float[2,3] x, float[2,3] z"},
                      {"body": "y = Mul(x, x)", "inputs": "float[2,3] x, float[2,3] z"}),
    "above": ({"body": "t = MatMul(x, w) y = Add(t, b)", "inputs": "float[2,3] x, float[3,3] w, float[3] b"},
              {"body": "t = Add(x, x) y = Add(t, b)", "inputs": "float[2,3] x, float[3,3] w, float[3] b"}),
    "left out": (CLIP, {**CLIP, "body": "y = Clip(x, , c)"}),
    "attribute above": ({**SQUARE, "body": TURNED.format("1, 0", "z")}, {**SQUARE, "body": TURNED.format("0, 1", "z")}),
    "operands of one above": ({**SQUARE, "body": TURNED.format("1, 0", "x")},
                              {**SQUARE, "body": TURNED.format("1, 0", "z")}),
    "one above used twice": ({"body": "s = Sqrt(x) r = Reciprocal(s) y = Abs(r)"},
                             {"body": "s = Sqrt(x) r = Reciprocal(s) y = Add(r, s)"}),
    "one above as an output": ({"body": ROOT}, {"body": ROOT, "outputs": "float[2,3] y, float[2,3] s"}),
    "computed shape": ({**TO_SHAPE, "inputs": "float[2,3] x, float[3,2] z"},
                       {**TO_SHAPE, "inputs": "float[2,3] x, float[1,6] z"}),
    "written shape": ({**AXES, "body": "a = Gather(c, i) y = Unsqueeze(x, a)"},
                      {**AXES, "body": "s = Shape(z) a = Gather(s, i) y = Unsqueeze(x, a)"}),
    "names of sizes": ({"body": "y = Abs(x)", "inputs": "float[n,3] x"},
                       {"body": "y = Abs(x)", "inputs": "float[m,3] x"}),
}  # fmt: skip


@pytest.mark.parametrize("name", PAIRS)
def test_readings_of_other_models_are_those_of_equal_nodes(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    models = [workload(**kwargs) for kwargs in PAIRS[name]]
    alone = []
    for wl in models:
        monkeypatch.setattr(load, "FORMS", {})
        alone.append(wl.text(full=True))
    assert alone[0] != alone[1]
    for order in (models, models[::-1]):
        monkeypatch.setattr(load, "FORMS", {})
        for wl in (*order, *order):
            assert Workload(wl.model).text(full=True) == alone[models.index(wl)]


def test_an_operator_that_users_declare_is_read_by_its_declaration() -> None:
    for _ in range(2):
        assert workload(**GELU).graph.nodes[-1].opaque
        assert workload(**GELU).with_operators(ort.quick_gelu).graph.nodes[-1].op == ort.quick_gelu.spec.name


def test_few_readings_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(load, "FORMS", {})
    monkeypatch.setattr(load, "MOST", 5)
    for number in range(12):
        assert len(workload(LEAKY.format(number / 4)).graph) == 2
    assert 0 < sum(map(len, load.FORMS.values())) <= 5
    assert 0 < len(load.FACTS) <= 40


def test_a_node_is_read_once_for_all_that_are_read_alike(monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[str] = []
    found = spellings.read
    monkeypatch.setattr(load, "FORMS", {})
    monkeypatch.setattr(spellings, "read", lambda call, places: read.append(call.node.op_type) or found(call, places))
    layer = """a{0} = Abs(x{0}) s{0} = Shape(a{0}) n{0} = Slice(s{0}, i, j) h{0} = Concat<axis: int = 0>(n{0}, k)
        r{0} = Reshape(a{0}, h{0}) t{0} = Transpose(w) m{0} = MatMul(r{0}, t{0}) q{0} = Sqrt(m{0})
        x{1} = Reciprocal(q{0})"""
    body = " ".join([layer.format(place, place + 1) for place in range(4)])
    weights = "int64[1] i = {0}, int64[1] j = {1}, int64[1] k = {3}, float[3,3] w = {1, 2, 3, 4, 5, 6, 7, 8, 9}"
    first = workload(body, "float[n,3] x0", "float[n,3] x4", more=weights)
    assert first.op_counts() == dict.fromkeys(
        ("abs", "onnx::Shape", "strided_slice", "concatenate", "reshape", "nn.dense", "rsqrt"), 4
    )
    assert sorted(read) == [  # the input has another type than what follows, and of the output that is told
        "Abs", "Abs", "Concat", "MatMul", "Reciprocal", "Reciprocal", "Reshape", "Shape", "Slice", "Sqrt", "Transpose",
    ]  # fmt: skip
    assert Workload(first.model).text() == first.text()
    assert len(read) == 11


def test_of_sizes_that_nothing_tells_none_are_equal() -> None:
    text = "a = NonZero(x) b = NonZero(x) y = Concat<axis: int = 1>(a, b)"
    for _ in range(2):
        graph = workload(text, outputs="int64[2,n] y", more="int64[2,?] a, int64[2,?] b").graph
        first, second = (node.shape for node in graph if str(node.op) == "onnx::NonZero")
        assert first != second


def test_what_fails_when_the_model_runs_is_kept() -> None:
    wl = workload(
        "g = Gather(c, i) y = Reshape(x, g)", more="int64[2] c = {3, 2}, int64[2] i = {0, 7}", outputs="float[m,n] y"
    )
    assert wl.op_counts() == {"take": 1, "onnx::Reshape": 1}


def test_integers_of_which_there_are_as_many_as_a_size_tells() -> None:
    body = "s = Shape(x) e = Expand(one, s) y = Add(e, e)"
    wl = workload(body, "float[n] x", "int64[m] y", more="int64[1] one = {7}")
    assert wl.op_counts() == {"onnx::Shape": 1, "broadcast_to": 1, "add": 1}


def test_a_pattern_tells_an_operand_that_is_left_out() -> None:
    assert "mode='cubic', arg1=None)" in str(workload('y = Resize <mode = "cubic"> (x, , x)').pattern("y"))


def test_an_explanation_tells_literals_apart() -> None:
    constants = "a = Constant <value_float = 2.0> () b = Constant <value_float = 3.0> ()"
    wl = workload(f"{constants} z = Mul (x, a) y = Add (z, b)")
    c = pat.Const()
    assert "expected %const (2.0), found %const (3.0)" in str(Subst(pat.Wildcard() * c + c, c, name="same").explain(wl))


@pytest.mark.parametrize(("body", "name", "told"), [
    ("y = Relu(x)", "Relu", "%y is a call of onnx::Relu, which the graph shows as one of nn.relu"),
    ("a = Sqrt(x) y = Reciprocal(a)", "Sqrt", "%y is a call of onnx::Sqrt, which the graph shows as one of rsqrt"),
])  # fmt: skip
def test_an_explanation_tells_by_which_operator_a_node_is_shown(body: str, name: str, told: str) -> None:
    x = pat.Wildcard()
    rule = Subst(pat.Call(f"onnx::{name}", x), op.Sigmoid(x), name="native")
    assert f"hint: {told}" in str(rule.explain(workload(body)))

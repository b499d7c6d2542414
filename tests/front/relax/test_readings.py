"""Reading Relax: what its calls read as, which of them are opaque, and that a reading computes what the call does."""

from __future__ import annotations

import inspect
from typing import Any

import numpy as np
import pytest
import torch
from tvm import ir, relax, tirx

from gsl.front.relax import from_module
from gsl.front.relax import spellings as loading
from gsl.front.relax.function import RelaxFunction
from gsl.front.relax.signatures import RelaxSignatures
from gsl.front.relax.spellings import read, read_field
from gsl.front.relax.spellings.table import Reshaped
from gsl.front.tree import Canon, LiteralOperand
from gsl.graph import TensorType, TupleType
from gsl.graph.text import value_text
from gsl.spec import TABLE
from gsl.spec.meaning import evaluate, infer
from tests.front.relax import relax_helpers
from tests.front.relax.relax_helpers import tensor
from tests.front.relax.spelling_helpers import Functions, Variables, assert_close, normalised, var

R, N = relax.op, relax.op.nn


def shown(tree: Any, scope: Variables) -> str:
    """A reading as text: leaves by their names, and the attributes that aren't the defaults."""
    match tree:
        case LiteralOperand():
            return repr(tree.value)
        case Reshaped():
            return f"{shown(tree.constant, scope)}:{value_text(tree.shape)}"
        case ir.GenericConst():
            return f"const{value_text(tuple(map(int, tree.value.shape)))}"
        case relax.Var():
            return str(tree.name)
        case relax.Call():
            return f"<{tree.op.name}>"
    operands = [shown(operand, scope) for operand in tree.operands]
    if tree.op == "tuple":
        return f"({', '.join(operands)})"
    spec = TABLE[tree.op]
    types = tuple([_type(operand, scope) for operand in tree.operands])
    defaults = {name: attr.default for name, attr in spec.attrs.items()}
    given = spec.complete(tree.attrs, types)
    told = [
        f"{name}={value_text(value)}"
        for name, value in given.items()
        if spec.attrs[name].derive is None and value_text(value) != value_text(defaults[name])
    ]
    return f"{tree.op}({', '.join(operands + told)})"


def _type(tree: Any, scope: Variables) -> Any:
    if isinstance(tree, Canon):
        operands = [_type(operand, scope) for operand in tree.operands]
        return TupleType(tuple(operands)) if tree.op == "tuple" else infer(TABLE[tree.op], operands, tree.attrs)
    if isinstance(tree, Reshaped):
        return TensorType(tree.shape, scope.type_of(tree.constant).dtype)  # type: ignore[union-attr]
    return tree.value if isinstance(tree, LiteralOperand) else scope.type_of(tree)


X, Y, INDICES = var("x", 2, 3, 4), var("y", 2, 3, 4), var("i", 2, 3, dtype="int64")
V, W, WT, K, BYTES = var("v", 4), var("w", 5, 4), var("wt", 4, 5), var("k", 6, 4, 3, 3), var("n", 2, 3, dtype="int32")
IMAGE, NHWC = var("im", 2, 4, 8, 8), var("nhwc", 2, 8, 8, 4)
C4, V5, V6 = var("c4", 4), var("v5", 5), var("v6", 6)
Q, BIAS = var("q", 2, 7, 3, 8), var("bias", 2, 3, 7, 7)
SIGNAL, VOLUME = var("s", 2, 4, 9), var("vol", 1, 4, 5, 6, 7)
FLAG = var("flag", 2, 3, 4, dtype="bool")


def zeros(*shape: int) -> Any:
    return relax.const(torch.zeros(shape).numpy())


def conv(**attrs: Any) -> Any:
    return N.conv2d(IMAGE, K, **attrs)


# Native calls of variables and what they read as. A function is given the scope, to bind variables in it.
READ: list[tuple[Any, str]] = [
    # element-wise
    (R.add(X, Y), "add(x, y)"),
    (R.multiply(X, relax.const(2.0, "float32")), "multiply(x, const())"),
    (R.floor_divide(BYTES, BYTES), "floor_divide(n, n)"),
    (R.floor_divide(X, Y), "floor(divide(x, y))"),
    (R.floor_mod(BYTES, BYTES), "floor_mod(n, n)"),
    (R.mod(X, Y), "mod(x, y)"),
    (R.power(X, Y), "power(x, y)"),
    (R.less_equal(X, Y), "less_equal(x, y)"),
    (R.logical_and(FLAG, FLAG), "logical_and(flag, flag)"),
    (R.bitwise_xor(BYTES, BYTES), "bitwise_xor(n, n)"),
    (R.right_shift(BYTES, BYTES), "right_shift(n, n)"),
    (R.where(FLAG, X, Y), "where(flag, x, y)"),
    (R.clip(X, 0, 1), "clip(x, a_min=0.0, a_max=1.0)"),
    (R.clip(X, 0, tirx.FloatImm("float64", float("inf"))), "clip(x, a_min=0.0)"),
    (R.clip(BYTES, 0, 6), "clip(n, a_min=0, a_max=6)"),
    (N.relu6(X), "nn.relu6(x)"),
    (R.astype(X, "float16"), "cast(x, dtype='float16')"),
    # activations
    (N.gelu(X), "gelu(x)"),
    (N.gelu_tanh(X), "gelu(x, approximate='tanh')"),
    (N.leakyrelu(X, 0.2), "nn.leaky_relu(x, alpha=0.2)"),
    (N.prelu(IMAGE, C4), "nn.prelu(im, c4)"),
    (N.prelu(NHWC, C4, axis=3), "nn.prelu(nhwc, c4, axis=3)"),
    (N.softplus(X, 2.0, 10.0), "softplus(x, beta=2.0, threshold=10.0)"),
    (N.softmax(X, axis=1), "nn.softmax(x, axis=1)"),
    (N.log_softmax(X), "nn.log_softmax(x, axis=2)"),
    # tensors from attributes
    (R.zeros((2, 3), "float16"), "zeros(shape=(2, 3), dtype='float16')"),
    (R.full((2,), relax.const(1.5, "float32")), "full(const(), shape=(2,))"),
    (R.full_like(X, relax.const(1.5, "float32")), "full_like(x, const())"),
    (R.ones_like(X), "ones_like(x)"),
    (R.arange(1, 9, 2), "arange(start=1, stop=9, step=2, dtype='int64')"),
    (R.arange(0.0, 1.0, 0.25), "arange(start=0.0, stop=1.0, step=0.25, dtype='float32')"),
    # shapes
    (R.concat([X, Y], -1), "concatenate((x, y), axis=2)"),
    (R.stack([X, Y], 1), "stack((x, y), axis=1)"),
    (R.split(X, 2, axis=2), "split(x, indices_or_sections=(2,), axis=2)"),
    (R.split(X, [1, 3], axis=-1), "split(x, indices_or_sections=(1, 3), axis=2)"),
    (R.reshape(X, (6, -1)), "reshape(x, newshape=(6, 4))"),
    (R.flatten(X), "reshape(x, newshape=(24,))"),
    (N.batch_flatten(X), "reshape(x, newshape=(2, 12))"),
    (R.permute_dims(X), "transpose(x, axes=(2, 1, 0))"),
    (R.expand_dims(X, [1, 2]), "expand_dims(x, axis=1, num_newaxis=2)"),
    (R.expand_dims(X, -1), "expand_dims(x, axis=3)"),
    (R.expand_dims(X, [0, 2]), "reshape(x, newshape=(1, 2, 1, 3, 4))"),
    (R.squeeze(var("u", 1, 3, 1), [-1]), "squeeze(u, axis=(2,))"),
    (R.squeeze(var("u", 1, 3, 1)), "squeeze(u, axis=(0, 2))"),
    (R.broadcast_to(V, (2, 4)), "broadcast_to(v, shape=(2, 4))"),
    (R.repeat(X, 2, 1), "repeat(x, repeats=2, axis=1)"),
    (R.tile(X, (2, 1)), "tile(x, reps=(1, 2, 1))"),
    (R.flip(X, -1), "reverse(x, axis=(2,))"),
    (N.pad(INDICES, [0, 1, 2, 0]), "nn.pad(i, pad_width=((0, 1), (2, 0)), pad_value=0)"),
    (N.pad(X, [0, 0, 0, 0, 1, 2], "replicate"), "nn.pad(x, pad_width=((0, 0), (0, 0), (1, 2)), pad_mode='edge')"),
    # lookups
    (R.strided_slice(X, [-1], [1], [2**31]), "strided_slice(x, begin=(1,), end=(4,), strides=(1,), axes=(2,))"),
    (R.strided_slice(X, [2], [3], [-9], [-2]), "strided_slice(x, begin=(3,), end=(-5,), strides=(-2,), axes=(2,))"),
    (R.take(X, INDICES, 1), "take(x, i, axis=1)"),
    (R.take(X, relax.const(2, "int64"), 1), "take(x, 2, axis=1)"),
    (R.gather_elements(var("m", 2, 9), INDICES, 1), "gather(m, i, axis=1)"),
    (R.scatter_elements(var("m", 2, 9), INDICES, var("u", 2, 3), 1), "scatter(m, i, u, axis=1)"),
    (R.triu(X, 1), "trilu(x, k=1)"),
    (R.tril(X), "trilu(x, upper=False)"),
    # reductions
    (R.sum(X), "sum(x, axis=(0, 1, 2))"),
    (R.sum(BYTES), "cast(sum(n, axis=(0, 1)), dtype='int32')"),
    (R.max(X, [-1], True), "max(x, axis=(2,), keepdims=True)"),
    (R.mean(X, [0, 1]), "mean(x, axis=(0, 1))"),
    (R.variance(X, 1), "variance(x, axis=(1,))"),
    (R.argmax(X, 1), "argmax(x, axis=(1,))"),
    (R.cumsum(X, 1, exclusive=True), "cumsum(x, axis=1, exclusive=True)"),
    (R.cumsum(INDICES, 0), "cumsum(i, axis=0)"),
    (R.cumsum(BYTES, 0), "cumsum(n, axis=0, dtype='int32')"),
    # products
    (R.matmul(X, W.__class__("w45", relax.TensorType((4, 5), "float32"))), "matmul(x, w45)"),
    (R.einsum([X, X], "bik,bjk->bij"), "einsum((x, x), equation='abc,adc->abd')"),
    (lambda s: R.matmul(X, s.bind("t", R.permute_dims(W))), "nn.dense(x, w)"),
    (lambda s: R.matmul(V, s.bind("t", R.permute_dims(W, [-1, 0]))), "nn.dense(v, w)"),
    (lambda s: R.matmul(X, s.bind("u", s.bind("t", R.permute_dims(W, [1, 0])))), "nn.dense(x, w)"),
    (lambda s: R.matmul(X, s.bind("t", R.permute_dims(W)), "float32"), "nn.dense(x, w)"),
    (lambda s: R.matmul(X, s.bind("t", R.permute_dims(zeros(5, 4)))), "nn.dense(x, const(5, 4))"),
    (lambda s: R.matmul(X, s.bind("t", R.permute_dims(Y, [0, 2, 1]))), "matmul(x, t)"),
    (lambda s: R.matmul(X, s.bind("t", R.permute_dims(var("sq", 4, 4), [0, 1]))), "matmul(x, t)"),
    (
        N.attention(Q, Q, Q),
        "transpose(nn.attention(transpose(q, axes=(0, 2, 1, 3)), transpose(q, axes=(0, 2, 1, 3)), "
        "transpose(q, axes=(0, 2, 1, 3))), axes=(0, 2, 1, 3))",
    ),
    (
        N.attention(Q, Q, Q, scale=tirx.FloatImm("float32", 0.3), causal_mask="BottomRight"),
        "transpose(nn.attention(transpose(q, axes=(0, 2, 1, 3)), transpose(q, axes=(0, 2, 1, 3)), "
        "transpose(q, axes=(0, 2, 1, 3)), scale=0.3, is_causal=True), axes=(0, 2, 1, 3))",
    ),
    (
        N.attention(Q, Q, Q, BIAS),
        "transpose(nn.attention(transpose(q, axes=(0, 2, 1, 3)), transpose(q, axes=(0, 2, 1, 3)), "
        "transpose(q, axes=(0, 2, 1, 3)), bias), axes=(0, 2, 1, 3))",
    ),
    # convolutions and pooling
    (conv(padding=1, strides=2), "nn.conv2d(im, k, strides=(2, 2), padding=(1, 1, 1, 1))"),
    (conv(padding=(1, 2, 3, 4)), "nn.conv2d(im, k, padding=(1, 2, 3, 4))"),
    (conv(out_layout="NHWC", out_dtype="float32"), "nn.conv2d(im, k, out_layout='NHWC')"),
    (
        N.conv2d(NHWC, var("hwio", 3, 3, 2, 6), groups=2, data_layout="NHWC", kernel_layout="HWIO"),
        "nn.conv2d(nhwc, hwio, groups=2, data_layout='NHWC', kernel_layout='HWIO')",
    ),
    (N.conv1d(SIGNAL, var("k1", 6, 4, 3), dilation=2), "nn.conv1d(s, k1, dilation=(2,))"),
    (
        N.conv2d_transpose(IMAGE, var("t", 4, 3, 2, 2), strides=2, output_padding=1),
        "nn.conv2d_transpose(im, t, strides=(2, 2), output_padding=(1, 1))",
    ),
    (
        N.max_pool2d(IMAGE, 3, 2, ceil_mode=True),
        "nn.max_pool2d(im, pool_size=(3, 3), strides=(2, 2), ceil_mode=True)",
    ),
    (
        N.avg_pool2d(IMAGE, 2, 2, padding=1, count_include_pad=True),
        "nn.avg_pool2d(im, pool_size=(2, 2), strides=(2, 2), padding=(1, 1, 1, 1), count_include_pad=True)",
    ),
    (
        N.avg_pool1d(SIGNAL, 3, 2, ceil_mode=True, count_include_pad=True),
        "nn.avg_pool1d(s, pool_size=(3,), strides=(2,), ceil_mode=True, count_include_pad=True)",
    ),
    (N.adaptive_avg_pool2d(NHWC, 1, layout="NHWC"), "nn.adaptive_avg_pool2d(nhwc, output_size=(1, 1), layout='NHWC')"),
    (N.adaptive_avg_pool3d(VOLUME), "nn.adaptive_avg_pool3d(vol, output_size=(None, None, None))"),
    # norms
    (N.layer_norm(X, V, V, -1, 0.1), "nn.layer_norm(x, v, v, axis=(2,), epsilon=0.1)"),
    (N.group_norm(IMAGE, C4, C4, 2, 1, [2, 3]), "nn.group_norm(im, c4, c4, num_groups=2)"),
    (N.instance_norm(NHWC, C4, C4, 3, [1, 2]), "nn.instance_norm(nhwc, c4, c4, axis=3)"),
    (N.instance_norm(var("one", 1, 4, 8, 8), C4, C4, 1, [0, 2, 3]), "nn.instance_norm(one, c4, c4)"),
    (N.rms_norm(X, V), "nn.rms_norm(x, v, axis=(2,))"),
    # biases
    (lambda s: R.add(s.bind("y", conv()), R.reshape(V6, (1, 6, 1, 1))), "nn.bias_add(y, v6)"),
    (lambda s: R.add(s.bind("b", R.reshape(V6, (6, 1, 1))), s.bind("y", conv())), "nn.bias_add(y, v6)"),
    (lambda s: R.add(s.bind("y", conv()), s.bind("b", R.expand_dims(V6, [0, 2, 3]))), "nn.bias_add(y, v6)"),
    (
        lambda s: R.add(s.bind("y", conv()), s.bind("b", R.expand_dims(s.bind("a", R.expand_dims(V6, 1)), 2))),
        "nn.bias_add(y, v6)",
    ),
    (lambda s: R.add(s.bind("y", conv()), zeros(1, 6, 1, 1)), "nn.bias_add(y, const(1, 6, 1, 1):(6,))"),
    (lambda s: R.add(s.bind("y", conv(out_layout="NHWC")), V6), "nn.bias_add(y, v6, axis=3)"),
    (lambda s: R.add(s.bind("y", R.matmul(X, s.bind("t", R.permute_dims(W)))), V5), "nn.bias_add(y, v5, axis=2)"),
    (lambda s: R.add(s.bind("y", R.matmul(X, WT)), V5), "nn.bias_add(y, v5, axis=2)"),
    (lambda s: R.add(V5, s.bind("y", R.matmul(X, WT))), "nn.bias_add(y, v5, axis=2)"),
    (lambda s: R.add(s.bind("y", R.matmul(X, WT)), zeros(1, 1, 5)), "add(y, const(1, 1, 5))"),
    (lambda s: R.add(s.bind("y", R.matmul(X, WT)), zeros(1)), "add(y, const(1,))"),
    (lambda s: R.add(s.bind("y", R.matmul(V, V)), V5), "add(y, v5)"),
    (lambda s: R.add(V5, s.bind("y", R.matmul(V, s.bind("t", R.permute_dims(W))))), "nn.bias_add(y, v5, axis=0)"),
    (
        lambda s: R.add(s.bind("y", R.matmul(X, s.bind("t", R.permute_dims(W)))), zeros(1, 5)),
        "nn.bias_add(y, const(1, 5):(5,), axis=2)",
    ),
    # sums that are none: another axis, more than one, nothing that has channels
    (lambda s: R.add(s.bind("y", conv()), V6), "add(y, v6)"),
    (lambda s: R.add(s.bind("y", conv()), zeros(1, 6, 1, 6)), "add(y, const(1, 6, 1, 6))"),
    (lambda s: R.add(s.bind("y", conv()), zeros(1, 1, 1, 1)), "add(y, const(1, 1, 1, 1))"),
    (lambda s: R.add(s.bind("y", conv()), zeros(2, 6, 1, 1)), "add(y, const(2, 6, 1, 1))"),
    (lambda s: R.add(s.bind("y", conv()), zeros(1, 1, 6, 1, 1)), "add(y, const(1, 1, 6, 1, 1))"),
    (lambda s: R.add(s.bind("y", conv()), var("b", 1, 6, 1, 1)), "add(y, b)"),
    (lambda s: R.add(s.bind("y", R.exp(IMAGE)), zeros(1, 4, 1, 1)), "add(y, const(1, 4, 1, 1))"),
]


@pytest.mark.parametrize(("call", "expected"), READ, ids=[f"{i}-{text}" for i, (_, text) in enumerate(READ)])
def test_a_call_is_read(call: Any, expected: str) -> None:
    scope = Variables()
    call = normalised_in(scope, call)
    found = read(call, scope)
    assert found is not None
    assert shown(found, scope) == expected


def normalised_in(scope: Variables, call: Any) -> Any:
    """A call whose nested calls are bound to variables, as in a function."""
    if inspect.isfunction(call):
        call = call(scope)
    args = [
        scope.bind(f"a{i}", arg) if isinstance(arg, relax.Call) else arg for i, arg in enumerate(call.args)
    ]
    return normalised(relax.Call(call.op, args, call.attrs, call.ty_args))


# ---------------------------------------------------------------- what is not read

OPAQUE: list[Any] = [
    # of another dtype than torch's
    R.mean(BYTES),
    R.mean(BYTES),
    R.divide(BYTES, BYTES),
    R.power(BYTES, BYTES),
    R.clip(BYTES, 0.5, 2.5),
    # of other numbers
    R.floor_mod(X, Y),
    R.variance(BYTES, 1),
    R.add(FLAG, FLAG),
    R.clip(X, 2, 1),
    R.take(X, INDICES, 1, mode="clip"),
    R.take(X, INDICES, 1, mode="wrap"),
    R.scatter_elements(var("m", 2, 9), INDICES, var("u", 2, 3), 1, "add"),
    R.strided_slice(X, [0], [0], [1], assume_inbound=True),
    R.sum(X, []),
    R.arange(3, 0, -2),
    R.arange(0.0, 3.0, 0.5, "int32"),
    N.pad(X, [0, 0, 0, 0, 1, 2], "circular"),
    N.pad(BYTES, [0, 0, 0, 1], "constant", 0.5),
    R.einsum([var("sq", 3, 3)], "ii->i"),
    N.layer_norm(X, V, V, -1, scale=False),
    N.layer_norm(X, V, V, -1, center=False),
    N.layer_norm(X, var("g", 4, 3), var("g", 4, 3), [2, 1]),
    N.group_norm(IMAGE, C4, C4, 2, 1, [3]),
    N.instance_norm(IMAGE, C4, C4, 1, [0, 2, 3]),
    N.group_norm(NHWC, C4, C4, 2, 3, [0, 1]),
    N.avg_pool2d(IMAGE, 3, 2, ceil_mode=True, count_include_pad=True),
    N.avg_pool2d(IMAGE, 2, dilation=2),
    N.attention(Q, var("kv", 2, 5, 3, 8), var("kv", 2, 5, 3, 8), causal_mask="BottomRight"),
    N.attention(Q, Q, Q, window_size=2, causal_mask="TopLeft"),
    N.attention(Q, Q, Q, BIAS, causal_mask="TopLeft"),
    # not in the vocabulary
    R.eye(3),
    R.cumprod(X, 1),
    R.sort(X),
    R.nonzero(X),
    R.layout_transform(IMAGE, lambda n, c, h, w: (n, c // 2, h, w, c % 2)),
    R.image.resize2d(IMAGE, (4, 4)),
    N.pixel_shuffle(IMAGE, 2),
    # of no known shape
    R.add(relax.Var("x", relax.TensorType(dtype="float32", ndim=2)), relax.const(1.0, "float32")),
    # of several results
    N.dropout(X),
    N.batch_norm(IMAGE, C4, C4, C4, C4, 1, training=False),
    # no operator of Relax
    relax.call_dps_packed("f", [X], relax.TensorType((2,), "float32")),
]


@pytest.mark.parametrize("call", OPAQUE, ids=[f"{i}-{call.op.name}" for i, call in enumerate(OPAQUE)])
def test_what_is_not_exactly_an_operator_is_opaque(call: Any) -> None:
    assert read(normalised(call), Variables()) is None


def test_fields_of_calls_with_several_results() -> None:
    scope = Variables()

    def field(call: Any, index: int) -> str | None:
        found = read_field(normalised(call), index, scope)
        return None if found is None else shown(found, scope)

    norm = N.batch_norm(NHWC, C4, C4, C4, var("m", 4), -1, 0.1, training=False)
    assert field(norm, 0) == "nn.batch_norm(nhwc, c4, c4, c4, m, axis=3, epsilon=0.1)"
    assert field(norm, 2) is None
    plain = N.batch_norm(IMAGE, C4, C4, C4, C4, 1, center=False, scale=False, training=False)
    assert field(plain, 0) == "nn.batch_norm(im, c4, c4, c4, c4, center=False, scale=False)"
    assert field(N.batch_norm(IMAGE, C4, C4, C4, C4, 1), 0) is None
    assert field(N.dropout(X, 0.1), 0) == "nn.dropout(x, rate=0.1)"
    assert field(N.dropout(X, 0.1), 1) == "ones_like(x)"
    assert field(R.split(X, 2, 2), 0) is None


# ---------------------------------------------------------------- a reading computes what the call does

EDGES = {
    "float32": torch.tensor([0, -0.5, 0.5, 1.5, 2.5, -1.5, -2.5, 3, 7, -7, 90, -90, 1e-6, -1e-4, 0.3, 1e30]),
    "int32": torch.tensor([0, 1, -1, 2, -2, 3, 7, -7, 5, -8, 100, -100], dtype=torch.int32),
    "int8": torch.tensor([0, 1, -1, 2, -2, 3, 7, -7, 5, -8, 127, -127], dtype=torch.int8),
}
"""Halves, both signs, large and small ones."""

OF_ONE = (
    R.abs, R.asinh, R.atan, R.bitwise_not, R.ceil, R.cos, R.erf, R.exp, R.floor, R.isfinite, R.isinf, R.isnan, R.log,
    R.negative, R.round, R.rsqrt, R.sigmoid, R.sign, R.sin, R.sqrt, R.square, R.tanh, R.trunc, N.gelu, N.relu, N.relu6,
    N.selu, N.silu, N.softplus,
)  # fmt: skip
OF_TWO = (
    R.add, R.subtract, R.multiply, R.divide, R.floor_divide, R.floor_mod, R.mod, R.maximum, R.minimum, R.power,
    R.equal, R.less, R.greater_equal, R.bitwise_and, R.bitwise_or, R.bitwise_xor,
)  # fmt: skip


def edge_cases() -> list[tuple[str, Any, list[torch.Tensor]]]:
    """The calls of element-wise operators that are well-typed and read, with values."""
    found = []
    for dtype, values in EDGES.items():
        count = len(values)
        left, right = values.repeat_interleave(count), values.repeat(count)
        # Division by zero is nobody's.
        left, right = left[right != 0], right[right != 0]
        for function, data in [*((f, [values]) for f in OF_ONE), *((f, [left, right]) for f in OF_TWO)]:
            params = [var(f"p{i}", len(value), dtype=dtype) for i, value in enumerate(data)]
            try:
                call = normalised(function(*params))
            except TypeError:
                continue
            if read(call, Variables()) is not None:
                found.append((f"{call.op.name}-{dtype}", call, data))
    return found


EDGE_CASES = edge_cases()
NOT_LOWERED = frozenset(("nn.conv2d(im, k, out_layout='NHWC')", "nn.bias_add(y, v6, axis=3)"))
"""Relax can't run convolutions that change the layout."""
RUN = [(text, call) for call, text in READ if text not in NOT_LOWERED]


def value_of(tree: Any, scope: Variables, values: dict[Any, torch.Tensor]) -> Any:
    """The value of a reading by the meaning of its operators."""
    match tree:
        case LiteralOperand():
            return tree.value
        case Reshaped():
            return value_of(tree.constant, scope, values).reshape(tree.shape)
        case ir.GenericConst():
            return torch.from_numpy(tree.value.numpy())
        case relax.Var() if tree in values:
            return values[tree]
        case relax.Var():
            return value_of(read(scope.lookup(tree), scope) or scope.lookup(tree), scope, values)
    operands = [value_of(operand, scope, values) for operand in tree.operands]
    return tuple(operands) if tree.op == "tuple" else evaluate(TABLE[tree.op], operands, tree.attrs)


def inlined(expr: Any, scope: Variables) -> Any:
    """The expression without variables that are bound in the scope."""
    if isinstance(expr, relax.Var):
        return inlined(scope.bound[expr], scope) if expr in scope.bound else expr
    if isinstance(expr, relax.Tuple):
        return relax.Tuple([inlined(field, scope) for field in expr.fields])
    if isinstance(expr, relax.Call):
        return relax.Call(expr.op, [inlined(arg, scope) for arg in expr.args], expr.attrs, expr.ty_args)
    return expr


def random_value(param: Any) -> torch.Tensor:
    shape, dtype = tuple(map(int, param.ty.shape.values)), getattr(torch, str(param.ty.dtype))
    made = torch.rand(shape, generator=torch.Generator().manual_seed(sum(shape))) * 4
    # Small integers serve as indices too, no two the same in a row.
    places = (torch.arange(shape[-1]) if shape else torch.tensor(0)).expand(shape).clone()
    return made - 2 if dtype == torch.float32 else (places + (dtype == torch.int32)).to(dtype)


def test_a_reading_computes_what_the_call_does() -> None:
    functions, cases = Functions(), []
    for text, call in RUN:
        scope = Variables()
        call = normalised_in(scope, call)
        whole = inlined(call, scope)
        params = list(relax.analysis.free_vars(whole))
        values = {param: random_value(param) for param in params}
        expected = value_of(read(call, scope), scope, values)
        cases.append((text, functions.add(params, whole), list(values.values()), expected))
    for text, call, data in EDGE_CASES:
        params = list(call.args[: len(data)])
        expected = value_of(read(call, Variables()), Variables(), dict(zip(params, data, strict=True)))
        cases.append((text, functions.add(params, call), data, expected))
    run = functions.build()
    different = []
    for text, name, data, expected in cases:
        try:
            assert_close(run(name, *data), expected)
        except AssertionError as error:
            different.append(f"{text}: {error}")
    assert not different, "\n".join(different)
    assert len(cases) > 150


@pytest.mark.parametrize("dataflow", [True, False])
def test_calls_of_a_known_form_are_read_as_the_first_one_was(
    dataflow: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is read by its form is what is read by itself, also where a reading looks at what computes an operand."""

    def body(b: Any, x: Any, w: Any, bias: Any) -> Any:
        for _ in range(3):
            x = b.emit(relax.op.nn.relu(b.emit(relax.op.add(b.emit(relax.op.multiply(x, w)), bias))))
            x = b.emit(relax.op.add(x, x))
            x = b.emit(relax.op.matmul(x, b.emit(relax.op.nn.relu(w))))
            x = b.emit(relax.op.add(b.emit(relax.op.matmul(x, b.emit(relax.op.permute_dims(w)))), bias))
            x = b.emit(relax.op.nn.softmax(b.emit(relax.op.nn.softmax(x, 0)), 1))
            # sums with products, as biases or not: by what the product is one of, and by what is added
            row = b.emit(relax.op.reshape(bias, (1, 4)))
            turned = b.emit(relax.op.permute_dims(w))
            for product in (b.emit(relax.op.matmul(x, w)), b.emit(relax.op.matmul(x, turned))):
                for other in (bias, row, b.emit(relax.op.exp(row)), w, turned):
                    x = b.emit(relax.op.add(product, other))
                    x = b.emit(relax.op.add(other, product))
            # products with transposed weights: of one tensor with itself, and of two
            other = b.emit(relax.op.permute_dims(x))
            for left, right in ((w, turned), (x, turned), (x, other), (turned, other), (other, other)):
                x = b.emit(relax.op.matmul(left, right))
            # the first one of a form reads one tensor twice, the next ones two
            half, other = (b.emit(relax.op.astype(each, "float16")) for each in (x, w))
            for left, right in ((half, half), (half, other), (other, half)):
                b.emit(relax.op.matmul(left, b.emit(relax.op.permute_dims(right))))
            # shapes, which are told apart by their sizes
            for sizes in ((2, 8), (8, 2), (16,), (2, 8)):
                flat = b.emit(relax.op.reshape(x, sizes))
                x = b.emit(relax.op.matmul(b.emit(relax.op.reshape(flat, (4, 4))), turned))
            for rows in (1, 4):
                x = b.emit(relax.op.add(x, b.emit(relax.op.broadcast_to(bias, (rows, 4)))))
            # numbers, which are told apart by their values
            for value in (2.0, 0.0, -0.0, 2.0, float("nan")):
                x = b.emit(relax.op.multiply(b.emit(relax.op.add(x, relax.const(value))), relax.const(value)))
        return x

    source = relax_helpers.function([tensor("x", 4, 4), tensor("w", 4, 4), tensor("bias", 4)], body, dataflow=dataflow)
    fast = from_module(source).load()
    monkeypatch.setattr(RelaxSignatures, "known", lambda *args: None)
    slow = from_module(source).load()
    assert [(node.name, node.op, repr(node.attrs), node.type) for node in fast] == [
        (node.name, node.op, repr(node.attrs), node.type) for node in slow
    ]
    assert str(fast) == str(slow)
    assert {"nn.bias_add", "nn.dense", "matmul", "add"} <= {str(node.op) for node in fast}


def test_a_constant_is_read_by_its_value_whatever_was_read_before() -> None:
    """A bias that is a constant of four axes is read as one of one axis, and a parameter of that type is not."""

    def body(b: Any, x: Any, w: Any, *bias: Any) -> Any:
        added = bias[0] if bias else relax.const(np.ones((1, 8, 1, 1), "float32"))
        return b.emit(relax.op.add(b.emit(relax.op.nn.conv2d(x, w)), added))

    params = [tensor("x", 1, 3, 8, 8), tensor("w", 8, 3, 3, 3)]
    given = from_module(relax_helpers.function([*params, tensor("y", 1, 8, 1, 1)], body)).load()
    constant = from_module(relax_helpers.function([tensor("x", 1, 3, 8, 8), tensor("w", 8, 3, 3, 3)], body)).load()
    assert [node.op for node in (given.outputs[0], constant.outputs[0])] == ["add", "nn.bias_add"]


@pytest.mark.parametrize("size", [4, tirx.Var("n", "int64")], ids=["number", "symbol"])
def test_forms_without_symbolic_sizes_are_known_in_all_functions(size: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def body(b: Any, x: Any, w: Any) -> Any:
        x = b.emit(relax.op.matmul(b.emit(relax.op.multiply(x, w)), b.emit(relax.op.nn.relu(w))))
        return b.emit(relax.op.nn.softmax(b.emit(relax.op.matmul(x, w)), 1))

    source = relax_helpers.function([tensor("x", size, 4, 4), tensor("w", 4, 4)], body)
    first = from_module(source).load()
    reads: list[Any] = []

    def noted(call: Any, scope: Any) -> Any:
        reads.append(call)
        return read(call, scope)

    monkeypatch.setattr(loading, "read", noted)
    assert str(from_module(source).load()) == str(first)
    assert bool(reads) is not isinstance(size, int)


def test_a_call_that_is_given_types_is_more_than_its_arguments() -> None:
    x = relax.Var("x", relax.TensorType([4], "float32"))
    placed = relax.TensorType([4], "float32", vdevice=relax.VDevice("llvm"))
    builder = relax.BlockBuilder()
    with builder.function("main", [x]):
        with builder.dataflow():
            builder.emit(relax.op.tanh(x))
            output = builder.emit_output(ir.Call(ir.Op.get("relax.tanh"), [x], None, [placed]))
        builder.emit_func_output(output)
    plain, given = RelaxFunction(builder.get()["main"]).args
    assert plain == (x,)
    assert given is None

"""Calls beside the examples of the declarations: dtypes that are promoted, layouts that a framework can't lower, ranks
and numbers at the edge of what an operator takes. The spellings of every front end are tried on all of them."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

from gsl.spec import TABLE
from gsl.spec.examples import (
    B1,
    B2,
    BETA,
    COUNTS,
    GAMMA,
    I32,
    IMAGE,
    IMAGE3,
    INDICES,
    INF,
    J32,
    KERNEL,
    MATRIX,
    MEAN,
    NHWC,
    ROW,
    SIGNAL,
    VAR,
    Example,
    P,
    U,
    X,
    Y,
    call,
    exactly,
    rand,
    unit,
)  # fmt: skip
from gsl.spec.packed import ACTIVATIONS
from tests.helpers.examples import ExampleCall, calls

Row = tuple[str, Example]


def of(op: str, *operands: Any, **attrs: Any) -> Row:
    return op, call(*operands, **attrs)


HALF, DOUBLE = rand(2, 3, 4, dtype="float16"), rand(2, 3, 4, dtype="float64")
SMALL = rand(2, 3, 4, low=-2e-6, high=2e-6)
BYTES = exactly([[7, -7, 3], [5, 0, -2]], "int8")
BYTES_TURNED = exactly([[7, 5], [-7, 0], [3, -2]], "int8")
LONG, SHORT, WHOLE = exactly([[7, -7, 3], [5, 0, -2]], "int64"), rand(2, 3), rand(2, 3, dtype="int64", low=1, high=6)
POSITIVE, POSITIVES = rand(2, 3, low=0.5, high=2.0), rand(3, low=0.5, high=2.0)
TINY = exactly([0.0, 1e-7, -1e-5, 1e-3, -1.0, 30.0, 90.0, -90.0])
HALVES = exactly([number / 4 for number in range(-40, 41)])
POINTS = list(itertools.product((0.0, -0.0, 1.0, -2.5, 1e-20, INF, -INF, float("nan")), repeat=2))
UP, ACROSS = (exactly(list(numbers)) for numbers in zip(*POINTS))
MASK = exactly([[True, False, True], [True, False, False], [True, True, False]], "bool")
VECTOR, VECTOR4 = rand(3), rand(4)
FEATURES = rand(2, 3, 8, 8)
Q, K, V = (rand(2, 4, 3, 8, seed=seed) for seed in range(3))


# ---------------------------------------------------------------- by rule

BINARY = tuple(op for op, spec in TABLE.items() if spec.operands == ("lhs", "rhs"))
OF_INTEGERS = ("left_shift", "right_shift", "bitwise_and", "bitwise_or", "bitwise_xor")


def _binary() -> Iterator[Row]:
    """With numbers on either side, and of dtypes that are promoted."""
    for op in BINARY:
        whole = op in OF_INTEGERS
        x, y = (WHOLE, rand(3, dtype="int64", low=1, high=6)) if whole else (POSITIVE, POSITIVES)
        number: Any = 2 if whole else 1.5
        pairs: list[tuple[Any, Any]] = [(x, y), (x, number), (number, x), (WHOLE, 2), (2, WHOLE)]
        if not whole:
            pairs += [(WHOLE, 1.5), (1.5, WHOLE), (rand(2, dtype="float16"), 1.5)]
        if op in ("logical_and", "maximum", "equal", "bitwise_or", "add", "multiply"):
            pairs.append((rand(2, 3, dtype="bool"), True))
        yield from (of(op, *pair) for pair in pairs)


def _conv() -> Iterator[Row]:
    for n, letters in ((1, "W"), (2, "HW"), (3, "DHW")):
        size, kernel = (7,) * n, (3,) * n
        x, last, w = rand(2, 4, *size), rand(2, *size, 4), rand(6, 4, *kernel)
        op = f"nn.conv{n}d"
        yield of(op, x, w)
        yield of(op, x, w, strides=2, padding=1)
        yield of(op, x, rand(6, 2, *kernel), groups=2, dilation=2, padding=(1,) * n + (2,) * n)
        yield of(op, last, w, data_layout="N" + letters + "C")
        yield of(op, x, rand(4, *kernel, 6), kernel_layout="I" + letters + "O", out_layout="N" + letters + "C")
        yield of(op, x, w, out_dtype="float64")
        op, w = f"nn.conv{n}d_transpose", rand(4, 3, *kernel)
        yield of(op, x, w)
        yield of(op, x, w, strides=2, padding=1, output_padding=1, groups=2)
        yield of(op, x, w, padding=(1,) * n + (2,) * n)
        yield of(op, last, w, data_layout="N" + letters + "C", dilation=2)


def _pool() -> Iterator[Row]:
    for n, letters in ((1, "W"), (2, "HW"), (3, "DHW")):
        x, last, layout = rand(2, 4, *(7,) * n), rand(2, *(7,) * n, 4), "N" + letters + "C"
        for kind in ("max", "avg"):
            op = f"nn.{kind}_pool{n}d"
            yield of(op, x, pool_size=2)
            yield of(op, x, pool_size=3, strides=2, padding=1, ceil_mode=True)
            yield of(op, x, pool_size=2, strides=2, padding=(0,) * n + (1,) * n)
            yield of(op, last, pool_size=2, strides=2, layout=layout)
            op = f"nn.adaptive_{kind}_pool{n}d"
            yield of(op, x, output_size=1)
            yield of(op, x, output_size=(None,) + (2,) * (n - 1))
            yield of(op, last, output_size=2, layout=layout)
            yield of(f"nn.global_{kind}_pool{n}d", last, layout=layout)
        yield of(f"nn.max_pool{n}d", x, pool_size=2, dilation=2)
        op = f"nn.avg_pool{n}d"
        yield of(op, x, pool_size=2, padding=1, count_include_pad=True)
        yield of(op, x, pool_size=2, ceil_mode=True, strides=2, count_include_pad=True)
        yield of(op, x, pool_size=2, padding=(1,) * n + (0,) * n, count_include_pad=True)


def _reductions() -> Iterator[Row]:
    for op in ("sum", "mean", "max", "min", "prod", "all", "any", "variance", "std", "logsumexp", "argmax", "argmin"):
        for axis in (None, 1, (0, 2), (0, 1, 2)):
            yield of(op, X, axis=axis)
            yield of(op, X, axis=axis, keepdims=True)
        yield of(op, X, axis=1, exclude=True)
        if op not in ("variance", "std", "argmax", "argmin"):
            yield of(op, X, axis=())
        if op not in ("mean", "variance", "std", "logsumexp"):
            yield of(op, WHOLE, axis=0)
    for op in ("variance", "std"):
        yield of(op, FEATURES, axis=(2, 3), unbiased=True)


# ---------------------------------------------------------------- one by one

ELEMENTWISE: list[Row] = [
    of("add", BYTES, SHORT),
    of("add", HALF, exactly(2.5)),
    of("add", HALF, X),
    of("add", I32, SHORT),
    of("add", DOUBLE, X),
    of("add", exactly(2, "int64"), X),
    of("multiply", I32, exactly(0.5)),
    of("add", B1, B2),
    of("multiply", B1, B2),
    of("multiply", 2.5, I32),
    of("multiply", HALF, 0.1),
    of("maximum", B1, B2),
    of("minimum", B1, True),
    of("maximum", I32, SHORT),
    of("minimum", DOUBLE, X),
    of("add", B1, 2),
    of("subtract", I32, 2.5),
    of("equal", I32, SHORT),
    of("less", B1, B2),
    of("less", 2.5, I32),
    of("logical_and", I32, exactly([True, True, False], "bool")),
    of("logical_xor", X, Y),
    of("logical_not", I32),
    of("bitwise_not", B1),
    of("bitwise_and", I32, True),
    of("left_shift", exactly([[7, 5], [3, 1]], "int64"), 3),
    of("right_shift", I32, exactly([[1, 0, 2]], "int32")),
    of("floor_divide", X, 0.3),
    of("floor_divide", X, P),
    of("floor_divide", X, Y),
    of("floor_divide", exactly([1.0, -1.0, 3.0, 7.5]), 0.1),
    of("floor_divide", I32, -2),
    of("floor_divide", I32, 2),
    of("floor_divide", 7.5, P),
    of("floor_mod", X, -0.3),
    of("floor_mod", X, Y),
    of("floor_mod", I32, -3),
    of("mod", X, Y),
    of("mod", I32, -3),
    of("divide", I32, J32),
    of("divide", LONG, 3),
    of("divide", 1, exactly([[8, 8, 4], [6, 1, 3]], "int32")),
    of("divide", 1.0, P),
    of("power", I32, 3),
    of("power", I32, 0),
    of("power", X, 2),
    of("power", X, 3.0),
    of("power", COUNTS, 0.5),
    of("power", exactly([[8, 8, 4], [6, 1, 3]], "int32"), 0.5),
    of("atan2", I32, 2),
    of("atan2", HALF, rand(2, 3, 4, dtype="float16", seed=1)),
    of("atan2", UP, ACROSS),
    of("atan2", X, 0.5),
    *(of(op, I32) for op in ("exp", "sigmoid", "abs", "negative", "sign", "floor", "ceil", "trunc", "round", "square",
                             "isnan", "isfinite", "nn.relu", "nn.relu6")),
    of("exp", B1),
    of("sigmoid", B1),
    of("sqrt", COUNTS),
    of("log2", exactly([[8, 8, 4], [6, 1, 3]], "int32")),
    of("reciprocal", exactly([[8, 8, 4], [6, 1, 3]], "int32")),
    of("reciprocal", J32),
    of("acos", unit(2, 3, 4, dtype="float16")),
    *(of(op, HALF) for op in ("sinh", "erf", "gelu", "nn.leaky_relu", "silu", "nn.softmax")),
    of("expm1", SMALL),
    of("log1p", SMALL),
    of("expm1", exactly([0.0, -15.0, 15.0, 45.0, 75.0, INF])),
    of("expm1", TINY),
    of("log1p", exactly([-1.0, 0.0, INF, -0.5, 1e30])),
    of("log1p", exactly([0.0, 1e-7, -1e-5, 1e-3, -1.0, 30.0, 90.0, 2.5, INF, float("nan"), -INF])),
    of("round", HALVES),
    of("where", B1, exactly(2, "int64"), ROW),
    of("where", MASK, exactly([[7, -7, 3]], "int32"), rand(3, 3)),
    of("where", B1, 1, 0),
    of("where", rand(2, 3, dtype="bool"), SHORT, VECTOR),
    of("where", rand(2, 3, dtype="bool"), SHORT, 2.0),
    of("where", rand(2, 3, dtype="bool"), 0, SHORT),
    of("clip", I32, a_min=-1, a_max=2.5),
    of("clip", I32, a_min=-2),
    of("clip", I32, a_min=-2.5, a_max=4),
    of("clip", WHOLE, a_max=2.5),
    of("clip", X, a_min=0.5),
    of("clip", SHORT, a_min=0),
    of("clip", X, a_min=1, a_max=-1),
    of("clip", X, a_max=0.1),
    of("clip", I32, a_min=0, a_max=6),
    *(of("cast", x, dtype=dtype) for x, dtype in ((X, "bool"), (B1, "float16"), (B1, "float32"), (I32, "bool"),
                                                  (X, "int64"), (X, "int32"), (2, "float32"))),
    of("gelu", DOUBLE),
    of("elu", SHORT, alpha=0.5),
    of("elu", exactly([0.0, 0.5e-7, -0.5e-5, -0.5, 15.0, -45.0])),
    of("elu", rand(2, 3, 4, low=-40.0, high=40.0)),
    of("selu", rand(2, 3, 4, low=-20.0, high=20.0)),
    of("mish", rand(2, 3, 4, low=-40.0, high=40.0)),
    of("mish", exactly([0.0, 2e-7, -2e-5, 2e-3, -2.0, 60.0, 180.0, -180.0])),
    of("softplus", rand(2, 3, 4, low=-40.0, high=40.0)),
    of("softplus", TINY),
    of("nn.leaky_relu", SHORT),
    of("nn.prelu", X, ROW, axis=2),
    of("nn.prelu", X, unit(3), axis=1),
    of("nn.prelu", X, rand(3, 4)),
    of("nn.prelu", FEATURES, rand(1), axis=3),
    of("nn.prelu", HALF, unit(3, dtype="float16")),
    of("nn.softmax", X, axis=0),
    of("nn.log_softmax", rand(2, 3, 4, 5), axis=1),
    of("copy", I32),
]  # fmt: skip

CREATE: list[Row] = [
    of("zeros", shape=(2,), dtype="bool"),
    of("full", 2.0, shape=(2, 3)),
    of("full", 2, shape=(2, 3), dtype="float32"),
    of("full", 2, shape=(2,), dtype="float16"),
    of("full", 1, shape=(2, 0)),
    of("full", True, shape=(2,)),
    of("full", INF, shape=(2,)),
    of("full", 2.7, shape=(2,), dtype="int32"),
    of("full", rand(1), shape=(2, 3)),
    of("full", rand(1), shape=(2, 3), dtype="float64"),
    of("full", exactly(3, "int64"), shape=(2,)),
    of("full_like", SHORT, 2),
    of("full_like", SHORT, rand(1, dtype="float64")),
    of("full_like", I32, exactly(2.0)),
    of("full_like", B1, 1.0),
    of("full_like", X, exactly([4], "int64")),
    of("zeros_like", B1),
    of("arange", stop=5),
    of("arange", start=1, stop=4, step=0.5),
    of("arange", start=1, stop=4, dtype="int32"),
    of("arange", start=0.0, stop=1.0, step=0.1),
    of("arange", stop=5, dtype="float16"),
    of("arange", stop=3, dtype="float64"),
    of("arange", start=5, stop=0, step=-1),
    of("arange", start=2.0, stop=9.0, step=3.0, dtype="int32"),
]

SHAPE: list[Row] = [
    of("concatenate", (I32, SHORT), axis=0),
    of("concatenate", (SHORT, rand(2, 1)), axis=-1),
    of("stack", (I32, SHORT)),
    of("stack", (X, Y, X)),
    of("stack", (SHORT, POSITIVE), axis=1),
    of("split", rand(2, 6), indices_or_sections=3, axis=1),
    of("split", rand(2, 6), indices_or_sections=(4,), axis=1),
    of("split", X, indices_or_sections=(2,), axis=2),
    of("split", X, indices_or_sections=1),
    of("reshape", X, newshape=-1),
    of("reshape", FEATURES, newshape=(6, 64)),
    of("reshape", exactly(2.0), newshape=(1, 1)),
    of("reshape", rand(1, 1, 1), newshape=()),
    of("reshape", rand(0, 3, 4), newshape=(3, 0)),
    of("reshape_like", FEATURES, rand(6, 64)),
    of("reshape_like", rand(6, 64), SHORT, lhs_begin=0, lhs_end=1),
    of("transpose", FEATURES, axes=(0, 2, 3, 1)),
    of("transpose", exactly(1.5)),
    of("expand_dims", SHORT, axis=1),
    of("expand_dims", SHORT, axis=-1, num_newaxis=2),
    of("expand_dims", exactly(1.5), axis=0),
    of("squeeze", X),
    of("squeeze", rand(1, 2, 1), axis=0),
    of("squeeze", rand(1, 2, 1), axis=1),
    of("reverse", X, axis=1),
    of("reverse", X, axis=()),
    of("reverse", FEATURES, axis=(1, 3)),
    of("layout_transform", SIGNAL, src_layout="NCW", dst_layout="NCW2c"),
    of("layout_transform", FEATURES, src_layout="NCHW", dst_layout="NHWC"),
    of("layout_transform", rand(2, 8, 3, 3), src_layout="NCHW", dst_layout="NCHW4c"),
    of("layout_transform", rand(2, 2, 3, 3, 4), src_layout="NCHW4c", dst_layout="NHWC"),
    of("layout_transform", rand(2, 2, 3, 3, 4), src_layout="NCHW4c", dst_layout="NHWC2c"),
    of("broadcast_to", rand(2, 1), shape=(3, 2, 4)),
    of("broadcast_to", rand(2, 1), shape=(-1, 4)),
    of("broadcast_to", rand(2, 1, 4), shape=(5, 2, 3, 4)),
    of("broadcast_to", exactly(1.5), shape=(2, 3)),
    of("repeat", X, repeats=1, axis=0),
    of("tile", SHORT, reps=(2, 1, 2)),
    of("tile", X, reps=(1, 2, 1)),
    of("nn.pad", FEATURES, pad_width=((0, 1), (0, 0), (1, 2), (0, 3)), pad_value=2.0),
    of("nn.pad", X, pad_width=((0, 0), (-1, 2), (1, -1))),
    of("nn.pad", X, pad_width=((-1, 0), (1, -2), (0, -1)), pad_value=0.5),
    of("nn.pad", X, pad_width=0),
    of("nn.pad", B1, pad_width=1, pad_value=True),
    *(
        of("nn.pad", x, pad_width=widths, pad_mode=mode)
        for mode in ("edge", "reflect")
        for x, widths in (
            (FEATURES, ((0, 0), (0, 0), (1, 2), (0, 3))),
            (FEATURES, ((0, 0), (2, 0), (0, 0), (0, 0))),
            (FEATURES, ((1, 1), (0, 0), (0, 2), (0, 0))),
            (rand(4, 5), ((1, 2), (3, 1))),
        )
    ),
]

INDEX: list[Row] = [
    of("strided_slice", FEATURES, begin=(0, 1), end=(1, 3)),
    of("strided_slice", FEATURES, begin=(1, 0), end=(7, 8), strides=(2, 3), axes=(3, 2)),
    of("strided_slice", FEATURES, begin=(None,), end=(None,), strides=(-2,), axes=(3,)),
    of("strided_slice", FEATURES, begin=(6,), end=(1,), strides=(-2,), axes=(3,)),
    of("strided_slice", X, begin=(0,), end=(2,)),
    of("strided_slice", X, begin=(None,), end=(None,), strides=(-1,), axes=(0,)),
    of("strided_slice", X, begin=(-1, 3), end=(-3, None), strides=(-1, -3), axes=(1, 2)),
    of("strided_slice", X, begin=(0,), end=(2,), strides=(2,), axes=(2,)),
    of("strided_slice", X, begin=(0, 1), end=(1, 3), axes=(0, 2)),
    of("strided_slice", X, begin=(2,), end=(1,), axes=(1,)),
    of("take", rand(5, 3), rand(2, 4, dtype="int64", low=0, high=5), axis=0),
    of("take", rand(2, 5), rand(4, dtype="int64", low=0, high=10)),
    of("take", rand(2, 5), rand(4, dtype="uint8", low=0, high=5), axis=1),
    of("take", X, -1, axis=2),
    of("take", X, 5),
    of("take", X, INDICES),
    of("take", X, exactly([[0, -2], [-1, -1]], "int64"), axis=1),
    of("gather", MATRIX, exactly([[0, 1, 2, 0]], "int64"), axis=0),
    of("gather", MATRIX, INDICES, axis=0),
    of("gather", rand(5, 3), rand(2, 3, dtype="int64", low=0, high=5), axis=0),
    of("gather", X, exactly([[[0] * 6] * 2], "int64"), axis=2),
    of("scatter", MATRIX, exactly([[2, 1, 0, 1]], "int64"), rand(3, 4), axis=0),
    of("scatter", MATRIX, exactly([[2, 0], [1, 2]], "int64"), rand(2, 2), axis=0),
    of("scatter", rand(5, 3), exactly([[0, 1, 2]], "int64"), rand(1, 3), axis=0),
    of("scatter", MATRIX, exactly([[2, 0], [1, 3]], "int64"), rand(2, 2), axis=1),
    of("matrix_set_diag", rand(2, 4, 5), rand(2, 4)),
    of("matrix_set_diag", rand(2, 4, 5), rand(2, 3), k=2),
    of("matrix_set_diag", rand(3, 4), rand(2), k=-1),
    of("matrix_set_diag", I32, exactly([[1, 2], [3, 4]], "int32"), k=(-1, 0), align="LEFT_RIGHT"),
    *(
        of("matrix_set_diag", x, diagonal, k=k, align=align)
        for align in ("RIGHT_LEFT", "LEFT_RIGHT", "LEFT_LEFT", "RIGHT_RIGHT")
        for x, diagonal, k in ((rand(2, 4, 5), rand(2, 4, 4), (-2, 1)), (rand(3, 4), rand(4, 3), (-1, 2)))
    ),
    of("trilu", rand(4, 5), k=-1, upper=False),
    of("trilu", I32, k=-1, upper=False),
    of("trilu", I32, k=1, upper=False),
    of("trilu", X, k=1),
    of("trilu", X, k=-1),
]

REDUCE: list[Row] = [
    *(of(op, B1) for op in ("sum", "max", "cumsum")),
    of("cumsum", B1, axis=0),
    of("any", B1, keepdims=True),
    of("sum", X, axis=(), keepdims=True),
    of("sum", LONG, axis=1),
    of("min", I32, axis=0),
    of("max", I32, axis=1),
    *(of("prod", I32, axis=axis) for axis in (0, 1)),
    of("all", I32, axis=1),
    of("any", X, axis=0),
    of("mean", exactly(2.0)),
    of("mean", X, axis=0, exclude=True),
    of("variance", X, axis=()),
    of("variance", X, axis=(), keepdims=True),
    of("variance", DOUBLE),
    of("variance", rand(1, 3, 4), axis=0, unbiased=True),
    of("std", X, axis=(0, 2), unbiased=True),
    of("std", X, unbiased=True),
    *(of(op, x, axis=axis) for op, x, axis in (("argmax", X, ()), ("argmax", I32, 0), ("argmin", X, (1, 2)))),
    of("logsumexp", X, axis=-1, keepdims=True),
    of("logsumexp", exactly([[-INF, -INF], [INF, 1.0], [1.0, 2.0]]), axis=1),
    of("logsumexp", I32, axis=1),
    of("logsumexp", exactly([0.0, INF]), axis=0),
    of("logsumexp", exactly([-INF, -INF]), axis=0),
    of("logsumexp", rand(2, 3, 4, low=-200.0, high=200.0), keepdims=True),
    of("cumsum", X, axis=1, exclusive=True),
    of("cumsum", X),
    of("cumsum", WHOLE, axis=0, dtype="float32", exclusive=True),
]

LINEAR: list[Row] = [
    of("matmul", VECTOR4, rand(4, seed=1)),
    of("matmul", VECTOR4, rand(4, 2)),
    of("matmul", X, VECTOR4),
    of("matmul", VECTOR, X),
    of("matmul", X, rand(2, 4, 5)),
    of("matmul", rand(2, 1, 3, 4), rand(5, 4, 2)),
    of("matmul", rand(5, 1, 3, 4), rand(2, 4, 5)),
    of("matmul", rand(3, 4), rand(2, 4, 5)),
    of("matmul", rand(3, 4), rand(4, 5), out_dtype="float64"),
    of("matmul", BYTES, BYTES_TURNED, out_dtype="float32"),
    of("nn.batch_matmul", X, Y, transpose_a=True, transpose_b=False),
    of("nn.batch_matmul", rand(1, 3, 4), rand(2, 5, 4)),
    of("nn.dense", VECTOR4, rand(5, 4)),
    of("nn.dense", BYTES, exactly([[2, 2, -2], [-3, 4, 5]], "int8"), out_dtype="int32"),
    of("nn.bias_add", IMAGE, GAMMA),
    of("nn.bias_add", SHORT, VECTOR, axis=-1),
    *(of("packed.dense", X, rand(5, 4), activation=name) for name in ("none", *ACTIVATIONS)),
    of("packed.dense", rand(2, 4), rand(5, 4), rand(5), precision="bfloat16"),
    of("packed.dense_add", X, rand(5, 4), rand(2, 3, 5), activation="gelu_tanh"),
    of("packed.conv2d", rand(2, 4, 6, 6), rand(6, 4, 3, 3), padding=(0, 1, 2, 1), dilation=2),
    of("packed.conv2d", rand(2, 4, 6, 6), rand(6, 2, 3, 3), rand(6), groups=2, strides=2, padding=1),
    of("packed.conv2d_add", rand(2, 4, 6, 6), rand(6, 4, 1, 1), rand(2, 6, 6, 6), activation="relu"),
    of("packed.conv2d_add", rand(2, 4, 6, 6), rand(6, 4, 1, 1), rand(2, 6, 6, 6), rand(6), precision="int8"),
    of("einsum", (MATRIX,), equation="ij->ji"),
    of("einsum", (SHORT, rand(3, 4)), equation="ij,jk->ik"),
    of("einsum", (X, X), equation="abc,abc->a"),
    of("einsum", (MATRIX, MATRIX), equation="ij,kj"),
    of("nn.attention", Q, K, V, MASK),
    of("nn.attention", rand(4, 3, 8), rand(4, 3, 8, seed=1), rand(4, 3, 8, seed=2)),
    of("nn.attention", rand(4, 3, 8), rand(4, 3, 8, seed=1), rand(4, 3, 8, seed=2), is_causal=True, scale=0.3),
    of("nn.attention", rand(4, 3, 8), rand(4, 3, 8, seed=1), rand(4, 3, 5), is_causal=True),
    of("nn.attention", rand(2, 1, 3, 8), K, V),
    of("nn.attention", rand(2, 4, 2, 8), K, V, is_causal=True),
    of("nn.attention", rand(2, 4, 2, 8), K, rand(2, 4, 3, 5)),
    of("nn.attention", Q, K, V, rand(2, 1, 1, 3)),
    of("nn.attention", *(rand(2, 4, 1, 8, seed=seed) for seed in range(3)), exactly([[True]], "bool")),
    of("nn.attention", *(rand(2, 4, 3, 8, dtype="float64", seed=seed) for seed in range(3)), scale=0.3),
    of("nn.attention", Q, rand(2, 1, 3, 8), rand(2, 1, 3, 8, seed=1), enable_gqa=True, scale=0.25),
    of("nn.attention", *(rand(2, 2, n, 8, seed=seed) for seed, n in enumerate((4, 5, 5))), rand(4, 5)),
    of("nn.attention", *(rand(2, 2, n, 8, seed=seed) for seed, n in enumerate((4, 5, 5))),
       rand(4, 5, dtype="bool", low=-1.0, high=9.0), scale=0.3),
    of("nn.attention", rand(2, 4, 4, 8), *(rand(2, 2, 4, 8, seed=s) for s in (0, 1)), is_causal=True, enable_gqa=True),
    of("nn.attention", *(rand(2, 3, 2, n, 8, seed=seed) for seed, n in enumerate((4, 5, 5))), rand(3, 1, 4, 5)),
]  # fmt: skip

CONV: list[Row] = [
    of("nn.conv1d", SIGNAL, rand(6, 2, 3), groups=2, dilation=2),
    of("nn.conv1d", rand(2, 9, 4), rand(3, 4, 6), data_layout="NWC", kernel_layout="WIO"),
    of("nn.conv2d", rand(4, 2, 7, 6), KERNEL, data_layout="CNHW"),
    of("nn.conv2d", NHWC, rand(6, 2, 3, 2), data_layout="NHWC", groups=2),
    of("nn.conv2d", NHWC, rand(8, 1, 3, 3), data_layout="NHWC", groups=4),
    of("nn.conv2d", NHWC, rand(3, 3, 4, 1), data_layout="NHWC", kernel_layout="HWOI", groups=4),
    of("nn.conv2d", NHWC, rand(3, 3, 2, 6), data_layout="NHWC", kernel_layout="HWIO", groups=2),
    of("nn.conv2d", IMAGE, rand(4, 1, 3, 3), groups=4, padding=1),
    of("nn.conv2d", IMAGE, rand(4, 1, 3, 3), groups=4, strides=(2, 1)),
    of("nn.conv2d", IMAGE, rand(8, 1, 3, 3), groups=4),
    of("nn.conv2d", rand(2, 4, 7, 6, dtype="float16"), KERNEL, out_dtype="float32"),
    of("nn.conv2d", IMAGE, KERNEL, out_dtype="float32"),
    of("nn.conv2d", rand(2, 4, 7, 6, dtype="float64"), rand(6, 4, 3, 2, dtype="float64")),
    of("nn.conv3d", IMAGE3, rand(4, 2, 2, 2, 2), groups=2),
    of("nn.conv3d", rand(1, 5, 6, 4, 4), rand(3, 3, 2, 4, 2), data_layout="NDHWC", kernel_layout="DHWIO"),
    of("nn.conv3d", rand(1, 5, 6, 4, 4), rand(2, 2, 2, 4, 3), data_layout="NDHWC", kernel_layout="DHWIO", padding=1),
    of("nn.conv1d_transpose", SIGNAL, rand(4, 2, 3), groups=2, dilation=2, padding=(1, 2)),
    of("nn.conv1d_transpose", SIGNAL, rand(4, 3, 3), groups=2, strides=2, dilation=2, padding=(1, 3)),
    of("nn.conv2d_transpose", IMAGE, rand(4, 3, 3, 2), out_dtype="float64", out_layout="NHWC"),
    of("nn.conv2d_transpose", IMAGE, rand(4, 3, 3, 2), strides=(2, 3), padding=(1, 0, 2, 1), output_padding=(1, 2),
       dilation=(1, 2)),
    of("nn.conv2d_transpose", IMAGE, rand(4, 3, 2, 2), padding=2, dilation=1, groups=2),
    of("nn.conv2d_transpose", IMAGE, rand(4, 3, 1, 1), padding=(1, 0, 0, 2), dilation=2),
    of("nn.conv3d_transpose", IMAGE3, rand(4, 2, 2, 2, 2), strides=2, output_padding=1, padding=1),
    of("nn.conv3d_transpose", IMAGE3, rand(4, 2, 2, 2, 2), groups=2, strides=2, output_padding=1),
]  # fmt: skip

EVEN, SQUARE = rand(2, 4, 8, 8), rand(1, 2, 5, 5)
POOL: list[Row] = [
    of("nn.max_pool1d", SIGNAL, pool_size=2, strides=4, ceil_mode=True),
    # The last window would begin in the padding: it does not count.
    of("nn.max_pool2d", IMAGE, pool_size=2, strides=2, padding=1, ceil_mode=True),
    of("nn.max_pool2d", IMAGE, pool_size=3, strides=2, ceil_mode=True, out_layout="NHWC"),
    of("nn.max_pool2d", SQUARE, pool_size=2, strides=3, ceil_mode=True),
    of("nn.max_pool2d", SQUARE, pool_size=2, strides=3, padding=1, ceil_mode=True),
    of("nn.max_pool2d", rand(7, 2, 4, 6), pool_size=2, layout="HNCW"),
    of("nn.max_pool2d", rand(2, 3, 6, 6, dtype="int32", low=-18, high=18), pool_size=2),
    of("nn.avg_pool1d", SIGNAL, pool_size=2, strides=4, ceil_mode=True, count_include_pad=True),
    of("nn.avg_pool1d", SIGNAL, pool_size=3, padding=1, ceil_mode=True, strides=3),
    of("nn.avg_pool2d", IMAGE, pool_size=3, strides=2, padding=1, ceil_mode=True),
    of("nn.avg_pool2d", EVEN, pool_size=3, strides=2, ceil_mode=True),
    of("nn.avg_pool2d", EVEN, pool_size=3, strides=2, ceil_mode=True, count_include_pad=True),
    of("nn.avg_pool2d", EVEN, pool_size=3, strides=2, padding=1, ceil_mode=True, count_include_pad=True),
    of("nn.avg_pool2d", EVEN, pool_size=(3, 2), strides=(2, 3), padding=(1, 0, 0, 1), ceil_mode=True,
       count_include_pad=True, layout="NHWC"),
    of("nn.avg_pool2d", IMAGE, pool_size=(3, 2), strides=(3, 4), padding=(1, 0), ceil_mode=True,
       count_include_pad=True),
    of("nn.avg_pool2d", NHWC, pool_size=2, strides=2, ceil_mode=True, count_include_pad=True, layout="NHWC"),
    of("nn.avg_pool2d", IMAGE, pool_size=3, padding=1, count_include_pad=True, out_layout="NHWC"),
    of("nn.avg_pool3d", IMAGE3, pool_size=2, strides=2, padding=(1, 0, 1, 0, 0, 1), ceil_mode=True),
    of("nn.avg_pool3d", rand(1, 5, 6, 4, 4), pool_size=2, layout="NDHWC", out_layout="NCDHW"),
    of("nn.adaptive_avg_pool2d", IMAGE, output_size=(None, 4)),
    of("nn.adaptive_avg_pool2d", IMAGE, output_size=5),
    of("nn.adaptive_avg_pool2d", IMAGE, output_size=(3, 4), out_layout="NHWC"),
    of("nn.adaptive_max_pool2d", NHWC, output_size=5, layout="NHWC", out_layout="NCHW"),
    of("nn.adaptive_max_pool2d", NHWC, output_size=(None, 5), layout="NHWC"),
    of("nn.adaptive_avg_pool1d", rand(2, 9, 4), output_size=4, layout="NWC"),
    of("nn.adaptive_avg_pool3d", rand(1, 5, 6, 4, 4), output_size=2, layout="NDHWC"),
]  # fmt: skip

CHANNEL = GAMMA, BETA, MEAN, VAR
NORM: list[Row] = [
    of("nn.batch_norm", rand(5, 4), *CHANNEL),
    of("nn.batch_norm", IMAGE, *CHANNEL, epsilon=1e-3),
    of("nn.layer_norm", X),
    of("nn.layer_norm", X, GAMMA, epsilon=0.1),
    of("nn.layer_norm", X, GAMMA, BETA, center=False),
    of("nn.layer_norm", X, axis=(-2, -1), epsilon=1e-6),
    of("nn.layer_norm", X, U, rand(2, 3), axis=(0, 1)),
    of("nn.layer_norm", IMAGE, rand(4, 6), rand(4, 6, seed=1), axis=(1, 3)),
    of("nn.layer_norm", HALF, unit(4, dtype="float16"), rand(4, dtype="float16")),
    of("nn.rms_norm", HALF),
    of("nn.rms_norm", X, U, axis=(0, 1)),
    of("nn.rms_norm", X, axis=(1,), epsilon=1e-6),
    of("nn.rms_norm", IMAGE, rand(4, 6), axis=(1, 3)),
    of("nn.group_norm", IMAGE, GAMMA, num_groups=4),
    of("nn.group_norm", rand(2, 4, 5), num_groups=2, epsilon=1e-3),
    of("nn.group_norm", NHWC, GAMMA, BETA, num_groups=2, axis=3),
    of("nn.group_norm", NHWC, GAMMA, BETA, num_groups=2, axis=3, scale=False),
    of("nn.group_norm", rand(2, 4), GAMMA, num_groups=2),
    of("nn.group_norm", rand(2, 4), GAMMA, BETA, num_groups=2),
    of("nn.group_norm", rand(4, 2, 5), GAMMA, BETA, num_groups=2, axis=0),
    of("nn.group_norm", rand(2, 5, 4, 3), GAMMA, BETA, num_groups=2, axis=2),
    of("nn.instance_norm", NHWC, GAMMA, BETA, axis=-1),
    of("nn.instance_norm", SIGNAL),
    of("nn.instance_norm", SIGNAL, GAMMA, BETA, center=False),
    of("nn.l2_normalize", X, eps=1e-6, axis=(1, 2)),
    of("nn.l2_normalize", X, eps=1e-4, axis=()),
    of("nn.l2_normalize", IMAGE, eps=1e-4, axis=(1, 2)),
]

ROWS = [
    *_binary(), *ELEMENTWISE, *CREATE, *SHAPE, *INDEX, *_reductions(), *REDUCE, *LINEAR, *_conv(), *CONV, *_pool(),
    *POOL, *NORM,
]  # fmt: skip
CORNERS: tuple[ExampleCall, ...] = tuple(calls(ROWS))

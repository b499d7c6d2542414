"""Each operator against another way to compute it, and its inferred type against that of its value."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from gsl.graph import TensorType, TupleType, Type
from gsl.spec import TABLE, find
from gsl.spec.meaning import Operand, evaluate, infer

Row = tuple[str, tuple[Any, ...], dict[str, Any], Callable[..., Any]]


def rand(*shape: int) -> torch.Tensor:
    """Numbers in [-2, 2) that depend on the shape only."""
    return torch.rand(shape, generator=torch.Generator().manual_seed(sum(shape))) * 4 - 2


def unit(*shape: int) -> torch.Tensor:
    """Numbers in [0.1, 0.9)."""
    return rand(*shape) / 5 + 0.5


X, Y, ROW = rand(2, 3, 4), rand(2, 3, 4).flip(0), rand(4)
P, U = unit(2, 3, 4), unit(2, 3)
I32 = torch.tensor([[7, -7, 3], [5, 0, -2]], dtype=torch.int32)
J32 = torch.tensor([[2, 2, -2], [-3, 4, 5]], dtype=torch.int32)
B1, B2 = torch.tensor([True, True, False, False]), torch.tensor([True, False, True, False])
IMAGE, IMAGE3, SIGNAL = rand(2, 4, 7, 6), rand(1, 4, 5, 6, 4), rand(2, 4, 9)
NHWC = IMAGE.permute(0, 2, 3, 1).contiguous()
KERNEL, BIAS = rand(6, 4, 3, 2), rand(6)
GAMMA, BETA, MEAN, VAR = unit(4), rand(4), rand(4).flip(0), unit(4).flip(0)
ODD = torch.tensor([0.0, -0.5, 0.5, 1.5, 2.5, float("inf"), float("nan"), -float("inf")])


def by_numpy(function: Callable[..., Any]) -> Callable[..., Any]:
    """The same through numpy; the dtype of the result is not compared with numpy's."""
    return lambda *xs: torch.as_tensor(function(*[x.numpy() if isinstance(x, torch.Tensor) else x for x in xs]))


def channels(value: torch.Tensor, rank: int, axis: int = 1) -> torch.Tensor:
    """A tensor of one axis that is broadcast along another."""
    return value.reshape([-1 if a == axis else 1 for a in range(rank)])


UNARY: list[Row] = [
    (name, (data,), {}, by_numpy(function))
    for name, data, function in [
        ("negative", X, np.negative),
        ("abs", X, np.abs),
        ("sign", X, np.sign),
        ("exp", X, np.exp),
        ("expm1", X, np.expm1),
        ("log", P, np.log),
        ("log2", P, np.log2),
        ("log10", P, np.log10),
        ("log1p", P, np.log1p),
        ("sqrt", P, np.sqrt),
        ("rsqrt", P, lambda x: 1 / np.sqrt(x)),
        ("square", X, lambda x: x * x),
        ("reciprocal", P, lambda x: 1 / x),
        ("erf", U, np.vectorize(math.erf, otypes=[np.float32])),
        ("sin", X, np.sin),
        ("cos", X, np.cos),
        ("tan", P, np.tan),
        ("asin", P, np.arcsin),
        ("acos", P, np.arccos),
        ("atan", X, np.arctan),
        ("sinh", X, np.sinh),
        ("cosh", X, np.cosh),
        ("asinh", X, np.arcsinh),
        ("acosh", P + 1, np.arccosh),
        ("atanh", P, np.arctanh),
        ("tanh", X, np.tanh),
        ("sigmoid", X, lambda x: 1 / (1 + np.exp(-x))),
        ("floor", ODD, np.floor),
        ("ceil", ODD, np.ceil),
        ("round", ODD, np.round),
        ("trunc", ODD, np.trunc),
        ("isnan", ODD, np.isnan),
        ("isinf", ODD, np.isinf),
        ("isfinite", ODD, np.isfinite),
        ("logical_not", B1, np.logical_not),
        ("bitwise_not", I32, np.bitwise_not),
    ]
]

BINARY: list[Row] = [
    (name, operands, {}, by_numpy(function))
    for name, operands, function in [
        ("add", (X, ROW), np.add),
        ("add", (2, X), lambda a, b: b + 2),
        ("add", (1, 2.5), lambda a, b: np.float32(3.5)),
        ("subtract", (X, ROW), np.subtract),
        ("subtract", (2.0, X), lambda a, b: 2 - b),
        ("multiply", (X, ROW), np.multiply),
        ("multiply", (I32, 0.5), lambda a, b: (a * 0.5).astype(np.float32)),
        ("divide", (X, P), np.divide),
        ("divide", (I32, 2), lambda a, b: (a / 2).astype(np.float32)),
        ("floor_divide", (I32, J32[:, :1]), np.floor_divide),
        ("floor_mod", (I32, J32[:, :1]), np.remainder),
        ("floor_mod", (X, 0.75), lambda a, b: a % np.float32(0.75)),
        ("mod", (I32, J32[:, :1]), np.fmod),
        ("mod", (X, -0.75), lambda a, b: np.fmod(a, np.float32(-0.75))),
        ("power", (P, 3), lambda a, b: a * a * a),
        ("power", (2.0, X), lambda a, b: np.exp2(b)),
        ("left_shift", (I32.abs(), 2), lambda a, b: a * 4),
        ("right_shift", (I32, 1), lambda a, b: a // 2),
        ("maximum", (X, ROW), np.maximum),
        ("maximum", (I32, 2.5), lambda a, b: np.maximum(a, 2.5).astype(np.float32)),
        ("minimum", (X, Y), np.minimum),
        ("minimum", (0.5, X), lambda a, b: np.minimum(b, np.float32(0.5))),
        ("atan2", (X, Y), np.arctan2),
        ("equal", (I32, 7), np.equal),
        ("not_equal", (I32, J32), np.not_equal),
        ("less", (I32, 2.5), np.less),
        ("less_equal", (X, ROW), np.less_equal),
        ("greater", (0.5, X), np.greater),
        ("greater_equal", (X, Y), np.greater_equal),
        ("logical_and", (B1, B2), np.logical_and),
        ("logical_or", (B1, B2), np.logical_or),
        ("logical_xor", (B1, B2), np.logical_xor),
        ("bitwise_and", (I32, J32), np.bitwise_and),
        ("bitwise_or", (I32, 5), np.bitwise_or),
        ("bitwise_xor", (B1, B2), np.bitwise_xor),
        ("where", (X > 0, X, Y), np.where),
        ("where", (I32 > 0, I32, 0.5), lambda c, a, b: np.where(c, a, 0.5).astype(np.float32)),
        ("where", (B1, 1.0, 0.0), lambda c, a, b: c.astype(np.float32)),
    ]
]

OTHERS: list[Row] = [
    ("clip", (X,), {"a_min": -1, "a_max": 0.5}, by_numpy(lambda x: np.clip(x, -1, 0.5))),
    ("clip", (I32,), {"a_max": 3}, by_numpy(lambda x: np.minimum(x, 3))),
    ("cast", (ODD[:5],), {"dtype": torch.int8}, by_numpy(lambda x: x.astype(np.int8))),
]

CREATE: list[Row] = [
    ("zeros", (), {"shape": (2, 3)}, lambda: torch.tensor([[0.0] * 3] * 2)),
    ("ones", (), {"shape": 3, "dtype": "int64"}, lambda: torch.tensor([1, 1, 1])),
    ("full", (2.5,), {"shape": (1, 2)}, lambda v: torch.tensor([[2.5, 2.5]])),
    ("full", (torch.tensor([3]),), {"shape": 2, "dtype": "int8"}, lambda v: torch.tensor([3, 3], dtype=torch.int8)),
    ("zeros_like", (I32,), {}, lambda x: x - x),
    ("ones_like", (X,), {}, lambda x: x - x + 1),
    ("full_like", (I32, 4.0), {}, lambda x, v: x - x + 4),
    ("full_like", (X, torch.tensor(4)), {}, lambda x, v: x - x + 4),
    ("arange", (), {"stop": 4}, lambda: torch.tensor([0, 1, 2, 3])),
    ("arange", (), {"start": 1, "stop": 2.5, "step": 0.5}, lambda: torch.tensor([1.0, 1.5, 2.0])),
    ("arange", (), {"start": 3, "stop": 0, "step": -2, "dtype": "float32"}, lambda: torch.tensor([3.0, 1.0])),
]

MATRIX = torch.arange(12.0).reshape(3, 4)
BLOCKED = rand(2, 8, 3, 5)
SHAPE: list[Row] = [
    ("concatenate", ((X, Y),), {"axis": -2}, lambda p: by_numpy(lambda a, b: np.concatenate([a, b], 1))(*p)),
    ("stack", ((X, Y),), {"axis": -1}, lambda p: by_numpy(lambda a, b: np.stack([a, b], 3))(*p)),
    ("split", (X,), {"indices_or_sections": 3, "axis": 1}, lambda x: (x[:, :1], x[:, 1:2], x[:, 2:])),
    ("split", (X,), {"indices_or_sections": (1, 3), "axis": -1}, lambda x: (x[..., :1], x[..., 1:3], x[..., 3:])),
    ("reshape", (X,), {"newshape": (0, -1)}, lambda x: torch.stack([x[0].flatten(), x[1].flatten()])),
    ("reshape", (X,), {"newshape": (-4, 1, -1, -3)}, lambda x: x.flatten(1)[None]),
    ("reshape", (X[:1],), {"newshape": (1, -2)}, lambda x: x),
    ("reshape", (X,), {"newshape": (0, 1, -1, 4)}, lambda x: x[:, None]),
    ("reshape_like", (X, rand(4, 6)), {}, lambda x, y: torch.stack(x.flatten().split(6))),
    ("reshape_like", (X, rand(9, 12)), {"lhs_begin": 1, "rhs_begin": 1}, lambda x, y: x.flatten(1)),
    ("transpose", (X,), {}, by_numpy(np.transpose)),
    ("transpose", (X,), {"axes": (0, -1, 1)}, by_numpy(lambda x: np.swapaxes(x, 1, 2))),
    ("expand_dims", (X,), {"axis": -1}, lambda x: x[..., None]),
    ("expand_dims", (X,), {"axis": 1, "num_newaxis": 2}, lambda x: x[:, None, None]),
    ("squeeze", (X[:, :1, None],), {}, lambda x: x[:, 0, 0]),
    ("squeeze", (X[:, :1, None],), {"axis": -2}, lambda x: x[:, :, 0]),
    ("squeeze", (X[:, :1, None],), {"axis": (0, 1)}, lambda x: x[:, 0]),
    ("reverse", (X,), {"axis": (0, -1)}, by_numpy(lambda x: x[::-1, :, ::-1].copy())),
    ("layout_transform", (X,), {"src_layout": "NHC", "dst_layout": "NCH"}, lambda x: x.transpose(1, 2)),
    (
        "layout_transform",
        (BLOCKED,),
        {"src_layout": "NCHW", "dst_layout": "NHWC4c"},
        lambda x: torch.stack([x[:, :4], x[:, 4:]], 1).permute(0, 3, 4, 1, 2),
    ),
    (
        "layout_transform",
        (torch.stack([BLOCKED[:, :4], BLOCKED[:, 4:]], 1).permute(0, 1, 3, 4, 2),),
        {"src_layout": "NCHW4c", "dst_layout": "NCHW2c"},
        lambda x: torch.stack([BLOCKED[:, i : i + 2] for i in (0, 2, 4, 6)], 1).permute(0, 1, 3, 4, 2),
    ),
    ("broadcast_to", (ROW,), {"shape": (2, -1)}, by_numpy(lambda x: np.stack([x, x]))),
    ("repeat", (X,), {"repeats": 2, "axis": -2}, by_numpy(lambda x: np.repeat(x, 2, 1))),
    ("repeat", (X,), {"repeats": 3}, by_numpy(lambda x: np.repeat(x, 3))),
    ("tile", (X,), {"reps": 2}, by_numpy(lambda x: np.tile(x, 2))),
    ("tile", (ROW,), {"reps": (2, 1, 3)}, by_numpy(lambda x: np.tile(x, (2, 1, 3)))),
    (
        "nn.pad",
        (X,),
        {"pad_width": [[0, 0], [1, 2], [3, 0]], "pad_value": 1.5},
        by_numpy(lambda x: np.pad(x, ((0, 0), (1, 2), (3, 0)), constant_values=1.5)),
    ),
    ("nn.pad", (I32,), {"pad_width": 1, "pad_value": 2}, by_numpy(lambda x: np.pad(x, 1, constant_values=2))),
    *(
        (
            "nn.pad",
            (X,),
            {"pad_width": ((1, 0), (0, 2), (1, 3)), "pad_mode": mode},
            by_numpy(lambda x, mode=mode: np.pad(x, ((1, 0), (0, 2), (1, 3)), mode)),
        )
        for mode in ("edge", "reflect")
    ),
]

INDICES = torch.tensor([[2, 0], [1, 1]])
INDEX: list[Row] = [
    ("strided_slice", (X,), {"begin": [0, 1], "end": [2, 3]}, lambda x: x[:, 1:3]),
    ("strided_slice", (X,), {"begin": 3, "end": None, "strides": -2, "axes": -1}, lambda x: x[..., [3, 1]]),
    ("strided_slice", (X,), {"begin": (-2,), "end": (2**63 - 1,), "axes": (2,)}, lambda x: x[..., 2:]),
    ("strided_slice", (X,), {"begin": (0, 1), "end": (4, 2), "strides": 2, "axes": (2, 1)}, lambda x: x[:, 1:2, ::2]),
    ("strided_slice", (X,), {"begin": (None,), "end": (None,), "axes": (1,)}, lambda x: x),
    ("take", (X, INDICES), {"axis": 1}, by_numpy(lambda x, i: np.take(x, i, 1))),
    ("take", (X, INDICES.int()), {}, by_numpy(np.take)),
    ("take", (X, 2), {"axis": -1}, lambda x, i: x[..., 2]),
    ("gather", (MATRIX, INDICES), {"axis": -1}, by_numpy(lambda x, i: np.take_along_axis(x[:2], i, 1))),
    (
        "scatter",
        (MATRIX, INDICES, -MATRIX),
        {"axis": 1},
        lambda x, i, u: torch.stack([torch.tensor([-1.0, 1, 0, 3]), torch.tensor([4.0, -5, 6, 7]), x[2]]),
    ),
    (
        "matrix_set_diag",
        (torch.zeros(2, 2, 3), torch.tensor([[1.0, 2], [3, 4]])),
        {"k": 1},
        lambda x, d: torch.tensor([[[0.0, 1, 0], [0, 0, 2]], [[0, 3, 0], [0, 0, 4]]]),
    ),
    (
        "matrix_set_diag",
        (torch.zeros(3, 3), torch.tensor([[0.0, 1, 2], [3, 4, 5], [6, 7, 0]])),
        {"k": (-1, 1)},
        lambda x, d: torch.tensor([[3.0, 1, 0], [6, 4, 2], [0, 7, 5]]),
    ),
    ("trilu", (MATRIX,), {"k": 1}, by_numpy(lambda x: np.triu(x, 1))),
    ("trilu", (MATRIX,), {"upper": False}, by_numpy(np.tril)),
]

REDUCE: list[Row] = [
    ("sum", (X,), {}, by_numpy(np.sum)),
    ("sum", (X,), {"axis": (0, -1), "keepdims": True}, by_numpy(lambda x: x.sum((0, 2), keepdims=True))),
    ("sum", (X,), {"axis": 1, "exclude": True}, by_numpy(lambda x: x.sum((0, 2)))),
    ("sum", (X,), {"axis": (0, 1, 2), "exclude": True}, lambda x: x),
    ("sum", (I32,), {"axis": 0}, lambda x: (x[0] + x[1]).long()),
    ("sum", (torch.tensor(3.0),), {}, lambda x: x),
    ("mean", (X,), {"axis": [1]}, by_numpy(lambda x: x.mean(1))),
    ("max", (X,), {"axis": (1, 2)}, by_numpy(lambda x: x.max((1, 2)))),
    ("min", (X,), {"axis": 0, "keepdims": True}, by_numpy(lambda x: x.min(0, keepdims=True))),
    ("prod", (X,), {"axis": (0, 2)}, by_numpy(lambda x: x.prod((0, 2)))),
    ("prod", (X,), {"axis": (0, 2), "keepdims": True}, by_numpy(lambda x: x.prod((0, 2), keepdims=True))),
    ("all", (X > -1,), {"axis": (0, 2)}, by_numpy(lambda x: x.all((0, 2)))),
    ("any", (X > 1,), {}, by_numpy(np.any)),
    ("variance", (X,), {"axis": -1}, by_numpy(lambda x: x.var(2))),
    ("variance", (X,), {"axis": (0, 1), "unbiased": True}, by_numpy(lambda x: x.var((0, 1), ddof=1))),
    ("std", (X,), {"axis": 1, "keepdims": True}, by_numpy(lambda x: x.std(1, keepdims=True))),
    ("logsumexp", (X,), {"axis": (0, 1)}, by_numpy(lambda x: np.log(np.exp(x).sum((0, 1))))),
    ("argmax", (X,), {"axis": 1}, by_numpy(lambda x: x.argmax(1))),
    ("argmax", (X,), {"axis": (0, 2), "keepdims": True}, lambda x: x.permute(1, 0, 2).reshape(1, 3, 1, 8).argmax(-1)),
    ("argmin", (X,), {}, by_numpy(np.argmin)),
    ("cumsum", (X,), {"axis": -1}, by_numpy(lambda x: x.cumsum(2))),
    ("cumsum", (I32,), {"dtype": "float64"}, by_numpy(lambda x: x.astype(np.float64).cumsum())),
    ("cumsum", (I32,), {"axis": 0, "exclusive": True}, lambda x: torch.stack([x[0] * 0, x[0]]).long()),
]


def attention(q: Any, k: Any, v: Any, mask: Any, scale: float) -> Any:
    return torch.softmax(q @ k.mT * scale + mask, -1) @ v


CAUSAL = torch.triu(torch.full((3, 3), -float("inf")), 1)
Q, K, V = rand(2, 4, 3, 8), rand(2, 4, 3, 8).flip(3), rand(2, 4, 3, 8).flip(1)


def silu(x: torch.Tensor) -> torch.Tensor:
    return x / (1 + torch.exp(-x))


LINEAR: list[Row] = [
    ("matmul", (X, rand(4, 5)), {}, by_numpy(np.matmul)),
    ("matmul", (I32.to(torch.int8), I32.T.to(torch.int8)), {"out_dtype": "int32"}, lambda a, b: a.int() @ b.int()),
    ("nn.batch_matmul", (X, rand(2, 5, 4)), {}, lambda a, b: torch.einsum("bik,bjk->bij", a, b)),
    (
        "nn.batch_matmul",
        (X, rand(2, 3, 5)),
        {"transpose_a": True, "transpose_b": False},
        lambda a, b: torch.einsum("bki,bkj->bij", a, b),
    ),
    ("nn.dense", (X, rand(5, 4)), {}, lambda x, w: torch.einsum("bik,jk->bij", x, w)),
    ("nn.dense", (X.half(), rand(5, 4).half()), {"out_dtype": "float32"}, lambda x, w: x.float() @ w.float().T),
    ("packed.dense", (X, rand(5, 4)), {"activation": "silu"}, lambda x, w: silu(x @ w.T)),
    ("packed.dense", (X, rand(5, 4), rand(5)), {"precision": "int8"}, lambda x, w, b: x @ w.T + b),
    ("packed.dense_add", (X, rand(5, 4), rand(2, 3, 5)), {}, lambda x, w, y: x @ w.T + y),
    ("packed.dense_add", (X, rand(5, 4), rand(2, 3, 5), rand(5)), {"activation": "silu"},
     lambda x, w, y, b: silu(x @ w.T + b + y)),
    ("nn.bias_add", (X, rand(3)), {}, lambda x, b: x + b[:, None]),
    ("nn.bias_add", (X, ROW), {"axis": -1}, lambda x, b: x + b),
    ("einsum", ((X, rand(4, 5)),), {"equation": "bik, kj -> bji"}, lambda p: (p[0] @ p[1]).mT),
    ("nn.attention", (Q, K, V), {}, lambda q, k, v: attention(q, k, v, 0, 8**-0.5)),
    ("nn.attention", (Q, K, V), {"is_causal": True}, lambda q, k, v: attention(q, k, v, CAUSAL, 8**-0.5)),
    ("nn.attention", (Q, K, V, rand(3, 3)), {"scale": 0.5}, lambda q, k, v, m: attention(q, k, v, m, 0.5)),
    (
        "nn.attention",
        (Q, K[:, :2], V[:, :2]),
        {"enable_gqa": True},
        lambda q, k, v: attention(q, k.repeat_interleave(2, 1), v.repeat_interleave(2, 1), 0, 8**-0.5),
    ),
]


def conv2d(x: Any, w: Any, t: int = 0, left: int = 0, b: int = 0, r: int = 0, **rest: Any) -> Any:
    return F.conv2d(F.pad(x, (left, r, t, b)), w, **rest)


CONV: list[Row] = [
    ("nn.conv1d", (SIGNAL, rand(6, 4, 3)), {"strides": 2, "padding": 1}, lambda x, w: F.conv1d(x, w, None, 2, 1)),
    ("nn.conv1d", (SIGNAL, rand(6, 4, 3)), {"padding": (2, 0)}, lambda x, w: F.conv1d(F.pad(x, (2, 0)), w)),
    ("nn.conv2d", (IMAGE, KERNEL), {"padding": (1, 2)}, lambda x, w: conv2d(x, w, 1, 2, 1, 2)),
    ("nn.conv2d", (IMAGE, KERNEL), {"padding": (1, 2, 3, 0)}, lambda x, w: conv2d(x, w, 1, 2, 3, 0)),
    ("nn.conv2d", (IMAGE, KERNEL[:, :2]), {"groups": 2, "dilation": (2, 1)},
     lambda x, w: torch.cat([conv2d(x[:, :2], w[:3], dilation=(2, 1)), conv2d(x[:, 2:], w[3:], dilation=(2, 1))], 1)),
    ("nn.conv2d", (NHWC, KERNEL.permute(2, 3, 1, 0)), {"data_layout": "NHWC", "kernel_layout": "HWIO"},
     lambda x, w: conv2d(IMAGE, KERNEL).permute(0, 2, 3, 1)),
    ("nn.conv2d", (NHWC, KERNEL), {"data_layout": "NHWC", "out_layout": "NCHW"}, lambda x, w: conv2d(IMAGE, KERNEL)),
    ("nn.conv2d", (IMAGE.half(), KERNEL.half()), {"out_dtype": "float32"},
     lambda x, w: conv2d(x.float(), w.float())),
    ("packed.conv2d", (IMAGE, KERNEL), {"padding": (1, 2, 3, 0), "activation": "silu"},
     lambda x, w: silu(conv2d(x, w, 1, 2, 3, 0))),
    ("packed.conv2d", (IMAGE, KERNEL[:, :2], BIAS), {"groups": 2, "precision": "bfloat16"},
     lambda x, w, b: torch.cat([conv2d(x[:, :2], w[:3]), conv2d(x[:, 2:], w[3:])], 1) + b[:, None, None]),
    ("packed.conv2d_add", (IMAGE, KERNEL, rand(2, 6, 5, 5)), {}, lambda x, w, y: conv2d(x, w) + y),
    ("packed.conv2d_add", (IMAGE, KERNEL, rand(2, 6, 5, 5), BIAS), {"activation": "silu"},
     lambda x, w, y, b: silu(conv2d(x, w) + b[:, None, None] + y)),
    ("nn.conv3d", (IMAGE3, rand(2, 4, 3, 3, 2)), {"strides": (1, 2, 1), "padding": (1, 0, 0, 0, 1, 0)},
     lambda x, w: F.conv3d(F.pad(x, (0, 0, 0, 1, 1, 0)), w, None, (1, 2, 1))),
    ("nn.conv1d_transpose", (SIGNAL, rand(4, 3, 3)), {"strides": 2, "output_padding": 1},
     lambda x, w: F.conv_transpose1d(x, w, None, 2, 0, 1)),
    ("nn.conv2d_transpose", (IMAGE, rand(4, 3, 3, 2)), {"strides": 2, "padding": (1, 0), "output_padding": (1, 0)},
     lambda x, w: F.conv_transpose2d(x, w, None, 2, (1, 0), (1, 0))),
    ("nn.conv2d_transpose", (IMAGE, rand(4, 3, 3, 2)), {"strides": 2, "padding": (2, 0, 1, 1), "groups": 2},
     lambda x, w: F.conv_transpose2d(x, w, None, 2, 0, 0, 2)[:, :, 2:-1, :-1]),
    ("nn.conv2d_transpose", (NHWC, rand(3, 4, 3, 2)), {"data_layout": "NHWC", "kernel_layout": "OIHW"},
     lambda x, w: F.conv_transpose2d(IMAGE, w.transpose(0, 1)).permute(0, 2, 3, 1)),
    ("nn.conv3d_transpose", (IMAGE3, rand(4, 2, 2, 2, 2)), {"dilation": 2},
     lambda x, w: F.conv_transpose3d(x, w, dilation=2)),
]  # fmt: skip


def windows(x: torch.Tensor, size: int, step: int) -> torch.Tensor:
    """The windows of size x size of the last two axes, with their elements in the last axis."""
    return x.unfold(-2, size, step).unfold(-2, size, step).flatten(-2)


INF = float("inf")
ONES = torch.ones_like(IMAGE)
POOL: list[Row] = [
    ("nn.max_pool1d", (SIGNAL,), {"pool_size": 3, "strides": 2}, lambda x: x.unfold(-1, 3, 2).amax(-1)),
    ("nn.max_pool2d", (IMAGE,), {"pool_size": 2}, lambda x: windows(x, 2, 1).amax(-1)),
    ("nn.max_pool2d", (IMAGE,), {"pool_size": 3, "strides": 2, "padding": 1},
     lambda x: windows(F.pad(x, (1, 1, 1, 1), value=-INF), 3, 2).amax(-1)),
    ("nn.max_pool2d", (IMAGE - 9,), {"pool_size": 3, "padding": (0, 1, 2, 0)},
     lambda x: windows(F.pad(x, (1, 0, 0, 2), value=-INF), 3, 1).amax(-1)),
    ("nn.max_pool2d", (NHWC,), {"pool_size": 3, "strides": 2, "ceil_mode": True, "layout": "NHWC"},
     lambda x: windows(F.pad(IMAGE, (0, 1, 0, 0), value=-INF), 3, 2).amax(-1).permute(0, 2, 3, 1)),
    ("nn.max_pool2d", (IMAGE,), {"pool_size": 2, "dilation": 2},
     lambda x: windows(x, 3, 1)[..., [0, 2, 6, 8]].amax(-1)),
    ("nn.max_pool3d", (IMAGE3,), {"pool_size": (5, 6, 4)}, lambda x: x.amax((2, 3, 4), keepdim=True)),
    ("nn.avg_pool1d", (SIGNAL,), {"pool_size": 3, "strides": 3}, lambda x: x.unfold(-1, 3, 3).mean(-1)),
    ("nn.avg_pool2d", (IMAGE,), {"pool_size": 3, "padding": 1, "count_include_pad": True},
     lambda x: windows(F.pad(x, (1, 1, 1, 1)), 3, 1).mean(-1)),
    *(("nn.avg_pool2d", (IMAGE,), {"pool_size": 3, "padding": padding}, lambda x, sides=sides:
       windows(F.pad(x, sides), 3, 1).sum(-1) / windows(F.pad(ONES, sides), 3, 1).sum(-1))
      for padding, sides in [(1, (1, 1, 1, 1)), ((0, 1, 2, 0), (1, 0, 0, 2))]),
    ("nn.avg_pool2d", (IMAGE,), {"pool_size": 3, "padding": (2, 0, 0, 1), "count_include_pad": True},
     lambda x: windows(F.pad(x, (0, 1, 2, 0)), 3, 1).mean(-1)),
    ("nn.avg_pool3d", (IMAGE3,), {"pool_size": (5, 6, 4)}, lambda x: x.mean((2, 3, 4), keepdim=True)),
    ("nn.adaptive_max_pool1d", (SIGNAL,), {"output_size": 3}, lambda x: x.unfold(-1, 3, 3).amax(-1)),
    ("nn.adaptive_max_pool2d", (IMAGE,), {"output_size": (None, 2)},
     lambda x: torch.stack([x[..., :3].amax(-1), x[..., 3:].amax(-1)], -1)),
    ("nn.adaptive_max_pool3d", (IMAGE3,), {"output_size": 1}, lambda x: x.amax((2, 3, 4), keepdim=True)),
    ("nn.adaptive_avg_pool1d", (SIGNAL,), {"output_size": (3,)}, lambda x: x.unfold(-1, 3, 3).mean(-1)),
    ("nn.adaptive_avg_pool2d", (NHWC,), {"output_size": (1, 1), "layout": "NHWC"},
     lambda x: x.mean((1, 2), keepdim=True)),
    ("nn.adaptive_avg_pool3d", (IMAGE3,), {"output_size": (1, 6, 4)}, lambda x: x.mean(2, keepdim=True)),
    ("nn.global_max_pool1d", (SIGNAL,), {}, lambda x: x.amax(2, keepdim=True)),
    ("nn.global_max_pool2d", (IMAGE,), {"out_layout": "NHWC"}, lambda x: x.amax((2, 3))[:, None, None]),
    ("nn.global_max_pool3d", (IMAGE3,), {}, lambda x: x.amax((2, 3, 4), keepdim=True)),
    ("nn.global_avg_pool1d", (SIGNAL,), {}, lambda x: x.mean(2, keepdim=True)),
    ("nn.global_avg_pool2d", (NHWC,), {"layout": "NHWC"}, lambda x: x.mean((1, 2), keepdim=True)),
    ("nn.global_avg_pool3d", (IMAGE3,), {}, lambda x: x.mean((2, 3, 4), keepdim=True)),
]  # fmt: skip


def normal(x: torch.Tensor, axes: tuple[int, ...], epsilon: float = 1e-5) -> torch.Tensor:
    """A tensor with mean 0 and variance 1 over the axes."""
    centred = x - x.mean(axes, keepdim=True)
    return centred / torch.sqrt((centred * centred).mean(axes, keepdim=True) + epsilon)


def batch_norm(x: Any, g: Any, b: Any, m: Any, v: Any, axis: int = 1, epsilon: float = 1e-5) -> Any:
    g, b, m, v = (channels(t, x.dim(), axis) for t in (g, b, m, v))
    return (x - m) / torch.sqrt(v + epsilon) * g + b


AFFINE = (GAMMA, BETA, MEAN, VAR)
NORM: list[Row] = [
    ("nn.batch_norm", (IMAGE, *AFFINE), {}, batch_norm),
    ("nn.batch_norm", (NHWC, *AFFINE), {"axis": -1, "epsilon": 0.1}, lambda *t: batch_norm(*t, 3, 0.1)),
    ("nn.batch_norm", (IMAGE, *AFFINE), {"center": False, "scale": False},
     lambda x, g, b, m, v: batch_norm(x, g / g, b * 0, m, v)),
    ("nn.layer_norm", (X, GAMMA, BETA), {}, lambda x, g, b: normal(x, (2,)) * g + b),
    ("nn.layer_norm", (X, U[0], BETA[:3]), {"axis": 1, "epsilon": 0.1},
     lambda x, g, b: normal(x, (1,), 0.1) * g[:, None] + b[:, None]),
    ("nn.layer_norm", (X, P[0]), {"axis": (-2, -1)}, lambda x, g: normal(x, (1, 2)) * g),
    ("nn.layer_norm", (X,), {"axis": (0, 2)}, lambda x: normal(x, (0, 2))),
    ("nn.layer_norm", (X, GAMMA, BETA), {"scale": False}, lambda x, g, b: normal(x, (2,)) + b),
    ("nn.rms_norm", (X, GAMMA), {}, lambda x, g: x / torch.sqrt((x * x).mean(-1, keepdim=True) + 1e-5) * g),
    ("nn.rms_norm", (X,), {"axis": (1, 2), "epsilon": 0.1},
     lambda x: x / torch.sqrt((x * x).mean((1, 2), keepdim=True) + 0.1)),
    ("nn.group_norm", (IMAGE, GAMMA, BETA), {"num_groups": 2},
     lambda x, g, b: torch.cat([normal(x[:, :2], (1, 2, 3)), normal(x[:, 2:], (1, 2, 3))], 1)
     * channels(g, 4) + channels(b, 4)),
    ("nn.group_norm", (NHWC,), {"num_groups": 1, "axis": 3}, lambda x: normal(x, (1, 2, 3))),
    ("nn.instance_norm", (IMAGE, GAMMA, BETA), {},
     lambda x, g, b: normal(x, (2, 3)) * channels(g, 4) + channels(b, 4)),
    ("nn.instance_norm", (NHWC,), {"axis": -1}, lambda x: normal(x, (1, 2))),
    ("nn.l2_normalize", (X,), {"eps": 1e-6, "axis": 1}, lambda x: F.normalize(x, dim=1, eps=1e-3)),
    ("nn.l2_normalize", (X,), {"eps": 1e6}, lambda x: x / 1e3),
]  # fmt: skip

ACTIVATION: list[Row] = [
    ("nn.relu", (X,), {}, lambda x: x * (x > 0)),
    ("nn.relu6", (X * 5,), {}, lambda x: x.clamp(0, 6)),
    ("nn.leaky_relu", (X,), {"alpha": 0.2}, lambda x: torch.where(x > 0, x, 0.2 * x)),
    ("elu", (X,), {"alpha": 2}, lambda x: torch.where(x > 0, x, 2 * (x.exp() - 1))),
    ("selu", (X,), {}, lambda x: 1.0507009873554805 * torch.where(x > 0, x, 1.6732632423543772 * (x.exp() - 1))),
    ("gelu", (X,), {}, lambda x: x * (1 + torch.erf(x / 2**0.5)) / 2),
    ("gelu", (X,), {"approximate": "tanh"},
     lambda x: x * (1 + torch.tanh((2 / math.pi) ** 0.5 * (x + 0.044715 * x**3))) / 2),
    ("silu", (X,), {}, lambda x: x / (1 + torch.exp(-x))),
    ("mish", (X,), {}, lambda x: x * torch.tanh(torch.log(1 + torch.exp(x)))),
    ("hardswish", (X * 2,), {}, lambda x: x * (x + 3).clamp(0, 6) / 6),
    ("hardsigmoid", (X * 2,), {}, lambda x: (x + 3).clamp(0, 6) / 6),
    ("softplus", (X,), {"beta": 2, "threshold": 2.5},
     lambda x: torch.where(2 * x > 2.5, x, torch.log(1 + torch.exp(2 * x)) / 2)),
    ("nn.prelu", (IMAGE, GAMMA), {}, lambda x, a: torch.where(x > 0, x, x * channels(a, 4))),
    ("nn.prelu", (NHWC, GAMMA), {"axis": -1}, lambda x, a: torch.where(x > 0, x, x * a)),
    ("nn.prelu", (IMAGE, GAMMA[:1]), {}, lambda x, a: torch.where(x > 0, x, x * a)),
    ("nn.softmax", (X,), {}, lambda x: x.exp() / x.exp().sum(-1, keepdim=True)),
    ("nn.log_softmax", (X,), {"axis": 1}, lambda x: torch.log(x.exp() / x.exp().sum(1, keepdim=True))),
    ("nn.dropout", (X,), {"rate": 0.3}, lambda x: x),
    ("copy", (X,), {}, lambda x: x),
]  # fmt: skip

ROWS = [*UNARY, *BINARY, *OTHERS, *CREATE, *SHAPE, *INDEX, *REDUCE, *LINEAR, *CONV, *POOL, *NORM, *ACTIVATION]


def type_of(value: Any) -> Operand:
    if isinstance(value, tuple):
        return TupleType(tuple([type_of(field) for field in value]))  # type: ignore[misc]
    if isinstance(value, torch.Tensor):
        return TensorType(tuple(value.shape), str(value.dtype).removeprefix("torch."))
    return value  # type: ignore[no-any-return]


def assert_equal(found: Any, expected: Any) -> None:
    if isinstance(expected, tuple):
        assert isinstance(found, tuple)
        assert len(found) == len(expected)
        for one, other in zip(found, expected, strict=True):
            assert_equal(one, other)
    else:
        torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5, equal_nan=True)


def test_every_operator_has_a_row() -> None:
    assert {row[0] for row in ROWS} == set(TABLE)


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row[0]}-{row[2]}" if row[2] else row[0])
def test_meaning_and_type(row: Row) -> None:
    name, operands, attrs, expected = row
    found = evaluate(TABLE[name], operands, attrs)
    assert_equal(found, expected(*operands))
    assert isinstance(found, tuple) == TABLE[name].fields
    inferred: Type | None = infer(TABLE[name], [type_of(operand) for operand in operands], attrs)
    assert inferred == type_of(found)


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row[0]}-{row[2]}" if row[2] else row[0])
def test_canonical_attributes_are_fixed(row: Row) -> None:
    """Completing completed attributes changes nothing, whether or not the types are known."""
    name, operands, attrs, expected = row
    spec = TABLE[name]
    known: Any = tuple([None if isinstance(t := type_of(x), (bool, int, float)) else t for x in operands])
    for types in (known, (None,) * len(known)):
        full = spec.complete(attrs, types)
        own = {key: value for key, value in full.items() if spec.attrs[key].derive is None}
        again = spec.complete(own, types)
        assert again == full
        assert repr(again) == repr(full)
    assert spec.complete(own, known) == spec.complete(attrs, known)
    assert_equal(evaluate(spec, operands, full), expected(*operands))


def test_a_commutative_operator_may_exchange_its_operands() -> None:
    checked = 0
    for name, operands, attrs, _ in ROWS:
        if TABLE[name].commutative:
            swapped = (operands[1], operands[0], *operands[2:])
            assert_equal(evaluate(TABLE[name], swapped, attrs), evaluate(TABLE[name], operands, attrs))
            checked += 1
    assert checked > 10


def test_an_optional_operand_may_be_left_out() -> None:
    spec = find("attention")
    assert spec is not None
    assert spec.arity == "3 to 4"
    assert_equal(evaluate(spec, (Q, K, V), {}), evaluate(spec, (Q, K, V, torch.zeros(3, 3)), {}))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_attention_has_as_many_values_as_keys(dtype: torch.dtype) -> None:
    """Kernels of torch 2.14 compute something for others."""
    one, three = torch.ones(3, 1, 3, dtype=dtype), torch.ones(3, 3, 3, dtype=dtype)
    spec, types = TABLE["nn.attention"], [TensorType((3, n, 3), str(dtype).removeprefix("torch.")) for n in (3, 1, 3)]
    with pytest.raises((ValueError, RuntimeError)):
        evaluate(spec, (three, one, three), {})
    with pytest.raises(ValueError, match=r"nn\.attention"):
        infer(spec, types, {})


def test_the_comparison_can_fail() -> None:
    with pytest.raises(AssertionError):
        assert_equal(evaluate(TABLE["add"], (X, Y), {}), X + Y + 1e-3)
    with pytest.raises(AssertionError):
        assert_equal(evaluate(TABLE["add"], (I32, J32), {}), (I32 + J32).long())

"""Calls that Relay spells in a way of their own, beside the rows by which the meaning of the operators is tested."""

from __future__ import annotations

import itertools
from typing import Any

import torch

from tests.spec.test_meaning import (
    AFFINE,
    B1,
    B2,
    BETA,
    GAMMA,
    I32,
    IMAGE,
    IMAGE3,
    INDICES,
    J32,
    KERNEL,
    MATRIX,
    NHWC,
    ODD,
    SIGNAL,
    K,
    P,
    Q,
    V,
    X,
    Y,
    rand,
)

Call = tuple[str, tuple[Any, ...], dict[str, Any]]

F64 = rand(2, 3, 4).double()
TINY = torch.tensor([0.0, 1e-7, -1e-5, 1e-3, -1.0, 30.0, 90.0, -90.0])
HALVES = torch.arange(-40, 41) / 4
POINTS = list(itertools.product((0.0, -0.0, 1.0, -2.5, 1e-20, float("inf"), -float("inf"), float("nan")), repeat=2))
UP, ACROSS = (torch.tensor(values) for values in zip(*POINTS))
MASK = torch.tensor([[True, False, True], [False, False, False], [True, True, False]])
VECTOR, VECTOR4 = rand(3), rand(4)

ELEMENTWISE: list[Call] = [
    ("add", (I32, rand(2, 3)), {}),
    ("add", (B1, B2), {}),
    ("add", (F64, X), {}),
    ("add", (X.half(), torch.tensor(0.5)), {}),
    ("add", (torch.tensor(2), X), {}),
    ("multiply", (B1, B2), {}),
    ("multiply", (2.5, I32), {}),
    ("multiply", (X.half(), 0.1), {}),
    ("subtract", (I32, 0.5), {}),
    ("divide", (I32, J32), {}),
    ("divide", (1.0, P), {}),
    ("divide", (I32.long(), 3), {}),
    ("floor_divide", (X, Y), {}),
    ("floor_divide", (torch.tensor([1.0, -1.0, 3.0, 7.5]), 0.1), {}),
    ("floor_divide", (I32, 2), {}),
    ("floor_mod", (X, Y), {}),
    ("floor_mod", (I32, -3), {}),
    ("mod", (X, Y), {}),
    ("mod", (I32, -3), {}),
    ("power", (I32, 3), {}),
    ("power", (I32, 0), {}),
    ("power", (I32.abs() + 1, 0.5), {}),
    ("power", (X, 2), {}),
    ("atan2", (UP, ACROSS), {}),
    ("atan2", (X, 0.5), {}),
    ("maximum", (I32, rand(2, 3)), {}),
    ("minimum", (F64, X), {}),
    ("equal", (I32, rand(2, 3)), {}),
    ("less", (2.5, I32), {}),
    ("where", (MASK, I32[:1], rand(3, 3)), {}),
    ("where", (B1, 1, 0), {}),
    ("clip", (I32,), {"a_min": -2}),
    ("clip", (I32,), {"a_min": -2, "a_max": 4}),
    ("clip", (I32,), {"a_min": -2.5, "a_max": 4}),
    ("clip", (X,), {"a_max": 0.25}),
    ("clip", (X,), {"a_min": 0.5, "a_max": -0.5}),
    ("cast", (I32,), {"dtype": "bool"}),
    ("cast", (X,), {"dtype": "bool"}),
    ("cast", (B1,), {"dtype": "float32"}),
    ("cast", (2,), {"dtype": "float32"}),
    *((name, (I32,), {}) for name in ("exp", "sigmoid", "abs", "negative", "sign", "floor", "ceil", "trunc", "round")),
    ("exp", (B1,), {}),
    ("reciprocal", (J32,), {}),
    ("square", (I32,), {}),
    ("isnan", (I32,), {}),
    ("bitwise_not", (B1,), {}),
    ("logical_not", (I32,), {}),
    ("logical_and", (I32, B1[:3]), {}),
    ("logical_xor", (X, Y), {}),
    ("left_shift", (I32.long(), 3), {}),
    ("right_shift", (I32, torch.tensor([[1, 0, 2]], dtype=torch.int32)), {}),
    ("expm1", (TINY,), {}),
    ("log1p", (torch.cat([TINY[:7], ODD[4:]]),), {}),
    ("round", (HALVES,), {}),
    ("gelu", (F64,), {}),
    ("elu", (TINY * 0.5,), {}),
    ("mish", (TINY * 2,), {}),
    ("softplus", (TINY,), {}),
    ("nn.relu", (I32,), {}),
    ("nn.relu6", (I32,), {}),
    ("nn.prelu", (X, GAMMA[:3].double().float()), {"axis": 1}),
    ("nn.prelu", (X, rand(3, 4)), {}),
    ("nn.softmax", (X,), {"axis": 0}),
]

CREATE: list[Call] = [
    ("zeros", (), {"shape": (2,), "dtype": "bool"}),
    ("full", (1,), {"shape": (2, 0)}),
    ("full", (True,), {"shape": (2,)}),
    ("full", (2.7,), {"shape": (2,), "dtype": "int32"}),
    ("full", (torch.tensor(3),), {"shape": (2,)}),
    ("full_like", (B1, 1.0), {}),
    ("full_like", (X, torch.tensor([4])), {}),
    ("zeros_like", (B1,), {}),
    ("arange", (), {"stop": 3, "dtype": "float64"}),
    ("arange", (), {"start": 2.0, "stop": 9.0, "step": 3.0, "dtype": "int32"}),
]

SHAPE: list[Call] = [
    ("concatenate", ((I32, rand(2, 2)),), {"axis": 1}),
    ("stack", ((X, Y, X),), {}),
    ("split", (X,), {"indices_or_sections": (1,), "axis": 1}),
    ("split", (X,), {"indices_or_sections": 1}),
    ("reshape", (X,), {"newshape": -1}),
    ("reshape", (X[:1, :1, :1],), {"newshape": ()}),
    ("reshape", (X[:0],), {"newshape": (3, 0)}),
    ("squeeze", (X,), {}),
    ("reverse", (X,), {"axis": ()}),
    ("transpose", (X,), {"axes": (2, 0, 1)}),
    ("broadcast_to", (X[:, :1],), {"shape": (5, 2, 3, 4)}),
    ("repeat", (X,), {"repeats": 1, "axis": 0}),
    ("nn.pad", (X,), {"pad_width": ((-1, 0), (1, -2), (0, -1)), "pad_value": 0.5}),
    ("nn.pad", (X,), {"pad_width": 0}),
    ("nn.pad", (B1,), {"pad_width": 1, "pad_value": True}),
    ("strided_slice", (X,), {"begin": (-1, 3), "end": (-3, None), "strides": (-1, -3), "axes": (1, 2)}),
    ("strided_slice", (X,), {"begin": (0,), "end": (2,), "strides": (2,), "axes": (2,)}),
    ("strided_slice", (X,), {"begin": (0, 1), "end": (1, 3), "axes": (0, 2)}),
    ("strided_slice", (X,), {"begin": (2,), "end": (1,), "axes": (1,)}),
    ("take", (X, INDICES - 2), {"axis": 1}),
    ("take", (X, -1), {"axis": 2}),
    ("take", (X, 5), {}),
    ("gather", (MATRIX, INDICES.int().long()), {"axis": 0}),
    ("gather", (X, torch.zeros(1, 2, 6, dtype=torch.int64)), {"axis": 2}),
    ("scatter", (MATRIX, INDICES, torch.ones(2, 2)), {"axis": 0}),
    ("trilu", (X,), {"k": -1, "upper": True}),
    ("trilu", (I32,), {"k": 1, "upper": False}),
    *(
        ("matrix_set_diag", (torch.zeros(3, 4), rand(4, 3)), {"k": (-1, 2), "align": align})
        for align in ("RIGHT_LEFT", "LEFT_RIGHT", "LEFT_LEFT", "RIGHT_RIGHT")
    ),
    ("layout_transform", (SIGNAL,), {"src_layout": "NCW", "dst_layout": "NCW2c"}),
]

REDUCE: list[Call] = [
    ("sum", (B1,), {}),
    ("sum", (X,), {"axis": (), "keepdims": True}),
    ("sum", (I32.long(),), {"axis": 1}),
    ("prod", (I32,), {"axis": 0}),
    ("mean", (X,), {"axis": 0, "exclude": True}),
    ("mean", (torch.tensor(2.0),), {}),
    ("max", (I32,), {"axis": 1}),
    ("min", (X,), {}),
    ("all", (I32,), {"axis": 1}),
    ("any", (B1,), {"keepdims": True}),
    ("variance", (X,), {"axis": (), "keepdims": True}),
    ("variance", (F64,), {}),
    ("std", (X,), {"unbiased": True}),
    ("logsumexp", (ODD[[0, 5]],), {"axis": 0}),
    ("logsumexp", (ODD[[7, 7]],), {"axis": 0}),
    ("logsumexp", (X * 100,), {"keepdims": True}),
    ("argmax", (I32,), {"axis": 0}),
    ("argmin", (X,), {"axis": (1, 2)}),
    ("cumsum", (X,), {}),
    ("cumsum", (B1,), {"axis": 0}),
    ("cumsum", (X,), {"axis": 1, "exclusive": True}),
]

LINEAR: list[Call] = [
    ("matmul", (VECTOR, rand(3) + 1), {}),
    ("matmul", (VECTOR4, rand(4, 2)), {}),
    ("matmul", (X, VECTOR4), {}),
    ("matmul", (VECTOR, X), {}),
    ("matmul", (X, rand(2, 4, 5)), {}),
    ("matmul", (rand(5, 1, 3, 4), rand(2, 4, 5)), {}),
    ("matmul", (rand(3, 4), rand(2, 4, 5)), {}),
    ("matmul", (X[0], rand(4, 5)), {}),
    ("nn.batch_matmul", (X, X), {"transpose_a": True, "transpose_b": False}),
    ("nn.batch_matmul", (X[:1], rand(2, 5, 4)), {}),
    ("nn.dense", (VECTOR4, rand(5, 4)), {}),
    ("nn.dense", (X[0], rand(5, 4)), {}),
    ("nn.dense", (I32.to(torch.int8), J32.to(torch.int8)), {"out_dtype": "int32"}),
    ("nn.bias_add", (IMAGE, GAMMA), {}),
    ("einsum", ((X[0],),), {"equation": "ij->ji"}),
    ("nn.attention", (Q, K, V, MASK), {}),
    ("nn.attention", (Q[0], K[0], V[0, :, :, :5]), {"is_causal": True}),
    ("nn.attention", (Q, K[:, :1], V[:, :1]), {"enable_gqa": True, "scale": 0.25}),
]

CONV: list[Call] = [
    ("nn.conv1d", (SIGNAL, rand(6, 2, 3)), {"groups": 2, "dilation": 2}),
    ("nn.conv1d", (SIGNAL.mT.contiguous(), rand(3, 4, 6)), {"data_layout": "NWC", "kernel_layout": "WIO"}),
    ("nn.conv2d", (NHWC, rand(3, 3, 4, 1)), {"data_layout": "NHWC", "kernel_layout": "HWOI", "groups": 4}),
    ("nn.conv2d", (NHWC, rand(8, 1, 3, 3)), {"data_layout": "NHWC", "groups": 4}),
    ("nn.conv2d", (NHWC, rand(3, 3, 2, 6)), {"data_layout": "NHWC", "kernel_layout": "HWIO", "groups": 2}),
    ("nn.conv2d", (IMAGE, rand(4, 1, 3, 3)), {"groups": 4, "strides": (2, 1)}),
    ("nn.conv2d", (IMAGE, rand(8, 1, 3, 3)), {"groups": 4}),
    ("nn.conv2d", (IMAGE.half(), KERNEL), {"out_dtype": "float32"}),
    ("nn.conv2d", (IMAGE, KERNEL), {"out_dtype": "float32"}),
    ("nn.conv3d", (IMAGE3, rand(4, 2, 2, 2, 2)), {"groups": 2}),
    ("nn.conv3d", (IMAGE3.movedim(1, -1).contiguous(), rand(2, 2, 2, 4, 3)),
     {"data_layout": "NDHWC", "kernel_layout": "DHWIO", "padding": 1}),
    ("nn.conv1d_transpose", (SIGNAL, rand(4, 3, 3)), {"groups": 2, "strides": 2, "dilation": 2, "padding": (1, 3)}),
    ("nn.conv2d_transpose", (IMAGE, rand(4, 3, 3, 2)),
     {"strides": (2, 3), "padding": (1, 0, 2, 1), "output_padding": (1, 2), "dilation": (1, 2)}),
    ("nn.conv2d_transpose", (IMAGE, rand(4, 3, 2, 2)), {"padding": 2, "dilation": 1, "groups": 2}),
    ("nn.conv2d_transpose", (IMAGE, rand(4, 3, 1, 1)), {"padding": (1, 0, 0, 2), "dilation": 2}),
    ("nn.conv3d_transpose", (IMAGE3, rand(4, 2, 2, 2, 2)), {"groups": 2, "strides": 2, "output_padding": 1}),
]  # fmt: skip

POOL: list[Call] = [
    ("nn.max_pool1d", (SIGNAL,), {"pool_size": 2, "strides": 4, "ceil_mode": True}),
    # The last window would begin in the padding: it does not count.
    ("nn.max_pool2d", (IMAGE,), {"pool_size": 2, "strides": 2, "padding": 1, "ceil_mode": True}),
    ("nn.max_pool2d", (IMAGE,), {"pool_size": 3, "strides": 2, "ceil_mode": True, "out_layout": "NHWC"}),
    ("nn.max_pool2d", (I32.reshape(1, 1, 2, 3),), {"pool_size": 2}),
    ("nn.avg_pool2d", (IMAGE,), {"pool_size": 3, "strides": 2, "padding": 1, "ceil_mode": True}),
    ("nn.avg_pool2d", (IMAGE,),
     {"pool_size": (3, 2), "strides": (3, 4), "padding": (1, 0), "ceil_mode": True, "count_include_pad": True}),
    ("nn.avg_pool2d", (NHWC,),
     {"pool_size": 2, "strides": 2, "ceil_mode": True, "count_include_pad": True, "layout": "NHWC"}),
    ("nn.avg_pool1d", (SIGNAL,), {"pool_size": 2, "strides": 4, "ceil_mode": True, "count_include_pad": True}),
    ("nn.avg_pool3d", (IMAGE3,), {"pool_size": 2, "strides": 2, "padding": (1, 0, 1, 0, 0, 1), "ceil_mode": True}),
    ("nn.adaptive_avg_pool2d", (IMAGE,), {"output_size": (3, 4), "out_layout": "NHWC"}),
    ("nn.adaptive_max_pool2d", (NHWC,), {"output_size": (None, 5), "layout": "NHWC"}),
    ("nn.global_avg_pool2d", (IMAGE,), {}),
]  # fmt: skip

NORM: list[Call] = [
    ("nn.batch_norm", (X[0], *AFFINE), {}),
    ("nn.layer_norm", (X,), {}),
    ("nn.layer_norm", (X, GAMMA), {"epsilon": 0.1}),
    ("nn.layer_norm", (IMAGE, rand(4, 6), rand(4, 6)), {"axis": (1, 3)}),
    ("nn.rms_norm", (IMAGE, rand(4, 6)), {"axis": (1, 3)}),
    ("nn.group_norm", (IMAGE, GAMMA), {"num_groups": 4}),
    ("nn.group_norm", (NHWC, GAMMA, BETA), {"num_groups": 2, "axis": 3, "scale": False}),
    ("nn.group_norm", (rand(2, 4), GAMMA, BETA), {"num_groups": 2}),
    ("nn.instance_norm", (SIGNAL, GAMMA, BETA), {"center": False}),
    ("nn.l2_normalize", (IMAGE,), {"eps": 1e-4, "axis": (1, 2)}),
]  # fmt: skip

CALLS = [*ELEMENTWISE, *CREATE, *SHAPE, *REDUCE, *LINEAR, *CONV, *POOL, *NORM]

"""What torch is known to spell otherwise than the canonical operators: exact lists, which the suite checks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

_REFUSED: Final[Mapping[str, str]] = {"add #3": "expected a tensor among the operands"}
"""Single calls that can't be written, with the reason."""

_COMPOSED: Final[Mapping[str, str]] = {
    "maximum #2": "clip",
    "minimum #2": "clip",
    "full(shape=2, dtype=int8)": "broadcast_to cast copy reshape",
    "reshape_like": "reshape",
    "reshape_like(lhs_begin=1, rhs_begin=1)": "reshape",
    "expand_dims(axis=1, num_newaxis=2)": "expand_dims",
    "layout_transform(src_layout=NHC, dst_layout=NCH)": "transpose",
    "layout_transform(src_layout=NCHW, dst_layout=NHWC4c)": "reshape transpose",
    "layout_transform(src_layout=NCHW4c, dst_layout=NCHW2c)": "reshape transpose",
    "nn.pad(pad_width=((1, 0), (0, 2), (1, 3)), pad_mode=edge)": "concatenate repeat strided_slice",
    "nn.pad(pad_width=((1, 0), (0, 2), (1, 3)), pad_mode=reflect)": "concatenate reverse strided_slice",
    "strided_slice(begin=3, end=None, strides=-2, axes=-1)": "reverse strided_slice",
    "take": "reshape take",
    "matrix_set_diag(k=(-1, 1))": "matrix_set_diag strided_slice take",
    "sum(axis=(0, 1, 2), exclude=True)": "expand_dims sum",
    "sum #2": "expand_dims sum",
    "prod(axis=(0, 2))": "prod",
    "prod(axis=(0, 2), keepdims=True)": "prod",
    "argmax(axis=(0, 2), keepdims=True)": "argmax expand_dims reshape transpose",
    "cumsum(dtype=float64)": "cumsum reshape",
    "cumsum(axis=0, exclusive=True)": "cumsum subtract",
    "matmul(out_dtype=int32)": "cast matmul",
    "nn.batch_matmul": "matmul transpose",
    "nn.batch_matmul(transpose_a=True, transpose_b=False)": "matmul transpose",
    "nn.dense(out_dtype=float32)": "cast nn.dense",
    "nn.bias_add": "add reshape",
    "nn.bias_add(axis=-1)": "add",
    "nn.conv1d(padding=(2, 0))": "nn.conv1d nn.pad",
    "nn.conv2d(padding=(1, 2, 3, 0))": "nn.conv2d nn.pad",
    "packed.conv2d(padding=(1, 2, 3, 0), activation=silu)": "nn.pad packed.conv2d",
    "nn.conv2d(data_layout=NHWC, kernel_layout=HWIO)": "nn.conv2d transpose",
    "nn.conv2d(data_layout=NHWC, out_layout=NCHW)": "nn.conv2d transpose",
    "nn.conv2d(out_dtype=float32)": "cast nn.conv2d",
    "nn.conv3d(strides=(1, 2, 1), padding=(1, 0, 0, 0, 1, 0))": "nn.conv3d nn.pad",
    "nn.conv2d_transpose(data_layout=NHWC, kernel_layout=OIHW)": "nn.conv2d_transpose transpose",
    "nn.max_pool2d(pool_size=3, padding=(0, 1, 2, 0))": "nn.max_pool2d nn.pad",
    "nn.max_pool2d(pool_size=3, strides=2, ceil_mode=True, layout=NHWC)": "nn.max_pool2d transpose",
    "nn.avg_pool1d(pool_size=3, strides=3)": "nn.avg_pool1d",
    "nn.avg_pool2d(pool_size=3, padding=(0, 1, 2, 0))": "divide nn.avg_pool2d nn.pad ones_like",
    "nn.avg_pool2d(pool_size=3, padding=(2, 0, 0, 1), count_include_pad=True)": "nn.avg_pool2d nn.pad",
    "nn.avg_pool3d(pool_size=(5, 6, 4))": "nn.avg_pool3d",
    "nn.adaptive_max_pool2d(output_size=(None, 2))": "nn.adaptive_max_pool2d",
    "nn.adaptive_avg_pool2d(output_size=(1, 1), layout=NHWC)": "nn.adaptive_avg_pool2d transpose",
    "nn.global_max_pool1d": "max",
    "nn.global_max_pool2d": "max",
    "nn.global_max_pool2d(out_layout=NHWC)": "max transpose",
    "nn.global_max_pool3d": "max",
    "nn.global_avg_pool1d": "mean",
    "nn.global_avg_pool2d": "mean",
    "nn.global_avg_pool2d(layout=NHWC)": "mean transpose",
    "nn.global_avg_pool3d": "mean",
    "nn.batch_norm(axis=-1, epsilon=0.1)": "nn.batch_norm transpose",
    "nn.batch_norm(center=False, scale=False)": "nn.batch_norm",
    "nn.layer_norm(axis=1, epsilon=0.1)": "nn.layer_norm transpose",
    "nn.layer_norm(axis=(0, 2))": "nn.layer_norm transpose",
    "nn.layer_norm(axis=(0, 2)) #2": "nn.layer_norm transpose",
    "nn.rms_norm(axis=(0, 2))": "nn.rms_norm transpose",
    "nn.group_norm(num_groups=1, axis=3)": "nn.group_norm transpose",
    "nn.instance_norm(axis=-1)": "nn.instance_norm transpose",
    "nn.prelu(axis=-1)": "greater multiply where",
}

_COMPOSED_FX: Final[Mapping[str, str]] = {
    **_COMPOSED,
    "full_like #2": "reshape torch._VariableFunctionsClass.fill",
    "strided_slice(begin=(None,), end=(None,), axes=(1,))": "_operator.getitem",
    "nn.conv2d_transpose(strides=2, padding=(2, 0, 1, 1), groups=2)": "nn.conv2d_transpose torch.nn.functional.pad",
    "nn.layer_norm(scale=False)": "torch.nn.functional.layer_norm",
}

_COMPOSED_EXPORTED: Final[Mapping[str, str]] = {
    **_COMPOSED,
    "add #2": "add",
    "greater": "less",
    "full_like #2": "aten.fill.Tensor reshape",
    "strided_slice(begin=(0, 1), end=(4, 2), strides=2, axes=(2, 1))": "strided_slice",
    "strided_slice(begin=(None,), end=(None,), axes=(1,))": "copy",
    "nn.conv2d_transpose(strides=2, padding=(2, 0, 1, 1), groups=2)": "aten.pad.default nn.conv2d_transpose",
    "nn.layer_norm(scale=False)": "aten.layer_norm.default",
    "nn.l2_normalize(eps=1e-06, axis=1)": "clip divide sqrt square sum",
    "nn.l2_normalize(eps=1000000.0)": "clip divide sqrt square sum",
}

_BIAS: Final = "a bias is only added by a layer"
_TUPLES: Final = "there are no tuples in the graph"

_RESPELLED_FX: Final[Mapping[str, tuple[str, ...]]] = {
    "a size of -1 or 0 means what it says: a reshape of no elements is not read": ("reshape-reshape: no elements",),
    _TUPLES: ("dispatch-tuple: second of two",),
    _BIAS: (
        "bias-add-add: channels",
        "bias-add-add: last axis",
        "bias-add-add: integers",
    ),
    "padding is the same on both sides": (
        "diamond-conv-add: groups, strides, dilation",
        "two-conv-add: strides, dilation, uneven padding",
        "parallel-two-conv: strides, dilation, uneven padding",
        "parallel-conv-expand-kernels: uneven padding that fits an even kernel",
        "parallel-conv-expand-kernels: 1x1 in the corner of 3x3",
        "parallel-conv-expand-kernels: each larger on one axis, uneven",
    ),
    "channels are the second axis": (
        "diamond-conv-add: channels last",
        "diamond-conv-add: result in another layout",
        "dense-batch-norm: three axes, the last one normalised",
        "lower-batch-norm: last axis",
        "lower-batch-norm: axis in the middle, no offset",
    ),
    "a batch norm without factor or offset has ones or zeros": (
        "conv-batch-norm: neither factor nor offset",
        "conv-batch-norm: no factor, bias",
        "lower-batch-norm: a matrix, no factor",
    ),
    "a layer norm is one of the last axes": ("lower-layer-norm: channels of images",),
    "a layer norm has no weights that don't count": (
        "lower-layer-norm: weights that don't count",
        "lower-layer-norm: an offset that doesn't count",
    ),
}

_RESPELLED_EXPORTED: Final[Mapping[str, tuple[str, ...]]] = {
    **_RESPELLED_FX,
    _BIAS: (*_RESPELLED_FX[_BIAS], "bias-add-add: symbolic batch"),
}

_SILENT_FX: Final = frozenset((
    "reshape-reshape: no elements",
    "dispatch-tuple: second of two",
    "bias-add-add: channels",
    "bias-add-add: last axis",
    "bias-add-add: integers",
    "diamond-conv-add: groups, strides, dilation",
    "diamond-conv-add: channels last",
    "diamond-conv-add: result in another layout",
    "dense-batch-norm: three axes, the last one normalised",
    "lower-layer-norm: weights that don't count",
    "parallel-two-conv: strides, dilation, uneven padding",
    "parallel-conv-expand-kernels: uneven padding that fits an even kernel",
    "parallel-conv-expand-kernels: 1x1 in the corner of 3x3",
    "parallel-conv-expand-kernels: each larger on one axis, uneven",
))  # fmt: skip

_REWRITTEN: Final[Mapping[str, tuple[str, ...]]] = {
    _BIAS: ("parallel-two-dense: before a bias of one", "bias-add-add: of two layers"),
}

_ADMITTED: Final[Mapping[str, tuple[str, ...]]] = {
    "other layouts are transposes before and after a convolution in the usual ones": (
        "diamond-conv-add: different layout of the kernel",
        "parallel-two-conv: different layout of the result",
        "parallel-conv-variadic: different layout of the result",
    ),
}

_NEVER: Final[Mapping[str, str]] = {"dispatch-tuple": _TUPLES}

FX: Final[dict[str, Any]] = {
    "refused": _REFUSED, "composed": _COMPOSED_FX, "respelled": _RESPELLED_FX, "silent": _SILENT_FX, "never": _NEVER,
    "rewritten": _REWRITTEN, "admitted": _ADMITTED,
}  # fmt: skip
EXPORTED: Final[dict[str, Any]] = {
    "refused": _REFUSED, "composed": _COMPOSED_EXPORTED, "respelled": _RESPELLED_EXPORTED,
    "silent": _SILENT_FX | {"bias-add-add: symbolic batch"}, "never": _NEVER, "rewritten": _REWRITTEN,
    "admitted": _ADMITTED,
}  # fmt: skip

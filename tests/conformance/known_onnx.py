"""What ONNX is known to spell otherwise than the canonical operators: exact lists, which the suite checks."""

from __future__ import annotations

from typing import Any, Final

from tests.conformance import known_both

LISTS: Final[dict[str, Any]] = {
    "refused": {},
    "composed": {
        **known_both.COMPOSED,
        "floor_divide": "floor_mod onnx::Div subtract",
        "trunc": "abs floor multiply sign",
        "isfinite": "isinf isnan logical_not logical_or",
        "bitwise_xor": "logical_xor",
        "zeros_like": "broadcast_to onnx::Shape zeros",
        "ones_like": "broadcast_to ones onnx::Shape",
        "full_like": "broadcast_to full onnx::Shape",
        "full_like #2": "broadcast_to cast onnx::Shape",
        "repeat(repeats=2, axis=-2)": "broadcast_to reshape",
        "repeat(repeats=3)": "broadcast_to reshape",
        "tile(reps=(2, 1, 3))": "reshape tile",
        "gather(axis=-1)": "gather strided_slice",
        "sum(axis=(0, 1, 2), exclude=True)": "reshape sum",
        "sum #2": "reshape sum",
        "all(axis=(0, 2))": "cast min",
        "any": "cast max",
        "variance(axis=-1)": "mean square subtract",
        "variance(axis=(0, 1), unbiased=True)": "mean multiply square subtract",
        "std(axis=1, keepdims=True)": "mean sqrt square subtract",
        "argmin": "argmin reshape",
        "cumsum(dtype=float64)": "cast cumsum reshape",
        "cumsum(axis=0, exclusive=True)": "cast cumsum",
        "matmul(out_dtype=int32)": "cast matmul",
        "nn.dense(out_dtype=float32)": "cast nn.dense",
        "nn.attention(scale=0.5)": "equal maximum nn.attention where",  # of a mask of which nothing is known
        "nn.conv2d(data_layout=NHWC, kernel_layout=HWIO)": "nn.conv2d transpose",
        "nn.conv2d(out_dtype=float32)": "cast nn.conv2d",
        "nn.max_pool2d(pool_size=3, strides=2, ceil_mode=True, layout=NHWC)": "nn.max_pool2d transpose",
        "nn.adaptive_max_pool3d(output_size=1)": "max",
        "nn.adaptive_avg_pool1d(output_size=(3,))": "concatenate mean strided_slice",
        "nn.adaptive_avg_pool2d(output_size=(1, 1), layout=NHWC)": "mean",
        "nn.adaptive_avg_pool2d(output_size=1)": "mean",
        "nn.adaptive_avg_pool3d(output_size=(1, 6, 4))": "mean",
        "nn.global_max_pool2d(out_layout=NHWC)": "nn.global_max_pool2d transpose",
        "nn.global_avg_pool2d(layout=NHWC)": "nn.global_avg_pool2d transpose",
        "nn.batch_norm(axis=-1, epsilon=0.1)": "nn.batch_norm transpose",
        "nn.batch_norm(center=False, scale=False)": "nn.batch_norm ones zeros",
        "nn.layer_norm(axis=1, epsilon=0.1)": "add divide mean multiply power reshape sqrt subtract",
        "nn.layer_norm(axis=(0, 2))": "add divide mean power sqrt subtract",
        "nn.layer_norm(axis=(0, 2)) #2": "add cast divide mean multiply power reshape sqrt subtract",
        "nn.rms_norm(axis=(0, 2))": "add cast divide mean power sqrt",
        "nn.layer_norm(scale=False)": "nn.layer_norm ones",
        "nn.rms_norm(axis=(1, 2), epsilon=0.1)": "nn.rms_norm ones",
        "nn.group_norm(num_groups=1, axis=3)": "nn.group_norm ones transpose zeros",
        "nn.instance_norm(axis=-1)": "nn.instance_norm ones transpose zeros",
        "softplus(beta=2, threshold=2.5)": "divide greater multiply softplus where",
    },
    "respelled": {
        **known_both.RESPELLED,
        "a factor of one element is a number": ("conv-multiply: one channel",),
        "channels come second: tensors of other layouts are transposed": (
            "diamond-conv-add: channels last",
            "diamond-conv-add: result in another layout",
        ),
        "a batch norm has a factor and an offset, which are ones and zeros": (
            "conv-batch-norm: neither factor nor offset",
            "conv-batch-norm: no factor, bias",
            "lower-batch-norm: a matrix, no factor",
        ),
        "a batch norm has its channels on the second axis": (
            "dense-batch-norm: three axes, the last one normalised",
            "lower-batch-norm: last axis",
            "lower-batch-norm: axis in the middle, no offset",
        ),
        "a layer norm has a factor, and an offset that counts": (
            "lower-layer-norm: no weights",
            "lower-layer-norm: weights that don't count",
            "lower-layer-norm: an offset that doesn't count",
        ),
        "a layer norm is one of the last axes": (
            "lower-layer-norm: channels of images",
        ),
        "a product with a vector is none of a layer": (
            "parallel-two-dense: a vector",
        ),
        "onnxruntime has no leaky ReLU of float64": (
            "merge-element-wise-variadic: two",
        ),
    },
    "unwritten": {
        "ONNX has no Conv of int8": (
            "conv-multiply: integers times a fraction",
            "conv-bias-multiply: integers times a fraction",
        ),
    },
    "silent": frozenset((
        *known_both.SILENT,
        "diamond-conv-add: channels last",
        "diamond-conv-add: result in another layout",
        "conv-batch-norm: neither factor nor offset",
        "conv-batch-norm: no factor, bias",
        "lower-batch-norm: a matrix, no factor",
        "dense-batch-norm: three axes, the last one normalised",
        "lower-batch-norm: axis in the middle, no offset",
        "lower-layer-norm: channels of images",
        "parallel-two-dense: a vector",
        "merge-element-wise-variadic: two",
    )),
    "never": {
        **known_both.NEVER,
    },
    "coarse": {
        "the statistics of a layer norm are computed in float32": (
            "transformer",
        ),
    },
    "rewritten": {
        **known_both.REWRITTEN,
    },
    "admitted": {
        "channels come second: tensors of other layouts are transposed": (
            "diamond-conv-add: different layout of the kernel",
            "parallel-two-conv: different layout of the result",
            "parallel-conv-variadic: different layout of the result",
        ),
    },
}

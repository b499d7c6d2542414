"""What ONNX and Relax spell alike, and otherwise than the canonical operators; see the lists of each."""

from __future__ import annotations

from typing import Final

COMPOSED: Final[dict[str, str]] = {
    "multiply #2": "cast multiply",
    "divide #2": "cast divide",
    "floor_mod #2": "add less mod multiply sign where",
    "maximum #2": "cast maximum",
    "copy": "",
    "expm1": "add exp multiply tanh",
    "log2": "log multiply",
    "log10": "log multiply",
    "log1p": "add divide equal isinf log multiply subtract where",
    "less": "cast less",
    "where #2": "cast where",
    "full(shape=2, dtype=int8)": "broadcast_to cast reshape",
    "reshape_like": "reshape",
    "reshape_like(lhs_begin=1, rhs_begin=1)": "reshape",
    "layout_transform(src_layout=NHC, dst_layout=NCH)": "transpose",
    "layout_transform(src_layout=NCHW, dst_layout=NHWC4c)": "reshape transpose",
    "layout_transform(src_layout=NCHW4c, dst_layout=NCHW2c)": "reshape transpose",
    "strided_slice(begin=(None,), end=(None,), axes=(1,))": "",
    "take": "reshape take",
    "scatter(axis=1)": "scatter strided_slice",
    "matrix_set_diag(k=1)": "take where",
    "matrix_set_diag(k=(-1, 1))": "reshape take where",
    "sum(axis=0)": "cast sum",
    "argmax(axis=(0, 2), keepdims=True)": "argmax reshape transpose",
    "nn.batch_matmul": "matmul transpose",
    "nn.batch_matmul(transpose_a=True, transpose_b=False)": "matmul transpose",
    "nn.bias_add": "add reshape",
    "nn.bias_add(axis=-1)": "add",
    "nn.conv2d(data_layout=NHWC, out_layout=NCHW)": "nn.conv2d transpose",
    "nn.conv2d_transpose(data_layout=NHWC, kernel_layout=OIHW)": "nn.conv2d_transpose transpose",
    "nn.adaptive_max_pool1d(output_size=3)": "concatenate max strided_slice",
    "nn.adaptive_max_pool2d(output_size=(None, 2))": "concatenate max strided_slice",
}
RESPELLED: Final[dict[str, tuple[str, ...]]] = {
    "a field of a tuple that is in sight is the operand itself": (
        "dispatch-tuple: second of two",
    ),
    "a bias is an addition, and only that of a layer is read as one": (
        "bias-add-add: channels",
        "bias-add-add: last axis",
        "bias-add-add: symbolic batch",
        "bias-add-add: integers",
    ),
    "constants are weights": (
        "conv-multiply: a literal tensor",
        "conv-batch-norm: literal factor and offset",
    ),
}
SILENT: Final[tuple[str, ...]] = (
    "dispatch-tuple: second of two",
    "bias-add-add: channels",
    "bias-add-add: last axis",
    "bias-add-add: symbolic batch",
    "bias-add-add: integers",
)
NEVER: Final[dict[str, str]] = {
    "dispatch-tuple": "a field of a tuple that is in sight is the operand itself",
}
REWRITTEN: Final[dict[str, tuple[str, ...]]] = {
    "a diagonal is set by take and where": (
        "conv-shortcut-add: 3x3",
        "conv-shortcut-add: 1x1",
        "conv-shortcut-add: oblong",
        "conv-shortcut-add: dilation",
        "conv-shortcut-add: one axis",
        "conv-shortcut-add: symbolic image",
        "conv-shortcut-add: equal shape to broadcast",
    ),
    "a bias is an addition, and only that of a layer is read as one": (
        "parallel-two-dense: before a bias of one",
        "bias-add-add: of two layers",
    ),
}

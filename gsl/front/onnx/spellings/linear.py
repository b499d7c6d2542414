"""Spellings of products of matrices, bias, convolutions and attention."""

from __future__ import annotations

import math
import re
from typing import Any, Final

from gsl.front.core.lower import Lower, all_heads, attention, known
from gsl.front.onnx.spellings.reading import OnnxCall, OnnxUnread, is_float, is_made_by, unread_unless
from gsl.front.onnx.spellings.writing import OnnxLowering, row
from gsl.front.tree import Canon
from gsl.graph import Dim
from gsl.match.masks import LOWEST, is_too_low
from gsl.spec.normalise import spatial

# ---------------------------------------------------------------- products


def _matmul(w: OnnxLowering, a: Any, b: Any, out_dtype: str) -> Any:
    return w.call("MatMul", w.cast(a, w.dtype), w.cast(b, w.dtype))


def _dense(w: OnnxLowering, data: Any, weight: Any, bias: Any = None, *, out_dtype: str) -> Any:
    data, weight = w.cast(data, w.dtype), w.cast(weight, w.dtype)
    if w.rank_of(data) == 2 and is_float(w.dtype):  # onnxruntime has no Gemm of integers
        return w.call("Gemm", data, weight, *(() if bias is None else (bias,)), transB=1)
    product = w.call("MatMul", data, w.transposed(weight))
    return product if bias is None else w.call("Add", product, bias)


def _read_matmul(r: OnnxCall) -> Canon:
    a, b = r.inputs
    turned = r.producer(b)
    is_layer = turned is not None and r.type(1).ndim == 2 and r.type(0).ndim > 1
    if turned is not None and is_layer and tuple(OnnxCall(turned, r.scope).attr("perm", (1, 0))) == (1, 0):
        r.through.append(turned)
        return Canon("nn.dense", (a, turned.inputs[0]))
    return Canon("matmul", (a, b))


def _read_gemm(r: OnnxCall) -> Canon:
    a, b = r.inputs[:2]
    unread_unless(r.type(0).ndim == r.type(1).ndim == 2)
    if r.attr("transA", 0):
        a = Canon("transpose", (a,), {"axes": (1, 0)})
    product = Canon("nn.dense" if r.attr("transB", 0) else "matmul", (a, b))
    if r.attr("alpha", 1.0) != 1:
        product = Canon("multiply", (product, r.attr("alpha")))
    if not r.has(2) or r.attr("beta", 1.0) == 0:
        return product
    bias: Any = r.inputs[2]
    if r.attr("beta", 1.0) != 1:
        bias = Canon("multiply", (bias, r.attr("beta")))
    units = r.type(1).shape[0 if r.attr("transB", 0) else 1]
    if r.type(2).shape == (units,):
        return Canon("nn.bias_add", (product, bias), {"axis": 1})
    return Canon("add", (product, bias))


def _read_einsum(r: OnnxCall) -> Canon:
    equation = r.attr("equation")
    # Diagonals and dots are told otherwise.
    unread_unless("." not in equation and all(len(set(term)) == len(term) for term in re.split(r",|->", equation)))
    return Canon("einsum", (Canon("tuple", r.inputs),), {"equation": equation})


# ---------------------------------------------------------------- bias


def _bias_add(w: OnnxLowering, data: Any, bias: Any, axis: int) -> Any:
    return w.call("Add", w.cast(data, w.dtype), w.along(w.cast(bias, w.dtype), w.rank_of(data), axis))


def bias_of(r: OnnxCall, data: Any, other: Any) -> Canon:
    """``data + other`` as a bias, of a product or a convolution; Unread if it is none."""
    if not is_made_by(data, ("MatMul", "Gemm", "Conv", "ConvTranspose")):
        raise OnnxUnread
    shape, own = r.type_of(data).shape, r.type_of(other).shape
    axis = 1 if is_made_by(data, ("Conv", "ConvTranspose")) else len(shape) - 1
    unread_unless(0 < len(own) <= len(shape) and axis >= 0)
    unread_unless(own == (shape[axis],) + (1,) * (len(own) - 1) and len(own) == len(shape) - axis)
    bias = r.vector(other)
    unread_unless(bias is not None)
    return Canon("nn.bias_add", (data, bias), {"axis": axis})


# ---------------------------------------------------------------- convolutions


def _conv(op: str) -> Lower:
    name, letters = ("ConvTranspose", "IO") if op.endswith("_transpose") else ("Conv", "OI")

    def write(
        w: OnnxLowering, data: Any, weight: Any, bias: Any = None, *, strides: Any, padding: Any, dilation: Any,
        groups: int, data_layout: str, kernel_layout: str, out_layout: str, out_dtype: str,
        output_padding: Any = (0,),
    ) -> Any:  # fmt: skip
        weight = w.layout(w.cast(weight, w.dtype), kernel_layout, letters + spatial(len(strides)))
        attrs: dict[str, Any] = {"group": groups} if groups > 1 else {}
        attrs["kernel_shape"] = list(w.sizes_of(weight)[2:])
        lists = {"strides": (strides, 1), "pads": (padding, 0), "dilations": (dilation, 1),
                 "output_padding": (output_padding, 0)}  # fmt: skip
        attrs |= {key: list(value) for key, (value, usual) in lists.items() if set(value) != {usual}}
        others, out = (weight,) if bias is None else (weight, bias), out_layout or data_layout
        layout, data, type = w.channels_first(w.cast(data, w.dtype), data_layout, out)
        return w.layout(w.call(name, data, *others, **attrs, type=type), layout, out)

    return write


def _read_conv(r: OnnxCall, transposed: bool) -> Canon:
    count = r.type(1).ndim - 2
    # Without channels to compute of, there are none computed in torch, and zeros in ONNX.
    unread_unless(1 <= count <= 3 and not r.has(3) and 0 not in r.type(1).shape)
    attrs = {"groups": r.attr("group", 1), **places(r, r.type(1).shape[2:])}
    if transposed:
        unread_unless("output_shape" not in r.node.attributes and r.attr("auto_pad", "VALID") in ("NOTSET", "VALID"))
        attrs["output_padding"] = r.attr("output_padding", (0,) * count)
    product = Canon(f"nn.conv{count}d" + "_transpose" * transposed, r.inputs[:2], attrs)
    return Canon("nn.bias_add", (product, r.inputs[2]), {"axis": 1}) if r.has(2) else product


def places(r: OnnxCall, kernel: tuple[Dim, ...]) -> dict[str, tuple[int, ...]]:
    """Strides, dilation, and the padding before and after each axis, also where the node says only what it is for."""
    ones, kind = (1,) * len(kernel), r.attr("auto_pad", "NOTSET")
    strides, dilation, padding = r.attr("strides", ones), r.attr("dilations", ones), (0,) * 2 * len(kernel)
    if kind == "NOTSET":
        padding = r.attr("pads", padding)
    elif kind != "VALID":
        # There is a window for every stride. Where the padding is odd, more of it comes after or before.
        sizes = zip(r.sizes(0, 2), known(kernel), strides, dilation)
        total = [max((-(-size // step) - 1) * step + (k - 1) * d + 1 - size, 0) for size, k, step, d in sizes]
        less, more = [width // 2 for width in total], [width - width // 2 for width in total]
        padding = (*less, *more) if kind == "SAME_UPPER" else (*more, *less)
    return {"strides": strides, "dilation": dilation, "padding": padding}


# ---------------------------------------------------------------- attention


def _attention(
    w: OnnxLowering, query: Any, key: Any, value: Any, mask: Any = None, *, scale: float | None, is_causal: bool,
    enable_gqa: bool,
) -> Any:  # fmt: skip
    shapes = [w.shape_of(x) for x in (query, key, value)]
    # Onnxruntime takes no other factors, and no empty tensors.
    if w.opset >= 23 and all(len(shape) == 4 and 0 not in shape for shape in shapes) and (scale is None or scale > 0):
        attrs: dict[str, Any] = {} if scale is None else {"scale": float(scale)}
        attrs |= {"is_causal": 1} if is_causal else {}
        masks = () if mask is None else (_of_all_places(w, _raised(w, mask), query, key),)
        return w.call("Attention", query, key, value, *masks, **attrs)
    if enable_gqa:
        key, value = all_heads(w, query, key, value)
    return attention(w, query, key, value, mask, scale, is_causal)


def _raised(w: OnnxLowering, mask: Any) -> Any:
    """A mask without numbers that onnxruntime takes for minus infinity."""
    node = w.target.view_of(mask)
    if node is None or not is_too_low(node):
        return mask
    if mask not in w.target.raised:
        hidden, low = w.write("equal", mask, -math.inf), w.write("maximum", mask, LOWEST)
        w.target.raised[mask] = w.write("where", hidden, mask, low)
    return w.target.raised[mask]


def _of_all_places(w: OnnxLowering, mask: Any, query: Any, key: Any) -> Any:
    """A mask with a number for each query and each key: onnxruntime broadcasts the axes before these alone."""
    shape = (*w.shape_of(mask)[:-2], w.shape_of(query)[-2], w.shape_of(key)[-2])
    return mask if w.shape_of(mask) == shape else w.write("broadcast_to", mask, shape=shape)


_READ: Final = frozenset(("scale", "is_causal", "q_num_heads", "kv_num_heads", "qk_matmul_output_mode"))
"""The attributes of attention that may have any value: that of four axes tells its heads, and the last one is about
another result."""
_WITHOUT: Final = {"softcap": 0.0, "left_window_size": -1, "right_window_size": -1}
"""The values of its other attributes with which these change nothing."""


def _read_attention(r: OnnxCall) -> Canon:
    # Torch's exporter writes all attributes.
    others = r.node.attributes.keys() - _READ
    unread_unless(all(name in _WITHOUT and r.attr(name) == _WITHOUT[name] for name in others))
    unread_unless(len(r.inputs) <= 4 and all(v is not None for v in r.inputs))
    query, key = r.type(0), r.type(1)
    unread_unless(query.ndim == key.ndim == r.type(2).ndim == 4)
    causal = bool(r.attr("is_causal", 0))
    # Torch has either.
    unread_unless(not (causal and r.has(3)))
    attrs = {"scale": r.attr("scale"), "is_causal": causal, "enable_gqa": query.shape[1] != key.shape[1]}
    return Canon("nn.attention", r.inputs, attrs)


CONVOLUTIONS: Final = tuple(f"nn.conv{count}d{suffix}" for count in (1, 2, 3) for suffix in ("", "_transpose"))

ROWS: Final = (
    row("matmul", "MatMul", _matmul, _read_matmul, also=("nn.dense",)),
    row("nn.dense", "Gemm", _dense, _read_gemm, also=("matmul", "multiply", "nn.bias_add", "add"),
        inner=("nn.dense", "matmul", "multiply", "transpose")),
    row("nn.bias_add", "", _bias_add),
    row("einsum", "Einsum", lambda w, data, equation: w.call("Einsum", *w.each(data), equation=equation), _read_einsum,
        inner=("tuple",)),
    row("nn.attention", "Attention", _attention, _read_attention),
    *(row(op, "", _conv(op)) for op in CONVOLUTIONS),
    row("", "Conv", read=lambda r: _read_conv(r, transposed=False), also=("nn.bias_add", *CONVOLUTIONS),
        inner=CONVOLUTIONS),
    row("", "ConvTranspose", read=lambda r: _read_conv(r, transposed=True), also=("nn.bias_add", *CONVOLUTIONS),
        inner=CONVOLUTIONS),
)  # fmt: skip

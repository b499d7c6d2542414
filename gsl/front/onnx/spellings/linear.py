"""Spellings of products of matrices, bias, convolutions and attention."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

from gsl.front.core.lower import Lower
from gsl.front.onnx.spellings.reading import OnnxCall, OnnxLift, OnnxUnread, unread_unless
from gsl.front.onnx.spellings.writing import OnnxLowering
from gsl.front.tree import Canon
from gsl.graph import Dim
from gsl.spec.normalise import spatial

# ---------------------------------------------------------------- products


def _matmul(w: OnnxLowering, a: Any, b: Any, out_dtype: str) -> Any:
    return w.call("MatMul", w.cast(a, w.dtype), w.cast(b, w.dtype))


def _dense(w: OnnxLowering, data: Any, weight: Any, bias: Any = None, *, out_dtype: str) -> Any:
    data, weight = w.cast(data, w.dtype), w.cast(weight, w.dtype)
    if w.rank_of(data) == 2:
        return w.call("Gemm", data, weight, *(() if bias is None else (bias,)), transB=1)
    product = w.call("MatMul", data, w.transposed(weight))
    return product if bias is None else w.call("Add", product, bias)


def _batch_matmul(w: OnnxLowering, a: Any, b: Any, out_dtype: str, transpose_a: bool, transpose_b: bool) -> Any:
    a, b = w.transposed(a) if transpose_a else a, w.transposed(b) if transpose_b else b
    return _matmul(w, a, b, out_dtype)


def _read_matmul(r: OnnxCall) -> Canon:
    a, b = r.inputs
    turned = r.producer(b, "Transpose")
    is_layer = turned is not None and r.type(1).ndim == 2 and r.type(0).ndim > 1
    if turned is not None and is_layer and tuple(OnnxCall(turned, r.scope).attr("perm", (1, 0))) == (1, 0):
        r.through.append(turned)
        return Canon("nn.dense", (a, turned.inputs[0]))
    return Canon("matmul", (a, b))


def _read_gemm(r: OnnxCall) -> Canon:
    a, b = r.inputs[:2]
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
    if not r.is_made_by(data, "MatMul", "Gemm", "Conv", "ConvTranspose"):
        raise OnnxUnread
    shape, own = r.type_of(data).shape, r.type_of(other).shape
    axis = 1 if r.is_made_by(data, "Conv", "ConvTranspose") else len(shape) - 1
    unread_unless(0 < len(own) <= len(shape) and axis >= 0)
    size = shape[axis]
    unread_unless(own == (size,) + (1,) * (len(own) - 1) and len(own) == len(shape) - axis)
    if len(own) == 1:
        return Canon("nn.bias_add", (data, other), {"axis": axis})
    return Canon("nn.bias_add", (data, _vector(r, other, size)), {"axis": axis})


def _vector(r: OnnxCall, value: Any, size: Dim) -> Any:
    """The tensor of one axis of which a value is another shape; Unread where there is none in sight."""
    node = r.producer(value, "Reshape", "Unsqueeze")
    if node is None or r.type_of(node.inputs[0]).shape != (size,):
        raise OnnxUnread
    r.through.append(node)
    return node.inputs[0]


# ---------------------------------------------------------------- convolutions


def _conv(count: int) -> Lower:
    letters = "NC" + spatial(count)

    def write(
        w: OnnxLowering, data: Any, weight: Any, bias: Any = None, *, strides: Any, padding: Any, dilation: Any,
        groups: int, data_layout: str, kernel_layout: str, out_layout: str, out_dtype: str,
        output_padding: Any = None,
    ) -> Any:  # fmt: skip
        own = ("OI" if output_padding is None else "IO") + letters[2:]
        data = w.layout(w.cast(data, w.dtype), data_layout, letters)
        weight = w.layout(w.cast(weight, w.dtype), kernel_layout, own)
        attrs: dict[str, Any] = {} if groups == 1 else {"group": groups}
        attrs["kernel_shape"] = list(w.sizes_of(weight)[2:])
        lists = {"strides": (strides, 1), "pads": (padding, 0), "dilations": (dilation, 1)}
        lists |= {} if output_padding is None else {"output_padding": (output_padding, 0)}
        attrs |= {name: list(value) for name, (value, usual) in lists.items() if set(value) != {usual}}
        order = [(out_layout or data_layout).index(letter) for letter in letters]
        result = w.type_of_result(order)
        operands = (data, weight) if bias is None else (data, weight, bias)
        made = w.call("Conv" if output_padding is None else "ConvTranspose", *operands, **attrs, type=result)
        return w.layout(made, letters, out_layout or data_layout)

    return write


def _read_conv(r: OnnxCall, transposed: bool) -> Canon:
    count = r.type(1).ndim - 2
    unread_unless(1 <= count <= 3 and not r.has(3))
    attrs: dict[str, Any] = {
        "strides": r.attr("strides", (1,) * count), "dilation": r.attr("dilations", (1,) * count),
        "groups": r.attr("group", 1),
    }  # fmt: skip
    attrs["padding"] = _padding(r, count, attrs, transposed)
    if transposed:
        unread_unless("output_shape" not in r.node.attributes)
        attrs["output_padding"] = r.attr("output_padding", (0,) * count)
    product = Canon(f"nn.conv{count}d" + "_transpose" * transposed, r.inputs[:2], attrs)
    return Canon("nn.bias_add", (product, r.inputs[2]), {"axis": 1}) if r.has(2) else product


def _padding(r: OnnxCall, count: int, attrs: Mapping[str, Any], transposed: bool) -> tuple[int, ...]:
    """The padding before and after each axis, also where the node says only what it is for."""
    kind = r.attr("auto_pad", "NOTSET")
    if kind in ("NOTSET", "VALID"):
        given = r.attr("pads", (0,) * 2 * count) if kind == "NOTSET" else (0,) * 2 * count
        return tuple(given)
    unread_unless(not transposed)
    return same_padding(r.sizes(0, 2), r.sizes(1, 2), attrs["strides"], attrs["dilation"], kind == "SAME_UPPER")


def same_padding(sizes: Any, kernel: Any, strides: Any, dilation: Any, upper: bool) -> tuple[int, ...]:
    """The padding with which there is a window for every stride; where it is odd, more of it after or before."""
    total = [max((-(-size // step) - 1) * step + (k - 1) * d + 1 - size, 0)
             for size, k, step, d in zip(sizes, kernel, strides, dilation)]  # fmt: skip
    less, more = [width // 2 for width in total], [width - width // 2 for width in total]
    return (*less, *more) if upper else (*more, *less)


# ---------------------------------------------------------------- attention


def _attention(
    w: OnnxLowering, query: Any, key: Any, value: Any, mask: Any = None, *, scale: float | None, is_causal: bool,
    enable_gqa: bool,
) -> Any:  # fmt: skip
    if w.opset >= 23 and {w.rank_of(x) for x in (query, key, value)} == {4}:
        attrs: dict[str, Any] = {} if scale is None else {"scale": float(scale)}
        attrs |= {"is_causal": 1} if is_causal else {}
        return w.call("Attention", query, key, value, *(() if mask is None else (mask,)), **attrs)
    if scale is None:
        scale = w.sizes_of(query)[-1] ** -0.5
    if enable_gqa:
        times = w.sizes_of(query)[-3]
        key, value = (
            w.write("repeat", x, repeats=times // w.sizes_of(x)[-3], axis=w.rank_of(x) - 3) for x in (key, value)
        )
    scores = w.write("multiply", w.write("matmul", query, w.transposed(key)), float(scale))
    if is_causal:
        keep = w.write("trilu", w.full(True, w.shape_of(scores)[-2:], "bool"), upper=False)
        scores = w.write("where", keep, scores, float("-inf"))
    if mask is not None and w.dtype_of(mask) == "bool":
        scores = w.write("where", mask, scores, float("-inf"))
    elif mask is not None:
        scores = w.write("add", scores, mask)
    return w.write("matmul", w.write("nn.softmax", scores, axis=-1), value)


def _read_attention(r: OnnxCall) -> Canon:
    plain = {"scale", "is_causal", "q_num_heads", "kv_num_heads"}
    unread_unless(set(r.node.attributes) <= plain and len(r.inputs) <= 4 and all(v is not None for v in r.inputs))
    query, key = r.type(0), r.type(1)
    unread_unless(query.ndim == key.ndim == r.type(2).ndim == 4)
    causal = bool(r.attr("is_causal", 0))
    # Torch has either.
    unread_unless(not (causal and r.has(3)))
    attrs = {"scale": r.attr("scale"), "is_causal": causal, "enable_gqa": query.shape[1] != key.shape[1]}
    return Canon("nn.attention", r.inputs, attrs)


CONVOLUTIONS: Final = tuple(f"nn.conv{count}d{suffix}" for count in (1, 2, 3) for suffix in ("", "_transpose"))

WRITE: Final[Mapping[str, Lower]] = {
    "matmul": _matmul,
    "nn.dense": _dense,
    "nn.batch_matmul": _batch_matmul,
    "nn.bias_add": _bias_add,
    "einsum": lambda w, data, equation: w.call("Einsum", *w.each(data), equation=equation),
    "nn.attention": _attention,
    **{op: _conv(int(op[7])) for op in CONVOLUTIONS},
}

READ: Final[Mapping[str, OnnxLift]] = {
    "MatMul": _read_matmul,
    "Gemm": _read_gemm,
    "Einsum": _read_einsum,
    "Conv": lambda r: _read_conv(r, transposed=False),
    "ConvTranspose": lambda r: _read_conv(r, transposed=True),
    "Attention": _read_attention,
}

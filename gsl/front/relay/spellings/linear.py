"""Products of matrices, bias, attention, and convolutions."""

from __future__ import annotations

import functools
import math
import operator
import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np
import torch

from gsl.front.core.lower import Lower, all_heads, known
from gsl.front.relay.spellings.table import RelayCall, RelayLowering, last
from gsl.front.tree import Canon
from gsl.front.tvm.spellings import (
    TvmRow,
    is_call,
    is_plain_equation,
    row,
    same,
    unread_unless,
)
from gsl.graph import Dim, SymDim, TensorType
from gsl.spec.conv import CONVOLUTIONS
from gsl.spec.normalise import spatial

# ---------------------------------------------------------------- dense


def read_layer(r: RelayCall) -> Canon | None:
    """A dense layer of the rows of a tensor, of which they were made a matrix, and which got its leading axes back.

    ``r`` is the call that gives them back. ``None`` if it is none of such a layer.
    """
    layer = r.x
    if not is_call(layer, "nn.dense") or not is_call(layer.args[0], "reshape"):
        return None
    inner, x = RelayCall(layer, r.scope), layer.args[0].args[0]
    shape = r.type_of(x).shape
    rows = (functools.reduce(operator.mul, shape[:-1], 1), shape[-1])
    if len(shape) == 2 or inner.type().shape != rows or not _is_given_back(r, x, (*shape[:-1], inner.result.shape[-1])):
        return None
    return Canon("nn.dense", (x, layer.args[1]), {"out_dtype": inner["out_dtype"]})


def _is_given_back(r: RelayCall, x: Any, shape: tuple[Dim, ...]) -> bool:
    """True if a call surely gives a tensor this shape, which is that of ``x`` but for the last axis."""
    if is_call(r.call, "reshape_like"):
        places = [r[name] for name in ("lhs_begin", "lhs_end", "rhs_begin", "rhs_end")]
        return r.call.args[1] == x and places == [0, 1, 0, len(shape) - 1]
    # One size that is not known follows from the others.
    found = r.result.shape
    known = [(a, b) for a, b in zip(found, shape) if isinstance(a, int) and isinstance(b, int)]
    return len(found) == len(shape) and len(known) >= len(shape) - 1 and all(a == b for a, b in known)


def _products(w: RelayLowering, a: Any, b: Any, out_dtype: str) -> tuple[Any, Any, dict[str, Any]]:
    """Two operands that are multiplied, cast where their dtypes differ, and the dtype of the result as an option."""
    if out_dtype and w.dtype_of(a) == w.dtype_of(b):
        return a, b, {} if out_dtype == w.dtype_of(a) else {"out_dtype": out_dtype}
    return w.cast(a, w.dtype), w.cast(b, w.dtype), {}


def _of_rows(w: RelayLowering, name: str, x: Any, weight: Any, units: Dim, options: Mapping[str, Any]) -> Any:
    """A product of the rows along the last axis of a tensor. Relay has no kernel but for matrices."""
    shape = w.shape_of(x)
    rows = x if len(shape) == 2 else w.reshape(x, (math.prod(shape[:-1]), shape[-1]))
    type = TensorType((w.shape_of(rows)[0], units), w.dtype)
    result = w.call(name, rows, weight, type=type, **options)
    if len(shape) > 2 and sum(isinstance(size, SymDim) for size in w.shape) > 1:
        places = {"lhs_begin": 0, "lhs_end": 1, "rhs_begin": 0, "rhs_end": len(shape) - 1}
        return w.call("reshape_like", result, x, **places)
    return w.reshape(result, w.shape)


def _dense(w: RelayLowering, data: Any, weight: Any, out_dtype: str) -> Any:
    data, weight, options = _products(w, data, weight, out_dtype)
    return _of_rows(w, "nn.dense", data, weight, w.shape_of(weight)[0], options)


# ---------------------------------------------------------------- matmul


def _read_matmul(r: RelayCall) -> Canon:
    """``nn.matmul`` of matrices; with the second one transposed it is a dense layer."""
    unread_unless(r.type(0).ndim == 2 == r.type(1).ndim)
    a, b = r.operands
    a = Canon("transpose", (a,), {"axes": (1, 0)}) if r["transpose_a"] else a
    return Canon("nn.dense" if r["transpose_b"] else "matmul", (a, b), {"out_dtype": r["out_dtype"]})


def _matmul(w: RelayLowering, a: Any, b: Any, out_dtype: str) -> Any:
    """Products of matrices, of rows with a matrix, or of stacks of matrices; a vector is a row or a column."""
    a, b, options = _products(w, a, b, out_dtype)
    b = w.reshape(b, (*w.shape_of(b), 1)) if w.rank_of(b) == 1 else b
    if w.rank_of(b) == 2:
        return _of_rows(w, "nn.matmul", a, b, w.shape_of(b)[1], options)
    if w.rank_of(a) == 3 == w.rank_of(b) and w.shape_of(a)[0] == w.shape_of(b)[0]:
        return w.call("nn.batch_matmul", a, b, transpose_b=False, **options)
    a = w.reshape(a, (1, *w.sizes_of(a))) if w.rank_of(a) == 1 else a
    batch = np.broadcast_shapes(w.sizes_of(a)[:-2], w.sizes_of(b)[:-2])
    a, b = (stacked(w, x, batch) for x in (a, b))
    product = w.write("nn.batch_matmul", a, b, transpose_b=False, out_dtype=out_dtype)
    return w.reshape(product, known(w.shape))


def stacked(w: RelayLowering, x: Any, batch: Sequence[int]) -> Any:
    """A tensor of matrices, broadcast to the leading axes, as one stack of matrices."""
    matrix = w.sizes_of(x)[-2:]
    x = x if w.shape_of(x) == (*batch, *matrix) else w.write("broadcast_to", x, shape=(*batch, *matrix))
    return w.reshape(x, (math.prod(batch), *matrix))


def _read_batch_matmul(r: RelayCall) -> Canon:
    unread_unless(r.type(0).shape[0] == r.type(1).shape[0])
    return same("nn.batch_matmul")(r)


def _batch_matmul(w: RelayLowering, a: Any, b: Any, out_dtype: str, transpose_a: bool, transpose_b: bool) -> Any:
    a, b, options = _products(w, a, b, out_dtype)
    if w.shape_of(a)[0] != w.shape_of(b)[0]:
        batch = np.broadcast_shapes(w.sizes_of(a)[:1], w.sizes_of(b)[:1])
        a, b = (stacked(w, x, batch) for x in (a, b))
    return w.call("nn.batch_matmul", a, b, transpose_a=transpose_a, transpose_b=transpose_b, **options)


# ---------------------------------------------------------------- bias


def _bias_add(w: RelayLowering, data: Any, bias: Any, axis: int) -> Any:
    place = axis if axis == 1 else last(axis, w.rank_of(data))
    return w.call("nn.bias_add", w.cast(data, w.dtype), w.cast(bias, w.dtype), axis=place)


def read_bias(r: RelayCall) -> Canon | None:
    """The sum of a product of matrices and a vector along its last axis, in either order; ``None`` for another sum."""
    for data, bias in (r.operands, r.operands[::-1]):
        shape = r.type_of(data).shape
        if len(shape) > 1 and r.type_of(bias).shape == shape[-1:] and _is_product(data, r):
            return Canon("nn.bias_add", (data, bias), {"axis": len(shape) - 1})
    return None


def _is_product(expr: Any, r: RelayCall) -> bool:
    if is_call(expr, "nn.dense", "nn.matmul", "nn.batch_matmul"):
        return True
    return is_call(expr, "reshape", "reshape_like") and read_layer(RelayCall(expr, r.scope)) is not None


_BACK: Final = frozenset(("nn.dense",))
LOOKS_AT: Final[Mapping[str, frozenset[str]]] = {
    "reshape": _BACK,
    "reshape_like": _BACK,
    "add": frozenset(("nn.dense", "nn.matmul", "nn.batch_matmul", "reshape", "reshape_like")),
}
"""The operators whose readings depend on what computes the operands, with the operators at which they look there."""


# ---------------------------------------------------------------- einsum

_EQUATION: Final = re.compile(r"[A-Za-z]+(,[A-Za-z]+)*->[A-Za-z]*")


def _read_einsum(r: RelayCall) -> Canon:
    equation = r["equation"].replace(" ", "")
    unread_unless(_EQUATION.fullmatch(equation) is not None and is_plain_equation(equation))
    return Canon("einsum", (r.x,), {"equation": equation})


def _einsum(w: RelayLowering, data: Any, equation: str) -> Any:
    if not _EQUATION.fullmatch(equation) or not is_plain_equation(equation):
        raise ValueError(f"einsum: equation: in Relay, expected one like 'ij,jk->ik', found {equation!r}")
    return w.call("einsum", list(data) if isinstance(data, tuple) else data, equation)


# ---------------------------------------------------------------- attention


def _attention(
    w: RelayLowering, query: Any, key: Any, value: Any, mask: Any = None, *, scale: float | None, is_causal: bool,
    enable_gqa: bool,
) -> Any:  # fmt: skip
    query, key, value = (w.cast(x, w.dtype) for x in (query, key, value))
    if enable_gqa and w.sizes_of(query)[-3] != w.sizes_of(key)[-3]:
        key, value = all_heads(w, query, key, value)
    sizes = [w.sizes_of(x) for x in (query, key, value)]
    batch = np.broadcast_shapes(*[shape[:-2] for shape in sizes])
    query = w.write("multiply", query, sizes[0][-1] ** -0.5 if scale is None else scale)
    query, key, value = (stacked(w, x, batch) for x in (query, key, value))
    whole = (*batch, sizes[0][-2], sizes[1][-2])
    scores = w.reshape(w.write("nn.batch_matmul", query, key, transpose_b=True), whole)
    if is_causal:
        scores = w.write("add", scores, w.tensor(np.triu(np.full(whole[-2:], -np.inf), 1), w.dtype))
    if mask is not None:
        scores = w.write("add", scores, _additive(w, mask))
    weights = w.write("nn.softmax", scores, axis=-1)
    if mask is not None:
        # A query to which nothing may attend: Relay's maximum of infinities is the least finite number.
        least = float(torch.finfo(getattr(torch, w.dtype)).min)
        empty = w.write("less_equal", w.write("max", scores, axis=(-1,), keepdims=True), least)
        weights = w.write("where", empty, 0.0, weights)
    product = w.write("nn.batch_matmul", stacked(w, weights, batch), value, transpose_b=False)
    return w.reshape(product, known(w.shape))


def _additive(w: RelayLowering, mask: Any) -> Any:
    """The mask as a tensor that is added to the scores."""
    if w.dtype_of(mask) != "bool":
        return w.cast(mask, w.dtype)
    return w.write("where", mask, w.tensor(0, w.dtype), w.tensor(-np.inf, w.dtype))


# ---------------------------------------------------------------- convolutions


def _conv(op: str) -> Lower:
    count = int(op[7])
    transposed = op.endswith("_transpose")

    def write(
        w: RelayLowering, data: Any, weight: Any, data_layout: str, kernel_layout: str, out_layout: str,
        out_dtype: str, groups: int, **rest: Any,
    ) -> Any:  # fmt: skip
        sizes = dict(zip(kernel_layout, w.shape_of(weight)))
        layout, kernel = f"NC{spatial(count)}", ("IO" if transposed else "OI") + spatial(count)
        if not transposed:
            layout, kernel = _layouts(data_layout, groups, sizes["O"], w.shape_of(data)[data_layout.index("C")])
        data, weight, options = _products(w, data, weight, out_dtype)
        data, weight = w.layout(data, data_layout, layout), w.layout(weight, kernel_layout, kernel)
        own = out_layout or data_layout
        type = TensorType(tuple([w.shape[own.index(letter)] for letter in layout]), w.dtype)
        options |= {"groups": groups, **rest}
        if groups > 1 and (transposed or count == 1):
            # Relay infers these from the weight, and for such calls wrongly.
            channels = sizes["O"] * (groups if transposed else 1)
            options |= {"channels": channels, "kernel_size": tuple([sizes[letter] for letter in spatial(count)])}
        if transposed and (set(rest["dilation"]) != {1} or (groups > 1 and count != 2)):
            return w.layout(_as_conv(w, data, weight, type, options), layout, own)
        layouts = {"data_layout": layout, "kernel_layout": kernel}
        return w.layout(w.call(op, data, weight, type=type, **options, **layouts), layout, own)

    return write


def _layouts(data_layout: str, groups: int, out_channels: Dim, channels: Dim) -> tuple[str, str]:
    """The layouts of data and kernel, of those that Relay's kernels take, that are next to the wanted ones."""
    letters = spatial(len(data_layout) - 2)
    if data_layout == f"N{letters}C" and groups == 1:
        return data_layout, f"{letters}IO"
    if data_layout == "NHWC":
        return data_layout, "HWOI" if groups == out_channels == channels else "HWIO"
    return f"NC{letters}", f"OI{letters}"


def _as_conv(w: RelayLowering, data: Any, weight: Any, type: TensorType, options: dict[str, Any]) -> Any:
    """A transposed convolution as one of the operand with zeros between its elements and around it."""
    groups, dilation, strides, padding = (options[name] for name in ("groups", "dilation", "strides", "padding"))
    count, (channels, out_channels, *kernel) = len(strides), w.sizes_of(weight)
    # From (groups x I, O, ...) to (groups x O, I, ...), turned around.
    if groups > 1:
        weight = w.reshape(weight, (groups, channels // groups, out_channels, *kernel))
        weight = w.permute(weight, [0, 2, 1, *range(3, 3 + count)])
        weight = w.reshape(weight, (groups * out_channels, channels // groups, *kernel))
    else:
        weight = w.permute(weight, [1, 0, *range(2, 2 + count)])
    weight = w.write("reverse", weight, axis=tuple(range(2, 2 + count)))
    if max(strides) > 1:
        wide = [(size - 1) * step + 1 for size, step in zip(w.sizes_of(data)[2:], strides)]
        wider = TensorType((*w.shape_of(data)[:2], *wide), w.dtype_of(data))
        data = w.call("nn.dilate", data, [1, 1, *strides], type=wider)
    reach = [(size - 1) * step for size, step in zip(kernel, dilation)]
    pads = zip(reach, padding[:count], padding[count:], options["output_padding"])
    data = padded(w, data, [(0, 0), (0, 0), *[(r - before, r - after + more) for r, before, after, more in pads]])
    rest: dict[str, Any] = {name: options[name] for name in ("dilation", "groups", "out_dtype") if name in options}
    if count == 1 and groups > 1:
        rest |= {name: options[name] for name in ("channels", "kernel_size")}
    return w.call(f"nn.conv{count}d", data, weight, type=type, **rest)


def padded(w: RelayLowering, x: Any, widths: list[tuple[int, int]], value: bool | int | float = 0) -> Any:
    """A tensor padded with a number, or cropped where a width is negative."""
    axes = tuple([axis for axis, pair in enumerate(widths) if min(pair) < 0])
    if axes:
        begin = tuple([max(0, -widths[axis][0]) for axis in axes])
        end = tuple([w.shape_of(x)[axis] + min(0, widths[axis][1]) for axis in axes])
        x = w.write("strided_slice", x, begin=begin, end=end, axes=axes)
        widths = [(max(0, before), max(0, after)) for before, after in widths]
    if not any(width for pair in widths for width in pair):
        return x
    own = w.type_of(x)
    type = TensorType(tuple([size + sum(pair) for size, pair in zip(own.shape, widths)]), own.dtype)
    return w.call("nn.pad", x, widths, w.tensor(value, own.dtype), type=type)


ROWS: Final = (
    row("matmul", "nn.matmul", write=_matmul, read=_read_matmul),
    row("nn.batch_matmul", write=_batch_matmul, read=_read_batch_matmul),
    row("nn.dense", write=_dense),
    row("nn.bias_add", write=_bias_add),
    row("einsum", write=_einsum, read=_read_einsum),
    TvmRow("nn.attention", _attention),
    *[row(op, write=_conv(op)) for op in CONVOLUTIONS],
)

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
from tvm import relay

from gsl.front.core.lower import LoweringTarget
from gsl.front.relay.spellings.table import (
    RelayCall,
    RelayLowering,
    RelayRow,
    check,
    const,
    is_call,
    is_default,
    last,
    reshaped,
    same,
    tensor_type,
)
from gsl.front.tree import Canon
from gsl.graph import Dim, SymDim

# ---------------------------------------------------------------- dense


def _read_dense(r: RelayCall) -> Canon:
    return Canon("nn.dense", r.operands, {"out_dtype": r.out_dtype})


def read_layer(r: RelayCall) -> Canon | None:
    """A dense layer of the rows of a tensor, of which they were made a matrix, and which got its leading axes back.

    ``r`` is the call that gives them back. ``None`` if it is none of such a layer.
    """
    layer = r.x
    if not is_call(layer, "nn.dense") or not is_call(layer.args[0], "reshape"):
        return None
    inner, x = RelayCall(layer, r.scope), layer.args[0].args[0]
    shape = tensor_type(r.scope.type_of(x)).shape
    rows = (functools.reduce(operator.mul, shape[:-1], 1), shape[-1])
    if len(shape) == 2 or inner.type().shape != rows or not _is_given_back(r, x, (*shape[:-1], inner.result.shape[-1])):
        return None
    return Canon("nn.dense", (x, layer.args[1]), {"out_dtype": inner.out_dtype})


def _is_given_back(r: RelayCall, x: Any, shape: tuple[Dim, ...]) -> bool:
    """True if a call surely gives a tensor this shape, which is that of ``x`` but for the last axis."""
    if is_call(r.call, "reshape_like"):
        places = [r[name] for name in ("lhs_begin", "lhs_end", "rhs_begin", "rhs_end")]
        return r.call.args[1] == x and places == [0, 1, 0, len(shape) - 1]
    # One size that is not known follows from the others.
    found = r.result.shape
    known = [(a, b) for a, b in zip(found, shape) if isinstance(a, int) and isinstance(b, int)]
    return len(found) == len(shape) and len(known) >= len(shape) - 1 and all(a == b for a, b in known)


def _rows(w: RelayLowering, x: Any, shape: Sequence[Any]) -> Any:
    """A tensor as a matrix of the rows along its last axis."""
    return x if len(shape) == 2 else reshaped(w, x, (math.prod(shape[:-1]), shape[-1]))


def _dense(w: RelayLowering) -> Any:
    """Relay has no kernel but for matrices."""
    x, weight, options = w.products()
    if w.type().ndim == 2:
        return relay.nn.dense(x, weight, **options)
    result = relay.nn.dense(_rows(w, x, w.type().shape), weight, **options)
    if sum(isinstance(size, SymDim) for size in w.result.shape) > 1:
        return relay.reshape_like(result, x, lhs_begin=0, lhs_end=1, rhs_begin=0, rhs_end=w.type().ndim - 1)
    return reshaped(w, result, w.result.shape)


# ---------------------------------------------------------------- matmul


def _read_matmul(r: RelayCall) -> Canon:
    """``nn.matmul`` of matrices; with the second one transposed it is a dense layer."""
    check(r.type(0).ndim == 2 == r.type(1).ndim)
    a, b = r.operands
    a = Canon("transpose", (a,), {"axes": (1, 0)}) if r["transpose_a"] else a
    if r["transpose_b"]:
        return Canon("nn.dense", (a, b), {"out_dtype": r.out_dtype})
    return Canon("matmul", (a, b), {"out_dtype": r.out_dtype})


def _matmul(w: RelayLowering) -> Any:
    """Products of matrices, of rows with a matrix, or of stacks of matrices; a vector is a row or a column."""
    a, b, options = w.products()
    first, second = w.type(0).ndim, w.type(1).ndim
    if first == 2 == second:
        return relay.nn.matmul(a, b, **options)
    if first == 3 == second and w.type(0).shape[0] == w.type(1).shape[0]:
        return relay.nn.batch_matmul(a, b, transpose_b=False, **options)
    if first > 1 and second == 2:
        return reshaped(w, relay.nn.matmul(_rows(w, a, w.type(0).shape), b, **options), w.result.shape)
    left, right, result = w.shape(0), w.shape(1), w.known(w.result.shape)
    if first == 1:
        a, left = relay.reshape(a, (1, *left)), (1, *left)
    if second == 1:
        b, right = relay.reshape(b, (*right, 1)), (*right, 1)
    if len(right) == 2:
        return relay.reshape(relay.nn.matmul(_rows(w, a, left), b, **options), result)
    batch = np.broadcast_shapes(left[:-2], right[:-2])
    a, b = stacked(a, left, batch), stacked(b, right, batch)
    product = relay.nn.batch_matmul(a, b, transpose_b=False, **options)
    return _shaped(product, (math.prod(batch), left[-2], right[-1]), result)


def _shaped(x: Any, shape: tuple[int, ...], wanted: tuple[int, ...]) -> Any:
    return x if shape == wanted else relay.reshape(x, wanted)


def stacked(x: Any, shape: tuple[int, ...], batch: Sequence[int]) -> Any:
    """A tensor of matrices, broadcast to the leading axes, as one stack of matrices."""
    whole = (*batch, *shape[-2:])
    x = x if shape == whole else relay.broadcast_to(x, whole)
    return _shaped(x, whole, (math.prod(batch), *shape[-2:]))


def _read_batch_matmul(r: RelayCall) -> Canon:
    check(r.type(0).shape[0] == r.type(1).shape[0])
    flags = {name: bool(r[name]) for name in ("transpose_a", "transpose_b")}
    return Canon("nn.batch_matmul", r.operands, {"out_dtype": r.out_dtype, **flags})


def _batch_matmul(w: RelayLowering) -> Any:
    a, b, options = w.products()
    left, right = w.type(0), w.type(1)
    if left.shape[0] != right.shape[0]:
        batch = np.broadcast_shapes(w.shape(0)[:1], w.shape(1)[:1])
        a, b = stacked(a, w.shape(0), batch), stacked(b, w.shape(1), batch)
    for name, default in (("transpose_a", False), ("transpose_b", True)):
        if w[name] != default:
            options[name] = w[name]
    return relay.nn.batch_matmul(a, b, **options)


# ---------------------------------------------------------------- bias


def _bias_add(w: RelayLowering) -> Any:
    dtype, axis = w.result.dtype, w["axis"]
    options = {} if axis == 1 else {"axis": last(axis, w.type().ndim)}
    return relay.nn.bias_add(w.expr(0, dtype), w.expr(1, dtype), **options)


def read_bias(r: RelayCall) -> Canon | None:
    """The sum of a product of matrices and a vector along its last axis, in either order; ``None`` for another sum."""
    for data, bias in (r.operands, r.operands[::-1]):
        shape = tensor_type(r.scope.type_of(data)).shape
        fits = len(shape) > 1 and tensor_type(r.scope.type_of(bias)).shape == shape[-1:]
        if fits and _is_product(data, r.scope):
            return Canon("nn.bias_add", (data, bias), {"axis": len(shape) - 1})
    return None


def _is_product(expr: Any, scope: LoweringTarget) -> bool:
    if is_call(expr, "nn.dense", "nn.matmul", "nn.batch_matmul"):
        return True
    return is_call(expr, "reshape", "reshape_like") and read_layer(RelayCall(expr, scope)) is not None


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
    check(_EQUATION.fullmatch(equation) is not None and _is_plain(equation))
    return Canon("einsum", (r.x,), {"equation": equation})


def _is_plain(equation: str) -> bool:
    """True if no index occurs twice in one operand or the result."""
    return all(len(set(part)) == len(part) for part in re.split(r",|->", equation))


def _einsum(w: RelayLowering) -> Any:
    equation = w["equation"]
    if not _EQUATION.fullmatch(equation) or not _is_plain(equation):
        raise ValueError(f"einsum: equation: in Relay, expected one like 'ij,jk->ik', found {equation!r}")
    return relay.einsum(w.x, equation)


# ---------------------------------------------------------------- attention


def _attention(w: RelayLowering) -> Any:
    query, key, value = w.shape(0), w.shape(1), w.shape(2)
    dtype, result = w.result.dtype, w.known(w.result.shape)
    q, k, v = (w.expr(place, dtype) for place in range(3))
    if w["enable_gqa"] and query[-3] != key[-3]:
        times = query[-3] // key[-3]
        k, v = relay.repeat(k, times, -3), relay.repeat(v, times, -3)
        key = (*key[:-3], query[-3], *key[-2:])
        value = (*value[:-3], query[-3], *value[-2:])
    batch = np.broadcast_shapes(query[:-2], key[:-2], value[:-2])
    scale = query[-1] ** -0.5 if w["scale"] is None else w["scale"]
    q = stacked(q * const(scale, dtype), query, batch)
    scores = relay.nn.batch_matmul(q, stacked(k, key, batch))
    whole = (*batch, query[-2], key[-2])
    scores = relay.reshape(scores, whole)
    masked = False
    if w["is_causal"]:
        scores = scores + const(np.triu(np.full(whole[-2:], -np.inf), 1), dtype)
    if len(w.operands) > 3:
        scores, masked = scores + _mask(w, dtype), True
    weights = relay.nn.softmax(scores)
    if masked:
        # A query to which nothing may attend: Relay's maximum of infinities is the least finite number.
        empty = relay.less_equal(relay.max(scores, -1, keepdims=True), const(_least(dtype), dtype))
        weights = relay.where(empty, const(0, dtype), weights)
    product = relay.nn.batch_matmul(stacked(weights, whole, batch), stacked(v, value, batch), transpose_b=False)
    return relay.reshape(product, result)


def _least(dtype: str) -> float:
    return float(torch.finfo(getattr(torch, dtype)).min)


def _mask(w: RelayLowering, dtype: str) -> Any:
    """The mask as a tensor that is added to the scores."""
    if w.type(3).dtype != "bool":
        return w.expr(3, dtype)
    return relay.where(w.expr(3), const(0, dtype), const(-np.inf, dtype))


# ---------------------------------------------------------------- convolutions

_NAMES: Final = ("strides", "padding", "output_padding", "dilation", "groups", "data_layout", "kernel_layout",
                 "out_layout")  # fmt: skip


def relaid(x: Any, source: str, target: str) -> Any:
    """A tensor of one layout in another with the same letters."""
    return x if source == target else relay.transpose(x, [source.index(letter) for letter in target])


def _read(r: RelayCall, op: str) -> Canon:
    attrs = {name: r[name] for name in _NAMES if name in r.attrs}
    sizes = for_all_axes(attrs, ("strides", "padding", "output_padding", "dilation"))
    return Canon(op, r.operands, {**attrs, **sizes, "out_dtype": r.out_dtype})


def for_all_axes(attrs: Mapping[str, Any], names: Sequence[str]) -> dict[str, Any]:
    """Some attributes, where they are given: one number counts for all axes."""
    found = {name: attrs[name] for name in names if name in attrs}
    return {name: sizes[0] if len(sizes) == 1 else sizes for name, sizes in found.items()}


def _options(w: RelayLowering, data_layout: str, kernel_layout: str) -> dict[str, Any]:
    """The attributes for Relay that are not the default ones, with these layouts."""
    layouts = {"data_layout": data_layout, "kernel_layout": kernel_layout}
    own = {name: layout for name, layout in layouts.items() if not is_default(w.op, name, layout)}
    return {**w.options("out_layout", "out_dtype", *layouts), **own}


def _conv(count: int) -> RelayRow:
    op = f"nn.conv{count}d"
    function = getattr(relay.nn, f"conv{count}d")
    letters = "DHW"[-count:]

    def write(w: RelayLowering) -> Any:
        data_layout, kernel_layout = _kernels(w, letters)
        data, weight, options = w.products()
        options.update(_options(w, data_layout, kernel_layout))
        data = relaid(data, w["data_layout"], data_layout)
        if count == 1 and w["groups"] > 1:
            options.update(_derived(w, w["kernel_layout"], 1))
        result = function(data, relaid(weight, w["kernel_layout"], kernel_layout), **options)
        return relaid(result, data_layout, w["out_layout"] or w["data_layout"])

    return RelayRow(op, write, {op: lambda r: _read(r, op)})


def _derived(w: RelayLowering, layout: str, times: int) -> dict[str, Any]:
    """The attributes that Relay infers from the weight, for the calls with groups for which it infers them wrongly."""
    sizes = dict(zip(layout, w.shape(1)))
    return {"channels": sizes["O"] * times, "kernel_size": tuple([sizes[s] for s in "DHW" if s in sizes])}


def _kernels(w: RelayLowering, letters: str) -> tuple[str, str]:
    """The layouts of data and kernel, of those that Relay's kernels take, that are next to the wanted ones."""
    if w["data_layout"] != f"N{letters}C":
        return f"NC{letters}", f"OI{letters}"
    kernel = w.type(1).shape[w["kernel_layout"].index("O")]
    if w["groups"] == 1:
        return f"N{letters}C", f"{letters}IO"
    if letters == "HW":
        is_depthwise = w["groups"] == kernel == w.type(0).shape[-1]
        return "NHWC", "HWOI" if is_depthwise else "HWIO"
    return f"NC{letters}", f"OI{letters}"


def _conv_transpose(count: int) -> RelayRow:
    op = f"nn.conv{count}d_transpose"
    function = getattr(relay.nn, f"conv{count}d_transpose")
    letters = "DHW"[-count:]
    data_layout, kernel_layout = f"NC{letters}", f"IO{letters}"

    def write(w: RelayLowering) -> Any:
        data, weight, options = w.products()
        options.update(_options(w, data_layout, kernel_layout))
        data, weight = relaid(data, w["data_layout"], data_layout), relaid(weight, w["kernel_layout"], kernel_layout)
        if set(w["dilation"]) == {1} and (w["groups"] == 1 or count == 2):
            if w["groups"] > 1:
                options.update(_derived(w, w["kernel_layout"], w["groups"]))
            result = function(data, weight, **options)
        else:
            result = _as_conv(w, data, weight, letters, options)
        return relaid(result, data_layout, w["out_layout"] or w["data_layout"])

    return RelayRow(op, write, {op: lambda r: _read(r, op)})


def _as_conv(w: RelayLowering, data: Any, weight: Any, letters: str, options: dict[str, Any]) -> Any:
    """A transposed convolution as one of the operand with zeros between its elements and around it."""
    count, groups = len(letters), w["groups"]
    sizes = w.shape(1)
    kernel = dict(zip(w["kernel_layout"], sizes))
    channels = kernel["I"] // groups
    # From (groups x I, O, ...) to (groups x O, I, ...), turned around.
    if groups > 1:
        spatial = [kernel[letter] for letter in letters]
        order = [0, 2, 1, *range(3, 3 + count)]
        weight = relay.transpose(relay.reshape(weight, [groups, channels, kernel["O"], *spatial]), order)
        weight = relay.reshape(weight, [groups * kernel["O"], channels, *spatial])
    else:
        weight = relay.transpose(weight, [1, 0, *range(2, 2 + count)])
    for axis in range(2, 2 + count):
        weight = relay.reverse(weight, axis)
    if max(w["strides"]) > 1:
        data = relay.nn.dilate(data, [1, 1, *w["strides"]])
    before, after = w["padding"][:count], w["padding"][count:]
    reach = [(kernel[letter] - 1) * step for letter, step in zip(letters, w["dilation"])]
    pads = [(r - b, r - a + o) for r, b, a, o in zip(reach, before, after, w["output_padding"])]
    data = padded(data, [(0, 0), (0, 0), *pads], w.type().dtype)
    rest: dict[str, Any] = {name: options[name] for name in ("dilation", "groups", "out_dtype") if name in options}
    if count == 1 and groups > 1:
        rest.update(_derived(w, w["kernel_layout"], groups))
    return getattr(relay.nn, f"conv{count}d")(data, weight, **rest)


def sliced(
    x: Any, axes: Sequence[int], begin: Sequence[int], end: Sequence[int], strides: Sequence[int] | None = None
) -> Any:
    """A slice of some axes. Relay takes as many strides as axes, and the first axes if none are named."""
    steps = [1] * len(axes) if strides is None else list(strides)
    options: dict[str, Any] = {} if set(steps) == {1} else {"strides": steps}
    if list(axes) != list(range(len(axes))):
        options = {"strides": steps, "axes": axes}
    return relay.strided_slice(x, begin, end, **options)


def padded(x: Any, widths: list[tuple[int, int]], dtype: str, value: bool | int | float = 0) -> Any:
    """A tensor padded with a number, or cropped where a width is negative."""
    if any(width < 0 for pair in widths for width in pair):
        axes = [axis for axis, pair in enumerate(widths) if min(pair) < 0]
        begin = [max(0, -widths[axis][0]) for axis in axes]
        # Relay takes places from the end as Python does; this one is the end itself.
        end = [widths[axis][1] if widths[axis][1] < 0 else 2**31 - 1 for axis in axes]
        x = sliced(x, axes, begin, end)
        widths = [(max(0, before), max(0, after)) for before, after in widths]
    if any(width for pair in widths for width in pair):
        x = relay.nn.pad(x, widths, const(value, dtype))
    return x


ROWS: Final = (
    RelayRow("matmul", _matmul, {"nn.matmul": _read_matmul}),
    RelayRow("nn.batch_matmul", _batch_matmul, {"nn.batch_matmul": _read_batch_matmul}),
    RelayRow("nn.dense", _dense, {"nn.dense": _read_dense}),
    RelayRow("nn.bias_add", _bias_add, {"nn.bias_add": same("nn.bias_add")}),
    RelayRow("einsum", _einsum, {"einsum": _read_einsum}),
    RelayRow("nn.attention", _attention),
    *map(_conv, (1, 2, 3)),
    *map(_conv_transpose, (1, 2, 3)),
)

"""Spellings of products of matrices, bias, convolutions and attention.

Relax has no linear layer and no bias: the first is a product with a transposed weight, the second a sum with a tensor
of one axis that is broadcast.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Final

from tvm import ir, tirx

from gsl.front.core.lower import Lower, all_heads, attention
from gsl.front.relax.spellings.table import RelaxCall, RelaxLowering, Reshaped, number, spread
from gsl.front.tree import Canon
from gsl.front.tvm.spellings import (
    TvmRow,
    TvmUnread,
    is_call,
    is_plain_equation,
    row,
    unread_unless,
)
from gsl.graph import Dim
from gsl.spec.conv import CONVOLUTIONS
from gsl.spec.normalise import spatial

# ---------------------------------------------------------------- products


def _matmul(w: RelaxLowering, a: Any, b: Any, out_dtype: str) -> Any:
    if not out_dtype:
        a, b = w.cast(a, w.dtype), w.cast(b, w.dtype)
    return w.call("matmul", a, b, out_dtype or None)


def _read_matmul(r: RelaxCall) -> Canon:
    a, b = r.operands
    attrs = {"out_dtype": r["out_dtype"]}
    weight = r.produced(b)
    if is_call(weight, "relax.permute_dims") and r.type_of(weight).ndim == 2:
        axes = RelaxCall(weight, r.scope)["axes"]
        if axes is None or [axis % 2 for axis in axes] == [1, 0]:
            return Canon("nn.dense", (a, weight.args[0]), attrs)
    return Canon("matmul", (a, b), attrs)


def _read_einsum(r: RelaxCall) -> Canon:
    unread_unless(is_plain_equation(r["subscripts"]))
    return Canon("einsum", (r.tensors(),), {"equation": r["subscripts"]})


# ---------------------------------------------------------------- bias


def _channel_axis(r: RelaxCall, expr: Any) -> int | None:
    """The axis of the channels in the result of a convolution or product; ``None`` of anything else."""
    source, rank = r.produced(expr), r.type_of(expr).ndim
    if is_call(source, "relax.matmul"):
        return rank - 1 if rank else None
    if is_call(source, *(f"relax.{name}" for name in CONVOLUTIONS)):
        layout = str(source.attrs.out_layout)
        return layout.index("C") if len(layout) == rank else None
    return None


def _as_vector(r: RelaxCall, expr: Any, size: Dim) -> Any:
    """A tensor of one axis with just the elements of an expression. Unread where there is none in sight."""
    while r.type_of(expr).shape != (size,):
        source = r.produced(expr)
        if isinstance(source, ir.GenericConst) and isinstance(size, int):
            return Reshaped(source, (size,))
        unread_unless(is_call(source, "relax.reshape", "relax.expand_dims", "relax.squeeze"))
        expr = source.args[0]
    return expr


def _bias(r: RelaxCall, data: Any, other: Any) -> Canon:
    """``data + other`` as a bias; Unread if it is none."""
    axis = _channel_axis(r, data)
    if axis is None:
        raise TvmUnread
    shape, own, source = r.type_of(data).shape, r.type_of(other).shape, r.produced(data)
    size = shape[axis]
    # The sum broadcasts the other operand along all axes but that of the channels.
    unread_unless(0 < len(own) <= len(shape))
    padded = (1,) * (len(shape) - len(own)) + own
    unread_unless(padded == tuple([size if place == axis else 1 for place in range(len(shape))]))
    vector = _as_vector(r, other, size)
    # What is added to scores and has as many axes is a mask.
    is_product = is_call(source, "relax.matmul")
    unread_unless(len(own) == 1 or not is_product or _read_matmul(RelaxCall(source, r.scope)).op == "nn.dense")
    return Canon("nn.bias_add", (data, vector), {"axis": axis})


def read_add(r: RelaxCall) -> Canon:
    left, right = r.operands
    for data, other in ((left, right), (right, left)):
        try:
            return _bias(r, data, other)
        except TvmUnread:
            pass
    unread_unless(r.result.dtype != "bool")
    return Canon("add", (left, right))


def _bias_add(w: RelaxLowering, data: Any, bias: Any, axis: int) -> Any:
    return w.write("add", data, w.along(bias, w.rank_of(data), axis))


# ---------------------------------------------------------------- attention

_SWAP: Final = (0, 2, 1, 3)
"""Relax wants the heads after the places of the sequence, GSL before them."""
_ATTENTION_CALLS: Final = ("relax.nn.attention", "relax.nn.attention_bias")


def _attention(
    w: RelaxLowering, query: Any, key: Any, value: Any, mask: Any = None, *, scale: float | None, is_causal: bool,
    enable_gqa: bool,
) -> Any:  # fmt: skip
    if is_causal and mask is not None:
        raise ValueError("a mask and is_causal exclude each other")
    if enable_gqa:
        key, value = all_heads(w, query, key, value)
    if mask is not None and w.dtype_of(mask) == "bool":
        mask = w.write("where", mask, 0.0, float("-inf"))
        mask = w.cast(mask, w.dtype)
    leading = {w.shape_of(x)[:-2] for x in (query, key, value)}
    if len(leading) != 1 or w.rank_of(query) < 3:
        return attention(w, query, key, value, mask, scale, is_causal)
    scores = (*w.shape_of(query)[:-1], w.shape_of(key)[-2])
    if mask is not None and w.shape_of(mask) != scores:
        mask = w.write("broadcast_to", mask, shape=scores)
    query, key, value, mask = (None if x is None else _with_four_axes(w, x) for x in (query, key, value, mask))
    swapped = [w.permute(x, _SWAP) for x in (query, key, value)]
    factor = None if scale is None else tirx.FloatImm("float32", scale)
    causal = "TopLeft" if is_causal else None
    return w.reshape(w.permute(w.call("nn.attention", *swapped, mask, factor, causal), _SWAP), w.shape)


def _with_four_axes(w: RelaxLowering, x: Any) -> Any:
    """A tensor of which the axes before the last three are one."""
    shape = w.shape_of(x)
    return w.reshape(x, (math.prod(shape[:-3]), *shape[-3:]))


def _read_attention(r: RelaxCall) -> Canon:
    causal, scale = r["causal_mask"], r.call.attrs.scale
    # Torch has a mask or a causal one.
    unread_unless(r["window_size"] is None and (causal is None or len(r.operands) == 3))
    # The lower right corner is the same if there is as much to attend to as there is that attends.
    unread_unless(causal in (None, "TopLeft") or (causal == "BottomRight" and r.type(0).shape[1] == r.type(1).shape[1]))
    swapped = [_swapped(r, x) for x in r.operands[:3]]
    attrs = {"scale": None if scale is None else number(scale), "is_causal": causal is not None}
    return Canon("transpose", (Canon("nn.attention", (*swapped, *r.operands[3:]), attrs),), {"axes": _SWAP})


def _swapped(r: RelaxCall, x: Any) -> Any:
    """An operand of attention with its heads before its places: what the program has transposed, if it has done so."""
    source = r.produced(x)
    if is_call(source, "relax.permute_dims") and RelaxCall(source, r.scope)["axes"] == _SWAP:
        return source.args[0]
    return Canon("transpose", (x,), {"axes": _SWAP})


def _read_permute_dims(r: RelaxCall) -> Canon:
    """A transposition; of attention that has no other use, that of its result with the heads before the places."""
    source, axes = r.produced(r.x), r["axes"]
    if axes is not None and is_call(source, *_ATTENTION_CALLS):
        try:
            whole = _read_attention(RelaxCall(source, r.scope))
        except TvmUnread:
            whole = None
        if whole is not None and r.scope.is_used_once(r.x):
            (found,) = whole.operands
            assert isinstance(found, Canon)
            joined = tuple([_SWAP[axis] for axis in axes])
            return found if joined == (0, 1, 2, 3) else Canon("transpose", (found,), {"axes": joined})
    return Canon("transpose", (r.x,), {"axes": axes})


# ---------------------------------------------------------------- convolutions


def _convolution(op: str) -> Lower:
    letters = "NC" + spatial(int(op[7]))
    transposed = op.endswith("_transpose")
    kernel = ("IO" if transposed else "OI") + letters[2:]

    def write(
        w: RelaxLowering, data: Any, weight: Any, data_layout: str, kernel_layout: str, out_layout: str,
        out_dtype: str, **rest: Any,
    ) -> Any:  # fmt: skip
        own = data_layout
        if transposed or data_layout not in (letters, "N" + letters[2:] + "C"):
            # What Relax can't lower in other layouts is written in the usual one.
            data, own = w.layout(data, data_layout, letters), letters
        if transposed or len(letters) == 3:
            weight, kernel_layout = w.layout(weight, kernel_layout, kernel), kernel
        if transposed and out_dtype:
            data, weight, out_dtype = w.cast(data, out_dtype), w.cast(weight, out_dtype), ""
        layouts = {"data_layout": own, "kernel_layout": kernel_layout}
        result = w.call(op, data, weight, **rest, **layouts, out_dtype=out_dtype or None)
        return w.layout(result, own, out_layout or data_layout)

    return write


def _dense(w: RelaxLowering, data: Any, weight: Any, out_dtype: str) -> Any:
    return _matmul(w, data, w.transposed(weight), out_dtype)


ROWS: Final = (
    row("matmul", write=_matmul, read=_read_matmul),
    TvmRow("nn.dense", _dense),
    TvmRow("nn.bias_add", _bias_add),
    TvmRow("einsum", lambda w, data, equation: w.call("einsum", spread(data), equation), {"einsum": _read_einsum}),
    TvmRow("nn.attention", _attention, {"nn.attention": _read_attention, "nn.attention_bias": _read_attention}),
    row("transpose", "permute_dims", read=_read_permute_dims),
    *[row(op, write=_convolution(op)) for op in CONVOLUTIONS],
)

LOOKS_AT: Final[Mapping[str, frozenset[str]]] = {
    "relax.matmul": frozenset(("relax.permute_dims",)),
    "relax.permute_dims": frozenset(_ATTENTION_CALLS),
    **dict.fromkeys(_ATTENTION_CALLS, frozenset(("relax.permute_dims",))),
    "relax.add": frozenset(("relax.matmul", *(f"relax.{name}" for name in CONVOLUTIONS))),
}
"""The operators of the calls at which readings look that depend on the computation of the arguments."""

"""Spellings of products of matrices, bias, convolutions and attention.

Relax has no linear layer and no bias: the first is a product with a transposed weight, the second a sum with a tensor
of one axis that is broadcast.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Any, Final

from tvm import ir, relax, tirx

from gsl.front.core.lower import Lower, all_heads, attention
from gsl.front.relax.spellings.table import (
    RelaxLift,
    RelaxLowering,
    RelaxScope,
    RelaxUnread,
    Reshaped,
    attributes,
    is_call,
    number,
    optional_ints,
    plain,
    produced,
    spread,
    tensor_type,
    tensors,
    unread_unless,
)
from gsl.front.tree import Canon
from gsl.graph import Dim
from gsl.spec.normalise import spatial

R = relax.op

# ---------------------------------------------------------------- products


def _matmul(w: RelaxLowering, a: Any, b: Any, out_dtype: str) -> Any:
    if not out_dtype:
        a, b = w.cast(a, w.dtype), w.cast(b, w.dtype)
    return w.call(R.matmul, a, b, out_dtype or None)


def _read_matmul(call: Any, scope: RelaxScope) -> Canon:
    a, b = call.args
    attrs = attributes(call, "out_dtype")
    weight = produced(b, scope)
    if is_call(weight, "relax.permute_dims") and tensor_type(weight, scope).ndim == 2:
        axes = optional_ints(weight.attrs.axes)
        if axes is None or [axis % 2 for axis in axes] == [1, 0]:
            return Canon("nn.dense", (a, weight.args[0]), attrs)
    return Canon("matmul", (a, b), attrs)


def _read_einsum(call: Any, scope: RelaxScope) -> Canon:
    equation = str(call.attrs.subscripts)
    # Diagonals and dots are told otherwise.
    unread_unless("." not in equation and all(len(set(term)) == len(term) for term in re.split(r",|->", equation)))
    return Canon("einsum", (tensors(call.args[0]),), {"equation": equation})


# ---------------------------------------------------------------- bias


def _channel_axis(expr: Any, scope: RelaxScope) -> int | None:
    """The axis of the channels in the result of a convolution or product; ``None`` of anything else."""
    source = produced(expr, scope)
    if is_call(source, "relax.matmul"):
        rank = tensor_type(expr, scope).ndim
        return rank - 1 if rank else None
    if is_call(source, *(f"relax.{name}" for name in CONVOLUTIONS)):
        layout = str(source.attrs.out_layout)
        return layout.index("C") if len(layout) == tensor_type(expr, scope).ndim else None
    return None


def _is_layer(expr: Any, scope: RelaxScope) -> bool:
    return _read_matmul(produced(expr, scope), scope).op == "nn.dense"


def _as_vector(expr: Any, size: Dim, scope: RelaxScope) -> Any:
    """A tensor of one axis with just the elements of an expression. Unread where there is none in sight."""
    while tensor_type(expr, scope).shape != (size,):
        source = produced(expr, scope)
        if isinstance(source, ir.GenericConst) and isinstance(size, int):
            return Reshaped(source, (size,))
        unread_unless(is_call(source, "relax.reshape", "relax.expand_dims", "relax.squeeze"))
        expr = source.args[0]
    return expr


def _bias(data: Any, other: Any, scope: RelaxScope) -> Canon:
    """``data + other`` as a bias; Unread if it is none."""
    axis = _channel_axis(data, scope)
    if axis is None:
        raise RelaxUnread
    shape, own = tensor_type(data, scope).shape, tensor_type(other, scope).shape
    size = shape[axis]
    # The sum broadcasts the other operand along all axes but that of the channels. What is added to scores and has as
    # many axes is a mask.
    unread_unless(len(own) == 1 or not is_call(produced(data, scope), "relax.matmul") or _is_layer(data, scope))
    padded = (1,) * (len(shape) - len(own)) + own
    unread_unless(0 < len(own) <= len(shape))
    unread_unless(padded == tuple([size if place == axis else 1 for place in range(len(shape))]))
    return Canon("nn.bias_add", (data, _as_vector(other, size, scope)), {"axis": axis})


def _read_add(call: Any, scope: RelaxScope) -> Canon:
    left, right = call.args
    for data, other in ((left, right), (right, left)):
        try:
            return _bias(data, other, scope)
        except RelaxUnread:
            pass
    unread_unless(tensor_type(call, scope).dtype != "bool")
    return Canon("add", (left, right))


# ---------------------------------------------------------------- attention

_SWAP: Final = (0, 2, 1, 3)
"""Relax wants the heads after the places of the sequence, GSL before them."""


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
    return w.reshape(w.permute(w.call(R.nn.attention, *swapped, mask, factor, causal), _SWAP), w.shape)


def _with_four_axes(w: RelaxLowering, x: Any) -> Any:
    """A tensor of which the axes before the last three are one."""
    shape = w.shape_of(x)
    return w.reshape(x, (math.prod(shape[:-3]), *shape[-3:]))


def _read_attention(call: Any, scope: RelaxScope) -> Canon:
    attrs = call.attrs
    unread_unless(attrs.window_size is None)
    # Torch has either.
    unread_unless(attrs.causal_mask is None or len(call.args) == 3)
    causal = None if attrs.causal_mask is None else str(attrs.causal_mask)
    if causal == "BottomRight":
        # The same if there is as much to attend to as there is that attends.
        unread_unless(tensor_type(call.args[0], scope).shape[1] == tensor_type(call.args[1], scope).shape[1])
    else:
        unread_unless(causal in (None, "TopLeft"))
    swapped = [Canon("transpose", (x,), {"axes": _SWAP}) for x in call.args[:3]]
    scale = None if attrs.scale is None else number(attrs.scale)
    inner = Canon(
        "nn.attention", (*swapped, *call.args[3:]), {"scale": scale, "is_causal": causal is not None}
    )
    return Canon("transpose", (inner,), {"axes": _SWAP})


# ---------------------------------------------------------------- convolutions


CONVOLUTIONS: Final = tuple(f"nn.conv{count}d{suffix}" for count in (1, 2, 3) for suffix in ("", "_transpose"))


def _convolution(op: str) -> Lower:
    function = getattr(relax.op.nn, op.removeprefix("nn."))
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
        rest = {name: list(value) if isinstance(value, tuple) else value for name, value in rest.items()}
        layouts = {"data_layout": own, "kernel_layout": kernel_layout}
        result = w.call(function, data, weight, **rest, **layouts, out_dtype=out_dtype or None)
        return w.layout(result, own, out_layout or data_layout)

    return write

_ATTRIBUTES: Final = (
    "strides", "padding", "dilation", "data_layout", "kernel_layout", "out_layout", "groups", "out_dtype",
)  # fmt: skip


def _outer(op: str) -> tuple[str, ...]:
    return ("output_padding",) if op.endswith("_transpose") else ()


WRITE: Final[Mapping[str, Lower]] = {
    "matmul": _matmul,
    "nn.dense": lambda w, data, weight, out_dtype: _matmul(w, data, w.transposed(weight), out_dtype),
    "nn.bias_add": lambda w, data, bias, axis: w.write("add", data, w.along(bias, w.rank_of(data), axis)),
    "einsum": lambda w, data, equation: w.call(R.einsum, spread(data), equation),
    "nn.attention": _attention,
    **{op: _convolution(op) for op in CONVOLUTIONS},
}

READ: Final[Mapping[str, RelaxLift]] = {
    "relax.matmul": _read_matmul,
    "relax.einsum": _read_einsum,
    "relax.add": _read_add,
    "relax.nn.attention": _read_attention,
    "relax.nn.attention_bias": _read_attention,
    **{f"relax.{op}": plain(op, 2, *_ATTRIBUTES, *_outer(op)) for op in CONVOLUTIONS},
}

LOOKS_AT: Final[Mapping[str, frozenset[str]]] = {
    "relax.matmul": frozenset(("relax.permute_dims",)),
    "relax.add": frozenset(("relax.matmul", *(f"relax.{name}" for name in CONVOLUTIONS))),
}
"""The operators of the calls at which readings look that depend on the computation of the arguments."""

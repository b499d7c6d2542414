"""Products of matrices, bias, and attention."""

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

from gsl.front.relay.spellings.table import (
    RelayCall,
    RelayLowering,
    RelayRow,
    RelayScope,
    check,
    const,
    is_call,
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


def _is_product(expr: Any, scope: RelayScope) -> bool:
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


ROWS: Final = (
    RelayRow("matmul", _matmul, {"nn.matmul": _read_matmul}),
    RelayRow("nn.batch_matmul", _batch_matmul, {"nn.batch_matmul": _read_batch_matmul}),
    RelayRow("nn.dense", _dense, {"nn.dense": _read_dense}),
    RelayRow("nn.bias_add", _bias_add, {"nn.bias_add": same("nn.bias_add")}),
    RelayRow("einsum", _einsum, {"einsum": _read_einsum}),
    RelayRow("nn.attention", _attention),
)

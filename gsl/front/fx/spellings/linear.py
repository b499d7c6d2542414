"""Spellings of dense layers, matrix products and attention, and of the packed layers of ``gsl.kernels``."""

from __future__ import annotations

import operator
from collections.abc import Mapping, Sequence
from typing import Any, Final

import torch
import torch.nn.functional as F

from gsl import kernels
from gsl.front.fx.spellings.bind import BoundCall, TypeOf, flag, integer, number, per_axis, real, unread_unless
from gsl.front.fx.spellings.table import (
    FxLift,
    FxRow,
    Native,
    Site,
    call,
    in_dtype,
    options,
    padded,
    row,
    tensor,
    words,
)
from gsl.front.fx.spellings.window import biased, symmetric, windowed
from gsl.front.tree import Canon
from gsl.spec.packed import ACTIVATIONS, PRECISIONS


def _dense(c: BoundCall) -> Canon:
    """A bias that is a vector is one of the last axis; anything else is just added."""
    weight, bias = c.tensor_type(c.weight), None if c.bias is None else c.tensor_type(c.bias)
    unread_unless(weight is None or weight.ndim == 2)
    result = Canon("nn.dense", (tensor(c, c.input), tensor(c, c.weight)))
    if bias is not None and bias.ndim != 1:
        return Canon("add", (result, tensor(c, c.bias)))
    return biased(c, result, c.bias, -1)


def _scaled(value: Any, factor: Any) -> Any:
    return value if number(factor) == 1 else Canon("multiply", (value, factor))


def _addmm(first: str, second: str) -> FxLift:
    """``beta * input + alpha * (first @ second)``; with ``beta == 0`` the product alone, whatever the input holds."""

    def read(c: BoundCall) -> Canon:
        left, right = tensor(c, getattr(c, first)), tensor(c, getattr(c, second))
        product: Canon = _scaled(Canon("matmul", (left, right)), c.alpha)
        kind, other = c.tensor_type(c.input), c.tensor_type(right)
        is_whole = other is not None and "float" not in other.dtype and "complex" not in other.dtype
        # Among whole numbers, torch cuts the factors.
        unread_unless(not is_whole or (isinstance(c.alpha, int) and isinstance(c.beta, int)))
        if number(c.beta) == 0:
            return product
        if kind is not None and other is not None and c.beta == 1 and kind.shape == other.shape[-1:]:
            return Canon("nn.bias_add", (product, tensor(c, c.input)), {"axis": -1})
        return Canon("add", (_scaled(tensor(c, c.input), c.beta), product))

    return read


def _attention(c: BoundCall) -> Canon:
    unread_unless(number(c.dropout_p) == 0)
    operands = [tensor(c, c.query), tensor(c, c.key), tensor(c, c.value)]
    if c.attn_mask is not None:
        operands.append(tensor(c, c.attn_mask))
    attrs = {
        "scale": None if c.scale is None else real(c.scale),
        "is_causal": flag(c.is_causal),
        "enable_gqa": flag(c.enable_gqa),
    }
    return Canon("nn.attention", tuple(operands), attrs)


# ---------------------------------------------------------------- writing


def _write_batch_matmul(s: Site) -> Native:
    a, b = in_dtype(s, *s.operands)
    a = call(torch.transpose, a, 1, 2) if s["transpose_a"] else a
    b = call(torch.transpose, b, 1, 2) if s["transpose_b"] else b
    one, other = s.type(0), s.type(1)
    broadcast = one is not None and other is not None and one.shape[0] != other.shape[0]
    return call(torch.matmul if broadcast else torch.bmm, a, b)


def _write_bias_add(s: Site) -> Native:
    x, bias = s.operands
    found, axis = s.type(), s["axis"]
    behind = -1 - axis if axis < 0 else None if found is None else found.ndim - 1 - axis
    if behind == 0:
        return call(operator.add, x, bias)
    if behind is not None:
        return call(operator.add, x, call(torch.reshape, bias, (-1, *(1,) * behind)))
    # Without the rank, the axis is made the last one.
    return call(torch.movedim, call(operator.add, call(torch.movedim, x, axis, -1), bias), -1, axis)


def _write_attention(s: Site) -> Native:
    mask = s.operands[3] if len(s.operands) > 3 else None
    kwargs = options(
        attn_mask=(mask, None), is_causal=(s["is_causal"], False), scale=(s["scale"], None),
        enable_gqa=(s["enable_gqa"], False),
    )  # fmt: skip
    return call(F.scaled_dot_product_attention, *s.operands[:3], **kwargs)


# ---------------------------------------------------------------- layers with packed weights


def _fused(s: Site) -> dict[str, Any]:
    return options(activation=(s["activation"], "none"), precision=(s["precision"], "float32"))


def _packed_operands(s: Site) -> tuple[Any, ...]:
    """Data, weight, bias, and addend, as the kernels take them."""
    data, weight, *others = s.operands
    if not s.op.endswith("_add"):
        return (data, weight, *others)
    addend, *bias = others
    return (data, weight, *(bias or (None,)), addend)


def _write_packed_dense(s: Site) -> Native:
    return call(kernels.LINEAR, *_packed_operands(s), **_fused(s))


def _write_packed_conv2d(s: Site) -> Native:
    data, *others = _packed_operands(s)
    data, window = windowed(s, data, 2)
    return call(kernels.CONV2D, data, *others, **{key: _list(value) for key, value in window.items()}, **_fused(s))


def _list(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value


def plain(op: str, attrs: Mapping[str, Any], operands: Sequence[Any], type_of: TypeOf) -> Native:
    """A call of one of these operators in functions that torch itself has."""
    s = Site(op, attrs, tuple(operands), type_of)
    data, weight, bias, addend = (*_packed_operands(s), None, None)[:4]
    if "conv2d" in op:
        others = {name: s[name] for name in ("dilation", "groups")}
        x = call(F.conv2d, padded(data, s["padding"]), weight, bias, stride=s["strides"], **others)
    else:
        x = call(F.linear, data, weight, bias)
    if addend is not None:
        x = call(operator.add, x, addend)
    if s["activation"] == "none":
        return x
    if s["activation"] == "gelu_tanh":
        return call(F.gelu, x, approximate="tanh")
    return call(getattr(F, s["activation"], getattr(torch, s["activation"], None)), x)


def _attrs(c: BoundCall) -> dict[str, Any]:
    unread_unless(c.activation in ("none", *ACTIVATIONS) and c.precision in PRECISIONS)
    return {"activation": c.activation, "precision": c.precision}


def _read_packed(c: BoundCall, op: str, attrs: Mapping[str, Any]) -> Canon:
    bias = () if c.bias is None else (tensor(c, c.bias),)
    data = tensor(c, c.x), tensor(c, c.weight)
    if c.addend is None:
        return Canon(op, (*data, *bias), attrs)
    return Canon(f"{op}_add", (*data, tensor(c, c.addend), *bias), attrs)


def _read_packed_dense(c: BoundCall) -> Canon:
    weight = c.tensor_type(c.weight)
    unread_unless(weight is None or weight.ndim == 2)
    return _read_packed(c, "packed.dense", _attrs(c))


def _read_packed_conv2d(c: BoundCall) -> Canon:
    data = c.tensor_type(c.x)
    unread_unless(data is None or data.ndim == 4)
    window = {
        "strides": per_axis(c.stride, 2), "padding": symmetric(per_axis(c.padding, 2)),
        "dilation": per_axis(c.dilation, 2), "groups": integer(c.groups),
    }  # fmt: skip
    return _read_packed(c, "packed.conv2d", {**window, **_attrs(c)})


_SDPA = "query key value attn_mask=None dropout_p=0.0 is_causal=False scale=None enable_gqa=False"

_FUSED = 'activation="none" precision="float32"'

ROWS: Final = (
    row("nn.dense", "F.linear aten.linear.default", "input weight bias=None", read=_dense,
        write=lambda s: call(F.linear, *in_dtype(s, *s.operands[:2]), *s.operands[2:])),
    row("matmul", f"operator.matmul {words('matmul mm bmm mv dot')}", "input other", operands="input other",
        write=lambda s: call(torch.matmul, *in_dtype(s, *s.operands))),
    FxRow(op="nn.batch_matmul", write=_write_batch_matmul),
    FxRow(op="nn.bias_add", write=_write_bias_add),
    FxRow(words("addmm"), "input mat1 mat2 beta=1 alpha=1", _addmm("mat1", "mat2")),
    FxRow(words("addmv"), "input mat vec beta=1 alpha=1", _addmm("mat", "vec")),
    FxRow(words("baddbmm"), "input batch1 batch2 beta=1 alpha=1", _addmm("batch1", "batch2")),
    row("nn.attention", "F.scaled_dot_product_attention aten.scaled_dot_product_attention.default", _SDPA,
        read=_attention, write=_write_attention),
    row("packed.dense", "gsl.linear.default", f"x weight bias=None addend=None {_FUSED}", read=_read_packed_dense,
        write=_write_packed_dense),
    FxRow(op="packed.dense_add", write=_write_packed_dense),
    row("packed.conv2d", "gsl.conv2d.default",
        f"x weight bias=None addend=None stride=1 padding=0 dilation=1 groups=1 {_FUSED}",
        read=_read_packed_conv2d, write=_write_packed_conv2d),
    FxRow(op="packed.conv2d_add", write=_write_packed_conv2d),
)  # fmt: skip
FIELDS: Final = (
    FxRow(
        "aten._scaled_dot_product_flash_attention.default aten._scaled_dot_product_flash_attention_for_cpu.default "
        "aten._scaled_dot_product_fused_attention_overrideable.default "
        "aten._scaled_dot_product_efficient_attention.default",
        f"{_SDPA} return_debug_mask=False compute_log_sumexp=False", _attention,
    ),
)  # fmt: skip

"""Spellings of the operators of ``gsl.kernels``."""

from __future__ import annotations

import operator
from collections.abc import Mapping, Sequence
from typing import Any, Final

import torch
import torch.nn.functional as F

from gsl import kernels
from gsl.front.fx.spellings.bind import BoundCall, TypeOf, integer, per_axis, unread_unless
from gsl.front.fx.spellings.conv import symmetric
from gsl.front.fx.spellings.table import FxLower, FxRow, Native, Site, call, options, padded, tensor
from gsl.front.tree import Canon
from gsl.spec.packed import ACTIVATIONS, PRECISIONS


def _fused(s: Site) -> dict[str, Any]:
    return options(activation=(s["activation"], "none"), precision=(s["precision"], "float32"))


def _operands(s: Site) -> tuple[Any, ...]:
    """Data, weight, bias, and addend, as the kernels take them."""
    data, weight, *others = s.operands
    if not s.op.endswith("_add"):
        return (data, weight, *others)
    addend, *bias = others
    return (data, weight, *(bias or (None,)), addend)


def _write_dense(s: Site) -> Native:
    return call(kernels.LINEAR, *_operands(s), **_fused(s))


def _write_conv2d(s: Site) -> Native:
    (data, *others), padding, zeros, ones = _operands(s), s["padding"][:2], (0, 0), (1, 1)
    if padding != s["padding"][2:]:
        data, padding = padded(data, s["padding"]), zeros
    window = options(
        stride=(s["strides"], ones), padding=(padding, zeros), dilation=(s["dilation"], ones), groups=(s["groups"], 1)
    )
    return call(kernels.CONV2D, data, *others, **{key: _list(value) for key, value in window.items()}, **_fused(s))


def _list(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value


def plain(op: str, attrs: Mapping[str, Any], operands: Sequence[Any], type_of: TypeOf) -> Native:
    """A call of one of these operators in functions that torch itself has."""
    s = Site(op, attrs, tuple(operands), type_of)
    data, weight, bias, addend = (*_operands(s), None, None)[:4]
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


def _read(c: BoundCall, op: str, attrs: Mapping[str, Any]) -> Canon:
    bias = () if c.bias is None else (tensor(c, c.bias),)
    data = tensor(c, c.x), tensor(c, c.weight)
    if c.addend is None:
        return Canon(op, (*data, *bias), attrs)
    return Canon(f"{op}_add", (*data, tensor(c, c.addend), *bias), attrs)


def _read_linear(c: BoundCall) -> Canon:
    weight = c.tensor_type(c.weight)
    unread_unless(weight is None or weight.ndim == 2)
    return _read(c, "packed.dense", _attrs(c))


def _read_conv2d(c: BoundCall) -> Canon:
    data = c.tensor_type(c.x)
    unread_unless(data is None or data.ndim == 4)
    window = {
        "strides": per_axis(c.stride, 2), "padding": symmetric(per_axis(c.padding, 2)),
        "dilation": per_axis(c.dilation, 2), "groups": integer(c.groups),
    }  # fmt: skip
    return _read(c, "packed.conv2d", {**window, **_attrs(c)})


_FUSED = 'activation="none" precision="float32"'
ROWS: Final = (
    FxRow("gsl.linear.default", f"x weight bias=None addend=None {_FUSED}", _read_linear),
    FxRow(
        "gsl.conv2d.default",
        f"x weight bias=None addend=None stride=1 padding=0 dilation=1 groups=1 {_FUSED}",
        _read_conv2d,
    ),
)
WRITERS: Final[Mapping[str, FxLower]] = {
    "packed.dense": _write_dense,
    "packed.dense_add": _write_dense,
    "packed.conv2d": _write_conv2d,
    "packed.conv2d_add": _write_conv2d,
}

"""Activations, softmax and dropout."""

from __future__ import annotations

import math
from typing import Any, Final

from tvm import relay

from gsl.front.relay.spellings.elementwise import expm1, log1p
from gsl.front.relay.spellings.table import FLOATS, RelayCall, RelayLowering, RelayRow, check, const, row, same
from gsl.front.tree import Canon


def _floating(w: RelayLowering) -> tuple[Any, str]:
    """The operand and its dtype, which is one of floats."""
    return w.expr(0, w.result.dtype), w.result.dtype


def _elu(w: RelayLowering) -> Any:
    x, dtype = _floating(w)
    return _exponential(x, dtype, w["alpha"])


def _exponential(x: Any, dtype: str, alpha: float) -> Any:
    below = expm1(x, dtype)
    below = below if alpha == 1 else const(alpha, dtype) * below
    return relay.where(relay.greater(x, const(0, dtype)), x, below)


def _selu(w: RelayLowering) -> Any:
    x, dtype = _floating(w)
    return const(1.0507009873554805, dtype) * _exponential(x, dtype, 1.6732632423543772)


def _gelu(w: RelayLowering) -> Any:
    x, dtype = _floating(w)
    one, half = const(1, dtype), const(0.5, dtype)
    if w["approximate"] == "none":
        inner = relay.erf(x * const(math.sqrt(0.5), dtype))
    else:
        inner = relay.tanh(const(math.sqrt(2 / math.pi), dtype) * (x + const(0.044715, dtype) * x * x * x))
    return half * x * (one + inner)


def _mish(w: RelayLowering) -> Any:
    x, dtype = _floating(w)
    return x * relay.tanh(log1p(relay.exp(x), dtype))


def _softplus(w: RelayLowering) -> Any:
    x, dtype = _floating(w)
    beta = const(w["beta"], dtype)
    scaled = x if w["beta"] == 1 else beta * x
    soft = log1p(relay.exp(scaled), dtype)
    soft = soft if w["beta"] == 1 else soft / beta
    return relay.where(relay.greater(scaled, const(w["threshold"], dtype)), x, soft)


def _read_prelu(r: RelayCall) -> Canon:
    check(r.type(1).ndim == 1)
    return same("nn.prelu")(r)


def _prelu(w: RelayLowering) -> Any:
    x, slope, axis = w.type(0), w.type(1), w["axis"]
    if x.dtype == slope.dtype and slope.shape == (x.shape[axis],):
        return relay.nn.prelu(w.x, w.expr(1), axis)
    dtype = w.result.dtype
    data, alpha = w.expr(0, dtype), w.expr(1, dtype)
    if slope.ndim == 1 and axis < x.ndim - 1:
        alpha = relay.reshape(alpha, (-1, *(1,) * (x.ndim - 1 - axis)))
    return relay.where(relay.greater(data, const(0, dtype)), data, alpha * data)


def _softmax(op: str) -> RelayRow:
    function = getattr(relay.nn, op.removeprefix("nn."))

    def write(w: RelayLowering) -> Any:
        return function(w.x, axis=last(w["axis"], w.type().ndim))

    def read(r: RelayCall) -> Canon:
        check(r.type().dtype in FLOATS)
        return same(op)(r)

    return RelayRow(op, write, {op: read})


def last(axis: int, ndim: int) -> int:
    """An axis as Relay's default names it: the last one is -1."""
    return -1 if axis == ndim - 1 else axis


ROWS: Final = (
    row("nn.relu", relay.nn.relu),
    row("nn.leaky_relu", relay.nn.leaky_relu),
    RelayRow("elu", _elu),
    RelayRow("selu", _selu),
    RelayRow("gelu", _gelu),
    RelayRow("mish", _mish),
    RelayRow("softplus", _softplus),
    RelayRow("nn.prelu", _prelu, {"nn.prelu": _read_prelu}),
    _softmax("nn.softmax"),
    _softmax("nn.log_softmax"),
    # Relay's has a second result, the mask.
    RelayRow("nn.dropout", lambda w: relay.nn.dropout(w.x, w["rate"]), fields={("nn.dropout", 0): same("nn.dropout")}),
)

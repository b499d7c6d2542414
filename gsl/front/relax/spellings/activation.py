"""Spellings of activations, softmax and dropout."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from tvm import relax

from gsl.front.core.lower import Lower
from gsl.front.relax.spellings.reading import FieldReader, RelaxLift, RelaxScope, plain, tensor_type, unread_unless
from gsl.front.relax.spellings.writing import RelaxLowering
from gsl.front.tree import Canon

N = relax.op.nn


def _softmax(name: str) -> Lower:
    return lambda w, x, axis: w.call(getattr(N, name), w.cast(x, w.dtype), axis)


def _gelu(w: RelaxLowering, x: Any, approximate: str) -> Any:
    return w.call(N.gelu_tanh if approximate == "tanh" else N.gelu, x)


def _elu(w: RelaxLowering, x: Any, alpha: float) -> Any:
    """x where it is positive, alpha expm1(x) elsewhere."""
    negative = w.write("multiply", w.write("expm1", w.write("minimum", x, 0.0)), alpha)
    return w.write("where", w.write("greater", x, 0.0), x, negative)


def _mish(w: RelaxLowering, x: Any) -> Any:
    return w.write("multiply", x, w.write("tanh", w.write("softplus", x)))


def _prelu(w: RelaxLowering, data: Any, alpha: Any, axis: int) -> Any:
    channels = w.shape_of(data)[axis]
    if w.shape_of(alpha) == (channels,):
        return w.call(N.prelu, data, alpha, axis)
    scaled = w.write("multiply", alpha, data)
    return w.write("where", w.write("greater", data, 0), data, scaled)


def _read_prelu(call: Any, scope: RelaxScope) -> Canon:
    data, alpha = call.args
    shape, axis = tensor_type(data, scope).shape, int(call.attrs.axis)
    unread_unless(tensor_type(alpha, scope).shape == (shape[axis],))
    return Canon("nn.prelu", (data, alpha), {"axis": axis})


def _dropout(w: RelaxLowering, data: Any, rate: float) -> Any:
    return w.field(w.call(N.dropout, data, rate), 0)


def _read_dropout(call: Any, index: int, scope: RelaxScope) -> Canon:
    """The data as they are, or the mask, which keeps all of them."""
    if index == 0:
        return Canon("nn.dropout", tuple(call.args), {"rate": float(call.attrs.rate)})
    return Canon("ones_like", tuple(call.args))


def _read_gelu(approximate: str) -> RelaxLift:
    return lambda call, scope: Canon("gelu", tuple(call.args), {"approximate": approximate})


WRITE: Final[Mapping[str, Lower]] = {
    "nn.relu": lambda w, x: w.call(N.relu, x),
    "nn.relu6": lambda w, x: w.call(N.relu6, x),
    "nn.leaky_relu": lambda w, x, alpha: w.call(N.leakyrelu, x, alpha),
    "elu": _elu,
    "selu": lambda w, x: w.call(N.selu, x),
    "gelu": _gelu,
    "silu": lambda w, x: w.call(N.silu, x),
    "mish": _mish,
    "softplus": lambda w, x, beta, threshold: w.call(N.softplus, x, beta, threshold),
    "nn.prelu": _prelu,
    "nn.softmax": _softmax("softmax"),
    "nn.log_softmax": _softmax("log_softmax"),
    "nn.dropout": _dropout,
}

READ: Final[Mapping[str, RelaxLift]] = {
    "relax.nn.relu": plain("nn.relu", 1),
    "relax.nn.leakyrelu": plain("nn.leaky_relu", 1, alpha="alpha"),
    "relax.nn.selu": plain("selu", 1),
    "relax.nn.gelu": _read_gelu("none"),
    "relax.nn.gelu_tanh": _read_gelu("tanh"),
    "relax.nn.silu": plain("silu", 1),
    "relax.nn.softplus": plain("softplus", 1, beta="beta", threshold="threshold"),
    "relax.nn.prelu": _read_prelu,
    "relax.nn.softmax": plain("nn.softmax", 1, axis="axis"),
    "relax.nn.log_softmax": plain("nn.log_softmax", 1, axis="axis"),
}

FIELDS: Final[Mapping[str, FieldReader]] = {"relax.nn.dropout": _read_dropout}

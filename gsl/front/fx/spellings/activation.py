"""Spellings of activations, softmax, dropout, casts, clips and selections."""

from __future__ import annotations

import operator
from collections.abc import Mapping
from typing import Any, Final

import torch
import torch.nn.functional as F

from gsl.front.fx.spellings.bind import BoundCall, axis, integer, number, real, unread_unless
from gsl.front.fx.spellings.table import (
    FxLift,
    FxRow,
    Native,
    Site,
    call,
    dtype_name,
    dtype_of,
    is_floating,
    operand,
    options,
    row,
    tensor,
    words,
)
from gsl.front.tree import Canon
from gsl.spec.normalise import is_number

CAST_METHODS: Final = {
    "float": "float32", "double": "float64", "half": "float16", "bfloat16": "bfloat16", "int": "int32",
    "long": "int64", "short": "int16", "char": "int8", "byte": "uint8", "bool": "bool",
}  # fmt: skip


def _elu(c: BoundCall) -> Canon:
    """Torch decomposes ``selu`` into an ``elu`` times a number; halves are multiplied in float32."""
    unread_unless(c.input_scale == 1)
    found = Canon("elu", (tensor(c, c.input),), {"alpha": real(c.alpha)})
    if c.scale == 1:
        return found
    unread_unless(c.typed(c.input).dtype in ("float32", "float64"))
    return Canon("multiply", (found, real(c.scale)))


def _gelu(c: BoundCall) -> Canon:
    unread_unless(c.approximate in ("none", "tanh"))
    return Canon("gelu", (tensor(c, c.input),), {"approximate": c.approximate})


def _prelu(c: BoundCall) -> Canon:
    """Torch's channels are axis 1; a vector has none, and shares one weight."""
    kind, slopes = c.tensor_type(c.input), c.tensor_type(c.weight)
    unread_unless(kind is None or kind.ndim > 1)
    unread_unless(slopes is None or slopes.ndim == 1)
    return Canon("nn.prelu", (tensor(c, c.input), tensor(c, c.weight)), {"axis": 1})


def _glu(c: BoundCall) -> Canon:
    """Half of a tensor times the sigmoid of the other one, as torch decomposes it; halves are multiplied in float32."""
    kind = c.typed(c.input)
    unread_unless(kind.ndim > 0 and kind.dtype in ("float32", "float64"))
    where = axis(c.dim, kind.ndim)
    half = integer(kind.shape[where]) // 2
    unread_unless(half > 0)

    def part(begin: int) -> Canon:
        attrs = {"begin": (begin,), "end": (begin + half,), "axes": (where,)}
        return Canon("strided_slice", (tensor(c, c.input),), attrs)

    return Canon("multiply", (part(0), Canon("sigmoid", (part(half),))))


def softmax(op: str) -> FxLift:
    """``softmax(x, dim, dtype=None)``."""
    return lambda c: Canon(op, (cast_first(c),), {"axis": integer(c.dim)})


def _decomposed_softmax(op: str) -> FxLift:
    def read(c: BoundCall) -> Canon:
        x = tensor(c, c.input)
        if c.half_to_float is not False:
            x = Canon("cast", (x,), {"dtype": "float32"})
        return Canon(op, (x,), {"axis": integer(c.dim)})

    return read


def cast(c: BoundCall, x: Any, dtype: str) -> Any:
    """The operand in that dtype: itself, if it is known to have it."""
    found = c.tensor_type(x)
    return x if found is not None and found.dtype == dtype else Canon("cast", (x,), {"dtype": dtype})


def cast_first(c: BoundCall) -> Any:
    """The operand of a call whose ``dtype``, where it has one, is that to which the operand is cast first."""
    x = tensor(c, c.input)
    return x if c.dtype is None else cast(c, x, dtype_name(c.dtype))


def clip(c: BoundCall, x: Any, low: Any, high: Any) -> Canon:
    """``clamp``, with a bound or two; one that is a tensor may change the dtype."""
    x = tensor(c, x)
    bounds = [b for b in (low, high) if b is not None]
    unread_unless(bounds)
    if all(is_number(b) for b in bounds):
        return Canon("clip", (x,), {"a_min": low, "a_max": high})
    unread_unless(not c.in_place)
    result: Any = x
    for op, bound in (("maximum", low), ("minimum", high)):
        if bound is not None:
            result = Canon(op, (result, tensor(c, bound)))
    assert isinstance(result, Canon)
    return result


def _hardtanh(c: BoundCall) -> Canon:
    """``nn.ReLU6`` is a hardtanh too."""
    if (c.min, c.max) == (0, 6):
        return Canon("nn.relu6", (tensor(c, c.input),))
    bounds = [number(c.min), number(c.max)]
    if not is_floating(c, c.input):
        # Other than a clamp, it leaves integers what they are.
        unread_unless(all(float(b).is_integer() for b in bounds))
        bounds = [int(b) for b in bounds]
    return clip(c, c.input, *bounds)


def _clamp(c: BoundCall) -> Canon:
    return clip(c, c.input, c.min, c.max)


def _cast(dtype: str) -> FxLift:
    return lambda c: Canon("cast", (tensor(c, c.input),), {"dtype": dtype})


def _to(c: BoundCall) -> Canon:
    """``x.to(dtype)``, also with the device where the operand is; a move has no reading (``gsl.front.fx.reader``)."""
    dtype = c.dtype_of(c.input) if c.dtype is None else dtype_name(c.dtype)
    return Canon("cast", (tensor(c, c.input),), {"dtype": dtype})


def _to_device(c: BoundCall) -> Canon:
    unread_unless(isinstance(c.device, (torch.device, str)))
    return _to(c)


def _type_as(c: BoundCall) -> Canon:
    return Canon("cast", (tensor(c, c.input),), {"dtype": c.dtype_of(c.other)})


def _to_copy(c: BoundCall) -> Canon:
    unread_unless(c.layout in (None, torch.strided) and not c.pin_memory)
    return _to(c)


def _where(c: BoundCall) -> Canon:
    if is_number(c.input) and is_number(c.other):
        # Two numbers have torch's default dtype, not that of their kind.
        unread_unless(isinstance(c.input, float) == isinstance(c.other, float))
    return Canon("where", (tensor(c, c.condition), operand(c, c.input), operand(c, c.other)))


def _masked_fill(c: BoundCall) -> Canon:
    x, value = tensor(c, c.input), operand(c, c.value)
    if is_number(value):
        found = c.tensor_type(x)
        fits = isinstance(value, int) or is_floating(c, x)
        # An integer tensor would not take a number that is none.
        unread_unless(fits or (found is None and not float(value).is_integer()))
        # Truth values stay truth values, whatever the number.
        unread_unless(not isinstance(value, bool) and (found is None or found.dtype != "bool"))
    else:
        unread_unless(c.ndim(value) == 0 and c.dtype_of(value) == c.dtype_of(x))
    return Canon("where", (tensor(c, c.mask), value, x))


def _dropout(c: BoundCall) -> Canon:
    unread_unless(c.training is False)
    return Canon("nn.dropout", (tensor(c, c.input),), {"rate": real(c.p)})


# ---------------------------------------------------------------- writing


def _write_cast(s: Site) -> Native:
    if is_number(s.x):
        raise ValueError(f"cast: expected a tensor, found {s.x}")
    return call("to", s.x, dtype_of(s["dtype"]))


def _write_prelu(s: Site) -> Native:
    x, slope = s.operands
    axis, slopes = s["axis"], s.type(1)
    found = s.type()
    alike = slopes is None or (slopes.ndim == 1 and (found is None or found.dtype == slopes.dtype))
    if alike and (axis == 1 or (slopes is not None and slopes.shape == (1,))):
        return call(F.prelu, x, slope)
    behind = -1 - axis if axis < 0 else s.known().ndim - 1 - axis
    if slopes is not None and slopes.ndim != 1:
        behind = 0
    scaled = call(operator.mul, call(torch.reshape, slope, (-1, *(1,) * behind)) if behind else slope, x)
    return call(torch.where, call(operator.gt, x, 0), x, scaled)


_PLAIN: Final[Mapping[str, str]] = {
    "nn.relu": f"{words('relu')} F.relu",
    "selu": "F.selu torch.selu aten.selu.default",
    **{op: f"F.{name} aten.{name}.default" for op, name in (
        ("nn.relu6", "relu6"), ("silu", "silu"), ("mish", "mish"), ("hardswish", "hardswish"),
        ("hardsigmoid", "hardsigmoid"),
    )},
}  # fmt: skip
"""The spellings of activations without attributes; the first one is written."""

ROWS: Final = (
    *(row(op, spellings, "input inplace=False", inplace=True) for op, spellings in _PLAIN.items()),
    row("nn.leaky_relu", "F.leaky_relu aten.leaky_relu.default", "input negative_slope=0.01 inplace=False",
        inplace=True, alpha=("negative_slope", real)),
    row("gelu", "F.gelu aten.gelu.default", "input approximate='none'", read=_gelu, inplace=True,
        approximate=("approximate", str)),
    row("elu", "F.elu aten.elu.default", "input alpha=1.0 inplace=False scale=1 input_scale=1", read=_elu,
        inplace=True, alpha=("alpha", real)),
    FxRow("F.glu aten.glu.default", "input dim=-1", _glu),
    FxRow("F.hardtanh aten.hardtanh.default", "input min=-1.0 max=1.0 inplace=False", _hardtanh, inplace=True),
    row("softplus", "F.softplus aten.softplus.default", "input beta=1 threshold=20", beta=("beta", real),
        threshold=("threshold", real)),
    row("nn.prelu", f"F.prelu {words('prelu')}", "input weight", read=_prelu, write=_write_prelu),
    *(
        each
        for name in ("softmax", "log_softmax")
        for each in (
            row(
                f"nn.{name}", f"F.{name}", "input dim=None _stacklevel=3 dtype=None", read=softmax(f"nn.{name}"),
                write=lambda s: call(getattr(F, s.op.removeprefix("nn.")), s.x, dim=s["axis"]),
            ),
            FxRow(f"special.{name} {words(name, 'int')}", "input dim dtype=None", softmax(f"nn.{name}")),
            FxRow(f"aten._{name}.default", "input dim half_to_float", _decomposed_softmax(f"nn.{name}")),
        )
    ),
    row("clip", words("clamp clip"), "input min=None max=None", read=_clamp, inplace=True, a_min=("min", number),
        a_max=("max", number)),
    FxRow("aten.clamp.Tensor aten.clip.Tensor", "input min=None max=None", _clamp),
    FxRow(words("clamp_min", "default Tensor"), "input min max=None", _clamp, inplace=True),
    FxRow(words("clamp_max", "default Tensor"), "input max min=None", _clamp, inplace=True),
    *(FxRow(f".{name}", "input", _cast(dtype)) for name, dtype in CAST_METHODS.items()),
    row("cast", ".to", "input dtype non_blocking=False copy=False", read=_to, write=_write_cast),
    FxRow(".to", "input device dtype=None non_blocking=False copy=False", _to_device),
    FxRow(".type", "input dtype non_blocking=False", _to),
    FxRow("aten.to.dtype aten.to.device prims.convert_element_type.default", "input dtype device=None", _to),
    FxRow(
        "aten._to_copy.default aten.to.dtype_layout",
        "input dtype=None layout=None device=None pin_memory=None non_blocking=False", _to_copy,
    ),
    FxRow(".type_as aten.type_as.default", "input other", _type_as),
    row(
        "where", "torch.where aten.where.self aten.where.Scalar aten.where.ScalarOther aten.where.ScalarSelf",
        "condition input other", read=_where,
    ),
    FxRow(".where", "input condition other", _where),
    FxRow(words("masked_fill", "Scalar Tensor"), "input mask value", _masked_fill, inplace=True),
    row(
        "nn.dropout", "F.dropout F.dropout1d F.dropout2d F.dropout3d", "input p=0.5 training=True inplace=False",
        read=_dropout, write=lambda s: call(F.dropout, s.x, **options(p=(s["rate"], 0.5)), training=False),
    ),
    FxRow("F.alpha_dropout F.feature_alpha_dropout", "input p=0.5 training=False inplace=False", _dropout),
    FxRow(
        "torch.dropout aten.dropout.default torch.feature_dropout aten.feature_dropout.default",
        "input p training", _dropout, inplace=True,
    ),
)  # fmt: skip
FIELDS: Final = (FxRow("torch.native_dropout aten.native_dropout.default", "input p training", _dropout),)

"""Spellings of operators that make new tensors."""

from __future__ import annotations

from typing import Any, Final

import torch

from gsl.front.fx.spellings.bind import BoundCall, dims, integer, is_dim, number, unread_unless
from gsl.front.fx.spellings.table import (
    FxLift,
    FxRow,
    Native,
    Site,
    call,
    dtype_name,
    dtype_of,
    options,
    row,
    tensor,
)
from gsl.front.tree import Canon
from gsl.spec.normalise import is_number


def _plain(c: BoundCall) -> None:
    """Only a tensor like any other, where torch puts those of which nothing is said."""
    _usual(c)
    device = torch.get_default_device()
    unread_unless(c.device is None or (device.type == "cpu" and str(c.device) == "cpu"))


def _usual(c: BoundCall) -> None:
    """Only a tensor like any other, but for its device."""
    unread_unless(c.layout in (None, torch.strided) and not c.pin_memory and not c.requires_grad)


def _dtype(c: BoundCall) -> str:
    return dtype_name(torch.get_default_dtype() if c.dtype is None else c.dtype)


def _filled(op: str) -> FxLift:
    def read(c: BoundCall) -> Canon:
        _plain(c)
        return Canon(op, (), {"shape": dims(c.size), "dtype": _dtype(c)})

    return read


def _new(op: str) -> FxLift:
    """Of the dtype of a tensor, unless another one is given, and where that tensor is (``gsl.front.fx.reader``)."""

    def read(c: BoundCall) -> Canon:
        _usual(c)
        dtype = c.dtype_of(c.input) if c.dtype is None else dtype_name(c.dtype)
        value = () if op != "full" else (number(c.fill_value),)
        return Canon(op, value, {"shape": dims(c.size), "dtype": dtype})

    return read


def _tensor(c: BoundCall) -> Canon:
    """A tensor of one number."""
    unread_unless(is_number(c.fill_value))
    return _of_number(c, ())


def _of_number(c: BoundCall, shape: tuple[Any, ...]) -> Canon:
    """A tensor that is filled with a number. One without axes may lie anywhere (``gsl.front.fx.reader``)."""
    (_plain if shape else _usual)(c)
    unread_unless(not isinstance(c.fill_value, float) or c.dtype is not None or _is_usual())
    dtype = "" if c.dtype is None else dtype_name(c.dtype)
    return Canon("full", (number(c.fill_value),), {"shape": shape, "dtype": dtype})


def _scalar_tensor(c: BoundCall) -> Canon:
    _usual(c)
    return Canon("full", (number(c.s),), {"shape": (), "dtype": _dtype(c)})


def _is_usual() -> bool:
    return torch.get_default_dtype() == torch.float32


def _like(op: str) -> FxLift:
    def read(c: BoundCall) -> Canon:
        _usual(c)
        unread_unless(c.memory_format in (None, torch.preserve_format))
        value = () if op != "full_like" else (number(c.fill_value),)
        if c.dtype is not None:
            # Filled in the other dtype, in which the number may be another.
            result = Canon(op, (Canon("cast", (tensor(c, c.input),), {"dtype": dtype_name(c.dtype)}), *value))
            found = c.tensor_type(c.input)
            return result if found is None or found.dtype != dtype_name(c.dtype) else Canon(op, (c.input, *value))
        return Canon(op, (tensor(c, c.input), *value))

    return read


def _bound(value: Any) -> Any:
    unread_unless((is_number(value) and not isinstance(value, bool)) or is_dim(value))
    return value


def _arange(c: BoundCall) -> Canon:
    _plain(c)
    bounds = {"start": _bound(c.start), "stop": _bound(c.end), "step": _bound(c.step)}
    unread_unless(c.dtype is not None or _is_usual() or not any(isinstance(b, float) for b in bounds.values()))
    return Canon("arange", (), {**bounds, "dtype": "" if c.dtype is None else dtype_name(c.dtype)})


def _iota(c: BoundCall) -> Canon:
    """Integers by their number, as decompositions write ``arange``."""
    _plain(c)
    bounds = {"start": integer(c.start), "stop": integer(c.start) + integer(c.length) * integer(c.step)}
    unread_unless(integer(c.step) != 0)
    return Canon("arange", (), {**bounds, "step": integer(c.step), "dtype": dtype_name(c.dtype)})


# ---------------------------------------------------------------- writing


def _as_scalar(s: Site, position: int) -> Native:
    """A tensor of one element as one of no axes."""
    return call(torch.reshape, s.operands[position], ())


def _write_full(s: Site) -> Native:
    dtype = dtype_of(s["dtype"]) if s["dtype"] else None
    if is_number(s.x):
        return call(torch.full, s["shape"], s.x, **options(dtype=(dtype, None)))
    value = _as_scalar(s, 0)
    return call(torch.clone, call(torch.broadcast_to, value if dtype is None else call("to", value, dtype), s["shape"]))


def _write_full_like(s: Site) -> Native:
    if is_number(s.operands[1]):
        return call(torch.full_like, s.x, s.operands[1])
    return call(torch.fill, s.x, _as_scalar(s, 1))


_OPTIONS = "* dtype=None layout=None device=None pin_memory=None requires_grad=False"
_LIKE = f"{_OPTIONS} memory_format=None"

ROWS: Final = (
    *(
        row(op, f"torch.{op} aten.{op}.default", f"*size {_OPTIONS}", read=_filled(op),
            write=lambda s: call(getattr(torch, s.op), s["shape"], dtype=dtype_of(s["dtype"])))
        for op in ("zeros", "ones")
    ),
    *(FxRow(f".new_{op} aten.new_{op}.default", f"input *size {_OPTIONS}", _new(op)) for op in ("zeros", "ones")),
    FxRow(".new_full aten.new_full.default", f"input size fill_value {_OPTIONS}", _new("full")),
    row("full", "torch.full aten.full.default", f"size fill_value {_OPTIONS}",
        read=lambda c: _of_number(c, dims(c.size)), write=_write_full),
    FxRow("torch.tensor", f"fill_value {_OPTIONS}", _tensor),
    FxRow("torch.scalar_tensor aten.scalar_tensor.default", f"s {_OPTIONS}", _scalar_tensor),
    *(row(op, f"torch.{op} aten.{op}.default", f"input {_LIKE}", read=_like(op)) for op in ("zeros_like", "ones_like")),
    row("full_like", "torch.full_like aten.full_like.default", f"input fill_value {_LIKE}", read=_like("full_like"),
        write=_write_full_like),
    FxRow("prims.iota.default", "length * start step dtype device layout=None pin_memory=None requires_grad", _iota),
    row("arange", "torch.arange aten.arange.default", f"end * start=0 step=1 {_OPTIONS}", read=_arange,
        write=lambda s: call(torch.arange, s["start"], s["stop"], s["step"], dtype=dtype_of(s["dtype"]))),
    FxRow("torch.arange aten.arange.start aten.arange.start_step", f"start end step=1 {_OPTIONS}", _arange),
)

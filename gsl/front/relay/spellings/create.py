"""Operators that make tensors of nothing but attributes, or in the likeness of another tensor."""

from __future__ import annotations

from typing import Any, Final

from tvm import relay

from gsl.front.relay.spellings.table import RelayCall, RelayLowering, RelayRow, check, const, number, same, scalar
from gsl.front.tree import Canon, LiteralOperand


def _filled(name: str) -> RelayRow:
    function = getattr(relay, name)

    def read(r: RelayCall) -> Canon:
        return Canon(name, (), {"shape": r.result.shape, "dtype": r.result.dtype})

    return RelayRow(name, lambda w: function(w["shape"], w["dtype"]), {name: read})


def _alike(name: str) -> RelayRow:
    function = getattr(relay, name)
    return RelayRow(name, lambda w: function(w.x), {name: same(name)})


def _value(operand: Any) -> Any:
    found = scalar(operand)
    return operand if found is None else LiteralOperand(found)


def _read_full(r: RelayCall) -> Canon:
    value, dtype = _value(r.x), r.result.dtype
    check(r.type().dtype == dtype)
    # A number alone is of torch's default dtype.
    own = (
        {bool: "bool", int: "int64", float: "float32"}[type(value.value)]
        if isinstance(value, LiteralOperand)
        else dtype
    )
    return Canon("full", (value,), {"shape": r.result.shape, "dtype": "" if own == dtype else dtype})


def _read_full_like(r: RelayCall) -> Canon:
    check(r.type(0).dtype == r.type(1).dtype)
    return Canon("full_like", (r.x, _value(r.call.args[1])))


def _fill(w: RelayLowering, position: int, dtype: str) -> Any:
    """The number to fill with, as a tensor without axes."""
    found = w.types[position]
    if isinstance(found, float) and not dtype.startswith(("float", "bfloat")):
        found = bool(found) if dtype == "bool" else int(found)
    if isinstance(found, (bool, int, float)):
        return const(found, dtype)
    value = w.expr(position, dtype)
    return value if w.type(position).ndim == 0 else relay.reshape(value, [])


def _full(w: RelayLowering) -> Any:
    dtype = w.result.dtype
    return relay.full(_fill(w, 0, dtype), w["shape"], dtype)


def _full_like(w: RelayLowering) -> Any:
    return relay.full_like(w.x, _fill(w, 1, w.type().dtype))


def _read_arange(r: RelayCall) -> Canon:
    start, stop, step = map(number, r.operands)
    dtype = r.result.dtype
    if dtype.startswith(("int", "uint")):
        check(all(float(bound).is_integer() for bound in (start, stop, step)))
    start, stop, step = (int(bound) if float(bound).is_integer() else bound for bound in (start, stop, step))
    return Canon("arange", (), {"start": start, "stop": stop, "step": step, "dtype": dtype})


def _arange(w: RelayLowering) -> Any:
    dtype = w["dtype"]
    bounds = [w[name] for name in ("start", "stop", "step")]
    if "int" in dtype and not all(float(bound).is_integer() for bound in bounds):
        raise ValueError(f"arange: in Relay, integers count from and by integers, found {tuple(bounds)}")
    return relay.arange(*[const(bound, dtype) for bound in bounds], dtype)


ROWS: Final = (
    _filled("zeros"),
    _filled("ones"),
    RelayRow("full", _full, {"full": _read_full}),
    _alike("zeros_like"),
    _alike("ones_like"),
    RelayRow("full_like", _full_like, {"full_like": _read_full_like}),
    RelayRow("arange", _arange, {"arange": _read_arange}),
)

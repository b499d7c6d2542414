"""Spellings of the operators that make tensors of nothing but attributes, or in the likeness of another tensor."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, Final

from tvm import relax, tirx

from gsl.front.core.lower import Lower
from gsl.front.relax.spellings.table import (
    RelaxLift,
    RelaxLowering,
    RelaxScope,
    dims,
    dtype_name,
    number,
    tensor_type,
    unread_unless,
)
from gsl.front.tree import Canon
from gsl.graph import Dim, SymDim
from gsl.spec import TABLE
from gsl.spec.meaning import evaluate
from gsl.spec.normalise import is_number

R = relax.op


def _constant(function: Any) -> Lower:
    return lambda w, shape, dtype: w.call(function, relax.ShapeExpr(w.prims(shape)), dtype)


def _filled(w: RelaxLowering, value: Any, shape: Sequence[Dim]) -> Any:
    """A tensor filled with a number or a tensor of one element."""
    if is_number(value):
        return w.full(value, shape, w.dtype)
    scalar = w.reshape(w.cast(value, w.dtype), ())
    return w.call(R.broadcast_to, scalar, w.prims(shape))


def _full(w: RelaxLowering, value: Any, shape: Sequence[Dim], dtype: str) -> Any:
    if is_number(value) and math.isfinite(value):
        return w.call(R.full, relax.ShapeExpr(w.prims(shape)), w.cast(value, w.dtype), dtype or None)
    return _filled(w, value, shape)


def _read_constant(op: str) -> RelaxLift:
    def read(call: Any, scope: RelaxScope) -> Canon:
        shape = dims(call.args[0], scope)
        return Canon(op, (), {"shape": shape, "dtype": tensor_type(call, scope).dtype})

    return read


def _read_full(call: Any, scope: RelaxScope) -> Canon:
    shape, value = call.args
    attrs = {"shape": dims(shape, scope), "dtype": dtype_name(call.attrs.dtype)}
    return Canon("full", (value,), attrs)


def _read_like(op: str, arity: int) -> RelaxLift:
    """The dtype is the operand's, which the type of the reading tells."""
    return lambda call, scope: Canon(op, tuple(call.args[:arity]))


def _arange(w: RelaxLowering, start: Any, stop: Any, step: Any, dtype: str) -> Any:
    bounds = [w.target.prim(bound) if isinstance(bound, SymDim) else bound for bound in (start, stop, step)]
    counts_floats = any(isinstance(bound, float) for bound in bounds)
    if isinstance(step, SymDim) or (counts_floats and not all(map(is_number, bounds))):
        raise ValueError(f"Relax doesn't count from {start} to {stop} by {step}")
    if is_number(step) and step < 0:
        # Relax miscounts those that go down.
        found = evaluate(TABLE["arange"], (), {"start": start, "stop": stop, "step": step, "dtype": dtype})
        return relax.const(found.tolist(), dtype)
    return w.call(R.arange, *bounds, dtype)


def _read_arange(call: Any, scope: RelaxScope) -> Canon:
    bounds = [_bound(arg, scope) for arg in call.args]
    dtype = dtype_name(call.attrs.dtype)
    # Of floats, integers are not counted: they are truncated at every step.
    unread_unless("float" in dtype or not any(isinstance(bound, float) for bound in bounds))
    return Canon("arange", (), {**dict(zip(("start", "stop", "step"), bounds, strict=True)), "dtype": dtype})


def _bound(arg: Any, scope: RelaxScope) -> Any:
    return number(arg) if isinstance(arg, (tirx.IntImm, tirx.FloatImm)) else scope.dim(arg)


WRITE: Final[Mapping[str, Lower]] = {
    "zeros": _constant(R.zeros),
    "ones": _constant(R.ones),
    "full": _full,
    "zeros_like": lambda w, x: w.call(R.zeros_like, x),
    "ones_like": lambda w, x: w.call(R.ones_like, x),
    "full_like": lambda w, x, value: _filled(w, value, w.shape),
    "arange": _arange,
}

READ: Final[Mapping[str, RelaxLift]] = {
    "relax.zeros": _read_constant("zeros"),
    "relax.ones": _read_constant("ones"),
    "relax.full": _read_full,
    "relax.zeros_like": _read_like("zeros_like", 1),
    "relax.ones_like": _read_like("ones_like", 1),
    "relax.full_like": _read_like("full_like", 2),
    "relax.arange": _read_arange,
}

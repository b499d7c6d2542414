"""Spellings of the operators that select elements of a tensor by place."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import numpy as np
from tvm import ir, relax

from gsl.front.core.lower import Lower
from gsl.front.relax.spellings.reading import (
    RelaxLift,
    RelaxScope,
    dims,
    number,
    plain,
    produced,
    tensor_type,
    unread_unless,
)
from gsl.front.relax.spellings.writing import RelaxLowering
from gsl.front.tree import Canon, LiteralOperand
from gsl.spec.normalise import is_number

R = relax.op

# ---------------------------------------------------------------- slices


def _strided_slice(w: RelaxLowering, data: Any, begin: Any, end: Any, strides: Any, axes: Any) -> Any:
    if not axes:
        return data
    places = [relax.Tuple([_prim(w, item) for item in items]) for items in (axes, begin, end, strides)]
    return w.call(R.strided_slice, data, *places)


def _prim(w: RelaxLowering, value: Any) -> Any:
    return relax.prim_value(w.target.prim(value))


def _read_strided_slice(call: Any, scope: RelaxScope) -> Canon:
    unread_unless(not call.attrs.assume_inbound)
    data, axes, begin, end, *rest = call.args
    attrs = {"axes": dims(axes, scope), "begin": dims(begin, scope), "end": dims(end, scope)}
    if rest:
        attrs["strides"] = dims(rest[0], scope)
    return Canon("strided_slice", (data,), attrs)


# ---------------------------------------------------------------- lookups


def _take(w: RelaxLowering, data: Any, indices: Any, axis: int | None) -> Any:
    if axis is None:
        data, axis = w.reshape(data, (int(np.prod(w.sizes_of(data))),)), 0
    if is_number(indices):
        indices = relax.const(indices + w.sizes_of(data)[axis] if indices < 0 else indices, "int64")
    return w.call(R.take, data, indices, axis)


def _read_take(call: Any, scope: RelaxScope) -> Canon:
    data, indices = call.args
    # The other modes say what places outside of the axis stand for.
    unread_unless(str(call.attrs.mode) == "fast")
    unread_unless("int" in tensor_type(indices, scope).dtype)
    axis = None if call.attrs.axis is None else int(call.attrs.axis)
    place = produced(indices, scope)
    if isinstance(place, ir.GenericConst) and not place.value.shape:
        indices = LiteralOperand(int(place.value.numpy()))
    return Canon("take", (data, indices), {"axis": axis})


def _scatter(w: RelaxLowering, data: Any, indices: Any, updates: Any, axis: int) -> Any:
    own = w.shape_of(indices)
    if w.shape_of(updates) != own:
        updates = w.write("strided_slice", updates, begin=(0,) * len(own), end=own)
    return w.call(R.scatter_elements, data, indices, updates, axis)


def _read_scatter(call: Any, scope: RelaxScope) -> Canon:
    unread_unless(str(call.attrs.reduction) == "update")
    return Canon("scatter", tuple(call.args), {"axis": int(call.attrs.axis)})


# ---------------------------------------------------------------- diagonals


def _trilu(w: RelaxLowering, data: Any, k: int, upper: bool) -> Any:
    return w.call(R.triu if upper else R.tril, data, k)


def _read_trilu(upper: bool) -> RelaxLift:
    return lambda call, scope: Canon("trilu", (call.args[0],), {"k": number(call.args[1]), "upper": upper})


WRITE: Final[Mapping[str, Lower]] = {
    "strided_slice": _strided_slice,
    "take": _take,
    "gather": lambda w, data, indices, axis: w.call(R.gather_elements, data, indices, axis),
    "scatter": _scatter,
    "trilu": _trilu,
}

READ: Final[Mapping[str, RelaxLift]] = {
    "relax.strided_slice": _read_strided_slice,
    "relax.take": _read_take,
    "relax.gather_elements": plain("gather", 2, axis="axis"),
    "relax.scatter_elements": _read_scatter,
    "relax.tril": _read_trilu(upper=False),
    "relax.triu": _read_trilu(upper=True),
}

LOOKS_AT: Final[Mapping[str, frozenset[str]]] = {"relax.take": frozenset()}
"""A reading looks for an index that is written in the program."""

"""Types of the calls of small instances: those of :mod:`gsl.spec.meaning`, found by a run on real tensors."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import lru_cache
from math import prod
from typing import Any, cast

from gsl.graph import CONST, Node, Op, TensorType, TupleType, Type
from gsl.graph.node import GETITEM, TUPLE
from gsl.spec import TABLE, meaning
from gsl.spec.meaning import CallKey
from gsl.spec.normalise import is_number

MOST_ELEMENTS = 4096
"""No tensor of an instance has more elements."""
_MOST = 2**16
"""No tensor that a rewrite makes of it has more."""
_DIVISIONS = ("floor_divide", "floor_mod", "mod")
"""Operators that have no values where an operand is zero."""
Known = TensorType | TupleType | bool | int | float | None


def known_of(node: Any) -> Known:
    """The known demands about an operand: its type, or the number that it is."""
    value: Any = node.attrs.get("value") if node.op == CONST else None
    return cast(Known, value if is_number(value) else node.type)


def infer(op: Op, operands: tuple[Node, ...], attrs: Mapping[str, Any]) -> Type | None:
    """The type of a call of an instance; ValueError if it is ill-typed. Graphs of instances are made with it."""
    if op == TUPLE:
        return TupleType(tuple([operand.type for operand in operands]))
    if op == GETITEM:
        whole, index = operands[0].type, attrs["index"]
        if not isinstance(whole, TupleType) or not -len(whole.fields) <= index < len(whole.fields):
            raise ValueError(f"{whole} has no field {index}")
        field: Type | None = whole.fields[index]
        return field
    return type_of_call(str(op), tuple(map(known_of, operands)), attrs)


def type_of_call(op: str, operands: tuple[Known, ...], attrs: Mapping[str, Any]) -> Type | None:
    """The type of a canonical call. ValueError if it is ill-typed."""
    try:
        found = _cached(CallKey(TABLE[op], operands, attrs))
    except TypeError:  # an attribute that can't be a key
        return meaning.infer(TABLE[op], operands, attrs)
    if isinstance(found, ValueError):
        raise ValueError(*found.args)
    return found


@lru_cache(maxsize=16384)
def _cached(call: CallKey) -> Type | ValueError | None:
    import torch

    spec = call.spec
    make = torch.ones if spec.name in _DIVISIONS else torch.zeros
    try:
        with torch.no_grad(), _without_onednn(torch):
            return _type(meaning.evaluate(spec, [_tensor(torch, known, make) for known in call.operands], call.attrs))
    except Exception as refusal:
        if "not implemented" not in str(refusal):
            return ValueError(str(refusal).partition("\n")[0])
        try:  # what has no kernel of that dtype may still be well-typed
            return meaning.infer(spec, call.operands, call.attrs)
        except ValueError as error:
            return error


@contextmanager
def _without_onednn(torch: Any) -> Iterator[None]:
    """Run torch's own kernels: on some processors, oneDNN ends the process at a padded convolution in float16."""
    before = torch.backends.mkldnn.enabled
    torch.backends.mkldnn.enabled = False
    try:
        yield
    finally:
        torch.backends.mkldnn.enabled = before


def _tensor(torch: Any, known: Known, make: Any) -> Any:
    if isinstance(known, TupleType):
        return tuple([_tensor(torch, field, make) for field in known.fields])
    if isinstance(known, TensorType):
        if prod(known.shape) > _MOST:  # type: ignore[operator]
            raise ValueError(f"{known} is too large")
        return make(known.shape, dtype=getattr(torch, known.dtype))
    return known


def _type(value: Any) -> Type:
    if isinstance(value, tuple):
        return TupleType(tuple(map(_type, value)))
    return TensorType(tuple(value.shape), str(value.dtype).removeprefix("torch."))

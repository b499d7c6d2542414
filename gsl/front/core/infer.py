"""Types and values of single calls of a view: those of canonical calls by their meaning, of others by the framework."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final

import numpy as np

from gsl.errors import FrontEndError
from gsl.front.core.handle import is_literal
from gsl.graph import GETITEM, LEAVES, TUPLE, Inference, Node, Op, TensorType, TupleType, Type, dtype_name, op_name
from gsl.spec import TABLE, meaning

_DTYPES: Final = {bool: "bool", int: "int64", float: "float32", complex: "complex64"}


def dtype_of_number(value: Any) -> str:
    """The dtype that torch gives a Python number."""
    return next(dtype for kind, dtype in _DTYPES.items() if isinstance(value, kind))


def number_of(array: Any) -> bool | int | float | None:
    """The number that an array without axes is; ``None`` for any other array, and for what is no number."""
    if array.shape != ():
        return None
    value = shortest(array[()]) if array.dtype == np.float32 else array.item()
    return value if isinstance(value, (bool, int, float)) else None


def shortest(value: Any) -> float:
    """The shortest of the numbers that are the same in float32: 0.1, not 0.10000000149011612."""
    exact = np.float32(value)
    found = float(str(exact))
    # The shortest name of the largest number is a larger one, which numpy rounds where it compares in float32.
    return float(exact) if abs(found) > float(np.finfo(np.float32).max) else found


def require_finite(value: float, found: float, dtype: str) -> None:
    """ValueError for a finite number that became infinite in a dtype: torch computes with the number itself."""
    if math.isfinite(value) and not math.isfinite(found):
        raise ValueError(f"{value!r} is no number of {dtype}")


def type_of_literal(value: Any) -> Type:
    """The type of a Python number (as torch has it), or of a tensor."""
    if hasattr(value, "shape"):
        return TensorType(tuple(map(int, value.shape)), dtype_name(value.dtype))
    return TensorType((), dtype_of_number(value))


def known(operand: Node) -> meaning.Operand:
    """The number that an operand is, or its type."""
    return operand.attrs["value"] if is_literal(operand) else operand.type


def infer(op: Op, operands: tuple[Node, ...], attrs: Mapping[str, Any], opaque: Inference) -> Type | None:
    """The type of a call, that of an opaque call by ``opaque``; ``None`` if it does not follow.

    ValueError if the call is ill-typed.
    """
    if op == TUPLE:
        return TupleType(tuple([operand.type for operand in operands]))
    if op == GETITEM:
        return _field_type(operands[0], int(attrs["index"]))
    if isinstance(op, str):
        return meaning.infer(TABLE[op], list(map(known, operands)), attrs)
    return opaque(op, operands, attrs)


def inferred(op: Op, operands: tuple[Node, ...], attrs: Mapping[str, Any]) -> Type | None:
    """The type of a canonical call; ``None`` also for a call whose type depends on sizes that are not known."""
    try:
        return infer(op, operands, attrs, lambda op, operands, attrs: None)
    except ValueError:
        if meaning.has_symbols(tuple([operand.type for operand in operands])):
            return None
        raise


def _field_type(whole: Node, index: int) -> Type | None:
    """The type of a field of a tuple, ``None`` where that of the tuple is not known. ValueError if there is none."""
    fields = whole.type
    if fields is None:
        return None
    if not isinstance(fields, TupleType) or not -len(fields.fields) <= index < len(fields.fields):
        raise ValueError(f"{fields} has no field {index}")
    return fields.fields[index]


def refined(known: Type | None, meant: Type | None) -> Type | None:
    """The framework's type of a call. The sizes that it does not know are taken from the type that the call's meaning
    implies.

    ``None`` if the two contradict each other.
    """
    match known, meant:
        case TensorType(), TensorType():
            if known.dtype != meant.dtype or known.ndim != meant.ndim:
                return None
            pairs = list(zip(known.shape, meant.shape))
            if any(a != b for a, b in pairs if isinstance(a, int) and isinstance(b, int)):
                return None
            return TensorType(tuple([a if isinstance(a, int) else b for a, b in pairs]), known.dtype)
        case TupleType(), TupleType():
            if len(known.fields) != len(meant.fields):
                return None
            fields = tuple([refined(a, b) for a, b in zip(known.fields, meant.fields)])
            return None if None in fields else TupleType(fields)
    return None


def evaluate(
    node: Node, operands: Sequence[Any], tensors: Callable[[Sequence[Any]], Iterable[Any]],
    opaque: Callable[[Node, list[Any]], Any],
) -> Any:  # fmt: skip
    """The value of a node, that of an opaque call by ``opaque``, without gradients.

    ``tensors`` gives the operands of a call as torch tensors and Python numbers. FrontEndError for a call with effects.
    """
    import torch

    with torch.no_grad():
        if node.op == TUPLE:
            return tuple(operands)
        if node.op == GETITEM:
            return operands[0][node.attrs["index"]]
        if node.op in LEAVES:
            return node.attrs["value"]
        values = list(tensors(operands))
        if isinstance(node.op, str):
            return meaning.evaluate(TABLE[node.op], values, node.attrs)
        if node.effect is not None:
            raise FrontEndError(f"{node.name}: {op_name(node.op)} has effects, and is not computed ahead of time")
        return opaque(node, values)

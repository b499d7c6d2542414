"""The shape that a reshape asks for, in Relay's codes."""

from __future__ import annotations

import math
from typing import Any

from gsl.graph.dim import Dim, SymDim
from gsl.spec import normalise as n
from gsl.spec.spec import Types

_INFER, _COPY, _REST, _MERGE, _SPLIT = -1, 0, -2, -3, -4


def newshape(value: Any, types: Types) -> tuple[Dim, ...]:
    """The shape of the result where that of the operand is known; otherwise the codes as they are.

    A size that can't be computed, since the sizes are symbolic and it is not known whether they divide, stays -1.
    """
    items = value if isinstance(value, (tuple, list)) else (value,)
    try:
        codes = tuple(map(n.dimension, items))
    except ValueError:
        raise n.wrong(value, "a shape") from None
    if any(isinstance(code, int) and code < _SPLIT for code in codes):
        raise n.wrong(value, "a shape, or Relay's codes from -4 to 0")
    source = n.shape_of(types)
    if source is None:
        return codes
    try:
        shape = _decode(codes, source)
    except IndexError:
        raise n.wrong(value, f"a shape for an operand of shape {source}") from None
    if shape.count(_INFER) > 1:
        raise n.wrong(value, "at most one -1")
    total = math.prod(source)
    if _INFER in shape:
        place = shape.index(_INFER)
        size = _quotient(total, math.prod([*shape[:place], *shape[place + 1 :]]))
        if size is None:
            raise n.wrong(value, f"a shape for {total} elements")
        shape[place] = size
    elif isinstance(total, int) and all(isinstance(d, int) for d in shape) and math.prod(shape) != total:
        raise n.wrong(value, f"a shape for {total} elements")
    return tuple(shape)


def _decode(codes: tuple[Dim, ...], source: tuple[Dim, ...]) -> list[Dim]:
    """The shape without any code but -1. IndexError if the operand has too few axes."""
    # Of no elements at all, 0 is a size.
    copy = None if 0 in source else _COPY
    shape: list[Dim] = []
    place = taken = 0
    while place < len(codes):
        code = codes[place]
        place += 1
        if code == _REST:
            shape += source[taken:]
            taken = len(source)
            continue
        if code == copy:
            shape.append(source[taken])
        elif code == _MERGE:
            shape.append(source[taken] * source[taken + 1])
            taken += 1
        elif code == _SPLIT:
            left, right = codes[place], codes[place + 1]
            place += 2
            whole = source[taken]
            shape.append(_known(_quotient(whole, right)) if left == _INFER else left)
            shape.append(_known(_quotient(whole, left)) if right == _INFER else right)
        else:
            shape.append(code)
        taken += 1
    return shape


def _known(size: Dim | None) -> Dim:
    if size is None:
        raise IndexError
    return size


def _quotient(total: Dim, known: Dim) -> Dim | None:
    """``total / known``, -1 if it is not known whether that is an integer, ``None`` if it is not."""
    if isinstance(known, int) and known <= 0:
        return None
    rest = total % known
    if rest == 0:
        return total // known
    return _INFER if isinstance(rest, SymDim) else None

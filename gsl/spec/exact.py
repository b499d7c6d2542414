"""Values of attributes as keys, by which results for equal calls are found again."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

from gsl.graph.dim import SymDim
from gsl.graph.types import TensorType, TupleType

_PLAIN = frozenset((int, str, type(None)))


def exact(value: Any) -> Hashable:
    """A key that only an equal value of the same types has: it tells True, 1 and 1.0 apart, and 0.0 and -0.0.

    TypeError for what is not known to be a value that never changes.
    """
    kind = type(value)
    if kind in _PLAIN:
        return value  # type: ignore[no-any-return]
    if kind is tuple:
        return value if _PLAIN.issuperset(map(type, value)) else tuple(map(exact, value))
    if kind is float:
        return (kind, repr(value))
    if kind is list:
        return (kind, *map(exact, value))
    if kind is bool or kind is SymDim or kind is TensorType or kind is TupleType:
        return (kind, value)
    raise TypeError(f"{value!r} of type {kind.__name__} is no key")

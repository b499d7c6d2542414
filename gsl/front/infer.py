"""The types of the calls that all front ends share: tuples and their fields."""

from __future__ import annotations

from gsl.graph import Node, Type
from gsl.graph.types import TupleType


def field_type(whole: Node, index: int) -> Type | None:
    """The type of a field of a tuple, ``None`` where that of the tuple is not known. ValueError if there is none."""
    fields = whole.type
    if fields is None:
        return None
    if not isinstance(fields, TupleType) or not -len(fields.fields) <= index < len(fields.fields):
        raise ValueError(f"{fields} has no field {index}")
    return fields.fields[index]

"""The types of graph nodes: a tensor's shape and dtype, or a tuple of types."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Union

from gsl.graph.dim import Dim


@dataclass(frozen=True, slots=True)
class TensorType:
    """A tensor of a shape (ints and symbolic dimensions) and a dtype (``"float32"``, ``"int64"``, ``"bool"``)."""

    shape: tuple[Dim, ...]
    dtype: str

    @property
    def ndim(self) -> int:
        return len(self.shape)

    def __str__(self) -> str:
        return f"{self.dtype}[{', '.join(map(str, self.shape))}]"


@dataclass(frozen=True, slots=True)
class TupleType:
    """A tuple whose fields have these types (``None`` where a field's type is not known)."""

    fields: tuple[Type | None, ...]

    def __str__(self) -> str:
        return f"({', '.join(map(str, self.fields))})"


Type = Union[TensorType, TupleType]

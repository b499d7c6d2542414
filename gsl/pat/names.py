"""Patterns under the names of TVM's dataflow pattern language."""

from __future__ import annotations

from typing import Any

from gsl.pat.call import Call, GetItem, Tuple
from gsl.pat.leaf import Const, Variable, Wildcard


def is_op(op: Any) -> Call:
    """A call of an operator, with any operands; ``is_op("add")(x, y)`` fixes them."""
    return Call._free(op)


def wildcard() -> Wildcard:
    """Any node."""
    return Wildcard()


def is_const() -> Const:
    """Any literal."""
    return Const()


def is_var(*, shape: Any = None, dtype: Any = None, ndim: Any = None) -> Variable:
    """Any input or parameter."""
    return Variable(shape=shape, dtype=dtype, ndim=ndim)


def is_tuple(*items: Any) -> Tuple:
    """A tuple of these fields; a single list is accepted."""
    return Tuple(*(items[0] if len(items) == 1 and isinstance(items[0], (list, tuple)) else items))


def is_tuple_get_item(whole: Any, index: int | None = None) -> GetItem:
    """A field of a tuple."""
    return GetItem(whole, index)

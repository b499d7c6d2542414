"""Equality of a graph's literal with the one that a pattern wants."""

from __future__ import annotations

from typing import Any

from gsl.attr.evaluate import same
from gsl.errors import UndecidableError


def decidedly_same(left: Any, right: Any) -> bool:
    """True if two values are equal, whatever the symbolic sizes."""
    try:
        return same(left, right)
    except UndecidableError:
        return False


def equal_literal(wanted: Any, actual: Any) -> bool:
    """True if a literal of the graph is the wanted one: by value, in the graph's dtype; a bool is no number.

    A wanted number equals a tensor that is filled with it.
    """
    if not hasattr(actual, "shape"):
        if hasattr(wanted, "shape"):
            wanted = wanted.item() if tuple(wanted.shape) == () else None
        return isinstance(wanted, bool) is isinstance(actual, bool) and bool(wanted == actual)
    if str(getattr(actual, "layout", "torch.strided")) != "torch.strided" or getattr(actual, "is_quantized", False):
        return False  # sparse and quantised tensors are not compared
    import numpy

    values = numpy.asarray(wanted)
    kind = str(actual.dtype).removeprefix("torch.")
    if values.shape not in ((), tuple(actual.shape)) or (values.dtype == bool) is not (kind == "bool"):
        return False
    if hasattr(wanted, "shape") and values.shape != tuple(actual.shape):
        return False  # an array is a tensor of that shape; only a number stands for any
    if "int" in kind:
        return numpy.array_equal(numpy.broadcast_to(values, tuple(actual.shape)), numpy.asarray(actual))
    if values.dtype.kind not in "biuf":
        return False
    filled = actual.new_tensor(values) if hasattr(actual, "new_tensor") else values.astype(actual.dtype)
    return bool((actual == filled).all())

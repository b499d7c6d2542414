"""Values of a graph and of a rule: which are known, and which are the same."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from typing import Any, Final

from gsl.attr.evaluate import same
from gsl.errors import UndecidableError
from gsl.graph import CONST, PARAM, Node, TensorType, dtype_name
from gsl.spec import Trait, spec_of

AT_MOST_SINGLE: Final = frozenset(("float32", "float16", "bfloat16"))
"""The dtypes with which frameworks compute in single precision, or in a lower one."""

_HALVES: Final = {"float16": (11, -13), "bfloat16": (8, -125)}
"""The number of binary digits of halves, and the exponent of the smallest number that has all of them."""


def decidedly_same(left: Any, right: Any) -> bool:
    """True if two values are equal, whatever the symbolic sizes."""
    try:
        return same(left, right)
    except UndecidableError:
        return False


def known_value(node: Node) -> Any:
    """The numbers of a weight or a literal; ``None`` where they are not known, as those of a weight without data."""
    value = node.attrs.get("value") if node.op in (PARAM, CONST) else None
    if value is None or not hasattr(value, "shape"):
        return value if isinstance(value, (bool, int, float)) else None
    return None if _is_any(_INCOMPARABLE, value) or _is_any(("complex", "float8"), value) else value


_INCOMPARABLE: Final = ("sparse", "qint", "quint", "meta", "FakeTensor")
"""The words that tell tensors whose elements are not known, or not compared: by dtype, layout, device, and class."""


def _is_any(words: tuple[str, ...], tensor: Any) -> bool:
    """True for a tensor whose dtype, layout, device or class has one of these words in its name."""
    names = f"{tensor.dtype} {getattr(tensor, 'layout', '')} {getattr(tensor, 'device', '')} {type(tensor).__name__}"
    return any(word in names for word in words)


def equal_literal(wanted: Any, actual: Any) -> bool:
    """True if a literal of the graph is the wanted one: by value, in the graph's dtype; a bool is no number.

    A wanted number equals a tensor that is filled with it.
    """
    if not hasattr(actual, "shape"):
        if hasattr(wanted, "shape"):
            wanted = wanted.item() if tuple(wanted.shape) == () else None
        return isinstance(wanted, bool) is isinstance(actual, bool) and bool(wanted == actual)
    if _is_any(_INCOMPARABLE, actual):
        return False
    import numpy

    values = numpy.asarray(wanted)
    kind = dtype_name(actual.dtype)
    if values.shape not in ((), tuple(actual.shape)) or (values.dtype == bool) is not (kind == "bool"):
        return False
    if hasattr(wanted, "shape") and values.shape != tuple(actual.shape):
        return False  # an array is a tensor of that shape; only a number stands for any
    if "int" in kind:
        found = actual.cpu() if hasattr(actual, "cpu") else actual  # NumPy reads nothing of another device
        return numpy.array_equal(numpy.broadcast_to(values, tuple(actual.shape)), numpy.asarray(found))
    if values.dtype.kind not in "biuf":
        return False
    filled = actual.new_tensor(values) if hasattr(actual, "new_tensor") else values.astype(actual.dtype)
    return bool((actual == filled).all())


def is_literal(wanted: Any, node: Node) -> bool:
    """True if a literal of the graph is the wanted one where it is used.

    A tensor that is filled with a wanted number is no number where it broadcasts what it is combined with.
    """
    is_equal = equal_literal(wanted, node.attrs["value"]) or equal_in_arithmetic(wanted, node)
    return is_equal and (hasattr(wanted, "shape") or not any(_is_broadcast(user, node) for user in node.users))


def _is_broadcast(call: Node, literal: Node) -> bool:
    """True for arithmetic whose result has axes, or sizes, that only the literal has among the operands."""
    spec = spec_of(call.op)
    if spec is None or Trait.BROADCASTING not in spec.traits or getattr(literal.type, "shape", ()) == ():
        return False
    others = [operand.type for operand in call.operands if operand is not literal]
    if not isinstance(call.type, TensorType) or not all(isinstance(type, TensorType) for type in others):
        return False
    shapes = [type.shape for type in others if isinstance(type, TensorType)]
    places = range(1, len(call.type.shape) + 1)
    return not all(
        any(len(shape) >= place and decidedly_same(shape[-place], call.type.shape[-place]) for shape in shapes)
        for place in places
    )


def equal_in_arithmetic(wanted: Any, node: Node) -> bool:
    """True if a literal of the graph is the wanted float in the precision of the arithmetic that is all its use.

    So the square root of two in double precision is a constant of float32, which has nine decimals. As a factor or a
    divisor of halves, it is 1.4140625, too: torch takes Python's numbers in single precision there, but the result is
    rounded as much.
    """
    actual = node.attrs["value"]
    if type(wanted) is not float or type(actual) is not float or not math.isclose(wanted, actual, rel_tol=1e-2):
        return False
    import numpy

    if numpy.float32(wanted) == numpy.float32(actual):
        return all(_is_arithmetic(user, AT_MOST_SINGLE) for user in node.users)
    return any(
        _rounded(wanted, *precision) == actual
        and all(user.op in ("multiply", "divide") and _is_arithmetic(user, (dtype,)) for user in node.users)
        for dtype, precision in _HALVES.items()
    )


def _rounded(value: float, bits: int, least: int) -> float:
    """A number with so many binary digits, fewer below 2 to the power of ``least``."""
    place = bits - max(math.frexp(value)[1], least)
    return math.ldexp(round(math.ldexp(value, place)), -place) if math.isfinite(value) else value


def _is_arithmetic(node: Node, dtypes: Collection[str]) -> bool:
    """True for element-wise arithmetic in one of these dtypes."""
    spec = spec_of(node.op)
    known = isinstance(node.type, TensorType) and node.type.dtype in dtypes
    return known and spec is not None and Trait.BROADCASTING in spec.traits


def canonical(node: Node, given: Mapping[str, Any]) -> Mapping[str, Any]:
    """The canonical form of some attributes of a call, given its others; ValueError if there is none.

    They are completed together, because the form of one may depend on another (a split's sections on its axis).
    """
    spec = spec_of(node.op)
    if spec is None or any(name not in spec.attrs for name in given):
        return given
    types = tuple([operand.type for operand in node.operands])
    others = spec.own(node.attrs)
    full = spec.complete({**others, **{n: v for n, v in given.items() if n in others}}, types)
    return {name: full[name] if name in others else spec.normalise(name, given[name], types) for name in given}

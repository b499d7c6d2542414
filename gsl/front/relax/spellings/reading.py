"""Reading: the common part of the readers of Relax's calls."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Protocol

import numpy as np
from tvm import ir, relax, tirx

from gsl.front.tree import Canon, LiteralOperand
from gsl.graph import Dim, TensorType, TupleType, Type
from gsl.spec import TABLE
from gsl.spec.meaning import Operand, infer


@dataclass(frozen=True, slots=True, eq=False)
class Reshaped:
    """A ``relax.Constant`` seen with another shape: a bias that is written as a constant of shape (1, C, 1, 1)."""

    constant: Any
    shape: tuple[int, ...]


class RelaxScope(Protocol):
    """The function around a call: its variables, and sizes in terms of both sides."""

    def lookup(self, var: Any) -> Any | None:
        """The expression that is bound to the variable in the function; ``None`` for a parameter."""

    def type_of(self, expr: Any) -> Type | None:
        """The type of an expression, ``None`` where its shape or dtype is not known."""

    def dim(self, prim: Any) -> Dim:
        """A size of Relax (``PrimExpr``, also an int) as a dimension."""

    def prim(self, dim: Dim) -> Any:
        """A dimension as a size of Relax: an int or a ``PrimExpr``."""

    @property
    def builder(self) -> Any:
        """A builder that knows that the symbolic sizes of the function are not negative."""


RelaxLift = Callable[[Any, RelaxScope], Canon]
"""Reads a call; raises Unread where it is not exactly a canonical one."""

FieldReader = Callable[[Any, int, RelaxScope], Canon]
"""Reads one field of a call with several results."""


class RelaxUnread(Exception):
    """The call is not exactly a canonical one."""


def unread_unless(condition: bool) -> None:
    """End the reading unless it is exact."""
    if not condition:
        raise RelaxUnread


# Attributes and arguments


def ints(value: Any) -> tuple[int, ...]:
    """A list of numbers among the attributes."""
    return tuple([int(item) for item in value])


def optional_ints(value: Any) -> tuple[int, ...] | None:
    return None if value is None else ints(value)


def dtype_name(value: Any) -> str:
    """The name of a dtype, "" for none."""
    return "" if value is None else str(value)


def number(value: Any) -> bool | int | float:
    """An immediate, as it stands among the arguments, as a Python number."""
    unread_unless(isinstance(value, (tirx.IntImm, tirx.FloatImm)))
    dtype = str(value.ty.dtype)
    if dtype == "bool":
        return bool(value.value)
    if isinstance(value, tirx.IntImm):
        return int(value.value)
    # In single precision, the shortest decimal that is rounded to it.
    return float(str(np.float32(value.value))) if dtype == "float32" else float(value.value)


def dims(shape: Any, scope: RelaxScope) -> tuple[Dim, ...]:
    """The sizes of a shape or a tuple of sizes; Unread where they are not written out."""
    if isinstance(shape, relax.Var):
        shape = scope.lookup(shape)
    if isinstance(shape, relax.ShapeExpr):
        return tuple([scope.dim(size) for size in shape.values])
    unread_unless(isinstance(shape, relax.Tuple))
    return tuple([scope.dim(size) for size in shape.fields])


def tensors(value: Any) -> Any:
    """A list of tensors: the tuple of them, or a variable that is one."""
    return Canon("tuple", tuple(value.fields)) if isinstance(value, relax.Tuple) else value


def produced(expr: Any, scope: RelaxScope) -> Any:
    """The expression that computes a value, looked up through variables."""
    while isinstance(expr, relax.Var):
        bound = scope.lookup(expr)
        if bound is None:
            return expr
        expr = bound
    return expr


def tensor_type(expr: Any, scope: RelaxScope) -> TensorType:
    """The type of a tensor; Unread where it is not known."""
    found = scope.type_of(expr)
    if not isinstance(found, TensorType):
        raise RelaxUnread
    return found


def is_call(expr: Any, *names: str) -> bool:
    """True for a call of one of these operators."""
    return isinstance(expr, relax.Call) and isinstance(expr.op, ir.Op) and expr.op.name in names


# Readers of calls whose arguments and attributes are those of a canonical operator

_CONVERT: Final[Mapping[type, Callable[[Any], Any]]] = {bool: bool, int: int, float: float, str: str}


def plain(op: str, arity: int, **attrs: str) -> RelaxLift:
    """The reader of a call with ``arity`` tensors; ``attrs`` names Relax's attribute for each of GSL's."""

    def read(call: Any, scope: RelaxScope) -> Canon:
        unread_unless(len(call.args) == arity)
        return Canon(op, tuple(call.args), {own: attribute(call, theirs) for own, theirs in attrs.items()})

    return read


def attribute(call: Any, name: str) -> Any:
    """An attribute as a Python value: a number, a string, ``None`` or a tuple of ints."""
    value = getattr(call.attrs, name)
    if value is None:
        return None
    for kind, convert in _CONVERT.items():
        if isinstance(value, kind):
            return convert(value)
    return ints(value)


# Types


def type_of(tree: Any, scope: RelaxScope) -> Operand:
    """The type of a reading, or the number that a literal is. ValueError where a call is ill-typed."""
    if isinstance(tree, LiteralOperand):
        value: Operand = tree.value
        return value
    if isinstance(tree, Reshaped):
        found = scope.type_of(tree.constant)
        return TensorType(tree.shape, found.dtype) if isinstance(found, TensorType) else None
    if not isinstance(tree, Canon):
        return scope.type_of(tree)
    operands = [type_of(operand, scope) for operand in tree.operands]
    if tree.op == "tuple":
        return TupleType(tuple(operands))  # type: ignore[arg-type]
    return infer(TABLE[tree.op], operands, tree.attrs)


def checked(tree: Canon, wanted: Type | None, scope: RelaxScope) -> Canon | None:
    """The reading if it has the type of the expression that was read, which has to be known; otherwise none."""
    if wanted is None:
        return None
    try:
        return tree if type_of(tree, scope) == wanted else None
    except ValueError:
        return None

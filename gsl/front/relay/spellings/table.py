"""The form of the table: rows, and the tools of their readers and writers."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Final

import numpy as np
import tvm
from tvm import relay
from tvm.ir import Op
from tvm.runtime import _ffi_api

from gsl.front.core.infer import number_of, require_finite
from gsl.front.core.lower import LoweringTarget, completed, promoted, type_or_number
from gsl.front.tree import Canon, LiteralOperand
from gsl.graph import SymDim, TensorType, Type
from gsl.spec import TABLE
from gsl.spec.meaning import infer

FLOATS: Final = frozenset(("float16", "bfloat16", "float32", "float64"))


class RelayUnreadError(Exception):
    """A call has no exact canonical reading."""


def check(condition: bool) -> None:
    """End the reading of a call unless it is certain to be exact."""
    if not condition:
        raise RelayUnreadError


# ---------------------------------------------------------------- reading


def items(array: Any) -> tuple[Any, ...]:
    """The items of an array of TVM, of which none is asked for more than once."""
    get = _ffi_api.ArrayGetItem
    return tuple([get(array, number) for number in range(len(array))])


def name_of(op: Op) -> str:
    """The name of an operator, which TVM is asked for once: operators stay where they are registered."""
    address = op.handle.value
    found = _NAMES.get(address)
    if found is None:
        found = _NAMES[address] = str(op.name)
    return found


_NAMES: Final[dict[int, str]] = {}


def is_call(expr: Any, *names: str) -> bool:
    """True for a call of one of these operators."""
    return isinstance(expr, relay.Call) and isinstance(expr.op, Op) and name_of(expr.op) in names


def names_of(attrs: Any) -> Collection[str]:
    """The names of attributes. (Those of TVM are no mappings: they can't be gone through themselves.)"""
    kind = type(attrs)
    if kind in _FIELDS:
        return _FIELDS[kind]
    if not hasattr(attrs, "keys"):
        # A class that is not known in Python: of its attributes, only the names can be listed.
        return set(dir(attrs)) - set(dir(kind))
    names = tuple(map(str, attrs.keys()))
    if kind is not tvm.ir.DictAttrs:
        _FIELDS[kind] = names
    return names


_FIELDS: Final[dict[type, tuple[str, ...]]] = {}
"""The names of the attributes by class, which TVM is asked for once."""


@dataclass(frozen=True)
class RelayCall:
    """A call of Relay's that is to be read: ``r["axis"]`` is an attribute as a Python value, ``r.x`` the first
    operand."""

    call: Any
    scope: LoweringTarget

    @cached_property
    def attrs(self) -> Mapping[str, Any]:
        attrs = self.call.attrs
        if attrs is None:
            return {}
        return {name: plain(getattr(attrs, name)) for name in names_of(attrs)}

    def __getitem__(self, name: str) -> Any:
        return self.attrs[name]

    @property
    def x(self) -> Any:
        return self.operands[0]

    @cached_property
    def operands(self) -> tuple[Any, ...]:
        return items(self.call.args)

    def type(self, position: int = 0) -> TensorType:
        """The type of an operand that the reading depends on."""
        return tensor_type(self.scope.type_of(self.operands[position]))

    @property
    def result(self) -> TensorType:
        return tensor_type(self.scope.type_of(self.call))

    @property
    def out_dtype(self) -> str:
        """The dtype that is asked for, as the canonical operators have it: "" where it is that of both operands."""
        wanted = self["out_dtype"]
        return "" if wanted == self.type(0).dtype == self.type(1).dtype else str(wanted)

    def size(self, axis: int, position: int = 0) -> int:
        """A size of an operand, which has to be known."""
        found = self.type(position).shape[axis]
        check(isinstance(found, int))
        assert isinstance(found, int)
        return found


def tensor_type(found: Type | None) -> TensorType:
    if not isinstance(found, TensorType):
        raise RelayUnreadError
    return found


def plain(value: Any) -> Any:
    """The value of an attribute in Python: numbers, strings, tuples, ``None``. UnreadError for a size not known."""
    if value is None or isinstance(value, (bool, int, float)):
        return value
    if isinstance(value, (str, tvm.runtime.String)):
        return str(value)
    if isinstance(value, (tvm.tir.IntImm, tvm.tir.FloatImm)):
        return value.value
    if isinstance(value, (tvm.ir.Array, list, tuple)):
        return tuple(map(plain, value))
    if isinstance(value, relay.Expr):
        return value
    raise RelayUnreadError


def scalar(expr: Any) -> bool | int | float | None:
    """The number that a constant without axes is; ``None`` for any other expression."""
    is_scalar = isinstance(expr, relay.Constant) and not expr.data.shape and str(expr.data.dtype) != "bfloat16"
    return number_of(expr.data.numpy()) if is_scalar else None


def literal(expr: Any) -> Any:
    """An operand, as a literal if it is a number."""
    found = scalar(expr)
    return expr if found is None else LiteralOperand(found)


def literals(operands: Sequence[Any]) -> tuple[Any, ...]:
    """The operands with a literal for each constant number beside a tensor."""
    found = tuple(map(literal, operands))
    return tuple(operands) if all(isinstance(operand, LiteralOperand) for operand in found) else found


def number(expr: Any) -> bool | int | float:
    """The number that an operand is, which the canonical operator has for an attribute."""
    found = scalar(expr)
    if found is None:
        raise RelayUnreadError
    return found


RelayLift = Callable[[RelayCall], Canon]
"""Reads a call, or raises UnreadError. That the types are those of the call is looked at afterwards."""


def same(op: str, **given: Any) -> RelayLift:
    """The reader of a call whose operands and attributes are the canonical ones."""
    own = {name: spec for name, spec in TABLE[op].attrs.items() if spec.derive is None and name not in given}

    def read(r: RelayCall) -> Canon:
        attrs = {name: r[name] for name in own if name in r.attrs}
        flags = {name: bool(value) for name, value in attrs.items() if isinstance(own[name].default, bool)}
        return Canon(op, r.operands, {**attrs, **flags, **given})

    return read


def of_floats(op: str) -> RelayLift:
    """The same for an operator that torch has of floats alone."""
    identity = same(op)

    def read(r: RelayCall) -> Canon:
        check(r.type().dtype in FLOATS)
        return identity(r)

    return read


# ---------------------------------------------------------------- writing


class RelayLowering:
    """A canonical call that is to be written: ``w["axis"]``, its operands, and their types.

    The attributes are in canonical form, without those that follow from the operands.
    """

    def __init__(self, op: str, attrs: Mapping[str, Any], operands: Sequence[Any], scope: LoweringTarget) -> None:
        self.op = op
        self.operands = tuple(operands)
        self.types = tuple([type_or_number(operand, scope) for operand in self.operands])
        self.attrs = completed(op, attrs, self.types)

    def __getitem__(self, name: str) -> Any:
        value = self.attrs[name]
        if isinstance(value, SymDim) or (isinstance(value, tuple) and any(isinstance(item, SymDim) for item in value)):
            raise ValueError(f"{self.op}: {name}: Relay needs sizes that are known, found {value}")
        return value

    def type(self, position: int = 0) -> TensorType:
        """The type of an operand on which the writing depends."""
        found = self.types[position]
        if not isinstance(found, TensorType):
            raise ValueError(f"{self.op}: the type of operand {position} must be known to write it in Relay")
        return found

    def shape(self, position: int = 0) -> tuple[int, ...]:
        """The shape of an operand, all of whose sizes have to be known."""
        return self.known(self.type(position).shape)

    def known(self, shape: Sequence[Any]) -> tuple[int, ...]:
        if not all(isinstance(size, int) for size in shape):
            raise ValueError(f"{self.op}: Relay needs sizes that are known, found {tuple(shape)}")
        return tuple(shape)

    @cached_property
    def result(self) -> TensorType:
        """The type of the call."""
        found = infer(TABLE[self.op], self.types, self.attrs)
        if not isinstance(found, TensorType):
            raise ValueError(f"{self.op}: the types of the operands must be known to write it in Relay")
        return found

    def expr(self, position: int = 0, dtype: str = "") -> Any:
        """An operand as an expression, in a dtype if one is given."""
        operand, found = self.operands[position], self.types[position]
        if isinstance(found, (bool, int, float)):
            return const(found, dtype or self.result.dtype)
        if dtype and self.type(position).dtype != dtype:
            return relay.cast(operand, dtype)
        return operand

    @property
    def x(self) -> Any:
        return self.expr(0)

    def options(self, *skipped: str) -> dict[str, Any]:
        """The attributes that are not the default ones, but for some."""
        found = {name: self[name] for name in self.attrs if name not in skipped}
        return {name: value for name, value in found.items() if not is_default(self.op, name, value)}

    def products(self) -> tuple[Any, Any, dict[str, Any]]:
        """Two operands that are multiplied, cast where their dtypes differ, and the dtype of the result as an option.
        """
        wanted = self["out_dtype"]
        if wanted and self.type(0).dtype == self.type(1).dtype:
            return self.expr(0), self.expr(1), {} if wanted == self.type(0).dtype else {"out_dtype": wanted}
        return self.expr(0, wanted), self.expr(1, wanted), {}

    def common(self, first: int = 0, second: int = 1) -> str:
        """The dtype that torch gives two operands when they meet."""
        return promoted(self.types[first], self.types[second])

    def promoted(self, first: int = 0, second: int = 1) -> tuple[Any, Any]:
        """Two operands in their common dtype."""
        dtype = self.common(first, second)
        return self.expr(first, dtype), self.expr(second, dtype)


RelayLower = Callable[[RelayLowering], Any]
"""Writes a call as a nested expression, or raises ValueError."""


def const(value: Any, dtype: str) -> Any:
    """A constant: a number or an array in a dtype. ValueError if it does not fit."""
    if dtype == "bfloat16":
        return relay.cast(const(value, "float32"), dtype)
    if "int" in dtype and isinstance(value, (int, float)):
        limits = np.iinfo(dtype)
        if value != value // 1 or not limits.min <= value <= limits.max:
            raise ValueError(f"{value!r} is no constant of {dtype}")
    with np.errstate(over="ignore"):
        made = np.array(value, dtype=dtype)
    if isinstance(value, (int, float)):
        require_finite(value, float(made), dtype)
    return relay.const(made, dtype)


def reshaped(w: RelayLowering, x: Any, shape: Sequence[Any]) -> Any:
    """A tensor of another shape, of which Relay can infer one size that is not known."""
    sizes = [-1 if isinstance(size, SymDim) else size for size in shape]
    if sizes.count(-1) > 1 or (-1 in sizes and 0 in sizes) or any(size < -1 for size in sizes):
        raise ValueError(f"{w.op}: Relay needs sizes that are known, but for one, found {tuple(shape)}")
    return relay.reshape(x, sizes, **({"allowzero": True} if 0 in sizes else {}))


def is_default(op: str, name: str, value: Any) -> bool:
    default = TABLE[op].attrs[name].default
    return type(default) is type(value) and bool(default == value)


# ---------------------------------------------------------------- rows


@dataclass(frozen=True)
class RelayRow:
    """One operator in both directions: its lowering, and the calls that are read as it.

    ``read`` is by the name of Relay's operator; ``fields`` by that and the place of one of several results.
    """

    op: str
    write: RelayLower
    read: Mapping[str, RelayLift] = field(default_factory=dict)
    fields: Mapping[tuple[str, int], RelayLift] = field(default_factory=dict)


def row(op: str, function: Callable[..., Any]) -> RelayRow:
    """The row of an operator that Relay has just as it is."""
    return RelayRow(
        op, lambda w: function(*[w.expr(place) for place in range(len(w.operands))], **w.options()), {op: same(op)}
    )


def last(axis: int, ndim: int) -> int:
    """An axis as Relay's default names it: the last one is -1."""
    return -1 if axis == ndim - 1 else axis

"""The tools of the readers of Relay's calls, and of the writers of canonical ones."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any, Final

import numpy as np
import tvm
from tvm import relay
from tvm.ir import Op
from tvm.runtime import _ffi_api

from gsl.front.core.infer import number_of, require_finite
from gsl.front.core.lower import LoweringTarget
from gsl.front.tree import Canon, LiteralOperand
from gsl.front.tvm.spellings import TvmCall, TvmLowering, TvmUnread, function
from gsl.graph import Dim, SymDim, TensorType, TupleType, Type
from gsl.spec import TABLE, Trait
from gsl.spec.meaning import has_symbols
from gsl.spec.normalise import is_number

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


_PER_AXIS: Final = frozenset(("strides", "padding", "output_padding", "dilation", "pool_size"))


class RelayCall(TvmCall):
    """A call of Relay that is to be read."""

    def __getitem__(self, name: str) -> Any:
        value = super().__getitem__(name)
        if name == "out_dtype":
            # Of the dtype of both operands it is the default.
            return "" if value == self.type(0).dtype == self.type(1).dtype else value
        # One number counts for all axes of a convolution or a pooling.
        is_window = name in _PER_AXIS and name_of(self.call.op).startswith("nn.")
        return value[0] if is_window and len(value) == 1 else value

    def number(self, position: int) -> bool | int | float:
        """The number that an operand is, which the canonical operator has for an attribute."""
        found = scalar(self.operands[position])
        if found is None:
            raise TvmUnread
        return found


def scalar(expr: Any) -> bool | int | float | None:
    """The number that a constant without axes is; ``None`` for any other expression."""
    is_scalar = isinstance(expr, relay.Constant) and not expr.data.shape and str(expr.data.dtype) != "bfloat16"
    return number_of(expr.data.numpy()) if is_scalar else None


def literal(expr: Any) -> Any:
    """An operand, as a literal if it is a number."""
    found = scalar(expr)
    return expr if found is None else LiteralOperand(found)


def with_literals(canon: Canon) -> Canon:
    """A reading of arithmetic with a literal for each constant number beside a tensor."""
    if canon.op not in TABLE or Trait.BROADCASTING not in TABLE[canon.op].traits:
        return canon
    found = tuple(map(literal, canon.operands[-2:]))
    if all(isinstance(operand, LiteralOperand) for operand in found):
        return canon
    return Canon(canon.op, (*canon.operands[:-2], *found), canon.attrs)


# ---------------------------------------------------------------- writing


class RelayTarget:
    """The types of the expressions over which a call is written, and of those of which it is composed: Relay has not
    inferred these yet."""

    def __init__(self, scope: LoweringTarget) -> None:
        self.scope = scope
        self._made: dict[int, tuple[Any, Type]] = {}
        """The types of new expressions by the identity of these, which stay."""

    def type_of(self, value: Any) -> Type | None:
        known = self._made.get(id(value))
        return self.scope.type_of(value) if known is None else known[1]

    def note(self, value: Any, type: Type) -> Any:
        """The new expression, whose type is noted."""
        self._made[id(value)] = value, type
        return value


class RelayLowering(TvmLowering[RelayTarget]):
    """The writing of one canonical call as a nested expression."""

    framework = "Relay"
    functions = relay

    def call(self, name: str, *args: Any, type: Any = None, **attrs: Any) -> Any:
        """A call of a function of Relay, which has the type of the canonical call unless another one is given; or its
        first result, where it has several and the canonical call has one.

        ValueError for sizes that are not known.
        """
        for given in (*args, *attrs.values()):
            if has_symbols(tuple(given) if isinstance(given, list) else given):
                raise ValueError(f"Relay needs sizes that are known, found {given}")
        made = function(self.functions, name)(*args, **attrs)
        if isinstance(made, relay.expr.TupleWrapper):
            made = made.astuple() if isinstance(self.result, TupleType) else made[0]
        return self.target.note(made, self.result if type is None else type)

    def cast(self, value: Any, dtype: str) -> Any:
        if is_number(value):
            return self.tensor(value, dtype)
        own = self.type_of(value)
        return value if own.dtype == dtype else self.call("cast", value, dtype, type=TensorType(own.shape, dtype))

    def tensor(self, value: Any, dtype: str) -> Any:
        """A number or an array as a tensor. ValueError if it does not fit."""
        return self.target.note(const(value, dtype), TensorType(np.shape(value), dtype))

    def permute(self, value: Any, axes: Sequence[int]) -> Any:
        if list(axes) == list(range(len(axes))):
            return value
        own = self.type_of(value)
        type = TensorType(tuple([own.shape[axis] for axis in axes]), own.dtype)
        return self.call("transpose", value, list(axes), type=type)

    def reshape(self, value: Any, shape: Sequence[Dim]) -> Any:
        own = self.type_of(value)
        return value if own.shape == tuple(shape) else self.reshaped(value, shape)

    def reshaped(self, value: Any, shape: Sequence[Dim]) -> Any:
        """A tensor of another shape, of which Relay can infer one size that is not known."""
        sizes = [-1 if isinstance(size, SymDim) else size for size in shape]
        if sizes.count(-1) > 1 or (-1 in sizes and 0 in sizes) or any(size < -1 for size in sizes):
            raise ValueError(f"Relay needs sizes that are known, but for one, found {tuple(shape)}")
        zero = {"allowzero": True} if 0 in sizes else {}
        return self.call("reshape", value, sizes, type=TensorType(tuple(shape), self.dtype_of(value)), **zero)

    def full(self, value: bool | int | float, shape: Sequence[Dim], dtype: str) -> Any:
        type = TensorType(tuple(shape), dtype)
        return self.call("full", self.cast(value, dtype), tuple(shape), dtype, type=type)


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


def last(axis: int, ndim: int) -> int:
    """An axis as Relay's default names it: the last one is -1."""
    return -1 if axis == ndim - 1 else axis

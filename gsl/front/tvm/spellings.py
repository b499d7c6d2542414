"""The common part of the tables by which the dialects of TVM spell the canonical operators, read in both directions."""

from __future__ import annotations

import re
from abc import abstractmethod
from collections.abc import Callable, Iterable, Mapping
from functools import cached_property, reduce
from types import MappingProxyType
from typing import Any, ClassVar, Final, NamedTuple

from tvm.ir import Op

from gsl.front.core.lower import Lower, Lowering, LoweringT, floor_mod_of_floats
from gsl.front.core.opaque import COUNTS, RANKS, pattern_of
from gsl.front.tree import NOT_COVERED, Canon, given_up, type_of_reading
from gsl.front.tvm.tensors import python_value
from gsl.graph import Node, TensorType, TupleType, Type
from gsl.spec import TABLE
from gsl.spec.normalise import is_number

# ---------------------------------------------------------------- reading


class TvmUnread(Exception):
    """The call is not exactly a canonical one."""


def unread_unless(condition: bool) -> None:
    """End the reading unless it is exact."""
    if not condition:
        raise TvmUnread


def tensor_type(found: Type | None) -> TensorType:
    """The type of a tensor; Unread where it is not known."""
    if not isinstance(found, TensorType):
        raise TvmUnread
    return found


class TvmCall:
    """A call that is to be read: ``r["axis"]`` is an attribute as a Python value, ``r.x`` the first operand."""

    def __init__(self, call: Any, scope: Any) -> None:
        self.call = call
        self.scope = scope

    def __getitem__(self, name: str) -> Any:
        value = getattr(self.call.attrs, name)
        if name.endswith("dtype"):
            return "" if value is None else str(value)
        return python_value(value)

    def has(self, name: str) -> bool:
        """True if the call has such an attribute."""
        return hasattr(self.call.attrs, name)

    @cached_property
    def operands(self) -> tuple[Any, ...]:
        return tuple(self.call.args)

    @property
    def x(self) -> Any:
        return self.operands[0]

    def type_of(self, expr: Any) -> TensorType:
        """The type of a tensor; Unread where it is not known."""
        return tensor_type(self.scope.type_of(expr))

    def type(self, position: int = 0) -> TensorType:
        """The type of an operand that the reading depends on."""
        return self.type_of(self.operands[position])

    @property
    def result(self) -> TensorType:
        return self.type_of(self.call)

    def size(self, axis: int, position: int = 0) -> int:
        """A size of an operand, which has to be known."""
        found = self.type(position).shape[axis]
        unread_unless(isinstance(found, int))
        assert isinstance(found, int)
        return found


TvmLift = Callable[[Any], Canon]
"""Reads a :class:`TvmCall`; raises Unread where it is not exactly a canonical one."""

TvmFieldLift = Callable[[Any, int], Canon]
"""Reads one field of a call with several results."""


def is_call(expr: Any, *names: str) -> bool:
    """True for a call of one of these operators."""
    op = getattr(expr, "op", None)
    return isinstance(op, Op) and hasattr(expr, "args") and op.name in names


def is_float(dtype: str) -> bool:
    return "float" in dtype


def same(
    op: str, test: Callable[[str], bool] | None = None, *, given: Mapping[str, Any] = MappingProxyType({}),
    renamed: Mapping[str, str] = MappingProxyType({}),
) -> TvmLift:  # fmt: skip
    """The reader of a call whose operands and attributes are the canonical ones.

    ``test`` tells the dtypes of the first operand for which the two are the same. ``given`` are attributes that the
    call has not just so, ``renamed`` the names in TVM of those that have another one.
    """
    spec = TABLE[op]
    own = spec.own_attrs

    def read(r: TvmCall) -> Canon:
        unread_unless(spec.takes(len(r.operands)))
        if test is not None:
            unread_unless(test(r.type().dtype))
        attrs = dict(given)
        for name, attr in own.items():
            theirs = renamed.get(name, name)
            if name not in attrs and r.has(theirs):
                value = r[theirs]
                # Truth values may arrive as numbers.
                attrs[name] = bool(value) if isinstance(attr.default, bool) else value
        return Canon(op, r.operands, attrs)

    return read


def over_axes(op: str, test: Callable[[str], bool] | None = None) -> TvmLift:
    """The reader of a reduction over some axes. TVM takes none for all of them, or can't compile it."""
    identity = same(op, test)

    def read(r: TvmCall) -> Canon:
        unread_unless(r["axis"] != ())
        found = identity(r)
        if op in ("sum", "prod") and "int" in (dtype := r.result.dtype) and dtype != "int64":
            return Canon("cast", (found,), {"dtype": dtype})  # the canonical ones of integers are int64
        return found

    return read


def read_scatter(r: TvmCall) -> Canon:
    """The reading of ``scatter_elements``, of those that update the places with values as they are."""
    unread_unless(r["reduction"] == "update")
    return same("scatter")(r)


def topk_row(flag: str, is_largest: bool) -> TvmRow:
    """The row of ``topk``, which always sorts. It gives the largest elements where a flag has that value."""

    def write(w: TvmLowering[Any], data: Any, k: int, axis: int, largest: bool, sorted: bool) -> Any:
        return w.call("topk", data, k, axis, "both", dtype="int64", **{flag: largest is is_largest})

    def read(r: TvmCall) -> Canon:
        k, largest = r["k"], bool(r[flag]) is is_largest
        unread_unless(isinstance(k, int) and (r["ret_type"], r["dtype"]) == ("both", "int64"))
        return Canon("topk", (r.x,), {"k": k, "axis": r["axis"], "largest": largest, "sorted": True})

    return row("topk", write=write, read=read)


def is_plain_equation(equation: str) -> bool:
    """True for an einsum without dots, of which no index stands twice in one operand or the result."""
    return "." not in equation and all(len(set(term)) == len(term) for term in re.split(r",|->", equation))


def reading(
    reader: Callable[[], Canon], wanted: Type | None, type_of: Callable[[Any], Any],
    fits: Callable[[Any, Any], object],
) -> Canon | None:  # fmt: skip
    """The reading of an expression if it has the type that is wanted, which has to be known; ``None`` if not."""
    if wanted is None:
        return None
    try:
        tree = reader()
        return tree if fits(wanted, type_of_reading(tree, type_of)) else None
    except (TvmUnread, ValueError):
        return None


def field_of(type: Type | None, index: int) -> Type | None:
    """The type of a field of a tuple; ``None`` where it has none, or is not known."""
    return type.fields[index] if isinstance(type, TupleType) and index < len(type.fields) else None


def unread_reason(node: Node, reader: TvmLift, call: TvmCall) -> str:
    """The reason why a reader has not read the call of an opaque node."""
    try:
        reader(call)
    except (TvmUnread, ValueError) as error:
        return given_up(node, error)
    return NOT_COVERED


def pattern(
    op: Any, operands: int | None, attrs: Mapping[str, Any], functions: Any, variable: Callable[[str, int], Any],
    read: Callable[[Any], Canon | None],
) -> str | None:  # fmt: skip
    """The pattern of the canonical operators as which a call of TVM's operator is loaded, as far as that can be told.

    ``None`` if it is loaded as it is. ``functions`` make the calls, ``variable`` a variable of a rank.
    """
    if not isinstance(op, Op):
        return None

    def made(count: int, rank: int) -> Canon | None:
        variables = [variable(name, rank) for name in "xyzuv"[:count]]
        return read(function(functions, op.name.removeprefix("relax."))(*variables, **attrs))

    return pattern_of(COUNTS if operands is None else (operands,), RANKS, made, _text)


def _text(value: Any) -> str:
    """The name of a variable; anything else as it is printed."""
    return str(getattr(value, "name_hint", None) or getattr(value, "name", None) or repr(value))


# ---------------------------------------------------------------- writing


def function(functions: Any, name: str) -> Callable[..., Any]:
    """The function of a module of TVM that makes calls of an operator. AttributeError if there is none of its name."""
    found: Callable[..., Any] = reduce(getattr, name.split("."), functions)
    return found


class TvmLowering(Lowering[LoweringT]):
    """The writing of one canonical call: its type, and the means to make calls of TVM."""

    functions: ClassVar[Any]
    """The module of TVM with the functions that make calls."""

    @abstractmethod
    def call(self, name: str, *args: Any, **attrs: Any) -> Any:
        """A call of the operator of TVM of that name."""

    def promoted(self, x: Any, y: Any) -> list[Any]:
        """Two tensors or numbers in the dtype in which torch computes with them."""
        common = self.common(x, y)
        return [self.cast(value, common) for value in (x, y)]

    def each(self, data: Any) -> Any:
        """The tensors of a tuple in the dtype of the result."""
        return [self.cast(x, self.dtype) for x in data] if isinstance(data, (tuple, list)) else data


class TvmRow(NamedTuple):
    """One canonical operator in both directions: its lowering, and the calls that are read as it."""

    op: str
    write: Lower
    read: Mapping[str, TvmLift] = {}
    """The readers by the name of TVM's operator."""
    fields: Mapping[str, TvmFieldLift] = {}
    """The same for those with several results, of which single ones are read."""


def row(
    op: str, name: str = "", *, write: Lower | None = None, read: TvmLift | None = None,
    test: Callable[[str], bool] | None = None, **renamed: str,
) -> TvmRow:  # fmt: skip
    """The row of an operator that TVM has just as it is, some attributes by other names; or ``write`` or ``read`` says
    otherwise. ``test`` tells the dtypes of the first operand for which it has it."""
    name = name or op

    def plain(w: TvmLowering[Any], *operands: Any, **attrs: Any) -> Any:
        return w.call(name, *operands, **{renamed.get(key, key): value for key, value in attrs.items()})

    return TvmRow(op, write or plain, {name: read or same(op, test, renamed=renamed)})


def in_result(name: str) -> Lower:
    """The writer of a call of operands in the dtype of the result: torch makes floats of the operands of a function
    first, and promotes those of arithmetic."""
    return lambda w, *operands, **attrs: w.call(name, *[w.cast(x, w.dtype) for x in operands], **attrs)


def compared(name: str) -> Lower:
    """The writer of a comparison of operands in their common dtype."""
    return lambda w, x, y: w.call(name, *w.promoted(x, y))


def readers(rows: Iterable[TvmRow], prefix: str = "") -> tuple[dict[str, TvmLift], dict[str, TvmFieldLift]]:
    """The readers of rows by the whole names of TVM's operators, and those of fields."""
    calls = {prefix + name: read for row in rows for name, read in row.read.items()}
    return calls, {prefix + name: read for row in rows for name, read in row.fields.items()}


# ---------------------------------------------------------------- element-wise operators of both dialects

_FLOATS_ONLY: Final = (
    "acos", "acosh", "asin", "asinh", "atan", "atanh", "cos", "cosh", "divide", "erf", "exp", "log", "rsqrt", "sigmoid",
    "sin", "sinh", "sqrt", "tan", "tanh",
)  # fmt: skip
"""Functions of floats: of other numbers, torch computes them in floats, and TVM not at all, or in integers."""
_NOT_IN_HALF: Final = frozenset(("acos", "acosh", "asin", "asinh", "atan", "atan2", "cosh", "sinh"))
"""Functions that TVM can't lower for float16."""
_OF_BOOLS: Final = {"add": "logical_or", "maximum": "logical_or", "multiply": "logical_and", "minimum": "logical_and"}


def is_no_bool(dtype: str) -> bool:
    return dtype != "bool"


def is_no_float(dtype: str) -> bool:
    return not is_float(dtype)


def of_floats(name: str) -> TvmRow:
    """A function of floats."""

    def write(w: TvmLowering[Any], *operands: Any) -> Any:
        if w.dtype == "float16" and name in _NOT_IN_HALF:
            return w.cast(w.write(name, *[w.cast(x, "float32") for x in operands]), w.dtype)
        return in_result(name)(w, *operands)

    return row(name, write=write, test=is_float)


def arithmetic(name: str) -> Lower:
    """The writer of an operator of two tensors of numbers; of bools, it may be another operator."""

    def write(w: TvmLowering[Any], x: Any, y: Any) -> Any:
        if w.dtype != "bool":
            return in_result(name)(w, x, y)
        if name not in _OF_BOOLS:
            raise ValueError(f"{w.framework} doesn't compute with bools")
        return w.write(_OF_BOOLS[name], x, y)

    return write


def rounded(name: str) -> TvmRow:
    """A function that leaves integers alone."""
    return row(name, write=lambda w, x: w.call(name, x) if is_float(w.dtype) else x, test=is_no_bool)


def truth(w: TvmLowering[Any], value: Any) -> Any:
    """A tensor or a number as one of bools."""
    if is_number(value):
        return w.cast(bool(value), "bool")
    return value if w.dtype_of(value) == "bool" else w.write("not_equal", value, 0)


def _logic(name: str) -> TvmRow:
    return row(name, write=lambda w, *operands: w.call(name, *[truth(w, value) for value in operands]))


def _where(w: TvmLowering[Any], test: Any, x: Any, y: Any) -> Any:
    return w.call("where", truth(w, test), w.cast(x, w.dtype), w.cast(y, w.dtype))


def _floor_mod(w: TvmLowering[Any], x: Any, y: Any) -> Any:
    """Of floats by way of the remainder of the other sign, which is exact. TVM's own is x - floor(x / y) * y, which the
    rounding of the quotient spoils."""
    x, y = w.cast(x, w.dtype), w.cast(y, w.dtype)
    return floor_mod_of_floats(w, x, y) if is_float(w.dtype) else w.call("floor_mod", x, y)


ELEMENTWISE: Final = (
    *map(of_floats, _FLOATS_ONLY),
    *map(rounded, ("ceil", "floor", "trunc")),
    *[row(name, write=arithmetic(name), test=is_no_bool) for name in ("subtract", "multiply")],
    *[row(f"bitwise_{name}", write=in_result(f"bitwise_{name}"), test=is_no_float) for name in ("and", "or", "xor")],
    *[row(f"{side}_shift", write=in_result(f"{side}_shift"), test=is_no_float) for side in ("left", "right")],
    row("bitwise_not", test=is_no_float),
    *map(_logic, ("logical_and", "logical_or", "logical_xor", "logical_not")),
    row("where", write=_where, test=lambda dtype: dtype == "bool"),
    row("floor_mod", write=_floor_mod, test=is_no_float),
    row("nn.relu"),
)
"""The rows that are the same in both."""

"""Writing: the common part of the writers of canonical calls."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import onnx
import onnx_ir as ir
import torch

from gsl.front.core.handle import is_literal
from gsl.front.core.infer import type_of_literal
from gsl.front.core.lower import Lower, Lowering
from gsl.front.onnx.spellings.reading import OnnxLift, same
from gsl.front.onnx.types import NAMES, number, onnx_dtype, to_onnx
from gsl.graph import TUPLE, Dim, Node, SymDim, TensorType, Type
from gsl.spec.normalise import is_number, spatial


class OnnxTarget:
    """The model into which calls are written. In this one, nothing is written: it tells whether a call can be."""

    def __init__(self, opset: int, inputs: Iterable[tuple[ir.Value, Type | None]] = ()) -> None:
        self.opset = opset
        """The version of ONNX's operators that it uses."""
        self._types: dict[ir.Value, Type | None] = {}
        self.turned: dict[ir.Value, tuple[ir.Value, Sequence[int]]] = {}
        """The new values that are others with their axes in another order, with those and that order."""
        self.raised: dict[ir.Value, ir.Value] = {}
        """The masks with numbers that are too low for onnxruntime, each with the one that was made of it."""
        self.inputs = tuple(inputs)
        """The inputs of the model, with their types."""
        self._sizes: dict[Any, ir.Value] = {}
        """The tensors of one element with symbolic sizes that were made so far."""

    def type_of(self, value: Any, /) -> Type | None:
        """The type of a value."""
        return self._types.get(value)

    def view_of(self, value: ir.Value) -> Node | None:
        """The node of the view whose value is an operand; ``None`` where that is not known."""
        return None

    def note(self, value: ir.Value, type: Type | None) -> ir.Value:
        """Note the type of a new value."""
        self._types[value] = type
        return value

    def operand(self, node: Node) -> Any:
        """The stand-in for an operand when a call is spelled: a value, a number, or a tuple."""
        return node.attrs["value"] if is_literal(node) else self.value(node)

    def value(self, node: Node) -> Any:
        """The value of a node of the view."""
        return tuple(map(self.operand, node.operands)) if node.op == TUPLE else self.note(ir.Value(), node.type)

    def literal(self, value: bool | int | float, dtype: str) -> ir.Value:
        """A number as a tensor."""
        return self.tensor(number(value, dtype))

    def node(
        self, op: str, inputs: Sequence[Any], attributes: Sequence[ir.Attr], *, domain: str = "", outputs: int = 1
    ) -> Sequence[ir.Value]:
        """The outputs of a new node."""
        return [ir.Value() for _ in range(outputs)]

    def tensor(self, tensor: Any) -> ir.Value:
        """A small tensor."""
        return self.note(ir.Value(), type_of_literal(tensor))

    def size(self, symbol: Any) -> ir.Value | None:
        """A tensor of one element with a symbolic size; ``None`` if no input of the model has it."""
        for value, type in () if symbol in self._sizes else self.inputs:
            if isinstance(type, TensorType) and symbol in type.shape:
                self._sizes[symbol] = self.size_of(value, type.shape.index(symbol))
                break
        return self._sizes.get(symbol)

    def size_of(self, value: Any, place: int) -> ir.Value:
        """A tensor of one element with the size of an axis. Before version 15, a shape is made as a whole."""
        ends = {"start": place, "end": place + 1} if self.opset >= 15 else {}
        (size,) = self.node("Shape", [value], ir.convenience.convert_attributes(ends))
        if not ends:
            (size,) = self.node("Gather", [size, self.tensor(torch.tensor([place]))], ())
        return self.note(size, TensorType((1,), "int64"))


class OnnxLowering(Lowering[OnnxTarget]):
    """The writing of one canonical call: its type, and the means to make nodes whose values have types."""

    framework = "ONNX"

    @property
    def opset(self) -> int:
        """The version of ONNX's operators that the model uses."""
        return self.target.opset

    def call(self, op: str, *inputs: Any, type: Type | None = None, since: int = 0, **attrs: Any) -> Any:
        """The value of a node with one result, which has the type of the call unless another one is given.

        ValueError if the model's version of ONNX has no such operator, or none of these dtypes. ``since`` is the
        version that a form of the operator needs.
        """
        (value,) = self.calls(op, *inputs, types=[self.result if type is None else type], since=since, **attrs)
        return value

    def calls(self, op: str, *inputs: Any, types: Sequence[Type | None], since: int = 0, **attrs: Any) -> Sequence[Any]:
        """The values of a node with several results, as :meth:`call`."""
        check(op, self.opset, since, [None if value is None else self.dtype_of(value) for value in inputs])
        made = self.target.node(op, inputs, ir.convenience.convert_attributes(attrs), outputs=len(types))
        for value, type in zip(made, types):
            self.target.note(value, type)
        return tuple(made)

    def tensor(self, value: Any, dtype: str) -> Any:
        """A list of numbers, or an array, as a tensor."""
        return self.target.tensor(torch.as_tensor(value, dtype=getattr(torch, dtype)))

    def ints(self, values: Sequence[int]) -> Any:
        """A list of integers as a tensor."""
        return self.tensor(list(values), "int64")

    def cast(self, value: Any, dtype: str) -> Any:
        """A tensor or a number as a tensor of that dtype."""
        if is_number(value):
            return self.target.literal(bool(value) if dtype == "bool" else value, dtype)
        own = self.type_of(value)
        if own.dtype == dtype:
            return value
        return self.call("Cast", value, to=onnx_dtype(dtype), type=TensorType(own.shape, dtype))

    def each(self, data: Any) -> list[Any]:
        """The tensors of a tuple, in the dtype of the result. ValueError where they are not known one by one."""
        if not isinstance(data, (tuple, list)):
            raise ValueError("the tensors have to be known one by one")
        return [self.cast(x, self.dtype) for x in data]

    def dims(self, shape: Sequence[Dim], *, infer: bool = False, of: Sequence[Any] = ()) -> Any:
        """A shape as a tensor of integers; with ``infer``, one unknown size may be -1. Sizes that no input of the model
        has are those of the values ``of``."""
        if infer and sum(isinstance(size, SymDim) for size in shape) == 1 and 0 not in shape:
            shape = [-1 if isinstance(size, SymDim) else size for size in shape]
        if all(isinstance(size, int) for size in shape):
            return self.ints(list(shape))  # type: ignore[arg-type]
        parts = [self.size(size, of=of) for size in shape]
        return self.call("Concat", *parts, axis=0, type=TensorType((len(parts),), "int64"))

    def size(self, size: Dim, *, of: Sequence[Any] = ()) -> Any:
        """A size as a tensor of one integer. ValueError for one that can't be computed from those of the inputs, or of
        the values ``of``."""
        if isinstance(size, int):
            return self.ints([size])
        expr, one = size.expr, TensorType((1,), "int64")
        if expr.is_Symbol:
            found = self.target.size(size)
            if found is not None:
                return found
            for value in of:
                if size in self.shape_of(value):
                    return self.target.size_of(value, self.shape_of(value).index(size))
            raise ValueError(f"the size {size} is that of no input of the model, and of no operand")
        if expr.is_Pow and expr.exp.is_Integer and 0 < expr.exp < 5:
            parts = [expr.base] * int(expr.exp)
        elif expr.is_Add or expr.is_Mul:
            parts = list(expr.args)
        else:
            raise ValueError(f"the size {size} can't be computed in ONNX")
        total, *others = [self.size(int(part) if part.is_Integer else SymDim(part), of=of) for part in parts]
        for other in others:
            total = self.call("Add" if expr.is_Add else "Mul", total, other, type=one)
        return total

    def reshape(self, value: Any, shape: Sequence[Dim]) -> Any:
        """The same elements with another shape."""
        return value if self.shape_of(value) == tuple(shape) else self.shaped(value, shape)

    def shaped(self, value: Any, shape: Sequence[Dim]) -> Any:
        """A node for the same elements with a shape, be it that they have."""
        # Otherwise 0 is the size that is there. Of several symbolic sizes, none is -1, and each may be 0.
        several = sum(isinstance(size, SymDim) for size in shape) > 1 and self.opset >= 14
        zero: dict[str, Any] = {"allowzero": 1, "since": 14} if 0 in shape or several else {}
        type = TensorType(tuple(shape), self.dtype_of(value))
        return self.call("Reshape", value, self.dims(shape, infer=True, of=[value]), type=type, **zero)

    def permute(self, value: Any, axes: Sequence[int]) -> Any:
        """The axes in another order; of a value whose axes have just been put in another one, both at once."""
        if value in self.target.turned:
            value, order = self.target.turned[value]
            axes = [order[axis] for axis in axes]
        return value if list(axes) == list(range(len(axes))) else self.turn(value, axes)

    def turn(self, value: Any, axes: Sequence[int]) -> Any:
        """A node for the axes in another order."""
        own = self.type_of(value)
        type = TensorType(tuple([own.shape[axis] for axis in axes]), own.dtype)
        turned = self.call("Transpose", value, perm=list(axes), type=type)
        self.target.turned[turned] = value, axes
        return turned

    def channels_first(self, data: Any, layout: str, out: str) -> tuple[str, Any, TensorType]:
        """The layout in which channels come second, data of another layout in it, and the type in it of the result,
        which is to have the layout ``out``."""
        letters = "NC" + spatial(len(layout) - 2)
        type = TensorType(tuple([self.shape[out.index(letter)] for letter in letters]), self.dtype)
        return letters, self.layout(data, layout, letters), type

    def along(self, vector: Any, rank: int, axis: int) -> Any:
        """A tensor of one axis, to be broadcast along all axes of a tensor but this one."""
        size = self.shape_of(vector)[0]
        return self.reshape(vector, [size] + [1] * (rank - 1 - axis))

    def full(self, value: bool | int | float, shape: Sequence[Dim], dtype: str) -> Any:
        """A tensor filled with a number."""
        native = to_onnx(torch.tensor([value], dtype=getattr(torch, dtype)), "value")
        since = 20 if dtype == "bfloat16" else 0
        return self.call("ConstantOfShape", self.dims(shape), value=native, type=TensorType(tuple(shape), dtype),
                         since=since)  # fmt: skip


class OnnxRow(NamedTuple):
    """The spelling of a canonical operator by one of ONNX, in both directions."""

    op: str
    """The canonical operator; "" where a node is several calls."""
    name: str
    """The operator of ONNX; "" where a call is several nodes."""
    write: Lower
    read: OnnxLift
    also: tuple[str, ...] = ()
    """The other canonical operators that a node may be read as."""
    inner: tuple[str, ...] = ()
    """Those of the other calls where a node is read as several, below the one that gives its value."""


def row(
    op: str, name: str, write: Lower | None = None, read: OnnxLift | None = None, *, since: int = 0,
    lacks: tuple[str, ...] = (), also: tuple[str, ...] = (), inner: tuple[str, ...] = (), **attrs: Any,
) -> OnnxRow:  # fmt: skip
    """The row of operators that have the same operands but for their dtypes, unless ``write`` or ``read`` says else.

    ``attrs`` are the attributes that have the same names, with the values that they have where a node leaves them out.
    Before the version ``since``, and in the dtypes for which onnxruntime ``lacks`` a kernel, a call is written by
    ``write``.
    """

    def plain(w: OnnxLowering, *operands: Any, **given: Any) -> Any:
        if write is not None and (w.opset < since or w.dtype in lacks):
            return write(w, *operands, **given)
        own = {key: type(attrs[key])(value) for key, value in given.items() if value != attrs[key]}
        return w.call(name, *[w.cast(x, w.dtype) for x in operands], **own)

    given = same(op, attrs, {}, **dict(zip(attrs, attrs))) if read is None else read
    return OnnxRow(op, name, plain if since or lacks or write is None else write, given, also, inner)


def check(op: str, opset: int, since: int, dtypes: Sequence[str | None]) -> None:
    """ValueError unless ONNX has an operator in this version for operands of these dtypes."""
    if opset < since:
        raise ValueError(f"{op} needs version {since} of ONNX's operators, the model has {opset}")
    taken = accepted(op, opset)
    for place, dtype in enumerate(dtypes):
        own = taken[min(place, len(taken) - 1)]
        if dtype is not None and dtype not in own:
            raise ValueError(f"ONNX has no {op} of {dtype} in version {opset} of its operators")


@lru_cache(maxsize=1024)
def accepted(op: str, opset: int) -> tuple[frozenset[str], ...]:
    """The dtypes that each operand of an operator of ONNX may have. ValueError if that version lacks the operator."""
    try:
        schema = onnx.defs.get_schema(op, opset, "")
    except onnx.defs.SchemaError:
        raise ValueError(f"version {opset} of ONNX's operators has no {op}") from None
    return tuple([frozenset([name for name in NAMES if _spelled(name) in formal.types]) for formal in schema.inputs])


@lru_cache(maxsize=1024)
def result_of(op: str, opset: int, dtypes: tuple[str | None, ...]) -> str | None:
    """The dtype of the first result of an operator of ONNX on operands of these dtypes; ``None`` where it depends on
    other things."""
    try:
        schema = onnx.defs.get_schema(op, opset, "")
    except onnx.defs.SchemaError:
        return None
    result = schema.outputs[0]
    alike = [dtype for formal, dtype in zip(schema.inputs, dtypes) if formal.type_str == result.type_str]
    own = [name for name in NAMES if _spelled(name) in result.types]
    return alike[0] if alike else own[0] if len(own) == 1 else None


@lru_cache(maxsize=1024)
def attributes_of(op: str, opset: int, domain: str = "") -> frozenset[str] | None:
    """The attributes that an operator of ONNX has; ``None`` for one that ONNX does not know."""
    try:
        return frozenset(onnx.defs.get_schema(op, opset, domain).attributes)
    except onnx.defs.SchemaError:
        return None


def _spelled(dtype: str) -> str:
    """The name of a dtype in the declarations of ONNX."""
    names = {"float32": "float", "float64": "double"}
    return f"tensor({names.get(dtype, dtype.replace('_', ''))})"

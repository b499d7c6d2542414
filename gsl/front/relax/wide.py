"""Functions of Relax in float64, which tell rounding errors from other ones."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import tvm_ffi
from tvm import ir, relax

from gsl.errors import FrontEndError
from gsl.front.core.wide import NARROW
from gsl.front.core.wide import wide as wide_tensor
from gsl.front.relax.function import items
from gsl.front.relax.opaque import attribute_names
from gsl.front.relax.types import is_constant
from gsl.front.tvm.tensors import as_operand, to_tvm

_WIDE: Final = "float64"


def wide(value: Any) -> Any:
    """A tensor of TVM, torch or numpy in float64, for a narrower one; any other value as it is."""
    if isinstance(value, (tuple, list)):
        return type(value)(map(wide, value))
    is_narrow = hasattr(value, "shape") and str(value.dtype).removeprefix("torch.") in NARROW
    return wide_tensor(as_operand(value)) if is_narrow else value


def in_float64(function: Any, name: str) -> Any:
    """A module with a function of that name, which computes with wide tensors what this one computes.

    FrontEndError for a function that calls anything but operators, of which TVM makes kernels for each dtype.
    """
    builder, widening = relax.BlockBuilder(), _Widening()
    params = [widening.variable(var, relax.Var(var.name, _type(var.ty))) for var in items(function.params)]
    with builder.function(name, params):
        for binding in [binding for block in function.body.blocks for binding in block.bindings]:
            value = widening.expr(binding.value)
            is_cast = isinstance(binding, relax.MatchCast)
            new = builder.match_cast(value, _type(binding.ty)) if is_cast else builder.emit(value)
            widening.variable(binding.var, new)
        builder.emit_func_output(widening.expr(function.body.body))
    return builder.get()


def _type(type: Any) -> Any:
    if isinstance(type, ir.TupleType):
        return ir.TupleType(list(map(_type, type.fields)))
    if not isinstance(type, relax.TensorType) or str(getattr(type.dtype, "dtype", "")) not in NARROW:
        return type
    return relax.TensorType(type.shape, _WIDE, ndim=type.ndim if type.shape is None else -1)


class _Widening:
    """Expressions with wide variables instead of those of a function."""

    def __init__(self) -> None:
        self._instead: dict[Any, Any] = {}

    def variable(self, var: Any, new: Any) -> Any:
        """The new variable, which is to stand where the old one does."""
        self._instead[var] = new
        return new

    def expr(self, expr: Any) -> Any:
        """The expression with wide tensors. FrontEndError for a call of a function, a branch and the like."""
        if isinstance(expr, relax.Var):
            return self._instead.get(expr, expr)
        if isinstance(expr, relax.Tuple):
            return relax.Tuple(list(map(self.expr, expr.fields)))
        if isinstance(expr, relax.TupleGetItem):
            return relax.TupleGetItem(self.expr(expr.tuple_value), expr.index)
        if is_constant(expr):
            return relax.const(to_tvm(wide(expr.value)))
        if isinstance(expr, relax.Call):
            return self._call(expr)
        if isinstance(expr, (relax.Function, relax.If, relax.SeqExpr)):
            raise FrontEndError(f"a {type(expr).__name__} is not computed in float64")
        return expr

    def _call(self, call: Any) -> Any:
        op, attrs = call.op, call.attrs
        if not isinstance(op, ir.Op) or call.ty_args or op.name.startswith("relax.memory"):
            raise FrontEndError(f"{getattr(op, 'name', op)} is not computed in float64")
        args = list(map(self.expr, call.args))
        if op.name == "relax.nn.layer_norm":
            return _layer_norm(args, attrs)
        return ir.Call(op, args, _attributes(attrs))


def _attributes(attrs: Any) -> Any:
    """The attributes of a call, of which dtypes are the wide one."""
    given = {name: getattr(attrs, name) for name in attribute_names(attrs)}
    wider = {name: _WIDE for name, value in given.items() if isinstance(value, tvm_ffi.dtype) and value in NARROW}
    return ir.make_node(type(attrs).__tvm_ffi_type_info__.type_key, **{**given, **wider}) if wider else attrs


def _layer_norm(args: Sequence[Any], attrs: Any) -> Any:
    """A layer norm as arithmetic: TVM has a kernel in float32 and float16 alone."""
    data, gamma, beta = args
    axes = [int(axis) for axis in attrs.axes]
    if axes != list(range(-len(axes), 0)):
        raise FrontEndError(f"a layer norm over the axes {axes} is not computed in float64")
    mean, variance = relax.op.mean(data, axes, keepdims=True), relax.op.variance(data, axes, keepdims=True)
    epsilon = relax.const(attrs.epsilon, _WIDE)
    normal = relax.op.multiply(relax.op.subtract(data, mean), relax.op.rsqrt(relax.op.add(variance, epsilon)))
    return relax.op.add(relax.op.multiply(normal, gamma), beta)

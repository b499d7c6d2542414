"""Calls without a canonical operator: their operands and attributes, the native call made of them again, and the reason
why there is none.

A call is shown under the function that it computes: ``call_tir(f, (x, y))`` has the operator ``f`` and the attribute
``call="call_tir"``. Tensors are operands; other arguments are attributes under the names that the operator declares.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import tvm
from tvm import ir, relax, tirx
from tvm.relax.expr import _update_type

from gsl.errors import FrontEndError, nearest
from gsl.front.core.handle import handle_of
from gsl.front.core.opaque import decoded, positional
from gsl.front.relax import spellings
from gsl.front.relax.types import Dims, FunctionScope, from_relax, is_constant, is_tensors, to_relax
from gsl.front.tree import NO_SPELLING, Canon, Computed, Slot
from gsl.front.tvm.spellings import function, pattern, unread_reason
from gsl.front.tvm.tensors import python_value
from gsl.graph import Node, Op, SymDim, op_name
from gsl.spec.natives import TVMFunction, tvm_function

_INDIRECT: Final = frozenset((
    "relax.call_tir", "relax.call_dps_packed", "relax.call_pure_packed", "relax.call_inplace_packed",
    "relax.call_tir_inplace", "relax.invoke_pure_closure",
))  # fmt: skip
"""Operators whose first argument is the function that is called."""
_LISTS: Final = frozenset(("relax.call_tir", "relax.call_dps_packed", "relax.call_tir_inplace"))
"""The operators among those that take the operands as one tuple."""


@dataclass(frozen=True, slots=True)
class RelaxOpaque:
    """An opaque call as the view shows it. Operands are native, or ``Canon("tuple", …)`` of such."""

    op: Any
    operands: tuple[Any, ...]
    deps: tuple[Any, ...]
    attrs: Mapping[str, Any]


def describe(value: Any, used: Sequence[Any], dims: Dims) -> RelaxOpaque:
    """The description of a bound expression that has no canonical reading; ``used`` are all variables that it refers
    to."""
    described = _Described(dims)
    if not isinstance(value, relax.Call):
        # A branch, a closure, a shape: whatever it refers to matters to it.
        tensors = tuple([var for var in used if is_tensors(var.ty)])
        return RelaxOpaque(type(value), tensors, tuple([var for var in used if not is_tensors(var.ty)]), {})
    op = described.call(value)
    mentioned = set(described.variables)
    deps = tuple([var for var in used if var not in mentioned])
    return RelaxOpaque(op, tuple(described.operands), deps, described.attrs)


class _Described:
    """The parts of a call, as they are found."""

    def __init__(self, dims: Dims) -> None:
        self.dims = dims
        self.operands: list[Any] = []
        self.variables: list[Any] = []
        self.attrs: dict[str, Any] = {}

    def call(self, call: Any) -> Any:
        op, args = call.op, list(call.args)
        names = [argument.name for argument in op.arguments] if isinstance(op, ir.Op) else []
        if isinstance(op, ir.Op) and op.name in _INDIRECT and tvm_function(args[0]) is not None:
            self.attrs["call"] = op.name.removeprefix("relax.")
            lists, op, names = op.name in _LISTS, args.pop(0), names[1:]
            if lists and args and isinstance(args[0], relax.Tuple):
                args[:1], names = args[0].fields, []
        for position, argument in enumerate(args):
            self._argument(names[position] if position < len(names) else f"arg{position}", argument)
        self._attributes(call)
        return tvm_function(op) or op

    def _argument(self, name: str, argument: Any) -> None:
        if is_tensor_expr(argument):
            self.operands.append(self._operand(argument))
        else:
            self.attrs[name] = self._encode(argument)

    def _operand(self, expr: Any) -> Any:
        if isinstance(expr, relax.Tuple):
            return Canon("tuple", tuple([self._operand(field) for field in expr.fields]))
        self.variables.append(expr)
        return expr

    def _attributes(self, call: Any) -> None:
        for name in attribute_names(call.attrs):
            self.attrs[name] = python_value(getattr(call.attrs, name))
        if call.ty_args:
            types = [from_relax(type, self.dims, lambda var: None) or type for type in call.ty_args]
            self.attrs["out_ty"] = types[0] if len(types) == 1 else tuple(types)

    def _encode(self, value: Any) -> Any:
        """An argument that is no tensor, as a Python value where it is one."""
        if is_tensor_expr(value):
            self.operands.append(self._operand(value))
            return Slot(len(self.operands) - 1)
        match value:
            case relax.ShapeExpr():
                return tuple([self.dims.dim(size) for size in value.values])
            case relax.Tuple():
                return tuple([self._encode(field) for field in value.fields])
            case ir.StringImm() | tirx.IntImm() | tirx.FloatImm():
                return python_value(value)
            case relax.Var():
                return Computed(value.name)
        if ir.is_prim_expr(value):
            return self.dims.dim(value)
        return tvm_function(value) or value


def is_tensor_expr(expr: Any) -> bool:
    """True for a variable, constant or tuple that is a tensor or consists of tensors."""
    if isinstance(expr, relax.Tuple):
        return len(expr.fields) > 0 and all(map(is_tensor_expr, expr.fields))
    return is_constant(expr) or (isinstance(expr, relax.Var) and is_tensors(expr.ty))


def attribute_names(attrs: Any) -> tuple[str, ...]:
    """The names of the attributes of a call."""
    if attrs is None:
        return ()
    if isinstance(attrs, ir.DictAttrs):
        return tuple(attrs.keys())
    info = getattr(type(attrs), "__tvm_ffi_type_info__", None)
    return () if info is None else tuple([field.name for field in info.fields])


def typed(var: Any, function: Any) -> Any:
    """The variable of a function of a module, with the type of that function."""
    if var.ty.is_missing():
        # Whoever normalises a call of it fills the type in too.
        _update_type(var, function.ty)
    return var


class Caller:
    """Makes native calls of opaque operators in a module.

    ``bring`` gives the variable of a function that is none of the module, and adds it where the call is to stand.
    """

    def __init__(self, module: Any, dims: Dims, bring: Callable[[Any], Any] | None = None) -> None:
        self.module = module
        self.dims = dims
        self.bring = bring or (lambda function: typed(ir.GlobalVar("function"), function))

    def function(self, name: str) -> Any:
        """The variable of a function of the module, with its type. FrontEndError if there is none."""
        known = [var.name_hint for var in self.module.functions]
        if name not in known:
            raise FrontEndError(f"the module has no function {name!r}: {nearest(name, known)}")
        found = self.module.get_global_var(name)
        return typed(found, self.module[found])

    def call(self, op: Any, operands: Sequence[Any], attrs: Mapping[str, Any]) -> Any:
        """The call with these operands and attributes, without a type. FrontEndError if it can't be made."""
        rest, given = decoded(op, operands, attrs, self._decode)
        return self._of_operator(op, rest, given) if isinstance(op, ir.Op) else self._of_function(op, rest, given)

    def _of_operator(self, op: Any, rest: list[Any], given: dict[str, Any]) -> Any:
        out = given.pop("out_ty", None)
        args = [self._expr(arg) for arg in positional([argument.name for argument in op.arguments], rest, given)]
        return ir.Call(op, args, _attributes_of(op, args, given), self._types(out))

    def _of_function(self, op: Any, rest: list[Any], given: dict[str, Any]) -> Any:
        own = tvm_function(op) or op
        if isinstance(op, ir.BaseFunc) and not isinstance(op, relax.ExternFunc):
            callee, function, name = self.bring(op), op, op_name(op)
        elif isinstance(own, TVMFunction):
            callee = relax.ExternFunc(own.name) if own.packed else self.function(own.name)
            function, name = None if own.packed else self.module[own.name], own.name
        elif isinstance(op, ir.Expr):
            return ir.Call(op, [self._expr(arg) for arg in positional([], rest, given)])
        else:
            raise FrontEndError(f"{op_name(op)} is no operator and no function of Relax")
        kind, out = given.pop("call", None), given.pop("out_ty", None)
        if kind is None and function is not None and not isinstance(function, relax.Function):
            kind = "call_tir"
        if kind in ("call_tir", "call_dps_packed") and out is None:
            raise FrontEndError(f"a {kind} of {name} needs the type of its result, as the attribute out_ty=")
        args = [self._expr(arg) for arg in positional([], rest, given)]
        if kind is None:
            return ir.Call(callee, args, None, self._types(out))
        if given:
            raise FrontEndError(f"a new {kind} of {name} can't have {', '.join(given)}")
        operator = f"relax.{kind}"
        if operator in _LISTS:
            args = [relax.Tuple(args)]
        return ir.Call(ir.Op.get(operator), [callee, *args], None, self._types(out))

    def _types(self, out: Any) -> list[Any]:
        if out is None:
            return []
        return [to_relax(type, self.dims) for type in (out if isinstance(out, (list, tuple)) else (out,))]

    def _decode(self, value: Any) -> Any:
        return self.dims.prim(value) if isinstance(value, SymDim) else value

    @staticmethod
    def _expr(value: Any) -> Any:
        """An argument as an expression."""
        if isinstance(value, tuple) and all(isinstance(v, int) or ir.is_prim_expr(v) for v in value):
            return relax.ShapeExpr(list(value))
        if isinstance(value, (tuple, list)):
            return relax.Tuple([Caller._expr(item) for item in value])
        if isinstance(value, TVMFunction):
            raise FrontEndError(f"the function {value.name} can't be an argument of a new call")
        return relax.utils.convert_to_expr(value)


def _attributes_of(op: Any, args: Sequence[Any], given: Mapping[str, Any]) -> Any:
    """The attributes of a new call, of which those that are not given have the values that the function of the operator
    gives them; ``None`` for an operator that has none. FrontEndError if it has no such attributes.

    Some operators do not tell of what class theirs are, and TVM ends the process over a call without them.
    """
    if op.attrs_type_key.startswith("DictAttrs"):
        return None
    example = _example(op, args, {}) or _example(op, args, given)
    names = attribute_names(example)
    for name in given:
        if name not in names and (example is not None or not op.attrs_type_key):
            raise FrontEndError(f"{op.name} has no attribute {name!r}: {nearest(name, names)}")
    key = op.attrs_type_key if example is None else type(example).__tvm_ffi_type_info__.type_key
    try:
        return ir.make_node(key, **{**{name: getattr(example, name) for name in names}, **given}) if key else None
    except (AttributeError, TypeError, ValueError) as error:
        raise FrontEndError(f"{op.name} can't have the attributes {dict(given)}: {error}") from None


def _example(op: Any, args: Sequence[Any], given: Mapping[str, Any]) -> Any:
    """The attributes of a call of an operator that Relax's own function makes; ``None`` if it makes none."""
    try:
        made = function(relax.op, op.name.removeprefix("relax."))(*args, **given)
    except (AttributeError, TypeError, ValueError, AssertionError, tvm.error.InternalError):
        return None
    return made.attrs if isinstance(made, relax.Call) and made.op == op else None


# ---------------------------------------------------------------- messages


def reason(scope: FunctionScope, node: Node) -> str | None:
    """The reason for one opaque node of a view; ``None`` for one that computes no tensor."""
    handle = handle_of(node)
    if handle is None:
        return ""
    var = handle.reading.native
    value = scope.lookup(var)
    if not is_tensors(var.ty) and node.effect is None:
        return None
    name = str(value.op.name) if isinstance(value, relax.Call) and isinstance(value.op, ir.Op) else ""
    if name not in spellings.READERS and name not in spellings.FIELD_READERS:
        return NO_SPELLING
    if node.effect is not None:
        return "it has an effect besides its result"
    unknown = [str(getattr(arg, "name", "a constant")) for arg in value.args
               if is_tensors(arg.ty) and scope.type_of(arg) is None]  # fmt: skip
    if unknown or scope.type_of(var) is None:
        return f"the shape or dtype of {', '.join(unknown) or 'its result'} is not known"
    if name not in spellings.READERS:
        return "its result is used as a whole, or a field of it that is used has no reading"
    return unread_reason(node, spellings.READERS[name], spellings.RelaxCall(value, scope))


def canonical(op: Op, operands: int | None, attrs: Mapping[str, Any], scope: FunctionScope) -> str | None:
    """The pattern of the canonical operators as which a call of Relax's operator is loaded, as far as that can be told.

    ``None`` if it is loaded as it is.
    """
    def read(call: Any) -> Canon | None:
        call = relax.BlockBuilder().normalize(call)
        return spellings.read(call, scope) or spellings.read_field(call, 0, scope)

    def variable(name: str, rank: int) -> Any:
        return relax.Var(name, relax.TensorType([2] * rank))

    return pattern(op, operands, attrs, relax.op, variable, read)

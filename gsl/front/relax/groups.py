"""Reads outlined groups in Relax: private functions of a module with a name of their own, and the calls of them.

They are what ``relax.transform.FuseOpsByPattern`` makes. A function with the attribute ``Composite`` is a group of that
name; one with the attribute ``Codegen`` stands around such a function, for a code generator of TVM to find.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any, Final

import tvm
import tvm_ffi
from tvm import ir, relax

from gsl.front.relax.opaque import is_tensor_expr
from gsl.front.relax.types import is_tensors

COMPOSITE: Final = "Composite"
CODEGEN: Final = "Codegen"
PRIMITIVE: Final = "Primitive"
SYMBOL: Final = "global_symbol"
PREFIX: Final = "gsl."
"""The prefix of the names of a group's attributes, among those of the function."""


def label_of(function: Any) -> tuple[str, dict[str, Any]] | None:
    """The name and the attributes of the group that a function of a module is; ``None`` if it is none."""
    inner = composite(function)
    if inner is None:
        return None
    attrs = {
        str(name).removeprefix(PREFIX): _value(value)
        for name, value in inner.attrs.items() if str(name).startswith(PREFIX)
    }  # fmt: skip
    if function.attrs is not None and CODEGEN in function.attrs:
        attrs["codegen"] = str(function.attrs[CODEGEN])
    return str(inner.attrs[COMPOSITE]), attrs


def composite(function: Any) -> Any:
    """The function that computes a group: itself, or the one that it stands around; ``None`` if it is no group."""
    if not isinstance(function, relax.Function) or function.attrs is None or not _is_flat(function.ret_ty):
        return None
    inner = function if COMPOSITE in function.attrs else _inside(function) if CODEGEN in function.attrs else None
    return inner if inner is not None and all(is_tensors(var.ty) for var in inner.params) else None


def _inside(function: Any) -> Any:
    """The one local function that a function calls with its own parameters."""
    bindings = [binding for block in function.body.blocks for binding in block.bindings]
    if len(bindings) != 2:
        return None
    local, call = bindings
    inner = local.value
    if not isinstance(inner, relax.Function) or inner.attrs is None or COMPOSITE not in inner.attrs:
        return None
    value = call.value
    called = isinstance(value, relax.Call) and value.op.same_as(local.var) and function.body.body.same_as(call.var)
    same = called and len(value.args) == len(function.params)
    return inner if same and all(a.same_as(b) for a, b in zip(value.args, function.params)) else None


def _is_flat(found: Any) -> bool:
    """True for the type of a tensor, or of two or more of them."""
    if isinstance(found, ir.TupleType):
        return len(found.fields) > 1 and all(isinstance(field, relax.TensorType) for field in found.fields)
    return isinstance(found, relax.TensorType)


def called_group(module: Any, value: Any) -> Any:
    """The function of the group that an expression calls; ``None`` if it is no such call."""
    if not isinstance(value, relax.Call) or not isinstance(value.op, ir.GlobalVar):
        return None
    function = module.functions.get(value.op)
    inner = composite(function)
    fits = inner is not None and len(inner.params) == len(value.args) and all(map(is_tensor_expr, value.args))
    return function if fits else None


def body_of(function: Any, args: Iterable[Any]) -> Any:
    """The function that computes a group, with the sizes of the operands of a call for those that it has names for."""
    inner = composite(function)
    sizes: dict[Any, Any] = {}
    for var, arg in zip(inner.params, args):
        _bind(var.ty, arg.ty, sizes)
    return inner.bind_symbolic_vars(sizes) if sizes else inner


def _bind(own: Any, given: Any, sizes: dict[Any, Any]) -> None:
    """Note what the sizes with names in one type are in the other."""
    if isinstance(own, ir.TupleType):
        for field, other in zip(own.fields, given.fields):
            _bind(field, other, sizes)
        return
    both = (getattr(own.shape, "values", None), getattr(given.shape, "values", None))
    for size, actual in zip(*[values or () for values in both]):
        if isinstance(size, ir.Var):
            sizes.setdefault(size, actual)


def plain(module: Any) -> Any:
    """The module with the groups that are meant for a code generator as functions that TVM itself compiles."""
    functions = {}
    for var, function in module.functions.items():
        inner = composite(function)
        if inner is not None and not inner.same_as(function):
            functions[var] = inner.without_attr(COMPOSITE).with_attr(SYMBOL, var.name_hint)
    if not functions:
        return module
    return tvm.IRModule({**dict(module.functions.items()), **functions}, module.attrs, module.global_infos)


def without_unused(functions: Mapping[Any, Any], suspects: Iterable[Any]) -> dict[Any, Any]:
    """The functions of a module without those of the groups among the suspects that are not called."""
    kept = dict(functions)
    work = [var for var in suspects if var in kept and composite(kept[var]) is not None]
    if not work:
        return kept
    calls = {var: set(_called(function)) for var, function in kept.items()}
    callers = Counter(var for called in calls.values() for var in called)
    while work:
        var = work.pop()
        if var not in kept or composite(kept[var]) is None or callers[var]:
            continue
        del kept[var]
        callers.subtract(calls[var])
        work.extend(calls[var])
    return kept


def _called(function: Any) -> list[Any]:
    return list(relax.analysis.all_global_vars(function)) if isinstance(function, relax.Function) else []


def _value(value: Any) -> Any:
    """A value of TVM as an attribute of the view, where lists are tuples."""
    if isinstance(value, (tvm_ffi.Array, tuple, list)):
        return tuple([_value(item) for item in value])
    return str(value) if isinstance(value, str) else value

"""Outlined groups in Relay: functions with a name of their own, and those around them that a code generator takes.

A function with the attribute ``Composite`` is a group of that name, as ``relay.transform.MergeComposite`` makes it. One
with the attribute ``Compiler`` stands around such a function, as ``relay.transform.PartitionGraph`` makes it.
"""

from __future__ import annotations

import re
from typing import Any, Final

import tvm
from tvm import relay

from gsl.errors import FrontEndError
from gsl.front.relay import opaque
from gsl.front.relay.spellings.table import names_of

COMPILER: Final = "Compiler"
SYMBOL: Final = "global_symbol"
CODEGEN: Final = "codegen"
"""The attribute of a group in a view that names its code generator."""


def composite(callee: Any) -> Any:
    """The function that computes a group: itself, or the one that it stands around; ``None`` if it is no group."""
    if opaque.is_group(callee):
        return callee
    if codegen_of(callee) is None or not isinstance(callee.body, relay.Call) or not opaque.is_group(callee.body.op):
        return None
    args, params = list(callee.body.args), list(callee.params)
    same = len(args) == len(params) and all(arg.same_as(var) for arg, var in zip(args, params))
    return callee.body.op if same else None


def codegen_of(callee: Any) -> str | None:
    """The code generator for which a function is meant, if it is for one."""
    if not isinstance(callee, relay.Function) or callee.attrs is None:
        return None
    return str(callee.attrs[COMPILER]) if COMPILER in names_of(callee.attrs) else None


def around(function: Any, codegen: Any, name: str, taken: set[str]) -> Any:
    """The function of a group for a code generator, which calls the group's own; its symbol is none of those taken.

    FrontEndError for a bad name of a code generator.
    """
    if not isinstance(codegen, str) or not codegen:
        raise FrontEndError(f"codegen={codegen!r} of the group {name} must be the name of a code generator")
    params = [relay.Var(var.name_hint, var.type_annotation) for var in function.params]
    outer = relay.Function(params, relay.Call(function, params), function.ret_type)
    base = re.sub(r"\W+", "_", f"gsl_{codegen}_{name}")
    symbol = next(f"{base}_{number}" for number in range(len(taken) + 1) if f"{base}_{number}" not in taken)
    taken.add(symbol)
    outer = outer.with_attr("Primitive", tvm.tir.IntImm("int32", 1))
    return outer.with_attr(COMPILER, codegen).with_attr(SYMBOL, symbol)


def symbols(function: Any) -> set[str]:
    """The symbols of the functions for code generators within a function."""
    found: list[Any] = []
    relay.analysis.post_order_visit(function, lambda expr: found.append(expr) if codegen_of(expr) is not None else None)
    return {str(outer.attrs[SYMBOL]) for outer in found if SYMBOL in names_of(outer.attrs)}


def plain(module: Any) -> Any:
    """The module with the groups that are meant for code generators as functions that TVM itself compiles."""
    main = module["main"]
    if not symbols(main):
        return module
    new = tvm.IRModule(dict(module.functions.items()), module.type_definitions)
    new.update_func(new.get_global_var("main"), _Plain().visit(main))
    return relay.transform.InferType()(new)


class _Plain(relay.ExprMutator):  # type: ignore[misc]
    def visit_function(self, function: Any) -> Any:
        inner = composite(function)
        return inner if inner is not None else super().visit_function(function)

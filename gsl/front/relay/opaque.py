"""Calls and other expressions without a canonical reading: their form in the view, and the way back.

Some are outlined groups. A function with the attribute ``Composite`` is a group of that name, as
``relay.transform.MergeComposite`` makes it. One with the attribute ``Compiler`` stands around such a function, as
``relay.transform.PartitionGraph`` makes it, for a code generator.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import tvm
from tvm import relay
from tvm.ir import Op

from gsl.errors import FrontEndError, nearest
from gsl.front.relay.spellings.table import names_of
from gsl.front.tvm.spellings import function as function_of
from gsl.front.tvm.tensors import python_value
from gsl.graph import Effect, op_name
from gsl.graph import Op as ViewOp
from gsl.spec.natives import TVMFunction, tvm_function

COMPOSITE: Final = "Composite"
"""The attribute with the name of an outlined group, as ``relay.transform.MergeComposite`` sets it."""

PATTERN: Final = "PartitionedFromPattern"
"""The attribute in which it notes the operators of a group."""

COMPILER: Final = "Compiler"
SYMBOL: Final = "global_symbol"
CODEGEN: Final = "codegen"
"""The attribute of a group in a view that names its code generator."""

_IMPURE: Final = (relay.RefCreate, relay.RefRead, relay.RefWrite)


@dataclass(frozen=True, slots=True)
class RelayOpaque:
    """An expression as an opaque node shows it."""

    op: ViewOp
    """The ``tvm.ir.Op`` or the function of the module that is called; for anything else, the class of the expression,
    or of the function that is called."""
    attrs: Mapping[str, Any]
    effect: Effect | None = None


def describe(expr: Any) -> RelayOpaque:
    """The operator, attributes and effect of an expression."""
    kind: Any = type(expr)
    if not isinstance(expr, relay.Call):
        return RelayOpaque(kind, {})
    callee = expr.op
    if isinstance(callee, Op):
        return RelayOpaque(callee, attributes(expr.attrs), effect_of(callee))
    if isinstance(callee, relay.GlobalVar):
        return RelayOpaque(tvm_function(callee), {})
    if isinstance(callee, relay.Function):
        return RelayOpaque(relay.Function, {"function": callee, **attributes(callee.attrs)})
    return RelayOpaque(relay.Call, {})


def name_of(op: ViewOp) -> str:
    """A name for a node: the last part of the operator's or function's own, or the kind of the expression."""
    name = getattr(op, "name", None)
    return str(name).rpartition(".")[2].rpartition("::")[2] if name else getattr(op, "__name__", "call").lower()


def attributes(attrs: Any) -> dict[str, Any]:
    """The attributes of an operator or function as Python values."""
    if attrs is None:
        return {}
    flags = _flags(attrs) if isinstance(attrs, tvm.ir.Attrs) and not isinstance(attrs, tvm.ir.DictAttrs) else ()
    values = {name: python_value(attrs[name]) for name in names_of(attrs)}
    return {name: bool(value) if name in flags else value for name, value in values.items()}


def _flags(attrs: Any) -> frozenset[str]:
    """The names of the attributes that are declared as truth values; they arrive as numbers."""
    fields = attrs.list_field_info()
    return frozenset(str(field.name) for field in fields if str(field.type_info).startswith("bool"))


def effect_of(op: Op) -> Effect | None:
    """The effect of a call of an operator besides computing its value."""
    if op.name.startswith("random.") or op.name == "nn.dropout":
        return Effect.RANDOM
    return Effect.OTHER if op.get_attr("TOpIsStateful") else None


def call(module: Any, op: Any, operands: Sequence[Any], attrs: Mapping[str, Any]) -> Any:
    """The call of a native target that a rule asks for. FrontEndError if it can't be made."""
    if op is relay.Function and isinstance(attrs.get("function"), relay.Function):
        return relay.Call(attrs["function"], list(operands))
    if isinstance(op, relay.Function):
        return relay.Call(op, list(operands))
    if isinstance(op, (relay.GlobalVar, TVMFunction)):
        return relay.Call(_global(module, op_name(op)), list(operands))
    if op is relay.Call:
        return relay.Call(operands[0], list(operands[1:]))
    if not isinstance(op, Op):
        raise FrontEndError(f"{op_name(op)}: in Relay, a rule can make calls of an Op, a GlobalVar or a Function only")
    try:
        return relay.Call(op, list(operands), _attributes_of(module, op, operands, attrs))
    except (tvm.TVMError, AttributeError, TypeError, ValueError) as error:
        reason = str(error).strip().splitlines()[-1]
        raise FrontEndError(f"Relay's {op.name} takes no attributes {dict(attrs)}: {reason}") from error


def _attributes_of(module: Any, op: Op, operands: Sequence[Any], given: Mapping[str, Any]) -> Any:
    """The attributes of a new call; ``None`` for an operator that has none.

    Some operators do not tell of what class theirs are, and Relay ends the process over a call without them: they are
    found as those of an example.
    """
    if op.attrs_type_key:
        return tvm.ir.make_node(op.attrs_type_key, **given)
    function = function_of(relay, op.name)
    try:
        made = _example(op, operands, function(*operands, **given))
        return made.attrs
    except (tvm.TVMError, AttributeError, TypeError, ValueError):
        # The function names the attributes in another way.
        made = _call_in(module, op) or _example(op, operands, function(*operands))
    if made.attrs is None and given:
        raise ValueError("it has none")
    return None if made.attrs is None else tvm.ir.make_node(_type_key(made.attrs), **given)


def _example(op: Op, operands: Sequence[Any], made: Any) -> Any:
    """The call that a function of Relay made, if it is a call of the operator with just these operands."""
    call = made.astuple() if isinstance(made, relay.expr.TupleWrapper) else made
    same = isinstance(call, relay.Call) and call.op == op and len(call.args) == len(operands)
    if not same or not all(a.same_as(b) for a, b in zip(call.args, operands)):
        raise ValueError(f"relay.{op.name} makes another call")
    return call


def _call_in(module: Any, op: Op) -> Any:
    """A call of an operator in the function ``@main`` of a module; ``None`` if there is none."""
    found: list[Any] = []
    relay.analysis.post_order_visit(
        module["main"], lambda expr: found.append(expr) if isinstance(expr, relay.Call) and expr.op == op else None
    )
    return found[0] if found else None


def _type_key(attrs: Any) -> str:
    """The name under which TVM knows the class of attributes."""
    saved = json.loads(tvm.ir.save_json(attrs))
    return str(saved["nodes"][saved["root"]]["type_key"])


def _global(module: Any, name: str) -> Any:
    found = next((var for var in module.get_global_vars() if str(var.name_hint) == name), None)
    if found is None:
        names = [str(var.name_hint) for var in module.get_global_vars()]
        raise FrontEndError(f"the module of Relay has no function @{name}; {nearest(name, names)}")
    return found


def is_impure(module: Any, body: Any) -> bool:
    """True if an expression, or a function that it may call, creates, reads or writes references."""
    done: set[str] = set()
    work = [body]
    found = False

    def visit(expr: Any) -> None:
        nonlocal found
        if isinstance(expr, _IMPURE):
            found = True
        elif isinstance(expr, relay.GlobalVar) and expr.name_hint not in done:
            done.add(expr.name_hint)
            function = module.functions.get(expr)
            if isinstance(function, relay.Function):
                work.append(function)

    while work and not found:
        relay.analysis.post_order_visit(work.pop(), visit)
    return found


# ---------------------------------------------------------------- outlined groups


def is_group(callee: Any) -> bool:
    """True for a function that is an outlined group."""
    return isinstance(callee, relay.Function) and callee.attrs is not None and COMPOSITE in names_of(callee.attrs)


def pattern_of(body: Any) -> str:
    """The operators of a group, as ``relay.transform.MergeComposite`` notes them."""
    found: list[str] = []

    def visit(expr: Any) -> None:
        match expr:
            case relay.Call() if isinstance(expr.op, Op):
                found.append(f"{expr.op.name}_")
            case relay.Tuple():
                found.append("Tuple_")
            case relay.TupleGetItem():
                found.append(f"TupleGetItem{expr.index}_")

    relay.analysis.post_order_visit(body, visit)
    return "".join(found)


def composite(callee: Any) -> Any:
    """The function that computes a group: itself, or the one that it stands around; ``None`` if it is no group."""
    if is_group(callee):
        return callee
    if codegen_of(callee) is None or not isinstance(callee.body, relay.Call) or not is_group(callee.body.op):
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
